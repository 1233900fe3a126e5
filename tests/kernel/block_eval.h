// SPDX-License-Identifier: MIT
// Runs one expression over blocks of elements, each op a plain C++ loop: fast enough for millions of
// samples of a math expansion, and a reading of the IR's semantics independent of the interpreter and
// of the code generators. Invariant: only what expansions use (core codes, Rare, Scalar as input).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/ir.h"

namespace cermet::ir {

class BlockEval {
 public:
  static constexpr int kBlock = 1024;

  // Input i is the scalar parameter i of the kernel; the result is that of `root`.
  BlockEval(const Kernel& kernel, ExprId root);

  template <typename T>
  T* input(int i) {
    return reinterpret_cast<T*>(slot(inputs_[i]));
  }
  // Evaluates all kBlock elements; the result stays until the next call.
  template <typename T>
  const T* run() {
    evaluate();
    return reinterpret_cast<const T*>(slot(root_));
  }

 private:
  struct Step {
    Code code;
    Dtype dtype, from;  // of the result, of the last operand
    int to, a, b, c;    // slots
  };
  struct alignas(64) Slot {
    unsigned char bytes[8 * kBlock];
  };

  void* slot(int i) { return slots_[i].bytes; }
  void fill(int slot, Dtype dtype, uint64_t bits);
  void evaluate();
  static void step(Code code, Dtype dtype, Dtype from, void* to, const void* a, const void* b,
                   const void* c);

  std::vector<Step> steps_;
  std::vector<int> inputs_;
  std::vector<Slot> slots_;
  int root_ = 0;
};

}  // namespace cermet::ir
