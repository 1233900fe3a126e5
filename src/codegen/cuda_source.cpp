// SPDX-License-Identifier: MIT
#include "codegen/cuda_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/lazy.h"
#include "codegen/cuda_emit.h"
#include "codegen/cuda_preamble.h"
#include "codegen/describe.h"
#include "codegen/work_estimate.h"
#include "kernel/carries.h"
#include "kernel/walk.h"

namespace cermet {

namespace {

using ir::Kernel;

bool may_fail(const ir::For& chunk) {
  bool found = false;
  ir::for_each_stmt(chunk.body, [&](const ir::Stmt& s) {
    found = found || std::holds_alternative<ir::Check>(s);
  });
  return found;
}

size_t record_words(const Kernel& kernel) {
  const auto extents = std::ranges::count_if(kernel.axes, &ir::Axis::has_extent);
  const auto locals = std::ranges::count(kernel.locals, ir::LocalScope::kernel, &ir::Local::scope);
  return kernel.params.size() + static_cast<size_t>(extents) +
         static_cast<size_t>(kernel.stride_count) + static_cast<size_t>(locals);
}

}  // namespace

// The vectors are those of the widest processors, so that both targets get the same blocks; local
// memory is what a block may hold.
ir::TargetFacts cuda_facts() {
  ir::TargetFacts facts;
  facts.name = "cuda";
  facts.vector_bytes = 64;
  facts.fma = true;
  facts.l1_bytes = 227 << 10;
  facts.l2_bytes = 32 << 20;
  facts.native_math =
      uint64_t{1} << (static_cast<int>(ir::Code::threefry) - static_cast<int>(ir::Code::exp));
  return facts;
}

const std::vector<std::string>& cuda_options() {
  static constinit Lazy<std::vector<std::string>> options;
  return options.get([] {
    return std::vector<std::string>{"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true",
                                    "--prec-sqrt=true"};
  });
}

Object compile_cuda(const Kernel& tiled, const ir::TargetFacts& facts) {
  CERMET_INTERNAL_CHECK(tiled.is_tiled(), "kernel {} is not tiled", tiled.name);
  Object object;
  codegen::CudaEmitter emitter(tiled);
  std::string entries;
  bool may_have_failed = false;
  for (const ir::Stmt& stmt : tiled.body) {
    const ir::For* chunk = std::get_if<ir::For>(&stmt);
    if (chunk == nullptr) continue;
    const int number = static_cast<int>(object.entries.size());
    const std::string symbol = fmt::format("entry{}", number);
    entries += emitter.entry(*chunk, symbol, number, may_have_failed);
    may_have_failed = may_have_failed || may_fail(*chunk);
    object.entries.push_back(
        {symbol, chunk->grid, codegen::estimate_work(tiled, *chunk, facts.vector_bytes),
         chunk->axes.size() == 2, ir::is_in_order(*chunk), chunk->turn, chunk->least});
  }
  object.blob =
      fmt::format("{}\nstruct Record {{\n  u64 word[{}];\n}};\n{}{}", codegen::kCudaPreamble,
                  std::max<size_t>(1, record_words(tiled)), emitter.structs(), entries);
  codegen::describe(tiled, object);
  return object;
}

}  // namespace cermet
