// SPDX-License-Identifier: MIT
#include "runtime/memory_source.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/lazy.h"
#include "runtime/fork.h"
#include "runtime/page_runs.h"

namespace cermet {
namespace {

size_t page_size() { return static_cast<size_t>(getpagesize()); }

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

char* map(size_t bytes, int protection) {
  void* block = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : static_cast<char*>(block);
}

PageRuns& page_runs() {
  static constinit ForkSafe<PageRuns> runs(ForkLevel::leaf);
  return runs.get();
}

class SystemMemory final : public MemorySource {
 public:
  void* obtain(size_t capacity) override {
    if (capacity < kMappedBlock) return std::aligned_alloc(kAlignment, capacity);
    const size_t bytes = round_up(capacity, page_size());
    return bytes < kHugeFilled ? page_runs().take(bytes) : map_huge(bytes);
  }
  void give_back(void* block, size_t capacity) override {
    if (capacity < kMappedBlock) return std::free(block);
    const size_t bytes = round_up(capacity, page_size());
    if (bytes < kHugeFilled) page_runs().give_back(block, bytes);
    else munmap(block, bytes);
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
  static constinit Lazy<SystemMemory> source;
  return source.get([] { return SystemMemory(); });
}

MemorySource& guarded_memory(bool front) {
  static constinit Lazy<GuardedMemory> at_end, at_front;
  return (front ? at_front : at_end).get([front] { return GuardedMemory(front); });
}

}  // namespace cermet
