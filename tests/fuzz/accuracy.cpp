// SPDX-License-Identifier: MIT
// The generated code of each math function on every float, on all cores, against libm in double; of
// two arguments, on random pairs. libm's double is right to about 2^-28 units of a float's last place,
// so an error within that of a limit would not be seen for certain. Prints a table; exits 1 where an
// error is over the limit (max_ulp, which is the one of the op's row).
// fuzz_accuracy [--only op] [--stride n]: n = 1000 takes every thousandth float.
#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "kernel/compiled.h"
#include "kernel/math.h"
#include "kernel/math_reference.h"

namespace cermet {
namespace {

using ir::Code;
using ir::Worst;

constexpr uint64_t kBlock = uint64_t{1} << 18;

uint64_t mixed(uint64_t z) {  // SplitMix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Function {
 public:
  explicit Function(Code code) : code_(code) {
    const bool two = ir::arity_of(code) == 2;
    const std::string text = fmt::format(
        "kernel {{\n  param p0 float32 in\n  param p1 float32 in\n  param p2 float32 out\n"
        "  axis a0\n  for stage (a0) {{ store p2[a0] = {}(load(p0[a0]){}) }}\n}}",
        ir::name_of(code), two ? ", load(p1[a0])" : "");
    tiled_ = ir::lower(ir::parse(text), cpu_facts(cpu_level()));
    loaded_ = load_kernel(compile_cpu(tiled_, cpu_level()));
  }

  Code code() const { return code_; }

  std::vector<float> operator()(const std::vector<float>& x, const std::vector<float>& y) const {
    const size_t bytes = x.size() * sizeof(float);
    KernelInput input{.bytes = {3, std::vector<char>(bytes)},
                      .before = {0, 0, 0},
                      .scalars = {0, 0, 0},
                      .extents = {static_cast<int64_t>(x.size())},
                      .strides = {}};
    std::memcpy(input.bytes[0].data(), x.data(), bytes);
    std::memcpy(input.bytes[1].data(), y.data(), bytes);
    const KernelOutput output = run_compiled(*loaded_, tiled_, input);
    std::vector<float> result(x.size());
    std::memcpy(result.data(), output.bytes[2].data(), bytes);
    return result;
  }

 private:
  Code code_;
  ir::Kernel tiled_;
  std::shared_ptr<LoadedKernel> loaded_;
};

// Most results are the correctly rounded ones, whose error of at most half a unit needs no measuring.
void add(Worst& worst, float got, double truth, float x, float y) {
  if (std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(static_cast<float>(truth)) &&
      worst.error >= 0.5)
    return;
  worst.add(ir::ulps(got, truth), x, y, got, truth);
}

// body(first sample, samples, the worst so far of this thread) for all blocks, on all cores.
template <typename F>
Worst over_all(std::string_view name, uint64_t samples, F body) {
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  Worst worst;
  const auto work = [&] {
    Worst mine;
    for (uint64_t begin; (begin = next.fetch_add(kBlock)) < samples;) {
      body(begin, std::min(kBlock, samples - begin), mine);
      if (begin / kBlock % 256 == 0)
        fmt::print(stderr, "\r{} {:3.0f} %  ", name,
                   100.0 * static_cast<double>(begin) / static_cast<double>(samples));
    }
    const std::lock_guard lock(mutex);
    worst.add(mine.error, mine.at, mine.at2, mine.got, mine.truth);
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  threads.clear();
  fmt::print(stderr, "\r{:20}\r", "");
  return worst;
}

Worst every_float(const ir::UnaryRow& row, uint64_t stride) {
  const Function f(row.code);
  const uint64_t samples = ((uint64_t{1} << 32) + stride - 1) / stride;
  return over_all(ir::name_of(row.code), samples, [&](uint64_t begin, uint64_t n, Worst& worst) {
    std::vector<float> x(n);
    for (uint64_t i = 0; i < n; ++i)
      x[i] = std::bit_cast<float>(static_cast<uint32_t>((begin + i) * stride));
    const std::vector<float> got = f(x, x);
    for (uint64_t i = 0; i < n; ++i) {
      const double truth = ir::reference(row, x[i], got[i]);
      add(worst, got[i], truth, x[i], 0);
    }
  });
}

Worst random_pairs(const ir::PairRow& row, uint64_t stride) {
  const Function f(row.code);
  const uint64_t samples = (uint64_t{1} << 30) / stride;
  return over_all(ir::name_of(row.code), samples, [&](uint64_t begin, uint64_t n, Worst& worst) {
    std::vector<float> x(n), y(n);
    for (uint64_t i = 0; i < n; ++i) {
      x[i] = ir::random_float(mixed(2 * (begin + i)));
      y[i] = ir::random_float(mixed(2 * (begin + i) + 1));
    }
    const std::vector<float> got = f(x, y);
    for (uint64_t i = 0; i < n; ++i) {
      const double truth = row.libm(x[i], y[i]);
      add(worst, got[i], truth, x[i], y[i]);
    }
  });
}

// Whether it is within the limit.
bool report(Code code, const Worst& worst) {
  const double limit = ir::max_ulp(code, Dtype::float32);
  const bool good = worst.error <= limit;
  const std::string at = ir::arity_of(code) == 2 ? fmt::format("{:a}, {:a}", worst.at, worst.at2)
                                                 : fmt::format("{:a}", worst.at);
  fmt::print("{:8} | {:7.4f} | {:>28} | {:5} {}\n", ir::name_of(code), worst.error, at, limit,
             good ? "" : "OVER");
  std::fflush(stdout);
  return good;
}

int run(const std::string& only, uint64_t stride) {
  fmt::print("{:8} | {:7} | {:>28} | limit\n", "op", "max ULP", "at");
  bool good = true;
  const auto wanted = [&](Code code) { return only.empty() || only == ir::name_of(code); };
  for (const ir::UnaryRow& row : ir::unary_rows())
    if (wanted(row.code)) good &= report(row.code, every_float(row, stride));
  for (const ir::PairRow& row : ir::pair_rows())
    if (wanted(row.code)) good &= report(row.code, random_pairs(row, stride));
  return good ? 0 : 1;
}

}  // namespace
}  // namespace cermet

int main(int argc, char** argv) {
  std::string only;
  uint64_t stride = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (name == "--only") only = value;
    else if (name == "--stride") stride = std::strtoull(value, nullptr, 10);
    else stride = 0;
  }
  if (stride == 0) {
    fmt::print(stderr, "usage: fuzz_accuracy [--only op] [--stride n >= 1]\n");
    return 2;
  }
  return cermet::run(only, stride);
}
