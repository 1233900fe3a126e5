// SPDX-License-Identifier: MIT
// An op from outside the library: swish(x, beta) = x * sigmoid(beta * x), with a reference in other ops, a
// derivative and what its kernel computes. It is then used like any other: values, gradients, vmap,
// compile, and one kernel together with its neighbours. docs/adding_an_op.md explains it.
#include <cermet.h>

#include <cmath>
#include <cstdio>

namespace mx = cermet;
using mx::array;
using mx::Arrays;

namespace {

array sigmoid_of(const mx::OpCall& call) { return mx::sigmoid(call.inputs[1] * call.inputs[0]); }

// What the op means.
array reference(const mx::OpCall& call) { return call.inputs[0] * sigmoid_of(call); }

// What its kernel computes, element by element.
mx::Lane kernel(mx::LowerContext& cx, const mx::NodeView&, std::span<const mx::Lane> a) {
  mx::ir::Builder& b = cx.builder();
  const auto x = a[0].re, beta = a[1].re;
  return {b.mul(x, b.unary(mx::ir::Code::sigmoid, b.mul(beta, x)))};
}

// Its derivative by argument k, times g. Leave it out, and it is made from the reference.
array differentiate(const mx::OpCall& call, const array& y, int k, const array& g) {
  const array s = sigmoid_of(call);
  if (k == 0) return g * (s + call.inputs[1] * y * (1.0f - s));
  return g * call.inputs[0] * y * (1.0f - s);
}

const mx::OpRow& row() {
  static const mx::OpRow& registered = mx::register_op({
      .name = "swish",
      .reference = reference,
      .kernel = kernel,
      .derivative = mx::Elementwise{differentiate},
      .domain = {-8, 8},
      .max_ulp = 4,
      .doc = "x * sigmoid(beta * x).",
  });
  return registered;
}

array swish(const array& x, const array& beta) { return mx::call_op(row(), {x, beta}); }

int failures = 0;

void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
  failures += !holds;
}

bool close(const array& a, const array& b) { return mx::allclose(a, b, 1e-5, 1e-6).item<bool>(); }

}  // namespace

int main() {
  const array x = mx::linspace(-6, 6, 1024), beta = array(1.5f);
  const array expected = x * mx::sigmoid(1.5f * x);
  expect(close(swish(x, beta), expected), "values are the reference's");

  const auto loss = [&](const array& v) { return mx::sum(swish(v, beta) * swish(v, beta)); };
  const auto loss_in_ops = [](const array& v) {
    return mx::sum(mx::square(v * mx::sigmoid(1.5f * v)));
  };
  expect(close(mx::grad(mx::UnaryFunction(loss))(x), mx::grad(mx::UnaryFunction(loss_in_ops))(x)),
         "the gradient is that of the same thing in other ops");
  const auto curve = [&](const array& v) {
    return mx::sum(mx::grad(mx::UnaryFunction(loss))(v) * mx::cos(v));
  };
  const auto curve_in_ops = [&](const array& v) {
    return mx::sum(mx::grad(mx::UnaryFunction(loss_in_ops))(v) * mx::cos(v));
  };
  expect(close(mx::grad(mx::UnaryFunction(curve))(x), mx::grad(mx::UnaryFunction(curve_in_ops))(x)),
         "and so is the gradient of the gradient");

  const array betas = mx::linspace(0.5, 2, 8);
  const auto rows = mx::vmap(mx::BinaryFunction(swish), -1, 0)(x, betas);
  expect(rows.shape() == mx::Shape{8, 1024} &&
             close(mx::take(rows, 3, 0), swish(x, mx::take(betas, 3))),
         "vmap over beta gives a row for each");

  const auto plan = mx::explain(Arrays{mx::sum(mx::tanh(swish(x, beta) * 2.0f + 1.0f))});
  expect(plan.size() == 1, "one kernel, with its neighbours and the sum");

  const auto compiled =
      mx::compile([](const Arrays& in) { return Arrays{swish(in[0], in[1]) + 1.0f}; });
  expect(close(compiled({x, beta})[0], expected + 1.0f), "compiled, too");

  const array half = mx::astype(x, mx::float16);
  expect(swish(half, mx::astype(beta, mx::float16)).dtype() == mx::float16,
         "float16 gives float16");
  try {
    swish(mx::arange(4), mx::arange(4));
    expect(false, "integers are refused");
  } catch (const mx::Error& error) {
    expect(std::string(error.what()).starts_with("[swish]"), "integers are refused");
  }
  return failures;
}
