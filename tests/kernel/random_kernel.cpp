// SPDX-License-Identifier: MIT
#include "kernel/random_kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernel/builder.h"
#include "kernel/run.h"

namespace cermet::ir {

namespace {

// SplitMix64: unlike the standard distributions, the same numbers everywhere.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567) {}
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(bits() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int>(list.size())))];
  }

 private:
  uint64_t state_;
};

const std::vector<Dtype> kStored = {Dtype::boolean, Dtype::uint8,   Dtype::uint16,   Dtype::uint32,
                                    Dtype::uint64,  Dtype::int8,    Dtype::int16,    Dtype::int32,
                                    Dtype::int64,   Dtype::float16, Dtype::bfloat16, Dtype::float32,
                                    Dtype::float32, Dtype::float64};

uint64_t random_value(Dice& dice, Dtype dtype) {
  if (dtype == Dtype::boolean) return dice.bits() & 1;
  const size_t size = size_of(dtype);
  const uint64_t raw = size == 8 ? dice.bits() : dice.bits() & ((uint64_t{1} << (8 * size)) - 1);
  if (dice.chance(10)) return raw;  // for floats any magnitude, NaN and inf among them
  const int whole = dice.below(21) - 10;
  if (!is_floating(dtype)) return from_double(dtype, whole);
  return from_double(dtype, dice.chance(20) ? whole : whole * 0.3125 + dice.below(1000) * 0.001);
}

class Generator {
 public:
  Generator(RandomKernel& out, RandomOptions options)
      : out_(out), options_(options), dice_(out.seed), b_("random") {}

  void run() {
    make_axes();
    const int inputs = 1 + dice_.below(4);
    for (int i = 0; i < inputs; ++i) make_input();
    if (dice_.chance(50)) make_scalar();
    stage(all_);
    if (!reduced_.empty() || dice_.chance(30)) stage(rest_);
    out_.kernel = b_.take();
  }

 private:
  struct Input {
    ParamId param;
    std::vector<int32_t> strides;  // by axis: a stride word, kUnit, or kNoStride
    int64_t elements;
  };
  struct Known {
    ExprId expr;  // of one result
    std::vector<AxisId> axes;
  };
  static constexpr int32_t kNoStride = -2;
  static constexpr int64_t kMost[] = {3, 31, 48, 64};

  void make_axes() {
    static const std::vector<int64_t> extents = {1,  2,  3,  5,  7,  8,   16,
                                                 17, 33, 63, 64, 65, 130, 257};
    const int rank = 1 + dice_.below(3);
    int64_t points = 1;
    for (int i = 0; i < rank; ++i) {
      int64_t extent = dice_.chance(3) ? 0 : dice_.one_of(extents);
      if (rank == 1 && dice_.chance(25)) extent = 4000 + dice_.below(300);
      if (points * extent > options_.max_points) extent = 2;
      points *= std::max<int64_t>(extent, 1);
      const bool knows = i > 0 && i == rank - 1 && out_.seed % 2 == 0 && extent <= 64;
      const auto is_enough = [&](int64_t n) { return extent <= n; };
      const int64_t most = !knows ? 0 : *std::ranges::find_if(kMost, is_enough);
      all_.push_back(b_.axis(fmt::format("axis {}", i), true, most));
      out_.extents.push_back(extent);
    }
    // What is folded: the last axes, the first ones, or all.
    const int kept = dice_.below(rank + 1);
    rest_.assign(all_.begin(), all_.begin() + kept);
    if (dice_.chance(40)) rest_.assign(all_.end() - kept, all_.end());
    for (AxisId a : all_)
      if (std::ranges::find(rest_, a) == rest_.end()) folded_.push_back(a);
  }

  int32_t stride_word(int64_t value) {
    out_.strides.push_back(value);
    return b_.stride();
  }

  ParamId add_param(ParamId p, size_t bytes, uint64_t bits = 0) {
    out_.initial.resize(p + 1);
    out_.scalars.resize(p + 1);
    out_.initial[p].resize(bytes);
    out_.scalars[p] = bits;
    return p;
  }

  ParamId make_buffer(Dtype dtype, Access access, int64_t elements) {
    const ParamId p = b_.buffer(dtype, access, fmt::format("b{}", b_.kernel().params.size()));
    const size_t size = size_of(dtype);
    add_param(p, static_cast<size_t>(elements) * size);
    for (int64_t i = 0; i < elements; ++i) {
      const uint64_t bits = random_value(dice_, dtype);
      std::memcpy(out_.initial[p].data() + static_cast<size_t>(i) * size, &bits, size);
    }
    return p;
  }

  // Row-major over a random subset of the axes, the innermost one at unit stride or a stride word.
  void make_input() {
    Input in{0, std::vector<int32_t>(all_.size(), kNoStride), 1};
    for (size_t i = all_.size(); i-- > 0;) {
      if (!dice_.chance(75)) continue;
      in.strides[i] = in.elements == 1 && dice_.chance(60) ? kUnit : stride_word(in.elements);
      in.elements *= std::max<int64_t>(out_.extents[i], 1);
    }
    in.param = make_buffer(dice_.one_of(kStored), Access::in, in.elements);
    inputs_.push_back(in);
  }

  void make_scalar() {
    const Dtype dtype = dice_.chance(50) ? Dtype::float32 : Dtype::int32;
    scalar_ = add_param(b_.scalar(dtype, "alpha"), 0, random_value(dice_, dtype));
  }

  bool visible(const std::vector<AxisId>& axes) const {
    return std::ranges::all_of(
        axes, [&](AxisId a) { return std::ranges::find(axes_, a) != axes_.end(); });
  }

  // --- Expressions. Those in sight are over axes_.

  ExprId as(ExprId e, Dtype dtype) { return b_.cast(e, dtype); }

  ExprId leaf(Dtype dtype) {
    const int kind = dice_.below(10);
    if (kind < 3 && !known_.empty()) {
      const Known& k = dice_.one_of(known_);
      if (visible(k.axes)) return as(k.expr, dtype);
    }
    if (kind < 7) return as(load(dice_.one_of(inputs_)), dtype);
    if (kind == 7 && scalar_ != kNone) return as(b_.scalar_ref(scalar_), dtype);
    if (kind == 8 && !axes_.empty()) {
      const AxisId a = dice_.one_of(axes_);
      return as(dice_.chance(70) ? b_.axis_ref(a) : b_.extent(a), dtype);
    }
    return b_.constant_bits(dtype, random_value(dice_, dtype));
  }

  ExprId load(const Input& in) {
    Index index;
    for (size_t i = 0; i < in.strides.size(); ++i) {
      if (in.strides[i] == kNoStride) continue;
      // An axis that is out of sight here is read at 0.
      if (visible({all_[i]})) index.push_back({b_.axis_ref(all_[i]), in.strides[i]});
    }
    const BufferRef buffer{false, in.param};
    if (!options_.gathers || !dice_.chance(15)) return b_.load(buffer, index);
    return gather(in, buffer);
  }

  // At an element that a computed index names, where it is in bounds.
  ExprId gather(const Input& in, BufferRef buffer) {
    const ExprId wanted = integer_expr(1);
    const ExprId last = b_.integer(Dtype::int64, in.elements - 1);
    const ExprId zero = b_.integer(Dtype::int64, 0);
    if (dice_.chance(50)) return b_.load(buffer, {{b_.min(b_.max(wanted, zero), last), kUnit}});
    const ExprId ok =
        b_.logical_and(b_.compare(Code::le, zero, wanted), b_.compare(Code::le, wanted, last));
    const Dtype dtype = b_.kernel().params[static_cast<size_t>(in.param)].dtype;
    const ExprId otherwise =
        dice_.chance(70) ? b_.constant_bits(dtype, random_value(dice_, dtype)) : kNone;
    return b_.load(buffer, {{wanted, kUnit}}, ok, otherwise);
  }

  ExprId integer_expr(int depth) { return expr(Dtype::int64, depth); }

  Dtype random_compute() {
    static const std::vector<Dtype> list = {Dtype::float32, Dtype::float32, Dtype::float64,
                                            Dtype::int32,   Dtype::int64,   Dtype::uint8,
                                            Dtype::int16,   Dtype::uint32,  Dtype::uint64};
    return dice_.one_of(list);
  }

  ExprId expr(Dtype dtype, int depth) {
    if (is_half(dtype)) return as(expr(Dtype::float32, depth), dtype);
    if (depth <= 0 || dice_.chance(10)) return leaf(dtype);
    if (dtype == Dtype::boolean) return predicate(depth);
    if (dice_.chance(10)) return as(expr(random_compute(), depth - 1), dtype);
    if (dice_.chance(10)) {
      const ExprId p = predicate(depth - 1);
      const ExprId a = expr(dtype, depth - 1), c = expr(dtype, depth - 1);
      return dice_.chance(70) ? b_.select(p, a, c) : b_.rare(p, a, c);
    }
    return is_floating(dtype) ? floating(dtype, depth - 1) : integral(dtype, depth - 1);
  }

  ExprId predicate(int depth) {
    static const std::vector<Code> comparisons = {Code::eq, Code::ne, Code::lt, Code::le};
    static const std::vector<Code> logic = {Code::bit_and, Code::bit_or, Code::bit_xor};
    if (depth <= 0) return leaf(Dtype::boolean);
    if (dice_.chance(20))
      return two(dice_.one_of(logic), Dtype::boolean, Dtype::boolean, depth - 1);
    if (dice_.chance(10)) return b_.logical_not(predicate(depth - 1));
    const Code code = dice_.one_of(comparisons);
    return two(code, Dtype::boolean, random_compute(), depth - 1);
  }

  // The order in which arguments of a call are made is the compiler's choice; here it is fixed.
  ExprId two(Code code, Dtype result, Dtype operand, int depth) {
    const ExprId a = expr(operand, depth), b = expr(operand, depth);
    return b_.op(code, result, {a, b});
  }
  ExprId one(Code code, Dtype dtype, int depth) { return b_.unary(code, expr(dtype, depth)); }

  ExprId floating(Dtype dtype, int depth) {
    static const std::vector<Code> unary = {Code::neg,  Code::abs,   Code::sqrt, Code::floor,
                                            Code::ceil, Code::trunc, Code::rint};
    static const std::vector<Code> binary = {Code::add, Code::sub, Code::mul, Code::div,
                                             Code::min, Code::max, Code::add, Code::mul};
    static const std::vector<Code> math = {Code::exp,   Code::log,     Code::sin,   Code::tanh,
                                           Code::erf,   Code::pow,     Code::cos,   Code::expm1,
                                           Code::log1p, Code::sigmoid, Code::rsqrt, Code::atan2};
    const int kind = dice_.below(100);
    if (options_.math && kind < 20) {
      const Code code = dice_.one_of(math);
      return arity_of(code) == 1 ? one(code, dtype, depth) : two(code, dtype, dtype, depth);
    }
    if (kind < 40) {
      const Code code = dice_.one_of(unary);
      return one(code, dtype, depth);
    }
    if (kind < 50) {
      const ExprId a = expr(dtype, depth), b = expr(dtype, depth), c = expr(dtype, depth);
      return b_.fma(a, b, c);
    }
    if (kind < 53) {
      const ExprId n = b_.constant(dtype, dice_.below(41) - 20), x = expr(dtype, depth);
      return b_.op(Code::scale2, dtype, {x, n});
    }
    if (kind < 56) {
      const Dtype bits = dtype == Dtype::float32 ? Dtype::uint32 : Dtype::uint64;
      return b_.bitcast(expr(bits, depth), dtype);
    }
    const Code code = dice_.one_of(binary);
    return two(code, dtype, dtype, depth);
  }

  ExprId integral(Dtype dtype, int depth) {
    static const std::vector<Code> unary = {Code::neg, Code::abs, Code::bit_not};
    static const std::vector<Code> binary = {
        Code::add,     Code::sub,    Code::mul,     Code::div, Code::rem, Code::min, Code::max,
        Code::bit_and, Code::bit_or, Code::bit_xor, Code::shl, Code::shr, Code::rotl};
    if (dice_.chance(20)) {
      const Code code = dice_.one_of(unary);
      return one(code, dtype, depth);
    }
    const Code code = dice_.one_of(binary);
    return two(code, dtype, dtype, depth);
  }

  // --- Statements.

  void add(Stmt stmt) { body_.push_back(std::move(stmt)); }

  void stage(std::vector<AxisId> axes) {
    axes_ = std::move(axes);
    body_.clear();
    const int lets = dice_.below(3);
    for (int i = 0; i < lets; ++i) let();
    if (axes_ == all_ && !folded_.empty()) {
      const int folds = dice_.below(3);
      for (int i = 0; i < folds; ++i) fold();
      if (dice_.chance(20)) scan();
      if (options_.contracts && dice_.chance(50)) contract();
    }
    if (dice_.chance(40)) let();
    if (options_.checks && dice_.chance(30)) check();
    const int stores = 1 + dice_.below(2);
    for (int i = 0; i < stores; ++i) store();
    if (options_.updates && dice_.chance(20)) update();
    b_.kernel().body.push_back(For{.kind = ForKind::stage, .axes = axes_, .body = body_});
  }

  void let() {
    const ExprId e = expr(dice_.one_of(kStored), options_.depth);
    const ValueId v = b_.value({b_.dtype(e)}, fmt::format("let {}", b_.kernel().values.size()));
    add(Let{v, e});
    known_.push_back({b_.ref(v), axes_});
  }

  FoldState state_of(int i, Dtype dtype, Code code, ExprId element) {
    const double zero = code == Code::add   ? is_floating(dtype) ? -0.0 : 0.0
                        : code == Code::mul ? 1.0
                        : code == Code::min ? std::numeric_limits<double>::infinity()
                                            : -std::numeric_limits<double>::infinity();
    const ExprId state = b_.state(i, dtype);
    return {dtype, b_.constant(dtype, zero), b_.op(code, dtype, {state, element}),
            b_.op(code, dtype, {state, b_.other(i, dtype)})};
  }

  // The largest element and its position, the first of equals; NaN wins by comparing false.
  std::vector<FoldState> arg_states() {
    const ExprId x = expr(Dtype::float32, options_.depth - 1);
    ExprId at = b_.integer(Dtype::int64, 0);
    for (AxisId a : folded_) at = b_.add(b_.mul(at, b_.extent(a)), b_.axis_ref(a));
    const ExprId best = b_.state(0, Dtype::float32), where = b_.state(1, Dtype::int64);
    const ExprId best2 = b_.other(0, Dtype::float32), where2 = b_.other(1, Dtype::int64);
    const ExprId step = b_.compare(Code::lt, best, x);
    const ExprId better = b_.compare(Code::lt, best, best2);
    const ExprId tie =
        b_.logical_and(b_.compare(Code::eq, best, best2), b_.compare(Code::lt, where2, where));
    const ExprId merge = b_.logical_or(better, tie);
    return {{Dtype::float32, b_.constant(Dtype::float32, -INFINITY), b_.select(step, x, best),
             b_.select(merge, best2, best)},
            {Dtype::int64, b_.integer(Dtype::int64, std::numeric_limits<int64_t>::max()),
             b_.select(step, at, where), b_.select(merge, where2, where)}};
  }

  std::vector<FoldState> fold_states() {
    static const std::vector<Code> codes = {Code::add, Code::add, Code::mul, Code::min, Code::max};
    if (dice_.chance(20)) return arg_states();
    std::vector<FoldState> states;
    const int count = dice_.chance(75) ? 1 : 2;
    for (int i = 0; i < count; ++i) {
      const Dtype dtype = random_compute();
      const Code code = dice_.one_of(codes);
      states.push_back(state_of(i, dtype, code, expr(dtype, options_.depth - 1)));
    }
    return states;
  }

  void add_fold(Emit emit, Order order, const std::vector<AxisId>& lives) {
    std::vector<FoldState> states = fold_states();
    std::vector<Dtype> dtypes;
    for (const FoldState& s : states) dtypes.push_back(s.dtype);
    const ValueId v = b_.value(dtypes, fmt::format("fold {}", b_.kernel().values.size()));
    add(Fold{v, folded_, emit, order, std::move(states)});
    for (size_t i = 0; i < dtypes.size(); ++i)
      known_.push_back({b_.get(static_cast<int>(i), b_.ref(v)), lives});
    if (emit == Emit::last) reduced_.push_back(v);
  }

  void fold() { add_fold(Emit::last, dice_.chance(60) ? Order::lanes : Order::serial, rest_); }
  void scan() { add_fold(Emit::each, Order::serial, axes_); }

  void contract() {
    const Dtype acc = dice_.chance(70) ? Dtype::float32 : Dtype::int32;
    const ExprId x = expr(acc, 1), y = expr(acc, 1);
    const ValueId v = b_.value({acc}, "contract");
    add(Contract{v, folded_, x, y, acc, Scheme::fma});
    known_.push_back({b_.ref(v), rest_});
    reduced_.push_back(v);
  }

  void check() {
    if (status_ == kNone) status_ = add_param(b_.status(), 0);
    const ExprId ok = b_.compare(Code::le, b_.constant(Dtype::uint8, 0), expr(Dtype::uint8, 1));
    const int site = dice_.below(5);
    add(Check{ok, site, integer_expr(1)});
  }

  // One element for each point of the stage, at row-major strides from the record.
  Index everywhere() {
    Index index;
    int64_t stride = 1;
    for (size_t i = axes_.size(); i-- > 0;) {
      index.push_back({b_.axis_ref(axes_[i]), stride == 1 ? kUnit : stride_word(stride)});
      stride *= std::max<int64_t>(out_.extents[static_cast<size_t>(axes_[i])], 1);
    }
    std::ranges::reverse(index);
    return index;
  }

  int64_t points() const {
    int64_t count = 1;
    for (AxisId a : axes_) count *= std::max<int64_t>(out_.extents[static_cast<size_t>(a)], 1);
    return count;
  }

  void store() {
    const ExprId value = expr(dice_.one_of(kStored), options_.depth);
    const ParamId p = make_buffer(b_.dtype(value), Access::out, points());
    const ExprId mask = dice_.chance(20) ? predicate(2) : kNone;
    add(Store{{false, p}, everywhere(), value, mask});
  }

  // In the order of the points, or in parts over some of their axes.
  void update() {
    static const std::vector<Code> codes = {Code::add, Code::mul, Code::min, Code::max,
                                            Code::bit_or};
    static const std::vector<Dtype> dtypes = {Dtype::int32, Dtype::int64, Dtype::uint32,
                                              Dtype::float32, Dtype::float64};
    constexpr int64_t kElements = 8;
    const Dtype dtype = dice_.one_of(dtypes);
    const ParamId p = make_buffer(dtype, Access::inout, kElements);
    const ExprId at = b_.op(Code::bit_and, Dtype::int64,
                            {integer_expr(2), b_.integer(Dtype::int64, kElements - 1)});
    const ExprId mask = dice_.chance(30) ? predicate(2) : kNone;
    Code code = dice_.one_of(codes);
    if (is_floating(dtype) && code == Code::bit_or) code = Code::add;
    Update made{{false, p}, {{at, kUnit}}, code, expr(dtype, 2), mask};
    if (code != Code::bit_or && dice_.chance(50))
      for (AxisId a : axes_)
        if (dice_.chance(60)) made.over.push_back(a);
    if (!made.over.empty()) {
      if (elements_ == kNone) {
        elements_ = b_.axis("elements");
        out_.extents.push_back(kElements);
      }
      made.elements = elements_;
    }
    add(std::move(made));
  }

  RandomKernel& out_;
  const RandomOptions options_;
  Dice dice_;
  Builder b_;
  std::vector<AxisId> all_, rest_, folded_;
  std::vector<AxisId> axes_;  // of the current stage
  AxisId elements_ = kNone;   // of updates in parts
  std::vector<Input> inputs_;
  std::vector<Known> known_;
  std::vector<ValueId> reduced_;
  std::vector<Stmt> body_;
  ParamId scalar_ = kNone;
  ParamId status_ = kNone;
};

}  // namespace

RandomKernel::RandomKernel(uint64_t seed, RandomOptions options) : seed(seed) {
  Generator(*this, options).run();
}

KernelInput RandomKernel::input() const {
  return {.bytes = initial,
          .before = std::vector<int64_t>(initial.size()),
          .scalars = scalars,
          .extents = extents,
          .strides = strides};
}

}  // namespace cermet::ir
