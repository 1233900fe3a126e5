// SPDX-License-Identifier: MIT
#include "schedule/equal_scalars.h"

#include <algorithm>
#include <unordered_map>

#include "graph/op.h"

namespace cermet::schedule {

namespace {

// Gives each node the first one that computes the same.
class Finder {
 public:
  std::vector<std::pair<NodeRef, NodeRef>> find(std::span<const NodeRef> nodes,
                                                std::span<const NodeRef> scalars) {
    for (const NodeRef& scalar : scalars) is_scalar_.emplace(scalar.get(), false);
    for (const NodeRef& scalar : scalars) number(scalar);
    if (first_.empty()) return {};
    for (const NodeRef& node : nodes) {
      if (node->row == nullptr || node->row->effect != Effect::none ||
          is_scalar_.contains(node.get()))
        continue;
      // What is made of numbers alone is made by each kernel that wants it.
      const bool is_number = node->shape.size() == 1;
      const Node* other = number(node);
      if (other != nullptr && !is_number) pair_scalars(*node, *other);
    }
    std::vector<std::pair<NodeRef, NodeRef>> pairs;
    for (const NodeRef& scalar : scalars)
      if (is_scalar_.at(scalar.get()) && first_.contains(scalar.get()))
        pairs.emplace_back(scalar, *first_.at(scalar.get()));
    return pairs;
  }

 private:
  const Node* first(const NodeRef& node) const {
    const auto it = first_.find(node.get());
    return it == first_.end() ? node.get() : it->second->get();
  }

  bool same(const Node& a, const Node& b) const {
    return a.row == b.row && a.dtype == b.dtype && a.shape == b.shape &&
           std::ranges::equal(
               a.inputs, b.inputs,
               [&](const NodeRef& x, const NodeRef& y) { return first(x) == first(y); }) &&
           equal_params(a.params, b.params);
  }

  // Null: nothing before it is the same.
  const Node* number(const NodeRef& node) {
    uint64_t key = hash_params(node->params) ^ reinterpret_cast<uintptr_t>(node->row);
    for (const NodeRef& input : node->inputs)
      key = (key ^ reinterpret_cast<uintptr_t>(first(input))) * 0x9e3779b97f4a7c15u;
    const auto [begin, end] = known_.equal_range(key);
    for (auto it = begin; it != end; ++it) {
      if (!same(**it->second, *node)) continue;
      first_.emplace(node.get(), it->second);
      return it->second->get();
    }
    known_.emplace(key, &node);
    return nullptr;
  }

  void pair_scalars(const Node& a, const Node& b) {
    for (size_t k = 0; k < a.inputs.size(); k++) {
      if (a.inputs[k].get() == b.inputs[k].get()) continue;
      for (const Node* input : {a.inputs[k].get(), b.inputs[k].get()})
        if (auto it = is_scalar_.find(input); it != is_scalar_.end()) it->second = true;
    }
  }

  std::unordered_map<const Node*, bool> is_scalar_;        // and whether it stands in equal ops
  std::unordered_map<const Node*, const NodeRef*> first_;  // of nodes that are not the first
  std::unordered_multimap<uint64_t, const NodeRef*> known_;
};

}  // namespace

std::vector<std::pair<NodeRef, NodeRef>> find_equal_scalars(std::span<const NodeRef> nodes,
                                                            std::span<const NodeRef> scalars) {
  if (scalars.size() < 2) return {};
  return Finder().find(nodes, scalars);
}

}  // namespace cermet::schedule
