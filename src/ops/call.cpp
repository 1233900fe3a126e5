// SPDX-License-Identifier: MIT
// Ops that change no value: depends orders what is computed, custom_call marks the results of a call
// that says itself how transforms treat it.
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

Lane pull_first(LowerContext& cx, const NodeView&, const Coords& at) { return cx.input(0, at); }

std::optional<Layout> view_first(const NodeView&, const Shape&, const Layout& layout) {
  return layout;
}

array vmap_depends(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  Arrays inputs(c.inputs.begin(), c.inputs.end());
  inputs[0] = batched_input(inputs[0], batched[0], size);
  return make_node(rows::depends, std::move(inputs), NoParams{}, {});
}

// Batching treats the results of a call together and does not come here.
array vmap_custom_call(const OpCall& c, std::span<const bool> batched, const Dim& size) {
  return batched_input(c.inputs[0], batched[0], size);
}

}  // namespace

constinit const OpRow rows::depends = {
    .id = OpId::Depends,
    .name = "depends",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = First{},
    .vmap = CustomVmap{vmap_depends},
    .lowering = MoveLowering{pull_first, view_first},
    .effect = Effect::barrier,
    .domain = Domain{},
    .max_ulp = 0,
    .doc =
        "The same values; what is computed from them is computed after the other inputs, and "
        "nothing "
        "of it is shared with what is computed from the values themselves.",
};

constinit const OpRow rows::custom_call = {
    .id = OpId::CustomCall,
    .name = "custom_call",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = First{},
    .vmap = CustomVmap{vmap_custom_call},
    .lowering = CompositeLowering{[](const OpCall& call) { return call.inputs[0]; }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The same values, as a result of a call that says itself how transforms treat it.",
};

Arrays depends(const Arrays& inputs, const Arrays& dependencies) {
  if (dependencies.empty()) return inputs;
  Arrays results;
  for (const array& input : inputs) {
    Arrays all{input};
    all.insert(all.end(), dependencies.begin(), dependencies.end());
    results.push_back(make_node(rows::depends, std::move(all), NoParams{}, input.node()->stream));
  }
  return results;
}

array custom_call(const std::shared_ptr<const CustomCall>& call, int output) {
  const NodeRef& given = call->outputs[static_cast<size_t>(output)];
  array result =
      make_node(rows::custom_call, {array(given)}, CallParams{call, output}, given->stream);
  TraceId& trace = result.node()->trace;
  for (const NodeRef& argument : call->arguments)
    trace = TraceScope::joined(trace, argument->trace);
  return result;
}

}  // namespace cermet
