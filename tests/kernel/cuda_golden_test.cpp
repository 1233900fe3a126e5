// SPDX-License-Identifier: MIT
// The golden kernels as CUDA text: with the bits of the interpreter; where products leave the order of their
// sums open, near what it gives in double, and with the same bits on a GPU as on this processor.
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/cuda_source.h"
#include "kernel/cuda_run.h"
#include "kernel/golden_case.h"
#include "kernel/run.h"

namespace cermet {
namespace {

TEST(CudaSource, GoldenKernels) {
  const std::vector<GoldenCase> cases = golden_cases();
  CudaBatch batch;
  for (const GoldenCase& c : cases) batch.add(ir::lower(c.kernel, cuda_facts()));
  ASSERT_TRUE(batch.build());
  for (size_t k = 0; k < cases.size() && !HasFailure(); ++k)
    batch.expect_as_interpreted(k, cases[k].inputs);
}

// All elements, as products write all that they own and leave the rest.
void expect_near(const ir::Kernel& kernel, const KernelOutput& got, const KernelOutput& expected) {
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    if (kernel.params[i].kind != ir::ParamKind::buffer) continue;
    ASSERT_EQ(kernel.params[i].dtype, Dtype::float32);
    for (size_t at = 0; at < got.bytes[i].size(); at += sizeof(float)) {
      float x, y;
      std::memcpy(&x, &got.bytes[i][at], sizeof x);
      std::memcpy(&y, &expected.bytes[i][at], sizeof y);
      // Sums of up to 40 terms: 40 roundings of a term that may be twenty times their sum.
      ASSERT_LE(std::fabs(x - y), 1e-4 * (1 + std::fabs(y))) << "parameter " << i << " at " << at;
    }
  }
}

TEST(CudaSource, GoldenProducts) {
  const std::vector<GoldenCase> cases = golden_products();
  CudaBatch batch;
  for (const GoldenCase& c : cases) batch.add(ir::lower(c.kernel, cuda_facts()));
  ASSERT_TRUE(batch.build());
  for (size_t k = 0; k < cases.size() && !HasFailure(); ++k) {
    const ir::Kernel& kernel = cases[k].kernel;
    SCOPED_TRACE(kernel.name);
    for (const KernelInput& input : cases[k].inputs) {
      const KernelOutput first = batch.run(k, input, {});
      expect_near(kernel, first, run_interpreted(kernel, input, ir::Arithmetic::wide));
      for (const CudaLaunch& how : with_device({{}, {64, 1, true, true}, {128, 3, false, true}})) {
        SCOPED_TRACE(fmt::format("{} threads{}", how.threads, how.device ? " on the device" : ""));
        expect_same(kernel, batch.run(k, input, how), first);
      }
    }
  }
}

}  // namespace
}  // namespace cermet
