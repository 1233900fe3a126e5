// SPDX-License-Identifier: MIT
// Graphs that differ in sizes alone, such as those of the steps of a loop whose arrays grow, need not be
// planned anew. The second graph of a class is planned with symbols for the numbers in which it differs
// from the first: what is computed from them is an expression, what they decide a guard. The program then
// serves all graphs of the class whose numbers pass the guards, and is what planning each would give.
#pragma once

#include <functional>
#include <memory>

#include "schedule/program.h"

namespace cermet {

// The launches of the graph in the order of its regions, without code.
using PlanWhole = std::function<std::shared_ptr<Program>(const TracedGraph& graph)>;

// Null: the graph is the first of its class, or the class is one of single sizes.
std::shared_ptr<Program> plan_by_class(const TracedGraph& graph, const PlanWhole& plan);

// What differs between two programs of one graph, neither with code; "": nothing.
std::string difference(const Program& a, const Program& b);

// Numbers that are expressions, as they are for these values (by expression), or as they are.
void fix_sizes(Program& program, std::span<const Number> values = {});

}  // namespace cermet
