// SPDX-License-Identifier: MIT
// custom_function, checkpoint and depends in C++, against derivatives by hand.
#include "transform/custom.h"

#include "ops/ops.h"
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

Arrays sine_times(const Arrays& in) { return {multiply(sin(in[0]), in[1])}; }

const std::vector<double> kX = {0.5, -1, 2}, kY = {3, 0.25, -2};

array of(const std::vector<double>& values) { return vec(values, Dtype::float64); }

std::vector<double> each(double (*f)(double x, double y)) {
  std::vector<double> result;
  for (size_t i = 0; i < kX.size(); i++) result.push_back(f(kX[i], kY[i]));
  return result;
}

TEST(Custom, RulesAreUsed) {
  const Function f = custom_function(
      sine_times,
      [](const Arrays& p, const Arrays& g, const Arrays& out) -> Arrays {
        return {multiply(g[0], p[1]), multiply(g[0], out[0])};
      },
      [](const Arrays&, const Arrays& t, const std::vector<int>& numbers) -> Arrays {
        EXPECT_EQ(numbers, std::vector<int>{1});
        return {negative(t[0])};
      });
  const auto [outputs, cotangents] = vjp(f, {of(kX), of(kY)}, {of({1, 1, 1})});
  expect_near(values(outputs[0]), each([](double x, double y) { return std::sin(x) * y; }));
  expect_near(values(cotangents[0]), kY);
  expect_near(values(cotangents[1]), each([](double x, double y) { return std::sin(x) * y; }));
  const Function of_second = [&](const Arrays& in) { return f({of(kX), in[0]}); };
  const auto [same, tangents] = jvp(of_second, {of(kY)}, {of({1, 2, 3})});
  expect_near(values(tangents[0]), {-1, -2, -3});
}

TEST(Custom, RulesThatDoNotFit) {
  const Function f =
      custom_vjp(sine_times, [](const Arrays&, const Arrays& g, const Arrays&) { return g; });
  EXPECT_NE(message_of([&] {
              vjp(f, {of(kX), of(kY)}, {of({1, 1, 1})});
            }).find("[custom_function] the vjp gives 1 cotangents for 2 arguments"),
            std::string::npos);
  const Function none = custom_function(
      sine_times, std::nullopt,
      [](const Arrays&, const Arrays&, const std::vector<int>&) { return Arrays(); });
  EXPECT_NE(message_of([&] {
              jvp(none, {of(kX), of(kY)}, {of(kY), of(kX)});
            }).find("[custom_function] the jvp gives 0 tangents for 1 outputs"),
            std::string::npos);
}

TEST(Custom, CheckpointHasTheSameDerivatives) {
  const Function f = checkpoint([](const Arrays& in) -> Arrays {
    const array inner = sine_times(in)[0];
    return {multiply(inner, inner), sin(inner)};
  });
  const auto [outputs, g] = vjp(f, {of(kX), of(kY)}, {of({1, 1, 1}), of({2, 2, 2})});
  expect_near(values(g[0]), each([](double x, double y) {
                const double inner = std::sin(x) * y;
                return (2 * inner + 2 * std::cos(inner)) * std::cos(x) * y;
              }));
  expect_near(values(g[1]), each([](double x, double y) {
                const double inner = std::sin(x) * y;
                return (2 * inner + 2 * std::cos(inner)) * std::sin(x);
              }));
}

TEST(Custom, DependsGivesItsInputs) {
  const Arrays in = {of(kX), of(kY)};
  expect_near(values(depends(in, {in[1]})[1]), kY);
  EXPECT_EQ(depends(in, {})[0].node(), in[0].node());
  const Function f = [](const Arrays& a) { return depends({sin(a[0])}, {a[1]}); };
  const auto [outputs, g] = vjp(f, in, {of({1, 1, 1})});
  expect_near(values(g[0]), each([](double x, double) { return std::cos(x); }));
  expect_near(values(g[1]), {0, 0, 0});
}

}  // namespace
}  // namespace cermet
