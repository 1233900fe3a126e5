// SPDX-License-Identifier: MIT
// A traced graph built again for other values of its symbols: every shape rule is applied anew, and
// the guards and sizes that the trace relied on are checked.
#pragma once

#include "schedule/plan_graph.h"
#include "schedule/symbols.h"

namespace cermet {

struct ReplayedGraph {
  TracedGraph graph;
  std::vector<uint32_t> scalar_exprs;  // of graph.scalars
  std::vector<Number> values;          // of all expressions
};

// nullopt when the trace does not hold for these values. input_shapes: of the placeholders,
// concrete.
std::optional<ReplayedGraph> replay(const Symbols& symbols, std::span<const NodeRef> placeholders,
                                    std::span<const NodeRef> outputs,
                                    std::span<const Shape> input_shapes,
                                    std::span<const Number> inputs);

}  // namespace cermet
