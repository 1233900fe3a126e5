// SPDX-License-Identifier: MIT
// `array` is the user's handle on a node: cheap to copy, safe to pass between threads; building,
// copying and evaluating never needs a lock of the caller's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/node.h"

namespace cermet {

class array {
 public:
  // A 0-d array of the given dtype.
  explicit array(double value, Dtype dtype = Dtype::float32);
  explicit array(NodeRef node);
  array(const array& other);
  array(array&& other) noexcept;
  array& operator=(const array& other);
  array& operator=(array&& other) noexcept;
  ~array();

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
  NodeRef take_node() &&;  // the node, from a handle that is not needed any more
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
  double item() const;

 private:
  NodeRef node_;
};

using Arrays = std::vector<array>;

}  // namespace cermet
