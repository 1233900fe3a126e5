// SPDX-License-Identifier: MIT
// Batching: the traced graph is built again on inputs that carry a batch axis, which every rule keeps at
// axis 0. Parts of the graph that no batched input reaches are used as they are.
#include <unordered_map>

#include "base/error.h"
#include "graph/meant_scope.h"
#include "ops/ops.h"
#include "schedule/patterns.h"
#include "transform/trace.h"
#include "transform/transform.h"

namespace cermet {

namespace {

// Axes named by parameters count from the front, so a new axis 0 moves them up.
Params shift_axes(Params params) {
  auto shift = [](Axes& axes) {
    for (int& axis : axes) axis++;
  };
  if (auto* reduce = std::get_if<ReduceParams>(&params)) shift(reduce->axes);
  if (auto* axes = std::get_if<AxesParams>(&params)) shift(axes->axes);
  if (auto* axis = std::get_if<AxisParams>(&params)) axis->axis++;
  return params;
}

class Batcher {
 public:
  Batcher(std::unordered_map<const Node*, array> batched, const Dim& size)
      : batched_(std::move(batched)), size_(size) {}

  void run(const std::vector<NodeRef>& tape) {
    for (const NodeRef& node : tape) step(node);
  }

  const array* find(const NodeRef& node) const {
    auto it = batched_.find(node.get());
    return it == batched_.end() ? nullptr : &it->second;
  }

  array with_batch_axis(const array& a) const {
    Shape shape = a.shape();
    shape.insert(0, size_);
    return broadcast_to(expand_dims(a, {0}), shape);
  }

 private:
  void step(const NodeRef& node) {
    if (batched_.contains(node.get())) return;
    if (const CallParams* p = call_of(*node)) {
      if (const auto call = batched_call(p->call))
        batched_.emplace(node.get(), custom_call(call, p->output));
      return;
    }
    Arrays inputs;
    std::vector<char> flags;
    bool any = false;
    for (const NodeRef& input : node->inputs) {
      const array* batched = find(input);
      inputs.push_back(batched != nullptr ? *batched : array(input));
      flags.push_back(batched != nullptr);
      any |= batched != nullptr;
    }
    if (!any) return;
    const MeantScope meant(*node);
    if (auto result = apply(node, std::move(inputs), flags)) {
      CERMET_INTERNAL_CHECK(
          result->ndim() == node->shape.ndim() + 1 && result->shape().dim(0).value == size_.value,
          "batching {} of shape {} by {} gives {}", node->row->name.value, node->shape.to_string(),
          size_.value, result->shape().to_string());
      batched_.emplace(node.get(), *result);
    }
  }

  // The call on batched arguments, one for all its results; null: nothing of it is batched.
  std::shared_ptr<const CustomCall> batched_call(const std::shared_ptr<const CustomCall>& from) {
    const auto [it, fresh] = calls_.try_emplace(from.get());
    if (!fresh) return it->second;
    std::vector<bool> flags;
    Arrays arguments, outputs;
    bool any = false, any_argument = false;
    for (const NodeRef& node : from->arguments) {
      const array* found = find(node);
      flags.push_back(found != nullptr);
      arguments.push_back(found != nullptr ? *found : array(node));
      any_argument |= found != nullptr;
    }
    if (any_argument && from->rules->has_vmap()) {
      outputs = from->rules->vmap(*from, arguments, flags, size_);
      any = true;
    } else {
      for (const NodeRef& node : from->outputs) {
        const array* found = find(node);
        outputs.push_back(found != nullptr ? *found : with_batch_axis(array(node)));
        any |= found != nullptr;
      }
    }
    if (!any) return nullptr;
    auto call = std::make_shared<CustomCall>();
    call->rules = from->rules->batched(flags, size_);
    for (const array& a : arguments) call->arguments.push_back(a.node());
    for (const array& a : outputs) call->outputs.push_back(a.node());
    return it->second = std::move(call);
  }

  std::optional<array> apply(const NodeRef& node, Arrays inputs, const std::vector<char>& flags) {
    const Vmap& rule = node->row->vmap.value;
    const auto* map = std::get_if<AxisMapVmap>(&rule);
    const auto* custom = std::get_if<CustomVmap>(&rule);
    if (map != nullptr || custom != nullptr) {
      auto* function = map != nullptr ? map->apply : custom->apply;
      const OpCall call{*node->row, node->params, inputs};
      return function(call, {reinterpret_cast<const bool*>(flags.data()), flags.size()}, size_);
    }
    if (std::holds_alternative<DerivedVmap>(rule)) {
      const array& graph = graphs_.emplace_back(composite_graph(node));
      const NodeRef root = graph.node();
      Arrays stop;
      for (const NodeRef& input : node->inputs) stop.emplace_back(input);
      run(traced_tape({&graph, 1}, stop));
      const array* result = find(root);
      return result != nullptr ? std::optional<array>(*result) : std::nullopt;
    }
    for (size_t k = 0; k < inputs.size(); k++) {
      if (!flags[k]) inputs[k] = with_batch_axis(inputs[k]);
    }
    Params params = node->params;
    if (std::holds_alternative<AxisShiftVmap>(rule)) params = shift_axes(std::move(params));
    return make_node(*node->row, std::move(inputs), std::move(params), node->stream);
  }

  std::unordered_map<const Node*, array> batched_;
  Arrays graphs_;  // of composites: the addresses of their nodes stay taken
  std::unordered_map<const CustomCall*, std::shared_ptr<const CustomCall>> calls_;
  Dim size_;
};

}  // namespace

Arrays vmap_of(std::span<const array> outputs, std::span<const array> inputs,
               std::span<const array> batched, std::span<const int> axis,
               std::span<const int> out_axis) {
  Dim size = -1;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (axis[i] < 0) continue;
    const Dim& n = batched[i].shape().dim(axis[i]);
    CERMET_CHECK(
        size.value < 0 || same_size(size, n), value, "vmap",
        "argument {} has size {} along its batch axis {}, others have {}; they must be equal", i,
        n.value, axis[i], size.value);
    size = n;
  }
  CERMET_CHECK(size.value >= 0, value, "vmap", "no argument has a batch axis; at least one must");
  // Arguments without a batch axis stand in the graph as their placeholders.
  std::unordered_map<const Node*, array> moved;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (axis[i] >= 0)
      moved.insert_or_assign(inputs[i].node().get(), moveaxis(batched[i], axis[i], 0));
  }
  Batcher batcher(std::move(moved), size);
  std::vector<NodeRef> tape = traced_tape(outputs, inputs);
  if (schedule::replace_patterns(tape, outputs, inputs)) tape = traced_tape(outputs, inputs);
  batcher.run(tape);
  Arrays results;
  for (size_t i = 0; i < outputs.size(); i++) {
    const array* result = batcher.find(outputs[i].node());
    CERMET_CHECK(result == nullptr || out_axis[i] >= 0, value, "vmap",
                 "output {} depends on a batched argument, so its out_axis cannot be None; give "
                 "the axis where the batch goes",
                 i);
    if (out_axis[i] < 0) results.push_back(outputs[i]);
    else
      results.push_back(moveaxis(result != nullptr ? *result : batcher.with_batch_axis(outputs[i]),
                                 0, out_axis[i]));
  }
  return results;
}

}  // namespace cermet
