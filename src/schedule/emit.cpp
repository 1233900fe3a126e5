// SPDX-License-Identifier: MIT
#include "schedule/emit.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "codegen/target.h"
#include "kernel/walk.h"
#include "schedule/emitter.h"

namespace cermet::schedule {

namespace {

// What becomes of the axes meanwhile is undone.
struct Trial {
  AxisTable& axes;
  AxisTable::Mark mark = axes.mark();
  ~Trial() { axes.roll_back(mark); }
};

// All places of axes in one pass over the others, so that what they share is read and made once.
std::optional<EmittedKernel> unrolled_region(Regions& regions, int region, Collapse collapse,
                                             bool are_short, size_t most) {
  const Trial trial{regions.axes};
  std::vector<AxisId> axes = std::move(collapse.across);
  // With the axes that are walked as part of them.
  for (size_t i = axes.size(); i-- > 0;) {
    const auto outer =
        std::ranges::find(collapse.into, axes[i], &std::pair<const AxisId, AxisId>::second);
    if (outer == collapse.into.end()) continue;
    axes.insert(axes.begin() + static_cast<ptrdiff_t>(i), outer->first);
    collapse.into.erase(outer);
    ++i;
  }
  for (const AxisId axis : axes) regions.axes.fix(axis, 0);
  const size_t entries = regions.axes.mark().entries;
  auto made = Emitter(regions, region, {.into = std::move(collapse.into)})
                  .emit_unrolled(axes, are_short, most);
  // Where axes stand, a reshape may cut others: they are none of those that the kernel has.
  if (regions.axes.mark().entries != entries) made.reset();
  return made;
}

// What a kernel reads and makes at length.
size_t dear_parts(const ir::Kernel& kernel) {
  return std::ranges::count_if(kernel.exprs, [](const ir::Expr& e) {
    return e.kind == ir::ExprKind::load ||
           (e.kind == ir::ExprKind::op && (is_math(e.code) || e.code == ir::Code::threefry));
  });
}

// Elements of all parts that are joined in one pass over one of them, if they share what they are made of, as the
// halves of rotated features do.
std::optional<EmittedKernel> joined_parts(Regions& regions, int region, const Collapse& collapse,
                                          std::pair<AxisId, Dim> parts,
                                          const EmittedKernel& plain) {
  const auto [axis, size] = std::move(parts);
  const auto is_part = [&](const auto& axes) { return axes.second == axis; };
  if (!collapse.flat.empty() || std::ranges::any_of(collapse.into, is_part)) return {};
  const Trial trial{regions.axes};
  const AxisId outer = regions.axes.split(axis, size).first;
  auto joined = unrolled_region(regions, region, {.into = collapse.into, .across = {outer}}, false,
                                2 * plain.ir->exprs.size());
  if (joined && dear_parts(*joined->ir) >= dear_parts(*plain.ir)) joined.reset();
  return joined;
}

// With mask registers.
bool has_wide_vectors() { return cpu_target().facts().vector_bytes >= 64; }

// Elements of a row that a vector is worth, though they do not fill it.
int64_t few_in_row() { return has_wide_vectors() ? 6 : 9; }

// The same, of rows that indices tell: they are found once for a row, not for each element.
int64_t few_in_picked_row() { return has_wide_vectors() ? 4 : 3; }

// Whether a part of a vector of any array is loaded and stored as fast as all of it.
bool has_masks(const ir::Kernel& kernel) {
  return has_wide_vectors() || std::ranges::all_of(kernel.params, [](const ir::Param& param) {
           return param.kind != ir::ParamKind::buffer || size_of(param.dtype) >= 4;
         });
}

bool is_cast(const ir::Expr& e, Dtype dtype) {
  return e.kind == ir::ExprKind::op && e.code == ir::Code::cast && e.dtype == dtype;
}

// Of elements as they are; halves are wide in between.
bool is_copy(const ir::Kernel& kernel) {
  const auto loaded = [&](ir::ExprId id) {
    const ir::Expr& e = kernel[id];
    if (!is_half(e.dtype) || !is_cast(e, e.dtype)) return id;
    const ir::Expr& wide = kernel[e.operands[0]];
    const bool is_same = is_cast(wide, Dtype::float32) && kernel[wide.operands[0]].dtype == e.dtype;
    return is_same ? wide.operands[0] : id;
  };
  const auto copies = [&](const ir::Stmt& stmt) {
    const auto* store = std::get_if<ir::Store>(&stmt);
    if (store == nullptr || store->mask != ir::kNone) return false;
    const ir::Expr& e = kernel[loaded(store->value)];
    return e.kind == ir::ExprKind::load && e.operands[0] == ir::kNone;
  };
  return std::ranges::all_of(kernel.body, [&](const ir::Stmt& stmt) {
    const auto* stage = std::get_if<ir::For>(&stmt);
    return stage != nullptr && std::ranges::all_of(stage->body, copies);
  });
}

// Whether loaded indices tell which rows, along the innermost axis, are loaded.
bool picks_rows(const ir::Kernel& kernel, ir::AxisId innermost) {
  const auto is_along = [&](const ir::IndexTerm& term) {
    const ir::Expr& e = kernel[term.expr];
    return term.stride == ir::kUnit && e.kind == ir::ExprKind::axis && e.id == innermost;
  };
  const auto is_picked = [&](const ir::IndexTerm& term) {
    bool loads = false, moves = false;
    std::set<ir::ExprId> seen;
    const auto visit = [&](const auto& self, ir::ExprId id) -> void {
      if (!seen.insert(id).second) return;
      const ir::Expr& e = kernel[id];
      loads |= e.kind == ir::ExprKind::load;
      moves |= e.kind == ir::ExprKind::axis && e.id == innermost;
      ir::for_each_operand(e, [&](ir::ExprId part) { self(self, part); });
    };
    visit(visit, term.expr);
    return loads && !moves;
  };
  return std::ranges::any_of(kernel.exprs, [&](const ir::Expr& e) {
    return e.kind == ir::ExprKind::load && std::ranges::any_of(e.index, is_along) &&
           std::ranges::any_of(e.index, is_picked);
  });
}

}  // namespace

Location locate(const Regions& regions, Id id) {
  const PlanNode& n = regions.graph.nodes[id];
  if (!regions.is_view[id]) return {id, own_layout(n), regions.stored_dtype(id)};
  Location location = locate(regions, n.inputs[0]);
  const auto view = view_layout(regions.graph, id, location.layout);
  CERMET_INTERNAL_CHECK(view.has_value(), "{} is no view", n.row().name.value);
  location.layout = *view;
  if (is_other_dtype(regions.graph, id)) location.dtype = n.node->dtype;
  return location;
}

EmittedKernel emit_region(Regions& regions, int region) {
  using Vectors = KernelAxes::Vectors;
  Emitter trial(regions, region, {});
  EmittedKernel plain = trial.emit();
  const bool copies = is_copy(*plain.ir);
  if (trial.are_short_rows(few_in_picked_row()) && picks_rows(*plain.ir, trial.innermost()))
    return Emitter(regions, region, trial.find_collapse(Vectors::along, *plain.ir)).emit();
  Collapse collapse = trial.find_collapse(copies ? Vectors::copied : Vectors::any, *plain.ir);
  if (const auto parts = trial.even_parts(); parts && collapse.across.empty() && trial.is_map())
    if (auto joined = joined_parts(regions, region, collapse, *parts, plain))
      return *std::move(joined);
  constexpr int kFewOps = 128;  // written out although its places share nothing
  // As many as choices among arrays take, and some more: beyond, it takes long to compile.
  constexpr size_t kSomeExpressions = 320;
  Dim ops = regions.regions[region].ops;
  if (const auto stacked = trial.find_stacked(collapse);
      stacked && ops * regions.axes.size(*stacked) <= kFewOps) {
    if (auto rows = unrolled_region(regions, region, {.into = collapse.into, .across = {*stacked}},
                                    false, kSomeExpressions))
      return *std::move(rows);
  }
  for (const AxisId axis : collapse.across) ops *= regions.axes.size(axis);
  const bool is_cheap = !collapse.across.empty() && (collapse.is_shared || ops <= kFewOps);
  const bool are_far = trial.are_far_rows(few_in_row());
  const bool are_rows = is_cheap && are_far && !copies && has_masks(*plain.ir);
  if (is_cheap && !are_rows) {
    const size_t most = std::max(kSomeExpressions, 2 * plain.ir->exprs.size());
    if (auto unrolled = unrolled_region(regions, region, collapse, true, most))
      return *std::move(unrolled);
  }
  if (collapse.across.size() > 1) collapse = trial.find_collapse(Vectors::on, *plain.ir);
  if (are_rows || (are_far && !collapse.flat.empty()))
    collapse = trial.find_collapse(Vectors::along, *plain.ir);
  const bool is_plain = collapse.into.empty() && collapse.across.empty() &&
                        collapse.order.empty() && !collapse.is_along;
  if (is_plain) return plain;
  return Emitter(regions, region, std::move(collapse)).emit();
}

}  // namespace cermet::schedule
