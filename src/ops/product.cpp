// SPDX-License-Identifier: MIT
// Products composed of matmul and multiply: inner, outer, tensordot, vecdot, kron.
#include <algorithm>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

// The array as a matrix: the axes in front, then those behind, each joined into one.
array as_matrix(const array& a, const AxisList& front, const AxisList& behind, const S& s) {
  AxisList order = front;
  order.insert(order.end(), behind.begin(), behind.end());
  Dim rows = 1, columns = 1;
  for (const int64_t axis : front) rows = times(rows, a.shape().dim(static_cast<int>(axis)));
  for (const int64_t axis : behind) columns = times(columns, a.shape().dim(static_cast<int>(axis)));
  return reshape(transpose(a, order, s), {rows, columns}, s);
}

AxisList other_axes(const array& a, const Axes& taken) {
  AxisList rest;
  for (int axis = 0; axis < a.ndim(); ++axis)
    if (std::ranges::count(taken, axis) == 0) rest.push_back(axis);
  return rest;
}

}  // namespace

array tensordot(const array& a, const array& b, const AxisList& axes_a, const AxisList& axes_b,
                const S& s) {
  CERMET_CHECK(axes_a.size() == axes_b.size(), value, "tensordot",
               "{} axes of the first and {} of the second; they must be as many", axes_a.size(),
               axes_b.size());
  const Axes of_a = resolve_axes_in_order("tensordot", axes_a, a.ndim());
  const Axes of_b = resolve_axes_in_order("tensordot", axes_b, b.ndim());
  for (size_t i = 0; i < of_a.size(); ++i)
    CERMET_CHECK(same_size(a.shape().dim(of_a[i]), b.shape().dim(of_b[i])), value, "tensordot",
                 "shapes {} and {}: axis {} of the first and axis {} of the second differ; they "
                 "must be equal",
                 a.shape(), b.shape(), of_a[i], of_b[i]);
  const AxisList rest_a = other_axes(a, of_a), rest_b = other_axes(b, of_b);
  Shape shape;
  for (const int64_t axis : rest_a) shape.push_back(a.shape().dim(static_cast<int>(axis)));
  for (const int64_t axis : rest_b) shape.push_back(b.shape().dim(static_cast<int>(axis)));
  const array x = as_matrix(a, rest_a, {of_a.begin(), of_a.end()}, s);
  const array y = as_matrix(b, {of_b.begin(), of_b.end()}, rest_b, s);
  const array product = of_a.empty() ? multiply(x, y, s) : matmul(x, y, s);
  return reshape(product, ShapeList(shape.begin(), shape.end()), s);
}

array tensordot(const array& a, const array& b, int64_t axes, const S& s) {
  CERMET_CHECK(axes >= 0 && axes <= std::min(a.ndim(), b.ndim()), value, "tensordot",
               "{} axes of shapes {} and {}; give at most as many as each has", axes, a.shape(),
               b.shape());
  AxisList of_a, of_b;
  for (int64_t i = 0; i < axes; ++i) {
    of_a.push_back(a.ndim() - axes + i);
    of_b.push_back(i);
  }
  return tensordot(a, b, of_a, of_b, s);
}

array inner(const array& a, const array& b, const S& s) {
  if (a.ndim() == 0 || b.ndim() == 0) return multiply(a, b, s);
  CERMET_CHECK(same_size(a.shape().dim(a.ndim() - 1), b.shape().dim(b.ndim() - 1)), value, "inner",
               "shapes {} and {} differ in their last axes; they must be equal", a.shape(),
               b.shape());
  return tensordot(a, b, AxisList{-1}, AxisList{-1}, s);
}

array outer(const array& a, const array& b, const S& s) {
  const array column = reshape(a, {a.shape().count(), 1}, s);
  return multiply(column, reshape(b, {1, b.shape().count()}, s), s);
}

array vecdot(const array& a, const array& b, int64_t axis, const S& s) {
  const int of_a = normalize_axis("vecdot", axis, a.ndim());
  const int of_b = normalize_axis("vecdot", axis, b.ndim());
  CERMET_CHECK(same_size(a.shape().dim(of_a), b.shape().dim(of_b)), value, "vecdot",
               "axis {} of shapes {} and {} differs; it must be equal", axis, a.shape(), b.shape());
  const array x = moveaxis(conjugate_if_complex(a), of_a, -1, s), y = moveaxis(b, of_b, -1, s);
  return sum(multiply(x, y, s), AxisList{-1}, false, s);
}

array kron(const array& a, const array& b, const S& s) {
  const int ndim = std::max(a.ndim(), b.ndim());
  ShapeList of_a, of_b, whole;
  for (int axis = 0; axis < ndim; ++axis) {
    const auto size = [&](const array& x) {
      const int own = axis - (ndim - x.ndim());
      return own < 0 ? Dim(1) : x.shape().dim(own);
    };
    of_a.insert(of_a.end(), {size(a), Dim(1)});
    of_b.insert(of_b.end(), {Dim(1), size(b)});
    whole.push_back(times(size(a), size(b)));
  }
  return reshape(multiply(reshape(a, of_a, s), reshape(b, of_b, s), s), whole, s);
}

}  // namespace cermet
