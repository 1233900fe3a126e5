// SPDX-License-Identifier: MIT
// Entry points that run in rounds: a chunk loop of spans that is called kCarryEntry takes what the one before
// it made of the same items, and makes what the one after it takes of them. Its spans run in order, each
// when those before it are done, so they may pass on values in a Local of scope kernel. The three may run for
// some items, then for the next ones: what the first one reads is in the cache still when the last one does.
#pragma once

#include "kernel/ir.h"

namespace cermet::ir {

inline constexpr std::string_view kCarryEntry = "carries";

inline bool is_in_order(const For& chunk) {
  return chunk.axes.size() == 2 && chunk.entry.starts_with(kCarryEntry);
}

}  // namespace cermet::ir
