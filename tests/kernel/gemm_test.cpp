// SPDX-License-Identifier: MIT
// Matrix products before and after `tile`, in the interpreter, against sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "codegen/target.h"
#include "kernel/compiled.h"
#include "kernel/gemm_case.h"
#include "kernel/run.h"
#include "kernel/text.h"
#include "kernel/tile.h"

namespace cermet::ir {
namespace {

const TargetFacts kTargets[] = {
    {.name = "cpu", .vector_bytes = 16},
    {.name = "cpu", .vector_bytes = 32, .fma = true},
    {.name = "cpu", .vector_bytes = 64, .fma = true},
    {.name = "cpu", .vector_bytes = 64, .fma = true, .dot_bf16 = true},
    {.name = "cpu", .vector_bytes = 64, .fma = true, .dot_bf16 = true, .amx_bf16 = true},
    {.name = "cpu", .vector_bytes = 32, .fma = true, .amx_bf16 = true},
};
// Of what multiplies narrow integers.
const TargetFacts kIntegerTargets[] = {
    {.name = "cpu", .vector_bytes = 64, .fma = true, .dot_int8 = true, .dot_int16 = true},
    {.name = "cpu", .vector_bytes = 32, .fma = true, .dot_int16 = true},
    {.name = "cpu", .vector_bytes = 64, .fma = true, .dot_int16 = true, .amx_int8 = true},
};
constexpr const TargetFacts &kDots = kTargets[3], &kTiles = kTargets[4],
                            &kTilesOfAvx2 = kTargets[5], &kDotsOfBytes = kIntegerTargets[0],
                            &kDotsOfInt16 = kIntegerTargets[1], &kTilesOfBytes = kIntegerTargets[2];

constexpr const char* kTemplates[] = {"gemm constants", "micro panel_"};

// The product as it is given, and as it is for every target.
void check_scheme(const GemmShape& shape, bool blocks) {
  SCOPED_TRACE(shape.text());
  {
    GemmCase given(shape);
    verify(given.kernel);
    interpret(given.kernel, given.arguments(), given.extents, given.strides);
    ASSERT_EQ(given.wrong(), "") << print(given.kernel);
  }
  for (const TargetFacts& target : kTargets) {
    GemmCase tiled(shape);
    const Kernel kernel = simplify(tile(tiled.kernel, target));
    verify(kernel);
    const std::string text = print(kernel);
    const char* word = kTemplates[is_panel(shape.scheme) ? 1 : 0];
    EXPECT_EQ(text.find(word) != std::string::npos, blocks) << text;
    EXPECT_EQ(print(parse(text)), text);
    interpret(kernel, tiled.arguments(), tiled.extents, tiled.strides);
    ASSERT_EQ(tiled.wrong(), "") << text;
  }
}

// However it is blocked.
void check(GemmShape shape, bool blocks = true) {
  if (shape.scheme != Scheme::fma) return check_scheme(shape, blocks);
  for (Scheme scheme : {Scheme::fma, Scheme::fma_local, Scheme::fma_split_k}) {
    shape.scheme = scheme;
    check_scheme(shape, blocks);
  }
}

TEST(Gemm, Sizes) {
  for (int64_t m : {1, 3, 8, 65})
    for (int64_t n : {1, 31, 33, 70})
      for (int64_t k : {1, 7, 40}) check({.m = m, .n = n, .k = k});
}

TEST(Gemm, SeveralBlocks) {
  check({.m = 5, .n = 270, .k = 9});
  check({.m = 5, .n = 9, .k = 800, .b_transposed = true});
  check({.batch = 2, .m = 3, .n = 260, .k = 259, .a_transposed = true, .b_transposed = true});
  check({.batch = 2, .m = 261, .n = 390, .k = 10, .a_shared = true, .epilogue = true});
  check({.batch = 2, .m = 7, .n = 20, .k = 1030, .b_shared = true, .epilogue = true});
}

TEST(Gemm, Layouts) {
  for (int bits = 0; bits < 16; ++bits)
    check({.m = 19,
           .n = 35,
           .k = 21,
           .a_transposed = (bits & 1) != 0,
           .b_transposed = (bits & 2) != 0,
           .c_transposed = (bits & 4) != 0,
           .padding = bits & 8});
}

TEST(Gemm, Batches) {
  for (int bits = 0; bits < 16; ++bits)
    check({.batch = 3,
           .m = 10,
           .n = 18,
           .k = 5,
           .b_transposed = (bits & 1) != 0,
           .c_transposed = (bits & 2) != 0,
           .a_shared = (bits & 4) != 0,
           .b_shared = (bits & 8) != 0});
}

TEST(Gemm, PrologueAndEpilogue) {
  for (int bits = 0; bits < 16; ++bits)
    check({.batch = bits & 8 ? 2 : 0,
           .m = 13,
           .n = 37,
           .k = 11,
           .b_transposed = (bits & 1) != 0,
           .c_transposed = (bits & 4) != 0,
           .prologue = (bits & 2) != 0,
           .epilogue = true});
}

TEST(Gemm, Dtypes) {
  check({.m = 9,
         .n = 20,
         .k = 17,
         .in = Dtype::float64,
         .acc = Dtype::float64,
         .out = Dtype::float64});
  check({.m = 9,
         .n = 20,
         .k = 17,
         .b_transposed = true,
         .in = Dtype::float64,
         .acc = Dtype::float64,
         .out = Dtype::float64});
  for (Dtype half : {Dtype::bfloat16, Dtype::float16})
    check({.m = 9,
           .n = 20,
           .k = 17,
           .b_transposed = true,
           .in = half,
           .out = half,
           .epilogue = true});
  for (Dtype dtype : {Dtype::int32, Dtype::uint32, Dtype::int64})
    for (bool transposed : {false, true})
      check({.m = 9,
             .n = 20,
             .k = 17,
             .b_transposed = transposed,
             .in = dtype,
             .acc = dtype,
             .out = dtype,
             .prologue = is_signed(dtype)});
}

// What bfloat16 is multiplied as: packed in pairs of k, with an odd last one, from where operands lie and
// through strips, and read in place.
std::vector<GemmShape> bfloat16_shapes() {
  std::vector<GemmShape> shapes;
  for (int64_t k : {1, 2, 40}) shapes.push_back({.m = 7, .n = 35, .k = k});
  for (int bits = 0; bits < 16; ++bits)
    shapes.push_back({.batch = bits & 8 ? 2 : 0,
                      .m = 8,
                      .n = 69,
                      .k = 21,
                      .a_transposed = (bits & 1) != 0,
                      .b_transposed = (bits & 2) != 0,
                      .c_transposed = (bits & 4) != 0,
                      .padding = bits & 8 ? 3 : 0,
                      .epilogue = (bits & 4) != 0});
  shapes.push_back({.m = 5, .n = 270, .k = 9});
  shapes.push_back({.m = 261, .n = 3, .k = 5, .a_transposed = true});
  shapes.push_back({.m = 5, .n = 9, .k = 803});
  shapes.push_back({.m = 5, .n = 9, .k = 803, .a_transposed = true, .b_transposed = true});
  shapes.push_back({.batch = 3, .m = 17, .n = 33, .k = 11, .c_transposed = true, .a_shared = true});
  shapes.push_back({.m = 3, .n = 4, .k = 0, .padding = 2});
  for (GemmShape& shape : shapes) shape.in = shape.out = Dtype::bfloat16;
  return shapes;
}

// In the interpreter and compiled.
void check_bfloat16(GemmShape shape, const TargetFacts& target, const char* scheme_name,
                    CpuLevel least) {
  for (Scheme scheme : {Scheme::fma, Scheme::fma_local, Scheme::fma_split_k}) {
    shape.scheme = scheme;
    SCOPED_TRACE(shape.text());
    GemmCase product(shape);
    const Kernel tiled = simplify(tile(product.kernel, target));
    EXPECT_NE(print(tiled).find("scratch l1 bfloat16"), std::string::npos) << print(tiled);
    EXPECT_EQ(scheme_of(product.kernel, target), scheme_name);
    expect_as_interpreted(tiled, {product.input()}, least);
    interpret(tiled, product.arguments(), product.extents, product.strides);
    ASSERT_EQ(product.wrong(), "") << print(tiled);
  }
}

TEST(Gemm, DotsOfBfloat16) {
  for (const GemmShape& shape : bfloat16_shapes())
    check_bfloat16(shape, kDots, "dot_bf16", CpuLevel::avx512_bf16);
}

TEST(Gemm, TilesOfBfloat16) {
  for (const GemmShape& shape : bfloat16_shapes()) {
    check_bfloat16(shape, kTiles, "amx_bf16", CpuLevel::generic);
    check_bfloat16(shape, kTilesOfAvx2, "amx_bf16", CpuLevel::generic);
  }
}

// Narrow integers: the same shapes, of all their values.
void check_integers(Dtype a, Dtype b, const TargetFacts& target, const char* scheme_name) {
  const Dtype acc = is_signed(a) || is_signed(b) ? Dtype::int32 : Dtype::uint32;
  int number = 0;
  for (GemmShape shape : bfloat16_shapes()) {
    constexpr Scheme kSchemes[] = {Scheme::fma, Scheme::fma_local, Scheme::fma_split_k};
    shape.in = a, shape.b_in = b, shape.acc = shape.out = acc;
    shape.all_values = true;
    shape.epilogue = shape.epilogue && acc == Dtype::int32 && size_of(a) == 1 && size_of(b) == 1;
    shape.scheme = kSchemes[number++ % 3];
    SCOPED_TRACE(shape.text());
    GemmCase product(shape);
    const Kernel tiled = simplify(tile(product.kernel, target));
    EXPECT_EQ(scheme_of(product.kernel, target), scheme_name);
    EXPECT_EQ(print(parse(print(tiled))), print(tiled));
    expect_as_interpreted(tiled, {product.input()});
    interpret(tiled, product.arguments(), product.extents, product.strides);
    ASSERT_EQ(product.wrong(), "") << print(tiled);
  }
}

constexpr Dtype kBytes[] = {Dtype::int8, Dtype::uint8};

TEST(Gemm, DotsOfBytes) {
  check_integers(Dtype::int8, Dtype::int8, kDotsOfBytes, "dot_int8");
  check_integers(Dtype::uint8, Dtype::int8, kDotsOfBytes, "dot_int8");
  check_integers(Dtype::int8, Dtype::uint8, kDotsOfBytes, "dot_int8");
  check_integers(Dtype::uint8, Dtype::uint8, kDotsOfBytes, "dot_int16");
}

TEST(Gemm, DotsOfInt16) {
  for (const TargetFacts* target : {&kDotsOfBytes, &kDotsOfInt16})
    check_integers(Dtype::int16, Dtype::int16, *target, "dot_int16");
  check_integers(Dtype::int8, Dtype::uint8, kDotsOfInt16, "dot_int16");
  check_integers(Dtype::int16, Dtype::int8, kTilesOfBytes, "dot_int16");
}

TEST(Gemm, TilesOfBytes) {
  for (Dtype a : kBytes)
    for (Dtype b : kBytes) check_integers(a, b, kTilesOfBytes, "amx_int8");
}

TEST(Gemm, SchemeNames) {
  const auto scheme = [](const GemmShape& shape, const TargetFacts& target) {
    return scheme_of(GemmCase(shape).kernel, target);
  };
  EXPECT_EQ(scheme({.m = 9, .n = 9}, kTiles), "fma");
  EXPECT_EQ(scheme({.m = 9, .n = 9, .in = Dtype::float16}, kTiles), "fma");
  EXPECT_EQ(scheme({.m = 9, .n = 9, .in = Dtype::bfloat16, .prologue = true}, kTiles), "fma");
  EXPECT_EQ(scheme({.m = 9, .n = 9, .scheme = Scheme::fma_split_k}, kTiles), "fma_split_k");
  EXPECT_EQ(scheme({.m = 2, .n = 9, .in = Dtype::bfloat16, .scheme = Scheme::panel}, kTiles),
            "panel");
  EXPECT_EQ(scheme({.m = 9, .n = 9, .in = Dtype::bfloat16}, kTargets[2]), "fma");
  EXPECT_EQ(scheme({.m = 9}, kTiles), "fold");
  const auto integers = [&](Dtype in, Dtype acc, const TargetFacts& target, bool prologue = false) {
    return scheme({.m = 9, .n = 9, .in = in, .acc = acc, .out = acc, .prologue = prologue}, target);
  };
  EXPECT_EQ(integers(Dtype::boolean, Dtype::int32, kTilesOfBytes), "amx_int8");
  EXPECT_EQ(integers(Dtype::int8, Dtype::int32, kTilesOfBytes, true), "fma");
  EXPECT_EQ(integers(Dtype::uint16, Dtype::uint32, kTilesOfBytes), "fma");
  EXPECT_EQ(integers(Dtype::int8, Dtype::int64, kTilesOfBytes), "fma");
  EXPECT_EQ(integers(Dtype::int8, Dtype::float32, kTilesOfBytes), "fma");
  EXPECT_EQ(integers(Dtype::int8, Dtype::int32, kTargets[2]), "fma");
}

TEST(Gemm, OtherStatements) {
  check({.batch = 2, .m = 9, .n = 20, .k = 17, .prologue = true, .epilogue = true, .side = true});
  check({.m = 9, .n = 20, .k = 17, .c_transposed = true, .side = true});
}

TEST(Gemm, Complex) {
  check({.batch = 2, .m = 9, .n = 20, .k = 17, .a_transposed = true, .is_complex = true});
  check({.m = 9, .n = 20, .k = 17, .b_transposed = true, .is_complex = true});
}

TEST(Gemm, WithoutRowsOrColumns) {
  for (int bits = 0; bits < 8; ++bits) {
    const bool t = (bits & 1) != 0, epilogue = (bits & 2) != 0;
    const int64_t batch = (bits & 4) != 0 ? 3 : 0;
    check({.batch = batch, .n = 20, .k = 17, .b_transposed = t, .epilogue = epilogue}, false);
    check({.batch = batch, .m = 20, .k = 17, .a_transposed = t, .epilogue = epilogue}, false);
    check({.batch = batch, .k = 17, .epilogue = epilogue}, false);
  }
}

TEST(Gemm, EmptySum) {
  check({.m = 3, .n = 4, .k = 0, .padding = 2});
  check({.m = 3, .n = 4, .k = 0, .b_transposed = true, .padding = 2, .epilogue = true});
}

// --- Few rows.

// In the interpreter, and compiled for every level with memory that ends where the operands end.
void check_few(GemmShape shape,
               std::initializer_list<Scheme> schemes = {Scheme::panel, Scheme::panel_four}) {
  for (Scheme scheme : schemes) {
    shape.scheme = scheme;
    check(shape);
    GemmCase product(shape);
    expect_as_interpreted(simplify(tile(product.kernel, kTargets[2])), {product.input()});
    const Kernel dots = simplify(tile(product.kernel, kDots));
    expect_as_interpreted(dots, {product.input()}, CpuLevel::avx512_bf16);
  }
}

TEST(Gemm, FewRows) {
  for (int64_t m : {3, 11})
    for (int64_t n : {1, 31, 65})
      for (int64_t k : {1, 40})
        for (bool transposed : {false, true})
          check_few({.m = m, .n = n, .k = k, .b_transposed = transposed});
}

// B is read where it lies, in vectors of 64 bytes.
TEST(Gemm, FewRowsOfManyProducts) {
  const auto check_many = [](GemmShape shape) {
    shape.batch = 3;
    shape.most = std::max(shape.m, shape.n) <= 16 ? 16 : 64;
    check_few(shape, {Scheme::fma, Scheme::fma_local});
    const Kernel kernel = tile(GemmCase(shape).kernel, kTargets[2]);
    EXPECT_EQ(print(kernel).find("micro pack"), std::string::npos) << shape.text();
  };
  for (int64_t m : {1, 16, 49})
    for (int64_t n : {1, 31, 64}) check_many({.m = m, .n = n, .k = 20});
  for (int bits = 0; bits < 8; ++bits)
    check_many({.m = 14,
                .n = 30,
                .k = 19,
                .a_transposed = (bits & 1) != 0,
                .c_transposed = (bits & 2) != 0,
                .padding = 3,
                .epilogue = (bits & 4) != 0});
  for (int64_t k : {1, 803}) check_many({.m = 5, .n = 9, .k = k});
  check_many({.m = 9, .n = 21, .k = 12, .a_shared = true});
  for (Dtype dtype : {Dtype::float64, Dtype::int32})
    check_many({.m = 9, .n = 21, .k = 12, .in = dtype, .acc = dtype, .out = dtype});
}

// Blocks of 516 rows and 64 columns of float32, four of them before the next rows; pieces of 512 of k.
TEST(Gemm, TallBlocks) {
  const auto check_tall = [](GemmShape shape) {
    shape.scheme = Scheme::fma_tall;
    EXPECT_EQ(scheme_of(GemmCase(shape).kernel, kTargets[2]), "fma_tall") << shape.text();
    EXPECT_EQ(scheme_of(GemmCase(shape).kernel, kTargets[1]), "fma") << shape.text();
    check_few(shape, {Scheme::fma_tall});
  };
  check_tall({.m = 7, .n = 330, .k = 3});
  check_tall({.m = 1033, .n = 5, .k = 3});
  check_tall({.m = 520, .n = 70, .k = 3});
  check_tall({.m = 13, .n = 70, .k = 530});
  check_tall({.batch = 2, .m = 7, .n = 70, .k = 20, .padding = 3});
  check_tall({.batch = 2, .m = 7, .n = 300, .k = 20, .a_shared = true});
  check_tall({.batch = 3, .m = 7, .n = 300, .k = 20, .b_shared = true});
  check_tall({.m = 70, .n = 90, .k = 5, .b_transposed = true, .epilogue = true});
  check_tall({.m = 70, .n = 530, .k = 5, .b_transposed = true, .c_transposed = true});
  const Dtype real = Dtype::float64;
  check_tall({.m = 20, .n = 170, .k = 30, .in = real, .acc = real, .out = real});
  // A is packed whole.
  check_tall({.m = 520, .n = 7, .k = 130, .a_transposed = true});
  check_tall({.m = 13, .n = 20, .k = 530, .a_transposed = true, .padding = 3});
  check_tall({.batch = 2, .m = 530, .n = 20, .k = 20, .a_transposed = true});
  check_tall({.batch = 2, .m = 7, .n = 300, .k = 20, .a_transposed = true, .b_shared = true});
  check_tall({.batch = 3, .m = 7, .n = 300, .k = 20, .a_transposed = true, .a_shared = true});
  // Once, if the batch shares it.
  const GemmShape shared = {.batch = 3,
                            .m = 7,
                            .n = 9,
                            .k = 20,
                            .a_transposed = true,
                            .a_shared = true,
                            .scheme = Scheme::fma_tall};
  std::vector<size_t> terms;
  for (const Local& local : tile(GemmCase(shared).kernel, kTargets[2]).locals)
    if (local.scope == LocalScope::kernel) terms.push_back(local.size.terms.size());
  EXPECT_EQ(terms, std::vector<size_t>{2});
  check_tall({.m = 530, .n = 3, .k = 20, .prologue = true, .epilogue = true});
  check_tall({.m = 70, .n = 30, .k = 150, .a_transposed = true, .prologue = true});
  const Dtype half = Dtype::bfloat16;
  check_tall({.m = 70, .n = 30, .k = 33, .in = half, .out = half});
  check_tall({.m = 70, .n = 30, .k = 33, .a_transposed = true, .in = half, .out = half});
  check_tall(
      {.m = 70, .n = 30, .k = 30, .a_transposed = true, .in = real, .acc = real, .out = real});
}

TEST(Gemm, OneRow) {
  for (int64_t n : {1, 31, 65, 300})
    for (int64_t k : {1, 40, 530})
      for (bool transposed : {false, true})
        check_few({.n = n, .k = k, .b_transposed = transposed, .in = Dtype::bfloat16});
  check_few({.batch = 3, .n = 70, .k = 33, .prologue = true, .epilogue = true});
  check_few(
      {.batch = 3, .n = 70, .k = 33, .b_transposed = true, .a_shared = true, .is_complex = true});
}

TEST(Gemm, FewRowsOfBfloat16) {
  for (int64_t m : {2, 9})
    for (int64_t n : {1, 65})
      for (int64_t k : {1, 31, 64, 1101})
        for (bool transposed : {false, true})
          check_few({.m = m, .n = n, .k = k, .b_transposed = transposed, .in = Dtype::bfloat16});
  for (bool transposed : {false, true})
    check_few({.batch = 3,
               .m = 5,
               .n = 35,
               .k = 21,
               .b_transposed = transposed,
               .b_shared = true,
               .padding = 3,
               .in = Dtype::bfloat16,
               .out = Dtype::bfloat16,
               .epilogue = true});
}

TEST(Gemm, FewRowsSeveralItems) {
  check_few({.m = 2, .n = 1061, .k = 19});
  check_few({.m = 2, .n = 67, .k = 1041});
  check_few({.m = 2, .n = 67, .k = 1041, .b_transposed = true});
  check_few({.m = 2, .n = 3, .k = 16400, .b_transposed = true});
  const auto kLong = {Scheme::panel_long, Scheme::panel_four_long};
  check_few({.m = 2, .n = 35, .k = 4129, .b_transposed = true}, kLong);
  for (bool transposed : {false, true})
    for (Dtype in : {Dtype::float32, Dtype::bfloat16})
      check_few({.m = 5, .n = 600, .k = 37, .b_transposed = transposed, .in = in}, kLong);
  check_few({.m = 2, .n = 300, .k = 530, .prologue = true});
  check_few({.m = 2, .n = 70, .k = 530, .b_transposed = true, .prologue = true});
}

// Packed whole: strips that are not full, several pieces of the sum, batches, and what is not packed.
TEST(Gemm, FewRowsInStrips) {
  const auto kPacked = {Scheme::panel_packed, Scheme::panel_four_packed};
  for (bool transposed : {false, true})
    for (Dtype in : {Dtype::float32, Dtype::bfloat16}) {
      check_few({.m = 11, .n = 130, .k = 7, .b_transposed = transposed, .in = in}, kPacked);
      check_few({.m = 2, .n = 33, .k = 530, .b_transposed = transposed, .in = in}, kPacked);
      check_few({.n = 70, .k = 131, .b_transposed = transposed, .in = in}, kPacked);
    }
  for (int bits = 0; bits < 32; bits += 3)
    check_few({.batch = bits & 16 ? 3 : 0,
               .m = 5,
               .n = 70,
               .k = 21,
               .a_transposed = (bits & 1) != 0,
               .b_transposed = (bits & 2) != 0,
               .c_transposed = (bits & 4) != 0,
               .b_shared = (bits & 20) == 20,
               .padding = bits & 8,
               .prologue = (bits & 9) == 9,
               .epilogue = (bits & 1) != 0},
              kPacked);
  check_few({.m = 3,
             .n = 70,
             .k = 33,
             .in = Dtype::float64,
             .acc = Dtype::float64,
             .out = Dtype::float64},
            kPacked);
  check_few({.m = 3, .n = 70, .k = 33, .b_transposed = true, .in = Dtype::float16}, kPacked);
}

// Of values whose sums are rounded, as this host computes them.
std::vector<char> rounded_product(CompiledKernels& kernels, GemmShape shape, Scheme scheme) {
  shape.scheme = scheme;
  GemmCase product(shape);
  uint32_t state = 1;
  for (GemmCase::Buffer& buffer : product.buffers)
    for (int64_t i = 0; i < buffer.elements; ++i) {
      state = state * 1664525 + 1013904223;
      const float value = static_cast<float>(state) * 0x1p-32f - 0.5f;
      const auto size = static_cast<int64_t>(size_of(buffer.dtype));
      // The upper half of a float32 is a bfloat16.
      std::memcpy(buffer.data.data() + size * i,
                  reinterpret_cast<const char*>(&value) + sizeof(float) - size, size);
    }
  const Kernel tiled = simplify(tile(product.kernel, cpu_target().facts()));
  const auto c = std::ranges::find_if(
      product.buffers, [](const GemmCase::Buffer& buffer) { return !buffer.expected.empty(); });
  return kernels.run(tiled, product.input())
      .bytes[static_cast<size_t>(c - product.buffers.begin())];
}

// A packed matrix gives the bits of one that is read in place: what is kept may come and go.
TEST(Gemm, PanelsSumInOneOrder) {
  const TargetFacts facts = cpu_target().facts();
  CompiledKernels kernels;
  for (Dtype in : {Dtype::float32, Dtype::bfloat16}) {
    for (int64_t m : {0, 3, 11})
      for (int64_t k : {7, 100, 1041}) {
        const GemmShape shape = {.m = m, .n = 70, .k = k, .in = in};
        const std::vector<char> expected = rounded_product(kernels, shape, Scheme::panel);
        for (Scheme scheme : {Scheme::panel_four, Scheme::panel_long, Scheme::panel_packed,
                              Scheme::panel_four_packed})
          EXPECT_EQ(rounded_product(kernels, shape, scheme), expected)
              << shape.text() << " " << text_of(scheme);
      }
    if (!facts.full_width || facts.amx_bf16) continue;
    for (int64_t k : {7, 100, 1041, 16500}) {
      const GemmShape shape = {
          .m = 11, .n = k == 100 ? 150 : 133, .k = k, .b_transposed = true, .in = in};
      const std::vector<char> expected = rounded_product(kernels, shape, Scheme::panel_long);
      for (Scheme scheme :
           {Scheme::panel_four_long, Scheme::panel_packed, Scheme::panel_four_packed})
        EXPECT_EQ(rounded_product(kernels, shape, scheme), expected)
            << shape.text() << " " << text_of(scheme);
    }
  }
}

// Loops that pack, of kernels tiled for vectors of 64 bytes.
std::vector<std::string> packs_of(const GemmShape& shape) {
  const Kernel kernel = simplify(tile(GemmCase(shape).kernel, kTargets[2]));
  std::vector<std::string> hashes;
  for (const Stmt& stmt : kernel.body) {
    const auto* loop = std::get_if<For>(&stmt);
    if (loop != nullptr && loop->entry == kPackEntry)
      hashes.push_back(identity_of(kernel, *loop).hash.hex());
  }
  return hashes;
}

TEST(Gemm, LoopsThatPackAlikeAreOne) {
  const GemmShape plain{.m = 160, .n = 192, .k = 256, .a_transposed = true};
  GemmShape epilogue = plain, rows = plain, turned = plain, prologue = plain;
  epilogue.epilogue = true, rows.m = 200, turned.b_transposed = true, prologue.prologue = true;
  ASSERT_FALSE(packs_of(plain).empty());
  EXPECT_EQ(packs_of(plain), packs_of(epilogue));
  EXPECT_EQ(packs_of(plain), packs_of(rows));
  EXPECT_NE(packs_of(plain), packs_of(turned));
  EXPECT_NE(packs_of(plain), packs_of(prologue));
  for (const bool b_transposed : {false, true}) {
    GemmShape strips{.m = 8, .n = 300, .k = 400, .b_transposed = b_transposed};
    strips.scheme = Scheme::panel_packed;
    const auto eight = packs_of(strips);
    strips.scheme = Scheme::panel_four_packed, strips.m = 3, strips.epilogue = true;
    ASSERT_FALSE(eight.empty());
    EXPECT_EQ(eight, packs_of(strips));
  }
}

TEST(Gemm, FewRowsLayouts) {
  for (int bits = 0; bits < 32; ++bits)
    check_few({.batch = bits & 16 ? 3 : 0,
               .m = 5,
               .n = 35,
               .k = 21,
               .a_transposed = (bits & 1) != 0,
               .b_transposed = (bits & 2) != 0,
               .c_transposed = (bits & 4) != 0,
               .a_shared = (bits & 24) == 24,
               .b_shared = (bits & 20) == 20,
               .padding = bits & 8,
               .prologue = (bits & 9) == 9,
               .epilogue = (bits & 1) != 0});
}

TEST(Gemm, FewRowsDtypes) {
  constexpr Dtype kDouble = Dtype::float64;
  for (bool transposed : {false, true}) {
    check_few({.m = 7,
               .n = 37,
               .k = 21,
               .b_transposed = transposed,
               .in = kDouble,
               .acc = kDouble,
               .out = kDouble});
    for (Dtype half : {Dtype::bfloat16, Dtype::float16})
      for (bool prologue : {false, true})
        check_few({.m = 7,
                   .n = 37,
                   .k = 21,
                   .b_transposed = transposed,
                   .in = half,
                   .out = half,
                   .prologue = prologue,
                   .epilogue = true});
    check_few(
        {.batch = 2, .m = 4, .n = 20, .k = 17, .b_transposed = transposed, .is_complex = true});
    check_few(
        {.m = 4, .n = 20, .k = 17, .b_transposed = transposed, .prologue = true, .side = true});
    check_few({.m = 3, .n = 4, .k = 0, .b_transposed = transposed, .padding = 2, .epilogue = true});
  }
}

}  // namespace
}  // namespace cermet::ir
