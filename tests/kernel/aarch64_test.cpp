// SPDX-License-Identifier: MIT
// The golden kernels as AArch64 code, run in an emulator: the bits of the interpreter, which runs them as
// they are before lowering. (Every form of kernel, products and attention: in the tests of CUDA text, which
// run their kernels as AArch64 code, too, and in attention_test.cpp.)
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernel/aarch64_run.h"
#include "kernel/random_input.h"
#include "kernel/run.h"

namespace cermet {
namespace {

using Numbers = std::vector<int64_t>;

std::string folder() { return fmt::format("{}/kernel/golden", CERMET_TESTS_DIR); }

ir::Kernel read_kernel(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return ir::parse(text.str());
}

struct Case {
  const char* name;
  std::vector<Numbers> extents;
  Numbers strides;
};

constexpr int64_t kRow = 200;  // rows lie so far apart
const std::vector<Numbers> kRows = {{1, 1}, {5, 33}, {3, 200}, {0, 7}, {20, 64}};
const std::vector<Numbers> kLines = {{1}, {100}, {0}, {3000}};

const std::vector<Case> kCases = {
    {"layer_norm", kRows, {kRow, kRow}},
    {"layer_norm_gradient", kRows, {kRow, kRow}},
    {"rms_norm_bf16", kRows, {kRow, kRow}},
    {"arg_reductions", {{1, 1}, {5, 33}, {20, 64}}, {kRow}},
    {"cumsum", kRows, {kRow, kRow}},
    {"adam", kLines, {}},
    {"dropout", kLines, {}},
    {"integers", kLines, {}},
    {"complex_chain", kLines, {2, 2, 2}},
};

TEST(Aarch64, GoldenKernels) {
  Aarch64Batch batch;
  std::vector<std::pair<ir::Kernel, KernelInput>> launches;
  for (const Case& c : kCases) {
    const ir::Kernel kernel = read_kernel(fmt::format("{}/{}.ir", folder(), c.name));
    const size_t number = batch.add(ir::lower(kernel, cpu_facts(CpuLevel::neon)));
    const Numbers elements(kernel.params.size(), 6000);
    for (const Numbers& extents : c.extents) {
      const auto seed = static_cast<unsigned>(launches.size() + 1);
      launches.emplace_back(kernel, random_input(kernel, elements, extents, c.strides, seed, true));
      batch.launch(number, launches.back().second);
    }
  }
  const std::vector<KernelOutput> outputs = batch.run();
  ASSERT_EQ(outputs.size(), launches.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}, launch {}", launches[i].first.name, i));
    const auto& [kernel, input] = launches[i];
    expect_same(kernel, outputs[i], run_interpreted(kernel, input));
  }
}

// Those that need more than random numbers are compiled at least.
TEST(Aarch64, EveryGoldenKernelCompiles) {
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    SCOPED_TRACE(file.path().string());
    const ir::Kernel kernel = read_kernel(file.path());
    const ir::TargetFacts facts = cpu_facts(CpuLevel::neon);
    const Object object = compile_cpu(
        kernel.is_tiled() ? ir::expand(kernel, facts) : ir::lower(kernel, facts), CpuLevel::neon);
    EXPECT_FALSE(object.blob.empty());
    EXPECT_FALSE(object.entries.empty());
  }
}

}  // namespace
}  // namespace cermet
