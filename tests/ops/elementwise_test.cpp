// SPDX-License-Identifier: MIT
// Values, dtypes and messages of the elementwise rows, lowered node by node and interpreted,
// against the C++ library in double.
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

TEST(Rows, StandAtTheirIdsWithTheirNames) {
  const char* names[] = {
#define X(id, name, family) #name,
      CERMET_OPS(X)
#undef X
  };
  const auto rows = all_rows();
  ASSERT_EQ(rows.size(), static_cast<size_t>(OpId::kCount));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(rows[i]->id.value), i);
    EXPECT_STREQ(rows[i]->name.value, names[i]);
    EXPECT_GT(std::string(rows[i]->doc.value).size(), 4u) << names[i];
  }
}

struct UnaryCase {
  const char* name;
  array (*op)(const array&, const S&);
  double (*reference)(double);
  double low, high;
};

const UnaryCase kUnary[] = {
    {"abs", abs, std::fabs, -4, 4},
    {"negative", negative, [](double x) { return -x; }, -4, 4},
    {"sign", sign, [](double x) { return x > 0   ? 1.0
                                         : x < 0 ? -1.0
                                                 : 0.0; }, -4, 4},
    {"square", square, [](double x) { return x * x; }, -4, 4},
    {"sqrt", sqrt, std::sqrt, 0, 10},
    {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.1, 10},
    {"reciprocal", reciprocal, [](double x) { return 1 / x; }, 0.1, 10},
    {"floor", floor, std::floor, -4, 4},
    {"ceil", ceil, std::ceil, -4, 4},
    {"trunc", trunc, std::trunc, -4, 4},
    {"rint", rint, std::nearbyint, -4, 4},
    {"exp", exp, std::exp, -5, 5},
    {"exp2", exp2, std::exp2, -5, 5},
    {"exp_nonpositive", exp_nonpositive, std::exp, -5, 0},
    {"expm1", expm1, std::expm1, -5, 5},
    {"log", log, std::log, 0.1, 10},
    {"log2", log2, std::log2, 0.1, 10},
    {"log10", log10, std::log10, 0.1, 10},
    {"log1p", log1p, std::log1p, -0.9, 10},
    {"sin", sin, std::sin, -10, 10},
    {"cos", cos, std::cos, -10, 10},
    {"tan", tan, std::tan, -1.4, 1.4},
    {"arcsin", arcsin, std::asin, -0.9, 0.9},
    {"arccos", arccos, std::acos, -0.9, 0.9},
    {"arctan", arctan, std::atan, -5, 5},
    {"sinh", sinh, std::sinh, -4, 4},
    {"cosh", cosh, std::cosh, -4, 4},
    {"tanh", tanh, std::tanh, -4, 4},
    {"arcsinh", arcsinh, std::asinh, -4, 4},
    {"arccosh", arccosh, std::acosh, 1.1, 10},
    {"arctanh", arctanh, std::atanh, -0.9, 0.9},
    {"erf", erf, std::erf, -3, 3},
    {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -8, 8},
    {"degrees", degrees, [](double x) { return x * 180 / M_PI; }, -4, 4},
    {"radians", radians, [](double x) { return x * M_PI / 180; }, -400, 400},
};

TEST(Unary, MatchesTheLibraryInEveryFloatingDtype) {
  const std::pair<Dtype, double> dtypes[] = {{Dtype::float32, 1e-6},
                                             {Dtype::float64, 1e-13},
                                             {Dtype::float16, 2e-3},
                                             {Dtype::bfloat16, 2e-2}};
  for (const UnaryCase& c : kUnary) {
    for (const auto& [dtype, tolerance] : dtypes) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(name_of(dtype)));
      Doubles points(41);
      for (int i = 0; i <= 40; ++i) points[i] = c.low + (c.high - c.low) * i / 40.0;
      const array x = vec(points, dtype);
      Doubles want = values(x);
      for (double& v : want) v = c.reference(v);
      expect_near(values(c.op(x, {})), want, tolerance);
    }
  }
}

TEST(Unary, ExpToTheAccuracyOfBfloat16) {
  const Doubles points{-60, -20.5, -3.3, -1, -0.4, -0.3, -1e-3, 0};
  const Doubles got = values(exp_nonpositive_bfloat16(vec(points)));
  for (size_t i = 0; i < points.size(); ++i)
    EXPECT_NEAR(got[i] / std::exp(static_cast<double>(static_cast<float>(points[i]))), 1, 0x1p-13);
}

TEST(Unary, ErfInvInvertsErf) {
  expect_near(values(erf(erfinv(vec({-0.99, -0.5, 0, 0.25, 0.9})))), {-0.99, -0.5, 0, 0.25, 0.9});
  expect_near(values(erfinv(vec({1, -1, 2}))), {kInf, -kInf, kNan});
}

TEST(Unary, IntegersBecomeFloat32WhereTheFunctionNeedsIt) {
  EXPECT_EQ(exp(vec({1}, Dtype::int32)).dtype(), Dtype::float32);
  EXPECT_EQ(sqrt(vec({1}, Dtype::boolean)).dtype(), Dtype::float32);
  EXPECT_EQ(exp(vec({1}, Dtype::bfloat16)).dtype(), Dtype::bfloat16);
  EXPECT_EQ(floor(vec({1}, Dtype::int8)).dtype(), Dtype::int8);
  EXPECT_EQ(square(vec({1}, Dtype::uint8)).dtype(), Dtype::uint8);
  EXPECT_EQ(isnan(vec({1}, Dtype::int8)).dtype(), Dtype::boolean);
  EXPECT_EQ(abs(from_complex(std::vector<Complex>{{3, 4}}, {1})).dtype(), Dtype::float32);
}

TEST(Unary, IntegerValues) {
  expect_near(values(abs(vec({-128, 5}, Dtype::int8))), {-128, 5});
  expect_near(values(sign(vec({0, 200}, Dtype::uint8))), {0, 1});
  expect_near(values(negative(vec({1, 0}, Dtype::uint8))), {255, 0});
  expect_near(values(bitwise_invert(vec({0, 255}, Dtype::uint8))), {255, 0});
  expect_near(values(bitwise_invert(vec({0, 1}, Dtype::boolean))), {1, 0});
  expect_near(values(floor(vec({-7}, Dtype::int16))), {-7});
  expect_near(values(logical_not(vec({0, 3}, Dtype::int32))), {1, 0});
}

TEST(Unary, PredicatesOfSpecialValues) {
  const array x = vec({kNan, kInf, -kInf, 0});
  expect_near(values(isnan(x)), {1, 0, 0, 0});
  expect_near(values(isinf(x)), {0, 1, 1, 0});
  expect_near(values(isfinite(x)), {0, 0, 0, 1});
  expect_near(values(isposinf(x)), {0, 1, 0, 0});
  expect_near(values(isneginf(x)), {0, 0, 1, 0});
  expect_near(values(isfinite(vec({1}, Dtype::int32))), {1});
  expect_near(values(sign(vec({kNan}))), {0});
  const std::vector<Complex> parts = {{kInf, 0}, {0, kInf}, {-1, kInf}, {0, kNan}};
  const array z = from_complex(parts, {4});
  expect_near(values(isposinf(z)), {1, 0, 0, 0});
  expect_near(values(isinf(z)), {1, 1, 1, 0});
  expect_near(values(isnan(z)), {0, 0, 0, 1});
}

TEST(Complex, MatchesTheLibrary) {
  struct Case {
    const char* name;
    array (*op)(const array&, const S&);
    Complex (*reference)(const Complex&);
  };
  const Case cases[] = {
      {"sqrt", sqrt, std::sqrt},
      {"exp", exp, std::exp},
      {"log", log, std::log},
      {"log10", log10, std::log10},
      {"sin", sin, std::sin},
      {"cos", cos, std::cos},
      {"tan", tan, std::tan},
      {"sinh", sinh, std::sinh},
      {"cosh", cosh, std::cosh},
      {"tanh", tanh, std::tanh},
      {"arcsin", arcsin, std::asin},
      {"arccos", arccos, std::acos},
      {"arctan", arctan, std::atan},
      {"arcsinh", arcsinh, std::asinh},
      {"arccosh", arccosh, std::acosh},
      {"arctanh", arctanh, std::atanh},
      {"square", square, [](const Complex& z) { return z * z; }},
      {"reciprocal", reciprocal, [](const Complex& z) { return 1.0 / z; }},
      {"rsqrt", rsqrt, [](const Complex& z) { return 1.0 / std::sqrt(z); }},
      {"log2", log2, [](const Complex& z) { return std::log(z) / std::log(2.0); }},
      {"log1p", log1p, [](const Complex& z) { return std::log(z + 1.0); }},
      {"conjugate", conjugate, [](const Complex& z) { return std::conj(z); }},
      {"abs", abs, [](const Complex& z) { return Complex(std::abs(z)); }},
      {"sign", sign, [](const Complex& z) { return z / std::abs(z); }},
      {"negative", negative, [](const Complex& z) { return -z; }},
      {"real", real, [](const Complex& z) { return Complex(z.real()); }},
      {"imag", imag, [](const Complex& z) { return Complex(z.imag()); }},
  };
  std::vector<Complex> points;
  for (double re : {-3.0, -1.0, -0.4, 0.3, 1.5, 12.0})
    for (double im : {-2.0, -0.5, 0.25, 3.0}) points.emplace_back(re, im);
  const array z = from_complex(points, {static_cast<int64_t>(points.size())}, Dtype::complex128);
  for (const Case& c : cases) {
    const std::vector<Complex> got = complex_values(c.op(z, {}));
    for (size_t i = 0; i < points.size(); ++i) {
      const Complex want = c.reference(points[i]);
      EXPECT_NEAR(std::abs(got[i] - want), 0, 1e-12 * std::max(1.0, std::abs(want)))
          << c.name << points[i] << " is " << got[i] << ", not " << want;
    }
  }
}

TEST(Complex, ArithmeticOfTwo) {
  const std::vector<Complex> a = {{1, 2}, {-3, 0.5}, {0, 0}}, b = {{2, 1}, {0.25, -4}, {2, 0}};
  const array x = from_complex(a, {3}), y = from_complex(b, {3});
  const std::vector<Complex> sum = complex_values(x + y), product = complex_values(x * y),
                             quotient = complex_values(x / y), powers = complex_values(power(x, y));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(std::abs(sum[i] - (a[i] + b[i])), 0, 1e-6);
    EXPECT_NEAR(std::abs(product[i] - a[i] * b[i]), 0, 1e-5);
    EXPECT_NEAR(std::abs(quotient[i] - a[i] / b[i]), 0, 1e-6);
    const Complex want = i == 2 ? Complex(0) : std::pow(a[i], b[i]);
    EXPECT_NEAR(std::abs(powers[i] - want), 0, 2e-5 * std::max(1.0, std::abs(want)));
  }
  const array huge = from_complex(std::vector<Complex>{{3e38, 4e37}}, {1});
  EXPECT_NEAR(complex_values(huge / huge)[0].real(), 1, 1e-6);
  EXPECT_NEAR(values(abs(from_complex(std::vector<Complex>{{3e38, 0}}, {1})))[0] / 3e38, 1, 1e-6);
  expect_near(values(maximum(x, y)), {2, 0.25, 2});
  expect_near(values(x < y), {1, 1, 1});
  expect_near(values(x == x), {1, 1, 1});
}

TEST(Binary, BroadcastsAndPromotes) {
  const array a = from_values(Doubles{1, 2, 3}, {3, 1}), b = vec({10, 20}, Dtype::int32);
  const array c = a + b;
  EXPECT_EQ(c.shape(), (Shape{3, 2}));
  EXPECT_EQ(c.dtype(), Dtype::float32);
  expect_near(values(c), {11, 21, 12, 22, 13, 23});
  EXPECT_EQ((vec({1}, Dtype::float16) + vec({1}, Dtype::bfloat16)).dtype(), Dtype::float32);
  EXPECT_EQ(message_of([&] { vec({1, 2, 3}) + vec({1, 2}); }),
            "[add] shapes (3,) and (2,) cannot be broadcast: 3 and 2 differ; counted from the last "
            "axis, sizes must be equal or 1");
}

TEST(Binary, ScalarsAreWeakAndCostTwoNodes) {
  const array x = vec({1, 2}, Dtype::float16);
  const int64_t before = live_node_count();
  const array y = x + 2;
  EXPECT_EQ(live_node_count() - before, 2);
  EXPECT_EQ(y.dtype(), Dtype::float16);
  EXPECT_EQ((vec({1}, Dtype::uint8) * 2.5).dtype(), Dtype::float32);
  EXPECT_EQ((vec({1}, Dtype::boolean) + 1).dtype(), Dtype::int32);
  EXPECT_EQ((vec({1}, Dtype::uint8) + 255).dtype(), Dtype::uint8);
  EXPECT_EQ(message_of([] { vec({1}, Dtype::uint8) + 300; }),
            "[add] 300 does not fit uint8; use a number in its range, or cast the array to a wider "
            "dtype");
  EXPECT_NE(message_of([] { vec({1}, Dtype::uint64) + -1; }).find("does not fit uint64"),
            std::string::npos);
}

TEST(Binary, DivisionFollowsPython) {
  const array a = vec({7, -7, 7, -7, 1}, Dtype::int32), b = vec({2, 2, -2, -2, 0}, Dtype::int32);
  expect_near(values(floor_divide(a, b)), {3, -4, -4, 3, 0});
  expect_near(values(remainder(a, b)), {1, 1, -1, -1, 0});
  EXPECT_EQ(divide(a, b).dtype(), Dtype::float32);
  expect_near(values(divide(a, b)), {3.5, -3.5, -3.5, 3.5, kInf});
  const array x = vec({7.5, -7.5, 7.5, -7.5, -7.5, 1}), y = vec({2, 2, -2, -2, kInf, 0});
  expect_near(values(floor_divide(x, y)), {3, -4, -4, 3, -0.0, kInf});
  expect_near(values(remainder(x, y)), {1.5, 0.5, -0.5, -1.5, kInf, kNan});
  expect_near(values(floor_divide(vec({7, 250}, Dtype::uint8), vec({2, 7}, Dtype::uint8))),
              {3, 35});
}

TEST(Binary, IntegerPower) {
  const array base = vec({2, 3, -2, 5, 1, -1, -1, 2, 0, 3}, Dtype::int32);
  const array exponent = vec({3, -1, 5, 0, -1, -1, -2, 40, 0, 17}, Dtype::int32);
  expect_near(values(power(base, exponent)), {8, 0, -32, 1, 1, -1, 1, 0, 1, 129140163});
  const array wide = power(vec({3}, Dtype::int64), vec({39}, Dtype::int64));
  EXPECT_DOUBLE_EQ(values(wide)[0], 4052555153018976267.0);
  expect_near(values(power(vec({3}, Dtype::uint8), vec({9}, Dtype::uint8))), {227});
}

TEST(Binary, BoolsAreLogic) {
  const array a = vec({0, 0, 1, 1}, Dtype::boolean), b = vec({0, 1, 0, 1}, Dtype::boolean);
  expect_near(values(a + b), {0, 1, 1, 1});
  expect_near(values(a - b), {0, 1, 1, 0});
  expect_near(values(a * b), {0, 0, 0, 1});
  expect_near(values(maximum(a, b)), {0, 1, 1, 1});
  expect_near(values(minimum(a, b)), {0, 0, 0, 1});
  expect_near(values(power(a, b)), {1, 0, 1, 1});
  expect_near(values(a < b), {0, 1, 0, 0});
  expect_near(values(a >= b), {1, 0, 1, 1});
  expect_near(values(a == b), {1, 0, 0, 1});
  EXPECT_EQ((a << b).dtype(), Dtype::uint8);
}

TEST(Binary, SpecialValues) {
  expect_near(values(maximum(vec({kNan, 1, -0.0}), vec({1, kNan, 0}))), {kNan, kNan, 0});
  expect_near(values(minimum(vec({kNan, 1}), vec({1, kNan}))), {kNan, kNan});
  expect_near(values(logaddexp(vec({1, kInf, -kInf, kNan}), vec({2, kInf, -kInf, 1}))),
              {std::log(std::exp(1) + std::exp(2)), kInf, -kInf, kNan});
  expect_near(values(exp_below(vec({0, -1, kInf, 2, kNan, -kInf, 2, -200}),
                               vec({0, 1, kInf, kInf, 1, -kInf, kNan, 0}))),
              {1, std::exp(-2), kInf, std::exp(2), kNan, 0, std::exp(2), 0});
  expect_near(values(arctan2(vec({1, 0}), vec({2, -1}))), {std::atan2(1, 2), M_PI});
  expect_near(values(left_shift(vec({1, 3}, Dtype::int32), vec({4, 2}, Dtype::int32))), {16, 12});
  expect_near(values(right_shift(vec({-8, 8}, Dtype::int32), vec({1, 2}, Dtype::int32))), {-4, 2});
  expect_near(values(logical_and(vec({2, 0}), vec({0.5, 1}))), {1, 0});
}

TEST(Cast, FollowsTheRules) {
  expect_near(values(astype(vec({-1.5, 300.7, kNan}), Dtype::int8)), {-1, 127, 0});
  expect_near(values(astype(vec({300, -1}, Dtype::int32), Dtype::uint8)), {44, 255});
  expect_near(values(astype(vec({0.5, 0, kNan}), Dtype::boolean)), {1, 0, 1});
  const array z = from_complex(std::vector<Complex>{{1, 2}, {0, 2}}, {2});
  expect_near(values(astype(z, Dtype::float32)), {1, 0});
  expect_near(values(astype(z, Dtype::boolean)), {1, 1});
  EXPECT_EQ(complex_values(astype(vec({3}), Dtype::complex64))[0], Complex(3, 0));
  const array x = vec({1});
  EXPECT_EQ(astype(x, Dtype::float32).node(), x.node());
  // A number is held as its dtype holds it, and is cast from there.
  expect_near(values(astype(full({1}, number(0.1), Dtype::float16), Dtype::float64)),
              {0.0999755859375}, 0);
}

TEST(Where, BroadcastsAndPromotes) {
  const array c = from_values(Doubles{1, 0}, {2, 1}, Dtype::boolean);
  const array r = where(c, vec({1, 2}, Dtype::int32), vec({10, 20}));
  EXPECT_EQ(r.dtype(), Dtype::float32);
  expect_near(values(r), {1, 2, 10, 20});
  expect_near(values(clip(vec({1, 5, 9, kNan}), vec({2, 2, 2, 2}), vec({8, 8, 8, 8}))),
              {2, 5, 8, kNan});
  EXPECT_EQ(message_of([] { clip(vec({1}), {}, {}); }),
            "[clip] neither bound is given; give at least one");
}

TEST(Round, Decimals) {
  expect_near(values(round(vec({1.5, 2.5, -0.5}))), {2, 2, 0});
  expect_near(values(round(vec({1.25, -2.675, 2.449}), 1)), {1.2, -2.7, 2.4});
  expect_near(values(round(vec({125, 135, -125}, Dtype::int32), -1)), {120, 140, -120});
  expect_near(values(round(vec({123456789}, Dtype::int32), -1)), {123456790});
  expect_near(values(round(vec({1234}, Dtype::int32), 2)), {1234});
}

TEST(Operators, ANumberIsOneNodeBesideTheResult) {
  const array f = vec({1, 2}), i = vec({1, 2}, Dtype::int32);
  const int64_t before = live_node_count();
  const Arrays results = {f * 2.0, f + 1, 1.0 - f, i + 1, i < 3};
  EXPECT_EQ(live_node_count() - before, 2 * static_cast<int64_t>(results.size()));
  expect_near(values(results[2]), {0, -1});
  expect_near(values(results[3]), {2, 3});
}

TEST(Messages, NameTheDtypesThatAreTaken) {
  const array z = from_complex(std::vector<Complex>{{1, 2}}, {1});
  const std::string message = message_of([&] { floor(z); });
  EXPECT_EQ(message.find("[floor] an argument has dtype complex64, shape (1,); it takes bool"), 0u)
      << message;
  EXPECT_NE(message_of([] { negative(vec({1}, Dtype::boolean)); }).find("[negative]"),
            std::string::npos);
  EXPECT_NE(message_of([] { bitwise_and(vec({1}), vec({1})); }).find("float32"), std::string::npos);
  EXPECT_NE(message_of([&] { remainder(z, z); }).find("[remainder]"), std::string::npos);
}

}  // namespace
}  // namespace cermet
