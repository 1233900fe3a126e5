// SPDX-License-Identifier: MIT
// Evaluation: the pending tape becomes a program (found by the tape's hash, or built), the program runs,
// and the nodes that are held get its results.
#include "schedule/eval.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/custom_call.h"
#include "graph/hooks.h"
#include "graph/known_values.h"
#include "graph/meant_scope.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/long_lock.h"
#include "runtime/poll.h"
#include "runtime/stream_queue.h"
#include "runtime/wait.h"
#include "schedule/equal_scalars.h"
#include "schedule/plan_key.h"
#include "schedule/program_call.h"

namespace cermet {

namespace {

struct Plan {
  ProgramPtr program;
  int wanted = 0;
};

// Bounded by what the programs hold, which is a launch or more for each op of a long chain.
class Plans {
 public:
  Plan& at(const PlanKey& key) {
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    if (launches_ >= kMaxKeptLaunches) forget([](const Plan& plan) { return plan.wanted <= 1; });
    if (launches_ >= kMaxKeptLaunches || plans_.size() >= kMaxPlans)
      forget([](const Plan&) { return true; });
    return plans_[key];
  }
  void set(Plan& plan, ProgramPtr program) {
    launches_ += program->launches.size() - launches_of(plan);
    plan.program = std::move(program);
  }

 private:
  static constexpr size_t kMaxPlans = 1024;

  static size_t launches_of(const Plan& plan) {
    return plan.program == nullptr ? 0 : plan.program->launches.size();
  }
  template <typename Which>
  void forget(Which&& which) {
    std::erase_if(plans_, [&](const auto& entry) {
      if (!which(entry.second)) return false;
      launches_ -= launches_of(entry.second);
      return true;
    });
  }

  std::unordered_map<PlanKey, Plan, PlanKeyHash> plans_;
  size_t launches_ = 0;
};
Plans* plans = new Plans;  // under the EvalLock

struct PlansLock : LongLock {
  PlansLock() : LongLock(true, [] { plans = new Plans; }) {}
};

LongLock& eval_lock() {
  static constinit ForkSafe<PlansLock> lock(ForkLevel::graph);
  return lock.get();
}

// A node that a tape is being read from, and those of its inputs that are still to be looked at.
struct TapeFrame {
  const NodeRef* node;
  const NodeRef *next, *end;
};

// The pending graph by positions: what a plan depends on, and what it is run with.
struct Tape {
  TracedGraph graph;
  std::vector<NodeRef> nodes;  // to become ready, inputs before users
  std::vector<bool> donated;   // of graph.inputs
  bool has_calls = false;      // outputs of calls are pending: they must be run first
  PlanKey key;
  std::vector<Number> scalars;  // values of graph.scalars
  // Of the reading.
  std::vector<TapeFrame> stack;
  schedule::EqualScalars equal_scalars;

  void clear() {
    graph.inputs.clear();
    graph.scalars.clear();
    graph.equal.clear();
    graph.outputs.clear();
    nodes.clear();
    donated.clear();
    has_calls = false;
    key = PlanKey();
    scalars.clear();
    stack.clear();
  }
};

// A tape whose memory serves the next evaluation, unless that has begun inside this one. Under the EvalLock.
class KeptTape {
 public:
  KeptTape() : tape_(std::exchange(kept_, nullptr)) {
    if (tape_ == nullptr) tape_ = std::make_unique<Tape>();
  }
  ~KeptTape() {
    constexpr size_t kMostNodes = 4096;
    if (tape_->nodes.capacity() > kMostNodes) return;
    tape_->clear();
    kept_ = std::move(tape_);
  }
  KeptTape(const KeptTape&) = delete;
  KeptTape& operator=(const KeptTape&) = delete;
  Tape& operator*() { return *tape_; }

 private:
  static std::unique_ptr<Tape>& kept_;
  std::unique_ptr<Tape> tape_;
};
// Never destroyed: threads may still evaluate while the process ends.
std::unique_ptr<Tape>& KeptTape::kept_ = *new std::unique_ptr<Tape>;

// Reads with marks at the nodes in place of tables: a graph is asked for but once after it was made, and
// often long after, so each look at it costs more than what is then done with it.
class TapeReader {
 public:
  TapeReader(std::span<const NodeRef> roots, Tape& tape) : roots_(roots), tape_(tape) {}

  // Takes the nodes.
  void read() {
    const GraphLock lock;
    static constinit uint64_t readings = 0;
    reading_ = ++readings;
    collect();
    for (const NodeRef& node : tape_.nodes) {
      if (node->state.load(std::memory_order_acquire) == NodeState::failed)
        std::rethrow_exception(node->error);
      traced_ |= node->is_traced();
      tape_.has_calls |= node->call != nullptr && !node->call->is_done();
    }
    if (tape_.has_calls) return;
    for (const NodeRef& node : tape_.nodes) add(node);
    tape_.equal_scalars.find(tape_.nodes, tape_.graph.scalars, next_position_, tape_.graph.equal);
    if (widens_)
      for (const NodeRef& input : tape_.graph.inputs) tape_.key.add(schedule::alignment_of(*input));
    for (const auto& [scalar, other] : tape_.graph.equal) {
      tape_.key.add(scalar->mark.position);
      tape_.key.add(other->mark.position);
    }
    for (const NodeRef& input : tape_.graph.inputs) tape_.donated.push_back(is_donated(*input));
    for (const NodeRef& node : tape_.nodes)
      node->state.store(NodeState::scheduled, std::memory_order_release);
  }

 private:
  // The mark of this reading.
  TapeMark& mark_of(Node& node) const {
    if (node.mark.tape != reading_) node.mark = TapeMark{.tape = reading_};
    return node.mark;
  }

  // Depth first, inputs before users, as pending_tape does; counts the edges on its way.
  void collect() {
    std::vector<const PendingCall*> calls;
    const auto visit = [&](const NodeRef& node) {
      TapeMark& mark = mark_of(*node);
      if (node->is_ready() || std::exchange(mark.is_met, true)) return;
      std::span<const NodeRef> below = node->edges();
      if (node->call) {  // what it needs is looked at for the first of its outputs
        const bool is_known = std::ranges::find(calls, node->call.get()) != calls.end();
        if (is_known) below = {};
        else calls.push_back(node->call.get());
      }
      tape_.stack.push_back({&node, below.data(), below.data() + below.size()});
    };
    for (const NodeRef& root : roots_) {
      visit(root);
      mark_of(*root).is_wanted = true;
      while (!tape_.stack.empty()) {
        TapeFrame& top = tape_.stack.back();
        if (top.next != top.end) {
          const NodeRef& input = *top.next++;
          visit(input);
          ++input->mark.edges;
        } else {
          if (const auto* held = std::get_if<CallParams>(&(*top.node)->params))
            ++custom_calls_[held->call];
          tape_.nodes.push_back(*top.node);
          tape_.stack.pop_back();
        }
      }
    }
    count_custom_calls();
  }

  // A custom call that only the tape's nodes refer to holds what it was given and what it gave for no one
  // else.
  void count_custom_calls() {
    for (const auto& [call, nodes] : custom_calls_) {
      if (call.use_count() != nodes + 1) continue;
      for (const auto* held : {&call->arguments, &call->outputs})
        for (const NodeRef& node : *held) ++mark_of(*node).edges;
    }
    custom_calls_.clear();
  }

  void add(const NodeRef& node) {
    CERMET_CHECK(node->row != nullptr, value, "eval",
                 "an array of shape {} has no data: it stands for an argument in a trace (compile, "
                 "vmap); return what is made of it, and evaluate that outside",
                 node->shape.to_string());
    look_at_symbols(*node);
    // A node that others will still ask for is stored: computing it again would cost more.
    const bool shared = !traced_ && node->references() > node->mark.edges + 1;
    const bool wanted = node->is_held() || shared || node->mark.is_wanted;
    // A complex number would be two scalars; it is part of the plan instead. So are -inf and bools: they
    // mask.
    const auto* full = std::get_if<FullParams>(&node->params);
    const bool is_scalar = full != nullptr && !is_complex(node->dtype) && !masks(*full);
    const bool is_plain = std::holds_alternative<NoParams>(node->params);
    const uint64_t kind = is_scalar ? static_cast<uint64_t>(full->value.kind) : 0;
    tape_.key.add(reinterpret_cast<uintptr_t>(node->row));
    // Each word behind this one is there or not as it says.
    tape_.key.add(static_cast<uint64_t>(node->dtype) | uint64_t{wanted} << 8 |
                  uint64_t{node->meant != nullptr} << 9 | uint64_t{is_scalar} << 10 |
                  uint64_t{is_plain} << 11 | kind << 12 |
                  static_cast<uint64_t>(node->shape.ndim()) << 16 |
                  static_cast<uint64_t>(node->inputs.size()) << 32);
    for (const Dim& dim : node->shape) tape_.key.add(static_cast<uint64_t>(dim.value));
    if (node->meant != nullptr) tape_.key.add(reinterpret_cast<uintptr_t>(node->meant));
    if (is_scalar) tape_.graph.scalars.push_back(node);
    else if (!is_plain) tape_.key.add(hash_params(node->params));
    for (const NodeRef& input : node->inputs) tape_.key.add(position_of(input));
    if (wanted) tape_.graph.outputs.push_back(node);
    widens_ = widens_ || schedule::widens(*node);
    node->mark.position = next_position_++;
  }

  static bool masks(const FullParams& full) {
    const Number& n = full.value;
    return full.dtype == Dtype::boolean ||
           (n.kind == Number::Kind::floating &&
            n.real_imag.real() == -std::numeric_limits<double>::infinity());
  }

  // Inside a trace, a value made now depends on the sizes and numbers of now.
  static void look_at_symbols(Node& node) {
    if (hooks::trace == nullptr) return;
    for (const Dim& dim : node.shape.dims()) (void)static_cast<int64_t>(dim);
    for_each_symbol(
        node.params, [](Dim& dim) { (void)static_cast<int64_t>(dim); },
        [](Number& n) {
          if (n.expr != 0) hooks::trace->look(n);
        });
  }

  uint64_t position_of(const NodeRef& input) {
    uint32_t& position = input->mark.position;
    if (position == TapeMark::kNone) {
      CERMET_CHECK(
          input->buffer, runtime, "eval",
          "an input of shape {} was given to an evaluation that a fork cut short or that the "
          "handler of a signal interrupts; make it anew, or ask for it after the handler",
          input->shape.to_string());
      position = next_position_++;
      tape_.graph.inputs.push_back(input);
      tape_.key.add(0x1eaf);
      tape_.key.add(static_cast<uint64_t>(input->dtype));
      tape_.key.add(input->shape);
      for (int64_t stride : input->layout.strides) tape_.key.add(static_cast<uint64_t>(stride));
    }
    return position;
  }

  // Nobody but this tape can reach its data: edges, and the reference from graph.inputs.
  bool is_donated(const Node& input) const {
    return !traced_ && !input.is_held() && input.references() == input.mark.edges + 1 &&
           input.buffer->unique() && !input.buffer->pinned();
  }

  std::span<const NodeRef> roots_;
  Tape& tape_;
  uint64_t reading_ = 0;
  uint32_t next_position_ = 0;
  bool traced_ = false;
  bool widens_ = false;
  std::unordered_map<std::shared_ptr<const CustomCall>, int>
      custom_calls_;  // with the nodes of each
};

// A program that runs op by op is replaced when it is wanted for the third time.
ProgramPtr find_program(const Tape& tape) {
  constexpr int kSightsApart = 2;
  Plan& plan = plans->at(tape.key);
  plan.wanted++;
  const auto what = [&] { return fmt::format("eval {:016x}{:016x}", tape.key.hi, tape.key.lo); };
  if (plan.program != nullptr && (!plan.program->is_provisional || plan.wanted <= kSightsApart)) {
    count(Counter::program_hits);
    if (log_enabled(LogTopic::plan))
      log_line(LogTopic::plan, "found for {}, wanted {} times", what(), plan.wanted);
    if (plan.program->is_outrun())
      plans->set(plan, build_program(tape.graph, Sight::settled, what));
    return plan.program;
  }
  const Sight sight = plan.wanted <= kSightsApart ? Sight::first : Sight::usual;
  plans->set(plan, build_program(tape.graph, sight, what));
  return plan.program;
}

// A donated input's node gives its buffer away: it is only reached from nodes about to be replaced.
ProgramInputs input_values(const Tape& tape) {
  ProgramInputs values;
  values.reserve(tape.graph.inputs.size());
  for (size_t i = 0; i < tape.graph.inputs.size(); i++) {
    Node& input = *tape.graph.inputs[i];
    if (tape.donated[i]) values.push_back({std::move(input.buffer), input.layout.offset, true});
    else values.push_back({input.buffer, input.layout.offset, false});
  }
  return values;
}

bool gives_inputs(const Tape& tape) {
  return std::find(tape.donated.begin(), tape.donated.end(), true) != tape.donated.end();
}

// May evaluating a node fail for the values that it is given?
bool may_fail(const Node& node, const Program& program) {
  return std::holds_alternative<CompositeLowering>(node.row->lowering.value) ||
         std::find(program.checks.begin(), program.checks.end(), meant_name(node)) !=
             program.checks.end();
}

// An index out of range is an error of what comes from it: the inputs of other results stay whole, so that
// these can be made when they are asked for again.
void keep_inputs_of_others(Tape& tape, const Program& program) {
  if (program.checks.empty() || !gives_inputs(tape)) return;
  std::unordered_set<const Node*> doubtful, needed;
  for (const NodeRef& node : tape.nodes) {
    const bool inherits =
        std::any_of(node->inputs.begin(), node->inputs.end(),
                    [&](const NodeRef& input) { return doubtful.contains(input.get()); });
    if (inherits || may_fail(*node, program)) doubtful.insert(node.get());
  }
  for (const NodeRef& output : tape.graph.outputs)
    if (!doubtful.contains(output.get())) needed.insert(output.get());
  for (auto node = tape.nodes.rbegin(); node != tape.nodes.rend(); ++node) {
    if (!needed.contains(node->get())) continue;
    for (const NodeRef& input : (*node)->inputs) needed.insert(input.get());
  }
  for (size_t i = 0; i < tape.graph.inputs.size(); i++)
    if (needed.contains(tape.graph.inputs[i].get())) tape.donated[i] = false;
}

// An evaluation that needs more than there is gives nothing away: all arrays can be asked for again.
void keep_inputs_where_memory_lacks(Tape& tape, const Program& program) {
  if (!gives_inputs(tape)) return;
  const Allocator& memory = allocator();
  const size_t limit = memory.memory_limit(), active = memory.stats().active;
  size_t least = active + program.least_bytes;
  if (least <= limit) return;
  std::unordered_set<const Buffer*> given;
  for (size_t i = 0; i < tape.graph.inputs.size(); i++)
    if (const Buffer* buffer = tape.graph.inputs[i]->buffer.get(); tape.donated[i] && buffer)
      if (given.insert(buffer).second) least -= std::min(least, buffer->size());
  if (least > limit || program.least_bytes > limit)
    std::fill(tape.donated.begin(), tape.donated.end(), false);
}

// A plan serves all graphs that are equal: where the user made this one, by position.
std::vector<Origin> origins_of(const Tape& tape) {
  std::vector<Origin> origins;
  for (const NodeRef& node : tape.nodes) {
    const size_t position = node->mark.position;
    if (position >= origins.size()) origins.resize(position + 1);
    origins[position] = node->origin;
  }
  return origins;
}

// These nodes and those that are made of them.
std::unordered_set<const Node*> with_users(const Tape& tape,
                                           std::unordered_set<const Node*> nodes) {
  for (const NodeRef& node : tape.nodes)
    if (std::any_of(node->inputs.begin(), node->inputs.end(),
                    [&](const NodeRef& input) { return nodes.contains(input.get()); }))
      nodes.insert(node.get());
  return nodes;
}

// Those that need what the run was given are made by the rest of it, when they are next asked for; the
// others as if nothing had been.
void suspend(const Tape& tape, const std::shared_ptr<ProgramCall>& rest) {
  std::unordered_set<const Node*> given;
  for (size_t i = 0; i < tape.graph.inputs.size(); i++)
    if (tape.donated[i]) given.insert(tape.graph.inputs[i].get());
  given = with_users(tape, std::move(given));
  const GraphLock lock;
  for (const NodeRef& output : tape.graph.outputs) {
    const bool needs_it = given.contains(output.get());
    rest->add_output(needs_it ? output.get() : nullptr);
    if (!needs_it) continue;
    output->call = rest;
    output->inputs.clear();
  }
}

// What the run has not lost is as before; what is made of the lost cannot be made again.
void give_back(const Tape& tape, ProgramRun& run, const std::exception_ptr& error) {
  std::vector<BufferRef> buffers = run.take_back();
  std::unordered_set<const Node*> lost;
  for (size_t i = 0; i < buffers.size(); i++) {
    if (!tape.donated[i]) continue;
    if (!buffers[i]) lost.insert(tape.graph.inputs[i].get());
    tape.graph.inputs[i]->buffer = std::move(buffers[i]);
  }
  if (lost.empty()) return;
  lost = with_users(tape, std::move(lost));
  for (const NodeRef& node : tape.nodes) {
    if (!lost.contains(node.get())) continue;
    node->error = error;
    node->state.store(NodeState::failed, std::memory_order_release);
  }
}

void publish(const Tape& tape, const ProgramRun& run) {
  for (size_t i = 0; i < tape.graph.outputs.size(); i++) {
    Node& node = *tape.graph.outputs[i];
    ProgramResult result = run.result(i);
    node.buffer = std::move(result.buffer);
    node.layout = std::move(result.layout);
    node.set_pending(0, 0);
    node.state.store(NodeState::ready, std::memory_order_release);
    if (node.is_traced()) continue;
    node.inputs.clear();
    if (auto* held = std::get_if<CallParams>(&node.params)) held->call.reset();
  }
}

// What an evaluation has taken and not made ready or failed is lazy again at its end.
class Taken {
 public:
  explicit Taken(const std::vector<NodeRef>& nodes) : nodes_(nodes) {}
  ~Taken() {
    for (const NodeRef& node : nodes_) {
      auto taken = NodeState::scheduled;
      node->state.compare_exchange_strong(taken, NodeState::lazy, std::memory_order_acq_rel);
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

 private:
  const std::vector<NodeRef>& nodes_;
};

void evaluate(std::span<const NodeRef> roots);

bool all_ready(std::span<const NodeRef> nodes) {
  return std::all_of(nodes.begin(), nodes.end(),
                     [](const NodeRef& node) { return node->is_ready(); });
}

void run_call(Node& output) {
  const std::shared_ptr<PendingCall> call = output.call;
  if (!call) return;
  if (!all_ready(call->inputs)) evaluate(call->inputs);
  if (!call->is_done()) call->run();
}

// Runs the calls below the roots, those that others wait for first.
void run_calls(std::span<const NodeRef> roots) {
  for (const NodeRef& root : roots) {
    if (root->call && all_ready(root->call->inputs)) run_call(*root);
  }
  if (all_ready(roots)) return;
  for (const NodeRef& node : pending_tape(roots)) run_call(*node);
}

void evaluate_tape(std::span<const NodeRef> roots) {
  KeptTape kept;
  Tape& tape = *kept;
  TapeReader(roots, tape).read();
  if (tape.has_calls) {
    tape.clear();
    run_calls(roots);
    TapeReader(roots, tape).read();
  }
  if (tape.nodes.empty()) return;
  const Taken taken(tape.nodes);
  for (const NodeRef& node : tape.graph.scalars)
    tape.scalars.push_back(std::get<FullParams>(node->params).value);
  const ProgramPtr program = find_program(tape);
  keep_inputs_of_others(tape, *program);
  keep_inputs_where_memory_lacks(tape, *program);
  ProgramRun run(*program, input_values(tape), tape.scalars);
  if (!program->checks.empty()) run.set_origins(origins_of(tape));
  try {
    run.run();
    publish(tape, run);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (!is_passing(error)) give_back(tape, run, error);
    else if (!run.has_lost_input() || !run.can_go_on()) give_back(tape, run, error_of_loss());
    else
      suspend(tape,
              std::make_shared<ProgramCall>(std::move(run), program, std::move(tape.scalars)));
    throw;
  }
}

void evaluate(std::span<const NodeRef> roots) {
  if (all_ready(roots)) return;
  KnownValues::look_below(roots);
  const EvalLock lock;
  if (roots.size() == 1 && roots[0]->call) run_calls(roots);
  if (!all_ready(roots)) evaluate_tape(roots);
}

std::vector<NodeRef> nodes_of(std::span<const array> arrays) {
  std::vector<NodeRef> nodes;
  for (const array& a : arrays) nodes.push_back(a.node());
  return nodes;
}

const bool installed = (hooks::evaluate = evaluate, true);

}  // namespace

EvalLock::EvalLock() {
  using std::chrono::nanoseconds;
  if (eval_lock().try_lock_for(nanoseconds(0))) return;
  const CallerWait wait("an evaluation by another thread");
  while (!eval_lock().try_lock_for(nanoseconds(kPollPeriodNs))) check_cancelled("eval");
}

EvalLock::~EvalLock() { eval_lock().unlock(); }

void eval(std::span<const array> arrays) {
  (void)installed;
  if (arrays.size() == 1) {
    const NodeRef node = arrays[0].node();
    return evaluate({&node, 1});
  }
  evaluate(nodes_of(arrays));
}

void eval(std::initializer_list<array> arrays) {
  eval(std::span<const array>(arrays.begin(), arrays.size()));
}

void async_eval(std::span<const array> arrays) {
  const std::vector<NodeRef> nodes = nodes_of(arrays);
  if (nodes.empty()) return;
  // What failed fails again, or is made, when it is next asked for.
  queue_of(nodes[0]->stream).enqueue([nodes] {
    try {
      evaluate(nodes);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): raised then
    }
  });
}

}  // namespace cermet
