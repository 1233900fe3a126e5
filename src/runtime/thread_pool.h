// SPDX-License-Identifier: MIT
// The one thread pool of the process. Work is cut into chunks that threads claim by ticket, the caller those of
// the front half and workers those of the back half, both forwards, so that runs over the same data find it in the
// same cores' caches; of short runs they claim most of their share at once. The caller takes part, so it never waits
// for a thread that has not begun. Workers spin for a moment after work (not at all when the quota is below the
// cores), then park; waking a parked one costs ~10 us, so only work above ~100 us does it, in one run or in a row of
// them. Re-created in the child of a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace cermet {

class ThreadPool {
 public:
  // Handles items [begin, end). worker: 0 <= worker < size(), no two threads of one run share it.
  using Body = void (*)(void* context, int64_t begin, int64_t end, int worker);

  static constexpr double kParallelCost = 1e3;  // ns of work from which a spinning worker helps
  static constexpr double kWakeCost = 1e5;      // ns of work from which a parked one is woken

  static ThreadPool& get();

  // Threads that may take part in a run, the caller included: at first default_pool_size().
  int size() const;
  // For tests: waits for the runs in flight. Raises [thread_pool] value when n < 1.
  void set_size(int n);

  // Covers [0, items) once, in chunks of a multiple of grain items (the last may be shorter, and
  // one chunk may be all); returns when all are done. cost_ns: about what the whole would take on
  // one thread. How chunks fall to threads must not matter to the result. A run inside a body runs
  // in that thread alone. The first exception of a body ends the claiming and is rethrown here; the
  // poll hook likewise, as [eval] interrupted. Bodies run with default rounding and without
  // flush-to-zero.
  // bytes: of the context, if bodies but read these and may be given a copy: of a few, one lies where threads find it in
  // one step. 0: bodies get the context itself.
  void run(int64_t items, int64_t grain, double cost_ns, Body body, void* context,
           size_t bytes = 0);

  // f(begin, end, worker), or a copy of it where that cannot matter.
  template <typename F>
  void run(int64_t items, int64_t grain, double cost_ns, F&& f) {
    using Function = std::remove_reference_t<F>;
    run(
        items, grain, cost_ns,
        [](void* context, int64_t begin, int64_t end, int worker) {
          (*static_cast<Function*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&f)),
        is_copied<Function> ? sizeof(Function) : 0);
  }

  // For long bodies, between their parts: whether the run is to end, since the poll hook says so or another
  // body has failed. Then the body raises [eval] interrupted.
  static bool must_stop();
  [[noreturn]] static void interrupt();
  static void poll() {
    if (must_stop()) interrupt();
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

 private:
  struct State;
  struct OfProcess;
  enum class Sharing : uint8_t { none, awake, wake };  // with nobody, spinning workers, parked ones
  template <typename F>
  static constexpr bool is_copied =
      std::is_trivially_copyable_v<F> && alignof(F) <= alignof(int64_t) &&
      std::is_invocable_v<const F&, int64_t, int64_t, int>;
  ThreadPool() = default;
  State& state() const;

  mutable std::atomic<State*> state_{nullptr};  // made at first use, and again in a child
  std::atomic<int> wanted_size_{0};             // by set_size; 0: default_pool_size()
};

// min(affinity, quota rounded up, CERMET_NUM_THREADS), >= 1.
int default_pool_size();

}  // namespace cermet
