// SPDX-License-Identifier: MIT
#include "runtime/fault.h"

#include <atomic>

#include "base/env.h"

namespace cermet {

namespace {

std::atomic<int64_t>& countdown() {
  static std::atomic<int64_t> left{env::to_int(env::fail_alloc())};
  return left;
}

}  // namespace

void prepare_faults() { countdown(); }

bool allocation_fails() {
  std::atomic<int64_t>& left = countdown();
  return left.load(std::memory_order_relaxed) > 0 &&
         left.fetch_sub(1, std::memory_order_relaxed) == 1;
}

void fail_allocation(int64_t n) { countdown() = n; }

}  // namespace cermet
