// SPDX-License-Identifier: MIT
// A packed block of A times a packed block of B: for each panel of B, which stays in L1, all tiles
// of A. A tile of C stays in registers over the whole depth; each step of k loads
// one row of the panel and broadcasts one element of each row of A. A Local's elements lie at constant
// distances, so their addresses need no registers; a parameter's rows have a register each, and those
// past its end are its last one.
#include <fmt/format.h>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

class GemmCode {
 public:
  GemmCode(const MicroTarget& target, const ir::GemmMicro& micro, std::optional<int64_t> fixed_row,
           MicroFunction& f)
      : m_(micro),
        fixed_row_(fixed_row),
        lanes_(target.lanes()),
        vectors_(micro.tile_columns / lanes_),
        fma_(target.features.avx2 && is_floating(target.dtype)),
        f_(f),
        b_(f.builder()) {}

  void emit() {
    llvm::Value *c = f_.argument(0), *a = f_.argument(1), *b = f_.argument(2);
    llvm::Value *rows = f_.argument(3), *columns = f_.argument(4);
    llvm::Value* next_tile = b_.CreateMul(row(), f_.word(m_.tile_rows));
    f_.loop(columns, m_.tile_columns, {b}, [&](Value* j, const MicroValues& panel) -> MicroValues {
      Value* c_panel = f_.at(c, j);
      f_.loop(rows, m_.tile_rows, {c_panel, a},
              [&](Value* i, const MicroValues& at) -> MicroValues {
                find_rows(b_.CreateSub(rows, i));
                tile(at[0], at[1], panel[0]);
                return {f_.at(at[0], m_.tile_rows * m_.c_row), f_.at(at[1], next_tile)};
              });
      return {f_.at(panel[0], m_.b_panel)};
    });
  }

 private:
  using Value = llvm::Value;

  Value* product(Value* x, Value* y, Value* sum) {
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
    MicroValues sums = f_.loop(f_.argument(5), 1, carried,
                               [&](Value*, const MicroValues& in) { return step(in); });
    sums.erase(sums.begin(), sums.begin() + 2);
    f_.when(b_.CreateICmpNE(add_flag(), f_.word(0)), [&] { store(c, sums, true); });
    f_.when(b_.CreateICmpEQ(add_flag(), f_.word(0)), [&] { store(c, sums, false); });
  }

  // One k: in and out are the places in A and B, then the sums row by row.
  MicroValues step(const MicroValues& in) {
    MicroValues out = {f_.at(in[0], m_.a_column), f_.at(in[1], m_.tile_columns)};
    MicroValues row;
    for (int64_t v = 0; v < vectors_; ++v)
      row.push_back(f_.load(f_.vector(lanes_), f_.at(in[1], v * lanes_)));
    for (int64_t i = 0; i < m_.tile_rows; ++i) {
      Value* element = f_.load(f_.element(), f_.at(in[0], rows_[static_cast<size_t>(i)]));
      Value* splat =
          lanes_ == 1 ? element : b_.CreateVectorSplat(static_cast<unsigned>(lanes_), element);
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
  const int64_t lanes_, vectors_;
  const bool fma_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  MicroValues rows_;
};

}  // namespace

llvm::Function* gemm_function(const MicroTarget& target, const ir::GemmMicro& m,
                              std::optional<int64_t> fixed_row) {
  const std::string name = fmt::format(
      "gemm_{}_{}x{}_{}_{}_{}_{}", name_of(target.dtype), m.tile_rows, m.tile_columns,
      fixed_row ? fmt::to_string(*fixed_row) : "in_place", m.a_column, m.b_panel, m.c_row);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 3, 5);
  GemmCode(target, m, fixed_row, f).emit();
  return f.finish();
}

}  // namespace cermet::codegen
