// SPDX-License-Identifier: MIT
// Loads, stores and updates. In a lane loop a contiguous access is one vector access, an access that is
// the same in all lanes one scalar access, everything else a gather or scatter. Lanes out of range and
// lanes whose mask is false touch no memory.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PatternMatch.h>

#include <algorithm>
#include <ranges>

#include "codegen/llvm_emit.h"
#include "kernel/complex_update.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr unsigned kFarShift = 32;

bool shifts_far(const llvm::Value* value, llvm::SmallPtrSetImpl<const llvm::Value*>& seen) {
  namespace match = llvm::PatternMatch;
  const auto* op = llvm::dyn_cast<llvm::Instruction>(value);
  if (op == nullptr || llvm::isa<llvm::PHINode, llvm::LoadInst>(op)) return false;
  if (!seen.insert(op).second) return false;
  const llvm::APInt* by = nullptr;
  const bool far = (match::match(op, match::m_Shl(match::m_Value(), match::m_APInt(by))) &&
                    by->uge(kFarShift)) ||
                   (match::match(op, match::m_c_Mul(match::m_Value(), match::m_APInt(by))) &&
                    by->countr_zero() >= kFarShift);
  return far || llvm::any_of(op->operands(), [&](const llvm::Use& operand) {
           return shifts_far(operand.get(), seen);
         });
}

// LLVM 19 folds a shift of the index into the scale of a gather or scatter; the scale of one by about
// 62 bits overflows, and what is accessed is another element. Such an index is never handed to it.
bool is_safe_index(const llvm::Value* pointers) {
  llvm::SmallPtrSet<const llvm::Value*, 16> seen;
  return !shifts_far(pointers, seen);
}

}  // namespace

llvm::Align element_align(llvm::Type* type) {
  return llvm::Align(std::max<uint64_t>(1, type->getScalarSizeInBits() / 8));
}

// --- Vectors of which only some lanes are wanted.

bool Emitter::masked_is_native(llvm::Type* element) const {
  if (ops_.features().avx512) return true;
  return ops_.features().avx2 && element->getScalarSizeInBits() >= 32;
}

llvm::Value* Emitter::load_first(llvm::Type* type, Value* pointer, Value* active, Value* count) {
  if (ops_.features().x86 && masked_is_native(type->getScalarType()))
    return b_.CreateMaskedLoad(type, pointer, element_align(type), active);
  Value* scratch = ops_.slot(type);
  const uint64_t bytes = type->getScalarSizeInBits() / 8;
  b_.CreateMemCpy(scratch, element_align(type), pointer, element_align(type),
                  b_.CreateMul(count, b_.getInt64(bytes)));
  return b_.CreateAlignedLoad(type, scratch, llvm::Align(64));
}

void Emitter::store_first(Value* value, Value* pointer, Value* active, Value* count) {
  llvm::Type* type = value->getType();
  if (ops_.features().x86 && masked_is_native(type->getScalarType())) {
    b_.CreateMaskedStore(value, pointer, element_align(type), active);
    return;
  }
  Value* scratch = ops_.slot(type);
  b_.CreateAlignedStore(value, scratch, llvm::Align(64));
  const uint64_t bytes = type->getScalarSizeInBits() / 8;
  b_.CreateMemCpy(pointer, element_align(type), scratch, element_align(type),
                  b_.CreateMul(count, b_.getInt64(bytes)));
}

void Emitter::for_lanes(Value* mask, const Values& vectors,
                        const std::function<void(Value*, const Values&)>& body) {
  const int width = lanes()->width;
  const auto spill = [&](Value* vector) {
    Value* slot = ops_.slot(vector->getType());
    b_.CreateAlignedStore(vector, slot, llvm::Align(64));
    return slot;
  };
  Value* flags = nullptr;
  if (mask != nullptr) flags = spill(b_.CreateZExt(mask, with_width(b_.getInt8Ty(), width)));
  Values slots;
  for (Value* vector : vectors) slots.push_back(spill(vector));
  ops_.loop(b_.getInt64(static_cast<uint64_t>(width)), [&](Value* k) {
    llvm::BasicBlock* next = nullptr;
    if (flags != nullptr) {
      Value* flag = b_.CreateLoad(b_.getInt8Ty(), b_.CreateGEP(b_.getInt8Ty(), flags, k));
      llvm::BasicBlock* wanted = block("lane");
      next = block("next");
      b_.CreateCondBr(b_.CreateICmpNE(flag, b_.getInt8(0)), wanted, next);
      b_.SetInsertPoint(wanted);
    }
    Values elements;
    for (size_t i = 0; i < slots.size(); ++i) {
      llvm::Type* type = vectors[i]->getType()->getScalarType();
      elements.push_back(b_.CreateLoad(type, b_.CreateGEP(type, slots[i], k)));
    }
    body(k, elements);
    if (next == nullptr) return;
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  });
}

// --- Where and which.

// The address of the first lane: through the loop's pointers where it has them.
llvm::Value* Emitter::unit_pointer(BufferRef buffer, const Index& index) {
  const Lanes& l = *lanes();
  const size_t unit = l.pointers.empty() ? 0 : l.analysis->unit(buffer, index);
  if (unit >= l.pointers.size()) return address(buffer, index);
  return b_.CreateGEP(memory_type(buffer), l.pointers[unit], l.offset);
}

// All lanes are wanted.
bool Emitter::is_whole(ExprId mask) const {
  return mask == kNone && lanes()->active == nullptr && lanes()->width > 1;
}

llvm::Value* Emitter::active_mask(ExprId mask) {
  if (mask == kNone) return lanes()->active;
  Value* wanted = vector(mask);
  return lanes()->active == nullptr ? wanted : b_.CreateAnd(wanted, lanes()->active);
}

// One pointer for each lane. What is affine in the axis is a step from the first lane's address.
llvm::Value* Emitter::element_pointers(BufferRef buffer, const Index& index) {
  const LaneAnalysis& analysis = *lanes()->analysis;
  const int width = lanes()->width;
  Index straight;
  Value* step = nullptr;     // scalar: elements from lane to lane
  Value* offsets = nullptr;  // vector
  const auto sum = [&](Value* a, Value* b) { return a == nullptr ? b : b_.CreateAdd(a, b); };
  const auto scaled = [&](Value* v, int32_t stride) {
    return stride == kUnit ? v : b_.CreateMul(v, ops_.splat(this->stride(stride), width_of(v)));
  };
  for (const IndexTerm& term : index) {
    const std::optional<int64_t> c = analysis.coefficient(term.expr);
    if (c) {
      straight.push_back(term);
      if (*c != 0) step = sum(step, scaled(b_.getInt64(static_cast<uint64_t>(*c)), term.stride));
    } else {
      offsets = sum(offsets, scaled(vector(term.expr), term.stride));
    }
  }
  Value* pointer = address(buffer, straight);
  if (step != nullptr) {
    std::vector<uint64_t> numbers(static_cast<size_t>(width));
    for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = k;
    Value* lane = llvm::ConstantDataVector::get(b_.getContext(), numbers);
    offsets = sum(offsets, b_.CreateMul(lane, ops_.splat(step, width)));
  }
  return b_.CreateGEP(memory_type(buffer), pointer, offsets);
}

// --- Loads.

llvm::Value* Emitter::load(const Expr& e) {
  const Lanes* l = lanes();
  const Access access = l == nullptr || l->width == 1 ? Access{} : l->analysis->access(e.index);
  llvm::Type* element = memory_type(e.buffer);
  if (access.kind == AccessKind::uniform) {
    Value* stored = load_scalar(e);
    return ops_.from_memory(e.dtype, stored);
  }
  llvm::Type* type = with_width(element, l->width);
  const bool pair = access.kind == AccessKind::pair && is_whole(e.operands[0]);
  Value* stored = access.kind == AccessKind::unit ? load_unit(e, type)
                  : pair                          ? load_pair(e, type)
                                                  : load_gather(e, type, access);
  return ops_.from_memory(e.dtype, stored);
}

// One element for all lanes; read if any lane wants it.
llvm::Value* Emitter::load_scalar(const Expr& e) {
  llvm::Type* type = memory_type(e.buffer);
  if (e.operands[0] == kNone) return b_.CreateLoad(type, address(e.buffer, e.index));
  Value* mask = natural(e.operands[0]);
  Value* otherwise = e.operands[1] == kNone ? llvm::Constant::getNullValue(type)
                                            : ops_.to_memory(e.dtype, natural(e.operands[1]));
  const int width = std::max(width_of(mask), width_of(otherwise));
  Value* wanted = mask;
  if (width_of(mask) > 1 && lanes()->active != nullptr)
    wanted = b_.CreateAnd(mask, lanes()->active);
  otherwise = ops_.splat(otherwise, width);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* touch = block("touch");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(ops_.any_lane(wanted), touch, join);
  b_.SetInsertPoint(touch);
  Value* value = nullptr;
  in_scope({.kind = ScopeKind::conditional}, [&](Scope&) {
    value = ops_.splat(b_.CreateLoad(type, address(e.buffer, e.index)), width);
    if (width > 1) value = b_.CreateSelect(mask, value, otherwise);
  });
  llvm::BasicBlock* end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(value->getType(), 2);
  phi->addIncoming(otherwise, before);
  phi->addIncoming(value, end);
  return phi;
}

llvm::Value* Emitter::load_unit(const Expr& e, llvm::Type* type) {
  const Lanes& l = *lanes();
  if (e.operands[0] == kNone) {
    Value* pointer = unit_pointer(e.buffer, e.index);
    if (l.active == nullptr || (!l.pointers.empty() && !l.masked))
      return b_.CreateAlignedLoad(type, pointer, element_align(type));
    return load_first(type, pointer, l.active, l.count);
  }
  Value* mask = active_mask(e.operands[0]);
  Value* otherwise = e.operands[1] == kNone ? llvm::Constant::getNullValue(type)
                                            : ops_.to_memory(e.dtype, vector(e.operands[1]));
  Value* pointer = address(e.buffer, e.index);
  if (masked_is_native(type->getScalarType())) {
    // Where no lane is wanted, it may be that there is no memory: processors take long to find that out.
    Value* wanted = natural(e.operands[0]);
    if (width_of(wanted) == 1) pointer = b_.CreateSelect(wanted, pointer, ops_.slot(type));
    return b_.CreateMaskedLoad(type, pointer, element_align(type), mask, otherwise);
  }
  std::vector<uint64_t> numbers(static_cast<size_t>(l.width));
  for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = k;
  Value* lane = llvm::ConstantDataVector::get(b_.getContext(), numbers);
  return load_lanes(type, b_.CreateGEP(type->getScalarType(), pointer, lane), mask, otherwise);
}

llvm::Value* Emitter::load_gather(const Expr& e, llvm::Type* type, const Access& access) {
  // Gathers take an element at a time on many processors, and none takes elements below 32 bits.
  const bool is_near =
      access.kind == AccessKind::strided || lanes()->analysis->is_short_distance(e.index);
  if (is_near && window_lanes(type) > 0) return load_window(e, type);
  Value* mask = active_mask(e.operands[0]);
  Value* otherwise = e.operands[1] == kNone ? llvm::Constant::getNullValue(type)
                                            : ops_.to_memory(e.dtype, vector(e.operands[1]));
  return load_far(e, type, mask, otherwise);
}

llvm::Value* Emitter::gather(llvm::Type* type, Value* pointers, Value* mask, Value* otherwise) {
  if ((mask != nullptr || ops_.features().fast_gathers) &&
      masked_is_native(type->getScalarType()) && type->getScalarSizeInBits() >= 32 &&
      is_safe_index(pointers)) {
    if (mask == nullptr)
      mask = llvm::Constant::getAllOnesValue(with_width(b_.getInt1Ty(), lanes()->width));
    return b_.CreateMaskedGather(type, pointers, element_align(type), mask, otherwise);
  }
  return load_lanes(type, pointers, mask, otherwise);
}

// Pieces of some elements are put together in registers, one after the other: all pointers at once would be
// more than there are registers.
llvm::Value* Emitter::load_all_lanes(llvm::Type* type, Value* pointers) {
  constexpr unsigned kPieceBits = 128;
  llvm::Type* element = type->getScalarType();
  const auto width = static_cast<unsigned>(width_of(pointers));
  const unsigned lanes_each = std::min(width, kPieceBits / element->getScalarSizeInBits());
  llvm::Type* piece = with_width(element, static_cast<int>(lanes_each));
  Value* places = ops_.slot(pointers->getType());
  Value* slot = ops_.slot(type);
  b_.CreateAlignedStore(pointers, places, llvm::Align(64));
  ops_.loop(b_.getInt64(width / lanes_each), [&](Value* k) {
    Value* first = b_.CreateMul(k, b_.getInt64(lanes_each));
    Value* here = b_.CreateGEP(b_.getPtrTy(), places, first);
    Value* made = llvm::PoisonValue::get(piece);
    for (unsigned lane = 0; lane < lanes_each; ++lane) {
      Value* pointer =
          b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_32(b_.getPtrTy(), here, lane));
      made = b_.CreateInsertElement(made, b_.CreateLoad(element, pointer), lane);
    }
    b_.CreateAlignedStore(made, b_.CreateGEP(element, slot, first), llvm::Align(1));
  });
  return b_.CreateAlignedLoad(type, slot, llvm::Align(64));
}

// Element by element, for types and processors without gather.
llvm::Value* Emitter::load_lanes(llvm::Type* type, Value* pointers, Value* mask, Value* otherwise) {
  llvm::Type* element = type->getScalarType();
  if (mask == nullptr && width_of(pointers) > 1) return load_all_lanes(type, pointers);
  Value* slot = ops_.slot(type);
  b_.CreateAlignedStore(otherwise, slot, llvm::Align(64));
  for_lanes(mask, {pointers}, [&](Value* k, const Values& lane) {
    b_.CreateStore(b_.CreateLoad(element, lane[0]), b_.CreateGEP(element, slot, k));
  });
  return b_.CreateAlignedLoad(type, slot, llvm::Align(64));
}

// --- Stores.

void Emitter::store(const Store& s) {
  const Lanes* l = lanes();
  const Access access = l == nullptr || l->width == 1 ? Access{} : l->analysis->access(s.index);
  if (access.kind == AccessKind::uniform) return store_scalar(s);
  Value* value = ops_.to_memory(dtype_of(s.buffer), vector(s.value));
  llvm::Type* type = value->getType();
  if (access.kind == AccessKind::unit && s.mask == kNone) {
    Value* pointer = unit_pointer(s.buffer, s.index);
    if (l->active == nullptr || (!l->pointers.empty() && !l->masked)) {
      store_vector(value, pointer,
                   l->past.empty() ? nullptr : l->past[l->analysis->unit(s.buffer, s.index)]);
    } else {
      store_first(value, pointer, l->active, l->count);
    }
    return;
  }
  Value* mask = active_mask(s.mask);
  if (access.kind == AccessKind::unit && masked_is_native(type->getScalarType())) {
    b_.CreateMaskedStore(value, address(s.buffer, s.index), element_align(type), mask);
    return;
  }
  if (access.kind == AccessKind::strided) return store_strided(s, value, mask);
  scatter(s, value, mask);
}

void Emitter::scatter(const Store& s, Value* value, Value* mask) {
  llvm::Type* type = value->getType();
  Value* pointers = element_pointers(s.buffer, s.index);
  if (ops_.features().avx512 && type->getScalarSizeInBits() >= 32 && is_safe_index(pointers)) {
    if (mask == nullptr)
      mask = llvm::Constant::getAllOnesValue(with_width(b_.getInt1Ty(), width_of(value)));
    b_.CreateMaskedScatter(value, pointers, element_align(type), mask);
    return;
  }
  for_lanes(mask, {value, pointers},
            [&](Value*, const Values& lane) { b_.CreateStore(lane[0], lane[1]); });
}

// A whole vector; below the offset `past`, if there is one, past the cache.
void Emitter::store_vector(Value* value, Value* pointer, Value* past) {
  choose(
      past == nullptr ? nullptr : b_.CreateICmpSLT(lanes()->offset, past),
      [&] { store_past(value, pointer); },
      [&] { b_.CreateAlignedStore(value, pointer, element_align(value->getType())); });
}

// One where the condition holds (null: never), else the other.
void Emitter::choose(Value* condition, const std::function<void()>& then,
                     const std::function<void()>& otherwise) {
  if (condition == nullptr) return otherwise();
  llvm::BasicBlock* yes = block("then");
  llvm::BasicBlock* no = block("else");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(condition, yes, no);
  b_.SetInsertPoint(yes);
  then();
  b_.CreateBr(join);
  b_.SetInsertPoint(no);
  otherwise();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

void Emitter::store_past(Value* value, Value* pointer) {
  codegen::store_past(b_, value, pointer);
  set_stores_past();
}

void store_past(llvm::IRBuilder<>& b, llvm::Value* value, llvm::Value* pointer) {
  const auto bytes = static_cast<uint64_t>(value->getType()->getPrimitiveSizeInBits() / 8);
  llvm::StoreInst* store =
      b.CreateAlignedStore(value, pointer, llvm::Align(std::min(bytes, kLineBytes)));
  llvm::Metadata* one = llvm::ConstantAsMetadata::get(b.getInt32(1));
  store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(b.getContext(), {one}));
}

// One element: in a lane loop the last lane that wants it has the last word.
void Emitter::store_scalar(const Store& s) {
  Value* value = natural(s.value);
  Value* mask = s.mask == kNone ? nullptr : natural(s.mask);
  Value* pointer = address(s.buffer, s.index);
  const Dtype dtype = dtype_of(s.buffer);
  if (width_of(value) > 1 || (mask != nullptr && width_of(mask) > 1)) {
    Value* stored = ops_.to_memory(dtype, vector(s.value));
    for_lanes(active_mask(s.mask), {stored},
              [&](Value*, const Values& lane) { b_.CreateStore(lane[0], pointer); });
    return;
  }
  if (mask == nullptr) {
    b_.CreateStore(ops_.to_memory(dtype, value), pointer);
    return;
  }
  llvm::BasicBlock* touch = block("touch");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(mask, touch, join);
  b_.SetInsertPoint(touch);
  b_.CreateStore(ops_.to_memory(dtype, value), pointer);
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

// Contiguous elements at once; false if that is not to be had.
bool Emitter::update_unit(const Update& s) {
  const Lanes& l = *lanes();
  const Dtype dtype = dtype_of(s.buffer);
  llvm::Type* type = with_width(memory_type(s.buffer), l.width);
  const bool native = masked_is_native(type->getScalarType());
  if (s.imag != kNone || l.analysis->access(s.index).kind != AccessKind::unit ||
      (s.mask != kNone && !native))
    return false;
  Value* value = ops_.from_memory(dtype, ops_.to_memory(dtype, vector(s.value)));
  Value* mask = active_mask(s.mask);
  Value* pointer = address(s.buffer, s.index);
  const llvm::Align align = element_align(type);
  Value* old =
      mask == nullptr ? b_.CreateAlignedLoad(type, pointer, align)
      : native ? b_.CreateMaskedLoad(type, pointer, align, mask, llvm::Constant::getNullValue(type))
               : load_first(type, pointer, l.active, l.count);
  const std::array operands{ops_.from_memory(dtype, old), value};
  Value* made = ops_.to_memory(dtype, ops_.op(s.code, dtype, dtype, operands));
  if (mask == nullptr) b_.CreateAlignedStore(made, pointer, align);
  else if (native) b_.CreateMaskedStore(made, pointer, align, mask);
  else store_first(made, pointer, l.active, l.count);
  return true;
}

// To be written, into every cache.
void Emitter::fetch(const Fetch& s) {
  constexpr unsigned kWrite = 1, kIntoL1 = 3, kData = 1;
  b_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {b_.getPtrTy()},
      {address(s.buffer, s.index), b_.getInt32(kWrite), b_.getInt32(kIntoL1), b_.getInt32(kData)});
}

// Elsewhere lane after lane.
void Emitter::update(const Update& s) {
  const Dtype dtype = dtype_of(s.buffer);
  const auto load = [&](Value* pointer) {
    return ops_.from_memory(dtype, b_.CreateLoad(memory_type(s.buffer), pointer));
  };
  const auto op = [&](Code code, Dtype result, Dtype operand, const auto& operands) {
    return ops_.op(code, result, operand, operands);
  };
  const auto apply = [&](Value* value, Value* pointer, Value* imag) {
    if (imag == nullptr) {
      const std::array operands{load(pointer), value};
      b_.CreateStore(ops_.to_memory(dtype, op(s.code, dtype, dtype, operands)), pointer);
      return;
    }
    Value* next = b_.CreateConstGEP1_64(memory_type(s.buffer), pointer, 1);
    const Parts<Value*> old{load(pointer), load(next)};
    const Parts<Value*> parts = update_complex(s.code, dtype, old, Parts<Value*>{value, imag}, op);
    b_.CreateStore(ops_.to_memory(dtype, parts[0]), pointer);
    b_.CreateStore(ops_.to_memory(dtype, parts[1]), next);
  };
  const Lanes* l = lanes();
  if (l != nullptr && l->width > 1) {
    if (update_unit(s)) return;
    Value* value = ops_.to_memory(dtype, vector(s.value));
    const Access access = l->analysis->access(s.index);
    Value* pointers = access.kind == AccessKind::uniform
                          ? ops_.splat(address(s.buffer, s.index), l->width)
                          : element_pointers(s.buffer, s.index);
    Values vectors{value, pointers};
    if (s.imag != kNone) vectors.push_back(ops_.to_memory(dtype, vector(s.imag)));
    for_lanes(active_mask(s.mask), vectors, [&](Value*, const Values& lane) {
      Value* imag = s.imag == kNone ? nullptr : ops_.from_memory(dtype, lane[2]);
      apply(ops_.from_memory(dtype, lane[0]), lane[1], imag);
    });
    return;
  }
  Value* value = natural(s.value);
  Value* imag = s.imag == kNone ? nullptr : natural(s.imag);
  Value* pointer = address(s.buffer, s.index);
  if (s.mask == kNone) return apply(value, pointer, imag);
  llvm::BasicBlock* touch = block("touch");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(natural(s.mask), touch, join);
  b_.SetInsertPoint(touch);
  apply(value, pointer, imag);
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

// --- Merge.

llvm::Value* Emitter::merge_source(LocalId local, ExprId at, ExprId stride, Value* i) {
  const BufferRef buffer{.local = true, .id = local};
  const Dtype dtype = dtype_of(buffer);
  llvm::Type* element = memory_type(buffer);
  Value* block = b_.CreateMul(i, natural(stride));
  const Lanes* l = lanes();
  const std::optional<int64_t> c =
      l == nullptr || l->width == 1 ? std::optional<int64_t>(0) : l->analysis->coefficient(at);
  if (c == 0 || c == 1) {
    Value* pointer = b_.CreateGEP(element, element_zero(buffer), b_.CreateAdd(base(at), block));
    if (c == 0) return ops_.from_memory(dtype, b_.CreateLoad(element, pointer));
    llvm::Type* type = with_width(element, l->width);
    Value* stored =
        l->active == nullptr
            ? static_cast<Value*>(b_.CreateAlignedLoad(type, pointer, element_align(type)))
            : load_first(type, pointer, l->active, l->count);
    return ops_.from_memory(dtype, stored);
  }
  // The lanes run along another axis than the states lie, as where a result is stored transposed.
  Value* offsets = b_.CreateAdd(vector(at), ops_.splat(block, l->width));
  Value* pointers = b_.CreateGEP(element, element_zero(buffer), offsets);
  llvm::Type* type = with_width(element, l->width);
  Value* stored = gather(type, pointers, l->active, llvm::Constant::getNullValue(type));
  return ops_.from_memory(dtype, stored);
}

}  // namespace cermet::codegen
