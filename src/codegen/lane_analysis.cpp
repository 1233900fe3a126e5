// SPDX-License-Identifier: MIT
#include "codegen/lane_analysis.h"

#include <algorithm>
#include <unordered_map>

#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

std::set<int> written_buffers(const Kernel& kernel, const std::vector<Stmt>& stmts) {
  std::set<int> written;
  for_each_stmt(stmts, [&](const Stmt& stmt) {
    if (const auto* s = std::get_if<Store>(&stmt)) written.insert(buffer_number(kernel, s->buffer));
    if (const auto* s = std::get_if<Update>(&stmt))
      written.insert(buffer_number(kernel, s->buffer));
    if (const auto* s = std::get_if<Micro>(&stmt))
      for (BufferRef buffer : s->buffers) written.insert(buffer_number(kernel, buffer));
  });
  return written;
}

LaneOrder lane_order(const std::vector<FoldState>& states) {
  const bool wide =
      std::ranges::any_of(states, [](const FoldState& s) { return size_of(s.dtype) == 8; });
  return wide ? LaneOrder{32, 2048} : LaneOrder{64, 4096};
}

LaneAnalysis::LaneAnalysis(const Kernel& kernel, const For& loop)
    : kernel_(kernel),
      loop_(loop),
      writes_(written_buffers(kernel, loop.body)),
      is_value_(kernel.exprs.size()),
      visited_(kernel.exprs.size()) {
  find_values();
  walk(loop.body);
  for (const Stmt& stmt : loop.body)
    if (const Fold* fold = std::get_if<Fold>(&stmt)) folds_.push_back(fold);
}

void LaneAnalysis::define(ValueId value, Spread spread, ExprId let) {
  defined_.push_back({value, spread, let});
}

const LaneAnalysis::Defined* LaneAnalysis::defined(ValueId value) const {
  const auto it = std::ranges::find(defined_, value, &Defined::value);
  return it == defined_.end() ? nullptr : &*it;
}

bool LaneAnalysis::varies(ValueId value) const {
  const Defined* d = defined(value);
  return d != nullptr && d->spread == Spread::varying;
}

void LaneAnalysis::find_values() {
  std::vector<ExprId> rest;
  const auto add = [&](ExprId id) {
    if (id == kNone || is_value_[id]) return;
    is_value_[id] = true;
    rest.push_back(id);
  };
  for_each_stmt(loop_.body, [&](const Stmt& stmt) {
    if (const Store* s = std::get_if<Store>(&stmt)) {
      for (ExprId id : {s->value, s->mask}) add(id);
    } else if (const Update* s = std::get_if<Update>(&stmt)) {
      for (ExprId id : {s->value, s->imag, s->mask}) add(id);
    } else if (!std::holds_alternative<Check>(stmt)) {
      for_each_expr(stmt, add);
    }
  });
  while (!rest.empty()) {
    const Expr& e = kernel_[rest.back()];
    rest.pop_back();
    if (e.kind == ExprKind::load) std::ranges::for_each(e.operands, add);
    else for_each_operand(e, add);
  }
}

void LaneAnalysis::walk(const std::vector<Stmt>& stmts) {
  const auto states = [&](ValueId value, const std::vector<FoldState>& list) {
    Spread spread = Spread::uniform;
    most_states_ = std::max(most_states_, static_cast<int>(list.size()));
    for (const FoldState& s : list)
      for (ExprId id : {s.init, s.step, s.merge})
        if (id != kNone && this->spread(id) == Spread::varying) spread = Spread::varying;
    define(value, spread, kNone);
  };
  for (const Stmt& stmt : stmts) {
    const For* inner = std::get_if<For>(&stmt);
    if (inner != nullptr) inner_axes_.insert(inner->axes[0]);
    for_each_expr(stmt, [&](ExprId id) { visit(id); });
    simple_ =
        simple_ && (std::holds_alternative<Let>(stmt) || std::holds_alternative<Store>(stmt) ||
                    std::holds_alternative<Fold>(stmt) ||
                    (inner != nullptr && inner->kind == ForKind::serial));
    if (const Let* s = std::get_if<Let>(&stmt)) {
      define(s->value, std::max(spread(s->expr), Spread::uniform), s->expr);
    } else if (const Fold* s = std::get_if<Fold>(&stmt)) {
      states(s->value, s->states);
    } else if (const Merge* s = std::get_if<Merge>(&stmt)) {
      nested_ = true;
      states(s->value, s->states);
      if (spread(s->at) == Spread::varying) defined_.back().spread = Spread::varying;
    } else if (const Store* s = std::get_if<Store>(&stmt)) {
      note_access(s->buffer, s->index, s->mask != kNone, true);
    } else if (const Update* s = std::get_if<Update>(&stmt)) {
      note_access(s->buffer, s->index, true, true);
    } else if (const For* s = std::get_if<For>(&stmt)) {
      nested_ = true;
      if (s->kind == ForKind::lane) holds_lanes_ = true;
      walk(s->body);
    } else if (std::holds_alternative<Micro>(stmt)) {
      nested_ = true;
    }
  }
}

void LaneAnalysis::visit(ExprId id) {
  if (visited_[id]) return;
  visited_[id] = true;
  const Expr& e = kernel_[id];
  for_each_operand(e, [&](ExprId operand) { visit(operand); });
  if (spread(id) != Spread::varying) return;
  note_width(e, is_value_[id]);
  if (e.kind != ExprKind::axis) widest_ = std::max(widest_, static_cast<int>(size_of(e.dtype)));
  if (e.kind == ExprKind::op || e.kind == ExprKind::load) ++cost_;
  if (e.kind == ExprKind::op && e.code == Code::div && is_floating(e.dtype)) ++divisions_;
  if (e.kind == ExprKind::load) note_access(e.buffer, e.index, e.operands[0] != kNone, false);
}

namespace {

// Counts ops and accesses that differ between lanes, each once.
class UsualWalk {
 public:
  UsualWalk(const Kernel& kernel, const LaneAnalysis& analysis)
      : kernel_(kernel), analysis_(analysis) {}

  struct Chain {
    int integers = 0;  // integer ops one after the other that end with this one
    int floats = 0;    // ops of floats, among which others may stand
    void add(Chain other) {
      integers = std::max(integers, other.integers);
      floats = std::max(floats, other.floats);
    }
  };

  int cost() const { return cost_; }
  Chain longest() const { return longest_; }
  Chain chain(ExprId id) {
    id = analysis_.behind(id);
    if (analysis_.spread(id) != Spread::varying) return {};
    if (const auto known = chains_.find(id); known != chains_.end()) return known->second;
    const Expr& e = kernel_[id];
    Chain most;
    if (e.kind == ExprKind::rare) {
      for (const int i : {0, 1}) most.add(chain(e.operands[static_cast<size_t>(i)]));
    } else {
      for_each_operand(e, [&](ExprId operand) { most.add(chain(operand)); });
    }
    if (e.kind == ExprKind::op || e.kind == ExprKind::load) ++cost_;
    if (e.kind == ExprKind::op && is_integer(e.dtype)) ++most.integers;
    else if (e.kind != ExprKind::rare) most.integers = 0;
    if (e.kind == ExprKind::op && is_floating(e.dtype)) ++most.floats;
    longest_.add(most);
    return chains_[id] = most;
  }

 private:
  const Kernel& kernel_;
  const LaneAnalysis& analysis_;
  std::unordered_map<ExprId, Chain> chains_;
  int cost_ = 0;
  Chain longest_;
};

}  // namespace

const UsualCost& LaneAnalysis::usual() const {
  if (usual_) return *usual_;
  UsualWalk walk(kernel_, *this);
  usual_.emplace();
  for_each_stmt(loop_.body, [&](const Stmt& stmt) {
    for_each_expr(stmt, [&](ExprId id) { walk.chain(id); });
    if (std::holds_alternative<Store>(stmt) || std::holds_alternative<Update>(stmt)) ++usual_->cost;
  });
  usual_->cost += walk.cost();
  usual_->integer_chain = walk.longest().integers;
  usual_->float_chain = walk.longest().floats;
  return *usual_;
}

void LaneAnalysis::note_width(const Expr& e, bool is_value) {
  const auto narrow = [](int& bytes, Dtype dtype) {
    const int size = static_cast<int>(size_of(dtype));
    if (bytes == 0 || size < bytes) bytes = size;
  };
  if (e.kind == ExprKind::load) narrow(memory_bytes_, e.dtype);
  if (e.kind != ExprKind::op || e.code == Code::bitcast || e.code == Code::select) return;
  const bool compares = e.code >= Code::eq && e.code <= Code::le;
  const Dtype dtype = compares ? kernel_[e.operands[0]].dtype : e.dtype;
  if (e.code == Code::cast && is_floating(dtype) && !is_half(dtype)) {
    // A cast into a type is not yet arithmetic in it, but for half types, whose arithmetic it is.
    if (is_half(kernel_[e.operands[0]].dtype)) narrow(float_bytes_, dtype);
    else narrow(memory_bytes_, dtype);
  } else if (is_half(dtype)) {
    narrow(float_bytes_, Dtype::float32);
  } else if (is_floating(dtype)) {
    narrow(float_bytes_, dtype);
  } else if (e.code == Code::cast) {
    narrow(memory_bytes_, dtype);
  } else if (is_value && dtype != Dtype::boolean && dtype != Dtype::int64) {
    narrow(integer_bytes_, dtype);
  }
}

int LaneAnalysis::width(int vector_bytes) const {
  int bytes = 8;
  for (int candidate : {memory_bytes_, integer_bytes_, float_bytes_})
    if (candidate != 0) bytes = candidate;
  int width = vector_bytes / bytes;
  for (const Fold* fold : folds_) width = std::min(width, lane_order(fold->states).lanes);
  return width;
}

Spread LaneAnalysis::spread(ExprId id) const {
  return spread_.get(id, kernel_.exprs.size(), [&] { return spread_of(kernel_[id]); });
}

Spread LaneAnalysis::spread_of(const Expr& e) const {
  switch (e.kind) {
    case ExprKind::constant:
    case ExprKind::scalar:
    case ExprKind::extent:
    case ExprKind::stride: return Spread::invariant;
    case ExprKind::state:
    case ExprKind::other: return Spread::uniform;
    case ExprKind::axis:
      if (e.id == loop_.axes[0]) return Spread::varying;
      return inner_axes_.contains(e.id) ? Spread::uniform : Spread::invariant;
    case ExprKind::ref: {
      const Defined* d = defined(e.id);
      return d == nullptr ? Spread::invariant : d->spread;
    }
    default: break;
  }
  Spread spread = Spread::invariant;
  for_each_operand(e, [&](ExprId operand) { spread = std::max(spread, this->spread(operand)); });
  if (e.kind == ExprKind::load && writes_.contains(buffer_number(kernel_, e.buffer)))
    spread = std::max(spread, Spread::uniform);
  return spread;
}

bool LaneAnalysis::early(ExprId id) const {
  return early_.get(id, kernel_.exprs.size(), [&] { return early_of(id); });
}

bool LaneAnalysis::early_of(ExprId id) const {
  if (spread(id) == Spread::invariant) return true;
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::axis) return e.id == loop_.axes[0];
  if (e.kind != ExprKind::op) return false;
  return std::ranges::all_of(e.operands, [&](ExprId operand) { return early(operand); });
}

std::optional<int64_t> LaneAnalysis::coefficient(ExprId id) const {
  return coefficient_.get(id, kernel_.exprs.size(), [&] { return coefficient_of(id); });
}

std::optional<int64_t> LaneAnalysis::coefficient_of(ExprId id) const {
  if (spread(id) != Spread::varying) return 0;
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::axis) return 1;
  if (e.kind == ExprKind::ref) {
    const Defined* d = defined(e.id);
    if (d->let == kNone) return std::nullopt;
    return coefficient(d->let);
  }
  if (e.kind != ExprKind::op || e.dtype != Dtype::int64) return std::nullopt;
  if (e.code != Code::add && e.code != Code::sub && e.code != Code::mul) return std::nullopt;
  const auto a = coefficient(e.operands[0]), b = coefficient(e.operands[1]);
  if (!a || !b) return std::nullopt;
  if (e.code == Code::add) return *a + *b;
  if (e.code == Code::sub) return *a - *b;
  for (int i : {0, 1}) {
    const Expr& factor = kernel_[e.operands[1 - i]];
    if (factor.kind == ExprKind::constant)
      return (i == 0 ? *a : *b) * static_cast<int64_t>(factor.bits);
  }
  return std::nullopt;
}

ExprId LaneAnalysis::behind(ExprId id) const {
  while (kernel_[id].kind == ExprKind::ref) {
    const Defined* d = defined(kernel_[id].id);
    if (d == nullptr || d->let == kNone) break;
    id = d->let;
  }
  return id;
}

bool LaneAnalysis::counts_lanes(ExprId id) const {
  id = behind(id);
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::axis) return e.id == loop_.axes[0];
  return e.kind == ExprKind::op && e.code == Code::div && is_short_division(id);
}

bool LaneAnalysis::is_short_division(ExprId id) const {
  const Expr& e = kernel_[id];
  if (e.kind != ExprKind::op || (e.code != Code::div && e.code != Code::rem)) return false;
  const Expr& by = kernel_[e.operands[1]];
  const bool positive = by.kind == ExprKind::constant && by.dtype == Dtype::int64 &&
                        static_cast<int64_t>(by.bits) > 0;
  return (positive || by.kind == ExprKind::extent) && counts_lanes(e.operands[0]);
}

LaneAnalysis::Short LaneAnalysis::is_short(ExprId id) const {
  return short_.get(id, kernel_.exprs.size(), [&] { return short_of(id); });
}

LaneAnalysis::Short LaneAnalysis::short_of(ExprId id) const {
  if (spread(id) != Spread::varying) return {true, false};
  id = behind(id);
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::axis) return {true, false};
  if (is_short_division(id)) return {true, true};
  if (e.kind != ExprKind::op || e.dtype != Dtype::int64) return {false, false};
  const bool sums = e.code == Code::add || e.code == Code::sub;
  const bool scales = e.code == Code::mul && (spread(e.operands[0]) == Spread::invariant ||
                                              spread(e.operands[1]) == Spread::invariant);
  if (!sums && !scales) return {false, false};
  const Short a = is_short(e.operands[0]), b = is_short(e.operands[1]);
  return {a.holds && b.holds, a.divides || b.divides};
}

bool LaneAnalysis::is_short_distance(const Index& index) const {
  const auto holds = [&](const IndexTerm& term) { return is_short(term.expr).holds; };
  const auto divides = [&](const IndexTerm& term) { return is_short(term.expr).divides; };
  return std::ranges::all_of(index, holds) && std::ranges::any_of(index, divides);
}

Access LaneAnalysis::access(const Index& index) const {
  Access access;
  int64_t unit = 0;
  for (const IndexTerm& term : index) {
    access.early = access.early && early(term.expr);
    if (spread(term.expr) != Spread::varying) continue;
    const auto c = coefficient(term.expr);
    if (!c) {
      access.kind = AccessKind::gather;
    } else if (*c != 0 && term.stride != kUnit) {
      access.kind = std::max(access.kind, AccessKind::strided);
    } else {
      unit += *c;
    }
  }
  if (access.kind == AccessKind::uniform && unit != 0)
    access.kind = unit == 1 ? AccessKind::unit : unit == 2 ? AccessKind::pair : AccessKind::strided;
  return access;
}

void LaneAnalysis::note_access(BufferRef buffer, const Index& index, bool masked, bool store) {
  if (store) {
    ++cost_;
    const Dtype dtype =
        buffer.local ? kernel_.locals[buffer.id].dtype : kernel_.params[buffer.id].dtype;
    const int size = static_cast<int>(size_of(dtype));
    if (memory_bytes_ == 0 || size < memory_bytes_) memory_bytes_ = size;
  }
  const Access access = this->access(index);
  simple_ = simple_ && !masked && access.kind == AccessKind::unit;
  if (masked) return;
  if (access.kind == AccessKind::pair) has_pairs_ = true;
  if (access.kind == AccessKind::strided && !store) note_strided_load(buffer, index);
  if (access.kind != AccessKind::unit) return;
  if (!access.early) switchable_ = false;
  const size_t number = unit(buffer, index);
  if (number == units_.size()) units_.push_back({buffer, &index});
  (store ? units_[number].stored : units_[number].loaded) = true;
}

void LaneAnalysis::note_strided_load(BufferRef buffer, const Index& index) {
  const auto varies = [&](const IndexTerm& term) { return spread(term.expr) == Spread::varying; };
  const auto along = std::ranges::find_if(index, varies);
  if (std::ranges::count_if(index, varies) != 1 || kernel_[along->expr].kind != ExprKind::axis ||
      along->stride == kUnit)
    return;
  strided_loads_.push_back({buffer, &index, along->stride});
}

size_t LaneAnalysis::unit(BufferRef buffer, const Index& index) const {
  const auto same = [&](const UnitAccess& unit) {
    return unit.buffer == buffer && *unit.index == index;
  };
  return static_cast<size_t>(std::ranges::find_if(units_, same) - units_.begin());
}

}  // namespace cermet::codegen
