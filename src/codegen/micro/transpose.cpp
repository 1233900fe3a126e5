// SPDX-License-Identifier: MIT
// A transpose in registers. A vector takes, into each of its 16-byte parts, a piece of another row;
// the small transpose inside all parts at once then makes whole vectors of columns. Tiles go from one Local to
// another, or from array to array.
#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>

#include <functional>
#include <span>
#include <vector>

#include "codegen/llvm_emit.h"
#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

constexpr int kIntoL2 = 2;       // locality of a prefetch
constexpr int kFewColumns = 16;  // lines of L1 that may fall into one set

// Columns of `lanes` rows, as many at a time as are in a piece of 16 bytes.
class ColumnsCode {
 public:
  using Value = llvm::Value;
  // Where a row is.
  using Row = std::function<Value*(int)>;

  ColumnsCode(const MicroTarget& target, MicroFunction& f)
      : lanes_(static_cast<int>(target.lanes())),
        piece_(static_cast<int>(16 / size_of(target.dtype))),
        f_(f),
        b_(f.builder()) {}

  int lanes() const { return lanes_; }
  int piece() const { return piece_; }

  // Each round doubles the rows that lie side by side and halves the columns: first the lower ones of all
  // pairs, then the upper ones. So the columns end in the order of their numbers' reversed bits.
  MicroValues columns_of(const Row& row) {
    MicroValues vectors;
    for (int q = 0; q < piece_; ++q) vectors.push_back(pieces(row, q));
    for (int unit = 1; unit < piece_; unit *= 2) {
      MicroValues halves;
      for (const bool upper : {false, true})
        for (int q = 0; q < piece_; q += 2)
          halves.push_back(mixed(vectors[q], vectors[q + 1], unit, upper));
      vectors = halves;
    }
    MicroValues columns(vectors.size());
    for (int q = 0; q < piece_; ++q) {
      int column = 0;
      for (int bit = 1; bit < piece_; bit *= 2) column = 2 * column + ((q & bit) != 0 ? 1 : 0);
      columns[column] = vectors[q];
    }
    return columns;
  }

 private:
  // Row q of each group of `piece` rows.
  Value* pieces(const Row& row, int q) {
    MicroValues parts;
    for (int at = q; at < lanes_; at += piece_)
      parts.push_back(f_.load(f_.vector(piece_), row(at)));
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

  const int lanes_, piece_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
};

void emit_transpose(const MicroTarget& target, const ir::TransposeMicro& m, MicroFunction& f) {
  ColumnsCode code(target, f);
  llvm::Value *rows = f.argument(2), *columns = f.argument(3);
  f.loop(rows, code.lanes(), {}, [&](llvm::Value* i, const MicroValues&) -> MicroValues {
    llvm::Value* to = f.at(f.argument(0), i);
    llvm::Value* from = f.at(f.argument(1), f.builder().CreateMul(i, f.word(m.from_row)));
    f.loop(columns, code.piece(), {to, from},
           [&](llvm::Value*, const MicroValues& at) -> MicroValues {
             const MicroValues made =
                 code.columns_of([&](int row) { return f.at(at[1], row * m.from_row); });
             for (int q = 0; q < code.piece(); ++q) f.store(made[q], f.at(at[0], q * m.to_row));
             return {f.at(at[0], code.piece() * m.to_row), f.at(at[1], code.piece())};
           });
    return {};
  });
}

// Rows that make up a line of what is stored at a time. Where rows or columns are left over, the last of these
// are done again.
class TurnCode {
 public:
  TurnCode(const MicroTarget& target, MicroFunction& f)
      : code_(target, f),
        size_(static_cast<int>(size_of(target.dtype))),
        line_(static_cast<int>(ir::kTurnedRows) / size_),
        f_(f),
        b_(f.builder()) {}

  void emit() {
    Value *rows = f_.argument(3), *columns = f_.argument(4), *past = f_.argument(7);
    to_row_ = bytes_of(f_.argument(5)), from_row_ = bytes_of(f_.argument(6));
    ahead_ = b_.CreatePtrDiff(b_.getInt8Ty(), f_.argument(2), f_.argument(1));
    // All columns at a time, so that lines are read once; but of what stays in the cache as few as its sets hold.
    Value* is_past = b_.CreateICmpNE(past, f_.word(0));
    Value* few = least(columns, f_.word(std::min(line_, kFewColumns)));
    Value* width = b_.CreateSelect(is_past, columns, few);
    Value* strips = b_.CreateSDiv(b_.CreateAdd(columns, b_.CreateSub(width, f_.word(1))), width);
    f_.loop(strips, 1, {}, [&](Value* strip, const MicroValues&) -> MicroValues {
      Value* column = least(b_.CreateMul(strip, width), b_.CreateSub(columns, width));
      f_.loop(rows, line_, {}, [&](Value* i, const MicroValues&) -> MicroValues {
        Value* first = least(i, b_.CreateSub(rows, f_.word(line_)));
        Value* whole = b_.CreateAnd(is_past, b_.CreateICmpEQ(first, i));
        f_.when(whole, [&] { emit_rows(first, column, width, true); });
        f_.when(b_.CreateNot(whole), [&] { emit_rows(first, column, width, false); });
        return {};
      });
      return {};
    });
  }

 private:
  using Value = llvm::Value;
  static constexpr int kRows = 4;  // found from one pointer, by what an address can scale

  Value* least(Value* x, Value* y) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  Value* bytes_of(Value* elements) { return b_.CreateMul(elements, f_.word(size_)); }
  Value* moved(Value* pointer, Value* bytes) {
    return b_.CreateGEP(b_.getInt8Ty(), pointer, bytes);
  }
  // Row `number` from the pointers to every kRows-th.
  Value* row_at(std::span<Value* const> pointers, int number, Value* row, Value* three) {
    Value* pointer = pointers[number / kRows];
    switch (number % kRows) {
      case 0: return pointer;
      case 1: return moved(pointer, row);
      case 2: return moved(pointer, b_.CreateShl(row, 1));
      default: return moved(pointer, three);
    }
  }
  MicroValues every(Value* pointer, int count, Value* row) {
    MicroValues pointers = {pointer};
    for (int i = kRows; i < count; i += kRows)
      pointers.push_back(moved(pointers.back(), b_.CreateShl(row, 2)));
    return pointers;
  }

  void emit_rows(Value* first, Value* column, Value* columns, bool is_past) {
    const int piece = code_.piece();
    Value* to = moved(f_.at(f_.argument(0), first), b_.CreateMul(column, to_row_));
    Value* from = moved(f_.at(f_.argument(1), column), b_.CreateMul(first, from_row_));
    Value* three_to = b_.CreateMul(to_row_, f_.word(3));
    Value* three_from = b_.CreateMul(from_row_, f_.word(3));
    MicroValues carried = every(from, line_, from_row_);
    const size_t sources = carried.size();
    carried.append(every(to, piece, to_row_));
    f_.loop(columns, piece, carried, [&](Value* j, const MicroValues& at) -> MicroValues {
      const std::span<Value* const> all(at.data(), at.size());
      const auto rows = all.first(sources), targets = all.subspan(sources);
      fetch(b_.CreateAdd(column, j), rows[0], three_from);
      std::vector<MicroValues> made;
      for (int row = 0; row < line_; row += code_.lanes())
        made.push_back(
            code_.columns_of([&](int k) { return row_at(rows, row + k, from_row_, three_from); }));
      for (int q = 0; q < piece; ++q)
        for (size_t k = 0; k < made.size(); ++k)
          store(made[k][q],
                f_.at(row_at(targets, q, to_row_, three_to), static_cast<int>(k) * code_.lanes()),
                is_past);
      // The last piece ends with the columns.
      Value* left = b_.CreateSub(b_.CreateSub(columns, j), f_.word(2 * piece));
      Value* step = b_.CreateAdd(f_.word(piece), least(left, f_.word(0)));
      MicroValues next;
      for (Value* row : rows) next.push_back(f_.at(row, step));
      Value* over = b_.CreateMul(step, to_row_);
      for (Value* row : targets) next.push_back(moved(row, over));
      return next;
    });
  }

  // A line of each row of the next tile in as many rounds as take a line of this one.
  void fetch(Value* j, Value* from, Value* three) {
    const int piece = code_.piece(), rounds = static_cast<int>(kLineBytes) / 16;
    const int count = line_ / rounds;
    Value* round = b_.CreateAnd(b_.CreateSDiv(j, f_.word(piece)), f_.word(rounds - 1));
    Value* down = b_.CreateMul(b_.CreateMul(round, f_.word(count)), from_row_);
    const MicroValues rows = every(moved(moved(from, ahead_), down), count, from_row_);
    for (int row = 0; row < count; ++row)
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                         {row_at(rows, row, from_row_, three), b_.getInt32(0), b_.getInt32(kIntoL2),
                          b_.getInt32(1)});
  }

  void store(Value* value, Value* to, bool is_past) {
    if (is_past) f_.store_past(value, to);
    else f_.store(value, to);
  }

  ColumnsCode code_;
  const int size_, line_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  Value *to_row_ = nullptr, *from_row_ = nullptr, *ahead_ = nullptr;  // bytes
};

}  // namespace

llvm::Function* transpose_function(const MicroTarget& target, const ir::TransposeMicro& m) {
  const std::string name =
      fmt::format("transpose_{}_{}_{}", size_of(target.dtype), m.to_row, m.from_row);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 2, 2);
  emit_transpose(target, m, f);
  return f.finish();
}

llvm::Function* turn_function(const MicroTarget& target) {
  const std::string name = fmt::format("turn_{}", size_of(target.dtype));
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 3, 5);
  TurnCode(target, f).emit();
  return f.finish();
}

}  // namespace cermet::codegen
