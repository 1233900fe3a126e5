// SPDX-License-Identifier: MIT
// exp and what is made of it. x = n·ln2 + r with |r| <= ln2/2 (Cody and Waite, n·ln2 in two parts by
// fma), e^r by a polynomial, 2^n by scale2 or by exponent bits. The hyperbolic functions split e^r in
// its even and odd part, so that e^x and e^-x share one polynomial and nothing cancels.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "kernel/math_internal.h"

namespace cermet::ir::math {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLog2e = 0x1.71547652b82fep+0;

// (e^r - 1 - r)/r^2, |r| <= ln2/2. Minimax; error of e^r 2^-28.2, 2^-57.7.
constexpr double kExp32[] = {0x1.fffffcp-2, 0x1.55548cp-3, 0x1.555858p-5, 0x1.123de8p-7,
                             0x1.6ac832p-10};
constexpr double kExp64[] = {0x1.000000000000ap-1, 0x1.5555555555503p-3,  0x1.55555555505fep-5,
                             0x1.1111111124d8ap-7, 0x1.6c16c184b7f2ap-10, 0x1.a01a013d2705cp-13,
                             0x1.a019988427f9p-16, 0x1.71def4715a6ep-19,  0x1.28aee07cc9e16p-22,
                             0x1.add6e3db6d479p-26};
constexpr Table kExp = {kExp32, kExp64};

// The same with one coefficient less, for what is rounded in sums: error of e^r 2^-22.9.
constexpr double kExpShort32[] = {0x1.fffdfcp-2, 0x1.5557aep-3, 0x1.572a6cp-5, 0x1.103256p-7};
constexpr Table kExpShort = {kExpShort32, kExp64};

// e^r - 1 over r, for what is rounded to bfloat16: error of e^r 2^-13.2.
constexpr double kExpBfloat16[] = {0x1.000cdcp+0, 0x1.021deap-1, 0x1.5249p-3};

// 2^(f - 1/2) for 0 <= f <= 1, for the same: relative error 2^-13.2, and 1 at 1/2.
constexpr double kExp2Bfloat16[] = {0x1.6a0084p-1, 0x1.f825p-2, 0x1.470f86p-3, 0x1.c2a222p-5};

// The same for e^r - 1: relative error 2^-26.1, 2^-61.6.
constexpr double kExpm1_32[] = {0x1.fffffep-2, 0x1.5554aap-3, 0x1.55579cp-5, 0x1.122c8ep-7,
                                0x1.6ab3bap-10};
constexpr double kExpm1_64[] = {0x1p-1,
                                0x1.5555555555559p-3,
                                0x1.5555555555559p-5,
                                0x1.111111110f6f9p-7,
                                0x1.6c16c16c1658ep-10,
                                0x1.a01a01afa3be2p-13,
                                0x1.a01a019f6ddc6p-16,
                                0x1.71ddf927a098bp-19,
                                0x1.27e4f62e1e60ep-22,
                                0x1.af5d210d96767p-26,
                                0x1.1f3cc2a6396b3p-29};
constexpr Table kExpm1 = {kExpm1_32, kExpm1_64};

// (2^f - 1)/f, |f| <= 1/2. Minimax; error of 2^f 2^-26.2, 2^-57.1.
constexpr double kExp2_32[] = {0x1.62e43p-1,  0x1.ebfb94p-3,  0x1.c6af9ep-5,
                               0x1.3b67f8p-7, 0x1.5ef492p-10, 0x1.17b538p-13};
constexpr double kExp2_64[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5b3p-3,  0x1.c6b08d704a26fp-5,
                               0x1.3b2ab6fb9dadp-7,   0x1.5d87fe784557ap-10, 0x1.43091316782aap-13,
                               0x1.ffcbfe67cdd7dp-17, 0x1.62bfb4b0edf74p-20, 0x1.b5207ed66d3b8p-24,
                               0x1.e63b6ee2353a1p-28, 0x1.f0ef2e7ea718ap-32};
constexpr Table kExp2 = {kExp2_32, kExp2_64};

// (cosh r - 1)/r^2 and (sinh r - r)/r^3 in r^2, |r| <= ln2/2. Minimax; errors relative to the
// functions 2^-33 and 2^-26, 2^-58 and 2^-61.
constexpr double kCosh32[] = {0x1p-1, 0x1.5554e6p-5, 0x1.6d4f1p-10};
constexpr double kCosh64[] = {0x1.000000000000cp-1, 0x1.555555554fd67p-5, 0x1.6c16c1863e005p-10,
                              0x1.a01995005777dp-16, 0x1.28b1bceb7790fp-22};
constexpr double kSinh32[] = {0x1.5554bp-3, 0x1.12279ap-7};
constexpr double kSinh64[] = {0x1.5555555555559p-3, 0x1.111111110f62ap-7, 0x1.a01a01b020648p-13,
                              0x1.71ddf7af325ap-19, 0x1.af5ff5e178421p-26};
constexpr Table kCosh = {kCosh32, kCosh64}, kSinh = {kSinh32, kSinh64};

// tanh(x/2) = x P(x^2)/(2 Q(x^2)), |x| <= kTanhEnd, as kScale · P/2 and kScale · Q. Minimax rational,
// weighted for the tanh x that comes of it: relative error 2^-27.0. The scale moves P and Q from just
// above 1, where a float is coarsest for its value, to the middle of the binade.
// kTanhEnd is the float next to 9.02 whose quotient rounds to 1 itself: what is saturated is exact.
constexpr double kTanhEnd = 0x1.20a3d6p+3;
constexpr double kTanhP[] = {0x1.68p-1, 0x1.57092p-6, 0x1.512de6p-14};
constexpr double kTanhQ[] = {0x1.68p+0, 0x1.45c242p-3, 0x1.bcebe2p-10, 0x1.d08f7ep-20};

// x = n·ln2 + r.
struct Reduced {
  Rounded n;
  Val r;
};

Val less_ln2(Val n, Val x) {
  const Val high = fma(n, pick(x, -0x1.62e42ep-1, -0x1.62e42fefa39efp-1), x);
  return fma(n, pick(x, -0x1.efa39ep-25, -0x1.abc9e3b39803fp-56), high);
}

Reduced reduce(Val x) {
  const Rounded n = round_product(x, kLog2e);
  return {n, less_ln2(n.real, x)};
}

// e^x, x clamped so that the result is at most just infinite and at least just 0.
Val exp_clamped(Val x) {
  const Reduced k = reduce(x);
  const Val p = fma(horner(k.r, kExp.of(x)), k.r, 1);
  return scale2(fma(p, k.r, 1), k.n.real);
}

double exp_lowest(Val x) { return pick(x, -104.5, -746.0); }
double exp_highest(Val x) { return pick(x, 89.5, 710.0); }

// e^r - 1 for |r| <= ln2/2.
Val expm1_reduced(Val r) { return fma(r * r, horner(r, kExpm1.of(r)), r); }

// e^x = 2^n (1 + even + odd), e^-x = 2^-n (1 + even - odd).
struct Halves {
  Rounded n;
  Val even, odd;
};

Halves halves(Val x) {
  const Reduced k = reduce(x);
  const Val s = k.r * k.r;
  return {k.n, s * horner(s, kCosh.of(x)), fma(k.r * s, horner(s, kSinh.of(x)), k.r)};
}

// 2^(n-1) and 2^(-n-1).
struct Powers {
  Val up, down;
};

Powers half_powers(const Halves& h) {
  const Format& format = format_of(h.even);
  const uint64_t half = format.one - (uint64_t{1} << format.mantissa);
  const Val shifted = h.n.bits << format.mantissa;
  return {from_bits(shifted + half, format.real), from_bits(half - shifted, format.real)};
}

// Above this 2^-n is not normal; e^-x no longer counts.
double hyperbolic_limit(Val x) { return pick(x, 86.0, 707.0); }

// e^t/2 for t above hyperbolic_limit.
Val half_exp(Val t, const Halves& h) {
  const Val p = ((h.even + h.odd) + 1) * power_of_two(h.n.bits, format_of(t), -4) * 8;
  return select(lift(t, pick(t, 89.5, 711.0)) < t, kInfinity, p);
}

}  // namespace

Coefficients exp2_table(Val like) { return kExp2.of(like); }

// Lanes whose result is 0 (masked scores) compute e^0 instead: an underflow costs x86 a microcode
// assist of a hundred cycles.
Val exp(Val x) {
  const Val gone = x < exp_lowest(x);
  return select(gone, 0.0, exp_clamped(select(gone, 0.0, at_most(x, exp_highest(x)))));
}

// With r = x - n·ln2, e^r = 1 + r·P(r). With k the exponent below which results are 0, 2^n is made as bits of
// 2^(n + k - bias), which are 0 for n = -k, and the polynomial is 2^(bias - k) times e^r. So nothing
// overflows or needs a mask.
Val nonpositive(Val x, int least, Val (*rest)(Val n, Val x), Coefficients polynomial) {
  const Format& format = format_of(x);
  const double shift = format.magic + least;
  const Val t = at_least(x, -least * std::numbers::ln2);
  const Val shifted = fma(t, kLog2e, shift);
  const double unit = std::ldexp(1.0, format.bias - least);
  std::vector<double> scaled = {unit};
  for (const double c : polynomial) scaled.push_back(c * unit);
  return horner(rest(shifted - shift, t), scaled) *
         from_bits(bits_of(shifted) << format.mantissa, format.real);
}

// Nothing is subnormal. ln2 is in one part: what that leaves out of x grows with its size as what rounds x
// itself does.
Val nonpositive(Val x, Coefficients polynomial) {
  const auto rest = [](Val n, Val t) { return fma(n, -std::numbers::ln2, t); };
  return nonpositive(x, 100, rest, polynomial);
}

// What is subnormal is rounded by the last product alone.
Val exp_at_most_one(Val x) {
  std::vector<double> p = {1};
  for (const double c : kExp.of(x)) p.push_back(c);
  return nonpositive(x, pick(x, 151, 1076), less_ln2, p);
}

// No step of it is slow at any x: what is 0 needs no other argument.
Val scaled_exp_at_most_one(Val x) { return select(x < exp_lowest(x), 0.0, exp_clamped(x)); }

Val exp_nonpositive(Val x) {
  std::vector<double> p = {1};
  for (const double c : kExpShort.of(x)) p.push_back(c);
  return nonpositive(x, p);
}

Val exp_nonpositive_bfloat16(Val x) {
  return is_double(x) ? exp_nonpositive(x) : nonpositive(x, kExpBfloat16);
}

// 2^t = 2^floor(t) · 2^fract(t), which such targets make by an instruction each. With k as above, t has k + 1/2 too
// much, so that it is 1 or more where the result is not 0, and that e^0 = 1 lies amid the polynomial. Of
// x = a - b the difference is not made: a fused sum takes a, and what the rest of it is rounded by is one factor
// of all that is counted from b.
Val scaled_exp(Val x) {
  constexpr double kAbove = 100.5;
  Builder& b = *x.builder;
  const Expr e = b[x.id];
  const bool is_difference = e.kind == ExprKind::op && e.code == Code::sub;
  const Val above = is_difference ? Val{&b, e.operands[0]} : x;
  const Val t = is_difference
                    ? fma3(above, lift(x, kLog2e), fma(Val{&b, e.operands[1]}, -kLog2e, kAbove))
                    : fma(x, kLog2e, kAbove);
  std::vector<double> scaled;
  for (const double c : kExp2Bfloat16) scaled.push_back(std::ldexp(c, -100));
  const Val power = horner(apply(Code::fract, t), scaled);
  return select(t < 1, 0.0, scale2(power, apply(Code::floor, t)));
}

Val exp2(Val x) {
  const Val gone = x < pick(x, -151.0, -1076.0);
  const Val clamped = select(gone, 0.0, at_most(x, pick(x, 129.0, 1025.0)));
  const double magic = format_of(x).magic;
  const Val n = (clamped + magic) - magic;
  const Val f = clamped - n;
  return select(gone, 0.0, scale2(fma(horner(f, kExp2.of(x)), f, 1), n));
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1): the second term is exact and both have one sign.
Val expm1(Val x) {
  const Format& format = format_of(x);
  const Val clamped = at_least(x, pick(x, -17.5, -38.0));
  const Reduced k = reduce(clamped);
  const Val em = expm1_reduced(k.r);
  const Val power = power_of_two(k.n.bits, format);
  const Val half = power_of_two(k.n.bits, format, -1);
  const Val overflow = lift(x, pick(x, 88.8, 709.9)) < x;
  const Val slow = select(overflow, kInfinity, fma(half, em, half) * 2);
  const Val value = rare(lift(x, pick(x, 88.0, 709.0)) < x, fma(power, em, power - 1), slow);
  return copy_sign(value, x);
}

Val sinh(Val x) {
  const Val t = abs(x);
  const Halves h = halves(t);
  const Powers p = half_powers(h);
  const Val fast = fma(h.even, p.up - p.down, fma(h.odd, p.up + p.down, p.up - p.down));
  return copy_sign(rare(lift(t, hyperbolic_limit(x)) < t, fast, half_exp(t, h)), x);
}

Val cosh(Val x) {
  const Val t = abs(x);
  const Halves h = halves(t);
  const Powers p = half_powers(h);
  const Val rest = fma(h.even, p.up + p.down, fma(h.odd, p.up - p.down, p.down));
  return rare(lift(t, hyperbolic_limit(x)) < t, p.up + rest, half_exp(t, h));
}

// float32: 2 h/(1 + h^2) with h = tanh(x/2) = c/q: as tanh x nears 1, the error of h no longer counts.
// float64: em/(em + 2) with em = e^2|x| - 1.
Val tanh(Val x) {
  if (is_double(x)) {
    const Reduced k = reduce(at_most(abs(x) * 2, 40.0));
    const Val power = power_of_two(k.n.bits, format_of(x));
    const Val em = fma(power, expm1_reduced(k.r), power - 1);
    return copy_sign(em / (em + 2), x);
  }
  const Val t = at_least(at_most(x, kTanhEnd), -kTanhEnd);
  const Val s = t * t;
  const Val c = t * horner(s, kTanhP), q = horner(s, kTanhQ);
  return ((c + c) * q) / fma(c, c, q * q);
}

// With e = e^-|x| and q = e/(1 + e): 1 - q, or e - e q for x < 0, which keeps subnormal results.
Val sigmoid(Val x) {
  const Format& format = format_of(x);
  const Val t = from_bits(bits_of(x) | format.sign, format.real);
  const Val e = exp_clamped(at_least(t, exp_lowest(x)));
  const Val base = select(x < 0, e, 1.0);
  return fma(-base, e / (e + 1), base);
}

}  // namespace cermet::ir::math
