// SPDX-License-Identifier: MIT
// The sum of the cotangents that come to one value. Where a loop reads slices or rows of it, each is zero
// but for a part; adding them up as they are would take time for parts times elements.
#pragma once

#include <optional>

#include "graph/op.h"

namespace cermet {

class CotangentSum {
 public:
  explicit CotangentSum(array first) { add(std::move(first)); }
  void add(array cotangent);
  array result() const;

 private:
  std::optional<array> whole_;  // of those with elements everywhere, added up
  Arrays padded_;               // zero but for a block
  Arrays scattered_;            // zero but where indices point
};

}  // namespace cermet
