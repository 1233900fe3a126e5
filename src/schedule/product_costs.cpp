// SPDX-License-Identifier: MIT
// Work is counted as kernel/tile_gemm.cpp and tile_panel.cpp divide it: what is packed, multiplied, read from
// beyond a cache and added up, by the busiest of two threads.
#include "schedule/product_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cermet::schedule {

namespace {

using ir::Scheme;

// What is counted; `_l2`: where all does not fit into L2, `_l3` likewise.
// clang-format off
#define CERMET_TILE_WORK(X)                                                                        \
  X(add) X(call) X(out) X(out_l2) X(out_l3) X(out_row) X(pack_a) X(pack_a_along)                   \
  X(pack_a_row) X(pack_across) X(pack_along) X(pack_row) X(read_l2) X(read_l3) X(split) X(split_k) \
  X(strip) X(strip_k) X(tile) X(tile_k) X(tile_k_l2) X(whole) X(whole_far) X(whole_l2) X(whole_l3) \
  X(whole_out_l2) X(whole_out_l3)
#define CERMET_PANEL_WORK(X)                                                                       \
  X(add) X(bare_l3) X(call) X(end) X(end_row) X(end_turned) X(ends_4) X(ends_8) X(groups_4) X(groups_8)       \
  X(pack_across) X(pack_along) X(pack_unit) X(read_l2) X(read_l3) X(rest_4) X(rest_8) X(sums_l2)   \
  X(sums_l3) X(sweep) X(tile_k_4) X(tile_k_8)
// clang-format on

// Counts, or in the table microseconds of each.
#define X(name) double name = 0;
struct TileWork {
  CERMET_TILE_WORK(X)
};
struct PanelWork {
  CERMET_PANEL_WORK(X)
};
#undef X

#define X(name) +work.name* each.name
double times(const TileWork& work, const TileWork& each) { return 0 CERMET_TILE_WORK(X); }
double times(const PanelWork& work, const PanelWork& each) { return 0 CERMET_PANEL_WORK(X); }
#undef X

using Named = std::vector<std::pair<std::string_view, double>>;
#define X(name) {#name, work.name},
Named named(const TileWork& work) { return {CERMET_TILE_WORK(X)}; }
Named named(const PanelWork& work) { return {CERMET_PANEL_WORK(X)}; }
#undef X

constexpr std::string_view kProcessors[] = {"narrow", "half", "full", "large_l2"};

struct Costs {
  Dtype dtype;  // of operands and result
  Processor processor;
  PanelWork panels_across = {}, panels_along = {};
  // Of panel_long: along k, where columns become lanes, and across.
  PanelWork panels_lanes = {}, panels_long = {};
  TileWork tiles_in_place = {}, tiles_packed = {};
  TileWork tiles_whole = {};  // fma's, where vectors are narrow
  TileWork tiles_tall = {};
};

#include "schedule/product_costs.inc"

constexpr Scheme kSchemes[] = {
    Scheme::fma,        Scheme::fma_local,  Scheme::fma_split_k,     Scheme::panel,
    Scheme::panel_long, Scheme::panel_four, Scheme::panel_four_long, Scheme::fma_tall};
constexpr int64_t kThreads = 2;
constexpr double kVectorNs = 0.2;                                    // as work is estimated
constexpr double kL2 = 1 << 20, kLargeL2 = 2 << 20, kL3 = 28 << 20;  // bytes
constexpr int64_t kTileRows = 6, kUnit = 16;                         // of k or of rows
constexpr int64_t kPiece = 512;
constexpr double kNear = 0.95;  // costs are not known better
// Terms of all sums. Below, a product takes a few microseconds, most of it the same by any scheme, and what differs
// by a row is to be one kernel: of the seed, and of a batch.
constexpr double kLeastWork = 1 << 15;

struct CostShape {
  Dtype dtype;
  int64_t m, n, k;
  bool a_along_k, b_along_k;
  Processor processor;

  bool narrow() const { return processor == Processor::narrow; }
  bool whole() const { return processor >= Processor::full; }
  double l2() const { return processor == Processor::large_l2 ? kLargeL2 : kL2; }
  double lanes() const { return narrow() ? 8 : 16; }
  bool is_turned() const { return n < m; }
  bool larger_along_k() const { return is_turned() ? a_along_k : b_along_k; }
  // While it is packed; other bfloat16 is multiplied by dot instructions.
  bool is_converted() const {
    return dtype == Dtype::float16 ||
           (dtype == Dtype::bfloat16 && processor == Processor::large_l2);
  }
  bool in_place(Scheme scheme) const {
    if (narrow()) return a_along_k && dtype == Dtype::float32 && scheme != Scheme::fma;
    return a_along_k && !is_converted();
  }
  double bytes() const {
    return static_cast<double>(size_of(dtype)) * static_cast<double>(m * k + k * n + m * n);
  }
};

int64_t up(int64_t x, int64_t by) { return (x + by - 1) / by; }
// Of the total, a part of that size.
double part_of(int64_t total, int64_t part) {
  return part < total ? static_cast<double>(part) / static_cast<double>(total) : 1;
}

// Of the work, what the busiest thread does; `largest`: what the largest item is.
double share_of(int64_t items, double ns, double largest = 0) {
  if (items < 2 || ns < 1000) return 1;
  const double chunk = std::clamp(ns / (16 * kThreads), 1500.0, 5e4);
  const auto count = static_cast<double>(items);
  const int64_t grain =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(chunk * count / ns)), 1, items);
  const int64_t chunks = up(items, grain);
  if (chunks < 2) return 1;
  const double share = static_cast<double>(up(chunks, kThreads) * grain) / count;
  return std::clamp(std::max(share, largest), 1.0 / kThreads, 1.0);
}

// The size of blocks of about one size, `most` or less, in whole units.
int64_t even_block(int64_t total, int64_t most, int64_t unit) {
  const int64_t each = up(total, up(total, most));
  return std::min(up(each, unit) * unit, most);
}

// Of a B that two threads have packed by columns, what one reads that the other has packed. They go through its blocks
// alike, unless there is one for both, or each goes through all of them for its rows (group_columns).
double far_part(const CostShape& s, int64_t rows, int64_t columns) {
  constexpr int64_t kShortSum = 384, kSharedRow = 64, kTileColumns = 64;
  if (rows * columns < 2) return 0;
  const bool grouped = s.k <= kShortSum && s.n % kTileColumns != 0 && s.n * s.k < kSharedRow * s.m;
  if (grouped || columns == 1) return 0.5;
  return columns % 2 == 0 ? 0 : 0.5 / static_cast<double>(columns);
}

TileWork tile_work(Scheme scheme, const CostShape& s) {
  const bool in_place = s.in_place(scheme), split = scheme == Scheme::fma_split_k;
  const bool tall = scheme == Scheme::fma_tall;
  const bool whole = scheme == Scheme::fma && !in_place;
  const bool pairs = s.dtype == Dtype::bfloat16 && !s.narrow() && !s.is_converted();
  const int64_t packed_depth = !s.narrow() ? 128 : whole ? 384 : 256;
  const int64_t depth = tall ? 512 : (in_place ? 384 : packed_depth) * (pairs ? 2 : 1);
  const int64_t most_columns = tall ? 64 : in_place ? 128 : whole ? 256 : 384;
  const int64_t block_rows = s.narrow() ? 72 : 48;
  const int64_t place_rows = scheme == Scheme::fma_local ? 66 : 258;
  const int64_t most_rows = tall ? 516 : in_place ? place_rows : whole ? block_rows : 258;
  const int64_t tile_columns = s.narrow() ? 16 : 64;
  const int64_t piece = split ? kPiece : s.k, pieces = up(s.k, piece);
  const int64_t wide = split ? most_columns : even_block(s.n, most_columns, tile_columns);
  const int64_t high = split ? most_rows : even_block(s.m, most_rows, kTileRows);
  const int64_t columns = up(s.n, wide), rows = up(s.m, high);
  const auto visits =
      static_cast<double>(up(piece, depth) * (pieces - 1) + up(s.k - piece * (pieces - 1), depth));
  const auto m = static_cast<double>(s.m), n = static_cast<double>(s.n),
             k = static_cast<double>(s.k), out = m * n;
  const double ns = out * k * kVectorNs / s.lanes();
  const double largest = part_of(s.n, wide) * part_of(s.m, high) * part_of(s.k, piece);
  const double share = share_of(columns * rows * pieces, ns, largest);
  const double packing =
      whole ? share_of(up(s.n, most_columns) * up(s.k, packed_depth), n * k * 0.1) : share;
  const double times_packed = whole ? 1 : static_cast<double>(rows), packs = packing * times_packed;
  const auto tiles = static_cast<double>(up(s.m, kTileRows) * up(s.n, tile_columns));
  const auto strips = static_cast<double>(up(s.n, kUnit)), across = static_cast<double>(columns);
  const double reads = (n * k * times_packed + m * k * across) * share;

  TileWork work = {.call = 1,
                   .out = out * share,
                   .out_row = m * across * share,
                   .tile = tiles * visits * share,
                   .tile_k = tiles * k * share};
  // Rows of A go past each narrow panel of B.
  if (s.narrow() && s.bytes() > s.l2()) work.tile_k_l2 = tiles * k * share;
  if (!in_place && tall) {
    const double packed = m * k * share_of(up(s.m, most_rows) * up(s.k, 128), m * k * 0.1);
    work.whole = 1;
    (s.a_along_k ? work.pack_a_along : work.pack_a) = packed;
    if (s.bytes() > kL3) work.whole_l3 = packed;
  } else if (!in_place) {
    (s.a_along_k ? work.pack_a_along : work.pack_a) = m * k * across * share;
    work.pack_a_row = across * static_cast<double>(rows) * k * share;
  }
  if (s.b_along_k) {
    work.pack_along = packs * n * k;
    work.strip = packs * strips * visits;
    work.strip_k = packs * strips * 16 * k;
  } else {
    work.pack_across = packs * n * k;
    work.pack_row = packs * across * k;
  }
  if (split) {
    work.split = 1;
    work.split_k = tiles * k * share;
    work.add = out * static_cast<double>(pieces);
  }
  if (whole) {
    // Written by one item, then read by every block of rows.
    const double size = pairs ? 2 : 4, packed = n * k;
    work.whole = 1;
    if (s.processor == Processor::full) work.whole_far = packed * far_part(s, rows, columns);
    if (size * packed > s.l2()) work.whole_l2 = packed * static_cast<double>(rows) * share;
    if (size * packed > (s.narrow() ? kL3 : kL3 / 2)) {
      work.whole_l3 = packed * ((s.narrow() ? 0 : 1) + static_cast<double>(rows) * share);
      if (s.narrow()) work.whole_out_l3 = packed;
    }
    // Pieces of rows of the result are shorter than those of other schemes.
    if (s.processor == Processor::large_l2 && s.bytes() > s.l2())
      (4 * out > kL3 / 2 ? work.whole_out_l3 : work.whole_out_l2) = out;
  }
  if (s.bytes() > s.l2()) work.read_l2 = reads, work.out_l2 = out;
  if (s.bytes() > kL3) work.read_l3 = reads;
  if (4 * out > kL3 / 2) work.out_l3 = out;
  return work;
}

PanelWork panel_work(Scheme scheme, const CostShape& s) {
  const bool turned = s.is_turned(), four = is_four(scheme), is_long = ir::is_long(scheme);
  const int64_t few = std::min(s.m, s.n), many = std::max(s.m, s.n);
  const bool few_along = turned ? s.b_along_k : s.a_along_k, along = s.larger_along_k();
  const int64_t side = four ? 4 : 8, panels = up(few, side);
  const auto rows = static_cast<double>(panels * side), p = static_cast<double>(panels);
  const auto r = static_cast<double>(few), n = static_cast<double>(many),
             k = static_cast<double>(s.k);
  const int64_t depth = along ? 16384 : kPiece, pieces = up(s.k, depth);
  const int64_t width = along ? 128 : is_long ? 4096 : 1024 / size_of(s.dtype);
  const double packing = share_of(panels * up(s.k, 1024), rows * k * 0.1);
  const double share =
      share_of(up(many, width) * panels * pieces, rows * n * k * kVectorNs / s.lanes(),
               part_of(many, width) * part_of(s.k, depth) / p);
  const double ending = share_of(up(many, 512) * panels, r * n * 0.3);
  const auto units = static_cast<double>(
      up(s.k, s.dtype == Dtype::bfloat16 && !s.is_converted() ? 2 * kUnit : kUnit));

  PanelWork work = {.call = 1,
                    .end_row = ending * r * static_cast<double>(up(many, 64)),
                    .pack_unit = packing * rows * units};
  (turned ? work.end_turned : work.end) = ending * r * n;
  (few_along ? work.pack_along : work.pack_across) = packing * rows * k;
  if (along && is_long) {
    const double groups = p * static_cast<double>(up(many, kUnit)) * share;
    (four ? work.tile_k_4 : work.tile_k_8) = groups * k;
    (four ? work.groups_4 : work.groups_8) = groups * units;
    (four ? work.ends_4 : work.ends_8) = groups * static_cast<double>(up(s.k, kPiece));
  } else if (along) {
    const double groups = p * static_cast<double>(up(many, s.narrow() ? 2 : four ? 4 : 3)) * share;
    (four ? work.groups_4 : work.groups_8) = groups * units;
    (four ? work.ends_4 : work.ends_8) = groups * static_cast<double>(up(s.k, kPiece));
  } else {
    const int64_t tile = s.narrow() ? 16 : four ? 64 : 32;
    const int64_t whole = many / tile;
    (four ? work.tile_k_4 : work.tile_k_8) = share * p * static_cast<double>(whole) * k;
    (four ? work.rest_4 : work.rest_8) =
        share * p * static_cast<double>(up(many % tile, kUnit)) * units;
    work.sweep = share * p * units * static_cast<double>(up(many, width));
    // Less is computed than read meanwhile.
    if (s.narrow() && four && panels == 1 && s.bytes() > kL3) work.bare_l3 = n * k * share;
    work.add = static_cast<double>(pieces - 1) * r * n;
  }
  const double sums = rows * static_cast<double>(up(many, 64) * 64 * pieces);
  if (s.bytes() > s.l2()) work.read_l2 = n * k * share;
  if (s.bytes() > kL3) work.read_l3 = n * k * share;
  if (4 * sums > s.l2()) work.sums_l2 = sums;
  if (4 * sums > kL3 / 2) work.sums_l3 = sums;
  return work;
}

// f(its work, the costs of each, their name)
template <class F>
auto with_work(Scheme scheme, const CostShape& s, F f) {
  if (is_panel(scheme)) {
    const PanelWork work = panel_work(scheme, s);
    const bool along = s.larger_along_k();
    if (ir::is_long(scheme))
      return along ? f(work, &Costs::panels_lanes, "panels_lanes")
                   : f(work, &Costs::panels_long, "panels_long");
    return along ? f(work, &Costs::panels_along, "panels_along")
                 : f(work, &Costs::panels_across, "panels_across");
  }
  const TileWork work = tile_work(scheme, s);
  if (s.narrow() && scheme == Scheme::fma) return f(work, &Costs::tiles_whole, "tiles_whole");
  if (scheme == Scheme::fma_tall) return f(work, &Costs::tiles_tall, "tiles_tall");
  return s.in_place(scheme) ? f(work, &Costs::tiles_in_place, "tiles_in_place")
                            : f(work, &Costs::tiles_packed, "tiles_packed");
}

double cost_of(Scheme scheme, const CostShape& s, const Costs& costs) {
  return with_work(scheme, s, [&](const auto& work, auto each, std::string_view) {
    return times(work, costs.*each);
  });
}

// Items that pack pieces of rows of a large matrix for few rows of the other one: with narrow vectors they took
// 1.2 to 3.5 times what panels did where sums are long, and are fitted badly.
bool packs_in_vain(Scheme scheme, const CostShape& s) {
  constexpr int64_t kFew = 16, kLongSum = 256, kLarge = 12 << 20;
  const int64_t matrix = size_of(s.dtype) * std::max(s.m, s.n) * s.k;
  return s.narrow() && !is_panel(scheme) && std::min(s.m, s.n) <= kFew && !s.larger_along_k() &&
         s.k >= kLongSum && matrix > kLarge;
}

// Few rows beside a matrix in memory: what they take does not add up where computing goes on while it is read.
bool is_all_reading(const CostShape& s) {
  constexpr int64_t kFew = 8;
  return std::min(s.m, s.n) <= kFew && s.bytes() > kL3;
}

// Not for fma_tall, which writes the result in pieces of 64 columns: of short sums that takes longest, and few rows make
// no blocks of it.
bool is_thin(const CostShape& s) {
  constexpr int64_t kFew = 16, kShortSum = 64;
  return s.k < kShortSum || std::min(s.m, s.n) <= kFew;
}

// Both operands are packed, once or again for each block: what that takes is a few per cent, and costs are no nearer.
// Packed once was 0.995 of the best on average and 0.97 at least (22 shapes), the others 0.976 and 0.94.
bool is_large_packed(const CostShape& s) {
  constexpr int64_t kLarge = 700;
  return s.processor == Processor::full && s.dtype == Dtype::float32 && !s.a_along_k &&
         std::min({s.m, s.n, s.k}) >= kLarge;
}

// Its pieces are few enough, it is not the same as another, and a panel of four does not hold all of its rows.
bool is_apart(Scheme scheme, const CostShape& s) {
  constexpr int64_t kFour = 4;
  if (packs_in_vain(scheme, s)) return false;
  if (is_panel(scheme) && !is_four(scheme) && std::min(s.m, s.n) <= kFour) return false;
  if (scheme == Scheme::fma_split_k) return s.k > kPiece && s.m * s.n <= kPiece * (s.m + s.n);
  if (scheme == Scheme::panel_four_long) return s.processor == Processor::large_l2;
  if (scheme == Scheme::fma_tall) return s.processor == Processor::large_l2 && !is_thin(s);
  return scheme != Scheme::panel_long || !s.larger_along_k() || s.whole();
}

CostShape shape_of(const ProductShape& p, Processor processor) {
  return {p.dtype, p.m, p.n, p.k, p.a.along_k, p.b.along_k, processor};
}

// One product of arrays of one dtype, of more than a row.
bool is_counted(const ProductShape& p) {
  return p.a.dtype == p.dtype && p.b.dtype == p.dtype && p.batch == 1 && std::min(p.m, p.n) > 1 &&
         p.k > 0;
}

// Measured in vectors of 32 or 64 bytes, of schemes without tile instructions.
const Costs* costs_of(const ProductShape& p, const ir::TargetFacts& facts) {
  const bool narrow = facts.vector_bytes == 32;
  if ((facts.vector_bytes != 64 && !narrow) || !is_counted(p)) return nullptr;
  const Processor processor = processor_of(facts);
  const bool is_converted = shape_of(p, processor).is_converted();
  if (p.dtype == Dtype::bfloat16 && (facts.amx_bf16 || facts.dot_bf16 == is_converted) && !narrow)
    return nullptr;
  const auto* found = std::ranges::find_if(kCosts, [&](const Costs& costs) {
    return costs.dtype == p.dtype && costs.processor == processor;
  });
  return found == std::end(kCosts) ? nullptr : found;
}

}  // namespace

Processor processor_of(const ir::TargetFacts& facts) {
  if (facts.vector_bytes < 64) return Processor::narrow;
  if (!facts.full_width) return Processor::half;
  return facts.l2_bytes >= kLargeL2 ? Processor::large_l2 : Processor::full;
}

std::string_view name_of(Processor processor) { return kProcessors[static_cast<int>(processor)]; }

std::optional<Processor> processor_named(std::string_view name) {
  const auto* found = std::ranges::find(kProcessors, name);
  if (found == std::end(kProcessors)) return std::nullopt;
  return static_cast<Processor>(found - std::begin(kProcessors));
}

bool is_small(const ProductShape& p) {
  return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) <
         kLeastWork;
}

Scheme cheapest_of(const ProductShape& p, Scheme given, const ir::TargetFacts& facts) {
  // Large products of fma_tall were measured beside the others, too.
  if (is_small(p) || ir::takes_tiles(given) || given == Scheme::fma_tall) return given;
  const Costs* costs = costs_of(p, facts);
  if (costs == nullptr) return given;
  const CostShape shape = shape_of(p, costs->processor);
  // Columns that become lanes: where the table says so, it was measured beside the others.
  const bool turns =
      shape.processor == Processor::full && ir::is_long(given) && shape.larger_along_k();
  if (turns || (shape.whole() && is_all_reading(shape)) || is_large_packed(shape)) return given;
  std::pair<double, Scheme> least = {std::numeric_limits<double>::infinity(), given};
  if (is_apart(given, shape)) least.first = kNear * cost_of(given, shape, *costs);
  for (const Scheme scheme : kSchemes)
    if (is_apart(scheme, shape))
      if (const double cost = cost_of(scheme, shape, *costs); cost < least.first)
        least = {cost, scheme};
  return least.second;
}

std::vector<SchemeWork> work_of(const ProductShape& p, Processor processor) {
  std::vector<SchemeWork> all;
  if (!is_counted(p)) return all;
  const CostShape shape = shape_of(p, processor);
  for (const Scheme scheme : kSchemes)
    if (is_apart(scheme, shape))
      all.push_back(with_work(scheme, shape, [&](const auto& work, auto, std::string_view family) {
        return SchemeWork{scheme, family, named(work)};
      }));
  return all;
}

}  // namespace cermet::schedule
