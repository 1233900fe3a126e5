// SPDX-License-Identifier: MIT
// Division of a vector by one number, with the bits of the division instruction but without it: the
// product with the inverse, taken in two words, is off by less than one unit in the last place
// (Brisebarre, Muller and Raina 2004); corrected by its exact remainder it is rounded correctly, as
// the inverse's first word is (Markstein). What could overflow or lose bits of the remainder to
// underflow is left to the instruction, but zeros are not: the divisor is positive, they are their own
// quotients. Of a bool there are only two quotients, which are made once. The instruction is the quicker
// one in vectors of 32 bytes (softmax 1.1 times on Zen 3), and where it is hidden behind other work: it
// takes 6 (Zen 4) to 10 cycles, in a unit of its own, the product some ten instructions.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <cmath>

#include "codegen/llvm_emit.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int kHidden = 9;  // ops of a loop for each division: more of them hide it

struct DivisionRange {
  int bits, digits;       // of the format, of its significand's fraction
  int divisor, dividend;  // exponents up to which, either way, all steps are exact
};

DivisionRange range_of(llvm::Type* type) {
  return type->isFloatTy() ? DivisionRange{32, 23, 30, 90} : DivisionRange{64, 52, 200, 700};
}

// A bool as a number.
bool is_flag(const Kernel& kernel, ExprId id) {
  const Expr& e = kernel[id];
  return e.kind == ExprKind::op && e.code == Code::cast &&
         kernel[e.operands[0]].dtype == Dtype::boolean;
}

}  // namespace

bool Emitter::divides_by_one(const Expr& e, int width) {
  const Lanes* l = lanes();
  const auto is_hidden = [&] { return l->analysis->cost() > kHidden * l->analysis->divisions(); };
  const auto pays = [&] {
    return is_flag(kernel_, e.operands[0]) || (ops_.features().avx512 && !is_hidden());
  };
  return e.code == Code::div && is_floating(e.dtype) && ops_.features().avx2 && width > 1 &&
         l != nullptr && l->width == width && !l->once && pays() &&
         l->analysis->spread(e.operands[1]) == Spread::invariant &&
         width_of(natural(e.operands[1])) == 1;
}

Divisor Emitter::divisor(ExprId id) {
  const int width = lanes()->width;
  if (const auto* known = find_in(current_, &Scope::divisors, {id, width})) return *known;
  Divisor made{.value = vector(id)};
  Value* number = natural(id);
  const auto limit = [&](int exponent) {
    return llvm::ConstantFP::get(number->getType(), std::ldexp(1.0, exponent));
  };
  const int most = range_of(number->getType()).divisor;
  const auto [scope, inverse] = at(deeper(home_of(id), outside_lanes()), [&]() -> Value* {
    Value* fit =
        b_.CreateAnd(b_.CreateFCmpOGE(number, limit(-most)), b_.CreateFCmpOLE(number, limit(most)));
    made.unfit = b_.CreateNot(fit);
    llvm::Value* zero = llvm::ConstantFP::get(number->getType(), 0);
    made.nothing = ops_.splat(b_.CreateFDiv(zero, number), width);
    Value* inverse = b_.CreateFDiv(limit(0), number);
    Value* error = b_.CreateIntrinsic(llvm::Intrinsic::fma, {number->getType()},
                                      {b_.CreateFNeg(inverse), number, limit(0)});
    made.second = ops_.splat(b_.CreateFMul(error, inverse), width);
    return ops_.splat(inverse, width);
  });
  made.inverse = inverse;
  scope->divisors[{id, width}] = made;
  return made;
}

llvm::Value* Emitter::quotient(const Expr& e, Value* x, const Divisor& divisor) {
  if (is_flag(kernel_, e.operands[0])) {
    Value* flag = vector(kernel_[e.operands[0]].operands[0]);
    return b_.CreateSelect(flag, divisor.inverse, divisor.nothing);
  }
  const auto fma = [&](Value* a, Value* b, Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {a, b, c});
  };
  Value* near = fma(x, divisor.inverse, b_.CreateFMul(x, divisor.second));
  Value* excess = fma(near, divisor.value, b_.CreateFNeg(x));
  Value* fast = fma(b_.CreateFNeg(excess), divisor.inverse, near);
  const DivisionRange range = range_of(x->getType()->getScalarType());
  const int width = width_of(x), bias = (1 << (range.bits - range.digits - 2)) - 1;
  llvm::Type* integer = with_width(b_.getIntNTy(static_cast<unsigned>(range.bits)), width);
  const auto whole = [&](uint64_t bits) { return llvm::ConstantInt::get(integer, bits); };
  const uint64_t least = static_cast<uint64_t>(bias - range.dividend) << range.digits;
  const uint64_t span = static_cast<uint64_t>(2 * range.dividend) << range.digits;
  Value* size =
      b_.CreateAnd(b_.CreateBitCast(x, integer), whole(~uint64_t{0} >> (65 - range.bits)));
  Value* out = b_.CreateICmpUGT(b_.CreateSub(size, whole(least)), whole(span));
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* cold = block("unfit");
  llvm::BasicBlock* zeros = block("zeros");
  llvm::BasicBlock* divide = block("divide");
  llvm::BasicBlock* join = block("join");
  llvm::MDNode* weights = llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1 << 20);
  b_.CreateCondBr(b_.CreateOr(ops_.any_lane(out), divisor.unfit), cold, join, weights);
  b_.SetInsertPoint(cold);
  Value* some = b_.CreateICmpNE(size, whole(0));
  b_.CreateCondBr(b_.CreateOr(ops_.any_lane(b_.CreateAnd(out, some)), divisor.unfit), divide, zeros,
                  weights);
  b_.SetInsertPoint(zeros);
  Value* with_zeros = b_.CreateSelect(some, fast, x);
  b_.CreateBr(join);
  b_.SetInsertPoint(divide);
  Value* slow = b_.CreateFDiv(x, divisor.value);
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(x->getType(), 3);
  phi->addIncoming(fast, before);
  phi->addIncoming(with_zeros, zeros);
  phi->addIncoming(slow, divide);
  return phi;
}

}  // namespace cermet::codegen
