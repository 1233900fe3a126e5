// SPDX-License-Identifier: MIT
// The runner: lowered kernels mean what they meant, hold core codes only, and it dumps, logs and
// skips.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernel/random_faults.h"
#include "kernel/run.h"
#include "kernel/walk.h"

namespace cermet::ir {
namespace {

TEST(Lower, KeepsTheMeaningOfRandomKernels) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const RandomKernel random(seed, {.math = seed % 3 == 0, .max_points = 2500});
    const Kernel lowered = lower(random.kernel, TargetFacts{.name = "cpu", .vector_bytes = 32});
    verify(lowered, true);
    EXPECT_TRUE(lowered.is_tiled());
    ASSERT_EQ(meaning_fault(random, lowered), "");
  }
}

TEST(Lower, NothingIsLeftOfStoresThatNeverHappen) {
  const Kernel kernel = parse(R"(kernel {
  param p0 int32 out
  axis a0
  for stage (a0) { store p0[a0] = int32(1) mask false }
})");
  const Kernel lowered = lower(kernel, TargetFacts{.name = "cpu"});
  EXPECT_TRUE(lowered.body.empty());
  EXPECT_TRUE(lowered.is_tiled());
}

// Rows of three arrays one after the other, with a chain behind them.
const char* kRows = R"(kernel {
  param p0 int64 scalar
  param p1 int64 scalar
  param p2 float32 in
  param p3 float32 in
  param p4 float32 in
  param p5 float32 out
  axis a0
  axis a1
  strides 1
  for stage (a0, a1) {
    %0 = lt(a0, p0)
    %1 = lt(a0, p1)
    %2 = select(%1, load(p3[sub(a0, p0)*s0 + a1], mask bit_and(le(p0, a0), %1), else float32(0)), load(p4[sub(a0, p1)*s0 + a1], mask le(p1, a0), else float32(0)))
    %3 = select(%0, load(p2[a0*s0 + a1], mask %0, else float32(0)), %2)
    store p5[a0*s0 + a1] = add(mul(%3, %3), %3)
  }
})";

int lane_loops(const std::vector<Stmt>& body) {
  int count = 0;
  for_each_stmt(body, [&](const Stmt& stmt) {
    const For* loop = std::get_if<For>(&stmt);
    count += loop != nullptr && loop->kind == ForKind::lane ? 1 : 0;
  });
  return count;
}

TEST(Lower, RowsOfAConcatenationAreReadFromWhereTheyComeFrom) {
  const Kernel kernel = parse(kRows);
  const Kernel lowered = lower(kernel, TargetFacts{.name = "cpu"});
  verify(lowered, true);
  EXPECT_EQ(lane_loops(lowered.body), 3);
  EXPECT_EQ(lane_loops(lower(kernel, TargetFacts{.name = "cuda"}).body), 1);

  constexpr int64_t kWidth = 1024, kCounts[] = {3, 1, 5};
  std::vector<std::vector<float>> parts;
  std::vector<float> want, got(9 * kWidth, -1), before(got);
  for (const int64_t rows : kCounts) {
    std::vector<float>& part = parts.emplace_back();
    for (int64_t i = 0; i < rows * kWidth; ++i) {
      part.push_back(static_cast<float>(want.size() % 977));
      want.push_back(part.back() * part.back() + part.back());
    }
  }
  const auto run = [&](const Kernel& of, std::vector<float>& out) {
    std::vector<Argument> arguments{scalar_argument<int64_t>(kCounts[0]),
                                    scalar_argument<int64_t>(kCounts[0] + kCounts[1])};
    for (std::vector<float>& part : parts) arguments.push_back(argument(part));
    arguments.push_back(argument(out));
    const std::vector<int64_t> extents{9, kWidth}, strides{kWidth};
    interpret(of, arguments, extents, strides, Arithmetic::exact);
  };
  run(kernel, before);
  run(lowered, got);
  EXPECT_EQ(before, want);
  EXPECT_EQ(got, want);
}

TEST(Lower, PartsOfAConcatenatedRowAreReadInLoopsOfTheirOwn) {
  const Kernel kernel = parse(R"(kernel {
  param p0 int64 scalar
  param p1 float32 in
  param p2 float32 in
  param p3 float32 out
  axis a0
  for stage (a0) {
    %0 = lt(a0, p0)
    store p3[a0] = select(%0, load(p1[a0], mask %0, else float32(0)), load(p2[sub(a0, p0)], mask le(p0, a0), else float32(0)))
  }
})");
  const Kernel lowered = lower(kernel, TargetFacts{.name = "cpu"});
  EXPECT_EQ(lane_loops(lowered.body), 2);
  EXPECT_EQ(print(lowered).find("mask"), std::string::npos);
  for (const int64_t first : {0, 1, 4096, 4100, 9000}) {
    std::vector<float> a(static_cast<size_t>(first)), b(static_cast<size_t>(9000 - first)), want;
    for (float& x : a) want.push_back(x = static_cast<float>(want.size() + 1));
    for (float& x : b) want.push_back(x = static_cast<float>(want.size() + 1));
    std::vector<float> got(9000, -1);
    const std::vector<Argument> arguments{scalar_argument<int64_t>(first), argument(a), argument(b),
                                          argument(got)};
    const std::vector<int64_t> extents{9000};
    interpret(lowered, arguments, extents, {}, Arithmetic::exact);
    EXPECT_EQ(got, want);
  }
}

// Of three columns beside each other; what is computed is compared where golden kernels run.
TEST(Lower, JoinedColumnsAreReadInLoopsOfTheirOwn) {
  std::stringstream text;
  text
      << std::ifstream(fmt::format("{}/kernel/golden/joined_columns.ir", CERMET_TESTS_DIR)).rdbuf();
  const Kernel lowered = lower(parse(text.str()), TargetFacts{.name = "cpu"});
  EXPECT_EQ(lane_loops(lowered.body), 3);
  EXPECT_EQ(print(lowered).find("mask"), std::string::npos);
}

TEST(Lower, ChoicesAreLookedForOnceInWhatIsUsedTwice) {
  std::string text = R"(kernel {
  param p0 int64 scalar
  param p1 float32 in
  param p2 float32 out
  axis a0
  for stage (a0) {
    %0 = load(p1[a0])
)";
  constexpr int kLevels = 40;  // 2^40 ways down to the load
  for (int i = 1; i <= kLevels; ++i)
    text += fmt::format("    %{0} = select(lt(a0, p0), add(%{1}, %{1}), %{1})\n", i, i - 1);
  text += fmt::format("    store p2[a0] = %{}\n  }}\n}}\n", kLevels);
  EXPECT_EQ(lane_loops(lower(parse(text), TargetFacts{.name = "cpu"}).body), 1);
}

const char* kText = R"(kernel "k" {
  param p0 float32 in
  param p1 float32 out
  axis a0
  for stage (a0) { store p1[a0] = add(mul(load(p0[a0]), float32(1)), exp(load(p0[a0]))) }
})";

TEST(LowerDeathTest, DumpsAfterEachPass) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto dump = [] {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("cermet_dump_{}", getpid());
    std::filesystem::create_directory(folder);
    setenv("CERMET_DUMP", folder.c_str(), 1);
    setenv("CERMET_LOG", "kernel", 1);
    const Kernel kernel = parse(kText);
    lower(kernel, TargetFacts{});
    const std::string stem = (folder / hash_of(kernel).hex()).string();
    bool all = true;
    for (const char* pass : {"0_given", "1_simplify", "2_relax_max", "3_expand", "4_tile",
                             "5_unswitch", "6_simplify_tiled"})
      all = all && std::filesystem::exists(fmt::format("{}.{}.ir", stem, pass));
    std::filesystem::remove_all(folder);
    std::exit(all ? 0 : 1);
  };
  EXPECT_EXIT(dump(), testing::ExitedWithCode(0), "\\[kernel\\] k simplify: ");
}

TEST(LowerDeathTest, AFolderThatIsMissingIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto dump = [] {
    setenv("CERMET_DUMP", "/nonexistent/folder", 1);
    try {
      lower(parse(kText), TargetFacts{});
    } catch (const Error& error) {
      fmt::print(stderr, "{}", error.what());
      std::exit(error.kind() == ErrorKind::io ? 0 : 1);
    }
    std::exit(2);
  };
  EXPECT_EXIT(dump(), testing::ExitedWithCode(0), "CERMET_DUMP must name an existing folder");
}

TEST(LowerDeathTest, LeavesOutOptionalPassesByName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto skip = [] {
    setenv("CERMET_SKIP_PASS", "simplify,simplify_tiled", 1);
    const Kernel kernel = lower(parse(kText), TargetFacts{});
    // x * 1 is left.
    std::exit(kernel.is_tiled() && print(kernel).find("float32(1))") != std::string::npos ? 0 : 1);
  };
  EXPECT_EXIT(skip(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cermet::ir
