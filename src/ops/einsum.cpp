// SPDX-License-Identifier: MIT
// Einstein summation: subscripts are resolved to labels of axes, operands contracted two at a time in an
// order of few operations, each pair by one product. An ellipsis stands for labels of its own, counted
// from its last axis, so that it broadcasts.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

using Labels = std::vector<int>;
using LabelSet = std::set<int>;
constexpr int kEllipsis = 256;  // the label of its last axis; those before it follow

struct Equation {
  std::vector<Labels> operands;
  Labels output;
  std::map<int, Dim> sizes;
};

// Factor by factor: what a plan of contractions costs.
struct Plan {
  std::vector<std::vector<int>> steps;
  double cost = 0;
  size_t largest = 0;  // labels of the largest step
};

std::string without_spaces(const std::string& text) {
  std::string result;
  std::ranges::copy_if(text, std::back_inserter(result), [](char c) { return c != ' '; });
  return result;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

// `ndim`: axes that the subscripts must cover, -1 for the output, whose ellipsis has `ellipsis` axes.
Labels labels_of(const std::string& text, int ndim, int ellipsis) {
  Labels labels;
  int letters = 0;
  bool seen = false;
  for (const char c : text) letters += std::isalpha(static_cast<unsigned char>(c)) != 0;
  if (ndim >= 0) ellipsis = ndim - letters;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      labels.push_back(static_cast<unsigned char>(text[i]));
      continue;
    }
    CERMET_CHECK(text.compare(i, 3, "...") == 0 && !seen, value, "einsum",
                 "subscripts '{}'; they may hold letters and one ellipsis", text);
    seen = true;
    i += 2;
    for (int axis = ellipsis; axis-- > 0;) labels.push_back(kEllipsis + axis);
  }
  CERMET_CHECK(
      ndim < 0 || static_cast<int>(labels.size()) == ndim, value, "einsum",
      "subscripts '{}' name {} axes of an operand that has {}; name each, or use an ellipsis", text,
      labels.size(), ndim);
  return labels;
}

void learn_sizes(Equation& e, const Labels& labels, const Shape& shape) {
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    Dim& known = e.sizes.try_emplace(labels[axis], 1).first->second;
    const Dim& size = shape.dim(axis);
    const auto is_one = [](const Dim& dim) { return dim.expr == 0 && dim.value == 1; };
    const bool fits = is_one(known) || is_one(size) || same_size(known, size);
    CERMET_CHECK(fits, value, "einsum",
                 "axis {} of shape {} has size {}, another axis of the same label {}; they must be "
                 "equal or 1",
                 axis, shape, size.value, known.value);
    if (is_one(known)) known = size;
  }
}

// Without "->": the ellipsis, then the letters that stand once, in alphabetical order.
Labels implied_output(const Equation& e) {
  std::map<int, int> count;
  int ellipsis = 0;
  for (const Labels& labels : e.operands)
    for (const int label : labels) {
      ++count[label];
      ellipsis = std::max(ellipsis, label - kEllipsis + 1);
    }
  Labels output;
  for (int axis = ellipsis; axis-- > 0;) output.push_back(kEllipsis + axis);
  for (const auto& [label, times] : count)
    if (times == 1 && label < kEllipsis) output.push_back(label);
  return output;
}

Equation parse(const std::string& subscripts, const Arrays& operands) {
  const std::string text = without_spaces(subscripts);
  const size_t arrow = text.find("->");
  const std::vector<std::string> parts = split_at_commas(text.substr(0, arrow));
  CERMET_CHECK(!operands.empty() && parts.size() == operands.size(), value, "einsum",
               "'{}' has subscripts for {} operands, {} are given; there must be as many",
               subscripts, parts.size(), operands.size());
  Equation e;
  int ellipsis = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    e.operands.push_back(labels_of(parts[i], operands[i].ndim(), 0));
    learn_sizes(e, e.operands.back(), operands[i].shape());
    for (const int label : e.operands.back()) ellipsis = std::max(ellipsis, label - kEllipsis + 1);
  }
  e.output = arrow == std::string::npos ? implied_output(e)
                                        : labels_of(text.substr(arrow + 2), -1, ellipsis);
  for (const int label : e.output) {
    CERMET_CHECK(std::ranges::count(e.output, label) == 1, value, "einsum",
                 "the output of '{}' names an axis twice; each may stand once", subscripts);
    CERMET_CHECK(
        e.sizes.contains(label), value, "einsum",
        "the output of '{}' names an axis that no operand has; use letters of the operands",
        subscripts);
  }
  return e;
}

// --- The order of contractions ---

LabelSet set_of(const Labels& labels) { return {labels.begin(), labels.end()}; }

LabelSet union_of(const LabelSet& a, const LabelSet& b) {
  LabelSet all = a;
  all.insert(b.begin(), b.end());
  return all;
}

// Those that some other operand or the output needs.
LabelSet kept(const LabelSet& all, const std::vector<LabelSet>& others, const LabelSet& output) {
  LabelSet result;
  for (const int label : all)
    if (output.contains(label) ||
        std::ranges::any_of(others, [&](const LabelSet& set) { return set.contains(label); }))
      result.insert(label);
  return result;
}

// Of the sizes at hand: a trace takes the same order for others.
double operations(const Equation& e, const LabelSet& all, size_t terms, bool sums) {
  double size = 1;
  for (const int label : all) size *= static_cast<double>(e.sizes.at(label).value);
  return size * (std::max<double>(1, static_cast<double>(terms) - 1) + (sums ? 1 : 0));
}

struct Search {
  const Equation& e;
  LabelSet output;
  size_t width;  // pairs that are tried at each step, cheapest first
  Plan best;
  bool found = false;

  struct Pair {
    double cost;
    int i, j;
    LabelSet all, rest;
  };

  std::vector<Pair> pairs_of(const std::vector<LabelSet>& sets) const {
    std::vector<Pair> pairs;
    for (int i = 0; i < static_cast<int>(sets.size()); ++i)
      for (int j = i + 1; j < static_cast<int>(sets.size()); ++j) {
        std::vector<LabelSet> others = sets;
        others.erase(others.begin() + j);
        others.erase(others.begin() + i);
        LabelSet all = union_of(sets[i], sets[j]);
        LabelSet rest = kept(all, others, output);
        const double cost = operations(e, all, 2, rest.size() < all.size());
        pairs.push_back({cost, i, j, std::move(all), std::move(rest)});
      }
    std::ranges::stable_sort(pairs, {}, &Pair::cost);
    if (pairs.size() > width)
      pairs.erase(pairs.begin() + static_cast<ptrdiff_t>(width), pairs.end());
    return pairs;
  }

  void run(const std::vector<LabelSet>& sets, const Plan& so_far) {
    if (found && so_far.cost >= best.cost) return;
    if (sets.size() == 1) {
      best = so_far;
      found = true;
      return;
    }
    for (const Pair& pair : pairs_of(sets)) {
      std::vector<LabelSet> next = sets;
      next.erase(next.begin() + pair.j);
      next.erase(next.begin() + pair.i);
      next.push_back(pair.rest);
      Plan plan = so_far;
      plan.steps.push_back({pair.i, pair.j});
      plan.cost += pair.cost;
      plan.largest = std::max(plan.largest, pair.all.size());
      run(next, plan);
    }
  }
};

Plan plan_of(const Equation& e) {
  constexpr size_t kExhaustive = 5;  // operands: 180 orders
  std::vector<LabelSet> sets;
  for (const Labels& labels : e.operands) sets.push_back(set_of(labels));
  const LabelSet output = set_of(e.output);
  if (sets.size() == 1)
    return {{{0}}, operations(e, sets[0], 1, sets[0] != output), sets[0].size()};
  Search search{e, output, sets.size() <= kExhaustive ? size_t{100} : size_t{1}, {}};
  search.run(sets, {});
  return search.best;
}

// --- Contraction ---

struct Operand {
  array value;
  Labels labels;

  int axis_of(int label) const {
    return static_cast<int>(std::ranges::find(labels, label) - labels.begin());
  }
};

// A label that stands twice: its diagonal.
Operand without_repeats(Operand x, const S& s) {
  for (size_t i = 0; i < x.labels.size(); ++i)
    for (size_t j = i + 1; j < x.labels.size(); ++j) {
      if (x.labels[i] != x.labels[j]) continue;
      const int label = x.labels[i];
      CERMET_CHECK(same_size(x.value.shape().dim(static_cast<int>(i)),
                             x.value.shape().dim(static_cast<int>(j))),
                   value, "einsum",
                   "axes {} and {} of shape {} have one label; their sizes must be equal", i, j,
                   x.value.shape());
      x.value = diagonal(x.value, 0, static_cast<int64_t>(i), static_cast<int64_t>(j), s);
      x.labels.erase(x.labels.begin() + static_cast<ptrdiff_t>(j));
      x.labels.erase(x.labels.begin() + static_cast<ptrdiff_t>(i));
      x.labels.push_back(label);
      return without_repeats(std::move(x), s);
    }
  return x;
}

Operand summed(Operand x, const LabelSet& keep, const S& s) {
  AxisList axes;
  Labels rest;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    if (keep.contains(x.labels[i])) rest.push_back(x.labels[i]);
    else axes.push_back(static_cast<int64_t>(i));
  }
  if (axes.empty()) return x;
  return {sum(x.value, axes, false, s), rest};
}

// Axes in the order of `labels`; those that it has not get size 1.
array arranged(const Operand& x, const Labels& labels, const S& s) {
  AxisList order;
  ShapeList shape;
  for (const int label : labels) {
    const int axis = x.axis_of(label);
    const bool has = axis < static_cast<int>(x.labels.size());
    if (has) order.push_back(axis);
    shape.push_back(has ? x.value.shape().dim(axis) : Dim(1));
  }
  return reshape(transpose(x.value, order, s), shape, s);
}

Dim product_of(const Equation& e, const Labels& labels) {
  Dim size = 1;
  for (const int label : labels) size = times(size, e.sizes.at(label));
  return size;
}

// [batch, rows, columns], each label at its full size.
array as_matrices(const Equation& e, const Operand& x, const Labels& batch, const Labels& rows,
                  const Labels& columns, const S& s) {
  Labels order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), columns.begin(), columns.end());
  Shape whole;
  for (const int label : order) whole.push_back(e.sizes.at(label));
  ShapeList shape;
  for (const int label : batch) shape.push_back(e.sizes.at(label));
  shape.insert(shape.end(), {product_of(e, rows), product_of(e, columns)});
  return reshape(broadcast_to(arranged(x, order, s), whole, s), shape, s);
}

Operand contract(const Equation& e, Operand a, Operand b, const LabelSet& keep, const S& s) {
  const LabelSet of_a = set_of(a.labels), of_b = set_of(b.labels);
  a = summed(std::move(a), union_of(keep, of_b), s);
  b = summed(std::move(b), union_of(keep, of_a), s);
  // The last axis of the output comes from the second: the first would leave the product transposed.
  const int last = e.output.empty() ? -1 : e.output.back();
  if (of_a.contains(last) && !of_b.contains(last))
    return contract(e, std::move(b), std::move(a), keep, s);
  Labels batch, inner, left, right;
  for (const int label : a.labels) {
    if (!of_b.contains(label)) left.push_back(label);
    else (keep.contains(label) ? batch : inner).push_back(label);
  }
  for (const int label : b.labels)
    if (!of_a.contains(label)) right.push_back(label);
  Labels result = batch;
  result.insert(result.end(), left.begin(), left.end());
  result.insert(result.end(), right.begin(), right.end());
  if (left.empty() && right.empty()) {
    // Element by element, as the first lies in memory: sums of products need no transpose.
    const Operand product{multiply(a.value, arranged(b, a.labels, s), s), a.labels};
    return summed(product, keep, s);
  }
  if (inner.empty()) return {multiply(arranged(a, result, s), arranged(b, result, s), s), result};
  const array x = as_matrices(e, a, batch, left, inner, s);
  const array y = as_matrices(e, b, batch, inner, right, s);
  ShapeList shape;
  for (const int label : result) shape.push_back(e.sizes.at(label));
  return {reshape(matmul(x, y, s), shape, s), result};
}

std::string text_of(const std::string& subscripts, const Equation& e, const Plan& plan) {
  LabelSet all;
  for (const Labels& labels : e.operands) all.insert(labels.begin(), labels.end());
  const double naive = operations(e, all, e.operands.size(), all != set_of(e.output));
  return fmt::format(
      "  Complete contraction:  {}\n         Naive scaling:  {}\n     Optimized scaling:  {}\n"
      "      Naive FLOP count:  {:.0f}\n  Optimized FLOP count:  {:.0f}\n",
      subscripts, all.size(), plan.largest, naive, plan.cost);
}

}  // namespace

array einsum(const std::string& subscripts, const Arrays& operands, const S& s) {
  const Equation e = parse(subscripts, operands);
  std::vector<Operand> list;
  for (size_t i = 0; i < operands.size(); ++i)
    list.push_back(without_repeats({operands[i], e.operands[i]}, s));
  const LabelSet output = set_of(e.output);
  for (const std::vector<int>& step : plan_of(e).steps) {
    if (step.size() == 1) continue;
    Operand a = std::move(list[step[0]]), b = std::move(list[step[1]]);
    list.erase(list.begin() + step[1]);
    list.erase(list.begin() + step[0]);
    LabelSet keep = output;
    for (const Operand& other : list) keep.insert(other.labels.begin(), other.labels.end());
    list.push_back(contract(e, std::move(a), std::move(b), keep, s));
  }
  const Operand last = summed(std::move(list[0]), output, s);
  Shape shape;
  for (const int label : e.output) shape.push_back(e.sizes.at(label));
  return broadcast_to(arranged(last, e.output, s), shape, s);
}

std::pair<std::vector<std::vector<int>>, std::string> einsum_path(const std::string& subscripts,
                                                                  const Arrays& operands) {
  const Equation e = parse(subscripts, operands);
  const Plan plan = plan_of(e);
  return {plan.steps, text_of(subscripts, e, plan)};
}

}  // namespace cermet
