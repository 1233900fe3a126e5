// SPDX-License-Identifier: MIT
// What must be held across fork(2), in one order: locks are taken from the top of ForkLevel down
// and let go in reverse, in the parent and in the child. A module that has a lock or threads
// registers once; a lock may be taken while holding one of an earlier level, never of a later one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "runtime/process_end.h"

namespace cermet {

enum class ForkLevel : uint8_t {
  queues,
  graph,
  nodes,
  streams,
  compiler,
  cache,
  pool,
  allocator,
  leaf
};

// Each may be empty.
struct ForkHandler {
  std::function<void()> prepare;  // take the lock
  std::function<void()> parent;   // release it
  std::function<void()> child;    // release it and forget threads that no longer exist
};

// Not to be called from a handler. Handlers of one level run in the order of registration.
void on_fork(ForkLevel level, ForkHandler handler);

// Until when the fork in progress waits for work that may take long: a second from its beginning.
// Work that waits for the forking thread (Python's for the GIL) must not hold it up for ever.
std::chrono::steady_clock::time_point fork_deadline();

// A lock that is held across every fork; it must live for ever.
template <typename Lock>
void hold_over_fork(ForkLevel level, Lock& lock) {
  const auto release = [&lock] { lock.unlock(); };
  on_fork(level, {[&lock] { lock.lock(); }, release, release});
}

// For what a module has once, at first use: a lock, or something with a lock called `mutex`. It lives for
// ever, and the lock is held across every fork.
template <typename T>
T& make_fork_safe(ForkLevel level) {
  T& made = *new T;
  if constexpr (requires { made.mutex; }) hold_over_fork(level, made.mutex);
  else hold_over_fork(level, made);
  return made;
}

// A gate through which work goes that a fork waits for, held across forks like a lock. Not a
// shared_mutex: glibc's knows its writer by a thread id that differs in the child.
class ForkGate {
 public:
  void enter() {
    std::unique_lock lock(mutex_);
    while (closed_ && !is_ending_thread()) empty_.wait(lock);
    ++inside_;
  }
  void leave() {
    std::lock_guard lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
  }
  void lock() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [this] { return inside_ == 0; });
    lock.release();
  }
  void unlock() { mutex_.unlock(); }
  // At the end of the process: waits a while until it is empty; then no other thread enters any more.
  void close() {
    constexpr std::chrono::seconds kPatience{5};
    std::unique_lock lock(mutex_);
    closed_ = true;
    empty_.wait_for(lock, kPatience, [this] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  int inside_ = 0;
  bool closed_ = false;
};

struct InForkGate {
  explicit InForkGate(ForkGate& gate) : gate(gate) { gate.enter(); }
  ~InForkGate() { gate.leave(); }
  InForkGate(const InForkGate&) = delete;
  InForkGate& operator=(const InForkGate&) = delete;
  ForkGate& gate;
};

}  // namespace cermet
