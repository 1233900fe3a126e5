// SPDX-License-Identifier: MIT
// A kernel's identity: 128 bits over its text without names. Not cryptographic.
#include <cstring>

#include "base/error.h"
#include "kernel/passes.h"

namespace cermet::ir {

namespace {

// The two halves of a 64 x 64 bit product, folded.
uint64_t fold_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Odd constants with balanced bits (digits of pi).
constexpr uint64_t kSecret[4] = {0x243f6a8885a308d3u, 0x13198a2e03707345u, 0xa4093822299f31d1u,
                                 0x082efa98ec4e6c89u};

}  // namespace

std::string Hash::hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

Hash hash_of(const Kernel& kernel) { return hash_bytes(print(kernel, false)); }

Hash hash_bytes(std::string_view text) {
  uint64_t lo = kSecret[0] ^ text.size(), hi = kSecret[1] + text.size();
  for (size_t at = 0; at < text.size(); at += 16) {
    uint64_t word[2] = {};
    std::memcpy(word, text.data() + at, std::min<size_t>(16, text.size() - at));
    const uint64_t before = lo;
    lo = fold_product(lo ^ word[0], kSecret[2] ^ word[1]) + hi;
    hi = fold_product(hi ^ word[1], kSecret[3] ^ word[0]) ^ (before << 32 | before >> 32);
  }
  return {fold_product(lo ^ kSecret[1], hi ^ kSecret[2]),
          fold_product(hi ^ kSecret[3], lo ^ kSecret[0])};
}

}  // namespace cermet::ir
