// SPDX-License-Identifier: MIT
#include "kernel/tile_chain.h"

#include <bit>
#include <cmath>
#include <limits>

#include "kernel/scalar_ops.h"

namespace cermet::ir {

namespace {

bool holds(AxisSet set, AxisId axis) { return (set & axis_bit(axis)) != 0; }

// Monotonic in its only axis: sums, differences and products with what has none.
bool is_linear(Source& source, ExprId id) {
  id = source.behind(id);
  const Expr& e = source[id];
  if (source.axes(id) == 0 || e.kind == ExprKind::axis) return true;
  if (e.kind != ExprKind::op) return false;
  switch (e.code) {
    case Code::cast:
      return !is_floating(e.dtype) && e.dtype != Dtype::boolean && is_linear(source, e.operands[0]);
    case Code::add:
    case Code::sub: return is_linear(source, e.operands[0]) && is_linear(source, e.operands[1]);
    case Code::mul:
      return (source.axes(e.operands[0]) == 0 || source.axes(e.operands[1]) == 0) &&
             is_linear(source, e.operands[0]) && is_linear(source, e.operands[1]);
    default: return false;
  }
}

// What expressions are where a condition has a value, as far as that alone tells. A score of -inf minus
// anything is taken for -inf, and a weight of 0 times anything for 0: they are no infinities of the other
// sign and no NaN, but where the whole row is NaN anyway.
class Unseen {
 public:
  Unseen(Source& source, ExprId condition, bool value)
      : source_(source), condition_(condition), value_(value) {}

  bool is(ExprId id, double value) {
    const std::optional<uint64_t> bits = known(id);
    return bits && is_floating(source_[id].dtype) && to_double(source_[id].dtype, *bits) == value;
  }

  // The element leaves the fold's state as it is.
  bool is_neutral(const FoldState& state) {
    const Expr& step = source_[source_.behind(state.step)];
    if (step.kind != ExprKind::op) return false;
    if (const ExprId element = larger(step); element != kNone)
      return is(element, -std::numeric_limits<double>::infinity());
    if (step.operands.size() != 2) return false;
    const bool swapped = source_[step.operands[1]].kind == ExprKind::state;
    if (!swapped && source_[step.operands[0]].kind != ExprKind::state) return false;
    const ExprId element = step.operands[swapped ? 0 : 1];
    return (step.code == Code::add && is(element, 0)) ||
           (step.code == Code::max && is(element, -std::numeric_limits<double>::infinity()));
  }

 private:
  using Known = std::optional<uint64_t>;

  // The element of a maximum by a choice: state < element ? element : state.
  ExprId larger(const Expr& step) {
    if (step.code != Code::select) return kNone;
    const Expr& below = source_[step.operands[0]];
    const bool is = below.kind == ExprKind::op && below.code == Code::lt &&
                    source_[below.operands[0]].kind == ExprKind::state &&
                    below.operands[0] == step.operands[2] && below.operands[1] == step.operands[1];
    return is ? step.operands[1] : kNone;
  }

  Known known(ExprId id) {
    id = source_.behind(id);
    if (const auto it = known_.find(id); it != known_.end()) return it->second;
    const Known result = find(id);
    known_.emplace(id, result);
    return result;
  }

  Known find(ExprId id) {
    if (id == condition_) return value_;
    const Expr e = source_[id];
    if (e.kind == ExprKind::constant) return e.bits;
    if (e.kind == ExprKind::rare) return choose(e);
    if (e.kind != ExprKind::op) return std::nullopt;
    if (e.code == Code::select) return choose(e);
    std::vector<uint64_t> bits;
    for (ExprId operand : e.operands) {
      const Known one = known(operand);
      if (!one) return absorbed(e);
      bits.push_back(*one);
    }
    if (is_math(e.code)) return std::nullopt;
    return apply(e.code, e.dtype, source_[e.operands[0]].dtype, bits.data());
  }

  // select, rare: {condition, if true, if false}; a rare's second arm is for the common case.
  Known choose(const Expr& e) {
    const bool rare = e.kind == ExprKind::rare;
    if (const Known condition = known(e.operands[0]))
      return known(e.operands[(*condition != 0) == rare ? 2 : 1]);
    const Known a = known(e.operands[1]), b = known(e.operands[2]);
    return a && b && *a == *b ? a : std::nullopt;
  }

  Known absorbed(const Expr& e) {
    if (e.dtype == Dtype::boolean && (e.code == Code::bit_and || e.code == Code::bit_or)) {
      const uint64_t decides = e.code == Code::bit_or;
      for (ExprId operand : e.operands)
        if (known(operand) == decides) return decides;
    }
    if (!is_floating(e.dtype)) return std::nullopt;
    if (e.code == Code::fma) return absorbed_by_sum(e);
    if (e.operands.size() != 2) return std::nullopt;
    const auto value = [&](int i) {
      const Known bits = known(e.operands[static_cast<size_t>(i)]);
      return bits ? to_double(e.dtype, *bits) : std::nan("");
    };
    const double infinity = std::numeric_limits<double>::infinity();
    const bool low = value(0) == -infinity || (e.code == Code::add && value(1) == -infinity);
    if ((e.code == Code::add || e.code == Code::sub) && low) return from_double(e.dtype, -infinity);
    if (e.code == Code::mul && (value(0) == 0 || value(1) == 0)) return from_double(e.dtype, 0);
    return std::nullopt;
  }

  // Of a product of -inf and any number: as of a score of -inf.
  Known absorbed_by_sum(const Expr& e) {
    const Known a = known(e.operands[0]), b = known(e.operands[1]);
    if (!a || !b) return std::nullopt;
    const double infinity = std::numeric_limits<double>::infinity();
    const bool low = to_double(e.dtype, *a) * to_double(e.dtype, *b) == -infinity;
    return low ? Known(from_double(e.dtype, -infinity)) : std::nullopt;
  }

  Source& source_;
  ExprId condition_;
  bool value_;
  std::unordered_map<ExprId, Known> known_;
};

// All that follows is 0, or neutral, where the condition has the value.
bool hides(ChainAnalysis& chain, ExprId condition, bool value) {
  Unseen unseen(chain.source, condition, value);
  const auto is_gone = [&](const LastProduct& p) { return unseen.is(p.weights, 0); };
  const auto is_neutral = [&](const Line& line) {
    const auto& states = std::get<Fold>(*line.stmt).states;
    return std::ranges::all_of(states, [&](const FoldState& s) { return unseen.is_neutral(s); });
  };
  const auto adds_nothing = [&](const TileSum& s) { return unseen.is(s.element, 0); };
  return std::ranges::all_of(chain.last, is_gone) && std::ranges::all_of(chain.folds, is_neutral) &&
         std::ranges::all_of(chain.sums, adds_nothing);
}

// What is seen: the columns up to one of each row, where a comparison holds, or does not.
std::optional<Limit> find_limit(ChainAnalysis& chain) {
  Source& source = chain.source;
  const AxisSet row = axis_bit(chain.i), column = axis_bit(chain.j);
  for (ExprId id = 0; id < static_cast<ExprId>(source.kernel().exprs.size()); ++id) {
    const Expr e = source[id];
    if (e.kind != ExprKind::op || (e.code != Code::le && e.code != Code::lt)) continue;
    const ExprId a = e.operands[0], b = e.operands[1];
    if (is_floating(source[a].dtype) || !is_linear(source, a) || !is_linear(source, b)) continue;
    if (source.axes(a) == column && source.axes(b) == row && hides(chain, id, false))
      return Limit{e.code, a, b, id, true};
    if (source.axes(a) == row && source.axes(b) == column && hides(chain, id, true))
      return Limit{e.code == Code::le ? Code::lt : Code::le, b, a, id, false};
  }
  return std::nullopt;
}

bool is_new_store(Source& source, const Line& line) {
  const Store* store = std::get_if<Store>(line.stmt);
  return store != nullptr && source.kernel().params[store->buffer.id].access != Access::inout;
}

}  // namespace

bool ChainAnalysis::run() {
  makers_.assign(source.kernel().values.size(), Maker::none);
  for (const Line& line : source.lines())
    if (!sort(line)) return false;
  if (first.empty() || folds.empty() || !find_axes() || !sort_plain_stores()) return false;
  if (last.empty() && sums.empty() && row_stores.empty()) return false;
  find_summed();
  const auto fit = [&](auto& part) { return fits(part); };
  if (!std::ranges::all_of(first, fit) || !std::ranges::all_of(last, fit) ||
      !std::ranges::all_of(sums, fit))
    return false;
  limit = find_limit(*this);
  find_masked();
  packed = acc;
  return true;
}

// All or nothing: with them the condition is needed nowhere else.
void ChainAnalysis::find_masked() {
  if (!limit) return;
  std::vector<ExprId> roots;
  const auto add = [&](const std::vector<Line>& lines) {
    for (const Line& line : lines)
      for (ExprId root : roots_of(*line.stmt)) roots.push_back(root);
  };
  add(folds);
  add(row_stores);
  for (const LastProduct& p : last) {
    roots.push_back(p.weights);
    add(p.stores);
  }
  for (const TileSum& s : sums) roots.push_back(s.element);
  std::vector<ExprId> masked(first.size(), kNone);
  std::vector<ExprId> bare;  // what is needed besides
  source.walk(roots, [&](ExprId id) {
    const Expr& e = source[id];
    const bool chooses =
        e.kind == ExprKind::op && e.code == Code::select && e.operands[0] == limit->condition;
    const ExprId seen = chooses ? e.operands[limit->if_seen ? 1 : 2] : kNone;
    const auto p = std::ranges::find(first, seen, &FirstProduct::ref);
    if (p == first.end() || source[e.operands[limit->if_seen ? 2 : 1]].kind != ExprKind::constant) {
      bare.push_back(id);
      return true;
    }
    ExprId& known = masked[static_cast<size_t>(p - first.begin())];
    if (known != kNone) bare.push_back(limit->condition);
    known = id;
    return false;
  });
  const auto is_bare = [&](ExprId id) { return std::ranges::find(bare, id) != bare.end(); };
  bool fits = !is_bare(limit->condition);
  for (size_t p = 0; p < first.size(); ++p)
    fits = fits && (masked[p] == kNone || !is_bare(first[p].ref));
  for (size_t p = 0; p < first.size() && fits; ++p) first[p].masked = masked[p];
}

void ChainAnalysis::take_bfloat16() {
  if (acc != Dtype::float32) return;
  std::vector<FirstProduct> first_narrow = first;
  std::vector<LastProduct> last_narrow = last;
  for (FirstProduct& p : first_narrow) {
    const AxisSet k = axis_bit(p.k);
    if (!narrow(p.rows, axis_bit(i) | k, p.factors)) return;
    if (!narrow(p.columns, axis_bit(j) | k, p.factors)) return;
  }
  for (LastProduct& p : last_narrow) {
    if (!narrow(p.other, axis_bit(p.by_columns ? i : j) | axis_bit(p.n), p.factors)) return;
    p.weights = narrowed(p.weights);
  }
  for (FirstProduct& p : first_narrow)
    if (!p.factors.empty()) p.scaled_sums = sums_of_scaled(p.left());
  first = std::move(first_narrow);
  last = std::move(last_narrow);
  packed = Dtype::bfloat16;
}

// own: the axes that factors do not have.
bool ChainAnalysis::narrow(ExprId& operand, AxisSet own, std::vector<ExprId>& factors) {
  const Expr e = source[source.behind(operand)];
  if (e.kind != ExprKind::op) return false;
  if (e.code == Code::cast && source[e.operands[0]].dtype == Dtype::bfloat16) {
    operand = e.operands[0];
    return true;
  }
  if (e.code != Code::mul) return false;
  for (const auto& [value, factor] :
       {std::pair(e.operands[0], e.operands[1]), std::pair(e.operands[1], e.operands[0])}) {
    if ((source.axes(factor) & own) != 0) continue;
    operand = value;
    factors.push_back(factor);
    return narrow(operand, own, factors);
  }
  return false;
}

ExprId ChainAnalysis::narrowed(ExprId weights) {
  const Expr e = source[source.behind(weights)];
  const bool is = e.kind == ExprKind::op && e.code == Code::cast;
  if (is && source[e.operands[0]].dtype == Dtype::bfloat16) return e.operands[0];
  return source.builder().op(Code::cast_normal, Dtype::bfloat16, {weights});
}

std::vector<ExprId> ChainAnalysis::sums_of_scaled(ExprId product) const {
  std::vector<ExprId> sums;
  for (ExprId id = 0; id < static_cast<ExprId>(source.kernel().exprs.size()); ++id) {
    const Expr& e = source[id];
    if (e.kind == ExprKind::op && e.code == Code::fma && e.operands[0] == product &&
        source[e.operands[1]].kind == ExprKind::constant)
      sums.push_back(id);
  }
  return sums;
}

bool ChainAnalysis::needs(const std::vector<ExprId>& roots, Maker maker) {
  bool found = false;
  source.walk(roots, [&](ExprId id) {
    const Expr& e = source[id];
    found |= e.kind == ExprKind::ref && makers_[e.id] == maker;
    return true;
  });
  return found;
}

bool ChainAnalysis::sort(const Line& line) {
  const std::vector<ExprId> roots = roots_of(*line.stmt);
  if (std::holds_alternative<Let>(*line.stmt)) return true;
  if (needs(roots, Maker::last)) return add_store(line);
  if (const Contract* contract = std::get_if<Contract>(line.stmt))
    return !needs(roots, Maker::sum) && add_contract(*contract);
  if (std::holds_alternative<Fold>(*line.stmt)) return add_fold(line);
  if (needs(roots, Maker::sum)) return add_sum_store(line);
  if (!is_new_store(source, line)) return false;
  plain_stores_.push_back(line);
  return true;
}

bool ChainAnalysis::add_fold(const Line& line) {
  const Fold& fold = std::get<Fold>(*line.stmt);
  if (fold.axes.size() != 1 || fold.emit != Emit::last) return false;
  if (!folds.empty() && fold.axes != std::get<Fold>(*folds[0].stmt).axes) return add_sum(line);
  if (needs(roots_of(*line.stmt), Maker::sum)) return false;
  makers_[fold.value] = Maker::fold;
  folds.push_back(line);
  return true;
}

// Over several axes it is a fold of each, of what the one before gives.
bool ChainAnalysis::add_sum(const Line& line) {
  const Fold& fold = std::get<Fold>(*line.stmt);
  if (fold.states.size() != 1) return false;
  const Expr& step = source[source.behind(fold.states[0].step)];
  const Expr& merge = source[source.behind(fold.states[0].merge)];
  if (step.kind != ExprKind::op || step.code != Code::add || merge.code != Code::add) return false;
  const size_t state = source[step.operands[1]].kind == ExprKind::state;
  const ExprId element = source.behind(step.operands[1 - state]);
  if (source[step.operands[state]].kind != ExprKind::state ||
      (source.axes(element) & kStateAxis) != 0)
    return false;
  const ExprId ref = source.builder().ref(fold.value);
  const auto inner = std::ranges::find(sums, element, &TileSum::ref);
  if (inner == sums.end() && needs({element}, Maker::sum)) return false;
  TileSum& sum = inner == sums.end() ? sums.emplace_back(TileSum{element}) : *inner;
  sum.over.push_back(fold.axes[0]);
  sum.ref = ref;
  makers_[fold.value] = Maker::sum;
  return true;
}

bool ChainAnalysis::add_sum_store(const Line& line) {
  if (!is_new_store(source, line)) return false;
  const ExprId value = source.behind(std::get<Store>(*line.stmt).value);
  const auto sum = std::ranges::find(sums, value, &TileSum::ref);
  if (sum == sums.end() || sum->store) return false;
  sum->store = line;
  return true;
}

// What is stored for each row, or for each row and column.
bool ChainAnalysis::sort_plain_stores() {
  const AxisSet rows = set_of(batch) | axis_bit(i);
  for (const Line& line : plain_stores_) {
    const Store& store = std::get<Store>(*line.stmt);
    const AxisSet range = source.axes(store.index) | source.axes(store.value);
    if (store.mask != kNone) return false;
    if (range == rows) row_stores.push_back(line);
    else if (range == (rows | axis_bit(j))) sums.push_back({store.value, {}, kNone, line});
    else return false;
  }
  return true;
}

bool ChainAnalysis::add_contract(const Contract& c) {
  if (c.axes.size() != 1 || (!contracts_.empty() && c.acc != contracts_[0]->acc)) return false;
  acc = c.acc;
  if (acc != Dtype::float32 && acc != Dtype::float64) return false;
  contracts_.push_back(&c);
  Builder& b = source.builder();
  const ExprId left = b.cast(c.a, acc), right = b.cast(c.b, acc), ref = b.ref(c.value);
  const auto is_late = [&](ExprId id) {
    return needs({id}, Maker::first) || needs({id}, Maker::fold);
  };
  const bool late_left = is_late(left), late_right = is_late(right);
  if (late_left && late_right) return false;
  makers_[c.value] = late_left || late_right ? Maker::last : Maker::first;
  if (late_left) last.push_back({ref, left, right, kNone, false});
  else if (late_right) last.push_back({ref, right, left, kNone, false});
  else first.push_back({ref, left, right, c.axes[0]});
  return true;
}

bool ChainAnalysis::add_store(const Line& line) {
  if (!is_new_store(source, line)) return false;
  LastProduct* owner = nullptr;
  bool shared = false;
  source.walk(roots_of(*line.stmt), [&](ExprId id) {
    for (LastProduct& product : last) {
      if (product.ref != id) continue;
      shared |= owner != nullptr && owner != &product;
      owner = &product;
    }
    return true;
  });
  if (owner == nullptr || shared || needs(roots_of(*line.stmt), Maker::first) ||
      needs(roots_of(*line.stmt), Maker::sum))
    return false;
  owner->stores.push_back(line);
  return true;
}

bool ChainAnalysis::find_axes() {
  j = std::get<Fold>(*folds[0].stmt).axes[0];
  for (size_t p = 0; p < last.size(); ++p) {
    const auto of = [&](const Contract* c) {
      return source.builder().ref(c->value) == last[p].ref;
    };
    const AxisId summed = (*std::ranges::find_if(contracts_, of))->axes[0];
    last[p].by_columns = summed != j;
    if (summed == j) continue;
    if (i != kNone && i != summed) return false;
    i = summed;
  }
  FirstProduct& scores = first[0];
  const AxisSet with_j =
      source.axes(holds(source.axes(scores.rows), j) ? scores.rows : scores.columns);
  const AxisSet all = source.axes(scores.rows) | source.axes(scores.columns);
  const std::vector<AxisId>* stage = nullptr;
  for (const Line& line : source.lines())
    if (std::get_if<Contract>(line.stmt) == contracts_[0]) stage = &line.stage;
  if (i == kNone)
    for (AxisId axis : *stage)
      if (holds(all & ~with_j, axis) && axis != scores.k) i = axis;  // the innermost
  if (i == kNone) return false;
  for (AxisId axis : *stage)
    if (axis != i && axis != j && axis != scores.k && holds(all, axis)) batch.push_back(axis);
  return true;
}

void ChainAnalysis::find_summed() {
  const AxisSet over = sums.empty() ? 0 : set_of(sums[0].over);
  for (AxisId axis : batch)
    if (holds(over, axis)) summed.push_back(axis);
}

bool ChainAnalysis::fits(FirstProduct& p) {
  if (holds(source.axes(p.rows), j)) std::swap(p.rows, p.columns);
  const AxisSet rows = source.axes(p.rows), columns = source.axes(p.columns);
  const AxisSet within = set_of(batch) | axis_bit(p.k);
  return (rows & ~within) == axis_bit(i) && (columns & ~within) == axis_bit(j);
}

// It has all axes of the batch, so that each of its elements is added once. What is summed over the batch
// needs all of it at one item, and other results would have to be made there, too.
bool ChainAnalysis::fits(const TileSum& s) {
  const AxisSet over = set_of(s.over), rows = set_of(batch) | axis_bit(i);
  if (!s.store || (over & ~rows) != 0 || (source.axes(s.element) & ~rows & ~axis_bit(j)) != 0)
    return false;
  const Store& store = std::get<Store>(*s.store->stmt);
  if (store.mask != kNone || source.axes(store.index) != ((rows & ~over) | axis_bit(j)))
    return false;
  const AxisSet of_batch = over & ~axis_bit(i);
  return of_batch == set_of(summed) && (summed.empty() || (last.empty() && row_stores.empty()));
}

bool ChainAnalysis::fits(LastProduct& p) {
  const AxisId summed = p.by_columns ? i : j;
  const AxisSet weights = source.axes(p.weights);
  if ((weights & ~set_of(batch)) != (axis_bit(i) | axis_bit(j))) return false;
  const AxisSet own = source.axes(p.other) & ~set_of(batch) & ~axis_bit(summed);
  if (own == 0 || (own & (own - 1)) != 0 || !holds(source.axes(p.other), summed)) return false;
  p.n = static_cast<AxisId>(std::countr_zero(own));
  const AxisSet out = set_of(batch) | axis_bit(p.by_columns ? j : i) | own;
  if (p.n == i || p.n == j || p.stores.empty()) return false;
  return std::ranges::all_of(p.stores, [&](const Line& line) {
    AxisSet range = 0;
    for (ExprId root : roots_of(*line.stmt)) range |= source.axes(root);
    return range == out && !(p.by_columns && needs(roots_of(*line.stmt), Maker::fold));
  });
}

}  // namespace cermet::ir
