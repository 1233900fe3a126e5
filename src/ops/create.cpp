// SPDX-License-Identifier: MIT
// Arrays from numbers: full and arange, what is composed of them, and numbers themselves. Values
// are runtime scalars of a kernel, so kernels and plans do not depend on them.
#include <cmath>
#include <limits>
#include <numbers>

#include "graph/hooks.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

Lane full_lane(LowerContext& cx, const NodeView& n, std::span<const Lane>) {
  const Number& value = n.get<FullParams>().value;
  const Dtype dtype = compute_dtype(n.dtype);
  if (!is_complex(n.dtype)) return {cx.number(value, dtype)};
  return {cx.number(number(value.real_imag.real()), dtype),
          cx.number(number(value.real_imag.imag()), dtype)};
}

Lane pull_arange(LowerContext& cx, const NodeView& n, const Coords& at) {
  const ArangeParams& p = n.get<ArangeParams>();
  ir::Builder& b = cx.builder();
  const Dtype dtype = compute_dtype(n.dtype);
  const ir::ExprId i = b.cast(cx.expr(at[0]), dtype);
  const ir::ExprId value = b.add(cx.number(p.start, dtype), b.mul(i, cx.number(p.step, dtype)));
  return {value, is_complex(n.dtype) ? b.constant(dtype, 0) : ir::kNone};
}

double real_value(const Number& value) {
  if (value.expr != 0 && hooks::trace != nullptr) hooks::trace->look(value);
  return value.kind <= Number::Kind::integer ? static_cast<double>(value.integer)
                                             : value.real_imag.real();
}

// Row and column numbers, compared: the matrices of tri, tril and triu.
array below_diagonal(const Dim& n, const Dim& m, const Dim& k, const S& s) {
  const Number zero = number(int64_t{0}), one = number(int64_t{1});
  const array columns = arange(zero, number(m), one, Dtype::int32, s);
  const array last = arange(number(k), number(plus(n, k)), one, Dtype::int32, s);
  return less_equal(columns, reshape(last, {n, 1}, s), s);
}

// The integers from start to before stop.
Dim count_of(const Number& start, const Number& stop, int64_t step) {
  const Dim first(start.integer, start.expr), end(stop.integer, stop.expr);
  const Dim way = step > 0 ? minus(end, first) : minus(first, end);
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();  // no way is longer
  const int64_t length = step == -kFar - 1 ? kFar : std::abs(step);
  const Dim count = length == 1 ? way : plus(quotient(minus(way, 1), length), 1);
  return is_less(count, 0) ? Dim(0) : count;
}

bool fits_int32(const Number& whole) {
  constexpr int64_t kEnd = int64_t{1} << 31;
  const Dim value(whole.integer, whole.expr);
  return !is_less(value, -kEnd) && is_less(value, kEnd);
}

array triangle(const char* op, const array& a, const Dim& k, bool lower, const S& s) {
  CERMET_CHECK(a.ndim() >= 2, value, op, "shape {} has {} axes; it takes at least 2", a.shape(),
               a.ndim());
  const array below = below_diagonal(a.shape().dim(a.ndim() - 2), a.shape().dim(a.ndim() - 1),
                                     lower ? k : minus(k, 1), s);
  const array zero = full({}, number(int64_t{0}), a.dtype(), s);
  return lower ? where(below, a, zero, s) : where(below, zero, a, s);
}

}  // namespace

constinit const OpRow rows::full = {
    .id = OpId::Full,
    .name = "full",
    .accepts = kAny,
    .dtype = [](auto& c) { return c.template get<FullParams>().dtype; },
    .shape = [](auto& c) { return c.template get<FullParams>().shape; },
    .derivative = Zero{},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{full_lane},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "An array of one value.",
};

constinit const OpRow rows::arange = {
    .id = OpId::Arange,
    .name = "arange",
    .accepts = kAny,
    .dtype = [](auto& c) { return c.template get<ArangeParams>().dtype; },
    .shape = [](auto& c) -> Shape { return {c.template get<ArangeParams>().size}; },
    .derivative = Zero{},
    .vmap = BroadcastVmap{},
    .lowering =
        MoveLowering{pull_arange, [](auto&, auto&, auto&) -> std::optional<Layout> { return {}; }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc =
        "start + i * step for each position i, computed in the result's dtype (halves in float32).",
};

Number number(bool value) { return {Number::Kind::boolean, value ? 1 : 0, 0}; }
Number number(int64_t value) { return {Number::Kind::integer, value, 0}; }
Number number(const Dim& size) { return {Number::Kind::integer, size.value, 0, size.expr}; }
Number number(double value) { return {Number::Kind::floating, 0, value}; }
Number number(std::complex<double> value) { return {Number::Kind::complex, 0, value}; }

Dtype default_dtype(const Number& value) {
  switch (value.kind) {
    case Number::Kind::boolean: return Dtype::boolean;
    case Number::Kind::integer: return Dtype::int32;
    case Number::Kind::floating: return Dtype::float32;
    default: return Dtype::complex64;
  }
}

Dtype weak_dtype(const char* op, const Number& value, Dtype beside) {
  const Dtype dtype = promote_weak(beside, category_of(default_dtype(value)));
  if (value.kind == Number::Kind::integer && is_integer(dtype)) {
    const int64_t held = convert_number(value, dtype).integer;
    const bool fits = held == value.integer && (value.integer >= 0 || is_signed(dtype));
    CERMET_CHECK(fits, overflow, op,
                 "{} does not fit {}; use a number in its range, or cast the "
                 "array to a wider dtype",
                 value.integer, dtype);
  }
  return dtype;
}

array weak_scalar(const char* op, const Number& value, Dtype beside, const S& s) {
  return full({}, value, weak_dtype(op, value, beside), s);
}

array full(const Shape& shape, const Number& value, Dtype dtype, const S& s) {
  return make_node(rows::full, {}, FullParams{shape, convert_number(value, dtype), dtype}, s);
}

array full(const Shape& shape, const array& value, std::optional<Dtype> dtype, const S& s) {
  CERMET_CHECK(
      broadcast_shapes("full", value.shape(), shape) == shape, value, "full",
      "an array of shape {} cannot become {}; counted from the last axis, its sizes must be "
      "equal or 1",
      value.shape(), shape);
  return fit(value, shape, dtype.value_or(value.dtype()), s);
}

array zeros(const Shape& shape, Dtype dtype, const S& s) {
  return full(shape, number(int64_t{0}), dtype, s);
}

array ones(const Shape& shape, Dtype dtype, const S& s) {
  return full(shape, number(int64_t{1}), dtype, s);
}

array zeros_like(const array& a, const S& s) { return zeros(a.shape(), a.dtype(), s); }
array ones_like(const array& a, const S& s) { return ones(a.shape(), a.dtype(), s); }

array arange(const Number& start, const Number& stop, const Number& step,
             std::optional<Dtype> dtype, const S& s) {
  const Number::Kind kind = std::max({start.kind, stop.kind, step.kind});
  CERMET_CHECK(kind != Number::Kind::complex, type, "arange",
               "a complex number is given; start, stop and step must be real");
  const bool is_integral = kind <= Number::Kind::integer;
  const bool is_small = is_integral && fits_int32(start) && fits_int32(stop) && fits_int32(step);
  const Dtype result = dtype.value_or(is_small      ? Dtype::int32
                                      : is_integral ? Dtype::int64
                                                    : Dtype::float32);
  CERMET_CHECK(result != Dtype::boolean, dtype, "arange",
               "dtype bool has no sequence; use an integer or floating dtype");
  if (is_integral && step.expr == 0 && step.integer != 0) {
    return make_node(rows::arange, {},
                     ArangeParams{convert_number(start, result), convert_number(step, result),
                                  count_of(start, stop, step.integer), result},
                     s);
  }
  const double first = real_value(start), last = real_value(stop), by = real_value(step);
  CERMET_CHECK(by != 0, value, "arange", "step is 0; it must not be");
  const double count = std::ceil((last - first) / by);
  CERMET_CHECK(!std::isnan(count) && !std::isinf(count), value, "arange",
               "from {} to {} in steps of {} has no length; all three must be finite", first, last,
               by);
  CERMET_CHECK(count < static_cast<double>(std::numeric_limits<int64_t>::max()), overflow, "arange",
               "from {} to {} in steps of {} has too many elements; use a larger step", first, last,
               by);
  const int64_t size = std::max<int64_t>(static_cast<int64_t>(count), 0);
  return make_node(
      rows::arange, {},
      ArangeParams{convert_number(start, result), convert_number(step, result), size, result}, s);
}

array linspace(double start, double stop, int64_t num, bool endpoint, Dtype dtype, const S& s) {
  return linspace(number(start), number(stop), num, endpoint, dtype, s);
}

array linspace(const Number& start, const Number& stop, const Dim& num, bool endpoint, Dtype dtype,
               const S& s) {
  CERMET_CHECK(!is_less(num, 0), value, "linspace", "{} samples; give at least 0", num.value);
  const Dim intervals = endpoint ? minus(num, 1) : num;
  if (is_less(num, 2)) return full({num}, start, dtype, s);
  // Both ends are exact: start * (1 - t) + stop * t.
  const Dtype part = dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32;
  const array i = arange(number(int64_t{0}), number(num), number(int64_t{1}), part, s);
  auto constant = [&](const Number& v) { return full({num}, v, part, s); };
  const array t = divide(i, constant(number(intervals)), s);
  const array from_start = multiply(constant(start), subtract(constant(number(1.0)), t, s), s);
  return astype(add(from_start, multiply(constant(stop), t, s), s), dtype, s);
}

array eye(const Dim& n, const std::optional<Dim>& m, const Dim& k, Dtype dtype, const S& s) {
  const Dim columns = m.value_or(n);
  CERMET_CHECK(!is_less(n, 0) && !is_less(columns, 0), value, "eye",
               "{} rows and {} columns; neither may be < 0", n.value, columns.value);
  const Number one = number(int64_t{1});
  const array column = arange(number(int64_t{0}), number(columns), one, Dtype::int32, s);
  const array diagonal = arange(number(k), number(plus(n, k)), one, Dtype::int32, s);
  return astype(equal(column, reshape(diagonal, {n, 1}, s), s), dtype, s);
}

array tri(const Dim& n, const std::optional<Dim>& m, const Dim& k, Dtype dtype, const S& s) {
  const Dim columns = m.value_or(n);
  CERMET_CHECK(!is_less(n, 0) && !is_less(columns, 0), value, "tri",
               "{} rows and {} columns; neither may be < 0", n.value, columns.value);
  return astype(below_diagonal(n, columns, k, s), dtype, s);
}

array tril(const array& a, const Dim& k, const S& s) { return triangle("tril", a, k, true, s); }
array triu(const array& a, const Dim& k, const S& s) { return triangle("triu", a, k, false, s); }

namespace {

// Σ c_k cos(2 π k i / (m - 1)), made in float64.
array cosine_window(const Dim& m, std::initializer_list<double> coefficients, const S& s) {
  if (is_less(m, 2)) return ones({is_less(m, 0) ? Dim(0) : m}, Dtype::float32, s);
  const Number zero = number(int64_t{0}), one = number(int64_t{1});
  const array i = arange(zero, number(m), one, Dtype::float64, s);
  const auto constant = [&](const Number& v) { return full({}, v, Dtype::float64, s); };
  array window = zeros({m}, Dtype::float64, s);
  double k = 0;
  for (const double c : coefficients) {
    const array turn =
        divide(constant(number(2 * std::numbers::pi * k++)), constant(number(minus(m, 1))), s);
    window = add(window, multiply(constant(number(c)), cos(multiply(i, turn, s), s), s), s);
  }
  return astype(window, Dtype::float32, s);
}

}  // namespace

array bartlett(const Dim& m, const S& s) {
  if (is_less(m, 2)) return cosine_window(m, {}, s);
  const array i = arange(number(int64_t{0}), number(m), number(int64_t{1}), Dtype::float64, s);
  const auto constant = [&](const Number& v) { return full({}, v, Dtype::float64, s); };
  const array half = divide(constant(number(minus(m, 1))), constant(number(2.0)), s);
  const array away = abs(subtract(i, half, s), s);
  return astype(subtract(constant(number(1.0)), divide(away, half, s), s), Dtype::float32, s);
}

array hanning(const Dim& m, const S& s) { return cosine_window(m, {0.5, -0.5}, s); }
array hamming(const Dim& m, const S& s) { return cosine_window(m, {0.54, -0.46}, s); }
array blackman(const Dim& m, const S& s) { return cosine_window(m, {0.42, -0.5, 0.08}, s); }

}  // namespace cermet
