// SPDX-License-Identifier: MIT
// Keys and values of attention: operands of its two products, seen through what repeats them for heads
// that share them, and through reshapes and transposes of the products' results, as an einsum or
// grouped heads make them. Each leading axis of the scores is told apart into axes of the operand and
// repetition along it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/pattern.h"

namespace cermet::attention {

struct Factor {
  Dim size;
  int axis;  // of the base; -1: repeated along it
};
using Factors = std::vector<Factor>;
struct Operand {
  NodeRef base;
  bool swapped;               // the last two axes
  std::vector<Factors> axes;  // leading axes, from what they are made
};

bool is_one(const Dim& dim);

// Of an array in which an axis has so many behind it: with that axis last.
Shape in_order(Shape shape, int behind);
array in_order(const array& a, int behind);

// A reshape or transpose of rows, in order: it leaves the last axis.
struct Move {
  Axes order;  // of a transpose
  Shape from, to;
  Stream stream;

  bool is_reshape() const { return order.empty(); }
};
// The node as a move of an array in order, where `behind` tells of its result, and then of its input. Nothing
// may be left of it in order. nullopt: it is none.
std::optional<Move> move_of(const Node& node, int& behind);
// Nothing is left of it.
bool stays(const Move& move);
// The same moves of another array with these rows, whose last axis has this size.
array moved(array a, std::span<const Move> moves, const Dim& last);

// The operand, and what it is behind repeats, broadcasts and casts from halves.
Operand whole_operand(const NodeRef& node, bool swapped);
Operand find_operand(const NodeRef& node, bool swapped, const PatternGraph& graph);
// The axes of a moved product but the last, in an order that has what its rows are made of behind what they
// share with the operand. nullopt: they get mixed.
std::optional<Axes> rows_last(const Shape& product, std::span<const Move> moves);
// The operand of a product of the given shape, whose rows share it, where the product's result is moved,
// and then has its axes in this order: `moves` from the product on, or, `undone`, from the last that leads
// to it. nullopt: its axes and those of the rows get mixed.
std::optional<Operand> moved_operand(const NodeRef& node, bool swapped, const Shape& product,
                                     std::span<const Move> moves, bool undone, const Axes& order);

bool repeat_alike(const Operand& a, const Operand& b);
// The first axis with repetition, behind which all is repeated; their number if there is none, -1 if
// what is repeated is not last.
int first_repeated(const Operand& operand);

}  // namespace cermet::attention
