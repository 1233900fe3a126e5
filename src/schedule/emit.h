// SPDX-License-Identifier: MIT
// Writes a region as kernel IR. Sizes, strides and offsets become words of the record, constants become
// scalars, so the kernel depends on structure alone; neighbouring axes that every access walks as one
// are collapsed, and short innermost ones that not every access does (flat.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/ir.h"
#include "schedule/regions.h"

namespace cermet::schedule {

// A parameter of the kernel, in the order of ir::Kernel::params.
struct Operand {
  enum class Kind : uint8_t { buffer, scalar, constant, status } kind = Kind::buffer;
  Id value = -1;                 // buffer: the node whose memory it is (never a view)
  Dim offset = 0;                // buffer: bytes from that memory's layout start
  int scalar = -1;               // scalar: position among the program's scalars
  Number number;                 // constant
  Dtype dtype = Dtype::float32;  // scalar, constant
};

// What a failed Check means.
struct CheckSite {
  const char* op;
  int axis;
  Dim size, extent;
  Id node;
  bool is_unsigned;  // the index, of 64 bits
};

struct EmittedKernel {
  std::shared_ptr<const ir::Kernel> ir;  // equal ones of a program are one
  std::vector<Operand> operands;
  std::vector<Dim> extents;
  std::vector<Dim> strides;
  std::vector<CheckSite> sites;
  Id update_target = -1;  // update regions: the operand that starts as a copy of this node
  Dim updated = -1;       // update regions: elements that are written
  Dim flops = 0;
  std::optional<ir::Scheme> kept;  // of all products: as of ProductScheme
  // By node: the loops of its fold, outer to inner, which decide its bits.
  std::map<Id, std::vector<std::pair<ir::Order, Dim>>> folds;
};

// Where a node lies: the node whose memory holds it, its layout in that memory, and the dtype that it has
// there, of which the layout counts elements.
struct Location {
  Id root;
  Layout layout;
  Dtype dtype;
};
Location locate(const Regions& regions, Id id);

EmittedKernel emit_region(Regions& regions, int region);

}  // namespace cermet::schedule
