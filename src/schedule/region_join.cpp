// SPDX-License-Identifier: MIT
// When a value joins a region of its users, and when two regions become one.
#include <algorithm>
#include <functional>

#include "schedule/analysis.h"
#include "schedule/recompute.h"
#include "schedule/region_cutter.h"

namespace cermet::schedule {

namespace {

constexpr int kMaxLargeFolds = 2 * kMaxLargeReads;  // of a region made of two
constexpr int kMaxFoldDistance = 4;  // element-wise ops between a fold and where rows meet
constexpr int kLongOp = 8, kMostWrittenOut = 128;  // instructions

}  // namespace

RegionCutter::Refusal RegionCutter::try_join(Id id, int into, bool memory) {
  const int cost = op_cost(r_.graph, id);
  if (cost > 0 && region(into).ops + cost > max_ops_) return Border::op_limit;
  if (region(into).arguments > kMaxRegionArguments) return Border::argument_limit;
  bool stored = memory;
  const Use* use = nullptr;
  if (const Refusal refusal = find_one_use(id, into, stored, use)) return refusal;
  const Coords at = r_.axes.normalize(use->at);
  if (const Refusal refusal = use_refused(id, into, *use, at, stored)) return refusal;
  const int written = use->masked ? written_out(id, into, at) : 0;
  if (region(into).written_out + written > kMostWrittenOut) return Border::op_limit;
  const auto mark = r_.axes.mark();
  const auto rows = stored ? rows_beside(id, into, at) : std::nullopt;
  const bool alone = std::ranges::any_of(
      uses_[id], [&](const Use& other) { return r_.find(other.region) == into && other.alone; });
  const Refusal refusal = add_member(id, {into, at, use->masked, use->operand, alone});
  if (refusal) {
    r_.axes.roll_back(mark);
    return refusal;
  }
  region(into).written_out += written;
  if (rows && region(into).row_axes.empty()) region(into).row_axes = *rows;
  return std::nullopt;
}

// Instructions that a long op adds to what is written out: too many where it is once for each of several places.
int RegionCutter::written_out(Id id, int into, const Coords& at) {
  const Region& r = region(into);
  const int cost = op_cost(r_.graph, id);
  if (!r.is_written_out() || cost < kLongOp) return 0;
  return contains(axes_of(at), r_.axes.normalize(r.axes).back()) ? kMostWrittenOut + 1 : cost;
}

// The region's only way of wanting the value; stored: somebody else wants it, too.
RegionCutter::Refusal RegionCutter::find_one_use(Id id, int into, bool& stored, const Use*& one) {
  for (const Use& use : uses_[id]) {
    if (r_.find(use.region) != into) {
      stored = true;
      if (depends(into, r_.find(use.region))) return Border::recompute_cost;
    } else if (one == nullptr) {
      one = &use;
    } else if (!equal(r_.axes.normalize(one->at), r_.axes.normalize(use.at)) ||
               one->masked != use.masked) {
      return Border::layout;
    } else if (one->operand != use.operand) {
      return Border::opaque_op;
    }
  }
  for (int reader : memory_readers_[id]) {
    if (r_.find(reader) == into || depends(into, r_.find(reader))) return Border::layout;
  }
  return one == nullptr ? Refusal(Border::layout) : std::nullopt;
}

RegionCutter::Refusal RegionCutter::use_refused(Id id, int into, const Use& use, const Coords& at,
                                                bool stored) {
  const PlanNode& n = node(id);
  const bool map = n.lowering<MapLowering>() != nullptr;
  if (!is_affine(at) || reversed_axis(n) >= 0) return Border::layout;
  if (use.operand && (stored || !map)) return Border::opaque_op;
  if (use.operand && !fits_operand(id, into)) return Border::recompute_cost;
  if (map && is_wide(region(into), at) && large_inputs(n) >= 2) return Border::argument_limit;
  if (use.masked && (stored || !map)) return Border::layout;
  if ((stored || !map) && !covers_once(r_.axes, at, shape(id))) return Border::recompute_cost;
  if (stored && !rows_beside(id, into, at)) return Border::size_class;
  return std::nullopt;
}

// Packing repeats what it computes: it may take little, and of a large value nothing that would be
// stored for it alone.
bool RegionCutter::fits_operand(Id id, int into) {
  if (op_cost(r_.graph, id) > kMaxOperandOps) return false;
  const auto in_memory = [&](Id input) { return is_in_memory(input, into); };
  return bytes(id) < kLargeBytes || !needs_costly(r_.graph, id, kMaxOperandOps, in_memory);
}

// Many large values are held until the region makes the one that it stores: those that it reads, and column
// folds that are used after the columns.
bool RegionCutter::is_wide(const Region& r, const Coords& at) const {
  const std::vector<AxisId> column = r_.axes.normalize(r.column_axes);
  const bool in_columns =
      std::ranges::any_of(axes_of(at), [&](AxisId axis) { return contains(column, axis); });
  return r.large_reads + r.large_folds >= kMaxLargeReads && r.stored.size() == 1 && !in_columns &&
         (r.row_axes.empty() || r.contract >= 0);
}

// Constants take no memory, and a broadcast no more than what it spreads.
int RegionCutter::large_inputs(const PlanNode& n) const {
  return static_cast<int>(std::ranges::count_if(n.inputs, [&](Id input) {
    const PlanNode& from = node(input);
    if (from.leaf || from.inputs.empty()) return false;
    return bytes(is_spread(input) ? from.inputs[0] : input) >= kLargeBytes;
  }));
}

// The row axes of a region that stores the value, too. A store must happen once for each element: over all
// axes, all but the row axes, or after the columns; where there are no rows yet, a fold that the value is
// made of is about to bring them. An update is all that its kernel stores.
std::optional<std::vector<AxisId>> RegionCutter::rows_beside(Id id, int into, const Coords& at) {
  const Region& r = region(into);
  if (r.update >= 0) return std::nullopt;
  const std::vector<AxisId> rest = without(r_.axes.normalize(r.axes), axes_of(at));
  std::vector<AxisId> row = r_.axes.normalize(r.row_axes);
  const std::vector<AxisId> column = r_.axes.normalize(r.column_axes);
  if (rest.empty() || same_set(rest, row) || same_set(rest, column)) return row;
  return brings_rows(id, r, rest) ? std::optional(rest) : std::nullopt;
}

// The value, for each place of the region's other axes, is made of a fold over these, which are to be its rows.
bool RegionCutter::brings_rows(Id id, const Region& r, const std::vector<AxisId>& rest) {
  if (!r.row_axes.empty() || !r.column_axes.empty() || !r.scan_axes.empty()) return false;
  if (rest.empty() || r.contract >= 0 || r.update >= 0 || r.is_written_out()) return false;
  return ends_with(r_.axes.normalize(r.axes), rest) &&
         folds_over(r_.graph, id, sizes_of(r_.axes, rest), kMaxFoldDistance);
}

RegionCutter::Refusal RegionCutter::add_member(Id id, const Use& use) {
  const PlanNode& n = node(id);
  const auto& [into, at, masked, operand, alone] = use;
  if (n.lowering<ScanLowering>() != nullptr) {
    if (const Refusal refusal = add_scan(id, into, at)) return refusal;
  }
  if (n.lowering<FoldLowering>() != nullptr) return add_fold(id, into, at);
  if (n.lowering<ContractLowering>() != nullptr) return add_contract(id, into, at);
  region(into).members.push_back({id, at, {}});
  region(into).ops += op_cost(r_.graph, id);
  // Beside a value with axes, a constant needs none.
  const auto has_axes = [&](Id input) { return node(input).leaf || !is_spread(input); };
  const bool any = std::ranges::any_of(n.inputs, has_axes);
  for (Id input : n.inputs)
    uses_[input].push_back({into, at, masked, operand, alone && (!any || has_axes(input))});
  return std::nullopt;
}

// A scan runs over its axis from the first element on, in a region that has the axis innermost as its
// rows or has no folds.
RegionCutter::Refusal RegionCutter::add_scan(Id id, int into, const Coords& at) {
  Region& r = region(into);
  if (r.contract >= 0 || r.update >= 0 || r.is_written_out()) return Border::opaque_op;
  const std::vector<AxisId> scanned =
      digits_of(r_.axes.normalize(at[std::get<AxisParams>(node(id).node->params).axis]));
  if (scanned.empty()) return std::nullopt;
  const std::vector<AxisId> axes = r_.axes.normalize(r.axes), row = r_.axes.normalize(r.row_axes),
                            before = r_.axes.normalize(r.scan_axes);
  if (!before.empty() && before != scanned) return Border::layout;
  if (!before.empty() && scans_one_large_row(r_.axes, axes, scanned)) return Border::opaque_op;
  if (!r.column_axes.empty() || (!row.empty() && row != scanned)) return Border::layout;
  if (!holds_in_order(axes, scanned)) return Border::layout;
  r.scan_axes = scanned;
  return std::nullopt;
}

void RegionCutter::add_update(Id id, int own, const Coords& at) {
  const PlanNode& n = node(id);
  region(own).members.push_back({id, at, {}});
  const PlanNodeView view(r_.graph, id);
  AnalysisContext context(view, [&](int k, const Coords& in, bool masked) {
    uses_[n.inputs[k]].push_back({own, r_.axes.normalize(in), masked, false});
  });
  n.lowering<UpdateLowering>()->target(context, view, at);
  uses_[n.inputs.back()].push_back({own, at});
  if (n.fresh_target) return;
  in_memory_[n.inputs[0]] = true;
  memory_readers_[n.inputs[0]].push_back(own);
}

RegionCutter::Refusal RegionCutter::add_contract(Id id, int into, const Coords& at) {
  Region& r = region(into);
  const std::vector<AxisId> axes = r_.axes.normalize(r.axes);
  if (r.contract >= 0 || r.update >= 0 || r.is_written_out() || !r.row_axes.empty() ||
      !r.column_axes.empty() || !r.scan_axes.empty())
    return Border::opaque_op;
  if (axes_of(at) != axes || !covers_once(r_.axes, at, shape(id))) return Border::layout;
  add_product(id, into, at);
  r.row_axes = {r.axes.back()};
  return std::nullopt;
}

void RegionCutter::add_product(Id id, int into, const Coords& at) {
  Region& r = region(into);
  const PlanNode& n = node(id);
  const int rank = shape(id).ndim();
  r.contract = id;
  const AxisId k = r_.axes.add(shape(n.inputs[0])[rank - 1]);
  const Coord kc = r_.axes.normalize(Coord{.terms = {{k, 1}}});
  Coords a = at, b = at;
  a[rank - 1] = kc;
  b[rank - 2] = kc;
  r.members.push_back({id, at, {a, b}});
  r.axes.push_back(k);
  uses_[n.inputs[0]].push_back({into, a, false, true, true});
  uses_[n.inputs[1]].push_back({into, b, false, true, true});
}

RegionCutter::Refusal RegionCutter::add_fold(Id id, int into, const Coords& at) {
  Region& r = region(into);
  if (r.contract >= 0 || r.update >= 0 || r.is_written_out()) return Border::opaque_op;
  const PlanNode& n = node(id);
  const PlanNodeView view(r_.graph, id);
  const Axes folded = n.lowering<FoldLowering>()->axes(view);
  const Shape& in_shape = *view->input_shapes[0];
  const bool keepdims = in_shape.ndim() == shape(id).ndim();
  std::vector<AxisId> axes = r_.axes.normalize(r.axes);
  const std::vector<AxisId> kept = axes_of(at), free = without(axes, kept);
  const std::vector<AxisId> row = r_.axes.normalize(r.row_axes);
  const std::vector<AxisId> column = r_.axes.normalize(r.column_axes);

  std::vector<AxisId> bound;  // the fold's own axes, one for each folded dim
  bool trailing = true;       // no kept dim after a folded one
  int o = 0;
  Coords in;
  std::vector<AxisId> in_order;
  for (int d = 0; d < in_shape.ndim(); d++) {
    Coord c;
    if (std::find(folded.begin(), folded.end(), d) != folded.end()) {
      AxisId axis = -1;
      if (in_shape[d] != 1 && free.size() > bound.size() &&
          r_.axes.size(free[bound.size()]) == in_shape[d])
        axis = free[bound.size()];
      else axis = r_.axes.add(in_shape[d]);
      c.terms.push_back({axis, 1});
      if (in_shape[d] != 1) {
        bound.push_back(axis);
        in_order.push_back(axis);
      }
      if (keepdims) o++;
    } else {
      c = at[o++];
      for (const auto& term : c.terms) in_order.push_back(term.axis);
      if (!c.terms.empty() && !bound.empty()) trailing = false;
    }
    in.push_back(r_.axes.normalize(c));
  }
  const std::vector<AxisId> scanned = r_.axes.normalize(r.scan_axes);
  if (!scanned.empty() && !bound.empty() && (free.empty() || bound != scanned))
    return Border::layout;
  if (bound.empty()) {
    // Folds over one element: no axis of their own.
  } else if (!free.empty() && free == column && row.empty()) {  // one column fold after another
    if (bound != free) return Border::layout;
  } else if (!free.empty()) {  // a row fold over axes that the region has already
    if (bound != free || !ends_with(axes, free) || (!row.empty() && row != free))
      return Border::layout;
    if (!column.empty() && !same_set(column, kept)) return Border::layout;
    r.row_axes = free;
  } else if (!row.empty() && !(row == axes && column.empty())) {
    return Border::size_class;
  } else if (!column.empty()) {  // rows inside a fold over all of them
    if (!trailing || !same_set(axes, column)) return Border::size_class;
    r.row_axes = bound;
    r.axes = axes;
    r.axes.insert(r.axes.end(), bound.begin(), bound.end());
  } else if (!row.empty()) {  // the full fold becomes the column fold over rows
    if (!trailing) return Border::layout;
    r.column_axes = row;
    r.row_axes = bound;
    r.axes = axes;
    r.axes.insert(r.axes.end(), bound.begin(), bound.end());
  } else if (trailing) {
    r.row_axes = bound;
    r.axes = axes;
    r.axes.insert(r.axes.end(), bound.begin(), bound.end());
  } else {
    r.column_axes = bound;
    r.axes = in_order;
  }
  r.members.push_back({id, at, {in}});
  r.ops += 2;
  r.large_folds += !r.column_axes.empty() && bytes(id) >= kLargeBytes;
  uses_[n.inputs[0]].push_back({into, in});
  return std::nullopt;
}

void RegionCutter::merge_candidates(Id id, std::vector<int>& candidates) {
  if (max_ops_ == 1) return;
  // A region that others depend on comes first: it may store what they read.
  std::ranges::stable_sort(candidates, std::greater(), [&](int i) { return depths_[i]; });
  for (size_t i = 1; i < candidates.size();) {
    if (try_merge(id, candidates[0], candidates[i])) {
      for (Use& use : uses_[id]) use.region = r_.find(use.region);
      candidates.erase(candidates.begin() + static_cast<ptrdiff_t>(i));
    } else {
      i++;
    }
  }
}

const RegionCutter::Use* RegionCutter::use_in(Id id, int in) {
  for (const Use& use : uses_[id]) {
    if (r_.find(use.region) == in) return &use;
  }
  return nullptr;
}

bool RegionCutter::try_merge(Id id, int a, int b) {
  const Region& ra = region(a);
  const Region& rb = region(b);
  if (ra.contract >= 0 || rb.contract >= 0 || ra.update >= 0 || rb.update >= 0) return false;
  if (ra.is_written_out() || rb.is_written_out()) return false;
  if (ra.ops + rb.ops > max_ops_ || ra.arguments + rb.arguments > kMaxRegionArguments) return false;
  if (ra.large_folds + rb.large_folds > kMaxLargeFolds) return false;
  if (depends(a, b) || depends(b, a)) return false;
  const auto mark = r_.axes.mark();
  const Use *ua = use_in(id, a), *ub = use_in(id, b);
  if (!ua->masked && !ub->masked && unify_coords(r_.axes, ua->at, ub->at) &&
      unify_rest(r_.axes, ra, rb)) {
    const Region former_a = ra, former_b = rb;
    if (!fold_by_columns(id, a, b) && !fold_by_columns(id, b, a)) {
      for (const auto& [rows, places] : {std::pair{a, b}, std::pair{b, a}}) {
        const auto rest =
            without(r_.axes.normalize(region(rows).axes), r_.axes.normalize(region(places).axes));
        if (brings_rows(id, region(rows), rest)) region(rows).row_axes = rest;
      }
    }
    // Turned tiles are for regions without folds.
    const bool across =
        folds_or_scans(ra) != folds_or_scans(rb) && (goes_across(id, *ua) || goes_across(id, *ub));
    if (!across && spaces_fit(r_.axes, ra, rb)) {
      merge(a, b);
      return true;
    }
    region(a) = former_a;
    region(b) = former_b;
  }
  r_.axes.roll_back(mark);
  return false;
}

// The full fold of one region folds what the node gives for each row of the other's space: it becomes
// the column fold over these rows.
bool RegionCutter::fold_by_columns(Id id, int full, int rows) {
  Region& f = region(full);
  const auto axes = r_.axes.normalize(f.axes), all = r_.axes.normalize(region(rows).axes);
  const auto rest = without(all, axes);
  if (axes.empty() || r_.axes.normalize(f.row_axes) != axes || !f.column_axes.empty()) return false;
  if (!f.scan_axes.empty() || !region(rows).scan_axes.empty()) return false;
  if (rest.empty() || !without(axes, all).empty() ||
      !folds_over(r_.graph, id, sizes_of(r_.axes, rest), kMaxFoldDistance))
    return false;
  f.axes = all;
  f.column_axes = axes;
  f.row_axes = rest;
  return true;
}

void RegionCutter::merge(int a, int b) {
  Region &ra = region(a), &rb = region(b);
  const auto axes_a = r_.axes.normalize(ra.axes), axes_b = r_.axes.normalize(rb.axes);
  ra.axes = axes_a.size() >= axes_b.size() ? axes_a : axes_b;
  if (ra.row_axes.empty()) ra.row_axes = rb.row_axes;
  if (ra.column_axes.empty()) ra.column_axes = rb.column_axes;
  if (ra.scan_axes.empty()) ra.scan_axes = rb.scan_axes;
  ra.members.insert(ra.members.end(), rb.members.begin(), rb.members.end());
  ra.stored.insert(ra.stored.end(), rb.stored.begin(), rb.stored.end());
  ra.reads.insert(ra.reads.end(), rb.reads.begin(), rb.reads.end());
  ra.ops += rb.ops;
  ra.arguments += rb.arguments;
  ra.large_reads += rb.large_reads;
  ra.large_folds += rb.large_folds;
  for (Id id : rb.stored) r_.stored_by[id] = a;
  rb = Region();
  r_.merged_into[b] = a;
  const int depth = std::max(depths_[a], depths_[b]);
  depths_[a] = -1;
  deepen(a, depth);
}

}  // namespace cermet::schedule
