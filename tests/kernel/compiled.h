// SPDX-License-Identifier: MIT
// Running compiled kernels in tests: each buffer ends (or begins) at an inaccessible page, so that
// one byte touched outside it ends the test; scratch of the exact sizes; items in several calls.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "kernel/interpret.h"
#include "runtime/loader.h"

namespace cermet {

// A copy of bytes against an inaccessible page, and inaccessible pages all around.
class GuardedBytes {
 public:
  GuardedBytes(const std::vector<char>& bytes, bool at_end);
  ~GuardedBytes();
  GuardedBytes(GuardedBytes&& other) noexcept;
  GuardedBytes(const GuardedBytes&) = delete;
  char* data() const { return data_; }
  std::vector<char> bytes() const { return {data_, data_ + size_}; }

 private:
  char* map_ = nullptr;
  size_t mapped_ = 0;
  char* data_ = nullptr;
  size_t size_ = 0;
};

// The levels that this host can run.
std::vector<CpuLevel> host_levels();
const char* name_of(CpuLevel level);

struct KernelInput {
  std::vector<std::vector<char>> bytes;  // by parameter; empty for scalars and status
  std::vector<int64_t> before;           // by parameter: elements before element 0
  std::vector<uint64_t> scalars;         // by parameter
  std::vector<int64_t> extents;
  std::vector<int64_t> strides;
};

struct KernelOutput {
  std::vector<std::vector<char>> bytes;
  ir::CheckFailure failure;
};

// The memory of one launch: guarded copies of the buffers, locals of the exact sizes, the record.
class LaunchMemory {
 public:
  LaunchMemory(const Object& object, const ir::Kernel& tiled, const KernelInput& input,
               bool at_end);
  LaunchMemory(const LaunchMemory&) = delete;
  int64_t items(const EntryPoint& entry) const;
  std::vector<size_t> local_bytes() const;  // of the kernel locals, whose words end the record
  KernelOutput output() const;

  std::vector<uint64_t> record;
  size_t thread_bytes = 0;  // of the thread locals, as they are laid out
  KernelStatus status;

 private:
  const KernelInput& input_;
  std::vector<GuardedBytes> buffers_, locals_;
};

// Adds a test failure that says where they differ.
void expect_same(const ir::Kernel& kernel, const KernelOutput& got, const KernelOutput& expected);

KernelOutput run_interpreted(const ir::Kernel& kernel, const KernelInput& input,
                             ir::Arithmetic arithmetic = ir::Arithmetic::exact);
// calls: into how many pieces the items of each entry are cut.
KernelOutput run_compiled(const LoadedKernel& code, const ir::Kernel& tiled,
                          const KernelInput& input, bool at_end = true, int64_t calls = 1);
// Compiled for the host, by their text: sizes need no code of their own.
class CompiledKernels {
 public:
  KernelOutput run(const ir::Kernel& tiled, const KernelInput& input, bool at_end = true);

 private:
  std::map<std::string, std::shared_ptr<LoadedKernel>> known_;
};

// Compiles for every level of the host and compares with the interpreter, by bits but for NaNs.
// Adds a test failure that says where they differ.
void expect_as_interpreted(const ir::Kernel& tiled, const std::vector<KernelInput>& inputs,
                           CpuLevel least = CpuLevel::neon);

}  // namespace cermet
