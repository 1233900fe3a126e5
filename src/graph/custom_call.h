// SPDX-License-Identifier: MIT
// A call of a function that says itself how transforms treat it: custom_function, checkpoint. Each of its
// results is a node of the row custom_call on what the function gave; evaluation passes through it. All
// of them share the call, by which a transform treats them together.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "graph/array.h"

namespace cermet {

struct CustomCall;

// Rules build graphs. Where one gives nullopt, the transform goes through what the function gave.
class CallRules {
 public:
  using Parts = std::vector<std::optional<array>>;  // nullopt: none, as of integers

  virtual ~CallRules() = default;
  virtual bool has_vjp() const { return false; }
  virtual bool has_jvp() const { return false; }
  virtual bool has_vmap() const { return false; }
  // Cotangents of the arguments, given those of the results.
  virtual Parts vjp(const CustomCall& call, const Arrays& results, const Arrays& cotangents) const;
  // Tangents of the results, given those of the arguments.
  virtual Arrays jvp(const CustomCall& call, const Parts& tangents) const;
  // The results with the batch axis at 0, given the arguments, some with the batch axis at 0.
  virtual Arrays vmap(const CustomCall& call, const Arrays& arguments,
                      const std::vector<bool>& batched, const Dim& size) const;
  // The rules of the call batched, as the same function applied along axis 0 of the arguments.
  virtual std::shared_ptr<const CallRules> batched(const std::vector<bool>& batched,
                                                   const Dim& size) const = 0;
};

struct CustomCall {
  std::shared_ptr<const CallRules> rules;
  std::vector<NodeRef> outputs;    // what the function gave
  std::vector<NodeRef> arguments;  // whose cotangents the rules give
};

// While one lives, nodes that this thread makes are of its scope or of one inside it: those of smaller
// numbers were there before.
class NodeScope {
 public:
  NodeScope();
  ~NodeScope() { current_ = before_; }
  NodeScope(const NodeScope&) = delete;
  NodeScope& operator=(const NodeScope&) = delete;

  int64_t number() const { return number_; }
  static int64_t current() { return current_; }

 private:
  static constinit thread_local int64_t current_;
  int64_t number_, before_;
};

}  // namespace cermet
