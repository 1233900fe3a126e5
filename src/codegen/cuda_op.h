// SPDX-License-Identifier: MIT
// Dtypes, constants and core codes as CUDA C++, with the meaning that ir.h gives them.
#pragma once

#include <span>
#include <string>

#include "kernel/ir.h"

namespace cermet::codegen {

// Of variables, and of elements in memory (bool: a byte). Half types are their bits.
const char* cuda_type(Dtype dtype);
const char* cuda_memory_type(Dtype dtype);

std::string cuda_constant(Dtype dtype, uint64_t bits);
// Arguments are names or constants: they may be repeated.
std::string cuda_op(ir::Code code, Dtype result, Dtype operand,
                    std::span<const std::string> arguments);

}  // namespace cermet::codegen
