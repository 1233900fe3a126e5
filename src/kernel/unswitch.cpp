// SPDX-License-Identifier: MIT
// Lane loops without choices between memories: a row of a concatenation along an outer axis is read
// from the one array it comes from, one along the lanes in a loop for each part, one that is padded in a
// loop without masks between its edges. The rest of the loop is repeated for each choice, so there is a
// limit to their number. A longer loop runs once for each part instead, where masks would take a division.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "kernel/passes.h"
#include "kernel/rebuild.h"
#include "kernel/walk.h"

namespace cermet::ir {

namespace {

constexpr int kMostLoops = 9;           // made of one
constexpr size_t kMostRepeated = 96;    // expressions that are in both loops made of one
constexpr size_t kMostLookedAt = 1024;  // of a loop that is to be repeated
constexpr size_t kMostTurnedAt = 8192;  // of one that runs in turns

class Unswitcher {
 public:
  explicit Unswitcher(const Kernel& kernel) : rebuilder_(kernel), to_(rebuilder_.to()) {
    for (const Stmt& stmt : kernel.body) statement(rebuilder_(stmt), to_.kernel().body);
  }

  Kernel take() { return rebuilder_.take(); }

 private:
  void statement(Stmt stmt, std::vector<Stmt>& out) {
    if (const Let* let = std::get_if<Let>(&stmt)) around_[let->expr] = let->value;
    For* loop = std::get_if<For>(&stmt);
    if (loop == nullptr) return out.push_back(std::move(stmt));
    if (loop->kind == ForKind::lane) {
      int room = kMostLoops - 1;
      std::vector<For> parts;
      divide(std::move(*loop), room, parts, out);
      if (parts.size() > 1)
        for (For& part : parts)
          if (part.kind == ForKind::lane) mask_what_is_same(part);
      for (For& part : parts) out.push_back(std::move(part));
      return;
    }
    std::vector<Stmt> body = std::move(loop->body);
    loop->body.clear();
    const std::map<ExprId, ValueId> outside = around_;
    for (Stmt& inner : body) statement(std::move(inner), loop->body);
    around_ = outside;
    out.push_back(std::move(stmt));
  }

  // What a loop is divided by: a condition, and where in the loop it begins or ends to hold.
  struct Choice {
    ExprId condition = kNone;
    ExprId bound = kNone;     // kNone: the same for all lanes
    ExprId opposite = kNone;  // its opposite, spelled as a comparison
    bool first = true;        // it holds below the bound, else from there on
  };

  // `room`: loops that may be made besides. What they need goes to `out`.
  void divide(For loop, int& room, std::vector<For>& parts, std::vector<Stmt>& out) {
    const Choice choice = room > 0 ? choice_in(loop, Repeated::all) : Choice{};
    if (choice.condition == kNone) return run_in_turns(std::move(loop), parts, out);
    --room;
    const ExprId begin = loop.begin, end = loop.end;
    For other = copy_of(loop);
    const Choice of_other = in_copy(choice, loop, other);
    decide(loop, choice, truth(choice.first), truth(!choice.first));
    decide(other, of_other, truth(!choice.first), truth(choice.first));
    if (choice.bound == kNone) {
      loop.end = named(to_.select(choice.condition, end, begin), out);
      other.end = named(to_.select(choice.condition, begin, end), out);
    } else {
      loop.end = edge_of(choice, begin, end, out);
      other.begin = loop.end;
    }
    // As it is not known which of them runs, half of the room is for each.
    const int rest = room / 2;
    room -= rest;
    divide(std::move(loop), room, parts, out);
    room += rest;
    divide(std::move(other), room, parts, out);
  }

  // A loop that is not repeated again, by the bounds for which lanes would divide: in turns of a serial loop, from one
  // of them to the next.
  void run_in_turns(For loop, std::vector<For>& parts, std::vector<Stmt>& out) {
    const ExprId begin = loop.begin, end = loop.end;
    std::vector<ExprId> edges;
    std::vector<std::pair<ValueId, ValueId>> sides;  // bools: the turn is below, and it is not
    while (std::ssize(edges) < kMostTurnEdges) {
      const Choice choice = choice_in(loop, Repeated::none);
      if (choice.condition == kNone) break;
      edges.push_back(edge_of(choice, begin, end, out));
      const auto [below, above] =
          sides.emplace_back(to_.value({Dtype::boolean}), to_.value({Dtype::boolean}));
      decide(loop, choice, to_.ref(choice.first ? below : above),
             to_.ref(choice.first ? above : below));
    }
    if (edges.empty()) return parts.push_back(std::move(loop));
    std::vector<ExprId> ends = sorted(edges, out);
    ends.insert(ends.begin(), begin);
    ends.push_back(end);
    const auto count = static_cast<int64_t>(ends.size()) - 1;
    const AxisId turn = to_.axis("turn", false);
    For turns{.kind = ForKind::serial,
              .axes = {turn},
              .begin = to_.integer(Dtype::int64, 0),
              .end = to_.integer(Dtype::int64, count)};
    const auto end_at = [&](int64_t first) {
      ExprId found = ends[static_cast<size_t>(first + count - 1)];
      for (int64_t i = count - 1; i-- > 0;)
        found = to_.select(to_.compare(Code::eq, to_.axis_ref(turn), to_.integer(Dtype::int64, i)),
                           ends[static_cast<size_t>(first + i)], found);
      return named(found, turns.body);
    };
    loop.begin = end_at(0);
    loop.end = end_at(1);
    for (size_t i = 0; i < edges.size(); ++i) {
      turns.body.push_back(Let{sides[i].first, to_.compare(Code::lt, loop.begin, edges[i])});
      turns.body.push_back(Let{sides[i].second, to_.logical_not(to_.ref(sides[i].first))});
    }
    mask_what_is_same(loop);
    turns.body.push_back(std::move(loop));
    parts.push_back(std::move(turns));
  }

  // By exchanges of neighbours.
  std::vector<ExprId> sorted(std::vector<ExprId> values, std::vector<Stmt>& out) {
    for (size_t round = 0; round < values.size(); ++round)
      for (size_t i = round % 2; i + 1 < values.size(); i += 2) {
        const ExprId less = named(to_.min(values[i], values[i + 1]), out);
        values[i + 1] = named(to_.max(values[i], values[i + 1]), out);
        values[i] = less;
      }
    return values;
  }

  // Where in the loop the choice begins or ends to hold.
  ExprId edge_of(const Choice& choice, ExprId begin, ExprId end, std::vector<Stmt>& out) {
    return named(to_.max(begin, to_.min(choice.bound, end)), out);
  }

  ExprId truth(bool is) { return to_.integer(Dtype::boolean, is ? 1 : 0); }

  ExprId named(ExprId expr, std::vector<Stmt>& out) {
    const ValueId value = to_.value({Dtype::int64});
    out.push_back(Let{value, expr});
    return to_.ref(value);
  }

  // What of a loop there is again for each part of it.
  enum class Repeated : uint8_t { all, none };

  // A select's condition that says in a simple way which lanes make a load.
  Choice choice_in(const For& loop, Repeated repeated) {
    Scope scope{.variable = to_.axis_ref(loop.axes[0]), .end = loop.end, .repeated = repeated};
    for (const Stmt& stmt : loop.body) {
      if (const Let* let = std::get_if<Let>(&stmt)) scope.inside.insert(let->value);
      else if (!std::holds_alternative<Store>(stmt)) return {};
    }
    for (const Stmt& stmt : loop.body) for_each_expr(stmt, [&](ExprId id) { look(id, scope); });
    if (scope.found.condition == kNone || repeated == Repeated::none) return scope.found;
    if (scope.seen.size() > kMostLookedAt) return {};
    const size_t both = size_of(loop, scope.found, true) + size_of(loop, scope.found, false);
    return both <= scope.seen.size() + kMostRepeated ? scope.found : Choice{};
  }

  // The expressions of a loop where it is known how the choice falls out.
  size_t size_of(const For& loop, const Choice& choice, bool which) const {
    std::set<ExprId> seen;
    std::vector<ExprId> stack;
    for (const Stmt& stmt : loop.body) for_each_expr(stmt, [&](ExprId id) { stack.push_back(id); });
    while (!stack.empty()) {
      const ExprId id = stack.back();
      stack.pop_back();
      if (!seen.insert(id).second) continue;
      const Expr& e = to_[id];
      const std::optional<bool> truth = e.kind == ExprKind::op && e.code == Code::select
                                            ? truth_of(e.operands[0], choice, which)
                                            : std::nullopt;
      if (truth) stack.push_back(e.operands[*truth ? 1 : 2]);
      else for_each_operand(e, [&](ExprId operand) { stack.push_back(operand); });
    }
    return seen.size();
  }

  std::optional<bool> truth_of(ExprId id, const Choice& choice, bool which) const {
    const std::vector<ExprId> parts = conjuncts_of(id);
    size_t known = 0;
    for (const ExprId part : parts) {
      if (part != choice.condition && part != choice.opposite) continue;
      if ((part == choice.condition) != which) return false;
      ++known;
    }
    return known == parts.size() ? std::optional(true) : std::nullopt;
  }

  struct Scope {
    ExprId variable, end;
    Repeated repeated;
    std::set<ValueId> inside = {};
    std::set<ExprId> seen = {};
    Choice found = {};
  };

  bool is_same(ExprId id, const Scope& scope) const {
    const Expr& e = to_[id];
    if (e.kind == ExprKind::ref) return !scope.inside.contains(e.id);
    // There are no loops inside, so an axis is one of those around.
    return e.kind == ExprKind::scalar || e.kind == ExprKind::constant ||
           (e.kind == ExprKind::axis && id != scope.variable);
  }

  Choice choice_of(ExprId id, const Scope& scope) {
    const bool divides = scope.repeated == Repeated::none;
    if (is_same(id, scope))
      return to_[id].kind == ExprKind::ref && !divides ? Choice{id} : Choice{};
    const Expr e = to_[id];
    if (e.kind != ExprKind::op || (e.code != Code::lt && e.code != Code::le)) return {};
    const bool first = e.code == Code::lt;
    const ExprId place = e.operands[first ? 0 : 1], limit = e.operands[first ? 1 : 0];
    const ExprId bound = is_same(limit, scope) ? bound_of(place, limit, scope) : kNone;
    if (bound == kNone || (divides && !has_quotient(place))) return {};
    return {id, bound, to_.compare(first ? Code::le : Code::lt, e.operands[1], e.operands[0]),
            first};
  }

  // The lane from which on the place is not below the limit: the lane's number, a quotient of it, or a sum with one.
  ExprId bound_of(ExprId place, ExprId limit, const Scope& scope) {
    if (place == scope.variable) return limit;
    const Expr e = to_[place];
    if (e.kind != ExprKind::op) return kNone;
    if (e.code == Code::div && e.operands[0] == scope.variable &&
        to_[e.operands[1]].kind == ExprKind::extent) {
      // No quotient reaches the end of the loop; a product of larger limits might wrap.
      const ExprId zero = to_.constant_bits(Dtype::int64, 0);
      return to_.mul(to_.max(zero, to_.min(limit, scope.end)), e.operands[1]);
    }
    if (e.code != Code::add) return kNone;
    for (const int i : {0, 1})
      if (is_same(e.operands[1 - i], scope))
        return bound_of(e.operands[i], to_.sub(limit, e.operands[1 - i]), scope);
    return kNone;
  }

  bool has_quotient(ExprId id) const {
    const Expr& e = to_[id];
    return e.kind == ExprKind::op &&
           (e.code == Code::div ||
            std::ranges::any_of(e.operands, [&](ExprId operand) { return has_quotient(operand); }));
  }

  // The conditions of which it is the conjunction.
  std::vector<ExprId> conjuncts_of(ExprId id) const {
    const Expr& e = to_[id];
    if (e.kind != ExprKind::op || e.code != Code::bit_and || e.dtype != Dtype::boolean) return {id};
    std::vector<ExprId> all = conjuncts_of(e.operands[0]);
    for (const ExprId other : conjuncts_of(e.operands[1])) all.push_back(other);
    return all;
  }

  // Outer selects come first: deciding one may leave the inner ones out.
  void look(ExprId id, Scope& scope) {
    const bool repeats = scope.repeated == Repeated::all;
    if (scope.seen.size() > (repeats ? kMostLookedAt : kMostTurnedAt)) return;
    if (!scope.seen.insert(id).second) return;
    const Expr e = to_[id];
    if (e.kind == ExprKind::op && e.code == Code::select) {
      for (const ExprId condition : conjuncts_of(e.operands[0])) {
        if (scope.found.condition != kNone) break;
        const Choice choice = choice_of(condition, scope);
        std::set<ExprId> without;
        if (choice.condition != kNone && (makes_by(e.operands[1], choice, scope, without) ||
                                          makes_by(e.operands[2], choice, scope, without)))
          scope.found = choice;
      }
    }
    for_each_operand(e, [&](ExprId operand) { look(operand, scope); });
  }

  // Whether a load in the expression is made by the choice, or by another that is the same for all lanes.
  // `without`: expressions without such a load.
  bool makes_by(ExprId id, const Choice& choice, const Scope& scope,
                std::set<ExprId>& without) const {
    if (!without.insert(id).second) return false;
    const Expr& e = to_[id];
    if (e.kind == ExprKind::load) {
      const ExprId mask = e.operands.empty() ? kNone : e.operands[0];
      if (mask == kNone) return false;
      return std::ranges::any_of(conjuncts_of(mask), [&](ExprId part) {
        return part == choice.condition || part == choice.opposite ||
               (choice.bound == kNone && is_same(part, scope));
      });
    }
    bool makes = false;
    for_each_operand(
        e, [&](ExprId operand) { makes = makes || makes_by(operand, choice, scope, without); });
    return makes;
  }

  // The loop with a variable and values of its own.
  For copy_of(const For& loop) {
    For copy = loop;
    const AxisId variable = to_.axis(to_.kernel().axes[loop.axes[0]].name, false);
    copy.axes = {variable};
    ExprMap memo{{to_.axis_ref(loop.axes[0]), to_.axis_ref(variable)}};
    for (Stmt& stmt : copy.body) {
      rewrite(stmt, memo);
      Let* let = std::get_if<Let>(&stmt);
      if (let == nullptr) continue;
      const Value& value = to_.kernel().values[let->value];
      const ValueId own = to_.value(value.dtypes, value.name);
      memo[to_.ref(let->value)] = to_.ref(own);
      let->value = own;
    }
    return copy;
  }

  // The choice by the copy's variable.
  Choice in_copy(Choice choice, const For& loop, const For& copy) {
    if (choice.bound == kNone) return choice;
    ExprMap memo{{to_.axis_ref(loop.axes[0]), to_.axis_ref(copy.axes[0])}};
    choice.condition = rebuild_expr(to_, to_.kernel(), choice.condition, memo);
    choice.opposite = rebuild_expr(to_, to_.kernel(), choice.opposite, memo);
    return choice;
  }

  // The condition and its opposite are so.
  void decide(For& loop, const Choice& choice, ExprId condition, ExprId opposite) {
    ExprMap memo{{choice.condition, condition}};
    if (choice.opposite != kNone) memo[choice.opposite] = opposite;
    if (choice.bound == kNone)
      decide_around(to_[choice.condition].id, condition == truth(true), memo);
    for (Stmt& stmt : loop.body) rewrite(stmt, memo);
  }

  // What is the same in all lanes is loaded before the loop: of one that is left out, it may lie nowhere.
  void mask_what_is_same(For& loop) {
    const ExprId runs = to_.compare(Code::lt, loop.begin, loop.end);
    std::set<ExprId> inside = {to_.axis_ref(loop.axes[0])};
    ExprMap memo;
    const auto mask = [&](Builder& to, ExprId, Expr e) {
      const bool is_same =
          e.kind == ExprKind::load && std::ranges::none_of(e.index, [&](const IndexTerm& term) {
            return reaches(term.expr, inside);
          });
      if (is_same) e = masked(to, std::move(e), runs);
      return to.intern(std::move(e));
    };
    for (Stmt& stmt : loop.body) {
      if (const Let* let = std::get_if<Let>(&stmt)) inside.insert(to_.ref(let->value));
      for_each_expr(stmt,
                    [&](ExprId& id) { id = rebuild_expr(to_, to_.kernel(), id, memo, mask); });
    }
  }

  static Expr masked(Builder& to, Expr load, ExprId mask) {
    ExprId& given = load.operands[0];
    given = given == kNone ? mask : to.logical_and(given, mask);
    if (load.operands[1] == kNone) load.operands[1] = to.constant_bits(load.dtype, 0);
    return load;
  }

  // What the value decides besides, being a bool: its opposite, and conjunctions that Lets around the loop name.
  void decide_around(ValueId decided, bool which, ExprMap& memo) {
    const auto named =
        std::ranges::find_if(around_, [&](const auto& let) { return let.second == decided; });
    if (named == around_.end()) return;
    ExprMap known{{named->first, truth(which)}};
    const Expr e = to_[named->first];
    if (e.kind == ExprKind::op && (e.code == Code::lt || e.code == Code::le) &&
        is_integer(to_[e.operands[0]].dtype)) {
      const Code code = e.code == Code::lt ? Code::le : Code::lt;
      known[to_.compare(code, e.operands[1], e.operands[0])] = truth(!which);
    }
    memo.insert(known.begin(), known.end());
    for (const auto& [expr, value] : around_) {
      if (to_[expr].dtype != Dtype::boolean || value == decided) continue;
      const ExprId left =
          rebuild_expr(to_, to_.kernel(), expr, known,
                       [](Builder& to, ExprId, Expr e) { return folded(to, std::move(e)); });
      const auto other = around_.find(left);
      if (left == expr) continue;
      memo[to_.ref(value)] = other == around_.end() ? left : to_.ref(other->second);
    }
  }

  // Without constant conditions.
  static ExprId folded(Builder& to, Expr e) {
    const auto is_known = [&](int i) { return to[e.operands[i]].kind == ExprKind::constant; };
    const auto is_true = [&](int i) { return to[e.operands[i]].bits != 0; };
    if (e.kind == ExprKind::op && e.code == Code::select && is_known(0))
      return e.operands[is_true(0) ? 1 : 2];
    if (e.kind == ExprKind::op && e.code == Code::bit_and && e.dtype == Dtype::boolean)
      for (const int i : {0, 1})
        if (is_known(i)) return e.operands[is_true(i) ? 1 - i : i];
    return to.intern(std::move(e));
  }

  bool reaches(ExprId id, const std::set<ExprId>& inside) const {
    bool found = inside.contains(id);
    for_each_operand(to_[id], [&](ExprId operand) { found = found || reaches(operand, inside); });
    return found;
  }

  void rewrite(Stmt& stmt, ExprMap& memo) {
    for_each_expr(stmt, [&](ExprId& id) {
      id = rebuild_expr(to_, to_.kernel(), id, memo,
                        [](Builder& to, ExprId, Expr e) { return folded(to, std::move(e)); });
    });
  }

  Rebuilder rebuilder_;
  Builder& to_;
  std::map<ExprId, ValueId> around_;  // expressions that Lets name
};

}  // namespace

Kernel unswitch(const Kernel& kernel, const TargetFacts& target) {
  // A block of GPU threads would run the loops one after the other.
  return target.name == "cpu" ? Unswitcher(kernel).take() : kernel;
}

}  // namespace cermet::ir
