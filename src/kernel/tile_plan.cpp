// SPDX-License-Identifier: MIT
#include "kernel/tile_plan.h"

#include <algorithm>
#include <climits>
#include <set>

#include "base/error.h"
#include "kernel/tile_forms.h"

namespace cermet::ir {

namespace {

bool same_place(const Index& a, const Index& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const IndexTerm& term) {
           return std::count(a.begin(), a.end(), term) == std::count(b.begin(), b.end(), term);
         });
}

class Planner {
 public:
  explicit Planner(Source& source) : source_(source) {}

  // Nullopt: a Let had to be anchored; plan again.
  std::optional<Plan> run() {
    plan_.maker.assign(source_.kernel().values.size(), -1);
    for (const Line& line : source_.lines()) {
      const std::optional<Task> task = task_of(line);
      if (!task) continue;
      if (!place(*task)) return std::nullopt;
      if (task->kind == TaskKind::fold && plan_.is_split(plan_.tasks.back())) {
        Task merge = *task;
        merge.kind = TaskKind::merge;
        merge.range = source_.axes_of_value(std::get<Fold>(*line.stmt).value);
        merge.needs = {std::get<Fold>(*line.stmt).value};
        merge.reads.clear();
        if (!place(merge)) return std::nullopt;
      }
    }
    for (Group& group : plan_.groups) assign_passes(group);
    return std::move(plan_);
  }

 private:
  std::optional<Task> task_of(const Line& line) {
    Task task{.kind = TaskKind::store, .line = line, .range = 0};
    for (ExprId root : roots_of(*line.stmt)) task.range |= source_.axes(root);
    task.range &= ~kStateAxis;
    if (const Let* let = std::get_if<Let>(line.stmt)) {
      if (!source_.is_anchored(let->value)) return std::nullopt;
      task.kind = TaskKind::keep;
    } else if (const Fold* fold = std::get_if<Fold>(line.stmt)) {
      task.kind = TaskKind::fold;
      task.range |= set_of(fold->axes);
    } else if (std::holds_alternative<Check>(*line.stmt)) {
      task.kind = TaskKind::check;
    } else if (std::holds_alternative<Update>(*line.stmt)) {
      task.kind = TaskKind::update;
      task.range = set_of(line.stage);
    } else {
      CERMET_INTERNAL_CHECK(std::holds_alternative<Store>(*line.stmt),
                            "kernel '{}': statement {} cannot be tiled here", source_.kernel().name,
                            line.order);
    }
    source_.walk(roots_of(*line.stmt), [&](ExprId id) {
      const Expr& e = source_[id];
      if (e.kind == ExprKind::ref && plan_.maker[e.id] >= 0) task.needs.push_back(e.id);
      return true;
    });
    task.reads = source_.reads(line);
    return task;
  }

  bool place(Task task) {
    int first = first_group(task);
    if (first < 0) return false;
    const int count = static_cast<int>(plan_.groups.size());
    while (first < count && !join(plan_.groups[first], task)) ++first;
    if (first == count) plan_.groups.push_back(new_group(task));
    task.group = first;
    const int number = static_cast<int>(plan_.tasks.size());
    plan_.groups[first].tasks.push_back(number);
    if (const ValueId* value = value_of(*task.line.stmt)) plan_.maker[*value] = number;
    if (task.kind == TaskKind::check) after_check_ = std::max(after_check_, first);
    plan_.tasks.push_back(std::move(task));
    return check_hazards(plan_.tasks.back());
  }

  // The first group that may hold the task, by the values that it needs and the memory it touches.
  int first_group(const Task& task) {
    int first = task.kind == TaskKind::check ? 0 : after_check_;
    for (ValueId value : task.needs) {
      const Task& maker = plan_.tasks[plan_.maker[value]];
      first = std::max(first, maker.group + (task.kind == TaskKind::merge ? 1 : 0));
    }
    for (const Task& earlier : plan_.tasks) {
      if (const std::optional<BufferRef> buffer = target(task))
        first = std::max(first, after_write(task, *buffer, earlier));
      const std::optional<BufferRef> written = target(earlier);
      for (const Read& read : task.reads)
        if (read.buffer == written && read.order > earlier.line.order)
          first = std::max(first, earlier.group + 1);
    }
    return first;
  }

  static std::optional<BufferRef> target(const Task& task) {
    if (const Store* store = std::get_if<Store>(task.line.stmt)) return store->buffer;
    if (const Update* update = std::get_if<Update>(task.line.stmt)) return update->buffer;
    return std::nullopt;
  }
  static const Index& place_of(const Task& task) {
    if (const Store* store = std::get_if<Store>(task.line.stmt)) return store->index;
    return std::get<Update>(*task.line.stmt).index;
  }

  // A task that writes `buffer`, after an earlier one that may touch it too.
  int after_write(const Task& task, BufferRef buffer, const Task& earlier) {
    if (target(earlier) == buffer) {
      const bool apart = task.range == earlier.range && shifted(place_of(task), place_of(earlier));
      return earlier.group + (apart ? 0 : 1);
    }
    int first = 0;
    for (const Read& read : earlier.reads)
      if (read.buffer == buffer)
        first = std::max(first, earlier.group + (in_place(read, task) ? 0 : 1));
    return first;
  }

  // The same place but for terms that no axis is in: parts of one element, such as of a pair.
  bool shifted(const Index& a, const Index& b) {
    const auto moving = [&](const Index& index) {
      Index terms;
      for (const IndexTerm& term : index)
        if (source_.axes(term.expr) != 0) terms.push_back(term);
      return terms;
    };
    return same_place(moving(a), moving(b));
  }

  // Each point of the task writes only what the same point reads.
  bool in_place(const Read& read, const Task& task) {
    return task.range == read.axes && same_place(read.index, place_of(task));
  }

  // A Let read before a write to its buffer must not be made again after it.
  bool check_hazards(const Task& task) {
    for (const Read& read : task.reads)
      for (const Task& earlier : plan_.tasks) {
        if (target(earlier) != read.buffer || earlier.line.order < read.order) continue;
        if (earlier.line.order >= task.line.order) continue;
        if (task.group < earlier.group) continue;
        if (task.group == earlier.group && in_place(read, earlier)) continue;
        source_.anchor(read.let);
        return false;
      }
    return true;
  }

  std::vector<AxisId> ordered(const Task& task, AxisSet range) const {
    std::vector<AxisId> axes;
    for (AxisId axis : task.line.stage)
      if ((range & axis_bit(axis)) != 0) axes.push_back(axis);
    return axes;
  }

  // Where it stores is read from memory, so several points may reach one element.
  bool is_scatter(const Task& task) {
    const Store& store = std::get<Store>(*task.line.stmt);
    if (source_.kernel().params[store.buffer.id].access != Access::inout) return false;
    std::vector<ExprId> places;
    for (const IndexTerm& term : store.index) places.push_back(term.expr);
    bool loaded = false;
    source_.walk(places, [&](ExprId id) {
      loaded |= source_[id].kind == ExprKind::load;
      return !loaded;
    });
    return loaded;
  }

  // How a task would be tiled alone.
  GroupKind kind_of(const Task& task) {
    if (task.kind == TaskKind::update || (task.kind == TaskKind::store && is_scatter(task))) {
      const Update* update = std::get_if<Update>(task.line.stmt);
      const bool parts = update != nullptr && !update->over.empty();
      const AxisSet apart = apart_axes(source_, task);
      return apart == task.range && !parts ? GroupKind::map : GroupKind::update;
    }
    if (task.kind != TaskKind::fold) return GroupKind::map;
    const Fold& fold = std::get<Fold>(*task.line.stmt);
    const bool whole = task.range == set_of(fold.axes);
    if (fold.emit == Emit::each) return GroupKind::row;
    const AxisId inner = ordered(task, task.range).back();
    const bool is_column = fold.axes.size() == 1 && fold.axes[0] != inner;
    if (fold.order == Order::lanes)
      return whole || (is_column && is_narrow(source_.kernel().axes[inner])) ? GroupKind::full
                                                                             : GroupKind::row;
    const bool row = !whole && (set_of(fold.axes) & axis_bit(inner)) != 0;
    return row ? GroupKind::row : GroupKind::column;
  }

  Group new_group(const Task& task) {
    Group group{.kind = kind_of(task), .axes = ordered(task, task.range)};
    if (task.kind != TaskKind::fold) return group;
    const Fold& fold = std::get<Fold>(*task.line.stmt);
    if (group.kind == GroupKind::column) {
      group.columns = fold.axes;
    } else {
      group.rows = fold.axes;
    }
    if (group.kind == GroupKind::full) group.block = lane_block(fold);
    return group;
  }

  static AxisSet outer(const Group& group) { return set_of(group.axes) & ~set_of(group.rows); }

  // Whether the task can run in the group; makes the group fit for it.
  bool join(Group& group, const Task& task) {
    const AxisSet range = set_of(group.axes);
    if (group.kind == GroupKind::update) return false;
    switch (kind_of(task)) {
      case GroupKind::update: return false;
      case GroupKind::map:
        if (task.kind == TaskKind::merge) {
          if (group.kind == GroupKind::row) return task.range == outer(group);
          return group.kind == GroupKind::map && task.range == range;
        }
        if (group.kind == GroupKind::full && group.rows != group.axes &&
            task.kind == TaskKind::store)
          return source_.kernel().axes[group.axes.back()].most <= kFewApart && task.range == range;
        return task.range == range || (group.kind == GroupKind::row && task.range == outer(group));
      case GroupKind::row: return join_row(group, task);
      case GroupKind::full: return join_full(group, task);
      case GroupKind::column: return join_column(group, task);
    }
    return false;
  }

  bool has_merge(const Group& group) const {
    return std::ranges::any_of(group.tasks,
                               [&](int t) { return plan_.tasks[t].kind == TaskKind::merge; });
  }

  bool join_row(Group& group, const Task& task) {
    const Fold& fold = std::get<Fold>(*task.line.stmt);
    const AxisSet range = set_of(group.axes);
    const AxisSet outside = task.range & ~set_of(fold.axes);
    if (outside == 0) return false;
    if (group.kind == GroupKind::row) return fold.axes == group.rows && task.range == range;
    if (group.kind == GroupKind::full) return false;
    if (range != task.range && range != outside) return false;
    if (range == task.range && has_merge(group)) return false;
    if (group.kind == GroupKind::column && (set_of(group.columns) & ~outside) != 0) return false;
    group.kind = GroupKind::row;
    group.axes = ordered(task, task.range);
    group.rows = fold.axes;
    return true;
  }

  bool join_full(Group& group, const Task& task) {
    const Fold& fold = std::get<Fold>(*task.line.stmt);
    if (task.range != set_of(group.axes) || has_merge(group)) return false;
    if (group.kind == GroupKind::full)
      return fold.axes == group.rows && lane_block(fold) == group.block;
    if (group.kind != GroupKind::map) return false;
    group.kind = GroupKind::full;
    group.rows = fold.axes;
    group.block = lane_block(fold);
    return true;
  }

  bool join_column(Group& group, const Task& task) {
    const Fold& fold = std::get<Fold>(*task.line.stmt);
    const AxisSet range = set_of(group.axes);
    if (group.kind == GroupKind::row) {
      if ((set_of(fold.axes) & ~outer(group)) != 0) return false;
      // Rows run in blocks for the sake of column sums only; else each row is an item.
      if (!group.columns.empty())
        return group.columns == fold.axes && (task.range == range || task.range == outer(group));
      if (task.range != range) return false;
    } else {
      if (task.range != range || has_merge(group)) return false;
      if (group.kind == GroupKind::column) return group.columns == fold.axes;
      if (group.kind != GroupKind::map) return false;
      group.kind = GroupKind::column;
    }
    group.columns = fold.axes;
    return true;
  }

  // Passes of a row group: even ones run in lanes, odd ones serially. A task over the outer axes runs
  // before the pass of its number.
  void assign_passes(Group& group) {
    if (group.kind != GroupKind::row) return;
    for (int number : group.tasks) first_pass(group, plan_.tasks[number]);
    for (int number : group.tasks) join_readers(group, plan_.tasks[number]);
    for (bool again = true; again;) {
      again = false;
      for (int number : group.tasks)
        for (int other : group.tasks) again |= delay(plan_.tasks[number], plan_.tasks[other]);
    }
  }

  void first_pass(const Group& group, Task& task) {
    int pass = 0;
    for (ValueId value : task.needs) {
      const Task& maker = plan_.tasks[plan_.maker[value]];
      if (maker.group != task.group) continue;
      const Fold* fold = std::get_if<Fold>(maker.line.stmt);
      const bool ends = fold != nullptr && fold->emit == Emit::last && maker.kind == TaskKind::fold;
      pass = std::max(pass, maker.pass + (ends ? 1 : 0));
    }
    if (task.range == set_of(group.axes) && task.kind == TaskKind::fold) {
      const Fold& fold = std::get<Fold>(*task.line.stmt);
      const bool serial = fold.order == Order::serial && fold.axes == group.rows;
      if ((pass % 2 == 1) != serial) ++pass;
    } else if (task.range == set_of(group.axes) && pass % 2 == 1 && !needs_scan(task, pass)) {
      ++pass;
    }
    task.pass = pass;
  }

  // A fold goes with a pass, of those before its value is needed, that loads what it does anyway: with the last one,
  // or where it would be dear to make its elements again with the first one.
  void join_readers(const Group& group, Task& task) {
    const Fold* fold = std::get_if<Fold>(task.line.stmt);
    if (fold == nullptr || task.kind != TaskKind::fold || fold->emit != Emit::last ||
        task.pass % 2 == 1 || task.range != set_of(group.axes))
      return;
    if (fold->axes != group.rows && !plan_.is_split(task)) return;
    const std::set<ParamId> own = loaded_by(task);
    const auto loads_with = [&](int pass) {
      std::set<ParamId> others;
      for (int number : group.tasks)
        if (const Task& other = plan_.tasks[number]; &other != &task && other.pass == pass)
          others.merge(loaded_by(other));
      return std::ranges::includes(others, own);
    };
    const auto is_dear = [&](ExprId root) {
      return source_.cost(root, set_of(group.rows), kRecomputeCost) > kRecomputeCost;
    };
    const bool goes_first = std::ranges::any_of(roots_of(task), is_dear);
    const int last = last_pass_before_use(group, fold->value);
    for (int pass = task.pass, found = -1; pass <= last; pass += 2) {
      if (found >= 0 && goes_first) break;
      if (loads_with(pass)) task.pass = found = pass;
    }
  }

  int last_pass_before_use(const Group& group, ValueId value) const {
    int last = 0, use = INT_MAX;
    for (int number : group.tasks) {
      const Task& other = plan_.tasks[number];
      last = std::max(last, other.pass);
      if (std::ranges::count(other.needs, value) > 0) use = std::min(use, other.pass);
    }
    return std::min(last, use - 1);
  }

  std::set<ParamId> loaded_by(const Task& task) {
    std::set<ParamId> buffers;
    source_.walk(roots_of(task), [&](ExprId id) {
      if (source_[id].kind == ExprKind::load) buffers.insert(source_[id].buffer.id);
      return true;
    });
    return buffers;
  }

  // The value of a scan is at hand in the scan's own pass.
  bool needs_scan(const Task& task, int pass) const {
    return std::ranges::any_of(task.needs, [&](ValueId value) {
      const Task& maker = plan_.tasks[plan_.maker[value]];
      const Fold* fold = std::get_if<Fold>(maker.line.stmt);
      return fold != nullptr && fold->emit == Emit::each && maker.group == task.group &&
             maker.pass == pass;
    });
  }

  // A write in place waits for all that reads the old contents.
  bool delay(Task& write, const Task& reader) {
    const std::optional<BufferRef> buffer = target(write);
    if (!buffer || &write == &reader || reader.pass <= write.pass) return false;
    for (const Read& read : reader.reads)
      if (read.buffer == *buffer && read.order < write.line.order) {
        write.pass = reader.pass;
        return true;
      }
    return false;
  }

  Source& source_;
  Plan plan_;
  int after_check_ = 0;
};

}  // namespace

std::vector<AxisId> short_ones_last(const Kernel& kernel, std::vector<AxisId> axes) {
  std::stable_partition(axes.begin(), axes.end(),
                        [&](AxisId axis) { return !is_short(kernel.axes[axis]); });
  return axes;
}

std::vector<ExprId> roots_of(const Task& task) {
  if (task.kind != TaskKind::merge) return roots_of(*task.line.stmt);
  std::vector<ExprId> roots;
  for (const FoldState& state : std::get<Fold>(*task.line.stmt).states) {
    roots.push_back(state.init);
    roots.push_back(state.merge);
  }
  return roots;
}

namespace {

// The axis itself, or a sum of it and of what is the same at all points of the stage.
bool counts(Source& source, ExprId id, AxisId axis, AxisSet stage) {
  const Expr& e = source[source.behind(id)];
  if (e.kind == ExprKind::axis) return e.id == axis;
  if (e.kind != ExprKind::op || e.code != Code::add) return false;
  const ExprId a = e.operands[0], b = e.operands[1];
  return ((source.axes(a) & stage) == 0 && counts(source, b, axis, stage)) ||
         ((source.axes(b) & stage) == 0 && counts(source, a, axis, stage));
}

}  // namespace

AxisSet apart_axes(Source& source, const Task& task) {
  const AxisSet stage = set_of(task.line.stage);
  AxisSet apart = 0;
  for (AxisId axis : task.line.stage) {
    int alone = 0, mixed = 0;
    for (const IndexTerm& term : *written_index(*task.line.stmt)) {
      if (counts(source, term.expr, axis, stage)) {
        ++alone;
      } else if ((source.axes(term.expr) & axis_bit(axis)) != 0) {
        ++mixed;
      }
    }
    if (alone == 1 && mixed == 0) apart |= axis_bit(axis);
  }
  return apart;
}

int64_t lane_block(const Fold& fold) {
  const bool wide = std::ranges::any_of(
      fold.states, [](const FoldState& state) { return size_of(state.dtype) == 8; });
  return wide ? 2048 : 4096;
}

bool steps_in_order(const Fold& fold, int64_t most) {
  constexpr int64_t kLaneElements = 64;  // of a block, of each lane
  return fold.order == Order::serial || most <= lane_block(fold) / kLaneElements;
}

bool Plan::is_split(const Task& task) const {
  if (task.kind != TaskKind::fold) return false;
  const Group& group = groups[task.group];
  const Fold& fold = std::get<Fold>(*task.line.stmt);
  return group.kind == GroupKind::full || (fold.axes == group.columns && group.rows != fold.axes);
}

Plan plan_of(Source& source) {
  for (;;)
    if (std::optional<Plan> plan = Planner(source).run()) return std::move(*plan);
}

}  // namespace cermet::ir
