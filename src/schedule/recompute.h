// SPDX-License-Identifier: MIT
// What it takes to compute a value again where it is used, instead of storing it.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "schedule/plan_graph.h"

namespace cermet::schedule {

inline constexpr int64_t kLargeBytes = 1 << 20;

Dim bytes_of(const PlanGraph& graph, Id id);

// Instructions of one evaluation of a map row in the common case, math codes counted by their expansion.
int op_cost(const PlanGraph& graph, Id id);

// What a value is computed from, element by element.
struct Recipe {
  std::set<Id> sources;
  Dim stored = 0;  // bytes of those that are not in memory
  int ops = 0;
};
// The predicate tells what is in memory whatever becomes of the value. nullopt: to compute it takes longer
// than to store and load it.
using InMemory = std::function<bool(Id)>;
std::optional<Recipe> find_recipe(const PlanGraph& graph, Id id, const InMemory& in_memory);

// Instructions to make one element of the value from what is in memory, folds or leaves, by maps that have
// no more elements: about, and counted up to a bound.
int cost_of_chain(const PlanGraph& graph, Id id, const InMemory& in_memory);

// The value comes in few ops from numbers, positions, one draw of random bits, and values much smaller than
// itself: a mask, a bias of distances, dropout.
bool is_from_little(const PlanGraph& graph, Id id);

// Whether some op of more than `ops` instructions, whose result is not in memory, is near above the value.
bool needs_costly(const PlanGraph& graph, Id id, int ops, const InMemory& in_memory);

// The one row that a product has of an operand; without packing it is made anew for each column, which
// takes more than a launch of its own.
bool is_dear_row(const PlanGraph& graph, Id id, Id product, const InMemory& in_memory);

}  // namespace cermet::schedule
