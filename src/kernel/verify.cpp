// SPDX-License-Identifier: MIT
// The rules that every kernel keeps, in two parts: what holds for an expression wherever it stands
// (dtypes, arity, ids), and what depends on the place (axes, values and fold states in sight).
#include <algorithm>

#include "base/error.h"
#include "kernel/micro.h"
#include "kernel/passes.h"
#include "kernel/text.h"
#include "kernel/walk.h"

namespace cermet::ir {

namespace {

bool is_real_number(Dtype d) { return is_integer(d) || d == Dtype::float32 || d == Dtype::float64; }
bool is_compute_float(Dtype d) { return d == Dtype::float32 || d == Dtype::float64; }

// Part one: expressions by themselves.
class ExprVerifier {
 public:
  ExprVerifier(const Kernel& kernel, bool lowered) : kernel_(kernel), lowered_(lowered) {}

  // Empty, or what is wrong.
  std::string check(ExprId id) {
    const Expr& e = kernel_.exprs[id];
    std::string order;
    for_each_operand(e, [&](ExprId operand) {
      if (operand < 0 || operand >= id)
        order = fmt::format("operand {} of expression {}", operand, id);
    });
    if (!order.empty()) return order + ": operands must come before their users";
    if (is_complex(e.dtype)) return "complex dtype; complex values are pairs of real ones";
    switch (e.kind) {
      case ExprKind::constant: return constant(e);
      case ExprKind::scalar: return scalar(e);
      case ExprKind::axis:
      case ExprKind::extent: return axis(e);
      case ExprKind::stride: return stride(e);
      case ExprKind::ref: return ref(e);
      case ExprKind::state:
      case ExprKind::other: return e.id >= 0 ? "" : "a negative state number";
      case ExprKind::get: return get(e);
      case ExprKind::op: return op(e);
      case ExprKind::rare: return rare(e);
      case ExprKind::load: return load(e);
    }
    return "an unknown kind of expression";
  }

  // The buffer exists, allows the access, has the dtype; the index is made of int64 terms.
  std::string access(BufferRef buffer, const Index& index, Dtype dtype, Access access) const {
    if (buffer.local) {
      if (buffer.id < 0 || buffer.id >= static_cast<int>(kernel_.locals.size()))
        return "no such local";
      if (kernel_.locals[buffer.id].dtype != dtype) return "dtype differs from that of the local";
    } else {
      if (buffer.id < 0 || buffer.id >= static_cast<int>(kernel_.params.size()))
        return "no such parameter";
      const Param& p = kernel_.params[buffer.id];
      if (p.kind != ParamKind::buffer) return fmt::format("p{} is no buffer", buffer.id);
      if (p.access != access && p.access != Access::inout)
        return fmt::format("p{} is `{}`; this needs `{}`", buffer.id, text_of(p.access),
                           text_of(access));
      if (p.dtype != dtype) return fmt::format("dtype differs from that of p{}", buffer.id);
    }
    for (const IndexTerm& term : index) {
      if (term.expr < 0 || term.expr >= static_cast<ExprId>(kernel_.exprs.size()))
        return "no such index expression";
      if (kernel_.exprs[term.expr].dtype != Dtype::int64) return "an index term must be int64";
      if (is_tuple(term.expr)) return "a value of several results needs get";
      if (term.stride < kUnit || term.stride >= kernel_.stride_count) return "no such stride";
    }
    return "";
  }

  // An expression of several results.
  bool is_tuple(ExprId id) const {
    const Expr& e = kernel_.exprs[id];
    if (e.kind == ExprKind::ref) return kernel_.values[e.id].dtypes.size() > 1;
    return e.kind == ExprKind::op && e.code == Code::threefry;
  }

 private:
  Dtype dtype(ExprId id) const { return kernel_.exprs[id].dtype; }
  Dtype operand(const Expr& e, int i) const { return dtype(e.operands[i]); }

  std::string constant(const Expr& e) const {
    const size_t size = size_of(e.dtype);
    if (size < 8 && e.bits >> (8 * size) != 0) return "constant bits beyond the width of the dtype";
    if (e.dtype == Dtype::boolean && e.bits > 1) return "a bool constant other than 0 and 1";
    return "";
  }

  std::string scalar(const Expr& e) const {
    if (e.id < 0 || e.id >= static_cast<int>(kernel_.params.size())) return "no such parameter";
    const Param& p = kernel_.params[e.id];
    if (p.kind != ParamKind::scalar) return fmt::format("p{} is no scalar", e.id);
    return p.dtype == e.dtype ? "" : fmt::format("dtype differs from that of p{}", e.id);
  }

  std::string axis(const Expr& e) const {
    if (e.id < 0 || e.id >= static_cast<int>(kernel_.axes.size())) return "no such axis";
    if (e.dtype != Dtype::int64) return "axes and extents are int64";
    if (e.kind == ExprKind::extent && !kernel_.axes[e.id].has_extent)
      return fmt::format("a{} has no extent", e.id);
    return "";
  }

  std::string stride(const Expr& e) const {
    if (e.id < 0 || e.id >= kernel_.stride_count) return "no such stride";
    return e.dtype == Dtype::int64 ? "" : "strides are int64";
  }

  std::string ref(const Expr& e) const {
    if (e.id < 0 || e.id >= static_cast<int>(kernel_.values.size())) return "no such value";
    return kernel_.values[e.id].dtypes[0] == e.dtype ? ""
                                                     : fmt::format("dtype differs from v{}", e.id);
  }

  std::string get(const Expr& e) const {
    if (e.operands.size() != 1) return "get takes one operand";
    const Expr& tuple = kernel_.exprs[e.operands[0]];
    if (tuple.kind == ExprKind::ref) {
      const std::vector<Dtype>& dtypes = kernel_.values[tuple.id].dtypes;
      if (e.id < 0 || e.id >= static_cast<int>(dtypes.size())) return "no such state";
      return dtypes[e.id] == e.dtype ? "" : "dtype differs from that of the state";
    }
    if (tuple.kind == ExprKind::op && tuple.code == Code::threefry)
      return e.id >= 0 && e.id < 2 && e.dtype == Dtype::uint32 ? ""
                                                               : "threefry has two uint32 results";
    return "get of an expression with one result";
  }

  std::string rare(const Expr& e) const {
    if (e.operands.size() != 3) return "rare takes three operands";
    if (operand(e, 0) != Dtype::boolean) return "the predicate must be bool";
    if (operand(e, 1) != e.dtype || operand(e, 2) != e.dtype) return "both arms need rare's dtype";
    return plain(e);
  }

  std::string load(const Expr& e) const {
    if (e.operands.size() != 2) return "load takes mask and else";
    if (e.operands[0] != kNone && operand(e, 0) != Dtype::boolean) return "the mask must be bool";
    if (e.operands[1] != kNone && e.operands[0] == kNone) return "an else without a mask";
    if (e.operands[1] != kNone && operand(e, 1) != e.dtype) return "dtype of else differs";
    for (ExprId id : e.operands)
      if (id != kNone && is_tuple(id)) return "a value of several results needs get";
    return access(e.buffer, e.index, e.dtype, Access::in);
  }

  // No operand is a tuple.
  std::string plain(const Expr& e) const {
    for (ExprId id : e.operands)
      if (is_tuple(id)) return "a value of several results needs get";
    return "";
  }

  std::string op(const Expr& e) const {
    if (e.code > Code::threefry) return "an unknown code";
    if (static_cast<int>(e.operands.size()) != arity_of(e.code))
      return fmt::format("{} operands; it takes {}", e.operands.size(), arity_of(e.code));
    if (std::string wrong = plain(e); !wrong.empty()) return wrong;
    if (is_math(e.code)) return math(e);
    return core(e);
  }

  std::string math(const Expr& e) const {
    if (lowered_) return "a math code after lowering";
    const bool threefry = e.code == Code::threefry;
    if (threefry ? e.dtype != Dtype::uint32 : !is_compute_float(e.dtype))
      return threefry ? "threefry is uint32" : "math codes are float32 or float64";
    return all_operands(e, e.dtype);
  }

  std::string all_operands(const Expr& e, Dtype wanted) const {
    for (ExprId id : e.operands)
      if (dtype(id) != wanted)
        return fmt::format("operand of dtype {}; it takes {}", name_of(dtype(id)), name_of(wanted));
    return "";
  }

  std::string core(const Expr& e) const {
    const Dtype first = operand(e, 0);
    switch (e.code) {
      case Code::cast:
        if ((is_half(e.dtype) && first != Dtype::float32) ||
            (is_half(first) && e.dtype != Dtype::float32))
          return fmt::format("a cast from {} to {}; half types cast to and from float32 only",
                             name_of(first), name_of(e.dtype));
        return "";
      case Code::cast_normal:
        return e.dtype == Dtype::bfloat16 && first == Dtype::float32
                   ? ""
                   : "a cast_normal is one from float32 to bfloat16";
      case Code::bitcast:
        if (e.dtype == Dtype::boolean) return "bitcast to bool";
        return size_of(first) == size_of(e.dtype) ? "" : "bitcast between different widths";
      case Code::select:
        if (first != Dtype::boolean) return "the condition must be bool";
        if (is_half(e.dtype)) return "arithmetic of half dtype";
        return operand(e, 1) == e.dtype && operand(e, 2) == e.dtype ? ""
                                                                    : "both arms need its dtype";
      case Code::eq:
      case Code::ne:
      case Code::lt:
      case Code::le:
        if (e.dtype != Dtype::boolean) return "comparisons give bool";
        if (is_half(first)) return "arithmetic of half dtype";
        return all_operands(e, first);
      default: break;
    }
    if (is_half(e.dtype)) return "arithmetic of half dtype";
    if (!takes(e.code, e.dtype)) return fmt::format("no meaning for dtype {}", name_of(e.dtype));
    return all_operands(e, e.dtype);
  }

  // Codes whose result and operands have one dtype.
  static bool takes(Code code, Dtype d) {
    switch (code) {
      case Code::bit_and:
      case Code::bit_or:
      case Code::bit_xor:
      case Code::bit_not: return is_integer(d) || d == Dtype::boolean;
      case Code::shl:
      case Code::shr:
      case Code::rotl: return is_integer(d);
      case Code::fma:
      case Code::sqrt:
      case Code::floor:
      case Code::ceil:
      case Code::trunc:
      case Code::rint:
      case Code::fract:
      case Code::scale2: return is_compute_float(d);
      default: return is_real_number(d);
    }
  }

  const Kernel& kernel_;
  const bool lowered_;
};

// What an expression may use at its place.
struct Sight {
  const std::vector<FoldState>* states = nullptr;
  bool other = false;
  const std::vector<AxisId>* folded = nullptr;  // axes out of sight (init and merge of a fold)
};

// Part two: statements and what they see.
class Verifier {
 public:
  Verifier(const Kernel& kernel, bool lowered)
      : kernel_(kernel),
        tiled_(kernel.is_tiled()),
        exprs_(kernel, lowered),
        values_(kernel.values.size()),
        visited_(kernel.exprs.size(), 0) {}

  void run() {
    declarations();
    for (ExprId id = 0; id < static_cast<ExprId>(kernel_.exprs.size()); ++id)
      if (const std::string wrong = exprs_.check(id); !wrong.empty())
        refuse(fmt::format("expression {} ({}): {}", id, describe(id), wrong));
    for (const Stmt& stmt : kernel_.body) top(stmt);
  }

 private:
  struct ValueFacts {
    bool written = false;
    bool visible = false;
    std::vector<AxisId> axes;  // before `tile`: where it lives
    size_t depth = 0;          // after `tile`: number of loops around its definition
  };

  [[noreturn]] void refuse(const std::string& what) const {
    std::string where = "kernel";
    if (stmt_ != nullptr) {
      where = print(kernel_, *stmt_);
      while (!where.empty() && where.back() == '\n') where.pop_back();
    }
    throw_internal(__FILE__, __LINE__,
                   fmt::format("invalid kernel: {}\nin: {}\n{}", what, where, print(kernel_)));
  }
  void need(bool ok, const char* what) const {
    if (!ok) refuse(what);
  }
  void need_no(const std::string& wrong) const {
    if (!wrong.empty()) refuse(wrong);
  }

  std::string describe(ExprId id) const {
    const Expr& e = kernel_.exprs[id];
    static constexpr std::string_view kKinds[] = {"constant", "scalar", "axis",  "extent",
                                                  "stride",   "ref",    "state", "other",
                                                  "get",      "op",     "rare",  "load"};
    if (e.kind == ExprKind::op && e.code <= Code::threefry)
      return fmt::format("{} {}", name_of(e.code), name_of(e.dtype));
    return fmt::format("{} {}", kKinds[static_cast<size_t>(e.kind)], name_of(e.dtype));
  }

  void declarations() const {
    int statuses = 0;
    for (const Param& p : kernel_.params) {
      if (p.kind == ParamKind::status) ++statuses;
      if (is_complex(p.dtype)) refuse("a complex parameter; complex values are pairs of real ones");
      if (p.kind == ParamKind::status && p.dtype != Dtype::int64) refuse("a status must be int64");
    }
    need(statuses <= 1, "more than one status parameter");
    for (const Value& v : kernel_.values) {
      need(!v.dtypes.empty(), "a value without dtype");
      for (Dtype d : v.dtypes) need(!is_complex(d), "a complex value");
    }
    for (size_t i = 0; i < kernel_.locals.size(); ++i) {
      need(kernel_.locals[i].local == static_cast<LocalId>(i), "a local with another's number");
      need(!is_complex(kernel_.locals[i].dtype), "a complex local");
      size(kernel_.locals[i].size);
    }
    need(kernel_.stride_count >= 0, "a negative stride count");
  }

  void size(const Size& s) const {
    need(s.constant >= 0, "a negative size");
    for (const SizeTerm& term : s.terms) {
      need(axis_exists(term.axis) && kernel_.axes[term.axis].has_extent,
           "a size needs an axis with extent");
      need(term.tile >= 1, "a size's tile must be positive");
    }
  }

  bool axis_exists(AxisId a) const {
    return a >= 0 && a < static_cast<AxisId>(kernel_.axes.size());
  }

  void top(const Stmt& stmt) {
    stmt_ = &stmt;
    const For* loop = std::get_if<For>(&stmt);
    if (tiled_) {
      need(std::holds_alternative<Local>(stmt) || (loop != nullptr && loop->kind == ForKind::chunk),
           "a tiled kernel holds locals and chunk loops");
      statement(stmt);
      return;
    }
    need(loop != nullptr && loop->kind == ForKind::stage, "a kernel before `tile` holds stages");
    need(loop->begin == kNone && loop->end == kNone && loop->step == 1 && loop->grid == Size{} &&
             loop->entry.empty(),
         "a stage has axes only");
    enter(*loop);
  }

  void enter(const For& loop) {
    const size_t outer = axes_.size();
    for (AxisId a : loop.axes) {
      need(axis_exists(a), "no such axis");
      need(std::find(axes_.begin(), axes_.end(), a) == axes_.end(), "an axis inside itself");
      need(kernel_.axes[a].has_extent == (loop.kind == ForKind::stage),
           "stages run over axes with extent, loops over variables");
      axes_.push_back(a);
    }
    loops_.push_back(&loop);
    for (const Stmt& inner : loop.body) {
      stmt_ = &inner;
      statement(inner);
    }
    loops_.pop_back();
    axes_.resize(outer);
    if (tiled_) leave();
  }

  // After a loop its values are out of sight, but for folds over it.
  void leave() {
    const size_t depth = loops_.size() + 1;
    for (ValueFacts& v : values_)
      if (v.written && v.depth == depth) v.visible = false;
    auto due = std::partition(pending_.begin(), pending_.end(),
                              [&](const Fold* f) { return values_[f->value].depth != depth; });
    for (auto it = due; it != pending_.end(); ++it) {
      values_[(*it)->value].depth = depth - 1;
      values_[(*it)->value].visible = true;
    }
    pending_.erase(due, pending_.end());
  }

  void statement(const Stmt& stmt) {
    std::visit([&](const auto& s) { check(s); }, stmt);
  }

  // The dtype of an expression used at this place.
  Dtype use(ExprId id, const Sight& sight = {}) {
    need(id >= 0 && id < static_cast<ExprId>(kernel_.exprs.size()), "no such expression");
    need(!exprs_.is_tuple(id), "a value of several results needs get");
    ++visit_;
    std::vector<ExprId> stack = {id};
    while (!stack.empty()) {
      const ExprId e = stack.back();
      stack.pop_back();
      if (visited_[e] == visit_) continue;
      visited_[e] = visit_;
      in_sight(kernel_.exprs[e], sight);
      for_each_operand(kernel_.exprs[e], [&](ExprId operand) { stack.push_back(operand); });
    }
    return kernel_.exprs[id].dtype;
  }

  void in_sight(const Expr& e, const Sight& sight) const {
    if (e.kind == ExprKind::axis) {
      need(std::find(axes_.begin(), axes_.end(), e.id) != axes_.end(), "an axis out of sight");
      need(sight.folded == nullptr || !contains(*sight.folded, e.id),
           "init and merge of a fold may not use a folded axis");
    }
    if (e.kind == ExprKind::ref) value_in_sight(values_[e.id], sight);
    if (e.kind == ExprKind::load && e.buffer.local) need(tiled_, "a local before `tile`");
    if (e.kind == ExprKind::state || e.kind == ExprKind::other) {
      if (sight.states == nullptr) refuse("state or other outside a fold");
      need(e.kind == ExprKind::state || sight.other, "other outside merge");
      need(e.id < static_cast<int>(sight.states->size()), "no such state");
      need((*sight.states)[e.id].dtype == e.dtype, "dtype differs from that of the state");
    }
  }

  void value_in_sight(const ValueFacts& v, const Sight& sight) const {
    need(v.written, "a value used before it is defined");
    if (tiled_) {
      need(v.visible, "a value used where it does not live");
      need(sight.folded == nullptr || v.depth < loops_.size(),
           "init and merge of a fold may not use a value of the folded loop");
      return;
    }
    for (AxisId a : v.axes) {
      need(std::find(axes_.begin(), axes_.end(), a) != axes_.end(),
           "a value used where it does not live");
      need(sight.folded == nullptr || !contains(*sight.folded, a),
           "init and merge of a fold may not use a value over a folded axis");
    }
  }

  static bool contains(const std::vector<AxisId>& list, AxisId a) {
    return std::find(list.begin(), list.end(), a) != list.end();
  }

  void need_dtype(ExprId id, Dtype wanted, const char* what, const Sight& sight = {}) {
    const Dtype got = use(id, sight);
    if (got != wanted)
      refuse(fmt::format("{} has dtype {}; it must be {}", what, name_of(got), name_of(wanted)));
  }

  void define(ValueId id, std::span<const Dtype> dtypes, std::vector<AxisId> axes) {
    need(id >= 0 && id < static_cast<ValueId>(values_.size()), "no such value");
    ValueFacts& v = values_[id];
    need(!v.written, "a value with two writers");
    need(std::ranges::equal(kernel_.values[id].dtypes, dtypes), "dtypes differ from the value's");
    v = {.written = true, .visible = true, .axes = std::move(axes), .depth = loops_.size()};
  }

  std::vector<AxisId> without(const std::vector<AxisId>& folded) const {
    std::vector<AxisId> rest;
    for (AxisId a : axes_)
      if (!contains(folded, a)) rest.push_back(a);
    return rest;
  }

  void need_inside(const char* what) const {
    if (loops_.empty()) refuse(std::string(what) + " outside every loop");
  }

  void check(const Let& s) {
    const Dtype dtype = use(s.expr);
    define(s.value, {&dtype, 1}, axes_);
  }

  void folded_axes(const std::vector<AxisId>& folded) const {
    need(!folded.empty(), "no axes to fold");
    for (size_t i = 0; i < folded.size(); ++i) {
      need(contains(axes_, folded[i]), "a folded axis out of sight");
      need(std::find(folded.begin() + static_cast<ptrdiff_t>(i) + 1, folded.end(), folded[i]) ==
               folded.end(),
           "an axis folded twice");
    }
  }

  std::vector<Dtype> states(const std::vector<FoldState>& list, const std::vector<AxisId>* folded) {
    need(!list.empty(), "a fold without states");
    std::vector<Dtype> dtypes;
    for (const FoldState& s : list) {
      need(!is_half(s.dtype) && !is_complex(s.dtype), "a state of half or complex dtype");
      need_dtype(s.init, s.dtype, "init", {.folded = folded});
      if (folded != nullptr || s.step != kNone)
        need_dtype(s.step, s.dtype, "step", {.states = &list});
      need_dtype(s.merge, s.dtype, "merge", {.states = &list, .other = true, .folded = folded});
      dtypes.push_back(s.dtype);
    }
    return dtypes;
  }

  void check(const Fold& s) {
    folded_axes(s.axes);
    need(s.emit == Emit::last || s.order == Order::serial, "a scan has serial order");
    if (tiled_) {
      const For& loop = *loops_.back();
      need(loop.kind == ForKind::lane || loop.kind == ForKind::serial ||
               loop.kind == ForKind::thread,
           "a fold stands in a lane, serial or thread loop");
      need(s.axes == loop.axes, "a fold is over the loop that it stands in");
      const bool in_lanes = std::ranges::any_of(
          loops_, [](const For* around) { return around->kind == ForKind::lane; });
      need(loop.kind == ForKind::thread ||
               (s.order == Order::lanes ? in_lanes : loop.kind == ForKind::serial),
           "a fold in a lane loop has lanes order, in a serial loop outside of these serial order");
    }
    const std::vector<Dtype> dtypes = states(s.states, &s.axes);
    define(s.value, dtypes, s.emit == Emit::each ? axes_ : without(s.axes));
    if (!tiled_ || s.emit == Emit::each) return;
    values_[s.value].visible = false;
    pending_.push_back(&s);
  }

  void check(const Contract& s) {
    need(!tiled_, "a contract after `tile`");
    folded_axes(s.axes);
    need(is_real_number(s.acc), "a contract accumulates in integers, float32 or float64");
    use(s.a);
    use(s.b);
    define(s.value, {&s.acc, 1}, without(s.axes));
  }

  void check(const Check& s) {
    need(std::ranges::any_of(kernel_.params,
                             [](const Param& p) { return p.kind == ParamKind::status; }),
         "a check without a status parameter");
    need_inside("a check");
    need(s.site >= 0, "a negative site");
    need_dtype(s.ok, Dtype::boolean, "the condition");
    need_dtype(s.index, Dtype::int64, "the index");
  }

  template <typename S>
  void write(const S& s, Access access) {
    need_inside("a store");
    need(!s.buffer.local || tiled_, "a local before `tile`");
    const Dtype dtype = use(s.value);
    need_no(exprs_.access(s.buffer, s.index, dtype, access));
    for (const IndexTerm& term : s.index) use(term.expr);
    if (s.mask != kNone) need_dtype(s.mask, Dtype::boolean, "the mask");
  }

  void check(const Store& s) { write(s, Access::out); }

  void check(const Update& s) {
    write(s, Access::inout);
    need(s.code <= Code::threefry && !is_math(s.code) && arity_of(s.code) == 2,
         "an update needs a binary core code");
    need(!(s.code >= Code::eq && s.code <= Code::le), "an update by a comparison");
    if (!s.over.empty()) in_parts(s);
    if (s.imag == kNone) return;
    const Dtype part = use(s.imag);
    need(is_floating(part) && part == use(s.value), "complex parts of unlike dtypes");
    need(s.code == Code::add || s.code == Code::mul || s.code == Code::min || s.code == Code::max,
         "a complex update other than add, mul, min and max");
  }

  void in_parts(const Update& s) {
    need(!tiled_, "an update in parts after `tile`");
    folded_axes(s.over);
    need(axis_exists(s.elements) && kernel_.axes[s.elements].has_extent,
         "an update in parts needs an axis for the number of elements");
    need(s.code == Code::add || (s.imag == kNone && (s.code == Code::mul || s.code == Code::min ||
                                                     s.code == Code::max)),
         "an update in parts by a code without a neutral element");
    const Dtype dtype = use(s.value);
    need(is_integer(dtype) || (is_floating(dtype) && !is_half(dtype)),
         "an update in parts of a dtype without arithmetic");
  }

  void check(const Local& s) {
    need(s.local >= 0 && s.local < static_cast<LocalId>(kernel_.locals.size()), "no such local");
    const Local& l = kernel_.locals[s.local];
    need(l.dtype == s.dtype && l.size == s.size && l.scope == s.scope,
         "a local unlike its declaration");
    need(tiled_, "a local before `tile`");
    need(s.scope == LocalScope::thread || loops_.empty(), "a kernel's local inside a loop");
  }

  void check(const Merge& s) {
    need(tiled_, "a merge before `tile`");
    need_inside("a merge");
    need_dtype(s.at, Dtype::int64, "at");
    need_dtype(s.count, Dtype::int64, "count");
    need_dtype(s.stride, Dtype::int64, "stride");
    const std::vector<Dtype> dtypes = states(s.states, nullptr);
    need(s.from.size() == dtypes.size(), "a merge needs one local for each state");
    for (size_t i = 0; i < dtypes.size(); ++i)
      need_no(exprs_.access({.local = true, .id = s.from[i]}, {}, dtypes[i], Access::in));
    define(s.value, dtypes, {});
  }

  void check(const Barrier&) const {
    need(tiled_, "a barrier before `tile`");
    need(!loops_.empty() && loops_.back()->kind == ForKind::thread,
         "a barrier stands directly in a thread loop");
  }

  Dtype dtype_of(BufferRef b, std::string_view what) {
    const size_t count = b.local ? kernel_.locals.size() : kernel_.params.size();
    need(b.id >= 0 && b.id < static_cast<int>(count), "no such buffer");
    if (!b.local && kernel_.params[b.id].kind != ParamKind::buffer)
      refuse(fmt::format("{} on no buffer", what));
    return b.local ? kernel_.locals[b.id].dtype : kernel_.params[b.id].dtype;
  }

  void check(const Fetch& s) {
    need(tiled_, "a fetch before `tile`");
    need_inside("a fetch");
    need_no(exprs_.access(s.buffer, s.index, dtype_of(s.buffer, "a fetch"), Access::out));
    for (const IndexTerm& term : s.index) use(term.expr);
  }

  void check(const Micro& s) {
    need(tiled_, "a micro before `tile`");
    need_inside("a micro");
    for (BufferRef b : s.buffers) dtype_of(b, "a micro");
    for (ExprId id : s.operands) use(id);
    need_no(fault_of(kernel_, s));
  }

  void check(const For& s) {
    need(tiled_ && s.kind != ForKind::stage, "a loop inside a stage");
    need(s.axes.size() == 1 || (s.kind == ForKind::chunk && s.axes.size() == 2),
         "a loop has one variable, a chunk of spans two");
    need(s.step >= 1, "a loop's step must be positive");
    need((s.kind == ForKind::chunk) == loops_.empty(),
         "chunk loops, and only these, are outermost");
    if (s.kind == ForKind::chunk) {
      need(s.begin == kNone && s.end == kNone && s.step == 1, "a chunk loop has a grid only");
      size(s.grid);
      need(s.turn >= 0 && (s.turn == 0 || (s.axes.size() == 2 && s.grid.constant % s.turn == 0)),
           "turns of spans, of which the grid has whole ones");
      need(s.least == 1 || (s.least > 1 && s.axes.size() == 2), "a least number of spans");
      need(std::find(entries_.begin(), entries_.end(), s.entry) == entries_.end(),
           "two chunk loops of one name");
      entries_.push_back(s.entry);
    } else {
      need_dtype(s.begin, Dtype::int64, "begin");
      need_dtype(s.end, Dtype::int64, "end");
      need(s.grid == Size{} && s.turn == 0 && s.least == 1 && s.entry.empty(),
           "a grid or an entry on an inner loop");
    }
    enter(s);
  }

  const Kernel& kernel_;
  const bool tiled_;
  ExprVerifier exprs_;
  std::vector<ValueFacts> values_;
  std::vector<AxisId> axes_;  // in sight, outermost first
  std::vector<const For*> loops_;
  std::vector<const Fold*> pending_;  // folds whose loop has not ended
  std::vector<std::string> entries_;
  std::vector<int> visited_;
  int visit_ = 0;
  const Stmt* stmt_ = nullptr;
};

}  // namespace

void verify(const Kernel& kernel, bool lowered) { Verifier(kernel, lowered).run(); }

}  // namespace cermet::ir
