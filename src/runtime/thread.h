// SPDX-License-Identifier: MIT
// Threads of ours: named for debuggers, and with signals blocked, so that the user's threads get
// them (Python handles SIGINT in its main thread). Faults stay unblocked: handlers report them.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

namespace cermet {

// A thread that is not joinable when the system has no more threads to give. name: <= 15
// characters.
template <typename F>
std::thread start_thread(const char* name, F&& body) {
  sigset_t all, before;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF}) {
    sigdelset(&all, fault);
  }
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::forward<F>(body));
    pthread_setname_np(thread.native_handle(), name);
  } catch (const std::system_error&) {
    thread = std::thread();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace cermet
