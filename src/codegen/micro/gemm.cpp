// SPDX-License-Identifier: MIT
// A packed block of A times a packed block of B: for each panel of B, which stays in L1, all tiles
// of A. A tile of C stays in registers over the whole depth; each step of k loads
// one row of the panel and broadcasts one element of each row of A. A Local's elements lie at constant
// distances, so their addresses need no registers; a parameter's rows have a register each, and those
// past its end are its last one. bfloat16 operands are taken two values of k at a time, whose products one
// instruction adds up; an odd last value has a zero beside it.
#include <fmt/format.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

class GemmCode {
 public:
  GemmCode(const MicroTarget& target, const ir::GemmMicro& micro, Dtype packed,
           std::optional<int64_t> fixed_row, MicroFunction& f)
      : m_(micro),
        fixed_row_(fixed_row),
        group_(ir::group_of(packed)),
        lanes_(target.lanes()),
        vectors_(micro.tile_columns / lanes_),
        fma_(target.features.avx2 && is_floating(target.dtype)),
        f_(f),
        b_(f.builder()),
        packed_(group_ == 1 ? f.element() : b_.getInt16Ty()) {}

  void emit() {
    llvm::Value *c = f_.argument(0), *a = f_.argument(1), *b = f_.argument(2);
    llvm::Value *rows = f_.argument(3), *columns = f_.argument(4);
    llvm::Value* next_tile = b_.CreateMul(row(), f_.word(m_.tile_rows));
    f_.loop(columns, m_.tile_columns, {b}, [&](Value* j, const MicroValues& panel) -> MicroValues {
      Value* c_panel = f_.at(c, j);
      f_.loop(
          rows, m_.tile_rows, {c_panel, a}, [&](Value* i, const MicroValues& at) -> MicroValues {
            find_rows(b_.CreateSub(rows, i));
            tile(at[0], at[1], panel[0]);
            return {f_.at(at[0], m_.tile_rows * m_.c_row), b_.CreateGEP(packed_, at[1], next_tile)};
          });
      return {f_.at(packed_, panel[0], m_.b_panel)};
    });
  }

 private:
  using Value = llvm::Value;

  Value* product(Value* x, Value* y, Value* sum) {
    if (group_ == 2)
      return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {}, {sum, x, y});
    if (fma_) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
    return add(sum, multiply(x, y));
  }
  Value* row() { return fixed_row_ ? f_.word(*fixed_row_) : f_.argument(6); }
  Value* add_flag() { return f_.argument(7); }

  // Of a tile of which so many rows are left: where each begins.
  void find_rows(Value* left) {
    rows_.clear();
    Value* last = b_.CreateSub(left, f_.word(1));
    for (int64_t i = 0; i < m_.tile_rows; ++i) {
      Value* number = f_.word(i);
      if (!fixed_row_) number = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, number, last);
      rows_.push_back(b_.CreateMul(number, row()));
    }
  }

  bool floating() const { return f_.element()->isFloatingPointTy(); }
  Value* multiply(Value* x, Value* y) {
    return floating() ? b_.CreateFMul(x, y) : b_.CreateMul(x, y);
  }
  Value* add(Value* x, Value* y) { return floating() ? b_.CreateFAdd(x, y) : b_.CreateAdd(x, y); }

  void tile(Value* c, Value* a, Value* b) {
    llvm::Type* vector = f_.vector(lanes_);
    MicroValues carried = {a, b};
    carried.append(static_cast<size_t>(m_.tile_rows * vectors_),
                   llvm::Constant::getNullValue(vector));
    Value* depth = f_.argument(5);
    MicroValues sums =
        f_.loop(group_ == 1 ? depth : b_.CreateAShr(depth, f_.word(1)), 1, carried,
                [&](Value*, const MicroValues& in) { return step(in, packed_bits() * group_); });
    if (group_ == 2)
      sums = f_.loop(b_.CreateAnd(depth, f_.word(1)), 1, sums,
                     [&](Value*, const MicroValues& in) { return step(in, packed_bits()); });
    sums.erase(sums.begin(), sums.begin() + 2);
    f_.when(b_.CreateICmpNE(add_flag(), f_.word(0)), [&] { store(c, sums, true); });
    f_.when(b_.CreateICmpEQ(add_flag(), f_.word(0)), [&] { store(c, sums, false); });
  }

  unsigned packed_bits() const { return packed_->getScalarSizeInBits(); }

  // `bits` of a row of A as the other factor of a vector of B.
  Value* splat(Value* a, size_t i, unsigned bits) {
    llvm::Type* type = group_ == 1 ? packed_ : b_.getIntNTy(bits);
    Value* place = b_.CreateGEP(packed_, a, rows_[i]);
    Value* element = b_.CreateAlignedLoad(type, place, llvm::Align(packed_bits() / 8));
    if (group_ == 2) element = b_.CreateZExt(element, b_.getInt32Ty());
    if (lanes_ == 1) return element;
    Value* vector = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), element);
    return group_ == 1 ? vector : b_.CreateBitCast(vector, factor());
  }
  // A vector of B.
  llvm::Type* factor() {
    return group_ == 1 ? f_.vector(lanes_)
                       : with_width(b_.getBFloatTy(), static_cast<int>(group_ * lanes_));
  }

  // One k, or one group: in and out are the places in A and B, then the sums row by row.
  MicroValues step(const MicroValues& in, unsigned bits) {
    MicroValues out = {f_.at(packed_, in[0], m_.a_column),
                       f_.at(packed_, in[1], m_.tile_columns * group_)};
    MicroValues row;
    for (int64_t v = 0; v < vectors_; ++v)
      row.push_back(f_.load(factor(), f_.at(packed_, in[1], v * lanes_ * group_)));
    for (int64_t i = 0; i < m_.tile_rows; ++i) {
      Value* splat = this->splat(in[0], static_cast<size_t>(i), bits);
      for (int64_t v = 0; v < vectors_; ++v)
        out.push_back(product(splat, row[static_cast<size_t>(v)], in[out.size()]));
    }
    return out;
  }

  void store(Value* c, const MicroValues& sums, bool adds) {
    for (size_t s = 0; s < sums.size(); ++s) {
      const int64_t i = static_cast<int64_t>(s) / vectors_, v = static_cast<int64_t>(s) % vectors_;
      Value* place = f_.at(c, i * m_.c_row + v * lanes_);
      f_.store(adds ? add(f_.load(sums[s]->getType(), place), sums[s]) : sums[s], place);
    }
  }

  const ir::GemmMicro& m_;
  const std::optional<int64_t> fixed_row_;
  const unsigned group_;
  const int64_t lanes_, vectors_;
  const bool fma_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  llvm::Type* const packed_;
  MicroValues rows_;
};

}  // namespace

llvm::Function* gemm_function(const MicroTarget& target, const ir::GemmMicro& m, Dtype packed,
                              std::optional<int64_t> fixed_row) {
  const std::string name = fmt::format(
      "gemm_{}_{}x{}_{}_{}_{}_{}", name_of(packed), m.tile_rows, m.tile_columns,
      fixed_row ? fmt::to_string(*fixed_row) : "in_place", m.a_column, m.b_panel, m.c_row);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 3, 5);
  GemmCode(target, m, packed, fixed_row, f).emit();
  return f.finish();
}

}  // namespace cermet::codegen
