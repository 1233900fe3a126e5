// SPDX-License-Identifier: MIT
// Lane loops without choices that are the same for all lanes: a row of a concatenation along an outer
// axis is read from the one array it comes from. The rest of the loop is repeated for each choice, so
// there is a limit to their number.
#include <algorithm>
#include <set>

#include "kernel/passes.h"
#include "kernel/rebuild.h"
#include "kernel/walk.h"

namespace cermet::ir {

namespace {

constexpr int kMostLoops = 8;            // made of one
constexpr size_t kMostExpressions = 96;  // of a loop that is divided

class Unswitcher {
 public:
  explicit Unswitcher(const Kernel& kernel) : rebuilder_(kernel), to_(rebuilder_.to()) {
    for (const Stmt& stmt : kernel.body) statement(rebuilder_(stmt), to_.kernel().body);
  }

  Kernel take() { return rebuilder_.take(); }

 private:
  void statement(Stmt stmt, std::vector<Stmt>& out) {
    For* loop = std::get_if<For>(&stmt);
    if (loop == nullptr) return out.push_back(std::move(stmt));
    if (loop->kind == ForKind::lane) {
      int room = kMostLoops - 1;
      return divide(std::move(*loop), room, out);
    }
    std::vector<Stmt> body = std::move(loop->body);
    loop->body.clear();
    for (Stmt& inner : body) statement(std::move(inner), loop->body);
    out.push_back(std::move(stmt));
  }

  // `room`: loops that may be made besides.
  void divide(For loop, int& room, std::vector<Stmt>& out) {
    const ExprId choice = room > 0 ? choice_in(loop) : kNone;
    if (choice == kNone) return out.push_back(std::move(loop));
    --room;
    const ExprId end = loop.end;
    For other = copy_of(loop);
    decide(loop, choice, true);
    decide(other, choice, false);
    loop.end = named(to_.select(choice, end, loop.begin), out);
    divide(std::move(loop), room, out);
    other.end = named(to_.select(choice, other.begin, end), out);
    divide(std::move(other), room, out);
  }

  ExprId named(ExprId expr, std::vector<Stmt>& out) {
    const ValueId value = to_.value({Dtype::int64});
    out.push_back(Let{value, expr});
    return to_.ref(value);
  }

  // A select's condition that is the same for all lanes and keeps a load from being made.
  ExprId choice_in(const For& loop) {
    std::set<ValueId> inside;
    for (const Stmt& stmt : loop.body) {
      if (const Let* let = std::get_if<Let>(&stmt)) inside.insert(let->value);
      else if (!std::holds_alternative<Store>(stmt)) return kNone;
    }
    std::set<ExprId> seen;
    ExprId found = kNone;
    for (const Stmt& stmt : loop.body)
      for_each_expr(stmt, [&](ExprId id) { look(id, inside, seen, found); });
    return seen.size() <= kMostExpressions ? found : kNone;
  }

  bool is_same(ExprId id, const std::set<ValueId>& inside) const {
    return to_[id].kind == ExprKind::ref && !inside.contains(to_[id].id);
  }

  // Outer selects come first: deciding one may leave the inner ones out.
  void look(ExprId id, const std::set<ValueId>& inside, std::set<ExprId>& seen, ExprId& found) {
    if (!seen.insert(id).second) return;
    const Expr& e = to_[id];
    if (found == kNone && e.kind == ExprKind::op && e.code == Code::select &&
        is_same(e.operands[0], inside) &&
        (has_guarded_load(e.operands[1], inside) || has_guarded_load(e.operands[2], inside)))
      found = e.operands[0];
    for_each_operand(e, [&](ExprId operand) { look(operand, inside, seen, found); });
  }

  bool has_guarded_load(ExprId id, const std::set<ValueId>& inside) const {
    const Expr& e = to_[id];
    if (e.kind == ExprKind::load)
      return !e.operands.empty() && e.operands[0] != kNone && is_same(e.operands[0], inside);
    bool has = false;
    for_each_operand(e, [&](ExprId operand) { has = has || has_guarded_load(operand, inside); });
    return has;
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

  void decide(For& loop, ExprId choice, bool which) {
    ExprMap memo{{choice, to_.integer(Dtype::boolean, which ? 1 : 0)}};
    for (Stmt& stmt : loop.body) rewrite(stmt, memo);
  }

  void rewrite(Stmt& stmt, ExprMap& memo) {
    for_each_expr(stmt, [&](ExprId& id) {
      id = rebuild_expr(to_, to_.kernel(), id, memo, [](Builder& to, ExprId, Expr e) {
        if (e.kind == ExprKind::op && e.code == Code::select &&
            to[e.operands[0]].kind == ExprKind::constant)
          return e.operands[to[e.operands[0]].bits != 0 ? 1 : 2];
        return to.intern(std::move(e));
      });
    });
  }

  Rebuilder rebuilder_;
  Builder& to_;
};

}  // namespace

Kernel unswitch(const Kernel& kernel, const TargetFacts& target) {
  // A block of GPU threads would run the loops one after the other.
  return target.name == "cpu" ? Unswitcher(kernel).take() : kernel;
}

}  // namespace cermet::ir
