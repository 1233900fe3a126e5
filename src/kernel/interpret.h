// SPDX-License-Identifier: MIT
// The oracle: runs any verified kernel, before and after `tile`, on one thread, by the meaning that
// ir.h states and nothing else. Every access is checked against its buffer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel/ir.h"

namespace cermet::ir {

// A buffer: element 0, and the elements allowed, [-before, elements). A scalar: its bits.
struct Argument {
  void* data = nullptr;
  int64_t elements = 0;
  int64_t before = 0;
  uint64_t bits = 0;
};

enum class Arithmetic {
  exact,  // each dtype as the target would compute it; math codes by their expansions
  wide,   // floating values in double, math codes by libm: the reference for accuracy
};

struct CheckFailure {
  int32_t site = -1;  // -1: none failed
  int64_t index = 0;
};

// extents: one for each axis that has one; strides: one for each stride word, in elements.
// Raises an internal error on an access outside its buffer.
CheckFailure interpret(const Kernel& kernel, std::span<const Argument> arguments,
                       std::span<const int64_t> extents, std::span<const int64_t> strides,
                       Arithmetic arithmetic = Arithmetic::exact);

}  // namespace cermet::ir
