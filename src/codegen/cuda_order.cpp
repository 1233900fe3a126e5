// SPDX-License-Identifier: MIT
#include "codegen/cuda_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "codegen/lane_analysis.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

bool reaches(const Kernel& kernel, ExprId root, const std::function<bool(const Expr&)>& wanted) {
  std::set<ExprId> seen;
  const std::function<bool(ExprId)> look = [&](ExprId id) {
    if (!seen.insert(id).second) return false;
    bool found = wanted(kernel[id]);
    for_each_operand(kernel[id], [&](ExprId operand) { found = found || look(operand); });
    return found;
  };
  return look(root);
}

// What is made anew in each iteration of a loop.
struct Made {
  std::set<AxisId> axes;
  std::set<ValueId> values;

  explicit Made(const For& loop) : axes(loop.axes.begin(), loop.axes.end()) {
    for_each_stmt(loop.body, [&](const Stmt& stmt) {
      if (const ValueId* value = value_of(stmt)) values.insert(*value);
      if (const For* inner = std::get_if<For>(&stmt)) axes.insert(inner->axes[0]);
    });
  }
  bool holds(const Expr& e) const {
    return e.kind == ExprKind::load || (e.kind == ExprKind::axis && axes.contains(e.id)) ||
           (e.kind == ExprKind::ref && values.contains(e.id));
  }
};

}  // namespace

bool is_shared_loop(const Kernel& kernel, const For& loop) {
  return loop.kind == ForKind::lane && !LaneAnalysis(kernel, loop).holds_lanes();
}

LaneShare share_of(const For& loop) {
  LaneShare share;
  for (const Stmt& stmt : loop.body) {
    const Fold* fold = std::get_if<Fold>(&stmt);
    if (fold == nullptr) continue;
    const LaneOrder order = lane_order(fold->states);
    share.lanes = share.folds.empty() ? order.lanes : std::min(share.lanes, order.lanes);
    share.block = std::max(share.block, order.block);
    share.folds.push_back(fold);
  }
  return share;
}

void ThreadOrder::reads(ExprId root, const std::string& way, Touches& to) const {
  reaches(kernel_, root, [&](const Expr& e) {
    if (e.kind == ExprKind::load) to.push_back({buffer_number(kernel_, e.buffer), false, way});
    return false;
  });
}

void ThreadOrder::reads(const Stmt& stmt, const std::string& way, Touches& to) const {
  for_each_expr(stmt, [&](ExprId id) { reads(id, way, to); });
}

// Known is only the element `axis · stride + what the loop does not change`.
Touch ThreadOrder::lane_touch(BufferRef buffer, const Index& index, const For& loop,
                              bool write) const {
  Touch touch{buffer_number(kernel_, buffer), write};
  const Made made(loop);
  int own = 0;
  std::string way = fmt::format("{}", loop.begin);
  touch.parts.push_back(loop.begin);
  std::vector<std::string> terms;
  for (const IndexTerm& term : index) {
    const Expr& e = kernel_[term.expr];
    const bool axis = e.kind == ExprKind::axis && e.id == loop.axes[0];
    own += axis;
    if (!axis && reaches(kernel_, term.expr, [&](const Expr& x) { return made.holds(x); }))
      return touch;
    if (!axis) touch.parts.push_back(term.expr);
    terms.push_back(fmt::format(" {}*{}", axis ? "@" : std::to_string(term.expr), term.stride));
  }
  if (own != 1) return touch;
  const LaneShare share = share_of(loop);
  way += fmt::format(" by {} {}", share.lanes, share.block);
  std::ranges::sort(terms);
  for (const std::string& term : terms) way += term;
  touch.way = way;
  return touch;
}

void ThreadOrder::in_lanes(const std::vector<Stmt>& stmts, const For& loop, Touches& to) const {
  for_each_stmt(stmts, [&](const Stmt& stmt) {
    for_each_expr(stmt, [&](ExprId root) {
      reaches(kernel_, root, [&](const Expr& e) {
        if (e.kind == ExprKind::load) to.push_back(lane_touch(e.buffer, e.index, loop, false));
        return false;
      });
    });
    if (const Store* s = std::get_if<Store>(&stmt))
      to.push_back(lane_touch(s->buffer, s->index, loop, true));
    if (const Update* s = std::get_if<Update>(&stmt))
      to.push_back(lane_touch(s->buffer, s->index, loop, true));
    if (const Merge* s = std::get_if<Merge>(&stmt))
      for (LocalId local : s->from) to.push_back({buffer_number(kernel_, {true, local}), false});
  });
}

Touches ThreadOrder::of(const Stmt& stmt) const {
  Touches touches;
  const auto write = [&](BufferRef buffer) {
    reads(stmt, "0", touches);
    touches.push_back({buffer_number(kernel_, buffer), true, "0"});
  };
  if (const Store* s = std::get_if<Store>(&stmt)) {
    write(s->buffer);
  } else if (const Update* s = std::get_if<Update>(&stmt)) {
    write(s->buffer);
  } else {
    reads(stmt, "", touches);
  }
  if (const For* s = std::get_if<For>(&stmt)) {
    if (is_shared_loop(kernel_, *s)) {
      in_lanes(s->body, *s, touches);
    } else {
      for (const Stmt& inner : s->body) {
        const Touches more = of(inner);
        touches.insert(touches.end(), more.begin(), more.end());
      }
    }
  } else if (const Merge* s = std::get_if<Merge>(&stmt)) {
    for (LocalId local : s->from) touches.push_back({buffer_number(kernel_, {true, local}), false});
  } else if (const Micro* s = std::get_if<Micro>(&stmt)) {
    // The target stands first.
    for (size_t i = 0; i < s->buffers.size(); ++i)
      touches.push_back({buffer_number(kernel_, s->buffers[i]), i == 0});
  }
  return touches;
}

Touches ThreadOrder::around(const For& loop) const {
  Touches touches;
  const Made made(loop);
  for (const Stmt& stmt : loop.body)
    for (Touch& touch : of(stmt)) {
      const bool changes = std::ranges::any_of(touch.parts, [&](ExprId part) {
        return reaches(kernel_, part, [&](const Expr& e) { return made.holds(e); });
      });
      if (changes) touch.way.clear();
      touches.push_back(std::move(touch));
    }
  return touches;
}

void ThreadOrder::add(const Touches& touches) {
  for (const Touch& t : touches)
    if (std::ranges::find(recent_, t) == recent_.end()) recent_.push_back(t);
}

bool ThreadOrder::needs_barrier(const Touches& touches) {
  const bool wait = std::ranges::any_of(touches, [&](const Touch& t) {
    return std::ranges::any_of(recent_, [&](const Touch& r) {
      return t.buffer == r.buffer && (t.write || r.write) && (t.way.empty() || t.way != r.way);
    });
  });
  if (wait) recent_.clear();
  add(touches);
  return wait;
}

}  // namespace cermet::codegen
