// SPDX-License-Identifier: MIT
#include "transform/trace.h"

#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/custom_call.h"
#include "transform/transform.h"

namespace cermet {

namespace {

// What a node was made from, its inputs first.
std::vector<NodeRef> sources_of(const Node& node) {
  std::vector<NodeRef> sources = inputs_of(node).value_or(std::vector<NodeRef>());
  if (const CallParams* p = call_of(node)) {
    sources.insert(sources.end(), p->call->outputs.begin(), p->call->outputs.end());
    sources.insert(sources.end(), p->call->arguments.begin(), p->call->arguments.end());
  }
  return sources;
}

enum class Visit : uint8_t { skip, leaf, enter };

// Depth first without recursion, sources before what is made from them.
template <typename Choose>
std::vector<NodeRef> post_order(std::span<const NodeRef> roots, Choose&& choose) {
  struct Frame {
    NodeRef node;
    std::vector<NodeRef> sources;
    size_t next = 0;
  };
  std::vector<NodeRef> tape;
  std::vector<Frame> stack;
  const auto visit = [&](const NodeRef& node) {
    const Visit what = choose(*node);
    if (what == Visit::skip) return;
    stack.push_back({node, what == Visit::enter ? sources_of(*node) : std::vector<NodeRef>()});
  };
  for (const NodeRef& root : roots) {
    visit(root);
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.sources.size()) {
        visit(top.sources[top.next++]);
      } else {
        tape.push_back(std::move(top.node));
        stack.pop_back();
      }
    }
  }
  return tape;
}

// Copies of nodes on other inputs.
class Rebuild {
 public:
  Rebuild(std::span<const array> from, std::span<const array> to) {
    for (size_t i = 0; i < from.size(); i++)
      nodes_.insert_or_assign(from[i].node().get(), to[i].node());
  }

  bool replaces(const Node& node) const { return nodes_.contains(&node); }

  const NodeRef& find(const NodeRef& node) const {
    const auto it = nodes_.find(node.get());
    return it == nodes_.end() ? node : it->second;
  }

  // Its sources have been here before it.
  void step(const NodeRef& node) {
    const std::vector<NodeRef> sources = sources_of(*node);
    const bool changed =
        std::ranges::any_of(sources, [&](const NodeRef& source) { return replaces(*source); });
    if (replaces(*node) || !changed) return;
    NodeRef copy(new Node);
    copy->row = node->row;
    copy->params = node->params;
    if (auto* p = std::get_if<CallParams>(&copy->params)) p->call = call(p->call);
    copy->dtype = node->dtype;
    copy->shape = node->shape;
    copy->stream = node->stream;
    copy->origin = node->origin;
    copy->meant = node->meant;
    copy->scope = NodeScope::current();
    const bool is_call = call_of(*node) != nullptr;
    for (const NodeRef& input : std::span(sources).first(is_call ? 1 : sources.size())) {
      copy->inputs.push_back(find(input));
      copy->trace = TraceScope::joined(copy->trace, copy->inputs.back()->trace);
    }
    bound_laziness(*copy);
    nodes_.emplace(node.get(), std::move(copy));
  }

 private:
  std::shared_ptr<const CustomCall> call(const std::shared_ptr<const CustomCall>& from) {
    std::shared_ptr<const CustomCall>& made = calls_[from.get()];
    if (made == nullptr) {
      auto copy = std::make_shared<CustomCall>();
      copy->rules = from->rules;
      for (const NodeRef& output : from->outputs) copy->outputs.push_back(find(output));
      for (const NodeRef& argument : from->arguments) copy->arguments.push_back(find(argument));
      made = std::move(copy);
    }
    return made;
  }

  std::unordered_map<const Node*, NodeRef> nodes_;
  std::unordered_map<const CustomCall*, std::shared_ptr<const CustomCall>> calls_;
};

}  // namespace

std::vector<NodeRef> traced_tape(std::span<const array> roots, std::span<const array> stop) {
  std::unordered_set<const Node*> seen, stops;
  for (const array& a : stop) stops.insert(a.node().get());
  std::vector<NodeRef> nodes;
  for (const array& root : roots) nodes.push_back(root.node());
  return post_order(nodes, [&](const Node& node) {
    if (!node.is_traced_here() || !seen.insert(&node).second) return Visit::skip;
    return stops.contains(&node) ? Visit::leaf : Visit::enter;
  });
}

void for_each_source(const Node& node, const std::function<void(const NodeRef&)>& f) {
  for (const NodeRef& source : sources_of(node)) f(source);
}

const CallParams* call_of(const Node& node) {
  const auto* params = std::get_if<CallParams>(&node.params);
  return params != nullptr && params->call != nullptr ? params : nullptr;
}

Arrays rebuilt(std::span<const NodeRef> roots, std::span<const array> from,
               std::span<const array> to) {
  Rebuild rebuild(from, to);
  std::unordered_set<const Node*> seen;
  for (const NodeRef& node : post_order(roots, [&](const Node& node) {
         if (!seen.insert(&node).second) return Visit::skip;
         return rebuild.replaces(node) ? Visit::leaf : Visit::enter;
       }))
    rebuild.step(node);
  Arrays results;
  for (const NodeRef& root : roots) results.emplace_back(rebuild.find(root));
  return results;
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
    p.node()->trace = TraceScope::joined(p.node()->trace, TraceScope::current());
    placeholders.push_back(std::move(p));
  }
  return placeholders;
}

}  // namespace cermet
