// SPDX-License-Identifier: MIT
// How regions read what movement shows them: through it, from memory, or as a copy in their order; and in
// which order they go over their axes.
#include <algorithm>
#include <utility>

#include "schedule/analysis.h"
#include "schedule/region_cutter.h"
#include "schedule/region_spaces.h"

namespace cermet::schedule {

namespace {

constexpr int64_t kManyLanes = 16, kManyTimes = 8;  // of elements that lie apart
constexpr int64_t kFewLines = 9;                    // of a product, which is made without packing
constexpr int64_t kNearby = 4;           // elements so far apart are read by whole vectors
constexpr int64_t kManyElements = 2048;  // whose reading one by one takes longer than a launch

Dim magnitude(const Dim& step) { return step < 0 ? Dim(0) - step : step; }

}  // namespace

// What a step along the axis is in the value's memory.
Dim RegionCutter::step_along(Id id, const Coords& at, AxisId axis) const {
  Dim step = 0;
  for (size_t d = 0; d < at.size(); d++)
    for (const auto& term : at[d].terms)
      if (term.axis == axis) step += term.coefficient * layouts_[id].strides[d];
  return step;
}

// The innermost axis; -1: there is none.
AxisId RegionCutter::lanes_of(const Region& r) const {
  const std::vector<AxisId> axes = r_.axes.normalize(r.axes);
  return axes.empty() ? -1 : axes.back();
}

// What it reorders is made for it alone, of elements that are picked one by one along the innermost axis of
// another array. Where its own innermost axis is that by which they are picked, they lie near each other
// in its order, else they are rows apart.
bool RegionCutter::is_picked_in_order(Id id) {
  const auto is_for_one = [&](Id from) {
    const PlanNode& n = node(from);
    return n.lowering<MoveLowering>() != nullptr && n.kernel < 0 && !n.needed && !n.border &&
           !in_memory_[from] && uses_[from].empty();
  };
  Id from = node(id).inputs[0];
  while (is_for_one(from) && view_if_possible(from)) from = node(from).inputs[0];
  const Shape &own = shape(id), &made = shape(from);
  if (!is_for_one(from) || node(from).inputs.size() < 2 || own.count() != made.count() ||
      is_contiguous(own, layouts_[id]))
    return false;
  int last = own.ndim() - 1;
  while (last > 0 && own[last] == 1) --last;
  const Strides strides = Layout::contiguous(made).strides;
  Coords at(strides.size());
  for (size_t d = 0; d < strides.size(); d++)
    if (strides[d] == layouts_[id].strides[last] && made[static_cast<int>(d)] > 1)
      at[d].terms.push_back({0, 1});
  bool picks = false, by_last = false;
  const PlanNodeView view(r_.graph, from);
  AnalysisContext context(view, [&](int k, const Coords& in, bool) {
    if (k == 0) picks = in.size() > 1 && in.back().expr != ir::kNone;
    else by_last = by_last || !axes_of(in).empty();
  });
  node(from).lowering<MoveLowering>()->pull(context, view, at);
  return picks && by_last;
}

// The region's lanes would read elements that lie apart in memory, as of a matrix's column, or one element for a
// few of them, and these again and again: a copy in order is made first. (Where another of its axes goes
// along memory, it reads turned tiles.)
bool RegionCutter::is_read_apart_again(Id id, const Use& use) {
  bool is_near = false, is_spread = false;
  for (int d = 0; d < shape(id).ndim(); d++) {
    const Dim& stride = layouts_[id].strides[static_cast<size_t>(d)];
    is_near = is_near || stride == 1 || stride == -1;
    is_spread = is_spread || stride == 0;
  }
  if (is_near && !is_spread) return false;
  const Region& r = region(r_.find(use.region));
  const std::vector<AxisId> axes = r_.axes.normalize(r.axes);
  if (max_ops_ == 1 || r.kernel >= 0 || r.contract >= 0 || r.update >= 0 || use.masked ||
      axes.empty() || !view_if_possible(id))
    return false;
  const Coords at = r_.axes.normalize(use.at);
  const std::vector<AxisId> own = axes_of(at);
  const auto has = [&](AxisId axis) { return std::ranges::find(own, axis) != own.end(); };
  if (!is_affine(at) || !has(axes.back()) || own.size() == axes.size()) return false;
  const auto step = [&](AxisId axis) { return step_along(id, at, axis); };
  const auto goes_along = [&](AxisId axis) { return step(axis) == 1 || step(axis) == -1; };
  const Dim lanes = r_.axes.size(axes.back());
  if (step(axes.back()) == 0) {
    const AxisId next = axes.size() > 1 ? axes[axes.size() - 2] : axes.back();
    if (lanes >= kManyLanes || !has(next) || step(next) == 0 ||
        lanes * r_.axes.size(next) < kManyLanes)
      return false;
  } else if (lanes < kManyLanes || std::ranges::any_of(own, goes_along)) {
    return false;
  }
  Dim times = 1;
  for (const AxisId axis : axes)
    if (!has(axis)) times *= r_.axes.size(axis);
  return times >= kManyTimes;
}

// The region would read the value one by one: it goes across memory, and reads no turned tiles.
bool RegionCutter::is_read_across(Id id, const Use& use) {
  const Region& r = region(r_.find(use.region));
  const bool is_map = !folds_or_scans(r) && r.update < 0 && is_affine(r_.axes.normalize(use.at));
  return !is_map && (node(id).leaf || view_if_possible(id)) && is_copied_at_once(id, use) &&
         goes_across(id, use);
}

// The lanes of the region go across memory that others of its axes go along.
bool RegionCutter::goes_across(Id id, const Use& use) {
  const Region& r = region(r_.find(use.region));
  const Coords at = r_.axes.normalize(use.at);
  if (r.kernel >= 0 || r.contract >= 0 || use.masked) return false;
  const AxisId lanes = lanes_of(r);
  std::vector<AxisId> others = axes_of(at);
  if (!contains(others, lanes) || magnitude(step_along(id, at, lanes)) <= kNearby) return false;
  std::erase(others, lanes);
  Dim run = 1;  // elements that follow one another
  const auto goes_on = [&](AxisId axis) { return magnitude(step_along(id, at, axis)) == run; };
  for (auto next = std::ranges::find_if(others, goes_on); next != others.end();
       next = std::ranges::find_if(others, goes_on)) {
    run *= r_.axes.size(*next);
    others.erase(next);
  }
  // Indices may be neighbours, too.
  return run >= kManyLanes || !is_affine(at);
}

// Neither turned tiles nor a product of few rows or columns are read by vectors whose elements lie apart, or go
// backwards: a copy in the order that the value has is.
bool RegionCutter::is_read_apart_across(Id id, const Use& use) {
  const Region& r = region(r_.find(use.region));
  const Coords at = r_.axes.normalize(use.at);
  if (folds_or_scans(r) != (r.contract >= 0) || r.update >= 0 || use.masked || !is_affine(at) ||
      !view_if_possible(id) || !is_copied_at_once(id, use))
    return false;
  const auto step = [&](AxisId axis) { return step_along(id, at, axis); };
  const std::vector<AxisId> own = axes_of(at);
  const AxisId lanes = lanes_of(r);
  const Dim& inner = layouts_[id].strides.back();
  if (std::ranges::any_of(own, [&](AxisId axis) { return step(axis) == 1; }) || inner == 0 ||
      magnitude(inner) > kNearby)
    return false;
  if (r.contract < 0) return magnitude(step(lanes)) > kNearby;
  const Shape& product = shape(r.contract);
  const int rank = product.ndim();
  return use.alone && (product[rank - 1] < kFewLines || product[rank - 2] < kFewLines);
}

bool RegionCutter::folds_or_scans(const Region& r) {
  return !r.row_axes.empty() || !r.column_axes.empty() || !r.scan_axes.empty();
}

// A reshape has left few lanes to a region that folds, scans or updates.
bool RegionCutter::is_cut_short(const Region& r) const {
  const AxisId lanes = lanes_of(r);
  return max_ops_ != 1 && (folds_or_scans(r) || r.update >= 0) && r.kernel < 0 && r.contract < 0 &&
         lanes >= 0 && r_.axes.size(lanes) < kManyLanes;
}

// To copy it takes less than to find its elements one by one.
bool RegionCutter::is_copied_at_once(Id id, const Use& use) {
  constexpr int kFinding = 4;  // times what a copy of an element takes
  const Region& r = region(r_.find(use.region));
  return max_ops_ != 1 && r.kernel < 0 && node(id).kernel < 0 &&
         shape(id).count() >= kManyElements && points_of(r) * kFinding >= shape(id).count();
}

// The region goes over its axes in the order of the value's memory, unless it stores elements of what it folds or
// wants as many in its own order.
bool RegionCutter::turn(Id id, const Use& use) {
  const int into = r_.find(use.region);
  Region& r = region(into);
  const std::vector<AxisId> row = r_.axes.normalize(r.row_axes),
                            column = r_.axes.normalize(r.column_axes);
  const std::vector<AxisId>& folded = row.empty() ? column : row;
  const Coords at = r_.axes.normalize(use.at);
  std::vector<AxisId> axes = r_.axes.normalize(r.axes);
  if (!r.scan_axes.empty() || row.empty() == column.empty() || r.update >= 0 || !is_affine(at) ||
      !without(folded, axes_of(at)).empty() || stores_folded(r, folded) ||
      r.in_order >= shape(id).count() || is_read_in_order(into, id))
    return false;
  const auto is_broadcast = [&](AxisId axis) { return step_along(id, at, axis) == 0; };
  const auto comes_first = [&](AxisId a, AxisId b) {
    if (is_broadcast(a) || is_broadcast(b)) return is_broadcast(a) && !is_broadcast(b);
    return magnitude(step_along(id, at, a)) > magnitude(step_along(id, at, b));
  };
  std::ranges::stable_sort(axes, comes_first);
  const std::vector<AxisId> kept = without(axes, folded), inner = without(axes, kept);
  if (r_.axes.size(axes.back()) < kManyLanes) return false;
  r.row_axes.clear();
  r.column_axes.clear();
  r.large_folds = 0;
  if (contains(inner, axes.back())) {
    r.row_axes = inner;
    r.axes = kept;
    r.axes.insert(r.axes.end(), inner.begin(), inner.end());
    return true;
  }
  r.column_axes = inner;
  r.axes = axes;
  for (const Member& member : r.members) {
    r.large_folds +=
        node(member.node).lowering<FoldLowering>() != nullptr && bytes(member.node) >= kLargeBytes;
  }
  return true;
}

bool RegionCutter::stores_folded(const Region& r, const std::vector<AxisId>& folded) const {
  return std::ranges::any_of(r.members, [&](const Member& member) {
    const std::vector<AxisId> own = axes_of(r_.axes.normalize(member.at));
    return contains(r.stored, member.node) &&
           std::ranges::any_of(own, [&](AxisId axis) { return contains(folded, axis); });
  });
}

// Of what is still to be placed, nodes before this one: whether the reader wants as many elements in its order.
bool RegionCutter::is_read_in_order(int reader, Id before) {
  const AxisId lanes = lanes_of(region(reader));
  for (Id id = 0; id < before; id++) {
    if (uses_[id].empty() || shape(id).count() < shape(before).count()) continue;
    for (const Use& use : uses_[id]) {
      const Coords at = r_.axes.normalize(use.at);
      if (r_.find(use.region) == reader && is_affine(at) &&
          magnitude(step_along(id, at, lanes)) == 1)
        return true;
    }
  }
  return false;
}

// The region reads the value from memory: perhaps in its order.
void RegionCutter::note_order(Id id, const Use& use) {
  Region& r = region(r_.find(use.region));
  if (r.row_axes.empty() && r.column_axes.empty()) return;
  const Coords at = r_.axes.normalize(use.at);
  if (shape(id).count() < kManyElements || !is_affine(at) ||
      magnitude(step_along(id, at, lanes_of(r))) != 1)
    return;
  if (r.in_order < shape(id).count()) r.in_order = shape(id).count();
}

}  // namespace cermet::schedule
