// SPDX-License-Identifier: MIT
#include "schedule/fresh_targets.h"

#include <algorithm>

namespace cermet::schedule {

namespace {

struct Interval {
  Dim begin, end;
};

class Finder {
 public:
  explicit Finder(PlanGraph& graph) : graph_(graph), readers_(reader_counts(graph)) {}

  void find() {
    std::vector<bool> seen(graph_.nodes.size(), false);
    for (Id id = static_cast<Id>(graph_.nodes.size()) - 1; id >= 0; --id) {
      if (!seen[id]) follow(id, seen);
    }
  }

 private:
  // Down the chain whose last update is `id`.
  void follow(Id id, std::vector<bool>& seen) {
    const Shape& shape = graph_.nodes[id].node->shape;
    int axis = -1;
    std::vector<Interval> written;
    Id first = -1;
    for (Id at = id; at == id || is_read_once(at); at = graph_.nodes[at].inputs[0]) {
      const std::optional<Slice> slice = slice_of(at);
      if (!slice || !is_along(axis, *slice, shape)) break;
      seen[at] = true;
      written.push_back({slice->start[axis], slice->start[axis] + slice->size[axis]});
      first = at;
    }
    if (first >= 0 && leaves_nothing(std::move(written), shape[axis]))
      graph_.nodes[first].fresh_target = true;
  }

  bool is_read_once(Id id) const {
    const PlanNode& n = graph_.nodes[id];
    return readers_[id] == 1 && !n.needed && !n.border;
  }

  std::optional<Slice> slice_of(Id id) const {
    const PlanNode& n = graph_.nodes[id];
    const auto* update = n.lowering<UpdateLowering>();
    if (update == nullptr || update->slice == nullptr || n.kernel >= 0) return std::nullopt;
    return update->slice(PlanNodeView(graph_, id));
  }

  // Whole but for one axis, the same for all of a chain (-1: not known yet).
  static bool is_along(int& axis, const Slice& slice, const Shape& shape) {
    for (int d = 0; d < shape.ndim(); ++d) {
      if (slice.size[d] == shape[d] || d == axis) continue;
      if (axis >= 0) return false;
      axis = d;
    }
    return axis >= 0;
  }

  static bool leaves_nothing(std::vector<Interval> written, const Dim& size) {
    std::ranges::sort(written, std::less(), &Interval::begin);
    Dim end = 0;
    for (const Interval& i : written) {
      if (i.begin > end) return false;
      end = larger(end, i.end);
    }
    return end >= size;
  }

  PlanGraph& graph_;
  std::vector<int> readers_;
};

}  // namespace

void find_fresh_targets(PlanGraph& graph) { Finder(graph).find(); }

}  // namespace cermet::schedule
