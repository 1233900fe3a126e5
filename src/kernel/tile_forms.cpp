// SPDX-License-Identifier: MIT
#include "kernel/tile_forms.h"

#include <algorithm>

#include "base/error.h"
#include "kernel/micro.h"
#include "kernel/tile.h"
#include "kernel/tile_narrow.h"
#include "kernel/tile_points.h"
#include "kernel/tile_row.h"
#include "kernel/tile_scan.h"
#include "kernel/tile_short.h"
#include "kernel/tile_tasks.h"
#include "kernel/tile_update.h"

namespace cermet::ir {

namespace {

std::vector<AxisId> without(std::vector<AxisId> axes, const std::vector<AxisId>& taken) {
  std::erase_if(axes, [&](AxisId axis) { return std::ranges::count(taken, axis) > 0; });
  return axes;
}

std::vector<GridDim> each_of(const std::vector<AxisId>& axes) {
  std::vector<GridDim> dims;
  for (AxisId axis : axes) dims.push_back({{axis}, 1});
  return dims;
}

constexpr int64_t kOneSet = 4096;  // rows at a multiple of so many bytes fall into one set of L1
constexpr int64_t kInOneSet = 8;   // lines that it holds
// A result of so many bytes for each of the lines waits longer for memory than for reading them again; twice as
// many where it is computed, as tiles are then read by whole lines otherwise.
constexpr int64_t kLargeForLine = 1 << 20;

class FormWriter {
 public:
  FormWriter(Source& source, const Plan& plan, const TargetFacts& target)
      : source_(source),
        plan_(plan),
        out_(source),
        tasks_(source, plan, out_),
        scans_(source, plan, out_, tasks_, target.name != "cpu" || target.vector_bytes >= 64,
               target.name == "cpu"),
        updates_(source, plan, out_, tasks_, target),
        target_(target),
        is_cpu_(target.name == "cpu") {}

  Kernel run() {
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      suffix_ = i == 0 ? "" : fmt::format("{}", i);
      write(plan_.groups[i]);
      tasks_.end();
    }
    return out_.take();
  }

 private:
  void write(const Group& group) {
    switch (group.kind) {
      case GroupKind::map: return write_map(group);
      case GroupKind::row: return write_row(group);
      case GroupKind::full: return write_full(group);
      case GroupKind::column: return write_column(group);
      case GroupKind::update: return updates_.write(group, suffix_);
    }
  }

  std::vector<ExprId> open_chunk(const char* form, const std::vector<GridDim>& dims) {
    return out_.open_chunk(form + suffix_, dims);
  }
  void bind_each(const std::vector<AxisId>& axes, const std::vector<ExprId>& indices) {
    for (size_t i = 0; i < axes.size(); ++i) out_.bind(axes[i], indices[i]);
  }

  // Bounds of a tile are made before the loops that they serve.
  using Bounds = std::pair<ExprId, ExprId>;
  Bounds bounds_of(const GridDim& dim, ExprId index) {
    return out_.bounds(index, dim.tile, out_.extent_of(dim.axes));
  }
  AxisId open_tile(ForKind kind, const GridDim& dim, const Bounds& bounds) {
    return out_.open_over(kind, dim.axes, bounds.first, bounds.second);
  }

  void write_map(const Group& group) {
    if (group.axes.empty()) {
      tasks_.begin(group, 0);
      open_chunk("map", {});
      tasks_.run(tasks_.tasks_of(group), kNone);
      return out_.close();
    }
    const AxisId lane = lane_axis(source_, plan_, group, group.axes);
    if (is_short(lane) && lane != group.axes.back()) {
      Group inner = group;
      std::erase(inner.axes, lane);
      inner.axes.push_back(lane);
      return write_map(inner);
    }
    if (const AxisId rows = rows_beside_short(group, lane); rows != kNone) {
      ShortRowWriter short_rows(source_, plan_, out_, tasks_);
      if (is_cpu_ && short_rows.fits(group)) return short_rows.write(group, "map" + suffix_);
      return write_across(group, rows);
    }
    tasks_.begin(group, axis_bit(lane));
    const Crossing crossing = crossing_of(source_, plan_, group, lane);
    const bool are_copied = is_cpu_ && are_copied_columns(group, crossing);
    if (crossing.axis != kNone && !are_copied) return write_transpose(group, lane, crossing);
    if (group.axes.size() == 1)
      if (const Halves halves = halves_of(source_, plan_, group, lane); halves.half != kNone)
        return write_halves(group, lane, halves);
    const bool merges = std::ranges::any_of(
        group.tasks, [&](int number) { return plan_.tasks[number].kind == TaskKind::merge; });
    const std::vector<AxisId> outer = without(group.axes, {lane});
    if (!outer.empty() && !are_copied && is_along(source_.kernel().axes[lane].most))
      return write_rows_along(group, lane, outer);
    std::vector<GridDim> dims = each_of(outer);
    if (!outer.empty()) dims.back().tile = kRowBlock;
    dims.push_back({{lane}, merges ? kMergeTile : kLaneTile});
    const std::vector<ExprId> at = open_chunk("map", dims);
    const Bounds lanes = bounds_of(dims.back(), at.back());
    if (!outer.empty()) {
      const size_t block = outer.size() - 1;
      bind_each({outer.begin(), outer.end() - 1}, at);
      open_tile(ForKind::serial, dims[block], bounds_of(dims[block], at[block]));
    }
    const ForKind kind = are_copied ? ForKind::serial : ForKind::lane;
    tasks_.run(tasks_.tasks_of(group), open_tile(kind, dims.back(), lanes));
    out_.close();
    if (!outer.empty()) out_.close();
    out_.close();
  }

  // Short rows one after the other, each by lanes of its own.
  void write_rows_along(const Group& group, AxisId lane, const std::vector<AxisId>& outer) {
    Builder& to = out_.to();
    const AxisId row = outer.back();
    PointParts parts(source_, row, lane);
    if (is_cpu_)
      for (const int number : group.tasks) add_parts(*plan_.tasks[number].line.stmt, parts);
    std::vector<GridDim> dims = each_of(outer);
    dims.back().tile = parts.found().empty() ? kRowBlock : kPointBlock;
    const std::vector<ExprId> at = open_chunk("map", dims);
    bind_each({outer.begin(), outer.end() - 1}, at);
    const Bounds rows = bounds_of(dims.back(), at.back());
    const ExprId most = out_.integer(source_.kernel().axes[lane].most);
    const Bounds lanes = {out_.integer(0), out_.let(to.min(to.extent(lane), most))};
    PointValues values(source_, out_, parts.found(), rows.first);
    if (!values.empty()) {
      values.make(to.axis_ref(out_.open_over(ForKind::lane, {row}, rows.first, rows.second)));
      out_.close();
    }
    values.define(to.axis_ref(out_.open_over(ForKind::serial, {row}, rows.first, rows.second)));
    const AxisId variable = out_.open_over(ForKind::lane, {lane}, lanes.first, lanes.second);
    tasks_.run(tasks_.tasks_of(group), variable);
    for (int loops = 0; loops < 3; ++loops) out_.close();
  }

  static void add_parts(const Stmt& stmt, PointParts& parts) {
    const Store* store = std::get_if<Store>(&stmt);
    if (store == nullptr) return;
    parts.add(store->index);
    parts.add(store->value);
    parts.add(store->mask);
  }

  // Columns of short rows, of which nothing is computed, copied from short rows: by one move of neighbours after
  // the other, but for vectors of pairs that change places.
  bool are_copied_columns(const Group& group, const Crossing& crossing) const {
    constexpr size_t kWord = 4, kPair = 2;
    const auto is_along = [&](const IndexTerm& term) {
      return term.stride == kUnit && source_[source_.behind(term.expr)].kind == ExprKind::axis;
    };
    bool are_words = false;
    const bool are_copied = std::ranges::all_of(group.tasks, [&](int number) {
      const auto* store = std::get_if<Store>(plan_.tasks[number].line.stmt);
      if (store == nullptr || std::ranges::any_of(store->index, is_along)) return false;
      const Expr& e = source_[store->value];
      are_words = are_words || size_of(e.dtype) >= kWord;
      return e.kind == ExprKind::load && e.operands[0] == kNone &&
             std::ranges::none_of(e.index, is_along);
    });
    const bool are_vectors = crossing.axis != kNone && are_words && group.tasks.size() == kPair;
    return are_copied && group.tasks.size() >= kPair && !are_vectors;
  }

  bool is_short(AxisId axis) const { return ir::is_short(source_.kernel().axes[axis]); }

  // The rows of an element-wise group whose other axis is known to be short; kNone: it is not.
  AxisId rows_beside_short(const Group& group, AxisId lane) const {
    const bool are_stores = std::ranges::all_of(group.tasks, [&](int number) {
      const TaskKind kind = plan_.tasks[number].kind;
      return kind == TaskKind::store || kind == TaskKind::check;
    });
    if (group.axes.size() < 2 || !are_stores) return kNone;
    const AxisId inner = group.axes.back(), outer = group.axes[group.axes.size() - 2];
    if (is_along(source_.kernel().axes[inner].most)) return kNone;
    if (lane == inner && is_short(inner) && !is_short(outer)) return outer;
    return lane == inner && is_short(outer) && !is_short(inner) ? inner : kNone;
  }

  // Lanes along rows, for one place of the short axis after the other.
  void write_across(const Group& group, AxisId rows) {
    tasks_.begin(group, axis_bit(rows));
    const std::vector<AxisId> pair(group.axes.end() - 2, group.axes.end());
    const AxisId across = pair[0] == rows ? pair[1] : pair[0];
    std::vector<GridDim> dims = each_of({group.axes.begin(), group.axes.end() - 2});
    dims.push_back({{rows}, kAcrossTile});
    const std::vector<ExprId> at = open_chunk("map", dims);
    bind_each({group.axes.begin(), group.axes.end() - 2}, at);
    const Bounds lanes = bounds_of(dims.back(), at.back());
    out_.open_whole(ForKind::serial, {across});
    tasks_.run(tasks_.tasks_of(group), open_tile(ForKind::lane, dims.back(), lanes));
    out_.close();
    out_.close();
    out_.close();
  }

  // Points i and i + half in one iteration, where both lie in the range and have second words; then the
  // others.
  void write_halves(const Group& group, AxisId lane, const Halves& halves) {
    Builder& to = out_.to();
    const GridDim dim{{lane}, 2 * kLaneTile};
    const ExprId at = open_chunk("map", {dim}).back();
    const ExprId n = to.extent(lane), h = out_.expr(halves.half), zero = out_.integer(0);
    ExprId pairs = out_.let(to.max(zero, to.min(h, to.sub(n, h))));
    // Below twice the half all after the pairs lie in the lower half, else behind both.
    ExprId behind = to.compare(Code::le, to.add(h, h), n);
    if (halves.inside != kNone) {  // of no pair, else of all
      const ExprId total = out_.expr(halves.total);
      const ExprId lacks = out_.let(to.compare(Code::lt, total, to.add(pairs, h)));
      pairs = out_.let(to.select(lacks, zero, pairs));
      behind = to.logical_or(lacks, behind);
    }
    behind = out_.let(behind);
    const Bounds lower = out_.bounds(at, kLaneTile, pairs);
    const ExprId upper =
        source_.builder().compare(Code::le, halves.half, source_.builder().axis_ref(lane));
    const AxisId i = out_.open_over(ForKind::lane, {lane}, lower.first, lower.second);
    for (const bool is_upper : {false, true}) {
      if (is_upper) out_.bind_again({lane}, to.add(to.axis_ref(i), h));
      out_.define(upper, to.integer(Dtype::boolean, is_upper ? 1 : 0));
      if (halves.inside != kNone) out_.define(halves.inside, to.integer(Dtype::boolean, 1));
      tasks_.run(tasks_.tasks_of(group), i);
    }
    out_.close();
    const ExprId first = to.select(behind, to.add(pairs, pairs), pairs);
    const ExprId begin = out_.let(to.add(first, to.mul(at, out_.integer(dim.tile))));
    const ExprId all = to.select(behind, n, to.min(h, n));
    const ExprId end = out_.let(to.min(to.add(begin, out_.integer(dim.tile)), all));
    tasks_.run(tasks_.tasks_of(group), out_.open_over(ForKind::lane, {lane}, begin, end));
    out_.close();
    out_.close();
  }

  // Row length of a transposing tile: one cache line more than it holds, so that a column of it does
  // not fall into one cache set.
  int64_t pitch_of(ExprId load) const {
    return kTransposeTile + 64 / static_cast<int64_t>(size_of(source_[load].dtype));
  }

  // 64 x 64 tiles: crossing loads are made along their own unit axis into thread Locals, transposed
  // there, and read along the other.
  void write_transpose(const Group& group, AxisId lane, const Crossing& crossing) {
    const std::vector<AxisId> outer = without(group.axes, {lane, crossing.axis});
    std::vector<GridDim> dims = each_of(outer);
    const GridDim rows{{crossing.axis}, kTransposeTile}, columns{{lane}, kTransposeTile};
    dims.push_back(rows);
    dims.push_back(columns);
    const std::vector<ExprId> at = open_chunk("transpose", dims);
    bind_each(outer, at);
    ExprId row_at = at[outer.size()], column_at = at.back();
    const std::vector<int32_t> straight = straight_rows(lane, crossing);
    std::optional<Target> copy;
    ExprId pays = kNone;
    if (!straight.empty()) {
      copy = copy_target(group, lane, crossing);
      pays = turning_pays(group, crossing, straight, copy.has_value());
      const ExprId along = copy ? pays : out_.to().integer(Dtype::boolean, 1);
      std::tie(row_at, column_at) = along_rows(lane, crossing, along, row_at, column_at);
    }
    Tile tile{bounds_of(rows, row_at), bounds_of(columns, column_at)};
    const std::vector<LocalId> transposed = tile_locals(crossing);
    Tile left = tile;
    if (!straight.empty())
      left = write_turns(lane, crossing, straight, pays, tile, transposed, copy);
    if (copy) tile = left;
    write_transposed(lane, crossing, left, transposed);
    read_transposed(group, lane, crossing, transposed, tile);
    out_.close();
  }

  struct Tile {
    Bounds row, column;  // of the crossing axis, of the lanes
  };

  std::vector<LocalId> tile_locals(const Crossing& crossing) {
    std::vector<LocalId> tiles;
    for (ExprId load : crossing.loads)
      tiles.push_back(out_.to().local(source_[load].dtype, {kTransposeTile * pitch_of(load), {}},
                                      LocalScope::thread));
    return tiles;
  }

  // The distance of rows of each crossing load, if all are read from arrays as they lie; else none. On
  // other targets the threads of a block share a tile.
  std::vector<int32_t> straight_rows(AxisId lane, const Crossing& crossing) const {
    if (!is_cpu_) return {};
    std::vector<int32_t> rows;
    for (ExprId id : crossing.loads) {
      const Expr& load = source_[id];
      const bool is_plain = load.operands[0] == kNone && !load.buffer.local &&
                            source_.kernel().params[load.buffer.id].access == Access::in;
      const std::optional<int32_t> row =
          is_plain ? row_stride(source_, load.index, crossing.axis, lane) : std::nullopt;
      if (!row) return {};
      rows.push_back(*row);
    }
    return rows;
  }

  // Where turned elements go: their place, and the distance of rows.
  struct Target {
    BufferRef buffer;
    const Index* index;
    int32_t row;
  };

  // Of a group that only copies.
  std::optional<Target> copy_target(const Group& group, AxisId lane,
                                    const Crossing& crossing) const {
    if (group.tasks.size() != 1 || crossing.loads.size() != 1) return std::nullopt;
    const Store* store = std::get_if<Store>(plan_.tasks[group.tasks[0]].line.stmt);
    if (store == nullptr || store->mask != kNone || store->buffer.local) return std::nullopt;
    if (source_.behind(store->value) != crossing.loads[0]) return std::nullopt;
    if (source_.kernel().params[store->buffer.id].access != Access::out) return std::nullopt;
    const std::optional<int32_t> row = row_stride(source_, store->index, lane, crossing.axis);
    return row ? std::optional(Target{store->buffer, &store->index, *row}) : std::nullopt;
  }

  // The tile by the rows that are read across, if `along`; else by those that are written.
  std::pair<ExprId, ExprId> along_rows(AxisId lane, const Crossing& crossing, ExprId along,
                                       ExprId row_at, ExprId column_at) {
    Builder& to = out_.to();
    const auto tiles = [&](AxisId axis) { return out_.ceil_div(to.extent(axis), kTransposeTile); };
    const ExprId tile = to.add(to.mul(row_at, tiles(lane)), column_at);
    const auto choice = [&](Code code, ExprId otherwise) {
      const ExprId other = to.op(code, Dtype::int64, {tile, tiles(crossing.axis)});
      return out_.let(to.select(along, other, otherwise));
    };
    return {choice(Code::rem, row_at), choice(Code::div, column_at)};
  }

  // Lines of which a piece is read at a time stay in L1 until all is, or there is more to wait for.
  ExprId turning_pays(const Group& group, const Crossing& crossing,
                      const std::vector<int32_t>& straight, bool copies) {
    Builder& to = out_.to();
    ExprId pays = to.integer(Dtype::boolean, 1);
    for (size_t k = 0; k < straight.size(); ++k) {
      const auto size = static_cast<int64_t>(size_of(source_[crossing.loads[k]].dtype));
      const int64_t lines = kTurnedRows / size;
      if (lines <= kInOneSet) continue;
      const ExprId apart = to.rem(to.stride_ref(straight[k]), out_.integer(kOneSet / size));
      const ExprId spread = to.compare(Code::ne, apart, out_.integer(0));
      const ExprId large =
          to.compare(Code::le, out_.integer((copies ? 1 : 2) * lines * kLargeForLine / size),
                     out_.extent_of(group.axes));
      pays = to.logical_and(pays, to.logical_or(spread, large));
    }
    return out_.let(pays);
  }

  Bounds unless(ExprId flag, const Bounds& bounds) {
    return {bounds.first, out_.let(out_.to().select(flag, bounds.first, bounds.second))};
  }

  // The tile straight from the arrays to where it is read or, copied, to another array, if it is not too small
  // for that: what is left of it. The next one along the rows that are read, or that below this row of tiles, is
  // fetched meanwhile.
  Tile write_turns(AxisId lane, const Crossing& crossing, const std::vector<int32_t>& straight,
                   ExprId pays, const Tile& tile, const std::vector<LocalId>& transposed,
                   const std::optional<Target>& copy) {
    Builder& to = out_.to();
    const auto& [row, column] = tile;
    const ExprId height = out_.let(to.sub(row.second, row.first));
    const ExprId width = out_.let(to.sub(column.second, column.first));
    int64_t least = 8;
    for (ExprId load : crossing.loads)
      least = std::min(least, static_cast<int64_t>(size_of(source_[load].dtype)));
    const auto at_least = [&](ExprId count, int64_t bytes) {
      return to.compare(Code::le, out_.integer(bytes / least), count);
    };
    const ExprId fits =
        to.logical_and(at_least(width, kTurnedRows), at_least(height, kTurnedColumns));
    const ExprId turns = out_.let(to.logical_and(pays, fits));
    out_.open_loop(ForKind::serial, out_.integer(0), to.cast(turns, Dtype::int64), "turn");
    out_.bind(lane, column.first);
    out_.bind(crossing.axis, row.first);
    const auto place = [&](const Index& index) {
      ExprId sum = out_.integer(0);
      for (const IndexTerm& term : out_.index(index))
        sum = to.add(
            sum, term.stride == kUnit ? term.expr : to.mul(term.expr, to.stride_ref(term.stride)));
      return out_.let(sum);
    };
    const ExprId is_last = to.compare(Code::le, to.extent(crossing.axis), row.second);
    for (size_t k = 0; k < straight.size(); ++k) {
      const Expr load = source_[crossing.loads[k]];
      const ExprId from_at = place(load.index), from_row = to.stride_ref(straight[k]);
      const ExprId below = to.sub(to.mul(from_row, out_.integer(kTransposeTile)), row.first);
      const TurnMicro micro{
          .to = copy ? copy->buffer : BufferRef{true, transposed[k]},
          .from = load.buffer,
          .rows = width,
          .columns = height,
          .to_at = copy ? place(*copy->index) : out_.integer(0),
          .from_at = from_at,
          .to_row = copy ? to.stride_ref(copy->row) : out_.integer(pitch_of(crossing.loads[k])),
          .from_row = from_row,
          .next_at = to.add(from_at, to.select(is_last, below, out_.integer(kTransposeTile)))};
      out_.append(micro.micro());
    }
    out_.close();
    return {unless(turns, row), unless(turns, column)};
  }

  void write_transposed(AxisId lane, const Crossing& crossing, const Tile& tile,
                        const std::vector<LocalId>& transposed) {
    Builder& to = out_.to();
    const auto& [row, column] = tile;
    const std::vector<LocalId> tiles = tile_locals(crossing);
    const ExprId height = out_.let(to.sub(row.second, row.first));
    const ExprId width = out_.let(to.sub(column.second, column.first));

    const AxisId i = out_.open_over(ForKind::serial, {lane}, column.first, column.second);
    std::vector<ExprId> bases;
    for (ExprId load : crossing.loads) {
      const ExprId place =
          to.mul(to.sub(to.axis_ref(i), column.first), out_.integer(pitch_of(load)));
      bases.push_back(out_.let(to.sub(place, row.first)));
    }
    const AxisId j = out_.open_over(ForKind::lane, {crossing.axis}, row.first, row.second);
    for (size_t k = 0; k < tiles.size(); ++k)
      out_.append(Store{{true, tiles[k]},
                        {{bases[k], kUnit}, {to.axis_ref(j), kUnit}},
                        out_.expr(crossing.loads[k])});
    out_.close();
    out_.close();
    for (size_t k = 0; k < tiles.size(); ++k) {
      const int64_t pitch = pitch_of(crossing.loads[k]);
      const TransposeMicro micro{.tile = kTransposeTile,
                                 .to_row = pitch,
                                 .from_row = pitch,
                                 .group = 1,
                                 .to = {true, transposed[k]},
                                 .from = {true, tiles[k]},
                                 .rows = width,
                                 .columns = height,
                                 .to_at = out_.integer(0),
                                 .from_at = out_.integer(0)};
      out_.append(micro.micro());
    }
  }

  void read_transposed(const Group& group, AxisId lane, const Crossing& crossing,
                       const std::vector<LocalId>& tiles, const Tile& tile) {
    Builder& to = out_.to();
    const auto& [row, column] = tile;
    const AxisId j = out_.open_over(ForKind::serial, {crossing.axis}, row.first, row.second);
    std::vector<ExprId> bases;
    for (ExprId load : crossing.loads) {
      const ExprId place = to.mul(to.sub(to.axis_ref(j), row.first), out_.integer(pitch_of(load)));
      bases.push_back(out_.let(to.sub(place, column.first)));
    }
    const AxisId i = out_.open_over(ForKind::lane, {lane}, column.first, column.second);
    for (size_t k = 0; k < tiles.size(); ++k)
      out_.define(crossing.loads[k],
                  to.load({true, tiles[k]}, {{bases[k], kUnit}, {to.axis_ref(i), kUnit}}));
    tasks_.run(tasks_.tasks_of(group), i);
    out_.close();
    out_.close();
  }

  // A group of scans and element-wise tasks alone.
  bool only_scans(const Group& group) const {
    const Tasks tasks = tasks_.tasks_of(group);
    const AxisSet range = set_of(group.axes);
    return group.columns.empty() && scans_.fits(tasks) &&
           std::ranges::all_of(tasks, [&](const Task* task) { return task->range == range; });
  }

  // Lanes across a contiguous axis that is not scanned.
  void write_scanned_columns(const Group& group, AxisId lane) {
    tasks_.begin(group, axis_bit(lane));
    const std::vector<AxisId> outer = without(without(group.axes, group.rows), {lane});
    std::vector<GridDim> dims = each_of(outer);
    const GridDim columns{{lane}, kScanColumns};
    dims.push_back(columns);
    const std::vector<ExprId> at = open_chunk("scan", dims);
    bind_each(outer, at);
    const Bounds bounds = bounds_of(columns, at.back());
    scans_.write_columns({.group = group, .tasks = tasks_.tasks_of(group)}, lane, bounds.first,
                         bounds.second);
    out_.close();
  }

  bool write_scans(const Group& group) {
    if (!only_scans(group)) return false;
    if (group.rows == group.axes) {
      tasks_.begin(group, set_of(group.rows));
      scans_.write_whole({.group = group, .tasks = tasks_.tasks_of(group)}, suffix_);
      return true;
    }
    const AxisId inner = group.axes.back();
    const bool is_column =
        group.rows.size() == 1 && group.axes[group.axes.size() - 2] == group.rows[0];
    if (is_column && is_narrow(source_.kernel().axes[inner])) {
      scans_.write_narrow(group, tasks_.tasks_of(group), suffix_);
      return true;
    }
    const AxisId lane = lane_axis(source_, plan_, group, group.axes);
    if (std::ranges::count(group.rows, lane) > 0) return false;
    write_scanned_columns(group, lane);
    return true;
  }

  void write_row(const Group& group) {
    ShortRowWriter short_rows(source_, plan_, out_, tasks_);
    if (is_cpu_ && short_rows.fits(group)) return short_rows.write(group, "row" + suffix_);
    if (write_scans(group)) return;
    RowWriter(source_, plan_, out_, tasks_, scans_, is_cpu_).write(group, "row" + suffix_);
  }

  void write_full(const Group& group) {
    if (group.rows != group.axes)
      return NarrowColumnWriter(source_, out_, tasks_, group, target_).write("full" + suffix_);
    tasks_.begin(group, set_of(group.rows));
    const GridDim blocks{group.rows, group.block};
    const std::vector<ExprId> at = open_chunk("full", {blocks});
    tasks_.open_partials(group, blocks, at[0]);
    const AxisId variable = open_tile(ForKind::lane, blocks, bounds_of(blocks, at[0]));
    const std::vector<OpenFold> folds = tasks_.run(tasks_.tasks_of(group), variable);
    out_.close();
    tasks_.finish(folds);
    out_.close();
  }

  // Whether an item waits for memory rather than for its operations.
  bool waits_for_memory(const Group& group) {
    return std::ranges::all_of(tasks_.tasks_of(group), [&](const Task* task) {
      return std::ranges::all_of(roots_of(*task->line.stmt), [&](ExprId root) {
        return source_.cost(root, set_of(group.axes), kRecomputeCost) <= kRecomputeCost;
      });
    });
  }

  // And what it holds for each column while it goes down the rows stays near for as many tiles.
  bool can_be_wide(const Group& group, AxisId lane) {
    int64_t bytes = state_bytes(group);
    for (const Task* task : tasks_.tasks_of(group))
      source_.walk(roots_of(*task->line.stmt), [&](ExprId id) {
        const AxisSet axes = source_.axes(id);
        const bool stays = source_[id].kind == ExprKind::load &&
                           (axes & set_of(group.columns)) == 0 && (axes & axis_bit(lane)) != 0;
        if (stays) bytes += static_cast<int64_t>(size_of(source_[id].dtype));
        return true;
      });
    return waits_for_memory(group) && kWideTiles * kColumnTile * bytes <= kWideBytes;
  }

  // The columns of an item. From memory, longer pieces of rows come faster: of some items beside each other
  // the first one takes the columns of all.
  Bounds column_bounds(const Group& group, const std::vector<GridDim>& dims, ExprId index) {
    if (!can_be_wide(group, dims.back().axes[0])) return bounds_of(dims.back(), index);
    Builder& to = out_.to();
    const ExprId total = out_.extent_of(dims.back().axes);
    ExprId items = kNone;
    for (const GridDim& dim : dims) {
      const ExprId tiles = out_.ceil_div(out_.extent_of(dim.axes), dim.tile);
      items = items == kNone ? tiles : to.mul(items, tiles);
    }
    const ExprId many = to.compare(Code::le, out_.integer(kManyItems), items);
    const ExprId taken = out_.let(to.select(many, out_.integer(kWideTiles), out_.integer(1)));
    const ExprId takes = to.compare(Code::eq, to.rem(index, taken), out_.integer(0));
    const ExprId tile = out_.integer(dims.back().tile);
    const ExprId begin = out_.let(to.mul(index, tile));
    const ExprId end = to.min(to.add(begin, to.mul(taken, tile)), total);
    return {begin, out_.let(to.select(takes, end, begin))};
  }

  void write_column(const Group& group) {
    const std::vector<AxisId> inner = without(group.axes, group.columns);
    const AxisId lane = inner.empty() ? kNone : lane_axis(source_, plan_, group, inner);
    tasks_.begin(group, lane == kNone ? 0 : axis_bit(lane));
    const std::vector<AxisId> outer = without(inner, {lane});
    std::vector<GridDim> dims = each_of(outer);
    const GridDim blocks{group.columns, kSerialBlock}, columns{{lane}, kColumnTile};
    dims.push_back(blocks);
    if (lane != kNone) dims.push_back(columns);
    const std::vector<ExprId> at = open_chunk("column", dims);
    bind_each(outer, at);
    tasks_.open_partials(group, blocks, at[outer.size()]);
    const Bounds rows = bounds_of(blocks, at[outer.size()]);
    if (lane == kNone) {
      const AxisId row = open_tile(ForKind::serial, blocks, rows);
      const std::vector<OpenFold> folds = tasks_.run(tasks_.tasks_of(group), row);
      out_.close();
      tasks_.finish(folds);
      out_.close();
      return;
    }
    Bounds lanes = column_bounds(group, dims, at.back());
    const bool waits = is_cpu_ && waits_for_memory(group);
    if (waits) lanes.first = write_narrow_columns(group, blocks, rows, columns, lanes);
    open_tile(ForKind::lane, columns, lanes);
    tasks_.init_in_memory(group);
    out_.close();
    Bounds rows_left = rows;
    if (waits && can_be_wide(group, lane) && only_folds(group))
      rows_left.first = write_rows_at_once(group, blocks, rows, columns, lanes);
    open_tile(ForKind::serial, blocks, rows_left);
    const AxisId variable = open_tile(ForKind::lane, columns, lanes);
    tasks_.finish(tasks_.run(tasks_.tasks_of(group), variable));
    out_.close();
    out_.close();
    out_.close();
  }

  bool only_folds(const Group& group) const {
    return std::ranges::all_of(tasks_.tasks_of(group),
                               [](const Task* task) { return task->kind == TaskKind::fold; });
  }

  int64_t state_bytes(const Group& group) const {
    int64_t bytes = 0;
    for (const Task* task : tasks_.tasks_of(group))
      if (const Fold* fold = std::get_if<Fold>(task->line.stmt))
        for (const FoldState& state : fold->states)
          bytes += static_cast<int64_t>(size_of(state.dtype));
    return bytes;
  }

  // Several rows in each iteration; gives where the others begin. Accumulators that are far from the
  // processor delay what comes from memory.
  ExprId write_rows_at_once(const Group& group, const GridDim& blocks, const Bounds& rows,
                            const GridDim& columns, const Bounds& lanes) {
    Builder& to = out_.to();
    const ExprId many = out_.integer(kRowsAtOnce), none = out_.integer(0);
    const int64_t bytes = state_bytes(group);
    const ExprId is_cached =
        to.compare(Code::le, out_.extent_of(group.axes), out_.integer(kCachedBytes / bytes));
    const ExprId near = to.select(is_cached, out_.integer(kNearBytesCached / bytes),
                                  out_.integer(kNearBytes / bytes));
    const ExprId is_far = to.compare(Code::lt, near, to.sub(lanes.second, lanes.first));
    const ExprId whole = to.div(to.sub(rows.second, rows.first), many);
    const ExprId rounds = out_.let(to.select(is_far, whole, none));
    const AxisId round = out_.open_loop(ForKind::serial, none, rounds, "rows");
    const ExprId first = out_.let(to.add(rows.first, to.mul(to.axis_ref(round), many)));
    out_.bind(blocks.axes, first);
    const AxisId variable = open_tile(ForKind::lane, columns, lanes);
    tasks_.begin_steps();
    for (int64_t k = 0; k < kRowsAtOnce; ++k) {
      if (k > 0) out_.bind_around(blocks.axes, to.add(first, out_.integer(k)));
      tasks_.run(tasks_.tasks_of(group), variable);
    }
    tasks_.end_steps();
    out_.close();
    out_.close();
    return out_.let(to.add(rows.first, to.mul(rounds, many)));
  }

  // Of few columns each lane goes down the rows with its states in registers; gives where the others begin.
  ExprId write_narrow_columns(const Group& group, const GridDim& blocks, const Bounds& rows,
                              const GridDim& columns, const Bounds& lanes) {
    Builder& to = out_.to();
    const ExprId narrow = to.compare(Code::le, out_.extent_of(columns.axes), out_.integer(kNarrow));
    const Bounds few = {lanes.first, out_.let(to.select(narrow, lanes.second, lanes.first))};
    tasks_.begin(group, 0);
    open_tile(ForKind::lane, columns, few);
    const AxisId row = open_tile(ForKind::serial, blocks, rows);
    const std::vector<OpenFold> folds = tasks_.run(tasks_.tasks_of(group), row);
    out_.close();
    tasks_.finish(folds);
    out_.close();
    tasks_.begin(group, axis_bit(columns.axes[0]));
    return few.second;
  }

  Source& source_;
  const Plan& plan_;
  Emitter out_;
  TaskWriter tasks_;
  ScanWriter scans_;
  UpdateWriter updates_;
  const TargetFacts& target_;
  const bool is_cpu_;
  std::string suffix_;
};

}  // namespace

Kernel write_loops(Source& source, const Plan& plan, const TargetFacts& target) {
  return FormWriter(source, plan, target).run();
}

}  // namespace cermet::ir
