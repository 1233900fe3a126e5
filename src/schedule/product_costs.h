// SPDX-License-Identifier: MIT
// What a product would take by each scheme: counts of what the scheme does (kernel/tile_gemm.cpp, tile_panel.cpp)
// times what each takes, fitted to measurements by bench/gemm_tune.py --fit.
#pragma once

#include "schedule/product_scheme.h"

namespace cermet::schedule {

// `given` where these costs are not known, or it is about as good.
ir::Scheme cheapest_of(const ProductShape& product, ir::Scheme given);

}  // namespace cermet::schedule
