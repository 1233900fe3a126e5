// SPDX-License-Identifier: MIT
#include "transform/custom.h"

#include "base/error.h"
#include "ops/ops.h"
#include "transform/compile.h"
#include "transform/trace.h"

namespace cermet {

namespace {

using Parts = CallRules::Parts;

Arrays arrays_of(const std::vector<NodeRef>& nodes) {
  Arrays arrays;
  for (const NodeRef& node : nodes) arrays.emplace_back(node);
  return arrays;
}

Shape without_first(Shape shape) {
  shape.erase(0);
  return shape;
}

// A function's own rules, applied along axis 0: what they give for one element, batched.
class BatchedRules final : public CallRules, public std::enable_shared_from_this<BatchedRules> {
 public:
  BatchedRules(std::shared_ptr<const CallRules> base, std::vector<bool> batched, const Dim& size)
      : base_(std::move(base)), batched_(std::move(batched)), size_(size) {}

  bool has_vjp() const override { return base_->has_vjp(); }
  bool has_jvp() const override { return base_->has_jvp(); }

  Parts vjp(const CustomCall& call, const Arrays& results,
            const Arrays& cotangents) const override {
    Elements elements;
    const CustomCall one{base_, {}, nodes_of(elements.add(arrays_of(call.arguments), batched_))};
    const std::vector<bool> all(results.size(), true);
    const Arrays result = elements.add(results, all), cotangent = elements.add(cotangents, all);
    Parts parts = base_->vjp(one, result, cotangent);
    elements.batch(parts);
    for (size_t i = 0; i < parts.size(); i++)  // all elements have an argument in common
      if (parts[i] && !batched_[i]) parts[i] = sum(*parts[i], AxisList{0});
    return parts;
  }

  Arrays jvp(const CustomCall& call, const Parts& tangents) const override {
    Elements elements;
    const std::vector<bool> all(call.outputs.size(), true);
    const CustomCall one{base_, nodes_of(elements.add(arrays_of(call.outputs), all)),
                         nodes_of(elements.add(arrays_of(call.arguments), batched_))};
    Parts given;
    for (size_t i = 0; i < tangents.size(); i++) {
      given.emplace_back();
      if (tangents[i]) given.back() = elements.add({*tangents[i]}, {batched_[i]})[0];
    }
    Parts parts;
    for (const array& tangent : base_->jvp(one, given)) parts.emplace_back(tangent);
    elements.batch(parts);
    Arrays results;
    for (const std::optional<array>& part : parts) results.push_back(*part);
    return results;
  }

  std::shared_ptr<const CallRules> batched(const std::vector<bool>& batched,
                                           const Dim& size) const override {
    return std::make_shared<BatchedRules>(shared_from_this(), batched, size);
  }

 private:
  static std::vector<NodeRef> nodes_of(const Arrays& arrays) {
    std::vector<NodeRef> nodes;
    for (const array& a : arrays) nodes.push_back(a.node());
    return nodes;
  }

  // Stand-ins for the elements of batched arrays.
  class Elements {
   public:
    Arrays add(const Arrays& arrays, const std::vector<bool>& batched) {
      Arrays elements;
      for (size_t i = 0; i < arrays.size(); i++) {
        elements.push_back(batched[i]
                               ? placeholder(without_first(arrays[i].shape()), arrays[i].dtype())
                               : arrays[i]);
        inputs_.push_back(elements.back());
        given_.push_back(arrays[i]);
        axes_.push_back(batched[i] ? 0 : -1);
      }
      return elements;
    }

    // What was made of the elements, for all of them.
    void batch(Parts& parts) const {
      Arrays made;
      for (const std::optional<array>& part : parts)
        if (part) made.push_back(*part);
      const std::vector<int> out(made.size(), 0);
      const Arrays all = vmap_of(made, inputs_, given_, axes_, out);
      size_t next = 0;
      for (std::optional<array>& part : parts)
        if (part) part = all[next++];
    }

   private:
    Arrays inputs_, given_;
    std::vector<int> axes_;
  };

  std::shared_ptr<const CallRules> base_;
  std::vector<bool> batched_;
  Dim size_;
};

class FunctionRules final : public CallRules, public std::enable_shared_from_this<FunctionRules> {
 public:
  explicit FunctionRules(OwnRules rules) : rules_(std::move(rules)) {}

  bool has_vjp() const override { return rules_.vjp != nullptr; }
  bool has_jvp() const override { return rules_.jvp != nullptr; }
  bool has_vmap() const override { return rules_.vmap != nullptr; }

  Parts vjp(const CustomCall& call, const Arrays& results,
            const Arrays& cotangents) const override {
    const Arrays primals = arrays_of(call.arguments);
    const Arrays given = rules_.vjp(primals, cotangents, results);
    check_count("vjp", "cotangents", given.size(), "arguments", primals.size());
    Parts parts;
    for (size_t i = 0; i < given.size(); i++) {
      check_shape("vjp", "cotangent", i, given[i], "an argument", primals[i].shape());
      parts.emplace_back();
      if (is_inexact(primals[i].dtype())) parts.back() = astype(given[i], primals[i].dtype());
    }
    return parts;
  }

  Arrays jvp(const CustomCall& call, const Parts& tangents) const override {
    Arrays given;
    std::vector<int> numbers;
    for (size_t i = 0; i < tangents.size(); i++) {
      if (!tangents[i]) continue;
      given.push_back(*tangents[i]);
      numbers.push_back(static_cast<int>(i));
    }
    Arrays results = rules_.jvp(arrays_of(call.arguments), given, numbers);
    check_count("jvp", "tangents", results.size(), "outputs", call.outputs.size());
    for (size_t i = 0; i < results.size(); i++) {
      const Node& output = *call.outputs[i];
      check_shape("jvp", "tangent", i, results[i], "an output", output.shape);
      if (is_inexact(output.dtype)) results[i] = astype(results[i], output.dtype);
    }
    return results;
  }

  Arrays vmap(const CustomCall& call, const Arrays& arguments, const std::vector<bool>& batched,
              const Dim& size) const override {
    std::vector<int> axes;
    for (bool is_batched : batched) axes.push_back(is_batched ? 0 : -1);
    auto [outputs, out_axes] = rules_.vmap(arguments, axes);
    check_count("vmap", "outputs", outputs.size(), "of the function", call.outputs.size());
    check_count("vmap", "axes", out_axes.size(), "outputs", outputs.size());
    Arrays results;
    for (size_t i = 0; i < outputs.size(); i++) {
      Shape shape = call.outputs[i]->shape;
      shape.insert(0, size);
      const array& a = outputs[i];
      const array front =
          out_axes[i] >= 0 ? moveaxis(a, out_axes[i], 0) : broadcast_to(expand_dims(a, {0}), shape);
      check_shape("vmap", "output", i, front, "a batch of outputs", shape);
      results.push_back(front);
    }
    return results;
  }

  std::shared_ptr<const CallRules> batched(const std::vector<bool>& batched,
                                           const Dim& size) const override {
    return std::make_shared<BatchedRules>(shared_from_this(), batched, size);
  }

 private:
  static void check_count(const char* rule, const char* what, size_t given, const char* of,
                          size_t wanted) {
    CERMET_CHECK(given == wanted, value, "custom_function",
                 "the {} gives {} {} for {} {}; it must give one for each", rule, given, what,
                 wanted, of);
  }

  static void check_shape(const char* rule, const char* what, size_t number, const array& a,
                          const char* of, const Shape& wanted) {
    CERMET_CHECK(a.shape() == wanted, value, "custom_function",
                 "the {} gives {} {} of shape {} for {} of shape {}; they must be equal", rule,
                 what, number, a.shape().to_string(), of, wanted.to_string());
  }

  OwnRules rules_;
};

}  // namespace

Arrays call_custom(const std::function<Arrays()>& f, const Arrays& primals, OwnRules rules) {
  Arrays results = f();
  bool traced = false;
  for (const Arrays* list : {&primals, static_cast<const Arrays*>(&results)})
    for (const array& a : *list) traced |= a.node()->is_traced();
  if (!traced || (!rules.vjp && !rules.jvp && !rules.vmap)) return results;
  auto call = std::make_shared<CustomCall>();
  call->rules = std::make_shared<FunctionRules>(std::move(rules));
  for (const array& a : results) call->outputs.push_back(a.node());
  for (const array& a : primals) call->arguments.push_back(a.node());
  for (size_t i = 0; i < results.size(); i++) results[i] = custom_call(call, static_cast<int>(i));
  return results;
}

Function custom_function(Function f, std::optional<OwnVjp> vjp, std::optional<OwnJvp> jvp,
                         std::optional<OwnVmap> vmap) {
  const OwnRules rules{std::move(vjp).value_or(nullptr), std::move(jvp).value_or(nullptr),
                       std::move(vmap).value_or(nullptr)};
  return [f = std::move(f), rules](const Arrays& inputs) {
    return call_custom([&] { return f(inputs); }, inputs, rules);
  };
}

Function custom_vjp(Function f, OwnVjp vjp) {
  return custom_function(std::move(f), std::move(vjp));
}

}  // namespace cermet
