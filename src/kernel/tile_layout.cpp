// SPDX-License-Identifier: MIT
// Which axis is contiguous where, and which is folded in half.
#include <algorithm>
#include <map>

#include "kernel/tile_forms.h"

namespace cermet::ir {

namespace {

// f(id) for each load that the group's tasks need.
template <typename F>
void for_each_load(Source& source, const Plan& plan, const Group& group, F&& f) {
  std::vector<ExprId> roots;
  for (int number : group.tasks)
    for (ExprId root : roots_of(plan.tasks[number])) roots.push_back(root);
  std::vector<ExprId> loads;
  source.walk(roots, [&](ExprId id) {
    if (source[id].kind == ExprKind::load && source.alias_of(id) == id) loads.push_back(id);
    return true;
  });
  std::ranges::sort(loads);
  for (ExprId id : loads) f(id);
}

}  // namespace

const Index* written_index(const Stmt& stmt) {
  if (const Store* store = std::get_if<Store>(&stmt)) return &store->index;
  if (const Update* update = std::get_if<Update>(&stmt)) return &update->index;
  return nullptr;
}

namespace {

// Elements apart, of parts of some that lie side by side, as of complex ones.
constexpr uint64_t kNear = 16;

// The axis that alone forms the term, and how many elements apart its places are; 0: unknown, or far.
std::pair<AxisId, uint64_t> near_axis(const Source& source, const IndexTerm& term) {
  if (term.stride != kUnit) return {kNone, 0};
  const Expr* e = &source[source.behind(term.expr)];
  uint64_t apart = 1;
  if (e->kind == ExprKind::op && e->code == Code::mul &&
      source[e->operands[1]].kind == ExprKind::constant) {
    apart = source[e->operands[1]].bits;
    e = &source[source.behind(e->operands[0])];
  }
  if (e->kind != ExprKind::axis || apart > kNear) return {kNone, 0};
  return {e->id, apart};
}

bool is_near(const Source& source, const Index& index, AxisId axis) {
  return std::ranges::any_of(
      index, [&](const IndexTerm& term) { return near_axis(source, term).first == axis; });
}

}  // namespace

AxisId unit_axis(Source& source, const Index& index) {
  AxisId nearest = kNone;
  uint64_t least = kNear + 1;
  for (const IndexTerm& term : index) {
    const auto [axis, apart] = near_axis(source, term);
    if (axis == kNone || apart >= least) continue;
    nearest = axis;
    least = apart;
  }
  return nearest;
}

AxisId lane_axis(Source& source, const Plan& plan, const Group& group,
                 const std::vector<AxisId>& among) {
  std::map<AxisId, size_t> votes;
  for (int number : group.tasks)
    if (const Index* index = written_index(*plan.tasks[number].line.stmt))
      votes[unit_axis(source, *index)] += size_t{1} << 20;
  for_each_load(source, plan, group,
                [&](ExprId id) { ++votes[unit_axis(source, source[id].index)]; });
  AxisId best = among.back();
  for (size_t i = among.size(); i-- > 0;)
    if (votes[among[i]] > votes[best]) best = among[i];
  return best;
}

std::optional<int32_t> row_stride(Source& source, const Index& index, AxisId unit, AxisId row) {
  const AxisSet both = axis_bit(unit) | axis_bit(row);
  std::optional<int32_t> stride;
  int units = 0;
  for (const IndexTerm& term : index) {
    const Expr& e = source[source.behind(term.expr)];
    const auto is = [&](AxisId axis) { return e.kind == ExprKind::axis && e.id == axis; };
    if (is(unit) && term.stride == kUnit) ++units;
    else if (is(row) && term.stride != kUnit && !stride) stride = term.stride;
    else if ((source.axes(term.expr) & both) != 0) return {};
  }
  return units == 1 ? stride : std::nullopt;
}

Crossing crossing_of(Source& source, const Plan& plan, const Group& group, AxisId lane) {
  std::map<AxisId, std::vector<ExprId>> found;
  const AxisSet range = set_of(group.axes);
  for_each_load(source, plan, group, [&](ExprId id) {
    const AxisId unit = unit_axis(source, source[id].index);
    if (unit == kNone || is_near(source, source[id].index, lane)) return;
    if ((range & axis_bit(unit)) == 0) return;
    if ((source.axes(source[id].index) & axis_bit(lane)) == 0) return;
    found[unit].push_back(id);
  });
  Crossing crossing;
  for (auto& [axis, loads] : found)
    if (loads.size() > crossing.loads.size()) crossing = {axis, std::move(loads)};
  return crossing;
}

Halves halves_of(Source& source, const Plan& plan, const Group& group, AxisId lane) {
  std::vector<ExprId> roots;
  std::vector<int32_t> stored, read;
  for (int number : group.tasks) {
    const Task& task = plan.tasks[number];
    if (task.kind != TaskKind::store) return {};
    stored.push_back(std::get<Store>(*task.line.stmt).buffer.id);
    for (const Read& r : task.reads) read.push_back(r.buffer.id);
    for (ExprId root : roots_of(task)) roots.push_back(root);
  }
  if (std::ranges::find_first_of(stored, read) != stored.end()) return {};
  const auto is_op = [&](ExprId id, Code code) {
    return source[id].kind == ExprKind::op && source[id].code == code;
  };
  const ExprId axis = source.builder().axis_ref(lane);
  Halves found;
  ExprId place = kNone;
  source.walk(roots, [&](ExprId id) {
    const Expr& e = source[id];
    if (!is_op(id, Code::select) || e.operands[2] != axis) return found.half == kNone;
    const ExprId upper = e.operands[0], lower = e.operands[1];
    if (!is_op(upper, Code::le) || !is_op(lower, Code::sub)) return true;
    const ExprId bound = source[upper].operands[0];
    if (source.axes(bound) == 0 && source[upper].operands[1] == axis &&
        source[lower].operands == Operands{axis, bound}) {
      found.half = bound;
      place = id;
    }
    return found.half == kNone;
  });
  const auto is_second = [&](ExprId id) {
    const Operands& terms = source[id].operands;
    return is_op(id, Code::add) &&
           (terms == Operands{place, found.half} || terms == Operands{found.half, place});
  };
  if (found.half == kNone) return found;
  source.walk(roots, [&](ExprId id) {
    const Expr& e = source[id];
    if (is_op(id, Code::lt) && source.axes(e.operands[1]) == 0 && is_second(e.operands[0])) {
      found.inside = id;
      found.total = e.operands[1];
    }
    return found.inside == kNone;
  });
  return found;
}

}  // namespace cermet::ir
