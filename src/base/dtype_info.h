// SPDX-License-Identifier: MIT
// What may be asked of dtypes besides their arithmetic: the names of the C++ face, the lattice of
// categories of MLX, the limits of numbers.
#pragma once

#include <type_traits>
#include <variant>

#include "base/dtype.h"

namespace cermet {

// The names of the C++ face, cermet::float32; cermet.h takes them over, so that they do not stand in the
// way of other names inside the library.
namespace dtype_names {
#define X(id, name, type, bytes, category) inline constexpr Dtype id = Dtype::id;
CERMET_DTYPES(X)
#undef X
inline constexpr Dtype bool_ = Dtype::boolean;
using float16_t = Float16;
using bfloat16_t = BFloat16;
using complex64_t = std::complex<float>;
}  // namespace dtype_names

// Each dtype belongs to one leaf; bool to none but generic.
enum class Category : uint8_t {
  complexfloating,
  floating,
  inexact,
  signedinteger,
  unsignedinteger,
  integer,
  number,
  generic
};
namespace dtype_names {
inline constexpr Category complexfloating = Category::complexfloating,
                          floating = Category::floating, inexact = Category::inexact,
                          signedinteger = Category::signedinteger,
                          unsignedinteger = Category::unsignedinteger, integer = Category::integer,
                          generic = Category::generic;
}  // namespace dtype_names
enum class Kind : char { b = 'b', u = 'u', i = 'i', f = 'f', c = 'c', V = 'V' };

Category leaf_of(Dtype dtype);
Kind kindof(Dtype dtype);  // V: bfloat16, which NumPy has not

using DtypeOrCategory = std::variant<Dtype, Category>;
// Whether a belongs to b.
bool issubdtype(const DtypeOrCategory& a, const DtypeOrCategory& b);

// Limits of the real part's dtype; raises [finfo] value unless inexact.
struct finfo {
  explicit finfo(Dtype dtype);
  Dtype dtype;
  int bits = 0;
  double min = 0, max = 0, eps = 0, smallest_normal = 0;
};

// Raises [iinfo] value unless integer.
struct iinfo {
  explicit iinfo(Dtype dtype);
  Dtype dtype;
  int64_t min = 0;
  uint64_t max = 0;
};

// The dtype of a C++ type / of numbers of the type where none is asked for, which like Python's are
// float32 and complex64 at most.
template <typename T>
constexpr Dtype exact_dtype() {
  if constexpr (std::is_same_v<T, bool>) {
    return Dtype::boolean;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr bool wide = sizeof(T) > 4, narrow = sizeof(T) == 1, half = sizeof(T) == 2;
    if constexpr (std::is_signed_v<T>)
      return wide ? Dtype::int64 : narrow ? Dtype::int8 : half ? Dtype::int16 : Dtype::int32;
    else return wide ? Dtype::uint64 : narrow ? Dtype::uint8 : half ? Dtype::uint16 : Dtype::uint32;
  } else if constexpr (std::is_same_v<T, float>) {
    return Dtype::float32;
  } else if constexpr (std::is_same_v<T, double>) {
    return Dtype::float64;
  } else if constexpr (std::is_same_v<T, Float16>) {
    return Dtype::float16;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return Dtype::bfloat16;
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    return Dtype::complex64;
  } else {
    static_assert(std::is_same_v<T, std::complex<double>>, "no dtype has elements of this type");
    return Dtype::complex128;
  }
}

template <typename T>
constexpr Dtype default_dtype_of() {
  if constexpr (std::is_same_v<T, double>) return Dtype::float32;
  else if constexpr (std::is_same_v<T, std::complex<double>>) return Dtype::complex64;
  else return exact_dtype<T>();
}

template <typename T>
struct TypeToDtype {
  constexpr operator Dtype() const { return default_dtype_of<T>(); }
};

// What an element may be given as.
template <typename T>
concept ElementType =
    std::is_arithmetic_v<T> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16> ||
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// n elements of one dtype as elements of another: as static_cast does, complex to real by the real part.
void convert_elements(const void* from, Dtype from_dtype, void* to, Dtype to_dtype, size_t n);

}  // namespace cermet
