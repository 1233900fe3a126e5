// SPDX-License-Identifier: MIT
// Patterns (graph/pattern.h) are replaced by their rows before a graph is planned, and before a transform
// differentiates or batches it, so that a row's kernel and gradient serve every spelling.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/pattern.h"

namespace cermet::schedule {

// A graph to be planned.
struct Replaced {
  std::unordered_map<const Node*, NodeRef> nodes;    // roots -> what stands for them
  std::unordered_map<const Node*, NodeRef> numbers;  // new full nodes -> those with their values
  // The outputs' nodes down to the inputs, inputs before users; roots come after what stands for them.
  std::vector<NodeRef> tape(std::span<const NodeRef> outputs,
                            std::span<const NodeRef> inputs) const;
};
// `tape`: all nodes, inputs before users. `is_leaf`: of the graph. `is_given`: of a full node, as in PatternGraph.
Replaced replace_patterns(const std::vector<NodeRef>& tape, std::span<const NodeRef> outputs,
                          const std::function<bool(const Node&)>& is_leaf,
                          const std::function<bool(const Node&)>& is_given);

// In a trace, roots become what stands for them: the nodes are those that the transform's own call has
// made, so the values that it returns and their derivatives share one graph. `tape`: the traced
// nodes from the inputs (included) to the outputs; whether it has changed.
bool replace_patterns(const std::vector<NodeRef>& tape, std::span<const array> outputs,
                      std::span<const array> inputs);

}  // namespace cermet::schedule
