// SPDX-License-Identifier: MIT
// Graph to program: plan graph, regions, kernels, and how long each value lives.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/env.h"
#include "base/error.h"
#include "kernel/passes.h"
#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/poll.h"
#include "runtime/process_end.h"
#include "runtime/thread_pool.h"
#include "schedule/batches.h"
#include "schedule/join.h"
#include "schedule/launch_order.h"
#include "schedule/lifetimes.h"
#include "schedule/program.h"
#include "schedule/region_parts.h"
#include "schedule/single_ops.h"
#include "schedule/size_classes.h"

namespace cermet {

namespace {

using schedule::Id;
using schedule::Operand;

// Of a region: as one kernel, op by op, or whichever is there first.
enum class Tier : uint8_t { fused, single, automatic };

// Bytes that fusing saves in the time of a compilation.
constexpr int64_t kWorthCompiling = 16 << 20;

struct Met {
  std::mutex mutex;
  std::set<std::pair<uint64_t, uint64_t>> hashes;
};

// Whether the kernel was met before; it is from now on.
bool met_before(const ir::Hash& hash) {
  static constinit ForkSafe<Met> met(ForkLevel::leaf);
  std::lock_guard lock(met.get().mutex);
  return !met.get().hashes.emplace(hash.hi, hash.lo).second;
}

class Builder {
 public:
  Builder(schedule::Regions regions, Tier tier) : r_(std::move(regions)), tier_(tier) {}

  std::shared_ptr<Program> build(const TracedGraph& graph) {
    add_values();
    add_launches();
    for (Id output : r_.graph.outputs) {
      const schedule::Location where = schedule::locate(r_, output);
      program_->outputs.push_back({where.root, where.layout, where.dtype});
    }
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
      Program::Value value{.dtype = n.node->dtype, .shape = n.node->shape};
      value.bytes = n.node->shape.count() * size_of(n.node->dtype);
      if (n.leaf && n.node->is_ready()) value.constant = n.node;
      program_->values.push_back(std::move(value));
      const OpRow* row = n.node->row;
      program_->members.push_back(
          {row == nullptr ? nullptr : row->name.value, n.meant->origin, n.meant->mark.position});
    }
    for (size_t i = 0; i < r_.graph.inputs.size(); i++) {
      const Id id = r_.graph.inputs[i];
      if (id < 0) continue;
      program_->values[id].input = static_cast<int>(i);
      program_->values[id].constant = NodeRef();
    }
    for (size_t i = 0; i < r_.graph.nodes.size(); i++) {
      const auto id = static_cast<Id>(i);
      if (!r_.is_view[i] || !schedule::widens(*r_.graph.nodes[i].node)) continue;
      size_t& alignment = program_->values[schedule::locate(r_, id).root].alignment;
      alignment = std::max(alignment, size_of(r_.graph.nodes[i].node->dtype));
    }
  }

  void add_launches() {
    const std::vector<int> opens = schedule::find_tables(r_);
    std::vector<std::vector<int>> parts(opens.size());
    for (int region : r_.order) parts[opens[region]].push_back(region);
    written_.resize(opens.size());
    for (int region : r_.order) write_kernels(region, parts[opens[region]].size() == 1);
    program_->launches.reserve(r_.order.size());
    for (int region : r_.order) {
      if (opens[region] == region) add_launch_of(parts[region]);
    }
  }

  // The kernel of a region, or the equal ones of its parts.
  void write_kernels(int region, bool is_alone) {
    check_cancelled("eval");
    std::vector<Program::Launch>& launches = written_[region];
    if (is_alone) launches = launches_of_parts(region);
    if (launches.empty()) launches.push_back(launch_of(region));
    for (const Program::Launch& launch : launches) wanted_[{launch.hash.lo, launch.hash.hi}]++;
  }

  std::vector<Program::Launch> launches_of_parts(int region) {
    std::vector<Program::Launch> launches;
    for (schedule::Region& part : schedule::parts_of(r_, region)) {
      launches.push_back(launch_of_part(std::move(part), region));
      if (!(launches.back().hash == launches[0].hash)) return {};
    }
    return launches;
  }

  // A region behind the tables that open its kernel; where these do not fit, they are launched before it.
  void add_launch_of(const std::vector<int>& parts) {
    check_cancelled("eval");
    if (parts.size() == 1) {
      if (run_apart(parts[0])) return;
      for (Program::Launch& launch : take_written(parts[0])) add_launch(std::move(launch));
      return;
    }
    Program::Launch launch = std::move(take_written(parts[0])[0]);
    for (size_t i = 1; i < parts.size(); i++) {
      Program::Launch part = std::move(take_written(parts[i])[0]);
      if (auto joined = schedule::join_kernels(launch.kernel, part.kernel)) {
        launch = join(std::move(launch), std::move(part), std::move(*joined));
      } else {
        add_launch(std::exchange(launch, std::move(part)));
      }
    }
    add_launch(std::move(launch));
  }

  std::vector<Program::Launch> take_written(int region) {
    return std::exchange(written_[region], {});
  }

  // True: the region's ops have launches of their own.
  bool run_apart(int region) {
    if (tier_ == Tier::fused || (tier_ == Tier::automatic && is_wanted_again(region))) return false;
    std::vector<schedule::Region> parts = schedule::single_ops(r_, region);
    if (parts.empty() || !is_worth_apart(region)) return false;
    const std::vector<Id> interior = schedule::interior_of(r_, region);
    for (Id id : interior) {
      if (is_half(r_.graph.nodes[id].node->dtype)) r_.wide.insert(id);
    }
    const auto& folds = written_[region][0].kernel.folds;
    std::vector<Program::Launch> launches;
    bool ready = true;
    for (schedule::Region& part : parts) {
      launches.push_back(launch_of_part(std::move(part), region));
      const schedule::EmittedKernel& kernel = launches.back().kernel;
      ready = folds_alike(kernel, folds) &&
              (tier_ == Tier::single || is_kernel_compiled(launches.back().hash));
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
    const Program::Launch& whole = written_[region][0];
    return !met_before(whole.hash) && !is_kernel_compiled(whole.hash);
  }

  bool is_wanted_again(int region) {
    const ir::Hash& hash = written_[region][0].hash;
    return wanted_[{hash.lo, hash.hi}] > 1;
  }

  // The part becomes a region for the time of writing its kernel.
  Program::Launch launch_of_part(schedule::Region part, int whole) {
    const int number = static_cast<int>(r_.regions.size());
    std::vector<Id> loaded;
    for (auto [id, reader] : r_.loads)
      if (reader == whole) loaded.push_back(id);
    for (Id id : loaded) r_.loads.emplace(id, number);
    r_.regions.push_back(std::move(part));
    Program::Launch launch = launch_of(number);
    r_.regions.pop_back();
    for (Id id : loaded) r_.loads.erase({id, number});
    return launch;
  }

  Program::Launch launch_of(int region) {
    const schedule::Region& source = r_.regions[region];
    Program::Launch launch;
    launch.kernel = schedule::emit_region(r_, region);
    launch.hash = ir::hash_of(*launch.kernel.ir);
    share_ir(launch);
    if (launch.kernel.update_target >= 0) {
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

  void share_ir(Program::Launch& launch) {
    const auto [it, fresh] = irs_.try_emplace({launch.hash.lo, launch.hash.hi}, launch.kernel.ir);
    if (!fresh && it->second->name == launch.kernel.ir->name) launch.kernel.ir = it->second;
  }

  static Program::Launch join(Program::Launch first, Program::Launch second,
                              schedule::EmittedKernel kernel) {
    second.kernel = std::move(kernel);
    second.hash = ir::hash_of(*second.kernel.ir);
    second.outputs.insert(second.outputs.begin(), first.outputs.begin(), first.outputs.end());
    second.members.insert(second.members.begin(), first.members.begin(), first.members.end());
    second.after.insert(second.after.begin(), first.after.begin(), first.after.end());
    return second;
  }

  // Where a stage with checks has items.
  static bool looks_at_indices(const schedule::EmittedKernel& kernel) {
    return std::ranges::any_of(kernel.ir->body, [&](const ir::Stmt& stmt) {
      const auto* stage = std::get_if<ir::For>(&stmt);
      if (stage == nullptr) return std::holds_alternative<ir::Check>(stmt);
      const auto is_check = [](const ir::Stmt& s) { return std::holds_alternative<ir::Check>(s); };
      const auto has_items = [&](ir::AxisId axis) { return kernel.extents[axis] != 0; };
      return std::ranges::any_of(stage->body, is_check) &&
             std::ranges::all_of(stage->axes, has_items);
    });
  }

  void add_launch(Program::Launch launch) {
    count_bytes(launch);
    // A kernel may read what all its items share before it knows that it has none.
    if (launch.bytes_written == 0 && !looks_at_indices(launch.kernel))
      program_->empty.insert(program_->empty.end(), launch.outputs.begin(), launch.outputs.end());
    else program_->launches.push_back(std::move(launch));
  }

  void count_bytes(Program::Launch& launch) {
    std::vector<Id> seen;
    for (const Operand& o : launch.kernel.operands) {
      if (o.kind != Operand::Kind::buffer ||
          std::find(seen.begin(), seen.end(), o.value) != seen.end())
        continue;
      seen.push_back(o.value);
      const Program::Value& value = program_->values[o.value];
      Dim bytes = value.bytes;
      const bool out =
          std::find(launch.outputs.begin(), launch.outputs.end(), o.value) != launch.outputs.end();
      if (out && launch.kernel.updated >= 0)
        bytes = smaller(bytes, launch.kernel.updated * size_of(value.dtype));
      (out ? launch.bytes_written : launch.bytes_read) += bytes;
    }
  }

  schedule::Regions r_;
  const Tier tier_;
  std::vector<std::vector<Program::Launch>> written_;    // by region; taken once
  std::map<std::pair<uint64_t, uint64_t>, int> wanted_;  // by hash: how many launches
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const ir::Kernel>> irs_;  // by hash
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
};

}  // namespace

namespace {

std::shared_ptr<Program> build(const TracedGraph& graph, int max_ops, Tier tier) {
  return Builder(schedule::cut_regions(schedule::make_plan_graph(graph), max_ops), tier)
      .build(graph);
}

// The program of the graph's class, where there is one.
std::shared_ptr<Program> plan(const TracedGraph& graph, Tier tier) {
  const auto whole = [](const TracedGraph& symbolic) {
    return build(symbolic, schedule::kMaxRegionOps, Tier::fused);
  };
  std::shared_ptr<Program> known;
  if (tier != Tier::single && env::size_classes() != "off") known = plan_by_class(graph, whole);
  const PlainSizes plain;
  if (known != nullptr && env::size_classes() == "checked") {
    std::shared_ptr<Program> alone = whole(graph);
    fix_sizes(*alone);
    const std::string differs = difference(*known, *alone);
    CERMET_INTERNAL_CHECK(differs.empty(), "a plan by its size class differs from its own: {}",
                          differs);
  }
  if (known != nullptr) return known;
  std::shared_ptr<Program> program = build(graph, schedule::kMaxRegionOps, tier);
  fix_sizes(*program);
  return program;
}

// What compiling the kernels that are not there takes, estimated.
double compile_ms(const Program& program) {
  constexpr double kKernelMs = 2, kExpressionMs = 0.05;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  double ms = 0;
  for (const Program::Launch& launch : program.launches) {
    if (!seen.insert({launch.hash.lo, launch.hash.hi}).second || is_kernel_compiled(launch.hash))
      continue;
    ms += kKernelMs + kExpressionMs * static_cast<double>(launch.kernel.ir->exprs.size());
  }
  return ms;
}

// Element-wise ops round alike in one kernel and in several, unless a half is kept wider between them.
bool may_run_apart(const Program& program) {
  for (const Program::Launch& launch : program.launches) {
    for (const ir::Stmt& stage : launch.kernel.ir->body) {
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

void find_kernel_of(Program::Launch& launch) {
  launch.code = find_kernel(launch.hash, [&] { return *launch.kernel.ir; });
}

// Those that must be compiled are compiled side by side, the longest first.
void find_kernels(Program& program) {
  constexpr double kCompileNs = 5e6;
  std::vector<Program::Launch*> missing;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (Program::Launch& launch : program.launches) {
    launch.code = find_compiled_kernel(launch.hash);
    if (launch.code == nullptr && seen.insert({launch.hash.lo, launch.hash.hi}).second)
      missing.push_back(&launch);
  }
  std::ranges::stable_sort(missing, std::ranges::greater(), [](const Program::Launch* launch) {
    return launch->kernel.ir->exprs.size();
  });
  const auto count = static_cast<int64_t>(missing.size());
  const auto compile = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) find_kernel_of(*missing[static_cast<size_t>(i)]);
  };
  if (!process_is_ending())
    ThreadPool::get().run(count, 1, kCompileNs * static_cast<double>(count), compile);
  for (Program::Launch& launch : program.launches) {
    if (launch.code == nullptr) find_kernel_of(launch);
    const std::vector<int64_t> extents(launch.kernel.extents.begin(), launch.kernel.extents.end());
    if (LaunchSizes(*launch.code, 1, extents).has_long_items)
      launch.code = find_polling_kernel(launch.hash, [&] { return *launch.kernel.ir; });
  }
}

}  // namespace

std::vector<int> values_used(const Program::Launch& launch) {
  std::vector<int> used(launch.after);
  for (const Operand& o : launch.kernel.operands)
    if (o.kind == Operand::Kind::buffer) used.push_back(o.value);
  if (launch.kernel.update_target >= 0) used.push_back(launch.kernel.update_target);
  return used;
}

namespace {

void log_plan(const Program& program, size_t inputs, double us,
              const std::function<std::string()>& what) {
  std::string kernels;
  for (size_t i = 0; i < program.launches.size(); i++) {
    const Program::Launch& launch = program.launches[i];
    if (launch.batch == 0) continue;  // one of those of a launch before
    kernels += fmt::format("{}{} {}", i == 0 ? "" : ", ", launch.kernel.ir->name,
                           schedule::border_name(launch.border));
    if (launch.batch > 1) kernels += fmt::format(" x {}", launch.batch);
  }
  log_line(LogTopic::plan,
           "built in {:.0f} us for {}{}: {} nodes, {} inputs, {} outputs, {} kernels ({})", us,
           what ? what() : "explain", program.is_provisional ? ", op by op at first" : "",
           program.members.size(), inputs, program.outputs.size(), program.launches.size(),
           kernels);
}

}  // namespace

ProgramPtr build_program(const TracedGraph& graph, Sight sight,
                         const std::function<std::string()>& what) {
  const int64_t begin = log_enabled(LogTopic::plan) ? now_ns() : 0;
  constexpr size_t kManyKernels = 8;
  constexpr double kLongCompileMs = 500;
  count(Counter::programs_built);
  const Tier tier = env::tier() == "single"                          ? Tier::single
                    : env::tier() == "auto" && sight == Sight::first ? Tier::automatic
                                                                     : Tier::fused;
  std::shared_ptr<Program> program = plan(graph, tier);
  if (sight != Sight::settled && program->launches.size() >= kManyKernels &&
      may_run_apart(*program)) {
    const double whole = compile_ms(*program), runs = whole / extra_ms(*program);
    if (whole > kLongCompileMs && runs > 1) {
      const PlainSizes plain;
      program = build(graph, 1, Tier::fused);
      fix_sizes(*program);
      program->runs_apart = static_cast<int64_t>(runs);
    }
  }
  order_launches(*program);
  find_kernels(*program);
  make_batches(*program);
  find_lifetimes(*program);
  std::set<int> results;
  for (const Program::Output& output : program->outputs) results.insert(output.value);
  for (int value : results) program->least_bytes += program->values[value].bytes;
  for (const Program::Value& value : program->values)
    program->least_bytes = std::max(program->least_bytes, static_cast<size_t>(value.bytes));
  for (const Program::Launch& launch : program->launches)
    for (const schedule::CheckSite& site : launch.kernel.sites)
      if (std::ranges::find(program->checks, site.op) == program->checks.end())
        program->checks.push_back(site.op);
  program->steps = Steps(*program);
  if (begin != 0)
    log_plan(*program, graph.inputs.size(), static_cast<double>(now_ns() - begin) / 1e3, what);
  return program;
}

}  // namespace cermet
