// SPDX-License-Identifier: MIT
// What a limit leaves of the columns (tile_chain.h), for rows that are taken together: those that no row sees
// are left out, and those that each of them sees need no look at the condition.
#pragma once

#include <optional>
#include <vector>

#include "kernel/tile_chain.h"

namespace cermet::ir {

class SeenColumns : BlockWriter {
 public:
  using BlockWriter::Range;

  // Numbers of columns, counted from the first one: multiples of the tile, or all columns.
  struct Seen {
    ExprId by_any;  // all that any of the rows sees
    std::optional<ExprId> by_each =
        std::nullopt;  // with a limit: none but those that each row sees
  };

  SeenColumns(const ChainAnalysis& chain, Emitter& out, int64_t tile)
      : BlockWriter(chain.source, out), chain_(chain), tile_(tile) {}

  // Written where it is called.
  Seen of(Range rows);
  // In a loop over columns that each row sees: what the condition is there.
  void define_seen();

 private:
  // The limit's sides at the first and last column of a tile, and row of a block.
  struct End {
    AxisId axis;
    ExprId expr;
  };
  void make_ends();
  std::vector<ExprId> ends_at(Range rows, Range columns);

  const ChainAnalysis& chain_;
  const int64_t tile_;
  std::vector<End> ends_;
};

}  // namespace cermet::ir
