// SPDX-License-Identifier: MIT
// Kernel IR in, runnable kernel out: memory, then seed, then disk, then the code generator. Keyed by the
// hash of the untiled IR, the target's identity and Cermet's version. Thread-safe: one compilation per
// kernel, others wait. The disk cache is the user's own (0700), written by temporary file and rename,
// verified by content hash on load; an unusable folder is reported once in the log and then ignored.
#pragma once

#include <functional>
#include <memory>

#include "codegen/target.h"
#include "runtime/loader.h"

namespace cermet {

struct KernelHandle {
  std::shared_ptr<LoadedKernel> code;
  std::string form;  // map, row, ...
  std::string name;
};
using KernelPtr = std::shared_ptr<const KernelHandle>;

KernelPtr find_kernel(const ir::Kernel& kernel);  // compiles if need be
// The same by the kernel's hash, which a caller may keep: `make` is called only when it must be compiled.
KernelPtr find_kernel(const ir::Hash& hash, const std::function<ir::Kernel()>& make);
KernelPtr find_compiled_kernel(const ir::Hash& hash);  // null when nothing is cached yet
void drop_kernels();                                   // forgets the memory cache

// How the seed is made: the kernels compiled from now on are kept, then written for every level.
// An earlier seed at `path` that the same `generator` made saves compiling (kernel_seed.h).
void keep_kernels(const std::string& path, const std::string& generator);
// Returns how many were compiled, in all levels.
size_t write_kept_kernels();

// One launch: pointers, extents and strides in record order, without the kernel-scope locals, which
// `run_kernel` allocates and appends; the Status word is its own, too. Runs on the calling thread and
// the pool. Calls `report` for a failed Check, which raises; without one raises [kernel] index.
//
// A batch has several members, none of which needs what another makes: the pool shares out the items of
// all of them at once, and the launch counts as one. The lowest member that failed is reported.
struct Launch {
  KernelPtr kernel;
  int members = 1;
  std::vector<uint64_t> record;  // of each member, one behind the other
  std::vector<int64_t> extents;  // of the axes that have one, in order; of each member
  void (*report)(const void* context, int member, int32_t site, int64_t index) = nullptr;
  const void* context = nullptr;
  bool* started = nullptr;  // set when all memory is there and the first kernel may write
};
void run_kernel(const Launch& launch);

}  // namespace cermet
