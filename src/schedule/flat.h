// SPDX-License-Identifier: MIT
// Axes that are walked as one although some accesses do not lie so: a loop over fewer elements than fill a
// vector takes as long as one over a vector, so short innermost axes become one with those around them.
// Accesses that do not lie so take their coordinates by division. Where elements of a short axis come from
// different arrays, or lie apart in some, vectors run across it instead, or elements that are but copied are moved
// together; of rows that are put far apart, each takes a part of a vector (KernelAxes::Vectors).
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "schedule/axes.h"

namespace cermet::schedule {

// Short rows of a kernel, so many that vectors of rows are done at once (kernel/tile_short.h).
inline constexpr int64_t kManyRows = 64;
inline constexpr int64_t kFewRows = 32;     // of which vectors are made beside short axes
inline constexpr int64_t kMostPlaces = 32;  // along these
// Elements of an axis along which vectors are not filled: one of float32.
inline constexpr int64_t kShort = 16;

// Per axis coefficient of one walk through memory or numbers.
class Walk {
 public:
  Dim& operator[](AxisId axis) {
    for (auto& [other, step] : steps_)
      if (other == axis) return step;
    steps_.push_back({axis, Dim(0)});
    return steps_.back().second;
  }
  bool has(AxisId axis) const {
    return std::ranges::any_of(steps_, [&](const auto& step) { return step.first == axis; });
  }
  Dim step(AxisId axis) const {  // 0: it stands still along it
    for (const auto& [other, step] : steps_)
      if (other == axis) return step;
    return 0;
  }

 private:
  InlineVector<std::pair<AxisId, Dim>, 4> steps_;
};

struct FlatAxis {
  AxisId axis;
  Dim size;
};
// flat[first .. last], walked as one, `step` elements at a time.
struct FlatRun {
  size_t first, last;
  Dim step;
};

// Of all axes of an element-wise kernel, outer to inner: the innermost ones that are to be one. Every
// store lies so. Empty: none, or too few points to take time.
std::vector<FlatAxis> find_flat(const std::vector<FlatAxis>& all, const std::vector<Walk>& stores);

// Rows that every load and store walks on from one to the next: the innermost two axes.
std::vector<FlatAxis> find_rows(const std::vector<FlatAxis>& all, const std::vector<Walk>& walks);

// What a walk takes of the flat axes, innermost first; what stands still is left out.
std::vector<FlatRun> runs_of(const Walk& walk, const std::vector<FlatAxis>& flat);

Dim size_of_run(const std::vector<FlatAxis>& flat, size_t first, size_t last);

}  // namespace cermet::schedule
