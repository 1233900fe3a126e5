// SPDX-License-Identifier: MIT
// The passes in their order, and the runner.
#include <chrono>
#include <cstdio>
#include <fstream>

#include "base/env.h"
#include "base/error.h"
#include "kernel/passes.h"

namespace cermet::ir {

namespace {

struct Pass {
  const char* name;  // in CERMET_SKIP_PASS (those that may be left out), logs and dumps
  bool expanded;     // no math codes are left but the target's own
  Kernel (*run)(const Kernel&, const TargetFacts&);
};

Kernel simplify_for(const Kernel& kernel, const TargetFacts&) { return simplify(kernel); }

constexpr Pass kPasses[] = {
    {"simplify", false, simplify_for}, {"relax_max", false, relax_max},
    {"expand", true, expand},          {"tile", true, tile},
    {"unswitch", true, unswitch},      {"simplify_tiled", true, simplify_for},
};

void dump(const Kernel& kernel, const std::string& stem, size_t number, const char* pass) {
  const std::string path = fmt::format("{}/{}.{}_{}.ir", env::dump(), stem, number, pass);
  std::ofstream file(path);
  file << print(kernel);
  file.flush();
  CERMET_CHECK(file.good(), io, "dump", "cannot write {}; CERMET_DUMP must name an existing folder",
               path);
}

}  // namespace

Kernel lower(const Kernel& kernel, const TargetFacts& target) {
  using Clock = std::chrono::steady_clock;
  const bool dumps = !env::dump().empty();
  const bool logs = env::list_has(env::log(), "kernel");
  const std::string stem = dumps ? hash_of(kernel).hex() : "";
  verify(kernel);
  if (dumps) dump(kernel, stem, 0, "given");
  Kernel current = kernel;
  size_t number = 0;
  for (const Pass& pass : kPasses) {
    ++number;
    if (env::list_has(env::skip_pass(), pass.name)) continue;
    const Clock::time_point start = Clock::now();
    current = pass.run(current, target);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    verify(current, pass.expanded && target.native_math == 0);
    if (logs)
      fmt::print(stderr, "[kernel] {} {}: {:.1f} us, {} expressions\n", kernel.name, pass.name,
                 took.count(), current.exprs.size());
    if (dumps) dump(current, stem, number, pass.name);
  }
  return current;
}

}  // namespace cermet::ir
