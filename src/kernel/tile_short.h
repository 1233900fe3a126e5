// SPDX-License-Identifier: MIT
// Rows of few elements, folded or not: lanes run across rows. An item is a block of rows, of which each pass steps
// over the columns serially. A lane past the last row does again what the last one does, so that blocks are whole
// vectors; what it makes is stored in Locals alone.
#pragma once

#include <optional>
#include <string>

#include "kernel/tile_passes.h"
#include "kernel/tile_row_blocks.h"

namespace cermet::ir {

class ShortRowWriter : RowBlocks {
 public:
  ShortRowWriter(Source& source, const Plan& plan, Emitter& out, TaskWriter& tasks)
      : RowBlocks(source, out, kShortRows), plan_(plan), tasks_(tasks) {}

  bool fits(const Group& group);
  void write(const Group& group, const std::string& entry);

 private:
  struct Stored {
    const Task* task;
    std::optional<Rows> rows;  // nullopt: one element for each row
    LocalId local = kNone;     // of these
  };
  // A part of a fold that later groups need, one for each row.
  struct Exported {
    ValueId value;
    ExprId part;
    LocalId local;
  };

  bool is_dear(const Task& task) const;
  bool add_task(const Task& task);
  bool is_along(const Task& task) const { return (task.range & axis_bit(elements_)) != 0; }
  Index place_in(ExprId column) const {
    return {{column, kUnit}, {out_.to().axis_ref(lane_), kUnit}};
  }
  void write_passes(const Group& group, ExprId columns);
  void write_pass(const Tasks& tasks, int pass, ExprId columns);
  void keep_exported(const std::vector<OpenFold>& folds);
  void write_singles();

  const Plan& plan_;
  TaskWriter& tasks_;
  std::vector<Stored> stored_;
  std::vector<Exported> exported_;
  std::vector<KeptRow> kept_;
  std::vector<LocalId> kept_locals_;
  AxisId lane_ = kNone;
};

}  // namespace cermet::ir
