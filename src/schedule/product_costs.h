// SPDX-License-Identifier: MIT
// What a product would take by each scheme: counts of what the scheme does (kernel/tile_gemm.cpp, tile_panel.cpp)
// times what each takes, fitted to measurements by bench/gemm_tune.py --fit, which has the counts from here.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/product_scheme.h"

namespace cermet::schedule {

// How a processor multiplies: in vectors of 32 bytes alone (narrow; of 16 as well), of 64 half by half, of 64 whole
// (full), and these beside an L2 of 2 MiB.
enum class Processor : int8_t { narrow, half, full, large_l2 };
Processor processor_of(const ir::TargetFacts& facts);
std::string_view name_of(Processor processor);
std::optional<Processor> processor_named(std::string_view name);

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
// Of each scheme that could make the product there, small or not; none where no costs could be known.
std::vector<SchemeWork> work_of(const ProductShape& product, Processor processor);

}  // namespace cermet::schedule
