// SPDX-License-Identifier: MIT
// Rare: a cold block, entered when any lane needs it. It computes the slow path for all lanes at
// once, or, where that works on wider elements than its answer has (the bits of pi for a huge
// angle), for one lane after another: each vector would be several registers, and the code as many
// times as long.
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <map>
#include <set>

#include "codegen/llvm_emit.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int kWideOps = 16;  // as many wide ops make a path for single lanes

int wide_ops(const Kernel& kernel, ExprId id, size_t bytes, std::set<ExprId>& seen) {
  if (!seen.insert(id).second) return 0;
  const Expr& e = kernel[id];
  int count = e.kind == ExprKind::op && size_of(e.dtype) > bytes ? 1 : 0;
  for_each_operand(e, [&](ExprId operand) { count += wide_ops(kernel, operand, bytes, seen); });
  return count;
}

}  // namespace

llvm::Value* Emitter::rare(const Expr& e) {
  Value* pred = natural(e.operands[0]);
  Value* fast = natural(e.operands[1]);
  std::set<ExprId> seen;
  const bool single = width_of(pred) > 1 && lanes() != nullptr &&
                      lanes()->width == width_of(pred) &&
                      wide_ops(kernel_, e.operands[2], size_of(e.dtype), seen) >= kWideOps;
  if (single) fast = ops_.splat(fast, width_of(pred));
  llvm::BasicBlock* cold = block("rare");
  llvm::BasicBlock* join = block("join");
  llvm::MDNode* weights = llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1 << 20);
  b_.CreateCondBr(ops_.any_lane(pred), cold, join, weights);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  b_.SetInsertPoint(cold);
  Value* answer = nullptr;
  in_scope({.kind = ScopeKind::conditional}, [&](Scope&) {
    if (single) {
      answer = slow_lanes(e, pred, fast);
      return;
    }
    Value* slow = natural(e.operands[2]);
    const int width = std::max({width_of(pred), width_of(fast), width_of(slow)});
    if (width_of(fast) < width) {
      // A splat must stand before the branch for the join to use it.
      llvm::IRBuilderBase::InsertPointGuard guard(b_);
      b_.SetInsertPoint(before->getTerminator());
      fast = ops_.splat(fast, width);
    }
    Value* arms[3] = {pred, slow, fast};
    answer = ops_.op(Code::select, e.dtype, e.dtype, arms);
  });
  llvm::BasicBlock* end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(answer->getType(), 2);
  phi->addIncoming(fast, before);
  phi->addIncoming(answer, end);
  return phi;
}

// What an expression is computed from: vectors that are there already, and leaves.
void Emitter::vectors_below(ExprId id, std::map<ExprId, Value*>& found) {
  if (found.contains(id)) return;
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::constant) return;
  Value* value = known(id);
  if (value == nullptr && e.kind != ExprKind::op && e.kind != ExprKind::rare) value = natural(id);
  if (value == nullptr) {
    for_each_operand(e, [&](ExprId operand) { vectors_below(operand, found); });
  } else if (width_of(value) > 1) {
    found.emplace(id, value);
  }
}

llvm::Value* Emitter::slow_lanes(const Expr& e, Value* pred, Value* fast) {
  std::map<ExprId, Value*> found;
  vectors_below(e.operands[2], found);
  Values vectors;
  for (const auto& [id, value] : found) vectors.push_back(ops_.to_memory(kernel_[id].dtype, value));
  fast = ops_.to_memory(e.dtype, fast);
  llvm::Type* element = fast->getType()->getScalarType();
  Value* answer = ops_.slot(fast->getType());
  b_.CreateAlignedStore(fast, answer, llvm::Align(64));
  for_lanes(pred, vectors, [&](Value* k, const Values& elements) {
    Lanes one = *lanes();
    one.width = 1;
    Scope scope{.kind = ScopeKind::conditional, .lanes = &one};
    size_t i = 0;
    for (const auto& [id, value] : found)
      scope.natural[id] = ops_.from_memory(kernel_[id].dtype, elements[i++]);
    in_scope(std::move(scope), [&](Scope&) {
      Value* slow = ops_.to_memory(e.dtype, natural(e.operands[2]));
      b_.CreateStore(slow, b_.CreateGEP(element, answer, k));
    });
  });
  return ops_.from_memory(e.dtype, b_.CreateAlignedLoad(fast->getType(), answer, llvm::Align(64)));
}

}  // namespace cermet::codegen
