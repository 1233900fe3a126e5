// SPDX-License-Identifier: MIT
// Which processor a worker of the pool is woken on.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/affinity.h"

namespace cermet {

// A worker that starts or is parked. Linux may put it on the processor of the thread that starts or wakes it, and where
// few share a cache it hardly looks for another one: beside a busy caller the worker waits for ten milliseconds and more,
// while the other processor idles. So who wakes it forbids it its own processor, until it runs.
class Sleeper {
 public:
  // By the worker: as it starts, before it sleeps, and when it runs again.
  void begin() {
    thread_ = gettid();
    get_up();
  }
  void lie_down() { processor_.store(sched_getcpu(), std::memory_order_release); }
  void get_up() {
    processor_.store(kAwake, std::memory_order_relaxed);
    while (mask_.load(std::memory_order_acquire) == Mask::changes) sched_yield();
    if (mask_.load(std::memory_order_relaxed) != Mask::narrowed) return;
    whole_->set(0);
    mask_.store(Mask::whole, std::memory_order_release);
  }
  // By who starts it, before and after.
  void expect() { mask_.store(Mask::changes, std::memory_order_relaxed); }
  void start(pthread_t thread, int processor) {
    const auto set = [&](const AffinityMask& mask) { return mask.set_new(thread); };
    narrow(AffinityMask::of(0), processor, set);
  }
  // By who wakes it, from this processor. always: wherever it fell asleep.
  void leave(int processor, bool always) {
    const int last = processor_.load(std::memory_order_acquire);
    if (last == kAwake || (last != processor && !always)) return;
    Mask whole = Mask::whole;
    if (!mask_.compare_exchange_strong(whole, Mask::changes, std::memory_order_acq_rel)) return;
    const auto set = [&](const AffinityMask& mask) { return mask.set(thread_); };
    narrow(AffinityMask::of(thread_), processor, set);
  }

 private:
  template <typename Set>
  void narrow(std::optional<AffinityMask> whole, int processor, Set&& set) {
    whole_ = std::move(whole);
    std::optional<AffinityMask> others = whole_;
    if (others) others->remove(processor);
    const bool narrowed = others && others->count() > 0 && set(*others);
    mask_.store(narrowed ? Mask::narrowed : Mask::whole, std::memory_order_release);
  }

  static constexpr int kAwake = -1;
  enum class Mask : uint8_t { whole, changes, narrowed };

  pid_t thread_ = 0;
  std::atomic<int> processor_{kAwake};  // where it fell asleep
  std::atomic<Mask> mask_{Mask::whole};
  std::optional<AffinityMask> whole_;
};

}  // namespace cermet
