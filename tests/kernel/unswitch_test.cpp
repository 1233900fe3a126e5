// SPDX-License-Identifier: MIT
// Loops that are divided by choices: each loads from the memory that it chooses, and one that does not run from none.
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

}  // namespace
}  // namespace cermet::ir
