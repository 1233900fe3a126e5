// SPDX-License-Identifier: MIT
#include "runtime/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "runtime/cgroup.h"
#include "runtime/clock.h"
#include "runtime/float_mode.h"
#include "runtime/fork.h"
#include "runtime/futex.h"
#include "runtime/poll.h"
#include "runtime/sleeper.h"
#include "runtime/spin.h"
#include "runtime/thread.h"

namespace cermet {
namespace {

constexpr int kSlots = 4;              // runs that can share the pool at a time
constexpr int64_t kSpinNs = 500'000;   // a worker without work spins for so long, then parks
constexpr int64_t kPoliteNs = 50'000;  // from here on a spinner lets other threads go first
constexpr double kWholeCost = 2e4;     // ns of work that one thread does without polling
constexpr double kShortCost = 5e4, kLongCost = 1e6;  // ns of work; see first_claim
constexpr int64_t kRowGapNs = 10'000'000;            // runs closer than this come in a row
constexpr uint32_t kSleeping = 1u << 31;             // in Slot::done: the caller sleeps on it

thread_local bool in_body = false;  // a run from here stays in this thread

// Spins for a time: first on the processor alone, then letting other threads go first.
class Spinner {
 public:
  explicit Spinner(int64_t limit_ns) : limit_(limit_ns) {}
  bool spin() {  // false: the time is up
    cpu_relax();
    if (++spins_ % 32 != 0) return limit_ != 0;
    const int64_t now = now_ns();
    if (start_ == 0) start_ = now;
    if (now - start_ >= kPoliteNs) sched_yield();
    return now - start_ < limit_;
  }

 private:
  int64_t limit_;
  int64_t start_ = 0;
  uint32_t spins_ = 0;
};

// Which chunks are left, [begin, end), and how many a thread claims when it begins: epoch (28 bits) | first (8) |
// end (14) | begin (14). The epoch keeps a worker that read the ticket of an earlier run from claiming in this one.
struct Ticket {
  uint64_t word;

  static constexpr int64_t kMaxChunks = 0x3FFF;
  static constexpr uint32_t kMaxFirst = 0xFF;
  static Ticket make(uint64_t epoch, uint64_t first, uint64_t begin, uint64_t end) {
    return {epoch << 36 | first << 28 | end << 14 | begin};
  }
  uint64_t epoch() const { return word >> 36; }
  uint32_t first() const { return word >> 28 & kMaxFirst; }
  uint32_t begin() const { return word & kMaxChunks; }
  uint32_t end() const { return word >> 14 & kMaxChunks; }
  uint32_t left() const { return end() - begin(); }
  Ticket without_first(uint64_t n) const { return {word + n}; }
  Ticket without_last(uint64_t n) const { return {word - (n << 14)}; }
  Ticket exhausted() const { return make(epoch(), first(), end(), end()); }
};

// The caller claims tickets from the front and workers from the back: what one kernel wrote in a core's cache
// the same core then mostly reads in the next.
enum class Claim : uint8_t { first, last };

// Tickets [begin, end).
struct Claimed {
  uint32_t begin, end;
  uint32_t count() const { return end - begin; }
};

// One run. A line may take hundreds of ns from one processor to another, so they are few, and asked for at once. In the
// first one is what threads change. What they read, behind it, changes only while `ticket` has nothing left: whoever
// claimed a chunk reads it unhurriedly, as the caller waits for `done`.
struct alignas(64) Slot {
  std::atomic<uint64_t> ticket{0};
  std::atomic<uint32_t> done{0};     // chunks finished by workers
  std::atomic<bool> failed{false};   // `error` is set, or being set, by the one who set this
  std::atomic<bool> stopped{false};  // by the poll hook

  alignas(64) ThreadPool::Body body = nullptr;
  void* context = nullptr;
  int64_t items = 0;
  int64_t chunk = 0;  // items
  uint32_t chunks = 0;
  std::array<uint64_t, 35> held{};  // the context itself, if it is short

  alignas(64) std::atomic<bool> taken{false};  // belongs to a caller
  std::exception_ptr error;

  static constexpr size_t kLines = 3;  // that most runs use
  const std::byte* line(size_t i) const {
    return reinterpret_cast<const std::byte*>(this) + 64 * i;
  }
  void fetch_to_fill() const;
  void fetch_for_reading() const;
  void fill(ThreadPool::Body body_, void* context_, size_t bytes);
  bool claim(Claim which, bool begins, Claimed& claimed);
  uint32_t abandon();
  uint32_t work(int worker);
  uint32_t work_first(uint32_t first);
  void run_chunks(Claimed claimed, int worker);
  bool poll_hook();
};

// What this thread runs a body of, and whether as the run's caller.
thread_local Slot* current = nullptr;
thread_local bool is_caller = false;

void Slot::fetch_to_fill() const {
  for (size_t i = 0; i < kLines; ++i) prefetch_to_change(line(i));
}
void Slot::fetch_for_reading() const {
  for (size_t i = 1; i < kLines; ++i) __builtin_prefetch(line(i));
}

void Slot::fill(ThreadPool::Body body_, void* context_, size_t bytes) {
  body = body_;
  context =
      bytes != 0 && bytes <= sizeof(held) ? std::memcpy(held.data(), context_, bytes) : context_;
}

bool Slot::claim(Claim which, bool begins, Claimed& claimed) {
  prefetch_to_change(&ticket);
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (Ticket{seen}.left() != 0) {
    const Ticket old{seen};
    const uint32_t n = begins ? std::min(old.first(), old.left()) : 1;
    const Ticket left = which == Claim::first ? old.without_first(n) : old.without_last(n);
    if (ticket.compare_exchange_weak(seen, left.word, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      claimed = which == Claim::first ? Claimed{old.begin(), left.begin()}
                                      : Claimed{left.end(), old.end()};
      return true;
    }
  }
  return false;
}

// Leaves nothing to claim; returns how many chunks will not be run.
uint32_t Slot::abandon() {
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (!ticket.compare_exchange_weak(seen, Ticket{seen}.exhausted().word,
                                       std::memory_order_acq_rel, std::memory_order_acquire)) {
  }
  return Ticket{seen}.left();
}

// Tickets of the back half stand for its chunks in reverse, so that memory is gone over forwards there, too: what is
// fetched beyond a chunk is wanted next.
void Slot::run_chunks(Claimed claimed, int worker) {
  const uint32_t half = chunks / 2;
  const auto run = [&](int64_t first, int64_t past) {
    if (first < past) body(context, first * chunk, std::min(items, past * chunk), worker);
  };
  run(claimed.begin, std::min(claimed.end, half));
  run(int64_t{chunks} + half - claimed.end, int64_t{chunks} + half - std::max(claimed.begin, half));
}

// The caller's: whether to stop.
bool Slot::poll_hook() {
  if (cancelled()) stopped.store(true, std::memory_order_relaxed);
  return stopped.load(std::memory_order_relaxed);
}

// Claims and runs chunks; returns how many it settled.
uint32_t Slot::work(int worker) {
  uint32_t settled = 0;
  Claimed claimed{};
  current = this;
  for (bool begins = true; claim(Claim::last, begins, claimed); begins = false) {
    settled += claimed.count();
    try {
      run_chunks(claimed, worker);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      settled += abandon();
    }
  }
  current = nullptr;
  return settled;
}

// The caller's part: the first chunks are its own. Looks at the poll hook between chunks.
uint32_t Slot::work_first(uint32_t first) {
  Claimed claimed{0, first};
  uint32_t settled = first;
  bool abandoned = false;
  in_body = is_caller = true;
  current = this;
  try {
    while (true) {
      run_chunks(claimed, 0);
      prefetch_to_change(&ticket);
      abandoned = poll_hook();
      if (abandoned || !claim(Claim::first, false, claimed)) break;
      settled += claimed.count();
    }
  } catch (...) {
    if (!failed.exchange(true)) error = std::current_exception();
    abandoned = true;
  }
  in_body = is_caller = false;
  current = nullptr;
  return abandoned ? settled + abandon() : settled;
}

}  // namespace

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): lines of their own
struct ThreadPool::State {
  std::array<Slot, kSlots> slots;
  alignas(64) std::atomic<int> parked{0};
  std::atomic<uint32_t> wake{0};  // parked workers sleep on it
  std::atomic<bool> stopping{false};
  alignas(64) int size = 1;
  std::atomic<int> workers{0};  // started
  int64_t spin_ns = kSpinNs;
  std::unique_ptr<Sleeper[]> sleepers;  // by worker
  std::atomic<double> row_cost{0};      // ns of work that ran alone of late; see row_pays
  std::atomic<int64_t> row_time{0};
  std::mutex mutex;  // starting and stopping workers
  std::vector<std::thread> threads;

  State(int size, bool spin) : spin_ns(spin ? kSpinNs : 0) { resize(size); }

  void resize(int to) {
    size = to;
    sleepers = std::make_unique<Sleeper[]>(static_cast<size_t>(to));
  }

  void start_workers();
  void stop_workers(int next_size);
  void work(int worker);
  bool serve(int worker);
  void park(int worker);
  bool any_left() const;
  void wake_some(int n);

  Slot* take_slot();
  Sharing sharing(double cost_ns);
  bool row_pays(double cost_ns);
  void share(Slot& slot, uint32_t first, bool wake_parked);
  void wait_for_others(Slot& slot, uint32_t others);
};

void ThreadPool::State::start_workers() {
  std::lock_guard lock(mutex);
  while (static_cast<int>(threads.size()) + 1 < size) {
    const int worker = static_cast<int>(threads.size()) + 1;
    sleepers[worker].expect();
    std::thread thread =
        start_thread(fmt::format("cermet-{}", worker).c_str(), [this, worker] { work(worker); });
    if (!thread.joinable()) break;
    sleepers[worker].start(thread.native_handle(), sched_getcpu());
    threads.push_back(std::move(thread));
  }
  workers = std::max<int>(1, threads.size());  // none to be had: not tried again
}

// No slot is free. Under one lock with the size, as a run looks for workers to start before it has a slot.
void ThreadPool::State::stop_workers(int next_size) {
  std::lock_guard lock(mutex);
  stopping = true;
  wake_some(INT_MAX);
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  workers = 0;
  resize(next_size);
  stopping = false;
}

void ThreadPool::State::wake_some(int n) {
  constexpr int kFewThreads = 4;
  const int here = sched_getcpu();
  for (int worker = 1; worker < size; ++worker) sleepers[worker].leave(here, size <= kFewThreads);
  wake.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(wake, n);
}

bool ThreadPool::State::any_left() const {
  return std::any_of(slots.begin(), slots.end(), [](const Slot& slot) {
    return Ticket{slot.ticket.load(std::memory_order_seq_cst)}.left() != 0;
  });
}

bool ThreadPool::State::serve(int worker) {
  bool served = false;
  for (Slot& slot : slots) {
    if (Ticket{slot.ticket.load(std::memory_order_relaxed)}.left() == 0) continue;
    slot.fetch_for_reading();
    const uint32_t settled = slot.work(worker);
    if (settled == 0) continue;
    served = true;
    // From here on the slot may serve another run: only the address of `done` is used.
    if (slot.done.fetch_add(settled, std::memory_order_acq_rel) & kSleeping) {
      futex_wake(slot.done, 1);
    }
  }
  return served;
}

void ThreadPool::State::work(int worker) {
  FloatMode mode;
  in_body = true;
  sleepers[worker].begin();
  Spinner spinner(spin_ns);
  while (!stopping.load(std::memory_order_relaxed)) {
    if (!serve(worker)) {
      if (spinner.spin()) continue;
      park(worker);
    }
    spinner = Spinner(spin_ns);
  }
}

void ThreadPool::State::park(int worker) {
  const uint32_t seen = wake.load(std::memory_order_seq_cst);
  Sleeper& sleeper = sleepers[worker];
  sleeper.lie_down();
  parked.fetch_add(1, std::memory_order_seq_cst);
  // Whoever publishes work looks at `parked` after it, so either sees the other.
  if (!any_left() && !stopping.load(std::memory_order_seq_cst)) futex_wait(wake, seen);
  sleeper.get_up();
  const int others = parked.fetch_sub(1, std::memory_order_seq_cst) - 1;
  // The caller wakes a few; each of these wakes two more while chunks are left.
  if (others > 0 && any_left()) wake_some(2);
  serve(worker);
}

Slot* ThreadPool::State::take_slot() {
  for (Slot& slot : slots) {
    if (!slot.taken.load(std::memory_order_relaxed) &&
        !slot.taken.exchange(true, std::memory_order_acquire)) {
      slot.fetch_to_fill();
      return &slot;
    }
  }
  return nullptr;
}

// Is there a thread that would come in time, or that this run pays to wake?
ThreadPool::Sharing ThreadPool::State::sharing(double cost_ns) {
  if (size == 1 || in_body || !(cost_ns >= kParallelCost)) return Sharing::none;
  const int awake =
      workers.load(std::memory_order_acquire) - parked.load(std::memory_order_relaxed);
  if (cost_ns < kWakeCost) {
    if (awake > 0) return Sharing::awake;
    if (!row_pays(cost_ns)) return Sharing::none;
  }
  if (workers.load(std::memory_order_relaxed) == 0) start_workers();
  return Sharing::wake;
}

// Adds up the runs that came one after the other while the workers were parked. Counts from several
// threads may get lost: the sum only decides about speed.
bool ThreadPool::State::row_pays(double cost_ns) {
  const int64_t now = coarse_ns();
  const bool in_row = now - row_time.exchange(now, std::memory_order_relaxed) < kRowGapNs;
  const double cost = cost_ns + (in_row ? row_cost.load(std::memory_order_relaxed) : 0);
  const bool pays = cost >= kWakeCost;
  row_cost.store(pays ? 0 : cost, std::memory_order_relaxed);
  return pays;
}

// Runs the first chunk and what else it can get, then waits for what others claimed. Whether the user
// cancelled and errors are in the slot.
void ThreadPool::State::share(Slot& slot, uint32_t first, bool wake_parked) {
  const uint64_t epoch = Ticket{slot.ticket.load(std::memory_order_relaxed)}.epoch() + 1;
  slot.done.store(0, std::memory_order_relaxed);
  slot.stopped.store(false, std::memory_order_relaxed);
  const int64_t chunks = slot.chunks;
  const uint64_t word = Ticket::make(epoch, first, first, slot.chunks).word;
  if (!wake_parked) {
    // Not waited for: workers that look will see it.
    slot.ticket.store(word, std::memory_order_release);
  } else {
    slot.ticket.store(word, std::memory_order_seq_cst);
    const int sleepers = parked.load(std::memory_order_seq_cst);
    if (sleepers > 0) wake_some(static_cast<int>(std::min<int64_t>({sleepers, chunks - 1, 4})));
  }
  const uint32_t settled = slot.work_first(first);
  wait_for_others(slot, static_cast<uint32_t>(chunks) - settled);
}

void ThreadPool::State::wait_for_others(Slot& slot, uint32_t others) {
  const auto finished = [&] {
    return (slot.done.load(std::memory_order_acquire) & ~kSleeping) == others;
  };
  Spinner spinner(std::max(spin_ns, kPoliteNs));
  while (!finished()) {
    if (spinner.spin()) continue;
    slot.poll_hook();
    const uint32_t before = slot.done.fetch_or(kSleeping, std::memory_order_acq_rel);
    if ((before & ~kSleeping) != others) futex_wait(slot.done, before | kSleeping, kPollPeriodNs);
  }
}

namespace {

// All in this thread, in chunks where it may take long.
void run_alone(int64_t items, int64_t grain, double cost_ns, ThreadPool::Body body, void* context) {
  if (cost_ns < kWholeCost) return body(context, 0, items, 0);
  for (int64_t begin = 0; begin < items; begin += grain) {
    if (begin != 0) check_cancelled("eval");
    body(context, begin, std::min(items, begin + grain), 0);
  }
}

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// How many chunks a thread claims when it begins. A claim takes about half a microsecond where the ticket comes from
// another processor's cache. The rest is claimed one by one, as threads do not begin together, nor take equally long: of
// short runs little, of others half, so that even work that grows with the item is shared out evenly.
uint32_t first_claim(uint32_t chunks, int threads, double cost_ns) {
  const double share = cost_ns < kShortCost ? 0.875 : cost_ns < kLongCost ? 0.5 : 0;
  const auto fair = static_cast<uint32_t>(std::lround(share * chunks / threads));
  return std::clamp<uint32_t>(fair, 1, std::min(chunks, Ticket::kMaxFirst));
}

}  // namespace

struct ThreadPool::OfProcess {
  ThreadPool pool;

  // The threads are gone in the child, with whatever they held: it starts afresh.
  ForkHandler over_fork() {
    return {.prepare = {}, .parent = {}, .child = [this] {
              pool.state_.store(nullptr, std::memory_order_relaxed);
            }};
  }
};

ThreadPool& ThreadPool::get() {
  static constinit ForkSafe<OfProcess> made(ForkLevel::pool);
  return made.get().pool;
}

ThreadPool::State& ThreadPool::state() const {
  State* state = state_.load(std::memory_order_acquire);
  if (state != nullptr) [[likely]]
    return *state;
  const int wanted = wanted_size_.load();
  const bool spin = cpu_quota().value_or(INFINITY) >= affinity_cores();
  auto fresh = std::make_unique<State>(wanted != 0 ? wanted : default_pool_size(), spin);
  if (state_.compare_exchange_strong(state, fresh.get())) return *fresh.release();
  return *state;
}

int ThreadPool::size() const { return state().size; }

void ThreadPool::set_size(int n) {
  CERMET_CHECK(n >= 1, value, "thread_pool", "a pool of {} threads; give at least 1", n);
  State& pool = state();
  for (Slot& slot : pool.slots) {
    while (slot.taken.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  pool.stop_workers(n);
  wanted_size_ = n;
  for (Slot& slot : pool.slots) slot.taken.store(false, std::memory_order_release);
}

void ThreadPool::run(int64_t items, int64_t grain, double cost_ns, Body body, void* context,
                     size_t bytes) {
  if (items <= 0) return;
  FloatMode mode;
  grain = std::clamp<int64_t>(grain, 1, items);
  if (grain == items) return body(context, 0, items, 0);
  State& pool = state();
  const Sharing sharing = pool.sharing(cost_ns);
  Slot* slot = sharing == Sharing::none ? nullptr : pool.take_slot();
  if (slot == nullptr) return run_alone(items, grain, cost_ns, body, context);
  // More chunks than a ticket can count become fewer, larger ones.
  const int64_t chunk = grain * divide_up(divide_up(items, grain), Ticket::kMaxChunks);
  slot->fill(body, context, bytes);
  slot->items = items;
  slot->chunk = chunk;
  slot->chunks = static_cast<uint32_t>(divide_up(items, chunk));
  const uint32_t first = first_claim(slot->chunks, pool.size, cost_ns);
  pool.share(*slot, first, sharing == Sharing::wake);
  const bool stopped = slot->stopped.load(std::memory_order_relaxed);
  std::exception_ptr error;
  if (slot->failed.load(std::memory_order_relaxed)) {
    error = std::exchange(slot->error, nullptr);
    slot->failed.store(false, std::memory_order_relaxed);
  }
  slot->taken.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
  if (stopped) interrupt();
}

bool ThreadPool::must_stop() {
  if (current == nullptr) return cancelled();
  const bool stopped = is_caller ? current->poll_hook() : current->stopped.load();
  return stopped || current->failed.load(std::memory_order_relaxed);
}

void ThreadPool::interrupt() {
  fail(ErrorKind::interrupted, "eval", "interrupted; the results asked for are not made");
}

int default_pool_size() {
  double size = affinity_cores();
  if (const auto quota = cpu_quota()) size = std::min(size, std::ceil(*quota));
  const int64_t wanted = env::to_int(env::num_threads());
  if (wanted > 0) size = std::min(size, static_cast<double>(wanted));
  return static_cast<int>(size);
}

}  // namespace cermet
