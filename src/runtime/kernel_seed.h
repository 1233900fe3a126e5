// SPDX-License-Identifier: MIT
// Kernels that come with the library: a read-only file beside it, made when it was built by running
// it on the common ops, for every processor level. It serves the build that made it alone. Each
// kernel in it is verified by a hash of its content as it is read; one that does not match is as
// good as absent. A build whose code generator is that of an earlier seed takes the code from there.
//
//   File   := Header Index{level}* stored kernel*      kernels that levels share are stored once
//   Index  := Entry*, sorted by hash                   verified when the file is opened
#pragma once

#include <optional>
#include <span>
#include <string>

#include "runtime/kernel_disk.h"

namespace cermet {

class KernelSeed {
 public:
  // The file beside this library, for the level in force; empty where settings ask for fresh code.
  static const KernelSeed& get();
  KernelSeed(const std::string& path, CpuLevel level);
  // The file of another build, of which it is known that this code generator made it.
  KernelSeed(const std::string& path, CpuLevel level, const std::string& generator);
  ~KernelSeed();
  KernelSeed(const KernelSeed&) = delete;
  KernelSeed& operator=(const KernelSeed&) = delete;

  // hash: of the untiled kernel.
  std::optional<StoredKernel> load(const ir::Hash& hash) const;
  size_t size() const { return entries_.size(); }

  struct Entry {
    ir::Hash hash;
    uint64_t offset, bytes;
  };

 private:
  void read_index(CpuLevel level);
  std::string_view file_;  // mapped
  std::span<const Entry> entries_;
};

// Compiles the kernels for every level, on all cores, and writes the file whole; returns how many
// were compiled. `generator` identifies the code generator, up to 64 bytes: what a file already at
// `path` holds of the same one is taken from there (nothing if it is empty). Raises [seed] io when
// the file cannot be written.
size_t write_seed(const std::string& path, std::span<const ir::Kernel> kernels,
                  const std::string& generator = "");

}  // namespace cermet
