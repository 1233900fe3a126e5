// SPDX-License-Identifier: MIT
// The counts are those of bench/gemm_costs.py, under the same names.
#include "schedule/product_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "codegen/target.h"

namespace cermet::schedule {

namespace {

using ir::Scheme;

struct CostShape {
  int64_t m, n, k;
  bool a_along_k, b_along_k;  // they lie so in memory
};

// Microseconds of each; `in_l2`: of elements where all does not fit into L2, `in_l3` likewise.
struct TileCosts {
  double add, call, out, out_l2, out_l3, out_row, pack_a_row, pack_across, pack_along, pack_row,
      read_l2, read_l3, split, split_k, strip, strip_k, tile, tile_k;
};
struct PanelCosts {
  double add, call, end, end_row, end_turned, ends_4, ends_8, groups_4, groups_8, pack_across,
      pack_along, pack_unit, read_l2, read_l3, rest_4, rest_8, sums_l2, sums_l3, sweep, tile_k_4,
      tile_k_8;
};

#include "schedule/product_costs.inc"

constexpr int64_t kThreads = 2;
constexpr double kVectorNs = 0.2, kLanes = 16;                   // as work is estimated
constexpr double kL2 = 1 << 20, kL3 = 28 << 20;                  // bytes
constexpr int64_t kTileRows = 6, kTileColumns = 64, kUnit = 16;  // of k or of rows
constexpr int64_t kPiece = 512;
constexpr double kNear = 0.95;  // costs are not known better

int64_t up(int64_t x, int64_t by) { return (x + by - 1) / by; }

// Of the work, what the busiest thread does.
double share_of(int64_t items, double ns) {
  if (items < 2 || ns < 1000) return 1;
  const double chunk = std::clamp(ns / (16 * kThreads), 1500.0, 5e4);
  const auto count = static_cast<double>(items);
  const int64_t grain =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(chunk * count / ns)), 1, items);
  const int64_t chunks = up(items, grain);
  if (chunks < 2) return 1;
  const double share = static_cast<double>(up(chunks, kThreads) * grain) / count;
  return std::clamp(share, 1.0 / kThreads, 1.0);
}

// Blocks of about one size, `most` or less, in whole units.
int64_t even_blocks(int64_t total, int64_t most, int64_t unit) {
  const int64_t each = up(total, up(total, most));
  return up(total, std::min(up(each, unit) * unit, most));
}

double cost_of_tiles(Scheme scheme, const CostShape& s) {
  const TileCosts& c = s.a_along_k ? kTilesInPlace : kTilesPacked;
  const bool in_place = s.a_along_k, split = scheme == Scheme::fma_split_k;
  const bool whole = scheme == Scheme::fma && !in_place;
  const int64_t depth = in_place ? 384 : 128;
  const int64_t most_columns = in_place ? 128 : whole ? 256 : 384;
  const int64_t most_rows = in_place && scheme == Scheme::fma_local ? 66 : whole ? 48 : 258;
  const int64_t pieces = split ? up(s.k, kPiece) : 1;
  const int64_t columns =
      split ? up(s.n, most_columns) : even_blocks(s.n, most_columns, kTileColumns);
  const int64_t rows = split ? up(s.m, most_rows) : even_blocks(s.m, most_rows, kTileRows);
  const int64_t visits =
      split ? up(kPiece, depth) * (pieces - 1) + up(s.k - kPiece * (pieces - 1), depth)
            : up(s.k, depth);
  const auto m = static_cast<double>(s.m), n = static_cast<double>(s.n),
             k = static_cast<double>(s.k), out = m * n;
  const double share = share_of(columns * rows * pieces, out * k * kVectorNs / kLanes);
  const double packing = whole ? share_of(up(s.n, 256) * up(s.k, 128), n * k * 0.1) : share;
  const double packs = whole ? 1 : static_cast<double>(rows);
  const auto tiles = static_cast<double>(up(s.m, kTileRows) * up(s.n, kTileColumns));
  const auto strips = static_cast<double>(up(s.n, kUnit)), across = static_cast<double>(columns);
  const double bytes = 4 * (n * k + m * k + out);
  double us = c.call + share * (tiles * (c.tile_k * k + c.tile * static_cast<double>(visits)) +
                                c.out * out + c.out_row * m * across);
  us += packing * packs *
        (s.b_along_k ? c.pack_along * n * k +
                           strips * (c.strip * static_cast<double>(visits) + c.strip_k * 16 * k)
                     : c.pack_across * n * k + c.pack_row * across * k);
  if (!in_place) us += c.pack_a_row * across * static_cast<double>(rows) * k * share;
  if (split)
    us += c.split + c.split_k * tiles * k * share + c.add * out * static_cast<double>(pieces);
  const double reads = (n * k * packs + m * k * across) * share;
  if (bytes > kL2) us += c.read_l2 * reads + c.out_l2 * out;
  if (bytes > kL3) us += c.read_l3 * reads;
  if (4 * out > kL3 / 2) us += c.out_l3 * out;
  return us;
}

double cost_of_panels(Scheme scheme, const CostShape& s) {
  const bool turned = s.n < s.m, four = scheme == Scheme::panel_four;
  const int64_t few = std::min(s.m, s.n), many = std::max(s.m, s.n);
  const bool few_along = turned ? s.b_along_k : s.a_along_k;
  const bool along = turned ? s.a_along_k : s.b_along_k;
  const PanelCosts& c = along ? kPanelsAlong : kPanelsAcross;
  const int64_t side = four ? 4 : 8, panels = up(few, side);
  const auto rows = static_cast<double>(panels * side), p = static_cast<double>(panels);
  const auto r = static_cast<double>(few), n = static_cast<double>(many),
             k = static_cast<double>(s.k);
  const double packing = share_of(panels * up(s.k, 1024), rows * k * 0.1);
  double us = c.call + packing * rows *
                           ((few_along ? c.pack_along : c.pack_across) * k +
                            c.pack_unit * static_cast<double>(up(s.k, kUnit)));
  const double ns = rows * n * k * kVectorNs / kLanes;
  const int64_t pieces = up(s.k, along ? 16384 : kPiece);
  double share = 1;
  if (along) {
    share = share_of(up(many, 128) * panels * pieces, ns);
    const double groups = p * static_cast<double>(up(many, four ? 4 : 3)) * share;
    us += (four ? c.groups_4 : c.groups_8) * groups * static_cast<double>(up(s.k, kUnit)) +
          (four ? c.ends_4 : c.ends_8) * groups * static_cast<double>(up(s.k, kPiece));
  } else {
    const int64_t width = scheme == Scheme::panel_long ? 4096 : 256, tile = four ? 64 : 32;
    share = share_of(up(many, width) * panels * pieces, ns);
    const auto blocks = static_cast<double>(up(s.k, kUnit));
    us += share * p *
          ((four ? c.tile_k_4 : c.tile_k_8) * static_cast<double>(many / tile) * k +
           (four ? c.rest_4 : c.rest_8) * static_cast<double>(up(many % tile, kUnit)) * blocks +
           c.sweep * blocks * static_cast<double>(up(many, width)));
    us += c.add * static_cast<double>(pieces - 1) * r * n;
  }
  const double ending = share_of(up(many, 512) * panels, r * n * 0.3);
  us += ending * ((turned ? c.end_turned : c.end) * r * n +
                  c.end_row * r * static_cast<double>(up(many, 64)));
  const double bytes = 4 * (n * k + r * k + r * n);
  const double sums = rows * static_cast<double>(up(many, 64) * 64 * pieces);
  if (bytes > kL2) us += c.read_l2 * n * k * share;
  if (bytes > kL3) us += c.read_l3 * n * k * share;
  if (4 * sums > kL2) us += c.sums_l2 * sums;
  if (4 * sums > kL3 / 2) us += c.sums_l3 * sums;
  return us;
}

// Its pieces are few enough, and it is not the same as another.
bool is_apart(Scheme scheme, const CostShape& s) {
  if (scheme == Scheme::fma_split_k) return s.k > kPiece && s.m * s.n <= kPiece * (s.m + s.n);
  if (scheme == Scheme::panel_long) return !(s.n < s.m ? s.a_along_k : s.b_along_k);
  return true;
}

double cost_of(Scheme scheme, const CostShape& s) {
  return is_panel(scheme) ? cost_of_panels(scheme, s) : cost_of_tiles(scheme, s);
}

// Of one float32 product of more than a row, in vectors of 64 bytes without tile instructions.
bool is_known(const ProductShape& p) {
  const auto is_float = [](Dtype dtype) { return dtype == Dtype::float32; };
  const ir::TargetFacts& facts = cpu_target().facts();
  return facts.vector_bytes == 64 && !facts.amx_bf16 && is_float(p.dtype) && is_float(p.a.dtype) &&
         is_float(p.b.dtype) && p.batch == 1 && std::min(p.m, p.n) > 1 && p.k > 0;
}

}  // namespace

Scheme cheapest_of(const ProductShape& p, Scheme given) {
  if (!is_known(p)) return given;
  const CostShape shape = {p.m, p.n, p.k, p.a.along_k, p.b.along_k};
  std::pair<double, Scheme> least = {kNear * cost_of(given, shape), given};
  for (const Scheme scheme : {Scheme::fma, Scheme::fma_local, Scheme::fma_split_k, Scheme::panel,
                              Scheme::panel_long, Scheme::panel_four})
    if (is_apart(scheme, shape))
      if (const double cost = cost_of(scheme, shape); cost < least.first) least = {cost, scheme};
  return least.second;
}

}  // namespace cermet::schedule
