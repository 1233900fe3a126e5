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

void store_number(void* to, double value, Dtype dtype) {
  visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    T element;
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
      element = T(static_cast<float>(value));
    else element = static_cast<T>(value);
    std::memcpy(to, &element, sizeof(T));
  });
}

double load_number(const void* from, Dtype dtype) {
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) -> double {
    T element;
    std::memcpy(&element, from, sizeof(T));
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
      return static_cast<float>(element);
    else if constexpr (requires { element.real(); }) return element.real();
    else return static_cast<double>(element);
  });
}

}  // namespace

array::array(double value, Dtype dtype) {
  char bytes[16];
  store_number(bytes, value, dtype);
  *this = from_data(bytes, Shape{}, dtype);
}

array::array(NodeRef node) : node_(std::move(node)) {
  if (node_) node_->handles.fetch_add(1, std::memory_order_relaxed);
}

array::array(const array& other) : array(other.node_) {}

array::array(array&& other) noexcept : node_(std::move(other.node_)) {}

array& array::operator=(const array& other) {
  if (this != &other) *this = array(other);
  return *this;
}

array& array::operator=(array&& other) noexcept {
  std::swap(node_, other.node_);
  return *this;
}

array::~array() {
  if (node_) node_->handles.fetch_sub(1, std::memory_order_relaxed);
}

NodeRef array::take_node() && {
  if (node_) node_->handles.fetch_sub(1, std::memory_order_relaxed);
  return std::move(node_);
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

double array::item() const {
  CERMET_CHECK(size() == 1, value, "item",
               "the array has shape {}, {} elements; only an array of one "
               "element converts to a number",
               shape().to_string(), size());
  return load_number(data(), dtype());
}

}  // namespace cermet
