// SPDX-License-Identifier: MIT
// A vector whose first N elements need no memory of their own, for lists that are short nearly always
// and copied often, such as the sizes of a node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>

namespace cermet {

template <typename T, uint32_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  InlineVector() {}
  explicit InlineVector(std::span<const T> values) { append(values); }
  InlineVector(std::initializer_list<T> values) { append({values.begin(), values.size()}); }
  InlineVector(const InlineVector& other) : InlineVector(std::span<const T>(other)) {}
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) { return *this = InlineVector(other); }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~InlineVector() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return is_inside() ? inside_ : outside_; }
  T* end() { return begin() + size_; }
  const T* begin() const { return is_inside() ? inside_ : outside_; }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }
  operator std::span<const T>() const { return {begin(), size_}; }

  void push_back(T value) {
    if (size_ == capacity_) grow(2 * capacity_);
    std::construct_at(begin() + size_++, value);
  }
  void append(std::span<const T> values) {
    if (size_ + values.size() > capacity_) {
      grow(std::max(size_ + static_cast<uint32_t>(values.size()), 2 * capacity_));
    }
    std::uninitialized_copy(values.begin(), values.end(), end());
    size_ += static_cast<uint32_t>(values.size());
  }
  void insert(T* at, T value) {
    const auto index = at - begin();
    push_back(value);
    std::rotate(begin() + index, end() - 1, end());
  }
  void erase(T* at) {
    std::copy(at + 1, end(), at);
    --size_;
  }
  void clear() { size_ = 0; }
  // The first `size` elements, of which there are more.
  void shrink(size_t size) { size_ = static_cast<uint32_t>(size); }
  bool operator==(const InlineVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  bool is_inside() const { return capacity_ == N; }

  void grow(uint32_t capacity) {
    T* larger = std::allocator<T>().allocate(capacity);
    std::uninitialized_copy(begin(), end(), larger);
    release();
    outside_ = larger;
    capacity_ = capacity;
  }

  void release() {
    if (!is_inside()) std::allocator<T>().deallocate(outside_, capacity_);
  }

  // Leaves `other` empty; this one has nothing to release.
  void take(InlineVector& other) noexcept {
    size_ = other.size_;
    capacity_ = other.capacity_;
    if (other.is_inside()) {
      std::uninitialized_copy(other.begin(), other.end(), inside_);
    } else {
      outside_ = other.outside_;
    }
    other.size_ = 0;
    other.capacity_ = N;
  }

  uint32_t size_ = 0, capacity_ = N;
  union {
    T inside_[N];
    T* outside_;
  };
};

}  // namespace cermet
