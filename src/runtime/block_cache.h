// SPDX-License-Identifier: MIT
// The released blocks of an allocator: small ones in stacks by size class, big ones ordered by size
// for a best fit and by age for eviction. Not thread-safe; the allocator's lock guards it.
// Invariant: bytes() is the sum of the capacities kept, and each block was in nobody's hands.
#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <utility>

#include "runtime/buffer.h"
#include "runtime/memory_source.h"

namespace cermet {

// Small classes: multiples of 64 up to 256, then four to each doubling, up to kMappedBlock.
inline constexpr size_t kLargestClass = kMappedBlock;
inline constexpr int kClassCount = 40;

int size_class(size_t bytes);  // bytes <= kLargestClass
size_t class_capacity(int size_class);

// A chain of buffers through Buffer::next_.
struct BufferList {
  Buffer* first = nullptr;

  bool empty() const { return first == nullptr; }
  void push(Buffer* buffer) { buffer->next_ = std::exchange(first, buffer); }
  Buffer* pop() { return std::exchange(first, first->next_); }
};

class BlockCache {
 public:
  size_t bytes() const { return small_bytes_ + big_bytes_; }
  size_t small_bytes() const { return small_bytes_; }

  void put_small(int size_class, Buffer* buffer) {
    small_[size_class].push(buffer);
    small_bytes_ += buffer->capacity_;
  }
  Buffer* take_small(int size_class) {  // nullptr: none
    if (small_[size_class].empty()) return nullptr;
    Buffer* buffer = small_[size_class].pop();
    small_bytes_ -= buffer->capacity_;
    return buffer;
  }
  void put_big(Buffer* buffer);
  // The smallest block of at least `bytes`, unless it wastes more than an eighth; nullptr: none.
  Buffer* take_big(size_t bytes);
  // Whether a block is kept that would do, were it no more than an eighth larger.
  bool keeps_nearly(size_t bytes) const;

  // Moves blocks to `out` until small_bytes() and bytes() are within the bounds: small blocks from
  // the largest class down, big ones from the oldest on.
  void evict(size_t small_bound, size_t bound, BufferList& out);

 private:
  void unlink(Buffer* buffer);

  std::array<BufferList, kClassCount> small_;
  std::set<std::pair<size_t, Buffer*>> by_size_;
  Buffer* oldest_ = nullptr;  // doubly linked, towards newest_ by next_
  Buffer* newest_ = nullptr;
  size_t small_bytes_ = 0;
  size_t big_bytes_ = 0;
};

}  // namespace cermet
