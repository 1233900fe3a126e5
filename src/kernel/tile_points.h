// SPDX-License-Identifier: MIT
// What is one for each point of a block, or for the row of elements that it reaches, and more than a load: made in
// lanes for all points of the block, it leaves loads to the loop that takes the points one by one.
#pragma once

#include <utility>
#include <vector>

#include "kernel/tile_emit.h"

namespace cermet::ir {

inline constexpr int64_t kPointBlock = 256;  // points that values are made for at a time

// Whether it loads something; at a loaded place.
bool loads(Source& source, ExprId id);
bool looks_up(Source& source, ExprId id);

// The largest parts of expressions that are one for all elements of a row, along `lane` (kNone: all are), but not
// for all points, and worth to be made so.
class PointParts {
 public:
  PointParts(Source& source, AxisId points, AxisId lane)
      : source_(source), points_(points), lane_(lane) {}
  void add(ExprId id);  // kNone: nothing
  void add(const Index& index);
  const std::vector<ExprId>& found() const { return found_; }

 private:
  Source& source_;
  const AxisId points_, lane_;
  std::vector<ExprId> found_;
};

class PointValues {
 public:
  // For kPointBlock points or fewer from `begin` on.
  PointValues(Source& source, Emitter& out, const std::vector<ExprId>& ids, ExprId begin);
  bool empty() const { return locals_.empty(); }
  void make(ExprId point);    // in a lane loop over points, where they are bound
  void define(ExprId point);  // where one is taken

 private:
  Index place(ExprId point) const { return {{back_, kUnit}, {point, kUnit}}; }

  Emitter& out_;
  ExprId back_ = kNone;  // to the place of a point from its number
  std::vector<std::pair<ExprId, LocalId>> locals_;
};

}  // namespace cermet::ir
