// SPDX-License-Identifier: MIT
// Operators on arrays: sugar for the functions of ops.h. A number next to an array is weak: it only
// raises the category of the array's dtype, never its width.
#pragma once

#include <concepts>

#include "ops/ops.h"

namespace cermet {

template <typename T>
concept Scalar = std::integral<T> || std::floating_point<T>;

// The number as an operand beside `a`, already of its shape: an elementwise op needs no other node.
array beside(const char* op, const array& a, const Number& value);

template <Scalar T>
Number scalar_number(T value) {
  if constexpr (std::same_as<T, bool>) return number(value);
  else if constexpr (std::integral<T>) return number(static_cast<int64_t>(value));
  else return number(static_cast<double>(value));
}

#define CERMET_OPERATOR(symbol, name)                                                 \
  inline array operator symbol(const array& a, const array& b) { return name(a, b); } \
  template <Scalar T>                                                                 \
  array operator symbol(const array& a, T b) {                                        \
    return name(a, beside(#name, a, scalar_number(b)));                               \
  }                                                                                   \
  template <Scalar T>                                                                 \
  array operator symbol(T a, const array& b) {                                        \
    return name(beside(#name, b, scalar_number(a)), b);                               \
  }
CERMET_OPERATOR(+, add)
CERMET_OPERATOR(-, subtract)
CERMET_OPERATOR(*, multiply)
CERMET_OPERATOR(/, divide)
CERMET_OPERATOR(%, remainder)
CERMET_OPERATOR(==, equal)
CERMET_OPERATOR(!=, not_equal)
CERMET_OPERATOR(<, less)
CERMET_OPERATOR(<=, less_equal)
CERMET_OPERATOR(>, greater)
CERMET_OPERATOR(>=, greater_equal)
CERMET_OPERATOR(&, bitwise_and)
CERMET_OPERATOR(|, bitwise_or)
CERMET_OPERATOR(^, bitwise_xor)
CERMET_OPERATOR(<<, left_shift)
CERMET_OPERATOR(>>, right_shift)
#undef CERMET_OPERATOR

inline array operator-(const array& a) { return negative(a); }
inline array operator~(const array& a) { return bitwise_invert(a); }

}  // namespace cermet
