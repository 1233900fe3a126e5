// SPDX-License-Identifier: MIT
// Products of products, tile by tile: scores are made, turned into weights and summed with the other
// operand while they are in cache, so that memory grows with the length and not with its square.
//
// An item takes many rows of one batch entry (all of them where products run by columns) and packs the
// columns' operands once. For each block of rows: the first products fill strips, one row of scores each;
// passes over the rows run the folds and put weights in their place; the last products sum them. Strips
// hold whole rows, so a softmax needs no rescaling. What a mask hides on the right of a block is left out.
#include "base/error.h"
#include "kernel/micro.h"
#include "kernel/rebuild.h"
#include "kernel/tile_chain.h"
#include "kernel/tile_forms.h"
#include "kernel/tile_passes.h"

namespace cermet::ir {

namespace {

constexpr int64_t kRows = 48;        // of a block; a multiple of any template's tile_rows
constexpr int64_t kItemRows = 1536;  // that share what an item packs
constexpr int64_t kChunk = 384;      // columns of a strip's piece: of 48 and of any tile_columns
constexpr int64_t kDepth = 64;       // of k in the first products
constexpr int64_t kSumDepth = 128;   // of j in the last products: a panel of B stays in L1
constexpr int64_t kOutColumns = 64;  // of a block of the last products
constexpr int kForever = 1 << 20;    // past every pass

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
        tiles_(tiles_of(chain.acc, chain.acc, target)),
        by_columns_(std::ranges::any_of(chain.last, &LastProduct::by_columns)) {}

  void run() {
    plan_passes();
    declare();
    std::vector<GridDim> dims = each_of(chain_.batch);
    if (!by_columns_) dims.push_back({{chain_.i}, kItemRows});
    const std::vector<ExprId> at = out_.open_chunk("attention", dims);
    bind_each(chain_.batch, at);
    const Range rows = by_columns_ ? Range{integer(0), to_.extent(chain_.i)}
                                   : range_of(at.back(), kItemRows, chain_.i);
    pack_columns(limit_of(rows));
    const ExprId blocks = out_.let(out_.ceil_div(to_.sub(rows.end, rows.begin), kRows));
    const AxisId block = out_.open_loop(ForKind::serial, integer(0), blocks, "block");
    const ExprId begin = out_.let(to_.add(rows.begin, to_.mul(variable(block), integer(kRows))));
    write_block({begin, out_.let(to_.min(to_.add(begin, integer(kRows)), rows.end))});
    out_.close();
    for (size_t p = 0; p < chain_.last.size(); ++p)
      if (chain_.last[p].by_columns) finish(p, {integer(0), to_.extent(chain_.j)});
    out_.close();
  }

 private:
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
    std::vector<LocalId> rows = {};  // of its states, if what follows the last products needs them
  };

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
    stores.reserve(chain_.last.size());
    for (const LastProduct& p : chain_.last) {
      const int pass = pass_of({p.weights});
      passes_ = std::max(passes_, pass + 1);
      stores.emplace_back(Store{{}, {}, p.weights});
      add(TaskKind::store, {&stores.back(), axes, 0}, pass);
      weights_of(p.weights, pass);
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

  LocalId local(Size size) { return to_.local(chain_.acc, std::move(size), LocalScope::thread); }
  int64_t strip_row() const { return kChunk + tiles_.line; }
  int64_t strip_chunk() const { return kRows * strip_row(); }
  int64_t row_of_rows() const { return kDepth + tiles_.line; }

  void declare() {
    const int64_t width = tiles_.tile_columns;
    for (size_t p = 0; p < first_.size(); ++p) {
      const FirstProduct& product = chain_.first[p];
      first_[p].rows = local({kRows * row_of_rows(), {{product.k, kDepth}}});
      first_[p].columns = local({kDepth * width, {{product.k, kDepth}, {chain_.j, width}}});
      first_[p].strip = local(whole_strip());
      declare_strip(product.columns, product.k, chain_.j, kDepth);
    }
    place_strips();
    for (const LastProduct& p : chain_.last) {
      const int64_t depth = p.by_columns ? kRows : kSumDepth;
      Size other{depth * width, {{p.n, width}}};
      if (!p.by_columns) other.terms.push_back({chain_.j, depth});
      Size sums{kRows * kOutColumns, {{p.n, kOutColumns}}};
      if (p.by_columns) sums.terms.push_back({chain_.j, kRows});
      const size_t weights = weights_of(p.weights, 0);
      last_.push_back({local(std::move(other)), local(std::move(sums)), weights});
      declare_strip(p.other, p.by_columns ? chain_.i : chain_.j, p.n, depth);
      if (!p.by_columns) declare_rows(p);
    }
  }

  Size whole_strip() const { return {strip_chunk(), {{chain_.j, kChunk}}}; }

  // Where transposed packing passes through.
  void declare_strip(ExprId expr, AxisId k, AxisId n, int64_t depth) {
    if (lies_along(source_, expr, k, n))
      transposed_ = std::max(transposed_, strip_size(tiles_, depth));
  }

  // A value takes the strip of one that is not read after it is made.
  void place_strips() {
    struct Owner {
      LocalId local;
      int last_use;
    };
    std::vector<Owner> owners;
    for (const First& f : first_) owners.push_back({f.strip, f.last_use});
    std::ranges::stable_sort(stripped_, {}, &Stripped::made_in);
    for (Stripped& s : stripped_) {
      const auto free = std::ranges::find_if(
          owners, [&](const Owner& owner) { return owner.last_use <= s.made_in; });
      if (free == owners.end()) {
        s.local = local(whole_strip());
        owners.push_back({s.local, s.last_use});
      } else {
        s.local = free->local;
        free->last_use = s.last_use;
      }
    }
  }

  // Folds that the stores of a product need.
  void declare_rows(const LastProduct& product) {
    std::vector<ExprId> roots;
    for (const Line& line : product.stores)
      for (ExprId root : roots_of(*line.stmt)) roots.push_back(root);
    source_.walk(roots, [&](ExprId id) {
      for (FoldPass& f : folds_) {
        if (source_[id].kind != ExprKind::ref || source_[id].id != f.fold->value || !f.rows.empty())
          continue;
        for (const FoldState& state : f.fold->states)
          f.rows.push_back(to_.local(state.dtype, {kRows, {}}, LocalScope::thread));
      }
      return true;
    });
  }

  // ---- What is seen ----

  // The columns that any of these rows may see, a multiple of kRows or all.
  ExprId limit_of(Range rows) {
    const ExprId all = to_.extent(chain_.j);
    if (!chain_.limit) return all;
    const Limit& limit = *chain_.limit;
    if (ends_.empty()) make_ends();
    const AxisId tile = out_.open_loop(ForKind::serial, integer(0), tiles(chain_.j, kRows), "tile");
    const Range columns = range_of(variable(tile), kRows, chain_.j);
    const auto before = [&](ExprId end) { return out_.let(to_.sub(end, integer(1))); };
    const ExprId at[] = {columns.begin, before(columns.end), rows.begin, before(rows.end)};
    std::vector<ExprId> made;
    for (size_t e = 0; e < ends_.size(); ++e) out_.bind(ends_[e].axis, at[e]);
    for (const End& end : ends_) made.push_back(out_.expr(end.expr));
    const ExprId seen =
        to_.compare(limit.code, to_.min(made[0], made[1]), to_.max(made[2], made[3]));
    const ExprId state = to_.state(0, Dtype::int64), next = to_.add(variable(tile), integer(1));
    const ValueId count = to_.value({Dtype::int64}, "seen");
    out_.append(Fold{count,
                     {tile},
                     Emit::last,
                     Order::serial,
                     {{Dtype::int64, integer(0), to_.select(seen, next, state),
                       to_.max(state, to_.other(0, Dtype::int64))}}});
    out_.close();
    return out_.let(to_.min(to_.mul(to_.ref(count), integer(kRows)), all));
  }

  // The limit's sides at the first and last column of a tile, and row of a block.
  struct End {
    AxisId axis;
    ExprId expr;
  };
  void make_ends() {
    const auto add = [&](AxisId axis, ExprId side) {
      const AxisId end = source_.pseudo_axis("end");
      Builder& b = source_.builder();
      ExprMap memo = {{b.axis_ref(axis), b.axis_ref(end)}};
      ends_.push_back({end, rebuild_expr(b, b.kernel(), source_.behind(side), memo)});
    };
    for (int twice = 0; twice < 2; ++twice) add(chain_.j, chain_.limit->low);
    for (int twice = 0; twice < 2; ++twice) add(chain_.i, chain_.limit->high);
  }

  // ---- Packing ----

  void pack(ExprId expr, Panels to, AxisId k_axis, Range k, AxisId n_axis, Range n) {
    if (!lies_along(source_, expr, k_axis, n_axis))
      return pack_panels(tiles_, expr, to, k_axis, k, n_axis, n);
    if (transposed_local_ == kNone) transposed_local_ = local({transposed_, {}});
    pack_transposed(tiles_, expr, to, k_axis, k, n_axis, n, transposed_local_);
  }

  // What the rows of the item share; and sums by columns, from 0.
  void pack_columns(ExprId limit) {
    const Range columns{integer(0), limit};
    for (size_t p = 0; p < first_.size(); ++p) {
      const FirstProduct& product = chain_.first[p];
      const AxisId step = open_steps(product.k, kDepth);
      const Panels to{first_[p].columns, columns_at(variable(step)), kDepth};
      pack(product.columns, to, product.k, range_of(variable(step), kDepth, product.k), chain_.j,
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
                                           out_.let(out_.ceil_div(limit, kSumDepth)), "step");
        const ExprId begin = out_.let(to_.mul(variable(step), integer(kSumDepth)));
        const Range k{begin, out_.let(to_.min(to_.add(begin, integer(kSumDepth)), limit))};
        const ExprId base = out_.let(to_.mul(variable(step), other_step(product)));
        pack(product.other, {last_[p].other, base, kSumDepth}, chain_.j, k, product.n,
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
    return out_.let(to_.mul(to_.mul(step, panels), integer(kDepth * tiles_.tile_columns)));
  }
  // Elements of a step of j in the packed operand of a last product.
  ExprId other_step(const LastProduct& p) {
    return to_.mul(tiles(p.n, tiles_.tile_columns), integer(kSumDepth * tiles_.tile_columns));
  }
  // Elements of kOutColumns columns of a last product's sums.
  ExprId sums_block(const LastProduct& p) {
    return p.by_columns ? to_.mul(tiles(chain_.j, kRows), integer(kRows * kOutColumns))
                        : integer(kRows * kOutColumns);
  }

  // ---- A block of rows ----

  void write_block(Range rows) {
    const ExprId limit = limit_of(rows);
    const ExprId chunks = out_.let(out_.ceil_div(limit, kChunk));
    for (size_t p = 0; p < first_.size(); ++p) multiply_first(p, rows, limit, chunks);
    const AxisId row = open(ForKind::serial, chain_.i, rows);
    const ExprId index = out_.let(to_.sub(variable(row), rows.begin));
    for (int pass = 0; pass < passes_; ++pass) write_pass(pass, index, limit, chunks);
    store_rows(index);
    out_.close();
    for (size_t p = 0; p < last_.size(); ++p) {
      if (chain_.last[p].by_columns) {
        sum_by_columns(p, rows, limit, chunks);
      } else {
        sum_by_rows(p, rows, limit);
        finish(p, rows);
      }
    }
  }

  Range chunk_of(ExprId chunk, ExprId limit) {
    const ExprId begin = out_.let(to_.mul(chunk, integer(kChunk)));
    return {begin, out_.let(to_.min(to_.add(begin, integer(kChunk)), limit))};
  }

  void multiply_first(size_t p, Range rows, ExprId limit, ExprId chunks) {
    const FirstProduct& product = chain_.first[p];
    AxisId step = open_steps(product.k, kDepth);
    const Range k = range_of(variable(step), kDepth, product.k);
    const ExprId a_at = out_.let(to_.mul(variable(step), integer(kRows * row_of_rows())));
    copy(product.rows, {first_[p].rows, a_at, row_of_rows()}, chain_.i, rows, product.k, k);
    const ExprId b_at = columns_at(variable(step));
    const AxisId chunk = out_.open_loop(ForKind::serial, integer(0), chunks, "chunk");
    const Range columns = chunk_of(variable(chunk), limit);
    const GemmMicro micro{.tile_rows = tiles_.tile_rows,
                          .tile_columns = tiles_.tile_columns,
                          .a_column = 1,
                          .b_panel = kDepth * tiles_.tile_columns,
                          .c_row = strip_row(),
                          .c = {true, first_[p].strip},
                          .a = {true, first_[p].rows},
                          .b = {true, first_[p].columns},
                          .rows = length_of(rows),
                          .columns = length_of(columns),
                          .depth = length_of(k),
                          .c_at = out_.let(to_.mul(variable(chunk), integer(strip_chunk()))),
                          .a_at = a_at,
                          .b_at = out_.let(to_.add(b_at, to_.mul(columns.begin, integer(kDepth)))),
                          .a_row = integer(row_of_rows()),
                          .add = variable(step)};
    out_.append(micro.micro());
    out_.close();
    out_.close();
  }

  // One pass over a row, piece by piece: folds of the pieces, merged in order.
  void write_pass(int pass, ExprId row, ExprId limit, ExprId chunks) {
    const AxisId chunk = out_.open_loop(ForKind::serial, integer(0), chunks, "chunk");
    const Range columns = chunk_of(variable(chunk), limit);
    ExprId place = to_.add(to_.mul(variable(chunk), integer(strip_chunk())),
                           to_.mul(row, integer(strip_row())));
    place = out_.let(to_.sub(place, columns.begin));
    const AxisId column = open(ForKind::lane, chain_.j, columns);
    const Index here = {{place, kUnit}, {variable(column), kUnit}};
    for (size_t p = 0; p < first_.size(); ++p)
      if (pass <= first_[p].last_use)
        out_.define(chain_.first[p].ref, to_.load({true, first_[p].strip}, here));
    for (const Stripped& s : stripped_)
      if (s.made_in < pass && pass <= s.last_use)
        out_.define(s.expr, to_.load({true, s.local}, here));
    std::vector<Fold> pieces;
    for (const FoldPass& f : folds_) {
      if (f.pass != pass) continue;
      const ValueId piece = to_.value(source_.kernel().values[f.fold->value].dtypes);
      pieces.push_back(
          {piece, {column}, Emit::last, f.fold->order, out_.fold_states(f.fold->states, true)});
      out_.append(pieces.back());
    }
    for (const Stripped& s : stripped_)
      if (s.made_in == pass) out_.name(s.expr);
    for (const Stripped& s : stripped_)
      if (s.made_in == pass) out_.append(Store{{true, s.local}, here, out_.expr(s.expr)});
    out_.close();
    std::vector<ValueId> merged;
    for (const Fold& piece : pieces) merged.push_back(merge(piece, chunk));
    out_.close();
    size_t next = 0;
    for (const FoldPass& f : folds_)
      if (f.pass == pass)
        out_.define(source_.builder().ref(f.fold->value), to_.ref(merged[next++]));
  }

  // The fold over pieces: a step merges one.
  ValueId merge(const Fold& piece, AxisId chunk) {
    std::vector<FoldState> states = piece.states;
    ExprMap parts;
    for (size_t s = 0; s < states.size(); ++s)
      parts[to_.other(static_cast<int>(s), states[s].dtype)] = part_of(to_, piece.value, states, s);
    std::vector<Dtype> dtypes;
    for (FoldState& state : states) {
      state.step = rebuild_expr(to_, to_.kernel(), state.merge, parts);
      dtypes.push_back(state.dtype);
    }
    const ValueId value = to_.value(std::move(dtypes));
    out_.append(Fold{value, {chunk}, Emit::last, Order::serial, std::move(states)});
    return value;
  }

  static ExprId part_of(Builder& b, ValueId value, const std::vector<FoldState>& states, size_t s) {
    return states.size() == 1 ? b.ref(value) : b.get(static_cast<int>(s), b.ref(value));
  }

  void store_rows(ExprId row) {
    for (const FoldPass& f : folds_)
      for (size_t s = 0; s < f.rows.size(); ++s) {
        const ExprId part = part_of(source_.builder(), f.fold->value, f.fold->states, s);
        out_.append(Store{{true, f.rows[s]}, {{row, kUnit}}, out_.expr(part)});
      }
  }

  void sum_by_rows(size_t p, Range rows, ExprId limit) {
    const LastProduct& product = chain_.last[p];
    const LocalId strip = stripped_[last_[p].weights].local;
    // At least one step, so that the sums are defined where nothing is seen.
    const ExprId steps = to_.max(out_.ceil_div(limit, kSumDepth), integer(1));
    const AxisId step = out_.open_loop(ForKind::serial, integer(0), out_.let(steps), "step");
    const ExprId begin = out_.let(to_.mul(variable(step), integer(kSumDepth)));
    const ExprId depth = out_.let(to_.min(integer(kSumDepth), to_.sub(limit, begin)));
    const ExprId a_at =
        out_.let(to_.add(to_.mul(to_.div(begin, integer(kChunk)), integer(strip_chunk())),
                         to_.rem(begin, integer(kChunk))));
    const ExprId b_at = out_.let(to_.mul(variable(step), other_step(product)));
    const AxisId block = open_steps(product.n, kOutColumns);
    const Range n = range_of(variable(block), kOutColumns, product.n);
    const GemmMicro micro{.tile_rows = tiles_.tile_rows,
                          .tile_columns = tiles_.tile_columns,
                          .a_column = 1,
                          .b_panel = kSumDepth * tiles_.tile_columns,
                          .c_row = kOutColumns,
                          .c = {true, last_[p].sums},
                          .a = {true, strip},
                          .b = {true, last_[p].other},
                          .rows = length_of(rows),
                          .columns = length_of(n),
                          .depth = depth,
                          .c_at = out_.let(to_.mul(variable(block), sums_block(product))),
                          .a_at = a_at,
                          .b_at = out_.let(to_.add(b_at, to_.mul(n.begin, integer(kSumDepth)))),
                          .a_row = integer(strip_row()),
                          .add = variable(step)};
    out_.append(micro.micro());
    out_.close();
    out_.close();
  }

  void sum_by_columns(size_t p, Range rows, ExprId limit, ExprId chunks) {
    const LastProduct& product = chain_.last[p];
    const LocalId strip = stripped_[last_[p].weights].local;
    pack(product.other, {last_[p].other, integer(0), kRows}, chain_.i, rows, product.n,
         whole(product.n));
    const AxisId chunk = out_.open_loop(ForKind::serial, integer(0), chunks, "chunk");
    const Range columns = chunk_of(variable(chunk), limit);
    const AxisId block = open_steps(product.n, kOutColumns);
    const Range n = range_of(variable(block), kOutColumns, product.n);
    const ExprId c_at = to_.add(to_.mul(variable(block), sums_block(product)),
                                to_.mul(columns.begin, integer(kOutColumns)));
    const GemmMicro micro{.tile_rows = tiles_.tile_rows,
                          .tile_columns = tiles_.tile_columns,
                          .a_column = strip_row(),
                          .b_panel = kRows * tiles_.tile_columns,
                          .c_row = kOutColumns,
                          .c = {true, last_[p].sums},
                          .a = {true, strip},
                          .b = {true, last_[p].other},
                          .rows = length_of(columns),
                          .columns = length_of(n),
                          .depth = length_of(rows),
                          .c_at = out_.let(c_at),
                          .a_at = out_.let(to_.mul(variable(chunk), integer(strip_chunk()))),
                          .b_at = out_.let(to_.mul(n.begin, integer(kRows))),
                          .a_row = integer(1),
                          .add = integer(1)};
    out_.append(micro.micro());
    out_.close();
    out_.close();
  }

  // What follows a last product, for these rows (columns) of it.
  void finish(size_t p, Range rows) {
    const LastProduct& product = chain_.last[p];
    const AxisId row = open(ForKind::serial, product.by_columns ? chain_.j : chain_.i, rows);
    const ExprId index = out_.let(to_.sub(variable(row), rows.begin));
    if (!product.by_columns) {
      for (const FoldPass& f : folds_)
        for (size_t s = 0; s < f.rows.size(); ++s) {
          const ExprId part = part_of(source_.builder(), f.fold->value, f.fold->states, s);
          out_.define(part, out_.let(to_.load({true, f.rows[s]}, {{index, kUnit}})));
        }
    }
    const AxisId block = open_steps(product.n, kOutColumns);
    const Range n = range_of(variable(block), kOutColumns, product.n);
    const ExprId skipped = to_.mul(variable(block), sums_block(product));
    const ExprId place = to_.sub(to_.add(skipped, to_.mul(index, integer(kOutColumns))), n.begin);
    const ExprId base = out_.let(place);
    const AxisId column = open(ForKind::lane, product.n, n);
    out_.define(product.ref,
                to_.load({true, last_[p].sums}, {{base, kUnit}, {variable(column), kUnit}}));
    for (const Line& line : product.stores) write(line);
    for (int loops = 0; loops < 3; ++loops) out_.close();
  }

  ChainAnalysis& chain_;
  const Tiles tiles_;
  const bool by_columns_;
  int passes_ = 0;
  std::vector<FoldPass> folds_;
  std::vector<Stripped> stripped_;
  std::vector<First> first_;
  std::vector<Last> last_;
  std::vector<End> ends_;
  int64_t transposed_ = 0;
  LocalId transposed_local_ = kNone;
};

}  // namespace

std::optional<Kernel> tile_attention(const Kernel& kernel, const TargetFacts& target) {
  Source source(kernel);
  ChainAnalysis chain(source);
  if (!chain.run()) return std::nullopt;
  Emitter out(source);
  AttentionWriter(chain, target, out).run();
  return out.take();
}

bool chains_products(const Kernel& kernel) {
  Source source(kernel);
  return ChainAnalysis(source).run();
}

}  // namespace cermet::ir
