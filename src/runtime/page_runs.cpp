// SPDX-License-Identifier: MIT
#include "runtime/page_runs.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>

#include "runtime/memory_source.h"

namespace cermet {
namespace {

constexpr size_t kRegion = 16 * kHugeBlock;

char* map(void* where, size_t bytes, int flags) {
  void* block =
      mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return block == MAP_FAILED ? nullptr : static_cast<char*>(block);
}

// Refused on some kernels; small pages then.
void ask_for_huge_pages(char* block, size_t bytes) { madvise(block, bytes, MADV_HUGEPAGE); }

char* huge_down(char* p) { return p - reinterpret_cast<uintptr_t>(p) % kHugeBlock; }
char* huge_up(char* p) { return huge_down(p + kHugeBlock - 1); }

// Takes the pages of begin..end, a part of what is free there, out of memory. Those of a whole huge page are
// mapped anew: a huge page whose parts were taken out one by one would come back in small ones.
void empty(char* begin, char* end, char* free_begin, char* free_end) {
  char* const from = std::max(huge_up(free_begin), huge_down(begin));
  char* const to = std::min(huge_down(free_end), huge_up(end));
  if (from < to && map(from, static_cast<size_t>(to - from), MAP_FIXED) != nullptr)
    ask_for_huge_pages(from, static_cast<size_t>(to - from));
  const auto drop = [](char* first, char* last) {
    if (first < last) madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED);
  };
  if (from >= to) return drop(begin, end);
  drop(begin, from);
  drop(to, end);
}

}  // namespace

char* map_huge(size_t bytes) {
  char* start = map(nullptr, bytes + kHugeBlock, 0);
  if (start == nullptr) return nullptr;
  char* block = huge_up(start);
  if (block != start) munmap(start, static_cast<size_t>(block - start));
  char* end = start + bytes + kHugeBlock;
  if (block + bytes != end) munmap(block + bytes, static_cast<size_t>(end - block) - bytes);
  ask_for_huge_pages(block, bytes);
  return block;
}

void* PageRuns::take(size_t bytes) {
  std::lock_guard lock(mutex);
  auto run = std::ranges::find_if(free_, [&](const auto& r) { return r.second >= bytes; });
  if (run == free_.end()) run = bytes <= kRegion ? grow() : free_.end();
  if (run == free_.end()) return nullptr;
  Runs::node_type rest = free_.extract(run);
  char* taken = rest.key();
  rest.key() += bytes;
  rest.mapped() -= bytes;
  if (rest.mapped() != 0) free_.insert(std::move(rest));
  return taken;
}

PageRuns::Runs::iterator PageRuns::grow() {
  char* region = map_huge(kRegion);
  if (region == nullptr) return free_.end();
  try {
    regions_.emplace(region, kRegion);
    return free_.emplace(region, kRegion).first;
  } catch (const std::bad_alloc&) {
    regions_.erase(region);
    munmap(region, kRegion);
    return free_.end();
  }
}

PageRuns::Runs::iterator PageRuns::region_of(char* run) {
  return std::prev(regions_.upper_bound(run));
}

void PageRuns::give_back(void* block, size_t bytes) {
  std::lock_guard lock(mutex);
  char* const begin = static_cast<char*>(block);
  char* const end = begin + bytes;
  const auto region = region_of(begin);
  char* const region_end = region->first + region->second;
  auto next = free_.lower_bound(begin);
  const bool joins_next = next != free_.end() && next->first == end && end != region_end;
  const auto before = next == free_.begin() ? free_.end() : std::prev(next);
  const bool joins_before =
      before != free_.end() && begin != region->first && before->first + before->second == begin;
  char* const free_begin = joins_before ? before->first : begin;
  char* const free_end = joins_next ? end + next->second : end;
  if (free_begin == region->first && free_end == region_end) {
    if (joins_before) free_.erase(before);
    if (joins_next) free_.erase(next);
    regions_.erase(region);
    munmap(free_begin, kRegion);
    return;
  }
  empty(begin, end, free_begin, free_end);
  if (joins_before) {
    before->second = static_cast<size_t>(free_end - free_begin);
    if (joins_next) free_.erase(next);
  } else if (joins_next) {
    Runs::node_type grown = free_.extract(next);
    grown.key() = begin;
    grown.mapped() += bytes;
    free_.insert(std::move(grown));
  } else {
    try {
      free_.emplace(begin, bytes);
      // NOLINTNEXTLINE(bugprone-empty-catch): without memory for its entry a run stays unused
    } catch (const std::bad_alloc&) {
    }
  }
}

}  // namespace cermet
