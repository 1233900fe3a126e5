// SPDX-License-Identifier: MIT
// Builders on the movement rows: names for common reshapes, and cutting and repeating.
#include <algorithm>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

array reshaped(const array& a, Shape shape, const S& s) {
  if (shape == a.shape()) return a;
  return make_node(rows::reshape, pack(a), ShapeParams{std::move(shape)}, s);
}

// The product of axes [first, last).
Dim merged_dim(const Shape& shape, int first, int last) {
  Dim merged = 1;
  for (int axis = first; axis < last; ++axis) merged = times(merged, shape.dim(axis));
  return merged;
}

array part_of(const array& a, int axis, const Dim& first, const Dim& last, const S& s) {
  PerAxis start = origin_of(a);
  Shape size = a.shape();
  start.dim(axis) = first;
  size.dim(axis) = is_less(first, last) ? minus(last, first) : Dim(0);
  return sized_slice(a, std::move(start), SliceSteps(a.ndim(), 1), std::move(size), s);
}

}  // namespace

array flatten(const array& a, int64_t start_axis, int64_t end_axis, const S& s) {
  if (a.ndim() == 0) return reshaped(a, {1}, s);
  // Axes past the ends are cut to them, as slices are.
  const int64_t ndim = a.ndim();
  auto clamped = [ndim](int64_t axis) {
    return static_cast<int>(std::clamp<int64_t>(axis < 0 ? axis + ndim : axis, 0, ndim - 1));
  };
  CERMET_CHECK(start_axis < ndim && end_axis >= -ndim, axis, "flatten",
               "axes {} to {} for shape {}; use axes of the array", start_axis, end_axis,
               a.shape());
  const int first = clamped(start_axis), last = clamped(end_axis);
  CERMET_CHECK(first <= last, value, "flatten",
               "start_axis {} comes after end_axis {}; it must not", start_axis, end_axis);
  Shape shape;
  for (int axis = 0; axis < first; ++axis) shape.push_back(a.shape().dim(axis));
  shape.push_back(merged_dim(a.shape(), first, last + 1));
  for (int axis = last + 1; axis < a.ndim(); ++axis) shape.push_back(a.shape().dim(axis));
  return reshaped(a, std::move(shape), s);
}

array unflatten(const array& a, int64_t axis, const ShapeList& shape, const S& s) {
  CERMET_CHECK(!shape.empty(), value, "unflatten", "the shape is empty; give at least one size");
  const int at = normalize_axis("unflatten", axis, a.ndim());
  const Dim size = a.shape().dim(at);
  const auto is_open = [](const Dim& dim) { return dim.expr == 0 && dim.value == -1; };
  Dim known = 1;
  for (const Dim& dim : shape) known = is_open(dim) ? known : times(known, dim);
  const Dim inferred = same_size(known, 0) ? Dim(0) : quotient(size, known);
  Shape result = a.shape();
  result.erase(at);
  Dim total = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Dim dim = is_open(shape[i]) ? inferred : shape[i];
    total = times(total, dim);
    result.insert(at + static_cast<int>(i), dim);
  }
  CERMET_CHECK(std::ranges::count_if(shape, is_open) <= 1 && same_size(total, size), value,
               "unflatten", "axis {} of shape {} cannot become {}; its size is {}", axis, a.shape(),
               Shape(shape), size.value);
  return reshaped(a, std::move(result), s);
}

array squeeze(const array& a, const OptionalAxes& axes, const S& s) {
  Axes out;
  if (axes) {
    out = resolve_axes("squeeze", axes, a.ndim());
  } else {
    for (int axis = 0; axis < a.ndim(); ++axis)
      if (same_size(a.shape().dim(axis), 1)) out.push_back(axis);
  }
  for (int axis : out)
    CERMET_CHECK(same_size(a.shape().dim(axis), 1), value, "squeeze",
                 "axis {} of shape {} has size {}; only axes of size 1 can go", axis, a.shape(),
                 a.shape().dim(axis).value);
  return reshaped(a, reduced_shape(a.shape(), out, false), s);
}

array expand_dims(const array& a, const AxisList& axes, const S& s) {
  const int ndim = a.ndim() + static_cast<int>(axes.size());
  const Axes added = resolve_axes("expand_dims", axes, ndim);
  Shape shape = a.shape();
  for (int axis : added) shape.insert(axis, 1);
  return reshaped(a, std::move(shape), s);
}

std::vector<array> split(const array& a, int64_t sections, int64_t axis, const S& s) {
  const int along = normalize_axis("split", axis, a.ndim());
  CERMET_CHECK(sections > 0, value, "split", "{} sections; give at least 1", sections);
  const Dim& size = a.shape().dim(along);
  CERMET_CHECK(same_size(remainder(size, sections), 0), value, "split",
               "axis {} of shape {} cannot be cut into {} equal parts; give indices, or a number "
               "that divides {}",
               axis, a.shape(), sections, size.value);
  std::vector<array> parts;
  const Dim length = quotient(size, sections);
  for (int64_t i = 0; i < sections; ++i)
    parts.push_back(part_of(a, along, times(length, i), times(length, i + 1), s));
  return parts;
}

std::vector<array> split(const array& a, const ShapeList& indices, int64_t axis, const S& s) {
  const int along = normalize_axis("split", axis, a.ndim());
  const Dim& size = a.shape().dim(along);
  std::vector<array> parts;
  Dim first = 0;
  for (size_t i = 0; i <= indices.size(); ++i) {
    Dim last = i == indices.size() ? size : indices[i];
    last = clamped(is_less(last, 0) ? plus(last, size) : last, 0, size);
    parts.push_back(part_of(a, along, first, last, s));
    first = last;
  }
  return parts;
}

array tile(const array& a, const ShapeList& repetitions, const S& s) {
  const size_t ndim = std::max<size_t>(a.ndim(), repetitions.size());
  ShapeList counts(ndim - repetitions.size(), 1);
  counts.insert(counts.end(), repetitions.begin(), repetitions.end());
  Shape apart, repeated, result;
  for (size_t i = 0; i < ndim; ++i) {
    CERMET_CHECK(!is_less(counts[i], 0), value, "tile", "{} repetitions; they must be >= 0",
                 counts[i].value);
    const size_t added = ndim - a.ndim();
    const Dim dim = i < added ? Dim(1) : a.shape().dim(static_cast<int>(i - added));
    const bool is_once = same_size(counts[i], 1);
    if (!is_once) {
      apart.push_back(1);
      repeated.push_back(counts[i]);
    }
    apart.push_back(dim);
    repeated.push_back(dim);
    result.push_back(is_once ? dim : times(counts[i], dim));
  }
  return reshaped(broadcast_to(reshaped(a, std::move(apart), s), repeated, s), std::move(result),
                  s);
}

array repeat(const array& a, const Dim& repeats, std::optional<int64_t> axis, const S& s) {
  CERMET_CHECK(!is_less(repeats, 0), value, "repeat", "{} repeats; they must be >= 0",
               repeats.value);
  if (!axis) return repeat(flatten(a, 0, -1, s), repeats, 0, s);
  const int along = normalize_axis("repeat", *axis, a.ndim());
  if (same_size(repeats, 1)) return a;
  Shape apart = a.shape(), repeated = a.shape(), result = a.shape();
  apart.insert(along + 1, 1);
  repeated.insert(along + 1, repeats);
  result.dim(along) = times(result.dim(along), repeats);
  return reshaped(broadcast_to(reshaped(a, std::move(apart), s), repeated, s), std::move(result),
                  s);
}

namespace {

// The last `shift` elements along the axis in front of the others.
array rolled(const array& a, int axis, const Dim& shift, const S& s) {
  const Dim& size = a.shape().dim(axis);
  if (is_zero(size)) return a;
  const Dim moved = remainder(shift, size);
  if (is_zero(moved)) return a;
  const Dim cut = minus(size, moved);
  return concatenate({part_of(a, axis, cut, size, s), part_of(a, axis, 0, cut, s)}, axis, s);
}

}  // namespace

array roll(const array& a, const ShapeList& shift, const OptionalAxes& axes, const S& s) {
  if (!axes) {
    if (a.ndim() == 0) return a;
    array line = flatten(a, 0, -1, s);
    const Dim& size = line.shape().dim(0);
    if (is_zero(size)) return a;
    Dim total = 0;
    for (const Dim& part : shift) total = plus(total, remainder(part, size));
    return reshaped(rolled(line, 0, total, s), a.shape(), s);
  }
  CERMET_CHECK(shift.size() == 1 || axes->size() == 1 || shift.size() == axes->size(), value,
               "roll", "{} shifts for {} axes; give one shift, or one for each axis", shift.size(),
               axes->size());
  array result = a;
  for (size_t i = 0; i < std::max(shift.size(), axes->size()); ++i) {
    if (shift.empty() || axes->empty()) break;
    const int axis = normalize_axis("roll", (*axes)[axes->size() == 1 ? 0 : i], a.ndim());
    result = rolled(result, axis, shift[shift.size() == 1 ? 0 : i], s);
  }
  return result;
}

std::vector<array> meshgrid(const Arrays& arrays, bool sparse, const std::string& indexing,
                            const S& s) {
  CERMET_CHECK(indexing == "xy" || indexing == "ij", value, "meshgrid",
               "indexing is '{}'; use xy or ij", indexing);
  const size_t ndim = arrays.size();
  Shape whole;
  Arrays lines;
  for (size_t i = 0; i < ndim; ++i) {
    const size_t axis = indexing == "xy" && ndim > 1 && i < 2 ? 1 - i : i;
    const Dim size = arrays[i].shape().count();
    Shape line(std::vector<Dim>(ndim, 1));
    line.dim(static_cast<int>(axis)) = size;
    lines.push_back(reshaped(arrays[i], line, s));
    whole = i == 0 ? std::move(line) : broadcast_shapes("meshgrid", whole, line);
  }
  if (sparse) return lines;
  for (array& line : lines) line = broadcast_to(line, whole, s);
  return lines;
}

std::vector<array> unstack(const array& a, int64_t axis, const S& s) {
  const int along = normalize_axis("unstack", axis, a.ndim());
  Shape rest = a.shape();
  rest.erase(along);
  Arrays parts;
  const int64_t size = a.shape()[along];
  for (int64_t i = 0; i < size; ++i)
    parts.push_back(reshaped(part_of(a, along, i, i + 1, s), rest, s));
  return parts;
}

array atleast_1d(const array& a, const S& s) { return a.ndim() >= 1 ? a : expand_dims(a, {0}, s); }

array atleast_2d(const array& a, const S& s) {
  return a.ndim() >= 2 ? a : expand_dims(atleast_1d(a, s), {0}, s);
}

array atleast_3d(const array& a, const S& s) {
  return a.ndim() >= 3 ? a : expand_dims(atleast_2d(a, s), {2}, s);
}

array diff(const array& a, int64_t n, int64_t axis, const S& s) {
  CERMET_CHECK(n >= 0, value, "diff", "n is {}; it must be >= 0", n);
  const int along = normalize_axis("diff", axis, a.ndim());
  array result = a;
  for (int64_t i = 0; i < n; ++i) {
    const Dim size = result.shape().dim(along);
    const array next = part_of(result, along, 1, size, s);
    const array last = part_of(result, along, 0, minus(size, 1), s);
    result = a.dtype() == Dtype::boolean ? not_equal(next, last, s) : subtract(next, last, s);
    if (is_zero(size)) break;
  }
  return result;
}

}  // namespace cermet
