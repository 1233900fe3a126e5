// SPDX-License-Identifier: MIT
// How a matrix product is made: by one table of what is multiplied and of its sizes. The tiler does the rest
// (kernel/tile_gemm.cpp has the blocks).
#pragma once

#include <optional>

#include "base/dtype.h"
#include "kernel/ir.h"
#include "kernel/passes.h"

namespace cermet::schedule {

struct ProductOperand {
  Dtype dtype;   // of its values as they are
  bool along_k;  // a load, contiguous along the sum
  bool is_load;  // contiguous along some axis
};

// batch x m x n sums of k terms; dtype: of the result. in_runs: of single rows, each with a matrix B that
// indices choose, equal ones following each other.
struct ProductShape {
  Dtype dtype;
  int64_t batch = 0, m = 0, n = 0, k = 0;
  ProductOperand a, b;  // of rows m, of columns n
  bool in_runs = false;
};

struct ProductScheme {
  ir::Scheme scheme = ir::Scheme::fma;
  bool exchanged = false;                         // B stands for A
  std::optional<ir::Scheme> kept = std::nullopt;  // of the same bits, by a packing that is kept

  int64_t code() const {
    return static_cast<int64_t>(scheme) | int64_t{exchanged} << 8 |
           (kept ? static_cast<int64_t>(*kept) | 256 : 0) << 16;
  }
  static ProductScheme of(int64_t code) {
    ProductScheme made{static_cast<ir::Scheme>(code & 255), (code >> 8 & 1) != 0};
    if ((code >> 24 & 1) != 0) made.kept = static_cast<ir::Scheme>(code >> 16 & 255);
    return made;
  }
};

ProductScheme scheme_of(const ProductShape& product, const ir::TargetFacts& facts);
// The kernel with all of its products made so.
ir::Kernel with_scheme(const ir::Kernel& kernel, ir::Scheme scheme);

}  // namespace cermet::schedule
