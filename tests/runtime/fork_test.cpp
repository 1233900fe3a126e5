// SPDX-License-Identifier: MIT
// Forks while other threads use something for the first time: nothing in the child waits for them.
#include "runtime/fork.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "base/lazy.h"
#include "runtime/allocator.h"
#include "runtime/child.h"
#include "runtime/clock.h"

namespace cermet {
namespace {

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

std::atomic<bool> being_made{false}, may_end{false};

struct MadeSlowly {
  std::mutex mutex;
  MadeSlowly() {
    being_made = true;
    wait_for(may_end);
  }
};

// Forks while another thread makes what `use` makes at its first use.
template <typename F>
void fork_while_it_is_made(F&& use) {
  being_made = may_end = false;
  std::thread other(use);
  wait_for(being_made);
  EXPECT_EQ(in_child([&] {
              may_end = true;
              use();
              return true;
            }),
            0);
  may_end = true;
  other.join();
  use();
}

TEST(Fork, ChildMakesWhatAnotherThreadWasMaking) {
  static constinit Lazy<MadeSlowly> value;
  fork_while_it_is_made([] { value.get([] { return MadeSlowly(); }); });
  static constinit ForkSafe<MadeSlowly> safe(ForkLevel::leaf);
  fork_while_it_is_made([] { std::lock_guard lock(safe.get().mutex); });
}

TEST(Fork, ThreadsThatMakeItAtATimeGetOne) {
  static constinit ForkSafe<MadeSlowly> safe(ForkLevel::leaf);
  being_made = may_end = false;
  std::array<MadeSlowly*, 4> got{};
  std::vector<std::thread> threads;
  for (MadeSlowly*& one : got) threads.emplace_back([&one] { one = &safe.get(); });
  wait_for(being_made);
  may_end = true;
  for (std::thread& thread : threads) thread.join();
  for (MadeSlowly* one : got) EXPECT_EQ(one, got[0]);
}

std::atomic<bool> fork_has_begun{false}, is_locked{false};

// Once a fork has taken the locks of the earlier levels, waits for another thread to register one there.
struct LateLevel {
  ForkHandler over_fork() {
    return {.prepare =
                [] {
                  fork_has_begun = true;
                  wait_for(is_locked);
                },
            .parent = {},
            .child = {}};
  }
};

TEST(Fork, TakesLocksThatComeToBeWhileItWaits) {
  static constinit ForkSafe<std::mutex> lock(ForkLevel::queues);
  static constinit ForkSafe<LateLevel> late(ForkLevel::leaf);
  late.get();
  std::thread other([] {
    wait_for(fork_has_begun);
    std::lock_guard guard(lock.get());
    is_locked = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  EXPECT_EQ(in_child([] { return lock.get().try_lock(); }), 0);
  other.join();
  EXPECT_TRUE(lock.get().try_lock());
  lock.get().unlock();
}

// Each child has not used the library before, if this test is the process's only one: forks at various times
// after another thread has begun to.
TEST(Fork, FirstAllocationsInAnotherThread) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a thread that starts holds locks of the sanitizer, which forks do not";
#endif
  for (int round = 0; round < 300; ++round) {
    const int64_t delay = round * 7919 % 120'000;
    ASSERT_EQ(in_child([delay] {
                Allocator allocator(Device::cpu, system_memory());
                std::atomic<bool> stop{false};
                std::thread other([&] {
                  for (size_t i = 0; !stop; ++i) allocator.allocate(i % 3 << 20);
                });
                for (const int64_t start = now_ns(); now_ns() - start < delay;) {
                }
                const int code = in_child([&] {
                  for (size_t i = 0; i < 10; ++i) allocator.allocate(i * 40000);
                  return true;
                });
                stop = true;
                other.join();
                return code == 0;
              }),
              0)
        << round;
  }
}

}  // namespace
}  // namespace cermet
