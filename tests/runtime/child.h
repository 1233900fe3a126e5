// SPDX-License-Identifier: MIT
// Runs a piece of a test in a child process, for what ends a process or changes it for good.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace cermet {

// What the child gave: its exit code, or minus the signal that ended it. One that takes longer than
// 20 s is ended by SIGALRM.
inline int wait_for_child(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1000;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// true -> 0, false -> 1, exception -> 2.
inline int in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child != 0) return wait_for_child(child);
  alarm(20);
  int code = 2;
  try {
    code = body() ? 0 : 1;
  } catch (...) {
  }
  _exit(code);
}

// A child that is expected to fault must not be reported by a sanitizer or dump core.
inline int fault_in_child(const std::function<void()>& body) {
  return in_child([&] {
    signal(SIGSEGV, SIG_DFL);
    body();
    return true;
  });
}

// Runs the named test of this program again with the variable set; true when it passes.
inline bool rerun_with(const char* variable, const char* value, const std::string& test) {
  const pid_t child = fork();
  if (child != 0) return wait_for_child(child) == 0;
  alarm(60);
  setenv(variable, value, 1);
  const std::string filter = "--gtest_filter=" + test;
  execl("/proc/self/exe", "test_runtime", filter.c_str(), "--gtest_output=", nullptr);
  _exit(127);
}

}  // namespace cermet
