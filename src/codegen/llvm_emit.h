// SPDX-License-Identifier: MIT
// Tiled kernel IR to LLVM IR. Expressions become values where they are first needed and as far out of
// the loops as their operands allow; in a lane loop they stay scalars until a lane makes them differ.
//
// A value that belongs to an outer scope (llvm_scope.h) is emitted in the preheader of the loop that lies
// between, which stays open (without terminator) until the loop ends and runs even if the loop does not:
// what moves there must be harmless (a load that does not depend on an empty axis reads a buffer that has
// elements). Inside a conditional scope nothing moves out. Stores forget what was read from their buffer.
//
// Where items are long, loops ask on their way back whether the launch is to end (llvm_poll.cpp).
#pragma once

#include <llvm/ADT/SmallVector.h>

#include <functional>
#include <map>
#include <set>

#include "codegen/llvm_scope.h"
#include "codegen/prefetch.h"
#include "kernel/tile.h"

namespace cermet::codegen {

// The symbol that a failed Check calls: (status, item, site, index), see runtime/loader.h.
inline constexpr const char* kCheckSymbol = "cermet_check_failed";
// That which asks whether the launch is to end: not 0.
inline constexpr const char* kPollSymbol = "cermet_must_stop";

class Emitter {
 public:
  // polls: items are long (llvm_poll.cpp).
  Emitter(llvm::Module& module, const ir::Kernel& kernel, CpuFeatures features, bool polls);

  // One chunk loop as a function of runtime/loader.h's KernelFunction type.
  void entry(const ir::For& chunk, const std::string& symbol);

  // --- For templates (Micro) and loops.
  llvm::IRBuilder<>& builder() { return b_; }
  OpEmitter& ops() { return ops_; }
  const ir::Kernel& kernel() const { return kernel_; }
  llvm::Type* memory_type(ir::BufferRef buffer) const;
  Dtype dtype_of(ir::BufferRef buffer) const;

  // The value of an expression here: scalar unless lanes differ; as a vector; in lane 0.
  llvm::Value* natural(ir::ExprId id);
  llvm::Value* vector(ir::ExprId id);
  llvm::Value* base(ir::ExprId id);
  llvm::Value* element_zero(ir::BufferRef buffer);
  // The address of an element (of lane 0's).
  llvm::Value* address(ir::BufferRef buffer, const ir::Index& index);
  // The same where the axis is at `begin`.
  llvm::Value* address_at(ir::AxisId axis, ir::ExprId begin, ir::BufferRef buffer, ir::Index index);
  llvm::Value* extent(ir::AxisId axis);
  llvm::Value* stride(int32_t number);
  // Iterations of an inner loop in all rounds of the loops around it and in all items; points of the chunk loop.
  llvm::Value* elements_of(const ir::For& loop);
  const std::vector<Ahead>& ahead(const ir::For& loop) { return ahead_[&loop]; }
  llvm::Value* axis(ir::AxisId id) { return axes_[id].values[0]; }  // where the code at hand is
  // The end of a loop whose rounds are rows, or that of all rows, where the loop goes over a tile of them.
  llvm::Value* rows_end(const ir::For& loop);
  bool is_made(ir::ExprId id) const;         // every value in it is defined
  bool is_read(ir::BufferRef buffer) const;  // somewhere in the kernel
  const ir::For& chunk() const { return *chunk_; }
  void set_stores_past() { stores_past_ = true; }  // the function stores past the cache

  // --- Polls (llvm_poll.cpp).
  bool polls() const { return polls_; }
  std::optional<int64_t> most_trips(const ir::For& loop) const;  // that are known

  ir::ExprId behind(ir::ExprId id) const;               // refs to Lets: what these are of
  std::optional<int64_t> most_of(ir::ExprId id) const;  // of a constant or minimum; of others: none

  void statements(std::span<const ir::Stmt> stmts);

  // --- Scopes.
  // Runs f in a new innermost scope.
  template <typename F>
  void in_scope(Scope scope, F&& f) {
    scope.parent = current_;
    if (scope.lanes == nullptr) scope.lanes = current_->lanes;
    Scope* outer = std::exchange(current_, &scope);
    f(scope);
    current_ = outer;
  }
  // body(i, carried) for i = begin, begin + step, ... < end gives the next carried values; the result
  // is what is carried at the end. writes: buffers that the body writes. work: of a round, in steps of a
  // lane loop or the like, for polls between the rounds; 0: none.
  using LoopBody = std::function<Values(llvm::Value*, const Values&)>;
  Values loop(llvm::Value* begin, llvm::Value* end, int64_t step, const std::set<int>& writes,
              const Values& carried, const LoopBody& body, int64_t work = 0);
  // Where an expression's value belongs; the function as a whole.
  Scope* home_of(ir::ExprId id);
  Scope* root() const { return root_; }
  Scope* deeper(Scope* a, Scope* b) const;
  // Runs compute where a value belonging to `home` may stand; gives the scope to remember it in.
  template <typename F>
  std::pair<Scope*, llvm::Value*> at(Scope* home, F&& compute);
  void bind_axis(ir::AxisId axis, llvm::Value* value);  // to the innermost scope
  void define(ir::ValueId value, Values values);        // likewise
  void forget(const std::set<int>& written);            // values read from these buffers
  llvm::BasicBlock* block(const char* name);
  Lanes* lanes() const { return current_->lanes; }
  Scope* current() const { return current_; }

  // --- Folds (llvm_fold.cpp).
  struct FoldRun {
    Values state;                    // before the step, then after it
    Values slots = {};               // instead of `state`: where it is in memory
    Values carry = {}, so_far = {};  // scans: of the earlier blocks; the value at the element
    llvm::Value* first = nullptr;    // scans: i1, this is the first block; null: there is only one
  };
  // The states of a fold's list of expressions evaluated with State (and Other) bound.
  enum class Part : uint8_t { init, step, merge };
  Values states(const std::vector<ir::FoldState>& list, Part part, const Values* state = nullptr,
                const Values* other = nullptr);
  // Adds `value`, block `number` (i64, counted from 0), to the pairwise tree in `stack`; gives the value
  // of the whole tree where `last` (i1) holds.
  Values tree_push(const std::vector<ir::FoldState>& list, const Values& stack, Values value,
                   llvm::Value* number, llvm::Value* last);
  Values tree_stack(const Values& like);
  // The lanes of these vectors merged by halving, the vectors first: scalars.
  Values across_lanes(const std::vector<ir::FoldState>& list, std::vector<Values> vectors);
  // f() where the condition holds (null: always), else `otherwise`.
  Values when(llvm::Value* condition, const Values& otherwise, const std::function<Values()>& f);
  FoldRun& fold_run(const ir::Fold& fold) { return folds_[&fold]; }
  void serial_loop(const ir::For& loop);
  void lane_loop(const ir::For& loop);  // llvm_lane.cpp
  // Of stretches that lanes step along; false: the loop is none (llvm_chains.cpp).
  bool chain_loop(const ir::For& loop, const LaneAnalysis& analysis);

  // --- Memory (llvm_memory.cpp).
  llvm::Value* load(const ir::Expr& expr);
  void store(const ir::Store& store);
  void store_past(llvm::Value* value, llvm::Value* pointer);  // the cache, where vectors begin
  void update(const ir::Update& update);
  void fetch(const ir::Fetch& fetch);
  bool update_unit(const ir::Update& update);
  llvm::Value* merge_source(ir::LocalId local, ir::ExprId at, ir::ExprId stride, llvm::Value* i);
  bool masked_is_native(llvm::Type* element) const;  // loads and stores of some lanes
  // The first `count` elements (active: as a mask) of a vector in memory alone; other lanes read are undefined.
  llvm::Value* load_first(llvm::Type* type, llvm::Value* pointer, llvm::Value* active,
                          llvm::Value* count);
  void store_first(llvm::Value* value, llvm::Value* pointer, llvm::Value* active,
                   llvm::Value* count);

 private:
  using Value = llvm::Value;
  Value* word(int number, llvm::Type* type);  // of the record
  Value* thread_local_at(ir::LocalId id);
  Value* size(const ir::Size& size);  // to be called at the entry block's end
  Scope* find_home(ir::ExprId id);
  int depth(const Scope* scope) const;
  Value* compute(ir::ExprId id);
  Value* compute_base(ir::ExprId id);
  Value* known(ir::ExprId id) const;
  Value* rare(const ir::Expr& expr);  // llvm_rare.cpp
  void vectors_below(ir::ExprId id, std::map<ir::ExprId, Value*>& found);
  Value* slow_lanes(const ir::Expr& expr, Value* pred, Value* fast);
  Value* operation(const ir::Expr& expr);
  Value* narrow_place(const ir::Expr& expr);  // null: it is no cast of a place in the loop
  Value* loaded(ir::ExprId id, llvm::Constant* vector);
  Value* loaded_part(ir::ExprId id, llvm::Constant* vector, bool stays);
  Scope* outside_lanes() const;
  // Division (llvm_divide.cpp).
  bool divides_by_one(const ir::Expr& expr, int width);  // vectors by the same number in all lanes
  Divisor divisor(ir::ExprId id);
  Value* quotient(const ir::Expr& expr, Value* x, const Divisor& divisor);
  // Numbers of lanes, divided, and loads at such places (llvm_short.cpp).
  bool divides_short(ir::ExprId id) const;
  const ShortDivisor& short_divisor(ir::ExprId id, int width);
  std::pair<Value*, Value*> divided(Value* x, const ShortDivisor& divisor);
  const ShortDivision& short_division(ir::ExprId id);
  Value* short_result(ir::ExprId id);
  Value* short_first(ir::ExprId id);   // of lane 0, i64
  Value* short_others(ir::ExprId id);  // the others' difference
  std::tuple<ir::ExprId, ir::ExprId, int> division_key(ir::ExprId id) const;
  const ShortLanes& short_lanes(ir::ExprId id);
  void short_parts(const LaneAnalysis& analysis, ir::ExprId id, Value* factor,
                   std::vector<ShortPart>& parts);
  Value* most_of(ir::ExprId id, int width);
  const ShortWindow& window(const ir::Expr& load, llvm::Type* type);
  const ir::IndexTerm* repeated_term(const ir::Expr& load, llvm::Type* type) const;
  void repeat(const ir::Expr& load, const ir::IndexTerm& term, const ShortDivisor& divisor,
              llvm::Type* type, ShortWindow& window);
  Value* load_window(const ir::Expr& load, llvm::Type* type);
  Value* near_or_far(Value* is_near, const std::function<Value*()>& load_near,
                     const std::function<Value*()>& load_far);
  int64_t window_lanes(llvm::Type* type) const;
  Value* permute(llvm::Type* type, Value* pointer, Value* numbers);
  // Memory: vectors are of stored values, masks <width x i1> or null for every lane.
  Value* unit_pointer(ir::BufferRef buffer, const ir::Index& index);
  void store_vector(Value* value, Value* pointer, Value* past);
  void choose(Value* condition, const std::function<void()>& then,
              const std::function<void()>& otherwise);
  bool is_whole(ir::ExprId mask) const;
  Value* active_mask(ir::ExprId mask);  // with the lanes in range; null: all
  Value* load_scalar(const ir::Expr& expr);
  Value* load_unit(const ir::Expr& expr, llvm::Type* type);
  Value* load_gather(const ir::Expr& expr, llvm::Type* type, const Access& access);
  Value* element_pointers(ir::BufferRef buffer, const ir::Index& index);
  Value* gather(llvm::Type* type, Value* pointers, Value* mask, Value* otherwise);
  Value* load_all_lanes(llvm::Type* type, Value* pointers);
  Value* load_lanes(llvm::Type* type, Value* pointers, Value* mask, Value* otherwise);
  void store_scalar(const ir::Store& store);
  void scatter(const ir::Store& store, Value* value, Value* mask);
  // What lies a distance apart (llvm_strided.cpp).
  Value* distance(const ir::Index& index);
  Value* bytes_apart(const ir::Index& index, llvm::Type* element);
  Value* where_whole(const std::function<Value*()>& whole, const std::function<Value*()>& part);
  Value* load_pair(const ir::Expr& e, llvm::Type* type);
  Value* load_far(const ir::Expr& e, llvm::Type* type, Value* mask, Value* otherwise);
  bool store_pair(const ir::Stmt& a, const ir::Stmt& b);
  size_t copy_neighbours(std::span<const ir::Stmt> stmts);
  void store_strided(const ir::Store& store, Value* value, Value* mask);
  void store_far(const ir::Store& store, Value* value, Value* mask);
  // body(the number of the lane, its elements of vectors) for each lane of the mask, in order.
  void for_lanes(Value* mask, const Values& vectors,
                 const std::function<void(Value*, const Values&)>& body);
  void forget_in(Scope& scope, const std::set<int>& written);
  bool reads_any(ir::ExprId id, const std::set<int>& written) const;

  void statement(const ir::Stmt& stmt);
  void check(const ir::Check& check);
  void poll(int64_t work);
  int64_t work_of(std::span<const ir::Stmt> stmts) const;  // about
  int64_t work_between_polls(const ir::For& loop) const;   // 0: there are none
  std::optional<int64_t> most_beyond(ir::ExprId begin, ir::ExprId end) const;
  void fold_step(const ir::Fold& fold);
  // States in slots, an array each.
  llvm::Type* slot_type(llvm::Type* type);
  Values get(const Values& slots, Value* number, const Values& like);
  void put(const Values& slots, Value* number, const Values& values);
  Values inits_of(const ir::Fold& fold);
  void apart(const ir::For& loop, const std::vector<const ir::Fold*>& folds,
             const std::set<int>& writes, Value* begin, Value* end);
  void merge_apart(const ir::Fold& fold, const Values& slots, const Values& like, Value* count);
  void merge(const ir::Merge& merge);
  Values one_block(const ir::For& loop, const std::vector<const ir::Fold*>& folds,
                   const Values& inits, const std::set<int>& writes, Value* begin, Value* end);
  Values serial_block(const ir::For& loop, const std::vector<const ir::Fold*>& folds,
                      const std::vector<Values>& inits, const std::vector<Values>& stacks,
                      const std::set<int>& writes, Value* i, Value* begin, Value* end,
                      const Values& carried);

  llvm::Module& module_;
  const ir::Kernel& kernel_;
  llvm::IRBuilder<> b_;
  OpEmitter ops_;
  const bool polls_;
  llvm::Function* function_ = nullptr;
  bool stores_past_ = false;
  const ir::For* chunk_ = nullptr;
  std::map<const ir::For*, std::vector<Ahead>> ahead_;
  llvm::BasicBlock* entry_block_ = nullptr;
  Value* until_poll_ = nullptr;  // slot: work that is left; null: no loop polls yet
  Scope* root_ = nullptr;
  Scope* current_ = nullptr;
  std::vector<ir::ExprId> lets_;         // by value; kNone: no Let
  std::vector<std::vector<int>> reads_;  // by expression: written buffers it reads from
  std::map<std::pair<int, llvm::Type*>, Value*> words_;
  std::vector<Value*> local_offsets_;  // of thread locals, by LocalId
  struct Binding {
    Scope* scope = nullptr;
    Values values;
  };
  std::vector<Binding> axes_;
  std::vector<Binding> values_;
  std::map<const ir::Fold*, FoldRun> folds_;
};

template <typename F>
std::pair<Scope*, llvm::Value*> Emitter::at(Scope* home, F&& compute) {
  Scope* place = current_;
  Scope* crossed = nullptr;
  while (place != home && place->kind != ScopeKind::conditional &&
         place->kind != ScopeKind::function) {
    if (place->kind == ScopeKind::loop) crossed = place;
    place = place->parent;
  }
  if (crossed == nullptr) return {place, compute()};
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  Scope* inner = std::exchange(current_, place);
  b_.SetInsertPoint(crossed->preheader);
  Value* value = compute();
  crossed->preheader = b_.GetInsertBlock();
  current_ = inner;
  return {place, value};
}

// Whether merges give the same whichever side is which. What chooses the larger one, or the smaller, has an
// order for NaN and zeros only (ir.h).
bool commutes(const ir::Kernel& kernel, const ir::Fold& fold);
// The code of a template: raises an internal error for one that the processor has no code for.
void emit_micro(Emitter& emitter, const ir::Micro& micro);
// Past the cache; to a multiple of the value's size, of a line's at most.
void store_past(llvm::IRBuilder<>& b, llvm::Value* value, llvm::Value* pointer);
llvm::Align element_align(llvm::Type* type);  // of an element, or of each of a vector's

}  // namespace cermet::codegen
