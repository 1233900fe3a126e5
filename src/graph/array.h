// SPDX-License-Identifier: MIT
// `array` is the user's handle on a node: cheap to copy, safe to pass between threads; building,
// copying and evaluating never needs a lock of the caller's.
#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype_info.h"
#include "graph/node.h"

namespace cermet {

class ArrayIterator;

class array {
 public:
  using ArrayIterator = cermet::ArrayIterator;

  // A 0-d array. Numbers are converted to the dtype; double without one gives float32.
  template <ElementType T>
  explicit array(T value, Dtype dtype = default_dtype_of<T>())
      : array(from_elements(&value, exact_dtype<T>(), Shape{}, dtype)) {}
  // One axis of numbers, or a shape of them in row-major order; raises [array] value unless they fill it.
  template <ElementType T>
  array(std::initializer_list<T> data, Dtype dtype = default_dtype_of<T>())
      : array(from_elements(data.begin(), exact_dtype<T>(), one_axis(data.size()), dtype)) {}
  array(std::initializer_list<float> data)
      : array(from_elements(data.begin(), Dtype::float32, one_axis(data.size()), Dtype::float32)) {}
  array(std::initializer_list<int> data, Dtype dtype)
      : array(from_elements(data.begin(), Dtype::int32, one_axis(data.size()), dtype)) {}
  template <ElementType T>
  array(std::initializer_list<T> data, Shape shape, Dtype dtype = default_dtype_of<T>())
      : array(from_list(data.begin(), data.size(), exact_dtype<T>(), std::move(shape), dtype)) {}
  // As many elements as the shape has, from an iterator.
  template <std::input_iterator It>
  array(It data, Shape shape, Dtype dtype = default_dtype_of<std::iter_value_t<It>>())
      : array(from_iterator(data, std::move(shape), dtype)) {}
  // Row-major data that stays where it is; the deleter is called with it when nothing uses it any more.
  array(void* data, Shape shape, Dtype dtype, const std::function<void(void*)>& deleter);
  explicit array(NodeRef node) : node_(std::move(node)) {
    if (node_) node_->handles.fetch_add(1, std::memory_order_relaxed);
  }
  array(const array& other) : array(other.node_) {}
  array(array&& other) noexcept : node_(std::move(other.node_)) {}
  array& operator=(const array& other);
  array& operator=(array&& other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~array() {
    if (node_) node_->handles.fetch_sub(1, std::memory_order_relaxed);
  }

  // Row-major data, copied from `data` / taken over with its buffer.
  static array from_data(const void* data, Shape shape, Dtype dtype);
  static array from_buffer(BufferRef buffer, Shape shape, Layout layout, Dtype dtype);

  const Shape& shape() const { return node_->shape; }
  int64_t shape(int axis) const;  // negative axes count from the end
  int ndim() const { return node_->shape.ndim(); }
  int64_t size() const { return node_->shape.size(); }
  Dtype dtype() const { return node_->dtype; }
  size_t itemsize() const { return size_of(dtype()); }
  size_t nbytes() const { return static_cast<size_t>(size()) * itemsize(); }
  const NodeRef& node() const { return node_; }
  // The node, from a handle that is not needed any more.
  NodeRef take_node() && {
    if (node_) node_->handles.fetch_sub(1, std::memory_order_relaxed);
    return std::move(node_);
  }
  bool is_ready() const { return node_->is_ready(); }

  // Evaluates; the array is ready (and contiguous row-major after to_contiguous()).
  void eval() const;
  // Pointer to element [0,...,0]; evaluates. Strides: node()->layout.
  const void* data() const;
  template <typename T>
  const T* data() const {
    return static_cast<const T*>(data());
  }
  // The single element, converted; raises [item] value when size is not 1.
  double item() const { return item<double>(); }
  template <ElementType T>
  T item() const {
    T value;
    read_item(&value, exact_dtype<T>());
    return value;
  }
  // Of the elements, in elements; evaluates.
  const Strides& strides() const;
  int64_t strides(int axis) const;
  // Another one for another array: changes when an array is assigned to.
  std::uintptr_t id() const { return reinterpret_cast<std::uintptr_t>(node_.get()); }
  bool is_available() const { return is_ready(); }
  void wait() const { eval(); }
  // The parts along the first axis; raises [iter] value when there is none. Made lazily.
  ArrayIterator begin() const;
  ArrayIterator end() const;

 private:
  static Shape one_axis(size_t n) { return {static_cast<int64_t>(n)}; }
  static array from_elements(const void* data, Dtype from, Shape shape, Dtype dtype);
  static array from_list(const void* data, size_t n, Dtype from, Shape shape, Dtype dtype);
  template <typename It>
  static array from_iterator(It data, Shape shape, Dtype dtype) {
    using T = std::iter_value_t<It>;
    const auto n = static_cast<size_t>(shape.size());
    const auto elements = std::make_unique<T[]>(n);
    for (size_t i = 0; i < n; ++i, ++data) elements[i] = *data;
    return from_elements(elements.get(), exact_dtype<T>(), std::move(shape), dtype);
  }
  void read_item(void* to, Dtype dtype) const;

  NodeRef node_;
};

using Arrays = std::vector<array>;

class ArrayIterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using difference_type = int64_t;
  using value_type = const array;
  using reference = value_type;
  using pointer = const array*;

  explicit ArrayIterator(const array& of, int64_t index = 0) : of_(of), index_(index) {}
  array operator*() const;
  ArrayIterator& operator+(difference_type n) {
    index_ += n;
    return *this;
  }
  ArrayIterator& operator++() { return *this + 1; }
  difference_type operator-(const ArrayIterator& other) const { return index_ - other.index_; }
  bool operator==(const ArrayIterator& other) const {
    return of_.id() == other.of_.id() && index_ == other.index_;
  }

 private:
  array of_;
  int64_t index_;
};

}  // namespace cermet
