// SPDX-License-Identifier: MIT
// Attention written with plain ops: softmax(q kᵀ scale, masks) v becomes the row of that name.
//
// Scores lead through scales, masks and casts down to one product; a softmax (the row, or spelled out
// with the largest score taken off) turns them into weights. Scales move to the queries; masks stay what
// they are: an array that is added, or a choice between a score and a number, applied in their order, so
// that rows that see nothing answer as they did. Heads that share keys are found behind repeats and
// broadcasts of keys and values.
#include <algorithm>

#include "graph/pattern.h"
#include "ops/rules.h"

namespace cermet {

namespace {

using namespace rules;

// An operand of a product, seen through what repeats and transposes it: [leading axes..., two axes].
struct Factor {
  Dim size;
  int axis;  // of the base; -1: repeated along it
};
using Factors = std::vector<Factor>;
struct Operand {
  NodeRef base;
  bool swapped;               // the last two axes
  std::vector<Factors> axes;  // leading axes, from what they are made
};

bool is_one(const Dim& dim) { return dim.expr == 0 && dim.value == 1; }

// One value for each row of `whole`.
bool spreads_over(const Shape& rows, const Shape& whole) {
  if (rows.ndim() != whole.ndim() || !is_one(rows.dim(rows.ndim() - 1))) return false;
  for (int axis = 0; axis + 1 < rows.ndim(); ++axis)
    if (!same_size(rows.dim(axis), whole.dim(axis))) return false;
  return true;
}

bool ends_alike(const Shape& a, const Shape& b, int axes) {
  if (a.ndim() < axes || b.ndim() < axes) return false;
  for (int i = 1; i <= axes; ++i)
    if (!same_size(a.dim(a.ndim() - i), b.dim(b.ndim() - i))) return false;
  return true;
}

Operand whole_operand(const NodeRef& node, bool swapped) {
  Operand operand{node, swapped, {}};
  for (int axis = 0; axis + 2 < node->shape.ndim(); ++axis)
    operand.axes.push_back({{node->shape.dim(axis), axis}});
  return operand;
}

// Of a reshape that leaves the last two axes: the axes that each of its leading axes is made of; nullopt:
// it splits some.
std::optional<std::vector<std::vector<int>>> joined_axes(const Shape& from, const Shape& to) {
  if (!ends_alike(from, to, 2)) return std::nullopt;
  const int n_from = from.ndim() - 2, n_to = to.ndim() - 2;
  std::vector<std::vector<int>> joined(static_cast<size_t>(n_to));
  int next = 0;
  for (int axis = 0; axis < n_to; ++axis) {
    if (is_one(to.dim(axis))) continue;
    Dim size = 1;
    while (!same_size(size, to.dim(axis))) {
      if (next == n_from || is_less(to.dim(axis), size)) return std::nullopt;
      if (!is_one(from.dim(next))) joined[static_cast<size_t>(axis)].push_back(next);
      size = times(size, from.dim(next++));
    }
  }
  while (next < n_from)
    if (!is_one(from.dim(next++))) return std::nullopt;
  return joined;
}

// One step from the operand's base to its input; false: there is none.
bool step_through(Operand& operand) {
  const Node& node = *operand.base;
  if (node.inputs.size() != 1) return false;
  const NodeRef input = node.inputs[0];
  const int rank = node.shape.ndim(), added = rank - input->shape.ndim();
  const auto each_axis = [&](auto&& change) {
    for (Factors& factors : operand.axes) {
      Factors changed;
      for (const Factor& f : factors)
        if (f.axis < 0) changed.push_back(f);
        else change(f, changed);
      factors = std::move(changed);
    }
  };
  if (node.row == &rows::cast) {
    if (!is_half(input->dtype) || node.dtype != Dtype::float32) return false;
  } else if (node.row == &rows::transpose) {
    const Axes& order = std::get<AxesParams>(node.params).axes;
    for (int axis = 0; axis + 2 < rank; ++axis)
      if (order[static_cast<size_t>(axis)] != axis) return false;
    operand.swapped ^= order[static_cast<size_t>(rank - 1)] != rank - 1;
  } else if (node.row == &rows::broadcast_to) {
    if (!ends_alike(node.shape, input->shape, 2)) return false;
    each_axis([&](const Factor& f, Factors& to) {
      const int axis = f.axis - added;
      const bool repeats = axis < 0 || (is_one(input->shape.dim(axis)) && !is_one(f.size));
      to.push_back({f.size, repeats ? -1 : axis});
    });
  } else if (node.row == &rows::reshape) {
    const auto joined = joined_axes(input->shape, node.shape);
    if (!joined) return false;
    each_axis([&](const Factor& f, Factors& to) {
      for (int axis : (*joined)[static_cast<size_t>(f.axis)])
        to.push_back({input->shape.dim(axis), axis});
    });
  } else {
    return false;
  }
  operand.base = input;
  return true;
}

// Each axis of the base serves once, in order.
bool is_regular(const Operand& operand) {
  int next = 0;
  const Shape& shape = operand.base->shape;
  const auto skip_ones = [&] {
    while (next + 2 < shape.ndim() && is_one(shape.dim(next))) ++next;
  };
  for (const Factors& factors : operand.axes)
    for (const Factor& f : factors) {
      if (f.axis < 0 || is_one(f.size)) continue;
      skip_ones();
      if (f.axis != next++) return false;
    }
  skip_ones();
  return next + 2 >= shape.ndim();
}

Operand find_operand(const NodeRef& node, bool swapped, const PatternGraph& graph) {
  Operand at = whole_operand(node, swapped), best = at;
  while (graph.is_open(*at.base) && step_through(at))
    if (is_regular(at)) best = at;
  for (Factors& factors : best.axes)
    std::erase_if(factors, [](const Factor& f) { return is_one(f.size); });
  return best;
}

bool repeat_alike(const Operand& a, const Operand& b) {
  const auto alike = [](const Factor& x, const Factor& y) {
    return (x.axis < 0) == (y.axis < 0) && same_size(x.size, y.size);
  };
  return std::ranges::equal(a.axes, b.axes, [&](const Factors& x, const Factors& y) {
    return std::ranges::equal(x, y, alike);
  });
}

// The first axis with repetition, behind which all is repeated; their number if there is none, -1 if
// what is repeated is not last.
int first_repeated(const Operand& operand) {
  int first = static_cast<int>(operand.axes.size());
  bool repeated = false;
  for (size_t axis = 0; axis < operand.axes.size(); ++axis)
    for (const Factor& f : operand.axes[axis]) {
      if (repeated && f.axis >= 0) return -1;
      if (!repeated && f.axis < 0) first = static_cast<int>(axis);
      repeated |= f.axis < 0;
    }
  return first;
}

// A step on the scores.
struct Mask {
  AttentionMask kind;
  NodeRef array;   // added; or the condition
  NodeRef number;  // of replace
  bool negated;    // subtracted; or the score is taken where the condition is false
};
struct Scale {
  NodeRef array;
  bool divides;
};

class Matcher {
 public:
  explicit Matcher(const PatternGraph& graph) : graph_(graph) {}

  bool run(const NodeRef& root) {
    root_ = root;
    if (!weights(root->inputs[0]) || found_.product == nullptr) return false;
    const Node& product = *found_.product;
    keys_ = find_operand(product.inputs[1], true, graph_);
    values_ = find_operand(root->inputs[1], false, graph_);
    if (first_repeated(keys_) < 0 || !repeat_alike(keys_, values_)) {
      keys_ = whole_operand(product.inputs[1], true);
      values_ = whole_operand(root->inputs[1], false);
    }
    return dtypes_fit() && std::ranges::all_of(found_.inner, [&](const auto& inner) {
             return graph_.is_private(*inner.first, inner.second);
           });
  }

  std::optional<array> build(PatternBuilder& to) const {
    const int leading = static_cast<int>(scores_shape().ndim()) - 2;
    const int batch = batch_axes();
    AttentionParams p;
    p.empty_is_nan = true;
    Arrays numbers;
    array q = scaled_queries(to, p, numbers);
    q = in_four(q, q.shape(), batch, leading);
    if (q.dtype() != root_->dtype && is_half(q.dtype())) q = astype(q, root_->dtype);
    Arrays inputs{q, shared(keys_, batch), shared(values_, batch)};
    inputs.insert(inputs.end(), numbers.begin(), numbers.end());
    for (const Mask& mask : found_.masks) add_mask(to, mask, inputs, p);
    const OpRow& row = rows::scaled_dot_product_attention;
    const auto& composite = std::get<CompositeLowering>(row.lowering.value);
    if (!composite.kernel({row, p, inputs})) return std::nullopt;
    array result = make_node(row, std::move(inputs), std::move(p), root_->stream);
    result.node()->origin = root_->origin;
    return reshaped(astype(result, root_->dtype), result_shape());
  }

 private:
  // What was walked through: its nodes, with the edges to them.
  struct Found {
    std::vector<std::pair<const Node*, int>> inner;
    const Node* product = nullptr;
    const Node* scores = nullptr;  // what the softmax is of
    std::vector<Scale> scales;
    std::vector<Mask> masks;  // in their order
  };

  // That of the root, which cannot be named by its own sizes while it is replaced.
  Shape result_shape() const {
    Shape shape = found_.product->inputs[0]->shape;
    const Shape& values = root_->inputs[1]->shape;
    shape.dim(shape.ndim() - 1) = values.dim(values.ndim() - 1);
    return shape;
  }

  const Shape& scores_shape() const { return found_.scores->shape; }

  bool is(const NodeRef& node, const OpRow& row) const {
    return node->row == &row && graph_.is_open(*node);
  }
  void enter(const NodeRef& node) {
    const auto it =
        std::ranges::find(found_.inner, node.get(), &std::pair<const Node*, int>::first);
    if (it == found_.inner.end()) found_.inner.emplace_back(node.get(), 1);
    else ++it->second;
  }

  // ---- softmax ----

  bool weights(NodeRef node) {
    while (is(node, rows::cast)) {
      enter(node);
      node = node->inputs[0];
    }
    enter(node);
    if (is(node, rows::softmax)) return is_last(*node) && scores_of(node->inputs[0]);
    if (is(node, rows::divide)) return quotient_of(node->inputs[0], node->inputs[1]);
    if (is(node, rows::multiply)) {
      for (size_t side : {0, 1})
        if (product_of(node->inputs[side], node->inputs[1 - side])) return true;
      return false;
    }
    return is(node, rows::exp) && exponent_of(node->inputs[0], rows::logsumexp);
  }

  static bool is_last(const Node& reduction) {
    const Axes& axes = std::get<ReduceParams>(reduction.params).axes;
    return axes.size() == 1 && axes[0] == reduction.inputs[0]->shape.ndim() - 1;
  }

  // exp(x - max x) / sum
  bool quotient_of(const NodeRef& e, const NodeRef& total) {
    if (!is(e, rows::exp) || !is_fold(total, rows::sum, e)) return false;
    enter(e);
    return exponent_of(e->inputs[0], rows::max);
  }

  // exp(x - max x) * (1 / sum)
  bool product_of(const NodeRef& e, const NodeRef& share) {
    if (!is(e, rows::exp)) return false;
    Found before = found_;
    if (is_fold(share, rows::sum, e, &rows::reciprocal)) {
      enter(e);
      if (exponent_of(e->inputs[0], rows::max)) return true;
    }
    found_ = std::move(before);
    return false;
  }

  // x - fold(x)
  bool exponent_of(const NodeRef& node, const OpRow& fold) {
    if (!is(node, rows::subtract) || !is_fold(node->inputs[1], fold, node->inputs[0])) return false;
    enter(node);
    return scores_of(node->inputs[0]);
  }

  // The node is x folded over its last axis and spread back over x; `then`: an op on each result, once.
  bool is_fold(NodeRef node, const OpRow& fold, const NodeRef& x, const OpRow* then = nullptr) {
    const Shape& shape = x->shape;
    for (bool spread = false; !is(node, fold); node = node->inputs[0]) {
      if (is(node, rows::broadcast_to) && !spread) {
        spread = spreads_over(node->inputs[0]->shape, shape);
        if (!spread) return false;
      } else if (is(node, rows::reshape)) {
        if (!spreads_over(node->shape, shape) || node->inputs[0]->shape.ndim() != shape.ndim() - 1)
          return false;
      } else if (then != nullptr && is(node, *then)) {
        then = nullptr;
      } else if (&fold != &rows::max || !is(node, rows::stop_gradient)) {  // any shift is as good
        return false;
      }
      enter(node);
    }
    enter(node);
    enter(x);
    return then == nullptr && node->inputs[0] == x && is_last(*node);
  }

  // ---- scores ----

  bool scores_of(const NodeRef& node) {
    found_.scores = node.get();
    return step(node, 0);
  }

  bool step(const NodeRef& node, int depth) {
    constexpr int kMostDepth = 12, kMostSteps = 48;
    if (depth == kMostDepth || ++steps_ > kMostSteps || !graph_.is_open(*node)) return false;
    enter(node);
    const auto& in = node->inputs;
    if (is(node, rows::matmul)) {
      found_.product = node.get();
      return true;
    }
    if (is(node, rows::cast)) return step(in[0], depth + 1);
    if (is(node, rows::multiply))
      return scaled(in[0], in[1], false, depth) || scaled(in[1], in[0], false, depth);
    if (is(node, rows::divide)) return scaled(in[0], in[1], true, depth);
    if (is(node, rows::add))
      return added(in[0], in[1], false, depth) || added(in[1], in[0], false, depth);
    if (is(node, rows::subtract)) return added(in[0], in[1], true, depth);
    if (is(node, rows::select))
      return chosen(in[0], in[1], in[2], false, depth) || chosen(in[0], in[2], in[1], true, depth);
    return false;
  }

  // One way to go on from a node; what a wrong one has found is forgotten.
  bool try_step(const NodeRef& node, int depth) {
    Found before = found_;
    if (step(node, depth + 1)) return true;
    found_ = std::move(before);
    return false;
  }

  // Without what spreads it over the scores.
  NodeRef narrow(NodeRef node) const {
    while (is(node, rows::broadcast_to)) node = node->inputs[0];
    return node;
  }
  bool is_number(const NodeRef& node) const { return node->row == &rows::full; }

  // A scale of all scores of a query, before the masks.
  bool scaled(const NodeRef& node, const NodeRef& by, bool divides, int depth) {
    const NodeRef scale = narrow(by);
    const Shape& shape = scale->shape;
    const bool fits = is_number(scale) || shape.ndim() == 0 || is_one(shape.dim(shape.ndim() - 1));
    if (!fits || !try_step(node, depth) || !found_.masks.empty()) return false;
    found_.scales.push_back({scale, divides});
    return true;
  }

  bool added(const NodeRef& node, const NodeRef& mask, bool negated, int depth) {
    const NodeRef narrowed = narrow(mask);
    if (is_number(narrowed) || !is_floating(narrowed->dtype) || !try_step(node, depth))
      return false;
    found_.masks.push_back({AttentionMask::add, narrowed, {}, negated});
    return true;
  }

  bool chosen(const NodeRef& condition, const NodeRef& node, const NodeRef& otherwise, bool negated,
              int depth) {
    const NodeRef number = narrow(otherwise);
    const bool fits = is_number(number) || number->shape.ndim() == 0;
    if (!fits || !try_step(node, depth)) return false;
    const bool hides = is_number(number) && !graph_.is_given(*number) && is_lowest(*number);
    found_.masks.push_back(
        {hides ? AttentionMask::hide : AttentionMask::replace, narrow(condition), number, negated});
    return true;
  }

  static bool is_lowest(const Node& full) {
    const Number& n = std::get<FullParams>(full.params).value;
    return n.expr == 0 && n.kind == Number::Kind::floating &&
           n.real_imag.real() == -std::numeric_limits<double>::infinity();
  }

  // All is computed in one dtype; halves are only rounded on the way.
  bool dtypes_fit() const {
    const Dtype dtypes[] = {found_.product->inputs[0]->dtype, keys_.base->dtype,
                            values_.base->dtype};
    if (!std::ranges::all_of(dtypes, is_floating)) return false;
    const bool is_double = std::ranges::find(dtypes, Dtype::float64) != std::end(dtypes);
    const Dtype wide = is_double ? Dtype::float64 : Dtype::float32;
    const auto fits = [&](Dtype dtype) { return dtype == wide || (!is_double && is_half(dtype)); };
    return std::ranges::all_of(dtypes, fits) && fits(root_->dtype) &&
           std::ranges::all_of(found_.inner,
                               [&](const auto& inner) { return fits(inner.first->dtype); }) &&
           std::ranges::all_of(found_.masks, [&](const Mask& mask) {
             return mask.kind != AttentionMask::add || fits(mask.array->dtype);
           });
  }

  // ---- the row's inputs: [batch, heads, length, features] ----

  // So many leading axes are the batch, the others heads.
  int batch_axes() const {
    const int leading = static_cast<int>(keys_.axes.size()), first = first_repeated(keys_);
    if (first == leading) return leading <= 1 ? leading : leading - 1;
    const bool is_part = std::ranges::any_of(keys_.axes[static_cast<size_t>(first)],
                                             [](const Factor& f) { return f.axis >= 0; });
    return is_part || first < 2 ? first : first - 1;
  }

  array reshaped(const array& a, const Shape& shape) const {
    if (a.shape() == shape) return a;
    const Node& node = *a.node();
    if (node.row == &rows::reshape && graph_.is_open(node) && node.inputs[0]->shape == shape)
      return array(node.inputs[0]);
    return make_node(rows::reshape, pack(a), ShapeParams{shape}, node.stream);
  }

  static Dim product(const Shape& shape, int begin, int end) {
    Dim size = 1;
    for (int axis = begin; axis < end; ++axis)
      size = is_one(size) ? shape.dim(axis) : times(size, shape.dim(axis));
    return size;
  }

  // `like`: the leading axes, and the last two as they are in the array.
  array in_four(const array& a, const Shape& like, int batch, int leading) const {
    const Shape shape = {product(like, 0, batch), product(like, batch, leading),
                         a.shape().dim(a.ndim() - 2), a.shape().dim(a.ndim() - 1)};
    return reshaped(a, shape);
  }

  // Scales that are arrays go to the queries; one number is the row's, and so is that of the queries.
  array scaled_queries(PatternBuilder& to, AttentionParams& p, Arrays& inputs) const {
    NodeRef node = found_.product->inputs[0];
    std::vector<Scale> scales = found_.scales;
    for (const bool divides : {false, true}) {
      if (!is(node, divides ? rows::divide : rows::multiply)) continue;
      const auto number =
          std::ranges::find_if(node->inputs, [&](const NodeRef& n) { return is_number(n); });
      if (number == node->inputs.end() || (divides && number == node->inputs.begin())) continue;
      scales.insert(scales.begin(), {*number, divides});
      node = node->inputs[number == node->inputs.begin() ? 1 : 0];
    }
    array q(node);
    for (const Scale& scale : scales) {
      if (is_number(scale.array) && p.scaled == 0) {
        p.scaled =
            static_cast<int64_t>(scale.divides ? AttentionScale::over : AttentionScale::times);
        inputs.push_back(wide_number(to, scale.array));
      } else {
        q = scaled_by(to, q, scale);
      }
    }
    return q;
  }

  static array wide_number(PatternBuilder& to, const NodeRef& full) {
    return to.number(full, {}, is_half(full->dtype) ? Dtype::float32 : full->dtype);
  }

  array scaled_by(PatternBuilder& to, const array& q, const Scale& scale) const {
    if (!is_number(scale.array))
      return scale.divides ? q / array(scale.array) : q * array(scale.array);
    const Dtype dtype = promote(q.dtype(), scale.array->dtype);
    const array number = to.number(scale.array, q.shape(), dtype);
    return make_node(scale.divides ? rows::divide : rows::multiply, pack(astype(q, dtype), number),
                     NoParams{}, {});
  }

  array shared(const Operand& operand, int batch) const {
    const array base = array(operand.base);
    const array a = operand.swapped ? swapaxes(base, -1, -2) : base;
    Dim sizes[] = {1, 1};
    for (size_t axis = 0; axis < operand.axes.size(); ++axis)
      for (const Factor& f : operand.axes[axis])
        if (Dim& size = sizes[static_cast<int>(axis) >= batch]; f.axis >= 0)
          size = is_one(size) ? f.size : times(size, f.size);
    return reshaped(a,
                    {sizes[0], sizes[1], a.shape().dim(a.ndim() - 2), a.shape().dim(a.ndim() - 1)});
  }

  // [1 or batch, 1 or heads, queries, keys].
  array mask_in_four(array mask) const {
    const Shape& scores = scores_shape();
    const int leading = scores.ndim() - 2;
    Shape shape = mask.shape();
    while (shape.ndim() < scores.ndim()) shape.insert(0, 1);
    mask = reshaped(mask, shape);
    const auto fit_axes = [&](int begin, int end) {
      bool spreads = false;
      for (int axis = begin; axis < end; ++axis) spreads |= !is_one(shape.dim(axis));
      for (int axis = begin; axis < end && spreads; ++axis) shape.dim(axis) = scores.dim(axis);
    };
    const int batch = batch_axes();
    fit_axes(0, batch);
    fit_axes(batch, leading);
    fit_axes(leading, leading + 1);
    fit_axes(leading + 1, leading + 2);
    mask = in_four(broadcast_to(mask, shape), shape, batch, leading);
    Shape whole = mask.shape();
    whole.dim(2) = scores.dim(leading);
    whole.dim(3) = scores.dim(leading + 1);
    return broadcast_to(mask, whole);
  }

  void add_mask(PatternBuilder& to, const Mask& mask, Arrays& inputs, AttentionParams& p) const {
    array given = array(mask.array);
    if (mask.kind != AttentionMask::add) given = astype(given, Dtype::boolean);
    if (mask.negated)
      given = mask.kind == AttentionMask::add ? negative(given) : logical_not(given);
    inputs.push_back(mask_in_four(given));
    p.masks.push_back(static_cast<int64_t>(mask.kind));
    if (mask.kind != AttentionMask::replace) return;
    inputs.push_back(is_number(mask.number) ? wide_number(to, mask.number) : array(mask.number));
  }

  const PatternGraph& graph_;
  NodeRef root_;
  int steps_ = 0;
  Found found_;
  Operand keys_, values_;
};

// A product with weights: a softmax, or a quotient, product or power that may be one, or such a one cast.
// Results that are there have dropped their inputs.
bool may_be_attention(const Node& node) {
  if (node.row != &rows::matmul || node.inputs.empty()) return false;
  const OpRow* left = node.inputs[0]->row;
  return left == &rows::softmax || left == &rows::divide || left == &rows::multiply ||
         left == &rows::exp || left == &rows::cast;
}

std::optional<array> find_attention(const NodeRef& root, const PatternGraph& graph,
                                    PatternBuilder& builder) {
  Matcher matcher(graph);
  return matcher.run(root) ? matcher.build(builder) : std::nullopt;
}

}  // namespace

constinit const Pattern attention_pattern = {may_be_attention, find_attention};

}  // namespace cermet
