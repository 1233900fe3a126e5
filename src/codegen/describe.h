// SPDX-License-Identifier: MIT
// What a launch must know beside the code, the same for every target.
#pragma once

#include "codegen/target.h"

namespace cermet::codegen {

// Fills the locals, the packings and the status word, and renumbers the axes of the entries made so far: those
// that have an extent are counted, as in the record.
void describe(const ir::Kernel& kernel, Object& object);

}  // namespace cermet::codegen
