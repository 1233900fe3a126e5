// SPDX-License-Identifier: MIT
#include "fused/attention_operand.h"

#include <algorithm>
#include <ranges>

#include "ops/rules.h"

namespace cermet::attention {

namespace {

bool ends_alike(const Shape& a, const Shape& b, int axes) {
  if (a.ndim() < axes || b.ndim() < axes) return false;
  for (int i = 1; i <= axes; ++i)
    if (!same_size(a.dim(a.ndim() - i), b.dim(b.ndim() - i))) return false;
  return true;
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

// The axes of a product's result but the last, and the parts of the product's axes that they are made of.
class MovedAxes {
 public:
  explicit MovedAxes(const Shape& product) {
    for (int axis = 0; axis + 1 < product.ndim(); ++axis) {
      const bool of_rows = axis + 2 == product.ndim();
      axes_.push_back({new_part(product.dim(axis), of_rows)});
      if (!of_rows) shared_.push_back(axis);
    }
  }

  // False: axes of rows and of batches would be mixed.
  bool apply(const Move& move, bool undone) {
    if (move.is_reshape()) return regroup(undone ? move.from : move.to);
    const std::vector<Parts> before = axes_;
    for (size_t axis = 0; axis < before.size(); ++axis) {
      const auto from = static_cast<size_t>(move.order[axis]);
      if (undone) axes_[from] = before[axis];
      else axes_[axis] = before[from];
    }
    return true;
  }

  void reorder(const Axes& order) {
    const std::vector<Parts> before = axes_;
    for (size_t axis = 0; axis < before.size(); ++axis)
      axes_[axis] = before[static_cast<size_t>(order[axis])];
  }

  // Axes that are shared, those that are so in part, those that are repeated: these may stand for other
  // heads or for rows, and the largest are the rows.
  Axes rows_last() const {
    const auto kind = [&](const Parts& parts) {
      const bool none = std::ranges::none_of(parts, [&](int part) { return is_repeated(part); });
      return none                                                                      ? 0
             : std::ranges::all_of(parts, [&](int part) { return is_repeated(part); }) ? 2
                                                                                       : 1;
    };
    Axes order;
    for (int wanted : {0, 1, 2})
      for (size_t axis = 0; axis < axes_.size(); ++axis)
        if (kind(axes_[axis]) == wanted) order.push_back(static_cast<int>(axis));
    const auto size_of = [&](int axis) {
      Dim all = 1;
      for (int part : axes_[static_cast<size_t>(axis)])
        all = is_one(all) ? size(part) : times(all, size(part));
      return all;
    };
    for (size_t i = order.size() - 1; i-- > 0;) {
      if (kind(axes_[static_cast<size_t>(order[i])]) != 2) break;
      if (is_less(size_of(order.back()), size_of(order[i])))
        std::rotate(order.begin() + static_cast<ptrdiff_t>(i),
                    order.begin() + static_cast<ptrdiff_t>(i) + 1, order.end());
    }
    return order;
  }

  std::optional<Operand> operand(const NodeRef& node, bool swapped) const {
    const auto is_repeated = [&](int part) { return this->is_repeated(part); };
    if (!std::ranges::all_of(axes_.back(), is_repeated)) return std::nullopt;
    Operand operand{node, swapped, {}};
    std::vector<int> order;  // of the shared parts, as the axes have them
    for (size_t axis = 0; axis + 1 < axes_.size(); ++axis) {
      Factors& factors = operand.axes.emplace_back();
      for (int part : axes_[axis]) {
        factors.push_back({size(part), is_repeated(part) ? -1 : static_cast<int>(order.size())});
        if (!is_repeated(part)) order.push_back(part);
      }
    }
    operand.base = arranged(array(node), order).node();
    return first_repeated(operand) < 0 ? spread(operand) : operand;
  }

 private:
  using Parts = std::vector<int>;
  struct Part {
    Dim size;
    bool repeated;
  };

  int new_part(const Dim& size, bool repeated) {
    parts_.push_back({size, repeated});
    return static_cast<int>(parts_.size()) - 1;
  }
  bool is_repeated(int part) const { return parts_[static_cast<size_t>(part)].repeated; }
  const Dim& size(int part) const { return parts_[static_cast<size_t>(part)].size; }

  bool regroup(const Shape& to) {
    Parts from;
    for (const Parts& parts : axes_)
      for (int part : parts)
        if (!is_one(size(part))) from.push_back(part);
    std::vector<Parts> axes(static_cast<size_t>(to.ndim()) - 1);
    size_t next = 0;
    for (size_t axis = 0; axis < axes.size();) {
      const size_t first_axis = axis, first = next;
      Dim left = 1, right = to.dim(static_cast<int>(axis++));
      while (!same_size(left, right)) {
        if (is_less(left, right)) {
          if (next == from.size()) return false;
          left = is_one(left) ? size(from[next]) : times(left, size(from[next]));
          ++next;
        } else {
          if (axis == axes.size()) return false;
          right = times(right, to.dim(static_cast<int>(axis++)));
        }
      }
      const std::span<const int> parts(from.data() + first, next - first);
      if (axis - first_axis == 1) axes[first_axis].assign(parts.begin(), parts.end());
      else if (!split(parts, to, first_axis, {axes.data() + first_axis, axis - first_axis}))
        return false;
    }
    axes_ = std::move(axes);
    return next == from.size();
  }

  // One part, or several that are repeated, become an axis each.
  bool split(std::span<const int> parts, const Shape& to, size_t axis, std::span<Parts> axes) {
    const bool repeated = parts_[static_cast<size_t>(parts[0])].repeated;
    if (parts.size() > 1 && !std::ranges::all_of(parts, [&](int part) {
          return parts_[static_cast<size_t>(part)].repeated;
        }))
      return false;
    Parts made;
    for (Parts& of_axis : axes) {
      made.push_back(new_part(to.dim(static_cast<int>(axis++)), repeated));
      of_axis = {made.back()};
    }
    if (!repeated) {
      const auto at = shared_.erase(std::ranges::find(shared_, parts[0]));
      shared_.insert(at, made.begin(), made.end());
    }
    return true;
  }

  // An axis for each shared part, in this order, before the last two.
  array arranged(const array& a, const Parts& order) const {
    Shape split;
    Axes axes;
    for (int part : shared_) split.push_back(size(part));
    const int n = split.ndim();
    for (int axis : {a.ndim() - 2, a.ndim() - 1}) split.push_back(a.shape().dim(axis));
    Parts all = order;  // those of size 1 that no axis has come last
    for (int part : shared_)
      if (std::ranges::find(order, part) == order.end()) all.push_back(part);
    for (int part : all)
      axes.push_back(static_cast<int>(std::ranges::find(shared_, part) - shared_.begin()));
    axes.push_back(n);
    axes.push_back(n + 1);
    const array whole = split == a.shape()
                            ? a
                            : make_node(rows::reshape, {a}, ShapeParams{split}, a.node()->stream);
    return std::ranges::is_sorted(axes)
               ? whole
               : make_node(rows::transpose, {whole}, AxesParams{axes}, a.node()->stream);
  }

  // What is repeated is not last: it is broadcast, and each axis is one of the base.
  static Operand spread(const Operand& operand) {
    const array base(operand.base);
    Shape once, all, joined;
    for (const Factors& factors : operand.axes) {
      Dim size = 1;
      for (const Factor& f : factors) {
        once.push_back(f.axis < 0 ? Dim(1) : f.size);
        all.push_back(f.size);
        size = is_one(size) ? f.size : times(size, f.size);
      }
      joined.push_back(size);
    }
    for (Shape* shape : {&once, &all, &joined})
      for (int axis : {base.ndim() - 2, base.ndim() - 1}) shape->push_back(base.shape().dim(axis));
    const auto reshaped = [](const array& a, const Shape& shape) {
      return make_node(rows::reshape, {a}, ShapeParams{shape}, a.node()->stream);
    };
    const array whole = reshaped(broadcast_to(reshaped(base, once), all), joined);
    return whole_operand(whole.node(), operand.swapped);
  }

  std::vector<Part> parts_;
  std::vector<Parts> axes_;
  Parts shared_;  // in the operand's order
};

}  // namespace

bool is_one(const Dim& dim) { return dim.expr == 0 && dim.value == 1; }

Operand whole_operand(const NodeRef& node, bool swapped) {
  Operand operand{node, swapped, {}};
  for (int axis = 0; axis + 2 < node->shape.ndim(); ++axis)
    operand.axes.push_back({{node->shape.dim(axis), axis}});
  return operand;
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

Shape in_order(Shape shape, int behind) {
  const int axis = shape.ndim() - 1 - behind;
  const Dim size = shape.dim(axis);
  shape.erase(axis);
  shape.push_back(size);
  return shape;
}

array in_order(const array& a, int behind) {
  return behind == 0 ? a : moveaxis(a, -1 - behind, -1);
}

namespace {

// The axes behind that of `from` which the reshape leaves as the one with `behind` others behind it in
// `to`; -1: it leaves none.
int behind_before(const Shape& from, const Shape& to, int behind) {
  const auto count = [](const Shape& shape, int begin) {
    Dim size = 1;
    for (int axis = begin; axis < shape.ndim(); ++axis)
      if (!is_one(shape.dim(axis)))
        size = is_one(size) ? shape.dim(axis) : times(size, shape.dim(axis));
    return size;
  };
  const int axis = to.ndim() - 1 - behind;
  const Dim behind_it = count(to, axis + 1);
  for (int at = from.ndim() - 1; at >= 0; --at) {
    const Dim size = count(from, at + 1);
    if (is_less(behind_it, size)) return -1;
    if (same_size(size, behind_it) && same_size(from.dim(at), to.dim(axis)))
      return from.ndim() - 1 - at;
  }
  return -1;
}

}  // namespace

std::optional<Move> move_of(const Node& node, int& behind) {
  const int rank = node.shape.ndim();
  if (node.inputs.size() != 1 || rank < 2 || node.inputs[0]->shape.ndim() < 2) return std::nullopt;
  const Shape& from = node.inputs[0]->shape;
  int before = 0;
  Axes order;
  if (node.row == &rows::reshape) {
    before = behind_before(from, node.shape, behind);
    if (before < 0) return std::nullopt;
  } else if (node.row == &rows::transpose) {
    const Axes& given = std::get<AxesParams>(node.params).axes;
    const int axis = given[static_cast<size_t>(rank - 1 - behind)];
    before = rank - 1 - axis;
    for (int from_axis : given)
      if (from_axis != axis) order.push_back(from_axis - (from_axis > axis));
    order.push_back(rank - 1);
  } else {
    return std::nullopt;
  }
  Move move{std::move(order), in_order(from, before), in_order(node.shape, behind), node.stream};
  behind = before;
  return move;
}

bool stays(const Move& move) { return !move.is_reshape() && std::ranges::is_sorted(move.order); }

array moved(array a, std::span<const Move> moves, const Dim& last) {
  for (const Move& move : moves) {
    if (!move.is_reshape()) {
      a = make_node(rows::transpose, {a}, AxesParams{move.order}, move.stream);
      continue;
    }
    Shape shape = move.to;
    shape.dim(shape.ndim() - 1) = last;
    a = make_node(rows::reshape, {a}, ShapeParams{std::move(shape)}, move.stream);
  }
  return a;
}

namespace {

std::optional<MovedAxes> moved_axes(const Shape& product, std::span<const Move> moves,
                                    bool undone) {
  MovedAxes axes(product);
  const auto apply = [&](const Move& move) { return axes.apply(move, undone); };
  const bool fits = undone ? std::ranges::all_of(moves | std::views::reverse, apply)
                           : std::ranges::all_of(moves, apply);
  return fits ? std::optional(axes) : std::nullopt;
}

}  // namespace

std::optional<Axes> rows_last(const Shape& product, std::span<const Move> moves) {
  const auto axes = moved_axes(product, moves, false);
  return axes ? std::optional(axes->rows_last()) : std::nullopt;
}

std::optional<Operand> moved_operand(const NodeRef& node, bool swapped, const Shape& product,
                                     std::span<const Move> moves, bool undone, const Axes& order) {
  auto axes = moved_axes(product, moves, undone);
  if (!axes) return std::nullopt;
  axes->reorder(order);
  return axes->operand(node, swapped);
}

}  // namespace cermet::attention
