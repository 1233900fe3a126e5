// SPDX-License-Identifier: MIT
#include "runtime/affinity.h"

#include <sched.h>

#include <bit>

namespace cermet {
namespace {

constexpr size_t kWordBits = 64;

}  // namespace

std::optional<AffinityMask> AffinityMask::of(pid_t thread) {
  // Linux refuses a mask that is shorter than its own.
  for (size_t processors = 1024; processors <= size_t{1} << 20; processors *= 2) {
    AffinityMask mask;
    mask.words_.resize(processors / kWordBits);
    if (sched_getaffinity(thread, processors / 8,
                          reinterpret_cast<cpu_set_t*>(mask.words_.data())) == 0)
      return mask;
  }
  return std::nullopt;
}

int AffinityMask::count() const {
  int count = 0;
  for (const uint64_t word : words_) count += std::popcount(word);
  return count;
}

void AffinityMask::remove(int processor) {
  const auto at = static_cast<size_t>(processor);
  if (at / kWordBits < words_.size()) words_[at / kWordBits] &= ~(uint64_t{1} << at % kWordBits);
}

bool AffinityMask::set(pid_t thread) const {
  return sched_setaffinity(thread, words_.size() * sizeof(uint64_t),
                           reinterpret_cast<const cpu_set_t*>(words_.data())) == 0;
}

bool AffinityMask::set_new(pthread_t thread) const {
  return pthread_setaffinity_np(thread, words_.size() * sizeof(uint64_t),
                                reinterpret_cast<const cpu_set_t*>(words_.data())) == 0;
}

}  // namespace cermet
