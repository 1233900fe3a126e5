// SPDX-License-Identifier: MIT
// Kernel IR in, runnable kernel out: memory, then seed, then disk, then the code generator. Keyed by the
// hash of the untiled IR, the target's identity and Cermet's version. Thread-safe: one compilation per
// kernel, others wait. The disk cache is the user's own (0700), written by temporary file and rename,
// verified by content hash on load; an unusable folder is reported once in the log and then ignored.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/inline_vector.h"
#include "codegen/target.h"
#include "runtime/buffer.h"
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
// The same kernel, compiled to be stopped amid an item: for launches whose items are long.
KernelPtr find_polling_kernel(const ir::Hash& hash, const std::function<ir::Kernel()>& make);
KernelPtr find_compiled_kernel(const ir::Hash& hash);  // null when nothing is cached yet
// Whether it would be found. Only the finding counts, as one in the file that this may have read it from.
bool is_kernel_compiled(const ir::Hash& hash);
void drop_kernels();  // forgets the memory cache
// Of the kernels that no program holds, those found last stay; done by the cache itself past thousands.
void drop_unused_kernels(size_t most);

// How the seed is made: the kernels compiled from now on are kept, then written for every level.
// An earlier seed at `path` that the same `generator` made saves compiling (kernel_seed.h).
void keep_kernels(const std::string& path, const std::string& generator);
// Returns how many were compiled, in all levels.
size_t write_kept_kernels();

// What follows from a kernel and the extents of a launch's members alone.
struct LaunchSizes {
  struct Work {
    int64_t items;
    double each;   // ns of an item; where spans of items are taken, of any span
    double total;  // ns of all items
  };

  // extents: of the axes that have one, in order; of each member
  LaunchSizes(const KernelHandle& kernel, int members, std::span<const int64_t> extents);
  // The members of an entry point.
  std::span<const Work> of_entry(size_t entry, int members) const {
    const auto count = static_cast<size_t>(members);
    return std::span<const Work>(work).subspan(entry * count, count);
  }

  InlineVector<Work, 3> work;      // of each entry point, for each member
  InlineVector<size_t, 2> locals;  // bytes; of each member, for each Local
  size_t scratch = 0;              // bytes for a thread
  uint64_t worth_keeping = 0;      // a bit for each of the first packings
  bool has_long_items = false;     // of some entry point: a kernel that polls is better
};

// One launch: pointers, extents and strides in record order, without the kernel-scope locals, which
// `run_kernel` allocates and appends; the Status word is its own, too. Runs on the calling thread and
// the pool. Calls `report` for a failed Check, which raises; without one raises [kernel] index.
//
// A batch has several members, none of which needs what another makes: the pool shares out the items of
// all of them at once, and the launch counts as one. The lowest member that failed is reported.
struct Launch {
  const KernelHandle* kernel = nullptr;
  int members = 1;
  InlineVector<uint64_t, 24> record;   // of each member, one behind the other
  std::vector<int64_t> extents;        // as of LaunchSizes; not looked at where those are given
  const LaunchSizes* sizes = nullptr;  // kept by who launches the same again
  void (*report)(const void* context, int member, int32_t site, int64_t index) = nullptr;
  const void* context = nullptr;
  // Of each member, what each source of the object's packings lies in, in order; null: not to be kept.
  InlineVector<Buffer*, 2> sources;
  // Makes the same of the same record; taken where all that it packs is kept, or to be kept. Needs `extents`.
  struct Kept {
    const KernelHandle* kernel = nullptr;
    InlineVector<Buffer*, 2> sources;
  } kept;
  bool* started = nullptr;  // set when all memory is there and the first kernel may write
};
void run_kernel(const Launch& launch);

}  // namespace cermet
