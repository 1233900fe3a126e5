// SPDX-License-Identifier: MIT
// The numbers that a trace, or a plan, leaves open: sizes of its inputs, and scalars. What is computed
// from them is an expression; where a value decides something, a guard is kept, and the trace holds for
// all values that pass the guards. Sizes of 0 and 1 are never open, since they mean something else
// to broadcasting.
#pragma once

#include <atomic>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/hooks.h"
#include "graph/op.h"

namespace cermet {

class Symbols : public hooks::SymbolTrace {
 public:
  // In a trace nodes are made again at other sizes, by the rules of their ops; in a plan they are not.
  enum class Use : uint8_t { trace, plan };
  explicit Symbols(Use use = Use::trace) { applies_rules_again = use == Use::trace; }
  virtual ~Symbols() = default;

  enum class Op : uint8_t {
    input,
    size,
    constant,
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    remainder,
    power,
    minimum,
    cast,
    negate,  // of one number, as what follows
    floor,
    ceil,
    truncate,
    round
  };
  enum class Relation : uint8_t { equal, less, same };  // same: the same bits

  // The next open number. A size decides which program runs, a scalar is only handed to it (unless
  // it becomes a size).
  Number input(const Number& value, bool is_size);
  // The value of an operation as Python defines it, symbolic if an operand is; nullopt: none in 64
  // bits.
  std::optional<Number> apply(Op op, const Number& a, const Number& b = {});
  bool compare(Relation relation, const Number& a, const Number& b);  // a guard if one is symbolic

  void look(const Dim& dim) override { look(number_of(dim)); }
  void look(const Number& number) override;
  bool equal(const Dim& a, const Dim& b) override;
  bool less(const Dim& a, const Dim& b) override;
  Dim combine(char op, const Dim& a, const Dim& b) override;
  int64_t decide(std::span<const Dim> by, const Decider& decider) override;
  void made(Node& node) override;
  // In all traces.
  static uint64_t nodes_made() { return nodes_made_.load(std::memory_order_relaxed); }
  uint32_t cast(const Number& number, Dtype dtype) override;

  // While it lives, this thread traces with these symbols.
  class Scope {
   public:
    explicit Scope(Symbols& symbols) : sizes_(Dim::trace), before_(hooks::trace) {
      Dim::trace = hooks::trace = &symbols;
    }
    ~Scope() {
      Dim::trace = sizes_;
      hooks::trace = before_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SizeTrace* sizes_;
    hooks::SymbolTrace* before_;
  };

  // --- after the trace ---
  static constexpr int64_t kUnknown = std::numeric_limits<int64_t>::min();
  struct Expr {
    Op op;
    uint32_t a = 0, b = 0;  // input: its position in a
    Number value;           // in the trace; constant: always
    Dtype dtype = Dtype::int64;
    NodeRef node;  // size: of this axis of this node
    int axis = 0;
    int64_t least = kUnknown;  // an integer that it is never below, whatever the inputs
  };
  struct Guard {
    Relation relation;
    uint32_t a, b;
    bool holds;
  };
  const std::vector<Expr>& exprs() const {
    return exprs_;
  }  // operands before users; 0 is no expression
  struct Decision {
    std::vector<uint32_t> by;
    Decider decider;
    int64_t outcome;
  };
  const std::vector<Guard>& guards() const { return guards_; }
  const std::vector<Decision>& decisions() const { return decisions_; }
  size_t input_count() const { return structural_.size(); }
  bool is_structural(size_t input) const { return structural_[input]; }
  // Of two numbers of one kind, others where they differ.
  static uint64_t bits_of(const Number& number);
  // By expression: it changes with scalars that are no sizes.
  std::vector<bool> varying() const;

  // By input: these numbers / these numbers, guards or nodes depend on it.
  std::vector<bool> inputs_of(std::span<const Number> numbers) const;
  std::vector<bool> used_inputs(std::span<const Number> numbers) const;

  // Of an expression that is no size of a node, by the values of those before it; nullopt: it has none in
  // 64 bits.
  std::optional<Number> value_of(uint32_t expr, std::span<const Number> inputs,
                                 std::span<const Number> values) const;
  static bool is_met(const Guard& guard, std::span<const Number> values) {
    return holds(guard.relation, values[guard.a], values[guard.b]) == guard.holds;
  }

 private:
  static inline std::atomic<uint64_t> nodes_made_{0};
  static Number number_of(const Dim& dim) {
    return {Number::Kind::integer, dim.value, 0, dim.expr};
  }
  // One operation on values.
  static std::optional<Number> compute(const Expr& expr, const Number& a, const Number& b);
  static bool holds(Relation relation, const Number& a, const Number& b);
  uint32_t add(Expr expr);
  uint32_t operand(const Number& number);  // its expression; a constant's is made
  int64_t least(const Number& number) const;
  int64_t least_of(Op op, const Number& a, const Number& b) const;
  // What the relation of a to b always is; nullopt: it may change.
  std::optional<bool> settled(Relation relation, const Number& a, const Number& b) const;
  void mark_structural(uint32_t expr);
  std::vector<bool> inputs_below(std::vector<bool> exprs) const;

  std::vector<Expr> exprs_{Expr{Op::constant, 0, 0, {}, {}, {}, 0}};
  std::vector<Guard> guards_;
  std::vector<Decision> decisions_;
  std::unordered_set<uint64_t> guarded_;
  std::unordered_map<uint64_t, uint32_t> known_;  // hash of an operation -> its expression
  std::vector<bool> structural_;                  // by input
  std::vector<uint32_t> in_nodes_;                // expressions among the parameters of nodes
};

}  // namespace cermet
