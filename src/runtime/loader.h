// SPDX-License-Identifier: MIT
// The one loader of generated code: from the code generator, the disk cache, the seed cache and custom
// kernels. Code lies in slabs of executable memory, never writable and executable at once; a kernel's
// pages are used again after it is unloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/target.h"

namespace cermet {

// One entry of a CPU kernel: runs items [begin, end). record: see ir::Kernel. local: this thread's
// scratch. Returns 0, or 1 + the site of a failed Check (details in the Status parameter), or -1 where
// ThreadPool::must_stop has said so; nothing after that has then run.
using KernelFunction = int64_t (*)(const uint64_t* record, int64_t begin, int64_t end, void* local);

// What the Status parameter points to. Of several failures the one in the lowest items is kept, so a
// launch reports the same one however its items fell to threads.
struct KernelStatus {
  int64_t site = -1;  // -1: none failed
  int64_t index = 0;
  int64_t item = 0;  // first item of the call that failed
};

class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  std::vector<KernelFunction> functions;  // one for each entry of the object
  Object object;                          // blob dropped
};

// blob: a relocatable ELF object for this processor. Raises [kernel] runtime when it is damaged, needs
// an unknown symbol, or when memory is out.
std::shared_ptr<LoadedKernel> load_kernel(Object object);

struct LoaderStats {
  size_t code_bytes = 0;    // of loaded kernels, in whole pages
  size_t mapped_bytes = 0;  // of all slabs
};
LoaderStats loader_stats();

}  // namespace cermet
