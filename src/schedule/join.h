// SPDX-License-Identifier: MIT
// Two kernels as one launch: the stages of one, then those of the other. A small table that one kernel
// alone reads (the angles of a rotary embedding) is made by that kernel's first stage.
#pragma once

#include <optional>
#include <vector>

#include "schedule/emit.h"

namespace cermet::schedule {

// For each region the one whose kernel it opens, or itself. Depends on the regions alone.
std::vector<int> find_tables(const Regions& regions);

// nullopt: the two see one buffer as different dtypes, or have too many axes.
std::optional<EmittedKernel> join_kernels(const EmittedKernel& first, const EmittedKernel& second);

}  // namespace cermet::schedule
