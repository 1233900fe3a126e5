// SPDX-License-Identifier: MIT
// What a loop over a row fetches for others. The loops of a row form go over the same row one after
// another: the first that loads an array waits for memory, the others find it in the cache and
// leave the memory idle. So each array is fetched by the loop with the most work for it: by one before
// that which loads it first, or for the next row; where that loop has too little work for all that it
// fetches, another one fetches half of an array of long rows, its loader if need be. Of a row that is made tile by
// tile, the loop that loads a tile fetches the next one, which comes while the others work; so does a loop
// that is alone, or it fetches the next row, or a tile of it, where the row is short or far away; of the only array
// that it goes through from end to end it fetches some kilobytes on. Items of a row each fetch rows a few cache
// lines on, if rows are so short that a few are all that the processor has in hand. The tiles of a transpose have
// rows too short and far apart for the processor to see: each loop fetches for the next tile. Rows that are picked
// by number lie anywhere: the number of one further on is looked up.
// What lies apart comes into L2, as L1 asks for too few lines at once; what follows anyway, into L1.
#pragma once

#include <map>
#include <vector>

#include "kernel/ir.h"

namespace cermet::codegen {

inline constexpr uint64_t kLineBytes = 64;  // of the cache
constexpr int64_t kHalvedRow = 8192;        // bytes; half of a shorter row would come too late

struct Ahead {
  enum class Part : uint8_t { all, first_half, second_half };

  ir::BufferRef buffer;
  const ir::Index* index;           // of the load
  ir::AxisId variable;              // of the loop that loads
  int32_t next_row;                 // number of the stride to the row wanted; kNone: it is this row
  int64_t rows = 1;                 // how many such rows on that is
  bool next_tile = false;           // wanted is what follows the elements of `loads`
  const ir::For* loads = nullptr;   // of `variable`, for a loop of chains; else the loop itself
  int32_t step = ir::kUnit;         // number of the stride from element to element
  bool few_lines = false;           // of short rows it is as many on as lie in a few lines
  bool at_once = false;             // into L1
  bool if_apart = false;            // not of rows that follow one another
  bool streams = false;             // of these, or of what has no rows, what comes soon, into L1
  Part part = Part::all;            // of rows from kHalvedRow on; of shorter ones all or,
  bool helps = false;               // ... for another loop, nothing
  const ir::For* picked = nullptr;  // wanted is where the index leads in a later round of this loop
};

// By lane loop of the chunk loop.
std::map<const ir::For*, std::vector<Ahead>> fetched_ahead(const ir::Kernel& kernel,
                                                           const ir::For& chunk, int vector_bytes);

}  // namespace cermet::codegen
