// SPDX-License-Identifier: MIT
// From lazy nodes to values: collect the pending tape, simplify, recognise patterns, cut into regions,
// place values, build (or find) the program, run it. eval and compile share all of it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/array.h"

namespace cermet {

// Evaluates and waits. Raises the error of the failing node.
void eval(std::span<const array> arrays);
void eval(std::initializer_list<array> arrays);
// Queues on the arrays' streams and returns.
void async_eval(std::span<const array> arrays);

// One launch of a plan. It may be a batch of equal kernels over different arrays: `ops`, `inputs` and
// `outputs` are then those of its members, one after the other.
struct KernelReport {
  std::string name, form, scheme, border, ir;  // scheme: of its products, if it has any
  int members = 1;
  struct Op {
    std::string name, origin;  // "file:line", or "" when unknown
  };
  std::vector<Op> ops;
  struct Operand {
    Dtype dtype;
    Shape shape;
  };
  std::vector<Operand> inputs, outputs;
  int64_t bytes_read = 0, bytes_written = 0, flops = 0;
};
// What evaluating the outputs would run, without running it. Arrays without data may stand in it.
std::vector<KernelReport> explain(std::span<const array> outputs);

}  // namespace cermet
