// SPDX-License-Identifier: MIT
// relax_max keeps every result, bit for bit, and relaxes the folds that allow it and no other.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernel/random_faults.h"
#include "kernel/run.h"

namespace cermet::ir {
namespace {

// A kernel over rows: a fold v0 of `extreme`, and what is made of it.
std::string rows(const std::string& extreme, const std::string& rest) {
  const char* start = extreme == "max" ? "-inf" : "inf";
  return fmt::format(R"(kernel {{
    param p0 float32 in
    param p1 float32 out
    axis a0
    axis a1
    strides 1
    value v0 float32
    value v1 float32
    for stage (a0, a1) {{
      %0 = load(p0[a0*s0 + a1])
      fold v0 over (a1) last lanes {{
        float32 init float32({1}) step {0}(state(0, float32), %0) merge {0}(state(0, float32), other(0, float32))
      }}
      {2}
    }} }})",
                     extreme, start, rest);
}

std::string sum_of(const std::string& term) {
  return "fold v1 over (a1) last lanes { float32 init float32(-0) step add(state(0, float32), " +
         term + ") merge add(state(0, float32), other(0, float32)) }\n";
}

const std::string kStore = "store p1[a0*s0 + a1] = ";
const std::string kFinite = "select(lt(abs(v0), float32(inf)), v0, float32(0))";

struct Case {
  std::string name, text;
  bool relaxed;
};

const Case kCases[] = {
    {"softmax", rows("max", sum_of("exp(sub(%0, v0))") + kStore + "div(exp(sub(%0, v0)), v1)"),
     true},
    {"of least elements",
     rows("min", sum_of("exp(sub(v0, %0))") + kStore + "div(exp(sub(v0, %0)), v1)"), true},
    {"logarithm of the sum",
     rows("max",
          sum_of("exp(sub(%0, " + kFinite + "))") + kStore + "add(log(v1), " + kFinite + ")"),
     true},
    {"by fewer instructions where it is finite",
     rows(
         "max",
         sum_of("rare(bit_not(lt(abs(v0), float32(inf))), exp_nonpositive(sub(%0, v0)), exp(%0))") +
             kStore + "add(log(v1), " + kFinite + ")"),
     true},
    {"the maximum itself", rows("max", kStore + "sub(%0, v0)"), false},
    // Of a row with a NaN only its own exponential is NaN where the maximum is a number.
    {"exponentials without their sum",
     rows("max", sum_of("exp(sub(%0, v0))") + kStore + "exp(sub(%0, v0))"), false},
    // A sum of other elements need not hold the NaN.
    {"sum of others",
     rows("max", sum_of("exp(sub(float32(1), v0))") + kStore + "div(exp(sub(%0, v0)), v1)"), false},
    // 1 over a zero tells its sign.
    {"the sign of zero",
     rows("max", sum_of("exp(sub(%0, v0))") + kStore + "add(div(float32(1), v0), v1)"), false},
    // A maximum of -0 stays -0 where the logarithm is left out.
    {"a sum that may be -0", rows("max", sum_of("mul(%0, v0)") + kStore + "add(v1, v0)"), false},
    // Of a comparison there is no NaN.
    {"a choice by it",
     rows("max", sum_of("exp(sub(%0, v0))") + kStore + "select(lt(%0, v0), float32(1), v1)"),
     false},
    {"weights that a choice hides",
     rows("max", sum_of("exp(sub(%0, v0))") + kStore +
                     "select(lt(%0, float32(0)), float32(0), div(exp(sub(%0, v0)), v1))"),
     true},
};

// Rows of ordinary numbers, of zeros of both signs, infinities and NaN.
std::vector<float> elements(int64_t rows, int64_t columns) {
  std::mt19937 random(7);
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0F, -0.0F, 1.0F, -1.0F, inf, -inf, NAN, -NAN};
  std::vector<float> all;
  for (int64_t row = 0; row < rows; ++row) {
    const unsigned first = random() % 8, count = 1 + random() % (8 - first);
    const unsigned rarely = 1 + random() % 5;
    for (int64_t column = 0; column < columns; ++column)
      all.push_back(random() % rarely == 0 ? special[first + random() % count]
                                           : static_cast<float>(random() % 64) / 8 - 4);
  }
  return all;
}

std::vector<float> results(const Kernel& kernel, std::vector<float> in, int64_t rows) {
  std::vector<float> out(in.size());
  const int64_t columns = static_cast<int64_t>(in.size()) / rows;
  const std::vector<Argument> arguments = {argument(in), argument(out)};
  const std::vector<int64_t> extents = {rows, columns}, strides = {columns};
  interpret(kernel, arguments, extents, strides, Arithmetic::exact);
  return out;
}

TEST(RelaxMax, RelaxesWhatAllowsItAndKeepsTheMeaning) {
  constexpr int64_t kRows = 400;
  for (const Case& c : kCases) {
    const Kernel given = simplify(parse(c.text));
    const Kernel relaxed = relax_max(given, TargetFacts{});
    verify(relaxed);
    EXPECT_EQ(print(relaxed) != print(given), c.relaxed) << c.name;
    for (int64_t columns : {1, 3, 70}) {
      const std::vector<float> in = elements(kRows, columns);
      const std::vector<float> a = results(given, in, kRows), b = results(relaxed, in, kRows);
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_TRUE(
            same_bits(Dtype::float32, std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])))
            << c.name << ": " << a[i] << " and " << b[i];
    }
  }
}

TEST(RelaxMax, KeepsTheMeaningOfRandomKernels) {
  for (uint64_t seed = 0; seed < 250; ++seed) {
    const RandomKernel random(seed, {.math = seed % 3 == 0, .contracts = true, .max_points = 2500});
    const Kernel relaxed = relax_max(simplify(random.kernel), TargetFacts{});
    verify(relaxed);
    ASSERT_EQ(meaning_fault(random, relaxed), "");
  }
}

}  // namespace
}  // namespace cermet::ir
