// SPDX-License-Identifier: MIT
// The kernels of golden/ as they are before `tile`, with memory to run them on.
#pragma once

#include <vector>

#include "kernel/compiled.h"

namespace cermet {

struct GoldenCase {
  ir::Kernel kernel;
  std::vector<KernelInput> inputs;
};

// Those whose bits are the same everywhere.
std::vector<GoldenCase> golden_cases();
// Those with a Contract, the order of whose sums is free.
std::vector<GoldenCase> golden_products();

}  // namespace cermet
