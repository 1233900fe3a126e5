// SPDX-License-Identifier: MIT
// The code of one lane loop (llvm_lane.cpp) and of the folds over it (llvm_lane_fold.cpp).
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "codegen/llvm_emit.h"
#include "codegen/llvm_prefetch.h"

namespace cermet::codegen {

class LaneLoop {
 public:
  LaneLoop(Emitter& emitter, const ir::For& loop, const LaneAnalysis& analysis)
      : e_(emitter),
        b_(emitter.builder()),
        ops_(emitter.ops()),
        loop_(loop),
        analysis_(analysis),
        at_once_(vectors_at_once()),
        width_(lanes_of_row(analysis.width(ops_.features().vector_bytes)) * at_once_),
        prefetches_(emitter) {}

  void emit();

 private:
  using Value = llvm::Value;

  // Elements between polls, a multiple of any vector's and line's.
  static constexpr int64_t kPart = 1 << 14;
  static constexpr int64_t kPartWork = kPart / 4;

  // One fold over this loop.
  struct Accumulator {
    const ir::Fold* fold;
    LaneOrder order;
    Values init;   // scalars
    Values lanes;  // one array of `order.lanes` (and a vector more) for each state; none: registers
    Values stack;  // of the tree
  };

  Value* i64(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  Value* sum(Value* x, Value* y) { return is_zero(x) ? y : is_zero(y) ? x : b_.CreateAdd(x, y); }
  Value* difference(Value* x, Value* y) { return is_zero(y) ? x : b_.CreateSub(x, y); }
  // What f makes of the loop's bounds and of what is known throughout the function.
  template <typename F>
  Value* made_once(F&& f) {
    return e_.at(home_, f).second;
  }
  bool switched() const { return analysis_.switchable() && !analysis_.nested(); }
  bool loads_masked() const;
  bool is_integer_chain() const;
  int chains_at_once(int width) const;
  int vectors_at_once() const;
  int lanes_of_row(int width) const;
  llvm::Type* vector_of(Dtype dtype) { return with_width(ops_.memory_type(dtype), width_); }
  Value* element(Dtype dtype, Value* array, Value* k);
  void find_pointers();

  // --- Past the cache. Large results go to memory without the cache reading what they overwrite, a
  // third of a copy's traffic: whole lines, from the first one on that begins inside the loop.

  void find_past();
  int64_t unit_bytes(size_t unit) const;
  void past_cache();
  Values lines_of(const Values& large);
  void run_in_parts(Value* from, Value* to);
  void find_fetched();
  void fetch_own(Value* k);
  Lanes lanes_at(Value* k);

  // Lanes below count, which is at most the width, and positive where masks are registers.
  Value* first_lanes(Value* count) { return first_lanes(count, width_); }
  Value* first_lanes(Value* count, int width);
  llvm::Type* flag_type(int width);
  Value* flags_of(Value* active);
  Value* active_of(Value* flags);
  void body(Lanes& lanes, Value* k);
  void run(Value* from, Value* to);
  bool is_whole(Value* to) const;
  bool twice() const;
  bool is_in_one_vector() const;
  bool takes_rows() const;
  void one_vector();
  Values past_until(Value* from, Value* full);
  void plain(Value* from, Value* full, Value* to);
  void switched(Value* from, Value* full, Value* to);
  void copy_in(Value* full, Value* active, Value* count, Values& scratch, Values& redirected);
  void copy_out(const Values& scratch, Value* full, Value* to, llvm::BasicBlock* exit);

  // A vector of the partial ones: its first element, which lanes it has.
  struct Piece {
    Value *first, *active, *count;
  };
  void for_states(Value* k, const std::function<void(Dtype, Value*)>& f);
  static llvm::Align align_of(llvm::Type* piece);

  template <typename Wanted, typename Of>
  void copy(const Wanted& wanted, Value* active, Value* count, Value* pieces, const Of& of);

  // --- Folds.

  void folds();
  Values fold_block(Value* from, Value* to, Value* last, int64_t block, const Values& carried);
  Value* number_of(const Accumulator& a, Value* from);
  bool is_cheap() const { return at_once_ == 1 && is_cheap(width_); }
  bool is_cheap(int width) const;

  // --- Folds in turn: each one's vectors are a queue, which may be merged from any place on. A step takes the
  // first and appends what it makes of it.

  bool takes_turns() const;
  bool goes_round() const;
  Values block_in_turn(Value* from, Value* to, Value* last);
  Values steps_in_turn(Value* from, Value* to, int round, const Values& queues);
  Values step_in_turn(const Lanes& lanes, const Values& queues);
  void start(const Accumulator& a);
  Value* groups(Value* from, Value* to, bool fresh);
  Value* lane_vector(const Accumulator& a, size_t s, int lane);
  Values group(Value* k, Values carried);
  size_t register_of(const Accumulator& a, size_t s, int64_t copy, size_t first) const;
  Values across_lanes(const Accumulator& a);
  Values across_lanes_in_memory(const Accumulator& a);

  Emitter& e_;
  llvm::IRBuilder<>& b_;
  OpEmitter& ops_;
  const ir::For& loop_;
  const LaneAnalysis& analysis_;
  const int at_once_;      // vectors
  const int width_;        // of all of them
  Scope* home_ = nullptr;  // of the bounds
  Value* begin_ = nullptr;
  Value* count_ = nullptr;
  Values pointers_;
  std::vector<size_t> past_;  // units that may be stored past the cache
  Values begins_line_;        // i1, for each of them: the elements of a run begin with a line
  LanePrefetches prefetches_;
  std::vector<Accumulator> accumulators_;
  Values saved_;  // the states before a partial vector
  const std::set<int> kNothing;
};

}  // namespace cermet::codegen
