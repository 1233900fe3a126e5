// SPDX-License-Identifier: MIT
#include "graph/custom_call.h"

#include "base/error.h"

namespace cermet {

constinit thread_local int64_t NodeScope::current_ = 0;

NodeScope::NodeScope() : before_(current_) {
  static constinit std::atomic<int64_t> last{0};
  number_ = current_ = last.fetch_add(1, std::memory_order_relaxed) + 1;
}

CallRules::Parts CallRules::vjp(const CustomCall&, const Arrays&, const Arrays&) const {
  throw_internal(__FILE__, __LINE__, "a call without a vjp of its own was asked for it");
}

Arrays CallRules::jvp(const CustomCall&, const Parts&) const {
  throw_internal(__FILE__, __LINE__, "a call without a jvp of its own was asked for it");
}

Arrays CallRules::vmap(const CustomCall&, const Arrays&, const std::vector<bool>&,
                       const Dim&) const {
  throw_internal(__FILE__, __LINE__, "a call without a vmap of its own was asked for it");
}

}  // namespace cermet
