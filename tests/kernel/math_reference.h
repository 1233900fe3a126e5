// SPDX-License-Identifier: MIT
// What math functions should give: libm in double for float32, MPFR for float64, and the error of a
// result in units of the last place.
#pragma once

#include <mpfr.h>

#include <span>
#include <string>

#include "kernel/ir.h"

namespace cermet::ir {

struct UnaryRow {
  Code code;
  double (*libm)(double);                         // null: erfinv
  double low, high;                               // where |x| is interesting
  int (*mpfr)(mpfr_t, const mpfr_t, mpfr_rnd_t);  // null: made from others
};
std::span<const UnaryRow> unary_rows();

struct PairRow {
  Code code;
  double (*libm)(double, double);
  int (*mpfr)(mpfr_t, const mpfr_t, const mpfr_t, mpfr_rnd_t);
};
std::span<const PairRow> pair_rows();

// Half of the numbers are any at all, the others have exponents from -8 to 7.
float random_float(uint64_t bits);
double random_double(uint64_t bits);

// The value in double, right but for a few units of its last place: 2^-28 of those of a float. erfinv
// finds it from `near`, which must be close to the truth.
double reference(const UnaryRow& row, double x, double near);

// Error in units of the last place of the format at `truth`; inf for a wrong NaN, infinity or zero sign.
double ulps(float got, double truth);

// The worst result seen, with its arguments.
struct Worst {
  double error = 0, at = 0, at2 = 0, got = 0, truth = 0;
  void add(double e, double x, double y, double g, double t) {
    if (!(e <= error)) *this = {e, x, y, g, t};
  }
};
std::string describe(Code code, const Worst& worst);

}  // namespace cermet::ir
