// SPDX-License-Identifier: MIT
// Reading at computed places: gather and take_along_axis. Indices may be of any integer dtype;
// negative ones count from the end; on the CPU an index out of range raises when the value is
// computed.
#include <algorithm>

#include "graph/meant_scope.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

constexpr auto kAdd = static_cast<int>(ScatterReduce::add);

// --- gather ---

Shape gather_shape(const OpCall& call) {
  Shape shape = call.inputs[1].shape();
  for (const Dim& dim : call.get<GatherParams>().slice_sizes) shape.push_back(dim);
  return shape;
}

Lane pull_gather(LowerContext& cx, const NodeView& n, const Coords& at) {
  const GatherParams& p = n.get<GatherParams>();
  const Shape& in = *n.input_shapes[0];
  const int index_ndim = n.input_shapes[1]->ndim();
  const Coords index_at(at.begin(), at.begin() + index_ndim);
  Coords from(at.begin() + index_ndim, at.end());
  for (size_t k = 0; k < p.axes.size(); ++k) {
    const int axis = p.axes[k];
    const ir::ExprId index = cx.input(static_cast<int>(k) + 1, index_at).re;
    const Coord base = index_coord(cx, index, axis - p.batches, in[axis], p.slice_sizes[axis]);
    const Coord parts[] = {base, from[axis]};
    const Dim kOnes[] = {1, 1};
    from[axis] = p.slice_sizes[axis] == 1 ? base : combine(cx, parts, kOnes);
  }
  return cx.input(0, from);
}

array vmap_gather(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  const GatherParams& p = c.get<GatherParams>();
  const array& x = c.inputs[0];
  const bool index_batched = std::ranges::any_of(batched.subspan(1), [](bool b) { return b; });
  Arrays indices;
  for (size_t k = 1; k < c.inputs.size(); ++k)
    indices.push_back(index_batched ? batched_input(c.inputs[k], batched[k], size) : c.inputs[k]);
  if (!batched[0]) return gathered(x, indices, p);

  GatherParams all = p;
  for (int& axis : all.axes) ++axis;
  ++all.batches;
  const int index_ndim = indices[0].ndim();
  if (!index_batched) {  // the batch axis is a slice axis, and moves to the front
    all.slice_sizes.insert(0, size);
    return moveaxis(gathered(x, indices, std::move(all)), index_ndim, 0);
  }
  Shape rest = indices[0].shape();
  rest.erase(0);
  indices.insert(indices.begin(), batch_index(size, rest));
  all.axes.insert(all.axes.begin(), 0);
  all.slice_sizes.insert(0, 1);
  return squeeze(gathered(x, indices, std::move(all)), AxisList{index_ndim});
}

// --- take_along_axis ---

Lane pull_along_axis(LowerContext& cx, const NodeView& n, const Coords& at) {
  const auto& [axis, flag, batches] = n.get<AxisParams>();
  Coords from = at;
  from[axis] = index_coord(cx, cx.input(1, at).re, axis - batches, (*n.input_shapes[0])[axis], 1);
  return cx.input(0, from);
}

// The transpose. One index for each line along the axis compares with the positions there, which
// fuses with its neighbours; several may repeat and are scattered.
array spread_along_axis(const OpCall& call, const array& g) {
  const AxisParams& p = call.get<AxisParams>();
  const int axis = p.axis;
  const Shape& shape = call.inputs[0].shape();
  const array& indices = call.inputs[1];
  if (!same_size(indices.shape().dim(axis), 1))
    return scattered_along(zeros(shape, g.dtype()), indices, g,
                           {.axes = {axis}, .reduce = kAdd, .batches = p.batches});
  const Dim& size = shape.dim(axis);
  ShapeList line(static_cast<size_t>(shape.ndim()), 1);
  line[static_cast<size_t>(axis)] = size;
  const array positions =
      reshape(arange(number(int64_t{0}), number(size), number(int64_t{1}), Dtype::int64), line);
  const array chosen = taken_along(positions, indices, p);  // raises as the read itself
  return where(equal(positions, chosen), broadcast_to(g, shape),
               full(Shape{}, number(0.0), g.dtype()));
}

std::optional<Layout> no_view(const NodeView&, const Shape&, const Layout&) { return {}; }

}  // namespace

Arrays rules::broadcast_indices(const char* op, const Arrays& indices, const S& s) {
  Shape shape;
  for (const array& index : indices) {
    CERMET_CHECK(is_integer(index.dtype()), dtype, op,
                 "an index has dtype {}, shape {}; indices must be integers", index.dtype(),
                 index.shape());
    shape = broadcast_shapes(op, shape, index.shape());
  }
  Arrays result;
  for (const array& index : indices) result.push_back(broadcast_to(index, shape, s));
  return result;
}

Arrays rules::start_indices(const char* op, const array& start, const AxisList& axes, const S& s) {
  CERMET_CHECK(start.size() == static_cast<int64_t>(axes.size()), value, op,
               "start_indices has {} elements for {} axes; there must be one for each",
               start.size(), axes.size());
  const array flat = flatten(start, 0, -1, s);
  Arrays indices;
  for (int64_t i = 0; i < flat.shape(0); i++)
    indices.push_back(squeeze(cermet::sized_slice(flat, {i}, {1}, {1}, s), AxisList{0}, s));
  return indices;
}

void rules::check_has_elements(const char* op, const array& a, int axis, const array& indices) {
  CERMET_CHECK(
      !is_zero(a.shape().dim(axis)) || is_zero(indices.shape().count()), index, op,
      "indices of shape {} are out of range for axis {} of size 0; the array's shape is {}",
      indices.shape(), axis, a.shape());
}

array rules::batch_index(const Dim& size, const Shape& rest) {
  const array numbers = arange(number(int64_t{0}), number(size), number(int64_t{1}), Dtype::int64);
  Shape column{size};
  for (int i = 0; i < rest.ndim(); ++i) column.push_back(1);
  Shape shape = rest;
  shape.insert(0, size);
  return broadcast_to(make_node(rows::reshape, {numbers}, ShapeParams{column}, {}), shape);
}

constinit const OpRow rows::gather = {
    .id = OpId::Gather,
    .name = "gather",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = gather_shape,
    .derivative = Linear{[](auto& c, int, auto& g) {
      const Arrays indices(c.inputs.begin() + 1, c.inputs.end());
      GatherParams p = c.template get<GatherParams>();
      p.reduce = kAdd;
      return scattered(zeros(c.inputs[0].shape(), g.dtype()), indices, g, std::move(p));
    }},
    .vmap = CustomVmap{vmap_gather},
    .lowering = MoveLowering{pull_gather, no_view},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc =
        "Slices of x, each from where the indices into some of its axes point; the axes of the "
        "indices come first.",
};

constinit const OpRow rows::take_along_axis = {
    .id = OpId::TakeAlongAxis,
    .name = "take_along_axis",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = [](auto& c) -> Shape { return c.inputs[1].shape(); },
    .derivative = Linear{[](auto& c, int, auto& g) { return spread_along_axis(c, g); }},
    .vmap = AxisMapVmap{[](auto& c, auto batched, const Dim& size) {
      return make_node(rows::take_along_axis,
                       {batched_input(c.inputs[0], batched[0], size),
                        batched_input(c.inputs[1], batched[1], size)},
                       shift_axes(c.params), {});
    }},
    .lowering = MoveLowering{pull_along_axis, no_view},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "Elements of x at the indices along one axis, and at the same place along the others.",
};

namespace {

// --- gathers that pick along one axis: the other indices count 0, 1, ... along an axis of the indices, as
// x[arange(n), t] has them, so that these two axes are one ---

bool is_one(const Dim& dim) { return dim.expr == 0 && dim.value == 1; }
// Without a guard.
bool is_one_size(const Dim& a, const Dim& b) { return a.expr == b.expr && a.value == b.value; }

bool is_iota(const Node& node) {
  const auto* p = std::get_if<ArangeParams>(&node.params);
  const auto is = [](const Number& n, int64_t value) {
    return n.kind == Number::Kind::integer && n.expr == 0 && n.integer == value;
  };
  return p != nullptr && is(p->start, 0) && is(p->step, 1);
}

// The axis of the index along which it counts, and is the same along the others; -1: there is none.
int counted_axis(const Node& index) {
  if (index.row == &rows::arange) return is_iota(index) ? 0 : -1;
  if (index.inputs.size() != 1 || !is_integer(index.dtype)) return -1;
  const Node& from = *index.inputs[0];
  const int axis = counted_axis(from);
  if (axis < 0) return -1;
  const Dim& size = from.shape.dim(axis);
  if (index.row == &rows::cast) return size_of(index.dtype) < 4 ? -1 : axis;
  const int moved = index.shape.ndim() - from.shape.ndim() + axis;
  if (index.row == &rows::broadcast_to) return same_size(index.shape.dim(moved), size) ? moved : -1;
  if (index.row != &rows::reshape) return -1;
  int found = -1;
  for (int d = 0; d < index.shape.ndim(); ++d) {
    if (is_one(index.shape.dim(d))) continue;
    if (found >= 0 || !is_one_size(index.shape.dim(d), size)) return -1;
    found = d;
  }
  return found;
}

// What take_along_axis needs to stand for a gather.
struct LinePicks {
  Axes lines;        // of x, for each axis of the indices: that which it counts along, or -1
  int picked = -1;   // the other axis of x that has an index
  size_t index = 0;  // that index
  int n_picks = 0;   // axes of the indices that nothing counts along
};

std::optional<LinePicks> line_picks(const array& x, std::span<const array> indices,
                                    const GatherParams& p) {
  LinePicks found{.lines = Axes(static_cast<size_t>(indices[0].ndim()), -1)};
  for (size_t k = 0; k < indices.size(); ++k) {
    const int axis = p.axes[k], along = counted_axis(*indices[k].node());
    if (!is_one(p.slice_sizes.dim(axis)) || std::ranges::count(p.axes, axis) > 1)
      return std::nullopt;
    const bool counts = along >= 0 && found.lines[static_cast<size_t>(along)] < 0 &&
                        same_size(indices[k].shape().dim(along), x.shape().dim(axis));
    if (counts) {
      found.lines[static_cast<size_t>(along)] = axis;
    } else if (found.picked < 0) {
      found.picked = axis;
      found.index = k;
    } else {
      return std::nullopt;
    }
  }
  found.n_picks = static_cast<int>(std::ranges::count(found.lines, -1));
  bool has_slices = false;
  for (int axis = 0; axis < x.ndim(); ++axis) {
    if (std::ranges::find(p.axes, axis) != p.axes.end()) continue;
    if (!is_one_size(p.slice_sizes.dim(axis), x.shape().dim(axis))) return std::nullopt;
    has_slices = true;
  }
  // Slices that are picked several times a line are better moved whole.
  const bool fits = found.picked >= 0 && static_cast<size_t>(found.n_picks) < found.lines.size() &&
                    (found.n_picks == 0 || !has_slices);
  return fits ? std::optional(found) : std::nullopt;
}

// In the axes of x, so that an index out of range is told of by the axis that it has there.
array picked_along_lines(const array& x, const array& index, const LinePicks& picks, int batches,
                         const Shape& result, const S& s) {
  const auto dims_at = [&](int axis) {  // axes of the indices that axis of x stands for
    Axes dims;
    const int line = axis == picks.picked ? -1 : axis;
    for (int d = 0; d < index.ndim(); ++d)
      if (picks.lines[static_cast<size_t>(d)] == line) dims.push_back(d);
    return dims;
  };
  Axes order;  // of the axes of the indices, as x has them
  Shape joined,
      apart;  // the index and what is taken: in the axes of x; with picks in their own axes
  Axes back(static_cast<size_t>(index.ndim())), slices;
  for (int axis = 0; axis < x.ndim(); ++axis) {
    const Axes dims = dims_at(axis);
    Dim n = 1;
    for (int d : dims) {
      const Dim& size = index.shape().dim(d);
      n = is_one(n) ? size : times(n, size);
      back[static_cast<size_t>(d)] = apart.ndim();
      order.push_back(d);
      apart.push_back(size);
    }
    joined.push_back(n);
    const bool is_slice = dims.empty() && axis != picks.picked;
    if (!is_slice) continue;
    slices.push_back(apart.ndim());
    apart.push_back(x.shape().dim(axis));
  }
  back.insert(back.end(), slices.begin(), slices.end());
  const auto transposed = [&](const array& a, const Axes& axes) {
    return std::ranges::is_sorted(axes) ? a
                                        : make_node(rows::transpose, pack(a), AxesParams{axes}, s);
  };
  const auto reshaped = [&](const array& a, const Shape& shape) {
    return make_node(rows::reshape, pack(a), ShapeParams{shape}, s);
  };
  const array at = reshaped(transposed(index, order), joined);
  const array taken = taken_along(x, at, {picks.picked, false, batches}, s);
  return reshaped(transposed(reshaped(taken, apart), back), result);
}

}  // namespace

array rules::gathered(const array& a, const Arrays& indices, GatherParams p, const S& s) {
  const auto& [axes, slice_sizes, reduce, in_order, batches] = p;
  const char* op = MeantScope::name_or("gather");
  CERMET_CHECK(!indices.empty() && indices.size() == axes.size(), value, op,
               "{} indices for {} axes; give one for each, at least one", indices.size(),
               axes.size());
  CERMET_CHECK(slice_sizes.ndim() == a.ndim(), value, op,
               "{} slice sizes for shape {}; give one for each axis", slice_sizes.ndim(),
               a.shape());
  Arrays inputs = broadcast_indices(op, indices, s);
  for (int axis : axes) {
    normalize_axis(op, axis, a.ndim());
    if (!is_zero(slice_sizes.dim(axis))) check_has_elements(op, a, axis, inputs[0]);
  }
  const bool is_empty = same_size(inputs[0].shape().count(), 0);
  for (int axis = 0; axis < a.ndim(); ++axis) {
    const Dim& whole = a.shape().dim(axis);
    if (whole.expr != 0 && slice_sizes.dim(axis).expr == whole.expr) continue;
    CERMET_CHECK(
        is_empty || (!is_less(slice_sizes.dim(axis), 0) && !is_less(whole, slice_sizes.dim(axis))),
        value, op, "a slice of size {} along axis {} of shape {}; it must fit",
        slice_sizes.dim(axis).value, axis, a.shape());
  }
  if (const auto picks = line_picks(a, inputs, p)) {
    Shape result = inputs[0].shape();
    for (const Dim& dim : slice_sizes) result.push_back(dim);
    return picked_along_lines(a, inputs[picks->index], *picks, batches, result, s);
  }
  inputs.insert(inputs.begin(), a);
  return make_node(rows::gather, std::move(inputs), std::move(p), s);
}

array gather(const array& a, const Arrays& indices, const Axes& axes, const Shape& slice_sizes,
             const S& s) {
  return gathered(a, indices, {axes, slice_sizes}, s);
}

array dynamic_slice(const array& a, const array& start, const AxisList& axes,
                    const Shape& slice_size, const S& s) {
  const MeantScope meant("slice");
  const Axes along = resolve_axes_in_order("slice", axes, a.ndim());
  const Arrays indices = start_indices("slice", start, axes, s);
  if (!axes.empty()) return gather(a, indices, along, slice_size, s);
  return sized_slice(a, origin_of(a), SliceSteps(a.ndim(), 1), slice_size, s);
}

array take(const array& a, const array& indices, std::optional<int64_t> axis, const S& s) {
  if (!axis) return take(flatten(a, 0, -1, s), indices, 0, s);
  const MeantScope meant("take");
  const char* op = MeantScope::name_or("take");
  const int along = normalize_axis(op, *axis, a.ndim());
  check_has_elements(op, a, along, indices);
  Shape sizes = a.shape();
  sizes.dim(along) = 1;
  const array slices = gather(a, {indices}, {along}, sizes, s);
  const int count = indices.ndim();
  array taken = squeeze(slices, AxisList{count + along}, s);
  if (along == 0 || count == 0) return taken;
  AxisList order;  // the index axes go where the axis was
  for (int i = 0; i < along; ++i) order.push_back(count + i);
  for (int i = 0; i < count; ++i) order.push_back(i);
  for (int i = count + along; i < taken.ndim(); ++i) order.push_back(i);
  return transpose(taken, order, s);
}

array take_along_axis(const array& a, const array& indices, std::optional<int64_t> axis,
                      const S& s) {
  if (!axis) return take_along_axis(flatten(a, 0, -1, s), flatten(indices, 0, -1, s), 0, s);
  const char* op = MeantScope::name_or("take_along_axis");
  const int along = normalize_axis(op, *axis, a.ndim());
  CERMET_CHECK(indices.ndim() == a.ndim(), value, op,
               "indices of shape {} for an array of shape {}; they must have as many axes",
               indices.shape(), a.shape());
  CERMET_CHECK(is_integer(indices.dtype()), dtype, op,
               "the indices have dtype {}; they must be integers", indices.dtype());
  check_has_elements(op, a, along, indices);
  return taken_along(a, indices, {along}, s);
}

array rules::taken_along(const array& a, const array& indices, AxisParams p, const S& s) {
  const int along = p.axis;
  Shape a_shape = a.shape(), index_shape = indices.shape();
  a_shape.dim(along) = index_shape.dim(along) = 1;
  Shape shape =
      a_shape == index_shape ? a_shape : broadcast_shapes("take_along_axis", a_shape, index_shape);
  index_shape = shape;
  shape.dim(along) = a.shape().dim(along);
  index_shape.dim(along) = indices.shape().dim(along);
  return make_node(rows::take_along_axis,
                   {broadcast_to(a, shape, s), broadcast_to(indices, index_shape, s)}, p, s);
}

}  // namespace cermet
