// SPDX-License-Identifier: MIT
// Tiled kernel to relocatable object: LLVM IR by Emitter, then LLVM's code generator without
// middle-end passes (expressions are shared, hoisted and vectorised before they reach it).
// The object needs no other symbols than those the loader knows.
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include "base/env.h"
#include "base/error.h"
#include "codegen/describe.h"
#include "codegen/llvm_emit.h"
#include "codegen/llvm_pipeline.h"
#include "codegen/work_estimate.h"
#include "kernel/carries.h"
#include "kernel/walk.h"

namespace cermet {

namespace codegen {
namespace {

void verify_module(const llvm::Module& module, const ir::Kernel& kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (!llvm::verifyModule(module, &stream)) return;
  throw_internal(__FILE__, __LINE__,
                 fmt::format("invalid code: {}\nfor: {}", text, ir::print(kernel)));
}

bool has_template(const ir::Kernel& kernel) {
  bool found = false;
  ir::for_each_stmt(
      kernel.body, [&](const ir::Stmt& stmt) { found |= std::holds_alternative<ir::Micro>(stmt); });
  return found;
}

std::string module_text(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

// The module of a kernel; entries are added to `object`.
std::unique_ptr<llvm::Module> build_module(llvm::LLVMContext& context, const ir::Kernel& kernel,
                                           CpuLevel level, bool polls, Object& object) {
  auto module = std::make_unique<llvm::Module>("kernel", context);
  pipeline(level).set_target(*module);
  Emitter emitter(*module, kernel, features_of(level), polls);
  for (const ir::Stmt& stmt : kernel.body) {
    const ir::For* loop = std::get_if<ir::For>(&stmt);
    if (loop == nullptr) continue;
    const std::string symbol = "entry" + std::to_string(object.entries.size());
    emitter.entry(*loop, symbol);
    object.entries.push_back(
        {symbol, loop->grid, estimate_work(kernel, *loop, features_of(level).vector_bytes),
         loop->axes.size() == 2, ir::is_in_order(*loop), loop->turn, loop->least});
  }
  return module;
}

}  // namespace

std::string llvm_text(const ir::Kernel& tiled, CpuLevel level) {
  llvm::LLVMContext context;
  Object object;
  return module_text(*build_module(context, tiled, level, false, object));
}

}  // namespace codegen

// Builds with sanitizers check more.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif

Object compile_cpu(const ir::Kernel& tiled, CpuLevel level, bool polls) {
  CERMET_INTERNAL_CHECK(tiled.is_tiled(), "kernel {} is not tiled", tiled.name);
  Object object;
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);
  const std::unique_ptr<llvm::Module> module =
      codegen::build_module(context, tiled, level, polls, object);
  // No test runs what is beyond the host; templates are written by hand, as no other code is.
  if (kChecked || env::is_set("CERMET_DUMP") || level > cpu_level() || codegen::has_template(tiled))
    codegen::verify_module(*module, tiled);
  object.blob = codegen::pipeline(level).emit(*module);
  codegen::describe(tiled, object);
  return object;
}

}  // namespace cermet
