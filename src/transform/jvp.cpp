// SPDX-License-Identifier: MIT
// Forward mode: tangents carried along the tape.
#include <unordered_map>

#include "base/error.h"
#include "graph/meant_scope.h"
#include "ops/ops.h"
#include "transform/trace.h"
#include "transform/transform.h"

namespace cermet {

namespace {

using Tangents = std::unordered_map<const Node*, array>;

class Forward {
 public:
  explicit Forward(Tangents tangents) : tangents_(std::move(tangents)) {}

  std::optional<array> tangent(const NodeRef& node) const {
    auto it = tangents_.find(node.get());
    return it == tangents_.end() ? std::nullopt : std::optional<array>(it->second);
  }

  void step(const NodeRef& node) {
    if (tangents_.contains(node.get()) || !is_inexact(node->dtype)) return;
    if (const CallParams* p = call_of(*node); p != nullptr && p->call->rules->has_jvp()) {
      if (const array* own = own_tangent(*p)) tangents_.emplace(node.get(), *own);
      return;
    }
    const NodeCall call(node);
    std::vector<std::optional<array>> parts;
    bool any = false;
    for (const NodeRef& input : node->inputs) {
      parts.push_back(tangent(input));
      any |= parts.back().has_value();
    }
    if (!any) return;
    const MeantScope meant(*node);
    if (auto result = apply(node, call, parts)) tangents_.emplace(node.get(), *result);
  }

 private:
  using Parts = std::vector<std::optional<array>>;

  // Of a result of a call that gives its own: made once for all of them.
  const array* own_tangent(const CallParams& p) {
    const auto [it, fresh] = calls_.try_emplace(p.call.get());
    if (fresh) {
      CallRules::Parts parts;
      bool any = false;
      for (const NodeRef& argument : p.call->arguments) {
        parts.push_back(tangent(argument));
        any |= parts.back().has_value();
      }
      if (any) it->second = p.call->rules->jvp(*p.call, parts);
    }
    return it->second.empty() ? nullptr : &it->second[static_cast<size_t>(p.output)];
  }

  static void accumulate(std::optional<array>& sum, const array& term) {
    sum = sum ? add(*sum, term) : term;
  }

  // The op on tangents; inputs without one are zeros, integer inputs stay.
  static array apply_linear(const NodeRef& node, const NodeCall& call, const Parts& parts) {
    Arrays inputs;
    for (size_t k = 0; k < parts.size(); k++) {
      const array& input = call.inputs()[k];
      inputs.push_back(parts[k]                    ? *parts[k]
                       : is_inexact(input.dtype()) ? zeros_like(input)
                                                   : input);
    }
    return make_node(*node->row, std::move(inputs), node->params, node->stream);
  }

  static std::optional<array> apply(const NodeRef& node, const NodeCall& call, const Parts& parts) {
    const Derivative& rule = node->row->derivative.value;
    if (std::holds_alternative<Linear>(rule)) return apply_linear(node, call, parts);
    if (std::holds_alternative<Derived>(rule)) return through_composite(node, call, parts);
    if (std::holds_alternative<Zero>(rule)) return std::nullopt;
    if (std::holds_alternative<First>(rule)) return parts[0];
    const auto* opaque = std::get_if<Opaque>(&rule);
    if (opaque != nullptr && opaque->is_zero != nullptr && opaque->is_zero(call))
      return std::nullopt;
    std::optional<array> sum;
    for (size_t i = 0; i < parts.size(); i++) {
      if (!parts[i]) continue;
      const int k = static_cast<int>(i);
      if (const auto* elementwise = std::get_if<Elementwise>(&rule)) {
        accumulate(sum, elementwise->diff(call, array(node), k, *parts[i]));
      } else if (opaque != nullptr) {
        accumulate(sum, opaque->jvp(call, array(node), k, *parts[i]));
      } else {
        Arrays inputs = call.inputs();
        inputs[i] = *parts[i];
        accumulate(sum, make_node(*node->row, std::move(inputs), node->params, node->stream));
      }
    }
    return sum;
  }

  static std::optional<array> through_composite(const NodeRef& node, const NodeCall& call,
                                                const Parts& parts) {
    const array graph = composite_graph(node);
    Arrays inputs, tangents;
    for (size_t k = 0; k < parts.size(); k++) {
      if (!parts[k]) continue;
      inputs.push_back(call.inputs()[k]);
      tangents.push_back(*parts[k]);
    }
    return jvp_of({&graph, 1}, inputs, tangents)[0];
  }

  Tangents tangents_;
  std::unordered_map<const CustomCall*, Arrays> calls_;
};

}  // namespace

Arrays jvp_of(std::span<const array> outputs, std::span<const array> inputs,
              std::span<const array> tangents) {
  CERMET_CHECK(inputs.size() == tangents.size(), value, "jvp",
               "{} tangents for {} primals; there must be one for each", tangents.size(),
               inputs.size());
  Tangents given;
  for (size_t i = 0; i < inputs.size(); i++) {
    CERMET_CHECK(inputs[i].shape() == tangents[i].shape(), value, "jvp",
                 "tangent {} has shape {}, its primal {}; they must be equal", i,
                 tangents[i].shape().to_string(), inputs[i].shape().to_string());
    if (is_inexact(inputs[i].dtype()))
      given.insert_or_assign(inputs[i].node().get(), astype(tangents[i], inputs[i].dtype()));
  }
  Forward forward(std::move(given));
  const std::vector<NodeRef> tape = traced_tape(outputs, inputs);
  for (const NodeRef& node : tape) forward.step(node);
  Arrays results;
  for (const array& output : outputs) {
    const auto tangent = forward.tangent(output.node());
    results.push_back(tangent ? *tangent : zeros_like(output));
  }
  return results;
}

std::pair<Arrays, Arrays> jvp(const Function& f, const Arrays& primals, const Arrays& tangents) {
  const TraceScope scope;
  const Arrays inputs = trace_inputs(primals);
  Arrays outputs = f(inputs);
  Arrays results = jvp_of(outputs, inputs, tangents);
  return {std::move(outputs), std::move(results)};
}

}  // namespace cermet
