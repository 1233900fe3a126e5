// SPDX-License-Identifier: MIT
// Scaled dot-product attention as a graph of plain rows: the reference that a fused kernel must
// match. Scores and weights are float32 for half inputs. A row whose keys are all masked gives
// zeros, and so does its derivative (unless the parameters ask for softmax's NaN).
#include <algorithm>
#include <limits>

#include "codegen/target.h"
#include "fused/attention_operand.h"
#include "fused/attention_step.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;
using attention::is_one;

namespace {

constexpr const char* kName = "scaled_dot_product_attention";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Shape attention_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  shape.dim(3) = call.inputs[2].shape().dim(3);
  return shape;
}

// [batch, heads, ...] as [batch, key heads, heads for each of them, ...].
array grouped(const array& a, int64_t key_heads) {
  return unflatten(a, 1, {key_heads, a.shape()[1] / key_heads});
}

// Which keys a query sees: those up to its own position, positions counted from the last.
array causal_mask(const Dim& queries, const Dim& keys) {
  const Number one = number(int64_t{1});
  const array key = arange(number(int64_t{0}), number(keys), one, Dtype::int32);
  const array query = arange(number(minus(keys, queries)), number(keys), one, Dtype::int32);
  return key <= reshape(query, {queries, 1});
}

AttentionScale scale_of(const AttentionParams& p) { return static_cast<AttentionScale>(p.scaled); }

using StepKind = AttentionStep::Kind;

// On scores, then on weights.
std::vector<AttentionStep> steps_of(const AttentionParams& p) {
  std::vector<AttentionStep> steps;
  for (const auto* codes : {&p.score_steps, &p.weight_steps})
    for (int64_t code : *codes) steps.push_back(AttentionStep::of(code));
  return steps;
}

bool takes_array(StepKind kind) {
  return kind == StepKind::hide || kind == StepKind::replace || kind == StepKind::by_array;
}
bool takes_number(StepKind kind) {
  return kind == StepKind::replace || kind == StepKind::fill || kind == StepKind::by_number;
}

// Of input k: what it is, and of which step.
enum Input : int { kQueries, kKeys, kValues, kScale, kArray, kNumber, kSinks };
struct InputRole {
  Input input;
  size_t step = 0;
};

InputRole role_of(const AttentionParams& p, int k) {
  const bool scaled = scale_of(p) != AttentionScale::none;
  if (k < kScale + scaled) return {static_cast<Input>(k)};
  int at = kScale + scaled;
  const std::vector<AttentionStep> steps = steps_of(p);
  for (size_t m = 0; m < steps.size(); ++m) {
    const StepKind kind = steps[m].kind;
    if (takes_array(kind) && k == at++) return {kArray, m};
    if (takes_number(kind) && k == at++) return {kNumber, m};
  }
  return {kSinks};
}

// The number spread by nodes of its own, never built anew: its value may be given at each run.
array spread_number(const array& value, const array& like) {
  const array wide = value.dtype() == like.dtype()
                         ? value
                         : make_node(rows::cast, pack(value), CastParams{.dtype = like.dtype()},
                                     value.node()->stream);
  return make_node(rows::broadcast_to, pack(wide), ShapeParams{like.shape()}, value.node()->stream);
}

// Times the scale and the number, or over it.
array scaled(const AttentionParams& p, std::span<const array> inputs, const array& a) {
  if (scale_of(p) == AttentionScale::none) return a * p.scale;
  const array number = spread_number(inputs[kScale], a);
  const array by_number = scale_of(p) == AttentionScale::over ? a / number : a * number;
  return p.scale == 1 ? by_number : by_number * p.scale;
}

array chosen(const array& mask, const array& scores, const array& otherwise) {
  return select(broadcast_to(mask, scores.shape()), scores, otherwise);
}

array hidden(const array& scores, const array& mask) {
  return chosen(mask, scores, full_like(scores, -kInfinity));
}

// A step as it is applied: what it takes besides the value, and the value before it.
struct Applied {
  AttentionStep step;
  Arrays operands;
  array before;
};

// The op's call: the value and the operand spread over it, in their order.
Arrays operands_of(const Applied& a) {
  Arrays inputs{a.before};
  if (a.step.kind == StepKind::unary) return inputs;
  const array& given = a.operands[0];
  inputs.insert(a.step.is_second ? inputs.begin() : inputs.end(),
                a.step.kind == StepKind::by_number
                    ? spread_number(given, a.before)
                    : broadcast_to(astype(given, a.before.dtype()), a.before.shape()));
  return inputs;
}

// Where a fill leaves the value.
array stays(const Applied& a) {
  const array is_met = make_node(row_of(a.step.op), {a.before}, NoParams{}, {});
  return a.step.is_second ? is_met : logical_not(is_met);
}

array apply(const Applied& a) {
  switch (a.step.kind) {
    case StepKind::hide: return hidden(a.before, a.operands[0]);
    case StepKind::replace:
      return chosen(a.operands[0], a.before, spread_number(a.operands[1], a.before));
    case StepKind::fill: return chosen(stays(a), a.before, spread_number(a.operands[0], a.before));
    default: return make_node(row_of(a.step.op), operands_of(a), NoParams{}, {});
  }
}

// The cotangent of operand k of an op of one value, from that of the result.
array pulled_back(const OpCall& c, int k, const array& g) {
  const Derivative& rule = c.row.derivative.value;
  if (const auto* linear = std::get_if<Linear>(&rule)) return linear->transpose(c, k, g);
  const array y = make_node(c.row, {c.inputs.begin(), c.inputs.end()}, c.params, {});
  if (const auto* elementwise = std::get_if<Elementwise>(&rule))
    return elementwise->diff(c, y, k, g);
  return std::get<Opaque>(rule).vjp(c, y, k, g);
}

array through(const Applied& a, bool to_operand, const array& g) {
  const Arrays inputs = operands_of(a);
  const Params params = NoParams{};
  return pulled_back({row_of(a.step.op), params, inputs}, to_operand != a.step.is_second, g);
}

// What attention and its gradients compute first: [batch, key heads, heads for each, queries, ...].
struct Terms {
  array q, k, v;  // q scaled
  array weights;  // exp(scores - largest)
  array share;    // of a weight: 1 / sum, 0 where nothing is seen
  std::optional<array> sink_weights;
  std::vector<Applied> steps;  // on scores
  size_t next;                 // the first input of the steps on weights
  array products;              // of scaled queries and keys: scores before any step
};

// 1 / total, and 0 where that is 0.
array share_of(const array& total) {
  const array is_empty = total == 0;
  return where(is_empty, full_like(total, 0),
               reciprocal(where(is_empty, full_like(total, 1), total)));
}

// Applies a step, whose inputs begin at `next`, and goes on to those of the one after it.
array add_step(const AttentionStep& step, std::span<const array> inputs, size_t& next,
               const array& value, std::vector<Applied>& steps) {
  const int64_t key_heads = inputs[kKeys].shape()[1];
  Arrays operands;
  if (takes_array(step.kind)) {
    const array& given = inputs[next++];
    const bool per_head = given.shape()[1] != 1;
    operands.push_back(per_head ? grouped(given, key_heads) : expand_dims(given, {2}));
  }
  if (takes_number(step.kind)) operands.push_back(inputs[next++]);
  steps.push_back({step, std::move(operands), value});
  return apply(steps.back());
}

// For each head: [..., heads for each of the keys, queries, n] with [..., 1, n, m]. Of one query its heads are
// the rows of one product, so that what they share is read once.
array product_by_head(const array& rows, const array& shared) {
  const Shape& shape = rows.shape();
  if (!is_one(shape.dim(3)) || is_one(shape.dim(2))) return matmul(rows, shared);
  return swapaxes(matmul(swapaxes(rows, 2, 3), shared), 2, 3);
}

Terms terms_of(const AttentionParams& p, std::span<const array> inputs) {
  const int64_t key_heads = inputs[kKeys].shape()[1];
  const array q = grouped(scaled(p, inputs, widened(inputs[0])), key_heads);
  const array k = expand_dims(widened(inputs[1]), {2});
  const array v = expand_dims(widened(inputs[2]), {2});
  const Shape shape = inputs[0].shape();

  const array products = product_by_head(q, swapaxes(k, -1, -2));
  array scores = products;
  if (p.causal) scores = hidden(scores, causal_mask(shape.dim(2), inputs[1].shape().dim(2)));
  std::vector<Applied> steps;
  size_t next = kScale + (scale_of(p) != AttentionScale::none);
  for (int64_t code : p.score_steps)
    scores = add_step(AttentionStep::of(code), inputs, next, scores, steps);

  std::optional<array> largest, sinks;
  const bool any_keys = is_less(0, inputs[1].shape().dim(2));  // of no scores there is no largest
  // A NaN makes weights NaN by itself.
  if (p.is_shifted && any_keys)
    largest =
        make_node(rows::max_number, pack(scores), ReduceParams{{scores.ndim() - 1}, true}, {});
  if (p.has_sinks) {
    sinks = reshape(widened(inputs[inputs.size() - 1]), {key_heads, shape[1] / key_heads, 1, 1});
    if (p.is_shifted) largest = largest ? maximum(*largest, *sinks) : *sinks;
  }
  // A row of -inf alone subtracts 0, so that its weights are 0.
  if (largest)
    largest = stop_gradient(where(*largest == -kInfinity, full_like(*largest, 0), *largest));
  const bool rounds = inputs[0].dtype() == Dtype::bfloat16;  // the weights
  const auto exponential = [&](const array& a) {
    if (!largest) return exp(a);
    return rounds ? exp_nonpositive_bfloat16(a - *largest) : exp_nonpositive(a - *largest);
  };
  const array weights = exponential(scores);
  array total = sum(weights, AxisList{-1}, true);
  std::optional<array> sink_weights;
  if (sinks) sink_weights = exponential(*sinks);
  if (sinks) total = total + *sink_weights;
  const array share = p.empty_is_nan ? reciprocal(total) : share_of(total);
  return {q, k, v, weights, share, sink_weights, std::move(steps), next, products};
}

// What the values are summed with, from the weights or their shares.
array stepped(const AttentionParams& p, std::span<const array> inputs, size_t next, array weights,
              std::vector<Applied>& steps) {
  for (int64_t code : p.weight_steps)
    weights = add_step(AttentionStep::of(code), inputs, next, weights, steps);
  return weights;
}

array attention_graph(const OpCall& c) {
  const AttentionParams& p = c.get<AttentionParams>();
  const Terms t = terms_of(p, c.inputs);
  std::vector<Applied> steps;
  const bool shares_last = std::ranges::all_of(p.weight_steps, [](int64_t code) {
    return attention::is_homogeneous(AttentionStep::of(code));
  });
  const array start = shares_last ? t.weights : t.weights * t.share;
  const array sums = product_by_head(stepped(p, c.inputs, t.next, start, steps), t.v);
  const array result = flatten(shares_last ? sums * t.share : sums, 1, 2);
  return astype(result, c.inputs[0].dtype());
}

// Tiles of scores are for several queries and keys; a few queries are products of few rows, unless tile
// instructions take them: 8 then cost what 2 do.
bool has_tiles(std::span<const array> inputs) {
  const bool by_tiles = inputs[0].dtype() == Dtype::bfloat16 && cpu_target().facts().amx_bf16;
  const int64_t few_queries = by_tiles ? 1 : 8;
  const Shape &q = inputs[0].shape(), &v = inputs[2].shape();
  const auto more = [](const Dim& dim, int64_t than) { return is_less(than, dim); };
  return more(q.dim(0), 0) && more(q.dim(1), 0) && more(q.dim(2), few_queries) &&
         more(v.dim(2), 1) && more(q.dim(3), 1) && more(v.dim(3), 1);
}

std::optional<Params> attention_kernel(const OpCall& c) {
  return has_tiles(c.inputs) ? std::optional<Params>(c.params) : std::nullopt;
}

// --- The gradient, for each head of the queries: with P = weights · share, and dP = g vᵀ taken back through
// the steps on weights, the scores' is dS = P (dP - Σ P dP).

// The cotangent of the value before step `first`, from that of the value behind all. Where a number stood
// in for a score, nothing comes back to it. With -inf for it the weight is 0 anyway, but in a row of NaN.
array taken_back(const AttentionParams& p, std::span<const Applied> steps, array g, size_t first) {
  for (size_t m = steps.size(); m-- > first;) {
    const Applied& a = steps[m];
    const auto chosen_by = [&](const array& mask) { return chosen(mask, g, full_like(g, 0)); };
    switch (a.step.kind) {
      case StepKind::hide:
        if (p.empty_is_nan) g = chosen_by(a.operands[0]);
        break;
      case StepKind::replace: g = chosen_by(a.operands[0]); break;
      case StepKind::fill: g = chosen_by(stays(a)); break;
      default: g = through(a, false, g);
    }
  }
  return g;
}

// The cotangent of a step's input, from that of the value behind it.
array input_cotangent(const Applied& a, const array& g) {
  if (a.step.kind == StepKind::replace) return chosen(a.operands[0], full_like(g, 0), g);
  if (a.step.kind == StepKind::fill) return chosen(stays(a), full_like(g, 0), g);
  return through(a, true, g);
}

// Of an array over queries and keys it has the array's shape, so that no more is ever stored: what batches
// and heads share is summed as it is made. Of one over queries or keys alone each head has its own.
Shape array_gradient_shape(const Shape& given, const Shape& heads, const Dim& keys) {
  Shape shape = heads;
  shape.dim(3) = keys;
  const auto has = [&](int axis) { return !is_one(given.dim(axis)); };
  if (!has(3)) shape.dim(3) = 1;
  else if (!has(2)) shape.dim(2) = 1;
  for (int axis : {0, 1})
    if (has(2) && has(3) && !has(axis)) shape.dim(axis) = 1;
  return shape;
}

Shape gradient_shape(const OpCall& c) {
  const auto& [attention, k] = c.get<AttentionGradientParams>();
  const Input input = role_of(attention, k).input;
  const Shape &q = c.inputs[0].shape(), &keys = c.inputs[1].shape();
  if (input == kQueries) return q;
  Shape shape = c.inputs.back().shape();  // [batch, heads, queries, features of values]
  if (input == kSinks || input == kNumber || input == kScale) shape.dim(3) = 1;
  if (input == kArray)
    return array_gradient_shape(c.inputs[static_cast<size_t>(k)].shape(), shape, keys.dim(2));
  if (input == kKeys) shape.dim(3) = keys.dim(3);
  if (input == kKeys || input == kValues) shape.dim(2) = keys.dim(2);
  return shape;
}

// Heads that share keys are added up before they are rounded; so is what is summed over queries.
Dtype gradient_dtype(const OpCall& c) {
  const int k = c.get<AttentionGradientParams>().input;
  const Dtype dtype = c.inputs[0].dtype();
  const auto heads = [&](size_t i) { return c.inputs[i].shape().dim(1); };
  const bool is_whole = k == kQueries || (k <= kValues && same_size(heads(0), heads(1)));
  return is_whole || !is_half(dtype) ? dtype : Dtype::float32;
}

// `inner`: of the scaled queries with their gradient, or of the products with theirs.
array scale_gradient(const AttentionParams& p, std::span<const array> inputs, const array& inner) {
  const array ratio = inner / spread_number(inputs[kScale], inner);
  return scale_of(p) == AttentionScale::over ? negative(ratio) : ratio;
}

// Of [batch, key heads, heads for each, queries, keys]: the axes along which what has this shape, with one
// axis for heads, is the same.
AxisList shared_axes(const array& cotangent, const Shape& shape) {
  AxisList axes;
  for (int axis = 0; axis < 5; ++axis)
    if (is_one(shape.dim(axis - (axis > 1))) && !is_one(cotangent.shape().dim(axis)))
      axes.push_back(axis);
  return axes;
}

array gradient_graph(const OpCall& c) {
  const auto& [attention, k] = c.get<AttentionGradientParams>();
  const auto [input, step] = role_of(attention, k);
  const auto inputs = std::span<const array>(c.inputs).first(c.inputs.size() - 1);
  const Terms t = terms_of(attention, inputs);
  const array g = grouped(widened(c.inputs.back()), c.inputs[1].shape()[1]);
  const auto by_head = [](const array& a) { return flatten(a, 1, 2); };
  const auto of_input = [&](const array& cotangent) {
    const AxisList axes = shared_axes(cotangent, gradient_shape(c));
    return by_head(axes.empty() ? cotangent : sum(cotangent, axes, true));
  };

  const array p = t.weights * t.share;
  std::vector<Applied> on_weights;
  const array last = stepped(attention, inputs, t.next, p, on_weights);
  const Dtype dtype = gradient_dtype(c);
  if (input == kValues) return astype(by_head(matmul(swapaxes(last, -1, -2), g)), dtype);
  const array dlast = product_by_head(g, swapaxes(t.v, -1, -2));
  const size_t n_scores = t.steps.size();
  const bool of_step = input == kArray || input == kNumber;
  if (of_step && step >= n_scores) {
    const size_t m = step - n_scores;
    return of_input(
        input_cotangent(on_weights[m], taken_back(attention, on_weights, dlast, m + 1)));
  }
  const array dp = taken_back(attention, on_weights, dlast, 0);
  const array mean = sum(p * dp, AxisList{-1}, true);
  if (input == kSinks) {
    return by_head(negative(*t.sink_weights * t.share * mean));
  }
  const array behind = p * (dp - mean);
  if (of_step)
    return of_input(
        input_cotangent(t.steps[step], taken_back(attention, t.steps, behind, step + 1)));
  const array ds = taken_back(attention, t.steps, behind, 0);
  if (input == kKeys) return astype(by_head(matmul(swapaxes(ds, -1, -2), t.q)), dtype);
  if (input == kScale)
    return by_head(scale_gradient(attention, c.inputs, sum(ds * t.products, AxisList{-1}, true)));
  const array dq = product_by_head(ds, t.k);  // of the scaled queries
  return astype(scaled(attention, c.inputs, by_head(dq)), dtype);
}

// One kernel for all; but one of its own where heads or batches are summed, which then are no items of it.
// What goes with steps on weights is planned op by op.
std::optional<Params> gradient_kernel(const OpCall& c) {
  const auto& [attention, k] = c.get<AttentionGradientParams>();
  const auto [input, step] = role_of(attention, k);
  const bool of_step = input == kArray || input == kNumber;
  if (!has_tiles(c.inputs) || (of_step && step >= attention.score_steps.size()))
    return std::nullopt;
  const Shape shape = gradient_shape(c), &all = c.inputs.back().shape();
  const auto is_summed = [&](int axis) {
    return is_one(shape.dim(axis)) && !is_one(all.dim(axis));
  };
  if (is_summed(0) || is_summed(1)) return c.params;
  return attention;
}

array attention_vjp(const OpCall& c, const array&, int k, const array& g) {
  const AttentionParams& p = c.get<AttentionParams>();
  Arrays inputs(c.inputs.begin(), c.inputs.end());
  inputs.push_back(g);
  array by_head =
      make_node(rows::attention_gradient, std::move(inputs), AttentionGradientParams{p, k}, {});
  const array& x = c.inputs[static_cast<size_t>(k)];
  switch (role_of(p, k).input) {
    case kQueries: return by_head;
    case kKeys:
    case kValues: {
      const int64_t key_heads = x.shape()[1];
      if (same_size(by_head.shape().dim(1), x.shape().dim(1))) return astype(by_head, x.dtype());
      return astype(sum(grouped(by_head, key_heads), AxisList{2}, false), x.dtype());
    }
    case kArray: return astype(sum_to(by_head, x.shape()), x.dtype());
    case kScale:
    case kNumber: return astype(sum(by_head, {}, false), x.dtype());
    case kSinks: break;
  }
  return astype(sum(by_head, AxisList{0, 2, 3}, false), x.dtype());
}

// --- vmap: the new axis joins the batch, so that a batch of batches is one kernel, too.

array with_axis(const array& a, bool batched, const Dim& size) {
  if (batched) return a;
  Shape shape = a.shape();
  shape.insert(0, size);
  return broadcast_to(expand_dims(a, {0}), shape);
}

// A mask for all batch entries stays one if it is not batched.
array joined(const array& a, bool batched, const Dim& size, const Dim& batch) {
  if (!batched && !same_size(a.shape().dim(0), batch)) return a;
  array wide = with_axis(a, batched, size);
  if (!same_size(wide.shape().dim(1), batch)) {
    Shape shape = wide.shape();
    shape.dim(1) = batch;
    wide = broadcast_to(wide, shape);
  }
  return flatten(wide, 0, 1);
}

array entry(const array& a, bool batched, int64_t i) {
  if (!batched) return a;
  const array index = full({}, number(i), Dtype::int64);
  return take(a, index, 0);
}

// `p`: of the attention. Sinks and numbers have no batch of their own: with batched ones, entry by entry.
array vmap_attention(const OpCall& c, const AttentionParams& p, std::span<const bool> batched,
                     const Dim& size) {
  const auto n_own = static_cast<int>(c.inputs.size()) - (c.row.id == OpId::AttentionGradient);
  const auto has_batch = [&](size_t k) {
    const auto i = static_cast<int>(k);
    if (i >= n_own) return true;
    const Input input = role_of(p, i).input;
    return input <= kValues || input == kArray;
  };
  bool apart = false;
  for (size_t k = 0; k < c.inputs.size(); ++k) apart |= batched[k] && !has_batch(k);
  if (apart) {
    Arrays results;
    for (int64_t i = 0; i < size; ++i) {
      Arrays inputs;
      for (size_t k = 0; k < c.inputs.size(); ++k)
        inputs.push_back(entry(c.inputs[k], batched[k], i));
      results.push_back(make_node(c.row, std::move(inputs), c.params, {}));
    }
    return stack(results, 0);
  }
  const Dim batch = c.inputs[0].shape().dim(batched[0] ? 1 : 0);
  Arrays inputs;
  for (size_t k = 0; k < c.inputs.size(); ++k)
    inputs.push_back(has_batch(k) ? joined(c.inputs[k], batched[k], size, batch) : c.inputs[k]);
  return unflatten(make_node(c.row, std::move(inputs), c.params, {}), 0, {size, batch});
}

array attention_vmap(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  return vmap_attention(c, c.get<AttentionParams>(), batched, size);
}

// Each entry has a gradient of its own: an array that all batches share is spread over them, and what it
// gets is summed behind.
array gradient_vmap(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  const auto& [p, k] = c.get<AttentionGradientParams>();
  if (role_of(p, k).input != kArray) return vmap_attention(c, p, batched, size);
  const auto of = static_cast<size_t>(k);
  const int at = batched[of] ? 1 : 0;
  Arrays inputs(c.inputs.begin(), c.inputs.end());
  Shape shape = inputs[of].shape();
  const bool is_shared =
      is_one(shape.dim(at)) && !is_one(shape.dim(at + 2)) && !is_one(shape.dim(at + 3));
  shape.dim(at) = inputs[0].shape().dim(batched[0] ? 1 : 0);
  inputs[of] = broadcast_to(inputs[of], shape);
  const array each = vmap_attention({c.row, c.params, inputs}, p, batched, size);
  return is_shared ? sum(each, AxisList{1}, true) : each;
}

void check_shapes(const array& q, const array& k, const array& v) {
  for (const array* a : {&q, &k, &v})
    CERMET_CHECK(a->ndim() == 4, value, kName,
                 "an array of shape {}; it takes shapes (batch, heads, length, features)",
                 a->shape());
  const auto agree = [](const array& a, const array& b, std::initializer_list<int> axes) {
    return std::ranges::all_of(
        axes, [&](int axis) { return same_size(a.shape().dim(axis), b.shape().dim(axis)); });
  };
  const bool fits = agree(q, k, {0, 3}) && agree(k, v, {0, 1, 2});
  CERMET_CHECK(fits, value, kName,
               "queries {}, keys {} and values {} do not fit; all need one batch size, queries and "
               "keys as many features, keys and values as many heads and as great a length",
               q.shape(), k.shape(), v.shape());
  const int64_t heads = q.shape()[1], key_heads = k.shape()[1];
  CERMET_CHECK(key_heads > 0 && heads % key_heads == 0, value, kName,
               "{} query heads for {} key heads; the first must be a multiple of the second", heads,
               key_heads);
}

// The mask as [1 or batch, 1 or heads, 1 or queries, 1 or keys].
array fitted_mask(const array& mask, const Shape& scores, Dtype dtype, const S& s) {
  CERMET_CHECK(mask.ndim() <= 4, value, kName, "the mask has shape {}; it has at most 4 axes",
               mask.shape());
  const bool fits = broadcast_shapes(kName, mask.shape(), scores) == scores;
  CERMET_CHECK(fits, value, kName, "the mask has shape {}; it must broadcast to {}", mask.shape(),
               scores);
  CERMET_CHECK(mask.dtype() == Dtype::boolean || promote(mask.dtype(), dtype) == dtype, dtype,
               kName, "the mask has dtype {}; it must be bool, or promote to {}", mask.dtype(),
               dtype);
  array result = mask.dtype() == Dtype::boolean ? mask : astype(mask, dtype, s);
  AxisList missing;
  for (int axis = 0; axis < 4 - mask.ndim(); ++axis) missing.push_back(axis);
  return missing.empty() ? result : expand_dims(result, missing, s);
}

}  // namespace

constinit const OpRow rows::scaled_dot_product_attention = {
    .id = OpId::Attention,
    .name = "scaled_dot_product_attention",
    .accepts = kFloats | kBool,
    .dtype = same_dtype,
    .shape = attention_shape,
    .derivative = Derived{attention_vjp},
    .vmap = CustomVmap{attention_vmap},
    .lowering = CompositeLowering{attention_graph, attention_kernel},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 16,
    .doc =
        "softmax(q kᵀ scale + mask) v for each head; heads of q may share keys and values. A sink "
        "is a score for each head that takes weight and gives no value.",
};

constinit const OpRow rows::attention_gradient = {
    .id = OpId::AttentionGradient,
    .name = "attention_gradient",
    .accepts = kFloats | kBool,
    .dtype = gradient_dtype,
    .shape = gradient_shape,
    .derivative = Derived{},
    .vmap = CustomVmap{gradient_vmap},
    .lowering = CompositeLowering{gradient_graph, gradient_kernel},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 32,
    .doc =
        "The cotangent of one input of attention, from the inputs and the cotangent of its result: "
        "of an array over queries and keys in its shape, else for each head of the queries. "
        "Weights are computed again, not kept.",
};

array fast::scaled_dot_product_attention(const array& q, const array& k, const array& v,
                                         const Number& scale, const std::string& mask_kind,
                                         const std::optional<array>& mask,
                                         const std::optional<array>& sinks, const S& s) {
  check_shapes(q, k, v);
  const Dtype dtype = promote(promote(q.dtype(), k.dtype()), v.dtype());
  CERMET_CHECK(is_floating(dtype), dtype, kName, "dtype {} is given; it takes floating dtypes",
               dtype);
  CERMET_CHECK(mask_kind.empty() || mask_kind == "causal" || mask_kind == "array", value, kName,
               "the mask is '{}'; use 'causal' or an array", mask_kind);
  AttentionParams p;
  p.causal = mask_kind == "causal";
  p.has_sinks = sinks.has_value();
  Arrays inputs{astype(q, dtype, s), astype(k, dtype, s), astype(v, dtype, s)};
  if (scale.expr != 0) {  // open in a trace
    p.scaled = static_cast<int64_t>(AttentionScale::times);
    inputs.push_back(full({}, scale, wide_dtype(dtype), s));
  } else {
    p.scale = convert_number(scale, Dtype::float64).real_imag.real();
  }
  if (mask) {
    Shape scores = q.shape();
    scores.dim(3) = k.shape().dim(2);
    inputs.push_back(fitted_mask(*mask, scores, dtype, s));
    AttentionStep step{StepKind::hide};
    if (mask->dtype() != Dtype::boolean) step = {StepKind::by_array, OpId::Add};
    p.score_steps.push_back(step.code());
  }
  if (sinks) {
    CERMET_CHECK(sinks->ndim() == 1 && same_size(sinks->shape().dim(0), q.shape().dim(1)), value,
                 kName, "the sinks have shape {}; it must be ({},), one for each head",
                 sinks->shape(), q.shape()[1]);
    inputs.push_back(astype(*sinks, dtype, s));
  }
  // All else gets its kernel when it is planned, so that one trace serves all lengths.
  if (is_one(q.shape().dim(3)) || is_one(v.shape().dim(3)))
    if (auto result = attention::as_kernel(inputs, p, s)) return *result;
  return make_node(rows::scaled_dot_product_attention, std::move(inputs), p, s);
}

array fast::scaled_dot_product_attention(const array& q, const array& k, const array& v,
                                         double scale, const std::string& mask_kind,
                                         const std::optional<array>& mask,
                                         const std::optional<array>& sinks, const S& s) {
  return scaled_dot_product_attention(q, k, v, number(scale), mask_kind, mask, sinks, s);
}

// Products of one feature have no axis for a kernel to sum over: they get a second one of zeros.
std::optional<array> attention::as_kernel(std::span<const array> inputs, const AttentionParams& p,
                                          const S& s) {
  const auto widened = [&](const array& a) {
    if (!is_one(a.shape().dim(3))) return a;
    return pad(a, {{0, 0}, {0, 0}, {0, 0}, {0, 1}}, array(0), "constant", s);
  };
  Arrays wide(inputs.begin(), inputs.end());
  for (size_t k : {kQueries, kKeys, kValues}) wide[k] = widened(wide[k]);
  if (!has_tiles(wide)) return std::nullopt;
  Shape shape = inputs[kQueries].shape();
  shape.dim(3) = inputs[kValues].shape().dim(3);
  array result = make_node(rows::scaled_dot_product_attention, std::move(wide), p, s);
  if (!is_one(shape.dim(3))) return result;
  return sized_slice(result, {0, 0, 0, 0}, {1, 1, 1, 1}, shape, s);
}

}  // namespace cermet
