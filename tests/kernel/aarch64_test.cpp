// SPDX-License-Identifier: MIT
// The golden kernels as AArch64 code, run in an emulator: the bits of the interpreter, which runs them as
// they are before lowering. (Every form of kernel, products and attention: in the tests of CUDA text, which
// run their kernels as AArch64 code, too, and in attention_test.cpp.)
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernel/aarch64_run.h"
#include "kernel/golden_case.h"
#include "kernel/run.h"

namespace cermet {
namespace {

std::string folder() { return fmt::format("{}/kernel/golden", CERMET_TESTS_DIR); }

ir::Kernel read_kernel(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return ir::parse(text.str());
}

TEST(Aarch64, GoldenKernels) {
  Aarch64Batch batch;
  std::vector<std::pair<ir::Kernel, KernelInput>> launches;
  for (const GoldenCase& c : golden_cases()) {
    const size_t number = batch.add(ir::lower(c.kernel, cpu_facts(CpuLevel::neon)));
    for (const KernelInput& input : c.inputs) {
      launches.emplace_back(c.kernel, input);
      batch.launch(number, input);
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
