// SPDX-License-Identifier: MIT
// Kernels with Contracts as blocked matrix products. By scheme:
//
// fma          If A lies along k in memory it is read in place. Items make blocks of C: they pack their block
//              of the operand that lanes run along (B), multiply block by block over k, and run what
//              follows the Contract on the finished block. Any other A is packed too, which pays for
//              wider blocks: an entry point before packs B whole, into a Local of the kernel.
// fma_local    Items pack both operands, so that packed B stays in L2. It is packed once for each block
//              below another: for products of few rows.
// fma_split_k  So does this, for pieces of k; a last entry point adds the pieces up. For few rows and columns
//              with long sums, which would be too few blocks.
//
// Operands of bfloat16 stay so where the processor multiplies them: in pairs of k by its dot instruction
// (dot_bf16), or by its tile instructions (amx_bf16). For these both operands are packed, into larger
// blocks that stay in L2: a panel of B lies in L1, rows of A go past it.
//
// What stands before the Contract is computed while packing, so it costs no pass over memory.
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
#include "kernel/tile_forms.h"
#include "kernel/tile_product.h"

namespace cermet::ir {

namespace {

constexpr int64_t kBlockRows = 48;      // about so many rows of C has an item
constexpr int64_t kBlockBytes = 1024;   // of a row of an item's block of C
constexpr int64_t kPanelBytes = 32768;  // of B: it stays in L1
constexpr int64_t kMaxDepth = 256;      // of k between two visits to C
constexpr int64_t kLocalRows = 256;     // as kBlockRows, of items that pack both operands
constexpr int64_t kLocalBytes = 1536;   // as kBlockBytes; C, A and B of an item stay in L2
constexpr int64_t kPlaceBytes = 512;    // as kBlockBytes, of items that read A in place
constexpr int64_t kPlaceDepth = 384;    // as kMaxDepth, of these
constexpr int64_t kPiece = 512;         // of k that an item of a split sum takes
constexpr int64_t kTiledColumns = 512;  // of a block for tile instructions
constexpr int64_t kTiledDepth = 512;
constexpr int64_t kTiledPack = 128;  // columns of it that an item packs

// Sizes in elements. A packed block of B (depth x columns, in panels of tile_columns) stays in L2
// while a thread takes the blocks of C below each other; one panel, and tile_rows of A, stay in L1.
struct Blocking : Tiles {
  int64_t rows, columns, depth;
  int64_t packed_columns = columns;  // that an item packs, of B packed whole

  int64_t b_panel() const { return depth * tile_columns; }
  int64_t b_block() const { return depth * columns; }
  int64_t c_row() const { return columns + (for_tile_instructions() ? line / group : line); }
};

int64_t round_up(int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; }

Blocking blocking_of(Scheme scheme, bool in_place, Dtype acc, Dtype packed,
                     const TargetFacts& target) {
  const bool local = in_place || scheme != Scheme::fma;
  const int64_t size = static_cast<int64_t>(size_of(acc));
  const Tiles tiles = tiles_of(acc, packed, target);
  if (tiles.for_tile_instructions())
    return {tiles, kTiledRows, kTiledColumns, kTiledDepth, kTiledPack};
  const int64_t bytes = in_place ? kPlaceBytes : local ? kLocalBytes : kBlockBytes;
  const int64_t depth = std::min(kMaxDepth, kPanelBytes / (tiles.tile_columns * size));
  return {tiles, round_up(local ? kLocalRows : kBlockRows, tiles.tile_rows), bytes / size,
          (in_place ? kPlaceDepth : depth) * tiles.group};
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

// One operand. With a place: A is read there, B packed from there as it is.
struct Operand {
  ExprId expr;
  LocalId local;
  bool along_k;  // how it lies in memory
  Place place = {};
};

// All operands A can be read in place: rows of their own, along k.
bool is_in_place(Source& source, const ProductAnalysis& analysis) {
  const Roles& roles = analysis.roles;
  return std::ranges::all_of(analysis.products, [&](const Product& p) {
    const std::optional<Place> place = place_of(source, p.a, roles.m, roles.k);
    return place && source[place->load].dtype == analysis.packed && place->k == kUnit &&
           place->free != kNoTerm;
  });
}

bool takes_tiles(const ProductAnalysis& analysis, const TargetFacts& target) {
  return analysis.packed == Dtype::bfloat16 && target.amx_bf16;
}

class GemmWriter : ProductWriter {
 public:
  GemmWriter(Source& source, const ProductAnalysis& analysis, const TargetFacts& target,
             Emitter& out)
      : ProductWriter(source, analysis, out),
        in_place_(!takes_tiles(analysis, target) && is_in_place(source, analysis)),
        size_(blocking_of(analysis.scheme, in_place_, acc(), analysis.packed, target)) {}

  void run() {
    declare();
    if (!is_local()) pack_b();
    multiply();
    if (is_split()) add_pieces();
  }

 private:
  bool is_local() const { return in_place_ || analysis_.scheme != Scheme::fma; }
  bool is_tiled() const { return size_.for_tile_instructions(); }
  bool is_split() const { return analysis_.scheme == Scheme::fma_split_k; }

  void declare() {
    for (const Product& p : analysis_.products) {
      declare_operand(b_, p.b, roles_.n);
      declare_operand(a_, p.a, roles_.m);
      c_.push_back(is_split() ? pieces() : local(acc(), c_block()));
    }
    for (Operand& b : b_) {
      b.local = is_local() ? local(packed(), size_.b_block()) : packed_whole();
      find_rows(b, roles_.n);
      need_strip(b, size_.columns);
    }
    for (Operand& a : a_) {
      if (in_place_) {
        a.place = *place_of(source_, a.expr, roles_.m, roles_.k);
        continue;
      }
      a.local =
          local(packed(), a.along_k || is_tiled() ? size_.rows * a_row() : size_.depth * a_width());
      if (is_tiled() && !a.along_k)
        strip_elements_ = std::max(strip_elements_, size_.step * turned_row());
      if (a.along_k || size_.group == 1 || is_tiled()) continue;
      find_rows(a, roles_.m);
      need_strip(a, size_.rows);
    }
    if (strip_elements_ > 0) strip_ = local(packed(), strip_elements_);
  }

  // Whether rows of the operand along `free` can be packed from where they lie.
  void find_rows(Operand& operand, AxisId free) {
    const std::optional<Place> place = place_of(source_, operand.expr, free, roles_.k);
    if (place && source_[place->load].dtype == packed() && place->free == kUnit &&
        place->k != kNoTerm)
      operand.place = *place;
  }
  void need_strip(const Operand& operand, int64_t columns) {
    if (operand.place.load != kNone) return;
    const int64_t elements = operand.along_k   ? strip_size(size_, size_.depth)
                             : size_.group > 1 ? group_strip_size(size_, columns)
                                               : 0;
    strip_elements_ = std::max(strip_elements_, elements);
  }

  void declare_operand(std::vector<Operand>& list, ExprId expr, AxisId free) {
    const auto same = [&](const Operand& p) { return p.expr == expr; };
    if (std::ranges::any_of(list, same)) return;
    const bool by_default = free == roles_.m;
    const bool along_k = lies_along(source_, expr, roles_.k, free) ||
                         (by_default && !lies_along(source_, expr, free, roles_.k));
    list.push_back({expr, kNone, along_k});
  }

  int64_t c_block() const { return size_.rows * size_.c_row(); }

  LocalId packed_whole() {
    Size whole{.constant = size_.b_block(), .terms = {}};
    for (AxisId axis : roles_.b_batch) whole.terms.push_back({axis, 1});
    whole.terms.push_back({roles_.n, size_.columns});
    whole.terms.push_back({roles_.k, size_.depth});
    return to_.local(packed(), whole, LocalScope::kernel);
  }

  // Blocks of C, once for each piece of k.
  LocalId pieces() {
    Size whole{.constant = c_block(), .terms = {{roles_.k, kPiece}}};
    for (const GridDim& dim : blocks_of(size_.rows).dims)
      whole.terms.push_back({dim.axes[0], dim.tile});
    return to_.local(acc(), whole, LocalScope::kernel);
  }

  LocalId local(Dtype dtype, int64_t elements) {
    return to_.local(dtype, {.constant = elements, .terms = {}}, LocalScope::thread);
  }

  int64_t a_row() const { return size_.depth + size_.line; }      // along k
  int64_t turned_row() const { return size_.rows + size_.line; }  // along m, before it is turned
  // Of a row along m: whole vectors, if templates fill it.
  int64_t a_width() const {
    return size_.group == 1 ? size_.rows : round_up(size_.rows, size_.lanes);
  }
  Dtype packed() const { return analysis_.packed; }

  // Where the packed block (n, k) of B begins.
  ExprId block_at(const std::vector<ExprId>& batch, ExprId n_block, ExprId k_block) {
    std::vector<Digit> digits;
    for (size_t i = 0; i < batch.size(); ++i)
      digits.push_back({batch[i], to_.extent(roles_.b_batch[i])});
    digits.push_back({n_block, tiles(roles_.n, size_.columns)});
    digits.push_back({k_block, tiles(roles_.k, size_.depth)});
    return out_.let(to_.mul(number(digits), integer(size_.b_block())));
  }

  void pack_b() {
    std::vector<GridDim> dims = each_of(roles_.b_batch);
    dims.push_back({{roles_.n}, size_.packed_columns});
    dims.push_back({{roles_.k}, size_.depth});
    std::vector<ExprId> at = out_.open_chunk("pack", dims);
    const ExprId k_block = at.back(), n_part = at[at.size() - 2];
    at.resize(at.size() - 2);
    bind_each(roles_.b_batch, at);
    const Range n = range_of(n_part, size_.packed_columns, roles_.n);
    const Range k = range_of(k_block, size_.depth, roles_.k);
    pack_block(part_at(at, n_part, k_block), n, k);
    out_.close();
  }

  // Where the columns that an item packs begin.
  ExprId part_at(const std::vector<ExprId>& batch, ExprId n_part, ExprId k_block) {
    const int64_t parts = size_.columns / size_.packed_columns;
    if (parts == 1) return block_at(batch, n_part, k_block);
    const ExprId block = block_at(batch, to_.div(n_part, integer(parts)), k_block);
    const ExprId part = to_.rem(n_part, integer(parts));
    return out_.let(to_.add(block, to_.mul(part, integer(size_.packed_columns * size_.depth))));
  }

  void pack_block(ExprId base, Range n, Range k) {
    for (const Operand& b : b_) {
      pack_operand(b, size_, {b.local, base, size_.depth, size_.columns}, k, roles_.n, n);
      if (!is_tiled()) continue;
      const ExprId begin = up_to(length_of(k), size_.group), end = up_to(length_of(k), size_.step);
      const ExprId panels = out_.let(out_.ceil_div(length_of(n), size_.tile_columns));
      clear(b.local, base, size_.b_panel(), panels,
            out_.let(to_.mul(begin, integer(size_.tile_columns))),
            out_.let(to_.mul(end, integer(size_.tile_columns))));
    }
  }

  // The next multiple.
  ExprId up_to(ExprId n, int64_t multiple) {
    return out_.let(to_.mul(out_.ceil_div(n, multiple), integer(multiple)));
  }

  void pack_operand(const Operand& operand, const Tiles& tiles, Panels to, Range k, AxisId free,
                    Range range) {
    if (operand.place.load != kNone) {
      pack_in_place(tiles, operand.place, to, roles_.k, k, free, range);
    } else if (operand.along_k) {
      pack_transposed(tiles, operand.expr, to, roles_.k, k, free, range, strip_);
    } else {
      pack_panels(tiles, operand.expr, to, roles_.k, k, free, range, strip_);
    }
  }

  // A block of A: as it lies, but in groups; for tile instructions along k.
  void pack_a(const Operand& a, Range m, Range k) {
    if (is_tiled()) {
      if (a.along_k) copy(a.expr, a.local, kNone, a_row(), roles_.m, m, roles_.k, k);
      else
        pack_turned(size_, a.expr, a.local, a_row(), roles_.k, k, roles_.m, m, turned_row(),
                    strip_);
      clear(a.local, integer(0), a_row(), length_of(m), length_of(k),
            up_to(length_of(k), size_.step));
    } else if (a.along_k) {
      copy(a.expr, a.local, kNone, a_row(), roles_.m, m, roles_.k, k);
    } else if (size_.group > 1) {
      Tiles one_panel = size_;
      one_panel.tile_columns = a_width();
      pack_operand(a, one_panel, {a.local, integer(0), size_.depth, size_.rows}, k, roles_.m, m);
    } else {
      copy(a.expr, a.local, kNone, size_.rows, roles_.k, k, roles_.m, m);
    }
  }

  // The blocks of C. Consecutive ones share a block of B.
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

  void multiply() {
    Block block = blocks_of(size_.rows);
    std::vector<GridDim> dims = block.dims;
    if (is_split()) dims.insert(dims.begin(), {{roles_.k}, kPiece});
    const std::vector<ExprId> at = out_.open_chunk("gemm", dims);
    enter(block, std::span(at).last(block.dims.size()));
    const Range n = range_of(block.n, size_.columns, roles_.n);
    const Range m = range_of(block.m, size_.rows, roles_.m);
    const Range sum =
        is_split() ? range_of(at[0], kPiece, roles_.k) : Range{integer(0), to_.extent(roles_.k)};
    const ExprId c_at = is_split() ? piece_at(at[0], block, block.m) : integer(0);

    // At least one step, so that C is defined when k is empty.
    const ExprId steps = out_.ceil_div(to_.sub(sum.end, sum.begin), size_.depth);
    const AxisId step = out_.open_loop(ForKind::serial, integer(0),
                                       out_.let(to_.max(steps, integer(1))), "k_block");
    const ExprId begin =
        out_.let(to_.add(sum.begin, to_.mul(variable(step), integer(size_.depth))));
    const Range k = {begin, out_.let(to_.min(to_.add(begin, integer(size_.depth)), sum.end))};
    ExprId b_at = integer(0);
    if (is_local()) {
      pack_block(b_at, n, k);
    } else {
      b_at = block_at(block.b_batch, block.n, variable(step));
    }
    for (const Operand& a : a_)
      if (!in_place_) pack_a(a, m, k);
    multiply_blocks(m, n, k, b_at, c_at, variable(step));
    out_.close();
    if (!is_split()) epilogue(m, n, integer(0), kNone);
    out_.close();
  }

  // Where the piece of a block of C begins.
  ExprId piece_at(ExprId piece, const Block& block, ExprId m_block) {
    std::vector<Digit> digits = {{piece, tiles(roles_.k, kPiece)}};
    for (size_t i = 0; i < block.b_batch.size(); ++i)
      digits.push_back({block.b_batch[i], to_.extent(roles_.b_batch[i])});
    digits.push_back({block.n, tiles(roles_.n, size_.columns)});
    for (size_t i = 0; i < block.a_batch.size(); ++i)
      digits.push_back({block.a_batch[i], to_.extent(roles_.a_batch[i])});
    digits.push_back({m_block, tiles(roles_.m, size_.rows)});
    return out_.let(to_.mul(number(digits), integer(c_block())));
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
    const AxisId p = out_.open_loop(ForKind::serial, integer(1), tiles(roles_.k, kPiece), "piece");
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

  void multiply_blocks(Range m, Range n, Range k, ExprId b_at, ExprId c_at, ExprId step) {
    const ExprId rows = out_.let(to_.sub(m.end, m.begin));
    const ExprId columns = out_.let(to_.sub(n.end, n.begin));
    const ExprId depth = out_.let(to_.sub(k.end, k.begin));
    for (size_t i = 0; i < c_.size(); ++i) {
      const Product& p = analysis_.products[i];
      const Operand& a = *std::ranges::find(a_, p.a, &Operand::expr);
      const Operand& b = *std::ranges::find(b_, p.b, &Operand::expr);
      GemmMicro micro{.tile_rows = size_.tile_rows,
                      .tile_columns = size_.tile_columns,
                      .a_column = a.along_k ? size_.group : a_width() * size_.group,
                      .b_panel = size_.b_panel(),
                      .c_row = size_.c_row(),
                      .c = {true, c_[i]},
                      .a = {true, a.local},
                      .b = {true, b.local},
                      .rows = rows,
                      .columns = columns,
                      .depth = depth,
                      .c_at = c_at,
                      .a_at = integer(0),
                      .b_at = b_at,
                      .a_row = integer(a.along_k ? a_row() : size_.group),
                      .add = step};
      if (in_place_) {
        micro.a = source_[a.place.load].buffer;
        micro.a_at = first_of(a.place, roles_.m, m.begin, roles_.k, k.begin);
        micro.a_column = size_.group;
        micro.a_row = stride(a.place.free);
      }
      out_.append(is_tiled() ? by_tiles(micro).micro() : micro.micro());
    }
  }

  // The same product of blocks that lie as tile instructions take them.
  TileGemmMicro by_tiles(const GemmMicro& m) const {
    return {.a_panel = size_.tile_rows * a_row(),
            .a_row = a_row(),
            .a_step = size_.step,
            .b_panel = m.b_panel,
            .c_row = m.c_row,
            .c = m.c,
            .a = m.a,
            .b = m.b,
            .rows = m.rows,
            .columns = m.columns,
            .depth = m.depth,
            .c_at = m.c_at,
            .a_at = m.a_at,
            .b_at = m.b_at,
            .add = m.add};
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

  const bool in_place_;
  const Blocking size_;
  std::vector<Operand> a_, b_;
  std::vector<LocalId> c_;  // by product
  LocalId strip_ = kNone;
  int64_t strip_elements_ = 0;
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
void take_operands(ProductAnalysis& analysis, const TargetFacts& target) {
  const bool takes = target.dot_bf16 || target.amx_bf16;
  if (takes && analysis.scheme != Scheme::panel) analysis.take_bfloat16();
}

}  // namespace

std::string_view scheme_of(const Kernel& kernel, const TargetFacts& target) {
  if (!has_contract(kernel)) return "";
  Source source(kernel);
  ProductAnalysis analysis(source);
  if (!analysis.run()) return chains_products(kernel) ? "fma" : "fold";
  take_operands(analysis, target);
  if (analysis.packed != Dtype::bfloat16) return text_of(analysis.scheme);
  return text_of(target.amx_bf16 ? Scheme::amx_bf16 : Scheme::dot_bf16);
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
  take_operands(analysis, target);
  const auto write = [&](Emitter out) {
    if (analysis.scheme == Scheme::panel) {
      write_panels(source, analysis, out);
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
