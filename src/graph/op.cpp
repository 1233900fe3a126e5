// SPDX-License-Identifier: MIT
#include "graph/op.h"

#include <algorithm>

#include "base/error.h"
#include "graph/hooks.h"

namespace cermet {

namespace {

std::string accepted_names(DtypeSet set) {
  std::string text;
  for (int i = 0; i < kDtypeCount; i++) {
    if ((set >> i & 1) != 0)
      text += (text.empty() ? "" : ", ") + std::string(name_of(static_cast<Dtype>(i)));
  }
  return text;
}

void check_dtypes(const OpRow& row, const Arrays& inputs) {
  for (const array& input : inputs) {
    CERMET_CHECK((row.accepts >> static_cast<int>(input.dtype()) & 1) != 0, dtype, row.name,
                 "an argument has dtype {}, shape {}; it takes {}", name_of(input.dtype()),
                 input.shape().to_string(), accepted_names(row.accepts));
  }
}

}  // namespace

void bound_laziness(Node& node) {
  node.depth = 1;
  for (const NodeRef& input : node.edges()) {
    if (input->is_ready()) continue;
    node.depth = std::max(node.depth, input->depth + 1);
    node.pending_bytes = std::max(node.pending_bytes, input->pending_bytes);
  }
  const UnguardedSizes unguarded;
  node.pending_bytes += node.shape.size() * static_cast<int64_t>(size_of(node.dtype));
  const bool over =
      node.depth > hooks::kMaxPendingNodes || node.pending_bytes > hooks::kMaxPendingBytes;
  if (!over || node.traced || hooks::evaluate == nullptr) return;
  hooks::evaluate(node.edges());
  node.depth = 1;
  node.pending_bytes = 0;
}

const OpRow& row_of(OpId id) { return *all_rows()[static_cast<size_t>(id)]; }

std::span<const OpRow* const> all_rows() {
  static const OpRow* const table[] = {
#define X(id, name, family) &rows::name,
      CERMET_OPS(X)
#undef X
  };
  return table;
}

array make_node(const OpRow& row, Arrays inputs, Params params, const StreamOrDevice& stream) {
  check_dtypes(row, inputs);
  NodeRef ref(new Node);
  Node& node = *ref;
  node.row = &row;
  node.params = std::move(params);
  const OpCall call{row, node.params, inputs};
  node.dtype = row.dtype.value(call);
  {
    const UnguardedSizes unguarded;  // a trace applies the rule again at other sizes
    node.shape = row.shape.value(call);
  }
  check_size(row.name, node.shape, node.dtype);
  node.stream = to_stream(stream);
  node.inputs.reserve(inputs.size());
  for (array& input : inputs) {
    node.traced |= input.node()->traced;
    node.inputs.push_back(std::move(input).take_node());
  }
  if (hooks::origin != nullptr) node.origin = hooks::origin();
  if (hooks::trace != nullptr) hooks::trace->made(node);
  bound_laziness(node);
  return array(std::move(ref));
}

}  // namespace cermet
