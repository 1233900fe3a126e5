// SPDX-License-Identifier: MIT
// A matrix product as a kernel, with its memory and what it should give, worked out in double apart
// from any kernel. All values are small integers, so every order of summation is exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/interpret.h"
#include "kernel/ir.h"

namespace cermet {

struct KernelInput;

namespace ir {

struct GemmShape {
  int64_t batch = 0, m = 0, n = 0, k = 1;  // batch, m, n: 0: the axis is missing
  bool a_transposed = false, b_transposed = false, c_transposed = false;
  bool a_shared = false, b_shared = false;  // the same for the whole batch
  int64_t padding = 0;                      // added to the row length of A and B
  Dtype in = Dtype::float32, acc = Dtype::float32, out = Dtype::float32;
  bool prologue = false;  // max(a, 0) + 1 and 2 b
  bool epilogue = false;  // max(c + bias[n], -3), and c itself as a second output
  bool side = false;      // a store of its own, over m and k, and a check
  Scheme scheme = Scheme::fma;
  bool is_complex = false;                   // four products of the parts of A and B
  std::optional<Dtype> b_in = std::nullopt;  // of B, if not `in`
  bool all_values = false;                   // of the integers in A and B
  int64_t most = 0;                          // m and n are that at most, as the kernel knows

  std::string text() const;
};

class GemmCase {
 public:
  explicit GemmCase(const GemmShape& shape, uint64_t seed = 1);

  struct Buffer {
    Dtype dtype;
    int64_t elements;
    std::vector<char> data;
    std::vector<double> expected = {};  // of an output; NaN: whatever was there
  };

  GemmShape shape;
  Kernel kernel;
  std::vector<Buffer> buffers;  // by parameter
  std::vector<int64_t> extents, strides;

  std::vector<Argument> arguments();
  KernelInput input() const;
  // Empty, or where an output is not what it should be.
  std::string wrong() const;

 private:
  struct Matrix;
  Buffer numbers(Dtype dtype, int64_t elements, uint64_t& state) const;
};

}  // namespace ir
}  // namespace cermet
