// SPDX-License-Identifier: MIT
// A packed block of A times a packed block of B by tile instructions: for each panel of B, which stays in
// L1, all rows of A, which are in L2 and go past L1. Two by two tiles of C are kept over the depth; those of
// operands in several parts are added to C by vectors, so that no chain is longer than the depth, while the
// tiles of the next block are multiplied. Tiles are configured for each call and released at its end, so a
// thread has no state outside it: nothing for forks, signal handlers and switches between threads to keep.
// Tile registers have fixed numbers: LLVM would put them on the stack and configure them itself.
//
// For processors without them, loops over vectors give the same bits. Of bfloat16, MXCSR is set for the call
// to flush subnormal numbers wherever vectors add, as tile instructions do whatever it says.
#include <fmt/format.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>
#include <utility>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

constexpr int64_t kSide = ir::kTileSide, kBlock = ir::kTileBlock;
constexpr int64_t kFetched = 4;  // lines that are fetched together

using Value = llvm::Value;

// Dtypes of the operands.
struct Operands {
  Dtype a, b;
  bool are_integers() const { return is_integer(a); }
  bool a_signed() const { return is_signed(a); }
  bool b_signed() const { return is_signed(b); }
};

// What both kinds of code walk through.
class TileLoops {
 protected:
  TileLoops(const ir::TileGemmMicro& micro, Operands operands, std::optional<int64_t> fixed_row,
            MicroFunction& f)
      : m_(micro),
        operands_(operands),
        size_(static_cast<int64_t>(size_of(operands.a))),
        depth_(ir::tile_depth_of(operands.a)),
        group_(ir::group_of(operands.a)),
        fixed_row_(fixed_row),
        f_(f),
        b_(f.builder()),
        packed_(f.builder().getIntNTy(static_cast<unsigned>(8 * size_))),
        fetched_of_b_(fetched(micro.parts * kBlock, rows())),
        fetched_of_a_(fetched(kBlock, columns())),
        fetched_step_(b_.CreateMul(fetched_of_b_, f.word(kFetched * line()))) {}

  Value* rows() { return f_.argument(5); }
  Value* columns() { return f_.argument(6); }
  Value* steps() { return ceil_div(f_.argument(7), f_.word(depth_)); }
  Value* ceil_div(Value* n, Value* by) {
    return b_.CreateUDiv(b_.CreateAdd(n, b_.CreateSub(by, f_.word(1))), by);
  }
  // Elements of `rows` rows of A.
  Value* a_rows(int64_t rows) {
    if (fixed_row_) return f_.word(rows * *fixed_row_);
    return b_.CreateMul(f_.argument(8), f_.word(rows));
  }
  Value* adds() { return b_.CreateICmpNE(f_.argument(9), f_.word(0)); }

  // body(c, b, columns left, carried) for each panel of B gives what the next one, and the end, gets.
  template <typename F>
  MicroValues each_panel(const MicroValues& carried, F&& body) {
    const MicroValues begin = {f_.argument(2)};
    return carry(columns(), begin, carried, [&](Value* j, const MicroValues& in, auto&& own) {
      Value* following = f_.at(packed_, in[0], m_.b_panel);
      Value* left = b_.CreateSub(columns(), j);
      next_ = b_.CreateSelect(b_.CreateICmpSGT(left, f_.word(kBlock)), following, f_.argument(3));
      const MicroValues made = body(f_.at(f_.argument(0), j), in[0], left, own);
      return joined({following}, made);
    });
  }
  // body(c, a, rows left, carried) for each panel of A.
  template <typename F>
  MicroValues each_rows(Value* c, const MicroValues& carried, F&& body) {
    Value* fetched = b_.CreateMul(steps(), fetched_step_);
    Value* first = next_;  // again for other rows: what a loop carries is not known past it
    const MicroValues begin = {c, f_.argument(1), first};
    const MicroValues end =
        carry(rows(), begin, carried, [&](Value* i, const MicroValues& in, auto&& own) {
          next_ = in[2];
          const MicroValues made = body(in[0], in[1], b_.CreateSub(rows(), i), own);
          return joined(
              {f_.at(in[0], kBlock * m_.c_row), b_.CreateGEP(packed_, in[1], a_rows(kBlock)),
               b_.CreateGEP(packed_, in[2], fetched)},
              made);
        });
    next_ = first;
    return end;
  }

  bool fetches() const { return m_.b_next != m_.b_at; }
  bool fetches_rows() const { return m_.a_next != m_.a_at; }
  static MicroValues joined(MicroValues first, const MicroValues& rest) {
    first.append(rest.begin(), rest.end());
    return first;
  }
  // Blocks of a loop whose body gets what `first` becomes, and what was carried; gives the latter.
  template <typename F>
  MicroValues carry(Value* end, const MicroValues& first, const MicroValues& carried, F&& body) {
    const size_t own = first.size();
    const auto rest = [&](const MicroValues& all) {
      return MicroValues(all.begin() + own, all.end());
    };
    return rest(f_.loop(end, kBlock, joined(first, carried),
                        [&](Value* i, const MicroValues& in) { return body(i, in, rest(in)); }));
  }
  int64_t line() const { return ir::kTileRow / size_; }
  // Of so many lines for each step of the depth, what is fetched with each of the blocks along an axis: how
  // many times kFetched.
  Value* fetched(int64_t lines, Value* length) {
    Value* blocks = ceil_div(length, f_.word(kBlock));
    blocks = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, blocks, f_.word(1));
    return ceil_div(f_.word(lines / kFetched), blocks);
  }

  bool in_parts() const { return m_.parts > 1; }

  // From here on vectors take subnormal numbers as zeros; gives where the state before is.
  Value* flush() {
    constexpr uint32_t kFlushed = 0x9fc0;  // no exceptions, to the nearest even
    Value* before = b_.CreateAlloca(b_.getInt32Ty());
    Value* flushed = b_.CreateAlloca(b_.getInt32Ty());
    call(llvm::Intrinsic::x86_sse_stmxcsr, {before});
    b_.CreateStore(b_.getInt32(kFlushed), flushed);
    call(llvm::Intrinsic::x86_sse_ldmxcsr, {flushed});
    return before;
  }
  void restore(Value* before) { call(llvm::Intrinsic::x86_sse_ldmxcsr, {before}); }

  void call(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> arguments) {
    b_.CreateIntrinsic(id, {}, arguments);
  }

  // body(1) if no more than a tile is left, else body(2).
  template <typename F>
  void by_tiles(Value* left, F&& body) {
    f_.when(b_.CreateICmpSGT(left, f_.word(kSide)), [&] { body(2); });
    f_.when(b_.CreateICmpSLE(left, f_.word(kSide)), [&] { body(1); });
  }

  const ir::TileGemmMicro& m_;
  const Operands operands_;
  const int64_t size_, depth_, group_;  // of an element; of a tile; what stands side by side in B
  const std::optional<int64_t> fixed_row_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  llvm::Type* const packed_;
  // By a step, of the next panel of B and of the next rows of A, in kFetched lines; and of B in elements.
  Value *const fetched_of_b_, *const fetched_of_a_, *const fetched_step_;
  Value* next_ = nullptr;  // of B
};

class TileCode : TileLoops {
 public:
  TileCode(const ir::TileGemmMicro& micro, Operands operands, std::optional<int64_t> fixed_row,
           MicroFunction& f)
      : TileLoops(micro, operands, fixed_row, f) {}

  void emit() {
    Value* before = in_parts() ? flush() : nullptr;
    call(llvm::Intrinsic::x86_ldtilecfg, {configuration()});
    in_parts() ? each_in_parts() : each_block();
    call(llvm::Intrinsic::x86_tilerelease, {});
    if (before != nullptr) restore(before);
  }

 private:
  void each_block() {
    each_panel({}, [&](Value* c_panel, Value* b, Value* columns_left, auto&&) {
      if (fetches_rows()) next_rows_ = rows_to_fetch(columns_left);
      by_tiles(columns_left, [&](int across) {
        each_rows(c_panel, {}, [&](Value* c, Value* a, Value* rows_left, auto&&) {
          by_tiles(rows_left, [&](int down) { block(down, across, c, a, b); });
          return MicroValues();
        });
      });
      return MicroValues();
    });
  }

  // On a cache line of the frame. LLVM 19 fails on a frame that is itself so aligned.
  Value* aligned(int64_t elements, const char* name) {
    constexpr int64_t kLine = 64;
    Value* frame =
        b_.CreateAlloca(llvm::ArrayType::get(f_.element(), elements + kLine / 4), nullptr, name);
    Value* past = b_.CreateGEP(b_.getInt8Ty(), frame, f_.word(kLine - 1));
    return b_.CreateIntrinsic(llvm::Intrinsic::ptrmask, {past->getType(), b_.getInt64Ty()},
                              {past, f_.word(-kLine)});
  }

  // Which register: four tiles of C, two of A, two of B.
  static int of_c(int i, int j) { return 2 * i + j; }
  static int of_a(int i) { return 4 + i; }
  static int of_b(int j) { return 6 + j; }

  Value* tile(int number) { return b_.getInt8(static_cast<uint8_t>(number)); }
  Value* stride(int64_t elements, int64_t size) { return f_.word(elements * size); }

  // Palette 1, all tiles of 16 rows and 64 bytes (Intel's manual, LDTILECFG).
  Value* configuration() {
    std::array<uint8_t, 64> bytes = {1};
    for (size_t t = 0; t < 8; ++t) bytes[16 + 2 * t] = 64, bytes[48 + t] = kSide;
    llvm::Constant* data = llvm::ConstantDataArray::get(b_.getContext(), bytes);
    auto* variable =
        new llvm::GlobalVariable(*b_.GetInsertBlock()->getModule(), data->getType(), true,
                                 llvm::GlobalValue::PrivateLinkage, data, "tile_configuration");
    variable->setAlignment(llvm::Align(64));
    return variable;
  }

  void block(int down, int across, Value* c, Value* a, Value* b) {
    f_.when(adds(), [&] {
      each_c(down, across, c, [&](int number, Value* at) {
        call(llvm::Intrinsic::x86_tileloadd64, {tile(number), at, stride(m_.c_row, 4)});
      });
    });
    f_.when(b_.CreateNot(adds()), [&] { clear(down, across); });
    f_.loop(steps(), 1, {a, b, next_}, [&](Value*, const MicroValues& at) {
      multiply(down, across, at);
      return next(at);
    });
    each_c(down, across, c, [&](int number, Value* at) {
      call(llvm::Intrinsic::x86_tilestored64, {tile(number), at, stride(m_.c_row, 4)});
    });
  }

  // Blocks of 2 x 2 tiles only: code of many products takes long to compile, and such operands come in
  // large blocks.
  void each_in_parts() {
    start_ = aligned(kBlock, "start");
    for (int64_t j = 0; j < kBlock; j += kSide)
      f_.store(llvm::ConstantFP::getNegativeZero(f_.vector(kSide)), f_.at(start_, j));
    // Without a depth, too, there is a step, which adds what the block before made.
    rounds_ = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, steps(), f_.word(1));
    each_round_ = b_.CreateUDiv(b_.CreateAdd(rounds_, f_.word(kBlock - 1)), rounds_);
    MicroValues sums = {f_.argument(0), aligned(kBlock * kBlock, "sums"),
                        aligned(kBlock * kBlock, "other_sums"), f_.word(0)};
    sums = each_panel(sums, [&](Value* c_panel, Value* b, Value*, auto&& carried) {
      return each_rows(c_panel, carried, [&](Value* c, Value* a, Value*, auto&& before) {
        return block_in_parts(c, a, b, before);
      });
    });
    add(sums[3], sums[0], sums[1], sums[0]);
  }

  // before: where in C the sums of the block before belong, where they are, where there is room for others,
  // and how many rows they are, 0 if there is no block before. Each step of the depth adds some of them.
  MicroValues block_in_parts(Value* c, Value* a, Value* b, const MicroValues& before) {
    clear(2, 2);
    const MicroValues begin = {a, b, next_, before[0], before[1], c, before[3]};
    f_.loop(rounds_, 1, begin, [&](Value*, const MicroValues& at) {
      f_.when(b_.CreateICmpSGT(steps(), f_.word(0)), [&] { multiply(2, 2, at); });
      Value* some = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, at[6], each_round_);
      const MicroValues places = joined(next(at), add(some, at[3], at[4], at[5]));
      return joined(places, {b_.CreateSub(at[6], some)});
    });
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j)
        call(llvm::Intrinsic::x86_tilestored64,
             {tile(of_c(i, j)), f_.at(before[2], (i * kBlock + j) * kSide), stride(kBlock, 4)});
    return {c, before[2], before[1], f_.word(kBlock)};
  }

  // Rows of sums onto those of C, or in their place; gives where the next ones are. As many are fetched.
  MicroValues add(Value* rows, Value* c, Value* sums, Value* fetched) {
    Value* first = b_.CreateSelect(adds(), c, start_);
    Value* row = b_.CreateSelect(adds(), f_.word(m_.c_row), f_.word(0));
    const MicroValues begin = {c, sums, first, fetched};
    const MicroValues end = f_.loop(rows, 1, begin, [&](Value*, const MicroValues& at) {
      for (int64_t j = 0; j < kBlock; j += kSide) {
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {at[3]->getType()},
                           {f_.at(at[3], j), b_.getInt32(1), b_.getInt32(3), b_.getInt32(1)});
        Value* sum = f_.load(f_.vector(kSide), f_.at(at[1], j));
        f_.store(b_.CreateFAdd(f_.load(f_.vector(kSide), f_.at(at[2], j)), sum), f_.at(at[0], j));
      }
      return MicroValues{f_.at(at[0], m_.c_row), f_.at(at[1], kBlock), f_.at(at[2], row),
                         f_.at(at[3], m_.c_row)};
    });
    return {end[0], end[1], end[3]};
  }

  void clear(int down, int across) {
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j) call(llvm::Intrinsic::x86_tilezero, {tile(of_c(i, j))});
  }

  // A tile's depth of k, from {a, b, what is to be fetched} on.
  void multiply(int down, int across, const MicroValues& at) {
    step(down, across, at[0], at[1]);
    if (fetches()) fetch(fetched_of_b_, at[2], f_.word(line()));
    if (fetches_rows())
      fetch(fetched_of_a_, b_.CreateGEP(packed_, at[0], next_rows_), f_.argument(8));
  }
  MicroValues next(const MicroValues& at) {
    return {f_.at(packed_, at[0], m_.a_step), f_.at(packed_, at[1], depth_ * kBlock),
            b_.CreateGEP(packed_, at[2], fetched_step_)};
  }

  // Into L2: so many times kFetched lines, `apart` elements from each other.
  void fetch(Value* times, Value* from, Value* apart) {
    f_.loop(times, 1, {from}, [&](Value*, const MicroValues& at) {
      Value* place = at[0];
      for (int64_t i = 0; i < kFetched; ++i) {
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {place->getType()},
                           {place, b_.getInt32(0), b_.getInt32(2), b_.getInt32(1)});
        place = b_.CreateGEP(packed_, place, apart);
      }
      return MicroValues{place};
    });
  }

  template <typename F>
  void each_c(int down, int across, Value* c, F&& body) {
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j) body(of_c(i, j), f_.at(c, i * kSide * m_.c_row + j * kSide));
  }

  // One instruction: tile (i, j) of C and a pair of parts.
  struct Use {
    int i, j;
    ir::PartPair pair;
  };
  // Where only the part of B changes after a pair its products go down first, else across: so a tile is free
  // for what the next pair takes while others are used.
  std::vector<Use> uses(int down, int across) const {
    const std::span<const ir::PartPair> pairs = ir::products_of(m_.parts);
    std::vector<Use> uses;
    for (size_t p = 0; p < pairs.size(); ++p) {
      const bool goes_down = p + 1 < pairs.size() && pairs[p].a == pairs[p + 1].a;
      for (int x = 0; x < (goes_down ? across : down); ++x)
        for (int y = 0; y < (goes_down ? down : across); ++y)
          uses.push_back({goes_down ? y : x, goes_down ? x : y, pairs[p]});
    }
    return uses;
  }

  // A part is loaded when its tile is free, and stays if the next product takes it as well.
  void step(int down, int across, Value* a, Value* b) {
    Value* lower = b_.CreateGEP(packed_, a, a_rows(kSide));
    int a_parts[2] = {-1, -1}, b_parts[2] = {-1, -1};
    const auto load_a = [&](const Use& use) {
      if (std::exchange(a_parts[use.i], use.pair.a) == use.pair.a) return;
      call(llvm::Intrinsic::x86_tileloaddt164,
           {tile(of_a(use.i)), f_.at(packed_, use.i == 0 ? a : lower, use.pair.a * m_.a_part),
            a_rows(size_)});
    };
    const auto load_b = [&](const Use& use) {
      if (std::exchange(b_parts[use.j], use.pair.b) == use.pair.b) return;
      call(llvm::Intrinsic::x86_tileloadd64,
           {tile(of_b(use.j)), f_.at(packed_, b, use.pair.b * m_.b_part + use.j * kSide * group_),
            stride(kBlock * group_, size_)});
    };
    const std::vector<Use> all = uses(down, across);
    for (auto use = all.begin(); use != all.end(); ++use) {
      load_a(*use), load_b(*use);
      call(product(), {tile(of_c(use->i, use->j)), tile(of_a(use->i)), tile(of_b(use->j))});
      const auto next_a = std::find_if(use + 1, all.end(), [&](auto& u) { return u.i == use->i; });
      const auto next_b = std::find_if(use + 1, all.end(), [&](auto& u) { return u.j == use->j; });
      if (next_a != all.end()) load_a(*next_a);
      if (next_b != all.end()) load_b(*next_b);
    }
  }

  llvm::Intrinsic::ID product() const {
    using namespace llvm::Intrinsic;
    if (!operands_.are_integers()) return x86_tdpbf16ps;
    if (operands_.a_signed()) return operands_.b_signed() ? x86_tdpbssd : x86_tdpbsud;
    return operands_.b_signed() ? x86_tdpbusd : x86_tdpbuud;
  }

  // From the rows that are multiplied to those of the next ones that are fetched with this panel, in elements:
  // each panel has its share.
  Value* rows_to_fetch(Value* columns_left) {
    Value* panel = b_.CreateUDiv(b_.CreateSub(columns(), columns_left), f_.word(kBlock));
    Value* row = b_.CreateMul(panel, b_.CreateMul(fetched_of_a_, f_.word(kFetched)));
    Value* next =
        b_.CreateExactSDiv(b_.CreateSub(b_.CreatePtrToInt(f_.argument(4), b_.getInt64Ty()),
                                        b_.CreatePtrToInt(f_.argument(1), b_.getInt64Ty())),
                           f_.word(size_));
    return b_.CreateAdd(next, b_.CreateMul(row, f_.argument(8)));
  }

  Value* next_rows_ = nullptr;
  Value* start_ = nullptr;       // of what is not added to C: zeros that change no sum
  Value* rounds_ = nullptr;      // steps of the depth, at least one
  Value* each_round_ = nullptr;  // rows of sums that each adds to C, or less
};

// The same in vectors, a row of C at a time.
class VectorCode : TileLoops {
 public:
  VectorCode(const MicroTarget& target, const ir::TileGemmMicro& micro, Operands operands,
             std::optional<int64_t> fixed_row, MicroFunction& f)
      : TileLoops(micro, operands, fixed_row, f),
        lanes_(target.lanes()),
        fma_(target.features.avx2),
        flushes_(target.features.x86 && !operands.are_integers()),
        dots_(target) {}

  void emit() {
    Value* before = flushes_ ? flush() : nullptr;
    each_panel({}, [&](Value* c_panel, Value* b, Value* columns_left, auto&&) {
      Value* width = at_most(columns_left, kBlock);
      each_rows(c_panel, {}, [&](Value* c_block, Value* a_block, Value* rows_left, auto&&) {
        f_.loop(
            at_most(rows_left, kBlock), 1, {c_block, a_block}, [&](Value*, const MicroValues& in) {
              f_.loop(width, lanes_, {}, [&](Value* j, const MicroValues&) {
                Value* place = f_.at(in[0], j);
                Value* b_at = b_.CreateGEP(packed_, b, b_.CreateMul(j, f_.word(group_)));
                f_.store(row(place, in[1], b_at), place);
                return MicroValues{};
              });
              return MicroValues{f_.at(in[0], m_.c_row), b_.CreateGEP(packed_, in[1], a_rows(1))};
            });
        return MicroValues();
      });
      return MicroValues();
    });
    if (before != nullptr) restore(before);
  }

 private:
  Value* at_most(Value* n, int64_t limit) {
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, n, f_.word(limit));
  }
  llvm::Type* groups() { return with_width(b_.getInt32Ty(), static_cast<int>(lanes_)); }

  // What a vector of C gets.
  Value* row(Value* c, Value* a, Value* b) {
    Value* zero = llvm::Constant::getNullValue(f_.vector(lanes_));
    Value* start = b_.CreateSelect(adds(), f_.load(f_.vector(lanes_), c), zero);
    Value* sum =
        f_.loop(steps(), 1, {a, b, in_parts() ? zero : start}, [&](Value*, const MicroValues& at) {
          Value* sum = at[2];
          for (ir::PartPair pair : ir::products_of(m_.parts))
            sum = product(sum, f_.at(packed_, at[0], pair.a * m_.a_part),
                          f_.at(packed_, at[1], pair.b * m_.b_part));
          return MicroValues{f_.at(packed_, at[0], m_.a_step),
                             f_.at(packed_, at[1], depth_ * kBlock), sum};
        })[2];
    return in_parts() ? b_.CreateSelect(adds(), b_.CreateFAdd(start, sum), sum) : sum;
  }

  // A tile's depth of k, added to `sum`.
  Value* product(Value* sum, Value* a, Value* b) {
    Value* zero = llvm::Constant::getNullValue(f_.vector(lanes_));
    const bool integers = operands_.are_integers();
    const MicroValues begin = integers ? MicroValues{a, b, sum} : MicroValues{a, b, zero, zero};
    const MicroValues end =
        f_.loop(f_.word(depth_ / group_), 1, begin, [&](Value*, const MicroValues& p) {
          const llvm::Align align(static_cast<uint64_t>(size_));
          Value* x = b_.CreateAlignedLoad(b_.getInt32Ty(), p[0], align);
          x = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), x);
          Value* y = b_.CreateAlignedLoad(groups(), p[1], align);
          MicroValues next = {f_.at(packed_, p[0], group_), f_.at(packed_, p[1], group_ * kBlock)};
          if (integers) {
            next.push_back(
                dots_.of_bytes(b_, p[2], x, y, operands_.a_signed(), operands_.b_signed()));
          } else {
            next.push_back(chain(even(x), even(y), p[2]));
            next.push_back(chain(odd(x), odd(y), p[3]));
          }
          return next;
        });
    return integers ? end[2] : b_.CreateFAdd(sum, b_.CreateFAdd(end[2], end[3]));
  }

  // The lower and the upper one of pairs.
  Value* even(Value* x) { return b_.CreateBitCast(b_.CreateShl(x, 16), f_.vector(lanes_)); }
  Value* odd(Value* x) { return b_.CreateBitCast(b_.CreateAnd(x, 0xffff0000), f_.vector(lanes_)); }
  // Products of bfloat16 are exact: without fma the bits differ only where one underflows or overflows.
  Value* chain(Value* x, Value* y, Value* sum) {
    if (fma_) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
    return b_.CreateFAdd(sum, b_.CreateFMul(x, y));
  }

  const int64_t lanes_;
  const bool fma_, flushes_;
  const Dots dots_;
};

}  // namespace

llvm::Function* tile_gemm_function(const MicroTarget& target, const ir::TileGemmMicro& given,
                                   Dtype a, Dtype b, std::optional<int64_t> fixed_row) {
  ir::TileGemmMicro m = given;
  if (m.parts > 1) {  // from here on in bfloat16
    for (int64_t* pairs : {&m.a_part, &m.a_step, &m.b_part, &m.b_panel}) *pairs *= 2;
    *fixed_row *= 2;
    a = b = Dtype::bfloat16;
  }
  const std::string name = fmt::format(
      "tile_gemm_{}_{}_{}_{}_{}_{}_{}_{}_{}{}{}", name_of(a), name_of(b), m.parts, m.a_part,
      fixed_row ? fmt::to_string(*fixed_row) : "in_place", m.a_step, m.b_part, m.b_panel, m.c_row,
      m.b_next == m.b_at ? "" : "_fetching", m.a_next == m.a_at ? "" : "_fetching_rows");
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 5, 5);
  if (target.features.tiles) {
    TileCode(m, {a, b}, fixed_row, f).emit();
  } else {
    VectorCode(target, m, {a, b}, fixed_row, f).emit();
  }
  return f.finish();
}

}  // namespace cermet::codegen
