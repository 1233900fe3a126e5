// SPDX-License-Identifier: MIT
// Matrix products by groups, as values of the kernel say: of parts of k, where both operands are 0
// outside of them; and of runs of rows that share a matrix. Blocks run over what is there, so the work is
// that of the groups alone.
#pragma once

#include <optional>
#include <vector>

#include "kernel/tile_product.h"

namespace cermet::ir {

// Operands that are 0 but at first <= k < past, which depends on neither m, n nor k. From now on they are
// what they are there, and no product reads them elsewhere.
std::optional<SumRange> take_sum_range(Source& source, const Roles& roles,
                                       std::vector<Product>& products);

// An axis of A that B has only in what chooses a matrix of it by an index that was loaded; kNone: there is
// none. B has `runs.at` in its place from now on.
AxisId take_runs(Source& source, const std::vector<AxisId>& stage, const Roles& roles,
                 std::vector<Product>& products, Runs& runs);

}  // namespace cermet::ir
