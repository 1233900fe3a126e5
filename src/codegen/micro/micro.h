// SPDX-License-Identifier: MIT
// The code of each template, as a function of the module that all its uses with equal constants
// share: compiled once, and with all registers to itself.
#pragma once

#include <llvm/IR/Module.h>

#include <functional>

#include "codegen/llvm_op.h"
#include "kernel/micro.h"

namespace cermet::codegen {

// What a template is made for.
struct MicroTarget {
  llvm::Module& module;
  CpuFeatures features;
  Dtype dtype;

  int64_t lanes() const {
    return std::max<int64_t>(1, features.vector_bytes / static_cast<int64_t>(size_of(dtype)));
  }
};

// Which operands may lie beyond L2.
struct FarOperands {
  bool a, b;
};
// void(c, a, b, rows, columns, depth, a_row, b_row, add); pointers to the first elements, the rest i64. `packed`:
// dtype of a and b. fixed_row: a_row where it is known, of a Local.
llvm::Function* gemm_function(const MicroTarget& target, const ir::GemmMicro& micro, Dtype packed,
                              std::optional<int64_t> fixed_row, FarOperands far);
// void(to, from, rows, columns)
llvm::Function* transpose_function(const MicroTarget& target, const ir::TransposeMicro& micro);
// void(to, from, next, rows, columns, to_row, from_row, past); past: not 0 where each row of `to` begins a line
// and is to be stored past the cache; 0 into a Local.
llvm::Function* turn_function(const MicroTarget& target, bool into_local);

// void(local, array, rows, columns, row, left); instead of the last, where rows go out, not 0 where they begin a
// line and are to be stored past the cache.
llvm::Function* rows_function(const MicroTarget& target, const ir::RowsMicro& micro);

// void(to, from, rows, columns, from_row)
llvm::Function* pack_function(const MicroTarget& target, const ir::PackMicro& micro);

// void(c, a, b, columns, depth, b_stride, add, before); dtypes of a and b.
llvm::Function* panel_function(const MicroTarget& target, const ir::PanelMicro& micro, Dtype a,
                               Dtype given);

// void(c, a, b, next b, rows, columns, depth, a_row, add); dtypes of a and b; fixed_row as above.
llvm::Function* tile_gemm_function(const MicroTarget& target, const ir::TileGemmMicro& micro,
                                   Dtype a, Dtype b, std::optional<int64_t> fixed_row);

// --- For templates.

// Sums of products of narrow integers, by dot instructions where a target has them. In each 4 bytes of x and y
// are so many of them; `sum` takes their products, modulo 2^32.
class Dots {
 public:
  explicit Dots(const MicroTarget& target) : features_(target.features), lanes_(target.lanes()) {}
  llvm::Value* of_bytes(llvm::IRBuilder<>& b, llvm::Value* sum, llvm::Value* x, llvm::Value* y,
                        bool x_signed, bool y_signed) const;
  llvm::Value* of_int16(llvm::IRBuilder<>& b, llvm::Value* sum, llvm::Value* x,
                        llvm::Value* y) const;

 private:
  // Element i of each 4 bytes.
  static llvm::Value* element(llvm::IRBuilder<>& b, llvm::Value* x, unsigned bits, unsigned i,
                              bool is_signed);

  const CpuFeatures features_;
  const int64_t lanes_;
};

using MicroValues = llvm::SmallVector<llvm::Value*, 32>;

// Body of a function without result that is local to the module, and the loops in it.
class MicroFunction {
 public:
  MicroFunction(const MicroTarget& target, const std::string& name, unsigned pointers,
                unsigned words);

  llvm::IRBuilder<>& builder() { return b_; }
  llvm::Value* argument(unsigned i) { return function_->getArg(i); }
  llvm::Value* word(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  // `pointer` moved by `elements` of the template's dtype.
  llvm::Value* at(llvm::Value* pointer, llvm::Value* elements);
  llvm::Value* at(llvm::Value* pointer, int64_t elements) { return at(pointer, word(elements)); }
  // The same, by elements of a type.
  llvm::Value* at(llvm::Type* type, llvm::Value* pointer, int64_t elements) {
    return b_.CreateGEP(type, pointer, word(elements));
  }
  llvm::Type* element() const { return element_; }
  llvm::Type* vector(int64_t lanes) const { return with_width(element_, static_cast<int>(lanes)); }
  llvm::Value* load(llvm::Type* type, llvm::Value* pointer);
  void store(llvm::Value* value, llvm::Value* pointer);
  // Past the cache, to a multiple of its size.
  void store_past(llvm::Value* value, llvm::Value* pointer);

  // body(i, carried) for i = 0, step, ... < end gives what the next round, and the end, gets.
  using Body = std::function<MicroValues(llvm::Value*, const MicroValues&)>;
  MicroValues loop(llvm::Value* end, int64_t step, const MicroValues& carried, const Body& body);
  void when(llvm::Value* condition, const std::function<void()>& then);
  llvm::Function* finish();

 private:
  llvm::BasicBlock* block(const char* name);

  llvm::Function* function_;
  llvm::IRBuilder<> b_;
  llvm::Type* element_;
};

}  // namespace cermet::codegen
