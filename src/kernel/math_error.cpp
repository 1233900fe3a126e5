// SPDX-License-Identifier: MIT
// erf and its inverse. In float32 erf x = r - 4/27 r^3 with r = x + x P(x^2): where erf x nears 1, at r = 3/2,
// the cubic is flat, so r is a smooth function there and its errors do not count. In float64
// erf x = 1 - 2^u with u = log2(erfc t), t = |x|: u/t is smooth, so one polynomial serves all t, and
// 2^u - 1 is computed as 2^n (2^f - 1) + (2^n - 1), which cancels nowhere. Neither branches or divides.
// erfinv x = x g(w), w = -log(1 - x^2), as in Giles (2010), but with a polynomial in sqrt(w) for the
// tail only.
#include <limits>

#include "kernel/math_internal.h"

namespace cermet::ir::math {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// P for |x| <= kErfEnd, where the result is 1 itself, and 4/27. Minimax, weighted for what roundings leave:
// error of erf 0.5 ULP, 1.83 with roundings.
constexpr double kErfEnd = 3.8125;
constexpr double kErf32[] = {0x1.06eba6p-3,  -0x1.4e66c2p-3,  0x1.4ed86ep-6,
                             -0x1.f941cp-10, 0x1.22bb9p-13,   -0x1.ff768ap-18,
                             0x1.4bdc4ap-22, -0x1.1bd22ep-27, 0x1.d7d15ep-34};
constexpr double kErfCubic = 0x1.2f684ep-3;

// log2(erfc t)/t, 0 <= t <= 5.95. Minimax; relative error of erf 2^-55.1.
constexpr double kErf64[] = {
    -0x1.a0be83d8d032dp+0,  -0x1.d63ed7499580cp-1, -0x1.2fa7eecb343c5p-3,  0x1.c4242d10294f4p-6,
    0x1.3c76d6408b61fp-12,  -0x1.40bf3dc6dc214p-9, 0x1.be5b1b20e501cp-11,  -0x1.38ba457b411cep-15,
    -0x1.86de08276028dp-14, 0x1.6a3ff8a94f09ep-15, -0x1.6987d97a41623p-18, -0x1.d7415a40a9712p-19,
    0x1.0595b3b148df3p-19,  -0x1.95a326723043p-25, -0x1.f9e77fab62e69p-22, 0x1.6eb963a9f7f82p-22,
    -0x1.4218c06dac605p-23, 0x1.9c2058c555117p-25, -0x1.92d834876fd8bp-27, 0x1.2f41e67e7f3ddp-29,
    -0x1.5b2869266bd2ep-32, 0x1.24c91ef7d8e06p-35, -0x1.5734d446517f8p-39, 0x1.f343f2024228dp-44,
    -0x1.532db6ffea48ep-49};

// (1 - 2^f)/f, |f| <= 1/2. Minimax; error 2^-53.3 relative to 1 - 2^f.
constexpr double kFall64[] = {
    -0x1.62e42fefa39efp-1,  -0x1.ebfbdff82c4f9p-3,  -0x1.c6b08d7048d91p-5,  -0x1.3b2ab6fbb7699p-7,
    -0x1.5d87fe7dc672cp-10, -0x1.430912cd4b222p-13, -0x1.ffcbdff4f9bb2p-17, -0x1.62c05b9bd1c22p-20,
    -0x1.b564b9ae30232p-24, -0x1.e5321366f46eep-28, -0x1.85cc5b4c76588p-32};

// erfinv(x)/x in w = -log(1 - x^2), w <= 6 (float64: 5). Minimax; relative error 2^-24.2, 2^-54.1.
constexpr double kInverse32[] = {0x1.c5bf88p-1,   0x1.db2ab8p-3,  0x1.7a2faep-7,  -0x1.2fe57ep-9,
                                 -0x1.2e2502p-13, 0x1.c7073cp-15, 0x1.78470ep-21, -0x1.65b994p-20,
                                 0x1.4942fap-23,  -0x1.912684p-28};
constexpr double kInverse64[] = {
    0x1.c5bf891b4ef6bp-1,   0x1.db29fb2fee4b4p-3,   0x1.7a72e72c4a3aep-7,  -0x1.32110267cd5e8p-9,
    -0x1.0c86b3a81abf5p-13, 0x1.8700f60e463d4p-15,  0x1.0f2f95f40ddbdp-19, -0x1.101af4d281a2fp-20,
    -0x1.30aecc1874821p-25, 0x1.60b8898d9eb07p-26,  0x1.92195f5ca1c2dp-29, -0x1.2931920ee6b98p-29,
    0x1.097503018057bp-30,  -0x1.f847ed1318687p-32, 0x1.8f6fa68cd5bf6p-33, -0x1.ef55aad56e35bp-35,
    0x1.e6f989a7ad63cp-37,  -0x1.7d81ad45e333fp-39, 0x1.d6f18b7029268p-42, -0x1.beebfff3d0723p-45,
    0x1.39c4da3fc8a59p-48,  -0x1.32647849448d4p-52, 0x1.73108928022f5p-57, -0x1.a36b0bc439766p-63};
constexpr Table kInverse = {kInverse32, kInverse64};

// The same for greater w, in sqrt(w) - 3; relative error 2^-24.8.
constexpr double kTail32[] = {0x1.6a9efcp+1, 0x1.006ddcp+0,  0x1.357944p-7,  -0x1.f64bd6p-8,
                              0x1.76144ap-8, -0x1.c5b17ap-9, 0x1.5ccb82p-10, -0x1.db0cb6p-13};
// erfinv(1 - d) = P(r)/Q(r), r = sqrt(-log d) - 2.375, for d <= 0.0034; relative error 2^-55.0.
constexpr double kTailP64[] = {0x1.07e29fdfe0dbap+1, 0x1.0d99a12377a85p+2, 0x1.ced36a578b28cp+1,
                               0x1.ae50bed99fcb5p+0, 0x1.cfa7f1017a412p-2, 0x1.1cbfb059c0d0bp-4,
                               0x1.667ecd5d5a4c9p-8, 0x1.53650eec5f3eep-13};
constexpr double kTailQ64[] = {1,
                               0x1.88f1c4c3e95f1p+0,
                               0x1.f37316526e5f9p-1,
                               0x1.4b3ea82d9c5eep-2,
                               0x1.d9a4892412526p-5,
                               0x1.4d6d6402290d9p-8,
                               0x1.53586e2fcf1f1p-13,
                               0x1.156d363d7d812p-32};

Val erfinv_tail(Val x, Val w) {
  if (!is_double(x)) return x * horner(sqrt(w) - 3, kTail32);
  const Val r = sqrt(-log_normal(1 - abs(x))) - 2.375;
  return copy_sign(horner(r, kTailP64) / horner(r, kTailQ64), x);
}

}  // namespace

Val erf(Val x) {
  if (!is_double(x)) {
    const Val t = at_least(at_most(x, kErfEnd), -kErfEnd);
    const Val r = fma(t, horner(t * t, kErf32), t);
    const Val square =
        fma(r, r, -0x1p-30);  // not 0, so that the sum below keeps the sign of a zero
    return fma(r * square, -kErfCubic, r);
  }
  const Format& format = format_of(x);
  const Val t = at_most(abs(x), 5.95);
  const Val u = t * horner_by_parity(t, kErf64);
  const Val shifted = u + format.magic;
  const Val f = u - (shifted - format.magic);
  const Val power = power_of_two(bits_of(shifted), format);
  const Coefficients c = kFall64;
  const Val fall = fma(f, c[0], f * f * horner(f, c.subspan(1)));
  return copy_sign(fma(power, fall, 1 - power), x);
}

Val erfinv(Val x) {
  const Val d = fma(-x, x, 1);  // 1 - x^2, rounded once
  const Val w = -log_normal(d);
  const Val end = select(abs(x) == 1, x * kInfinity, lift(x, kNan));
  const Val slow = select(lift(x, 0.0) < d, erfinv_tail(x, w), end);
  const double border = pick(x, 0x1.44e51p-9, 0x1.b993fe00d5376p-8);  // e^-6, e^-5
  return rare(d < border, x * horner(w, kInverse.of(x)), slow);
}

}  // namespace cermet::ir::math
