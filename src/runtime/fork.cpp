// SPDX-License-Identifier: MIT
#include "runtime/fork.h"

#include <pthread.h>

#include <array>
#include <mutex>
#include <utility>
#include <vector>

namespace cermet {
namespace {

constexpr int kLevels = static_cast<int>(ForkLevel::leaf) + 1;

struct Registry {
  std::mutex mutex;
  std::array<std::vector<ForkHandler>, kLevels> levels;

  void release(std::function<void()> ForkHandler::* handler) {
    for (int level = kLevels - 1; level >= 0; --level) {
      for (auto it = levels[level].rbegin(); it != levels[level].rend(); ++it) {
        if ((*it).*handler) ((*it).*handler)();
      }
    }
    mutex.unlock();
  }
};

Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

void prepare() {
  registry().mutex.lock();
  for (auto& level : registry().levels) {
    for (ForkHandler& handler : level) {
      if (handler.prepare) handler.prepare();
    }
  }
}

}  // namespace

void on_fork(ForkLevel level, ForkHandler handler) {
  [[maybe_unused]] static const int registered = pthread_atfork(
      prepare, [] { registry().release(&ForkHandler::parent); },
      [] { registry().release(&ForkHandler::child); });
  std::lock_guard lock(registry().mutex);
  registry().levels[static_cast<int>(level)].push_back(std::move(handler));
}

}  // namespace cermet
