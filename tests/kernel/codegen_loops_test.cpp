// SPDX-License-Identifier: MIT
// Loops, folds and memory accesses of tiled kernels: compiled as interpreted, with nasty extents and
// strides, nothing touched outside the buffers.
#include <gtest/gtest.h>

#include <cstring>

#include "codegen/target.h"
#include "kernel/compiled.h"
#include "kernel/passes.h"
#include "kernel/random_input.h"
#include "kernel/run.h"
#include "kernel/tile.h"
#include "runtime/poll.h"

namespace cermet {

namespace codegen {
std::string llvm_text(const ir::Kernel& tiled, CpuLevel level);
}

namespace {

using ir::Kernel;

// Buffers of `elements(extents)` elements for each of the extents.
template <typename F>
void check(const std::string& text, const std::vector<std::vector<int64_t>>& extents, F&& elements,
           const std::vector<int64_t>& strides = {}, bool tame = true) {
  const Kernel kernel = ir::parse(text);
  std::vector<KernelInput> inputs;
  for (const std::vector<int64_t>& e : extents)
    inputs.push_back(random_input(kernel, elements(e), e, strides,
                                  static_cast<unsigned>(inputs.size()) + 1, tame));
  expect_as_interpreted(kernel, inputs);
}

std::vector<std::vector<int64_t>> one_axis(const std::vector<int64_t>& sizes) {
  std::vector<std::vector<int64_t>> extents;
  for (int64_t n : sizes) extents.push_back({n});
  return extents;
}

const std::vector<int64_t> kFoldSizes = {0,    1,    5,    16,   63,    64,   65,
                                         200,  1000, 2047, 2048, 2049,  4095, 4096,
                                         4097, 6000, 8192, 8200, 12289, 21000};

// One fold over everything, by lanes or serially.
std::string fold_kernel(Dtype in, Dtype state, const char* loop, const char* order,
                        const std::string& init, const std::string& step,
                        const std::string& merge) {
  return fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {1} out
  axis a0
  axis a1 variable
  axis a2 variable
  value v0 {1}
  for chunk (a1) grid 1 {{
    for {2} (a2) begin 0 end extent(a0) {{
      fold v0 over (a2) last {3} {{
        {1} init {4} step {5} merge {6}
      }}
    }}
    store p1[] = v0
  }}
}})",
                     name_of(in), name_of(state), loop, order, init, step, merge);
}

void check_fold(Dtype in, Dtype state, const std::string& init, const std::string& step,
                const std::string& merge) {
  for (const auto& [loop, order] : {std::pair{"lane", "lanes"}, std::pair{"serial", "serial"}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", name_of(in), step, loop));
    check(fold_kernel(in, state, loop, order, init, step, merge), one_axis(kFoldSizes),
          [](const auto& e) { return std::vector<int64_t>{e[0], 1}; });
  }
}

TEST(CodegenLoops, Sums) {
  for (Dtype d :
       {Dtype::float32, Dtype::float64, Dtype::int32, Dtype::int64, Dtype::uint8, Dtype::int16}) {
    const std::string name(name_of(d));
    const std::string both = fmt::format("add(state(0, {0}), other(0, {0}))", name);
    const std::string zero = is_floating(d)      ? name + "(-0)"
                             : d == Dtype::int64 ? "0"
                                                 : name + "(0)";
    check_fold(d, d, zero, fmt::format("add(state(0, {}), load(p0[a2]))", name), both);
  }
  // Half inputs, float64 accumulators, an expression of the element's number.
  check_fold(Dtype::bfloat16, Dtype::float32, "float32(-0)",
             "add(state(0, float32), mul(cast.float32(load(p0[a2])), cast.float32(a2)))",
             "add(state(0, float32), other(0, float32))");
  check_fold(Dtype::float32, Dtype::float64, "float64(-0)",
             "add(state(0, float64), cast.float64(load(p0[a2])))",
             "add(state(0, float64), other(0, float64))");
}

TEST(CodegenLoops, MaximaAndConditions) {
  check_fold(Dtype::float32, Dtype::float32, "float32(-inf)",
             "max(state(0, float32), load(p0[a2]))", "max(state(0, float32), other(0, float32))");
  check_fold(Dtype::float64, Dtype::float64, "float64(inf)", "min(state(0, float64), load(p0[a2]))",
             "min(state(0, float64), other(0, float64))");
  check_fold(Dtype::int8, Dtype::boolean, "false",
             "bit_or(state(0, bool), eq(load(p0[a2]), int8(77)))",
             "bit_or(state(0, bool), other(0, bool))");
  check_fold(Dtype::boolean, Dtype::boolean, "true", "bit_and(state(0, bool), load(p0[a2]))",
             "bit_and(state(0, bool), other(0, bool))");
}

TEST(CodegenLoops, LongStepsAndMerges) {
  // Too long to unroll, with a rare path; the merge is not commutative.
  check_fold(
      Dtype::float32, Dtype::float32, "float32(0)",
      "rare(lt(load(p0[a2]), float32(-5)), add(mul(state(0, float32), float32(0.75)), "
      "sqrt(abs(sub(mul(load(p0[a2]), load(p0[a2])), div(load(p0[a2]), add(abs(load(p0[a2])), "
      "float32(1))))))), sub(state(0, float32), add(load(p0[a2]), sqrt(float32(2)))))",
      "add(mul(state(0, float32), float32(0.5)), sub(mul(sub(other(0, float32), state(0, "
      "float32)), "
      "float32(0.25)), div(mul(other(0, float32), float32(3)), add(abs(state(0, float32)), "
      "float32(1)))))");
}

TEST(CodegenLoops, StatesOfSeveralTypes) {
  // The largest element and where it first was: float32 with int64, hence 32 lanes.
  for (const auto& [loop, order] : {std::pair{"lane", "lanes"}, std::pair{"serial", "serial"}})
    check(fmt::format(R"(kernel {{
  param p0 float32 in
  param p1 float32 out
  param p2 int64 out
  axis a0
  axis a1 variable
  axis a2 variable
  value v0 float32, int64
  for chunk (a1) grid 1 {{
    for {} (a2) begin 0 end extent(a0) {{
      %0 = state(0, float32)
      %1 = lt(%0, load(p0[a2]))
      %2 = other(0, float32)
      %3 = bit_or(lt(%0, %2), bit_and(eq(%0, %2), lt(other(1, int64), state(1, int64))))
      fold v0 over (a2) last {} {{
        float32 init float32(-inf) step select(%1, load(p0[a2]), %0) merge select(%3, %2, %0)
        int64 init 0 step select(%1, a2, state(1, int64)) merge select(%3, other(1, int64), state(1, int64))
      }}
    }}
    store p1[] = v0.0
    store p2[] = v0.1
  }}
}})",
                      loop, order),
          one_axis(kFoldSizes), [](const auto& e) { return std::vector<int64_t>{e[0], 1, 1}; });
}

TEST(CodegenLoops, FoldsOfBothBlockLengthsInOneLoop) {
  check(R"(kernel {
  param p0 float32 in
  param p1 float32 out
  param p2 float64 out
  param p3 float32 out
  axis a0
  axis a1 variable
  axis a2 variable
  value v0 float32
  value v1 float64
  value v2 float32
  for chunk (a1) grid 1 {
    for lane (a2) begin 3 end extent(a0) {
      let v2 = mul(load(p0[a2]), float32(1.5))
      store p3[a2] = v2
      fold v0 over (a2) last lanes {
        float32 init float32(-0) step add(state(0, float32), v2) merge add(state(0, float32), other(0, float32))
      }
      fold v1 over (a2) last lanes {
        float64 init float64(-0) step add(state(0, float64), cast.float64(v2)) merge add(state(0, float64), other(0, float64))
      }
    }
    store p1[] = v0
    store p2[] = v1
  }
})",
        one_axis(kFoldSizes), [](const auto& e) { return std::vector<int64_t>{e[0], 1, 1, e[0]}; });
}

TEST(CodegenLoops, Scans) {
  check(R"(kernel {
  param p0 float32 in
  param p1 float32 out
  param p2 float32 out
  axis a0
  axis a1 variable
  axis a2 variable
  value v0 float32
  value v1 float32
  for chunk (a1) grid 1 {
    for serial (a2) begin 0 end extent(a0) {
      fold v0 over (a2) each serial {
        float32 init float32(-0) step add(state(0, float32), load(p0[a2])) merge add(state(0, float32), other(0, float32))
      }
      store p1[a2] = v0
      fold v1 over (a2) last serial {
        float32 init float32(-inf) step max(state(0, float32), v0) merge max(state(0, float32), other(0, float32))
      }
    }
    store p2[] = v1
  }
})",
        one_axis({0, 1, 2, 255, 256, 257, 512, 513, 1500}),
        [](const auto& e) { return std::vector<int64_t>{e[0], e[0], 1}; });
}

TEST(CodegenLoops, RowsThroughLocals) {
  // softmax-like: three sweeps over a row held in a thread's local, values of a fold used by the next.
  check(R"(kernel {
  param p0 bfloat16 in
  param p1 float32 out
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  axis a4 variable
  axis a5 variable
  strides 2
  value v0 float32
  value v1 float32
  value v2 float32
  scratch l0 float32 1*ceil(a1/1) thread
  for chunk (a2) grid 1*ceil(a0/1) {
    for lane (a3) begin 0 end extent(a1) {
      fold v0 over (a3) last lanes {
        float32 init float32(-inf) step max(state(0, float32), cast.float32(load(p0[a2*s0 + a3]))) merge max(state(0, float32), other(0, float32))
      }
    }
    for lane (a4) begin 0 end extent(a1) {
      let v1 = scale2(float32(1.25), rint(max(sub(cast.float32(load(p0[a2*s0 + a4])), v0), float32(-20))))
      store l0[a4] = v1
      fold v2 over (a4) last lanes {
        float32 init float32(-0) step add(state(0, float32), v1) merge add(state(0, float32), other(0, float32))
      }
    }
    for lane (a5) begin 0 end extent(a1) {
      store p1[a2*s1 + a5] = div(load(l0[a5]), v2)
    }
  }
})",
        {{1, 1}, {3, 5}, {4, 16}, {5, 17}, {2, 64}, {3, 100}, {2, 5000}, {7, 0}, {0, 9}},
        [](const auto& e) { return std::vector<int64_t>{e[0] * 5000, e[0] * 5001}; }, {5000, 5001});
}

TEST(CodegenLoops, ColumnSumsInALocal) {
  check(R"(kernel {
  param p0 float32 in
  param p1 float32 out
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  axis a4 variable
  axis a5 variable
  axis a6 variable
  strides 1
  value v0 int64
  value v1 int64
  value v2 int64
  value v3 int64
  value v4 float32
  scratch l0 float32 1*ceil(a0/256)*ceil(a1/1) kernel
  for chunk (a2) grid 1*ceil(a0/256) entry "part" {
    let v0 = mul(a2, 256)
    let v1 = min(extent(a0), add(v0, 256))
    let v2 = mul(a2, extent(a1))
    for lane (a3) begin 0 end extent(a1) {
      store l0[v2 + a3] = float32(-0)
    }
    for serial (a4) begin v0 end v1 {
      for lane (a5) begin 0 end extent(a1) {
        store l0[v2 + a5] = add(load(l0[v2 + a5]), load(p0[a4*s0 + a5]))
      }
    }
  }
  for chunk (a6) grid 1 entry "whole" {
    for lane (a3) begin 0 end extent(a1) {
      merge v4 from (l0) at a3 count div(add(extent(a0), 255), 256) stride extent(a1) {
        float32 init float32(-0) step none merge add(state(0, float32), other(0, float32))
      }
      store p1[a3] = v4
    }
  }
})",
        {{1, 1}, {300, 5}, {1000, 16}, {513, 17}, {256, 40}, {0, 3}},
        [](const auto& e) { return std::vector<int64_t>{e[0] * 50, e[1]}; }, {50});
}

TEST(CodegenLoops, StridesBroadcastsAndReversals) {
  // Terms of any stride, of either sign, in rows and lanes; contiguous, strided, broadcast and
  // reversed accesses of one loop.
  const Kernel kernel = ir::parse(R"(kernel {
  param p0 float32 in
  param p1 float64 in
  param p2 int8 in
  param p3 float32 out
  param p4 bfloat16 out
  param p5 uint8 out
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  strides 6
  for chunk (a2) grid 1*ceil(a0/1) {
    for lane (a3) begin 0 end extent(a1) {
      %0 = add(load(p0[a2*s0 + a3*s1]), cast.float32(load(p1[a2*s2])))
      %1 = add(%0, cast.float32(load(p2[a3])))
      store p3[a2*s3 + a3*s4] = sub(%1, load(p0[a2 + sub(sub(extent(a1), 1), a3)]))
      store p4[mul(a3, 2) + a2*s5] = cast.bfloat16(%1)
      store p5[a3*s0 + a2] = cast.uint8(load(p2[sub(sub(extent(a1), 1), a3)]))
    }
  }
})");
  std::vector<KernelInput> inputs;
  for (const auto& [rows, columns] :
       {std::pair{3, 5}, {4, 16}, {2, 33}, {7, 64}, {5, 1}, {1, 100}, {6, 0}}) {
    const int64_t r = rows, c = columns;
    // p0 is read transposed, p3 written transposed and backwards.
    KernelInput input = random_input(
        kernel, {r * std::max<int64_t>(c, 1) + r + c, r * 3, c, r * c, 2 * r * c, r * c}, {r, c},
        {1, r, 3, 1, -r, 2 * c}, static_cast<unsigned>(r * 100 + c), true);
    input.before[3] = c > 0 ? r * (c - 1) : 0;
    inputs.push_back(std::move(input));
    inputs.back().strides[0] = 1;
  }
  // p5's index has stride s0 for the lane axis: one element for each lane in a row.
  for (KernelInput& input : inputs)
    input.bytes[5] = random_bytes(Dtype::uint8, input.extents[0] + input.extents[1], 9);
  expect_as_interpreted(kernel, inputs);
}

// A loop that ends before it begins runs not at all, by any number of elements.
TEST(CodegenLoops, EndsBeforeItBegins) {
  for (const char* value : {"add(load(p0[a2]), float32(1))", "sqrt(sqrt(add(load(p0[a2]), p1)))"}) {
    const std::string text = fmt::format(R"(kernel {{
  param p0 float32 inout
  param p1 float32 scalar
  axis a0
  axis a1 variable
  axis a2 variable
  for chunk (a1) grid 1*ceil(a0/50) {{
    for lane (a2) begin mul(a1, 100) end sub(extent(a0), mul(a1, 30)) {{
      store p0[a2] = {}
    }}
  }}
}})",
                                         value);
    check(text, one_axis({0, 1, 60, 100, 101, 137, 200, 250, 313}),
          [](const auto& e) { return std::vector<int64_t>{e[0], 1}; });
  }
}

// Rounds that go over several vectors at a time; with a load, rare values and a second result.
TEST(CodegenLoops, LongChainsOfIntegers) {
  for (Dtype d : {Dtype::uint32, Dtype::int64, Dtype::uint16, Dtype::uint8}) {
    const std::string name(name_of(d));
    SCOPED_TRACE(name);
    std::string rounds = fmt::format("      %0 = cast.{}(a2)\n      %1 = load(p0[a2])\n", name);
    for (int i = 2; i < 60; i += 2)
      rounds += fmt::format(
          "      %{0} = add(%{1}, %{2})\n      %{3} = bit_xor(rotl(%{2}, {4}({5})), %{0})\n", i,
          i - 2, i - 1, i + 1, name, i % 7 + 1);
    const std::string text = fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {0} out
  param p2 float32 out
  axis a0
  axis a1 variable
  axis a2 variable
  for chunk (a1) grid 1*ceil(a0/500) {{
    for lane (a2) begin mul(a1, 500) end min(add(mul(a1, 500), 500), extent(a0)) {{
{1}      %60 = cast.float32(%58)
      store p1[a2] = %59
      store p2[a2] = rare(lt(%60, float32(9)), %60, sqrt(%60))
    }}
  }}
}})",
                                         name, rounds);
    check(text, one_axis({0, 1, 7, 16, 63, 64, 65, 127, 128, 129, 500, 1100}),
          [](const auto& e) { return std::vector<int64_t>{e[0], e[0], e[0]}; });
  }
}

// Rows added up, all but the first of float32, or a polynomial of as many terms.
std::string chain_kernel(int links, bool of_rows, std::string_view first = "float32") {
  std::string params = fmt::format("  param p0 {} inout\n", first);
  std::string chain = "      %0 = load(p0[a2])\n";
  for (int i = 1; i <= links; ++i) {
    if (of_rows) params += fmt::format("  param p{} float32 in\n", i);
    const std::string row = first == "float32" ? fmt::format("load(p{}[a2])", i)
                                               : fmt::format("cast.float64(load(p{}[a2]))", i);
    const std::string link = of_rows
                                 ? fmt::format("add(%{}, {})", i - 1, row)
                                 : fmt::format("fma(%{}, %0, float32({}))", i - 1, 1.0 / (1 << i));
    chain += fmt::format("      %{} = {}\n", i, link);
  }
  return fmt::format(R"(kernel {{
{}  axis a0
  axis a1 variable
  axis a2 variable
  for chunk (a1) grid 1*ceil(a0/500) {{
    for lane (a2) begin mul(a1, 500) end min(add(mul(a1, 500), 500), extent(a0)) {{
{}      store p0[a2] = %{}
    }}
  }}
}})",
                     params, chain, links);
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Several short vectors at a time: the last ones are copied by a loop, with one instruction for each stream.
TEST(CodegenLoops, SeveralVectorsAtATimeCopyThePartialOnesInALoop) {
  for (const bool of_rows : {false, true})
    for (const int links : {8, 12}) {
      SCOPED_TRACE(fmt::format("{} {}", links, of_rows ? "rows" : "terms"));
      const std::string kernel = chain_kernel(links, of_rows);
      const std::string text = codegen::llvm_text(ir::parse(kernel), CpuLevel::avx2);
      const auto streams = static_cast<size_t>(of_rows ? links + 1 : 1);
      EXPECT_EQ(count_of(text, "call <8 x float> @llvm.masked.load"), streams);
      EXPECT_EQ(count_of(text, "@llvm.masked.load."), streams + 1);  // and its declaration
      EXPECT_EQ(count_of(text, "@llvm.masked.store."), 2);
      check(kernel, one_axis({0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 500, 509, 1100}),
            [&](const auto& e) { return std::vector<int64_t>(streams, e[0]); });
    }
}

// Beside float64 a piece of float32 is half a vector, and aligned as one.
TEST(CodegenLoops, PiecesOfAShorterTypeAreAlignedAsTheyLie) {
  const std::string kernel = chain_kernel(12, true, "float64");
  const std::string text = codegen::llvm_text(ir::parse(kernel), CpuLevel::avx2);
  const std::string store = text.substr(std::min(text.size(), text.find("store <4 x float>")));
  EXPECT_TRUE(store.substr(0, store.find('\n')).ends_with("align 16"));
  check(kernel, one_axis({0, 1, 3, 4, 5, 15, 16, 17, 500, 509}),
        [&](const auto& e) { return std::vector<int64_t>(13, e[0]); });
}

TEST(CodegenLoops, MasksGathersAndScatters) {
  for (Dtype d : {Dtype::float32, Dtype::float64, Dtype::int8, Dtype::float16, Dtype::boolean})
    for (Dtype index : {Dtype::int64, Dtype::uint8, Dtype::int32}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(d), name_of(index)));
      const Kernel kernel = ir::parse(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {1} in
  param p2 {0} out
  param p3 {0} out
  param p4 {0} out
  axis a0
  axis a1 variable
  axis a2 variable
  strides 1
  value v0 int64
  for chunk (a1) grid 1 {{
    for lane (a2) begin 0 end extent(a0) {{
      let v0 = rem(bit_and(cast.int64(load(p1[a2])), 32767), extent(a0))
      %0 = lt(v0, div(extent(a0), 2))
      store p2[a2] = load(p0[v0])
      store p3[a2] = load(p0[v0*s0], mask %0, else load(p0[a2])) mask ne(rem(a2, 3), 1)
      store p4[rem(mul(a2, 7), extent(a0))] = load(p0[a2], mask %0) mask le(a2, 50)
    }}
  }}
}})",
                                                  name_of(d), name_of(index)));
      std::vector<KernelInput> inputs;
      for (int64_t n : {1, 2, 5, 16, 17, 33, 64, 65, 110})  // 7 is prime to all
        inputs.push_back(random_input(kernel, {n, n, n, n, n}, {n}, {1}, static_cast<unsigned>(n)));
      expect_as_interpreted(kernel, inputs);
    }
}

// LLVM 19 loses such a shift in the scale of a gather or scatter.
TEST(CodegenLoops, IndicesShiftedFar) {
  for (Dtype d : {Dtype::float32, Dtype::float64})
    for (const char* far : {"shl(load(p1[a2]), 62)", "mul(load(p1[a2]), 2305843009213693952)",
                            "bit_and(shl(load(p1[a2]), 61), -1)"}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(d), far));
      check(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 int64 in
  param p2 {0} out
  param p3 {0} inout
  axis a0
  axis a1 variable
  axis a2 variable
  value v0 int64
  for chunk (a1) grid 1 {{
    for lane (a2) begin 0 end extent(a0) {{
      let v0 = {1}
      %0 = eq(v0, 0)
      store p2[a2] = load(p0[v0], mask %0, else {0}(-1))
      store p3[v0] = load(p0[a2]) mask %0
    }}
  }}
}})",
                        name_of(d), far),
            one_axis({16, 64, 110}), [](const auto& e) { return std::vector<int64_t>(4, e[0]); });
    }
}

TEST(CodegenLoops, ScalarMasksAndUniformLoads) {
  check(
      R"(kernel {
  param p0 float32 in
  param p1 bool in
  param p2 float32 inout
  param p3 int64 in
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  strides 1
  value v0 float32
  value v1 float32
  for chunk (a2) grid 1*ceil(a0/1) {
    let v0 = load(p0[a2], mask load(p1[a2]), else float32(7))
    store p2[a2*s0] = v0 mask load(p1[a2])
    for lane (a3) begin 1 end extent(a1) {
      let v1 = load(p0[a2], mask ne(rem(a3, 3), 0), else cast.float32(a3))
      store p2[a2*s0 + a3] = add(add(v1, load(p2[a2*s0 + a3])), load(p0[a2], mask load(p1[a2])))
    }
    store p2[a2*s0] = load(p2[a2*s0 + 1]) mask lt(1, extent(a1))
  }
})",
      {{1, 1}, {3, 2}, {5, 17}, {4, 64}, {9, 31}},
      [](const auto& e) { return std::vector<int64_t>{e[0], e[0], e[0] * 70, 1}; }, {70}, true);
}

TEST(CodegenLoops, UpdatesRunInOrder) {
  // In a serial loop onto few elements; in a lane loop onto distinct ones.
  for (Dtype d : {Dtype::float32, Dtype::int16, Dtype::float64}) {
    check(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {0} inout
  param p2 {0} inout
  param p3 {0} inout
  axis a0
  axis a1 variable
  axis a2 variable
  axis a3 variable
  axis a4 variable
  for chunk (a1) grid 1 {{
    for serial (a2) begin 0 end extent(a0) {{
      update p1[rem(mul(a2, a2), 5)] add load(p0[a2])
      update p3[rem(a2, 3)] max load(p0[a2]) mask ne(rem(a2, 7), 2)
    }}
    for lane (a3) begin 0 end extent(a0) {{
      update p2[a3] mul load(p0[a3])
    }}
    for lane (a4) begin 0 end extent(a0) {{
      update p2[sub(extent(a0), add(a4, 1))] sub load(p0[a4]) mask lt(rem(a4, 5), 3)
    }}
  }}
}})",
                      name_of(d)),
          one_axis({0, 1, 7, 16, 40, 100}),
          [](const auto& e) { return std::vector<int64_t>{e[0], 5, e[0], 3}; });
  }
}

TEST(CodegenLoops, UpdatesOfComplexNumbers) {
  for (Dtype d : {Dtype::float32, Dtype::float64})
    check(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {0} inout
  param p2 {0} inout
  axis a0
  axis a1 variable
  axis a2 variable
  axis a3 variable
  strides 1
  for chunk (a1) grid 1 {{
    for serial (a2) begin 0 end extent(a0) {{
      %0 = load(p0[a2*s0])
      %1 = load(p0[a2*s0 + 1])
      update p1[rem(mul(a2, a2), 5)*s0] mul %0 imag %1
      update p1[rem(a2, 3)*s0] max %0 imag %1 mask ne(rem(a2, 7), 2)
      update p1[rem(a2, 4)*s0] add %1 imag %0
    }}
    for lane (a3) begin 0 end extent(a0) {{
      update p2[a3*s0] mul load(p0[a3*s0]) imag load(p0[a3*s0 + 1])
      update p2[a3*s0] min load(p0[a3*s0 + 1]) imag load(p0[a3*s0]) mask lt(rem(a3, 5), 3)
    }}
  }}
}})",
                      name_of(d)),
          one_axis({0, 1, 7, 16, 40}),
          [](const auto& e) { return std::vector<int64_t>{2 * e[0], 10, 2 * e[0]}; }, {2});
}

TEST(CodegenLoops, ChecksReportTheFirstFailure) {
  const Kernel kernel = ir::parse(R"(kernel {
  param p0 int32 in
  param p1 float32 in
  param p2 float32 out
  param p3 int64 status
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  strides 1
  value v0 int64
  for chunk (a2) grid 1*ceil(a0/1) {
    check lt(a2, 100) site 3 index a2
    for lane (a3) begin 0 end extent(a1) {
      let v0 = cast.int64(load(p0[a2*s0 + a3]))
      check bit_and(le(0, v0), lt(v0, 20)) site 8 index v0
      store p2[a2*s0 + a3] = load(p1[v0])
    }
  }
})");
  // Nothing after a failed Check may run: the loads of bad indices would end the test.
  for (CpuLevel level : host_levels()) {
    const std::shared_ptr<LoadedKernel> code = load_kernel(compile_cpu(kernel, level));
    for (int bad = -1; bad < 200; bad += 7) {
      KernelInput input = random_input(kernel, {200, 20, 200, 0}, {4, 50}, {50});
      ir::CheckFailure expected;
      for (int i = 0; i < 200; ++i) {
        int32_t index = (i * 13) % 20;
        if (bad >= 0 && (i == bad || i == bad + 1 || i == bad + 60))
          index = i % 2 == 0 ? -1 - i : 20 + i;
        if (i == bad) expected = {8, index};
        std::memcpy(&input.bytes[0][static_cast<size_t>(i) * 4], &index, 4);
      }
      for (int64_t calls : {1, 2, 4}) {
        const ir::CheckFailure got = run_compiled(*code, kernel, input, true, calls).failure;
        EXPECT_EQ(got.site, expected.site) << name_of(level) << " " << bad;
        EXPECT_EQ(got.index, expected.index) << name_of(level) << " " << bad;
      }
    }
  }
}

TEST(CodegenLoops, LongItemsAreStopped) {
  // Blocks of a fold, parts of a lane loop, rounds of a serial one: each alone takes longer than until a poll.
  const char* const kBodies[] = {
      R"(for lane (a3) begin 0 end extent(a0) {
        fold v0 over (a3) last lanes {
          float32 init float32(-0) step add(state(0, float32), load(p0[a3])) merge add(state(0, float32), other(0, float32))
        }
      }
      store p1[] = v0)",
      R"(for lane (a3) begin 0 end extent(a0) {
        store p1[a3] = mul(load(p0[a3]), float32(3))
      })",
      R"(for serial (a3) begin 0 end extent(a0) {
        for lane (a4) begin 0 end extent(a1) {
          store p1[a3 + a4] = load(p0[a3])
        }
      })"};
  for (const char* body : kBodies) {
    const Kernel kernel = ir::parse(fmt::format(R"(kernel {{
  param p0 float32 in
  param p1 float32 out
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  axis a4 variable
  value v0 float32
  for chunk (a2) grid 1 {{
    {}
  }}
}})",
                                                body));
    constexpr int64_t kSize = 1 << 20, kLanes = 64;
    const KernelInput input = random_input(kernel, {kSize, kSize + kLanes}, {kSize, kLanes}, {});
    for (CpuLevel level : host_levels()) {
      const std::shared_ptr<LoadedKernel> code = load_kernel(compile_cpu(kernel, level, true));
      LaunchMemory memory(code->object, kernel, input, true);
      EXPECT_EQ(code->functions[0](memory.record.data(), 0, 1, nullptr), 0) << body;
      set_poll_hook([] { return true; });
      // The hook is asked now and then only.
      int64_t result = 0;
      for (int i = 0; i < 1000 && result == 0; ++i)
        result = code->functions[0](memory.record.data(), 0, 1, nullptr);
      set_poll_hook(nullptr);
      EXPECT_EQ(result, -1) << name_of(level) << body;
    }
  }
}

TEST(CodegenLoops, TransposesThroughALocal) {
  check(R"(kernel {
  param p0 float32 in
  param p1 bfloat16 out
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  axis a4 variable
  axis a5 variable
  axis a6 variable
  strides 2
  value v0 int64
  value v1 int64
  scratch l0 float32 5120 thread
  for chunk (a2) grid 1*ceil(a0/64) {
    let v0 = mul(a2, 64)
    let v1 = min(extent(a0), add(v0, 64))
    for serial (a3) begin v0 end v1 {
      for lane (a4) begin 0 end extent(a1) {
        store l0[mul(sub(a3, v0), 80) + a4] = mul(load(p0[a3*s0 + a4]), float32(3))
      }
    }
    for serial (a5) begin 0 end extent(a1) {
      for lane (a6) begin v0 end v1 {
        store p1[a5*s1 + a6] = cast.bfloat16(load(l0[mul(sub(a6, v0), 80) + a5]))
      }
    }
  }
})",
        {{1, 1}, {3, 5}, {64, 64}, {65, 63}, {100, 40}},
        [](const auto& e) { return std::vector<int64_t>{e[0] * 64, e[1] * 100}; }, {64, 100});
}

TEST(CodegenLoops, StoresAreSeenByLaterLoads) {
  // A loop-invariant element that the loop itself changes; a value read before it is overwritten.
  check(R"(kernel {
  param p0 float32 in
  param p1 float32 inout
  param p2 float32 inout
  axis a0
  axis a1 variable
  axis a2 variable
  axis a3 variable
  value v0 float32
  value v1 float32
  value v2 float32
  for chunk (a1) grid 1 {
    let v0 = load(p1[0])
    for serial (a2) begin 0 end extent(a0) {
      store p1[0] = add(load(p1[0]), load(p0[a2]))
      let v1 = load(p1[0])
      store p1[0] = mul(v1, float32(0.5))
    }
    store p1[1] = sub(load(p1[0]), v0)
    for lane (a3) begin 0 end extent(a0) {
      let v2 = load(p2[a3])
      store p2[a3] = add(v2, load(p1[1]))
      store p2[a3] = mul(load(p2[a3]), v2)
    }
  }
})",
        one_axis({0, 1, 3, 16, 30, 64, 77}),
        [](const auto& e) { return std::vector<int64_t>{e[0], 2, e[0]}; });
}

}  // namespace
}  // namespace cermet
