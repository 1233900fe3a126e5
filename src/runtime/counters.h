// SPDX-License-Identifier: MIT
// What the process has done, in numbers that tests rely on. Relaxed atomics: each total is exact, a
// snapshot taken while others work is not one instant.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace cermet {

// X(name, meaning)
#define CERMET_COUNTERS(X)                                                                    \
  X(kernels_launched, "program steps that ran generated code, one each whatever the threads") \
  X(kernels_compiled, "kernels compiled by LLVM")                                             \
  X(compile_us, "microseconds that compiling them took, added up over threads")                \
  X(kernel_hits_memory, "kernels found in memory")                                            \
  X(kernel_hits_disk, "kernels found in the disk cache")                                      \
  X(kernel_hits_seed, "kernels found in the seed cache")                                      \
  X(programs_built, "programs planned from a graph")                                          \
  X(program_hits, "programs found in the plan cache")                                         \
  X(traces, "functions traced by compile")                                                    \
  X(bytes_read, "distinct input bytes of the kernels launched")                               \
  X(bytes_written, "distinct output bytes of the kernels launched")                           \
  X(allocations, "blocks taken from the operating system or driver")                          \
  X(allocator_hits, "blocks taken from the allocator's cache")                                \
  X(packed_hits, "packed operands of products found from earlier launches")                    \
  X(syncs, "waits by a caller")

enum class Counter : uint8_t {
#define X(name, meaning) name,
  CERMET_COUNTERS(X)
#undef X
};
#define X(name, meaning) +1
inline constexpr int kCounterCount = 0 CERMET_COUNTERS(X);
#undef X

namespace detail {
extern std::array<std::atomic<uint64_t>, kCounterCount> counters;
}

inline void count(Counter counter, uint64_t n = 1) {
  detail::counters[static_cast<size_t>(counter)].fetch_add(n, std::memory_order_relaxed);
}
inline uint64_t total(Counter counter) {
  return detail::counters[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
}
void count_library_call(std::string_view name);

struct CounterSnapshot {
#define X(name, meaning) uint64_t name = 0;
  CERMET_COUNTERS(X)
#undef X
  std::map<std::string, uint64_t> library_calls;  // by name
};

// Totals since the start or the last reset; reset: each is read and cleared in one step.
CounterSnapshot snapshot_counters(bool reset = false);

}  // namespace cermet
