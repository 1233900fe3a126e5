// SPDX-License-Identifier: MIT
// The processors that a thread may run on.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace cermet {

class AffinityMask {
 public:
  // thread: as of gettid; 0: this one. nullopt: Linux does not tell.
  static std::optional<AffinityMask> of(pid_t thread);
  int count() const;
  void remove(int processor);
  bool set(pid_t thread) const;  // whether it holds from now on
  bool set_new(pthread_t thread) const;

 private:
  std::vector<uint64_t> words_;
};

}  // namespace cermet
