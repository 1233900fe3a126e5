// SPDX-License-Identifier: MIT
#include "codegen/prefetch.h"

#include <algorithm>
#include <optional>
#include <set>

#include "codegen/lane_analysis.h"
#include "kernel/micro.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int64_t kRowsAhead = 4;     // some hundred cycles
constexpr int kLineWork = 16;         // ops and accesses, about, while a line comes from memory
constexpr size_t kMostLookedUp = 32;  // expressions that are made again for another row

class Planner {
 public:
  Planner(const Kernel& kernel, int vector_bytes)
      : kernel_(kernel), vector_bytes_(vector_bytes), lets_(kernel.values.size(), kNone) {
    for_each_stmt(kernel.body, [&](const Stmt& stmt) {
      if (const Let* let = std::get_if<Let>(&stmt)) lets_[let->value] = let->expr;
    });
  }

  void plan_chunk(const For& chunk) {
    for_each_stmt(chunk.body, [&](const Stmt& stmt) {
      const Micro* micro = std::get_if<Micro>(&stmt);
      if (micro == nullptr) return;
      if (micro->kind == MicroKind::transpose) tile_ = TransposeMicro::of(*micro).tile;
      if (micro->kind == MicroKind::turn) along_rows_ = TurnMicro::of(*micro).to.local;
    });
    plan(chunk, {});
  }

  std::map<const For*, std::vector<Ahead>> take() { return std::move(ahead_); }

 private:
  // `row`: a loop whose iterations are rows; it stands in serial loops over these variables.
  void plan(const For& row, std::vector<AxisId> around) {
    std::vector<const For*> lanes;
    if (row.kind == ForKind::serial) around.push_back(row.axes[0]);
    around_ = around;
    for (const Stmt& stmt : row.body) {
      if (std::holds_alternative<Micro>(stmt)) multiplied_.insert(row.axes[0]);
      const For* loop = std::get_if<For>(&stmt);
      if (loop == nullptr) continue;
      if (loop->kind == ForKind::serial) inner_.push_back({loop, around});
      if (loop->kind == ForKind::lane) lanes.push_back(loop);
    }
    if (lanes.size() > 1) place_loads(row, lanes);
    else if (lanes.size() == 1 && tile_ > 0) place_tile(row, *lanes[0]);
    else if (lanes.size() == 1 && row.kind == ForKind::serial) place_single(row, *lanes[0]);
    else if (lanes.size() == 1) place_item(row, *lanes[0]);
    while (!inner_.empty()) {
      const Inner next = inner_.back();
      inner_.pop_back();
      plan(*next.loop, next.around);
    }
  }

  struct Inner {
    const For* loop;
    std::vector<AxisId> around;
  };
  struct Pass {
    const For* loop;
    LaneAnalysis analysis;
  };

  void place_loads(const For& row, const std::vector<const For*>& loops) {
    passes_.clear();
    fetched_.clear();
    for (const For* loop : loops) passes_.push_back({loop, LaneAnalysis(kernel_, *loop)});
    // What is loaded last first: its loader, where it is the best but for that, is then left to others.
    for (size_t i = passes_.size(); i-- > 0;) place_loads(row, i);
    for (size_t i = 0; i < passes_.size(); ++i) share(i);
  }

  void place_loads(const For& row, size_t pass) {
    for (const UnitAccess& unit : passes_[pass].analysis.units()) {
      if (!unit.loaded || unit.buffer.local || is_loaded_before(unit, pass)) continue;
      if (!passes_[pass].analysis.access(*unit.index).early) continue;
      const For* loop = passes_[pass].loop;
      if (is_tile(*loop)) {
        // By what steps through the tile, if anything: evenly over more time.
        const For* by = pass + 1 < passes_.size() && steps(*passes_[pass + 1].loop)
                            ? passes_[pass + 1].loop
                            : loop;
        ahead_[by].push_back({unit.buffer, unit.index, loop->axes[0], kNone, 1, true, loop});
        continue;
      }
      const std::optional<int32_t> stride = row_stride(row.axes[0], pass, *unit.index);
      if (!stride && is_picked(row, *unit.index)) {
        fetch_picked(row, *loop, unit.buffer, *unit.index);
        continue;
      }
      if (!stride) continue;
      if (are_parts()) {
        fetch_rows(*loop, unit.buffer, *unit.index, *stride, kUnit);
        continue;
      }
      const size_t by = fetcher(pass);
      std::vector<Ahead>& ahead = ahead_[passes_[by].loop];
      ahead.push_back({unit.buffer, unit.index, loop->axes[0], by < pass ? kNone : *stride});
      fetched_.push_back({by, pass, *stride, ahead.size() - 1});
    }
  }

  // Loops without folds take a part of the row each, as those of a concatenation do.
  bool are_parts() const {
    return std::ranges::all_of(passes_, [](const Pass& p) { return p.analysis.folds().empty(); });
  }

  // Rows of what has all the axes: what lacks one is read again for it, from a cache.
  void fetch_rows(const For& loop, BufferRef buffer, const Index& index, int32_t stride,
                  int32_t step, int64_t rows = 1) {
    if (axis_terms(index) < most_terms()) return;
    const bool alone = passes_.size() == 1, if_apart = alone && rows == 1 && step == kUnit;
    ahead_[&loop].push_back({.buffer = buffer,
                             .index = &index,
                             .variable = loop.axes[0],
                             .next_row = stride,
                             .rows = rows,
                             .step = step,
                             .few_lines = true,
                             .at_once = !alone,
                             .if_apart = if_apart,
                             .streams = if_apart && is_only_stream()});
  }
  int64_t most_terms() const {
    int64_t most = 0;
    for (const Pass& pass : passes_)
      for (const UnitAccess& unit : pass.analysis.units())
        most = std::max(most, axis_terms(*unit.index));
    return most;
  }
  // Those that are no offset.
  int64_t axis_terms(const Index& index) const {
    return std::ranges::count_if(index, [&](const IndexTerm& term) {
      const ExprKind kind = kernel_[term.expr].kind;
      return kind != ExprKind::scalar && kind != ExprKind::constant;
    });
  }
  // Of two, L1 would have too much to wait for; halves of rows are one.
  bool is_only_stream() const {
    const int64_t most = most_terms();
    std::vector<const Index*> streams;
    for (const UnitAccess& unit : passes_[0].analysis.units())
      if (unit.loaded && !unit.buffer.local && axis_terms(*unit.index) == most)
        streams.push_back(unit.index);
    return streams.size() == 1 || (streams.size() == 2 && are_of_one(*streams[0], *streams[1]));
  }
  // A stride has one number where views of one buffer have it.
  static bool are_of_one(const Index& a, const Index& b) {
    const auto has_number = [](const IndexTerm& term) { return term.stride != kUnit; };
    return std::ranges::any_of(a, has_number) && std::ranges::equal(a, b);
  }

  // Not for updates, whose rounds are so short that the processor sees several at once.
  void fetch_picked(const For& row, const For& loop, BufferRef buffer, const Index& index,
                    int32_t step = kUnit) {
    const auto updates = [](const Stmt& stmt) { return std::holds_alternative<Update>(stmt); };
    if (std::ranges::any_of(loop.body, updates)) return;
    ahead_[&loop].push_back({.buffer = buffer,
                             .index = &index,
                             .variable = loop.axes[0],
                             .next_row = kNone,
                             .step = step,
                             .at_once = true,
                             .picked = &row});
  }

  // Lanes that step along chains.
  static bool steps(const For& loop) {
    return std::ranges::any_of(loop.body, [](const Stmt& stmt) {
      const For* inner = std::get_if<For>(&stmt);
      return inner != nullptr && inner->kind == ForKind::serial;
    });
  }

  // Tiles follow one another along the rows that are written or, `along_rows_`, those that are read across. So the
  // next one has other rows where this loop fills a Local, and other lanes where one is read; or the reverse.
  void place_tile(const For& row, const For& loop) {
    passes_.clear();
    passes_.push_back({&loop, LaneAnalysis(kernel_, loop)});
    const auto is_local = [](const UnitAccess& unit) { return !unit.stored || unit.buffer.local; };
    const std::vector<UnitAccess>& units = passes_[0].analysis.units();
    const bool fills = std::ranges::all_of(units, is_local);
    for (const UnitAccess& unit : units) {
      if (!unit.loaded || unit.buffer.local || !passes_[0].analysis.access(*unit.index).early)
        continue;
      const std::optional<int32_t> stride = row_stride(row.axes[0], 0, *unit.index);
      if (fills == along_rows_)
        ahead_[&loop].push_back({unit.buffer, unit.index, loop.axes[0], kNone, 1, true});
      else if (stride)
        ahead_[&loop].push_back({unit.buffer, unit.index, loop.axes[0], *stride, tile_});
    }
  }

  // The only loop over a row fetches for itself: the same tile of the next row or, of a row alone, its next
  // tile; else the next row, or a short row further on. Where a template works before the next tile, that would
  // be gone from the cache by then: the same tile some rows ahead.
  void place_single(const For& row, const For& loop) {
    passes_.clear();
    passes_.push_back({&loop, LaneAnalysis(kernel_, loop)});
    for (const UnitAccess& unit : passes_[0].analysis.units())
      if (unit.loaded) place_single(row, loop, unit.buffer, *unit.index, kUnit);
    for (const StridedLoad& load : passes_[0].analysis.strided_loads())
      place_single(row, loop, load.buffer, *load.index, load.stride);
  }

  void place_single(const For& row, const For& loop, BufferRef buffer, const Index& index,
                    int32_t step) {
    if (buffer.local || !passes_[0].analysis.access(index).early) return;
    const std::optional<int32_t> stride = row_stride(row.axes[0], 0, index);
    const std::optional<int32_t> outer = outer_stride(index);
    const AxisId tiles = tiles_by(loop);
    const auto fetch = [&](int32_t next_row, int64_t rows, bool next_tile = false) {
      ahead_[&loop].push_back(
          {buffer, &index, loop.axes[0], next_row, rows, next_tile, nullptr, step});
    };
    if (stride && multiplied_.contains(tiles)) fetch(*stride, kRowsAhead);
    else if (outer && tiles == row.axes[0]) fetch(*outer, 1);
    else if (tiles != kNone) fetch(kNone, 1, true);
    else if (stride) fetch_rows(loop, buffer, index, *stride, step);
    else if (const auto many = rows_stride(row.axes[0], index))
      fetch_rows(loop, buffer, index, many->stride, step, many->rows);
    else if (is_picked(row, index)) fetch_picked(row, loop, buffer, index, step);
  }

  void place_item(const For& row, const For& loop) {
    passes_.clear();
    passes_.push_back({&loop, LaneAnalysis(kernel_, loop)});
    const bool is_map = passes_[0].analysis.folds().empty();
    if (is_map && !is_only_stream()) return;
    for (const UnitAccess& unit : passes_[0].analysis.units()) {
      if (!unit.loaded || unit.buffer.local || !passes_[0].analysis.access(*unit.index).early)
        continue;
      if (is_map)
        ahead_[&loop].push_back({.buffer = unit.buffer,
                                 .index = unit.index,
                                 .variable = loop.axes[0],
                                 .next_row = kNone,
                                 .streams = true});
      else if (const std::optional<int32_t> stride = row_stride(row.axes[0], 0, *unit.index))
        ahead_[&loop].push_back({.buffer = unit.buffer,
                                 .index = unit.index,
                                 .variable = loop.axes[0],
                                 .next_row = *stride,
                                 .rows = 0,
                                 .few_lines = true});
      else if (is_picked(row, *unit.index)) fetch_picked(row, loop, unit.buffer, *unit.index);
    }
  }

  // The stride of the loop around that over the tiles of a row.
  std::optional<int32_t> outer_stride(const Index& index) const {
    if (around_.size() < 2) return std::nullopt;
    return row_stride(around_[around_.size() - 2], 0, index);
  }

  // Begins where a round before, of this loop's row or of a loop around it, ended: at a multiple of the
  // variable, or so far from there.
  bool is_tile(const For& loop) const { return tiles_by(loop) != kNone; }
  AxisId tiles_by(const For& loop) const {
    const auto found = std::ranges::find_if(
        around_, [&](AxisId variable) { return counts_tiles(loop.begin, variable); });
    return found == around_.end() ? kNone : *found;
  }
  bool counts_tiles(ExprId id, AxisId variable) const {
    const Expr& e = kernel_[id];
    if (e.kind == ExprKind::ref) return lets_[e.id] != kNone && counts_tiles(lets_[e.id], variable);
    if (e.kind != ExprKind::op) return false;
    if (e.code == Code::add)
      return std::ranges::any_of(e.operands, [&](ExprId x) { return counts_tiles(x, variable); });
    const auto is_variable = [&](ExprId x) {
      return kernel_[x].kind == ExprKind::axis && kernel_[x].id == variable;
    };
    return (e.code == Code::mul || e.code == Code::shl) &&
           std::ranges::any_of(e.operands, is_variable);
  }

  bool is_loaded_before(const UnitAccess& unit, size_t pass) const {
    for (size_t i = 0; i < pass; ++i)
      for (const UnitAccess& other : passes_[i].analysis.units())
        if (other.loaded && other.buffer == unit.buffer) return true;
    return false;
  }

  // The stride of the term that goes from row to row, if all other terms stay.
  std::optional<int32_t> row_stride(AxisId row, size_t pass, const Index& index) const {
    std::optional<int32_t> stride;
    const AxisId variable = passes_[pass].loop->axes[0];
    for (const IndexTerm& term : index) {
      const Expr& e = kernel_[term.expr];
      if (e.kind == ExprKind::axis && e.id == variable) continue;
      if (!counts_rows(term.expr, row)) continue;
      if (stride || term.stride == kUnit) return std::nullopt;
      stride = term.stride;
    }
    return stride;
  }

  // Of a loop that goes over several rows at once.
  struct Rows {
    int32_t stride;
    int64_t rows;
  };
  std::optional<Rows> rows_stride(AxisId round, const Index& index) const {
    std::optional<Rows> found;
    for (const IndexTerm& term : index) {
      const std::optional<int64_t> rows = rows_counted(term.expr, round);
      if (!rows) continue;
      if (found || term.stride == kUnit) return std::nullopt;
      found = Rows{term.stride, *rows};
    }
    return found;
  }
  // By how much the sum goes up from one of the variable to the next, if by a constant.
  std::optional<int64_t> rows_counted(ExprId id, AxisId variable) const {
    const Expr& e = kernel_[id];
    if (e.kind == ExprKind::ref)
      return lets_[e.id] == kNone ? std::nullopt : rows_counted(lets_[e.id], variable);
    if (e.kind != ExprKind::op || e.operands.size() != 2) return std::nullopt;
    const Expr &a = kernel_[e.operands[0]], &b = kernel_[e.operands[1]];
    if (e.code == Code::add) {
      const auto rows = rows_counted(e.operands[0], variable);
      return rows ? rows : rows_counted(e.operands[1], variable);
    }
    if (a.kind != ExprKind::axis || a.id != variable || b.kind != ExprKind::constant)
      return std::nullopt;
    if (e.code == Code::mul) return static_cast<int64_t>(b.bits);
    return e.code == Code::shl ? std::optional(int64_t{1} << b.bits) : std::nullopt;
  }

  // Goes up by one from row to row, mostly: the loop's variable, its remainder, either from somewhere on.
  bool counts_rows(ExprId id, AxisId variable) const {
    const Expr& e = kernel_[id];
    if (e.kind == ExprKind::axis) return e.id == variable;
    if (e.kind == ExprKind::ref) return lets_[e.id] != kNone && counts_rows(lets_[e.id], variable);
    if (e.kind != ExprKind::op) return false;
    if (e.code == Code::add && counts_rows(e.operands[1], variable)) return true;
    return (e.code == Code::rem || e.code == Code::add) && counts_rows(e.operands[0], variable);
  }

  // What is loaded tells where the row lies; it can be looked up for another row: there is no mask,
  // no result of a loop and nothing that the rows write.
  bool is_picked(const For& row, const Index& index) const {
    if (row.kind == ForKind::chunk && row.axes.size() > 1) return false;
    std::set<ExprId> found;
    const std::set<int> written = written_buffers(kernel_, row.body);
    for (const IndexTerm& term : index)
      if (!look_up(term.expr, written, found)) return false;
    const auto is_load = [&](ExprId id) { return kernel_[id].kind == ExprKind::load; };
    const auto is_row = [&](ExprId id) {
      return kernel_[id].kind == ExprKind::axis && kernel_[id].id == row.axes[0];
    };
    return std::ranges::any_of(found, is_load) && std::ranges::any_of(found, is_row);
  }
  bool look_up(ExprId id, const std::set<int>& written, std::set<ExprId>& found) const {
    if (!found.insert(id).second) return true;
    if (found.size() > kMostLookedUp) return false;
    const Expr& e = kernel_[id];
    switch (e.kind) {
      case ExprKind::constant:
      case ExprKind::scalar:
      case ExprKind::axis:
      case ExprKind::extent:
      case ExprKind::stride: return true;
      case ExprKind::ref: return lets_[e.id] != kNone && look_up(lets_[e.id], written, found);
      case ExprKind::op: break;
      case ExprKind::load:
        if (e.operands[0] != kNone || written.contains(buffer_number(kernel_, e.buffer)))
          return false;
        break;
      default: return false;
    }
    bool can = true;
    for_each_operand(e, [&](ExprId operand) { can = can && look_up(operand, written, found); });
    return can;
  }

  // The pass with the most work for each array that it fetches. The loader has its own to wait for, but is
  // better than one with little work: memory takes few requests at once. Of those, stores take many.
  size_t fetcher(size_t loader) const {
    size_t best = loader == 0 ? 1 : 0;
    for (size_t i = 0; i < passes_.size(); ++i)
      if (room(i, i == loader) > room(best, best == loader)) best = i;
    return best;
  }
  double room(size_t pass, bool loads) const {
    constexpr int kWait = 2;  // about what the work must be beyond
    const size_t arrays = 1 + count_fetched(pass);
    const int work = passes_[pass].analysis.work() - (loads ? kWait : 0);
    return work / static_cast<double>(stores(passes_[pass]) ? 2 * arrays + 1 : arrays);
  }
  bool loads_first(size_t pass) const {
    return std::ranges::any_of(passes_[pass].analysis.units(), [&](const UnitAccess& unit) {
      return unit.loaded && !unit.buffer.local && !is_loaded_before(unit, pass);
    });
  }
  size_t count_fetched(size_t pass) const {
    const auto found = ahead_.find(passes_[pass].loop);
    return found == ahead_.end() ? 0 : found->second.size();
  }

  static bool stores(const Pass& pass) {
    return std::ranges::any_of(pass.analysis.units(), [](const UnitAccess& unit) {
      return unit.stored && !unit.buffer.local;
    });
  }

  struct Fetch {
    size_t by, loader;
    int32_t stride;
    size_t number;  // in what `by` fetches
  };
  // Half of an array whose rows are long is left to another pass where the work of one is too little for all
  // that it fetches: to the one with the most room, the loader if there is no other.
  void share(size_t by) {
    const auto is_by = [&](const Fetch& fetch) { return fetch.by == by; };
    const auto found = std::ranges::find_if(fetched_, is_by);
    if (found == fetched_.end() || by == found->loader) return;
    const Fetch fetch = *found;
    Ahead& own = ahead_[passes_[by].loop][fetch.number];
    if (line_work(passes_[by], own.buffer) >= kLineWork * static_cast<int>(count_fetched(by)))
      return;
    size_t helper = fetch.loader;
    for (size_t i = 0; i < passes_.size(); ++i) {
      if (i == by || i == fetch.loader) continue;
      if (helper == fetch.loader || room(i, loads_first(i)) > room(helper, loads_first(helper)))
        helper = i;
    }
    // The pass of the row before comes first.
    const auto comes_before = [&](size_t a, size_t b) {
      const bool a_next = a >= fetch.loader, b_next = b >= fetch.loader;
      return a_next == b_next ? a < b : a_next;
    };
    Ahead helped = own;
    helped.helps = true;
    helped.next_row = helper < fetch.loader ? kNone : fetch.stride;
    const bool is_first = comes_before(helper, by);
    helped.part = is_first ? Ahead::Part::first_half : Ahead::Part::second_half;
    own.part = is_first ? Ahead::Part::second_half : Ahead::Part::first_half;
    ahead_[passes_[helper].loop].push_back(helped);
  }

  // Of what a pass does while a line of the array comes.
  int line_work(const Pass& pass, BufferRef buffer) const {
    const int lane_bytes = static_cast<int>(size_of(kernel_.params[buffer.id].dtype));
    const int bytes = pass.analysis.width(vector_bytes_) * lane_bytes;
    return pass.analysis.work() * std::max(1, static_cast<int>(kLineBytes) / bytes);
  }

  const Kernel& kernel_;
  int vector_bytes_;
  std::vector<ExprId> lets_;
  std::vector<Pass> passes_;
  std::vector<Fetch> fetched_;  // whole rows, by one pass for others
  std::vector<Inner> inner_;
  std::vector<AxisId> around_;   // of the row in hand
  std::set<AxisId> multiplied_;  // of loops that hold a template
  std::map<const For*, std::vector<Ahead>> ahead_;
  int64_t tile_ = 0;         // rows of a transposing tile
  bool along_rows_ = false;  // the next one lies along the rows that are read across
};

}  // namespace

std::map<const For*, std::vector<Ahead>> fetched_ahead(const Kernel& kernel, const For& chunk,
                                                       int vector_bytes) {
  Planner planner(kernel, vector_bytes);
  planner.plan_chunk(chunk);
  return planner.take();
}

}  // namespace cermet::codegen
