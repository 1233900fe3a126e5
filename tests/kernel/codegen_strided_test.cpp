// SPDX-License-Identifier: MIT
// Elements a distance apart that is known where the kernel runs: compiled as interpreted.
#include <gtest/gtest.h>

#include "kernel/compiled.h"
#include "kernel/random_input.h"
#include "kernel/run.h"

namespace cermet {

namespace {

using ir::Kernel;

// One column, and several: within a few elements, all of them are read, but none behind the last one.
TEST(CodegenStrided, Loads) {
  for (const bool are_several : {false, true})
    for (Dtype d : {Dtype::uint8, Dtype::bfloat16, Dtype::float16, Dtype::int32, Dtype::float32,
                    Dtype::float64}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(d), are_several));
      const char* wide = d == Dtype::float64 ? "float64" : "float32";
      const auto load = [&](const char* from) {
        const std::string loaded = fmt::format("load(p0[{}])", from);
        return name_of(d) == wide ? loaded : fmt::format("cast.{}({})", wide, loaded);
      };
      const std::string one = load("a2*s0"), other = load("a2*s0 + 1"),
                        several = fmt::format("sub({}, mul({}, {}))", one, other, one);
      const Kernel kernel = ir::parse(fmt::format(R"(kernel {{
  param p0 {} in
  param p1 {} out
  axis a0
  axis a1 variable
  axis a2 variable
  strides 1
  for chunk (a1) grid 1 {{
    for lane (a2) begin 0 end extent(a0) {{
      store p1[a2] = {}
    }}
  }}
}})",
                                                  name_of(d), wide, are_several ? several : one));
      std::vector<KernelInput> inputs;
      for (const int64_t apart : {-3, 0, 1, 2, 3, 4, 5, 9})
        for (const int64_t n : {0, 1, 7, 8, 16, 33, 64, 200}) {
          const int64_t reach = std::max<int64_t>(n - 1, 0) * std::abs(apart);
          KernelInput input = random_input(kernel, {reach + (are_several ? 2 : 1), n}, {n}, {apart},
                                           static_cast<unsigned>(inputs.size()) + 1, true);
          if (apart < 0) input.before[0] = reach;
          inputs.push_back(std::move(input));
        }
      expect_as_interpreted(kernel, inputs);
    }
}

}  // namespace

}  // namespace cermet
