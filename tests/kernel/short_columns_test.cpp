// SPDX-License-Identifier: MIT
// Columns of few elements in many small arrays: the same before and after `tile`, and compiled for every level, where
// a lane goes down each. Nothing outside the arrays is touched.
#include <gtest/gtest.h>

#include <regex>

#include "kernel/compiled.h"
#include "kernel/random_input.h"
#include "kernel/run.h"
#include "kernel/tiled_alike.h"

namespace cermet {
namespace {

// Of a0 arrays of a1 columns of a2 elements: p0 has them all, p1 one for each element of an array, p2 is made.
struct ColumnCase {
  std::string body;
  Dtype dtype = Dtype::float32;
  Dtype made = Dtype::float32;
  bool along = false;  // p2 has all elements
};

constexpr int64_t kMost = 48;

ir::Kernel given(const ColumnCase& c) {
  return ir::parse(
      fmt::format("kernel {{ param p0 {} in param p1 {} in param p2 {} out axis a0 axis a1 "
                  "axis a2 most {} strides 4 {} }}",
                  name_of(c.dtype), name_of(c.dtype), name_of(c.made), kMost, c.body));
}

std::vector<KernelInput> inputs_of(const ir::Kernel& kernel, const ColumnCase& c) {
  std::vector<KernelInput> inputs;
  for (int64_t arrays : {1, 35})
    for (int64_t columns : {1, 17, 257})
      for (int64_t n : {0, 1, 7, 48}) {
        const int64_t row = columns + arrays % 2;  // from element to element, maybe with a gap
        const int64_t all = std::max<int64_t>(1, arrays * n * row);
        const int64_t made = c.along ? all : arrays * columns;
        inputs.push_back(random_input(kernel, {all, std::max<int64_t>(1, arrays * n), made},
                                      {arrays, columns, n}, {n * row, row, n, columns},
                                      static_cast<unsigned>(arrays + columns + n), true));
      }
  return inputs;
}

void check(const ColumnCase& c, bool is_across = true) {
  SCOPED_TRACE(c.body);
  const ir::Kernel kernel = given(c);
  const ir::Kernel tiled = expect_tiled_alike(kernel, inputs_of(kernel, c));
  const std::string text = print(tiled);
  const std::regex steps(
      R"(for lane \(a\d+\) begin v\d+ end v\d+ \{[^}]*for serial \(a\d+\) begin 0 end extent\(a2\))");
  EXPECT_EQ(std::regex_search(text, steps), is_across) << text;
}

constexpr const char* kAll = "load(p0[a0*s0 + a1 + a2*s1])";
constexpr const char* kOfArray = "load(p1[a0*s2 + a2])";

std::string sum_of(const std::string& name, const std::string& what, const std::string& order,
                   Dtype dtype = Dtype::float32) {
  return fmt::format(
      "fold {0} over (a2) last {3} {{ {2} init {2}(-0) step add(state(0, {2}), {1}) merge "
      "add(state(0, {2}), other(0, {2})) }} ",
      name, what, name_of(dtype), order);
}

std::string stored(const std::string& value) {
  return " } for stage (a0, a1) { store p2[a0*s3 + a1] = " + value + " }";
}

TEST(ShortColumns, Sums) {
  for (const char* order : {"serial", "lanes"}) {
    const std::string begin = "value v0 float32 for stage (a0, a1, a2) { ";
    check({.body = begin + sum_of("v0", kAll, order) + stored("v0")});
    const std::string product = fmt::format("mul({}, {})", kAll, kOfArray);
    check({.body = begin + sum_of("v0", product, order) + stored("mul(v0, v0)")});
    const std::string wide = fmt::format("cast.float32({})", kAll);
    check({.body = begin + sum_of("v0", wide, order) + stored("cast.bfloat16(v0)"),
           .dtype = Dtype::bfloat16,
           .made = Dtype::bfloat16});
  }
}

// In lanes of 8 bytes there are 32 elements in order.
TEST(ShortColumns, WideStates) {
  for (const bool is_serial : {true, false}) {
    const std::string order = is_serial ? "serial" : "lanes";
    check({.body = "value v0 float64 for stage (a0, a1, a2) { " +
                   sum_of("v0", kAll, order, Dtype::float64) + stored("v0"),
           .dtype = Dtype::float64,
           .made = Dtype::float64},
          is_serial);
  }
}

// Dear values are kept from pass to pass.
TEST(ShortColumns, SeveralPasses) {
  for (const char* order : {"serial", "lanes"})
    check({.body = fmt::format(
               "value v0 float32 value v1 float32 for stage (a0, a1, a2) {{ %0 = {} %1 = mul(%0, "
               "sqrt(abs(%0))) {} %2 = sub(%1, v0) %3 = mul(%2, sqrt(abs(%2))) {} store "
               "p2[a0*s0 + a1 + a2*s1] = div(mul(%1, %3), v1) }}",
               kAll, sum_of("v0", "%1", order), sum_of("v1", "%3", order)),
           .along = true});
}

constexpr const char* kArgMax = R"(value v0 float32, uint32 for stage (a0, a1, a2) {
  %0 = load(p0[a0*s0 + a1 + a2*s1])
  %1 = lt(state(0, float32), %0)
  %2 = lt(state(0, float32), other(0, float32))
  fold v0 over (a2) last serial {
    float32 init float32(-inf) step select(%1, %0, state(0, float32)) merge select(%2, other(0, float32), state(0, float32))
    uint32 init uint32(4294967295) step select(%1, cast.uint32(a2), state(1, uint32)) merge select(%2, other(1, uint32), state(1, uint32))
  })";

TEST(ShortColumns, SeveralStates) {
  check({.body = kArgMax + stored("v0.1"), .made = Dtype::uint32});
}

// Rows in memory are taken by vectors along them.
TEST(ShortColumns, NotOfRows) {
  check({.body = "value v0 float32 for stage (a0, a1, a2) { " +
                 sum_of("v0", "load(p0[a0*s0 + a1*s2 + a2])", "lanes") + stored("v0")},
        false);
}

}  // namespace
}  // namespace cermet
