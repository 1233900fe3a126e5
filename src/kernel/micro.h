// SPDX-License-Identifier: MIT
// What each template (Micro) means: its constants, buffers and operands by name. The one place that
// knows their order; tiler, verifier, interpreter and code generators go through it.
//
// All buffers are thread or kernel Locals of one dtype, but for b of a panel, a of a product, what is packed
// and what is turned; strides and offsets count elements. Operands of a product may be narrow: bfloat16 beside a float32
// c, int16, or int8 and uint8, beside a c of 4-byte integers. Packed, g of them that follow each other in k
// lie side by side (group_of: 4 bytes; else g = 1). A target may take subnormal ones as zeros; integers wrap.
// A template works in tiles: what it computes past the wanted rows and columns, up to the next whole tile,
// is left undefined in the target, and Locals are read there, whatever they hold.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

#include "kernel/ir.h"

namespace cermet::ir {

// For i < rows, j < columns:
//   c[c_at + i·c_row + j] = (add ? c[...] : 0)
//       + Σ_k<depth (a[a_at + i·a_row + (k / g)·a_column + k % g] - a_zero)
//       · b[b_at + (j / tile_columns)·b_panel + (k / g)·b_row + (j % tile_columns)·g + k % g]
// B lies in panels of tile_columns, so that the panel in use fills few pages and no more of L1 than it
// has to. A may be a parameter that is read, but not of bytes: nothing of it outside rows x depth is; so may B where
// g is 1: nothing outside depth x columns is. Else B is 0 from depth up to a multiple of g.
// Of bytes, one is uint8 and the other int8; a_zero is 0 if A is not uint8.
// The order of the sum, and fma in it, are free.
struct GemmMicro {
  // Constants.
  int64_t tile_rows, tile_columns;
  int64_t a_column, b_panel, c_row;
  // Buffers.
  BufferRef c, a, b;
  // Operands, int64; add: not 0; a_row: a constant if A is a Local, and so is b_row, g·tile_columns, if B is.
  ExprId rows, columns, depth, c_at, a_at, b_at, a_row, b_row, add;
  int64_t a_zero = 0;  // constant

  Micro micro() const;
  static GemmMicro of(const Micro& micro);
};

// For i < rows, j < columns up to a multiple of g = group, elements of any dtype:
//   to[to_at + (j / g)·to_row + i·g + j % g] = from[from_at + i·from_row + j]. Tiles are tile x tile.
struct TransposeMicro {
  // Constants.
  int64_t tile, to_row, from_row, group;
  // Buffers.
  BufferRef to, from;
  // Operands, int64.
  ExprId rows, columns, to_at, from_at;

  Micro micro() const;
  static TransposeMicro of(const Micro& micro);
};

// Straight from an array, a parameter, into another or into a Local, of one dtype: for i < rows, j < columns:
//   to[to_at + j·to_row + i] = from[from_at + i·from_row + j].
// Rows make up at least kTurnedRows bytes and columns kTurnedColumns; no other element is written or read,
// but what begins at next_at may be fetched into the cache.
inline constexpr int64_t kTurnedRows = 64, kTurnedColumns = 16;
struct TurnMicro {
  // Buffers.
  BufferRef to, from;
  // Operands, int64.
  ExprId rows, columns, to_at, from_at, to_row, from_row, next_at;

  Micro micro() const;
  static TurnMicro of(const Micro& micro);
};

// Between short rows of an array, a parameter, and columns of a Local of its dtype, `pitch` apart, a multiple of
// kShortRows; p = piece_of(dtype). For i < rows, where rows is 1 to pitch, j < columns:
//   in    local[j·pitch + i] = array[at + i·row + j], and for i from rows up to a multiple of kShortRows what it is
//         of the last row. The columns up to a multiple of p are left undefined. `left` elements from `at` on may be
//         read.
//   out   array[at + i·row + j] = local[j·pitch + i]. The columns up to a multiple of p are read.
// Columns are kShortColumns at most.
inline constexpr int64_t kShortRows = 64, kShortColumns = 64;
// Of a row: beyond them, only what is dear in a vector of rows pays.
inline constexpr int64_t kFewElements = 48;
// Columns of which each is folded as if it were a row; so few are read where they lie.
inline constexpr int64_t kNarrowColumns = 31, kFewApart = 3;
// Elements of short rows, of an element-wise kernel or that updates reach, that vectors run along all the same: no
// more than one of these, which bound nothing else there. Of updates of rows of the first, one thread takes all sooner
// than two find theirs.
inline constexpr int64_t kFewAlong[] = {4, 8, 16, 40};
constexpr bool is_along(int64_t most) {
  return std::find(std::begin(kFewAlong), std::end(kFewAlong), most) != std::end(kFewAlong);
}
inline int64_t piece_of(Dtype dtype) { return 16 / static_cast<int64_t>(size_of(dtype)); }
struct RowsMicro {
  // Constants.
  bool out;
  int64_t pitch;
  // Buffers.
  BufferRef local, array;
  // Operands, int64.
  ExprId rows, columns, at, row, left;

  Micro micro() const;
  static RowsMicro of(const Micro& micro);
};

// For k < rows, j < columns:
//   to[to_at + (j / tile_columns)·to_panel + (k / g)·g·tile_columns + (j % tile_columns)·g + k % g]
//       = from[from_at + k·from_row + j]; 0 for k from rows up to a multiple of g.
// `from` may be a parameter that is read; nothing else is read or written.
struct PackMicro {
  // Constants.
  int64_t tile_columns, to_panel;
  // Buffers.
  BufferRef to, from;
  // Operands, int64.
  ExprId rows, columns, to_at, from_at, from_row;

  Micro micro() const;
  static PackMicro of(const Micro& micro);
};

// A few rows times b as it lies in memory, or packed in strips of columns: a parameter that is read or a Local, of
// the others' dtype or, for float32, of a half dtype; nothing of it outside depth x columns is read, but a whole strip
// or, along k, of `before` columns in front of b_at.
// For i < rows, j < columns:
//   c[c_at + (j / kPanelColumns)·rows·kPanelColumns + i·kPanelColumns + j % kPanelColumns] =
//       (add ? c[...] : 0)
//       + Σ_k<depth a[a_at + (k / d)·rows·d + i·d + k % d] · b[b_at + at(k, j)]
// with d = panel_depth_of(a), and at(k, j) = k·b_stride + j (along n), k + j·b_stride (along k; a is defined up to the
// next multiple of d, and 0 past depth) or (j / strip)·b_stride + k·strip + j % strip (in strips, which are as wide
// as panel_strip says). a and b may both be bfloat16. The order of the sum, and fma in it, are free. But for a b
// expected in memory it is one chain of multiply-adds along n, and along k where there is a vector of columns; in strips
// there is such a chain for each `piece` of k, which is added to what is before it.
inline constexpr int64_t kPanelColumns = 64, kPanelDepth = 16;
inline int64_t panel_depth_of(Dtype a) {
  return a == Dtype::bfloat16 ? 2 * kPanelDepth : kPanelDepth;
}
// Two vectors of the sums, whatever b is.
inline int64_t panel_strip(int64_t vector_bytes, Dtype c) {
  return 2 * vector_bytes / static_cast<int64_t>(size_of(c));
}
struct PanelMicro {
  enum class Lies : uint8_t { along_n, along_k, in_strips };
  Lies b_lies;  // the template: panel_n, panel_k or panel_strips
  // Constants.
  int64_t rows;
  bool from_memory;      // where b is expected, rather than in a cache; or its columns become lanes
  int64_t strip, piece;  // 1 where b does not lie in strips
  // Buffers.
  BufferRef c, a, b;
  // Operands, int64; add: not 0.
  ExprId columns, depth, c_at, a_at, b_at, b_stride, add, before;

  Micro micro() const;
  static PanelMicro of(const Micro& micro);
};

// The same sum as GemmMicro's with operands of bfloat16 and c of float32, in the order of the processor's
// tile instructions, or with operands each of int8 or uint8 and c of 4-byte integers. Each operand is the sum
// of `parts` such, the largest first; integers are one. With d = tile_depth_of(a), for i < rows, j < columns:
//   c[c_at + i·c_row + j] = (add ? c[...] : 0) + Σ_(x, y) Σ_k<depth
//         a[a_at + x·a_part + i·a_row + (k / d)·a_step + k % d]
//       · b[b_at + y·b_part + (j / kTileBlock)·b_panel + (k / g)·g·kTileBlock + (j % kTileBlock)·g + k % g]
// with (x, y) from products_of(parts). Of several parts the elements are pairs of bfloat16, uint32, the first
// one in the lower half: the places above, halved where they count two elements of k, are those of pairs, and
// k % 2 tells which half. a and b are 0 from depth up to a multiple of d. Of bfloat16, for each d of k,
// ascending, and each (x, y), two chains of fused multiply-adds start from 0, over the even and the odd k; the
// sum takes the sum of both. It starts from c where there is one part, else from 0, and c is added at the end.
// Every operation rounds to the nearest even, takes subnormal numbers as zeros and gives zeros for them. What
// is computed past the wanted rows and columns, up to a multiple of kTileSide or, of operands in several parts,
// kTileBlock, is left undefined. A may be a parameter that is read, of one part: rows are a multiple of kTileSide
// then and depth is one of d, and nothing else of it is read. A panel of b is fetched while the one before is
// multiplied; b_next: what follows the last one, or b_at: none is fetched. Of a parameter A, kTileBlock rows from
// a_next on are fetched meanwhile, or none if that is a_at.
inline constexpr int64_t kTileSide = 16, kTileBlock = 2 * kTileSide;
inline constexpr int64_t kTileRow = 64;     // bytes
inline constexpr int64_t kTiledRows = 256;  // of a block of A that stays in L2
struct TileGemmMicro {
  // Constants.
  int64_t parts, a_part, a_step, b_part, b_panel, c_row;
  // Buffers.
  BufferRef c, a, b;
  // Operands, int64; add: not 0; a_row: a constant if A is a Local.
  ExprId rows, columns, depth, c_at, a_at, b_at, b_next, a_row, add, a_next;

  Micro micro() const;
  static TileGemmMicro of(const Micro& micro);
};

// Which parts of a and b are multiplied, in order: small products first, and neighbours share a part.
// Left out is what is 2^-24 of the whole or less: float32 is three parts, float16 two.
struct PartPair {
  int a, b;
};
inline constexpr int kMaxParts = 3;
inline constexpr int64_t kPairedDepth = 32;  // of k in a tile of pairs of bfloat16
std::span<const PartPair> products_of(int64_t parts);

// g of what is packed for a product: of bfloat16 and narrow integers so many make up 4 bytes.
inline int64_t group_of(Dtype dtype) {
  if (dtype == Dtype::int8 || dtype == Dtype::uint8) return 4;
  return dtype == Dtype::bfloat16 || dtype == Dtype::int16 ? 2 : 1;
}
// How much of k a tile holds.
inline int64_t tile_depth_of(Dtype dtype) {
  return kTileRow / static_cast<int64_t>(size_of(dtype));
}

// Empty, or what is wrong with a template's constants, buffers or operands. Buffers must exist.
std::string fault_of(const Kernel& kernel, const Micro& micro);

}  // namespace cermet::ir
