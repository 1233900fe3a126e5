// SPDX-License-Identifier: MIT
// CUDA text of kernels with more folds than a block's shared memory holds.
#include <gtest/gtest.h>

#include "codegen/cuda_source.h"
#include "kernel/cuda_run.h"
#include "kernel/random_input.h"
#include "kernel/run.h"

namespace cermet {
namespace {

constexpr int kFolds = 25, kStates = 5;  // whose trees take more than 48 KiB

// Of rows: each fold is sums of the products with its number and each of a few powers of two.
ir::Kernel many_folds() {
  std::string params = "  param p0 float64 in\n", values, folds, stores;
  for (int i = 0; i < kFolds; ++i) {
    std::string types, states, sum = fmt::format("v{}.0", i);
    for (int s = 0; s < kStates; ++s) {
      types += s == 0 ? "float64" : ", float64";
      states += fmt::format(
          "      float64 init float64(-0) step add(state({0}, float64), mul(%0, float64({1}))) "
          "merge add(state({0}, float64), other({0}, float64))\n",
          s, (i + 1) << s);
      if (s > 0) sum = fmt::format("add({}, v{}.{})", sum, i, s);
    }
    params += fmt::format("  param p{} float64 out\n", i + 1);
    values += fmt::format("  value v{} {}\n", i, types);
    folds += fmt::format("    fold v{} over (a1) last lanes {{\n{}    }}\n", i, states);
    stores += fmt::format("    store p{}[a0] = {}\n", i + 1, sum);
  }
  return ir::parse(fmt::format(
      "kernel \"many_folds\" {{\n{}  axis a0\n  axis a1\n  strides 1\n{}  for stage (a0, a1) {{\n"
      "    %0 = load(p0[a0*s0 + a1])\n{}  }}\n  for stage (a0) {{\n{}  }}\n}}\n",
      params, values, folds, stores));
}

TEST(CudaSource, ManyFolds) {
  const ir::Kernel tiled = ir::lower(many_folds(), cuda_facts());
  CudaBatch batch;
  batch.add(tiled);
  ASSERT_TRUE(batch.build());
  std::vector<int64_t> elements(kFolds + 1, 3);
  elements[0] = 3 * 5000;
  std::vector<KernelInput> inputs;
  for (const std::vector<int64_t>& extents : {std::vector<int64_t>{3, 1}, {2, 5000}, {3, 0}})
    inputs.push_back(random_input(tiled, elements, extents, {5000}, 1, true));
  batch.expect_as_interpreted(0, inputs);
}

}  // namespace
}  // namespace cermet
