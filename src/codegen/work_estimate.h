// SPDX-License-Identifier: MIT
// About how long an item of a chunk loop takes: enough to decide whether threads are worth waking.
#pragma once

#include "codegen/target.h"

namespace cermet::codegen {

std::vector<Work> estimate_work(const ir::Kernel& kernel, const ir::For& chunk, int vector_bytes);

}  // namespace cermet::codegen
