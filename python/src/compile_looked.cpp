// SPDX-License-Identifier: MIT
#include "compile_looked.h"

#include <algorithm>
#include <cstring>

#include "ops/ops.h"

namespace cermet::python {

void LookedValues::look(Node& placeholder) {
  for (size_t i = 0; i < values_.size(); i++) {
    if (!values_[i] || placeholders_[i].node().get() != &placeholder) continue;
    const array known(values_[i]);
    known.eval();
    const Node& value = *values_[i];
    for (const Dim& dim : placeholder.shape.dims()) (void)static_cast<int64_t>(dim);
    placeholder.buffer = value.buffer;
    placeholder.layout = value.layout;
    placeholder.set_pending(0, 0);
    placeholder.state.store(NodeState::ready, std::memory_order_release);
    looked_.emplace_back(i, known);
    return;
  }
}

bool are_the_same(const LookedValues::List& looked, std::span<const array* const> inputs) {
  return std::ranges::all_of(looked, [&](const auto& was) {
    const auto& [at, before] = was;
    const array& now = *inputs[at];
    if (now.node() == before.node()) return true;
    if (now.dtype() != before.dtype() || now.shape() != before.shape()) return false;
    const array a = contiguous(before), b = contiguous(now);
    return std::memcmp(a.data(), b.data(), a.nbytes()) == 0;
  });
}

bool are_evaluated(const LookedValues::List& looked, std::span<const array* const> inputs) {
  return std::ranges::all_of(looked, [&](const auto& was) {
    const auto& node = inputs[was.first]->node();
    return node == was.second.node() || node->is_ready();
  });
}

}  // namespace cermet::python
