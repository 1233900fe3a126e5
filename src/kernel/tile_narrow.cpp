// SPDX-License-Identifier: MIT
#include "kernel/tile_narrow.h"

#include <algorithm>

namespace cermet::ir {

// A few more than a block has rows, so that columns do not fall into one set of a cache.
NarrowColumnWriter::NarrowColumnWriter(Source& source, Emitter& out, TaskWriter& tasks,
                                       const Group& group, const TargetFacts& target)
    : RowBlocks(source, out, group.block + kShortRows),
      group_(group),
      tasks_(tasks),
      is_cpu_(target.name == "cpu") {}

// Loads that lie otherwise are made where they are wanted, and so are more than have room near the processor.
void NarrowColumnWriter::find_loads() {
  constexpr size_t kMostMoved = 8;
  for (const Task* task : tasks_.tasks_of(group_))
    source_.walk(roots_of(*task), [&](ExprId id) {
      const Expr& e = source_[id];
      if (e.kind == ExprKind::load && !e.buffer.local &&
          source_.kernel().params[e.buffer.id].access == Access::in)
        add_load(id);
      return true;
    });
  if (loaded_.size() > kMostMoved) loaded_.clear();
}

// What costs more to make for each column than to load, or lies apart in memory.
bool NarrowColumnWriter::is_dear(ExprId id) const {
  if (source_.kernel().axes[elements_].most <= kFewApart)
    return source_.cost(id, axis_bit(rows_), kRecomputeCost) > kRecomputeCost;
  bool lies_apart = false;
  source_.walk({id}, [&](ExprId part) {
    const Expr& e = source_[part];
    lies_apart |= e.kind == ExprKind::load && unit_axis(source_, e.index) != rows_;
    return !lies_apart;
  });
  return lies_apart || source_.cost(id, axis_bit(rows_), kRecomputeCost) > kRecomputeCost;
}

void NarrowColumnWriter::find_of_rows() {
  for (const Task* task : tasks_.tasks_of(group_))
    source_.walk(roots_of(*task), [&](ExprId id) {
      const AxisSet axes = source_.axes(id);
      if ((axes & (kStateAxis | axis_bit(elements_))) != 0) return true;
      if ((axes & axis_bit(rows_)) == 0) return false;
      if (source_.behind(id) != id) return true;
      const bool is_tuple = source_[id].kind == ExprKind::op && source_[id].code == Code::threefry;
      if (is_tuple) return true;
      if (is_dear(id))
        of_rows_.push_back(
            {id, out_.to().local(source_[id].dtype, {pitch_, {}}, LocalScope::thread)});
      return false;
    });
}

void NarrowColumnWriter::write(const std::string& entry) {
  elements_ = group_.axes.back();
  rows_ = group_.rows[0];
  const int64_t most = source_.kernel().axes[elements_].most;
  if (is_cpu_) {
    if (most > kFewApart) find_loads();
    find_of_rows();
  }
  tasks_.begin(group_, axis_bit(rows_));
  std::vector<GridDim> dims;
  for (AxisId axis : group_.axes)
    if (axis != rows_ && axis != elements_) dims.push_back({{axis}, 1});
  const GridDim blocks{group_.rows, group_.block};
  dims.push_back(blocks);
  const std::vector<ExprId> at = out_.open_chunk(entry, dims);
  for (size_t i = 0; i + 1 < dims.size(); ++i) out_.bind(dims[i].axes, at[i]);
  tasks_.open_partials(group_, blocks, at.back());
  begin_block(at.back(), group_.block);
  Builder& to = out_.to();
  const ExprId columns = out_.let(to.min(to.extent(elements_), out_.integer(most)));
  load_columns(columns);
  if (!of_rows_.empty()) write_of_rows(columns);
  write_columns(columns);
  out_.close();
}

void NarrowColumnWriter::write_of_rows(ExprId columns) {
  Builder& to = out_.to();
  const ExprId any = to.compare(Code::lt, out_.integer(0), columns);
  const ExprId past = out_.let(to.select(any, past_, first_));
  const AxisId row = out_.open_loop(ForKind::lane, first_, past, source_.kernel().axes[rows_].name);
  out_.bind(rows_, to.axis_ref(row));
  const ExprId base = to.sub(out_.integer(0), first_);
  for (const OfRow& made : of_rows_)
    out_.append(Store{
        {true, made.local}, {{base, kUnit}, {to.axis_ref(row), kUnit}}, out_.expr(made.expr)});
  out_.close();
}

void NarrowColumnWriter::write_columns(ExprId columns) {
  Builder& to = out_.to();
  const auto name = [&](AxisId axis) { return source_.kernel().axes[axis].name; };
  const AxisId column = out_.open_loop(ForKind::serial, out_.integer(0), columns, name(elements_));
  out_.bind(elements_, to.axis_ref(column));
  const ExprId base = out_.let(to.sub(to.mul(to.axis_ref(column), out_.integer(pitch_)), first_));
  const ExprId before = out_.let(to.sub(out_.integer(0), first_));
  const AxisId row = out_.open_loop(ForKind::lane, first_, past_, name(rows_));
  out_.bind(rows_, to.axis_ref(row));
  const auto place = [&](ExprId from) { return Index{{from, kUnit}, {to.axis_ref(row), kUnit}}; };
  for (const Loaded& loaded : loaded_)
    out_.define(loaded.load, to.load({true, loaded.rows.local}, place(base)));
  for (const OfRow& made : of_rows_)
    out_.define(made.expr, to.load({true, made.local}, place(before)));
  const std::vector<OpenFold> folds = tasks_.run(tasks_.tasks_of(group_), row);
  out_.close();
  tasks_.finish(folds);
  out_.close();
}

}  // namespace cermet::ir
