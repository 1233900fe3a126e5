// SPDX-License-Identifier: MIT
// Short innermost axes, which a lane loop runs along together with those around them: coordinates are the
// lane's number divided by an extent. Over one vector of lanes they differ little from lane 0's, so one
// scalar division and a product of small numbers give them all: for x < 2^7 and d <= 2^6 the quotient
// x / d is x · (2^16 / d + 1) / 2^16, rounded down. What is loaded there lies close together, too: where it
// lies within two vectors, and these in one page of memory, of which some element is wanted anyway, both
// are loaded and permuted. A few elements that repeat are laid out once, over and over, and then read in
// order. Everything else is a gather.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "codegen/llvm_emit.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int64_t kMostParts = 64;     // lanes of the widest vector
constexpr int64_t kFar = 1 << 20;      // more than any window is wide
constexpr uint64_t kPageBytes = 4096;  // the smallest there is
constexpr int64_t kManyTrips = 1024;   // as many take as long to permute as to lay out what repeats
static_assert(kManyTrips >= kMostParts);

}  // namespace

// --- Quotients and remainders.

bool Emitter::divides_short(ExprId id) const {
  const Lanes* l = lanes();
  return l != nullptr && l->width > 1 && l->width <= kMostParts &&
         l->analysis->is_short_division(id);
}

const ShortDivisor& Emitter::short_divisor(ExprId id, int width) {
  if (const auto* known = find_in(current_, &Scope::short_divisors, {id, width})) return *known;
  ShortDivisor made;
  const auto [scope, mask] = at(lanes() == nullptr ? current_ : outside_lanes(), [&]() -> Value* {
    Value* extent = natural(id);
    llvm::Type* narrow = b_.getInt32Ty();
    made.none = b_.CreateICmpEQ(extent, b_.getInt64(0));
    made.value = b_.CreateSelect(made.none, b_.getInt64(1), extent);
    made.reciprocal = b_.CreateUDiv(b_.getInt64(~uint64_t{0}), made.value);
    Value* parts =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, made.value, b_.getInt64(kMostParts));
    made.excess = b_.CreateSub(made.value, parts);
    made.parts = b_.CreateTrunc(parts, narrow);
    made.divisor = ops_.splat(made.parts, width);
    Value* inverse = b_.CreateAdd(b_.CreateUDiv(b_.getInt32(1 << 16), made.parts), b_.getInt32(1));
    made.inverse = ops_.splat(b_.CreateSelect(made.none, b_.getInt32(0), inverse), width);
    return ops_.splat(b_.CreateSExt(b_.CreateNot(made.none), narrow), width);
  });
  made.mask = mask;
  return scope->short_divisors[{id, width}] = made;
}

// What counts lanes, the axis or a quotient of it: in lane 0, and what the others have more.
llvm::Value* Emitter::short_first(ExprId id) {
  id = lanes()->analysis->behind(id);
  if (kernel_[id].kind != ExprKind::op) return axes_[kernel_[id].id].values[0];
  const ShortDivision& division = short_division(id);
  return kernel_[id].code == Code::rem ? division.remainder : division.quotient;
}

llvm::Value* Emitter::short_others(ExprId id) {
  id = lanes()->analysis->behind(id);
  if (kernel_[id].kind == ExprKind::op) {
    const ShortLanes& division = short_lanes(id);
    return kernel_[id].code == Code::rem ? division.remainders : division.quotients;
  }
  std::vector<uint32_t> numbers(static_cast<size_t>(lanes()->width));
  for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<uint32_t>(k);
  return llvm::ConstantDataVector::get(b_.getContext(), numbers);
}

// The high half of x · ((2^64 - 1) / d), whose quotient is rounded down, is that of x / d or one less.
std::pair<llvm::Value*, llvm::Value*> Emitter::divided(Value* x, const ShortDivisor& divisor) {
  llvm::Type* wide = b_.getInt128Ty();
  Value* product = b_.CreateMul(b_.CreateZExt(x, wide), b_.CreateZExt(divisor.reciprocal, wide));
  Value* quotient = b_.CreateTrunc(b_.CreateLShr(product, 64), b_.getInt64Ty());
  Value* remainder = b_.CreateSub(x, b_.CreateMul(quotient, divisor.value));
  Value* is_small = b_.CreateICmpUGE(remainder, divisor.value);
  return {b_.CreateAdd(quotient, b_.CreateZExt(is_small, b_.getInt64Ty())),
          b_.CreateSelect(is_small, b_.CreateSub(remainder, divisor.value), remainder)};
}

std::tuple<ExprId, ExprId, int> Emitter::division_key(ExprId id) const {
  const Expr& e = kernel_[id];
  return {lanes()->analysis->behind(e.operands[0]), e.operands[1], lanes()->width};
}

const ShortDivision& Emitter::short_division(ExprId id) {
  const auto key = division_key(id);
  if (const auto* known = find_in(current_, &Scope::short_divisions, key)) return *known;
  const Expr& e = kernel_[id];
  const ShortDivisor& divisor = short_divisor(e.operands[1], lanes()->width);
  ShortDivision made;
  const auto [scope, excess] = at(home_of(id), [&]() -> Value* {
    Value* dividend = b_.CreateSelect(divisor.none, b_.getInt64(0), short_first(e.operands[0]));
    std::tie(made.quotient, made.remainder) = divided(dividend, divisor);
    // Of a large divisor only the end matters, where the quotient goes up by one.
    made.from = b_.CreateBinaryIntrinsic(
        llvm::Intrinsic::smax, b_.CreateSub(made.remainder, divisor.excess), b_.getInt64(0));
    return b_.CreateSub(made.remainder, made.from);
  });
  made.excess = excess;
  return scope->short_divisions[key] = made;
}

const ShortLanes& Emitter::short_lanes(ExprId id) {
  const auto key = division_key(id);
  if (const auto* known = find_in(current_, &Scope::short_lanes, key)) return *known;
  const Expr& e = kernel_[id];
  const int width = lanes()->width;
  const ShortDivisor& divisor = short_divisor(e.operands[1], width);
  const ShortDivision& division = short_division(id);
  ShortLanes made;
  const auto [scope, remainders] = at(home_of(id), [&]() -> Value* {
    Value* start = ops_.splat(b_.CreateTrunc(division.from, b_.getInt32Ty()), width);
    Value* places = b_.CreateAdd(start, b_.CreateAnd(short_others(e.operands[0]), divisor.mask));
    made.quotients = b_.CreateLShr(b_.CreateMul(places, divisor.inverse), 16);
    return b_.CreateSub(places, b_.CreateMul(made.quotients, divisor.divisor));
  });
  made.remainders = remainders;
  return scope->short_lanes[key] = made;
}

llvm::Value* Emitter::short_result(ExprId id) {
  const ShortDivision& division = short_division(id);
  const auto [quotients, remainders] = short_lanes(id);
  const int width = lanes()->width;
  llvm::Type* wide = with_width(b_.getInt64Ty(), width);
  if (kernel_[id].code == Code::div)
    return b_.CreateAdd(b_.CreateZExt(quotients, wide), ops_.splat(division.quotient, width));
  Value* is_first = b_.CreateICmpEQ(quotients, llvm::Constant::getNullValue(quotients->getType()));
  Value* excess = b_.CreateSelect(is_first, ops_.splat(division.excess, width),
                                  llvm::Constant::getNullValue(wide));
  return b_.CreateAdd(b_.CreateZExt(remainders, wide), excess);
}

// --- Loads.

// How many elements one permutation makes; 0: the processor has none for the type.
int64_t Emitter::window_lanes(llvm::Type* type) const {
  const int width = lanes()->width;
  const unsigned bits = type->getScalarSizeInBits();
  int most = 0;
  if (ops_.features().avx512) most = 512 / static_cast<int>(std::max(bits, 16U));
  else if (ops_.features().avx2 && bits <= 32) most = 8;
  return width < 8 || !ops_.features().x86 ? 0 : std::min(most, width);
}

// The factor of each part of an index that differs between lanes.
void Emitter::short_parts(const LaneAnalysis& analysis, ExprId id, Value* factor,
                          std::vector<ShortPart>& parts) {
  if (analysis.spread(id) != Spread::varying) return;
  id = analysis.behind(id);
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::axis || analysis.is_short_division(id)) {
    parts.push_back({id, factor});
  } else if (e.code == Code::mul) {
    const int other = analysis.spread(e.operands[0]) == Spread::invariant ? 1 : 0;
    short_parts(analysis, e.operands[other], b_.CreateMul(factor, natural(e.operands[1 - other])),
                parts);
  } else {
    short_parts(analysis, e.operands[0], factor, parts);
    short_parts(analysis, e.operands[1], e.code == Code::sub ? b_.CreateNeg(factor) : factor,
                parts);
  }
}

// A bound of what the other lanes have more than lane 0, of remainders than 0.
llvm::Value* Emitter::most_of(ExprId id, int width) {
  const Expr& e = kernel_[id];
  Value* last = b_.getInt64(static_cast<uint64_t>(width - 1));
  if (e.kind == ExprKind::axis) return last;
  const ShortDivisor& divisor = short_divisor(e.operands[1], width);
  Value* before = b_.CreateSub(divisor.value, b_.getInt64(1));
  if (e.code == Code::div) return b_.CreateUDiv(b_.CreateAdd(last, before), divisor.value);
  return b_.CreateSelect(b_.CreateICmpEQ(divisor.excess, b_.getInt64(0)), before,
                         b_.getInt64(kFar));
}

// By remainders of the axis and nothing else that differs between lanes: the term; null: it does not repeat.
const IndexTerm* Emitter::repeated_term(const Expr& load, llvm::Type* type) const {
  const Lanes& l = *lanes();
  const IndexTerm* varying = nullptr;
  for (const IndexTerm& term : load.index) {
    if (l.analysis->spread(term.expr) != Spread::varying) continue;
    if (varying != nullptr) return nullptr;
    varying = &term;
  }
  const unsigned bits = type->getScalarSizeInBits();
  if (varying == nullptr || l.trips == nullptr || load.operands[0] != kNone ||
      !ops_.features().avx2 || bits < 32 ||
      bits * static_cast<unsigned>(l.width) > 8U * ops_.features().vector_bytes)
    return nullptr;
  const ExprId id = l.analysis->behind(varying->expr);
  const Expr& e = kernel_[id];
  const bool is_remainder = l.analysis->is_short_division(id) && e.code == Code::rem &&
                            kernel_[l.analysis->behind(e.operands[0])].kind == ExprKind::axis;
  return is_remainder ? varying : nullptr;
}

// Before the loop, if that is long enough: a shorter one may not come to each remainder, and then not all of the
// elements need be there. The divisor is that of the term.
void Emitter::repeat(const Expr& load, const IndexTerm& term, const ShortDivisor& divisor,
                     llvm::Type* type, ShortWindow& window) {
  const auto width = static_cast<int>(llvm::cast<llvm::FixedVectorType>(type)->getNumElements());
  Index around;
  for (const IndexTerm& other : load.index)
    if (&other != &term) around.push_back(other);
  Value* factor = term.stride == kUnit ? b_.getInt64(1) : stride(term.stride);
  Value* is_short = b_.CreateICmpULE(divisor.value, b_.getInt64(static_cast<uint64_t>(kMostParts)));
  window.repeats = b_.CreateAnd(b_.CreateAnd(b_.CreateNot(divisor.none), is_short),
                                b_.CreateICmpSGE(window.trips, b_.getInt64(kManyTrips)));
  const int vectors = static_cast<int>((kMostParts + 2 * width - 2) / width);
  window.repeated = ops_.slot(type, static_cast<uint64_t>(vectors));
  Value* first = address(load.buffer, around);
  llvm::Type* wide = with_width(b_.getInt64Ty(), width);
  for (int v = 0; v < vectors; ++v) {
    std::vector<uint32_t> numbers(static_cast<size_t>(width));
    for (size_t k = 0; k < numbers.size(); ++k)
      numbers[k] = static_cast<uint32_t>(v * width) + static_cast<uint32_t>(k);
    Value* places = llvm::ConstantDataVector::get(b_.getContext(), numbers);
    Value* rounds = b_.CreateLShr(b_.CreateMul(places, divisor.inverse), 16);
    Value* rest = b_.CreateSub(places, b_.CreateMul(rounds, divisor.divisor));
    Value* offsets = b_.CreateMul(b_.CreateZExt(rest, wide), ops_.splat(factor, width));
    Value* pointers = b_.CreateGEP(type->getScalarType(), first, offsets);
    Value* made = b_.CreateMaskedGather(type, pointers, element_align(type),
                                        ops_.splat(window.repeats, width),
                                        llvm::Constant::getNullValue(type));
    Value* to = b_.CreateConstGEP1_64(type, window.repeated, static_cast<uint64_t>(v));
    b_.CreateAlignedStore(made, to, llvm::Align(1));
  }
}

const ShortWindow& Emitter::window(const Expr& load, llvm::Type* type) {
  const int64_t elements = 2 * window_lanes(type);
  const int width = lanes()->width;
  for (Scope* scope = current_; scope != nullptr; scope = scope->parent)
    if (const auto it = scope->windows.find({&load, width});
        it != scope->windows.end() &&
        (it->second.repeated == nullptr || it->second.trips == lanes()->trips))
      return it->second;
  const LaneAnalysis& analysis = *lanes()->analysis;
  const IndexTerm* repeated = repeated_term(load, type);
  ShortWindow made{.trips = lanes()->trips};
  const auto [scope, fits] = at(outside_lanes(), [&]() -> Value* {
    if (repeated != nullptr) {
      const ExprId divisor = kernel_[analysis.behind(repeated->expr)].operands[1];
      repeat(load, *repeated, short_divisor(divisor, width), type, made);
    }
    for (const IndexTerm& term : load.index)
      short_parts(analysis, term.expr, term.stride == kUnit ? b_.getInt64(1) : stride(term.stride),
                  made.parts);
    const auto limit = [&](llvm::Intrinsic::ID id, Value* v, int64_t bound) {
      return b_.CreateBinaryIntrinsic(id, v, b_.getInt64(static_cast<uint64_t>(bound)));
    };
    Value* reach = b_.getInt64(0);
    made.below = b_.getInt64(0);
    for (const ShortPart& part : made.parts) {
      Value* factor = limit(llvm::Intrinsic::smin, part.factor, kFar);
      factor = limit(llvm::Intrinsic::smax, factor, -kFar);
      Value* most = limit(llvm::Intrinsic::umin, most_of(part.id, width), kFar);
      Value* most_far = b_.CreateMul(most, factor);
      Value* up = limit(llvm::Intrinsic::smax, most_far, 0);
      Value* down = b_.CreateSub(up, most_far);
      reach = b_.CreateAdd(reach, b_.CreateAdd(up, down));
      made.below = b_.CreateAdd(made.below, down);
      made.factors.push_back(ops_.splat(b_.CreateTrunc(factor, b_.getInt32Ty()), width));
    }
    return b_.CreateICmpSLT(reach, b_.getInt64(static_cast<uint64_t>(elements)));
  });
  made.fits = fits;
  return scope->windows[{&load, width}] = std::move(made);
}

llvm::Value* Emitter::load_window(const Expr& e, llvm::Type* type) {
  const ShortWindow& w = window(e, type);
  Value* mask = active_mask(e.operands[0]);
  Value* otherwise = e.operands[1] == kNone ? llvm::Constant::getNullValue(type)
                                            : ops_.to_memory(e.dtype, vector(e.operands[1]));
  const auto load_permuted = [&] {
    const int64_t elements = 2 * window_lanes(type);
    Value* offset = b_.CreateNeg(w.below);
    Value* numbers =
        ops_.splat(b_.CreateTrunc(w.below, b_.getInt32Ty()), static_cast<int>(lanes()->width));
    for (size_t i = 0; i < w.parts.size(); ++i) {
      const ExprId id = w.parts[i].id;
      if (kernel_[id].kind == ExprKind::op && kernel_[id].code == Code::rem)
        offset = b_.CreateSub(offset, b_.CreateMul(short_first(id), w.parts[i].factor));
      numbers = b_.CreateAdd(numbers, b_.CreateMul(short_others(id), w.factors[i]));
    }
    Value* start = b_.CreateGEP(type->getScalarType(), address(e.buffer, e.index), offset);
    const uint64_t bytes = static_cast<uint64_t>(elements) * type->getScalarSizeInBits() / 8;
    Value* in_page =
        b_.CreateAnd(b_.CreatePtrToInt(start, b_.getInt64Ty()), b_.getInt64(kPageBytes - 1));
    Value* is_near =
        b_.CreateAnd(w.fits, b_.CreateICmpULE(in_page, b_.getInt64(kPageBytes - bytes)));
    if (e.operands[0] != kNone) is_near = b_.CreateAnd(is_near, ops_.any_lane(mask));
    return near_or_far(
        is_near,
        [&]() -> Value* {
          Value* loaded = permute(type, start, numbers);
          return e.operands[0] == kNone ? loaded : b_.CreateSelect(mask, loaded, otherwise);
        },
        [&] { return load_far(e, type, mask, otherwise); });
  };
  if (w.repeated == nullptr) return load_permuted();
  Value* remainder = short_first(repeated_term(e, type)->expr);
  Value* start = b_.CreateGEP(type->getScalarType(), w.repeated, remainder);
  return near_or_far(
      w.repeats, [&] { return b_.CreateAlignedLoad(type, start, element_align(type)); },
      load_permuted);
}

llvm::Value* Emitter::near_or_far(Value* is_near, const std::function<Value*()>& load_near,
                                  const std::function<Value*()>& load_far) {
  llvm::BasicBlock* near = block("near");
  llvm::BasicBlock* far = block("far");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(is_near, near, far);
  b_.SetInsertPoint(near);
  Value* near_value = load_near();
  llvm::BasicBlock* near_end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(far);
  Value* far_value = nullptr;
  in_scope({.kind = ScopeKind::conditional}, [&](Scope&) { far_value = load_far(); });
  llvm::BasicBlock* far_end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(near_value->getType(), 2);
  phi->addIncoming(near_value, near_end);
  phi->addIncoming(far_value, far_end);
  return phi;
}

// Elements of the two vectors from the pointer on, by their numbers.
llvm::Value* Emitter::permute(llvm::Type* type, Value* pointer, Value* numbers) {
  const int width = lanes()->width, lanes_each = static_cast<int>(window_lanes(type));
  const bool avx512 = ops_.features().avx512;
  const unsigned bits = type->getScalarSizeInBits();
  const unsigned wide = std::max(bits, avx512 ? 16U : 32U);
  llvm::Type* stored = with_width(b_.getIntNTy(bits), lanes_each);
  llvm::Type* made = with_width(b_.getIntNTy(wide), lanes_each);
  Value* sources[2];
  for (uint64_t half = 0; half < 2; ++half) {
    Value* from = b_.CreateConstGEP1_64(type->getScalarType(), pointer,
                                        half * static_cast<uint64_t>(lanes_each));
    sources[half] = b_.CreateZExt(b_.CreateAlignedLoad(stored, from, llvm::Align(bits / 8)), made);
  }
  const auto part = [&](Value* part_numbers) -> Value* {
    Value* places = b_.CreateZExtOrTrunc(part_numbers, made);
    if (avx512) {
      using namespace llvm::Intrinsic;
      static constexpr ID ids[3][3] = {
          {x86_avx512_vpermi2var_hi_128, x86_avx512_vpermi2var_hi_256,
           x86_avx512_vpermi2var_hi_512},
          {x86_avx512_vpermi2var_d_128, x86_avx512_vpermi2var_d_256, x86_avx512_vpermi2var_d_512},
          {x86_avx512_vpermi2var_q_128, x86_avx512_vpermi2var_q_256, x86_avx512_vpermi2var_q_512}};
      const unsigned total = wide * static_cast<unsigned>(lanes_each);
      return b_.CreateIntrinsic(ids[wide / 32][total / 256], {}, {sources[0], places, sources[1]});
    }
    Value* low = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permd, {}, {sources[0], places});
    Value* high = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permd, {}, {sources[1], places});
    Value* last = ops_.splat(b_.getInt32(static_cast<uint32_t>(lanes_each - 1)), lanes_each);
    return b_.CreateSelect(b_.CreateICmpUGT(places, last), high, low);
  };
  Values parts;
  for (int first = 0; first < width; first += lanes_each) {
    llvm::SmallVector<int, 64> order;
    for (int k = 0; k < lanes_each; ++k) order.push_back(first + k);
    Value* made_here = part(width == lanes_each ? numbers : b_.CreateShuffleVector(numbers, order));
    parts.push_back(b_.CreateTrunc(made_here, stored));
  }
  while (parts.size() > 1) {
    Values joined;
    llvm::SmallVector<int, 64> order;
    for (int k = 0; k < 2 * width_of(parts[0]); ++k) order.push_back(k);
    for (size_t i = 0; i < parts.size(); i += 2)
      joined.push_back(b_.CreateShuffleVector(parts[i], parts[i + 1], order));
    parts = joined;
  }
  return b_.CreateBitCast(parts[0], type);
}

}  // namespace cermet::codegen
