// SPDX-License-Identifier: MIT
// A transpose in registers. A vector takes, into each of its 16-byte parts, a piece of another row;
// the small transpose inside all parts at once then makes whole vectors of columns.
#include <fmt/format.h>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

class TransposeCode {
 public:
  TransposeCode(const MicroTarget& target, const ir::TransposeMicro& micro, MicroFunction& f)
      : m_(micro),
        lanes_(static_cast<int>(target.lanes())),
        piece_(static_cast<int>(16 / size_of(target.dtype))),
        f_(f),
        b_(f.builder()) {}

  void emit() {
    Value *rows = f_.argument(2), *columns = f_.argument(3);
    f_.loop(rows, lanes_, {}, [&](Value* i, const MicroValues&) -> MicroValues {
      Value* to = f_.at(f_.argument(0), i);
      Value* from = f_.at(f_.argument(1), b_.CreateMul(i, f_.word(m_.from_row)));
      f_.loop(columns, piece_, {to, from}, [&](Value*, const MicroValues& at) -> MicroValues {
        columns_of(at[0], at[1]);
        return {f_.at(at[0], piece_ * m_.to_row), f_.at(at[1], piece_)};
      });
      return {};
    });
  }

 private:
  using Value = llvm::Value;

  // Each round doubles the rows that lie side by side and halves the columns: first the lower ones of all
  // pairs, then the upper ones. So the columns end in the order of their numbers' reversed bits.
  void columns_of(Value* to, Value* from) {
    MicroValues vectors;
    for (int q = 0; q < piece_; ++q) vectors.push_back(pieces(from, q));
    for (int unit = 1; unit < piece_; unit *= 2) {
      MicroValues halves;
      for (const bool upper : {false, true})
        for (int q = 0; q < piece_; q += 2)
          halves.push_back(mixed(vectors[q], vectors[q + 1], unit, upper));
      vectors = halves;
    }
    for (int q = 0; q < piece_; ++q) {
      int column = 0;
      for (int bit = 1; bit < piece_; bit *= 2) column = 2 * column + ((q & bit) != 0 ? 1 : 0);
      f_.store(vectors[q], f_.at(to, column * m_.to_row));
    }
  }

  // Row q of each group of `piece` rows.
  Value* pieces(Value* from, int q) {
    MicroValues parts;
    for (int row = q; row < lanes_; row += piece_)
      parts.push_back(f_.load(f_.vector(piece_), f_.at(from, row * m_.from_row)));
    while (parts.size() > 1) {
      MicroValues joined;
      for (size_t i = 0; i < parts.size(); i += 2) joined.push_back(join(parts[i], parts[i + 1]));
      parts = joined;
    }
    return parts[0];
  }

  Value* join(Value* a, Value* b) {
    llvm::SmallVector<int, 32> lanes;
    for (int i = 0; i < 2 * width_of(a); ++i) lanes.push_back(i);
    return b_.CreateShuffleVector(a, b, lanes);
  }

  // In each part, the units of the lower (upper) half of a and b in turn: one unpack instruction.
  Value* mixed(Value* a, Value* b, int unit, bool upper) {
    llvm::SmallVector<int, 64> lanes;
    for (int part = 0; part < lanes_; part += piece_)
      for (int i = 0; i < piece_; ++i) {
        // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a piece has 2 elements or more
        const int pair = i / (2 * unit), second = i / unit % 2;
        lanes.push_back(part + (upper ? piece_ / 2 : 0) + pair * unit + i % unit + second * lanes_);
      }
    return b_.CreateShuffleVector(a, b, lanes);
  }

  const ir::TransposeMicro& m_;
  const int lanes_, piece_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
};

}  // namespace

llvm::Function* transpose_function(const MicroTarget& target, const ir::TransposeMicro& m) {
  const std::string name =
      fmt::format("transpose_{}_{}_{}", size_of(target.dtype), m.to_row, m.from_row);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 2, 2);
  TransposeCode(target, m, f).emit();
  return f.finish();
}

}  // namespace cermet::codegen
