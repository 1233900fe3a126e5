// SPDX-License-Identifier: MIT
#include "kernel/tiled_alike.h"

#include "kernel/run.h"

namespace cermet {

ir::Kernel expect_tiled_alike(const ir::Kernel& kernel, const std::vector<KernelInput>& inputs) {
  ir::verify(kernel);
  ir::Kernel tiled = ir::tile(kernel, {.name = "cpu"});
  ir::verify(tiled);
  for (const KernelInput& input : inputs)
    expect_same(tiled, run_interpreted(tiled, input), run_interpreted(kernel, input));
  expect_as_interpreted(tiled, inputs);
  return tiled;
}

}  // namespace cermet
