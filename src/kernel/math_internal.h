// SPDX-License-Identifier: MIT
// How expansions are written: Val is an expression with operators, numbers beside it become constants
// of its dtype. One function expands a code for float32 and float64; what differs are tables of
// coefficients and the facts in Format. Invariant: only core codes come out, and every step is exact
// IEEE, so an expansion gives the same bits on every target.
#pragma once

#include <array>
#include <concepts>
#include <span>

#include "kernel/builder.h"

namespace cermet::ir::math {

struct Val {
  Builder* builder;
  ExprId id;
  Dtype dtype() const { return builder->dtype(id); }
};

template <typename T>
concept Number = std::integral<T> || std::floating_point<T>;

// The number as a constant of like's dtype; a Val as it is.
inline Val lift(Val, Val v) { return v; }
template <Number T>
Val lift(Val like, T v) {
  Builder& b = *like.builder;
  if constexpr (std::integral<T>) {
    if (!is_floating(like.dtype()))
      return {&b, b.constant_bits(like.dtype(), static_cast<uint64_t>(v))};
  }
  return {&b, b.constant(like.dtype(), static_cast<double>(v))};
}

inline Val apply(Code code, Val a, Val b) {
  return {a.builder, a.builder->op(code, a.dtype(), {a.id, b.id})};
}
inline Val apply(Code code, Val a) { return {a.builder, a.builder->op(code, a.dtype(), {a.id})}; }
inline Val compare(Code code, Val a, Val b) {
  return {a.builder, a.builder->compare(code, a.id, b.id)};
}

#define CERMET_MATH_OPERATOR(symbol, combine, code)                                            \
  inline Val operator symbol(Val a, Val b) { return combine(Code::code, a, b); }               \
  template <Number T> Val operator symbol(Val a, T b) { return a symbol lift(a, b); }          \
  template <Number T> Val operator symbol(T a, Val b) { return lift(b, a) symbol b; }
CERMET_MATH_OPERATOR(+, apply, add)
CERMET_MATH_OPERATOR(-, apply, sub)
CERMET_MATH_OPERATOR(*, apply, mul)
CERMET_MATH_OPERATOR(/, apply, div)
CERMET_MATH_OPERATOR(&, apply, bit_and)
CERMET_MATH_OPERATOR(|, apply, bit_or)
CERMET_MATH_OPERATOR(^, apply, bit_xor)
CERMET_MATH_OPERATOR(<<, apply, shl)
CERMET_MATH_OPERATOR(>>, apply, shr)
CERMET_MATH_OPERATOR(<, compare, lt)
CERMET_MATH_OPERATOR(<=, compare, le)
CERMET_MATH_OPERATOR(==, compare, eq)
CERMET_MATH_OPERATOR(!=, compare, ne)
#undef CERMET_MATH_OPERATOR

inline Val operator-(Val a) { return apply(Code::neg, a); }
inline Val operator~(Val a) { return apply(Code::bit_not, a); }
inline Val abs(Val a) { return apply(Code::abs, a); }
inline Val sqrt(Val a) { return apply(Code::sqrt, a); }
inline Val rint(Val a) { return apply(Code::rint, a); }
inline Val rotl(Val a, int n) { return apply(Code::rotl, a, lift(a, n)); }
inline Val scale2(Val a, Val n) { return apply(Code::scale2, a, n); }

// At least one of the three is a Val of the result's dtype; the others may be numbers.
inline Val fma3(Val a, Val b, Val c) { return {a.builder, a.builder->fma(a.id, b.id, c.id)}; }
template <typename B, typename C>
Val fma(Val a, B b, C c) {
  return fma3(a, lift(a, b), lift(a, c));
}

inline Val select(Val cond, Val a, Val b) {
  return {a.builder, a.builder->select(cond.id, a.id, b.id)};
}
template <Number T>
Val select(Val cond, T a, Val b) {
  return select(cond, lift(b, a), b);
}
template <Number T>
Val select(Val cond, Val a, T b) {
  return select(cond, a, lift(a, b));
}

inline Val rare(Val pred, Val fast, Val slow) {
  return {fast.builder, fast.builder->rare(pred.id, fast.id, slow.id)};
}
inline Val cast(Val a, Dtype dtype) { return {a.builder, a.builder->cast(a.id, dtype)}; }
inline Val bitcast(Val a, Dtype dtype) { return {a.builder, a.builder->bitcast(a.id, dtype)}; }

// min(x, limit) and max(x, limit) that keep NaN: one instruction each, unlike Code::min and max.
template <typename T>
Val at_most(Val x, T limit) {
  return select(lift(x, limit) < x, lift(x, limit), x);
}
template <typename T>
Val at_least(Val x, T limit) {
  return select(x < lift(x, limit), lift(x, limit), x);
}

// What the expansions must know of a floating format.
struct Format {
  Dtype real, bits;  // the float and the unsigned integer of its width
  int mantissa;      // stored bits: 23, 52
  int bias;
  double magic;       // 1.5 · 2^mantissa: adding it rounds to an integer, kept in the low bits
  uint64_t sign;      // the sign bit
  uint64_t one;       // the bits of 1.0
  uint64_t least;     // the bits of the least normal number
  uint64_t infinity;  // the bits of inf
};
const Format& format_of(Dtype dtype);
inline const Format& format_of(Val x) { return format_of(x.dtype()); }
inline bool is_double(Val x) { return x.dtype() == Dtype::float64; }

// A table for each format.
using Coefficients = std::span<const double>;
struct Table {
  Coefficients single, wide;
  Coefficients of(Val x) const { return is_double(x) ? wide : single; }
};
template <typename T>
T pick(Val x, T single, T wide) {
  return is_double(x) ? wide : single;
}

inline Val bits_of(Val x) { return bitcast(x, format_of(x).bits); }
inline Val sign_of(Val x) { return bits_of(x) & format_of(x).sign; }
inline Val from_bits(Val bits, Dtype real) { return bitcast(bits, real); }
Val copy_sign(Val magnitude, Val sign);  // magnitude not negative (or already signed as `sign` is)

// Σ c[i] x^i by Horner.
Val horner(Val x, Coefficients c);
// The same with even and odd powers apart but for c[0], which is added last: one product more, half as
// many steps one after another.
Val horner_by_parity(Val x, Coefficients c);
// ((... x + c[n-1]) x + ...): Horner going on from a value already multiplied in.
Val horner(Val x, Val top, Coefficients c);

// x rounded to an integer, |x| < 2^(mantissa - 1): as a float, and as bits whose low part is the
// integer modulo 2^(mantissa - 1). Never -0.
struct Rounded {
  Val real, bits;
};
Rounded round_product(Val x, double factor);  // rint(x · factor), up to a tie
// 2^(n + offset), from Rounded::bits of n; n + offset must be the exponent of a normal number.
Val power_of_two(Val bits, const Format& format, int offset = 0);

// (2^f - 1)/f, |f| <= 1/2.
Coefficients exp2_table(Val like);

// log of a normal positive x; anything for another x.
Val log_normal(Val x);

// One for each code (math_*.cpp); NaN in gives NaN out.
Val exp(Val x);
Val exp_at_most_one(Val x);         // the bits of exp, of x <= 0 or NaN
Val scaled_exp_at_most_one(Val x);  // the same, for targets that scale (TargetFacts)
Val exp_nonpositive(Val x);
Val exp_nonpositive_bfloat16(Val x);
Val scaled_exp(Val x);  // the same in float32, for targets that scale (TargetFacts)
Val exp2(Val x);
Val expm1(Val x);
Val sinh(Val x);
Val cosh(Val x);
Val tanh(Val x);
Val sigmoid(Val x);
Val log(Val x);
Val log2(Val x);
Val log10(Val x);
Val log1p(Val x);
Val asinh(Val x);
Val acosh(Val x);
Val atanh(Val x);
Val pow(Val x, Val y);
Val sin(Val x);
Val cos(Val x);
Val tan(Val x);
Val asin(Val x);
Val acos(Val x);
Val atan(Val x);
Val atan2(Val y, Val x);
Val erf(Val x);
Val erfinv(Val x);
Val rsqrt(Val x);

}  // namespace cermet::ir::math
