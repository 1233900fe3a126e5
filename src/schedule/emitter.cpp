// SPDX-License-Identifier: MIT
#include "schedule/emitter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>

#include "base/error.h"
#include "codegen/target.h"
#include "graph/meant_scope.h"
#include "kernel/micro.h"
#include "kernel/rebuild.h"
#include "kernel/walk.h"
#include "ops/ops.h"
#include "schedule/number_bits.h"
#include "schedule/recompute.h"

namespace cermet::schedule {

namespace {

// As elements of this dtype; a guard where one is symbolic.
bool is_same_number(const Number& a, const Number& b, Dtype dtype) {
  if (a.kind != b.kind) return false;
  if ((a.expr | b.expr) == 0) return number_bits(a, dtype) == number_bits(b, dtype);
  return a.kind == Number::Kind::integer && Dim(a.integer, a.expr) == Dim(b.integer, b.expr);
}

// From row to row of what is written out: part of the code, where addresses then need no registers.
bool is_short_step(const Dim& stride) {
  constexpr int64_t kMost = 4 * kMostColumns;
  return stride != 0 && stride <= kMost && stride >= -kMost;
}

Dim constant_offset(const Coords& at, const Strides& strides) {
  Dim offset = 0;
  for (size_t d = 0; d < at.size(); d++) offset += at[d].offset * strides[d];
  return offset;
}

Dim bytes_in(const Dim& elements, Dtype dtype) { return elements * size_of(dtype); }

// Elements over all axes but the last ones.
Dim count_before(const Shape& shape, int last) {
  Dim count = 1;
  for (int axis = 0; axis < shape.ndim() - last; axis++) count *= shape[axis];
  return count;
}

}  // namespace

// What rules see while they are lowered into the kernel.
class Emitter::Context : public LowerContext {
 public:
  Context(Emitter& emitter, Id id, ir::ExprId mask) : e_(emitter), id_(id), mask_(mask) {}

  ir::Builder& builder() override { return e_.builder_; }
  Lane input(int k, const Coords& at) override {
    return e_.value(e_.node(id_).inputs[k], at, mask_);
  }
  Lane input_where(ir::ExprId mask, int k, const Coords& at) override {
    const size_t among = e_.node(id_).inputs.size();
    if (e_.reaches(mask, e_.axes_.innermost())) {
      e_.axes_.mark_choice(among);
      e_.note_part(e_.node(id_).inputs[k], at);
    } else if (among > 1) {
      for (const AxisId axis : e_.axes_.walked(e_.axes_.all()))
        if (e_.reaches(mask, e_.axes_.in_kernel(axis))) e_.axes_.mark_stacked(axis);
    }
    if (mask_ != ir::kNone) mask = e_.builder_.logical_and(mask_, mask);
    return e_.value(e_.node(id_).inputs[k], at, mask);
  }
  ir::ExprId expr(const Coord& c) override { return e_.coordinate(c); }
  std::optional<Bounds> bounds(const Coord& c) override {
    return bounds_of(e_.r_.axes, e_.r_.axes.normalize(c));
  }
  ir::ExprId number(const Number& n, Dtype dtype) override {
    return e_.number(n, dtype, e_.node(id_).scalar, e_.node(id_).kernel >= 0);
  }
  void check_index(ir::ExprId ok, ir::ExprId index, int axis, const Dim& size,
                   const Dim& extent) override {
    if (mask_ != ir::kNone) ok = e_.builder_.logical_or(ok, e_.builder_.logical_not(mask_));
    if (!e_.has_status_) {
      e_.has_status_ = true;
      e_.builder_.status();
      e_.out_.operands.push_back({Operand::Kind::status, -1, 0, -1, {}, Dtype::int64});
    }
    const int site = static_cast<int>(e_.out_.sites.size());
    e_.out_.sites.push_back({meant_name(*e_.node(id_).meant), axis, size, extent, id_,
                             e_.builder_.dtype(index) == Dtype::uint64});
    index = e_.builder_.cast(index, Dtype::int64);
    Coords all(1);
    for (AxisId a : e_.axes_.all()) all[0].terms.push_back({a, 1});
    e_.append(e_.axes_.stage(e_.r_.axes.normalize(all)), ir::Check{ok, site, index});
  }
  ir::ExprId size(int k, int axis) override {
    const Dim& n = e_.node(e_.node(id_).inputs[k]).node->shape[axis];
    return e_.number(cermet::number(n), Dtype::int64, -1);
  }

 private:
  Emitter& e_;
  Id id_;
  ir::ExprId mask_;
};

// Elements of 8 bytes.
bool Emitter::has_wide() const {
  return std::ranges::any_of(region_.members, [&](const Member& member) {
    return size_of(real_of(node(member.node).node->dtype)) == 8;
  });
}

ir::ExprId Emitter::coordinate(const Coord& coord) {
  const Coord c = r_.axes.normalize(coord);
  ir::ExprId sum = c.expr;
  auto add = [&](ir::ExprId term) { sum = sum == ir::kNone ? term : builder_.add(sum, term); };
  Walk walk;
  for (auto [axis, coefficient] : c.terms) walk[axis] += coefficient;
  for (auto [at, coefficient] : axes_.terms(walk))
    add(coefficient == 1 ? at
                         : builder_.mul(at, number(cermet::number(coefficient), Dtype::int64, -1)));
  if (c.offset != 0 || sum == ir::kNone)
    add(c.offset == 0 ? builder_.integer(Dtype::int64, 0)
                      : number(cermet::number(c.offset), Dtype::int64, -1));
  return sum;
}

// is_fixed: of a composite that is one kernel.
ir::ExprId Emitter::number(const Number& n, Dtype dtype, int scalar, bool is_fixed) {
  // Infinities and bools are part of the structure, and so are zeros of a composite: what they mask is not
  // computed.
  const double value = n.real_imag.real();
  if (scalar < 0 && dtype == Dtype::boolean && n.kind == Number::Kind::boolean)
    return builder_.constant(dtype, n.integer != 0);
  if (scalar < 0 && n.kind == Number::Kind::floating &&
      (std::isinf(value) || (is_fixed && value == 0)) && is_floating(dtype) && !is_half(dtype))
    return builder_.constant(dtype, value);
  for (size_t i = 0; i < out_.operands.size(); i++) {
    const Operand& o = out_.operands[i];
    const bool same = scalar >= 0
                          ? o.kind == Operand::Kind::scalar && o.scalar == scalar
                          : o.kind == Operand::Kind::constant && is_same_number(o.number, n, dtype);
    if (o.dtype == dtype && same) return builder_.scalar_ref(static_cast<ir::ParamId>(i));
  }
  const ir::ParamId param = builder_.scalar(dtype);
  out_.operands.push_back(
      {scalar >= 0 ? Operand::Kind::scalar : Operand::Kind::constant, -1, 0, scalar, n, dtype});
  return builder_.scalar_ref(param);
}

// offset: bytes. What is written out is found from the first place of its row.
Emitter::Place Emitter::place_of(Id root, const Dim& offset, Dtype dtype, ir::Access access) {
  for (size_t i = 0; i < out_.operands.size(); i++) {
    const Operand& o = out_.operands[i];
    const ir::Param& param = builder_.kernel().params[i];
    if (o.kind != Operand::Kind::buffer || o.value != root || o.dtype != dtype ||
        (param.access == ir::Access::in) != (access == ir::Access::in))
      continue;
    if (o.offset == offset) return {static_cast<ir::ParamId>(i)};
    if (!knows_steps_) continue;
    const Dim bytes = offset - o.offset;
    const auto size = static_cast<int64_t>(size_of(dtype));
    if (bytes >= kMostColumns * size || bytes <= -kMostColumns * size) continue;
    if (const int64_t apart = bytes; apart % size == 0)
      return {static_cast<ir::ParamId>(i), apart / size};
  }
  out_.operands.push_back({Operand::Kind::buffer, root, offset, -1, {}, dtype});
  return {builder_.buffer(dtype, access)};
}

// One number for views of a buffer that walk along an axis alike: the loops then step once for all.
int32_t Emitter::stride_of(Id root, ir::ExprId place, const Dim& stride) {
  std::pmr::vector<int32_t>& known = strides_[{root, place}];
  for (const int32_t number : known)
    if (out_.strides[static_cast<size_t>(number)] == stride) return number;
  out_.strides.push_back(stride);
  return known.emplace_back(builder_.stride());
}

// unit: 2 for complex elements, whose parts are the elements of the buffer.
ir::Index Emitter::index_of(Id root, const Coords& at, const Strides& strides, int64_t unit,
                            int64_t apart) {
  Walk walk;
  ir::Index index;
  auto term = [&](ir::ExprId expr, const Dim& stride) {
    const bool is_known = stride == unit || (knows_steps_ && is_short_step(stride));
    if (is_known && stride != 1) expr = builder_.mul(expr, builder_.integer(Dtype::int64, stride));
    if (is_known) {
      index.push_back({expr, ir::kUnit});
      return;
    }
    index.push_back({expr, stride_of(root, expr, stride)});
  };
  for (size_t d = 0; d < at.size(); d++) {
    const Coord c = r_.axes.normalize(at[d]);
    for (auto [axis, coefficient] : c.terms) walk[axis] += coefficient * strides[d] * unit;
    if (c.expr != ir::kNone) term(c.expr, strides[d] * unit);
  }
  for (auto [place, stride] : axes_.terms(walk)) term(place, stride);
  if (apart != 0) index.push_back({builder_.integer(Dtype::int64, apart), ir::kUnit});
  return index;
}

ir::ExprId Emitter::load_part(ir::ParamId param, ir::Index index, Dtype dtype, ir::ExprId mask) {
  const ir::ExprId otherwise = mask == ir::kNone ? ir::kNone : builder_.constant_bits(dtype, 0);
  const ir::ExprId loaded = builder_.load({false, param}, std::move(index), mask, otherwise);
  return builder_.cast(loaded, compute_dtype(dtype));
}

// The node is one part of what is joined.
void Emitter::note_part(Id id, const Coords& at) {
  const AxisId innermost = axes_.all().back();
  for (size_t d = 0; d < at.size(); ++d) {
    const Coord place = r_.axes.normalize(at[d]);
    const auto moves = [&](const Coord::Term& term) { return term.axis == innermost; };
    if (std::ranges::none_of(place.terms, moves)) continue;
    const bool is_whole =
        place.expr == ir::kNone && place.terms.size() == 1 && place.terms[0].coefficient == 1;
    if (!is_whole) break;
    parts_.push_back({Dim(0) - place.offset, node(id).node->shape[static_cast<int>(d)]});
    return;
  }
  parts_.push_back({1, 0});
}

std::optional<std::pair<AxisId, Dim>> Emitter::even_parts() const {
  constexpr int64_t kMostParts = 4;
  if (parts_.empty()) return {};
  const AxisId innermost = axes_.all().back();
  const Dim& all = r_.axes.size(innermost);
  Dim unit = all;
  for (const Part& part : parts_)
    if (part.size < unit) unit = part.size;
  const auto is_multiple = [&](const Dim& size) { return quotient(size, unit) * unit == size; };
  const auto is_even = [&](const Part& part) {
    return !(part.start < 0) && is_multiple(part.start) && is_multiple(part.size);
  };
  if (unit < kShort || all > unit * kMostParts || !is_multiple(all) ||
      !std::ranges::all_of(parts_, is_even))
    return {};
  return std::pair(innermost, unit);
}

// It reaches the flat axes by the place in the innermost one alone.
bool Emitter::is_of_innermost(ir::ExprId id) const {
  const ir::Expr& e = builder_[id];
  if (e.kind == ir::ExprKind::axis || e.kind == ir::ExprKind::ref || e.kind == ir::ExprKind::load)
    return false;
  if (e.kind == ir::ExprKind::op && e.code == ir::Code::rem &&
      builder_[e.operands[0]].kind == ir::ExprKind::axis)
    return builder_[e.operands[0]].id == axes_.flat();
  bool all = true;
  ir::for_each_operand(e, [&](ir::ExprId operand) { all = all && is_of_innermost(operand); });
  return all;
}

Lane Emitter::load(Id id, const Coords& at, ir::ExprId mask) {
  // What such a mask leaves out lies beside what is wanted: it may as well be read.
  if (mask != ir::kNone && axes_.flat() >= 0 && is_of_innermost(mask) &&
      stays_within(r_.axes, at, node(id).node->shape))
    return value(id, at, ir::kNone);
  const Location location = locate(r_, id);
  const Dtype part = real_of(location.dtype);
  if (mask != ir::kNone && node(id).node->shape.is_empty()) {  // nothing lies there
    const ir::ExprId zero = builder_.constant(compute_dtype(part), 0);
    return {zero, is_complex(location.dtype) ? zero : ir::kNone};
  }
  const Dim offset = location.layout.offset + constant_offset(at, location.layout.strides);
  const auto [param, apart] =
      place_of(location.root, bytes_in(offset, location.dtype), part, ir::Access::in);
  const int64_t unit = is_complex(location.dtype) ? 2 : 1;
  ir::Index re = index_of(location.root, at, location.layout.strides, unit, apart);
  axes_.mark_load();
  if (unit == 1) return {load_part(param, std::move(re), part, mask), ir::kNone};
  ir::Index im = re;
  im.push_back({builder_.integer(Dtype::int64, 1), ir::kUnit});
  return {load_part(param, std::move(re), part, mask), load_part(param, std::move(im), part, mask)};
}

// Wanted at a computed place, neither a constant nor what is made there is found as a member, and lies nowhere.
bool Emitter::lies_in_memory(Id id, const Member* member) const {
  const PlanNode& n = node(id);
  const bool pulled = !n.leaf && !n.border && n.lowering<MoveLowering>() != nullptr &&
                      !r_.loads.contains({id, number_});
  const bool made = !n.leaf && (n.inputs.empty() || r_.picked.contains(id)) && r_.stored_by[id] < 0;
  return member == nullptr && !pulled && !made;
}

Lane Emitter::value(Id id, const Coords& given, ir::ExprId mask) {
  const Coords at = r_.axes.normalize(given);
  std::pmr::vector<Known>& known = known_[id];
  for (const Known& k : known) {
    if (k.mask == mask && equal(k.at, at)) return k.lane;
  }
  const Member* member = nullptr;
  for (const Member* m : std::ranges::equal_range(by_node_, id, {}, &Member::node)) {
    if (equal(r_.axes.normalize(m->at), at)) member = m;
  }
  const Lane lane = lies_in_memory(id, member) ? load(id, at, mask) : compute(id, at, member, mask);
  known.push_back({at, mask, lane});
  return lane;
}

Lane Emitter::compute(Id id, const Coords& at, const Member* member, ir::ExprId mask) {
  const PlanNode& n = node(id);
  if (n.lowering<FoldLowering>() != nullptr) return compute_fold(id, *member);
  if (n.lowering<ScanLowering>() != nullptr) return compute_scan(id, *member, mask);
  if (n.lowering<ContractLowering>() != nullptr) return compute_contract(id, *member);
  const PlanNodeView view(r_.graph, id);
  Context context(*this, id, mask);
  if (const auto* move = n.lowering<MoveLowering>()) {
    if (move->row_major && mask == ir::kNone) {
      if (auto in = reshape_coords(r_.axes, at, view->shape, *view->input_shapes[0]))
        return value(n.inputs[0], *in, mask);
    }
    return move->pull(context, view, at);
  }
  InlineVector<Lane, 4> arguments;
  for (Id input : n.inputs) arguments.push_back(value(input, at, mask));
  return n.lowering<MapLowering>()->expr(context, view, arguments);
}

// Appends to the last stage if that ranges over the same axes, else opens one.
void Emitter::append(const std::vector<ir::AxisId>& axes, ir::Stmt stmt) {
  auto& body = builder_.kernel().body;
  auto* last = body.empty() ? nullptr : std::get_if<ir::For>(&body.back());
  if (last == nullptr || last->axes != axes) {
    ir::For stage;
    stage.kind = ir::ForKind::stage;
    stage.axes = axes;
    body.emplace_back(std::move(stage));
    last = std::get_if<ir::For>(&body.back());
  }
  last->body.push_back(std::move(stmt));
}

// Expressions of fold states with State(i) or Other(i) replaced.
ir::ExprId Emitter::substitute(ir::ExprId expr,
                               const std::vector<std::pair<ir::ExprId, ir::ExprId>>& by) {
  ir::ExprMap memo;
  for (auto [from, to] : by) memo[from] = to;
  return ir::rebuild_expr(builder_, builder_.kernel(), expr, memo);
}

std::vector<ir::ExprId> Emitter::parts_of(ir::ValueId value, size_t count) {
  const ir::ExprId ref = builder_.ref(value);
  if (count == 1) return {ref};
  std::vector<ir::ExprId> parts;
  for (size_t i = 0; i < count; i++) parts.push_back(builder_.get(static_cast<int>(i), ref));
  return parts;
}

Lane Emitter::compute_fold(Id id, const Member& member) {
  const PlanNodeView view(r_.graph, id);
  const auto* fold = node(id).lowering<FoldLowering>();
  Context context(*this, id, ir::kNone);
  const Coords in = r_.axes.normalize(member.in[0]);
  const Lane element = value(node(id).inputs[0], in, ir::kNone);

  Coord position;  // in the folded range, row-major over the folded dims
  for (int d : fold->axes(view)) {
    for (auto& term : position.terms) term.coefficient *= (*view->input_shapes[0])[d];
    position.terms.append(in[d].terms);
  }
  const auto states = fold->states(context, view, element, coordinate(position));
  const std::vector<ir::AxisId> axes = axes_.stage(in);
  const std::vector<AxisId> bound = axes_.walked(axes_of({r_.axes.normalize(position)}));
  std::vector<std::pair<ir::Order, Dim>>& loops = out_.folds[id];
  loops.clear();
  for (size_t i = 0; i < bound.size(); i++)
    loops.emplace_back(order_of(bound, i), axes_.size(bound[i]));
  return fold->finish(context, view, fold_over(states, bound, axes));
}

Lane Emitter::compute_scan(Id id, const Member& member, ir::ExprId mask) {
  const PlanNodeView view(r_.graph, id);
  const auto* scan = node(id).lowering<ScanLowering>();
  Context context(*this, id, mask);
  const Coords at = r_.axes.normalize(member.at);
  std::vector<Lane> elements;
  for (Id input : node(id).inputs) elements.push_back(value(input, at, mask));
  std::vector<ir::FoldState> states = scan->states(context, view, elements);
  const std::vector<AxisId> scanned = axes_of({at[view->get<AxisParams>().axis]});
  axes_.mark_scanned(scanned);
  std::vector<ir::AxisId> along;
  for (AxisId axis : axes_.walked(scanned)) along.push_back(axes_.in_kernel(axis));
  if (along.empty()) return scan->finish(context, view, fold_over(std::move(states), {}, {}));
  std::vector<Dtype> parts;
  for (const ir::FoldState& state : states) parts.push_back(state.dtype);
  const size_t count = states.size();
  const ir::ValueId value = builder_.value(parts);
  append(axes_.stage(at),
         ir::Fold{value, along, ir::Emit::each, ir::Order::serial, std::move(states)});
  return scan->finish(context, view, parts_of(value, count));
}

ir::Order Emitter::order_of(const std::vector<AxisId>& bound, size_t i) const {
  const bool in_lanes =
      axes_.is_row(bound[i]) || axes_.is_innermost(bound[i]) || axes_.is_narrow_column(bound[i]);
  return i + 1 == bound.size() && in_lanes ? ir::Order::lanes : ir::Order::serial;
}

// Folds over the bound axes, innermost first: an outer one merges what the inner one gives.
std::vector<ir::ExprId> Emitter::fold_over(std::vector<ir::FoldState> states,
                                           const std::vector<AxisId>& bound,
                                           std::vector<ir::AxisId> axes) {
  std::vector<std::pair<ir::ExprId, ir::ExprId>> once;
  std::vector<ir::ExprId> parts;
  std::vector<Dtype> dtypes;
  for (size_t i = 0; i < states.size(); i++) {
    dtypes.push_back(states[i].dtype);
    once.emplace_back(builder_.state(static_cast<int>(i), states[i].dtype), states[i].init);
  }
  if (bound.empty()) {
    for (const ir::FoldState& state : states) parts.push_back(substitute(state.step, once));
    return parts;
  }
  for (size_t i = bound.size(); i-- > 0;) {
    const ir::ValueId value = builder_.value(dtypes);
    const ir::AxisId axis = axes_.in_kernel(bound[i]);
    append(axes, ir::Fold{value, {axis}, ir::Emit::last, order_of(bound, i), states});
    std::erase(axes, axis);
    parts = parts_of(value, states.size());
    std::vector<std::pair<ir::ExprId, ir::ExprId>> inner;
    for (size_t j = 0; j < states.size(); j++)
      inner.emplace_back(builder_.other(static_cast<int>(j), dtypes[j]), parts[j]);
    for (ir::FoldState& state : states) state.step = substitute(state.merge, inner);
  }
  return parts;
}

// Of one that is made of the operand's elements, cast to the accumulators' dtype.
ProductOperand Emitter::operand_of(ir::ExprId operand, ir::AxisId k) const {
  const ir::Expr& cast = builder_[operand];
  const bool is_cast = cast.kind == ir::ExprKind::op && cast.code == ir::Code::cast;
  const ir::Expr& given = is_cast ? builder_[cast.operands[0]] : cast;
  const auto is_k = [&](const ir::IndexTerm& term) {
    const ir::Expr& e = builder_[term.expr];
    return term.stride == ir::kUnit && e.kind == ir::ExprKind::axis && e.id == k;
  };
  const auto is_unit = [](const ir::IndexTerm& term) { return term.stride == ir::kUnit; };
  const auto has = [&](auto&& is_wanted) {
    return given.kind == ir::ExprKind::load && std::ranges::any_of(given.index, is_wanted);
  };
  return {given.dtype, has(is_k), has(is_unit)};
}

// What is moved from where indices point, equal ones following each other.
bool Emitter::is_chosen_in_order(Id id) const {
  while (!node(id).leaf && node(id).lowering<MoveLowering>() != nullptr &&
         !r_.loads.contains({id, number_})) {
    const auto* gather = std::get_if<GatherParams>(&node(id).node->params);
    if (gather != nullptr && gather->in_order) return true;
    if (node(id).inputs.empty()) return false;
    id = node(id).inputs[0];
  }
  return false;
}

Lane Emitter::compute_contract(Id id, const Member& member) {
  // Rounded to a half dtype, as if it were stored: products are made of the narrow operand.
  const auto operand = [&](size_t i) {
    Lane lane = value(node(id).inputs[i], member.in[i], ir::kNone);
    const Dtype dtype = node(node(id).inputs[i]).node->dtype;
    if (!is_half(dtype)) return lane;
    const ir::Expr& e = builder_[lane.re];
    const bool is_stored = e.kind == ir::ExprKind::op && e.code == ir::Code::cast &&
                           builder_.dtype(e.operands[0]) == dtype;
    if (!is_stored) lane.re = builder_.cast(builder_.cast(lane.re, dtype), builder_.dtype(lane.re));
    return lane;
  };
  const Lane a = operand(0), b = operand(1);
  const Dtype acc = compute_dtype(node(id).node->dtype);
  const std::vector<AxisId> summed = axes_of({r_.axes.normalize(member.in[0].back())});
  const AxisId k = summed.empty() ? -1 : summed[0];
  Coords all = member.at;
  all.append(member.in[0]);
  const std::vector<ir::AxisId> axes = axes_.stage(r_.axes.normalize(all));
  ProductScheme made;
  if (region_.kernel < 0 && k >= 0) {
    const Shape &c = node(id).node->shape, &terms = node(node(id).inputs[0]).node->shape;
    const ir::AxisId in_kernel = axes_.in_kernel(k);
    const Dim sizes[] = {count_before(c, 2), c[c.ndim() - 2], c[c.ndim() - 1],
                         terms[terms.ndim() - 1]};
    const ProductShape product{.dtype = node(id).node->dtype,
                               .a = operand_of(a.re, in_kernel),
                               .b = operand_of(b.re, in_kernel),
                               .in_runs = is_chosen_in_order(node(id).inputs[1])};
    made = ProductScheme::of(decide(sizes, [product](std::span<const int64_t> n) {
      ProductShape sized = product;
      std::tie(sized.batch, sized.m, sized.n, sized.k) = std::tie(n[0], n[1], n[2], n[3]);
      return scheme_of(sized, cpu_target().facts()).code();
    }));
  }
  auto product = [&](ir::ExprId x, ir::ExprId y) {
    if (made.exchanged) std::swap(x, y);
    if (k < 0) return builder_.mul(builder_.cast(x, acc), builder_.cast(y, acc));
    const ir::ValueId value = builder_.value({acc});
    append(axes, ir::Contract{value, {axes_.in_kernel(k)}, x, y, acc, made.scheme});
    out_.kept = products_++ == 0 || out_.kept == made.kept ? made.kept : std::nullopt;
    return builder_.ref(value);
  };
  if (a.im == ir::kNone) return {product(a.re, b.re), ir::kNone};
  const ir::ExprId rr = product(a.re, b.re), ii = product(a.im, b.im);
  const ir::ExprId ri = product(a.re, b.im), ir_ = product(a.im, b.re);
  return {builder_.sub(rr, ii), builder_.add(ri, ir_)};
}

// What is behind a value counts as everything.
bool Emitter::reaches(ir::ExprId id, ir::AxisId axis) const {
  std::set<ir::ExprId> seen;
  std::vector<ir::ExprId> rest = {id};
  while (!rest.empty()) {
    const ir::ExprId next = rest.back();
    rest.pop_back();
    if (!seen.insert(next).second) continue;
    const ir::Expr& e = builder_[next];
    if (e.kind == ir::ExprKind::ref || (e.kind == ir::ExprKind::axis && e.id == axis)) return true;
    ir::for_each_operand(e, [&](ir::ExprId operand) { rest.push_back(operand); });
  }
  return false;
}

// The axes of the points that may reach one element: those that do not alone make up one term.
std::vector<ir::AxisId> Emitter::colliding(const ir::Index& index,
                                           const std::vector<ir::AxisId>& axes) const {
  std::vector<ir::AxisId> found;
  for (const ir::AxisId axis : axes) {
    int alone = 0, all = 0;
    for (const ir::IndexTerm& term : index) {
      alone += builder_[term.expr].kind == ir::ExprKind::axis && builder_[term.expr].id == axis;
      all += reaches(term.expr, axis);
    }
    if (alone != 1 || all != 1) found.push_back(axis);
  }
  return found;
}

// An update goes in parts where those are small beside the points, so that all threads have work whatever
// the indices. This is the one rule for it, and by sizes alone, as parts decide the order of sums.
void Emitter::divide_update(ir::Update& update, const std::vector<ir::AxisId>& axes,
                            const Dim& elements) {
  constexpr int64_t kFewPoints = 1 << 16, kPointsForPart = 2;  // for each element of a part
  constexpr int64_t kFewInRun = 64;
  const Dtype dtype = builder_.dtype(update.value);
  const auto points = [&](const std::vector<ir::AxisId>& along) {
    Dim count = 1;
    for (const ir::AxisId axis : along) count *= out_.extents[static_cast<size_t>(axis)];
    return count;
  };
  const std::vector<ir::AxisId> over = colliding(update.index, axes);
  const bool fits = update.imag == ir::kNone || update.code == ir::Code::add;
  if (!fits || dtype == Dtype::boolean || over.empty() || points(axes) < kFewPoints ||
      quotient(points(axes), kPointsForPart * ir::kUpdateParts) < elements ||
      points(over) < kFewInRun * ir::kUpdateParts)
    return;
  update.over = over;
  update.elements = builder_.axis("elements");
  out_.extents.push_back(elements);
}

void Emitter::store_lane(Id id, const Lane& lane, const Coords& at, const Coords& target,
                         ir::Access access, std::optional<ir::Code> update) {
  const Dtype dtype = r_.stored_dtype(id), part = real_of(dtype);
  const Strides strides = own_layout(node(id)).strides;
  const std::vector<ir::AxisId> axes = axes_.stage(r_.axes.normalize(at));
  const int64_t unit = is_complex(dtype) ? 2 : 1;
  const auto [param, apart] =
      place_of(id, bytes_in(constant_offset(target, strides), dtype), part, access);
  if (update) {
    const ir::ExprId imag = unit == 1 ? ir::kNone : builder_.cast(lane.im, part);
    ir::Update made{{false, param}, index_of(id, target, strides, unit, apart),
                    *update,        builder_.cast(lane.re, part),
                    ir::kNone,      imag};
    const Dim elements = node(id).node->shape.count() - constant_offset(target, strides);
    divide_update(made, axes, elements * unit);
    append(axes, std::move(made));
    return;
  }
  auto put = [&](ir::ExprId value, ir::Index index) {
    append(axes, ir::Store{{false, param}, std::move(index), builder_.cast(value, part)});
  };
  const ir::Index re = index_of(id, target, strides, unit, apart);
  axes_.mark_store();
  put(lane.re, re);
  if (unit == 1) return;
  ir::Index im = re;
  im.push_back({builder_.integer(Dtype::int64, 1), ir::kUnit});
  put(lane.im, std::move(im));
}

void Emitter::emit_update(Id id) {
  const Member& member = region_.members[0];
  const Coords at = r_.axes.normalize(member.at);
  const PlanNodeView view(r_.graph, id);
  const auto* update = node(id).lowering<UpdateLowering>();
  Context context(*this, id, ir::kNone);
  const Lane lane = value(node(id).inputs.back(), at, ir::kNone);
  const Coords target = r_.axes.normalize(update->target(context, view, at));
  if (!node(id).fresh_target) out_.update_target = node(id).inputs[0];
  out_.updated = node(node(id).inputs.back()).node->shape.count();
  static constexpr ir::Code codes[] = {ir::Code::add, ir::Code::add, ir::Code::mul, ir::Code::max,
                                       ir::Code::min};
  const ScatterReduce reduce = update->reduce(view);
  std::optional<ir::Code> code;
  if (reduce != ScatterReduce::assign) code = codes[static_cast<int>(reduce)];
  else if (is_affine(target)) axes_.mark_slice();
  store_lane(id, lane, at, target, ir::Access::inout, code);
}

// Full stores before those over fewer axes, so that stages are few.
void Emitter::emit_stores() {
  std::vector<const Member*> stored;
  for (Id id : region_.stored) {
    for (const Member& m : region_.members) {
      if (m.node == id) {
        stored.push_back(&m);
        break;
      }
    }
  }
  std::stable_sort(stored.begin(), stored.end(), [&](const Member* a, const Member* b) {
    return axes_of(r_.axes.normalize(a->at)).size() > axes_of(r_.axes.normalize(b->at)).size();
  });
  std::vector<Lane> lanes;
  for (const Member* m : stored) lanes.push_back(value(m->node, m->at, ir::kNone));
  for (size_t i = 0; i < stored.size(); i++)
    store_lane(stored[i]->node, lanes[i], stored[i]->at, r_.axes.normalize(stored[i]->at),
               ir::Access::out, std::nullopt);
}

void Emitter::emit_results() {
  if (region_.update >= 0) emit_update(region_.update);
  else emit_stores();
}

EmittedKernel Emitter::emit() {
  emit_results();
  return finish();
}

std::optional<EmittedKernel> Emitter::emit_unrolled(const std::vector<AxisId>& axes, bool are_short,
                                                    size_t most) {
  knows_steps_ = are_short;
  Dim places = 1;
  for (const AxisId axis : axes) places *= r_.axes.size(axis);
  for (int64_t place = 0; places > place; ++place) {
    Dim rest = place;
    for (const AxisId axis : axes | std::views::reverse) {
      const Dim& size = r_.axes.size(axis);
      const Dim outer = quotient(rest, size);
      r_.axes.fix(axis, rest - outer * size);
      rest = outer;
    }
    emit_results();
    const ir::Kernel& kernel = builder_.kernel();
    if (kernel.exprs.size() > most || kernel.params.size() > kMostArguments) return {};
  }
  return finish();
}

EmittedKernel Emitter::finish() {
  std::string name;
  for (size_t i = region_.members.size(), n = 0; i-- > 0 && n < 4; n++)
    name += (name.empty() ? "" : "_") + std::string(node(region_.members[i].node).row().name.value);
  builder_.kernel().name = name;
  for (const Member& m : region_.members) {
    const NodeRef& n = node(m.node).node;
    const bool contract = std::get_if<ContractLowering>(&n->row->lowering.value) != nullptr;
    const Dim inner = contract ? n->inputs[0]->shape[n->shape.ndim() - 1] : Dim(1);
    const Dim elements = m.node == region_.update ? out_.updated : n->shape.count();
    out_.flops += elements * inner * (contract ? 2 : op_cost(r_.graph, m.node));
  }
  out_.ir = std::make_shared<const ir::Kernel>(builder_.take());
  return std::move(out_);
}

}  // namespace cermet::schedule
