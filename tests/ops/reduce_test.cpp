// SPDX-License-Identifier: MIT
// Reductions: values against sums in double, dtypes, special values, empty groups, messages.
#include <numeric>

#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

TEST(Reduce, SumsOverAxes) {
  const array x = counting({2, 3, 4});
  expect_near(values(sum(x)), {276});
  expect_near(values(sum(x, AxisList{0})), {12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34});
  expect_near(values(sum(x, AxisList{-1, 0})), {60, 92, 124});
  EXPECT_EQ(sum(x, AxisList{0, -1}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, AxisList{}).node(), x.node());
}

TEST(Reduce, LongSumsAreAccurate) {
  const array x = scattered({3, 20000});
  const Doubles v = values(x);
  Doubles want(3);
  for (int i = 0; i < 3; ++i)
    want[i] = std::accumulate(v.begin() + i * 20000, v.begin() + (i + 1) * 20000, 0.0);
  expect_near(values(sum(x, AxisList{1})), want, 1e-4);
}

TEST(Reduce, NarrowDtypesWiden) {
  EXPECT_EQ(sum(vec({1}, Dtype::boolean)).dtype(), Dtype::int32);
  EXPECT_EQ(sum(vec({1}, Dtype::uint8)).dtype(), Dtype::uint32);
  EXPECT_EQ(prod(vec({1}, Dtype::int16)).dtype(), Dtype::int32);
  EXPECT_EQ(sum(vec({1}, Dtype::int64)).dtype(), Dtype::int64);
  EXPECT_EQ(sum(vec({1}, Dtype::float16)).dtype(), Dtype::float16);
  expect_near(values(sum(vec(Doubles(300, 1), Dtype::boolean))), {300});
  expect_near(values(sum(vec(Doubles(300, 200), Dtype::uint8))), {60000});
  // A half accumulator would stop at 2048.
  expect_near(values(sum(vec(Doubles(5000, 1), Dtype::float16))), {5000}, 1e-3);
}

TEST(Reduce, ZeroKeepsItsSign) {
  EXPECT_TRUE(std::signbit(values(sum(vec({-0.0, -0.0})))[0]));
  EXPECT_FALSE(std::signbit(values(sum(grid({}, {0})))[0]));
}

TEST(Reduce, NanAndInfinityInMinAndMax) {
  expect_near(values(max(vec({1, kNan, 3}))), {kNan});
  expect_near(values(min(vec({1, kNan, 3}))), {kNan});
  expect_near(values(max(vec({-kInf, -kInf}))), {-kInf});
  expect_near(values(max(vec({-5, -3}, Dtype::int8))), {-3});
  expect_near(values(min(vec({200, 250}, Dtype::uint8))), {200});
  expect_near(values(max(vec({0, 1}, Dtype::boolean))), {1});
  expect_near(values(min(vec({0, 1}, Dtype::boolean))), {0});
}

TEST(Reduce, LargestNumber) {
  const auto largest = [](const array& a) {
    return values(make_node(rows::max_number, {a}, ReduceParams{{a.ndim() - 1}, false}, {}));
  };
  expect_near(largest(vec({1, kNan, 3, 2})), {3});
  expect_near(largest(vec({kNan, -kInf, kNan})), {-kInf});
  expect_near(largest(vec({-2, -1, kNan}, Dtype::float16)), {-1});
  Doubles many(5000, kNan);
  many[4321] = -7;
  expect_near(largest(vec(many)), {-7});
}

TEST(Reduce, ArgReductionsTakeTheFirst) {
  expect_near(values(argmax(vec({1, 3, 3, 2}))), {1});
  expect_near(values(argmin(vec({1, 0, 0, 2}))), {1});
  expect_near(values(argmax(vec({1, kNan, 3, kNan}))), {1});
  expect_near(values(argmin(vec({1, kNan, -3}))), {1});
  expect_near(values(argmin(vec({kInf, kInf}))), {0});
  expect_near(values(argmax(vec({-kInf, -kInf}))), {0});
  expect_near(values(argmax(vec({0, 0}, Dtype::uint8))), {0});
  expect_near(values(argmax(vec({0, 1, 1}, Dtype::boolean))), {1});
  const array x = scattered({7, 300});
  const Doubles v = values(x);
  Doubles want;
  for (int i = 0; i < 7; ++i)
    want.push_back(std::max_element(v.begin() + i * 300, v.begin() + (i + 1) * 300) -
                   (v.begin() + i * 300));
  expect_near(values(argmax(x, 1)), want);
  EXPECT_EQ(argmax(x, 1).dtype(), Dtype::uint32);
  EXPECT_EQ(argmax(x, 0, true).shape(), (Shape{1, 300}));
  EXPECT_EQ(argmax(x, {}, true).shape(), (Shape{1, 1}));
}

TEST(Reduce, ComplexFolds) {
  const std::vector<Complex> z = {{1, 2}, {1, 3}, {0, 9}};
  const array x = from_complex(z, {3});
  EXPECT_NEAR(std::abs(complex_values(prod(x))[0] - z[0] * z[1] * z[2]), 0, 1e-5);
  EXPECT_EQ(complex_values(sum(x))[0], Complex(2, 14));
  EXPECT_EQ(complex_values(max(x))[0], Complex(1, 3));
  EXPECT_EQ(complex_values(min(x))[0], Complex(0, 9));
  expect_near(values(argmax(x)), {1});
}

TEST(Reduce, EmptyGroups) {
  const array x = grid({}, {3, 0});
  expect_near(values(sum(x, AxisList{1})), {0, 0, 0});
  expect_near(values(prod(x)), {1});
  expect_near(values(any(x)), {0});
  expect_near(values(all(x)), {1});
  EXPECT_EQ(max(x, AxisList{0}).shape(), (Shape{0}));
  EXPECT_EQ(message_of([&] { max(x, AxisList{1}); }),
            "[max] shape (3, 0) has no elements along the reduced axes; reduce axes of size >= 1");
  EXPECT_NE(message_of([&] { argmin(x); }).find("[argmin] shape (3, 0)"), std::string::npos);
  EXPECT_NE(message_of([&] { logsumexp(x); }).find("[logsumexp]"), std::string::npos);
}

TEST(Reduce, BadAxes) {
  try {
    sum(counting({2, 3}), AxisList{2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::axis);
    EXPECT_STREQ(error.what(),
                 "[sum] axis 2 is out of range for an array with 2 axes; use -2 <= axis < 2");
  }
  EXPECT_NE(message_of([] { sum(counting({2}), AxisList{0, -1}); }).find("given twice"),
            std::string::npos);
}

TEST(Softmax, IsSafe) {
  const Doubles x = {1000, 1001, 1002};
  const double total = std::exp(-2) + std::exp(-1) + 1;
  expect_near(values(softmax(vec(x))), {std::exp(-2) / total, std::exp(-1) / total, 1 / total});
  expect_near(values(logsumexp(vec(x))), {1002 + std::log(total)});
  expect_near(values(logsumexp(vec({-kInf, -kInf}))), {-kInf});
  expect_near(values(logsumexp(vec({kInf, 1}))), {kInf});
  EXPECT_EQ(softmax(vec({1, 2}, Dtype::int32)).dtype(), Dtype::float32);
  EXPECT_EQ(softmax(vec({1, 2}, Dtype::bfloat16)).dtype(), Dtype::bfloat16);
  const array two = softmax(counting({2, 2, 2}), AxisList{0, 2});
  expect_near(values(sum(two, AxisList{0, 2})), {1, 1});
}

TEST(Mean, AndVariance) {
  const array x = grid({1, 2, 3, 5, 5, 5}, {2, 3});
  expect_near(values(mean(x, AxisList{1})), {2, 5});
  expect_near(values(var(x, AxisList{1})), {2.0 / 3, 0});
  expect_near(values(var(x, AxisList{1}, false, 1)), {1, 0});
  expect_near(values(std_dev(vec({1, 2, 3}), {}, false, 1)), {1});
  expect_near(values(var(vec({1}), {}, false, 1)), {kNan});
  expect_near(values(var(vec({1, 2}), {}, false, 5)), {kInf});
  EXPECT_EQ(mean(vec({1, 2}, Dtype::int32)).dtype(), Dtype::float32);
  expect_near(values(mean(vec(Doubles(4096, 3), Dtype::float16))), {3});
  const array z = from_complex(std::vector<Complex>{{1, 2}, {3, 0}}, {2});
  EXPECT_EQ(var(z).dtype(), Dtype::float32);
  expect_near(values(var(z)), {2});
}

}  // namespace
}  // namespace cermet
