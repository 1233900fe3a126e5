// SPDX-License-Identifier: MIT
// Accuracy of the math expansions: float32 against libm in double, float64 against MPFR, special
// values by a table. Of float32, 2^24 samples of each function; fuzz_accuracy takes every float.
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
#include <type_traits>

#include "base/error.h"
#include "kernel/block_eval.h"
#include "kernel/builder.h"
#include "kernel/math_reference.h"

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

constexpr uint64_t kSamples = uint64_t{1} << 24;

constexpr double kSpecial[] = {0, 1, 0.5, 2, 1e-40, 0x1p-126, 0x1.fffffep127, kInf, kNan};

// Sample i: special values of both signs, then every other one anywhere, else in the row's range.
float sample(const UnaryRow& row, uint64_t i) {
  if (i / 2 < std::size(kSpecial))
    return static_cast<float>(i % 2 == 0 ? kSpecial[i / 2] : -kSpecial[i / 2]);
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
  Worst worst;
  for (uint64_t begin = 0; begin < kSamples; begin += kBlock) {
    float* x = eval.input<float>(0);
    for (int i = 0; i < kBlock; ++i) x[i] = sample(row, begin + i);
    const float* got = eval.run<float>();
    for (int i = 0; i < kBlock; ++i) {
      const double truth = reference(row, x[i], got[i]);
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
double ulps_of_double(double got, mpfr_ptr truth) {
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
  if (i / 2 < std::size(kSpecial)) return i % 2 == 0 ? kSpecial[i / 2] : -kSpecial[i / 2];
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
      else if (in[i] == 0) mpfr_set_d(truth, in[i], MPFR_RNDN);
      else if (std::fabs(in[i]) < 1) mpfr_erfinv(truth, in[i], got[i]);
      else mpfr_set_d(truth, std::fabs(in[i]) == 1 ? in[i] * kInf : kNan, MPFR_RNDN);
      const double rounded = mpfr_get_d(truth, MPFR_RNDN);
      worst.add(ulps_of_double(got[i], truth), in[i], 0, got[i], rounded);
    }
  }
  fmt::print("{}\n", describe(row.code, worst));
  EXPECT_LE(worst.error, max_ulp(row.code, Dtype::float64)) << describe(row.code, worst);
}

INSTANTIATE_TEST_SUITE_P(Math, UnaryAccuracy,
                         testing::ValuesIn(unary_rows().begin(), unary_rows().end()),
                         [](const auto& info) { return std::string(name_of(info.param.code)); });

// Not in a table of rows: it has negative arguments, and what is nothing beside 1 is 0.
template <typename T>
void expect_exp_nonpositive(const Expansion& e, Code code, Dtype dtype, T least) {
  BlockEval eval(e.kernel, e.root);
  std::mt19937_64 random(1);
  for (double low : {-1.0, -16.0, -68.0, -80.0, -1e30}) {
    T* x = eval.input<T>(0);
    std::uniform_real_distribution<double> between(low, 0);
    for (int i = 0; i < kBlock; ++i) x[i] = static_cast<T>(between(random));
    const double special[] = {0, -0.0, -kInf, -3.4e38, -68.95, -69.4, kNan};
    for (size_t i = 0; i < std::size(special); ++i) x[i] = static_cast<T>(special[i]);
    const T* got = eval.run<T>();
    Real truth, at;
    for (int i = 0; i < kBlock; ++i) {
      mpfr_set_d(at, x[i], MPFR_RNDN);
      mpfr_exp(truth, at, MPFR_RNDN);
      if (x[i] < -68.9) {
        EXPECT_LT(got[i], 0x1p-98) << x[i];
        if (x[i] < -69) EXPECT_EQ(got[i], 0) << x[i];
        else EXPECT_TRUE(got[i] == 0 || got[i] > least) << x[i];
        continue;
      }
      const double error = dtype == Dtype::float64
                               ? ulps_of_double(got[i], truth)
                               : ulps(static_cast<float>(got[i]), std::exp(double{x[i]}));
      EXPECT_LE(error, max_ulp(code, dtype)) << x[i];
    }
    EXPECT_EQ(got[0], 1);
  }
}

TEST(Math, ExpNonpositive) {
  for (const Code code : {Code::exp_nonpositive, Code::exp_nonpositive_bfloat16}) {
    expect_exp_nonpositive<float>(expansion(code, Dtype::float32), code, Dtype::float32, 0x1p-101f);
    expect_exp_nonpositive<double>(expansion(code, Dtype::float64), code, Dtype::float64, 0x1p-101);
  }
}

// Of x, and of x = a - b.
TEST(Math, ExpNonpositiveByScaling) {
  for (const bool is_difference : {false, true}) {
    Builder b("scaled");
    const ExprId x = b.scalar_ref(b.scalar(Dtype::float32));
    const ExprId zero = b.constant(Dtype::float32, 0);
    const ExprId root = expand_scaled_exp(b, is_difference ? b.sub(x, zero) : x);
    expect_exp_nonpositive<float>({b.take(), root}, Code::exp_nonpositive_bfloat16, Dtype::float32,
                                  0x1p-101f);
  }
}

// Of what is not positive: the bits of exp.
template <typename T>
void expect_bits_of_exp(Dtype dtype, double lowest, bool scales) {
  Builder b("at most one");
  const ExprId root = expand_exp_at_most_one(b, b.scalar_ref(b.scalar(dtype)), scales);
  const Kernel kernel = b.take();
  const Expansion exact = expansion(Code::exp, dtype);
  BlockEval short_eval(kernel, root), exact_eval(exact.kernel, exact.root);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::mt19937_64 random(1);
  for (int block = 0; block < 4000; ++block) {
    // Anywhere, where results are subnormal, and of any size.
    std::uniform_real_distribution<double> between(lowest - 2, block % 4 == 0 ? 0 : lowest + 20);
    T* x = short_eval.input<T>(0);
    for (int i = 0; i < kBlock; ++i)
      x[i] = block % 4 == 1 ? -std::fabs(std::bit_cast<T>(static_cast<Bits>(random())))
                            : static_cast<T>(between(random));
    for (size_t i = 0; i < std::size(kSpecial); ++i) x[i] = -static_cast<T>(kSpecial[i]);
    std::copy_n(x, kBlock, exact_eval.input<T>(0));
    const T *got = short_eval.run<T>(), *wanted = exact_eval.run<T>();
    for (int i = 0; i < kBlock; ++i)
      ASSERT_TRUE(std::bit_cast<Bits>(got[i]) == std::bit_cast<Bits>(wanted[i]) ||
                  (std::isnan(got[i]) && std::isnan(wanted[i])))
          << x[i] << ": " << got[i] << " and " << wanted[i];
  }
}

TEST(Math, ExpAtMostOne) {
  for (const bool scales : {false, true}) {
    expect_bits_of_exp<float>(Dtype::float32, -104, scales);
    expect_bits_of_exp<double>(Dtype::float64, -745, scales);
  }
}

class PairAccuracy : public testing::TestWithParam<PairRow> {};

TEST_P(PairAccuracy, Float32) {
  const PairRow& row = GetParam();
  const Expansion e = expansion(row.code, Dtype::float32);
  BlockEval eval(e.kernel, e.root);
  std::mt19937_64 random(1);
  Worst worst;
  for (uint64_t begin = 0; begin < kSamples / 4; begin += kBlock) {
    float *x = eval.input<float>(0), *y = eval.input<float>(1);
    for (int i = 0; i < kBlock; ++i) x[i] = random_float(random()), y[i] = random_float(random());
    const float* got = eval.run<float>();
    for (int i = 0; i < kBlock; ++i) {
      const double truth = row.libm(x[i], y[i]);
      worst.add(ulps(got[i], truth), x[i], y[i], got[i], truth);
    }
  }
  fmt::print("{}\n", describe(row.code, worst));
  EXPECT_LE(worst.error, max_ulp(row.code, Dtype::float32)) << describe(row.code, worst);
}

TEST_P(PairAccuracy, Float64) {
  const PairRow& row = GetParam();
  const Expansion e = expansion(row.code, Dtype::float64);
  BlockEval eval(e.kernel, e.root);
  std::mt19937_64 random(1);
  Worst worst;
  Real x, y, truth;
  for (int block = 0; block < 20; ++block) {
    double *first = eval.input<double>(0), *second = eval.input<double>(1);
    for (int i = 0; i < kBlock; ++i)
      first[i] = random_double(random()), second[i] = random_double(random());
    const double* got = eval.run<double>();
    for (int i = 0; i < kBlock; ++i) {
      mpfr_set_d(x, first[i], MPFR_RNDN);
      mpfr_set_d(y, second[i], MPFR_RNDN);
      row.mpfr(truth, x, y, MPFR_RNDN);
      const double rounded = mpfr_get_d(truth, MPFR_RNDN);
      worst.add(ulps_of_double(got[i], truth), first[i], second[i], got[i], rounded);
    }
  }
  fmt::print("{}\n", describe(row.code, worst));
  EXPECT_LE(worst.error, max_ulp(row.code, Dtype::float64)) << describe(row.code, worst);
}

INSTANTIATE_TEST_SUITE_P(Math, PairAccuracy,
                         testing::ValuesIn(pair_rows().begin(), pair_rows().end()),
                         [](const auto& info) { return std::string(name_of(info.param.code)); });

template <typename T>
void expect_exact_remainders(Dtype dtype, T (*random_any)(uint64_t)) {
  Builder b("rem");
  const ExprId x = b.scalar_ref(b.scalar(dtype)), y = b.scalar_ref(b.scalar(dtype));
  const ExprId root = expand_rem(b, x, y);
  const Kernel kernel = b.take();
  BlockEval eval(kernel, root);
  std::mt19937_64 random(1);
  std::normal_distribution<double> exponent(0, 8);
  for (int block = 0; block < 400; ++block) {
    T *first = eval.input<T>(0), *second = eval.input<T>(1);
    for (int i = 0; i < kBlock; ++i) {
      first[i] = random_any(random());
      second[i] = random_any(random());
      if (block % 2 == 0) {  // alike in size; every eighth a multiple
        second[i] = std::ldexp(first[i], static_cast<int>(exponent(random))) * T(1.37);
        if (i % 8 == 0) first[i] = second[i] * static_cast<T>(random() % 4096);
      }
      if (block < 8 && i < 400) {
        const auto special = [](size_t k) {
          return static_cast<T>(k % 2 == 0 ? kSpecial[k / 2 % 9] : -kSpecial[k / 2 % 9]);
        };
        first[i] = special(static_cast<size_t>(i));
        second[i] = special(static_cast<size_t>(i / 18));
      }
    }
    const T* got = eval.run<T>();
    for (int i = 0; i < kBlock; ++i) {
      const T want = std::fmod(first[i], second[i]);
      const bool same = std::isnan(want)
                            ? std::isnan(got[i])
                            : got[i] == want && std::signbit(got[i]) == std::signbit(want);
      ASSERT_TRUE(same) << first[i] << " rem " << second[i] << ": " << got[i] << ", not " << want;
    }
  }
}

TEST(ExpandRem, Float32) { expect_exact_remainders<float>(Dtype::float32, random_float); }
TEST(ExpandRem, Float64) { expect_exact_remainders<double>(Dtype::float64, random_double); }

}  // namespace

}  // namespace cermet::ir
