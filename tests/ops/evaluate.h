// SPDX-License-Identifier: MIT
// Evaluates graphs node by node: each node is lowered on its own into a stage kernel and run by the
// interpreter. It shares nothing with the schedule, so it tests what rows mean.
#pragma once

#include <complex>
#include <span>
#include <vector>

#include "ops/ops.h"

namespace cermet::test {

// Row-major elements; raises [index] index when a check of an index fails.
std::vector<std::complex<double>> complex_values(const array& a);
std::vector<double> values(const array& a);  // real parts

array from_values(std::span<const double> values, Shape shape, Dtype dtype = Dtype::float32);
array from_complex(std::span<const std::complex<double>> values, Shape shape,
                   Dtype dtype = Dtype::complex64);

}  // namespace cermet::test
