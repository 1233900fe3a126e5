// SPDX-License-Identifier: MIT
#include "runtime/event.h"

#include <climits>

#include "runtime/futex.h"
#include "runtime/poll.h"
#include "runtime/wait.h"

namespace cermet {

void Event::signal() {
  // A waiter may destroy the event between the two lines: futex_wake uses the address alone.
  if (state_.exchange(kSignaled, std::memory_order_acq_rel) == kAwaited)
    futex_wake(state_, INT_MAX);
}

void Event::wait(const char* op) {
  if (is_signaled()) return;
  const CallerWait wait(op);
  while (true) {
    uint32_t state = 0;
    state_.compare_exchange_strong(state, kAwaited, std::memory_order_acq_rel);
    if (state == kSignaled) return;
    futex_wait(state_, kAwaited, kPollPeriodNs);
    if (is_signaled()) return;
    check_cancelled(op);
  }
}

}  // namespace cermet
