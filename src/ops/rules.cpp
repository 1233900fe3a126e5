// SPDX-License-Identifier: MIT
#include "ops/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/hooks.h"
#include "graph/laziness.h"

namespace cermet::rules {

Dtype same_dtype(const OpCall& call) { return call.inputs[0].dtype(); }
Dtype second_dtype(const OpCall& call) { return call.inputs[1].dtype(); }
Dtype boolean_dtype(const OpCall&) { return Dtype::boolean; }
Dtype real_dtype(const OpCall& call) { return real_of(call.inputs[0].dtype()); }
Dtype complex_dtype(const OpCall& call) {
  return call.inputs[0].dtype() == Dtype::float64 ? Dtype::complex128 : Dtype::complex64;
}
Shape same_shape(const OpCall& call) { return call.inputs[0].shape(); }
Shape params_shape(const OpCall& call) { return call.get<ShapeParams>().shape; }

Params shift_axes(const Params& params) {
  Params shifted = params;
  if (auto* reduce = std::get_if<ReduceParams>(&shifted)) {
    for (int& axis : reduce->axes) ++axis;
  } else if (auto* one = std::get_if<AxisParams>(&shifted)) {
    ++one->axis;
    ++one->batches;
  } else {
    for (int& axis : std::get<AxesParams>(shifted).axes) ++axis;
  }
  return shifted;
}

ir::ExprId truth(ir::Builder& b, const Lane& a) {
  const Dtype dtype = b.dtype(a.re);
  if (dtype == Dtype::boolean) return a.re;
  const ir::ExprId zero = b.constant(dtype, 0);
  const ir::ExprId re = b.compare(ir::Code::ne, a.re, zero);
  return a.im == ir::kNone ? re : b.logical_or(re, b.compare(ir::Code::ne, a.im, zero));
}

Lane cast_lane(ir::Builder& b, const Lane& a, Dtype from, Dtype to, bool rounds) {
  const Dtype lane = compute_dtype(to);
  if (to == Dtype::boolean) return {truth(b, a)};
  Lane result{b.cast(a.re, lane)};
  if (is_half(to) && rounds) result.re = b.cast(b.cast(result.re, to), lane);
  if (is_complex(to)) result.im = is_complex(from) ? b.cast(a.im, lane) : b.constant(lane, 0);
  return result;
}

Lane select_lane(ir::Builder& b, ir::ExprId condition, const Lane& x, const Lane& y) {
  return {b.select(condition, x.re, y.re),
          x.im == ir::kNone ? ir::kNone : b.select(condition, x.im, y.im)};
}

ir::ExprId size_expr(LowerContext& cx, const Dim& size) {
  return cx.number(number(size), Dtype::int64);
}

Coord combine(LowerContext& cx, std::span<const Coord> coords, std::span<const Dim> coefficients,
              const Dim& offset) {
  Coord sum{.terms = {}, .offset = offset};
  for (size_t i = 0; i < coords.size(); ++i) {
    if (coords[i].expr == ir::kNone) {
      sum.offset += coefficients[i] * coords[i].offset;
      for (const auto& [axis, factor] : coords[i].terms)
        sum.terms.push_back({axis, factor * coefficients[i]});
    }
  }
  ir::Builder& b = cx.builder();
  ir::ExprId expr = ir::kNone;
  for (size_t i = 0; i < coords.size(); ++i) {
    if (coords[i].expr == ir::kNone) continue;
    ir::ExprId term = cx.expr(coords[i]);
    if (coefficients[i] != 1) term = b.mul(term, size_expr(cx, coefficients[i]));
    expr = expr == ir::kNone ? term : b.add(expr, term);
  }
  if (expr == ir::kNone) return sum;
  if (!sum.terms.empty()) expr = b.add(expr, cx.expr({.terms = sum.terms}));
  return {.terms = {}, .offset = sum.offset, .expr = expr};
}

Coord index_coord(LowerContext& cx, ir::ExprId index, int axis, const Dim& size,
                  const Dim& extent) {
  ir::Builder& b = cx.builder();
  const bool is_unsigned = !is_signed(b.dtype(index));
  // Places that fit 32 bits are made in them: twice as many at once.
  const bool is_narrow =
      size_of(b.dtype(index)) < size_of(Dtype::int32) || b.dtype(index) == Dtype::int32;
  const Dtype dtype = is_narrow && size <= INT32_MAX ? Dtype::int32 : Dtype::int64;
  const auto number = [&](const Dim& n) { return cx.number(cermet::number(n), dtype); };
  const ir::ExprId given = b.cast(index, dtype);
  const ir::ExprId zero = b.integer(dtype, 0);
  ir::ExprId at = given;
  if (!is_unsigned)
    at = b.select(b.compare(ir::Code::lt, given, zero), b.add(given, number(size)), given);
  const ir::ExprId ok = b.logical_and(b.compare(ir::Code::le, zero, at),
                                      b.compare(ir::Code::le, at, number(size - extent)));
  cx.check_index(ok, b.dtype(index) == Dtype::uint64 ? index : b.cast(given, Dtype::int64), axis,
                 size, extent);
  return {.terms = {}, .offset = 0, .expr = b.cast(b.select(ok, at, zero), Dtype::int64)};
}

array unary(const OpRow& row, const array& a, const S& s) {
  return make_node(row, pack(a), NoParams{}, s);
}

array unary_inexact(const OpRow& row, const array& a, const S& s) {
  return make_node(row, pack(astype(a, to_inexact(a.dtype()), s)), NoParams{}, s);
}

namespace {

array binary_in(const OpRow& row, const array& a, const array& b, Dtype dtype, const S& s) {
  if (a.shape() == b.shape())
    return make_node(row, pack(fit(a, a.shape(), dtype, s), fit(b, a.shape(), dtype, s)),
                     NoParams{}, s);
  const Shape shape = broadcast_shapes(row.name, a.shape(), b.shape());
  check_size(row.name, shape, dtype);
  return make_node(row, pack(fit(a, shape, dtype, s), fit(b, shape, dtype, s)), NoParams{}, s);
}

}  // namespace

array slice_at(const array& a, int axis, int64_t at) {
  PerAxis start(std::vector<Dim>(static_cast<size_t>(a.ndim()), 0));
  Shape size = a.shape();
  start.dim(axis) = at;
  size.dim(axis) = 1;
  return sized_slice(a, std::move(start), SliceSteps(a.ndim(), 1), std::move(size));
}

array binary(const OpRow& row, const array& a, const array& b, const S& s) {
  return binary_in(row, a, b, promote(a.dtype(), b.dtype()), s);
}

array binary_inexact(const OpRow& row, const array& a, const array& b, const S& s) {
  return binary_in(row, a, b, to_inexact(promote(a.dtype(), b.dtype())), s);
}

const FullParams* full_params(const array& a) {
  const Node& node = *a.node();
  // A plan serves other data, too.
  if (UnboundedLaziness::is_active() && node.is_ready()) return nullptr;
  return node.row == &rows::full ? std::get_if<FullParams>(&node.params) : nullptr;
}

array fit(const array& a, const Shape& shape, Dtype dtype, const S& s) {
  const bool has_shape = a.shape() == shape;
  if (has_shape && a.dtype() == dtype) return a;
  if (const FullParams* params = full_params(a)) {
    if (!has_shape) check_broadcast_to(a.shape(), shape);
    return full(shape, params->value, dtype, s);
  }
  array cast = astype(a, dtype, s);
  return has_shape ? cast : broadcast_to(cast, shape, s);
}

Dtype wide_dtype(Dtype dtype) { return is_half(dtype) ? Dtype::float32 : dtype; }

array widened(const array& a, const S& s) {
  const Dtype dtype = wide_dtype(a.dtype());
  const bool is_kept = a.dtype() != dtype && full_params(a) == nullptr;
  return is_kept ? make_node(rows::cast, pack(a), CastParams{dtype, false}, s)
                 : astype(a, dtype, s);
}

array as_result(const array& a, Dtype dtype, const S& s) {
  const bool is_kept = is_half(dtype) && a.dtype() != dtype && full_params(a) == nullptr;
  return is_kept ? make_node(rows::cast, pack(a), CastParams{dtype, false}, s)
                 : astype(a, dtype, s);
}

namespace {

// As a cast from float: truncates, NaN gives 0, out of range saturates.
template <typename T>
int64_t saturate(double value) {
  if (std::isnan(value)) return 0;
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= low) return static_cast<int64_t>(std::numeric_limits<T>::min());
  if (value >= high) return static_cast<int64_t>(std::numeric_limits<T>::max());
  return static_cast<int64_t>(static_cast<T>(value));
}

int64_t integer_value(const Number& value, Dtype dtype) {
  const bool from_integer = value.kind <= Number::Kind::integer;
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) -> int64_t {
    if constexpr (std::is_same_v<T, bool> || !std::is_integral_v<T>) return 0;
    else
      return from_integer ? static_cast<int64_t>(static_cast<T>(value.integer))
                          : saturate<T>(value.real_imag.real());
  });
}

double rounded(double value, Dtype dtype) {
  switch (dtype) {
    case Dtype::float16: return static_cast<float>(Float16(static_cast<float>(value)));
    case Dtype::bfloat16: return static_cast<float>(BFloat16(static_cast<float>(value)));
    case Dtype::float32: return static_cast<float>(value);
    default: return value;
  }
}

}  // namespace

Number convert_number(const Number& value, Dtype dtype) {
  if (value.expr != 0) {
    Number plain = value;
    plain.expr = 0;
    Number symbolic = convert_number(plain, dtype);
    if (hooks::trace != nullptr) symbolic.expr = hooks::trace->cast(value, dtype);
    return symbolic;
  }
  const bool from_integer = value.kind <= Number::Kind::integer;
  const std::complex<double> exact =
      from_integer ? std::complex<double>(static_cast<double>(value.integer)) : value.real_imag;
  if (dtype == Dtype::boolean) return number(from_integer ? value.integer != 0 : exact != 0.0);
  if (is_integer(dtype)) return number(integer_value(value, dtype));
  const Dtype part = real_of(dtype);
  if (!is_complex(dtype)) return number(rounded(exact.real(), part));
  return number(std::complex<double>(rounded(exact.real(), part), rounded(exact.imag(), part)));
}

Axes resolve_axes_in_order(const char* op, std::span<const int64_t> axes, int ndim) {
  Axes result;
  result.reserve(axes.size());
  for (int64_t axis : axes) {
    result.push_back(normalize_axis(op, axis, ndim));
    CERMET_CHECK(std::ranges::count(result, result.back()) == 1, value, op,
                 "axis {} is given twice; give each axis once", axis);
  }
  return result;
}

Axes resolve_axes(const char* op, const OptionalAxes& axes, int ndim) {
  if (axes) {
    Axes result = resolve_axes_in_order(op, *axes, ndim);
    std::ranges::sort(result);
    return result;
  }
  Axes all(ndim);
  for (int i = 0; i < ndim; ++i) all[i] = i;
  return all;
}

Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdims) {
  Shape result;
  size_t next = 0;
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    const bool is_reduced = next < axes.size() && axes[next] == axis;
    if (!is_reduced) result.push_back(shape.dim(axis));
    if (!is_reduced) continue;
    ++next;
    if (keepdims) result.push_back(1);
  }
  return result;
}

PerAxis origin_of(const array& a) { return PerAxis(std::vector<Dim>(a.ndim(), 0)); }

bool is_zero(const Dim& dim) { return same_size(dim, 0); }

array full_like(const array& a, double value) { return full(a.shape(), number(value), a.dtype()); }

array conjugate_if_complex(const array& a) { return is_complex(a.dtype()) ? conjugate(a) : a; }

array batched_input(const array& a, bool is_batched, const Dim& size) {
  if (is_batched) return a;
  Shape shape = a.shape();
  shape.insert(0, size);
  return broadcast_to(a, shape);
}

}  // namespace cermet::rules

namespace cermet {

array beside(const char* op, const array& a, const Number& value) {
  return full(a.shape(), value, weak_dtype(op, value, a.dtype()));
}

}  // namespace cermet
