// SPDX-License-Identifier: MIT
#include "kernel/math_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace cermet::ir {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One Newton-Halley step of erf(y) = x from a y near the truth gives it to double precision.
double erfinv_from(double x, double near) {
  const double t = std::fabs(x);
  if (t == 0 || !(t < 1)) return t == 1 ? x * kInf : t == 0 ? x : kNan;
  double y = std::fabs(near);
  if (!(y > 0 && y < 27)) y = 0.5;
  for (int i = 0; i < 2; ++i) {
    const double error = t < 0.5 ? std::erf(y) - t : (1 - t) - std::erfc(y);
    const double step = error * 0.88622692545275801365 * std::exp(y * y);
    y -= step / (1 + y * step);
  }
  return std::copysign(y, x);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

// mpfr_rec_sqrt(-0) is +inf, where IEEE 754 has -inf. At 200 bits a second rounding is nothing.
int mpfr_rsqrt(mpfr_t out, const mpfr_t x, mpfr_rnd_t round) {
  mpfr_sqrt(out, x, round);
  return mpfr_ui_div(out, 1, out, round);
}

const UnaryRow kUnary[] = {
    {Code::exp, std::exp, 0x1p-12, 110, mpfr_exp},
    {Code::exp2, std::exp2, 0x1p-12, 155, mpfr_exp2},
    {Code::expm1, std::expm1, 0x1p-14, 90, mpfr_expm1},
    {Code::log, std::log, 0x1p-3, 8, mpfr_log},
    {Code::log2, std::log2, 0x1p-3, 8, mpfr_log2},
    {Code::log10, std::log10, 0x1p-3, 8, mpfr_log10},
    {Code::log1p, std::log1p, 0x1p-10, 16, mpfr_log1p},
    {Code::sin, std::sin, 0x1p-4, 0x1p18, mpfr_sin},
    {Code::cos, std::cos, 0x1p-4, 0x1p18, mpfr_cos},
    {Code::tan, std::tan, 0x1p-4, 0x1p18, mpfr_tan},
    {Code::asin, std::asin, 0x1p-6, 1, mpfr_asin},
    {Code::acos, std::acos, 0x1p-6, 1, mpfr_acos},
    {Code::atan, std::atan, 0x1p-6, 64, mpfr_atan},
    {Code::sinh, std::sinh, 0x1p-6, 90, mpfr_sinh},
    {Code::cosh, std::cosh, 0x1p-6, 90, mpfr_cosh},
    {Code::tanh, std::tanh, 0x1p-6, 10, mpfr_tanh},
    {Code::asinh, std::asinh, 0x1p-6, 64, mpfr_asinh},
    {Code::acosh, std::acosh, 1, 64, mpfr_acosh},
    {Code::atanh, std::atanh, 0x1p-6, 1, mpfr_atanh},
    {Code::erf, std::erf, 0x1p-8, 4.5, mpfr_erf},
    {Code::erfinv, nullptr, 0x1p-8, 1, nullptr},
    {Code::sigmoid, sigmoid, 0x1p-4, 110, nullptr},
    {Code::rsqrt, rsqrt, 0x1p-3, 8, mpfr_rsqrt},
};

const PairRow kPairs[] = {{Code::pow, std::pow, mpfr_pow}, {Code::atan2, std::atan2, mpfr_atan2}};

}  // namespace

std::span<const UnaryRow> unary_rows() { return kUnary; }
std::span<const PairRow> pair_rows() { return kPairs; }

float random_float(uint64_t bits) {
  const auto word = static_cast<uint32_t>(bits);
  if ((bits >> 63) != 0) return std::bit_cast<float>(word);
  return std::bit_cast<float>((word & 0x807fffffu) | ((119u + (word >> 23) % 16) << 23));
}

double random_double(uint64_t bits) {
  if ((bits & 1) != 0) return std::bit_cast<double>(bits);
  const uint64_t exponent = 1015 + (bits >> 52) % 16;
  return std::bit_cast<double>((bits & 0x800fffffffffffffu) | (exponent << 52));
}

double reference(const UnaryRow& row, double x, double near) {
  return row.libm != nullptr ? row.libm(x) : erfinv_from(x, near);
}

double ulps(float got, double truth) {
  if (std::isnan(truth)) return std::isnan(got) ? 0 : kInf;
  const float rounded = static_cast<float>(truth);
  if (std::isinf(rounded) || std::isinf(got) || std::isnan(got))
    return got == rounded ? 0
           : std::isinf(rounded) && std::isfinite(truth) && std::isfinite(got)
               ? (std::fabs(truth) - std::fabs(static_cast<double>(got))) * 0x1p-104
               : kInf;
  if (truth == 0 && (got != 0 || std::signbit(got) != std::signbit(truth))) return kInf;
  if (got == 0 && std::signbit(got) != std::signbit(truth)) return kInf;
  const int exponent = std::max(truth == 0 ? -126 : std::ilogb(truth), -126);
  return std::fabs(static_cast<double>(got) - truth) *
         std::bit_cast<double>(uint64_t(1023 + 23 - exponent) << 52);
}

std::string describe(Code code, const Worst& w) {
  return fmt::format("{}({:a}, {:a}) = {:a}, right is {:a}: {:.3f} ulp", name_of(code), w.at, w.at2,
                     w.got, w.truth, w.error);
}

}  // namespace cermet::ir
