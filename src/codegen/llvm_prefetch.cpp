// SPDX-License-Identifier: MIT
#include "codegen/llvm_prefetch.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr unsigned kIntoL1 = 3, kIntoL2 = 2;  // locality of a prefetch

}  // namespace

void LanePrefetches::find_ahead(const For& loop, Value* begin, Value* count) {
  for (const Ahead& ahead : e_.ahead(loop)) {
    const auto made = [&](const IndexTerm& term) { return e_.is_made(term.expr); };
    if (!std::ranges::all_of(*ahead.index, made)) continue;
    e_.in_scope({}, [&](Scope&) {
      e_.bind_axis(ahead.variable, begin);
      llvm::Type* type = e_.memory_type(ahead.buffer);
      Value* const here = e_.address(ahead.buffer, *ahead.index);
      Value* pointer = here;
      if (ahead.next_row != kNone) pointer = b_.CreateGEP(type, pointer, rows_ahead(ahead));
      Value* step = ahead.step == kUnit ? nullptr : e_.stride(ahead.step);
      if (ahead.next_tile) pointer = b_.CreateGEP(type, pointer, scaled(count, step));
      fetched_.push_back({type, pointer, step, ahead.at_once ? kIntoL1 : kIntoL2});
      if (ahead.part != Ahead::Part::all) halve(ahead, count, here, fetched_.back());
    });
  }
}

void LanePrefetches::add_stream(BufferRef buffer, Value* first) {
  constexpr int64_t kSoon = 2048;  // bytes
  llvm::Type* type = e_.memory_type(buffer);
  Value* pointer = b_.CreateGEP(type, first, i64(kSoon / bytes_of(buffer)));
  fetched_.push_back({type, pointer, nullptr, kIntoL1});
}

void LanePrefetches::fetch(Value* k) {
  for (const Fetched& f : fetched_) {
    Value* at = f.halvings == nullptr || is_zero(k) ? k : b_.CreateLShr(k, f.halvings);
    at = scaled(at, f.step);
    prefetch(is_zero(at) ? f.pointer : b_.CreateGEP(f.type, f.pointer, at), f.locality);
  }
}

void LanePrefetches::into_l1(Value* pointer) { prefetch(pointer, kIntoL1); }

// Half a row over the whole loop. What helps asks for its own row again where rows are short.
void LanePrefetches::halve(const Ahead& ahead, Value* count, Value* here, Fetched& f) {
  Value* is_long = b_.CreateICmpSGE(count, i64(kHalvedRow / bytes_of(ahead.buffer)));
  Value* half = f.pointer;
  if (ahead.part == Ahead::Part::second_half)
    half = b_.CreateGEP(f.type, f.pointer, b_.CreateLShr(count, i64(1)));
  f.pointer = b_.CreateSelect(is_long, half, ahead.helps ? here : f.pointer);
  f.halvings = ahead.helps ? i64(1) : b_.CreateZExt(is_long, b_.getInt64Ty());
}

llvm::Value* LanePrefetches::scaled(Value* elements, Value* step) {
  return step == nullptr || is_zero(elements) ? elements : b_.CreateMul(elements, step);
}

// Elements from a row to the one that is fetched. Of rows up to kShortRow bytes, half to once kFewBytes.
llvm::Value* LanePrefetches::rows_ahead(const Ahead& ahead) {
  Value* stride = e_.stride(ahead.next_row);
  Value* usual = b_.CreateMul(stride, i64(ahead.rows));
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
