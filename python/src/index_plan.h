// SPDX-License-Identifier: MIT
// A Python index expression read against a shape: one entry for each dimension that the expression
// names, in its order. Reading and writing work from the same plan, so they agree on every form.
// Semantics are NumPy's: integers beside index arrays count as index arrays; the dimensions of the
// index arrays stand where the first of them stood if they are adjacent, else in front.
#pragma once

#include <optional>
#include <vector>

#include "bind.h"

namespace cermet::python {

struct IndexEntry {
  enum class Kind { slice, integer, newaxis, indices };
  Kind kind = Kind::slice;
  Dim start = 0;                 // slice, integer
  int64_t step = 1;              // slice
  Dim size = 1;                  // slice: elements taken; newaxis: 1
  bool whole = false;            // slice: all of the axis, forwards
  int axis = -1;                 // axis of the array with those of `masked`; -1: newaxis
  bool behind_gap = false;       // an ellipsis, though of no axes, stands before it
  std::optional<array> indices;  // indices: integers of any shape
};

struct IndexPlan {
  std::vector<IndexEntry> entries;
  AxisList
      masked;  // axes of size 1 that the array has to be given: 0-d masks are index arrays there
  bool advanced = false;  // there are index arrays
  bool adjacent = true;   // ... and all advanced entries stand side by side
  size_t first = 0;       // the first advanced entry
  Shape index_shape;      // their common shape

  // Integers are advanced beside index arrays.
  bool is_advanced(const IndexEntry& e) const {
    return advanced && (e.kind == IndexEntry::Kind::indices || e.kind == IndexEntry::Kind::integer);
  }
  bool is_kept(const IndexEntry& e) const {
    return e.kind == IndexEntry::Kind::slice || e.kind == IndexEntry::Kind::newaxis;
  }
  array with_masked(const array& a) const { return masked.empty() ? a : expand_dims(a, masked); }
  bool selects_all() const;  // the array itself
  Shape result_shape() const;
};

// Raises [index] index for integers and types that do not fit. Boolean masks are evaluated.
IndexPlan plan_index(const array& a, nb::handle index);

// The mask, when the whole expression is one boolean mask over leading axes (`...` and `:` after it
// apart): such an assignment needs no evaluation. Raises [index] index when it does not fit.
std::optional<array> sole_mask(const array& a, nb::handle index);

// It is made of arguments of a trace, which have no values.
bool is_unknown(const array& mask);

}  // namespace cermet::python
