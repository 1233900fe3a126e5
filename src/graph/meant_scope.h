// SPDX-License-Identifier: MIT
// Errors name the op that the user called, and its line: what a function or a transform makes of a call is
// told of as that call, whatever ops it is made of.
#pragma once

#include <optional>

#include "graph/node.h"
#include "graph/op.h"

namespace cermet {

// What errors name where they tell of the node.
inline const char* meant_name(const Node& node) {
  return node.meant != nullptr ? node.meant : node.row->name.value;
}

// While one lives, nodes that this thread makes are told of as what the user called.
class MeantScope {
 public:
  // As the node is: what is made stands for it, and was not called for itself.
  explicit MeantScope(const Node& node) : before_(current_) {
    current_ = {meant_name(node), node.origin};
  }
  // By a name that lives on; inside another scope, by that one's.
  explicit MeantScope(const char* name) : before_(current_) {
    if (current_.name == nullptr) current_.name = name;
  }
  ~MeantScope() { current_ = before_; }
  MeantScope(const MeantScope&) = delete;
  MeantScope& operator=(const MeantScope&) = delete;

  // For an error that is raised now.
  static const char* name_or(const char* op) {
    return current_.name != nullptr ? current_.name : op;
  }
  // Whether the node has its origin, too.
  static bool mark(Node& node) {
    node.meant = current_.name;
    if (current_.origin) node.origin = *current_.origin;
    return current_.origin.has_value();
  }

 private:
  struct Meant {
    const char* name = nullptr;
    std::optional<Origin> origin;  // none: where the user is now
  };
  static constinit thread_local Meant current_;
  Meant before_;
};

}  // namespace cermet
