// SPDX-License-Identifier: MIT
// Short waits: a processor hint for spin loops, and a lock for sections of some tens of ns.
// A holder may lose its processor, so a waiter soon yields instead of spinning on.
#pragma once

#include <sched.h>

#include <atomic>

namespace cermet {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Asks for a line that this processor is about to change: one transfer from another one's cache, not one to read and
// one to write.
inline void prefetch_to_change(const void* at) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) wait();
  }
  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  void wait() {
    for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
      if (spins < 100) {
        cpu_relax();
      } else {
        sched_yield();
      }
    }
  }

  std::atomic<bool> locked_{false};
};

}  // namespace cermet
