// SPDX-License-Identifier: MIT
// Tiled kernel to CUDA C++ text, and what a launch of it has to pass.
//
// An entry's signature is
//   extern "C" __global__ void entryK(Record record, long long begin, long long end, char* scratch,
//                                     long long scratch_stride)
// with struct Record { unsigned long long word[...]; }: the record of ir::Kernel, passed by value.
// Any number of blocks may be launched, each of 64, 128 .. kCudaThreads threads: they share the items
// begin .. end among them. The thread_locals of the Object, laid out as for a CPU thread, are needed
// once for each block: in dynamic shared memory (scratch_stride 0), if what the code itself names
// leaves room for them, or at scratch + block · scratch_stride.
//
// A batch (schedule/program.h) would pass a pointer to the records of all members and one to the running
// sums of their items, by which a block finds the record that its item belongs to: the body of an entry
// asks for nothing but a record and items.
//
// Folds, merges and rounding follow ir.h, so results are the CPU's bit for bit; the text must be
// compiled with cuda_options(). Buffers are plain pointers, so an output may take the place of an
// input.
//
// The Status is KernelStatus of runtime/loader.h, site -1 before the launch. The failure kept is
// that of the lowest (entry, item), whatever the number of blocks; entries after it do nothing. Its
// `item` has the entry's number above bit 48.
#pragma once

#include <string>
#include <vector>

#include "codegen/target.h"

namespace cermet {

inline constexpr int kCudaThreads = 256;

ir::TargetFacts cuda_facts();
Object compile_cuda(const ir::Kernel& tiled, const ir::TargetFacts& facts);
// For NVRTC and nvcc alike; the architecture is left to the caller.
const std::vector<std::string>& cuda_options();

}  // namespace cermet
