// SPDX-License-Identifier: MIT
#include "runtime/memory_source.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace cermet {
namespace {

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

char* map(size_t bytes, int protection) {
  void* block = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : static_cast<char*>(block);
}

// A mapping whose huge pages begin where it begins.
char* map_huge(size_t bytes) {
  char* start = map(bytes + kHugeBlock, PROT_READ | PROT_WRITE);
  if (start == nullptr) return nullptr;
  const size_t before = -reinterpret_cast<uintptr_t>(start) % kHugeBlock;
  if (before != 0) munmap(start, before);
  char* block = start + before;
  if (before != kHugeBlock) munmap(block + bytes, kHugeBlock - before);
  madvise(block, bytes, MADV_HUGEPAGE);  // refused on some kernels; small pages then
  return block;
}

class SystemMemory final : public MemorySource {
 public:
  void* obtain(size_t capacity) override {
    if (capacity < kMappedBlock) return std::aligned_alloc(kAlignment, capacity);
    const size_t bytes = round_up(capacity, page_size());
    return bytes < kHugeBlock ? map(bytes, PROT_READ | PROT_WRITE) : map_huge(bytes);
  }
  void give_back(void* block, size_t capacity) override {
    if (capacity < kMappedBlock) {
      std::free(block);
    } else {
      munmap(block, round_up(capacity, page_size()));
    }
  }
  void trim() override { malloc_trim(0); }
};

class GuardedMemory final : public MemorySource {
 public:
  explicit GuardedMemory(bool front) : front_(front) {}

  void* obtain(size_t capacity) override {
    const size_t page = page_size();
    const size_t inner = round_up(capacity, page);
    char* outer = map(inner + 2 * page, PROT_NONE);
    if (outer == nullptr) return nullptr;
    if (inner != 0 && mprotect(outer + page, inner, PROT_READ | PROT_WRITE) != 0) {
      munmap(outer, inner + 2 * page);
      return nullptr;
    }
    std::memset(outer + page, 0xFF, inner);
    return outer + page + (front_ ? 0 : inner - capacity);
  }
  void give_back(void* block, size_t capacity) override {
    const size_t page = page_size();
    const size_t inner = round_up(capacity, page);
    char* first = static_cast<char*>(block) - (front_ ? 0 : inner - capacity);
    munmap(first - page, inner + 2 * page);
  }
  bool cacheable() const override { return false; }

 private:
  bool front_;
};

}  // namespace

MemorySource& system_memory() {
  static MemorySource& source = *new SystemMemory;
  return source;
}

MemorySource& guarded_memory(bool front) {
  static MemorySource& at_end = *new GuardedMemory(false);
  static MemorySource& at_front = *new GuardedMemory(true);
  return front ? at_front : at_end;
}

}  // namespace cermet
