// SPDX-License-Identifier: MIT
// One trace of compile at a time, over all threads; the others wait for its end, as long as it goes on.
#pragma once

#include <chrono>

#include "bind.h"
#include "runtime/long_lock.h"
#include "schedule/symbols.h"

namespace cermet::python {

// Traces put placeholders into arrays that other threads may see, so there is one at a time.
class TraceLock {
 public:
  // False when another thread's trace stands still for long (it may wait for this one).
  bool acquire() {
    held_ = lock().try_lock_for(std::chrono::seconds(0));
    for (bool goes_on = true; !held_ && goes_on;) {
      const uint64_t nodes = Symbols::nodes_made();
      held_ = without_gil([] { return lock().try_lock_for(std::chrono::seconds(1)); });
      goes_on = is_making || Symbols::nodes_made() != nodes;
    }
    return held_;
  }
  ~TraceLock() {
    if (held_) lock().unlock();
  }

  // While one lives, under the lock, its holder makes a program: it waits for nobody.
  struct Making {
    Making() { is_making = true; }
    ~Making() { is_making = false; }
  };

 private:
  // Whoever forks in Python has the GIL, without which no trace ends.
  struct Lock : LongLock {
    Lock() : LongLock(false, [] { is_making = false; }) {}
  };
  static Lock& lock() {
    static constinit ForkSafe<Lock> lock(ForkLevel::graph);
    return lock.get();
  }
  inline static bool is_making = false;  // under the GIL
  bool held_ = false;
};

}  // namespace cermet::python
