// SPDX-License-Identifier: MIT
// References to nodes: one, and the few that a node has as its inputs. They count as edges, not as held.
#pragma once

#include <utility>

#include "base/inline_vector.h"

namespace cermet {

class Node;

// Intrusive reference to a node (an edge, a tape, a trace): not counted as held.
class NodeRef {
 public:
  NodeRef() = default;
  explicit NodeRef(Node* node);  // adds a reference
  NodeRef(const NodeRef& other);
  NodeRef(NodeRef&& other) noexcept : node_(other.node_) { other.node_ = nullptr; }
  NodeRef& operator=(NodeRef other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~NodeRef();
  Node* get() const { return node_; }
  Node& operator*() const { return *node_; }
  Node* operator->() const { return node_; }
  explicit operator bool() const { return node_ != nullptr; }
  bool operator==(const NodeRef& other) const { return node_ == other.node_; }

 private:
  static void destroy(Node* last);  // nobody refers to it any more

  Node* node_ = nullptr;
};

// Most nodes have few inputs.
using NodeList = InlineVector<NodeRef, 3>;

}  // namespace cermet
