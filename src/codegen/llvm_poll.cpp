// SPDX-License-Identifier: MIT
// Polls of long items: on its way back a loop whose length is not known to be short counts down what it has
// done, and now and then asks the runtime whether to go on; if not, the function returns at once. Work is counted
// in steps of a vector loop or the like, a few nanoseconds at most. Kernels of short items do without: a call
// in a loop costs registers.
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>

#include "codegen/llvm_emit.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int64_t kWorkUntilPoll = 1 << 14;
constexpr int64_t kUnknownTrips = 64;    // of a loop
constexpr int64_t kFewTrips = 1 << 12;   // of a loop that does not poll
constexpr int64_t kMicroWork = 1 << 13;  // of a template's block

bool holds_loops(const For& loop) {
  return std::ranges::any_of(loop.body, [](const Stmt& stmt) {
    return std::holds_alternative<For>(stmt) || std::holds_alternative<Micro>(stmt);
  });
}

}  // namespace

// How far `end` is behind `begin` at most.
std::optional<int64_t> Emitter::most_beyond(ExprId begin, ExprId end) const {
  begin = behind(begin), end = behind(end);
  if (begin == end) return 0;
  const Expr &from = kernel_[begin], &to = kernel_[end];
  if (from.kind == ExprKind::constant)
    if (const auto most = most_of(end)) return *most - static_cast<int64_t>(from.bits);
  if (to.kind != ExprKind::op || to.operands.size() < 2) return std::nullopt;
  const ExprId left = to.operands[to.operands.size() - 2], right = to.operands.back();
  if (to.code == Code::add) {
    const auto most = most_beyond(begin, left), more = most_of(right);
    return most && more ? std::optional(*most + *more) : std::nullopt;
  }
  if (to.code != Code::min && to.code != Code::select) return std::nullopt;
  const auto a = most_beyond(begin, left), b = most_beyond(begin, right);
  if (a && b) return to.code == Code::min ? std::min(*a, *b) : std::max(*a, *b);
  return to.code == Code::select ? std::nullopt : a ? a : b;
}

std::optional<int64_t> Emitter::most_trips(const For& loop) const {
  return most_beyond(loop.begin, loop.end);
}

int64_t Emitter::work_of(std::span<const Stmt> stmts) const {
  int64_t work = 0;
  for (const Stmt& stmt : stmts) {
    const For* loop = std::get_if<For>(&stmt);
    if (loop == nullptr) {
      work += std::holds_alternative<Micro>(stmt)   ? kMicroWork
              : std::holds_alternative<Merge>(stmt) ? kUnknownTrips
                                                    : 1;
      continue;
    }
    // What polls itself is counted there.
    const int64_t most = most_trips(*loop).value_or(holds_loops(*loop) ? 1 : kUnknownTrips);
    const int64_t trips = std::clamp<int64_t>(most, 1, kUnknownTrips);
    work += loop->kind == ForKind::lane ? trips : trips * work_of(loop->body);
  }
  return std::min(work, kWorkUntilPoll);
}

int64_t Emitter::work_between_polls(const For& loop) const {
  const bool is_short = most_trips(loop).value_or(INT64_MAX) <= kFewTrips;
  return lanes() != nullptr || !holds_loops(loop) || is_short ? 0 : work_of(loop.body);
}

void Emitter::poll(int64_t work) {
  if (until_poll_ == nullptr) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_block_);
    until_poll_ = ops_.slot(b_.getInt64Ty());
    b_.CreateStore(b_.getInt64(kWorkUntilPoll), until_poll_);
  }
  llvm::BasicBlock* ask = block("poll");
  llvm::BasicBlock* leave = block("leave");
  llvm::BasicBlock* go_on = block("go_on");
  llvm::MDNode* rarely = llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1 << 20);
  Value* left = b_.CreateSub(b_.CreateLoad(b_.getInt64Ty(), until_poll_),
                             b_.getInt64(static_cast<uint64_t>(work)));
  b_.CreateStore(left, until_poll_);
  b_.CreateCondBr(b_.CreateICmpSLT(left, b_.getInt64(0)), ask, go_on, rarely);
  b_.SetInsertPoint(ask);
  b_.CreateStore(b_.getInt64(kWorkUntilPoll), until_poll_);
  auto* type = llvm::FunctionType::get(b_.getInt64Ty(), {}, false);
  Value* stops = b_.CreateCall(module_.getOrInsertFunction(kPollSymbol, type), {});
  b_.CreateCondBr(b_.CreateICmpNE(stops, b_.getInt64(0)), leave, go_on, rarely);
  b_.SetInsertPoint(leave);
  b_.CreateRet(b_.getInt64(static_cast<uint64_t>(-1)));
  b_.SetInsertPoint(go_on);
}

}  // namespace cermet::codegen
