// SPDX-License-Identifier: MIT
// Trains a small network on two interleaved spirals: a compiled step, gradients of all parameters, Adam.
//
//     cmake -S examples/cpp -B build/examples -Dcermet_DIR=... && cmake --build build/examples
//     build/examples/train [steps]
#include <cermet.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace mx = cermet;
using mx::array;
using mx::Arrays;

namespace {

constexpr int kPoints = 256, kHidden = 64;

// Two spirals with a little noise; their points, and to which each belongs.
std::pair<array, array> spirals() {
  const array t = mx::sqrt(mx::random::uniform(0.0f, 1.0f, {kPoints})) * 9.0f;
  const array label = mx::arange(kPoints) % 2;
  const array angle = t + mx::astype(label, mx::float32) * float(M_PI);
  const array points = mx::stack({t * mx::cos(angle), t * mx::sin(angle)}, 1) / 9.0f;
  return {points + mx::random::normal(points.shape(), 0.0f, 0.01f), label};
}

array layer(const array& x, const array& w, const array& b) { return mx::matmul(x, w) + b; }

array logits(const Arrays& p, const array& x) {
  const array first = mx::tanh(layer(x * 3.0f, p[0], p[1]));
  const array second = mx::tanh(layer(first, p[2], p[3]));
  return layer(second, p[4], p[5]);
}

Arrays initial_parameters() {
  const auto weight = [](int in, int out) {
    return mx::random::normal({in, out}, 0.0f, std::sqrt(2.0f / float(in + out)));
  };
  return {weight(2, kHidden),   mx::zeros({kHidden}), weight(kHidden, kHidden),
          mx::zeros({kHidden}), weight(kHidden, 2),   mx::zeros({2})};
}

// (parameters, first moments, second moments, points, labels, step number) -> the same after one step of
// Adam, and the loss.
Arrays step(const Arrays& in) {
  const size_t n = (in.size() - 3) / 3;
  const array &points = in[3 * n], &labels = in[3 * n + 1], &number = in[3 * n + 2];
  const auto loss_of = [&](const Arrays& p) {
    return mx::mean(mx::fast::cross_entropy(logits(p, points), labels));
  };
  std::vector<int> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = int(i);
  const auto [loss, gradients] =
      mx::value_and_grad(loss_of, all)(Arrays(in.begin(), in.begin() + long(n)));
  const array rate = 0.01f * mx::sqrt(1.0f - mx::power(array(0.999f), number)) /
                     (1.0f - mx::power(array(0.9f), number));
  Arrays parameters, first, second;
  for (size_t i = 0; i < n; ++i) {
    const array &g = gradients[i], m = 0.9f * in[n + i] + 0.1f * g,
                v = 0.999f * in[2 * n + i] + 0.001f * mx::square(g);
    parameters.push_back(in[i] - rate * m / (mx::sqrt(v) + 1e-8f));
    first.push_back(m);
    second.push_back(v);
  }
  Arrays out = std::move(parameters);
  out.insert(out.end(), first.begin(), first.end());
  out.insert(out.end(), second.begin(), second.end());
  out.push_back(loss);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 600;
  mx::random::seed(1);
  const auto [points, labels] = spirals();
  Arrays state = initial_parameters();
  const size_t n = state.size();
  for (int moment = 0; moment < 2; ++moment)
    for (size_t i = 0; i < n; ++i) state.push_back(mx::zeros_like(state[i]));
  mx::eval(state);

  const auto compiled = mx::compile(step);
  for (int k = 1; k <= steps; ++k) {
    Arrays in = state;
    in.push_back(points);
    in.push_back(labels);
    in.push_back(array(float(k)));
    Arrays out = compiled(in);
    const array loss = out.back();
    out.pop_back();
    state = std::move(out);
    mx::eval(state);
    if (k == 1 || k % 100 == 0) std::printf("step %4d  loss %.4f\n", k, loss.item<double>());
  }
  const array right = mx::equal(mx::argmax(logits(state, points), 1), labels);
  const float accuracy = mx::mean(right).item<float>();
  std::cout << "accuracy " << accuracy << std::endl;
  return accuracy > 0.95f ? 0 : 1;
}
