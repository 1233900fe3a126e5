// SPDX-License-Identifier: MIT
#include "runtime/fork.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <utility>

namespace cermet {
namespace {

constexpr int kLevels = static_cast<int>(ForkLevel::leaf) + 1;
constexpr std::chrono::seconds kPatience{1};

struct Entry {
  ForkHandler handler;
  Entry* before = nullptr;  // registered before
  Entry* next = nullptr;
};

struct Level {
  Entry* first = nullptr;
  Entry* last = nullptr;
  Entry* prepared = nullptr;  // the last of those whose locks are taken
};

struct Registry {
  std::mutex forking;  // one fork at a time; held across it
  std::chrono::steady_clock::time_point deadline;
  std::mutex mutex;  // of what follows
  std::array<Level, kLevels> levels;

  Entry* next_of(const Level& level) {
    std::lock_guard lock(mutex);
    return level.prepared == nullptr ? level.first : level.prepared->next;
  }

  // Others may still be registered meanwhile, by work that the fork waits for, and may come before what is
  // prepared: from the top again, then.
  void prepare() {
    forking.lock();
    deadline = std::chrono::steady_clock::now() + kPatience;
    const auto is_whole = [](const Level& level) { return level.prepared == level.last; };
    while (true) {
      for (Level& level : levels) {
        while (Entry* entry = next_of(level)) {
          if (entry->handler.prepare) entry->handler.prepare();
          level.prepared = entry;
        }
      }
      mutex.lock();
      if (std::ranges::all_of(levels, is_whole)) return;
      mutex.unlock();
      undo(&ForkHandler::parent);
    }
  }

  void undo(std::function<void()> ForkHandler::* handler) {
    for (int level = kLevels - 1; level >= 0; --level) {
      Entry* entry = std::exchange(levels[level].prepared, nullptr);
      for (; entry != nullptr; entry = entry->before) {
        if (entry->handler.*handler) (entry->handler.*handler)();
      }
    }
  }

  void release(std::function<void()> ForkHandler::* handler) {
    undo(handler);
    mutex.unlock();
    forking.unlock();
  }
};

constinit Registry registry;

// When the library is loaded: a registration that another thread's fork cuts off would be missing in the child.
[[maybe_unused]] const int registered =
    pthread_atfork([] { registry.prepare(); }, [] { registry.release(&ForkHandler::parent); },
                   [] { registry.release(&ForkHandler::child); });

}  // namespace

bool on_fork_if(const std::function<bool()>& keep, ForkLevel level, ForkHandler handler) {
  auto entry = std::make_unique<Entry>();
  entry->handler = std::move(handler);
  std::lock_guard lock(registry.mutex);
  if (!keep()) return false;
  Level& all = registry.levels[static_cast<int>(level)];
  entry->before = all.last;
  (all.last != nullptr ? all.last->next : all.first) = entry.get();
  all.last = entry.release();
  return true;
}

std::chrono::steady_clock::time_point fork_deadline() { return registry.deadline; }

}  // namespace cermet
