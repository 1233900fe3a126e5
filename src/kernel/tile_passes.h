// SPDX-License-Identifier: MIT
// Values of a row group that one pass leaves to a later one in a thread Local, because making them
// again would cost more than loading them.
#pragma once

#include <vector>

#include "kernel/tile_plan.h"

namespace cermet::ir {

struct KeptRow {
  ExprId expr;   // of the source; not a tuple
  int made_in;   // pass
  int last_use;  // pass
};

// `limit`: the cost up to which a value is made again.
std::vector<KeptRow> kept_rows(Source& source, const Plan& plan, const Group& group, int limit);
// Without those that take but one operation on others of them and on loads.
std::vector<KeptRow> kept_rows_but_cheap(Source& source, const Plan& plan, const Group& group,
                                         int limit);

}  // namespace cermet::ir
