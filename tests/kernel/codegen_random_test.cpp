// SPDX-License-Identifier: MIT
// Random kernels through the whole pipeline: lowered for each level of the host, compiled, run.
#include <gtest/gtest.h>

#include "kernel/compiled.h"
#include "kernel/random_kernel.h"
#include "kernel/run.h"

namespace cermet {
namespace {

KernelInput input_of(const ir::RandomKernel& random) {
  return {.bytes = random.initial,
          .before = std::vector<int64_t>(random.initial.size()),
          .scalars = random.scalars,
          .extents = random.extents,
          .strides = random.strides};
}

// The tiled kernel's bits are the interpreter's.
void check_random(uint64_t seed, ir::RandomOptions options) {
  SCOPED_TRACE(seed);
  const ir::RandomKernel random(seed, options);
  const KernelInput input = input_of(random);
  for (CpuLevel level : host_levels()) {
    const ir::Kernel tiled = ir::lower(random.kernel, cpu_facts(level));
    const KernelOutput expected = run_interpreted(tiled, input);
    const std::shared_ptr<LoadedKernel> code = load_kernel(compile_cpu(tiled, level));
    const KernelOutput got =
        run_compiled(*code, tiled, input, seed % 2 == 0, 1 + static_cast<int64_t>(seed % 3));
    ASSERT_EQ(got.failure.site, expected.failure.site);
    for (size_t i = 0; i < tiled.params.size(); ++i)
      ASSERT_EQ(ir::difference(tiled.params[i].dtype, got.bytes[i], expected.bytes[i]), "")
          << name_of(level) << " p" << i << "\n"
          << ir::print(tiled);
  }
}

TEST(CodegenRandom, CoreCodes) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    check_random(seed, {});
    if (HasFatalFailure()) return;
  }
}

TEST(CodegenRandom, MathCodes) {
  for (uint64_t seed = 1000; seed < 1030; ++seed) {
    check_random(seed, {.math = true});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace cermet
