// SPDX-License-Identifier: MIT
// Accuracy of the math expansions: float32 against libm in double, float64 against MPFR, special
// values by a table. CERMET_MATH_SAMPLES sets the float32 samples of each function (default 2^24; `all`
// takes every float).
#include "kernel/math.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "base/error.h"
#include "kernel/block_eval.h"
#include "kernel/builder.h"

namespace cermet::ir {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kBlock = BlockEval::kBlock;

struct Expansion {
  Kernel kernel;
  ExprId root;
};

Expansion expansion(Code code, Dtype dtype) {
  Builder b(std::string(name_of(code)));
  std::vector<ExprId> operands;
  for (int i = 0; i < arity_of(code); ++i) operands.push_back(b.scalar_ref(b.scalar(dtype)));
  const ExprId root = expand_math(b, code, operands);
  return {b.take(), root};
}

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

using Unary = double (*)(double);
struct UnaryRow {
  Code code;
  Unary reference;                                // null: erfinv
  double low, high;                               // where |x| is interesting: half of the samples
  int (*mpfr)(mpfr_t, const mpfr_t, mpfr_rnd_t);  // null: made from others
};

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
    {Code::rsqrt, rsqrt, 0x1p-3, 8, mpfr_rec_sqrt},
};

// Error in units of the last place of the format at `truth`; inf for a wrong NaN, infinity or zero sign.
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

struct Worst {
  double error = 0, at = 0, at2 = 0, got = 0, truth = 0;
  void add(double e, double x, double y, double g, double t) {
    if (!(e <= error)) *this = {e, x, y, g, t};
  }
};

std::string describe(Code code, const Worst& w) {
  return fmt::format("{}({:a}, {:a}) = {:a}, right is {:a}: {:.3f} ulp", name_of(code), w.at, w.at2,
                     w.got, w.truth, w.error);
}

uint64_t sample_count() {
  const char* text = std::getenv("CERMET_MATH_SAMPLES");
  if (!text) return uint64_t{1} << 24;
  return std::string(text) == "all" ? uint64_t{1} << 32 : std::strtoull(text, nullptr, 10);
}

// Sample i of n: every other one anywhere, else in the row's range; `all` is every float.
float sample(const UnaryRow& row, uint64_t i, uint64_t n) {
  if (n >> 32) return std::bit_cast<float>(static_cast<uint32_t>(i));
  const uint32_t low = std::bit_cast<uint32_t>(static_cast<float>(row.low));
  const uint32_t high = std::bit_cast<uint32_t>(static_cast<float>(row.high));
  const uint64_t random = (i * 0x9e3779b97f4a7c15u) >> 32;
  if (i % 2 == 0) return std::bit_cast<float>(static_cast<uint32_t>(random));
  const uint32_t magnitude =
      low + static_cast<uint32_t>(((random & 0x7fffffff) * (high - low + 1)) >> 31);
  return std::bit_cast<float>(magnitude | static_cast<uint32_t>(random & 0x80000000));
}

class UnaryAccuracy : public testing::TestWithParam<UnaryRow> {};

TEST_P(UnaryAccuracy, Float32) {
  const UnaryRow& row = GetParam();
  const Expansion e = expansion(row.code, Dtype::float32);
  BlockEval eval(e.kernel, e.root);
  const uint64_t n = sample_count();
  Worst worst;
  for (uint64_t begin = 0; begin < n; begin += kBlock) {
    float* x = eval.input<float>(0);
    for (int i = 0; i < kBlock; ++i) x[i] = sample(row, begin + i, n);
    const float* got = eval.run<float>();
    for (int i = 0; i < kBlock; ++i) {
      const double truth = row.reference ? row.reference(x[i]) : erfinv_from(x[i], got[i]);
      worst.add(ulps(got[i], truth), x[i], 0, got[i], truth);
    }
  }
  RecordProperty("max_ulp", fmt::format("{:.3f}", worst.error));
  fmt::print("{}\n", describe(row.code, worst));
  EXPECT_LE(worst.error, max_ulp(row.code, Dtype::float32)) << describe(row.code, worst);
}

// MPFR at 200 bits, rounded to twice the precision of a double by the caller's subtraction.
class Real {
 public:
  Real() { mpfr_init2(value_, 200); }
  ~Real() { mpfr_clear(value_); }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;
  operator mpfr_ptr() { return value_; }

 private:
  mpfr_t value_;
};

// Halley's step for erfinv at 200 bits, from a y near the truth.
void mpfr_erfinv(mpfr_ptr out, double x, double near) {
  Real y, error, slope, step, t;
  const double start = std::fabs(near) > 0 && std::fabs(near) < 7 ? near : std::copysign(0.5, x);
  mpfr_set_d(y, start, MPFR_RNDN);
  for (int i = 0; i < 3; ++i) {
    mpfr_erf(error, y, MPFR_RNDN);
    mpfr_sub_d(error, error, x, MPFR_RNDN);
    mpfr_sqr(slope, y, MPFR_RNDN);
    mpfr_exp(slope, slope, MPFR_RNDN);
    mpfr_const_pi(t, MPFR_RNDN);
    mpfr_sqrt(t, t, MPFR_RNDN);
    mpfr_mul(slope, slope, t, MPFR_RNDN);
    mpfr_div_ui(slope, slope, 2, MPFR_RNDN);
    mpfr_mul(step, error, slope, MPFR_RNDN);
    mpfr_mul(t, y, step, MPFR_RNDN);
    mpfr_add_ui(t, t, 1, MPFR_RNDN);
    mpfr_div(step, step, t, MPFR_RNDN);
    mpfr_sub(y, y, step, MPFR_RNDN);
  }
  mpfr_set(out, y, MPFR_RNDN);
}

void mpfr_sigmoid(mpfr_ptr out, const mpfr_t x) {
  mpfr_neg(out, x, MPFR_RNDN);
  mpfr_exp(out, out, MPFR_RNDN);
  mpfr_add_ui(out, out, 1, MPFR_RNDN);
  mpfr_ui_div(out, 1, out, MPFR_RNDN);
}

// As `ulps`, of a double; truth is overwritten.
double ulps(double got, mpfr_ptr truth) {
  const double rounded = mpfr_get_d(truth, MPFR_RNDN);
  if (std::isnan(rounded) || std::isnan(got))
    return std::isnan(rounded) && std::isnan(got) ? 0 : kInf;
  if (std::isinf(rounded) || std::isinf(got)) {
    if (got == rounded) return 0;
    const double edge = std::nextafter(got, -rounded), edge2 = std::nextafter(rounded, -got);
    return edge == rounded || edge2 == got ? 1 : kInf;  // the last finite number beside inf
  }
  if (rounded == 0 && got == 0) return std::signbit(got) == std::signbit(rounded) ? 0 : kInf;
  const int exponent = std::max(rounded == 0 ? -1022 : std::ilogb(rounded), -1022);
  mpfr_sub_d(truth, truth, got, MPFR_RNDN);
  mpfr_mul_2si(truth, truth, 52 - exponent, MPFR_RNDN);
  return std::fabs(mpfr_get_d(truth, MPFR_RNDN));
}

double sample64(const UnaryRow& row, uint64_t random, uint64_t i) {
  if (i % 4 == 0) return std::bit_cast<double>(random);
  const uint64_t low = std::bit_cast<uint64_t>(row.low), high = std::bit_cast<uint64_t>(row.high);
  const uint64_t magnitude = low + (random & ~(uint64_t{1} << 63)) % (high - low + 1);
  return std::bit_cast<double>(magnitude | (random & uint64_t{1} << 63));
}

TEST_P(UnaryAccuracy, Float64) {
  const UnaryRow& row = GetParam();
  const Expansion e = expansion(row.code, Dtype::float64);
  BlockEval eval(e.kernel, e.root);
  std::mt19937_64 random(1);
  Worst worst;
  Real x, truth;
  for (int block = 0; block < 20; ++block) {
    double* in = eval.input<double>(0);
    for (int i = 0; i < kBlock; ++i) in[i] = sample64(row, random(), i);
    const double* got = eval.run<double>();
    for (int i = 0; i < kBlock; ++i) {
      mpfr_set_d(x, in[i], MPFR_RNDN);
      if (row.mpfr) row.mpfr(truth, x, MPFR_RNDN);
      else if (row.code == Code::sigmoid) mpfr_sigmoid(truth, x);
      else if (std::fabs(in[i]) < 1) mpfr_erfinv(truth, in[i], got[i]);
      else mpfr_set_d(truth, std::fabs(in[i]) == 1 ? in[i] * kInf : kNan, MPFR_RNDN);
      const double rounded = mpfr_get_d(truth, MPFR_RNDN);
      worst.add(ulps(got[i], truth), in[i], 0, got[i], rounded);
    }
  }
  fmt::print("{}\n", describe(row.code, worst));
  EXPECT_LE(worst.error, max_ulp(row.code, Dtype::float64)) << describe(row.code, worst);
}

INSTANTIATE_TEST_SUITE_P(Math, UnaryAccuracy, testing::ValuesIn(kUnary),
                         [](const auto& info) { return std::string(name_of(info.param.code)); });

}  // namespace

}  // namespace cermet::ir
