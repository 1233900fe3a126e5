// SPDX-License-Identifier: MIT
// The axes of a region as its kernel walks them. While a trial of the kernel is written, it notes every walk
// through memory and numbers; from these it tells which axes can be walked as one.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernel/builder.h"
#include "schedule/flat.h"
#include "schedule/regions.h"

namespace cermet::schedule {

// into[a] = b: axis a is walked as part of axis b, the next inner one. So are those of `flat`, the
// innermost ones, but not by every access: others take their coordinates by division.
struct Collapse {
  std::map<AxisId, AxisId> into = {};
  std::vector<FlatAxis> flat = {};  // none, or at least two; outer to inner
  // Short ones of an element-wise kernel that no vector runs along, outer to inner.
  std::vector<AxisId> across = {};
  bool is_along = false;   // vectors run along the innermost one, though it is short
  bool is_shared = false;  // places along these have more in common than the rows that they are in
  // In which the kernel goes over the axes, outer to inner; empty: as they are.
  std::vector<AxisId> order = {};
  // Short ones that the order has put elsewhere: from between rows and their elements, or last, from a column.
  std::vector<AxisId> few = {};
};

class KernelAxes {
 public:
  // Adds the axes to the kernel, and their sizes to `extents`. has_wide: elements of 8 bytes.
  KernelAxes(const AxisTable& table, const Region& region, bool has_wide, Collapse collapse,
             ir::Builder& builder, std::vector<Dim>& extents);

  // All of the region, outer to inner.
  const std::vector<AxisId>& all() const { return axes_; }
  // Those of `axes` that are not walked as part of another, outer to inner.
  std::vector<AxisId> walked(const std::vector<AxisId>& axes) const;
  ir::AxisId in_kernel(AxisId axis) const;
  // With the axes that are walked as part of it.
  Dim size(AxisId axis) const;
  bool is_row(AxisId axis) const;
  // Also of the region: it has not been put last for what is in `few`.
  bool is_innermost(AxisId axis) const {
    return axis == walked_.back() && std::ranges::find(few_, axis) == few_.end();
  }
  // Folded, beside an innermost axis of so few elements that vectors run down the columns.
  bool is_narrow_column(AxisId axis) const;
  // The one that short innermost axes are walked as, -1.
  ir::AxisId flat() const { return flat_.empty() ? -1 : in_kernel(flat_.back().axis); }

  // What each of the kernel's axes adds to a walk: its place and the step. Notes the walk.
  std::vector<std::pair<ir::ExprId, Dim>> terms(const Walk& walk);
  // The last walk was a store's.
  void mark_store() { stores_.push_back(walks_.back()); }
  // It was a load's.
  void mark_load() { loads_.push_back(walks_.back()); }
  // What the region updates, it updates at affine places.
  void mark_slice() { is_slice_ = true; }
  // The kernel's axes of a stage over these coordinates (normalised), outer to inner. Notes the stage.
  std::vector<ir::AxisId> stage(const Coords& coords);
  // The innermost one of the kernel, -1.
  ir::AxisId innermost() const { return in_kernel_.empty() ? -1 : in_kernel_.back(); }
  // Which of so many inputs is read depends on the place along the innermost one.
  void mark_choice(size_t among) { choices_ = std::max(choices_, among); }
  // Which of several inputs is read depends on the place along another one, of the region.
  void mark_stacked(AxisId axis) {
    if (std::ranges::find(stacked_, axis) == stacked_.end()) stacked_.push_back(axis);
  }
  // None for a scan along an axis of one element, which may lie beside another.
  void mark_scanned(const std::vector<AxisId>& axes) {
    if (!axes.empty()) scanned_ = axes;
  }

  // Where vectors of an element-wise kernel whose innermost axes are short may run: across these, too, or from one
  // to the next, or along the innermost one alone. copied: as any, but elements of these are moved together.
  enum class Vectors : uint8_t { any, copied, on, along };
  // Of what was noted: the axes that every access walks as one with the next inner axis, and short ones, and rows
  // where the kernel (the trial) does no more with their places than to bound what is loaded.
  Collapse find_collapse(Vectors vectors, const ir::Kernel& trial) const;
  // Whether the innermost axis is short, but not too short for vectors along it (`least` elements): all lies in its
  // order, and rows that follow each other in memory are put far apart.
  bool are_far_rows(int64_t least) const;
  // Many, of an element-wise kernel: of `least` elements or more.
  bool are_short_rows(int64_t least) const;
  // The axis of few places along which rows are stacked, if they are short enough that the choice of each counts.
  std::optional<AxisId> find_stacked(const Collapse& found) const;
  // Element-wise.
  bool is_map() const;

 private:
  using Into = std::map<AxisId, AxisId>;
  int64_t most_elements(AxisId axis) const;
  bool is_many() const;
  bool is_side_of_small_product(AxisId axis) const;
  bool is_beside_few(AxisId axis, const std::vector<AxisId>& kind) const;
  bool is_narrow_scan(AxisId axis) const;
  bool is_short(const Dim& size) const;
  void find_across(Collapse& found, Vectors vectors) const;
  Dim rows_between(const Walk& walk, const std::vector<AxisId>& order, const Into& into) const;
  std::vector<AxisId> order_of_loads(const Collapse& found) const;
  std::vector<AxisId> order_to_fold(const Into& into) const;
  void put_rows_beside_elements(Collapse& found) const;
  void put_columns_last(Collapse& found, const ir::Kernel& trial) const;
  ir::ExprId place_in_flat(size_t first, size_t last);
  bool continues(AxisId outer, AxisId inner) const;
  Into find_into() const;
  std::vector<FlatAxis> flat_axes(const Into& into, const ir::Kernel& trial) const;
  Dim size_with(const Into& into, AxisId axis) const;

  const AxisTable& table_;
  const Region& region_;
  Into into_;
  std::vector<FlatAxis> flat_;
  std::vector<AxisId> across_, few_;
  const bool is_along_, has_wide_;
  ir::Builder& builder_;
  std::vector<Dim>& extents_;
  std::vector<AxisId> axes_, row_, column_;  // live, before collapsing
  std::vector<AxisId> scanned_;
  std::vector<AxisId> walked_;                                  // of axes_
  std::vector<ir::AxisId> in_kernel_;                           // of each of these
  std::map<std::pair<size_t, size_t>, ir::AxisId> flat_sizes_;  // of runs of flat_
  std::vector<Walk> walks_, stores_, loads_;
  size_t choices_ = 0;
  std::vector<AxisId> stacked_;
  bool is_slice_ = false;
  std::vector<std::vector<AxisId>> stages_;  // axes used by each stage
};

}  // namespace cermet::schedule
