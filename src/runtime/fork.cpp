// SPDX-License-Identifier: MIT
#include "runtime/fork.h"

#include <pthread.h>

#include <array>
#include <deque>
#include <utility>

namespace cermet {
namespace {

constexpr int kLevels = static_cast<int>(ForkLevel::leaf) + 1;
constexpr std::chrono::seconds kPatience{1};

struct Registry {
  std::mutex forking;  // one fork at a time; held across it
  std::array<size_t, kLevels> prepared{};
  std::chrono::steady_clock::time_point deadline;
  std::mutex mutex;  // of what follows
  std::array<std::deque<ForkHandler>, kLevels> levels;

  ForkHandler* find(int level, size_t i) {
    std::lock_guard lock(mutex);
    return i < levels[level].size() ? &levels[level][i] : nullptr;
  }

  // Handlers may still be registered meanwhile, by work that the fork waits for.
  void prepare() {
    forking.lock();
    deadline = std::chrono::steady_clock::now() + kPatience;
    for (int level = 0; level < kLevels; ++level) {
      size_t i = 0;
      for (; ForkHandler* handler = find(level, i); ++i) {
        if (handler->prepare) handler->prepare();
      }
      prepared[level] = i;
    }
    mutex.lock();
  }

  void release(std::function<void()> ForkHandler::* handler) {
    for (int level = kLevels - 1; level >= 0; --level) {
      for (size_t i = prepared[level]; i-- > 0;) {
        if (levels[level][i].*handler) (levels[level][i].*handler)();
      }
    }
    mutex.unlock();
    forking.unlock();
  }
};

Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

void on_fork(ForkLevel level, ForkHandler handler) {
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { registry().prepare(); }, [] { registry().release(&ForkHandler::parent); },
                     [] { registry().release(&ForkHandler::child); });
  std::lock_guard lock(registry().mutex);
  registry().levels[static_cast<int>(level)].push_back(std::move(handler));
}

std::chrono::steady_clock::time_point fork_deadline() { return registry().deadline; }

}  // namespace cermet
