// SPDX-License-Identifier: MIT
#include "runtime/counters.h"

#include <functional>
#include <mutex>

#include "runtime/fork.h"

namespace cermet {

namespace detail {
std::array<std::atomic<uint64_t>, kCounterCount> counters{};
}

namespace {

struct LibraryCalls {
  std::mutex mutex;
  std::map<std::string, uint64_t, std::less<>> calls;
};

LibraryCalls& library_calls() {
  static constinit ForkSafe<LibraryCalls> calls(ForkLevel::leaf);
  return calls.get();
}

}  // namespace

void count_library_call(std::string_view name) {
  LibraryCalls& library = library_calls();
  std::lock_guard lock(library.mutex);
  auto it = library.calls.find(name);
  if (it == library.calls.end()) it = library.calls.emplace(name, 0).first;
  ++it->second;
}

CounterSnapshot snapshot_counters(bool reset) {
  CounterSnapshot snapshot;
  const auto take = [reset](Counter counter) {
    auto& total = detail::counters[static_cast<size_t>(counter)];
    return reset ? total.exchange(0, std::memory_order_relaxed)
                 : total.load(std::memory_order_relaxed);
  };
#define X(name, meaning) snapshot.name = take(Counter::name);
  CERMET_COUNTERS(X)
#undef X
  LibraryCalls& library = library_calls();
  std::lock_guard lock(library.mutex);
  snapshot.library_calls.insert(library.calls.begin(), library.calls.end());
  if (reset) library.calls.clear();
  return snapshot;
}

}  // namespace cermet
