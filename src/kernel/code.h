// SPDX-License-Identifier: MIT
// The operations of kernel IR.
#pragma once

#include <cstdint>
#include <string_view>

namespace cermet::ir {

// X(enumerator, operands). Core codes are legal after `lower`.
#define CERMET_CORE_CODES(X)                                                                      \
  X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(rem, 2) X(neg, 1) X(abs, 1) X(fma, 3) X(min, 2)       \
  X(max, 2) X(eq, 2) X(ne, 2) X(lt, 2) X(le, 2) X(select, 3) X(bit_and, 2) X(bit_or, 2)           \
  X(bit_xor, 2) X(bit_not, 1) X(shl, 2) X(shr, 2) X(rotl, 2) X(cast, 1) X(bitcast, 1) X(sqrt, 1)  \
  X(floor, 1) X(ceil, 1) X(trunc, 1) X(rint, 1) X(scale2, 2) X(fract, 1) X(cast_normal, 1)
// Math codes are replaced by pass `expand` unless the target has them natively. threefry(k0, k1, c0,
// c1) has two results, taken by Get; all else has one.
#define CERMET_MATH_CODES(X)                                                                      \
  X(exp, 1) X(exp_nonpositive, 1) X(exp_nonpositive_bfloat16, 1) X(exp2, 1) X(expm1, 1)           \
  X(log, 1) X(log2, 1) X(log10, 1) X(log1p, 1) X(sin, 1) X(cos, 1) X(tan, 1) X(asin, 1)           \
  X(acos, 1) X(atan, 1) X(atan2, 2) X(sinh, 1) X(cosh, 1) X(tanh, 1) X(asinh, 1) X(acosh, 1)      \
  X(atanh, 1) X(erf, 1) X(erfinv, 1) X(sigmoid, 1) X(pow, 2) X(rsqrt, 1) X(threefry, 4)

// scale2(x, n) = x · 2^n for a float x and an integral float n, |n| <= -2 · min exponent, correctly rounded where it
// is normal; beyond, left open. fract(x) = x - floor(x) for a finite x >= 0, else left open, as a zero's sign. cast_normal
// is a float32 as bfloat16, or 0 for a subnormal one. select(c, a, b) = c ? a : b with a bool c. exp_nonpositive(x) is e^x
// for x <= 0 as it counts beside 1: 0 below 2^-99.5, for x > 0 left open; with _bfloat16 as near as that dtype can tell.
enum class Code : uint8_t {
#define X(id, arity) id,
  CERMET_CORE_CODES(X) CERMET_MATH_CODES(X)
#undef X
};

int arity_of(Code code);
bool is_math(Code code);
std::string_view name_of(Code code);

}  // namespace cermet::ir
