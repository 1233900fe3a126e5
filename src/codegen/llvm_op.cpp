// SPDX-License-Identifier: MIT
#include "codegen/llvm_op.h"

#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include "base/error.h"

namespace cermet::codegen {

using ir::Code;
using llvm::Intrinsic::ID;

namespace {

bool is_signed_dtype(Dtype d) { return is_integer(d) && is_signed(d); }

int bits_of(Dtype d) { return static_cast<int>(size_of(d)) * 8; }

// The constant in every lane of x, or null.
llvm::Constant* splat_constant(llvm::Value* x) {
  auto* c = llvm::dyn_cast<llvm::Constant>(x);
  if (c == nullptr) return nullptr;
  return c->getType()->isVectorTy() ? c->getSplatValue() : c;
}

}  // namespace

CpuFeatures features_of(CpuLevel level) {
  CpuFeatures f;
  // What these two stand for (rounding; fma, half types, in vectors) NEON has, too.
  f.sse41 = f.avx2 = level >= CpuLevel::avx2 || level == CpuLevel::neon;
  f.avx512 = level >= CpuLevel::avx512;
  f.vector_bytes = f.avx512 ? 64 : level >= CpuLevel::avx2 ? 32 : 16;
  f.bf16 = level >= CpuLevel::avx512_bf16;
  f.vnni = level >= CpuLevel::avx512_bf16;
  f.tiles = level >= CpuLevel::amx;
  f.x86 = level != CpuLevel::neon;
  f.fast_gathers = f.x86 && has_fast_gathers();
  f.full_width = f.avx512 && runs_64_bytes_whole();
  f.prefetches_into_l1 = f.avx512 && prefetches_into_l1();
  f.fetches_far = f.avx512 && fetches_far();
  return f;
}

int width_of(const llvm::Value* value) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
}

llvm::Type* with_width(llvm::Type* element, int width) {
  return width == 1 ? element : llvm::FixedVectorType::get(element, width);
}

bool is_zero(const llvm::Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value);
  return constant != nullptr && constant->isZero();
}

llvm::Type* OpEmitter::register_type(Dtype dtype) const {
  switch (dtype) {
    case Dtype::boolean: return b_.getInt1Ty();
    case Dtype::float32: return b_.getFloatTy();
    case Dtype::float64: return b_.getDoubleTy();
    default: return b_.getIntNTy(bits_of(dtype));
  }
}

llvm::Type* OpEmitter::memory_type(Dtype dtype) const {
  return dtype == Dtype::boolean ? b_.getInt8Ty() : register_type(dtype);
}

llvm::Value* OpEmitter::from_memory(Dtype dtype, Value* stored) {
  return dtype == Dtype::boolean ? b_.CreateICmpNE(stored, like_bits(stored, 0)) : stored;
}

llvm::Value* OpEmitter::to_memory(Dtype dtype, Value* value) {
  if (dtype != Dtype::boolean) return value;
  return b_.CreateZExt(value, with_width(b_.getInt8Ty(), width_of(value)));
}

llvm::Value* OpEmitter::constant(Dtype dtype, uint64_t bits) const {
  llvm::Type* type = register_type(dtype);
  if (type->isIntegerTy()) return llvm::ConstantInt::get(type, bits);
  const llvm::APInt raw(bits_of(dtype), bits);
  return llvm::ConstantFP::get(type, llvm::APFloat(type->getFltSemantics(), raw));
}

llvm::Value* OpEmitter::splat(Value* scalar, int width) {
  if (width == 1 || scalar->getType()->isVectorTy()) return scalar;
  return b_.CreateVectorSplat(width, scalar);
}

llvm::AllocaInst* OpEmitter::slot(llvm::Type* type, uint64_t count) {
  llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> at(&entry, entry.getFirstInsertionPt());
  llvm::AllocaInst* made = at.CreateAlloca(llvm::ArrayType::get(type, count));
  made->setAlignment(llvm::Align(64));
  return made;
}

llvm::Value* OpEmitter::any_lane(Value* predicate) {
  const int width = width_of(predicate);
  if (width == 1) return predicate;
  Value* mask = b_.CreateBitCast(predicate, b_.getIntNTy(width));
  return b_.CreateICmpNE(mask, like_bits(mask, 0));
}

void OpEmitter::loop(Value* count, const std::function<void(Value*)>& body) {
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(b_.getContext(), "", function);
  auto* inside = llvm::BasicBlock::Create(b_.getContext(), "", function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "", function);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* k = b_.CreatePHI(b_.getInt64Ty(), 2);
  k->addIncoming(b_.getInt64(0), before);
  b_.CreateCondBr(b_.CreateICmpSLT(k, count), inside, after);
  b_.SetInsertPoint(inside);
  body(k);
  k->addIncoming(b_.CreateAdd(k, b_.getInt64(1)), b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
}

llvm::Value* OpEmitter::as_integer(Value* x) {
  llvm::Type* scalar = x->getType()->getScalarType();
  if (scalar->isIntegerTy()) return x;
  return b_.CreateBitCast(x, with_width(b_.getIntNTy(scalar->getScalarSizeInBits()), width_of(x)));
}

llvm::Value* OpEmitter::like(Value* x, double v) { return llvm::ConstantFP::get(x->getType(), v); }
llvm::Value* OpEmitter::like_bits(Value* x, uint64_t v) {
  return llvm::ConstantInt::get(x->getType(), v);
}

llvm::Value* OpEmitter::intrinsic(ID id, std::span<Value* const> v) {
  llvm::Function* f =
      llvm::Intrinsic::getDeclaration(b_.GetInsertBlock()->getModule(), id, {v[0]->getType()});
  return b_.CreateCall(f, llvm::ArrayRef<Value*>(v.data(), v.size()));
}

llvm::Value* OpEmitter::op(Code code, Dtype result, Dtype operand,
                           std::span<Value* const> arguments) {
  int width = 1;
  for (Value* v : arguments) width = std::max(width, width_of(v));
  llvm::SmallVector<Value*, 4> v;
  for (Value* argument : arguments) v.push_back(splat(argument, width));
  if (code == Code::cast) return cast(result, operand, v[0]);
  if (code == Code::cast_normal)
    return converts(width) ? native_float_to_bfloat16(v[0]) : soft_float_to_bfloat16(v[0]);
  if (code == Code::select) return select(v[0], v[1], v[2]);
  if (code == Code::bitcast) {
    llvm::Type* to = with_width(register_type(result), width);
    return operand == Dtype::boolean ? b_.CreateZExt(v[0], to) : b_.CreateBitCast(v[0], to);
  }
  if (code >= Code::eq && code <= Code::le) return compare(code, operand, v[0], v[1]);
  if (is_floating(operand)) return floating(code, operand, v);
  return integer(code, operand, v[0], v.back());  // a unary op reads the first alone
}

llvm::Value* OpEmitter::compare(Code code, Dtype dtype, Value* x, Value* y) {
  if (is_floating(dtype)) {
    switch (code) {
      case Code::eq: return b_.CreateFCmpOEQ(x, y);
      case Code::ne: return b_.CreateFCmpUNE(x, y);
      case Code::lt: return b_.CreateFCmpOLT(x, y);
      default: return b_.CreateFCmpOLE(x, y);
    }
  }
  const bool sign = is_signed_dtype(dtype);
  switch (code) {
    case Code::eq: return b_.CreateICmpEQ(x, y);
    case Code::ne: return b_.CreateICmpNE(x, y);
    case Code::lt: return sign ? b_.CreateICmpSLT(x, y) : b_.CreateICmpULT(x, y);
    default: return sign ? b_.CreateICmpSLE(x, y) : b_.CreateICmpULE(x, y);
  }
}

llvm::Value* OpEmitter::integer(Code code, Dtype dtype, Value* x, Value* y) {
  const bool sign = is_signed_dtype(dtype);
  const auto count = [&] { return b_.CreateAnd(y, like_bits(y, bits_of(dtype) - 1)); };
  switch (code) {
    case Code::add: return b_.CreateAdd(x, y);
    case Code::sub: return b_.CreateSub(x, y);
    case Code::mul: return b_.CreateMul(x, y);
    case Code::div:
    case Code::rem: return integer_div(code, dtype, x, y);
    case Code::neg: return b_.CreateNeg(x);
    case Code::abs:
      return sign ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b_.getFalse()) : x;
    case Code::min:
      return b_.CreateBinaryIntrinsic(sign ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, x, y);
    case Code::max:
      return b_.CreateBinaryIntrinsic(sign ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, x, y);
    case Code::bit_and: return b_.CreateAnd(x, y);
    case Code::bit_or: return b_.CreateOr(x, y);
    case Code::bit_xor: return b_.CreateXor(x, y);
    case Code::bit_not: return b_.CreateNot(x);
    case Code::shl: return b_.CreateShl(x, count());
    case Code::shr: return sign ? b_.CreateAShr(x, count()) : b_.CreateLShr(x, count());
    case Code::rotl:
      return b_.CreateIntrinsic(llvm::Intrinsic::fshl, {x->getType()}, {x, x, count()});
    default: break;
  }
  throw_internal(__FILE__, __LINE__, fmt::format("{} of integers", name_of(code)));
}

// The divisors 0 and -1 are replaced before the division, which would trap, and answered after it.
llvm::Value* OpEmitter::integer_div(Code code, Dtype dtype, Value* x, Value* y) {
  const bool sign = is_signed_dtype(dtype);
  const auto* known = llvm::dyn_cast_or_null<llvm::ConstantInt>(splat_constant(y));
  if (known != nullptr && !known->isZero() && !(sign && known->isMinusOne())) {
    Value* quotient = sign ? b_.CreateSDiv(x, y) : b_.CreateUDiv(x, y);
    return code == Code::rem ? b_.CreateSub(x, b_.CreateMul(quotient, y)) : quotient;
  }
  Value* one = like_bits(y, 1);
  Value* zero = b_.CreateICmpEQ(y, like_bits(y, 0));
  Value* minus = sign ? b_.CreateICmpEQ(y, like_bits(y, ~uint64_t{0})) : nullptr;
  Value* safe = b_.CreateSelect(zero, one, y);
  if (sign) safe = b_.CreateSelect(minus, one, safe);
  Value* quotient = nullptr;
  if (splat_constant(y) == nullptr && width_of(x) > 1 && bits_of(dtype) <= 32) {
    quotient = wide_quotient(dtype, x, safe);
  } else {
    quotient = sign ? b_.CreateSDiv(x, safe) : b_.CreateUDiv(x, safe);
  }
  Value* answer = quotient;
  Value* nothing = like_bits(y, 0);
  if (code == Code::rem) answer = b_.CreateSub(x, b_.CreateMul(quotient, safe));
  if (sign) answer = b_.CreateSelect(minus, code == Code::rem ? nothing : b_.CreateNeg(x), answer);
  return b_.CreateSelect(zero, nothing, answer);
}

// Exact: a quotient of 32-bit integers is further from the next integer than a double's rounding.
llvm::Value* OpEmitter::wide_quotient(Dtype dtype, Value* x, Value* y) {
  llvm::Type* wide = with_width(b_.getDoubleTy(), width_of(x));
  if (is_signed_dtype(dtype)) {
    Value* q = b_.CreateFDiv(b_.CreateSIToFP(x, wide), b_.CreateSIToFP(y, wide));
    return b_.CreateFPToSI(q, x->getType());
  }
  Value* q = b_.CreateFDiv(b_.CreateUIToFP(x, wide), b_.CreateUIToFP(y, wide));
  return b_.CreateFPToUI(q, x->getType());
}

llvm::Value* OpEmitter::floating(Code code, Dtype dtype, std::span<Value* const> v) {
  const bool single = dtype == Dtype::float32;
  switch (code) {
    case Code::add: return b_.CreateFAdd(v[0], v[1]);
    case Code::sub: return b_.CreateFSub(v[0], v[1]);
    case Code::mul: return b_.CreateFMul(v[0], v[1]);
    case Code::div: return b_.CreateFDiv(v[0], v[1]);
    case Code::rem: return call_lanes(single ? "fmodf" : "fmod", v);
    case Code::neg: return b_.CreateFNeg(v[0]);
    case Code::abs: return intrinsic(llvm::Intrinsic::fabs, v);
    case Code::fma:
      if (features_.avx2) return intrinsic(llvm::Intrinsic::fma, v);
      return call_lanes(single ? "fmaf" : "fma", v);
    case Code::min: return float_min(v[0], v[1]);
    case Code::max: return float_max(v[0], v[1]);
    case Code::sqrt: return intrinsic(llvm::Intrinsic::sqrt, v);
    case Code::floor:
    case Code::ceil:
    case Code::trunc:
    case Code::rint: return round(code, v[0]);
    case Code::scale2: return scale2(dtype, v[0], v[1]);
    case Code::fract: return fraction(v[0]);
    default: break;
  }
  throw_internal(__FILE__, __LINE__, fmt::format("{} of floats", name_of(code)));
}

// The x86 instruction min(x, y) = x < y ? x : y gives y for two zeros and for NaN; joined with min(y, x)
// the sign bit of a zero and the bits of a NaN survive.
llvm::Value* OpEmitter::float_min(Value* x, Value* y) {
  const auto min = [&](Value* p, Value* q) {
    return b_.CreateSelect(b_.CreateFCmpOLT(p, q), p, q);
  };
  for (auto [value, other] : {std::pair{x, y}, std::pair{y, x}}) {
    const auto* c = llvm::dyn_cast_or_null<llvm::ConstantFP>(splat_constant(value));
    if (c != nullptr && !c->isNaN() && !(c->isZero() && c->isNegative())) return min(value, other);
  }
  Value* both = b_.CreateOr(as_integer(min(x, y)), as_integer(min(y, x)));
  return b_.CreateBitCast(both, x->getType());
}

llvm::Value* OpEmitter::float_max(Value* x, Value* y) {
  const auto max = [&](Value* p, Value* q) {
    return b_.CreateSelect(b_.CreateFCmpOGT(p, q), p, q);
  };
  for (auto [value, other] : {std::pair{x, y}, std::pair{y, x}}) {
    const auto* c = llvm::dyn_cast_or_null<llvm::ConstantFP>(splat_constant(value));
    if (c == nullptr || c->isNaN()) continue;
    Value* best = max(value, other);
    // max(+0, -0) gives -0, which adding +0 mends.
    return c->isZero() && !c->isNegative() ? b_.CreateFAdd(best, like(best, 0.0)) : best;
  }
  if (Value* native = native_max(x, y); native != nullptr) return native;
  Value* both = b_.CreateAnd(as_integer(max(x, y)), as_integer(max(y, x)));
  Value* nan = unordered(x, y);
  return b_.CreateBitCast(b_.CreateOr(both, nan), x->getType());
}

// Ones where x or y is NaN. LLVM takes long to turn a vector of bits into one of integers again.
llvm::Value* OpEmitter::unordered(Value* x, Value* y) {
  constexpr uint8_t kUnordered = 3;
  const bool single = x->getType()->getScalarType()->isFloatTy();
  if (features_.x86 && features_.avx2 && 32 == width_of(x) * (single ? 4 : 8))
    return as_integer(b_.CreateIntrinsic(
        single ? llvm::Intrinsic::x86_avx_cmp_ps_256 : llvm::Intrinsic::x86_avx_cmp_pd_256, {},
        {x, y, b_.getInt8(kUnordered)}));
  if (features_.x86 && 16 == width_of(x) * (single ? 4 : 8))
    return as_integer(b_.CreateIntrinsic(
        single ? llvm::Intrinsic::x86_sse_cmp_ps : llvm::Intrinsic::x86_sse2_cmp_pd, {},
        {x, y, b_.getInt8(kUnordered)}));
  return b_.CreateSExt(b_.CreateFCmpUNO(x, y), as_integer(x)->getType());
}

// vrange orders zeros; it gives the other operand for a NaN, which the masked sum puts back.
llvm::Value* OpEmitter::native_max(Value* x, Value* y) {
  if (!features_.avx512) return nullptr;
  const bool single = x->getType()->getScalarType()->isFloatTy();
  const int width = width_of(x);
  const int bits = width * (single ? 32 : 64);
  if (bits < 128) {
    const auto wide = [&](Value* v) {
      llvm::Type* type = with_width(x->getType(), single ? 4 : 2);
      return b_.CreateInsertElement(llvm::PoisonValue::get(type), v, uint64_t{0});
    };
    return width == 1 ? b_.CreateExtractElement(native_max(wide(x), wide(y)), uint64_t{0})
                      : nullptr;
  }
  ID id = llvm::Intrinsic::not_intrinsic;
  switch (bits) {
    case 128:
      id = single ? llvm::Intrinsic::x86_avx512_mask_range_ps_128
                  : llvm::Intrinsic::x86_avx512_mask_range_pd_128;
      break;
    case 256:
      id = single ? llvm::Intrinsic::x86_avx512_mask_range_ps_256
                  : llvm::Intrinsic::x86_avx512_mask_range_pd_256;
      break;
    case 512:
      id = single ? llvm::Intrinsic::x86_avx512_mask_range_ps_512
                  : llvm::Intrinsic::x86_avx512_mask_range_pd_512;
      break;
    default: return nullptr;
  }
  constexpr int kMaxWithComparedSign = 5;
  llvm::Type* mask = b_.getIntNTy(std::max(width, 8));
  llvm::SmallVector<Value*, 6> v = {x, y, b_.getInt32(kMaxWithComparedSign), x,
                                    llvm::Constant::getAllOnesValue(mask)};
  if (bits == 512) v.push_back(b_.getInt32(4));  // the current rounding
  Value* range = b_.CreateIntrinsic(id, {}, v);
  return b_.CreateSelect(b_.CreateFCmpUNO(x, y), b_.CreateFAdd(x, y), range);
}

llvm::Value* OpEmitter::round(Code code, Value* x) {
  const bool single = x->getType()->getScalarType()->isFloatTy();
  if (!features_.sse41) {
    const char* name = code == Code::floor   ? (single ? "floorf" : "floor")
                       : code == Code::ceil  ? (single ? "ceilf" : "ceil")
                       : code == Code::trunc ? (single ? "truncf" : "trunc")
                                             : (single ? "rintf" : "rint");
    return call_lanes(name, {&x, 1});
  }
  const ID id = code == Code::floor   ? llvm::Intrinsic::floor
                : code == Code::ceil  ? llvm::Intrinsic::ceil
                : code == Code::trunc ? llvm::Intrinsic::trunc
                                      : llvm::Intrinsic::rint;
  return intrinsic(id, {&x, 1});
}

// What the value is the floor of; null: it is none.
llvm::Value* OpEmitter::floored(Value* x) {
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(x);
  return call != nullptr && call->getIntrinsicID() == llvm::Intrinsic::floor
             ? call->getArgOperand(0)
             : nullptr;
}

// A whole vector of AVX-512.
bool OpEmitter::is_whole(Value* x) const {
  const auto bits = static_cast<int>(x->getType()->getScalarSizeInBits());
  return features_.avx512 && width_of(x) * bits == 512;
}

llvm::Value* OpEmitter::fraction(Value* x) {
  if (!is_whole(x)) return b_.CreateFSub(x, round(Code::floor, x));
  constexpr int kOfFloor = 9;  // without exceptions
  const int width = width_of(x);
  const bool single = x->getType()->getScalarType()->isFloatTy();
  const ID id = single ? llvm::Intrinsic::x86_avx512_mask_reduce_ps_512
                       : llvm::Intrinsic::x86_avx512_mask_reduce_pd_512;
  llvm::Constant* all = llvm::Constant::getAllOnesValue(b_.getIntNTy(static_cast<unsigned>(width)));
  return b_.CreateIntrinsic(id, {}, {x, b_.getInt32(kOfFloor), x, all, b_.getInt32(4)});
}

// Without vscalef: two factors, each with half of the exponent, so that the first product is exact unless
// the result is subnormal and x nearly so.
llvm::Value* OpEmitter::scale2(Dtype dtype, Value* x, Value* n) {
  const bool single = dtype == Dtype::float32;
  if (is_whole(x)) {
    const int width = width_of(x);
    if (Value* given = floored(n); given != nullptr) n = given;  // vscalef takes the floor itself
    const ID id = single ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_512
                         : llvm::Intrinsic::x86_avx512_mask_scalef_pd_512;
    llvm::Type* mask = b_.getIntNTy(width);
    return b_.CreateIntrinsic(id, {},
                              {x, n, x, llvm::Constant::getAllOnesValue(mask), b_.getInt32(4)});
  }
  // A small integer stands in the low bits of its sum with 1.5 times the power of two behind the mantissa:
  // n and both exponents' biases, which the two halves share.
  const int bias = single ? 127 : 1023;
  Value* sum = b_.CreateFAdd(n, like(n, (single ? 12582912.0 : 6755399441055744.0) + 2 * bias));
  Value* both = as_integer(sum);
  Value* half = b_.CreateLShr(both, like_bits(both, 1));
  for (Value* exponent : {half, b_.CreateSub(both, half)}) {
    Value* bits = b_.CreateShl(exponent, like_bits(both, single ? 23 : 52));
    x = b_.CreateFMul(x, b_.CreateBitCast(bits, x->getType()));
  }
  return x;
}

// The C function on each lane; through the frame, so that the code does not grow with the width.
llvm::Value* OpEmitter::call_lanes(const char* function, std::span<Value* const> v) {
  llvm::Type* type = v[0]->getType()->getScalarType();
  llvm::SmallVector<llvm::Type*, 3> types(v.size(), type);
  llvm::FunctionCallee callee = b_.GetInsertBlock()->getModule()->getOrInsertFunction(
      function, llvm::FunctionType::get(type, types, false));
  const int width = width_of(v[0]);
  if (width == 1) return b_.CreateCall(callee, llvm::ArrayRef<Value*>(v.data(), v.size()));
  llvm::SmallVector<Value*, 3> slots;
  for (Value* argument : v) {
    slots.push_back(slot(argument->getType()));
    b_.CreateStore(argument, slots.back());
  }
  loop(b_.getInt64(width), [&](Value* k) {
    llvm::SmallVector<Value*, 3> lane;
    for (Value* at : slots) lane.push_back(b_.CreateLoad(type, b_.CreateGEP(type, at, k)));
    b_.CreateStore(b_.CreateCall(callee, lane), b_.CreateGEP(type, slots[0], k));
  });
  return b_.CreateLoad(v[0]->getType(), slots[0]);
}

llvm::Value* OpEmitter::cast(Dtype to, Dtype from, Value* x) {
  if (to == from) return x;
  if (is_half(from)) return half_to_float(from, x);
  if (is_half(to)) return float_to_half(to, x);
  llvm::Type* type = with_width(register_type(to), width_of(x));
  if (is_floating(from)) {
    if (to == Dtype::boolean) return b_.CreateFCmpUNE(x, like(x, 0.0));
    if (is_floating(to)) return b_.CreateFPCast(x, type);
    return float_to_integer(to, from, x);
  }
  if (to == Dtype::boolean) return b_.CreateICmpNE(x, like_bits(x, 0));
  if (is_floating(to)) {
    if (from == Dtype::boolean)
      return b_.CreateSelect(x, llvm::ConstantFP::get(type, 1.0), llvm::ConstantFP::get(type, 0.0));
    return is_signed(from) ? b_.CreateSIToFP(x, type) : b_.CreateUIToFP(x, type);
  }
  return b_.CreateIntCast(x, type, is_signed_dtype(from));
}

// In range before the conversion, whose result is else undefined; too large is answered after it, as
// the maximum itself may be no float.
llvm::Value* OpEmitter::float_to_integer(Dtype to, Dtype from, Value* x) {
  const bool sign = is_signed(to);
  const int bits = bits_of(to);
  llvm::Type* type = with_width(register_type(to), width_of(x));
  Value* limit = like(x, std::ldexp(1.0, sign ? bits - 1 : bits));
  Value* lowest = like(x, sign ? -std::ldexp(1.0, bits - 1) : 0.0);
  Value* below = b_.CreateFCmpOLT(x, limit);
  Value* safe = b_.CreateSelect(below, x, like(x, 0.0));
  safe = b_.CreateSelect(b_.CreateFCmpOGT(safe, lowest), safe, lowest);
  Value* result = nullptr;
  if (bits <= 16) {
    // Every result fits 32 bits, for which there are instructions.
    llvm::Type* wide = with_width(b_.getInt32Ty(), width_of(x));
    result = b_.CreateTrunc(b_.CreateFPToSI(safe, wide), type);
  } else {
    result = sign ? b_.CreateFPToSI(safe, type) : b_.CreateFPToUI(safe, type);
  }
  (void)from;
  Value* over = b_.CreateFCmpOGE(x, limit);
  const uint64_t ones = ~uint64_t{0} >> (64 - bits);
  return b_.CreateSelect(over, llvm::ConstantInt::get(type, sign ? ones >> 1 : ones), result);
}

llvm::Value* OpEmitter::half_to_float(Dtype from, Value* x) {
  const int width = width_of(x);
  llvm::Type* wide = with_width(b_.getInt32Ty(), width);
  llvm::Type* type = with_width(b_.getFloatTy(), width);
  if (from == Dtype::bfloat16)
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(x, wide), 16), type);
  if (!features_.avx2) return soft_float16_to_float(x);
  return b_.CreateFPExt(b_.CreateBitCast(x, with_width(b_.getHalfTy(), width)), type);
}

llvm::Value* OpEmitter::float_to_half(Dtype to, Value* x) {
  const int width = width_of(x);
  llvm::Type* narrow = with_width(b_.getInt16Ty(), width);
  if (to == Dtype::float16) {
    if (!features_.avx2) return soft_float_to_float16(x);
    return b_.CreateBitCast(b_.CreateFPTrunc(x, with_width(b_.getHalfTy(), width)), narrow);
  }
  if (!converts(width)) return soft_float_to_bfloat16(x);
  constexpr uint64_t kSubnormal = 0x20;  // a class of VFPCLASSPS
  Value* is_subnormal = b_.CreateIntrinsic(width == 16 ? llvm::Intrinsic::x86_avx512_fpclass_ps_512
                                                       : llvm::Intrinsic::x86_avx512_fpclass_ps_256,
                                           {}, {x, b_.getInt32(kSubnormal)});
  return unless(any_lane(is_subnormal), native_float_to_bfloat16(x),
                [&] { return soft_float_to_bfloat16(x); });
}

llvm::Value* OpEmitter::soft_float_to_bfloat16(Value* x) {
  Value* bits = as_integer(x);
  Value* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), like_bits(bits, 1));
  Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, like_bits(bits, 0x7fff)));
  Value* quiet = b_.CreateOr(bits, like_bits(bits, 0x400000));
  Value* high = b_.CreateSelect(b_.CreateFCmpUNO(x, x), quiet, rounded);
  return b_.CreateTrunc(b_.CreateLShr(high, 16), with_width(b_.getInt16Ty(), width_of(x)));
}

// AVX-512 clears the lanes where a mask is not set at no cost: zeros stand second.
llvm::Value* OpEmitter::select(Value* condition, Value* yes, Value* no) {
  auto* compare = llvm::dyn_cast<llvm::FCmpInst>(condition);
  const auto* zero = llvm::dyn_cast<llvm::Constant>(yes);
  if (!features_.avx512 || width_of(condition) == 1 || compare == nullptr || zero == nullptr ||
      !zero->isNullValue())
    return b_.CreateSelect(condition, yes, no);
  Value* other =
      b_.CreateFCmp(compare->getInversePredicate(), compare->getOperand(0), compare->getOperand(1));
  // So are two conditions: the second comparison takes the first one's mask.
  auto* inner = llvm::dyn_cast<llvm::SelectInst>(no);
  if (inner != nullptr && inner->getFalseValue() == yes && inner->use_empty())
    return b_.CreateSelect(b_.CreateAnd(inner->getCondition(), other), inner->getTrueValue(), yes);
  return b_.CreateSelect(other, no, yes);
}

// The instruction takes subnormal numbers as zeros.
llvm::Value* OpEmitter::native_float_to_bfloat16(Value* x) {
  const int width = width_of(x);
  Value* made = b_.CreateIntrinsic(width == 16 ? llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512
                                               : llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_256,
                                   {}, {x});
  return b_.CreateBitCast(made, with_width(b_.getInt16Ty(), width));
}

llvm::Value* OpEmitter::unless(Value* rare, Value* common, const std::function<Value*()>& slow) {
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  auto* cold = llvm::BasicBlock::Create(b_.getContext(), "rare", function);
  auto* join = llvm::BasicBlock::Create(b_.getContext(), "join", function);
  llvm::MDNode* weights = llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1 << 20);
  b_.CreateCondBr(rare, cold, join, weights);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  b_.SetInsertPoint(cold);
  Value* answer = slow();
  llvm::BasicBlock* end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(common->getType(), 2);
  phi->addIncoming(common, before);
  phi->addIncoming(answer, end);
  return phi;
}

// The exponent is rebased by one exact product, which normalises subnormals as well.
llvm::Value* OpEmitter::soft_float16_to_float(Value* x) {
  llvm::Type* type = with_width(b_.getFloatTy(), width_of(x));
  Value* bits = b_.CreateZExt(x, with_width(b_.getInt32Ty(), width_of(x)));
  Value* magnitude = b_.CreateShl(b_.CreateAnd(bits, like_bits(bits, 0x7fff)), 13);
  Value* scaled = b_.CreateFMul(b_.CreateBitCast(magnitude, type),
                                llvm::ConstantFP::get(type, std::ldexp(1.0, 112)));
  Value* special = b_.CreateICmpUGE(magnitude, like_bits(bits, 0x0f800000));
  Value* huge = b_.CreateOr(magnitude, like_bits(bits, 0x7f800000));
  Value* absolute = b_.CreateSelect(special, huge, as_integer(scaled));
  Value* sign = b_.CreateShl(b_.CreateAnd(bits, like_bits(bits, 0x8000)), 16);
  return b_.CreateBitCast(b_.CreateOr(absolute, sign), type);
}

// Subnormal results are rounded by the adder: the sum with 0.5 has their last bit as its own.
llvm::Value* OpEmitter::soft_float_to_float16(Value* x) {
  Value* bits = as_integer(x);
  Value* absolute = b_.CreateAnd(bits, like_bits(bits, 0x7fffffff));
  Value* sign = b_.CreateAnd(b_.CreateLShr(bits, 16), like_bits(bits, 0x8000));
  Value* odd = b_.CreateAnd(b_.CreateLShr(absolute, 13), like_bits(bits, 1));
  Value* rebased = b_.CreateSub(absolute, like_bits(bits, 112u << 23));
  Value* normal =
      b_.CreateLShr(b_.CreateAdd(rebased, b_.CreateAdd(odd, like_bits(bits, 0xfff))), 13);
  Value* sum = b_.CreateFAdd(b_.CreateBitCast(absolute, x->getType()), like(x, 0.5));
  Value* tiny = b_.CreateSub(as_integer(sum), like_bits(bits, 0x3f000000));
  Value* result =
      b_.CreateSelect(b_.CreateICmpULT(absolute, like_bits(bits, 113u << 23)), tiny, normal);
  result = b_.CreateSelect(b_.CreateICmpUGE(absolute, like_bits(bits, 143u << 23)),
                           like_bits(bits, 0x7c00), result);
  result = b_.CreateSelect(b_.CreateICmpUGT(absolute, like_bits(bits, 0x7f800000)),
                           like_bits(bits, 0x7e00), result);
  return b_.CreateTrunc(b_.CreateOr(result, sign), with_width(b_.getInt16Ty(), width_of(x)));
}

}  // namespace cermet::codegen
