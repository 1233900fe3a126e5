// SPDX-License-Identifier: MIT
// The CUDA names that generated text uses, for an ordinary compiler, and a runner of blocks: the
// threads of a block are coroutines which take turns at barriers only, first to last or last to
// first, so that a missing barrier shows as a wrong result. Included by generated text only, see
// cuda_run.cpp.
#pragma once

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

#include "kernel/cuda_launch.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __grid_constant__
#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __syncthreads() shim::wait(shim::At::block, __LINE__)
#define __syncwarp() shim::wait(shim::At::warp, __LINE__)
#define __syncthreads_or(p) shim::wait_or(p, __LINE__)

struct Dim {
  unsigned x = 0;
};
static Dim threadIdx, blockIdx, blockDim, gridDim;

namespace shim {

constexpr size_t kStack = 1 << 18;
constexpr unsigned kWarp = 32;

enum class At { code, block, warp, end };
struct Thread {
  ucontext_t context;
  At at;
  int line;
};
static std::vector<Thread> threads;
static ucontext_t outside;
static void (*body)();
static bool any = false, any_before = false;  // of __syncthreads_or

inline void wait(At at, int line) {
  Thread& self = threads[threadIdx.x];
  self.at = at;
  self.line = line;
  swapcontext(&self.context, &outside);
}

inline bool wait_or(bool p, int line) {
  any |= p;
  wait(At::block, line);
  return any_before;
}

inline void start() {
  body();
  threads[threadIdx.x].at = At::end;
}

// Lets threads [from, to) go on if they all wait at one barrier of this kind.
inline bool release(unsigned from, unsigned to, At kind) {
  for (unsigned t = from; t < to; ++t)
    if (threads[t].at != kind || threads[t].line != threads[from].line) return false;
  for (unsigned t = from; t < to; ++t) threads[t].at = At::code;
  if (kind == At::block) any_before = any, any = false;
  return true;
}

// Whether all threads reached the end: not if some wait for others that never come.
inline bool run_block(char* stacks, bool backwards) {
  const unsigned count = blockDim.x;
  for (unsigned t = 0; t < count; ++t) {
    Thread& thread = threads[t];
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks + t * kStack;
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = &outside;
    thread.at = At::code;
    makecontext(&thread.context, start, 0);
  }
  for (bool going = true; going;) {
    for (unsigned i = 0; i < count; ++i) {
      threadIdx.x = backwards ? count - 1 - i : i;
      if (threads[threadIdx.x].at == At::code) swapcontext(&outside, &threads[threadIdx.x].context);
    }
    going = release(0, count, At::block);
    for (unsigned t = 0; t < count; t += kWarp) going |= release(t, t + kWarp, At::warp);
  }
  for (const Thread& thread : threads)
    if (thread.at != At::end) return false;
  return true;
}

}  // namespace shim

inline double __ddiv_rn(double x, double y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dsub_rn(double x, double y) { return x - y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline void __threadfence() {}
template <class T>
T atomicExch(T* at, T value) {
  const T old = *at;
  *at = value;
  return old;
}
template <class T>
T atomicCAS(T* at, T expected, T value) {
  return *at == expected ? atomicExch(at, value) : *at;
}
template <class T>
T atomicMin(T* at, T value) {
  return value < *at ? atomicExch(at, value) : *at;
}

static const ShimLaunch* shim_launch = nullptr;
static ShimEntry shim_entry = nullptr;

// Runs every block; false: the threads of one did not meet at a barrier.
extern "C" bool shim_run(ShimEntry entry, const ShimLaunch& launch) {
  shim_launch = &launch;
  shim_entry = entry;
  shim::body = [] { shim_entry(*shim_launch); };
  shim::threads.resize(launch.threads);
  blockDim.x = launch.threads;
  gridDim.x = launch.blocks;
  const size_t bytes = launch.threads * shim::kStack;
  char* const stacks = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  bool met = true;
  for (blockIdx.x = 0; met && blockIdx.x < launch.blocks; ++blockIdx.x) {
    memset(launch.shared, 0xff, launch.shared_bytes);
    met = shim::run_block(stacks, launch.backwards);
  }
  munmap(stacks, bytes);
  return met;
}
