// SPDX-License-Identifier: MIT
// In which of the passes over a row its folds are made: results do not depend on it, what each pass loads
// does.
#include <gtest/gtest.h>

#include <set>

#include "kernel/tile.h"
#include "kernel/tile_case.h"
#include "kernel/walk.h"

namespace cermet::ir {
namespace {

// The variance and two sums over a row: that of dy w does not wait for the mean, as they do, but goes with
// them, which load both anyway, so that the mean's pass reads x alone.
TEST(TilePasses, SumsOfARowGoWithWhatLoadsTheSame) {
  const char* text = R"(kernel "layer_norm_backward" {
  param p0 float32 in "dy"
  param p1 float32 in "w"
  param p2 float32 in "x"
  param p3 float32 out "dx"
  axis a0 "rows"
  axis a1 "columns"
  value v0 float32 "dy w"
  value v1 float32 "x"
  value v2 float32 "dy w x"
  strides 1
  for stage (a0, a1) {
    %0 = mul(load(p0[a0*s0 + a1]), load(p1[a1]))
    %1 = add(state(0, float32), other(0, float32))
    fold v0 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %0) merge %1
    }
    %2 = load(p2[a0*s0 + a1])
    fold v1 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), %2) merge %1
    }
    %3 = sub(%2, v1)
    fold v2 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(%0, %3)) merge %1
    }
    store p3[a0*s0 + a1] = sub(sub(%0, v0), mul(%3, v2))
  }
})";
  expect_same({.text = text,
               .strides = [](const Numbers& n) { return Numbers{n[1]}; },
               .elements =
                   [](const Numbers& n) {
                     const int64_t all = n[0] * n[1];
                     return Numbers{all, n[1], all, all};
                   }},
              "row", {{0, 5}, {5, 0}, {1, 1}, {3, 64}, {15, 65}, {17, 63}, {257, 130}, {2, 8200}});
  const Kernel tiled = tile(parse(text), {});
  std::vector<std::set<int32_t>> loaded;
  for (const Stmt& stmt : std::get<For>(tiled.body.at(0)).body) {
    const For* loop = std::get_if<For>(&stmt);
    if (loop == nullptr) continue;
    std::vector<ExprId> stack;
    for (const Stmt& inner : loop->body)
      for_each_expr(inner, [&](ExprId id) { stack.push_back(id); });
    std::set<int32_t>& buffers = loaded.emplace_back();
    while (!stack.empty()) {
      const Expr& e = tiled[stack.back()];
      stack.pop_back();
      if (e.kind == ExprKind::load) buffers.insert(e.buffer.id);
      for_each_operand(e, [&](ExprId id) { stack.push_back(id); });
    }
  }
  const std::set<int32_t> x = {2}, all = {0, 1, 2};
  EXPECT_EQ(loaded, (std::vector<std::set<int32_t>>{x, all, all}));
}

}  // namespace
}  // namespace cermet::ir
