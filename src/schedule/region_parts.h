// SPDX-License-Identifier: MIT
// Regions that are one only because they share numbers, such as the updates of equal parameters by one
// learning rate: nothing is gained by one loop over them. Taken apart into equal kernels they can be
// launched together with others of other sizes (batches.h).
#pragma once

#include <vector>

#include "schedule/regions.h"

namespace cermet::schedule {

// The parts that share nothing but single values and constants; one or none: there are no parts. Only
// element-wise regions have some.
std::vector<Region> parts_of(const Regions& regions, int region);

}  // namespace cermet::schedule
