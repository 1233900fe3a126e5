// SPDX-License-Identifier: MIT
// Products with chosen matrices, and of parts of the sum: gather_mm, segmented_mm, block_masked_mm. No
// copy of what is chosen is made: matrices are read where they lie, by the product's packing. Rows that
// choose the same matrix are multiplied by it together, so it is read once; with many rows they are put
// in the order of their matrices first. The derivative by the matrices, scatter_mm, sums over such groups
// of rows, segment by segment.
#include <algorithm>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

constexpr int64_t kFewRows = 16;  // of a product that more rows of other products would speed up

Dtype product_dtype_of(const OpCall& call) { return rows::matmul.dtype.value(call); }

array shaped(const array& a, Shape shape, const S& s = {}) {
  if (shape == a.shape()) return a;
  return make_node(rows::reshape, pack(a), ShapeParams{std::move(shape)}, s);
}

array positions(const Dim& size, const S& s = {}) {
  return arange(number(int64_t{0}), number(size), number(int64_t{1}), Dtype::int32, s);
}

const Dim& last_dim(const array& a, int from_end = 1) { return a.shape().dim(a.ndim() - from_end); }

// The matrices of b that the indices choose, one for each. in_order: neighbours choose the same.
array chosen(const array& b, const array& indices, bool in_order) {
  Shape sizes = b.shape();
  sizes.dim(0) = 1;
  Shape shape = b.shape();
  shape.dim(0) = indices.shape().dim(0);
  GatherParams params{{0}, std::move(sizes)};
  params.in_order = in_order;
  return shaped(make_node(rows::gather, pack(b, indices), std::move(params), {}), shape);
}

// The same indices, none of them negative; one that is out of range raises.
array from_start(const array& indices, const Dim& size) {
  return take(positions(size), indices, 0);
}

// --- groups of rows ---

// Rows with the same index, in the order of the indices: which row is at each place, at which place each
// row is, and where groups begin and end (count x 2).
struct Groups {
  array row_at, place_of, bounds;
};

Groups groups_of(const array& indices, const Dim& count) {
  const Dim size = indices.shape().dim(0);
  const array index = from_start(indices, count);
  const array is_of = equal(expand_dims(index, {1}), expand_dims(positions(count), {0}));
  const array before = cumsum(astype(is_of, Dtype::int32), 0);
  const array sizes = sum(astype(is_of, Dtype::int32), AxisList{0});
  const array ends = cumsum(sizes, 0);
  const array starts = subtract(ends, sizes);
  const array own = take_along_axis(before, expand_dims(index, {1}), 1);
  const array place =
      add(take(starts, index, 0),
          subtract(squeeze(own, AxisList{1}), full(Shape{}, number(int64_t{1}), Dtype::int32)));
  const array rows = scatter_along_axis(zeros(Shape{size}, Dtype::int32), place, positions(size), 0,
                                        ScatterReduce::assign);
  return {rows, place, stack({starts, ends}, 1)};
}

// Of numbers of blocks of `rows` rows, those of the rows.
array rows_of(const array& blocks, const Dim& rows) {
  if (same_size(rows, 1)) return blocks;
  const array scale = full(Shape{}, number(rows), Dtype::int32);
  return flatten(add(multiply(expand_dims(blocks, {1}), scale), expand_dims(positions(rows), {0})));
}

array repeated(const array& indices, const Dim& rows) {
  if (same_size(rows, 1)) return indices;
  return flatten(broadcast_to(expand_dims(indices, {1}), Shape{indices.shape().dim(0), rows}));
}

// --- gather_mm: [r, m, k] x [e, k, n] with [r] indices ---

Shape gather_mm_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  shape.dim(2) = call.inputs[1].shape().dim(2);
  return shape;
}

array gather_mm_graph(const OpCall& call) {
  const array &a = call.inputs[0], &b = call.inputs[1], &indices = call.inputs[2];
  const bool in_order = call.get<GatherParams>().in_order;
  const int64_t products = a.shape()[0], rows = a.shape()[1], matrices = b.shape()[0];
  const int64_t all = products * rows;
  if (rows > kFewRows || all < (in_order ? 1 : 2) * matrices || all < 2)
    return matmul(a, chosen(b, indices, false));
  const Shape each{all, 1, a.shape()[2]};
  const Shape shape = gather_mm_shape(call);
  if (in_order)
    return shaped(matmul(shaped(a, each), chosen(b, repeated(indices, rows), true)), shape);
  const Groups groups = groups_of(indices, matrices);
  const array flat = shaped(a, {all, each[2]});
  const array x = shaped(take(flat, rows_of(groups.row_at, rows), 0), each);
  const array order = take(indices, groups.row_at, 0);
  const array y = matmul(x, chosen(b, repeated(order, rows), true));
  return shaped(take(shaped(y, {all, shape[2]}), rows_of(groups.place_of, rows), 0), shape);
}

array gather_mm_node(const array& a, const array& b, const array& indices, bool in_order,
                     const S& s = {}) {
  GatherParams params{{0}, {}};
  params.in_order = in_order;
  return make_node(rows::gather_mm, pack(a, b, indices), std::move(params), s);
}

// In one batch, each with matrices of its own.
array indices_of_batch(const array& indices, const Dim& count, const Dim& size) {
  const array first =
      multiply(batch_index(size, Shape{1}), full(Shape{}, number(count), Dtype::int64));
  return flatten(add(astype(from_start(indices, count), Dtype::int64), first));
}

array merged(const array& a) { return flatten(a, 0, 1); }

array vmap_gather_mm(const OpCall& call, std::span<const bool> batched, const Dim& size) {
  const array &a = call.inputs[0], &b = call.inputs[1], &indices = call.inputs[2];
  const bool in_order = call.get<GatherParams>().in_order;
  if (!batched[1] && !batched[2]) {  // more rows for each matrix
    const Shape& shape = a.shape();
    const array x = flatten(moveaxis(a, 0, 1), 1, 2);
    const array y = gather_mm_node(x, b, indices, in_order);
    return moveaxis(shaped(y, {shape.dim(1), size, shape.dim(2), last_dim(b)}), 1, 0);
  }
  const array x = batched_input(a, batched[0], size);
  const array index = batched_input(indices, batched[2], size);
  const array y = batched[1]
                      ? gather_mm_node(merged(x), merged(b),
                                       indices_of_batch(index, b.shape().dim(1), size), in_order)
                      : gather_mm_node(merged(x), b, flatten(index), false);
  return shaped(y, {size, x.shape().dim(1), x.shape().dim(2), last_dim(b)});
}

// --- scatter_mm: sums of [k, m] x [m, n] over the products whose index is e ---

Shape scatter_mm_shape(const OpCall& call) {
  return {call.get<GatherParams>().slice_sizes.dim(0), call.inputs[0].shape().dim(2),
          call.inputs[1].shape().dim(2)};
}

array segments_node(const array& a, const array& bounds, int axis, const S& s = {}) {
  return make_node(rows::segments, pack(a, bounds), AxisParams{axis, false}, s);
}

array scatter_mm_graph(const OpCall& call) {
  const array &x = call.inputs[0], &y = call.inputs[1], &indices = call.inputs[2];
  const Shape shape = scatter_mm_shape(call);
  const int64_t rows = x.shape()[1], all = x.shape()[0] * rows;
  if (all == 0 || shape.size() == 0) return zeros(shape, product_dtype_of(call));
  const Groups groups = groups_of(indices, shape[0]);
  const array order = rows_of(groups.row_at, rows);
  const array bounds = multiply(groups.bounds, full(Shape{}, number(rows), Dtype::int32));
  const array left = take(shaped(x, {all, shape[1]}), order, 0);
  const array right = take(shaped(y, {all, shape[2]}), order, 0);
  return matmul(segments_node(transpose(left), bounds, 1), segments_node(right, bounds, 0));
}

array scatter_mm_node(const array& x, const array& y, const array& indices, const Dim& count) {
  return make_node(rows::scatter_mm, pack(x, y, indices), GatherParams{{0}, Shape{count}}, {});
}

array vmap_scatter_mm(const OpCall& call, std::span<const bool> batched, const Dim& size) {
  const array x = batched_input(call.inputs[0], batched[0], size);
  const array y = batched_input(call.inputs[1], batched[1], size);
  const array indices = batched_input(call.inputs[2], batched[2], size);
  const Dim count = call.get<GatherParams>().slice_sizes.dim(0);
  const array sums = scatter_mm_node(merged(x), merged(y), indices_of_batch(indices, count, size),
                                     times(count, size));
  return shaped(sums, {size, count, last_dim(x), last_dim(y)});
}

// --- segments: x once for each pair of bounds, 0 outside them along one axis ---

Lane pull_segments(LowerContext& cx, const NodeView& n, const Coords& at) {
  ir::Builder& b = cx.builder();
  const Coords from(at.begin() + 1, at.end());
  const auto bound = [&](int64_t which) {
    return b.cast(cx.input(1, {at[0], Coord{.terms = {}, .offset = which}}).re, Dtype::int64);
  };
  const ir::ExprId first = bound(0), past = bound(1);
  const ir::ExprId place = cx.expr(from[n.get<AxisParams>().axis]);
  const ir::ExprId inside =
      b.logical_and(b.compare(ir::Code::le, first, place), b.compare(ir::Code::lt, place, past));
  const Lane x = cx.input_where(inside, 0, from);
  const auto zero = [&](ir::ExprId part) {
    return part == ir::kNone ? part : b.constant(b.dtype(part), 0);
  };
  return select_lane(b, inside, x, {zero(x.re), zero(x.im)});
}

Shape segments_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  shape.insert(0, call.inputs[1].shape().dim(0));
  return shape;
}

// The same by plain ops: of [batch..., s, x...] with bounds [batch..., s, 2] and an axis of x.
array within(const array& a, const array& bounds, int axis, int batch) {
  ShapeList along(static_cast<size_t>(a.ndim() - bounds.ndim() + 1), 1);
  along[static_cast<size_t>(axis)] = -1;
  const array place = reshape(positions(a.shape().dim(bounds.ndim() - 1 + axis)), along);
  AxisList added;
  for (int i = batch + 1; i < a.ndim(); ++i) added.push_back(i);
  const auto bound = [&](int64_t which) {
    const array index = full(Shape{}, number(which), Dtype::int32);
    return expand_dims(take(bounds, index, -1), added);
  };
  return where(logical_and(greater_equal(place, bound(0)), less(place, bound(1))), a,
               full(Shape{}, number(0.0), a.dtype()));
}

array vmap_segments(const OpCall& call, std::span<const bool> batched, const Dim& size) {
  const array &a = call.inputs[0], &bounds = call.inputs[1];
  const int axis = call.get<AxisParams>().axis;
  if (!batched[1]) return moveaxis(segments_node(a, bounds, axis + 1), 1, 0);
  if (batched[0]) {
    Shape shape = a.shape();
    shape.insert(1, bounds.shape().dim(1));
    return within(broadcast_to(expand_dims(a, {1}), shape), bounds, axis, 1);
  }
  Shape shape = a.shape();
  shape.insert(0, bounds.shape().dim(1));
  shape.insert(0, size);
  return shaped(segments_node(a, merged(bounds), axis), shape);
}

}  // namespace

constinit const OpRow rows::gather_mm = {
    .id = OpId::GatherMm,
    .name = "gather_mm",
    .accepts = kAny,
    .dtype = product_dtype_of,
    .shape = gather_mm_shape,
    .derivative = Bilinear{.lhs =
                               [](auto& c, auto& g) {
                                 const array b = swapaxes(conjugate_if_complex(c.inputs[1]), 1, 2);
                                 return gather_mm_node(g, b, c.inputs[2],
                                                       c.template get<GatherParams>().in_order);
                               },
                           .rhs =
                               [](auto& c, auto& g) {
                                 return scatter_mm_node(conjugate_if_complex(c.inputs[0]), g,
                                                        c.inputs[2], c.inputs[1].shape().dim(0));
                               }},
    .vmap = CustomVmap{vmap_gather_mm},
    .lowering = CompositeLowering{gather_mm_graph},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 4,
    .doc =
        "Products of the matrices of a with those of b that indices choose; indices count the "
        "matrices along all axes but the last two. No copy of a chosen matrix is made, and one "
        "that many rows choose is read once for many of them. sorted_indices says that equal "
        "indices follow each other: then rows need no sorting.",
};

constinit const OpRow rows::scatter_mm = {
    .id = OpId::ScatterMm,
    .name = "scatter_mm",
    .accepts = kAny,
    .dtype = product_dtype_of,
    .shape = scatter_mm_shape,
    .derivative = Bilinear{.lhs =
                               [](auto& c, auto& g) {
                                 return gather_mm_node(conjugate_if_complex(c.inputs[1]),
                                                       swapaxes(g, 1, 2), c.inputs[2], false);
                               },
                           .rhs =
                               [](auto& c, auto& g) {
                                 return gather_mm_node(conjugate_if_complex(c.inputs[0]), g,
                                                       c.inputs[2], false);
                               }},
    .vmap = CustomVmap{vmap_scatter_mm},
    .lowering = CompositeLowering{scatter_mm_graph},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 4,
    .doc =
        "For each index the sum of the products of transposed x and y that have it: the derivative "
        "of gather_mm by its matrices.",
};

constinit const OpRow rows::segments = {
    .id = OpId::Segments,
    .name = "segments",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = segments_shape,
    .derivative = Linear{[](auto& c, int, auto& g) {
      return cermet::sum(within(g, c.inputs[1], c.template get<AxisParams>().axis, 0), AxisList{0});
    }},
    .vmap = AxisMapVmap{vmap_segments},
    .lowering = MoveLowering{pull_segments,
                             [](auto&, auto&, auto&) -> std::optional<Layout> { return {}; }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "x once for each pair of bounds along one axis, 0 outside of them.",
};

// --- functions ---

namespace {

void check_indices(const std::optional<array>& indices, const char* name) {
  if (!indices) return;
  CERMET_CHECK(is_integer(indices->dtype()), dtype, "gather_mm",
               "{} have dtype {}; they must be integers", name, indices->dtype());
}

// A stack of matrices, [count, rows, columns], and back.
array stacked(const array& a, const S& s) {
  return shaped(a, {batch_of(a).count(), last_dim(a, 2), last_dim(a)}, s);
}

array in_batch(const array& stack, Shape batch, const S& s) {
  batch.push_back(last_dim(stack, 2));
  batch.push_back(last_dim(stack));
  return shaped(stack, std::move(batch), s);
}

array flat_indices(const array& indices, const Shape& shape, const S& s) {
  return flatten(broadcast_to(indices, shape, s), 0, -1, s);
}

}  // namespace

array gather_mm(const array& a, const array& b, const std::optional<array>& lhs_indices,
                const std::optional<array>& rhs_indices, bool sorted_indices, const S& s) {
  constexpr const char* op = "gather_mm";
  check_indices(lhs_indices, "lhs_indices");
  check_indices(rhs_indices, "rhs_indices");
  const auto [x, y] = product_operands(op, a, b, s);
  const Shape of_x = lhs_indices ? lhs_indices->shape() : batch_of(x);
  const Shape of_y = rhs_indices ? rhs_indices->shape() : batch_of(y);
  const Shape batch = broadcast_shapes(op, of_x, of_y);
  const array stack = stacked(x, s), matrices = stacked(y, s);
  if (lhs_indices) check_has_elements(op, stack, 0, *lhs_indices);
  if (rhs_indices) check_has_elements(op, matrices, 0, *rhs_indices);
  const auto taken = [&](const array& indices, const Shape& wanted) {
    return take(stack, flat_indices(indices, wanted, s), 0, s);
  };
  if (!rhs_indices) {
    const array product =
        matmul(lhs_indices ? in_batch(taken(*lhs_indices, of_x), of_x, s) : x, y, s);
    return without_vector_axes(a, b, product, s);
  }
  array left = stack;
  if (lhs_indices) {
    left = taken(*lhs_indices, batch);
  } else if (!(of_x == batch)) {
    left = taken(shaped(positions(of_x.count(), s), of_x, s), batch);
  }
  const array product =
      gather_mm_node(left, matrices, flat_indices(*rhs_indices, batch, s), sorted_indices, s);
  return without_vector_axes(a, b, in_batch(product, batch, s), s);
}

array segmented_mm(const array& a, const array& b, const array& segments, const S& s) {
  constexpr const char* op = "segmented_mm";
  CERMET_CHECK(a.ndim() == 2 && b.ndim() == 2, value, op,
               "shapes {} and {}; both must be matrices, of two axes", a.shape(), b.shape());
  CERMET_CHECK(is_integer(segments.dtype()), dtype, op,
               "segments have dtype {}; they must be integers", segments.dtype());
  CERMET_CHECK(segments.ndim() > 0 && same_size(last_dim(segments), 2), value, op,
               "segments of shape {}; the last axis must have size 2: where a segment begins and "
               "where it ends",
               segments.shape());
  const auto [x, y] = product_operands(op, a, b, s);
  Shape batch = segments.shape();
  batch.erase(batch.ndim() - 1);
  const array bounds = shaped(segments, {batch.count(), 2}, s);
  return in_batch(matmul(segments_node(x, bounds, 1, s), segments_node(y, bounds, 0, s), s), batch,
                  s);
}

namespace {

// Whole blocks of the last two axes as the mask says: a bool one keeps or clears, numbers multiply.
array masked(const array& a, const std::optional<array>& mask, const char* name, int block,
             const S& s) {
  constexpr const char* op = "block_masked_mm";
  if (!mask) return a;
  const int64_t rows = a.shape()[a.ndim() - 2], columns = a.shape()[a.ndim() - 1];
  const auto blocks = [block](int64_t size) { return (size + block - 1) / block; };
  Shape shape = batch_of(a);
  shape.push_back(blocks(rows));
  shape.push_back(blocks(columns));
  const int missing = shape.ndim() - mask->ndim();
  bool fits = missing >= 0 && mask->ndim() >= 2;
  for (int i = 0; fits && i < mask->ndim(); ++i) {
    const bool is_block = i + 2 >= mask->ndim();
    fits = mask->shape()[i] == shape[missing + i] || (!is_block && mask->shape()[i] == 1);
  }
  CERMET_CHECK(
      fits, value, op,
      "{} of shape {} for a matrix of shape {} in blocks of {}; it must be {}, or broadcast "
      "to that in the axes before the last two",
      name, mask->shape(), a.shape(), block, shape);
  if (rows * columns == 0) return a;
  // Rows are looked up as they are wanted; along columns, where lanes run, the mask is written out.
  array wide = repeat(*mask, block, -1, s);
  Shape size = wide.shape();
  size.dim(size.ndim() - 1) = columns;
  wide = sized_slice(wide, origin_of(wide), SliceSteps(wide.ndim(), 1), size, s);
  const array block_of_row =
      floor_divide(positions(rows, s), full(Shape{}, number(int64_t{block}), Dtype::int32, s), s);
  const array whole = take(wide, block_of_row, -2, s);
  if (mask->dtype() == Dtype::boolean)
    return where(whole, a, full(Shape{}, number(0.0), a.dtype(), s), s);
  return multiply(a, astype(whole, a.dtype(), s), s);
}

}  // namespace

array block_masked_mm(const array& a, const array& b, int block_size,
                      const std::optional<array>& mask_out, const std::optional<array>& mask_lhs,
                      const std::optional<array>& mask_rhs, const S& s) {
  constexpr const char* op = "block_masked_mm";
  CERMET_CHECK(block_size > 0, value, op, "block_size is {}; it must be at least 1", block_size);
  const auto [x, y] = product_operands(op, a, b, s);
  const array product = matmul(masked(x, mask_lhs, "mask_lhs", block_size, s),
                               masked(y, mask_rhs, "mask_rhs", block_size, s), s);
  return without_vector_axes(a, b, masked(product, mask_out, "mask_out", block_size, s), s);
}

}  // namespace cermet
