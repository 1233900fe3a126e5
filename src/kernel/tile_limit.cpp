// SPDX-License-Identifier: MIT
#include "kernel/tile_limit.h"

#include "kernel/rebuild.h"

namespace cermet::ir {

void SeenColumns::make_ends() {
  const auto add = [&](AxisId axis, ExprId side) {
    const AxisId end = source_.pseudo_axis("end");
    Builder& b = source_.builder();
    ExprMap memo = {{b.axis_ref(axis), b.axis_ref(end)}};
    ends_.push_back({end, rebuild_expr(b, b.kernel(), source_.behind(side), memo)});
  };
  for (int twice = 0; twice < 2; ++twice) add(chain_.j, chain_.limit->low);
  for (int twice = 0; twice < 2; ++twice) add(chain_.i, chain_.limit->high);
}

std::vector<ExprId> SeenColumns::ends_at(Range rows, Range columns) {
  if (ends_.empty()) make_ends();
  const auto before = [&](ExprId end) { return out_.let(to_.sub(end, integer(1))); };
  const ExprId at[] = {columns.begin, before(columns.end), rows.begin, before(rows.end)};
  for (size_t e = 0; e < ends_.size(); ++e) out_.bind(ends_[e].axis, at[e]);
  std::vector<ExprId> made;
  for (const End& end : ends_) made.push_back(out_.let(out_.expr(end.expr)));
  return made;
}

// Both sides are monotonic, so that their ends tell of all between.
SeenColumns::Seen SeenColumns::of(Range rows) {
  const ExprId all = to_.extent(chain_.j);
  if (!chain_.limit) return {all};
  const ExprId tiles = out_.let(out_.ceil_div(all, tile_));
  const AxisId tile = out_.open_loop(ForKind::serial, integer(0), tiles, "tile");
  const std::vector<ExprId> ends = ends_at(rows, range_of(variable(tile), tile_, chain_.j));
  const auto holds = [&](Code of_low, Code of_high) {
    const ExprId low = to_.op(of_low, to_.dtype(ends[0]), {ends[0], ends[1]});
    const ExprId high = to_.op(of_high, to_.dtype(ends[2]), {ends[2], ends[3]});
    return to_.compare(chain_.limit->code, low, high);
  };
  const ExprId next = to_.add(variable(tile), integer(1));
  const auto counted = [&](int i, auto&& counts) {
    const ExprId state = to_.state(i, Dtype::int64);
    return FoldState{Dtype::int64, integer(0), to_.select(counts(state), next, state),
                     to_.max(state, to_.other(i, Dtype::int64))};
  };
  const auto by_any = [&](ExprId) { return holds(Code::min, Code::max); };
  // Those without a gap.
  const auto by_each = [&](ExprId state) {
    return to_.logical_and(holds(Code::max, Code::min),
                           to_.compare(Code::eq, state, variable(tile)));
  };
  const ValueId count = to_.value({Dtype::int64, Dtype::int64}, "seen");
  out_.append(
      Fold{count, {tile}, Emit::last, Order::serial, {counted(0, by_any), counted(1, by_each)}});
  out_.close();
  const auto columns_of = [&](int i) {
    return out_.let(to_.min(to_.mul(to_.get(i, to_.ref(count)), integer(tile_)), all));
  };
  return {columns_of(0), columns_of(1)};
}

void SeenColumns::define_seen() {
  const Limit& limit = *chain_.limit;
  out_.define(limit.condition, to_.integer(Dtype::boolean, limit.if_seen));
}

}  // namespace cermet::ir
