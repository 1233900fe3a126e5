// SPDX-License-Identifier: MIT
// Walks over the parts of expressions and statements: the one place that knows which fields of a
// node hold expressions. Absent expressions (kNone) are left out; nested statements are not
// entered.
#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "kernel/ir.h"

namespace cermet::ir {

// f(ExprId&) for each operand of `expr` (a const Expr gives const ids), then for each index term.
template <typename E, typename F>
void for_each_operand(E& expr, F&& f) {
  for (auto& operand : expr.operands)
    if (operand != kNone) f(operand);
  for (auto& term : expr.index)
    if (term.expr != kNone) f(term.expr);
}

// f(ExprId&) for each expression that the statement itself holds, in the order of its fields.
template <typename S, typename F>
void for_each_expr(S& stmt, F&& f) {
  const auto one = [&](auto& id) {
    if (id != kNone) f(id);
  };
  const auto states = [&](auto& list) {
    for (auto& state : list) one(state.init), one(state.step), one(state.merge);
  };
  const auto index = [&](auto& terms) {
    for (auto& term : terms) one(term.expr);
  };
  std::visit(
      [&]<typename T>(T& s) {
        using Node = std::remove_const_t<T>;
        if constexpr (std::is_same_v<Node, Let>) {
          one(s.expr);
        } else if constexpr (std::is_same_v<Node, Fold>) {
          states(s.states);
        } else if constexpr (std::is_same_v<Node, Contract>) {
          one(s.a), one(s.b);
        } else if constexpr (std::is_same_v<Node, Check>) {
          one(s.ok), one(s.index);
        } else if constexpr (std::is_same_v<Node, Store>) {
          index(s.index), one(s.value), one(s.mask);
        } else if constexpr (std::is_same_v<Node, Update>) {
          index(s.index), one(s.value), one(s.imag), one(s.mask);
        } else if constexpr (std::is_same_v<Node, For>) {
          one(s.begin), one(s.end);
        } else if constexpr (std::is_same_v<Node, Merge>) {
          states(s.states), one(s.at), one(s.count), one(s.stride);
        } else if constexpr (std::is_same_v<Node, Micro>) {
          for (auto& operand : s.operands) one(operand);
        } else if constexpr (std::is_same_v<Node, Fetch>) {
          index(s.index);
        }
      },
      stmt);
}

// f(stmt) for each statement of the list and of the loops in it, outer ones first.
template <typename List, typename F>
void for_each_stmt(List& stmts, F&& f) {
  for (auto& stmt : stmts) {
    f(stmt);
    if (auto* loop = std::get_if<For>(&stmt)) for_each_stmt(loop->body, f);
  }
}

// The value that the statement writes; null if none. Const if the statement is.
template <typename S>
auto value_of(S& stmt) -> std::conditional_t<std::is_const_v<S>, const ValueId*, ValueId*> {
  if (auto* s = std::get_if<Let>(&stmt)) return &s->value;
  if (auto* s = std::get_if<Fold>(&stmt)) return &s->value;
  if (auto* s = std::get_if<Contract>(&stmt)) return &s->value;
  if (auto* s = std::get_if<Merge>(&stmt)) return &s->value;
  return nullptr;
}

}  // namespace cermet::ir
