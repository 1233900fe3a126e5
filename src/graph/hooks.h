// SPDX-License-Identifier: MIT
// The only upward door: what the graph asks of the layers above it, as function pointers set once when
// they are linked in. Nothing else in graph/ reaches up (runtime/poll.h has the runtime's own).
#pragma once

#include <memory>
#include <span>

#include "graph/node.h"

namespace cermet::hooks {

// Evaluates the nodes (item(), data(), bounded laziness). Set by schedule/eval.
extern void (*evaluate)(std::span<const NodeRef> roots);

// The user's frame: code object and instruction index. Set by the Python face; may be null.
extern Origin (*origin)();
// "file:line" of an origin, or "".
extern std::string (*describe_origin)(const Origin& origin);

// A trace with symbolic sizes and numbers (null: none is active on this thread).
class SymbolTrace : public SizeTrace {
 public:
  virtual void made(
      Node& node) = 0;  // after its shape rule: names sizes that it has computed of plain values
  // The expression of a symbolic number as an element of dtype; 0: it has become a constant, by a guard.
  virtual uint32_t cast(const Number& number, Dtype dtype) = 0;
  virtual void look(const Number& number) = 0;
  using SizeTrace::look;

 protected:
  ~SymbolTrace() = default;
};
extern constinit thread_local SymbolTrace* trace;

// The bounds of laziness: past them, inputs of a new node are evaluated first.
inline constexpr int64_t kMaxPendingNodes = 10'000;
inline constexpr int64_t kMaxPendingBytes = int64_t{1} << 30;

}  // namespace cermet::hooks
