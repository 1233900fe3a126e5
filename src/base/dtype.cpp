// SPDX-License-Identifier: MIT
// Properties and promotion of dtypes, derived from CERMET_DTYPES; half conversions in integer
// arithmetic, so that they are the same on every compiler and target.
#include "base/dtype.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"

namespace cermet {
namespace {

struct Properties {
  std::string_view name;
  size_t bytes;
  DtypeCategory category;
};

constexpr std::array<Properties, kDtypeCount> kProperties = {{
#define X(id, name, type, bytes, category) {name, bytes, DtypeCategory::category},
    CERMET_DTYPES(X)
#undef X
}};

#define X(id, name, type, bytes, category) static_assert(sizeof(type) == bytes);
CERMET_DTYPES(X)
#undef X

const Properties& properties_of(Dtype dtype) { return kProperties[static_cast<size_t>(dtype)]; }

Dtype wider(Dtype a, Dtype b) { return size_of(a) >= size_of(b) ? a : b; }

// The smallest signed type that holds both; MLX gives float32 where there is none.
Dtype promote_mixed_sign(Dtype signed_type, Dtype unsigned_type) {
  switch (std::max(size_of(signed_type), 2 * size_of(unsigned_type))) {
    case 2: return Dtype::int16;
    case 4: return Dtype::int32;
    case 8: return Dtype::int64;
    default: return Dtype::float32;
  }
}

Dtype promote_same_category(Dtype a, Dtype b) {
  if (is_half(a) && is_half(b) && a != b) return Dtype::float32;
  return wider(a, b);
}

}  // namespace

Float16::Float16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint16_t sign = (word >> 16) & 0x8000;
  const uint32_t magnitude = word & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | ((magnitude >> 13) & 0x3ff);  // NaN: quiet, upper payload kept
  } else if (magnitude >= 0x477ff000) {
    half = 0x7c00;  // 65520 and above round to infinity
  } else if (magnitude >= 0x38800000) {
    half = ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13) - (112 << 10);
  } else if (magnitude >= 0x33000000) {
    // Subnormal: the 24-bit significand counted in units of 2^-24, rounded to nearest even.
    const int shift = 126 - static_cast<int>(magnitude >> 23);
    const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t low = (1u << (shift - 1)) - 1;
    half = (significand + low + ((significand >> shift) & 1)) >> shift;
  } else {
    half = 0;
  }
  bits = static_cast<uint16_t>(sign | half);
}

Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1f) {
    const uint32_t quiet = fraction != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

BFloat16::BFloat16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const bool is_nan = (word & 0x7fffffff) > 0x7f800000;
  const uint32_t rounded = is_nan ? word | 0x400000 : word + 0x7fff + ((word >> 16) & 1);
  bits = static_cast<uint16_t>(rounded >> 16);
}

BFloat16::operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

size_t size_of(Dtype dtype) { return properties_of(dtype).bytes; }
std::string_view name_of(Dtype dtype) { return properties_of(dtype).name; }
DtypeCategory category_of(Dtype dtype) { return properties_of(dtype).category; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  const auto found = std::ranges::find(kProperties, name, &Properties::name);
  if (found == kProperties.end()) return std::nullopt;
  return static_cast<Dtype>(found - kProperties.begin());
}

bool is_integer(Dtype dtype) {
  const DtypeCategory category = category_of(dtype);
  return category == DtypeCategory::unsigned_integer || category == DtypeCategory::signed_integer;
}

bool is_signed(Dtype dtype) { return category_of(dtype) >= DtypeCategory::signed_integer; }
bool is_floating(Dtype dtype) { return category_of(dtype) == DtypeCategory::floating; }
bool is_half(Dtype dtype) { return is_floating(dtype) && size_of(dtype) == 2; }
bool is_complex(Dtype dtype) { return category_of(dtype) == DtypeCategory::complex; }
bool is_inexact(Dtype dtype) { return category_of(dtype) >= DtypeCategory::floating; }

Dtype real_of(Dtype dtype) {
  if (!is_complex(dtype)) return dtype;
  return dtype == Dtype::complex64 ? Dtype::float32 : Dtype::float64;
}

Dtype compute_dtype(Dtype dtype) { return is_half(dtype) ? Dtype::float32 : real_of(dtype); }

Dtype promote(Dtype a, Dtype b) {
  if (category_of(a) == category_of(b)) return promote_same_category(a, b);
  const auto [low, high] = category_of(a) < category_of(b) ? std::pair{a, b} : std::pair{b, a};
  const bool mixed_sign = category_of(low) == DtypeCategory::unsigned_integer &&
                          category_of(high) == DtypeCategory::signed_integer;
  if (mixed_sign) return promote_mixed_sign(high, low);
  return low == Dtype::float64 && is_complex(high) ? Dtype::complex128 : high;
}

Dtype promote_weak(Dtype array, DtypeCategory scalar) {
  switch (scalar) {
    case DtypeCategory::boolean: return array;
    case DtypeCategory::unsigned_integer:
    case DtypeCategory::signed_integer: return array == Dtype::boolean ? Dtype::int32 : array;
    case DtypeCategory::floating: return to_inexact(array);
    case DtypeCategory::complex:
      return is_complex(array) ? array : promote(array, Dtype::complex64);
  }
  __builtin_unreachable();
}

Dtype to_inexact(Dtype dtype) { return is_inexact(dtype) ? dtype : Dtype::float32; }

}  // namespace cermet
