// SPDX-License-Identifier: MIT
// Walks over traced graphs, shared by the transforms.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/op.h"

namespace cermet {

// Nodes traced here, from `roots` down to `stop` (included), inputs before users. Others cannot lead to a
// placeholder of this thread and are left out.
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

// f(node) for what a node was made from: its inputs; of a result of a custom call, all that the call knows.
void for_each_source(const Node& node, const std::function<void(const NodeRef&)>& f);

// The graph of `roots` made again, on `to` in place of `from`. Parts that do not lead there stay.
Arrays rebuilt(std::span<const NodeRef> roots, std::span<const array> from,
               std::span<const array> to);

// The call that the node is a result of; null: it is none.
const CallParams* call_of(const Node& node);

// The graph of a composite row's node, built anew on the node's inputs.
array composite_graph(const NodeRef& node);

}  // namespace cermet
