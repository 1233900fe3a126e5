// SPDX-License-Identifier: MIT
// The graph as the schedule works on it: numbered nodes in topological order, composite rows replaced by
// their graphs, equal nodes merged, identities passed through. It refers to positions, so a program made
// from it serves every graph of equal plan.
#pragma once

#include <utility>
#include <vector>

#include "graph/op.h"

namespace cermet {

// A traced graph: `inputs` are leaf nodes (placeholders or data), `outputs` what is wanted, `scalars` the
// full nodes whose values are given at each run, values of other full nodes are constants.
struct TracedGraph {
  std::vector<NodeRef> inputs;
  std::vector<NodeRef> outputs;
  std::vector<NodeRef> scalars;
  std::vector<std::pair<NodeRef, NodeRef>> equal = {};  // scalars: the second stands for the first
};

}  // namespace cermet

namespace cermet::schedule {

using Id = int32_t;

struct PlanNode {
  NodeRef node;
  InlineVector<Id, 3> inputs;
  bool leaf = false;           // data: ready, or a placeholder of a trace
  bool needed = false;         // must lie in memory when the program ends
  bool border = false;         // behind a barrier: never computed inside a consumer's region
  std::vector<Id> after = {};  // a barrier: its users' regions come after those that make these
  int scalar = -1;             // full: position among the program's scalars
  bool fresh_target = false;   // update: of input 0 no element is seen; see fresh_targets.h
  int kernel = -1;             // of a composite that is one kernel: its number
  Strides strides = {};        // of the memory made for it; empty: row-major; see memory_order.h
  NodeRef meant = {};          // what the user made: the outermost composite that it is of, or node

  const OpRow& row() const { return *node->row; }
  template <typename L>
  const L* lowering() const {
    return leaf ? nullptr : std::get_if<L>(&row().lowering.value);
  }
};

struct PlanGraph {
  std::vector<PlanNode> nodes;     // inputs before users
  std::vector<Id> inputs;          // leaf of each program input, -1: unused
  std::vector<Id> outputs;         // one for each wanted node
  std::vector<NodeRef> scalars;    // full nodes whose values the program takes when it runs
  std::vector<NodeRef> constants;  // leaves that are no inputs: data of the trace itself
};

PlanGraph make_plan_graph(const TracedGraph& graph);
// Of each node, how often it is an input.
std::vector<int> reader_counts(const PlanGraph& graph);

// A node of one input, whose elements have another dtype.
bool is_other_dtype(const PlanGraph& graph, Id id);
// Movement that reads bytes as elements of a larger size.
bool widens(const Node& node);
// Of which the place of a ready node's first element is a multiple, in memory and in its buffer: the
// largest power of two up to the size of the largest dtype.
size_t alignment_of(const Node& node);
inline constexpr size_t kMostAlignment = 16;

// A node as the rules of its row see it, with the lists that the view looks at.
class PlanNodeView {
 public:
  PlanNodeView(const PlanGraph& graph, Id id);
  PlanNodeView(const PlanNodeView&) = delete;
  operator const NodeView&() const { return view_; }
  const NodeView* operator->() const { return &view_; }

 private:
  InlineVector<Dtype, 4> dtypes_;
  InlineVector<const Shape*, 4> shapes_;
  NodeView view_;
};

}  // namespace cermet::schedule
