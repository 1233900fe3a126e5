// SPDX-License-Identifier: MIT
// Which statements share an entry point, and in which form. Statements that need no place of their own
// (Lets) are made wherever they are needed; all others are tasks, and each task is put into one group.
// A fold that is split over blocks becomes two tasks: the fold, which leaves one partial state for each
// block, and a merge, in a later group. Groups run in order; within a row group tasks run in passes.
#pragma once

#include <optional>

#include "kernel/micro.h"
#include "kernel/tile_source.h"

namespace cermet::ir {

enum class TaskKind : uint8_t { fold, merge, keep, store, update, check };
enum class GroupKind : uint8_t {
  map,     // items: blocks of the range
  row,     // items: the range without the row axes; passes over these
  full,    // items: blocks of the row axes (and kept ones); a partial state each
  column,  // items: blocks of the column axes x tiles of the rest; a partial state each
  update,  // items: tiles of the axes that cannot collide; the others serially
};

struct Task {
  TaskKind kind;
  Line line;      // merge: that of its fold
  AxisSet range;  // the axes that it runs over; a fold's with those that it folds
  int group = -1;
  int pass = 0;
  std::vector<ValueId> needs = {};  // values of other tasks
  std::vector<Read> reads = {};
};

struct Group {
  GroupKind kind = GroupKind::map;
  std::vector<AxisId> axes;          // all, outermost first
  std::vector<AxisId> rows = {};     // row, full: the folded (inner) axes
  std::vector<AxisId> columns = {};  // column, and row with column sums: the axes folded in blocks
  int64_t block = 0;                 // full
  std::vector<int> tasks = {};       // in order
};

struct Plan {
  std::vector<Task> tasks;
  std::vector<Group> groups;
  std::vector<int> maker;                 // by value: its task (a split fold's merge), or -1
  bool is_split(const Task& fold) const;  // leaves partial states
};

Plan plan_of(Source& source);

// In the order in which items go over them: places along short ones lie close to each other.
std::vector<AxisId> short_ones_last(const Kernel& kernel, std::vector<AxisId> axes);

// The expressions that the task makes.
std::vector<ExprId> roots_of(const Task& task);

// Axes of an Update or Store along which no two points reach one element: each counts one term of its index.
AxisSet apart_axes(Source& source, const Task& task);

// Where a Store or Update writes; null of all else.
const Index* written_index(const Stmt& stmt);
// The axis that alone forms a unit term; kNone if none does.
AxisId unit_axis(Source& source, const Index& index);

// Of so few elements, known to be few, that columns beside each other are taken one by one.
inline bool is_short(const Axis& axis) { return axis.most > 0; }
inline bool is_narrow(const Axis& axis) { return axis.most > 0 && axis.most <= kNarrowColumns; }

// Elements of a block in `lanes` order.
int64_t lane_block(const Fold& fold);
// Whether it takes one after the other of so many elements.
bool steps_in_order(const Fold& fold, int64_t most);

}  // namespace cermet::ir
