// SPDX-License-Identifier: MIT
// Writing at given or computed places of a copy: slice_update, scatter, scatter_along_axis, each
// with a reduction of what was there and what comes. Their derivatives are written once, on reading
// from and writing to those places.
#include <algorithm>

#include "graph/meant_scope.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

ScatterReduce reduce_of(const Params& params) {
  if (const auto* slice = std::get_if<SliceParams>(&params))
    return static_cast<ScatterReduce>(slice->reduce);
  return static_cast<ScatterReduce>(std::get<GatherParams>(params).reduce);
}

ScatterReduce node_reduce(const NodeView& n) { return reduce_of(n.params); }

// The places that a call writes: reads them from an array like the target, writes them to one.
class Places {
 public:
  explicit Places(const OpCall& call) : call_(call) {}

  const array& target() const { return call_.inputs.front(); }
  const array& update() const { return call_.inputs.back(); }
  bool is_update(int k) const { return k == static_cast<int>(call_.inputs.size()) - 1; }
  ScatterReduce reduce() const { return reduce_of(call_.params); }
  bool can_repeat() const {
    if (std::holds_alternative<SliceParams>(call_.params)) return false;
    const Shape& at = call_.inputs[1].shape();
    const Dim n = is_along_axis() ? at.dim(call_.get<GatherParams>().axes[0]) : at.count();
    return n.expr != 0 || n.value != 1;
  }

  // Whether each update stays, of several assignments to one place the last: they are numbered, and the
  // numbers are assigned alike and read back. Along axes without indices all fare alike: of size 1.
  array is_last() const {
    const GatherParams& p = call_.get<GatherParams>();
    Shape there = target().shape(), numbered = update().shape();
    const int first = numbered.ndim() - there.ndim();
    for (int axis = 0; !is_along_axis() && axis < there.ndim(); ++axis)
      if (std::ranges::find(p.axes, axis) == p.axes.end())
        there.dim(axis) = numbered.dim(first + axis) = 1;
    const Dim count = numbered.count();
    const Dtype dtype = is_less(count, Dim(int64_t{1} << 31)) ? Dtype::int32 : Dtype::int64;
    const array numbers =
        reshape(arange(number(int64_t{0}), number(count), number(int64_t{1}), dtype),
                ShapeList(numbered.begin(), numbered.end()));
    const array none = zeros(there, dtype);
    if (is_along_axis()) {
      const array& at = call_.inputs[1];
      const array assigned =
          scatter_along_axis(none, at, numbers, p.axes[0], ScatterReduce::assign);
      return take_along_axis(assigned, at, p.axes[0]) == numbers;
    }
    const array assigned = scatter(none, indices(), numbers, p.axes, ScatterReduce::assign);
    const Shape slices(numbered.dims().subspan(static_cast<size_t>(first)));
    return gather(assigned, indices(), p.axes, slices) == numbers;
  }

  array read(const array& a) const {
    if (const auto* p = std::get_if<SliceParams>(&call_.params))
      return sized_slice(a, p->start, p->step, p->size);
    const GatherParams& p = call_.get<GatherParams>();
    if (call_.row.id == OpId::Scatter)
      return gathered(a, indices(),
                      {.axes = p.axes, .slice_sizes = p.slice_sizes, .batches = p.batches});
    return taken_along(a, call_.inputs[1], {p.axes[0], false, p.batches});
  }

  array write(const array& to, const array& values, ScatterReduce reduce) const {
    if (const auto* p = std::get_if<SliceParams>(&call_.params))
      return sized_slice_update(to, values, p->start, p->step, reduce);
    const Axes& axes = call_.get<GatherParams>().axes;
    if (call_.row.id == OpId::Scatter) return scatter(to, indices(), values, axes, reduce);
    return scatter_along_axis(to, call_.inputs[1], values, axes[0], reduce);
  }

 private:
  bool is_along_axis() const { return call_.row.id == OpId::ScatterAlongAxis; }
  Arrays indices() const { return {call_.inputs.begin() + 1, call_.inputs.end() - 1}; }

  const OpCall& call_;
};

// What multiplies an update in the product at its place: the old value and the other updates there.
array other_factors(const Places& places) {
  if (!places.can_repeat()) return places.read(places.target());
  const array& u = places.update();
  const array zero = full_like(u, 0), one = full_like(u, 1), is_zero = u == zero;
  const array nonzero =
      places.read(places.write(places.target(), select(is_zero, one, u), ScatterReduce::multiply));
  const array zeros_there =
      places.read(places.write(zeros(places.target().shape(), Dtype::int32),
                               astype(is_zero, Dtype::int32), ScatterReduce::add));
  const array of_zero = select(zeros_there == 1, nonzero, zero);
  const array of_nonzero = select(zeros_there == 0, nonzero / select(is_zero, one, u), zero);
  return select(is_zero, of_zero, of_nonzero);
}

// --- ties of extremes ---

// As of maximum(target, max of the updates): updates go before what was there, and share a place.
array is_extremum(const Places& places, const array& y) {
  return places.update() == places.read(y);
}

// How many updates are the extremum of each place.
array extrema_of(const Places& places, const array& y) {
  return places.write(zeros(places.target().shape(), Dtype::int32),
                      astype(is_extremum(places, y), Dtype::int32), ScatterReduce::add);
}

array of_target(const Places& places, const array& y, const array& g) {
  const array is_left = logical_and(places.target() == y, extrema_of(places, y) == 0);
  return select(is_left, g, full_like(g, 0));
}

array of_updates(const Places& places, const array& y, const array& v) {
  array kept = select(is_extremum(places, y), v, full_like(v, 0));
  if (!places.can_repeat()) return kept;
  const array count =
      maximum(places.read(extrema_of(places, y)), full({}, number(int64_t{1}), Dtype::int32));
  return kept / astype(count, real_of(v.dtype()));
}

// The derivative with respect to the target keeps its shape both ways.
array through_target(const Places& places, const array& y, const array& g, bool is_adjoint) {
  const array& u = places.update();
  switch (places.reduce()) {
    case ScatterReduce::assign: return places.write(g, zeros_like(u), ScatterReduce::assign);
    case ScatterReduce::add: return g;
    case ScatterReduce::multiply:
      return places.write(g, is_adjoint ? conjugate_if_complex(u) : u, ScatterReduce::multiply);
    default: return of_target(places, y, g);
  }
}

array update_vjp(const Places& places, const array& y, const array& g) {
  array there = places.read(g);
  switch (places.reduce()) {
    case ScatterReduce::assign:
      return places.can_repeat()
                 ? where(places.is_last(), there, full({}, number(0.0), there.dtype()))
                 : there;
    case ScatterReduce::add: return there;
    case ScatterReduce::multiply: return there * conjugate_if_complex(other_factors(places));
    default: return of_updates(places, y, there);
  }
}

array update_jvp(const Places& places, const array& y, const array& t) {
  const array none = zeros(places.target().shape(), t.dtype());
  switch (places.reduce()) {
    case ScatterReduce::assign: return places.write(none, t, ScatterReduce::assign);
    case ScatterReduce::add: return places.write(none, t, ScatterReduce::add);
    case ScatterReduce::multiply:
      return places.write(none, t * other_factors(places), ScatterReduce::add);
    default: return places.write(none, of_updates(places, y, t), ScatterReduce::add);
  }
}

constexpr Opaque kWriteDerivative = {
    .jvp =
        [](const OpCall& c, const array& y, int k, const array& t) {
          const Places places(c);
          return places.is_update(k) ? update_jvp(places, y, t)
                                     : through_target(places, y, t, false);
        },
    .vjp =
        [](const OpCall& c, const array& y, int k, const array& g) {
          const Places places(c);
          return places.is_update(k) ? update_vjp(places, y, g)
                                     : through_target(places, y, g, true);
        }};

// --- lowering ---

Coords slice_target(LowerContext& cx, const NodeView& n, const Coords& at) {
  const SliceParams& p = n.get<SliceParams>();
  Coords to;
  for (int i = 0; i < p.start.ndim(); ++i) {
    const Dim step = p.step[i];
    to.push_back(combine(cx, {&at[i], 1}, {&step, 1}, p.start[i]));
  }
  return to;
}

std::optional<Slice> replaced_slice(const NodeView& n) {
  const SliceParams& p = n.get<SliceParams>();
  if (static_cast<ScatterReduce>(p.reduce) != ScatterReduce::assign) return std::nullopt;
  for (int i = 0; i < p.start.ndim(); ++i)
    if (p.step[i] != 1 && p.size[i] != 1) return std::nullopt;
  return Slice{p.start, p.size};
}

Coords scatter_target(LowerContext& cx, const NodeView& n, const Coords& at) {
  const GatherParams& p = n.get<GatherParams>();
  const Shape& shape = *n.input_shapes[0];
  const int index_ndim = n.input_shapes[1]->ndim();
  const Coords index_at(at.begin(), at.begin() + index_ndim);
  Coords to(at.begin() + index_ndim, at.end());
  for (size_t k = 0; k < p.axes.size(); ++k) {
    const int axis = p.axes[k];
    const ir::ExprId index = cx.input(static_cast<int>(k) + 1, index_at).re;
    const Coord base = index_coord(cx, index, axis - p.batches, shape[axis], p.slice_sizes[axis]);
    const Coord parts[] = {base, to[axis]};
    const Dim kOnes[] = {1, 1};
    to[axis] = p.slice_sizes[axis] == 1 ? base : combine(cx, parts, kOnes);
  }
  return to;
}

Coords along_axis_target(LowerContext& cx, const NodeView& n, const Coords& at) {
  const GatherParams& p = n.get<GatherParams>();
  const int axis = p.axes[0];
  Coords to = at;
  to[axis] = index_coord(cx, cx.input(1, at).re, axis - p.batches, (*n.input_shapes[0])[axis], 1);
  return to;
}

// --- batching ---

array vmap_slice_update(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  SliceParams p = c.get<SliceParams>();
  p.start.insert(0, 0);
  p.step.insert(p.step.begin(), 1);
  return sized_slice_update(batched_input(c.inputs[0], batched[0], size),
                            batched_input(c.inputs[1], batched[1], size), std::move(p.start),
                            std::move(p.step), reduce_of(c.params));
}

array vmap_scatter(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  const array x = batched_input(c.inputs.front(), batched.front(), size);
  Arrays indices;
  for (size_t k = 1; k + 1 < c.inputs.size(); ++k)
    indices.push_back(batched_input(c.inputs[k], batched[k], size));
  const int index_ndim = indices[0].ndim();
  Shape rest = indices[0].shape();
  rest.erase(0);
  indices.insert(indices.begin(), batch_index(size, rest));
  GatherParams p = c.get<GatherParams>();
  for (int& axis : p.axes) ++axis;
  p.axes.insert(p.axes.begin(), 0);
  ++p.batches;
  const array updates = batched_input(c.inputs.back(), batched.back(), size);
  return scattered(x, indices, expand_dims(updates, {index_ndim}), std::move(p));
}

array vmap_along_axis(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  GatherParams p = c.get<GatherParams>();
  ++p.axes[0];
  ++p.batches;
  return scattered_along(batched_input(c.inputs[0], batched[0], size),
                         batched_input(c.inputs[1], batched[1], size),
                         batched_input(c.inputs[2], batched[2], size), std::move(p));
}

// A sum of bools is true if one of them is.
ScatterReduce reduce_on(const array& a, ScatterReduce reduce) {
  const bool is_or = a.dtype() == Dtype::boolean && reduce == ScatterReduce::add;
  return is_or ? ScatterReduce::maximum : reduce;
}

// Updates that combine with what is there are arithmetic, and half types have none: they go by way of
// float32, which also keeps repeated sums from stalling.
bool combines_in_float(const array& a, ScatterReduce reduce) {
  return is_half(a.dtype()) && reduce != ScatterReduce::assign;
}

}  // namespace

#define CERMET_WRITE_ROW(enumerator, row_name, batch, target, slice, text) \
  constinit const OpRow rows::row_name = {                          \
      .id = OpId::enumerator,                                       \
      .name = #row_name,                                            \
      .accepts = kAny,                                              \
      .dtype = same_dtype,                                          \
      .shape = same_shape,                                          \
      .derivative = kWriteDerivative,                               \
      .vmap = batch,                                                \
      .lowering = UpdateLowering{target, node_reduce, slice},       \
      .effect = Effect::none,                                       \
      .domain = Domain{},                                           \
      .max_ulp = 0,                                                 \
      .doc = text,                                                  \
  };
CERMET_WRITE_ROW(SliceUpdate, slice_update, AxisMapVmap{vmap_slice_update}, slice_target,
                 replaced_slice, "x with a slice replaced by, or reduced with, the update.")
CERMET_WRITE_ROW(
    Scatter, scatter, CustomVmap{vmap_scatter}, scatter_target, nullptr,
    "x with slices, from where the indices into some of its axes point, replaced by, or "
    "reduced with, the updates, in their order: of several assignments to one place, the last "
    "holds.")
CERMET_WRITE_ROW(ScatterAlongAxis, scatter_along_axis, AxisMapVmap{vmap_along_axis},
                 along_axis_target, nullptr,
                 "x with elements at the indices along one axis replaced by, or reduced with, the "
                 "values.")
#undef CERMET_WRITE_ROW

array sized_slice_update(const array& a, const array& update, PerAxis start, SliceSteps step,
                         ScatterReduce reduce, const S& s) {
  const Shape& size = update.shape();
  const bool is_whole = check_slice("slice_update", a.shape(), start, step, size);
  array values = astype(update, a.dtype(), s);
  if (is_whole && reduce == ScatterReduce::assign) return values;
  for (const Dim& dim : size)
    if (is_zero(dim)) return a;
  if (combines_in_float(a, reduce)) {
    const array wide =
        sized_slice_update(astype(a, Dtype::float32, s), astype(values, Dtype::float32, s),
                           std::move(start), std::move(step), reduce, s);
    return as_result(wide, a.dtype(), s);
  }
  return make_node(
      rows::slice_update, {a, values},
      SliceParams{std::move(start), std::move(step), size, static_cast<int>(reduce_on(a, reduce))},
      s);
}

array scatter(const array& a, const Arrays& indices, const array& updates, const Axes& axes,
              ScatterReduce reduce, const S& s) {
  return scattered(a, indices, updates, {.axes = axes, .reduce = static_cast<int>(reduce)}, s);
}

array rules::scattered(const array& a, const Arrays& indices, const array& updates, GatherParams p,
                       const S& s) {
  const Axes& axes = p.axes;
  const auto reduce = static_cast<ScatterReduce>(p.reduce);
  const char* op = MeantScope::name_or("scatter");
  CERMET_CHECK(!indices.empty() && indices.size() == axes.size(), value, op,
               "{} indices for {} axes; give one for each, at least one", indices.size(),
               axes.size());
  Arrays inputs = broadcast_indices(op, indices, s);
  const Shape& index_shape = inputs[0].shape();
  const int index_ndim = index_shape.ndim();
  bool fits = updates.ndim() == index_ndim + a.ndim();
  Shape sizes;
  for (int i = 0; fits && i < updates.ndim(); ++i) {
    if (i >= index_ndim) sizes.push_back(updates.shape().dim(i));
    const Dim& size = updates.shape().dim(i);
    fits = i < index_ndim ? same_size(size, index_shape.dim(i))
                          : !is_less(a.shape().dim(i - index_ndim), size);
  }
  const bool is_empty = is_zero(updates.shape().count());
  CERMET_CHECK(fits || is_empty, value, op,
               "updates of shape {} for indices of shape {} and an array of shape {}; their shape "
               "is that of the indices followed by slices that fit the array",
               updates.shape(), index_shape, a.shape());
  for (int axis : axes) normalize_axis(op, axis, a.ndim());
  if (is_empty) return a;
  if (combines_in_float(a, reduce)) {
    const array wide = scattered(astype(a, Dtype::float32, s), indices,
                                 astype(updates, Dtype::float32, s), std::move(p), s);
    return as_result(wide, a.dtype(), s);
  }
  inputs.insert(inputs.begin(), a);
  inputs.push_back(astype(updates, a.dtype(), s));
  p.slice_sizes = std::move(sizes);
  p.reduce = static_cast<int>(reduce_on(a, reduce));
  return make_node(rows::scatter, std::move(inputs), std::move(p), s);
}

array dynamic_slice_update(const array& a, const array& update, const array& start,
                           const AxisList& axes, const S& s) {
  const char* op = "slice_update";
  const MeantScope meant(op);
  const Axes along = resolve_axes_in_order(op, axes, a.ndim());
  const Arrays indices = start_indices(op, start, axes, s);
  CERMET_CHECK(update.ndim() <= a.ndim(), value, op,
               "an update of shape {} for an array of shape {}; it must not have more axes",
               update.shape(), a.shape());
  // Axes that the update lacks are filled, but for those where it is placed.
  AxisList leading;
  for (int i = update.ndim(); i < a.ndim(); ++i) leading.push_back(i - update.ndim());
  array values = leading.empty() ? update : expand_dims(update, leading, s);
  Shape filled = values.shape();
  for (int64_t axis : leading)
    if (std::ranges::find(along, axis) == along.end())
      filled.dim(static_cast<int>(axis)) = a.shape().dim(static_cast<int>(axis));
  values = broadcast_to(values, filled, s);
  for (int i = 0; i < a.ndim(); ++i)
    CERMET_CHECK(!is_less(a.shape().dim(i), values.shape().dim(i)), value, op,
                 "an update of shape {} for an array of shape {}; it must fit along each axis",
                 update.shape(), a.shape());
  if (!axes.empty()) return scatter(a, indices, values, along, ScatterReduce::assign, s);
  return sized_slice_update(a, values, origin_of(a), SliceSteps(a.ndim(), 1), ScatterReduce::assign,
                            s);
}

array scatter_along_axis(const array& a, const array& indices, const array& values, int64_t axis,
                         ScatterReduce reduce, const S& s) {
  const int along = normalize_axis(MeantScope::name_or("scatter_along_axis"), axis, a.ndim());
  return scattered_along(a, indices, values, {.axes = {along}, .reduce = static_cast<int>(reduce)},
                         s);
}

array rules::scattered_along(const array& a, const array& indices, const array& values,
                             GatherParams p, const S& s) {
  const char* op = MeantScope::name_or("scatter_along_axis");
  const int along = p.axes[0];
  const auto reduce = static_cast<ScatterReduce>(p.reduce);
  CERMET_CHECK(indices.ndim() == a.ndim(), value, op,
               "indices of shape {} for an array of shape {}; they must have as many axes",
               indices.shape(), a.shape());
  CERMET_CHECK(is_integer(indices.dtype()), dtype, op,
               "the indices have dtype {}; they must be integers", indices.dtype());
  Shape shape = a.shape();
  shape.dim(along) = indices.shape().dim(along);
  const array at = broadcast_to(indices, shape, s);
  if (is_zero(at.shape().count())) return a;
  if (combines_in_float(a, reduce)) {
    const array wide = scattered_along(astype(a, Dtype::float32, s), indices,
                                       astype(values, Dtype::float32, s), std::move(p), s);
    return as_result(wide, a.dtype(), s);
  }
  check_has_elements(op, a, along, indices);
  p.reduce = static_cast<int>(reduce_on(a, reduce));
  return make_node(rows::scatter_along_axis, {a, at, fit(values, shape, a.dtype(), s)},
                   std::move(p), s);
}

array put_along_axis(const array& a, const array& indices, const array& values,
                     std::optional<int64_t> axis, const S& s) {
  const MeantScope meant("put_along_axis");
  if (axis) return scatter_along_axis(a, indices, values, *axis, ScatterReduce::assign, s);
  const array flat = flatten(a, 0, -1, s);
  const array at = flatten(indices, 0, -1, s);
  const array from = same_size(values.shape().count(), 1)
                         ? reshape(values, {1}, s)
                         : flatten(broadcast_to(values, indices.shape(), s), 0, -1, s);
  const array put = scatter_along_axis(flat, at, from, 0, ScatterReduce::assign, s);
  return put.shape() == a.shape() ? put
                                  : make_node(rows::reshape, {put}, ShapeParams{a.shape()}, s);
}

}  // namespace cermet
