// SPDX-License-Identifier: MIT
// Tiled kernel IR to the text of CUDA entries. An item is a thread block's: what stands outside
// lane loops is computed by every thread, with equal values; thread 0 alone writes memory there.
// Where the code at hand is one thread's own (a lane loop's iteration, what thread 0 writes, items
// without lane loops, which are threads' rather than blocks'), loops and merges are plain ones.
//
// Names: pK a scalar parameter, bK a buffer, lK a Local, nK an extent, sK a stride, aK a loop
// variable, vK a value (a struct with states s0, s1 .. if it is a fold's), xK the value of an
// expression.
#pragma once

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/cuda_order.h"

namespace cermet::codegen {

class CudaEmitter {
 public:
  explicit CudaEmitter(const ir::Kernel& kernel);

  // One chunk loop as a function; `number` of them stand before it, of which some may have failed.
  std::string entry(const ir::For& chunk, const std::string& symbol, int number,
                    bool may_have_failed);
  // The structs that the entries need.
  std::string structs() const;

 private:
  struct Scope {
    std::unordered_map<ir::ExprId, std::string> names = {};
  };
  // A failed Check in a lane loop: the variable that notes it, the label that ends the iteration.
  struct Escape {
    std::string failure, label, iteration;
  };

  // --- Text.
  template <typename... T>
  void line(fmt::format_string<T...> format, T&&... arguments) {
    add_line(fmt::format(format, std::forward<T>(arguments)...));
  }
  template <typename... T>
  void open(fmt::format_string<T...> format, T&&... arguments) {
    line(format, std::forward<T>(arguments)...);
    ++depth_;
    scopes_.emplace_back();
  }
  void add_line(const std::string& text);
  void close(const char* end = "}");
  std::string fresh(char prefix) { return fmt::format("{}{}", prefix, next_++); }
  // Declares a name of the record once in the entry.
  std::string declared(std::string name, const std::string& declaration);

  // --- Expressions.
  std::string value(ir::ExprId id);  // a name or a constant
  std::string compute(const ir::Expr& expr);
  std::string defined(Dtype dtype, const std::string& text);
  std::string rare(const ir::Expr& expr);
  std::string load(const ir::Expr& expr);
  // Evaluates what needs no state, so that it is found by what comes after the step.
  void prepare(ir::ExprId id);
  std::string scalar(ir::ParamId id);
  std::string extent(ir::AxisId id);
  std::string size(const ir::Size& size);
  Dtype dtype_of(ir::BufferRef buffer) const;
  std::string buffer(ir::BufferRef buffer);
  void thread_locals();
  std::string status();
  std::string stride(int32_t stride);
  std::string element(ir::BufferRef buffer, const ir::Index& index);
  std::string word(size_t number) const { return fmt::format("record.word[{}]", number); }
  std::string item_key() const { return fmt::format("{}LL << 48 | {}", number_, item_); }

  // --- Statements (cuda_emit.cpp).
  void statements(const std::vector<ir::Stmt>& stmts);
  void statement(const ir::Stmt& stmt);
  void store(const ir::Store& store);
  void update(const ir::Update& update);
  void update_complex_at(const ir::Update& update, const std::string& place, const std::string& re);
  template <typename F>
  void write(ir::BufferRef target, ir::ExprId mask, F&& f);
  void check(const ir::Check& check);
  void micro(const ir::Micro& micro);
  void forget(const std::set<int>& buffers);

  // --- Loops and folds (cuda_fold.cpp).
  void serial_loop(const ir::For& loop);
  void serial_folds_end(const ir::For& loop, const std::vector<const ir::Fold*>& folds,
                        const std::string& begin, const std::string& end);
  void lane_loop(const ir::For& loop);
  void lane_body(const ir::For& loop);
  void lane_folds(const ir::For& loop, const LaneShare& share, const std::string& begin,
                  const std::string& end);
  void fold_step(const ir::Fold& fold);
  void merge(const ir::Merge& merge);
  std::string state_struct(const std::vector<ir::FoldState>& states);
  int struct_bytes(const std::vector<ir::FoldState>& states) const;
  // Declares the struct of a fold's initial states and the function that merges two.
  void fold_parts(const std::vector<ir::FoldState>& states, ir::ValueId value);
  std::string states(const std::vector<ir::FoldState>& list, ir::ExprId ir::FoldState::* part);
  std::string exchange(const std::vector<ir::FoldState>& states, int for_each_thread);
  bool has_room_for_tree(const std::vector<ir::FoldState>& states);  // and takes it

  const ir::Kernel& kernel_;
  std::vector<std::set<int>> reads_;  // by expression: buffers it reads from
  std::vector<bool> stateful_;        // by expression: needs State or Other
  std::vector<bool> folded_;          // by value: a struct of states
  std::map<std::string, std::string> structs_;
  ThreadOrder order_;

  // Of the entry at hand.
  std::string text_, prologue_;
  int depth_ = 0, next_ = 0, number_ = 0;
  std::string item_;
  bool alone_ = false;  // the code at hand is one thread's
  int exchange_bytes_ = 0, tree_bytes_ = 0;
  std::set<std::string> declared_;
  std::vector<Scope> scopes_;
  const Escape* escape_ = nullptr;
  std::string state_, other_;  // structs that State and Other mean
};

}  // namespace cermet::codegen
