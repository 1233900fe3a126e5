// SPDX-License-Identifier: MIT
// Loops, folds and merges. What belongs to the fold with value K is called vK (its result), stateK
// (of the block at hand), initK, mergeK, treeK (of blocks) and, of a scan, carryK.
#include <algorithm>

#include "base/error.h"
#include "codegen/cuda_emit.h"
#include "codegen/cuda_op.h"
#include "codegen/cuda_source.h"
#include "codegen/lane_analysis.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int64_t kSerialBlock = 256;

// Shared memory that a block has unasked is 48 KiB; this much of it may be trees (kTop + 1 structs).
constexpr int kTreeBytes = 32 << 10, kTreeStructs = 41;

bool has_check(const std::vector<Stmt>& stmts) {
  bool found = false;
  for_each_stmt(stmts, [&](const Stmt& s) { found = found || std::holds_alternative<Check>(s); });
  return found;
}

}  // namespace

// --- States.

std::string CudaEmitter::state_struct(const std::vector<FoldState>& states) {
  std::string name = "S", fields;
  for (size_t i = 0; i < states.size(); ++i) {
    name += fmt::format("_{}", cuda_type(states[i].dtype));
    fields += fmt::format("  {} s{};\n", cuda_type(states[i].dtype), i);
  }
  structs_[name] = fmt::format("struct {} {{\n{}}};\n", name, fields);
  return name;
}

int CudaEmitter::struct_bytes(const std::vector<FoldState>& states) const {
  int bytes = 0, align = 1;
  for (const FoldState& s : states) {
    const int size = static_cast<int>(size_of(s.dtype));
    bytes = (bytes + size - 1) / size * size + size;
    align = std::max(align, size);
  }
  return (bytes + align - 1) / align * align;
}

// Memory of the block for so many structs of each thread, one after another in the same place.
std::string CudaEmitter::exchange(const std::vector<FoldState>& states, int for_each_thread) {
  exchange_bytes_ =
      std::max(exchange_bytes_, struct_bytes(states) * for_each_thread * kCudaThreads);
  return fmt::format("({}*)exchange", state_struct(states));
}

bool CudaEmitter::has_room_for_tree(const std::vector<FoldState>& states) {
  const int bytes = struct_bytes(states) * kTreeStructs;
  if (tree_bytes_ + bytes > kTreeBytes) return false;
  tree_bytes_ += bytes;
  return true;
}

// A struct of one part of each state.
std::string CudaEmitter::states(const std::vector<FoldState>& list, ExprId FoldState::* part) {
  std::string text = state_struct(list) + "{";
  for (size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : ", ") + value(list[i].*part);
  return text + "}";
}

void CudaEmitter::fold_parts(const std::vector<FoldState>& list, ValueId value) {
  const std::string type = state_struct(list);
  const std::string init = states(list, &FoldState::init);
  line("const {} init{} = {};", type, value, init);
  const std::string outer_state = std::exchange(state_, "left"),
                    outer_other = std::exchange(other_, "right");
  open("const auto merge{} = [&](const {}& left, const {}& right) {{", value, type, type);
  line("return {};", states(list, &FoldState::merge));
  close("};");
  state_ = outer_state, other_ = outer_other;
}

void CudaEmitter::fold_step(const Fold& fold) {
  const std::string state = fmt::format("state{}", fold.value);
  const std::string outer = std::exchange(state_, state);
  for (const FoldState& s : fold.states) prepare(s.step);
  open("{{");
  line("{} = {};", state, states(fold.states, &FoldState::step));
  close();
  state_ = outer;
  if (fold.emit == Emit::each)
    line("const {0} v{1} = first{1} ? state{1} : merge{1}(carry{1}, state{1});",
         state_struct(fold.states), fold.value);
}

// --- Serial loops: run by every thread of the block alike, or by one.

void CudaEmitter::serial_loop(const For& loop) {
  const For bounds{
      .kind = ForKind::serial, .axes = loop.axes, .begin = loop.begin, .end = loop.end};
  if (!alone_ && order_.needs_barrier(order_.of(bounds))) line("__syncthreads();");
  std::vector<const Fold*> folds;
  for (const Stmt& stmt : loop.body) {
    const Fold* fold = std::get_if<Fold>(&stmt);
    if (fold == nullptr) continue;
    CERMET_INTERNAL_CHECK(fold->order == Order::serial, "a fold by lanes in a serial loop of {}",
                          kernel_.name);
    folds.push_back(fold);
    fold_parts(fold->states, fold->value);
    const std::string type = state_struct(fold->states);
    line("{0} state{1} = init{1};", type, fold->value);
    if (fold->emit == Emit::last) line("{} tree{}[kTop + 1];", type, fold->value);
    else line("{0} carry{1} = init{1};", type, fold->value);
  }
  const std::string begin = value(loop.begin), end = value(loop.end);
  const std::set<int> written = written_buffers(kernel_, loop.body);
  forget(written);
  const Touches before = order_.recent();
  if (!alone_) order_.add(order_.around(loop));
  open("for (i64 a{0} = {1}; a{0} < {2}; a{0} += {3}) {{", loop.axes[0], begin, end, loop.step);
  for (const Fold* fold : folds)
    if (fold->emit == Emit::each)
      line("const bool first{} = (a{} - {}) / {} < {};", fold->value, loop.axes[0], begin,
           loop.step, kSerialBlock);
  statements(loop.body);
  if (!folds.empty()) serial_folds_end(loop, folds, begin, end);
  close();
  for (const Fold* fold : folds)
    if (fold->emit == Emit::last)
      line("const {0} v{1} = {2} < {3} ? tree{1}[kTop] : init{1};", state_struct(fold->states),
           fold->value, begin, end);
  order_.add(before);
  forget(written);
}

void CudaEmitter::serial_folds_end(const For& loop, const std::vector<const Fold*>& folds,
                                   const std::string& begin, const std::string& end) {
  const std::string number = fresh('k'), last = fresh('k');
  line("const i64 {} = (a{} - {}) / {};", number, loop.axes[0], begin, loop.step);
  line("const bool {} = a{} + {} >= {};", last, loop.axes[0], loop.step, end);
  open("if ({} % {} == {} || {}) {{", number, kSerialBlock, kSerialBlock - 1, last);
  for (const Fold* fold : folds) {
    if (fold->emit == Emit::last)
      line("tree_push(tree{0}, state{0}, (u64)({1} / {2}), {3}, merge{0});", fold->value, number,
           kSerialBlock, last);
    else line("carry{0} = v{0};", fold->value);
    line("state{0} = init{0};", fold->value);
  }
  close();
}

// --- Lane loops: the threads of the block share the iterations.

void CudaEmitter::lane_loop(const For& loop) {
  const std::string begin = value(loop.begin), end = value(loop.end);
  const LaneShare share = share_of(loop);
  Escape escape;
  if (has_check(loop.body)) {
    escape = {fresh('f'), fresh('e'), fmt::format("a{}", loop.axes[0])};
    line("Failure {};", escape.failure);
    escape_ = &escape;
  }
  const std::set<int> written = written_buffers(kernel_, loop.body);
  forget(written);
  if (share.folds.empty()) {
    open("for (i64 a{0} = {1} + threadIdx.x; a{0} < {2}; a{0} += blockDim.x) {{", loop.axes[0],
         begin, end);
    lane_body(loop);
    close();
  } else {
    lane_folds(loop, share, begin, end);
  }
  forget(written);
  if (escape_ == nullptr) return;
  line("if (stops({}, {}, {})) return;", escape.failure, status(), item_key());
  escape_ = nullptr;
}

void CudaEmitter::lane_body(const For& loop) {
  alone_ = true;
  if (escape_ == nullptr) {
    statements(loop.body);
  } else {
    open("{{");
    statements(loop.body);
    close();
    line("{}:;", escape_->label);
  }
  alone_ = false;
}

// A thread steps lane `threadIdx.x % lanes` of every (blockDim.x / lanes)-th block. If folds of
// both kinds of order stand in one loop, it holds two states of each: those of two lanes, or of two
// blocks.
void CudaEmitter::lane_folds(const For& loop, const LaneShare& share, const std::string& begin,
                             const std::string& end) {
  const int64_t steps = share.block / share.lanes;
  const auto copies = [&](const Fold* fold) {
    return share.block / share.lanes * lane_order(fold->states).lanes /
           lane_order(fold->states).block;
  };
  const std::string count = fresh('k'), group = fresh('k'), at = fresh('k'), step = fresh('k');
  line("const i64 {} = {} - {};", count, end, begin);
  std::set<const Fold*> shared;  // others have their tree in memory of thread 0's own
  for (const Fold* fold : share.folds) {
    fold_parts(fold->states, fold->value);
    if (has_room_for_tree(fold->states)) shared.insert(fold);
    line("{}{} tree{}[kTop + 1];", shared.contains(fold) ? "static __shared__ " : "",
         state_struct(fold->states), fold->value);
  }
  open("for (i64 {0} = 0; {0} < {1}; {0} += (i64)(blockDim.x / {2}) * {3}) {{", group, count,
       share.lanes, share.block);
  for (const Fold* fold : share.folds)
    if (copies(fold) == 1) line("{0} state{1} = init{1};", state_struct(fold->states), fold->value);
    else line("{0} states{1}[2] = {{init{1}, init{1}}};", state_struct(fold->states), fold->value);
  line("const i64 {} = {} + {} + (i64)(threadIdx.x / {}) * {} + threadIdx.x % {};", at, begin,
       group, share.lanes, share.block, share.lanes);
  open("for (int {0} = 0; {0} < {1}; ++{0}) {{", step, steps);
  line("const i64 a{} = {} + (i64){} * {};", loop.axes[0], at, step, share.lanes);
  line("if (a{} >= {}) break;", loop.axes[0], end);
  for (const Fold* fold : share.folds) {
    if (copies(fold) == 1) continue;
    const bool by_lane = lane_order(fold->states).lanes > share.lanes;
    const std::string which =
        by_lane ? fmt::format("{} % 2", step) : fmt::format("{} / {}", step, steps / 2);
    line("{0}& state{1} = states{1}[{2}];", state_struct(fold->states), fold->value, which);
  }
  lane_body(loop);
  close();
  for (const Fold* fold : share.folds) {
    const int64_t n = copies(fold);
    const LaneOrder order = lane_order(fold->states);
    open("{{");
    line("{}* const shared = {};", state_struct(fold->states),
         exchange(fold->states, static_cast<int>(n)));
    for (int64_t c = 0; c < n; ++c)
      line("shared[threadIdx.x / {0} * {1} + {2} + threadIdx.x % {0}] = {3};", share.lanes,
           n * share.lanes, c * share.lanes,
           n == 1 ? fmt::format("state{}", fold->value)
                  : fmt::format("states{}[{}]", fold->value, c));
    line("fold_blocks<{0}, {1}>(shared, (int)blockDim.x * {2}, tree{3}, {4}, {5}, merge{3});",
         order.lanes, order.block, n, fold->value, group, count);
    close();
  }
  close();
  for (const Fold* fold : share.folds) {
    std::string result = fmt::format("tree{}[kTop]", fold->value);
    if (!shared.contains(fold))
      result = fmt::format("of_first({}, {})", result, exchange(fold->states, 1));
    line("const {0} v{1} = {2} > 0 ? {3} : init{1};", state_struct(fold->states), fold->value,
         count, result);
  }
}

void CudaEmitter::merge(const Merge& s) {
  const std::string at = value(s.at), count = value(s.count), stride = value(s.stride);
  const std::string type = state_struct(s.states), from = fresh('k');
  fold_parts(s.states, s.value);
  std::string loaded;
  for (size_t i = 0; i < s.from.size(); ++i)
    loaded += fmt::format("{}{}[{} + i * {}]{}", i == 0 ? "" : ", ", buffer({true, s.from[i]}), at,
                          stride, s.states[i].dtype == Dtype::boolean ? " != 0" : "");
  line("const auto {} = [&](i64 i) {{ return {}{{{}}}; }};", from, type, loaded);
  if (alone_) {
    line("const {0} v{1} = {2} > 0 ? merge_range<{0}>(0LL, {2}, {3}, merge{1}) : init{1};", type,
         s.value, count, from);
  } else {
    line("const {0} v{1} = merge_by_block({2}, init{1}, {3}, {4}, merge{1});", type, s.value,
         exchange(s.states, 1), count, from);
  }
}

}  // namespace cermet::codegen
