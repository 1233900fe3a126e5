// SPDX-License-Identifier: MIT
// A wait by a caller while it lives: counted, and its length told in the log (sync).
#pragma once

#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/log.h"

namespace cermet {

class CallerWait {
 public:
  explicit CallerWait(const char* what)  // what is waited for
      : what_(what), begin_(log_enabled(LogTopic::sync) ? now_ns() : 0) {
    count(Counter::syncs);
  }
  ~CallerWait() {
    if (begin_ != 0)
      log_line(LogTopic::sync, "waited {:.1f} us for {}",
               static_cast<double>(now_ns() - begin_) / 1e3, what_);
  }
  CallerWait(const CallerWait&) = delete;
  CallerWait& operator=(const CallerWait&) = delete;

 private:
  const char* what_;
  int64_t begin_;
};

}  // namespace cermet
