// SPDX-License-Identifier: MIT
// The C++ face as a user has it, through cermet.h alone: results by hand or from the standard library.
#include <cermet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <sstream>
#include <thread>

namespace {

using namespace cermet;

template <typename T>
std::vector<T> list(const array& a) {
  const array packed = contiguous(a);
  packed.eval();
  std::vector<T> values(static_cast<size_t>(a.size()));
  convert_elements(packed.data(), a.dtype(), values.data(), exact_dtype<T>(), values.size());
  return values;
}

using Ints = std::vector<int>;
using Doubles = std::vector<double>;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Face, ArraysFromNumbers) {
  EXPECT_EQ(array(3).dtype(), int32);
  EXPECT_EQ(array(int64_t{1} << 40).item<int64_t>(), int64_t{1} << 40);
  EXPECT_EQ(array(2.5).dtype(), float32);
  EXPECT_EQ(array(0.1, float64).item<double>(), 0.1);
  EXPECT_EQ(array(true).dtype(), bool_);
  EXPECT_EQ(array(std::complex<float>(1, -2)).item<std::complex<float>>(),
            std::complex<float>(1, -2));
  EXPECT_EQ(array(300, float16).item<float>(), 300);
  EXPECT_EQ(array({1, 2, 3}).shape(), (Shape{3}));
  EXPECT_EQ(list<int>(array({1.5f, 2.5f}, int32)), (Ints{1, 2}));
  EXPECT_EQ(array({1, 2, 3, 4}, {2, 2}, bfloat16).dtype(), bfloat16);
  EXPECT_EQ(array({}).size(), 0);
  const std::vector<double> data = {1, 2, 3, 4, 5, 6};
  const array a(data.begin(), {2, 3});
  EXPECT_EQ(a.dtype(), float32);
  EXPECT_EQ(list<double>(transpose(a)), (Doubles{1, 4, 2, 5, 3, 6}));
  const std::vector<bool> bits = {true, false};
  EXPECT_EQ(list<int>(array(bits.begin(), {2})), (Ints{1, 0}));
  EXPECT_NE(message_of([] { array({1, 2, 3}, {2, 2}); }).find("3 elements were given for"),
            std::string::npos);
}

TEST(Face, ForeignMemory) {
  float numbers[] = {1, 2, 3, 4};
  int released = 0;
  {
    array a(numbers, {2, 2}, float32, [&](void* p) { released += p == numbers; });
    EXPECT_EQ(a.data<float>(), numbers);
    a = a + 1;
    EXPECT_EQ(list<double>(a), (Doubles{2, 3, 4, 5}));
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(numbers[0], 1);
}

TEST(Face, WhatAnArrayKnows) {
  const array a = reshape(arange(6), {2, 3});
  EXPECT_EQ(a.ndim(), 2);
  EXPECT_EQ(a.shape(-1), 3);
  EXPECT_EQ(a.nbytes(), 24U);
  EXPECT_FALSE(a.is_available());
  EXPECT_EQ(a.strides(), (Strides{3, 1}));
  EXPECT_EQ(transpose(a).strides(-1), 3);
  EXPECT_TRUE(a.is_available());
  std::vector<Ints> rows;
  for (const array& row : a) rows.push_back(list<int>(row));
  EXPECT_EQ(rows, (std::vector<Ints>{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_NE(message_of([] { array(1).begin(); }).find("[iter]"), std::string::npos);
  EXPECT_NE(message_of([&] { a.item<int>(); }).find("[item]"), std::string::npos);
}

TEST(Face, Text) {
  std::ostringstream out;
  out << array({true, false}) << ' ' << float32 << ' ' << Shape{2, 3} << ' ' << Device(Device::cpu);
  EXPECT_EQ(out.str(), "array([true, false], dtype=bool) float32 (2, 3) Device(cpu, 0)");
  set_printoptions({.precision = 2});
  EXPECT_EQ(to_string(array({1.0f, 2.345f})), "array([1.00, 2.35], dtype=float32)");
  set_printoptions({});
  EXPECT_STREQ(version(), "0.1.0");
}

TEST(Face, Dtypes) {
  EXPECT_TRUE(issubdtype(float16, floating));
  EXPECT_TRUE(issubdtype(int8, Category::number));
  EXPECT_FALSE(issubdtype(bool_, Category::number));
  EXPECT_TRUE(issubdtype(signedinteger, integer));
  EXPECT_EQ(kindof(uint8), Kind::u);
  EXPECT_EQ(finfo(complex64).max, std::numeric_limits<float>::max());
  EXPECT_EQ(iinfo(int64).min, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(iinfo(uint64).max, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(promote_types(float16, bfloat16), float32);
  EXPECT_EQ(result_type(array(1), array(1.0f), array(true)), float32);
  EXPECT_EQ(broadcast_shapes(Shape{2, 1}, Shape{3}), (Shape{2, 3}));
  EXPECT_EQ((array(1.0f, float16) * 2.0).dtype(), float16);  // numbers are weak, as in Python
}

TEST(Face, ReductionsInEveryForm) {
  const array a = reshape(arange(6.0), {2, 3});
  const std::vector<int> axes = {0, 1};
  EXPECT_EQ(sum(a).item<int>(), 15);
  EXPECT_EQ(list<int>(sum(a, 0)), (Ints{3, 5, 7}));
  EXPECT_EQ(list<int>(sum(a, {1})), (Ints{3, 12}));
  EXPECT_EQ(list<int>(sum(a, {-1, 0})), (Ints{15}));
  EXPECT_EQ(sum(a, axes, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(sum(a, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(sum(a, Device(Device::cpu)).item<int>(), 15);
  EXPECT_EQ(sum(a, default_stream(Device::cpu)).item<int>(), 15);
  EXPECT_EQ(argmax(a, 1).shape(), (Shape{2}));
  EXPECT_EQ(argmax(a, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(cermet::std(a, 1).shape(), (Shape{2}));
  EXPECT_NEAR(var(a).item<double>(), 35.0 / 12, 1e-6);
  EXPECT_NEAR(cermet::std(a, false, 1).item<double>(), std::sqrt(3.5), 1e-6);
  const auto [low, high] = minmax(a, 1);
  EXPECT_EQ(list<int>(high), (Ints{2, 5}));
  EXPECT_EQ(list<int>(low), (Ints{0, 3}));
  EXPECT_EQ(list<int>(cumsum(a, 1)), (Ints{0, 1, 3, 3, 7, 12}));
  EXPECT_EQ(list<int>(cumsum(a, true)), (Ints{15, 15, 14, 12, 9, 5}));
  EXPECT_EQ(list<int>(cumsum(a, false, false, Stream())), (Ints{0, 0, 1, 3, 6, 10}));
  EXPECT_EQ(list<int>(cummax(a, 0, true, true)), (Ints{3, 4, 5, 3, 4, 5}));
  EXPECT_NEAR(list<double>(softmax(array({0.0f, 0.0f}), true))[0], 0.5, 1e-7);
}

TEST(Face, MovementInEveryForm) {
  const array a = reshape(arange(12), {3, 4});
  const Shape shape = {4, 3};
  EXPECT_EQ(reshape(a, shape).shape(), shape);
  EXPECT_EQ(unflatten(a, 1, Shape{2, 2}).shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(expand_dims(a, 0).shape(), (Shape{1, 3, 4}));
  EXPECT_EQ(expand_dims(a, std::vector<int>{0, -1}).shape(), (Shape{1, 3, 4, 1}));
  EXPECT_EQ(squeeze(expand_dims(a, {0, 1}), std::vector<int>{0, 1}).shape(), a.shape());
  EXPECT_EQ(list<int>(flip(array({1, 2, 3}), 0)), (Ints{3, 2, 1}));
  EXPECT_EQ(matrix_transpose(a).shape(), shape);
  EXPECT_EQ(list<int>(slice(a, {0, 1}, {2, 4}, {1, 2})), (Ints{1, 3, 5, 7}));
  EXPECT_EQ(list<int>(slice(a, {-1, -1}, {-4, -5}, {-2, -3})), (Ints{11, 8, 3, 0}));
  EXPECT_EQ(list<int>(slice(a, {1, 0}, {99, 1})), (Ints{4, 8}));
  EXPECT_EQ(slice(a, {2, 0}, {1, 4}).shape(), (Shape{0, 4}));
  EXPECT_EQ(list<int>(slice(a, array({1, 2}), {0, 1}, {2, 2})), (Ints{6, 7, 10, 11}));
  const array z = zeros({2, 2}, int32);
  EXPECT_EQ(list<int>(slice_update(z, array({5, 6}), {1, 0}, {2, 2})), (Ints{0, 0, 5, 6}));
  EXPECT_EQ(list<int>(slice_update_add(z + 2, array(3), {0, 0}, {2, 1})), (Ints{5, 2, 5, 2}));
  EXPECT_EQ(list<int>(slice_update_max(z, array(-3), {0, 0}, {2, 2})), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(list<int>(pad(array({1, 2}), 1)), (Ints{0, 1, 2, 0}));
  EXPECT_EQ(list<int>(pad(array({1, 2}), std::pair(0, 2), array(7))), (Ints{1, 2, 7, 7}));
  EXPECT_EQ(pad(a, std::vector<int>{1}, Shape{1}, Shape{2}).shape(), (Shape{3, 7}));
  EXPECT_EQ(pad(a, {{1, 1}, {0, 2}}).shape(), (Shape{5, 6}));
  EXPECT_EQ(list<int>(roll(array({1, 2, 3}), 1)), (Ints{3, 1, 2}));
  EXPECT_EQ(list<int>(roll(array({1, 2, 3}), -1, 0)), (Ints{2, 3, 1}));
  EXPECT_EQ(split(a, 2, 1).size(), 2U);
  EXPECT_EQ(split(a, Shape{1}, 0)[1].shape(), (Shape{2, 4}));
  EXPECT_EQ(tile(array({1, 2}), std::vector<int>{2}).size(), 4);
  EXPECT_EQ(atleast_2d({array(1), array({1, 2})})[1].shape(), (Shape{1, 2}));
  EXPECT_EQ(concatenate({a, a}, 1).shape(), (Shape{3, 8}));
  EXPECT_EQ(number_of_elements(a, {0, 1}, false).item<int>(), 12);
  EXPECT_EQ(number_of_elements(a, {1}, true, float32).item<double>(), 0.25);
}

TEST(Face, IndexingInEveryForm) {
  const array a = reshape(arange(6), {3, 2});
  EXPECT_EQ(list<int>(take(a, 1, 0)), (Ints{2, 3}));
  EXPECT_EQ(take(a, -1).item<int>(), 5);
  EXPECT_EQ(list<int>(take(a, array({0, 0}), 1)), (Ints{0, 0, 2, 2, 4, 4}));
  EXPECT_EQ(list<int>(gather(a, array({2, 0}), 0, {1, 2})), (Ints{4, 5, 0, 1}));
  const array z = zeros({4}, int32), at = array({1, 1, 3}), ones3 = ones({3, 1}, int32);
  EXPECT_EQ(list<int>(scatter_add(z, at, ones3, 0)), (Ints{0, 2, 0, 1}));
  EXPECT_EQ(list<int>(scatter_max(z, Arrays{at}, ones3 * 4, std::vector<int>{0})),
            (Ints{0, 4, 0, 4}));
  EXPECT_EQ(list<int>(scatter_add_axis(z, array({3, 3}), array({1, 5}), 0)), (Ints{0, 0, 0, 6}));
  const array mask = array({true, false, true, true});
  EXPECT_EQ(list<int>(masked_scatter(z - 1, mask, array({7, 8, 9}))), (Ints{7, -1, 8, 9}));
  EXPECT_EQ(list<int>(masked_scatter(zeros({2, 2}, int32), array({false, true}), array({3, 4}))),
            (Ints{0, 0, 3, 4}));
  EXPECT_NE(message_of([&] { masked_scatter(z, mask, array({1, 2})).eval(); }).find("out of range"),
            std::string::npos);
}

TEST(Face, CreationInEveryForm) {
  EXPECT_EQ(arange(3).dtype(), int32);
  EXPECT_EQ(list<double>(arange(1, 2, 0.25)), (Doubles{1, 1.25, 1.5, 1.75}));
  EXPECT_EQ(arange(3, int8).dtype(), int8);
  EXPECT_EQ(list<int>(arange(5, 0, -2)), (Ints{5, 3, 1}));
  EXPECT_EQ(linspace(0, 1, 5, float64).dtype(), float64);
  EXPECT_EQ(full({2}, 3).dtype(), int32);
  EXPECT_EQ(full({2}, 3.0f, float16).dtype(), float16);
  EXPECT_EQ(list<int>(full({2, 2}, array({1, 2}))), (Ints{1, 2, 1, 2}));
  EXPECT_EQ(full_like(arange(2), 1.5).dtype(), int32);
  EXPECT_EQ(zeros_like(arange(2), float32).dtype(), float32);
  EXPECT_EQ(list<int>(eye(2, int32)), (Ints{1, 0, 0, 1}));
  EXPECT_EQ(identity(3).shape(), (Shape{3, 3}));
  EXPECT_EQ(list<int>(tri(2, int32)), (Ints{1, 0, 1, 1}));
}

TEST(Face, Random) {
  random::seed(7);
  const array first = random::uniform({100});
  const array second = random::normal({100}, 5.0f, 0.5f);
  random::seed(7);
  EXPECT_TRUE(array_equal(first, random::uniform(Shape{100})).item<bool>());
  EXPECT_FALSE(array_equal(first, random::uniform(Shape{100})).item<bool>());
  EXPECT_NEAR(mean(second).item<double>(), 5, 0.3);
  const auto [a, b] = random::split(random::key(1));
  EXPECT_FALSE(array_equal(a, b).item<bool>());
  EXPECT_EQ(random::split(random::key(1), 3).shape(), (Shape{3, 2}));
  const array die = random::randint(1, 7, {1000}, int32, random::key(2));
  EXPECT_EQ(min(die).item<int>(), 1);
  EXPECT_EQ(max(die).item<int>(), 6);
  EXPECT_EQ(random::bernoulli(0.5, Shape{8}).dtype(), bool_);
  EXPECT_EQ(random::categorical(zeros({2, 5}), -1, 3).shape(), (Shape{2, 3}));
  EXPECT_EQ(random::gumbel({2}).shape(), random::laplace({2}, float16).shape());
  EXPECT_EQ(random::truncated_normal(array(0.0f), array(1.0f), {4}).size(), 4);
  random::KeySequence keys(3);
  std::vector<std::thread> threads;
  std::vector<array> drawn(8, array(0));
  for (size_t i = 0; i < drawn.size(); ++i)
    threads.emplace_back([&, i] { drawn[i] = keys.next(); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 1; i < drawn.size(); ++i)
    EXPECT_FALSE(array_equal(drawn[0], drawn[i]).item<bool>());
}

TEST(Face, Gradients) {
  const UnaryFunction cube = [](const array& x) { return sum(x * x * x); };
  const array x = array({1.0f, 2.0f});
  EXPECT_EQ(list<double>(grad(cube)(x)), (Doubles{3, 12}));
  const auto [value, gradient] = value_and_grad(cube)(x);
  EXPECT_EQ(value.item<double>(), 9);
  EXPECT_EQ(list<double>(gradient), (Doubles{3, 12}));
  const ScalarFunction product = [](const Arrays& in) { return sum(in[0] * in[1]); };
  const Arrays both = grad(product, std::vector<int>{0, -1})({x, x + 1});
  EXPECT_EQ(list<double>(both[0]), (Doubles{2, 3}));
  EXPECT_EQ(list<double>(both[1]), (Doubles{1, 2}));
  const Function with_more = [](const Arrays& in) { return Arrays{sum(in[0]), in[0] * 2}; };
  const auto [outputs, gradients] = value_and_grad(with_more)({x});
  EXPECT_EQ(list<double>(outputs[1]), (Doubles{2, 4}));
  EXPECT_EQ(list<double>(gradients[0]), (Doubles{1, 1}));
  const auto [y, g] = vjp([](const array& v) { return sin(v); }, x, ones_like(x));
  EXPECT_NEAR(list<double>(g)[1], std::cos(2.0), 1e-6);
  const auto [z, t] = jvp([](const array& v) { return v * v; }, x, x);
  EXPECT_EQ(list<double>(t), (Doubles{2, 8}));
  EXPECT_NE(message_of([&] { grad(cube)(arange(3)); }).find("int32"), std::string::npos);
  EXPECT_NE(message_of([&] {
              grad(UnaryFunction([](const array& v) { return v; }))(x);
            }).find("shape (2,)"),
            std::string::npos);
  EXPECT_NE(message_of([&] { grad(product, 2)({x, x}); }).find("argument 2 does not exist"),
            std::string::npos);
}

TEST(Face, Vmap) {
  const array m = reshape(arange(6.0), {2, 3});
  const UnaryFunction total = [](const array& v) { return sum(v); };
  EXPECT_EQ(list<double>(vmap(total)(m)), (Doubles{3, 12}));
  EXPECT_EQ(list<double>(vmap(total, 1)(m)), (Doubles{3, 5, 7}));
  const BinaryFunction times = [](const array& a, const array& b) { return a * b; };
  EXPECT_EQ(vmap(times, 0, -1, 1)(m, array({1.0f, 2.0f, 3.0f})).shape(), (Shape{3, 2}));
  const Function both = [](const Arrays& in) { return Arrays{in[0] + in[1], sum(in[0])}; };
  const Arrays out = vmap(both, {1, 0}, {1, 0})({m, array({10.0f, 20.0f, 30.0f})});
  EXPECT_EQ(list<double>(out[0]), (Doubles{10, 21, 32, 13, 24, 35}));
  EXPECT_EQ(list<double>(out[1]), (Doubles{3, 5, 7}));
  const UnaryFunction square_sum = [](const array& v) { return sum(v * v); };
  EXPECT_EQ(list<double>(vmap(grad(square_sum))(m)), (Doubles{0, 2, 4, 6, 8, 10}));
}

TEST(Face, Compile) {
  int calls = 0;
  const Function f = [&](const Arrays& in) {
    ++calls;
    return Arrays{tanh(in[0]) * 2 + in[1]};
  };
  const Function compiled = compile(f);
  for (int64_t n : {5, 7, 9}) {
    const array x = linspace(-1, 1, static_cast<int>(n)), y = array(0.5f);
    EXPECT_TRUE(allclose(compiled({x, y})[0], tanh(x) * 2 + 0.5f).item<bool>());
  }
  EXPECT_EQ(calls, 1);  // sizes are open
  compiled({ones({2, 2}), array(1.0f)});
  compiled({astype(ones({2, 2}), float16), array(1.0f)});
  EXPECT_EQ(calls, 3);
  const Function by_size =
      compile([](const Arrays& in) { return Arrays{in[0].shape(0) > 4 ? in[0] + 1 : in[0] - 1}; });
  EXPECT_EQ(list<int>(by_size({zeros({5}, int32)})[0])[0], 1);
  EXPECT_EQ(list<int>(by_size({zeros({3}, int32)})[0])[0], -1);
  EXPECT_EQ(list<int>(by_size({zeros({6}, int32)})[0])[0], 1);
  const UnaryFunction loss = [&](const array& v) { return sum(compiled({v, v})[0]); };
  const array x = array({0.0f, 1.0f});
  EXPECT_NEAR(list<double>(grad(loss)(x))[0], 3, 1e-6);
  disable_compile();
  calls = 0;
  compiled({x, x});
  compiled({x, x});
  EXPECT_EQ(calls, 2);
  enable_compile();
}

TEST(Face, Memory) {
  const array a = ones({1024});
  eval(a);
  EXPECT_EQ(get_array_buffer_size({a, a, transpose(a)}), a.nbytes());
  EXPECT_GE(get_active_memory(), a.nbytes());
}

// --- ops from outside ---

array cube_reference(const OpCall& c) { return c.inputs[0] * c.inputs[0] * c.inputs[0]; }
Lane cube_kernel(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  return {cx.builder().mul(cx.builder().mul(a[0].re, a[0].re), a[0].re)};
}

TEST(CustomOp, DerivativesOfTheReference) {
  const OpRow& row =
      register_op({.name = "test_cube", .reference = cube_reference, .kernel = cube_kernel});
  const UnaryFunction f = [&](const array& x) { return sum(call_op(row, {x})); };
  const array x = array({1.0f, -2.0f});
  EXPECT_EQ(list<double>(call_op(row, {x})), (Doubles{1, -8}));
  EXPECT_EQ(list<double>(grad(f)(x)), (Doubles{3, 12}));
  const UnaryFunction twice = [&](const array& v) { return sum(grad(f)(v)); };
  EXPECT_EQ(list<double>(grad(twice)(x)), (Doubles{6, -12}));
  const auto [y, t] = jvp([&](const array& v) { return call_op(row, {v}); }, x, x);
  EXPECT_EQ(list<double>(t), (Doubles{3, -24}));
  EXPECT_EQ(find_op("test_cube"), &row);
  EXPECT_EQ(message_of([&] { call_op(row, {x, x}); }),
            "[test_cube] 2 arguments were given; it takes 1");
  EXPECT_EQ(explain(Arrays{exp(call_op(row, {x + 1}))}).size(), 1U);
}

array spread_reference(const OpCall& c) {
  return expand_dims(c.inputs[0], {-1}) - expand_dims(c.inputs[0], {-2});
}

array weighted_reference(const OpCall& c) { return c.inputs[0] * c.inputs[1]; }

TEST(CustomOp, NumberOfArguments) {
  const OpRow& row =
      register_op({.name = "test_weighted", .reference = weighted_reference, .inputs = 2});
  const array x = array({1.0f, 3.0f});
  EXPECT_EQ(list<double>(call_op(row, {x, x})), (Doubles{1, 9}));
  EXPECT_EQ(message_of([&] { call_op(row, {x}); }),
            "[test_weighted] 1 arguments were given; it takes 2");
  const OpRow& open = register_op({.name = "test_open", .reference = weighted_reference});
  EXPECT_EQ(list<double>(call_op(open, {x, x})), (Doubles{1, 9}));
  EXPECT_EQ(message_of([&] { call_op(open, {x, x, x}); }),
            "[test_open] 3 arguments were given; it takes 2");
}

Lane weighted_kernel(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  return {cx.builder().mul(a[0].re, a[1].re)};
}
array first_dtype_reference(const OpCall& c) { return astype(c.inputs.back(), float32); }
Lane other_dtype_kernel(LowerContext& cx, const NodeView& n, std::span<const Lane> a) {
  return {cx.builder().cast(a[0].re, n.input_dtypes[1])};
}
Lane sum_kernel(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  ir::ExprId sum = a[0].re;
  for (const Lane& lane : a.subspan(1)) sum = cx.builder().add(sum, lane.re);
  return {sum};
}
array sum_reference(const OpCall& c) {
  array sum = c.inputs[0];
  for (size_t k = 1; k < c.inputs.size(); ++k) sum = sum + c.inputs[k];
  return sum;
}

// Whoever wrote the op, and whether or not it says how many arguments it takes.
TEST(CustomOp, NothingIsReadPastTheArguments) {
  const array x = array({1.0f, 3.0f});
  const auto refuses = [&](const CustomOp& op, const Arrays& arguments, const char* message) {
    const OpRow& row = register_op(op);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(message_of([&] { eval(call_op(row, arguments)); }), message);
  };
  refuses({.name = "test_few", .reference = weighted_reference}, {x},
          "[test_few] 1 arguments were given; it takes at least 2");
  refuses({.name = "test_few_kernel", .reference = weighted_reference, .kernel = weighted_kernel},
          {x}, "[test_few_kernel] 1 arguments were given; it takes at least 2");
  refuses({.name = "test_wrong_count", .reference = weighted_reference, .inputs = 1}, {x},
          "[test_wrong_count] 1 arguments were given; it takes at least 2");
  refuses({.name = "test_other_kernel", .reference = cube_reference, .kernel = weighted_kernel},
          {x},
          "[test_other_kernel] its kernel reads argument 2, counted from 1, of 1; it must read no "
          "more than the op takes");
  refuses({.name = "test_other_kernel_of_1",
           .reference = cube_reference,
           .kernel = weighted_kernel,
           .inputs = 1},
          {x},
          "[test_other_kernel_of_1] its kernel reads argument 2, counted from 1, of 1; it must "
          "read no more than the op takes");
  refuses({.name = "test_dtypes", .reference = first_dtype_reference, .kernel = other_dtype_kernel},
          {x}, "[test_dtypes] 1 arguments were given; it takes at least 2");
  const OpRow& sum =
      register_op({.name = "test_any", .reference = sum_reference, .kernel = sum_kernel});
  EXPECT_EQ(list<double>(call_op(sum, {x})), (Doubles{1, 3}));
  EXPECT_EQ(list<double>(call_op(sum, {x, x, x})), (Doubles{3, 9}));
  EXPECT_EQ(list<double>(call_op(sum, Arrays(70, x))), (Doubles{70, 210}));
}

// An op's rules for derivatives are its own, too.
TEST(CustomOp, DerivativesReadNothingPastTheArguments) {
  const OpRow& row =
      register_op({.name = "test_partial",
                   .reference = cube_reference,
                   .kernel = cube_kernel,
                   .derivative = Elementwise{[](const OpCall& c, const array&, int,
                                                const array& g) { return g * c.inputs[1]; }}});
  const UnaryFunction f = [&](const array& v) { return sum(call_op(row, {v})); };
  EXPECT_EQ(message_of([&] { grad(f)(array({1.0f})); }),
            "[test_partial] 1 arguments were given; it takes at least 2");
}

TEST(CustomOp, ReferenceAlone) {
  const OpRow& row = register_op({.name = "test_spread", .reference = spread_reference});
  const array x = array({1.0f, 3.0f});
  EXPECT_EQ(list<double>(call_op(row, {x})), (Doubles{0, -2, 2, 0}));
  const array rows = reshape(arange(4.0), {2, 2});
  EXPECT_EQ(vmap(UnaryFunction([&](const array& v) { return call_op(row, {v}); }))(rows).shape(),
            (Shape{2, 2, 2}));
  const UnaryFunction f = [&](const array& v) { return sum(square(call_op(row, {v}))); };
  EXPECT_EQ(list<double>(grad(f)(x)), (Doubles{-8, 8}));
}

TEST(CustomOp, WhatIsRefused) {
  EXPECT_NE(message_of([] {
              register_op({.name = "exp", .reference = cube_reference});
            }).find("[register_op] there is an op exp"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              register_op({.name = "a b", .reference = cube_reference});
            }).find("is no name"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              register_op({.name = "test_null", .reference = nullptr});
            }).find("no reference"),
            std::string::npos);
  EXPECT_EQ(find_op("exp"), nullptr);
}

}  // namespace
