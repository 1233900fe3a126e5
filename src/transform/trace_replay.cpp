// SPDX-License-Identifier: MIT
#include "transform/trace_replay.h"

#include <algorithm>
#include <memory_resource>
#include <unordered_map>

#include "base/error.h"
#include "ops/ops.h"
#include "runtime/poll.h"
#include "runtime/stream.h"
#include "transform/compile.h"

namespace cermet {

namespace {

// Thrown and caught here alone.
struct Broken {};

class Replay {
 public:
  Replay(const Symbols& symbols, std::span<const Number> inputs)
      : symbols_(symbols), inputs_(inputs), varies_(symbols.varying()) {}

  ReplayedGraph run(std::span<const NodeRef> placeholders, std::span<const NodeRef> outputs,
                    std::span<const Shape> shapes) {
    for (size_t i = 0; i < placeholders.size(); ++i) {
      const NodeRef node = placeholder(shapes[i], placeholders[i]->dtype).node();
      result_.graph.inputs.push_back(node);
      nodes_.emplace(placeholders[i].get(), node);
    }
    result_.values.resize(symbols_.exprs().size());
    known_.resize(symbols_.exprs().size());
    for (uint32_t i = 0; i < known_.size(); ++i) value_of(i);
    for (const Symbols::Guard& guard : symbols_.guards()) {
      if (varies_[guard.a] || varies_[guard.b]) continue;
      if (!Symbols::is_met(guard, result_.values)) throw Broken{};
    }
    for (const NodeRef& output : outputs) result_.graph.outputs.push_back(replayed(output));
    return std::move(result_);
  }

 private:
  // Mostly in the order of the trace. What stands for a pattern may need later ones.
  const Number& value_of(uint32_t expr) {
    if (!known_[expr] && expr != 0) result_.values[expr] = value(expr);
    known_[expr] = true;
    return result_.values[expr];
  }

  Number value(uint32_t expr) {
    const Symbols::Expr& e = symbols_.exprs()[expr];
    if (e.op == Symbols::Op::size) return number(replayed(e.node)->shape[e.axis]);
    if (e.op > Symbols::Op::constant)
      for (const uint32_t operand : {e.a, e.b}) value_of(operand);
    const auto result = symbols_.value_of(expr, inputs_, result_.values);
    if (!result && !varies_[expr]) throw Broken{};
    return result.value_or(e.value);  // computed and checked again in each call
  }

  struct Frame {
    NodeRef node;
    std::vector<NodeRef> inputs;
    size_t next_input = 0;
  };

  const NodeRef& replayed(const NodeRef& root) {
    std::vector<Frame> stack;
    auto visit = [&](const NodeRef& node) {
      if (nodes_.contains(node.get())) return;
      auto inputs = inputs_of(*node);
      // Data of the trace itself, or of another thread that evaluates it now.
      if (!inputs) hooks::evaluate({&node, 1});
      if (node->is_ready()) nodes_.emplace(node.get(), node);
      else stack.push_back({node, std::move(inputs).value_or(std::vector<NodeRef>())});
    };
    visit(root);
    while (!stack.empty()) {
      check_cancelled("compile");
      Frame& top = stack.back();
      if (top.next_input < top.inputs.size()) {
        visit(top.inputs[top.next_input++]);
        continue;
      }
      nodes_.emplace(top.node.get(), build(*top.node, top.inputs));
      kept_.push_back(std::move(top.node));
      stack.pop_back();
    }
    return nodes_.at(root.get());
  }

  NodeRef build(const Node& from, std::span<const NodeRef> from_inputs) {
    if (from.row == nullptr) return other_placeholder(from);
    NodeRef to(new Node);
    to->row = from.row;
    to->params = from.params;
    uint32_t scalar = 0;
    for_each_symbol(
        to->params, [&](Dim& dim) { dim = dim.expr == 0 ? dim : Dim(value_of(dim.expr).integer); },
        [&](Number& n) {
          if (n.expr == 0) return;
          if (varies_[n.expr]) scalar = n.expr;
          n = value_of(n.expr);
          n.expr = 0;
        });
    Arrays inputs;
    for (const NodeRef& input : from_inputs) inputs.emplace_back(nodes_.at(input.get()));
    to->dtype = from.dtype;
    to->stream = from.stream;
    to->origin = from.origin;
    to->meant = from.meant;
    to->shape = from.row->shape.value({*from.row, to->params, inputs});
    check_size(from.row->name, to->shape, to->dtype);
    check_shape(from, to->shape);
    for (array& input : inputs) to->inputs.push_back(std::move(input).take_node());
    if (scalar != 0) {
      const auto [begin, end] = scalars_.equal_range(scalar);
      const auto same = std::find_if(begin, end, [&](const auto& known) {
        return known.second->dtype == to->dtype && known.second->shape == to->shape;
      });
      if (same != end) result_.graph.equal.emplace_back(to, same->second);
      else scalars_.emplace(scalar, to);
      result_.graph.scalars.push_back(to);
      result_.scalar_exprs.push_back(scalar);
    }
    return to;
  }

  // Of a trace inside this one (vmap), or of one that has ended: planning refuses it.
  NodeRef other_placeholder(const Node& from) const {
    Shape shape = from.shape;
    for (int axis = 0; axis < shape.ndim(); ++axis) {
      Dim& dim = shape.dim(axis);
      if (dim.expr < known_.size() && (dim.expr == 0 || known_[dim.expr]))
        dim = dim.expr == 0 ? dim.value : result_.values[dim.expr].integer;
    }
    return placeholder(shape, from.dtype).node();
  }

  // The sizes that the trace took for known are those.
  void check_shape(const Node& from, const Shape& shape) const {
    if (from.shape.ndim() != shape.ndim()) throw Broken{};
    for (int axis = 0; axis < shape.ndim(); ++axis) {
      const Dim& dim = from.shape.dim(axis);
      if (dim.expr != 0 && !known_[dim.expr]) continue;  // this node's own size
      const int64_t expected = dim.expr == 0 ? dim.value : result_.values[dim.expr].integer;
      if (expected != shape[axis]) throw Broken{};
    }
  }

  const Symbols& symbols_;
  std::span<const Number> inputs_;
  std::vector<bool> varies_, known_;  // by expression
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::unordered_map<const Node*, NodeRef> nodes_{&memory_};
  std::unordered_multimap<uint32_t, NodeRef> scalars_;  // by expression
  std::vector<NodeRef> kept_;  // their addresses stay taken, whatever other threads evaluate
  ReplayedGraph result_;
};

}  // namespace

std::optional<ReplayedGraph> replay(const Symbols& symbols, std::span<const NodeRef> placeholders,
                                    std::span<const NodeRef> outputs,
                                    std::span<const Shape> input_shapes,
                                    std::span<const Number> inputs) {
  const PlainSizes plain;
  try {
    return Replay(symbols, inputs).run(placeholders, outputs, input_shapes);
  } catch (const Broken&) {
    return std::nullopt;
  } catch (const Error& error) {
    switch (error.kind()) {
      case ErrorKind::memory:
      case ErrorKind::interrupted:
      case ErrorKind::internal: throw;
      default: return std::nullopt;  // a shape rule that refuses: tracing again says why
    }
  }
}

}  // namespace cermet
