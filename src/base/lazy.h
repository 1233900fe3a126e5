// SPDX-License-Identifier: MIT
// A value made at first use. A function's static variable would do, but for forks: one that a thread is making
// when another one forks stays unfinished in the child, which waits for it for ever. Here nobody waits: threads
// that come at a time each make the value, and one is kept.
#pragma once

#include <atomic>
#include <memory>

namespace cermet {

// To be constinit; the value lives for ever. What has a lock, or handlers of its own, is a ForkSafe
// (runtime/fork.h).
template <typename T>
class Lazy {
 public:
  // make: gives the T. It may be called by several threads and change nothing else.
  template <typename F>
  T& get(F&& make) {
    T* kept = kept_.load(std::memory_order_acquire);
    if (kept != nullptr) [[likely]]
      return *kept;
    std::unique_ptr<T> made(new T(make()));
    return kept_.compare_exchange_strong(kept, made.get(), std::memory_order_acq_rel,
                                         std::memory_order_acquire)
               ? *made.release()
               : *kept;
  }

 private:
  std::atomic<T*> kept_{nullptr};
};

}  // namespace cermet
