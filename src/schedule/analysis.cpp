// SPDX-License-Identifier: MIT
#include "schedule/analysis.h"

namespace cermet::schedule {

// A value nobody can fold away: a scalar parameter of its own.
Lane AnalysisContext::value_of(int k) {
  const Dtype dtype = compute_dtype(view_.input_dtypes[k]);
  const Dtype real = real_of(dtype);
  Lane lane{builder_.scalar_ref(builder_.scalar(real)), ir::kNone};
  if (is_complex(dtype)) lane.im = builder_.scalar_ref(builder_.scalar(real));
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

ir::ExprId AnalysisContext::number(const Number&, Dtype dtype) {
  return builder_.scalar_ref(builder_.scalar(dtype));
}

ir::ExprId AnalysisContext::size(int, int) {
  return builder_.scalar_ref(builder_.scalar(Dtype::int64));
}

}  // namespace cermet::schedule
