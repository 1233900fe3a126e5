// SPDX-License-Identifier: MIT
#include "kernel/tile_short.h"

#include <algorithm>

#include "kernel/tile_forms.h"

namespace cermet::ir {

bool ShortRowWriter::add_task(const Task& task) {
  const Stmt& stmt = *task.line.stmt;
  if (const Fold* fold = std::get_if<Fold>(&stmt)) {
    const bool is_short = steps_in_order(*fold, source_.kernel().axes[elements_].most);
    if (fold->axes != std::vector<AxisId>{elements_} || !is_short) return false;
    if (fold->emit == Emit::each && tasks_.is_exported(fold->value)) return false;
  } else if (const Store* store = std::get_if<Store>(&stmt)) {
    if (store->mask != kNone) return false;
    Stored stored{&task, std::nullopt};
    if (is_along(task)) {
      stored.rows = rows_of(store->buffer, store->index);
      if (!stored.rows) return false;
    }
    stored_.push_back(std::move(stored));
  } else if (task.kind != TaskKind::check) {
    return false;
  }
  bool fits = true;
  source_.walk(roots_of(task), [&](ExprId id) {
    fits = fits && (source_[id].kind != ExprKind::load || add_load(id));
    return fits;
  });
  return fits;
}

// Lanes of several states take long to merge, and a scan's elements to be stepped.
bool ShortRowWriter::is_dear(const Task& task) const {
  const Fold* fold = std::get_if<Fold>(task.line.stmt);
  return fold != nullptr && (fold->states.size() > 1 || fold->emit == Emit::each);
}

bool ShortRowWriter::fits(const Group& group) {
  const bool is_map = group.kind == GroupKind::map;
  if (group.axes.size() < 2) return false;
  if (!is_map && (group.kind != GroupKind::row || !group.columns.empty() ||
                  group.rows != std::vector<AxisId>{group.axes.back()}))
    return false;
  elements_ = group.axes.back();
  rows_ = group.axes[group.axes.size() - 2];
  const int64_t most = source_.kernel().axes[elements_].most;
  if (most == 0 || most > kShortColumns) return false;
  const auto is_inout = [](const Param& p) { return p.access == Access::inout; };
  if (std::ranges::any_of(source_.kernel().params, is_inout)) return false;
  const Tasks tasks = tasks_.tasks_of(group);
  if (!is_map && most > kFewElements &&
      std::ranges::none_of(tasks, [&](const Task* t) { return is_dear(*t); }))
    return false;
  return std::ranges::all_of(tasks, [&](const Task* t) { return add_task(*t); });
}

void ShortRowWriter::write(const Group& group, const std::string& entry) {
  tasks_.begin(group, axis_bit(rows_));
  const std::vector<AxisId> axes =
      short_ones_last(source_.kernel(), {group.axes.begin(), group.axes.end() - 1});
  std::vector<GridDim> dims;
  for (AxisId axis : axes) dims.push_back({{axis}, axis == rows_ ? kShortRows : 1});
  const std::vector<ExprId> at = out_.open_chunk(entry, dims);
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rows_) out_.bind(axes[i], at[i]);
    else begin_block(at[i], kShortRows);
  Builder& to = out_.to();
  const int64_t most = source_.kernel().axes[elements_].most;
  const ExprId columns = out_.let(to.min(to.extent(elements_), out_.integer(most)));
  load_columns(columns);
  for (Stored& stored : stored_) {
    const Dtype dtype =
        source_.kernel().params[std::get<Store>(*stored.task->line.stmt).buffer.id].dtype;
    if (stored.rows) stored.rows->local = this->columns(dtype);
    else stored.local = to.local(dtype, {kShortRows, {}}, LocalScope::thread);
  }
  write_passes(group, columns);
  for (const Stored& stored : stored_)
    if (stored.rows) move(*stored.rows, true, columns);
  write_singles();
  out_.close();
}

void ShortRowWriter::write_passes(const Group& group, ExprId columns) {
  Builder& to = out_.to();
  kept_ = kept_rows_but_cheap(source_, plan_, group, kRecomputeCost);
  for (const KeptRow& row : kept_)
    kept_locals_.push_back(
        to.local(source_[row.expr].dtype, {kShortRows, {{elements_, 1}}}, LocalScope::thread));
  const std::string name = source_.kernel().axes[rows_].name;
  lane_ = out_.open_loop(ForKind::lane, out_.integer(0), out_.integer(kShortRows), name);
  const ExprId last = to.sub(count_, out_.integer(1));
  out_.bind(rows_, to.add(first_, to.min(to.axis_ref(lane_), last)));
  const Tasks tasks = tasks_.tasks_of(group);
  int passes = 0;
  for (const Task* task : tasks) passes = std::max(passes, task->pass);
  for (int pass = 0; pass <= passes; ++pass) {
    Tasks along;
    for (const Task* task : tasks) {
      if (task->pass != pass) continue;
      if (is_along(*task)) {
        along.push_back(task);
      } else if (task->kind == TaskKind::store) {
        const auto stored = std::ranges::find(stored_, task, &Stored::task);
        const ExprId value = out_.expr(std::get<Store>(*task->line.stmt).value);
        out_.append(Store{{true, stored->local}, {{to.axis_ref(lane_), kUnit}}, value});
      } else {
        tasks_.run({task}, kNone);
      }
    }
    if (!along.empty()) write_pass(along, pass, columns);
  }
  out_.close();
}

void ShortRowWriter::write_pass(const Tasks& tasks, int pass, ExprId columns) {
  Builder& to = out_.to();
  const std::string name = source_.kernel().axes[elements_].name;
  const AxisId element = out_.open_loop(ForKind::serial, out_.integer(0), columns, name);
  out_.bind(elements_, to.axis_ref(element));
  const ExprId column = out_.let(to.mul(to.axis_ref(element), out_.integer(kShortRows)));
  for (const Loaded& loaded : loaded_)
    out_.define(loaded.load, to.load({true, loaded.rows.local}, place_in(column)));
  for (size_t i = 0; i < kept_.size(); ++i)
    if (kept_[i].made_in < pass && pass <= kept_[i].last_use)
      out_.define(kept_[i].expr, to.load({true, kept_locals_[i]}, place_in(column)));
  std::vector<OpenFold> folds;
  for (const Task* task : tasks) {
    const auto stored = std::ranges::find(stored_, task, &Stored::task);
    if (stored == stored_.end()) {
      for (const OpenFold& fold : tasks_.run({task}, element)) folds.push_back(fold);
    } else {
      const ExprId value = out_.expr(std::get<Store>(*task->line.stmt).value);
      out_.append(Store{{true, stored->rows->local}, place_in(column), value});
    }
  }
  for (size_t i = 0; i < kept_.size(); ++i)
    if (kept_[i].made_in == pass)
      out_.append(Store{{true, kept_locals_[i]}, place_in(column), out_.expr(kept_[i].expr)});
  out_.close();
  tasks_.finish(folds, false);
  keep_exported(folds);
}

void ShortRowWriter::keep_exported(const std::vector<OpenFold>& folds) {
  Builder& to = out_.to();
  for (const OpenFold& fold : folds) {
    const ValueId value = std::get<Fold>(*fold.task->line.stmt).value;
    if (!tasks_.is_exported(value)) continue;
    for (const ExprId part : tasks_.parts_of(value)) {
      const LocalId local = to.local(source_[part].dtype, {kShortRows, {}}, LocalScope::thread);
      exported_.push_back({value, part, local});
      out_.append(Store{{true, local}, {{to.axis_ref(lane_), kUnit}}, out_.expr(part)});
    }
  }
}

// Elements, one for each row, from the Locals to where they belong.
void ShortRowWriter::write_singles() {
  Builder& to = out_.to();
  Tasks tasks;
  for (const Stored& stored : stored_)
    if (!stored.rows) tasks.push_back(stored.task);
  if (tasks.empty() && exported_.empty()) return;
  const std::string name = source_.kernel().axes[rows_].name;
  const AxisId lane = out_.open_loop(ForKind::lane, out_.integer(0), count_, name);
  out_.bind(rows_, to.add(first_, to.axis_ref(lane)));
  for (const Stored& stored : stored_)
    if (!stored.rows)
      out_.define(std::get<Store>(*stored.task->line.stmt).value,
                  to.load({true, stored.local}, {{to.axis_ref(lane), kUnit}}));
  tasks_.run(tasks, lane);
  for (const Exported& e : exported_)
    out_.define(e.part, to.load({true, e.local}, {{to.axis_ref(lane), kUnit}}));
  for (size_t i = 0; i < exported_.size(); ++i)
    if (i == 0 || exported_[i].value != exported_[i - 1].value) tasks_.publish(exported_[i].value);
  out_.close();
}

}  // namespace cermet::ir
