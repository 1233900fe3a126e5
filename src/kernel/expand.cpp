// SPDX-License-Identifier: MIT
// Pass `expand`: math codes that the target lacks, and rem of floats, which processors lack, become
// core codes (math.h). A threefry has two
// results and stays an expression only until its Gets are rebuilt.

#include "kernel/math.h"
#include "kernel/passes.h"
#include "kernel/rebuild.h"

namespace cermet::ir {

namespace {

bool is_native(Code code, const TargetFacts& target) {
  const int bit = static_cast<int>(code) - static_cast<int>(Code::exp);
  return bit >= 0 && (target.native_math >> bit & 1) != 0;
}

}  // namespace

Kernel expand(const Kernel& kernel, const TargetFacts& target) {
  std::unordered_map<ExprId, std::array<ExprId, 2>>
      threefry;  // by the id of the tuple in the result
  const ExprRule rule = [&](Builder& to, ExprId, Expr expr) {
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
    if (expr.code != Code::threefry) return expand_math(to, expr.code, expr.operands);
    const std::array<ExprId, 2> results = expand_threefry(to, expr.operands);
    const ExprId tuple = to.intern(std::move(expr));
    threefry.emplace(tuple, results);
    return tuple;
  };
  return rebuild(rebuild(kernel, rule));  // the second drops the threefry tuples
}

}  // namespace cermet::ir
