// SPDX-License-Identifier: MIT
// Constant folding and identities. Every rule keeps the bits of the result (which NaN is left
// open).
#include <algorithm>
#include <optional>

#include "kernel/passes.h"
#include "kernel/rebuild.h"
#include "kernel/scalar_ops.h"
#include "kernel/walk.h"

namespace cermet::ir {

namespace {

bool is_commutative(Code c) {
  return c == Code::add || c == Code::mul || c == Code::min || c == Code::max || c == Code::eq ||
         c == Code::ne || c == Code::bit_and || c == Code::bit_or || c == Code::bit_xor;
}

int digits_of(Dtype d) {
  switch (d) {
    case Dtype::boolean: return 1;
    case Dtype::float16: return 11;
    case Dtype::bfloat16: return 8;
    case Dtype::float32: return 24;
    case Dtype::float64: return 53;
    default: return 8 * static_cast<int>(size_of(d)) - (is_signed(d) ? 1 : 0);
  }
}

// Every value of `from` is one of `to`.
bool is_lossless(Dtype from, Dtype to) {
  if (from == to) return true;
  if (is_floating(from)) return is_floating(to) && size_of(to) > size_of(from);
  if (to == Dtype::boolean) return false;
  if (is_floating(to)) return !is_half(to) && digits_of(from) <= digits_of(to);
  return digits_of(from) <= digits_of(to) && (!is_signed(from) || is_signed(to));
}

// Expressions of one kernel, rebuilt in simpler form.
class Simplifier {
 public:
  explicit Simplifier(const Kernel& kernel)
      : rebuilder_(kernel, [this](Builder&, ExprId, Expr e) { return simplify(std::move(e)); }),
        to_(rebuilder_.to()),
        copies_(kernel.values.size(), kNone),
        lets_(kernel.values.size(), kNone) {
    for (const Stmt& stmt : kernel.body) statement(stmt, to_.kernel().body);
  }

  Kernel take() { return rebuilder_.take(); }

 private:
  // --- Statements.

  void statement(const Stmt& stmt, std::vector<Stmt>& out) {
    if (const For* loop = std::get_if<For>(&stmt)) {
      For copy = *loop;
      copy.body.clear();
      copy.begin = rebuilder_(loop->begin);
      copy.end = rebuilder_(loop->end);
      for (const Stmt& inner : loop->body) statement(inner, copy.body);
      if (!copy.body.empty() || loop->kind == ForKind::chunk) out.push_back(std::move(copy));
      return;
    }
    Stmt copy = rebuilder_(stmt);
    if (const Let* let = std::get_if<Let>(&copy)) {
      (is_name(let->expr) ? copies_ : lets_)[let->value] = let->expr;
      if (is_name(let->expr)) return;
    }
    if (const Check* check = std::get_if<Check>(&copy); check != nullptr && is_true(check->ok))
      return;
    if (Store* store = std::get_if<Store>(&copy); store != nullptr && !memory(*store)) return;
    if (Update* update = std::get_if<Update>(&copy); update != nullptr && !memory(*update)) return;
    out.push_back(std::move(copy));
  }

  // False if nothing is ever written.
  template <typename S>
  bool memory(S& s) {
    if (s.mask != kNone && is_false(s.mask)) return false;
    if (s.mask != kNone && is_true(s.mask)) s.mask = kNone;
    s.index = flatten(s.index);
    return true;
  }

  // Another name for something that can be read wherever the value can.
  bool is_name(ExprId id) const {
    const Expr& e = to_[id];
    if (e.kind == ExprKind::get) return to_[e.operands[0]].kind == ExprKind::ref;
    return e.kind == ExprKind::constant || e.kind == ExprKind::scalar || e.kind == ExprKind::axis ||
           e.kind == ExprKind::extent || e.kind == ExprKind::stride || e.kind == ExprKind::ref;
  }

  // --- Facts.

  std::optional<uint64_t> bits(ExprId id) const {
    if (id == kNone || to_[id].kind != ExprKind::constant) return std::nullopt;
    return to_[id].bits;
  }
  bool is_true(ExprId id) const { return bits(id) == uint64_t{1}; }
  bool is_false(ExprId id) const { return bits(id) == uint64_t{0}; }
  bool is_number(ExprId id, double v) const {
    return bits(id) == std::optional<uint64_t>(from_double(to_.dtype(id), v));
  }
  bool is_op(ExprId id, Code code) const {
    return to_[id].kind == ExprKind::op && to_[id].code == code;
  }
  // What a name stands for.
  ExprId behind(ExprId id) const {
    const Expr& e = to_[id];
    return e.kind == ExprKind::ref && lets_[e.id] != kNone ? lets_[e.id] : id;
  }
  bool is_integral(Dtype d) const { return is_integer(d) || d == Dtype::boolean; }

  // --- Expressions.

  ExprId simplify(Expr e) {
    switch (e.kind) {
      case ExprKind::ref: {
        const ExprId copy = copies_[e.id];
        return copy != kNone ? copy : to_.intern(std::move(e));
      }
      case ExprKind::rare:
        if (bits(e.operands[0])) return e.operands[is_true(e.operands[0]) ? 2 : 1];
        if (e.operands[1] == e.operands[2]) return e.operands[1];
        return to_.intern(std::move(e));
      case ExprKind::load: return load(std::move(e));
      case ExprKind::op: return op(std::move(e));
      default: return to_.intern(std::move(e));
    }
  }

  ExprId load(Expr e) {
    const ExprId mask = e.operands[0], otherwise = e.operands[1];
    if (mask != kNone && is_false(mask))
      return otherwise != kNone ? otherwise : to_.constant_bits(e.dtype, 0);
    if (mask != kNone && is_true(mask)) e.operands = {kNone, kNone};
    e.index = flatten(e.index);
    return to_.intern(std::move(e));
  }

  // Sums become terms of their own; constant terms of one stride become one, zeros none.
  Index flatten(const Index& index) {
    Index flat, constants;
    for (const IndexTerm& term : index) {
      std::vector<ExprId> parts = {term.expr};
      while (!parts.empty()) {
        const ExprId part = parts.back();
        parts.pop_back();
        if (is_op(part, Code::add)) {
          parts.push_back(to_[part].operands[1]);
          parts.push_back(to_[part].operands[0]);
        } else if (bits(part)) {
          add_constant(constants, term.stride, part);
        } else {
          flat.push_back({part, term.stride});
        }
      }
    }
    for (const IndexTerm& term : constants)
      if (!is_false(term.expr)) flat.push_back(term);
    return flat;
  }

  void add_constant(Index& constants, int32_t stride, ExprId value) {
    for (IndexTerm& term : constants) {
      if (term.stride != stride) continue;
      term.expr = to_.constant_bits(Dtype::int64, *bits(term.expr) + *bits(value));
      return;
    }
    constants.push_back({value, stride});
  }

  ExprId op(Expr e) {
    if (std::optional<uint64_t> folded = fold(e)) return to_.constant_bits(e.dtype, *folded);
    if (is_commutative(e.code) && goes_left(e.operands[1], e.operands[0]))
      std::swap(e.operands[0], e.operands[1]);
    const ExprId simple = e.operands.size() == 1   ? unary(e)
                          : e.operands.size() == 2 ? binary(e)
                          : e.code == Code::select ? select(e)
                                                   : kNone;
    return simple != kNone ? simple : to_.intern(std::move(e));
  }

  // One order for both operands of a commutative code: constants last.
  bool goes_left(ExprId a, ExprId b) const {
    if (bits(a).has_value() != bits(b).has_value()) return !bits(a).has_value();
    return a < b;
  }

  std::optional<uint64_t> fold(const Expr& e) const {
    if (is_math(e.code)) return std::nullopt;
    uint64_t values[3] = {};
    for (size_t i = 0; i < e.operands.size(); ++i) {
      const std::optional<uint64_t> value = bits(e.operands[i]);
      if (!value) return std::nullopt;
      values[i] = *value;
    }
    return apply(e.code, e.dtype, to_.dtype(e.operands[0]), values);
  }

  ExprId unary(const Expr& e) {
    const ExprId x = e.operands[0];
    const Expr& inner = to_[x];
    const bool same_op = is_op(x, e.code);
    switch (e.code) {
      case Code::cast: return cast(e.dtype, x);
      case Code::bitcast:
        if (inner.dtype == e.dtype) return x;
        return same_op ? to_.bitcast(inner.operands[0], e.dtype) : kNone;
      case Code::neg:
      case Code::bit_not: return same_op ? inner.operands[0] : kNone;
      case Code::abs:
        if (same_op || !is_signed(e.dtype)) return x;
        return is_op(x, Code::neg) ? to_.unary(Code::abs, inner.operands[0]) : kNone;
      case Code::floor:
      case Code::ceil:
      case Code::trunc:
      case Code::rint: return same_op ? x : kNone;
      default: return kNone;
    }
  }

  // Through an inner cast that loses nothing, where the outer one then means the same.
  ExprId cast(Dtype to, ExprId x) {
    const Dtype by = to_.dtype(x);
    if (by == to) return x;
    if (const ExprId narrow = narrowed(to, x); narrow != kNone) return narrow;
    if (!is_op(x, Code::cast)) return kNone;
    const ExprId source = to_[x].operands[0];
    const Dtype from = to_.dtype(source);
    if (!is_lossless(from, by)) return kNone;
    if (from == to) return source;
    if (is_half(from) || is_half(to)) return kNone;
    // Floats saturate where integers wrap.
    const bool saturates = is_floating(by) && !is_floating(from) && is_integer(to);
    if (saturates && !is_lossless(from, to)) return kNone;
    return to_.cast(source, to);
  }

  // Integers wrap, so the low bits of a result come from the low bits of the operands.
  ExprId narrowed(Dtype to, ExprId x) {
    const Expr e = to_[x];
    if (e.kind != ExprKind::op || !is_integer(to) || !is_integer(e.dtype) ||
        size_of(to) >= size_of(e.dtype))
      return kNone;
    const auto low = [&](int k) {
      const ExprId id = e.operands[k];
      return op({.kind = ExprKind::op, .dtype = to, .code = Code::cast, .operands = {id}});
    };
    switch (e.code) {
      case Code::add:
      case Code::sub:
      case Code::mul: return simplify_op(e.code, low(0), low(1));
      case Code::select: return to_.select(e.operands[0], low(1), low(2));
      default: return kNone;
    }
  }

  ExprId select(const Expr& e) {
    const auto [c, a, b] = std::array{e.operands[0], e.operands[1], e.operands[2]};
    if (a == b || is_true(c)) return a;
    if (is_false(c)) return b;
    if (is_op(c, Code::bit_not)) return to_.select(to_[c].operands[0], b, a);
    return kNone;
  }

  ExprId binary(const Expr& e) {
    const ExprId x = e.operands[0], y = e.operands[1];
    if (e.code >= Code::eq && e.code <= Code::le) return compare(e.code, x, y);
    if (x == y && (e.code == Code::min || e.code == Code::max)) return x;
    return is_integral(e.dtype) ? integer(e, x, y) : floating(e, x, y);
  }

  ExprId compare(Code code, ExprId x, ExprId y) {
    const Dtype d = to_.dtype(x);
    if (x == y && is_integral(d))
      return to_.constant_bits(Dtype::boolean, code == Code::eq || code == Code::le);
    const Expr& a = to_[x];
    const Expr& b = to_[y];
    // An axis with extent runs over 0 .. extent - 1.
    const auto ranged = [&](const Expr& v) {
      return v.kind == ExprKind::axis && to_.kernel().axes[v.id].has_extent;
    };
    const auto at_most_zero = [](const Expr& v) {
      return v.kind == ExprKind::constant && static_cast<int64_t>(v.bits) <= 0;
    };
    if (code == Code::lt && ranged(a) && b.kind == ExprKind::extent && a.id == b.id)
      return to_.constant_bits(Dtype::boolean, 1);
    if (code == Code::le && at_most_zero(a) && ranged(b))
      return to_.constant_bits(Dtype::boolean, 1);
    if (code == Code::lt && ranged(a) && at_most_zero(b))
      return to_.constant_bits(Dtype::boolean, 0);
    return kNone;
  }

  ExprId floating(const Expr& e, ExprId x, ExprId y) const {
    switch (e.code) {
      case Code::mul:
      case Code::div: return is_number(y, 1.0) ? x : kNone;
      case Code::add: return is_number(y, -0.0) ? x : kNone;
      case Code::sub: return is_number(y, 0.0) ? x : kNone;
      default: return kNone;
    }
  }

  ExprId integer(const Expr& e, ExprId x, ExprId y) {
    const bool zero = is_false(y);
    const bool one = bits(y) == uint64_t{1};
    const auto nothing = [&] { return to_.constant_bits(e.dtype, 0); };
    switch (e.code) {
      case Code::add: return zero ? x : regroup(e, x, y);
      case Code::sub:
        if (zero) return x;
        if (x == y) return nothing();
        if (is_op(x, Code::add))  // (a + b) - b, (a + b) - a
          for (int k : {0, 1})
            if (behind(to_[x].operands[1 - k]) == behind(y)) return to_[x].operands[k];
        return bits(y) ? simplify_op(Code::add, x, to_.constant_bits(e.dtype, 0 - *bits(y)))
                       : kNone;
      case Code::mul: return zero ? y : one ? x : regroup(e, x, y);
      case Code::div: return one ? x : zero ? y : kNone;
      case Code::rem: return one || zero ? nothing() : kNone;
      case Code::bit_and: return zero ? y : x == y || all_ones(y) ? x : kNone;
      case Code::bit_or: return all_ones(y) ? y : x == y || zero ? x : kNone;
      case Code::bit_xor: return x == y ? nothing() : zero ? x : kNone;
      case Code::shl:
      case Code::shr:
      case Code::rotl: return zero ? x : kNone;
      default: return kNone;
    }
  }

  bool all_ones(ExprId id) const {
    const Dtype d = to_.dtype(id);
    const uint64_t ones = d == Dtype::boolean ? 1 : ~uint64_t{0} >> (64 - 8 * size_of(d));
    return bits(id) == ones;
  }

  // (x op c) op d  ->  x op (c op d): integers wrap, so both are equal.
  ExprId regroup(const Expr& e, ExprId x, ExprId y) {
    if (!bits(y) || !is_op(x, e.code)) return kNone;
    const ExprId inner = to_[x].operands[0], c = to_[x].operands[1];
    return bits(c) ? simplify_op(e.code, inner, simplify_op(e.code, c, y)) : kNone;
  }

  ExprId simplify_op(Code code, ExprId x, ExprId y) {
    return op({.kind = ExprKind::op, .dtype = to_.dtype(x), .code = code, .operands = {x, y}});
  }

  Rebuilder rebuilder_;
  Builder& to_;
  std::vector<ExprId> copies_;  // what stands for a value that is but a name
  std::vector<ExprId> lets_;    // what any other value of a Let is
};

// The kernel without the statements whose values nobody reads; values are numbered anew.
class DeadValues {
 public:
  explicit DeadValues(const Kernel& kernel)
      : kernel_(kernel), live_(kernel.values.size()), seen_(kernel.exprs.size()) {
    mark(kernel.body);
  }

  Kernel remove() {
    std::vector<ValueId> number(live_.size(), kNone);
    std::vector<Value> values;
    for (size_t v = 0; v < live_.size(); ++v) {
      if (!live_[v]) continue;
      number[v] = static_cast<ValueId>(values.size());
      values.push_back(kernel_.values[v]);
    }
    Kernel kept = kernel_;
    kept.body = living(kernel_.body, number);
    kept.values = std::move(values);
    for (Expr& e : kept.exprs)
      if (e.kind == ExprKind::ref) e.id = number[e.id];
    return rebuild(kept);
  }

 private:
  // From the last statement to the first: readers come after writers.
  void mark(const std::vector<Stmt>& body) {
    for (auto it = body.rbegin(); it != body.rend(); ++it) {
      if (const For* loop = std::get_if<For>(&*it)) mark(loop->body);
      if (const ValueId* v = value_of(*it); v == nullptr || live_[*v])
        for_each_expr(*it, [&](ExprId id) { mark(id); });
    }
  }

  void mark(ExprId root) {
    std::vector<ExprId> stack = {root};
    while (!stack.empty()) {
      const ExprId id = stack.back();
      stack.pop_back();
      if (seen_[id]) continue;
      seen_[id] = true;
      if (kernel_[id].kind == ExprKind::ref) live_[kernel_[id].id] = true;
      for_each_operand(kernel_[id], [&](ExprId operand) { stack.push_back(operand); });
    }
  }

  std::vector<Stmt> living(const std::vector<Stmt>& body,
                           const std::vector<ValueId>& number) const {
    std::vector<Stmt> out;
    for (const Stmt& stmt : body) {
      Stmt copy = stmt;
      if (ValueId* v = value_of(copy)) {
        if (number[*v] == kNone) continue;
        *v = number[*v];
      }
      if (For* loop = std::get_if<For>(&copy)) {
        loop->body = living(loop->body, number);
        if (loop->body.empty() && loop->kind != ForKind::chunk) continue;
      }
      out.push_back(std::move(copy));
    }
    return out;
  }

  const Kernel& kernel_;
  std::vector<bool> live_;
  std::vector<bool> seen_;
};

}  // namespace

Kernel simplify(const Kernel& kernel) { return DeadValues(Simplifier(kernel).take()).remove(); }

}  // namespace cermet::ir
