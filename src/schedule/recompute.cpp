// SPDX-License-Identifier: MIT
#include "schedule/recompute.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory_resource>
#include <unordered_set>

#include "kernel/walk.h"
#include "schedule/analysis.h"

namespace cermet::schedule {

namespace {

constexpr int kMaxRecomputedOps = 48;  // about what a store and a load of an element take
constexpr int kSmallPart = 16;         // of a large value: storing so little costs nothing
constexpr int kMaxDistance = 7;        // ops between a value and a costly one
constexpr int kMaxChain = 256;         // instructions of one, past which none is counted

bool is_small(const PlanGraph& graph, Id id) {
  return bytes_of(graph, id) * kSmallPart <= kLargeBytes;
}

class RecipeFinder {
 public:
  RecipeFinder(const PlanGraph& graph, const InMemory& in_memory, Recipe& recipe)
      : graph_(graph), in_memory_(in_memory), recipe_(recipe) {}

  // False: it takes too much.
  bool add(Id id, int ops) {
    recipe_.ops += ops;
    if (recipe_.ops > kMaxRecomputedOps) return false;
    return std::ranges::all_of(graph_.nodes[id].inputs, [&](Id input) { return add_input(input); });
  }

 private:
  bool add_input(Id id) {
    const PlanNode& n = graph_.nodes[id];
    const bool there = in_memory_(id) || is_small(graph_, id);
    const auto* move = n.lowering<MoveLowering>();
    if (!there && move != nullptr && !move->computes) return add(id, 1);
    if (!there && n.lowering<MapLowering>() != nullptr) return add(id, op_cost(graph_, id));
    if (recipe_.sources.insert(id).second && !there) recipe_.stored += bytes_of(graph_, id);
    return true;
  }

  const PlanGraph& graph_;
  const InMemory& in_memory_;
  Recipe& recipe_;
};

// Instructions that make the value in the common case.
int usual_cost(const ir::Kernel& kernel, const Lane& value) {
  constexpr int kMathCost = 14;  // instructions of a typical expansion
  int cost = 0;
  std::unordered_set<ir::ExprId> seen{ir::kNone};
  std::vector<ir::ExprId> stack{value.re, value.im};
  while (!stack.empty()) {
    const ir::ExprId at = stack.back();
    stack.pop_back();
    if (!seen.insert(at).second) continue;
    const ir::Expr& e = kernel[at];
    if (e.kind == ir::ExprKind::op) cost += ir::is_math(e.code) ? kMathCost : 1;
    if (e.kind == ir::ExprKind::rare) stack.insert(stack.end(), {e.operands[0], e.operands[1]});
    else ir::for_each_operand(e, [&](ir::ExprId operand) { stack.push_back(operand); });
  }
  return cost;
}

bool costly_within(const PlanGraph& graph, Id id, int ops, const InMemory& in_memory, int depth) {
  if (depth == 0) return false;
  return std::ranges::any_of(graph.nodes[id].inputs, [&](Id input) {
    const PlanNode& n = graph.nodes[input];
    if (in_memory(input)) return false;
    const bool map = n.lowering<MapLowering>() != nullptr;
    if (map && op_cost(graph, input) > ops) return true;
    const bool moves = n.lowering<MoveLowering>() != nullptr && n.inputs.size() == 1;
    return (map || moves) && costly_within(graph, input, ops, in_memory, depth - 1);
  });
}

}  // namespace

Dim bytes_of(const PlanGraph& graph, Id id) {
  const Node& node = *graph.nodes[id].node;
  return node.shape.count() * size_of(node.dtype);
}

int op_cost(const PlanGraph& graph, Id id) {
  const auto* map = graph.nodes[id].lowering<MapLowering>();
  if (map == nullptr) return 2;
  static thread_local std::map<std::pair<const OpRow*, Dtype>, int> known;
  const auto key = std::make_pair(&graph.nodes[id].row(), graph.nodes[id].node->dtype);
  auto [it, fresh] = known.emplace(key, 0);
  if (!fresh) return it->second;
  const PlanNodeView view(graph, id);
  AnalysisContext context(view, [](int, const Coords&, bool) {});
  std::vector<Lane> arguments;
  for (size_t k = 0; k < graph.nodes[id].inputs.size(); k++)
    arguments.push_back(context.input(static_cast<int>(k), {}));
  const Lane result = map->expr(context, view, arguments);
  return it->second = usual_cost(context.builder().kernel(), result);
}

std::optional<Recipe> find_recipe(const PlanGraph& graph, Id id, const InMemory& in_memory) {
  Recipe recipe;
  if (!RecipeFinder(graph, in_memory, recipe).add(id, op_cost(graph, id))) return std::nullopt;
  return recipe;
}

namespace {

// joined: also of what lies side by side in it.
int cost_of_chain(const PlanGraph& graph, Id id, const InMemory& in_memory, bool joined) {
  const Dim size = graph.nodes[id].node->shape.count();
  int ops = 0;
  std::array<std::byte, 2048> space;
  std::pmr::monotonic_buffer_resource memory(space.data(), space.size());
  std::pmr::unordered_set<Id> seen(&memory);
  InlineVector<Id, 16> stack{id};
  while (!stack.empty() && ops < kMaxChain) {
    const Id at = stack.back();
    stack.pop_back();
    const PlanNode& n = graph.nodes[at];
    const bool map = n.lowering<MapLowering>() != nullptr;
    const bool moves = n.lowering<MoveLowering>() != nullptr && (joined || n.inputs.size() == 1);
    if (n.leaf || !(map || moves) || n.node->shape.count() > size || !seen.insert(at).second)
      continue;
    if (at != id && in_memory(at)) continue;
    ops += map ? op_cost(graph, at) : 0;
    stack.append(n.inputs);
  }
  return ops;
}

}  // namespace

int cost_of_chain(const PlanGraph& graph, Id id, const InMemory& in_memory) {
  return cost_of_chain(graph, id, in_memory, false);
}

bool is_from_little(const PlanGraph& graph, Id id) {
  const Dim bytes = bytes_of(graph, id);
  int ops = 0, draws = 0;
  InlineVector<Id, 16> stack{id};
  while (!stack.empty()) {
    const Id at = stack.back();
    stack.pop_back();
    const PlanNode& n = graph.nodes[at];
    const auto* move = n.lowering<MoveLowering>();
    const bool is_little = bytes_of(graph, at) * kSmallPart <= bytes;
    if (move != nullptr && move->computes) {
      // A draw costs as much as a store and a load of what stays near.
      if (++draws > 1 || n.node->shape.count() < kLargeBytes) return false;
      continue;
    }
    const bool goes_on = !n.leaf && (move != nullptr || n.lowering<MapLowering>() != nullptr);
    if (!goes_on && !is_little) return false;
    if (!goes_on) continue;
    if (!is_little) ops += move != nullptr ? 1 : op_cost(graph, at);
    if (ops > kMaxRecomputedOps) return false;
    stack.append(n.inputs);
  }
  return true;
}

bool needs_costly(const PlanGraph& graph, Id id, int ops, const InMemory& in_memory) {
  return costly_within(graph, id, ops, in_memory, kMaxDistance);
}

bool is_dear_row(const PlanGraph& graph, Id id, Id product, const InMemory& in_memory) {
  constexpr int kRowCost = 8;             // instructions, beside the load and the fma of an element
  constexpr int64_t kRowSaves = 1 << 18;  // instructions: some times what a launch costs
  const Shape& rows = graph.nodes[graph.nodes[product].inputs[0]].node->shape;
  const Dim size = graph.nodes[id].node->shape.count();
  const int rank = rows.ndim();
  if (rank < 2 || rows[rank - 2] != 1 || size != rows.count() || size == 0) return false;
  const Dim made = quotient(graph.nodes[product].node->shape.count() * rows[rank - 1], size);
  const int64_t cost = cost_of_chain(graph, id, in_memory, true);
  return made >= 2 && cost >= kRowCost && (made - 1) * size * cost >= kRowSaves;
}

}  // namespace cermet::schedule
