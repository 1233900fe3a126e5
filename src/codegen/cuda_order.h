// SPDX-License-Identifier: MIT
// Where the threads of a block must wait for each other: which memory they touch, and whether what
// two stretches of code touch of one buffer is surely touched by the same threads.
#pragma once

#include <string>
#include <vector>

#include "kernel/ir.h"

namespace cermet::codegen {

// Touches of one buffer with equal ways, if not empty, reach each element from one thread only: "0"
// is thread 0; else the way tells how a lane loop's iterations fall to threads and elements.
// `parts` are the expressions that a way is made of.
struct Touch {
  int buffer;
  bool write;
  std::string way = {};
  std::vector<ir::ExprId> parts = {};
  bool operator==(const Touch&) const = default;
};
using Touches = std::vector<Touch>;

class ThreadOrder {
 public:
  explicit ThreadOrder(const ir::Kernel& kernel) : kernel_(kernel) {}

  // What one statement touches, with all that is in it.
  Touches of(const ir::Stmt& stmt) const;
  // What the loop's body leaves behind for its next iteration.
  Touches around(const ir::For& loop) const;
  // Whether a barrier has to stand before what touches these; they are kept in mind from here on.
  bool needs_barrier(const Touches& touches);
  // To be called where nothing is known of earlier code but that it may have touched these.
  void add(const Touches& touches);
  const Touches& recent() const { return recent_; }
  void clear() { recent_.clear(); }

 private:
  void reads(ir::ExprId id, const std::string& way, Touches& to) const;
  void reads(const ir::Stmt& stmt, const std::string& way, Touches& to) const;
  void in_lanes(const std::vector<ir::Stmt>& stmts, const ir::For& loop, Touches& to) const;
  Touch lane_touch(ir::BufferRef buffer, const ir::Index& index, const ir::For& loop,
                   bool write) const;

  const ir::Kernel& kernel_;
  Touches recent_;
};

// A lane loop whose iterations the block's threads share; one that holds another is run serially.
bool is_shared_loop(const ir::Kernel& kernel, const ir::For& loop);

// How: without folds iteration by iteration (lanes 0). With folds a thread takes the elements of
// one of `lanes` lanes in a block of `block` elements, so that every fold's lane is stepped by one
// thread.
struct LaneShare {
  int lanes = 0;
  int64_t block = 0;
  std::vector<const ir::Fold*> folds = {};
};
LaneShare share_of(const ir::For& loop);

}  // namespace cermet::codegen
