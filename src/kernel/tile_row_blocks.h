// SPDX-License-Identifier: MIT
// Blocks of rows of few elements, known to be few (Axis::most): what is loaded along them comes as columns into
// Locals (RowsMicro), and what is stored along them goes back by rows.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "kernel/micro.h"
#include "kernel/tile_tasks.h"

namespace cermet::ir {

class RowBlocks {
 protected:
  // pitch: from column to column in the Locals, a multiple of kShortRows.
  RowBlocks(Source& source, Emitter& out, int64_t pitch)
      : source_(source), out_(out), pitch_(pitch) {}

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

  // What is contiguous along the elements, and the same distance from row to row; nullopt: it does not lie so.
  std::optional<Rows> rows_of(BufferRef buffer, const Index& index) const;
  // Adds a load along both axes; false: it does not lie so.
  bool add_load(ExprId id);
  bool is_along_both(ExprId id) const;

  // Rows `index` · size and on, as many as there are.
  void begin_block(ExprId index, int64_t size);
  // Room for the columns of so many rows, up to a whole piece of a row.
  LocalId columns(Dtype dtype) const;
  void load_columns(ExprId columns);
  void move(const Rows& rows, bool out, ExprId columns) const;

  Source& source_;
  Emitter& out_;
  const int64_t pitch_;
  AxisId elements_ = kNone, rows_ = kNone;
  std::vector<Loaded> loaded_;
  ExprId first_ = kNone, past_ = kNone, count_ = kNone;  // of the block's rows
};

}  // namespace cermet::ir
