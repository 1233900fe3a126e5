// SPDX-License-Identifier: MIT
// Products of products, as attention and its gradient are: what their writer must know. The first
// products make scores over (batch, i, j); folds over j and element-wise steps turn them into
// weights; the last products sum these with another operand, over j (by rows) or over i (by columns).
#pragma once

#include "kernel/tile_product.h"

namespace cermet::ir {

// Scores = Σ_k rows(i, k) columns(j, k).
struct FirstProduct {
  ExprId ref;            // the value in the source
  ExprId rows, columns;  // operands, of the dtype `packed`
  AxisId k;
  std::vector<ExprId> factors = {};  // of the sum
  // Fused sums of left() times a constant, which can take the factors instead.
  std::vector<ExprId> scaled_sums = {};
  // A choice, by the limit's condition, between the value and a number: all that follows needs but this.
  ExprId masked = kNone;

  ExprId left() const { return masked == kNone ? ref : masked; }
  // Before the passes; with factors the first pass multiplies, masks and leaves both in the strip.
  bool is_masked_first() const { return masked != kNone && factors.empty(); }
};

// By rows: out(i, n) = Σ_j weights(i, j) other(j, n). By columns: out(j, n) = Σ_i weights(i, j) other(i, n).
struct LastProduct {
  ExprId ref;
  ExprId weights, other;
  AxisId n;
  bool by_columns;
  std::vector<Line> stores = {};
  std::vector<ExprId> factors = {};  // of the sum
};

// A value over (i, j) that is stored, or summed over axes of the batch or i, and stored for the others.
struct TileSum {
  ExprId element;
  std::vector<AxisId> over = {};
  ExprId ref = kNone;  // of the sum, in the source; kNone: nothing is summed
  std::optional<Line> store = {};
};

// Where `low` (of j) is above `high` (of i) nothing is seen: all that follows is 0 there, or neutral.
struct Limit {
  Code code;  // seen: low code high
  ExprId low, high;
  ExprId condition;  // in the source
  bool if_seen;      // what it is there
};

struct ChainAnalysis {
  explicit ChainAnalysis(Source& source) : source(source) {}

  // False: the kernel is of another kind.
  bool run();
  // From now on the operands are bfloat16, if all but the weights are values of that dtype, or products of
  // such and a factor that the sum can take; weights are rounded to it.
  void take_bfloat16();

  Source& source;
  Dtype acc = Dtype::float32;
  Dtype packed = acc;  // of what is packed: that of the accumulators, or bfloat16
  std::vector<AxisId> batch;
  AxisId i = kNone, j = kNone;
  std::vector<FirstProduct> first;
  std::vector<LastProduct> last;
  std::vector<Line> folds;
  std::vector<TileSum> sums;
  std::vector<AxisId> summed;    // axes of the batch that all sums are over
  std::vector<Line> row_stores;  // of what the folds give
  std::optional<Limit> limit;

 private:
  enum class Maker : uint8_t { none, first, fold, sum, last };
  bool sort(const Line& line);
  bool needs(const std::vector<ExprId>& roots, Maker maker);
  bool add_contract(const Contract& contract);
  bool add_fold(const Line& line);
  bool add_sum(const Line& line);
  bool add_store(const Line& line);
  bool add_sum_store(const Line& line);
  bool sort_plain_stores();
  void find_summed();
  void find_masked();
  bool find_axes();
  bool fits(FirstProduct& p);
  bool fits(LastProduct& p);
  bool fits(const TileSum& s);
  bool narrow(ExprId& operand, AxisSet own, std::vector<ExprId>& factors);
  ExprId narrowed(ExprId weights);
  std::vector<ExprId> sums_of_scaled(ExprId product) const;

  std::vector<Maker> makers_;
  std::vector<const Contract*> contracts_;
  std::vector<Line> plain_stores_;  // of neither last products nor sums
};

}  // namespace cermet::ir
