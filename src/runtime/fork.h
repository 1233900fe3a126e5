// SPDX-License-Identifier: MIT
// What must be held across fork(2), in one order: locks are taken from the top of ForkLevel down
// and let go in reverse, in the parent and in the child. A module that has a lock or threads
// has them in a ForkSafe; a lock may be taken while holding one of an earlier level, never of a later one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
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

// Registers the handler if `keep` gives true, both in one step as far as forks can see. Handlers of one level run
// in the order of registration; none may register another. Gives what `keep` gave.
bool on_fork_if(const std::function<bool()>& keep, ForkLevel level, ForkHandler handler);

// Until when the fork in progress waits for work that may take long: a second from its beginning.
// Work that waits for the forking thread (Python's for the GIL) must not hold it up for ever.
std::chrono::steady_clock::time_point fork_deadline();

template <typename Lock>
ForkHandler hold_over_fork(Lock& lock) {
  const auto release = [&lock] { lock.unlock(); };
  return {[&lock] { lock.lock(); }, release, release};
}

// What a module has once, made at first use: a lock, something with a lock called `mutex`, or what tells its
// handler by over_fork(). It lives for ever and is held across every fork; a fork that comes while it is being
// made finds none in the child. To be constinit; see base/lazy.h for why it is no static T. Threads that come at a
// time each make a T, of which one is kept: its constructor registers nothing, and its destructor is for the others.
template <typename T>
class ForkSafe {
 public:
  constexpr explicit ForkSafe(ForkLevel level) : level_(level) {}

  // Not to be called first from a handler.
  T& get() {
    T* kept = kept_.load(std::memory_order_acquire);
    return kept != nullptr ? *kept : make();
  }

 private:
  static ForkHandler handler_of(T& made) {
    if constexpr (requires { made.over_fork(); }) return made.over_fork();
    else if constexpr (requires { made.mutex; }) return hold_over_fork(made.mutex);
    else return hold_over_fork(made);
  }
  T& make() {
    auto made = std::make_unique<T>();
    const auto keep = [&] {
      T* none = nullptr;
      return kept_.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel);
    };
    if (on_fork_if(keep, level_, handler_of(*made))) return *made.release();
    return *kept_.load(std::memory_order_acquire);
  }

  std::atomic<T*> kept_{nullptr};
  ForkLevel level_;
};

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
