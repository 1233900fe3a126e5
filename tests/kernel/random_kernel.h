// SPDX-License-Identifier: MIT
// Random verified kernels before `tile`, with memory to run them on: for the identity of the text
// form, for passes that must keep the meaning, and for code generators against the interpreter. A
// seed gives the same kernel on every machine. No result depends on which NaN an operation gives or
// on the order of a Contract's sum beyond `has_contract`.
#pragma once

#include <vector>

#include "kernel/compiled.h"
#include "kernel/ir.h"

namespace cermet::ir {

struct RandomOptions {
  bool math = false;       // math codes
  bool contracts = false;  // results then agree within rounding only
  bool updates = true;
  bool checks = true;  // these always hold
  bool gathers = true;
  int depth = 4;  // of expressions
  int64_t max_points = 6000;
};

struct RandomKernel {
  RandomKernel(uint64_t seed, RandomOptions options = {});

  KernelInput input() const;

  uint64_t seed;
  Kernel kernel;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides;
  std::vector<std::vector<char>> initial;  // by parameter
  std::vector<uint64_t> scalars;           // by parameter
};

}  // namespace cermet::ir
