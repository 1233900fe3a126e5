// SPDX-License-Identifier: MIT
#include "ops/cotangent_sum.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "graph/meant_scope.h"
#include "ops/ops.h"

namespace cermet {

namespace {

// So many padded blocks are added where they are used, in one kernel, if there is anything between them.
constexpr size_t kFewBlocks = 8;

bool is_zero_full(const Node& node) {
  const auto* full = std::get_if<FullParams>(&node.params);
  return full != nullptr && full->value.expr == 0 && full->value.integer == 0 &&
         full->value.real_imag == 0.0;
}

bool is_padded(const Node& node) { return node.row == &rows::pad && is_zero_full(*node.inputs[1]); }

bool is_scattered(const Node& node) {
  const auto* p = std::get_if<GatherParams>(&node.params);
  return (node.row == &rows::scatter || node.row == &rows::scatter_along_axis) &&
         p->reduce == static_cast<int>(ScatterReduce::add) && is_zero_full(*node.inputs[0]);
}

// Values of a sum's shape that are zero but for a block.
struct Block {
  array values;
  PadParams around;

  array padded() const {
    PadWidths widths;
    for (int axis = 0; axis < values.ndim(); ++axis)
      widths.emplace_back(around.low.dim(axis), around.high.dim(axis));
    return pad(values, widths, full({}, number(0.0), values.dtype()));
  }
  const Dim& begin(int axis) const { return around.low.dim(axis); }
  Dim end(int axis) const { return plus(begin(axis), values.shape().dim(axis)); }
  // They differ in where they lie along the axis alone.
  bool is_beside(const Block& other, int axis, const auto& equal) const {
    for (int i = 0; i < values.ndim(); ++i)
      if (i != axis && !(equal(around.low.dim(i), other.around.low.dim(i)) &&
                         equal(around.high.dim(i), other.around.high.dim(i))))
        return false;
    return true;
  }
};

// Blocks one behind the other along the axis, with zeros between them, as one.
Block joined(const std::vector<Block>& blocks, int axis) {
  if (blocks.size() == 1) return blocks[0];
  Arrays parts;
  Dim end = blocks[0].begin(axis);
  for (const Block& block : blocks) {
    if (!same_size(end, block.begin(axis))) {
      Shape shape = block.values.shape();
      shape.dim(axis) = minus(block.begin(axis), end);
      parts.push_back(zeros(shape, block.values.dtype()));
    }
    parts.push_back(block.values);
    end = block.end(axis);
  }
  PadParams around = blocks[0].around;
  around.high.dim(axis) = blocks.back().around.high.dim(axis);
  return {concatenate(parts, axis), std::move(around)};
}

// As few blocks as joining along the axis gives: each goes behind the first one that ends before it.
std::vector<Block> joined_along(std::vector<Block> blocks, int axis) {
  std::ranges::stable_sort(blocks, [axis](const Block& a, const Block& b) {
    return is_less(a.begin(axis), b.begin(axis));
  });
  std::vector<std::vector<Block>> rows;
  for (Block& block : blocks) {
    const auto row = std::ranges::find_if(rows, [&](const std::vector<Block>& r) {
      return !is_less(block.begin(axis), r.back().end(axis)) &&
             r.back().is_beside(block, axis, same_size);
    });
    if (row == rows.end()) rows.push_back({std::move(block)});
    else row->push_back(std::move(block));
  }
  std::vector<Block> result;
  result.reserve(rows.size());
  for (const std::vector<Block>& row : rows) result.push_back(joined(row, axis));
  return result;
}

// Of one expression: no guard is left where symbolic sizes happen to be equal.
bool is_one_size(const Dim& a, const Dim& b) { return a.expr == b.expr && a.value == b.value; }

// All blocks, in the order in which each begins along the axis where another ends; empty: there is none.
std::vector<Block> chained(std::vector<Block> blocks, int axis) {
  std::vector<Block> chain{std::move(blocks.back())};
  blocks.pop_back();
  while (!blocks.empty()) {
    const auto follows = [axis](const Block& a, const Block& b) {
      return is_one_size(a.end(axis), b.begin(axis)) && a.is_beside(b, axis, is_one_size);
    };
    const auto next = std::ranges::find_if(
        blocks, [&](const Block& b) { return follows(chain.back(), b) || follows(b, chain[0]); });
    if (next == blocks.end()) return {};
    chain.insert(follows(chain.back(), *next) ? chain.end() : chain.begin(), std::move(*next));
    blocks.erase(next);
  }
  return chain;
}

array sum_of_padded(const Arrays& padded) {
  if (padded.size() == 1) return padded[0];
  Arrays parts = padded;
  std::vector<Block> blocks;
  for (const array& a : padded)
    blocks.push_back({array(a.node()->inputs[0]), std::get<PadParams>(a.node()->params)});
  // Zero is added to each element once, so that none becomes -0, as if they were padded and added.
  if (blocks.size() <= kFewBlocks) {
    for (int axis = padded[0].ndim(); axis-- > 0;)
      if (const std::vector<Block> chain = chained(blocks, axis); !chain.empty())
        return cermet::add(joined(chain, axis).padded(), full({}, number(0.0), padded[0].dtype()));
  }
  if (padded.size() > kFewBlocks) {
    for (int axis = padded[0].ndim(); axis-- > 0;) blocks = joined_along(std::move(blocks), axis);
    parts.clear();
    for (const Block& block : blocks) parts.push_back(block.padded());
  }
  array sum = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) sum = add(sum, parts[i]);
  return sum;
}

// Each into the sum of those before it, in place.
array sum_of_scattered(const Arrays& scattered) {
  array sum = scattered[0];
  for (size_t i = 1; i < scattered.size(); ++i) {
    const Node& node = *scattered[i].node();
    const MeantScope meant(node);
    Arrays inputs = {sum};
    for (size_t k = 1; k < node.inputs.size(); ++k) inputs.emplace_back(node.inputs[k]);
    sum = make_node(*node.row, std::move(inputs), node.params, node.stream);
  }
  return sum;
}

}  // namespace

void CotangentSum::add(array cotangent) {
  const Node& node = *cotangent.node();
  if (is_padded(node)) padded_.push_back(std::move(cotangent));
  else if (is_scattered(node)) scattered_.push_back(std::move(cotangent));
  else whole_ = whole_ ? cermet::add(*whole_, cotangent) : std::move(cotangent);
}

array CotangentSum::result() const {
  std::optional<array> sum = whole_;
  const auto join = [&](const array& other) { sum = sum ? cermet::add(*sum, other) : other; };
  if (!padded_.empty()) join(sum_of_padded(padded_));
  if (!scattered_.empty()) join(sum_of_scattered(scattered_));
  return *sum;
}

}  // namespace cermet
