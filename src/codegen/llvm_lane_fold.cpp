// SPDX-License-Identifier: MIT
// Folds keep their 64 (32) lanes as vectors in memory, run block by block; where a step is cheap, in registers:
// 64 elements at a time, or, where instructions take masks, vectors in turn and the last one under a mask.
#include <algorithm>
#include <bit>

#include "codegen/llvm_lane.h"
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

}  // namespace

bool LaneLoop::goes_round() const { return analysis_.work() <= kRoundWork; }

void LaneLoop::folds() {
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
        return in_turn ? block_in_turn(from, to, last) : fold_block(from, to, last, block, carried);
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
Values LaneLoop::fold_block(Value* from, Value* to, Value* last, int64_t block,
                            const Values& carried) {
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

llvm::Value* LaneLoop::number_of(const Accumulator& a, Value* from) {
  return b_.CreateLShr(from, i64(std::countr_zero(static_cast<uint64_t>(a.order.block))));
}

bool LaneLoop::is_cheap(int width) const {
  const int most = ops_.features().avx512 ? kUnrolledCostOf32 : kUnrolledCost;
  return !analysis_.nested() && analysis_.cost() * (kGroup / width) <= most;
}

bool LaneLoop::takes_turns() const {
  const auto& folds = analysis_.folds();
  const int lanes = lane_order(folds[0]->states).lanes;
  return ops_.features().avx512 && width_ > 1 && is_cheap() &&
         static_cast<int>(folds.size()) * lanes <= kMostInTurn * width_ &&
         std::ranges::all_of(folds, [&](const Fold* fold) {
           return lane_order(fold->states).lanes == lanes && commutes(e_.kernel(), *fold);
         });
}

Values LaneLoop::block_in_turn(Value* from, Value* to, Value* last) {
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
Values LaneLoop::steps_in_turn(Value* from, Value* to, int round, const Values& queues) {
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

Values LaneLoop::step_in_turn(const Lanes& lanes, const Values& queues) {
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

void LaneLoop::start(const Accumulator& a) {
  for (size_t s = 0; s < a.lanes.size(); ++s) {
    const Dtype dtype = a.fold->states[s].dtype;
    Value* init = ops_.to_memory(dtype, ops_.splat(a.init[s], width_));
    for (int lane = 0; lane < a.order.lanes; lane += width_)
      b_.CreateAlignedStore(init, element(dtype, a.lanes[s], i64(lane)), llvm::Align(1));
  }
}

// Whole groups of 64 elements from `from`; gives where they end. fresh: a block of every fold
// starts.
llvm::Value* LaneLoop::groups(Value* from, Value* to, bool fresh) {
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

llvm::Value* LaneLoop::lane_vector(const Accumulator& a, size_t s, int lane) {
  const Dtype dtype = a.fold->states[s].dtype;
  return ops_.from_memory(
      dtype, b_.CreateAlignedLoad(vector_of(dtype), element(dtype, a.lanes[s], i64(lane)),
                                  llvm::Align(1)));
}

Values LaneLoop::group(Value* k, Values carried) {
  Lanes whole = lanes_at(k);
  e_.current()->lanes = &whole;
  for (int64_t copy = 0; copy < kGroup; copy += width_) {
    Value* here = sum(k, i64(copy));
    Lanes lanes = lanes_at(here);
    lanes.pointers.assign(pointers_.begin(), pointers_.end());
    e_.in_scope({.lanes = &lanes}, [&](Scope&) {
      e_.bind_axis(loop_.axes[0], lanes.first);
      prefetches_.fetch(here, copy);
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
size_t LaneLoop::register_of(const Accumulator& a, size_t s, int64_t copy, size_t first) const {
  const size_t vectors = static_cast<size_t>(a.order.lanes / width_);
  return first + s * vectors + static_cast<size_t>(copy % a.order.lanes / width_);
}

// The lanes' states merged by halving: scalars.
Values LaneLoop::across_lanes(const Accumulator& a) {
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
Values LaneLoop::across_lanes_in_memory(const Accumulator& a) {
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

}  // namespace cermet::codegen
