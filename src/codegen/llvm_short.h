// SPDX-License-Identifier: MIT
// What llvm_short.cpp keeps of a lane loop over short axes: divisors, quotients and remainders of the lanes'
// numbers, and where loads at such places reach. Made once each, then looked up in the scopes.
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>

#include <vector>

#include "kernel/ir.h"

namespace cermet::codegen {

using Values = llvm::SmallVector<llvm::Value*, 4>;

// A divisor of lanes' numbers, an extent, as vectors of 32-bit integers: large ones by
// their end alone.
struct ShortDivisor {
  llvm::Value* value = nullptr;       // i64, not 0
  llvm::Value* reciprocal = nullptr;  // i64: (2^64 - 1) / value
  llvm::Value* excess = nullptr;      // i64: what it has more than `parts`
  llvm::Value* parts = nullptr;       // i32
  llvm::Value* divisor = nullptr;     // the same in all lanes
  llvm::Value* inverse = nullptr;     // in 2^-16, rounded up; of 0: 0
  llvm::Value* mask = nullptr;        // of 0: 0, else all ones
  llvm::Value* none = nullptr;        // i1: it is 0
};

// The quotients and remainders of consecutive numbers: those of lane 0, ...
struct ShortDivision {
  llvm::Value* quotient = nullptr;   // i64
  llvm::Value* remainder = nullptr;  // i64
  llvm::Value* from = nullptr;       // i64: the part of it that counts, of a large divisor
  llvm::Value* excess = nullptr;     // i64: what is left
};
// ... and of all lanes, as <width x i32>: quotients from that of lane 0 on, remainders by what counts, where the
// quotient is 0 `excess` more.
struct ShortLanes {
  llvm::Value* quotients = nullptr;
  llvm::Value* remainders = nullptr;
};

// What a part of an index adds to a gather's elements: small numbers times a factor.
struct ShortPart {
  ir::ExprId id = ir::kNone;
  llvm::Value* factor = nullptr;  // i64, the same throughout the loop
};
// Whether a gather's elements always lie within two vectors, and where these begin. Or they repeat after so few
// that these lie in order before the loop, over and over, in memory of its own.
struct ShortWindow {
  llvm::Value* fits = nullptr;      // i1
  llvm::Value* repeated = nullptr;  // that memory
  llvm::Value* repeats = nullptr;   // i1: it is filled
  llvm::Value* trips = nullptr;     // of the loop for which it was filled
  llvm::Value* below = nullptr;     // i64: elements from the lowest to where no part adds anything
  std::vector<ShortPart> parts = {};
  Values factors = {};  // of the parts, as vectors of i32
};

}  // namespace cermet::codegen
