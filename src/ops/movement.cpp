// SPDX-License-Identifier: MIT
// Ops that only move elements along axes: reshape, transpose, broadcast_to, slice, flip,
// contiguous. Each is a view of any buffer where strides allow it, and a map of coordinates where
// they do not.
#include <algorithm>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

// --- reshape ---

// The axes [first, last) of each side that hold the same elements; as small as possible.
struct Group {
  int in_first, in_last, out_first, out_last;
};

std::vector<Group> reshape_groups(const Shape& in, const Shape& out) {
  std::vector<Group> groups;
  int i = 0, o = 0;
  while (i < in.ndim() || o < out.ndim()) {
    Group group{i, i, o, o};
    Dim in_size = 1, out_size = 1;
    if (i < in.ndim()) in_size = in[i++];
    if (o < out.ndim()) out_size = out[o++];
    while (in_size != out_size) {
      if (o == out.ndim() || (in_size < out_size && i < in.ndim())) in_size *= in[i++];
      else out_size *= out[o++];
    }
    group.in_last = i;
    group.out_last = o;
    groups.push_back(group);
  }
  return groups;
}

// Row-major strides over axes [first, last).
std::vector<Dim> strides_of(const Shape& shape, int first, int last) {
  std::vector<Dim> strides(last - first, 1);
  for (int axis = last - 2; axis >= first; --axis)
    strides[axis - first] = strides[axis - first + 1] * shape[axis + 1];
  return strides;
}

// Coordinates of axes [first, last) of `shape` from the position among their elements.
void split_position(LowerContext& cx, const Coord& position, const Shape& shape, int first,
                    int last, Coords& to) {
  int inner = last;  // axes of size 1 need no arithmetic
  while (inner > first && shape[inner - 1] == 1) --inner;
  int outer = first;
  while (outer < inner && shape[outer] == 1) ++outer;
  ir::Builder& b = cx.builder();
  ir::ExprId rest = inner - outer > 1 ? cx.expr(position) : ir::kNone;
  for (int axis = last - 1; axis >= first; --axis) {
    if (axis < outer || axis >= inner || shape[axis] == 1) continue;
    if (axis == outer) {
      to[axis] = rest == ir::kNone ? position : Coord{.terms = {}, .offset = 0, .expr = rest};
      continue;
    }
    const ir::ExprId size = size_expr(cx, shape[axis]);
    to[axis] = {.terms = {}, .offset = 0, .expr = b.rem(rest, size)};
    rest = b.div(rest, size);
  }
}

Lane pull_reshape(LowerContext& cx, const NodeView& n, const Coords& at) {
  const Shape& in = *n.input_shapes[0];
  Coords from(in.ndim());
  if (in.is_empty()) return cx.input(0, from);
  for (const Group& g : reshape_groups(in, n.shape)) {
    const std::vector<Dim> strides = strides_of(n.shape, g.out_first, g.out_last);
    const std::span<const Coord> coords(at.data() + g.out_first, g.out_last - g.out_first);
    split_position(cx, combine(cx, coords, strides), in, g.in_first, g.in_last, from);
  }
  return cx.input(0, from);
}

// --- broadcast_to ---

Lane pull_broadcast(LowerContext& cx, const NodeView& n, const Coords& at) {
  const Shape& in = *n.input_shapes[0];
  const int added = n.shape.ndim() - in.ndim();
  Coords from(in.ndim());
  for (int axis = 0; axis < in.ndim(); ++axis)
    if (in[axis] != 1) from[axis] = at[axis + added];
  return cx.input(0, from);
}

array vmap_broadcast(const OpCall& c, std::span<const bool>, const Dim& size) {
  const Shape& to = c.get<ShapeParams>().shape;
  const array& x = c.inputs[0];  // [size, axes...]: new axes come between
  Shape from = x.shape(), shape = to;
  while (from.ndim() - 1 < to.ndim()) from.insert(1, 1);
  shape.insert(0, size);
  return broadcast_to(make_node(rows::reshape, {x}, ShapeParams{from}, {}), shape);
}

// --- slice ---

Shape slice_shape(const OpCall& call) { return call.get<SliceParams>().size; }

Lane pull_slice(LowerContext& cx, const NodeView& n, const Coords& at) {
  const SliceParams& p = n.get<SliceParams>();
  Coords from;
  for (int i = 0; i < n.shape.ndim(); ++i) {
    const Dim step = p.step[i];
    from.push_back(combine(cx, {&at[i], 1}, {&step, 1}, p.start[i]));
  }
  return cx.input(0, from);
}

std::optional<Layout> view_slice(const NodeView& n, const Shape&, const Layout& layout) {
  const SliceParams& p = n.get<SliceParams>();
  Layout view = layout;
  for (int axis = 0; axis < n.shape.ndim(); ++axis) {
    view.offset += p.start[axis] * layout.strides[axis];
    view.strides[axis] *= p.step[axis];
  }
  if (n.shape.is_empty()) view.offset = layout.offset;
  return view;
}

array transpose_slice(const OpCall& c, int, const array& g) {
  const SliceParams& p = c.get<SliceParams>();
  const array& x = c.inputs[0];
  if (std::ranges::any_of(p.step, [](int64_t step) { return step != 1; }))
    return sized_slice_update(zeros(x.shape(), g.dtype()), g, p.start, p.step);
  PadWidths width;
  for (int axis = 0; axis < x.ndim(); ++axis)
    width.emplace_back(p.start.dim(axis),
                       minus(minus(x.shape().dim(axis), p.start.dim(axis)), p.size.dim(axis)));
  return pad(g, width, full({}, number(0.0), g.dtype()));
}

array vmap_slice(const OpCall& c, std::span<const bool>, const Dim& size) {
  SliceParams p = c.get<SliceParams>();
  p.start.insert(0, 0);
  p.step.insert(p.step.begin(), 1);
  p.size.insert(0, size);
  return sized_slice(c.inputs[0], std::move(p.start), std::move(p.step), std::move(p.size));
}

// --- transpose and flip ---

Shape transpose_shape(const OpCall& call) {
  Shape shape;
  for (int axis : call.get<AxesParams>().axes) shape.push_back(call.inputs[0].shape().dim(axis));
  return shape;
}

Lane pull_transpose(LowerContext& cx, const NodeView& n, const Coords& at) {
  const Axes& axes = n.get<AxesParams>().axes;
  Coords from(at.size());
  for (size_t i = 0; i < axes.size(); ++i) from[axes[i]] = at[i];
  return cx.input(0, from);
}

array transpose_by(const array& a, Axes axes, const S& s) {
  bool is_same = true;
  for (size_t i = 0; i < axes.size(); ++i) is_same &= axes[i] == static_cast<int>(i);
  return is_same ? a : make_node(rows::transpose, pack(a), AxesParams{std::move(axes)}, s);
}

Lane pull_flip(LowerContext& cx, const NodeView& n, const Coords& at) {
  const Dim kBack = -1;
  Coords from = at;
  for (int axis : n.get<AxesParams>().axes)
    from[axis] = combine(cx, {&at[axis], 1}, {&kBack, 1}, n.shape[axis] - 1);
  return cx.input(0, from);
}

std::optional<Layout> view_flip(const NodeView& n, const Shape& in, const Layout& layout) {
  Layout view = layout;
  if (in.is_empty()) return view;
  for (int axis : n.get<AxesParams>().axes) {
    view.offset += (in[axis] - 1) * layout.strides[axis];
    view.strides[axis] = -layout.strides[axis];
  }
  return view;
}

}  // namespace

bool rules::check_slice(const char* op, const Shape& shape, PerAxis& start, const SliceSteps& step,
                        const Shape& size) {
  const int ndim = shape.ndim();
  CERMET_CHECK(start.ndim() == ndim && static_cast<int>(step.size()) == ndim && size.ndim() == ndim,
               value, op,
               "{} starts, {} steps and {} sizes for shape {}; give one of each for each axis",
               start.ndim(), step.size(), size.ndim(), shape);
  bool is_whole = true;
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    const Dim &whole = shape.dim(axis), &count = size.dim(axis);
    Dim& first = start.dim(axis);
    const bool from_front = same_size(first, 0);
    const bool is_all = from_front && step[axis] == 1 && same_size(count, whole);
    is_whole &= is_all || (from_front && same_size(whole, 1) && same_size(count, 1));
    if (is_all) continue;
    if (same_size(count, 0)) {
      first = 0;
      continue;
    }
    // The last element; of a run from the front it matters only that the axis is long enough.
    const Dim last = step[axis] == 1 ? plus(minus(first, 1), count)
                                     : plus(first, times(minus(count, 1), step[axis]));
    const bool inside =
        !is_less(first, 0) && is_less(first, whole) && !is_less(last, 0) && is_less(last, whole);
    CERMET_CHECK(is_less(0, count) && step[axis] != 0 && inside, value, op,
                 "{} elements from {} in steps of {} leave axis {} of shape {}; slices stay inside",
                 count.value, first.value, step[axis], axis, shape);
  }
  return is_whole;
}

constinit const OpRow rows::reshape = {
    .id = OpId::Reshape,
    .name = "reshape",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = params_shape,
    .derivative = Linear{[](auto& c, int, auto& g) {
      return make_node(rows::reshape, {g}, ShapeParams{c.inputs[0].shape()}, {});
    }},
    .vmap = AxisMapVmap{[](auto& c, auto, const Dim& size) {
      Shape shape = c.template get<ShapeParams>().shape;
      shape.insert(0, size);
      return make_node(rows::reshape, {c.inputs[0]}, ShapeParams{shape}, {});
    }},
    .lowering = MoveLowering{pull_reshape,
                             [](auto& n, auto& in, auto& layout) {
                               return reshape_layout(in, layout, n.shape);
                             },
                             true},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The same elements, in row-major order, in another shape.",
};

constinit const OpRow rows::transpose = {
    .id = OpId::Transpose,
    .name = "transpose",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = transpose_shape,
    .derivative = Linear{[](auto& c, int, auto& g) {
      const Axes& axes = c.template get<AxesParams>().axes;
      Axes inverse(axes.size());
      for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = static_cast<int>(i);
      return transpose_by(g, std::move(inverse), {});
    }},
    .vmap = AxisMapVmap{[](auto& c, auto, const Dim&) {
      Axes axes = c.template get<AxesParams>().axes;
      for (int& axis : axes) ++axis;
      axes.insert(axes.begin(), 0);
      return transpose_by(c.inputs[0], std::move(axes), {});
    }},
    .lowering = MoveLowering{pull_transpose,
                             [](auto& n, auto&, auto& layout) -> std::optional<Layout> {
                               return transpose_layout(layout, n.template get<AxesParams>().axes);
                             }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The axes in another order.",
};

constinit const OpRow rows::broadcast_to = {
    .id = OpId::BroadcastTo,
    .name = "broadcast_to",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = params_shape,
    .derivative = Linear{[](auto& c, int, auto& g) { return sum_to(g, c.inputs[0].shape()); }},
    .vmap = AxisMapVmap{vmap_broadcast},
    .lowering = MoveLowering{pull_broadcast,
                             [](auto& n, auto& in, auto& layout) -> std::optional<Layout> {
                               return broadcast_layout(in, layout, n.shape);
                             }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "Axes of size 1 repeated, and new leading axes, to the given shape.",
};

constinit const OpRow rows::slice = {
    .id = OpId::Slice,
    .name = "slice",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = slice_shape,
    .derivative = Linear{transpose_slice},
    .vmap = AxisMapVmap{vmap_slice},
    .lowering = MoveLowering{pull_slice, view_slice},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "Along each axis, size elements from start, step apart.",
};

constinit const OpRow rows::flip = {
    .id = OpId::Flip,
    .name = "flip",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative =
        Linear{[](auto& c, int, auto& g) { return make_node(rows::flip, {g}, c.params, {}); }},
    .vmap = AxisShiftVmap{},
    .lowering = MoveLowering{pull_flip, view_flip},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The elements along the axes in reverse.",
};

constinit const OpRow rows::contiguous = {
    .id = OpId::Contiguous,
    .name = "contiguous",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Linear{[](auto&, int, auto& g) { return g; }},
    .vmap = BroadcastVmap{},
    .lowering = MoveLowering{[](auto& cx, auto&, auto& at) { return cx.input(0, at); },
                             [](auto&, auto& in, auto& layout) {
                               return is_contiguous(in, layout) ? std::optional(layout)
                                                                : std::nullopt;
                             }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The same elements; in memory in row-major order, without gaps.",
};

namespace {

// The shape with its -1 (if any) replaced by the size that is left.
Shape inferred_shape(const array& a, const ShapeList& shape) {
  const auto is_open = [](const Dim& size) { return size.expr == 0 && size.value == -1; };
  Shape result(shape);
  const auto infer = std::ranges::find_if(shape, is_open);
  if (infer == shape.end()) return result;
  CERMET_CHECK(std::find_if(infer + 1, shape.end(), is_open) == shape.end(), value, "reshape",
               "-1 is given more than once; only one size can be inferred");
  const int open = static_cast<int>(infer - shape.begin());
  result.dim(open) = 1;
  check_size("reshape", result, a.dtype());
  const Dim known = result.count();
  CERMET_CHECK(!same_size(known, 0), value, "reshape",
               "the size for -1 cannot be told beside a size of 0; give every size");
  const Dim count = a.shape().count(), inferred = quotient(count, known);
  CERMET_CHECK(is_less(0, known) && same_size(times(inferred, known), count), value, "reshape",
               "shape {} has {} elements, which {} does not divide; the sizes beside -1 must",
               a.shape(), count.value, known.value);
  result.dim(open) = inferred;
  return result;
}

}  // namespace

array reshape(const array& a, const ShapeList& shape, const S& s) {
  Shape result = inferred_shape(a, shape);
  if (result == a.shape()) return a;
  check_size("reshape", result, a.dtype());
  const Dim count = a.shape().count(), wanted = result.count();
  CERMET_CHECK(same_size(wanted, count), value, "reshape",
               "shape {} has {} elements, {} has {}; give a shape of {} elements", a.shape(),
               count.value, result, wanted.value, count.value);
  return make_node(rows::reshape, pack(a), ShapeParams{std::move(result)}, s);
}

array transpose(const array& a, const OptionalAxes& axes, const S& s) {
  if (!axes) {
    Axes reversed(a.ndim());
    for (int i = 0; i < a.ndim(); ++i) reversed[i] = a.ndim() - 1 - i;
    return transpose_by(a, std::move(reversed), s);
  }
  CERMET_CHECK(static_cast<int>(axes->size()) == a.ndim(), value, "transpose",
               "{} axes are given for shape {}; give each of its {} axes once", axes->size(),
               a.shape(), a.ndim());
  return transpose_by(a, resolve_axes_in_order("transpose", *axes, a.ndim()), s);
}

array swapaxes(const array& a, int64_t axis1, int64_t axis2, const S& s) {
  Axes axes = resolve_axes("swapaxes", {}, a.ndim());
  std::swap(axes[normalize_axis("swapaxes", axis1, a.ndim())],
            axes[normalize_axis("swapaxes", axis2, a.ndim())]);
  return transpose_by(a, std::move(axes), s);
}

array moveaxis(const array& a, int64_t source, int64_t destination, const S& s) {
  const int from = normalize_axis("moveaxis", source, a.ndim());
  const int to = normalize_axis("moveaxis", destination, a.ndim());
  Axes axes = resolve_axes("moveaxis", {}, a.ndim());
  axes.erase(axes.begin() + from);
  axes.insert(axes.begin() + to, from);
  return transpose_by(a, std::move(axes), s);
}

void rules::check_broadcast_to(const Shape& from, const Shape& shape) {
  const char* op = "broadcast_to";
  const bool fits = from.ndim() <= shape.ndim() && broadcast_shapes(op, from, shape) == shape;
  CERMET_CHECK(
      fits, value, op,
      "shape {} cannot become {}; counted from the last axis, its sizes must be equal or 1", from,
      shape);
}

namespace {

// What is spread along a few innermost elements and along axes outside others is spread along the inner ones
// first, as a plan may keep that much in memory. Numbers decide, without guards: the values are the same.
std::optional<Shape> spread_within(const Shape& from, const Shape& to) {
  constexpr int64_t kFew = 16;
  const int added = to.ndim() - from.ndim();
  const auto is_spread = [&](int axis) {
    return to.dim(axis).value != 1 && (axis < added || from.dim(axis - added).value == 1);
  };
  int64_t few = 1;
  int axis = to.ndim() - 1;
  for (; axis >= 0 && few < kFew && (to.dim(axis).value == 1 || is_spread(axis)); --axis)
    few *= std::min(to.dim(axis).value, kFew);
  if (few == 1 || few >= kFew) return std::nullopt;
  while (axis >= 0 && !is_spread(axis)) --axis;
  if (axis < 0) return std::nullopt;
  Shape inner = to;
  for (; axis >= 0; --axis) inner.dim(axis) = axis < added ? Dim(1) : from.dim(axis - added);
  return inner;
}

}  // namespace

array broadcast_to(const array& a, const Shape& shape, const S& s) {
  if (a.shape() == shape) return a;
  check_size("broadcast_to", shape, a.dtype());
  rules::check_broadcast_to(a.shape(), shape);
  const std::optional<Shape> inner = spread_within(a.shape(), shape);
  const array part = inner ? make_node(rows::broadcast_to, pack(a), ShapeParams{*inner}, s) : a;
  return make_node(rows::broadcast_to, pack(part), ShapeParams{shape}, s);
}

array contiguous(const array& a, const S& s) {
  const bool is_already = a.is_ready() && is_contiguous(a.shape(), a.node()->layout);
  return is_already ? a : make_node(rows::contiguous, pack(a), {}, s);
}

array sized_slice(const array& a, PerAxis start, SliceSteps step, Shape size, const S& s) {
  if (check_slice("slice", a.shape(), start, step, size)) return a;
  return make_node(rows::slice, {a},
                   SliceParams{std::move(start), std::move(step), std::move(size)}, s);
}

array flip(const array& a, const OptionalAxes& axes, const S& s) {
  Axes over = resolve_axes("flip", axes, a.ndim());
  if (over.empty()) return a;
  return make_node(rows::flip, pack(a), AxesParams{std::move(over)}, s);
}

}  // namespace cermet
