// SPDX-License-Identifier: MIT
// Ops of one evaluation that are the same but for the node of a number, of equal value, are one op of the
// plan, as they are where `compile` has made numbers constants. Only there does a plan depend on values.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "graph/node.h"

namespace cermet::schedule {

// Pairs (number, the one that stands for it). nodes: inputs before users; scalars: full nodes among them.
std::vector<std::pair<NodeRef, NodeRef>> find_equal_scalars(std::span<const NodeRef> nodes,
                                                            std::span<const NodeRef> scalars);

}  // namespace cermet::schedule
