// SPDX-License-Identifier: MIT
#include "kernel/rebuild.h"

#include <algorithm>
#include <utility>

#include "kernel/walk.h"

namespace cermet::ir {

ExprId rebuild_expr(Builder& to, const Kernel& from, ExprId root, ExprMap& memo,
                    const ExprRule& rule) {
  std::vector<ExprId> stack = {root};
  while (!stack.empty()) {
    const ExprId old = stack.back();
    if (memo.contains(old)) {
      stack.pop_back();
      continue;
    }
    // A copy: when `from` is what `to` builds, its expressions move as it grows.
    Expr expr = from.exprs.at(old);
    const size_t below = stack.size();
    for_each_operand(expr, [&](ExprId operand) {
      if (!memo.contains(operand)) stack.push_back(operand);
    });
    if (stack.size() != below) {
      // The first operand is rebuilt first, so numbering follows the order of reading.
      std::reverse(stack.begin() + static_cast<ptrdiff_t>(below), stack.end());
      continue;
    }
    stack.pop_back();
    for_each_operand(expr, [&](ExprId& operand) { operand = memo.at(operand); });
    const ExprId id = rule ? rule(to, old, std::move(expr)) : to.intern(std::move(expr));
    memo.emplace(old, id);
  }
  return memo.at(root);
}

Rebuilder::Rebuilder(const Kernel& from, ExprRule rule)
    : from_(from), rule_(std::move(rule)), to_(from.name) {
  Kernel& kernel = to_.kernel();
  kernel.params = from.params;
  kernel.axes = from.axes;
  kernel.stride_count = from.stride_count;
  kernel.values = from.values;
  kernel.locals = from.locals;
}

ExprId Rebuilder::operator()(ExprId old) {
  return old == kNone ? kNone : rebuild_expr(to_, from_, old, memo_, rule_);
}

Stmt Rebuilder::operator()(const Stmt& stmt) {
  const For* loop = std::get_if<For>(&stmt);
  if (loop == nullptr) {
    Stmt copy = stmt;
    for_each_expr(copy, [&](ExprId& id) { id = (*this)(id); });
    return copy;
  }
  For copy{.kind = loop->kind,
           .axes = loop->axes,
           .begin = (*this)(loop->begin),
           .end = (*this)(loop->end),
           .step = loop->step,
           .grid = loop->grid,
           .turn = loop->turn,
           .least = loop->least,
           .entry = loop->entry};
  copy.body.reserve(loop->body.size());
  for (const Stmt& inner : loop->body) copy.body.push_back((*this)(inner));
  return copy;
}

Kernel rebuild(const Kernel& kernel, const ExprRule& rule) {
  Rebuilder rebuilder(kernel, rule);
  for (const Stmt& stmt : kernel.body) rebuilder.append(stmt);
  return rebuilder.take();
}

}  // namespace cermet::ir
