// SPDX-License-Identifier: MIT
#include "codegen/llvm_pipeline.h"

#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Pass.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#include "base/error.h"

namespace cermet::codegen {

void (*set_up_aarch64)() = nullptr;

namespace {

const char* triple_of(CpuLevel level) {
  return level == CpuLevel::neon ? "aarch64-unknown-linux-gnu" : "x86_64-unknown-linux-gnu";
}

const char* cpu_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::neon: return "generic";
    case CpuLevel::generic: return "x86-64";
    case CpuLevel::avx2: return "x86-64-v3";
    default: return "x86-64-v4";
  }
}

// Gathers are wanted where there are any: the alternative is a load for each lane.
std::string feature_string(CpuLevel level) {
  std::string features;
  if (level >= CpuLevel::avx2) features += "+fast-gather";
  if (level >= CpuLevel::avx512) features += ",-prefer-256-bit";
  if (level >= CpuLevel::avx512_bf16) features += ",+avx512bf16,+avx512vnni";
  if (level >= CpuLevel::avx512_fp16) features += ",+avx512fp16";
  if (level >= CpuLevel::amx) features += ",+amx-tile,+amx-bf16,+amx-int8";
  return features;
}

const llvm::Target& find_target(CpuLevel level) {
  std::string message;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple_of(level), message);
  CERMET_INTERNAL_CHECK(found != nullptr, "no code generator for {}: {}", triple_of(level),
                        message);
  return *found;
}

const llvm::Target& x86() {
  static const llvm::Target& target = []() -> const llvm::Target& {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    return find_target(CpuLevel::generic);
  }();
  return target;
}

const llvm::Target& aarch64() {
  static const llvm::Target& target = []() -> const llvm::Target& {
    CERMET_INTERNAL_CHECK(set_up_aarch64 != nullptr, "add_neon() was not called");
    set_up_aarch64();
    return find_target(CpuLevel::neon);
  }();
  return target;
}

// The passes to leave out, by LLVM's names; one that it does not know is no error.
constexpr std::string_view kLeftOut[] = {
    // What the kernels' code does not have: calls of other languages, their frames and their
    // debugging.
    "Shadow Stack GC Lowering",
    "Lower Garbage Collection Instructions",
    "Analyze Machine Code For Garbage Collection",
    "Exception handling preparation",
    "Contiguously Lay Out Funclets",
    "Safe Stack instrumentation pass",
    "Insert stack protectors",
    "Prepare callbr",
    "Expand indirectbr instructions",
    "Instrument function entry/exit with calls to e.g. mcount() (post inlining)",
    "Insert fentry calls",
    "Insert XRay ops",
    "Insert KCFI indirect call checks",
    "Implement the 'patchable-function' attribute",
    "Fixup Statepoint Caller Saved",
    "StackMap Liveness Analysis",
    "Machine Sanitizer Binary Metadata",
    "Pseudo Probe Inserter",
    "Stack Frame Layout Analysis",
    "Live DEBUG_VALUE analysis",
    "Remove Redundant DEBUG_VALUE analysis",
    "Check CFA info and insert CFI instructions if needed",
    "Local Dynamic TLS Access Clean-up",
    "TLS Variable Hoist",
    "Argument Stack Rebase",
    "X86 PIC Global Base Reg Initialization",
    "X86 DynAlloca Expander",
    "X86 Optimize Call Frame",
    "Shrink Wrapping analysis",
    "Register Allocation Pass Scoring",
    // Instructions that the emitter never asks for: x87, tiles by value, bundles, wide integers.
    "Expand large div/rem",
    "Expand large fp convert",
    "Expand vector predication intrinsics",
    "Lower constant intrinsics",
    "Lower AMX intrinsics",
    "Lower AMX type for load/store",
    "Tile Register Pre-configure",
    "Tile Register Configure",
    "X86 Lower Tile Copy",
    "X86 FP Stackifier",
    "X86 insert wait instruction",
    "Unpack machine instruction bundles",
    "Init Undef Pass",
    "Merge contiguous icmps into a memcmp",
    "Expand memcmp() to load/stores",
    "Replace intrinsics with calls to vector library",
    "Partially inline calls to library functions",
    "Interleaved Access Pass",
    // Attacks between processes: the code is the user's own.
    "X86 Windows Fixup Buffer Security Check",
    "X86 speculative load hardening",
    "X86 Load Value Injection (LVI) Load Hardening",
    "X86 Load Value Injection (LVI) Ret-Hardening",
    "X86 Speculative Execution Side Effect Suppression",
    "X86 Indirect Thunks",
    "X86 Return Thunks",
    "X86 Indirect Branch Tracking",
    // Processors without wide vectors.
    "X86 Atom pad short functions",
    "X86 LEA Fixup",
    "X86 LEA Optimize",
    "X86 Fixup SetCC",
    "X86 Byte/Word Instruction Fixup",
    "X86 Discriminate Memory Operands",
    "X86 Insert Cache Prefetches",
    "Post RA top-down list latency scheduler",
    // What the emitter has done: expressions are shared, hoisted and placed, loops have their
    // pointers.
    "Type-Based Alias Analysis",
    "Scoped NoAlias Alias Analysis",
    "Canonicalize Freeze Instructions in Loops",
    "Loop Strength Reduction",
    "Remove unreachable blocks from the CFG",
    "Constant Hoisting",
    "CodeGen Prepare",
    "Machine Instruction Scheduler",
    "X86 Partial Reduction",
    "Machine InstCombiner",
    "Early Tail Duplication",
    "Tail Duplication",
    "Early If-Conversion",
    "X86 cmov Conversion",
    "X86 Domain Reassignment Pass",
    "X86 Avoid Store Forwarding Blocks",
    "Merge disjoint stack slots",
    "Local Stack Slot Allocation",
    "Live Range Shrink",
    "Detect Dead Lanes",
    "PostRA Machine Sink",
    "Machine Late Instructions Cleanup Pass",
    "Remove dead machine instructions",
    "Machine Copy Propagation Pass",
    "Optimize machine instruction PHIs",
    "Stack Slot Coloring",
    "X86 Fixup Vector Constants",
    "X86 Fixup Inst Tuning",
};

// No live range is split around whole regions of blocks: the search takes a quarter of the compile time
// of large kernels. Between two loops values are few; what does not fit a loop is mostly constants, which
// instructions read from memory as well.
void limit_register_allocator() {
  auto& options = llvm::cl::getRegisteredOptions();
  const auto budget = options.find("grow-region-complexity-budget");
  if (budget != options.end()) budget->second->addOccurrence(0, "", "0");
}

// Takes the code generator's passes and keeps the wanted ones. The first of its two register
// allocators is for tiles.
class Filter : public llvm::legacy::PassManagerBase {
 public:
  explicit Filter(llvm::legacy::PassManager& passes) : passes_(passes) {}

  void add(llvm::Pass* pass) override {
    const std::string_view name = pass->getPassName();
    const bool tiles = name == "Greedy Register Allocator" && allocators_++ == 0;
    if (tiles || std::ranges::find(kLeftOut, name) != std::end(kLeftOut)) {
      delete pass;
    } else {
      passes_.add(pass);
    }
  }

 private:
  llvm::legacy::PassManager& passes_;
  int allocators_ = 0;
};

}  // namespace

struct Pipeline::State {
  std::unique_ptr<llvm::TargetMachine> machine;
  llvm::SmallVector<char, 0> blob;
  llvm::raw_svector_ostream stream{blob};
  llvm::legacy::PassManager passes;
};

Pipeline::Pipeline(CpuLevel level) : state_(std::make_unique<State>()) {
  static std::once_flag limited;
  std::call_once(limited, limit_register_allocator);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  const bool is_x86 = level != CpuLevel::neon;
  state_->machine.reset((is_x86 ? x86() : aarch64())
                            .createTargetMachine(triple_of(level), cpu_name(level),
                                                 feature_string(level), options, llvm::Reloc::PIC_,
                                                 llvm::CodeModel::Small,
                                                 llvm::CodeGenOptLevel::Less, true));
  Filter filter(state_->passes);  // chosen for x86
  auto& passes = is_x86 ? static_cast<llvm::legacy::PassManagerBase&>(filter) : state_->passes;
  const bool refused = state_->machine->addPassesToEmitFile(
      passes, state_->stream, nullptr, llvm::CodeGenFileType::ObjectFile, true);
  CERMET_INTERNAL_CHECK(!refused, "the code generator makes no objects");
}

Pipeline::~Pipeline() = default;

void Pipeline::set_target(llvm::Module& module) const {
  module.setTargetTriple(state_->machine->getTargetTriple().str());
  module.setDataLayout(state_->machine->createDataLayout());
}

std::string Pipeline::emit(llvm::Module& module) {
  state_->blob.clear();
  state_->passes.run(module);
  return {state_->blob.begin(), state_->blob.end()};
}

Pipeline& pipeline(CpuLevel level) {
  thread_local std::array<std::unique_ptr<Pipeline>, 7> made;
  const int number = static_cast<int>(level) - static_cast<int>(CpuLevel::neon);
  std::unique_ptr<Pipeline>& mine = made[static_cast<size_t>(number)];
  if (mine == nullptr) mine = std::make_unique<Pipeline>(level);
  return *mine;
}

}  // namespace cermet::codegen
