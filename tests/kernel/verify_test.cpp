// SPDX-License-Identifier: MIT
// Each rule of the verifier refuses a kernel that breaks it alone, naming rule and statement.
#include <gtest/gtest.h>

#include "kernel/builder.h"
#include "kernel/random_kernel.h"
#include "kernel/run.h"

namespace cermet::ir {
namespace {

void expect_invalid(const Kernel& kernel, const std::string& message, bool lowered = false) {
  try {
    verify(kernel, lowered);
    ADD_FAILURE() << "accepted, expected: " << message << "\n" << print(kernel);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

constexpr const char* kHead = R"(kernel {
  param p0 float32 in
  param p1 float32 out
  param p2 float32 inout
  param p3 int64 scalar
  param p4 float16 in
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  strides 1
  value v0 float32
  value v1 float32, int64
  value v2 int64
  value v3 bool
)";

Kernel with(const std::string& body, const std::string& declarations = "") {
  return parse(kHead + declarations + body + "}\n");
}
Kernel stage(const std::string& body, const std::string& declarations = "") {
  return with("for stage (a0, a1) {\n" + body + "\n}\n", declarations);
}
Kernel chunk(const std::string& body, const std::string& declarations = "") {
  return with("for chunk (a2) grid 4 {\n" + body + "\n}\n", declarations);
}
const std::string kFloat = "load(p0[a0])";
const std::string kSum =
    "float32 init float32(-0) step add(state(0, float32), load(p0[a1])) "
    "merge add(state(0, float32), other(0, float32))";

TEST(Verify, AcceptsTheShapesThatTheOthersBreak) {
  verify(stage("let v0 = " + kFloat + "\nstore p1[a0*s0] = v0"));
  verify(stage("fold v0 over (a1) last lanes {" + kSum + "}\nstore p1[a0] = v0"));
  verify(chunk("for lane (a3) begin 0 end 9 { let v0 = load(p0[a3]) }"));
  for (uint64_t seed = 0; seed < 300; ++seed)
    verify(RandomKernel(seed, {.math = true, .contracts = true}).kernel);
}

TEST(Verify, ExpressionDtypes) {
  const auto refuse = [](const std::string& expr, const char* message, const char* value = "v0") {
    expect_invalid(stage(std::string("let ") + value + " = " + expr), message);
  };
  refuse("add.float32(1, 2)", "operand of dtype int64; it takes float32");
  refuse("add(float32(1), 1)", "operand of dtype int64");
  refuse("add.float16(load(p4[]), load(p4[]))", "arithmetic of half dtype");
  refuse("lt(load(p4[]), load(p4[]))", "arithmetic of half dtype", "v3");
  refuse("select(true, load(p4[]), load(p4[]))", "arithmetic of half dtype");
  refuse("cast.int32(load(p4[]))", "half types cast to and from float32 only");
  refuse("cast.float16(1)", "half types cast to and from float32 only");
  refuse("add(true, true)", "no meaning for dtype bool", "v3");
  refuse("shl(float32(1), float32(2))", "no meaning for dtype float32");
  refuse("bit_not(float32(1))", "no meaning for dtype float32");
  refuse("sqrt(1)", "no meaning for dtype int64", "v2");
  refuse("fma(1, 2, 3)", "no meaning for dtype int64", "v2");
  refuse("lt.float32(1, 2)", "comparisons give bool");
  refuse("lt(1, int32(2))", "operand of dtype int32", "v3");
  refuse("select(1, 2, 3)", "the condition must be bool", "v2");
  refuse("select(true, 2, float32(3))", "both arms need its dtype", "v2");
  refuse("rare(1, 2, 3)", "the predicate must be bool", "v2");
  refuse("rare(true, 2, float32(3))", "both arms need rare's dtype", "v2");
  refuse("bitcast.int32(1)", "bitcast between different widths", "v2");
  refuse("bitcast.bool(uint8(1))", "bitcast to bool", "v3");
  refuse("exp(1)", "math codes are float32 or float64", "v2");
  refuse("threefry(1, 2, 3, 4).0", "threefry is uint32", "v2");
  refuse("cast.int64(threefry(uint32(1), uint32(2), uint32(3), uint32(4)))", "needs get", "v2");
  refuse("neg(1).0", "get of an expression with one result", "v2");
  refuse("load(p1[])", "p1 is `out`; this needs `in`");
  refuse("load(p3[])", "p3 is no buffer", "v2");
  refuse("load(p0[float32(1)])", "an index term must be int64");
  refuse("load(p0[], mask 1)", "the mask must be bool");
  refuse("load(p0[], else float32(1))", "an else without a mask");
  refuse("load(p0[], mask true, else 1)", "dtype of else differs");
  refuse("p0", "p0 is no scalar");
  refuse("extent(a2)", "a2 has no extent", "v2");
}

TEST(Verify, MalformedExpressions) {
  const Kernel good = stage("let v2 = add(p3, 1)");
  const auto broken = [&](auto&& change, const char* message) {
    Kernel kernel = good;
    change(kernel.exprs);
    expect_invalid(kernel, message);
  };
  using Exprs = std::vector<Expr>&;
  broken([](Exprs e) { e[2].operands[0] = 2; }, "operands must come before their users");
  broken([](Exprs e) { e[2].operands[0] = -7; }, "operands must come before their users");
  broken([](Exprs e) { e[2].operands.pop_back(); }, "1 operands; it takes 2");
  broken([](Exprs e) { e[2].dtype = Dtype::complex64; }, "complex dtype");
  broken([](Exprs e) { e[2].code = static_cast<Code>(200); }, "an unknown code");
  broken([](Exprs e) { e[0].id = 99; }, "no such parameter");
  broken([](Exprs e) { e[0].dtype = Dtype::int8; }, "dtype differs from that of p3");
  broken([](Exprs e) { e[1].dtype = Dtype::int8, e[1].bits = 300; }, "bits beyond the width");
  broken([](Exprs e) { e[1].dtype = Dtype::boolean, e[1].bits = 2; }, "other than 0 and 1");
  broken([](Exprs e) { e[0] = {.kind = ExprKind::axis, .dtype = Dtype::int64, .id = 50}; },
         "no such axis");
  broken([](Exprs e) { e[0] = {.kind = ExprKind::axis, .dtype = Dtype::int32, .id = 0}; },
         "axes and extents are int64");
  broken([](Exprs e) { e[0] = {.kind = ExprKind::ref, .dtype = Dtype::int64, .id = 9}; },
         "no such value");
  broken([](Exprs e) { e[0] = {.kind = ExprKind::ref, .dtype = Dtype::int64, .id = 0}; },
         "dtype differs from v0");
  broken([](Exprs e) { e[0] = {.kind = ExprKind::state, .dtype = Dtype::int64, .id = -1}; },
         "a negative state number");
  broken([](Exprs e) { e[0] = {.kind = ExprKind::load, .dtype = Dtype::float32}; },
         "load takes mask and else");
  broken(
      [](Exprs e) {
        e[0] = {.kind = ExprKind::load,
                .dtype = Dtype::float32,
                .operands = {kNone, kNone},
                .index = {{-1, kUnit}}};
      },
      "no such index expression");
  broken(
      [](Exprs e) {
        e[1] = {.kind = ExprKind::load,
                .dtype = Dtype::float32,
                .operands = {kNone, kNone},
                .index = {{0, 5}}};
      },
      "no such stride");
  Kernel kernel = good;
  std::get<Let>(std::get<For>(kernel.body[0]).body[0]).expr = 77;
  expect_invalid(kernel, "no such expression");
}

TEST(Verify, Declarations) {
  const auto broken = [&](auto&& change, const char* message) {
    Kernel kernel = stage("let v2 = 1");
    change(kernel);
    expect_invalid(kernel, message);
  };
  broken([](Kernel& k) { k.params[0].dtype = Dtype::complex64; }, "a complex parameter");
  broken([](Kernel& k) { k.params[0] = k.params[1] = {ParamKind::status, Dtype::int64, {}, ""}; },
         "more than one status");
  broken([](Kernel& k) { k.params[0].kind = ParamKind::status; }, "a status must be int64");
  broken([](Kernel& k) { k.values[0].dtypes.clear(); }, "a value without dtype");
  broken([](Kernel& k) { k.values[0].dtypes[0] = Dtype::complex128; }, "a complex value");
  broken([](Kernel& k) { k.stride_count = -1; }, "a negative stride count");
  broken([](Kernel& k) { k.locals.push_back({3, Dtype::float32, {}, LocalScope::thread}); },
         "a local with another's number");
  broken([](Kernel& k) { k.locals.push_back({0, Dtype::complex64, {}, LocalScope::thread}); },
         "a complex local");
  broken([](Kernel& k) { k.locals.push_back({0, Dtype::int8, {-1, {}}, LocalScope::thread}); },
         "a negative size");
  broken([](Kernel& k) { k.locals.push_back({0, Dtype::int8, {1, {{2, 1}}}, LocalScope::thread}); },
         "a size needs an axis with extent");
  broken([](Kernel& k) { k.locals.push_back({0, Dtype::int8, {1, {{0, 0}}}, LocalScope::thread}); },
         "a size's tile must be positive");
}

TEST(Verify, Values) {
  const std::string let = "let v0 = " + kFloat;
  expect_invalid(stage("store p1[] = v0"), "a value used before it is defined");
  expect_invalid(stage(let + "\n" + let), "a value with two writers");
  expect_invalid(stage("let v0 = 1"), "dtypes differ from the value's");
  expect_invalid(stage("let v0 = v1"), "needs get");
}

TEST(Verify, ValuesWhereTheyLive) {
  const std::string let = "let v0 = " + kFloat;
  // Over both axes, read over one.
  expect_invalid(with("for stage (a0, a1) {" + let + "}\nfor stage (a0) { store p1[a0] = v0 }"),
                 "a value used where it does not live");
  verify(with("for stage (a0) {" + let + "}\nfor stage (a1, a0) { store p1[a0] = v0 }"));
  // A scan lives over all axes, a fold does not.
  const std::string fold = "for stage (a0, a1) { fold v0 over (a1) ";
  const std::string read = "}} for stage (a0) { store p1[a0] = v0 }";
  verify(with(fold + "last serial {" + kSum + read));
  expect_invalid(with(fold + "each serial {" + kSum + read), "a value used where it does not live");
  expect_invalid(stage("store p1[] = cast.float32(a2)"), "an axis out of sight");
  expect_invalid(with("for stage (a0) { store p1[a1] = float32(0) }"), "an axis out of sight");
}

TEST(Verify, Stages) {
  expect_invalid(with("for stage (a0, a0) { }"), "an axis inside itself");
  expect_invalid(with("for stage (a2) { }"), "stages run over axes with extent");
  expect_invalid(stage("for serial (a2) begin 0 end 1 { }"), "a loop inside a stage");
  expect_invalid(stage("barrier"), "a barrier before `tile`");
  expect_invalid(stage("micro gemm constants () buffers () operands ()"), "a micro before `tile`");
  const std::string scratch = "scratch l0 float32 1 thread\n";
  Kernel kernel = stage("let v0 = load(l0[])", scratch);
  kernel.body.emplace_back(For{.kind = ForKind::stage, .axes = {}});
  expect_invalid(kernel, "a tiled kernel holds locals and chunk loops");
  kernel = stage("");
  std::get<For>(kernel.body[0]).step = 2;
  expect_invalid(kernel, "a stage has axes only");
}

TEST(Verify, Folds) {
  const auto fold = [](const std::string& how, const std::string& states) {
    return stage("fold v0 over " + how + " {" + states + "}");
  };
  expect_invalid(fold("() last lanes", kSum), "no axes to fold");
  expect_invalid(fold("(a1, a1) last lanes", kSum), "an axis folded twice");
  expect_invalid(fold("(a2) last lanes", kSum), "a folded axis out of sight");
  expect_invalid(fold("(a1) each lanes", kSum), "a scan has serial order");
  expect_invalid(fold("(a1) last lanes", ""), "a fold without states");
  const auto state = [&](const std::string& init, const std::string& step, const std::string& merge,
                         const char* message, const std::string& dtype = "float32") {
    expect_invalid(
        fold("(a1) last lanes", dtype + " init " + init + " step " + step + " merge " + merge),
        message);
  };
  const std::string s = "state(0, float32)", o = "other(0, float32)", zero = "float32(0)";
  state("1", s, s, "init has dtype int64; it must be float32");
  state(zero, "1", s, "step has dtype int64; it must be float32");
  state(zero, s, "1", "merge has dtype int64; it must be float32");
  state("load(p4[])", "load(p4[])", "load(p4[])", "a state of half or complex dtype", "float16");
  state(s, s, s, "state or other outside a fold");
  state(zero, o, s, "other outside merge");
  state(zero, "state(1, float32)", s, "no such state");
  state(zero, "cast.float32(state(0, int64))", s, "dtype differs from that of the state");
  state("cast.float32(a1)", s, s, "init and merge of a fold may not use a folded axis");
  state(zero, s, "load(p0[a1])", "init and merge of a fold may not use a folded axis");
  expect_invalid(stage("let v0 = " + s), "state or other outside a fold");
  expect_invalid(
      stage("let v0 = " + kFloat + "\nfold v1 over (a1) last lanes { float32 init v0 step " + s +
            " merge " + s + " int64 init 0 step 0 merge 0 }"),
      "init and merge of a fold may not use a value over a folded axis");
  expect_invalid(stage("fold v1 over (a1) last lanes {" + kSum + "}"),
                 "dtypes differ from the value's");
}

TEST(Verify, Contracts) {
  const auto contract = [](const char* text, const char* message) {
    expect_invalid(stage(std::string("contract v0 over ") + text), message);
  };
  contract("() float32(1) * float32(1) acc float32 scheme fma", "no axes to fold");
  contract("(a1) float32(1) * float32(1) acc float64 scheme fma", "dtypes differ");
  contract("(a1) float32(1) * float32(1) acc float16 scheme fma", "a contract accumulates in");
  contract("(a1) v0 * float32(1) acc float32 scheme fma", "a value used before it is defined");
}

TEST(Verify, MemoryStatements) {
  expect_invalid(stage("store p0[] = float32(1)"), "p0 is `in`; this needs `out`");
  expect_invalid(stage("store p3[] = 1"), "p3 is no buffer");
  expect_invalid(stage("store p1[] = 1"), "dtype differs from that of p1");
  expect_invalid(stage("store p1[float32(1)] = float32(1)"), "an index term must be int64");
  expect_invalid(stage("store p1[] = float32(1) mask 1"), "the mask has dtype int64");
  expect_invalid(stage("update p1[] add float32(1)"), "p1 is `out`; this needs `inout`");
  expect_invalid(stage("update p2[] sqrt float32(1)"), "an update needs a binary core code");
  expect_invalid(stage("update p2[] pow float32(1)"), "an update needs a binary core code");
  expect_invalid(stage("update p2[] lt float32(1)"), "an update by a comparison");
  expect_invalid(stage("update p2[] mul float32(1) imag 1"), "complex parts of unlike dtypes");
  expect_invalid(stage("update p2[] sub float32(1) imag float32(1)"),
                 "a complex update other than add, mul, min and max");
  const auto parts = [](const char* text, const char* message) {
    expect_invalid(stage(std::string("update p2[] ") + text), message);
  };
  parts("add float32(1) over (a2) elements a0", "a folded axis out of sight");
  parts("add float32(1) over (a0) elements a2", "needs an axis for the number of elements");
  parts("sub float32(1) over (a0) elements a1", "by a code without a neutral element");
  parts("mul float32(1) imag float32(1) over (a0) elements a1",
        "by a code without a neutral element");
  expect_invalid(chunk("update p2[] add float32(1) over (a2) elements a0"),
                 "an update in parts after `tile`");
  expect_invalid(with("for chunk (a2) grid 4 { for serial (a3, a0) begin 0 end 1 { } }"),
                 "a loop has one variable, a chunk of spans two");
  expect_invalid(stage("check true site 0 index 1"), "a check without a status parameter");
  const std::string status = "param p5 int64 status\n";
  expect_invalid(stage("check 1 site 0 index 1", status), "the condition has dtype int64");
  expect_invalid(stage("check true site 0 index true", status), "the index has dtype bool");
  expect_invalid(stage("check true site -1 index 0", status), "a negative site");
}

TEST(Verify, Loops) {
  expect_invalid(chunk("for stage (a0) { }"), "a loop inside a stage");
  expect_invalid(with("for serial (a2) begin 0 end 1 { }"),
                 "a tiled kernel holds locals and chunk");
  expect_invalid(chunk("for chunk (a3) grid 1 { }"), "chunk loops, and only these, are outermost");
  expect_invalid(chunk("for serial (a2) begin 0 end 1 { }"), "an axis inside itself");
  expect_invalid(chunk("for serial (a0) begin 0 end 1 { }"), "loops over variables");
  expect_invalid(chunk("for serial (a3) begin 0 { }"), "no such expression");
  expect_invalid(chunk("for serial (a3) begin 0 end true { }"), "end has dtype bool");
  expect_invalid(chunk("for serial (a3) begin 0 end 1 step 0 { }"), "step must be positive");
  expect_invalid(with("for chunk (a2) grid 4 turn 2 { }"), "turns of spans");
  expect_invalid(with("for chunk (a2, a3) grid 5 turn 2 { }"), "turns of spans");
  expect_invalid(with("for chunk (a2) grid 4 least 2 { }"), "a least number of spans");
  expect_invalid(with("for chunk (a2, a3) grid 4 least 0 { }"), "a least number of spans");
  expect_invalid(chunk("for serial (a3) begin 0 end 1 least 2 { }"),
                 "a grid or an entry on an inner");
  expect_invalid(chunk("for serial (a3) begin 0 end 1 grid 4 { }"),
                 "a grid or an entry on an inner");
  expect_invalid(chunk("for serial () begin 0 end 1 { }"), "a loop has one variable");
  expect_invalid(with("for chunk (a2) begin 0 end 1 { }"), "a chunk loop has a grid only");
  expect_invalid(with("for chunk (a2) { }\nfor chunk (a2) { }"), "two chunk loops of one name");
  expect_invalid(chunk("store p1[a3] = float32(1)"), "an axis out of sight");
}

TEST(Verify, TiledValues) {
  const std::string lane = "for lane (a3) begin 0 end 9 {";
  const std::string sum =
      "float32 init float32(-0) step add(state(0, float32), load(p0[a3])) "
      "merge add(state(0, float32), other(0, float32))";
  const std::string fold = "fold v0 over (a3) last lanes {" + sum + "}";
  verify(chunk(lane + fold + "}\nstore p1[] = v0"));
  expect_invalid(chunk(lane + fold + "\nstore p1[] = v0 }"), "a value used where it does not live");
  expect_invalid(chunk(lane + "let v0 = load(p0[a3]) }\nstore p1[] = v0"),
                 "a value used where it does not live");
  expect_invalid(chunk(lane + "fold v0 over (a3) last serial {" + sum + "} }"),
                 "a fold in a lane loop has lanes order");
  const std::string serial = "for serial (a3) begin 0 end 9 {";
  expect_invalid(chunk(serial + fold + "}"), "a fold in a lane loop has lanes order");
  verify(chunk(serial + "fold v0 over (a3) each serial {" + sum + "}\nstore p1[a3] = v0 }"));
  expect_invalid(chunk(lane + "fold v0 over (a2) last lanes {" + sum + "} }"),
                 "a fold is over the loop that it stands in");
  expect_invalid(chunk("fold v0 over (a2) last lanes {" + kSum + "}"),
                 "a fold stands in a lane, serial or thread loop");
  expect_invalid(
      chunk(lane + "let v0 = load(p0[a3])\nfold v1 over (a3) last lanes { float32 init v0 "
                   "step v0 merge v0 int64 init 0 step 0 merge 0 } }"),
      "may not use a value of the folded loop");
  expect_invalid(with("for chunk (a2) entry \"a\" { let v0 = float32(1) }\n"
                      "for chunk (a2) entry \"b\" { store p1[] = v0 }"),
                 "a value used where it does not live");
  expect_invalid(chunk("contract v0 over (a2) float32(1) * float32(1) acc float32 scheme fma"),
                 "a contract after `tile`");
}

TEST(Verify, TiledStatements) {
  const std::string scratch = "scratch l0 float32 4 kernel\nscratch l1 float32 4 thread\n";
  const std::string states =
      "{ float32 init float32(0) step none merge add(state(0, float32), other(0, float32)) }";
  verify(chunk("merge v0 from (l0) at 0 count 1 stride 1" + states, scratch));
  expect_invalid(chunk("merge v0 from () at 0 count 1 stride 1" + states, scratch),
                 "one local for each");
  expect_invalid(chunk("merge v0 from (l0) at true count 1 stride 1" + states, scratch),
                 "at has dtype bool");
  expect_invalid(chunk("merge v0 from (l0) at 0 count true stride 1" + states, scratch),
                 "count has dtype bool");
  expect_invalid(chunk("merge v0 from (l0) at 0 count 1 stride true" + states, scratch),
                 "stride has dtype bool");
  expect_invalid(
      chunk("merge v0 from (l0) at 0 count 1 stride 1" + states, "scratch l0 float64 4 kernel\n"),
      "dtype differs from that of the local");
  expect_invalid(chunk("local l0 float32 4 kernel", scratch), "a kernel's local inside a loop");
  expect_invalid(chunk("local l1 float32 5 thread", scratch), "a local unlike its declaration");
  expect_invalid(chunk("store l0[] = 1", scratch), "dtype differs from that of the local");
  expect_invalid(chunk("for serial (a3) begin 0 end 1 { barrier }"), "directly in a thread loop");
  verify(chunk("for thread (a3) begin 0 end 1 { barrier }"));
}

TEST(Verify, Fetches) {
  verify(chunk("fetch p1[extent(a0)]"));
  expect_invalid(stage("fetch p1[a0]"), "a fetch before `tile`");
  expect_invalid(chunk("fetch p3[]"), "a fetch on no buffer");
  expect_invalid(chunk("fetch p0[extent(a0)]"), "p0 is `in`; this needs `out`");
  expect_invalid(chunk("fetch p1[float32(1)]"), "an index term must be int64");
}

TEST(Verify, Micros) {
  const std::string scratch =
      "scratch l0 float32 64 thread\nscratch l1 float64 64 thread\nscratch l2 float16 64 thread\n";
  const auto micro = [&](const std::string& text) { return chunk("micro " + text, scratch); };
  const std::string from = "transpose constants (8, 8, 8, 1) buffers ";
  verify(micro(from + "(l0, l0) operands (8, 8, 0, 0)"));
  const std::string count = "another number of constants, buffers or operands";
  expect_invalid(micro(from + "(l0) operands (8, 8, 0, 0)"), count);
  expect_invalid(micro(from + "(l0, l0) operands (8, 8, 0)"), count);
  expect_invalid(micro("transpose constants (8) buffers (l0, l0) operands (8, 8, 0, 0)"), count);
  expect_invalid(micro("transpose constants (8, 0, 8, 1) buffers (l0, l0) operands (8, 8, 0, 0)"),
                 "sizes and strides, at least 1");
  expect_invalid(micro(from + "(l0, p0) operands (8, 8, 0, 0)"), "a micro works on locals");
  expect_invalid(micro(from + "(l0, p3) operands (8, 8, 0, 0)"), "a micro on no buffer");
  expect_invalid(micro(from + "(l0, l1) operands (8, 8, 0, 0)"), "locals are of one dtype");
  verify(micro(from + "(l2, l2) operands (8, 8, 0, 0)"));
  expect_invalid(micro("transpose constants (8, 8, 8, 2) buffers (l0, l0) operands (8, 8, 0, 0)"),
                 "a group of so many elements");
  expect_invalid(micro("pack constants (8, 8) buffers (l2, l2) operands (8, 8, 0, 0, 8)"),
                 "elements of 4 or 8 bytes");
  expect_invalid(micro(from + "(l0, l0) operands (8, 8, 0, true)"), "operands are int64");
  expect_invalid(micro(from + "(l0, l0) operands (8, 8, 0, a3)"), "an axis out of sight");
  verify(micro("pack constants (8, 8) buffers (l0, p0) operands (8, 8, 0, 0, extent(a0))"));
  expect_invalid(micro("pack constants (8, 8) buffers (p0, l0) operands (8, 8, 0, 0, 8)"),
                 "a micro works on locals");
  const std::string turn = " operands (16, 16, 0, 0, 16, extent(a0), 0)";
  verify(micro("turn constants () buffers (l0, p0)" + turn));
  expect_invalid(micro("turn constants () buffers (p1, l0)" + turn), "comes from a buffer `in`");
  expect_invalid(micro("turn constants () buffers (p0, p0)" + turn),
                 "to a local or a buffer `out`");
  expect_invalid(micro("turn constants () buffers (l1, p0)" + turn), "keeps its dtype");
  const std::string gemm = "gemm constants (6, 8, 1, 8, 8, 0) buffers ";
  const std::string counts = " operands (8, 8, 1, 0, 0, 0, ";
  verify(micro(gemm + "(l0, l0, l0)" + counts + "8, 8, 0)"));
  verify(micro(gemm + "(l0, p0, l0)" + counts + "extent(a0), 8, 0)"));
  verify(micro(gemm + "(l0, p0, p0)" + counts + "extent(a0), extent(a1), 0)"));
  expect_invalid(micro(gemm + "(l0, l0, l0)" + counts + "extent(a0), 8, 0)"), "constant distance");
  for (const char* row : {"extent(a0)", "9"})
    expect_invalid(micro(gemm + "(l0, l0, l0)" + counts + "8, " + row + ", 0)"),
                   "follow each other");
  expect_invalid(micro(gemm + "(l0, l0, p1)" + counts + "8, 8, 0)"), "reads a buffer `in`");
  expect_invalid(micro(gemm + "(l1, p0, l1)" + counts + "8, 8, 0)"), "locals are of one dtype");
  expect_invalid(
      micro("gemm constants (6, 8, 1, 8, 8, 1) buffers (l0, l0, l0)" + counts + "8, 8, 0)"),
      "any other is 0");
}

TEST(Verify, MicrosOfIntegers) {
  const std::string scratch =
      "scratch l0 int32 64 thread\nscratch l1 int8 64 thread\nscratch l2 uint8 64 thread\n"
      "scratch l3 int16 64 thread\nscratch l4 float32 64 thread\n";
  const auto micro = [&](const std::string& text) { return chunk("micro " + text, scratch); };
  const auto gemm = [&](int zero, const std::string& buffers) {
    const std::string b_row = buffers.ends_with("l3)") ? "16" : "32";
    return micro("gemm constants (6, 8, 4, 8, 8, " + std::to_string(zero) + ") buffers " + buffers +
                 " operands (8, 8, 1, 0, 0, 0, 8, " + b_row + ", 0)");
  };
  verify(gemm(128, "(l0, l2, l1)"));
  verify(gemm(0, "(l0, l2, l1)"));
  verify(gemm(0, "(l0, l3, l3)"));
  expect_invalid(gemm(256, "(l0, l2, l1)"), "one of its values");
  expect_invalid(gemm(1, "(l0, l3, l3)"), "any other is 0");
  verify(gemm(0, "(l0, l1, l2)"));
  expect_invalid(gemm(1, "(l0, l1, l2)"), "any other is 0");
  expect_invalid(gemm(0, "(l0, l1, l1)"), "of the other sign");
  expect_invalid(gemm(0, "(l0, l2, l2)"), "of the other sign");
  expect_invalid(gemm(0, "(l4, l2, l1)"), "locals are of one dtype");
  const auto tiles = [&](int parts, const std::string& buffers, const char* a_next = "0") {
    return micro("tile_gemm constants (" + std::to_string(parts) +
                 ", 64, 64, 64, 64, 64) buffers " + buffers +
                 " operands (8, 8, 1, 0, 0, 0, 0, 8, 0, " + a_next + ")");
  };
  for (const char* operands : {"l1, l1)", "l1, l2)", "l2, l1)", "l2, l2)"})
    verify(tiles(1, std::string("(l0, ") + operands));
  expect_invalid(tiles(2, "(l0, l1, l1)"), "more parts");
  expect_invalid(tiles(1, "(l0, l1, l1)", "8"), "next rows of a parameter alone");
  expect_invalid(tiles(1, "(l4, l1, l1)"), "bytes to integers of 4 bytes");
  expect_invalid(tiles(1, "(l0, l3, l3)"), "bytes to integers of 4 bytes");
  expect_invalid(tiles(1, "(l0, l3, l1)"), "locals are of one dtype");
}

TEST(Verify, LoweredKernelsHoldCoreCodesOnly) {
  const Kernel kernel = stage("let v0 = exp(" + kFloat + ")");
  verify(kernel);
  expect_invalid(kernel, "a math code after lowering", true);
}

TEST(Verify, MessageNamesStatementAndPrintsKernel) {
  expect_invalid(stage("store p1[a0*s0] = v0"), "in: store p1[a0*s0] = v0");
  expect_invalid(stage("store p1[a0*s0] = v0"), "param p4 float16 in");
}

}  // namespace
}  // namespace cermet::ir
