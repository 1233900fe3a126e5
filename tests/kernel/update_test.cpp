// SPDX-License-Identifier: MIT
// Updates at computed places keep their meaning when they are tiled: in the order of their points, whatever their
// number beside a block's, and however a launch divides them.
#include <gtest/gtest.h>

#include "kernel/compiled.h"
#include "kernel/random_input.h"
#include "kernel/run.h"
#include "kernel/tile.h"
#include "kernel/tile_case.h"

namespace cermet::ir {
namespace {

const std::vector<Numbers> kLines = {{0}, {1}, {63}, {255}, {256}, {257}, {4097}, {12345}};
const std::vector<Numbers> kPlanes = {{0, 5},     {5, 0},   {1, 1},   {1, 4097}, {3, 64},
                                      {15, 65},   {16, 1},  {17, 63}, {255, 33}, {256, 2},
                                      {257, 130}, {513, 3}, {2, 8200}};

const TargetFacts kCpu = {.name = "cpu"}, kSmallCaches = {.name = "cpu", .l2_bytes = 1};

// For a device, for a processor, and for one beyond whose caches everything lies.
void expect_same_everywhere(Case c, const std::vector<Numbers>& shapes) {
  for (const TargetFacts& facts : {TargetFacts{}, kCpu, kSmallCaches}) {
    c.facts = facts;
    expect_same(c, "scatter", shapes);
  }
}

int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::string tiled_text(const std::string& text) { return print(tile(parse(text), kCpu)); }

TEST(Update, ScatterAdd) {
  expect_same_everywhere(
      {.text = R"(kernel "embedding_backward" {
  param p0 float32 in "dy"
  param p1 int32 in "indices"
  param p2 float32 inout "table"
  axis a0
  axis a1
  strides 2
  for stage (a0, a1) {
    update p2[cast.int64(load(p1[a0]))*s0 + a1] add load(p0[a0*s1 + a1])
  }
})",
       .strides = [](const Numbers& n) { return Numbers{n[1], n[1]}; },
       .elements = [](const Numbers& n) { return Numbers{product(n), n[0], 12 * n[1]}; },
       .index_range = 12},
      kPlanes);
  expect_same_everywhere({.text = R"(kernel "histogram" {
  param p0 int32 in
  param p1 float32 inout
  axis a0
  for stage (a0) {
    update p1[cast.int64(load(p0[a0]))] add float32(1)
  }
})",
                          .elements = [](const Numbers& n) { return Numbers{n[0], 12}; },
                          .index_range = 12},
                         kLines);
}

// In order and in parts: over both axes, over one of them, over places of rows; the last store holds.
TEST(Update, RepeatedElements) {
  std::vector<Numbers> shapes = kPlanes;
  for (Numbers& n : shapes) n.push_back(12);
  const auto check = [&](const std::string& index, const std::string& statement) {
    const std::string text = R"(kernel "repeats" {
  param p0 int32 in "indices"
  param p1 float32 in
  param p2 float32 inout
  axis a0
  axis a1
  axis a2
  strides 1
  for stage (a0, a1) {
    %0 = cast.int64(load(p0[)" +
                             index +
                             R"(]))
    )" + statement + R"(
  }
})";
    expect_same_everywhere({.text = text,
                            .strides = [](const Numbers& n) { return Numbers{n[1]}; },
                            .elements =
                                [](const Numbers& n) {
                                  const int64_t row = std::max<int64_t>(n[1], 1);
                                  return Numbers{n[0] * row, n[0] * n[1], 12 * row};
                                },
                            .index_range = 12},
                           shapes);
  };
  const std::string value = " load(p1[a0*s0 + a1])";
  for (const char* code : {"add", "mul", "min", "max"})
    for (const char* over : {"", " over (a0, a1) elements a2", " over (a1) elements a2"})
      check("a0*s0 + a1", fmt::format("update p2[%0] {}{}{}", code, value, over));
  check("a0*s0 + a1", "update p2[%0] sub" + value + " mask ne(%0, 3)");
  check("a0*s0 + a1", "update p2[div(%0, 2)*s0 + rem(%0, 2)] add" + value);
  check("a0", "update p2[%0*s0 + a1] add" + value);
  check("a0", "update p2[%0] add" + value + " mask lt(0, a1)");
  check("a0*s0 + a1", "store p2[%0] =" + value);
  check("a0", "store p2[%0*s0 + a1] =" + value + " mask ne(%0, 3)");
}

// As put_along_axis: rows of 12 elements, an index out of range counts as 0. A row's points reach no other
// row's elements where rows lie 12 or more apart, which a launch finds out.
TEST(Update, SlicesApart) {
  for (const int64_t apart : {12, 13, 11, 5, 0}) {
    for (const char* statement : {"store p2[%1 + a0*s1] =", "update p2[%1 + a0*s1] add",
                                  "update p2[a0*s1 + %1] max", "update p2[%1 + a0*s1 + a0] add"}) {
      const std::string text = fmt::format(R"(kernel "along" {{
  param p0 int32 in "indices"
  param p1 float32 in
  param p2 float32 inout
  param p3 int32 scalar
  axis a0
  axis a1
  strides 2
  for stage (a0, a1) {{
    %0 = load(p0[a0*s0 + a1])
    %1 = cast.int64(select(bit_and(le(int32(0), %0), le(%0, p3)), %0, int32(0)))
    {} load(p1[a0*s0 + a1])
  }}
}})",
                                           statement);
      const bool shares_slices = print(tile(parse(text), {})).find("div(mul(") != std::string::npos;
      EXPECT_EQ(shares_slices, std::string_view(statement).find("+ a0]") == std::string::npos);
      expect_same_everywhere(
          {.text = text,
           .strides = [=](const Numbers& n) { return Numbers{n[1], apart}; },
           .elements =
               [](const Numbers& n) { return Numbers{n[0] * n[1], n[0] * n[1], 14 * n[0] + 12}; },
           .index_range = 13,
           .scalar = 11},
          {{1, 40}, {63, 9}, {64, 9}, {300, 20}, {3, 600}, {0, 3}});
    }
  }
}

TEST(Update, RowsInParts) {
  expect_same_everywhere(
      {.text = R"(kernel "rows" {
  param p0 int32 in "indices"
  param p1 float64 in
  param p2 float64 inout
  axis a0
  axis a1
  axis a2
  strides 1
  for stage (a0, a1) {
    update p2[cast.int64(load(p0[a0]))*s0 + a1] add load(p1[a0*s0 + a1]) over (a0) elements a2
  }
})",
       .strides = [](const Numbers& n) { return Numbers{n[1]}; },
       .elements = [](const Numbers& n) { return Numbers{n[0], n[0] * n[1], n[2]}; },
       .index_range = 12},
      {{0, 3, 36}, {1, 1, 12}, {31, 5, 60}, {33, 64, 768}, {500, 70, 840}});
}

// Of points and values that take more than a load: made in lanes first, for each block of points, with masks,
// of complex numbers, and where values are looked up.
TEST(Update, ComputedPlacesAndValues) {
  const char* const statements[] = {
      "update p3[%1] add mul(%2, %2)",
      "update p3[%1] add %2 imag sub(%2, float32(1)) mask lt(%2, float32(1))",
      "update p3[%1] max load(p1[%3]) mask ne(%3, 5)",
      "update p3[%1*s0 + rem(%3, 2)] mul load(p1[%3])",
      "update p3[%1] add mul(%2, load(p1[%3])) over (a0) elements a1",
      "update p3[%1] add float32(1) over (a0) elements a1",
  };
  std::vector<Numbers> shapes = kLines;
  for (Numbers& n : shapes) n.push_back(25);
  for (const char* statement : statements) {
    const std::string text = fmt::format(R"(kernel "computed" {{
  param p0 int32 in "indices"
  param p1 float32 in
  param p2 int32 in "places"
  param p3 float32 inout
  axis a0
  axis a1
  strides 1
  for stage (a0) {{
    %0 = load(p0[a0])
    %1 = cast.int64(select(lt(%0, int32(6)), add(%0, int32(6)), %0))
    %2 = load(p1[a0])
    %3 = cast.int64(load(p2[a0]))
    {}
  }}
}})",
                                         statement);
    const bool in_parts = text.find(" over ") != std::string::npos;
    const bool looks_up = text.find("load(p1[%3])") != std::string::npos;
    const std::string tiled = tiled_text(text);
    EXPECT_GT(count_of(tiled, "256 thread"), in_parts ? 0 : 1);  // one says which points are owned
    EXPECT_EQ(count_of(tiled, "entry \"values"), looks_up && !in_parts ? 1 : 0);
    expect_same_everywhere(
        {.text = text,
         .strides = [](const Numbers&) { return Numbers{2}; },
         .elements =
             [](const Numbers& n) { return Numbers{n[0], std::max<int64_t>(n[0], 12), n[0], 25}; },
         .index_range = 12},
        shapes);
  }
}

// The same compiled, its owners in one call and in three, each of which looks for its own points.
// Of short rows the same, as far as it is one for a row.
TEST(Update, ShortRows) {
  const std::vector<Numbers> shapes = {{0, 3},   {1, 4},   {5, 0},   {255, 2},
                                       {256, 4}, {700, 1}, {3000, 3}};
  for (const char* most : {" most 4", " most 16", ""}) {
    const std::string text = fmt::format(R"(kernel "short_rows" {{
  param p0 int32 in "indices"
  param p1 float32 in
  param p2 float32 in "weights"
  param p3 float32 inout
  axis a0
  axis a1{}
  strides 2
  for stage (a0, a1) {{
    %0 = load(p0[a0])
    %1 = cast.int64(select(lt(%0, int32(6)), add(%0, int32(6)), %0))
    %2 = load(p2[a0])
    update p3[%1*s0 + a1] add mul(load(p1[a0*s1 + a1]), mul(%2, %2))
  }}
}})",
                                         most);
    const std::string tiled = tiled_text(text);
    EXPECT_EQ(count_of(tiled, "256 thread"), *most == 0 ? 1 : 4);  // one says which are owned
    expect_same_everywhere(
        {.text = text,
         .strides = [](const Numbers& n) { return Numbers{n[1], n[1]}; },
         .elements = [](const Numbers& n) { return Numbers{n[0], n[0] * n[1], n[0], 12 * n[1]}; },
         .index_range = 12},
        shapes);
  }
}

// Rows that indices tell, one after the other: where they are is made in lanes before.
TEST(Update, PickedRows) {
  const std::string text = R"(kernel "picked" {
  param p0 int32 in "indices"
  param p1 float32 in
  param p2 float32 in "weights"
  param p3 float32 out
  axis a0
  axis a1 most 8
  strides 2
  for stage (a0, a1) {
    %0 = load(p0[a0])
    %1 = cast.int64(select(lt(%0, int32(6)), add(%0, int32(6)), %0))
    %2 = load(p2[a0])
    store p3[a0*s1 + a1] = mul(load(p1[%1*s0 + a1]), mul(%2, %2))
  }
})";
  EXPECT_EQ(count_of(tiled_text(text), "256 thread"), 2);
  for (const TargetFacts& facts : {TargetFacts{}, kCpu})
    expect_same(
        {.text = text,
         .strides = [](const Numbers& n) { return Numbers{n[1], n[1]}; },
         .elements = [](const Numbers& n) { return Numbers{n[0], 12 * n[1], n[0], n[0] * n[1]}; },
         .index_range = 12,
         .facts = facts},
        "gather", {{0, 3}, {1, 8}, {5, 0}, {255, 7}, {256, 1}, {700, 5}, {3000, 8}});
}

TEST(Update, CompiledAsInterpreted) {
  for (const char* statement : {
           "update p2[%1] add mul(%2, %2)",
           "update p2[%1] add %2 imag sub(%2, float32(1)) mask lt(%2, float32(1))",
           "update p2[%1] min load(p1[%1]) mask ne(%1, 5)",
           "update p2[%1] add mul(%2, load(p1[%1])) over (a0) elements a1",
           "store p2[%1] = mul(%2, load(p1[%1])) mask ne(%1, 5)",
           "store p2[%1] = %2",
       }) {
    const Kernel kernel = parse(fmt::format(R"(kernel {{
  param p0 int32 in
  param p1 float32 in
  param p2 float32 inout
  axis a0
  axis a1
  for stage (a0) {{
    %1 = cast.int64(bit_and(load(p0[a0]), int32(511)))
    %2 = load(p1[a0])
    {}
  }}
}})",
                                            statement));
    std::vector<KernelInput> inputs;
    for (const int64_t points : {0, 1, 255, 256, 257, 5000})
      inputs.push_back(random_input(kernel, {points, std::max<int64_t>(points, 512), 513},
                                    {points, 513}, {}, static_cast<unsigned>(points) + 1, true));
    for (const TargetFacts& facts : {kCpu, kSmallCaches})
      expect_as_interpreted(tile(kernel, facts), inputs);
  }
}

// A value that is loaded from the buffer itself is that before its own point, not before the block's.
TEST(Update, ValuesOfTheBufferItself) {
  const std::string text = R"(kernel "chain" {
  param p0 int32 in
  param p1 float32 inout
  axis a0
  for stage (a0) {
    %0 = cast.int64(load(p0[a0]))
    update p1[%0] add mul(load(p1[rem(add(%0, 1), 12)]), float32(0.5))
  }
})";
  expect_same_everywhere({.text = text,
                          .elements = [](const Numbers& n) { return Numbers{n[0], 12}; },
                          .index_range = 12},
                         {{0}, {1}, {255}, {300}});
}

// Two threads would not outweigh the search for each one's points; rows, and slices that lie apart, are worth it.
TEST(Update, SinglesAreSharedByThree) {
  const auto text = [](const std::string& statement) {
    return tiled_text(R"(kernel {
  param p0 int32 in
  param p1 float32 in
  param p2 float32 inout
  axis a0
  axis a1
  strides 2
  for stage (a0, a1) {
    )" + statement + R"(
  }
})");
  };
  const std::string single = text("update p2[cast.int64(load(p0[a0*s0 + a1]))] add load(p1[a1])");
  const std::string rows = text("update p2[cast.int64(load(p0[a0]))*s0 + a1] add load(p1[a1])");
  EXPECT_NE(single.find(" turn 256 least 3 entry"), std::string::npos);
  EXPECT_EQ(rows.find("least"), std::string::npos);
  EXPECT_NE(rows.find(" turn 256 entry"), std::string::npos);
}

}  // namespace
}  // namespace cermet::ir
