// SPDX-License-Identifier: MIT
// Executable memory in slabs of a few mappings, given out in whole pages. Private memory, so that a
// forked child may load and unload on its own.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/loader.h"

namespace cermet {

// Executable pages, filled once; returned to their slab when it dies.
class CodePages {
 public:
  // `fill(pages)` writes the code, the pages being writable and not executable meanwhile. Raises
  // [kernel] memory when it is out; what fill throws passes through.
  template <typename F>
  CodePages(size_t bytes, F&& fill) : CodePages(bytes) {
    fill(data_);
    seal();
  }
  ~CodePages();
  CodePages(const CodePages&) = delete;
  CodePages& operator=(const CodePages&) = delete;

  char* data() const { return data_; }

 private:
  explicit CodePages(size_t bytes);
  void seal();

  char* data_ = nullptr;
  size_t bytes_ = 0;
};

LoaderStats code_memory_stats();

}  // namespace cermet
