// SPDX-License-Identifier: MIT
// The order in which a program's launches run: each after those whose values it reads, and so that few
// bytes are alive at once. Of the launches that could run next, one that frees at least as much as it
// allocates is taken first (that with the greatest gain), else the first of the graph's own order, which
// is depth first. After Sethi and Ullman, "The generation of optimal code for arithmetic expressions"
// (1970), as a list schedule. Depends on the program alone.
#pragma once

#include "schedule/program.h"

namespace cermet {

// The outputs of the program must be known.
void order_launches(Program& program);

}  // namespace cermet
