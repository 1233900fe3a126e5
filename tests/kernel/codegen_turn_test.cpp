// SPDX-License-Identifier: MIT
// What is read across its rows: compiled and tiled as interpreted.
#include <gtest/gtest.h>

#include "kernel/compiled.h"
#include "kernel/random_input.h"
#include "kernel/run.h"
#include "kernel/tile.h"

namespace cermet {

namespace {

using ir::Kernel;

// Whole tiles, rests, tiles too small to be turned and, of narrow elements, rows in one set of the cache; padded rows.
// Copies go straight to the array, all else into a Local each.
TEST(CodegenLoops, TurnedTiles) {
  using Sizes = std::vector<int64_t>;
  const std::string there = "a0*s0 + a1*s1 + a2", from = "a0*s2 + a1 + a2*s3";
  for (const bool mixed : {false, true})
    for (Dtype d : {Dtype::uint8, Dtype::bfloat16, Dtype::float32, Dtype::int64}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(d), mixed));
      const bool is_half = d == Dtype::bfloat16;
      const auto load = [&](const std::string& buffer, const std::string& index) {
        const std::string loaded = fmt::format("load({}[{}])", buffer, index);
        return is_half ? fmt::format("cast.float32({})", loaded) : loaded;
      };
      const std::string chosen = fmt::format("select(lt(load(p1[{}]), uint8(90)), {}, {})", from,
                                             load("p0", from), load("p2", there));
      const std::string value = is_half ? fmt::format("cast.bfloat16({})", chosen) : chosen;
      const std::string copied = fmt::format("load(p0[{}])", from);
      const Kernel kernel = ir::parse(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 uint8 in
  param p2 {0} {1}
  axis a0
  axis a1
  axis a2
  strides 4
  for stage (a0, a1, a2) {{
    store p2[{2}] = {3}
  }}
}})",
                                                  name_of(d), mixed ? "inout" : "out", there,
                                                  mixed ? value : copied));
      const Kernel tiled = ir::tile(kernel, {.name = "cpu"});
      ir::verify(tiled);
      EXPECT_NE(ir::print(tiled).find("micro turn"), std::string::npos);
      std::vector<KernelInput> inputs;
      for (const Sizes& e : {Sizes{2, 64, 64},
                             {1, 128, 65},
                             {1, 70, 200},
                             {2, 16, 66},
                             {1, 65, 17},
                             {3, 3, 70},
                             {1, 130, 5},
                             {1, 15, 15},
                             {0, 64, 64}}) {
        for (const int64_t row : {e[1], e[1] + 3, int64_t{4096}}) {
          const int64_t to_row = e[2] + (row == e[1] ? 0 : 5), read = e[0] * e[2] * row;
          inputs.push_back(random_input(kernel, {read, read, e[0] * e[1] * to_row}, e,
                                        {e[1] * to_row, to_row, e[2] * row, row},
                                        static_cast<unsigned>(inputs.size()) + 1, true));
          expect_same(kernel, run_interpreted(tiled, inputs.back()),
                      run_interpreted(kernel, inputs.back()));
        }
      }
      expect_as_interpreted(tiled, inputs);
    }
}

// Elements a few places apart are read where they lie, and what lies further apart is no row: nothing is turned.
TEST(CodegenLoops, ElementsNearbyAreNotTurned) {
  const Kernel kernel = ir::parse(R"(kernel {
  param p0 float32 in
  param p1 float32 out
  axis a0
  axis a1
  axis a2
  strides 2
  for stage (a0, a1, a2) {
    store p1[a0*s0 + mul(a1, 128) + a2] = load(p0[a0*s1 + mul(a1, 2) + mul(a2, 4)])
  }
})");
  const Kernel tiled = ir::tile(kernel, {.name = "cpu"});
  ir::verify(tiled);
  EXPECT_NE(ir::print(tiled).find("entry \"map\""), std::string::npos);
  std::vector<KernelInput> inputs;
  for (const int64_t columns : {1, 17, 64, 100})
    for (const int64_t rows : {1, 2, 70}) {
      const int64_t from = 2 * rows + 4 * columns, to = 128 * rows;
      inputs.push_back(
          random_input(kernel, {3 * from, 3 * to}, {3, rows, columns}, {to, from}, 1, true));
    }
  for (const KernelInput& input : inputs)
    expect_same(tiled, run_interpreted(tiled, input), run_interpreted(kernel, input));
  expect_as_interpreted(tiled, inputs);
}

}  // namespace

}  // namespace cermet
