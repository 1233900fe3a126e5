// SPDX-License-Identifier: MIT
// Running kernels: the records with what the launch itself provides (status, scratch), then each entry
// point over the items of all members, by the calling thread alone where threads would not pay.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/float_mode.h"
#include "runtime/kernel_cache.h"
#include "runtime/packed_cache.h"
#include "runtime/poll.h"
#include "runtime/spin.h"
#include "runtime/thread_pool.h"

namespace cermet {
namespace {

constexpr size_t kWordsInFrame = 64;
constexpr double kChunkNs = 1.5e3;       // a chunk of items should take at least as long,
constexpr double kClaimNs = 100;         // and as the claims of all threads, which come one by one,
constexpr double kLongestChunkNs = 5e4;  // but not longer than this,
constexpr double kChunksPerThread = 16;  // and what can be shared out evenly is not cut smaller
constexpr double kMaxChunks = 4096;      // of a batch, about
constexpr double kTurnNs = 1e6;          // of work from one poll to the next
constexpr double kLongItemNs = 5e6;      // of an item that is to be stopped

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

// Scratch of a kernel, aligned to 64 bytes: this thread's, kept for the next one. A handler of a signal may run
// another meanwhile, which takes its own.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(std::exchange(kept, {})) {
    if (bytes <= memory_.bytes) return;
    memory_ = {};
    memory_.data.reset(std::aligned_alloc(64, bytes));
    CERMET_CHECK(memory_.data != nullptr, memory, "kernel",
                 "no memory for {} bytes of scratch; free some", bytes);
    memory_.bytes = bytes;
  }
  ~Scratch() {
    if (memory_.bytes > kept.bytes) std::swap(kept, memory_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return memory_.data.get(); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  struct Memory {
    std::unique_ptr<void, Free> data;
    size_t bytes = 0;
  };
  static thread_local Memory kept;
  Memory memory_;
};

thread_local Scratch::Memory Scratch::kept;

double item_cost(const EntryPoint& entry, std::span<const int64_t> extents) {
  double total = 0;
  for (const Work& work : entry.work) {
    double ns = work.ns;
    for (const WorkTrip& trip : work.trips) ns *= trip.times(extents[trip.axis]);
    total += ns;
  }
  return total;
}

double total_cost(const EntryPoint& entry, int64_t items, double each) {
  return items <= 0 ? 0 : each * (entry.spans ? 1 : static_cast<double>(items));
}

// Packing costs enough of the launch for its memory to be worth keeping: what is packed is read and
// written, most often beyond the caches. Of a small launch looking it up would cost as much. Judged by the
// first member.
bool is_worth_keeping(const Packing& packing, const Object& object, const LaunchSizes& sizes,
                      int members) {
  constexpr double kShare = 0.05, kByteNs = 0.1, kLeastNs = 2e4;
  double bytes = 0, all = 0;
  for (size_t i = 0; i < object.entries.size(); ++i) all += sizes.of_entry(i, members)[0].total;
  if (all < kLeastNs) return false;
  for (int32_t local : packing.locals)
    bytes += static_cast<double>(sizes.locals[static_cast<size_t>(local)]);
  const auto entry = static_cast<size_t>(packing.entry);
  const double alone = sizes.of_entry(entry, members)[0].total;
  const double cost = std::max(alone, 2 * bytes * kByteNs);
  return cost >= kShare * (all - alone + cost);
}

// The records of a launch's members, one behind the other.
class Members {
 public:
  Members(int count, const uint64_t* records, size_t words)
      : count_(count), records_(records), words_(words) {}

  int count() const { return count_; }
  const uint64_t* record(int member) const { return records_ + words_ * member; }
  size_t words() const { return words_; }  // of a record

 private:
  const int count_;
  const uint64_t* records_;
  size_t words_;
};

struct Runner {
  KernelFunction function;
  size_t scratch_bytes;
  void operator()(const uint64_t* record, int64_t begin, int64_t end) const {
    std::optional<Scratch> scratch;
    if (scratch_bytes != 0) scratch.emplace(scratch_bytes);
    if (function(record, begin, end, scratch ? scratch->data() : nullptr) < 0)
      ThreadPool::interrupt();
  }
};

// Items take far longer than estimated where memory is new to the process: of a chunk a few are run at a time,
// then more, while they are quick.
class Pace {
 public:
  explicit Pace(Runner run) : run_(run) {}
  static bool pays(double cost) { return cost >= kPaceNs; }

  void run(const uint64_t* record, int64_t begin, int64_t end) {
    while (true) {
      int64_t many = many_.load(std::memory_order_relaxed);
      const int64_t next = end - begin > many ? begin + many : end;
      const int64_t start = now_ns();
      run_(record, begin, next);
      const int64_t took = now_ns() - start;
      if (took >= kSlowNs) many_.store(std::max<int64_t>((next - begin) / 4, 1));
      else if (took < kQuickNs && next - begin == many)
        many_.compare_exchange_strong(many, 2 * many);
      if (next == end) return;
      begin = next;
      ThreadPool::poll();
    }
  }

 private:
  static constexpr double kPaceNs = 1e6;
  static constexpr int64_t kQuickNs = 200'000, kSlowNs = 5'000'000;  // parts
  const Runner run_;
  std::atomic<int64_t> many_{1};
};

// What threads run of a launch, with the record itself where it is short: each step to another place that the caller
// has just written may take a thread hundreds of ns.
class ItemChunks {
 public:
  ItemChunks(Runner run, Pace* pace, int64_t first, const uint64_t* record, size_t words)
      : run_(run), pace_(pace), first_(first), far_(words > kNearWords ? record : nullptr) {
    if (far_ == nullptr) std::copy_n(record, words, near_);
    bytes_ = offsetof(ItemChunks, near_) + (far_ == nullptr ? words * sizeof(uint64_t) : 0);
  }

  size_t bytes() const { return bytes_; }  // in use
  static void run(void* context, int64_t begin, int64_t end, int) {
    const ItemChunks& self = *static_cast<const ItemChunks*>(context);
    const uint64_t* record = self.far_ == nullptr ? self.near_ : self.far_;
    begin += self.first_, end += self.first_;
    self.pace_ != nullptr ? self.pace_->run(record, begin, end) : self.run_(record, begin, end);
  }

 private:
  static constexpr size_t kNearWords = 24;
  Runner run_;
  Pace* pace_;     // null: all of a chunk at once
  int64_t first_;  // before the items of the run
  const uint64_t* far_;
  size_t bytes_;
  uint64_t near_[kNearWords] = {};
};

double chunk_of(double cost) {
  const double threads = ThreadPool::get().size();
  const double chunk =
      std::max({cost / (kChunksPerThread * threads), kChunkNs, kClaimNs * threads});
  return std::min(chunk, kLongestChunkNs);
}

// Every span looks through all of the work, so there is one for each thread, and but one where no parked
// thread would be woken, or too few spans would share the rest.
int64_t span_of(const EntryPoint& entry, int64_t items, double cost) {
  const int threads = ThreadPool::get().size();
  if (cost < ThreadPool::kWakeCost || threads < entry.least) return items;
  return (items + threads - 1) / threads;
}

struct Items {
  int64_t first, past;
};

// Whether a launch that takes turns is long enough to be stopped between them.
bool is_in_turns(const EntryPoint& entry, const LaunchSizes::Work& work) {
  return entry.turn != 0 && work.items > entry.turn && work.total >= ThreadPool::kWakeCost;
}

// Each thread takes its share of a few turns, and looks whether to stop before the next few.
void run_in_turns(const EntryPoint& entry, const LaunchSizes::Work& work, const Runner& run,
                  const uint64_t* record) {
  const int64_t turn = entry.turn, turns = work.items / turn;
  const double fits = std::min(static_cast<double>(turns) * kTurnNs / work.total, 1e15);
  const int64_t few = std::max<int64_t>(static_cast<int64_t>(fits), 1);
  ThreadPool::get().run(turn, span_of(entry, turn, work.total), work.total,
                        [=](int64_t begin, int64_t end, int) {
                          for (int64_t first = 0; first < turns; first += few) {
                            if (first != 0) ThreadPool::poll();
                            const int64_t last = std::min(first + few, turns) - 1;
                            run(record, first * turn + begin, last * turn + end);
                          }
                        });
}

void run_items(const EntryPoint& entry, const LaunchSizes::Work& work, const Runner& run,
               const uint64_t* record, size_t words, Items range) {
  const int64_t items = range.past - range.first;
  if (items <= 0) return;
  if (is_in_turns(entry, work)) return run_in_turns(entry, work, run, record);
  const double cost = total_cost(entry, items, work.each);
  if (items == 1 || entry.in_order || cost < ThreadPool::kParallelCost) {
    const FloatMode mode;
    return run(record, range.first, range.past);
  }
  const double grain = entry.spans ? static_cast<double>(span_of(entry, items, cost))
                                   : std::min(std::ceil(chunk_of(cost) / std::max(work.each, 1e-3)),
                                              static_cast<double>(items));
  Pace pace(run);
  const bool paced = !entry.spans && Pace::pays(cost);
  ItemChunks chunks(run, paced ? &pace : nullptr, range.first, record, words);
  ThreadPool::get().run(items, static_cast<int64_t>(std::max(grain, 1.0)), cost, ItemChunks::run,
                        &chunks, chunks.bytes());
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

void run_entry(const EntryPoint& entry, std::span<const LaunchSizes::Work> sizes, const Runner& run,
               const Members& members) {
  const auto takes_turns = [&](const LaunchSizes::Work& one) { return is_in_turns(entry, one); };
  if (members.count() == 1 || entry.in_order || std::ranges::any_of(sizes, takes_turns)) {
    for (int m = 0; m < members.count(); ++m) {
      const LaunchSizes::Work& one = sizes[static_cast<size_t>(m)];
      run_items(entry, one, run, members.record(m), members.words(), {0, one.items});
    }
    return;
  }
  std::vector<MemberWork> work;
  work.reserve(sizes.size());
  double cost = 0;
  for (const LaunchSizes::Work& w : sizes) {
    const int64_t items = std::max<int64_t>(w.items, 0);
    work.push_back(entry.spans && items > 0
                       ? MemberWork{items, w.total / static_cast<double>(items),
                                    span_of(entry, items, w.total)}
                       : MemberWork{items, w.each, 1});
    cost += w.total;
  }
  Pace pace(run);
  Pace* const paced = !entry.spans && Pace::pays(cost) ? &pace : nullptr;
  // From one place to another, members without items left out.
  const auto run_between = [run, paced, members, work = std::span<const MemberWork>(work)](
                               ChunkStart begin, ChunkStart end) {
    for (int m = begin.member; m <= end.member && m < members.count(); ++m) {
      const int64_t last = m == end.member ? end.item : work[m].items;
      const int64_t first = m == begin.member ? begin.item : 0;
      if (first >= last) continue;
      paced != nullptr ? paced->run(members.record(m), first, last)
                       : run(members.record(m), first, last);
    }
  };
  if (cost < ThreadPool::kParallelCost) {
    const FloatMode mode;
    return run_between({0, 0}, {members.count(), 0});
  }
  const std::vector<ChunkStart> starts = cut_into_chunks(work, cost);
  ThreadPool::get().run(
      static_cast<int64_t>(starts.size()) - 1, 1, cost,
      [run_between, starts = std::span<const ChunkStart>(starts)](int64_t begin, int64_t end, int) {
        run_between(starts[begin], starts[end]);
      });
}

// Three entry points of the same items, those of an item one after the other, while its data are in the cache.
// Threads take items in order, so whom an item's carries wait for is being run.
class Rounds {  // NOLINT(clang-analyzer-optin.performance.Padding): lines of their own
 public:
  Rounds(const LoadedKernel& code, size_t entry, const LaunchSizes& sizes, const uint64_t* record)
      : code_(code), entry_(entry), sizes_(sizes), record_(record), items_(work(0).items) {}

  void run() {
    if (items_ <= 0) return;
    double cost = 0;
    for (size_t i = 0; i < 3; ++i) cost += work(i).total;
    const int64_t threads = std::min<int64_t>(ThreadPool::get().size(), items_);
    ThreadPool::get().run(threads, 1, cost, [&](int64_t, int64_t, int worker) {
      try {
        take_items(worker);
      } catch (...) {
        failed_ = true;
        throw;
      }
    });
  }

 private:
  const LaunchSizes::Work& work(size_t i) const { return sizes_.of_entry(entry_ + i, 1)[0]; }
  void run_one(size_t i, int64_t item) const {
    Runner{code_.functions[entry_ + i], sizes_.scratch}(record_, item, item + 1);
  }
  void take_items(int worker) {
    for (int64_t item = next_++; item < items_; item = next_++) {
      if (worker == 0 && item != 0) check_cancelled("eval");
      run_one(0, item);
      if (!wait_for(item)) return;
      run_one(1, item);
      carried_.store(item + 1, std::memory_order_release);
      run_one(2, item);
    }
  }
  bool wait_for(int64_t item) const {
    for (int spins = 0; carried_.load(std::memory_order_acquire) != item; ++spins) {
      if (failed_.load(std::memory_order_relaxed)) return false;
      spins < kSpins ? cpu_relax() : static_cast<void>(sched_yield());
    }
    return true;
  }

  static constexpr int kSpins =
      1000;  // longer than an item takes: its thread has lost its processor
  const LoadedKernel& code_;
  const size_t entry_;
  const LaunchSizes& sizes_;
  const uint64_t* record_;
  const int64_t items_;
  alignas(64) std::atomic<int64_t> next_{0};     // to be taken
  alignas(64) std::atomic<int64_t> carried_{0};  // items before this one are
  std::atomic<bool> failed_{false};
};

// The packings of a launch: those of earlier launches put in place, and what of this one is to be kept.
class Packings {
 public:
  Packings(const LoadedKernel& code, std::span<Buffer* const> sources, const LaunchSizes& sizes,
           const Members& members)
      : code_(code), sources_(sources), members_(members) {
    if (sources.empty()) return;
    for (int i = 0; sizes.worth_keeping >> i != 0; ++i)
      if ((sizes.worth_keeping >> i & 1) != 0) find(i);
  }

  // Of a member and a Local of the kernel; null: it is to be made.
  BufferRef place_of(int member, int32_t local) const {
    for (const Found& f : found_) {
      const std::vector<int32_t>& locals = packing(f).locals;
      const auto at = std::ranges::find(locals, local);
      if (f.is_there && at != locals.end()) return f.uses[member].locals[at - locals.begin()];
    }
    return nullptr;
  }
  // All are there, or this launch is to make them so.
  bool pay() const {
    const auto pays = [](const PackedUse& use) { return use.is_wanted || !use.locals.empty(); };
    return !found_.empty() && std::ranges::all_of(found_, [&](const Found& f) {
      return std::ranges::all_of(f.uses, pays);
    });
  }
  bool is_made(size_t entry) const {
    return std::ranges::any_of(found_, [&](const Found& f) {
      return f.is_there && packing(f).entry == static_cast<int32_t>(entry);
    });
  }
  // locals: those of a member behind those of the one before.
  void keep(std::span<const BufferRef> locals) const {
    const size_t each = code_.object.kernel_locals.size();
    for (const Found& f : found_) {
      for (size_t m = 0; m < f.uses.size() && !f.is_there; ++m) {
        if (!f.uses[m].is_wanted) continue;
        std::vector<BufferRef> made;
        for (int32_t local : packing(f).locals)
          made.push_back(locals[each * m + static_cast<size_t>(local)]);
        keep_packed(f.keys[m], sources_of(f.number, static_cast<int>(m)), std::move(made));
      }
    }
  }

 private:
  struct Found {
    int number;
    std::vector<PackedKey> keys;  // of each member
    std::vector<PackedUse> uses;
    bool is_there;  // for every member
  };

  const Packing& packing(const Found& f) const { return code_.object.packings[f.number]; }

  std::span<Buffer* const> sources_of(int number, int member) const {
    size_t before = 0, all = 0;
    for (size_t i = 0; i < code_.object.packings.size(); ++i) {
      const size_t count = code_.object.packings[i].sources.size();
      if (static_cast<int>(i) < number) before += count;
      all += count;
    }
    return sources_.subspan(all * static_cast<size_t>(member) + before,
                            code_.object.packings[number].sources.size());
  }

  void find(int number) {
    const Packing& packing = code_.object.packings[number];
    Found found{.number = number, .keys = {}, .uses = {}, .is_there = true};
    for (int m = 0; m < members_.count(); ++m) {
      const std::span<Buffer* const> sources = sources_of(number, m);
      if (std::ranges::find(sources, nullptr) != sources.end()) return;
      PackedKey key{packing.hash.lo, packing.hash.hi};
      for (Buffer* source : sources) {
        key.push_back(reinterpret_cast<uint64_t>(source));
        key.push_back(source->version());
      }
      for (const auto* words : {&packing.sources, &packing.words})
        for (int32_t word : *words) key.push_back(members_.record(m)[word]);
      found.uses.push_back(find_packed(key));
      found.keys.push_back(std::move(key));
      found.is_there &= !found.uses.back().locals.empty();
    }
    found_.push_back(std::move(found));
  }

  const LoadedKernel& code_;
  const std::span<Buffer* const> sources_;
  const Members& members_;
  std::vector<Found> found_;
};

}  // namespace

LaunchSizes::LaunchSizes(const KernelHandle& kernel, int members,
                         std::span<const int64_t> extents) {
  constexpr size_t kMostPackings = 63;
  const Object& object = kernel.code->object;
  const size_t each = extents.size() / static_cast<size_t>(members);
  const auto of = [&](int m) { return extents.subspan(each * static_cast<size_t>(m), each); };
  for (const EntryPoint& entry : object.entries) {
    for (int m = 0; m < members; ++m) {
      const int64_t items = evaluate(entry.grid, of(m));
      const double cost = items <= 0 ? 0 : item_cost(entry, of(m));
      work.push_back({items, cost, total_cost(entry, items, cost)});
      has_long_items |= !entry.spans && cost >= kLongItemNs;
    }
  }
  for (int m = 0; m < members; ++m) {
    for (const ir::Local& local : object.kernel_locals) locals.push_back(bytes_of(local, of(m)));
    size_t bytes = 0;
    for (const ir::Local& local : object.thread_locals) bytes += bytes_of(local, of(m));
    scratch = std::max(scratch, bytes);
  }
  for (size_t i = 0; i < std::min(object.packings.size(), kMostPackings); ++i)
    if (is_worth_keeping(object.packings[i], object, *this, members))
      worth_keeping |= uint64_t{1} << i;
}

namespace {

// False, and nothing was done: `only_kept`, and its packings do not pay.
bool run_with(const Launch& launch, const KernelHandle& kernel, const LaunchSizes& sizes,
              std::span<Buffer* const> sources, bool only_kept) {
  const LoadedKernel& code = *kernel.code;
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
  const Members members(launch.members, records, words);
  std::vector<BufferRef> locals;
  for (int m = 0; m < launch.members; ++m) {
    uint64_t* record = records + words * m;
    std::memcpy(record, launch.record.data() + given * m, given * sizeof(uint64_t));
    if (object.status_word >= 0)
      record[object.status_word] = reinterpret_cast<uint64_t>(&status(m));
  }
  const Packings packings(code, sources, sizes, members);
  if (only_kept && !packings.pay()) return false;
  for (int m = 0; m < launch.members; ++m) {
    uint64_t* record = records + words * m;
    for (size_t i = 0; i < object.kernel_locals.size(); ++i) {
      BufferRef kept = packings.place_of(m, static_cast<int32_t>(i));
      locals.push_back(kept ? std::move(kept)
                            : allocator().allocate(sizes.locals[locals.size()], "kernel"));
      record[given + i] = reinterpret_cast<uint64_t>(locals.back()->data());
    }
  }
  count(Counter::kernels_launched);
  if (launch.started != nullptr) *launch.started = true;
  for (size_t i = 0; i < code.functions.size(); ++i) {
    if (packings.is_made(i)) continue;
    const bool rounds = launch.members == 1 && i + 2 < code.functions.size() &&
                        object.entries[i + 1].in_order && object.status_word < 0;
    if (rounds) {
      Rounds(code, i, sizes, members.record(0)).run();
      i += 2;
    } else {
      run_entry(object.entries[i], sizes.of_entry(i, launch.members),
                Runner{code.functions[i], sizes.scratch}, members);
    }
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
  packings.keep(locals);
  return true;
}

}  // namespace

void run_kernel(const Launch& launch) {
  const auto sizes_of = [&](const KernelHandle& kernel) {
    return LaunchSizes(kernel, launch.members, launch.extents);
  };
  const Launch::Kept& kept = launch.kept;
  if (kept.kernel != nullptr &&
      run_with(launch, *kept.kernel, sizes_of(*kept.kernel), kept.sources, true))
    return;
  std::optional<LaunchSizes> own;
  const LaunchSizes& sizes =
      launch.sizes != nullptr ? *launch.sizes : own.emplace(sizes_of(*launch.kernel));
  run_with(launch, *launch.kernel, sizes, launch.sources, false);
}

}  // namespace cermet
