// SPDX-License-Identifier: MIT
// What a traced function reads of arrays from outside: `if c > 2`, `c.item()`. The trace goes by their
// values, so it serves again only while these are bit for bit the same.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "bind.h"
#include "graph/known_values.h"

namespace cermet::python {

class LookedValues final : public KnownValues {
 public:
  // What each placeholder stands for; null where that may not be looked at.
  using Values = std::vector<NodeRef>;
  LookedValues(const Arrays& placeholders, Values values)
      : placeholders_(placeholders), values_(std::move(values)) {}

  void look(Node& placeholder) override;

  // Inputs of the trace, and what they were.
  using List = std::vector<std::pair<size_t, array>>;
  const List& looked() const { return looked_; }

 private:
  const Arrays& placeholders_;
  const Values values_;
  List looked_;
};

// Evaluates those that are not the same arrays.
bool are_the_same(const LookedValues::List& looked, std::span<const array* const> inputs);
// That has nothing to evaluate.
bool are_evaluated(const LookedValues::List& looked, std::span<const array* const> inputs);

}  // namespace cermet::python
