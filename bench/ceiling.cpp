// SPDX-License-Identifier: MIT
// What this machine can do at most, as JSON: the yardsticks of the bench. Memory over blocks far
// larger than the caches, in huge pages where the system gives them: copy (bytes read + written;
// plain, memcpy, non-temporal), read, write.
// Arithmetic from registers: float32 and float64 FMA, bfloat16 dot products and products of tiles (AMX).
// Each is the best of several short runs on the given number of threads (default 2); what the CPU lacks
// is null.
// Usage: bench_ceiling [threads]         all of them, as one JSON object
//        bench_ceiling threads serve     each line of input names one; its value is a line of
//        output
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TARGET(features) __attribute__((target(features)))
#endif

namespace {

constexpr int kRuns = 7;
constexpr size_t kBytes = size_t{256} << 20;  // of each operand, all threads together
constexpr int64_t kArithmeticLoops = 4'000'000;
constexpr int64_t kTileLoops = kArithmeticLoops / 8;
constexpr double kTileFlops = 2.0 * 16 * 16 * 32;  // of two tiles of 16 rows of 64 bytes, bfloat16

// Work of one thread: `part` of `parts`.
using Work = std::function<void(int part, int parts)>;

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// The shortest of several runs: from the first thread's start to the last one's end. Every thread
// works, so none of them is displaced by one that only watches the clock.
double best_seconds(int threads, const Work& work) {
  std::barrier gate(threads);
  std::vector<std::array<double, kRuns>> starts(threads);
  std::vector<std::array<double, kRuns>> ends(threads);
  const auto run_part = [&](int part) {
    work(part, threads);  // touches the pages, wakes the clocks
    for (int run = 0; run < kRuns; ++run) {
      gate.arrive_and_wait();
      starts[part][run] = now();
      work(part, threads);
      ends[part][run] = now();
    }
  };
  std::vector<std::jthread> pool;
  for (int part = 1; part < threads; ++part) pool.emplace_back(run_part, part);
  run_part(0);
  pool.clear();
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto of_run = [run](const auto& times) { return times[run]; };
    const double start = of_run(*std::ranges::min_element(starts, {}, of_run));
    const double end = of_run(*std::ranges::max_element(ends, {}, of_run));
    best = std::min(best, end - start);
  }
  return best;
}

struct Block {
  explicit Block(size_t bytes) : data(static_cast<char*>(std::aligned_alloc(1 << 21, bytes))) {
    madvise(data, bytes, MADV_HUGEPAGE);
    std::memset(data, 1, bytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(data); }
  char* data;
};

// The piece of a block that belongs to one thread.
struct Piece {
  Piece(int part, int parts) : bytes(kBytes / parts / 4096 * 4096), offset(bytes * part) {}
  size_t bytes;
  size_t offset;
};

// Keeps a value alive without storing it anywhere.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

// Vectors of the compiler: 64 bytes whatever the host, split by the compiler where it must.
using Bytes64 = uint64_t __attribute__((vector_size(64), may_alias));

void copy_plain(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    *reinterpret_cast<Bytes64*>(to + i) = *reinterpret_cast<const Bytes64*>(from + i);
  }
}

void write_plain(char* to, size_t bytes) {
  const Bytes64 value = {1, 2, 3, 4, 5, 6, 7, 8};
  for (size_t i = 0; i < bytes; i += 64) *reinterpret_cast<Bytes64*>(to + i) = value;
  keep(to);
}

void read_plain(const char* from, size_t bytes) {
  Bytes64 sums[4] = {};
  for (size_t i = 0; i < bytes; i += 256) {
    for (int k = 0; k < 4; ++k) sums[k] += *reinterpret_cast<const Bytes64*>(from + i + 64 * k);
  }
  keep(sums);
}

#if defined(__x86_64__)

TARGET("avx") void copy_streaming(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 32) {
    const __m256i value = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), value);
  }
  _mm_sfence();
}

TARGET("avx") void write_streaming(char* to, size_t bytes) {
  const __m256i value = _mm256_set1_epi32(7);
  for (size_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), value);
  }
  _mm_sfence();
}

TARGET("avx2") void read_avx2(const char* from, size_t bytes) {
  __m256i sums[4] = {};
  for (size_t i = 0; i < bytes; i += 128) {
    for (int k = 0; k < 4; ++k) {
      const auto* source = reinterpret_cast<const __m256i*>(from + i + 32 * k);
      sums[k] = _mm256_add_epi64(sums[k], _mm256_load_si256(source));
    }
  }
  keep(sums);
}

// Twelve chains hide the latency of four or five cycles on two units. They begin with different values: equal
// ones would be computed once.
#define FMA_LOOP(name, features, vector, set1, fmadd)                   \
  TARGET(features) void name() {                                        \
    const vector factor = set1(0.999);                                  \
    vector sums[12];                                                    \
    for (int c = 0; c < 12; ++c) sums[c] = set1(1.0 + c);               \
    for (int64_t i = 0; i < kArithmeticLoops; ++i) {                    \
      _Pragma("GCC unroll 12") for (auto& sum : sums) {                 \
        sum = fmadd(sum, factor, factor);                               \
      }                                                                 \
    }                                                                   \
    keep(sums);                                                         \
  }
FMA_LOOP(fma_f32_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
FMA_LOOP(fma_f64_avx2, "avx2,fma", __m256d, _mm256_set1_pd, _mm256_fmadd_pd)
FMA_LOOP(fma_f32_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
FMA_LOOP(fma_f64_avx512, "avx512f", __m512d, _mm512_set1_pd, _mm512_fmadd_pd)
#undef FMA_LOOP

TARGET("avx512f,avx512bf16") void dot_bf16_avx512() {
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
  __m512 sums[12];
  for (int c = 0; c < 12; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
  for (int64_t i = 0; i < kArithmeticLoops; ++i) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factor, factor);
  }
  keep(sums);
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The system's permission to use tiles holds for the process, whatever the thread.
bool has_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Four sums, since a product takes longer than it occupies the unit.
TARGET("amx-tile,amx-bf16") void tile_bf16() {
  // Static: the compiler takes the intrinsics to read a word of them.
  static const TileConfig config;
  alignas(64) static const uint16_t operand[16 * 32] = {};
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operand, 64);
  _tile_loadd(5, operand, 64);
  _tile_loadd(6, operand, 64);
  _tile_loadd(7, operand, 64);
  for (int64_t i = 0; i < kTileLoops; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

#endif

// The kernels this host can run; empty where it has none.
struct Kernels {
  std::function<void(char*, const char*, size_t)> copy_streaming;
  std::function<void(char*, size_t)> write_streaming;
  std::function<void(const char*, size_t)> read = read_plain;
  std::function<void()> fma_f32, fma_f64, dot_bf16, tile_bf16;
  int vector_bytes = 16;
};

Kernels kernels_of_host() {
  Kernels kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernels.copy_streaming = copy_streaming;
    kernels.write_streaming = write_streaming;
    kernels.read = read_avx2;
    kernels.fma_f32 = fma_f32_avx2;
    kernels.fma_f64 = fma_f64_avx2;
    kernels.vector_bytes = 32;
  }
  if (__builtin_cpu_supports("avx512f")) {
    kernels.fma_f32 = fma_f32_avx512;
    kernels.fma_f64 = fma_f64_avx512;
    kernels.vector_bytes = 64;
  }
  if (__builtin_cpu_supports("avx512bf16")) kernels.dot_bf16 = dot_bf16_avx512;
  if (has_tiles()) kernels.tile_bf16 = tile_bf16;
#endif
  return kernels;
}

// GB/s when every thread moves its piece of `blocks` blocks.
double bandwidth(int threads, int blocks, const std::function<void(const Piece&)>& move) {
  const double seconds =
      best_seconds(threads, [&](int part, int parts) { move(Piece(part, parts)); });
  return blocks * static_cast<double>(Piece(0, threads).bytes) * threads / seconds * 1e-9;
}

// Every ceiling by name. The two blocks of memory live as long as it does.
class Ceilings {
 public:
  explicit Ceilings(int threads) : threads_(threads) {}

  static const std::vector<std::string>& names() {
    static const std::vector<std::string> names = {
        "copy_gb_s",       "copy_plain_gb_s", "copy_memcpy_gb_s", "copy_non_temporal_gb_s",
        "read_gb_s",       "write_gb_s",      "fma_f32_gflops",   "fma_f64_gflops",
        "dot_bf16_gflops", "tile_bf16_gflops"};
    return names;
  }

  // nullopt: the CPU lacks it, or the name is none of the above.
  std::optional<double> measure(const std::string& name) const {
    if (name == "copy_gb_s") {
      return std::max({copy(copy_plain), copy(memcpy), copy(kernels_.copy_streaming)});
    }
    if (name == "copy_plain_gb_s") return copy(copy_plain);
    if (name == "copy_memcpy_gb_s") return copy(memcpy);
    if (name == "copy_non_temporal_gb_s") return copy(kernels_.copy_streaming);
    if (name == "write_gb_s") return std::max(write(write_plain), write(kernels_.write_streaming));
    if (name == "read_gb_s") {
      return bandwidth(threads_, 1, [this](const Piece& piece) {
        kernels_.read(from_.data + piece.offset, piece.bytes);
      });
    }
    if (name == "fma_f32_gflops") return arithmetic(kernels_.fma_f32, 4);
    if (name == "fma_f64_gflops") return arithmetic(kernels_.fma_f64, 8);
    if (name == "dot_bf16_gflops") return arithmetic(kernels_.dot_bf16, 2);
    if (name == "tile_bf16_gflops") return rate(kernels_.tile_bf16, 4 * kTileFlops * kTileLoops);
    return std::nullopt;
  }

 private:
  std::optional<double> copy(const std::function<void(char*, const char*, size_t)>& kernel) const {
    if (!kernel) return std::nullopt;
    return bandwidth(threads_, 2, [&](const Piece& piece) {
      kernel(to_.data + piece.offset, from_.data + piece.offset, piece.bytes);
    });
  }
  std::optional<double> write(const std::function<void(char*, size_t)>& kernel) const {
    if (!kernel) return std::nullopt;
    return bandwidth(threads_, 1,
                     [&](const Piece& piece) { kernel(to_.data + piece.offset, piece.bytes); });
  }
  // GFLOP/s of a kernel that does so many operations in each thread.
  std::optional<double> rate(const std::function<void()>& kernel, double flops) const {
    if (!kernel) return std::nullopt;
    const double seconds = best_seconds(threads_, [&](int, int) { kernel(); });
    return flops * threads_ / seconds * 1e-9;
  }
  std::optional<double> arithmetic(const std::function<void()>& kernel, int bytes_per_pair) const {
    const double pairs = 12.0 * kernels_.vector_bytes / bytes_per_pair;  // multiply, add: 2 flops
    return rate(kernel, 2 * pairs * kArithmeticLoops);
  }

  int threads_;
  Kernels kernels_ = kernels_of_host();
  Block from_{kBytes};
  Block to_{kBytes};
};

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "null";
}

void report(const Ceilings& ceilings, int threads) {
  std::string fields;
  for (const std::string& name : Ceilings::names()) {
    fields += fmt::format(",\n  \"{}\": {}", name, number(ceilings.measure(name)));
  }
  fmt::print("{{\n  \"threads\": {}{}\n}}\n", threads, fields);
}

void serve(const Ceilings& ceilings) {
  for (std::string name; std::getline(std::cin, name);) {
    fmt::print("{}\n", number(ceilings.measure(name)));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const bool serving = argc == 3 && std::string(argv[2]) == "serve";
  if (threads < 1 || (argc > 2 && !serving)) {
    fmt::print(stderr, "usage: bench_ceiling [threads >= 1] [serve]\n");
    return 2;
  }
  const Ceilings ceilings(threads);
  if (serving) {
    serve(ceilings);
  } else {
    report(ceilings, threads);
  }
}
