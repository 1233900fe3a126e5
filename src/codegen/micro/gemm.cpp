// SPDX-License-Identifier: MIT
// A packed block of A times a packed block of B: for each panel of B, which stays in L1, all tiles
// of A. A tile of C stays in registers over the whole depth; each step of k loads
// one row of the panel and broadcasts one element of each row of A. A Local's elements lie at constant
// distances, so their addresses need no registers; a parameter's rows have a register each, and those
// past its end are its last one. Narrow operands are taken a group of k at a time, whose products one
// instruction adds up; a last group that is not whole has zeros beside it. What a zero point adds to a column
// is the same in all rows: sums start from less that. Of a B that is read where it lies, columns past its end are
// masked. What may come from beyond L2 is fetched into it before, where a processor does not do so itself: of an A along
// k that is read where it lies, or packed whole, the rows of the next tile; of a B packed whole, the next panel.
#include <fmt/format.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/micro/micro.h"
#include "codegen/prefetch.h"

namespace cermet::codegen {

namespace {

constexpr int64_t kFetchingTiles = 8;  // the first ones of a panel, which fetch the next one

class GemmCode {
 public:
  GemmCode(const MicroTarget& target, const ir::GemmMicro& micro, Dtype packed,
           std::optional<int64_t> fixed_row, FarOperands fetched, MicroFunction& f)
      : m_(micro),
        fixed_row_(fixed_row),
        group_(static_cast<unsigned>(ir::group_of(packed))),
        lanes_(target.lanes()),
        vectors_(micro.tile_columns / lanes_),
        fma_(target.features.avx2 && is_floating(target.dtype)),
        fetched_(fetched),
        dots_(target),
        a_signed_(packed != Dtype::int8),
        f_(f),
        b_(f.builder()),
        packed_(group_ == 1 ? f.element() : b_.getIntNTy(32 / group_)) {}

  void emit() {
    llvm::Value *c = f_.argument(0), *b = f_.argument(2), *columns = f_.argument(4);
    if (m_.b.local) {
      f_.loop(columns, m_.tile_columns, {b},
              [&](Value* j, const MicroValues& panel) -> MicroValues {
                this->panel(f_.at(c, j), panel[0]);
                return {f_.at(packed_, panel[0], m_.b_panel)};
              });
      return;
    }
    // A mask takes a slot of the units that multiply: whole panels have none.
    llvm::Value* left = b_.CreateSRem(columns, f_.word(m_.tile_columns));
    llvm::Value* whole = b_.CreateSub(columns, left);
    f_.loop(whole, m_.tile_columns, {}, [&](Value* j, const MicroValues&) -> MicroValues {
      this->panel(f_.at(c, j), f_.at(b, j));
      return {};
    });
    f_.when(b_.CreateICmpSGT(left, f_.word(0)), [&] {
      find_masks(left);
      this->panel(f_.at(c, whole), f_.at(b, whole));
    });
  }

 private:
  using Value = llvm::Value;

  // All tiles of A.
  void panel(Value* c, Value* b) {
    Value *a = f_.argument(1), *rows = f_.argument(3);
    next_tile_ = b_.CreateMul(row(), f_.word(m_.tile_rows));
    if (m_.a_zero != 0) find_starts(b);
    f_.loop(rows, m_.tile_rows, {c, a}, [&](Value* i, const MicroValues& at) -> MicroValues {
      find_rows(b_.CreateSub(rows, i));
      if (fetched_.b) find_next_panel(b, i);
      tile(at[0], at[1], b);
      return {f_.at(at[0], m_.tile_rows * m_.c_row), b_.CreateGEP(packed_, at[1], next_tile_)};
    });
  }

  Value* product(Value* x, Value* y, Value* sum) {
    if (group_ == 2 && floating())
      return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {}, {sum, x, y});
    if (group_ == 2) return dots_.of_int16(b_, sum, x, y);
    if (group_ == 4) return dots_.of_bytes(b_, sum, x, y, a_signed_, !a_signed_);
    if (fma_) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
    return add(sum, multiply(x, y));
  }
  Value* row() { return fixed_row_ ? f_.word(*fixed_row_) : f_.argument(6); }
  Value* b_row() { return m_.b.local ? f_.word(m_.tile_columns * group_) : f_.argument(7); }
  Value* add_flag() { return f_.argument(8); }

  // Of a panel of which so many columns are left.
  void find_masks(Value* left) {
    for (int64_t v = 0; v < vectors_; ++v) {
      Value* lanes = b_.CreateVectorSplat(static_cast<unsigned>(lanes_),
                                          b_.CreateSub(left, f_.word(v * lanes_)));
      Value* numbers = b_.CreateStepVector(lanes->getType());
      masks_.push_back(b_.CreateICmpSLT(numbers, lanes));
    }
  }
  Value* vector_of_b(Value* place, size_t v) {
    if (masks_.empty()) return f_.load(factor(), place);
    return b_.CreateMaskedLoad(factor(), place,
                               llvm::Align(f_.element()->getScalarSizeInBits() / 8), masks_[v],
                               llvm::Constant::getNullValue(factor()));
  }

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
    for (int64_t i = 0; i < m_.tile_rows; ++i)
      for (int64_t v = 0; v < vectors_; ++v)
        carried.push_back(m_.a_zero == 0 ? llvm::Constant::getNullValue(vector)
                                         : f_.load(vector, f_.at(starts_, v * lanes_)));
    const bool fetches = fetched_.a || fetched_.b;
    MicroValues sums = fetches ? fetching_steps(carried) : steps(groups(), carried);
    if (group_ == 2)
      sums = f_.loop(b_.CreateAnd(f_.argument(5), f_.word(1)), 1, sums,
                     [&](Value*, const MicroValues& in) { return step(in, packed_bits()); });
    sums.erase(sums.begin(), sums.begin() + 2);
    f_.when(b_.CreateICmpNE(add_flag(), f_.word(0)), [&] { store(c, sums, true); });
    f_.when(b_.CreateICmpEQ(add_flag(), f_.word(0)), [&] { store(c, sums, false); });
  }

  MicroValues steps(Value* count, const MicroValues& carried) {
    return f_.loop(count, 1, carried,
                   [&](Value*, const MicroValues& in) { return step(in, packed_bits() * group_); });
  }
  // The part of the next panel that the tile from row i on fetches; tiles past those that do fetch the first one again.
  void find_next_panel(Value* b, Value* i) {
    Value* tile = b_.CreateUDiv(i, f_.word(m_.tile_rows));
    Value* fetches = b_.CreateICmpSLT(tile, f_.word(kFetchingTiles));
    Value* number = b_.CreateSelect(fetches, tile, f_.word(0));
    Value* skipped = b_.CreateMul(b_.CreateMul(number, groups()), f_.word(fetched_of_b()));
    next_panel_ = b_.CreateGEP(packed_, f_.at(packed_, b, m_.b_panel), skipped);
  }
  int64_t fetched_of_b() const { return m_.tile_columns / kFetchingTiles; }  // with each k
  void fetch(Value* place) {
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {place->getType()},
                       {place, b_.getInt32(0), b_.getInt32(2), b_.getInt32(1)});
  }
  // The same, a line of a row of A at a time.
  MicroValues fetching_steps(const MicroValues& carried) {
    const auto line = static_cast<int64_t>(kLineBytes * 8 / packed_bits());
    return f_.loop(groups(), line, carried, [&](Value* k, const MicroValues& in) {
      if (fetched_.a)
        for (Value* row : rows_)
          fetch(b_.CreateGEP(packed_, b_.CreateGEP(packed_, in[0], next_tile_), row));
      if (fetched_.b) {
        Value* next = b_.CreateGEP(packed_, next_panel_, b_.CreateMul(k, f_.word(fetched_of_b())));
        for (int64_t at = 0; at < line * fetched_of_b(); at += line)
          fetch(f_.at(packed_, next, at));
      }
      Value* left = b_.CreateSub(groups(), k);
      return steps(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, f_.word(line)), in);
    });
  }

  // Of bytes the last one may be in part: A is a Local there, and B is 0.
  Value* groups() {
    Value* depth = f_.argument(5);
    if (group_ == 4) depth = b_.CreateAdd(depth, f_.word(group_ - 1));
    return group_ == 1 ? depth : b_.CreateAShr(depth, f_.word(group_ / 2));
  }

  // Of the columns of a panel: -a_zero · Σ b.
  void find_starts(Value* panel) {
    llvm::Type* vector = f_.vector(lanes_);
    if (starts_ == nullptr) {
      llvm::IRBuilder<> entry(&*b_.GetInsertBlock()->getParent()->getEntryBlock().begin());
      starts_ = entry.CreateAlloca(llvm::ArrayType::get(f_.element(), m_.tile_columns), nullptr,
                                   "starts");
    }
    Value* zeros = llvm::ConstantInt::get(b_.getInt32Ty(), m_.a_zero * 0x01010101);
    zeros = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), zeros);
    MicroValues carried = {panel};
    carried.append(static_cast<size_t>(vectors_), llvm::Constant::getNullValue(vector));
    const MicroValues sums =
        f_.loop(groups(), 1, carried, [&](Value*, const MicroValues& in) -> MicroValues {
          MicroValues out = {f_.at(packed_, in[0], m_.tile_columns * group_)};
          for (int64_t v = 0; v < vectors_; ++v) {
            Value* b = f_.load(factor(), f_.at(packed_, in[0], v * lanes_ * group_));
            out.push_back(product(zeros, b, in[out.size()]));
          }
          return out;
        });
    for (int64_t v = 0; v < vectors_; ++v)
      f_.store(b_.CreateNeg(sums[static_cast<size_t>(v + 1)]), f_.at(starts_, v * lanes_));
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
    return b_.CreateBitCast(vector, factor());
  }
  // A vector of B; groups of integers are lanes of 4 bytes.
  llvm::Type* factor() {
    return group_ == 1 || !floating()
               ? f_.vector(lanes_)
               : with_width(b_.getBFloatTy(), static_cast<int>(group_ * lanes_));
  }

  // One k, or one group: in and out are the places in A and B, then the sums row by row.
  MicroValues step(const MicroValues& in, unsigned bits) {
    MicroValues out = {f_.at(packed_, in[0], m_.a_column), b_.CreateGEP(packed_, in[1], b_row())};
    MicroValues row;
    for (int64_t v = 0; v < vectors_; ++v)
      row.push_back(
          vector_of_b(f_.at(packed_, in[1], v * lanes_ * group_), static_cast<size_t>(v)));
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
  const FarOperands fetched_;
  const Dots dots_;
  const bool a_signed_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  llvm::Type* const packed_;
  MicroValues rows_, masks_;
  Value* next_tile_ = nullptr;   // of A, from one to the next
  Value* next_panel_ = nullptr;  // where what a tile fetches of it begins
  Value* starts_ = nullptr;      // of a panel's sums
};

}  // namespace

llvm::Function* gemm_function(const MicroTarget& target, const ir::GemmMicro& m, Dtype packed,
                              std::optional<int64_t> fixed_row, FarOperands far) {
  const bool fetches = target.features.fetches_far && ir::group_of(packed) == 1;
  const FarOperands fetched = {fetches && far.a && m.a_column == 1, fetches && far.b};
  const std::string name =
      fmt::format("gemm_{}_{}x{}_{}_{}_{}_{}_{}{}{}", name_of(packed), m.tile_rows, m.tile_columns,
                  fixed_row ? fmt::to_string(*fixed_row) : "in_place", m.a_column,
                  m.b.local ? fmt::to_string(m.b_panel) : "in_place", m.c_row, m.a_zero,
                  fetched.a ? "_fetching_a" : "", fetched.b ? "_fetching_b" : "");
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 3, 6);
  GemmCode(target, m, packed, fixed_row, fetched, f).emit();
  return f.finish();
}

}  // namespace cermet::codegen
