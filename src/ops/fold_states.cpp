// SPDX-License-Identifier: MIT
#include "ops/fold_states.h"

#include <limits>

#include "ops/complex_math.h"

namespace cermet::rules {

using ir::Code;
using ir::ExprId;

Lane finish_part(LowerContext&, const NodeView&, std::span<const ExprId> states) {
  return {states[0], states.size() > 1 ? states[1] : ir::kNone};
}

States sum_states(LowerContext& cx, const NodeView& n, Lane element, ExprId) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = compute_dtype(n.dtype);
  States states;
  const ExprId parts[] = {element.re, element.im};
  for (int i = 0; i < (is_complex(n.dtype) ? 2 : 1); ++i) {
    const ExprId state = b.state(i, dtype);
    states.push_back({dtype, b.constant(dtype, -0.0), b.add(state, b.cast(parts[i], dtype)),
                      b.add(state, b.other(i, dtype))});
  }
  return states;
}

States prod_states(LowerContext& cx, const NodeView& n, Lane element, ExprId) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = compute_dtype(n.dtype);
  const ExprId one = b.constant(dtype, 1), state = b.state(0, dtype);
  if (!is_complex(n.dtype))
    return {{dtype, one, b.mul(state, b.cast(element.re, dtype)), b.mul(state, b.other(0, dtype))}};
  ComplexMath math(b, dtype);
  const Lane so_far{state, b.state(1, dtype)};
  const Lane step = math.mul(so_far, element);
  const Lane merge = math.mul(so_far, {b.other(0, dtype), b.other(1, dtype)});
  return {{dtype, one, step.re, merge.re}, {dtype, b.constant(dtype, 0), step.im, merge.im}};
}

ExprId lowest(ir::Builder& b, Dtype dtype, bool want_max) {
  if (is_floating(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return b.constant(dtype, want_max ? -infinity : infinity);
  }
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) -> ExprId {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      return b.integer(dtype, static_cast<int64_t>(want_max ? Limits::min() : Limits::max()));
    } else {
      return ir::kNone;
    }
  });
}

template <bool want_max>
ExprId beats(ir::Builder& b, const Lane& a, const Lane& other) {
  const Lane& low = want_max ? other : a;
  const Lane& high = want_max ? a : other;
  if (a.im != ir::kNone) {
    ComplexMath math(b, b.dtype(a.re));
    const ExprId wins = b.logical_or(math.less(low, high), math.is_nan(a));
    return b.logical_and(wins, b.logical_not(math.is_nan(other)));
  }
  const Dtype dtype = b.dtype(a.re);
  if (dtype == Dtype::boolean) return b.logical_and(b.logical_not(low.re), high.re);
  if (!is_floating(dtype)) return b.compare(Code::lt, low.re, high.re);
  // Not on the wrong side, which a NaN is on neither.
  const ExprId wins = b.logical_not(b.compare(Code::le, high.re, low.re));
  return b.logical_and(wins, b.compare(Code::eq, other.re, other.re));
}

template ExprId beats<true>(ir::Builder&, const Lane&, const Lane&);
template ExprId beats<false>(ir::Builder&, const Lane&, const Lane&);

template <bool want_max>
States extremum_states(LowerContext& cx, const NodeView& n, Lane element, ExprId) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = compute_dtype(n.dtype);
  const ExprId init = lowest(b, dtype, want_max), state = b.state(0, dtype);
  const ExprId other = b.other(0, dtype);
  if (is_complex(n.dtype)) {
    const Lane so_far{state, b.state(1, dtype)}, right{other, b.other(1, dtype)};
    const Lane step = select_lane(b, beats<want_max>(b, element, so_far), element, so_far);
    const Lane merge = select_lane(b, beats<want_max>(b, right, so_far), right, so_far);
    return {{dtype, init, step.re, merge.re}, {dtype, init, step.im, merge.im}};
  }
  const Code code = dtype == Dtype::boolean ? (want_max ? Code::bit_or : Code::bit_and)
                                            : (want_max ? Code::max : Code::min);
  return {{dtype, init, b.op(code, dtype, {state, element.re}), b.op(code, dtype, {state, other})}};
}

template States extremum_states<true>(LowerContext&, const NodeView&, Lane, ExprId);
template States extremum_states<false>(LowerContext&, const NodeView&, Lane, ExprId);

}  // namespace cermet::rules
