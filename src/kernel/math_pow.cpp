// SPDX-License-Identifier: MIT
// x^y = 2^(y log2 x), log2 |x| as an unevaluated sum of two floats: with |x| = 2^e m and
// q = (m - 1)/(m + 1), log2 m = (2/ln2) (q + q^3/3 + ...); q is carried with its remainder, products by
// fma. Whatever is not an ordinary case (x not normal and positive, y not finite, a result near or over
// the end of the exponents) is sorted out in one slow path.
#include <limits>

#include "kernel/math_internal.h"

namespace cermet::ir::math {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// (2 atanh(q) - 2q)/(q^3 ln2) in q^2, q <= 0.1716. Minimax; error relative to log2 m 2^-34.8. In
// float64 without its first term 2/(3 ln2), which is kThird: 2^-71.9.
constexpr double kLog2_32[] = {0x1.ec709ep-1, 0x1.2776ep-1, 0x1.a5d044p-2, 0x1.5890b4p-2};
constexpr double kLog2_64[] = {0x1.2776c50ef9bfcp-1, 0x1.a61762a7aedddp-2, 0x1.484b13d6ad006p-2,
                               0x1.0c9a853ae79c4p-2, 0x1.c68ee96775837p-3, 0x1.8a09b68a9c89cp-3,
                               0x1.58fce7bfa14f8p-3, 0x1.61efefdb8913cp-3};
constexpr double kThird = 0x1.ec709dc3a03fdp-1, kThirdLow = 0x1.d27f05548af0cp-55;

// Unevaluated high + low, |low| about an ulp of high.
struct Pair {
  Val high, low;
};

// a + b for |a| >= |b| or a = 0.
Pair fast_sum(Val a, Val b) {
  const Val high = a + b;
  return {high, b - (high - a)};
}

Pair product(Val a, Val b) {
  const Val high = a * b;
  return {high, fma(a, b, -high)};
}

// (m - 1)/(m + 1) for m in [sqrt(1/2), sqrt(2)].
Pair quotient(Val m) {
  const Val n = m - 1, d = m + 1, d_low = m - (d - 1);
  const Val reciprocal = 1 / d;
  const Val q = n * reciprocal;
  const Val rest = fma(-q, d_low, fma(-q, d, n));
  return {q, rest * reciprocal};
}

// The terms of log2 m from q^3 on.
Pair upper_terms(const Pair& q) {
  const Val z = q.high * q.high;
  const Val cube = q.high * z;
  if (!is_double(z)) {
    const Val terms = cube * horner(z, kLog2_32);
    return {terms, lift(z, 0.0)};
  }
  const Val z_low = fma(q.high + q.high, q.low, fma(q.high, q.high, -z));
  const Val cube_low = fma(q.low, z, fma(q.high, z_low, fma(q.high, z, -cube)));
  const Pair third = product(cube, lift(z, kThird));
  const Val low = fma(cube_low, kThird, fma(cube, kThirdLow, third.low));
  return {third.high, fma(cube * z, horner(z, kLog2_64), low)};
}

// log2 t for a normal positive t, `shift` added to the exponent.
Pair log2_pair(Val t, double shift) {
  const Format& format = format_of(t);
  const uint64_t least = pick<uint64_t>(t, 0x3f3504f3, 0x3fe6a09e667f3bcd);
  const Val moved = bits_of(t) + (format.one - least);
  const uint64_t fraction_mask = (uint64_t{1} << format.mantissa) - 1;
  const Val m = from_bits((moved & fraction_mask) + least, format.real);
  const uint64_t magic = static_cast<uint64_t>(format.mantissa + format.bias) << format.mantissa;
  const double origin = pick(t, 0x1p23 + 127, 0x1p52 + 1023);
  const Val e = from_bits((moved >> format.mantissa) | magic, format.real) - (origin - shift);
  const double k = pick(t, 0x1.715476p+1, 0x1.71547652b82fep+1);
  const double k_low = pick(t, 0x1.4ae0cp-25, 0x1.777d0ffda0d24p-55);
  const Pair q = quotient(m);
  const Pair first = product(q.high, lift(t, k));
  // What q.low adds to the cube: its share of the derivative k/(1 - q^2). upper_terms has it in float64.
  const Val rest = is_double(t) ? q.low : fma(q.low, q.high * q.high, q.low);
  const Val first_low = fma(rest, k, fma(q.high, k_low, first.low));
  const Pair upper = upper_terms(q);
  const Pair sum = fast_sum(e, first.high);
  // The upper terms are no small part of `low`: y times them is a share of the exponent.
  if (!is_double(t)) return fast_sum(sum.high, sum.low + (upper.high + first_low));
  const Pair all = fast_sum(sum.high, upper.high);
  return {all.high, all.low + (sum.low + (upper.low + first_low))};
}

// 2^f, |f| a little above 1/2 at most.
Val exp2_fraction(Val f) { return fma(horner(f, exp2_table(f)), f, 1); }

Pair exponent(const Pair& log, Val y) {
  const Val high = log.high * y;
  return {high, fma(log.low, y, fma(log.high, y, -high))};
}

// |x|^y for any x but 0 and inf, any y but NaN.
Val magnitude(Val t, Val y) {
  const Format& format = format_of(t);
  const Val tiny = t < pick(t, 0x1p-126, 0x1p-1022);
  const double scale = pick(t, 0x1p24, 0x1p54);
  const Pair plain = log2_pair(t, 0), scaled = log2_pair(t * scale, pick(t, -24.0, -54.0));
  const Pair log = {select(tiny, scaled.high, plain.high), select(tiny, scaled.low, plain.low)};
  const double limit = pick(t, 0x1p40, 0x1p70);
  const Pair w = exponent(log, at_least(at_most(y, limit), -limit));
  const double top = pick(t, 129.0, 1025.0), bottom = pick(t, -151.0, -1076.0);
  const Val clamped = at_least(at_most(w.high, top), bottom);
  const Val low = select(clamped == w.high, w.low, 0.0);
  const Val n = (clamped + format.magic) - format.magic;
  return scale2(exp2_fraction((clamped - n) + low), n);
}

// Every case, by the rules of IEEE 754 (pow).
Val any_case(Val x, Val t, Val y) {
  const Val whole = rint(y) == y;
  const Val half = y * 0.5;
  const Val odd = whole & (rint(half) != half);
  const Val negative = lift(bits_of(x), 0) != sign_of(x);
  Val value = magnitude(t, y);
  const Val zero = t == 0, end = zero | (t == kInfinity);
  value = select(end, select(zero ^ (y < 0), 0.0, lift(x, kInfinity)), value);
  value = select(negative & odd, -value, value);
  value = select((x < 0) & (t < kInfinity) & ~whole, kNan, value);
  value = select((x != x) | (y != y), kNan, value);
  return select((y == 0) | (x == 1), 1.0, value);
}

}  // namespace

Val pow(Val x, Val y) {
  const Format& format = format_of(x);
  const Val t = abs(x);
  const Pair w = exponent(log2_pair(t, 0), y);
  const Val shifted = w.high + format.magic;
  const Val p = exp2_fraction((w.high - (shifted - format.magic)) + w.low);
  const Val fast = from_bits(bits_of(p) + (bits_of(shifted) << format.mantissa), format.real);
  const Val normal = bits_of(x) - format.least < format.infinity - format.least;
  const Val inside = abs(w.high) < pick(x, 126.0, 1022.0);
  return rare(~(normal & inside), fast, any_case(x, t, y));
}

}  // namespace cermet::ir::math
