// SPDX-License-Identifier: MIT
// A recursive lock for work that may take long. A fork waits for the work of another thread until
// fork_deadline() at most, or not at all; when it goes on without, the lock is free in the child, and
// what it guards must be fit for having been left halfway. Of a condition variable instead of a
// std::timed_mutex, whose timed locking the thread sanitizer of gcc 12 does not see. One is a ForkSafe's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/fork.h"

namespace cermet {

class LongLock {
 public:
  // lost: called in a child that is without the thread that held the lock.
  LongLock(bool fork_waits, void (*lost)()) : fork_waits_(fork_waits), lost_(lost) {}
  LongLock(const LongLock&) = delete;
  LongLock& operator=(const LongLock&) = delete;

  bool try_lock_for(std::chrono::nanoseconds timeout);
  void unlock();
  ForkHandler over_fork();

 private:
  bool is_others() const { return depth_ != 0 && owner_ != std::this_thread::get_id(); }
  void prepare();
  void resume();
  void resume_in_child();

  const bool fork_waits_;
  void (*const lost_)();
  std::mutex mutex_;  // of the members; held across forks
  std::condition_variable freed_;
  std::thread::id owner_;
  int depth_ = 0;
  int waiting_ = 0;
  bool forking_ = false;  // a fork waits: it comes before those who ask for the lock now
};

}  // namespace cermet
