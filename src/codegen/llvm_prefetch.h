// SPDX-License-Identifier: MIT
// The prefetches of a lane loop: of what it fetches for others (prefetch.h), and of its own streams.
#pragma once

#include <map>
#include <vector>

#include "codegen/llvm_emit.h"

namespace cermet::codegen {

class LanePrefetches {
 public:
  explicit LanePrefetches(Emitter& emitter) : e_(emitter), b_(emitter.builder()) {}

  // What is planned for the loop over `count` elements, which is known from `home` on. waits: its steps are so long
  // that the processor sees few of its loads at a time.
  void find_ahead(const ir::For& loop, Scope* home, llvm::Value* count, bool waits);
  // Of what the loop loads from `first` on what comes soon: not every processor sees where masked loads lead.
  void add_stream(ir::BufferRef buffer, llvm::Value* first);
  // At the loop's element k, counted from its begin; `within` a round: of a line once.
  void fetch(llvm::Value* k, int64_t within = 0);
  void into_l1(llvm::Value* pointer);

 private:
  using Value = llvm::Value;

  struct Fetched {
    llvm::Type* type;
    Value* pointer;  // at element 0
    Value* step;     // null: 1
    unsigned locality;
    Value* halvings = nullptr;  // of the distance from element to element; null: none
  };

  // Of a loop, in which its axis is `at`.
  struct Round {
    ir::AxisId axis;
    Value* at;
    std::map<ir::ExprId, Value*>& made;
  };

  Value* i64(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  int64_t bytes_of(ir::BufferRef buffer) const {
    return static_cast<int64_t>(size_of(e_.dtype_of(buffer)));
  }
  void find_picked(const Ahead& ahead, const ir::For& loop, Value* count);
  Value* address_in(const Round& round, ir::BufferRef buffer, const ir::Index& index);
  Value* value_in(const Round& round, ir::ExprId id);
  // Elements from the loop's first one to what is fetched.
  struct Apart {
    Value* usual;           // null: nothing
    Value* soon = nullptr;  // of a stream, into L1; null: none
    Value* halvings = nullptr;
  };
  Apart apart(const Ahead& ahead, const ir::For& loop, Value* count);
  void stream(const Ahead& ahead, const ir::For& loop, Value* count, Apart& to);
  void halve(const Ahead& ahead, Value* count, Apart& to);
  Value* scaled(Value* elements, Value* step);
  Value* distance(const Ahead& ahead);
  void prefetch(Value* pointer, unsigned locality);

  Emitter& e_;
  llvm::IRBuilder<>& b_;
  bool waits_ = false;
  std::vector<Fetched> fetched_;
};

}  // namespace cermet::codegen
