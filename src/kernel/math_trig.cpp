// SPDX-License-Identifier: MIT
// Sine, cosine and tangent. x = n·pi + r with |r| <= pi/2 (n half-odd for the cosine; n·pi/2 and pi/4 for
// the tangent), n·pi in three parts by fma, exact enough for r near its zeros; one odd polynomial in r
// with the sign (-1)^n put on r. Above a limit the reduction is that of Payne and Hanek: the bits of
// 1/(2 pi) from the exponent of x on, times the mantissa, as a fraction of a turn in fixed point.
#include <limits>
#include <vector>

#include "kernel/math_internal.h"

namespace cermet::ir::math {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 0x1.921fb54442d18p+1;

// (sin r - r)/r^3 in r^2, |r| <= pi/2. Minimax; relative error of sin 2^-27.3, 2^-61.9.
constexpr double kSin32[] = {-0x1.55555p-3, 0x1.110ef4p-7, -0x1.9f70dep-13, 0x1.5dc5f6p-19};
constexpr double kSin64[] = {-0x1.5555555555555p-3, 0x1.11111111110cdp-7,   -0x1.a01a01a01559fp-13,
                             0x1.71de3a52f3831p-19, -0x1.ae64550a20102p-26, 0x1.6123e098cca6fp-33,
                             -0x1.ae4ba3df2938p-41, 0x1.89fd95e426682p-49,  -0x1.4e91ffe53eb32p-60};
constexpr Table kSin = {kSin32, kSin64};

// (tan r - r)/r^3 in r^2, |r| <= pi/4. Minimax; relative error of tan 2^-25.7, 2^-56.2.
constexpr double kTan32[] = {0x1.5554dep-2, 0x1.112deap-3, 0x1.b58514p-5,
                             0x1.90732cp-6, 0x1.967abp-9,  0x1.33e98cp-7};
constexpr double kTan64[] = {0x1.55555555554f2p-2,   0x1.11111111182c5p-3,   0x1.ba1ba1b46c83cp-5,
                             0x1.664f49a831115p-6,   0x1.226e12615cc4fp-7,   0x1.d6d932bb527ddp-9,
                             0x1.7d5b689952709p-10,  0x1.37fa25cae8e19p-11,  0x1.d275778760a32p-13,
                             0x1.1e1f5c252f676p-13,  -0x1.b889c62cebfc7p-16, 0x1.76b33a6edfcc9p-14,
                             -0x1.77ece5d27384ap-15, 0x1.5dc673a9ddde8p-16};
constexpr Table kTan = {kTan32, kTan64};

// The bits of 1/(2 pi), after 32 zero bits.
constexpr uint64_t kTurn[] = {
    0x0000000028be60db, 0x9391054a7f09d5f4, 0x7d4d377036d8a566, 0x4f10e4107f9458ea,
    0xf7aef1586dc91b8e, 0x909374b801924bba, 0x827464873f877ac7, 0x2c4a69cfba208d7d,
    0x4baed1213a671c09, 0xad17df904e64758e, 0x60d4ce7d272117e2, 0xef7e4a0ec7fe25ff,
    0xf7816603fbcbc462, 0xd6829b47db4d9fb3, 0xc9f2c26dd3d18fd9, 0xa797fa8b5d49eeb1,
    0xfaf97c5ecf41ce7d, 0xe294a4ba9afed7ec, 0x47e357421580cc11};

// Largest |x| for three parts of pi.
double direct_limit(Val x) { return pick(x, 0x1p17, 0x1p28); }

// x - n·pi·unit, unit 1 or 1/2.
Val subtract(Val x, Val n, double unit) {
  const double p1 = pick(x, 0x1.921fb4p+1, kPi), p2 = pick(x, 0x1.4442dp-23, 0x1.1a62633145c06p-53);
  const double p3 = pick(x, 0x1.84698ap-47, 0x1.c1cd129024e09p-106);
  return fma(n, -p3 * unit, fma(n, -p2 * unit, fma(n, -p1 * unit, x)));
}

// 64-bit words from bit `at` of kTurn on, N of them.
template <int N>
std::array<Val, N> window(Val at) {
  std::vector<Val> words;
  for (uint64_t word : kTurn) words.push_back(lift(at, word));
  const Val index = at >> 6;
  for (int bit = N == 2 ? 1 : 3; bit >= 0; --bit) {
    const Val set = (index & (uint64_t{1} << bit)) != 0;
    const size_t step = size_t{1} << bit, keep = N + step;
    std::vector<Val> moved;
    for (size_t i = 0; i < keep; ++i)
      moved.push_back(i + step < words.size() ? select(set, words[i + step], words[i]) : words[i]);
    words = moved;
  }
  const Val left = at & 63, right = left ^ 63;
  std::array<Val, N> out = {};
  for (int i = 0; i < N; ++i) out[i] = (words[i] << left) | ((words[i + 1] >> 1) >> right);
  return out;
}

// The high word of a·b.
Val multiply_high(Val a, Val b) {
  constexpr uint64_t kLow = 0xffffffff;
  const Val a0 = a & kLow, a1 = a >> 32, b0 = b & kLow, b1 = b >> 32;
  const Val middle = a1 * b0 + ((a0 * b0) >> 32);
  const Val other = a0 * b1 + (middle & kLow);
  return a1 * b1 + ((middle >> 32) + (other >> 32));
}

// |x| as a fraction of a turn: (high + low 2^-64) 2^-64. For |x| above direct_limit.
struct Turn {
  Val high, low;
};

Turn turns(Val t) {
  const Format& format = format_of(t);
  const Val bits = cast(bits_of(t), Dtype::uint64);
  const uint64_t hidden = uint64_t{1} << format.mantissa;
  const Val mantissa = (bits & (hidden - 1)) | hidden;
  const Val at = (bits >> format.mantissa) - (format.bias + format.mantissa - 32);
  if (!is_double(t)) {
    const auto w = window<2>(at);
    return {mantissa * w[0] + ((mantissa * (w[1] >> 32)) >> 32), lift(at, 0)};
  }
  const auto w = window<3>(at);
  const Val part = mantissa * w[1];
  const Val low = part + multiply_high(mantissa, w[2]);
  const Val carry = select(low < part, lift(at, 1), lift(at, 0));
  return {mantissa * w[0] + multiply_high(mantissa, w[1]) + carry, low};
}

// The turn's signed distance to the nearest multiple of 2^-k turns, times 2 pi; NaN unless t is finite.
Val remainder(const Turn& turn, int k, Val t) {
  const Dtype wide = Dtype::float64;
  const double unit = 2 * kPi * (k == 1 ? 0x1p-65 : 0x1p-66);
  Val r = turn.high;
  if (is_double(t)) {
    const Val high = (turn.high << k) | (turn.low >> (64 - k)), low = turn.low << k;
    r = fma(cast(bitcast(high, Dtype::int64), wide), unit, cast(low, wide) * (unit * 0x1p-64));
  } else {
    r = cast(cast(bitcast(turn.high << k, Dtype::int64), wide) * unit, t.dtype());
  }
  return select(t < kInfinity, r, lift(t, kNan));
}

int top_bit(Val x) { return pick(x, 31, 63); }

// The sign bit of a Val of x's dtype from bit 63 of a turn.
Val turn_sign(Val turn, Val x) {
  const Val top = turn & (uint64_t{1} << 63);
  return is_double(x) ? top : cast(top >> 32, Dtype::uint32);
}

Val flip(Val x, Val sign) { return from_bits(bits_of(x) ^ sign, x.dtype()); }

// sin r, |r| <= pi/2, as r (1/2 + s P) + r/2: keeps the sign of zero.
Val sin_reduced(Val r) {
  const Val s = r * r;
  return fma(r, fma(horner(s, kSin.of(r)), s, 0.5), r * 0.5);
}

// The signed rest of a turn, quarter = 0 for the sine, 1/4 for the cosine.
Val sin_turn(Val t, uint64_t quarter) {
  const Turn turn = turns(t);
  const Val moved = turn.high + quarter;
  const Val r = remainder({moved, turn.low}, 1, t);
  return flip(r, turn_sign(moved + (uint64_t{1} << 62), t));
}

}  // namespace

Val sin(Val x) {
  const Rounded n = round_product(x, 1 / kPi);
  const Val r = flip(subtract(x, n.real, 1), n.bits << top_bit(x));
  const Val t = abs(x);
  const Val huge = lift(t, direct_limit(x)) < t;
  return sin_reduced(rare(huge, r, flip(sin_turn(t, 0), sign_of(x))));
}

// cos x = (-1)^n sin(x - (n - 1/2) pi).
Val cos(Val x) {
  const Format& format = format_of(x);
  const Val t = abs(x);
  const Val shifted = fma(t, 1 / kPi, 0.5) + format.magic;
  const Val n = shifted - format.magic;
  const Val r = flip(subtract(t, n - 0.5, 1), bits_of(shifted) << top_bit(x));
  const Val huge = lift(t, direct_limit(x)) < t;
  return sin_reduced(rare(huge, r, sin_turn(t, uint64_t{1} << 62)));
}

// tan r or -1/tan r with r = x - n pi/2.
Val tan(Val x) {
  const Format& format = format_of(x);
  const Rounded n = round_product(x, 2 / kPi);
  const Val t = abs(x);
  const Val huge = lift(t, direct_limit(x)) < t;
  const Turn turn = turns(t);
  const Val moved = turn.high + (uint64_t{1} << 61);
  const Val quarter = moved >> 62;
  const Val slow_odd = is_double(x) ? quarter : cast(quarter, format.bits);
  const Val r = rare(huge, subtract(x, n.real, 0.5), flip(remainder(turn, 2, t), sign_of(x)));
  const Val odd = (rare(huge, n.bits, slow_odd) & 1) != 0;
  const Val s = r * r;
  const Val value = fma(r * s, horner(s, kTan.of(x)), r);
  return select(odd, lift(x, -1.0), value) / select(odd, value, 1.0);
}

}  // namespace cermet::ir::math
