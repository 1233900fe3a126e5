// SPDX-License-Identifier: MIT
// Random memory for kernels in tests: values of every magnitude with the special ones among them.
#pragma once

#include "kernel/compiled.h"

namespace cermet {

// tame: floats of moderate size only.
std::vector<char> random_bytes(Dtype dtype, int64_t elements, unsigned seed, bool tame = false);

// Buffers of elements[i] random elements each; scalars of random bits.
KernelInput random_input(const ir::Kernel& kernel, const std::vector<int64_t>& elements,
                         std::vector<int64_t> extents, std::vector<int64_t> strides = {},
                         unsigned seed = 1, bool tame = false);

}  // namespace cermet
