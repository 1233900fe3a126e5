// SPDX-License-Identifier: MIT
#include "kernel/tile_blocks.h"

#include <algorithm>

namespace cermet::ir {

OperandBlocks::OperandBlocks(Source& source, const ProductAnalysis& analysis, Emitter& out,
                             const Blocking& blocking, InPlace in_place, Dtype packed)
    : BlockWriter(source, out),
      analysis_(analysis),
      roles_(analysis.roles),
      size_(blocking),
      in_place_(in_place.a),
      b_in_place_(in_place.b),
      packed_(packed) {}

bool OperandBlocks::can_be_in_place(Source& source, const ProductAnalysis& analysis, Dtype packed) {
  const Roles& roles = analysis.roles;
  if (size_of(packed) == 1) return false;  // groups of bytes are read whole
  return std::ranges::all_of(analysis.products, [&](const Product& p) {
    const std::optional<Place> place = place_of(source, p.a, roles.m, roles.k);
    return place && source[place->load].dtype == packed && place->k == kUnit &&
           place->free != kNoTerm;
  });
}

bool OperandBlocks::can_read_rows(Source& source, const ProductAnalysis& analysis, Dtype packed) {
  const Roles& roles = analysis.roles;
  return std::ranges::all_of(analysis.products, [&](const Product& p) {
    const std::optional<Place> place = place_of(source, p.b, roles.n, roles.k);
    return place && source[place->load].dtype == packed && place->free == kUnit &&
           place->k != kNoTerm;
  });
}

// --- Memory.

LocalId OperandBlocks::local(Dtype dtype, int64_t elements) {
  return to_.local(dtype, {.constant = elements, .terms = {}}, LocalScope::thread);
}

void OperandBlocks::declare(const std::optional<Size>& whole_b,
                            const std::optional<Size>& whole_a) {
  whole_a_ = whole_a.has_value();
  for (const Product& p : analysis_.products) {
    declare_operand(b_, p.b, roles_.n);
    declare_operand(a_, p.a, roles_.m);
  }
  for (Operand& b : b_) {
    find_rows(b, roles_.n);
    if (b_in_place_) continue;
    b.local = whole_b ? to_.local(b.dtype, *whole_b, LocalScope::kernel)
                      : local(b.dtype, size_.b_block());
    need_strip(b, size_.columns);
  }
  for (Operand& a : a_) {
    if (in_place_) a.place = *place_of(source_, a.expr, roles_.m, roles_.k);
    if (in_place_ && !is_tiled()) continue;
    if (whole_a) {
      a.local = to_.local(a.dtype, *whole_a, LocalScope::kernel);
      if (!a.along_k) strip_elements_ = std::max(strip_elements_, size_.lanes * turned_row());
      continue;
    }
    if (is_tiled()) {
      a.local = local(a.dtype, a_part() * size_.parts);
      if (!a.along_k)
        strip_elements_ = std::max(strip_elements_, size_.step * turned_row() * size_.parts);
      continue;
    }
    a.local = local(a.dtype, a.along_k ? size_.rows * a_row() : size_.depth * a_width());
    if (a.along_k || size_.group == 1) continue;
    find_rows(a, roles_.m);
    need_strip(a, size_.rows);
  }
  if (strip_elements_ == 0) return;
  strip_ = local(b_[0].dtype, strip_elements_);
  if (a_[0].dtype != b_[0].dtype) a_strip_ = local(a_[0].dtype, strip_elements_);
}

void OperandBlocks::declare_operand(std::vector<Operand>& list, ExprId expr, AxisId free) {
  const auto same = [&](const Operand& p) { return p.expr == expr; };
  if (std::ranges::any_of(list, same)) return;
  const bool by_default = free == roles_.m;
  const bool along_k = lies_along(source_, expr, roles_.k, free) ||
                       (by_default && !lies_along(source_, expr, free, roles_.k));
  list.push_back({expr, in_parts() ? packed_ : source_[expr].dtype, along_k});
}

// Whether rows of the operand along `free` can be packed from where they lie.
void OperandBlocks::find_rows(Operand& operand, AxisId free) {
  if (in_parts()) return;
  const std::optional<Place> place = place_of(source_, operand.expr, free, roles_.k);
  if (place && source_[place->load].dtype == operand.dtype && place->free == kUnit &&
      place->k != kNoTerm)
    operand.place = *place;
}

void OperandBlocks::need_strip(const Operand& operand, int64_t columns) {
  if (operand.place.load != kNone) return;
  const int64_t elements = operand.along_k   ? strip_size(size_, size_.stored_depth())
                           : size_.group > 1 ? group_strip_size(size_, columns)
                                             : 0;
  strip_elements_ = std::max(strip_elements_, elements * size_.parts);
}

// --- Packing.

ExprId OperandBlocks::up_to(ExprId n, int64_t multiple) {
  return out_.let(to_.mul(out_.ceil_div(n, multiple), integer(multiple)));
}

BlockWriter::Packed OperandBlocks::packed(const Operand& operand, LocalId range, ExprId at) {
  if (!in_parts()) return operand.expr;
  return {operand.expr, size_.parts, {range, at, peaks_}};
}

std::pair<ExprId, ExprId> OperandBlocks::packed_of(Range k, int64_t group) {
  if (!in_parts()) return {up_to(length_of(k), group), up_to(length_of(k), size_.step)};
  const Pairs pairs = pairs_of(k);
  return {pairs.count, pairs.distance};
}

void OperandBlocks::pack_b(ExprId base, Range n, Range k, ExprId range) {
  if (b_in_place_) return;
  const bool whole = range != kNone;
  if (in_parts() && whole) clear_range(b_ranges_, range);
  for (const Operand& b : b_) {
    const Packed from = packed(b, whole ? b_ranges_ : b_range_, whole ? range : integer(0));
    clear_peaks(b, n);
    pack_operand(b, from, size_, {b.local, base, size_.stored_depth(), size_.columns}, k, roles_.n,
                 n);
    add_peaks(b, from, n);
    if (!is_tiled()) continue;
    const auto [begin, end] = packed_of(k, size_.group);
    const ExprId panels = out_.let(out_.ceil_div(length_of(n), size_.tile_columns));
    const AxisId p = out_.open_loop(ForKind::serial, integer(0), integer(size_.parts), "part");
    clear(b.local, out_.let(to_.add(base, to_.mul(variable(p), integer(size_.b_part())))),
          size_.b_panel(), panels, out_.let(to_.mul(begin, integer(size_.tile_columns))),
          out_.let(to_.mul(end, integer(size_.tile_columns))));
    out_.close();
  }
}

void OperandBlocks::pack_operand(const Operand& operand, const Packed& from, const Tiles& tiles,
                                 Panels to, Range k, AxisId free, Range range) {
  if (operand.place.load != kNone) {
    pack_in_place(tiles, operand.place, to, roles_.k, k, free, range);
  } else if (operand.along_k) {
    pack_transposed(tiles, from, to, roles_.k, k, free, range, strip_of(operand));
  } else {
    pack_panels(tiles, from, to, roles_.k, k, free, range, strip_of(operand));
  }
}

void OperandBlocks::pack_whole_a(ExprId base, Range m, Range k) {
  for (const Operand& a : a_) {
    const Rows rows{a.local, base, a_row()};
    if (a.along_k) {
      copy(a.expr, rows, roles_.m, m, roles_.k, k);
    } else {
      Tiles strips = size_;
      strips.step = size_.lanes;
      pack_turned(strips, a.expr, rows, roles_.k, k, roles_.m, m, turned_row(), strip_of(a));
    }
  }
}

// As they lie, but in groups; for tile instructions along k.
void OperandBlocks::pack_a(Range m, Range k) {
  if (in_place_ || whole_a_) return;
  for (const Operand& a : a_) {
    const Packed from = packed(a, a_range_, integer(0));
    if (is_tiled()) {
      pack_rows(a, from, m, k);
    } else if (a.along_k) {
      copy(from, {a.local, kNone, a_row()}, roles_.m, m, roles_.k, k);
    } else if (size_.group > 1) {
      Tiles one_panel = size_;
      one_panel.tile_columns = a_width();
      pack_operand(a, from, one_panel, {a.local, integer(0), size_.depth, size_.rows}, k, roles_.m,
                   m);
    } else {
      copy(from, {a.local, kNone, size_.rows}, roles_.k, k, roles_.m, m);
    }
  }
}

void OperandBlocks::pack_rows(const Operand& a, const Packed& from, Range m, Range k) {
  const Rows rows{a.local, kNone, a_row(), a_part()};
  if (a.along_k && in_parts()) {
    copy_pairs(from, rows, roles_.m, m, roles_.k, k);
  } else if (a.along_k) {
    copy(from, rows, roles_.m, m, roles_.k, k);
  } else {
    clear_peaks(a, m);
    pack_turned(size_, from, rows, roles_.k, k, roles_.m, m, turned_row(), strip_of(a));
    add_peaks(a, from, m);
  }
  const auto [begin, end] = packed_of(k, 1);
  const AxisId p = out_.open_loop(ForKind::serial, integer(0), integer(size_.parts), "part");
  clear(a.local, out_.let(to_.mul(variable(p), integer(a_part()))), a_row(), length_of(m), begin,
        end);
  out_.close();
}

// --- Multiplying.

void OperandBlocks::multiply(const std::vector<LocalId>& c, int64_t c_row, Range m, Range n,
                             Range k, ExprId b_at, ExprId b_next, ExprId c_at, ExprId add,
                             ExprId next_row, ExprId a_at) {
  const ExprId rows = out_.let(to_.sub(m.end, m.begin));
  const ExprId columns = out_.let(to_.sub(n.end, n.begin));
  const ExprId depth =
      in_parts() ? out_.let(to_.mul(pairs_of(k).distance, integer(2))) : length_of(k);
  for (size_t i = 0; i < c.size(); ++i) {
    const Product& p = analysis_.products[i];
    const Operand& a = *std::ranges::find(a_, p.a, &Operand::expr);
    const Operand& b = *std::ranges::find(b_, p.b, &Operand::expr);
    GemmMicro micro{.tile_rows = size_.tile_rows,
                    .tile_columns = size_.tile_columns,
                    .a_column = a.along_k || whole_a_ ? size_.group : a_width() * size_.group,
                    .b_panel = size_.b_panel(),
                    .c_row = c_row,
                    .c = {true, c[i]},
                    .a = {true, a.local},
                    .b = {true, b.local},
                    .rows = rows,
                    .columns = columns,
                    .depth = depth,
                    .c_at = c_at,
                    .a_at = whole_a_ ? a_at : integer(0),
                    .b_at = b_at,
                    .a_row = integer(a.along_k || whole_a_ || is_tiled() ? a_row() : size_.group),
                    .b_row = integer(size_.packed_row()),
                    .add = add,
                    .a_zero = analysis_.a_zero};
    if (in_place_ && is_tiled()) {
      multiply_in_place(micro, a, m, k, b_next, next_row);
      continue;
    }
    if (in_place_) put_in_place(micro, a, m, k);
    if (b_in_place_) {
      micro.b = source_[b.place.load].buffer;
      micro.b_at = first_of(b.place, roles_.n, n.begin, roles_.k, k.begin);
      micro.b_panel = size_.tile_columns;
      micro.b_row = stride(b.place.k);
    }
    out_.append(is_tiled() ? by_tiles(micro, b_next).micro() : micro.micro());
  }
}

void OperandBlocks::put_in_place(GemmMicro& micro, const Operand& a, Range m, Range k) {
  micro.a = source_[a.place.load].buffer;
  micro.a_at = element_of(a, m.begin, k.begin);
  micro.a_column = size_.group;
  micro.a_row = stride(a.place.free);
}

ExprId OperandBlocks::element_of(const Operand& a, ExprId m, ExprId k) {
  return first_of(a.place, roles_.m, m, roles_.k, k);
}

// Whole tiles of A where they lie; what is left of k, then of the rows, is packed.
void OperandBlocks::multiply_in_place(const GemmMicro& micro, const Operand& a, Range m, Range k,
                                      ExprId b_next, ExprId next_row) {
  const ExprId rows_left = out_.let(to_.rem(micro.rows, integer(kTileSide)));
  const ExprId depth_left = out_.let(to_.rem(micro.depth, integer(size_.step)));
  const ExprId m_end = out_.let(to_.sub(m.end, rows_left));
  const ExprId k_end = out_.let(to_.sub(k.end, depth_left));
  GemmMicro whole = micro;
  whole.rows = out_.let(to_.sub(micro.rows, rows_left));
  whole.depth = out_.let(to_.sub(micro.depth, depth_left));
  put_in_place(whole, a, m, k);
  TileGemmMicro tiled = by_tiles(whole, b_next);
  if (next_row != kNone) tiled.a_next = element_of(a, next_row, k.begin);
  out_.append(tiled.micro());

  out_.open_loop(ForKind::serial, integer(0), out_.ceil_div(depth_left, size_.step), "depth_left");
  pack_rows(a, a.expr, {m.begin, m_end}, {k_end, k.end});
  GemmMicro deep = micro;
  deep.rows = whole.rows;
  deep.depth = depth_left;
  const ExprId skipped = to_.mul(whole.depth, integer(size_.tile_columns));
  deep.b_at = out_.let(to_.add(micro.b_at, skipped));
  deep.add = integer(1);
  out_.append(by_tiles(deep, deep.b_at).micro());
  out_.close();

  out_.open_loop(ForKind::serial, integer(0), out_.ceil_div(rows_left, kTileSide), "rows_left");
  pack_rows(a, a.expr, {m_end, m.end}, k);
  GemmMicro low = micro;
  low.rows = rows_left;
  low.c_at = out_.let(to_.add(micro.c_at, to_.mul(whole.rows, integer(micro.c_row))));
  out_.append(by_tiles(low, low.b_at).micro());
  out_.close();
}

// The same product of blocks that lie as tile instructions take them.
TileGemmMicro OperandBlocks::by_tiles(const GemmMicro& m, ExprId b_next) const {
  TileGemmMicro tiled = BlockWriter::by_tiles(size_, m);
  tiled.parts = size_.parts;
  tiled.a_part = a_part();
  tiled.b_part = size_.b_part();
  tiled.b_next = b_next;
  return tiled;
}

// --- Ranges of magnitudes.

void OperandBlocks::declare_ranges(const std::optional<Size>& whole) {
  peaks_ = local(Dtype::int32, std::max(size_.rows, size_.packed_columns));
  a_range_ = local(Dtype::int32, kRange);
  b_range_ = local(Dtype::int32, kRange);
  if (whole) b_ranges_ = to_.local(Dtype::int32, *whole, LocalScope::kernel);
}

void OperandBlocks::clear_range(LocalId range, ExprId at) {
  const auto bits = [&](int64_t v) { return to_.integer(Dtype::int32, v); };
  out_.append(Store{{true, range}, {{at, kUnit}}, bits(0)});
  out_.append(
      Store{{true, range}, {{out_.let(to_.add(at, integer(1))), kUnit}}, bits(kNoMagnitude)});
}

void OperandBlocks::clear_ranges() {
  for (LocalId range : {a_range_, b_range_}) clear_range(range, integer(0));
}

void OperandBlocks::clear_peaks(const Operand& operand, Range range) {
  if (in_parts() && !operand.along_k)
    clear(peaks_, integer(0), 1, integer(1), integer(0), length_of(range));
}

void OperandBlocks::add_peaks(const Operand& operand, const Packed& from, Range range) {
  if (!in_parts() || operand.along_k) return;
  const auto bits = [&](int64_t v) { return to_.integer(Dtype::int32, v); };
  const AxisId i = out_.open_loop(ForKind::lane, integer(0), length_of(range), "peak");
  const ExprId peak = out_.let(to_.load({true, peaks_}, {{variable(i), kUnit}}));
  const ExprId most = to_.state(0, Dtype::int32), least = to_.state(1, Dtype::int32);
  const ValueId value = to_.value({Dtype::int32, Dtype::int32}, "range");
  out_.append(
      Fold{value,
           {i},
           Emit::last,
           Order::lanes,
           {{Dtype::int32, bits(0), to_.max(most, peak), to_.max(most, to_.other(0, Dtype::int32))},
            {Dtype::int32, bits(kNoMagnitude), to_.min(least, least_of(peak)),
             to_.min(least, to_.other(1, Dtype::int32))}}});
  out_.close();
  widen(from.peaks.range, from.peaks.at, to_.get(0, to_.ref(value)), to_.get(1, to_.ref(value)));
}

void OperandBlocks::add_ranges(ExprId first, ExprId count) {
  const AxisId i = out_.open_loop(ForKind::serial, integer(0), count, "range");
  const ExprId at = out_.let(to_.mul(to_.add(first, variable(i)), integer(kRange)));
  const Index some = {{out_.let(to_.add(at, integer(1))), kUnit}};
  widen(b_range_, integer(0), to_.load({true, b_ranges_}, {{at, kUnit}}),
        to_.load({true, b_ranges_}, some));
  out_.close();
}

// Rounded to bfloat16 they are finite; and what tile instructions take as zero, parts and products below
// 2^-126, is 2^-26 of the least row's peak times the least column's or less.
ExprId OperandBlocks::are_unfit() {
  constexpr int64_t kTooLarge = 0x7f7f8000, kBias = 127, kLeast = -100;
  const auto bits = [&](int64_t v) { return to_.integer(Dtype::int32, v); };
  const auto exponent = [&](ExprId x) { return to_.op(Code::shr, Dtype::int32, {x, bits(23)}); };
  const auto largest = [&](LocalId range) {
    return to_.load({true, range}, {{integer(0), kUnit}});
  };
  const auto least = [&](LocalId range) {
    return exponent(to_.load({true, range}, {{integer(1), kUnit}}));
  };
  const ExprId large =
      to_.compare(Code::le, bits(kTooLarge), to_.max(largest(a_range_), largest(b_range_)));
  const ExprId a = least(a_range_), b = least(b_range_);
  const ExprId small = to_.op(Code::bit_or, Dtype::boolean,
                              {to_.compare(Code::lt, to_.min(a, b), bits(kBias + kLeast)),
                               to_.compare(Code::lt, to_.add(a, b), bits(2 * kBias + kLeast))});
  return out_.let(to_.cast(to_.op(Code::bit_or, Dtype::boolean, {large, small}), Dtype::int64));
}

}  // namespace cermet::ir
