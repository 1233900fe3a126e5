// SPDX-License-Identifier: MIT
#include "runtime/code_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "runtime/fault.h"
#include "runtime/fork.h"

namespace cermet {
namespace {

constexpr size_t kSlabBytes = size_t{4} << 20;

size_t page_bytes() { return static_cast<size_t>(getpagesize()); }

size_t whole_pages(size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

// Free ranges by address; neighbours of one slab are joined (slabs that happen to touch, too).
class Slabs {
 public:
  std::mutex mutex;

  static Slabs& get() {
    static constinit ForkSafe<Slabs> slabs(ForkLevel::leaf);
    return slabs.get();
  }

  char* take(size_t bytes) {
    std::lock_guard lock(mutex);
    auto it = std::ranges::find_if(free_, [&](const auto& range) { return range.second >= bytes; });
    if (it == free_.end()) it = add_slab(std::max(bytes, kSlabBytes));
    if (it == free_.end()) return nullptr;
    char* data = it->first;
    const size_t rest = it->second - bytes;
    free_.erase(it);
    if (rest > 0) free_.emplace(data + bytes, rest);
    stats_.code_bytes += bytes;
    return data;
  }

  void put(char* data, size_t bytes) {
    std::lock_guard lock(mutex);
    stats_.code_bytes -= bytes;
    auto after = free_.lower_bound(data);
    if (after != free_.end() && data + bytes == after->first) {
      bytes += after->second;
      after = free_.erase(after);
    }
    if (after != free_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == data) {
        before->second += bytes;
        return;
      }
    }
    free_.emplace(data, bytes);
  }

  LoaderStats stats() {
    std::lock_guard lock(mutex);
    return stats_;
  }

 private:
  std::map<char*, size_t>::iterator add_slab(size_t bytes) {
    void* slab = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) return free_.end();
    stats_.mapped_bytes += bytes;
    return free_.emplace(static_cast<char*>(slab), bytes).first;
  }

  std::map<char*, size_t> free_;
  LoaderStats stats_;
};

}  // namespace

CodePages::CodePages(size_t bytes) : bytes_(whole_pages(std::max<size_t>(bytes, 1))) {
  data_ = allocation_fails() ? nullptr : Slabs::get().take(bytes_);
  CERMET_CHECK(data_ != nullptr, memory, "kernel", "no memory for {} bytes of code; free some",
               bytes);
  // Pages of an unloaded kernel are still executable.
  if (mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0) {
    Slabs::get().put(data_, bytes_);
    fail(ErrorKind::runtime, "kernel",
         "cannot make {} bytes of code writable; the system allows no "
         "more memory mappings",
         bytes);
  }
}

void CodePages::seal() {
  CERMET_CHECK(mprotect(data_, bytes_, PROT_READ | PROT_EXEC) == 0, runtime, "kernel",
               "cannot make {} bytes of code executable; the system forbids it or allows no more "
               "memory mappings",
               bytes_);
}

CodePages::~CodePages() {
  if (data_ != nullptr) Slabs::get().put(data_, bytes_);
}

LoaderStats code_memory_stats() { return Slabs::get().stats(); }

}  // namespace cermet
