// SPDX-License-Identifier: MIT
// Blocks of a product's operands: where they are packed and how, and the templates that multiply them.
// Shared by the loops of a product (tile_gemm.cpp), which choose the blocks.
#pragma once

#include <optional>
#include <vector>

#include "kernel/micro.h"
#include "kernel/tile_product.h"

namespace cermet::ir {

// Sizes in elements of what is packed, `depth` in those of k. A packed block of B (depth x columns, in
// panels of tile_columns) stays in L2 while a thread takes the blocks of C below each other; one panel, and
// tile_rows of A, stay in L1.
struct Blocking : Tiles {
  int64_t rows, columns, depth;
  int64_t parts;                     // of each operand
  int64_t packed_columns = columns;  // that an item packs, of B packed whole
  int64_t packed_depth = depth;      // of k, likewise

  int64_t stored_depth() const { return parts > 1 ? depth / 2 : depth; }
  int64_t b_part() const { return stored_depth() * tile_columns; }
  int64_t b_panel() const { return b_part() * parts; }
  int64_t b_block() const { return stored_depth() * columns * parts; }
  int64_t c_row() const { return columns + (for_tile_instructions() ? line / group : line); }
};

inline int64_t round_up(int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; }

class OperandBlocks : BlockWriter {
 public:
  using BlockWriter::Range;

  // What is read where it lies, unpacked.
  struct InPlace {
    bool a, b;
  };
  OperandBlocks(Source& source, const ProductAnalysis& analysis, Emitter& out,
                const Blocking& blocking, InPlace in_place, Dtype packed);

  // All operands A can be read in place: rows of their own, along k, of the dtype.
  static bool can_be_in_place(Source& source, const ProductAnalysis& analysis, Dtype packed);
  // All operands B can: rows along n, of the dtype.
  static bool can_read_rows(Source& source, const ProductAnalysis& analysis, Dtype packed);

  // The Locals; those of an operand hold `whole` if given, one block else.
  void declare(const std::optional<Size>& whole_b, const std::optional<Size>& whole_a);

  // The columns of B from `base` on, in a block that begins there or before. `range`: where their range of
  // magnitudes is, among those of B packed whole.
  void pack_b(ExprId base, Range n, Range k, ExprId range = kNone);
  void pack_a(Range m, Range k);
  // Rows of A along k, the first element at `base`, of an A that is packed whole.
  void pack_whole_a(ExprId base, Range m, Range k);
  int64_t whole_a_block() const { return round_up(size_.rows, size_.lanes) * a_row(); }
  // Onto c[i] from c_at on, or in its place if `add` is 0: product i of the block of A and the one of B.
  // b_next: the block of B that is wanted next, or b_at. next_row: where rows of an A that is read in place are.
  // a_at: where the block of an A that is packed whole is.
  void multiply(const std::vector<LocalId>& c, int64_t c_row, Range m, Range n, Range k,
                ExprId b_at, ExprId b_next, ExprId c_at, ExprId add, ExprId next_row = kNone,
                ExprId a_at = kNone);

  // For operands in parts: ranges of magnitudes, of A's block, of B's, and for B packed whole of all that
  // items pack. They begin empty.
  static constexpr int64_t kRange = 2;  // elements of each
  void declare_ranges(const std::optional<Size>& whole);
  void clear_ranges();
  // Adds those of B packed whole, `count` from `first` on, to the block's.
  void add_ranges(ExprId first, ExprId count);
  // Whether they lie outside what gives float32's own error: int64, 0 or 1.
  ExprId are_unfit();

 private:
  // With a place: A is read there, B packed from there as it is.
  struct Operand {
    ExprId expr;
    Dtype dtype;   // packed
    bool along_k;  // how it lies in memory
    LocalId local = kNone;
    Place place = {};
  };
  bool is_tiled() const { return size_.for_tile_instructions(); }
  bool in_parts() const { return size_.parts > 1; }
  LocalId local(Dtype dtype, int64_t elements);
  void declare_operand(std::vector<Operand>& list, ExprId expr, AxisId free);
  void find_rows(Operand& operand, AxisId free);
  void need_strip(const Operand& operand, int64_t columns);
  LocalId strip_of(const Operand& operand) const {
    return operand.dtype == b_[0].dtype ? strip_ : a_strip_;
  }
  Packed packed(const Operand& operand, LocalId range, ExprId at);
  // Around the packing of an operand that lies along its free axis.
  void clear_peaks(const Operand& operand, Range range);
  void add_peaks(const Operand& operand, const Packed& from, Range range);
  void clear_range(LocalId range, ExprId at);
  void pack_operand(const Operand& operand, const Packed& from, const Tiles& tiles, Panels to,
                    Range k, AxisId free, Range range);
  void pack_rows(const Operand& a, const Packed& from, Range m, Range k);
  ExprId up_to(ExprId n, int64_t multiple);
  // Elements of k that are packed, and what the template takes: 0 from the former up to the latter.
  std::pair<ExprId, ExprId> packed_of(Range k, int64_t group);
  TileGemmMicro by_tiles(const GemmMicro& m, ExprId b_next) const;
  void put_in_place(GemmMicro& micro, const Operand& a, Range m, Range k);
  ExprId element_of(const Operand& a, ExprId m, ExprId k);
  void multiply_in_place(const GemmMicro& micro, const Operand& a, Range m, Range k, ExprId b_next,
                         ExprId next_row);

  int64_t a_row() const { return size_.stored_depth() + size_.line; }  // along k
  int64_t a_part() const { return size_.rows * a_row(); }              // for tile instructions
  int64_t turned_row() const { return size_.rows + size_.line; }  // along m, before it is turned
  // Of a row along m: whole vectors, if templates fill it.
  int64_t a_width() const {
    return size_.group == 1 ? size_.rows : round_up(size_.rows, size_.lanes);
  }

  const ProductAnalysis& analysis_;
  const Roles& roles_;
  const Blocking size_;
  const bool in_place_, b_in_place_;
  const Dtype packed_;
  std::vector<Operand> a_, b_;
  LocalId strip_ = kNone, a_strip_ = kNone, peaks_ = kNone;
  LocalId a_range_ = kNone, b_range_ = kNone, b_ranges_ = kNone;
  int64_t strip_elements_ = 0;
  bool whole_a_ = false;
};

}  // namespace cermet::ir
