// SPDX-License-Identifier: MIT
// Launches of equal kernels that do not need each other become batches, which run as one launch: the
// updates of all parameters in an optimizer's step, say, whatever their sizes. Launches move to the
// first of their batch, or the batch to them, as what they read and what reads them allows. No move
// raises the peak of memory, whether or not the program is given its inputs' memory, and none takes a
// value out of the cache between its maker and its reader. Depends on the program alone.
#pragma once

#include "schedule/program.h"

namespace cermet {

// The launches must be in order and have their code; outputs must be known.
void make_batches(Program& program);

}  // namespace cermet
