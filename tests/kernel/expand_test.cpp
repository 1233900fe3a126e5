// SPDX-License-Identifier: MIT
// An exponential that is at most 1 is expanded shortly, no other is, and both are what the interpreter makes of it.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernel/run.h"

namespace cermet::ir {
namespace {

struct Case {
  std::string name, init, step, merge, exponent;
  bool is_short;
};

const std::string kMax = "max(state(0, float32), %0)";
const std::string kMaxMerge = "max(state(0, float32), other(0, float32))";
const std::string kMin = "min(state(0, float32), %0)";
const std::string kMinMerge = "min(state(0, float32), other(0, float32))";

std::string choice(const std::string& a, const std::string& b, const std::string& element) {
  return "select(lt(" + a + ", " + b + "), " + element + ", state(0, float32))";
}

const std::string kState = "state(0, float32)", kOther = "other(0, float32)";

const Case kCases[] = {
    {"less the largest", "-inf", kMax, kMaxMerge, "sub(%0, v0)", true},
    {"less the largest by a choice", "-inf", choice(kState, "%0", "%0"),
     choice(kState, kOther, kOther), "sub(%0, v0)", true},
    {"the smallest less it", "inf", kMin, kMinMerge, "sub(v0, %0)", true},
    {"the smallest by a choice less it", "inf", choice("%0", kState, "%0"),
     choice(kOther, kState, kOther), "sub(v0, %0)", true},
    {"the largest less it", "-inf", kMax, kMaxMerge, "sub(v0, %0)", false},
    {"less the smallest", "inf", kMin, kMinMerge, "sub(%0, v0)", false},
    {"another element", "-inf", kMax, kMaxMerge, "sub(mul(%0, float32(2)), v0)", false},
    {"a sum of parts' largest", "-inf", kMax, "add(state(0, float32), other(0, float32))",
     "sub(%0, v0)", false},
    {"a choice of the smaller one", "inf", choice("%0", kState, "%0"),
     choice(kOther, kState, kOther), "sub(%0, v0)", false},
    {"a sum", "-0", "add(state(0, float32), %0)", "add(state(0, float32), other(0, float32))",
     "sub(%0, v0)", false},
};

Kernel kernel_of(const Case& c) {
  return parse(fmt::format(R"(kernel {{
    param p0 float32 in
    param p1 float32 out
    axis a0
    axis a1
    strides 1
    value v0 float32
    for stage (a0, a1) {{
      %0 = load(p0[a0*s0 + a1])
      fold v0 over (a1) last lanes {{
        float32 init float32({}) step {} merge {}
      }}
      store p1[a0*s0 + a1] = exp({})
    }} }})",
                           c.init, c.step, c.merge, c.exponent));
}

TEST(Expand, ExponentialsAtMostOne) {
  constexpr int64_t kRows = 40, kColumns = 100;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const float special[] = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 1e30F, -1e30F};
  std::vector<float> in(kRows * kColumns);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = i % 97 == 0 ? special[random() % std::size(special)]
                        : normal(random) * (i / kColumns % 2 == 0 ? 1.0F : 60.0F);
  for (const Case& c : kCases) {
    const Kernel kernel = kernel_of(c);
    const auto expanded = [&](bool scales) {
      TargetFacts facts;
      facts.scales = scales;
      return expand(kernel, facts);
    };
    const auto is_short = [&](bool scales) {
      return print(expanded(scales)).find("scale2") == std::string::npos;
    };
    EXPECT_EQ(is_short(false), c.is_short) << c.name;
    EXPECT_FALSE(is_short(true)) << c.name;
    const auto results = [&](const Kernel& of) {
      std::vector<float> out(in.size());
      const std::vector<Argument> arguments = {argument(in), argument(out)};
      const std::vector<int64_t> extents = {kRows, kColumns}, strides = {kColumns};
      interpret(of, arguments, extents, strides, Arithmetic::exact);
      return out;
    };
    const std::vector<float> wanted = results(kernel), got = results(expanded(false));
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_TRUE(same_bits(Dtype::float32, std::bit_cast<uint32_t>(wanted[i]),
                            std::bit_cast<uint32_t>(got[i])))
          << c.name << ": " << wanted[i] << " and " << got[i];
  }
}

}  // namespace
}  // namespace cermet::ir
