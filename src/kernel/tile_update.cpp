// SPDX-License-Identifier: MIT
#include "kernel/tile_update.h"

#include <algorithm>

#include "kernel/scalar_ops.h"

namespace cermet::ir {

void UpdateWriter::write(const Group& group, const std::string& suffix) {
  group_ = &group;
  suffix_ = suffix;
  const Task& task = plan_.tasks[group.tasks[0]];
  stmt_ = task.line.stmt;
  const Update* update = std::get_if<Update>(stmt_);
  buffer_ = update != nullptr ? update->buffer : std::get<Store>(*stmt_).buffer;
  const bool parts = update != nullptr && !update->over.empty();
  AxisSet apart = apart_axes(source_, task);
  if (parts) apart &= ~set_of(update->over);
  lane_ = unit_axis(source_, *written_index(*stmt_));
  if (lane_ == kNone || (apart & axis_bit(lane_)) == 0) lane_ = group.axes.back();
  if ((apart & axis_bit(lane_)) == 0) lane_ = kNone;
  serial_ = group.axes;
  std::erase(serial_, lane_);
  tasks_.begin(group, lane_ == kNone ? 0 : axis_bit(lane_));
  is_far_ = kNone;
  values_.clear();
  if (parts) write_parts(*update);
  else write_spans();
}

AxisId UpdateWriter::open_serial(const std::vector<AxisId>& axes, ExprId begin, ExprId end) {
  const std::string name = axes.empty() ? "" : source_.kernel().axes[axes.back()].name;
  const AxisId variable = out_.open_loop(ForKind::serial, begin, end, name);
  out_.bind(axes, out_.to().axis_ref(variable));
  return variable;
}

void UpdateWriter::open_row() {
  Builder& to = out_.to();
  ExprId end = to.extent(lane_);
  if (most_in_row() > 0) end = to.min(end, out_.integer(most_in_row()));
  out_.bind(lane_, to.axis_ref(out_.open_loop(ForKind::lane, out_.integer(0), end, "lane")));
}

void UpdateWriter::close(size_t loops) {
  for (size_t i = 0; i < loops; ++i) out_.close();
}

// ---- Parts

void UpdateWriter::write_parts(const Update& update) {
  Builder& to = out_.to();
  const Dtype dtype = source_.kernel().params[update.buffer.id].dtype;
  const LocalId parts = to.local(dtype, {kUpdateParts, {{update.elements, 1}}}, LocalScope::kernel);
  const ExprId item = out_.open_items("parts" + suffix_, kUpdateParts);
  const ExprId elements = to.extent(update.elements);
  const ExprId base = out_.let(to.mul(item, elements));
  const AxisId e = out_.open_loop(ForKind::lane, out_.integer(0), elements, "element");
  out_.append(Store{{true, parts},
                    {{base, kUnit}, {to.axis_ref(e), kUnit}},
                    to.constant_bits(dtype, neutral_of(update.code, dtype))});
  out_.close();
  const ExprId points = out_.extent_of(update.over);
  const ExprId each = out_.let(out_.ceil_div(points, kUpdateParts));
  const ExprId begin = out_.let(to.mul(item, each));
  take_run(update, parts, base, {begin, out_.let(to.min(to.add(begin, each), points))});
  out_.close();
  merge_parts(update, parts);
}

// Points [begin, end) of the axes in parts; rows of the innermost one, as a division for each point
// would be dear.
void UpdateWriter::take_run(const Update& update, LocalId parts, ExprId base, Range run) {
  Builder& to = out_.to();
  const std::vector<AxisId> outer(update.over.begin(), update.over.end() - 1);
  size_t loops = 1;
  if (!outer.empty()) {
    const ExprId row = to.extent(update.over.back());
    const ExprId up = out_.let(to.add(run.end, to.sub(row, out_.integer(1))));
    const AxisId o =
        open_serial(outer, out_.let(to.div(run.begin, row)), out_.let(to.div(up, row)));
    const ExprId before = out_.let(to.mul(to.axis_ref(o), row));
    run = {out_.let(to.max(to.sub(run.begin, before), out_.integer(0))),
           out_.let(to.min(to.sub(run.end, before), row))};
    ++loops;
  }
  const std::vector<ExprId> ahead = worth_making(true);
  if (!ahead.empty() && lane_ == kNone && serial_ == update.over) {
    const ExprId blocks = out_.ceil_div(out_.let(to.sub(run.end, run.begin)), kUpdateBlock);
    const AxisId b = out_.open_loop(ForKind::serial, out_.integer(0), blocks, "block");
    const ExprId block = out_.integer(kUpdateBlock);
    const ExprId first = out_.let(to.add(run.begin, to.mul(to.axis_ref(b), block)));
    take_block({first, out_.let(to.min(to.add(first, block), run.end))}, ahead,
               [&] { add_to(parts, base, update); });
    return close(loops);
  }
  open_serial({update.over.back()}, run.begin, run.end);
  for (AxisId axis : serial_) {
    if (std::ranges::count(update.over, axis) > 0) continue;
    open_serial({axis}, out_.integer(0), to.extent(axis));
    ++loops;
  }
  if (lane_ != kNone) {
    open_row();
    ++loops;
  }
  add_to(parts, base, update);
  close(loops);
}

// The bound point's value to an element of a run's own, which begin at `base`.
void UpdateWriter::add_to(LocalId parts, ExprId base, const Update& update) {
  Index index = out_.index(update.index);
  index.insert(index.begin(), {base, kUnit});
  const ExprId value = out_.expr(update.value), imag = out_.expr(update.imag);
  out_.append(
      Update{{true, parts}, std::move(index), update.code, value, out_.expr(update.mask), imag});
}

void UpdateWriter::merge_parts(const Update& update, LocalId parts) {
  Builder& to = out_.to();
  const Dtype dtype = source_.kernel().params[update.buffer.id].dtype;
  const GridDim tiles{{update.elements}, kUpdateMerge};
  const ExprId item = out_.open_chunk("merge" + suffix_, {tiles})[0];
  const ExprId elements = to.extent(update.elements);
  const auto [begin, end] = out_.bounds(item, kUpdateMerge, elements);
  const ExprId e = to.axis_ref(out_.open_loop(ForKind::lane, begin, end, "element"));
  const ExprId merged = to.op(update.code, dtype, {to.state(0, dtype), to.other(0, dtype)});
  const FoldState state{dtype, to.constant_bits(dtype, neutral_of(update.code, dtype)), kNone,
                        merged};
  const ValueId value = to.value({dtype}, "sum");
  out_.append(Merge{value, {state}, {parts}, e, out_.integer(kUpdateParts), elements});
  out_.append(Update{update.buffer, {{e, kUnit}}, update.code, to.ref(value)});
  close(2);
}

// ---- Spans

void UpdateWriter::write_spans() {
  Builder& to = out_.to();
  make_values();
  std::vector<SizeTerm> grid;
  for (AxisId axis : serial_) grid.push_back({axis, axis == serial_.back() ? kUpdateBlock : 1});
  const std::optional<ExprId> apart = slices_apart();
  const bool are_few = lane_ == kNone || most_in_row() == kFewAlong[0];
  const auto [first, past] = out_.open_turns("update" + suffix_, kUpdateOwners, grid,
                                             are_few && !apart ? kUpdateSpans : 1);
  const ExprId none = out_.integer(0), one = out_.integer(1);
  const auto turn = [&](ExprId item) { return to.div(item, out_.integer(kUpdateOwners)); };
  const auto owner = [&](ExprId item) { return to.rem(item, out_.integer(kUpdateOwners)); };
  const ExprId last = out_.let(to.sub(past, one));
  const Range owners{out_.let(owner(first)), out_.let(to.add(owner(last), one))};
  Range turns{out_.let(turn(first)), out_.let(to.add(turn(last), one))};
  const ExprId all =
      out_.let(to.compare(Code::eq, to.sub(owners.end, owners.begin), out_.integer(kUpdateOwners)));
  ExprId whole = all;
  if (apart) {
    const ExprId shared = out_.let(out_.expr(*apart));
    const Range share = share_of(owners, turns);
    turns = {out_.let(to.select(shared, share.begin, turns.begin)),
             out_.let(to.select(shared, share.end, turns.end))};
    whole = out_.let(to.logical_or(all, shared));
  }
  const auto if_whole = [&](ExprId end, bool is) {
    return out_.let(is ? to.select(whole, end, none) : to.select(whole, none, end));
  };
  is_far_ = is_far();
  take_points({if_whole(turns.begin, true), if_whole(turns.end, true)});
  take_owned({if_whole(turns.begin, false), if_whole(turns.end, false)}, owners);
  out_.close();
}

// Values that are dear are made by all threads before the update, which has fewer of them at work.
void UpdateWriter::make_values() {
  constexpr int kDear = 16;  // operations
  if (serial_.size() != 1) return;
  std::vector<ExprId> dear;
  for (const ExprId id : worth_making(true)) {
    const bool is_place = std::ranges::any_of(
        *written_index(*stmt_), [&](const IndexTerm& term) { return term.expr == id; });
    if (!is_place &&
        (looks_up(source_, id) || source_.cost(id, axis_bit(serial_[0]), kDear) >= kDear))
      dear.push_back(id);
  }
  if (dear.empty()) return;
  Builder& to = out_.to();
  const ExprId item = out_.open_chunk("values" + suffix_, {{serial_, kUpdateMerge}})[0];
  const auto [begin, end] = out_.bounds(item, kUpdateMerge, to.extent(serial_[0]));
  const ExprId point = open_point(ForKind::lane, {begin, end});
  for (const ExprId id : dear) {
    values_.emplace_back(id, to.local(source_[id].dtype, size_over(serial_), LocalScope::kernel));
    out_.append(Store{{true, values_.back().second}, {{point, kUnit}}, out_.expr(id)});
  }
  close(2);
}

// Turns for each place along a serial axis, by its number: one for each block of points.
ExprId UpdateWriter::turns_within(size_t number) {
  if (number + 1 == serial_.size()) return out_.integer(1);
  ExprId turns = out_.ceil_div(out_.to().extent(serial_.back()), kUpdateBlock);
  for (size_t i = number + 1; i + 1 < serial_.size(); ++i)
    turns = out_.to().mul(turns, out_.to().extent(serial_[i]));
  return out_.let(turns);
}

// The turns that are whole slices of the outermost axis (of a single one, blocks of them): a part of the
// owners' slices for each part of all turns.
UpdateWriter::Range UpdateWriter::share_of(Range owners, Range turns) {
  constexpr int64_t kParts = 1024;
  Builder& to = out_.to();
  ExprId slices = to.extent(serial_[0]);
  if (serial_.size() == 1) slices = out_.let(out_.ceil_div(slices, kUpdateBlock));
  const ExprId within = turns_within(0), all = out_.let(to.mul(slices, within));
  const auto place = [&](ExprId owner) {
    return out_.let(to.div(to.mul(owner, slices), out_.integer(kUpdateOwners)));
  };
  const ExprId from = place(owners.begin), until = place(owners.end);
  const auto at = [&](ExprId turn) {
    const ExprId part = to.div(to.mul(turn, out_.integer(kParts)), all);
    const ExprId many = to.div(to.mul(to.sub(until, from), part), out_.integer(kParts));
    return to.mul(to.add(from, many), within);
  };
  return {at(turns.begin), at(turns.end)};
}

// Whether no two slices of the outermost axis reach one element, as known in a launch, as an expression of the
// source; nullopt: in none.
std::optional<ExprId> UpdateWriter::slices_apart() {
  Builder& b = source_.builder();
  const auto integer = [&](int64_t v) { return b.integer(Dtype::int64, v); };
  const AxisId axis = serial_[0];
  ExprId apart = b.compare(Code::le, integer(kUpdateSlices), b.extent(axis));
  ExprId from = kNone, span = integer(1);
  for (const IndexTerm& term : *written_index(*stmt_)) {
    const Expr e = source_.kernel()[term.expr];
    const ExprId stride = term.stride == kUnit ? integer(1) : b.stride_ref(term.stride);
    if (e.kind == ExprKind::axis && e.id == axis) {
      if (from != kNone) return std::nullopt;
      from = stride;
      continue;
    }
    const std::optional<ExprId> most = most_of(term.expr);
    if (!most) return std::nullopt;
    span = b.add(span, b.mul(*most, stride));
    apart = b.logical_and(apart, b.compare(Code::le, integer(0), stride));
  }
  if (from == kNone) return std::nullopt;
  return b.logical_and(apart, b.compare(Code::le, span, from));
}

// The largest value of an expression that is never negative: a place along an axis, or an index that
// counts only if it is in range.
std::optional<ExprId> UpdateWriter::most_of(ExprId id) const {
  const auto is_zero = [&](ExprId x) {
    const Expr& c = source_.kernel()[x];
    return c.kind == ExprKind::constant && c.bits == 0;
  };
  const Expr e = source_.kernel()[id];
  if (e.kind == ExprKind::axis) {
    Builder& b = source_.builder();
    return b.sub(b.extent(e.id), b.integer(Dtype::int64, 1));
  }
  if (e.kind == ExprKind::op && e.code == Code::cast && e.dtype == Dtype::int64 &&
      is_integer(source_.kernel()[e.operands[0]].dtype)) {
    const std::optional<ExprId> most = most_of(e.operands[0]);
    return most ? std::optional(source_.builder().cast(*most, e.dtype)) : most;
  }
  if (e.kind != ExprKind::op || e.code != Code::select || !is_zero(e.operands[2])) return {};
  const Expr& both = source_.kernel()[e.operands[0]];
  if (both.kind != ExprKind::op || both.code != Code::bit_and) return {};
  const auto is_le = [&](ExprId test, int side) {
    const Expr& c = source_.kernel()[test];
    return c.kind == ExprKind::op && c.code == Code::le && c.operands[side] == e.operands[1];
  };
  for (int k = 0; k < 2; ++k) {
    const ExprId low = both.operands[k], high = both.operands[1 - k];
    if (!is_le(low, 1) || !is_le(high, 0)) continue;
    const ExprId most = source_.kernel()[high].operands[1];
    const bool known = is_zero(source_.kernel()[low].operands[0]) && source_.axes(most) == 0;
    if (known) return most;
  }
  return {};
}

// Loops over the places along all axes but the innermost; gives the turns' blocks of that.
UpdateWriter::Range UpdateWriter::open_places(Range turns) {
  Builder& to = out_.to();
  const ExprId none = out_.integer(0);
  for (size_t i = 0; i + 1 < serial_.size(); ++i) {
    const ExprId extent = to.extent(serial_[i]), within = turns_within(i);
    const ExprId up = to.add(turns.end, to.sub(within, out_.integer(1)));
    const ExprId begin = out_.let(to.div(turns.begin, within));
    const AxisId place =
        open_serial({serial_[i]}, begin, out_.let(to.min(to.div(up, within), extent)));
    const ExprId before = out_.let(to.mul(to.axis_ref(place), within));
    turns = {out_.let(to.max(to.sub(turns.begin, before), none)),
             out_.let(to.min(to.sub(turns.end, before), within))};
  }
  const ExprId blocks = out_.ceil_div(to.extent(serial_.back()), kUpdateBlock);
  return {turns.begin, out_.let(to.min(turns.end, blocks))};
}

// One point after the other, each a row of lanes if there are any.
void UpdateWriter::take_points(Range turns) {
  Builder& to = out_.to();
  const ExprId extent = to.extent(serial_.back()), block = out_.integer(kUpdateBlock);
  const std::vector<ExprId> ahead = worth_making(true);
  const Range blocks = open_places(turns);
  if (is_far_ == kNone && ahead.empty()) {
    const ExprId begin = out_.let(to.mul(blocks.begin, block));
    open_point(ForKind::serial, {begin, out_.let(to.min(to.mul(blocks.end, block), extent))});
    take();
    return close(serial_.size());
  }
  const AxisId b = out_.open_loop(ForKind::serial, blocks.begin, blocks.end, "block");
  const auto [first, past] = out_.bounds(to.axis_ref(b), kUpdateBlock, extent);
  take_block({first, past}, ahead, [this] { take(); });
  close(serial_.size());
}

void UpdateWriter::take_owned(Range turns, Range owners) {
  Builder& to = out_.to();
  const ExprId none = out_.integer(0);
  const Range blocks = open_places(turns);
  const AxisId b = out_.open_loop(ForKind::serial, blocks.begin, blocks.end, "block");
  const auto [begin, end] = out_.bounds(to.axis_ref(b), kUpdateBlock, to.extent(serial_.back()));
  const LocalId places = to.local(Dtype::int64, {kUpdateBlock + 1, {}}, LocalScope::thread);
  PointValues made = values_of(worth_making(false), begin);
  const ExprId count = find_owned({begin, end}, owners, places, made);
  take_each({none, count}, made, places, [this] { take(); });
  close(serial_.size());
}

// A loop over points by their places along the innermost axis, or by where these places are kept.
ExprId UpdateWriter::open_point(ForKind kind, Range points, std::optional<LocalId> places) {
  Builder& to = out_.to();
  const ExprId at =
      to.axis_ref(out_.open_loop(kind, points.begin, points.end, places ? "owned" : "point"));
  const ExprId point = places ? out_.let(to.load({true, *places}, {{at, kUnit}})) : at;
  out_.bind(serial_.back(), point);
  return point;
}

// All points of a block.
void UpdateWriter::take_block(Range points, const std::vector<ExprId>& ahead,
                              const std::function<void()>& take) {
  PointValues made = values_of(ahead, points.begin);
  if (!made.empty()) {
    made.make(open_point(ForKind::lane, points));
    out_.close();
  }
  take_each(points, made, {}, take);
}

// Points one by one, for which some expressions are made.
void UpdateWriter::take_each(Range points, PointValues& made, std::optional<LocalId> places,
                             const std::function<void()>& take) {
  Builder& to = out_.to();
  const auto open = [&](ForKind kind, ExprId end) {
    const ExprId point = open_point(kind, {points.begin, end}, places);
    made.define(point);
    for (const auto& [id, local] : values_)
      out_.define(id, out_.let(to.load({true, local}, {{point, kUnit}})));
  };
  if (is_far_ != kNone) {
    open(ForKind::serial, out_.let(to.select(is_far_, points.end, points.begin)));
    fetch();
    out_.close();
  }
  open(ForKind::serial, points.end);
  take();
  out_.close();
}

// What single elements are updated with, and where these or short rows are, if it is more than a load: made in
// lanes for all points of a block, it leaves loads to the loop that takes them one by one.
std::vector<ExprId> UpdateWriter::worth_making(bool values) {
  if (!is_cpu_ || (lane_ != kNone && most_in_row() == 0)) return {};
  PointParts parts(source_, serial_.back(), lane_);
  parts.add(*written_index(*stmt_));
  const Update* update = std::get_if<Update>(stmt_);
  const Store* store = std::get_if<Store>(stmt_);
  if (values && update != nullptr)
    for (const ExprId id : {update->value, update->imag, update->mask}) parts.add(id);
  if (values && store != nullptr)
    for (const ExprId id : {store->value, store->mask}) parts.add(id);
  std::vector<ExprId> worth;
  for (const ExprId id : parts.found()) {
    const bool is_made = std::ranges::any_of(values_, [&](auto& one) { return one.first == id; });
    if (!is_made && !reads_itself(id)) worth.push_back(id);
  }
  return worth;
}

// The element, or the first of the row, that the bound point reaches.
void UpdateWriter::fetch() {
  if (lane_ != kNone) out_.bind(lane_, out_.integer(0));
  out_.append(Fetch{buffer_, out_.index(*written_index(*stmt_))});
}

// Leaves the places along the axis of the block's points that belong to the owners, and gives their number.
ExprId UpdateWriter::find_owned(Range block, Range owners, LocalId places, PointValues& made) {
  Builder& to = out_.to();
  const ExprId none = out_.integer(0), full = out_.integer(kUpdateBlock);
  const LocalId marks = to.local(Dtype::int64, {kUpdateBlock, {}}, LocalScope::thread);
  const ExprId back = out_.let(to.sub(none, block.begin));
  const ExprId next = out_.let(to.add(block.begin, out_.integer(1)));
  const ExprId point = open_point(ForKind::lane, block);
  made.make(point);
  const ExprId one = out_.let(owner());
  const ExprId mine = to.logical_and(to.compare(Code::le, owners.begin, one),
                                     to.compare(Code::lt, one, owners.end));
  out_.append(Store{{true, marks}, {{back, kUnit}, {point, kUnit}}, to.cast(mine, Dtype::int64)});
  out_.close();

  // The place behind each point is kept under the number of points found so far, so it stays if it is found.
  // The minimum says that they are one block of a fold.
  out_.append(Store{{true, places}, {}, block.begin});
  const ExprId points = to.min(full, to.add(block.end, back));
  const AxisId k = out_.open_loop(ForKind::serial, none, points, "k");
  const ExprId mark = out_.let(to.load({true, marks}, {{to.axis_ref(k), kUnit}}));
  const ExprId so_far = to.state(0, Dtype::int64);
  const std::vector<FoldState> sum = {
      {Dtype::int64, none, to.add(so_far, mark), to.add(so_far, to.other(0, Dtype::int64))}};
  const ValueId number = to.value({Dtype::int64}), count = to.value({Dtype::int64}, "count");
  out_.append(Fold{number, {k}, Emit::each, Order::serial, sum});
  out_.append(Fold{count, {k}, Emit::last, Order::serial, sum});
  out_.append(Store{{true, places}, {{to.ref(number), kUnit}}, to.add(next, to.axis_ref(k))});
  out_.close();
  return to.ref(count);
}

// Whether it changes with the updates.
bool UpdateWriter::reads_itself(ExprId id) {
  bool found = false;
  source_.walk({id}, [&](ExprId e) {
    found |= source_[e].kind == ExprKind::load && source_[e].buffer == buffer_;
    return !found;
  });
  return found;
}

// Whether what loaded indices may reach lies beyond the caches; kNone: there are none.
ExprId UpdateWriter::is_far() {
  if (!is_cpu_) return kNone;
  Builder& b = source_.builder();
  ExprId reach = kNone;
  for (const IndexTerm& term : *written_index(*stmt_)) {
    if (!loads(source_, term.expr)) continue;
    const std::optional<ExprId> most = most_of(term.expr);
    if (!most) return out_.let(out_.to().constant(Dtype::boolean, 1));
    const ExprId by = term.stride == kUnit ? *most : b.mul(*most, b.stride_ref(term.stride));
    reach = reach == kNone ? by : b.add(reach, by);
  }
  if (reach == kNone) return kNone;
  const auto bytes = static_cast<int64_t>(size_of(source_.kernel().params[buffer_.id].dtype));
  return out_.let(
      out_.expr(b.compare(Code::lt, b.integer(Dtype::int64, cached_bytes_ / bytes), reach)));
}

// The statement at the point that is bound, but for its lanes.
void UpdateWriter::take() {
  if (lane_ != kNone) open_row();
  tasks_.run(tasks_.tasks_of(*group_), kNone);
  if (lane_ != kNone) out_.close();
}

// Of the element, or row of elements, that the bound point reaches: the same for all points that reach it.
// Neighbouring elements have one owner, so that threads share no line of memory.
ExprId UpdateWriter::owner() {
  constexpr int64_t kNeighbours = 6, kSpread = 0x9E3779B1, kSpreadShift = 16;  // 2^6 elements
  Builder& b = source_.builder();
  std::vector<IndexTerm> terms;
  for (const IndexTerm& term : *written_index(*stmt_))
    if ((source_.axes(term.expr) & set_of(serial_)) != 0) terms.push_back(term);
  const auto integer = [&](int64_t v) { return b.integer(Dtype::int64, v); };
  ExprId place = kNone;
  if (terms.size() == 1) {
    place = terms[0].expr;
    if (lane_ == kNone && terms[0].stride == kUnit)
      place = b.op(Code::shr, Dtype::int64, {place, integer(kNeighbours)});
  } else {
    for (const IndexTerm& term : terms) {
      const ExprId by =
          term.stride == kUnit ? term.expr : b.mul(term.expr, b.stride_ref(term.stride));
      place = place == kNone ? by : b.add(place, by);
    }
    if (place == kNone) place = integer(0);
    place = b.op(Code::shr, Dtype::int64, {place, integer(kNeighbours)});
    place = b.op(Code::shr, Dtype::int64, {b.mul(place, integer(kSpread)), integer(kSpreadShift)});
  }
  return out_.expr(b.op(Code::bit_and, Dtype::int64, {place, integer(kUpdateOwners - 1)}));
}

}  // namespace cermet::ir
