// SPDX-License-Identifier: MIT
#include "transform/trace.h"

#include <unordered_set>

#include "base/error.h"
#include "transform/transform.h"

namespace cermet {

std::vector<NodeRef> traced_tape(std::span<const array> roots, std::span<const array> stop) {
  std::unordered_set<const Node*> seen, stops;
  for (const array& a : stop) stops.insert(a.node().get());
  struct Frame {
    NodeRef node;
    size_t next_input;
  };
  std::vector<NodeRef> tape;
  std::vector<Frame> stack;
  auto visit = [&](const NodeRef& node) {
    if (!node->traced || !seen.insert(node.get()).second) return;
    stack.push_back({node, stops.contains(node.get()) ? node->inputs.size() : 0});
  };
  for (const array& root : roots) {
    visit(root.node());
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next_input < top.node->inputs.size()) {
        visit(top.node->inputs[top.next_input++]);
      } else {
        tape.push_back(std::move(top.node));
        stack.pop_back();
      }
    }
  }
  return tape;
}

NodeCall::NodeCall(const NodeRef& node) : node_(node) {
  for (const NodeRef& input : node->inputs) inputs_.emplace_back(input);
}

array composite_graph(const NodeRef& node) {
  const auto* composite = std::get_if<CompositeLowering>(&node->row->lowering.value);
  CERMET_INTERNAL_CHECK(composite != nullptr, "{} is no composite row", node->row->name.value);
  return composite->graph(NodeCall(node));
}

// A reshape to the same shape is the identity that every transform knows.
Arrays trace_inputs(std::span<const array> arrays) {
  Arrays placeholders;
  for (const array& a : arrays) {
    array p = make_node(rows::reshape, {a}, ShapeParams{a.shape()}, a.node()->stream);
    p.node()->traced = true;
    placeholders.push_back(std::move(p));
  }
  return placeholders;
}

}  // namespace cermet
