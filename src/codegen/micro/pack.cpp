// SPDX-License-Identifier: MIT
// Rows of a matrix into panels: each row, or group of rows, in pieces of whole tiles, then what is left of
// it. A unit is what a group has in a column.
#include <fmt/format.h>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

class PackCode {
 public:
  PackCode(const MicroTarget& target, const ir::PackMicro& micro, MicroFunction& f)
      : m_(micro),
        group_(ir::group_of(target.dtype)),
        lanes_(std::max<int64_t>(1, target.lanes() / group_)),
        f_(f),
        b_(f.builder()),
        unit_(group_ == 1 ? f.element() : b_.getInt32Ty()) {}

  void emit() {
    Value* count = f_.argument(2);
    MicroValues at = {f_.argument(0), f_.argument(1)};
    at = rows(b_.CreateAnd(count, f_.word(-group_)), group_, at);
    Value* rest = b_.CreateAnd(count, f_.word(group_ - 1));
    for (int64_t left = 1; left < group_; ++left)
      rows(b_.CreateSelect(b_.CreateICmpEQ(rest, f_.word(left)), f_.word(1), f_.word(0)), left, at);
  }

 private:
  using Value = llvm::Value;

  // `count` rows, `step` at a time.
  MicroValues rows(Value* count, int64_t step, const MicroValues& begin) {
    Value* columns = f_.argument(3);
    Value* rest = b_.CreateURem(columns, f_.word(m_.tile_columns));
    Value* tiles = b_.CreateSub(columns, rest);
    Value* vectors = b_.CreateAnd(rest, f_.word(-lanes_));
    Value* elements = b_.CreateSub(rest, vectors);
    Value* next = b_.CreateMul(f_.argument(4), f_.word(step));
    return f_.loop(count, step, begin, [&](Value*, const MicroValues& row) -> MicroValues {
      MicroValues at = copy(tiles, m_.tile_columns, row, m_.to_panel / group_, step);
      at = copy(vectors, lanes_, at, lanes_, step);
      copy(elements, 1, at, 1, step);
      return {f_.at(unit_, row[0], m_.tile_columns), f_.at(row[1], next)};
    });
  }

  // Units of `step` rows; what a group has no row for is 0.
  Value* units(int64_t width, Value* from, int64_t step) {
    Value* low = f_.load(f_.vector(width), from);
    if (group_ == 1) return low;
    llvm::Type* type = with_width(unit_, static_cast<int>(width));
    Value* all = b_.CreateZExt(low, type);
    for (int64_t row = 1; row < step; ++row) {
      from = f_.at(from, f_.argument(4));
      Value* more = b_.CreateZExt(f_.load(f_.vector(width), from), type);
      all = b_.CreateOr(all, b_.CreateShl(more, static_cast<uint64_t>(32 / group_ * row)));
    }
    return all;
  }

  // `count` columns, `piece` at a time, that lie `to_piece` units apart in the target.
  MicroValues copy(Value* count, int64_t piece, const MicroValues& begin, int64_t to_piece,
                   int64_t step) {
    const int64_t width = std::min(piece, lanes_);
    return f_.loop(count, piece, begin, [&](Value*, const MicroValues& at) -> MicroValues {
      MicroValues values;
      for (int64_t j = 0; j < piece; j += width)
        values.push_back(units(width, f_.at(at[1], j), step));
      for (int64_t j = 0; j < piece; j += width)
        f_.store(values[static_cast<size_t>(j / width)], f_.at(unit_, at[0], j));
      return {f_.at(unit_, at[0], to_piece), f_.at(at[1], piece)};
    });
  }

  const ir::PackMicro& m_;
  const int64_t group_, lanes_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  llvm::Type* const unit_;
};

}  // namespace

llvm::Function* pack_function(const MicroTarget& target, const ir::PackMicro& m) {
  const std::string name =
      fmt::format("pack_{}_{}_{}", name_of(target.dtype), m.tile_columns, m.to_panel);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 2, 3);
  PackCode(target, m, f).emit();
  return f.finish();
}

}  // namespace cermet::codegen
