// SPDX-License-Identifier: MIT
// Ops whose result is put together from several parts: pad and concatenate, and the builders on
// them.
#include <algorithm>

#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;
using ir::ExprId;

namespace {

// nullopt: it may be anywhere along the axis.
std::optional<Bounds> bounds_of_part(LowerContext& cx, const Coord& at, const Dim& size) {
  const std::optional<Bounds> bounds = cx.bounds(at);
  return bounds && bounds->most - bounds->least + 1 < size ? bounds : std::nullopt;
}

// --- pad ---

Shape pad_shape(const OpCall& call) {
  const PadParams& p = call.get<PadParams>();
  Shape shape = call.inputs[0].shape();
  for (int axis = 0; axis < shape.ndim(); ++axis)
    shape.dim(axis) = plus(plus(shape.dim(axis), p.low.dim(axis)), p.high.dim(axis));
  return shape;
}

Lane pull_pad(LowerContext& cx, const NodeView& n, const Coords& at) {
  const PadParams& p = n.get<PadParams>();
  ir::Builder& b = cx.builder();
  Coords from = at;
  ExprId inside = ir::kNone;
  auto require = [&](ExprId condition) {
    inside = inside == ir::kNone ? condition : b.logical_and(inside, condition);
  };
  for (int axis = 0; axis < n.shape.ndim(); ++axis) {
    from[axis].offset -= p.low[axis];
    if (p.low[axis] + p.high[axis] == 0) continue;
    if (const auto bounds = bounds_of_part(cx, from[axis], n.shape[axis])) {
      const Dim& size = (*n.input_shapes[0])[axis];
      if (bounds->most < 0 || bounds->least >= size) return cx.input(1, {});
      if (bounds->least >= 0 && bounds->most < size) continue;
    }
    const ExprId i = cx.expr(from[axis]);
    if (p.low[axis] > 0) require(b.compare(Code::le, b.integer(Dtype::int64, 0), i));
    if (p.high[axis] > 0) require(b.compare(Code::lt, i, cx.size(0, axis)));
  }
  if (inside == ir::kNone) return cx.input(0, from);
  return select_lane(b, inside, cx.input_where(inside, 0, from), cx.input(1, {}));
}

array transpose_pad(const OpCall& c, int k, const array& g) {
  const PadParams& p = c.get<PadParams>();
  const Shape& shape = c.inputs[0].shape();
  SliceSteps step(shape.ndim(), 1);
  if (k == 0) return sized_slice(g, p.low, std::move(step), shape);
  return sum(sized_slice_update(g, zeros(shape, g.dtype()), p.low, std::move(step)));
}

array vmap_pad(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  PadParams p = c.get<PadParams>();
  p.low.insert(0, 0);
  p.high.insert(0, 0);
  const array x = batched_input(c.inputs[0], batched[0], size);
  if (!batched[1]) return make_node(rows::pad, {x, c.inputs[1]}, p, {});
  // A fill value for each item: pad a mask, and choose.
  const array inside = make_node(
      rows::pad,
      {full(x.shape(), number(true), Dtype::boolean), full({}, number(false), Dtype::boolean)}, p,
      {});
  const array padded = make_node(rows::pad, {x, full({}, number(int64_t{0}), x.dtype())}, p, {});
  ShapeList fill_shape(x.ndim(), 1);
  fill_shape[0] = size;
  return where(inside, padded, reshape(c.inputs[1], fill_shape));
}

array pad_constant(const array& a, const PadWidths& width, const array& value, const S& s) {
  PadParams p;
  bool is_same = true;
  for (const auto& [low, high] : width) {
    p.low.push_back(low);
    p.high.push_back(high);
    is_same = is_same && is_zero(low) && is_zero(high);
  }
  if (is_same) return a;
  CERMET_CHECK(value.ndim() == 0, value, "pad", "the value has shape {}; it must be one number",
               value.shape());
  return make_node(rows::pad, {a, astype(value, a.dtype(), s)}, std::move(p), s);
}

// `count` elements along the axis from `start` on.
array run_of(const array& a, int axis, const Dim& start, int64_t step, const Dim& count,
             const S& s) {
  PerAxis starts = origin_of(a);
  SliceSteps steps(a.ndim(), 1);
  Shape size = a.shape();
  starts.dim(axis) = start, steps[axis] = step, size.dim(axis) = count;
  return sized_slice(a, std::move(starts), std::move(steps), std::move(size), s);
}

array repeated_end(const array& a, int axis, const Dim& at, const Dim& count, const S& s) {
  Shape shape = a.shape();
  shape.dim(axis) = count;
  return broadcast_to(run_of(a, axis, at, 1, 1, s), shape, s);
}

// The array there and back again, as often as the widths ask for: the ends stand once (reflect) or twice.
array go_back_and_forth(const array& a, int axis, const PadWidths::value_type& width,
                        const Dim& twice, const S& s) {
  const auto& [low, high] = width;
  const Dim& size = a.shape().dim(axis);
  const auto constant = [&](const Dim& n) { return full({}, number(n), Dtype::int64, s); };
  const array at =
      arange(number(minus(0, low)), number(plus(size, high)), number(int64_t{1}), Dtype::int64, s);
  const Dim period = times(minus(size, twice), 2), turn = minus(plus(period, twice), 1);
  const array phase = remainder(at, constant(period), s);
  return take(a, minimum(phase, subtract(constant(turn), phase, s), s), axis, s);
}

// Rows of few elements, channels of an image say, are joined as one with the axis: vectors run along both.
array joined(const Arrays& parts, int axis, const S& s) {
  constexpr int64_t kFew = 128;
  Shape shape = parts[0].shape();
  Dim row = 1, size = 0;
  for (int i = axis + 1; i < shape.ndim(); ++i) row = times(row, shape.dim(i));
  if (axis + 1 == shape.ndim() || is_less(kFew, row)) return concatenate(parts, axis, s);
  Arrays flat;
  for (const array& part : parts) {
    size = plus(size, part.shape().dim(axis));
    flat.push_back(flatten(part, axis, -1, s));
  }
  shape.dim(axis) = size;
  return make_node(rows::reshape, {concatenate(flat, axis, s)}, ShapeParams{std::move(shape)}, s);
}

array pad_axis(const array& a, int axis, const PadWidths::value_type& width,
               const std::string& mode, const S& s) {
  const auto& [low, high] = width;
  const Dim& size = a.shape().dim(axis);
  const Dim last = minus(size, 1);
  if (mode == "edge" || same_size(size, 1))
    return joined({repeated_end(a, axis, 0, low, s), a, repeated_end(a, axis, last, high, s)}, axis,
                  s);
  const Dim twice = mode == "reflect" ? 1 : 0, most = minus(size, twice);
  if (is_less(most, low) || is_less(most, high)) return go_back_and_forth(a, axis, width, twice, s);
  const Dim first = minus(plus(low, twice), 1);
  return joined({run_of(a, axis, is_zero(low) ? Dim(0) : first, -1, low, s), a,
                 run_of(a, axis, is_zero(high) ? Dim(0) : minus(last, twice), -1, high, s)},
                axis, s);
}

array pad_mirrored(const array& a, const PadWidths& widths, const std::string& mode, const S& s) {
  array result = a;
  for (int axis = 0; axis < a.ndim(); ++axis) {
    const auto& [low, high] = widths[axis];
    if (is_zero(low) && is_zero(high)) continue;
    const Dim& size = a.shape().dim(axis);
    CERMET_CHECK(!is_zero(size), value, "pad",
                 "mode {} of axis {} of shape {}, which has no elements; "
                 "use mode constant",
                 mode, axis, a.shape());
    check_size("pad", {plus(plus(size, low), high)}, Dtype::int64);
    result = pad_axis(result, axis, widths[axis], mode, s);
  }
  return result;
}

// --- concatenate ---

Shape concatenate_shape(const OpCall& call) {
  const int axis = call.get<AxisParams>().axis;
  Shape shape = call.inputs[0].shape();
  for (const array& a : std::span<const array>(call.inputs).subspan(1))
    shape.dim(axis) = plus(shape.dim(axis), a.shape().dim(axis));
  return shape;
}

// Of these coordinates.
struct PartsReached {
  int first, last;
  Dim start, end;
};
PartsReached parts_reached(LowerContext& cx, const NodeView& n, const Coord& at) {
  const int axis = n.get<AxisParams>().axis;
  const auto size = [&](int k) { return (*n.input_shapes[k])[axis]; };
  PartsReached parts{0, static_cast<int>(n.input_shapes.size()) - 1, 0, n.shape[axis]};
  const std::optional<Bounds> bounds = bounds_of_part(cx, at, parts.end);
  if (!bounds) return parts;
  while (parts.first < parts.last && parts.start + size(parts.first) <= bounds->least)
    parts.start += size(parts.first++);
  while (parts.first < parts.last && parts.end - size(parts.last) > bounds->most)
    parts.end -= size(parts.last--);
  return parts;
}

Lane pull_concatenate(LowerContext& cx, const NodeView& n, const Coords& at) {
  const int axis = n.get<AxisParams>().axis;
  const PartsReached parts = parts_reached(cx, n, at[axis]);
  ir::Builder& b = cx.builder();
  const ExprId i = parts.first == parts.last ? ir::kNone : cx.expr(at[axis]);
  // From the last part backwards, so that each part before it wins where i is below its end.
  Dim start = parts.end;
  Lane value;
  for (int k = parts.last; k >= parts.first; --k) {
    const ExprId below = k == parts.last ? ir::kNone : b.compare(Code::lt, i, size_expr(cx, start));
    start -= (*n.input_shapes[k])[axis];
    ExprId mask = below;
    if (k > parts.first) {
      const ExprId after = b.compare(Code::le, size_expr(cx, start), i);
      mask = mask == ir::kNone ? after : b.logical_and(mask, after);
    }
    Coords from = at;
    from[axis].offset -= start;
    const Lane part = mask == ir::kNone ? cx.input(k, from) : cx.input_where(mask, k, from);
    value = k == parts.last ? part : select_lane(b, below, part, value);
  }
  return value;
}

// Each goes to its place by itself, narrow ones of many rows together.
std::optional<array> concatenate_in_parts(const OpCall& c) {
  if (c.inputs.size() <= kMostChoices) return std::nullopt;
  const int axis = c.get<AxisParams>().axis;
  const Shape shape = concatenate_shape(c);
  const bool go_together =
      axis == shape.ndim() - 1 && shape.count() * kMostChoices >= shape[axis] * kManyPoints;
  std::vector<Arrays> groups;
  Dim columns = kMostColumns;  // of the last group, which nothing joins then
  for (const array& part : c.inputs) {
    const Dim width = part.shape()[axis];
    const bool is_narrow = go_together && width < kNarrow;
    if (!is_narrow || columns + width > kMostColumns) groups.emplace_back();
    groups.back().push_back(part);
    columns = !is_narrow ? Dim(kMostColumns) : groups.back().size() == 1 ? width : columns + width;
  }
  if (groups.size() == 1) return std::nullopt;
  array joined = full(shape, number(int64_t{0}), c.inputs[0].dtype());
  PerAxis start = origin_of(joined);
  for (const Arrays& group : groups) {
    const array part =
        group.size() == 1 ? group[0] : make_node(rows::concatenate, group, c.params, {});
    joined = sized_slice_update(joined, part, start, SliceSteps(joined.ndim(), 1));
    start.dim(axis) = plus(start.dim(axis), part.shape().dim(axis));
  }
  return joined;
}

array transpose_concatenate(const OpCall& c, int k, const array& g) {
  const int axis = c.get<AxisParams>().axis;
  PerAxis start = origin_of(g);
  for (int i = 0; i < k; ++i)
    start.dim(axis) = plus(start.dim(axis), c.inputs[i].shape().dim(axis));
  return sized_slice(g, std::move(start), SliceSteps(g.ndim(), 1), c.inputs[k].shape());
}

array vmap_concatenate(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  Arrays parts;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    parts.push_back(batched_input(c.inputs[i], batched[i], size));
  return make_node(rows::concatenate, std::move(parts), shift_axes(c.params), {});
}

void check_parts(const Arrays& parts, int axis) {
  const Shape& first = parts[0].shape();
  for (const array& part : parts) {
    CERMET_CHECK(part.ndim() == first.ndim(), value, "concatenate",
                 "shapes {} and {} differ in their number of axes; it must be the same", first,
                 part.shape());
    for (int i = 0; i < first.ndim(); ++i)
      CERMET_CHECK(i == axis || same_size(part.shape().dim(i), first.dim(i)), value, "concatenate",
                   "shapes {} and {} differ along axis {}; only axis {} may", first, part.shape(),
                   i, axis);
  }
}

}  // namespace

constinit const OpRow rows::pad = {
    .id = OpId::Pad,
    .name = "pad",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = pad_shape,
    .derivative = Linear{transpose_pad},
    .vmap = AxisMapVmap{vmap_pad},
    .lowering =
        MoveLowering{pull_pad, [](auto&, auto&, auto&) -> std::optional<Layout> { return {}; }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "x with low and high elements of one value put around each axis.",
};

constinit const OpRow rows::concatenate = {
    .id = OpId::Concatenate,
    .name = "concatenate",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = concatenate_shape,
    .derivative = Linear{transpose_concatenate},
    .vmap = AxisMapVmap{vmap_concatenate},
    .lowering =
        MoveLowering{.pull = pull_concatenate, .view = nullptr, .in_parts = concatenate_in_parts},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "Arrays one after another along an axis.",
};

array pad(const array& a, const PadWidths& width, const array& value, const std::string& mode,
          const S& s) {
  CERMET_CHECK(width.size() == 1 || static_cast<int>(width.size()) == a.ndim(), value, "pad",
               "{} widths for shape {}; give one, or one for each axis", width.size(), a.shape());
  const PadWidths widths = width.size() == 1 ? PadWidths(a.ndim(), width[0]) : width;
  for (int axis = 0; axis < a.ndim(); ++axis) {
    const auto& [low, high] = widths[axis];
    CERMET_CHECK(!is_less(low, 0) && !is_less(high, 0), value, "pad",
                 "width ({}, {}) of axis {}; widths must be >= 0", low.value, high.value, axis);
  }
  if (mode == "constant") return pad_constant(a, widths, value, s);
  CERMET_CHECK(mode == "edge" || mode == "reflect" || mode == "symmetric", value, "pad",
               "mode is '{}'; use constant, edge, reflect or symmetric", mode);
  return pad_mirrored(a, widths, mode, s);
}

array concatenate(const Arrays& arrays, std::optional<int64_t> axis, const S& s) {
  CERMET_CHECK(!arrays.empty(), value, "concatenate", "no arrays are given; give at least one");
  if (!axis) {
    Arrays flat;
    for (const array& a : arrays) flat.push_back(flatten(a, 0, -1, s));
    return concatenate(flat, 0, s);
  }
  const int along = normalize_axis("concatenate", *axis, arrays[0].ndim());
  check_parts(arrays, along);
  Dtype dtype = arrays[0].dtype();
  for (const array& a : arrays) dtype = promote(dtype, a.dtype());
  Arrays parts;
  for (const array& a : arrays)
    if (!is_zero(a.shape().dim(along))) parts.push_back(astype(a, dtype, s));
  if (parts.empty()) return astype(arrays[0], dtype, s);
  if (parts.size() == 1) return parts[0];
  return make_node(rows::concatenate, std::move(parts), AxisParams{along, false}, s);
}

array stack(const Arrays& arrays, int64_t axis, const S& s) {
  CERMET_CHECK(!arrays.empty(), value, "stack", "no arrays are given; give at least one");
  const int along = normalize_axis("stack", axis, arrays[0].ndim() + 1);
  Arrays parts;
  for (const array& a : arrays) {
    CERMET_CHECK(a.shape() == arrays[0].shape(), value, "stack",
                 "shapes {} and {} differ; all must be the same", arrays[0].shape(), a.shape());
    parts.push_back(expand_dims(a, {along}, s));
  }
  return concatenate(parts, along, s);
}

}  // namespace cermet
