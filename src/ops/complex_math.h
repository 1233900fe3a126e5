// SPDX-License-Identifier: MIT
// Complex arithmetic on lanes (re, im), in core and math codes of the kernel IR. Branch cuts as in
// C99 Annex G up to the sign of zero; formulas after Kahan, "Branch Cuts for Complex Elementary
// Functions" (1987), so that no intermediate result overflows where the result does not.
#pragma once

#include "graph/op.h"

namespace cermet::rules {

class ComplexMath {
 public:
  // `dtype`: float32 or float64, the dtype of both parts.
  ComplexMath(ir::Builder& builder, Dtype dtype) : b_(builder), dtype_(dtype) {}

  using E = ir::ExprId;
  E constant(double v) { return b_.constant(dtype_, v); }

  Lane add(Lane a, Lane b) { return {b_.add(a.re, b.re), b_.add(a.im, b.im)}; }
  Lane sub(Lane a, Lane b) { return {b_.sub(a.re, b.re), b_.sub(a.im, b.im)}; }
  Lane neg(Lane a) { return {neg(a.re), neg(a.im)}; }
  Lane conj(Lane a) { return {a.re, neg(a.im)}; }
  Lane scale(Lane a, E factor) { return {b_.mul(a.re, factor), b_.mul(a.im, factor)}; }
  Lane mul(Lane a, Lane b);
  Lane div(Lane a, Lane b);  // Smith's method
  E abs(Lane a);
  Lane sign(Lane a);  // a / |a|, 0 for 0
  Lane sqrt(Lane a);
  Lane exp(Lane a);
  Lane expm1(Lane a);
  Lane log(Lane a);
  Lane log1p(Lane a);
  Lane pow(Lane a, Lane b);
  Lane sinh(Lane a);
  Lane cosh(Lane a);
  Lane tanh(Lane a);
  Lane sin(Lane a) { return turned_back(sinh(turned(a))); }  // sin z = -i sinh(iz)
  Lane cos(Lane a) { return cosh(turned(a)); }
  Lane tan(Lane a) { return turned_back(tanh(turned(a))); }
  Lane asin(Lane a);
  Lane acos(Lane a);
  Lane atanh(Lane a);
  Lane acosh(Lane a);
  Lane asinh(Lane a) { return turned_back(asin(turned(a))); }
  Lane atan(Lane a) { return turned_back(atanh(turned(a))); }
  Lane logaddexp(Lane a, Lane b);
  // a < b in the order of (re, im).
  E less(Lane a, Lane b);
  E is_nan(Lane a);

 private:
  E neg(E a) { return b_.unary(ir::Code::neg, a); }
  E call(ir::Code code, E a) { return b_.unary(code, a); }
  E magnitude(E a) { return b_.unary(ir::Code::abs, a); }
  E growing(ir::Code code, E x, E factor);                // code(x) factor; of exp, sinh, cosh
  E norm_less_one(Lane a);                                // |a|² - 1
  E with_sign(E size, E sign);                            // |size| with the sign of `sign`
  Lane turned(Lane a) { return {neg(a.im), a.re}; }       // i a
  Lane turned_back(Lane a) { return {a.im, neg(a.re)}; }  // -i a
  Lane plus_one(Lane a) { return {b_.add(a.re, constant(1)), a.im}; }
  Lane one_minus(Lane a) { return {b_.sub(constant(1), a.re), neg(a.im)}; }

  ir::Builder& b_;
  Dtype dtype_;
};

}  // namespace cermet::rules
