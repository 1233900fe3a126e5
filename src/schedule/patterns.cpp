// SPDX-License-Identifier: MIT
#include "schedule/patterns.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "graph/laziness.h"

namespace cermet::schedule {

namespace {

// The larger first: what they look for is in the graph as it was given.
constexpr const Pattern* kPatterns[] = {&attention_pattern, &softmax_pattern};

enum class Before : uint8_t { plan, transform };

bool may_be_root(const Pattern& pattern, const Node& node, Before before) {
  return (before == Before::transform || !pattern.is_for_transforms) && pattern.may_be_root(node);
}

// Most graphs have none: their tape is looked through once, and nothing is built.
bool has_roots(const std::vector<NodeRef>& tape, Before before) {
  return std::ranges::any_of(tape, [&](const NodeRef& node) {
    return std::ranges::any_of(kPatterns,
                               [&](const Pattern* p) { return may_be_root(*p, *node, before); });
  });
}

// What is known of the whole tape is found when something looks like a pattern.
class TapeGraph : public PatternGraph {
 public:
  explicit TapeGraph(const std::vector<NodeRef>& tape) : tape_(tape) {}
  void add_output(const Node* node) { outputs_.insert(node); }

  bool is_private(const Node& node, int edges) const override {
    if (edges_.empty()) count_edges();
    const auto it = edges_.find(&node);
    return it != edges_.end() && it->second == edges && !outputs_.contains(&node);
  }

 protected:
  const std::vector<NodeRef>& tape_;

 private:
  void count_edges() const {
    for (const NodeRef& node : tape_) {
      edges_.try_emplace(node.get(), 0);
      for (const NodeRef& input : node->inputs) ++edges_[input.get()];
    }
  }

  mutable std::unordered_map<const Node*, int> edges_;
  std::unordered_set<const Node*> outputs_;
};

// f(root, what stands for it) for each pattern that is replaced before a plan or a transform.
template <class F>
void for_each_replacement(const std::vector<NodeRef>& tape, Before before,
                          const PatternGraph& graph, PatternBuilder& builder, F f) {
  for (const Pattern* pattern : kPatterns) {
    for (const NodeRef& node : tape) {
      if (!may_be_root(*pattern, *node, before)) continue;
      const auto result = pattern->find(node, graph, builder);
      if (!result) continue;
      CERMET_INTERNAL_CHECK(result->dtype() == node->dtype && result->ndim() == node->shape.ndim(),
                            "a {} of {} axes stands for a {} of {}", name_of(result->dtype()),
                            result->ndim(), name_of(node->dtype), node->shape.ndim());
      f(node, *result);
    }
  }
}

class PlanPatterns : public TapeGraph, public PatternBuilder {
 public:
  PlanPatterns(const std::vector<NodeRef>& tape, const std::function<bool(const Node&)>& is_leaf,
               const std::function<bool(const Node&)>& is_given)
      : TapeGraph(tape), is_leaf_(is_leaf), is_given_(is_given) {}

  bool is_open(const Node& node) const override { return !is_leaf_(node); }
  bool is_given(const Node& full) const override { return is_given_(full); }
  array number(const NodeRef& full, const Shape& shape, Dtype dtype) override {
    const FullParams& p = std::get<FullParams>(full->params);
    array result = make_node(*full->row, {}, FullParams{shape, p.value, dtype}, full->stream);
    if (is_given_(*full)) result_.numbers.emplace(result.node().get(), full);
    made_.push_back(result.node());  // its address stays taken
    return result;
  }

  Replaced run() {
    for_each_replacement(tape_, Before::plan, *this, *this,
                         [&](const NodeRef& root, const array& result) {
                           if (!is_leaf_(*root)) result_.nodes.emplace(root.get(), result.node());
                         });
    return std::move(result_);
  }

 private:
  const std::function<bool(const Node&)>& is_leaf_;
  const std::function<bool(const Node&)>& is_given_;
  std::vector<NodeRef> made_;
  Replaced result_;
};

class TracePatterns : public TapeGraph, public PatternBuilder {
 public:
  TracePatterns(const std::vector<NodeRef>& tape, std::span<const array> outputs,
                std::span<const array> inputs)
      : TapeGraph(tape), inputs_(inputs) {
    for (const array& output : outputs) add_output(output.node().get());
  }

  bool is_open(const Node& node) const override {
    if (!node.is_traced_here() && !node.is_lazy()) return false;  // its inputs are an evaluation's
    if (node.row == nullptr || node.inputs.empty()) return false;
    return !is_placeholder(node) && (!node.is_traced_here() || is_in_tape(node));
  }
  bool is_private(const Node& node, int edges) const override {
    if (!node.is_traced_here()) return node.references() == edges;
    return !node.is_held() && TapeGraph::is_private(node, edges);
  }
  bool is_given(const Node&) const override { return false; }
  array number(const NodeRef& full, const Shape& shape, Dtype dtype) override {
    const FullParams& p = std::get<FullParams>(full->params);
    return make_node(*full->row, {}, FullParams{shape, p.value, dtype}, full->stream);
  }

  bool run() {
    const GraphLock lock;
    bool any = false;
    for_each_replacement(tape_, Before::transform, *this, *this,
                         [&](const NodeRef& root, const array& result) {
                           become(*root, *result.node());
                           any = true;
                         });
    return any;
  }

 private:
  // Also that of a trace around this one, which must keep it.
  static bool is_placeholder(const Node& node) {
    const auto* move = std::get_if<MoveLowering>(&node.row->lowering.value);
    return move != nullptr && move->row_major && node.shape == node.inputs[0]->shape;
  }

  bool is_in_tape(const Node& node) const {
    if (traced_.empty()) {
      for (const NodeRef& one : tape_) traced_.insert(one.get());
      for (const array& input : inputs_) traced_.erase(input.node().get());
    }
    return traced_.contains(&node);
  }

  static void become(Node& root, const Node& result) {
    root.row = result.row;
    root.params = result.params;
    root.inputs = result.inputs;
    bound_laziness(root);
  }

  std::span<const array> inputs_;
  mutable std::unordered_set<const Node*> traced_;
};

}  // namespace

std::vector<NodeRef> Replaced::tape(std::span<const NodeRef> outputs,
                                    std::span<const NodeRef> inputs) const {
  struct Frame {
    NodeRef node;
    std::span<const NodeRef> edges;
    size_t next = 0;
  };
  std::unordered_set<const Node*> stops, seen;
  for (const NodeRef& input : inputs) stops.insert(input.get());
  std::vector<NodeRef> tape;
  std::vector<Frame> stack;
  const auto visit = [&](const NodeRef& node) {
    if (!seen.insert(node.get()).second) return;
    const auto it = nodes.find(node.get());
    std::span<const NodeRef> edges = node->edges();
    if (stops.contains(node.get())) edges = {};
    else if (it != nodes.end()) edges = {&it->second, 1};
    stack.push_back({node, edges});
  };
  for (const NodeRef& output : outputs) {
    visit(output);
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.edges.size()) {
        visit(top.edges[top.next++]);
      } else {
        tape.push_back(std::move(top.node));
        stack.pop_back();
      }
    }
  }
  return tape;
}

Replaced replace_patterns(const std::vector<NodeRef>& tape, std::span<const NodeRef> outputs,
                          const std::function<bool(const Node&)>& is_leaf,
                          const std::function<bool(const Node&)>& is_given) {
  if (!has_roots(tape, Before::plan)) return {};
  const UnboundedLaziness unbounded;
  PlanPatterns patterns(tape, is_leaf, is_given);
  for (const NodeRef& output : outputs) patterns.add_output(output.get());
  return patterns.run();
}

bool replace_patterns(const std::vector<NodeRef>& tape, std::span<const array> outputs,
                      std::span<const array> inputs) {
  return has_roots(tape, Before::transform) && TracePatterns(tape, outputs, inputs).run();
}

}  // namespace cermet::schedule
