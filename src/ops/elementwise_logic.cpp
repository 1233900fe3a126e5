// SPDX-License-Identifier: MIT
// Comparisons, logical and bitwise ops, and predicates of floating values. Complex values compare
// by (real, imag).
#include <limits>

#include "ops/complex_math.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;
using ir::ExprId;

namespace {

using Lanes = std::span<const Lane>;

ExprId equal_expr(ir::Builder& b, const Lane& x, const Lane& y) {
  const ExprId re = b.compare(Code::eq, x.re, y.re);
  return x.im == ir::kNone ? re : b.logical_and(re, b.compare(Code::eq, x.im, y.im));
}

// x < y, or x <= y; false where either is NaN.
template <Code code>
Lane ordered(ir::Builder& b, const Lane& x, const Lane& y) {
  if (x.im != ir::kNone) {
    const ExprId less = ComplexMath(b, b.dtype(x.re)).less(x, y);
    return {code == Code::lt ? less : b.logical_or(less, equal_expr(b, x, y))};
  }
  if (b.dtype(x.re) != Dtype::boolean) return {b.compare(code, x.re, y.re)};
  const ExprId not_x = b.logical_not(x.re);
  return {code == Code::lt ? b.logical_and(not_x, y.re) : b.logical_or(not_x, y.re)};
}

template <Code code>
Lane logical(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  return {b.op(code, Dtype::boolean, {truth(b, a[0]), truth(b, a[1])})};
}

// Whether the predicate holds for the value, or for either part of a complex one.
template <ExprId (*predicate)(ir::Builder&, ExprId)>
Lane any_part(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  if (!is_floating(b.dtype(a[0].re))) return {b.constant(Dtype::boolean, 0)};
  const ExprId re = predicate(b, a[0].re);
  return {a[0].im == ir::kNone ? re : b.logical_or(re, predicate(b, a[0].im))};
}

template <bool positive>
Lane signed_infinity(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = b.dtype(a[0].re);
  if (!is_floating(dtype)) return {b.constant(Dtype::boolean, 0)};
  const double infinity = std::numeric_limits<double>::infinity();
  return {b.compare(Code::eq, a[0].re, b.constant(dtype, positive ? infinity : -infinity))};
}

ExprId is_nan_expr(ir::Builder& b, ExprId x) { return b.compare(Code::ne, x, x); }

ExprId is_infinite_expr(ir::Builder& b, ExprId x) {
  return b.compare(Code::eq, b.unary(Code::abs, x),
                   b.constant(b.dtype(x), std::numeric_limits<double>::infinity()));
}

ExprId is_not_finite_expr(ir::Builder& b, ExprId x) {
  const ExprId infinity = b.constant(b.dtype(x), std::numeric_limits<double>::infinity());
  return b.logical_not(b.compare(Code::lt, b.unary(Code::abs, x), infinity));
}

Lane finite_lane(LowerContext& cx, const NodeView& n, Lanes a) {
  return {cx.builder().logical_not(any_part<is_not_finite_expr>(cx, n, a).re)};
}

Dtype unsigned_of(Dtype integer) {
  const size_t bytes = size_of(integer);
  return bytes == 1   ? Dtype::uint8
         : bytes == 2 ? Dtype::uint16
         : bytes == 4 ? Dtype::uint32
                      : Dtype::uint64;
}

// A negative count is a large one without its sign; a shift by the width or more leaves no bit, or the
// sign. The IR's count is taken modulo the width.
template <Code code>
Lane shifted(LowerContext& cx, const NodeView&, Lanes a) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = b.dtype(a[0].re);
  const Dtype bits = unsigned_of(dtype);
  const ExprId last = b.integer(bits, 8 * static_cast<int64_t>(size_of(dtype)) - 1);
  const ExprId count = b.bitcast(a[1].re, bits);
  const ExprId near = b.bitcast(b.min(count, last), dtype);
  const ExprId moved = b.op(code, dtype, {a[0].re, near});
  if (code == Code::shr && is_signed(dtype)) return {moved};
  return {b.select(b.compare(Code::le, count, last), moved, b.integer(dtype, 0))};
}

array shift(const OpRow& row, const array& a, const array& b, const S& s) {
  const Dtype dtype = promote(a.dtype(), b.dtype());
  if (dtype != Dtype::boolean) return binary(row, a, b, s);
  return binary(row, astype(a, Dtype::uint8, s), astype(b, Dtype::uint8, s), s);
}

}  // namespace

#define CERMET_LOGIC_ROW(enumerator, row_name, set, result, lane, text) \
  constinit const OpRow rows::row_name = {                              \
      .id = OpId::enumerator,                                           \
      .name = #row_name,                                                \
      .accepts = set,                                                   \
      .dtype = result,                                                  \
      .shape = same_shape,                                              \
      .derivative = Zero{},                                             \
      .vmap = BroadcastVmap{},                                          \
      .lowering = MapLowering{lane},                                    \
      .effect = Effect::none,                                           \
      .domain = Domain{},                                               \
      .max_ulp = 0,                                                     \
      .doc = text,                                                      \
  };

// X(enumerator, name, accepts, result dtype, builder, lowering, doc)
#define CERMET_LOGIC_BINARY_ROWS(X)                                                                \
  X(Equal, equal, kAny, boolean_dtype, binary,                                                     \
    [](auto& cx, auto&, auto a) -> Lane { return {equal_expr(cx.builder(), a[0], a[1])}; },        \
    "a == b; false for NaN.")                                                                      \
  X(NotEqual, not_equal, kAny, boolean_dtype, binary,                                              \
    [](auto& cx, auto&, auto a) -> Lane {                                                          \
      return {cx.builder().logical_not(equal_expr(cx.builder(), a[0], a[1]))};                     \
    },                                                                                             \
    "a != b; true for NaN.")                                                                       \
  X(Less, less, kAny, boolean_dtype, binary,                                                       \
    [](auto& cx, auto&, auto a) { return ordered<Code::lt>(cx.builder(), a[0], a[1]); }, "a < b.") \
  X(LessEqual, less_equal, kAny, boolean_dtype, binary,                                            \
    [](auto& cx, auto&, auto a) { return ordered<Code::le>(cx.builder(), a[0], a[1]); },           \
    "a <= b.")                                                                                     \
  X(Greater, greater, kAny, boolean_dtype, binary,                                                 \
    [](auto& cx, auto&, auto a) { return ordered<Code::lt>(cx.builder(), a[1], a[0]); }, "a > b.") \
  X(GreaterEqual, greater_equal, kAny, boolean_dtype, binary,                                      \
    [](auto& cx, auto&, auto a) { return ordered<Code::le>(cx.builder(), a[1], a[0]); },           \
    "a >= b.")                                                                                     \
  X(LogicalAnd, logical_and, kAny, boolean_dtype, binary, logical<Code::bit_and>,                  \
    "Whether both are not zero.")                                                                  \
  X(LogicalOr, logical_or, kAny, boolean_dtype, binary, logical<Code::bit_or>,                     \
    "Whether either is not zero.")                                                                 \
  X(LogicalXor, logical_xor, kAny, boolean_dtype, binary, logical<Code::bit_xor>,                  \
    "Whether one and only one is not zero.")                                                       \
  X(BitwiseAnd, bitwise_and, kBool | kIntegers, same_dtype, binary, binary_code<Code::bit_and>,    \
    "The bits set in both.")                                                                       \
  X(BitwiseOr, bitwise_or, kBool | kIntegers, same_dtype, binary, binary_code<Code::bit_or>,       \
    "The bits set in either.")                                                                     \
  X(BitwiseXor, bitwise_xor, kBool | kIntegers, same_dtype, binary, binary_code<Code::bit_xor>,    \
    "The bits set in one of both.")                                                                \
  X(LeftShift, left_shift, kIntegers, same_dtype, shift, shifted<Code::shl>,                       \
    "a moved left by b bits; 0 if b is negative or at least the width. Bools shift as uint8.")     \
  X(RightShift, right_shift, kIntegers, same_dtype, shift, shifted<Code::shr>,                     \
    "a moved right by b bits, keeping its sign, which is all that is left if b is negative or at " \
    "least the width. Bools shift as uint8.")

#define X(enumerator, row_name, set, result, build, lane, text)               \
  CERMET_LOGIC_ROW(enumerator, row_name, set, result, lane, text)             \
  array row_name(const array& a, const array& b, const S& s) {                \
    return build(rows::row_name, a, b, s);                                    \
  }
CERMET_LOGIC_BINARY_ROWS(X)
#undef X

// X(enumerator, name, accepts, result dtype, lowering, doc)
#define CERMET_LOGIC_UNARY_ROWS(X)                                                                 \
  X(LogicalNot, logical_not, kAny, boolean_dtype,                                                  \
    [](auto& cx, auto&, auto a) -> Lane {                                                          \
      return {cx.builder().logical_not(truth(cx.builder(), a[0]))};                                \
    },                                                                                             \
    "Whether a is zero.")                                                                          \
  X(BitwiseInvert, bitwise_invert, kBool | kIntegers, same_dtype, unary_code<Code::bit_not>,       \
    "Every bit turned over; on bools, not.")                                                       \
  X(IsNan, isnan, kAny, boolean_dtype, any_part<is_nan_expr>,                                      \
    "Whether a, or a part of it, is NaN.")                                                         \
  X(IsInf, isinf, kAny, boolean_dtype, any_part<is_infinite_expr>,                                 \
    "Whether a, or a part of it, is infinite.")                                                    \
  X(IsFinite, isfinite, kAny, boolean_dtype, finite_lane, "Whether a is neither NaN nor infinite.") \
  X(IsPosInf, isposinf, kAny, boolean_dtype, signed_infinity<true>,                                \
    "Whether the real part is +inf.")                                                              \
  X(IsNegInf, isneginf, kAny, boolean_dtype, signed_infinity<false>,                               \
    "Whether the real part is -inf.")

#define X(enumerator, row_name, set, result, lane, text)          \
  CERMET_LOGIC_ROW(enumerator, row_name, set, result, lane, text) \
  array row_name(const array& a, const S& s) { return unary(rows::row_name, a, s); }
CERMET_LOGIC_UNARY_ROWS(X)
#undef X
#undef CERMET_LOGIC_ROW

}  // namespace cermet
