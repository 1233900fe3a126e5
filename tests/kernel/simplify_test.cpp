// SPDX-License-Identifier: MIT
// simplify keeps the meaning, bit for bit, and does what it promises.
#include <gtest/gtest.h>

#include "kernel/builder.h"
#include "kernel/random_faults.h"
#include "kernel/run.h"

namespace cermet::ir {
namespace {

TEST(Simplify, KeepsTheMeaningOfRandomKernels) {
  int smaller = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    const RandomKernel random(seed, {.math = seed % 3 == 0, .contracts = true, .max_points = 2500});
    const Kernel simple = simplify(random.kernel);
    verify(simple);
    ASSERT_EQ(meaning_fault(random, simple), "");
    smaller += print(simple).size() < print(random.kernel).size();
  }
  EXPECT_GT(smaller, 50);
}

// The text of the one stored expression after simplifying.
std::string simple(const std::string& expr, const std::string& dtype = "int64") {
  const Kernel kernel = simplify(parse(fmt::format(R"(kernel {{
    param p0 {0} out
    param p1 int64 scalar
    param p2 float32 scalar
    param p3 bool scalar
    param p4 int8 scalar
    param p5 int64 in
    param p6 bfloat16 in
    axis a0
    strides 2
    for stage (a0) {{ store p0[a0] = {1} }} }})",
                                                   dtype, expr)));
  verify(kernel);
  const std::string text = print(kernel);
  const size_t from = text.find("store p0[a0] = ") + 15;
  return text.substr(from, text.find('\n', from) - from);
}

TEST(Simplify, FoldsConstants) {
  EXPECT_EQ(simple("add(mul(2, 3), 4)"), "10");
  EXPECT_EQ(simple("div(7, 0)"), "0");
  EXPECT_EQ(simple("div(float32(1), float32(3))", "float32"), "float32(0.33333334)");
  EXPECT_EQ(simple("cast.int8(300)", "int8"), "int8(44)");
  EXPECT_EQ(simple("select(lt(1, 2), p1, 5)"), "p1");
  EXPECT_EQ(simple("rare(lt(2, 1), p1, 5)"), "p1");
  EXPECT_EQ(simple("exp(float32(1))", "float32"), "exp(float32(1))");  // the target's own bits
}

TEST(Simplify, IdentitiesThatKeepBits) {
  EXPECT_EQ(simple("mul(float32(1), p2)", "float32"), "p2");
  EXPECT_EQ(simple("div(p2, float32(1))", "float32"), "p2");
  EXPECT_EQ(simple("add(p2, float32(-0))", "float32"), "p2");
  EXPECT_EQ(simple("sub(p2, float32(0))", "float32"), "p2");
  EXPECT_EQ(simple("neg(neg(p2))", "float32"), "p2");
  EXPECT_EQ(simple("abs(neg(p2))", "float32"), "abs(p2)");
  EXPECT_EQ(simple("max(p2, p2)", "float32"), "p2");
  EXPECT_EQ(simple("select(p3, p2, p2)", "float32"), "p2");
  EXPECT_EQ(simple("select(bit_not(p3), p2, float32(3))", "float32"), "select(p3, float32(3), p2)");
  EXPECT_EQ(simple("bit_and(p3, true)", "bool"), "p3");
  EXPECT_EQ(simple("bit_or(p3, true)", "bool"), "true");
  EXPECT_EQ(simple("eq(p1, p1)", "bool"), "true");
  EXPECT_EQ(simple("sub(p1, p1)"), "0");
  EXPECT_EQ(simple("bit_xor(p1, p1)"), "0");
  EXPECT_EQ(simple("rem(p1, 1)"), "0");
  EXPECT_EQ(simple("div(p1, 0)"), "0");
  EXPECT_EQ(simple("abs(cast.uint8(p1))", "uint8"), "cast.uint8(p1)");
}

TEST(Simplify, LeavesWhatWouldChangeBits) {
  for (const char* expr : {"add(p2, float32(0))", "sub(p2, float32(-0))", "mul(p2, float32(0))",
                           "sub(p2, p2)", "div(p2, p2)", "add(add(p2, float32(1)), float32(2))"})
    EXPECT_EQ(simple(expr, "float32"), expr);
  for (const char* expr : {"eq(p2, p2)", "ne(p2, p2)", "le(p2, p2)"})
    EXPECT_EQ(simple(expr, "bool"), expr);
}

TEST(Simplify, IntegerChains) {
  EXPECT_EQ(simple("add(add(p1, 3), 4)"), "add(p1, 7)");
  EXPECT_EQ(simple("sub(add(3, p1), 3)"), "p1");
  EXPECT_EQ(simple("mul(mul(p1, 3), 4)"), "mul(p1, 12)");
  EXPECT_EQ(simple("mul(p1, 0)"), "0");
  EXPECT_EQ(simple("sub(add(a0, p1), p1)"), "a0");
  EXPECT_EQ(simple("sub(add(a0, p1), a0)"), "p1");
}

TEST(Simplify, ArithmeticInTheLowBits) {
  EXPECT_EQ(simple("cast.uint32(add(a0, p1))", "uint32"), "add(cast.uint32(p1), cast.uint32(a0))");
  EXPECT_EQ(simple("cast.int32(mul(a0, sub(p1, 5)))", "int32"),
            "mul(add(cast.int32(p1), int32(-5)), cast.int32(a0))");
  EXPECT_EQ(simple("cast.uint8(select(p3, a0, 260))", "uint8"),
            "select(p3, cast.uint8(a0), uint8(4))");
  // A quotient is not made of low bits, and a float saturates.
  EXPECT_EQ(simple("cast.int32(div(a0, p1))", "int32"), "cast.int32(div(a0, p1))");
  EXPECT_EQ(simple("cast.bool(add(a0, p1))", "bool"), "cast.bool(add(a0, p1))");
  EXPECT_EQ(simple("cast.int64(add(p4, p4))"), "cast.int64(add(p4, p4))");
}

TEST(Simplify, CastsThatLoseNothing) {
  EXPECT_EQ(simple("cast.int32(cast.int16(p4))", "int32"), "cast.int32(p4)");
  EXPECT_EQ(simple("cast.int8(cast.int32(p4))", "int8"), "p4");
  EXPECT_EQ(simple("cast.float64(cast.float32(p4))", "float64"), "cast.float64(p4)");
  EXPECT_EQ(simple("cast.bfloat16(cast.float32(load(p6[])))", "bfloat16"), "load(p6[])");
  EXPECT_EQ(simple("cast.float32(cast.float64(p2))", "float32"), "p2");
  EXPECT_EQ(simple("cast.bool(cast.int32(p4))", "bool"), "cast.bool(p4)");
  // Through a float a negative number saturates, directly it would wrap.
  EXPECT_EQ(simple("cast.uint8(cast.float32(p4))", "uint8"), "cast.uint8(cast.float32(p4))");
  EXPECT_EQ(simple("cast.int64(cast.float32(p1))"), "cast.int64(cast.float32(p1))");
  EXPECT_EQ(simple("cast.int64(cast.int8(p1))"), "cast.int64(cast.int8(p1))");
}

TEST(Simplify, Indices) {
  EXPECT_EQ(simple("load(p5[add(mul(a0, 1), 2)*s0 + 0*s1 + add(p1, 3) + -3])"),
            "load(p5[a0*s0 + p1 + 2*s0])");
  EXPECT_EQ(simple("load(p5[a0], mask lt(a0, extent(a0)), else 4)"), "load(p5[a0])");
  EXPECT_EQ(simple("load(p5[a0], mask lt(a0, 0), else 4)"), "4");
  EXPECT_EQ(simple("load(p5[a0], mask false)"), "0");
}

TEST(Simplify, RemovesDeadValuesChecksAndStores) {
  const Kernel kernel = simplify(parse(R"(kernel {
    param p0 float32 in
    param p1 float32 out
    param p2 int64 status
    axis a0
    strides 3
    value v0 float32 "dead"
    value v1 float32 "dead through v0"
    value v2 float32 "a name"
    value v3 float32 "kept"
    for stage (a0) { let v0 = load(p0[a0]) }
    for stage (a0) {
      let v1 = neg(v0)
      let v3 = load(p0[a0*s2])
      let v2 = v3
      check le(0, a0) site 1 index a0
      check lt(a0, 7) site 2 index a0
      store p1[a0] = float32(1) mask false
      store p1[a0] = v2 mask true
    } })"));
  verify(kernel);
  EXPECT_EQ(print(kernel), R"(kernel "" {
  param p0 float32 in
  param p1 float32 out
  param p2 int64 status
  axis a0
  strides 3
  value v0 float32 "kept"
  for stage (a0) {
    let v0 = load(p0[a0*s2])
    check lt(a0, 7) site 2 index a0
    store p1[a0] = v0
  }
}
)");
}

TEST(Simplify, IsStable) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Kernel once = simplify(RandomKernel(seed).kernel);
    const Kernel twice = simplify(once);
    EXPECT_LE(twice.values.size(), once.values.size());
    EXPECT_LE(print(twice).size(), print(once).size() + 64) << seed;
  }
}

}  // namespace
}  // namespace cermet::ir
