// SPDX-License-Identifier: MIT
#include "kernel/tile_points.h"

#include <algorithm>

namespace cermet::ir {

bool loads(Source& source, ExprId id) {
  bool found = false;
  source.walk({id}, [&](ExprId e) { return !(found |= source[e].kind == ExprKind::load); });
  return found;
}

bool looks_up(Source& source, ExprId id) {
  bool found = false;
  source.walk({id}, [&](ExprId part) {
    const Expr& e = source[part];
    found |= e.kind == ExprKind::load && std::ranges::any_of(e.index, [&](const IndexTerm& term) {
               return loads(source, term.expr);
             });
    return !found;
  });
  return found;
}

void PointParts::add(ExprId id) {
  if (id == kNone || std::ranges::count(found_, id) > 0) return;
  const AxisSet axes = source_.axes(id);
  if ((axes & axis_bit(points_)) == 0) return;
  const Expr e = source_[source_.behind(id)];
  if (lane_ == kNone || (axes & axis_bit(lane_)) == 0) {
    if (e.kind == ExprKind::op || looks_up(source_, id)) found_.push_back(id);
    return;
  }
  for (const ExprId operand : e.operands) add(operand);
  add(e.index);
}

void PointParts::add(const Index& index) {
  for (const IndexTerm& term : index) add(term.expr);
}

PointValues::PointValues(Source& source, Emitter& out, const std::vector<ExprId>& ids, ExprId begin)
    : out_(out) {
  if (ids.empty()) return;
  back_ = out_.let(out_.to().sub(out_.integer(0), begin));
  for (const ExprId id : ids)
    locals_.emplace_back(id,
                         out_.to().local(source[id].dtype, {kPointBlock, {}}, LocalScope::thread));
}

void PointValues::make(ExprId point) {
  for (const auto& [id, local] : locals_)
    out_.append(Store{{true, local}, place(point), out_.expr(id)});
}

void PointValues::define(ExprId point) {
  for (const auto& [id, local] : locals_)
    out_.define(id, out_.let(out_.to().load({true, local}, place(point))));
}

}  // namespace cermet::ir
