// SPDX-License-Identifier: MIT
#include "runtime/process_end.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace cermet {
namespace {

struct Handlers {
  std::mutex mutex;
  std::vector<void (*)()> all;
};

Handlers& handlers() {
  static Handlers& handlers = *new Handlers;
  return handlers;
}

std::atomic<pid_t> ending_thread{0};

void (*handler_at(size_t i))() {
  std::lock_guard lock(handlers().mutex);
  return i < handlers().all.size() ? handlers().all[i] : nullptr;
}

// Work that a handler waits for may come to register another one.
void end() {
  ending_thread = gettid();
  for (size_t i = 0; auto* handler = handler_at(i); ++i) handler();
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

void at_process_end(void (*handler)()) {
  [[maybe_unused]] static const int registered = std::atexit(end);
  {
    std::lock_guard lock(handlers().mutex);
    handlers().all.push_back(handler);
  }
  if (process_is_ending()) handler();
}

bool process_is_ending() { return ending_thread != 0; }
bool is_ending_thread() { return ending_thread == gettid(); }

}  // namespace cermet
