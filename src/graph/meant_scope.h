// SPDX-License-Identifier: MIT
// Errors at run time name the op that the user called and its line. What a transform makes of a call is told
// of as that call, whatever ops its derivative is made of.
#pragma once

#include "graph/node.h"

namespace cermet {

// What errors name where they tell of the node.
inline const OpRow* meant_row(const Node& node) {
  return node.meant != nullptr ? node.meant : node.row;
}

// While one lives, nodes that this thread makes are told of as the node is.
class MeantScope {
 public:
  explicit MeantScope(const Node& node) : before_(current_) {
    current_ = {meant_row(node), node.origin};
  }
  ~MeantScope() { current_ = before_; }
  MeantScope(const MeantScope&) = delete;
  MeantScope& operator=(const MeantScope&) = delete;

  // False: no scope lives, and the node is what the user makes.
  static bool mark(Node& node) {
    if (current_.row == nullptr) return false;
    node.meant = current_.row;
    node.origin = current_.origin;
    return true;
  }

 private:
  struct Meant {
    const OpRow* row = nullptr;
    Origin origin;
  };
  static constinit thread_local Meant current_;
  Meant before_;
};

}  // namespace cermet
