// SPDX-License-Identifier: MIT
// Counters and the log.
#include "runtime/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/child.h"
#include "runtime/log.h"

namespace cermet {
namespace {

TEST(Counters, AreExactOverThreads) {
  snapshot_counters(true);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 1000; ++j) {
        count(Counter::traces);
        count(Counter::bytes_read, 10);
        count_library_call(j % 2 == 0 ? "gemm" : "syrk");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CounterSnapshot seen = snapshot_counters();
  EXPECT_EQ(seen.traces, 4000u);
  EXPECT_EQ(seen.bytes_read, 40000u);
  EXPECT_EQ(seen.bytes_written, 0u);
  EXPECT_EQ(seen.library_calls, (std::map<std::string, uint64_t>{{"gemm", 2000}, {"syrk", 2000}}));
  seen = snapshot_counters(true);
  EXPECT_EQ(seen.traces, 4000u);
  EXPECT_EQ(seen.library_calls.size(), 2u);
  seen = snapshot_counters();
  EXPECT_EQ(seen.traces, 0u);
  EXPECT_TRUE(seen.library_calls.empty());
}

TEST(Log, WritesTheTopicsAskedFor) {
  set_log("plan,sync");
  EXPECT_TRUE(log_enabled(LogTopic::plan));
  EXPECT_FALSE(log_enabled(LogTopic::kernel));
  testing::internal::CaptureStderr();
  log_line(LogTopic::plan, "{} regions", 3);
  log_line(LogTopic::alloc, "not this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[cermet plan] 3 regions\n");
  EXPECT_THROW(set_log("plan,other"), Error);
  set_log("");
  EXPECT_FALSE(log_enabled(LogTopic::plan));
}

TEST(Log, ReadsItsVariable) {
  if (getenv("CERMET_LOG") == nullptr) {
    EXPECT_TRUE(rerun_with("CERMET_LOG", "alloc", "Log.ReadsItsVariable"));
    return;
  }
  EXPECT_TRUE(log_enabled(LogTopic::alloc));
  EXPECT_FALSE(log_enabled(LogTopic::plan));
}

}  // namespace
}  // namespace cermet
