// SPDX-License-Identifier: MIT
#include "schedule/symbols.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/rules.h"

namespace cermet {

namespace {

constexpr int64_t kExactInDouble = int64_t{1} << 53;

bool is_floating(const Number& n) { return n.kind == Number::Kind::floating; }

double as_double(const Number& n) {
  return is_floating(n) ? n.real_imag.real() : static_cast<double>(n.integer);
}

bool is_exact(const Number& n) {
  return is_floating(n) || (n.integer >= -kExactInDouble && n.integer <= kExactInDouble);
}

Number floating(double value) { return number(value); }
Number integer(int64_t value) { return number(value); }

int64_t floor_divided(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

// b: at least 0.
std::optional<Number> power_of_integers(int64_t a, int64_t b) {
  int64_t result = 1, square = a;
  bool overflows = false;  // of the squares, the last one is not used
  for (; b != 0; b >>= 1) {
    if ((b & 1) != 0 && (overflows || __builtin_mul_overflow(result, square, &result)))
      return std::nullopt;
    overflows |= __builtin_mul_overflow(square, square, &square);
  }
  return integer(result);
}

// Python raises an error, or gives a complex number, where there is none.
std::optional<Number> power_of_floats(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b) || (a == 0 && b < 0)) return std::nullopt;
  if (a < 0 && b != std::floor(b)) return std::nullopt;
  const double result = std::pow(a, b);
  return std::isfinite(result) ? std::optional(floating(result)) : std::nullopt;
}

std::optional<Number> compute_integers(Symbols::Op op, int64_t a, int64_t b) {
  using Op = Symbols::Op;
  int64_t result = 0;
  switch (op) {
    case Op::add:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(integer(result));
    case Op::subtract:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(integer(result));
    case Op::multiply:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(integer(result));
    case Op::minimum: return integer(std::min(a, b));
    case Op::power: return power_of_integers(a, b);
    default: break;
  }
  if (b == 0 || b == -1) return std::nullopt;
  if (op == Op::floor_divide) return integer(floor_divided(a, b));
  const int64_t rest = a % b;
  return integer(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

// Python's: of a float an int. To the nearest one, of two to the even one.
std::optional<Number> rounded(Symbols::Op op, double x) {
  using Op = Symbols::Op;
  const double whole = op == Op::floor      ? std::floor(x)
                       : op == Op::ceil     ? std::ceil(x)
                       : op == Op::truncate ? std::trunc(x)
                                            : std::nearbyint(x);
  const bool fits = whole >= -0x1p63 && whole < 0x1p63;  // NaN does not
  return fits ? std::optional(integer(static_cast<int64_t>(whole))) : std::nullopt;
}

uint64_t key_of(const Symbols::Expr& e) {
  uint64_t key = static_cast<uint64_t>(e.op) << 8 | static_cast<uint64_t>(e.dtype);
  for (uint64_t part : {uint64_t{e.a}, uint64_t{e.b}, static_cast<uint64_t>(e.value.kind),
                        e.op == Symbols::Op::constant ? Symbols::bits_of(e.value) : 0}) {
    key = (key ^ part) * 0x9e3779b97f4a7c15u;
    key ^= key >> 29;
  }
  return key;
}

bool same_expr(const Symbols::Expr& a, const Symbols::Expr& b) {
  return a.op == b.op && a.a == b.a && a.b == b.b && a.dtype == b.dtype &&
         a.value.kind == b.value.kind &&
         (a.op != Symbols::Op::constant || Symbols::bits_of(a.value) == Symbols::bits_of(b.value));
}

}  // namespace

uint64_t Symbols::bits_of(const Number& n) {
  return is_floating(n) ? std::bit_cast<uint64_t>(n.real_imag.real())
                        : static_cast<uint64_t>(n.integer);
}

std::optional<Number> Symbols::compute(const Expr& e, const Number& a, const Number& b) {
  if (e.op == Op::cast) {
    const Number result = rules::convert_number(a, e.dtype);
    const bool fits = is_floating(a) || !is_integer(e.dtype) || result.integer == a.integer;
    return fits ? std::optional(result) : std::nullopt;
  }
  if (e.op == Op::negate)
    return is_floating(a) ? floating(-as_double(a)) : compute_integers(Op::subtract, 0, a.integer);
  if (e.op > Op::negate) return is_floating(a) ? rounded(e.op, as_double(a)) : std::optional(a);
  const bool whole = !is_floating(a) && !is_floating(b);
  const bool stays_whole = e.op == Op::power ? b.integer >= 0 : e.op != Op::divide;
  if (whole && stays_whole) return compute_integers(e.op, a.integer, b.integer);
  if (!is_exact(a) || !is_exact(b)) return std::nullopt;
  const double x = as_double(a), y = as_double(b);
  switch (e.op) {
    case Op::add: return floating(x + y);
    case Op::subtract: return floating(x - y);
    case Op::multiply: return floating(x * y);
    case Op::divide: return y == 0 ? std::nullopt : std::optional(floating(x / y));
    case Op::power: return power_of_floats(x, y);
    default: return std::nullopt;
  }
}

std::optional<Number> Symbols::value_of(uint32_t expr, std::span<const Number> inputs,
                                        std::span<const Number> values) const {
  const Expr& e = exprs_[expr];
  if (e.op == Op::input) return inputs[e.a];
  if (e.op == Op::constant) return e.value;
  return compute(e, values[e.a], values[e.b]);
}

bool Symbols::holds(Relation relation, const Number& a, const Number& b) {
  if (relation == Relation::same) return a.kind == b.kind && bits_of(a) == bits_of(b);
  if (is_floating(a) || is_floating(b)) {
    const double x = as_double(a), y = as_double(b);
    return relation == Relation::equal ? x == y : x < y;
  }
  return relation == Relation::equal ? a.integer == b.integer : a.integer < b.integer;
}

Number Symbols::input(const Number& value, bool is_size) {
  Number n = value;
  exprs_.push_back({Op::input, static_cast<uint32_t>(structural_.size()), 0, value, {}, {}, 0});
  if (is_size) exprs_.back().least = 2;
  structural_.push_back(is_size);
  n.expr = static_cast<uint32_t>(exprs_.size() - 1);
  return n;
}

uint32_t Symbols::add(Expr expr) {
  auto [it, fresh] = known_.try_emplace(key_of(expr), static_cast<uint32_t>(exprs_.size()));
  if (!fresh && same_expr(exprs_[it->second], expr)) return it->second;
  exprs_.push_back(std::move(expr));
  return static_cast<uint32_t>(exprs_.size() - 1);
}

uint32_t Symbols::operand(const Number& n) {
  if (n.expr != 0) return n.expr;
  return add({Op::constant, 0, 0, n, {}, {}, 0});
}

int64_t Symbols::least(const Number& n) const {
  if (n.expr != 0) return exprs_[n.expr].least;
  return n.kind == Number::Kind::integer ? n.integer : kUnknown;
}

int64_t Symbols::least_of(Op op, const Number& a, const Number& b) const {
  const int64_t x = least(a), y = least(b);
  if (x == kUnknown || y == kUnknown) return kUnknown;
  int64_t result = kUnknown;
  switch (op) {
    case Op::add: return __builtin_add_overflow(x, y, &result) ? kUnknown : result;
    case Op::multiply:
      return x < 0 || y < 0 || __builtin_mul_overflow(x, y, &result) ? kUnknown : result;
    case Op::subtract:
      return b.expr != 0 || __builtin_sub_overflow(x, y, &result) ? kUnknown : result;
    case Op::minimum: return std::min(x, y);
    case Op::floor_divide: return b.expr != 0 || x < 0 || y <= 0 ? kUnknown : x / y;
    default: return kUnknown;
  }
}

std::optional<bool> Symbols::settled(Relation relation, const Number& a, const Number& b) const {
  if (relation == Relation::same || (a.expr == 0) == (b.expr == 0)) return std::nullopt;
  const int64_t bound = least(a.expr == 0 ? b : a), constant = least(a.expr == 0 ? a : b);
  if (bound == kUnknown || constant == kUnknown) return std::nullopt;
  if (relation == Relation::equal) return constant < bound ? std::optional(false) : std::nullopt;
  if (a.expr == 0) return constant < bound ? std::optional(true) : std::nullopt;
  return constant <= bound ? std::optional(false) : std::nullopt;
}

std::optional<Number> Symbols::apply(Op op, const Number& a, const Number& b) {
  Expr e{op, 0, 0, {}, {}, {}, 0};
  std::optional<Number> value = compute(e, a, b);
  if (!value) return value;
  value->expr = 0;
  if (a.expr == 0 && b.expr == 0) return value;
  // The sign of the exponent decides whether the result is whole.
  if (op == Op::power && !is_floating(a) && !is_floating(b)) compare(Relation::less, b, integer(0));
  e.a = operand(a);
  e.b = op >= Op::negate ? 0 : operand(b);
  e.value = *value;
  e.least = least_of(op, a, b);
  value->expr = add(std::move(e));
  return value;
}

bool Symbols::compare(Relation relation, const Number& a, const Number& b) {
  const bool outcome = holds(relation, a, b);
  if ((a.expr == 0 && b.expr == 0) || settled(relation, a, b)) return outcome;
  const uint32_t x = operand(a), y = operand(b);
  const uint64_t key = (uint64_t{x} << 34) ^ (uint64_t{y} << 2) ^ static_cast<uint64_t>(relation);
  if (guarded_.insert(key).second) guards_.push_back({relation, x, y, outcome});
  return outcome;
}

void Symbols::look(const Number& n) {
  Number plain = n;
  plain.expr = 0;
  compare(Relation::same, n, plain);
}

bool Symbols::equal(const Dim& a, const Dim& b) {
  return compare(Relation::equal, number_of(a), number_of(b));
}
bool Symbols::less(const Dim& a, const Dim& b) {
  return compare(Relation::less, number_of(a), number_of(b));
}

Dim Symbols::combine(char op, const Dim& a, const Dim& b) {
  const auto is_nothing = [](const Dim& dim) { return dim.expr == 0 && dim.value == 0; };
  if (op == '*' && (is_nothing(a) || is_nothing(b))) return 0;  // a size of 0 is never open
  const Op code = op == '+'   ? Op::add
                  : op == '-' ? Op::subtract
                  : op == '*' ? Op::multiply
                  : op == '<' ? Op::minimum
                  : op == '%' ? Op::remainder
                              : Op::floor_divide;
  const std::optional<Number> result = apply(code, number_of(a), number_of(b));
  CERMET_CHECK(result, overflow, "shape",
               "{} {} {} is no size that fits 64 bits; sizes are from 0 to 2**63 - 1", a.value, op,
               b.value);
  return {result->integer, result->expr};
}

int64_t Symbols::decide(std::span<const Dim> by, const Decider& decider) {
  Decision made{{}, decider, 0};
  std::vector<int64_t> values;
  for (const Dim& dim : by) {
    if (applies_rules_again) look(dim);
    made.by.push_back(operand(number_of(dim)));
    values.push_back(dim.value);
  }
  if (applies_rules_again) return decider(values);
  made.outcome = decider(values);
  decisions_.push_back(std::move(made));
  return decisions_.back().outcome;
}

uint32_t Symbols::cast(const Number& n, Dtype dtype) {
  if (is_complex(dtype) || dtype == Dtype::boolean) {
    look(n);
    return 0;
  }
  Expr e{Op::cast, n.expr, 0, {}, dtype, {}, 0};
  Number plain = n;
  plain.expr = 0;
  e.value = rules::convert_number(plain, dtype);
  return add(std::move(e));
}

void Symbols::made(Node& node) {
  if (!applies_rules_again) return;
  nodes_made_.fetch_add(1, std::memory_order_relaxed);
  bool open = false, given = false;
  for (const NodeRef& input : node.inputs)
    for (const Dim& dim : input->shape) open |= dim.expr != 0;
  bool in_params = false;
  for_each_symbol(
      node.params,
      [&](Dim& dim) {
        given = true;
        if (dim.expr == 0) return;
        in_params = true;
        mark_structural(dim.expr);
        in_nodes_.push_back(dim.expr);
      },
      [&](Number& n) {
        if (n.expr == 0) return;
        in_params = true;
        in_nodes_.push_back(n.expr);
      });
  if (in_params) node.trace = TraceScope::kForever;
  if (!open || given || !looked) return;
  for (int axis = 0; axis < node.shape.ndim(); ++axis) {
    Dim& dim = node.shape.dim(axis);
    if (dim.expr != 0 || dim.value <= 1) continue;
    exprs_.push_back({Op::size, 0, 0, number_of(dim), {}, NodeRef(&node), axis});
    dim.expr = static_cast<uint32_t>(exprs_.size() - 1);
  }
}

void Symbols::mark_structural(uint32_t expr) {
  std::vector<uint32_t> stack{expr};
  while (!stack.empty()) {
    const Expr& e = exprs_[stack.back()];
    stack.pop_back();
    if (e.op == Op::input) structural_[e.a] = true;
    if (e.op <= Op::constant) continue;
    stack.push_back(e.a);
    if (e.b != 0) stack.push_back(e.b);
  }
}

std::vector<bool> Symbols::inputs_below(std::vector<bool> exprs) const {
  std::vector<bool> inputs(structural_.size(), false);
  for (size_t i = exprs_.size(); i-- > 1;) {
    const Expr& e = exprs_[i];
    if (!exprs[i] || e.op == Op::constant) continue;
    if (e.op == Op::input) inputs[e.a] = true;
    else if (e.op != Op::size) exprs[e.a] = exprs[e.b] = true;
  }
  return inputs;
}

std::vector<bool> Symbols::inputs_of(std::span<const Number> numbers) const {
  std::vector<bool> exprs(exprs_.size(), false);
  for (const Number& n : numbers) exprs[n.expr] = true;
  return inputs_below(std::move(exprs));
}

std::vector<bool> Symbols::used_inputs(std::span<const Number> numbers) const {
  std::vector<bool> exprs(exprs_.size(), false);
  for (const Guard& guard : guards_) exprs[guard.a] = exprs[guard.b] = true;
  for (uint32_t expr : in_nodes_) exprs[expr] = true;
  for (const Number& n : numbers) exprs[n.expr] = true;
  return inputs_below(std::move(exprs));
}

std::vector<bool> Symbols::varying() const {
  std::vector<bool> varies(exprs_.size(), false);
  for (size_t i = 1; i < exprs_.size(); ++i) {
    const Expr& e = exprs_[i];
    varies[i] =
        e.op == Op::input ? !structural_[e.a] : e.op > Op::constant && (varies[e.a] || varies[e.b]);
  }
  return varies;
}

}  // namespace cermet
