// SPDX-License-Identifier: MIT
// The element types, once: every table over dtypes is generated from CERMET_DTYPES.
// Promotion, promote(a, b), is MLX's; Python scalars are weak (they only raise the category: bool < integer < floating <
// complex); float16 with bfloat16 gives float32; float64 with complex numbers gives complex128, which MLX lacks.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cermet {

// X(enumerator, name, C++ storage type, bytes, category)
#define CERMET_DTYPES(X)                                             \
  X(boolean, "bool", bool, 1, boolean)                               \
  X(uint8, "uint8", uint8_t, 1, unsigned_integer)                    \
  X(uint16, "uint16", uint16_t, 2, unsigned_integer)                 \
  X(uint32, "uint32", uint32_t, 4, unsigned_integer)                 \
  X(uint64, "uint64", uint64_t, 8, unsigned_integer)                 \
  X(int8, "int8", int8_t, 1, signed_integer)                         \
  X(int16, "int16", int16_t, 2, signed_integer)                      \
  X(int32, "int32", int32_t, 4, signed_integer)                      \
  X(int64, "int64", int64_t, 8, signed_integer)                      \
  X(float16, "float16", ::cermet::Float16, 2, floating)              \
  X(bfloat16, "bfloat16", ::cermet::BFloat16, 2, floating)           \
  X(float32, "float32", float, 4, floating)                          \
  X(float64, "float64", double, 8, floating)                         \
  X(complex64, "complex64", std::complex<float>, 8, complex)         \
  X(complex128, "complex128", std::complex<double>, 16, complex)

enum class Dtype : uint8_t {
#define X(id, name, type, bytes, category) id,
  CERMET_DTYPES(X)
#undef X
};

#define X(id, name, type, bytes, category) +1
inline constexpr int kDtypeCount = 0 CERMET_DTYPES(X);
#undef X

// Ordered: a weak scalar raises an array's dtype only to a higher category.
enum class DtypeCategory : uint8_t { boolean, unsigned_integer, signed_integer, floating, complex };

// IEEE half and bfloat16 storage; conversions round to nearest even, NaN stays NaN.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

size_t size_of(Dtype dtype);            // bytes
std::string_view name_of(Dtype dtype);  // "float32"
std::optional<Dtype> dtype_from_name(std::string_view name);
DtypeCategory category_of(Dtype dtype);
bool is_integer(Dtype dtype);   // signed or unsigned, not bool
bool is_signed(Dtype dtype);    // signed integer, floating or complex
bool is_floating(Dtype dtype);  // real floating
bool is_half(Dtype dtype);      // float16 or bfloat16
bool is_complex(Dtype dtype);
bool is_inexact(Dtype dtype);  // floating or complex

// complex64 -> float32, complex128 -> float64, else itself.
Dtype real_of(Dtype dtype);

// The dtype of arithmetic in kernels: half types compute in float32, complex in pairs of real_of.
Dtype compute_dtype(Dtype dtype);

// The common dtype of two strong operands: commutative and total.
Dtype promote(Dtype a, Dtype b);

// The dtype of `array op python_scalar`, the scalar being of the given category.
Dtype promote_weak(Dtype array, DtypeCategory scalar);

// The dtype a floating-point function gives for an argument: itself when inexact, else float32.
Dtype to_inexact(Dtype dtype);

// Calls f(std::type_identity<T>{}) with the storage type of dtype.
template <typename F>
decltype(auto) visit_dtype(Dtype dtype, F&& f);

}  // namespace cermet

#include "base/dtype_visit.h"
