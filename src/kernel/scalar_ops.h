// SPDX-License-Identifier: MIT
// What each code does to single values: the meaning of ir.h as plain C++, used to interpret kernels
// and to fold constants. Values are bits, zero-extended to 64.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/ir.h"

namespace cermet::ir {

// The result of a code with one result on operands' bits. `operand` is the dtype of the first
// operand (of the second for select). Math codes are computed by libm in at least the operands'
// precision; that is close to what their expansion gives, not equal.
uint64_t apply(Code code, Dtype result, Dtype operand, const uint64_t* bits);

// What an Update in parts starts from (add: -0), as bits of `dtype`.
uint64_t neutral_of(Code code, Dtype dtype);

// Threefry-2x32, 20 rounds: key (k0, k1), counter (c0, c1).
std::array<uint32_t, 2> threefry2x32(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1);

// The bits of `value` converted to `dtype` as a cast from float64 would, and back. Half types are
// rounded once, from the double.
uint64_t from_double(Dtype dtype, double value);
double to_double(Dtype dtype, uint64_t bits);

}  // namespace cermet::ir
