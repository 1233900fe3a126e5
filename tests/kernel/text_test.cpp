// SPDX-License-Identifier: MIT
// The text form: print and parse are inverse, on kernels written by hand and on random ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "kernel/builder.h"
#include "kernel/random_faults.h"
#include "kernel/rebuild.h"
#include "kernel/run.h"

namespace cermet::ir {
namespace {

// Every statement and expression before `tile`.
constexpr const char* kStages = R"(kernel "all of \"it\"" {
  param p0 float32 in "x"
  param p1 float32 out
  param p2 int64 scalar "n"
  param p3 int64 status "status"
  param p4 int32 inout
  param p5 bfloat16 in
  param p6 float32 inout
  axis a0 "rows"
  axis a1
  strides 3
  value v0 float32 "x"
  value v1 float32, int64 "arg max"
  value v2 float32
  value v3 float32
  value v4 uint32
  for stage (a0, a1) {
    %0 = load(p0[a0*s0 + a1])
    let v0 = rare(eq(%0, float32(inf)), %0, sqrt(%0))
    fold v1 over (a1) last serial {
      float32 init float32(-inf) step max(state(0, float32), v0) merge max(state(0, float32), other(0, float32))
      int64 init 0 step min(state(1, int64), a1) merge min(state(1, int64), other(1, int64))
    }
    fold v2 over (a1) each serial {
      float32 init float32(-0) step add(state(0, float32), v0) merge add(state(0, float32), other(0, float32))
    }
    contract v3 over (a1) cast.float32(load(p5[a1])) * v0 acc float32 scheme amx_split
    %1 = threefry(uint32(1), uint32(2), cast.uint32(a0), uint32(4294967295))
    let v4 = %1.1
    %2 = lt(a0, extent(a1))
    check %2 site 7 index add(a0, -9223372036854775808)
    store p1[a0*s0 + a1] = add(v1.0, v2) mask %2
    update p4[a0*s2 + v1.1] max select(%2, cast.int32(p2), int32(-5)) mask true
    update p6[a0*s2] mul %0 imag v0 mask %2
    update p6[a0*s2] add %0 imag v0 mask %2 over (a0, a1) elements a1
    store p1[] = load(p0[a1*s1], mask %2, else float32(0x7fc00001))
  }
  for stage () {
    store p1[-1] = float32(1e-05)
  }
}
)";

constexpr const char* kTiled = R"(kernel "tiled" {
  param p0 float32 in "x"
  param p1 float32 out "y"
  axis a0 "n"
  axis a1 variable "item"
  axis a2 variable
  axis a3 variable
  value v0 float32
  value v1 float32
  scratch l0 float32 2*ceil(a0/4096) kernel
  scratch l1 uint32 64 thread
  local l0 float32 2*ceil(a0/4096) kernel
  for chunk (a1) grid 1*ceil(a0/4096)*ceil(a0/2) entry "part" {
    local l1 uint32 64 thread
    %0 = mul(a1, 4096)
    for lane (a2) begin %0 end min(extent(a0), add(%0, 4096)) step 2 {
      fold v0 over (a2) last lanes {
        float32 init float32(-0) step add(state(0, float32), load(p0[a2])) merge add(state(0, float32), other(0, float32))
      }
    }
    for block (a2) begin 0 end 4 {
      for thread (a3) begin 0 end 32 {
        barrier
      }
    }
    store l0[a1] = v0
    micro gemm constants (4, 8, 2, 3, 9, 0) buffers (l0, l0, l0) operands (1, 2, 3, 0, a1, 5, 1, 8, 1)
    micro transpose constants (8, 64, 16, 1) buffers (l1, l1) operands (a1, 8, 0, 0)
  }
  for chunk (a1) entry "merge" {
    merge v1 from (l0) at 0 count extent(a0) stride 1 {
      float32 init float32(-0) step none merge add(state(0, float32), other(0, float32))
    }
    for serial (a2) begin 0 end 1 {
      fetch p1[a2]
      store p1[a2] = v1
    }
  }
}
)";

TEST(Text, HandwrittenKernelsRoundTrip) {
  for (const char* text : {kStages, kTiled}) {
    const Kernel kernel = parse(text);
    verify(kernel);
    EXPECT_EQ(print(kernel), text);
  }
}

TEST(Text, GoldenKernelsRoundTrip) {
  size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(CERMET_TESTS_DIR) + "/kernel/golden")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_EQ(print(parse(text.str())), text.str()) << entry.path();
    count++;
  }
  EXPECT_GT(count, 20u);
}

TEST(Text, RandomKernelsRoundTrip) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const RandomKernel random(seed, {.math = true, .contracts = true});
    ASSERT_EQ(text_fault(random), "");
  }
}

TEST(Text, ParsedKernelsMeanTheSame) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const RandomKernel random(seed);
    ASSERT_EQ(meaning_fault(random, parse(print(random.kernel))), "");
  }
}

TEST(Text, LinearInSharing) {
  // 60 levels, each used twice by the next: 2^60 nodes as a tree.
  Builder b("shared");
  const ParamId out = b.buffer(Dtype::float32, Access::out);
  ExprId e = b.scalar_ref(b.scalar(Dtype::float32));
  for (int i = 0; i < 60; ++i) e = b.add(e, e);
  b.kernel().body.push_back(For{.kind = ForKind::stage, .axes = {}});
  std::get<For>(b.kernel().body[0]).body.push_back(Store{{false, out}, {}, e});
  const Kernel kernel = b.take();
  verify(kernel);
  const std::string text = print(kernel);
  EXPECT_LT(text.size(), 4000u);
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, ConstantsAreExact) {
  Builder b("constants");
  const ParamId out = b.buffer(Dtype::float64, Access::out);
  For stage{.kind = ForKind::stage, .axes = {}};
  std::vector<ExprId> constants;
  for (Dtype d : {Dtype::boolean, Dtype::uint8, Dtype::uint16, Dtype::uint32, Dtype::uint64,
                  Dtype::int8, Dtype::int16, Dtype::int32, Dtype::int64, Dtype::float16,
                  Dtype::bfloat16, Dtype::float32, Dtype::float64})
    for (uint64_t bits : {0ull, 1ull, 0x80ull, 0xffffull, 0x3f800001ull, 0x7f800000ull,
                          0xff800000ull, 0x7fc00123ull, 0x80000000ull, 0x8000000000000000ull,
                          0x7ff0000000000000ull, 0x7ff8000000000777ull, 0x3fb999999999999aull})
      constants.push_back(b.constant_bits(d, d == Dtype::boolean ? bits & 1 : bits));
  for (ExprId c : constants) {
    const ExprId as_float = is_half(b.dtype(c)) ? b.cast(c, Dtype::float32) : c;
    stage.body.push_back(Store{{false, out}, {}, b.cast(as_float, Dtype::float64)});
  }
  b.kernel().body.push_back(stage);
  const Kernel kernel = b.take();
  verify(kernel);
  const Kernel again = parse(print(kernel));
  std::vector<uint64_t> before, after;
  for (const Expr& e : rebuild(kernel).exprs)
    if (e.kind == ExprKind::constant) before.push_back(e.bits);
  for (const Expr& e : rebuild(again).exprs)
    if (e.kind == ExprKind::constant) after.push_back(e.bits);
  EXPECT_EQ(before, after);
}

void expect_refused(const char* text, const std::string& message) {
  try {
    parse(text);
    ADD_FAILURE() << "parsed: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::value);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(Text, ErrorsNameTheLine) {
  expect_refused("", "[ir] line 1: expected 'kernel'");
  expect_refused("kernel {\n  axis a1\n}", "line 2: expected 'a0' at 'a1'");
  expect_refused("kernel {\n\n  param p0 float33 in\n}", "line 3: expected a dtype at 'float33'");
  expect_refused("kernel { for stage () { let v0 = 1 } }", "no such thing as v0");
  expect_refused("kernel { value v0 int64\n for stage () {\n let v0 = foo(1) } }",
                 "line 3: no code 'foo'");
  expect_refused("kernel { value v0 int64\n for stage () { let v0 = add(1) } }", "add takes 2");
  expect_refused("kernel { value v0 int64\n for stage () { let v0 = cast(1) } }",
                 "cast needs a dtype");
  expect_refused("kernel { value v0 int64\n for stage () { let v0 = %3 } }", "%3 before its line");
  expect_refused("kernel { value v0 int8\n for stage () { let v0 = int8(x) } }",
                 "malformed constant");
  expect_refused("kernel { for stage () {", "end of text");
  expect_refused("kernel { } }", "text after the kernel");
  expect_refused("kernel { value v0 int64\n for stage () { let v0 = 99999999999999999999 } }",
                 "expected an integer");
}

TEST(Hash, IgnoresNamesOnly) {
  const Kernel kernel = parse(kStages);
  Kernel renamed = kernel;
  renamed.name = "other";
  renamed.params[0].name = renamed.axes[0].name = renamed.values[0].name = "z";
  EXPECT_EQ(hash_of(kernel), hash_of(renamed));
  EXPECT_EQ(hash_of(kernel).hex().size(), 32u);
  Kernel changed = kernel;
  changed.params[0].access = Access::inout;
  EXPECT_FALSE(hash_of(kernel) == hash_of(changed));
  changed = kernel;
  ++changed.stride_count;
  EXPECT_FALSE(hash_of(kernel) == hash_of(changed));
}

TEST(Hash, DistinctOverRandomKernels) {
  std::vector<std::string> texts, hashes;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Kernel kernel = RandomKernel(seed).kernel;
    texts.push_back(print(kernel, false));
    hashes.push_back(hash_of(kernel).hex());
  }
  for (auto* list : {&texts, &hashes}) {
    std::ranges::sort(*list);
    list->erase(std::ranges::unique(*list).begin(), list->end());
  }
  EXPECT_EQ(texts.size(), hashes.size());
  // Each half must serve on its own, too.
  std::vector<std::string> halves;
  for (const std::string& h : hashes) halves.push_back(h.substr(16));
  std::ranges::sort(halves);
  EXPECT_EQ(std::ranges::adjacent_find(halves), halves.end());
}

// One digit of a kernel's text after the other, and one word, is made another one.
TEST(Hash, SeesWhatTheTextSays) {
  std::vector<std::string> kernels = {kStages, kTiled};
  for (uint64_t seed = 0; seed < 20; ++seed) kernels.push_back(print(RandomKernel(seed).kernel));
  for (const std::string& text : kernels) {
    std::map<std::string, std::string> texts;  // by hash
    const auto see = [&](const Kernel& kernel) {
      const std::string printed = print(kernel, false);
      const auto [it, fresh] = texts.try_emplace(hash_of(kernel).hex(), printed);
      EXPECT_EQ(it->second, printed);
    };
    see(parse(text));
    const auto changes = [&](std::string changed) {
      try {
        see(parse(changed));
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch): no kernel
      }
    };
    for (size_t at = 0; at < text.size(); ++at) {
      if (std::isdigit(static_cast<unsigned char>(text[at])) == 0) continue;
      std::string changed = text;
      changed[at] = static_cast<char>('0' + (text[at] - '0' + 1) % 10);
      changes(std::move(changed));
    }
    for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
             {"last", "each"},
             {"lanes", "serial"},
             {"serial", "lanes"},
             {"add(", "max("},
             {"float32", "float64"},
             {"amx_split", "fma"},
             {" kernel\n", " thread\n"},
             {"chunk", "serial"},
             {"entry \"part\"", "entry \"whole\""},
             {" mask %2", ""},
             {"block", "thread"},
             {"barrier", ""},
             {"inout", "out"},
             {" most ", " most 1"},
             {" variable", ""}})
      for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1))
        changes(std::string(text).replace(at, from.size(), to));
    EXPECT_GT(texts.size(), 20u);
  }
}

TEST(Hash, IsOfWhatIsComputedWhateverItsNumber) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomKernel random(seed);
    EXPECT_EQ(hash_of(random.kernel).hex(), hash_of(parse(print(random.kernel))).hex()) << seed;
  }
}

TEST(Rebuild, NumbersByFirstUseAndDropsTheDead) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomKernel random(seed);
    const Kernel once = rebuild(random.kernel);
    EXPECT_EQ(print(once), print(random.kernel)) << "seed " << seed;
    EXPECT_LE(once.exprs.size(), random.kernel.exprs.size());
    EXPECT_EQ(rebuild(once).exprs, once.exprs);
  }
}

TEST(Rebuild, SubstitutesByRule) {
  const Kernel kernel = parse(kStages);
  const Kernel changed = rebuild(kernel, [](Builder& to, ExprId, Expr e) {
    if (e.kind == ExprKind::op && e.code == Code::sqrt) return to.unary(Code::floor, e.operands[0]);
    return to.intern(std::move(e));
  });
  verify(changed);
  std::string expected = kStages;
  expected.replace(expected.find("sqrt"), 4, "floor");
  EXPECT_EQ(print(changed), expected);
}

}  // namespace
}  // namespace cermet::ir
