// SPDX-License-Identifier: MIT
// A packed block of A times a packed block of B by tile instructions: for each panel of B, which stays in
// L1, all rows of A, which are in L2 and go past L1. Two by two tiles of C are kept over the depth; those of
// operands in several parts are added to C by vectors, so that no chain is longer than the depth. Tiles are
// configured for each call and released at its end, so a thread has no state outside it: nothing for
// forks, signal handlers and switches between threads to keep. Tile registers have fixed numbers: LLVM
// would put them on the stack and configure them itself.
//
// For processors without them, loops over vectors give the same bits. MXCSR is set for the call to flush
// subnormal numbers wherever vectors add, as tile instructions do whatever it says.
#include <fmt/format.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <array>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

constexpr int64_t kSide = ir::kTileSide, kDepth = ir::kTileDepth, kBlock = ir::kTileBlock;

using Value = llvm::Value;

// What both kinds of code walk through.
class TileLoops {
 protected:
  TileLoops(const ir::TileGemmMicro& micro, std::optional<int64_t> fixed_row, MicroFunction& f)
      : m_(micro),
        fixed_row_(fixed_row),
        f_(f),
        b_(f.builder()),
        packed_(f.builder().getInt16Ty()) {}

  Value* rows() { return f_.argument(4); }
  Value* columns() { return f_.argument(5); }
  Value* steps() { return b_.CreateAShr(b_.CreateAdd(f_.argument(6), f_.word(kDepth - 1)), 5); }
  // Elements of `rows` rows of A.
  Value* a_rows(int64_t rows) {
    if (fixed_row_) return f_.word(rows * *fixed_row_);
    return b_.CreateMul(f_.argument(7), f_.word(rows));
  }
  Value* adds() { return b_.CreateICmpNE(f_.argument(8), f_.word(0)); }

  // body(c, b, columns left) for each panel of B.
  template <typename F>
  void each_panel(F&& body) {
    next_ = f_.argument(3);
    f_.loop(columns(), kBlock, with_next({f_.argument(2)}), [&](Value* j, const MicroValues& in) {
      next_ = in.back();
      body(f_.at(f_.argument(0), j), in[0], b_.CreateSub(columns(), j));
      next_ = in.back();
      return with_next({f_.at(packed_, in[0], m_.b_panel)}, f_.word(m_.b_panel));
    });
  }
  // body(c, a, rows left) for each panel of A.
  template <typename F>
  void each_rows(Value* c, F&& body) {
    Value* fetched = b_.CreateMul(steps(), f_.word(fetched_step()));
    Value* next = next_;
    f_.loop(rows(), kBlock, with_next({c, f_.argument(1)}), [&](Value* i, const MicroValues& in) {
      next_ = in.back();
      body(in[0], in[1], b_.CreateSub(rows(), i));
      next_ = in.back();
      return with_next(
          {f_.at(in[0], kBlock * m_.c_row), b_.CreateGEP(packed_, in[1], a_rows(kBlock))}, fetched);
    });
    next_ = next;
  }

  // What is to be fetched is carried last, if anything is: a loop has few registers to spare.
  bool fetches() const { return m_.b_next != m_.b_at; }
  MicroValues with_next(MicroValues carried, Value* moved = nullptr) {
    if (!fetches()) return carried;
    carried.push_back(moved == nullptr ? next_ : b_.CreateGEP(packed_, next_, moved));
    return carried;
  }
  // Elements of the next panel of B that a step fetches: with kTiledRows rows, all of it.
  int64_t fetched_step() const { return m_.parts * kDepth * kBlock * kBlock / ir::kTiledRows; }

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

  // body(1) if no more than a tile is left, else body(2). Operands in parts come in large blocks, and code of
  // many products takes long to compile: for these it is always body(2).
  template <typename F>
  void by_tiles(Value* left, F&& body) {
    if (in_parts()) return body(2);
    f_.when(b_.CreateICmpSGT(left, f_.word(kSide)), [&] { body(2); });
    f_.when(b_.CreateICmpSLE(left, f_.word(kSide)), [&] { body(1); });
  }

  const ir::TileGemmMicro& m_;
  const std::optional<int64_t> fixed_row_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
  llvm::Type* const packed_;
  Value* next_ = nullptr;  // what is to be fetched
};

class TileCode : TileLoops {
 public:
  TileCode(const ir::TileGemmMicro& micro, std::optional<int64_t> fixed_row, MicroFunction& f)
      : TileLoops(micro, fixed_row, f) {}

  void emit() {
    Value* before = in_parts() ? flush() : nullptr;
    if (in_parts()) sums_ = aligned_sums();
    call(llvm::Intrinsic::x86_ldtilecfg, {configuration()});
    each_panel([&](Value* c_panel, Value* b, Value* columns_left) {
      by_tiles(columns_left, [&](int across) {
        each_rows(c_panel, [&](Value* c, Value* a, Value* rows_left) {
          by_tiles(rows_left, [&](int down) { block(down, across, c, a, b); });
        });
      });
    });
    call(llvm::Intrinsic::x86_tilerelease, {});
    if (before != nullptr) restore(before);
  }

 private:
  // In the frame, on a cache line. LLVM 19 fails on a frame that is itself so aligned.
  Value* aligned_sums() {
    constexpr int64_t kLine = 64, kElements = 4 * kSide * kSide;
    Value* frame =
        b_.CreateAlloca(llvm::ArrayType::get(f_.element(), kElements + kLine / 4), nullptr, "sums");
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
    if (in_parts()) return block_in_parts(down, across, c, a, b);
    f_.when(adds(), [&] {
      each_c(down, across, c, [&](int number, Value* at) {
        call(llvm::Intrinsic::x86_tileloadd64, {tile(number), at, stride(m_.c_row, 4)});
      });
    });
    f_.when(b_.CreateNot(adds()), [&] { clear(down, across); });
    multiply(down, across, a, b);
    store(down, across, c);
  }

  void block_in_parts(int down, int across, Value* c, Value* a, Value* b) {
    clear(down, across);
    multiply(down, across, a, b);
    f_.when(b_.CreateNot(adds()), [&] { store(down, across, c); });
    f_.when(adds(), [&] {
      const int64_t row = across * kSide;
      each_sum(down, across, [&](int number, int64_t at) {
        call(llvm::Intrinsic::x86_tilestored64, {tile(number), f_.at(sums_, at), stride(row, 4)});
      });
      f_.loop(f_.word(down * kSide), 1, {c, sums_}, [&](Value*, const MicroValues& at) {
        for (int64_t j = 0; j < row; j += kSide) {
          Value* place = f_.at(at[0], j);
          Value* sum = f_.load(f_.vector(kSide), f_.at(at[1], j));
          f_.store(b_.CreateFAdd(f_.load(f_.vector(kSide), place), sum), place);
        }
        return MicroValues{f_.at(at[0], m_.c_row), f_.at(at[1], row)};
      });
    });
  }

  void clear(int down, int across) {
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j) call(llvm::Intrinsic::x86_tilezero, {tile(of_c(i, j))});
  }

  void multiply(int down, int across, Value* a, Value* b) {
    Value* next = next_;
    f_.loop(steps(), 1, with_next({a, b}), [&](Value*, const MicroValues& at) {
      step(down, across, at[0], at[1]);
      next_ = at.back();
      if (fetches()) fetch(next_);
      return with_next({f_.at(packed_, at[0], m_.a_step), f_.at(packed_, at[1], kDepth * kBlock)},
                       f_.word(fetched_step()));
    });
    next_ = next;
  }

  // Into L2.
  void fetch(Value* from) {
    constexpr int64_t kLine = 32;  // elements
    for (int64_t at = 0; at < fetched_step(); at += kLine)
      b_.CreateIntrinsic(
          llvm::Intrinsic::prefetch, {from->getType()},
          {f_.at(packed_, from, at), b_.getInt32(0), b_.getInt32(2), b_.getInt32(1)});
  }

  void store(int down, int across, Value* c) {
    each_c(down, across, c, [&](int number, Value* at) {
      call(llvm::Intrinsic::x86_tilestored64, {tile(number), at, stride(m_.c_row, 4)});
    });
  }

  template <typename F>
  void each_c(int down, int across, Value* c, F&& body) {
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j) body(of_c(i, j), f_.at(c, i * kSide * m_.c_row + j * kSide));
  }
  // The same of a block without gaps.
  template <typename F>
  void each_sum(int down, int across, F&& body) {
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j) body(of_c(i, j), (i * across * kSide + j) * kSide);
  }

  // kDepth of k. A part that the next product takes as well stays where it is.
  void step(int down, int across, Value* a, Value* b) {
    ir::PartPair loaded = {-1, -1};
    Value* lower = b_.CreateGEP(packed_, a, a_rows(kSide));
    for (ir::PartPair pair : ir::products_of(m_.parts)) {
      for (int i = 0; i < down; ++i) {
        if (pair.a != loaded.a)
          call(llvm::Intrinsic::x86_tileloaddt164,
               {tile(of_a(i)), f_.at(packed_, i == 0 ? a : lower, pair.a * m_.a_part), a_rows(2)});
        for (int j = 0; j < across; ++j) {
          if (i == 0 && pair.b != loaded.b)
            call(llvm::Intrinsic::x86_tileloadd64,
                 {tile(of_b(j)), f_.at(packed_, b, pair.b * m_.b_part + j * kSide * 2),
                  stride(kBlock * 2, 2)});
          call(llvm::Intrinsic::x86_tdpbf16ps, {tile(of_c(i, j)), tile(of_a(i)), tile(of_b(j))});
        }
      }
      loaded = pair;
    }
  }

  Value* sums_ = nullptr;  // of a block, on their way to C
};

// The same in vectors, a row of C at a time.
class VectorCode : TileLoops {
 public:
  VectorCode(const MicroTarget& target, const ir::TileGemmMicro& micro,
             std::optional<int64_t> fixed_row, MicroFunction& f)
      : TileLoops(micro, fixed_row, f),
        lanes_(target.lanes()),
        fma_(target.features.avx2),
        x86_(target.features.x86) {}

  void emit() {
    Value* before = x86_ ? flush() : nullptr;
    each_panel([&](Value* c_panel, Value* b, Value* columns_left) {
      Value* width = at_most(columns_left, kBlock);
      each_rows(c_panel, [&](Value* c_block, Value* a_block, Value* rows_left) {
        f_.loop(
            at_most(rows_left, kBlock), 1, {c_block, a_block}, [&](Value*, const MicroValues& in) {
              f_.loop(width, lanes_, {}, [&](Value* j, const MicroValues&) {
                Value* place = f_.at(in[0], j);
                Value* b_at = b_.CreateGEP(packed_, b, b_.CreateShl(j, 1));
                f_.store(row(place, in[1], b_at), place);
                return MicroValues{};
              });
              return MicroValues{f_.at(in[0], m_.c_row), b_.CreateGEP(packed_, in[1], a_rows(1))};
            });
      });
    });
    if (before != nullptr) restore(before);
  }

 private:
  Value* at_most(Value* n, int64_t limit) {
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, n, f_.word(limit));
  }
  llvm::Type* pairs() { return with_width(b_.getInt32Ty(), static_cast<int>(lanes_)); }

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
                             f_.at(packed_, at[1], kDepth * kBlock), sum};
        })[2];
    return in_parts() ? b_.CreateSelect(adds(), b_.CreateFAdd(start, sum), sum) : sum;
  }

  // kDepth of k, added to `sum`.
  Value* product(Value* sum, Value* a, Value* b) {
    Value* zero = llvm::Constant::getNullValue(f_.vector(lanes_));
    const MicroValues chains =
        f_.loop(f_.word(kDepth / 2), 1, {a, b, zero, zero}, [&](Value*, const MicroValues& p) {
          Value* x = b_.CreateAlignedLoad(b_.getInt32Ty(), p[0], llvm::Align(2));
          x = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), x);
          Value* y = b_.CreateAlignedLoad(pairs(), p[1], llvm::Align(2));
          return MicroValues{f_.at(packed_, p[0], 2), f_.at(packed_, p[1], 2 * kBlock),
                             chain(even(x), even(y), p[2]), chain(odd(x), odd(y), p[3])};
        });
    return b_.CreateFAdd(sum, b_.CreateFAdd(chains[2], chains[3]));
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
  const bool fma_, x86_;
};

}  // namespace

llvm::Function* tile_gemm_function(const MicroTarget& target, const ir::TileGemmMicro& m,
                                   std::optional<int64_t> fixed_row) {
  const std::string name =
      fmt::format("tile_gemm_{}_{}_{}_{}_{}_{}_{}{}", m.parts, m.a_part,
                  fixed_row ? fmt::to_string(*fixed_row) : "in_place", m.a_step, m.b_part,
                  m.b_panel, m.c_row, m.b_next == m.b_at ? "" : "_fetching");
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 4, 5);
  if (target.features.tiles) {
    TileCode(m, fixed_row, f).emit();
  } else {
    VectorCode(target, m, fixed_row, f).emit();
  }
  return f.finish();
}

}  // namespace cermet::codegen
