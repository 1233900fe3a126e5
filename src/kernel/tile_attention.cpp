// SPDX-License-Identifier: MIT
// Products of products, tile by tile: scores are made, turned into weights and summed with the other
// operand while they are in cache, so that memory grows with the length and not with its square.
//
// An item takes many rows of one batch entry (all of them where products run by columns) and packs the
// columns' operands once. For each block of rows: the first products fill strips, one row of scores each;
// passes over the rows run the folds and put weights in their place; the last products sum them. Strips
// hold whole rows, so a softmax needs no rescaling. What a mask hides on the right of a block is left out.
// Values over rows and columns that are results, or are summed over batches or rows to be such, go there from
// the last pass that makes them; an item that sums over batches takes them one after another.
//
// Operands of bfloat16 stay so where the processor multiplies them (as in tile_gemm.cpp); weights are then
// rounded to it on their way into strips of their own, and turned for products by columns.
#include <map>

#include "base/error.h"
#include "kernel/micro.h"
#include "kernel/rebuild.h"
#include "kernel/tile_chain.h"
#include "kernel/tile_forms.h"
#include "kernel/tile_limit.h"
#include "kernel/tile_passes.h"

namespace cermet::ir {

namespace {

constexpr int64_t kRows = 48;         // of a block; a multiple of any template's tile_rows
constexpr int64_t kRowsOnTiles = 64;  // the same, for tile instructions
constexpr int64_t kPassRows = 2;      // that a pass takes before the next one: they stay in L1
constexpr int64_t kItemRows = 1536;   // that share what an item packs; of both
constexpr int64_t kSummedRows = 192;  // the same, where batches are summed; of both
constexpr int64_t kChunk = 768;       // columns of a strip's piece: of 48 and of any tile_columns
constexpr int64_t kChunkOnTiles = 1536;  // the same, for tile instructions; of kChunk
constexpr int64_t kDepth = 64;           // of k in the first products
constexpr int64_t kDepthOnTiles = 128;   // the same, for tile instructions
constexpr int64_t kSumDepth = 128;       // of j in the last products: a panel of B stays in L1
constexpr int64_t kSumOnTiles = 384;     // the same, for tile instructions
constexpr int64_t kOutColumns = 64;      // of a block of the last products
constexpr int64_t kCacheLine = 64;       // bytes
constexpr int kForever = 1 << 20;        // past every pass

// A value over (i, j) that lies in a strip from pass `made_in` on.
struct Stripped {
  ExprId expr;
  int made_in, last_use;
  LocalId local = kNone;
};

class AttentionWriter : BlockWriter {
 public:
  AttentionWriter(ChainAnalysis& chain, const TargetFacts& target, Emitter& out)
      : BlockWriter(chain.source, out),
        chain_(chain),
        tiles_(tiles_of(chain.acc, chain.packed, target)),
        rows_(tiles_.for_tile_instructions() ? kRowsOnTiles : kRows),
        chunk_(tiles_.for_tile_instructions() ? kChunkOnTiles : kChunk),
        depth_(tiles_.for_tile_instructions() ? kDepthOnTiles : kDepth),
        sum_depth_(tiles_.for_tile_instructions() ? kSumOnTiles : kSumDepth),
        by_columns_(std::ranges::any_of(chain.last, &LastProduct::by_columns)),
        all_rows_(by_columns_ ||
                  std::ranges::any_of(
                      chain.sums,
                      [&](const TileSum& s) { return std::ranges::count(s.over, chain.i) > 0; })),
        masks_first_(std::ranges::any_of(chain.first, &FirstProduct::is_masked_first)),
        seen_(chain, out, rows_) {}

  void run() {
    plan_passes();
    declare();
    const int64_t item_rows = chain_.summed.empty() ? kItemRows : kSummedRows;
    std::vector<AxisId> batch = chain_.batch;
    std::erase_if(batch, [&](AxisId axis) { return std::ranges::count(chain_.summed, axis) > 0; });
    std::vector<GridDim> dims = each_of(batch);
    if (!all_rows_) dims.push_back({{chain_.i}, item_rows});
    const std::vector<ExprId> at = out_.open_chunk("attention", dims);
    bind_each(batch, at);
    const Range rows = all_rows_ ? whole(chain_.i) : range_of(at.back(), item_rows, chain_.i);
    for (const TileSum& s : chain_.sums)
      if (!s.over.empty()) begin_sum(s, rows);
    if (chain_.summed.empty()) return write_rows(rows);
    const ExprId count = out_.extent_of(chain_.summed);
    const AxisId summed = out_.open_loop(ForKind::serial, integer(0), count, "summed");
    out_.bind(chain_.summed, variable(summed));
    write_rows(rows);
    out_.close();
  }

 private:
  using Seen = SeenColumns::Seen;
  struct First {
    LocalId rows, columns, strip;  // rows: of a block; columns: all, in panels
    int last_use = -1;             // pass
  };
  struct Last {
    LocalId other, sums;
    size_t weights;  // in stripped_
  };
  struct FoldPass {
    const Fold* fold;
    int pass;
    std::vector<LocalId> rows = {};  // of its states
  };

  // Closes the loop that it is in.
  void write_rows(Range rows) {
    pack_columns(seen_.of(rows).by_any);
    const ExprId blocks = out_.let(out_.ceil_div(to_.sub(rows.end, rows.begin), rows_));
    const AxisId block = out_.open_loop(ForKind::serial, integer(0), blocks, "block");
    const ExprId begin = out_.let(to_.add(rows.begin, to_.mul(variable(block), integer(rows_))));
    write_block({begin, out_.let(to_.min(to_.add(begin, integer(rows_)), rows.end))});
    out_.close();
    for (size_t p = 0; p < chain_.last.size(); ++p)
      if (chain_.last[p].by_columns) finish(p, whole(chain_.j));
    out_.close();
  }

  // ---- What is made in which pass over the rows ----

  int pass_of(const std::vector<ExprId>& roots) {
    int pass = 0;
    source_.walk(roots, [&](ExprId id) {
      for (const FoldPass& f : folds_)
        if (source_[id].kind == ExprKind::ref && source_[id].id == f.fold->value)
          pass = std::max(pass, f.pass + 1);
      return true;
    });
    return pass;
  }

  // The plan of a row group, for what is to be kept from pass to pass.
  void plan_passes() {
    Plan plan;
    plan.maker.assign(source_.kernel().values.size(), -1);
    std::vector<AxisId> axes = chain_.batch;
    axes.insert(axes.end(), {chain_.i, chain_.j});
    Group group{.kind = GroupKind::row, .axes = axes, .rows = {chain_.j}};
    const auto add = [&](TaskKind kind, const Line& line, int pass) {
      group.tasks.push_back(static_cast<int>(plan.tasks.size()));
      plan.tasks.push_back(
          {.kind = kind, .line = line, .range = set_of(axes), .group = 0, .pass = pass});
    };
    for (const Line& line : chain_.folds) {
      const Fold& fold = std::get<Fold>(*line.stmt);
      folds_.push_back({&fold, pass_of(roots_of(*line.stmt))});
      plan.maker[fold.value] = static_cast<int>(plan.tasks.size());
      add(TaskKind::fold, line, folds_.back().pass);
      passes_ = std::max(passes_, folds_.back().pass + 1);
    }
    std::vector<Stmt> stores;
    stores.reserve(chain_.last.size() + chain_.sums.size());
    for (const LastProduct& p : chain_.last) {
      const int pass = pass_of({p.weights});
      passes_ = std::max(passes_, pass + 1);
      stores.emplace_back(Store{{}, {}, p.weights});
      add(TaskKind::store, {&stores.back(), axes, 0}, pass);
      weights_of(p.weights, pass);
    }
    for (const TileSum& s : chain_.sums) {
      sum_passes_.push_back(pass_of({s.element}));
      passes_ = std::max(passes_, sum_passes_.back() + 1);
      stores.emplace_back(Store{{}, {}, s.element});
      add(TaskKind::store, {&stores.back(), axes, 0}, sum_passes_.back());
    }
    for (const KeptRow& kept : kept_rows(source_, plan, group, kRecomputeCost))
      if (std::ranges::find(stripped_, kept.expr, &Stripped::expr) == stripped_.end())
        stripped_.push_back({kept.expr, kept.made_in, kept.last_use});
    find_last_uses(plan);
  }

  size_t weights_of(ExprId expr, int pass) {
    const auto it = std::ranges::find(stripped_, expr, &Stripped::expr);
    if (it != stripped_.end()) return static_cast<size_t>(it - stripped_.begin());
    stripped_.push_back({expr, pass, kForever});
    return stripped_.size() - 1;
  }

  void find_last_uses(const Plan& plan) {
    first_.resize(chain_.first.size());
    for (const Task& task : plan.tasks) {
      source_.walk(roots_of(task), [&](ExprId id) {
        if (is_kept(id, task.pass)) return false;
        for (size_t p = 0; p < first_.size(); ++p)
          if (chain_.first[p].ref == id)
            first_[p].last_use = std::max(first_[p].last_use, task.pass);
        return true;
      });
    }
  }

  bool is_kept(ExprId id, int pass) const {
    return std::ranges::any_of(stripped_,
                               [&](const Stripped& s) { return s.expr == id && s.made_in < pass; });
  }

  // ---- Memory ----

  LocalId local(Dtype dtype, Size size) {
    return to_.local(dtype, std::move(size), LocalScope::thread);
  }
  LocalId sums_local(Size size) { return local(chain_.acc, std::move(size)); }
  LocalId packed_local(Size size) { return local(chain_.packed, std::move(size)); }
  bool is_narrow() const { return chain_.packed != chain_.acc; }
  // Of a strip of scores, or of weights as they are multiplied.
  int64_t strip_row(Dtype dtype) const {
    return chunk_ + kCacheLine / static_cast<int64_t>(size_of(dtype));
  }
  // Of weights, in whole tiles of what turns them.
  int64_t strip_chunk(Dtype dtype) const {
    const int64_t tile = dtype == chain_.acc ? 1 : tiles_.lanes * tiles_.group;
    return (rows_ + tile - 1) / tile * tile * strip_row(dtype);
  }
  int64_t row_of_rows() const { return depth_ + tiles_.line; }
  int64_t turned_row() const { return rows_ + tiles_.line; }

  void declare() {
    const int64_t width = tiles_.tile_columns;
    for (size_t p = 0; p < first_.size(); ++p) {
      const FirstProduct& product = chain_.first[p];
      first_[p].rows = packed_local({rows_ * row_of_rows(), {{product.k, depth_}}});
      first_[p].columns = packed_local({depth_ * width, {{product.k, depth_}, {chain_.j, width}}});
      first_[p].strip = sums_local(whole_strip(chain_.acc));
      declare_strip(product.columns, product.k, chain_.j, depth_);
    }
    place_strips();
    for (FoldPass& f : folds_)
      for (const FoldState& state : f.fold->states)
        f.rows.push_back(local(state.dtype, {rows_, {}}));
    for (const LastProduct& p : chain_.last) {
      const int64_t depth = p.by_columns ? rows_ : sum_depth_;
      Size other{depth * width, {{p.n, width}}};
      if (!p.by_columns) other.terms.push_back({chain_.j, depth});
      Size sums{rows_ * kOutColumns, {{p.n, kOutColumns}}};
      if (p.by_columns) sums.terms.push_back({chain_.j, rows_});
      const size_t weights = weights_of(p.weights, 0);
      last_.push_back({packed_local(std::move(other)), sums_local(std::move(sums)), weights});
      declare_strip(p.other, p.by_columns ? chain_.i : chain_.j, p.n, depth);
    }
    if (by_columns_ && is_narrow()) turned_ = packed_local({kChunk * turned_row(), {}});
    if (strip_elements_ > 0) strip_ = packed_local({strip_elements_, {}});
  }

  Size whole_strip(Dtype dtype) const { return {strip_chunk(dtype), {{chain_.j, chunk_}}}; }

  // Where packing passes through.
  void declare_strip(ExprId expr, AxisId k, AxisId n, int64_t depth) {
    if (lies_along(source_, expr, k, n))
      strip_elements_ = std::max(strip_elements_, strip_size(tiles_, depth));
    else if (is_narrow() && !packed_place(expr, k, n))
      strip_elements_ = std::max(strip_elements_, group_strip_size(tiles_, kOutColumns));
  }

  // Where the operand can be packed from as it is.
  std::optional<Place> packed_place(ExprId expr, AxisId k, AxisId n) {
    const std::optional<Place> place = place_of(source_, expr, n, k);
    const bool fits = place && source_[place->load].dtype == chain_.packed &&
                      place->free == kUnit && place->k != kNoTerm;
    return fits ? place : std::nullopt;
  }

  // A value takes the strip of one that is not read after it is made.
  void place_strips() {
    struct Owner {
      LocalId local;
      int last_use;
      Dtype dtype;
    };
    std::vector<Owner> owners;
    for (const First& f : first_) owners.push_back({f.strip, f.last_use, chain_.acc});
    std::ranges::stable_sort(stripped_, {}, &Stripped::made_in);
    for (Stripped& s : stripped_) {
      const Dtype dtype = source_[s.expr].dtype;
      const auto free = std::ranges::find_if(owners, [&](const Owner& owner) {
        return owner.last_use <= s.made_in && owner.dtype == dtype;
      });
      if (free == owners.end()) {
        s.local = local(dtype, whole_strip(dtype));
        owners.push_back({s.local, s.last_use, dtype});
      } else {
        s.local = free->local;
        free->last_use = s.last_use;
      }
    }
  }

  // ---- Packing ----

  void pack(ExprId expr, const Panels& to, AxisId k_axis, Range k, AxisId n_axis, Range n) {
    if (lies_along(source_, expr, k_axis, n_axis)) {
      pack_transposed(tiles_, expr, to, k_axis, k, n_axis, n, strip_);
    } else if (!is_narrow()) {
      pack_panels(tiles_, expr, to, k_axis, k, n_axis, n);
    } else if (const std::optional<Place> place = packed_place(expr, k_axis, n_axis)) {
      pack_in_place(tiles_, *place, to, k_axis, k, n_axis, n);
    } else {
      pack_by_strips(expr, to, k_axis, k, n_axis, n);
    }
    if (!tiles_.for_tile_instructions()) return;
    const int64_t width = tiles_.tile_columns;
    const auto up_to = [&](int64_t multiple) {
      return out_.let(to_.mul(out_.ceil_div(length_of(k), multiple), integer(multiple * width)));
    };
    clear(to.local, to.base, to.depth * width, out_.let(out_.ceil_div(length_of(n), width)),
          up_to(tiles_.group), up_to(tiles_.step));
  }

  void pack_by_strips(ExprId expr, Panels to, AxisId k_axis, Range k, AxisId n_axis, Range n) {
    const ExprId blocks = out_.let(out_.ceil_div(length_of(n), kOutColumns));
    const AxisId block = out_.open_loop(ForKind::serial, integer(0), blocks, "block");
    const ExprId skipped = out_.let(to_.mul(variable(block), integer(kOutColumns)));
    const ExprId begin = out_.let(to_.add(n.begin, skipped));
    to.base = out_.let(to_.add(to.base, to_.mul(skipped, integer(to.depth))));
    to.columns = kOutColumns;
    pack_panels(tiles_, expr, to, k_axis, k, n_axis,
                {begin, out_.let(to_.min(to_.add(begin, integer(kOutColumns)), n.end))}, strip_);
    out_.close();
  }

  // Zeros up to a whole step, after `end` elements of each row.
  void pad(LocalId local, ExprId base, int64_t row, ExprId rows, ExprId end) {
    if (!tiles_.for_tile_instructions()) return;
    const ExprId whole = to_.mul(out_.ceil_div(end, tiles_.step), integer(tiles_.step));
    clear(local, base, row, rows, end, out_.let(whole));
  }

  // What the rows of the item share; and sums by columns, from 0.
  void pack_columns(ExprId limit) {
    const Range columns{integer(0), limit};
    for (size_t p = 0; p < first_.size(); ++p) {
      const FirstProduct& product = chain_.first[p];
      const AxisId step = open_steps(product.k, depth_);
      const Panels to{first_[p].columns, columns_at(variable(step)), depth_};
      pack(product.columns, to, product.k, range_of(variable(step), depth_, product.k), chain_.j,
           columns);
      out_.close();
    }
    for (size_t p = 0; p < last_.size(); ++p) {
      const LastProduct& product = chain_.last[p];
      if (product.by_columns) {
        const ExprId size = to_.mul(tiles(product.n, kOutColumns), sums_block(product));
        const AxisId at = out_.open_loop(ForKind::lane, integer(0), out_.let(size), "at");
        out_.append(
            Store{{true, last_[p].sums}, {{variable(at), kUnit}}, to_.constant(chain_.acc, 0)});
      } else {
        const AxisId step = out_.open_loop(ForKind::serial, integer(0),
                                           out_.let(out_.ceil_div(limit, sum_depth_)), "step");
        const ExprId begin = out_.let(to_.mul(variable(step), integer(sum_depth_)));
        const Range k{begin, out_.let(to_.min(to_.add(begin, integer(sum_depth_)), limit))};
        const ExprId base = out_.let(to_.mul(variable(step), other_step(product)));
        pack(product.other, {last_[p].other, base, sum_depth_}, chain_.j, k, product.n,
             whole(product.n));
      }
      out_.close();
    }
  }

  Range whole(AxisId axis) { return {integer(0), to_.extent(axis)}; }
  AxisId open_steps(AxisId axis, int64_t tile) {
    return out_.open_loop(ForKind::serial, integer(0), tiles(axis, tile), "step");
  }
  // Where a step of k begins in the packed columns of a first product.
  ExprId columns_at(ExprId step) {
    const ExprId panels = tiles(chain_.j, tiles_.tile_columns);
    return out_.let(to_.mul(to_.mul(step, panels), integer(depth_ * tiles_.tile_columns)));
  }
  // Elements of a step of j in the packed operand of a last product.
  ExprId other_step(const LastProduct& p) {
    return to_.mul(tiles(p.n, tiles_.tile_columns), integer(sum_depth_ * tiles_.tile_columns));
  }
  // Elements of kOutColumns columns of a last product's sums.
  ExprId sums_block(const LastProduct& p) {
    return p.by_columns ? to_.mul(tiles(chain_.j, rows_), integer(rows_ * kOutColumns))
                        : integer(rows_ * kOutColumns);
  }

  // ---- A block of rows ----

  void write_block(Range rows) {
    const Seen seen = seen_.of(rows);
    const ExprId limit = seen.by_any;
    const ExprId chunks = out_.let(out_.ceil_div(limit, chunk_));
    for (size_t p = 0; p < first_.size(); ++p) multiply_first(p, rows, limit, chunks);
    if (masks_first_) mask_products(rows, {*seen.by_each, limit});
    const ExprId groups = out_.let(out_.ceil_div(length_of(rows), kPassRows));
    const AxisId group = out_.open_loop(ForKind::serial, integer(0), groups, "group");
    const ExprId skipped = to_.mul(variable(group), integer(kPassRows));
    const ExprId begin = out_.let(to_.add(rows.begin, skipped));
    const Range few{begin, out_.let(to_.min(to_.add(begin, integer(kPassRows)), rows.end))};
    for (int pass = 0; pass < passes_; ++pass)
      write_pass(pass, few, rows.begin, is_masked(pass) ? Seen{limit} : seen);
    finish_rows(few, rows.begin, limit);
    out_.close();
    for (size_t p = 0; p < last_.size(); ++p) {
      if (chain_.last[p].by_columns) {
        sum_by_columns(p, rows, limit);
      } else {
        sum_by_rows(p, rows, limit);
        finish(p, rows);
      }
    }
  }

  Range chunk_of(ExprId chunk, ExprId limit) {
    const ExprId begin = out_.let(to_.mul(chunk, integer(chunk_)));
    return {begin, out_.let(to_.min(to_.add(begin, integer(chunk_)), limit))};
  }

  void multiply_first(size_t p, Range rows, ExprId limit, ExprId chunks) {
    const FirstProduct& product = chain_.first[p];
    AxisId step = open_steps(product.k, depth_);
    const Range k = range_of(variable(step), depth_, product.k);
    const ExprId a_at = out_.let(to_.mul(variable(step), integer(rows_ * row_of_rows())));
    copy(product.rows, {first_[p].rows, a_at, row_of_rows()}, chain_.i, rows, product.k, k);
    pad(first_[p].rows, a_at, row_of_rows(), length_of(rows), length_of(k));
    const ExprId b_at = columns_at(variable(step));
    const AxisId chunk = out_.open_loop(ForKind::serial, integer(0), chunks, "chunk");
    const Range columns = chunk_of(variable(chunk), limit);
    const GemmMicro micro{.tile_rows = tiles_.tile_rows,
                          .tile_columns = tiles_.tile_columns,
                          .a_column = tiles_.group,
                          .b_panel = depth_ * tiles_.tile_columns,
                          .c_row = strip_row(chain_.acc),
                          .c = {true, first_[p].strip},
                          .a = {true, first_[p].rows},
                          .b = {true, first_[p].columns},
                          .rows = length_of(rows),
                          .columns = length_of(columns),
                          .depth = length_of(k),
                          .c_at = strip_at(variable(chunk), chain_.acc),
                          .a_at = a_at,
                          .b_at = out_.let(to_.add(b_at, to_.mul(columns.begin, integer(depth_)))),
                          .a_row = integer(row_of_rows()),
                          .b_row = integer(tiles_.packed_row()),
                          .add = variable(step)};
    append(micro);
    out_.close();
    out_.close();
  }

  // Where no mask is on it, a product whose factors sums take stays in the strip without them.
  bool lies_bare(const FirstProduct& product, bool is_seen) const {
    const bool is_first = masks_first_ && product.masked != kNone;
    return !product.scaled_sums.empty() && !is_first && (is_seen || product.masked == kNone);
  }

  // In a pass no product is masked any more.
  bool is_masked(int pass) const {
    const auto is = [](const FirstProduct& p) { return p.masked != kNone; };
    const auto waits = [&](const FirstProduct& p) { return is(p) && lies_bare(p, true); };
    if (masks_first_ || pass == 0 || std::ranges::any_of(chain_.first, waits)) return masks_first_;
    return std::ranges::any_of(chain_.first, is);
  }

  // Of columns that not all rows see: what a mask leaves of products.
  void mask_products(Range rows, Range part) {
    const AxisId row = open(ForKind::serial, chain_.i, rows);
    const ExprId index = out_.let(to_.sub(variable(row), rows.begin));
    const Piece piece = open_piece(part);
    const ExprId place = place_in(piece, index, chain_.acc);
    const AxisId column = open(ForKind::lane, chain_.j, piece.columns);
    const Index here{{place, kUnit}, {variable(column), kUnit}};
    for (size_t p = 0; p < first_.size(); ++p) {
      if (!chain_.first[p].is_masked_first()) continue;
      out_.define(chain_.first[p].ref, to_.load({true, first_[p].strip}, here));
      out_.append(Store{{true, first_[p].strip}, here, out_.expr(chain_.first[p].masked)});
    }
    for (int loops = 0; loops < 3; ++loops) out_.close();
  }

  // Of columns, what lies in one chunk of the strips; closed by the caller.
  struct Piece {
    AxisId chunk;
    ExprId begin;  // of the chunk
    Range columns;
  };
  Piece open_piece(Range part) {
    const ExprId first = out_.let(to_.div(part.begin, integer(chunk_)));
    const ExprId past = out_.let(out_.ceil_div(part.end, chunk_));
    const AxisId chunk = out_.open_loop(ForKind::serial, first, past, "chunk");
    const Range piece = chunk_of(variable(chunk), part.end);
    return {chunk, piece.begin, {out_.let(to_.max(piece.begin, part.begin)), piece.end}};
  }
  // Where a row's column 0 would be, if the piece's chunk were all there is.
  ExprId place_in(const Piece& piece, ExprId row, Dtype dtype) {
    const ExprId at =
        to_.add(strip_at(variable(piece.chunk), dtype), to_.mul(row, integer(strip_row(dtype))));
    return out_.let(to_.sub(at, piece.begin));
  }

  // Where a chunk of a strip begins, and a column of it.
  ExprId strip_at(ExprId chunk, Dtype dtype) {
    return out_.let(to_.mul(chunk, integer(strip_chunk(dtype))));
  }
  ExprId within_strip(ExprId column, Dtype dtype) {
    const ExprId chunk = out_.let(to_.div(column, integer(chunk_)));
    return out_.let(to_.add(strip_at(chunk, dtype), to_.rem(column, integer(chunk_))));
  }

  void append(const GemmMicro& m) {
    out_.append(tiles_.for_tile_instructions() ? by_tiles(tiles_, m).micro() : m.micro());
  }

  // The product's value, of what its sum is.
  void define(ExprId ref, ExprId sum, const std::vector<ExprId>& factors) {
    for (ExprId factor : factors) sum = to_.mul(sum, out_.expr(factor));
    out_.define(ref, sum);
  }

  void define_bare(const FirstProduct& product, ExprId score) {
    define(product.left(), score, product.factors);
    for (ExprId sum : product.scaled_sums) {
      const Expr e = source_[sum];
      ExprId scale = out_.expr(e.operands[1]);
      for (ExprId factor : product.factors) scale = to_.mul(scale, out_.expr(factor));
      out_.define(sum, to_.fma(score, scale, out_.expr(e.operands[2])));
    }
  }

  // One pass over rows of a block: over what each sees in any case, then over what is left up to their limit.
  void write_pass(int pass, Range rows, ExprId first_row, const Seen& seen) {
    const AxisId row = open(ForKind::serial, chain_.i, rows);
    const ExprId index = out_.let(to_.sub(variable(row), first_row));
    load_folds(index, pass);
    const ExprId middle = seen.by_each.value_or(integer(0));
    std::vector<Fold> whole;
    if (seen.by_each) whole = write_part(pass, index, {integer(0), middle}, true);
    const std::vector<Fold> rest = write_part(pass, index, {middle, seen.by_any}, false);
    size_t next = 0;
    for (const FoldPass& f : folds_) {
      if (f.pass != pass) continue;
      const std::vector<FoldState>& states = rest[next].states;
      ExprMap parts;
      for (size_t s = 0; s < states.size() && !whole.empty(); ++s) {
        const int number = static_cast<int>(s);
        parts[to_.state(number, states[s].dtype)] = part_of(to_, whole[next].value, states, s);
        parts[to_.other(number, states[s].dtype)] = part_of(to_, rest[next].value, states, s);
      }
      for (size_t s = 0; s < states.size(); ++s) {
        const ExprId made = whole.empty() ? part_of(to_, rest[next].value, states, s)
                                          : rebuild_expr(to_, to_.kernel(), states[s].merge, parts);
        out_.append(Store{{true, f.rows[s]}, {{index, kUnit}}, made});
      }
      ++next;
    }
    out_.close();
  }

  // Of a row, what the passes before this one gave.
  void load_folds(ExprId row, int pass) {
    for (const FoldPass& f : folds_)
      for (size_t s = 0; s < f.rows.size() && f.pass < pass; ++s)
        out_.define(part_of(source_.builder(), f.fold->value, f.fold->states, s),
                    out_.let(to_.load({true, f.rows[s]}, {{row, kUnit}})));
  }

  void finish_rows(Range rows, ExprId first_row, ExprId limit) {
    const auto ends = [&](const TileSum& s) { return s.over.empty() && chain_.limit; };
    if (chain_.row_stores.empty() && std::ranges::none_of(chain_.sums, ends)) return;
    const AxisId row = open(ForKind::serial, chain_.i, rows);
    load_folds(out_.let(to_.sub(variable(row), first_row)), passes_);
    for (const Line& line : chain_.row_stores) write(line);
    for (const TileSum& s : chain_.sums)
      if (ends(s)) clear_columns(s, {limit, to_.extent(chain_.j)});
    out_.close();
  }

  // Columns of a row, piece by piece; gives the folds of the pieces, merged in order.
  std::vector<Fold> write_part(int pass, ExprId row, Range part, bool is_seen) {
    const Piece piece = open_piece(part);
    std::map<Dtype, ExprId> places = {{chain_.acc, place_in(piece, row, chain_.acc)}};
    for (const Stripped& s : stripped_)
      if (const Dtype dtype = source_[s.expr].dtype; !places.contains(dtype))
        places.emplace(dtype, place_in(piece, row, dtype));
    const AxisId column = open(ForKind::lane, chain_.j, piece.columns);
    if (is_seen) seen_.define_seen();
    const auto here = [&](Dtype dtype) {
      return Index{{places.at(dtype), kUnit}, {variable(column), kUnit}};
    };
    for (size_t p = 0; p < first_.size(); ++p) {
      if (first_[p].last_use < pass) continue;
      const FirstProduct& product = chain_.first[p];
      const ExprId score = to_.load({true, first_[p].strip}, here(chain_.acc));
      if (pass == 0 && !product.factors.empty()) define(product.ref, score, product.factors);
      else if (lies_bare(product, is_seen)) define_bare(product, score);
      else out_.define(product.left(), score);
    }
    for (const Stripped& s : stripped_)
      if (s.made_in < pass && pass <= s.last_use)
        out_.define(s.expr, to_.load({true, s.local}, here(source_[s.expr].dtype)));
    std::vector<Fold> pieces;
    for (const FoldPass& f : folds_) {
      if (f.pass != pass) continue;
      const ValueId piece = to_.value(source_.kernel().values[f.fold->value].dtypes);
      pieces.push_back(
          {piece, {column}, Emit::last, f.fold->order, out_.fold_states(f.fold->states, true)});
      out_.append(pieces.back());
    }
    for (size_t p = 0; p < first_.size() && pass == 0; ++p)
      if (first_[p].last_use > 0 && !chain_.first[p].factors.empty() &&
          !lies_bare(chain_.first[p], is_seen))
        out_.append(
            Store{{true, first_[p].strip}, here(chain_.acc), out_.expr(chain_.first[p].left())});
    for (const Stripped& s : stripped_)
      if (s.made_in == pass) out_.name(s.expr);
    for (const Stripped& s : stripped_)
      if (s.made_in == pass)
        out_.append(Store{{true, s.local}, here(source_[s.expr].dtype), out_.expr(s.expr)});
    for (size_t s = 0; s < chain_.sums.size(); ++s)
      if (sum_passes_[s] == pass) add_element(chain_.sums[s]);
    out_.close();
    for (const Stripped& s : stripped_)
      if (s.made_in == pass && is_weights(s) && !is_seen)
        pad(s.local, out_.let(to_.add(places.at(chain_.packed), piece.begin)), 1, integer(1),
            out_.let(to_.sub(piece.columns.end, piece.begin)));
    for (Fold& fold : pieces) fold.value = out_.merged(fold, piece.chunk);
    out_.close();
    return pieces;
  }

  static const Store& store_of(const TileSum& s) { return std::get<Store>(*s.store->stmt); }

  // Sums grow in the result itself. An item has all that is added to its part of it.
  void begin_sum(const TileSum& s, Range rows) {
    to_.kernel().params[store_of(s).buffer.id].access = Access::inout;
    const bool has_rows = (set_of(s.over) & axis_bit(chain_.i)) == 0;
    if (has_rows) open(ForKind::serial, chain_.i, rows);
    clear_columns(s, whole(chain_.j));
    if (has_rows) out_.close();
  }

  void clear_columns(const TileSum& s, Range columns) {
    const Store& store = store_of(s);
    open(ForKind::lane, chain_.j, columns);
    out_.append(
        Store{store.buffer, out_.index(store.index), to_.constant(source_[store.value].dtype, 0)});
    out_.close();
  }

  void add_element(const TileSum& s) {
    const Store& store = store_of(s);
    const Index index = out_.index(store.index);
    ExprId value = out_.expr(s.element);
    if (!s.over.empty()) value = to_.add(to_.load(store.buffer, index), value);
    out_.append(Store{store.buffer, index, value});
  }

  bool is_weights(const Stripped& s) const {
    return std::ranges::find(chain_.last, s.expr, &LastProduct::weights) != chain_.last.end();
  }

  void sum_by_rows(size_t p, Range rows, ExprId limit) {
    const LastProduct& product = chain_.last[p];
    const Dtype packed = chain_.packed;
    // At least one step, so that the sums are defined where nothing is seen.
    const ExprId steps = to_.max(out_.ceil_div(limit, sum_depth_), integer(1));
    const AxisId step = out_.open_loop(ForKind::serial, integer(0), out_.let(steps), "step");
    const ExprId begin = out_.let(to_.mul(variable(step), integer(sum_depth_)));
    const ExprId depth = out_.let(to_.min(integer(sum_depth_), to_.sub(limit, begin)));
    const ExprId a_at = within_strip(begin, packed);
    const ExprId b_at = out_.let(to_.mul(variable(step), other_step(product)));
    const AxisId block = open_steps(product.n, kOutColumns);
    const Range n = range_of(variable(block), kOutColumns, product.n);
    const GemmMicro micro{.tile_rows = tiles_.tile_rows,
                          .tile_columns = tiles_.tile_columns,
                          .a_column = tiles_.group,
                          .b_panel = sum_depth_ * tiles_.tile_columns,
                          .c_row = kOutColumns,
                          .c = {true, last_[p].sums},
                          .a = {true, strip_of(p)},
                          .b = {true, last_[p].other},
                          .rows = length_of(rows),
                          .columns = length_of(n),
                          .depth = depth,
                          .c_at = out_.let(to_.mul(variable(block), sums_block(product))),
                          .a_at = a_at,
                          .b_at = out_.let(to_.add(b_at, to_.mul(n.begin, integer(sum_depth_)))),
                          .a_row = integer(strip_row(packed)),
                          .b_row = integer(tiles_.packed_row()),
                          .add = variable(step)};
    append(micro);
    out_.close();
    out_.close();
  }

  void sum_by_columns(size_t p, Range rows, ExprId limit) {
    const LastProduct& product = chain_.last[p];
    const Dtype packed = chain_.packed;
    pack(product.other, {last_[p].other, integer(0), rows_}, chain_.i, rows, product.n,
         whole(product.n));
    const ExprId pieces = out_.let(out_.ceil_div(limit, kChunk));
    const AxisId piece = out_.open_loop(ForKind::serial, integer(0), pieces, "piece");
    const ExprId begin = out_.let(to_.mul(variable(piece), integer(kChunk)));
    const Range columns{begin, out_.let(to_.min(to_.add(begin, integer(kChunk)), limit))};
    const ExprId strip = within_strip(begin, packed);
    if (is_narrow()) turn(strip_of(p), strip, rows, columns);
    const AxisId block = open_steps(product.n, kOutColumns);
    const Range n = range_of(variable(block), kOutColumns, product.n);
    const ExprId c_at = to_.add(to_.mul(variable(block), sums_block(product)),
                                to_.mul(columns.begin, integer(kOutColumns)));
    const GemmMicro micro{.tile_rows = tiles_.tile_rows,
                          .tile_columns = tiles_.tile_columns,
                          .a_column = is_narrow() ? tiles_.group : strip_row(packed),
                          .b_panel = rows_ * tiles_.tile_columns,
                          .c_row = kOutColumns,
                          .c = {true, last_[p].sums},
                          .a = {true, is_narrow() ? turned_ : strip_of(p)},
                          .b = {true, last_[p].other},
                          .rows = length_of(columns),
                          .columns = length_of(n),
                          .depth = length_of(rows),
                          .c_at = out_.let(c_at),
                          .a_at = is_narrow() ? integer(0) : strip,
                          .b_at = out_.let(to_.mul(n.begin, integer(rows_))),
                          .a_row = integer(is_narrow() ? turned_row() : 1),
                          .b_row = integer(tiles_.packed_row()),
                          .add = integer(1)};
    append(micro);
    out_.close();
    out_.close();
  }

  LocalId strip_of(size_t p) const { return stripped_[last_[p].weights].local; }

  // The weights of a chunk, a row for each of its columns.
  void turn(LocalId strip, ExprId strip_at, Range rows, Range columns) {
    const TransposeMicro micro{.tile = tiles_.lanes * tiles_.group,
                               .to_row = turned_row(),
                               .from_row = strip_row(chain_.packed),
                               .group = 1,
                               .to = {true, turned_},
                               .from = {true, strip},
                               .rows = length_of(rows),
                               .columns = length_of(columns),
                               .to_at = integer(0),
                               .from_at = strip_at};
    out_.append(micro.micro());
    pad(turned_, integer(0), turned_row(), length_of(columns), length_of(rows));
  }

  // What follows a last product, for these rows (columns) of it.
  void finish(size_t p, Range rows) {
    const LastProduct& product = chain_.last[p];
    const AxisId row = open(ForKind::serial, product.by_columns ? chain_.j : chain_.i, rows);
    const ExprId index = out_.let(to_.sub(variable(row), rows.begin));
    if (!product.by_columns) load_folds(index, passes_);
    const AxisId block = open_steps(product.n, kOutColumns);
    const Range n = range_of(variable(block), kOutColumns, product.n);
    const ExprId skipped = to_.mul(variable(block), sums_block(product));
    const ExprId place = to_.sub(to_.add(skipped, to_.mul(index, integer(kOutColumns))), n.begin);
    const ExprId base = out_.let(place);
    const AxisId column = open(ForKind::lane, product.n, n);
    define(product.ref, to_.load({true, last_[p].sums}, {{base, kUnit}, {variable(column), kUnit}}),
           product.factors);
    for (const Line& line : product.stores) write(line);
    for (int loops = 0; loops < 3; ++loops) out_.close();
  }

  ChainAnalysis& chain_;
  const Tiles tiles_;
  const int64_t rows_, chunk_;        // of a block; of a strip's piece
  const int64_t depth_, sum_depth_;   // of k in the first products; of j in the last ones
  const bool by_columns_, all_rows_;  // of some last product; items have all rows
  const bool masks_first_;            // before the passes
  int passes_ = 0;
  std::vector<int> sum_passes_;  // that make the elements of sums
  std::vector<FoldPass> folds_;
  std::vector<Stripped> stripped_;
  std::vector<First> first_;
  std::vector<Last> last_;
  SeenColumns seen_;
  int64_t strip_elements_ = 0;
  LocalId strip_ = kNone, turned_ = kNone;
};

void take_operands(ChainAnalysis& chain, const TargetFacts& target) {
  if (target.dot_bf16 || target.amx_bf16) chain.take_bfloat16();
}

}  // namespace

std::optional<Kernel> tile_attention(const Kernel& kernel, const TargetFacts& target) {
  Source source(kernel);
  ChainAnalysis chain(source);
  if (!chain.run()) return std::nullopt;
  take_operands(chain, target);
  Emitter out(source);
  AttentionWriter(chain, target, out).run();
  return out.take();
}

std::optional<Scheme> scheme_of_chain(const Kernel& kernel, const TargetFacts& target) {
  Source source(kernel);
  ChainAnalysis chain(source);
  if (!chain.run()) return std::nullopt;
  take_operands(chain, target);
  if (chain.packed == chain.acc) return Scheme::fma;
  return target.amx_bf16 ? Scheme::amx_bf16 : Scheme::dot_bf16;
}

}  // namespace cermet::ir
