// SPDX-License-Identifier: MIT
// CUDA text of every form of kernel: NVRTC compiles it, and it gives the interpreter's bits when its
// threads are run in turns on this processor. The same kernels as AArch64 code give them, too.
#include "codegen/cuda_source.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "kernel/aarch64_run.h"
#include "kernel/cuda_run.h"
#include "kernel/random_input.h"
#include "kernel/random_kernel.h"
#include "kernel/run.h"
#include "kernel/tile.h"

namespace cermet {
namespace {

using ir::Kernel;
using Numbers = std::vector<int64_t>;

// Kernels with inputs, compiled together.
class Cases {
 public:
  void add(const Kernel& tiled, std::vector<KernelInput> inputs) {
    ir::verify(tiled);
    batch_.add(tiled);
    const size_t kernel = aarch64_.add(ir::expand(tiled, cpu_facts(CpuLevel::neon)));
    for (const KernelInput& input : inputs) aarch64_.launch(kernel, input);
    inputs_.push_back(std::move(inputs));
  }
  void add(const std::string& tiled, const std::vector<Numbers>& extents, const auto& elements,
           const Numbers& strides = {}, bool tame = true) {
    const Kernel kernel = ir::parse(tiled);
    std::vector<KernelInput> inputs;
    for (const Numbers& e : extents)
      inputs.push_back(random_input(kernel, elements(e), e, strides,
                                    static_cast<unsigned>(inputs.size()) + 1, tame));
    add(kernel, std::move(inputs));
  }
  void check() {
    if (!batch_.build()) return;
    for (size_t k = 0; k < inputs_.size() && !testing::Test::HasFailure(); ++k)
      batch_.expect_as_interpreted(k, inputs_[k]);
    if (!testing::Test::HasFailure()) aarch64_.expect_as_interpreted();
  }

 private:
  CudaBatch batch_;
  Aarch64Batch aarch64_;
  std::vector<std::vector<KernelInput>> inputs_;
};

Kernel read_kernel(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return ir::parse(text.str());
}

Kernel golden(const std::string& name) {
  const auto path = fmt::format("{}/kernel/golden/{}_tiled.ir", CERMET_TESTS_DIR, name);
  return ir::expand(read_kernel(path), cuda_facts());
}

// Whatever is in the folder, as the file's name says tiled or not.
TEST(CudaSource, EveryGoldenKernelCompiles) {
  CudaBatch batch;
  size_t count = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(fmt::format("{}/kernel/golden", CERMET_TESTS_DIR))) {
    SCOPED_TRACE(file.path().string());
    const Kernel kernel = read_kernel(file.path());
    batch.add(kernel.is_tiled() ? ir::expand(kernel, cuda_facts())
                                : ir::lower(kernel, cuda_facts()));
    ++count;
  }
  EXPECT_GE(count, 20U);
  batch.build();
}

std::vector<KernelInput> inputs_of(const Kernel& kernel, const std::vector<Numbers>& extents,
                                   auto&& elements, auto&& strides, bool tame = true) {
  std::vector<KernelInput> inputs;
  for (const Numbers& e : extents)
    inputs.push_back(random_input(kernel, elements(e), e, strides(e),
                                  static_cast<unsigned>(inputs.size()) + 1, tame));
  return inputs;
}

const std::vector<Numbers> kPlanes = {{0, 5},  {5, 0},   {1, 1},     {1, 4097},
                                      {3, 64}, {17, 63}, {257, 130}, {2, 8200}};

TEST(CudaSource, Golden) {
  Cases cases;
  const auto product = [](const Numbers& n) { return n[0] * n[1]; };
  const auto row = [](const Numbers& n) { return Numbers{n[1]}; };
  const auto rows = [](const Numbers& n) { return Numbers{n[1], n[1]}; };
  Kernel kernel = golden("bias");
  cases.add(kernel, inputs_of(
                        kernel, kPlanes,
                        [&](const Numbers& n) {
                          return Numbers{product(n), std::max(n[0], n[1]), product(n)};
                        },
                        rows));
  kernel = golden("softmax");
  cases.add(kernel, inputs_of(
                        kernel, kPlanes,
                        [&](const Numbers& n) { return Numbers{product(n), product(n)}; }, row));
  // Rows too long for what a block has of shared memory unasked, and at all.
  cases.add(kernel, inputs_of(
                        kernel, {{2, 20000}, {3, 70000}},
                        [&](const Numbers& n) { return Numbers{product(n), product(n)}; }, row));
  kernel = golden("column_sum");
  cases.add(
      kernel,
      inputs_of(kernel, kPlanes, [&](const Numbers& n) { return Numbers{product(n), n[1]}; }, row));
  kernel = golden("full_sum");
  cases.add(kernel, inputs_of(
                        kernel, {{0}, {1}, {4095}, {4096}, {4097}, {70000}},
                        [&](const Numbers& n) { return Numbers{n[0], 1}; },
                        [](const Numbers&) { return Numbers{}; }));
  kernel = golden("transpose");
  cases.add(kernel, inputs_of(
                        kernel, {{1, 1}, {63, 65}, {64, 128}, {129, 1}, {0, 4}},
                        [&](const Numbers& n) { return Numbers{product(n), product(n)}; },
                        [](const Numbers& n) { return Numbers{n[0], n[1]}; }));
  cases.check();
}

// --- Ops: one kernel for each dtype, with an output for each expression of its inputs.

const std::vector<Dtype> kNumbers = {Dtype::uint8,   Dtype::uint16, Dtype::uint32, Dtype::uint64,
                                     Dtype::int8,    Dtype::int16,  Dtype::int32,  Dtype::int64,
                                     Dtype::float32, Dtype::float64};

// Inputs p0 .. p2, and after them an output of each of the dtypes.
void add_map(Cases& cases, Dtype in, const std::vector<std::pair<Dtype, std::string>>& outputs) {
  std::string params, stores;
  for (int i = 0; i < 3; ++i) params += fmt::format("  param p{} {} in\n", i, name_of(in));
  for (size_t i = 0; i < outputs.size(); ++i) {
    params += fmt::format("  param p{} {} out\n", i + 3, name_of(outputs[i].first));
    stores += fmt::format("      store p{}[a2] = {}\n", i + 3, outputs[i].second);
  }
  const std::string text = fmt::format(R"(kernel {{
{}  axis a0
  axis a1 variable
  axis a2 variable
  for chunk (a1) grid 1*ceil(a0/512) {{
    %0 = mul(a1, 512)
    %1 = load(p0[a2])
    %2 = load(p1[a2])
    %3 = load(p2[a2])
    for lane (a2) begin %0 end min(extent(a0), add(%0, 512)) {{
{}    }}
  }}
}})",
                                       params, stores);
  cases.add(
      text, {{1}, {3000}}, [&](const Numbers& e) { return Numbers(outputs.size() + 3, e[0]); }, {},
      false);
}

TEST(CudaSource, OpsOfAllTypes) {
  Cases cases;
  std::vector<Dtype> all = kNumbers;
  all.push_back(Dtype::boolean);
  for (Dtype d : all) {
    const Dtype b = Dtype::boolean;
    const bool floating = is_floating(d), logical = d == b;
    std::vector<std::pair<Dtype, std::string>> outputs;
    const auto unary = [&](const char* code) {
      outputs.push_back({d, fmt::format("{}(%1)", code)});
    };
    const auto binary = [&](const char* code, Dtype result) {
      outputs.push_back({result, fmt::format("{}(%1, %2)", code)});
    };
    for (const char* code : {"eq", "ne", "lt", "le"}) binary(code, b);
    if (!logical)
      for (const char* code : {"add", "sub", "mul", "div", "rem", "min", "max"}) binary(code, d);
    if (!logical) unary("neg"), unary("abs");
    if (!floating)
      for (const char* code : {"bit_and", "bit_or", "bit_xor"}) binary(code, d);
    if (!floating) unary("bit_not");
    if (!floating && !logical) binary("shl", d), binary("shr", d), binary("rotl", d);
    if (floating) {
      for (const char* code : {"sqrt", "floor", "ceil", "trunc", "rint"}) unary(code);
      outputs.push_back({d, "fma(%1, %2, %3)"});
      const std::string_view name = name_of(d);
      const int limit = d == Dtype::float32 ? 120 : 1000;
      outputs.push_back(
          {d, fmt::format("scale2({0}(1.375), rint(max(min(select(eq(%2, %2), %2, {0}(1)), "
                          "{0}({1})), {0}(-{1}))))",
                          name, limit)});
    }
    outputs.push_back({d, "select(lt(%1, %2), %3, %1)"});
    outputs.push_back({d, "rare(lt(%1, %2), %3, rare(lt(%2, %3), %1, %2))"});
    for (Dtype to : all) outputs.push_back({to, fmt::format("cast.{}(%1)", name_of(to))});
    add_map(cases, d, outputs);
  }
  for (Dtype half : {Dtype::float16, Dtype::bfloat16})
    add_map(cases, half,
            {{Dtype::float32, "cast.float32(%1)"},
             {half, "%1"},
             {half, fmt::format("cast.{}(mul(cast.float32(%1), cast.float32(%2)))", name_of(half))},
             {Dtype::int16, "bitcast.int16(%1)"}});
  add_map(cases, Dtype::float32,
          {{Dtype::uint32, "bitcast.uint32(%1)"},
           {Dtype::float16, "cast.float16(%1)"},
           {Dtype::bfloat16, "cast.bfloat16(%1)"}});
  add_map(cases, Dtype::float64, {{Dtype::int64, "bitcast.int64(%1)"}});
  cases.check();
}

TEST(CudaSource, EveryFloat16) {
  Cases cases;
  const auto text = [](const char* in, const char* out) {
    return ir::parse(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {1} out
  axis a0
  axis a1 variable
  axis a2 variable
  for chunk (a1) grid 1 {{
    for lane (a2) begin 0 end extent(a0) {{
      store p1[a2] = cast.{1}(load(p0[a2]))
    }}
  }}
}})",
                                 in, out));
  };
  const Kernel widen = text("float16", "float32"), narrow = text("float32", "float16");
  KernelInput halves = random_input(widen, {65536, 65536}, {65536});
  for (int i = 0; i < 65536; ++i) std::memcpy(&halves.bytes[0][static_cast<size_t>(2 * i)], &i, 2);
  // The floats around each of them and around the midpoints between them.
  KernelInput floats = random_input(narrow, {65536 * 6, 65536 * 6}, {65536 * 6});
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits =
        static_cast<uint32_t>(ir::from_double(Dtype::float32, ir::to_double(Dtype::float16, i)));
    for (uint32_t k = 0; k < 6; ++k) {
      const uint32_t near = bits + (k < 3 ? k - 1 : 0x1000 + k - 4);
      std::memcpy(&floats.bytes[0][(i * 6 + k) * 4], &near, 4);
    }
  }
  cases.add(widen, {halves});
  cases.add(narrow, {floats});
  cases.check();
}

// --- Folds.

const std::vector<Numbers> kFoldSizes = {{0},    {1},    {63},   {64},   {65},    {2047},  {2048},
                                         {2049}, {4096}, {4097}, {8200}, {12289}, {21000}, {70001}};

TEST(CudaSource, FoldsByLanesAndSerially) {
  Cases cases;
  const auto fold = [&](Dtype in, Dtype state, const std::string& init, const std::string& step,
                        const std::string& merge) {
    for (const auto& [loop, order] : {std::pair{"lane", "lanes"}, std::pair{"serial", "serial"}})
      cases.add(fmt::format(R"(kernel {{
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
                            name_of(in), name_of(state), loop, order, init, step, merge),
                kFoldSizes, [](const Numbers& e) { return Numbers{e[0], 1}; });
  };
  for (Dtype d : {Dtype::float32, Dtype::float64, Dtype::uint8, Dtype::int64}) {
    const std::string name(name_of(d));
    fold(d, d,
         is_floating(d)      ? name + "(-0)"
         : d == Dtype::int64 ? "0"
                             : name + "(0)",
         fmt::format("add(state(0, {}), load(p0[a2]))", name),
         fmt::format("add(state(0, {0}), other(0, {0}))", name));
  }
  fold(Dtype::bfloat16, Dtype::float32, "float32(-inf)",
       "max(state(0, float32), cast.float32(load(p0[a2])))",
       "max(state(0, float32), other(0, float32))");
  fold(Dtype::int8, Dtype::boolean, "false", "bit_or(state(0, bool), eq(load(p0[a2]), int8(77)))",
       "bit_or(state(0, bool), other(0, bool))");
  // Not commutative, with a rare path in the step.
  fold(Dtype::float32, Dtype::float32, "float32(0)",
       "rare(lt(load(p0[a2]), float32(-5)), add(mul(state(0, float32), float32(0.75)), "
       "load(p0[a2])), "
       "sub(state(0, float32), sqrt(float32(2))))",
       "add(mul(state(0, float32), float32(0.5)), mul(other(0, float32), float32(0.25)))");
  cases.check();
}

TEST(CudaSource, FoldsOfSeveralStatesAndOrders) {
  Cases cases;
  // Lanes of 32 and of 64 in one loop; the first one's states are a pair.
  cases.add(R"(kernel {
  param p0 float32 in
  param p1 float32 out
  param p2 int64 out
  param p3 float32 out
  param p4 float32 out
  param p5 float64 out
  axis a0
  axis a1 variable
  axis a2 variable
  value v0 float32, int64
  value v1 float32
  value v2 float32
  value v3 float64
  for chunk (a1) grid 1 {
    for lane (a2) begin 3 end extent(a0) {
      %0 = state(0, float32)
      %1 = lt(%0, load(p0[a2]))
      %2 = other(0, float32)
      %3 = bit_or(lt(%0, %2), bit_and(eq(%0, %2), lt(other(1, int64), state(1, int64))))
      fold v0 over (a2) last lanes {
        float32 init float32(-inf) step select(%1, load(p0[a2]), %0) merge select(%3, %2, %0)
        int64 init 0 step select(%1, a2, state(1, int64)) merge select(%3, other(1, int64), state(1, int64))
      }
      let v1 = mul(load(p0[a2]), float32(1.5))
      store p3[a2] = v1
      fold v2 over (a2) last lanes {
        float32 init float32(-0) step add(state(0, float32), v1) merge add(state(0, float32), other(0, float32))
      }
      fold v3 over (a2) last lanes {
        float64 init float64(-0) step add(state(0, float64), cast.float64(v1)) merge add(state(0, float64), other(0, float64))
      }
    }
    store p1[] = v0.0
    store p2[] = v0.1
    store p4[] = v2
    store p5[] = v3
  }
})",
            kFoldSizes, [](const Numbers& e) { return Numbers{e[0], 1, 1, e[0], 1, 1}; });
  // A scan, the largest of what it gives, and a fold by lanes for each of a few rows.
  cases.add(R"(kernel {
  param p0 float32 in
  param p1 float32 inout
  param p2 float32 out
  param p3 float32 inout
  axis a0
  axis a1 variable
  axis a2 variable
  axis a3 variable
  axis a4 variable
  value v0 float32
  value v1 float32
  value v2 float32
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
    for serial (a3) begin 0 end 5 {
      for lane (a4) begin a3 end extent(a0) {
        fold v2 over (a4) last lanes {
          float32 init float32(-0) step add(state(0, float32), load(p1[a4])) merge add(state(0, float32), other(0, float32))
        }
      }
      store p3[a3] = add(v2, load(p3[sub(4, a3)]))
    }
  }
})",
            {{0}, {1}, {255}, {256}, {257}, {1500}, {9000}},
            [](const Numbers& e) { return Numbers{e[0], e[0], 1, 5}; });
  cases.check();
}

// --- Memory.

TEST(CudaSource, MasksGathersAndStrides) {
  Cases cases;
  for (Dtype d : {Dtype::float32, Dtype::float64, Dtype::int8, Dtype::float16, Dtype::boolean})
    cases.add(
        fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 int32 in
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
                    name_of(d)),
        {{1}, {5}, {64}, {110}, {555}}, [](const Numbers& e) { return Numbers(5, e[0]); }, {1},
        false);
  // Scalar accesses under masks, a broadcast element that is written, reversals.
  cases.add(R"(kernel {
  param p0 float32 in
  param p1 bool in
  param p2 float32 inout
  param p3 float32 scalar
  param p4 uint8 scalar
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  strides 1
  value v0 float32
  value v1 float32
  for chunk (a2) grid 1*ceil(a0/1) {
    let v0 = load(p0[a2], mask load(p1[a2]), else float32(7))
    store p2[a2*s0] = add(v0, p3) mask load(p1[a2])
    for lane (a3) begin 1 end extent(a1) {
      let v1 = load(p0[a2], mask ne(rem(a3, 3), 0), else cast.float32(p4))
      store p2[a2*s0 + sub(extent(a1), a3)] = add(v1, load(p2[a2*s0 + sub(extent(a1), a3)]))
    }
    store p2[a2*s0] = load(p2[a2*s0 + 1]) mask lt(1, extent(a1))
  }
})",
            {{1, 1}, {3, 2}, {5, 17}, {4, 64}, {9, 69}},
            [](const Numbers& e) { return Numbers{e[0], e[0], e[0] * 70, 1, 1}; }, {70});
  cases.check();
}

TEST(CudaSource, StoresAreSeenByOtherThreads) {
  Cases cases;
  cases.add(R"(kernel {
  param p0 float32 in
  param p1 float32 inout
  param p2 float32 inout
  axis a0
  axis a1 variable
  axis a2 variable
  axis a3 variable
  axis a4 variable
  axis a5 variable
  value v0 float32
  value v1 float32
  scratch l0 float32 1*ceil(a0/1) thread
  scratch l1 bool 3 thread
  scratch l2 float32 1*ceil(a0/1) kernel
  for chunk (a1) grid 3 {
    let v0 = load(p1[0])
    store l1[0] = lt(v0, float32(0))
    for serial (a2) begin 0 end 4 {
      for lane (a3) begin 0 end extent(a0) {
        store l0[a3] = add(load(p0[a3]), cast.float32(a2))
      }
      for lane (a4) begin 0 end extent(a0) {
        let v1 = add(load(l0[sub(sub(extent(a0), 1), a4)]), load(p1[1]))
        store l2[a4] = select(load(l1[0]), v1, v0) mask eq(a1, 1)
      }
      store p1[1] = add(load(l0[0]), load(l2[0])) mask eq(a1, 1)
    }
    for lane (a5) begin 0 end extent(a0) {
      store p2[a5] = add(load(l2[a5]), load(l0[sub(sub(extent(a0), 1), a5)])) mask eq(a1, 1)
    }
  }
})",
            {{1}, {31}, {64}, {300}, {1000}},
            [](const Numbers& e) { return Numbers{e[0], 2, e[0]}; });
  cases.add(R"(kernel {
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
            {{0}, {1}, {77}, {300}}, [](const Numbers& e) { return Numbers{e[0], 2, e[0]}; });
  cases.check();
}

TEST(CudaSource, UpdatesRunInOrder) {
  Cases cases;
  for (Dtype d : {Dtype::float32, Dtype::int16, Dtype::float64})
    cases.add(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {0} inout
  param p2 {0} inout
  axis a0
  axis a1 variable
  axis a2 variable
  axis a3 variable
  axis a4 variable
  for chunk (a1) grid 1 {{
    for serial (a2) begin 0 end extent(a0) {{
      update p1[rem(mul(a2, a2), 5)] add load(p0[a2])
      update p1[rem(a2, 3)] max load(p0[a2]) mask ne(rem(a2, 7), 2)
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
              {{0}, {1}, {40}, {301}}, [](const Numbers& e) { return Numbers{e[0], 5, e[0]}; });
  cases.check();
}

TEST(CudaSource, UpdatesOfComplexNumbers) {
  Cases cases;
  for (Dtype d : {Dtype::float32, Dtype::float64})
    cases.add(fmt::format(R"(kernel {{
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
              {{0}, {1}, {40}}, [](const Numbers& e) { return Numbers{2 * e[0], 10, 2 * e[0]}; },
              {2});
  cases.check();
}

// --- What the tiler makes.

TEST(CudaSource, FormsOfTheTiler) {
  struct Form {
    const char* form;
    const char* text;
    std::vector<Numbers> extents;
    std::function<Numbers(const Numbers&)> elements, strides;
  };
  const auto area = [](const Numbers& n) { return n[0] * n[1]; };
  const Form forms[] = {
      {"scan",
       R"(kernel "cumsum" {
  param p0 float32 in
  param p1 float32 out
  axis a0
  axis a1
  strides 1
  value v0 float32
  for stage (a0, a1) {
    fold v0 over (a1) each serial {
      float32 init float32(-0) step add(state(0, float32), load(p0[a0*s0 + a1])) merge add(state(0, float32), other(0, float32))
    }
    store p1[a0*s0 + a1] = v0
  }
})",
       {{3, 5}, {300, 7}, {2, 700}, {0, 3}},
       [&](const Numbers& n) { return Numbers{area(n), area(n)}; },
       [](const Numbers& n) { return Numbers{n[1]}; }},
      {"row_column",
       R"(kernel "norm_backward" {
  param p0 float32 in
  param p1 float32 in
  param p2 float32 out
  param p3 float32 out
  axis a0
  axis a1
  strides 1
  value v0 float32
  value v1 float32
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    %1 = load(p1[a0*s0 + a1])
    fold v0 over (a1) last lanes {
      float32 init float32(-0) step add(state(0, float32), mul(%0, %1)) merge add(state(0, float32), other(0, float32))
    }
    store p2[a0*s0 + a1] = sub(%1, mul(%0, v0))
    fold v1 over (a0) last serial {
      float32 init float32(-0) step add(state(0, float32), mul(%1, v0)) merge add(state(0, float32), other(0, float32))
    }
  }
  for stage (a1) {
    store p3[a1] = v1
  }
})",
       {{1, 1}, {90, 17}, {600, 3}, {3, 5000}, {0, 4}},
       [&](const Numbers& n) { return Numbers{area(n), area(n), area(n), n[1]}; },
       [](const Numbers& n) { return Numbers{n[1]}; }},
      {"scatter",
       R"(kernel "histogram" {
  param p0 uint8 in
  param p1 float32 inout
  axis a0
  axis a1
  strides 1
  for stage (a0, a1) {
    update p1[rem(cast.int64(load(p0[a0])), 12)*s0 + a1] add cast.float32(a0)
  }
})",
       {{1, 1}, {300, 70}, {9, 3000}, {0, 4}},
       [](const Numbers& n) { return Numbers{n[0], 12 * n[1]}; },
       [](const Numbers& n) { return Numbers{n[1]}; }},
      {"map",
       R"(kernel "normal_bits" {
  param p0 uint32 out
  param p1 uint32 out
  param p2 uint32 scalar
  axis a0
  for stage (a0) {
    %0 = cast.uint32(a0)
    %1 = threefry(p2, uint32(7), %0, bit_not(%0))
    store p0[a0] = %1.0
    store p1[a0] = %1.1
  }
})",
       {{0}, {1}, {5000}},
       [](const Numbers& n) { return Numbers{n[0], n[0], 1}; },
       [](const Numbers&) { return Numbers{}; }},
  };
  Cases cases;
  for (const Form& f : forms) {
    const Kernel kernel = ir::parse(f.text);
    EXPECT_EQ(ir::form_of(kernel, cuda_facts()), f.form);
    const Kernel tiled = ir::lower(kernel, cuda_facts());
    cases.add(tiled, inputs_of(tiled, f.extents, f.elements, f.strides));
  }
  cases.check();
}

TEST(CudaSource, RandomKernels) {
  Cases cases;
  std::set<std::string> forms;
  const auto add = [&](uint64_t seed, ir::RandomOptions options) {
    const ir::RandomKernel random(seed, options);
    forms.emplace(ir::form_of(random.kernel, cuda_facts()));
    cases.add(ir::lower(random.kernel, cuda_facts()), {random.input()});
  };
  for (uint64_t seed = 0; seed < 40; ++seed) add(seed, {});
  for (uint64_t seed = 1000; seed < 1006; ++seed) add(seed, {.math = true});
  EXPECT_GE(forms.size(), 5u) << testing::PrintToString(forms);
  cases.check();
}

// --- Checks: the first failure, and nothing after it.

TEST(CudaSource, ChecksReportTheFirstFailure) {
  const Kernel kernel = ir::parse(R"(kernel {
  param p0 int32 in
  param p1 float32 in
  param p2 float32 out
  param p3 int64 status
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  axis a4 variable
  strides 1
  value v0 int64
  for chunk (a2) grid 1*ceil(a0/1) entry "first" {
    check lt(a2, 100) site 3 index a2
    for lane (a3) begin 0 end extent(a1) {
      let v0 = cast.int64(load(p0[a2*s0 + a3]))
      check bit_and(le(0, v0), lt(v0, 20)) site 8 index v0
      store p2[a2*s0 + a3] = load(p1[v0])
    }
  }
  for chunk (a4) grid 1*ceil(a0/1) entry "second" {
    check lt(cast.int64(load(p0[a4*s0])), 20) site 5 index a4
    store p2[a4*s0] = load(p1[cast.int64(load(p0[a4*s0]))])
  }
})");
  CudaBatch batch;
  batch.add(kernel);
  ASSERT_TRUE(batch.build());
  for (int bad = -1; bad < 200; bad += 7) {
    KernelInput input = random_input(kernel, {200, 20, 200, 0}, {4, 50}, {50});
    for (int i = 0; i < 200; ++i) {
      int32_t index = (i * 13) % 20;
      if (bad >= 0 && (i == bad || i == bad + 1 || i == bad + 60))
        index = i % 2 == 0 ? -1 - i : 20 + i;
      std::memcpy(&input.bytes[0][static_cast<size_t>(i) * 4], &index, 4);
    }
    const ir::CheckFailure expected =
        bad < 0 ? ir::CheckFailure{} : ir::CheckFailure{8, bad % 2 == 0 ? -1 - bad : 20 + bad};
    for (const CudaLaunch& how : with_device({{}, {64, 1, false, true}, {64, 7, false, true}})) {
      const ir::CheckFailure got = batch.run(0, input, how).failure;
      EXPECT_EQ(got.site, expected.site) << bad;
      EXPECT_EQ(got.index, expected.index) << bad;
    }
  }
}

// Many threads of a warp have failures to report, each that of an item of its own.
TEST(CudaSource, ChecksOfThreadsReportTheFirstFailure) {
  const Kernel kernel = ir::parse(R"(kernel {
  param p0 int32 in
  param p1 int32 out
  param p2 int64 status
  axis a0
  axis a1 variable
  for chunk (a1) grid 1*ceil(a0/1) {
    check lt(load(p0[a1]), int32(100)) site 4 index cast.int64(load(p0[a1]))
    store p1[a1] = load(p0[a1])
  }
})");
  CudaBatch batch;
  batch.add(kernel);
  ASSERT_TRUE(batch.build());
  constexpr int kItems = 3000;
  for (int first : {0, 1, 31, 100, 2999, kItems}) {
    KernelInput input = random_input(kernel, {kItems, kItems, 0}, {kItems});
    for (int i = 0; i < kItems; ++i) {
      const int32_t value = i < first ? i % 100 : 100 + i;
      std::memcpy(&input.bytes[0][static_cast<size_t>(i) * 4], &value, 4);
    }
    for (const CudaLaunch& how : with_device({{}, {64, 1, false, true}, {64, 7, false, true}})) {
      const ir::CheckFailure got = batch.run(0, input, how).failure;
      EXPECT_EQ(got.site, first == kItems ? -1 : 4) << first;
      EXPECT_EQ(got.index, first == kItems ? 0 : 100 + first) << first;
    }
  }
}

}  // namespace
}  // namespace cermet
