// SPDX-License-Identifier: MIT
// The cotangent of what was broadcast: a sum. A factor that is the same along the summed axes is taken out of it:
// the norm of a row, say, which a kernel knows only when it has been through the row, and would then go through it
// once more for the sum.
#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "ops/rules.h"

namespace cermet::rules {

namespace {

constexpr int kDeep = 8;  // products and quotients within each other

class SumTo {
 public:
  SumTo(const array& g, const Shape& shape)
      : shape_(shape), dtype_(g.dtype()), added_(g.ndim() - shape.ndim()) {
    for (int axis = 0; axis < g.ndim(); ++axis)
      if (is_new(axis) ||
          (same_size(shape.dim(axis - added_), 1) && !same_size(g.shape().dim(axis), 1)))
        axes_.push_back(axis);
  }

  array run(const array& g) const {
    if (axes_.empty()) return g;
    const auto is_empty = [&](int64_t axis) {
      return is_zero(g.shape().dim(static_cast<int>(axis)));
    };
    // A sum of nothing is 0, whatever the factor.
    const bool may = may_factor() && std::ranges::none_of(axes_, is_empty);
    const std::optional<array> result = may ? factored(g, kDeep) : std::nullopt;
    return result ? *result : plain(g);
  }

 private:
  // A product: what differs along the axes, if anything, and what does not, some of which divides.
  struct Factors {
    std::optional<array> inside = {};
    Arrays times = {}, over = {};
    bool is_negative = false;
    bool is_known = true;  // what is outside: numbers alone
  };

  bool is_new(int axis) const { return axis < added_; }
  // Halves would overflow without their factor.
  bool may_factor() const { return is_floating(dtype_) && !is_half(dtype_); }

  array plain(const array& g) const {
    const array reduced = sum(g, axes_, true);
    AxisList leading(static_cast<size_t>(added_));
    std::iota(leading.begin(), leading.end(), 0);
    return added_ == 0 ? reduced : squeeze(reduced, leading);
  }

  // Term by term, if each has a factor; nullopt: it is not worth it.
  std::optional<array> factored(const array& g, int deep) const {
    const Node& node = *g.node();
    const bool adds = node.row == &rows::add, subtracts = node.row == &rows::subtract;
    if (deep > 0 && (adds || subtracts) && node.inputs.size() == 2) {
      const auto a = factored(array(node.inputs[0]), deep - 1);
      const auto b = a ? factored(array(node.inputs[1]), deep - 1) : std::nullopt;
      if (!b) return std::nullopt;
      return adds ? *a + *b : *a - *b;
    }
    if (deep > 0 && node.row == &rows::negative && node.inputs.size() == 1) {
      const auto a = factored(array(node.inputs[0]), deep - 1);
      return a ? std::optional(-*a) : std::nullopt;
    }
    const Factors found = factors_of(g, deep);
    if (!found.inside || found.is_known) return std::nullopt;
    array result = plain(*found.inside);
    for (const array& factor : found.times) result = result * factor;
    for (const array& factor : found.over) result = result / factor;
    return found.is_negative ? -result : result;
  }

  Factors factors_of(const array& a, int deep) const {
    const Node& node = *a.node();
    if (const std::optional<array> same = without_axes(node))
      return {.times = {*same}, .is_known = is_number(*same)};
    const auto is = [&](const OpRow& row, size_t inputs) {
      return deep > 0 && node.row == &row && node.inputs.size() == inputs;
    };
    if (is(rows::negative, 1)) {
      Factors found = factors_of(array(node.inputs[0]), deep - 1);
      if (found.is_known) return {.inside = a};
      found.is_negative = !found.is_negative;
      return found;
    }
    if (is(rows::multiply, 2)) {
      return product(a, factors_of(array(node.inputs[0]), deep - 1),
                     factors_of(array(node.inputs[1]), deep - 1));
    }
    if (is(rows::divide, 2)) {
      Factors by = factors_of(array(node.inputs[1]), deep - 1);
      if (!by.inside) {
        std::swap(by.times, by.over);
        return product(a, factors_of(array(node.inputs[0]), deep - 1), std::move(by));
      }
    }
    return {.inside = a};
  }

  // `whole`: the product itself, which stays as it is if nothing comes out of it.
  static Factors product(const array& whole, Factors a, Factors b) {
    if (a.is_known && b.is_known && a.inside && b.inside) return {.inside = whole};
    if (b.inside) a.inside = a.inside ? *a.inside * *b.inside : *b.inside;
    a.times.insert(a.times.end(), b.times.begin(), b.times.end());
    a.over.insert(a.over.end(), b.over.begin(), b.over.end());
    a.is_negative = a.is_negative != b.is_negative;
    a.is_known = a.is_known && b.is_known;
    return a;
  }

  static bool is_number(const array& a) { return a.node()->row == &rows::full; }

  // What was broadcast along all of the axes, as the sum's result lies; a number of any shape.
  std::optional<array> without_axes(const Node& node) const {
    if (node.row == &rows::full) {
      const FullParams& p = std::get<FullParams>(node.params);
      return full({}, p.value, p.dtype);
    }
    if (node.row != &rows::broadcast_to || node.inputs.size() != 1) return std::nullopt;
    const array from(node.inputs[0]);
    const int lacks = node.shape.ndim() - from.ndim();
    for (const int64_t axis : axes_)
      if (axis >= lacks && !same_size(from.shape().dim(static_cast<int>(axis) - lacks), 1))
        return std::nullopt;
    const int surplus = from.ndim() - shape_.ndim();
    AxisList leading(static_cast<size_t>(std::max(surplus, 0)));
    std::iota(leading.begin(), leading.end(), 0);
    return leading.empty() ? from : squeeze(from, leading);
  }

  const Shape& shape_;
  const Dtype dtype_;
  const int added_;  // leading axes
  AxisList axes_;
};

}  // namespace

array sum_to(const array& g, const Shape& shape) { return SumTo(g, shape).run(g); }

}  // namespace cermet::rules
