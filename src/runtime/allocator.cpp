// SPDX-License-Identifier: MIT
#include "runtime/allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/lazy.h"
#include "runtime/block_cache.h"
#include "runtime/cgroup.h"
#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/fault.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/packed_cache.h"
#include "runtime/spin.h"
#include "runtime/thread.h"

namespace cermet {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallCache = 32 * kMiB;   // small blocks beyond it go back to malloc
constexpr size_t kJanitorFrom = 16 * kMiB;  // a cache as large gets a thread that drains it
constexpr size_t kJanitorUntil = 4 * kMiB;  // and the thread ends here
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTick = kSecond / 2;
constexpr int64_t kWindow = 4 * kSecond;  // a peak counts for the window it lies in and four more
constexpr int64_t kIdleAfter = 3 * kSecond;  // without a big (small) allocation
constexpr size_t kMaxBytes = size_t{1} << 56;

constexpr size_t kPage = 4096;

size_t page_round(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The most that a block for the bytes may have, for the cache to give it.
size_t with_room(size_t bytes) { return (bytes + bytes / 8) / kPage * kPage; }

size_t default_limit() {
  const uint64_t machine = physical_memory();
  return std::min(memory_quota().value_or(machine), machine) / 10 * 9;
}

std::string format_bytes(size_t bytes) {
  if (bytes < 10240) return fmt::format("{} bytes", bytes);
  const char* unit = "KiB";
  double value = static_cast<double>(bytes) / 1024;
  for (const char* larger : {"MiB", "GiB", "TiB", "PiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return fmt::format("{:.2f} {} ({} bytes)", value, unit, bytes);
}

// Costs nothing but the look at the topic when that is off.
template <typename... What>
void log_memory(const Allocator& allocator, size_t bytes, fmt::format_string<What...> text,
                What&&... what) {
  if (!log_enabled(LogTopic::alloc)) return;
  const MemoryStats now = allocator.stats();
  log_line(LogTopic::alloc, "{} {}; {} active, {} held", format_bytes(bytes),
           fmt::format(text, std::forward<What>(what)...), format_bytes(now.active),
           format_bytes(now.held));
}

// Which sizes have been asked for lately, and how much was live at most.
struct Recent {
  std::array<size_t, 5> peaks{};  // by window, the current one first
  int64_t window_end = 0;
  int64_t next_tick = 0;
  uint64_t big_seen = 0, small_seen = 0;  // allocations at the last tick
  int64_t big_time = 0, small_time = 0;   // of the last tick that saw new ones

  void roll(int64_t now, size_t live) {
    if (now < window_end) return;
    std::copy_backward(peaks.begin(), peaks.end() - 1, peaks.end());
    peaks[0] = live;
    window_end = now + kWindow;
  }
  size_t peak() const { return *std::max_element(peaks.begin(), peaks.end()); }
};

}  // namespace

struct Allocator::State {
  mutable SpinLock lock;
  BlockCache cache;
  MemoryStats stats;  // `cache`: of evictable buffers alone
  size_t memory_limit = 0;
  size_t cache_limit = std::numeric_limits<size_t>::max();
  uint64_t big_count = 0;  // allocations above kLargestClass
  Recent recent;
  bool drained = false;  // idle: the cache shrinks no further by itself

  // The thread that drains an idle cache.
  std::mutex janitor_mutex;
  std::condition_variable janitor_wake;
  std::thread janitor;
  std::atomic<bool> janitor_runs{false};
  bool janitor_stops = false;

  // What follows is called under `lock`.
  size_t live() const { return stats.held - cache.bytes(); }
  void activate(size_t bytes) {
    stats.active += bytes;
    if (stats.active > stats.peak) stats.peak = stats.active;
    if (live() > recent.peaks[0]) recent.peaks[0] = live();
  }
  void evict(size_t small_bound, size_t bound, BufferList& out);
  void shrink_to_bounds(BufferList& out);
  void keep(Buffer* buffer, size_t capacity, BufferList& out);
  void tick(int64_t now, BufferList& out);

  void start_janitor(Allocator& allocator);
  void forget_threads();
};

void Allocator::State::evict(size_t small_bound, size_t bound, BufferList& out) {
  const size_t before = cache.bytes();
  cache.evict(small_bound, bound, out);
  stats.held -= before - cache.bytes();
}

// While in use, what is held may be a quarter above the recent peak.
void Allocator::State::shrink_to_bounds(BufferList& out) {
  const size_t peak = recent.peak();
  const size_t total = peak + peak / 4 + 16 * kMiB;
  evict(kSmallCache, std::min(cache_limit, total - std::min(total, live())), out);
}

// Puts a released block into the cache, or into `out` when it may not stay.
void Allocator::State::keep(Buffer* buffer, size_t capacity, BufferList& out) {
  if (cache_limit == 0) {
    // Nothing is kept, not even blocks of no bytes.
  } else if (capacity <= kLargestClass) {
    if (cache.small_bytes() + capacity <= kSmallCache && cache.bytes() + capacity <= cache_limit) {
      return cache.put_small(size_class(capacity), buffer);
    }
  } else if (capacity <= cache_limit) {
    try {
      cache.put_big(buffer);
      return shrink_to_bounds(out);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): given back below
    }
  }
  stats.held -= capacity;
  out.push(buffer);
}

void Allocator::State::tick(int64_t now, BufferList& out) {
  if (now < recent.next_tick) return;
  recent.next_tick = now + kTick;
  const uint64_t small_count = stats.allocations + stats.hits - big_count;
  if (std::exchange(recent.big_seen, big_count) != big_count) recent.big_time = now;
  if (std::exchange(recent.small_seen, small_count) != small_count) recent.small_time = now;
  recent.roll(now, live());
  shrink_to_bounds(out);
  const bool big_idle = now - recent.big_time >= kIdleAfter;
  const bool small_idle = now - recent.small_time >= kIdleAfter;
  if (small_idle) evict(kMiB, cache.bytes(), out);
  if (big_idle) {
    recent.peaks.fill(live());
    evict(kSmallCache, cache.small_bytes() + live() / 16, out);
  }
  drained = big_idle && small_idle;
}

void Allocator::State::start_janitor(Allocator& allocator) {
  std::lock_guard guard(janitor_mutex);
  if (janitor_runs || janitor_stops) return;
  if (janitor.joinable()) janitor.join();
  janitor = start_thread("cermet-memory", [this, &allocator] {
    std::unique_lock guard(janitor_mutex);
    while (!janitor_stops) {
      janitor_wake.wait_for(guard, std::chrono::nanoseconds(kTick));
      guard.unlock();
      allocator.decay(coarse_ns());
      lock.lock();
      const bool done = drained || cache.bytes() < kJanitorUntil;
      lock.unlock();
      guard.lock();
      if (done) break;
    }
    janitor_runs = false;
  });
  janitor_runs = janitor.joinable();
}

// In the child of a fork, where nobody else waits for these: made anew over the old ones.
void Allocator::State::forget_threads() {
  new (&janitor_mutex) std::mutex;
  new (&janitor_wake) std::condition_variable;
  new (&janitor) std::thread;
  janitor_runs = false;
}

// Every allocator, for fork; those of devices, for all.
struct AllocatorRegistry {
  std::mutex mutex;
  std::vector<Allocator*> all;
  std::map<Device, Allocator*> by_device;  // but the CPU's

  static AllocatorRegistry& get() {
    static constinit ForkSafe<AllocatorRegistry> registry(ForkLevel::allocator);
    return registry.get();
  }
  static ForkHandler over_fork() { return {prepare, parent, child}; }
  static void prepare() {
    get().mutex.lock();
    for (Allocator* one : get().all) one->state_->lock.lock();
  }
  static void parent() {
    for (Allocator* one : get().all) one->state_->lock.unlock();
    get().mutex.unlock();
  }
  static void child() {
    for (Allocator* one : get().all) one->state_->forget_threads();
    parent();
  }
};

Allocator::Allocator(Device device, MemorySource& source, size_t memory_limit)
    : device_(device), source_(source), state_(std::make_unique<State>()) {
  state_->memory_limit = memory_limit != 0 ? memory_limit : default_limit();
  if (!source.cacheable()) state_->cache_limit = 0;
  std::lock_guard lock(AllocatorRegistry::get().mutex);
  AllocatorRegistry::get().all.push_back(this);
}

Allocator::~Allocator() {
  {
    std::lock_guard lock(AllocatorRegistry::get().mutex);
    std::erase(AllocatorRegistry::get().all, this);
  }
  {
    std::lock_guard lock(state_->janitor_mutex);
    state_->janitor_stops = true;
  }
  state_->janitor_wake.notify_all();
  if (state_->janitor.joinable()) state_->janitor.join();
  clear_cache();
}

BufferRef Allocator::allocate(size_t bytes, const char* op) {
  const bool small = bytes <= kLargestClass && source_.cacheable();
  Buffer* buffer = nullptr;
  CERMET_CHECK(!allocation_fails(), memory, op,
               "out of memory: the allocation of {} is made to fail; unset CERMET_FAIL_ALLOC",
               format_bytes(bytes));
  {
    std::lock_guard lock(state_->lock);
    buffer = small ? state_->cache.take_small(size_class(bytes)) : state_->cache.take_big(bytes);
    if (buffer != nullptr) {
      ++state_->stats.hits;
      state_->activate(bytes);
    }
    if (!small) ++state_->big_count;
  }
  const bool is_reused = buffer != nullptr;
  if (is_reused) count(Counter::allocator_hits);
  else buffer = obtain(bytes, op);
  log_memory(*this, bytes, "for {}, {} of {} bytes", op,
             is_reused ? "in a kept block" : "in a new block", buffer->capacity_);
  buffer->start(bytes);
  BufferRef result(buffer);
  if (!small) decay(coarse_ns());
  return result;
}

// Of sizes that grow step by step (what is appended to, say) the next ones find room in the block. Null: a block
// just too small is not kept, or there is no memory to spare.
void* Allocator::obtain_with_room(size_t bytes) {
  if (!source_.cacheable() || bytes <= kLargestClass || bytes > kMaxBytes) return nullptr;
  const size_t capacity = with_room(bytes);
  {
    std::lock_guard lock(state_->lock);
    const size_t spare = state_->memory_limit / 4 * 3;
    if (capacity > spare || state_->stats.held > spare - capacity ||
        !state_->cache.keeps_nearly(bytes))
      return nullptr;
    state_->stats.held += capacity;
  }
  void* block = source_.obtain(capacity);
  if (block != nullptr) return block;
  std::lock_guard lock(state_->lock);
  state_->stats.held -= capacity;
  return nullptr;
}

// A block from the source.
Buffer* Allocator::obtain(size_t bytes, const char* op) {
  size_t capacity = bytes;
  if (source_.cacheable() && bytes <= kMaxBytes) {
    capacity = bytes <= kLargestClass ? class_capacity(size_class(bytes)) : page_round(bytes);
  }
  Buffer* buffer = Buffer::take();
  void* block = obtain_with_room(bytes);
  if (block != nullptr) {
    capacity = with_room(bytes);
  } else if (bytes <= kMaxBytes && reserve(capacity)) {
    block = source_.obtain(capacity);
    if (block == nullptr) {
      clear_cache();
      block = source_.obtain(capacity);
    }
    std::lock_guard lock(state_->lock);
    if (block == nullptr) state_->stats.held -= capacity;
  }
  if (block != nullptr) {
    std::lock_guard lock(state_->lock);
    buffer->data_ = block;
    buffer->capacity_ = capacity;
    buffer->owner_ = this;
    buffer->device_ = device_;
    ++state_->stats.allocations;
    state_->activate(bytes);
    count(Counter::allocations);
    return buffer;
  }
  Buffer::put(buffer);
  const MemoryStats now = stats();
  fail(ErrorKind::memory, op,
       "out of memory: {} asked for while {} of at most {} are held; free arrays or see "
       "set_memory_limit",
       format_bytes(bytes), format_bytes(now.held), format_bytes(memory_limit()));
}

// Counts the bytes as held if the limit allows it, dropping the cache where that helps.
bool Allocator::reserve(size_t capacity) {
  if (reserve_beside_packed(capacity)) return true;
  drop_all_packed();
  return reserve_beside_packed(capacity);
}

bool Allocator::reserve_beside_packed(size_t capacity) {
  BufferList evicted;
  bool fits = false;
  {
    std::lock_guard lock(state_->lock);
    const auto exceeds = [&] {
      return capacity > state_->memory_limit ||
             state_->stats.held > state_->memory_limit - capacity;
    };
    if (exceeds()) state_->evict(0, 0, evicted);
    fits = !exceeds();
    if (fits) state_->stats.held += capacity;
  }
  give_back(evicted);
  return fits;
}

void Allocator::release(Buffer* buffer) {
  const size_t capacity = buffer->capacity_;
  BufferList evicted;
  bool big_cache = false;
  {
    std::lock_guard lock(state_->lock);
    (buffer->evictable_ ? state_->stats.cache : state_->stats.active) -= buffer->size_;
    state_->keep(buffer, capacity, evicted);
    big_cache = state_->cache.bytes() >= kJanitorFrom;
    if (big_cache) state_->drained = false;
  }
  give_back(evicted);
  if (big_cache && !state_->janitor_runs.load(std::memory_order_relaxed)) {
    state_->start_janitor(*this);
  }
  if (capacity > kLargestClass) decay(coarse_ns());
}

void Allocator::give_back(BufferList& list) {
  size_t bytes = 0;
  while (!list.empty()) {
    Buffer* buffer = list.pop();
    bytes += buffer->capacity_;
    source_.give_back(buffer->data_, buffer->capacity_);
    Buffer::put(buffer);
  }
  if (bytes != 0) log_memory(*this, bytes, "given back to the system");
}

MemoryStats Allocator::stats() const {
  std::lock_guard lock(state_->lock);
  MemoryStats stats = state_->stats;
  stats.cache += state_->cache.bytes();
  return stats;
}

void Allocator::reset_peak() {
  std::lock_guard lock(state_->lock);
  state_->stats.peak = 0;
}

size_t Allocator::set_memory_limit(size_t bytes) {
  std::lock_guard lock(state_->lock);
  return std::exchange(state_->memory_limit, bytes);
}

size_t Allocator::memory_limit() const {
  std::lock_guard lock(state_->lock);
  return state_->memory_limit;
}

size_t Allocator::set_cache_limit(size_t bytes) {
  BufferList evicted;
  size_t before = 0;
  {
    std::lock_guard lock(state_->lock);
    before = std::exchange(state_->cache_limit, source_.cacheable() ? bytes : 0);
    state_->shrink_to_bounds(evicted);
  }
  give_back(evicted);
  if (packed_bytes() > bytes) drop_all_packed();
  return before;
}

size_t Allocator::cache_limit() const {
  std::lock_guard lock(state_->lock);
  return state_->cache_limit;
}

void Allocator::make_evictable(Buffer& buffer) {
  std::lock_guard lock(state_->lock);
  state_->stats.active -= buffer.size_;
  state_->stats.cache += buffer.size_;
  buffer.evictable_ = true;
}

void Allocator::clear_cache() {
  drop_all_packed();
  BufferList evicted;
  {
    std::lock_guard lock(state_->lock);
    state_->evict(0, 0, evicted);
  }
  give_back(evicted);
  source_.trim();
}

void Allocator::decay(int64_t now_ns) {
  BufferList evicted;
  {
    std::lock_guard lock(state_->lock);
    state_->tick(now_ns, evicted);
  }
  give_back(evicted);
}

namespace {

MemorySource& cpu_memory() {
  const std::string& kind = env::allocator();
  return kind == "caching" ? system_memory() : guarded_memory(kind == "guard_front");
}

template <typename F>
void each_allocator(F&& f) {
  f(allocator());
  std::lock_guard lock(AllocatorRegistry::get().mutex);
  for (const auto& [device, one] : AllocatorRegistry::get().by_device) f(*one);
}

size_t sum_over_devices(size_t MemoryStats::* figure) {
  size_t sum = 0;
  each_allocator([&](Allocator& one) { sum += one.stats().*figure; });
  return sum;
}

}  // namespace

Allocator& allocator(Device device) {
  static constinit Lazy<Allocator> cpu;
  if (device == Device(Device::cpu))
    return cpu.get([] { return Allocator(Device::cpu, cpu_memory()); });
  auto& registry = AllocatorRegistry::get();
  std::lock_guard lock(registry.mutex);
  auto it = registry.by_device.find(device);
  CERMET_CHECK(it != registry.by_device.end(), device, "allocator",
               "there is no memory for {}; use mx.cpu", to_string(device));
  return *it->second;
}

void register_allocator(Allocator& allocator) {
  auto& registry = AllocatorRegistry::get();
  std::lock_guard lock(registry.mutex);
  registry.by_device[allocator.device()] = &allocator;
}

size_t get_active_memory() { return sum_over_devices(&MemoryStats::active); }
size_t get_peak_memory() { return sum_over_devices(&MemoryStats::peak); }
size_t get_cache_memory() { return sum_over_devices(&MemoryStats::cache); }

void reset_peak_memory() {
  each_allocator([](Allocator& one) { one.reset_peak(); });
}

void clear_cache() {
  each_allocator([](Allocator& one) { one.clear_cache(); });
}

size_t set_memory_limit(size_t bytes) {
  return allocator(default_device()).set_memory_limit(bytes);
}

size_t get_memory_limit() { return allocator(default_device()).memory_limit(); }

size_t set_cache_limit(size_t bytes) { return allocator(default_device()).set_cache_limit(bytes); }

size_t set_wired_limit(size_t bytes) {
  static constinit std::atomic<size_t> limit{0};
  return limit.exchange(bytes);
}

}  // namespace cermet
