// SPDX-License-Identifier: MIT
// A transpose in registers. A vector takes, into each of its 16-byte parts, a piece of another row;
// the small transpose inside all parts at once then makes whole vectors of columns. Tiles go from one Local to
// another, or from an array to another or to a Local.
#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>

#include <functional>
#include <span>
#include <vector>

#include "codegen/llvm_emit.h"
#include "codegen/llvm_row_pointers.h"
#include "codegen/micro/micro.h"
#include "codegen/micro/transposed.h"

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

  MicroValues columns_of(const Row& row) {
    MicroValues vectors;
    for (int q = 0; q < piece_; ++q) vectors.push_back(pieces(row, q));
    return transposed_parts(b_, std::move(vectors));
  }

  // Part `number` of a vector.
  Value* part(Value* vector, int number) {
    llvm::SmallVector<int, 16> lanes;
    for (int i = 0; i < piece_; ++i) lanes.push_back(number * piece_ + i);
    return b_.CreateShuffleVector(vector, lanes);
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
  TurnCode(const MicroTarget& target, MicroFunction& f, bool into_local)
      : into_local_(into_local),
        code_(target, f),
        size_(static_cast<int>(size_of(target.dtype))),
        line_(static_cast<int>(ir::kTurnedRows) / size_),
        f_(f),
        b_(f.builder()) {}

  void emit() {
    Value *columns = f_.argument(4), *past = f_.argument(7);
    to_row_ = bytes_of(f_.argument(5)), from_row_ = bytes_of(f_.argument(6));
    ahead_ = b_.CreatePtrDiff(b_.getInt8Ty(), f_.argument(2), f_.argument(1));
    // All columns at a time, so that lines are read once; but of an array that stays in the cache as few as its
    // sets hold.
    if (into_local_) return emit_strip(f_.word(0), columns, nullptr);
    Value* is_past = b_.CreateICmpNE(past, f_.word(0));
    Value* few = least(columns, f_.word(std::min(line_, kFewColumns)));
    Value* width = b_.CreateSelect(is_past, columns, few);
    Value* strips = b_.CreateSDiv(b_.CreateAdd(columns, b_.CreateSub(width, f_.word(1))), width);
    f_.loop(strips, 1, {}, [&](Value* strip, const MicroValues&) -> MicroValues {
      emit_strip(least(b_.CreateMul(strip, width), b_.CreateSub(columns, width)), width, is_past);
      return {};
    });
  }

 private:
  using Value = llvm::Value;

  Value* least(Value* x, Value* y) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  Value* bytes_of(Value* elements) { return b_.CreateMul(elements, f_.word(size_)); }
  Value* moved(Value* pointer, Value* bytes) {
    return b_.CreateGEP(b_.getInt8Ty(), pointer, bytes);
  }

  // is_past: null for never.
  void emit_strip(Value* column, Value* width, Value* is_past) {
    Value* rows = f_.argument(3);
    f_.loop(rows, line_, {}, [&](Value* i, const MicroValues&) -> MicroValues {
      Value* first = least(i, b_.CreateSub(rows, f_.word(line_)));
      if (is_past == nullptr) {
        emit_rows(first, column, width, false);
        return {};
      }
      Value* whole = b_.CreateAnd(is_past, b_.CreateICmpEQ(first, i));
      f_.when(whole, [&] { emit_rows(first, column, width, true); });
      f_.when(b_.CreateNot(whole), [&] { emit_rows(first, column, width, false); });
      return {};
    });
  }

  void emit_rows(Value* first, Value* column, Value* columns, bool is_past) {
    const int piece = code_.piece();
    Value* to = moved(f_.at(f_.argument(0), first), b_.CreateMul(column, to_row_));
    Value* from = moved(f_.at(f_.argument(1), column), b_.CreateMul(first, from_row_));
    RowPointers of_from(b_, from_row_), of_to(b_, to_row_);
    MicroValues carried = of_from.every(from, line_);
    const size_t sources = carried.size();
    carried.append(of_to.every(to, piece));
    f_.loop(columns, piece, carried, [&](Value* j, const MicroValues& at) -> MicroValues {
      const std::span<Value* const> all(at.data(), at.size());
      const auto rows = all.first(sources), targets = all.subspan(sources);
      fetch(b_.CreateAdd(column, j), rows[0], of_from);
      std::vector<MicroValues> made;
      for (int row = 0; row < line_; row += code_.lanes())
        made.push_back(code_.columns_of([&](int k) { return of_from.at(rows, row + k); }));
      for (int q = 0; q < piece; ++q)
        for (size_t k = 0; k < made.size(); ++k)
          store(made[k][q], f_.at(of_to.at(targets, q), static_cast<int>(k) * code_.lanes()),
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
  void fetch(Value* j, Value* from, RowPointers& of_from) {
    const int piece = code_.piece(), rounds = static_cast<int>(kLineBytes) / 16;
    const int count = line_ / rounds;
    Value* round = b_.CreateAnd(b_.CreateSDiv(j, f_.word(piece)), f_.word(rounds - 1));
    Value* down = b_.CreateMul(b_.CreateMul(round, f_.word(count)), from_row_);
    const MicroValues rows = of_from.every(moved(moved(from, ahead_), down), count);
    for (int row = 0; row < count; ++row)
      b_.CreateIntrinsic(
          llvm::Intrinsic::prefetch, {b_.getPtrTy()},
          {of_from.at(rows, row), b_.getInt32(0), b_.getInt32(kIntoL2), b_.getInt32(1)});
  }

  void store(Value* value, Value* to, bool is_past) {
    if (is_past) f_.store_past(value, to);
    else f_.store(value, to);
  }

  const bool into_local_;
  ColumnsCode code_;
  const int size_, line_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  Value *to_row_ = nullptr, *from_row_ = nullptr, *ahead_ = nullptr;  // bytes
};

// Vectors of rows. They are read past their ends, in what is left of the array, by whole pieces; written they
// are together, one behind the other. What does not lie so goes element by element.
class RowsCode {
 public:
  RowsCode(const MicroTarget& target, const ir::RowsMicro& m, MicroFunction& f)
      : code_(target, f),
        pitch_(m.pitch),
        size_(static_cast<int64_t>(size_of(target.dtype))),
        f_(f),
        b_(f.builder()),
        rows_(f.argument(2)),
        columns_(f.argument(3)),
        row_(f.argument(4)) {}

  void emit_in() {
    Value* local = f_.argument(0);
    Value* last = b_.CreateSub(rows_, f_.word(1));
    Value* up = b_.CreateAdd(rows_, f_.word(ir::kShortRows - 1));
    Value* filled = b_.CreateAnd(up, f_.word(-ir::kShortRows));
    f_.loop(filled, code_.lanes(), {}, [&](Value* i, const MicroValues&) -> MicroValues {
      Value* past = b_.CreateAdd(i, f_.word(code_.lanes()));
      Value* reach = b_.CreateAdd(b_.CreateMul(b_.CreateSub(past, f_.word(1)), row_), whole());
      Value* fits = b_.CreateAnd(b_.CreateICmpSLE(past, rows_),
                                 b_.CreateAnd(b_.CreateICmpSGE(row_, f_.word(0)),
                                              b_.CreateICmpSLE(reach, f_.argument(5))));
      f_.when(fits, [&] { read_vectors(i); });
      f_.when(b_.CreateNot(fits), [&] {
        f_.loop(f_.word(code_.lanes()), 1, {}, [&](Value* k, const MicroValues&) -> MicroValues {
          Value* number = b_.CreateAdd(i, k);
          Value* from = array_row(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, number, last));
          each_column([&](Value* j) {
            f_.store(f_.load(f_.element(), f_.at(from, j)), f_.at(column(local, j), number));
          });
          return {};
        });
      });
      return {};
    });
  }

  // Pieces of many rows, before they are loaded as vectors: what was stored just now in other sizes has to reach the
  // cache first.
  void emit_out() {
    Value* local = f_.argument(0);
    llvm::Value* made = b_.CreateAlloca(
        b_.getInt8Ty(), f_.word(ir::kShortColumns * ir::kShortRows * size_ + 16), "rows");
    llvm::cast<llvm::AllocaInst>(made)->setAlignment(llvm::Align(64));
    f_.loop(rows_, ir::kShortRows, {}, [&](Value* i, const MicroValues&) -> MicroValues {
      Value* past = b_.CreateAdd(i, f_.word(ir::kShortRows));
      Value* fits = b_.CreateAnd(b_.CreateICmpSLE(past, rows_), b_.CreateICmpEQ(row_, columns_));
      f_.when(fits, [&] {
        f_.loop(f_.word(ir::kShortRows), code_.lanes(), {}, [&](Value* k, const MicroValues&) {
          write_pieces(f_.at(made, b_.CreateMul(k, columns_)), b_.CreateAdd(i, k));
          return MicroValues();
        });
        Value* goes_past = b_.CreateICmpNE(f_.argument(5), f_.word(0));
        f_.when(goes_past, [&] { copy(made, array_row(i), true); });
        f_.when(b_.CreateNot(goes_past), [&] { copy(made, array_row(i), false); });
      });
      f_.when(b_.CreateNot(fits), [&] {
        Value* end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, past, rows_);
        f_.loop(b_.CreateSub(end, i), 1, {}, [&](Value* k, const MicroValues&) -> MicroValues {
          Value* number = b_.CreateAdd(i, k);
          Value* to = array_row(number);
          each_column([&](Value* j) {
            f_.store(f_.load(f_.element(), f_.at(column(local, j), number)), f_.at(to, j));
          });
          return {};
        });
      });
      return {};
    });
  }

 private:
  using Value = llvm::Value;

  // The columns, up to whole pieces.
  Value* whole() {
    Value* up = b_.CreateAdd(columns_, f_.word(code_.piece() - 1));
    return b_.CreateAnd(up, f_.word(-code_.piece()));
  }
  Value* array_row(Value* i) { return f_.at(f_.argument(1), b_.CreateMul(i, row_)); }
  Value* column(Value* local, Value* j) { return f_.at(local, b_.CreateMul(j, f_.word(pitch_))); }
  template <typename F>
  void each_column(F&& f) {
    f_.loop(columns_, 1, {}, [&](Value* j, const MicroValues&) -> MicroValues {
      f(j);
      return {};
    });
  }

  // Meanwhile what lies kShortRows on, as of the next call, if the rows follow each other.
  void read_vectors(Value* i) {
    RowPointers of_row(b_, b_.CreateMul(row_, f_.word(size_)));
    Value* first = array_row(i);
    Value* ahead = b_.CreateMul(row_, f_.word(ir::kShortRows));
    ahead = b_.CreateSelect(b_.CreateICmpEQ(row_, columns_), ahead, f_.word(0));
    Value* next_rows = f_.at(first, ahead);
    MicroValues carried = of_row.every(first, code_.lanes());
    carried.push_back(f_.at(f_.argument(0), i));
    f_.loop(columns_, code_.piece(), carried, [&](Value* j, const MicroValues& at) -> MicroValues {
      const auto rows = std::span<Value* const>(at.data(), at.size() - 1);
      Value* fetched = f_.at(next_rows, b_.CreateMul(j, f_.word(code_.lanes())));
      const int64_t elements = static_cast<int64_t>(kLineBytes) / size_;
      for (int64_t k = 0; k < code_.piece() * code_.lanes(); k += elements)
        b_.CreateIntrinsic(
            llvm::Intrinsic::prefetch, {b_.getPtrTy()},
            {f_.at(fetched, k), b_.getInt32(0), b_.getInt32(kIntoL2), b_.getInt32(1)});
      const MicroValues made = code_.columns_of([&](int k) { return of_row.at(rows, k); });
      for (int q = 0; q < code_.piece(); ++q) f_.store(made[q], f_.at(at.back(), q * pitch_));
      MicroValues next;
      for (Value* row : rows) next.push_back(f_.at(row, code_.piece()));
      next.push_back(f_.at(at.back(), code_.piece() * pitch_));
      return next;
    });
  }

  // The last pieces first: what they leave behind their rows' ends is written by the others.
  void write_pieces(Value* made, Value* i) {
    RowPointers of_row(b_, b_.CreateMul(columns_, f_.word(size_)));
    Value* last = b_.CreateSub(whole(), f_.word(code_.piece()));
    MicroValues carried = of_row.every(f_.at(made, last), code_.lanes());
    carried.push_back(f_.at(column(f_.argument(0), last), i));
    f_.loop(columns_, code_.piece(), carried, [&](Value*, const MicroValues& at) -> MicroValues {
      const auto rows = std::span<Value* const>(at.data(), at.size() - 1);
      MicroValues vectors;
      for (int q = 0; q < code_.piece(); ++q)
        vectors.push_back(f_.load(f_.vector(code_.lanes()), f_.at(at.back(), q * pitch_)));
      vectors = transposed_parts(b_, std::move(vectors));
      for (int row = 0; row < code_.lanes(); ++row)
        f_.store(code_.part(vectors[row % code_.piece()], row / code_.piece()),
                 of_row.at(rows, row));
      MicroValues next;
      for (Value* row : rows) next.push_back(f_.at(row, -code_.piece()));
      next.push_back(f_.at(at.back(), -code_.piece() * pitch_));
      return next;
    });
  }

  void copy(Value* made, Value* to, bool past) {
    Value* all = b_.CreateMul(columns_, f_.word(ir::kShortRows));
    f_.loop(all, code_.lanes(), {}, [&](Value* at, const MicroValues&) -> MicroValues {
      Value* vector = f_.load(f_.vector(code_.lanes()), f_.at(made, at));
      past ? f_.store_past(vector, f_.at(to, at)) : f_.store(vector, f_.at(to, at));
      return {};
    });
  }

  ColumnsCode code_;
  const int64_t pitch_, size_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  Value *rows_, *columns_, *row_;
};

}  // namespace

llvm::Function* rows_function(const MicroTarget& target, const ir::RowsMicro& m) {
  const std::string name =
      fmt::format("rows_{}_{}_{}", m.out ? "out" : "in", size_of(target.dtype), m.pitch);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 2, 4);
  RowsCode code(target, m, f);
  m.out ? code.emit_out() : code.emit_in();
  return f.finish();
}

llvm::Function* transpose_function(const MicroTarget& target, const ir::TransposeMicro& m) {
  const std::string name =
      fmt::format("transpose_{}_{}_{}", size_of(target.dtype), m.to_row, m.from_row);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 2, 2);
  emit_transpose(target, m, f);
  return f.finish();
}

llvm::Function* turn_function(const MicroTarget& target, bool into_local) {
  const std::string name =
      fmt::format("turn_{}{}", size_of(target.dtype), into_local ? "_into_local" : "");
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 3, 5);
  TurnCode(target, f, into_local).emit();
  return f.finish();
}

}  // namespace cermet::codegen
