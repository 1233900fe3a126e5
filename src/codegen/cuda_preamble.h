// SPDX-License-Identifier: MIT
// The part of the CUDA text that is the same for every kernel: types, the ops that C++ has no
// operator for, folds and merges across a block's threads, failed checks, templates.
#pragma once

namespace cermet::codegen {

extern const char* const kCudaPreamble;

}  // namespace cermet::codegen
