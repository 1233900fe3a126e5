// SPDX-License-Identifier: MIT
// Runs a row's own lowering rule without a kernel, to learn at which coordinates it asks its inputs.
#pragma once

#include <functional>

#include "schedule/axes.h"
#include "schedule/plan_graph.h"

namespace cermet::schedule {

// input, coordinates (normalised by the caller), under a mask.
using UseSink = std::function<void(int k, const Coords& at, bool masked)>;

class AnalysisContext : public LowerContext {
 public:
  // axes: of the coordinates that it is given, if their bounds are to be known.
  AnalysisContext(const NodeView& view, UseSink sink, const AxisTable* axes = nullptr)
      : builder_("analysis"), view_(view), sink_(std::move(sink)), axes_(axes) {}
  ir::Builder& builder() override { return builder_; }
  Lane input(int k, const Coords& at) override;
  Lane input_where(ir::ExprId mask, int k, const Coords& at) override;
  ir::ExprId expr(const Coord& c) override;
  std::optional<Bounds> bounds(const Coord& c) override;
  ir::ExprId number(const Number& n, Dtype dtype) override;
  void check_index(ir::ExprId, ir::ExprId, int, const Dim&, const Dim&) override {}
  ir::ExprId size(int k, int axis) override;

 private:
  Lane value_of(int k);

  ir::Builder builder_;
  const NodeView& view_;
  UseSink sink_;
  const AxisTable* axes_;
};

// The axis that a scan walks from its end; -1: none.
int reversed_axis(const PlanNode& node);

// The node, or what it is computed from by at most `depth` element-wise ops, is a fold over dims of these
// sizes.
bool folds_over(const PlanGraph& graph, Id id, const std::vector<Dim>& sizes, int depth);

}  // namespace cermet::schedule
