// SPDX-License-Identifier: MIT
// Walks over traced graphs, shared by the transforms.
#pragma once

#include <span>
#include <vector>

#include "graph/op.h"

namespace cermet {

// Traced nodes from `roots` down to `stop` (included), inputs before users. Nodes that are not traced
// cannot lead to a placeholder and are left out.
std::vector<NodeRef> traced_tape(std::span<const array> roots, std::span<const array> stop);

// The call that made a node, for its row's rules.
class NodeCall {
 public:
  explicit NodeCall(const NodeRef& node);
  operator OpCall() const { return {*node_->row, node_->params, inputs_}; }
  const Arrays& inputs() const { return inputs_; }

 private:
  NodeRef node_;
  Arrays inputs_;
};

// The graph of a composite row's node, built anew on the node's inputs.
array composite_graph(const NodeRef& node);

}  // namespace cermet
