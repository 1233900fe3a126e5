// SPDX-License-Identifier: MIT
#include "kernel/tile_tasks.h"

#include <algorithm>

#include "base/error.h"

namespace cermet::ir {

TaskWriter::TaskWriter(Source& source, const Plan& plan, Emitter& out)
    : source_(source), plan_(plan), out_(out), partials_(source.kernel().values.size()) {
  for (const Task& task : plan.tasks)
    for (ValueId value : task.needs)
      if (task.kind != TaskKind::merge && plan.tasks[plan.maker[value]].group != task.group)
        exported_.insert(value);
}

void TaskWriter::begin(const Group& group, AxisSet lanes) {
  group_ = &group;
  lanes_ = lanes;
}

void TaskWriter::end() {
  for (const auto& [part, load] : published_) source_.alias(part, load);
  published_.clear();
}

Tasks TaskWriter::tasks_of(const Group& group) const {
  Tasks tasks;
  for (int number : group.tasks) tasks.push_back(&plan_.tasks[number]);
  return tasks;
}

std::vector<OpenFold> TaskWriter::run(const Tasks& tasks, AxisId variable) {
  std::vector<OpenFold> open;
  for (const Task* task : tasks) {
    read_before_write(tasks, *task);
    const Stmt& stmt = *task->line.stmt;
    switch (task->kind) {
      case TaskKind::store: store(*task, std::get<Store>(stmt)); break;
      case TaskKind::update: update(std::get<Update>(stmt)); break;
      case TaskKind::check: check(*task, std::get<Check>(stmt)); break;
      case TaskKind::keep: keep(std::get<Let>(stmt)); break;
      case TaskKind::merge: merge(std::get<Fold>(stmt)); break;
      case TaskKind::fold:
        if (const std::optional<OpenFold> one = fold(*task, variable)) open.push_back(*one);
    }
  }
  return open;
}

// Lets that load what the task is about to overwrite are made now.
void TaskWriter::read_before_write(const Tasks& tasks, const Task& task) {
  std::optional<BufferRef> target;
  if (const Store* s = std::get_if<Store>(task.line.stmt)) target = s->buffer;
  if (const Update* s = std::get_if<Update>(task.line.stmt)) target = s->buffer;
  if (!target) return;
  for (const Task* other : tasks)
    for (const Read& read : other->reads)
      if (read.buffer == *target && read.let != kNone && read.order < task.line.order &&
          !source_.is_anchored(read.let))
        out_.name(source_.builder().ref(read.let));
}

// ---- Statements ----

// True where every axis of the stage that the statement does not depend on has points; kNone: always.
ExprId TaskWriter::guard_of(const Task& task) {
  ExprId guard = kNone;
  Builder& b = source_.builder();
  for (AxisId axis : task.line.stage) {
    if ((task.range & axis_bit(axis)) != 0) continue;
    const ExprId some = b.compare(Code::lt, b.integer(Dtype::int64, 0), b.extent(axis));
    guard = guard == kNone ? some : b.logical_and(guard, some);
  }
  return guard;
}

ExprId TaskWriter::masked(const Task& task, ExprId mask) {
  const ExprId guard = guard_of(task);
  if (guard == kNone || mask == kNone) return guard == kNone ? mask : guard;
  return source_.builder().logical_and(guard, mask);
}

void TaskWriter::store(const Task& task, const Store& s) {
  const ExprId mask = masked(task, s.mask);
  Index index = out_.index(s.index);
  const ExprId value = out_.expr(s.value);
  out_.append(Store{s.buffer, std::move(index), value, out_.expr(mask)});
}

void TaskWriter::update(const Update& s) {
  Index index = out_.index(s.index);
  const ExprId value = out_.expr(s.value), imag = out_.expr(s.imag);
  out_.append(Update{s.buffer, std::move(index), s.code, value, out_.expr(s.mask), imag});
}

void TaskWriter::check(const Task& task, const Check& s) {
  ExprId ok = s.ok;
  Builder& b = source_.builder();
  if (const ExprId guard = guard_of(task); guard != kNone)
    ok = b.logical_or(ok, b.logical_not(guard));
  ok = out_.expr(ok);
  out_.append(Check{ok, s.site, out_.expr(s.index)});
}

void TaskWriter::keep(const Let& s) {
  const ExprId made = out_.let(out_.expr(s.expr), source_.kernel().values[s.value].name);
  out_.define(source_.builder().ref(s.value), made);
  publish(s.value);
}

void TaskWriter::merge(const Fold& fold) {
  Builder& b = source_.builder();
  const auto integer = [&](int64_t v) { return b.integer(Dtype::int64, v); };
  const Partial& partial = *partials_[fold.value];
  ExprId at = kNone;
  for (const IndexTerm& term : source_.flat_index(partial.axes))
    at = at == kNone ? term.expr : b.add(at, term.expr);
  const int64_t tile = partial.blocks.tile;
  const ExprId total = source_.product_of_extents(partial.blocks.axes);
  const ExprId count = named(b.div(b.add(total, integer(tile - 1)), integer(tile)));
  const ExprId stride = named(source_.product_of_extents(partial.axes));
  at = out_.expr(at == kNone ? integer(0) : at);
  std::vector<FoldState> states = out_.fold_states(fold.states, false);
  const ValueId made = new_value(fold.value);
  out_.append(Merge{made, std::move(states), partial.locals, at, count, stride});
  out_.define(b.ref(fold.value), out_.to().ref(made));
  publish(fold.value);
}

std::optional<OpenFold> TaskWriter::fold(const Task& task, AxisId variable) {
  const Fold& s = std::get<Fold>(*task.line.stmt);
  if (in_memory(task)) {
    step_in_memory(s);
    return std::nullopt;
  }
  std::vector<FoldState> states = out_.fold_states(s.states, true);
  const ValueId made = new_value(s.value);
  out_.append(Fold{made, {variable}, s.emit, s.order, std::move(states)});
  if (s.emit == Emit::last) return OpenFold{&task, made};
  out_.define(source_.builder().ref(s.value), out_.to().ref(made));
  publish(s.value);
  return std::nullopt;
}

void TaskWriter::finish(const std::vector<OpenFold>& folds, bool publishes) {
  for (const OpenFold& open : folds) {
    const ValueId value = std::get<Fold>(*open.task->line.stmt).value;
    const ExprId ref = out_.to().ref(open.made);
    if (!plan_.is_split(*open.task)) {
      out_.define(source_.builder().ref(value), ref);
      if (publishes) publish(value);
      continue;
    }
    const Partial& partial = *partials_[value];
    const Index place = out_.index(partial.place);
    for (size_t i = 0; i < partial.locals.size(); ++i) {
      const ExprId state =
          partial.locals.size() == 1 ? ref : out_.to().get(static_cast<int>(i), ref);
      out_.append(Store{{true, partial.locals[i]}, place, state});
    }
  }
}

// ---- Split folds ----

void TaskWriter::open_partials(const Group& group, const GridDim& blocks, ExprId index) {
  const AxisId block = source_.pseudo_axis("block");
  out_.bind(block, index);
  Builder& b = source_.builder();
  for (const Task* task : tasks_of(group)) {
    if (!plan_.is_split(*task)) continue;
    const Fold& fold = std::get<Fold>(*task->line.stmt);
    Partial partial{.locals = {},
                    .axes = in_order(source_.axes_of_value(fold.value)),
                    .blocks = blocks,
                    .place = {}};
    ExprId row = b.axis_ref(block);
    if (!partial.axes.empty()) row = b.mul(row, source_.product_of_extents(partial.axes));
    partial.place = source_.flat_index(partial.axes);
    partial.place.insert(partial.place.begin(), {row, kUnit});
    Size size = size_over(partial.axes);
    for (AxisId axis : blocks.axes)
      size.terms.push_back({axis, axis == blocks.axes.back() ? blocks.tile : 1});
    for (const FoldState& state : fold.states)
      partial.locals.push_back(out_.to().local(state.dtype, size, LocalScope::kernel));
    partials_[fold.value] = std::move(partial);
  }
}

// A split fold whose value has an axis of the lane loop steps in memory, element by element.
bool TaskWriter::in_memory(const Task& task) const {
  if (!plan_.is_split(task) || plan_.groups[task.group].kind == GroupKind::full) return false;
  return (source_.axes_of_value(std::get<Fold>(*task.line.stmt).value) & lanes_) != 0;
}

bool TaskWriter::any_in_memory(const Group& group) const {
  return std::ranges::any_of(group.tasks,
                             [&](int number) { return in_memory(plan_.tasks[number]); });
}

void TaskWriter::step_in_memory(const Fold& fold) {
  const Partial& partial = *partials_[fold.value];
  std::vector<ExprId> states, stepped;
  if (stepped_ && stepped_->contains(fold.value)) {
    states = stepped_->at(fold.value);
  } else {
    const Index place = out_.index(partial.place);
    for (LocalId local : partial.locals)
      states.push_back(out_.let(out_.to().load({true, local}, place)));
  }
  out_.set_states(states);
  for (const FoldState& s : fold.states) stepped.push_back(out_.expr(s.step));
  out_.clear_states();
  if (!stepped_) return store_states(fold.value, stepped);
  for (ExprId& state : stepped) state = out_.let(state);
  (*stepped_)[fold.value] = std::move(stepped);
}

void TaskWriter::store_states(ValueId fold, const std::vector<ExprId>& states) {
  const Partial& partial = *partials_[fold];
  const Index place = out_.index(partial.place);
  for (size_t i = 0; i < states.size(); ++i)
    out_.append(Store{{true, partial.locals[i]}, place, states[i]});
}

void TaskWriter::end_steps() {
  for (const auto& [fold, states] : *stepped_) store_states(fold, states);
  stepped_.reset();
}

void TaskWriter::init_in_memory(const Group& group) {
  for (const Task* task : tasks_of(group)) {
    if (!in_memory(*task)) continue;
    const Fold& fold = std::get<Fold>(*task->line.stmt);
    const Partial& partial = *partials_[fold.value];
    const Index place = out_.index(partial.place);
    for (size_t i = 0; i < partial.locals.size(); ++i)
      out_.append(Store{{true, partial.locals[i]}, place, out_.expr(fold.states[i].init)});
  }
}

// ---- Values for later entry points ----

void TaskWriter::publish(ValueId value) {
  if (!is_exported(value)) return;
  const std::vector<AxisId> axes = in_order(source_.axes_of_value(value));
  const Index place = source_.flat_index(axes);
  const Index made = out_.index(place);
  for (ExprId part : parts_of(value)) {
    const Dtype dtype = source_[part].dtype;
    const auto [local, fresh] = places_.try_emplace(part, 0);
    if (fresh) local->second = out_.to().local(dtype, size_over(axes), LocalScope::kernel);
    out_.append(Store{{true, local->second}, made, out_.expr(part)});
    if (fresh) published_.emplace_back(part, load_of(local->second, dtype, place));
  }
}

std::vector<ExprId> TaskWriter::parts_of(ValueId value) {
  Builder& b = source_.builder();
  const size_t count = source_.kernel().values[value].dtypes.size();
  const ExprId ref = b.ref(value);
  if (count == 1) return {ref};
  std::vector<ExprId> parts;
  for (size_t i = 0; i < count; ++i) parts.push_back(b.get(static_cast<int>(i), ref));
  return parts;
}

ExprId TaskWriter::load_of(LocalId local, Dtype dtype, const Index& place) {
  Expr load{.kind = ExprKind::load, .dtype = dtype};
  load.operands = {kNone, kNone};
  load.buffer = {true, local};
  load.index = place;
  return source_.builder().intern(std::move(load));
}

std::vector<AxisId> TaskWriter::in_order(AxisSet set) const {
  std::vector<AxisId> axes;
  for (AxisId axis : group_->axes)
    if ((set & axis_bit(axis)) != 0) axes.push_back(axis);
  return axes;
}

ValueId TaskWriter::new_value(ValueId value) {
  const Value& v = source_.kernel().values[value];
  return out_.to().value(v.dtypes, v.name);
}

ExprId TaskWriter::named(ExprId id) {
  out_.name(id);
  return out_.expr(id);
}

}  // namespace cermet::ir
