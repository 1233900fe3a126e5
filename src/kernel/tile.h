// SPDX-License-Identifier: MIT
// The tiler's parts, and the contract of its result: the loops that a code generator has to expect.
//
// A tiled kernel's body holds chunk loops only, in the order in which they run. Locals are declared by
// kernel.locals alone (no Local statements); those of scope kernel pass values from one entry point to
// the next, those of scope thread hold nothing from one item to the next.
//
// Loops.      chunk { (statement | serial | lane)* }, serial loops may hold serial and lane loops, a lane
//             loop holds no loop but the serial one of chains and those of short rows. Every loop has a variable of its own (an
//             axis without extent). Lane and serial loops have step 1; begin and end are defined outside
//             the loop, end may be at or below begin (no iteration). Outside lane loops everything is
//             scalar: Lets, Stores, Checks, Updates and Merges, once per iteration of what is around them.
// Decoding.   A chunk's body opens with Lets that decode `item` into indices of outer axes (rem and div
//             by extents) and the bounds of tiles (min(begin + tile, extent)). A grid may have more
//             items than there is work: such items find empty loops.
// Lets.       What does not depend on a loop's variable is a Let in front of the loop, never inside it
//             (constants, scalars, extents and single refs excepted): strength reduction and hoisting are
//             done. Inside a loop equal expressions have equal ids: evaluate each id once an iteration.
//             A load that is evaluated before a store to its buffer in the same iteration stands in a
//             Let before the store; after a store nothing of that buffer is loaded anew at another index
//             of that iteration.
// Indices.    Each term's expression is either (1) invariant: defined outside the loop; (2) the loop
//             variable; (3) linear in it: sums, differences and products of it with invariants (used for
//             Locals: (e - begin) · constant + ...); (4) anything else: a gather or scatter. A term of
//             kind (2) with stride kUnit and all else invariant is contiguous. Locals are indexed by unit
//             terms: an invariant base, and the variable.
// Folds.      emit last, order lanes: directly in a lane loop, several in one loop, their steps using any
//             Lets of the loop; the value is read after the loop. emit last, order serial: directly in a
//             serial loop. emit each: directly in a serial loop, read in the same iteration after it.
//             A row form's loop covers the whole range (any number of blocks); a full form's one block.
// Column      accumulators are no Folds: the states lie in a Local of scope kernel, [block][columns], and
// sums        are loaded, stepped and stored in a lane loop inside the serial loop over <= 256 rows;
//             each iteration of the lane loop touches its own element.
// Merges      stand in a lane loop (at = an expression linear in the variable with factor 1; count and
//             stride invariant) or are scalar.
// Transposes  pass two 64 x 64 thread Locals (rows 64 + one cache line's worth of elements apart): stored
//             along one axis, transposed by a Micro, loaded along the other. What is only copied a Micro
//             moves from array to array, but for tiles too small for that, and where their rows fall into
//             one set of the cache.
// Updates     in a lane loop touch distinct elements in distinct lanes; those that may collide stand in
//             serial loops. Stores that may collide stand there or in a lane loop whose last lane holds.
// Spans       a chunk loop of two variables, first and past, is one iteration: what is done for the items
//             between them together. A serial loop may index a Local by a value that it makes.
// Chains      are a lane loop of constant length that holds one serial loop of serial folds, begun at 0 and
//             of as many steps in each lane: each lane steps along a stretch of its own (a block of a
//             scan). In the steps the two variables stand in indices alone. Entry points that run in
//             rounds: carries.h.
// Short rows  are a lane loop over a constant number of rows, columns of which lie in thread Locals that a Micro
//             fills and another one empties; serial loops in it, of at most as many steps as there are lanes in
//             an order by lanes, hold the folds over a row: each step's number is its element's.
// Narrow      columns are a serial loop over few columns that holds lane loops down a block of rows: a full form's
//             for each of them. What is the same in all of a row lies in thread Locals, and so do the columns of
//             what is loaded, which a Micro fills; of very few each is read a distance apart.
#pragma once

#include "kernel/passes.h"

namespace cermet::ir {

// Results of so many bytes, or more, do not stay in the cache.
inline constexpr int64_t kPastBytes = int64_t{32} << 20;

bool has_contract(const Kernel& kernel);

// The tiled form of a kernel with Contracts.
Kernel tile_gemm(const Kernel& kernel, const TargetFacts& target);

}  // namespace cermet::ir
