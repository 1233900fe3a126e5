// SPDX-License-Identifier: MIT
#include "schedule/lifetimes.h"

#include <algorithm>
#include <optional>

#include "kernel/passes.h"
#include "kernel/walk.h"

namespace cermet {

namespace {

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

void find_take_overs(const Program& program, Program::Launch& launch) {
  const auto& operands = launch.kernel.operands;
  Overwriting overwriting(launch.kernel);
  for (int output : launch.outputs) {
    for (int dying : launch.dies) {
      const Program::Value &out = program.values[output], &in = program.values[dying];
      if (launch.kernel.update_target == dying || out.bytes != in.bytes || in.constant) continue;
      if (std::ranges::find(launch.outputs, dying) != launch.outputs.end()) continue;
      const bool taken = std::ranges::any_of(
          launch.take_over, [&](const auto& pair) { return pair.second == dying; });
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
  for (Program::Launch& launch : program.launches) find_take_overs(program, launch);
}

}  // namespace cermet
