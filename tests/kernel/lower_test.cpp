// SPDX-License-Identifier: MIT
// The runner: lowered kernels mean what they meant, hold core codes only, and it dumps, logs and
// skips.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "kernel/random_faults.h"
#include "kernel/run.h"

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
    for (const char* pass : {"0_given", "1_simplify", "2_expand", "3_tile", "4_simplify_tiled"})
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
    setenv("CERMET_SKIP_PASS", "simplify,simplify_tiled,tile", 1);
    const Kernel kernel = lower(parse(kText), TargetFacts{});
    // x * 1 is left; tile is not optional.
    std::exit(kernel.is_tiled() && print(kernel).find("float32(1))") != std::string::npos ? 0 : 1);
  };
  EXPECT_EXIT(skip(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cermet::ir
