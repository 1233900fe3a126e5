// SPDX-License-Identifier: MIT
// Loops that are divided by choices: each loads from the memory that it chooses, and one that does not run from none.
// One that is long is there once, in turns.
#include <gtest/gtest.h>

#include "kernel/compiled.h"
#include "kernel/passes.h"
#include "kernel/random_input.h"
#include "kernel/run.h"
#include "kernel/tile.h"

namespace cermet::ir {
namespace {

// A frame of two places around a matrix: a corner, the columns and rows beside the matrix, and itself. Columns
// are one element for each row of the matrix, or `repeated`, elements over and over.
Kernel framed(bool repeated) {
  const std::string beside =
      repeated ? "load(p1[sub(a0, 2)*s1 + rem(a1, extent(a2))], mask bit_and(%1, %2))"
               : "load(p1[sub(a0, 2)*s1], mask bit_and(%1, %2))";
  return parse(R"(kernel "framed" {
  param p0 float32 in "corner"
  param p1 float32 in "columns"
  param p2 float32 in "row"
  param p3 float32 in "matrix"
  param p4 float32 out
  param p5 int64 scalar "width"
  axis a0
  axis a1
  axis a2
  strides 3
  for stage (a0, a1) {
    %0 = lt(a0, 2)
    %1 = lt(a1, p5)
    %2 = le(2, a0)
    %3 = le(p5, a1)
    %4 = select(%0, load(p0[], mask bit_and(%1, %0)), )" +
               beside + R"()
    %5 = load(p3[sub(a0, 2)*s2 + sub(a1, p5)], mask bit_and(%3, %2))
    %6 = select(%0, load(p2[sub(a1, p5)], mask bit_and(%3, %0)), %5)
    store p4[a0*s0 + a1] = select(%1, %4, %6)
  }
})");
}

TEST(Unswitch, WhatDoesNotRunLoadsNothing) {
  const TargetFacts cpu = {.name = "cpu"};
  for (const bool repeated : {false, true}) {
    const Kernel kernel = framed(repeated);
    const Kernel divided = simplify(unswitch(tile(kernel, cpu), cpu));
    EXPECT_NE(print(divided), print(tile(kernel, cpu)));
    std::vector<KernelInput> inputs;
    for (const auto& [rows, columns, width, period] : {std::array<int64_t, 4>{6, 70, 2, 1},
                                                       {5, 3000, 2600, 7},
                                                       {40, 90, 80, 30},
                                                       {20, 4200, 4150, 5},
                                                       {17, 64, 16, 4}}) {
      const int64_t right = columns - width;
      KernelInput input = random_input(
          kernel, {1, (rows - 2) * period, right, (rows - 2) * right, rows * columns, 0},
          {rows, columns, period}, {columns, period, right}, 1, true);
      input.scalars[5] = static_cast<uint64_t>(width);
      expect_same(kernel, run_interpreted(divided, input), run_interpreted(kernel, input));
      inputs.push_back(std::move(input));
    }
    expect_as_interpreted(divided, inputs);
  }
}

// Rows of `columns` channels with zeros before and behind them, padded as one axis, and so many functions of an element.
Kernel padded(int functions) {
  std::string value = "%1";
  for (int i = 0; i < functions; ++i) value = "sin(" + value + ")";
  return parse(R"(kernel "padded" {
  param p0 float32 in
  param p1 float32 out
  param p2 int64 scalar "first"
  param p3 int64 scalar "past"
  axis a0
  axis a1
  axis a2 "channels"
  strides 2
  for stage (a0, a1) {
    %0 = bit_and(le(p2, div(a1, extent(a2))), lt(div(a1, extent(a2)), p3))
    %1 = select(%0, load(p0[a0*s0 + sub(a1, mul(p2, extent(a2)))], mask %0), float32(2))
    store p1[a0*s1 + a1] = )" +
               value + R"(
  }
})");
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Unswitch, LongLoopsRunInTurns) {
  const TargetFacts cpu = {.name = "cpu"};
  for (const int functions : {0, 5, 40}) {
    const Kernel kernel = padded(functions), tiled = tile(expand(kernel, cpu), cpu);
    const Kernel divided = simplify(unswitch(tiled, cpu));
    const std::string text = print(divided);
    const bool is_long = functions > 0;
    EXPECT_EQ(count(text, "for lane"), is_long ? 1 : 3) << text;
    EXPECT_EQ(count(text, "\"turn\""), is_long ? 1 : 0) << text;
    const std::string lanes = text.substr(text.find("for lane"));
    EXPECT_EQ(count(lanes, "div(a"), 0) << text;
    std::vector<KernelInput> inputs;
    // channels, first, past, columns of all in channels
    for (const auto& [channels, first, past, all] : {std::array<int64_t, 4>{16, 1, 9, 10},
                                                     {33, 0, 4, 7},
                                                     {500, 3, 11, 11},
                                                     {20, 0, 5, 5},
                                                     {7, 2, 2, 3},
                                                     {1, 40, 90, 91}}) {
      const int64_t rows = 5, columns = (past - first) * channels, wide = all * channels;
      KernelInput input = random_input(kernel, {rows * columns, rows * wide, 0, 0},
                                       {rows, wide, channels}, {columns, wide}, 1, true);
      input.scalars[2] = static_cast<uint64_t>(first);
      input.scalars[3] = static_cast<uint64_t>(past);
      expect_same(kernel, run_interpreted(divided, input), run_interpreted(tiled, input));
      inputs.push_back(std::move(input));
    }
    expect_as_interpreted(divided, inputs);
  }
}

}  // namespace
}  // namespace cermet::ir
