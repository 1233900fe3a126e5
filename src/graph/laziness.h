// SPDX-License-Identifier: MIT
// Where nodes are made only to be looked at, such as the graph of a composite while it is planned, the
// bounds of laziness must not evaluate them.
#pragma once

namespace cermet {

// While one lives, this thread makes nodes without evaluating what they need.
class UnboundedLaziness {
 public:
  UnboundedLaziness() { ++depth_; }
  ~UnboundedLaziness() { --depth_; }
  UnboundedLaziness(const UnboundedLaziness&) = delete;
  UnboundedLaziness& operator=(const UnboundedLaziness&) = delete;

  static bool is_active() { return depth_ > 0; }

 private:
  static constinit thread_local int depth_;
};

}  // namespace cermet
