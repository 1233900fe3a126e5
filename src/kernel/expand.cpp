// SPDX-License-Identifier: MIT
// Pass `expand`: math codes that the target lacks, and rem of floats, which processors lack, become
// core codes (math.h). A threefry has two
// results and stays an expression only until its Gets are rebuilt.
// An exponential of an element less the largest of its row, as in a softmax, is at most 1: a shorter
// expansion gives the same.
#include <map>

#include "kernel/math.h"
#include "kernel/passes.h"
#include "kernel/rebuild.h"
#include "kernel/walk.h"

namespace cermet::ir {

namespace {

bool is_native(Code code, const TargetFacts& target) {
  const int bit = static_cast<int>(code) - static_cast<int>(Code::exp);
  return bit >= 0 && (target.native_math >> bit & 1) != 0;
}

// The folds whose result is the largest, or the smallest, of their elements that are not NaN, or NaN.
class Extremes {
 public:
  explicit Extremes(const Kernel& kernel) : kernel_(kernel) {
    for_each_stmt(kernel.body, [&](const Stmt& stmt) {
      const Fold* fold = std::get_if<Fold>(&stmt);
      if (fold == nullptr || fold->emit != Emit::last || fold->states.size() != 1) return;
      if (const ExprId element = element_of(fold->states[0], Code::max); element != kNone)
        largest_[fold->value] = element;
      if (const ExprId element = element_of(fold->states[0], Code::min); element != kNone)
        smallest_[fold->value] = element;
    });
  }

  // An element less the largest one, or the smallest one less an element.
  bool is_not_positive(ExprId id) const {
    const Expr& e = kernel_[id];
    if (e.kind != ExprKind::op || e.code != Code::sub || !is_floating(e.dtype)) return false;
    return is_extreme(largest_, e.operands[1], e.operands[0]) ||
           is_extreme(smallest_, e.operands[0], e.operands[1]);
  }

 private:
  using Elements = std::map<ValueId, ExprId>;

  bool is_extreme(const Elements& elements, ExprId id, ExprId element) const {
    const Expr& e = kernel_[id];
    if (e.kind != ExprKind::ref) return false;
    const auto found = elements.find(e.id);
    return found != elements.end() && found->second == element;
  }

  // Of a fold that keeps the larger one (the smaller one, with min) each time; kNone: of another.
  ExprId element_of(const FoldState& state, Code code) const {
    const ExprId other = beside_state(state.merge, code);
    return other != kNone && kernel_[other].kind == ExprKind::other ? beside_state(state.step, code)
                                                                    : kNone;
  }

  // What the state is compared with in max(state, x), or a choice of the two (relax_max.cpp).
  ExprId beside_state(ExprId id, Code code) const {
    const Expr& e = kernel_[id];
    const auto is_state = [&](ExprId operand) { return kernel_[operand].kind == ExprKind::state; };
    if (e.kind != ExprKind::op) return kNone;
    if (e.code == code)
      return is_state(e.operands[0])   ? e.operands[1]
             : is_state(e.operands[1]) ? e.operands[0]
                                       : kNone;
    if (e.code != Code::select || !is_state(e.operands[2])) return kNone;
    const Expr& beyond = kernel_[e.operands[0]];
    const size_t least = code == Code::max ? 0 : 1;
    const bool chooses = beyond.kind == ExprKind::op && beyond.code == Code::lt &&
                         is_state(beyond.operands[least]) &&
                         beyond.operands[1 - least] == e.operands[1];
    return chooses ? e.operands[1] : kNone;
  }

  const Kernel& kernel_;
  Elements largest_, smallest_;
};

}  // namespace

Kernel expand(const Kernel& kernel, const TargetFacts& target) {
  std::unordered_map<ExprId, std::array<ExprId, 2>>
      threefry;  // by the id of the tuple in the result
  const Extremes extremes(kernel);
  const ExprRule rule = [&](Builder& to, ExprId old, Expr expr) {
    if (expr.kind == ExprKind::get) {
      const auto found = threefry.find(expr.operands[0]);
      if (found != threefry.end()) return found->second.at(expr.id);
    }
    if (expr.kind == ExprKind::op && expr.code == Code::rem && is_floating(expr.dtype))
      return expand_rem(to, expr.operands[0], expr.operands[1]);
    if (expr.kind != ExprKind::op || !is_math(expr.code) || is_native(expr.code, target))
      return to.intern(std::move(expr));
    if (expr.code == Code::exp_nonpositive_bfloat16 && expr.dtype == Dtype::float32 &&
        target.scales)
      return expand_scaled_exp(to, expr.operands[0]);
    if (expr.code == Code::exp && extremes.is_not_positive(kernel[old].operands[0]))
      return expand_exp_at_most_one(to, expr.operands[0], target.scales);
    if (expr.code != Code::threefry) return expand_math(to, expr.code, expr.operands);
    const std::array<ExprId, 2> results = expand_threefry(to, expr.operands);
    const ExprId tuple = to.intern(std::move(expr));
    threefry.emplace(tuple, results);
    return tuple;
  };
  return rebuild(rebuild(kernel, rule));  // the second drops the threefry tuples
}

}  // namespace cermet::ir
