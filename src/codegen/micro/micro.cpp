// SPDX-License-Identifier: MIT
#include "codegen/micro/micro.h"

#include "codegen/llvm_emit.h"

namespace cermet::codegen {

namespace {

llvm::Type* element_type(llvm::LLVMContext& context, Dtype dtype) {
  if (dtype == Dtype::float32) return llvm::Type::getFloatTy(context);
  if (dtype == Dtype::float64) return llvm::Type::getDoubleTy(context);
  return llvm::Type::getIntNTy(context, static_cast<unsigned>(8 * size_of(dtype)));
}

}  // namespace

MicroFunction::MicroFunction(const MicroTarget& target, const std::string& name, unsigned pointers,
                             unsigned words)
    : b_(target.module.getContext()),
      element_(element_type(target.module.getContext(), target.dtype)) {
  llvm::SmallVector<llvm::Type*, 8> types(pointers, b_.getPtrTy());
  types.append(words, b_.getInt64Ty());
  function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                     llvm::Function::InternalLinkage, name, target.module);
  for (unsigned i = 0; i < pointers; ++i) function_->addParamAttr(i, llvm::Attribute::NoAlias);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  const std::string bits = std::to_string(8 * target.features.vector_bytes);
  function_->addFnAttr("min-legal-vector-width", bits);
  function_->addFnAttr("prefer-vector-width", bits);
  b_.SetInsertPoint(block("entry"));
}

llvm::BasicBlock* MicroFunction::block(const char* name) {
  return llvm::BasicBlock::Create(b_.getContext(), name, function_);
}

llvm::Value* MicroFunction::at(llvm::Value* pointer, llvm::Value* elements) {
  return b_.CreateGEP(element_, pointer, elements);
}

llvm::Value* MicroFunction::load(llvm::Type* type, llvm::Value* pointer) {
  return b_.CreateAlignedLoad(type, pointer, llvm::Align(element_->getScalarSizeInBits() / 8));
}

void MicroFunction::store(llvm::Value* value, llvm::Value* pointer) {
  b_.CreateAlignedStore(value, pointer, llvm::Align(element_->getScalarSizeInBits() / 8));
}

void MicroFunction::store_past(llvm::Value* value, llvm::Value* pointer) {
  codegen::store_past(b_, value, pointer);
}

MicroValues MicroFunction::loop(llvm::Value* end, int64_t step, const MicroValues& carried,
                                const Body& body) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* head = block("loop");
  llvm::BasicBlock* exit = block("after");
  b_.CreateCondBr(b_.CreateICmpSGT(end, word(0)), head, exit);
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  MicroValues in;
  for (llvm::Value* value : carried) in.push_back(b_.CreatePHI(value->getType(), 2));
  const MicroValues next = body(i, in);
  llvm::Value* following = b_.CreateAdd(i, word(step));
  b_.CreateCondBr(b_.CreateICmpSLT(following, end), head, exit);
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  i->addIncoming(word(0), before);
  i->addIncoming(following, latch);
  b_.SetInsertPoint(exit);
  MicroValues out;
  for (size_t k = 0; k < carried.size(); ++k) {
    llvm::cast<llvm::PHINode>(in[k])->addIncoming(carried[k], before);
    llvm::cast<llvm::PHINode>(in[k])->addIncoming(next[k], latch);
    llvm::PHINode* phi = b_.CreatePHI(carried[k]->getType(), 2);
    phi->addIncoming(carried[k], before);
    phi->addIncoming(next[k], latch);
    out.push_back(phi);
  }
  return out;
}

void MicroFunction::when(llvm::Value* condition, const std::function<void()>& then) {
  llvm::BasicBlock* body = block("then");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(condition, body, join);
  b_.SetInsertPoint(body);
  then();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

llvm::Function* MicroFunction::finish() {
  b_.CreateRetVoid();
  return function_;
}

namespace {

// Whether what a tile goes to is large, and lies in whole lines.
llvm::Value* turns_past(Emitter& emitter, const MicroTarget& target, llvm::Value* to,
                        llvm::Value* to_row) {
  llvm::IRBuilder<>& b = emitter.builder();
  if (!target.features.x86) return b.getInt64(0);
  emitter.set_stores_past();
  const auto bytes = static_cast<int64_t>(size_of(target.dtype));
  llvm::Value* row = b.CreateMul(to_row, b.getInt64(static_cast<uint64_t>(bytes)));
  llvm::Value* place = b.CreateOr(b.CreatePtrToInt(to, b.getInt64Ty()), row);
  llvm::Value* whole =
      b.CreateICmpEQ(b.CreateAnd(place, b.getInt64(kLineBytes - 1)), b.getInt64(0));
  llvm::Value* large = b.CreateICmpSGE(emitter.elements_of(emitter.chunk()),
                                       b.getInt64(static_cast<uint64_t>(ir::kPastBytes / bytes)));
  return b.CreateZExt(b.CreateAnd(whole, large), b.getInt64Ty());
}

// Whether short rows go to where much is made, from the beginning of a line on.
llvm::Value* rows_past(Emitter& emitter, const MicroTarget& target, llvm::Value* to,
                       llvm::Value* columns) {
  llvm::IRBuilder<>& b = emitter.builder();
  if (!target.features.x86) return b.getInt64(0);
  emitter.set_stores_past();
  const auto bytes = static_cast<uint64_t>(size_of(target.dtype));
  llvm::Value* all =
      b.CreateMul(emitter.elements_of(emitter.chunk()), b.CreateMul(columns, b.getInt64(bytes)));
  llvm::Value* place = b.CreatePtrToInt(to, b.getInt64Ty());
  llvm::Value* whole =
      b.CreateICmpEQ(b.CreateAnd(place, b.getInt64(kLineBytes - 1)), b.getInt64(0));
  llvm::Value* large = b.CreateICmpSGE(all, b.getInt64(ir::kPastBytes));
  return b.CreateZExt(b.CreateAnd(whole, large), b.getInt64Ty());
}

}  // namespace

void emit_micro(Emitter& emitter, const ir::Micro& micro) {
  llvm::IRBuilder<>& b = emitter.builder();
  const MicroTarget target{*b.GetInsertBlock()->getModule(), emitter.ops().features(),
                           emitter.dtype_of(micro.buffers[0])};
  const auto element = [&](ir::BufferRef buffer, ir::ExprId at) {
    return b.CreateGEP(emitter.memory_type(buffer), emitter.element_zero(buffer),
                       emitter.natural(at));
  };
  const auto fixed_row = [&](ir::BufferRef a, ir::ExprId row) -> std::optional<int64_t> {
    if (!a.local) return std::nullopt;
    return static_cast<int64_t>(emitter.kernel().exprs[row].bits);
  };
  if (micro.kind == ir::MicroKind::gemm) {
    const ir::GemmMicro m = ir::GemmMicro::of(micro);
    // Rows of A that a thread packs are few; panels of B are as many as the columns where they grow with a size.
    const auto& locals = emitter.kernel().locals;
    const FarOperands far = {!m.a.local || locals[m.a.id].scope == ir::LocalScope::kernel,
                             m.b.local && !locals[m.b.id].size.terms.empty()};
    b.CreateCall(gemm_function(target, m, emitter.dtype_of(m.b), fixed_row(m.a, m.a_row), far),
                 {element(m.c, m.c_at), element(m.a, m.a_at), element(m.b, m.b_at),
                  emitter.natural(m.rows), emitter.natural(m.columns), emitter.natural(m.depth),
                  emitter.natural(m.a_row), emitter.natural(m.b_row), emitter.natural(m.add)});
  } else if (micro.kind == ir::MicroKind::transpose) {
    const ir::TransposeMicro m = ir::TransposeMicro::of(micro);
    // A group moves as one element.
    ir::TransposeMicro of_groups = m;
    of_groups.to_row /= m.group, of_groups.from_row /= m.group;
    const MicroTarget whole{target.module, target.features,
                            m.group == 1 ? target.dtype : Dtype::uint32};
    llvm::Value* columns = emitter.natural(m.columns);
    if (m.group > 1)
      columns = b.CreateSDiv(b.CreateAdd(columns, b.getInt64(m.group - 1)), b.getInt64(m.group));
    b.CreateCall(
        transpose_function(whole, of_groups),
        {element(m.to, m.to_at), element(m.from, m.from_at), emitter.natural(m.rows), columns});
  } else if (micro.kind == ir::MicroKind::turn) {
    const ir::TurnMicro m = ir::TurnMicro::of(micro);
    llvm::Value *to = element(m.to, m.to_at), *to_row = emitter.natural(m.to_row);
    llvm::Value* past = m.to.local ? b.getInt64(0) : turns_past(emitter, target, to, to_row);
    b.CreateCall(
        turn_function(target, m.to.local),
        {to, element(m.from, m.from_at), element(m.from, m.next_at), emitter.natural(m.rows),
         emitter.natural(m.columns), to_row, emitter.natural(m.from_row), past});
  } else if (micro.kind == ir::MicroKind::rows) {
    const ir::RowsMicro m = ir::RowsMicro::of(micro);
    llvm::Value *array = element(m.array, m.at), *columns = emitter.natural(m.columns);
    llvm::Value* last =
        m.out ? rows_past(emitter, target, array, columns) : emitter.natural(m.left);
    b.CreateCall(rows_function(target, m),
                 {emitter.element_zero(m.local), array, emitter.natural(m.rows), columns,
                  emitter.natural(m.row), last});
  } else if (micro.kind == ir::MicroKind::pack) {
    const ir::PackMicro m = ir::PackMicro::of(micro);
    b.CreateCall(pack_function(target, m),
                 {element(m.to, m.to_at), element(m.from, m.from_at), emitter.natural(m.rows),
                  emitter.natural(m.columns), emitter.natural(m.from_row)});
  } else if (micro.kind == ir::MicroKind::tile_gemm) {
    const ir::TileGemmMicro m = ir::TileGemmMicro::of(micro);
    b.CreateCall(
        tile_gemm_function(target, m, emitter.dtype_of(m.a), emitter.dtype_of(m.b),
                           fixed_row(m.a, m.a_row)),
        {element(m.c, m.c_at), element(m.a, m.a_at), element(m.b, m.b_at), element(m.b, m.b_next),
         element(m.a, m.a_next), emitter.natural(m.rows), emitter.natural(m.columns),
         emitter.natural(m.depth), emitter.natural(m.a_row), emitter.natural(m.add)});
  } else {
    const ir::PanelMicro m = ir::PanelMicro::of(micro);
    b.CreateCall(panel_function(target, m, emitter.dtype_of(m.a), emitter.dtype_of(m.b)),
                 {element(m.c, m.c_at), element(m.a, m.a_at), element(m.b, m.b_at),
                  emitter.natural(m.columns), emitter.natural(m.depth), emitter.natural(m.b_stride),
                  emitter.natural(m.add), emitter.natural(m.before)});
  }
}

}  // namespace cermet::codegen
