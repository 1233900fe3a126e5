// SPDX-License-Identifier: MIT
// Products for targets other than this processor: as CUDA text, run in turns here, and as AArch64 code.
#include <gtest/gtest.h>

#include "codegen/cuda_source.h"
#include "kernel/aarch64_run.h"
#include "kernel/cuda_run.h"
#include "kernel/gemm_case.h"
#include "kernel/run.h"

namespace cermet {
namespace {

std::vector<ir::GemmShape> product_shapes() {
  return {
      {.m = 1, .n = 1, .k = 1},
      {.m = 65, .n = 70, .k = 40, .padding = 8},
      {.m = 5, .n = 270, .k = 9, .a_transposed = true},
      {.batch = 2, .m = 3, .n = 260, .k = 259, .b_transposed = true, .c_transposed = true},
      {.m = 9,
       .n = 20,
       .k = 17,
       .b_transposed = true,
       .in = Dtype::bfloat16,
       .out = Dtype::bfloat16,
       .epilogue = true},
      {.m = 9,
       .n = 20,
       .k = 17,
       .in = Dtype::float64,
       .acc = Dtype::float64,
       .out = Dtype::float64},
      {.batch = 2, .m = 9, .n = 20, .k = 17, .prologue = true, .epilogue = true, .side = true},
      {.batch = 2, .m = 9, .n = 20, .k = 17, .a_transposed = true, .is_complex = true},
      {.n = 20, .k = 17},
      {.m = 3, .n = 4, .k = 0, .padding = 2},
  };
}

std::string fault_of(ir::GemmCase product, const KernelOutput& output) {
  for (size_t i = 0; i < product.buffers.size(); ++i) product.buffers[i].data = output.bytes[i];
  return product.wrong();
}

TEST(CudaSource, Products) {
  const std::vector<ir::GemmShape> shapes = product_shapes();
  CudaBatch batch;
  for (const ir::GemmShape& shape : shapes)
    batch.add(ir::lower(ir::GemmCase(shape).kernel, cuda_facts()));
  ASSERT_TRUE(batch.build());
  size_t number = 0;
  for (const ir::GemmShape& shape : shapes) {
    SCOPED_TRACE(shape.text());
    for (const CudaLaunch& how : with_device({{}, {64, 1, true, true}})) {
      const ir::GemmCase product(shape);
      EXPECT_EQ(fault_of(product, batch.run(number, product.input(), how)), "");
    }
    ++number;
  }
}

TEST(Aarch64, Products) {
  Aarch64Batch batch;
  for (const ir::GemmShape& shape : product_shapes()) {
    const ir::GemmCase product(shape);
    const size_t kernel = batch.add(ir::lower(product.kernel, cpu_facts(CpuLevel::neon)));
    batch.launch(kernel, product.input());
  }
  const std::vector<KernelOutput> outputs = batch.run();
  ASSERT_EQ(outputs.size(), product_shapes().size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ir::GemmShape shape = product_shapes()[i];
    SCOPED_TRACE(shape.text());
    EXPECT_EQ(fault_of(ir::GemmCase(shape), outputs[i]), "");
  }
}

}  // namespace
}  // namespace cermet
