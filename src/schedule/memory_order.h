// SPDX-License-Identifier: MIT
// The order in which products and composites lay out what they make. Attention gives its heads before
// its positions, and what follows joins the heads of a position: a transpose, and a reshape that would be a
// copy. Laid out in the order of the reshape, the result is read there as it is.
#pragma once

#include "schedule/plan_graph.h"

namespace cermet::schedule {

// Sets PlanNode::strides where a value made by a product or a composite's kernel is read once, through
// movement, by a reshape that is a view only then.
void choose_memory_orders(PlanGraph& graph);

}  // namespace cermet::schedule
