// SPDX-License-Identifier: MIT
// A program is a planned graph: values with places, and launches in order. It is what eval runs and what
// compile keeps. It refers to positions (inputs, scalars, outputs), so it serves every graph of equal
// plan.
//
//   Program := Value* Launch*
//   Value   := dtype, shape, layout, place (input | constant | made by a launch)
//   Launch  := kernel, operands, extents, strides; values that die with it
//
// Launches of one kernel that lie side by side may be a batch: they run as one, each with a record of
// its own, since none needs another (batches.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernel_cache.h"
#include "schedule/emit.h"
#include "schedule/steps.h"

namespace cermet {

struct Program;
using ProgramPtr = std::shared_ptr<const Program>;

struct Program {
  struct Value {
    Dtype dtype;
    Shape shape;
    Dim bytes = 0;  // of a value made by a launch
    int input = -1;
    size_t alignment = 1;  // an input's: what the place of its first element must be a multiple of
    NodeRef constant = {};
  };
  struct Launch {
    schedule::EmittedKernel kernel;
    ir::Hash hash;  // of the kernel
    KernelPtr code;
    int batch = 1;         // launches from this one on that run as one; 0: not the first of them
    Layout target_layout;  // update: of the copied value, from its own layout's start
    bool keeps_target = false;  // update: it reads what it would have written over
    std::vector<int> outputs;   // values it makes
    std::vector<int> after;     // values that must be made before, beside those it reads
    // (output, dying value whose memory it may use): the first that is there for an output, once each.
    std::vector<std::pair<int, int>> take_over;
    std::vector<int> dies;         // values not needed after the batch, nor by others in it
    std::vector<int> dies_shared;  // values not needed after the batch that others in it read, too
    schedule::Border border = schedule::Border::output;
    Dim bytes_read = 0, bytes_written = 0;
    std::vector<int> members;  // nodes computed, for explain
  };
  struct Member {    // what is kept of a node: its data must not live as long as the plan
    const char* op;  // null: a leaf
    Origin origin;   // in the graph that the program was built for
    uint32_t position = TapeMark::kNone;  // in tapes that it serves
  };
  struct Output {
    int value;
    Layout layout;  // from the start of the value's layout, in elements of ...
    Dtype dtype;    // ... the output, which the value's may be read as
  };
  std::vector<Value> values;
  std::vector<Launch> launches;
  std::vector<int> empty;  // values without elements: no launch makes them
  std::vector<Output> outputs;
  Steps steps;  // the launches, as a run reads them
  // Run op by op, since compiling its kernels would take long: so many more runs until it pays to build it
  // anew as a whole. Negative: it is whole.
  mutable std::atomic<int64_t> runs_apart{-1};
  bool is_outrun() const { return runs_apart.load(std::memory_order_relaxed) == 0; }
  bool is_provisional = false;           // some region runs op by op until it is met again
  size_t least_bytes = 0;                // of its results, or of its largest value if that is more
  std::vector<std::string_view> checks;  // ops that may find an index out of range in a run
  std::vector<int> scalar_positions;     // of the program's scalars among TracedGraph::scalars
  std::vector<Member> members;           // by value number
};

// What is kept for graphs met before, in each place that keeps programs: a launch takes some 5 KB.
inline constexpr size_t kMaxKeptLaunches = 16'384;

// The values that a launch reads, writes or waits for; some may be in it twice.
std::vector<int> values_used(const Program::Launch& launch);

// How much may be left to compile later; the bits are the same.
enum class Sight : uint8_t {
  first,  // a region runs op by op (CERMET_TIER=auto) where that saves compiling its kernel: that is in
  // no cache, those of its ops are, it was not met before, and the memory that it would save is
  // cheaper than the code generator
  usual,    // op by op only where compiling takes long
  settled,  // each region is one kernel
};
// what: for the log, what the program is kept for; called when the topic is on.
ProgramPtr build_program(const TracedGraph& graph, Sight sight = Sight::usual,
                         const std::function<std::string()>& what = {});

// One evaluation or report at a time: claims are by the whole tape, so there is no order to deadlock on.
// In the child of a fork that cut one short its arrays are as before, but for inputs that it was given.
class EvalLock {
 public:
  EvalLock();
  ~EvalLock();
  EvalLock(const EvalLock&) = delete;
  EvalLock& operator=(const EvalLock&) = delete;
};

}  // namespace cermet
