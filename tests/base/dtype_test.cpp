// SPDX-License-Identifier: MIT
// Dtypes against the wheel's promotion table, algebraic facts of promotion, and half conversions
// against the compiler's _Float16 and plain bit arithmetic, exhaustively where that is possible.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/format.h"

namespace cermet {
namespace {

std::vector<Dtype> all_dtypes() {
  std::vector<Dtype> dtypes;
  for (int i = 0; i < kDtypeCount; ++i) dtypes.push_back(static_cast<Dtype>(i));
  return dtypes;
}

Dtype named(const std::string& name) {
  const std::optional<Dtype> dtype = dtype_from_name(name);
  EXPECT_TRUE(dtype.has_value()) << name;
  return dtype.value_or(Dtype::boolean);
}

std::vector<std::vector<std::string>> read_table() {
  std::ifstream file(CERMET_TESTS_DIR "/base/promotion.txt");
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words),
                      std::istream_iterator<std::string>());
  }
  return rows;
}

// The wheel has no complex128.
bool loses_bits(const std::string& from, const std::string& to) {
  return from == "float64" && to == "complex64";
}

TEST(Dtype, Float64WithComplexIsComplex128) {
  EXPECT_EQ(promote(Dtype::float64, Dtype::complex64), Dtype::complex128);
  EXPECT_EQ(promote_weak(Dtype::float64, DtypeCategory::complex), Dtype::complex128);
}

TEST(Dtype, PromotionIsThatOfTheWheel) {
  const auto rows = read_table();
  ASSERT_EQ(rows.size(), 14u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 1 + rows.size() + 4);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (loses_bits(row[0], row[i + 1]) || loses_bits(rows[i][0], row[i + 1])) continue;
      EXPECT_EQ(name_of(promote(named(row[0]), named(rows[i][0]))), row[i + 1])
          << row[0] << " with " << rows[i][0];
    }
    const DtypeCategory scalars[] = {DtypeCategory::boolean, DtypeCategory::signed_integer,
                                     DtypeCategory::floating, DtypeCategory::complex};
    for (int i = 0; i < 4; ++i) {
      if (loses_bits(row[0], row[rows.size() + 1 + i])) continue;
      EXPECT_EQ(name_of(promote_weak(named(row[0]), scalars[i])), row[rows.size() + 1 + i])
          << row[0] << " with a scalar of category " << i;
    }
  }
}

TEST(Dtype, PromotionIsCommutativeIdempotentAndAbsorbing) {
  for (Dtype a : all_dtypes()) {
    EXPECT_EQ(promote(a, a), a);
    EXPECT_EQ(promote(Dtype::boolean, a), a);
    EXPECT_EQ(promote(Dtype::complex128, a), Dtype::complex128);
    for (Dtype b : all_dtypes()) {
      EXPECT_EQ(promote(a, b), promote(b, a));
      EXPECT_EQ(promote(promote(a, b), a), promote(a, b)) << name_of(a) << " " << name_of(b);
    }
  }
}

// MLX's rules are associative except where uint64 meets a signed type (float32 comes out of two
// integers) and a half type follows: everything else is a lattice.
TEST(Dtype, PromotionIsAssociativeOutsideUint64WithSigned) {
  for (Dtype a : all_dtypes()) {
    for (Dtype b : all_dtypes()) {
      for (Dtype c : all_dtypes()) {
        const Dtype left = promote(promote(a, b), c);
        const Dtype right = promote(a, promote(b, c));
        bool has_uint64 = false;
        bool has_signed = false;
        bool has_half = false;
        for (Dtype dtype : {a, b, c}) {
          has_uint64 |= dtype == Dtype::uint64;
          has_signed |= category_of(dtype) == DtypeCategory::signed_integer;
          has_half |= is_half(dtype);
        }
        if (has_uint64 && has_signed && has_half) continue;
        EXPECT_EQ(left, right) << name_of(a) << " " << name_of(b) << " " << name_of(c);
      }
    }
  }
}

TEST(Dtype, PromotionNeverLowersTheCategory) {
  for (Dtype a : all_dtypes()) {
    for (Dtype b : all_dtypes()) {
      EXPECT_GE(category_of(promote(a, b)), std::max(category_of(a), category_of(b)));
    }
    for (int c = 0; c <= static_cast<int>(DtypeCategory::complex); ++c) {
      const Dtype result = promote_weak(a, static_cast<DtypeCategory>(c));
      EXPECT_GE(category_of(result), category_of(a));
      if (category_of(a) > static_cast<DtypeCategory>(c)) {
        EXPECT_EQ(result, a);
      }
    }
  }
}

TEST(Dtype, NamesRoundTripAndPrint) {
  for (Dtype a : all_dtypes()) EXPECT_EQ(dtype_from_name(name_of(a)), a);
  EXPECT_EQ(dtype_from_name("float8"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(fmt::format("{} of {:>8}", Dtype::bfloat16, Dtype::boolean), "bfloat16 of     bool");
}

TEST(Dtype, PropertiesAgreeWithTheStorageTypes) {
  for (Dtype a : all_dtypes()) {
    visit_dtype(a, [a]<typename T>(std::type_identity<T>) {
      EXPECT_EQ(size_of(a), sizeof(T));
      if constexpr (std::is_arithmetic_v<T>) {
        const bool integral = std::is_integral_v<T> && !std::is_same_v<T, bool>;
        EXPECT_EQ(is_integer(a), integral);
        EXPECT_EQ(is_signed(a), std::is_signed_v<T>);
        EXPECT_EQ(is_floating(a), std::is_floating_point_v<T>);
        EXPECT_EQ(compute_dtype(a), a);
        EXPECT_EQ(to_inexact(a), std::is_floating_point_v<T> ? a : Dtype::float32);
      }
    });
  }
  for (Dtype half : {Dtype::float16, Dtype::bfloat16}) {
    EXPECT_TRUE(is_half(half) && is_floating(half) && is_signed(half) && is_inexact(half));
    EXPECT_EQ(compute_dtype(half), Dtype::float32);
    EXPECT_EQ(to_inexact(half), half);
  }
  EXPECT_EQ(real_of(Dtype::complex64), Dtype::float32);
  EXPECT_EQ(real_of(Dtype::complex128), Dtype::float64);
  EXPECT_EQ(compute_dtype(Dtype::complex128), Dtype::float64);
  EXPECT_EQ(real_of(Dtype::int8), Dtype::int8);
  EXPECT_TRUE(is_complex(Dtype::complex64) && is_inexact(Dtype::complex64));
  EXPECT_FALSE(is_floating(Dtype::complex64));
}

template <typename Half>
Half from_bits(uint16_t bits) {
  Half half;
  half.bits = bits;
  return half;
}

uint16_t compiler_half_bits(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

TEST(Float16, EveryValueWidensAsTheCompilerDoes) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float expected = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    const float got = static_cast<float>(from_bits<Float16>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got));
      EXPECT_EQ(std::signbit(got), (bits & 0x8000) != 0);
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << bits;
      EXPECT_EQ(Float16(got).bits, bits);
    }
  }
}

// Around each half value and each midpoint between neighbours, and 2^20 random floats.
TEST(Float16, NarrowingRoundsAsTheCompilerDoes) {
  auto compare = [](float value) {
    ASSERT_EQ(Float16(value).bits, compiler_half_bits(value)) << std::bit_cast<uint32_t>(value);
  };
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = static_cast<float>(from_bits<Float16>(bits));
    const float next = static_cast<float>(from_bits<Float16>(bits + 1));
    if (!std::isfinite(value)) continue;
    const float middle = std::isfinite(next) ? value / 2 + next / 2 : std::copysign(65520.f, value);
    for (float base : {value, middle}) {
      compare(base);
      compare(std::nextafter(base, INFINITY));
      compare(std::nextafter(base, -INFINITY));
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 1 << 20; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value)) compare(value);
  }
  compare(INFINITY);
  compare(-INFINITY);
  compare(std::numeric_limits<float>::denorm_min());
}

TEST(BFloat16, EveryValueWidensExactlyAndNarrowsBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float got = static_cast<float>(from_bits<BFloat16>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(got), bits << 16);
    if (!std::isnan(got)) {
      EXPECT_EQ(BFloat16(got).bits, bits);
    }
  }
}

// Nearest of the two neighbours by distance in double; the even one at equal distance.
uint16_t nearest_bfloat16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint16_t down = word >> 16;
  const uint16_t up = down + 1;
  auto widened = [](uint16_t bits) -> double {
    // Past the largest finite value, infinity stands for the next power of two.
    if ((bits & 0x7fff) == 0x7f80) return (bits & 0x8000) ? -0x1p128 : 0x1p128;
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  };
  const double below = std::fabs(value - widened(down));
  const double above = std::fabs(value - widened(up));
  if (below != above) return below < above ? down : up;
  return (down & 1) == 0 ? down : up;
}

TEST(BFloat16, NarrowingIsToTheNearestEven) {
  std::mt19937 random(11);
  auto compare = [](uint32_t word) {
    const float value = std::bit_cast<float>(word);
    if (!std::isfinite(value)) return;
    ASSERT_EQ(BFloat16(value).bits, nearest_bfloat16(value)) << word;
  };
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    for (uint32_t low : {0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) compare(bits << 16 | low);
  }
  for (int i = 0; i < 1 << 20; ++i) compare(random());
}

TEST(Halves, NanStaysNanWithItsSign) {
  for (uint32_t word : {0x7fc00000u, 0x7f800001u, 0x7fbfffffu, 0xffc00000u, 0xff800001u}) {
    const float nan = std::bit_cast<float>(word);
    EXPECT_TRUE(std::isnan(static_cast<float>(Float16(nan))));
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan))));
    EXPECT_EQ(Float16(nan).bits >> 15, word >> 31);
    EXPECT_EQ(BFloat16(nan).bits >> 15, word >> 31);
  }
}

}  // namespace
}  // namespace cermet
