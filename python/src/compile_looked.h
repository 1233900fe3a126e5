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
  // The last placeholders stand for these values.
  LookedValues(const Arrays& placeholders, const Arrays& values)
      : placeholders_(placeholders), values_(values) {}

  void look(Node& placeholder) override;

  // Inputs of the trace, and what they were.
  using List = std::vector<std::pair<size_t, array>>;
  const List& looked() const { return looked_; }

 private:
  const Arrays &placeholders_, &values_;
  List looked_;
};

// Evaluates those that are not the same arrays.
bool are_the_same(const LookedValues::List& looked, std::span<const array* const> inputs);
// That has nothing to evaluate.
bool are_evaluated(const LookedValues::List& looked, std::span<const array* const> inputs);

}  // namespace cermet::python
