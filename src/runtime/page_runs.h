// SPDX-License-Identifier: MIT
// Runs of pages for blocks too small to fill huge pages of their own: side by side in regions of huge
// pages. In small pages a processor looks up more addresses and fetches ahead to the end of a page only,
// so arrays are read from memory at up to a tenth less.
// Invariant: what is free is not in memory, but for what shares a huge page with a block.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace cermet {

// Thread-safe.
class PageRuns {
 public:
  // Whole pages, or nullptr when there are none. Contents are unspecified.
  void* take(size_t bytes);
  // A run that was taken, whole.
  void give_back(void* run, size_t bytes);

  std::mutex mutex;

 private:
  using Runs = std::map<char*, size_t>;  // bytes by beginning

  Runs::iterator grow();  // a region's run, or the end
  Runs::iterator region_of(char* run);

  Runs free_, regions_;
};

// A mapping whose huge pages begin where it begins; nullptr when there is none.
char* map_huge(size_t bytes);

}  // namespace cermet
