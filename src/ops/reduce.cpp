// SPDX-License-Identifier: MIT
// Reductions that are one fold. Initial states are neutral under merging: the zero of sum is -0.
// Sums and products of narrow integers widen to 32 bits; halves accumulate in float32. NaN wins
// over numbers in min, max and their arg forms.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "ops/complex_math.h"
#include "ops/fold_states.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;
using ir::ExprId;

namespace {

Axes folded_axes(const NodeView& n) { return n.get<ReduceParams>().axes; }

Dtype accumulated_dtype(const OpCall& call) {
  const Dtype dtype = call.inputs[0].dtype();
  if (dtype == Dtype::boolean) return Dtype::int32;
  if (!is_integer(dtype) || size_of(dtype) >= 4) return dtype;
  return is_signed(dtype) ? Dtype::int32 : Dtype::uint32;
}

Shape reduce_shape(const OpCall& call) {
  const ReduceParams& p = call.get<ReduceParams>();
  return reduced_shape(call.inputs[0].shape(), p.axes, p.keepdims);
}

// A value per reduced group, with the reduced axes back as size 1.
array with_reduced_axes(const OpCall& c, const array& value) {
  const ReduceParams& p = c.get<ReduceParams>();
  if (p.keepdims) return value;
  AxisList axes(p.axes.begin(), p.axes.end());
  return axes.empty() ? value : expand_dims(value, axes);
}

array spread(const OpCall& c, const array& value) {
  return broadcast_to(with_reduced_axes(c, value), c.inputs[0].shape());
}

// --- sum and prod ---

// The product of the other elements of the group, right where elements are 0.
array prod_of_others(const OpCall& c, const array& y) {
  const array& x = c.inputs[0];
  const array zero = full_like(x, 0), one = full_like(x, 1);
  const array is_zero = x == zero;
  const AxisList axes(c.get<ReduceParams>().axes.begin(), c.get<ReduceParams>().axes.end());
  const array zeros_in_group = broadcast_to(cermet::sum(is_zero, axes, true), x.shape());
  const array nonzero = cermet::prod(cermet::select(is_zero, one, x), axes, true);
  const array of_zero = cermet::select(zeros_in_group == 1, broadcast_to(nonzero, x.shape()), zero);
  const array of_nonzero =
      cermet::select(zeros_in_group == 0, spread(c, y) / cermet::select(is_zero, one, x), zero);
  return cermet::select(is_zero, of_zero, of_nonzero);
}

// --- min and max ---

// 1 where an element is the extremum of its group, divided by how many are: ties share.
array extremum_weights(const OpCall& c, const array& y) {
  const array& x = c.inputs[0];
  const array is_chosen = astype(x == spread(c, y), real_of(x.dtype()));
  const AxisList axes(c.get<ReduceParams>().axes.begin(), c.get<ReduceParams>().axes.end());
  return is_chosen / cermet::sum(is_chosen, axes, true);
}

constexpr Opaque kExtremumDerivative = {
    .jvp =
        [](const OpCall& c, const array& y, int, const array& t) {
          const ReduceParams& p = c.get<ReduceParams>();
          const AxisList axes(p.axes.begin(), p.axes.end());
          return sum(t * extremum_weights(c, y), axes, p.keepdims);
        },
    .vjp = [](const OpCall& c, const array& y, int,
              const array& g) { return spread(c, g) * extremum_weights(c, y); }};

// A NaN is passed over: one instruction for a vector of floats.
States max_number_states(LowerContext& cx, const NodeView& n, Lane element, ExprId) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = compute_dtype(n.dtype);
  const ExprId state = b.state(0, dtype);
  const auto larger = [&](ExprId x) { return b.select(b.compare(Code::lt, state, x), x, state); };
  return {{dtype, lowest(b, dtype, true), larger(element.re), larger(b.other(0, dtype))}};
}

// --- any and all ---

template <Code code>
States truth_states(LowerContext& cx, const NodeView&, Lane element, ExprId) {
  ir::Builder& b = cx.builder();
  const ExprId state = b.state(0, Dtype::boolean);
  return {{Dtype::boolean, b.constant(Dtype::boolean, code == Code::bit_and),
           b.op(code, Dtype::boolean, {state, truth(b, element)}),
           b.op(code, Dtype::boolean, {state, b.other(0, Dtype::boolean)})}};
}

// --- argmin and argmax: the value so far (one or two parts), then its position ---

Shape arg_shape(const OpCall& call) {
  const AxisParams& p = call.get<AxisParams>();
  return reduced_shape(call.inputs[0].shape(), {p.axis}, p.flag);
}

ExprId same_value(ir::Builder& b, const Lane& x, const Lane& y) {
  const ExprId re = b.compare(Code::eq, x.re, y.re);
  ExprId same = x.im == ir::kNone ? re : b.logical_and(re, b.compare(Code::eq, x.im, y.im));
  if (!is_floating(b.dtype(x.re))) return same;
  ComplexMath math(b, b.dtype(x.re));
  auto is_nan = [&](const Lane& a) {
    return a.im == ir::kNone ? b.compare(Code::ne, a.re, a.re) : math.is_nan(a);
  };
  return b.logical_or(same, b.logical_and(is_nan(x), is_nan(y)));
}

struct Place {
  Lane value;
  ExprId position;
};

template <bool want_max>
Place better_place(ir::Builder& b, const Place& so_far, const Place& next) {
  const ExprId is_earlier = b.compare(Code::lt, next.position, so_far.position);
  const ExprId take =
      b.logical_or(beats<want_max>(b, next.value, so_far.value),
                   b.logical_and(same_value(b, next.value, so_far.value), is_earlier));
  return {select_lane(b, take, next.value, so_far.value),
          b.select(take, next.position, so_far.position)};
}

constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();

// As better_place, for elements that come in order: of equal ones the earlier is there already.
template <bool want_max>
Place next_place(ir::Builder& b, const Place& so_far, const Place& next) {
  const ExprId none = b.compare(Code::eq, so_far.position, b.integer(Dtype::uint32, kNowhere));
  const ExprId take = b.logical_or(beats<want_max>(b, next.value, so_far.value), none);
  return {select_lane(b, take, next.value, so_far.value),
          b.select(take, next.position, so_far.position)};
}

template <bool want_max>
States arg_states(LowerContext& cx, const NodeView& n, Lane element, ExprId position) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = compute_dtype(n.input_dtypes[0]), index = Dtype::uint32;
  const bool two_parts = is_complex(n.input_dtypes[0]);
  const int last = two_parts ? 2 : 1;
  const Place so_far{{b.state(0, dtype), two_parts ? b.state(1, dtype) : ir::kNone},
                     b.state(last, index)};
  const Place right{{b.other(0, dtype), two_parts ? b.other(1, dtype) : ir::kNone},
                    b.other(last, index)};
  const Place step = next_place<want_max>(b, so_far, {element, b.cast(position, index)});
  const Place merge = better_place<want_max>(b, so_far, right);
  const ExprId init = lowest(b, dtype, want_max);
  States states{{dtype, init, step.value.re, merge.value.re}};
  if (two_parts) states.push_back({dtype, init, step.value.im, merge.value.im});
  states.push_back({index, b.integer(index, kNowhere), step.position, merge.position});
  return states;
}

Lane finish_arg(LowerContext&, const NodeView&, std::span<const ExprId> states) {
  return {states.back()};
}

// --- folds of a few elements ---

using Combine = array (*)(const array&, const array&, const S&);

// Parts in the order of a fold: of the last axis as lanes are merged, by halving, else one after another.
array merged(Arrays parts, bool in_lanes, Combine combine) {
  if (!in_lanes) {
    array all = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) all = combine(all, parts[i], {});
    return all;
  }
  for (size_t half = std::bit_ceil(parts.size()) / 2; half > 0; half /= 2) {
    for (size_t i = half; i < parts.size(); ++i)
      parts[i - half] = combine(parts[i - half], parts[i], {});
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(std::min(half, parts.size())), parts.end());
  }
  return parts[0];
}

// Of these axes, outer to inner. Parts are cast one by one, so that they are read from where `a` is.
array merged_along(const array& a, std::span<const Dtype> casts, std::span<const int> axes,
                   Combine combine) {
  if (axes.empty()) return astype(astype(a, casts[0]), casts[1]);
  const int axis = axes[0];
  Arrays parts;
  for (int64_t i = 0; i < a.shape()[axis]; ++i)
    parts.push_back(merged_along(slice_at(a, axis, i), casts, axes.subspan(1), combine));
  bool is_last = true;
  for (int i = axis + 1; i < a.ndim(); ++i) is_last = is_last && a.shape()[i] == 1;
  return merged(std::move(parts), is_last, combine);
}

// Along a short last axis and others that lie apart from it, as of the channels and places of a group: first along
// the others, where vectors reach over kept axes and the short one, then along that.
template <Combine combine>
std::optional<array> in_two_folds(const OpCall& c, const std::vector<int>& axes) {
  constexpr int64_t kFewInRow = 16, kShortRow = 64, kManyOthers = 8, kManyLanes = 16;
  const array& x = c.inputs[0];
  size_t outer = axes.size() - 1;  // axes before the last run of folded ones
  Dim in_row = x.shape()[axes.back()], others = 1, kept = 1;
  const auto kept_before = [&](size_t i) {
    Dim between = 1;
    for (int axis = axes[i - 1] + 1; axis < axes[i]; ++axis) between *= x.shape()[axis];
    return between;
  };
  for (; outer > 0 && (kept = kept_before(outer)) == 1; --outer)
    in_row *= x.shape()[axes[outer - 1]];
  for (size_t i = 0; i < outer; ++i) others *= x.shape()[axes[i]];
  for (int axis = axes.back() + 1; axis < x.ndim(); ++axis)
    if (x.shape()[axis] != 1) return std::nullopt;
  if (outer == 0 || in_row > kShortRow || others < kManyOthers || kept * in_row < kManyLanes)
    return std::nullopt;
  const array wide = is_half(x.dtype()) ? astype(x, Dtype::float32) : x;
  const array parts =
      make_node(c.row, {wide}, ReduceParams{{axes.begin(), axes.begin() + outer}, true}, {});
  const std::span<const int> row = std::span(axes).subspan(outer);
  const array all =
      in_row <= kFewInRow
          ? merged_along(parts, std::array{parts.dtype(), parts.dtype()}, row, combine)
          : make_node(c.row, {parts}, ReduceParams{{row.begin(), row.end()}, true}, {});
  return make_node(rows::reshape, {as_result(all, c.row.dtype.value(c))},
                   ShapeParams{c.row.shape.value(c)}, {});
}

// Windows: places that are more than the elements they are at.
bool overlaps(const Shape& shape, const Layout& layout) {
  Dim places = 1, elements = 1;
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    const Dim& stride = layout.strides[static_cast<size_t>(axis)];
    if (stride == 0) continue;
    places *= shape[axis];
    elements += (shape[axis] - 1) * (stride < 0 ? Dim(0) - stride : stride);
  }
  return places > elements;
}

// Not one run: other axes lie between, or other elements.
bool lie_apart(const Shape& shape, const std::optional<Layout>& layout, int axis, int next) {
  Dim between = 1;
  for (int other = axis + 1; other < next; ++other) between *= shape[other];
  if (between > 1 || !layout) return between > 1;
  return layout->strides[static_cast<size_t>(axis)] !=
         shape[next] * layout->strides[static_cast<size_t>(next)];
}

// Along one axis, or along several that lie apart, as of a pool's windows: these do not wait for the input to be
// in memory, since a row or column of a kernel would be as short as a window. Short rows are done by vectors of
// rows anyway, unless they are windows, which have elements in common.
template <Combine combine>
std::optional<array> few_elements(const OpCall& c, const FoldLowering::Input& input) {
  constexpr int64_t kFew = 4, kFewInWindow = 16, kFewInOverlap = 64;
  const array& x = c.inputs[0];
  std::vector<int> axes;
  Dim count = 1;
  for (int axis : c.get<ReduceParams>().axes)
    if (x.shape()[axis] != 1) axes.push_back(axis), count *= x.shape()[axis];
  bool are_apart = axes.size() > 1;
  for (size_t i = 1; i < axes.size(); ++i)
    are_apart = are_apart && lie_apart(x.shape(), input.layout, axes[i - 1], axes[i]);
  const bool is_window = are_apart && axes.back() == x.ndim() - 1;
  bool overlap = input.layout && overlaps(x.shape(), *input.layout);
  for (int axis : axes) overlap = overlap && input.layout->strides[static_cast<size_t>(axis)] != 0;
  const int64_t few = overlap ? kFewInOverlap : are_apart ? kFewInWindow : kFew;
  const bool is_few = count <= few && (are_apart || axes.size() == 1);
  const bool is_row = axes.size() == 1 && axes[0] == x.ndim() - 1;
  const bool in_memory = input.is_there && !(input.is_in_rows && is_row);
  if (count <= 1 || is_complex(x.dtype())) return std::nullopt;
  if (!is_few) return in_two_folds<combine>(c, axes);  // whatever is in memory: other bits
  if (x.shape().count() < kLeastResults * count || (!in_memory && !is_window)) return std::nullopt;
  const Dtype dtype = c.row.dtype.value(c), wide = wide_dtype(dtype);
  const bool is_cast = x.node()->row == &rows::cast && !x.is_ready() &&
                       (std::get<CastParams>(x.node()->params).rounds || !is_half(x.dtype()));
  const array source = is_cast ? array(x.node()->inputs[0]) : x;
  const array all = merged_along(source, std::array{x.dtype(), wide}, axes, combine);
  return make_node(rows::reshape, {as_result(all, dtype)}, ShapeParams{c.row.shape.value(c)}, {});
}

// --- builders ---

struct Reduction {
  const OpRow& row;
  Dtype dtype;        // of the result
  bool has_identity;  // else an empty group is an error
  double identity = 0;
};

array reduce(const Reduction& r, const array& a, const OptionalAxes& axes, bool keepdims,
             const S& s) {
  Axes over = resolve_axes(r.row.name, axes, a.ndim());
  if (over.empty()) return astype(a, r.dtype, s);
  bool is_empty = false;
  for (int axis : over) is_empty |= is_zero(a.shape().dim(axis));
  if (is_empty) {
    const Shape shape = reduced_shape(a.shape(), over, keepdims);
    CERMET_CHECK(r.has_identity || shape.size() == 0, value, r.row.name,
                 "shape {} has no elements along the reduced axes; reduce axes of size >= 1",
                 a.shape());
    return full(shape, number(r.identity), r.dtype, s);
  }
  return make_node(r.row, pack(a), ReduceParams{std::move(over), keepdims}, s);
}

Dtype total_dtype(const array& a, const OpRow& row) {
  const Params none = NoParams{};
  return accumulated_dtype({row, none, {&a, 1}});
}

array arg_reduce(const OpRow& row, const array& a, std::optional<int64_t> axis, bool keepdims,
                 const S& s) {
  if (axis) {
    const int over = normalize_axis(row.name, *axis, a.ndim());
    CERMET_CHECK(!is_zero(a.shape().dim(over)), value, row.name,
                 "shape {} has no elements along axis {}; reduce an axis of size >= 1", a.shape(),
                 over);
    return make_node(row, pack(a), AxisParams{over, keepdims}, s);
  }
  const array flat = flatten(a, 0, -1, s);
  CERMET_CHECK(!is_zero(flat.shape().dim(0)), value, row.name,
               "shape {} has no elements; there is no largest or smallest one", a.shape());
  const array index = make_node(row, {flat}, AxisParams{0, false}, s);
  return keepdims ? reshape(index, ShapeList(a.ndim(), 1), s) : index;
}

}  // namespace

constinit const OpRow rows::sum = {
    .id = OpId::Sum,
    .name = "sum",
    .accepts = kAny,
    .dtype = accumulated_dtype,
    .shape = reduce_shape,
    .derivative = Linear{[](auto& c, int, auto& g) { return spread(c, g); }},
    .vmap = AxisShiftVmap{},
    .lowering = FoldLowering{sum_states, finish_part, folded_axes, few_elements<cermet::add>},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The sum over the axes; 0 for none. Integers below 32 bits and bools sum in 32 bits.",
};

constinit const OpRow rows::prod = {
    .id = OpId::Prod,
    .name = "prod",
    .accepts = kAny,
    .dtype = accumulated_dtype,
    .shape = reduce_shape,
    .derivative = Opaque{
        .jvp =
            [](auto& c, auto& y, int, auto& t) {
              const ReduceParams& p = c.template get<ReduceParams>();
              const AxisList axes(p.axes.begin(), p.axes.end());
              return cermet::sum(t * prod_of_others(c, y), axes, p.keepdims);
            },
        .vjp = [](auto& c, auto& y, int,
                  auto& g) { return spread(c, g) * conjugate_if_complex(prod_of_others(c, y)); }},
    .vmap = AxisShiftVmap{},
    .lowering = FoldLowering{prod_states, finish_part, folded_axes, few_elements<cermet::multiply>},
    .effect = Effect::none,
    .domain = Domain{0.5, 1.5},
    .max_ulp = 0,
    .doc =
        "The product over the axes; 1 for none. Integers below 32 bits and bools multiply in 32 "
        "bits.",
};

#define CERMET_REDUCE_ROW(enumerator, row_name, taken, result, rule, states, few, text)  \
  constinit const OpRow rows::row_name = {                                               \
      .id = OpId::enumerator,                                                            \
      .name = #row_name,                                                                 \
      .accepts = taken,                                                                  \
      .dtype = result,                                                                   \
      .shape = reduce_shape,                                                             \
      .derivative = rule,                                                                \
      .vmap = AxisShiftVmap{},                                                           \
      .lowering = FoldLowering{states, finish_part, folded_axes, few},                   \
      .effect = Effect::none,                                                            \
      .domain = Domain{},                                                                \
      .max_ulp = 0,                                                                      \
      .doc = text,                                                                       \
  };
CERMET_REDUCE_ROW(Min, min, kAny, same_dtype, kExtremumDerivative, extremum_states<false>,
                  few_elements<cermet::minimum>,
                  "The smallest element over the axes, NaN if there is one. Ties share the "
                  "derivative.")
CERMET_REDUCE_ROW(Max, max, kAny, same_dtype, kExtremumDerivative, extremum_states<true>,
                  few_elements<cermet::maximum>,
                  "The largest element over the axes, NaN if there is one. Ties share the "
                  "derivative.")
CERMET_REDUCE_ROW(MaxNumber, max_number, kFloats, same_dtype, kExtremumDerivative,
                  max_number_states, nullptr,
                  "The largest number among the elements over the axes, -inf if there is none.")
CERMET_REDUCE_ROW(Any, any, kAny, boolean_dtype, Zero{}, truth_states<Code::bit_or>,
                  few_elements<cermet::logical_or>, "Whether an element over the axes is not zero.")
CERMET_REDUCE_ROW(All, all, kAny, boolean_dtype, Zero{}, truth_states<Code::bit_and>,
                  few_elements<cermet::logical_and>, "Whether no element over the axes is zero.")
#undef CERMET_REDUCE_ROW

#define CERMET_ARG_ROW(enumerator, row_name, want_max, text)                                \
  constinit const OpRow rows::row_name = {                                                  \
      .id = OpId::enumerator,                                                               \
      .name = #row_name,                                                                    \
      .accepts = kAny,                                                                      \
      .dtype = [](auto&) { return Dtype::uint32; },                                         \
      .shape = arg_shape,                                                                   \
      .derivative = Zero{},                                                                 \
      .vmap = AxisShiftVmap{},                                                              \
      .lowering = FoldLowering{arg_states<want_max>, finish_arg,                            \
                               [](auto& n) -> Axes {                                        \
                                 return {n.template get<AxisParams>().axis};                \
                               }},                                                          \
      .effect = Effect::none,                                                               \
      .domain = Domain{},                                                                   \
      .max_ulp = 0,                                                                         \
      .doc = text,                                                                          \
  };
CERMET_ARG_ROW(ArgMin, argmin, false,
               "The position of the smallest element along the axis, the first of equal ones; the "
               "first NaN if there is one.")
CERMET_ARG_ROW(ArgMax, argmax, true,
               "The position of the largest element along the axis, the first of equal ones; the "
               "first NaN if there is one.")
#undef CERMET_ARG_ROW

array sum(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  return reduce({rows::sum, total_dtype(a, rows::sum), true, 0}, a, axes, keepdims, s);
}

array prod(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  return reduce({rows::prod, total_dtype(a, rows::prod), true, 1}, a, axes, keepdims, s);
}

array min(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  return reduce({rows::min, a.dtype(), false}, a, axes, keepdims, s);
}

array max(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  return reduce({rows::max, a.dtype(), false}, a, axes, keepdims, s);
}

array any(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  return reduce({rows::any, Dtype::boolean, true, 0}, a, axes, keepdims, s);
}

array all(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  return reduce({rows::all, Dtype::boolean, true, 1}, a, axes, keepdims, s);
}

array argmin(const array& a, std::optional<int64_t> axis, bool keepdims, const S& s) {
  return arg_reduce(rows::argmin, a, axis, keepdims, s);
}

array argmax(const array& a, std::optional<int64_t> axis, bool keepdims, const S& s) {
  return arg_reduce(rows::argmax, a, axis, keepdims, s);
}

array count_nonzero(const array& a, const OptionalAxes& axes, bool keepdims, const S& s) {
  return sum(astype(a, Dtype::boolean, s), axes, keepdims, s);
}

std::pair<array, array> minmax(const array& a, const OptionalAxes& axes, bool keepdims,
                               const S& s) {
  return {min(a, axes, keepdims, s), max(a, axes, keepdims, s)};
}

}  // namespace cermet
