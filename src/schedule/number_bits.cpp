// SPDX-License-Identifier: MIT
#include "schedule/number_bits.h"

#include <algorithm>
#include <cstring>

namespace cermet::schedule {

uint64_t number_bits(const Number& number, Dtype dtype) {
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) -> uint64_t {
    T element;
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      element = T(static_cast<float>(number.kind == Number::Kind::integer
                                         ? static_cast<double>(number.integer)
                                         : number.real_imag.real()));
    } else {
      using Real = decltype([] {
        if constexpr (requires(T t) { t.real(); }) return T().real();
        else return T();
      }());
      element = number.kind == Number::Kind::integer || number.kind == Number::Kind::boolean
                    ? static_cast<Real>(number.integer)
                    : static_cast<Real>(number.real_imag.real());
    }
    uint64_t bits = 0;
    std::memcpy(&bits, &element, std::min(sizeof(bits), sizeof(element)));
    return bits;
  });
}

}  // namespace cermet::schedule
