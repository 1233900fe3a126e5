// SPDX-License-Identifier: MIT
#include "kernel/scalar_ops.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"

namespace cermet::ir {

namespace {

template <typename T>
T get(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(bits);
  else return static_cast<T>(bits);
}

template <typename T>
uint64_t put(T value) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<uint64_t>(value);
  else return static_cast<std::make_unsigned_t<T>>(value);
}

template <typename T>
T saturate(double v) {
  // 2^digits is a double though the maximum may not be.
  const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (std::isnan(v)) return 0;
  if (v >= limit) return std::numeric_limits<T>::max();
  if (v <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(v);
}

// A float that any narrower format rounds to the same as it rounds v: inexact results get an odd
// last bit (rounding to odd).
float to_odd_float(double v) {
  const float nearest = static_cast<float>(v);
  if (std::isnan(v) || std::isinf(nearest) || static_cast<double>(nearest) == v) return nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if ((bits & 1) != 0) return nearest;
  const bool away = std::fabs(v) > std::fabs(static_cast<double>(nearest));
  return std::bit_cast<float>(away ? bits + 1 : bits - 1);
}

uint64_t cast_bits(Dtype to, Dtype from, uint64_t bits) {
  if (is_floating(from)) return from_double(to, to_double(from, bits));
  return visit_dtype(from, [&]<typename F>(std::type_identity<F>) -> uint64_t {
    if constexpr (std::is_integral_v<F>) {
      const F value = get<F>(bits);
      switch (to) {
        case Dtype::boolean: return value != 0;
        case Dtype::float32: return put(static_cast<float>(value));
        case Dtype::float64: return put(static_cast<double>(value));
        case Dtype::float16: return Float16(static_cast<float>(value)).bits;
        case Dtype::bfloat16: return BFloat16(static_cast<float>(value)).bits;
        default: break;
      }
      const uint64_t wide = static_cast<uint64_t>(static_cast<int64_t>(value));
      const size_t size = size_of(to);
      return size == 8 ? wide : wide & ((uint64_t{1} << (8 * size)) - 1);
    } else {
      return 0;
    }
  });
}

template <typename T>
uint64_t compare(Code code, T a, T b) {
  switch (code) {
    case Code::eq: return a == b;
    case Code::ne: return a != b;
    case Code::lt: return a < b;
    default: return a <= b;
  }
}

template <typename T>
T integer_op(Code code, T a, T b) {
  using U = std::make_unsigned_t<T>;
  constexpr unsigned kWidth = 8 * sizeof(T);
  // 64 bits, so that no promoted product overflows an int.
  const uint64_t x = static_cast<U>(a), y = static_cast<U>(b);
  const unsigned count = static_cast<unsigned>(y % kWidth);
  const bool overflow = std::is_signed_v<T> && b == static_cast<T>(-1);
  switch (code) {
    case Code::add: return static_cast<T>(x + y);
    case Code::sub: return static_cast<T>(x - y);
    case Code::mul: return static_cast<T>(x * y);
    case Code::div: return b == 0 ? 0 : overflow ? static_cast<T>(0 - x) : static_cast<T>(a / b);
    case Code::rem: return b == 0 || overflow ? 0 : static_cast<T>(a % b);
    case Code::neg: return static_cast<T>(0 - x);
    case Code::abs: return a < 0 ? static_cast<T>(0 - x) : a;
    case Code::min: return a < b ? a : b;
    case Code::max: return a < b ? b : a;
    case Code::bit_and: return static_cast<T>(x & y);
    case Code::bit_or: return static_cast<T>(x | y);
    case Code::bit_xor: return static_cast<T>(x ^ y);
    case Code::bit_not: return static_cast<T>(~x);
    case Code::shl: return static_cast<T>(x << count);
    case Code::shr: return static_cast<T>(a >> count);
    case Code::rotl: return static_cast<T>(std::rotl(static_cast<U>(a), static_cast<int>(count)));
    default: break;
  }
  throw_internal(__FILE__, __LINE__, fmt::format("{} of integers", name_of(code)));
}

template <typename T>
T float_min(T a, T b, bool max) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) != max ? a : b;
  return (a < b) != max ? a : b;
}

// Halley's iteration on erf from Giles' approximation (single precision, 2010).
double erfinv(double y) {
  if (std::isnan(y) || std::fabs(y) > 1) return std::numeric_limits<double>::quiet_NaN();
  if (std::fabs(y) == 1) return std::copysign(std::numeric_limits<double>::infinity(), y);
  if (std::fabs(y) < 1e-9) return y * (std::sqrt(std::numbers::pi) / 2);
  const double a = std::fabs(y);
  const double w = -std::log1p(-a * a);
  const double c = 2 / (std::numbers::pi * 0.147) - w / 2;
  double x = std::sqrt(std::sqrt(c * c + w / 0.147) - c);
  for (int i = 0; i < 4; ++i) {
    const double error = a > 0.5 ? (1 - a) - std::erfc(x) : std::erf(x) - a;
    const double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-x * x);
    const double step = error / slope;
    x -= step / (1 + x * step);
  }
  return std::copysign(x, y);
}

double math_op(Code code, double a, double b) {
  switch (code) {
    case Code::exp: return std::exp(a);
    case Code::exp_nonpositive:
    case Code::exp_nonpositive_bfloat16: return a < -99.5 * std::numbers::ln2 ? 0 : std::exp(a);
    case Code::exp2: return std::exp2(a);
    case Code::expm1: return std::expm1(a);
    case Code::log: return std::log(a);
    case Code::log2: return std::log2(a);
    case Code::log10: return std::log10(a);
    case Code::log1p: return std::log1p(a);
    case Code::sin: return std::sin(a);
    case Code::cos: return std::cos(a);
    case Code::tan: return std::tan(a);
    case Code::asin: return std::asin(a);
    case Code::acos: return std::acos(a);
    case Code::atan: return std::atan(a);
    case Code::atan2: return std::atan2(a, b);
    case Code::sinh: return std::sinh(a);
    case Code::cosh: return std::cosh(a);
    case Code::tanh: return std::tanh(a);
    case Code::asinh: return std::asinh(a);
    case Code::acosh: return std::acosh(a);
    case Code::atanh: return std::atanh(a);
    case Code::erf: return std::erf(a);
    case Code::erfinv: return erfinv(a);
    case Code::sigmoid: return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
    case Code::pow: return std::pow(a, b);
    case Code::rsqrt: return 1 / std::sqrt(a);
    default: break;
  }
  throw_internal(__FILE__, __LINE__, fmt::format("{} of floats", name_of(code)));
}

template <typename T>
T float_op(Code code, T a, T b, T c) {
  switch (code) {
    case Code::add: return a + b;
    case Code::sub: return a - b;
    case Code::mul: return a * b;
    case Code::div: return a / b;
    case Code::rem: return std::fmod(a, b);
    case Code::neg: return -a;
    case Code::abs: return std::fabs(a);
    case Code::fma: return std::fma(a, b, c);
    case Code::min: return float_min(a, b, false);
    case Code::max: return float_min(a, b, true);
    case Code::sqrt: return std::sqrt(a);
    case Code::floor: return std::floor(a);
    case Code::ceil: return std::ceil(a);
    case Code::trunc: return std::trunc(a);
    case Code::rint: return std::nearbyint(a);
    case Code::scale2: return std::ldexp(a, saturate<int>(b));
    case Code::fract: return a - std::floor(a);
    default: break;
  }
  return static_cast<T>(math_op(code, a, b));
}

template <typename T>
uint64_t run(Code code, const uint64_t* bits) {
  const int arity = arity_of(code);
  const T a = get<T>(bits[0]);
  const T b = arity > 1 ? get<T>(bits[1]) : a;
  if (code >= Code::eq && code <= Code::le) return compare(code, a, b);
  if constexpr (std::is_floating_point_v<T>) {
    return put(float_op(code, a, b, arity > 2 ? get<T>(bits[2]) : a));
  } else {
    return put(integer_op(code, a, b));
  }
}

}  // namespace

uint64_t from_double(Dtype dtype, double value) {
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) -> uint64_t {
    if constexpr (std::is_same_v<T, bool>) return value != 0;
    else if constexpr (std::is_integral_v<T>) return put(saturate<T>(value));
    else if constexpr (std::is_floating_point_v<T>) return put(static_cast<T>(value));
    else if constexpr (sizeof(T) == 2) return T(to_odd_float(value)).bits;
    else throw_internal(__FILE__, __LINE__, "a complex value in a kernel");
  });
}

uint64_t neutral_of(Code code, Dtype dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (code) {
    case Code::add: return from_double(dtype, -0.0);
    case Code::mul: return from_double(dtype, 1);
    case Code::min: return from_double(dtype, kInfinity);
    case Code::max: return from_double(dtype, -kInfinity);
    default: throw_internal(__FILE__, __LINE__, "an update in parts by such a code");
  }
}

double to_double(Dtype dtype, uint64_t bits) {
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) -> double {
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<double>(get<T>(bits));
    } else if constexpr (sizeof(T) == 2) {
      T half;
      half.bits = static_cast<uint16_t>(bits);
      return static_cast<float>(half);
    } else {
      throw_internal(__FILE__, __LINE__, "a complex value in a kernel");
    }
  });
}

uint64_t apply(Code code, Dtype result, Dtype operand, const uint64_t* bits) {
  if (code == Code::select) return bits[0] != 0 ? bits[1] : bits[2];
  if (code == Code::bitcast) return bits[0];
  if (code == Code::cast || code == Code::cast_normal) return cast_bits(result, operand, bits[0]);
  switch (operand) {
    case Dtype::boolean: return run<uint8_t>(code, bits) & 1;
    case Dtype::uint8: return run<uint8_t>(code, bits);
    case Dtype::uint16: return run<uint16_t>(code, bits);
    case Dtype::uint32: return run<uint32_t>(code, bits);
    case Dtype::uint64: return run<uint64_t>(code, bits);
    case Dtype::int8: return run<int8_t>(code, bits);
    case Dtype::int16: return run<int16_t>(code, bits);
    case Dtype::int32: return run<int32_t>(code, bits);
    case Dtype::int64: return run<int64_t>(code, bits);
    case Dtype::float32: return run<float>(code, bits);
    case Dtype::float64: return run<double>(code, bits);
    default: break;
  }
  throw_internal(__FILE__, __LINE__,
                 fmt::format("{} of dtype {}", name_of(code), name_of(operand)));
}

std::array<uint32_t, 2> threefry2x32(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {k0, k1, 0x1BD11BDAu ^ k0 ^ k1};
  uint32_t x0 = c0 + k0, x1 = c1 + k1;
  for (uint32_t group = 0; group < 5; ++group) {
    for (int rotation : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, rotation) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + group + 1;
  }
  return {x0, x1};
}

}  // namespace cermet::ir
