// SPDX-License-Identifier: MIT
#include "kernel/math.h"

#include <limits>

#include "base/error.h"
#include "kernel/math_internal.h"

namespace cermet::ir {

namespace math {

namespace {

constexpr Format kSingle = {Dtype::float32, Dtype::uint32, 23,          127,        0x1.8p23,
                            0x80000000u,    0x3f800000u,   0x00800000u, 0x7f800000u};
constexpr Format kDouble = {Dtype::float64,
                            Dtype::uint64,
                            52,
                            1023,
                            0x1.8p52,
                            0x8000000000000000u,
                            0x3ff0000000000000u,
                            0x0010000000000000u,
                            0x7ff0000000000000u};

}  // namespace

const Format& format_of(Dtype dtype) {
  CERMET_INTERNAL_CHECK(dtype == Dtype::float32 || dtype == Dtype::float64,
                        "a math expansion of dtype {}", name_of(dtype));
  return dtype == Dtype::float32 ? kSingle : kDouble;
}

Val copy_sign(Val magnitude, Val sign) {
  return from_bits(bits_of(magnitude) | sign_of(sign), magnitude.dtype());
}

Val horner(Val x, Val top, Coefficients c) {
  for (size_t i = c.size(); i-- > 0;) top = fma(top, x, c[i]);
  return top;
}

Val horner(Val x, Coefficients c) {
  const Val start = fma(lift(x, c.back()), x, c[c.size() - 2]);
  return horner(x, start, c.first(c.size() - 2));
}

Val horner_by_parity(Val x, Coefficients c) {
  const Val square = x * x;
  const auto part = [&](size_t first) {
    size_t i = c.size() - 1 - (c.size() - 1 - first) % 2;
    Val sum = lift(x, c[i]);
    for (; i > first; i -= 2) sum = fma(sum, square, c[i - 2]);
    return sum;
  };
  return fma(fma(part(2), x, part(1)), x, c[0]);
}

Rounded round_product(Val x, double factor) {
  const Format& format = format_of(x);
  const Val shifted = fma(x, factor, format.magic);
  return {shifted - format.magic, bits_of(shifted)};
}

Val power_of_two(Val bits, const Format& format, int offset) {
  const uint64_t bias = format.one + (static_cast<uint64_t>(offset) << format.mantissa);
  return from_bits((bits << format.mantissa) + bias, format.real);
}

// sqrt(1/x) rounds better than 1/sqrt(x): the square root halves the division's error.
Val rsqrt(Val x) {
  const Format& format = format_of(x);
  const uint64_t top = static_cast<uint64_t>(2 * format.bias - 1) << format.mantissa;
  const Val unusual = lift(bits_of(x), top - format.least) <= bits_of(x) - format.least;
  const double up = pick(x, 0x1p24, 0x1p54), half = pick(x, 0x1p12, 0x1p27);
  const Val small = abs(x) < 1;
  const Val scaled = x * select(small, lift(x, up), lift(x, 1 / up));
  const Val slow = sqrt(1 / scaled) * select(small, lift(x, half), lift(x, 1 / half));
  return rare(unusual, sqrt(1 / x), select(x == 0, 1 / x, select(x < 0, sqrt(x), slow)));
}

}  // namespace math

namespace {

// What an expansion is and the largest error it may have, in float32 and in float64.
struct Row {
  Code code;
  math::Val (*unary)(math::Val);
  math::Val (*binary)(math::Val, math::Val);
  double single, wide;
};

constexpr Row kRows[] = {
    {Code::exp, math::exp, nullptr, 1, 4},
    {Code::exp2, math::exp2, nullptr, 1, 4},
    {Code::expm1, math::expm1, nullptr, 2, 4},
    {Code::log, math::log, nullptr, 2, 4},
    {Code::log2, math::log2, nullptr, 2, 4},
    {Code::log10, math::log10, nullptr, 2, 4},
    {Code::log1p, math::log1p, nullptr, 2, 4},
    {Code::sin, math::sin, nullptr, 2, 4},
    {Code::cos, math::cos, nullptr, 2, 4},
    {Code::tan, math::tan, nullptr, 4, 4},
    {Code::asin, math::asin, nullptr, 2, 4},
    {Code::acos, math::acos, nullptr, 2, 4},
    {Code::atan, math::atan, nullptr, 2, 4},
    {Code::atan2, nullptr, math::atan2, 4, 4},
    {Code::sinh, math::sinh, nullptr, 2, 4},
    {Code::cosh, math::cosh, nullptr, 2, 4},
    {Code::tanh, math::tanh, nullptr, 5, 4},
    {Code::asinh, math::asinh, nullptr, 2, 4},
    {Code::acosh, math::acosh, nullptr, 2, 4},
    {Code::atanh, math::atanh, nullptr, 2, 4},
    {Code::erf, math::erf, nullptr, 2, 4},
    {Code::erfinv, math::erfinv, nullptr, 4, 4},
    {Code::sigmoid, math::sigmoid, nullptr, 2, 4},
    {Code::pow, nullptr, math::pow, 4, 4},
    {Code::rsqrt, math::rsqrt, nullptr, 1, 4},
    {Code::exp_nonpositive, math::exp_nonpositive, nullptr, 6, 24},
    {Code::exp_nonpositive_bfloat16, math::exp_nonpositive_bfloat16, nullptr, 2048, 24},
};

const Row& row_of(Code code) {
  for (const Row& row : kRows)
    if (row.code == code) return row;
  throw_internal(__FILE__, __LINE__, fmt::format("{} has no expansion", name_of(code)));
}

}  // namespace

ExprId expand_math(Builder& builder, Code code, std::span<const ExprId> operands) {
  const Row& row = row_of(code);
  const math::Val x{&builder, operands[0]};
  return row.unary ? row.unary(x).id : row.binary(x, {&builder, operands[1]}).id;
}

ExprId expand_exp_at_most_one(Builder& builder, ExprId x, bool scales) {
  const math::Val arg{&builder, x};
  return (scales ? math::scaled_exp_at_most_one(arg) : math::exp_at_most_one(arg)).id;
}

ExprId expand_scaled_exp(Builder& builder, ExprId x) { return math::scaled_exp({&builder, x}).id; }

ExprId expand_rem(Builder& builder, ExprId a, ExprId b) {
  using namespace math;
  // Rounding may take the quotient up to the next whole number, not down past one. What the fma gives
  // is a multiple of what x and y are multiples of, and no larger than y: exact, as is the sum.
  const Val x{&builder, a}, y{&builder, b};
  const Val size = abs(y), quotient = abs(x) / size;
  const Val rest = fma(-apply(Code::trunc, quotient), size, abs(x));
  const Val result = copy_sign(select(rest < 0, rest + size, rest), x);
  const Val usual =
      (quotient < pick(x, 0x1p22, 0x1p51)) & (size < std::numeric_limits<double>::infinity());
  return rare(~usual, result, {&builder, builder.rem(a, b)}).id;
}

double max_ulp(Code code, Dtype dtype) {
  if (code == Code::threefry) return 0;
  if (!is_math(code)) return 0.5;
  const Row& row = row_of(code);
  return dtype == Dtype::float64 ? row.wide : row.single;
}

std::array<ExprId, 2> expand_threefry(Builder& builder, std::span<const ExprId> operands) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  constexpr uint32_t kParity = 0x1bd11bda;
  const math::Val k0{&builder, operands[0]}, k1{&builder, operands[1]};
  const std::array<math::Val, 3> keys = {k0, k1, (k0 ^ k1) ^ kParity};
  math::Val x0 = math::Val{&builder, operands[2]} + k0;
  math::Val x1 = math::Val{&builder, operands[3]} + k1;
  for (uint32_t group = 0; group < 5; ++group) {
    for (int rotation : kRotations[group % 2]) {
      x0 = x0 + x1;
      x1 = rotl(x1, rotation) ^ x0;
    }
    x0 = x0 + keys[(group + 1) % 3];
    x1 = x1 + (keys[(group + 2) % 3] + (group + 1));
  }
  return {x0.id, x1.id};
}

}  // namespace cermet::ir
