// SPDX-License-Identifier: MIT
// The derivative rules against central differences in double, both ways: J t from jvp rules, and
// the dot test <g, J t> = <Jᵀ g, t> for vjp rules. Composite rows are derived through their graphs.
#include <algorithm>
#include <map>

#include "ops/rules.h"
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

array conj_of(const array& a) { return rules::conjugate_if_complex(a); }

using Grads = std::map<const Node*, array>;

bool is_differentiable(const NodeRef& node) { return is_inexact(node->dtype); }

Arrays inputs_as_arrays(const Node& node) {
  Arrays inputs;
  for (const NodeRef& input : node.inputs) inputs.emplace_back(input);
  return inputs;
}

Grads reverse(const array& output, const array& g, const Arrays& inputs);

array vjp_rule(const OpCall& call, const array& y, int k, const array& g) {
  return std::visit(
      [&]<typename D>(const D& d) -> array {
        if constexpr (std::is_same_v<D, Elementwise>)
          return conj_of(d.diff(call, y, k, conj_of(g)));
        else if constexpr (std::is_same_v<D, Linear>) return d.transpose(call, k, g);
        else if constexpr (std::is_same_v<D, Bilinear>)
          return k == 0 ? d.lhs(call, g) : d.rhs(call, g);
        else if constexpr (std::is_same_v<D, Opaque>)
          return d.is_zero && d.is_zero(call) ? zeros_like(call.inputs[k]) : d.vjp(call, y, k, g);
        else if constexpr (std::is_same_v<D, Derived>) {
          const array graph = std::get<CompositeLowering>(call.row.lowering.value).graph(call);
          Grads grads = reverse(graph, g, Arrays(call.inputs.begin(), call.inputs.end()));
          return grads.at(call.inputs[k].node().get());
        } else {
          return zeros_like(call.inputs[k]);
        }
      },
      call.row.derivative.value);
}

// Cotangents of `inputs` (which may be lazy nodes: the walk stops there).
Grads reverse(const array& output, const array& g, const Arrays& inputs) {
  std::vector<NodeRef> stop;
  for (const array& input : inputs) stop.push_back(input.node());
  const NodeRef root = output.node();
  std::vector<NodeRef> tape = tape_to({&root, 1}, stop);
  Grads grads;
  grads.emplace(root.get(), g);
  for (auto it = tape.rbegin(); it != tape.rend(); ++it) {
    const Node& node = **it;
    const auto found = grads.find(&node);
    if (found == grads.end() || node.row == nullptr || std::ranges::count(stop, *it) > 0) continue;
    const Arrays node_inputs = inputs_as_arrays(node);
    const OpCall call{*node.row, node.params, node_inputs};
    const array y(*it), cotangent = found->second;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (!is_differentiable(node.inputs[k]) || !is_inexact(node.dtype)) continue;
      const array part = vjp_rule(call, y, static_cast<int>(k), cotangent);
      EXPECT_EQ(part.shape(), node.inputs[k]->shape) << node.row->name.value;
      EXPECT_EQ(part.dtype(), node.inputs[k]->dtype) << node.row->name.value;
      const auto [slot, is_new] = grads.emplace(node.inputs[k].get(), part);
      if (!is_new) slot->second = slot->second + part;
    }
  }
  for (const array& input : inputs) grads.emplace(input.node().get(), zeros_like(input));
  return grads;
}

array forward(const array& output, const Arrays& inputs, const Arrays& tangents);

array jvp_rule(const OpCall& call, const array& y, int k, const array& t) {
  return std::visit(
      [&]<typename D>(const D& d) -> array {
        if constexpr (std::is_same_v<D, Elementwise>) return d.diff(call, y, k, t);
        else if constexpr (std::is_same_v<D, Linear>) {
          // The op on this tangent, zeros for the other inexact inputs.
          Arrays inputs;
          for (size_t i = 0; i < call.inputs.size(); ++i)
            inputs.push_back(static_cast<int>(i) == k             ? t
                             : is_inexact(call.inputs[i].dtype()) ? zeros_like(call.inputs[i])
                                                                  : call.inputs[i]);
          return make_node(call.row, inputs, call.params, {});
        } else if constexpr (std::is_same_v<D, Bilinear>) {
          Arrays inputs(call.inputs.begin(), call.inputs.end());
          inputs[k] = t;
          return make_node(call.row, inputs, call.params, {});
        } else if constexpr (std::is_same_v<D, Opaque>)
          return d.is_zero && d.is_zero(call) ? zeros_like(y) : d.jvp(call, y, k, t);
        else if constexpr (std::is_same_v<D, Derived>) {
          const array graph = std::get<CompositeLowering>(call.row.lowering.value).graph(call);
          return forward(graph, {call.inputs[k]}, {t});
        } else {
          return zeros_like(y);
        }
      },
      call.row.derivative.value);
}

array forward(const array& output, const Arrays& inputs, const Arrays& tangents) {
  std::vector<NodeRef> stop;
  for (const array& input : inputs) stop.push_back(input.node());
  Grads known;
  for (size_t i = 0; i < inputs.size(); ++i) known.emplace(inputs[i].node().get(), tangents[i]);
  const NodeRef root = output.node();
  for (const NodeRef& ref : tape_to({&root, 1}, stop)) {
    const Node& node = *ref;
    if (node.row == nullptr || known.contains(&node) || !is_inexact(node.dtype)) continue;
    const Arrays node_inputs = inputs_as_arrays(node);
    const OpCall call{*node.row, node.params, node_inputs};
    std::optional<array> sum;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const auto t = known.find(node.inputs[k].get());
      if (t == known.end() || !is_differentiable(node.inputs[k])) continue;
      const array part = jvp_rule(call, array(ref), static_cast<int>(k), t->second);
      EXPECT_EQ(part.shape(), node.shape) << node.row->name.value;
      sum = sum ? *sum + part : part;
    }
    if (sum) known.emplace(&node, *sum);
  }
  const auto found = known.find(root.get());
  return found == known.end() ? zeros_like(output) : found->second;
}

using Fn = std::function<array(const Arrays&)>;

// Re(conj(a) b), summed.
double dot(const array& a, const array& b) {
  const std::vector<Complex> x = complex_values(a), y = complex_values(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (std::conj(x[i]) * y[i]).real();
  return sum;
}

array moved(const array& x, const array& t, double step) {
  std::vector<Complex> v = complex_values(x), d = complex_values(t);
  for (size_t i = 0; i < v.size(); ++i) v[i] += step * d[i];
  return from_complex(v, x.shape(), x.dtype());
}

array direction(const array& like, int seed) {
  const array re = scattered(like.shape(), real_of(like.dtype()), seed);
  if (!is_complex(like.dtype())) return re;
  const Doubles a = values(re), b = values(scattered(like.shape(), Dtype::float64, seed + 5));
  std::vector<Complex> z;
  for (size_t i = 0; i < a.size(); ++i) z.emplace_back(a[i], b[i]);
  return from_complex(z, like.shape(), like.dtype());
}

void check(const char* name, const Fn& f, const Arrays& inputs, double tolerance = 2e-6) {
  SCOPED_TRACE(name);
  const array y = f(inputs);
  const array g = direction(y, 11);
  Arrays tangents, up, down;
  for (size_t i = 0; i < inputs.size(); ++i) {
    tangents.push_back(direction(inputs[i], 20 + static_cast<int>(i)));
    up.push_back(moved(inputs[i], tangents[i], 1e-5));
    down.push_back(moved(inputs[i], tangents[i], -1e-5));
  }
  const std::vector<Complex> high = complex_values(f(up)), low = complex_values(f(down)),
                             jvp = complex_values(forward(y, inputs, tangents));
  ASSERT_EQ(jvp.size(), high.size());
  for (size_t i = 0; i < jvp.size(); ++i) {
    const Complex slope = (high[i] - low[i]) / 2e-5;
    EXPECT_NEAR(std::abs(jvp[i] - slope), 0, tolerance * std::max(1.0, std::abs(slope)))
        << "element " << i << ": jvp " << jvp[i] << ", difference " << slope;
  }
  Grads grads = reverse(y, g, inputs);
  double pulled = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    pulled += dot(grads.at(inputs[i].node().get()), tangents[i]);
  const double pushed = dot(g, forward(y, inputs, tangents));
  EXPECT_NEAR(pulled, pushed, 1e-9 * std::max(1.0, std::abs(pushed)));
}

array real_input(Shape shape, double low, double high, int seed = 0) {
  Doubles v = values(scattered(shape, Dtype::float64, seed));
  for (double& x : v) x = low + (x + 0.95) / 1.9 * (high - low);
  return from_values(v, std::move(shape), Dtype::float64);
}

TEST(Derivative, OfEveryElementwiseRow) {
  for (const OpRow* row : all_rows()) {
    if (!std::holds_alternative<MapLowering>(row->lowering.value)) continue;
    if ((row->accepts.value & rules::kFloats) == 0 || row->id.value == OpId::Full) continue;
    const Domain domain = row->domain;
    const int arity = row->id.value == OpId::Select ? 0 : 1;
    // Tested in tests/python: rows with parameters, or of more arguments than one kind.
    if (arity == 0 || row->id.value == OpId::Cast || row->id.value == OpId::StopGradient ||
        row->id.value == OpId::ComplexOf)
      continue;
    const array a = real_input({7}, domain.low, domain.high),
                b = real_input({7}, domain.low, domain.high, 1);
    // Unary rows take one argument, others two: told by what the graph function makes of them.
    const bool is_binary = row->id.value >= OpId::Add && row->id.value <= OpId::RightShift;
    auto apply = [&](const Arrays& in) { return make_node(*row, in, NoParams{}, {}); };
    const Dtype result = apply(is_binary ? Arrays{a, b} : Arrays{a}).dtype();
    if (!is_inexact(result)) continue;
    if (is_binary) check(row->name, apply, {a, b});
    else check(row->name, apply, {a});
    if ((row->accepts.value >> static_cast<int>(Dtype::complex128) & 1) == 0) continue;
    const array z = direction(zeros({5}, Dtype::complex128), 1),
                w = direction(zeros({5}, Dtype::complex128), 2);
    const std::string name = std::string(row->name.value) + " of complex";
    if (is_binary) check(name.c_str(), apply, {z, w}, 1e-5);
    else check(name.c_str(), apply, {z}, 1e-5);
  }
}

TEST(Derivative, AtTheEdges) {
  auto grad = [](const Fn& f, const Arrays& x, size_t k) {
    const array y = f(x);
    return values(reverse(y, ones_like(y), x).at(x[k].node().get()));
  };
  const Fn max2 = [](const Arrays& x) { return maximum(x[0], x[1]); };
  const Fn pow2 = [](const Arrays& x) { return power(x[0], x[1]); };
  const Fn top = [](const Arrays& x) { return max(x[0]); };
  expect_near(grad([](const Arrays& x) { return abs(x[0]); }, {vec({0, -2, 3})}, 0), {0, -1, 1});
  expect_near(grad(max2, {vec({1, 2, 3}), vec({2, 2, 1})}, 0), {0, 0, 1});
  expect_near(grad(max2, {vec({1, 2, 3}), vec({2, 2, 1})}, 1), {1, 1, 0});
  expect_near(grad(top, {vec({1, 3, 3, 2})}, 0), {0, 0.5, 0.5, 0});
  expect_near(grad([](const Arrays& x) { return prod(x[0]); }, {vec({1, 0, 3, 2})}, 0),
              {0, 6, 0, 0});
  expect_near(grad([](const Arrays& x) { return prod(x[0]); }, {vec({0, 0, 3, 2})}, 0),
              {0, 0, 0, 0});
  expect_near(grad(pow2, {vec({0, 0, 2}), vec({0, 2, 3})}, 0), {0, 0, 12});
  expect_near(grad(pow2, {vec({0, 0, 2}), vec({0, 2, 3})}, 1), {0, 0, 8 * std::log(2)});
  expect_near(grad([](const Arrays& x) { return sqrt(x[0]); }, {vec({0, 4})}, 0), {kInf, 0.25});
  expect_near(grad([](const Arrays& x) { return logsumexp(x[0]); }, {vec({1, 2})}, 0),
              {0.26894142, 0.73105858});
}

TEST(Derivative, OfReductions) {
  const array x = real_input({3, 4}, 0.5, 2);
  const AxisList last{1};
  check("sum", [&](const Arrays& in) { return sum(in[0], last); }, {x});
  check("prod", [&](const Arrays& in) { return prod(in[0], last, true); }, {x});
  check("max", [&](const Arrays& in) { return max(in[0], AxisList{0}); }, {x});
  check("min", [&](const Arrays& in) { return min(in[0]); }, {x});
  check("mean", [&](const Arrays& in) { return mean(in[0], last); }, {x});
  check("var", [&](const Arrays& in) { return var(in[0], last, false, 1); }, {x});
  check("std", [&](const Arrays& in) { return std_dev(in[0], last); }, {x});
  check("logsumexp", [&](const Arrays& in) { return logsumexp(in[0], last); }, {x});
  check("softmax", [&](const Arrays& in) { return softmax(in[0], last); }, {x});
  const array z = direction(zeros({3, 2}, Dtype::complex128), 3);
  check("prod of complex", [&](const Arrays& in) { return prod(in[0], last); }, {z}, 1e-5);
  check("softmax of complex", [&](const Arrays& in) { return softmax(in[0], last); }, {z}, 1e-5);
  check(
      "logsumexp of complex", [&](const Arrays& in) { return logsumexp(in[0], last); }, {z}, 1e-5);
  check("sum of complex", [&](const Arrays& in) { return sum(in[0], last); }, {z}, 1e-5);
}

TEST(Derivative, OfMovement) {
  const array x = real_input({2, 3, 4}, -1, 1), y = real_input({2, 2, 4}, -1, 1, 1);
  const array value = real_input({}, -1, 1, 2);
  check("reshape", [](const Arrays& in) { return reshape(in[0], {6, 4}); }, {x});
  check("transpose", [](const Arrays& in) { return transpose(in[0], AxisList{2, 0, 1}); }, {x});
  check(
      "broadcast_to",
      [](const Arrays& in) { return broadcast_to(reshape(in[0], {2, 1, 3, 4}), {5, 2, 2, 3, 4}); },
      {x});
  check("slice",
        [](const Arrays& in) { return sized_slice(in[0], {0, 1, 1}, {1, 1, 1}, {2, 2, 2}); }, {x});
  check("slice with steps",
        [](const Arrays& in) { return sized_slice(in[0], {1, 0, 3}, {-1, 2, -2}, {2, 2, 2}); },
        {x});
  check("flip", [](const Arrays& in) { return flip(in[0], AxisList{0, 2}); }, {x});
  check("pad", [](const Arrays& in) { return pad(in[0], {{1, 0}, {0, 2}, {1, 1}}, in[1]); },
        {x, value});
  check("concatenate", [](const Arrays& in) { return concatenate({in[0], in[1], in[0]}, 1); },
        {x, y});
  check("where", [](const Arrays& in) { return where(in[0] > 0.1, in[0], in[1]); }, {x, value});
  check("cast", [](const Arrays& in) { return astype(in[0], Dtype::complex128); }, {x});
  const array z = direction(zeros({3}, Dtype::complex128), 4);
  check("cast to real", [](const Arrays& in) { return astype(in[0], Dtype::float64); }, {z});
}

TEST(Derivative, OfIndexing) {
  const array x = real_input({4, 3}, 0.5, 2);
  const array at = vec({1, 3, 1}, Dtype::int32);
  const array along = grid({0, 1, 2, 2, 1, 2}, {2, 3}, Dtype::int32);
  check("take", [&](const Arrays& in) { return take(in[0], at, 0); }, {x});
  check("take_along_axis", [&](const Arrays& in) { return take_along_axis(in[0], along, 0); }, {x});
  const array u = real_input({3, 1, 3}, 0.5, 2, 1), v = real_input({2, 3}, 0.5, 2, 2),
              w = real_input({2, 2}, 0.5, 2, 3);
  for (int mode = 0; mode < 5; ++mode) {
    SCOPED_TRACE(mode);
    const auto reduce = static_cast<ScatterReduce>(mode);
    check("scatter", [&](const Arrays& in) { return scatter(in[0], {at}, in[1], {0}, reduce); },
          {x, u});
    check("scatter_along_axis",
          [&](const Arrays& in) { return scatter_along_axis(in[0], along, in[1], 0, reduce); },
          {x, v});
    check(
        "slice_update",
        [&](const Arrays& in) { return sized_slice_update(in[0], in[1], {0, 2}, {2, -1}, reduce); },
        {x, w});
  }
}

TEST(Derivative, OfComplexWriting) {
  const array x = direction(zeros({4}, Dtype::complex128), 1),
              u = direction(zeros({3, 1}, Dtype::complex128), 2);
  const array at = vec({1, 3, 1}, Dtype::int32);
  for (ScatterReduce reduce :
       {ScatterReduce::assign, ScatterReduce::add, ScatterReduce::multiply}) {
    check(
        "scatter of complex",
        [&](const Arrays& in) { return scatter(in[0], {at}, in[1], {0}, reduce); }, {x, u}, 1e-5);
  }
}

TEST(Derivative, OfProducts) {
  const array a = real_input({2, 3}, -1, 1), b = real_input({3, 4}, -1, 1, 1),
              batch = real_input({2, 2, 3}, -1, 1, 2), v = real_input({3}, -1, 1, 3);
  const Fn product = [](const Arrays& in) { return matmul(in[0], in[1]); };
  check("matmul", product, {a, b});
  check("matmul with batch", product, {batch, b});
  check("matmul of vectors", product, {v, real_input({3}, -1, 1, 4)});
  check("matmul of a vector", product, {batch, v});
  const array z = direction(zeros({2, 3}, Dtype::complex128), 1),
              w = direction(zeros({3, 2}, Dtype::complex128), 2);
  check("matmul of complex", product, {z, w}, 1e-5);
}

TEST(Derivative, OfFusedRows) {
  const array x = real_input({2, 4}, -1, 1), w = real_input({4}, 0.5, 1, 1),
              b = real_input({4}, -1, 1, 2);
  check("rms_norm", [](const Arrays& in) { return fast::rms_norm(in[0], in[1]); }, {x, w}, 1e-5);
  check(
      "layer_norm", [](const Arrays& in) { return fast::layer_norm(in[0], in[1], in[2]); },
      {x, w, b}, 1e-5);
  const array sequence = real_input({1, 3, 4}, -1, 1);
  const array offset = full({}, number(int64_t{2}), Dtype::int32);
  check(
      "rope", [&](const Arrays& in) { return fast::rope(in[0], 4, false, 10.0, 1, offset); },
      {sequence}, 1e-5);
  const array q = real_input({1, 2, 3, 2}, -1, 1), k = real_input({1, 1, 3, 2}, -1, 1, 1),
              v = real_input({1, 1, 3, 2}, -1, 1, 2), mask = real_input({3, 3}, -1, 1, 3),
              sinks = real_input({2}, -1, 1, 4);
  check(
      "attention",
      [](const Arrays& in) {
        return fast::scaled_dot_product_attention(in[0], in[1], in[2], 0.7, "causal", in[3], in[4]);
      },
      {q, k, v, mask, sinks}, 1e-5);
}

}  // namespace
}  // namespace cermet
