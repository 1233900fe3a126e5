// SPDX-License-Identifier: MIT
#include "runtime/block_cache.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace cermet {

int size_class(size_t bytes) {
  const size_t last = std::max<size_t>(bytes, 1) - 1;
  if (last < 256) return static_cast<int>(last / 64);
  const int exponent = std::bit_width(last) - 1;
  return (exponent - 8) * 4 + 4 + static_cast<int>(last >> (exponent - 2) & 3);
}

size_t class_capacity(int size_class) {
  if (size_class < 4) return size_t{64} * (size_class + 1);
  const int exponent = (size_class - 4) / 4 + 8;
  return (size_t{5} + (size_class & 3)) << (exponent - 2);
}

void BlockCache::put_big(Buffer* buffer) {
  by_size_.emplace(buffer->capacity_, buffer);
  buffer->next_ = nullptr;
  buffer->prev_ = newest_;
  (newest_ != nullptr ? newest_->next_ : oldest_) = buffer;
  newest_ = buffer;
  big_bytes_ += buffer->capacity_;
}

Buffer* BlockCache::take_big(size_t bytes) {
  auto it = by_size_.lower_bound({bytes, nullptr});
  if (it == by_size_.end() || it->first > bytes + bytes / 8) return nullptr;
  Buffer* buffer = it->second;
  by_size_.erase(it);
  unlink(buffer);
  return buffer;
}

bool BlockCache::keeps_nearly(size_t bytes) const {
  const auto at_least = by_size_.lower_bound({bytes, nullptr});
  return at_least != by_size_.begin() && std::prev(at_least)->first >= bytes - bytes / 8;
}

void BlockCache::unlink(Buffer* buffer) {
  (buffer->prev_ != nullptr ? buffer->prev_->next_ : oldest_) = buffer->next_;
  (buffer->next_ != nullptr ? buffer->next_->prev_ : newest_) = buffer->prev_;
  big_bytes_ -= buffer->capacity_;
}

void BlockCache::evict(size_t small_bound, size_t bound, BufferList& out) {
  while (big_bytes_ > 0 && bytes() > bound) {
    Buffer* buffer = oldest_;
    by_size_.erase({buffer->capacity_, buffer});
    unlink(buffer);
    out.push(buffer);
  }
  small_bound = std::min(small_bound, bound);
  for (int i = kClassCount - 1; i >= 0 && small_bytes_ > small_bound; --i) {
    while (!small_[i].empty() && small_bytes_ > small_bound) out.push(take_small(i));
  }
}

}  // namespace cermet
