// SPDX-License-Identifier: MIT
// Ops from outside the library. A registered op has a row like the built-in ones, so every part that goes
// by rows knows it at once: derivatives, vmap, compile, fusion with its neighbours, explain, errors.
#pragma once

#include <string>

#include "graph/op.h"
#include "ops/rules.h"

namespace cermet {

struct CustomOp {
  // Letters, digits and _; no other op's.
  Required<std::string> name;
  // What it means, as a graph of other ops on its arguments. Without a kernel, this is what runs.
  Required<array (*)(const OpCall&)> reference;
  // An elementwise op may say what its kernel computes, from the arguments' elements (half types arrive as
  // float32, complex as pairs): kernel/builder.h. It then fuses like the built-in ops.
  Lane (*kernel)(LowerContext&, const NodeView&, std::span<const Lane> arguments) = nullptr;
  // How many arguments it takes; 0: those that the reference reads.
  size_t inputs = 0;
  // Derived: through the reference.
  Derivative derivative = Derived{};
  DtypeSet accepts = rules::kFloats;
  Domain domain = {};  // of arguments, where tests may sample it
  double max_ulp = 0;  // of the kernel, in float32, against the reference in float64; 0: exact
  std::string doc = {};
};

// The op's row, which lives as long as the process. Raises [register_op] value for a name that is taken or
// is none. Thread-safe.
const OpRow& register_op(CustomOp op);
// null: none of that name is registered.
const OpRow* find_op(std::string_view name);
// A call. Raises [name] value for another number of arguments than it takes, and where the reference or the
// kernel reads more than are given. With a kernel, the arguments broadcast and promote as those of built-in
// elementwise ops do.
array call_op(const OpRow& row, const Arrays& arguments, const StreamOrDevice& s = {});
// What the call means: the reference's graph on the same arguments.
array reference_of(const OpRow& row, const Arrays& arguments);

}  // namespace cermet
