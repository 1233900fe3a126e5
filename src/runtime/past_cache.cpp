// SPDX-License-Identifier: MIT
#include "runtime/past_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

extern "C" void cermet_store_past_cache(char* to, const char* from, size_t bytes) {
#if defined(__x86_64__)
  constexpr size_t kLine = 64;  // partly written lines are read first
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (size_t i = 0; i < kLine; i += 16) {
      const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + i), part);
    }
  }
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}
