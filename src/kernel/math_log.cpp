// SPDX-License-Identifier: MIT
// Logarithms and inverse hyperbolic functions. x = 2^e · (1 + f); float32 takes f in [-1/3, 1/3] and
// one polynomial; float64 takes 1 + f in [sqrt(1/2), sqrt(2)] and log(1 + f) = 2 atanh(f / (2 + f)).
// Zero, negative, subnormal, infinite and NaN arguments share one test of the exponent bits.
#include <limits>

#include "kernel/math_internal.h"

namespace cermet::ir::math {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// (log(1 + f) - f)/f^2, sqrt(1/2) <= 1 + f <= sqrt(2). Minimax; relative error of the log 2^-24.8.
constexpr double kLog32[] = {-0.5,           0x1.5556d8p-2, -0x1.000384p-2, 0x1.98d83ap-3,
                             -0x1.537f02p-3, 0x1.316b72p-3, -0x1.246082p-3, 0x1.653c74p-4};
// The same, -1/4 <= f <= 1/2; 2^-27.5.
constexpr double kLog1p32[] = {-0.5,           0x1.5555a4p-2,  -0x1.00002cp-2,
                               0x1.9968c4p-3,  -0x1.54f5aep-3, 0x1.28a1fp-3,
                               -0x1.0d68b4p-3, 0x1.aa66d6p-4,  -0x1.6ca3ccp-5};
// (log2(1 + f) - f/ln2)/f^2 and (log10(1 + f) - f/ln10)/f^2 on the first range. Minimax; relative error 2^-25.0.
constexpr double kLog2_32[] = {-0x1.715472p-1, 0x1.ec72f6p-2, -0x1.715b64p-2, 0x1.26e704p-2,
                               -0x1.e98894p-3, 0x1.b8ba62p-3, -0x1.a73b28p-3, 0x1.02dc96p-3};
constexpr double kLog10_32[] = {-0x1.bcb7acp-3, 0x1.287bep-3,  -0x1.bcc01ap-4, 0x1.6318fap-4,
                                -0x1.26b8b6p-4, 0x1.09577ep-4, -0x1.fdc184p-5, 0x1.37ebdep-5};
// (2 atanh(s) - 2s)/s^3 in s^2, s <= 0.1716. Minimax; error 2^-58.5.
constexpr double kAtanh64[] = {0x1.5555555555592p-1, 0x1.999999997ff1p-2,  0x1.24924941e23ep-2,
                               0x1.c71c5213545dcp-3, 0x1.74663d2b8c0ecp-3, 0x1.39a1e1a6d2efdp-3,
                               0x1.2f0409e3334dfp-3};

// The bits of the least 1 + f.
uint64_t least_fraction(Val x) { return pick<uint64_t>(x, 0x3f3504f3, 0x3fe6a09e667f3bcd); }

// x = 2^(exponent · unit) · (1 + fraction) for a normal x.
struct Split {
  Val exponent, fraction;
  double unit;
};

// The exponent of a double from bits whose exponent field is 1023 + e.
Val exponent64(Val bits) {
  return from_bits((bits >> 52) | uint64_t{0x4330000000000000}, Dtype::float64) - (0x1p52 + 1023);
}

Split split(Val x) {
  const Format& format = format_of(x);
  const Val bits = bits_of(x);
  const uint64_t least = least_fraction(x);
  if (is_double(x)) {
    const Val moved = bits + (format.one - least);
    const Val fraction = (moved & ((uint64_t{1} << 52) - 1)) + least;
    return {exponent64(moved), from_bits(fraction, format.real) - 1, 1};
  }
  const Val moved = (bits - least) & 0xff800000u;
  return {cast(bitcast(moved, Dtype::int32), format.real), from_bits(bits - moved, format.real) - 1,
          0x1p-23};
}

// log(1 + f) = f - (h - s (h + R)) with h = f^2/2, s = f/(2 + f).
Val log1p64(Val f) {
  const Val s = f / (f + 2), z = s * s, h = f * f * 0.5;
  return f - (h - s * fma(z, horner(z, kAtanh64), h));
}

Val log1p_reduced(Val f, Coefficients single) {
  return is_double(f) ? log1p64(f) : fma(f * f, horner(f, single), f);
}

// Log to a base for a normal x, `shift` added to its exponent.
using Base = Val (*)(const Split&, int shift);

Val with_shift(const Split& s, int shift) {
  return shift == 0 ? s.exponent : s.exponent + shift / s.unit;
}

Val natural(const Split& s, int shift) {
  return fma(with_shift(s, shift), kLn2 * s.unit, log1p_reduced(s.fraction, kLog32));
}

Val binary(const Split& s, int shift) {
  const Val e = with_shift(s, shift);
  if (is_double(e)) return fma(log1p64(s.fraction), 1 / kLn2, e);
  const Val f = s.fraction;
  return fma(e, s.unit, fma(f, 1 / kLn2, f * f * horner(f, kLog2_32)));
}

Val decimal(const Split& s, int shift) {
  constexpr double kLog10Of2 = 0x1.34413509f79ffp-2, kLog10OfE = 0x1.bcb7b1526e50ep-2;
  const Val e = with_shift(s, shift);
  if (is_double(e)) return fma(e, kLog10Of2, log1p64(s.fraction) * kLog10OfE);
  const Val f = s.fraction;
  constexpr double kLow = -0x1.ec10cp-27;  // log10(2) less its float
  const Val rest = fma(f * f, horner(f, kLog10_32), e * (kLow * s.unit));
  return fma(e, kLog10Of2 * s.unit, fma(f, kLog10OfE, rest));
}

// Not a normal positive number.
Val unusual(Val x) {
  const Format& format = format_of(x);
  const Val moved = bits_of(x) - format.least;
  return lift(moved, format.infinity - format.least) <= moved;
}

Val log_to(Base base, Val x) {
  const int shift = pick(x, 23, 52);
  const double scale = pick(x, 0x1p23, 0x1p52);
  const Val subnormal = base(split(x * scale), -shift);
  Val slow = select(x < kInfinity, subnormal, x);
  slow = select(x < 0, kNan, slow);
  slow = select(x == 0, -kInfinity, slow);
  return rare(unusual(x), base(split(x), 0), slow);
}

// log(1 + a + rest) for 1 + a a normal positive number, rest far below a: with u = 1 + a = 2^e (1 + g),
// f = a 2^-e + (2^-e - 1) loses nothing but its last rounding.
Val log1p_normal(Val a, Val u) {
  const Format& format = format_of(a);
  const uint64_t least = pick<uint64_t>(a, 0x3f400000, least_fraction(a));
  const uint64_t field = format.infinity | format.sign;
  const Val moved = (bits_of(u) - least) & field;
  const Val scaled = from_bits(bits_of(a) - moved, format.real);
  const uint64_t four = format.one + (uint64_t{2} << format.mantissa);
  const Val power = from_bits(lift(moved, four) - moved, format.real);
  const Val f = scaled + fma(power, 0.25, -1);
  const Val exponent = is_double(a) ? exponent64(moved + format.one)
                                    : cast(bitcast(moved, Dtype::int32), format.real);
  return fma(exponent, kLn2 * pick(a, 0x1p-23, 1.0), log1p_reduced(f, kLog1p32));
}

}  // namespace

Val log_normal(Val x) { return natural(split(x), 0); }

Val log(Val x) { return log_to(natural, x); }
Val log2(Val x) { return log_to(binary, x); }
Val log10(Val x) { return log_to(decimal, x); }

Val log1p(Val x) {
  const Val u = x + 1;
  const Val slow = select(x == -1, -kInfinity, select(x < -1, kNan, x));
  return copy_sign(rare(unusual(u), log1p_normal(x, u), slow), x);
}

// log1p(t + t^2/(1 + sqrt(1 + t^2))), t = |x|.
Val asinh(Val x) {
  const Val t = abs(x);
  const Val s = sqrt(fma(t, t, 1));
  const Val a = t + t * t / (s + 1);
  const double huge = pick(x, 0x1p30, 0x1p60);
  return copy_sign(rare(~(t < huge), log1p_normal(a, a + 1), log(t) + kLn2), x);
}

// log1p(t + sqrt(2t + t^2)), t = x - 1.
Val acosh(Val x) {
  const Val t = x - 1;
  const Val a = t + sqrt(fma(t, t, t + t));
  const double huge = pick(x, 0x1p30, 0x1p60);
  const Val usual = (lift(x, 1.0) <= x) & (x < huge);
  const Val slow = select(x < 1, kNan, log(x) + kLn2);
  return rare(~usual, log1p_normal(a, a + 1), slow);
}

// log1p(2t + 2t t/(1 - t))/2, t = |x|.
Val atanh(Val x) {
  const Val t = abs(x);
  const Val a = fma(t + t, t / (1 - t), t + t);
  const Val half = copy_sign(lift(x, 0.5), x);
  const Val slow = select(t == 1, kInfinity, lift(x, kNan));
  return rare(~(t < 1), log1p_normal(a, a + 1), slow) * half;
}

}  // namespace cermet::ir::math
