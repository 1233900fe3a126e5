// SPDX-License-Identifier: MIT
// Where a mask holds. How many places that are depends on values, so it is found out at once.
#pragma once

#include "graph/array.h"

namespace cermet {

// One index array for each axis of the mask (one for none), in row-major order; int32 unless the mask is
// larger than that counts. Evaluates the mask; waits.
Arrays nonzero(const array& mask);

}  // namespace cermet
