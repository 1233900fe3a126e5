// SPDX-License-Identifier: MIT
#include "kernel/random_faults.h"

#include "kernel/compiled.h"
#include "kernel/run.h"

namespace cermet {

namespace {

// Nothing is promised of what a kernel stores whose check fails.
std::string difference(const ir::Kernel& kernel, const KernelOutput& a, const KernelOutput& b) {
  if (a.failure.site != b.failure.site)
    return fmt::format("check {} failed, not {}", b.failure.site, a.failure.site);
  if (a.failure.site >= 0) return "";
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const std::string d = ir::difference(kernel.params[i].dtype, a.bytes[i], b.bytes[i]);
    if (!d.empty()) return fmt::format("p{}: {}", i, d);
  }
  return "";
}

}  // namespace

std::string text_fault(const ir::RandomKernel& random) {
  ir::verify(random.kernel);
  const std::string text = ir::print(random.kernel);
  const ir::Kernel again = ir::parse(text);
  ir::verify(again);
  const std::string printed = ir::print(again);
  if (printed == text) return "";
  return fmt::format("seed {}: the text does not come back\n{}{}", random.seed, text, printed);
}

std::string meaning_fault(const ir::RandomKernel& random, const ir::Kernel& other) {
  const KernelInput input = random.input();
  const KernelOutput expected = run_interpreted(random.kernel, input);
  const std::string d = difference(random.kernel, expected, run_interpreted(other, input));
  if (d.empty()) return "";
  return fmt::format("seed {}, {}\n{}{}", random.seed, d, ir::print(random.kernel),
                     ir::print(other));
}

std::string code_fault(const ir::RandomKernel& random, CpuLevel level) {
  const ir::Kernel tiled = ir::lower(random.kernel, cpu_facts(level));
  ir::verify(tiled, true);
  const std::string wrong_lowering = meaning_fault(random, tiled);
  if (!wrong_lowering.empty()) return wrong_lowering;
  const KernelInput input = random.input();
  const KernelOutput expected = run_interpreted(tiled, input);
  const std::shared_ptr<LoadedKernel> code = load_kernel(compile_cpu(tiled, level));
  const bool at_end = random.seed % 2 == 0;
  const auto calls = 1 + static_cast<int64_t>(random.seed % 3);
  const KernelOutput got = run_compiled(*code, tiled, input, at_end, calls);
  const std::string d = difference(tiled, expected, got);
  if (d.empty()) return "";
  return fmt::format("seed {}, code for {}, {}\n{}", random.seed, name_of(level), d,
                     ir::print(tiled));
}

}  // namespace cermet
