// SPDX-License-Identifier: MIT
// Pointers a run-time distance apart, found from few registers: an address scales what it adds.
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/IRBuilder.h>

#include <span>

namespace cermet::codegen {

class RowPointers {
 public:
  using Value = llvm::Value;
  static constexpr int kRows = 4;  // found from one pointer

  // row: the distance in bytes, i64.
  RowPointers(llvm::IRBuilder<>& b, Value* row)
      : b_(b), row_(row), three_(b.CreateMul(row, b.getInt64(3))) {}

  // Every kRows-th of `count` rows.
  llvm::SmallVector<Value*, 32> every(Value* pointer, int count) {
    llvm::SmallVector<Value*, 32> pointers = {pointer};
    for (int i = kRows; i < count; i += kRows)
      pointers.push_back(moved(pointers.back(), b_.CreateShl(row_, 2)));
    return pointers;
  }
  // Row `number` from these.
  Value* at(std::span<Value* const> pointers, int number) {
    Value* pointer = pointers[number / kRows];
    switch (number % kRows) {
      case 0: return pointer;
      case 1: return moved(pointer, row_);
      case 2: return moved(pointer, b_.CreateShl(row_, 1));
      default: return moved(pointer, three_);
    }
  }
  Value* moved(Value* pointer, Value* bytes) {
    return b_.CreateGEP(b_.getInt8Ty(), pointer, bytes);
  }

 private:
  llvm::IRBuilder<>& b_;
  Value *row_, *three_;
};

}  // namespace cermet::codegen
