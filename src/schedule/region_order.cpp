// SPDX-License-Identifier: MIT
#include "schedule/region_order.h"

#include <algorithm>
#include <map>
#include <queue>

#include "base/error.h"

namespace cermet::schedule {

namespace {

// Each once, as they are after all merges.
std::vector<int> reads_of(const Regions& regions, int i) {
  std::vector<int> reads;
  for (int read : regions.regions[i].reads) reads.push_back(regions.find(read));
  std::sort(reads.begin(), reads.end());
  reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  std::erase(reads, i);
  return reads;
}

Id first_node(const Region& region) {
  Id first = INT32_MAX;
  for (Id id : region.stored) first = std::min(first, id);
  return first;
}

}  // namespace

void order_regions(Regions& r) {
  std::map<int, int> waiting;
  std::map<int, std::vector<int>> users;
  using Entry = std::pair<Id, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (int i = 0; i < static_cast<int>(r.regions.size()); i++) {
    if (r.merged_into[i] >= 0) continue;
    Region& region = r.regions[i];
    region.reads = reads_of(r, i);
    waiting[i] = static_cast<int>(region.reads.size());
    for (int read : region.reads) users[read].push_back(i);
    if (region.reads.empty()) ready.emplace(first_node(region), i);
  }
  while (!ready.empty()) {
    const int i = ready.top().second;
    ready.pop();
    r.order.push_back(i);
    for (int user : users[i]) {
      if (--waiting[user] == 0) ready.emplace(first_node(r.regions[user]), user);
    }
  }
  CERMET_INTERNAL_CHECK(r.order.size() == waiting.size(),
                        "regions depend on each other in a cycle");
}

}  // namespace cermet::schedule
