// SPDX-License-Identifier: MIT
// Ops of one evaluation that are the same but for the node of a number, of equal value, are one op of the
// plan, as they are where `compile` has made numbers constants. Only there does a plan depend on values.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "graph/node.h"

namespace cermet::schedule {

// Its tables keep their memory from one evaluation to the next.
class EqualScalars {
 public:
  // Appends pairs (number, the one that stands for it). nodes: inputs before users; scalars: full nodes
  // among them. The marks of the nodes and of their inputs hold positions below `positions`.
  void find(std::span<const NodeRef> nodes, std::span<const NodeRef> scalars, uint32_t positions,
            std::vector<std::pair<NodeRef, NodeRef>>& pairs);

 private:
  enum class Use : uint8_t { none, scalar, paired };  // paired: a scalar that stands in equal ops
  struct Known {
    uint64_t key = 0;
    const NodeRef* node = nullptr;
  };

  const Node* first(const NodeRef& node) const;  // that computes the same
  bool same(const Node& a, const Node& b) const;
  const Node* number(const NodeRef& node);
  void pair_scalars(const Node& a, const Node& b);

  std::vector<const NodeRef*> first_;  // by position; null: the node itself
  std::vector<Use> use_;               // by position
  std::vector<Known> known_;           // hashed, with open addressing
};

}  // namespace cermet::schedule
