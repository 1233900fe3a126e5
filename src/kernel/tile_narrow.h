// SPDX-License-Identifier: MIT
// Folds down long columns of a narrow array, whose rows are known to be short (Axis::most): lanes run down the
// columns, in `lanes` order. An item is a block of rows, one column of it after the other; what is the same in all
// of a row is made before.
#pragma once

#include <string>

#include "kernel/tile_forms.h"
#include "kernel/tile_row_blocks.h"

namespace cermet::ir {

class NarrowColumnWriter : RowBlocks {
 public:
  // A group of form `full` that keeps axes; of these the innermost one is short.
  NarrowColumnWriter(Source& source, Emitter& out, TaskWriter& tasks, const Group& group,
                     const TargetFacts& target);

  void write(const std::string& entry);

 private:
  struct OfRow {
    ExprId expr;
    LocalId local;
  };

  void find_loads();
  void find_of_rows();
  bool is_dear(ExprId id) const;
  void write_of_rows(ExprId columns);
  void write_columns(ExprId columns);

  const Group& group_;
  TaskWriter& tasks_;
  const bool is_cpu_;
  std::vector<OfRow> of_rows_;
};

}  // namespace cermet::ir
