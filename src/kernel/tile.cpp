// SPDX-License-Identifier: MIT
#include "kernel/tile.h"

#include <algorithm>

#include "kernel/tile_forms.h"
#include "kernel/tile_product.h"

namespace cermet::ir {

namespace {

std::string_view form_of(const Source& source, const Plan& plan, const Group& group) {
  switch (group.kind) {
    case GroupKind::map: break;
    case GroupKind::full: return "full";
    case GroupKind::column: return "column";
    case GroupKind::update: return "scatter";
    case GroupKind::row:
      if (!group.columns.empty()) return "row_column";
      for (int number : group.tasks) {
        const Fold* fold = std::get_if<Fold>(plan.tasks[number].line.stmt);
        if (fold != nullptr && fold->emit == Emit::each) return "scan";
      }
      return "row";
  }
  static_cast<void>(source);
  return "map";
}

// Some load's place depends on what another load gave.
bool gathers(Source& source) {
  for (ExprId id = 0; id < static_cast<ExprId>(source.kernel().exprs.size()); ++id) {
    std::vector<ExprId> places;
    if (source[id].kind == ExprKind::load)
      for (const IndexTerm& term : source[id].index) places.push_back(term.expr);
    bool loaded = false;
    source.walk(places, [&](ExprId part) {
      loaded |= source[part].kind == ExprKind::load;
      return !loaded;
    });
    if (loaded) return true;
  }
  return false;
}

}  // namespace

bool has_contract(const Kernel& kernel) {
  bool found = false;
  for_each_stmt(kernel.body,
                [&](const Stmt& stmt) { found |= std::holds_alternative<Contract>(stmt); });
  return found;
}

Kernel tile(const Kernel& kernel, const TargetFacts& target) {
  if (has_contract(kernel)) return tile_gemm(kernel, target);
  Source source(kernel);
  const Plan plan = plan_of(source);
  return write_loops(source, plan, target);
}

std::string_view form_of(const Kernel& kernel, const TargetFacts& target) {
  if (has_contract(kernel)) return scheme_of_chain(kernel, target) ? "attention" : "gemm";
  Source source(kernel);
  const Plan plan = plan_of(source);
  for (const Group& group : plan.groups)
    if (const std::string_view form = form_of(source, plan, group); form != "map") return form;
  if (gathers(source)) return "gather";
  for (const Group& group : plan.groups) {
    if (group.axes.empty()) continue;
    const AxisId lane = lane_axis(source, plan, group, group.axes);
    if (crossing_of(source, plan, group, lane).axis != kNone) return "transpose";
  }
  return "map";
}

}  // namespace cermet::ir
