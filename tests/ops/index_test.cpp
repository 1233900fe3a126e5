// SPDX-License-Identifier: MIT
// Reading and writing at computed places, matrix products, and arrays made from numbers.
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

array ints(const Doubles& v, Dtype dtype = Dtype::int32) { return vec(v, dtype); }

TEST(Take, AlongAnAxis) {
  const array x = counting({2, 3});
  expect_near(values(take(x, ints({2, -3, 0}), 1)), {2, 0, 0, 5, 3, 3});
  expect_near(values(take(x, grid({1, 0, 0, 1}, {2, 2}, Dtype::uint8), 0)),
              {3, 4, 5, 0, 1, 2, 0, 1, 2, 3, 4, 5});
  const array inner = take(counting({2, 3, 2}), grid({0, 2}, {1, 2}, Dtype::int64), 1);
  EXPECT_EQ(inner.shape(), (Shape{2, 1, 2, 2}));
  expect_near(values(inner), {0, 1, 4, 5, 6, 7, 10, 11});
  expect_near(values(take(x, ints({4, -1}))), {4, 5});
  expect_near(values(take(x, reshape(ints({1}), {}), 0)), {3, 4, 5});
}

TEST(Take, ChecksIndices) {
  const array x = counting({3});
  EXPECT_EQ(message_of([&] { values(take(x, ints({0, 3}))); }),
            "[index] index 3 for axis 0 of size 3");
  EXPECT_EQ(message_of([&] { values(take(x, ints({-4}))); }),
            "[index] index -4 for axis 0 of size 3");
  EXPECT_NE(message_of([&] { values(take(x, ints({1e19}, Dtype::uint64))); }).find("[index]"),
            std::string::npos);
  EXPECT_NE(message_of([&] { take(x, vec({0.5})); }).find("indices must be integers"),
            std::string::npos);
  EXPECT_NE(message_of([&] { take(x, vec({1}, Dtype::boolean)); }).find("[take]"),
            std::string::npos);
  EXPECT_NE(
      message_of([] { take(grid({}, {0}), ints({0})); }).find("out of range for axis 0 of size 0"),
      std::string::npos);
}

TEST(Gather, SlicesAtSeveralAxes) {
  const array x = counting({3, 4, 2});
  const array g = gather(x, {ints({0, 2}), ints({1, -3})}, {0, 1}, {1, 2, 2});
  EXPECT_EQ(g.shape(), (Shape{2, 1, 2, 2}));
  expect_near(values(g), {2, 3, 4, 5, 18, 19, 20, 21});
  EXPECT_NE(message_of([&] { gather(x, {ints({0})}, {0}, {4, 4, 2}); }).find("must fit"),
            std::string::npos);
}

TEST(TakeAlongAxis, Broadcasts) {
  const array x = counting({2, 3});
  expect_near(values(take_along_axis(x, grid({0, 2}, {2, 1}, Dtype::int32), 1)), {0, 5});
  expect_near(values(take_along_axis(x, grid({0, -1}, {1, 2}, Dtype::int32), 1)), {0, 2, 3, 5});
  expect_near(values(take_along_axis(x, ints({1, 4}), {})), {1, 4});
  EXPECT_NE(message_of([&] { take_along_axis(x, ints({0}), 0); }).find("as many axes"),
            std::string::npos);
}

TEST(Put, AlongAnAxis) {
  const array x = counting({2, 2});
  expect_near(values(put_along_axis(x, grid({0, 1}, {2, 1}, Dtype::int32),
                                    full({}, number(9.0), Dtype::float32), 1)),
              {9, 1, 2, 9});
  expect_near(values(put_along_axis(x, ints({0, 3}), vec({7, 8}), {})), {7, 1, 2, 8});
}

TEST(Scatter, Reduces) {
  const array x = vec({1, 2, 3}), at = ints({0, 0, -1});
  const array u = grid({2, 3, 4}, {3, 1});
  expect_near(values(scatter(x, {at}, u, {0}, ScatterReduce::add)), {6, 2, 7});
  expect_near(values(scatter(x, {at}, u, {0}, ScatterReduce::multiply)), {6, 2, 12});
  expect_near(values(scatter(x, {at}, u, {0}, ScatterReduce::maximum)), {3, 2, 4});
  expect_near(values(scatter(x, {at}, u, {0}, ScatterReduce::minimum)), {1, 2, 3});
  expect_near(values(scatter(counting({2, 3}), {ints({1})}, grid({7, 8}, {1, 1, 2}), {0},
                             ScatterReduce::assign)),
              {0, 1, 2, 7, 8, 5});
  EXPECT_NE(message_of([&] {
              scatter(x, {at}, vec({1, 2, 3}), {0}, ScatterReduce::add);
            }).find("[scatter] updates of shape (3,)"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              values(scatter(x, {ints({5})}, grid({1}, {1, 1}), {0}, ScatterReduce::add));
            }).find("index 5"),
            std::string::npos);
}

TEST(SliceUpdate, Reduces) {
  const array x = counting({2, 3});
  expect_near(values(sized_slice_update(x, grid({8, 9}, {1, 2}), {1, 2}, {1, -2})),
              {0, 1, 2, 9, 4, 8});
  expect_near(
      values(sized_slice_update(x, grid({8, 9}, {2, 1}), {0, 1}, {1, 1}, ScatterReduce::add)),
      {0, 9, 2, 3, 13, 5});
  const array all = grid({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(sized_slice_update(x, all, {0, 0}, {1, 1}).node(), all.node());
}

TEST(Matmul, ShapesAndValues) {
  const array a = counting({2, 3}), b = counting({3, 2});
  expect_near(values(matmul(a, b)), {10, 13, 28, 40});
  expect_near(values(matmul(vec({1, 2, 3}), b)), {16, 22});
  expect_near(values(matmul(a, vec({1, 2, 3}))), {8, 26});
  expect_near(values(matmul(vec({1, 2}), vec({3, 4}))), {11});
  EXPECT_EQ(matmul(vec({1, 2}), vec({3, 4})).shape(), Shape{});
  EXPECT_EQ(matmul(counting({4, 1, 2, 3}), counting({5, 3, 2})).shape(), (Shape{4, 5, 2, 2}));
  EXPECT_EQ(matmul(counting({4, 5, 2, 3}), b).shape(), (Shape{4, 5, 2, 2}));
  expect_near(values(matmul(counting({2, 2, 3}), b)), {10, 13, 28, 40, 46, 67, 64, 94});
  expect_near(values(matmul(grid({}, {2, 0}), grid({}, {0, 2}))), {0, 0, 0, 0});
  EXPECT_EQ(matmul(vec({1}, Dtype::float16), vec({1}, Dtype::int32)).dtype(), Dtype::float16);
  expect_near(values(addmm(vec({1, 1}), a, b, 2, 3)), {23, 29, 59, 83});
  EXPECT_EQ(
      message_of([&] { matmul(a, a); }),
      "[matmul] shapes (2, 3) and (2, 3): the last axis of the first has size 3, axis 0 of the "
      "second 2; they must be equal");
  EXPECT_EQ(matmul(vec({1}, Dtype::int8), vec({1}, Dtype::int8)).dtype(), Dtype::int32);
  expect_near(values(matmul(ints({100, 3}), ints({70000, -5}))), {6999985});
}

TEST(Arange, StartsAndSteps) {
  auto range = [](double a, double b, double c, Dtype d) {
    return arange(number(a), number(b), number(c), d);
  };
  expect_near(values(range(0, 1, 0.3, Dtype::float32)), {0, 0.3, 0.6, 0.9});
  expect_near(values(range(5, 0, -2, Dtype::int32)), {5, 3, 1});
  expect_near(values(range(0.5, 3, 1, Dtype::int32)), {0, 1, 2});
  expect_near(values(range(1, 4, 1, Dtype::complex64)), {1, 2, 3});
  EXPECT_EQ(range(0, -5, 1, Dtype::int32).shape(), (Shape{0}));
  EXPECT_EQ(arange(number(int64_t{0}), number(int64_t{3}), number(int64_t{1}), {}).dtype(),
            Dtype::int32);
  EXPECT_EQ(arange(number(int64_t{0}), number(3.0), number(int64_t{1}), {}).dtype(),
            Dtype::float32);
  EXPECT_NE(message_of([&] { range(0, 5, 0, Dtype::int32); }).find("step is 0"), std::string::npos);
  EXPECT_NE(message_of([&] { range(0, kInf, 1, Dtype::int32); }).find("finite"), std::string::npos);
  EXPECT_NE(message_of([&] { range(0, 1e20, 1, Dtype::int32); }).find("too many"),
            std::string::npos);
}

TEST(Create, Matrices) {
  expect_near(values(eye(2, 3, 1)), {0, 1, 0, 0, 0, 1});
  expect_near(values(eye(2, {}, -1)), {0, 0, 1, 0});
  expect_near(values(tri(2, 3, 1, Dtype::int32)), {1, 1, 0, 1, 1, 1});
  expect_near(values(tril(counting({2, 3}), -1)), {0, 0, 0, 3, 0, 0});
  expect_near(values(triu(counting({2, 3}), 1)), {0, 1, 2, 0, 0, 5});
  expect_near(values(linspace(0, 1, 5)), {0, 0.25, 0.5, 0.75, 1});
  expect_near(values(linspace(0, 10, 5, true, Dtype::int32)), {0, 2, 5, 7, 10});
  expect_near(values(linspace(0, 1, 4, false)), {0, 0.25, 0.5, 0.75});
  expect_near(values(linspace(3, 1, 1)), {3});
  EXPECT_NE(message_of([] { linspace(0, 1, -1); }).find("-1 samples"), std::string::npos);
  EXPECT_NE(message_of([] { eye(-1); }).find("[eye]"), std::string::npos);
  EXPECT_NE(message_of([] { tril(vec({1})); }).find("at least 2"), std::string::npos);
  EXPECT_NE(message_of([] { zeros({-1}); }).find("negative"), std::string::npos);
}

TEST(Create, FullOfComplexAndHalf) {
  const array z = full({2}, number(Complex(1, 2)), Dtype::complex64);
  EXPECT_EQ(complex_values(z)[1], Complex(1, 2));
  expect_near(values(full({1}, number(0.1), Dtype::float16)), {0.0999755859375}, 0);
  expect_near(values(full({1}, number(3.7), Dtype::int32)), {3});
  expect_near(values(full({2, 2}, vec({1, 2}), {})), {1, 2, 1, 2});
}

}  // namespace
}  // namespace cermet
