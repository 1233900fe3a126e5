// SPDX-License-Identifier: MIT
#include "schedule/lifetimes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "kernel/passes.h"
#include "kernel/walk.h"
#include "runtime/poll.h"

namespace cermet {

namespace {

using schedule::Operand;

bool same_walk(const ir::Index& a, const ir::Index& b, const std::vector<Dim>& strides) {
  auto stride = [&](const ir::IndexTerm& t) {
    return t.stride == ir::kUnit ? Dim(1) : strides[t.stride];
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
    for_each_stmt(*kernel.ir, [&](const ir::Stmt& stmt) {
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
    if (own == nullptr ||
        size_of(kernel.params[input].dtype) != size_of(kernel.params[output].dtype))
      return false;
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

  // No element of `output` is written twice: its places count up along axes.
  bool writes_once(int output) {
    const ir::Kernel& kernel = to_run();
    const ir::Store* own = store_of(kernel, output);
    return own != nullptr && std::ranges::all_of(own->index, [&](const ir::IndexTerm& term) {
             return kernel[term.expr].kind == ir::ExprKind::axis;
           });
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
    if (stores_ < 2) return *given_.ir;
    if (!simple_) simple_ = ir::simplify(*given_.ir);
    return *simple_;
  }

  const schedule::EmittedKernel& given_;
  int stores_ = 0, folds_ = 0;
  bool others_ = false;  // statements of other kinds
  std::optional<ir::Kernel> simple_;
};

// The parameter of a value, if it is a buffer's only one.
int only_param(const schedule::EmittedKernel& kernel, int value) {
  int found = -1;
  for (size_t i = 0; i < kernel.operands.size(); i++) {
    const Operand& operand = kernel.operands[i];
    if (operand.kind != Operand::Kind::buffer || operand.value != value) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

class TakeOvers {
 public:
  explicit TakeOvers(const Program& program) : program_(program) {}

  // Which input is there for the taking is known at run time: a few are named. An update lies in the memory
  // of its target, or in a copy, which is made before anything is read.
  void find(Program::Launch& launch) {
    constexpr int kMostNamed = 4;
    const schedule::EmittedKernel& kernel = launch.kernel;
    if (kernel.update_target >= 0) {
      launch.keeps_target = reads_target_elsewhere(launch);
      return;
    }
    for (int output : launch.outputs) {
      const int out_param = param_of_output(kernel, output);
      int named = 0;
      for (size_t i = 0; i < launch.dies.size() && named < kMostNamed && out_param >= 0; i++) {
        const int dying = launch.dies[i];
        if (!is_alike(launch, output, dying)) continue;
        const int in_param = only_param(kernel, dying);
        if (in_param < 0 || kernel.operands[in_param].offset != 0 ||
            kernel.operands[out_param].offset != 0 || !is_safe(launch, in_param, out_param))
          continue;
        launch.take_over.emplace_back(output, dying);
        named++;
      }
    }
  }

 private:
  static int param_of_output(const schedule::EmittedKernel& kernel, int value) {
    for (size_t i = kernel.operands.size(); i-- > 0;) {
      const Operand& operand = kernel.operands[i];
      if (operand.kind == Operand::Kind::buffer && operand.value == value)
        return static_cast<int>(i);
    }
    return -1;
  }

  // Than where it writes at that time.
  bool reads_target_elsewhere(const Program::Launch& launch) {
    const schedule::EmittedKernel& kernel = launch.kernel;
    const int target = kernel.update_target;
    if (std::ranges::none_of(kernel.operands, [&](const Operand& o) {
          return o.kind == Operand::Kind::buffer && o.value == target;
        }))
      return false;
    const int in = only_param(kernel, target);
    return in < 0 || std::ranges::any_of(
                         launch.outputs,
                         [&](int output) {
                           const int out = param_of_output(kernel, output);
                           return out < 0 ||
                                  kernel.operands[in].offset != kernel.operands[out].offset ||
                                  !is_safe(launch, in, out) || !overwriting_->writes_once(out);
                         });
  }

  bool is_alike(const Program::Launch& launch, int output, int dying) const {
    const Program::Value &out = program_.values[output], &in = program_.values[dying];
    return out.bytes == in.bytes && !in.constant &&
           std::ranges::find(launch.outputs, dying) == launch.outputs.end();
  }

  // Launches of one kernel often lie side by side: what was found for one holds for the next.
  bool is_safe(const Program::Launch& launch, int input, int output) {
    const bool same = last_ != nullptr && last_->hash == launch.hash &&
                      last_->kernel.strides == launch.kernel.strides;
    if (!same) {
      last_ = &launch;
      overwriting_.emplace(launch.kernel);
      safe_.clear();
    }
    const auto [it, fresh] = safe_.try_emplace({input, output});
    if (fresh) it->second = overwriting_->is_safe(input, output);
    return it->second;
  }

  const Program& program_;
  const Program::Launch* last_ = nullptr;
  std::optional<Overwriting> overwriting_;
  std::map<std::pair<int, int>, bool> safe_;
};

// Where a value is used last.
struct LastUse {
  int launch = -1;
  int batch = -1;        // the first launch of it
  bool is_alone = true;  // no other launch of the batch uses it
};

}  // namespace

void find_lifetimes(Program& program) {
  std::vector<LastUse> last(program.values.size());
  int batch = 0;
  for (int i = 0; i < static_cast<int>(program.launches.size()); i++) {
    if (program.launches[i].batch > 0) batch = i;
    for (int value : values_used(program.launches[i])) {
      const bool again = last[value].batch == batch && last[value].launch != i;
      last[value] = {i, batch, !again && (last[value].batch != batch || last[value].is_alone)};
    }
  }
  for (const Program::Output& output : program.outputs) last[output.value] = {};
  for (size_t v = 0; v < last.size(); v++) {
    if (last[v].launch < 0) continue;
    Program::Launch& launch = program.launches[last[v].launch];
    (last[v].is_alone ? launch.dies : launch.dies_shared).push_back(static_cast<int>(v));
  }
  TakeOvers take_overs(program);
  for (Program::Launch& launch : program.launches) {
    check_cancelled("eval");
    take_overs.find(launch);
  }
}

}  // namespace cermet
