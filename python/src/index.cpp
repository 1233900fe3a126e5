// SPDX-License-Identifier: MIT
// Reading and writing by index: slices become slice and slice_update, index arrays gather and scatter.
// Writing moves the handle to a new node; the Python object stays.
#include <algorithm>

#include "graph/meant_scope.h"
#include "index_plan.h"
#include "selection.h"

namespace cermet::python {

namespace {

using Kind = IndexEntry::Kind;
constexpr int64_t kInt32Range = int64_t{1} << 31;

// --- reading ---

struct SliceArguments {
  PerAxis start;
  SliceSteps step;
  Shape size;
  bool whole = true;  // nothing is cut off
};

// For each axis of the array; an axis with an index array is taken whole.
SliceArguments slice_arguments(const array& a, const IndexPlan& plan) {
  SliceArguments s;
  for (const IndexEntry& e : plan.entries) {
    if (e.axis < 0) continue;
    const bool whole = e.kind == Kind::indices || e.whole;
    s.start.push_back(whole ? Dim(0) : e.start);
    s.step.push_back(whole ? 1 : e.step);
    s.size.push_back(whole ? a.shape().dim(e.axis) : e.kind == Kind::integer ? Dim(1) : e.size);
    s.whole = s.whole && whole;
  }
  return s;
}

template <typename Keep>
AxisList positions(const IndexPlan& plan, Keep&& keep, int64_t shift = 0) {
  AxisList found;
  for (size_t i = 0; i < plan.entries.size(); i++)
    if (keep(plan.entries[i])) found.push_back(static_cast<int64_t>(i) + shift);
  return found;
}

// One axis for each entry: integers of size 1, new axes inserted.
array aligned(const array& a, const IndexPlan& plan) {
  SliceArguments s = slice_arguments(a, plan);
  array result = s.whole ? a : sized_slice(a, s.start, s.step, s.size);
  const AxisList inserted = positions(plan, [](const IndexEntry& e) { return e.axis < 0; });
  return inserted.empty() ? result : expand_dims(result, inserted);
}

// Moves `count` leading axes behind the next `before`.
array axes_behind(const array& a, int count, int before) {
  AxisList order;
  for (int i = 0; i < before; i++) order.push_back(count + i);
  for (int i = 0; i < count; i++) order.push_back(i);
  for (int i = count + before; i < a.ndim(); i++) order.push_back(i);
  return transpose(a, order);
}

int kept_before_first(const IndexPlan& plan) {
  const auto end = plan.entries.begin() + static_cast<ptrdiff_t>(plan.first);
  return static_cast<int>(std::count_if(plan.entries.begin(), end,
                                        [&](const IndexEntry& e) { return plan.is_kept(e); }));
}

array get_advanced(const array& a, const IndexPlan& plan) {
  const array source = aligned(a, plan);
  Arrays indices;
  Axes axes;
  Shape sizes = source.shape();
  for (int i = 0; i < source.ndim(); i++) {
    const IndexEntry& e = plan.entries[static_cast<size_t>(i)];
    if (e.kind != Kind::indices) continue;
    indices.push_back(*e.indices);
    axes.push_back(i);
    sizes.dim(i) = 1;
  }
  if (indices.size() > 1) indices = broadcast_arrays(indices);
  const int index_ndim = plan.index_shape.ndim();
  const MeantScope meant("index");
  array result = gather(source, indices, axes, sizes);
  result = squeeze(
      result, positions(plan, [&](const IndexEntry& e) { return !plan.is_kept(e); }, index_ndim));
  const int before = plan.adjacent ? kept_before_first(plan) : 0;
  return before > 0 && index_ndim > 0 ? axes_behind(result, index_ndim, before) : result;
}

array get_planned(const array& a, const IndexPlan& plan) {
  if (plan.selects_all()) return a;
  if (plan.advanced) return get_advanced(a, plan);
  const array result = aligned(a, plan);
  const AxisList dropped =
      positions(plan, [](const IndexEntry& e) { return e.kind == Kind::integer; });
  return dropped.empty() ? result : squeeze(result, dropped);
}

// --- writing ---

// The value in the array's dtype; a Python number must fit it.
array value_for(const array& a, nb::handle value) {
  CERMET_CHECK(!value.is_none(), type, "index", "None was assigned; give a number or an array");
  const array v = to_array_like("index", value, a);
  return v.dtype() == a.dtype() ? v : astype(v, a.dtype());
}

// As NumPy, further leading axes of size 1 are ignored in an assignment.
array fit(const array& value, const Shape& shape) {
  AxisList leading;
  while (value.ndim() - static_cast<int>(leading.size()) > shape.ndim() &&
         same_size(value.shape().dim(static_cast<int>(leading.size())), 1))
    leading.push_back(static_cast<int64_t>(leading.size()));
  array fitted = leading.empty() ? value : squeeze(value, leading);
  if (fitted.shape() == shape) return fitted;
  CERMET_CHECK(broadcast_shapes("index", fitted.shape(), shape) == shape, value, "index",
               "a value of shape {} for a selection of shape {}; counted from the last axis, its "
               "sizes must be equal or 1",
               value.shape().to_string(), shape.to_string());
  return broadcast_to(fitted, shape);
}

// The value in the shape of the slice of each axis of the array.
array slice_shaped(const array& value, const IndexPlan& plan) {
  array result = value;
  const AxisList dropped =
      positions(plan, [](const IndexEntry& e) { return e.kind == Kind::integer; });
  if (!dropped.empty()) result = expand_dims(result, dropped);
  const AxisList inserted = positions(plan, [](const IndexEntry& e) { return e.axis < 0; });
  return inserted.empty() ? result : squeeze(result, inserted);
}

array update_slices(const array& a, const array& value, const IndexPlan& plan,
                    ScatterReduce reduce) {
  SliceArguments s = slice_arguments(a, plan);
  array update = slice_shaped(value, plan);
  if (s.whole && reduce == ScatterReduce::assign) return update;
  return sized_slice_update(a, update, s.start, s.step, reduce);
}

// scatter knows index arrays and whole axes: a partial slice is the index array of its positions, which
// has a dimension of its own behind those of the user's index arrays.
class ScatterUpdate {
 public:
  ScatterUpdate(const array& a, const IndexPlan& plan) : a_(a), plan_(plan) {
    for (const IndexEntry& e : plan.entries) partial_ += is_partial(e);
  }

  array run(const array& value, ScatterReduce reduce) {
    const MeantScope meant("index");
    collect_indices();
    return scatter(a_, broadcast_arrays(indices_), updates(value), axes_, reduce);
  }

 private:
  static bool is_partial(const IndexEntry& e) { return e.kind == Kind::slice && !e.whole; }

  void add(int axis, const array& indices) {
    axes_.push_back(axis);
    indices_.push_back(indices);
  }

  // [index dimensions..., 1 for each partial slice]
  array behind(const array& indices, int at) const {
    AxisList ones;
    const int ndim = at < 0 ? indices.ndim() : 0;
    for (int i = 0; i < partial_; i++)
      if (i != at) ones.push_back(ndim + i);
    return ones.empty() ? indices : expand_dims(indices, ones);
  }

  array positions_of(const IndexEntry& e, int at) const {
    const Dtype dtype = is_less(a_.shape().dim(e.axis), kInt32Range) ? Dtype::int32 : Dtype::int64;
    const Dim stop = plus(e.start, times(e.size, e.step));
    return behind(arange(number(e.start), number(stop), number(e.step), dtype), at);
  }

  void collect_indices() {
    int at = 0;
    for (const IndexEntry& e : plan_.entries) {
      if (e.kind == Kind::integer) add(e.axis, full(Shape{}, number(e.start), Dtype::int64));
      else if (e.kind == Kind::indices) add(e.axis, behind(*e.indices, -1));
      else if (is_partial(e)) add(e.axis, positions_of(e, at++));
    }
  }

  // value, of the result's shape, with its axes in the order: index dimensions, partial slices, whole
  // axes, new axes; the latter dropped, and a 1 for each axis that scatter indexes.
  array updates(const array& value) const {
    const int index_ndim = plan_.index_shape.ndim();
    const int before = plan_.adjacent ? kept_before_first(plan_) : 0;
    AxisList order, partial, whole, inserted;
    for (int i = 0; i < index_ndim; i++) order.push_back(before + i);
    int kept = 0;
    for (const IndexEntry& e : plan_.entries) {
      if (!plan_.is_kept(e)) continue;
      const int at = kept < before ? kept : kept + index_ndim;
      kept++;
      (e.kind == Kind::newaxis ? inserted : is_partial(e) ? partial : whole).push_back(at);
    }
    for (const AxisList* list : {&partial, &whole, &inserted})
      order.insert(order.end(), list->begin(), list->end());
    array result = transpose(value, order);
    AxisList dropped;
    for (size_t i = 0; i < inserted.size(); i++)
      dropped.push_back(static_cast<int64_t>(order.size() - inserted.size() + i));
    if (!dropped.empty()) result = squeeze(result, dropped);
    AxisList ones;
    for (int axis : axes_) ones.push_back(index_ndim + partial_ + axis);
    return expand_dims(result, ones);
  }

  const array& a_;
  const IndexPlan& plan_;
  int partial_ = 0;
  Arrays indices_;
  Axes axes_;
};

array update_planned(const array& a, nb::handle value, const IndexPlan& plan,
                     ScatterReduce reduce) {
  const array v = fit(value_for(a, value), plan.result_shape());
  if (same_size(v.shape().count(), 0)) return a;
  if (!plan.advanced) return update_slices(a, v, plan, reduce);
  const array updated = ScatterUpdate(plan.with_masked(a), plan).run(v, reduce);
  return plan.masked.empty() ? updated : squeeze(updated, plan.masked);
}

array combined(const array& a, const array& value, ScatterReduce reduce) {
  switch (reduce) {
    case ScatterReduce::add: return add(a, value);
    case ScatterReduce::multiply: return multiply(a, value);
    case ScatterReduce::maximum: return maximum(a, value);
    case ScatterReduce::minimum: return minimum(a, value);
    case ScatterReduce::assign: break;
  }
  return value;
}

// a, with value in it where the mask over its leading axes holds.
array chosen(const array& a, const array& mask, const array& value, ScatterReduce reduce) {
  AxisList behind;
  for (int axis = mask.ndim(); axis < a.ndim(); axis++) behind.push_back(axis);
  const array condition = behind.empty() ? mask : expand_dims(mask, behind);
  return where(condition, combined(a, broadcast_to(value, a.shape()), reduce), a);
}

// Without looking at the mask, where the value does not depend on how many elements it chooses.
std::optional<array> update_masked(const array& a, const array& mask, const array& value,
                                   ScatterReduce reduce) {
  const int rest = a.ndim() - mask.ndim();
  array v = value;
  if (v.ndim() > rest) {
    AxisList leading;
    for (int i = 0; i < v.ndim() - rest; i++) {
      if (!same_size(v.shape().dim(i), 1)) return std::nullopt;
      leading.push_back(i);
    }
    v = squeeze(v, leading);
  }
  return chosen(a, mask, v, reduce);
}

// The k-th place that the mask chooses takes the k-th row of the value. A mask that chooses more places than
// there are rows makes an index that is out of range, which evaluation tells of. (Of no rows there is one that
// serves places that are not chosen, before the others.)
array update_unseen(const array& a, const array& mask, const array& value, ScatterReduce reduce) {
  const int rest = a.ndim() - mask.ndim();
  array rows = value;
  AxisList leading;
  while (rows.ndim() - static_cast<int>(leading.size()) > rest + 1 &&
         same_size(rows.shape().dim(static_cast<int>(leading.size())), 1))
    leading.push_back(static_cast<int64_t>(leading.size()));
  if (!leading.empty()) rows = squeeze(rows, leading);
  CERMET_CHECK(rows.ndim() == rest + 1, value, "index",
               "a value of shape {} for the places that a mask of shape {} chooses in an array of "
               "shape {}; it must have {} axes at most, the first along the places",
               value.shape().to_string(), mask.shape().to_string(), a.shape().to_string(),
               rest + 1);
  const bool is_empty = same_size(rows.shape().dim(0), 0);
  Shape row_shape{is_empty ? Dim(1) : rows.shape().dim(0)};
  for (int axis = mask.ndim(); axis < a.ndim(); axis++) row_shape.push_back(a.shape().dim(axis));
  rows = is_empty ? zeros(row_shape, rows.dtype()) : broadcast_to(rows, row_shape);
  const bool narrow = is_less(mask.shape().count(), kInt32Range);
  const array flags = astype(flatten(mask), narrow ? Dtype::int32 : Dtype::int64);
  const array counts = cumsum(flags, 0);
  const array at = is_empty ? counts : subtract(counts, ones_like(counts));
  const auto& dims = a.shape().dims();
  const MeantScope meant("index");
  const array values = reshape(take(rows, at, 0), ShapeList(dims.begin(), dims.end()));
  return chosen(a, mask, values, reduce);
}

// As MLX, a value may have more rows than the mask chooses: the first are taken.
nb::object shortened(const array& value, const IndexPlan& plan, int rest) {
  const int64_t count = plan.index_shape[0];
  if (value.ndim() != rest + 1 || value.shape(0) <= count) return nb::cast(value);
  Shape size = value.shape();
  size.dim(0) = count;
  const PerAxis start(std::vector<Dim>(static_cast<size_t>(value.ndim()), 0));
  return nb::cast(
      sized_slice(value, start, SliceSteps(static_cast<size_t>(value.ndim()), 1), size));
}

array update(const array& a, nb::handle index, nb::handle value, ScatterReduce reduce) {
  const std::optional<array> mask = sole_mask(a, index);
  if (!mask) return update_planned(a, value, plan_index(a, index), reduce);
  if (is_selection(value))
    return chosen(a, *mask, values_at(a, *mask, nb::cast<const Selection&>(value)), reduce);
  const array v = value_for(a, value);
  if (std::optional<array> done = update_masked(a, *mask, v, reduce)) return *done;
  if (stands_for_argument(mask->node())) return update_unseen(a, *mask, v, reduce);
  const IndexPlan plan = plan_index(a, nb::cast(*mask));
  return update_planned(a, shortened(v, plan, a.ndim() - mask->ndim()), plan, reduce);
}

// Division at repeated integer indices divides by the product of the values given there.
array divide_at(const array& a, nb::handle index, nb::handle value) {
  if (is_inexact(a.dtype())) {
    const auto inverse = [&](nb::handle divisor) {
      const array v = value_for(a, divisor);
      return divide(ones_like(v), v);
    };
    return update(a, index, element_wise(inverse, value), ScatterReduce::multiply);
  }
  const array given = to_array_like("index", value, a);
  const bool is_whole = !is_inexact(given.dtype());
  const array v = is_whole ? astype(given, a.dtype()) : given;
  const array ones = full(a.shape(), number(true), v.dtype());
  const array divisor = update(ones, index, nb::cast(v), ScatterReduce::multiply);
  return is_whole ? floor_divide(a, divisor) : astype(divide(a, divisor), a.dtype());
}

}  // namespace

array get_item(const array& a, nb::handle index) {
  const IndexPlan plan = plan_index(a, index);
  return get_planned(plan.with_masked(a), plan);
}

ArrayOrSelection select_item(const array& a, nb::handle index) {
  if (is_array(index) || PyTuple_Check(index.ptr())) {
    const std::optional<array> mask = sole_mask(a, index);
    if (mask && is_unknown(*mask)) return selection_object(selection_of(a, *mask));
  }
  return nb::steal<ArrayOrSelection>(array_object(get_item(a, index)).release());
}

void set_item(array& a, nb::handle index, nb::handle value) {
  for (;;) {
    const array before = a;
    array after = update(before, index, value, ScatterReduce::assign);
    if (a.node() != before.node())
      continue;  // another thread has assigned while this one evaluated
    a = std::move(after);
    return;
  }
}

array update_item(const array& a, nb::handle index, nb::handle value, ScatterReduce reduce,
                  bool inverse) {
  if (!inverse) return update(a, index, value, reduce);
  if (reduce == ScatterReduce::multiply) return divide_at(a, index, value);
  const auto opposite = [&](nb::handle v) { return negative(value_for(a, v)); };
  return update(a, index, element_wise(opposite, value), reduce);
}

}  // namespace cermet::python
