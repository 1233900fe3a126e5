// SPDX-License-Identifier: MIT
#include "schedule/flat.h"

#include <algorithm>

namespace cermet::schedule {

namespace {

constexpr int64_t kLong = 64;  // elements: where a loop's start and end no longer matter

}  // namespace

Dim size_of_run(const std::vector<FlatAxis>& flat, size_t first, size_t last) {
  Dim size = 1;
  for (size_t i = first; i <= last; i++) size *= flat[i].size;
  return size;
}

std::vector<FlatAxis> find_flat(const std::vector<FlatAxis>& all, const std::vector<Walk>& stores) {
  if (all.size() < 2 || all.back().size >= kShort ||
      size_of_run(all, 0, all.size() - 1) < kManyPoints)
    return {};
  size_t first = all.size() - 1;
  Dim size = all.back().size;
  const auto continues = [&](const Walk& walk) {
    return walk.step(all[first - 1].axis) == walk.step(all.back().axis) * size;
  };
  while (first > 0 && size < kLong && std::ranges::all_of(stores, continues))
    size *= all[--first].size;
  if (size < kLong) return {};
  return {all.begin() + static_cast<ptrdiff_t>(first), all.end()};
}

std::vector<FlatAxis> find_rows(const std::vector<FlatAxis>& all, const std::vector<Walk>& walks) {
  if (all.size() < 2 || size_of_run(all, 0, all.size() - 1) < kManyPoints) return {};
  const FlatAxis &outer = all[all.size() - 2], &inner = all.back();
  const auto continues = [&](const Walk& walk) {
    return walk.step(outer.axis) == walk.step(inner.axis) * inner.size;
  };
  if (!std::ranges::all_of(walks, continues)) return {};
  return {outer, inner};
}

std::vector<FlatRun> runs_of(const Walk& walk, const std::vector<FlatAxis>& flat) {
  std::vector<FlatRun> runs;
  const auto step = [&](size_t i) { return walk.step(flat[i].axis); };
  for (size_t end = flat.size(); end > 0;) {
    size_t first = end - 1;
    while (first > 0 && step(first - 1) == step(first) * flat[first].size) first--;
    if (step(end - 1) != 0) runs.push_back({first, end - 1, step(end - 1)});
    end = first;
  }
  return runs;
}

}  // namespace cermet::schedule
