// SPDX-License-Identifier: MIT
// Generated AArch64 code in tests: LLVM's objects are linked by the cross compiler and run by qemu.
#pragma once

#include <vector>

#include "kernel/compiled.h"

namespace cermet {

// Many launches of many kernels in one run, as linking and starting cost more than a kernel.
class Aarch64Batch {
 public:
  size_t add(const ir::Kernel& tiled);  // gives its number
  void launch(size_t kernel, const KernelInput& input);
  // What the launches leave, in order; none, and a test failure, if a tool refuses something.
  std::vector<KernelOutput> run() const;
  // The same, compared with the interpreter by bits but for NaNs.
  void expect_as_interpreted() const;

 private:
  struct Entry {
    ir::Kernel tiled;
    Object object;
  };
  struct Launch {
    size_t kernel;
    KernelInput input;
  };
  std::string build(const std::string& folder) const;
  std::vector<Entry> kernels_;
  std::vector<Launch> launches_;
};

}  // namespace cermet
