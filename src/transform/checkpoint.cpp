// SPDX-License-Identifier: MIT
// A checkpointed call keeps what it was given; for its derivative the graph of its results is made again,
// on the same values behind `depends`, so that it runs after the results' cotangents are there and shares
// nothing with the first time (Griewank & Walther 2008, ch. 12). As graphs are copied, not functions
// called again, random numbers come out the same.
#include <unordered_set>

#include "ops/ops.h"
#include "transform/custom.h"
#include "transform/trace.h"

namespace cermet {

namespace {

class CheckpointRules final : public CallRules,
                              public std::enable_shared_from_this<CheckpointRules> {
 public:
  bool has_vjp() const override { return true; }

  Parts vjp(const CustomCall& call, const Arrays&, const Arrays& cotangents) const override {
    Arrays given;
    for (const NodeRef& argument : call.arguments) given.emplace_back(argument);
    const Arrays again = depends(given, cotangents);
    const Arrays results = rebuilt(call.outputs, given, again);
    const Arrays all = vjp_of(results, cotangents, again);
    Parts parts;
    for (size_t i = 0; i < all.size(); i++)
      parts.push_back(is_inexact(given[i].dtype()) && given[i].node()->is_traced()
                          ? std::optional<array>(all[i])
                          : std::nullopt);
    return parts;
  }

  std::shared_ptr<const CallRules> batched(const std::vector<bool>&, const Dim&) const override {
    return shared_from_this();
  }
};

// What the graph of the roots was made from: nodes that were there before the scope.
std::vector<NodeRef> made_before(const NodeScope& scope, const Arrays& roots) {
  std::vector<NodeRef> found, stack;
  std::unordered_set<const Node*> seen;
  for (const array& root : roots) stack.push_back(root.node());
  while (!stack.empty()) {
    const NodeRef node = stack.back();
    stack.pop_back();
    if (!seen.insert(node.get()).second) continue;
    if (node->scope < scope.number() || node->row == nullptr) found.push_back(node);
    else for_each_source(*node, [&](const NodeRef& source) { stack.push_back(source); });
  }
  return found;
}

}  // namespace

Arrays checkpointed(const std::function<Arrays()>& f) {
  const NodeScope scope;
  Arrays results = f();
  auto call = std::make_shared<CustomCall>();
  Arrays inner;
  for (const array& a : results)
    if (a.node()->is_traced() && is_inexact(a.dtype())) inner.push_back(a);
  if (inner.empty()) return results;
  call->rules = std::make_shared<CheckpointRules>();
  call->arguments = made_before(scope, inner);
  for (const array& a : inner) call->outputs.push_back(a.node());
  int next = 0;
  for (array& a : results)
    if (a.node()->is_traced() && is_inexact(a.dtype())) a = custom_call(call, next++);
  return results;
}

Function checkpoint(Function f) {
  return
      [f = std::move(f)](const Arrays& inputs) { return checkpointed([&] { return f(inputs); }); };
}

}  // namespace cermet
