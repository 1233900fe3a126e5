// SPDX-License-Identifier: MIT
// A one-shot event: set once, waited for by any number of threads. Waiting sleeps in the kernel and
// looks at the poll hook (poll.h) at least every 50 ms, so Ctrl-C reaches a thread that waits.
#pragma once

#include <atomic>
#include <cstdint>

namespace cermet {

class Event {
 public:
  // What was written before signal() is seen after wait() or once is_signaled() gave true; the
  // event may be destroyed from then on.
  void signal();
  bool is_signaled() const { return state_.load(std::memory_order_acquire) == kSignaled; }
  // Counts a sync when it has to wait. Raises [op] interrupted when the poll hook cancels.
  void wait(const char* op = "eval");

 private:
  static constexpr uint32_t kAwaited = 1;  // not set, and somebody may sleep
  static constexpr uint32_t kSignaled = 2;
  std::atomic<uint32_t> state_{0};
};

}  // namespace cermet
