// SPDX-License-Identifier: MIT
// Random kernels until the time is over: the text form comes back, `simplify` and `lower` keep the
// meaning, and the code for each level of this host gives the interpreter's bits.
// fuzz_kernels [--seconds n] [--seed n] [--count n]; exits 1 at the first fault, with the seed that
// repeats it.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>

#include "kernel/compiled.h"
#include "kernel/random_faults.h"

namespace cermet {
namespace {

struct Flags {
  double seconds = 60;
  uint64_t seed = std::random_device()();
  uint64_t count = UINT64_MAX;
};

std::string first_fault(uint64_t seed) {
  const ir::RandomKernel random(
      seed, {.math = seed % 3 == 0, .depth = 3 + static_cast<int>(seed % 3), .max_points = 3000});
  std::string fault = text_fault(random);
  if (fault.empty()) fault = meaning_fault(random, ir::simplify(random.kernel));
  for (CpuLevel level : host_levels())
    if (fault.empty()) fault = code_fault(random, level);
  if (!fault.empty()) return fault;
  // A contraction's sum has no order of its own, so only the text and its terms are compared.
  const ir::RandomKernel contracting(seed, {.contracts = true, .max_points = 3000});
  fault = text_fault(contracting);
  return fault.empty() ? meaning_fault(contracting, ir::simplify(contracting.kernel)) : fault;
}

volatile uint64_t running = 0;  // the seed, for a crash

// Only what is allowed in a signal handler: digits by hand, write(2).
void report_crash(int signal) {
  char text[] = "\ncrashed: fuzz_kernels --count 1 --seed                     \n";
  char* end = text + sizeof text - 2;
  uint64_t seed = running;
  do *--end = static_cast<char>('0' + seed % 10);
  while ((seed /= 10) != 0);
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (name == "--seconds") flags.seconds = std::atof(value);
    else if (name == "--seed") flags.seed = std::strtoull(value, nullptr, 10);
    else if (name == "--count") flags.count = std::strtoull(value, nullptr, 10);
    else {
      fmt::print(stderr, "usage: fuzz_kernels [--seconds n] [--seed n] [--count n]\n");
      std::exit(2);
    }
  }
  return flags;
}

int run(const Flags& flags) {
  fmt::print("fuzz_kernels --seed {}\n", flags.seed);
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t done = 0;
  for (; done < flags.count && passed() < flags.seconds; ++done) {
    running = flags.seed + done;
    std::string fault;
    try {
      fault = first_fault(running);
    } catch (const std::exception& error) {
      fault = error.what();
    }
    if (!fault.empty()) {
      fmt::print("{}\nfuzz_kernels --count 1 --seed {}\n", fault, uint64_t{running});
      return 1;
    }
    if (done % 16 == 0) fmt::print(stderr, "\r{} kernels, {:.0f} s", done, passed());
  }
  fmt::print(stderr, "\r");
  fmt::print("{} random kernels are right\n", done);
  return 0;
}

}  // namespace
}  // namespace cermet

int main(int argc, char** argv) {
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT})
    std::signal(signal, cermet::report_crash);
  return cermet::run(cermet::parse(argc, argv));
}
