// SPDX-License-Identifier: MIT
// Writes loops. Expressions of the source are made where they belong: in the outermost open loop that
// has all their axes, as a Let there when something further in needs them. So hoisting, sharing and
// recomputing in a later loop all follow from opening and closing loops.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "kernel/tile_source.h"

namespace cermet::ir {

// One dimension of a chunk loop's items: the flattened axes, in tiles.
struct GridDim {
  std::vector<AxisId> axes;
  int64_t tile = 1;
};

// State s of a fold.
ExprId part_of(Builder& b, ValueId fold, const std::vector<FoldState>& states, size_t s);

class Emitter {
 public:
  explicit Emitter(Source& source);
  // Goes on from `start`, which is tiled and has the source's parameters, axes and strides.
  Emitter(Source& source, Kernel start);

  Builder& to() { return to_; }
  Source& source() { return source_; }
  Kernel take() { return to_.take(); }

  // A chunk loop over the product of the dimensions; gives the index in each of them.
  std::vector<ExprId> open_chunk(const std::string& entry, const std::vector<GridDim>& dims);
  // A chunk loop of a fixed number of items; gives the item.
  ExprId open_items(const std::string& entry, int64_t count);
  // The same over spans of items, each taken as one; gives its bounds.
  // In turns: so many items for each element of the grid.
  std::pair<ExprId, ExprId> open_turns(const std::string& entry, int64_t count,
                                       std::vector<SizeTerm> grid, int64_t least);
  std::pair<ExprId, ExprId> open_span(const std::string& entry, const GridDim& dim);
  // A serial or lane loop; gives its variable.
  AxisId open_loop(ForKind kind, ExprId begin, ExprId end, const std::string& name);
  // Over the flattened axes from begin to end, or all of them, with the axes bound.
  AxisId open_over(ForKind kind, const std::vector<AxisId>& axes, ExprId begin, ExprId end);
  AxisId open_whole(ForKind kind, const std::vector<AxisId>& axes);
  void close();  // the innermost loop

  // The point at which the source's axes are from here on, in the innermost loop.
  void bind(AxisId axis, ExprId index);
  void bind(const std::vector<AxisId>& axes, ExprId flat);  // row-major
  // The same once more in the innermost loop: what was made of these axes is not used again.
  void bind_again(const std::vector<AxisId>& axes, ExprId flat);
  // The same of axes bound in a loop around it, for which `flat` is defined there: what was made of them
  // in that loop and its inner loops is not used again.
  void bind_around(std::span<const AxisId> axes, ExprId flat);
  // What `id` of the source is in the innermost loop, and its inner loops.
  void define(ExprId id, ExprId made);

  // The expression in the innermost loop. While `states` (and `others`) are given, State(i) (Other(i))
  // stands for them.
  ExprId expr(ExprId id);
  Index index(const Index& index);
  void name(ExprId id);  // makes it now, as a Let
  void set_states(std::span<const ExprId> states, std::span<const ExprId> others = {});
  void clear_states();
  std::vector<FoldState> fold_states(const std::vector<FoldState>& states, bool with_step);

  // The fold over `pieces`, the innermost loop, of folds like `piece`: a step merges one.
  ValueId merged(const Fold& piece, AxisId pieces);

  void append(Stmt stmt) { levels_.back().body.push_back(std::move(stmt)); }
  // The ref to a Let of the expression in the innermost loop; itself if it needs no name.
  ExprId let(ExprId made, const std::string& name = "");

  // Bounds of tile number `index`: {begin, end} within `total`.
  std::pair<ExprId, ExprId> bounds(ExprId index, int64_t tile, ExprId total);
  ExprId extent_of(const std::vector<AxisId>& axes);  // product
  ExprId ceil_div(ExprId total, int64_t tile);
  ExprId integer(int64_t v) { return to_.integer(Dtype::int64, v); }

 private:
  std::pair<ExprId, ExprId> span_from(ExprId first);
  struct Level {
    For loop;
    std::vector<Stmt> body = {};
    AxisSet axes = 0;                               // bound in this loop and those around it
    std::unordered_map<ExprId, ExprId> made = {};   // by expression of the source
    std::unordered_map<ExprId, ExprId> named = {};  // the Let of an expression of the result
  };

  ExprId tiles_of(const GridDim& dim);  // as the grid counts them
  size_t level_of(ExprId id);
  std::unordered_map<ExprId, ExprId>& made_of(ExprId id);
  void build(ExprId id);
  ExprId reach(ExprId id, size_t level);
  ExprId let_at(size_t level, ExprId made, const std::string& name);
  bool is_plain(ExprId made) const;

  Source& source_;
  Builder to_;
  std::vector<Level> levels_;
  std::vector<ExprId> states_, others_;         // empty: State(i), Other(i) stay
  std::unordered_map<ExprId, ExprId> in_fold_;  // made of what depends on states
};

}  // namespace cermet::ir
