// SPDX-License-Identifier: MIT
// The cross entropy of logits and class indices, as a graph of plain rows: the schedule makes one
// kernel of it that reads each row of logits from memory once, and one of its gradient. Halves are
// widened, and so is the loss.
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

constexpr const char* kName = "cross_entropy";

Dtype loss_dtype(const OpCall& call) {
  const Dtype dtype = call.inputs[0].dtype();
  return is_half(dtype) ? Dtype::float32 : dtype;
}

// The largest logit is taken off both terms before they meet, so that a great one costs no digits.
array cross_entropy_graph(const OpCall& c) {
  const array logits = widened(c.inputs[0]);
  const array chosen = take_along_axis(logits, expand_dims(c.inputs[1], {-1}), -1);
  const array largest = stop_gradient(cermet::max(logits, AxisList{-1}, true));
  const array offset = select(isfinite(largest), largest, full_like(largest, 0));
  const array total = cermet::sum(exp_below(logits, largest), AxisList{-1}, true);
  return squeeze(cermet::log(total) + (offset - chosen), AxisList{-1});
}

}  // namespace

constinit const OpRow rows::cross_entropy = {
    .id = OpId::CrossEntropy,
    .name = "cross_entropy",
    .accepts = kFloats | kIntegers,
    .dtype = loss_dtype,
    .shape = [](auto& c) { return c.inputs[1].shape(); },
    .derivative = Derived{},
    .vmap = DerivedVmap{},
    .lowering = CompositeLowering{cross_entropy_graph},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 8,
    .doc =
        "logsumexp(logits) - logits[target] over the last axis, in float32 for halves; negative "
        "targets count from the last class.",
};

array fast::cross_entropy(const array& logits, const array& targets, const S& s) {
  CERMET_CHECK(logits.ndim() > 0, value, kName, "the logits have no axes; they need at least 1");
  CERMET_CHECK(is_floating(logits.dtype()), dtype, kName,
               "the logits have dtype {}; they must be floating", logits.dtype());
  CERMET_CHECK(is_integer(targets.dtype()), dtype, kName,
               "the targets have dtype {}; they must be class indices, which are integers",
               targets.dtype());
  Shape shape = logits.shape();
  const Dim classes = shape.dim(shape.ndim() - 1);
  shape.erase(shape.ndim() - 1);
  CERMET_CHECK(targets.shape() == shape, value, kName,
               "targets of shape {} for logits of shape {}; they need {}, one for each row",
               targets.shape(), logits.shape(), shape);
  CERMET_CHECK(!is_zero(classes), value, kName, "logits of shape {} have no classes; give one",
               logits.shape());
  return make_node(rows::cross_entropy, pack(logits, targets), NoParams{}, s);
}

}  // namespace cermet
