// SPDX-License-Identifier: MIT
#include "transform/compile.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "schedule/copy.h"
#include "schedule/eval.h"
#include "schedule/program_call.h"
#include "transform/trace_replay.h"

namespace cermet {

namespace {

std::vector<NodeRef> nodes_of(const Arrays& arrays) {
  std::vector<NodeRef> nodes;
  for (const array& a : arrays) nodes.push_back(a.node());
  return nodes;
}

// Programs are planned for contiguous inputs, some of them aligned.
ProgramInput contiguous_value(const Node& node, size_t alignment) {
  if (is_contiguous(node.shape, node.layout) &&
      (alignment == 1 || alignment <= schedule::alignment_of(node)))
    return {node.buffer, node.layout.offset, false};
  const size_t bytes = static_cast<size_t>(node.shape.size()) * size_of(node.dtype);
  BufferRef buffer = allocator().allocate(bytes, "compile");
  schedule::copy_to_contiguous(node.buffer->data(), node.layout, buffer->data(), node.shape,
                               node.dtype);
  return {std::move(buffer), 0, true};
}

std::string text_of(const Number& n) {
  return n.kind == Number::Kind::floating ? fmt::format("{}", n.real_imag.real())
                                          : fmt::format("{}", n.integer);
}

// A fork waits for programs in the making.
ForkGate& fork_gate() {
  static constinit ForkSafe<ForkGate> gate(ForkLevel::graph);
  return gate.get();
}

}  // namespace

array placeholder(const Shape& shape, Dtype dtype) {
  NodeRef node(new Node);
  node->row = nullptr;
  node->dtype = dtype;
  node->shape = shape;
  node->stream = default_stream(default_device());
  node->trace = TraceScope::kForever;
  return array(std::move(node));
}

// The trace at one set of sizes.
struct CompiledGraph::Instance {
  std::vector<uint64_t> key;               // bits of the structural symbols
  std::shared_ptr<const Program> program;  // null: the trace does not hold for them
  std::vector<size_t> used;                // 0: not; else how the program wants the input aligned
  std::vector<std::pair<Dtype, Shape>> outputs;
  std::vector<uint32_t> scalar_exprs;
  std::vector<Number> values;      // of all expressions
  mutable uint64_t last_used = 0;  // among all uses; under the graph's lock
  size_t launch_count() const { return program == nullptr ? 0 : program->launches.size(); }
};

CompiledGraph::CompiledGraph(std::shared_ptr<const Symbols> symbols, const Arrays& placeholders,
                             const Arrays& outputs, std::vector<Number> results)
    : symbols_(std::move(symbols)),
      placeholders_(nodes_of(placeholders)),
      outputs_(nodes_of(outputs)),
      results_(std::move(results)) {
  for (const NodeRef& output : outputs_) {
    const auto at = std::ranges::find(placeholders_, output);
    if (at != placeholders_.end()) passed_.push_back(at - placeholders_.begin());
  }
  if (passed_.size() != outputs_.size()) passed_.clear();
  const std::vector<bool> varies = symbols_->varying();
  for (size_t i = 0; i < symbols_->input_count(); ++i) {
    if (symbols_->is_structural(i)) structural_.push_back(i);
  }
  for (size_t i = 1; i < varies.size(); ++i) {
    if (varies[i]) varying_.push_back(static_cast<uint32_t>(i));
  }
  for (const Symbols::Guard& guard : symbols_->guards()) {
    if (varies[guard.a] || varies[guard.b]) guards_.push_back(guard);
  }
}

CompiledGraph::InstancePtr CompiledGraph::make(std::span<const array> inputs,
                                               std::span<const Number> symbols, bool fused) const {
  auto instance = std::make_shared<Instance>();
  for (size_t i : structural_) instance->key.push_back(Symbols::bits_of(symbols[i]));
  std::vector<Shape> shapes;
  for (const array& input : inputs) shapes.push_back(input.shape());
  auto replayed = replay(*symbols_, placeholders_, outputs_, shapes, symbols);
  if (!replayed) return instance;
  instance->program = build_program(replayed->graph, fused ? Sight::settled : Sight::usual, [&] {
    std::vector<std::string> sizes;
    for (size_t i : structural_) sizes.push_back(text_of(symbols[i]));
    return fmt::format("compile at sizes [{}]", fmt::join(sizes, " "));
  });
  instance->used.resize(inputs.size(), 0);
  for (const Program::Value& value : instance->program->values) {
    if (value.input >= 0) instance->used[static_cast<size_t>(value.input)] = value.alignment;
  }
  for (const NodeRef& output : replayed->graph.outputs)
    instance->outputs.emplace_back(output->dtype, output->shape);
  instance->scalar_exprs = std::move(replayed->scalar_exprs);
  instance->values = std::move(replayed->values);
  return instance;
}

bool CompiledGraph::is_for(const Instance& instance, std::span<const Number> symbols) const {
  for (size_t i = 0; i < structural_.size(); ++i)
    if (instance.key[i] != Symbols::bits_of(symbols[structural_[i]])) return false;
  return true;
}

bool CompiledGraph::is_outrun(const Instance& instance) {
  return instance.program != nullptr && instance.program->is_outrun();
}

uint64_t CompiledGraph::hash_of(std::span<const Number> symbols) const {
  uint64_t hash = 0;
  for (size_t i : structural_) hash = (hash ^ Symbols::bits_of(symbols[i])) * 0x9e3779b97f4a7c15u;
  return hash;
}

CompiledGraph::InstancePtr CompiledGraph::known(std::span<const Number> symbols) const {
  if (last_ && is_for(*last_, symbols) && !is_outrun(*last_)) return last_;
  const auto alike = instances_.find(hash_of(symbols));
  if (alike == instances_.end()) return nullptr;
  for (const InstancePtr& instance : alike->second)
    if (is_for(*instance, symbols) && !is_outrun(*instance)) return use(instance);
  return nullptr;
}

CompiledGraph::InstancePtr CompiledGraph::use(InstancePtr instance) const {
  instance->last_used = ++uses_;
  return last_ = std::move(instance);
}

void CompiledGraph::drop_oldest() const {
  uint64_t oldest = UINT64_MAX, hash = 0;
  for (const auto& [key, alike] : instances_) {
    for (const InstancePtr& instance : alike) {
      if (instance->last_used >= oldest) continue;
      oldest = instance->last_used;
      hash = key;
    }
  }
  const auto found = instances_.find(hash);
  std::erase_if(found->second, [&](const InstancePtr& instance) {
    if (instance->last_used != oldest) return false;
    --instance_count_;
    launch_count_ -= instance->launch_count();
    return true;
  });
  if (found->second.empty()) instances_.erase(found);
}

CompiledGraph::InstancePtr CompiledGraph::find(std::span<const array> inputs,
                                               std::span<const Number> symbols) const {
  const InForkGate making(fork_gate());
  std::lock_guard guard(lock_);
  if (InstancePtr instance = known(symbols)) return instance;
  const uint64_t hash = hash_of(symbols);
  if (const auto alike = instances_.find(hash); alike != instances_.end()) {
    for (InstancePtr& instance : alike->second) {
      if (!is_for(*instance, symbols)) continue;
      InstancePtr whole = make(inputs, symbols, true);
      launch_count_ += whole->launch_count() - instance->launch_count();
      return use(instance = std::move(whole));
    }
  }
  constexpr size_t kMaxInstances = 256, kFew = 4;  // so many are kept of any size
  while (instance_count_ >= kMaxInstances ||
         (instance_count_ >= kFew && launch_count_ >= kMaxKeptLaunches))
    drop_oldest();
  InstancePtr instance = make(inputs, symbols);
  ++instance_count_;
  launch_count_ += instance->launch_count();
  instances_[hash].push_back(instance);
  return use(std::move(instance));
}

bool CompiledGraph::finish(const Instance& instance, std::span<const Number> symbols,
                           Call& call) const {
  std::vector<Number> values;
  if (!varying_.empty()) values = instance.values;
  for (uint32_t id : varying_) {
    const std::optional<Number> value = symbols_->value_of(id, symbols, values);
    if (!value) return false;
    values[id] = *value;
  }
  for (const Symbols::Guard& guard : guards_)
    if (!Symbols::is_met(guard, values)) return false;
  const std::vector<Number>& known = varying_.empty() ? instance.values : values;
  for (uint32_t id : instance.scalar_exprs) call.scalars_.push_back(known[id]);
  for (const Number& n : results_) call.results_.push_back(n.expr == 0 ? n : known[n.expr]);
  return true;
}

std::string CompiledGraph::broken_guard(std::span<const Number> symbols,
                                        std::span<const std::string> names) const {
  const std::vector<Symbols::Expr>& exprs = symbols_->exprs();
  std::vector<Number> values(exprs.size());
  std::vector<bool> known(exprs.size(), false);
  std::vector<std::string> texts(exprs.size());
  known[0] = true;  // the operand that an expression of one number does not have
  for (uint32_t id = 1; id < exprs.size(); ++id) {
    const Symbols::Expr& e = exprs[id];
    if (e.op == Symbols::Op::size) continue;  // of what an op makes: not known here
    if (e.op > Symbols::Op::constant && (!known[e.a] || !known[e.b])) continue;
    const std::optional<Number> value = symbols_->value_of(id, symbols, values);
    if (!value) continue;
    values[id] = *value;
    known[id] = true;
    texts[id] = text_of(*value);
    if (e.op == Symbols::Op::input) texts[id] = fmt::format("{} = {}", names[e.a], texts[id]);
  }
  for (const Symbols::Guard& guard : symbols_->guards()) {
    if (!known[guard.a] || !known[guard.b] || Symbols::is_met(guard, values)) continue;
    const char* relation = guard.relation == Symbols::Relation::less ? "<" : "==";
    return fmt::format("({}) {} ({}) was {}", texts[guard.a], relation, texts[guard.b],
                       guard.holds ? "true" : "false");
  }
  return "its ops do not fit these sizes";
}

std::optional<bool> CompiledGraph::prepare_known(std::span<const Number> symbols,
                                                 Call& call) const {
  {
    std::unique_lock lock(lock_, std::try_to_lock);
    if (!lock) return std::nullopt;
    call.instance_ = known(symbols);
  }
  if (!call.instance_) return std::nullopt;
  return call.instance_->program != nullptr && finish(*call.instance_, symbols, call);
}

bool CompiledGraph::prepare(std::span<const array> inputs, std::span<const Number> symbols,
                            Call& call) const {
  call.instance_ = find(inputs, symbols);
  return call.instance_->program != nullptr && finish(*call.instance_, symbols, call);
}

// A call that waits to be evaluated.
class CompiledGraph::PendingRun final : public ProgramCall {
 public:
  PendingRun(Call& call, std::span<const array* const> arrays)
      : instance_(std::move(call.instance_)), scalars_(std::move(call.scalars_)) {
    for (size_t i = 0; i < arrays.size(); i++)
      if (instance_->used[i] > 0) inputs.push_back(arrays[i]->node());
  }
  const Instance& instance() const { return *instance_; }

 private:
  // Nobody but this call can reach its data.
  static bool is_donated(const Node& input) {
    return !input.is_held() && !input.is_traced() && input.references() == 1 &&
           input.buffer->unique() && !input.buffer->pinned();
  }

  // f(position among all inputs, input)
  template <typename F>
  void for_each_input(F f) {
    const std::vector<size_t>& used = instance_->used;
    for (size_t i = 0, next = 0; i < used.size(); i++)
      if (used[i] > 0) f(i, *inputs[next++]);
  }

  ProgramRun start() override {
    ProgramInputs values;
    values.resize(instance_->used.size());
    for_each_input([&](size_t i, Node& input) {
      const bool donated = is_donated(input);
      values[i] = contiguous_value(input, instance_->used[i]);
      values[i].donated |= donated;
    });
    // Taken from the nodes when no copy can fail any more.
    for_each_input([&](size_t i, Node& input) {
      if (values[i].donated && values[i].buffer == input.buffer) input.buffer.reset();
    });
    return {*instance_->program, std::move(values), scalars_};
  }

  void put_back(std::vector<BufferRef> buffers) override {
    for_each_input([&](size_t i, Node& input) {
      if (!input.buffer) input.buffer = std::move(buffers[i]);
    });
  }

  InstancePtr instance_;
  std::vector<Number> scalars_;
};

Arrays CompiledGraph::run(Call& call, std::span<const array* const> inputs) const {
  if (!passed_.empty()) {
    Arrays same;
    for (size_t i : passed_) same.push_back(*inputs[i]);
    return same;
  }
  const auto pending = std::make_shared<PendingRun>(call, inputs);
  const auto& outputs = pending->instance().outputs;
  int64_t bytes = 0;
  for (const auto& [dtype, shape] : outputs)
    bytes += shape.size() * static_cast<int64_t>(size_of(dtype));
  Arrays arrays;
  arrays.reserve(outputs.size());
  for (const auto& [dtype, shape] : outputs) {
    arrays.push_back(placeholder(shape, dtype));
    Node& node = *arrays.back().node();
    node.trace = 0;
    node.call = pending;
    pending->add_output(&node);
    const Node& first = *arrays.front().node();
    if (arrays.size() > 1) {  // all wait for the same
      node.set_pending(first.depth.load(std::memory_order_relaxed),
                       first.pending_bytes.load(std::memory_order_relaxed));
      continue;
    }
    node.set_pending(0, bytes);
    bound_laziness(node);
  }
  return arrays;
}

}  // namespace cermet
