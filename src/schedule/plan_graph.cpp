// SPDX-License-Identifier: MIT
#include "schedule/plan_graph.h"

#include <bit>
#include <map>
#include <memory_resource>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/laziness.h"
#include "ops/ops.h"
#include "runtime/poll.h"
#include "schedule/flat.h"
#include "schedule/fresh_targets.h"
#include "schedule/memory_order.h"
#include "schedule/patterns.h"
#include "schedule/regions.h"

namespace cermet::schedule {

namespace {

class Maker {
 public:
  explicit Maker(const TracedGraph& traced) : traced_(traced) {
    const std::vector<NodeRef>& inputs = traced.inputs;
    graph_.inputs.resize(inputs.size(), -1);
    for (size_t i = 0; i < inputs.size(); i++) input_position_.emplace(inputs[i].get(), i);
    for (const NodeRef& node : traced.scalars) scalars_.insert(node.get());
    for (const auto& [node, other] : traced.equal) equal_.emplace(node.get(), other);
  }

  PlanGraph make() {
    const std::vector<NodeRef>&inputs = traced_.inputs, &outputs = traced_.outputs;
    std::vector<NodeRef> tape = tape_to(outputs, inputs);
    replaced_ = replace_patterns(
        tape, outputs, [&](const Node& node) { return is_leaf(node); },
        [&](const Node& node) { return scalars_.contains(&node); });
    if (!replaced_.nodes.empty()) tape = replaced_.tape(outputs, inputs);
    add_tape(tape);
    for (const NodeRef& output : outputs) {
      const Id id = ids_.at(output.get());
      graph_.nodes[id].needed = true;
      graph_.outputs.push_back(id);
    }
    return std::move(graph_);
  }

 private:
  void add_tape(const std::vector<NodeRef>& tape) {
    for (const NodeRef& node : tape) {
      check_cancelled("eval");
      if (!ids_.contains(node.get())) ids_.emplace(node.get(), add(node));
    }
  }

  Id add(const NodeRef& node) {
    keep_.push_back(node);
    auto position = input_position_.find(node.get());
    if (is_leaf(*node))
      return add_leaf(node,
                      position == input_position_.end() ? -1 : static_cast<int>(position->second));
    if (const auto other = replaced_.nodes.find(node.get()); other != replaced_.nodes.end())
      return ids_.at(other->second.get());
    if (const auto* composite = std::get_if<CompositeLowering>(&node->row->lowering.value))
      return add_composite(node, *composite);
    if (const auto* contract = std::get_if<ContractLowering>(&node->row->lowering.value))
      if (const std::optional<Id> sum = add_few_terms(node, *contract)) return *sum;
    if (const auto* fold = std::get_if<FoldLowering>(&node->row->lowering.value))
      if (const std::optional<Id> result = add_few_elements(node, *fold)) return *result;
    if (const auto* move = std::get_if<MoveLowering>(&node->row->lowering.value))
      if (const std::optional<Id> result = add_in_parts(node, *move)) return *result;
    PlanNode plan{.node = node, .inputs = {}};
    for (const NodeRef& input : node->inputs) plan.inputs.push_back(ids_.at(input.get()));
    if (node->row->effect == Effect::barrier) return add_barrier(std::move(plan));
    if (std::holds_alternative<FullParams>(node->params)) return add_full(std::move(plan));
    return add_merged(std::move(plan));
  }

  bool is_leaf(const Node& node) const {
    return node.row == nullptr || node.is_ready() || input_position_.contains(&node);
  }

  Id push(PlanNode plan) {
    plan.kernel = kernel_;
    plan.meant = meant_ ? meant_ : plan.node;
    graph_.nodes.push_back(std::move(plan));
    return static_cast<Id>(graph_.nodes.size() - 1);
  }

  Id add_leaf(const NodeRef& node, int position) {
    CERMET_CHECK(
        position >= 0 || node->is_ready(), value, "eval",
        "an array of shape {} has no data: it belongs to a trace (compile, vmap or grad); return "
        "it from the function, and evaluate it outside",
        node->shape.to_string());
    const Id id = push({.node = node, .inputs = {}, .leaf = true});
    if (position >= 0) graph_.inputs[position] = id;
    else graph_.constants.push_back(node);
    if (!lies_apart(*node)) return id;
    // Movement may be copied in order for who reads it again and again, a leaf may not.
    const UnboundedLaziness unbounded;
    const array there = expand_dims(array(node), {0}), back = squeeze(there, AxisList{0});
    return push({.node = back.node(), .inputs = {push({.node = there.node(), .inputs = {id}})}});
  }

  // What follows an element in its order does not in memory, as in a matrix's column, or a transposed matrix.
  static bool lies_apart(const Node& node) {
    if (!node.is_ready()) return false;
    bool apart = false;
    for (int axis = 0; axis < node.shape.ndim(); ++axis) {
      const Dim& stride = node.layout.strides[static_cast<size_t>(axis)];
      if (node.shape[axis] == 1) continue;
      if (stride == 0) return false;
      apart = stride != 1;
    }
    return apart;
  }

  std::optional<Id> add_few_terms(const NodeRef& node, const ContractLowering& contract) {
    if (kernel_ >= 0) return std::nullopt;
    const Arrays inputs = inputs_of(*node);
    const UnboundedLaziness unbounded;
    const std::optional<array> sum = contract.few_terms({*node->row, node->params, inputs});
    if (!sum) return std::nullopt;
    return add_graph(node, *sum);
  }

  std::optional<Id> add_few_elements(const NodeRef& node, const FoldLowering& fold) {
    if (kernel_ >= 0 || fold.few_elements == nullptr) return std::nullopt;
    const Arrays inputs = inputs_of(*node);
    const UnboundedLaziness unbounded;
    const std::optional<array> result = fold.few_elements(
        {*node->row, node->params, inputs}, input_of_fold(ids_.at(node->inputs[0].get())));
    if (!result) return std::nullopt;
    return add_graph(node, *result);
  }

  std::optional<Id> add_in_parts(const NodeRef& node, const MoveLowering& move) {
    if (kernel_ >= 0 || move.in_parts == nullptr) return std::nullopt;
    const Arrays inputs = inputs_of(*node);
    const UnboundedLaziness unbounded;
    const std::optional<array> result = move.in_parts({*node->row, node->params, inputs});
    if (!result) return std::nullopt;
    return add_graph(node, *result);
  }

  // Moved and cast from a leaf at most.
  FoldLowering::Input input_of_fold(Id id) const {
    std::vector<Id> read;
    const auto is_read = [](const PlanNode& n) {
      return !n.leaf && (n.lowering<MoveLowering>() != nullptr ||
                         std::holds_alternative<CastParams>(n.node->params));
    };
    for (; is_read(graph_.nodes[id]) && !graph_.nodes[id].inputs.empty();
         id = graph_.nodes[id].inputs[0])
      read.push_back(id);
    if (!graph_.nodes[id].leaf) return {};
    FoldLowering::Input input{.is_there = true, .layout = own_layout(graph_.nodes[id])};
    for (size_t i = read.size(); input.layout && i-- > 0;)
      if (graph_.nodes[read[i]].lowering<MoveLowering>() != nullptr)
        input.layout = view_layout(graph_, read[i], *input.layout);
    const Shape& shape = graph_.nodes[read.empty() ? id : read[0]].node->shape;
    input.is_in_rows = input.layout && lies_in_rows(shape, *input.layout);
    return input;
  }

  static bool lies_in_rows(const Shape& shape, const Layout& layout) {
    const auto stride = [&](int axis) { return layout.strides[static_cast<size_t>(axis)]; };
    int axis = shape.ndim() - 1;
    if (axis < 1 || stride(axis) != 1 || shape.count() < kManyPoints) return false;
    const Dim length = shape[axis], apart = stride(--axis);
    if (apart < length) return false;  // windows
    Dim rows = shape[axis];
    for (--axis; axis >= 0 && stride(axis) == rows * apart; --axis) rows *= shape[axis];
    return rows >= kManyRows;
  }

  // For the graph that stands for a node: numbers that are given at each run are not to be seen in it.
  Arrays inputs_of(const Node& node) {
    Arrays inputs;
    for (const NodeRef& input : node.inputs)
      inputs.emplace_back(scalars_.contains(input.get()) || replaced_.numbers.contains(input.get())
                              ? stand_in(input)
                              : input);
    return inputs;
  }

  NodeRef stand_in(const NodeRef& scalar) {
    NodeRef& made = stand_ins_[scalar.get()];
    if (made) return made;
    made = NodeRef(new Node);
    made->row = nullptr;
    made->dtype = scalar->dtype;
    made->shape = scalar->shape;
    made->stream = scalar->stream;
    ids_.emplace(made.get(), ids_.at(scalar.get()));
    return made;
  }

  Id add_composite(const NodeRef& node, const CompositeLowering& composite) {
    const Arrays inputs = inputs_of(*node);
    const UnboundedLaziness unbounded;
    const array result = composite.graph({*node->row, node->params, inputs});
    const int around = kernel_;
    const NodeRef meant = meant_;
    if (!meant_) meant_ = node;
    if (around < 0 && composite.kernel != nullptr) {
      if (auto common = composite.kernel({*node->row, node->params, inputs}))
        kernel_ = number_of(*node, *common);
    }
    const Id id = add_graph(node, result);
    kernel_ = around;
    meant_ = meant;
    return id;
  }

  // What stands for the node.
  Id add_graph(const NodeRef& node, const array& result) {
    CERMET_INTERNAL_CHECK(result.shape() == node->shape && result.dtype() == node->dtype,
                          "the graph of {} gives {} {} for {} {}", node->row->name.value,
                          name_of(result.dtype()), result.shape().to_string(), name_of(node->dtype),
                          node->shape.to_string());
    add_tape(tape_to({&result.node(), 1}, node->inputs));
    return ids_.at(result.node().get());
  }

  // Of the kernel for all calls of the row on these inputs that have this in common.
  int number_of(const Node& node, const Params& common) {
    std::vector<Id> inputs;
    for (const NodeRef& input : node.inputs) inputs.push_back(ids_.at(input.get()));
    auto& kernels = kernels_[{node.row, std::move(inputs)}];
    for (const auto& [params, number] : kernels) {
      if (equal_params(params, common)) return number;
    }
    kernels.emplace_back(common, n_kernels_);
    return n_kernels_++;
  }

  // A view of its first input, which lies in memory; the others are waited for, unless they are there.
  Id add_barrier(PlanNode plan) {
    graph_.nodes[plan.inputs[0]].border = true;
    for (size_t k = 1; k < plan.inputs.size(); k++)
      if (!graph_.nodes[plan.inputs[k]].inputs.empty()) plan.after.push_back(plan.inputs[k]);
    plan.inputs.shrink(1);
    return push(std::move(plan));
  }

  Id add_full(PlanNode plan) {
    NodeRef node = plan.node;
    if (const auto from = replaced_.numbers.find(node.get()); from != replaced_.numbers.end())
      node = from->second;
    if (const auto other = equal_.find(node.get()); other != equal_.end()) {
      add_tape({other->second});
      return ids_.at(other->second.get());
    }
    if (scalars_.contains(node.get())) {
      plan.scalar = static_cast<int>(graph_.scalars.size());
      graph_.scalars.push_back(node);
      return push(std::move(plan));
    }
    return add_merged(std::move(plan));
  }

  Id add_merged(PlanNode plan) {
    uint64_t key = hash_params(plan.node->params) * 31 + static_cast<uint64_t>(plan.node->dtype);
    key = key * 0x9e3779b97f4a7c15u + reinterpret_cast<uintptr_t>(plan.node->row);
    key += static_cast<uint64_t>(kernel_);
    for (Id input : plan.inputs) key = (key ^ static_cast<uint64_t>(input)) * 0x9e3779b97f4a7c15u;
    auto [begin, end] = merged_.equal_range(key);
    for (auto it = begin; it != end; ++it) {
      const PlanNode& other = graph_.nodes[it->second];
      if (other.kernel == kernel_ && other.node->row == plan.node->row &&
          other.inputs == plan.inputs && other.node->dtype == plan.node->dtype &&
          other.node->shape == plan.node->shape && plan.node->row->effect == Effect::none &&
          equal_params(other.node->params, plan.node->params))
        return it->second;
    }
    const Id id = push(std::move(plan));
    merged_.emplace(key, id);
    return id;
  }

  const TracedGraph& traced_;
  PlanGraph graph_;
  // Of the tables, which grow with the graph and go as a whole.
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::unordered_map<const Node*, size_t> input_position_{&memory_};
  std::pmr::unordered_set<const Node*> scalars_{&memory_};
  std::pmr::unordered_map<const Node*, NodeRef> equal_{&memory_};  // of scalars
  std::map<const Node*, NodeRef> stand_ins_;                       // for scalars
  Replaced replaced_;
  std::pmr::unordered_map<const Node*, Id> ids_{&memory_};
  std::pmr::unordered_multimap<uint64_t, Id> merged_{&memory_};
  std::map<std::pair<const OpRow*, std::vector<Id>>, std::vector<std::pair<Params, int>>> kernels_;
  int n_kernels_ = 0;
  int kernel_ = -1;  // that nodes are added to; equal nodes of different kernels stay apart
  NodeRef meant_;    // the outermost composite that is being added
  std::vector<NodeRef> keep_;  // addresses in ids_ stay taken while the graph is made
};

}  // namespace

std::vector<int> reader_counts(const PlanGraph& graph) {
  std::vector<int> counts(graph.nodes.size(), 0);
  for (const PlanNode& n : graph.nodes)
    for (Id input : n.inputs) counts[input]++;
  return counts;
}

PlanGraph make_plan_graph(const TracedGraph& graph) {
  PlanGraph made = Maker(graph).make();
  find_fresh_targets(made);
  choose_memory_orders(made);
  return made;
}

bool is_other_dtype(const PlanGraph& graph, Id id) {
  const PlanNode& n = graph.nodes[id];
  return n.inputs.size() == 1 && n.node->dtype != graph.nodes[n.inputs[0]].node->dtype;
}

bool widens(const Node& node) {
  return node.inputs.size() == 1 && size_of(node.dtype) > size_of(node.inputs[0]->dtype) &&
         std::holds_alternative<MoveLowering>(node.row->lowering.value);
}

size_t alignment_of(const Node& node) {
  const auto offset = static_cast<uint64_t>(node.layout.offset) * size_of(node.dtype);
  const uint64_t place = reinterpret_cast<uintptr_t>(node.buffer->data()) + offset;
  return size_t{1} << std::countr_zero(place | offset | kMostAlignment);
}

PlanNodeView::PlanNodeView(const PlanGraph& graph, Id id)
    : view_{graph.nodes[id].row(),       graph.nodes[id].node->params,
            graph.nodes[id].node->dtype, graph.nodes[id].node->shape,
            {graph.nodes[id].row(), {}}, {graph.nodes[id].row(), {}}} {
  for (Id input : graph.nodes[id].inputs) {
    dtypes_.push_back(graph.nodes[input].node->dtype);
    shapes_.push_back(&graph.nodes[input].node->shape);
  }
  view_.input_dtypes = {view_.row, dtypes_};
  view_.input_shapes = {view_.row, shapes_};
}

}  // namespace cermet::schedule
