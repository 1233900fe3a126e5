// SPDX-License-Identifier: MIT
// Scans as loops. Tile by tile, a lane loop makes the elements; their blocks of 256 are stepped side by
// side, a block in each lane; lane loops merge the states with what is before each block, and run what uses
// the values. Thread Locals pass a tile from loop to loop. What is past the last block's end is stepped, too,
// and used nowhere.
//
// rows     an item's whole row, tile by tile; what is before a block is carried from block to block.
// whole    no axis but the scanned ones: blocks are folded in one entry point, their results are
//          merged in order in a second, and a third scans again from there; in rounds (carries.h). In wide tiles,
//          what is only stored along the row is stored where it is stepped.
// columns  lanes run across another axis, which is contiguous; states stay in thread Locals.
// narrow   that other axis is known to be short: one of its columns after the other, as `whole`, or as `rows` where
//          there are more axes around.
#pragma once

#include <functional>
#include <string>

#include "kernel/tile_row_blocks.h"
#include "kernel/tile_tasks.h"

namespace cermet::ir {

inline constexpr int64_t kScanBlock = 256;  // elements in `serial` order
inline constexpr int64_t kScanChains = 8;   // blocks that are stepped side by side
inline constexpr int64_t kScanSteps = 4;    // of which their number is a multiple
inline constexpr int64_t kScanTile = kScanBlock * kScanChains;
inline constexpr int64_t kScanWideChains = 16;  // of elements and states of few bytes, where a
                                                // vector holds a line of each
inline constexpr int64_t kScanWideTile = kScanBlock * kScanWideChains;
inline constexpr int64_t kScanFew =
    kScanBlock * 3 / 2;  // up to as many at the end are stepped one by one
inline constexpr int64_t kScanItem = 8 * kScanTile;  // elements of an item of `whole`
inline constexpr int64_t kScanColumns = 2048;        // columns whose states stay in L1

// The scans of one pass and what runs beside them. `at` defines what earlier passes kept, `done` keeps
// what this one makes, both at an index of the flattened row axes.
struct ScanPass {
  const Group& group;
  Tasks tasks;
  std::function<void(ExprId)> at = [](ExprId) {};
  std::function<void(ExprId)> done = [](ExprId) {};
};

class ScanWriter : RowBlocks {
 public:
  // is_wide: tiles of `whole` may be wide. moves: a Micro may move rows of narrow arrays.
  ScanWriter(Source& source, const Plan& plan, Emitter& out, TaskWriter& tasks, bool is_wide,
             bool moves)
      : RowBlocks(source, out, kScanWideTile + kShortRows),
        plan_(plan),
        tasks_(tasks),
        is_wide_(is_wide),
        moves_(moves) {}

  // Whether the folds among the tasks are scans, none of which steps over another's values.
  bool fits(const Tasks& tasks) const;
  void write_rows(const ScanPass& pass);
  void write_whole(const ScanPass& pass, const std::string& suffix);
  // Within an item, which has bound all axes but the scanned ones and `lane`.
  void write_columns(const ScanPass& pass, AxisId lane, ExprId begin, ExprId end);
  // Scans down the columns of an array of few.
  void write_narrow(const Group& group, const Tasks& tasks, const std::string& suffix);

 private:
  struct Scan {
    const Fold* fold;
    std::vector<ExprId> elements = {};  // of the source: what its step takes at each point
    std::vector<LocalId> inputs = {};   // thread: these, of a tile
    std::vector<LocalId> states = {};   // thread: of a tile's elements, or of the columns
    std::vector<LocalId> carry = {};    // thread: what is before the block
    std::vector<LocalId> blocks = {};   // kernel: each block's last states, then what is before it
    std::vector<LocalId> ends = {};     // kernel: the states at the end of an item
  };
  // Where the states before a block are, and whether they are carried on from there.
  enum class Before : uint8_t { carried, made };

  void find_scans(const ScanPass& pass);
  void find_elements(const ScanPass& pass, bool wide);
  void make_locals(int64_t states, const Size& carry);
  std::vector<ExprId> load_all(const std::vector<LocalId>& from, const Index& place);
  void store_all(const std::vector<LocalId>& to, const Index& place,
                 const std::vector<ExprId>& values);
  std::vector<ExprId> inits(const Fold& fold);
  std::vector<ExprId> stepped(const Fold& fold, const std::vector<ExprId>& states);
  // The states themselves in the first block, else merged with those before it.
  std::vector<ExprId> merged(const Fold& fold, ExprId first, const std::vector<ExprId>& before,
                             const std::vector<ExprId>& states);
  void write_carries(const ScanPass& pass, const std::string& suffix);
  void define_values(const Fold& fold, const std::vector<ExprId>& states);

  // What a tile has: [base, base + size), from the block of this number on. chains: how many blocks at
  // most, which are stepped side by side.
  struct Tile {
    ExprId base, size, block;
    int64_t chains;
    bool is_whole;  // its blocks are all there
  };
  // Whether lanes may step along the elements where they lie, and along what uses the values, too.
  bool lies_along(const ScanPass& pass) const;
  bool others_lie_along(const ScanPass& pass) const;
  bool lie_along(const ScanPass& pass, const std::vector<ExprId>& roots) const;
  bool steps_along(const ScanPass& pass, const Index& index) const;
  void fill(const ScanPass& pass, const Tile& tile);
  // place: where the states of a scan go; nowhere without one.
  ValueId step(const Scan& scan, const Index& place, AxisId k, Emit emit, bool filled = true);
  // Where steps find their elements: in the tile's Locals, in arrays, or in the columns' Locals.
  enum class From : uint8_t { tile, array, column };
  void step_blocks(const ScanPass& pass, const Tile& tile, Emit emit, From from);
  void step_tile(const ScanPass& pass, const Tile& tile, Emit emit);
  void run_blocks(const ScanPass& pass, const Tile& tile);
  void step_block(const ScanPass& pass, const Tile& tile, Emit emit);
  void keep_totals(const Tile& tile, ExprId chain, const std::vector<ValueId>& made);
  void finish(const ScanPass& pass, const Tile& tile, Before before);
  void finish_block(const ScanPass& pass, const Tile& tile, ExprId number, Before before);
  // Of narrow arrays: their columns, each with what is kept for it.
  struct Moved {
    const Task* task;
    Rows rows;
  };
  void find_moved(const ScanPass& pass);
  void open_column(ExprId count);
  void close_column();
  using ForColumn = std::function<void()>;
  void for_columns(const Tile& tile, bool stores, const ForColumn& f);
  bool lies_in_columns(const ScanPass& pass) const;
  void define_loaded(const Index& place);
  void store_moved(const Index& place);
  Index of_block(Index place) const;  // in `blocks`
  Index of_end() const;               // in `carry` and `ends`
  using ForTile = std::function<void(const Tile&)>;
  void for_tiles(ExprId begin, ExprId size, int64_t longest, const ForTile& f);

  ExprId part(ValueId value, size_t i, size_t count) {
    const ExprId ref = out_.to().ref(value);
    return count == 1 ? ref : out_.to().get(static_cast<int>(i), ref);
  }

  const Plan& plan_;
  TaskWriter& tasks_;
  const bool is_wide_, moves_;
  std::vector<Scan> scans_;
  int64_t tile_ = kScanTile;  // the longest one's elements
  Tasks others_;
  // Of narrow arrays: which column it is, where its blocks begin, and where the Locals have it: of the tile's
  // elements, and of the array's.
  ExprId column_ = kNone, blocks_at_ = kNone, tile_at_ = kNone, array_at_ = kNone;
  std::vector<Moved> moved_;
};

}  // namespace cermet::ir
