// SPDX-License-Identifier: MIT
// Running kernels: the records with what the launch itself provides (status, scratch), then each entry
// point over the items of all members, by the calling thread alone where threads would not pay.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
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
constexpr double kChunkNs = 5e3;         // a chunk of items should take at least as long,
constexpr double kLongestChunkNs = 5e4;  // but not longer than this,
constexpr double kChunksPerThread = 16;  // and what can be shared out evenly is not cut smaller
constexpr double kMaxChunks = 4096;      // of a batch, about

int64_t evaluate(const ir::Size& size, std::span<const int64_t> extents) {
  int64_t value = size.constant;
  for (const ir::SizeTerm& term : size.terms)
    value *= (extents[term.axis] + term.tile - 1) / term.tile;
  return value;
}

size_t bytes_of(const ir::Local& local, std::span<const int64_t> extents) {
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
    CERMET_CHECK(data != nullptr, memory, "kernel", "no memory for {} bytes of scratch; free some",
                 bytes);
    std::free(std::exchange(scratch.data, data));
    scratch.bytes = bytes;
  }
  return scratch.data;
}

double item_cost(const EntryPoint& entry, std::span<const int64_t> extents) {
  double total = 0;
  for (const Work& work : entry.work) {
    double ns = work.ns;
    for (const WorkTrip& trip : work.trips)
      ns *= static_cast<double>(std::min(extents[trip.axis], trip.most));
    total += ns;
  }
  return total;
}

// The members of a launch, as an entry point sees them.
class Members {
 public:
  Members(const Launch& launch, const uint64_t* records, size_t words)
      : launch_(launch), records_(records), words_(words), extents_(launch.extents) {}

  int count() const { return launch_.members; }
  const uint64_t* record(int member) const { return records_ + words_ * member; }
  std::span<const int64_t> extents(int member) const {
    const size_t each = extents_.size() / static_cast<size_t>(launch_.members);
    return extents_.subspan(each * static_cast<size_t>(member), each);
  }

 private:
  const Launch& launch_;
  const uint64_t* records_;
  size_t words_;
  std::span<const int64_t> extents_;
};

struct Runner {
  KernelFunction function;
  size_t scratch_bytes;
  void operator()(const uint64_t* record, int64_t begin, int64_t end) const {
    function(record, begin, end, scratch_bytes == 0 ? nullptr : thread_scratch(scratch_bytes));
  }
};

double chunk_of(double cost) {
  return std::clamp(cost / (kChunksPerThread * ThreadPool::get().size()), kChunkNs,
                    kLongestChunkNs);
}

// Every span looks through all of the work, so there is one for each thread, and but one where no parked
// thread would be woken.
int64_t span_of(int64_t items, double cost) {
  if (cost < ThreadPool::kWakeCost) return items;
  const int threads = ThreadPool::get().size();
  return (items + threads - 1) / threads;
}

void run_entry(const EntryPoint& entry, const Runner& run, const uint64_t* record,
               std::span<const int64_t> extents) {
  const int64_t items = evaluate(entry.grid, extents);
  if (items <= 0) return;
  const double each = item_cost(entry, extents);
  const double cost = entry.spans ? each : each * static_cast<double>(items);
  if (items == 1 || cost < ThreadPool::kParallelCost) {
    const FloatMode mode;
    return run(record, 0, items);
  }
  const double grain = entry.spans ? static_cast<double>(span_of(items, cost))
                                   : std::min(std::ceil(chunk_of(cost) / std::max(each, 1e-3)),
                                              static_cast<double>(items));
  ThreadPool::get().run(items, static_cast<int64_t>(std::max(grain, 1.0)), cost,
                        [&](int64_t begin, int64_t end, int) { run(record, begin, end); });
}

struct MemberWork {
  int64_t items;
  double each;   // ns of an item
  int64_t span;  // items that are taken as one; 1: each alone
};

// Where a chunk of a batch begins; it ends where the next one begins.
struct ChunkStart {
  int member;
  int64_t item;
};

// Chunks of about equal cost, whatever the members' sizes.
std::vector<ChunkStart> cut_into_chunks(std::span<const MemberWork> work, double cost) {
  const double chunk = std::max(chunk_of(cost), cost / kMaxChunks);
  std::vector<ChunkStart> starts;
  double room = 0;
  for (int m = 0; m < static_cast<int>(work.size()); ++m) {
    const double each = std::max(work[m].each, 1e-3);
    for (int64_t item = 0; item < work[m].items;) {
      if (room <= 0) {
        starts.push_back({m, item});
        room = chunk;
      }
      const double fits = std::min(std::ceil(room / each), 1e18);
      const int64_t many = std::max(static_cast<int64_t>(fits), work[m].span);
      const int64_t taken = std::min(work[m].items - item, many);
      item += taken;
      room -= each * static_cast<double>(taken);
    }
  }
  starts.push_back({static_cast<int>(work.size()), 0});
  return starts;
}

void run_entry(const EntryPoint& entry, const Runner& run, const Members& members) {
  if (members.count() == 1) return run_entry(entry, run, members.record(0), members.extents(0));
  std::vector<MemberWork> work;
  work.reserve(static_cast<size_t>(members.count()));
  double cost = 0;
  for (int m = 0; m < members.count(); ++m) {
    const int64_t items = std::max<int64_t>(evaluate(entry.grid, members.extents(m)), 0);
    const double body = items == 0 ? 0 : item_cost(entry, members.extents(m));
    work.push_back(entry.spans && items > 0
                       ? MemberWork{items, body / static_cast<double>(items), span_of(items, body)}
                       : MemberWork{items, body, 1});
    cost += work.back().each * static_cast<double>(items);
  }
  // From one place to another, members without items left out.
  const auto run_between = [&](ChunkStart begin, ChunkStart end) {
    for (int m = begin.member; m <= end.member && m < members.count(); ++m) {
      const int64_t last = m == end.member ? end.item : work[m].items;
      const int64_t first = m == begin.member ? begin.item : 0;
      if (first < last) run(members.record(m), first, last);
    }
  };
  if (cost < ThreadPool::kParallelCost) {
    const FloatMode mode;
    return run_between({0, 0}, {members.count(), 0});
  }
  const std::vector<ChunkStart> starts = cut_into_chunks(work, cost);
  ThreadPool::get().run(
      static_cast<int64_t>(starts.size()) - 1, 1, cost,
      [&](int64_t begin, int64_t end, int) { run_between(starts[begin], starts[end]); });
}

}  // namespace

void run_kernel(const Launch& launch) {
  const LoadedKernel& code = *launch.kernel->code;
  const Object& object = code.object;
  const auto count_of = static_cast<size_t>(launch.members);
  const size_t given = launch.record.size() / count_of;
  const size_t words = given + object.kernel_locals.size();
  uint64_t in_frame[kWordsInFrame];
  std::vector<uint64_t> on_heap;
  uint64_t* records = in_frame;
  if (words * count_of > kWordsInFrame) {
    on_heap.resize(words * count_of);
    records = on_heap.data();
  }
  KernelStatus one_status;
  std::vector<KernelStatus> more_status(object.status_word >= 0 ? count_of - 1 : 0);
  const auto status = [&](int m) -> KernelStatus& {
    return m == 0 ? one_status : more_status[m - 1];
  };
  const Members members(launch, records, words);
  std::vector<BufferRef> locals;
  size_t scratch = 0;
  for (int m = 0; m < launch.members; ++m) {
    uint64_t* record = records + words * m;
    std::memcpy(record, launch.record.data() + given * m, given * sizeof(uint64_t));
    if (object.status_word >= 0)
      record[object.status_word] = reinterpret_cast<uint64_t>(&status(m));
    for (size_t i = 0; i < object.kernel_locals.size(); ++i) {
      const size_t bytes = bytes_of(object.kernel_locals[i], members.extents(m));
      locals.push_back(allocator().allocate(bytes, "kernel"));
      record[given + i] = reinterpret_cast<uint64_t>(locals.back()->data());
    }
    size_t bytes = 0;
    for (const ir::Local& local : object.thread_locals)
      bytes += bytes_of(local, members.extents(m));
    scratch = std::max(scratch, bytes);
  }
  count(Counter::kernels_launched);
  if (launch.started != nullptr) *launch.started = true;
  for (size_t i = 0; i < code.functions.size(); ++i) {
    run_entry(object.entries[i], Runner{code.functions[i], scratch}, members);
    if (object.status_word < 0) continue;
    for (int m = 0; m < launch.members; ++m) {
      if (status(m).site < 0) continue;
      if (launch.report != nullptr)
        launch.report(launch.context, m, static_cast<int32_t>(status(m).site), status(m).index);
      fail(ErrorKind::index, "kernel",
           "index {} is out of range; it must lie within the axis that it indexes",
           status(m).index);
    }
  }
}

}  // namespace cermet
