// SPDX-License-Identifier: MIT
// Every environment variable that Cermet reads, in one table; nothing else calls getenv.
// Each is read once, at first use, and all are checked then, in Python by the import.
// `python -m cermet.env` prints the table with the values in force.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cermet::env {

// X(function, variable, values, default, meaning)
#define CERMET_ENV(X)                                                                            \
  X(log, "CERMET_LOG", "plan,kernel,compile,launch,alloc,sync", "",                             \
    "what to print to stderr: programs built, kernels found or made, functions traced, "         \
    "launches, memory, waits")                                                                   \
  X(cpu_features, "CERMET_CPU_FEATURES",                                                         \
    "generic|avx2|avx512|avx512_bf16|avx512_fp16|amx|amx_emulated", "",                          \
    "cap on the processor features that kernels use")                                            \
  X(num_threads, "CERMET_NUM_THREADS", "n", "", "size of the thread pool")                       \
  X(cache_dir, "CERMET_CACHE_DIR", "folder", "", "where compiled kernels are kept")              \
  X(cache_limit, "CERMET_CACHE_LIMIT", "n", "268435456",                                        \
    "bytes of compiled kernels on disk beyond which the longest unused go")                    \
  X(kernel_cache, "CERMET_KERNEL_CACHE", "on|off", "on", "the kernel cache on disk")             \
  X(tier, "CERMET_TIER", "auto|fused|single", "auto", "how regions run")                         \
  X(allocator, "CERMET_ALLOCATOR", "caching|guard|guard_front", "caching",                       \
    "guard: each buffer ends (guard_front: begins) at an inaccessible page")                     \
  X(fail_alloc, "CERMET_FAIL_ALLOC", "n", "", "the n-th allocation fails")                       \
  X(skip_pass, "CERMET_SKIP_PASS", "simplify,relax_max,unswitch,simplify_tiled", "",                       \
    "passes over kernels to leave out")                                                          \
  X(dump, "CERMET_DUMP", "folder", "", "where to write the IR after each pass")                  \
  X(matmul_f32, "CERMET_MATMUL_F32", "auto|fma", "auto", "scheme of float32 matmul")             \
  X(matmul_scheme, "CERMET_MATMUL_SCHEME",                                                       \
    "auto|fma|fma_local|fma_split_k|fma_tall|fma_wide|panel|panel_long|panel_four|"              \
    "panel_four_long|panel_packed|panel_four_packed|amx_panel|amx_split|amx_split_local|"        \
    "amx_split_k",                                                                               \
    "auto", "scheme of each matmul that it can make, to compare them")                            \
  X(packed_cache, "CERMET_PACKED_CACHE", "on|off", "on",                                         \
    "whether packed operands of matmul are kept from use to use")                                \
  X(size_classes, "CERMET_SIZE_CLASSES", "on|off|checked", "on",                                 \
    "whether graphs that differ in sizes alone are planned once; checked: each plan is compared " \
    "with one of its own")                                                                       \
  X(disable_compile, "CERMET_DISABLE_COMPILE", "", "", "set: compile() returns its argument")

// Raises [env] value when a variable of the table has a value that is none of its values. The first
// reading of each variable does so, too.
void check();

// The value, or the default when unset or empty.
#define X(function, variable, values, fallback, meaning) const std::string& function();
CERMET_ENV(X)
#undef X

// Whether a variable of the table has a value that is not empty.
bool is_set(std::string_view variable);
bool list_has(const std::string& comma_list, std::string_view item);
// The value of a variable whose values are n; 0 when it is unset or empty.
int64_t to_int(const std::string& value);

// A variable of the system (HOME, XDG_CACHE_HOME), no setting of Cermet; empty when unset.
std::string of_system(const char* variable);

struct Row {
  const char* variable;
  const char* values;
  std::string value;
  const char* meaning;
};
std::vector<Row> table();

}  // namespace cermet::env
