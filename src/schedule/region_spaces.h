// SPDX-License-Identifier: MIT
// Sets of axes, and when the spaces of two regions are one.
#pragma once

#include <vector>

#include "schedule/regions.h"

namespace cermet::schedule {

bool contains(const std::vector<AxisId>& set, AxisId axis);
bool same_set(const std::vector<AxisId>& a, const std::vector<AxisId>& b);
std::vector<AxisId> without(const std::vector<AxisId>& a, const std::vector<AxisId>& b);
bool ends_with(const std::vector<AxisId>& a, const std::vector<AxisId>& tail);
// `some` are in `all`, one after the other as there.
bool holds_in_order(const std::vector<AxisId>& all, const std::vector<AxisId>& some);
// A region that scans all it has at once, which is large: of several scans it would hold each but the last whole.
bool scans_one_large_row(const AxisTable& axes, const std::vector<AxisId>& all,
                         const std::vector<AxisId>& scanned);
std::vector<Dim> sizes_of(const AxisTable& table, const std::vector<AxisId>& axes);

// The region's axes stay in the order of the dims: the new one comes before those of the dims behind it.
void insert_axis(const AxisTable& table, Region& region, AxisId axis, const Coords& behind);

// How often the region, its axes outer to inner, would make a value that has these axes of its own: the points
// of those outside them that the value lacks.
Dim times_made(const AxisTable& table, const Region& region, const std::vector<AxisId>& own);
// The innermost points that a value of these axes is the same for.
Dim lanes_served(const AxisTable& table, const Region& region, const std::vector<AxisId>& own);

// The axes that only one of the regions has: loops of equal extents become one loop. False if they differ.
bool unify_rest(AxisTable& axes, const Region& a, const Region& b);

// After unification: one space contains the other, and the folds and scans of both can be in one kernel.
bool spaces_fit(const AxisTable& axes, const Region& a, const Region& b);

}  // namespace cermet::schedule
