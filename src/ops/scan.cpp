// SPDX-License-Identifier: MIT
// Running folds along one axis: sums, products, extrema, log-sum-exp, and the linear recurrence
// h[i] = a[i] h[i - 1] + b[i], by which products and log-sum-exps are differentiated: exactly, with
// zeros and infinities among the elements, to any order. Exclusive scans run over elements moved by one.
#include <limits>

#include "ops/complex_math.h"
#include "ops/fold_states.h"
#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;
using ir::ExprId;

namespace {

using Elements = std::span<const Lane>;

// A fold's states as a scan's.
template <States (*states)(LowerContext&, const NodeView&, Lane, ExprId)>
States of_one(LowerContext& cx, const NodeView& n, Elements elements) {
  return states(cx, n, elements[0], ir::kNone);
}

array scan(const OpRow& row, const array& a, int axis, bool reverse, const S& s = {}) {
  return make_node(row, pack(a), AxisParams{axis, reverse}, s);
}

// The elements before each along the scan's way: moved by one, `first` in front.
array moved_on(const array& a, int axis, bool reverse, const Number& first, const S& s = {}) {
  if (is_zero(a.shape().dim(axis))) return a;
  PadWidths width(a.ndim(), {0, 0});
  (reverse ? width[axis].second : width[axis].first) = 1;
  const array padded = pad(a, width, full({}, first, a.dtype(), s), "constant", s);
  PerAxis start = origin_of(a);
  start.dim(axis) = reverse ? 1 : 0;
  return sized_slice(padded, std::move(start), SliceSteps(a.ndim(), 1), a.shape(), s);
}

array previous(const OpCall& c, const array& a, const Number& first) {
  const AxisParams& p = c.get<AxisParams>();
  return moved_on(a, p.axis, p.flag, first);
}

// The adjoint of the recurrence: u with u[i] = g[i] + conj(a[i + 1]) u[i + 1].
array backward(const OpCall& c, const array& a, const array& g) {
  const AxisParams& p = c.get<AxisParams>();
  const array next = moved_on(conjugate_if_complex(a), p.axis, !p.flag, number(0.0));
  return linear_scan(next, g, p.axis, !p.flag);
}

array recurrence(const OpCall& c, const array& a, const array& b) {
  const AxisParams& p = c.get<AxisParams>();
  return linear_scan(a, b, p.axis, p.flag);
}

// --- products ---

array cumprod_jvp(const OpCall& c, const array& y, int, const array& t) {
  return recurrence(c, c.inputs[0], t * previous(c, y, number(1.0)));
}

array cumprod_vjp(const OpCall& c, const array& y, int, const array& g) {
  return backward(c, c.inputs[0], g) * conjugate_if_complex(previous(c, y, number(1.0)));
}

// --- extrema: the derivative goes to the last of equal ones ---

// The position of the element that each result is.
array chosen(const OpCall& c, const array& y) {
  const AxisParams& p = c.get<AxisParams>();
  const array& x = c.inputs[0];
  ShapeList line(x.ndim(), 1);
  line[p.axis] = x.shape().dim(p.axis);
  const array places =
      arange(number(int64_t{0}), number(x.shape().dim(p.axis)), number(int64_t{1}), Dtype::int64);
  const array is_new = (x == y) | isnan(x);
  const int64_t never = p.flag ? std::numeric_limits<int64_t>::max() : 0;
  const array place = where(is_new, reshape(places, line), full({}, number(never), Dtype::int64));
  return scan(p.flag ? rows::cummin : rows::cummax, place, p.axis, p.flag);
}

constexpr Opaque kExtremum = {
    .jvp =
        [](const OpCall& c, const array& y, int, const array& t) {
          return take_along_axis(t, chosen(c, y), c.get<AxisParams>().axis);
        },
    .vjp =
        [](const OpCall& c, const array& y, int, const array& g) {
          return scatter_along_axis(zeros_like(g), chosen(c, y), g, c.get<AxisParams>().axis,
                                    ScatterReduce::add);
        }};

// --- log-sum-exp: the largest exponent so far, and the sum of exp(x - largest) ---

struct LogSum {
  ExprId largest;
  Lane sum;
};

// exp(-|a - b|); 1 for equal ones, also infinite.
ExprId nearness(ir::Builder& b, ExprId x, ExprId y) {
  const ExprId away = b.unary(Code::abs, b.sub(x, y));
  const ExprId power = b.unary(Code::exp, b.unary(Code::neg, away));
  return b.select(b.compare(Code::eq, x, y), b.constant(b.dtype(x), 1), power);
}

LogSum joined(ir::Builder& b, const LogSum& x, const LogSum& y) {
  const ExprId factor = nearness(b, x.largest, y.largest);
  const ExprId grows = b.compare(Code::lt, x.largest, y.largest);
  const ExprId one = b.constant(b.dtype(factor), 1);
  const ExprId of_x = b.select(grows, factor, one), of_y = b.select(grows, one, factor);
  const auto part = [&](ExprId u, ExprId v) { return b.add(b.mul(u, of_x), b.mul(v, of_y)); };
  return {b.max(x.largest, y.largest),
          {part(x.sum.re, y.sum.re), x.sum.im == ir::kNone ? ir::kNone : part(x.sum.im, y.sum.im)}};
}

// The start is the lowest number, not -inf, so that no infinities are subtracted; it has no weight.
States log_sum_states(LowerContext& cx, const NodeView& n, Elements elements) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = real_of(compute_dtype(n.dtype));
  const bool pairs = is_complex(n.dtype);
  const double lowest = dtype == Dtype::float64 ? std::numeric_limits<double>::lowest()
                                                : std::numeric_limits<float>::lowest();
  const ExprId one = b.constant(dtype, 1), zero = b.constant(dtype, 0);
  const auto state = [&](int i) { return pairs || i < 2 ? b.state(i, dtype) : ir::kNone; };
  const auto other = [&](int i) { return pairs || i < 2 ? b.other(i, dtype) : ir::kNone; };
  const LogSum so_far{state(0), {state(1), state(2)}};
  LogSum element{elements[0].re, {one, ir::kNone}};
  if (pairs) element.sum = {b.unary(Code::cos, elements[0].im), b.unary(Code::sin, elements[0].im)};
  const LogSum step = joined(b, so_far, element);
  const LogSum merge = joined(b, so_far, {other(0), {other(1), other(2)}});
  States states{{dtype, b.constant(dtype, lowest), step.largest, merge.largest},
                {dtype, zero, step.sum.re, merge.sum.re}};
  if (pairs) states.push_back({dtype, zero, step.sum.im, merge.sum.im});
  return states;
}

Lane finish_log_sum(LowerContext& cx, const NodeView& n, std::span<const ExprId> states) {
  ir::Builder& b = cx.builder();
  if (!is_complex(n.dtype)) return {b.add(states[0], b.unary(Code::log, states[1]))};
  const Lane log = ComplexMath(b, b.dtype(states[0])).log({states[1], states[2]});
  return {b.add(states[0], log.re), log.im};
}

// What the derivative needs, in a dtype of at least float32: exp(x - y), the weight of each element in
// its own result, and exp(y[i - 1] - y[i]), the weight of what is before it.
struct LogWeights {
  array own, before;
};

LogWeights log_weights(const OpCall& c, const array& y) {
  const AxisParams& p = c.get<AxisParams>();
  array x = c.inputs[0], result = y;
  if (is_half(x.dtype())) {
    x = astype(x, Dtype::float32);
    result = scan(rows::logcumsumexp, x, p.axis, p.flag);
  }
  // Where the sum is 0 so far nothing has a weight; -inf - -inf would be NaN.
  const array offset = cermet::select(isneginf(result), full_like(result, 0), result);
  const Number nothing = number(-std::numeric_limits<double>::infinity());
  return {exp(x - offset), exp(previous(c, result, nothing) - offset)};
}

array log_sum_jvp(const OpCall& c, const array& y, int, const array& t) {
  const LogWeights w = log_weights(c, y);
  return as_result(recurrence(c, w.before, w.own * astype(t, w.own.dtype())), y.dtype());
}

array log_sum_vjp(const OpCall& c, const array& y, int, const array& g) {
  const LogWeights w = log_weights(c, y);
  const array back = backward(c, w.before, astype(g, w.own.dtype()));
  return as_result(back * conjugate_if_complex(w.own), g.dtype());
}

// --- the recurrence: (a, b) so far, of which b is the value ---

States recurrence_states(LowerContext& cx, const NodeView& n, Elements elements) {
  ir::Builder& b = cx.builder();
  const Dtype dtype = real_of(compute_dtype(n.dtype));
  const ExprId one = b.constant(dtype, 1), zero = b.constant(dtype, 0);
  if (!is_complex(n.dtype)) {
    const auto next = [&](int state, ExprId a) { return b.mul(b.state(state, dtype), a); };
    const ExprId a = b.other(0, dtype);
    return {{dtype, one, next(0, elements[0].re), next(0, a)},
            {dtype, zero, b.add(next(1, elements[0].re), elements[1].re),
             b.add(next(1, a), b.other(1, dtype))}};
  }
  ComplexMath math(b, dtype);
  const auto state = [&](int i) { return Lane{b.state(i, dtype), b.state(i + 1, dtype)}; };
  const auto other = [&](int i) { return Lane{b.other(i, dtype), b.other(i + 1, dtype)}; };
  const Lane factor = math.mul(state(0), elements[0]), merged = math.mul(state(0), other(0));
  const Lane value = math.add(math.mul(state(2), elements[0]), elements[1]);
  const Lane both = math.add(math.mul(state(2), other(0)), other(2));
  return {{dtype, one, factor.re, merged.re},
          {dtype, zero, factor.im, merged.im},
          {dtype, zero, value.re, both.re},
          {dtype, zero, value.im, both.im}};
}

Lane finish_recurrence(LowerContext&, const NodeView&, std::span<const ExprId> states) {
  if (states.size() == 2) return {states[1]};
  return {states[2], states[3]};
}

array recurrence_jvp(const OpCall& c, const array& y, int k, const array& t) {
  return recurrence(c, c.inputs[0], k == 1 ? t : t * previous(c, y, number(0.0)));
}

array recurrence_vjp(const OpCall& c, const array& y, int k, const array& g) {
  const array back = backward(c, c.inputs[0], g);
  return k == 1 ? back : back * conjugate_if_complex(previous(c, y, number(0.0)));
}

// --- builders ---

// The scan over the array as it is to be scanned: the flattened one without an axis; moved by one where
// it is exclusive.
array scanned(const OpRow& row, const array& a, std::optional<int64_t> axis, bool reverse,
              bool inclusive, const Number& start, const S& s) {
  array x = axis ? a : flatten(a, 0, -1, s);
  const int along = normalize_axis(row.name, axis.value_or(0), x.ndim());
  if (is_zero(x.shape().count())) return x;
  return scan(row, inclusive ? x : moved_on(x, along, reverse, start, s), along, reverse, s);
}

// What every element of the dtype wins against.
Number extremum(Dtype dtype, bool largest) {
  return visit_dtype(real_of(dtype), [&]<typename T>(std::type_identity<T>) -> Number {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      return number(static_cast<int64_t>(largest ? Limits::max() : Limits::min()));
    } else {
      const double infinity = std::numeric_limits<double>::infinity();
      return number(largest ? infinity : -infinity);
    }
  });
}

}  // namespace

#define CERMET_SCAN_ROW(enumerator, row_name, set, low, high, rule, state_rule, result, text)  \
  constinit const OpRow rows::row_name = {                                                     \
      .id = OpId::enumerator,                                                                  \
      .name = #row_name,                                                                       \
      .accepts = set,                                                                          \
      .dtype = same_dtype,                                                                     \
      .shape = same_shape,                                                                     \
      .derivative = rule,                                                                      \
      .vmap = AxisShiftVmap{},                                                                 \
      .lowering = ScanLowering{state_rule, result},                                            \
      .effect = Effect::none,                                                                  \
      .domain = Domain{low, high},                                                             \
      .max_ulp = 0,                                                                            \
      .doc = text,                                                                             \
  };

CERMET_SCAN_ROW(CumSum, cumsum, kIntegers | kInexact, -4, 4, (Linear{[](auto& c, int, auto& g) {
                  const AxisParams& p = c.template get<AxisParams>();
                  return scan(rows::cumsum, g, p.axis, !p.flag);
                }}),
                of_one<sum_states>, finish_part,
                "The sums of the elements up to each, in the array's dtype; bools count in int32.")
CERMET_SCAN_ROW(CumProd, cumprod, kIntegers | kInexact, 0.5, 1.5,
                (Opaque{cumprod_jvp, cumprod_vjp}), of_one<prod_states>, finish_part,
                "The products of the elements up to each, in the array's dtype.")
CERMET_SCAN_ROW(CumMax, cummax, kAny, -4, 4, kExtremum, of_one<extremum_states<true>>, finish_part,
                "The largest of the elements up to each, NaN from the first one on. The last of "
                "equal ones has the derivative.")
CERMET_SCAN_ROW(CumMin, cummin, kAny, -4, 4, kExtremum, of_one<extremum_states<false>>, finish_part,
                "The smallest of the elements up to each, NaN from the first one on. The last of "
                "equal ones has the derivative.")
CERMET_SCAN_ROW(LogCumSumExp, logcumsumexp, kInexact, -4, 4, (Opaque{log_sum_jvp, log_sum_vjp}),
                log_sum_states, finish_log_sum,
                "log(sum(exp(x))) of the elements up to each, without overflow.")
CERMET_SCAN_ROW(LinearScan, linear_scan, kInexact, -1, 1, (Opaque{recurrence_jvp, recurrence_vjp}),
                recurrence_states, finish_recurrence,
                "h with h[i] = a[i] * h[i - 1] + b[i] along the axis.")
#undef CERMET_SCAN_ROW

array cumsum(const array& a, std::optional<int64_t> axis, bool reverse, bool inclusive,
             std::optional<Dtype> dtype, const S& s) {
  const Dtype result = dtype.value_or(a.dtype() == Dtype::boolean ? Dtype::int32 : a.dtype());
  CERMET_CHECK(result != Dtype::boolean, dtype, "cumsum",
               "dtype bool has no sums; use an integer or floating dtype");
  return scanned(rows::cumsum, astype(a, result, s), axis, reverse, inclusive, number(0.0), s);
}

array cumprod(const array& a, std::optional<int64_t> axis, bool reverse, bool inclusive,
              std::optional<Dtype> dtype, const S& s) {
  const array x = astype(a, dtype.value_or(a.dtype()), s);
  // The product of bools is whether all are true.
  const OpRow& row = x.dtype() == Dtype::boolean ? rows::cummin : rows::cumprod;
  return scanned(row, x, axis, reverse, inclusive, number(1.0), s);
}

array cummax(const array& a, std::optional<int64_t> axis, bool reverse, bool inclusive,
             const S& s) {
  return scanned(rows::cummax, a, axis, reverse, inclusive, extremum(a.dtype(), false), s);
}

array cummin(const array& a, std::optional<int64_t> axis, bool reverse, bool inclusive,
             const S& s) {
  return scanned(rows::cummin, a, axis, reverse, inclusive, extremum(a.dtype(), true), s);
}

array logcumsumexp(const array& a, std::optional<int64_t> axis, bool reverse, bool inclusive,
                   const S& s) {
  const double nothing = -std::numeric_limits<double>::infinity();
  return scanned(rows::logcumsumexp, astype(a, to_inexact(a.dtype()), s), axis, reverse, inclusive,
                 number(nothing), s);
}

array linear_scan(const array& a, const array& b, int64_t axis, bool reverse, const S& s) {
  CERMET_CHECK(a.shape() == b.shape() && a.dtype() == b.dtype(), value, "linear_scan",
               "{} {} and {} {}; shapes and dtypes must be equal", a.dtype(), a.shape(), b.dtype(),
               b.shape());
  const int along = normalize_axis("linear_scan", axis, a.ndim());
  return make_node(rows::linear_scan, pack(a, b), AxisParams{along, reverse}, s);
}

}  // namespace cermet
