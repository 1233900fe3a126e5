// SPDX-License-Identifier: MIT
// Running kernels in tests: typed buffers, and comparison by bits where every NaN equals every
// other.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernel/interpret.h"
#include "kernel/passes.h"
#include "kernel/scalar_ops.h"

namespace cermet::ir {

template <typename T>
Argument argument(std::vector<T>& data) {
  return {.data = data.data(), .elements = static_cast<int64_t>(data.size())};
}

template <typename T>
Argument scalar_argument(T value) {
  Argument a;
  std::memcpy(&a.bits, &value, sizeof value);
  return a;
}

// Parses, verifies and interprets.
inline CheckFailure run_text(const std::string& text, std::vector<Argument> arguments,
                             std::vector<int64_t> extents, std::vector<int64_t> strides = {},
                             Arithmetic arithmetic = Arithmetic::exact) {
  const Kernel kernel = parse(text);
  verify(kernel);
  return interpret(kernel, arguments, extents, strides, arithmetic);
}

inline bool same_bits(Dtype dtype, uint64_t a, uint64_t b) {
  if (a == b) return true;
  return is_floating(dtype) && std::isnan(to_double(dtype, a)) && std::isnan(to_double(dtype, b));
}

// Empty, or where two memories of elements of one dtype differ.
inline std::string difference(Dtype dtype, const std::vector<char>& a, const std::vector<char>& b) {
  if (a.size() != b.size()) return "sizes differ";
  const size_t size = size_of(dtype);
  for (size_t at = 0; at + size <= a.size(); at += size) {
    uint64_t x = 0, y = 0;
    std::memcpy(&x, a.data() + at, size);
    std::memcpy(&y, b.data() + at, size);
    if (!same_bits(dtype, x, y))
      return fmt::format("element {}: {:#x} ({}) and {:#x} ({})", at / size, x, to_double(dtype, x),
                         y, to_double(dtype, y));
  }
  return "";
}

}  // namespace cermet::ir
