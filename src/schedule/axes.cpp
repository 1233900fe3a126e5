// SPDX-License-Identifier: MIT
#include "schedule/axes.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/error.h"

namespace cermet::schedule {

AxisId AxisTable::add(const Dim& size) {
  entries_.push_back({size});
  return static_cast<AxisId>(entries_.size() - 1);
}

void AxisTable::unify(AxisId from, AxisId to) {
  if (from == to) return;
  CERMET_INTERNAL_CHECK(size(from) == size(to), "unifying axes of sizes {} and {}", size(from),
                        size(to));
  changes_.emplace_back(from, entries_[from]);
  entries_[from].alias = to;
}

std::pair<AxisId, AxisId> AxisTable::split(AxisId axis, Dim inner) {
  const AxisId outer_axis = add(quotient(size(axis), inner));
  const AxisId inner_axis = add(inner);
  changes_.emplace_back(axis, entries_[axis]);
  entries_[axis].outer = outer_axis;
  entries_[axis].inner = inner_axis;
  return {outer_axis, inner_axis};
}

void AxisTable::fix(AxisId axis, const Dim& place) {
  changes_.emplace_back(axis, entries_[axis]);
  entries_[axis].place = place;
}

void AxisTable::roll_back(Mark mark) {
  while (changes_.size() > mark.changes) {
    entries_[changes_.back().first] = changes_.back().second;
    changes_.pop_back();
  }
  entries_.resize(mark.entries, Entry{1});
}

void AxisTable::append_live(AxisId axis, LiveAxes& to) const {
  while (entries_[axis].alias >= 0) axis = entries_[axis].alias;
  if (entries_[axis].outer < 0) {
    to.push_back(axis);
    return;
  }
  append_live(entries_[axis].outer, to);
  append_live(entries_[axis].inner, to);
}

std::vector<AxisId> AxisTable::normalize(const std::vector<AxisId>& axes) const {
  LiveAxes live;
  for (AxisId axis : axes) append_live(axis, live);
  std::vector<AxisId> once;
  for (AxisId axis : live) {
    if (!entries_[axis].stands() && std::find(once.begin(), once.end(), axis) == once.end())
      once.push_back(axis);
  }
  return once;
}

// It most often is.
bool AxisTable::is_normal(const Coord& coord) const {
  AxisId last = -1;
  for (const auto& [axis, coefficient] : coord.terms) {
    const Entry& entry = entries_[axis];
    if (axis <= last || coefficient == 0 || entry.alias >= 0 || entry.outer >= 0 || entry.stands())
      return false;
    last = axis;
  }
  return true;
}

Coord AxisTable::normalize(const Coord& coord) const {
  if (is_normal(coord)) return coord;
  Coord result;
  result.offset = coord.offset;
  result.expr = coord.expr;
  LiveAxes live;
  for (auto [axis, coefficient] : coord.terms) {
    live.clear();
    append_live(axis, live);
    for (size_t i = live.size(); i-- > 0;) {
      const Entry& entry = entries_[live[i]];
      if (!entry.stands()) result.terms.push_back({live[i], coefficient});
      else if (entry.place) result.offset += coefficient * *entry.place;
      coefficient *= size(live[i]);
    }
  }
  std::ranges::sort(result.terms, {}, &Coord::Term::axis);
  size_t kept = 0;
  for (size_t i = 0; i < result.terms.size(); i++) {
    if (kept > 0 && result.terms[kept - 1].axis == result.terms[i].axis)
      result.terms[kept - 1].coefficient += result.terms[i].coefficient;
    else result.terms[kept++] = result.terms[i];
  }
  result.terms.shrink(kept);
  const auto end = std::remove_if(result.terms.begin(), result.terms.end(),
                                  [](const Coord::Term& term) { return term.coefficient == 0; });
  result.terms.shrink(static_cast<size_t>(end - result.terms.begin()));
  return result;
}

Coords AxisTable::normalize(const Coords& coords) const {
  Coords result;
  result.reserve(coords.size());
  for (const Coord& coord : coords) result.push_back(normalize(coord));
  return result;
}

bool equal(const Coords& a, const Coords& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Coord& x, const Coord& y) {
    return x.expr == y.expr && x.offset == y.offset && x.terms == y.terms;
  });
}

bool is_affine(const Coords& coords) {
  return std::all_of(coords.begin(), coords.end(),
                     [](const Coord& c) { return c.expr == ir::kNone; });
}

std::vector<AxisId> axes_of(const Coords& coords) {
  std::vector<AxisId> axes;
  for (const Coord& coord : coords) {
    for (const auto& [axis, coefficient] : coord.terms) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
    }
  }
  return axes;
}

std::vector<AxisId> digits_of(const Coord& coord) {
  std::vector<Coord::Term> terms(coord.terms.begin(), coord.terms.end());
  std::ranges::stable_sort(terms, std::ranges::greater{}, [](const Coord::Term& term) {
    return larger(term.coefficient, -term.coefficient);
  });
  std::vector<AxisId> axes;
  for (const Coord::Term& term : terms) axes.push_back(term.axis);
  return axes;
}

namespace {

// One term placed among dims of the given strides (descending); splits the axis at borders it crosses.
bool place_term(AxisTable& axes, AxisId axis, const Dim& coefficient,
                const std::vector<Dim>& strides, Coords& to) {
  for (size_t j = 0; j < strides.size(); j++) {
    if (coefficient >= strides[j]) {
      if (remainder(coefficient, strides[j]) != 0) return false;
      if (j > 0 &&
          coefficient * axes.size(axis) > strides[j - 1]) {  // the axis crosses into dim j - 1
        const Dim above = strides[j - 1], inside = quotient(above, coefficient);
        if (remainder(above, coefficient) != 0 || remainder(axes.size(axis), inside) != 0)
          return false;
        auto [outer, inner] = axes.split(axis, inside);
        return place_term(axes, outer, above, strides, to) &&
               place_term(axes, inner, coefficient, strides, to);
      }
      to[j].terms.push_back({axis, quotient(coefficient, strides[j])});
      return true;
    }
  }
  return false;
}

// The coordinates of dims [begin, end) of in_shape that together are the number `linear`.
bool delinearize(AxisTable& axes, const Coord& linear, const Shape& in_shape, int begin, int end,
                 Coords& result) {
  std::vector<Dim> strides(end - begin, 1);
  for (int i = end - begin - 2; i >= 0; i--) strides[i] = strides[i + 1] * in_shape[begin + i + 1];
  Coords part(end - begin);
  Dim rest = linear.offset;
  if (rest < 0) return false;
  for (size_t j = 0; j < part.size(); j++) {
    part[j].offset = quotient(rest, strides[j]);
    rest = remainder(rest, strides[j]);
  }
  for (auto [axis, coefficient] : axes.normalize(linear).terms) {
    if (coefficient < 0 || !place_term(axes, axis, coefficient, strides, part)) return false;
  }
  for (size_t j = 0; j < part.size(); j++) {  // no carry from one dim to the next
    Dim most = part[j].offset;
    for (auto [axis, coefficient] : axes.normalize(part[j]).terms)
      most += coefficient * (axes.size(axis) - 1);
    if (most >= in_shape[begin + static_cast<int>(j)]) return false;
    result.push_back(axes.normalize(part[j]));
  }
  return true;
}

}  // namespace

std::optional<Coords> reshape_coords(AxisTable& axes, const Coords& out, const Shape& out_shape,
                                     const Shape& in_shape) {
  if (!is_affine(out) || in_shape.is_empty()) return std::nullopt;
  Coords result;
  int i = 0, o = 0;
  while (i < in_shape.ndim() || o < out_shape.ndim()) {
    const int in_begin = i;
    Dim in_size = 1, out_size = 1;
    Coord linear;
    auto take_out = [&] {
      const Dim& n = out_shape[o];
      for (auto& term : linear.terms) term.coefficient *= n;
      linear.offset *= n;
      const Coord c = axes.normalize(out[o]);
      linear.terms.append(c.terms);
      linear.offset += c.offset;
      out_size *= n;
      o++;
    };
    if (i < in_shape.ndim()) in_size *= in_shape[i++];
    if (o < out_shape.ndim()) take_out();
    while (in_size != out_size) {
      if (in_size < out_size) {
        in_size *= in_shape[i++];
      } else {
        take_out();
      }
    }
    while (i == in_shape.ndim() && o < out_shape.ndim()) take_out();  // trailing sizes of 1
    if (!delinearize(axes, axes.normalize(linear), in_shape, in_begin, i, result))
      return std::nullopt;
  }
  return result;
}

// As the axes of the coordinates range.
static Dim points_of(const AxisTable& axes, const Coords& coords) {
  Dim points = 1;
  for (AxisId axis : axes_of(axes.normalize(coords))) points *= axes.size(axis);
  return points;
}

bool unify_coords(AxisTable& axes, const Coords& a, const Coords& b) {
  if (a.size() != b.size() || !is_affine(a) || !is_affine(b)) return false;
  const Dim points_a = points_of(axes, a), points_b = points_of(axes, b);
  auto by_coefficient = [](const auto& x, const auto& y) { return x.coefficient < y.coefficient; };
  for (size_t d = 0; d < a.size(); d++) {
    for (;;) {
      Coord x = axes.normalize(a[d]), y = axes.normalize(b[d]);
      if (x.offset != y.offset || x.terms.empty() != y.terms.empty()) return false;
      if (x.terms == y.terms) break;
      std::sort(x.terms.begin(), x.terms.end(), by_coefficient);
      std::sort(y.terms.begin(), y.terms.end(), by_coefficient);
      size_t i = 0;
      while (i < x.terms.size() && i < y.terms.size() && x.terms[i] == y.terms[i]) i++;
      if (i == x.terms.size() || i == y.terms.size()) return false;
      auto [ax, cx] = x.terms[i];
      auto [ay, cy] = y.terms[i];
      if (cx != cy) return false;
      const Dim nx = axes.size(ax), ny = axes.size(ay);
      if (nx == ny) {
        axes.unify(ay, ax);
      } else if (0 < nx && nx < ny && remainder(ny, nx) == 0) {
        axes.split(ay, nx);
      } else if (0 < ny && ny < nx && remainder(nx, ny) == 0) {
        axes.split(ax, ny);
      } else {
        return false;
      }
    }
  }
  // As of [i, j] and [k, k]: two axes of one have become the same.
  return points_of(axes, a) == points_a && points_of(axes, b) == points_b;
}

bool covers_once(const AxisTable& axes, const Coords& coords, const Shape& shape) {
  if (!is_affine(coords)) return false;
  std::vector<AxisId> seen;
  for (int d = 0; d < shape.ndim(); d++) {
    Coord c = axes.normalize(coords[d]);
    if (c.offset != 0) return false;
    std::sort(c.terms.begin(), c.terms.end(),
              [](const auto& x, const auto& y) { return x.coefficient < y.coefficient; });
    Dim expected = 1;
    for (auto [axis, coefficient] : c.terms) {
      if (coefficient != expected || std::find(seen.begin(), seen.end(), axis) != seen.end())
        return false;
      seen.push_back(axis);
      expected *= axes.size(axis);
    }
    if (expected != shape[d]) return false;
  }
  return true;
}

std::optional<Bounds> bounds_of(const AxisTable& axes, const Coord& coord) {
  if (coord.expr != ir::kNone) return std::nullopt;
  Bounds bounds{coord.offset, coord.offset};
  for (auto [axis, coefficient] : coord.terms)
    (coefficient < 0 ? bounds.least : bounds.most) += coefficient * (axes.size(axis) - 1);
  return bounds;
}

bool stays_within(const AxisTable& axes, const Coords& coords, const Shape& shape) {
  for (int d = 0; d < shape.ndim(); d++) {
    const std::optional<Bounds> bounds = bounds_of(axes, coords[d]);
    if (!bounds || bounds->least < 0 || bounds->most >= shape[d]) return false;
  }
  return true;
}

}  // namespace cermet::schedule
