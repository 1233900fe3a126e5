// SPDX-License-Identifier: MIT
// The tiler keeps the meaning: a kernel gives the same bits before and after it, in each form, on random
// kernels, and at extents around every tile size.
#include "kernel/tile.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "codegen/target.h"
#include "kernel/random_faults.h"
#include "kernel/tile_case.h"
#include "kernel/tile_source.h"

namespace cermet::ir {
namespace {

const std::vector<Numbers> kLines = {{0}, {1}, {63}, {64}, {65}, {4095}, {4096}, {4097}, {12345}};
const std::vector<Numbers> kPlanes = {{0, 5},     {5, 0},   {1, 1},   {1, 4097}, {3, 64},
                                      {15, 65},   {16, 1},  {17, 63}, {255, 33}, {256, 2},
                                      {257, 130}, {513, 3}, {2, 8200}};

TEST(Tile, Map) {
  expect_same({.text = R"(kernel "axpy" {
  param p0 float32 in
  param p1 float32 scalar
  param p2 float32 out
  axis a0
  for stage (a0) {
    store p2[a0] = mul(load(p0[a0]), exp(p1))
  }
})",
               .elements = [](const Numbers& n) { return Numbers{n[0], n[0]}; }},
              "map", kLines);
  expect_same({.text = R"(kernel "bias" {
  param p0 bfloat16 in
  param p1 float32 in
  param p2 float32 out
  axis a0
  axis a1
  strides 2
  value v0 float32
  for stage (a0, a1) {
    let v0 = add(cast.float32(load(p0[a0*s0 + a1])), load(p1[a1]))
    store p2[a0*s1 + a1] = mul(v0, sqrt(load(p1[a0])))
  }
})",
               .strides = [](const Numbers& n) { return Numbers{n[1] + 3, n[1]}; },
               .elements =
                   [](const Numbers& n) {
                     return Numbers{n[0] * (n[1] + 3), std::max(n[0], n[1]), product(n)};
                   }},
              "map", kPlanes);
}

// What points i and i + h share is made once, whatever h is beside the extent.
TEST(Tile, MapFoldedInHalf) {
  Case given = {.text = R"(kernel "halves" {
  param p0 uint32 in
  param p1 int64 scalar
  param p2 uint32 out
  axis a0
  for stage (a0) {
    %0 = le(p1, a0)
    %1 = select(%0, sub(a0, p1), a0)
    %2 = threefry(uint32(7), load(p0[a0]), cast.uint32(%1), cast.uint32(add(%1, p1)))
    store p2[a0] = select(%0, %2.1, %2.0)
  }
})",
                .elements = [](const Numbers& n) { return Numbers{n[0], n[0]}; }};
  for (double half : {-5, 0, 1, 3, 64, 4096, 6000, 20000}) {
    given.scalar = half;
    expect_same(given, "map", {{0}, {1}, {5}, {6}, {7}, {8191}, {8192}, {8193}, {12000}, {12345}});
  }
}

TEST(Tile, MapOfRankZero) {
  expect_same({.text = R"(kernel "scalar" {
  param p0 float32 in
  param p1 float32 out
  for stage () {
    store p1[] = add(load(p0[]), float32(1))
  }
})",
               .elements = [](const Numbers&) { return Numbers{1, 1}; }},
              "map", {{}});
}

// What a stage stores once for all points of an axis is not stored when the axis is empty.
TEST(Tile, StoreWithoutAxis) {
  expect_same({.text = R"(kernel "once" {
  param p0 float32 in
  param p1 float32 out
  axis a0
  axis a1
  for stage (a0, a1) {
    store p1[a0] = load(p0[a0])
  }
})",
               .elements = [](const Numbers& n) { return Numbers{n[0], n[0]}; }},
              "map", kPlanes);
}

TEST(Tile, Transpose) {
  expect_same({.text = R"(kernel "transpose" {
  param p0 float32 in
  param p1 uint8 in
  param p2 float32 out
  axis a0
  axis a1
  axis a2
  strides 6
  for stage (a0, a1, a2) {
    %0 = add(load(p0[a0*s0 + a1 + a2*s1]), cast.float32(load(p1[a0*s2 + a1 + a2*s3])))
    store p2[a0*s4 + a1*s5 + a2] = mul(%0, cast.float32(load(p1[a2])))
  }
})",
               .strides =
                   [](const Numbers& n) {
                     return Numbers{n[1] * n[2], n[1], n[1] * n[2], n[1], n[1] * n[2], n[2]};
                   },
               .elements =
                   [](const Numbers& n) {
                     return Numbers{product(n), std::max(product(n), n[2]), product(n)};
                   }},
              "transpose",
              {{1, 1, 1}, {2, 63, 65}, {3, 64, 128}, {1, 129, 1}, {2, 1, 70}, {0, 3, 4}});
}

constexpr const char* kSoftmax = R"(kernel "softmax" {
  param p0 float32 in "x"
  param p1 float32 out "y"
  axis a0 "rows"
  axis a1 "columns"
  strides 1
  value v0 float32 "max"
  value v1 float32 "sum"
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    fold v0 over (a1) last lanes {
      float32 init float32(-inf) step max(state(0, float32), %0) merge max(state(0, float32), other(0, float32))
    }
    %1 = exp(sub(%0, v0))
    fold v1 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %1) merge add(state(0, float32), other(0, float32))
    }
    store p1[a0*s0 + a1] = div(%1, v1)
  }
})";

Numbers row_stride(const Numbers& n) { return {n[1]}; }

TEST(Tile, Softmax) {
  expect_same({.text = kSoftmax,
               .strides = row_stride,
               .elements = [](const Numbers& n) { return Numbers{product(n), product(n)}; }},
              "row", kPlanes);
}

// Statistics of each row are stored beside what follows from them.
TEST(Tile, LayerNormWithStatistics) {
  expect_same(
      {.text = R"(kernel "layer_norm" {
  param p0 float16 in "x"
  param p1 float32 in "weight"
  param p2 float16 out "y"
  param p3 float32 out "mean"
  param p4 float32 out "scale"
  axis a0 "rows"
  axis a1 "columns"
  strides 1
  value v0 float32 "sum"
  value v1 float32 "mean"
  value v2 float32 "squares"
  value v3 float32 "scale"
  for stage (a0, a1) {
    %0 = cast.float32(load(p0[a0*s0 + a1]))
    fold v0 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %0) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage (a0) {
    let v1 = div(v0, cast.float32(extent(a1)))
    store p3[a0] = v1
  }
  for stage (a0, a1) {
    %1 = sub(cast.float32(load(p0[a0*s0 + a1])), v1)
    %2 = mul(%1, %1)
    fold v2 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %2) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage (a0) {
    let v3 = div(float32(1), sqrt(div(v2, cast.float32(extent(a1)))))
    store p4[a0] = v3
  }
  for stage (a0, a1) {
    %3 = mul(sub(cast.float32(load(p0[a0*s0 + a1])), v1), v3)
    store p2[a0*s0 + a1] = cast.float16(mul(%3, load(p1[a1])))
  }
})",
       .strides = row_stride,
       .elements =
           [](const Numbers& n) { return Numbers{product(n), n[1], product(n), n[0], n[0]}; }},
      "row", kPlanes);
}

TEST(Tile, ArgMaxOverTwoAxes) {
  expect_same({.text = R"(kernel "argmax" {
  param p0 float32 in
  param p1 int64 out
  axis a0
  axis a1
  axis a2
  strides 3
  value v0 float32, int64
  for stage (a0, a1, a2) {
    %0 = load(p0[a0*s0 + a1*s1 + a2*s2])
    %1 = lt(state(0, float32), %0)
    %2 = lt(state(0, float32), other(0, float32))
    fold v0 over (a1, a2) last lanes {
      float32 init float32(-inf) step select(%1, %0, state(0, float32)) merge select(%2, other(0, float32), state(0, float32))
      int64 init 0 step select(%1, add(mul(a1, extent(a2)), a2), state(1, int64)) merge select(%2, other(1, int64), state(1, int64))
    }
  }
  for stage (a0) {
    store p1[a0] = v0.1
  }
})",
               .strides = [](const Numbers& n) { return Numbers{n[1] * n[2] * 2, n[2] * 2, 2}; },
               .elements = [](const Numbers& n) { return Numbers{product(n) * 2, n[0]}; }},
              "row", {{3, 7, 11}, {1, 1, 1}, {2, 65, 63}, {1, 3, 1500}, {4, 5, 1}});
}

// The variance of everything, and what follows: three splits.
TEST(Tile, Full) {
  expect_same({.text = R"(kernel "standardise" {
  param p0 float32 in
  param p1 float32 out
  param p2 float64 out
  axis a0
  value v0 float32
  value v1 float64
  for stage (a0) {
    fold v0 over (a0) last lanes {
      float32 init float32(-0) step add(state(0, float32), load(p0[a0])) merge add(state(0, float32), other(0, float32))
    }
    %0 = cast.float64(sub(load(p0[a0]), div(v0, cast.float32(extent(a0)))))
    fold v1 over (a0) last lanes {
      float64 init float64(-0) step add(state(0, float64), mul(%0, %0)) merge add(state(0, float64), other(0, float64))
    }
    store p1[a0] = cast.float32(div(%0, v1))
  }
  for stage () {
    store p2[] = v1
  }
})",
               .elements = [](const Numbers& n) { return Numbers{n[0], n[0], 1}; }},
              "full", kLines);
}

TEST(Tile, Column) {
  const Case c{
      .text = R"(kernel "column" {
  param p0 float32 in
  param p1 float32 out
  param p2 float32 out
  axis a0
  axis a1
  strides 2
  value v0 float32
  value v1 float32, float64
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    fold v0 over (a0) last serial {
      float32 init float32(-0) step add(state(0, float32), %0) merge add(state(0, float32), other(0, float32))
    }
    %1 = sub(%0, div(v0, cast.float32(extent(a0))))
    fold v1 over (a0) last serial {
      float32 init float32(-inf) step max(state(0, float32), %1) merge max(state(0, float32), other(0, float32))
      float64 init float64(-0) step add(state(1, float64), cast.float64(mul(%1, %1))) merge add(state(1, float64), other(1, float64))
    }
    store p1[a0*s1 + a1] = mul(%1, add(v1.0, cast.float32(v1.1)))
  }
  for stage (a1) {
    store p2[a1] = v0
  }
})",
      .strides = [](const Numbers& n) { return Numbers{n[1] * 2, n[1]}; },
      .elements = [](const Numbers& n) { return Numbers{product(n) * 2, product(n), n[1]}; }};
  expect_same(c, "column", kPlanes);
  expect_same(c, "column", {{3, 2050}, {1025, 1}, {21, 1100}, {265, 2049}});
}

// A value of each row, summed over the rows: blocks of one number.
TEST(Tile, SerialSumOfOneAxis) {
  expect_same({.text = R"(kernel "loss" {
  param p0 float32 in
  param p1 float32 out
  axis a0
  value v0 float32
  for stage (a0) {
    fold v0 over (a0) last serial {
      float32 init float32(-0) step add(state(0, float32), load(p0[a0])) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage () {
    store p1[] = v0
  }
})",
               .elements = [](const Numbers& n) { return Numbers{n[0], 1}; }},
              "column", kLines);
}

// The backward of a norm: dx for each row, dw and db over the rows, and the sum of a row's value.
TEST(Tile, RowColumn) {
  expect_same({.text = R"(kernel "norm_backward" {
  param p0 float32 in "x"
  param p1 float32 in "dy"
  param p2 float32 in "w"
  param p3 float32 out "dx"
  param p4 float32 out "dw"
  param p5 float32 out "db"
  param p6 float32 out "total"
  axis a0 "batch"
  axis a1 "rows"
  axis a2 "columns"
  strides 2
  value v0 float32 "db"
  value v1 float32 "c"
  value v2 float32 "dw"
  value v3 float32 "total"
  for stage (a0, a1, a2) {
    %0 = load(p0[a0*s0 + a1*s1 + a2])
    %1 = load(p1[a0*s0 + a1*s1 + a2])
    fold v0 over (a0, a1) last serial {
      float32 init float32(-0) step add(state(0, float32), %1) merge add(state(0, float32), other(0, float32))
    }
    fold v1 over (a2) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(mul(%0, %1), load(p2[a2]))) merge add(state(0, float32), other(0, float32))
    }
    store p3[a0*s0 + a1*s1 + a2] = sub(%1, mul(%0, v1))
    fold v2 over (a0, a1) last serial {
      float32 init float32(-0) step add(state(0, float32), mul(%1, v1)) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage (a0, a1) {
    fold v3 over (a0, a1) last serial {
      float32 init float32(-0) step add(state(0, float32), v1) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage (a2) {
    store p5[a2] = v0
    store p4[a2] = v2
  }
  for stage () {
    store p6[] = v3
  }
})",
               .strides = [](const Numbers& n) { return Numbers{n[1] * n[2], n[2]}; },
               .elements =
                   [](const Numbers& n) {
                     const int64_t all = product(n);
                     return Numbers{all, all, n[2], all, n[2], n[2], 1};
                   }},
              "row_column",
              {{2, 3, 5}, {3, 90, 17}, {1, 257, 3}, {600, 1, 2}, {0, 3, 4}, {2, 3, 0}});
}

// What each loop over the elements of a row loads, and how many folds it steps.
struct RowPass {
  std::set<ParamId> loads;
  int folds = 0;
  bool operator==(const RowPass&) const = default;
};

std::vector<RowPass> passes_of(const std::string& text) {
  const Kernel tiled = lower(parse(text), cpu_facts(CpuLevel::avx512));
  std::vector<RowPass> passes;
  for_each_stmt(tiled.body, [&](const Stmt& stmt) {
    const For* loop = std::get_if<For>(&stmt);
    if (loop == nullptr || loop->kind != ForKind::lane) return;
    RowPass& pass = passes.emplace_back();
    const std::function<void(ExprId)> walk = [&](ExprId id) {
      const Expr& e = tiled[id];
      if (e.kind == ExprKind::load) pass.loads.insert(e.buffer.id);
      for_each_operand(e, walk);
    };
    for (const Stmt& inner : loop->body) {
      pass.folds += std::holds_alternative<Fold>(inner);
      std::ranges::for_each(roots_of(inner), walk);
    }
  });
  return passes;
}

// A fold that is needed late goes with a late pass that loads its elements anyway, unless they are dear: then with
// the first one.
TEST(Tile, FoldsGoWithWhatLoadsTheSame) {
  const auto kernel = [](const std::string& late) {
    return R"(kernel "centred" {
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
    %1 = load(p1[a0*s1 + a1])
    %2 = add(state(0, float32), other(0, float32))
    fold v0 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %0) merge %2
    }
    fold v1 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), )" +
           late + R"() merge %2
    }
    %3 = sub(%0, v0)
    fold v2 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(%3, %1)) merge %2
    }
    store p2[a0*s2 + a1] = mul(sub(mul(%3, v2), v1), %1)
  }
})";
  };
  for (const char* late : {"%0", "%1", "mul(%0, %1)"})
    EXPECT_EQ(passes_of(kernel(late)), (std::vector<RowPass>{{{0}, 1}, {{0, 1}, 2}, {{0, 1}, 0}}));
  EXPECT_EQ(passes_of(kernel("exp(%0)")),
            (std::vector<RowPass>{{{0}, 2}, {{0, 1}, 1}, {{0, 1}, 0}}));
}

TEST(Tile, ScanWithWhatFollows) {
  expect_same(
      {.text = R"(kernel "cumsum" {
  param p0 float32 in
  param p1 float32 out
  param p2 float32 out
  axis a0
  axis a1
  strides 1
  value v0 float32
  value v1 float32
  for stage (a0, a1) {
    %0 = exp(load(p0[a0*s0 + a1]))
    fold v0 over (a1) each serial {
      float32 init float32(-0) step add(state(0, float32), %0) merge add(state(0, float32), other(0, float32))
    }
    store p1[a0*s0 + a1] = v0
    fold v1 over (a1) last lanes {
      float32 init float32(-inf) step max(state(0, float32), v0) merge max(state(0, float32), other(0, float32))
    }
    store p2[a0*s0 + a1] = add(v0, mul(v1, %0))
  }
})",
       .strides = row_stride,
       .elements = [](const Numbers& n) { return Numbers{product(n), product(n), product(n)}; }},
      "scan", kPlanes);
}

TEST(Tile, ScanOfOneAxis) {
  // Two scans over everything, one of pairs, and a value that needs both.
  expect_same({.text = R"(kernel "scans" {
  param p0 float32 in
  param p1 float32 out
  param p2 float32 out
  axis a0
  value v0 float32
  value v1 float32, int64
  for stage (a0) {
    fold v0 over (a0) each serial {
      float32 init float32(-0) step add(state(0, float32), mul(load(p0[a0]), load(p0[a0]))) merge add(state(0, float32), other(0, float32))
    }
    fold v1 over (a0) each serial {
      float32 init float32(-inf) step max(state(0, float32), load(p0[a0])) merge max(state(0, float32), other(0, float32))
      int64 init int64(0) step add(state(1, int64), int64(1)) merge add(state(1, int64), other(1, int64))
    }
    store p1[a0] = sub(v0, v1.0)
    store p2[a0] = mul(load(p0[a0]), cast.float32(v1.1))
  }
})",
               .elements = [](const Numbers& n) { return Numbers{n[0], n[0], n[0]}; }},
              "scan",
              {{0}, {1}, {255}, {256}, {257}, {1023}, {1024}, {1025}, {16384}, {16385}, {40000}});
}

TEST(Tile, ScanOfColumns) {
  expect_same(
      {.text = R"(kernel "down" {
  param p0 float32 in
  param p1 float32 out
  axis a0
  axis a1
  strides 1
  value v0 float32
  for stage (a0, a1) {
    fold v0 over (a0) each serial {
      float32 init float32(1) step mul(state(0, float32), load(p0[a0*s0 + a1])) merge mul(state(0, float32), other(0, float32))
    }
    store p1[a0*s0 + a1] = add(v0, load(p0[a0*s0 + a1]))
  }
})",
       .strides = [](const Numbers& n) { return Numbers{n[1]}; },
       .elements = [](const Numbers& n) { return Numbers{product(n), product(n)}; }},
      "scan",
      {{0, 5}, {5, 0}, {1, 1}, {1, 4097}, {3, 64}, {255, 3}, {256, 2}, {257, 7}, {600, 2050}});
}

TEST(Tile, Embedding) {
  expect_same({.text = R"(kernel "take" {
  param p0 float32 in "table"
  param p1 int32 in "indices"
  param p2 float32 out
  param p3 int64 status
  axis a0
  axis a1
  strides 2
  for stage (a0, a1) {
    %0 = cast.int64(load(p1[a0]))
    check lt(%0, 12) site 3 index %0
    store p2[a0*s1 + a1] = load(p0[%0*s0 + a1], mask lt(%0, 12), else float32(0))
  }
})",
               .strides = [](const Numbers& n) { return Numbers{n[1], n[1]}; },
               .elements = [](const Numbers& n) { return Numbers{12 * n[1], n[0], product(n)}; },
               .index_range = 13},
              "gather", kPlanes);
}

// A start that is the same for all points keeps elements apart: these are stored by blocks of lanes.
TEST(Tile, SlicesAtComputedStarts) {
  expect_same(
      {.text = R"(kernel "slice_update" {
  param p0 int32 in "start"
  param p1 float32 in
  param p2 float32 inout
  axis a0
  axis a1
  strides 1
  for stage (a0, a1) {
    store p2[add(cast.int64(load(p0[])), a0)*s0 + a1] = load(p1[a0*s0 + a1])
  }
})",
       .strides = [](const Numbers& n) { return Numbers{n[1]}; },
       .elements = [](const Numbers& n) { return Numbers{1, n[0] * n[1], (n[0] + 12) * n[1]}; },
       .index_range = 12},
      "map", kPlanes);
}

// Every size of element, with and without a mask; what lies between the elements stays.
TEST(Tile, ElementsApart) {
  for (const int64_t apart : {1, 2, 3, 4, 5, 17})
    for (const char* dtype : {"float32", "float64", "bfloat16", "int8", "bool"})
      for (const char* mask : {"", " mask ne(rem(a0, 3), 1)"})
        expect_same({.text = fmt::format(R"(kernel "apart" {{
  param p0 {0} in
  param p1 {0} inout
  axis a0
  strides 1
  for stage (a0) {{
    store p1[a0*s0] = load(p0[a0]){1}
  }}
}})",
                                         dtype, mask),
                     .strides = [=](const Numbers&) { return Numbers{apart}; },
                     .elements = [=](const Numbers& n) { return Numbers{n[0], n[0] * apart}; }},
                    "map", {{0}, {1}, {31}, {64}, {1000}});
}

// Values loaded before their place is overwritten are those before it, wherever they are used.
TEST(Tile, InPlace) {
  expect_same(
      {.text = R"(kernel "in_place" {
  param p0 float32 inout
  param p1 float32 inout
  param p2 float32 out
  axis a0
  axis a1
  strides 1
  value v0 float32
  value v1 float32
  value v2 float32
  for stage (a0, a1) {
    let v0 = load(p0[a0*s0 + a1])
    let v1 = load(p1[a0*s0 + a1])
    store p0[a0*s0 + a1] = mul(v1, float32(2))
    store p1[a0*s0 + a1] = mul(v0, float32(3))
    fold v2 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(v0, v1)) merge add(state(0, float32), other(0, float32))
    }
    store p2[a0*s0 + a1] = add(v0, v2)
  }
})",
       .strides = row_stride,
       .elements = [](const Numbers& n) { return Numbers{product(n), product(n), product(n)}; }},
      "row", kPlanes);
}

// A whole statement comes before the next: what reads elsewhere waits for its own entry point.
TEST(Tile, ReadsElsewhereOfWhatIsWritten) {
  expect_same({.text = R"(kernel "reverse" {
  param p0 float32 inout
  param p1 float32 out
  axis a0
  value v0 float32
  for stage (a0) {
    let v0 = load(p0[sub(sub(extent(a0), 1), a0)])
    store p0[a0] = add(v0, float32(1))
    store p1[a0] = add(v0, load(p0[a0]))
  }
})",
               .elements = [](const Numbers& n) { return Numbers{n[0], n[0]}; }},
              "map", kLines);
}

TEST(Tile, ContractWithoutTemplate) {
  expect_same(
      {.text = R"(kernel "matmul" {
  param p0 int32 in
  param p1 int32 in
  param p2 int32 out
  axis a0
  axis a1
  axis a2
  strides 3
  value v0 int32
  for stage (a0, a1, a2) {
    contract v0 over (a2) load(p0[a0*s0 + a2]) * load(p1[a2*s1 + a1]) acc int32 scheme fma
  }
  for stage (a0, a1) {
    store p2[a0*s2 + a1] = v0
  }
})",
       .strides = [](const Numbers& n) { return Numbers{n[2], n[1], n[1]}; },
       .elements = [](const Numbers& n) { return Numbers{n[0] * n[2], n[2] * n[1], n[0] * n[1]}; }},
      "gemm", {{3, 4, 5}, {1, 1, 1}, {2, 3, 65}});
}

TEST(Tile, RandomKernels) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const RandomKernel random(seed);
    const Kernel tiled = tile(random.kernel, {});
    verify(tiled, true);
    ASSERT_EQ(meaning_fault(random, tiled), "");
  }
}

constexpr const char* kBias = R"(kernel "bias" {
  param p0 bfloat16 in "x"
  param p1 float32 in "bias"
  param p2 float32 out "y"
  axis a0 "rows"
  axis a1 "columns"
  strides 2
  for stage (a0, a1) {
    store p2[a0*s1 + a1] = mul(add(cast.float32(load(p0[a0*s0 + a1])), load(p1[a1])), exp(load(p1[a0])))
  }
})";

constexpr const char* kColumnSum = R"(kernel "column_sum" {
  param p0 float32 in "x"
  param p1 float32 out "y"
  axis a0 "rows"
  axis a1 "columns"
  strides 1
  value v0 float32 "sum"
  for stage (a0, a1) {
    fold v0 over (a0) last serial {
      float32 init float32(-0) step add(state(0, float32), load(p0[a0*s0 + a1])) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage (a1) {
    store p1[a1] = div(v0, cast.float32(extent(a0)))
  }
})";

constexpr const char* kFullSum = R"(kernel "full_sum" {
  param p0 float32 in "x"
  param p1 float32 out "y"
  axis a0 "n"
  value v0 float32 "sum"
  for stage (a0) {
    fold v0 over (a0) last lanes {
      float32 init float32(-0) step add(state(0, float32), load(p0[a0])) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage () {
    store p1[] = v0
  }
})";

constexpr const char* kTranspose = R"(kernel "transpose" {
  param p0 float32 in "x"
  param p1 float32 out "y"
  axis a0 "rows"
  axis a1 "columns"
  strides 2
  for stage (a0, a1) {
    store p1[a0*s1 + a1] = load(p0[a0 + a1*s0])
  }
})";

// The loops of a few kernels, as text. CERMET_UPDATE_GOLDEN=1 writes the files anew.
TEST(Tile, Golden) {
  for (const char* text : {kBias, kSoftmax, kColumnSum, kFullSum, kTranspose}) {
    const Kernel tiled = tile(parse(text), {});
    const std::string path =
        fmt::format("{}/kernel/golden/{}_tiled.ir", CERMET_TESTS_DIR, tiled.name);
    if (std::getenv("CERMET_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << print(tiled);
    std::ifstream file(path);
    std::stringstream wanted;
    wanted << file.rdbuf();
    EXPECT_EQ(print(tiled), wanted.str()) << path;
  }
}

}  // namespace
}  // namespace cermet::ir
