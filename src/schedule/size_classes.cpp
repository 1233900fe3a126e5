// SPDX-License-Identifier: MIT
#include "schedule/size_classes.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/env.h"
#include "base/error.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "schedule/number_bits.h"
#include "schedule/plan_key.h"
#include "schedule/symbols.h"

namespace cermet {

namespace {

// What tells the nodes of a symbolic plan apart: it is in the place of where the user made them.
constexpr char kOfTape = 0;

// A graph as what it has in common with the others of its class, and its own numbers, in one order.
struct Reading {
  std::vector<NodeRef> tape;
  PlanKey key;
  std::vector<int64_t> numbers;
};

class Reader {
 public:
  explicit Reader(const TracedGraph& graph) {
    for (size_t i = 0; i < graph.inputs.size(); i++) input_.emplace(graph.inputs[i].get(), i);
    for (const NodeRef& node : graph.scalars) scalar_.emplace(node.get(), scalar_.size());
    reading_.tape = tape_to(graph.outputs, graph.inputs);
    for (const NodeRef& node : reading_.tape) add(node);
    for (const auto* list : {&graph.outputs, &graph.scalars})
      for (const NodeRef& node : *list) key().add(position(node));
    for (const auto& [scalar, other] : graph.equal) {
      key().add(position(scalar));
      key().add(position(other));
    }
    if (!widens_) return;
    for (const NodeRef& node : reading_.tape)
      if (node->is_ready()) key().add(schedule::alignment_of(*node));
  }

  const Reading& reading() const { return reading_; }
  bool is_input(const NodeRef& node) const { return input_.contains(node.get()); }
  bool is_scalar(const NodeRef& node) const { return scalar_.contains(node.get()); }
  // Each number of a node, in the order of `numbers`. of(Dim&), of(Number&)
  template <typename Of>
  void for_each_number(const Node& node, bool is_leaf, bool is_scalar, Shape& shape, Params& params,
                       Layout& layout, Of of) const {
    for (int axis = 0; axis < shape.ndim(); ++axis) of(shape.dim(axis));
    if (is_leaf && node.is_ready())
      for (Dim& stride : layout.strides) of(stride);
    if (is_leaf) return;
    for_each_symbol(params, of, [&](Number& n) {
      if (n.kind == Number::Kind::integer && !is_scalar) of(n);
    });
  }

 private:
  PlanKey& key() { return reading_.key; }

  uint64_t position(const NodeRef& node) const {
    const auto found = position_.find(node.get());
    return found == position_.end() ? UINT64_MAX : found->second;
  }

  void add(const NodeRef& node) {
    position_.emplace(node.get(), position_.size());
    const auto input = input_.find(node.get());
    const bool is_leaf = node->row == nullptr || node->is_ready() || input != input_.end();
    key().add(reinterpret_cast<uintptr_t>(node->row));
    key().add(reinterpret_cast<uintptr_t>(node->meant));
    key().add(static_cast<uint64_t>(node->dtype) | uint64_t{is_leaf} << 8 |
              uint64_t{is_scalar(node)} << 9 | uint64_t{node->is_ready()} << 10 |
              static_cast<uint64_t>(node->shape.ndim()) << 16 |
              static_cast<uint64_t>(is_leaf ? 0 : node->inputs.size()) << 32);
    key().add(input == input_.end() ? UINT64_MAX : input->second);
    Shape shape = node->shape;
    Params params = is_leaf ? Params(NoParams{}) : node->params;
    Layout layout = node->layout;
    for_each_number(*node, is_leaf, is_scalar(node), shape, params, layout,
                    [&](auto& n) { note(n); });
    if (is_leaf) return;
    if (const auto* full = std::get_if<FullParams>(&params); full != nullptr && is_scalar(node))
      std::get<FullParams>(params).value = {.kind = full->value.kind};
    key().add(hash_params(params));
    for (const NodeRef& below : node->inputs) key().add(position(below));
    widens_ = widens_ || schedule::widens(*node);
  }

  void note(Dim& dim) {
    reading_.numbers.push_back(dim.value);
    dim = 0;
  }
  void note(Number& number) {
    reading_.numbers.push_back(number.integer);
    number.integer = 0;
  }

  Reading reading_;
  std::unordered_map<const Node*, uint64_t> input_, scalar_, position_;
  bool widens_ = false;
};

// 0 and 1 mean something else than other sizes do, and are looked for without guards.
bool is_size(int64_t number) { return number >= 2; }
bool may_differ(int64_t a, int64_t b) { return (is_size(a) && is_size(b)) || (a < 0 && b < 0); }

// Graphs of one key of which a class may be made.
bool are_alike(std::span<const int64_t> a, std::span<const int64_t> b) {
  bool differ = false;
  for (size_t i = 0; i < a.size(); i++) {
    if (a[i] == b[i]) continue;
    if (!may_differ(a[i], b[i])) return false;
    differ = true;
  }
  return differ;
}

// A program for all sizes that pass its guards.
class SizeClass {
 public:
  // Null: its plan is one of single sizes, or there is none at others.
  static std::shared_ptr<const SizeClass> make(const TracedGraph& graph, const Reader& reader,
                                               const Reading& reading,
                                               std::span<const int64_t> before,
                                               const PlanWhole& plan) {
    const auto made = std::make_shared<SizeClass>();
    made->open(reading.numbers, before);
    try {
      const Symbols::Scope scope(made->symbols_);
      made->keep(plan(made->symbolic(graph, reader, reading)));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::memory || error.kind() == ErrorKind::interrupted) throw;
      if (error.kind() == ErrorKind::internal && env::size_classes() == "checked") throw;
      return nullptr;
    }
    return made;
  }

  // Null: it does not hold for these numbers.
  std::shared_ptr<Program> at(const Reading& reading) const {
    const std::optional<std::vector<Number>> values = values_at(reading.numbers);
    if (!values || !holds(*values)) return nullptr;
    auto program = std::make_shared<Program>();
    program->values = program_->values;
    program->launches = program_->launches;
    program->empty = program_->empty;
    program->outputs = program_->outputs;
    program->scalar_positions = program_->scalar_positions;
    program->members = program_->members;
    fix_sizes(*program, *values);
    for (const auto& [value, position] : constants_)
      program->values[value].constant = reading.tape[position];
    for (Program::Member& member : program->members) {
      if (member.origin.code != &kOfTape) continue;
      const Node& node = *reading.tape[static_cast<size_t>(member.origin.position)];
      member.origin = node.origin;
      if (member.position != TapeMark::kNone) member.position = node.mark.position;
    }
    return program;
  }

  size_t launch_count() const { return program_->launches.size(); }
  std::string summary() const {
    return fmt::format(
        "{} symbols, {} expressions, {} guards, {} decisions, {} fixed", inputs_.size(),
        symbols_.exprs().size(), symbols_.guards().size(), symbols_.decisions().size(),
        std::ranges::count(symbols_.guards(), Symbols::Relation::same, &Symbols::Guard::relation));
  }

 private:
  static constexpr uint32_t kFixed = UINT32_MAX;

  // Without the data that it was planned with, which goes when its user lets it go.
  void keep(std::shared_ptr<Program> program) {
    for (size_t i = 0; i < program->values.size(); i++) {
      NodeRef constant = std::exchange(program->values[i].constant, {});
      if (constant) constants_.emplace_back(i, static_cast<size_t>(constant->origin.position));
    }
    program_ = std::move(program);
  }

  // A symbol for each pair of numbers that differ.
  void open(std::span<const int64_t> now, std::span<const int64_t> before) {
    std::map<std::pair<int64_t, int64_t>, uint32_t> known;
    for (size_t i = 0; i < now.size(); i++) {
      if (now[i] == before[i]) {
        symbol_of_.push_back(kFixed);
        continue;
      }
      const auto [it, fresh] = known.try_emplace({now[i], before[i]}, inputs_.size());
      if (fresh)
        inputs_.push_back(symbols_.input({Number::Kind::integer, now[i], 0}, is_size(now[i])));
      symbol_of_.push_back(it->second);
    }
    numbers_.assign(now.begin(), now.end());
  }

  // The graph with symbols in the place of numbers that are open.
  TracedGraph symbolic(const TracedGraph& graph, const Reader& reader,
                       const Reading& reading) const {
    std::unordered_map<const Node*, NodeRef> made;
    size_t next = 0;
    const auto expr = [&]() -> uint32_t {
      const uint32_t symbol = symbol_of_[next++];
      return symbol == kFixed ? 0 : inputs_[symbol].expr;
    };
    for (size_t i = 0; i < reading.tape.size(); i++) {
      const NodeRef& from = reading.tape[i];
      const bool is_leaf = from->row == nullptr || from->is_ready() || reader.is_input(from);
      NodeRef to = without_symbols(*from);
      to->origin = {&kOfTape, static_cast<int32_t>(i)};
      to->mark = {.position = static_cast<uint32_t>(i)};
      reader.for_each_number(*from, is_leaf, reader.is_scalar(from), to->shape, to->params,
                             to->layout, [&](auto& number) { number.expr = expr(); });
      if (!reader.is_input(from))  // data of a trace keeps what it was made of
        for (const NodeRef& input : from->inputs) to->inputs.push_back(made.at(input.get()));
      made.emplace(from.get(), std::move(to));
    }
    return clone(graph, made);
  }

  // The node alone; what it has of a trace's symbols means nothing here.
  static NodeRef without_symbols(const Node& from) {
    NodeRef to(new Node);
    to->row = from.row;
    to->params = from.params;
    to->dtype = from.dtype;
    to->shape = from.shape;
    to->layout = from.layout;
    to->buffer = from.buffer;
    to->stream = from.stream;
    to->trace = from.trace;
    to->meant = from.meant;
    if (from.is_ready()) to->state.store(NodeState::ready);
    for (int axis = 0; axis < to->shape.ndim(); ++axis) to->shape.dim(axis).expr = 0;
    for (Dim& stride : to->layout.strides) stride.expr = 0;
    to->layout.offset.expr = 0;
    for_each_symbol(to->params, [](Dim& dim) { dim.expr = 0; }, [](Number& n) { n.expr = 0; });
    return to;
  }

  static TracedGraph clone(const TracedGraph& graph,
                           const std::unordered_map<const Node*, NodeRef>& made) {
    const auto other = [&](const NodeRef& node) {
      const auto found = made.find(node.get());
      return found == made.end() ? node : found->second;
    };
    TracedGraph symbolic;
    for (const NodeRef& node : graph.inputs) symbolic.inputs.push_back(other(node));
    for (const NodeRef& node : graph.outputs) symbolic.outputs.push_back(other(node));
    for (const NodeRef& node : graph.scalars) symbolic.scalars.push_back(other(node));
    for (const auto& [a, b] : graph.equal) symbolic.equal.emplace_back(other(a), other(b));
    return symbolic;
  }

  std::optional<std::vector<Number>> values_at(std::span<const int64_t> numbers) const {
    std::vector<std::optional<int64_t>> known(inputs_.size());
    for (size_t i = 0; i < numbers.size(); i++) {
      const uint32_t symbol = symbol_of_[i];
      const int64_t wanted = symbol == kFixed ? numbers_[i] : known[symbol].value_or(numbers[i]);
      if (numbers[i] != wanted) return std::nullopt;
      if (symbol == kFixed) continue;
      if (!may_differ(numbers[i], numbers_[i])) return std::nullopt;
      known[symbol] = numbers[i];
    }
    std::vector<Number> inputs;
    for (const auto& number : known) inputs.push_back({Number::Kind::integer, *number, 0});
    std::vector<Number> values(symbols_.exprs().size());
    for (uint32_t i = 1; i < values.size(); i++) {
      const std::optional<Number> value = symbols_.value_of(i, inputs, values);
      if (!value) return std::nullopt;
      values[i] = *value;
    }
    return values;
  }

  bool holds(std::span<const Number> values) const {
    const auto is_met = [&](const Symbols::Guard& guard) { return Symbols::is_met(guard, values); };
    const auto is_decided = [&](const Symbols::Decision& decision) {
      std::vector<int64_t> by;
      for (const uint32_t expr : decision.by) by.push_back(values[expr].integer);
      return decision.decider(by) == decision.outcome;
    };
    return std::ranges::all_of(symbols_.guards(), is_met) &&
           std::ranges::all_of(symbols_.decisions(), is_decided);
  }

  Symbols symbols_{Symbols::Use::plan};
  std::vector<Number> inputs_;                        // the symbols
  std::vector<uint32_t> symbol_of_;                   // of each of a graph's numbers
  std::vector<int64_t> numbers_;                      // of the graph that was planned
  std::vector<std::pair<size_t, size_t>> constants_;  // values that are data of a tape, from where
  std::shared_ptr<const Program> program_;
};

// Graphs of one key.
struct Alike {
  std::vector<int64_t> numbers;  // of the last one that no class served
  std::vector<std::shared_ptr<const SizeClass>> classes;
  int tries = 0;  // classes made since one served
  uint64_t last_used = 0;

  // What it keeps, in numbers: a launch takes as much memory as some hundreds.
  size_t weight() const {
    constexpr size_t kLaunch = 640;
    size_t weight = numbers.size();
    for (const auto& known : classes) weight += known->launch_count() * kLaunch;
    return weight;
  }
};

class SizeClasses {
 public:
  std::mutex mutex;  // of what follows

  std::shared_ptr<Program> plan(const TracedGraph& graph, const PlanWhole& plan_whole) {
    const Reader reader(graph);
    const Reading& reading = reader.reading();
    for (const auto& known : known_for(reading.key)) {
      std::shared_ptr<Program> program = known->at(reading);
      if (program == nullptr) continue;
      const std::lock_guard lock(mutex);
      at(reading.key).tries = 0;
      return program;
    }
    const std::optional<std::vector<int64_t>> before = note_unserved(reading);
    if (!before) return nullptr;
    const auto made = SizeClass::make(graph, reader, reading, *before, plan_whole);
    if (made == nullptr) return nullptr;
    if (log_enabled(LogTopic::plan)) log_line(LogTopic::plan, "size class: {}", made->summary());
    keep(reading.key, made);
    return made->at(reading);
  }

 private:
  static constexpr int kMaxTries = 4;
  static constexpr size_t kMaxKeys = 256, kMaxClasses = 4;
  static constexpr size_t kMaxWeight = kMaxKeptLaunches / 4 * 640;

  std::vector<std::shared_ptr<const SizeClass>> known_for(const PlanKey& key) {
    const std::lock_guard lock(mutex);
    return at(key).classes;
  }

  // The numbers of the graph before, if a class is to be made of both.
  std::optional<std::vector<int64_t>> note_unserved(const Reading& reading) {
    const std::lock_guard lock(mutex);
    Alike& alike = at(reading.key);
    std::vector<int64_t> before = std::exchange(alike.numbers, reading.numbers);
    if (before.empty()) drop_beyond_bounds();
    if (before.size() != reading.numbers.size() || alike.tries == kMaxTries ||
        !are_alike(before, reading.numbers))
      return std::nullopt;
    ++alike.tries;
    return before;
  }

  void keep(const PlanKey& key, std::shared_ptr<const SizeClass> made) {
    const std::lock_guard lock(mutex);
    auto& classes = at(key).classes;
    classes.insert(classes.begin(), std::move(made));
    if (classes.size() > kMaxClasses) classes.pop_back();
    drop_beyond_bounds();
  }

  void drop_beyond_bounds() {
    const auto all = [&] {
      size_t weight = 0;
      for (const auto& [other, alike] : alike_) weight += alike.weight();
      return weight;
    };
    while (alike_.size() > 1 && all() > kMaxWeight) drop_oldest();
  }

  void drop_oldest() {
    alike_.erase(std::ranges::min_element(
        alike_, {}, [](const auto& entry) { return entry.second.last_used; }));
  }

  Alike& at(const PlanKey& key) {
    if (alike_.size() >= kMaxKeys && !alike_.contains(key)) drop_oldest();
    Alike& alike = alike_[key];
    alike.last_used = ++uses_;
    return alike;
  }

  std::unordered_map<PlanKey, Alike, PlanKeyHash> alike_;
  uint64_t uses_ = 0;
};

void fix(Dim& dim, std::span<const Number> values) {
  if (dim.expr == 0) return;
  dim = values.empty() ? Dim(dim.value) : Dim(values[dim.expr].integer);
}

void fix(Layout& layout, std::span<const Number> values) {
  for (Dim& stride : layout.strides) fix(stride, values);
  fix(layout.offset, values);
}

void fix(schedule::EmittedKernel& kernel, std::span<const Number> values) {
  for (schedule::Operand& operand : kernel.operands) {
    fix(operand.offset, values);
    Number& number = operand.number;
    if (number.expr != 0 && !values.empty()) number = values[number.expr];
    number.expr = 0;
  }
  for (auto* list : {&kernel.extents, &kernel.strides})
    for (Dim& dim : *list) fix(dim, values);
  for (schedule::CheckSite& site : kernel.sites) {
    fix(site.size, values);
    fix(site.extent, values);
  }
  fix(kernel.updated, values);
  fix(kernel.flops, values);
  for (auto& [id, loops] : kernel.folds)
    for (auto& [order, size] : loops) fix(size, values);
}

using Operand = schedule::Operand;

bool is_same(const Operand& a, const Operand& b) {
  const bool is_constant = a.kind == Operand::Kind::constant;  // a scalar is given at each run
  return a.kind == b.kind && a.value == b.value && a.offset == b.offset && a.scalar == b.scalar &&
         a.dtype == b.dtype &&
         (!is_constant ||
          schedule::number_bits(a.number, a.dtype) == schedule::number_bits(b.number, b.dtype));
}

bool is_same(const schedule::CheckSite& a, const schedule::CheckSite& b) {
  return std::string_view(a.op) == b.op && a.axis == b.axis && a.size == b.size &&
         a.extent == b.extent && a.node == b.node && a.is_unsigned == b.is_unsigned;
}

bool is_same(const Program::Value& a, const Program::Value& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes && a.input == b.input &&
         a.alignment == b.alignment && a.constant == b.constant;
}

bool is_same(const Program::Output& a, const Program::Output& b) {
  return a.value == b.value && a.layout == b.layout && a.dtype == b.dtype;
}

template <typename T>
bool are_same(const T& a, const T& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return is_same(x, y); });
}

// The first field of a launch that is not the same; null: none.
const char* difference(const Program::Launch& a, const Program::Launch& b) {
  const schedule::EmittedKernel &x = a.kernel, &y = b.kernel;
  if (!(a.hash == b.hash)) return "kernel";
  if (!are_same(x.operands, y.operands)) return "operands";
  if (x.extents != y.extents) return "extents";
  if (x.strides != y.strides) return "strides";
  if (!are_same(x.sites, y.sites)) return "checks";
  if (x.update_target != y.update_target || x.updated != y.updated) return "update";
  if (x.flops != y.flops || x.kept != y.kept || x.folds != y.folds) return "products or folds";
  if (a.target_layout != b.target_layout || a.keeps_target != b.keeps_target) return "target";
  if (a.outputs != b.outputs || a.after != b.after) return "values";
  if (a.bytes_read != b.bytes_read || a.bytes_written != b.bytes_written) return "bytes";
  return a.border == b.border && a.members == b.members ? nullptr : "members";
}

}  // namespace

std::string difference(const Program& a, const Program& b) {
  if (!are_same(a.values, b.values)) return "values";
  if (a.launches.size() != b.launches.size())
    return fmt::format("{} launches for {}", a.launches.size(), b.launches.size());
  for (size_t i = 0; i < a.launches.size(); i++)
    if (const char* what = difference(a.launches[i], b.launches[i]))
      return fmt::format("{} of launch {} ({})", what, i, a.launches[i].kernel.ir->name);
  if (!are_same(a.outputs, b.outputs)) return "outputs";
  const auto is_alike = [](const Program::Member& x, const Program::Member& y) {
    return x.op == y.op && x.position == y.position && x.origin.code == y.origin.code &&
           x.origin.position == y.origin.position;
  };
  if (!std::ranges::equal(a.members, b.members, is_alike)) return "members";
  return a.empty == b.empty && a.scalar_positions == b.scalar_positions ? "" : "empty values";
}

void fix_sizes(Program& program, std::span<const Number> values) {
  for (Program::Value& value : program.values) {
    for (int axis = 0; axis < value.shape.ndim(); ++axis) fix(value.shape.dim(axis), values);
    fix(value.bytes, values);
  }
  for (Program::Launch& launch : program.launches) {
    fix(launch.kernel, values);
    fix(launch.target_layout, values);
    fix(launch.bytes_read, values);
    fix(launch.bytes_written, values);
  }
  for (Program::Output& output : program.outputs) fix(output.layout, values);
}

std::shared_ptr<Program> plan_by_class(const TracedGraph& graph, const PlanWhole& plan) {
  static constinit ForkSafe<SizeClasses> classes{ForkLevel::leaf};
  return classes.get().plan(graph, plan);
}

}  // namespace cermet
