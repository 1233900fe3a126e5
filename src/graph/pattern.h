// SPDX-License-Identifier: MIT
// A pattern: what a row looks like when it is spelled out in other rows, such as attention in plain ops.
// It replaces one node, its root, and only where nobody else wants what lies between the root and the
// pattern's inputs. It looks at the graph, dtypes and sizes alone: never at numbers, whose values
// may differ at each run (but -inf, which is part of a plan). schedule/patterns.h applies patterns.
#pragma once

#include <optional>

#include "graph/op.h"

namespace cermet {

// The graph in which patterns are looked for.
class PatternGraph {
 public:
  virtual ~PatternGraph() = default;
  // The node may be looked into: it is no leaf.
  virtual bool is_open(const Node& node) const = 0;
  // These many edges to the node are all; it is no result and nobody holds it.
  virtual bool is_private(const Node& node, int edges) const = 0;
  // The value of a full node is given anew at each run.
  virtual bool is_given(const Node& full) const = 0;
};

// What makes nodes for a pattern whose values may be numbers of the graph.
class PatternBuilder {
 public:
  virtual ~PatternBuilder() = default;
  // An array filled with the number of a full node, as that holds it; no narrower than its dtype.
  virtual array number(const NodeRef& full, const Shape& shape, Dtype dtype) = 0;
};

struct Pattern {
  // The kernel of what is spelled out is as good: it is replaced before a transform alone, for its derivative.
  bool is_for_transforms;
  // Cheap, as it is asked of every node; what it turns down is no root.
  bool (*may_be_root)(const Node& node);
  // What stands for the root, in its shape and dtype; nullopt: it is none of the pattern.
  std::optional<array> (*find)(const NodeRef& root, const PatternGraph& graph,
                               PatternBuilder& builder);
};

extern const Pattern attention_pattern;  // fused/attention_pattern.cpp
extern const Pattern softmax_pattern;    // ops/softmax.cpp

}  // namespace cermet
