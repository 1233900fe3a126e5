// SPDX-License-Identifier: MIT
// Rows of few elements, known to be few (Axis::most), folded or not: lanes run across rows. An item is a block of
// rows; what is loaded along them comes as columns (RowsMicro), each pass steps over the columns serially, and what
// is stored along them goes back by rows. A lane past the last row does again what the last one does, so that
// blocks are whole vectors; what it makes is stored in Locals alone.
#pragma once

#include <optional>
#include <string>

#include "kernel/micro.h"
#include "kernel/tile_passes.h"
#include "kernel/tile_tasks.h"

namespace cermet::ir {

class ShortRowWriter {
 public:
  ShortRowWriter(Source& source, const Plan& plan, Emitter& out, TaskWriter& tasks)
      : source_(source), plan_(plan), out_(out), tasks_(tasks) {}

  bool fits(const Group& group);
  void write(const Group& group, const std::string& entry);

 private:
  // Rows in an array, along `elements_`, `stride` apart.
  struct Rows {
    BufferRef buffer;
    Index index;
    int32_t stride;
    LocalId local = kNone;
  };
  struct Loaded {
    ExprId load;
    Rows rows;
  };
  struct Stored {
    const Task* task;
    std::optional<Rows> rows;  // nullopt: one element for each row
    LocalId local = kNone;     // of these
  };

  std::optional<Rows> rows_of(BufferRef buffer, const Index& index);
  bool is_dear(const Task& task) const;
  bool add_task(const Task& task);
  bool add_load(ExprId id);
  bool is_along(const Task& task) const { return (task.range & axis_bit(elements_)) != 0; }
  LocalId columns(Dtype dtype);
  Index place_in(ExprId column) const {
    return {{column, kUnit}, {out_.to().axis_ref(lane_), kUnit}};
  }
  void move(const Rows& rows, bool out, ExprId columns);
  void write_passes(const Group& group, ExprId columns);
  void write_pass(const Tasks& tasks, int pass, ExprId columns);
  void write_singles();

  Source& source_;
  const Plan& plan_;
  Emitter& out_;
  TaskWriter& tasks_;
  AxisId elements_ = kNone, rows_ = kNone;
  std::vector<Loaded> loaded_;
  std::vector<Stored> stored_;
  std::vector<KeptRow> kept_;
  std::vector<LocalId> kept_locals_;
  AxisId lane_ = kNone;
  ExprId first_ = kNone, count_ = kNone;  // of the block's rows
};

}  // namespace cermet::ir
