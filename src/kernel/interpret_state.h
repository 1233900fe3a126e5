// SPDX-License-Identifier: MIT
// What the interpreter's statements stand on: cells, the values of expressions at the current
// point, checked memory. An expression list (Tape) is evaluated whole, so every load in it must be
// in bounds.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel/interpret.h"
#include "kernel/micro.h"
#include "kernel/scalar_ops.h"

namespace cermet::ir {

using Tape = std::vector<ExprId>;  // ascending: operands before users; constants left out

// Which expressions of a statement: all, or those of its fold states.
enum class Part : uint8_t { all, init, step, merge };

// A fold under way. State i of lane l is lane[l * states + i]; so are finished blocks.
struct FoldRun {
  const Stmt* stmt = nullptr;
  const std::vector<FoldState>* states = nullptr;
  int64_t lanes = 1;
  int64_t block = 256;
  int64_t element = 0;
  std::vector<uint64_t> init = {}, lane = {}, blocks = {}, carry = {};
};

// A sum of products in more than the precision of `acc`, rounded once; integers wrap.
class ContractSum {
 public:
  explicit ContractSum(Dtype acc) : acc_(acc) {}
  void add(Dtype a_dtype, uint64_t a, Dtype b_dtype, uint64_t b);
  uint64_t result() const;

 private:
  Dtype acc_;
  uint64_t integer_ = 0;
  long double floating_ = 0;
};

class Evaluator {
 public:
  Evaluator(const Kernel& kernel, std::span<const Argument> arguments,
            std::span<const int64_t> extents, std::span<const int64_t> strides,
            Arithmetic arithmetic);

 protected:
  // The dtype that cells of `dtype` hold.
  Dtype wide(Dtype dtype) const;
  Dtype cell_dtype(ExprId id) const { return wide(kernel_[id].dtype); }
  int64_t size_of(const Size& size) const;

  const Tape& tape_of(const Stmt& stmt, Part part);
  void evaluate(const Tape& tape);  // into cells_
  std::vector<AxisId> used_axes(const Tape& tape) const;

  // Room for a value over axes; gives its first cell.
  uint64_t* allocate(ValueId value, std::vector<AxisId> axes);
  uint64_t* cell_of(ValueId value);  // at the current point
  uint64_t* single(ValueId value);   // of a value after `tile`
  std::vector<std::vector<uint64_t>> values_of_all() const;
  void swap_values(std::vector<std::vector<uint64_t>>& cells);

  int64_t offset(const Index& index) const;
  uint64_t read(BufferRef buffer, int64_t at) const;  // as a cell
  void write(BufferRef buffer, int64_t at, uint64_t cell);
  void poison(const Local& local);  // allocates, too
  void poison_thread_locals();
  void micro(const Micro& s);

  const Kernel& kernel_;
  std::vector<int64_t> extents_;      // by axis
  std::vector<int64_t> point_;        // by axis
  std::vector<uint64_t> cells_;       // by expression
  const uint64_t* states_ = nullptr;  // read by State
  const uint64_t* others_ = nullptr;  // read by Other

 private:
  struct ValueCells {
    std::vector<AxisId> axes;
    size_t states = 1;
    std::vector<uint64_t> cells;
  };

  uint64_t evaluate(ExprId id, const Expr& e);
  uint64_t operate(const Expr& e);
  uint64_t get(const Expr& e);
  size_t value_offset(const ValueCells& v) const;
  char* element(BufferRef buffer, int64_t at) const;
  uint64_t undefined(BufferRef local) const;  // the cell of what was never stored
  void gemm(const GemmMicro& m);
  void tile_gemm(const TileGemmMicro& m);
  uint64_t tile_sum(const TileGemmMicro& m, int64_t a, int64_t b, uint64_t start) const;
  void transpose(const TransposeMicro& m);
  void turn(const TurnMicro& m);
  void rows(const RowsMicro& m);
  void pack(const PackMicro& m);
  void panel(const PanelMicro& m);
  void constants();
  void push_tape(ExprId root, Tape& tape);

  std::span<const Argument> arguments_;
  std::span<const int64_t> strides_;
  const bool wide_;
  std::vector<ValueCells> values_;
  std::vector<std::vector<uint64_t>> locals_;
  std::vector<bool> stored_;      // by local: since it was poisoned
  std::vector<uint64_t> second_;  // threefry's second result, by expression
  std::unordered_map<const Stmt*, std::array<std::pair<bool, Tape>, 4>> tapes_;
  std::vector<bool> seen_;
};

}  // namespace cermet::ir
