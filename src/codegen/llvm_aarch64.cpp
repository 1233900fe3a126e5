// SPDX-License-Identifier: MIT
// LLVM's code generator for AArch64: programs that do not ask for it are linked without it.
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>

#include "codegen/llvm_pipeline.h"

namespace cermet {

void add_neon() {
  codegen::set_up_aarch64 = [] {
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  };
}

}  // namespace cermet
