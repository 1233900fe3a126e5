// SPDX-License-Identifier: MIT
// What the rows of several families share: dtype sets, dtype and shape rules, small lowerings, and
// the steps that builders take before make_node. Rows give a node inputs of one shape and dtype
// wherever the op is elementwise; builders broadcast and promote, so rules never do.
#pragma once

#include <span>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "graph/op.h"
#include "ops/operators.h"
#include "ops/ops.h"

namespace cermet::rules {

// --- dtype sets ---
template <typename... D>
constexpr DtypeSet dtype_set(D... dtypes) {
  return ((DtypeSet{1} << static_cast<int>(dtypes)) | ...);
}
#define X(id, name, type, bytes, category)                                                 \
  | (DtypeCategory::category == c ? DtypeSet{1} << static_cast<int>(Dtype::id) : DtypeSet{0})
constexpr DtypeSet category_set(DtypeCategory c) { return DtypeSet{0} CERMET_DTYPES(X); }
#undef X
inline constexpr DtypeSet kBool = category_set(DtypeCategory::boolean);
inline constexpr DtypeSet kIntegers =
    category_set(DtypeCategory::unsigned_integer) | category_set(DtypeCategory::signed_integer);
inline constexpr DtypeSet kFloats = category_set(DtypeCategory::floating);
inline constexpr DtypeSet kComplex = category_set(DtypeCategory::complex);
inline constexpr DtypeSet kReals = kBool | kIntegers | kFloats;
inline constexpr DtypeSet kInexact = kFloats | kComplex;
inline constexpr DtypeSet kAny = kReals | kComplex;

// --- result dtypes and shapes ---
Dtype same_dtype(const OpCall& call);    // that of input 0
Dtype second_dtype(const OpCall& call);  // that of input 1
Dtype boolean_dtype(const OpCall& call);
Dtype real_dtype(const OpCall& call);     // real_of input 0
Dtype complex_dtype(const OpCall& call);  // whose parts have that of input 0
Shape same_shape(const OpCall& call);     // that of input 0
Shape params_shape(const OpCall& call);   // ShapeParams

// Parameters whose axes have moved up by one, for AxisShiftVmap: ReduceParams, AxisParams,
// AxesParams (as a list of axes, not a permutation).
Params shift_axes(const Params& params);

// As gather, take_along_axis, scatter and scatter_along_axis, under as many batches as the parameters say.
array gathered(const array& a, const Arrays& indices, GatherParams p, const StreamOrDevice& s = {});
array taken_along(const array& a, const array& indices, AxisParams p, const StreamOrDevice& s = {});
array scattered(const array& a, const Arrays& indices, const array& updates, GatherParams p,
                const StreamOrDevice& s = {});
array scattered_along(const array& a, const array& indices, const array& values, GatherParams p,
                      const StreamOrDevice& s = {});

// --- lowering ---
template <ir::Code code>
Lane unary_code(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  return {cx.builder().unary(code, a[0].re)};
}
template <ir::Code code>
Lane binary_code(LowerContext& cx, const NodeView&, std::span<const Lane> a) {
  return {cx.builder().op(code, cx.builder().dtype(a[0].re), {a[0].re, a[1].re})};
}
// The lane as a bool: not zero.
ir::ExprId truth(ir::Builder& b, const Lane& a);
// A cast that the user wrote rounds to a half in the middle of a region, too.
Lane cast_lane(ir::Builder& b, const Lane& a, Dtype from, Dtype to, bool rounds);
Lane select_lane(ir::Builder& b, ir::ExprId condition, const Lane& x, const Lane& y);
// A size as a runtime scalar: sizes are no part of a kernel.
ir::ExprId size_expr(LowerContext& cx, const Dim& size);
// Σ coefficient · coordinate + offset; affine when every coordinate is.
Coord combine(LowerContext& cx, std::span<const Coord> coords, std::span<const Dim> coefficients,
              const Dim& offset = 0);
// The coordinate of an index value (any integer dtype): negative ones count from the end; raises at
// run time unless extent elements from there lie inside the axis.
Coord index_coord(LowerContext& cx, ir::ExprId index, int axis, const Dim& size, const Dim& extent);

// --- builders ---
// A node's inputs, moved rather than copied: copies cost atomic counts.
template <typename... A>
Arrays pack(A&&... inputs) {
  Arrays result;
  result.reserve(sizeof...(inputs));
  (result.push_back(std::forward<A>(inputs)), ...);
  return result;
}
// make_node on the input as it is / cast to an inexact dtype.
array unary(const OpRow& row, const array& a, const S& s);
array unary_inexact(const OpRow& row, const array& a, const S& s);
array binary(const OpRow& row, const array& a, const array& b, const S& s);
array binary_inexact(const OpRow& row, const array& a, const array& b, const S& s);
// Raises [broadcast_to] unless an array of the one shape can be broadcast to the other.
void check_broadcast_to(const Shape& from, const Shape& shape);
// `a` in the given dtype and shape; a full array is built anew instead of being cast and broadcast.
array fit(const array& a, const Shape& shape, Dtype dtype, const S& s);
// Half types compute in float32.
Dtype wide_dtype(Dtype dtype);
// As an op computes with it: halves are float32, and their derivative is kept so inside a kernel.
array widened(const array& a, const S& s = {});
// What an op has computed wide, as its result of this dtype: kept wide inside a kernel, where astype rounds.
array as_result(const array& a, Dtype dtype, const S& s = {});
// The value of an array whose elements are all one number known now, else null.
const FullParams* full_params(const array& a);
// The number as an array of this dtype holds it.
Number convert_number(const Number& value, Dtype dtype);
// Normalised axes, in the given order; nullopt: all. A repeat raises [op] value.
Axes resolve_axes(const char* op, const OptionalAxes& axes, int ndim);
Axes resolve_axes_in_order(const char* op, std::span<const int64_t> axes, int ndim);
// The shape with `axes` (sorted) left out, or of size 1 with keepdims.
Shape reduced_shape(const Shape& shape, const Axes& axes, bool keepdims);
bool is_zero(const Dim& dim);  // by a guard, where an open size may be 0
// Raises [op] value unless the slice stays inside; starts of empty axes become 0. Whether it is
// all.
bool check_slice(const char* op, const Shape& shape, PerAxis& start, const SliceSteps& step,
                 const Shape& size);
// A start of 0 for each axis.
PerAxis origin_of(const array& a);
// The indices, which must be integers, broadcast to one shape.
Arrays broadcast_indices(const char* op, const Arrays& indices, const S& s);
// The axes of a batch of matrices but the last two.
Shape batch_of(const array& a);
// What the element-wise graph of a short sum is for; fewer results are made by the kernels of the seed.
inline constexpr int64_t kLeastResults = 4096;
// The slice of size 1 of the axis.
array slice_at(const array& a, int axis, int64_t at);
// The operands of a product, in its dtype (narrow integers as they are), vectors as matrices; raises [op]
// value unless they fit. And the product without the axes that stood for those of vectors.
std::pair<array, array> product_operands(const char* op, const array& a, const array& b,
                                         const S& s);
array without_vector_axes(const array& a, const array& b, array product, const S& s);
// The start of a slice along each of the axes, as 0-d arrays; raises [op] value if their counts differ.
Arrays start_indices(const char* op, const array& start, const AxisList& axes, const S& s);
// Raises [op] index when there are indices into an axis of size 0.
void check_has_elements(const char* op, const array& a, int axis, const array& indices);

// --- derivatives and batching ---
// Adds up what was broadcast from `shape` to g.
array sum_to(const array& g, const Shape& shape);
array full_like(const array& a, double value);
array conjugate_if_complex(const array& a);
// Row numbers 0 .. size - 1 as an index for the batch axis, in the shape [size, rest...].
array batch_index(const Dim& size, const Shape& rest);
// The input with a new leading axis of `size`, unless it is batched already.
array batched_input(const array& a, bool is_batched, const Dim& size);

}  // namespace cermet::rules
