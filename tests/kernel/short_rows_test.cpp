// SPDX-License-Identifier: MIT
// Rows of few elements, many at a time: the same before and after `tile`, and compiled for every level, at
// each length of a row and at blocks of rows that are whole and not. Nothing outside the arrays is touched.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernel/compiled.h"
#include "kernel/random_input.h"
#include "kernel/run.h"
#include "kernel/tiled_alike.h"

namespace cermet {
namespace {

const std::vector<int64_t> kRows = {1, 63, 64, 65, 200};

// Of a kernel with a0 rows of a1 elements, p0 given with rows s0 apart and the last parameter made with rows
// `s1` apart; others are one element for each row or each column.
struct ShortCase {
  std::string body;
  Dtype dtype = Dtype::float32;
  Dtype made = Dtype::float32;
  bool along = true;  // the last parameter has all elements
  int64_t most = 48;
};

ir::Kernel given(const ShortCase& c) {
  return ir::parse(
      fmt::format("kernel {{ param p0 {} in param p1 float32 in param p2 {} out axis a0 "
                  "axis a1 most {} strides 2 {} }}",
                  name_of(c.dtype), name_of(c.made), c.most, c.body));
}

std::vector<KernelInput> inputs_of(const ir::Kernel& kernel, const ShortCase& c) {
  std::vector<KernelInput> inputs;
  for (int64_t rows : kRows)
    for (int64_t n : {0, 1, 2, 3, 4, 7, 8, 13, 16, 31, 33, 48, 63, 64})
      for (int64_t more : {0, 3}) {
        if (n > c.most) continue;
        const int64_t from = n + more, to = n + (rows % 2) * more;
        const int64_t given = n == 0 ? 1 : (rows - 1) * from + n;
        const int64_t made = c.along ? (n == 0 ? 1 : (rows - 1) * to + n) : rows;
        inputs.push_back(random_input(kernel, {given, std::max(n, rows), made}, {rows, n},
                                      {from, to}, static_cast<unsigned>(rows + n), true));
      }
  return inputs;
}

void check(const ShortCase& c, bool is_short = true) {
  SCOPED_TRACE(c.body);
  const ir::Kernel kernel = given(c);
  const ir::Kernel tiled = expect_tiled_alike(kernel, inputs_of(kernel, c));
  const std::string text = print(tiled);
  EXPECT_EQ(print(ir::parse(text)), text);
  EXPECT_EQ(text.find("micro rows") != std::string::npos, is_short) << text;
}

std::string sum_of(const std::string& name, const std::string& what, Dtype dtype = Dtype::float32) {
  return fmt::format(
      "fold {0} over (a1) last lanes {{ {2} init {2}(-0) step add(state(0, {2}), {1}) merge "
      "add(state(0, {2}), other(0, {2})) }}",
      name, what, name_of(dtype));
}

TEST(ShortRows, Sums) {
  const std::string load = "load(p0[a0*s0 + a1])";
  const std::string make = " } for stage (a0) { store p2[a0] = ";
  check({.body = "value v0 float32 for stage (a0, a1) { " + sum_of("v0", load) + make + "v0 }",
         .along = false});
  check({.body = "value v0 float32 for stage (a0, a1) { " +
                 sum_of("v0", "cast.float32(" + load + ")") + make + "cast.bfloat16(v0) }",
         .dtype = Dtype::bfloat16,
         .made = Dtype::bfloat16,
         .along = false});
  check({.body = "value v0 float32 for stage (a0, a1) { " +
                 sum_of("v0", "cast.float32(" + load + ")") + make + "v0 }",
         .dtype = Dtype::uint8,
         .along = false});
}

// States of 8 bytes have 32 lanes.
TEST(ShortRows, WideStates) {
  ShortCase c{.body = "value v0 float64 for stage (a0, a1) { " +
                      sum_of("v0", "load(p0[a0*s0 + a1])", Dtype::float64) +
                      " } for stage (a0) { store p2[a0] = v0 }",
              .dtype = Dtype::float64,
              .made = Dtype::float64,
              .along = false,
              .most = 32};
  check(c);
  c.most = 48;
  check(c, false);
}

constexpr const char* kArgMax = R"(value v0 float32, uint32 for stage (a0, a1) {
  %0 = load(p0[a0*s0 + a1])
  %1 = lt(state(0, float32), %0)
  %2 = lt(state(0, float32), other(0, float32))
  fold v0 over (a1) last lanes {
    float32 init float32(-inf) step select(%1, %0, state(0, float32)) merge select(%2, other(0, float32), state(0, float32))
    uint32 init uint32(4294967295) step select(%1, cast.uint32(a1), state(1, uint32)) merge select(%2, other(1, uint32), state(1, uint32))
  }
} for stage (a0) { store p2[a0] = v0.1 })";

TEST(ShortRows, SeveralStates) {
  check({.body = kArgMax, .made = Dtype::uint32, .along = false});
  check({.body = kArgMax, .made = Dtype::uint32, .along = false, .most = 64});
}

TEST(ShortRows, SeveralPasses) {
  const std::string variance =
      "value v0 float32 value v1 float32 value v2 float32 for stage (a0, a1) { let v2 = "
      "mul(load(p0[a0*s0 + a1]), sqrt(abs(load(p0[a0*s0 + a1])))) " +
      sum_of("v0", "v2") + sum_of("v1", "mul(sub(v2, v0), sub(v2, v0))");
  check({.body = variance + "store p2[a0*s1 + a1] = div(mul(sub(v2, v0), load(p1[a1])), v1) }"});
  check({.body = variance + "store p2[a0*s1 + a1] = mul(v2, add(v1, load(p1[a0]))) }"});
  // What is cheap in a vector of a row's elements stays that where rows are longer.
  check({.body = variance + "store p2[a0*s1 + a1] = div(v2, v1) }", .most = 64}, false);
}

TEST(ShortRows, Scans) {
  const std::string scan =
      "value v0 float32 for stage (a0, a1) { fold v0 over (a1) each serial { float32 init "
      "float32(-0) step add(state(0, float32), load(p0[a0*s0 + a1])) merge add(state(0, float32), "
      "other(0, float32)) } store p2[a0*s1 + a1] = v0 }";
  check({.body = scan});
  check({.body = scan, .most = 64});
}

// A flag among the states, and results of bytes along the rows.
TEST(ShortRows, Bytes) {
  const std::string any =
      "value v0 bool for stage (a0, a1) { %0 = lt(float32(0), load(p0[a0*s0 + a1])) fold v0 over "
      "(a1) "
      "last lanes { bool init false step bit_or(state(0, bool), %0) merge bit_or(state(0, bool), "
      "other(0, bool)) } store p2[a0*s1 + a1] = bit_and(v0, bit_not(%0)) }";
  check({.body = any, .made = Dtype::boolean});
}

// What does not lie in rows, or only under a mask, is left to one row at a time.
TEST(ShortRows, Others) {
  for (const char* load :
       {"load(p0[a0 + a1*s0])", "load(p0[a0*s0 + a1], mask lt(a1, 2), else float32(1))"}) {
    SCOPED_TRACE(load);
    const ir::Kernel kernel =
        given({.body = "value v0 float32 for stage (a0, a1) { " + sum_of("v0", load) +
                       " } for stage (a0) { store p2[a0] = v0 }"});
    EXPECT_EQ(print(ir::tile(kernel, {.name = "cpu"})).find("micro rows"), std::string::npos);
  }
}

}  // namespace
}  // namespace cermet
