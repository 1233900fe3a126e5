// SPDX-License-Identifier: MIT
#include "ops/complex_math.h"

#include <cmath>
#include <limits>

namespace cermet::rules {

using ir::Code;

Lane ComplexMath::mul(Lane a, Lane b) {
  return {b_.sub(b_.mul(a.re, b.re), b_.mul(a.im, b.im)),
          b_.add(b_.mul(a.re, b.im), b_.mul(a.im, b.re))};
}

Lane ComplexMath::div(Lane a, Lane b) {
  const E re_is_large = b_.compare(Code::le, magnitude(b.im), magnitude(b.re));
  const E large = b_.select(re_is_large, b.re, b.im);
  const E small = b_.select(re_is_large, b.im, b.re);
  // As NumPy, a quotient by 0 has infinite parts.
  const E is_zero = b_.compare(Code::eq, large, constant(0));
  const E ratio = b_.select(is_zero, constant(0), b_.div(small, large));
  const E denominator = b_.select(is_zero, constant(0), b_.add(large, b_.mul(small, ratio)));
  const E first = b_.select(re_is_large, a.re, a.im);
  const E second = b_.select(re_is_large, a.im, a.re);
  // (first + second * ratio, ±(second - first * ratio))
  const E re = b_.div(b_.add(first, b_.mul(second, ratio)), denominator);
  const E im = b_.div(b_.sub(second, b_.mul(first, ratio)), denominator);
  return {re, b_.select(re_is_large, im, neg(im))};
}

ComplexMath::E ComplexMath::abs(Lane a) {
  const E x = magnitude(a.re), y = magnitude(a.im);
  const E large = b_.max(x, y), small = b_.min(x, y);
  const E ratio = b_.div(small, large);
  const E root = call(Code::sqrt, b_.add(constant(1), b_.mul(ratio, ratio)));
  const E infinity = constant(std::numeric_limits<double>::infinity());
  // Whatever the other part is, NaN too.
  const E is_infinite =
      b_.logical_or(b_.compare(Code::eq, x, infinity), b_.compare(Code::eq, y, infinity));
  const E is_zero = b_.compare(Code::eq, large, constant(0));
  return b_.select(is_infinite, infinity, b_.select(is_zero, large, b_.mul(large, root)));
}

Lane ComplexMath::sign(Lane a) {
  const E size = abs(a), zero = constant(0);
  const E is_zero = b_.compare(Code::eq, size, zero);
  return {b_.select(is_zero, zero, b_.div(a.re, size)),
          b_.select(is_zero, zero, b_.div(a.im, size))};
}

ComplexMath::E ComplexMath::with_sign(E size, E sign) {
  const Dtype bits = dtype_ == Dtype::float32 ? Dtype::uint32 : Dtype::uint64;
  const E mask = b_.constant_bits(bits, dtype_ == Dtype::float32 ? 0x80000000u : uint64_t{1} << 63);
  const E positive = b_.bitcast(magnitude(size), bits);
  return b_.bitcast(b_.logical_or(positive, b_.logical_and(b_.bitcast(sign, bits), mask)), dtype_);
}

Lane ComplexMath::sqrt(Lane a) {
  // Halved before the sum, so that |a| near the largest number does not overflow.
  const E half = constant(0.5), zero = constant(0);
  const E root = call(Code::sqrt, b_.add(b_.mul(magnitude(a.re), half), b_.mul(abs(a), half)));
  const E other = b_.select(b_.compare(Code::eq, root, zero), zero,
                            b_.div(b_.mul(magnitude(a.im), half), root));
  const E is_right = b_.compare(Code::le, zero, a.re);
  return {b_.select(is_right, root, other), with_sign(b_.select(is_right, other, root), a.im)};
}

// The product may be finite where the function is not: far out, where it grows by e^40 in 40, it is taken
// 40 nearer.
ComplexMath::E ComplexMath::growing(Code code, E x, E factor) {
  const E distance = code == Code::exp ? x : magnitude(x);
  const E is_far = b_.compare(Code::lt, constant(dtype_ == Dtype::float32 ? 88 : 709), distance);
  const E nearer = b_.sub(x, with_sign(constant(40), x));
  const E product = b_.mul(call(code, b_.select(is_far, nearer, x)), factor);
  return b_.select(is_far, b_.mul(product, constant(std::exp(40.0))), product);
}

Lane ComplexMath::exp(Lane a) {
  const E im = growing(Code::exp, a.re, call(Code::sin, a.im));
  const E is_real = b_.compare(Code::eq, a.im, constant(0));  // inf * 0 would be NaN
  return {growing(Code::exp, a.re, call(Code::cos, a.im)), b_.select(is_real, a.im, im)};
}

Lane ComplexMath::expm1(Lane a) {
  // e^x cos y - 1 = (e^x - 1) cos y - 2 sin²(y/2): small where z is.
  const E half = call(Code::sin, b_.mul(constant(0.5), a.im));
  const E re = b_.sub(b_.mul(call(Code::expm1, a.re), call(Code::cos, a.im)),
                      b_.mul(constant(2), b_.mul(half, half)));
  const Lane whole = exp(a);
  return {b_.select(b_.compare(Code::lt, constant(80), a.re), whole.re, re), whole.im};
}

// The parts' squares to twice the digits, so that what 1 leaves of their sum has all of its own.
ComplexMath::E ComplexMath::norm_less_one(Lane a) {
  const E x = magnitude(a.re), y = magnitude(a.im);
  const E large = b_.max(x, y), small = b_.min(x, y);
  const E p = b_.mul(large, large), q = b_.mul(small, small);
  const E squares_rest = b_.add(b_.fma(large, large, neg(p)), b_.fma(small, small, neg(q)));
  const E first = b_.sub(p, constant(1));
  const E sum = b_.add(first, q);
  const E added = b_.sub(sum, first);
  const E sum_rest = b_.add(b_.sub(first, b_.sub(sum, added)), b_.sub(q, added));
  return b_.add(sum, b_.add(sum_rest, squares_rest));
}

Lane ComplexMath::log(Lane a) {
  const E beyond = norm_less_one(a);
  const E near = b_.mul(constant(0.5), call(Code::log1p, beyond));
  const E is_near = b_.compare(Code::lt, magnitude(beyond), constant(0.5));
  return {b_.select(is_near, near, call(Code::log, abs(a))),
          b_.op(Code::atan2, dtype_, {a.im, a.re})};
}

Lane ComplexMath::log1p(Lane a) {
  // log|1 + z| = log1p(x (2 + x) + y²) / 2, exact where |z| is small.
  const E square = b_.add(b_.mul(a.re, b_.add(constant(2), a.re)), b_.mul(a.im, a.im));
  const E near = b_.mul(constant(0.5), call(Code::log1p, square));
  const Lane far = log(plus_one(a));
  const E is_near = b_.compare(Code::lt, magnitude(square), constant(0.5));
  return {b_.select(is_near, near, far.re), far.im};
}

Lane ComplexMath::pow(Lane a, Lane b) {
  const Lane power = exp(mul(b, log(a)));
  const E zero = constant(0), one = constant(1);
  const E nan = constant(std::numeric_limits<double>::quiet_NaN());
  const E base_zero =
      b_.logical_and(b_.compare(Code::eq, a.re, zero), b_.compare(Code::eq, a.im, zero));
  const E exponent_zero =
      b_.logical_and(b_.compare(Code::eq, b.re, zero), b_.compare(Code::eq, b.im, zero));
  const E of_zero = b_.select(b_.compare(Code::lt, zero, b.re), zero, nan);
  const E re = b_.select(base_zero, of_zero, power.re);
  const E im = b_.select(base_zero, of_zero, power.im);
  return {b_.select(exponent_zero, one, re), b_.select(exponent_zero, zero, im)};
}

Lane ComplexMath::sinh(Lane a) {
  return {growing(Code::sinh, a.re, call(Code::cos, a.im)),
          growing(Code::cosh, a.re, call(Code::sin, a.im))};
}

Lane ComplexMath::cosh(Lane a) {
  return {growing(Code::cosh, a.re, call(Code::cos, a.im)),
          growing(Code::sinh, a.re, call(Code::sin, a.im))};
}

Lane ComplexMath::tanh(Lane a) {
  const E one = constant(1);
  const E t = call(Code::tan, a.im);
  const E beta = b_.add(one, b_.mul(t, t));
  const E s = call(Code::sinh, a.re);
  const E rho = call(Code::sqrt, b_.add(one, b_.mul(s, s)));
  const E denominator = b_.add(one, b_.mul(beta, b_.mul(s, s)));
  const E re = b_.div(b_.mul(beta, b_.mul(rho, s)), denominator);
  const E im = b_.div(t, denominator);
  // Far out, tanh z = ±1 + 4i sin y cos y e^(-2|x|).
  const E size = magnitude(a.re);
  const E is_far = b_.compare(Code::lt, constant(dtype_ == Dtype::float32 ? 11 : 22), size);
  const E tail = b_.mul(b_.mul(constant(4), call(Code::exp, b_.mul(constant(-2), size))),
                        b_.mul(call(Code::sin, a.im), call(Code::cos, a.im)));
  return {b_.select(is_far, with_sign(one, a.re), re), b_.select(is_far, tail, im)};
}

Lane ComplexMath::asin(Lane a) {
  const Lane minus = sqrt(one_minus(a)), plus = sqrt(plus_one(a));
  return {b_.op(Code::atan2, dtype_, {a.re, mul(minus, plus).re}),
          call(Code::asinh, mul(conj(minus), plus).im)};
}

Lane ComplexMath::acos(Lane a) {
  const Lane minus = sqrt(one_minus(a)), plus = sqrt(plus_one(a));
  return {b_.mul(constant(2), b_.op(Code::atan2, dtype_, {minus.re, plus.re})),
          call(Code::asinh, mul(conj(plus), minus).im)};
}

Lane ComplexMath::acosh(Lane a) {
  const Lane minus = sqrt({b_.sub(a.re, constant(1)), a.im}), plus = sqrt(plus_one(a));
  return {call(Code::asinh, mul(conj(minus), plus).re),
          b_.mul(constant(2), b_.op(Code::atan2, dtype_, {minus.im, plus.re}))};
}

Lane ComplexMath::atanh(Lane a) {
  // On the right half, where log1p has no argument near -1; the real part is odd in a.re.
  const E one = constant(1), x = magnitude(a.re);
  const E left = b_.sub(one, x), right = b_.add(one, x);
  const E square = b_.mul(a.im, a.im);
  const E distance = b_.add(b_.mul(left, left), square);
  const E re = b_.mul(constant(0.25), call(Code::log1p, b_.div(b_.mul(constant(4), x), distance)));
  const E im =
      b_.op(Code::atan2, dtype_, {b_.mul(constant(2), a.im), b_.sub(b_.mul(left, right), square)});
  return {with_sign(re, a.re), b_.mul(constant(0.5), im)};
}

Lane ComplexMath::logaddexp(Lane a, Lane b) {
  const E a_is_less = less(a, b);
  const Lane large{b_.select(a_is_less, b.re, a.re), b_.select(a_is_less, b.im, a.im)};
  const Lane small{b_.select(a_is_less, a.re, b.re), b_.select(a_is_less, a.im, b.im)};
  const Lane sum = add(large, log1p(exp(sub(small, large))));
  const E infinity = constant(std::numeric_limits<double>::infinity());
  const E is_large = b_.logical_or(b_.compare(Code::eq, small.re, neg(infinity)),
                                   b_.compare(Code::eq, large.re, infinity));
  return {b_.select(is_large, large.re, sum.re), b_.select(is_large, large.im, sum.im)};
}

ComplexMath::E ComplexMath::less(Lane a, Lane b) {
  const E tie = b_.logical_and(b_.compare(Code::eq, a.re, b.re), b_.compare(Code::lt, a.im, b.im));
  return b_.logical_or(b_.compare(Code::lt, a.re, b.re), tie);
}

ComplexMath::E ComplexMath::is_nan(Lane a) {
  return b_.logical_or(b_.compare(Code::ne, a.re, a.re), b_.compare(Code::ne, a.im, a.im));
}

}  // namespace cermet::rules
