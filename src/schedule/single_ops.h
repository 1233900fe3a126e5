// SPDX-License-Identifier: MIT
// A region taken apart: one region for each of its ops, which pass their values through memory. A value
// that was an interior one keeps its accuracy there (half types lie as float32), so running the parts
// gives the bits of running the region as one kernel.
#pragma once

#include <vector>

#include "schedule/regions.h"

namespace cermet::schedule {

// The parts, inputs before users; none: the region must run whole. Matrix products, updates, values
// wanted under a mask or at a part of their elements, and half-typed results that the region itself
// goes on with unrounded stay in one kernel.
std::vector<Region> single_ops(const Regions& regions, int region);

// The nodes whose values lie in memory only if the parts run.
std::vector<Id> interior_of(const Regions& regions, int region);

}  // namespace cermet::schedule
