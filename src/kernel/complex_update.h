// SPDX-License-Identifier: MIT
// What an Update of a complex element does, written once for the interpreter and all code generators:
// code(element, value) by parts, in core codes. The order of complex numbers is that of (re, im); of NaN
// and a number, NaN is taken, as everywhere.
#pragma once

#include <array>

#include "kernel/ir.h"

namespace cermet::ir {

template <typename V>
using Parts = std::array<V, 2>;  // re, im

// op(code, result dtype, operand dtype, std::array of V) -> V. `code`: add, mul, min or max.
template <typename V, typename Op>
Parts<V> update_complex(Code code, Dtype part, const Parts<V>& old, const Parts<V>& value,
                        Op&& op) {
  const auto real = [&](Code c, const V& a, const V& b) {
    return op(c, part, part, std::array<V, 2>{a, b});
  };
  if (code == Code::add) return {real(code, old[0], value[0]), real(code, old[1], value[1])};
  if (code == Code::mul) {
    const V rr = real(code, old[0], value[0]), ii = real(code, old[1], value[1]);
    const V ri = real(code, old[0], value[1]), ir = real(code, old[1], value[0]);
    return {real(Code::sub, rr, ii), real(Code::add, ri, ir)};
  }
  const auto test = [&](Code c, const V& a, const V& b) {
    return op(c, Dtype::boolean, part, std::array<V, 2>{a, b});
  };
  const auto both = [&](Code c, const V& a, const V& b) {
    return op(c, Dtype::boolean, Dtype::boolean, std::array<V, 2>{a, b});
  };
  const auto less = [&](const Parts<V>& a, const Parts<V>& b) {
    const V tie = both(Code::bit_and, test(Code::eq, a[0], b[0]), test(Code::lt, a[1], b[1]));
    return both(Code::bit_or, test(Code::lt, a[0], b[0]), tie);
  };
  const auto is_nan = [&](const Parts<V>& a) {
    return both(Code::bit_or, test(Code::ne, a[0], a[0]), test(Code::ne, a[1], a[1]));
  };
  const V better = code == Code::max ? less(old, value) : less(value, old);
  const V old_is_number =
      op(Code::bit_not, Dtype::boolean, Dtype::boolean, std::array<V, 1>{is_nan(old)});
  const V taken = both(Code::bit_and, both(Code::bit_or, better, is_nan(value)), old_is_number);
  const auto chosen = [&](int i) {
    return op(Code::select, part, part, std::array<V, 3>{taken, value[i], old[i]});
  };
  return {chosen(0), chosen(1)};
}

}  // namespace cermet::ir
