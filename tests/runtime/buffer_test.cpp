// SPDX-License-Identifier: MIT
// Buffers: references, pins, versions, wrapped memory.
#include "runtime/buffer.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/allocator.h"

namespace cermet {
namespace {

TEST(Buffer, CountsReferences) {
  BufferRef a = allocator().allocate(64);
  EXPECT_TRUE(a->unique());
  BufferRef b = a;
  EXPECT_FALSE(a->unique());
  EXPECT_EQ(a, b);
  BufferRef c = std::move(b);
  EXPECT_FALSE(b);
  c = c;
  c.reset();
  EXPECT_TRUE(a->unique());
  a = nullptr;
  EXPECT_FALSE(a);
}

TEST(Buffer, LastReferenceOnAnyThreadReleases) {
  int released = 0;
  int bytes[4];
  for (int round = 0; round < 200; ++round) {
    BufferRef buffer = Buffer::wrap(bytes, sizeof bytes, [&](void*) { ++released; });
    std::thread a([copy = buffer]() mutable { copy.reset(); });
    std::thread b([copy = buffer]() mutable { BufferRef other = copy; });
    buffer.reset();
    a.join();
    b.join();
    ASSERT_EQ(released, round + 1);
  }
}

TEST(Buffer, WrapsForeignMemory) {
  int value = 7;
  void* dropped = nullptr;
  const size_t active = get_active_memory();
  BufferRef buffer = Buffer::wrap(&value, sizeof value, [&](void* p) { dropped = p; });
  EXPECT_EQ(buffer->data(), &value);
  EXPECT_EQ(buffer->size(), sizeof value);
  EXPECT_TRUE(buffer->foreign());
  EXPECT_EQ(get_active_memory(), active);
  BufferRef other = buffer;
  buffer.reset();
  EXPECT_EQ(dropped, nullptr);
  other.reset();
  EXPECT_EQ(dropped, &value);
  Buffer::wrap(&value, sizeof value, nullptr).reset();
  Buffer::wrap(&value, 4, [](void*) { throw std::runtime_error("ignored"); }).reset();
  EXPECT_FALSE(allocator().allocate(4)->foreign());
}

TEST(Buffer, WrapsNothing) {
  void* dropped = &dropped;
  BufferRef buffer = Buffer::wrap(nullptr, 0, [&](void* p) { dropped = p; });
  EXPECT_NE(buffer->data(), nullptr);
  buffer.reset();
  EXPECT_EQ(dropped, nullptr);
  EXPECT_THROW(Buffer::wrap(nullptr, 1, nullptr), Error);
}

TEST(Buffer, Pins) {
  BufferRef buffer = allocator().allocate(100);
  Buffer* before = buffer.get();
  EXPECT_FALSE(buffer->pinned());
  buffer->pin();
  buffer->pin();
  buffer->unpin();
  EXPECT_TRUE(buffer->pinned());
  buffer.reset();
  buffer = allocator().allocate(100);  // the same object in a new life
  ASSERT_EQ(buffer.get(), before);
  EXPECT_FALSE(buffer->pinned());
}

TEST(Buffer, VersionsNeverRepeat) {
  std::set<std::pair<Buffer*, uint64_t>> seen;
  int bytes[4];
  for (int i = 0; i < 300; ++i) {
    BufferRef buffer = i % 3 == 0 ? Buffer::wrap(bytes, sizeof bytes, nullptr)
                                  : allocator().allocate(i % 2 == 0 ? 100 : 3 << 20);
    if (i % 50 == 0) clear_cache();
    ASSERT_TRUE(seen.emplace(buffer.get(), buffer->version()).second);
    buffer->on(Device::cpu, Access::read);
    ASSERT_FALSE(seen.emplace(buffer.get(), buffer->version()).second);
    EXPECT_EQ(buffer->on(Device::cpu, Access::write), buffer->data());
    ASSERT_TRUE(seen.emplace(buffer.get(), buffer->version()).second);
  }
}

TEST(Buffer, OnAnotherDeviceRaises) {
  BufferRef buffer = allocator().allocate(8);
  try {
    buffer->on(Device::gpu, Access::read);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_STREQ(error.what(),
                 "[buffer] the bytes lie on Device(cpu, 0), the work runs on Device(gpu, 0); "
                 "both must be on one device");
  }
}

}  // namespace
}  // namespace cermet
