// SPDX-License-Identifier: MIT
// Products by tile instructions, and by the loops that stand for them: edges of tiles and blocks against
// sums in double, their arithmetic against the interpreter bit for bit, the instructions in the object. Of
// operands in parts also the error, beside that of the fused multiply-adds, and what parts cannot hold.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/compiled.h"
#include "kernel/gemm_case.h"
#include "kernel/micro.h"
#include "kernel/passes.h"
#include "kernel/tile.h"
#include "kernel/walk.h"

namespace cermet::ir {
namespace {

constexpr TargetFacts kTiles = {
    .name = "cpu", .vector_bytes = 64, .fma = true, .amx_bf16 = true, .amx_int8 = true};

GemmShape of_bfloat16(GemmShape shape) {
  shape.in = Dtype::bfloat16;
  return shape;
}

class Compiled {
 public:
  KernelOutput run(const Kernel& kernel, const KernelInput& input, bool at_end = true) {
    return kernels_.run(simplify(tile(kernel, kTiles)), input, at_end);
  }

  // Empty, or what is wrong.
  std::string wrong(const GemmShape& shape, bool at_end = true) {
    GemmCase product(shape);
    const KernelOutput output = run(product.kernel, product.input(), at_end);
    for (size_t i = 0; i < product.buffers.size(); ++i) product.buffers[i].data = output.bytes[i];
    const std::string wrong = product.wrong();
    return wrong.empty() ? "" : product.shape.text() + ": " + wrong;
  }

 private:
  CompiledKernels kernels_;
};

// Every way to lie in memory and every scheme in turn.
GemmShape varied(GemmShape shape, int number) {
  constexpr Scheme kSchemes[] = {Scheme::fma, Scheme::fma_local, Scheme::fma_split_k};
  shape.a_transposed = (number & 1) != 0;
  shape.b_transposed = (number & 2) != 0;
  shape.c_transposed = (number & 4) != 0;
  shape.epilogue = (number & 8) != 0;
  shape.padding = 3;
  shape.scheme = kSchemes[number % 3];
  return of_bfloat16(shape);
}

// The same of few columns, with A in place where it lies along k.
GemmShape varied_panel(GemmShape shape, int number) {
  shape = varied(shape, number);
  shape.scheme = Scheme::amx_panel;
  shape.a_transposed = number % 5 == 2;
  return shape;
}

// The same of operands in parts.
GemmShape varied_parts(GemmShape shape, int number) {
  shape = varied(shape, number);
  shape.in = number % 5 == 1 ? Dtype::float16 : Dtype::float32;
  constexpr Scheme kSchemes[] = {Scheme::amx_split, Scheme::amx_split_local, Scheme::amx_split_k};
  shape.scheme = kSchemes[number % 3];
  shape.prologue = number % 7 == 0;
  return shape;
}

// The same of bytes of all values.
GemmShape varied_bytes(GemmShape shape, int number) {
  shape = varied(shape, number);
  shape.in = (number & 16) != 0 ? Dtype::uint8 : Dtype::int8;
  shape.b_in = number % 3 == 1 ? Dtype::uint8 : Dtype::int8;
  shape.acc = shape.out = Dtype::int32;
  shape.all_values = true;
  return shape;
}

TEST(TileProduct, EachSize) {
  Compiled compiled;
  int number = 0;
  for (int64_t d = 1; d <= 70; ++d)
    for (const GemmShape& shape :
         {GemmShape{.m = d, .n = 33, .k = 35}, GemmShape{.m = 35, .n = d, .k = 33},
          GemmShape{.m = 33, .n = 35, .k = d}}) {
      ASSERT_EQ(compiled.wrong(varied(shape, number), number % 2 == 0), "");
      ASSERT_EQ(compiled.wrong(varied_bytes(shape, number), number % 2 == 0), "");
      ASSERT_EQ(compiled.wrong(varied_panel(shape, number), number % 2 == 0), "");
      ++number;
    }
}

TEST(TileProduct, EdgesOfTiles) {
  constexpr int64_t kEdges[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 70};
  Compiled compiled;
  int number = 0;
  for (int64_t m : kEdges)
    for (int64_t n : kEdges)
      for (int64_t k : kEdges) {
        const GemmShape shape{.m = m, .n = n, .k = k};
        ASSERT_EQ(compiled.wrong(varied(shape, number), number % 5 != 0), "");
        if (number % 3 == 0) {
          ASSERT_EQ(compiled.wrong(varied_panel(shape, number), number % 5 != 0), "");
        }
        ASSERT_EQ(compiled.wrong(varied_parts(shape, number), number % 5 != 0), "");
        ASSERT_EQ(compiled.wrong(varied_bytes(shape, number), number % 5 != 0), "");
        number += 7;
      }
}

TEST(TileProduct, EdgesOfBlocks) {
  Compiled compiled;
  for (int number = 0; number < 30; ++number)
    for (const GemmShape& shape :
         {GemmShape{.m = 257, .n = 5, .k = 530}, GemmShape{.m = 6, .n = 521, .k = 513},
          GemmShape{.m = 3, .n = 4, .k = 0}, GemmShape{.batch = 3, .m = 40, .n = 35, .k = 70},
          GemmShape{.m = 34, .n = 641, .k = 140}}) {
      ASSERT_EQ(compiled.wrong(varied(shape, number)), "");
      ASSERT_EQ(compiled.wrong(varied_panel(shape, number)), "");
      ASSERT_EQ(compiled.wrong(varied_parts(shape, number)), "");
      if (number % 3 == 0) {
        ASSERT_EQ(compiled.wrong(varied_bytes(shape, number)), "");
      }
    }
  for (int number : {0, 1, 4, 5})
    for (const GemmShape& shape :
         {GemmShape{.m = 150, .n = 9, .k = 4100}, GemmShape{.m = 40, .n = 3, .k = 8230},
          GemmShape{.m = 130, .n = 161, .k = 70}, GemmShape{.batch = 2, .m = 33, .n = 8, .k = 600},
          GemmShape{.batch = 2, .m = 33, .n = 8, .k = 64, .b_shared = true}})
      ASSERT_EQ(compiled.wrong(varied_panel(shape, number)), "");
  const GemmShape large{.m = 261, .n = 1037, .k = 70}, deep{.m = 3, .n = 2, .k = 16384};
  ASSERT_EQ(compiled.wrong(varied_bytes(large, 0)), "");
  ASSERT_EQ(compiled.wrong(varied_bytes(deep, 8)), "");
  ASSERT_EQ(compiled.wrong(varied(large, 0)), "");
  ASSERT_EQ(compiled.wrong(varied_parts(large, 0)), "");
  ASSERT_EQ(compiled.wrong(varied(deep, 8)), "");
  ASSERT_EQ(compiled.wrong(varied_parts(deep, 8)), "");
}

// The first two buffers get bfloat16 of these bits.
template <typename Bits>
void fill(GemmCase& product, Bits&& bits) {
  for (GemmCase::Buffer& buffer : product.buffers) {
    if (buffer.dtype != Dtype::bfloat16) continue;
    for (int64_t i = 0; i < buffer.elements; ++i) {
      const uint16_t value = bits();
      std::memcpy(buffer.data.data() + 2 * i, &value, 2);
    }
  }
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  // A bfloat16 with one of `count` exponents from `first` on, of either sign.
  uint16_t with_exponent(uint32_t first, uint32_t count) {
    const uint32_t exponent = first + next() % count;
    return static_cast<uint16_t>(next() % 2 << 15 | exponent << 7 | next() % 128);
  }

 private:
  uint64_t state_;
};

void expect_as_interpreted(const GemmCase& product) {
  SCOPED_TRACE(product.shape.text());
  cermet::expect_as_interpreted(simplify(tile(product.kernel, kTiles)), {product.input()},
                                CpuLevel::avx2);
}

// Where products are normal; where they, their sums and the operands are subnormal; where sums overflow;
// all bits.
TEST(TileProduct, Arithmetic) {
  constexpr std::pair<uint32_t, uint32_t> kExponents[] = {{120, 10}, {60, 8},  {55, 20},
                                                          {0, 3},    {186, 8}, {0, 256}};
  Random random(7);
  for (const auto& [first, count] : kExponents)
    for (int64_t k : {1, 40, 75, 600}) {
      GemmCase product(of_bfloat16({.m = 18, .n = 37, .k = k, .a_transposed = k == 40}));
      fill(product, [&] { return random.with_exponent(first, count); });
      SCOPED_TRACE(fmt::format("exponents from {} on", first));
      expect_as_interpreted(product);
      GemmCase panel(of_bfloat16(
          {.m = 50, .n = 7, .k = k, .c_transposed = k != 40, .scheme = Scheme::amx_panel}));
      fill(panel, [&] { return random.with_exponent(first, count); });
      expect_as_interpreted(panel);
    }
}

// Products that read A once fetch its next rows; else what is read again and again is in a cache.
TEST(TileProduct, NextRowsAreFetched) {
  for (const bool once : {true, false}) {
    GemmShape shape = of_bfloat16({.m = 300, .n = 40, .k = 256});
    shape.scheme = once ? Scheme::amx_panel : Scheme::fma_local;
    const Kernel tiled = tile(GemmCase(shape).kernel, kTiles);
    int of_parameters = 0;
    for_each_stmt(tiled.body, [&](const Stmt& stmt) {
      const Micro* micro = std::get_if<Micro>(&stmt);
      if (micro == nullptr || micro->kind != MicroKind::tile_gemm) return;
      const TileGemmMicro m = TileGemmMicro::of(*micro);
      of_parameters += m.a.local ? 0 : 1;
      EXPECT_EQ(m.a_next != m.a_at, once && !m.a.local);
    });
    EXPECT_EQ(of_parameters, 1);
  }
}

// Operands of bfloat16 that are wanted as float32 meet no instruction for bfloat16.
TEST(TileProduct, WidenedOperands) {
  Compiled compiled;
  for (int number = 0; number < 8; ++number) {
    GemmShape shape = varied({.m = 37, .n = 70, .k = 3}, number);
    shape.scheme = Scheme::fma_wide;
    ASSERT_EQ(compiled.wrong(shape), "");
    const GemmCase product(shape);
    ASSERT_EQ(print(tile(product.kernel, kTiles)).find("tile_gemm"), std::string::npos);
    ASSERT_EQ(scheme_of(product.kernel, kTiles), "fma");
  }
}

// Every scheme gives the same bits, but where pieces of the sum are added up.
TEST(TileProduct, SchemesAgree) {
  Compiled compiled;
  Random random(23);
  GemmShape shape{.m = 70, .n = 37, .k = 5000};
  std::vector<std::vector<char>> results;
  for (Scheme scheme : {Scheme::fma, Scheme::fma_local, Scheme::amx_panel}) {
    shape.scheme = scheme;
    GemmCase product(of_bfloat16(shape));
    random = Random(23);
    fill(product, [&] { return random.with_exponent(117, 20); });
    results.push_back(compiled.run(product.kernel, product.input()).bytes[3]);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// Each of the k/32 + 17 roundings that a term of the sum passes through is of at most 2^-24 of what is
// summed by then.
TEST(TileProduct, Error) {
  Compiled compiled;
  Random random(11);
  for (int64_t k : {64, 1000, 16384})
    for (Scheme scheme : {Scheme::fma, Scheme::fma_split_k}) {
      const int64_t m = 20, n = 35;
      GemmCase product(of_bfloat16({.m = m, .n = n, .k = k, .scheme = scheme}));
      fill(product, [&] { return random.with_exponent(117, 20); });
      const KernelInput input = product.input();
      const KernelOutput output = compiled.run(product.kernel, input);
      const auto element = [&](size_t buffer, int64_t at) {
        uint16_t bits = 0;
        std::memcpy(&bits, input.bytes[buffer].data() + 2 * at, 2);
        return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
      };
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, size = 0;
          for (int64_t l = 0; l < k; ++l) {
            const double term = element(0, i * k + l) * element(1, l * n + j);
            sum += term, size += std::abs(term);
          }
          float got = 0;
          std::memcpy(&got, output.bytes[3].data() + 4 * (i * n + j), 4);
          const double roundings = static_cast<double>(k) / 32 + 18;
          ASSERT_LE(std::abs(got - sum), roundings * 0x1p-24 * size) << k << " " << i << " " << j;
        }
    }
}

// A float32 of one of `count` exponents from `first` on.
float float_of(Random& random, uint32_t first, uint32_t count) {
  const uint32_t exponent = first + random.next() % count;
  return std::bit_cast<float>(random.next() % 2 << 31 | exponent << 23 | random.next() % (1 << 23));
}

// A and B of a case of float32, rows along k and columns along n.
template <typename Value>
void fill_floats(GemmCase& product, Value&& value) {
  for (size_t buffer : {0, 1})
    for (int64_t i = 0; i < product.buffers[buffer].elements; ++i) {
      const float v = value(buffer == 0, i);
      std::memcpy(product.buffers[buffer].data.data() + 4 * i, &v, 4);
    }
}

std::vector<float> floats_of(const std::vector<char>& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Where all parts are normal; where the least, or products of them, are subnormal or less; large ones. Half the
// values are near 1, so that no block is made again: that is by fused multiply-adds in any order.
TEST(TileProduct, ArithmeticInParts) {
  constexpr std::pair<uint32_t, uint32_t> kExponents[] = {{120, 10}, {60, 40}, {20, 60},
                                                          {1, 30},   {0, 3},   {160, 10}};
  Random random(7);
  for (const auto& [first, count] : kExponents)
    for (int64_t k : {40, 150}) {
      GemmCase product({.m = 18,
                        .n = 37,
                        .k = k,
                        .a_transposed = k == 40,
                        .scheme = k == 40 ? Scheme::amx_split_local : Scheme::amx_split_k});
      fill_floats(product, [&](bool, int64_t) {
        return random.next() % 2 == 0 ? float_of(random, 120, 8) : float_of(random, first, count);
      });
      SCOPED_TRACE(fmt::format("exponents from {} on", first));
      expect_as_interpreted(product);
    }
}

// A float32 product by fused multiply-adds that packs A, as parts do: as many of k at a time.
GemmCase packing_fma(const GemmCase& of, Scheme scheme) {
  GemmShape shape = of.shape;
  shape.a_transposed = true;
  shape.scheme = scheme;
  GemmCase fused(shape);
  for (size_t p = 0; p < (shape.is_complex ? 4 : 2); p += 2) {
    fused.buffers[p + 1].data = of.buffers[p + 1].data;
    for (int64_t i = 0; i < shape.m; ++i)
      for (int64_t l = 0; l < shape.k; ++l)
        std::memcpy(fused.buffers[p].data.data() + 4 * (l * shape.m + i),
                    of.buffers[p].data.data() + 4 * (i * shape.k + l), 4);
  }
  return fused;
}

// The first outputs are equal bit for bit, but for NaNs.
void expect_same_bits(const std::vector<char>& got, const std::vector<char>& expected) {
  const std::vector<float> a = floats_of(got), b = floats_of(expected);
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << "element " << i;
  }
}

struct Deviation {
  double max = 0, rms = 0;
};

// Of products of a case's operands from sums in double, in 2^-24 of the sum of the terms' magnitudes.
class Deviations {
 public:
  explicit Deviations(const GemmCase& product) {
    const std::vector<float> a = floats_of(product.buffers[0].data);
    const std::vector<float> b = floats_of(product.buffers[1].data);
    const auto [m, n, k] = std::array{product.shape.m, product.shape.n, product.shape.k};
    sums_.resize(m * n), sizes_.resize(m * n);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j) {
          const double term = static_cast<double>(a[i * k + l]) * b[l * n + j];
          sums_[i * n + j] += term, sizes_[i * n + j] += std::abs(term);
        }
  }

  Deviation of(const std::vector<float>& got) const {
    Deviation result;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(got[i] - sums_[i]) / sizes_[i] * 0x1p24;
      result.max = std::max(result.max, error);
      result.rms += error * error / static_cast<double>(got.size());
    }
    result.rms = std::sqrt(result.rms);
    return result;
  }

 private:
  std::vector<double> sums_, sizes_;
};

// Data that float32 holds with room to spare: the error is no more than that of fused multiply-adds with
// sums blocked alike.
TEST(TileProduct, ErrorInParts) {
  enum Data { normal, positive, exponents, scaled, scaled_along_k, cancelling, count };
  Compiled compiled;
  Random random(13);
  const int64_t m = 32, n = 48;
  for (int64_t k : {64, 256, 1024, 4096, 16384})
    for (int data = 0; data < count; ++data) {
      const auto small = [&](size_t size) {
        std::vector<int> numbers(size);
        for (int& e : numbers) e = static_cast<int>(random.next() % 41) - 20;
        return numbers;
      };
      const std::vector<int> row = small(m), column = small(n), depth = small(k);
      GemmCase parts({.m = m, .n = n, .k = k, .scheme = Scheme::amx_split});
      fill_floats(parts, [&](bool of_a, int64_t i) {
        const float x = float_of(random, 120, 8);
        const int64_t along_k = of_a ? i % k : i / n, free = of_a ? i / k : i % n;
        if (data == positive) return std::abs(x);
        if (data == exponents) return float_of(random, 97, 61);
        if (data == scaled) return std::ldexp(x, of_a ? row[free] : column[free]);
        if (data == scaled_along_k) return std::ldexp(x, of_a ? depth[along_k] : -depth[along_k]);
        return x;
      });
      if (data == cancelling) {
        std::vector<float> a = floats_of(parts.buffers[0].data);
        std::vector<float> b = floats_of(parts.buffers[1].data);
        for (int64_t l = k / 2; l < k; ++l) {
          for (int64_t i = 0; i < m; ++i) a[i * k + l] = a[i * k + l - k / 2];
          for (int64_t j = 0; j < n; ++j) b[l * n + j] = -b[(l - k / 2) * n + j];
        }
        fill_floats(parts, [&](bool of_a, int64_t i) { return of_a ? a[i] : b[i]; });
      }
      const GemmCase fused = packing_fma(parts, Scheme::fma);
      const Deviations deviations(parts);
      const auto run = [&](const GemmCase& product) {
        const KernelOutput output = compiled.run(product.kernel, product.input());
        return deviations.of(floats_of(output.bytes[3]));
      };
      const Deviation got = run(parts), by_fma = run(fused);
      EXPECT_LE(got.rms, 1.1 * by_fma.rms) << "k " << k << ", data " << data;
      EXPECT_LE(got.max, 1.3 * by_fma.max) << "k " << k << ", data " << data;
    }
}

// What the parts, or products of them, cannot hold: the block is that of fma_local, bit for bit.
TEST(TileProduct, UnfitForParts) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN(), tiny = 0x1p-140F;
  Compiled compiled;
  Random random(17);
  const int64_t m = 40, n = 70, k = 300;
  struct Unfit {
    float a, b;  // element (7, 11) of A, (13, 17) of B; 0: as it is
    int scale_a = 0, scale_b = 0;
    int row = 0;  // that one of A is scaled by
  };
  for (const Unfit& unfit : {Unfit{kInf, 0},
                             {0, -kInf},
                             {nan, 0},
                             {0, nan},
                             {kMax, 0},
                             {0, kMax},
                             {-kInf, kInf},
                             {0, 0, -55, -55},
                             {0, 0, -120, 60},
                             {0, 0, 0, -110},
                             {tiny, tiny, -140, 0},
                             {0, 0, 0, 0, -145}}) {
    GemmCase parts({.m = m, .n = n, .k = k, .scheme = Scheme::amx_split});
    fill_floats(parts, [&](bool of_a, int64_t i) {
      if (of_a && i == 7 * k + 11 && unfit.a != 0) return unfit.a;
      if (!of_a && i == 13 * n + 17 && unfit.b != 0) return unfit.b;
      const int row = of_a && i / k == 5 ? unfit.row : 0;
      return std::ldexp(float_of(random, 120, 8), (of_a ? unfit.scale_a : unfit.scale_b) + row);
    });
    const GemmCase fused = packing_fma(parts, Scheme::fma_local);
    SCOPED_TRACE(
        fmt::format("{} {} {} {} {}", unfit.a, unfit.b, unfit.scale_a, unfit.scale_b, unfit.row));
    expect_same_bits(compiled.run(parts.kernel, parts.input()).bytes[3],
                     compiled.run(fused.kernel, fused.input()).bytes[3]);
  }
}

// Of several operands each has peaks of its own: that one of them is tiny is seen beside the others.
TEST(TileProduct, UnfitAmongSeveral) {
  Compiled compiled;
  Random random(19);
  for (size_t tiny : {0, 1, 2, 3}) {
    GemmCase parts({.m = 40, .n = 70, .k = 300, .scheme = Scheme::amx_split, .is_complex = true});
    for (size_t p : {0, 1, 2, 3})
      for (int64_t i = 0; i < parts.buffers[p].elements; ++i) {
        const float v = std::ldexp(float_of(random, 120, 8), p == tiny ? -112 : 0);
        std::memcpy(parts.buffers[p].data.data() + 4 * i, &v, 4);
      }
    const GemmCase fused = packing_fma(parts, Scheme::fma_local);
    const KernelOutput got = compiled.run(parts.kernel, parts.input());
    const KernelOutput expected = compiled.run(fused.kernel, fused.input());
    SCOPED_TRACE(tiny);
    for (size_t output : {5, 6}) expect_same_bits(got.bytes[output], expected.bytes[output]);
  }
}

// How often the opcode of a VEX instruction of map 0F38 stands in the object.
size_t count_of(const std::string& blob, unsigned prefix, unsigned char opcode) {
  size_t count = 0;
  for (size_t at = 0; at + 4 < blob.size(); ++at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(blob[at + i]); };
    if (byte(0) != 0xc4 || (byte(1) & 0x1f) != 2 || byte(3) != opcode) continue;
    count += (byte(2) & 3) == prefix ? 1 : 0;
  }
  return count;
}

// Of any host: what LLVM makes for a processor with tiles, and not for another.
TEST(TileProduct, Instructions) {
  constexpr unsigned kNone = 0, k66 = 1, kF3 = 2, kF2 = 3;
  const GemmCase product(of_bfloat16({.m = 40, .n = 40, .k = 40}));
  const Kernel tiled = simplify(tile(product.kernel, kTiles));
  const std::string with = compile_cpu(tiled, CpuLevel::amx).blob;
  EXPECT_EQ(count_of(with, kF3, 0x5c), 4 + 2 + 2 + 1) << "tdpbf16ps of 2 x 2, 2 x 1, ... tiles";
  EXPECT_GT(count_of(with, kF2, 0x4b), 4) << "tileloadd";
  const std::string without = compile_cpu(tiled, CpuLevel::avx512_fp16).blob;
  EXPECT_EQ(count_of(without, kF3, 0x5c), 0);
  EXPECT_EQ(count_of(with, kNone, 0x49), 2) << "ldtilecfg, tilerelease";
  // Which opcode prefix tells how the signs of A and B are taken.
  constexpr std::tuple<Dtype, Dtype, unsigned> kSigns[] = {{Dtype::uint8, Dtype::uint8, kNone},
                                                           {Dtype::uint8, Dtype::int8, k66},
                                                           {Dtype::int8, Dtype::uint8, kF3},
                                                           {Dtype::int8, Dtype::int8, kF2}};
  for (const auto& [a, b, prefix] : kSigns) {
    const GemmCase bytes(
        {.m = 40, .n = 40, .k = 40, .in = a, .acc = Dtype::int32, .out = Dtype::int32, .b_in = b});
    const std::string blob = compile_cpu(simplify(tile(bytes.kernel, kTiles)), CpuLevel::amx).blob;
    for (unsigned other : {kNone, k66, kF3, kF2})
      EXPECT_EQ(count_of(blob, other, 0x5e), other == prefix ? 4 + 2 + 2 + 1 : 0) << other;
  }
}

}  // namespace
}  // namespace cermet::ir
