// SPDX-License-Identifier: MIT
#include "graph/op.h"

#include <algorithm>

#include "base/error.h"
#include "graph/custom_call.h"
#include "graph/hooks.h"
#include "graph/laziness.h"
#include "graph/meant_scope.h"

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

constinit thread_local int UnboundedLaziness::depth_ = 0;
constinit thread_local MeantScope::Meant MeantScope::current_ = {};

namespace {

int64_t bytes_of(const Node& node) {
  auto bytes = static_cast<int64_t>(size_of(node.dtype));
  for (const Dim& dim : node.shape) bytes *= dim.value;  // without a guard
  return bytes;
}

// How far a large value is beyond what is small: 1 for one that is larger than its inputs together (scores
// of attention, a mask, a broadcast), one more for each op on such a value; 0 otherwise. What is made of it
// is likely to be small again: evaluating it on the way would store what a kernel never does.
uint8_t spread_of(const Node& node, int64_t bytes) {
  constexpr int64_t kLarge = 16 << 20;
  constexpr int kFar = 24;
  if (bytes < kLarge || node.call != nullptr) return 0;
  int64_t given = 0, largest = 0;
  int far = 0;
  for (const NodeRef& input : node.edges()) {
    const int64_t size = bytes_of(*input);
    given += size;
    if (input->is_ready() || input->spread == 0) continue;
    far = std::max<int>(far, input->spread);
    largest = std::max(largest, size);
  }
  if (bytes > given) return 1;
  return far > 0 && far < kFar && bytes <= 2 * largest ? static_cast<uint8_t>(far + 1) : 0;
}

}  // namespace

void bound_laziness(Node& node) {
  int32_t depth = 1;
  int64_t bytes = node.pending_bytes.load(std::memory_order_relaxed);
  for (const NodeRef& input : node.edges()) {
    if (input->is_ready()) continue;
    depth = std::max(depth, input->depth.load(std::memory_order_relaxed) + 1);
    bytes = std::max(bytes, input->pending_bytes.load(std::memory_order_relaxed));
  }
  const int64_t own = bytes_of(node);
  node.spread = spread_of(node, own);
  if (node.spread == 0) bytes += own;
  node.set_pending(depth, bytes);
  const bool over = depth > hooks::kMaxPendingNodes || bytes > hooks::kMaxPendingBytes;
  if (!over || node.was_traced() || UnboundedLaziness::is_active() || hooks::evaluate == nullptr)
    return;
  hooks::evaluate(node.edges());
  node.set_pending(1, 0);
}

void throw_too_few(const OpRow& row, size_t k, size_t given) {
  // The last of none is argument -1.
  fail(ErrorKind::value, row.name, "{} arguments were given; it takes at least {}", given,
       k < SIZE_MAX ? k + 1 : 1);
}

const OpRow& row_of(OpId id) { return *all_rows()[static_cast<size_t>(id)]; }

std::span<const OpRow* const> all_rows() {
  static constinit const OpRow* const table[] = {
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
  node.scope = NodeScope::current();
  node.stream = std::holds_alternative<std::monostate>(stream) ? default_stream(default_device())
                                                               : to_stream(stream);
  for (array& input : inputs) {
    if (input.node()->was_traced())
      node.trace = TraceScope::joined(node.trace, input.node()->trace);
    node.inputs.push_back(std::move(input).take_node());
  }
  if (!MeantScope::mark(node) && hooks::origin != nullptr) node.origin = hooks::origin();
  if (hooks::trace != nullptr) hooks::trace->made(node);
  bound_laziness(node);
  return array(std::move(ref));
}

}  // namespace cermet
