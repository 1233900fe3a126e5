// SPDX-License-Identifier: MIT
#include "runtime/fault.h"

#include <atomic>

#include "base/env.h"
#include "base/lazy.h"

namespace cermet {

namespace {

std::atomic<int64_t>& countdown() {
  static constinit Lazy<std::atomic<int64_t>> left;
  return left.get([] { return std::atomic<int64_t>(env::to_int(env::fail_alloc())); });
}

}  // namespace

bool allocation_fails() {
  std::atomic<int64_t>& left = countdown();
  return left.load(std::memory_order_relaxed) > 0 &&
         left.fetch_sub(1, std::memory_order_relaxed) == 1;
}

void fail_allocation(int64_t n) { countdown() = n; }

}  // namespace cermet
