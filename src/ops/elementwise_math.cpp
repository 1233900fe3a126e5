// SPDX-License-Identifier: MIT
// Transcendental functions of one argument. Each row states the accuracy of its math code in
// float32; complex values are composed of real codes (complex_math.h).
#include <numbers>

#include "ops/complex_math.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;

namespace {

template <Code code, Lane (ComplexMath::*method)(Lane)>
Lane math_lane(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  ir::Builder& b = cx.builder();
  if (a[0].im == ir::kNone) return {b.unary(code, a[0].re)};
  return (ComplexMath(b, b.dtype(a[0].re)).*method)(a[0]);
}

// log in another base: `scale` = 1 / ln(base).
template <Code code>
Lane log_lane(LowerContext& cx, const NodeView&, std::span<const Lane> a, double scale) {
  ir::Builder& b = cx.builder();
  if (a[0].im == ir::kNone) return {b.unary(code, a[0].re)};
  ComplexMath math(b, b.dtype(a[0].re));
  return math.scale(math.log(a[0]), math.constant(scale));
}

constexpr double kInvLn2 = std::numbers::log2e;
constexpr double kInvLn10 = std::numbers::log10e;

}  // namespace

// X(enumerator, name, accepts, domain low, domain high, max ulp, lowering, doc, derivative with
// respect to x, given x and the result y)
#define CERMET_MATH_ROWS(X)                                                                        \
  X(Exp, exp, kInexact, -10, 10, 1, (math_lane<Code::exp, &ComplexMath::exp>),                     \
    "e to the power x.", y)                                                                        \
  X(ExpNonpositive, exp_nonpositive, kFloats, -10, 0, 6, unary_code<Code::exp_nonpositive>,        \
    "e to the power x for x <= 0 as it counts beside 1: 0 below 2^-99.", y)                        \
  X(ExpNonpositiveBfloat16, exp_nonpositive_bfloat16, kFloats, -10, 0, 2048,                       \
    unary_code<Code::exp_nonpositive_bfloat16>,                                                    \
    "The same, for what is rounded to bfloat16: float32 with a relative error up to 2^-13.", y)    \
  X(Exp2, exp2, kFloats, -10, 10, 1, unary_code<Code::exp2>, "2 to the power x.",                  \
    y * std::numbers::ln2)                                                                         \
  X(Expm1, expm1, kInexact, -5, 5, 2, (math_lane<Code::expm1, &ComplexMath::expm1>),               \
    "exp(x) - 1, accurate near 0.", y + 1)                                                         \
  X(Log, log, kInexact, 0.01, 10, 2, (math_lane<Code::log, &ComplexMath::log>),                    \
    "The natural logarithm.", cermet::reciprocal(x))                                               \
  X(Log2, log2, kInexact, 0.01, 10, 2,                                                             \
    [](auto& cx, auto& n, auto a) { return log_lane<Code::log2>(cx, n, a, kInvLn2); },             \
    "The logarithm to base 2.", kInvLn2 / x)                                                       \
  X(Log10, log10, kInexact, 0.01, 10, 2,                                                           \
    [](auto& cx, auto& n, auto a) { return log_lane<Code::log10>(cx, n, a, kInvLn10); },           \
    "The logarithm to base 10.", kInvLn10 / x)                                                     \
  X(Log1p, log1p, kInexact, -0.9, 10, 2, (math_lane<Code::log1p, &ComplexMath::log1p>),            \
    "log(1 + x), accurate near 0.", cermet::reciprocal(x + 1))                                     \
  X(Sin, sin, kInexact, -10, 10, 2, (math_lane<Code::sin, &ComplexMath::sin>),                     \
    "The sine of x in radians.", cermet::cos(x))                                                   \
  X(Cos, cos, kInexact, -10, 10, 2, (math_lane<Code::cos, &ComplexMath::cos>),                     \
    "The cosine of x in radians.", -cermet::sin(x))                                                \
  X(Tan, tan, kInexact, -1.4, 1.4, 4, (math_lane<Code::tan, &ComplexMath::tan>),                   \
    "The tangent of x in radians.", cermet::square(y) + 1)                                         \
  X(ArcSin, arcsin, kInexact, -0.95, 0.95, 2, (math_lane<Code::asin, &ComplexMath::asin>),         \
    "The inverse sine, in radians.", cermet::rsqrt(1 - cermet::square(x)))                         \
  X(ArcCos, arccos, kInexact, -0.95, 0.95, 2, (math_lane<Code::acos, &ComplexMath::acos>),         \
    "The inverse cosine, in radians.", -cermet::rsqrt(1 - cermet::square(x)))                      \
  X(ArcTan, arctan, kInexact, -4, 4, 2, (math_lane<Code::atan, &ComplexMath::atan>),               \
    "The inverse tangent, in radians.", cermet::reciprocal(cermet::square(x) + 1))                 \
  X(Sinh, sinh, kInexact, -5, 5, 2, (math_lane<Code::sinh, &ComplexMath::sinh>),                   \
    "The hyperbolic sine.", cermet::cosh(x))                                                       \
  X(Cosh, cosh, kInexact, -5, 5, 2, (math_lane<Code::cosh, &ComplexMath::cosh>),                   \
    "The hyperbolic cosine.", cermet::sinh(x))                                                     \
  X(Tanh, tanh, kInexact, -5, 5, 5, (math_lane<Code::tanh, &ComplexMath::tanh>),                   \
    "The hyperbolic tangent.", 1 - cermet::square(y))                                              \
  X(ArcSinh, arcsinh, kInexact, -4, 4, 2, (math_lane<Code::asinh, &ComplexMath::asinh>),           \
    "The inverse hyperbolic sine.", cermet::rsqrt(cermet::square(x) + 1))                          \
  X(ArcCosh, arccosh, kInexact, 1.05, 10, 2, (math_lane<Code::acosh, &ComplexMath::acosh>),        \
    "The inverse hyperbolic cosine.", cermet::rsqrt(x - 1) * cermet::rsqrt(x + 1))                 \
  X(ArcTanh, arctanh, kInexact, -0.95, 0.95, 2, (math_lane<Code::atanh, &ComplexMath::atanh>),     \
    "The inverse hyperbolic tangent.", cermet::reciprocal(1 - cermet::square(x)))                  \
  X(Erf, erf, kFloats, -4, 4, 2, unary_code<Code::erf>, "The error function.",                     \
    cermet::exp(-cermet::square(x)) * (2 * std::numbers::inv_sqrtpi))                              \
  X(ErfInv, erfinv, kFloats, -0.95, 0.95, 4, unary_code<Code::erfinv>,                             \
    "The inverse of the error function.",                                                          \
    cermet::exp(cermet::square(y)) * (0.5 / std::numbers::inv_sqrtpi))                             \
  X(Sigmoid, sigmoid, kFloats, -10, 10, 2, unary_code<Code::sigmoid>,                              \
    "The logistic function 1 / (1 + exp(-x)).", y * (1 - y))

#define X(enumerator, row_name, set, low_value, high_value, ulp, lane, text, partial)              \
  constinit const OpRow rows::row_name = {                                                         \
      .id = OpId::enumerator,                                                                      \
      .name = #row_name,                                                                           \
      .accepts = set,                                                                              \
      .dtype = same_dtype,                                                                         \
      .shape = same_shape,                                                                         \
      .derivative = Elementwise{[](auto& c, [[maybe_unused]] auto& y, int, auto& g) -> array {     \
        [[maybe_unused]] const array& x = c.inputs[0];                                             \
        return g * (partial);                                                                      \
      }},                                                                                          \
      .vmap = BroadcastVmap{},                                                                     \
      .lowering = MapLowering{lane},                                                               \
      .effect = Effect::none,                                                                      \
      .domain = Domain{low_value, high_value},                                                     \
      .max_ulp = ulp,                                                                              \
      .doc = text,                                                                                 \
  };                                                                                               \
  array row_name(const array& a, const S& s) { return unary_inexact(rows::row_name, a, s); }
CERMET_MATH_ROWS(X)
#undef X

}  // namespace cermet
