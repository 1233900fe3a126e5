// SPDX-License-Identifier: MIT
#include "kernel/tile_source.h"

#include "base/error.h"

namespace cermet::ir {

AxisSet set_of(const std::vector<AxisId>& axes) {
  AxisSet set = 0;
  for (AxisId axis : axes) set |= axis_bit(axis);
  return set;
}

std::vector<ExprId> roots_of(const Stmt& stmt) {
  std::vector<ExprId> roots;
  for_each_expr(stmt, [&](ExprId id) { roots.push_back(id); });
  return roots;
}

Size size_over(const std::vector<AxisId>& axes) {
  Size size;
  for (AxisId axis : axes) size.terms.push_back({axis, 1});
  return size;
}

Source::Source(const Kernel& kernel)
    : builder_(kernel),
      value_axes_(kernel.values.size()),
      lets_(kernel.values.size()),
      let_orders_(kernel.values.size()),
      anchored_(kernel.values.size()),
      written_(kernel.params.size()) {
  CERMET_INTERNAL_CHECK(kernel.axes.size() <= kMaxAxes, "a kernel of {} axes; the tiler takes {}",
                        kernel.axes.size(), kMaxAxes);
  for (const Stmt& stmt : builder_.kernel().body) {
    const For& stage = std::get<For>(stmt);
    for (const Stmt& inner : stage.body)
      lines_.push_back({&inner, stage.axes, static_cast<int>(lines_.size())});
  }
  for (const Param& p : kernel.params)
    in_place_ |= p.kind == ParamKind::buffer && p.access == Access::inout;
  for (const Line& line : lines_) learn(line);
}

void Source::learn(const Line& line) {
  AxisSet axes = 0;
  for (ExprId root : roots_of(*line.stmt)) axes |= this->axes(root);
  if (const ValueId* value = value_of(*line.stmt)) value_axes_[*value] = axes & ~kStateAxis;
  if (const Let* let = std::get_if<Let>(line.stmt)) {
    lets_[let->value] = let;
    let_orders_[let->value] = line.order;
  }
  if (const Fold* fold = std::get_if<Fold>(line.stmt)) {
    AxisSet& own = value_axes_[fold->value];
    own = fold->emit == Emit::each ? own | set_of(fold->axes) : own & ~set_of(fold->axes);
  }
  if (const Contract* contract = std::get_if<Contract>(line.stmt))
    value_axes_[contract->value] = set_of(line.stage) & ~set_of(contract->axes);
  if (const Store* store = std::get_if<Store>(line.stmt)) written_[store->buffer.id] = true;
  if (const Update* update = std::get_if<Update>(line.stmt)) written_[update->buffer.id] = true;
}

const Let* Source::let_of(ValueId value) const { return anchored_[value] ? nullptr : lets_[value]; }

void Source::alias(ExprId id, ExprId instead) {
  aliases_[id] = instead;
  axes(instead);
}

AxisSet Source::own_axes(ExprId id) const {
  const Expr& e = builder_[id];
  if (e.kind == ExprKind::axis) return axis_bit(e.id);
  if (e.kind == ExprKind::state || e.kind == ExprKind::other) return kStateAxis;
  if (e.kind == ExprKind::ref) return value_axes_[e.id];
  return 0;
}

AxisSet Source::axes(ExprId root) {
  expr_axes_.resize(kernel().exprs.size());
  std::vector<ExprId> stack = {root};
  while (!stack.empty()) {
    const ExprId id = stack.back();
    if (expr_axes_[id]) {
      stack.pop_back();
      continue;
    }
    const size_t below = stack.size();
    AxisSet set = own_axes(id);
    for_each_operand(builder_[id], [&](ExprId operand) {
      if (!expr_axes_[operand]) return stack.push_back(operand);
      set |= *expr_axes_[operand];
    });
    if (stack.size() != below) continue;
    stack.pop_back();
    expr_axes_[id] = set;
  }
  return *expr_axes_[root];
}

AxisSet Source::axes(const Index& index) {
  AxisSet set = 0;
  for (const IndexTerm& term : index) set |= axes(term.expr);
  return set;
}

ExprId Source::behind(ExprId id) const {
  for (;;) {
    if (const ExprId instead = alias_of(id); instead != id) return instead;
    const Expr& e = builder_[id];
    const Let* let = e.kind == ExprKind::ref ? let_of(e.id) : nullptr;
    if (let == nullptr) return id;
    id = let->expr;
  }
}

ExprId Source::alias_of(ExprId id) const {
  const auto it = aliases_.find(id);
  return it == aliases_.end() ? id : it->second;
}

int Source::step_cost(ExprId id) const {
  const Expr& e = builder_[id];
  switch (e.kind) {
    case ExprKind::op:
      if (is_math(e.code)) return 10;
      if (e.code == Code::div && is_floating(e.dtype))
        return 6;  // by one number: twelve instructions
      return e.code == Code::div || e.code == Code::rem || e.code == Code::sqrt ? 4 : 1;
    case ExprKind::rare: return 1;
    case ExprKind::load:
      for (const IndexTerm& term : e.index) {
        const ExprKind kind = builder_[behind(term.expr)].kind;
        if (kind == ExprKind::load || kind == ExprKind::op) return 4;
      }
      return 1;
    default: return 0;
  }
}

int Source::cost(ExprId id, AxisSet axes, int limit) {
  int total = 0;
  walk({id}, [&](ExprId part) {
    if (total > limit || (this->axes(part) & axes) == 0) return false;
    total += step_cost(part);
    return true;
  });
  return total;
}

void Source::collect_reads(const std::vector<ExprId>& roots, int order, ValueId let,
                           std::vector<ValueId>& lets, std::vector<Read>& found) {
  std::vector<ExprId> stack = roots;
  std::vector<bool> seen(kernel().exprs.size());
  while (!stack.empty()) {
    const ExprId id = stack.back();
    stack.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    const Expr& e = builder_[id];
    if (e.kind == ExprKind::load && !e.buffer.local && written_[e.buffer.id])
      found.push_back({e.buffer, e.index, axes(e.index), order, let});
    if (e.kind == ExprKind::ref && let_of(e.id) != nullptr) lets.push_back(e.id);
    for_each_operand(e, [&](ExprId operand) { stack.push_back(operand); });
  }
}

std::vector<Read> Source::reads(const Line& line) {
  std::vector<Read> found;
  if (!in_place_) return found;
  std::vector<ValueId> lets;
  collect_reads(roots_of(*line.stmt), line.order, kNone, lets, found);
  std::vector<bool> done(kernel().values.size());
  while (!lets.empty()) {
    const ValueId value = lets.back();
    lets.pop_back();
    if (done[value]) continue;
    done[value] = true;
    collect_reads({lets_[value]->expr}, let_orders_[value], value, lets, found);
  }
  return found;
}

ExprId Source::product_of_extents(const std::vector<AxisId>& axes, size_t from) {
  ExprId product = kNone;
  for (size_t i = from; i < axes.size(); ++i) {
    const ExprId extent = builder_.extent(axes[i]);
    product = product == kNone ? extent : builder_.mul(product, extent);
  }
  return product == kNone ? builder_.integer(Dtype::int64, 1) : product;
}

Index Source::flat_index(const std::vector<AxisId>& axes) {
  Index index;
  for (size_t i = 0; i < axes.size(); ++i) {
    ExprId place = builder_.axis_ref(axes[i]);
    if (i + 1 < axes.size()) place = builder_.mul(place, product_of_extents(axes, i + 1));
    index.push_back({place, kUnit});
  }
  return index;
}

}  // namespace cermet::ir
