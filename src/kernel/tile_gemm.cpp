// SPDX-License-Identifier: MIT
// Kernels with Contracts as blocked matrix products. By scheme:
//
// fma          If A lies along k in memory it is read in place. Items make blocks of C: they pack their block
//              of the operand that lanes run along (B), multiply block by block over k, and run what
//              follows the Contract on the finished block. Any other A is packed too, which pays for
//              wider blocks: an entry point before packs B whole, into a Local of the kernel. So is any A with
//              vectors below 64 bytes, past whose narrow panels it goes often: rows that lie far apart
//              fall out of L2.
// fma_tall     Large products: higher blocks of fewer columns, with longer pieces of k, so that B is packed less
//              often; fewer of A's rows are in L2 meanwhile. Items go through some blocks of columns before the next
//              rows: A comes from memory once for all of these. It is read in place, or an entry point before packs
//              it whole, in rows along k.
// fma_local    Items pack both operands, so that packed B stays in L2. It is packed once for each block
//              below another: for products of few rows. Where A is read in place, as with fma, it is fewer rows
//              to an item: for products that would be one item else. Of many small products B is read in place
//              as well, with fma, too.
// fma_split_k  So does this, for pieces of k; a last entry point adds the pieces up. For few rows and columns
//              with long sums, which would be too few blocks.
//
// Operands of bfloat16 and narrow integers stay so where the processor multiplies them: in pairs or fours of k
// by its dot instruction (dot_bf16, dot_int8, dot_int16), or by its tile instructions (amx_bf16, amx_int8).
// For these both operands are packed, into larger blocks that stay in L2: a panel of B lies in L1, rows of A
// go past it. Integers that no instruction takes are multiplied in the accumulators' dtype.
//
// amx_panel: of such operands, few columns (B) beside an A that lies along k. A is read once and in place, at
// the rate of memory; B is packed whole. C has few columns, and is turned if it is stored along m.
//
// amx_split, _local, _k: float32 operands as sums of bfloat16 parts, by tile instructions; float16 ones
// likewise. Packing notes the largest magnitudes; where they lie outside what the parts can hold
// (infinity, NaN, the ends of the exponent), the item makes its block of C once more as fma_local would.
// Figures of speed and error: docs/fast_code.md.
//
// What stands before the Contract is computed while packing, so it costs no pass over memory.
//
// Items that pack both operands also make products by groups (tile_groups.h): over parts of k, and run by
// run of rows that have one matrix B.
//
// C is stored contiguously along n, or along m with the roles of the operands exchanged. A is
// packed as it lies, in rows along k or columns along m. Products without m or n are bound by
// memory: folds.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "kernel/micro.h"
#include "kernel/rebuild.h"
#include "kernel/text.h"
#include "kernel/tile.h"
#include "kernel/tile_blocks.h"
#include "kernel/tile_forms.h"
#include "kernel/tile_product.h"

namespace cermet::ir {

namespace {

constexpr int64_t kBlockRows = 48;      // about so many rows of C has an item
constexpr int64_t kBlockBytes = 1024;   // of a row of an item's block of C
constexpr int64_t kPanelBytes = 32768;  // of B: it stays in L1
constexpr int64_t kMaxDepth = 256;      // of k between two visits to C
constexpr int64_t kNarrowRows =
    72;  // as kBlockRows, with vectors below 64 bytes: a panel of B is so
constexpr int64_t kNarrowDepth = 384;  // narrow that A goes past it often, from L2; as kMaxDepth
constexpr int64_t kLocalRows = 256;    // as kBlockRows, of items that pack both operands
constexpr int64_t kLocalBytes = 1536;  // as kBlockBytes; C, A and B of an item stay in L2
constexpr int64_t kPlaceBytes = 512;   // as kBlockBytes, of items that read A in place
constexpr int64_t kPlaceRows = 66;  // as kBlockRows, of these where they are to be many (fma_local)
constexpr int64_t kPlaceDepth = 384;  // as kMaxDepth, of these
constexpr int64_t kTallRows = 516;    // as kBlockRows, of fma_tall
constexpr int64_t kTallBytes = 256;   // as kBlockBytes, of it: one panel of B, which stays in L2
constexpr int64_t kTallDepth = 512;   // as kMaxDepth, of it
constexpr int64_t kTallGroup = 4;     // blocks of columns that its items take before other rows
constexpr int64_t kShortSum = 384;    // of k, for which the lines between blocks of C matter
constexpr int64_t kSharedRow =
    64;  // elements of a B that another thread packed, read in the time of such a line
constexpr int64_t kTallPack = 128;  // of k that an item of it packs of A; kTallDepth is a multiple
constexpr int64_t kPiece = 512;     // of k that an item of a split sum takes
constexpr int64_t kTiledPiece = 1024;   // the same, of operands in parts
constexpr int64_t kTiledColumns = 512;  // of a block for tile instructions
constexpr int64_t kTiledLocal = 256;    // the same, of items that pack both operands
constexpr int64_t kTiledDepth = 1024;   // bytes of k
constexpr int64_t kSplitDepth = 128;    // of k, of operands in parts: no chain is longer
constexpr int64_t kTiledPack = 128;     // columns of it that an item packs
constexpr int64_t kPanelRows = 128, kPanelBlock = 128;  // of A, columns of B that an item takes
constexpr int64_t kPanelSum = 4096;  // as kTiledDepth: rows of A are long streams
constexpr int64_t kPanelPack = 512;  // of k that an item packs

// B is packed whole.
bool is_whole(Scheme scheme) {
  return scheme == Scheme::fma || scheme == Scheme::amx_split || scheme == Scheme::amx_panel;
}

Blocking blocking_of(Scheme scheme, bool in_place, int parts, Dtype acc, Dtype packed,
                     const TargetFacts& target, int64_t most_columns) {
  const bool local = in_place || !is_whole(scheme);
  const int64_t size = static_cast<int64_t>(size_of(acc));
  const Tiles tiles = tiles_of(acc, packed, target, most_columns);
  if (scheme == Scheme::amx_panel)
    return {tiles, kPanelRows, kPanelBlock, kPanelSum, 1, kTileBlock, kPanelPack};
  if (tiles.for_tile_instructions()) {
    const int64_t columns = local ? kTiledLocal : kTiledColumns;
    return {tiles,   kTiledRows,
            columns, parts > 1 ? kSplitDepth : kTiledDepth / static_cast<int64_t>(size_of(packed)),
            parts,   local ? columns : kTiledPack};
  }
  if (scheme == Scheme::fma_tall)
    return {tiles, round_up(kTallRows, tiles.tile_rows), kTallBytes / size, kTallDepth, 1};
  const bool narrow = !local && target.vector_bytes < 64;
  const int64_t bytes = in_place ? kPlaceBytes : local ? kLocalBytes : kBlockBytes;
  const int64_t depth =
      std::min(narrow ? kNarrowDepth : kMaxDepth, kPanelBytes / (tiles.tile_columns * size));
  const int64_t rows = narrow                                    ? kNarrowRows
                       : !local                                  ? kBlockRows
                       : in_place && scheme == Scheme::fma_local ? kPlaceRows
                                                                 : kLocalRows;
  return {tiles, round_up(rows, tiles.tile_rows), bytes / size,
          (in_place ? kPlaceDepth : depth) * tiles.group, 1};
}

// What makes a block of C again that the parts cannot.
Blocking blocking_again(const Blocking& parts, Dtype acc, const TargetFacts& target) {
  Blocking again = blocking_of(Scheme::fma_local, false, 1, acc, acc, target, 0);
  again.rows = round_up(parts.rows, again.tile_rows);
  again.columns = again.packed_columns = parts.columns;
  return again;
}

bool is_float(Dtype dtype) { return dtype == Dtype::float32 || dtype == Dtype::float64; }

// --- As folds.

// The axes of a stage with a Contract as a fold: if the matrix lies along its free axis, that axis
// comes last and k is folded serially.
std::vector<AxisId> fold_stage(Source& source, const Line& line, Order& order) {
  const Contract& contract = std::get<Contract>(*line.stmt);
  std::vector<AxisId> axes = line.stage;
  order = Order::lanes;
  if (contract.axes.size() != 1 || axes.size() < 2) return axes;
  const AxisId k = contract.axes[0];
  std::erase(axes, k);
  const AxisId free = axes.back();
  const AxisSet in_a = source.axes(contract.a) & axis_bit(free);
  if (!lies_along(source, in_a != 0 ? contract.a : contract.b, free, k)) return line.stage;
  order = Order::serial;
  axes.insert(axes.end() - 1, k);
  return axes;
}

Fold fold_of(Builder& to, const Contract& contract, Order order, bool fma) {
  const Dtype dtype = contract.acc;
  const ExprId zero = to.constant(dtype, 0), state = to.state(0, dtype);
  const ExprId a = to.cast(contract.a, dtype), b = to.cast(contract.b, dtype);
  const ExprId step = fma && is_float(dtype) ? to.fma(a, b, state) : to.add(state, to.mul(a, b));
  return {contract.value,
          contract.axes,
          Emit::last,
          order,
          {{dtype, zero, step, to.add(state, to.other(0, dtype))}}};
}

Kernel with_folds(const Kernel& kernel, bool fma) {
  Source source(kernel);
  Rebuilder rebuilder(kernel);
  for (const Line& line : source.lines()) {
    For stage{.kind = ForKind::stage, .axes = line.stage};
    Stmt made = rebuilder(*line.stmt);
    if (const Contract* contract = std::get_if<Contract>(&made)) {
      Order order;
      stage.axes = fold_stage(source, line, order);
      made = fold_of(rebuilder.to(), Contract(*contract), order, fma);
    }
    stage.body.push_back(std::move(made));
    rebuilder.to().kernel().body.push_back(std::move(stage));
  }
  return rebuilder.take();
}

// --- As blocks.

// Tiles of large products are read many times, from where they fill cache sets evenly; with narrow vectors
// all rows are.
bool reads_in_place(const ProductAnalysis& analysis, const TargetFacts& target) {
  const Dtype acc = analysis.products[0].contract->acc;
  if (!takes_tiles(acc, analysis.packed, target))
    return target.vector_bytes >= 64 || analysis.scheme != Scheme::fma;
  if (analysis.scheme == Scheme::amx_panel) return true;
  return analysis.packed == Dtype::bfloat16 && !is_whole(analysis.scheme);
}

// Of many small products each B is read by few rows: packing it would take as long as they do. What lies past its
// columns is masked, for which vectors of 64 bytes have registers of their own. Rows of B that lie far apart share few
// sets of a cache: they are not read again and again.
bool reads_b_in_place(Source& source, const ProductAnalysis& analysis, const TargetFacts& target) {
  constexpr int64_t kFewRows = 16;
  const Roles& roles = analysis.roles;
  const Dtype acc = analysis.products[0].contract->acc;
  const int64_t rows = source.kernel().axes[roles.m].most;
  const bool is_narrow = is_short(source.kernel().axes[roles.n]);
  const bool is_fma = analysis.scheme == Scheme::fma || analysis.scheme == Scheme::fma_local;
  return is_fma && target.vector_bytes >= 64 && analysis.packed == acc &&
         analysis.operand_parts == 1 && !analysis.runs && !roles.b_batch.empty() && rows > 0 &&
         (is_narrow || rows <= kFewRows) && OperandBlocks::can_read_rows(source, analysis, acc);
}

class GemmWriter : ProductWriter {
 public:
  GemmWriter(Source& source, const ProductAnalysis& analysis, const TargetFacts& target,
             Emitter& out)
      : ProductWriter(source, analysis, out),
        in_place_(reads_in_place(analysis, target) &&
                  OperandBlocks::can_be_in_place(source, analysis, analysis.packed)),
        b_in_place_(reads_b_in_place(source, analysis, target)),
        size_(blocking_of(b_in_place_ ? Scheme::fma_local : analysis.scheme, in_place_,
                          analysis.operand_parts, acc(), analysis.packed, target,
                          source.kernel().axes[analysis.roles.n].most)),
        blocks_(source, analysis, out, size_, {in_place_, b_in_place_}, analysis.packed) {
    if (in_parts()) {
      const bool in_place = OperandBlocks::can_be_in_place(source, analysis, acc());
      again_size_ = blocking_again(size_, acc(), target);
      again_.emplace(source, analysis, out, *again_size_, OperandBlocks::InPlace{in_place, false},
                     acc());
    }
  }

  void run() {
    declare();
    if (!is_local()) pack_b();
    if (packs_whole_a()) pack_whole_a();
    multiply();
    if (is_split()) add_pieces();
  }

 private:
  bool is_panel() const { return analysis_.scheme == Scheme::amx_panel; }
  bool is_local() const {
    return !is_panel() && (in_place_ || b_in_place_ || !is_whole(analysis_.scheme));
  }
  bool packs_whole_a() const { return analysis_.scheme == Scheme::fma_tall && !in_place_; }
  bool is_split() const {
    return analysis_.scheme == Scheme::fma_split_k || analysis_.scheme == Scheme::amx_split_k;
  }
  int64_t piece_depth() const { return in_parts() ? kTiledPiece : kPiece; }
  bool in_parts() const { return size_.parts > 1; }

  void declare() {
    for (size_t i = 0; i < analysis_.products.size(); ++i)
      c_.push_back(is_split() ? pieces() : local(c_block()));
    const auto whole = [&](int64_t block) {
      return is_local() ? std::nullopt : std::optional(of_blocks_of_b(block));
    };
    if (analysis_.c_along_m)
      for (size_t i = 0; i < c_.size(); ++i) turned_.push_back(local(size_.columns * turned_row()));
    blocks_.declare(whole(size_.b_block()),
                    packs_whole_a() ? std::optional(of_blocks_of_a()) : std::nullopt);
    if (!in_parts()) return;
    blocks_.declare_ranges(whole(parts_of_block() * OperandBlocks::kRange));
    again_->declare(std::nullopt, std::nullopt);
  }

  int64_t turned_row() const { return size_.rows + size_.line / size_.group; }
  // A run of rows may begin anywhere: the last tile of the last one goes past the block.
  int64_t c_block() const {
    const Blocking& most = again_size_ ? *again_size_ : size_;
    const int64_t past = std::max(size_.tile_rows, most.tile_rows);
    return (most.rows + (analysis_.runs ? past : 0)) * size_.c_row();
  }
  LocalId local(int64_t elements) {
    return to_.local(acc(), {.constant = elements, .terms = {}}, LocalScope::thread);
  }

  // So much for each block of B.
  Size of_blocks_of_b(int64_t block) const {
    Size whole{.constant = block, .terms = {}};
    for (AxisId axis : roles_.b_batch) whole.terms.push_back({axis, 1});
    whole.terms.push_back({roles_.n, size_.columns});
    whole.terms.push_back({roles_.k, size_.depth});
    return whole;
  }

  // The same of A.
  Size of_blocks_of_a() {
    Size whole{.constant = blocks_.whole_a_block(), .terms = {}};
    for (AxisId axis : batch_of_a()) whole.terms.push_back({axis, 1});
    whole.terms.push_back({roles_.m, size_.rows});
    whole.terms.push_back({roles_.k, size_.depth});
    return whole;
  }
  // Axes of the batch that an operand A has.
  std::vector<AxisId> batch_of_a() {
    std::vector<AxisId> batch = roles_.b_batch;
    batch.insert(batch.end(), roles_.a_batch.begin(), roles_.a_batch.end());
    AxisSet axes = 0;
    for (const Product& p : analysis_.products) axes |= source_.axes(p.a);
    std::erase_if(batch, [&](AxisId axis) { return (axes & axis_bit(axis)) == 0; });
    return batch;
  }

  // Blocks of C, once for each piece of k.
  LocalId pieces() {
    Size whole{.constant = c_block(), .terms = {{roles_.k, piece_depth()}}};
    for (const GridDim& dim : blocks_of(size_.rows).dims)
      whole.terms.push_back({dim.axes[0], dim.tile});
    return to_.local(acc(), whole, LocalScope::kernel);
  }

  // The number of the packed block (n, k) of B.
  ExprId block_of_b(const std::vector<ExprId>& batch, ExprId n_block, ExprId k_block) {
    std::vector<Digit> digits;
    for (size_t i = 0; i < batch.size(); ++i)
      digits.push_back({batch[i], to_.extent(roles_.b_batch[i])});
    digits.push_back({n_block, tiles(roles_.n, size_.columns)});
    digits.push_back({k_block, tiles(roles_.k, size_.depth)});
    return out_.let(number(digits));
  }
  ExprId times(ExprId block, int64_t size) { return out_.let(to_.mul(block, integer(size))); }

  void pack_b() {
    std::vector<GridDim> dims = each_of(roles_.b_batch);
    dims.push_back({{roles_.n}, size_.packed_columns});
    dims.push_back({{roles_.k}, size_.packed_depth});
    std::vector<ExprId> at = out_.open_chunk(kPackEntry, dims);
    const ExprId k_part = at.back(), n_part = at[at.size() - 2];
    at.resize(at.size() - 2);
    ExprId k_block = k_part, k_skipped = integer(0);
    if (const int64_t pieces = size_.depth / size_.packed_depth; pieces > 1) {
      k_block = out_.let(to_.div(k_part, integer(pieces)));
      const ExprId piece = to_.rem(k_part, integer(pieces));
      k_skipped = out_.let(to_.mul(piece, integer(size_.packed_depth * size_.tile_columns)));
    }
    bind_each(roles_.b_batch, at);
    const bool in_parts_of_blocks = size_.packed_columns < size_.columns;
    const ExprId packed = in_parts_of_blocks ? integer(size_.packed_columns) : block_columns();
    const Range n = range_of(n_part, packed, roles_.n);
    const Range k = range_of(k_part, size_.packed_depth, roles_.k);
    const ExprId parts = out_.let(to_.div(block_columns(), packed));
    const ExprId block = block_of_b(at, to_.div(n_part, parts), k_block);
    const ExprId skipped = out_.let(to_.mul(to_.rem(n_part, parts), packed));
    const ExprId columns_skipped = to_.mul(skipped, integer(size_.stored_depth() * size_.parts));
    const ExprId base = to_.add(to_.add(times(block, size_.b_block()), columns_skipped), k_skipped);
    const ExprId range = to_.add(times(block, parts_of_block()), to_.rem(n_part, parts));
    blocks_.pack_b(out_.let(base), n, k, in_parts() ? times(range, OperandBlocks::kRange) : kNone);
    out_.close();
  }

  // So many items pack a block of B, or fewer.
  int64_t parts_of_block() const { return size_.columns / size_.packed_columns; }

  // Of blocks of an axis: they are of about one size, `most` or less, in whole units.
  ExprId even(AxisId axis, int64_t most, int64_t unit) {
    if (is_split()) return integer(most);
    const ExprId count = tiles(axis, most), total = to_.extent(axis);
    const ExprId each = to_.div(to_.sub(to_.add(total, count), integer(1)), count);
    // The limit is said as well, for the estimate of the work in a block.
    return out_.let(to_.min(to_.mul(out_.ceil_div(each, unit), integer(unit)), integer(most)));
  }
  ExprId block_columns() {
    const bool whole = size_.packed_columns == size_.columns;
    return even(roles_.n, size_.columns, whole ? size_.tile_columns : size_.packed_columns);
  }

  // The blocks of C. Consecutive ones share a block of B, or of A (see group_columns).
  struct Block {
    std::vector<GridDim> dims;
    std::vector<ExprId> b_batch = {}, a_batch = {};
    ExprId n = kNone, m = kNone;
  };
  Block blocks_of(int64_t rows) const {
    std::vector<GridDim> dims = each_of(roles_.b_batch);
    dims.push_back({{roles_.n}, size_.columns});
    for (const GridDim& dim : each_of(roles_.a_batch)) dims.push_back(dim);
    dims.push_back({{roles_.m}, rows});
    return {std::move(dims)};
  }
  // `at`: the indices in the dims.
  void enter(Block& block, std::span<const ExprId> at) {
    const size_t batch = roles_.b_batch.size();
    block.b_batch.assign(at.begin(), at.begin() + static_cast<ptrdiff_t>(batch));
    block.n = at[batch];
    block.a_batch.assign(at.begin() + static_cast<ptrdiff_t>(batch) + 1, at.end() - 1);
    block.m = at.back();
    bind_each(roles_.b_batch, block.b_batch);
    bind_each(roles_.a_batch, block.a_batch);
  }

  // Where the packed block (m, k) of A begins, at the point of the batch that is bound.
  ExprId block_of_a(ExprId m_block, ExprId k_block) {
    std::vector<Digit> digits;
    for (AxisId axis : batch_of_a())
      digits.push_back({out_.expr(source_.builder().axis_ref(axis)), to_.extent(axis)});
    digits.push_back({m_block, tiles(roles_.m, size_.rows)});
    digits.push_back({k_block, tiles(roles_.k, size_.depth)});
    return times(number(digits), blocks_.whole_a_block());
  }
  Range rows_of(ExprId m_block) {
    return range_of(m_block, even(roles_.m, size_.rows, size_.tile_rows), roles_.m);
  }

  // Not kPackEntry: A is another one at each use.
  void pack_whole_a() {
    const std::vector<AxisId> batch = batch_of_a();
    std::vector<GridDim> dims = each_of(batch);
    dims.push_back({{roles_.m}, size_.rows});
    dims.push_back({{roles_.k}, kTallPack});
    std::vector<ExprId> at = out_.open_chunk("pack_a", dims);
    const ExprId k_part = at.back(), m_block = at[at.size() - 2];
    at.resize(batch.size());
    bind_each(batch, at);
    const ExprId pieces = integer(size_.depth / kTallPack);  // of a block
    const ExprId first = block_of_a(m_block, out_.let(to_.div(k_part, pieces)));
    const ExprId skipped = to_.mul(to_.rem(k_part, pieces), integer(kTallPack));
    blocks_.pack_whole_a(out_.let(to_.add(first, skipped)), rows_of(m_block),
                         range_of(k_part, kTallPack, roles_.k));
    out_.close();
  }

  void multiply() {
    Block block = blocks_of(size_.rows);
    std::vector<GridDim> dims = block.dims;
    if (is_split()) dims.insert(dims.begin(), {{roles_.k}, piece_depth()});
    const std::vector<ExprId> at = out_.open_chunk("gemm", dims);
    enter(block, std::span(at).last(block.dims.size()));
    const bool is_tall = analysis_.scheme == Scheme::fma_tall;
    if (roles_.a_batch.empty() && (is_tall || (roles_.b_batch.empty() && !is_split())))
      group_columns(block, is_tall ? kTallGroup : 1);
    const Range n = range_of(block.n, block_columns(), roles_.n);
    const Range m = rows_of(block.m);
    const Range sum = is_split() ? range_of(at[0], piece_depth(), roles_.k) : whole_sum();
    const ExprId c_at = is_split() ? piece_at(at[0], block, block.m) : integer(0);
    if (analysis_.runs) {
      const Range run = open_run(*analysis_.runs, m);
      const ExprId skipped = row_at(run.begin, m.begin, size_.c_row());
      multiply_block(block, run, n, sum, out_.let(skipped));
      out_.close();
      out_.close();
    } else {
      multiply_block(block, m, n, sum, c_at);
    }
    if (!turned_.empty()) {
      turned_epilogue(m, n);
    } else if (!is_split()) {
      epilogue(m, n, integer(0), kNone);
    }
    out_.close();
  }

  // Items in another order: through `group` blocks of columns, or what is left of them, before the next rows; through
  // all of them where sums are short and rows of C are no whole tiles: threads would share the lines between theirs. A B
  // that is packed before, by columns as well, then comes from both threads' caches.
  void group_columns(Block& block, int64_t group) {
    const ExprId rows = tiles(roles_.m, size_.rows), columns = tiles(roles_.n, size_.columns);
    const ExprId item = out_.let(to_.add(to_.mul(block.n, rows), block.m));
    ExprId is_short = to_.compare(Code::le, to_.extent(roles_.k), integer(kShortSum));
    if (!is_local()) {
      const ExprId packed = to_.mul(to_.extent(roles_.n), to_.extent(roles_.k));
      const ExprId shared = to_.mul(to_.extent(roles_.m), integer(kSharedRow));
      is_short = to_.logical_and(is_short, to_.compare(Code::lt, packed, shared));
    }
    const ExprId rest = to_.rem(to_.extent(roles_.n), integer(size_.tile_columns));
    const ExprId shares = to_.logical_and(is_short, to_.compare(Code::lt, integer(0), rest));
    const ExprId most = out_.let(to_.select(shares, columns, integer(group)));
    const ExprId items = out_.let(to_.mul(rows, most));  // of a group
    const ExprId first = out_.let(to_.mul(to_.div(item, items), most));
    const ExprId wide = out_.let(to_.min(most, to_.sub(columns, first)));
    const ExprId within = out_.let(to_.rem(item, items));
    block.m = out_.let(to_.div(within, wide));
    block.n = out_.let(to_.add(first, to_.rem(within, wide)));
  }

  Range whole_sum() {
    const ExprId all = to_.extent(roles_.k);
    if (!analysis_.sum_range) return {integer(0), all};
    const ExprId first = to_.max(out_.expr(analysis_.sum_range->first), integer(0));
    const ExprId begin = out_.let(to_.min(first, all));
    const ExprId past = to_.min(out_.expr(analysis_.sum_range->past), all);
    return {begin, out_.let(to_.max(begin, past))};
  }

  // A loop over the rows, and one in it that runs once where a run of rows with one matrix begins.
  Range open_run(const Runs& runs, Range m) {
    const auto differ = [&](const std::vector<ExprId>& others) {
      ExprId any = kNone;
      for (size_t i = 0; i < others.size(); ++i) {
        const ExprId one =
            to_.compare(Code::ne, out_.expr(runs.choices_at[i]), out_.expr(others[i]));
        any = any == kNone ? one : to_.op(Code::bit_or, Dtype::boolean, {any, one});
      }
      return any;
    };
    const AxisId row = out_.open_loop(ForKind::serial, m.begin, m.end, "row");
    out_.bind(runs.at, variable(row));
    out_.bind(runs.other, out_.let(to_.max(to_.sub(variable(row), integer(1)), m.begin)));
    const ExprId is_first =
        to_.op(Code::bit_or, Dtype::boolean,
               {to_.compare(Code::eq, variable(row), m.begin), differ(runs.choices_of_other)});
    const ExprId begins = out_.let(to_.cast(is_first, Dtype::int64));
    out_.open_loop(ForKind::serial, integer(0), begins, "run");
    const AxisId later = out_.open_loop(ForKind::lane, variable(row), m.end, "later");
    out_.bind(runs.later, variable(later));
    const ExprId past = to_.select(differ(runs.choices_of_later), variable(later), m.end);
    const ExprId least = to_.state(0, Dtype::int64);
    const ValueId end = to_.value({Dtype::int64}, "end");
    out_.append(Fold{
        end,
        {later},
        Emit::last,
        Order::lanes,
        {{Dtype::int64, m.end, to_.min(least, past), to_.min(least, to_.other(0, Dtype::int64))}}});
    out_.close();
    return {variable(row), to_.ref(end)};
  }

  void multiply_block(const Block& block, Range m, Range n, Range sum, ExprId c_at) {
    if (in_parts()) blocks_.clear_ranges();
    const AxisId step = open_depth(sum, size_.depth);
    const Range k = depth_of(step, sum, size_.depth);
    ExprId b_at = integer(0), b_next = b_at;
    if (is_local()) {
      blocks_.pack_b(b_at, n, k);
    } else {
      b_at = times(block_of_b(block.b_batch, block.n, variable(step)), size_.b_block());
      b_next = is_panel() ? b_at : out_.let(to_.add(b_at, integer(size_.b_block())));
    }
    blocks_.pack_a(m, k);
    if (is_panel()) {
      multiply_rows(m, n, k, b_at, variable(step));
    } else {
      const ExprId a_at = packs_whole_a() ? block_of_a(block.m, variable(step)) : kNone;
      blocks_.multiply(c_, size_.c_row(), m, n, k, b_at, b_next, c_at, variable(step), kNone, a_at);
    }
    out_.close();
    if (in_parts()) multiply_again(block, m, n, sum, c_at);
  }

  // Rows of A in order, each with all columns while it is in L2. Those of the next one are fetched meanwhile.
  void multiply_rows(Range m, Range n, Range k, ExprId b_at, ExprId add) {
    const ExprId blocks = out_.let(out_.ceil_div(length_of(m), size_.tile_rows));
    const AxisId i = out_.open_loop(ForKind::serial, integer(0), blocks, "row_block");
    const ExprId skipped = out_.let(to_.mul(variable(i), integer(size_.tile_rows)));
    const ExprId begin = out_.let(to_.add(m.begin, skipped));
    const Range rows = {begin, out_.let(to_.min(to_.add(begin, integer(size_.tile_rows)), m.end))};
    const ExprId c_at = out_.let(to_.mul(skipped, integer(size_.c_row())));
    const ExprId is_last = to_.compare(Code::le, to_.extent(roles_.m), rows.end);
    const ExprId next_row = out_.let(to_.select(is_last, begin, rows.end));
    blocks_.multiply(c_, size_.c_row(), rows, n, k, b_at, b_at, c_at, add, next_row);
    out_.close();
  }

  // A loop over the depth; at least one step, so that C is defined when k is empty.
  AxisId open_depth(Range sum, int64_t depth) {
    const ExprId steps = out_.ceil_div(to_.sub(sum.end, sum.begin), depth);
    return out_.open_loop(ForKind::serial, integer(0), out_.let(to_.max(steps, integer(1))),
                          "k_block");
  }
  Range depth_of(AxisId step, Range sum, int64_t depth) {
    const ExprId begin = out_.let(to_.add(sum.begin, to_.mul(variable(step), integer(depth))));
    return {begin, out_.let(to_.min(to_.add(begin, integer(depth)), sum.end))};
  }

  void multiply_again(const Block& block, Range m, Range n, Range sum, ExprId c_at) {
    if (!is_local()) add_ranges(block, n);
    const ExprId unfit = blocks_.are_unfit();
    out_.open_loop(ForKind::serial, integer(0), unfit, "again");
    const AxisId step = open_depth(sum, again_size_->depth);
    const Range k = depth_of(step, sum, again_size_->depth);
    again_->pack_b(integer(0), n, k);
    again_->pack_a(m, k);
    again_->multiply(c_, size_.c_row(), m, n, k, integer(0), integer(0), c_at, variable(step));
    out_.close();
    out_.close();
  }

  // Of what items packed of the columns n, over the whole depth.
  void add_ranges(const Block& block, Range n) {
    const ExprId depth = tiles(roles_.k, size_.depth);
    const AxisId k = out_.open_loop(ForKind::serial, integer(0), depth, "k_block");
    const ExprId first = block_of_b(block.b_batch, block.n, variable(k));
    blocks_.add_ranges(times(first, parts_of_block()),
                       out_.let(out_.ceil_div(length_of(n), size_.packed_columns)));
    out_.close();
  }

  // Where the piece of a block of C begins.
  ExprId piece_at(ExprId piece, const Block& block, ExprId m_block) {
    std::vector<Digit> digits = {{piece, tiles(roles_.k, piece_depth())}};
    for (size_t i = 0; i < block.b_batch.size(); ++i)
      digits.push_back({block.b_batch[i], to_.extent(roles_.b_batch[i])});
    digits.push_back({block.n, tiles(roles_.n, size_.columns)});
    for (size_t i = 0; i < block.a_batch.size(); ++i)
      digits.push_back({block.a_batch[i], to_.extent(roles_.a_batch[i])});
    digits.push_back({m_block, tiles(roles_.m, size_.rows)});
    return times(number(digits), c_block());
  }

  // A few rows of C: the further pieces onto the first one, then what follows.
  void add_pieces() {
    const int64_t groups = size_.rows / size_.tile_rows;
    Block block = blocks_of(size_.tile_rows);
    enter(block, out_.open_chunk("sum", block.dims));
    const Range n = range_of(block.n, size_.columns, roles_.n);
    const Range m = range_of(block.m, size_.tile_rows, roles_.m);
    const ExprId m_block = to_.op(Code::div, Dtype::int64, {block.m, integer(groups)});
    const ExprId group = to_.op(Code::rem, Dtype::int64, {block.m, integer(groups)});
    const ExprId skipped = to_.mul(group, integer(size_.tile_rows * size_.c_row()));
    const ExprId whole = piece_at(integer(0), block, m_block);
    const ExprId distance = out_.let(to_.sub(piece_at(integer(1), block, m_block), whole));
    const ExprId first = out_.let(to_.add(whole, skipped));
    const AxisId p =
        out_.open_loop(ForKind::serial, integer(1), tiles(roles_.k, piece_depth()), "piece");
    const AxisId i = out_.open_loop(ForKind::serial, m.begin, m.end, "row");
    const ExprId row = out_.let(to_.add(first, row_at(variable(i), m.begin, size_.c_row())));
    const ExprId to_row = out_.let(to_.sub(row, n.begin));
    const ExprId from_row = out_.let(to_.add(to_row, to_.mul(variable(p), distance)));
    for (LocalId c : c_) {
      const AxisId j = out_.open_loop(ForKind::lane, n.begin, n.end, "column");
      const Index to = {{to_row, kUnit}, {variable(j), kUnit}};
      const Index from = {{from_row, kUnit}, {variable(j), kUnit}};
      out_.append(
          Store{{true, c}, to, to_.add(to_.load({true, c}, to), to_.load({true, c}, from))});
      out_.close();
    }
    out_.close();
    out_.close();
    epilogue(m, n, first, out_.let(to_.compare(Code::lt, integer(0), to_.extent(roles_.k))));
    out_.close();
  }

  // `mask`: kNone, or whether the sums are there; else they are 0.
  void epilogue(Range m, Range n, ExprId c_at, ExprId mask) {
    const int around = open_further_axes();
    const AxisId i = open(ForKind::serial, roles_.m, m);
    const ExprId place = to_.add(c_at, row_at(variable(i), m.begin, size_.c_row()));
    const ExprId row = out_.let(to_.sub(place, n.begin));
    const AxisId j = open(ForKind::lane, roles_.n, n);
    const ExprId other = mask == kNone ? kNone : to_.constant(acc(), 0);
    std::vector<ExprId> sums;
    for (LocalId c : c_)
      sums.push_back(to_.load({true, c}, {{row, kUnit}, {variable(j), kUnit}}, mask, other));
    write_epilogue(sums);
    for (int loops = around + 2; loops > 0; --loops) out_.close();
  }

  // The same along m.
  void turned_epilogue(Range m, Range n) {
    for (size_t c = 0; c < c_.size(); ++c)
      out_.append(TransposeMicro{.tile = size_.lanes,
                                 .to_row = turned_row(),
                                 .from_row = size_.c_row(),
                                 .group = 1,
                                 .to = {true, turned_[c]},
                                 .from = {true, c_[c]},
                                 .rows = length_of(m),
                                 .columns = length_of(n),
                                 .to_at = integer(0),
                                 .from_at = integer(0)}
                      .micro());
    const int around = open_further_axes();
    const AxisId j = open(ForKind::serial, roles_.n, n);
    const ExprId row = out_.let(to_.sub(row_at(variable(j), n.begin, turned_row()), m.begin));
    const AxisId i = open(ForKind::lane, roles_.m, m);
    std::vector<ExprId> sums;
    for (LocalId c : turned_)
      sums.push_back(to_.load({true, c}, {{row, kUnit}, {variable(i), kUnit}}));
    write_epilogue(sums);
    for (int loops = around + 2; loops > 0; --loops) out_.close();
  }

  const bool in_place_, b_in_place_;
  const Blocking size_;
  OperandBlocks blocks_;
  std::optional<Blocking> again_size_;  // for operands in parts
  std::optional<OperandBlocks> again_;
  std::vector<LocalId> c_, turned_;  // by product
};

// The kernel with these lines, and the Lets, alone.
Kernel only(const Kernel& kernel, const std::vector<Line>& wanted) {
  Rebuilder rebuilder(kernel);
  for (const Stmt& stmt : kernel.body) {
    const For& stage = std::get<For>(stmt);
    For kept{.kind = ForKind::stage, .axes = stage.axes};
    for (const Stmt& inner : stage.body) {
      const auto is_inner = [&](const Line& line) { return line.stmt == &inner; };
      if (std::holds_alternative<Let>(inner) || std::ranges::any_of(wanted, is_inner))
        kept.body.push_back(rebuilder(inner));
    }
    rebuilder.to().kernel().body.push_back(std::move(kept));
  }
  return rebuilder.take();
}

// As what the operands are multiplied.
void take_operands(Source& source, ProductAnalysis& analysis, const TargetFacts& target) {
  constexpr std::pair<Scheme, Scheme> kInParts[] = {{Scheme::amx_split, Scheme::fma},
                                                    {Scheme::amx_split_local, Scheme::fma_local},
                                                    {Scheme::amx_split_k, Scheme::fma_split_k}};
  Scheme& scheme = analysis.scheme;
  // Pieces of the sum that differ from item to item are not packed for all of them.
  if (analysis.sum_range) {
    const bool in_parts = scheme == Scheme::amx_split || scheme == Scheme::amx_split_local ||
                          scheme == Scheme::amx_split_k;
    analysis.take_scheme(in_parts ? Scheme::amx_split_local : Scheme::fma_local);
  }
  if (scheme == Scheme::fma_wide) {
    scheme = Scheme::fma;
    return;
  }
  if (scheme == Scheme::fma_tall) {
    if (target.vector_bytes >= 64) return;
    scheme = Scheme::fma;
  }
  if (scheme == Scheme::amx_panel) {
    if (target.amx_bf16 && OperandBlocks::can_be_in_place(source, analysis, Dtype::bfloat16))
      analysis.take_bfloat16();
    if (analysis.packed == Dtype::bfloat16) return;
    analysis.take_scheme(Scheme::fma);
  }
  for (const auto& [in_parts, fused] : kInParts) {
    if (scheme != in_parts) continue;
    if (target.amx_bf16) return analysis.take_parts();
    scheme = fused;
  }
  if (is_panel(scheme)) {
    if (target.dot_bf16 && panels_take_pairs(source, analysis)) analysis.take_bfloat16();
    return;
  }
  if (target.dot_bf16 || target.amx_bf16) analysis.take_bfloat16();
  analysis.take_integers(target);
}

// How operands of the dtype `packed` are multiplied.
Scheme scheme_of_packed(Dtype acc, Dtype packed, const TargetFacts& target) {
  const bool tiles = takes_tiles(acc, packed, target);
  if (packed == Dtype::bfloat16) return tiles ? Scheme::amx_bf16 : Scheme::dot_bf16;
  if (packed == Dtype::int16) return Scheme::dot_int16;
  return tiles ? Scheme::amx_int8 : Scheme::dot_int8;
}

}  // namespace

std::string_view scheme_of(const Kernel& kernel, const TargetFacts& target) {
  if (!has_contract(kernel)) return "";
  Source source(kernel);
  ProductAnalysis analysis(source);
  if (!analysis.run()) {
    const std::optional<Scheme> chain = scheme_of_chain(kernel, target);
    return chain ? text_of(*chain) : "fold";
  }
  take_operands(source, analysis, target);
  const Dtype acc = analysis.products[0].contract->acc;
  const bool as_chosen = analysis.packed == acc || analysis.operand_parts > 1 ||
                         is_panel(analysis.scheme) || analysis.scheme == Scheme::amx_panel;
  return text_of(as_chosen ? analysis.scheme : scheme_of_packed(acc, analysis.packed, target));
}

void write_gemm(Source& source, const ProductAnalysis& analysis, const TargetFacts& target,
                Emitter& out) {
  GemmWriter(source, analysis, target, out).run();
}

Kernel tile_gemm(const Kernel& kernel, const TargetFacts& target) {
  Source source(kernel);
  ProductAnalysis analysis(source);
  if (!analysis.run()) {
    if (std::optional<Kernel> chained = tile_attention(kernel, target)) return std::move(*chained);
    Source folds(with_folds(kernel, target.fma));
    const Plan plan = plan_of(folds);
    return write_loops(folds, plan, target);
  }
  take_operands(source, analysis, target);
  const auto write = [&](Emitter out) {
    if (is_panel(analysis.scheme)) {
      write_panels(source, analysis, target, out);
    } else {
      write_gemm(source, analysis, target, out);
    }
    return out.take();
  };
  if (analysis.parts.rest.empty()) return write(Emitter(source));
  Source rest(only(source.kernel(), analysis.parts.rest));
  const Plan plan = plan_of(rest);
  return write(Emitter(source, write_loops(rest, plan, target)));
}

}  // namespace cermet::ir
