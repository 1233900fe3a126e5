// SPDX-License-Identifier: MIT
#include "transform/functions.h"

#include <atomic>
#include <map>
#include <mutex>

#include "base/env.h"
#include "base/error.h"
#include "base/lazy.h"
#include "ops/ops.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "transform/compile.h"

namespace cermet {

namespace {

Function on_arrays(const UnaryFunction& f) {
  return [f](const Arrays& in) { return Arrays{f(in[0])}; };
}

void check_argnums(const std::vector<int>& argnums, size_t count) {
  const int n = static_cast<int>(count);
  CERMET_CHECK(!argnums.empty(), value, "value_and_grad",
               "argnums is empty; name at least one argument to differentiate by");
  for (int argnum : argnums)
    CERMET_CHECK(
        argnum >= -n && argnum < n, value, "value_and_grad",
        "argument {} does not exist: the function is called with {}; it must be in [{}, {})",
        argnum, n, -n, n);
}

// The outputs of f, and the gradient of the first.
std::pair<Arrays, Arrays> differentiate(const Function& f, const std::vector<int>& argnums,
                                        const Arrays& arguments) {
  check_argnums(argnums, arguments.size());
  std::vector<size_t> chosen;
  Arrays primals;
  for (int argnum : argnums) {
    chosen.push_back(argnum < 0 ? arguments.size() - static_cast<size_t>(-argnum)
                                : static_cast<size_t>(argnum));
    CERMET_CHECK(std::ranges::count(chosen, chosen.back()) == 1, value, "value_and_grad",
                 "argument {} is chosen more than once; name each argument once", chosen.back());
    primals.push_back(arguments[chosen.back()]);
    CERMET_CHECK(is_inexact(primals.back().dtype()), value, "value_and_grad",
                 "argument {} has dtype {}; it must be floating or complex", argnum,
                 name_of(primals.back().dtype()));
  }
  const TraceScope scope;
  const Arrays traced = trace_inputs(primals);
  Arrays inputs = arguments;
  for (size_t i = 0; i < chosen.size(); ++i) inputs[chosen[i]] = traced[i];
  Arrays outputs = f(inputs);
  CERMET_CHECK(!outputs.empty() && outputs[0].size() == 1, value, "value_and_grad",
               "the function's value has shape {}; a gradient needs a scalar, e.g. its sum or mean",
               outputs.empty() ? "none" : outputs[0].shape().to_string());
  const array one = ones_like(outputs[0]);
  Arrays gradients = vjp_of({&outputs[0], 1}, {&one, 1}, traced);
  return {std::move(outputs), std::move(gradients)};
}

Function first_output(const ScalarFunction& f) {
  return [f](const Arrays& in) { return Arrays{f(in)}; };
}

Arrays batch(const Function& f, const std::vector<int>& in_axes, const std::vector<int>& out_axes,
             const Arrays& arguments) {
  CERMET_CHECK(in_axes.empty() || in_axes.size() == arguments.size(), value, "vmap",
               "{} axes were given for {} arguments; give one for each, or none for axis 0 of all",
               in_axes.size(), arguments.size());
  Arrays inputs;
  std::vector<int> axes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const array& a = arguments[i];
    const int axis = in_axes.empty() ? 0 : in_axes[i];
    axes.push_back(axis == -1 ? -1 : normalize_axis("vmap", axis, a.ndim()));
    Shape shape = a.shape();
    if (axis != -1) shape.erase(axes.back());
    inputs.push_back(axis == -1 ? a : placeholder(shape, a.dtype()));
  }
  const Arrays outputs = f(inputs);
  CERMET_CHECK(out_axes.empty() || out_axes.size() == outputs.size(), value, "vmap",
               "{} axes were given for {} results; give one for each, or none for axis 0 of all",
               out_axes.size(), outputs.size());
  std::vector<int> out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int axis = out_axes.empty() ? 0 : out_axes[i];
    out.push_back(axis == -1 ? -1 : normalize_axis("vmap", axis, outputs[i].ndim() + 1));
  }
  return vmap_of(outputs, inputs, arguments, axes, out);
}

std::atomic<bool>& compile_disabled() {
  static constinit Lazy<std::atomic<bool>> disabled;
  return disabled.get([] { return std::atomic<bool>(env::is_set("CERMET_DISABLE_COMPILE")); });
}

// A function's traces, by the structure of the arguments; of one structure, several with other guards.
class CompiledFunction {
 public:
  explicit CompiledFunction(Function f) : f_(std::move(f)) {}

  Arrays call(const Arrays& inputs) {
    const auto is_traced = [](const array& a) { return a.node()->is_traced(); };
    if (compile_disabled() || hooks::trace != nullptr || std::ranges::any_of(inputs, is_traced))
      return f_(inputs);
    Structure structure;
    std::vector<Number> sizes;
    for (const array& a : inputs) {
      structure.push_back(-1 - static_cast<int64_t>(a.dtype()));
      for (const Dim& dim : a.shape().dims()) {
        structure.push_back(std::min<int64_t>(dim.value, 2));
        if (dim.value > 1) sizes.push_back(number(dim.value));
      }
    }
    CompiledGraph::Call call;
    InlineVector<const array*, 8> pointers;
    for (const array& a : inputs) pointers.push_back(&a);
    for (const auto& graph : known(structure))
      if (graph->prepare(inputs, sizes, call)) {
        count(Counter::program_hits);
        return graph->run(call, pointers);
      }
    const auto graph = trace(inputs);
    CERMET_INTERNAL_CHECK(graph->prepare(inputs, sizes, call),
                          "a trace does not hold for the call that made it");
    {
      const std::lock_guard guard(graphs_lock());
      graphs_[structure].push_back(graph);
    }
    return graph->run(call, pointers);
  }

 private:
  using Structure = std::vector<int64_t>;
  using Graph = std::shared_ptr<const CompiledGraph>;

  std::vector<Graph> known(const Structure& structure) {
    const std::lock_guard guard(graphs_lock());
    const auto it = graphs_.find(structure);
    return it == graphs_.end() ? std::vector<Graph>() : it->second;
  }

  Graph trace(const Arrays& inputs) const {
    count(Counter::traces);
    const auto symbols = std::make_shared<Symbols>();
    Arrays placeholders;
    for (const array& a : inputs) {
      Shape shape = a.shape();
      for (int axis = 0; axis < shape.ndim(); ++axis) {
        Dim& dim = shape.dim(axis);
        if (dim.value > 1) dim.expr = symbols->input(number(dim.value), true).expr;
      }
      placeholders.push_back(placeholder(shape, a.dtype()));
    }
    Arrays outputs;
    {
      const Symbols::Scope scope(*symbols);
      outputs = f_(placeholders);
    }
    return std::make_shared<CompiledGraph>(symbols, placeholders, outputs, std::vector<Number>());
  }

  // Of all functions' graphs, held for moments.
  static std::mutex& graphs_lock() {
    static constinit ForkSafe<std::mutex> lock(ForkLevel::leaf);
    return lock.get();
  }

  const Function f_;
  std::map<Structure, std::vector<Graph>> graphs_;
};

}  // namespace

std::pair<array, array> vjp(const UnaryFunction& f, const array& primal, const array& cotangent) {
  const auto [outputs, results] = vjp(on_arrays(f), Arrays{primal}, Arrays{cotangent});
  return {outputs[0], results[0]};
}

std::pair<array, array> jvp(const UnaryFunction& f, const array& primal, const array& tangent) {
  const auto [outputs, results] = jvp(on_arrays(f), Arrays{primal}, Arrays{tangent});
  return {outputs[0], results[0]};
}

ValueAndGradFn value_and_grad(const Function& f, const std::vector<int>& argnums) {
  return [f, argnums](const Arrays& in) { return differentiate(f, argnums, in); };
}

ValueAndGradFn value_and_grad(const Function& f, int argnum) {
  return value_and_grad(f, std::vector<int>{argnum});
}

SimpleValueAndGradFn value_and_grad(const ScalarFunction& f, const std::vector<int>& argnums) {
  return [f, argnums](const Arrays& in) {
    auto [outputs, gradients] = differentiate(first_output(f), argnums, in);
    return std::pair(outputs[0], std::move(gradients));
  };
}

SimpleValueAndGradFn value_and_grad(const ScalarFunction& f, int argnum) {
  return value_and_grad(f, std::vector<int>{argnum});
}

std::function<std::pair<array, array>(const array&)> value_and_grad(const UnaryFunction& f) {
  return [f](const array& in) {
    const auto [outputs, gradients] = differentiate(on_arrays(f), {0}, {in});
    return std::pair(outputs[0], gradients[0]);
  };
}

Function grad(const ScalarFunction& f, const std::vector<int>& argnums) {
  return
      [f, argnums](const Arrays& in) { return differentiate(first_output(f), argnums, in).second; };
}

Function grad(const ScalarFunction& f, int argnum) { return grad(f, std::vector<int>{argnum}); }

UnaryFunction grad(const UnaryFunction& f) {
  return [f](const array& in) { return differentiate(on_arrays(f), {0}, {in}).second[0]; };
}

UnaryFunction vmap(const UnaryFunction& f, int in_axis, int out_axis) {
  return [=](const array& in) { return batch(on_arrays(f), {in_axis}, {out_axis}, {in})[0]; };
}

BinaryFunction vmap(const BinaryFunction& f, int in_axis_a, int in_axis_b, int out_axis) {
  const Function g = [f](const Arrays& in) { return Arrays{f(in[0], in[1])}; };
  return [=](const array& a, const array& b) {
    return batch(g, {in_axis_a, in_axis_b}, {out_axis}, {a, b})[0];
  };
}

Function vmap(const Function& f, const std::vector<int>& in_axes,
              const std::vector<int>& out_axes) {
  return [=](const Arrays& in) { return batch(f, in_axes, out_axes, in); };
}

Function compile(Function f, bool) {
  const auto compiled = std::make_shared<CompiledFunction>(std::move(f));
  return [compiled](const Arrays& in) { return compiled->call(in); };
}

void disable_compile() { compile_disabled() = true; }
void enable_compile() { compile_disabled() = false; }

}  // namespace cermet
