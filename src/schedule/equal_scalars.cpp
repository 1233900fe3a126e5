// SPDX-License-Identifier: MIT
#include "schedule/equal_scalars.h"

#include <algorithm>
#include <bit>

#include "graph/op.h"

namespace cermet::schedule {

namespace {

uint64_t mixed(uint64_t key, uint64_t value) {
  key = (key ^ value) * 0x9e3779b97f4a7c15u;
  return key ^ key >> 32;
}

}  // namespace

void EqualScalars::find(std::span<const NodeRef> nodes, std::span<const NodeRef> scalars,
                        uint32_t positions, std::vector<std::pair<NodeRef, NodeRef>>& pairs) {
  if (scalars.size() < 2) return;
  first_.assign(positions, nullptr);
  use_.assign(positions, Use::none);
  known_.assign(std::bit_ceil(2 * nodes.size()), Known{});
  for (const NodeRef& scalar : scalars) use_[scalar->mark.position] = Use::scalar;
  bool any = false;
  for (const NodeRef& scalar : scalars) any |= number(scalar) != nullptr;
  if (!any) return;
  for (const NodeRef& node : nodes) {
    if (node->row == nullptr || node->row->effect != Effect::none ||
        use_[node->mark.position] != Use::none)
      continue;
    // What is made of numbers alone is made by each kernel that wants it.
    const bool is_number = node->shape.size() == 1;
    const Node* other = number(node);
    if (other != nullptr && !is_number) pair_scalars(*node, *other);
  }
  for (const NodeRef& scalar : scalars) {
    const uint32_t position = scalar->mark.position;
    if (use_[position] == Use::paired && first_[position] != nullptr)
      pairs.emplace_back(scalar, *first_[position]);
  }
}

const Node* EqualScalars::first(const NodeRef& node) const {
  const NodeRef* other = first_[node->mark.position];
  return other == nullptr ? node.get() : other->get();
}

bool EqualScalars::same(const Node& a, const Node& b) const {
  return a.row == b.row && a.dtype == b.dtype && a.shape == b.shape &&
         std::ranges::equal(
             a.inputs, b.inputs,
             [&](const NodeRef& x, const NodeRef& y) { return first(x) == first(y); }) &&
         equal_params(a.params, b.params);
}

// Null: nothing before it is the same.
const Node* EqualScalars::number(const NodeRef& node) {
  uint64_t key = mixed(hash_params(node->params), reinterpret_cast<uintptr_t>(node->row));
  for (const NodeRef& input : node->inputs)
    key = mixed(key, reinterpret_cast<uintptr_t>(first(input)));
  const size_t mask = known_.size() - 1;
  for (size_t i = key & mask;; i = (i + 1) & mask) {
    Known& known = known_[i];
    if (known.node == nullptr) {
      known = {key, &node};
      return nullptr;
    }
    if (known.key != key || !same(**known.node, *node)) continue;
    first_[node->mark.position] = known.node;
    return known.node->get();
  }
}

void EqualScalars::pair_scalars(const Node& a, const Node& b) {
  for (size_t k = 0; k < a.inputs.size(); k++) {
    if (a.inputs[k].get() == b.inputs[k].get()) continue;
    for (const Node* input : {a.inputs[k].get(), b.inputs[k].get()}) {
      Use& use = use_[input->mark.position];
      if (use == Use::scalar) use = Use::paired;
    }
  }
}

}  // namespace cermet::schedule
