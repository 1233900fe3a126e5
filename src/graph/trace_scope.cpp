// SPDX-License-Identifier: MIT
#include "graph/trace_scope.h"

#include <array>
#include <atomic>

namespace cermet {

namespace {

// The traces that last, each at the place that its lowest bits name.
constexpr TraceId kPlaces = 64;
std::array<std::atomic<TraceId>, kPlaces> lasting{};

TraceId begin_trace() {
  static constinit std::atomic<TraceId> count{0};
  const TraceId number = count.fetch_add(1, std::memory_order_relaxed) + 1;
  for (TraceId i = 0; i < kPlaces; ++i) {
    const TraceId place = (number + i) % kPlaces, id = number * kPlaces + place;
    TraceId none = 0;
    if (lasting[place].compare_exchange_strong(none, id)) return id;
  }
  return TraceScope::kForever;
}

}  // namespace

constinit thread_local TraceId TraceScope::current_ = 0;

TraceScope::TraceScope() : before_(current_) {
  if (before_ == 0) current_ = begin_trace();
}

TraceScope::~TraceScope() {
  if (before_ != 0) return;
  if (current_ != kForever) lasting[current_ % kPlaces].store(0, std::memory_order_release);
  current_ = 0;
}

bool TraceScope::lasts(TraceId id) {
  return id == kForever || (id != 0 && lasting[id % kPlaces].load(std::memory_order_acquire) == id);
}

TraceId TraceScope::joined(TraceId a, TraceId b) {
  if (a == b || !lasts(b)) return a;
  return lasts(a) ? kForever : b;
}

}  // namespace cermet
