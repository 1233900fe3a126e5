// SPDX-License-Identifier: MIT
#include "runtime/process_end.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/fork.h"

namespace cermet {
namespace {

struct Handler {
  EndPhase phase;
  void (*call)();
  bool is_called = false;
};

struct Handlers {
  std::mutex mutex;
  std::vector<Handler> all;
  bool are_called = false;
  bool are_awaited = false;  // end() has been registered

  // Null, once, when all are called. Work that one waits for may come to register another.
  void (*next())() {
    std::lock_guard lock(mutex);
    Handler* first = nullptr;
    for (Handler& handler : all)
      if (!handler.is_called && (first == nullptr || handler.phase < first->phase))
        first = &handler;
    are_called = first == nullptr;
    if (are_called) return nullptr;
    first->is_called = true;
    return first->call;
  }
};

Handlers& handlers() {
  static constinit ForkSafe<Handlers> handlers(ForkLevel::leaf);
  return handlers.get();
}

std::atomic<pid_t> ending_thread{0};

void end() {
  ending_thread = gettid();
  {
    std::lock_guard lock(handlers().mutex);
    for (Handler& handler : handlers().all) handler.is_called = false;
  }
  while (auto* call = handlers().next()) call();
}

// The objects of the main thread are destroyed before all static ones. Of those the code generator makes
// some at work, which go before what was registered with atexit() earlier.
struct MainThreadEnd {
  ~MainThreadEnd() {
    if (getpid() == gettid()) end();
  }
  void watch() {}
};
thread_local MainThreadEnd main_thread_end;

// The main thread loads the library, whoever works with it.
[[maybe_unused]] const bool watched = (main_thread_end.watch(), true);

}  // namespace

void at_process_end(EndPhase phase, void (*handler)()) {
  bool is_past = false;
  {
    std::lock_guard lock(handlers().mutex);
    if (!std::exchange(handlers().are_awaited, true)) std::atexit(end);
    is_past = handlers().are_called;
    handlers().all.push_back({phase, handler, is_past});
  }
  if (is_past) handler();
}

bool process_is_ending() { return ending_thread != 0; }
bool is_ending_thread() { return ending_thread == gettid(); }

}  // namespace cermet
