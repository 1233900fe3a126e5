// SPDX-License-Identifier: MIT
#include "schedule/single_ops.h"

#include <algorithm>

namespace cermet::schedule {

namespace {

bool contains(const std::vector<AxisId>& set, AxisId axis) {
  return std::find(set.begin(), set.end(), axis) != set.end();
}

bool is_stored(const Region& region, Id id) {
  return std::find(region.stored.begin(), region.stored.end(), id) != region.stored.end();
}

// By each part that wants it: other regions may make it, too.
bool is_made_anew(const Regions& regions, Id id) {
  return regions.graph.nodes[id].inputs.empty() || regions.repeated.contains(id);
}

class Splitter {
 public:
  Splitter(const Regions& regions, int number) : r_(regions), region_(regions.regions[number]) {}

  std::vector<Region> split() {
    if (region_.contract >= 0 || region_.update >= 0) return {};
    std::vector<Region> parts;
    for (size_t i = region_.members.size(); i-- > 0;) {
      const Member& member = region_.members[i];
      if (is_made_anew(r_, member.node) && !is_stored(region_, member.node)) continue;
      if (!stands_alone(member)) return {};
      parts.push_back(part_of(member));
    }
    return parts.size() > 1 ? parts : std::vector<Region>();
  }

 private:
  const PlanNode& node(Id id) const { return r_.graph.nodes[id]; }

  bool stands_alone(const Member& member) const {
    const PlanNode& n = node(member.node);
    if (n.lowering<MoveLowering>() != nullptr) return false;
    if (!covers_once(r_.axes, member.at, n.node->shape)) return false;
    return !(is_half(n.node->dtype) && is_stored(region_, member.node) && has_user(member.node));
  }

  // Whether another member may take the node's value; movement in between is passed through.
  bool has_user(Id id) const {
    return std::any_of(region_.members.begin(), region_.members.end(), [&](const Member& other) {
      return other.node != id && reads(other.node, id);
    });
  }
  bool reads(Id user, Id id) const {
    const auto& inputs = node(user).inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](Id input) {
      return input == id || (node(input).lowering<MoveLowering>() != nullptr && reads(input, id));
    });
  }

  Region part_of(const Member& member) const {
    std::vector<AxisId> kept = axes_of(r_.axes.normalize(member.at));
    std::vector<AxisId> used = kept;
    for (const Coords& in : member.in) {
      const std::vector<AxisId> more = axes_of(r_.axes.normalize(in));
      used.insert(used.end(), more.begin(), more.end());
    }
    Region part;
    for (AxisId axis : r_.axes.normalize(region_.axes)) {
      if (contains(used, axis)) part.axes.push_back(axis);
    }
    const auto folded = [&](const std::vector<AxisId>& axes, std::vector<AxisId>& to) {
      for (AxisId axis : r_.axes.normalize(axes))
        if (contains(used, axis) && !contains(kept, axis)) to.push_back(axis);
    };
    folded(region_.row_axes, part.row_axes);
    folded(region_.column_axes, part.column_axes);
    part.members.push_back(member);
    for (const Member& other : region_.members)
      if (is_made_anew(r_, other.node) && other.node != member.node) part.members.push_back(other);
    part.stored.push_back(member.node);
    part.after = region_.after;
    return part;
  }

  const Regions& r_;
  const Region& region_;
};

}  // namespace

std::vector<Region> single_ops(const Regions& regions, int region) {
  return Splitter(regions, region).split();
}

std::vector<Id> interior_of(const Regions& regions, int region) {
  const Region& whole = regions.regions[region];
  std::vector<Id> interior;
  for (const Member& member : whole.members) {
    if (!is_stored(whole, member.node) && !is_made_anew(regions, member.node))
      interior.push_back(member.node);
  }
  return interior;
}

}  // namespace cermet::schedule
