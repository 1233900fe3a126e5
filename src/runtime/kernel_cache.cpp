// SPDX-License-Identifier: MIT
// Finding kernels. (Running them: launch.cpp.)
#include "runtime/kernel_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "base/lazy.h"
#include "runtime/build_id.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "runtime/kernel_disk.h"
#include "runtime/kernel_seed.h"
#include "runtime/log.h"
#include "runtime/poll.h"
#include "runtime/process_end.h"
#include "runtime/thread.h"
#include "runtime/thread_pool.h"

namespace cermet {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr size_t kMostKernels = 4096;  // in memory beside those that programs hold: some 10 KB each

// Made once, by whichever thread; the others wait. A wait ends early when the run or the user's call is to
// stop, while the kernel is still made.
struct Entry {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_being_made = false;
  std::atomic<bool> made = false;
  KernelPtr kernel;  // once made
  // What the next finding counts as: of a kernel that was only asked for, the file that it came from.
  std::atomic<Counter> counts_as = Counter::kernel_hits_memory;
  uint64_t found = 0;  // the last time, in findings of all kernels
  // By a program, or by who makes it.
  bool is_held() const { return !made.load(std::memory_order_acquire) || kernel.use_count() > 1; }

  // Whether the caller is to make it, and to say when it is `done`; else it is there, or will be. Inside the
  // gate, as all that makes it: a fork finds none that is being made.
  bool begin() {
    const std::lock_guard lock(mutex);
    if (is_being_made || made.load(std::memory_order_acquire)) return false;
    return is_being_made = true;
  }
  // null: it failed, and is to be tried again.
  void done(KernelPtr given, Counter as = Counter::kernel_hits_memory) {
    const std::lock_guard lock(mutex);
    is_being_made = false;
    if (given != nullptr) {
      kernel = std::move(given);
      counts_as.store(as, std::memory_order_relaxed);
      made.store(true, std::memory_order_release);
    }
    changed.notify_all();
  }
  // Until nobody makes it. Outside the gate: what asks whether to stop may wait for a thread that forks.
  void wait() {
    std::unique_lock lock(mutex);
    while (is_being_made) {
      changed.wait_for(lock, std::chrono::nanoseconds(kPollPeriodNs));
      if (!is_being_made) return;
      lock.unlock();
      ThreadPool::poll();
      lock.lock();
    }
  }
};

// The code generator has locks, which a fork waits for, and static objects.
ForkGate& gate() {
  static constinit ForkSafe<ForkGate> gate(ForkLevel::compiler);
  return gate.get();
}

struct HashOfHash {
  size_t operator()(const ir::Hash& hash) const { return hash.lo; }
};

class KernelCache {
 public:
  std::mutex mutex;

  KernelCache() {
    gate();  // is there, whichever thread closes it
    at_process_end(EndPhase::compiler, [] { gate().close(); });
  }

  static KernelCache& get() {
    static constinit ForkSafe<KernelCache> cache(ForkLevel::cache);
    return cache.get();
  }

  KernelPtr find(const ir::Hash& hash, const std::function<ir::Kernel()>& make, bool polls) {
    const std::shared_ptr<Entry> entry = entry_of(hash);
    if (entry->made.load(std::memory_order_acquire)) return hit(hash, *entry);
    while (true) {
      std::shared_ptr<std::exception_ptr> error;  // of an attempt of its own
      {
        const InForkGate running(gate());
        if (entry->begin()) {
          if (load_into(*entry, hash)) return entry->kernel;
          error = compile_aside(entry, hash, make, polls);
        }
      }
      entry->wait();
      if (error != nullptr && *error != nullptr) std::rethrow_exception(*error);
      if (error != nullptr) return entry->kernel;
      if (entry->made.load(std::memory_order_acquire)) return hit(hash, *entry);
    }
  }

  // What find would not have to compile.
  KernelPtr find_compiled(const ir::Hash& hash) {
    const std::shared_ptr<Entry> entry = compiled_entry(hash);
    return entry == nullptr ? nullptr : hit(hash, *entry);
  }

  bool is_compiled(const ir::Hash& hash) { return compiled_entry(hash) != nullptr; }

  void clear() {
    std::lock_guard lock(mutex);
    entries_.clear();
    room_ = kMostKernels;
  }

  void drop_unused(size_t most) {
    std::lock_guard lock(mutex);
    drop_unused_of(most);
  }

  void start_keeping(const std::string& path, const std::string& generator) {
    std::lock_guard lock(mutex);
    keeping_.emplace(path, generator);
  }
  size_t write_kept() {
    std::lock_guard lock(mutex);
    if (!keeping_) return 0;
    // Kernels are made side by side; the file does not tell which was first.
    std::ranges::sort(keeping_->kernels, {},
                      [](const ir::Kernel& k) { return ir::hash_of(k).hex(); });
    const size_t compiled = write_seed(keeping_->path, keeping_->kernels, keeping_->generator);
    keeping_.reset();
    return compiled;
  }

 private:
  // Made, or null.
  std::shared_ptr<Entry> compiled_entry(const ir::Hash& hash) {
    {
      std::lock_guard lock(mutex);
      const auto it = entries_.find(hash);
      if (it != entries_.end() && it->second->made.load(std::memory_order_acquire)) {
        it->second->found = ++findings_;
        return it->second;
      }
    }
    std::shared_ptr<Entry> entry;
    {
      const InForkGate running(gate());
      auto [kernel, counter] = from_file(hash);
      if (kernel == nullptr) return nullptr;
      entry = entry_of(hash);
      if (entry->begin()) entry->done(std::move(kernel), counter);
    }
    entry->wait();
    return entry->made.load(std::memory_order_acquire) ? entry : nullptr;
  }

  // Of an entry that the caller has begun. False: it is in no file.
  static bool load_into(Entry& entry, const ir::Hash& hash) {
    try {
      auto [kernel, counter] = from_file(hash);
      if (kernel == nullptr) return false;
      count(counter);
      entry.done(std::move(kernel));
      return true;
    } catch (...) {
      entry.done(nullptr);
      throw;
    }
  }

  static KernelPtr hit(const ir::Hash& hash, Entry& entry) {
    const Counter counter =
        entry.counts_as.exchange(Counter::kernel_hits_memory, std::memory_order_relaxed);
    count(counter);
    if (counter == Counter::kernel_hits_memory && log_enabled(LogTopic::kernel))
      log_line(LogTopic::kernel, "{} {} ({}) from memory", hash.hex(), entry.kernel->name,
               entry.kernel->form);
    return entry.kernel;
  }

  std::shared_ptr<Entry> entry_of(const ir::Hash& hash) {
    std::lock_guard lock(mutex);
    std::shared_ptr<Entry>& entry = entries_[hash];
    if (entry == nullptr) {
      entry = std::make_shared<Entry>();
      if (entries_.size() > room_) drop_unused_of(kMostKernels * 3 / 4);
    }
    entry->found = ++findings_;
    return entry;
  }

  void drop_unused_of(size_t most) {
    std::vector<uint64_t> found;
    for (const auto& [hash, entry] : entries_)
      if (!entry->is_held()) found.push_back(entry->found);
    if (found.size() > most) {
      std::ranges::sort(found, std::greater());
      std::erase_if(entries_, [last = found[most]](const auto& it) {
        return !it.second->is_held() && it.second->found <= last;
      });
    }
    room_ = entries_.size() + kMostKernels / 4;
  }

  // The key on disk: other features, another build or another cap have files of their own.
  static ir::Hash disk_key(const ir::Hash& hash) {
    static constinit Lazy<std::string> identity;
    const auto make = [] { return cpu_target().identity() + " build " + build_id(); };
    return ir::hash_bytes(hash.hex() + " " + identity.get(make));
  }

  static KernelPtr load(StoredKernel stored) {
    auto handle = std::make_shared<KernelHandle>();
    handle->code = load_kernel(std::move(stored.object));
    handle->form = std::move(stored.form);
    handle->name = std::move(stored.name);
    return handle;
  }

  // And what finding it there counts as.
  static std::pair<KernelPtr, Counter> from_file(const ir::Hash& hash) {
    const Clock::time_point start = Clock::now();
    const char* where = "seed";
    std::optional<StoredKernel> stored = KernelSeed::get().load(hash);
    if (!stored) {
      where = "disk";
      stored = KernelDisk::get().load(disk_key(hash));
    }
    if (!stored) return {nullptr, Counter::kernel_hits_memory};
    KernelPtr kernel = load(std::move(*stored));
    log_line(LogTopic::kernel, "{} {} ({}) from {} in {:.2f} ms", hash.hex(), kernel->name,
             kernel->form, where, ms_since(start));
    return {kernel, *where == 's' ? Counter::kernel_hits_seed : Counter::kernel_hits_disk};
  }

  // Of an entry that the caller has begun, in a thread of its own: the code generator, which nothing stops,
  // may take longer than the caller waits. Where there is no thread to be had, or the process ends, in this
  // one. Gives the place of an error, to be read when the entry is done.
  std::shared_ptr<std::exception_ptr> compile_aside(const std::shared_ptr<Entry>& entry,
                                                    const ir::Hash& hash,
                                                    const std::function<ir::Kernel()>& make,
                                                    bool polls) {
    try {
      auto error = std::make_shared<std::exception_ptr>();
      const auto kernel = std::make_shared<const ir::Kernel>(make());
      const auto in_gate = std::make_shared<InForkGate>(gate());  // until the thread has ended, too
      const auto run = [this, entry, hash, polls, kernel, error, in_gate] {
        KernelPtr made;
        try {
          made = compile(hash, *kernel, polls);
        } catch (...) {
          *error = std::current_exception();
        }
        entry->done(std::move(made));
      };
      std::thread thread;
      if (!process_is_ending()) thread = start_thread("cermet compile", run);
      if (thread.joinable()) thread.detach();
      else run();
      return error;
    } catch (...) {
      entry->done(nullptr);
      throw;
    }
  }

  KernelPtr compile(const ir::Hash& hash, const ir::Kernel& kernel, bool polls) {
    if (!polls)
      if (std::optional<StoredKernel> earlier = keep(hash, kernel))
        return load(std::move(*earlier));
    const Target& target = cpu_target();
    ir::TargetFacts facts = target.facts();
    facts.polls = polls;
    const Clock::time_point start = Clock::now();
    const ir::Kernel tiled = ir::lower(kernel, facts);
    const double lowered = ms_since(start);
    StoredKernel stored{target.compile(tiled, facts), std::string(ir::form_of(kernel, facts)),
                        kernel.name};
    const double compiled = ms_since(start);
    count(Counter::kernels_compiled);
    const size_t bytes = stored.object.blob.size();
    KernelDisk::get().store(disk_key(hash), stored);
    KernelPtr loaded = load(std::move(stored));
    count(Counter::compile_us, static_cast<uint64_t>(1e3 * compiled));
    log_line(LogTopic::kernel, "{} {} ({}): lowered in {:.2f} ms, compiled in {:.2f} ms, {} bytes",
             hash.hex(), loaded->name, loaded->form, lowered, compiled - lowered, bytes);
    return loaded;
  }

  // What goes into the seed, and what an earlier seed has of it.
  struct Keeping {
    Keeping(const std::string& file, const std::string& id)
        : path(file), generator(id), earlier(file, cpu_level(), id) {}
    const std::string path, generator;
    const KernelSeed earlier;
    std::vector<ir::Kernel> kernels;
  };

  std::optional<StoredKernel> keep(const ir::Hash& hash, const ir::Kernel& kernel) {
    std::lock_guard lock(mutex);
    if (!keeping_) return std::nullopt;
    keeping_->kernels.push_back(kernel);
    return keeping_->earlier.load(hash);
  }

  std::optional<Keeping> keeping_;
  std::unordered_map<ir::Hash, std::shared_ptr<Entry>, HashOfHash> entries_;
  size_t room_ = kMostKernels;  // entries until it is asked which are unused
  uint64_t findings_ = 0;
};

}  // namespace

KernelPtr find_kernel(const ir::Kernel& kernel) {
  return find_kernel(ir::hash_of(kernel), [&] { return kernel; });
}

KernelPtr find_kernel(const ir::Hash& hash, const std::function<ir::Kernel()>& make) {
  return KernelCache::get().find(hash, make, false);
}

KernelPtr find_polling_kernel(const ir::Hash& hash, const std::function<ir::Kernel()>& make) {
  return KernelCache::get().find(ir::hash_bytes(hash.hex() + " polls"), make, true);
}

KernelPtr find_compiled_kernel(const ir::Hash& hash) {
  return KernelCache::get().find_compiled(hash);
}

bool is_kernel_compiled(const ir::Hash& hash) { return KernelCache::get().is_compiled(hash); }

void drop_kernels() { KernelCache::get().clear(); }

void drop_unused_kernels(size_t most) { KernelCache::get().drop_unused(most); }

void keep_kernels(const std::string& path, const std::string& generator) {
  KernelCache::get().start_keeping(path, generator);
}

size_t write_kept_kernels() { return KernelCache::get().write_kept(); }

}  // namespace cermet
