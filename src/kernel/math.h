// SPDX-License-Identifier: MIT
// Expansions of math codes into core codes, float32 and float64, and the accuracy each keeps.
#pragma once

#include <span>

#include "kernel/builder.h"

namespace cermet::ir {

// The value of code(operands) in core codes only (Rare included). Operands have dtype float32 or
// float64 (threefry: uint32). For threefry use expand_threefry.
// Right at ±0, ±inf, NaN, subnormals and huge arguments; max error max_ulp(code, dtype).
ExprId expand_math(Builder& builder, Code code, std::span<const ExprId> operands);
// exp(x) of an x that is not positive, the same bits by fewer ops; scales: as in TargetFacts.
ExprId expand_exp_at_most_one(Builder& builder, ExprId x, bool scales);
// exp_nonpositive_bfloat16 of a float32, for targets that scale (TargetFacts).
ExprId expand_scaled_exp(Builder& builder, ExprId x);

// Threefry-2x32, 20 rounds (Salmon et al. 2011): {x0, x1}.
std::array<ExprId, 2> expand_threefry(Builder& builder, std::span<const ExprId> operands);

// a - trunc(a / b) b, exact, by a division and an fma; where the quotient is large by Code::rem itself.
ExprId expand_rem(Builder& builder, ExprId a, ExprId b);

// Units in the last place, against the correctly rounded result.
double max_ulp(Code code, Dtype dtype);

}  // namespace cermet::ir
