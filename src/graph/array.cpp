// SPDX-License-Identifier: MIT
#include "graph/array.h"

#include <cstring>

#include "base/error.h"
#include "graph/hooks.h"
#include "runtime/allocator.h"

namespace cermet {

namespace {

NodeRef ready_node(BufferRef buffer, Shape shape, Layout layout, Dtype dtype) {
  NodeRef ref(new Node);
  ref->row = nullptr;
  ref->dtype = dtype;
  ref->shape = std::move(shape);
  ref->stream = default_stream(default_device());
  ref->buffer = std::move(buffer);
  ref->layout = std::move(layout);
  ref->state.store(NodeState::ready, std::memory_order_release);
  return ref;
}

}  // namespace

array::array(void* data, Shape shape, Dtype dtype, const std::function<void(void*)>& deleter) {
  check_size("array", shape, dtype);
  const size_t bytes = static_cast<size_t>(shape.size()) * size_of(dtype);
  Layout layout = Layout::contiguous(shape);
  BufferRef buffer = Buffer::wrap(data, bytes, deleter);
  buffer->pin();  // no result is written in its place
  *this = from_buffer(std::move(buffer), std::move(shape), std::move(layout), dtype);
}

array& array::operator=(const array& other) {
  if (this != &other) *this = array(other);
  return *this;
}

array array::from_data(const void* data, Shape shape, Dtype dtype) {
  check_size("array", shape, dtype);
  const size_t bytes = static_cast<size_t>(shape.size()) * size_of(dtype);
  BufferRef buffer = allocator(default_device()).allocate(bytes);
  if (bytes > 0) std::memcpy(buffer->data(), data, bytes);
  Layout layout = Layout::contiguous(shape);
  return array(ready_node(std::move(buffer), std::move(shape), std::move(layout), dtype));
}

array array::from_buffer(BufferRef buffer, Shape shape, Layout layout, Dtype dtype) {
  return array(ready_node(std::move(buffer), std::move(shape), std::move(layout), dtype));
}

int64_t array::shape(int axis) const { return node_->shape[normalize_axis("shape", axis, ndim())]; }

void array::eval() const {
  if (is_ready()) return;
  CERMET_INTERNAL_CHECK(hooks::evaluate != nullptr, "no evaluator is linked in");
  hooks::evaluate({&node_, 1});
}

const void* array::data() const {
  eval();
  return static_cast<const char*>(node_->buffer->data()) +
         node_->layout.offset * static_cast<int64_t>(itemsize());
}

array array::from_elements(const void* data, Dtype from, Shape shape, Dtype dtype) {
  check_size("array", shape, dtype);
  const auto n = static_cast<size_t>(shape.size());
  BufferRef buffer = allocator(default_device()).allocate(n * size_of(dtype));
  convert_elements(data, from, buffer->data(), dtype, n);
  Layout layout = Layout::contiguous(shape);
  return from_buffer(std::move(buffer), std::move(shape), std::move(layout), dtype);
}

array array::from_list(const void* data, size_t n, Dtype from, Shape shape, Dtype dtype) {
  CERMET_CHECK(static_cast<int64_t>(n) == shape.size(), value, "array",
               "{} elements were given for shape {}; it needs {}", n, shape.to_string(),
               shape.size());
  return from_elements(data, from, std::move(shape), dtype);
}

const Strides& array::strides() const {
  eval();
  return node_->layout.strides;
}

int64_t array::strides(int axis) const {
  return strides()[static_cast<size_t>(normalize_axis("strides", axis, ndim()))];
}

void array::read_item(void* to, Dtype to_dtype) const {
  CERMET_CHECK(size() == 1, value, "item",
               "the array has shape {}, {} elements; only an array of one "
               "element converts to a number",
               shape().to_string(), size());
  convert_elements(data(), dtype(), to, to_dtype, 1);
}

ArrayIterator array::begin() const {
  CERMET_CHECK(ndim() > 0, value, "iter", "a 0-d array has no axis to go along; use item()");
  return ArrayIterator(*this);
}

ArrayIterator array::end() const { return ArrayIterator(*this, shape(0)); }

}  // namespace cermet
