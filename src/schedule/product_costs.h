// SPDX-License-Identifier: MIT
// What a product would take by each scheme: counts of what the scheme does (kernel/tile_gemm.cpp, tile_panel.cpp)
// times what each takes, fitted to measurements by bench/gemm_tune.py --fit, which has the counts from here.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "schedule/product_scheme.h"

namespace cermet::schedule {

// Rows alone decide.
bool is_small(const ProductShape& product);
// `given` where costs are not known, or it is about as good, or the product is small.
ir::Scheme cheapest_of(const ProductShape& product, ir::Scheme given, const ir::TargetFacts& facts);

// How often a scheme does what; `family`: the column of the table that says what each takes.
struct SchemeWork {
  ir::Scheme scheme;
  std::string_view family;
  std::vector<std::pair<std::string_view, double>> counts;
};
// Of each scheme that could make the product with vectors of 32 or 64 bytes, small or not; none where no costs could
// be known.
std::vector<SchemeWork> work_of(const ProductShape& product, int vector_bytes, bool full_width);

}  // namespace cermet::schedule
