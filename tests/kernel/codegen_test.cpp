// SPDX-License-Identifier: MIT
// Compiled kernels give the interpreter's bits, at every level of the host, and touch nothing outside
// their buffers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernel/compiled.h"
#include "kernel/random_input.h"
#include "kernel/run.h"

namespace cermet {
namespace {

using ir::Kernel;

constexpr int64_t kSizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 1000};

// y[i] = expression of the inputs at i. `value` is the expression's text; p0 .. are the inputs, the
// last parameter is the output.
Kernel map_kernel(const std::vector<Dtype>& inputs, Dtype output, const std::string& value) {
  std::string text = "kernel {\n";
  for (size_t i = 0; i < inputs.size(); ++i)
    text += fmt::format("  param p{} {} in\n", i, name_of(inputs[i]));
  text += fmt::format("  param p{} {} out\n", inputs.size(), name_of(output));
  text += R"(  axis a0
  axis a1 variable
  axis a2 variable
  for chunk (a1) grid 1*ceil(a0/4096) {
    %0 = mul(a1, 4096)
    for lane (a2) begin %0 end min(extent(a0), add(%0, 4096)) {
)";
  text += fmt::format("      store p{}[a2] = {}\n    }}\n  }}\n}}\n", inputs.size(), value);
  return ir::parse(text);
}

void check_map(const std::vector<Dtype>& inputs, Dtype output, const std::string& value) {
  SCOPED_TRACE(value);
  const Kernel kernel = map_kernel(inputs, output, value);
  std::vector<KernelInput> sizes;
  for (int64_t n : kSizes)
    sizes.push_back(random_input(kernel, std::vector<int64_t>(inputs.size() + 1, n), {n}, {},
                                 static_cast<unsigned>(n) + 1));
  expect_as_interpreted(kernel, sizes);
}

const std::vector<Dtype> kIntegers = {Dtype::uint8, Dtype::uint16, Dtype::uint32, Dtype::uint64,
                                      Dtype::int8,  Dtype::int16,  Dtype::int32,  Dtype::int64};
const std::vector<Dtype> kNumbers = {Dtype::uint8,   Dtype::uint16, Dtype::uint32, Dtype::uint64,
                                     Dtype::int8,    Dtype::int16,  Dtype::int32,  Dtype::int64,
                                     Dtype::float32, Dtype::float64};
const std::vector<Dtype> kFloats = {Dtype::float32, Dtype::float64};

TEST(Codegen, ArithmeticOfAllTypes) {
  for (Dtype d : kNumbers)
    for (const char* code : {"add", "sub", "mul", "div", "rem", "min", "max"})
      check_map({d, d}, d, fmt::format("{}(load(p0[a2]), load(p1[a2]))", code));
}

TEST(Codegen, UnaryCodes) {
  for (Dtype d : kNumbers)
    for (const char* code : {"neg", "abs"})
      check_map({d}, d, fmt::format("{}(load(p0[a2]))", code));
  for (Dtype d : kFloats)
    for (const char* code : {"sqrt", "floor", "ceil", "trunc", "rint"})
      check_map({d}, d, fmt::format("{}(load(p0[a2]))", code));
}

TEST(Codegen, BitsAndShifts) {
  for (Dtype d : kIntegers) {
    for (const char* code : {"bit_and", "bit_or", "bit_xor", "shl", "shr", "rotl"})
      check_map({d, d}, d, fmt::format("{}(load(p0[a2]), load(p1[a2]))", code));
    check_map({d}, d, "bit_not(load(p0[a2]))");
  }
  const Dtype b = Dtype::boolean;
  for (const char* code : {"bit_and", "bit_or", "bit_xor", "eq", "ne", "lt", "le"})
    check_map({b, b}, b, fmt::format("{}(load(p0[a2]), load(p1[a2]))", code));
  check_map({b}, b, "bit_not(load(p0[a2]))");
}

TEST(Codegen, ComparisonsAndSelect) {
  for (Dtype d : kNumbers) {
    for (const char* code : {"eq", "ne", "lt", "le"}) {
      check_map({d, d}, Dtype::boolean, fmt::format("{}(load(p0[a2]), load(p1[a2]))", code));
      check_map(
          {d, d, d}, d,
          fmt::format("select({}(load(p0[a2]), load(p1[a2])), load(p2[a2]), load(p0[a2]))", code));
    }
  }
}

TEST(Codegen, FusedMultiplyAddAndScaling) {
  for (Dtype d : kFloats) {
    check_map({d, d, d}, d, "fma(load(p0[a2]), load(p1[a2]), load(p2[a2]))");
    // Exponents of either sign, far beyond the range of results.
    const int limit = d == Dtype::float32 ? 252 : 2044;
    const std::string_view name = name_of(d);
    const std::string exponent =
        fmt::format("rint(max(min(mul(load(p1[a2]), {0}(29)), {0}({1})), {0}(-{1})))", name, limit);
    const std::string safe = fmt::format("select(eq({0}, {0}), {0}, {1}(3))", exponent, name);
    check_map({d, d}, d, fmt::format("scale2(load(p0[a2]), {})", safe));
    // Of a fraction and the whole number below it, by instructions that take both from their sum.
    const std::string sum = fmt::format("max(min(load(p0[a2]), {0}({1})), {0}(-{1}))", name, limit);
    const std::string number = fmt::format("select(eq({0}, {0}), {0}, {1}(3))", sum, name);
    const std::string positive = fmt::format("abs({})", number);
    check_map({d}, d, fmt::format("add(fract({}), {}(1))", positive, name));
    check_map({d}, d, fmt::format("scale2(load(p0[a2]), floor({}))", number));
  }
}

TEST(Codegen, MinMaxWithConstants) {
  for (Dtype d : kFloats)
    for (const char* code : {"min", "max"})
      for (const char* constant : {"0", "-0", "1", "-3.5", "inf"})
        check_map({d}, d, fmt::format("{}(load(p0[a2]), {}({}))", code, name_of(d), constant));
}

TEST(Codegen, DivisionByConstants) {
  for (Dtype d : kIntegers)
    for (int constant : {0, 1, 3, 10, -1, -7}) {
      if (constant < 0 && !is_signed(d)) continue;
      for (const char* code : {"div", "rem"})
        check_map({d}, d, fmt::format("{}(load(p0[a2]), {}({}))", code, name_of(d), constant));
    }
}

// Zeros of either sign, infinities and subnormals are among the random inputs.
TEST(Codegen, DivisionOfFloatsByConstants) {
  for (Dtype d : kFloats)
    for (const char* constant : {"3", "1.4142135", "0.1", "7e8", "1.0000001", "1.9999999", "2e-10",
                                 "0.25", "-3", "1e30", "1e-30"})
      check_map({d}, d, fmt::format("div(load(p0[a2]), {}({}))", name_of(d), constant));
}

TEST(Codegen, CastsBetweenAllTypes) {
  std::vector<Dtype> all = kNumbers;
  all.push_back(Dtype::boolean);
  for (Dtype from : all)
    for (Dtype to : all) check_map({from}, to, fmt::format("cast.{}(load(p0[a2]))", name_of(to)));
  for (Dtype half : {Dtype::float16, Dtype::bfloat16}) {
    check_map({half}, Dtype::float32, "cast.float32(load(p0[a2]))");
    check_map({Dtype::float32}, half, fmt::format("cast.{}(load(p0[a2]))", name_of(half)));
    check_map({half}, half, "load(p0[a2])");
    check_map({half, half}, half,
              fmt::format("cast.{}(add(cast.float32(load(p0[a2])), cast.float32(load(p1[a2]))))",
                          name_of(half)));
  }
}

TEST(Codegen, BitcastsKeepBits) {
  check_map({Dtype::float32}, Dtype::uint32, "bitcast.uint32(load(p0[a2]))");
  check_map({Dtype::int64}, Dtype::float64, "bitcast.float64(load(p0[a2]))");
  check_map({Dtype::bfloat16}, Dtype::int16, "bitcast.int16(load(p0[a2]))");
  check_map({Dtype::boolean}, Dtype::uint8, "bitcast.uint8(load(p0[a2]))");
}

// Each of them, and the floats that end, halve and begin the way to the next.
TEST(Codegen, EveryBfloat16) {
  constexpr uint32_t kOnTheWay[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  const Kernel narrow =
      map_kernel({Dtype::float32}, Dtype::bfloat16, "cast.bfloat16(load(p0[a2]))");
  KernelInput floats = random_input(narrow, {65536 * 6, 65536 * 6}, {65536 * 6});
  size_t at = 0;
  for (uint32_t i = 0; i < 65536; ++i)
    for (uint32_t more : kOnTheWay) {
      const uint32_t bits = (i << 16) + more;
      std::memcpy(&floats.bytes[0][4 * at++], &bits, 4);
    }
  expect_as_interpreted(narrow, {floats});
}

TEST(Codegen, EveryFloat16) {
  const Kernel widen = map_kernel({Dtype::float16}, Dtype::float32, "cast.float32(load(p0[a2]))");
  KernelInput input = random_input(widen, {65536, 65536}, {65536});
  for (int i = 0; i < 65536; ++i) std::memcpy(&input.bytes[0][static_cast<size_t>(2 * i)], &i, 2);
  expect_as_interpreted(widen, {input});
  // And the floats around each of them and around the midpoints between them.
  const Kernel narrow = map_kernel({Dtype::float32}, Dtype::float16, "cast.float16(load(p0[a2]))");
  KernelInput floats = random_input(narrow, {65536 * 6, 65536 * 6}, {65536 * 6});
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint32_t bits =
        static_cast<uint32_t>(ir::from_double(Dtype::float32, ir::to_double(Dtype::float16, i)));
    for (uint32_t k = 0; k < 6; ++k) {
      const uint32_t near = bits + (k < 3 ? k - 1 : 0x1000 + k - 4);
      std::memcpy(&floats.bytes[0][(i * 6 + k) * 4], &near, 4);
    }
  }
  expect_as_interpreted(narrow, {floats});
}

TEST(Codegen, RareIsASelect) {
  // True in about half of the lanes, in none, in all.
  for (const char* pred :
       {"lt(load(p0[a2]), load(p1[a2]))", "ne(load(p0[a2]), load(p0[a2]))", "false", "true"})
    check_map(
        {Dtype::float32, Dtype::float32}, Dtype::float32,
        fmt::format("rare({}, add(load(p0[a2]), float32(1)), rare(lt(load(p0[a2]), float32(0)), "
                    "load(p1[a2]), mul(load(p1[a2]), load(p0[a2]))))",
                    pred));
}

TEST(Codegen, MixedWidths) {
  check_map({Dtype::uint8, Dtype::float64}, Dtype::float32,
            "cast.float32(add(cast.float64(load(p0[a2])), load(p1[a2])))");
  check_map({Dtype::bfloat16, Dtype::float32, Dtype::int64}, Dtype::float64,
            "add(cast.float64(mul(cast.float32(load(p0[a2])), load(p1[a2]))), "
            "cast.float64(load(p2[a2])))");
  check_map({Dtype::int8, Dtype::boolean}, Dtype::int32,
            "select(load(p1[a2]), cast.int32(load(p0[a2])), int32(-5))");
  check_map({Dtype::float32}, Dtype::int64, "add(cast.int64(load(p0[a2])), a2)");
}

}  // namespace
}  // namespace cermet
