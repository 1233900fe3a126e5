// SPDX-License-Identifier: MIT
// What must hold of any random kernel, by tests with fixed seeds and by the fuzzer with others. Each
// function gives "" or what is wrong, with the kernels; bits are compared, but for which NaN.
#pragma once

#include <string>

#include "codegen/target.h"
#include "kernel/random_kernel.h"

namespace cermet {

// print, parse and print give the same text, which verifies.
std::string text_fault(const ir::RandomKernel& random);

// `other` means the same as the kernel, to the interpreter.
std::string meaning_fault(const ir::RandomKernel& random, const ir::Kernel& other);

// The code for one level, on guarded memory and in 1 to 3 calls, gives what the interpreter gives for
// the lowered kernel, and both what it gives for the kernel itself.
std::string code_fault(const ir::RandomKernel& random, CpuLevel level);

}  // namespace cermet
