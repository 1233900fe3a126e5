// SPDX-License-Identifier: MIT
// What the tests of ops share: short ways to make arrays and to compare values.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "ops/evaluate.h"
#include "ops/operators.h"

namespace cermet::test {

using Complex = std::complex<double>;
using Doubles = std::vector<double>;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline array vec(const Doubles& v, Dtype dtype = Dtype::float32) {
  return from_values(v, {static_cast<int64_t>(v.size())}, dtype);
}

inline array grid(const Doubles& v, Shape shape, Dtype dtype = Dtype::float32) {
  return from_values(v, std::move(shape), dtype);
}

// 0, 1, 2, ... in the given shape.
inline array counting(Shape shape, Dtype dtype = Dtype::float32) {
  Doubles v(shape.size());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i);
  return from_values(v, std::move(shape), dtype);
}

// Numbers in (-1, 1) that are all different, the same for the same arguments.
inline array scattered(Shape shape, Dtype dtype = Dtype::float32, int seed = 0) {
  Doubles v(shape.size());
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::remainder((static_cast<double>(i) + 1) * 0.6180339887 + seed * 0.37, 1) * 1.9;
  return from_values(v, std::move(shape), dtype);
}

// NaN equals NaN; tolerance is relative above 1.
inline void expect_near(const Doubles& got, const Doubles& want, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    else if (std::isinf(want[i])) EXPECT_EQ(got[i], want[i]) << "element " << i;
    else
      EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
  }
}

inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace cermet::test
