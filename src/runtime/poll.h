// SPDX-License-Identifier: MIT
// The way by which a user's cancel (Ctrl-C) reaches long loops and waits: a hook that says whether
// to stop. It is called from whichever thread runs or waits, at most once per 20 ms and thread.
#pragma once

#include <cstdint>

namespace cermet {

// True: stop what this thread is doing. Must be thread-safe and quick.
using PollHook = bool (*)();

inline constexpr int64_t kPollPeriodNs = 20'000'000;

void set_poll_hook(PollHook hook);  // nullptr: never cancel
// Calls the hook when 20 ms have gone by since this thread's last call; a few ns otherwise.
bool cancelled();
// Raises [op] interrupted when cancelled.
void check_cancelled(const char* op);

// For loops whose turns are too short to look at the clock in each.
class SparsePoll {
 public:
  explicit SparsePoll(const char* op) : op_(op) {}
  void turn() {
    if (--left_ > 0) [[likely]]
      return;
    left_ = kTurns;
    check_cancelled(op_);
  }

 private:
  static constexpr int kTurns = 4096;
  const char* op_;
  int left_ = kTurns;
};

// While one lives, its thread is not cancelled: what has begun to write where it reads must end. The hook
// is asked afterwards.
class Uncancelled {
 public:
  Uncancelled() { ++depth_; }
  ~Uncancelled() { --depth_; }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

  static bool is_active() { return depth_ > 0; }

 private:
  static constinit thread_local int depth_;
};

}  // namespace cermet
