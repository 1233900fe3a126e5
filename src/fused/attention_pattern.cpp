// SPDX-License-Identifier: MIT
// Attention written with plain ops: softmax(q kᵀ scale, steps) v becomes the row of that name.
//
// Scores lead through element-wise ops, casts, and moves of their rows down to one product; a softmax (the
// row, or spelled out: with or without the largest score taken off, divided by the sum before or behind
// the product with the values) turns them into weights, and these may go through element-wise ops, such
// as dropout, too. Their axes may come in any order: k qᵀ, softmaxes over the first of them, vᵀ with
// weights behind it, groups of heads behind the keys. Scales of queries move to the queries; other ops
// stay what they are and in their order, so that rows that see nothing answer as they did. Moves go to the
// queries and the result. A column that is joined to the scores, and whose weights are left out, is the
// row's sinks.
#include <algorithm>
#include <array>

#include "fused/attention_operand.h"
#include "fused/attention_step.h"
#include "ops/rules.h"

namespace cermet {

namespace {

using namespace rules;
using namespace attention;

// Arrays of the pattern have so many axes behind that of the keys.
int keys_axis(int rank, int behind) { return rank - 1 - behind; }

// One value for each row of `whole`, beside it.
bool spreads_over(const Shape& rows, const Shape& whole) {
  if (rows.ndim() != whole.ndim() || !is_one(rows.dim(rows.ndim() - 1))) return false;
  for (int axis = 0; axis + 1 < rows.ndim(); ++axis)
    if (!same_size(rows.dim(axis), whole.dim(axis))) return false;
  return true;
}

// One value for each row, with or without an axis of size 1 in place of the keys.
bool are_of_rows(Shape shape, const Shape& whole) {
  if (shape.ndim() == whole.ndim() - 1) shape.push_back(1);
  if (shape.ndim() != whole.ndim()) return false;
  for (int behind = 0; behind < shape.ndim(); ++behind)
    if (spreads_over(in_order(shape, behind), whole)) return true;
  return false;
}

// It moves one axis of size 1.
bool moves_one(const Node& node) {
  if (node.row != &rows::transpose) return false;
  const Axes& order = std::get<AxesParams>(node.params).axes;
  const Shape& from = node.inputs[0]->shape;
  for (int axis = 0; axis < from.ndim(); ++axis) {
    Axes others = order;
    std::erase(others, axis);
    if (is_one(from.dim(axis)) && std::ranges::is_sorted(others)) return true;
  }
  return false;
}

// A step on scores or weights.
struct Step {
  AttentionStep step;
  NodeRef array;         // the operand that is no number; the condition
  NodeRef number = {};   // the operand that is one
  bool negated = false;  // the value is taken where the condition is false
  int behind = 0;        // the keys, in the array
};
struct Scale {
  NodeRef array;
  bool divides;
  int behind = 0;  // the keys, in the array
};

// Of one or two values of one dtype, with a derivative.
bool is_elementwise(const Node& node) {
  if (node.inputs.empty() || node.inputs.size() > 2) return false;
  if (!std::holds_alternative<MapLowering>(node.row->lowering.value) ||
      !std::holds_alternative<NoParams>(node.params) || node.row->effect.value != Effect::none)
    return false;
  const Derivative& rule = node.row->derivative.value;
  return (std::holds_alternative<Elementwise>(rule) || std::holds_alternative<Linear>(rule) ||
          std::holds_alternative<Opaque>(rule)) &&
         std::ranges::all_of(node.inputs,
                             [&](const NodeRef& in) { return in->dtype == node.dtype; });
}

// The key that a slice leaves out, first (0) or last (1); -1: it is another slice.
int column_left_out(const Node& slice, int keys) {
  const SliceParams& p = std::get<SliceParams>(slice.params);
  const Shape &from = slice.inputs[0]->shape, &to = slice.shape;
  for (int axis = 0; axis < from.ndim(); ++axis)
    if (p.step[static_cast<size_t>(axis)] != 1 ||
        !same_size(axis == keys ? plus(to.dim(axis), 1) : to.dim(axis), from.dim(axis)))
      return -1;
  return same_size(p.start.dim(keys), 0) ? 1 : 0;
}

// A product of rows with an operand that they share; swapped, it is behind.
struct Product {
  const Node* node = nullptr;
  bool swapped = false;

  const NodeRef& rows() const { return node->inputs[swapped ? 1 : 0]; }
  const NodeRef& operand() const { return node->inputs[swapped ? 0 : 1]; }
  Shape rows_shape() const { return in_order(rows()->shape, swapped); }
  Shape operand_shape() const { return in_order(operand()->shape, swapped); }
};

class Matcher {
 public:
  explicit Matcher(const PatternGraph& graph) : graph_(graph) {}

  bool run(const NodeRef& root) {
    root_ = root;
    const bool fits = root->row == &rows::matmul ? product_of_weights(root) : normalised(root);
    return fits && find_operands() && dtypes_fit() && sinks_fit() &&
           std::ranges::all_of(found_.inner, [&](const auto& inner) {
             return graph_.is_private(*inner.first, inner.second);
           });
  }

  std::optional<array> build(PatternBuilder& to) const {
    const int leading = found_.scores.ndim() - 2;
    const int batch = batch_axes();
    AttentionParams p;
    p.empty_is_nan = true;
    p.is_shifted = found_.is_shifted;
    Arrays numbers;
    array q = scaled_queries(to, p, numbers);
    q = in_four(q, q.shape(), batch, leading);
    if (q.dtype() != root_->dtype && is_half(q.dtype())) q = astype(q, root_->dtype);
    Arrays inputs{q, shared(keys_, batch), shared(values_, batch)};
    inputs.insert(inputs.end(), numbers.begin(), numbers.end());
    for (const Step& step : found_.score_steps) {
      add_step(to, step, inputs);
      p.score_steps.push_back(step.step.code());
    }
    for (const Step& step : found_.weight_steps) {
      add_step(to, step, inputs);
      p.weight_steps.push_back(step.step.code());
    }
    if (found_.sinks) inputs.push_back(sinks_of_heads(to));
    p.has_sinks = bool(found_.sinks);
    const std::optional<array> made = as_kernel(inputs, p, root_->stream);
    if (!made) return std::nullopt;
    made->node()->origin = root_->origin;
    made->node()->meant = root_->meant;
    const array result =
        back_in_order(reshaped(astype(*made, root_->dtype), ordered(result_shape())));
    return in_order(root_->row == &rows::matmul
                        ? moved(result, found_.weight_moves, result_features())
                        : result,
                    found_.sums.swapped);
  }

 private:
  // What was walked through: its nodes, with the edges to them.
  struct Found {
    std::vector<std::pair<const Node*, int>> inner;
    int behind = 0;  // the keys, in what has been come to
    Product product, sums;
    Shape scores;                       // of what the softmax is of, in order
    const Node* exponential = nullptr;  // not divided by its sum yet
    int behind_exponential = 0;
    std::vector<Move> score_moves, weight_moves;  // from the first product to the last
    std::vector<Scale> scales;
    std::vector<Step> score_steps, weight_steps;  // in their order
    bool is_shifted = true;
    int left_out = -1;  // a column of the weights
    NodeRef sinks;      // that column of the scores
  };

  // As the last product gives it, in the axes of the scores. Not by sizes of the root, which cannot be
  // named while it is replaced.
  Shape result_shape() const {
    Shape shape = found_.score_moves.empty() ? found_.product.rows_shape() : found_.scores;
    shape.dim(shape.ndim() - 1) = result_features();
    return shape;
  }
  Dim result_features() const {
    const Shape values = found_.sums.operand_shape();
    return values.dim(values.ndim() - 1);
  }

  Shape scores_shape() const { return ordered(found_.scores); }

  // Of what the softmax is of: as the kernel has its axes, and back.
  Shape ordered(const Shape& shape) const {
    Shape result = shape;
    for (size_t axis = 0; axis < order_.size(); ++axis)
      result.dim(static_cast<int>(axis)) = shape.dim(order_[axis]);
    return result;
  }
  array ordered(const array& a) const {
    if (order_.empty()) return a;
    Axes axes = order_;
    axes.push_back(a.ndim() - 1);
    return make_node(rows::transpose, pack(a), AxesParams{axes}, root_->stream);
  }
  array back_in_order(const array& a) const {
    if (order_.empty()) return a;
    Axes axes(order_.size());
    for (size_t axis = 0; axis < order_.size(); ++axis)
      axes[static_cast<size_t>(order_[axis])] = static_cast<int>(axis);
    axes.push_back(a.ndim() - 1);
    return make_node(rows::transpose, pack(a), AxesParams{axes}, root_->stream);
  }

  bool is(const NodeRef& node, const OpRow& row) const {
    return node->row == &row && graph_.is_open(*node);
  }
  void enter(const Node& node) {
    const auto it = std::ranges::find(found_.inner, &node, &std::pair<const Node*, int>::first);
    if (it == found_.inner.end()) found_.inner.emplace_back(&node, 1);
    else ++it->second;
  }
  // One way to go on; what a wrong one has found is forgotten.
  bool tries(auto&& way) {
    Found before = found_;
    if (way()) return true;
    found_ = std::move(before);
    return false;
  }

  // ---- products ----

  bool product_of_weights(const NodeRef& node) {
    return std::ranges::any_of(std::array{false, true}, [&](bool swapped) {
      return tries([&] {
        int left = 12;  // nodes
        return leads_to_exponential(*node->inputs[swapped ? 1 : 0], left) &&
               weights_of({node.get(), swapped});
      });
    });
  }
  bool weights_of(const Product& sums) {
    found_.sums = sums;
    found_.behind = sums.swapped;
    return weights(sums.rows(), false);
  }

  // exp(x) v divided by the sum of exp(x), or times its reciprocal.
  bool normalised(const NodeRef& root) {
    const auto by = [&](const NodeRef& sums, const NodeRef& total, const OpRow* then) {
      return tries([&] {
        return exponential_sums(sums) &&
               is_fold(total, rows::sum, *found_.exponential, found_.behind_exponential,
                       found_.sums.swapped, then);
      });
    };
    const NodeRef &left = root->inputs[0], &right = root->inputs[1];
    if (root->row == &rows::divide) return by(left, right, nullptr);
    return by(left, right, &rows::reciprocal) || by(right, left, &rows::reciprocal);
  }

  // The product may have been reshaped back into the axes of the scores, but nothing else.
  bool exponential_sums(NodeRef node) {
    while (graph_.is_open(*node) && (node->row == &rows::cast || node->row == &rows::reshape)) {
      enter(*node);
      node = node->inputs[0];
    }
    if (!is(node, rows::matmul)) return false;
    enter(*node);
    is_divided_last_ = true;
    const bool fits = std::ranges::any_of(std::array{false, true}, [&](bool swapped) {
      return tries([&] { return weights_of({node.get(), swapped}); });
    });
    is_divided_last_ = false;
    const auto may_come_before = [](const Step& step) { return is_homogeneous(step.step); };
    return fits && result_shape() == in_order(root_->shape, found_.sums.swapped) &&
           std::ranges::all_of(found_.weight_moves, &Move::is_reshape) &&
           std::ranges::all_of(found_.weight_steps, may_come_before);
  }

  bool find_operands() {
    const Product &first = found_.product, &last = found_.sums;
    const NodeRef &keys = first.operand(), &values = last.operand();
    const bool keys_swapped = !first.swapped, values_swapped = last.swapped;
    if (found_.score_moves.empty() && found_.weight_moves.empty()) {
      keys_ = find_operand(keys, keys_swapped, graph_);
      values_ = find_operand(values, values_swapped, graph_);
      if (first_repeated(keys_) < 0 || !repeat_alike(keys_, values_)) {
        keys_ = whole_operand(keys, keys_swapped);
        values_ = whole_operand(values, values_swapped);
      }
      return true;
    }
    const Shape products = in_order(first.node->shape, first.swapped);
    const auto order = rows_last(products, found_.score_moves);
    if (!order) return false;
    auto k = moved_operand(keys, keys_swapped, products, found_.score_moves, false, *order);
    auto v =
        moved_operand(values, values_swapped, last.rows_shape(), found_.weight_moves, true, *order);
    if (!k || !v || !repeat_alike(*k, *v)) return false;
    keys_ = std::move(*k);
    values_ = std::move(*v);
    if (!std::ranges::is_sorted(*order)) order_ = *order;
    return true;
  }

  // ---- softmax ----

  // Whether there is an exponential at all, to be done soon with what is no attention.
  bool leads_to_exponential(const Node& node, int& left) const {
    if (node.row == &rows::softmax || node.row == &rows::exp) return true;
    if (--left < 0 || node.row == nullptr || !is_floating(node.dtype)) return false;
    const bool goes_on = node.row == &rows::cast || node.row == &rows::slice ||
                         node.row == &rows::select || node.row == &rows::reshape ||
                         node.row == &rows::transpose || is_elementwise(node);
    return goes_on && (node.is_traced_here() || graph_.is_open(node)) &&
           std::ranges::any_of(node.inputs, [&](const NodeRef& input) {
             return leads_to_exponential(*input, left);
           });
  }

  // `stepped`: an op with an array has been met, so that axes must stay.
  bool weights(const NodeRef& node, bool stepped) {
    if (++steps_ > kMostSteps || !graph_.is_open(*node)) return false;
    enter(*node);
    const auto& in = node->inputs;
    if (node->row == &rows::cast) return weights(in[0], stepped);
    if (auto move = move_of(*node, found_.behind)) {
      if (!stays(*move)) {
        if (stepped) return false;
        found_.weight_moves.insert(found_.weight_moves.begin(), std::move(*move));
      }
      return weights(in[0], stepped);
    }
    if (node->row == &rows::slice) {
      if (found_.left_out >= 0 || is_divided_last_) return false;
      found_.left_out = column_left_out(*node, keys_axis(node->shape.ndim(), found_.behind));
      return found_.left_out >= 0 && weights(in[0], true);
    }
    if (tries([&] { return softmax(node); })) return true;
    const auto steps_from = [&](size_t input, std::optional<Step> step) {
      const bool fits = step && (!step->array || found_.left_out < 0);
      if (!fits || !tries([&] {
            enter_test(*node, input, *step);
            return weights(in[input], stepped || step->array);
          }))
        return false;
      found_.weight_steps.push_back(*step);
      return true;
    };
    if (node->row == &rows::select)
      return steps_from(1, choice(*node, 2)) || steps_from(2, choice(*node, 1));
    if (!is_elementwise(*node)) return false;
    return steps_from(0, operation(*node, 0)) ||
           (in.size() == 2 && steps_from(1, operation(*node, 1)));
  }

  // The node has been entered.
  bool softmax(const NodeRef& node) {
    if (is_divided_last_) {
      found_.exponential = node.get();
      found_.behind_exponential = found_.behind;
      return is(node, rows::exp) && exponent(node->inputs[0]);
    }
    if (is(node, rows::softmax))
      return is_over_keys(*node, found_.behind) &&
             (tries([&] { return shifted_by(node->inputs[0], rows::max); }) ||
              scores_of(node->inputs[0]));
    if (is(node, rows::divide)) return quotient_of(node->inputs[0], node->inputs[1], nullptr);
    if (is(node, rows::multiply))
      return std::ranges::any_of(std::array{0, 1}, [&](size_t side) {
        return tries([&] {
          return quotient_of(node->inputs[side], node->inputs[1 - side], &rows::reciprocal);
        });
      });
    return is(node, rows::exp) &&
           (tries([&] { return shifted_by(node->inputs[0], rows::logsumexp); }) ||
            shifted_by_log_of_sum(node->inputs[0]));
  }

  // x - log(sum(exp(x))), where x may be less its largest
  bool shifted_by_log_of_sum(const NodeRef& node) {
    if (!is(node, rows::subtract)) return false;
    const NodeRef &x = node->inputs[0], &shift = node->inputs[1];
    NodeRef e = shift;
    for (int left = 8; left > 0 && !is(e, rows::exp) && !e->inputs.empty(); --left)
      e = e->inputs[0];
    if (!is(e, rows::exp) || e->inputs[0] != x ||
        !is_fold(shift, rows::sum, *e, found_.behind, found_.behind, &rows::log))
      return false;
    enter(*node);
    enter(*x);
    const bool fits = exponent(x);
    found_.is_shifted = true;
    return fits;
  }

  static bool is_over_keys(const Node& reduction, int behind) {
    const Axes& axes = std::get<ReduceParams>(reduction.params).axes;
    return axes.size() == 1 && axes[0] == keys_axis(reduction.inputs[0]->shape.ndim(), behind);
  }

  // exp(x) / sum, or exp(x) * (1 / sum)
  bool quotient_of(const NodeRef& e, const NodeRef& total, const OpRow* then) {
    if (!is(e, rows::exp) || !is_fold(total, rows::sum, *e, found_.behind, found_.behind, then))
      return false;
    enter(*e);
    return exponent(e->inputs[0]);
  }

  // x - max x, or x
  bool exponent(const NodeRef& node) {
    if (tries([&] { return shifted_by(node, rows::max); })) return true;
    found_.is_shifted = false;
    return scores_of(node);
  }

  // x - fold(x)
  bool shifted_by(const NodeRef& node, const OpRow& fold) {
    if (!is(node, rows::subtract) ||
        !is_fold(node->inputs[1], fold, *node->inputs[0], found_.behind, found_.behind))
      return false;
    enter(*node);
    return scores_of(node->inputs[0]);
  }

  // The node is x folded over its keys and spread back over x, or over what has its rows and `behind` axes behind the keys;
  // `then`: an op on each result, once.
  bool is_fold(NodeRef node, const OpRow& fold, const Node& x, int behind_x, int behind,
               const OpRow* then = nullptr) {
    const Shape whole = in_order(x.shape, behind_x);
    for (bool spread = false; !is(node, fold); node = node->inputs[0]) {
      if (is(node, rows::broadcast_to) && !spread) {
        const Shape& rows = node->inputs[0]->shape;
        spread = rows.ndim() == whole.ndim() && spreads_over(in_order(rows, behind), whole);
        if (!spread) return false;
      } else if (is(node, rows::reshape) || (graph_.is_open(*node) && moves_one(*node))) {
        if (!are_of_rows(node->shape, whole) || !are_of_rows(node->inputs[0]->shape, whole))
          return false;
      } else if (then != nullptr && is(node, *then)) {
        then = nullptr;
      } else if (&fold != &rows::max || !is(node, rows::stop_gradient)) {  // any shift is as good
        return false;
      }
      enter(*node);
    }
    enter(*node);
    enter(x);
    return then == nullptr && node->inputs[0].get() == &x && is_over_keys(*node, behind_x);
  }

  // ---- scores ----

  bool scores_of(const NodeRef& node) {
    steps_ = 0;
    if (found_.left_out < 0) {
      found_.scores = in_order(node->shape, found_.behind);
      return scores(node);
    }
    if (!is(node, rows::concatenate) || node->inputs.size() != 2) return false;
    const auto column = static_cast<size_t>(found_.left_out);
    const NodeRef& all = node->inputs[1 - column];
    const int keys = keys_axis(all->shape.ndim(), found_.behind);
    const Shape& shape = node->inputs[column]->shape;
    if (std::get<AxisParams>(node->params).axis != keys || !is_one(shape.dim(keys))) return false;
    enter(*node);
    found_.scores = in_order(all->shape, found_.behind);
    found_.sinks = narrow(node->inputs[column]);
    return scores(all);
  }

  // One score for each head, or for all.
  bool sinks_fit() const {
    if (!found_.sinks || is_number(found_.sinks)) return true;
    Shape shape = found_.sinks->shape;
    while (shape.ndim() < found_.scores.ndim()) shape.insert(0, 1);
    shape = ordered(shape);
    for (int axis = 0; axis < shape.ndim(); ++axis) {
      const bool of_heads = axis >= batch_axes() && axis < shape.ndim() - 2;
      if (!of_heads && !is_one(shape.dim(axis))) return false;
    }
    return true;
  }

  array sinks_of_heads(PatternBuilder& to) const {
    const Shape scores = scores_shape();
    const int leading = scores.ndim() - 2;
    Shape heads = scores;
    for (int axis = 0; axis < scores.ndim(); ++axis)
      if (axis < batch_axes() || axis >= leading) heads.dim(axis) = 1;
    const Shape shape = {product(scores, batch_axes(), leading)};
    if (is_number(found_.sinks)) return to.number(found_.sinks, shape, found_.sinks->dtype);
    Shape given = found_.sinks->shape;
    while (given.ndim() < heads.ndim()) given.insert(0, 1);
    const array sinks = ordered(reshaped(array(found_.sinks), given));
    return reshaped(broadcast_to(sinks, heads), shape);
  }

  bool scores(const NodeRef& node) {
    if (++steps_ > kMostSteps || !graph_.is_open(*node)) return false;
    enter(*node);
    const auto& in = node->inputs;
    if (node->row == &rows::matmul) {
      found_.product = {node.get(), found_.behind == 1};
      return found_.behind <= 1;
    }
    if (node->row == &rows::cast) return scores(in[0]);
    if (auto move = move_of(*node, found_.behind)) {
      if (!stays(*move)) found_.score_moves.insert(found_.score_moves.begin(), std::move(*move));
      return scores(in[0]);
    }
    if (node->row == &rows::select)
      return chosen(*node, 1, choice(*node, 2)) || chosen(*node, 2, choice(*node, 1));
    if (!is_elementwise(*node)) return false;
    return operated(*node, 0) || (in.size() == 2 && operated(*node, 1));
  }

  // Arrays have the axes of what the softmax is of: there are no moves on the way to it.
  bool goes_on(const Node& node, size_t input, const Step& step) {
    return (!step.array || found_.score_moves.empty()) && tries([&] {
             enter_test(node, input, step);
             return scores(node.inputs[input]);
           });
  }

  bool chosen(const Node& select, size_t input, std::optional<Step> step) {
    if (!step || !goes_on(select, input, *step)) return false;
    const NodeRef& number = step->number;
    if (is_number(number) && !graph_.is_given(*number) && is_lowest(*number))
      step->step.kind = AttentionStep::Kind::hide;
    found_.score_steps.push_back(*step);
    return true;
  }

  // A scale of all scores of a query goes to the queries, if no other step comes before it.
  bool operated(const Node& node, size_t side) {
    const Step step = operation(node, side);
    if (!goes_on(node, side, step)) return false;
    const bool divides = node.row == &rows::divide && side == 0;
    const NodeRef& by = step.array ? step.array : step.number;
    const bool scales = (node.row == &rows::multiply || divides) &&
                        (!step.array || is_of_queries(by->shape, step.behind));
    if (scales && found_.score_steps.empty()) found_.scales.push_back({by, divides, step.behind});
    else found_.score_steps.push_back(step);
    return true;
  }

  static bool is_of_queries(const Shape& shape, int behind) {
    const int keys = keys_axis(shape.ndim(), behind);
    return keys < 0 || is_one(shape.dim(keys));
  }

  // ---- steps ----

  // Without what spreads it over the scores.
  NodeRef narrow(NodeRef node) const {
    while (is(node, rows::broadcast_to)) node = node->inputs[0];
    return node;
  }
  // Not of data, which is another in the next call.
  static bool is_number(const NodeRef& node) {
    return node->row == &rows::full && !node->is_ready();
  }
  static bool is_one_number(const NodeRef& node) {
    return is_number(node) || node->shape.ndim() == 0;
  }

  // The op of the value that is this input of the node.
  Step operation(const Node& node, size_t input) const {
    using Kind = AttentionStep::Kind;
    if (node.inputs.size() == 1) return {{Kind::unary, node.row->id}, {}, {}};
    const NodeRef operand = narrow(node.inputs[1 - input]);
    const bool number = is_one_number(operand);
    const AttentionStep step{number ? Kind::by_number : Kind::by_array, node.row->id, input == 1};
    return number ? Step{step, {}, operand}
                  : Step{.step = step, .array = operand, .behind = found_.behind};
  }

  // A select that has a number there, by a condition or by a test of the value (isnan); nullopt: it has
  // none.
  std::optional<Step> choice(const Node& select, size_t otherwise) const {
    const NodeRef number = narrow(select.inputs[otherwise]);
    if (!is_one_number(number)) return std::nullopt;
    using Kind = AttentionStep::Kind;
    const NodeRef condition = narrow(select.inputs[0]);
    if (is_open_test(*condition, *select.inputs[3 - otherwise]))
      return Step{{Kind::fill, condition->row->id, otherwise == 2}, {}, number};
    return Step{{Kind::replace}, condition, number, otherwise == 1, found_.behind};
  }
  bool is_open_test(const Node& node, const Node& value) const {
    return graph_.is_open(node) && node.inputs.size() == 1 && node.inputs[0].get() == &value &&
           std::holds_alternative<MapLowering>(node.row->lowering.value) &&
           std::holds_alternative<NoParams>(node.params);
  }
  void enter_test(const Node& select, size_t input, const Step& step) {
    if (step.step.kind != AttentionStep::Kind::fill) return;
    enter(*select.inputs[0]);
    enter(*select.inputs[input]);
  }

  static bool is_lowest(const Node& full) {
    const Number& n = std::get<FullParams>(full.params).value;
    return n.expr == 0 && n.kind == Number::Kind::floating &&
           n.real_imag.real() == -std::numeric_limits<double>::infinity();
  }

  // All is computed in one dtype; halves are only rounded on the way.
  bool dtypes_fit() const {
    const Dtype dtypes[] = {found_.product.rows()->dtype, keys_.base->dtype, values_.base->dtype};
    if (!std::ranges::all_of(dtypes, is_floating)) return false;
    const bool is_double = std::ranges::find(dtypes, Dtype::float64) != std::end(dtypes);
    const Dtype wide = is_double ? Dtype::float64 : Dtype::float32;
    const auto fits = [&](Dtype dtype) { return dtype == wide || (!is_double && is_half(dtype)); };
    return std::ranges::all_of(dtypes, fits) && fits(root_->dtype) &&
           std::ranges::all_of(found_.inner, [&](const auto& inner) {
             return fits(inner.first->dtype) || inner.first->dtype == Dtype::boolean;
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
    const NodeRef& given = found_.product.rows();
    std::vector<Move> moves;
    NodeRef node = given;
    int behind = found_.product.swapped;  // the features
    for (; graph_.is_open(*node); node = node->inputs[0]) {
      auto move = move_of(*node, behind);
      if (!move) break;
      if (!stays(*move)) moves.insert(moves.begin(), std::move(*move));
    }
    std::vector<Scale> scales = found_.scales;
    const size_t others = scales.size();
    for (const bool divides : {false, true}) {
      if (!is(node, divides ? rows::divide : rows::multiply)) continue;
      const auto number =
          std::ranges::find_if(node->inputs, [&](const NodeRef& n) { return is_number(n); });
      if (number == node->inputs.end() || (divides && number == node->inputs.begin())) continue;
      scales.insert(scales.begin(), {*number, divides});
      node = node->inputs[number == node->inputs.begin() ? 1 : 0];
    }
    const Shape shape = found_.product.rows_shape();
    const Dim& features = shape.dim(shape.ndim() - 1);
    array q = scales.size() == others && !found_.product.swapped
                  ? array(given)
                  : moved(in_order(array(node), behind), moves, features);
    q = ordered(moved(q, found_.score_moves, features));
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

  // One that is spread over scores.
  static array array_in_order(const NodeRef& given, int behind) {
    const array a(given);
    return a.ndim() <= behind ? expand_dims(a, {-1}) : in_order(a, behind);
  }

  array scaled_by(PatternBuilder& to, const array& q, const Scale& scale) const {
    if (!is_number(scale.array)) {
      const array by = array_in_order(scale.array, scale.behind);
      return scale.divides ? q / by : q * by;
    }
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

  // [1 or batch, 1 or heads, 1 or queries, 1 or keys].
  array spread_in_four(array mask) const {
    const Shape scores = scores_shape();
    const int leading = scores.ndim() - 2;
    Shape shape = mask.shape();
    while (shape.ndim() < scores.ndim()) shape.insert(0, 1);
    mask = ordered(reshaped(mask, shape));
    shape = ordered(shape);
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
    return in_four(broadcast_to(mask, shape), shape, batch, leading);
  }

  void add_step(PatternBuilder& to, const Step& step, Arrays& inputs) const {
    if (step.array) {
      array given = array_in_order(step.array, step.behind);
      if (step.step.kind != AttentionStep::Kind::by_array) given = astype(given, Dtype::boolean);
      inputs.push_back(spread_in_four(step.negated ? logical_not(given) : given));
    }
    if (!step.number || step.step.kind == AttentionStep::Kind::hide) return;
    inputs.push_back(is_number(step.number) ? wide_number(to, step.number) : array(step.number));
  }

  static constexpr int kMostSteps = 48;

  const PatternGraph& graph_;
  NodeRef root_;
  int steps_ = 0;
  bool is_divided_last_ = false;
  Found found_;
  Operand keys_, values_;
  Axes order_;  // of the scores but the last, as the kernel has them; empty: their own
};

bool is_any_of(const NodeRef& node, std::initializer_list<const OpRow*> rows) {
  return std::ranges::find(rows, node->row) != rows.end();
}

// A product with weights: a softmax, or what may be one, or a step on it or a move of it. Or a product
// divided by sums of its rows. Results that are there have dropped their inputs.
bool may_be_attention(const Node& node) {
  if (node.inputs.empty()) return false;
  const auto may_be_weights = [](const NodeRef& operand) {
    return operand->row != nullptr &&
           (std::holds_alternative<MapLowering>(operand->row->lowering.value) ||
            is_any_of(operand, {&rows::softmax, &rows::slice, &rows::reshape, &rows::transpose}));
  };
  if (node.row == &rows::matmul) return std::ranges::any_of(node.inputs, may_be_weights);
  const NodeRef& left = node.inputs[0];
  if (node.row != &rows::divide && node.row != &rows::multiply) return false;
  const auto may_be_pair = [](const NodeRef& sums, const NodeRef& total) {
    return is_any_of(sums, {&rows::matmul, &rows::reshape, &rows::cast}) &&
           is_any_of(total, {&rows::broadcast_to, &rows::reciprocal});
  };
  return may_be_pair(left, node.inputs[1]) ||
         (node.row == &rows::multiply && may_be_pair(node.inputs[1], left));
}

std::optional<array> find_attention(const NodeRef& root, const PatternGraph& graph,
                                    PatternBuilder& builder) {
  Matcher matcher(graph);
  return matcher.run(root) ? matcher.build(builder) : std::nullopt;
}

}  // namespace

constinit const Pattern attention_pattern = {
    .is_for_transforms = false, .may_be_root = may_be_attention, .find = find_attention};

}  // namespace cermet
