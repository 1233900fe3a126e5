// SPDX-License-Identifier: MIT
// Lane loops: whole vectors, then the last partial one. Elements are counted from the loop's begin.
//
// switched  One body serves both: it addresses contiguous memory through pointers, which for the last,
//           partial vector lead to copies of the wanted elements on the stack. Halves the code, and
//           the body carries no masks.
// plain     Bodies that hold loops, and small ones where masks cost nothing: one for whole vectors, one
//           with masks.
//
// A body that is one long chain of integer operations, such as a cipher's rounds, goes over several vectors
// at a time: as one wider vector, which LLVM takes apart. So does a chain of floats, such as a polynomial, where
// vectors are short: 1.1 to 1.5 times on Zen 3, whose schedulers hold two or three vectors' operations.
//
// Folds keep their 64 (32) lanes as vectors in memory, run block by block; where a step is cheap, in registers:
// 64 elements at a time, or, where instructions take masks, vectors in turn and the last one under a mask.
#include <llvm/IR/Intrinsics.h>
#include <llvm/Transforms/Utils/Local.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "codegen/llvm_emit.h"
#include "codegen/llvm_prefetch.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int64_t kGroup = 64;          // elements of one round of the unrolled fold loop
constexpr int kUnrolledCost = 48;       // ops and accesses that it may have,
constexpr int kUnrolledCostOf32 = 112;  // ..., where its constants stay in registers: there are 32
constexpr int kMostInTurn = 8;          // vectors of folds that take turns,
constexpr int kRoundWork = 10;          // of a step that is made for each turn of a round
constexpr int kInlineMergeCost = 104;   // ops of merges that are emitted for each pair of vectors
constexpr int kTwiceCost = 16;          // ops and accesses of a body that is made twice
constexpr int kPastCost = 11;           // ops, for each line moved, of a loop that waits for memory
// The processor looks some 200 instructions ahead: of a longer chain it finds too little to do at a time.
constexpr int kLongChain = 40;
constexpr int kVectorsAtOnce = 8;  // of 32 registers; of fewer, half as many
constexpr int kFloatChain =
    8;                       // of floats, each of which takes four times as long: in 16 registers,
constexpr int kFewOps = 28;  // four vectors at a time of so many ops, two of more or of folds
constexpr int kMostAtOnce = 1024;   // ops of them all
constexpr int kMostLanes = 128;     // of them all
constexpr int64_t kPart = 1 << 14;  // elements between polls, a multiple of any vector's and line's
constexpr int64_t kPartWork = kPart / 4;

int ops_in(const Kernel& kernel, const std::vector<FoldState>& states) {
  std::set<ExprId> seen;
  const std::function<void(ExprId)> walk = [&](ExprId id) {
    if (!seen.insert(id).second) return;
    for_each_operand(kernel[id], walk);
  };
  for (const FoldState& s : states) walk(s.merge);
  return static_cast<int>(
      std::ranges::count_if(seen, [&](ExprId id) { return kernel[id].kind == ExprKind::op; }));
}

class LaneLoop {
 public:
  LaneLoop(Emitter& emitter, const For& loop, const LaneAnalysis& analysis)
      : e_(emitter),
        b_(emitter.builder()),
        ops_(emitter.ops()),
        loop_(loop),
        analysis_(analysis),
        at_once_(vectors_at_once()),
        width_(analysis.width(ops_.features().vector_bytes) * at_once_),
        prefetches_(emitter) {}

  void emit() {
    begin_ = e_.natural(loop_.begin);
    count_ = difference(e_.natural(loop_.end), begin_);
    if (!is_zero(begin_)) {  // it may end before that
      Value* none = i64(0);
      count_ = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, count_, none);
    }
    if (switched()) find_pointers();
    find_fetched();
    if (!analysis_.folds().empty()) return folds();
    find_past();
    past_.empty() ? run_in_parts(i64(0), count_) : past_cache();
  }

 private:
  using Value = llvm::Value;

  // One fold over this loop.
  struct Accumulator {
    const Fold* fold;
    LaneOrder order;
    Values init;   // scalars
    Values lanes;  // one array of `order.lanes` (and a vector more) for each state; none: registers
    Values stack;  // of the tree
  };

  Value* i64(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  Value* sum(Value* x, Value* y) { return is_zero(x) ? y : is_zero(y) ? x : b_.CreateAdd(x, y); }
  Value* difference(Value* x, Value* y) { return is_zero(y) ? x : b_.CreateSub(x, y); }
  bool switched() const { return analysis_.switchable() && !analysis_.nested(); }
  // Of all vectors, by the one body of a loop with folds.
  bool loads_masked() const {
    return switched() && width_ > 1 && !twice() && ops_.features().avx512 &&
           !analysis_.folds().empty() && !is_cheap();
  }
  bool is_integer_chain() const { return analysis_.usual().integer_chain >= kLongChain; }
  int vectors_at_once() const {
    const int bytes = ops_.features().vector_bytes;
    if (!switched() || !analysis_.is_simple(bytes)) return 1;
    int vectors = 0;
    if (analysis_.folds().empty() && is_integer_chain()) {
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
  llvm::Type* vector_of(Dtype dtype) { return with_width(ops_.memory_type(dtype), width_); }
  Value* element(Dtype dtype, Value* array, Value* k) {
    return is_zero(k) ? array : b_.CreateGEP(ops_.memory_type(dtype), array, k);
  }

  // Element 0 of every contiguous access.
  void find_pointers() {
    e_.in_scope({}, [&](Scope&) {
      e_.bind_axis(loop_.axes[0], begin_);
      for (const UnitAccess& unit : analysis_.units())
        pointers_.push_back(e_.address(unit.buffer, *unit.index));
    });
  }

  // --- Past the cache. Large results go to memory without the cache reading what they overwrite, a
  // third of a copy's traffic: whole lines, from the first one on that begins inside the loop.

  // Result accesses that nothing reads here.
  void find_past() {
    if (!switched() || width_ == 1 || !ops_.features().x86) return;
    const int lines = 1 + static_cast<int>(analysis_.units().size());  // one is overwritten
    if (analysis_.usual().cost > kPastCost * lines && !is_integer_chain()) return;
    for (size_t i = 0; i < analysis_.units().size(); ++i) {
      const UnitAccess& unit = analysis_.units()[i];
      if (unit.stored && !unit.loaded && !unit.buffer.local && !e_.is_read(unit.buffer))
        past_.push_back(i);
    }
  }

  int64_t unit_bytes(size_t unit) const {
    return static_cast<int64_t>(size_of(e_.dtype_of(analysis_.units()[unit].buffer)));
  }

  // The elements before the first whole line of the first such result, then the others.
  void past_cache() {
    Value* elements = e_.elements_of(loop_);
    Values large;
    for (const size_t unit : past_)
      large.push_back(b_.CreateICmpSGE(elements, i64(kPastBytes / unit_bytes(unit))));
    Value* start = b_.CreatePtrToInt(pointers_[past_[0]], b_.getInt64Ty());
    Value* before = b_.CreateAnd(b_.CreateNeg(start), i64(kLineBytes - 1));
    before =
        b_.CreateLShr(before, i64(std::countr_zero(static_cast<uint64_t>(unit_bytes(past_[0])))));
    Value* splits = b_.CreateAnd(large[0], b_.CreateICmpSLT(before, count_));
    before = b_.CreateSelect(splits, before, i64(0));
    Value* parts = b_.CreateZExt(b_.CreateICmpEQ(before, i64(0)), b_.getInt64Ty());
    e_.loop(parts, i64(2), 1, analysis_.writes(), {}, [&](Value* part, const Values&) -> Values {
      Value* rest = b_.CreateICmpNE(part, i64(0));
      Value* from = b_.CreateSelect(rest, before, i64(0));
      begins_line_.clear();
      for (size_t i = 0; i < past_.size(); ++i) {
        Value* first =
            element(e_.dtype_of(analysis_.units()[past_[i]].buffer), pointers_[past_[i]], from);
        Value* inside =
            b_.CreateAnd(b_.CreatePtrToInt(first, b_.getInt64Ty()), i64(kLineBytes - 1));
        Value* fits = b_.CreateAnd(large[i], b_.CreateICmpEQ(inside, i64(0)));
        begins_line_.push_back(fits);
      }
      run_in_parts(from, b_.CreateSelect(rest, count_, before));
      return {};
    });
    begins_line_.clear();
  }

  // Between parts there are polls.
  void run_in_parts(Value* from, Value* to) {
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
  void find_fetched() {
    prefetches_.find_ahead(loop_, begin_, count_);
    if (!loads_masked()) return;
    for (size_t i = 0; i < pointers_.size(); ++i) {
      const UnitAccess& unit = analysis_.units()[i];
      if (unit.loaded && !unit.buffer.local) prefetches_.add_stream(unit.buffer, pointers_[i]);
    }
  }

  // Their loads come late in a body of many instructions.
  void fetch_own(Value* k) {
    if (at_once_ == 1) return;
    for (size_t i = 0; i < pointers_.size(); ++i) {
      if (!analysis_.units()[i].loaded || analysis_.units()[i].buffer.local) continue;
      const Dtype dtype = e_.dtype_of(analysis_.units()[i].buffer);
      const int64_t line = static_cast<int64_t>(kLineBytes) / unit_bytes(i);
      for (int64_t at = 0; at < width_; at += line)
        prefetches_.into_l1(element(dtype, pointers_[i], sum(k, i64(at))));
    }
  }

  Lanes lanes_at(Value* k) {
    return {.analysis = &analysis_, .width = width_, .first = sum(begin_, k), .offset = k};
  }

  // Lanes below count, which is at most the width, and positive where masks are registers.
  Value* first_lanes(Value* count) { return first_lanes(count, width_); }
  Value* first_lanes(Value* count, int width) {
    if (width == 1) return b_.CreateICmpSLT(i64(0), count);
    if (ops_.features().avx512 && width >= 8) {
      llvm::Type* type = b_.getIntNTy(static_cast<unsigned>(std::max(64, width)));
      Value* others =
          b_.CreateShl(llvm::Constant::getAllOnesValue(type), b_.CreateZExt(count, type));
      Value* bits =
          b_.CreateTrunc(b_.CreateNot(others), b_.getIntNTy(static_cast<unsigned>(width)));
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
  llvm::Type* flag_type(int width) {
    const int bits = 8 * ops_.features().vector_bytes / width * (width == width_ ? at_once_ : 1);
    return b_.getIntNTy(static_cast<unsigned>(std::min(64, bits)));
  }
  Value* flags_of(Value* active) {
    return ops_.features().avx512 ? active
                                  : b_.CreateSExt(active, with_width(flag_type(width_), width_));
  }
  Value* active_of(Value* flags) {
    return ops_.features().avx512
               ? flags
               : b_.CreateICmpSLT(flags, llvm::Constant::getNullValue(flags->getType()));
  }

  // The body for the vector at element k, in the current scope.
  void body(Lanes& lanes, Value* k) {
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
  void run(Value* from, Value* to) {
    Value* whole = b_.CreateAnd(difference(to, from), i64(-width_));
    Value* full = sum(from, whole);
    if (switched() && width_ > 1 && !twice()) {
      switched(from, full, to);
    } else {
      plain(from, full, to);
    }
  }

  // Known to be whole vectors.
  bool is_whole(Value* to) const {
    const auto* count = llvm::dyn_cast<llvm::ConstantInt>(to);
    return to == count_ && count != nullptr && count->getSExtValue() % width_ == 0;
  }

  // A second body is cheaper than leading the first one elsewhere.
  bool twice() const {
    if (analysis_.has_pairs()) return true;  // these are quick without masks only
    return ops_.features().avx512 && analysis_.folds().empty() && analysis_.cost() <= kTwiceCost;
  }

  // For each access through a pointer: up to where whole lines are stored past the cache; null: nowhere.
  Values past_until(Value* from, Value* full) {
    Values past(begins_line_.empty() ? 0 : pointers_.size(), nullptr);
    for (size_t i = 0; i < begins_line_.size(); ++i) {
      const int64_t line = static_cast<int64_t>(kLineBytes) / unit_bytes(past_[i]);
      Value* lines = full;
      if (line > width_) lines = sum(from, b_.CreateAnd(difference(full, from), i64(-line)));
      past[past_[i]] = b_.CreateSelect(begins_line_[i], lines, i64(INT64_MIN));
    }
    return past;
  }

  void plain(Value* from, Value* full, Value* to) {
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
  void switched(Value* from, Value* full, Value* to) {
    e_.forget(analysis_.writes());
    const bool masked = ops_.features().avx512 && !analysis_.folds().empty();
    const bool copies = !masked && !pointers_.empty();
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
      const Values& starts = masked ? pointers_ : phis;
      lanes.pointers.assign(starts.begin(), starts.end());
      lanes.masked = masked;
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
  void copy_in(Value* full, Value* active, Value* count, Values& scratch, Values& redirected) {
    for (const UnitAccess& unit : analysis_.units()) {
      llvm::Type* type = e_.memory_type(unit.buffer);
      scratch.push_back(ops_.slot(with_width(type, width_)));
      redirected.push_back(b_.CreateGEP(type, scratch.back(), b_.CreateNeg(full)));
    }
    const auto loaded = [](const UnitAccess& unit) { return unit.loaded; };
    copy(loaded, active, count, [&](size_t i, llvm::Type* vector, const Piece& piece) {
      const Dtype dtype = e_.dtype_of(analysis_.units()[i].buffer);
      Value* from = element(dtype, element(dtype, pointers_[i], full), piece.first);
      b_.CreateAlignedStore(e_.load_first(vector, from, piece.active, piece.count),
                            element(dtype, scratch[i], piece.first), align_of(vector));
    });
  }

  void copy_out(const Values& scratch, Value* full, Value* to, llvm::BasicBlock* exit) {
    const auto stored = [](const UnitAccess& unit) { return unit.stored; };
    if (std::ranges::none_of(analysis_.units(), stored)) {
      b_.CreateBr(exit);
      return;
    }
    llvm::BasicBlock* copies = e_.block("copy");
    Value* rest = b_.CreateSub(to, full);
    b_.CreateCondBr(b_.CreateICmpSGT(rest, i64(0)), copies, exit);
    b_.SetInsertPoint(copies);
    copy(stored, nullptr, rest, [&](size_t i, llvm::Type* vector, const Piece& piece) {
      const Dtype dtype = e_.dtype_of(analysis_.units()[i].buffer);
      Value* made =
          b_.CreateAlignedLoad(vector, element(dtype, scratch[i], piece.first), align_of(vector));
      e_.store_first(made, element(dtype, element(dtype, pointers_[i], full), piece.first),
                     piece.active, piece.count);
    });
    b_.CreateBr(exit);
  }

  // A vector of the partial ones: its first element, which lanes it has.
  struct Piece {
    Value *first, *active, *count;
  };

  // Of pieces one behind the other from the begin of a slot on.
  static llvm::Align align_of(llvm::Type* piece) {
    const uint64_t bytes = piece->getPrimitiveSizeInBits().getFixedValue() / 8;
    return llvm::Align(std::clamp<uint64_t>(std::bit_floor(bytes), 1, 64));
  }

  // of(the number of the access, its type, the piece) for the accesses that are wanted: several vectors are
  // copied by a loop, as their code takes longer to make than it ever runs.
  template <typename Wanted, typename Of>
  void copy(const Wanted& wanted, Value* active, Value* count, const Of& of) {
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
    ops_.loop(i64(at_once_), [&](Value* number) {
      Value* first = b_.CreateMul(number, i64(width));
      Value* here = b_.CreateSub(count, first);
      all({first, first_lanes(here, width), here}, width);
    });
  }

  // --- Folds.

  void folds() {
    int64_t block = INT64_MAX;
    Values results;
    const bool in_turn = takes_turns();
    for (const Fold* fold : analysis_.folds()) {
      Accumulator a{
          fold, lane_order(fold->states), e_.states(fold->states, Emitter::Part::init), {}, {}};
      const auto slots = static_cast<uint64_t>(a.order.lanes) + static_cast<uint64_t>(width_);
      for (const FoldState& s : fold->states)
        if (!in_turn) a.lanes.push_back(ops_.slot(ops_.memory_type(s.dtype), slots));
      a.stack = e_.tree_stack(a.init);
      block = std::min(block, a.order.block);
      results.append(a.init.begin(), a.init.end());
      accumulators_.push_back(std::move(a));
    }
    results = e_.loop(
        i64(0), count_, block, analysis_.writes(), results,
        [&](Value* from, const Values& carried) {
          Value* next = b_.CreateAdd(from, i64(block));
          Value* last = b_.CreateICmpSGE(next, count_);
          Value* to = b_.CreateSelect(last, count_, next);
          return in_turn ? block_in_turn(from, to, last)
                         : fold_block(from, to, last, block, carried);
        },
        block * kPartWork / kPart);
    size_t at = 0;
    for (const Accumulator& a : accumulators_) {
      const size_t n = a.init.size();
      e_.define(a.fold->value, Values(&results[at], &results[at] + n));
      at += n;
    }
  }

  // Folds with longer blocks than the shortest start and end theirs at every second block only.
  Values fold_block(Value* from, Value* to, Value* last, int64_t block, const Values& carried) {
    const bool unrolled = is_cheap();
    const bool equal = std::ranges::all_of(
        accumulators_, [&](const Accumulator& a) { return a.order.block == block; });
    for (const Accumulator& a : accumulators_) {
      if (unrolled && equal) continue;  // the groups start in registers
      Value* inside = b_.CreateAnd(from, i64(a.order.block - 1));
      e_.when(a.order.block == block ? nullptr : b_.CreateICmpEQ(inside, i64(0)), {}, [&] {
        start(a);
        return Values();
      });
    }
    run(unrolled ? groups(from, to, equal) : from, to);
    Values results;
    for (const Accumulator& a : accumulators_) {
      const Values so_far(&carried[results.size()], &carried[results.size()] + a.init.size());
      Value* ends = b_.CreateICmpEQ(b_.CreateAnd(to, i64(a.order.block - 1)), i64(0));
      const Values value =
          e_.when(a.order.block == block ? nullptr : b_.CreateOr(ends, last), so_far, [&] {
            return e_.tree_push(a.fold->states, a.stack, across_lanes(a), number_of(a, from), last);
          });
      results.append(value.begin(), value.end());
    }
    return results;
  }

  Value* number_of(const Accumulator& a, Value* from) {
    return b_.CreateLShr(from, i64(std::countr_zero(static_cast<uint64_t>(a.order.block))));
  }

  bool is_cheap() const { return at_once_ == 1 && is_cheap(width_); }
  bool is_cheap(int width) const {
    const int most = ops_.features().avx512 ? kUnrolledCostOf32 : kUnrolledCost;
    return !analysis_.nested() && analysis_.cost() * (kGroup / width) <= most;
  }

  // --- Folds in turn: each one's vectors are a queue, which may be merged from any place on. A step takes the
  // first and appends what it makes of it.

  bool takes_turns() const {
    const auto& folds = analysis_.folds();
    const int lanes = lane_order(folds[0]->states).lanes;
    return ops_.features().avx512 && width_ > 1 && is_cheap() &&
           static_cast<int>(folds.size()) * lanes <= kMostInTurn * width_ &&
           std::ranges::all_of(folds, [&](const Fold* fold) {
             return lane_order(fold->states).lanes == lanes && commutes(e_.kernel(), *fold);
           });
  }

  bool goes_round() const { return analysis_.work() <= kRoundWork; }

  Values block_in_turn(Value* from, Value* to, Value* last) {
    const auto turns = static_cast<size_t>(accumulators_[0].order.lanes / width_);
    Values queues;
    for (const Accumulator& a : accumulators_) queues.append(turns, ops_.splat(a.init[0], width_));
    const int round = goes_round() ? static_cast<int>(turns) : 1;
    Value* full = sum(from, b_.CreateAnd(difference(to, from), i64(-round * width_)));
    queues = steps_in_turn(from, full, round, queues);
    queues = steps_in_turn(full, to, 0, queues);
    Values results;
    for (size_t f = 0; f < accumulators_.size(); ++f) {
      const Accumulator& a = accumulators_[f];
      std::vector<Values> vectors;
      for (size_t i = 0; i < turns; ++i) vectors.push_back({queues[f * turns + i]});
      Values value = e_.across_lanes(a.fold->states, std::move(vectors));
      results.append(
          e_.tree_push(a.fold->states, a.stack, std::move(value), number_of(a, from), last));
    }
    return results;
  }

  // `round` vectors at a time; 0: one, under a mask.
  Values steps_in_turn(Value* from, Value* to, int round, const Values& queues) {
    Value* width = i64(width_);
    const auto steps = [&](Value* k, const Values& in) {
      Lanes whole = lanes_at(k);
      e_.current()->lanes = &whole;
      Values now = in;
      for (int i = 0; i < std::max(round, 1); ++i) {
        Lanes lanes = lanes_at(sum(k, i64(i * width_)));
        lanes.pointers.assign(pointers_.begin(), pointers_.end());
        lanes.masked = round == 0;
        lanes.once = round == 0 && !goes_round();
        if (round == 0) {
          lanes.count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(to, k), width);
          lanes.active = first_lanes(lanes.count);
        }
        e_.in_scope({.lanes = &lanes}, [&](Scope&) { now = step_in_turn(lanes, now); });
      }
      e_.current()->lanes = nullptr;
      return now;
    };
    return e_.loop(from, to, std::max(round, 1) * width_, analysis_.writes(), queues, steps);
  }

  Values step_in_turn(const Lanes& lanes, const Values& queues) {
    const size_t turns = queues.size() / accumulators_.size();
    e_.bind_axis(loop_.axes[0], lanes.first);
    prefetches_.fetch(lanes.offset);
    for (size_t f = 0; f < accumulators_.size(); ++f)
      e_.fold_run(*accumulators_[f].fold) = {.state = {queues[f * turns]}};
    e_.statements(loop_.body);
    Values next;
    for (size_t f = 0; f < accumulators_.size(); ++f) {
      next.append(&queues[f * turns] + 1, &queues[f * turns] + turns);
      next.push_back(e_.fold_run(*accumulators_[f].fold).state[0]);
    }
    return next;
  }

  void start(const Accumulator& a) {
    for (size_t s = 0; s < a.lanes.size(); ++s) {
      const Dtype dtype = a.fold->states[s].dtype;
      Value* init = ops_.to_memory(dtype, ops_.splat(a.init[s], width_));
      for (int lane = 0; lane < a.order.lanes; lane += width_)
        b_.CreateAlignedStore(init, element(dtype, a.lanes[s], i64(lane)), llvm::Align(1));
    }
  }

  // Whole groups of 64 elements from `from`; gives where they end. fresh: a block of every fold
  // starts.
  Value* groups(Value* from, Value* to, bool fresh) {
    Value* whole = b_.CreateAnd(difference(to, from), i64(-kGroup));
    Value* full = sum(from, whole);
    Values carried;
    for (const Accumulator& a : accumulators_)
      for (size_t s = 0; s < a.lanes.size(); ++s)
        for (int lane = 0; lane < a.order.lanes; lane += width_)
          carried.push_back(fresh ? ops_.splat(a.init[s], width_) : lane_vector(a, s, lane));
    carried = e_.loop(from, full, kGroup, analysis_.writes(), carried,
                      [&](Value* k, const Values& in) { return group(k, in); });
    size_t at = 0;
    for (const Accumulator& a : accumulators_) {
      for (size_t s = 0; s < a.lanes.size(); ++s) {
        const Dtype dtype = a.fold->states[s].dtype;
        for (int lane = 0; lane < a.order.lanes; lane += width_)
          b_.CreateAlignedStore(ops_.to_memory(dtype, carried[at++]),
                                element(dtype, a.lanes[s], i64(lane)), llvm::Align(1));
      }
    }
    return full;
  }

  Value* lane_vector(const Accumulator& a, size_t s, int lane) {
    const Dtype dtype = a.fold->states[s].dtype;
    return ops_.from_memory(
        dtype, b_.CreateAlignedLoad(vector_of(dtype), element(dtype, a.lanes[s], i64(lane)),
                                    llvm::Align(1)));
  }

  Values group(Value* k, Values carried) {
    Lanes whole = lanes_at(k);
    e_.current()->lanes = &whole;
    for (int64_t copy = 0; copy < kGroup; copy += width_) {
      Value* here = sum(k, i64(copy));
      Lanes lanes = lanes_at(here);
      lanes.pointers.assign(pointers_.begin(), pointers_.end());
      e_.in_scope({.lanes = &lanes}, [&](Scope&) {
        e_.bind_axis(loop_.axes[0], lanes.first);
        prefetches_.fetch(here);
        size_t at = 0;
        for (const Accumulator& a : accumulators_) {
          Emitter::FoldRun& run = e_.fold_run(*a.fold);
          run = {};
          for (size_t s = 0; s < a.lanes.size(); ++s)
            run.state.push_back(carried[register_of(a, s, copy, at)]);
          at += a.lanes.size() * static_cast<size_t>(a.order.lanes / width_);
        }
        e_.statements(loop_.body);
        at = 0;
        for (const Accumulator& a : accumulators_) {
          for (size_t s = 0; s < a.lanes.size(); ++s)
            carried[register_of(a, s, copy, at)] = e_.fold_run(*a.fold).state[s];
          at += a.lanes.size() * static_cast<size_t>(a.order.lanes / width_);
        }
      });
    }
    e_.current()->lanes = nullptr;
    return carried;
  }

  // The number, among the carried vectors, of the one that element `copy` of a group steps.
  size_t register_of(const Accumulator& a, size_t s, int64_t copy, size_t first) const {
    const size_t vectors = static_cast<size_t>(a.order.lanes / width_);
    return first + s * vectors + static_cast<size_t>(copy % a.order.lanes / width_);
  }

  // The lanes' states merged by halving: scalars.
  Values across_lanes(const Accumulator& a) {
    const int pairs = a.order.lanes / width_ - 1 + std::countr_zero(static_cast<unsigned>(width_));
    if (pairs * ops_in(e_.kernel(), a.fold->states) > kInlineMergeCost)
      return across_lanes_in_memory(a);
    std::vector<Values> vectors;
    for (int lane = 0; lane < a.order.lanes; lane += width_) {
      vectors.emplace_back();
      for (size_t s = 0; s < a.lanes.size(); ++s) vectors.back().push_back(lane_vector(a, s, lane));
    }
    return e_.across_lanes(a.fold->states, std::move(vectors));
  }

  // For long merges: one copy of the code. A vector may reach past the lanes wanted: what it
  // reads there is not used, what it writes there has been used.
  Values across_lanes_in_memory(const Accumulator& a) {
    const int levels = std::countr_zero(static_cast<unsigned>(a.order.lanes));
    const auto at = [&](Value* lane) {
      Values v;
      for (size_t s = 0; s < a.lanes.size(); ++s) {
        const Dtype dtype = a.fold->states[s].dtype;
        v.push_back(ops_.from_memory(
            dtype, b_.CreateAlignedLoad(vector_of(dtype), element(dtype, a.lanes[s], lane),
                                        llvm::Align(1))));
      }
      return v;
    };
    e_.loop(i64(0), i64(levels), 1, kNothing, {}, [&](Value* level, const Values&) -> Values {
      Value* half = b_.CreateLShr(i64(a.order.lanes / 2), level);
      e_.loop(i64(0), half, width_, kNothing, {}, [&](Value* lane, const Values&) -> Values {
        const Values left = at(lane), right = at(b_.CreateAdd(lane, half));
        const Values merged = e_.states(a.fold->states, Emitter::Part::merge, &left, &right);
        for (size_t s = 0; s < merged.size(); ++s) {
          const Dtype dtype = a.fold->states[s].dtype;
          b_.CreateAlignedStore(ops_.to_memory(dtype, merged[s]), element(dtype, a.lanes[s], lane),
                                llvm::Align(1));
        }
        return {};
      });
      return {};
    });
    Values value;
    for (size_t s = 0; s < a.lanes.size(); ++s) {
      const Dtype dtype = a.fold->states[s].dtype;
      value.push_back(ops_.from_memory(dtype, b_.CreateLoad(ops_.memory_type(dtype), a.lanes[s])));
    }
    return value;
  }

  Emitter& e_;
  llvm::IRBuilder<>& b_;
  OpEmitter& ops_;
  const For& loop_;
  const LaneAnalysis& analysis_;
  const int at_once_;  // vectors
  const int width_;    // of all of them
  Value* begin_ = nullptr;
  Value* count_ = nullptr;
  Values pointers_;
  std::vector<size_t> past_;  // units that may be stored past the cache
  Values begins_line_;        // i1, for each of them: the elements of a run begin with a line
  LanePrefetches prefetches_;
  std::vector<Accumulator> accumulators_;
  const std::set<int> kNothing;
};

}  // namespace

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
