// SPDX-License-Identifier: MIT
// Running kernels: the record with what the launch itself provides (status, scratch), then each entry
// point over its items, by the calling thread alone where threads would not pay.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "runtime/float_mode.h"
#include "runtime/kernel_cache.h"
#include "runtime/thread_pool.h"

namespace cermet {
namespace {

constexpr size_t kWordsInFrame = 64;
constexpr double kChunkNs = 5e3;  // a chunk of items should take at least as long

int64_t evaluate(const ir::Size& size, const std::vector<int64_t>& extents) {
  int64_t value = size.constant;
  for (const ir::SizeTerm& term : size.terms)
    value *= (extents[term.axis] + term.tile - 1) / term.tile;
  return value;
}

size_t bytes_of(const ir::Local& local, const std::vector<int64_t>& extents) {
  const size_t bytes = static_cast<size_t>(evaluate(local.size, extents)) * size_of(local.dtype);
  return (bytes + 63) & ~size_t{63};
}

// This thread's scratch, kept for the next kernel. Aligned to 64 bytes.
void* thread_scratch(size_t bytes) {
  struct Scratch {
    void* data = nullptr;
    size_t bytes = 0;
    ~Scratch() { std::free(data); }
  };
  thread_local Scratch scratch;
  if (bytes > scratch.bytes) {
    void* data = std::aligned_alloc(64, bytes);
    CERMET_CHECK(data != nullptr, memory, "kernel", "no memory for {} bytes of scratch", bytes);
    std::free(std::exchange(scratch.data, data));
    scratch.bytes = bytes;
  }
  return scratch.data;
}

double item_cost(const EntryPoint& entry, const std::vector<int64_t>& extents) {
  double total = 0;
  for (const Work& work : entry.work) {
    double ns = work.ns;
    for (const WorkTrip& trip : work.trips)
      ns *= static_cast<double>(std::min(extents[trip.axis], trip.most));
    total += ns;
  }
  return total;
}

void run_entry(const EntryPoint& entry, KernelFunction function, const uint64_t* record,
               size_t scratch_bytes, const std::vector<int64_t>& extents) {
  const int64_t items = evaluate(entry.grid, extents);
  if (items <= 0) return;
  const double each = item_cost(entry, extents);
  const double cost = each * static_cast<double>(items);
  const auto run = [&](int64_t begin, int64_t end, int) {
    function(record, begin, end, scratch_bytes == 0 ? nullptr : thread_scratch(scratch_bytes));
  };
  if (items == 1 || cost < ThreadPool::kParallelCost) {
    const FloatMode mode;
    return run(0, items, 0);
  }
  const double grain =
      std::min(std::ceil(kChunkNs / std::max(each, 1e-3)), static_cast<double>(items));
  ThreadPool::get().run(items, static_cast<int64_t>(std::max(grain, 1.0)), cost, run);
}

}  // namespace

void run_kernel(const Launch& launch) {
  const LoadedKernel& code = *launch.kernel->code;
  const Object& object = code.object;
  const size_t given = launch.record.size();
  const size_t words = given + object.kernel_locals.size();
  uint64_t in_frame[kWordsInFrame];
  std::vector<uint64_t> on_heap;
  uint64_t* record = in_frame;
  if (words > kWordsInFrame) {
    on_heap.resize(words);
    record = on_heap.data();
  }
  std::memcpy(record, launch.record.data(), given * sizeof(uint64_t));
  KernelStatus status;
  if (object.status_word >= 0) record[object.status_word] = reinterpret_cast<uint64_t>(&status);
  std::vector<BufferRef> locals;
  for (const ir::Local& local : object.kernel_locals) {
    locals.push_back(allocator().allocate(bytes_of(local, launch.extents), "kernel"));
    record[given + locals.size() - 1] = reinterpret_cast<uint64_t>(locals.back()->data());
  }
  size_t scratch = 0;
  for (const ir::Local& local : object.thread_locals) scratch += bytes_of(local, launch.extents);
  count(Counter::kernels_launched);
  for (size_t i = 0; i < code.functions.size() && status.site < 0; ++i)
    run_entry(object.entries[i], code.functions[i], record, scratch, launch.extents);
  if (status.site < 0) return;
  if (launch.report != nullptr)
    launch.report(launch.context, static_cast<int32_t>(status.site), status.index);
  fail(ErrorKind::index, "kernel", "index {} is out of range", status.index);
}

}  // namespace cermet
