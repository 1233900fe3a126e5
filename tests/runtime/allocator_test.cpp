// SPDX-License-Identifier: MIT
// Allocation: exact figures, reuse, limits, decay, failure, guarded pages, threads and forks.
#include "runtime/allocator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/block_cache.h"
#include "runtime/child.h"
#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/fault.h"

namespace cermet {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int64_t kSecond = 1'000'000'000;

// How much of a range is in memory; what is not mapped (any more) is not.
size_t resident_bytes(char* data, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* first = data - reinterpret_cast<uintptr_t>(data) % page;
  size_t resident = 0;
  for (char* at = first; at < data + bytes; at += page) {
    unsigned char present = 0;
    if (mincore(at, page, &present) == 0 && (present & 1) != 0) resident += page;
  }
  return resident;
}

// Malloc that can be told to fail and counts what is out.
class TestSource final : public MemorySource {
 public:
  void* obtain(size_t capacity) override {
    if (failures > 0 && failures-- > 0) return nullptr;
    out += capacity;
    return std::aligned_alloc(kAlignment, (capacity + 63) / 64 * 64);
  }
  void give_back(void* block, size_t capacity) override {
    out -= capacity;
    std::free(block);
  }
  int failures = 0;
  size_t out = 0;
};

std::string message_of(const std::function<void()>& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(SizeClass, CoversEverySmallSizeWithLittleWaste) {
  int last = 0;
  for (size_t bytes = 0; bytes <= kLargestClass; ++bytes) {
    const int index = size_class(bytes);
    const size_t capacity = class_capacity(index);
    ASSERT_GE(capacity, bytes);
    ASSERT_EQ(capacity % kAlignment, 0u);
    ASSERT_LE(capacity, std::max<size_t>(bytes + 64, bytes * 5 / 4 + 1)) << bytes;
    ASSERT_TRUE(index == last || index == last + 1);
    ASSERT_EQ(size_class(capacity), index);
    last = index;
  }
  EXPECT_EQ(last, kClassCount - 1);
}

TEST(Allocator, GivesAlignedWritableMemory) {
  Allocator allocator(Device::cpu, system_memory());
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4097}, kMappedBlock - 1,
        kMappedBlock, kMappedBlock + 1, kHugeBlock - 1, kHugeBlock, 5 * kMiB + 3}) {
    BufferRef buffer = allocator.allocate(bytes);
    ASSERT_NE(buffer->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kAlignment, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_GE(buffer->capacity(), bytes);
    std::memset(buffer->data(), 1, buffer->capacity());
  }
}

TEST(Allocator, CountsExactly) {
  TestSource source;
  Allocator allocator(Device::cpu, source);
  BufferRef a = allocator.allocate(1000);
  BufferRef b = allocator.allocate(3 * kMiB + 1);
  EXPECT_EQ(allocator.stats().active, 1000 + 3 * kMiB + 1);
  EXPECT_EQ(allocator.stats().held, source.out);
  b.reset();
  EXPECT_EQ(allocator.stats().active, 1000u);
  EXPECT_EQ(allocator.stats().peak, 1000 + 3 * kMiB + 1);
  EXPECT_EQ(allocator.stats().cache, 3 * kMiB + 4096);
  allocator.reset_peak();
  EXPECT_EQ(allocator.stats().peak, 0u);
  BufferRef c = allocator.allocate(10);
  EXPECT_EQ(allocator.stats().peak, 1010u);
  a.reset();
  c.reset();
  const MemoryStats end = allocator.stats();
  EXPECT_EQ(end.active, 0u);
  EXPECT_EQ(end.held, end.cache);
  EXPECT_EQ(end.held, source.out);
  EXPECT_EQ(end.allocations, 3u);
  EXPECT_EQ(end.hits, 0u);
  allocator.clear_cache();
  EXPECT_EQ(allocator.stats().cache, 0u);
  EXPECT_EQ(allocator.stats().held, 0u);
  EXPECT_EQ(source.out, 0u);
}

TEST(Allocator, ReusesReleasedBlocks) {
  Allocator allocator(Device::cpu, system_memory());
  const uint64_t hits_before = total(Counter::allocator_hits);
  const uint64_t allocations_before = total(Counter::allocations);
  void* small = allocator.allocate(500)->data();
  EXPECT_EQ(allocator.allocate(450)->data(), small);
  void* big = allocator.allocate(10 * kMiB)->data();
  EXPECT_EQ(allocator.allocate(9 * kMiB)->data(), big);  // wastes a ninth
  EXPECT_NE(allocator.allocate(8 * kMiB)->data(), big);  // would waste a quarter
  EXPECT_NE(allocator.allocate(10 * kMiB + 1)->data(), big);
  EXPECT_EQ(allocator.stats().hits, 2u);
  EXPECT_EQ(allocator.stats().allocations, 4u);
  EXPECT_EQ(total(Counter::allocator_hits) - hits_before, 2u);
  EXPECT_EQ(total(Counter::allocations) - allocations_before, 4u);
}

TEST(Allocator, TakesTheBestFit) {
  Allocator allocator(Device::cpu, system_memory());
  BufferRef a = allocator.allocate(4200 * 1024), b = allocator.allocate(4100 * 1024);
  void* best = b->data();
  b.reset();
  a.reset();
  EXPECT_EQ(allocator.allocate(4000 * 1024)->data(), best);
}

TEST(Allocator, SizesThatGrowFindTheirBlocks) {
  TestSource source;
  Allocator allocator(Device::cpu, source);
  BufferRef last = allocator.allocate(kMiB);
  for (size_t bytes = kMiB; bytes <= 8 * kMiB; bytes += 2048) {  // as what is appended to
    BufferRef next = allocator.allocate(bytes);
    last = std::move(next);
    EXPECT_LE(allocator.stats().held, 2 * (bytes + bytes / 8) * 5 / 4 + 16 * kMiB);
  }
  // Two blocks for each eighth between 1 and 8 MiB: 3585 sizes.
  EXPECT_LE(allocator.stats().allocations, 45u);
}

TEST(Allocator, GivesRoomToGrowOnlyWhereThereIsMemoryToSpare) {
  TestSource source;
  Allocator allocator(Device::cpu, source);
  allocator.allocate(8 * kMiB).reset();
  source.failures = 1;  // of the block with room
  BufferRef exact = allocator.allocate(8 * kMiB + kMiB / 2);
  EXPECT_EQ(allocator.stats().held, source.out);
  EXPECT_EQ(source.out, 16 * kMiB + kMiB / 2);
  exact.reset();
  allocator.clear_cache();
  allocator.set_memory_limit(20 * kMiB);
  allocator.allocate(8 * kMiB).reset();
  exact = allocator.allocate(8 * kMiB + kMiB / 2);  // with room, more than 15 MiB would be held
  EXPECT_EQ(source.out, 16 * kMiB + kMiB / 2);
}

TEST(Allocator, NeverGivesMemoryTwice) {
  Allocator allocator(Device::cpu, system_memory());
  std::mt19937 random(1);
  std::map<uintptr_t, BufferRef> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() > 200 || (step % 3 == 0 && !live.empty())) {
      live.erase(std::next(live.begin(), random() % live.size()));
      continue;
    }
    const int bits = random() % 19;
    BufferRef buffer = allocator.allocate(random() % (size_t{1} << bits));
    const auto start = reinterpret_cast<uintptr_t>(buffer->data());
    auto next = live.lower_bound(start);
    if (next != live.end()) {
      ASSERT_LE(start + buffer->capacity(), next->first);
    }
    if (next != live.begin()) {
      --next;
      ASSERT_LE(next->first + next->second->capacity(), start);
    }
    live.emplace(start, std::move(buffer));
  }
}

TEST(Allocator, RaisesBeyondTheLimitAndWorksOn) {
  Allocator allocator(Device::cpu, system_memory(), 10 * kMiB);
  EXPECT_EQ(allocator.memory_limit(), 10 * kMiB);
  BufferRef a = allocator.allocate(6 * kMiB);
  const std::string message =
      message_of([&] { allocator.allocate(5 * kMiB, "matmul"); }, ErrorKind::memory);
  EXPECT_EQ(message,
            "[matmul] out of memory: 5.00 MiB (5242880 bytes) asked for while 6.00 MiB (6291456 "
            "bytes) of at most 10.00 MiB (10485760 bytes) are held; free arrays or see "
            "set_memory_limit");
  EXPECT_EQ(allocator.stats().active, 6 * kMiB);
  EXPECT_EQ(allocator.stats().held, 6 * kMiB);
  BufferRef b = allocator.allocate(3 * kMiB);
  // The cache makes room.
  a.reset();
  EXPECT_EQ(allocator.stats().cache, 6 * kMiB);
  BufferRef c = allocator.allocate(7 * kMiB);
  EXPECT_EQ(allocator.stats().cache, 0u);
  EXPECT_EQ(allocator.set_memory_limit(20 * kMiB), 10 * kMiB);
  a = allocator.allocate(10 * kMiB);
  message_of([&] { allocator.allocate(~size_t{0}); }, ErrorKind::memory);
  message_of([&] { allocator.allocate(size_t{1} << 60); }, ErrorKind::memory);
}

TEST(Allocator, RaisesWhenTheSourceIsEmptyAndWorksOn) {
  TestSource source;
  Allocator allocator(Device::cpu, source);
  allocator.allocate(kMiB).reset();
  ASSERT_EQ(allocator.stats().cache, kMiB);
  source.failures = 1;  // the second try, without a cache, works
  BufferRef a = allocator.allocate(2 * kMiB);
  EXPECT_EQ(allocator.stats().cache, 0u);
  source.failures = 2;
  const std::string message =
      message_of([&] { allocator.allocate(100, "add"); }, ErrorKind::memory);
  EXPECT_EQ(message.find("[add] out of memory: 100 bytes asked for"), 0u) << message;
  EXPECT_EQ(allocator.stats().held, source.out);
  EXPECT_EQ(allocator.stats().active, 2 * kMiB);
  EXPECT_EQ(allocator.allocate(100)->size(), 100u);
}

TEST(Allocator, FailsTheAllocationAskedFor) {
  Allocator allocator(Device::cpu, system_memory());
  fail_allocation(3);
  BufferRef a = allocator.allocate(10), b = allocator.allocate(5 * kMiB);
  message_of([&] { allocator.allocate(10); }, ErrorKind::memory);
  EXPECT_EQ(allocator.stats().active, 10 + 5 * kMiB);
  EXPECT_EQ(allocator.allocate(10)->size(), 10u);
}

TEST(Allocator, KeepsNoMoreThanTheCacheLimit) {
  Allocator allocator(Device::cpu, system_memory());
  allocator.set_cache_limit(4 * kMiB);
  BufferRef a = allocator.allocate(3 * kMiB), b = allocator.allocate(2 * kMiB);
  void* newer = b->data();
  a.reset();
  EXPECT_EQ(allocator.stats().cache, 3 * kMiB);
  b.reset();  // the oldest goes
  EXPECT_EQ(allocator.stats().cache, 2 * kMiB);
  EXPECT_EQ(allocator.allocate(2 * kMiB)->data(), newer);
  EXPECT_EQ(allocator.set_cache_limit(0), 4 * kMiB);
  EXPECT_EQ(allocator.stats().cache, 0u);
  allocator.allocate(100).reset();
  EXPECT_EQ(allocator.stats().held, 0u);
}

TEST(Allocator, CacheIsBoundedByTheRecentPeak) {
  TestSource source;
  Allocator allocator(Device::cpu, source);
  // Ever other sizes, few of which serve the next: without a bound all would be kept. A block may have an
  // eighth of room.
  for (size_t i = 1; i <= 60; ++i) {
    allocator.allocate(i * 2 * kMiB).reset();
    EXPECT_LE(source.out, i * 2 * kMiB * 9 / 8 * 5 / 4 + 16 * kMiB);
  }
}

TEST(Allocator, CacheDecaysWhenIdle) {
  TestSource source;
  Allocator allocator(Device::cpu, source);
  BufferRef kept = allocator.allocate(32 * kMiB);
  allocator.allocate(512 * kMiB).reset();
  int64_t now = now_ns() + kSecond;
  allocator.decay(now);
  EXPECT_EQ(allocator.stats().cache, 512 * kMiB);
  // Small work goes on and does not keep the big block.
  for (int i = 0; i < 8; ++i) {
    allocator.allocate(1000).reset();
    allocator.decay(now += kSecond / 2);
  }
  EXPECT_LE(source.out, 32 * kMiB + 32 * kMiB / 10);
  EXPECT_GT(allocator.stats().cache, 0u);  // the small block in use
  EXPECT_EQ(allocator.stats().active, 32 * kMiB);
}

TEST(Allocator, CacheStaysWhileInUse) {
  Allocator allocator(Device::cpu, system_memory());
  int64_t now = now_ns();
  // A step of 14 s whose peak lies at its beginning; something big is asked for each second.
  for (int step = 0; step < 3; ++step) {
    allocator.allocate(256 * kMiB).reset();
    for (int i = 0; i < 14; ++i) {
      allocator.allocate(kMiB).reset();
      allocator.decay(now += kSecond);
    }
  }
  EXPECT_EQ(allocator.stats().allocations, 2u);
}

TEST(Allocator, IdleProcessGivesMemoryBack) {
  Allocator allocator(Device::cpu, system_memory());
  constexpr size_t kBytes = 64 * kMiB;
  char* data = nullptr;
  {
    BufferRef buffer = allocator.allocate(kBytes);
    data = static_cast<char*>(buffer->data());
    std::memset(data, 1, kBytes);
  }
  EXPECT_GE(resident_bytes(data, kBytes), kBytes);
  const int64_t start = now_ns();
  while (resident_bytes(data, kBytes) > 4 * kMiB && now_ns() < start + 8 * kSecond) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(now_ns() - start, 5 * kSecond);
  EXPECT_EQ(allocator.stats().cache, 0u);
}

TEST(Allocator, ManyThreads) {
  Allocator allocator(Device::cpu, system_memory());
  std::mutex mutex;
  std::vector<BufferRef> shared;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<BufferRef> mine;
    for (int step = 0; step < 4000; ++step) {
      BufferRef buffer = allocator.allocate(8 + random() % (size_t{1} << (4 + random() % 15)));
      std::memset(buffer->data(), static_cast<int>(seed), buffer->size());
      mine.push_back(std::move(buffer));
      if (mine.size() > 8) {
        BufferRef& any = mine[random() % mine.size()];
        const auto* bytes = static_cast<unsigned char*>(any->data());
        if (bytes[0] != seed || bytes[any->size() - 1] != seed) ADD_FAILURE() << "overwritten";
        std::swap(any, mine.back());
        std::lock_guard lock(mutex);
        shared.push_back(std::move(mine.back()));
        mine.pop_back();
        if (shared.size() > 50) shared.erase(shared.begin(), shared.begin() + 25);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i <= 8; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  shared.clear();
  const MemoryStats end = allocator.stats();
  EXPECT_EQ(end.active, 0u);
  EXPECT_EQ(end.held, end.cache);
  EXPECT_EQ(end.allocations + end.hits, 8u * 4000u);
  allocator.clear_cache();
  EXPECT_EQ(allocator.stats().held, 0u);
}

TEST(Allocator, ForkWhileOthersAllocate) {
  Allocator allocator(Device::cpu, system_memory());
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (size_t i = 0; !stop; ++i) allocator.allocate(i % 3 == 0 ? 3 * kMiB : 200 * (i % 9));
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(in_child([&] {
                for (size_t j = 0; j < 100; ++j) allocator.allocate(j * 4000);
                allocator.allocate(40 * kMiB).reset();  // starts a thread
                return allocator.stats().held >= allocator.stats().cache;
              }),
              0);
  }
  stop = true;
  other.join();
}

TEST(Guard, FaultsOneByteOutside) {
  Allocator ends(Device::cpu, guarded_memory(false));
  Allocator begins(Device::cpu, guarded_memory(true));
  for (size_t bytes : {size_t{1}, size_t{12}, size_t{4096}, size_t{5000}, 3 * kMiB}) {
    BufferRef buffer = ends.allocate(bytes);
    auto* data = static_cast<volatile unsigned char*>(buffer->data());
    EXPECT_EQ(data[0], 0xFF);
    data[bytes - 1] = 1;
    EXPECT_EQ(fault_in_child([&] { data[bytes] = 1; }), -SIGSEGV);
    buffer = begins.allocate(bytes);
    data = static_cast<volatile unsigned char*>(buffer->data());
    data[bytes - 1] = 1;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kAlignment, 0u);
    EXPECT_EQ(fault_in_child([&] { data[-1] = 1; }), -SIGSEGV);
  }
  BufferRef nothing = ends.allocate(0);
  EXPECT_NE(nothing->data(), nullptr);
  EXPECT_EQ(fault_in_child([&] { *static_cast<volatile char*>(nothing->data()) = 1; }), -SIGSEGV);
}

TEST(Guard, FaultsAfterRelease) {
  Allocator allocator(Device::cpu, guarded_memory(false));
  auto* data = static_cast<volatile char*>(allocator.allocate(100)->data());
  EXPECT_EQ(fault_in_child([&] { data[0] = 1; }), -SIGSEGV);
  EXPECT_EQ(allocator.stats().held, 0u);
  EXPECT_EQ(allocator.stats().cache, 0u);
}

TEST(AllocatorEnvironment, Guard) {
  if (getenv("CERMET_ALLOCATOR") == nullptr) {
    EXPECT_TRUE(rerun_with("CERMET_ALLOCATOR", "guard", "AllocatorEnvironment.Guard"));
    EXPECT_TRUE(rerun_with("CERMET_ALLOCATOR", "guard_front", "AllocatorEnvironment.Guard"));
    return;
  }
  const bool front = std::string(getenv("CERMET_ALLOCATOR")) == "guard_front";
  BufferRef buffer = allocator().allocate(100);
  auto* outside = static_cast<volatile char*>(buffer->data()) + (front ? -1 : 100);
  EXPECT_EQ(fault_in_child([&] { *outside = 1; }), -SIGSEGV);
}

TEST(AllocatorEnvironment, FailAlloc) {
  if (getenv("CERMET_FAIL_ALLOC") == nullptr) {
    EXPECT_TRUE(rerun_with("CERMET_FAIL_ALLOC", "2", "AllocatorEnvironment.FailAlloc"));
    return;
  }
  BufferRef first = allocator().allocate(100);
  message_of([] { allocator().allocate(100); }, ErrorKind::memory);
  EXPECT_TRUE(allocator().allocate(100));
}

TEST(MemoryFunctions, ActOnTheProcess) {
  const size_t before = get_active_memory();
  BufferRef buffer = allocator().allocate(12345);
  EXPECT_EQ(get_active_memory(), before + 12345);
  EXPECT_GE(get_peak_memory(), before + 12345);
  reset_peak_memory();
  EXPECT_EQ(get_peak_memory(), 0u);
  const size_t limit = get_memory_limit();
  EXPECT_GT(limit, 0u);
  EXPECT_EQ(set_memory_limit(limit / 2), limit);
  EXPECT_EQ(set_memory_limit(limit), limit / 2);
  const size_t cache_limit = set_cache_limit(kMiB);
  EXPECT_EQ(set_cache_limit(cache_limit), kMiB);
  buffer.reset();
  EXPECT_GT(get_cache_memory(), 0u);
  clear_cache();
  EXPECT_EQ(get_cache_memory(), 0u);
  EXPECT_EQ(set_wired_limit(7), 0u);
  EXPECT_EQ(set_wired_limit(0), 7u);
  EXPECT_EQ(&allocator(Device::cpu), &allocator());
  message_of([] { allocator(Device::gpu); }, ErrorKind::device);
}

TEST(Allocator, PrintsItsSpeed) {
  Allocator allocator(Device::cpu, system_memory());
  for (size_t bytes : {size_t{256}, size_t{65536}, 4 * kMiB}) {
    allocator.allocate(bytes).reset();
    constexpr int kRounds = 200000;
    const int64_t start = now_ns();
    for (int i = 0; i < kRounds; ++i) allocator.allocate(bytes).reset();
    const double ns = static_cast<double>(now_ns() - start) / kRounds;
    printf("  allocate + release of %zu bytes, hot: %.1f ns\n", bytes, ns);
    EXPECT_LT(ns, 20000);
  }
}

}  // namespace
}  // namespace cermet
