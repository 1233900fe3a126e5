// SPDX-License-Identifier: MIT
// Runs of pages: where they lie, what they hold, and what is in memory of what was given back.
#include "runtime/page_runs.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "runtime/memory_source.h"

namespace cermet {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kKiB = 1024;

struct Taken {
  char* data;
  size_t bytes;
  char value;
};

Taken taken(PageRuns& runs, size_t bytes, char value = 1) {
  char* data = static_cast<char*>(runs.take(bytes));
  EXPECT_NE(data, nullptr);
  std::memset(data, value, bytes);
  return {data, bytes, value};
}

// Bytes in memory of those from `data` on; what is not mapped is not.
size_t resident(char* data, size_t bytes) {
  size_t sum = 0;
  for (char* at = data; at < data + bytes; at += kPage) {
    unsigned char present = 0;
    if (mincore(at, kPage, &present) == 0 && (present & 1) != 0) sum += kPage;
  }
  return sum;
}

bool system_has_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string text;
  std::getline(file, text);
  return !text.empty() && text.find("[never]") == std::string::npos;
}

TEST(PageRuns, LieSideBySideInHugePages) {
  PageRuns runs;
  char* first = static_cast<char*>(runs.take(128 * kKiB));
  char* second = static_cast<char*>(runs.take(3 * kHugeBlock));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % kHugeBlock, 0u);
  EXPECT_EQ(second, first + 128 * kKiB);
  first[0] = 1;
  if (system_has_huge_pages()) {
    EXPECT_EQ(resident(first, kHugeBlock), kHugeBlock);
  }
  runs.give_back(first, 128 * kKiB);
  runs.give_back(second, 3 * kHugeBlock);
}

TEST(PageRuns, WhatIsFreeIsNotInMemory) {
  PageRuns runs;
  const Taken a = taken(runs, 512 * kKiB), b = taken(runs, kHugeBlock), c = taken(runs, 512 * kKiB),
              d = taken(runs, 5 * kPage);
  runs.give_back(b.data, b.bytes);
  EXPECT_EQ(resident(b.data, b.bytes), 0u);
  EXPECT_EQ(std::count(a.data, a.data + a.bytes, 1), static_cast<int64_t>(a.bytes));
  EXPECT_EQ(std::count(c.data, c.data + c.bytes, 1), static_cast<int64_t>(c.bytes));
  runs.give_back(a.data, a.bytes);  // with b's a whole huge page
  EXPECT_EQ(resident(a.data, a.bytes + b.bytes), 0u);
  const Taken again = taken(runs, 6 * kPage);  // the first place that is large enough
  EXPECT_EQ(again.data, a.data);
  if (system_has_huge_pages()) {
    EXPECT_EQ(resident(again.data, kHugeBlock), kHugeBlock);
  }
  for (const Taken& run : {c, d, again}) runs.give_back(run.data, run.bytes);
  EXPECT_EQ(resident(a.data, 4 * kHugeBlock), 0u);
}

TEST(PageRuns, RefusesWhatNoRegionHolds) {
  PageRuns runs;
  EXPECT_EQ(runs.take(size_t{1} << 40), nullptr);
}

TEST(PageRuns, KeepWhatTheyHold) {
  PageRuns runs;
  std::mt19937 random(20261125);
  std::vector<Taken> live;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() < 100 && random() % 2 == 0) {
      const size_t pages = 1 + random() % (random() % 8 == 0 ? 2000 : 40);
      live.push_back(taken(runs, pages * kPage, static_cast<char>(step)));
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const Taken run = live.back();
      live.pop_back();
      ASSERT_EQ(std::count(run.data, run.data + run.bytes, run.value),
                static_cast<int64_t>(run.bytes));
      runs.give_back(run.data, run.bytes);
    }
  }
  for (const Taken& run : live) {
    ASSERT_EQ(std::count(run.data, run.data + run.bytes, run.value),
              static_cast<int64_t>(run.bytes));
    runs.give_back(run.data, run.bytes);
    ASSERT_EQ(resident(run.data, run.bytes), 0u);
  }
}

}  // namespace
}  // namespace cermet
