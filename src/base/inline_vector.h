// SPDX-License-Identifier: MIT
// A vector whose first N elements need no memory of their own, for lists that are short nearly always
// and made or copied often, such as the sizes of a node.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace cermet {

template <typename T, uint32_t N>
class InlineVector {
  static_assert(std::is_nothrow_move_constructible_v<T>);

 public:
  InlineVector() {}
  explicit InlineVector(std::integral auto size, const T& value = T()) {
    reserve(static_cast<size_t>(size));
    size_ = static_cast<uint32_t>(size);
    std::uninitialized_fill_n(data(), size_, value);
  }
  explicit InlineVector(std::span<const T> values) { append(values); }
  InlineVector(const T* begin, const T* end) { append({begin, end}); }
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
  T* data() { return is_inside() ? inside_ : outside_; }
  const T* data() const { return is_inside() ? inside_ : outside_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }
  operator std::span<const T>() const { return {data(), size_}; }

  void push_back(T value) {
    if (size_ == capacity_) grow(2 * capacity_);
    std::construct_at(data() + size_++, std::move(value));
  }
  void append(std::span<const T> values) {
    reserve(size_ + values.size());
    std::uninitialized_copy(values.begin(), values.end(), end());
    size_ += static_cast<uint32_t>(values.size());
  }
  // Room for so many elements.
  void reserve(size_t size) {
    if (size > capacity_) grow(std::max(static_cast<uint32_t>(size), 2 * capacity_));
  }
  // The elements there are, or the first ones of them, then as many new ones as are missing.
  void resize(size_t size) {
    if (size < size_) return shrink(size);
    reserve(size);
    std::uninitialized_value_construct(end(), data() + size);
    size_ = static_cast<uint32_t>(size);
  }
  void insert(T* at, T value) {
    const auto index = at - begin();
    push_back(std::move(value));
    std::rotate(begin() + index, end() - 1, end());
  }
  void erase(T* at) {
    std::move(at + 1, end(), at);
    shrink(size_ - 1);
  }
  void pop_back() { shrink(size_ - 1); }
  void clear() { shrink(0); }
  // The first `size` elements, of which there are as many or more.
  void shrink(size_t size) {
    std::destroy(data() + size, end());
    size_ = static_cast<uint32_t>(size);
  }
  bool operator==(const InlineVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  bool is_inside() const { return capacity_ == N; }

  void grow(uint32_t capacity) {
    T* larger = std::allocator<T>().allocate(capacity);
    std::uninitialized_move(begin(), end(), larger);
    const uint32_t size = size_;
    release();
    outside_ = larger;
    size_ = size;
    capacity_ = capacity;
  }

  void release() {
    std::destroy(begin(), end());
    if (!is_inside()) std::allocator<T>().deallocate(outside_, capacity_);
  }

  // Leaves `other` empty; this one has nothing to release.
  void take(InlineVector& other) noexcept {
    // Each alone: loaded together they would wait for the stores that they were written by.
    size_ = other.size_;
    if (other.is_inside()) {
      capacity_ = N;
      std::uninitialized_move(other.begin(), other.end(), inside_);
      other.clear();
    } else {
      capacity_ = other.capacity_;
      outside_ = other.outside_;
    }
    other.size_ = 0;
    other.capacity_ = N;
  }

  uint32_t size_ = 0, capacity_ = N;
  union {
    T inside_[N];
    T* outside_ = nullptr;
  };
};

}  // namespace cermet
