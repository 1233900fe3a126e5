// SPDX-License-Identifier: MIT
// Arithmetic of two arguments of one dtype. Integers wrap; integer division by 0 gives 0; remainder
// and floor_divide follow Python's signs. On bools: add and maximum are or, multiply and minimum
// and, subtract exclusive or.
#include <cmath>
#include <limits>

#include "ops/complex_math.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;
using ir::ExprId;

namespace {

using Lanes = std::span<const Lane>;

ComplexMath complex_math(ir::Builder& b, Lanes a) { return {b, b.dtype(a[0].re)}; }

template <Code code, Code bool_code, Lane (ComplexMath::*method)(Lane, Lane)>
Lane arithmetic(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = b.dtype(a[0].re);
  if (a[0].im != ir::kNone) return (complex_math(b, a).*method)(a[0], a[1]);
  return {b.op(dtype == Dtype::boolean ? bool_code : code, dtype, {a[0].re, a[1].re})};
}

Lane divide_lane(LowerContext& cx, const NodeView& n, Lanes a) {
  if (a[0].im != ir::kNone) return complex_math(cx.builder(), a).div(a[0], a[1]);
  return binary_code<Code::div>(cx, n, a);
}

// Both are numbers of unlike sign (of integers or floats).
ExprId signs_differ(ir::Builder& b, ExprId x, ExprId y) {
  const ExprId zero = b.constant(b.dtype(x), 0);
  return b.op(Code::bit_xor, Dtype::boolean,
              {b.compare(Code::lt, x, zero), b.compare(Code::lt, y, zero)});
}

Lane remainder_lane(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = b.dtype(a[0].re);
  if (dtype == Dtype::boolean) return {b.constant(dtype, 0)};
  const ExprId rest = b.rem(a[0].re, a[1].re);
  if (!is_signed(dtype)) return {rest};
  const ExprId is_off = b.logical_and(b.compare(Code::ne, rest, b.constant(dtype, 0)),
                                      signs_differ(b, rest, a[1].re));
  return {b.select(is_off, b.add(rest, a[1].re), rest)};
}

Lane floor_divide_lane(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  const ExprId x = a[0].re, y = a[1].re;
  const Dtype dtype = b.dtype(x);
  if (dtype == Dtype::boolean) return {b.logical_and(x, y)};
  const ExprId quotient = b.div(x, y);
  if (is_floating(dtype)) return {b.unary(Code::floor, quotient)};
  if (!is_signed(dtype)) return {quotient};
  const ExprId rest = b.rem(x, y);
  const ExprId is_off =
      b.logical_and(b.compare(Code::ne, rest, b.constant(dtype, 0)), signs_differ(b, rest, y));
  return {b.select(is_off, b.sub(quotient, b.constant(dtype, 1)), quotient)};
}

template <bool want_max>
Lane extremum(LowerContext& cx, const NodeView& n, Lanes a) {
  ir::Builder& b = cx.builder();
  if (a[0].im == ir::kNone) {
    if (b.dtype(a[0].re) == Dtype::boolean)
      return binary_code<want_max ? Code::bit_or : Code::bit_and>(cx, n, a);
    return binary_code<want_max ? Code::max : Code::min>(cx, n, a);
  }
  ComplexMath math = complex_math(b, a);
  const ExprId second = want_max ? math.less(a[0], a[1]) : math.less(a[1], a[0]);
  const ExprId take =
      b.logical_and(b.logical_or(second, math.is_nan(a[1])), b.logical_not(math.is_nan(a[0])));
  return select_lane(b, take, a[1], a[0]);
}

// base^exponent over the lowest `bits` bits of the exponent, by squaring.
ExprId power_by_squaring(ir::Builder& b, ExprId base, ExprId exponent, int bits) {
  const Dtype dtype = b.dtype(base);
  const ExprId zero = b.integer(dtype, 0);
  ExprId result = b.integer(dtype, 1);
  for (int i = 0; i < bits; ++i) {
    const ExprId bit = b.op(Code::bit_and, dtype,
                            {exponent, b.integer(dtype, static_cast<int64_t>(uint64_t{1} << i))});
    result = b.select(b.compare(Code::ne, bit, zero), b.mul(result, base), result);
    if (i + 1 < bits) base = b.mul(base, base);
  }
  return result;
}

ExprId integer_power(ir::Builder& b, ExprId base, ExprId exponent) {
  constexpr int kUsualBits = 4;
  const Dtype dtype = b.dtype(base);
  const int width = 8 * static_cast<int>(size_of(dtype));
  const ExprId zero = b.integer(dtype, 0), one = b.integer(dtype, 1);
  const ExprId usual = power_by_squaring(b, base, exponent, kUsualBits);
  ExprId full = power_by_squaring(b, base, exponent, is_signed(dtype) ? width - 1 : width);
  ExprId is_unusual = b.compare(Code::lt, b.integer(dtype, (1 << kUsualBits) - 1), exponent);
  if (is_signed(dtype)) {
    // The reciprocal of the power, truncated: only 1 and -1 have one.
    const ExprId is_negative = b.compare(Code::lt, exponent, zero);
    const ExprId minus_one = b.integer(dtype, -1);
    const ExprId is_even = b.compare(Code::eq, b.op(Code::bit_and, dtype, {exponent, one}), zero);
    const ExprId of_minus_one = b.select(is_even, one, minus_one);
    const ExprId inverse =
        b.select(b.compare(Code::eq, base, one), one,
                 b.select(b.compare(Code::eq, base, minus_one), of_minus_one, zero));
    full = b.select(is_negative, inverse, full);
    is_unusual = b.logical_or(is_unusual, is_negative);
  }
  return b.rare(is_unusual, usual, full);
}

// Whether the size of an exponent is 0.5, 1, 2, 3 or 4 (or 0.75 or 1.5): one mantissa bit at most.
ExprId is_plain(ir::Builder& b, ExprId exponent) {
  const Dtype dtype = b.dtype(exponent);
  const bool is_single = dtype == Dtype::float32;
  const Dtype word = is_single ? Dtype::uint32 : Dtype::uint64;
  const auto bits_of = [&](ExprId x) { return b.bitcast(x, word); };
  const ExprId bits = bits_of(b.unary(Code::abs, exponent));
  const ExprId least = bits_of(b.constant(dtype, 0.5)), most = bits_of(b.constant(dtype, 4));
  const ExprId mask = b.integer(word, (int64_t{1} << (is_single ? 22 : 51)) - 1);
  const ExprId rest = b.op(Code::bit_and, word, {bits, mask});
  return b.logical_and(b.compare(Code::le, b.sub(bits, least), b.sub(most, least)),
                       b.compare(Code::eq, rest, b.integer(word, 0)));
}
// The bits of power_of_number where the exponent is found to be one of its numbers.
ExprId real_power(ir::Builder& b, ExprId base, ExprId exponent) {
  const Dtype dtype = b.dtype(base);
  const auto number = [&](double value) { return b.constant(dtype, value); };
  const auto is = [&](ExprId x, double value) { return b.compare(Code::eq, x, number(value)); };
  const double infinity = std::numeric_limits<double>::infinity();
  const ExprId square = b.mul(base, base), inverse = b.div(number(1), base);
  const ExprId finite = b.add(b.select(is(base, -infinity), number(infinity), base), number(0));
  const std::pair<double, ExprId> powers[] = {{1, base},
                                              {2, square},
                                              {3, b.mul(square, base)},
                                              {4, b.mul(square, square)},
                                              {-1, inverse},
                                              {-2, b.mul(inverse, inverse)},
                                              {0.5, b.unary(Code::sqrt, finite)},
                                              {-0.5, b.unary(Code::rsqrt, finite)}};
  const ExprId usual = b.op(Code::pow, dtype, {base, exponent});
  ExprId full = usual;
  for (const auto& [value, power] : powers) full = b.select(is(exponent, value), power, full);
  return b.rare(is_plain(b, exponent), usual, full);
}
Lane complex_power(ir::Builder& b, Lanes a) {
  ComplexMath math = complex_math(b, a);
  const Dtype dtype = b.dtype(a[0].re);
  const ExprId is_real = b.compare(Code::eq, a[1].im, b.constant(dtype, 0));
  Lane result = math.pow(a[0], a[1]);
  for (const auto& [value, power] : {std::pair(1, a[0]), std::pair(2, math.mul(a[0], a[0]))}) {
    const ExprId is_it =
        b.logical_and(is_real, b.compare(Code::eq, a[1].re, b.constant(dtype, value)));
    result = {b.select(is_it, power.re, result.re), b.select(is_it, power.im, result.im)};
  }
  return result;
}

Lane power_lane(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = b.dtype(a[0].re);
  if (a[0].im != ir::kNone) return complex_power(b, a);
  if (is_floating(dtype)) return {real_power(b, a[0].re, a[1].re)};
  if (dtype == Dtype::boolean) return {b.logical_or(a[0].re, b.logical_not(a[1].re))};
  return {integer_power(b, a[0].re, a[1].re)};
}

Lane logaddexp_lane(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  if (a[0].im != ir::kNone) return complex_math(b, a).logaddexp(a[0], a[1]);
  const Dtype dtype = b.dtype(a[0].re);
  const double infinity = std::numeric_limits<double>::infinity();
  const ExprId large = b.max(a[0].re, a[1].re), small = b.min(a[0].re, a[1].re);
  const ExprId ratio = b.unary(Code::exp, b.sub(small, large));
  const ExprId is_large = b.logical_or(b.compare(Code::eq, large, b.constant(dtype, infinity)),
                                       b.compare(Code::eq, small, b.constant(dtype, -infinity)));
  return {b.select(is_large, large, b.add(large, b.unary(Code::log1p, ratio)))};
}

// One value stands for many: mostly all lanes go one way.
Lane exp_below_lane(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  const ExprId x = a[0].re, largest = a[1].re;
  const ExprId infinity = b.constant(b.dtype(x), std::numeric_limits<double>::infinity());
  const ExprId finite = b.compare(Code::lt, b.unary(Code::abs, largest), infinity);
  return {b.rare(b.logical_not(finite), b.unary(Code::exp_nonpositive, b.sub(x, largest)),
                 b.unary(Code::exp, x))};
}

array power_diff(const OpCall& c, const array& y, int k, const array& g) {
  const array& a = c.inputs[0];
  const array& b = c.inputs[1];
  const array zero = full_like(a, 0), one = full_like(a, 1);
  // 0 where the exponent is 0 and no logarithm of 0: limits that the plain formulas miss.
  if (k == 0) return g * (b * cermet::power(a, cermet::select(b == zero, one, b - one)));
  return g * (cermet::log(cermet::select(a == zero, one, a)) * y);
}

// For a given power, products of `a`: exponents are mostly 2, and the general power takes ten times as long.
// IEEE 754's pow of -0 and -inf is not sqrt's.
std::optional<array> power_of_number(const array& a, double exponent, const S& s) {
  const auto root_of = [&] {
    const double infinity = std::numeric_limits<double>::infinity();
    const array finite = select(equal(a, full_like(a, -infinity), s), full_like(a, infinity), a, s);
    return add(finite, full_like(a, 0), s);
  };
  if (exponent == 0) return full_like(a, 1);
  if (exponent == 1) return a;
  if (exponent == 2) return square(a, s);
  if (is_complex(a.dtype())) return std::nullopt;
  if (exponent == 3) return multiply(square(a, s), a, s);
  if (exponent == 4) return square(square(a, s), s);
  if (is_integer(a.dtype())) return std::nullopt;
  if (exponent == -1) return reciprocal(a, s);
  if (exponent == -2) return square(reciprocal(a, s), s);
  if (exponent == 0.5) return sqrt(root_of(), s);
  if (exponent == -0.5) return rsqrt(root_of(), s);
  return std::nullopt;
}

// The value of a number beside an array of `shape`, where both together have `dtype`.
std::optional<double> number_beside(const Shape& shape, const array& number, Dtype dtype) {
  const FullParams* given = full_params(number);
  if (given == nullptr || given->value.expr != 0 || dtype == Dtype::boolean) return std::nullopt;
  if (number.ndim() != 0 && number.shape() != shape) return std::nullopt;
  const Number& n = given->value;
  if (n.real_imag.imag() != 0) return std::nullopt;
  const bool is_integral = n.kind == Number::Kind::integer || n.kind == Number::Kind::boolean;
  return is_integral ? static_cast<double>(n.integer) : n.real_imag.real();
}
// Powers of half values are rounded once. exp2 has the bits of pow of 2, but in float64 for its roots.
array binary_power(const OpRow& row, const array& a, const array& b, const S& s) {
  const Dtype dtype = promote(a.dtype(), b.dtype());
  if (const std::optional<double> exponent = number_beside(a.shape(), b, dtype)) {
    const array wide = astype(a, wide_dtype(dtype), s);
    const std::optional<array> power = power_of_number(wide, *exponent, s);
    if (power) return as_result(*power, dtype, s);
  } else if (is_floating(dtype) && dtype != Dtype::float64 &&
             number_beside(b.shape(), a, dtype) == 2.0) {
    return unary(rows::exp2, astype(b, dtype, s), s);
  }
  return binary(row, a, b, s);
}

// The inverse of a power of two that is a normal number of every format, as the inverse is, too.
std::optional<double> exact_inverse(double value) {
  constexpr int kMost = 14;
  int exponent = 0;
  const bool is_power = std::abs(std::frexp(value, &exponent)) == 0.5;
  if (!is_power || std::abs(exponent - 1) > kMost) return std::nullopt;
  return 1 / value;
}

// By a given power of two it is a product, which rounds the same number and is several times quicker.
array binary_divide(const OpRow& row, const array& a, const array& b, const S& s) {
  const Dtype dtype = to_inexact(promote(a.dtype(), b.dtype()));
  if (const std::optional<double> by = number_beside(a.shape(), b, dtype); by && !is_complex(dtype))
    if (const std::optional<double> inverse = exact_inverse(*by))
      return multiply(astype(a, dtype, s), full(b.shape(), number(*inverse), dtype, s), s);
  return binary_inexact(row, a, b, s);
}

array logaddexp_diff(const OpCall& c, const array& y, int k, const array& g) {
  const array& x = c.inputs[k];
  return g * (is_complex(x.dtype()) ? cermet::exp(x - y) : cermet::sigmoid(x - c.inputs[1 - k]));
}

array arctan2_diff(const OpCall& c, const array&, int k, const array& g) {
  const array& a = c.inputs[0];
  const array& b = c.inputs[1];
  const array scaled = g / (cermet::square(a) + cermet::square(b));
  return k == 0 ? scaled * b : -scaled * a;
}

// Of equal arguments, the second takes the whole derivative.
array choice_diff(const array& takes_first, int k, const array& g) {
  const array zero = full_like(g, 0);
  return k == 0 ? select(takes_first, g, zero) : select(takes_first, zero, g);
}

}  // namespace

// X(enumerator, name, accepts, builder, domain low, domain high, max ulp, lowering, doc, derivative
// with respect to argument k applied to g, given arguments a and b and the result y)
#define CERMET_BINARY_ROWS(X)                                                                      \
  X(Add, add, kAny, binary, -4, 4, 0, (arithmetic<Code::add, Code::bit_or, &ComplexMath::add>),    \
    "a + b.", g)                                                                                   \
  X(Subtract, subtract, kAny, binary, -4, 4, 0,                                                    \
    (arithmetic<Code::sub, Code::bit_xor, &ComplexMath::sub>), "a - b.", k == 0 ? g : -g)          \
  X(Multiply, multiply, kAny, binary, -4, 4, 0,                                                    \
    (arithmetic<Code::mul, Code::bit_and, &ComplexMath::mul>), "a * b.", g * c.inputs[1 - k])      \
  X(Divide, divide, kInexact, binary_divide, 0.1, 4, 0, divide_lane,                              \
    "a / b; integers are divided as float32.", k == 0 ? g / b : -(g / b) * y)                      \
  X(Remainder, remainder, kReals, binary, 0.1, 4, 0, remainder_lane,                               \
    "The remainder of a / b, with the sign of b.", k == 0 ? g : -g * cermet::floor_divide(a, b))   \
  X(Power, power, kAny, binary_power, 0.1, 4, 4, power_lane,                                       \
    "a to the power b. Integers stay integers: a negative exponent gives 0 unless a is 1 or -1. "  \
    "Of the numbers 0 to 4, -1, -2 and +-0.5 for b it is made by products and roots.",             \
    power_diff(c, y, k, g))                                                                        \
  X(Maximum, maximum, kAny, binary, -4, 4, 0, extremum<true>,                                      \
    "The larger of a and b; NaN if either is NaN. Complex values are ordered by (real, imag).",    \
    choice_diff(a > b, k, g))                                                                      \
  X(Minimum, minimum, kAny, binary, -4, 4, 0, extremum<false>,                                     \
    "The smaller of a and b; NaN if either is NaN. Complex values are ordered by (real, imag).",   \
    choice_diff(a < b, k, g))                                                                      \
  X(LogAddExp, logaddexp, kInexact, binary_inexact, -4, 4, 4, logaddexp_lane,                      \
    "log(exp(a) + exp(b)) without overflow.", logaddexp_diff(c, y, k, g))                          \
  X(ArcTan2, arctan2, kFloats, binary_inexact, 0.1, 4, 4, binary_code<Code::atan2>,                \
    "The angle of the point (b, a), in radians.", arctan2_diff(c, y, k, g))                        \
  X(ExpBelow, exp_below, kFloats, binary, -4, 4, 6, exp_below_lane,                                \
    "e to the power a - b as it counts beside 1, for a <= b; to the power a if b is infinite or "  \
    "NaN.",                                                                                        \
    k == 0 ? g * y : -(g * y))

#define X(enumerator, row_name, set, build, low_value, high_value, ulp, lane, text, partial)       \
  constinit const OpRow rows::row_name = {                                                         \
      .id = OpId::enumerator,                                                                      \
      .name = #row_name,                                                                           \
      .accepts = set,                                                                              \
      .dtype = same_dtype,                                                                         \
      .shape = same_shape,                                                                         \
      .derivative = Elementwise{[]([[maybe_unused]] auto& c, [[maybe_unused]] auto& y,             \
                                   [[maybe_unused]] int k, auto& g) -> array {                     \
        [[maybe_unused]] const array& a = c.inputs[0];                                             \
        [[maybe_unused]] const array& b = c.inputs[1];                                             \
        return partial;                                                                            \
      }},                                                                                          \
      .vmap = BroadcastVmap{},                                                                     \
      .lowering = MapLowering{lane},                                                               \
      .effect = Effect::none,                                                                      \
      .domain = Domain{low_value, high_value},                                                     \
      .max_ulp = ulp,                                                                              \
      .doc = text,                                                                                 \
  };                                                                                               \
  array row_name(const array& a, const array& b, const S& s) {                                     \
    return build(rows::row_name, a, b, s);                                                         \
  }
CERMET_BINARY_ROWS(X)
#undef X

constinit const OpRow rows::floor_divide = {
    .id = OpId::FloorDivide,
    .name = "floor_divide",
    .accepts = kReals,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Zero{},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{floor_divide_lane},
    .effect = Effect::none,
    .domain = Domain{0.1, 4},
    .max_ulp = 0,
    .doc = "a / b rounded down.",
};

array floor_divide(const array& a, const array& b, const S& s) {
  return binary(rows::floor_divide, a, b, s);
}

}  // namespace cermet
