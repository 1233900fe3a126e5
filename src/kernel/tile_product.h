// SPDX-License-Identifier: MIT
// What the writers of matrix products share: the parts of a kernel with Contracts and the roles of its
// axes. The operands are A (rows m) and B (columns n); k is summed.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "kernel/passes.h"
#include "kernel/tile_emit.h"

namespace cermet::ir {

// Which axes play which part. The axes of C are batch, m, n; every one but k is a batch axis if it
// is not in exactly one operand.
struct Roles {
  AxisId m = kNone, n = kNone, k = kNone;
  std::vector<AxisId> b_batch, a_batch;  // in B or in both; not in B

  // m, if there is one; only panels do without.
  std::vector<AxisId> rows() const { return m == kNone ? std::vector<AxisId>() : std::vector{m}; }
  AxisSet of_c() const { return set_of(b_batch) | set_of(a_batch) | set_of(rows()) | axis_bit(n); }
};

struct Product {
  const Contract* contract;
  ExprId a,
      b;  // of the source, as they are packed; of the accumulators' dtype where there are parts
};

// What sums are taken of: first <= k < past.
struct SumRange {
  ExprId first = kNone, past = kNone;
};

// Rows that follow each other and have one matrix B: B has the pseudo axis `at` for a row of theirs. Rows
// have one where the values that choose it are equal: `choices`, at that axis and at two others.
struct Runs {
  AxisId at = kNone, other = kNone, later = kNone;
  std::vector<ExprId> choices_at, choices_of_other, choices_of_later;
};

// The lines of a kernel: the products, what needs them, and all else.
struct Parts {
  std::vector<Line> contracts, epilogue, rest;
};

// An operand as it is in memory: a load, and the strides of its axes; kNoTerm: it does not have the axis.
inline constexpr int32_t kNoTerm = -2;
struct Place {
  ExprId load = kNone;
  int32_t free = kNoTerm, k = kNoTerm;
};
// nullopt: the operand is not a load alone, cast or not, of a parameter that is only read, in whose index
// each of the axes stands once.
std::optional<Place> place_of(Source& source, ExprId operand, AxisId free, AxisId k);

// Whether the operand lies along `axis`: more loads are contiguous there than along `other`.
bool lies_along(Source& source, ExprId operand, AxisId axis, AxisId other);

class ProductAnalysis {
 public:
  explicit ProductAnalysis(Source& source) : source_(source) {}

  // False: the kernel is not one that blocks or panels are made for.
  bool run();
  // From now on the operands are bfloat16, if all of them are values of that dtype.
  void take_bfloat16();
  // The same for operands of any value: each is the sum of several bfloat16.
  void take_parts();
  // From now on the operands are bytes or int16, if all of them are values that fit and the target
  // multiplies such.
  void take_integers(const TargetFacts& target);
  // From now on the products are made by another scheme, one for which rows of C lie along n in memory.
  void take_scheme(Scheme other);

  Parts parts;
  Roles roles;
  std::vector<Product> products;
  Scheme scheme = Scheme::fma;  // of all products
  // Of what is packed: that of the accumulators, bfloat16, or pairs of it (uint32).
  Dtype packed = Dtype::float32;
  int operand_parts = 1;              // what each operand is the sum of
  int64_t a_zero = 0;                 // what stands for 0 in A
  bool c_along_m = false;             // C is stored along m; only panels leave it so
  std::optional<SumRange> sum_range;  // or the whole of k
  std::optional<Runs> runs;           // or all rows have one matrix

 private:
  bool takes_bytes(const TargetFacts& target, std::vector<Product>& given);
  bool needs(const Line& line, bool (*wanted)(const Stmt&));
  bool is_cast_from(ExprId id, Dtype dtype);
  void sort(const Line& line);
  bool find_roles();
  void find_groups(const std::vector<AxisId>& stage);
  int stores_along(AxisId axis);
  void exchange();
  void find_batch();
  AxisSet range_of(const Line& line);

  Source& source_;
  std::vector<const Stmt*> makers_;
  AxisSet in_a_ = 0, in_b_ = 0;
  bool supported_ = true;
};

// Sizes in elements of what the template of a product works in.
struct Tiles {
  int64_t tile_rows, tile_columns, lanes;
  int64_t line;       // added to the rows of blocks: whole powers of two fall into one cache set
  int64_t group = 1;  // of what is packed: g of micro.h
  int64_t step = 1;   // of k: what is packed is 0 up to a multiple of it

  bool for_tile_instructions() const { return step > group; }
  int64_t packed_row() const { return tile_columns * group; }
};
// Whether what is packed is multiplied by tile instructions. (columns: so many at most; 0: unknown.)
bool takes_tiles(Dtype acc, Dtype packed, const TargetFacts& target);
Tiles tiles_of(Dtype acc, Dtype packed, const TargetFacts& target, int64_t columns = 0);

struct GemmMicro;
struct TileGemmMicro;

// Writes loops over blocks of a kernel's axes, and packs operands.
class BlockWriter {
 protected:
  BlockWriter(Source& source, Emitter& out) : source_(source), out_(out), to_(out.to()) {}

  // A tile of an axis.
  struct Range {
    ExprId begin, end;
  };

  ExprId integer(int64_t v) { return out_.integer(v); }
  ExprId variable(AxisId axis) { return to_.axis_ref(axis); }
  Range range_of(ExprId index, int64_t tile, AxisId axis);
  Range range_of(ExprId index, ExprId tile, AxisId axis);
  AxisId open(ForKind kind, AxisId axis, Range range);
  ExprId length_of(Range range) { return out_.let(to_.sub(range.end, range.begin)); }
  // (at - begin) · row: where a row of a block begins.
  ExprId row_at(ExprId at, ExprId begin, int64_t row) {
    return to_.mul(to_.sub(at, begin), integer(row));
  }
  // Magnitudes of what is packed, as bits. Of each row of A (column of B) in a block the largest one counts:
  // `range` holds from `at` on the largest and the least, but zeros, of these.
  struct Peaks {
    LocalId range = kNone;
    ExprId at = kNone;
    LocalId inner = kNone;  // where lanes run along rows (columns): the peak of each, from 0 on
  };
  // What is packed: an expression of the source; or, of a float32 one, several bfloat16 whose sum it is, the
  // parts, in pairs.
  struct Packed {
    Packed(ExprId value) : expr(value) {}
    Packed(ExprId value, int64_t count, Peaks where) : expr(value), parts(count), peaks(where) {}
    ExprId expr;
    int64_t parts = 1;
    Peaks peaks = {};
  };
  // A pair holds the parts at t and t + distance of k, counted from the block's begin; those from `both` up
  // to `count` have none at the second place, where 0 stands for it. The distance is half the depth in whole
  // steps of tile instructions: so two vectors along k make one, and no lane moves.
  struct Pairs {
    ExprId distance, both, count;
  };
  Pairs pairs_of(Range k);
  // The parts of two values, in pairs: each part is the bfloat16 nearest to what the ones before leave.
  // second_half: the bits of a pair that are of the second value.
  std::vector<ExprId> parts_of(ExprId first, ExprId second, ExprId second_half, int64_t count);
  // Stores pair t at `at` of each place, in a loop whose lanes run along `lane` if that is not k. Gives the
  // larger one's magnitude_bits.
  ExprId store_pair(const Packed& from, LocalId to, const std::vector<ExprId>& places, ExprId at,
                    AxisId k_axis, ExprId k, ExprId distance, ExprId second_half,
                    AxisId lane = kNone, ExprId lane_at = kNone);
  // The bits of its magnitude, int32: ordered as the magnitudes, infinity and NaN above all.
  ExprId magnitude_bits(ExprId made);
  static constexpr int64_t kNoMagnitude = std::numeric_limits<int32_t>::max();
  // Peaks from `largest` down to `least` are of the range, too.
  void widen(LocalId range, ExprId at, ExprId largest, ExprId least);
  ExprId least_of(ExprId peak);  // itself; kNoMagnitude if it is 0

  // Stores the operand's block outer x inner into rows of the Local, along the inner axis; parts lie
  // `part` elements apart. So many zeros follow each row.
  struct Rows {
    LocalId local;
    ExprId base;  // or kNone: 0
    int64_t row;
    int64_t part = 0;
    int64_t zeros = 0;
  };
  void copy(const Packed& from, const Rows& to, AxisId outer, Range outer_range, AxisId inner,
            Range inner_range);
  // The same of pairs: rows of the free axis along k, and rows of pairs (the range `t`) along the free axis.
  void copy_pairs(const Packed& from, const Rows& to, AxisId free, Range free_range, AxisId k_axis,
                  Range k);
  void copy_pair_rows(const Packed& from, const Rows& to, AxisId k_axis, Range k, Range t,
                      AxisId free, Range free_range);
  // What a row of pairs is: all of it has two values, or all has one.
  struct PairRow {
    ExprId distance, second_half;
  };
  PairRow pair_row(const Pairs& pairs, ExprId t);
  // In a loop along the rows' free axis.
  void store_peak(const Peaks& peaks, Range free_range, ExprId at, ExprId bits);

  // Packs the block k x n of B, k no longer than `depth` (of pairs: twice that), into panels of tile_columns
  // from `base` on; the parts of a panel follow each other.
  struct Panels {
    LocalId local;
    ExprId base;
    int64_t depth;
    int64_t columns = 0;  // no more than these
  };
  // Row by row of B, each to its places in the panels; where rows lie in groups, some rows at a time
  // through the thread's Local `strip`.
  void pack_panels(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis, Range k,
                   AxisId n_axis, Range n, LocalId strip = kNone);
  void pack_pairs(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis, Range k,
                  AxisId n_axis, Range n);
  void pack_groups(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis, Range k,
                   AxisId n_axis, Range n, LocalId strip);
  // The same of an operand that lies along n in memory, all rows at once.
  void pack_in_place(const Tiles& tiles, const Place& place, Panels to, AxisId k_axis, Range k,
                     AxisId n_axis, Range n);
  // Strips of a few columns: along k into the thread's Local `strip`, from there transposed.
  void pack_transposed(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis, Range k,
                       AxisId n_axis, Range n, LocalId strip);
  static int64_t strip_rows(const Tiles& tiles) {
    return std::min(std::max(tiles.line, tiles.lanes), tiles.tile_columns);
  }
  static int64_t strip_size(const Tiles& tiles, int64_t depth) {
    return strip_rows(tiles) * (depth + tiles.line);
  }
  // For each of `rows` rows, 0 to the elements [begin, end) of it.
  void clear(LocalId local, ExprId base, int64_t row, ExprId rows, ExprId begin, ExprId end);
  // The block m x k of an operand that lies along m in memory, into rows along k.
  void pack_turned(const Tiles& tiles, const Packed& from, const Rows& to, AxisId k_axis, Range k,
                   AxisId m_axis, Range m, int64_t strip_row, LocalId strip);
  static constexpr int64_t kGroupedRows = 16;  // of a strip on its way into groups
  static int64_t group_strip_size(const Tiles& tiles, int64_t columns) {
    return kGroupedRows * (columns + tiles.line);
  }

  // Where the operand's element at these places of its axes is, in elements of its buffer.
  ExprId first_of(const Place& place, AxisId free, ExprId free_at, AxisId k, ExprId k_at);
  ExprId stride(int32_t stride) { return stride == kUnit ? integer(1) : to_.stride_ref(stride); }

  // The same product by tile instructions, of operands in one part; nothing is fetched ahead.
  static TileGemmMicro by_tiles(const Tiles& tiles, const GemmMicro& product);

  // Row-major number of indices, each below its count.
  struct Digit {
    ExprId index, count;
  };
  ExprId number(const std::vector<Digit>& digits);
  ExprId tiles(AxisId axis, int64_t tile) {
    return out_.let(out_.ceil_div(to_.extent(axis), tile));
  }

  static std::vector<GridDim> each_of(const std::vector<AxisId>& axes);
  void bind_each(const std::vector<AxisId>& axes, const std::vector<ExprId>& indices);

  // A Store or Check of the source.
  void write(const Line& line);

  Source& source_;
  Emitter& out_;
  Builder& to_;
};

// What writers of products do alike.
class ProductWriter : protected BlockWriter {
 protected:
  ProductWriter(Source& source, const ProductAnalysis& analysis, Emitter& out)
      : BlockWriter(source, out), roles_(analysis.roles), analysis_(analysis) {}

  Dtype acc() const { return analysis_.products[0].contract->acc; }

  // Loops over the axes that only the epilogue has; gives how many.
  int open_further_axes();
  // What follows the products, in a loop over n, with their sums.
  void write_epilogue(const std::vector<ExprId>& sums);

  const Roles& roles_;
  const ProductAnalysis& analysis_;
};

// Appends the products' entry points.
void write_gemm(Source& source, const ProductAnalysis& analysis, const TargetFacts& target,
                Emitter& out);
bool panels_take_pairs(Source& source, const ProductAnalysis& analysis);  // for a dot instruction
void write_panels(Source& source, const ProductAnalysis& analysis, const TargetFacts& target,
                  Emitter& out);

// Products of products (tile_attention.cpp), and how they are made; nullopt: the kernel is not such.
std::optional<Kernel> tile_attention(const Kernel& kernel, const TargetFacts& target);
std::optional<Scheme> scheme_of_chain(const Kernel& kernel, const TargetFacts& target);

}  // namespace cermet::ir
