// SPDX-License-Identifier: MIT
#include "kernel/tile_row.h"

#include <algorithm>
#include <map>

#include "kernel/tile_forms.h"

namespace cermet::ir {

void RowWriter::write(const Group& group, const std::string& entry) {
  find_passes(group);
  if (are_short_columns(group)) return write_short_columns(group, entry);
  tasks_.begin(group, set_of(group.rows));
  make_locals(size_over(group.rows));
  std::vector<GridDim> dims;
  std::vector<AxisId> outer;
  for (AxisId axis : short_ones_last(source_.kernel(), group.axes)) {
    if (std::ranges::count(group.rows, axis) + std::ranges::count(group.columns, axis) > 0)
      continue;
    outer.push_back(axis);
    dims.push_back({{axis}, 1});
  }
  const GridDim blocks{group.columns, kSerialBlock};
  if (!group.columns.empty()) dims.push_back(blocks);
  const std::vector<ExprId> at = out_.open_chunk(entry, dims);
  for (size_t i = 0; i < outer.size(); ++i) out_.bind(outer[i], at[i]);
  if (group.columns.empty()) {
    write_passes(group, kNone);
    return out_.close();
  }
  tasks_.open_partials(group, blocks, at.back());
  if (tasks_.any_in_memory(group)) {
    out_.open_whole(ForKind::lane, group.rows);
    tasks_.init_in_memory(group);
    out_.close();
  }
  const auto [begin, end] = out_.bounds(at.back(), blocks.tile, out_.extent_of(blocks.axes));
  const AxisId row = out_.open_over(ForKind::serial, blocks.axes, begin, end);
  const std::vector<OpenFold> folds = write_passes(group, row);
  out_.close();
  tasks_.finish(folds);
  out_.close();
}

void RowWriter::find_passes(const Group& group) {
  for (const Task* task : tasks_.tasks_of(group)) {
    const auto pass = static_cast<size_t>(task->pass);
    if (passes_.size() <= pass) passes_.resize(pass + 1);
    const bool is_inside = task->range == set_of(group.axes);
    (is_inside ? passes_[pass].inside : passes_[pass].outside).push_back(task);
  }
  kept_ = kept_rows_but_cheap(source_, plan_, group, kRecomputeCost);
  std::ranges::stable_sort(kept_, {}, &KeptRow::made_in);
}

// Few elements, taken one after the other, that no array has in rows beside each other.
bool RowWriter::are_short_columns(const Group& group) {
  if (!is_cpu_ || group.axes.size() < 3 || !group.columns.empty()) return false;
  const AxisId elements = group.axes.back();
  const int64_t most = source_.kernel().axes[elements].most;
  if (group.rows != std::vector{elements} || most == 0 || is_along(most)) return false;
  const AxisSet both = axis_bit(elements) | axis_bit(lanes_of(group));
  bool fits = true;
  for (const Task* task : tasks_.tasks_of(group)) {
    if (const Fold* fold = std::get_if<Fold>(task->line.stmt))
      fits = fits && fold->emit == Emit::last && steps_in_order(*fold, most);
    source_.walk(roots_of(*task->line.stmt), [&](ExprId id) {
      const Expr& e = source_[id];
      if (e.kind != ExprKind::load || (source_.axes(e.index) & both) != both) return true;
      fits = fits && unit_axis(source_, e.index) != elements;
      return true;
    });
  }
  return fits;
}

AxisId RowWriter::lanes_of(const Group& group) {
  return lane_axis(source_, plan_, group, {group.axes.begin(), group.axes.end() - 1});
}

void RowWriter::write_short_columns(const Group& group, const std::string& entry) {
  const AxisId lanes = lanes_of(group);
  tasks_.begin(group, axis_bit(lanes));
  make_locals({kColumnsOfItem, {{group.rows[0], 1}}});
  std::vector<AxisId> outer(group.axes.begin(), group.axes.end() - 1);
  std::erase(outer, lanes);
  std::vector<GridDim> dims;
  for (AxisId axis : outer) dims.push_back({{axis}, axis == outer.back() ? kRowBlock : 1});
  dims.push_back({{lanes}, kColumnsOfItem});
  const std::vector<ExprId> at = out_.open_chunk(entry, dims);
  const auto bounds = [&](size_t dim) {
    return out_.bounds(at[dim], dims[dim].tile, out_.extent_of(dims[dim].axes));
  };
  for (size_t i = 0; i + 1 < outer.size(); ++i) out_.bind(outer[i], at[i]);
  const auto [first, past] = bounds(outer.size());
  const auto [array, end] = bounds(outer.size() - 1);
  out_.open_over(ForKind::serial, {outer.back()}, array, end);
  const AxisId lane = out_.open_over(ForKind::lane, {lanes}, first, past);
  lane_ = out_.let(out_.to().sub(out_.to().axis_ref(lane), first));
  write_passes(group, kNone);
  for (int loops = 0; loops < 3; ++loops) out_.close();
}

// Where the Locals have it.
ExprId RowWriter::place_of(AxisId element) {
  Builder& to = out_.to();
  const ExprId at = to.axis_ref(element);
  return lane_ == kNone ? at : out_.let(to.mul(at, out_.integer(kColumnsOfItem)));
}

// A value takes the place of one that is read for the last time where it is made: element by element,
// but for scans.
void RowWriter::make_locals(const Size& size) {
  std::map<LocalId, int> free_from;  // pass
  for (const KeptRow& row : kept_) {
    const Dtype dtype = source_[row.expr].dtype;
    const auto it = std::ranges::find_if(free_from, [&](const auto& local) {
      const bool is_free =
          row.made_in % 2 == 0 ? local.second <= row.made_in : local.second < row.made_in;
      return is_free && out_.to().kernel().locals[local.first].dtype == dtype;
    });
    locals_.push_back(it != free_from.end() ? it->first
                                            : out_.to().local(dtype, size, LocalScope::thread));
    free_from[locals_.back()] = row.last_use;
  }
}

// The passes over one row; gives the folds over `variable`, the loop over rows.
std::vector<OpenFold> RowWriter::write_passes(const Group& group, AxisId variable) {
  std::vector<OpenFold> folds;
  for (size_t pass = 0; pass < passes_.size(); ++pass)
    for (const OpenFold& fold : write_pass(group, static_cast<int>(pass), variable))
      folds.push_back(fold);
  return folds;
}

std::vector<OpenFold> RowWriter::write_pass(const Group& group, int pass, AxisId row) {
  const auto& [outside, inside] = passes_[pass];
  std::vector<OpenFold> of_rows = tasks_.run(outside, row);
  if (inside.empty()) return of_rows;
  const auto define = [&](ExprId place) { define_kept(pass, place); };
  const auto keep = [&](ExprId place) { keep_for_later(pass, place); };
  if (pass % 2 == 1 && scans_.fits(inside)) {
    scans_.write_rows({group, inside, define, keep});
    return of_rows;
  }
  const bool in_lanes = pass % 2 == 0 && lane_ == kNone;
  const AxisId variable = out_.open_whole(in_lanes ? ForKind::lane : ForKind::serial, group.rows);
  define(place_of(variable));
  const std::vector<OpenFold> folds = tasks_.run(inside, variable);
  keep(place_of(variable));
  out_.close();
  tasks_.finish(folds);
  return of_rows;
}

Index RowWriter::index_of(ExprId place) const {
  if (lane_ == kNone) return {{place, kUnit}};
  return {{place, kUnit}, {lane_, kUnit}};
}

void RowWriter::define_kept(int pass, ExprId place) {
  for (size_t i = 0; i < kept_.size(); ++i)
    if (kept_[i].made_in < pass && pass <= kept_[i].last_use)
      out_.define(kept_[i].expr, out_.to().load({true, locals_[i]}, index_of(place)));
}

void RowWriter::keep_for_later(int pass, ExprId place) {
  for (const KeptRow& row : kept_)  // before what they are made of is overwritten
    if (row.made_in == pass) out_.name(row.expr);
  for (size_t i = 0; i < kept_.size(); ++i)
    if (kept_[i].made_in == pass)
      out_.append(Store{{true, locals_[i]}, index_of(place), out_.expr(kept_[i].expr)});
}

}  // namespace cermet::ir
