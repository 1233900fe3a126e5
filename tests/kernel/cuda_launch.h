// SPDX-License-Identifier: MIT
// What cuda_run.cpp passes to the runner of cuda_shim.h, which is compiled apart.
#pragma once

#include <cstddef>

struct ShimLaunch {
  const void* record;
  long long begin, end;
  char* scratch;
  long long scratch_stride;
  char* shared;  // dynamic shared memory, filled with ones before each block
  size_t shared_bytes;
  unsigned threads, blocks;
  bool backwards;  // in which order threads take turns
};
using ShimEntry = void (*)(const ShimLaunch&);
// Runs every block; false: the threads of one did not meet at a barrier.
using ShimRun = bool (*)(ShimEntry, const ShimLaunch&);
