// SPDX-License-Identifier: MIT
// The pool: each item once, nesting, errors, cancelling, forks, many callers, rounding mode, speed.
#include "runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/cgroup.h"
#include "runtime/child.h"
#include "runtime/clock.h"
#include "runtime/float_mode.h"
#include "runtime/poll.h"

namespace cermet {
namespace {

constexpr double kMuch = 1e7;  // ns: workers are woken

// Each test runs with pools of 1, 2 and 5 threads, whatever the machine has.
class Pool : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { pool.set_size(GetParam()); }
  void TearDown() override { pool.set_size(default_pool_size()); }
  ThreadPool& pool = ThreadPool::get();
};
INSTANTIATE_TEST_SUITE_P(Sizes, Pool, testing::Values(1, 2, 5));

TEST_P(Pool, CoversEachItemOnce) {
  for (int64_t items : {0, 1, 2, 7, 64, 1000, 100001}) {
    for (int64_t grain : {1, 3, 64, 5000, 1 << 20}) {
      for (double cost : {0.0, 5e3, 4e4, 5e5, kMuch}) {
        if (items / grain > 50000 && cost != kMuch) continue;
        std::vector<std::atomic<int>> seen(items);
        pool.run(items, grain, cost, [&](int64_t begin, int64_t end, int worker) {
          EXPECT_TRUE(begin % grain == 0 && begin < end && end <= items);
          EXPECT_TRUE(0 <= worker && worker < GetParam());
          for (int64_t i = begin; i < end; ++i) ++seen[i];
        });
        EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](auto& n) { return n == 1; }))
            << items << " " << grain << " " << cost;
      }
    }
  }
}

// Who is faster than the others goes on from the end of their half.
TEST_P(Pool, TheCallerHasTheFrontHalfWorkersTheBackHalf) {
  std::vector<int> by(1000);
  const auto middle = by.begin() + std::ssize(by) / 2;
  const auto is_caller = [](int worker) { return worker == 0; };
  for (int round = 0; round < 20; ++round) {
    pool.run(std::ssize(by), 1, kMuch, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) by[i] = worker;
    });
    EXPECT_TRUE(std::is_partitioned(by.begin(), middle, is_caller));
    EXPECT_TRUE(std::is_partitioned(middle, by.end(), std::not_fn(is_caller)));
    EXPECT_TRUE(std::all_of(by.begin(), middle, is_caller) ||
                std::none_of(middle, by.end(), is_caller));
    EXPECT_EQ(by[0], 0);
  }
}

TEST_P(Pool, MoreChunksThanATicketCounts) {
  std::atomic<int64_t> sum{0};
  constexpr int64_t kItems = 3'000'000;
  pool.run(kItems, 1, kMuch,
           [&](int64_t begin, int64_t end, int) { sum += (begin + end - 1) * (end - begin) / 2; });
  EXPECT_EQ(sum, kItems * (kItems - 1) / 2);
}

// A claim costs as much as some of the work.
TEST_P(Pool, ThreadsClaimMostOfShortRunsAtOnce) {
  constexpr int64_t kChunks = 8, kFair = kChunks / 2;
  pool.run(kChunks, 1, kMuch, [](int64_t, int64_t, int) {});
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> calls{0};
    std::vector<std::atomic<int>> seen(kChunks);
    pool.run(kChunks, 1, 1e4, [&](int64_t begin, int64_t end, int) {
      ++calls;
      for (int64_t i = begin; i < end; ++i) ++seen[i];
    });
    EXPECT_LE(calls, GetParam() == 2 ? 1 + kFair : kChunks);
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](auto& n) { return n == 1; }));
  }
}

// What bodies call is copied where that cannot be seen.
TEST_P(Pool, BodiesOfAnySizeAndKind) {
  struct Counting {
    int64_t items = 0;
    void operator()(int64_t begin, int64_t end, int) { std::atomic_ref(items) += end - begin; }
  } counting;
  pool.run(1000, 1, kMuch, counting);
  EXPECT_EQ(counting.items, 1000);
  std::atomic<int64_t> sum{0};
  const auto adds = [&](auto numbers) {
    return [numbers, &sum](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += numbers[static_cast<size_t>(i) % numbers.size()];
    };
  };
  for (const double cost : {4e4, kMuch}) {
    sum = 0;
    pool.run(1000, 1, cost, adds(std::array<int64_t, 1>{3}));
    EXPECT_EQ(sum, 3000);
    sum = 0;
    pool.run(1000, 1, cost, adds(std::array<int64_t, 100>{7}));  // more than a slot holds
    EXPECT_EQ(sum, 70);
    sum = 0;
    pool.run(1000, 1, cost, adds(std::vector<int64_t>{1, 2}));
    EXPECT_EQ(sum, 1500);
  }
}

TEST_P(Pool, WorkersOfARunDiffer) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::atomic<int>> inside(GetParam());
    std::atomic<bool> clash{false};
    pool.run(64, 1, kMuch, [&](int64_t, int64_t, int worker) {
      if (inside[worker]++ != 0) clash = true;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      --inside[worker];
    });
    EXPECT_FALSE(clash);
  }
}

TEST_P(Pool, UsesItsThreads) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 50 && static_cast<int>(threads.size()) < GetParam(); ++round) {
    pool.run(64, 1, kMuch, [&](int64_t, int64_t, int) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(static_cast<int>(threads.size()), GetParam());
}

// Runs too small to wake anybody for, one after the other, do get the workers.
TEST_P(Pool, ManySmallRunsWakeTheWorkers) {
  if (GetParam() == 1) return;
  pool.run(16, 1, kMuch, [](int64_t, int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they park
  std::atomic<int> helped{0};
  const int64_t start = now_ns();
  while (helped == 0 && now_ns() - start < 5'000'000'000) {
    pool.run(16, 1, 3e4, [&](int64_t, int64_t, int worker) {
      const int64_t begin = now_ns();
      while (now_ns() - begin < 2000) {
      }
      if (worker != 0) ++helped;
    });
  }
  EXPECT_GT(helped, 0);
}

// Where the caller is busy a worker would wait; all processors are its own again once it runs. Of one processor none is
// taken away.
TEST(ThreadPool, AWorkerIsWokenOnAnotherProcessor) {
  const int processors = affinity_cores();
  ThreadPool& pool = ThreadPool::get();
  pool.set_size(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the worker parks
    std::atomic<int> caller = -1, worker = -1, worker_may_use = 0;
    pool.run(2, 1, kMuch, [&](int64_t, int64_t, int number) {
      if (number == 0) {
        caller = sched_getcpu();
        const int64_t begin = now_ns();
        while (worker < 0 && now_ns() - begin < 1'000'000'000) {
        }
      } else {
        worker_may_use = affinity_cores();
        worker = sched_getcpu();
      }
    });
    ASSERT_GE(worker, 0) << "it did not come";
    EXPECT_EQ(worker == caller, processors == 1);
    EXPECT_EQ(worker_may_use, processors);
  }
  pool.set_size(default_pool_size());
}

TEST_P(Pool, NestedRunsStayInTheThread) {
  std::atomic<int64_t> sum{0};
  std::atomic<bool> moved{false};
  pool.run(16, 1, kMuch, [&](int64_t, int64_t, int) {
    const auto id = std::this_thread::get_id();
    pool.run(100, 7, kMuch, [&](int64_t begin, int64_t end, int) {
      if (GetParam() > 1 && id != std::this_thread::get_id()) moved = true;
      sum += end - begin;
    });
  });
  EXPECT_EQ(sum, 1600);
  EXPECT_FALSE(moved);
}

TEST_P(Pool, CarriesExceptions) {
  for (int64_t bad : {0, 1, 17, 63}) {
    for (double cost : {0.0, kMuch}) {
      std::atomic<int> run{0};
      try {
        pool.run(64, 1, cost, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) {
            ++run;
            if (i == bad) throw std::runtime_error("item " + std::to_string(i));
          }
        });
        FAIL();
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "item " + std::to_string(bad));
      }
      EXPECT_LE(run, 64);
    }
  }
  EXPECT_THROW(pool.run(64, 1, kMuch, [](int64_t, int64_t, int) { throw 1; }), int);
  std::atomic<int> run{0};
  pool.run(64, 1, kMuch, [&](int64_t, int64_t, int) { ++run; });
  EXPECT_EQ(run, 64);
}

std::atomic<int64_t> cancel_at{0};

TEST_P(Pool, Cancels) {
  set_poll_hook([] { return now_ns() >= cancel_at; });
  cancel_at = now_ns() + 30'000'000;
  std::atomic<int> run{0};
  const int64_t start = now_ns();
  try {
    pool.run(10000, 1, kMuch, [&](int64_t, int64_t, int) {
      ++run;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  }
  EXPECT_LT(now_ns() - start, 2'000'000'000);  // all would take 2 s and more
  EXPECT_LT(run, 10000);
  set_poll_hook(nullptr);
  run = 0;
  pool.run(100, 1, kMuch, [&](int64_t, int64_t, int) { ++run; });
  EXPECT_EQ(run, 100);
}

TEST_P(Pool, DoesNotCancelWhatMustEnd) {
  set_poll_hook([] { return true; });
  std::atomic<int> run{0};
  const auto sleep = [&](int64_t, int64_t, int) {
    ++run;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  {
    const Uncancelled uncancelled;
    pool.run(100, 1, kMuch, sleep);
    EXPECT_FALSE(cancelled());
  }
  EXPECT_EQ(run, 100);
  EXPECT_THROW(pool.run(1000, 1, kMuch, sleep), Error);
  set_poll_hook(nullptr);
}

TEST(Poll, SparsePollLooksInTheEnd) {
  set_poll_hook([] { return true; });
  std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kPollPeriodNs));
  SparsePoll poll("loop");
  int turns = 0;
  EXPECT_THROW(
      while (turns < 1'000'000) {
        poll.turn();
        ++turns;
      },
      Error);
  set_poll_hook(nullptr);
  EXPECT_GT(turns, 1000);
  EXPECT_LT(turns, 100'000);
}

TEST_P(Pool, ManyCallers) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 300; ++round) {
        const int64_t items = 1 + (caller * 131 + round * 17) % 500;
        std::atomic<int64_t> sum{0};
        pool.run(items, 1 + round % 5, round % 2 ? kMuch : 2e3,
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t i = begin; i < end; ++i) sum += i;
                 });
        if (sum != items * (items - 1) / 2) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(Pool, WorksInTheChildOfAFork) {
  const auto sum_up = [this] {
    std::atomic<int64_t> sum{0};
    pool.run(1000, 10, kMuch, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    return sum == 999 * 1000 / 2;
  };
#if defined(__SANITIZE_ADDRESS__)
  // Its allocator does not survive a fork beside threads that are about to begin.
  ASSERT_TRUE(sum_up());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
#endif
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(sum_up());
    ASSERT_EQ(in_child([&] { return sum_up() && pool.size() == GetParam(); }), 0);
  }
}

TEST_P(Pool, ForkWhileOthersRun) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) pool.run(64, 1, kMuch, [](int64_t, int64_t, int) {});
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([&] {
                std::atomic<int> run{0};
                pool.run(64, 1, kMuch, [&](int64_t, int64_t, int) { ++run; });
                return run == 64;
              }),
              0);
  }
  stop = true;
  other.join();
}

#if defined(__x86_64__)
TEST_P(Pool, BodiesRunInTheDefaultFloatMode) {
  constexpr uint32_t kFlush = 0x8040;  // flush to zero, denormals are zero
  constexpr uint32_t kTowardsZero = 0x6000;
  const uint32_t before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | kFlush | kTowardsZero);
  std::atomic<int> changed{0};
  for (double cost : {0.0, kMuch}) {
    pool.run(64, 1, cost, [&](int64_t, int64_t, int) {
      if ((__builtin_ia32_stmxcsr() & (kFlush | kTowardsZero)) != 0) ++changed;
    });
  }
  const uint32_t after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(changed, 0);
  EXPECT_EQ(after & (kFlush | kTowardsZero), kFlush | kTowardsZero);
}
#endif

// The caller's chunk waits until another thread has begun the second, 100 us at most.
void wait_for_second(std::atomic<int>& begun, int64_t begin, int64_t end) {
  ++begun;
  if (begin != 0 || end != 1) return;
  const int64_t start = now_ns();
  for (int i = 1; begun.load() < 2; ++i) {
    if (i % 100 == 0 && now_ns() - start > 100000) return;
  }
}

TEST_P(Pool, PrintsItsSpeed) {
  const auto empty = [](int64_t, int64_t, int) {};
  const auto report = [&](const char* what, auto&& body) {
    for (int i = 0; i < 2000; ++i) pool.run(2, 1, kMuch, empty);
    std::vector<double> ns;
    for (int sample = 0; sample < 50; ++sample) {
      const int64_t start = now_ns();
      for (int i = 0; i < 500; ++i) body();
      ns.push_back(static_cast<double>(now_ns() - start) / 500);
    }
    std::sort(ns.begin(), ns.end());
    printf("  %s: %.0f ns best, %.0f ns median\n", what, ns.front(), ns[ns.size() / 2]);
    EXPECT_LT(ns.front(), 1e6);
  };
  report("an empty run of 2 chunks", [&] { pool.run(2, 1, 2e3, empty); });
  if (GetParam() != 2) return;
  report("a run in which 2 threads take part", [&] {
    std::atomic<int> begun{0};
    pool.run(2, 1, 2e3,
             [&](int64_t begin, int64_t end, int) { wait_for_second(begun, begin, end); });
  });
}

TEST(ThreadPool, RefusesSizesBelowOne) { EXPECT_THROW(ThreadPool::get().set_size(0), Error); }

}  // namespace
}  // namespace cermet
