// SPDX-License-Identifier: MIT
// LLVM's code generator for one processor level: target machine and passes, set up once and used
// for one module after another. Most of what the stock pipeline holds serves other languages and
// processors (garbage collection, exceptions, x87, calls); those passes are left out, as each costs
// time on every kernel.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "codegen/target.h"

namespace cermet::codegen {

class Pipeline {
 public:
  explicit Pipeline(CpuLevel level);
  ~Pipeline();

  void set_target(llvm::Module& module) const;
  // A relocatable ELF object.
  std::string emit(llvm::Module& module);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Null unless AArch64's code generator is linked (add_neon).
extern void (*set_up_aarch64)();

// This thread's.
Pipeline& pipeline(CpuLevel level);

}  // namespace cermet::codegen
