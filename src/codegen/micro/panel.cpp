// SPDX-License-Identifier: MIT
// A few rows times a matrix as it lies in memory, or packed. All forms are bound by reading it once, so all
// ask early for what the next round reads: processors follow a few long streams only by themselves.
//
// panel_n  lanes along n. Blocks of some k: a tile of C stays in registers over a block, whose rows are
//          walked side by side, having been asked for one after another, and C is in L1 or L2. For a
//          single row of A some rows of the matrix are walked over their whole length, without being asked
//          for: C is loaded and stored once for all of them.
// panel_k  lanes along k. Sums of all rows and some columns, added up at the end: of a single row over
//          the whole depth, else over a part of it, of which A stays in L1, for some groups of columns.
//          Of a matrix from memory, and in short sums, columns become lanes: squares are transposed in registers,
//          and what is asked for is as much of the following columns, one after another.
// panel_strips  lanes along n, strip by strip: one stream, of which each line is used once it arrives.
// Sixteen registers hold the sums of four rows of A and two vectors or columns, which load less for a product than
// eight and one: eight rows go by halves, and the second one finds the matrix in L1.
// bfloat16 is multiplied in pairs of k by a dot instruction: as they lie there, or of two rows, interleaved.
#include <fmt/format.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <span>
#include <tuple>

#include "codegen/llvm_row_pointers.h"
#include "codegen/micro/micro.h"
#include "codegen/micro/transposed.h"

namespace cermet::codegen {

namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kColumns = ir::kPanelColumns;
constexpr int64_t kFour = 4;             // rows of A
constexpr int kIntoL1 = 3, kIntoL2 = 2;  // locality of a prefetch
constexpr int64_t kBlock = 32;           // of k along n, with many registers
constexpr int64_t kBytesAhead = 8192;    // of a stream of columns, at least
constexpr int64_t kPart = 256;           // of k, along which A stays in L1 for
constexpr int64_t kGroup = 2;  // columns side by side; more are slower, though they load less of A
constexpr int64_t kTurnedBytes = 16384;  // of a column that becomes a lane, at a time
constexpr int64_t kFetched = 4;          // lines of such a column, one after another
constexpr int64_t kStripAhead = 4096;    // bytes of a strip

class PanelCode {
 public:
  PanelCode(const MicroTarget& target, const ir::PanelMicro& micro, Dtype a, Dtype given,
            MicroFunction& f)
      : dtype_(target.dtype),
        given_(given),
        of_a_(a),
        pairs_(a == Dtype::bfloat16),
        unit_(ir::panel_depth_of(a)),
        lanes_(target.lanes()),
        rows_(micro.rows),
        strip_(micro.b_lies == ir::PanelMicro::Lies::in_strips ? micro.strip : 0),
        piece_(micro.piece),
        from_memory_(micro.from_memory),
        many_(target.features.vector_bytes >= 64),
        prefetch_(!micro.b.local || strip_ > 0),
        f_(f),
        b_(f.builder()),
        ops_(f.builder(), target.features),
        fma_(target.features.avx2),
        locality_(target.features.prefetches_into_l1 ? kIntoL1 : kIntoL2) {}

  void along_n() {
    Value* is_new = b_.CreateICmpEQ(f_.argument(6), f_.word(0));
    f_.when(is_new, [&] { clear(); });
    if (pairs_) f_.when(b_.CreateNot(is_new), [&] { reorder(true); });
    if (rows_ == 1) {
      row_along_n();
    } else {
      rows_along_n();
    }
    if (pairs_) reorder(false);
  }

  void in_strips() {
    Value* ahead = f_.word(kStripAhead / static_cast<int64_t>(size_of(given_)));
    const MicroValues first = {f_.argument(2), f_.argument(2), ahead};
    f_.loop(f_.argument(3), strip_, first, [&](Value* j, const MicroValues& in) -> MicroValues {
      Value* c = place(j);
      Value* depth = f_.argument(4);
      MicroValues fetched = {in[1], in[2]};
      fetched = f_.loop(depth, piece_, fetched, [&](Value* k, const MicroValues& at) {
        Value* adds = b_.CreateOr(k, f_.argument(6));
        Value* steps = at_most(b_.CreateSub(depth, k), piece_);
        MicroValues out = at;
        for (const Rows of : row_tiles()) out = piece(of, c, k, in[0], steps, adds, out);
        return out;
      });
      return {matrix(in[0], stride()), fetched[0], fetched[1]};
    });
  }

  void along_k() {
    if (rows_ == 1) {
      row_along_k();
      return;
    }
    const int64_t width = groups() * group();
    const int64_t part = given_ == dtype_ ? kPart : 2 * kPart;
    Value* turned = f_.word(0);
    if (turns()) {
      Value* reachable = b_.CreateAdd(f_.argument(3), f_.argument(7));
      Value* enough = b_.CreateICmpSGE(reachable, f_.word(lanes_));
      turned = b_.CreateSelect(enough, f_.argument(3), f_.word(0));
      squares_along_k(turned);
    }
    Value* rest = b_.CreateSub(f_.argument(3), turned);
    f_.loop(rest, width, {}, [&](Value* from, const MicroValues&) -> MicroValues {
      Value* count = at_most(b_.CreateSub(rest, from), width);
      Value* first = b_.CreateAdd(turned, from);
      Value* following = b_.CreateMul(b_.CreateAdd(first, f_.word(width)), stride());
      const MicroValues next = {matrix(f_.argument(2), following), f_.word(0)};
      Value* depths = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, f_.argument(4), f_.word(1));
      f_.loop(depths, part, next, [&](Value* k, const MicroValues& fetched) {
        Value* depth = at_most(b_.CreateSub(f_.argument(4), k), part);
        return f_.loop(count, group(), fetched, [&](Value* j, const MicroValues& in) {
          MicroValues out = in;
          for (const Rows of : row_tiles()) out = dots(of, b_.CreateAdd(first, j), k, depth, out);
          return out;
        });
      });
      return {};
    });
  }

 private:
  using Value = llvm::Value;

  // Rows of A that are multiplied together: what registers hold of their sums is a tile.
  struct Rows {
    int64_t first, count;
  };
  Rows all() const { return {0, rows_}; }
  std::vector<Rows> row_tiles() const {
    if (many_) return {all()};
    std::vector<Rows> tiles;
    for (int64_t i = 0; i < rows_; i += kFour) tiles.push_back({i, std::min(kFour, rows_ - i)});
    return tiles;
  }
  // As many as 32 (16) registers hold beside a row of the matrix.
  int64_t tile_vectors() const { return many_ && rows_ == kFour ? 4 : 2; }
  // Along k a single row of A takes the matrix in one stream: where its columns are short, processors do not
  // keep up with several side by side, though these would share A.
  bool streams() const { return rows_ == 1; }
  // Rows of the matrix along n for a single row of A: the longer the work for a line, the more share C.
  int64_t together() const { return given_ != dtype_ ? 8 : 4; }
  // Of vector v of row i from the beginning of a tile.
  int64_t in_c(int64_t i, int64_t v) const {
    const int64_t j = v * lanes_;
    return j / kColumns * rows_ * kColumns + i * kColumns + j % kColumns;
  }

  // Of k along n. Rows of a block often share their sets of the L1 cache, so that they are few, unless C
  // costs more: its lines are read and written for each block.
  int64_t block() const { return many_ ? kBlock : unit_ / 2; }

  Value* least(Value* x, Value* y) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  Value* at_most(Value* count, int64_t limit) { return least(count, f_.word(limit)); }
  // Of a count by one that is 1 or more, or 0 by 0.
  Value* ceil_div(Value* x, Value* y) {
    Value* some = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, y, f_.word(1));
    return b_.CreateUDiv(b_.CreateAdd(x, b_.CreateSub(some, f_.word(1))), some);
  }
  Value* stride() { return f_.argument(5); }
  // From a row of the matrix to the next one, along n or in a strip.
  Value* to_next_row() { return strip_ > 0 ? f_.word(strip_) : stride(); }
  // Elements of what is asked for as one stream, to be followed by the next at a stride.
  Value* stream() {
    return strip_ > 0 ? b_.CreateMul(f_.argument(4), f_.word(strip_)) : f_.argument(3);
  }
  Value* matrix(Value* pointer, Value* elements) {
    return b_.CreateGEP(ops_.memory_type(given_), pointer, elements);
  }

  // Rows of the matrix that are multiplied at once along n, and vectors of columns that they make.
  int64_t pair() const { return pairs_ ? 2 : 1; }
  // Elements of a row or column in a vector.
  int64_t at_once() const { return pair() * lanes_; }
  Value* in_a(Value* pointer, Value* elements) {
    return b_.CreateGEP(ops_.memory_type(of_a_), pointer, elements);
  }
  // A vector of a row of A.
  Value* row_of_a(Value* pointer) {
    if (!pairs_) return f_.load(f_.vector(lanes_), pointer);
    return as_pairs(b_.CreateAlignedLoad(
        with_width(ops_.memory_type(of_a_), static_cast<int>(at_once())), pointer, llvm::Align(2)));
  }
  Value* as_pairs(Value* stored) {
    return b_.CreateBitCast(stored, with_width(b_.getBFloatTy(), static_cast<int>(at_once())));
  }

  // Elements of the matrix as vectors of the sums' dtype, or pairs of them as they are; count: so many only,
  // the rest 0.
  Value* wide(Value* pointer, Value* count) {
    llvm::Type* type = with_width(ops_.memory_type(given_), static_cast<int>(at_once()));
    const llvm::Align align(size_of(given_));
    Value* stored = count == nullptr ? b_.CreateAlignedLoad(type, pointer, align)
                                     : first(type, pointer, count, align);
    if (pairs_) return as_pairs(stored);
    Value* value = ops_.from_memory(given_, stored);
    return given_ == dtype_ ? value : ops_.op(ir::Code::cast, dtype_, given_, {&value, 1});
  }

  Value* first(llvm::Type* type, Value* pointer, Value* count, llvm::Align align) {
    Value* some = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, count, f_.word(0));
    Value* taken = at_most(some, at_once());
    Value* zero = llvm::Constant::getNullValue(type);
    if (ops_.features().avx512 || (ops_.features().avx2 && size_of(given_) >= 4)) {
      std::vector<uint64_t> numbers;
      for (int64_t lane = 0; lane < at_once(); ++lane)
        numbers.push_back(static_cast<uint64_t>(lane));
      Value* lane = llvm::ConstantDataVector::get(b_.getContext(), numbers);
      Value* mask = b_.CreateICmpULT(lane, ops_.splat(taken, static_cast<int>(at_once())));
      return b_.CreateMaskedLoad(type, pointer, align, mask, zero);
    }
    Value* scratch = ops_.slot(type);
    b_.CreateAlignedStore(zero, scratch, llvm::Align(16));
    Value* bytes = b_.CreateMul(taken, f_.word(static_cast<int64_t>(size_of(given_))));
    b_.CreateMemCpy(scratch, llvm::Align(16), pointer, align, bytes);
    return b_.CreateAlignedLoad(type, scratch, llvm::Align(16));
  }

  void prefetch(Value* pointer) {
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                       {pointer, b_.getInt32(0), b_.getInt32(locality_), b_.getInt32(1)});
  }
  // How far ahead a stream of columns of so many elements is asked for.
  Value* stream_ahead(Value* elements) {
    Value* bytes = b_.CreateMul(elements, f_.word(static_cast<int64_t>(size_of(given_))));
    Value* some = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, bytes, f_.word(1));
    Value* more = b_.CreateUDiv(f_.word(kBytesAhead - 1), some);
    return b_.CreateMul(stride(), b_.CreateAdd(more, f_.word(1)));
  }

  Value* product(Value* x, Value* y, Value* sum) {
    if (pairs_)
      return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {}, {sum, x, y});
    if (fma_) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
    return b_.CreateFAdd(sum, b_.CreateFMul(x, y));
  }

  // Where column j of C's row 0 is.
  Value* place(Value* j) {
    Value* in_tile = b_.CreateAnd(j, f_.word(kColumns - 1));
    Value* tile = b_.CreateMul(b_.CreateSub(j, in_tile), f_.word(rows_));
    return f_.at(f_.argument(0), b_.CreateAdd(tile, in_tile));
  }

  Value* size_of_c() {
    Value* tiles =
        b_.CreateAnd(b_.CreateAdd(f_.argument(3), f_.word(kColumns - 1)), f_.word(-kColumns));
    return b_.CreateMul(tiles, f_.word(rows_));
  }

  void clear() {
    Value* zero = llvm::Constant::getNullValue(f_.vector(lanes_));
    f_.loop(size_of_c(), lanes_, {}, [&](Value* i, const MicroValues&) -> MicroValues {
      f_.store(zero, f_.at(f_.argument(0), i));
      return {};
    });
  }

  // --- Along n.

  void rows_along_n() {
    const int64_t width = tile_vectors() * lanes_;
    Value* columns = f_.argument(3);
    Value* whole = b_.CreateAnd(columns, f_.word(-width));
    Value* rest = b_.CreateSub(columns, whole);
    f_.loop(f_.argument(4), block(), {}, [&](Value* k, const MicroValues&) -> MicroValues {
      Value* in_unit = b_.CreateAnd(k, f_.word(unit_ - 1));
      Value* unit = b_.CreateMul(b_.CreateSub(k, in_unit), f_.word(rows_));
      Value* a = in_a(f_.argument(1), b_.CreateAdd(unit, in_unit));
      Value* rows = matrix(f_.argument(2), b_.CreateMul(k, stride()));
      Value* steps = at_most(b_.CreateSub(f_.argument(4), k), block());
      MicroValues next = {matrix(rows, b_.CreateMul(stride(), f_.word(block()))), f_.word(0)};
      next = f_.loop(whole, width, next, [&](Value* j, const MicroValues& fetched) {
        MicroValues out = fetched;
        for (const Rows of : row_tiles())
          out = tile(of, j, a, rows, steps, width / lanes_, nullptr, out);
        return out;
      });
      f_.loop(rest, at_once(), next, [&](Value* j, const MicroValues& fetched) {
        return tile(all(), b_.CreateAdd(whole, j), a, rows, steps, pair(), b_.CreateSub(rest, j),
                    fetched);
      });
      return {};
    });
  }

  void row_along_n() {
    Value* whole = b_.CreateAnd(f_.argument(4), f_.word(-together()));
    f_.loop(whole, together(), {}, [&](Value* k, const MicroValues&) -> MicroValues {
      add_rows(k, together());
      return {};
    });
    for (int64_t count = pair(); count > 0; --count) {
      Value* rest = b_.CreateAnd(b_.CreateSub(f_.argument(4), whole), f_.word(-count));
      f_.loop(rest, count, {}, [&](Value* k, const MicroValues&) -> MicroValues {
        add_rows(b_.CreateAdd(whole, k), count);
        return {};
      });
      whole = b_.CreateAdd(whole, rest);
    }
  }

  // Rows k .. of the matrix onto C, a cache line of each at a time.
  void add_rows(Value* k, int64_t count) {
    const int64_t vectors =
        std::max<int64_t>(1, kLineBytes / static_cast<int64_t>(size_of(given_)) / lanes_);
    const int64_t taken = std::min(count, pair());
    MicroValues factors, rows;
    for (int64_t r = 0; r < count; r += taken) {
      Value* number = b_.CreateAdd(k, f_.word(r));
      factors.push_back(factor(in_a(f_.argument(1), number), taken));
      rows.push_back(matrix(f_.argument(2), b_.CreateMul(number, stride())));
    }
    const auto add = [&](Value* j, Value* left) {
      Value* c = f_.at(f_.argument(0), j);
      MicroValues sums;
      for (int64_t v = 0; v < pair(); ++v)
        sums.push_back(f_.load(f_.vector(lanes_), f_.at(c, v * lanes_)));
      for (size_t r = 0; r < rows.size(); ++r) {
        const MicroValues row = columns_of(matrix(rows[r], j), taken, left);
        for (size_t v = 0; v < row.size(); ++v) sums[v] = product(factors[r], row[v], sums[v]);
      }
      for (int64_t v = 0; v < pair(); ++v) f_.store(sums[v], f_.at(c, v * lanes_));
    };
    Value* whole = b_.CreateAnd(f_.argument(3), f_.word(-vectors * lanes_));
    f_.loop(whole, vectors * lanes_, {}, [&](Value* j, const MicroValues&) -> MicroValues {
      for (int64_t v = 0; v < vectors; v += pair())
        add(b_.CreateAdd(j, f_.word(v * lanes_)), nullptr);
      return {};
    });
    Value* rest = b_.CreateSub(f_.argument(3), whole);
    f_.loop(rest, at_once(), {}, [&](Value* j, const MicroValues&) -> MicroValues {
      add(b_.CreateAdd(whole, j), b_.CreateSub(rest, j));
      return {};
    });
  }

  // What all columns of `taken` rows of the matrix are multiplied by, one or a pair.
  Value* factor(Value* a, int64_t taken) {
    const auto lanes = static_cast<int>(lanes_);
    if (!pairs_) return ops_.splat(f_.load(f_.element(), a), lanes);
    llvm::Type* type = b_.getIntNTy(static_cast<unsigned>(16 * taken));
    Value* bits = b_.CreateAlignedLoad(type, a, llvm::Align(2));
    return as_pairs(ops_.splat(b_.CreateZExt(bits, b_.getInt32Ty()), lanes));
  }

  // pair() vectors of columns from `row` on, of `taken` rows; count: see wide.
  MicroValues columns_of(Value* row, int64_t taken, Value* count) {
    Value* first = wide(row, count);
    if (!pairs_) return {first};
    Value* second = taken > 1 ? wide(matrix(row, to_next_row()), count)
                              : llvm::Constant::getNullValue(first->getType());
    MicroValues columns;
    for (int64_t v = 0; v < pair(); ++v) {
      llvm::SmallVector<int, 32> order;
      for (int64_t j = 0; j < lanes_; ++j)
        for (int64_t of : {int64_t{0}, at_once()})
          order.push_back(static_cast<int>(of + in_order(v * lanes_ + j)));
      columns.push_back(b_.CreateShuffleVector(first, second, order));
    }
    return columns;
  }

  // Which of at_once() columns a pair's sum j is of: interleaving within 16 bytes costs one operation.
  int64_t in_order(int64_t j) const {
    constexpr int64_t kHalf = 4;  // of the bfloat16 in 16 bytes
    const int64_t i = j % lanes_;
    return i / kHalf * 2 * kHalf + j / lanes_ * kHalf + i % kHalf;
  }

  // Of the sums of at_once() columns: into the order of pairs (`paired`), or back into that of columns.
  llvm::SmallVector<int, 32> order(bool paired) const {
    llvm::SmallVector<int, 32> order(at_once());
    for (int64_t j = 0; j < at_once(); ++j)
      order[paired ? j : in_order(j)] = static_cast<int>(paired ? in_order(j) : j);
    return order;
  }
  void reorder(bool paired) {
    f_.loop(size_of_c(), at_once(), {}, [&](Value* i, const MicroValues&) -> MicroValues {
      Value* c = f_.at(f_.argument(0), i);
      f_.store(b_.CreateShuffleVector(f_.load(f_.vector(at_once()), c), order(paired)), c);
      return {};
    });
  }

  // Columns j .. of `vectors` vectors (of the first `count`) over a block of k. `fetched`: a row of the next
  // block, and how much of it has been asked for; gives how far it is then.
  MicroValues tile(Rows of, Value* j, Value* a, Value* rows, Value* steps, int64_t vectors,
                   Value* count, const MicroValues& fetched) {
    Value* begin = place(j);
    MicroValues c;
    for (int64_t i = of.first; i < of.first + of.count; ++i)
      for (int64_t v = 0; v < vectors; ++v) c.push_back(f_.at(begin, in_c(i, v)));
    MicroValues carried = {in_a(a, f_.word(of.first * unit_)), matrix(rows, j), fetched[0],
                           fetched[1]};
    const size_t first = carried.size();
    for (Value* at : c) carried.push_back(f_.load(f_.vector(lanes_), at));
    const MicroValues sums = block() <= unit_ ? in_unit(of, carried, steps, vectors, count)
                                              : in_units(of, carried, steps, vectors, count);
    for (size_t s = 0; s < c.size(); ++s) f_.store(sums[first + s], c[s]);
    return {sums[2], sums[3]};
  }

  // `steps` of k from k on, of the strip that begins at `strip`, to `c`. `fetched`: see tile.
  MicroValues piece(Rows of, Value* c, Value* k, Value* strip, Value* steps, Value* adds_if,
                    const MicroValues& fetched) {
    const int64_t vectors = strip_ / lanes_;
    Value* skipped = b_.CreateAdd(b_.CreateMul(k, f_.word(rows_)), f_.word(of.first * unit_));
    MicroValues carried = {in_a(f_.argument(1), skipped),
                           matrix(strip, b_.CreateMul(k, f_.word(strip_))), fetched[0], fetched[1]};
    const size_t first = carried.size();
    carried.append(of.count * vectors, llvm::Constant::getNullValue(f_.vector(lanes_)));
    carried = in_units(of, carried, steps, vectors, nullptr);
    Value* adds = b_.CreateICmpNE(adds_if, f_.word(0));
    for (int64_t i = 0; i < of.count; ++i)
      for (int64_t v = 0; v < vectors; v += pair()) {
        Value* sum = carried[first + i * vectors + v];
        if (pairs_) {
          Value* next = carried[first + i * vectors + v + 1];
          sum = b_.CreateShuffleVector(sum, next, order(false));
        }
        Value* at = f_.at(c, in_c(of.first + i, v));
        Value* more = b_.CreateFAdd(f_.load(sum->getType(), at), sum);
        f_.store(b_.CreateSelect(adds, more, sum), at);
      }
    return {carried[2], carried[3]};
  }

  // So many steps of k, from a unit's beginning on. Carried: A, the row of the matrix, what is fetched and how far, sums.
  MicroValues in_units(Rows of, const MicroValues& carried, Value* steps, int64_t vectors,
                       Value* count) {
    return f_.loop(steps, unit_, carried, [&](Value* k, const MicroValues& in) {
      Value* taken = at_most(b_.CreateSub(steps, k), unit_);
      MicroValues out = in_unit(of, in, taken, vectors, count);
      out[0] = in_a(out[0], f_.word((rows_ - 1) * unit_));
      return out;
    });
  }
  MicroValues in_unit(Rows of, const MicroValues& carried, Value* steps, int64_t vectors,
                      Value* count) {
    Value* whole = b_.CreateAnd(steps, f_.word(-pair()));
    MicroValues out = f_.loop(whole, pair(), carried, [&](Value*, const MicroValues& at) {
      return step(of, at, vectors, count, pair());
    });
    if (!pairs_) return out;
    return f_.loop(b_.CreateSub(steps, whole), 1, out,
                   [&](Value*, const MicroValues& at) { return step(of, at, vectors, count, 1); });
  }

  // `taken` rows of the matrix, which are asked for with the first rows of A.
  MicroValues step(Rows of, const MicroValues& in, int64_t vectors, Value* count, int64_t taken) {
    Value* following = b_.CreateMul(to_next_row(), f_.word(taken));
    MicroValues out = {in_a(in[0], f_.word(taken)), matrix(in[1], following), in[2], in[3]};
    MicroValues columns;
    for (int64_t v = 0; v < vectors; v += pair())
      columns.append(columns_of(matrix(in[1], f_.word(v * lanes_)), taken, count));
    const int64_t fetched = taken * vectors * lanes_;
    const bool fetches = prefetch_ && of.first == 0;
    if (fetches) std::tie(out[2], out[3]) = moved_on(in[2], in[3], fetched, stream());
    for (int64_t i = 0; i < of.count; ++i) {
      if (fetches) fetch_lines(in[2], in[3], i * fetched / of.count, (i + 1) * fetched / of.count);
      Value* one = factor(in_a(in[0], f_.word(i * unit_)), taken);
      for (Value* column : columns) out.push_back(product(one, column, in[out.size()]));
    }
    return out;
  }

  // Asks for so many elements of a row (column) of that length, from `at` on, one after another: processors
  // go on with such a stream.
  std::pair<Value*, Value*> fetch(Value* row, Value* at, int64_t elements, Value* length) {
    fetch_lines(row, at, 0, elements);
    return moved_on(row, at, elements, length);
  }

  int64_t line() const { return kLineBytes / static_cast<int64_t>(size_of(given_)); }
  // The lines of a row that begin in elements [from, to) after `at`.
  void fetch_lines(Value* row, Value* at, int64_t from, int64_t to) {
    for (int64_t j = (from + line() - 1) / line() * line(); j < to; j += line())
      prefetch(matrix(row, b_.CreateAdd(at, f_.word(j))));
  }

  std::pair<Value*, Value*> moved_on(Value* row, Value* at, int64_t elements, Value* length) {
    Value* next = b_.CreateAdd(at, f_.word(elements));
    Value* ends = b_.CreateICmpSGE(next, length);
    return {b_.CreateSelect(ends, matrix(row, stride()), row),
            b_.CreateSelect(ends, f_.word(0), next)};
  }

  // --- Along k.

  // Sums of a column that are independent of each other.
  int64_t chains() const { return streams() ? 4 : 1; }

  int64_t group() const { return streams() ? 1 : kGroup; }
  // Whose columns are asked for as one stream, before they are multiplied: they and the next ones are in L2.
  int64_t groups() const { return many_ ? 8 : 4; }

  // Whether columns become lanes, by transposes in registers, of which there are enough for a square and the sums:
  // what all are multiplied by is then one element of A, where lanes along k would load a line of it.
  // Of few rows, and long sums, beside a matrix in a cache the transposes take longer than that.
  bool turns() const { return from_memory_ && many_ && ops_.features().full_width; }

  // `columns`: all or none. The last ones that are no whole vector are made with those before them, and these left
  // out. Meanwhile the part of k that comes next is asked for; parts are about equal, so that it is all asked for.
  void squares_along_k(Value* columns) {
    const int64_t most = kTurnedBytes / static_cast<int64_t>(size_of(given_));
    Value* depth = f_.argument(4);
    Value* parts = ceil_div(depth, f_.word(most));
    Value* units = ceil_div(depth, b_.CreateMul(parts, f_.word(unit_)));
    Value* part = b_.CreateMul(units, f_.word(unit_));
    Value* adds = b_.CreateICmpNE(f_.argument(6), f_.word(0));
    llvm::Type* type = f_.vector(lanes_);
    Value* moved = ops_.slot(type, 2);
    f_.store(llvm::Constant::getNullValue(type), f_.at(type, moved, 1));
    Value* last = b_.CreateSub(columns, f_.word(lanes_));
    f_.loop(columns, lanes_, {}, [&](Value* j, const MicroValues&) -> MicroValues {
      Value* begin = least(j, last);
      Value* first = matrix(f_.argument(2), b_.CreateMul(begin, stride()));
      MicroValues sums(static_cast<size_t>(rows_), llvm::Constant::getNullValue(type));
      sums = f_.loop(parts, 1, sums, [&](Value* number, const MicroValues& in) {
        Value* k = b_.CreateMul(number, part);
        Value* next = b_.CreateAdd(k, part);
        Value* ends = b_.CreateICmpSGE(next, depth);
        Value* below = matrix(first, b_.CreateMul(stride(), f_.word(lanes_)));
        Value* ahead = b_.CreateSelect(ends, below, matrix(first, next));
        Value* left = least(b_.CreateSelect(ends, depth, b_.CreateSub(depth, next)), part);
        Value* a = in_a(f_.argument(1), b_.CreateMul(k, f_.word(rows_)));
        Value* count = least(b_.CreateSub(depth, k), part);
        return squares(matrix(first, k), a, count, ahead, left, in);
      });
      for (int64_t i = 0; i < rows_; ++i) {
        f_.store(sums[i], moved);
        Value* sum = f_.load(type, f_.at(moved, b_.CreateSub(j, begin)));
        Value* c = f_.at(place(j), i * kColumns);
        f_.store(b_.CreateSelect(adds, b_.CreateFAdd(f_.load(type, c), sum), sum), c);
      }
      return {};
    });
  }

  // `count` of k of the columns from `first` on, onto the sums. `ahead`: rows of `length` that are asked for.
  MicroValues squares(Value* first, Value* a, Value* count, Value* ahead, Value* length,
                      const MicroValues& sums) {
    Value* bytes = b_.CreateMul(stride(), f_.word(static_cast<int64_t>(size_of(given_))));
    RowPointers rows(b_, bytes);
    MicroValues carried = {a, ahead, f_.word(0)};
    const size_t pointers = carried.size();
    carried.append(rows.every(first, static_cast<int>(lanes_)));
    const size_t summed = carried.size();
    carried.append(sums);
    carried = f_.loop(count, unit_, carried, [&](Value* k, const MicroValues& in) {
      MicroValues out = in;
      out[0] = in_a(in[0], f_.word(rows_ * unit_));
      for (size_t i = pointers; i < summed; ++i) out[i] = matrix(in[i], f_.word(unit_));
      for (int64_t at = 0; at < unit_; at += at_once()) {
        int64_t fetched = 0;
        Value* left = b_.CreateSub(b_.CreateSub(count, k), f_.word(at));
        const std::span<Value* const> all(in.data() + pointers, summed - pointers);
        const MicroValues columns = square(rows, all, at, left);
        for (int64_t step = 0; step < lanes_; ++step) {
          if (prefetch_) fetch_of_square(step, fetched, out[1], out[2], length);
          for (int64_t i = 0; i < rows_; ++i) {
            Value* x = factor(in_a(in[0], f_.word(i * unit_ + at + step * pair())), pair());
            Value*& sum = out[summed + i];
            sum = product(x, columns[step], sum);
          }
        }
      }
      return out;
    });
    return {carried.begin() + summed, carried.end()};
  }

  // Vectors of lanes_ columns, each of one k or a pair of them.
  MicroValues square(RowPointers& rows, std::span<Value* const> pointers, int64_t at, Value* left) {
    llvm::Type* type = f_.vector(lanes_);
    MicroValues vectors;
    for (int64_t i = 0; i < lanes_; ++i) {
      Value* row = wide(matrix(rows.at(pointers, static_cast<int>(i)), f_.word(at)), left);
      vectors.push_back(b_.CreateBitCast(row, type));
    }
    vectors = transposed(b_, vectors);
    if (pairs_)
      for (Value*& vector : vectors) vector = as_pairs(vector);
    return vectors;
  }

  // As many lines as a square has, spread over the steps of its products: asked for at once, they keep loads from L2
  // waiting. `fetched`: how many have been.
  void fetch_of_square(int64_t step, int64_t& fetched, Value*& row, Value*& at, Value* length) {
    const int64_t wanted = (step + 1) * at_once() / line();
    for (; fetched < wanted; ++fetched) {
      const int64_t number = fetched % kFetched;
      fetch_lines(row, at, number * line(), (number + 1) * line());
      if (number == kFetched - 1) std::tie(row, at) = moved_on(row, at, kFetched * line(), length);
    }
  }

  // One column after another; where they are short, adding up the lanes of each would take most of the time.
  void row_along_k() {
    Value* columns = f_.argument(3);
    Value* whole = b_.CreateAnd(columns, f_.word(-lanes_));
    llvm::Type* type = f_.vector(lanes_);
    Value* kept = ops_.slot(type, static_cast<uint64_t>(lanes_));
    f_.loop(whole, lanes_, {}, [&](Value* first, const MicroValues&) -> MicroValues {
      f_.loop(f_.word(lanes_), 1, {}, [&](Value* j, const MicroValues&) -> MicroValues {
        const MicroValues column = {b_.CreateAdd(first, j)};
        const MicroValues sums = sums_of(all(), column, f_.word(0), f_.argument(4), {});
        f_.store(sums[place_of_sums()], b_.CreateGEP(type, kept, j));
        return {};
      });
      MicroValues sums;
      for (int64_t j = 0; j < lanes_; ++j) sums.push_back(f_.load(type, f_.at(type, kept, j)));
      Value* c = place(first);
      Value* adds = b_.CreateICmpNE(f_.argument(6), f_.word(0));
      Value* zero = llvm::Constant::getNullValue(type);
      Value* old = b_.CreateSelect(adds, f_.load(type, c), zero);
      f_.store(b_.CreateFAdd(old, totals(sums)), c);
      return {};
    });
    f_.loop(b_.CreateSub(columns, whole), 1, {}, [&](Value* j, const MicroValues&) -> MicroValues {
      dots(all(), b_.CreateAdd(whole, j), f_.word(0), f_.argument(4), {});
      return {};
    });
  }

  // The sum of each vector's lanes, as many as these are, added as `total` does: their halves onto each
  // other, of two vectors at once.
  Value* totals(MicroValues sums) {
    for (int64_t half = lanes_ / 2; half > 0; half /= 2) {
      llvm::SmallVector<int, 16> low, high;
      for (int64_t i = 0; i < 2 * lanes_; i += 2 * half)
        for (int64_t lane = i; lane < i + half; ++lane) {
          low.push_back(static_cast<int>(lane));
          high.push_back(static_cast<int>(lane + half));
        }
      MicroValues added;
      for (size_t v = 0; v < sums.size(); v += 2)
        added.push_back(b_.CreateFAdd(b_.CreateShuffleVector(sums[v], sums[v + 1], low),
                                      b_.CreateShuffleVector(sums[v], sums[v + 1], high)));
      sums = added;
    }
    return sums[0];
  }

  Value* total(Value* sum) {
    for (int64_t half = lanes_ / 2; half > 0; half /= 2) {
      llvm::SmallVector<int, 16> low, high;
      for (int64_t lane = 0; lane < half; ++lane) {
        low.push_back(static_cast<int>(lane));
        high.push_back(static_cast<int>(lane + half));
      }
      sum = b_.CreateFAdd(b_.CreateShuffleVector(sum, low), b_.CreateShuffleVector(sum, high));
    }
    return b_.CreateExtractElement(sum, uint64_t{0});
  }

  // Columns j .. of a group over `depth` of k, from `begin` on. `fetched`: see tile; of a single row empty.
  MicroValues dots(Rows of, Value* j, Value* begin, Value* depth, const MicroValues& fetched) {
    MicroValues columns;
    Value* last = b_.CreateSub(f_.argument(3), f_.word(1));
    for (int64_t v = 0; v < group(); ++v)
      columns.push_back(
          b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(j, f_.word(v)), last));
    const MicroValues carried = sums_of(of, columns, begin, depth, fetched);
    store_sums(of, columns, b_.CreateOr(begin, f_.argument(6)), carried);
    return {carried.begin(), carried.begin() + fetched.size()};
  }

  // What is carried at the end.
  MicroValues sums_of(Rows of, const MicroValues& columns, Value* begin, Value* depth,
                      const MicroValues& fetched) {
    MicroValues carried = fetched;
    Value* skipped = b_.CreateMul(begin, f_.word(rows_));
    carried.push_back(in_a(f_.argument(1), b_.CreateAdd(skipped, f_.word(of.first * unit_))));
    for (Value* column : columns)
      carried.push_back(
          matrix(f_.argument(2), b_.CreateAdd(begin, b_.CreateMul(column, stride()))));
    carried.append(columns.size() * of.count * chains(),
                   llvm::Constant::getNullValue(f_.vector(lanes_)));
    Value* ahead = stream_ahead(depth);
    const int64_t line = std::max(unit_, kLineBytes / static_cast<int64_t>(size_of(given_)));
    const int64_t round = std::max(line, chains() * unit_);
    Value* whole = b_.CreateAnd(depth, f_.word(-round));
    carried = f_.loop(whole, round, carried, [&](Value*, MicroValues in) {
      for (int64_t k = 0; k < round; k += unit_) {
        if (prefetch_ && of.first == 0 && k % line == 0) fetch_columns(in, ahead, line);
        in = unit(of, in, nullptr, k);
      }
      return in;
    });
    Value* rest = b_.CreateSub(depth, whole);
    carried = f_.loop(rest, unit_, carried, [&](Value* k, const MicroValues& in) {
      return unit(of, in, b_.CreateSub(rest, k), 0);
    });
    add_chains(of, carried);
    return carried;
  }

  // What is carried: what is fetched, then A, the group's columns, and the sums.
  int64_t place_of_a() const { return rows_ == 1 ? 0 : 2; }
  int64_t place_of_sums() const { return place_of_a() + 1 + group(); }

  void fetch_columns(MicroValues& in, Value* ahead, int64_t line) {
    if (streams()) prefetch(matrix(in[place_of_a() + 1], ahead));
    else std::tie(in[0], in[1]) = fetch(in[0], in[1], group() * line, f_.argument(4));
  }

  // unit_ of k, the first at `from` of a round, or the first `count` of them.
  MicroValues unit(Rows of, const MicroValues& in, Value* count, int64_t from) {
    MicroValues out = in;
    Value* a = in[place_of_a()];
    const auto column = [&](int64_t v) { return place_of_a() + 1 + v; };
    out[place_of_a()] = in_a(a, f_.word(rows_ * unit_));
    for (int64_t v = 0; v < group(); ++v) out[column(v)] = matrix(in[column(v)], f_.word(unit_));
    for (int64_t k = 0; k < unit_; k += at_once()) {
      MicroValues row;
      Value* left = count == nullptr ? nullptr : b_.CreateSub(count, f_.word(k));
      for (int64_t v = 0; v < group(); ++v)
        row.push_back(wide(matrix(in[column(v)], f_.word(k)), left));
      const int64_t chain = (from + k) / at_once() % chains();
      for (int64_t i = 0; i < of.count; ++i) {
        Value* x = row_of_a(in_a(a, f_.word(i * unit_ + k)));
        for (int64_t v = 0; v < group(); ++v) {
          Value*& sum = out[place_of_sums() + (chain * of.count + i) * group() + v];
          sum = product(x, row[v], sum);
        }
      }
    }
    return out;
  }

  // The chains of each sum onto the first one.
  void add_chains(Rows of, MicroValues& carried) {
    const int64_t sums = group() * of.count, first = place_of_sums();
    for (int64_t s = sums; s < sums * chains(); ++s) {
      Value*& sum = carried[first + s % sums];
      sum = b_.CreateFAdd(sum, carried[first + s]);
    }
  }

  // A column may stand there twice: all old values are read before any is written.
  void store_sums(Rows of, const MicroValues& columns, Value* adds_if, const MicroValues& carried) {
    const size_t count = columns.size();
    MicroValues sums, places;
    Value* adds = b_.CreateICmpNE(adds_if, f_.word(0));
    Value* zero = llvm::Constant::getNullValue(f_.element());
    for (size_t s = 0; s < count * of.count; ++s) {
      Value* lanes = carried[place_of_sums() + s];
      if (lanes_ > 1) lanes = total(lanes);
      const int64_t row = of.first + static_cast<int64_t>(s / count);
      places.push_back(f_.at(place(columns[s % count]), row * kColumns));
      Value* old = b_.CreateSelect(adds, f_.load(f_.element(), places.back()), zero);
      sums.push_back(b_.CreateFAdd(old, lanes));
    }
    for (size_t s = 0; s < sums.size(); ++s) f_.store(sums[s], places[s]);
  }

  const Dtype dtype_, given_, of_a_;
  const bool pairs_;    // of elements are multiplied at once
  const int64_t unit_;  // of k, in which the rows of A lie side by side
  const int64_t lanes_;
  const int64_t rows_;
  const int64_t strip_;  // columns of one; 0: the matrix lies as it is
  const int64_t piece_;  // of k in a strip
  const bool from_memory_;
  const bool many_, prefetch_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  OpEmitter ops_;
  const bool fma_;
  const int locality_;  // of prefetches
};

}  // namespace

llvm::Function* panel_function(const MicroTarget& target, const ir::PanelMicro& m, Dtype a,
                               Dtype given) {
  using Lies = ir::PanelMicro::Lies;
  const char lies = m.b_lies == Lies::in_strips ? 's' : m.b_lies == Lies::along_k ? 'k' : 'n';
  const std::string name =
      fmt::format("panel_{}{}_{}_{}{}_{}_{}_{}_{}", lies, m.rows, m.strip, m.piece,
                  m.from_memory ? "_from_memory" : "", name_of(target.dtype), name_of(a),
                  name_of(given), m.b.local ? 1 : 0);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 3, 5);
  PanelCode code(target, m, a, given, f);
  if (m.b_lies == Lies::along_n) code.along_n();
  else if (m.b_lies == Lies::along_k) code.along_k();
  else code.in_strips();
  return f.finish();
}

}  // namespace cermet::codegen
