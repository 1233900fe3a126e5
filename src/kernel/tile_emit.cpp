// SPDX-License-Identifier: MIT
#include "kernel/tile_emit.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernel/rebuild.h"

namespace cermet::ir {

namespace {

Kernel shell_of(const Kernel& kernel) {
  Kernel shell;
  shell.name = kernel.name;
  shell.params = kernel.params;
  shell.axes = kernel.axes;
  shell.stride_count = kernel.stride_count;
  return shell;
}

}  // namespace

Emitter::Emitter(Source& source) : source_(source), to_(shell_of(source.kernel())) {}

Emitter::Emitter(Source& source, Kernel start) : source_(source), to_(std::move(start)) {}

std::vector<ExprId> Emitter::open_chunk(const std::string& entry,
                                        const std::vector<GridDim>& dims) {
  Size grid;
  for (const GridDim& dim : dims)
    for (AxisId axis : dim.axes)
      grid.terms.push_back({axis, axis == dim.axes.back() ? dim.tile : 1});
  const AxisId item = to_.axis("item", false);
  levels_.push_back(
      {.loop = {.kind = ForKind::chunk, .axes = {item}, .grid = grid, .entry = entry}});
  std::vector<ExprId> indices(dims.size());
  ExprId rest = to_.axis_ref(item);
  for (size_t i = dims.size(); i-- > 0;) {
    if (i == 0) {
      indices[i] = rest;
      break;
    }
    const ExprId count = tiles_of(dims[i]);
    indices[i] = let(to_.rem(rest, count));
    rest = let(to_.div(rest, count));
  }
  return indices;
}

ExprId Emitter::open_items(const std::string& entry, int64_t count) {
  const AxisId item = to_.axis("item", false);
  levels_.push_back(
      {.loop = {.kind = ForKind::chunk, .axes = {item}, .grid = {count, {}}, .entry = entry}});
  return to_.axis_ref(item);
}

std::pair<ExprId, ExprId> Emitter::open_turns(const std::string& entry, int64_t count,
                                              std::vector<SizeTerm> grid, int64_t least) {
  const ExprId first = open_items(entry, count);
  levels_.back().loop.grid.terms = std::move(grid);
  levels_.back().loop.turn = count;
  levels_.back().loop.least = least;
  return span_from(first);
}

std::pair<ExprId, ExprId> Emitter::open_span(const std::string& entry, const GridDim& dim) {
  return span_from(open_chunk(entry, {dim})[0]);
}

std::pair<ExprId, ExprId> Emitter::span_from(ExprId first) {
  const AxisId past = to_.axis("past", false);
  levels_.back().loop.axes.push_back(past);
  return {first, to_.axis_ref(past)};
}

AxisId Emitter::open_loop(ForKind kind, ExprId begin, ExprId end, const std::string& name) {
  const AxisId variable = to_.axis(name, false);
  const AxisSet axes = levels_.back().axes;
  levels_.push_back(
      {.loop = {.kind = kind, .axes = {variable}, .begin = begin, .end = end}, .axes = axes});
  return variable;
}

AxisId Emitter::open_over(ForKind kind, const std::vector<AxisId>& axes, ExprId begin, ExprId end) {
  const std::string name = axes.empty() ? "" : source_.kernel().axes[axes.back()].name;
  const AxisId variable = open_loop(kind, begin, end, name);
  bind(axes, to_.axis_ref(variable));
  return variable;
}

AxisId Emitter::open_whole(ForKind kind, const std::vector<AxisId>& axes) {
  return open_over(kind, axes, integer(0), extent_of(axes));
}

void Emitter::close() {
  Level level = std::move(levels_.back());
  levels_.pop_back();
  level.loop.body = std::move(level.body);
  std::vector<Stmt>& around = levels_.empty() ? to_.kernel().body : levels_.back().body;
  around.push_back(std::move(level.loop));
}

void Emitter::bind(AxisId axis, ExprId index) {
  levels_.back().axes |= axis_bit(axis);
  define(source_.builder().axis_ref(axis), index);
}

void Emitter::bind(const std::vector<AxisId>& axes, ExprId flat) {
  for (size_t i = axes.size(); i-- > 1;) {
    const ExprId extent = to_.extent(axes[i]);
    bind(axes[i], let(to_.rem(flat, extent)));
    flat = let(to_.div(flat, extent));
  }
  if (!axes.empty()) bind(axes[0], flat);
}

void Emitter::bind_again(const std::vector<AxisId>& axes, ExprId flat) {
  levels_.back().made.clear();
  bind(axes, flat);
}

void Emitter::bind_around(std::span<const AxisId> axes, ExprId flat) {
  AxisSet set = 0;
  for (AxisId axis : axes) set |= axis_bit(axis);
  const size_t level = level_of(source_.builder().axis_ref(axes[0]));
  for (size_t i = level; i < levels_.size(); ++i)
    std::erase_if(levels_[i].made,
                  [&](const auto& made) { return (source_.axes(made.first) & set) != 0; });
  const auto bind_at = [&](AxisId axis, ExprId index) {
    levels_[level].made[source_.builder().axis_ref(axis)] = index;
  };
  flat = let_at(level, flat, "");
  for (size_t i = axes.size(); i-- > 1;) {
    const ExprId extent = to_.extent(axes[i]);
    bind_at(axes[i], let_at(level, to_.rem(flat, extent), ""));
    flat = let_at(level, to_.div(flat, extent), "");
  }
  bind_at(axes[0], flat);
}

void Emitter::define(ExprId id, ExprId made) { levels_.back().made[id] = made; }

size_t Emitter::level_of(ExprId id) {
  const AxisSet axes = source_.axes(id);
  if ((axes & kStateAxis) != 0) return levels_.size() - 1;
  for (size_t i = 0; i < levels_.size(); ++i)
    if ((axes & ~levels_[i].axes) == 0) return i;
  CERMET_INTERNAL_CHECK(false, "kernel '{}': an expression is out of reach of its axes",
                        source_.kernel().name);
}

std::unordered_map<ExprId, ExprId>& Emitter::made_of(ExprId id) {
  if ((source_.axes(id) & kStateAxis) != 0) return in_fold_;
  return levels_[level_of(id)].made;
}

bool Emitter::is_plain(ExprId made) const {
  switch (to_[made].kind) {
    case ExprKind::op:
    case ExprKind::rare:
    case ExprKind::load: return false;
    case ExprKind::get: return is_plain(to_[made].operands[0]);
    default: return true;
  }
}

ExprId Emitter::let_at(size_t level, ExprId made, const std::string& name) {
  // Locals change from statement to statement; all else is the same throughout an iteration.
  const bool fixed = to_[made].kind != ExprKind::load;
  std::unordered_map<ExprId, ExprId>& named = levels_[level].named;
  if (const auto it = named.find(made); fixed && it != named.end()) return it->second;
  const ValueId value = to_.value({to_.dtype(made)}, name);
  levels_[level].body.push_back(Let{value, made});
  const ExprId ref = to_.ref(value);
  named.emplace(made, ref);
  return ref;
}

ExprId Emitter::let(ExprId made, const std::string& name) {
  return is_plain(made) ? made : let_at(levels_.size() - 1, made, name);
}

ExprId Emitter::reach(ExprId id, size_t level) {
  const size_t own = level_of(id);
  ExprId& made = made_of(id).at(id);
  if (own < level && !is_plain(made)) made = let_at(own, made, "");
  return made;
}

void Emitter::build(ExprId id) {
  const size_t level = level_of(id);
  const Expr& source = source_[id];
  ExprId made = kNone;
  if (const ExprId instead = source_.alias_of(id); instead != id) {
    made = reach(instead, level);
  } else if (source.kind == ExprKind::state && !states_.empty()) {
    made = states_[source.id];
  } else if (source.kind == ExprKind::other && !others_.empty()) {
    made = others_[source.id];
  } else if (source.kind == ExprKind::ref) {
    const Let* let = source_.let_of(source.id);
    CERMET_INTERNAL_CHECK(let != nullptr, "kernel '{}': value {} is read before it is made",
                          source_.kernel().name, source.id);
    made = reach(let->expr, level);
    if (!is_plain(made)) made = let_at(level, made, source_.kernel().values[source.id].name);
  } else {
    Expr expr = source;
    for_each_operand(expr, [&](ExprId& operand) { operand = reach(operand, level); });
    made = to_.intern(std::move(expr));
  }
  made_of(id)[id] = made;
}

ExprId Emitter::expr(ExprId root) {
  if (root == kNone) return kNone;
  std::vector<ExprId> stack = {root};
  while (!stack.empty()) {
    const ExprId id = stack.back();
    if (made_of(id).contains(id)) {
      stack.pop_back();
      continue;
    }
    const size_t below = stack.size();
    source_.for_each_need(id, [&](ExprId need) {
      if (!made_of(need).contains(need)) stack.push_back(need);
    });
    if (stack.size() != below) {
      std::reverse(stack.begin() + static_cast<ptrdiff_t>(below), stack.end());
      continue;
    }
    stack.pop_back();
    build(id);
  }
  return reach(root, levels_.size() - 1);
}

Index Emitter::index(const Index& index) {
  Index result;
  for (const IndexTerm& term : index) result.push_back({expr(term.expr), term.stride});
  return result;
}

void Emitter::name(ExprId id) {
  expr(id);
  ExprId& made = made_of(id).at(id);
  if (!is_plain(made)) made = let_at(level_of(id), made, "");
}

void Emitter::set_states(std::span<const ExprId> states, std::span<const ExprId> others) {
  states_.assign(states.begin(), states.end());
  others_.assign(others.begin(), others.end());
  in_fold_.clear();
}

void Emitter::clear_states() {
  states_.clear();
  others_.clear();
  in_fold_.clear();
}

std::vector<FoldState> Emitter::fold_states(const std::vector<FoldState>& states, bool with_step) {
  clear_states();
  std::vector<FoldState> made;
  for (const FoldState& s : states)
    made.push_back({s.dtype, expr(s.init), with_step ? expr(s.step) : kNone, expr(s.merge)});
  in_fold_.clear();
  return made;
}

ExprId part_of(Builder& b, ValueId fold, const std::vector<FoldState>& states, size_t s) {
  return states.size() == 1 ? b.ref(fold) : b.get(static_cast<int>(s), b.ref(fold));
}

ValueId Emitter::merged(const Fold& piece, AxisId pieces) {
  std::vector<FoldState> states = piece.states;
  ExprMap parts;
  for (size_t s = 0; s < states.size(); ++s)
    parts[to_.other(static_cast<int>(s), states[s].dtype)] = part_of(to_, piece.value, states, s);
  std::vector<Dtype> dtypes;
  for (FoldState& state : states) {
    state.step = rebuild_expr(to_, to_.kernel(), state.merge, parts);
    dtypes.push_back(state.dtype);
  }
  const ValueId value = to_.value(std::move(dtypes));
  append(Fold{value, {pieces}, Emit::last, Order::serial, std::move(states)});
  return value;
}

std::pair<ExprId, ExprId> Emitter::bounds(ExprId index, int64_t tile, ExprId total) {
  const ExprId begin = let(to_.mul(index, integer(tile)));
  return {begin, let(to_.min(to_.add(begin, integer(tile)), total))};
}

ExprId Emitter::extent_of(const std::vector<AxisId>& axes) {
  ExprId product = kNone;
  for (AxisId axis : axes) {
    const ExprId extent = to_.extent(axis);
    product = product == kNone ? extent : to_.mul(product, extent);
  }
  if (product == kNone) return integer(1);
  return is_plain(product) ? product : let_at(0, product, "");
}

ExprId Emitter::ceil_div(ExprId total, int64_t tile) {
  if (tile == 1) return total;
  return to_.div(to_.add(total, integer(tile - 1)), integer(tile));
}

ExprId Emitter::tiles_of(const GridDim& dim) {
  ExprId product = kNone;
  for (AxisId axis : dim.axes) {
    const ExprId tiles = ceil_div(to_.extent(axis), axis == dim.axes.back() ? dim.tile : 1);
    product = product == kNone ? tiles : to_.mul(product, tiles);
  }
  return product == kNone ? integer(1) : let(product);
}

}  // namespace cermet::ir
