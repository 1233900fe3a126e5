// SPDX-License-Identifier: MIT
#include "codegen/llvm_prefetch.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr unsigned kIntoL1 = 3, kIntoL2 = 2;  // locality of a prefetch
constexpr int64_t kSoon = 2048;               // bytes
// Of streams from memory: so far on, L1 asks for more than the processor does unasked, where a vector is a line.
constexpr int64_t kStreamed = 8192, kFromMemory = 8 << 20;

}  // namespace

void LanePrefetches::find_ahead(const For& loop, Scope* home, Value* count, bool waits) {
  waits_ = waits;
  for (const Ahead& ahead : e_.ahead(loop)) {
    if (ahead.picked != nullptr) {
      find_picked(ahead, loop, count);
      continue;
    }
    const auto made = [&](const IndexTerm& term) { return e_.is_made(term.expr); };
    if (!std::ranges::all_of(*ahead.index, made)) continue;
    llvm::Type* type = e_.memory_type(ahead.buffer);
    Value* here = e_.address_at(ahead.variable, loop.begin, ahead.buffer, *ahead.index);
    Apart to{};
    e_.at(home, [&] {
      to = apart(ahead, loop, count);
      return to.usual;
    });
    Value* step = ahead.step == kUnit ? nullptr : e_.stride(ahead.step);
    if (to.soon != nullptr)
      fetched_.push_back({type, b_.CreateGEP(type, here, to.soon), nullptr, kIntoL1});
    if (to.usual == nullptr) continue;
    Value* pointer = is_zero(to.usual) ? here : b_.CreateGEP(type, here, to.usual);
    fetched_.push_back({type, pointer, step, ahead.at_once ? kIntoL1 : kIntoL2, to.halvings});
  }
}

LanePrefetches::Apart LanePrefetches::apart(const Ahead& ahead, const For& loop, Value* count) {
  Apart to{i64(0)};
  if (ahead.next_row != kNone) to.usual = distance(ahead);
  Value* step = ahead.step == kUnit ? nullptr : e_.stride(ahead.step);
  if (ahead.next_tile) to.usual = scaled(count, step);
  if (ahead.if_apart || ahead.streams) stream(ahead, loop, count, to);
  if (ahead.part != Ahead::Part::all) halve(ahead, count, to);
  return to;
}

// Of a row that is picked by number: the next one, or of short rows so many on as lie in a page, up to the last.
// Of few rows a number takes as long to look up as its row.
void LanePrefetches::find_picked(const Ahead& ahead, const For& loop, Value* count) {
  constexpr int64_t kFewBytes = 4096, kMostShift = 5, kManyBytes = 1 << 17;
  const AxisId axis = ahead.picked->axes[0];
  const int64_t bytes = bytes_of(ahead.buffer);
  Value* begin = e_.natural(loop.begin);
  e_.in_scope({}, [&](Scope&) {
    e_.bind_axis(ahead.variable, begin);
    Value* here = e_.address(ahead.buffer, *ahead.index);
    Value* many = b_.CreateICmpSGE(e_.elements_of(loop), i64(kManyBytes / bytes));
    const auto find = [&]() -> Values {
      const auto zeros = std::countl_zero(static_cast<uint64_t>(kFewBytes / bytes));
      Value* shift = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, count, b_.getFalse());
      shift = b_.CreateBinaryIntrinsic(llvm::Intrinsic::usub_sat, shift, i64(zeros));
      shift = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, shift, i64(kMostShift));
      Value* later = b_.CreateAdd(e_.axis(axis), b_.CreateShl(i64(1), shift));
      Value* last = b_.CreateSub(e_.rows_end(*ahead.picked), i64(1));
      later = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, later, last);
      std::map<ExprId, Value*> made;
      return {address_in({axis, later, made}, ahead.buffer, *ahead.index)};
    };
    Value* pointer = e_.when(many, {here}, find)[0];
    Value* step = ahead.step == kUnit ? nullptr : e_.stride(ahead.step);
    fetched_.push_back({e_.memory_type(ahead.buffer), pointer, step, kIntoL2});
  });
}

llvm::Value* LanePrefetches::address_in(const Round& round, BufferRef buffer, const Index& index) {
  Value* pointer = e_.element_zero(buffer);
  for (const IndexTerm& term : index) {
    Value* offset = value_in(round, term.expr);
    if (term.stride != kUnit) offset = b_.CreateMul(offset, e_.stride(term.stride));
    pointer = b_.CreateGEP(e_.memory_type(buffer), pointer, offset);
  }
  return pointer;
}

// What the expression, of those that Planner::look_up takes, is in another round.
llvm::Value* LanePrefetches::value_in(const Round& round, ExprId id) {
  if (const auto found = round.made.find(id); found != round.made.end()) return found->second;
  const Expr& e = e_.kernel()[id];
  Value* value = nullptr;
  if (e.kind == ExprKind::axis && e.id == round.axis) {
    value = round.at;
  } else if (e.kind == ExprKind::ref) {
    value = value_in(round, e_.behind(id));
  } else if (e.kind == ExprKind::load) {
    Value* pointer = address_in(round, e.buffer, e.index);
    value = e_.ops().from_memory(e.dtype, b_.CreateLoad(e_.memory_type(e.buffer), pointer));
  } else if (e.kind == ExprKind::op) {
    Values operands;
    for (ExprId operand : e.operands) operands.push_back(value_in(round, operand));
    const Dtype from = e_.kernel()[e.operands[e.code == Code::select ? 1 : 0]].dtype;
    value = e_.ops().op(e.code, e.dtype, from, operands);
  } else {
    value = e_.natural(id);
  }
  round.made[id] = value;
  return value;
}

void LanePrefetches::add_stream(BufferRef buffer, Value* first) {
  llvm::Type* type = e_.memory_type(buffer);
  Value* pointer = b_.CreateGEP(type, first, i64(kSoon / bytes_of(buffer)));
  fetched_.push_back({type, pointer, nullptr, kIntoL1});
}

void LanePrefetches::fetch(Value* k, int64_t within) {
  for (const Fetched& f : fetched_) {
    const int64_t bytes = within * static_cast<int64_t>(f.type->getScalarSizeInBits()) / 8;
    if (f.step == nullptr && bytes % static_cast<int64_t>(kLineBytes) != 0) continue;
    Value* at = f.halvings == nullptr || is_zero(k) ? k : b_.CreateLShr(k, f.halvings);
    at = scaled(at, f.step);
    prefetch(is_zero(at) ? f.pointer : b_.CreateGEP(f.type, f.pointer, at), f.locality);
  }
}

void LanePrefetches::into_l1(Value* pointer) { prefetch(pointer, kIntoL1); }

void LanePrefetches::stream(const Ahead& ahead, const For& loop, Value* count, Apart& to) {
  const int64_t bytes = bytes_of(ahead.buffer);
  Value *follows = b_.getTrue(), *next = std::exchange(to.usual, nullptr);
  if (ahead.if_apart) {
    Value* gap = b_.CreateSub(e_.stride(ahead.next_row), count);
    follows = b_.CreateICmpULE(gap, i64(kSoon / bytes));
    to.usual = b_.CreateSelect(follows, i64(0), next);
  }
  const bool by_lines = e_.ops().features().vector_bytes == kLineBytes;
  if (!ahead.streams || !(by_lines || ahead.if_apart)) return;
  Value* flows = b_.CreateICmpSGE(e_.elements_of(loop), i64(kFromMemory / bytes));
  to.soon = b_.CreateSelect(b_.CreateAnd(flows, follows), i64(kStreamed / bytes), i64(0));
}

// Half a row over the whole loop. What helps asks for its own row again where rows are short.
void LanePrefetches::halve(const Ahead& ahead, Value* count, Apart& to) {
  Value* is_long = b_.CreateICmpSGE(count, i64(kHalvedRow / bytes_of(ahead.buffer)));
  Value* half = to.usual;
  if (ahead.part == Ahead::Part::second_half)
    half = b_.CreateAdd(half, b_.CreateLShr(count, i64(1)));
  to.usual = b_.CreateSelect(is_long, half, ahead.helps ? i64(0) : to.usual);
  to.halvings = ahead.helps ? i64(1) : b_.CreateZExt(is_long, b_.getInt64Ty());
}

llvm::Value* LanePrefetches::scaled(Value* elements, Value* step) {
  return step == nullptr || is_zero(elements) ? elements : b_.CreateMul(elements, step);
}

// Elements from a row to the one that is fetched. Of rows up to kShortRow bytes, half to once kFewBytes.
llvm::Value* LanePrefetches::distance(const Ahead& ahead) {
  Value* stride = e_.stride(ahead.next_row);
  // Of the row itself what comes soon.
  Value* usual = ahead.rows == 0 && waits_ ? i64(kSoon / bytes_of(ahead.buffer))
                                           : b_.CreateMul(stride, i64(ahead.rows));
  if (!ahead.few_lines) return usual;
  constexpr int64_t kShortRow = 1024, kFewBytes = 4096;
  const int64_t bytes = bytes_of(ahead.buffer);
  Value* zeros = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, stride, b_.getFalse());
  const int64_t most = std::countl_zero(static_cast<uint64_t>(kFewBytes / bytes));
  Value* rows = b_.CreateSub(zeros, i64(most));
  Value* is_short = b_.CreateICmpULE(stride, i64(kShortRow / bytes));
  Value* few = b_.CreateShl(stride, rows);
  if (ahead.rows > 1) few = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, few, usual);
  return b_.CreateSelect(is_short, few, usual);
}

void LanePrefetches::prefetch(Value* pointer, unsigned locality) {
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                     {pointer, b_.getInt32(0), b_.getInt32(locality), b_.getInt32(1)});
}

}  // namespace cermet::codegen
