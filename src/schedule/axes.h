// SPDX-License-Identifier: MIT
// Axes of the iteration spaces that regions are made of, and coordinates over them. While regions grow,
// axes are unified (two regions become one) and split (a reshape cuts an axis): a coordinate written
// before stays right, because it is normalised through the table when it is read.
#pragma once

#include <optional>
#include <vector>

#include "graph/op.h"

namespace cermet::schedule {

using AxisId = ir::AxisId;

class AxisTable {
 public:
  AxisId add(const Dim& size);
  const Dim& size(AxisId axis) const { return entries_[axis].size; }
  // Axis `from` is the same as `to` from now on; sizes are equal.
  void unify(AxisId from, AxisId to);
  // The axis becomes (outer, inner) with inner size `inner`; gives {outer, inner}.
  std::pair<AxisId, AxisId> split(AxisId axis, Dim inner);

  // The axis, one that has not become others, stands at this place from now on.
  void fix(AxisId axis, const Dim& place);

  // In terms of live axes of size > 1 that move, sorted by axis; terms of one axis added up.
  Coord normalize(const Coord& coord) const;
  Coords normalize(const Coords& coords) const;
  std::vector<AxisId> normalize(const std::vector<AxisId>& axes) const;

  struct Mark {
    size_t entries;
    size_t changes;
  };
  // Undo of everything since mark(): merges are tried, then kept or rolled back.
  Mark mark() const { return {entries_.size(), changes_.size()}; }
  void roll_back(Mark mark);

 private:
  struct Entry {
    Dim size;
    AxisId alias = -1;
    AxisId outer = -1, inner = -1;
    std::optional<Dim> place = {};
    bool stands() const { return size == 1 || place; }
  };
  using LiveAxes = InlineVector<AxisId, 4>;
  void append_live(AxisId axis, LiveAxes& to) const;
  bool is_normal(const Coord& coord) const;

  std::vector<Entry> entries_;
  std::vector<std::pair<AxisId, Entry>> changes_;
};

// Normalised coordinates are equal.
bool equal(const Coords& a, const Coords& b);
bool is_affine(const Coords& coords);

// Coordinates of a reshape's input, given those of its output; nullopt when they are not affine. Splits
// axes where the reshape cuts them.
std::optional<Coords> reshape_coords(AxisTable& axes, const Coords& out, const Shape& out_shape,
                                     const Shape& in_shape);

// Makes the coordinates of one value seen from two spaces the same by unifying axes of b with axes of a
// (splitting where needed). False when they differ in more than names; the table is then half changed,
// so roll it back.
bool unify_coords(AxisTable& axes, const Coords& a, const Coords& b);

// Every element of `shape` is reached exactly once as the axes of the coordinates range.
bool covers_once(const AxisTable& axes, const Coords& coords, const Shape& shape);

// Of a normalised coordinate, wherever the axes are; nullopt where it is computed.
std::optional<Bounds> bounds_of(const AxisTable& axes, const Coord& coord);
// Wherever the axes are, the coordinates are of an element of `shape`.
bool stays_within(const AxisTable& axes, const Coords& coords, const Shape& shape);

// The live axes in the coordinates, each once.
std::vector<AxisId> axes_of(const Coords& coords);

// Those of one coordinate as its digits: what moves it furthest comes first, as counting goes through them.
std::vector<AxisId> digits_of(const Coord& coord);

}  // namespace cermet::schedule
