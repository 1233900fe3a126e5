// SPDX-License-Identifier: MIT
// Arithmetic of shapes and layouts. Every function that reads a symbolic size records a guard by
// doing so; where two sizes are the same expression, nothing is read.
#include "base/shape.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/format.h"

namespace cermet {

constinit thread_local SizeTrace* Dim::trace = nullptr;

namespace {

bool is_symbolic(const Dim& a, const Dim& b) {
  return (a.expr | b.expr) != 0 && Dim::trace != nullptr;
}

bool is_guarded(const Dim& a, const Dim& b) {
  if (!is_symbolic(a, b)) return false;
  Dim::trace->looked |= !Dim::trace->keeps_guards;
  return Dim::trace->keeps_guards;
}

bool is_constant_zero(const Dim& dim) { return dim.expr == 0 && dim.value == 0; }
bool is_constant_one(const Dim& dim) { return dim.expr == 0 && dim.value == 1; }

// The broadcast of two sizes; nullopt if they do not fit. A constant 1 never reads the other size.
std::optional<Dim> broadcast_dim(const Dim& a, const Dim& b) {
  if (is_constant_one(b)) return a;
  if (is_constant_one(a) || same_size(a, b)) return b;
  if (same_size(b, 1)) return a;
  if (same_size(a, 1)) return b;
  return std::nullopt;
}

// Sizes and strides without the axes of size 1, whose strides mean nothing.
struct Packed {
  Strides dims;
  Strides strides;
};

Packed without_unit_axes(const Shape& shape, const Layout& layout) {
  Packed packed;
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    if (shape[axis] == 1) continue;
    packed.dims.push_back(shape[axis]);
    packed.strides.push_back(layout.strides[axis]);
  }
  return packed;
}

bool is_mergeable(const Packed& packed, size_t first, size_t last) {
  for (size_t axis = first; axis + 1 < last; ++axis) {
    if (packed.strides[axis] != packed.dims[axis + 1] * packed.strides[axis + 1]) return false;
  }
  return true;
}

}  // namespace

void Dim::seen() const {
  if (trace->keeps_guards) trace->look(*this);
  else trace->looked = true;
}

bool same_size(const Dim& a, const Dim& b) {
  if (a.expr != 0 && a.expr == b.expr) return true;
  return is_guarded(a, b) ? Dim::trace->equal(a, b) : a.value == b.value;
}

bool is_less(const Dim& a, const Dim& b) {
  if (a.expr != 0 && a.expr == b.expr) return false;
  return is_guarded(a, b) ? Dim::trace->less(a, b) : a.value < b.value;
}

namespace {

// Sizes that are not checked yet: what is no int64 is no size either.
Dim checked(bool overflow, int64_t result, const char* what, const Dim& a, const Dim& b) {
  CERMET_CHECK(!overflow, overflow, "shape",
               "the {} of sizes {} and {} has more than 63 bits; "
               "use smaller sizes",
               what, a.value, b.value);
  return {result};
}

}  // namespace

Dim plus(const Dim& a, const Dim& b) {
  if (is_constant_zero(a)) return b;
  if (is_constant_zero(b)) return a;
  if (is_symbolic(a, b)) return Dim::trace->combine('+', a, b);
  int64_t sum;
  const bool overflow = __builtin_add_overflow(a.value, b.value, &sum);
  return checked(overflow, sum, "sum", a, b);
}

Dim minus(const Dim& a, const Dim& b) {
  if (is_constant_zero(b)) return a;
  if (is_symbolic(a, b)) return Dim::trace->combine('-', a, b);
  int64_t difference;
  const bool overflow = __builtin_sub_overflow(a.value, b.value, &difference);
  return checked(overflow, difference, "difference", a, b);
}

Dim times(const Dim& a, const Dim& b) {
  if (is_constant_one(a)) return b;
  if (is_constant_one(b)) return a;
  if (is_symbolic(a, b)) return Dim::trace->combine('*', a, b);
  int64_t product;
  const bool overflow = __builtin_mul_overflow(a.value, b.value, &product);
  return checked(overflow, product, "product", a, b);
}

Dim quotient(const Dim& a, const Dim& b) {
  if (is_constant_one(b)) return a;
  if (is_symbolic(a, b)) return Dim::trace->combine('/', a, b);
  return a.value / b.value - static_cast<int64_t>(a.value % b.value < 0);
}

Dim remainder(const Dim& a, const Dim& b) {
  if (is_symbolic(a, b)) return Dim::trace->combine('%', a, b);
  const int64_t rest = a.value % b.value;
  return rest < 0 ? rest + b.value : rest;
}

Dim smaller(const Dim& a, const Dim& b) {
  if (is_symbolic(a, b)) return Dim::trace->combine('<', a, b);
  return std::min(a.value, b.value);
}

int64_t decide(std::span<const Dim> by, const Decider& decider) {
  const bool any = std::ranges::any_of(by, [](const Dim& dim) { return dim.expr != 0; });
  if (any && Dim::trace != nullptr && Dim::trace->keeps_guards)
    return Dim::trace->decide(by, decider);
  InlineVector<int64_t, 8> values;
  for (const Dim& dim : by) values.push_back(dim);
  return decider(values);
}

Dim clamped(const Dim& a, const Dim& low, const Dim& high) {
  if (is_less(a, low)) return low;
  return is_less(high, a) ? high : a;
}

Dim Shape::count() const {
  Dim elements = 1;
  for (const Dim& dim : dims_) elements = times(elements, dim);
  return elements;
}

bool Shape::is_empty() const {
  return std::ranges::any_of(dims_, [](const Dim& dim) { return dim == 0; });
}

int64_t Shape::size() const {
  int64_t elements = 1;
  for (const Dim& dim : dims_) elements *= static_cast<int64_t>(dim);
  return elements;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims_, other.dims_, same_size);
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (int axis = 0; axis < ndim(); ++axis) {
    fmt::format_to(std::back_inserter(text), "{}{}", axis == 0 ? "" : ", ", dims_[axis].value);
  }
  return text + (ndim() == 1 ? ",)" : ")");
}

void check_size(const char* op, const Shape& shape, Dtype dtype) {
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  bool overflow = false;
  for (const Dim& dim : shape) {
    CERMET_CHECK(dim.value >= 0, value, op, "shape {} has a negative size; sizes must be >= 0",
                 shape);
    overflow |= __builtin_mul_overflow(bytes, std::max<int64_t>(dim.value, 1), &bytes);
  }
  CERMET_CHECK(!overflow, overflow, op,
               "an array of shape {} and dtype {} has more than {} bytes; use smaller sizes", shape,
               dtype, std::numeric_limits<int64_t>::max());
}

Layout Layout::contiguous(const Shape& shape) {
  Layout layout;
  layout.strides.resize(shape.ndim());
  Dim stride = 1;
  for (int axis = shape.ndim() - 1; axis >= 0; --axis) {
    layout.strides[axis] = stride;
    if (shape[axis] != 0) stride *= shape[axis];
  }
  return layout;
}

bool is_contiguous(const Shape& shape, const Layout& layout) {
  if (shape.is_empty()) return true;
  Dim stride = 1;
  for (int axis = shape.ndim() - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    if (layout.strides[axis] != stride) return false;
    stride *= shape[axis];
  }
  return true;
}

std::pair<int64_t, int64_t> reach_of(const Shape& shape, const Layout& layout) {
  if (shape.is_empty()) return {0, 0};
  int64_t first = layout.offset;
  int64_t last = layout.offset;
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    const int64_t span = (shape[axis] - 1) * layout.strides[axis];
    (span < 0 ? first : last) += span;
  }
  return {first, last + 1};
}

std::optional<Layout> reshape_layout(const Shape& from, const Layout& layout, const Shape& to) {
  CERMET_INTERNAL_CHECK(from.count() == to.count(), "reshape_layout of {} to {}", from, to);
  if (from.is_empty()) return Layout::contiguous(to);
  const Packed source = without_unit_axes(from, layout);
  // Axes of both sides are consumed in the smallest groups of equal size; inside a group the source
  // must be one run of constant stride.
  Layout result{Strides(to.ndim(), 0), layout.offset};
  size_t source_axis = 0;
  int axis = 0;
  while (source_axis < source.dims.size()) {
    while (to[axis] == 1) ++axis;
    const size_t source_first = source_axis;
    const int first = axis;
    Dim source_size = source.dims[source_axis++];
    Dim size = to[axis++];
    while (source_size != size) {
      if (source_size < size) {
        source_size *= source.dims[source_axis++];
      } else {
        size *= to[axis++];
      }
    }
    if (!is_mergeable(source, source_first, source_axis)) return std::nullopt;
    Dim stride = source.strides[source_axis - 1];
    for (int i = axis - 1; i >= first; --i) {
      result.strides[i] = stride;
      stride *= to[i];
    }
  }
  return result;
}

Layout transpose_layout(const Layout& layout, std::span<const int> axes) {
  CERMET_INTERNAL_CHECK(axes.size() == layout.strides.size(), "transpose of {} axes by {}",
                        layout.strides.size(), axes.size());
  Layout result{{}, layout.offset};
  for (int axis : axes) result.strides.push_back(layout.strides[axis]);
  return result;
}

Layout broadcast_layout(const Shape& from, const Layout& layout, const Shape& to) {
  const int added = to.ndim() - from.ndim();
  CERMET_INTERNAL_CHECK(added >= 0, "broadcast of {} to {}", from, to);
  Layout result{Strides(to.ndim(), 0), layout.offset};
  for (int axis = 0; axis < from.ndim(); ++axis) {
    const bool same = same_size(from.dim(axis), to.dim(axis + added));
    CERMET_INTERNAL_CHECK(same || from[axis] == 1, "broadcast of {} to {}", from, to);
    if (same) result.strides[axis + added] = layout.strides[axis];
  }
  return result;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.ndim() >= b.ndim() ? a : b;
  const Shape& shorter = a.ndim() >= b.ndim() ? b : a;
  const int added = longer.ndim() - shorter.ndim();
  Shape result = longer;
  for (int axis = 0; axis < shorter.ndim(); ++axis) {
    const std::optional<Dim> dim = broadcast_dim(longer.dim(axis + added), shorter.dim(axis));
    CERMET_CHECK(dim, value, op,
                 "shapes {} and {} cannot be broadcast: {} and {} differ; counted from the last "
                 "axis, sizes must be equal or 1",
                 a, b, longer.dim(axis + added).value, shorter.dim(axis).value);
    result.dim(axis + added) = *dim;
  }
  return result;
}

int normalize_axis(const char* op, int64_t axis, int ndim) {
  CERMET_CHECK(ndim > 0, axis, op, "axis {} given, but the array has no axes; leave the axis out",
               axis);
  CERMET_CHECK(-ndim <= axis && axis < ndim, axis, op,
               "axis {} is out of range for an array with {} axes; use {} <= axis < {}", axis, ndim,
               -ndim, ndim);
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

Axes normalize_axes(const char* op, std::span<const int64_t> axes, int ndim) {
  Axes result;
  for (int64_t axis : axes) result.push_back(normalize_axis(op, axis, ndim));
  std::ranges::sort(result);
  const auto repeat = std::ranges::adjacent_find(result);
  CERMET_CHECK(repeat == result.end(), value, op,
               "axis {} is given twice in ({}) for an array with {} axes; name each axis once",
               *repeat, fmt::join(axes, ", "), ndim);
  return result;
}

}  // namespace cermet
