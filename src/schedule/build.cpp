// SPDX-License-Identifier: MIT
// Graph to program: plan graph, regions, kernels, and how long each value lives.
#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/env.h"
#include "base/error.h"
#include "kernel/passes.h"
#include "kernel/walk.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "schedule/join.h"
#include "schedule/launch_order.h"
#include "schedule/program.h"
#include "schedule/single_ops.h"

namespace cermet {

namespace {

using schedule::Id;
using schedule::Operand;

bool same_walk(const ir::Index& a, const ir::Index& b, const std::vector<int64_t>& strides) {
  auto stride = [&](const ir::IndexTerm& t) {
    return t.stride == ir::kUnit ? 1 : strides[t.stride];
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const ir::IndexTerm& x, const ir::IndexTerm& y) {
                      return x.expr == y.expr && stride(x) == stride(y);
                    });
}

// The loads that a statement of a stage is the first to ask for, in the order of the statements.
class FirstLoads {
 public:
  explicit FirstLoads(const ir::Kernel& kernel)
      : kernel_(kernel), seen_(kernel.exprs.size(), false) {}

  // Loads of `param` that `stmt` asks for and no statement before it did.
  std::vector<const ir::Expr*> of(const ir::Stmt& stmt, int param) {
    std::vector<const ir::Expr*> loads;
    std::vector<ir::ExprId> stack;
    ir::for_each_expr(stmt, [&](ir::ExprId id) { stack.push_back(id); });
    while (!stack.empty()) {
      const ir::ExprId id = stack.back();
      stack.pop_back();
      if (seen_[static_cast<size_t>(id)]) continue;
      seen_[static_cast<size_t>(id)] = true;
      const ir::Expr& e = kernel_[id];
      if (e.kind == ir::ExprKind::load && e.buffer.id == param) loads.push_back(&e);
      ir::for_each_operand(e, [&](ir::ExprId operand) { stack.push_back(operand); });
    }
    return loads;
  }

 private:
  const ir::Kernel& kernel_;
  std::vector<bool> seen_;
};

// Which outputs of a kernel may go into the memory of which inputs. Several stores are looked at as
// `simplify` leaves them, since it may free a statement of its loads, which then come after a store.
class Overwriting {
 public:
  explicit Overwriting(const schedule::EmittedKernel& kernel) : given_(kernel) {
    for_each_stmt(kernel.kernel, [&](const ir::Stmt& stmt) {
      stores_ += std::holds_alternative<ir::Store>(stmt);
      folds_ += std::holds_alternative<ir::Fold>(stmt);
      others_ |=
          !std::holds_alternative<ir::Store>(stmt) && !std::holds_alternative<ir::Fold>(stmt);
    });
  }

  // Each load of `input` reads the element that the store of `output` writes in the same iteration, and
  // none comes after the store. What one statement loads the others of its stage need not load again.
  bool is_safe(int input, int output) {
    if (others_ || (folds_ > 0 && stores_ > 1)) return false;
    const ir::Kernel& kernel = to_run();
    const ir::Store* own = store_of(kernel, output);
    if (own == nullptr) return false;
    bool stored = false;
    for (const ir::Stmt& stage : kernel.body) {
      FirstLoads first(kernel);
      for (const ir::Stmt& stmt : std::get<ir::For>(stage).body) {
        for (const ir::Expr* load : first.of(stmt, input)) {
          if (stored || load->operands[0] != ir::kNone ||
              !same_walk(load->index, own->index, given_.strides))
            return false;
        }
        stored |= std::get_if<ir::Store>(&stmt) == own;
      }
    }
    return true;
  }

 private:
  template <typename F>
  static void for_each_stmt(const ir::Kernel& kernel, F f) {
    for (const ir::Stmt& stage : kernel.body)
      for (const ir::Stmt& stmt : std::get<ir::For>(stage).body) f(stmt);
  }

  static const ir::Store* store_of(const ir::Kernel& kernel, int output) {
    const ir::Store* found = nullptr;
    for_each_stmt(kernel, [&](const ir::Stmt& stmt) {
      const auto* store = std::get_if<ir::Store>(&stmt);
      if (store != nullptr && store->buffer.id == output) found = store;
    });
    return found;
  }

  const ir::Kernel& to_run() {
    if (stores_ < 2) return given_.kernel;
    if (!simple_) simple_ = ir::simplify(given_.kernel);
    return *simple_;
  }

  const schedule::EmittedKernel& given_;
  int stores_ = 0, folds_ = 0;
  bool others_ = false;  // statements of other kinds
  std::optional<ir::Kernel> simple_;
};

// Of a region: as one kernel, op by op, or whichever is there first.
enum class Tier : uint8_t { fused, single, automatic };

// Bytes that fusing saves in the time of a compilation.
constexpr int64_t kWorthCompiling = 16 << 20;

// Whether the kernel was met before; it is from now on.
bool met_before(const ir::Hash& hash) {
  static std::mutex& mutex = make_fork_safe<std::mutex>(ForkLevel::leaf);
  static auto* met = new std::set<std::pair<uint64_t, uint64_t>>;
  std::lock_guard lock(mutex);
  return !met->emplace(hash.hi, hash.lo).second;
}

class Builder {
 public:
  Builder(schedule::Regions regions, Tier tier) : r_(std::move(regions)), tier_(tier) {}

  std::shared_ptr<Program> build(const TracedGraph& graph) {
    add_values();
    add_launches();
    for (Id output : r_.graph.outputs) {
      const schedule::Location where = schedule::locate(r_, output);
      program_->outputs.push_back({where.root, where.layout});
    }
    order_launches(*program_);
    find_lifetimes();
    std::unordered_map<const Node*, int> positions;
    for (const NodeRef& scalar : graph.scalars)
      positions.emplace(scalar.get(), static_cast<int>(positions.size()));
    for (const NodeRef& scalar : r_.graph.scalars)
      program_->scalar_positions.push_back(positions.at(scalar.get()));
    return program_;
  }

 private:
  void add_values() {
    for (const schedule::PlanNode& n : r_.graph.nodes) {
      Program::Value value{n.node->dtype, n.node->shape, 0, -1, {}};
      value.bytes = static_cast<size_t>(n.node->shape.size()) * size_of(n.node->dtype);
      if (n.leaf && n.node->is_ready()) value.constant = n.node;
      program_->values.push_back(std::move(value));
      const OpRow* row = n.node->row;
      program_->members.push_back({row == nullptr ? nullptr : row->name.value, n.node->origin});
    }
    for (size_t i = 0; i < r_.graph.inputs.size(); i++) {
      const Id id = r_.graph.inputs[i];
      if (id < 0) continue;
      program_->values[id].input = static_cast<int>(i);
      program_->values[id].constant = NodeRef();
    }
  }

  void add_launches() {
    const std::vector<int> opens = schedule::find_tables(r_);
    std::vector<std::vector<int>> parts(opens.size());
    for (int region : r_.order) parts[opens[region]].push_back(region);
    for (int region : r_.order) {
      if (opens[region] == region) add_launch_of(parts[region]);
    }
  }

  // A region behind the tables that open its kernel; where these do not fit, they are launched before it.
  void add_launch_of(const std::vector<int>& parts) {
    if (parts.size() == 1 && run_apart(parts[0])) return;
    Program::Launch launch = launch_of(parts[0]);
    for (size_t i = 1; i < parts.size(); i++) {
      Program::Launch part = launch_of(parts[i]);
      if (auto joined = schedule::join_kernels(launch.kernel, part.kernel)) {
        launch = join(std::move(launch), std::move(part), std::move(*joined));
      } else {
        add_launch(std::exchange(launch, std::move(part)));
      }
    }
    add_launch(std::move(launch));
  }

  // True: the region's ops have launches of their own.
  bool run_apart(int region) {
    if (tier_ == Tier::fused) return false;
    std::vector<schedule::Region> parts = schedule::single_ops(r_, region);
    if (parts.empty() || !is_worth_apart(region)) return false;
    const std::vector<Id> interior = schedule::interior_of(r_, region);
    for (Id id : interior) {
      if (is_half(r_.graph.nodes[id].node->dtype)) r_.wide.insert(id);
    }
    const auto folds = schedule::emit_region(r_, region).folds;
    std::vector<Program::Launch> launches;
    bool ready = true;
    for (schedule::Region& part : parts) {
      launches.push_back(launch_of_part(std::move(part), region));
      const schedule::EmittedKernel& kernel = launches.back().kernel;
      ready = folds_alike(kernel, folds) &&
              (tier_ == Tier::single || find_compiled_kernel(kernel.kernel) != nullptr);
      if (!ready) break;
    }
    if (!ready) {
      for (Id id : interior) r_.wide.erase(id);
      return false;
    }
    for (Id id : interior) {
      Program::Value& value = program_->values[id];
      value.dtype = r_.stored_dtype(id);
      value.bytes = static_cast<size_t>(value.shape.size()) * size_of(value.dtype);
    }
    for (Program::Launch& launch : launches) add_launch(std::move(launch));
    program_->is_provisional = tier_ == Tier::automatic;
    return true;
  }

  // Alone, a fold may run over axes as one that are apart in the region, in another order.
  template <typename Folds>
  static bool folds_alike(const schedule::EmittedKernel& part, const Folds& whole) {
    return std::ranges::all_of(
        part.folds, [&](const auto& fold) { return whole.at(fold.first) == fold.second; });
  }

  bool is_worth_apart(int region) {
    if (tier_ == Tier::single) return true;
    int64_t saved = 0;  // each interior value would be written and read
    for (Id id : schedule::interior_of(r_, region))
      saved += 2 * static_cast<int64_t>(program_->values[id].bytes);
    if (saved > kWorthCompiling) return false;
    const ir::Kernel whole = schedule::emit_region(r_, region).kernel;
    return !met_before(ir::hash_of(whole)) && find_compiled_kernel(whole) == nullptr;
  }

  // The part becomes a region for the time of writing its kernel.
  Program::Launch launch_of_part(schedule::Region part, int whole) {
    const int number = static_cast<int>(r_.regions.size());
    for (Id id = 0; id < static_cast<Id>(r_.graph.nodes.size()); ++id)
      if (r_.loads.contains({id, whole})) r_.loads.emplace(id, number);
    r_.regions.push_back(std::move(part));
    Program::Launch launch = launch_of(number);
    r_.regions.pop_back();
    std::erase_if(r_.loads, [&](const auto& load) { return load.second == number; });
    return launch;
  }

  Program::Launch launch_of(int region) {
    const schedule::Region& source = r_.regions[region];
    Program::Launch launch;
    launch.kernel = schedule::emit_region(r_, region);
    if (source.update >= 0) {
      const schedule::Location where = schedule::locate(r_, launch.kernel.update_target);
      launch.kernel.update_target = where.root;
      launch.target_layout = where.layout;
    }
    for (Id id : source.stored) launch.outputs.push_back(id);
    for (Id id : source.after) launch.after.push_back(schedule::locate(r_, id).root);
    launch.border = source.border;
    for (size_t i = source.members.size(); i-- > 0;)
      launch.members.push_back(source.members[i].node);
    return launch;
  }

  static Program::Launch join(Program::Launch first, Program::Launch second,
                              schedule::EmittedKernel kernel) {
    second.kernel = std::move(kernel);
    second.outputs.insert(second.outputs.begin(), first.outputs.begin(), first.outputs.end());
    second.members.insert(second.members.begin(), first.members.begin(), first.members.end());
    second.after.insert(second.after.begin(), first.after.begin(), first.after.end());
    return second;
  }

  void add_launch(Program::Launch launch) {
    count_bytes(launch);
    program_->launches.push_back(std::move(launch));
  }

  void count_bytes(Program::Launch& launch) {
    std::vector<Id> seen;
    for (const Operand& o : launch.kernel.operands) {
      if (o.kind != Operand::Kind::buffer ||
          std::find(seen.begin(), seen.end(), o.value) != seen.end())
        continue;
      seen.push_back(o.value);
      const int64_t bytes = static_cast<int64_t>(program_->values[o.value].bytes);
      const bool out =
          std::find(launch.outputs.begin(), launch.outputs.end(), o.value) != launch.outputs.end();
      (out ? launch.bytes_written : launch.bytes_read) += bytes;
    }
  }

  void find_lifetimes() {
    std::vector<int> last(program_->values.size(), -1);
    for (size_t i = 0; i < program_->launches.size(); i++) {
      const Program::Launch& launch = program_->launches[i];
      for (const Operand& o : launch.kernel.operands) {
        if (o.kind == Operand::Kind::buffer) last[o.value] = static_cast<int>(i);
      }
      if (launch.kernel.update_target >= 0) last[launch.kernel.update_target] = static_cast<int>(i);
      for (int value : launch.after) last[value] = static_cast<int>(i);
    }
    for (const Program::Output& output : program_->outputs) last[output.value] = -1;
    for (size_t v = 0; v < last.size(); v++) {
      if (last[v] >= 0) program_->launches[last[v]].dies.push_back(static_cast<int>(v));
    }
    for (auto& launch : program_->launches) find_take_overs(launch);
  }

  void find_take_overs(Program::Launch& launch) {
    const auto& operands = launch.kernel.operands;
    Overwriting overwriting(launch.kernel);
    for (int output : launch.outputs) {
      for (int dying : launch.dies) {
        const Program::Value &out = program_->values[output], &in = program_->values[dying];
        if (launch.kernel.update_target == dying || out.bytes != in.bytes || in.constant) continue;
        if (std::find(launch.outputs.begin(), launch.outputs.end(), dying) != launch.outputs.end())
          continue;
        const bool taken = std::any_of(launch.take_over.begin(), launch.take_over.end(),
                                       [&](const auto& pair) { return pair.second == dying; });
        int in_param = -1, out_param = -1, in_params = 0;
        for (size_t i = 0; i < operands.size(); i++) {
          if (operands[i].kind != Operand::Kind::buffer) continue;
          if (operands[i].value == dying) in_param = static_cast<int>(i), in_params++;
          if (operands[i].value == output) out_param = static_cast<int>(i);
        }
        if (taken || in_params != 1 || operands[in_param].offset != 0 || out_param < 0 ||
            size_of(out.dtype) != size_of(in.dtype) || !overwriting.is_safe(in_param, out_param))
          continue;
        launch.take_over.emplace_back(output, dying);
        break;
      }
    }
  }

  schedule::Regions r_;
  const Tier tier_;
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
};

}  // namespace

namespace {

std::shared_ptr<Program> build(const TracedGraph& graph, int max_ops, Tier tier) {
  return Builder(
             schedule::cut_regions(
                 schedule::make_plan_graph(graph.inputs, graph.outputs, graph.scalars), max_ops),
             tier)
      .build(graph);
}

// What compiling the kernels that are not there takes, estimated.
double compile_ms(const Program& program) {
  constexpr double kKernelMs = 2, kExpressionMs = 0.05;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  double ms = 0;
  for (const Program::Launch& launch : program.launches) {
    const ir::Kernel& kernel = launch.kernel.kernel;
    const ir::Hash hash = ir::hash_of(kernel);
    if (!seen.insert({hash.lo, hash.hi}).second || find_compiled_kernel(kernel) != nullptr)
      continue;
    ms += kKernelMs + kExpressionMs * static_cast<double>(kernel.exprs.size());
  }
  return ms;
}

// Element-wise ops round alike in one kernel and in several, unless a half is kept wider between them.
bool may_run_apart(const Program& program) {
  for (const Program::Launch& launch : program.launches) {
    for (const ir::Stmt& stage : launch.kernel.kernel.body) {
      const auto* loop = std::get_if<ir::For>(&stage);
      const bool stores = loop != nullptr &&
                          std::all_of(loop->body.begin(), loop->body.end(), [](const ir::Stmt& s) {
                            return std::holds_alternative<ir::Store>(s);
                          });
      if (!stores || launch.kernel.update_target >= 0) return false;
    }
  }
  return std::none_of(program.values.begin(), program.values.end(),
                      [](const Program::Value& value) { return is_half(value.dtype); });
}

// Time that op by op loses in each run.
double extra_ms(const Program& program) {
  constexpr double kLaunchMs = 0.5e-3, kBytesPerMs = 1e7;
  double ms = 0;
  for (const Program::Value& value : program.values)
    ms += kLaunchMs + 2 * static_cast<double>(value.bytes) / kBytesPerMs;
  return ms;
}

}  // namespace

ProgramPtr build_program(const TracedGraph& graph, Sight sight) {
  constexpr size_t kManyKernels = 8;
  constexpr double kLongCompileMs = 500;
  count(Counter::programs_built);
  const Tier tier = env::tier() == "single"                          ? Tier::single
                    : env::tier() == "auto" && sight == Sight::first ? Tier::automatic
                                                                     : Tier::fused;
  std::shared_ptr<Program> program = build(graph, schedule::kMaxRegionOps, tier);
  if (sight != Sight::settled && program->launches.size() >= kManyKernels &&
      may_run_apart(*program)) {
    const double whole = compile_ms(*program), runs = whole / extra_ms(*program);
    if (whole > kLongCompileMs && runs > 1) {
      program = build(graph, 1, Tier::fused);
      program->runs_apart = static_cast<int64_t>(runs);
    }
  }
  for (Program::Launch& launch : program->launches) launch.code = find_kernel(launch.kernel.kernel);
  return program;
}

}  // namespace cermet
