// SPDX-License-Identifier: MIT
// Inverse trigonometric functions. Arguments are brought near zero by asin x = pi/2 - 2 asin
// sqrt((1 - x)/2) and atan x = pi/2 - atan(1/x); one odd polynomial. pi/2 is added as a product of two
// floats in an fma, which carries it to twice the precision.
#include "kernel/math_internal.h"

namespace cermet::ir::math {

namespace {

// pi/2 = kA · kB: to 2^-45 in float32; in float64 kB = 1 does.
struct HalfPi {
  double a, b;
};
constexpr HalfPi kHalfPi32 = {0x1.ddcb02p-1, 0x1.aee9d6p+0};
constexpr HalfPi kHalfPi64 = {0x1.921fb54442d18p+0, 1};
HalfPi half_pi(Val x) { return pick(x, kHalfPi32, kHalfPi64); }

// (asin w - w)/w^3 in w^2 <= 0.3165. Minimax; relative error of asin 2^-29.0, 2^-57.8.
constexpr double kAsin32[] = {0x1.555526p-3, 0x1.334932p-4, 0x1.6a59a8p-5,
                              0x1.169d78p-5, 0x1.b9eb1cp-8, 0x1.84fb4p-5};
constexpr double kAsin64[] = {0x1.55555555554d9p-3, 0x1.3333333344528p-4,  0x1.6db6db6084fd1p-5,
                              0x1.f1c7219312c0ap-6, 0x1.6e8b0be5920fbp-6,  0x1.1c59f9069bc93p-6,
                              0x1.c8788952e1c63p-7, 0x1.84b9992f45a19p-7,  0x1.fcff8e5783188p-8,
                              0x1.1e56c357e91c7p-6, -0x1.62915b3effa4ap-6, 0x1.18c3ceb625ff6p-4,
                              -0x1.3a15edabfeefp-4, 0x1.e9c526f59517cp-5};
constexpr Table kAsin = {kAsin32, kAsin64};

// (atan a - a)/a^3 in a^2 <= 1. Minimax; relative error of atan 2^-25.8, 2^-57.6.
constexpr double kAtan32[] = {-0x1.5554dcp-2, 0x1.9978ecp-3, -0x1.230a98p-3, 0x1.b4def4p-4,
                              -0x1.3551b2p-4, 0x1.61f13cp-5, -0x1.0c1b86p-6, 0x1.7eaee4p-9};
constexpr double kAtan64[] = {
    -0x1.5555555555526p-2, 0x1.99999999955b2p-3,  -0x1.249249237f4fcp-3,  0x1.c71c717fcdd53p-4,
    -0x1.745d11ae5d813p-4, 0x1.3b13669958f7dp-4,  -0x1.110e512208776p-4,  0x1.e1bba641edbffp-5,
    -0x1.ae5e7241a1f1dp-5, 0x1.82dad692a540ep-5,  -0x1.59a3fdcd11317p-5,  0x1.2c2e5c391cafcp-5,
    -0x1.e9fa1113ecebbp-6, 0x1.683cd249da759p-6,  -0x1.c78fe2cfb0332p-7,  0x1.d7b947f86de0cp-8,
    -0x1.7a39b86800ed3p-9, 0x1.b3fae89173fecp-11, -0x1.3f3653f6e0bb1p-13, 0x1.bbed819f2f1b4p-17};
constexpr Table kAtan = {kAtan32, kAtan64};

// Up to here asin takes its argument as it is: low enough that pi/2 - 2 asin w keeps its bits.
constexpr double kAsinBorder = 0.5625;

Val asin_odd(Val w, Val z) { return fma(w * z, horner(z, kAsin.of(w)), w); }

Val atan_odd(Val a) {
  const Val s = a * a;
  return fma(a * s, horner(s, kAtan.of(a)), a);
}

}  // namespace

Val asin(Val x) {
  const HalfPi c = half_pi(x);
  const Val t = abs(x);
  const Val big = lift(x, kAsinBorder) < t;
  const Val z = select(big, fma(t, -0.5, 0.5), x * x);
  const Val p = asin_odd(select(big, sqrt(z) * -2, t), z);
  return copy_sign(select(big, fma(lift(x, c.a), c.b, p), p), x);
}

Val acos(Val x) {
  const HalfPi c = half_pi(x);
  const Val t = abs(x);
  const Val big = lift(x, kAsinBorder) < t, negative = x < 0;
  const Val z = select(big, fma(t, -0.5, 0.5), x * x);
  const Val two = select(negative, lift(x, -2.0), lift(x, 2.0));
  const Val p = asin_odd(select(big, sqrt(z) * two, -x), z);
  const Val base = select(big, select(negative, lift(x, 2 * c.a), lift(x, 0.0)), lift(x, c.a));
  return fma(base, c.b, p);
}

Val atan(Val x) {
  const HalfPi c = half_pi(x);
  const Val t = abs(x);
  const Val big = lift(x, 1.0) < t;
  const Val p = atan_odd(select(big, -1 / t, t));
  return copy_sign(select(big, fma(lift(x, c.a), c.b, p), p), x);
}

// The angle of (x, y): atan of the smaller over the larger of |x| and |y|, then reflected.
Val atan2(Val y, Val x) {
  const HalfPi c = half_pi(x);
  const Format& format = format_of(x);
  const Val ax = abs(x), ay = abs(y);
  const Val steep = ax < ay;
  const Val less = select(steep, ax, ay), more = select(steep, ay, ax);
  const Val ratio = less / more;
  // 0/0 and inf/inf; NaN where an argument is.
  const Val equal = select(more == 0, lift(x, 0.0), lift(x, 1.0));
  const Val a = rare(ratio != ratio, ratio, select(less == more, equal, ratio));
  const Val behind = sign_of(x);
  const Val turned = select(steep, behind ^ format.sign, behind);
  const Val p = from_bits(bits_of(atan_odd(a)) ^ turned, format.real);
  const Val left = select(behind != 0, lift(x, 2 * c.a), lift(x, 0.0));
  return copy_sign(fma(select(steep, lift(x, c.a), left), c.b, p), y);
}

}  // namespace cermet::ir::math
