// SPDX-License-Identifier: MIT
// Core codes as LLVM IR, on scalars and on vectors of any width alike: the meaning of ir.h in the
// instructions of one processor level. Values of dtype bool are i1, of half dtype the bits as i16, of
// every other dtype the LLVM type of that width. No instruction carries fast-math flags.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <span>

#include "codegen/target.h"

namespace cermet::codegen {

// What emission asks of a level.
struct CpuFeatures {
  int vector_bytes = 16;
  bool sse41 = false;
  bool avx2 = false;                // with F16C and FMA
  bool avx512 = false;              // F, BW, DQ, VL
  bool bf16 = false;                // conversion to bfloat16
  bool vnni = false;                // dot instructions for bytes and int16
  bool tiles = false;               // AMX for bfloat16 and int8
  bool fast_gathers = false;        // and scatters, beside accesses to single elements
  bool full_width = false;          // arithmetic on 64 bytes takes no longer than on 32
  bool prefetches_into_l1 = false;  // rather than into L2
  bool fetches_far = false;         // what products read from beyond L2, before
  bool x86 = true;
};
CpuFeatures features_of(CpuLevel level);

// The lanes of a vector; 1 for a scalar.
int width_of(const llvm::Value* value);
llvm::Type* with_width(llvm::Type* element, int width);
bool is_zero(const llvm::Value* value);  // the integer constant

class OpEmitter {
 public:
  OpEmitter(llvm::IRBuilder<>& builder, CpuFeatures features) : b_(builder), features_(features) {}

  const CpuFeatures& features() const { return features_; }
  // The type of one value of the dtype in registers, and in memory.
  llvm::Type* register_type(Dtype dtype) const;
  llvm::Type* memory_type(Dtype dtype) const;
  llvm::Value* from_memory(Dtype dtype, llvm::Value* stored);
  llvm::Value* to_memory(Dtype dtype, llvm::Value* value);

  llvm::Value* constant(Dtype dtype, uint64_t bits) const;
  llvm::Value* splat(llvm::Value* scalar, int width);
  // A slot in the frame of the function, aligned for any vector.
  llvm::AllocaInst* slot(llvm::Type* type, uint64_t count = 1);

  // `operand`: dtype of the first argument (of the second for select). Arguments of different widths
  // are splat to the widest.
  llvm::Value* op(ir::Code code, Dtype result, Dtype operand,
                  std::span<llvm::Value* const> arguments);

  llvm::Value* any_lane(llvm::Value* predicate);  // i1
  // body(k) for k = 0 .. count - 1, k being i64.
  void loop(llvm::Value* count, const std::function<void(llvm::Value*)>& body);
  // slow() where `rare` (i1) is true, in a block out of the way.
  llvm::Value* unless(llvm::Value* rare, llvm::Value* common,
                      const std::function<llvm::Value*()>& slow);

 private:
  using Value = llvm::Value;
  Value* integer(ir::Code code, Dtype dtype, Value* x, Value* y);
  Value* integer_div(ir::Code code, Dtype dtype, Value* x, Value* y);
  Value* wide_quotient(Dtype dtype, Value* x, Value* y);
  Value* floating(ir::Code code, Dtype dtype, std::span<Value* const> v);
  Value* select(Value* condition, Value* yes, Value* no);
  Value* compare(ir::Code code, Dtype dtype, Value* x, Value* y);
  Value* float_min(Value* x, Value* y);
  Value* float_max(Value* x, Value* y);
  Value* unordered(Value* x, Value* y);
  Value* native_max(Value* x, Value* y);
  Value* round(ir::Code code, Value* x);
  Value* scale2(Dtype dtype, Value* x, Value* n);
  Value* call_lanes(const char* function, std::span<Value* const> v);
  Value* cast(Dtype to, Dtype from, Value* x);
  Value* float_to_integer(Dtype to, Dtype from, Value* x);
  Value* half_to_float(Dtype from, Value* x);
  Value* float_to_half(Dtype to, Value* x);
  Value* soft_float_to_bfloat16(Value* x);
  static Value* floored(Value* x);
  bool is_whole(Value* x) const;
  Value* fraction(Value* x);
  bool converts(int width) const { return features_.bf16 && (width == 8 || width == 16); }
  Value* native_float_to_bfloat16(Value* x);
  Value* soft_float16_to_float(Value* x);
  Value* soft_float_to_float16(Value* x);
  Value* as_integer(Value* x);  // same bits
  Value* like(Value* x, double v);
  Value* like_bits(Value* x, uint64_t v);  // integer constant of x's type
  Value* intrinsic(llvm::Intrinsic::ID id, std::span<Value* const> v);

  llvm::IRBuilder<>& b_;
  const CpuFeatures features_;
};

}  // namespace cermet::codegen
