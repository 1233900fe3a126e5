// SPDX-License-Identifier: MIT
#include "kernel/tile_product.h"

#include "kernel/micro.h"
#include "kernel/tile_forms.h"
#include "kernel/tile_groups.h"

namespace cermet::ir {

bool lies_along(Source& source, ExprId operand, AxisId axis, AxisId other) {
  int votes = 0;
  source.walk({operand}, [&](ExprId id) {
    if (source[id].kind != ExprKind::load) return true;
    const AxisId unit = unit_axis(source, source[id].index);
    votes += unit == axis ? 1 : unit == other ? -1 : 0;
    return true;
  });
  return votes > 0;
}

std::optional<Place> place_of(Source& source, ExprId operand, AxisId free, AxisId k) {
  ExprId id = source.behind(operand);
  if (source[id].kind == ExprKind::op && source[id].code == Code::cast)
    id = source.behind(source[id].operands[0]);
  const Expr load = source[id];
  if (load.kind != ExprKind::load || load.operands[0] != kNone || load.buffer.local)
    return std::nullopt;
  if (source.kernel().params[load.buffer.id].access != Access::in) return std::nullopt;
  Place place{.load = id};
  for (const IndexTerm& term : load.index) {
    const Expr& e = source[source.behind(term.expr)];
    if (e.kind == ExprKind::axis && (e.id == free || e.id == k)) {
      int32_t& stride = e.id == free ? place.free : place.k;
      if (stride != kNoTerm) return std::nullopt;
      stride = term.stride;
    } else if ((source.axes(term.expr) & (axis_bit(free) | axis_bit(k))) != 0) {
      return std::nullopt;
    }
  }
  return place;
}

bool ProductAnalysis::run() {
  for (const Line& line : source_.lines()) sort(line);
  if (parts.contracts.empty() || !supported_ || !find_roles()) return false;
  const AxisSet c = roles.of_c();
  for (const Line& line : parts.epilogue)
    if ((range_of(line) & c) != c) return false;
  return !parts.epilogue.empty();
}

void ProductAnalysis::take_bfloat16() {
  std::vector<Product> narrow = products;
  for (Product& p : narrow)
    for (ExprId* operand : {&p.a, &p.b}) {
      if (source_[*operand].dtype != Dtype::float32 || !is_cast_from(*operand, Dtype::bfloat16))
        return;
      *operand = source_[source_.behind(*operand)].operands[0];
    }
  products = std::move(narrow);
  packed = Dtype::bfloat16;
}

void ProductAnalysis::take_parts() {
  take_bfloat16();
  if (packed == Dtype::bfloat16) return;
  const bool halves = std::ranges::all_of(products, [&](const Product& p) {
    return is_cast_from(p.a, Dtype::float16) && is_cast_from(p.b, Dtype::float16);
  });
  operand_parts = halves ? 2 : kMaxParts;
  packed = Dtype::uint32;
}

// Tile instructions take signed and unsigned bytes; a dot instruction multiplies unsigned by signed ones, so
// of two signed operands A is moved up by half its range.
bool ProductAnalysis::takes_bytes(const TargetFacts& target, std::vector<Product>& given) {
  const auto uniform = [&](ExprId Product::* operand) {
    const Dtype dtype = source_[given[0].*operand].dtype;
    return size_of(dtype) == 1 && std::ranges::all_of(given, [&](const Product& p) {
             return source_[p.*operand].dtype == dtype;
           });
  };
  if (!uniform(&Product::a) || !uniform(&Product::b)) return false;
  if (target.amx_int8) return true;
  const Dtype of_a = source_[given[0].a].dtype, of_b = source_[given[0].b].dtype;
  if (!target.dot_int8 || of_a != of_b) return target.dot_int8;
  if (of_a != Dtype::int8) return false;
  constexpr int64_t kHalf = 128;
  Builder& b = source_.builder();
  for (Product& p : given)
    p.a = b.op(Code::bit_xor, Dtype::uint8,
               {b.bitcast(p.a, Dtype::uint8), b.integer(Dtype::uint8, kHalf)});
  a_zero = kHalf;
  return true;
}

void ProductAnalysis::take_integers(const TargetFacts& target) {
  if (packed != Dtype::int32 && packed != Dtype::uint32) return;
  Builder& b = source_.builder();
  std::vector<Product> given = products;
  for (Product& p : given)
    for (ExprId* operand : {&p.a, &p.b}) {
      const Expr e = source_[source_.behind(*operand)];
      if (e.kind != ExprKind::op || e.code != Code::cast) return;
      const Dtype dtype = source_[e.operands[0]].dtype;
      if (dtype != Dtype::boolean && dtype != Dtype::int16 &&
          !(is_integer(dtype) && size_of(dtype) == 1))
        return;
      *operand = dtype == Dtype::boolean ? b.cast(e.operands[0], Dtype::uint8) : e.operands[0];
    }
  if (takes_bytes(target, given)) {
    packed = Dtype::int8;
  } else if (target.dot_int16) {
    for (Product& p : given) p.a = b.cast(p.a, Dtype::int16), p.b = b.cast(p.b, Dtype::int16);
    packed = Dtype::int16;
  } else {
    return;
  }
  products = std::move(given);
}

bool ProductAnalysis::is_cast_from(ExprId id, Dtype dtype) {
  const Expr& e = source_[source_.behind(id)];
  return e.kind == ExprKind::op && e.code == Code::cast && source_[e.operands[0]].dtype == dtype;
}

AxisSet ProductAnalysis::range_of(const Line& line) {
  AxisSet range = 0;
  for (ExprId root : roots_of(*line.stmt)) range |= source_.axes(root);
  return range & ~kStateAxis;
}

// The values among contracts and folds that the statement needs.
bool ProductAnalysis::needs(const Line& line, bool (*wanted)(const Stmt&)) {
  bool found = false;
  source_.walk(roots_of(*line.stmt), [&](ExprId id) {
    const Expr& e = source_[id];
    if (e.kind == ExprKind::ref && makers_[e.id] != nullptr) found |= wanted(*makers_[e.id]);
    return true;
  });
  return found;
}

void ProductAnalysis::sort(const Line& line) {
  makers_.resize(source_.kernel().values.size());
  const auto is_contract = [](const Stmt& s) { return std::holds_alternative<Contract>(s); };
  const auto is_fold = [](const Stmt& s) { return std::holds_alternative<Fold>(s); };
  const bool after = needs(line, is_contract);
  if (const Contract* contract = std::get_if<Contract>(line.stmt)) {
    supported_ &=
        !after && !needs(line, is_fold) && (parts.contracts.empty() || contract->scheme == scheme);
    scheme = contract->scheme;
    parts.contracts.push_back(line);
    makers_[contract->value] = line.stmt;
  } else if (const Fold* fold = std::get_if<Fold>(line.stmt)) {
    supported_ &= !after;
    parts.rest.push_back(line);
    makers_[fold->value] = line.stmt;
  } else if (!std::holds_alternative<Let>(*line.stmt)) {
    supported_ &= !after || !needs(line, is_fold);
    (after ? parts.epilogue : parts.rest).push_back(line);
  }
  if (const Store* store = std::get_if<Store>(line.stmt))
    supported_ &= source_.kernel().params[store->buffer.id].access != Access::inout;
  if (std::holds_alternative<Update>(*line.stmt)) supported_ = false;
}

bool ProductAnalysis::find_roles() {
  const Contract& first = std::get<Contract>(*parts.contracts[0].stmt);
  const std::vector<AxisId>& stage = parts.contracts[0].stage;
  for (const Line& line : parts.contracts) {
    const Contract& contract = std::get<Contract>(*line.stmt);
    if (line.stage != stage || contract.axes != first.axes || contract.acc != first.acc)
      return false;
    in_a_ |= source_.axes(contract.a);
    in_b_ |= source_.axes(contract.b);
    Builder& b = source_.builder();
    products.push_back(
        {&contract, b.cast(contract.a, contract.acc), b.cast(contract.b, contract.acc)});
  }
  if (first.axes.size() != 1) return false;
  packed = first.acc;
  roles.k = first.axes[0];
  for (AxisId axis : stage) {
    const AxisSet bit = axis_bit(axis);
    if ((in_a_ & bit) != 0 && (in_b_ & bit) == 0) roles.m = axis;
    if ((in_b_ & bit) != 0 && (in_a_ & bit) == 0) roles.n = axis;
  }
  if (roles.n == kNone) return false;
  find_groups(stage);
  if (roles.m == kNone && !is_panel(scheme)) return false;
  c_along_m = !runs && !is_panel(scheme) && stores_along(roles.m) > stores_along(roles.n);
  if (c_along_m && scheme != Scheme::amx_panel) exchange();
  find_batch();
  return true;
}

void ProductAnalysis::find_groups(const std::vector<AxisId>& stage) {
  if (is_panel(scheme)) return;
  if (roles.m == kNone && (scheme == Scheme::fma_local || scheme == Scheme::amx_split_local)) {
    Runs found;
    roles.m = take_runs(source_, stage, roles, products, found);
    if (roles.m == kNone) return;
    in_b_ &= ~axis_bit(roles.m);
    runs = std::move(found);
  }
  sum_range = take_sum_range(source_, roles, products);
}

void ProductAnalysis::find_batch() {
  roles.b_batch.clear(), roles.a_batch.clear();
  for (AxisId axis : parts.contracts[0].stage) {
    if (axis == roles.m || axis == roles.n || axis == roles.k) continue;
    ((in_b_ & axis_bit(axis)) != 0 ? roles.b_batch : roles.a_batch).push_back(axis);
  }
}

void ProductAnalysis::take_scheme(Scheme other) {
  scheme = other;
  if (!c_along_m) return;
  exchange();
  find_batch();
}

int ProductAnalysis::stores_along(AxisId axis) {
  int count = 0;
  for (const Line& line : parts.epilogue)
    if (const Store* store = std::get_if<Store>(line.stmt))
      count += unit_axis(source_, store->index) == axis ? 1 : 0;
  return count;
}

void ProductAnalysis::exchange() {
  c_along_m = false;
  std::swap(in_a_, in_b_);
  std::swap(roles.m, roles.n);
  for (Product& p : products) std::swap(p.a, p.b);
}

bool takes_tiles(Dtype acc, Dtype packed, const TargetFacts& target) {
  const bool pairs = packed == Dtype::uint32 && acc == Dtype::float32;
  if (packed == Dtype::bfloat16 || pairs) return target.amx_bf16;
  return packed == Dtype::int8 && target.amx_int8;
}

Tiles tiles_of(Dtype acc, Dtype packed, const TargetFacts& target, int64_t columns) {
  constexpr int64_t kLine = 64;  // bytes of a cache line
  const int64_t size = static_cast<int64_t>(size_of(acc));
  const int64_t lanes = std::max<int64_t>(1, target.vector_bytes / size);
  if (takes_tiles(acc, packed, target))
    return {.tile_rows = kTileBlock,
            .tile_columns = kTileBlock,
            .lanes = lanes,
            .line = kLine / static_cast<int64_t>(size_of(packed)),
            .group = group_of(packed),
            .step = tile_depth_of(packed)};
  // Tiles of 6 x 4 vectors fill 32 registers, 6 x 2 fill 16; without a fused multiply-add the product
  // needs one more. Of fewer columns 8 x 1 keep the units busy, and 8 x 2 where there are registers, but of groups.
  const int64_t most = target.vector_bytes >= 64 ? 4 : 2;
  const bool is_one = columns > 0 && columns <= lanes, is_two = columns > 0 && columns <= 2 * lanes;
  return {.tile_rows = !target.fma                                       ? 4
                       : is_one || (is_two && most > 2 && packed == acc) ? 8
                                                                         : 6,
          .tile_columns = (is_one   ? 1
                           : is_two ? 2
                                    : most) *
                          lanes,
          .lanes = lanes,
          .line = kLine / static_cast<int64_t>(size_of(packed)),
          .group = packed == acc ? 1 : group_of(packed)};
}

// --- BlockWriter.

BlockWriter::Range BlockWriter::range_of(ExprId index, int64_t tile, AxisId axis) {
  const auto [begin, end] = out_.bounds(index, tile, to_.extent(axis));
  return {begin, end};
}

BlockWriter::Range BlockWriter::range_of(ExprId index, ExprId tile, AxisId axis) {
  const ExprId begin = out_.let(to_.mul(index, tile));
  return {begin, out_.let(to_.min(to_.add(begin, tile), to_.extent(axis)))};
}

AxisId BlockWriter::open(ForKind kind, AxisId axis, Range range) {
  const AxisId loop =
      out_.open_loop(kind, range.begin, range.end, source_.kernel().axes[axis].name);
  out_.bind(axis, variable(loop));
  return loop;
}

ExprId BlockWriter::magnitude_bits(ExprId made) {
  const ExprId but_sign = to_.integer(Dtype::int32, kNoMagnitude);
  return to_.op(Code::bit_and, Dtype::int32, {to_.bitcast(made, Dtype::int32), but_sign});
}

BlockWriter::Pairs BlockWriter::pairs_of(Range k) {
  const ExprId depth = length_of(k);
  const ExprId distance =
      out_.let(to_.mul(out_.ceil_div(depth, kPairedDepth), integer(kPairedDepth / 2)));
  return {distance, out_.let(to_.max(to_.sub(depth, distance), integer(0))),
          out_.let(to_.min(depth, distance))};
}

// The upper half of the bits, half of its last place added before; both differences are exact.
std::vector<ExprId> BlockWriter::parts_of(ExprId first, ExprId second, ExprId second_half,
                                          int64_t count) {
  const ExprId half = to_.integer(Dtype::int32, 0x8000);
  const ExprId kept = to_.integer(Dtype::int32, -0x10000);
  const auto rounded = [&](ExprId value) {
    return to_.add(to_.bitcast(value, Dtype::int32), half);
  };
  const auto upper = [&](ExprId bits, ExprId mask) {
    return to_.op(Code::bit_and, Dtype::int32, {bits, mask});
  };
  const auto rest = [&](ExprId value, ExprId bits) {
    return to_.sub(value, to_.bitcast(upper(bits, kept), Dtype::float32));
  };
  std::vector<ExprId> parts;
  for (int64_t i = 0; i < count; ++i) {
    const ExprId low = rounded(first), high = rounded(second);
    const ExprId lower = to_.op(Code::shr, Dtype::uint32,
                                {to_.bitcast(low, Dtype::uint32), to_.integer(Dtype::uint32, 16)});
    parts.push_back(to_.op(Code::bit_or, Dtype::uint32,
                           {lower, to_.bitcast(upper(high, second_half), Dtype::uint32)}));
    first = rest(first, low), second = rest(second, high);
  }
  return parts;
}

BlockWriter::PairRow BlockWriter::pair_row(const Pairs& pairs, ExprId t) {
  const ExprId has_both = to_.compare(Code::lt, t, pairs.both);
  const auto bits = [&](int64_t v) { return to_.integer(Dtype::int32, v); };
  return {out_.let(to_.select(has_both, pairs.distance, integer(0))),
          out_.let(to_.select(has_both, bits(-0x10000), bits(0)))};
}

ExprId BlockWriter::store_pair(const Packed& from, LocalId to, const std::vector<ExprId>& places,
                               ExprId at, AxisId k_axis, ExprId k, ExprId distance,
                               ExprId second_half, AxisId lane, ExprId lane_at) {
  const auto value_at = [&](ExprId place) {
    out_.bind_again({k_axis}, place);
    if (lane != kNone) out_.bind(lane, lane_at);
    return out_.expr(from.expr);
  };
  const ExprId first = value_at(k), second = value_at(to_.add(k, distance));
  const std::vector<ExprId> parts = parts_of(first, second, second_half, from.parts);
  for (size_t p = 0; p < parts.size(); ++p)
    out_.append(Store{{true, to}, {{places[p], kUnit}, {at, kUnit}}, parts[p]});
  return to_.max(magnitude_bits(first), magnitude_bits(second));
}

void BlockWriter::store_peak(const Peaks& peaks, Range free_range, ExprId at, ExprId bits) {
  const Index peak = {{out_.let(to_.sub(integer(0), free_range.begin)), kUnit}, {at, kUnit}};
  out_.append(Store{{true, peaks.inner}, peak, to_.max(to_.load({true, peaks.inner}, peak), bits)});
}

void BlockWriter::widen(LocalId range, ExprId at, ExprId largest, ExprId least) {
  const Index most = {{at, kUnit}}, some = {{out_.let(to_.add(at, integer(1))), kUnit}};
  out_.append(Store{{true, range}, most, to_.max(to_.load({true, range}, most), largest)});
  out_.append(Store{{true, range}, some, to_.min(to_.load({true, range}, some), least)});
}

ExprId BlockWriter::least_of(ExprId peak) {
  const auto bits = [&](int64_t v) { return to_.integer(Dtype::int32, v); };
  return to_.select(to_.compare(Code::lt, bits(0), peak), peak, bits(kNoMagnitude));
}

void BlockWriter::copy(const Packed& from, const Rows& to, AxisId outer, Range outer_range,
                       AxisId inner, Range inner_range) {
  const AxisId i = open(ForKind::serial, outer, outer_range);
  ExprId place = to_.sub(row_at(variable(i), outer_range.begin, to.row), inner_range.begin);
  if (to.base != kNone) place = to_.add(place, to.base);
  place = out_.let(place);
  const AxisId j = open(ForKind::lane, inner, inner_range);
  const ExprId value = out_.expr(from.expr);
  out_.append(Store{{true, to.local}, {{place, kUnit}, {variable(j), kUnit}}, value});
  out_.close();
  for (int64_t z = 0; z < to.zeros; ++z)
    out_.append(Store{{true, to.local},
                      {{place, kUnit}, {out_.let(to_.add(inner_range.end, integer(z))), kUnit}},
                      to_.constant(source_[from.expr].dtype, 0)});
  out_.close();
}

void BlockWriter::copy_pairs(const Packed& from, const Rows& to, AxisId free, Range free_range,
                             AxisId k_axis, Range k) {
  const Pairs pairs = pairs_of(k);
  // Two runs of a row: the pairs of two values, those of one.
  const auto is_some = [&](ExprId n) { return to_.compare(Code::lt, integer(0), n); };
  const ExprId of_one = to_.sub(pairs.count, pairs.both);
  const ExprId first_run = out_.let(to_.select(is_some(pairs.both), integer(0), integer(1)));
  const ExprId end_run = out_.let(to_.select(is_some(of_one), integer(2), integer(1)));
  const AxisId i = open(ForKind::serial, free, free_range);
  const ExprId row = row_at(variable(i), free_range.begin, to.row);
  std::vector<ExprId> places;
  for (int64_t p = 0; p < from.parts; ++p)
    places.push_back(out_.let(to_.add(row, integer(p * to.part))));
  const AxisId run = out_.open_loop(ForKind::serial, first_run, end_run, "run");
  const ExprId is_second = to_.compare(Code::lt, integer(0), variable(run));
  const ExprId begin = out_.let(to_.select(is_second, pairs.both, integer(0)));
  const ExprId end = out_.let(to_.select(is_second, pairs.count, pairs.both));
  const PairRow kind = pair_row(pairs, begin);
  const AxisId t = out_.open_loop(ForKind::lane, begin, end, "pair");
  store_pair(from, to.local, places, variable(t), k_axis, to_.add(k.begin, variable(t)),
             kind.distance, kind.second_half);
  out_.close();
  out_.close();
  // A loop of its own, whose state stays in registers.
  const AxisId again = open(ForKind::lane, k_axis, k);
  const ValueId value = to_.value({Dtype::int32}, "peak");
  const ExprId state = to_.state(0, Dtype::int32);
  out_.append(Fold{value,
                   {again},
                   Emit::last,
                   Order::lanes,
                   {{Dtype::int32, to_.integer(Dtype::int32, 0),
                     to_.max(state, magnitude_bits(out_.expr(from.expr))),
                     to_.max(state, to_.other(0, Dtype::int32))}}});
  out_.close();
  widen(from.peaks.range, from.peaks.at, to_.ref(value), least_of(to_.ref(value)));
  out_.close();
}

void BlockWriter::copy_pair_rows(const Packed& from, const Rows& to, AxisId k_axis, Range k,
                                 Range t, AxisId free, Range free_range) {
  const Pairs pairs = pairs_of(k);
  const AxisId i = out_.open_loop(ForKind::serial, t.begin, t.end, "pair");
  const PairRow kind = pair_row(pairs, variable(i));
  const ExprId row = to_.sub(row_at(variable(i), t.begin, to.row), free_range.begin);
  std::vector<ExprId> places;
  for (int64_t p = 0; p < from.parts; ++p)
    places.push_back(out_.let(to_.add(row, integer(p * to.part))));
  const ExprId first = out_.let(to_.add(k.begin, variable(i)));
  const AxisId j = out_.open_loop(ForKind::lane, free_range.begin, free_range.end, "at");
  const ExprId peak = store_pair(from, to.local, places, variable(j), k_axis, first, kind.distance,
                                 kind.second_half, free, variable(j));
  store_peak(from.peaks, free_range, variable(j), peak);
  out_.close();
  out_.close();
}

void BlockWriter::pack_panels(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis,
                              Range k, AxisId n_axis, Range n, LocalId strip) {
  const int64_t width = tiles.tile_columns;
  if (from.parts > 1) return pack_pairs(tiles, from, to, k_axis, k, n_axis, n);
  if (tiles.group > 1) return pack_groups(tiles, from, to, k_axis, k, n_axis, n, strip);
  const ExprId panels = out_.ceil_div(to_.sub(n.end, n.begin), width);
  const AxisId i = open(ForKind::serial, k_axis, k);
  const ExprId row = out_.let(to_.add(to.base, row_at(variable(i), k.begin, width)));
  const AxisId p = out_.open_loop(ForKind::serial, integer(0), out_.let(panels), "panel");
  const ExprId first = out_.let(to_.add(n.begin, to_.mul(variable(p), integer(width))));
  const ExprId end = out_.let(to_.min(to_.add(first, integer(width)), n.end));
  const ExprId place =
      out_.let(to_.sub(to_.add(row, to_.mul(variable(p), integer(to.depth * width))), first));
  const AxisId j = open(ForKind::lane, n_axis, {first, end});
  const ExprId value = out_.expr(from.expr);
  out_.append(Store{{true, to.local}, {{place, kUnit}, {variable(j), kUnit}}, value});
  for (int loops = 0; loops < 3; ++loops) out_.close();
}

void BlockWriter::pack_pairs(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis,
                             Range k, AxisId n_axis, Range n) {
  const int64_t width = tiles.tile_columns, part = to.depth * width;
  const Pairs pairs = pairs_of(k);
  const ExprId panels = out_.let(out_.ceil_div(length_of(n), width));
  const AxisId i = out_.open_loop(ForKind::serial, integer(0), pairs.count, "pair");
  const PairRow kind = pair_row(pairs, variable(i));
  const ExprId row = out_.let(to_.add(to.base, to_.mul(variable(i), integer(width))));
  const ExprId at = out_.let(to_.add(k.begin, variable(i)));
  const AxisId p = out_.open_loop(ForKind::serial, integer(0), panels, "panel");
  const ExprId first = out_.let(to_.add(n.begin, to_.mul(variable(p), integer(width))));
  const ExprId end = out_.let(to_.min(to_.add(first, integer(width)), n.end));
  const ExprId panel = to_.add(row, to_.mul(variable(p), integer(part * from.parts)));
  std::vector<ExprId> places;
  for (int64_t x = 0; x < from.parts; ++x)
    places.push_back(out_.let(to_.sub(to_.add(panel, integer(x * part)), first)));
  const AxisId j = out_.open_loop(ForKind::lane, first, end, "at");
  const ExprId peak = store_pair(from, to.local, places, variable(j), k_axis, at, kind.distance,
                                 kind.second_half, n_axis, variable(j));
  store_peak(from.peaks, n, variable(j), peak);
  for (int loops = 0; loops < 3; ++loops) out_.close();
}

void BlockWriter::pack_groups(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis,
                              Range k, AxisId n_axis, Range n, LocalId strip) {
  const AxisId s = out_.open_loop(ForKind::serial, integer(0),
                                  out_.ceil_div(length_of(k), kGroupedRows), "strip");
  const ExprId first = out_.let(to_.mul(variable(s), integer(kGroupedRows)));
  const ExprId begin = out_.let(to_.add(k.begin, first));
  const Range rows = {begin, out_.let(to_.min(to_.add(begin, integer(kGroupedRows)), k.end))};
  const int64_t row = to.columns + tiles.line;
  copy(from, {strip, kNone, row}, k_axis, rows, n_axis, n);
  const PackMicro micro{
      .tile_columns = tiles.tile_columns,
      .to_panel = to.depth * tiles.tile_columns,
      .to = {true, to.local},
      .from = {true, strip},
      .rows = length_of(rows),
      .columns = length_of(n),
      .to_at = out_.let(to_.add(to.base, to_.mul(first, integer(tiles.tile_columns)))),
      .from_at = integer(0),
      .from_row = integer(row)};
  out_.append(micro.micro());
  out_.close();
}

void BlockWriter::pack_in_place(const Tiles& tiles, const Place& place, Panels to, AxisId k_axis,
                                Range k, AxisId n_axis, Range n) {
  const PackMicro micro{.tile_columns = tiles.tile_columns,
                        .to_panel = to.depth * tiles.tile_columns,
                        .to = {true, to.local},
                        .from = source_[place.load].buffer,
                        .rows = length_of(k),
                        .columns = length_of(n),
                        .to_at = to.base,
                        .from_at = first_of(place, n_axis, n.begin, k_axis, k.begin),
                        .from_row = stride(place.k)};
  out_.append(micro.micro());
}

// A strip lies in one panel.
void BlockWriter::pack_transposed(const Tiles& tiles, const Packed& from, Panels to, AxisId k_axis,
                                  Range k, AxisId n_axis, Range n, LocalId strip) {
  const int64_t width = tiles.tile_columns, rows = strip_rows(tiles), row = to.depth + tiles.line;
  const int64_t panel_size = to.depth * width * from.parts;
  const AxisId s = out_.open_loop(ForKind::serial, integer(0),
                                  out_.ceil_div(to_.sub(n.end, n.begin), rows), "strip");
  const ExprId first = out_.let(to_.mul(variable(s), integer(rows)));
  const ExprId begin = out_.let(to_.add(n.begin, first));
  const ExprId end = out_.let(to_.min(to_.add(begin, integer(rows)), n.end));
  const Rows lines{strip, kNone, row, rows * row, tiles.group - 1};
  if (from.parts > 1) copy_pairs(from, lines, n_axis, {begin, end}, k_axis, k);
  else copy(from, lines, n_axis, {begin, end}, k_axis, k);
  const ExprId panel =
      to_.mul(to_.op(Code::div, Dtype::int64, {first, integer(width)}), integer(panel_size));
  const ExprId column =
      to_.mul(to_.op(Code::rem, Dtype::int64, {first, integer(width)}), integer(tiles.group));
  const ExprId place = to_.add(to.base, to_.add(panel, column));
  TransposeMicro micro{.tile = tiles.lanes,
                       .to_row = width * tiles.group,
                       .from_row = row,
                       .group = tiles.group,
                       .to = {true, to.local},
                       .from = {true, strip},
                       .rows = out_.let(to_.sub(end, begin)),
                       .columns = from.parts > 1 ? pairs_of(k).count : length_of(k),
                       .to_at = kNone,
                       .from_at = kNone};
  for (int64_t p = 0; p < from.parts; ++p) {
    micro.to_at = out_.let(to_.add(place, integer(p * to.depth * width)));
    micro.from_at = integer(p * rows * row);
    out_.append(micro.micro());
  }
  out_.close();
}

void BlockWriter::clear(LocalId local, ExprId base, int64_t row, ExprId rows, ExprId begin,
                        ExprId end) {
  const ExprId none = to_.compare(Code::le, end, begin);
  const ExprId count = out_.let(to_.select(none, integer(0), rows));
  const AxisId i = out_.open_loop(ForKind::serial, integer(0), count, "row");
  const ExprId place = out_.let(to_.add(base, to_.mul(variable(i), integer(row))));
  const AxisId j = out_.open_loop(ForKind::lane, begin, end, "at");
  out_.append(Store{{true, local},
                    {{place, kUnit}, {variable(j), kUnit}},
                    to_.constant(to_.kernel().locals[local].dtype, 0)});
  out_.close();
  out_.close();
}

void BlockWriter::pack_turned(const Tiles& tiles, const Packed& from, const Rows& to, AxisId k_axis,
                              Range k, AxisId m_axis, Range m, int64_t strip_row, LocalId strip) {
  const int64_t part = tiles.step * strip_row;
  const bool in_pairs = from.parts > 1;
  const ExprId count = in_pairs ? pairs_of(k).count : length_of(k);
  const AxisId s =
      out_.open_loop(ForKind::serial, integer(0), out_.ceil_div(count, tiles.step), "strip");
  const ExprId first = out_.let(to_.mul(variable(s), integer(tiles.step)));
  const ExprId end = out_.let(to_.min(to_.add(first, integer(tiles.step)), count));
  const Rows lines{strip, kNone, strip_row, part};
  if (in_pairs) {
    copy_pair_rows(from, lines, k_axis, k, {first, end}, m_axis, m);
  } else {
    const auto in_k = [&](ExprId at) { return out_.let(to_.add(k.begin, at)); };
    copy(from, lines, k_axis, {in_k(first), in_k(end)}, m_axis, m);
  }
  TransposeMicro micro{.tile = tiles.lanes * tiles.group,
                       .to_row = to.row,
                       .from_row = strip_row,
                       .group = 1,
                       .to = {true, to.local},
                       .from = {true, strip},
                       .rows = length_of({first, end}),
                       .columns = length_of(m),
                       .to_at = kNone,
                       .from_at = kNone};
  for (int64_t p = 0; p < from.parts; ++p) {
    const ExprId at = to_.add(first, integer(p * to.part));
    micro.to_at = out_.let(to.base == kNone ? at : to_.add(to.base, at));
    micro.from_at = integer(p * part);
    out_.append(micro.micro());
  }
  out_.close();
}

ExprId BlockWriter::first_of(const Place& place, AxisId free, ExprId free_at, AxisId k,
                             ExprId k_at) {
  const Expr load = source_[place.load];
  ExprId at = integer(0);
  for (const IndexTerm& term : load.index) {
    const Expr e = source_[source_.behind(term.expr)];
    const bool is_axis = e.kind == ExprKind::axis;
    const ExprId index = is_axis && e.id == free ? free_at
                         : is_axis && e.id == k  ? k_at
                                                 : out_.expr(term.expr);
    at = to_.add(at, to_.mul(index, stride(term.stride)));
  }
  return out_.let(at);
}

TileGemmMicro BlockWriter::by_tiles(const Tiles& tiles, const GemmMicro& product) {
  const GemmMicro& m = product;
  return {.parts = 1,
          .a_part = tiles.step,
          .a_step = tiles.step,
          .b_part = m.b_panel,
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
          .b_next = m.b_at,
          .a_row = m.a_row,
          .add = m.add,
          .a_next = m.a_at};
}

ExprId BlockWriter::number(const std::vector<Digit>& digits) {
  ExprId number = integer(0);
  for (const Digit& digit : digits) number = to_.add(to_.mul(number, digit.count), digit.index);
  return number;
}

std::vector<GridDim> BlockWriter::each_of(const std::vector<AxisId>& axes) {
  std::vector<GridDim> dims;
  for (AxisId axis : axes) dims.push_back({{axis}, 1});
  return dims;
}

void BlockWriter::bind_each(const std::vector<AxisId>& axes, const std::vector<ExprId>& indices) {
  for (size_t i = 0; i < axes.size(); ++i) out_.bind(axes[i], indices[i]);
}

int ProductWriter::open_further_axes() {
  AxisSet more = 0;
  for (const Line& line : analysis_.parts.epilogue)
    for (AxisId axis : line.stage) more |= axis_bit(axis);
  more &= ~roles_.of_c();
  int opened = 0;
  for (AxisId axis : analysis_.parts.epilogue[0].stage) {
    if ((more & axis_bit(axis)) == 0) continue;
    open(ForKind::serial, axis, {integer(0), to_.extent(axis)});
    ++opened;
  }
  return opened;
}

void ProductWriter::write_epilogue(const std::vector<ExprId>& sums) {
  for (size_t c = 0; c < sums.size(); ++c)
    out_.define(source_.builder().ref(analysis_.products[c].contract->value), sums[c]);
  for (const Line& line : analysis_.parts.epilogue) write(line);
}

void BlockWriter::write(const Line& line) {
  if (const Store* store = std::get_if<Store>(line.stmt)) {
    Index index = out_.index(store->index);
    const ExprId value = out_.expr(store->value);
    out_.append(Store{store->buffer, std::move(index), value, out_.expr(store->mask)});
  } else {
    const Check& check = std::get<Check>(*line.stmt);
    const ExprId ok = out_.expr(check.ok);
    out_.append(Check{ok, check.site, out_.expr(check.index)});
  }
}

}  // namespace cermet::ir
