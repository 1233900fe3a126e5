// SPDX-License-Identifier: MIT
// Arithmetic of one argument: what is exact or correctly rounded, for every dtype that has it.
#include <numbers>

#include "ops/complex_math.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;

namespace {

ComplexMath complex_math(LowerContext& cx, const Lane& a) {
  return {cx.builder(), cx.builder().dtype(a.re)};
}

// Rounding leaves integers and bools as they are and works on both parts of a complex value.
template <Code code>
Lane rounding(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  ir::Builder& b = cx.builder();
  if (!is_floating(b.dtype(a[0].re))) return a[0];
  return {b.unary(code, a[0].re), a[0].im == ir::kNone ? ir::kNone : b.unary(code, a[0].im)};
}

Lane scaled(LowerContext& cx, const Lane& a, double factor) {
  ir::Builder& b = cx.builder();
  const ir::ExprId by = b.constant(b.dtype(a.re), factor);
  return {b.mul(a.re, by), a.im == ir::kNone ? ir::kNone : b.mul(a.im, by)};
}

Lane sign_lane(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  ir::Builder& b = cx.builder();
  if (a[0].im != ir::kNone) return complex_math(cx, a[0]).sign(a[0]);
  const Dtype dtype = b.dtype(a[0].re);
  if (dtype == Dtype::boolean) return a[0];
  const ir::ExprId zero = b.constant(dtype, 0);
  const ir::ExprId one = b.constant(dtype, 1);
  const ir::ExprId positive = b.select(b.compare(Code::lt, zero, a[0].re), one, zero);
  if (!is_signed(dtype)) return {positive};
  return {b.select(b.compare(Code::lt, a[0].re, zero), b.constant(dtype, -1), positive)};
}

Lane abs_lane(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  ir::Builder& b = cx.builder();
  if (a[0].im != ir::kNone) return {complex_math(cx, a[0]).abs(a[0])};
  return is_signed(b.dtype(a[0].re)) ? Lane{b.unary(Code::abs, a[0].re)} : a[0];
}

Lane square_lane(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  ir::Builder& b = cx.builder();
  if (a[0].im != ir::kNone) return complex_math(cx, a[0]).mul(a[0], a[0]);
  return b.dtype(a[0].re) == Dtype::boolean ? a[0] : Lane{b.mul(a[0].re, a[0].re)};
}

Lane reciprocal_lane(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = b.dtype(a[0].re);
  const Lane one{b.constant(dtype, 1), b.constant(dtype, 0)};
  if (a[0].im != ir::kNone) return complex_math(cx, a[0]).div(one, a[0]);
  return {b.div(one.re, a[0].re)};
}

Lane rsqrt_lane(LowerContext& cx, const NodeView& n, std::span<const Lane> a) {
  if (a[0].im == ir::kNone) return unary_code<Code::rsqrt>(cx, n, a);
  const Lane root = complex_math(cx, a[0]).sqrt(a[0]);
  return reciprocal_lane(cx, n, {&root, 1});
}

Lane negative_lane(LowerContext& cx, const NodeView& n, std::span<const Lane> a) {
  return a[0].im == ir::kNone ? unary_code<Code::neg>(cx, n, a) : complex_math(cx, a[0]).neg(a[0]);
}

Lane sqrt_lane(LowerContext& cx, const NodeView& n, std::span<const Lane> a) {
  return a[0].im == ir::kNone ? unary_code<Code::sqrt>(cx, n, a)
                              : complex_math(cx, a[0]).sqrt(a[0]);
}

// The part of t across z, by which alone sign z turns, over |z|. The map is its own adjoint.
array sign_diff(const OpCall& c, const array& y, int, const array& t) {
  const array size = cermet::abs(c.inputs[0]), re = real(y), im = imag(y);
  const array turn =
      (re * imag(t) - im * real(t)) / cermet::select(size == 0, full_like(size, 1), size);
  return complex_of(-im * turn, re * turn);
}

}  // namespace

constinit const OpRow rows::abs = {
    .id = OpId::Abs,
    .name = "abs",
    .accepts = kAny,
    .dtype = real_dtype,
    .shape = same_shape,
    .derivative =
        Opaque{.jvp =
                   [](auto& c, auto&, int, auto& t) {
                     const array s = cermet::sign(c.inputs[0]);
                     return is_complex(s.dtype()) ? cermet::real(cermet::conjugate(s) * t) : s * t;
                   },
               .vjp = [](auto& c, auto&, int, auto& g) { return cermet::sign(c.inputs[0]) * g; }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{abs_lane},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc =
        "The absolute value; its derivative at 0 is 0. The most negative integer stays as it is.",
};

constinit const OpRow rows::negative = {
    .id = OpId::Negative,
    .name = "negative",
    .accepts = kIntegers | kInexact,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Linear{[](auto&, int, auto& g) { return -g; }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{negative_lane},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The negative; unsigned integers wrap.",
};

constinit const OpRow rows::sign = {
    .id = OpId::Sign,
    .name = "sign",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Opaque{.jvp = sign_diff,
                         .vjp = sign_diff,
                         .is_zero = [](auto& c) { return !is_complex(c.inputs[0].dtype()); }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{sign_lane},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "-1, 0 or 1 by the sign, 0 for NaN; x / |x| for complex values.",
};

constinit const OpRow rows::square = {
    .id = OpId::Square,
    .name = "square",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Elementwise{[](auto& c, auto&, int, auto& g) { return g * (c.inputs[0] * 2); }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{square_lane},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "x * x.",
};

constinit const OpRow rows::sqrt = {
    .id = OpId::Sqrt,
    .name = "sqrt",
    .accepts = kInexact,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Elementwise{[](auto&, auto& y, int, auto& g) { return g * 0.5 / y; }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{sqrt_lane},
    .effect = Effect::none,
    .domain = Domain{0.01, 10},
    .max_ulp = 0,
    .doc = "The square root, correctly rounded; NaN for negative real arguments.",
};

constinit const OpRow rows::rsqrt = {
    .id = OpId::Rsqrt,
    .name = "rsqrt",
    .accepts = kInexact,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Elementwise{[](auto&, auto& y, int, auto& g) { return g * -0.5 * (y * y * y); }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{rsqrt_lane},
    .effect = Effect::none,
    .domain = Domain{0.01, 10},
    .max_ulp = 1,
    .doc = "1 / sqrt(x).",
};

constinit const OpRow rows::reciprocal = {
    .id = OpId::Reciprocal,
    .name = "reciprocal",
    .accepts = kInexact,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Elementwise{[](auto&, auto& y, int, auto& g) { return -g * (y * y); }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{reciprocal_lane},
    .effect = Effect::none,
    .domain = Domain{0.1, 4},
    .max_ulp = 0,
    .doc = "1 / x.",
};

#define CERMET_ROUNDING_ROW(enumerator, row_name, set, text)  \
  constinit const OpRow rows::row_name = {                    \
      .id = OpId::enumerator,                                 \
      .name = #row_name,                                      \
      .accepts = set,                                         \
      .dtype = same_dtype,                                    \
      .shape = same_shape,                                    \
      .derivative = Zero{},                                   \
      .vmap = BroadcastVmap{},                                \
      .lowering = MapLowering{rounding<Code::row_name>},      \
      .effect = Effect::none,                                 \
      .domain = Domain{},                                     \
      .max_ulp = 0,                                           \
      .doc = text,                                            \
  };
CERMET_ROUNDING_ROW(Floor, floor, kReals, "The largest integer not above x.")
CERMET_ROUNDING_ROW(Ceil, ceil, kReals, "The smallest integer not below x.")
CERMET_ROUNDING_ROW(Trunc, trunc, kReals, "The integer part of x.")
CERMET_ROUNDING_ROW(Rint, rint, kAny, "The nearest integer, of two equally near the even one.")
#undef CERMET_ROUNDING_ROW

#define CERMET_ANGLE_ROW(enumerator, row_name, factor, text)                          \
  constinit const OpRow rows::row_name = {                                            \
      .id = OpId::enumerator,                                                         \
      .name = #row_name,                                                              \
      .accepts = kInexact,                                                            \
      .dtype = same_dtype,                                                            \
      .shape = same_shape,                                                            \
      .derivative = Linear{[](auto&, int, auto& g) { return cermet::row_name(g); }},  \
      .vmap = BroadcastVmap{},                                                        \
      .lowering = MapLowering{[](auto& cx, auto&, auto a) { return scaled(cx, a[0], factor); }}, \
      .effect = Effect::none,                                                         \
      .domain = Domain{},                                                             \
      .max_ulp = 1,                                                                   \
      .doc = text,                                                                    \
  };
CERMET_ANGLE_ROW(Degrees, degrees, 180 / std::numbers::pi, "The angle x, in radians, in degrees.")
CERMET_ANGLE_ROW(Radians, radians, std::numbers::pi / 180, "The angle x, in degrees, in radians.")
#undef CERMET_ANGLE_ROW

#define CERMET_UNARY(name) \
  array name(const array& a, const S& s) { return unary(rows::name, a, s); }
#define CERMET_UNARY_INEXACT(name) \
  array name(const array& a, const S& s) { return unary_inexact(rows::name, a, s); }
CERMET_UNARY(abs)
CERMET_UNARY(negative)
CERMET_UNARY(sign)
CERMET_UNARY(square)
CERMET_UNARY(floor)
CERMET_UNARY(ceil)
CERMET_UNARY(trunc)
CERMET_UNARY(rint)
CERMET_UNARY_INEXACT(sqrt)
CERMET_UNARY_INEXACT(rsqrt)
CERMET_UNARY_INEXACT(reciprocal)
CERMET_UNARY_INEXACT(degrees)
CERMET_UNARY_INEXACT(radians)
#undef CERMET_UNARY
#undef CERMET_UNARY_INEXACT

}  // namespace cermet
