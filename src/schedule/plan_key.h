// SPDX-License-Identifier: MIT
// What graphs of equal plan have in common, as 128 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/shape.h"

namespace cermet {

struct PlanKey {
  uint64_t lo = 0x243f6a8885a308d3u, hi = 0x13198a2e03707344u;
  void add(uint64_t value) {
    lo = (lo ^ value) * 0x9e3779b97f4a7c15u;
    lo ^= lo >> 32;
    hi = (hi + value) * 0xc2b2ae3d27d4eb4fu;
    hi ^= hi >> 29;
  }
  void add(const Shape& shape) {
    add(static_cast<uint64_t>(shape.ndim()));
    for (const Dim& dim : shape.dims()) add(static_cast<uint64_t>(dim.value));
  }
  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const { return key.lo; }
};

}  // namespace cermet
