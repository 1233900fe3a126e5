// SPDX-License-Identifier: MIT
// The states of folds that reductions and scans share: sums, products, extrema. They accumulate in the
// node's dtype (halves in float32), complex numbers as two states. Initial states are neutral under
// merging: the zero of a sum is -0. NaN wins over numbers in min and max.
#pragma once

#include "ops/rules.h"

namespace cermet::rules {

using States = std::vector<ir::FoldState>;

Lane finish_part(LowerContext&, const NodeView&,
                 std::span<const ir::ExprId> states);  // as they are
States sum_states(LowerContext& cx, const NodeView& n, Lane element, ir::ExprId position);
States prod_states(LowerContext& cx, const NodeView& n, Lane element, ir::ExprId position);
template <bool want_max>
States extremum_states(LowerContext& cx, const NodeView& n, Lane element, ir::ExprId position);

// The value that loses against every other, of a compute dtype.
ir::ExprId lowest(ir::Builder& b, Dtype dtype, bool want_max);
// Whether `a` is chosen over `other` by its value; a NaN is chosen over a number.
template <bool want_max>
ir::ExprId beats(ir::Builder& b, const Lane& a, const Lane& other);

}  // namespace cermet::rules
