// SPDX-License-Identifier: MIT
#include "codegen/work_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernel/gemm_case.h"
#include "kernel/ir.h"
#include "kernel/tile.h"

namespace cermet::codegen {
namespace {

// ns of all items of the first chunk loop.
double estimate(const ir::Kernel& kernel, const std::vector<int64_t>& extents) {
  const auto& chunk = std::get<ir::For>(kernel.body.at(0));
  double items = static_cast<double>(chunk.grid.constant), each = 0;
  for (const ir::SizeTerm& term : chunk.grid.terms) {
    const int64_t tiles = (extents[term.axis] + term.tile - 1) / term.tile;
    items *= static_cast<double>(tiles);
  }
  for (const Work& work : estimate_work(kernel, chunk, 64)) {
    double ns = work.ns;
    for (const WorkTrip& trip : work.trips) ns *= trip.times(extents[trip.axis]);
    each += ns;
  }
  return items * each;
}

double estimate(const char* text, const std::vector<int64_t>& extents) {
  return estimate(ir::tile(ir::parse(text), {}), extents);
}

constexpr const char* kFlat = R"(kernel "flat" {
  param p0 float32 in
  param p1 float32 out
  axis a0 "i0"
  for stage (a0) {
    store p1[a0] = neg(load(p0[a0]))
  }
})";

constexpr const char* kRows = R"(kernel "rows" {
  param p0 float32 in
  param p1 float32 out
  axis a0 "i0"
  axis a1 "i1"
  strides 2
  for stage (a0, a1) {
    store p1[a0*s1 + a1] = neg(load(p0[a0*s0 + a1]))
  }
})";

// An estimate decides how many threads work: it may not depend on how the elements are arranged.
TEST(WorkEstimate, MapsOfRowsCostWhatFlatOnesDo) {
  for (const int64_t columns : {64, 1000, 4096, 10000, 1 << 20}) {
    const int64_t rows = (int64_t{1} << 24) / columns;
    const double flat = estimate(kFlat, {rows * columns});
    const double both = estimate(kRows, {rows, columns});
    EXPECT_GT(flat, 1e5) << columns;
    EXPECT_GT(both, 0.8 * flat) << columns;
    EXPECT_LT(both, 2.0 * flat) << columns;
  }
}

// A product that packs for itself, of 256 rows and columns: a fused multiply-add is an eighth of a
// nanosecond for 16 lanes or more, so it is worth a second thread.
TEST(WorkEstimate, SmallProducts) {
  const ir::TargetFacts target = {.name = "cpu", .vector_bytes = 64, .fma = true};
  for (const int64_t n : {64, 192, 256}) {
    const ir::GemmCase product({.m = 256, .n = n, .k = 256});
    const double ns = estimate(ir::tile(product.kernel, target), {256, n, 256});
    EXPECT_GT(ns, 256.0 * 256 * static_cast<double>(n) / 16 / 8) << n;
  }
}

// The last block along each axis is a small part of one: counted whole, all three would make it 3 times the work.
TEST(WorkEstimate, PartsOfBlocks) {
  const ir::TargetFacts target = {.name = "cpu", .vector_bytes = 64, .fma = true};
  const ir::GemmCase product({.m = 400, .n = 400, .k = 400});
  const ir::Kernel tiled = ir::tile(product.kernel, target);
  EXPECT_LT(estimate(tiled, {400, 400, 400}), 2 * 0.0125 * 400 * 400 * 400);
}

// Of 3 rows there are no 16 in a block, however many columns there are.
TEST(WorkEstimate, BlocksOfAnAxisAreNotLongerThanIt) {
  const char* strided = R"(kernel "strided" {
  param p0 float32 in
  param p1 float32 out
  axis a0 "i0"
  axis a1 "i1"
  strides 3
  for stage (a0, a1) {
    store p1[a0*s2 + a1] = load(p0[a0*s0 + a1*s1])
  }
})";
  EXPECT_LT(estimate(strided, {3, 1000}), 0.3 * estimate(strided, {16, 1000}));
}

// Short rows take no part in what is done with whole blocks of 2048.
TEST(WorkEstimate, ShortRowsOfAScan) {
  const char* scan = R"(kernel "scan" {
  param p0 float32 in
  param p1 float32 out
  axis a0 "i0"
  axis a1 "i1"
  strides 2
  value v0 float32
  for stage (a0, a1) {
    fold v0 over (a1) each serial {
      float32 init float32(-0) step add(state(0, float32), load(p0[a0*s0 + a1])) merge add(state(0, float32), other(0, float32))
    }
    store p1[a0*s1 + a1] = v0
  }
})";
  EXPECT_LT(estimate(scan, {300, 60}), 0.1 * estimate(scan, {300, 2048}));
}

// Pieces of a sum are items: each costs its part, whatever the number of rows.
TEST(WorkEstimate, PiecesOfOneBlock) {
  const ir::TargetFacts target = {.name = "cpu", .vector_bytes = 64, .fma = true};
  for (const bool packed : {false, true}) {
    const ir::GemmCase product(
        {.m = 8, .n = 8, .k = 8, .a_transposed = packed, .scheme = ir::Scheme::fma_split_k});
    const ir::Kernel tiled = ir::tile(product.kernel, target);
    for (const int64_t m : {8, 64, 200}) {
      EXPECT_GT(estimate(tiled, {m, 48, 5}), 0.0125 * static_cast<double>(m * 48 * 5));
      for (const int64_t k : {2048, 32768}) {
        const double ns = estimate(tiled, {m, 48, k});
        const double multiplied = 0.0125 * static_cast<double>(m * 48 * k);
        EXPECT_GT(ns, multiplied) << m << " " << k;
        EXPECT_LT(ns, 10 * multiplied) << m << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace cermet::codegen
