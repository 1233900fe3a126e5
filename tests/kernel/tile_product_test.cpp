// SPDX-License-Identifier: MIT
// Products by tile instructions, and by the loops that stand for them: edges of tiles and blocks against
// sums in double, their arithmetic against the interpreter bit for bit, the instructions in the object.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "kernel/compiled.h"
#include "kernel/gemm_case.h"
#include "kernel/passes.h"
#include "kernel/tile.h"

namespace cermet::ir {
namespace {

constexpr TargetFacts kTiles = {.name = "cpu", .vector_bytes = 64, .fma = true, .amx_bf16 = true};

GemmShape of_bfloat16(GemmShape shape) {
  shape.in = Dtype::bfloat16;
  return shape;
}

// Compiled kernels for the host, by their text.
class Compiled {
 public:
  KernelOutput run(const Kernel& kernel, const KernelInput& input, bool at_end = true) {
    const Kernel tiled = simplify(tile(kernel, kTiles));
    std::shared_ptr<LoadedKernel>& code = known_[print(tiled)];
    if (code == nullptr) code = load_kernel(compile_cpu(tiled, cpu_level()));
    return run_compiled(*code, tiled, input, at_end);
  }

  // Empty, or what is wrong.
  std::string wrong(const GemmShape& shape, bool at_end = true) {
    GemmCase product(of_bfloat16(shape));
    const KernelOutput output = run(product.kernel, product.input(), at_end);
    for (size_t i = 0; i < product.buffers.size(); ++i) product.buffers[i].data = output.bytes[i];
    const std::string wrong = product.wrong();
    return wrong.empty() ? "" : product.shape.text() + ": " + wrong;
  }

 private:
  std::map<std::string, std::shared_ptr<LoadedKernel>> known_;
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
        ASSERT_EQ(compiled.wrong(varied({.m = m, .n = n, .k = k}, number), number % 5 != 0), "");
        number += 7;
      }
}

TEST(TileProduct, EdgesOfBlocks) {
  Compiled compiled;
  for (int number = 0; number < 24; ++number) {
    ASSERT_EQ(compiled.wrong(varied({.m = 257, .n = 5, .k = 530}, number)), "");
    ASSERT_EQ(compiled.wrong(varied({.m = 6, .n = 521, .k = 513}, number)), "");
    ASSERT_EQ(compiled.wrong(varied({.m = 3, .n = 4, .k = 0}, number)), "");
    ASSERT_EQ(compiled.wrong(varied({.batch = 3, .m = 40, .n = 35, .k = 70}, number)), "");
  }
  ASSERT_EQ(compiled.wrong({.m = 261, .n = 1037, .k = 70}), "");
  ASSERT_EQ(compiled.wrong({.m = 3, .n = 2, .k = 16384, .scheme = Scheme::fma_split_k}), "");
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
      SCOPED_TRACE(fmt::format("exponents from {} on, k {}", first, k));
      expect_as_interpreted(simplify(tile(product.kernel, kTiles)), {product.input()},
                            CpuLevel::avx2);
    }
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
  constexpr unsigned kNone = 0, kF3 = 2, kF2 = 3;
  const GemmCase product(of_bfloat16({.m = 40, .n = 40, .k = 40}));
  const Kernel tiled = simplify(tile(product.kernel, kTiles));
  const std::string with = compile_cpu(tiled, CpuLevel::amx).blob;
  EXPECT_EQ(count_of(with, kF3, 0x5c), 4 + 2 + 2 + 1) << "tdpbf16ps of 2 x 2, 2 x 1, ... tiles";
  EXPECT_GT(count_of(with, kF2, 0x4b), 4) << "tileloadd";
  const std::string without = compile_cpu(tiled, CpuLevel::avx512_fp16).blob;
  EXPECT_EQ(count_of(without, kF3, 0x5c), 0);
  EXPECT_EQ(count_of(with, kNone, 0x49), 2) << "ldtilecfg, tilerelease";
}

}  // namespace
}  // namespace cermet::ir
