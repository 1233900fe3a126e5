// SPDX-License-Identifier: MIT
// Random kernels through the whole pipeline: lowered for each level of the host, compiled, run.
#include <gtest/gtest.h>

#include "kernel/compiled.h"
#include "kernel/random_faults.h"

namespace cermet {
namespace {

void check_random(uint64_t seed, ir::RandomOptions options) {
  const ir::RandomKernel random(seed, options);
  for (CpuLevel level : host_levels()) ASSERT_EQ(code_fault(random, level), "");
}

TEST(CodegenRandom, CoreCodes) {
  for (uint64_t seed = 0; seed < 60; ++seed) ASSERT_NO_FATAL_FAILURE(check_random(seed, {}));
}

TEST(CodegenRandom, MathCodes) {
  for (uint64_t seed = 1000; seed < 1030; ++seed)
    ASSERT_NO_FATAL_FAILURE(check_random(seed, {.math = true}));
}

}  // namespace
}  // namespace cermet
