// SPDX-License-Identifier: MIT
// Which loop of a row kernel fetches what the later ones, and the next row, load.
#include "codegen/prefetch.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "codegen/target.h"
#include "kernel/passes.h"
#include "kernel/run.h"
#include "kernel/tile.h"
#include "kernel/tile_forms.h"

namespace cermet {
namespace {

using ir::Kernel;

// The gradient of softmax: after the maximum come the exponentials, a sum of quotients, or of products with the
// reciprocal, and the result.
std::string softmax_gradient(bool by_products) {
  return R"(kernel "softmax_gradient" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  axis a0 "rows"
  axis a1 "columns"
  strides 3
  value v0 float32
  value v1 float32
  value v2 float32
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    fold v0 over (a1) last lanes {
      float32 init float32(-inf) step max(state(0, float32), %0) merge max(state(0, float32), other(0, float32))
    }
    %1 = exp(sub(%0, v0))
    %2 = add(state(0, float32), other(0, float32))
    fold v1 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %1) merge %2
    }
    %3 = )" +
         std::string(by_products ? "mul(%1, div(float32(1), v1))" : "div(%1, v1)") +
         R"(
    %4 = mul(%3, load(p1[a0*s1 + a1]))
    fold v2 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %4) merge %2
    }
    store p2[a0*s2 + a1] = sub(%4, mul(%3, v2))
  }
})";
}

// One without a mean: two passes.
constexpr const char* kRmsNorm = R"(kernel "rms_norm" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  axis a0 "rows"
  axis a1 "columns"
  strides 2
  value v0 float32
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    fold v0 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(%0, %0)) merge add(state(0, float32), other(0, float32))
    }
    store p2[a0*s1 + a1] = mul(mul(%0, rsqrt(v0)), load(p1[a1]))
  }
})";

// A norm: little work in each of its passes.
constexpr const char* kLayerNorm = R"(kernel "layer_norm" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 in
  param p3 float32 out
  axis a0 "rows"
  axis a1 "columns"
  strides 2
  value v0 float32
  value v1 float32
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    %1 = add(state(0, float32), other(0, float32))
    fold v0 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %0) merge %1
    }
    %2 = sub(%0, mul(v0, float32(0.01)))
    fold v1 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(%2, %2)) merge %1
    }
    %3 = div(float32(1), sqrt(mul(v1, float32(0.01))))
    store p3[a0*s1 + a1] = add(mul(mul(%2, %3), load(p1[a1])), load(p2[a1]))
  }
})";

// The gradient of an RMS norm but for its weights: both passes load both arrays.
constexpr const char* kNormGradient = R"(kernel "norm_gradient" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  axis a0 "rows"
  axis a1 "columns"
  strides 3
  value v0 float32
  value v1 float32
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    %1 = load(p1[a0*s1 + a1])
    %2 = add(state(0, float32), other(0, float32))
    fold v0 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(%0, %0)) merge %2
    }
    fold v1 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(%0, %1)) merge %2
    }
    %3 = div(float32(1), sqrt(v0))
    store p2[a0*s2 + a1] = sub(mul(%1, %3), mul(mul(%0, v1), mul(%3, mul(%3, %3))))
  }
})";

constexpr const char* kScaledColumns = R"(kernel "scaled_columns" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  axis a0 "rows"
  axis a1 "columns"
  strides 2
  for stage (a0, a1) {
    store p2[a0*s1 + a1] = mul(load(p0[a0*s0 + a1]), load(p1[a1]))
  }
})";

std::vector<const ir::For*> loops_of(const ir::For& chunk) {
  std::vector<const ir::For*> loops;
  for (const ir::Stmt& stmt : chunk.body)
    if (const auto* loop = std::get_if<ir::For>(&stmt)) loops.push_back(loop);
  return loops;
}

TEST(Prefetch, PassesWithLittleWorkFetchHalfEach) {
  using Part = codegen::Ahead::Part;
  const Kernel tiled = ir::lower(ir::parse(kLayerNorm), cpu_facts(CpuLevel::avx512));
  const auto& chunk = std::get<ir::For>(tiled.body.at(0));
  const std::vector<const ir::For*> loops = loops_of(chunk);
  ASSERT_EQ(loops.size(), 3);
  const auto ahead = codegen::fetched_ahead(tiled, chunk, 64);
  ASSERT_EQ(ahead.size(), 2);  // the first waits for what it loads itself
  for (size_t i : {1, 2}) {
    ASSERT_EQ(ahead.at(loops[i]).size(), 1);
    const codegen::Ahead& half = ahead.at(loops[i])[0];
    EXPECT_EQ(half.buffer.id, 0);
    EXPECT_EQ(half.next_row, 0);
    EXPECT_EQ(half.part, i == 1 ? Part::first_half : Part::second_half);
    EXPECT_EQ(half.helps, i == 2);  // the one that does not store fetches all of a short row
  }
}

// Of two passes, the one that loads an array fetches half of its next row.
TEST(Prefetch, ALoaderHelpsTheOnlyOtherPass) {
  using Part = codegen::Ahead::Part;
  const Kernel tiled = ir::lower(ir::parse(kRmsNorm), cpu_facts(CpuLevel::avx512));
  const auto& chunk = std::get<ir::For>(tiled.body.at(0));
  const std::vector<const ir::For*> loops = loops_of(chunk);
  ASSERT_EQ(loops.size(), 2);
  const auto ahead = codegen::fetched_ahead(tiled, chunk, 64);
  ASSERT_EQ(ahead.size(), 2);
  for (size_t i : {0, 1}) {
    ASSERT_EQ(ahead.at(loops[i]).size(), 1);
    const codegen::Ahead& half = ahead.at(loops[i])[0];
    EXPECT_EQ(half.buffer.id, 0);
    EXPECT_EQ(half.next_row, 0);
    EXPECT_EQ(half.part, i == 0 ? Part::first_half : Part::second_half);
    EXPECT_EQ(half.helps, i == 0);
  }
}

// What is stored takes the place of what could be fetched: the last pass has more work, but fetches half of one
// array alone.
TEST(Prefetch, APassThatStoresFetchesLess) {
  using Part = codegen::Ahead::Part;
  const Kernel tiled = ir::lower(ir::parse(kNormGradient), cpu_facts(CpuLevel::avx512));
  const auto& chunk = std::get<ir::For>(tiled.body.at(0));
  const std::vector<const ir::For*> loops = loops_of(chunk);
  ASSERT_EQ(loops.size(), 2);
  const auto ahead = codegen::fetched_ahead(tiled, chunk, 64);
  ASSERT_EQ(ahead.at(loops[0]).size(), 2);
  ASSERT_EQ(ahead.at(loops[1]).size(), 1);
  std::multiset<std::pair<int32_t, Part>> fetched;
  for (const ir::For* loop : loops) {
    for (const codegen::Ahead& one : ahead.at(loop)) {
      EXPECT_EQ(one.next_row, one.buffer.id);  // by its own stride
      fetched.emplace(one.buffer.id, one.part);
    }
  }
  const int32_t halved = ahead.at(loops[1])[0].buffer.id;
  EXPECT_EQ(fetched,
            (std::multiset<std::pair<int32_t, Part>>{
                {1 - halved, Part::all}, {halved, Part::first_half}, {halved, Part::second_half}}));
}

// The exponentials are work enough for one array of two: the last pass fetches half of the other in the row
// before. In vectors of half a line there are two while a line comes.
TEST(Prefetch, OnePassWithMuchWorkSharesItsSecondArray) {
  using Part = codegen::Ahead::Part;
  for (const CpuLevel level : {CpuLevel::avx512, CpuLevel::avx2}) {
    const bool is_wide = level == CpuLevel::avx512;
    const Kernel tiled = ir::lower(ir::parse(softmax_gradient(true)), cpu_facts(level));
    const auto& chunk = std::get<ir::For>(tiled.body.at(0));
    const std::vector<const ir::For*> loops = loops_of(chunk);
    ASSERT_EQ(loops.size(), 4);
    const auto ahead = codegen::fetched_ahead(tiled, chunk, is_wide ? 64 : 32);
    ASSERT_EQ(ahead.size(), is_wide ? 2 : 1);
    const std::vector<codegen::Ahead>& own = ahead.at(loops[1]);
    ASSERT_EQ(own.size(), 2);
    EXPECT_EQ(own[0].buffer.id, 1);  // for the next pass
    EXPECT_EQ(own[0].next_row, ir::kNone);
    EXPECT_EQ(own[0].part, is_wide ? Part::second_half : Part::all);
    EXPECT_EQ(own[1].buffer.id, 0);
    EXPECT_EQ(own[1].next_row, 0);
    EXPECT_EQ(own[1].part, Part::all);
    if (!is_wide) continue;
    ASSERT_EQ(ahead.at(loops[3]).size(), 1);
    const codegen::Ahead& helps = ahead.at(loops[3])[0];
    EXPECT_EQ(helps.buffer.id, 1);
    EXPECT_EQ(helps.next_row, 1);
    EXPECT_EQ(helps.part, Part::first_half);
    EXPECT_TRUE(helps.helps);
  }
}

// The only loop over a row fetches the next one into L2, where that does not follow anyway; what all rows take
// is there.
TEST(Prefetch, ALoopAloneFetchesRowsThatLieApart) {
  const Kernel tiled = ir::lower(ir::parse(kScaledColumns), cpu_facts(CpuLevel::avx512));
  const auto& chunk = std::get<ir::For>(tiled.body.at(0));
  const auto ahead = codegen::fetched_ahead(tiled, chunk, 64);
  ASSERT_EQ(ahead.size(), 1);
  const std::vector<codegen::Ahead>& fetched = ahead.begin()->second;
  ASSERT_EQ(fetched.size(), 1);
  EXPECT_EQ(fetched[0].buffer.id, 0);
  EXPECT_EQ(fetched[0].next_row, 0);
  EXPECT_TRUE(fetched[0].if_apart);
  EXPECT_TRUE(fetched[0].streams);
  EXPECT_FALSE(fetched[0].at_once);
}

// A map of one array fetches it some way on; of two, L1 would have too much to wait for.
TEST(Prefetch, AMapFetchesItsOnlyArray) {
  for (const bool has_two : {false, true}) {
    const std::string value = has_two ? "mul(load(p0[a0]), load(p1[a0]))" : "exp(load(p0[a0]))";
    const Kernel tiled = ir::lower(ir::parse(R"(kernel "map" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  axis a0 "elements"
  for stage (a0) {
    store p2[a0] = )" + value + "\n  }\n}"),
                                   cpu_facts(CpuLevel::avx512));
    const auto ahead = codegen::fetched_ahead(tiled, std::get<ir::For>(tiled.body.at(0)), 64);
    ASSERT_EQ(ahead.size(), has_two ? 0 : 1);
    if (has_two) continue;
    const std::vector<codegen::Ahead>& fetched = ahead.begin()->second;
    ASSERT_EQ(fetched.size(), 1);
    EXPECT_TRUE(fetched[0].streams);
    EXPECT_EQ(fetched[0].next_row, ir::kNone);
  }
}

// Views of one buffer, which have the numbers of its strides in common, are one stream; an offset is no axis.
TEST(Prefetch, HalvesOfRowsAreOneStream) {
  for (const bool is_one : {false, true}) {
    const Kernel tiled = ir::lower(ir::parse(R"(kernel "rotated" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  param p3 int64 scalar
  axis a0 "rows"
  axis a1 "columns"
  strides 3
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    %1 = load(p1[a0*)" + std::string(is_one ? "s0" : "s2") +
                                             R"( + a1])
    store p2[a0*s1 + a1] = sub(%0, %1)
    store p2[a0*s1 + a1 + p3] = add(%0, %1)
  }
})"),
                                   cpu_facts(CpuLevel::avx512));
    const auto ahead = codegen::fetched_ahead(tiled, std::get<ir::For>(tiled.body.at(0)), 64);
    ASSERT_EQ(ahead.size(), 1);
    ASSERT_EQ(ahead.begin()->second.size(), 2);
    for (const codegen::Ahead& half : ahead.begin()->second) EXPECT_EQ(half.streams, is_one);
  }
}

// Tiles that are turned into a Local follow one another along the rows that are read across: below what is read as
// it lies, and beside what tiles too small for that read.
TEST(Prefetch, TheTileBelow) {
  const Kernel tiled = ir::lower(ir::parse(R"(kernel "symmetric" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  axis a0 "rows"
  axis a1 "columns"
  strides 3
  for stage (a0, a1) {
    store p2[a0*s0 + a1] = add(load(p0[a0*s1 + a1]), load(p1[a0 + a1*s2]))
  }
})"),
                                 cpu_facts(CpuLevel::avx512));
  const auto ahead = codegen::fetched_ahead(tiled, std::get<ir::For>(tiled.body.at(0)), 64);
  ASSERT_EQ(ahead.size(), 2);
  for (const auto& [loop, fetched] : ahead) {
    ASSERT_EQ(fetched.size(), 1);
    const bool is_across = fetched[0].buffer.id == 1;
    EXPECT_EQ(fetched[0].next_tile, is_across);
    if (is_across) continue;
    EXPECT_EQ(fetched[0].next_row, 1);
    EXPECT_EQ(fetched[0].rows, ir::kTransposeTile);
  }
}

TEST(Prefetch, BothPassesWithMuchWorkFetch) {
  const ir::TargetFacts facts = cpu_facts(CpuLevel::avx512);
  const Kernel tiled = ir::lower(ir::parse(softmax_gradient(false)), facts);
  const auto& chunk = std::get<ir::For>(tiled.body.at(0));
  const std::vector<const ir::For*> loops = loops_of(chunk);
  ASSERT_EQ(loops.size(), 4);
  const auto ahead = codegen::fetched_ahead(tiled, chunk, 64);
  ASSERT_EQ(ahead.size(), 2);
  ASSERT_EQ(ahead.at(loops[1]).size(), 1);
  EXPECT_EQ(ahead.at(loops[1])[0].buffer.id, 1);  // for the next pass
  EXPECT_EQ(ahead.at(loops[1])[0].next_row, ir::kNone);
  ASSERT_EQ(ahead.at(loops[2]).size(), 1);
  EXPECT_EQ(ahead.at(loops[2])[0].buffer.id, 0);  // of the next row
  EXPECT_EQ(ahead.at(loops[2])[0].next_row, 0);
  for (size_t i : {1, 2}) EXPECT_EQ(ahead.at(loops[i])[0].part, codegen::Ahead::Part::all);
}

}  // namespace
}  // namespace cermet
