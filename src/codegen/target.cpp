// SPDX-License-Identifier: MIT
#include "codegen/target.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/env.h"
#include "base/error.h"
#include "base/lazy.h"
#include "codegen/cuda_source.h"

namespace cermet {

namespace {

constexpr std::array<const char*, 6> kLevelNames = {"generic",     "avx2",        "avx512",
                                                    "avx512_bf16", "avx512_fp16", "amx"};

// Tile registers need the system's permission: once for the process, from any thread, for all its threads
// and what it forks. From then on its handlers of signals need larger stacks (docs/fast_code.md), so it is
// asked only where tiles may be used. It is refused if a thread has a smaller one already.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// What the processor has; whether the system lets a process use tiles is another matter.
CpuLevel processor_level() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  if (!avx2) return CpuLevel::generic;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return CpuLevel::avx2;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0 &&
                    __builtin_cpu_supports("avx512vnni");
  if (!bf16) return CpuLevel::avx512;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  const bool fp16 = (d >> 23 & 1) != 0;
  if (!fp16) return CpuLevel::avx512_bf16;
  const bool amx = (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0 && (d >> 25 & 1) != 0;
  return amx ? CpuLevel::amx : CpuLevel::avx512_fp16;
}

bool is_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
}

// Whether the bf16 dot instruction multiplies faster than f32's fused one: measured, twice as fast on AMD's
// Zen 4, half as fast on Intel's Sapphire and Emerald Rapids, whose tiles are meant for it.
bool outruns_fma() { return !is_intel(); }

bool emulates_amx() { return env::cpu_features() == "amx_emulated"; }

int64_t cache_bytes(int name, int64_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

ir::TargetFacts host_facts() {
  static constinit Lazy<ir::TargetFacts> facts;
  return facts.get([] {
    ir::TargetFacts f = cpu_facts(cpu_level());
    if (emulates_amx()) f.amx_bf16 = f.amx_int8 = true;
    return f;
  });
}

Object compile_for_host(const ir::Kernel& tiled, const ir::TargetFacts& facts) {
  return compile_cpu(tiled, cpu_level(), facts.polls);
}

std::string cpu_identity() {
  const ir::TargetFacts facts = host_facts();
  return fmt::format("cpu {}{}{}{}{} l1 {} l2 {}", kLevelNames[static_cast<size_t>(cpu_level())],
                     emulates_amx() ? " amx_emulated" : "", facts.dot_bf16 ? " dot_bf16" : "",
                     facts.full_width ? " full_width" : "", is_intel() ? " intel" : "",
                     facts.l1_bytes, facts.l2_bytes);
}

}  // namespace

CpuLevel cpu_level() {
  static constinit Lazy<CpuLevel> level;
  return level.get([] {
    const std::string& cap = env::cpu_features();
    CpuLevel host = processor_level();
    const auto wanted = std::ranges::find(kLevelNames, cap) - kLevelNames.begin();
    const bool takes_tiles = cap.empty() || wanted == static_cast<int>(CpuLevel::amx);
    if (host == CpuLevel::amx && !(takes_tiles && may_use_tiles())) host = CpuLevel::avx512_fp16;
    if (cap.empty() || emulates_amx()) return host;
    return std::min(host, static_cast<CpuLevel>(wanted));
  });
}

// Where a hypervisor hides what AMD's processors say, their family tells.
bool runs_64_bytes_whole() {
  constexpr unsigned kWidths = 0x8000001a, kFp256 = 1 << 2, kFp512 = 1 << 3, kZen5 = 0x1a;
  __builtin_cpu_init();
  if (is_intel())
    return !__builtin_cpu_is("icelake-client") && !__builtin_cpu_is("tigerlake") &&
           !__builtin_cpu_is("rocketlake") && !__builtin_cpu_is("alderlake");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  if (__get_cpuid(kWidths, &a, &b, &c, &d) != 0 && (a & kFp256) != 0) return (a & kFp512) != 0;
  return family >= kZen5;
}

bool has_fast_gathers() { return is_intel(); }

bool prefetches_into_l1() { return !is_intel() && runs_64_bytes_whole(); }

bool fetches_far() { return is_intel() && runs_64_bytes_whole(); }

ir::TargetFacts cpu_facts(CpuLevel level) {
  ir::TargetFacts facts;
  facts.name = "cpu";
  facts.vector_bytes = level >= CpuLevel::avx512 ? 64 : level >= CpuLevel::avx2 ? 32 : 16;
  facts.full_width = level >= CpuLevel::avx512 && runs_64_bytes_whole();
  facts.fma = level >= CpuLevel::avx2 || level == CpuLevel::neon;
  facts.dot_bf16 = level >= CpuLevel::avx512_bf16 && outruns_fma();
  facts.scales = level >= CpuLevel::avx512;
  facts.dot_int8 = level >= CpuLevel::avx512_bf16;
  facts.dot_int16 = level != CpuLevel::neon;
  facts.amx_bf16 = facts.amx_int8 = level >= CpuLevel::amx;
  facts.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, facts.l1_bytes);
  facts.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, facts.l2_bytes);
  return facts;
}

const Target& cpu_target() {
  static constinit const Target target = {"cpu", host_facts, compile_for_host, cpu_identity};
  return target;
}

const Target& cuda_target() {
  // The text depends on nothing but the kernel; what compiles it has an identity of its own.
  static constinit const Target target = {"cuda", cuda_facts, compile_cuda,
                                          [] { return std::string("cuda text"); }};
  return target;
}

}  // namespace cermet
