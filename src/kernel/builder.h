// SPDX-License-Identifier: MIT
// Makes kernels: hash-conses expressions, so equal expressions have equal ids (common subexpressions
// are shared by construction), and folds nothing else (see pass `simplify`).
#pragma once

#include <initializer_list>

#include "kernel/ir.h"

namespace cermet::ir {

class Builder {
 public:
  explicit Builder(std::string name);
  explicit Builder(Kernel kernel);  // goes on from an existing kernel

  ParamId buffer(Dtype dtype, Access access, std::string name = "");
  ParamId scalar(Dtype dtype, std::string name = "");
  ParamId status();  // the one Status parameter, made at first use
  AxisId axis(std::string name = "", bool has_extent = true, int64_t most = 0);
  int32_t stride() { return kernel_.stride_count++; }
  ValueId value(std::vector<Dtype> dtypes, std::string name = "");
  LocalId local(Dtype dtype, Size size, LocalScope scope);

  ExprId constant_bits(Dtype dtype, uint64_t bits);
  ExprId constant(Dtype dtype, double v);  // converted to dtype; integers exactly up to 2^53
  ExprId integer(Dtype dtype, int64_t v);
  ExprId scalar_ref(ParamId param);
  ExprId axis_ref(AxisId axis);       // int64
  ExprId extent(AxisId axis);         // int64
  ExprId stride_ref(int32_t stride);  // int64
  ExprId ref(ValueId value);
  ExprId state(int i, Dtype dtype);
  ExprId other(int i, Dtype dtype);
  ExprId get(int i, ExprId tuple);
  ExprId op(Code code, Dtype dtype, std::span<const ExprId> operands);
  ExprId op(Code code, Dtype dtype, std::initializer_list<ExprId> operands);
  ExprId rare(ExprId pred, ExprId fast, ExprId slow);
  ExprId load(BufferRef buffer, Index index, ExprId mask = kNone, ExprId otherwise = kNone);

  // Any expression whose operands are ids of this builder, as it is.
  ExprId intern(Expr expr);

  // Arithmetic with the operands' own dtype; comparisons give bool.
  ExprId add(ExprId a, ExprId b) { return same(Code::add, a, b); }
  ExprId sub(ExprId a, ExprId b) { return same(Code::sub, a, b); }
  ExprId mul(ExprId a, ExprId b) { return same(Code::mul, a, b); }
  ExprId div(ExprId a, ExprId b) { return same(Code::div, a, b); }
  ExprId rem(ExprId a, ExprId b) { return same(Code::rem, a, b); }
  ExprId min(ExprId a, ExprId b) { return same(Code::min, a, b); }
  ExprId max(ExprId a, ExprId b) { return same(Code::max, a, b); }
  ExprId fma(ExprId a, ExprId b, ExprId c);
  ExprId unary(Code code, ExprId a);  // result dtype = operand's
  ExprId compare(Code code, ExprId a, ExprId b);
  ExprId select(ExprId cond, ExprId a, ExprId b);
  ExprId logical_and(ExprId a, ExprId b) { return same(Code::bit_and, a, b); }
  ExprId logical_or(ExprId a, ExprId b) { return same(Code::bit_or, a, b); }
  ExprId logical_not(ExprId a);           // of a bool
  ExprId cast(ExprId a, Dtype dtype);     // a itself if of that dtype; half types
                                          // go through float32
  ExprId bitcast(ExprId a, Dtype dtype);  // same width

  Dtype dtype(ExprId id) const { return kernel_.exprs[id].dtype; }
  const Expr& operator[](ExprId id) const { return kernel_.exprs[id]; }
  Kernel& kernel() { return kernel_; }
  const Kernel& kernel() const { return kernel_; }
  Kernel take() { return std::move(kernel_); }

 private:
  ExprId same(Code code, ExprId a, ExprId b) { return op(code, dtype(a), {a, b}); }
  void grow_table();

  Kernel kernel_;
  // Of each expression its number, at the first free place from where its hash points; a power of two of
  // places, fewer than half taken.
  std::vector<ExprId> table_;
};

// Expressions of one kernel and what stands for them in another (rebuild.h).
using ExprMap = std::unordered_map<ExprId, ExprId>;

}  // namespace cermet::ir
