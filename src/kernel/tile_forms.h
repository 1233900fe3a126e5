// SPDX-License-Identifier: MIT
// Turns a plan into loops: one function for each kind of group. All tile sizes stand here.
#pragma once

#include "kernel/passes.h"
#include "kernel/tile_emit.h"
#include "kernel/tile_plan.h"

namespace cermet::ir {

inline constexpr int64_t kLaneTile = 4096;    // elements of an item along the lane axis
inline constexpr int64_t kAcrossTile = 1024;  // rows of which short columns stay in a cache
inline constexpr int64_t kRowBlock = 16;      // short rows that share an item
inline constexpr int64_t kSerialBlock = 256;  // rows of a block in `serial` order
inline constexpr int64_t kColumnTile = 2048;  // columns whose accumulators stay in L1
inline constexpr int64_t kWideTiles = 4;  // or as many of these, where it all still stays there,
inline constexpr int64_t kWideBytes = 32768;  // with what else is loaded for each column,
inline constexpr int64_t kRowsAtOnce = 8;  // for which the accumulators of a column are loaded once
// ... which pays beyond so many bytes of them, from memory and for arrays (counted as accumulators) in a cache.
inline constexpr int64_t kNearBytes = 4096, kNearBytesCached = 320, kCachedBytes = 8 << 20;
inline constexpr int64_t kColumnsOfItem = 256;  // short ones, which lanes go down
inline constexpr int64_t kNarrow = 64;  // columns that take the rows one lane each, in registers
inline constexpr int64_t kManyItems = 128;  // and the array is so large that it comes from memory
inline constexpr int64_t kMergeTile = 256;  // columns merged by one item
inline constexpr int64_t kTransposeTile = 64;
inline constexpr int kRecomputeCost = 6;  // dearer values are kept from pass to pass

// Loads whose unit axis is not the one that lanes run along, and that axis. Empty: none.
struct Crossing {
  AxisId axis = kNone;
  std::vector<ExprId> loads;
};

// The axis that lanes should run along, out of `among`: where stores, then loads, are contiguous.
AxisId lane_axis(Source& source, const Plan& plan, const Group& group,
                 const std::vector<AxisId>& among);
// The distance of rows along `unit`, one for each index of `row`, if all else is the same for a tile of them.
std::optional<int32_t> row_stride(Source& source, const Index& index, AxisId unit, AxisId row);
Crossing crossing_of(Source& source, const Plan& plan, const Group& group, AxisId lane);

// `half`: h where what is stored at i is computed from j = select(h <= i, i - h, i), so that i and i + h
// share it (words of a random generator that come in pairs). `inside`: where it asks for j + h < n of the
// `total` n, too (whether the pair's second word is drawn).
struct Halves {
  ExprId half = kNone;
  ExprId inside = kNone;
  ExprId total = kNone;
};
Halves halves_of(Source& source, const Plan& plan, const Group& group, AxisId lane);

Kernel write_loops(Source& source, const Plan& plan, const TargetFacts& target);

}  // namespace cermet::ir
