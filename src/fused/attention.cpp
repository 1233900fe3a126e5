// SPDX-License-Identifier: MIT
// Scaled dot-product attention as a graph of plain rows: the reference that a fused kernel must
// match. Scores and weights are float32 for half inputs. A row whose keys are all masked gives
// zeros, and so does its derivative (unless the parameters ask for softmax's NaN).
#include <algorithm>
#include <limits>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

constexpr const char* kName = "scaled_dot_product_attention";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

array widened(const array& a) { return is_half(a.dtype()) ? astype(a, Dtype::float32) : a; }

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
array causal_mask(int64_t queries, int64_t keys) {
  const Number one = number(int64_t{1});
  const array key = arange(number(int64_t{0}), number(keys), one, Dtype::int32);
  const array query = arange(number(keys - queries), number(keys), one, Dtype::int32);
  return key <= reshape(query, {queries, 1});
}

AttentionScale scale_of(const AttentionParams& p) { return static_cast<AttentionScale>(p.scaled); }

AttentionMask kind_of(const AttentionParams& p, size_t mask) {
  return static_cast<AttentionMask>(p.masks[mask]);
}

// Of input k: what it is, and of which mask.
enum Input : int { kQueries, kKeys, kValues, kScale, kMask, kNumber, kSinks };
struct InputRole {
  Input input;
  size_t mask = 0;
};

InputRole role_of(const AttentionParams& p, int k) {
  const bool scaled = scale_of(p) != AttentionScale::none;
  if (k < kScale + scaled) return {static_cast<Input>(k)};
  int at = kScale + scaled;
  for (size_t m = 0; m < p.masks.size(); ++m) {
    if (k == at++) return {kMask, m};
    if (kind_of(p, m) == AttentionMask::replace && k == at++) return {kNumber, m};
  }
  return {kSinks};
}

// The number spread by nodes of its own, never built anew: its value may be given at each run.
array spread_number(const array& value, const array& like) {
  const array wide =
      value.dtype() == like.dtype()
          ? value
          : make_node(rows::cast, pack(value), CastParams{like.dtype()}, value.node()->stream);
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

// What attention and its gradients compute first: [batch, key heads, heads for each, queries, ...].
struct Terms {
  array q, k, v;  // q scaled
  array weights;  // exp(scores - largest)
  array share;    // of a weight: 1 / sum, 0 where nothing is seen
  array largest;
  Arrays masks;  // with the axes of the scores
  std::optional<array> sinks;
};

// 1 / total, and 0 where that is 0.
array share_of(const array& total) {
  const array is_empty = total == 0;
  return where(is_empty, full_like(total, 0),
               reciprocal(where(is_empty, full_like(total, 1), total)));
}

Terms terms_of(const AttentionParams& p, std::span<const array> inputs) {
  const int64_t key_heads = inputs[1].shape()[1];
  const array q = grouped(scaled(p, inputs, widened(inputs[0])), key_heads);
  const array k = expand_dims(widened(inputs[1]), {2});
  const array v = expand_dims(widened(inputs[2]), {2});
  const Shape shape = inputs[0].shape();

  array scores = matmul(q, swapaxes(k, -1, -2));
  if (p.causal) scores = hidden(scores, causal_mask(shape[2], inputs[1].shape()[2]));
  Arrays masks;
  size_t next = kScale + (scale_of(p) != AttentionScale::none);
  for (size_t m = 0; m < p.masks.size(); ++m) {
    const array& given = inputs[next++];
    const bool per_head = given.shape()[1] != 1;
    const array mask = per_head ? grouped(given, key_heads) : expand_dims(given, {2});
    switch (kind_of(p, m)) {
      case AttentionMask::add: scores = scores + astype(mask, scores.dtype()); break;
      case AttentionMask::hide: scores = hidden(scores, mask); break;
      case AttentionMask::replace:
        scores = chosen(mask, scores, spread_number(inputs[next++], scores));
    }
    masks.push_back(mask);
  }

  array largest = max(scores, AxisList{-1}, true);
  std::optional<array> sinks;
  if (p.has_sinks) {
    const array& sink = inputs[next];
    sinks = reshape(widened(sink), {key_heads, shape[1] / key_heads, 1, 1});
    largest = maximum(largest, *sinks);
  }
  // A row of -inf alone subtracts 0, so that its weights are 0.
  largest = stop_gradient(where(largest == -kInfinity, full_like(largest, 0), largest));
  const array weights = exp(scores - largest);
  array total = sum(weights, AxisList{-1}, true);
  if (sinks) total = total + exp(*sinks - largest);
  const array share = p.empty_is_nan ? reciprocal(total) : share_of(total);
  return {q, k, v, weights, share, largest, masks, sinks};
}

array attention_graph(const OpCall& c) {
  const Terms t = terms_of(c.get<AttentionParams>(), c.inputs);
  const array result = flatten(matmul(t.weights, t.v) * t.share, 1, 2);
  return astype(result, c.inputs[0].dtype());
}

// Tiles of scores are for several queries and keys; a few queries are products of few rows.
bool has_tiles(const OpCall& c) {
  constexpr int64_t kFewQueries = 8;
  const Shape &q = c.inputs[0].shape(), &v = c.inputs[2].shape();
  return q[2] > kFewQueries && v[2] > 1 && q[3] > 1 && v[3] > 1;
}

std::optional<Params> attention_kernel(const OpCall& c) {
  return has_tiles(c) ? std::optional<Params>(c.params) : std::nullopt;
}

// --- The gradient, for each head of the queries: with P = weights · share and dP = g vᵀ, the scores'
// is dS = P (dP - Σ P dP).

// The gradient of the scores behind the first `applied` masks, from that of those behind all: where a
// mask stood in for a score, nothing comes back to it. With -inf for it the weight is 0 anyway, but in a
// row of NaN.
array scores_gradient(const AttentionParams& p, const Terms& t, array ds, size_t applied) {
  for (size_t m = p.masks.size(); m-- > applied;) {
    const bool matters = kind_of(p, m) == AttentionMask::replace ||
                         (kind_of(p, m) == AttentionMask::hide && p.empty_is_nan);
    if (matters) ds = chosen(t.masks[m], ds, full_like(ds, 0));
  }
  return ds;
}

Shape gradient_shape(const OpCall& c) {
  const auto& [attention, k] = c.get<AttentionGradientParams>();
  const Input input = role_of(attention, k).input;
  const Shape &q = c.inputs[0].shape(), &keys = c.inputs[1].shape();
  if (input == kQueries) return q;
  Shape shape = c.inputs.back().shape();  // [batch, heads, queries, features of values]
  if (input == kSinks || input == kNumber || input == kScale) shape.dim(3) = 1;
  if (input == kMask) shape.dim(3) = keys.dim(2);
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

// `inner`: of the scaled queries with their gradient.
array scale_gradient(const AttentionParams& p, std::span<const array> inputs, const array& inner) {
  const array ratio = inner / spread_number(inputs[kScale], inner);
  return scale_of(p) == AttentionScale::over ? negative(ratio) : ratio;
}

array gradient_graph(const OpCall& c) {
  const auto& [attention, k] = c.get<AttentionGradientParams>();
  const auto [input, mask] = role_of(attention, k);
  const Terms t = terms_of(attention, c.inputs.first(c.inputs.size() - 1));
  const array g = grouped(widened(c.inputs.back()), c.inputs[1].shape()[1]);
  const auto by_head = [](const array& a) { return flatten(a, 1, 2); };

  const array p = t.weights * t.share;
  const Dtype dtype = gradient_dtype(c);
  if (input == kValues) return astype(by_head(matmul(swapaxes(p, -1, -2), g)), dtype);
  const array dp = matmul(g, swapaxes(t.v, -1, -2));
  const array mean = sum(p * dp, AxisList{-1}, true);
  if (input == kSinks) return by_head(negative(exp(*t.sinks - t.largest) * t.share * mean));
  const array after_masks = p * (dp - mean);
  if (input == kNumber) {
    const array ds = scores_gradient(attention, t, after_masks, mask + 1);
    return by_head(sum(chosen(t.masks[mask], full_like(ds, 0), ds), AxisList{-1}, true));
  }
  const array ds = scores_gradient(attention, t, after_masks, input == kMask ? mask + 1 : 0);
  if (input == kMask) return by_head(ds);
  if (input == kKeys) return astype(by_head(matmul(swapaxes(ds, -1, -2), t.q)), dtype);
  const array dq = matmul(ds, t.k);  // of the scaled queries
  if (input == kScale)
    return by_head(scale_gradient(attention, c.inputs, sum(dq * t.q, AxisList{-1}, true)));
  return astype(scaled(attention, c.inputs, by_head(dq)), dtype);
}

std::optional<Params> gradient_kernel(const OpCall& c) {
  const auto& [attention, k] = c.get<AttentionGradientParams>();
  if (role_of(attention, k).input > kValues || !has_tiles(c)) return std::nullopt;
  return attention;
}

// Adds up what was broadcast to `a`, over the axes where `like` has size 1.
array summed_to(const array& a, const Shape& like) {
  AxisList axes;
  for (int axis = 0; axis < like.ndim(); ++axis)
    if (like[axis] == 1 && a.shape()[axis] != 1) axes.push_back(axis);
  return axes.empty() ? a : sum(a, axes, true);
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
    case kMask: return astype(summed_to(by_head, x.shape()), x.dtype());
    case kScale:
    case kNumber: return astype(sum(by_head, {}, false), x.dtype());
    case kSinks: break;
  }
  return astype(sum(by_head, AxisList{0, 2, 3}, false), x.dtype());
}

// --- vmap: the new axis joins the batch, so that a batch of batches is one kernel, too.

array with_axis(const array& a, bool batched, int64_t size) {
  if (batched) return a;
  Shape shape = a.shape();
  shape.insert(0, size);
  return broadcast_to(expand_dims(a, {0}), shape);
}

// A mask for all batch entries stays one if it is not batched.
array joined(const array& a, bool batched, int64_t size, int64_t batch) {
  if (!batched && a.shape()[0] != batch) return a;
  array wide = with_axis(a, batched, size);
  if (wide.shape()[1] != batch) {
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
                     int64_t size) {
  const auto n_own = static_cast<int>(c.inputs.size()) - (c.row.id == OpId::AttentionGradient);
  const auto has_batch = [&](size_t k) {
    const auto i = static_cast<int>(k);
    if (i >= n_own) return true;
    const Input input = role_of(p, i).input;
    return input <= kValues || input == kMask;
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
  const int64_t batch = c.inputs[0].shape()[batched[0] ? 1 : 0];
  Arrays inputs;
  for (size_t k = 0; k < c.inputs.size(); ++k)
    inputs.push_back(has_batch(k) ? joined(c.inputs[k], batched[k], size, batch) : c.inputs[k]);
  return unflatten(make_node(c.row, std::move(inputs), c.params, {}), 0, {size, batch});
}

array attention_vmap(const OpCall& c, std::span<const bool> batched, int64_t size) {
  return vmap_attention(c, c.get<AttentionParams>(), batched, size);
}

array gradient_vmap(const OpCall& c, std::span<const bool> batched, int64_t size) {
  return vmap_attention(c, c.get<AttentionGradientParams>().attention, batched, size);
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

// The mask as [1 or batch, 1 or heads, queries, keys].
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
  if (!missing.empty()) result = expand_dims(result, missing, s);
  Shape shape = result.shape();
  shape.dim(2) = scores.dim(2);
  shape.dim(3) = scores.dim(3);
  return broadcast_to(result, shape, s);
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
        "The cotangent of one input of attention, from the inputs and the cotangent of its result, "
        "for each head of the queries. Weights are computed again, not kept.",
};

array fast::scaled_dot_product_attention(const array& q, const array& k, const array& v,
                                         double scale, const std::string& mask_kind,
                                         const std::optional<array>& mask,
                                         const std::optional<array>& sinks, const S& s) {
  check_shapes(q, k, v);
  const Dtype dtype = promote(promote(q.dtype(), k.dtype()), v.dtype());
  CERMET_CHECK(is_floating(dtype), dtype, kName, "dtype {} is given; it takes floating dtypes",
               dtype);
  CERMET_CHECK(mask_kind.empty() || mask_kind == "causal" || mask_kind == "array", value, kName,
               "the mask is '{}'; use 'causal' or an array", mask_kind);
  AttentionParams p;
  p.scale = scale;
  p.causal = mask_kind == "causal";
  p.has_sinks = sinks.has_value();
  Arrays inputs{astype(q, dtype, s), astype(k, dtype, s), astype(v, dtype, s)};
  if (mask) {
    Shape scores = q.shape();
    scores.dim(3) = k.shape().dim(2);
    inputs.push_back(fitted_mask(*mask, scores, dtype, s));
    const bool hides = mask->dtype() == Dtype::boolean;
    p.masks.push_back(static_cast<int64_t>(hides ? AttentionMask::hide : AttentionMask::add));
  }
  if (sinks) {
    CERMET_CHECK(sinks->ndim() == 1 && same_size(sinks->shape().dim(0), q.shape().dim(1)), value,
                 kName, "the sinks have shape {}; it must be ({},), one for each head",
                 sinks->shape(), q.shape()[1]);
    inputs.push_back(astype(*sinks, dtype, s));
  }
  return make_node(rows::scaled_dot_product_attention, std::move(inputs), p, s);
}

}  // namespace cermet
