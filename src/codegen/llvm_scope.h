// SPDX-License-Identifier: MIT
// A Scope is a stretch of code with what is known in it: the chain of scopes from the innermost out is
// where an expression may already have a value.
#pragma once

#include <llvm/ADT/SmallVector.h>

#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "codegen/lane_analysis.h"
#include "codegen/llvm_op.h"
#include "codegen/llvm_short.h"

namespace cermet::codegen {

// The lane loop around the code at hand, seen from one step of it.
struct Lanes {
  const LaneAnalysis* analysis;
  int width;
  llvm::Value* first = nullptr;   // the axis in lane 0
  llvm::Value* active = nullptr;  // <width x i1>: lanes in range; null: all
  llvm::Value* count = nullptr;   // i64: how many those are; null: width
  llvm::Value* trips = nullptr;   // i64: lanes of the whole loop
  // Where the accesses of analysis->units() start, for the element `offset`; empty: by address.
  llvm::SmallVector<llvm::Value*, 8> pointers = {};
  llvm::Value* offset = nullptr;  // i64
  llvm::Value* full =
      nullptr;          // i64: the offset below which all lanes are in range; null: see `active`
  bool masked = false;  // accesses through pointers are of active lanes only
  bool once = false;    // the code runs once for each run of the loop at most
  bool mended = false;  // folds' states of other lanes are put back by the loop
  // For each of them, if any: the offset up to which whole lines are stored past the cache; null: none.
  llvm::SmallVector<llvm::Value*, 8> past = {};
};

enum class ScopeKind : uint8_t { function, loop, conditional, straight };

// A divisor that is the same in all lanes, as vectors.
struct Divisor {
  llvm::Value* value = nullptr;
  llvm::Value* inverse = nullptr;  // 1 / value, rounded ...
  llvm::Value* second = nullptr;   // ... and what that leaves
  llvm::Value* nothing = nullptr;  // 0 / value
  llvm::Value* unfit = nullptr;    // i1: nothing is divided by it in the fast way
};

struct Scope {
  using AddressKey = std::tuple<llvm::Value*, ir::ExprId, int32_t>;
  ScopeKind kind = ScopeKind::straight;
  Scope* parent = nullptr;
  llvm::BasicBlock* preheader = nullptr;  // loops
  const std::set<int>* writes = nullptr;  // loops: buffers written
  Lanes* lanes = nullptr;
  const Values* state = nullptr;  // inside a fold's expressions
  const Values* other = nullptr;
  std::unordered_map<ir::ExprId, llvm::Value*> natural = {};  // scalar where possible, else vector
  std::unordered_map<ir::ExprId, llvm::Value*> base = {};     // lane 0, scalar
  std::map<std::pair<ir::ExprId, int>, llvm::Value*> splat = {};  // by width
  std::map<AddressKey, llvm::Value*> addresses = {};
  std::map<std::pair<ir::ExprId, int>, Divisor> divisors = {};  // by width
  std::map<std::pair<ir::ExprId, int>, ShortDivisor> short_divisors = {};
  std::map<std::tuple<ir::ExprId, ir::ExprId, int>, ShortDivision> short_divisions = {};
  std::map<std::tuple<ir::ExprId, ir::ExprId, int>, ShortLanes> short_lanes = {};
  std::map<std::pair<const ir::Expr*, int>, ShortWindow> windows = {};
  std::unordered_map<ir::ExprId, Scope*> home = {};
};

// What the innermost scope from `scope` out knows by that key; null: none does.
template <class Map>
const typename Map::mapped_type* find_in(const Scope* scope, Map Scope::* map,
                                         const typename Map::key_type& key) {
  for (; scope != nullptr; scope = scope->parent)
    if (const auto it = (scope->*map).find(key); it != (scope->*map).end()) return &it->second;
  return nullptr;
}

}  // namespace cermet::codegen
