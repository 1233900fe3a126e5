// SPDX-License-Identifier: MIT
// Reductions that are graphs of other rows: logsumexp, softmax, mean, variance. The graphs subtract
// the maximum first, so no exponential overflows; halves are widened to float32 inside, so that
// results do not depend on where a kernel ends. Derivatives use the result, so they need no second
// pass over it; softmax_pattern finds a softmax that is spelled out, for its derivative.
#include <algorithm>

#include "graph/pattern.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

AxisList axis_list(const ReduceParams& p) { return {p.axes.begin(), p.axes.end()}; }

bool is_precise(const ReduceParams& p) { return p.keepdims; }

array softmax_graph(const OpCall& c) {
  const ReduceParams& p = c.get<ReduceParams>();
  const AxisList axes = axis_list(p);
  const array x = widened(c.inputs[0]);
  const array e = cermet::exp(x - stop_gradient(cermet::max(x, axes, true)));
  const array total = cermet::sum(e, axes, true);
  const bool divides = is_precise(p) || is_complex(x.dtype());
  return as_result(divides ? e / total : e * cermet::reciprocal(total), c.inputs[0].dtype());
}

array logsumexp_graph(const OpCall& c) {
  const ReduceParams& p = c.get<ReduceParams>();
  const AxisList axes = axis_list(p);
  const array x = widened(c.inputs[0]);
  array largest = stop_gradient(cermet::max(x, axes, true));
  if (is_complex(x.dtype())) largest = real(largest);
  // An infinite maximum is the result itself; taking 0 off instead keeps inf - inf away. An imaginary part
  // taken off would come back past the branch cut of the logarithm.
  const array offset = cermet::select(isfinite(largest), largest, full_like(largest, 0));
  const array terms = is_complex(x.dtype()) ? cermet::exp(x - offset) : exp_below(x, largest);
  const array result = cermet::log(cermet::sum(terms, axes, true)) + offset;
  return as_result(p.keepdims ? result : squeeze(result, axes), c.inputs[0].dtype());
}

// The softmax as exp(x - logsumexp(x)); a result rounded to a half is too coarse for that.
array logsumexp_weights(const OpCall& c, const array& y) {
  const ReduceParams& p = c.get<ReduceParams>();
  if (is_half(y.dtype())) return softmax(c.inputs[0], axis_list(p));
  return cermet::exp(c.inputs[0] - (p.keepdims ? y : expand_dims(y, axis_list(p))));
}

array softmax_diff(const OpCall& c, const array& y, const array& g) {
  return y * (g - cermet::sum(y * g, axis_list(c.get<ReduceParams>()), true));
}

Dim group_size(const array& a, const Axes& axes) {
  Dim size = 1;
  for (int axis : axes) size = times(size, a.shape().dim(axis));
  return size;
}

// ---- exp(x - max(x)) / sum of it ----

// The node is x folded over some axes and spread back over it: the fold. Nobody else wants what is between.
const Node* spread_fold(const Node& node, const OpRow& fold, const Node& x,
                        const PatternGraph& graph) {
  const auto is_link = [&](const Node& link) {
    return graph.is_open(link) && graph.is_private(link, 1);
  };
  if (node.row != &rows::broadcast_to || !is_link(node)) return nullptr;
  const Node* found = node.inputs[0].get();
  const Shape& spread = found->shape;
  if (spread.ndim() != x.shape.ndim()) return nullptr;
  const auto is_move = [&] {
    return found->row == &rows::reshape ||
           (&fold == &rows::max && found->row == &rows::stop_gradient);
  };
  while (is_link(*found) && is_move()) found = found->inputs[0].get();
  if (found->row != &fold || !is_link(*found) || found->inputs[0].get() != &x) return nullptr;
  const Axes& axes = std::get<ReduceParams>(found->params).axes;
  for (int axis = 0; axis < x.shape.ndim(); ++axis) {
    const bool is_folded = std::ranges::find(axes, axis) != axes.end();
    if (!same_size(spread.dim(axis), is_folded ? Dim(1) : x.shape.dim(axis))) return nullptr;
  }
  return found;
}

bool may_be_softmax(const Node& node) {
  return node.row == &rows::divide && !node.inputs.empty() && node.inputs[0]->row == &rows::exp &&
         node.inputs[1]->row == &rows::broadcast_to && !is_half(node.dtype) &&
         !is_complex(node.dtype);
}

// The largest is taken off for the range alone: that nothing depends on it, only the row's derivative knows. The
// precise one has the bits of what is spelled out.
std::optional<array> find_softmax(const NodeRef& root, const PatternGraph& graph, PatternBuilder&) {
  if (!graph.is_open(*root)) return std::nullopt;
  const Node& e = *root->inputs[0];
  if (!graph.is_open(e) || !graph.is_private(e, 2)) return std::nullopt;
  const Node& shifted = *e.inputs[0];
  if (shifted.row != &rows::subtract || !graph.is_open(shifted) || !graph.is_private(shifted, 1))
    return std::nullopt;
  const NodeRef& x = shifted.inputs[0];
  const Node* largest = spread_fold(*shifted.inputs[1], rows::max, *x, graph);
  const Node* total = spread_fold(*root->inputs[1], rows::sum, e, graph);
  if (largest == nullptr || total == nullptr) return std::nullopt;
  const Axes& axes = std::get<ReduceParams>(total->params).axes;
  if (std::get<ReduceParams>(largest->params).axes != axes) return std::nullopt;
  return make_node(rows::softmax, pack(array(x)), ReduceParams{axes, /*precise*/ true},
                   root->stream);
}

// sum / count as a real number of the sum's dtype: by the same op whatever the count, so that one plan
// serves all.
array divided(const array& sum, const Dim& count, const S& s) {
  return binary(rows::divide, sum, full(sum.shape(), number(count), sum.dtype(), s), s);
}

}  // namespace

constinit const OpRow rows::logsumexp = {
    .id = OpId::LogSumExp,
    .name = "logsumexp",
    .accepts = kInexact,
    .dtype = same_dtype,
    .shape =
        [](auto& c) {
          const ReduceParams& p = c.template get<ReduceParams>();
          return reduced_shape(c.inputs[0].shape(), p.axes, p.keepdims);
        },
    .derivative = Opaque{.jvp =
                             [](auto& c, auto& y, int, auto& t) {
                               const ReduceParams& p = c.template get<ReduceParams>();
                               return cermet::sum(t * logsumexp_weights(c, y), axis_list(p),
                                                  p.keepdims);
                             },
                         .vjp =
                             [](auto& c, auto& y, int, auto& g) {
                               const ReduceParams& p = c.template get<ReduceParams>();
                               const array along = p.keepdims ? g : expand_dims(g, axis_list(p));
                               return along * conjugate_if_complex(logsumexp_weights(c, y));
                             }},
    .vmap = AxisShiftVmap{},
    .lowering = CompositeLowering{logsumexp_graph},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 4,
    .doc = "log(sum(exp(x))) over the axes, without overflow.",
};

constinit const OpRow rows::softmax = {
    .id = OpId::Softmax,
    .name = "softmax",
    .accepts = kInexact,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative =
        Opaque{.jvp = [](auto& c, auto& y, int, auto& t) { return softmax_diff(c, y, t); },
               .vjp = [](auto& c, auto& y, int,
                         auto& g) { return softmax_diff(c, conjugate_if_complex(y), g); }},
    .vmap = AxisShiftVmap{},
    .lowering = CompositeLowering{softmax_graph},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 4,
    .doc =
        "exp(x) / sum(exp(x)) over the axes, without overflow: by products with the reciprocal "
        "of the sum or, if precise, by divisions.",
};

constinit const Pattern softmax_pattern = {
    .is_for_transforms = true, .may_be_root = may_be_softmax, .find = find_softmax};

array logsumexp(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  Axes over = resolve_axes("logsumexp", axes, a.ndim());
  array x = astype(a, to_inexact(a.dtype()), s);
  if (over.empty()) return x;
  for (int axis : over)
    CERMET_CHECK(!is_zero(a.shape().dim(axis)), value, "logsumexp",
                 "shape {} has no elements along axis {}; reduce axes of size >= 1", a.shape(),
                 axis);
  return make_node(rows::logsumexp, pack(x), ReduceParams{std::move(over), keepdims}, s);
}

array softmax(const array& a, const OptionalAxes& axes, bool precise, const S& s) {
  Axes over = resolve_axes("softmax", axes, a.ndim());
  array x = astype(a, to_inexact(a.dtype()), s);
  if (over.empty()) return full(x.shape(), number(1.0), x.dtype(), s);
  if (std::ranges::any_of(over, [&](int axis) { return is_zero(x.shape().dim(axis)); })) return x;
  return make_node(rows::softmax, pack(x), ReduceParams{std::move(over), precise}, s);
}

array mean(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  const Axes over = resolve_axes("mean", axes, a.ndim());
  const Dtype dtype = to_inexact(a.dtype());
  const array x = widened(astype(a, dtype, s), s);
  return as_result(divided(sum(x, axes, keepdims, s), group_size(a, over), s), dtype, s);
}

array var(const array& a, const OptionalAxes& axes, bool keepdims, int ddof, const S& s) {
  const Axes over = resolve_axes("var", axes, a.ndim());
  const Dtype dtype = to_inexact(a.dtype());
  const array x = widened(astype(a, dtype, s), s);
  const array from_mean = subtract(x, mean(x, axes, true, s), s);
  const array squares = is_complex(dtype)
                            ? add(square(real(from_mean, s), s), square(imag(from_mean, s), s), s)
                            : square(from_mean, s);
  const Dim count = minus(group_size(a, over), ddof);
  const Dim divisor = is_less(count, 0) ? Dim(0) : count;
  return as_result(divided(sum(squares, axes, keepdims, s), divisor, s), real_of(dtype), s);
}

array std_dev(const array& a, const OptionalAxes& axes, bool keepdims, int ddof, const S& s) {
  return sqrt(var(a, axes, keepdims, ddof, s), s);
}

}  // namespace cermet
