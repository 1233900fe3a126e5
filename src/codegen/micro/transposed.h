// SPDX-License-Identifier: MIT
// Transposes of vectors in registers, by shuffles of two vectors that are one instruction each.
#pragma once

#include "codegen/micro/micro.h"

namespace cermet::codegen {

// The squares in the 16-byte parts of as many vectors as a part has elements.
MicroValues transposed_parts(llvm::IRBuilder<>& b, MicroValues vectors);
// Of as many rows as they have lanes, the columns; two lanes or more in 16 bytes.
MicroValues transposed(llvm::IRBuilder<>& b, const MicroValues& rows);

}  // namespace cermet::codegen
