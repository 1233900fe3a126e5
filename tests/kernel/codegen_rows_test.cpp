// SPDX-License-Identifier: MIT
// The code of loops over rows where vectors are short and registers few: what its hot blocks hold. That it
// computes what the interpreter does, other tests tell.
#include <gtest/gtest.h>

#include "codegen/target.h"
#include "kernel/passes.h"
#include "kernel/run.h"

namespace cermet {

namespace codegen {
std::string llvm_text(const ir::Kernel& tiled, CpuLevel level);
}

namespace {

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The gradient of a softmax.
std::string softmax_gradient(const std::string& most) {
  return fmt::format(R"(kernel {{
    param p0 float32 in
    param p1 float32 in
    param p2 float32 out
    axis a0
    axis a1 {}
    strides 3
    value v0 float32
    value v1 float32
    value v2 float32
    for stage (a0, a1) {{
      %0 = load(p0[a0*s0 + a1])
      fold v0 over (a1) last lanes {{
        float32 init float32(-inf) step max(state(0, float32), %0) merge max(state(0, float32), other(0, float32))
      }}
      %1 = exp(sub(%0, v0))
      %2 = add(state(0, float32), other(0, float32))
      fold v1 over (a1) last lanes {{
        float32 init float32(-0) step add(state(0, float32), %1) merge %2
      }}
      %3 = div(%1, v1)
      %4 = mul(%3, load(p1[a0*s1 + a1]))
      fold v2 over (a1) last lanes {{
        float32 init float32(-0) step add(state(0, float32), %4) merge %2
      }}
      store p2[a0*s2 + a1] = sub(%4, mul(%3, v2))
    }} }})",
                     most);
}

// The place of a row's largest element.
std::string largest_place(const std::string& most) {
  return fmt::format(R"(kernel {{
    param p0 float32 in
    param p1 uint32 out
    axis a0
    axis a1 {}
    strides 1
    value v0 float32, uint32
    for stage (a0, a1) {{
      %0 = load(p0[a0*s0 + a1])
      %3 = bit_and(bit_not(le(%0, state(0, float32))), eq(state(0, float32), state(0, float32)))
      %1 = bit_or(%3, eq(state(1, uint32), uint32(4294967295)))
      %2 = lt(state(0, float32), other(0, float32))
      fold v0 over (a1) last lanes {{
        float32 init float32(-inf) step select(%1, %0, state(0, float32)) merge select(%2, other(0, float32), state(0, float32))
        uint32 init uint32(4294967295) step select(%1, cast.uint32(a1), state(1, uint32)) merge select(%2, other(1, uint32), state(1, uint32))
      }}
      store p1[a0] = v0.1
    }} }})",
                     most);
}

std::string text_of(const std::string& kernel, CpuLevel level) {
  return codegen::llvm_text(ir::lower(ir::parse(kernel), cpu_facts(level)), level);
}

// The block that holds the only such text.
std::string block_with(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  if (at == std::string::npos) return {};
  const size_t begin = text.rfind("\n\n", at), end = text.find("\n\n", at);
  return text.substr(begin, end - begin);
}

// The step of a sum: lanes that are out of range are mended behind the loop.
TEST(CodegenRows, FoldsStepWithoutMasks) {
  const std::string text = text_of(softmax_gradient(""), CpuLevel::avx2);
  const std::string exponentials = block_with(text, "shl <16 x i32>");
  ASSERT_NE(exponentials, "");
  // The only choice is the bound of the exponent.
  EXPECT_EQ(count_of(exponentials, " select <16 x i1>"), 1) << exponentials;
  EXPECT_EQ(count_of(exponentials, "phi <16 x "), 0);
}

// Of a constant of several registers one is kept.
TEST(CodegenRows, ConstantsTakeOneRegister) {
  const std::string text = text_of(softmax_gradient(""), CpuLevel::avx2);
  EXPECT_GT(count_of(text, "constant <8 x float>"), 8);
  EXPECT_EQ(count_of(text, "constant <16 x float>"), 0);
}

// A line is fetched once: by the exponentials, and by four of the quotients' eight vectors and the one left.
TEST(CodegenRows, LinesAreFetchedOnce) {
  const std::string text = text_of(softmax_gradient(""), CpuLevel::avx2);
  EXPECT_EQ(count_of(text, "call void @llvm.prefetch.p0(ptr"), 2 + 4 + 1);
}

// Rows of few elements: four vectors of rows go along them, but of folds of two states.
TEST(CodegenRows, SeveralVectorsOfRowsGoAlongThem) {
  const std::string text = text_of(softmax_gradient("most 48"), CpuLevel::avx2);
  EXPECT_GT(count_of(text, "fadd <32 x float>"), 0);
  EXPECT_EQ(count_of(text, "fadd <8 x float>"), 0);
  EXPECT_EQ(count_of(text_of(softmax_gradient("most 48"), CpuLevel::avx512), "<32 x float>"), 0);
  const std::string argmax = text_of(largest_place("most 48"), CpuLevel::avx2);
  EXPECT_GT(count_of(argmax, "<8 x float>"), 0);
  EXPECT_EQ(count_of(argmax, "<32 x float>"), 0);
}

// What a loop of long steps loads soon, 512 elements on, and short rows some rows on.
TEST(CodegenRows, LoopsOfLongStepsFetchWhatComesSoon) {
  const std::string soon = ", i64 512\n";
  EXPECT_EQ(count_of(text_of(largest_place(""), CpuLevel::avx2), soon), 1);
  const std::string sums = R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    axis a1
    strides 1
    value v0 float32
    for stage (a0, a1) {
      fold v0 over (a1) last lanes {
        float32 init float32(-0) step add(state(0, float32), load(p0[a0*s0 + a1])) merge add(state(0, float32), other(0, float32))
      }
      store p1[a0] = v0
    } })";
  EXPECT_EQ(count_of(text_of(sums, CpuLevel::avx2), soon), 0);
}

}  // namespace
}  // namespace cermet
