// SPDX-License-Identifier: MIT
// Lane loops: whole vectors, then the last partial one. Elements are counted from the loop's begin.
//
// switched  One body serves both: it addresses contiguous memory through pointers, which for the last,
//           partial vector lead to copies of the wanted elements on the stack. Halves the code, and
//           the body carries no masks: what folds make of the other lanes is put back behind it.
// plain     Bodies that hold loops, and small ones where masks cost nothing: one for whole vectors, one
//           with masks.
//
// A body that is one long chain of integer operations, such as a cipher's rounds, goes over several vectors
// at a time: as one wider vector, which LLVM takes apart. So does a chain of floats, such as a polynomial, where
// vectors are short: 1.1 to 1.5 times on Zen 3, whose schedulers hold two or three vectors' operations.
#include "codegen/llvm_lane.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/Transforms/Utils/Local.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int kTwiceCost = 16, kTwiceRowCost = 48;  // ops and accesses of a body that is made twice
// Bytes: of shorter loops too many lines would be written in parts, which takes longer than to fetch them.
constexpr int64_t kPastRow = 1024;
constexpr int kPastCost = 11;  // ops, for each line moved, of a loop that waits for memory
// The processor looks some 200 instructions ahead: of a longer chain it finds too little to do at a time.
constexpr int kLongChain = 40;
constexpr int kVectorsAtOnce = 8;  // of 32 registers; of fewer, half as many
constexpr int kFloatChain =
    8;                       // of floats, each of which takes four times as long: in 16 registers,
constexpr int kFewOps = 28;  // four vectors at a time of so many ops, two of more or of folds
constexpr int kChainsAtOnce = 4;   // vectors whose lanes each go along a loop
constexpr int kMostAtOnce = 1024;  // ops of them all
constexpr int kMostLanes = 128;    // of them all
constexpr int kMaskLanes = 64;     // of a mask register; fewer are the first ones of it

}  // namespace

bool LaneLoop::is_integer_chain() const { return analysis_.usual().integer_chain >= kLongChain; }

void LaneLoop::emit() {
  begin_ = e_.natural(loop_.begin);
  Value* end = e_.natural(loop_.end);
  home_ = e_.deeper(e_.home_of(loop_.begin), e_.home_of(loop_.end));
  count_ = made_once([&] {
    Value* count = difference(end, begin_);
    if (is_zero(begin_)) return count;
    return static_cast<Value*>(  // it may end before that
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, count, i64(0)));
  });
  if (switched()) find_pointers();
  find_fetched();
  if (!analysis_.folds().empty()) return folds();
  find_past();
  if (is_in_one_vector()) return one_vector();
  past_.empty() ? run_in_parts(i64(0), count_) : past_cache();
}

// Known to be no more than a vector: of such rows, the ends of loops and of lines would take most of the time.
bool LaneLoop::is_in_one_vector() const {
  const std::optional<int64_t> most = e_.most_trips(loop_);
  const bool is_narrower = width_ < analysis_.width(ops_.features().vector_bytes);
  return takes_rows() && most &&
         (is_narrower || (width_ >= 8 && *most <= width_ && *most < kMaskLanes));
}

bool LaneLoop::takes_rows() const {
  return switched() && ops_.features().avx512 && at_once_ == 1 && !analysis_.has_pairs();
}

// Of rows known to be half a vector or less, as few lanes as hold them: a vector that goes past a line of memory
// takes longer, whatever its mask.
int LaneLoop::lanes_of_row(int width) const {
  constexpr int kLeastLanes = 4;
  const std::optional<int64_t> most = e_.most_trips(loop_);
  if (!takes_rows() || !analysis_.folds().empty() || !most || *most < 1 || *most > width / 2)
    return width;
  return std::max(kLeastLanes, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(*most))));
}

void LaneLoop::one_vector() {
  Value* active = made_once([&] { return first_lanes(count_); });
  e_.loop(i64(0), i64(1), 1, analysis_.writes(), {}, [&](Value*, const Values&) -> Values {
    Lanes lanes = lanes_at(i64(0));
    lanes.count = count_;
    lanes.active = active;
    lanes.pointers.assign(pointers_.begin(), pointers_.end());
    lanes.masked = true;
    lanes.once = true;
    body(lanes, i64(0));
    return {};
  });
}

// Of all vectors, by the one body of a loop with folds.
bool LaneLoop::loads_masked() const {
  return switched() && width_ > 1 && !twice() && ops_.features().avx512 &&
         !analysis_.folds().empty() && !is_cheap();
}

// Of lanes that each go along a loop, as rows of few elements do: a vector's rounds wait for each other and for
// the loops' ends.
int LaneLoop::chains_at_once(int width) const {
  const Expr &begin = e_.kernel()[loop_.begin], &end = e_.kernel()[loop_.end];
  const bool known = begin.kind == ExprKind::constant && begin.bits == 0 &&
                     end.kind == ExprKind::constant &&
                     end.bits % static_cast<uint64_t>(kChainsAtOnce * width) == 0;
  return known && !ops_.features().avx512 && analysis_.most_states() == 1 ? kChainsAtOnce : 1;
}

int LaneLoop::vectors_at_once() const {
  const int bytes = ops_.features().vector_bytes;
  if (!analysis_.is_simple(bytes)) return 1;
  int vectors = 0;
  if (analysis_.nested()) {
    vectors = chains_at_once(analysis_.width(bytes));
  } else if (!switched()) {
    return 1;
  } else if (analysis_.folds().empty() && is_integer_chain()) {
    // Results that the kernel itself needs, such as keys, are short.
    const auto is_needed = [&](const UnitAccess& unit) {
      return unit.stored && e_.is_read(unit.buffer);
    };
    if (std::ranges::any_of(analysis_.units(), is_needed)) return 1;
    vectors = ops_.features().avx512 ? kVectorsAtOnce : kVectorsAtOnce / 2;
  } else {
    if (ops_.features().avx512 || analysis_.usual().float_chain < kFloatChain) return 1;
    if (!analysis_.folds().empty() && is_cheap(analysis_.width(bytes))) return 1;
    vectors = analysis_.folds().empty() && analysis_.cost() <= kFewOps ? 4 : 2;
  }
  const auto is_much = [&] {
    return analysis_.cost() * vectors > kMostAtOnce ||
           analysis_.width(bytes) * vectors > kMostLanes;
  };
  while (vectors > 1 && is_much()) vectors /= 2;
  return vectors;
}

llvm::Value* LaneLoop::element(Dtype dtype, Value* array, Value* k) {
  return is_zero(k) ? array : b_.CreateGEP(ops_.memory_type(dtype), array, k);
}

// Element 0 of every contiguous access.
void LaneLoop::find_pointers() {
  for (const UnitAccess& unit : analysis_.units())
    pointers_.push_back(e_.address_at(loop_.axes[0], loop_.begin, unit.buffer, *unit.index));
}

// Result accesses that nothing reads here.
void LaneLoop::find_past() {
  if (!switched() || width_ == 1 || !ops_.features().x86) return;
  const int lines = 1 + static_cast<int>(analysis_.units().size());  // one is overwritten
  if (analysis_.usual().cost > kPastCost * lines && !is_integer_chain()) return;
  for (size_t i = 0; i < analysis_.units().size(); ++i) {
    const UnitAccess& unit = analysis_.units()[i];
    if (unit.stored && !unit.loaded && !unit.buffer.local && !e_.is_read(unit.buffer))
      past_.push_back(i);
  }
}

int64_t LaneLoop::unit_bytes(size_t unit) const {
  return static_cast<int64_t>(size_of(e_.dtype_of(analysis_.units()[unit].buffer)));
}

// The elements before the first whole line of the first such result, then the others. Rows of whole lines have
// none, nor have results that fit into a cache, and there is little time to find that out.
void LaneLoop::past_cache() {
  Value *elements = e_.elements_of(loop_), *ends = nullptr, *any_large = nullptr;
  Values large;
  for (const size_t unit : past_) {
    const int64_t bytes = unit_bytes(unit);
    large.push_back(made_once([&] { return b_.CreateICmpSGE(elements, i64(kPastBytes / bytes)); }));
    any_large = any_large == nullptr
                    ? large[0]
                    : made_once([&] { return b_.CreateOr(any_large, large.back()); });
    Value* size = made_once([&] { return b_.CreateMul(count_, i64(bytes)); });
    for (Value* end : {b_.CreatePtrToInt(pointers_[unit], b_.getInt64Ty()), size})
      ends = ends == nullptr ? end : b_.CreateOr(ends, end);
  }
  Value* ends_inside = b_.CreateICmpNE(b_.CreateAnd(ends, i64(kLineBytes - 1)), i64(0));
  Values usual = large;
  usual.push_back(i64(0));
  Values found =
      e_.when(b_.CreateAnd(any_large, ends_inside), usual, [&] { return lines_of(large); });
  Value* before = found.pop_back_val();
  Value* parts = b_.CreateZExt(b_.CreateICmpEQ(before, i64(0)), b_.getInt64Ty());
  e_.loop(parts, i64(2), 1, analysis_.writes(), {}, [&](Value* part, const Values&) -> Values {
    Value* rest = b_.CreateICmpNE(part, i64(0));
    begins_line_.clear();
    for (Value* begins : found) begins_line_.push_back(b_.CreateAnd(rest, begins));
    run_in_parts(b_.CreateSelect(rest, before, i64(0)), b_.CreateSelect(rest, count_, before));
    return {};
  });
  begins_line_.clear();
}

// Of each such result whether it is stored past the cache from a line's begin on, and how many elements come
// before that.
Values LaneLoop::lines_of(const Values& large) {
  Values fit;
  for (size_t i = 0; i < past_.size(); ++i) {
    const int64_t bytes = unit_bytes(past_[i]);
    Value* is_long = made_once([&] { return b_.CreateICmpSGE(count_, i64(kPastRow / bytes)); });
    Value* begin = b_.CreatePtrToInt(pointers_[past_[i]], b_.getInt64Ty());
    Value* ends = b_.CreateOr(begin, b_.CreateAdd(begin, b_.CreateMul(count_, i64(bytes))));
    Value* rest = b_.CreateAnd(ends, i64(kLineBytes - 1));
    Value* in_lines = b_.CreateOr(is_long, b_.CreateICmpEQ(rest, i64(0)));
    fit.push_back(b_.CreateAnd(large[i], in_lines));
  }
  const auto bytes_before = [&](size_t unit) {
    Value* begin = b_.CreatePtrToInt(pointers_[unit], b_.getInt64Ty());
    return b_.CreateAnd(b_.CreateNeg(begin), i64(kLineBytes - 1));
  };
  const auto shift = std::countr_zero(static_cast<uint64_t>(unit_bytes(past_[0])));
  Value* before = b_.CreateLShr(bytes_before(past_[0]), i64(shift));
  before = b_.CreateSelect(b_.CreateAnd(fit[0], b_.CreateICmpSLT(before, count_)), before, i64(0));
  for (size_t i = 0; i < past_.size(); ++i) {
    Value* from = b_.CreateMul(before, i64(unit_bytes(past_[i])));
    Value* left = b_.CreateSub(bytes_before(past_[i]), from);
    Value* begins = b_.CreateICmpEQ(b_.CreateAnd(left, i64(kLineBytes - 1)), i64(0));
    fit[i] = b_.CreateAnd(fit[i], begins);
  }
  fit.push_back(before);
  return fit;
}

// Between parts there are polls.
void LaneLoop::run_in_parts(Value* from, Value* to) {
  const std::optional<int64_t> most = e_.most_trips(loop_);
  if (!e_.polls() || (most && *most <= kPart)) return run(from, to);
  const auto part = [&](Value* begin, const Values&) -> Values {
    Value* end = b_.CreateAdd(begin, i64(kPart));
    run(begin, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, to));
    return {};
  };
  e_.loop(from, to, kPart, analysis_.writes(), {}, part, kPartWork);
}

// For others, and of what it loads itself what comes soon, where the loads are masked.
void LaneLoop::find_fetched() {
  const bool waits = !ops_.features().avx512 && !analysis_.folds().empty() && !is_cheap();
  prefetches_.find_ahead(loop_, home_, count_, waits);
  if (!loads_masked()) return;
  for (size_t i = 0; i < pointers_.size(); ++i) {
    const UnitAccess& unit = analysis_.units()[i];
    if (unit.loaded && !unit.buffer.local) prefetches_.add_stream(unit.buffer, pointers_[i]);
  }
}

// Their loads come late in a body of many instructions.
void LaneLoop::fetch_own(Value* k) {
  if (at_once_ == 1) return;
  for (size_t i = 0; i < pointers_.size(); ++i) {
    if (!analysis_.units()[i].loaded || analysis_.units()[i].buffer.local) continue;
    const Dtype dtype = e_.dtype_of(analysis_.units()[i].buffer);
    const int64_t line = static_cast<int64_t>(kLineBytes) / unit_bytes(i);
    for (int64_t at = 0; at < width_; at += line)
      prefetches_.into_l1(element(dtype, pointers_[i], sum(k, i64(at))));
  }
}

Lanes LaneLoop::lanes_at(Value* k) {
  return {.analysis = &analysis_,
          .width = width_,
          .first = sum(begin_, k),
          .trips = count_,
          .offset = k};
}

llvm::Value* LaneLoop::first_lanes(Value* count, int width) {
  if (width == 1) return b_.CreateICmpSLT(i64(0), count);
  if (ops_.features().avx512 && width >= 8) {
    llvm::Type* type = b_.getIntNTy(static_cast<unsigned>(std::max(64, width)));
    Value* others = b_.CreateShl(llvm::Constant::getAllOnesValue(type), b_.CreateZExt(count, type));
    Value* bits = b_.CreateTrunc(b_.CreateNot(others), b_.getIntNTy(static_cast<unsigned>(width)));
    return b_.CreateBitCast(bits, with_width(b_.getInt1Ty(), width));
  }
  std::vector<llvm::Constant*> numbers;
  for (int k = 0; k < width; ++k)
    numbers.push_back(llvm::ConstantInt::get(flag_type(width), static_cast<uint64_t>(k)));
  Value* lanes = llvm::ConstantVector::get(numbers);
  return b_.CreateICmpSGT(ops_.splat(b_.CreateTrunc(count, flag_type(width)), width), lanes);
}

// Lanes in range between blocks. Without mask registers a mask is integers of which the sign counts:
// a vector of bits would be packed before a branch and unpacked after it.
llvm::Type* LaneLoop::flag_type(int width) {
  const int bits = 8 * ops_.features().vector_bytes / width * (width == width_ ? at_once_ : 1);
  return b_.getIntNTy(static_cast<unsigned>(std::min(64, bits)));
}

llvm::Value* LaneLoop::flags_of(Value* active) {
  return ops_.features().avx512 ? active
                                : b_.CreateSExt(active, with_width(flag_type(width_), width_));
}

llvm::Value* LaneLoop::active_of(Value* flags) {
  return ops_.features().avx512
             ? flags
             : b_.CreateICmpSLT(flags, llvm::Constant::getNullValue(flags->getType()));
}

// The body for the vector at element k, in the current scope.
void LaneLoop::body(Lanes& lanes, Value* k) {
  e_.current()->lanes = &lanes;
  e_.bind_axis(loop_.axes[0], lanes.first);
  for (const Accumulator& a : accumulators_) {
    Emitter::FoldRun& run = e_.fold_run(*a.fold);
    run = {};
    Value* lane = b_.CreateAnd(k, i64(a.order.lanes - 1));
    for (size_t s = 0; s < a.lanes.size(); ++s)
      run.slots.push_back(element(a.fold->states[s].dtype, a.lanes[s], lane));
  }
  if (lanes.active == nullptr || !lanes.pointers.empty()) prefetches_.fetch(k);
  fetch_own(k);
  e_.statements(loop_.body);
}

// Elements [from, to).
void LaneLoop::run(Value* from, Value* to) {
  Value* whole = b_.CreateAnd(difference(to, from), i64(-width_));
  Value* full = sum(from, whole);
  if (switched() && width_ > 1 && !twice()) {
    switched(from, full, to);
  } else {
    plain(from, full, to);
  }
}

// Known to be whole vectors.
bool LaneLoop::is_whole(Value* to) const {
  const auto* count = llvm::dyn_cast<llvm::ConstantInt>(to);
  return to == count_ && count != nullptr && count->getSExtValue() % width_ == 0;
}

// A second body is cheaper than leading the first one elsewhere, which takes some hundred cycles: of each row.
bool LaneLoop::twice() const {
  if (analysis_.has_pairs()) return true;  // these are quick without masks only
  if (!analysis_.folds().empty()) return false;
  const auto is_loop = [&](const Stmt& stmt) { return std::get_if<For>(&stmt) == &loop_; };
  if (std::ranges::none_of(e_.chunk().body, is_loop))
    return ops_.features().avx2 && analysis_.cost() <= kTwiceRowCost;
  return ops_.features().avx512 && analysis_.cost() <= kTwiceCost;
}

// For each access through a pointer: up to where whole lines are stored past the cache; null: nowhere.
Values LaneLoop::past_until(Value* from, Value* full) {
  Values past(begins_line_.empty() ? 0 : pointers_.size(), nullptr);
  for (size_t i = 0; i < begins_line_.size(); ++i) {
    const int64_t line = static_cast<int64_t>(kLineBytes) / unit_bytes(past_[i]);
    Value* lines = full;
    if (line > width_) lines = sum(from, b_.CreateAnd(difference(full, from), i64(-line)));
    past[past_[i]] = b_.CreateSelect(begins_line_[i], lines, i64(INT64_MIN));
  }
  return past;
}

void LaneLoop::plain(Value* from, Value* full, Value* to) {
  const Values past = past_until(from, full);
  e_.loop(from, full, width_, analysis_.writes(), {}, [&](Value* k, const Values&) -> Values {
    Lanes lanes = lanes_at(k);
    lanes.pointers.assign(pointers_.begin(), pointers_.end());
    lanes.past.assign(past.begin(), past.end());
    body(lanes, k);
    return {};
  });
  if (width_ == 1 || is_whole(to)) return;
  e_.loop(full, to, width_, analysis_.writes(), {}, [&](Value* k, const Values&) -> Values {
    Lanes lanes = lanes_at(k);
    lanes.count = b_.CreateSub(to, k);
    lanes.active = first_lanes(lanes.count);
    lanes.pointers.assign(pointers_.begin(), pointers_.end());
    lanes.masked = true;
    lanes.once = !analysis_.nested();
    body(lanes, k);
    return {};
  });
}

// pre -> head while whole vectors are left, -> check -> tail -> head once more for the rest, -> check
// -> finish. Where the head's accesses are masked there is nothing to copy: check leads to it at once.
void LaneLoop::switched(Value* from, Value* full, Value* to) {
  e_.forget(analysis_.writes());
  const bool masked = ops_.features().avx512 && !analysis_.folds().empty();
  const bool copies = !masked && !pointers_.empty();
  saved_.clear();
  const Values past = past_until(from, full);
  llvm::BasicBlock* pre = b_.GetInsertBlock();
  llvm::BasicBlock* head = e_.block("vectors");
  llvm::BasicBlock* check = e_.block("check");
  llvm::BasicBlock* tail = copies ? e_.block("tail") : check;
  llvm::BasicBlock* exit = e_.block("after");
  llvm::BasicBlock* finish = copies ? e_.block("finish") : exit;
  llvm::BasicBlock* tail_end = tail;
  // The tail: the accesses' elements in scratch memory.
  if (copies) b_.SetInsertPoint(tail);
  Value* rest = b_.CreateSub(to, full);
  Value* rest_active = first_lanes(rest);
  Value* rest_flags = flags_of(rest_active);
  Values scratch, redirected;
  if (copies) {
    copy_in(full, rest_active, rest, scratch, redirected);
    b_.CreateBr(head);
    tail_end = b_.GetInsertBlock();
  }

  b_.SetInsertPoint(head);
  llvm::PHINode* k = b_.CreatePHI(b_.getInt64Ty(), 3);
  llvm::PHINode* flags = b_.CreatePHI(rest_flags->getType(), 3);
  llvm::PHINode* count = b_.CreatePHI(b_.getInt64Ty(), 3);
  Values phis;
  for (size_t i = 0; i < redirected.size(); ++i)
    phis.push_back(b_.CreatePHI(pointers_[i]->getType(), 3));
  Value* active = active_of(flags);
  Scope scope{.kind = ScopeKind::loop, .preheader = pre, .writes = &analysis_.writes()};
  e_.in_scope(scope, [&](Scope& inner) {
    Lanes lanes = lanes_at(k);
    lanes.active = active;
    lanes.count = count;
    lanes.full = full;
    const Values& starts = masked ? pointers_ : phis;
    lanes.pointers.assign(starts.begin(), starts.end());
    lanes.masked = masked;
    lanes.mended = copies;
    lanes.past.assign(past.begin(), past.end());
    body(lanes, k);
    Value* following = b_.CreateAdd(k, i64(width_));
    b_.CreateCondBr(b_.CreateICmpSLT(following, full), head, check);
    llvm::BasicBlock* latch = b_.GetInsertBlock();
    pre = inner.preheader;
    b_.SetInsertPoint(check);
    llvm::PHINode* reached = b_.CreatePHI(b_.getInt64Ty(), 2);
    reached->addIncoming(full, pre);
    reached->addIncoming(following, latch);
    b_.CreateCondBr(b_.CreateICmpSLT(reached, to), copies ? tail : head, finish);
    const auto join = [&](Value* phi, Value* at_pre, Value* at_latch, Value* at_tail) {
      llvm::cast<llvm::PHINode>(phi)->addIncoming(at_pre, pre);
      llvm::cast<llvm::PHINode>(phi)->addIncoming(at_latch, latch);
      llvm::cast<llvm::PHINode>(phi)->addIncoming(at_tail, tail_end);
    };
    Value* all = llvm::Constant::getAllOnesValue(rest_flags->getType());
    join(k, from, following, full);
    join(flags, all, all, rest_flags);
    join(count, i64(width_), i64(width_), rest);
    // Where whole vectors follow, the pointers are what they were: no copy of them is kept.
    for (size_t i = 0; i < phis.size(); ++i) join(phis[i], pointers_[i], phis[i], redirected[i]);
  });
  if (active != flags && active->use_empty())
    llvm::cast<llvm::Instruction>(active)->eraseFromParent();
  for (llvm::PHINode* phi : {flags, count})
    if (phi->use_empty()) phi->eraseFromParent();
  llvm::RecursivelyDeleteTriviallyDeadInstructions(rest_flags);

  b_.SetInsertPoint(pre);
  b_.CreateCondBr(b_.CreateICmpSLT(from, full), head, check);
  if (copies) {
    b_.SetInsertPoint(finish);
    copy_out(scratch, full, to, exit);
  }
  b_.SetInsertPoint(exit);
  e_.forget(analysis_.writes());
}

// Pointers that at element `full` lead to the scratch of each access.
void LaneLoop::copy_in(Value* full, Value* active, Value* count, Values& scratch,
                       Values& redirected) {
  for (const UnitAccess& unit : analysis_.units()) {
    llvm::Type* type = e_.memory_type(unit.buffer);
    scratch.push_back(ops_.slot(with_width(type, width_)));
    redirected.push_back(b_.CreateGEP(type, scratch.back(), b_.CreateNeg(full)));
  }
  const auto loaded = [](const UnitAccess& unit) { return unit.loaded; };
  const auto pieces = i64(at_once_);
  copy(loaded, active, count, pieces, [&](size_t i, llvm::Type* vector, const Piece& piece) {
    const Dtype dtype = e_.dtype_of(analysis_.units()[i].buffer);
    Value* from = element(dtype, element(dtype, pointers_[i], full), piece.first);
    b_.CreateAlignedStore(e_.load_first(vector, from, piece.active, piece.count),
                          element(dtype, scratch[i], piece.first), align_of(vector));
  });
  for_states(full, [&](Dtype dtype, Value* state) {
    saved_.push_back(ops_.slot(vector_of(dtype)));
    b_.CreateAlignedStore(b_.CreateAlignedLoad(vector_of(dtype), state, llvm::Align(1)),
                          saved_.back(), align_of(vector_of(dtype)));
  });
}

// f(dtype, pointer) for the states that element k steps.
void LaneLoop::for_states(Value* k, const std::function<void(Dtype, Value*)>& f) {
  for (const Accumulator& a : accumulators_) {
    Value* lane = b_.CreateAnd(k, i64(a.order.lanes - 1));
    for (size_t s = 0; s < a.lanes.size(); ++s) {
      const Dtype dtype = a.fold->states[s].dtype;
      f(dtype, element(dtype, a.lanes[s], lane));
    }
  }
}

void LaneLoop::copy_out(const Values& scratch, Value* full, Value* to, llvm::BasicBlock* exit) {
  const auto stored = [](const UnitAccess& unit) { return unit.stored; };
  if (std::ranges::none_of(analysis_.units(), stored) && saved_.empty()) {
    b_.CreateBr(exit);
    return;
  }
  llvm::BasicBlock* copies = e_.block("copy");
  Value* rest = b_.CreateSub(to, full);
  b_.CreateCondBr(b_.CreateICmpSGT(rest, i64(0)), copies, exit);
  b_.SetInsertPoint(copies);
  // Masked stores take many times as long as others, and those of nothing longest.
  const int each = width_ / at_once_;
  Value* pieces = b_.CreateUDiv(b_.CreateAdd(rest, i64(each - 1)), i64(each));
  copy(stored, nullptr, rest, pieces, [&](size_t i, llvm::Type* vector, const Piece& piece) {
    const Dtype dtype = e_.dtype_of(analysis_.units()[i].buffer);
    Value* made =
        b_.CreateAlignedLoad(vector, element(dtype, scratch[i], piece.first), align_of(vector));
    Value* place = element(dtype, element(dtype, pointers_[i], full), piece.first);
    if (at_once_ == 1) return e_.store_first(made, place, piece.active, piece.count);
    llvm::BasicBlock *whole = e_.block("whole"), *part = e_.block("part"), *next = e_.block("next");
    b_.CreateCondBr(b_.CreateICmpSGE(piece.count, i64(width_of(made))), whole, part);
    b_.SetInsertPoint(whole);
    b_.CreateAlignedStore(made, place, element_align(vector));
    b_.CreateBr(next);
    b_.SetInsertPoint(part);
    e_.store_first(made, place, piece.active, piece.count);
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  });
  Value* active = saved_.empty() ? nullptr : first_lanes(rest);
  size_t at = 0;
  for_states(full, [&](Dtype dtype, Value* state) {
    llvm::Type* type = vector_of(dtype);
    Value* stepped = b_.CreateAlignedLoad(type, state, llvm::Align(1));
    Value* before = b_.CreateAlignedLoad(type, saved_[at++], align_of(type));
    b_.CreateAlignedStore(b_.CreateSelect(active, stepped, before), state, llvm::Align(1));
  });
  b_.CreateBr(exit);
}

// Of pieces one behind the other from the begin of a slot on.
llvm::Align LaneLoop::align_of(llvm::Type* piece) {
  const uint64_t bytes = piece->getPrimitiveSizeInBits().getFixedValue() / 8;
  return llvm::Align(std::clamp<uint64_t>(std::bit_floor(bytes), 1, 64));
}

// of(the number of the access, its type, the piece) for the accesses that are wanted: several vectors are
// copied by a loop, as their code takes longer to make than it ever runs.
template <typename Wanted, typename Of>
void LaneLoop::copy(const Wanted& wanted, Value* active, Value* count, Value* pieces,
                    const Of& of) {
  bool masked = ops_.features().x86 && !ops_.features().avx512;
  for (const UnitAccess& unit : analysis_.units())
    masked &= !wanted(unit) || e_.masked_is_native(e_.memory_type(unit.buffer));
  const auto all = [&](const Piece& piece, int width) {
    for (size_t i = 0; i < analysis_.units().size(); ++i)
      if (wanted(analysis_.units()[i]))
        of(i, with_width(e_.memory_type(analysis_.units()[i].buffer), width), piece);
  };
  if (at_once_ == 1 || !masked)
    return all({i64(0), active == nullptr ? first_lanes(count) : active, count}, width_);
  const int width = width_ / at_once_;
  ops_.loop(pieces, [&](Value* number) {
    Value* first = b_.CreateMul(number, i64(width));
    Value* here = b_.CreateSub(count, first);
    all({first, first_lanes(here, width), here}, width);
  });
}

void Emitter::lane_loop(const For& loop) {
  CERMET_INTERNAL_CHECK(lanes() == nullptr, "a lane loop inside a lane loop in {}", kernel_.name);
  CERMET_INTERNAL_CHECK(loop.step == 1, "a lane loop of step {} in {}", loop.step, kernel_.name);
  const LaneAnalysis analysis(kernel_, loop);
  const bool serial = std::ranges::any_of(
      analysis.folds(), [](const Fold* fold) { return fold->order == Order::serial; });
  if (serial || analysis.holds_lanes()) return serial_loop(loop);
  if (chain_loop(loop, analysis)) return;
  LaneLoop(*this, loop, analysis).emit();
}

}  // namespace cermet::codegen
