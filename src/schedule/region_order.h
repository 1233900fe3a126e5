// SPDX-License-Identifier: MIT
// Regions after those whose values they read.
#pragma once

#include "schedule/regions.h"

namespace cermet::schedule {

// Sets `order`, and leaves in each live region's `reads` every region once. Producers come first; among
// the ready ones, that whose work comes first in the graph.
void order_regions(Regions& regions);

}  // namespace cermet::schedule
