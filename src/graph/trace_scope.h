// SPDX-License-Identifier: MIT
// How long a trace lasts. Nodes made from traced ones keep their inputs when they become ready, since a
// transform may still go down to these; once the outermost transform has ended nobody does, and what is
// made of its results later, such as the weights of the next step, is no part of any trace.
#pragma once

#include <cstdint>

namespace cermet {

using TraceId = uint64_t;  // 0: of no trace

// While one lives, this thread is inside a transform; those inside it are of the same trace.
class TraceScope {
 public:
  static constexpr TraceId kForever = 1;  // of one whose end is not known

  TraceScope();
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  static TraceId current() { return current_ == 0 ? kForever : current_; }
  static bool lasts(TraceId id);  // on whatever thread; 0 does not
  // The trace of what is made from things of both.
  static TraceId joined(TraceId a, TraceId b);

 private:
  static constinit thread_local TraceId current_;
  const TraceId before_;
};

}  // namespace cermet
