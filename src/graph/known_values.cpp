// SPDX-License-Identifier: MIT
#include "graph/known_values.h"

namespace cermet {

constinit thread_local KnownValues* KnownValues::current_ = nullptr;

void KnownValues::look_at(std::span<const NodeRef> roots) {
  for (const NodeRef& node : pending_tape(roots))
    if (node->is_placeholder()) look(*node);
}

}  // namespace cermet
