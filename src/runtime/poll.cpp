// SPDX-License-Identifier: MIT
#include "runtime/poll.h"

#include <atomic>

#include "base/error.h"
#include "runtime/clock.h"

namespace cermet {
namespace {

std::atomic<PollHook> hook{nullptr};
thread_local int64_t next_poll = 0;

}  // namespace

constinit thread_local int Uncancelled::depth_ = 0;

void set_poll_hook(PollHook new_hook) { hook.store(new_hook, std::memory_order_release); }

bool cancelled() {
  PollHook current = hook.load(std::memory_order_acquire);
  if (current == nullptr) return false;
  const int64_t now = coarse_ns();
  if (now < next_poll || Uncancelled::is_active()) return false;
  next_poll = now + kPollPeriodNs;
  return current();
}

void check_cancelled(const char* op) {
  CERMET_CHECK(!cancelled(), interrupted, op, "interrupted; the results asked for are not made");
}

}  // namespace cermet
