// SPDX-License-Identifier: MIT
// What must be held across fork(2), in one order: locks are taken from the top of ForkLevel down
// and let go in reverse, in the parent and in the child. A module that has a lock or threads
// registers once; a lock may be taken while holding one of an earlier level, never of a later one.
#pragma once

#include <cstdint>
#include <functional>

namespace cermet {

enum class ForkLevel : uint8_t { graph, streams, compiler, cache, pool, allocator, leaf };

// Each may be empty.
struct ForkHandler {
  std::function<void()> prepare;  // take the lock
  std::function<void()> parent;   // release it
  std::function<void()> child;    // release it and forget threads that no longer exist
};

// Not to be called from a handler. Handlers of one level run in the order of registration.
void on_fork(ForkLevel level, ForkHandler handler);

// A lock that is held across every fork; it must live for ever.
template <typename Lock>
void hold_over_fork(ForkLevel level, Lock& lock) {
  const auto release = [&lock] { lock.unlock(); };
  on_fork(level, {[&lock] { lock.lock(); }, release, release});
}

}  // namespace cermet
