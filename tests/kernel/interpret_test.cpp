// SPDX-License-Identifier: MIT
// The interpreter against the meaning of each node, worked out by hand or by other means than its
// own.
#include "kernel/interpret.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "kernel/builder.h"
#include "kernel/run.h"

namespace cermet::ir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, uint8_t>) return Dtype::uint8;
  if constexpr (std::is_same_v<T, uint16_t>) return Dtype::uint16;
  if constexpr (std::is_same_v<T, uint32_t>) return Dtype::uint32;
  if constexpr (std::is_same_v<T, uint64_t>) return Dtype::uint64;
  if constexpr (std::is_same_v<T, int8_t>) return Dtype::int8;
  if constexpr (std::is_same_v<T, int16_t>) return Dtype::int16;
  if constexpr (std::is_same_v<T, int32_t>) return Dtype::int32;
  if constexpr (std::is_same_v<T, int64_t>) return Dtype::int64;
  if constexpr (std::is_same_v<T, float>) return Dtype::float32;
  if constexpr (std::is_same_v<T, double>) return Dtype::float64;
  if constexpr (std::is_same_v<T, bool>) return Dtype::boolean;
  if constexpr (std::is_same_v<T, Float16>) return Dtype::float16;
  if constexpr (std::is_same_v<T, BFloat16>) return Dtype::bfloat16;
}

template <typename T>
uint64_t bits_of(T v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  return bits;
}

// One op on constants, through a whole kernel.
template <typename R, typename... T>
R eval(Code code, T... operands) {
  Builder b("op");
  const ParamId out = b.buffer(dtype_of<R>(), Access::out);
  const ExprId e =
      b.op(code, dtype_of<R>(), {b.constant_bits(dtype_of<T>(), bits_of(operands))...});
  b.kernel().body.push_back(
      For{.kind = ForKind::stage, .axes = {}, .body = {Store{{false, out}, {}, e}}});
  const Kernel kernel = b.take();
  verify(kernel);
  R result{};
  const Argument argument{.data = &result, .elements = 1};
  interpret(kernel, {&argument, 1}, {}, {});
  return result;
}

template <typename T>
class Integers : public testing::Test {};
using IntegerTypes =
    testing::Types<uint8_t, uint16_t, uint32_t, uint64_t, int8_t, int16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(Integers, IntegerTypes);

TYPED_TEST(Integers, WrapAndEdges) {
  using T = TypeParam;
  constexpr T kMax = std::numeric_limits<T>::max(), kMin = std::numeric_limits<T>::min();
  constexpr int kWidth = 8 * sizeof(T);
  EXPECT_EQ(eval<T>(Code::add, kMax, T(1)), kMin);
  EXPECT_EQ(eval<T>(Code::sub, kMin, T(1)), kMax);
  EXPECT_EQ(eval<T>(Code::mul, kMax, kMax), T(1));
  EXPECT_EQ(eval<T>(Code::mul, kMax, T(2)), T(-2));
  EXPECT_EQ(eval<T>(Code::div, T(100), T(7)), T(14));
  EXPECT_EQ(eval<T>(Code::rem, T(100), T(7)), T(2));
  for (T x : {T(0), T(5), kMax, kMin}) {
    EXPECT_EQ(eval<T>(Code::div, x, T(0)), T(0));
    EXPECT_EQ(eval<T>(Code::rem, x, T(0)), T(0));
    // The count is taken modulo the width.
    EXPECT_EQ(eval<T>(Code::shl, x, T(kWidth)), x);
    EXPECT_EQ(eval<T>(Code::shr, x, T(kWidth + 1)), T(x >> 1));
    EXPECT_EQ(eval<T>(Code::rotl, x, T(0)), x);
    EXPECT_EQ(eval<T>(Code::rotl, x, T(kWidth)), x);
    EXPECT_EQ(eval<T>(Code::rotl, eval<T>(Code::rotl, x, T(3)), T(kWidth - 3)), x);
    EXPECT_EQ(eval<T>(Code::bit_not, x), T(~x));
    EXPECT_EQ(eval<T>(Code::neg, x), T(uint64_t{0} - static_cast<uint64_t>(x)));
  }
  EXPECT_EQ(eval<T>(Code::shl, T(1), T(kWidth - 1)), std::is_signed_v<T> ? kMin : T(kMax / 2 + 1));
  EXPECT_EQ(eval<T>(Code::shr, kMax, T(kWidth - 2)), std::is_signed_v<T> ? T(1) : T(3));
  EXPECT_EQ(eval<T>(Code::rotl, T(5), T(kWidth - 1)),
            T(eval<T>(Code::shl, T(1), T(kWidth - 1)) + 2));
  EXPECT_EQ(eval<T>(Code::min, kMin, kMax), kMin);
  EXPECT_EQ(eval<T>(Code::max, kMin, kMax), kMax);
  EXPECT_EQ(eval<T>(Code::bit_and, T(12), T(10)), T(8));
  EXPECT_EQ(eval<T>(Code::bit_or, T(12), T(10)), T(14));
  EXPECT_EQ(eval<T>(Code::bit_xor, T(12), T(10)), T(6));
  EXPECT_TRUE(eval<bool>(Code::lt, kMin, kMax));
  EXPECT_FALSE(eval<bool>(Code::le, kMax, kMin));
  EXPECT_TRUE(eval<bool>(Code::ne, kMax, kMin));
  if constexpr (std::is_signed_v<T>) {
    EXPECT_EQ(eval<T>(Code::div, kMin, T(-1)), kMin);
    EXPECT_EQ(eval<T>(Code::rem, kMin, T(-1)), T(0));
    EXPECT_EQ(eval<T>(Code::div, T(-7), T(2)), T(-3));
    EXPECT_EQ(eval<T>(Code::rem, T(-7), T(2)), T(-1));
    EXPECT_EQ(eval<T>(Code::abs, kMin), kMin);
    EXPECT_EQ(eval<T>(Code::abs, T(-3)), T(3));
    EXPECT_EQ(eval<T>(Code::shr, T(-8), T(1)), T(-4));
    EXPECT_EQ(eval<T>(Code::shl, T(1), T(-1)), kMin);  // -1 modulo the width
  } else {
    EXPECT_EQ(eval<T>(Code::abs, kMax), kMax);
  }
}

TYPED_TEST(Integers, CastsFromFloatsTruncateAndSaturate) {
  using T = TypeParam;
  constexpr T kMax = std::numeric_limits<T>::max(), kMin = std::numeric_limits<T>::min();
  EXPECT_EQ(eval<T>(Code::cast, kNan), T(0));
  EXPECT_EQ(eval<T>(Code::cast, -std::numeric_limits<double>::quiet_NaN()), T(0));
  EXPECT_EQ(eval<T>(Code::cast, kInf), kMax);
  EXPECT_EQ(eval<T>(Code::cast, -kInf), kMin);
  EXPECT_EQ(eval<T>(Code::cast, 1e30f), kMax);
  EXPECT_EQ(eval<T>(Code::cast, -1e300), kMin);
  EXPECT_EQ(eval<T>(Code::cast, 2.99f), T(2));
  EXPECT_EQ(eval<T>(Code::cast, -0.99), T(0));
  EXPECT_EQ(eval<T>(Code::cast, -3.5f), std::is_signed_v<T> ? T(-3) : T(0));
  // The first double beyond the range, and the last below it.
  const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
  EXPECT_EQ(eval<T>(Code::cast, limit), kMax);
  const double below = std::nextafter(limit, 0.0);
  EXPECT_EQ(eval<T>(Code::cast, below), static_cast<T>(below));
}

TEST(Interpret, IntegerCastsWrap) {
  EXPECT_EQ((eval<int8_t>(Code::cast, int32_t{200})), int8_t{-56});
  EXPECT_EQ((eval<uint8_t>(Code::cast, int64_t{-1})), 255);
  EXPECT_EQ((eval<uint64_t>(Code::cast, int8_t{-1})), ~uint64_t{0});
  EXPECT_EQ((eval<int64_t>(Code::cast, uint8_t{255})), 255);
  EXPECT_EQ((eval<int64_t>(Code::cast, ~uint64_t{0})), -1);
  EXPECT_TRUE((eval<bool>(Code::cast, int32_t{256})));
  EXPECT_FALSE((eval<bool>(Code::cast, int32_t{0})));
  EXPECT_EQ((eval<float>(Code::cast, true)), 1.0f);
  EXPECT_TRUE((eval<bool>(Code::cast, kNan)));
  EXPECT_TRUE((eval<bool>(Code::cast, 1e-45f)));
  EXPECT_FALSE((eval<bool>(Code::cast, -0.0f)));
  // One rounding, to even.
  EXPECT_EQ((eval<float>(Code::cast, int64_t{(1 << 24) + 1})), 16777216.0f);
  EXPECT_EQ((eval<float>(Code::cast, int64_t{(int64_t{1} << 54) + (int64_t{1} << 30) + 1})),
            18014400656965632.0f);
  EXPECT_EQ((eval<double>(Code::cast, ~uint64_t{0})), 18446744073709551616.0);
}

TEST(Interpret, HalfCastsAreExact) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint64_t half = bits;
    // The value by the formats' definitions.
    const auto value = [](uint32_t b, int exponent_bits, int mantissa_bits) {
      const int e = static_cast<int>(b >> mantissa_bits) & ((1 << exponent_bits) - 1);
      const int m = static_cast<int>(b) & ((1 << mantissa_bits) - 1);
      const int bias = (1 << (exponent_bits - 1)) - 1;
      double v = e == 0 ? std::ldexp(m, 1 - bias - mantissa_bits)
                        : std::ldexp((1 << mantissa_bits) + m, e - bias - mantissa_bits);
      if (e == (1 << exponent_bits) - 1)
        v = m == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
      return (b >> 15) != 0 ? -v : v;
    };
    const double f16 = value(bits, 5, 10), bf16 = value(bits, 8, 7);
    const double got16 =
        to_double(Dtype::float32, apply(Code::cast, Dtype::float32, Dtype::float16, &half));
    const double gotb16 =
        to_double(Dtype::float32, apply(Code::cast, Dtype::float32, Dtype::bfloat16, &half));
    ASSERT_TRUE(got16 == f16 || (std::isnan(got16) && std::isnan(f16))) << bits;
    ASSERT_TRUE(gotb16 == bf16 || (std::isnan(gotb16) && std::isnan(bf16))) << bits;
    // And back; a value between two neighbours goes to the nearer, a tie to the even one.
    if (std::isnan(f16) || (bits & 0x7fff) >= 0x7bff) continue;
    const double next = value(bits + 1, 5, 10);
    const auto back = [](double v) { return from_double(Dtype::float16, v); };
    ASSERT_EQ(back(f16), bits);
    ASSERT_EQ(back(f16 + (next - f16) * 0.499999999), bits);
    ASSERT_EQ(back(f16 + (next - f16) * 0.500000001), bits + 1);
    ASSERT_EQ(back(f16 + (next - f16) * 0.5), bits + (bits & 1));
  }
  EXPECT_EQ(from_double(Dtype::float16, 65519.999), 0x7bffu);
  EXPECT_EQ(from_double(Dtype::float16, 65520.0), 0x7c00u);
  EXPECT_EQ(from_double(Dtype::bfloat16, 3.4e38), 0x7f80u);
}

template <typename T>
class Floats : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Floats, FloatTypes);

TYPED_TEST(Floats, Edges) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  const T tiny = std::numeric_limits<T>::denorm_min(), big = std::numeric_limits<T>::max();
  const T x = 2, n = -0.0, p = 0.0;
  for (auto [a, b] : {std::pair{nan, x}, {x, nan}, {nan, nan}}) {
    EXPECT_TRUE(std::isnan(eval<T>(Code::min, a, b)));
    EXPECT_TRUE(std::isnan(eval<T>(Code::max, a, b)));
    EXPECT_FALSE(eval<bool>(Code::eq, a, b));
    EXPECT_FALSE(eval<bool>(Code::lt, a, b));
    EXPECT_FALSE(eval<bool>(Code::le, a, b));
    EXPECT_TRUE(eval<bool>(Code::ne, a, b));
  }
  for (auto [a, b] : {std::pair{n, p}, {p, n}}) {
    EXPECT_TRUE(std::signbit(eval<T>(Code::min, a, b)));
    EXPECT_FALSE(std::signbit(eval<T>(Code::max, a, b)));
    EXPECT_TRUE(eval<bool>(Code::eq, a, b));
    EXPECT_FALSE(eval<bool>(Code::lt, a, b));
  }
  EXPECT_TRUE(std::signbit(eval<T>(Code::add, n, n)));
  EXPECT_FALSE(std::signbit(eval<T>(Code::add, n, p)));
  EXPECT_TRUE(std::signbit(eval<T>(Code::neg, p)));
  EXPECT_TRUE(std::signbit(eval<T>(Code::rint, T(-0.5))));
  EXPECT_TRUE(std::signbit(eval<T>(Code::ceil, T(-0.5))));
  EXPECT_EQ(eval<T>(Code::div, x, p), inf);
  EXPECT_EQ(eval<T>(Code::div, x, n), -inf);
  EXPECT_TRUE(std::isnan(eval<T>(Code::div, p, p)));
  EXPECT_TRUE(std::isnan(eval<T>(Code::rem, x, p)));
  EXPECT_EQ(eval<T>(Code::rem, T(-7.5), T(2)), T(-1.5));
  EXPECT_EQ(eval<T>(Code::mul, big, x), inf);
  EXPECT_TRUE(std::isnan(eval<T>(Code::sqrt, T(-1))));
  EXPECT_EQ(eval<T>(Code::rint, T(2.5)), T(2));
  EXPECT_EQ(eval<T>(Code::rint, T(3.5)), T(4));
  EXPECT_EQ(eval<T>(Code::floor, T(-1.5)), T(-2));
  EXPECT_EQ(eval<T>(Code::trunc, T(-1.5)), T(-1));
  EXPECT_EQ(eval<T>(Code::abs, n), T(0));
  // Subnormals are kept.
  EXPECT_EQ(eval<T>(Code::add, tiny, tiny), 2 * tiny);
  EXPECT_EQ(eval<T>(Code::div, tiny, x), T(0));
  // fma rounds once: (1 + e)^2 - 1 keeps e^2.
  const T e = std::numeric_limits<T>::epsilon();
  EXPECT_EQ(eval<T>(Code::fma, T(1) + e, T(1) + e, T(-1)), 2 * e + e * e);
  EXPECT_EQ(eval<T>(Code::select, true, x, p), x);
  EXPECT_EQ(eval<T>(Code::select, false, x, p), p);
}

TYPED_TEST(Floats, Fractions) {
  using T = TypeParam;
  EXPECT_EQ(eval<T>(Code::fract, T(2.75)), T(0.75));
  EXPECT_EQ(eval<T>(Code::fract, T(3)), T(0));
  EXPECT_TRUE(std::isnan(eval<T>(Code::fract, std::numeric_limits<T>::quiet_NaN())));
}

TYPED_TEST(Floats, Scale2) {
  using T = TypeParam;
  const int max = std::numeric_limits<T>::max_exponent;
  const T tiny = std::numeric_limits<T>::denorm_min(), inf = std::numeric_limits<T>::infinity();
  EXPECT_EQ(eval<T>(Code::scale2, T(1.5), T(3)), T(12));
  EXPECT_EQ(eval<T>(Code::scale2, tiny, T(2 * max)), std::ldexp(tiny, 2 * max));
  EXPECT_EQ(eval<T>(Code::scale2, std::numeric_limits<T>::max(), T(-2 * max)),
            std::ldexp(std::numeric_limits<T>::max(), -2 * max));
  EXPECT_EQ(eval<T>(Code::scale2, T(1), T(max)), inf);
  EXPECT_EQ(eval<T>(Code::scale2, T(1), T(-2 * max)), T(0));
}

TEST(Interpret, Bitcasts) {
  EXPECT_EQ((eval<uint32_t>(Code::bitcast, -0.0f)), 0x80000000u);
  EXPECT_EQ((eval<float>(Code::bitcast, uint32_t{0x3f800000})), 1.0f);
  EXPECT_EQ((eval<int64_t>(Code::bitcast, 1.0)), 0x3ff0000000000000);
  EXPECT_EQ((eval<uint16_t>(Code::bitcast, Float16(1.0f))), 0x3c00);
  EXPECT_EQ((eval<uint8_t>(Code::bitcast, true)), 1);
}

TEST(Interpret, ThreefryMatchesPublishedVectors) {
  using Words = std::array<uint32_t, 2>;
  EXPECT_EQ(threefry2x32(0, 0, 0, 0), (Words{0x6b200159, 0x99ba4efe}));
  EXPECT_EQ(threefry2x32(~0u, ~0u, ~0u, ~0u), (Words{0x1cb996fc, 0xbb002be7}));
  EXPECT_EQ(threefry2x32(0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3),
            (Words{0xc4923a9c, 0x483df7a0}));
  std::vector<uint32_t> out(2);
  run_text(R"(kernel {
    param p0 uint32 out
    for stage () {
      %0 = threefry(uint32(320440878), uint32(57701188), uint32(608135816), uint32(2242054355))
      store p0[0] = %0.0
      store p0[1] = %0.1
    } })",
           {argument(out)}, {});
  EXPECT_EQ(out, (std::vector<uint32_t>{0xc4923a9c, 0x483df7a0}));
}

double libm(Code code, double x, double y = 0) {
  const uint64_t bits[2] = {bits_of(x), bits_of(y)};
  return std::bit_cast<double>(apply(code, Dtype::float64, Dtype::float64, bits));
}

TEST(Interpret, MathCodesByLibm) {
  EXPECT_EQ(libm(Code::exp, 1), std::exp(1.0));
  EXPECT_EQ(libm(Code::log2, 8), 3);
  EXPECT_EQ(libm(Code::sigmoid, -800), 0);
  EXPECT_EQ(libm(Code::sigmoid, 0), 0.5);
  EXPECT_EQ(libm(Code::pow, 2, 10), 1024);
  EXPECT_EQ(libm(Code::atan2, -1, -1), -3 * M_PI / 4);
  EXPECT_EQ(libm(Code::rsqrt, 4), 0.5);
  EXPECT_EQ(libm(Code::erfinv, 1), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(libm(Code::erfinv, 1.5)));
  for (double x : {1e-300, 1e-12, 1e-5, 0.1, 0.4999, 0.5, 0.7, 0.99, 0.999999, 1 - 1e-12}) {
    const double y = libm(Code::erfinv, x);
    // One ulp of x moves the result by at most this; 4 ulp of y beside it.
    const double slope = 2 / std::sqrt(M_PI) * std::exp(-y * y);
    const double tolerance = std::fabs(x) * 0x1p-52 / slope + y * 0x1p-50;
    const double again = x > 0.5 ? (std::erfc(y) - (1 - x)) / slope : (std::erf(y) - x) / slope;
    EXPECT_LE(std::fabs(again), tolerance) << x;
    EXPECT_EQ(libm(Code::erfinv, -x), -y);
  }
}

TEST(Interpret, MathCodesAreExactByTheirExpansions) {
  const Kernel kernel = parse(R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    for stage (a0) { store p1[a0] = tanh(load(p0[a0])) }
    })");
  std::vector<float> x(2000), given(x.size()), expanded(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.0037f - 3;
  const std::vector<int64_t> extents = {2000};
  std::vector<Argument> a = {argument(x), argument(given)}, b = {argument(x), argument(expanded)};
  interpret(kernel, a, extents, {});
  interpret(expand(kernel, TargetFacts{}), b, extents, {});
  EXPECT_EQ(given, expanded);
  size_t unlike_libm = 0;
  for (size_t i = 0; i < x.size(); ++i)
    unlike_libm += given[i] != static_cast<float>(std::tanh(static_cast<double>(x[i])));
  EXPECT_GT(unlike_libm, 0u);
}

TEST(Interpret, StatementsRangeOverAxes) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, y(6), rows(2);
  run_text(R"(kernel {
    param p0 float32 in
    param p1 float32 out
    param p2 float32 out
    axis a0
    axis a1
    strides 2
    value v0 float32
    value v1 float32
    for stage (a0, a1) {
      let v0 = mul(load(p0[a0*s0 + a1*s1]), float32(2))
      fold v1 over (a1) last lanes {
        float32 init float32(-0) step add(state(0, float32), v0) merge add(state(0, float32), other(0, float32))
      }
      store p1[mul(a0, extent(a1)) + a1] = div(v0, v1)
    }
    for stage (a0) { store p2[a0] = v1 }
    })",
           {argument(x), argument(y), argument(rows)}, {2, 3}, {3, 1});
  EXPECT_EQ(rows, (std::vector<float>{12, 30}));
  EXPECT_EQ(y, (std::vector<float>{2.f / 12, 4.f / 12, 6.f / 12, 8.f / 30, 10.f / 30, 12.f / 30}));
}

TEST(Interpret, AStatementIsCompleteBeforeTheNext) {
  // Reversal in place: every load before any store.
  std::vector<int32_t> x = {1, 2, 3, 4};
  run_text(R"(kernel {
    param p0 int32 inout
    axis a0
    value v0 int32
    for stage (a0) {
      let v0 = load(p0[sub(sub(extent(a0), 1), a0)])
      store p0[a0] = v0
    } })",
           {argument(x)}, {4});
  EXPECT_EQ(x, (std::vector<int32_t>{4, 3, 2, 1}));
}

TEST(Interpret, EmptyAxes) {
  std::vector<float> x, y = {7, 7};
  run_text(R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    axis a1
    value v0 float32
    value v1 float32
    for stage (a0, a1) {
      let v0 = load(p0[])
      fold v1 over (a1) last lanes {
        float32 init float32(5) step v0 merge state(0, float32)
      }
    }
    for stage (a0) { store p1[a0] = v1 }
    })",
           {argument(x), argument(y)}, {2, 0});
  EXPECT_EQ(y, (std::vector<float>{5, 5}));
}

TEST(Interpret, MasksTouchNoMemory) {
  std::vector<float> x = {1, 2}, y(4, 9), z(4, 9);
  run_text(R"(kernel {
    param p0 float32 in
    param p1 float32 out
    param p2 float32 out
    axis a0
    for stage (a0) {
      %0 = lt(a0, 2)
      store p1[a0] = load(p0[a0], mask %0, else float32(-1))
      store p2[a0] = load(p0[a0], mask %0) mask ne(a0, 1)
      store p2[1000] = float32(0) mask lt(a0, 0)
    } })",
           {argument(x), argument(y), argument(z)}, {4});
  EXPECT_EQ(y, (std::vector<float>{1, 2, -1, -1}));
  EXPECT_EQ(z, (std::vector<float>{1, 9, 0, 0}));
}

TEST(Interpret, EveryAccessIsChecked) {
  const char* text = R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    strides 1
    for stage (a0) { store p1[a0] = load(p0[a0*s0]) }
    })";
  std::vector<float> x = {1, 2, 3}, y(3);
  run_text(text, {{.data = &x[2], .elements = 1, .before = 2}, argument(y)}, {3}, {-1});
  EXPECT_EQ(y, (std::vector<float>{3, 2, 1}));
  EXPECT_THROW(
      run_text(text, {{.data = &x[2], .elements = 1, .before = 1}, argument(y)}, {3}, {-1}), Error);
  EXPECT_THROW(run_text(text, {argument(x), argument(y)}, {4}, {0}), Error);
  EXPECT_THROW(run_text(text, {argument(x), argument(y)}, {3}, {2}), Error);
  EXPECT_THROW(run_text(text, {argument(x)}, {3}, {1}), Error);
  EXPECT_THROW(run_text(text, {argument(x), argument(y)}, {}, {1}), Error);
  EXPECT_THROW(run_text(text, {argument(x), argument(y)}, {3}, {}), Error);
}

TEST(Interpret, ChecksReportTheFirstFailure) {
  const char* text = R"(kernel {
    param p0 int64 in
    param p1 int64 status
    axis a0
    for stage (a0) {
      %0 = load(p0[a0])
      check lt(%0, 100) site 1 index %0
      check le(0, %0) site 2 index %0
    } })";
  const auto run = [&](std::vector<int64_t> x) {
    const int64_t n = static_cast<int64_t>(x.size());
    return run_text(text, {argument(x), {}}, {n});
  };
  EXPECT_EQ(run({1, 2}).site, -1);
  EXPECT_EQ(run({-5, 2, 300, 400}).site, 1);
  EXPECT_EQ(run({-5, 2, 300, 400}).index, 300);
  EXPECT_EQ(run({5, -6}).site, 2);
  EXPECT_EQ(run({5, -6}).index, -6);
}

TEST(Interpret, Updates) {
  std::vector<int64_t> at = {0, 2, 0, 2, 2, 1};
  std::vector<float> sums(3, 10), least(3, 10);
  run_text(R"(kernel {
    param p0 int64 in
    param p1 float32 inout
    param p2 float32 inout
    axis a0
    for stage (a0) {
      %0 = load(p0[a0])
      update p1[%0] add cast.float32(a0)
      update p2[%0] min cast.float32(a0) mask ne(a0, 0)
    } })",
           {argument(at), argument(sums), argument(least)}, {6});
  EXPECT_EQ(sums, (std::vector<float>{12, 15, 18}));
  EXPECT_EQ(least, (std::vector<float>{2, 5, 1}));
}

// Sums of 32 runs, and the pairwise tree over these, in plain loops.
TEST(Interpret, UpdatesInParts) {
  constexpr int64_t kPoints = 1000, kElements = 3, kEach = (kPoints + 31) / 32;
  std::vector<int64_t> at(kPoints);
  std::vector<float> values(kPoints), sums = {1e8f, -0.0f, 5}, expected = sums;
  float runs[32][kElements];
  for (auto& run : runs) std::fill_n(run, kElements, -0.0f);
  for (int64_t i = 0; i < kPoints; ++i) {
    at[static_cast<size_t>(i)] = i % 7 % 2 * 2;  // never 1
    values[static_cast<size_t>(i)] = 1e7f / static_cast<float>(i + 1);
    runs[i / kEach][at[static_cast<size_t>(i)]] += values[static_cast<size_t>(i)];
  }
  for (int64_t e = 0; e < kElements; ++e) {
    for (int step = 1; step < 32; step *= 2)
      for (int i = 0; i < 32; i += 2 * step) runs[i][e] += runs[i + step][e];
    expected[static_cast<size_t>(e)] += runs[0][e];
  }
  run_text(R"(kernel {
    param p0 int64 in
    param p1 float32 in
    param p2 float32 inout
    axis a0
    axis a1
    for stage (a0) {
      update p2[load(p0[a0])] add load(p1[a0]) over (a0) elements a1
    } })",
           {argument(at), argument(values), argument(sums)}, {kPoints, kElements});
  EXPECT_EQ(sums, expected);
  EXPECT_TRUE(std::signbit(sums[1]));
}

TEST(Interpret, UpdatesOfComplexNumbers) {
  // Pairs: 1+2i times 3-i times -2i is (5+5i)(-2i) = 10-10i; the larger first by its real part.
  std::vector<float> values = {3, -1, 0, -2}, product = {1, 2}, largest = {0, 5}, least = {0, 5};
  run_text(R"(kernel {
    param p0 float32 in
    param p1 float32 inout
    param p2 float32 inout
    param p3 float32 inout
    axis a0
    strides 1
    for stage (a0) {
      %0 = load(p0[a0*s0])
      %1 = load(p0[a0*s0 + 1])
      update p1[] mul %0 imag %1
      update p2[] max %0 imag %1
      update p3[] min %0 imag %1 mask eq(a0, 1)
    } })",
           {argument(values), argument(product), argument(largest), argument(least)}, {2}, {2});
  EXPECT_EQ(product, (std::vector<float>{10, -10}));
  EXPECT_EQ(largest, (std::vector<float>{3, -1}));
  EXPECT_EQ(least, (std::vector<float>{0, -2}));
}

TEST(Interpret, ScalarsAndRare) {
  std::vector<float> y(2);
  run_text(R"(kernel {
    param p0 float32 scalar
    param p1 int8 scalar
    param p2 float32 out
    axis a0
    for stage (a0) {
      store p2[a0] = rare(eq(a0, 1), p0, cast.float32(p1))
    } })",
           {scalar_argument(2.5f), scalar_argument(int8_t{-3}), argument(y)}, {2});
  EXPECT_EQ(y, (std::vector<float>{2.5f, -3}));
}

TEST(Interpret, ContractIsTheSumOfProducts) {
  std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {1, 0, 0, 1, 1, 1}, c(4);
  run_text(R"(kernel {
    param p0 float32 in
    param p1 float32 in
    param p2 float32 out
    axis a0
    axis a1
    axis a2
    value v0 float32
    for stage (a0, a1, a2) {
      contract v0 over (a2) load(p0[mul(a0, 3) + a2]) * load(p1[mul(a2, 2) + a1]) acc float32 scheme fma
    }
    for stage (a0, a1) { store p2[mul(a0, 2) + a1] = v0 }
    })",
           {argument(a), argument(b), argument(c)}, {2, 2, 3});
  EXPECT_EQ(c, (std::vector<float>{4, 5, 10, 11}));
}

TEST(Interpret, ContractWrapsIntegersAndSumsBeyondFloat) {
  std::vector<int32_t> x = {1 << 30, 1 << 30, 1 << 30, 1 << 30}, y(1);
  std::vector<float> u = {1e8f, 1, -1e8f, 1}, v(1);
  const auto text = [](const char* dtype) {
    return fmt::format(R"(kernel {{
      param p0 {0} in
      param p1 {0} out
      axis a0
      value v0 {0}
      for stage (a0) {{ contract v0 over (a0) load(p0[a0]) * {0}(1) acc {0} scheme fma }}
      for stage () {{ store p1[] = v0 }} }})",
                       dtype);
  };
  run_text(text("int32"), {argument(x), argument(y)}, {4});
  EXPECT_EQ(y[0], 0);
  run_text(text("float32"), {argument(u), argument(v)}, {4});
  EXPECT_EQ(v[0], 2);
}

TEST(Interpret, WideArithmeticIsDouble) {
  const char* text = R"(kernel {
    param p0 float32 in
    param p1 float64 out
    value v0 float32
    for stage () {
      let v0 = exp(div(load(p0[]), float32(3)))
      store p1[] = cast.float64(v0)
      store p1[1] = cast.float64(bitcast.float32(add(bitcast.int32(load(p0[])), int32(1))))
    } })";
  std::vector<float> x = {1};
  std::vector<double> y(2);
  run_text(text, {argument(x), argument(y)}, {}, {}, Arithmetic::wide);
  EXPECT_EQ(y[0], std::exp(1.0 / 3));
  EXPECT_EQ(y[1], 1 + 0x1p-23);
  run_text(text, {argument(x), argument(y)}, {});
  EXPECT_NE(y[0], std::exp(1.0 / 3));
  EXPECT_NEAR(y[0], std::exp(1.0 / 3), 1e-6);
}

TEST(Interpret, TiledLoops) {
  // Twice the sum of each row of a 3 x 5 matrix, by two chunk loops over a kernel's local.
  std::vector<float> x(15), y(3);
  for (int i = 0; i < 15; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i);
  run_text(R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    axis a1
    axis a2 variable
    axis a3 variable
    value v0 float32
    value v1 float32
    scratch l0 float32 1*ceil(a0/1) kernel
    scratch l1 float32 8 thread
    local l0 float32 1*ceil(a0/1) kernel
    for chunk (a2) grid 1*ceil(a0/1) entry "sums" {
      local l1 float32 8 thread
      %0 = mul(a2, extent(a1))
      for serial (a3) begin 0 end extent(a1) {
        let v0 = mul(load(p0[%0 + a3]), float32(2))
        store l1[a3] = v0
      }
      for lane (a3) begin 0 end extent(a1) {
        fold v1 over (a3) last lanes {
          float32 init float32(-0) step add(state(0, float32), load(l1[a3])) merge add(state(0, float32), other(0, float32))
        }
      }
      store l0[a2] = v1
    }
    for chunk (a2) grid 1*ceil(a0/2) entry "out" {
      for serial (a3) begin mul(a2, 2) end min(extent(a0), mul(add(a2, 1), 2)) {
        store p1[a3] = load(l0[a3])
      }
    } })",
           {argument(x), argument(y)}, {3, 5});
  EXPECT_EQ(y, (std::vector<float>{20, 70, 120}));
}

TEST(Interpret, LocalsBeginUndefined) {
  // What was never stored reads as NaN, also where an earlier item stored.
  for (const char* local : {"", "local l0 float32 1 thread\n"}) {
    std::vector<float> y(2);
    run_text(fmt::format(R"(kernel {{
      param p0 float32 out
      axis a0 variable
      scratch l0 float32 1 thread
      for chunk (a0) grid 2 {{
        {} store l0[] = float32(1) mask eq(a0, 5)
        store p0[a0] = load(l0[])
        store l0[] = float32(2)
      }} }})",
                         local),
             {argument(y)}, {});
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << local;
  }
}

TEST(Interpret, Micros) {
  // c = a b + c, with a 2 x 3 and b 3 x 2 in panels of one column, by way of locals with their own
  // strides; then its transpose. Beyond the wanted elements, up to whole tiles, the target is undefined.
  std::vector<double> ab = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, c(9), t(9);
  run_text(R"(kernel {
    param p0 float64 in
    param p1 float64 out
    param p2 float64 out
    axis a0 variable
    axis a1 variable
    scratch l0 float64 40 thread
    scratch l1 float64 16 thread
    scratch l2 float64 16 thread
    for chunk (a0) grid 1 {
      for serial (a1) begin 0 end 40 { store l0[a1] = load(p0[a1], mask lt(a1, 12)) }
      for serial (a1) begin 0 end 16 { store l1[a1] = cast.float64(a1) }
      micro gemm constants (3, 1, 1, 3, 4, 0) buffers (l1, l0, l0) operands (2, 2, 3, 1, 0, 6, 3, 1, 1)
      micro transpose constants (3, 4, 4, 1) buffers (l2, l1) operands (2, 2, 0, 1)
      for serial (a1) begin 0 end 9 {
        store p1[a1] = load(l1[a1])
        store p2[a1] = load(l2[a1])
      }
    } })",
           {argument(ab), argument(c), argument(t)}, {});
  // a = [1 2 3; 4 5 6], b = [7 10; 8 11; 9 12], a b = [50 68; 122 167]; before it 1, 2 and 5, 6.
  const auto expect = [](const std::vector<double>& got, const std::vector<double>& wanted) {
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]))) << i;
  };
  const double n = std::nan("");
  expect(c, {0, 51, 70, 3, 4, 127, 173, 7, 8});
  expect(t, {51, 127, n, n, 70, 173, n, n, n});
}

TEST(Interpret, BarriersSplitThreadLoops) {
  // Each thread reads what its neighbour stored before the barrier, keeping its own value across
  // it.
  std::vector<int64_t> y(4);
  run_text(R"(kernel {
    param p0 int64 out
    axis a0 variable
    axis a1 variable
    value v0 int64
    scratch l0 int64 4 thread
    for chunk (a0) grid 1 {
      for thread (a1) begin 0 end 4 {
        let v0 = mul(a1, 100)
        store l0[a1] = a1
        barrier
        store p0[a1] = add(v0, load(l0[rem(add(a1, 1), 4)]))
      }
    } })",
           {argument(y)}, {});
  EXPECT_EQ(y, (std::vector<int64_t>{1, 102, 203, 300}));
}

}  // namespace
}  // namespace cermet::ir
