// SPDX-License-Identifier: MIT
// Pass `relax_max`: a maximum of elements is NaN where one of them is, and +0 where zeros of both signs are the
// largest; that takes processors several instructions. A choice (state < x ? x : state) takes one. It gives another
// state only in rows with a NaN and for the sign of a zero, so it may stand for the maximum where neither is seen
// in any result: of a softmax, every element is NaN by the sum of exponentials, and e^+0 is e^-0. Likewise minima.
#include <algorithm>
#include <map>
#include <optional>

#include "kernel/passes.h"
#include "kernel/rebuild.h"
#include "kernel/walk.h"

namespace cermet::ir {

namespace {

// What becomes of a value if the choice stands for the maximum.
enum class InNanRows : uint8_t { same, nan, other };   // same: or NaN both times; nan: both times
enum class Elsewhere : uint8_t { same, zero, other };  // zero: at most a zero has another sign
struct Effect {
  InNanRows in_nan_rows = InNanRows::same;
  Elsewhere elsewhere = Elsewhere::same;
  bool is_nan_with_element = false;  // it is NaN wherever the element is
  bool is_none() const { return in_nan_rows != InNanRows::other && elsewhere == Elsewhere::same; }
};
constexpr Effect kUnknown = {InNanRows::other, Elsewhere::other};

// Of floats; a NaN in any operand gives NaN.
bool passes_nan(Code code) {
  switch (code) {
    case Code::add:
    case Code::sub:
    case Code::mul:
    case Code::div:
    case Code::fma:
    case Code::neg:
    case Code::abs:
    case Code::sqrt:
    case Code::floor:
    case Code::ceil:
    case Code::trunc:
    case Code::rint:
    case Code::min:
    case Code::max:
    case Code::cast:
    case Code::exp:
    case Code::exp_nonpositive:
    case Code::exp2:
    case Code::expm1:
    case Code::log:
    case Code::log2:
    case Code::log10:
    case Code::log1p:
    case Code::tanh:
    case Code::erf:
    case Code::sigmoid:
    case Code::rsqrt: return true;
    default: return false;
  }
}

bool is_comparison(Code code) { return code >= Code::eq && code <= Code::le; }

// A fold of one state that a choice could make.
struct Extreme {
  Code code;  // max or min
  ExprId element;
};

std::optional<Extreme> extreme_of(const Kernel& kernel, const Fold& fold) {
  if (fold.emit != Emit::last || fold.states.size() != 1) return std::nullopt;
  const FoldState& state = fold.states[0];
  const Expr& step = kernel[state.step];
  const bool is_extreme =
      step.kind == ExprKind::op && (step.code == Code::max || step.code == Code::min);
  if (!is_extreme || !is_floating(state.dtype)) return std::nullopt;
  const auto is = [&](ExprId id, ExprKind kind) { return kernel[id].kind == kind; };
  const bool swapped = is(step.operands[1], ExprKind::state);
  if (!swapped && !is(step.operands[0], ExprKind::state)) return std::nullopt;
  const Expr& merge = kernel[state.merge];
  const bool merges = merge.kind == ExprKind::op && merge.code == step.code &&
                      is(merge.operands[0], ExprKind::state) &&
                      is(merge.operands[1], ExprKind::other);
  const ExprId element = step.operands[swapped ? 0 : 1];
  if (!merges || is(element, ExprKind::state)) return std::nullopt;
  return Extreme{step.code, element};
}

// Follows the effect of one fold's choice through the kernel.
class Effects {
 public:
  Effects(const Kernel& kernel, const Fold& fold, const Extreme& extreme)
      : kernel_(kernel),
        element_(extreme.element),
        axes_(sorted(fold.axes)),
        chosen_(fold.value),
        values_(kernel.values.size()) {}

  bool none() {
    return std::ranges::all_of(kernel_.body, [&](const Stmt& stmt) { return none(stmt); });
  }

 private:
  using Memo = std::map<ExprId, Effect>;

  static std::vector<AxisId> sorted(std::vector<AxisId> axes) {
    std::ranges::sort(axes);
    return axes;
  }

  // Whether nothing that the statement does shows it.
  bool none(const Stmt& stmt) {
    if (const For* loop = std::get_if<For>(&stmt))
      return std::ranges::all_of(loop->body, [&](const Stmt& inner) { return none(inner); });
    if (const Let* let = std::get_if<Let>(&stmt)) {
      values_[let->value] = of(let->expr);
    } else if (const Fold* fold = std::get_if<Fold>(&stmt)) {
      values_[fold->value] = of(*fold);
    } else if (const Contract* contract = std::get_if<Contract>(&stmt)) {
      values_[contract->value] = of(*contract);
    } else {
      bool shows = false;
      for_each_expr(stmt, [&](ExprId id) { shows |= !of(id).is_none(); });
      return !shows;
    }
    return true;
  }

  Effect of(ExprId root) {
    Memo memo;
    return of(root, memo);
  }

  // Whether the sum over all that the row has is NaN where one element makes a term NaN.
  bool is_of_the_row(const std::vector<AxisId>& axes) const { return sorted(axes) == axes_; }

  Effect of(const Fold& fold) {
    if (fold.value == chosen_) return {InNanRows::other, Elsewhere::zero};
    Effect all;
    for (const FoldState& state : fold.states)
      for (ExprId id : {state.init, state.step, state.merge}) {
        const Effect one = of(id);
        if (one.in_nan_rows == InNanRows::other) all.in_nan_rows = InNanRows::other;
        // A state is taken to be the same before the step.
        if (one.elsewhere != Elsewhere::same) all.elsewhere = Elsewhere::other;
      }
    if (fold.emit == Emit::last && fold.states.size() == 1 && is_of_the_row(fold.axes) &&
        adds_nan(fold.states[0]))
      all.in_nan_rows = InNanRows::nan;
    return all;
  }

  // The step takes a term that is NaN with the element, and is NaN then, as all later ones are.
  bool adds_nan(const FoldState& state) {
    const Expr& step = kernel_[state.step];
    const Expr& merge = kernel_[state.merge];
    const auto passes = [&](const Expr& e) {
      return e.kind == ExprKind::op && (e.code == Code::add || e.code == Code::mul);
    };
    const auto holds_state = [&](const Expr& e) {
      return std::ranges::any_of(e.operands,
                                 [&](ExprId id) { return kernel_[id].kind == ExprKind::state; });
    };
    return is_floating(state.dtype) && passes(step) && passes(merge) && holds_state(step) &&
           holds_state(merge) && of(state.step).is_nan_with_element;
  }

  Effect of(const Contract& contract) {
    const Effect a = of(contract.a), b = of(contract.b);
    if (!is_floating(contract.acc)) return a.is_none() && b.is_none() ? Effect{} : kUnknown;
    Effect sum;
    if (is_of_the_row(contract.axes) && (a.is_nan_with_element || b.is_nan_with_element))
      sum.in_nan_rows = InNanRows::nan;
    else if (a.in_nan_rows == InNanRows::other || b.in_nan_rows == InNanRows::other)
      sum.in_nan_rows = InNanRows::other;
    if (a.elsewhere != Elsewhere::same || b.elsewhere != Elsewhere::same)
      sum.elsewhere = Elsewhere::other;
    return sum;
  }

  Effect of(ExprId id, Memo& memo) {
    if (const auto it = memo.find(id); it != memo.end()) return it->second;
    Effect effect = find(kernel_[id], memo);
    effect.is_nan_with_element |= id == element_;
    memo.emplace(id, effect);
    return effect;
  }

  Effect find(const Expr& e, Memo& memo) {
    if (e.kind == ExprKind::ref) return values_[e.id];
    if (e.kind == ExprKind::get) return of(e.operands[0], memo);
    std::vector<Effect> operands;
    bool none = true;
    for_each_operand(e, [&](ExprId id) {
      operands.push_back(of(id, memo));
      none = none && operands.back().is_none();
    });
    if (e.kind == ExprKind::rare) return choice(operands[0], operands[2], operands[1]);
    if (e.kind != ExprKind::op) return none ? Effect{} : kUnknown;
    if (e.code == Code::select) return choice(operands[0], operands[1], operands[2]);
    return {in_nan_rows(e, operands), elsewhere(e, operands),
            is_strict(e) && std::ranges::any_of(operands, &Effect::is_nan_with_element)};
  }

  bool is_strict(const Expr& e) const {
    return is_floating(e.dtype) && passes_nan(e.code) && is_floating(kernel_[e.operands[0]].dtype);
  }

  static Effect choice(const Effect& condition, const Effect& a, const Effect& b) {
    Effect effect = {std::max(a.in_nan_rows, b.in_nan_rows), std::max(a.elsewhere, b.elsewhere),
                     a.is_nan_with_element && b.is_nan_with_element};
    if (effect.in_nan_rows == InNanRows::nan && a.in_nan_rows != b.in_nan_rows)
      effect.in_nan_rows = InNanRows::same;
    if (condition.in_nan_rows == InNanRows::other) {
      const bool both = a.in_nan_rows == InNanRows::nan && b.in_nan_rows == InNanRows::nan;
      effect.in_nan_rows = both ? InNanRows::nan : InNanRows::other;
    }
    if (condition.elsewhere != Elsewhere::same) effect.elsewhere = Elsewhere::other;
    return effect;
  }

  InNanRows in_nan_rows(const Expr& e, const std::vector<Effect>& operands) const {
    const auto is = [](InNanRows what) {
      return [what](const Effect& effect) { return effect.in_nan_rows == what; };
    };
    const bool any_nan = std::ranges::any_of(operands, is(InNanRows::nan));
    // A comparison with NaN is false, or true, whatever the other side is.
    if (any_nan && is_strict(e)) return InNanRows::nan;
    if (any_nan && is_comparison(e.code)) return InNanRows::same;
    return any_nan || std::ranges::any_of(operands, is(InNanRows::other)) ? InNanRows::other
                                                                          : InNanRows::same;
  }

  Elsewhere elsewhere(const Expr& e, const std::vector<Effect>& operands) const {
    Elsewhere most = Elsewhere::same;
    for (const Effect& operand : operands) most = std::max(most, operand.elsewhere);
    if (most != Elsewhere::zero) return most;
    switch (e.code) {
      case Code::abs:
      case Code::exp:
      case Code::exp_nonpositive:
      case Code::exp2:
      case Code::eq:
      case Code::ne:
      case Code::lt:
      case Code::le: return Elsewhere::same;
      case Code::add:
        return is_no_negative_zero(e.operands[0]) || is_no_negative_zero(e.operands[1])
                   ? Elsewhere::same
                   : Elsewhere::zero;
      case Code::sub:
      case Code::mul:
      case Code::neg:
      case Code::min:
      case Code::max: return Elsewhere::zero;
      case Code::cast: return is_floating(e.dtype) ? Elsewhere::zero : Elsewhere::same;
      default: return Elsewhere::other;
    }
  }

  // Added to +0 or to -0, it gives the same.
  bool is_no_negative_zero(ExprId id) const {
    const Expr& e = kernel_[id];
    return e.kind == ExprKind::op && (e.code == Code::log || e.code == Code::exp ||
                                      e.code == Code::exp_nonpositive || e.code == Code::abs);
  }

  const Kernel& kernel_;
  const ExprId element_;
  const std::vector<AxisId> axes_;  // of the row
  const ValueId chosen_;
  std::vector<Effect> values_;
};

// By a choice of the later one where it is beyond the state.
void choose(Builder& to, Fold& fold, const Extreme& extreme) {
  FoldState& state = fold.states[0];
  const auto chosen = [&](ExprId later) {
    const ExprId so_far = to.state(0, state.dtype);
    const ExprId beyond = extreme.code == Code::max ? to.compare(Code::lt, so_far, later)
                                                    : to.compare(Code::lt, later, so_far);
    return to.select(beyond, later, so_far);
  };
  state.step = chosen(extreme.element);
  state.merge = chosen(to.other(0, state.dtype));
}

}  // namespace

Kernel relax_max(const Kernel& kernel, const TargetFacts&) {
  Builder to(kernel);
  bool changed = false;
  for_each_stmt(to.kernel().body, [&](Stmt& stmt) {
    Fold* fold = std::get_if<Fold>(&stmt);
    if (fold == nullptr) return;
    const std::optional<Extreme> extreme = extreme_of(to.kernel(), *fold);
    if (!extreme || !Effects(to.kernel(), *fold, *extreme).none()) return;
    choose(to, *fold, *extreme);
    changed = true;
  });
  return changed ? rebuild(to.kernel()) : to.take();
}

}  // namespace cermet::ir
