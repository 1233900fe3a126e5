// SPDX-License-Identifier: MIT
// The kernel that is being tiled, with what the tiler asks of it: the axes that an expression really
// depends on, what it costs, what it reads. The tiler adds expressions of its own to it (indices of
// Locals, loads that stand for values of earlier entry points), so that one mechanism makes them all.
#pragma once

#include <optional>
#include <vector>

#include "kernel/builder.h"
#include "kernel/walk.h"

namespace cermet::ir {

using AxisSet = uint64_t;
inline constexpr size_t kMaxAxes = 60;                   // of a kernel: one bit each
inline constexpr AxisSet kStateAxis = AxisSet{1} << 63;  // set: depends on State or Other
inline AxisSet axis_bit(AxisId axis) { return AxisSet{1} << axis; }
AxisSet set_of(const std::vector<AxisId>& axes);

// A statement of a stage. `order` counts statements through the whole kernel.
struct Line {
  const Stmt* stmt;
  std::vector<AxisId> stage;
  int order;
};

// A load that is made when `order` is reached.
struct Read {
  BufferRef buffer;
  Index index;
  AxisSet axes;  // of the index
  int order;
  ValueId let;  // the Let that loads; kNone: the statement itself
};

class Source {
 public:
  // Raises an internal error for a kernel of more than 60 axes.
  explicit Source(const Kernel& kernel);

  Builder& builder() { return builder_; }
  const Kernel& kernel() const { return builder_.kernel(); }
  const Expr& operator[](ExprId id) const { return builder_[id]; }
  const std::vector<Line>& lines() const { return lines_; }

  AxisSet axes(ExprId id);
  AxisSet axes_of_value(ValueId value) const { return value_axes_[value]; }
  AxisSet axes(const Index& index);
  const Let* let_of(ValueId value) const;  // null for folds and for anchored Lets
  // The expression behind refs to Lets.
  ExprId behind(ExprId id) const;

  // From now on the Let is a statement of its own, made once, not wherever it is needed.
  void anchor(ValueId value) { anchored_[value] = true; }
  bool is_anchored(ValueId value) const { return anchored_[value]; }

  // Stands for a loop variable that the tiler makes.
  AxisId pseudo_axis(std::string name) { return builder_.axis(std::move(name), false); }

  // From now on `id` (a ref, or a get of one) means `instead`.
  void alias(ExprId id, ExprId instead);
  ExprId alias_of(ExprId id) const;

  // What must be made before `id`: operands, the expression of the Let behind a ref, the alias.
  template <typename F>
  void for_each_need(ExprId id, F&& f) const;
  // Every expression needed for the roots once, users before what they need only on first sight;
  // f(id) false: what lies behind it is not entered.
  template <typename F>
  void walk(const std::vector<ExprId>& roots, F&& f) const;

  // Number of operations to make `id`, of those that depend on `axes`; stops counting past `limit`.
  int cost(ExprId id, AxisSet axes, int limit);
  // Reads of the statement at `line`, through Lets, of buffers that the kernel both reads and writes.
  std::vector<Read> reads(const Line& line);

  // Row-major place of the point `axes` in an array over them: one unit term for each axis.
  Index flat_index(const std::vector<AxisId>& axes);
  ExprId product_of_extents(const std::vector<AxisId>& axes, size_t from = 0);

 private:
  void learn(const Line& line);
  AxisSet own_axes(ExprId id) const;
  void collect_reads(const std::vector<ExprId>& roots, int order, ValueId let,
                     std::vector<ValueId>& lets, std::vector<Read>& found);
  int step_cost(ExprId id) const;

  Builder builder_;
  std::vector<Line> lines_;
  std::vector<AxisSet> value_axes_;
  std::vector<const Let*> lets_;
  std::vector<int> let_orders_;
  std::vector<bool> anchored_;
  std::vector<bool> written_;  // by parameter
  bool in_place_ = false;      // some parameter is read and written
  std::vector<std::optional<AxisSet>> expr_axes_;
  ExprMap aliases_;
};

std::vector<ExprId> roots_of(const Stmt& stmt);
Size size_over(const std::vector<AxisId>& axes);

template <typename F>
void Source::for_each_need(ExprId id, F&& f) const {
  if (const ExprId instead = alias_of(id); instead != id) return f(instead);
  const Expr& e = builder_[id];
  if (e.kind == ExprKind::ref) {
    if (const Let* let = let_of(e.id)) f(let->expr);
    return;
  }
  for_each_operand(e, f);
}

template <typename F>
void Source::walk(const std::vector<ExprId>& roots, F&& f) const {
  std::vector<bool> seen(kernel().exprs.size());
  std::vector<ExprId> stack = roots;
  while (!stack.empty()) {
    const ExprId id = stack.back();
    stack.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    if (f(id)) for_each_need(id, [&](ExprId need) { stack.push_back(need); });
  }
}

}  // namespace cermet::ir
