# SPDX-License-Identifier: MIT
# LLVM 19, static: sets CERMET_LLVM_INCLUDE_DIR and CERMET_LLVM_LIBRARIES.
# LLVM's support library names libz3 and the shared zstd; Z3 is used by no part that is linked here,
# and zstd is linked statically so that the extension needs nothing beside libc, libstdc++ and zlib.
find_package(LLVM 19.1 REQUIRED CONFIG PATHS /usr/lib/llvm-19 NO_DEFAULT_PATH)
set(CERMET_LLVM_INCLUDE_DIR ${LLVM_INCLUDE_DIRS})
llvm_map_components_to_libnames(CERMET_LLVM_LIBRARIES
  X86CodeGen X86Desc X86Info AArch64CodeGen AArch64Desc AArch64Info
  ExecutionEngine RuntimeDyld OrcJIT JITLink Object Passes CodeGen Target MC Core BitWriter Support
  TargetParser)
find_library(CERMET_ZSTD NAMES libzstd.a REQUIRED)
find_package(ZLIB REQUIRED)
set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES
                      "rt;dl;m;ZLIB::ZLIB;${CERMET_ZSTD};LLVMDemangle")
