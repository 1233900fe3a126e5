// SPDX-License-Identifier: MIT
// Where an allocator gets its blocks: the operating system, guarded pages, or a device's driver.
// A source neither caches nor counts; the Allocator does both, alike for every source.
#pragma once

#include <cstddef>

namespace cermet {

inline constexpr size_t kAlignment = 64;                   // bytes, of every block; but see guarded
inline constexpr size_t kMappedBlock = size_t{128} << 10;  // host blocks from here on are mappings
inline constexpr size_t kHugeBlock = size_t{2} << 20;      // a huge page
inline constexpr size_t kHugeFilled =
    4 * kHugeBlock;  // from here on blocks have huge pages of their own

// Thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // capacity bytes, or nullptr when there are none. Contents are unspecified.
  virtual void* obtain(size_t capacity) = 0;
  virtual void give_back(void* block, size_t capacity) = 0;
  // May the allocator round capacities up, and keep and give out again what was released?
  virtual bool cacheable() const { return true; }
  // Called after the cache was dropped: return to the system what the source itself keeps.
  virtual void trim() {}
};

// Host memory: malloc for small blocks, pages for others, in huge pages where the system has them.
MemorySource& system_memory();
// Each block ends (front: begins) at an inaccessible page and is unmapped when given back. Filled
// with 0xFF, so floats read before they are written are NaN. A block that ends at the page is
// aligned only as far as its size allows.
MemorySource& guarded_memory(bool front);

}  // namespace cermet
