// SPDX-License-Identifier: MIT
#include "schedule/region_parts.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace cermet::schedule {

namespace {

class Divider {
 public:
  Divider(const Regions& regions, int number)
      : r_(regions), region_(regions.regions[number]), number_(number) {}

  std::vector<Region> divide() {
    if (!may_have_parts()) return {};
    for (const Member& member : region_.members) {
      members_.insert(member.node);
      root_.emplace(member.node, member.node);
    }
    for (const Member& member : region_.members)
      if (!is_common(member.node)) connect(member.node, member.node);
    return regions_of_parts();
  }

 private:
  const PlanNode& node(Id id) const { return r_.graph.nodes[id]; }

  bool may_have_parts() const {
    return region_.stored.size() > 1 && region_.contract < 0 && region_.update < 0 &&
           region_.kernel < 0 && region_.row_axes.empty() && region_.column_axes.empty() &&
           region_.scan_axes.empty() &&
           std::ranges::none_of(region_.stored, [&](Id id) { return is_common(id); });
  }

  // Every part may have its own.
  bool is_common(Id id) const {
    const PlanNode& n = node(id);
    return n.node->shape.count() == 1 || (!n.leaf && n.inputs.empty());
  }

  Id root(Id id) {
    while (root_[id] != id) id = root_[id] = root_[root_[id]];
    return id;
  }

  // A member with what it reads, through movement.
  void connect(Id member, Id id) {
    for (Id input : node(id).inputs) {
      if (is_common(input)) continue;
      if (!is_member(input) && is_pulled(input)) {
        connect(member, input);
      } else {
        root_.emplace(input, input);
        root_[root(input)] = root(member);
      }
    }
  }

  bool is_pulled(Id id) const {
    const PlanNode& n = node(id);
    return !n.leaf && !n.border && n.lowering<MoveLowering>() != nullptr &&
           !r_.loads.contains({id, number_});
  }

  std::vector<Region> regions_of_parts() {
    std::map<Id, Region> parts;
    for (Id id : region_.stored) parts[root(id)].stored.push_back(id);
    std::vector<Region> regions;
    if (parts.size() < 2) return regions;
    for (auto& [number, part] : parts) {
      std::unordered_set<Id> needed;
      for (Id id : part.stored) add_needed(id, needed);
      for (const Member& member : region_.members)
        if (needed.contains(member.node)) part.members.push_back(member);
      part.axes = region_.axes;
      part.ops = region_.ops;
      part.arguments = region_.arguments;
      part.large_reads = region_.large_reads;
      part.after = region_.after;
      part.reads = region_.reads;
      part.border = region_.border;
      regions.push_back(std::move(part));
    }
    return regions;
  }

  void add_needed(Id id, std::unordered_set<Id>& needed) const {
    if (!needed.insert(id).second) return;
    for (Id input : node(id).inputs)
      if (is_member(input) || is_pulled(input)) add_needed(input, needed);
  }

  bool is_member(Id id) const { return members_.contains(id); }

  const Regions& r_;
  const Region& region_;
  int number_;
  std::unordered_set<Id> members_;
  std::unordered_map<Id, Id> root_;  // of members and what they read: another of its part
};

}  // namespace

std::vector<Region> parts_of(const Regions& regions, int region) {
  return Divider(regions, region).divide();
}

}  // namespace cermet::schedule
