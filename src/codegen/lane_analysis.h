// SPDX-License-Identifier: MIT
// What a lane loop's vectors look like: which expressions differ between lanes, which memory accesses
// are contiguous in them, and how many lanes to take. Independent of the code generator.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "kernel/ir.h"

namespace cermet::codegen {

// Buffers as numbers: parameters first, then Locals.
inline int buffer_number(const ir::Kernel& kernel, ir::BufferRef buffer) {
  return buffer.local ? static_cast<int>(kernel.params.size()) + buffer.id : buffer.id;
}
// Buffers that statements write.
std::set<int> written_buffers(const ir::Kernel& kernel, const std::vector<ir::Stmt>& stmts);

// Over the lanes of a loop: made before the loop, the same in all lanes, or different.
enum class Spread : uint8_t { invariant, uniform, varying };

// pair: every other element.
enum class AccessKind : uint8_t { uniform, unit, pair, strided, gather };
struct Access {
  AccessKind kind = AccessKind::uniform;
  bool early = true;  // but for the loop's own axis, every term is made before the loop
};

// One distinct contiguous access without mask in the body of a loop.
struct UnitAccess {
  ir::BufferRef buffer;
  const ir::Index* index;
  bool loaded = false;
  bool stored = false;
};

// A load without mask whose elements lie a run-time stride apart.
struct StridedLoad {
  ir::BufferRef buffer;
  const ir::Index* index;
  int32_t stride;
};

struct UsualCost {
  int cost = 0;           // ops and accesses
  int integer_chain = 0;  // the most integer ops of which each waits for the one before
  int float_chain = 0;    // the most ops of floats, likewise
};

class LaneAnalysis {
 public:
  LaneAnalysis(const ir::Kernel& kernel, const ir::For& loop);

  Spread spread(ir::ExprId id) const;
  // c when the expression is c · axis + something uniform; 0 when it is uniform.
  std::optional<int64_t> coefficient(ir::ExprId id) const;
  Access access(const ir::Index& index) const;
  // The expression is a quotient or remainder, by an extent or number, of what counts lanes: of the loop's
  // axis, or of such a quotient.
  bool is_short_division(ir::ExprId id) const;
  // What of a gather's index differs between lanes are these and the axis, times what does not change.
  bool is_short_distance(const ir::Index& index) const;
  // The expression of a Let of the loop, behind its ref; else itself.
  ir::ExprId behind(ir::ExprId id) const;
  bool varies(ir::ValueId value) const;  // a value defined in the loop

  const ir::For& loop() const { return loop_; }
  const std::vector<const ir::Fold*>& folds() const { return folds_; }  // over this loop
  bool nested() const { return nested_; }            // holds a loop, a merge or a template
  bool has_pairs() const { return has_pairs_; }      // unmasked accesses of the kind
  bool holds_lanes() const { return holds_lanes_; }  // holds another lane loop
  // Every unit access without mask can be addressed before the loop.
  bool switchable() const { return switchable_; }
  const std::vector<UnitAccess>& units() const { return units_; }
  const std::vector<StridedLoad>& strided_loads() const { return strided_loads_; }
  // The number of an access among the units, or how many they are.
  size_t unit(ir::BufferRef buffer, const ir::Index& index) const;
  const std::set<int>& writes() const { return writes_; }
  int cost() const { return cost_; }  // ops and accesses of one iteration
  // Of what each iteration runs: the slow part of a Rare is left out.
  const UsualCost& usual() const;
  int most_states() const { return most_states_; }  // of a fold in it
  // Vectors of the width are one register each, loaded and stored as they lie in memory.
  bool is_simple(int vector_bytes) const {
    return simple_ && width(vector_bytes) * widest_ <= vector_bytes;
  }
  int divisions() const { return divisions_; }  // of floats
  // Instructions of one iteration, about: a division takes many.
  int work() const { return cost_ + kDivisionWork * divisions_; }
  // Lanes of one step for vectors of this size: by the narrowest floating type, else integer type,
  // that is computed with.
  int width(int vector_bytes) const;

 private:
  void find_values();
  void walk(const std::vector<ir::Stmt>& stmts);
  void define(ir::ValueId value, Spread spread, ir::ExprId let);
  void visit(ir::ExprId id);
  void note_access(ir::BufferRef buffer, const ir::Index& index, bool masked, bool store);
  void note_strided_load(ir::BufferRef buffer, const ir::Index& index);
  void note_width(const ir::Expr& expr, bool is_value);
  Spread spread_of(const ir::Expr& expr) const;
  bool counts_lanes(ir::ExprId id) const;
  // Of an index: it differs between lanes by these and the axis, and by one of these at least.
  struct Short {
    bool holds, divides;
  };
  Short is_short(ir::ExprId id) const;
  Short short_of(ir::ExprId id) const;
  std::optional<int64_t> coefficient_of(ir::ExprId id) const;
  bool early(ir::ExprId id) const;  // made before the loop, but for the loop's axis
  bool early_of(ir::ExprId id) const;

  // What is known of expressions. Operands are shared: asked for anew by each user, they would be looked at
  // as often as there are paths to them.
  template <typename T>
  class Known {
   public:
    template <typename F>
    const T& get(ir::ExprId id, size_t count, F&& find) {
      if (values_.empty()) values_.resize(count);
      if (!values_[id]) {
        T value = find();
        values_[id] = std::move(value);
      }
      return *values_[id];
    }

   private:
    std::vector<std::optional<T>> values_;
  };

  struct Defined {
    ir::ValueId value;
    Spread spread;
    ir::ExprId let;  // kNone for folds
  };
  const Defined* defined(ir::ValueId value) const;

  const ir::Kernel& kernel_;
  const ir::For& loop_;
  std::set<int> writes_;
  std::set<ir::AxisId> inner_axes_;
  std::vector<Defined> defined_;
  std::vector<const ir::Fold*> folds_;
  std::vector<UnitAccess> units_;
  std::vector<StridedLoad> strided_loads_;
  std::vector<bool> is_value_;  // computed with, not only to find a place in memory
  std::vector<bool> visited_;
  mutable Known<Spread> spread_;
  mutable Known<std::optional<int64_t>> coefficient_;
  mutable Known<Short> short_;
  mutable Known<bool> early_;
  mutable std::optional<UsualCost> usual_;
  bool nested_ = false;
  bool has_pairs_ = false;
  bool holds_lanes_ = false;
  bool switchable_ = true;
  bool simple_ = true;
  int most_states_ = 0;
  static constexpr int kDivisionWork = 11;
  int cost_ = 0;
  int divisions_ = 0;
  int float_bytes_ = 0;    // narrowest of computed floats; 0: none
  int integer_bytes_ = 0;  // narrowest of computed integers, but for indices and all of int64
  int memory_bytes_ = 0;   // narrowest of what is loaded, stored or cast
  int widest_ = 1;         // of all that differs between lanes, but for the axis
};

// Lanes and block length of the `lanes` order.
struct LaneOrder {
  int lanes;
  int64_t block;
};
LaneOrder lane_order(const std::vector<ir::FoldState>& states);

}  // namespace cermet::codegen
