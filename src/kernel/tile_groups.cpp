// SPDX-License-Identifier: MIT
#include "kernel/tile_groups.h"

#include <algorithm>

namespace cermet::ir {

namespace {

// Expressions of a source rebuilt behind its Lets.
class Rewriter {
 public:
  explicit Rewriter(Source& source) : source_(source) {}
  virtual ~Rewriter() = default;

  ExprId operator()(ExprId root) {
    std::vector<ExprId> stack = {root};
    while (!stack.empty()) {
      const ExprId id = stack.back();
      if (made_.contains(id)) {
        stack.pop_back();
        continue;
      }
      const Expr given = source_[source_.behind(id)];
      const size_t below = stack.size();
      for_each_operand(given, [&](ExprId operand) {
        if (!made_.contains(operand)) stack.push_back(operand);
      });
      if (stack.size() != below) continue;
      stack.pop_back();
      Expr expr = given;
      for_each_operand(expr, [&](ExprId& operand) { operand = made_.at(operand); });
      made_[id] = rule(given, std::move(expr));
    }
    return made_.at(root);
  }

 protected:
  // given: as it was; made: of operands made anew.
  virtual ExprId rule(const Expr& given, Expr made) = 0;

  Source& source_;

 private:
  ExprMap made_;
};

class WithAxis : public Rewriter {
 public:
  WithAxis(Source& source, AxisId from, AxisId to) : Rewriter(source), from_(from), to_(to) {}

 protected:
  ExprId rule(const Expr& given, Expr made) override {
    if (given.kind == ExprKind::axis && given.id == from_) return source_.builder().axis_ref(to_);
    return source_.builder().intern(std::move(made));
  }

 private:
  const AxisId from_, to_;
};

// Where the mask holds.
class WhereTrue : public Rewriter {
 public:
  WhereTrue(Source& source, ExprId mask) : Rewriter(source), mask_(mask) {}

 protected:
  ExprId rule(const Expr& given, Expr made) override {
    if (given.kind == ExprKind::load && is_mask(given.operands[0]))
      made.operands[0] = made.operands[1] = kNone;
    if (given.kind == ExprKind::op && given.code == Code::select && is_mask(given.operands[0]))
      return made.operands[1];
    if (given.kind == ExprKind::op && given.code == Code::cast) {
      // To a half and back: what was a half stays one.
      const Expr inner = source_[made.operands[0]];
      if (inner.kind == ExprKind::op && inner.code == Code::cast && is_half(made.dtype) &&
          inner.dtype == Dtype::float32 && source_[inner.operands[0]].dtype == made.dtype)
        return inner.operands[0];
    }
    return source_.builder().intern(std::move(made));
  }

 private:
  bool is_mask(ExprId id) const { return id != kNone && source_.behind(id) == mask_; }

  const ExprId mask_;
};

bool is_op(const Expr& e, Code code) { return e.kind == ExprKind::op && e.code == code; }

bool is_zero(const Source& source, ExprId id) {
  const Expr& e = source[source.behind(id)];
  return e.kind == ExprKind::constant && e.bits == 0;
}

// What the operand is 0 without, behind casts; kNone: nothing.
ExprId mask_of(const Source& source, ExprId operand) {
  const Expr* e = &source[source.behind(operand)];
  while (is_op(*e, Code::cast)) e = &source[source.behind(e->operands[0])];
  if (is_op(*e, Code::select) && is_zero(source, e->operands[2]))
    return source.behind(e->operands[0]);
  if (e->kind == ExprKind::load && e->operands[0] != kNone &&
      (e->operands[1] == kNone || is_zero(source, e->operands[1])))
    return source.behind(e->operands[0]);
  return kNone;
}

}  // namespace

std::optional<SumRange> take_sum_range(Source& source, const Roles& roles,
                                       std::vector<Product>& products) {
  const ExprId mask = mask_of(source, products[0].a);
  if (mask == kNone || !is_op(source[mask], Code::bit_and)) return std::nullopt;
  const AxisSet own = set_of(roles.rows()) | axis_bit(roles.n) | axis_bit(roles.k);
  const auto is_k = [&](ExprId id) {
    const Expr& e = source[source.behind(id)];
    return e.kind == ExprKind::axis && e.id == roles.k;
  };
  SumRange range;
  for (const ExprId side : source[mask].operands) {
    const Expr& e = source[source.behind(side)];
    if (is_op(e, Code::le) && is_k(e.operands[1])) range.first = e.operands[0];
    if (is_op(e, Code::lt) && is_k(e.operands[0])) range.past = e.operands[1];
  }
  for (const ExprId bound : {range.first, range.past})
    if (bound == kNone || source[bound].dtype != Dtype::int64 || (source.axes(bound) & own) != 0)
      return std::nullopt;
  for (const Product& p : products)
    if (mask_of(source, p.a) != mask || mask_of(source, p.b) != mask) return std::nullopt;
  WhereTrue rewrite(source, mask);
  for (Product& p : products) p.a = rewrite(p.a), p.b = rewrite(p.b);
  return range;
}

namespace {

// The largest parts of the operand that have the axis but neither n nor k, each with a load in it. False: it
// has the axis elsewhere, too.
bool find_choices(Source& source, ExprId operand, AxisId axis, AxisSet others,
                  std::vector<ExprId>& choices) {
  bool all = true;
  source.walk({operand}, [&](ExprId id) {
    const AxisSet axes = source.axes(id);
    if ((axes & axis_bit(axis)) == 0) return false;
    if ((axes & others) != 0) return true;
    bool is_loaded = false;
    source.walk({id}, [&](ExprId part) {
      is_loaded |= source[part].kind == ExprKind::load;
      return true;
    });
    all &= is_loaded && (axes & kStateAxis) == 0;
    if (std::ranges::find(choices, id) == choices.end()) choices.push_back(id);
    return false;
  });
  return all;
}

}  // namespace

AxisId take_runs(Source& source, const std::vector<AxisId>& stage, const Roles& roles,
                 std::vector<Product>& products, Runs& runs) {
  for (const AxisId axis : stage) {
    if (axis == roles.n || axis == roles.k) continue;
    const AxisSet others = axis_bit(roles.n) | axis_bit(roles.k);
    std::vector<ExprId> choices;
    const bool is_chosen = std::ranges::all_of(products, [&](const Product& p) {
      return (source.axes(p.a) & axis_bit(axis)) != 0 &&
             find_choices(source, p.b, axis, others, choices);
    });
    if (!is_chosen || choices.empty()) continue;
    const auto place = [&](const char* name, std::vector<ExprId>& values) {
      const AxisId pseudo = source.pseudo_axis(name);
      WithAxis rewrite(source, axis, pseudo);
      for (const ExprId choice : choices) values.push_back(rewrite(choice));
      return pseudo;
    };
    runs.at = place("run", runs.choices_at);
    runs.other = place("other", runs.choices_of_other);
    runs.later = place("later", runs.choices_of_later);
    WithAxis rewrite(source, axis, runs.at);
    for (Product& p : products) p.b = rewrite(p.b);
    return axis;
  }
  return kNone;
}

}  // namespace cermet::ir
