// SPDX-License-Identifier: MIT
// Folds down the columns of narrow arrays: the same before and after `tile`, and compiled for every level, for each
// number of columns and for blocks of rows that are whole and not. Nothing outside the arrays is touched.
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/cuda_source.h"
#include "kernel/compiled.h"
#include "kernel/cuda_run.h"
#include "kernel/random_input.h"
#include "kernel/run.h"
#include "kernel/tiled_alike.h"

namespace cermet {
namespace {

// Of a kernel with a0 rows of a1 elements: p0 given with rows s0 apart, p1 one for each row or column, p2 made of the
// columns, and p3 with rows s1 apart.
struct NarrowCase {
  std::string body;
  Dtype dtype = Dtype::float32;
  Dtype made = Dtype::float32;
  int64_t most = 31;
};

ir::Kernel given(const NarrowCase& c) {
  return ir::parse(fmt::format(
      "kernel {{ param p0 {} in param p1 float32 in param p2 {} out param p3 float32 out "
      "axis a0 axis a1 most {} strides 2 {} }}",
      name_of(c.dtype), name_of(c.made), c.most, c.body));
}

std::vector<KernelInput> inputs_of(const ir::Kernel& kernel, const NarrowCase& c) {
  std::vector<KernelInput> inputs;
  for (int64_t rows : {0, 1, 63, 65, 4096, 4099, 8300})
    for (int64_t n : {0, 1, 2, 3, 4, 7, 8, 13, 16, 31}) {
      if (n > c.most || (rows > 4096 && n > 13)) continue;
      const int64_t more = rows % 3, elements = std::max<int64_t>(0, rows - 1) * (n + more) + n;
      inputs.push_back(
          random_input(kernel, {elements, std::max(n, rows), std::max<int64_t>(n, 1), rows * n},
                       {rows, n}, {n + more, n}, static_cast<unsigned>(rows + n), true));
    }
  return inputs;
}

ir::Kernel check(const NarrowCase& c) {
  SCOPED_TRACE(c.body);
  const ir::Kernel kernel = given(c);
  return expect_tiled_alike(kernel, inputs_of(kernel, c));
}

// Of the columns, a0; or of the rows, a1.
std::string sum_of(const std::string& name, const std::string& what, Dtype dtype = Dtype::float32,
                   const std::string& axis = "a0") {
  return fmt::format(
      "fold {0} over ({3}) last lanes {{ {2} init {2}(-0) step add(state(0, {2}), {1}) merge "
      "add(state(0, {2}), other(0, {2})) }}",
      name, what, name_of(dtype), axis);
}

constexpr const char* kMade = " } for stage (a1) { store p2[a1] = v0 }";

bool moves_rows(const ir::Kernel& tiled) {
  return print(tiled).find("micro rows") != std::string::npos;
}

TEST(NarrowColumns, Sums) {
  const std::string load = "load(p0[a0*s0 + a1])", stage = "value v0 float32 for stage (a0, a1) { ";
  const std::string sum = stage + sum_of("v0", load) + kMade;
  EXPECT_TRUE(moves_rows(check({.body = sum})));
  EXPECT_FALSE(moves_rows(check({.body = sum, .most = 3})));
  const std::string cast = stage + sum_of("v0", "cast.float32(" + load + ")") + kMade;
  check({.body = cast, .dtype = Dtype::bfloat16});
  check({.body = cast, .dtype = Dtype::uint8});
  check({.body =
             "value v0 float64 for stage (a0, a1) { " + sum_of("v0", load, Dtype::float64) + kMade,
         .dtype = Dtype::float64,
         .made = Dtype::float64});
}

TEST(NarrowColumns, SeveralStates) {
  const std::string largest = R"(value v0 float32, uint32 for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    %1 = lt(state(0, float32), %0)
    %2 = lt(state(0, float32), other(0, float32))
    fold v0 over (a0) last lanes {
      float32 init float32(-inf) step select(%1, %0, state(0, float32)) merge select(%2, other(0, float32), state(0, float32))
      uint32 init uint32(4294967295) step select(%1, cast.uint32(a0), state(1, uint32)) merge select(%2, other(1, uint32), state(1, uint32))
    }
  } for stage (a1) { store p2[a1] = v0.1 })";
  check({.body = largest, .made = Dtype::uint32});
  check({.body = largest, .made = Dtype::uint32, .most = 3});
}

// What is stored goes with the folds where columns are read where they lie, else after them.
TEST(NarrowColumns, BesideStores) {
  const std::string body =
      "value v0 float32 for stage (a0, a1) { %0 = mul(load(p0[a0*s0 + a1]), load(p1[a1])) " +
      sum_of("v0", "%0") + " store p3[a0*s1 + a1] = %0" + kMade;
  for (int64_t most : {3, 31}) check({.body = body, .most = most});
}

TEST(NarrowColumns, WhatIsOneForEachRow) {
  for (const char* factor : {"load(p1[a0])", "sqrt(div(abs(load(p1[a0])), float32(3)))",
                             "load(p0[a0*s0])", "cast.float32(lt(load(p0[a0*s0]), float32(0)))"}) {
    SCOPED_TRACE(factor);
    const std::string body = "value v0 float32 for stage (a0, a1) { " +
                             sum_of("v0", fmt::format("mul(load(p0[a0*s0 + a1]), {})", factor)) +
                             kMade;
    for (int64_t most : {3, 31}) check({.body = body, .most = most});
  }
}

TEST(NarrowColumns, OneFoldAfterAnother) {
  const std::string load = "load(p0[a0*s0 + a1])", off = "sub(" + load + ", v1)";
  check({.body = "value v0 float32 value v1 float32 for stage (a0, a1) { " + sum_of("v1", load) +
                 sum_of("v0", "mul(" + off + ", " + off + ")") + kMade});
}

std::string scan_of(const std::string& name, const std::string& what) {
  return fmt::format(
      "fold {0} over (a0) each serial {{ float32 init float32(-0) step add(state(0, float32), {1}) "
      "merge add(state(0, float32), other(0, float32)) }}",
      name, what);
}

TEST(NarrowColumns, Scans) {
  const std::string load = "load(p0[a0*s0 + a1])", stage = "value v0 float32 for stage (a0, a1) { ";
  const std::string store = " store p3[a0*s1 + a1] = mul(v0, load(p1[a1])) }";
  for (const std::string& of : {std::string(load), "mul(" + load + ", load(p1[a0]))",
                                "mul(cast.float32(a0), " + load + ")", std::string("load(p1[a0])")})
    for (int64_t most : {3, 31}) check({.body = stage + scan_of("v0", of) + store, .most = most});
}

// With more axes around, of which each is scanned as a whole; and where only some of what is stored lies in rows.
TEST(NarrowColumns, ScansOfSeveralArrays) {
  const ir::Kernel kernel = ir::parse(
      "kernel { param p0 float32 in param p1 float32 out param p2 float32 out axis a0 axis a1 "
      "axis a2 most 31 strides 4 value v0 float32 for stage (a0, a1, a2) { " +
      [&] {
        std::string scan = scan_of("v0", "load(p0[a0*s0 + a1*s1 + a2])");
        return scan.replace(scan.find("(a0)"), 4, "(a1)");
      }() +
      " store p1[a0*s0 + a1*s1 + a2] = v0 store p2[a0*s0 + a2*s2 + a1] = mul(v0, v0) } }");
  ir::verify(kernel);
  const ir::Kernel tiled = ir::tile(kernel, {.name = "cpu"});
  ir::verify(tiled);
  std::vector<KernelInput> inputs;
  for (int64_t rows : {1, 255, 257, 2049, 4700})
    for (int64_t n : {1, 3, 6, 15}) {
      const int64_t all = 3 * rows * n;
      inputs.push_back(random_input(kernel, {all, all, all}, {3, rows, n}, {rows * n, n, rows, 0},
                                    static_cast<unsigned>(rows + n), true));
    }
  for (const KernelInput& input : inputs)
    expect_same(tiled, run_interpreted(tiled, input), run_interpreted(kernel, input));
  expect_as_interpreted(tiled, inputs);
}

// Short rows are folded by vectors of rows, and what they give is folded down the columns.
TEST(NarrowColumns, OfShortRows) {
  const std::string load = "load(p0[a0*s0 + a1])";
  const std::string row = "value v0 float32 value v1 float32 for stage (a0, a1) { " +
                          sum_of("v1", load, Dtype::float32, "a1");
  const std::string share = row + sum_of("v0", "div(" + load + ", v1)") + kMade;
  const std::string all = row + " } for stage (a0) { " + sum_of("v0", "sqrt(abs(v1))") +
                          " } for stage () { store p2[] = v0 }";
  for (int64_t most : {3, 31}) {
    EXPECT_TRUE(moves_rows(check({.body = share, .most = most})));
    EXPECT_TRUE(moves_rows(check({.body = all, .most = most})));
  }
}

// As CUDA text: no Micro moves rows there.
TEST(NarrowColumns, Cuda) {
  const std::string load = "load(p0[a0*s0 + a1])", stage = "value v0 float32 for stage (a0, a1) { ";
  const std::string stored = " store p3[a0*s1 + a1] = mul(v0, load(p1[a1])) }";
  const std::string rows = "value v0 float32 value v1 float32 for stage (a0, a1) { " +
                           sum_of("v1", load, Dtype::float32, "a1") +
                           sum_of("v0", "div(" + load + ", v1)") + kMade;
  CudaBatch batch;
  std::vector<std::vector<KernelInput>> inputs;
  for (const std::string& body :
       {stage + sum_of("v0", "mul(" + load + ", load(p1[a0]))") + kMade,
        stage + sum_of("v0", load) + " store p3[a0*s1 + a1] = " + load + kMade,
        stage + scan_of("v0", load) + stored, rows}) {
    const ir::Kernel tiled = ir::lower(given({.body = body}), cuda_facts());
    ASSERT_EQ(inputs.size(), batch.add(tiled));
    inputs.emplace_back();
    for (int64_t count : {0, 300, 4100})
      for (int64_t n : {1, 3})
        inputs.back().push_back(random_input(tiled, {count * n, std::max(n, count), n, count * n},
                                             {count, n}, {n, n}, 1, true));
  }
  ASSERT_TRUE(batch.build());
  for (size_t i = 0; i < inputs.size(); ++i) batch.expect_as_interpreted(i, inputs[i]);
}

}  // namespace
}  // namespace cermet
