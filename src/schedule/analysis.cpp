// SPDX-License-Identifier: MIT
#include "schedule/analysis.h"

#include <algorithm>

namespace cermet::schedule {

// A value nobody can fold away: a scalar parameter of its own.
Lane AnalysisContext::value_of(int k) {
  const Dtype real = real_of(compute_dtype(view_.input_dtypes[k]));
  Lane lane{builder_.scalar_ref(builder_.scalar(real)), ir::kNone};
  if (is_complex(view_.input_dtypes[k])) lane.im = builder_.scalar_ref(builder_.scalar(real));
  return lane;
}

Lane AnalysisContext::input(int k, const Coords& at) {
  sink_(k, at, false);
  return value_of(k);
}

Lane AnalysisContext::input_where(ir::ExprId, int k, const Coords& at) {
  sink_(k, at, true);
  return value_of(k);
}

// A computed coordinate may come from the analysis of another node, whose expressions are not ours.
ir::ExprId AnalysisContext::expr(const Coord&) {
  return builder_.scalar_ref(builder_.scalar(Dtype::int64));
}

std::optional<Bounds> AnalysisContext::bounds(const Coord& c) {
  if (axes_ == nullptr) return std::nullopt;
  return bounds_of(*axes_, axes_->normalize(c));
}

ir::ExprId AnalysisContext::number(const Number&, Dtype dtype) {
  return builder_.scalar_ref(builder_.scalar(dtype));
}

ir::ExprId AnalysisContext::size(int, int) {
  return builder_.scalar_ref(builder_.scalar(Dtype::int64));
}

int reversed_axis(const PlanNode& node) {
  if (node.lowering<ScanLowering>() == nullptr) return -1;
  const AxisParams& p = std::get<AxisParams>(node.node->params);
  return p.flag ? p.axis : -1;
}

bool folds_over(const PlanGraph& graph, Id id, const std::vector<Dim>& sizes, int depth) {
  const PlanNode& n = graph.nodes[id];
  if (n.lowering<MapLowering>() != nullptr && depth > 0) {
    return std::any_of(n.inputs.begin(), n.inputs.end(),
                       [&](Id input) { return folds_over(graph, input, sizes, depth - 1); });
  }
  const auto* fold = n.lowering<FoldLowering>();
  if (fold == nullptr) return false;
  const PlanNodeView view(graph, id);
  std::vector<Dim> folded;
  for (int d : fold->axes(view)) {
    if ((*view->input_shapes[0])[d] != 1) folded.push_back((*view->input_shapes[0])[d]);
  }
  return !folded.empty() && folded == sizes;
}

}  // namespace cermet::schedule
