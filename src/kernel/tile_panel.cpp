// SPDX-License-Identifier: MIT
// Products whose A has few rows (Scheme::panel and its kin): bound by reading B, once and in place.
// One entry point packs A whole, eight or four rows side by side; the next multiplies it with pieces of B,
// each item into its own part of a Local; the last adds up what belongs together and runs what
// follows the Contract. B that is not simply in memory is made block by block in L1 or L2; any other is packed whole
// in strips before, where it serves again (panel_packed).
#include <algorithm>
#include <utility>

#include "kernel/micro.h"
#include "kernel/tile_product.h"

namespace cermet::ir {

namespace {

constexpr int64_t kStripBytes = 1024;  // of a row of B along n that an item takes
constexpr int64_t kStripDepth = 512;   // of k that an item takes of such rows
// Longer ones, by bytes of the sums, which stay in L2: the longer, the better memory follows.
constexpr int64_t kLongSums = 131072;
constexpr int64_t kRowSums = 65536, kRowDepth = 128;  // of a single row
constexpr int64_t kWholeDepth = 16384;                // of k that an item takes if B lies along k,
constexpr int64_t kWholeColumns = 128;                // and columns
constexpr int64_t kMadeColumns = 256;                 // of a block of B that is made, along n
constexpr int64_t kMadeRows = 32;
constexpr int64_t kMadeDepth = 512;               // along k
constexpr int64_t kPackDepth = 1024;              // of k: items that pack A
constexpr int64_t kEndColumns = 512;              // items of the end
constexpr int64_t kStrips = 16, kStripRows = 64;  // that an item packs of a B along n,
constexpr int64_t kStripPiece = 512;              // and of k of a strip along k
constexpr int64_t kStripUnit = 32;  // of k: strips hold whole ones, as transposes make whole tiles
constexpr int64_t kWholeSum = int64_t{1} << 40;

constexpr int64_t kMostRows = 8, kFour = 4;  // of A side by side

int64_t rows_of(const ProductAnalysis& analysis) {
  if (analysis.roles.m == kNone) return 1;
  return is_four(analysis.scheme) ? kFour : kMostRows;
}

bool is_contiguous(const Place& place, bool along_k) {
  const auto [unit, other] =
      along_k ? std::pair(place.k, place.free) : std::pair(place.free, place.k);
  return unit == kUnit && other != kNoTerm;
}

class PanelWriter : ProductWriter {
 public:
  PanelWriter(Source& source, const ProductAnalysis& analysis, const TargetFacts& target,
              Emitter& out)
      : ProductWriter(source, analysis, out),
        rows_(rows_of(analysis)),
        vector_bytes_(target.vector_bytes) {}

  void run() {
    find_operands();
    choose_sizes();
    declare();
    pack_a();
    if (is_packed()) pack_b();
    multiply();
    end();
  }

 private:
  struct OperandA {
    ExprId expr;
    LocalId local = kNone;
  };
  struct OperandB {
    ExprId expr;
    Place place = {};        // free: n
    LocalId made = kNone;    // block by block, or
    LocalId packed = kNone;  // whole,
    LocalId turned = kNone;  // along k by way of this
  };

  bool is_packed() const { return in_place_ && ir::is_packed(analysis_.scheme); }
  int64_t strip() const { return panel_strip(vector_bytes_, acc()); }
  ExprId whole_strip() {
    return to_.mul(tiles(roles_.k, kStripUnit), integer(kStripUnit * strip()));
  }
  int64_t a_tile() const { return rows_ * unit_; }
  int64_t c_tile() const { return rows_ * kPanelColumns; }

  void find_operands() {
    for (const Product& p : analysis_.products) {
      if (std::ranges::find(a_, p.a, &OperandA::expr) == a_.end()) a_.push_back({p.a});
      if (std::ranges::find(b_, p.b, &OperandB::expr) == b_.end()) b_.push_back({p.b});
      a_axes_ |= source_.axes(p.a);
    }
    unit_ = panel_depth_of(source_[a_[0].expr].dtype);
    for (AxisId axis : roles_.b_batch) batch_.push_back(axis);
    for (AxisId axis : roles_.a_batch) batch_.push_back(axis);
    for (AxisId axis : batch_)
      if ((a_axes_ & axis_bit(axis)) != 0) packed_batch_.push_back(axis);
    along_k_ = lies_along(source_, b_[0].expr, roles_.k, roles_.n);
    in_place_ = std::ranges::all_of(b_, [&](OperandB& b) { return find_place(b); });
  }

  // Whether B is a load that the template can make: one unit stride, along the same axis for all.
  bool find_place(OperandB& b) {
    const std::optional<Place> place = place_of(source_, b.expr, roles_.n, roles_.k);
    if (!place) return false;
    const Dtype dtype = source_[b.expr].dtype, given = source_[place->load].dtype;
    if (given != dtype && !(is_half(given) && dtype == Dtype::float32)) return false;
    b.place = *place;
    return is_contiguous(*place, along_k_);
  }

  void choose_sizes() {
    const auto size = static_cast<int64_t>(size_of(acc()));
    depth_ = kStripDepth;
    if (along_k_) {
      columns_ = in_place_ && rows_ > 1 ? kWholeColumns : kPanelColumns;
      depth_ = kWholeDepth;
    } else if (!in_place_) {
      columns_ = kMadeColumns;
    } else if (rows_ == 1) {
      columns_ = kRowSums / size;
      depth_ = kRowDepth;
    } else if (is_long(analysis_.scheme)) {
      columns_ = kLongSums / rows_ / size;
    } else {
      columns_ = kStripBytes / narrowest();
    }
    if (!is_packed()) return;
    piece_ = std::exchange(depth_, kWholeSum);
    columns_ = kPanelColumns;
  }

  int64_t narrowest() const {
    size_t size = size_of(acc());
    for (const OperandB& b : b_) size = std::min(size, size_of(source_[b.place.load].dtype));
    return static_cast<int64_t>(size);
  }

  void declare() {
    Size packed{.constant = a_tile(), .terms = {}}, sums{.constant = c_tile(), .terms = {}};
    for (AxisId axis : packed_batch_) packed.terms.push_back({axis, 1});
    for (AxisId axis : batch_) sums.terms.push_back({axis, 1});
    for (AxisId axis : roles_.rows())
      for (Size* size : {&packed, &sums}) size->terms.push_back({axis, rows_});
    packed.terms.push_back({roles_.k, unit_});
    sums.terms.push_back({roles_.k, depth_});
    sums.terms.push_back({roles_.n, kPanelColumns});
    for (OperandA& a : a_) a.local = to_.local(source_[a.expr].dtype, packed, LocalScope::kernel);
    for (size_t i = 0; i < analysis_.products.size(); ++i)
      c_.push_back(to_.local(acc(), sums, LocalScope::kernel));
    if (is_packed()) declare_packed();
    if (in_place_) return;
    const int64_t made = along_k_ ? kPanelColumns * made_row() : kMadeRows * made_row();
    for (OperandB& b : b_)
      b.made = to_.local(acc(), {.constant = made, .terms = {}}, LocalScope::thread);
  }

  void declare_packed() {
    Size whole{.constant = kStripUnit * strip(),
               .terms = {{roles_.n, strip()}, {roles_.k, kStripUnit}}};
    for (AxisId axis : roles_.b_batch) whole.terms.push_back({axis, 1});
    for (OperandB& b : b_) {
      const Dtype dtype = source_[b.place.load].dtype;
      const int64_t turned = strip_size(packed_tiles(dtype), kStripPiece);
      b.packed = to_.local(dtype, whole, LocalScope::kernel);
      if (along_k_)
        b.turned = to_.local(dtype, {.constant = turned, .terms = {}}, LocalScope::thread);
    }
  }

  // One cache line more than a power of two.
  int64_t made_row() const { return (along_k_ ? kMadeDepth : kMadeColumns) + kPanelDepth; }

  // Where in the packed A the eight rows `m_block` begin, at k / unit_ = unit.
  ExprId packed_at(const std::vector<ExprId>& batch, ExprId m_block, ExprId unit) {
    std::vector<Digit> digits;
    for (size_t i = 0; i < batch.size(); ++i)
      if ((a_axes_ & axis_bit(batch_[i])) != 0) digits.push_back({batch[i], to_.extent(batch_[i])});
    for (AxisId axis : roles_.rows()) digits.push_back({m_block, tiles(axis, rows_)});
    digits.push_back({unit, tiles(roles_.k, unit_)});
    return to_.mul(number(digits), integer(a_tile()));
  }

  // Where in C the piece k_block of the columns from n_tile · kPanelColumns begins.
  ExprId sums_at(const std::vector<ExprId>& batch, ExprId m_block, ExprId k_block, ExprId n_tile) {
    std::vector<Digit> digits;
    for (size_t i = 0; i < batch.size(); ++i) digits.push_back({batch[i], to_.extent(batch_[i])});
    for (AxisId axis : roles_.rows()) digits.push_back({m_block, tiles(axis, rows_)});
    digits.push_back({k_block, tiles(roles_.k, depth_)});
    digits.push_back({n_tile, tiles(roles_.n, kPanelColumns)});
    return to_.mul(number(digits), integer(c_tile()));
  }

  void pack_a() {
    std::vector<GridDim> dims = each_of(packed_batch_);
    dims.push_back({roles_.rows(), rows_});
    dims.push_back({{roles_.k}, kPackDepth});
    // Not kPackEntry: A is another one at each use.
    std::vector<ExprId> at = out_.open_chunk("rows", dims);
    const ExprId k_block = at.back(), m_block = at[at.size() - 2];
    at.resize(at.size() - 2);
    bind_each(packed_batch_, at);
    std::vector<ExprId> batch;  // by batch_
    for (AxisId axis : batch_) {
      const auto found = std::ranges::find(packed_batch_, axis);
      batch.push_back(found == packed_batch_.end() ? kNone : at[found - packed_batch_.begin()]);
    }
    const Range k = range_of(k_block, kPackDepth, roles_.k);
    const ExprId first_unit = out_.let(to_.mul(k_block, integer(kPackDepth / unit_)));
    const ExprId base = out_.let(packed_at(batch, m_block, first_unit));
    const ExprId units = out_.let(out_.ceil_div(to_.sub(k.end, k.begin), unit_));
    const ExprId last_row =
        roles_.m == kNone ? kNone : out_.let(to_.sub(to_.extent(roles_.m), integer(1)));
    const ExprId first_row = out_.let(to_.mul(m_block, integer(rows_)));
    const AxisId unit = out_.open_loop(ForKind::serial, integer(0), units, "unit");
    const AxisId i = out_.open_loop(ForKind::serial, integer(0), integer(rows_), "row");
    // Rows that are not there repeat the last one.
    for (AxisId axis : roles_.rows())
      out_.bind(axis, out_.let(to_.min(to_.add(first_row, variable(i)), last_row)));
    const ExprId begin = out_.let(to_.add(k.begin, to_.mul(variable(unit), integer(unit_))));
    const ExprId full = out_.let(to_.add(begin, integer(unit_)));
    const ExprId end = out_.let(to_.min(full, k.end));
    const ExprId row = to_.add(to_.mul(variable(unit), integer(rows_)), variable(i));
    const ExprId place = out_.let(to_.sub(to_.add(base, to_.mul(row, integer(unit_))), begin));
    for (const OperandA& a : a_) {
      const AxisId j = open(ForKind::lane, roles_.k, {begin, end});
      const ExprId value = out_.expr(a.expr);
      out_.append(Store{{true, a.local}, {{place, kUnit}, {variable(j), kUnit}}, value});
      out_.close();
    }
    pad(place, end, full);
    for (int loops = 0; loops < 3; ++loops) out_.close();
  }

  // Zeros in the rest of the last unit.
  void pad(ExprId place, ExprId begin, ExprId end) {
    const AxisId j = out_.open_loop(ForKind::lane, begin, end, "rest");
    for (const OperandA& a : a_)
      out_.append(Store{{true, a.local},
                        {{place, kUnit}, {variable(j), kUnit}},
                        to_.constant_bits(source_[a.expr].dtype, 0)});
    out_.close();
  }

  // Where a strip of the columns from n on begins, of the packed B of a batch.
  ExprId strip_at(const std::vector<ExprId>& batch, ExprId n) {
    std::vector<Digit> digits;
    for (size_t i = 0; i < roles_.b_batch.size(); ++i)
      digits.push_back({batch[i], to_.extent(roles_.b_batch[i])});
    digits.push_back({to_.div(n, integer(strip())), tiles(roles_.n, strip())});
    return out_.let(to_.mul(number(digits), whole_strip()));
  }

  void pack_b() {
    std::vector<GridDim> dims = each_of(roles_.b_batch);
    const int64_t columns = along_k_ ? strip() : kStrips * strip();
    const int64_t depth = along_k_ ? kStripPiece : kStripRows;
    dims.push_back({{roles_.n}, columns});
    dims.push_back({{roles_.k}, depth});
    std::vector<ExprId> at = out_.open_chunk(kPackEntry, dims);
    const ExprId k_block = at.back(), n_block = at[at.size() - 2];
    at.resize(at.size() - 2);
    bind_each(roles_.b_batch, at);
    const Range n = range_of(n_block, columns, roles_.n), k = range_of(k_block, depth, roles_.k);
    const ExprId base = strip_at(at, n.begin);
    for (const OperandB& b : b_) {
      if (along_k_) {
        const ExprId first = out_.let(to_.add(base, to_.mul(k.begin, integer(strip()))));
        const ExprId load = b.place.load;
        pack_transposed(packed_tiles(source_[load].dtype), load, {b.packed, first, kStripPiece},
                        roles_.k, k, roles_.n, n, b.turned);
      } else {
        pack_rows(b, base, k, n);
      }
    }
    out_.close();
  }

  // Vectors of the matrix' own dtype are transposed.
  Tiles packed_tiles(Dtype dtype) const {
    const auto size = static_cast<int64_t>(size_of(dtype));
    const int64_t lanes = std::min(std::max<int64_t>(1, vector_bytes_ / size), strip());
    return {.tile_rows = 1, .tile_columns = strip(), .lanes = lanes, .line = lanes};
  }

  void pack_rows(const OperandB& b, ExprId base, Range k, Range n) {
    const ExprId strips = out_.let(out_.ceil_div(length_of(n), strip()));
    const AxisId i = open(ForKind::serial, roles_.k, k);
    const ExprId row = out_.let(to_.add(base, to_.mul(variable(i), integer(strip()))));
    const AxisId s = out_.open_loop(ForKind::serial, integer(0), strips, "strip");
    const ExprId first = out_.let(to_.add(n.begin, to_.mul(variable(s), integer(strip()))));
    const ExprId end = out_.let(to_.min(to_.add(first, integer(strip())), n.end));
    const ExprId in_strip = to_.add(row, to_.mul(variable(s), whole_strip()));
    const ExprId place = out_.let(to_.sub(in_strip, first));
    const AxisId j = open(ForKind::lane, roles_.n, {first, end});
    const ExprId value = out_.expr(b.place.load);
    out_.append(Store{{true, b.packed}, {{place, kUnit}, {variable(j), kUnit}}, value});
    for (int loops = 0; loops < 3; ++loops) out_.close();
  }

  void multiply() {
    std::vector<GridDim> dims = each_of(batch_);
    dims.push_back({{roles_.k}, depth_});
    dims.push_back({{roles_.n}, columns_});
    dims.push_back({roles_.rows(), rows_});
    std::vector<ExprId> at = out_.open_chunk("panel", dims);
    const ExprId m_block = at.back(), n_block = at[at.size() - 2], k_block = at[at.size() - 3];
    at.resize(at.size() - 3);
    bind_each(batch_, at);
    const Range n = range_of(n_block, columns_, roles_.n);
    const Range k = range_of(k_block, depth_, roles_.k);
    const ExprId n_tile = out_.let(to_.mul(n_block, integer(columns_ / kPanelColumns)));
    const ExprId c_at = out_.let(sums_at(at, m_block, k_block, n_tile));
    const ExprId unit = out_.let(to_.mul(k_block, integer(depth_ / unit_)));
    const ExprId a_at = out_.let(packed_at(at, m_block, unit));
    if (is_packed()) {
      multiply_packed(at, n, k, c_at, a_at);
    } else if (in_place_) {
      multiply_in_place(n, k, c_at, a_at);
    } else {
      multiply_made(n, k, c_at, a_at);
    }
    out_.close();
  }

  void multiply_in_place(Range n, Range k, ExprId c_at, ExprId a_at) {
    PanelMicro micro = micro_of(n, k, c_at, a_at, integer(0));
    for (size_t i = 0; i < c_.size(); ++i) {
      const Place& place = operands(i, micro).place;
      micro.b = source_[place.load].buffer;
      micro.b_at = first_of(place, roles_.n, n.begin, roles_.k, k.begin);
      micro.b_stride = stride(along_k_ ? place.free : place.k);
      out_.append(micro.micro());
    }
  }

  void multiply_packed(const std::vector<ExprId>& batch, Range n, Range k, ExprId c_at,
                       ExprId a_at) {
    PanelMicro micro = micro_of(n, k, c_at, a_at, integer(0));
    micro.b_lies = PanelMicro::Lies::in_strips;
    micro.strip = strip();
    micro.piece = piece_;
    const ExprId skipped = to_.mul(k.begin, integer(strip()));
    micro.b_at = out_.let(to_.add(strip_at(batch, n.begin), skipped));
    micro.b_stride = out_.let(whole_strip());
    for (size_t i = 0; i < c_.size(); ++i) {
      micro.b = {true, operands(i, micro).packed};
      out_.append(micro.micro());
    }
  }

  void multiply_made(Range n, Range k, ExprId c_at, ExprId a_at) {
    const int64_t tile = along_k_ ? kMadeDepth : kMadeRows;
    const ExprId blocks = out_.let(out_.ceil_div(to_.sub(k.end, k.begin), tile));
    const AxisId block = out_.open_loop(ForKind::serial, integer(0), blocks, "k_block");
    const ExprId skipped = out_.let(to_.mul(variable(block), integer(tile)));
    const ExprId begin = out_.let(to_.add(k.begin, skipped));
    const Range part = {begin, out_.let(to_.min(to_.add(begin, integer(tile)), k.end))};
    for (const OperandB& b : b_) {
      if (along_k_) {
        copy(b.expr, {b.made, kNone, made_row()}, roles_.n, n, roles_.k, part);
      } else {
        copy(b.expr, {b.made, kNone, made_row()}, roles_.k, part, roles_.n, n);
      }
    }
    const ExprId a_part = out_.let(to_.add(a_at, to_.mul(skipped, integer(rows_))));
    PanelMicro micro = micro_of(n, part, c_at, a_part, variable(block));
    for (size_t i = 0; i < c_.size(); ++i) {
      micro.b = {true, operands(i, micro).made};
      micro.b_at = integer(0);
      micro.b_stride = integer(made_row());
      out_.append(micro.micro());
    }
    out_.close();
  }

  PanelMicro micro_of(Range n, Range k, ExprId c_at, ExprId a_at, ExprId add) {
    return {.b_lies = along_k_ ? PanelMicro::Lies::along_k : PanelMicro::Lies::along_n,
            .rows = rows_,
            .from_memory = is_long(analysis_.scheme),
            .strip = 1,
            .piece = 1,
            .c = {},
            .a = {},
            .b = {},
            .columns = out_.let(to_.sub(n.end, n.begin)),
            .depth = out_.let(to_.sub(k.end, k.begin)),
            .c_at = c_at,
            .a_at = a_at,
            .b_at = kNone,
            .b_stride = kNone,
            .add = add,
            .before = along_k_ && in_place_ ? n.begin : integer(0)};
  }

  // Sets c and a of product i; gives its B.
  const OperandB& operands(size_t i, PanelMicro& micro) {
    const Product& p = analysis_.products[i];
    micro.c = {true, c_[i]};
    micro.a = {true, std::ranges::find(a_, p.a, &OperandA::expr)->local};
    return *std::ranges::find(b_, p.b, &OperandB::expr);
  }

  void end() {
    std::vector<GridDim> dims = each_of(batch_);
    dims.push_back({{roles_.n}, kEndColumns});
    dims.push_back({roles_.rows(), rows_});
    std::vector<ExprId> at = out_.open_chunk("end", dims);
    const ExprId m_block = at.back(), n_block = at[at.size() - 2];
    at.resize(at.size() - 2);
    bind_each(batch_, at);
    const Range n = range_of(n_block, kEndColumns, roles_.n);
    const Range m =
        roles_.m == kNone ? Range{integer(0), integer(1)} : range_of(m_block, rows_, roles_.m);
    const ExprId n_tile = out_.let(to_.mul(n_block, integer(kEndColumns / kPanelColumns)));
    const ExprId base = out_.let(sums_at(at, m_block, integer(0), n_tile));
    const ExprId piece = out_.let(to_.mul(tiles(roles_.n, kPanelColumns), integer(c_tile())));
    const ExprId count = out_.let(out_.ceil_div(to_.sub(n.end, n.begin), kPanelColumns));
    const AxisId tile = out_.open_loop(ForKind::serial, integer(0), count, "tile");
    const ExprId begin =
        out_.let(to_.add(n.begin, to_.mul(variable(tile), integer(kPanelColumns))));
    const Range columns = {begin, out_.let(to_.min(to_.add(begin, integer(kPanelColumns)), n.end))};
    const ExprId at_tile =
        out_.let(to_.sub(to_.add(base, to_.mul(variable(tile), integer(c_tile()))), begin));
    add_pieces(columns, m, at_tile, piece);
    finish(columns, m, at_tile);
    out_.close();
    out_.close();
  }

  // The pieces of k onto the first one.
  void add_pieces(Range n, Range m, ExprId at, ExprId piece) {
    const AxisId p = out_.open_loop(ForKind::serial, integer(1), tiles(roles_.k, depth_), "piece");
    const AxisId i = out_.open_loop(ForKind::serial, m.begin, m.end, "row");
    const ExprId first = out_.let(to_.add(at, row_at(variable(i), m.begin, kPanelColumns)));
    const ExprId other = out_.let(to_.add(first, to_.mul(variable(p), piece)));
    for (LocalId c : c_) {
      const AxisId j = out_.open_loop(ForKind::lane, n.begin, n.end, "column");
      const Index to = {{first, kUnit}, {variable(j), kUnit}};
      const Index from = {{other, kUnit}, {variable(j), kUnit}};
      out_.append(
          Store{{true, c}, to, to_.add(to_.load({true, c}, to), to_.load({true, c}, from))});
      out_.close();
    }
    out_.close();
    out_.close();
  }

  void finish(Range n, Range m, ExprId at) {
    const ExprId summed = out_.let(to_.compare(Code::lt, integer(0), to_.extent(roles_.k)));
    const int around = open_further_axes();
    const AxisId i = out_.open_loop(ForKind::serial, m.begin, m.end, "row");
    for (AxisId axis : roles_.rows()) out_.bind(axis, variable(i));
    const ExprId row = out_.let(to_.add(at, row_at(variable(i), m.begin, kPanelColumns)));
    const AxisId j = open(ForKind::lane, roles_.n, n);
    std::vector<ExprId> sums;
    for (LocalId c : c_)
      sums.push_back(to_.load({true, c}, {{row, kUnit}, {variable(j), kUnit}}, summed,
                              to_.constant(acc(), 0)));
    write_epilogue(sums);
    for (int loops = around + 2; loops > 0; --loops) out_.close();
  }

  const int64_t rows_, vector_bytes_;

  std::vector<OperandA> a_;
  std::vector<OperandB> b_;
  std::vector<LocalId> c_;  // by product
  AxisSet a_axes_ = 0;      // of all A
  std::vector<AxisId> batch_, packed_batch_;
  bool along_k_ = false, in_place_ = false;
  int64_t unit_ = kPanelDepth;  // of k, in which the rows of A lie side by side
  int64_t columns_ = 0, depth_ = 0;
  int64_t piece_ = 0;  // of a sum in strips: depth_ of a B that is read in place
};

}  // namespace

bool panels_take_pairs(Source& source, const ProductAnalysis& analysis) {
  const Roles& roles = analysis.roles;
  const bool along_k = lies_along(source, analysis.products[0].b, roles.k, roles.n);
  return std::ranges::all_of(analysis.products, [&](const Product& p) {
    const std::optional<Place> place = place_of(source, p.b, roles.n, roles.k);
    return place && is_contiguous(*place, along_k);
  });
}

void write_panels(Source& source, const ProductAnalysis& analysis, const TargetFacts& target,
                  Emitter& out) {
  PanelWriter(source, analysis, target, out).run();
}

}  // namespace cermet::ir
