// SPDX-License-Identifier: MIT
// A kernel is the same before and after `tile`.
#pragma once

#include <vector>

#include "kernel/compiled.h"

namespace cermet {

// For the CPU: in the interpreter, and compiled for every level. Gives the tiled kernel.
ir::Kernel expect_tiled_alike(const ir::Kernel& kernel, const std::vector<KernelInput>& inputs);

}  // namespace cermet
