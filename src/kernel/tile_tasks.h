// SPDX-License-Identifier: MIT
// Writes tasks as statements of the innermost open loop, and passes values on: folds that end with a
// loop, partial states and their merges, values that later entry points need.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernel/tile_emit.h"
#include "kernel/tile_plan.h"

namespace cermet::ir {

using Tasks = std::vector<const Task*>;

// A fold that ends with the innermost loop.
struct OpenFold {
  const Task* task;
  ValueId made;
};

class TaskWriter {
 public:
  TaskWriter(Source& source, const Plan& plan, Emitter& out);

  // Tasks of this group come next; lanes will run along `lanes`.
  void begin(const Group& group, AxisSet lanes);
  void end();  // what the group published is loaded from now on

  Tasks tasks_of(const Group& group) const;
  // Runs tasks in the innermost loop, over `variable`; gives the folds that end with the loop.
  std::vector<OpenFold> run(const Tasks& tasks, AxisId variable);
  // After that loop. publishes: what later groups need is stored for them here.
  void finish(const std::vector<OpenFold>& folds, bool publishes = true);

  // Makes room for the group's split folds; the item is at `index` along `blocks`.
  void open_partials(const Group& group, const GridDim& blocks, ExprId index);
  bool any_in_memory(const Group& group) const;
  void init_in_memory(const Group& group);  // in a lane loop over the accumulators
  // What is run between them, at several points of an iteration, passes accumulators on: each is loaded
  // once and stored once.
  void begin_steps() { stepped_.emplace(); }
  void end_steps();

  // The value in the source: its ref, or a get for each state.
  std::vector<ExprId> parts_of(ValueId value);
  // Later groups need it.
  bool is_exported(ValueId value) const { return exported_.contains(value); }
  // Stores it for these; wherever a group makes it, in one place.
  void publish(ValueId value);

 private:
  // Partial states of a split fold: one Local for each state, [block][axes].
  struct Partial {
    std::vector<LocalId> locals;
    std::vector<AxisId> axes;  // of the value
    GridDim blocks;
    Index place;  // in the source: the state of this item's block
  };

  ExprId guard_of(const Task& task);
  ExprId masked(const Task& task, ExprId mask);
  void store(const Task& task, const Store& s);
  void update(const Update& s);
  void check(const Task& task, const Check& s);
  void keep(const Let& s);
  void merge(const Fold& fold);
  std::optional<OpenFold> fold(const Task& task, AxisId variable);
  void read_before_write(const Tasks& tasks, const Task& task);

  bool in_memory(const Task& task) const;
  void step_in_memory(const Fold& fold);
  void store_states(ValueId fold, const std::vector<ExprId>& states);

  ExprId load_of(LocalId local, Dtype dtype, const Index& place);
  std::vector<AxisId> in_order(AxisSet set) const;
  ValueId new_value(ValueId value);
  ExprId named(ExprId id);

  Source& source_;
  const Plan& plan_;
  Emitter& out_;
  const Group* group_ = nullptr;
  AxisSet lanes_ = 0;
  std::vector<std::optional<Partial>> partials_;  // by value
  std::optional<std::map<ValueId, std::vector<ExprId>>>
      stepped_;  // between begin_steps and end_steps
  std::set<ValueId> exported_;
  std::vector<std::pair<ExprId, ExprId>> published_;
  std::map<ExprId, LocalId> places_;  // of what is published
};

}  // namespace cermet::ir
