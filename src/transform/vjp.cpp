// SPDX-License-Identifier: MIT
// Reverse mode: one walk from outputs to inputs, adding up cotangents (Griewank & Walther 2008, ch. 3).
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/meant_scope.h"
#include "ops/cotangent_sum.h"
#include "ops/ops.h"
#include "schedule/patterns.h"
#include "transform/trace.h"
#include "transform/transform.h"

namespace cermet {

namespace {

Arrays pull_back(std::span<const array> outputs, std::span<const array> cotangents,
                 std::span<const array> inputs);

class Reverse {
 public:
  Reverse(std::vector<NodeRef> tape, std::span<const array> inputs) : tape_(std::move(tape)) {
    for (const array& input : inputs) {
      stops_.insert(input.node().get());
      if (is_inexact(input.dtype())) reaches_.insert(input.node().get());
    }
    for (const NodeRef& node : tape_) {
      for_each_source(*node, [&](const NodeRef& source) {
        if (reaches_.contains(source.get()) && is_inexact(node->dtype)) reaches_.insert(node.get());
      });
      if (const CustomCall* call = own_call(*node)) calls_[call].waiting++;
    }
  }

  void add(const NodeRef& node, const array& cotangent) {
    if (!reaches_.contains(node.get())) return;
    const auto [it, fresh] = cotangents_.try_emplace(node.get(), cotangent);
    if (!fresh) it->second.add(cotangent);
  }

  void run() {
    for (size_t i = tape_.size(); i-- > 0;) {
      const NodeRef& node = tape_[i];
      if (const CustomCall* call = own_call(*node)) {
        collect(*call, node);
        continue;
      }
      auto it = cotangents_.find(node.get());
      if (it == cotangents_.end() || stops_.contains(node.get())) continue;
      const array cotangent = it->second.result();
      cotangents_.erase(it);
      step(node, cotangent);
    }
  }

  array result(const array& input) {
    auto it = cotangents_.find(input.node().get());
    return it == cotangents_.end() ? zeros_like(input) : it->second.result();
  }

 private:
  // A call that gives its own cotangents: once for all its results, when the last of them is reached.
  struct Call {
    int waiting = 0;
    std::unordered_map<int, array> results;  // by output
    std::unordered_map<int, CotangentSum> cotangents;
  };

  const CustomCall* own_call(const Node& node) const {
    const CallParams* p = call_of(node);
    return p != nullptr && p->call->rules->has_vjp() && !stops_.contains(&node) ? p->call.get()
                                                                                : nullptr;
  }

  void collect(const CustomCall& from, const NodeRef& node) {
    Call& call = calls_.at(&from);
    const int output = call_of(*node)->output;
    call.results.emplace(output, node);
    if (auto it = cotangents_.find(node.get()); it != cotangents_.end()) {
      const array cotangent = it->second.result();
      const auto [sum, fresh] = call.cotangents.try_emplace(output, cotangent);
      if (!fresh) sum->second.add(cotangent);
      cotangents_.erase(it);
    }
    if (--call.waiting > 0 || call.cotangents.empty()) return;
    Arrays results, cotangents;
    for (int k = 0; k < static_cast<int>(from.outputs.size()); k++) {
      const auto result = call.results.find(k);
      results.push_back(result == call.results.end() ? custom_call(call_of(*node)->call, k)
                                                     : result->second);
      const auto given = call.cotangents.find(k);
      cotangents.push_back(given == call.cotangents.end() ? zeros_like(results.back())
                                                          : given->second.result());
    }
    const CallRules::Parts parts = from.rules->vjp(from, results, cotangents);
    for (size_t i = 0; i < parts.size(); i++)
      if (parts[i]) add(from.arguments[i], *parts[i]);
  }

  void step(const NodeRef& node, const array& g) {
    const MeantScope meant(*node);
    const NodeCall call(node);
    const auto* derived = std::get_if<Derived>(&node->row->derivative.value);
    if (derived != nullptr && derived->vjp == nullptr) {
      through_composite(node, g);
      return;
    }
    for (size_t k = 0; k < node->inputs.size(); k++) {
      if (!reaches_.contains(node->inputs[k].get())) continue;
      if (auto part = input_cotangent(node, call, static_cast<int>(k), g))
        add(node->inputs[k], *part);
    }
  }

  static std::optional<array> input_cotangent(const NodeRef& node, const OpCall& call, int k,
                                              const array& g) {
    struct Rule {
      const NodeRef& node;
      const OpCall& call;
      int k;
      const array& g;
      std::optional<array> operator()(const Elementwise& d) {
        if (!is_complex(node->dtype)) return d.diff(call, array(node), k, g);
        return conjugate(d.diff(call, array(node), k, conjugate(g)));
      }
      std::optional<array> operator()(const Linear& d) { return d.transpose(call, k, g); }
      std::optional<array> operator()(const Bilinear& d) {
        return k == 0 ? d.lhs(call, g) : d.rhs(call, g);
      }
      std::optional<array> operator()(const Opaque& d) {
        if (d.is_zero != nullptr && d.is_zero(call)) return std::nullopt;
        return d.vjp(call, array(node), k, g);
      }
      std::optional<array> operator()(const Derived& d) { return d.vjp(call, array(node), k, g); }
      std::optional<array> operator()(const Zero&) { return std::nullopt; }
      std::optional<array> operator()(const First&) {
        return k == 0 ? std::optional<array>(g) : std::nullopt;
      }
    };
    return std::visit(Rule{node, call, k, g}, node->row->derivative.value);
  }

  void through_composite(const NodeRef& node, const array& g) {
    Arrays inputs;
    for (const NodeRef& input : node->inputs) inputs.emplace_back(input);
    const array graph = composite_graph(node);
    Arrays wanted;
    for (const array& input : inputs) {
      if (reaches_.contains(input.node().get())) wanted.push_back(input);
    }
    const Arrays parts = pull_back({&graph, 1}, {&g, 1}, wanted);
    for (size_t i = 0; i < wanted.size(); i++) add(wanted[i].node(), parts[i]);
  }

  std::vector<NodeRef> tape_;
  std::unordered_set<const Node*> stops_, reaches_;
  std::unordered_map<const Node*, CotangentSum> cotangents_;
  std::unordered_map<const CustomCall*, Call> calls_;
};

Arrays pull_back(std::vector<NodeRef> tape, std::span<const array> outputs,
                 std::span<const array> cotangents, std::span<const array> inputs) {
  Reverse reverse(std::move(tape), inputs);
  for (size_t i = 0; i < outputs.size(); i++)
    if (is_inexact(outputs[i].dtype()))
      reverse.add(outputs[i].node(), astype(cotangents[i], outputs[i].dtype()));
  reverse.run();
  Arrays results;
  for (const array& input : inputs) results.push_back(reverse.result(input));
  return results;
}

// As the graph is.
Arrays pull_back(std::span<const array> outputs, std::span<const array> cotangents,
                 std::span<const array> inputs) {
  return pull_back(traced_tape(outputs, inputs), outputs, cotangents, inputs);
}

}  // namespace

Arrays vjp_of(std::span<const array> outputs, std::span<const array> cotangents,
              std::span<const array> inputs) {
  CERMET_CHECK(outputs.size() == cotangents.size(), value, "vjp",
               "{} cotangents for {} outputs; there must be one for each", cotangents.size(),
               outputs.size());
  for (size_t i = 0; i < outputs.size(); i++)
    CERMET_CHECK(outputs[i].shape() == cotangents[i].shape(), value, "vjp",
                 "cotangent {} has shape {}, its output {}; they must be equal", i,
                 cotangents[i].shape().to_string(), outputs[i].shape().to_string());
  std::vector<NodeRef> tape = traced_tape(outputs, inputs);
  if (schedule::replace_patterns(tape, outputs, inputs)) tape = traced_tape(outputs, inputs);
  return pull_back(std::move(tape), outputs, cotangents, inputs);
}

std::pair<Arrays, Arrays> vjp(const Function& f, const Arrays& primals, const Arrays& cotangents) {
  const TraceScope scope;
  const Arrays inputs = trace_inputs(primals);
  Arrays outputs = f(inputs);
  Arrays results = vjp_of(outputs, cotangents, inputs);
  return {std::move(outputs), std::move(results)};
}

}  // namespace cermet
