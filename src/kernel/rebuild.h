// SPDX-License-Identifier: MIT
// Rebuilding a kernel expression by expression: what every rewriting pass stands on. Statements
// keep their order and meaning; expressions that no statement reaches are dropped; equal ones are
// shared.
#pragma once

#include <functional>

#include "kernel/builder.h"

namespace cermet::ir {

// Called with the old id and a copy of the old expression whose operands are already ids of `to`.
// Gives the id in `to` that stands for it; to.intern(expr) keeps it as it is.
using ExprRule = std::function<ExprId(Builder& to, ExprId old, Expr expr)>;

// `root` of `from`, rebuilt in `to`. An expression found in `memo` is replaced by what memo says,
// else it is rebuilt by `rule` (absent: kept) and remembered there. `from` may be to.kernel()
// itself.
ExprId rebuild_expr(Builder& to, const Kernel& from, ExprId root, ExprMap& memo,
                    const ExprRule& rule = {});

class Rebuilder {
 public:
  // Starts `to` with the parameters, axes, values and locals of `from` under their old ids.
  explicit Rebuilder(const Kernel& from, ExprRule rule = {});

  Builder& to() { return to_; }
  ExprMap& memo() { return memo_; }
  ExprId operator()(ExprId old);      // kNone stays kNone
  Stmt operator()(const Stmt& stmt);  // with the statements inside it
  // Appends the rebuilt statement to the kernel's body.
  void append(const Stmt& stmt) { to_.kernel().body.push_back((*this)(stmt)); }
  Kernel take() { return to_.take(); }

 private:
  const Kernel& from_;
  ExprRule rule_;
  Builder to_;
  ExprMap memo_;
};

// The kernel with every expression rebuilt by the rule. Without one: dead expressions dropped and
// expressions numbered in the order of their first use.
Kernel rebuild(const Kernel& kernel, const ExprRule& rule = {});

}  // namespace cermet::ir
