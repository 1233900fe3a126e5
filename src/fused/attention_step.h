// SPDX-License-Identifier: MIT
// What is known of the steps of attention by their ops, and how a call of it is made.
#pragma once

#include <optional>
#include <span>

#include "graph/op.h"

namespace cermet::attention {

// Of a multiple of the value the step makes that multiple: it may come before rows are divided by their
// totals.
inline bool is_homogeneous(const AttentionStep& step) {
  const bool by_input =
      step.kind == AttentionStep::Kind::by_array || step.kind == AttentionStep::Kind::by_number;
  return by_input && (step.op == OpId::Multiply || (step.op == OpId::Divide && !step.is_second));
}

// The row's result for these inputs; nullopt if no one kernel makes it.
std::optional<array> as_kernel(std::span<const array> inputs, const AttentionParams& p,
                               const StreamOrDevice& s);

}  // namespace cermet::attention
