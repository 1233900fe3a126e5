// SPDX-License-Identifier: MIT
// A kernel in text form that should mean the same before and after `tile`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/run.h"

namespace cermet::ir {

using Numbers = std::vector<int64_t>;
int64_t product(const Numbers& numbers);

// A kernel in text form without its head, and how to make memory for it.
struct Case {
  std::string text;
  std::function<Numbers(const Numbers&)> strides = [](const Numbers&) { return Numbers{}; };
  std::function<Numbers(const Numbers&)> elements;  // by parameter that is a buffer, in order
  int64_t index_range = 0;  // integer buffers hold [0, index_range); 0: small numbers of both signs
  double scalar = 3;
  TargetFacts facts = {};
};

// Interprets it both ways, at each of the extents, and compares all memory.
void expect_same(const Case& c, const std::string& form, const std::vector<Numbers>& shapes);

}  // namespace cermet::ir
