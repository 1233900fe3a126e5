// SPDX-License-Identifier: MIT
// Lane loops over short axes: places that are quotients and remainders of the lane's number, and loads
// there. Compiled as interpreted, with divisors of all kinds, nothing touched outside the pages of the
// buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "kernel/compiled.h"
#include "kernel/random_input.h"
#include "kernel/run.h"

namespace cermet {
namespace {

const std::vector<int64_t> kDivisors = {0, 1, 2, 3, 5, 8, 15, 16, 31, 63, 64, 65, 127, 128, 1000};
const std::vector<int64_t> kPoints = {0, 1, 7, 33, 1037};

// As kernels divide.
int64_t quotient(int64_t x, int64_t d) { return d == 0 ? 0 : x / d; }
int64_t remainder(int64_t x, int64_t d) { return d == 0 ? 0 : x % d; }

TEST(CodegenShort, QuotientsAndRemainders) {
  const ir::Kernel kernel = ir::parse(R"(kernel {
  param p0 int64 out
  param p1 int64 out
  param p2 int64 out
  param p3 uint8 out
  axis a0
  axis a1
  axis a2
  axis a3 variable
  axis a4 variable
  for chunk (a3) grid 1 {
    for lane (a4) begin 0 end extent(a0) {
      %0 = div(a4, extent(a1))
      %1 = rem(%0, extent(a2))
      store p0[a4] = %0
      store p1[a4] = rem(a4, extent(a1))
      store p2[a4] = sub(mul(%1, 3), div(%0, extent(a2)))
      store p3[a4] = cast.uint8(%1)
    }
  }
})");
  std::vector<KernelInput> inputs;
  for (int64_t points : kPoints)
    for (int64_t inner : kDivisors)
      for (int64_t middle : {0, 1, 3, 64, 100})
        inputs.push_back(random_input(kernel, std::vector<int64_t>(4, points),
                                      {points, inner, middle}, {}, 1, true));
  expect_as_interpreted(kernel, inputs);
}

// Whether the element for point i is wanted, of a mask with `few`.
using Wanted = bool (*)(int64_t i, int64_t divisor, int64_t few);

// What is loaded at quotient * strides[0] + remainder * strides[1], from the first element wanted to the
// last: nothing else is there.
KernelInput input_at(const ir::Kernel& kernel, int64_t points, int64_t divisor,
                     const std::vector<int64_t>& strides, Wanted wanted) {
  const int64_t few = 1 + divisor / 2;
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (int64_t i = 0; i < points; ++i) {
    if (!wanted(i, divisor, few)) continue;
    const int64_t at = quotient(i, divisor) * strides[0] + remainder(i, divisor) * strides[1];
    least = std::min(least, at);
    most = std::max(most, at);
  }
  if (least > most) least = most = 0;
  KernelInput input = random_input(kernel, {most - least + 1, points, 0}, {points, divisor},
                                   strides, static_cast<unsigned>(points + divisor), true);
  input.before[0] = -least;
  input.scalars[2] = static_cast<uint64_t>(few);
  return input;
}

// With strides s0 and s1 for a divisor n.
using Strides = std::function<std::vector<std::vector<int64_t>>(int64_t n)>;

std::vector<std::vector<int64_t>> various(int64_t n) {
  return {{1, 0},     {0, 1},  {1, 1},  {n, 1}, {n, -1},  {-n, 1},
          {n + 1, 1}, {-1, 2}, {40, 7}, {0, 0}, {-n, -1}, {2 * n, 2}};
}

void check_loads(
    Dtype dtype, const std::string& value,
    Wanted wanted = [](int64_t, int64_t, int64_t) { return true; },
    const Strides& strides_of = various) {
  SCOPED_TRACE(name_of(dtype));
  const ir::Kernel kernel = ir::parse(fmt::format(R"(kernel {{
  param p0 {0} in
  param p1 {0} out
  param p2 int64 scalar
  axis a0
  axis a1
  axis a2 variable
  axis a3 variable
  strides 2
  for chunk (a2) grid 1 {{
    for lane (a3) begin 0 end extent(a0) {{
      %0 = div(a3, extent(a1))
      %1 = rem(a3, extent(a1))
      store p1[a3] = {1}
    }}
  }}
}})",
                                                  name_of(dtype), value));
  std::vector<KernelInput> inputs;
  for (int64_t points : kPoints)
    for (int64_t n : kDivisors)
      for (const std::vector<int64_t>& strides : strides_of(n)) {
        inputs.push_back(input_at(kernel, points, n, strides, wanted));
      }
  expect_as_interpreted(kernel, inputs);
}

const std::vector<Dtype> kWidths = {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::uint8,
                                    Dtype::int16,   Dtype::boolean, Dtype::int64,   Dtype::int32};

TEST(CodegenShort, Loads) {
  for (Dtype d : kWidths) check_loads(d, "load(p0[%0*s0 + %1*s1])");
}

TEST(CodegenShort, EveryNthElement) {
  const auto all = [](int64_t, int64_t, int64_t) { return true; };
  const auto even = [](int64_t n) {
    std::vector<std::vector<int64_t>> strides;
    for (int64_t s : {-1, 2, -2, 3, 0, 7, -40})
      if (n > 0) strides.push_back({n * s, s});
    return strides;
  };
  for (Dtype d : kWidths) check_loads(d, "load(p0[a3*s1])", all, even);
}

TEST(CodegenShort, MaskedLoads) {
  for (Dtype d : kWidths) {
    const std::string zero = d == Dtype::boolean ? "false"
                             : d == Dtype::int64 ? "0"
                                                 : fmt::format("{}(0)", name_of(d));
    check_loads(
        d, fmt::format("load(p0[%0*s0 + %1*s1], mask lt(%1, p2), else {})", zero),
        [](int64_t i, int64_t divisor, int64_t few) { return remainder(i, divisor) < few; });
    check_loads(d, fmt::format("load(p0[%0*s0 + %1*s1], mask le(p2, a3), else {})", zero),
                [](int64_t i, int64_t, int64_t few) { return i >= few; });
  }
}

TEST(CodegenShort, MixedWidths) {
  check_loads(Dtype::float32,
              "add(load(p0[%0*s0 + %1*s1]), cast.float32(cast.float16(cast.float32(%1))))");
  check_loads(Dtype::bfloat16, "load(p0[%0*s0 + %1*s1])");
  check_loads(Dtype::float16,
              "cast.float16(mul(cast.float32(load(p0[%0*s0 + %1*s1])), "
              "float32(0.5)))");
}

}  // namespace
}  // namespace cermet
