// SPDX-License-Identifier: MIT
#include "runtime/long_lock.h"

#include <new>

namespace cermet {

ForkHandler LongLock::over_fork() {
  return {[this] { prepare(); }, [this] { resume(); }, [this] { resume_in_child(); }};
}

bool LongLock::try_lock_for(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto free = [this] { return !is_others() && (depth_ != 0 || !forking_); };
  if (!free() && timeout.count() > 0) {
    ++waiting_;
    freed_.wait_for(lock, timeout, free);
    --waiting_;
  }
  if (!free()) return false;
  owner_ = std::this_thread::get_id();
  ++depth_;
  return true;
}

void LongLock::unlock() {
  std::lock_guard lock(mutex_);
  if (--depth_ == 0 && waiting_ != 0) freed_.notify_all();
}

// Leaves the mutex locked, whether or not the lock became free.
void LongLock::prepare() {
  std::unique_lock lock(mutex_);
  forking_ = true;
  ++waiting_;
  if (fork_waits_) freed_.wait_until(lock, fork_deadline(), [this] { return !is_others(); });
  --waiting_;
  lock.release();
}

void LongLock::resume() {
  forking_ = false;
  if (waiting_ != 0) freed_.notify_all();
  mutex_.unlock();
}

void LongLock::resume_in_child() {
  new (&freed_) std::condition_variable;  // over the old one: whoever waited is gone
  waiting_ = 0;
  forking_ = false;
  const bool cut_short = is_others();
  if (cut_short) depth_ = 0;
  mutex_.unlock();
  if (cut_short) lost_();
}

}  // namespace cermet
