// SPDX-License-Identifier: MIT
#include "schedule/region_spaces.h"

#include <algorithm>
#include <iterator>

#include "schedule/recompute.h"

namespace cermet::schedule {

bool contains(const std::vector<AxisId>& set, AxisId axis) {
  return std::find(set.begin(), set.end(), axis) != set.end();
}

bool same_set(const std::vector<AxisId>& a, const std::vector<AxisId>& b) {
  return a.size() == b.size() &&
         std::all_of(a.begin(), a.end(), [&](AxisId axis) { return contains(b, axis); });
}

std::vector<AxisId> without(const std::vector<AxisId>& a, const std::vector<AxisId>& b) {
  std::vector<AxisId> rest;
  std::copy_if(a.begin(), a.end(), std::back_inserter(rest),
               [&](AxisId axis) { return !contains(b, axis); });
  return rest;
}

bool ends_with(const std::vector<AxisId>& a, const std::vector<AxisId>& tail) {
  return a.size() >= tail.size() && std::equal(tail.begin(), tail.end(), a.end() - tail.size());
}

void insert_axis(const AxisTable& table, Region& region, AxisId axis, const Coords& behind) {
  region.axes = table.normalize(region.axes);
  const std::vector<AxisId> later = axes_of(table.normalize(behind));
  const auto is_later = [&](AxisId other) { return contains(later, other); };
  region.axes.insert(std::ranges::find_if(region.axes, is_later), axis);
}

std::vector<Dim> sizes_of(const AxisTable& table, const std::vector<AxisId>& axes) {
  std::vector<Dim> sizes;
  for (AxisId axis : axes) sizes.push_back(table.size(axis));
  return sizes;
}

Dim times_made(const AxisTable& table, const Region& region, const std::vector<AxisId>& own) {
  Dim others = 1, made = 1;
  for (AxisId axis : table.normalize(region.axes)) {
    if (!contains(own, axis)) others *= table.size(axis);
    else made = others;
  }
  return made;
}

Dim lanes_served(const AxisTable& table, const Region& region, const std::vector<AxisId>& own) {
  Dim lanes = 1;
  const std::vector<AxisId> axes = table.normalize(region.axes);
  for (auto axis = axes.rbegin(); axis != axes.rend() && !contains(own, *axis); ++axis)
    lanes *= table.size(*axis);
  return lanes;
}

bool unify_rest(AxisTable& axes, const Region& a, const Region& b) {
  const auto axes_a = axes.normalize(a.axes), axes_b = axes.normalize(b.axes);
  const auto rest_a = without(axes_a, axes_b), rest_b = without(axes_b, axes_a);
  if (rest_a.empty() || rest_b.empty()) return true;
  if (rest_a.size() != rest_b.size()) return false;
  for (size_t i = 0; i < rest_a.size(); i++) {
    if (axes.size(rest_a[i]) != axes.size(rest_b[i])) return false;
  }
  for (size_t i = 0; i < rest_a.size(); i++) axes.unify(rest_b[i], rest_a[i]);
  return true;
}

bool holds_in_order(const std::vector<AxisId>& all, const std::vector<AxisId>& some) {
  std::vector<AxisId> found;
  std::ranges::copy_if(all, std::back_inserter(found),
                       [&](AxisId axis) { return contains(some, axis); });
  return found == some;
}

bool scans_one_large_row(const AxisTable& axes, const std::vector<AxisId>& all,
                         const std::vector<AxisId>& scanned) {
  constexpr int64_t kLargeElements = kLargeBytes / 4;
  Dim elements = 1;
  for (AxisId axis : all) elements *= axes.size(axis);
  return without(all, scanned).empty() && elements >= kLargeElements;
}

// Scans are along one axis, which is that of the row folds if there are any. Where it has become several,
// they are walked in their order.
static bool scans_fit(const AxisTable& axes, const Region& a, const Region& b,
                      const std::vector<AxisId>& all, const std::vector<AxisId>& row,
                      const std::vector<AxisId>& column) {
  const auto scan_a = axes.normalize(a.scan_axes), scan_b = axes.normalize(b.scan_axes);
  if (scan_a.empty() && scan_b.empty()) return true;
  if (!scan_a.empty() && !scan_b.empty() && scan_a != scan_b) return false;
  const auto& scan = scan_a.empty() ? scan_b : scan_a;
  if (!scan_a.empty() && !scan_b.empty() && scans_one_large_row(axes, all, scan)) return false;
  return column.empty() && (row.empty() || row == scan) && holds_in_order(all, scan);
}

bool spaces_fit(const AxisTable& axes, const Region& a, const Region& b) {
  const auto axes_a = axes.normalize(a.axes), axes_b = axes.normalize(b.axes);
  const auto row_a = axes.normalize(a.row_axes), row_b = axes.normalize(b.row_axes);
  const auto col_a = axes.normalize(a.column_axes), col_b = axes.normalize(b.column_axes);
  if (!row_a.empty() && !row_b.empty() && row_a != row_b) return false;
  if (!col_a.empty() && !col_b.empty() && col_a != col_b) return false;
  const auto& all = axes_a.size() >= axes_b.size() ? axes_a : axes_b;
  const auto& some = axes_a.size() >= axes_b.size() ? axes_b : axes_a;
  const auto& row = row_a.empty() ? row_b : row_a;
  const auto& col = col_a.empty() ? col_b : col_a;
  const auto rest = without(all, some);
  if (!without(some, all).empty()) return false;
  if (!scans_fit(axes, a, b, all, row, col)) return false;
  if (!rest.empty() && rest != row) return false;
  if (!row.empty() && !ends_with(all, row)) return false;
  if (!col.empty() && !row.empty() && !same_set(without(all, row), col)) return false;
  // A column fold of one needs that the other's members do not fold the same axes by lanes.
  for (AxisId axis : col) {
    if (contains(row, axis)) return false;
  }
  return col.empty() || std::equal(col.begin(), col.end(), all.begin());
}

}  // namespace cermet::schedule
