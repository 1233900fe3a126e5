// SPDX-License-Identifier: MIT
// One row for each kind of target: what lowering must know (ir::TargetFacts) and how code is made.
// The host's features are asked at run time and capped by CERMET_CPU_FEATURES.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel/passes.h"

namespace cermet {

// The levels of x86-64, each with all before it, avx512_bf16 with VNNI; neon is AArch64, for which kernels are compiled here but
// not run.
enum class CpuLevel : int8_t { neon = -1, generic, avx2, avx512, avx512_bf16, avx512_fp16, amx };

// A part of what an item costs: ns · Π times. Of an axis, points, or blocks of them: those of `tile` points, the
// last by its share, but from `first` points on one at least.
struct WorkTrip {
  ir::AxisId axis = ir::kNone;
  int64_t most = INT64_MAX;
  int64_t tile = 1, first = 1;
  double times(int64_t extent) const {
    const int64_t points = std::min(extent, most);
    const double blocks = static_cast<double>(points) / static_cast<double>(tile);
    return points >= first ? std::max(blocks, 1.0) : blocks;
  }
};
struct Work {
  double ns = 0;
  std::vector<WorkTrip> trips;
};

// Where one chunk loop's code is, how many items it has, and an estimate of an item's cost.
struct EntryPoint {
  std::string symbol;
  ir::Size grid;
  std::vector<Work> work;
  bool spans = false;  // `work` is that of any span of items
  bool in_order =
      false;  // spans run one after another, with the entry points beside this one (carries.h)
  int64_t turn = 0;   // spans take turns of so many items (ir.h); `work` is that of all
  int64_t least = 1;  // fewer spans are one (ir.h)
};

// An entry point that makes some Locals of the kernel, and these alone, from a few buffers and from sizes:
// where those are the same again, so are the Locals, and it need not run (runtime/packed_cache.h). Each list is in the
// order of first use, so that kernels which pack alike, by the hash of that loop, find what the others packed.
struct Packing {
  ir::Hash hash;
  int32_t entry;
  std::vector<int32_t> sources;  // words of the record that are the buffers read
  std::vector<int32_t> words;    // all else of the record that it takes
  std::vector<int32_t> locals;   // which of kernel_locals it makes
};

// Code made from one tiled kernel: a relocatable object, or CUDA C++ text. Axes in sizes and trips are
// numbered among those that have an extent, as extents are in the record.
struct Object {
  std::string blob;
  std::vector<EntryPoint> entries;       // run in order, all items of one before the next
  std::vector<ir::Local> kernel_locals;  // scratch of the whole launch: words at the record's end
  std::vector<ir::Local> thread_locals;  // laid out one after another, 64-byte aligned, in `local`
  std::vector<Packing> packings;
  int32_t status_word = -1;  // where the Status parameter stands in the record; -1: none
};

struct Target {
  const char* name;  // "cpu", "cuda"
  ir::TargetFacts (*facts)();
  Object (*compile)(const ir::Kernel& tiled, const ir::TargetFacts& facts);
  std::string (*identity)();  // features + version: part of the cache key
};

const Target& cpu_target();
const Target& cuda_target();  // text only: compile gives CUDA C++ source

// The host's level, capped. Raises [env] value for a cap the host cannot run (amx_emulated can).
CpuLevel cpu_level();
ir::TargetFacts cpu_facts(CpuLevel level);
Object compile_cpu(const ir::Kernel& tiled, CpuLevel level, bool polls = false);
// Whether gather instructions take no longer than loads of single elements: measured, up to three times as
// long on AMD's Zen 4 and 5.
bool has_fast_gathers();
// Whether arithmetic on 64 bytes is run whole, not half by half: by Intel's processors but the small ones, and by
// AMD's that say so, as from Zen 5 on.
bool runs_64_bytes_whole();
// Whether as many lines are fetched at a time into L1 as into L2: measured on AMD's Zen 5.
bool prefetches_into_l1();
// Whether what products read from beyond L2, rows of a matrix on pages of their own and packed panels, is to be
// fetched by instructions before: measured on Intel's Emerald Rapids.
bool fetches_far();
// Before kernels are compiled for the level neon.
void add_neon();

}  // namespace cermet
