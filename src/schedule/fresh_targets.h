// SPDX-License-Identifier: MIT
// Updates that together write every element of what they write into: concatenate of many parts, stack, an
// array of zeros that is filled slice by slice. The first of them starts on fresh memory, and what it was
// to write into is not made.
#pragma once

#include "schedule/plan_graph.h"

namespace cermet::schedule {

// Sets PlanNode::fresh_target where a chain of updates, each read by the next alone, replaces slices along
// one axis that leave out nothing.
void find_fresh_targets(PlanGraph& graph);

}  // namespace cermet::schedule
