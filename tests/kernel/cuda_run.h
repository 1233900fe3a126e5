// SPDX-License-Identifier: MIT
// Generated CUDA text in tests: compiled by NVRTC where there is one, and run on this processor by
// cuda_shim.h, compiled by the compiler named CXX (else c++). Where there is a GPU it runs there,
// too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel/compiled.h"
#include "kernel/cuda_device.h"
#include "temp_folder.h"

namespace cermet {

struct CudaLaunch {
  unsigned threads = 256, blocks = 2;
  bool scratch = false;    // thread locals in global memory instead of shared memory
  bool backwards = false;  // in which order threads take turns
  bool device = false;     // on the GPU; with `scratch` also where shared memory is too small
};
// And each of them on the GPU, where there is one, with few blocks and with many.
std::vector<CudaLaunch> with_device(std::vector<CudaLaunch> launches);

// Many kernels compiled at once, as a compiler's start costs more than a kernel.
class CudaBatch {
 public:
  CudaBatch() = default;
  ~CudaBatch();
  CudaBatch(const CudaBatch&) = delete;

  size_t add(const ir::Kernel& tiled);  // gives its number
  // False, and a test failure, if a compiler refuses the text, or its code lacks an entry.
  bool build();
  const Object& object(size_t kernel) const { return kernels_[kernel].object; }
  KernelOutput run(size_t kernel, const KernelInput& input, const CudaLaunch& launch) const;
  // Runs each kernel in several ways and compares with the interpreter, by bits but for NaNs.
  void expect_as_interpreted(size_t kernel, const std::vector<KernelInput>& inputs) const;

 private:
  struct Entry {
    ir::Kernel tiled;
    Object object;
    std::unique_ptr<CudaModule> module = nullptr;  // where there is a GPU
  };
  bool build_for_host();
  KernelOutput run_in_turns(size_t kernel, const KernelInput& input, const CudaLaunch& how) const;
  std::vector<Entry> kernels_;
  void* library_ = nullptr;
  TempFolder folder_;
};

}  // namespace cermet
