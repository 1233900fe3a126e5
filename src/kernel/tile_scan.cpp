// SPDX-License-Identifier: MIT
#include "kernel/tile_scan.h"

#include <algorithm>

#include "kernel/carries.h"
#include "kernel/scalar_ops.h"

namespace cermet::ir {

namespace {

const Fold* scan_of(const Task& task) {
  const Fold* fold = std::get_if<Fold>(task.line.stmt);
  return fold != nullptr && fold->emit == Emit::each && task.kind == TaskKind::fold ? fold
                                                                                    : nullptr;
}

// Whether a state merged with the initial one is that state, bit for bit.
bool is_neutral(const Source& source, const FoldState& state) {
  const Expr &merge = source[state.merge], &init = source[state.init];
  if (merge.kind != ExprKind::op || init.kind != ExprKind::constant) return false;
  const bool has_neutral = merge.code == Code::add || merge.code == Code::mul ||
                           merge.code == Code::min || merge.code == Code::max;
  return has_neutral && source[merge.operands[0]].kind == ExprKind::state &&
         source[merge.operands[1]].kind == ExprKind::other &&
         source[merge.operands[0]].id == source[merge.operands[1]].id &&
         init.bits == neutral_of(merge.code, init.dtype);
}

}  // namespace

bool ScanWriter::fits(const Tasks& tasks) const {
  bool any = false;
  for (const Task* task : tasks) {
    const Fold* fold = scan_of(*task);
    if (fold == nullptr && task->kind == TaskKind::fold) return false;
    if (fold == nullptr) continue;
    // What is the same everywhere is not worth lanes of its own.
    bool differs = false;
    std::vector<ExprId> roots;
    for (const FoldState& state : fold->states) roots.push_back(state.step);
    source_.walk(roots, [&](ExprId id) {
      const AxisSet axes = source_.axes(id);
      differs = differs || ((axes & kStateAxis) == 0 && (axes & set_of(fold->axes)) != 0);
      return (axes & kStateAxis) != 0;
    });
    if (!differs) return false;
    any = true;
    for (const ValueId value : task->needs) {
      const Task& maker = plan_.tasks[plan_.maker[value]];
      if (scan_of(maker) != nullptr && std::ranges::count(tasks, &maker) > 0) return false;
    }
  }
  return any;
}

void ScanWriter::find_scans(const ScanPass& pass) {
  scans_.clear();
  others_.clear();
  for (const Task* task : pass.tasks) {
    if (const Fold* fold = scan_of(*task)) scans_.push_back({.fold = fold});
    else others_.push_back(task);
  }
}

// What the steps take that no state is in, and room for a tile of it. Tiles stay in L1, so wide ones are of
// few bytes.
void ScanWriter::find_elements(const ScanPass& pass, bool wide) {
  constexpr size_t kMostBytes = 8;
  const AxisSet rows = set_of(pass.group.rows);
  size_t bytes = 0;
  for (Scan& scan : scans_) {
    std::vector<ExprId> roots;
    for (const FoldState& state : scan.fold->states) roots.push_back(state.step);
    source_.walk(roots, [&](ExprId id) {
      const AxisSet axes = source_.axes(id);
      if ((axes & kStateAxis) != 0) return true;
      if ((axes & rows) != 0) scan.elements.push_back(id);
      return false;
    });
    for (const ExprId id : scan.elements) bytes += size_of(source_[id].dtype);
    for (const FoldState& state : scan.fold->states) bytes += size_of(state.dtype);
  }
  tile_ = wide && bytes <= kMostBytes ? kScanWideTile : kScanTile;
  for (Scan& scan : scans_)
    for (const ExprId id : scan.elements)
      scan.inputs.push_back(out_.to().local(source_[id].dtype, {tile_, {}}, LocalScope::thread));
}

void ScanWriter::make_locals(int64_t states, const Size& carry) {
  for (Scan& scan : scans_)
    for (const FoldState& state : scan.fold->states) {
      scan.states.push_back(out_.to().local(state.dtype, {states, {}}, LocalScope::thread));
      scan.carry.push_back(out_.to().local(state.dtype, carry, LocalScope::thread));
    }
}

std::vector<ExprId> ScanWriter::load_all(const std::vector<LocalId>& from, const Index& place) {
  std::vector<ExprId> values;
  for (const LocalId local : from) values.push_back(out_.let(out_.to().load({true, local}, place)));
  return values;
}

void ScanWriter::store_all(const std::vector<LocalId>& to, const Index& place,
                           const std::vector<ExprId>& values) {
  for (size_t i = 0; i < to.size(); ++i) out_.append(Store{{true, to[i]}, place, values[i]});
}

std::vector<ExprId> ScanWriter::inits(const Fold& fold) {
  std::vector<ExprId> values;
  for (const FoldState& state : fold.states) values.push_back(out_.expr(state.init));
  return values;
}

std::vector<ExprId> ScanWriter::stepped(const Fold& fold, const std::vector<ExprId>& states) {
  std::vector<ExprId> values;
  out_.set_states(states);
  for (const FoldState& state : fold.states) values.push_back(out_.let(out_.expr(state.step)));
  out_.clear_states();
  return values;
}

std::vector<ExprId> ScanWriter::merged(const Fold& fold, ExprId first,
                                       const std::vector<ExprId>& before,
                                       const std::vector<ExprId>& states) {
  std::vector<ExprId> values;
  out_.set_states(before, states);
  for (const FoldState& state : fold.states) values.push_back(out_.expr(state.merge));
  out_.clear_states();
  const bool as_it_is = std::ranges::all_of(
      fold.states, [&](const FoldState& state) { return is_neutral(source_, state); });
  for (size_t i = 0; i < values.size() && !as_it_is; ++i)
    values[i] = out_.to().select(first, states[i], values[i]);
  return values;
}

void ScanWriter::define_values(const Fold& fold, const std::vector<ExprId>& states) {
  const std::vector<ExprId> parts = tasks_.parts_of(fold.value);
  for (size_t i = 0; i < parts.size(); ++i) out_.define(parts[i], states[i]);
  tasks_.publish(fold.value);
}

// The elements of a tile, to Locals.
void ScanWriter::fill(const ScanPass& pass, const Tile& tile) {
  Builder& to = out_.to();
  const ExprId back = out_.let(to.sub(out_.integer(0), tile.base));
  const ExprId end = out_.let(to.add(tile.base, tile.size));
  const AxisId e = out_.open_loop(ForKind::lane, tile.base, end, "element");
  const ExprId at = to.axis_ref(e);
  out_.bind_again(pass.group.rows, at);
  pass.at(at);
  for (const Scan& scan : scans_)
    for (size_t i = 0; i < scan.elements.size(); ++i)
      out_.append(
          Store{{true, scan.inputs[i]}, {{back, kUnit}, {at, kUnit}}, out_.expr(scan.elements[i])});
  out_.close();
}

// Whether this is one element after the other along the row axis.
bool ScanWriter::steps_along(const ScanPass& pass, const Index& index) const {
  const AxisSet row = axis_bit(pass.group.rows[0]);
  const auto counts = [&](const IndexTerm& term) { return (source_.axes(term.expr) & row) != 0; };
  const auto along = std::ranges::find_if(index, counts);
  return std::ranges::count_if(index, counts) == 1 && source_[along->expr].kind == ExprKind::axis &&
         along->stride == kUnit;
}

bool ScanWriter::lie_along(const ScanPass& pass, const std::vector<ExprId>& roots) const {
  const std::vector<AxisId>& rows = pass.group.rows;
  if (rows.size() != 1) return false;
  bool fits = true;
  source_.walk(roots, [&](ExprId id) {
    const Expr& e = source_[id];
    if (e.kind == ExprKind::axis && e.id == rows[0]) fits = false;
    if (e.kind != ExprKind::load || (source_.axes(id) & axis_bit(rows[0])) == 0) return true;
    fits = fits && e.operands[0] == kNone && steps_along(pass, e.index);
    return false;
  });
  return fits;
}

bool ScanWriter::lies_along(const ScanPass& pass) const {
  std::vector<ExprId> elements;
  for (const Scan& scan : scans_)
    elements.insert(elements.end(), scan.elements.begin(), scan.elements.end());
  return lie_along(pass, elements);
}

// Whether what uses the values can do so where they are stepped: it stores them along the row, and nothing
// reads what it stores.
bool ScanWriter::others_lie_along(const ScanPass& pass) const {
  return lies_along(pass) && std::ranges::all_of(others_, [&](const Task* task) {
           const Store* store = std::get_if<Store>(task->line.stmt);
           const auto reads = [&](const Task* other) {
             return std::ranges::any_of(
                 other->reads, [&](const Read& read) { return read.buffer == store->buffer; });
           };
           return store != nullptr && store->mask == kNone && steps_along(pass, store->index) &&
                  lie_along(pass, {store->value}) && std::ranges::none_of(pass.tasks, reads);
         });
}

// The fold of a scan within the loop k; with its elements from the tile, or as they are.
ValueId ScanWriter::step(const Scan& scan, const Index& place, AxisId k, Emit emit, bool filled) {
  Builder& to = out_.to();
  for (size_t i = 0; i < scan.elements.size() && filled; ++i)
    out_.define(scan.elements[i], to.load({true, scan.inputs[i]}, place));
  std::vector<FoldState> states = out_.fold_states(scan.fold->states, true);
  std::vector<Dtype> dtypes;
  for (const FoldState& state : states) dtypes.push_back(state.dtype);
  const ValueId made = to.value(dtypes);
  out_.append(Fold{made, {k}, emit, Order::serial, std::move(states)});
  for (size_t i = 0; i < dtypes.size() && emit == Emit::each && !place.empty(); ++i)
    out_.append(Store{{true, scan.states[i]}, place, part(made, i, dtypes.size())});
  return made;
}

// The folds of the tile's blocks, a block in each lane. Of scans each state goes to the tile.
void ScanWriter::step_blocks(const ScanPass& pass, const Tile& tile, Emit emit, From source) {
  const bool in_place = source == From::array;
  Builder& to = out_.to();
  const AxisId chain =
      out_.open_loop(ForKind::lane, out_.integer(0), out_.integer(tile.chains), "chain");
  const ExprId from = out_.let(to.mul(to.axis_ref(chain), out_.integer(kScanBlock)));
  const ExprId steps = to.mul(out_.ceil_div(tile.size, kScanSteps), out_.integer(kScanSteps));
  const ExprId end =
      in_place ? out_.integer(kScanBlock) : out_.let(to.min(steps, out_.integer(kScanBlock)));
  const ExprId begin = in_place ? out_.let(to.add(tile.base, from)) : from;
  const AxisId k = out_.open_loop(ForKind::serial, out_.integer(0), end, "k");
  const ExprId at = to.axis_ref(k);
  const Index place = {{from, kUnit}, {at, kUnit}};
  const ExprId here = to.add(begin, at);
  out_.bind_again(pass.group.rows, in_place ? here : at);
  if (in_place) pass.at(here);
  if (source == From::column) define_loaded({{tile_at_, kUnit}, {from, kUnit}, {at, kUnit}});
  std::vector<ValueId> made;
  for (const Scan& scan : scans_) made.push_back(step(scan, place, k, emit, source == From::tile));
  out_.close();
  if (emit == Emit::last) keep_totals(tile, to.axis_ref(chain), made);
  out_.close();
}

void ScanWriter::keep_totals(const Tile& tile, ExprId chain, const std::vector<ValueId>& made) {
  Builder& to = out_.to();
  const ExprId exists =
      out_.let(to.compare(Code::lt, chain, out_.let(out_.ceil_div(tile.size, kScanBlock))));
  const Index place = of_block({{tile.block, kUnit}, {chain, kUnit}});
  for (size_t f = 0; f < scans_.size(); ++f) {
    const std::vector<LocalId>& blocks = scans_[f].blocks;
    for (size_t i = 0; i < blocks.size(); ++i)
      out_.append(Store{{true, blocks[i]}, place, part(made[f], i, blocks.size()), exists});
  }
}

// A whole tile's scans, its blocks side by side, and what uses their values at once: what is before the
// blocks is known, and nothing goes through Locals.
void ScanWriter::run_blocks(const ScanPass& pass, const Tile& tile) {
  Builder& to = out_.to();
  const AxisId chain =
      out_.open_loop(ForKind::lane, out_.integer(0), out_.integer(tile.chains), "chain");
  const Index block = of_block({{tile.block, kUnit}, {to.axis_ref(chain), kUnit}});
  std::vector<std::vector<ExprId>> before;
  for (const Scan& scan : scans_) before.push_back(load_all(scan.blocks, block));
  const ExprId number = to.add(tile.block, to.axis_ref(chain));
  const ExprId first = out_.let(to.compare(Code::eq, number, out_.integer(0)));
  const ExprId from = out_.let(to.mul(to.axis_ref(chain), out_.integer(kScanBlock)));
  const ExprId begin = out_.let(to.add(tile.base, from));
  const AxisId k = out_.open_loop(ForKind::serial, out_.integer(0), out_.integer(kScanBlock), "k");
  const ExprId here = to.add(begin, to.axis_ref(k));
  const Index in_column = {{tile_at_, kUnit}, {from, kUnit}, {to.axis_ref(k), kUnit}};
  out_.bind_again(pass.group.rows, here);
  elements_ == kNone ? pass.at(here) : define_loaded(in_column);
  for (size_t f = 0; f < scans_.size(); ++f) {
    const ValueId made = step(scans_[f], {}, k, Emit::each, false);
    std::vector<ExprId> states;
    for (size_t i = 0; i < before[f].size(); ++i) states.push_back(part(made, i, before[f].size()));
    states = merged(*scans_[f].fold, first, before[f], states);
    for (ExprId& state : states) state = out_.let(state);
    define_values(*scans_[f].fold, states);
  }
  tasks_.run(others_, k);
  store_moved(in_column);
  pass.done(here);
  out_.close();
  out_.close();
}

// Where elements may be read in place, they are in whole tiles: the lanes read up to the tile's end.
void ScanWriter::step_tile(const ScanPass& pass, const Tile& tile, Emit emit) {
  Builder& to = out_.to();
  if (lies_in_columns(pass)) return step_blocks(pass, tile, emit, From::column);
  if (!lies_along(pass)) {
    fill(pass, tile);
    return step_blocks(pass, tile, emit, From::tile);
  }
  if (tile.is_whole) return step_blocks(pass, tile, emit, From::array);
  const auto open_if = [&](Code compares, const char* name) {
    const ExprId holds = to.compare(compares, tile.size, out_.integer(kScanTile));
    out_.open_loop(ForKind::serial, out_.integer(0), out_.let(to.cast(holds, Dtype::int64)), name);
  };
  open_if(Code::eq, "whole");
  step_blocks(pass, tile, emit, From::array);
  out_.close();
  open_if(Code::ne, "partial");
  fill(pass, tile);
  step_blocks(pass, tile, emit, From::tile);
  out_.close();
}

// A block alone: lanes for others would cost more than its steps.
void ScanWriter::step_block(const ScanPass& pass, const Tile& tile, Emit emit) {
  Builder& to = out_.to();
  fill(pass, tile);
  const AxisId k = out_.open_loop(ForKind::serial, out_.integer(0), tile.size, "k");
  const ExprId at = to.axis_ref(k);
  const Index place = {{at, kUnit}};
  out_.bind_again(pass.group.rows, at);
  std::vector<ValueId> made;
  for (const Scan& scan : scans_) made.push_back(step(scan, place, k, emit));
  out_.close();
  if (emit == Emit::each) return;
  const Index here = of_block({{tile.block, kUnit}});
  for (size_t f = 0; f < scans_.size(); ++f) {
    const std::vector<LocalId>& blocks = scans_[f].blocks;
    for (size_t i = 0; i < blocks.size(); ++i)
      out_.append(Store{{true, blocks[i]}, here, part(made[f], i, blocks.size())});
  }
}

// A block of the tile: its states become values, and what uses them runs.
void ScanWriter::finish_block(const ScanPass& pass, const Tile& tile, ExprId number,
                              Before before) {
  Builder& to = out_.to();
  const ExprId from = out_.let(to.mul(number, out_.integer(kScanBlock)));
  const ExprId size = out_.let(to.min(to.sub(tile.size, from), out_.integer(kScanBlock)));
  const ExprId block = out_.let(to.add(tile.block, number));
  const ExprId first = out_.let(to.compare(Code::eq, block, out_.integer(0)));
  const ExprId begin = out_.let(to.add(tile.base, from));
  const ExprId end = out_.let(to.add(begin, size));
  const ExprId back = out_.let(to.sub(out_.integer(0), tile.base));
  std::vector<std::vector<ExprId>> carried;
  for (const Scan& scan : scans_)
    carried.push_back(before == Before::made ? load_all(scan.blocks, of_block({{block, kUnit}}))
                                             : load_all(scan.carry, of_end()));
  const auto merged_at = [&](size_t f, const Index& place) {
    std::vector<ExprId> values =
        merged(*scans_[f].fold, first, carried[f], load_all(scans_[f].states, place));
    for (ExprId& value : values) value = out_.let(value);
    return values;
  };
  const AxisId e = out_.open_loop(ForKind::lane, begin, end, "e");
  const ExprId at = to.axis_ref(e);
  out_.bind_again(pass.group.rows, at);
  pass.at(at);
  for (size_t f = 0; f < scans_.size(); ++f)
    define_values(*scans_[f].fold, merged_at(f, {{back, kUnit}, {at, kUnit}}));
  tasks_.run(others_, e);
  store_moved({{array_at_, kUnit}, {at, kUnit}});
  pass.done(at);
  out_.close();
  if (before == Before::made) return;
  const Index last = {{out_.let(to.add(from, to.sub(size, out_.integer(1)))), kUnit}};
  for (size_t f = 0; f < scans_.size(); ++f)
    store_all(scans_[f].carry, of_end(), merged_at(f, last));
}

void ScanWriter::finish(const ScanPass& pass, const Tile& tile, Before before) {
  const ExprId count = out_.let(out_.ceil_div(tile.size, kScanBlock));
  const AxisId j = out_.open_loop(ForKind::serial, out_.integer(0), count, "block");
  finish_block(pass, tile, out_.to().axis_ref(j), before);
  out_.close();
}

// The tiles of [begin, begin + size), those of the longest kind first, then what few blocks are left; begin
// is a multiple of a tile's length.
void ScanWriter::for_tiles(ExprId begin, ExprId size, int64_t longest, const ForTile& f) {
  Builder& to = out_.to();
  const ExprId first = out_.let(to.div(begin, out_.integer(kScanBlock)));
  const ExprId many = to.add(size, out_.integer(kScanTile - 1 - kScanFew));
  const ExprId tiles = out_.let(to.div(many, out_.integer(kScanTile)));
  const auto run = [&](AxisId t, int64_t chains, bool is_whole) {
    const auto scaled = [&](int64_t factor) {
      return out_.let(to.mul(to.axis_ref(t), out_.integer(factor)));
    };
    const ExprId length = out_.integer(chains * kScanBlock);
    const ExprId before = scaled(chains * kScanBlock);
    const ExprId left = out_.let(to.sub(size, before));
    f({.base = out_.let(to.add(begin, before)),
       .size = is_whole ? length : out_.let(to.min(left, length)),
       .block = out_.let(to.add(first, scaled(chains))),
       .chains = chains,
       .is_whole = is_whole});
    out_.close();
  };
  ExprId wide = out_.integer(0);
  if (longest == kScanWideTile) {
    wide = out_.let(to.div(size, out_.integer(kScanWideTile)));
    run(out_.open_loop(ForKind::serial, out_.integer(0), wide, "wide"), kScanWideChains, true);
    wide = out_.let(to.mul(wide, out_.integer(kScanWideChains / kScanChains)));
  }
  run(out_.open_loop(ForKind::serial, wide, tiles, "tile"), kScanChains, false);
  const ExprId done = out_.let(to.mul(tiles, out_.integer(kScanChains)));
  const ExprId all = out_.let(out_.ceil_div(size, kScanBlock));
  run(out_.open_loop(ForKind::serial, done, all, "rest"), 1, false);
}

void ScanWriter::write_rows(const ScanPass& pass) {
  find_scans(pass);
  find_elements(pass, false);
  make_locals(tile_, elements_ == kNone ? Size() : size_over({elements_}));
  if (elements_ != kNone) open_column(kNone);
  for (const Scan& scan : scans_) store_all(scan.carry, of_end(), inits(*scan.fold));
  if (elements_ != kNone) close_column();
  for_tiles(out_.integer(0), out_.extent_of(pass.group.rows), tile_, [&](const Tile& tile) {
    for_columns(tile, true, [&] {
      tile.chains == 1 ? step_block(pass, tile, Emit::each) : step_tile(pass, tile, Emit::each);
      finish(pass, tile, Before::carried);
    });
  });
}

// What is before each block, in place of its last states. A step's states are those before the block and
// with it.
void ScanWriter::write_carries(const ScanPass& pass, const std::string& suffix) {
  Builder& to = out_.to();
  const std::vector<AxisId>& rows = pass.group.rows;
  const ExprId many = out_.integer(kScanItem / kScanBlock);
  const auto [begin, past] =
      out_.open_span(std::string(kCarryEntry) + suffix, GridDim{rows, kScanItem});
  const ExprId number = out_.let(out_.ceil_div(out_.extent_of(rows), kScanBlock));
  const AxisId item = out_.open_loop(ForKind::serial, begin, past, "item");
  const ExprId from = out_.let(to.mul(to.axis_ref(item), many));
  const ExprId starts = out_.let(to.compare(Code::eq, to.axis_ref(item), out_.integer(0)));
  if (elements_ != kNone) open_column(number);
  std::vector<std::vector<ExprId>> before;
  for (const Scan& scan : scans_) {
    before.push_back(inits(*scan.fold));
    for (size_t i = 0; i < scan.ends.size(); ++i)
      before.back()[i] =
          out_.let(to.select(starts, before.back()[i], to.load({true, scan.ends[i]}, of_end())));
  }
  const ExprId count = out_.let(to.min(to.sub(number, from), many));
  const AxisId b = out_.open_loop(ForKind::serial, out_.integer(0), count, "block");
  const ExprId block = out_.let(to.add(from, to.axis_ref(b)));
  const ExprId first = to.compare(Code::eq, block, out_.integer(0));
  const Index here = of_block({{block, kUnit}});
  for (size_t f = 0; f < scans_.size(); ++f) {
    const Scan& scan = scans_[f];
    const std::vector<FoldState>& states = scan.fold->states;
    const std::vector<ExprId> last = load_all(scan.blocks, here);
    const size_t n = states.size();
    std::vector<ExprId> so_far;
    std::vector<Dtype> dtypes;
    for (size_t i = 0; i < n; ++i) {
      so_far.push_back(to.state(static_cast<int>(i), states[i].dtype));
      dtypes.push_back(states[i].dtype);
    }
    const std::vector<ExprId> with = merged(*scan.fold, first, so_far, last);
    std::vector<FoldState> steps;
    for (size_t i = 0; i < n; ++i) steps.push_back({dtypes[i], before[f][i], with[i], so_far[i]});
    for (size_t i = 0; i < n; ++i) {
      steps.push_back({dtypes[i], before[f][i], so_far[i], so_far[i]});
      dtypes.push_back(dtypes[i]);
    }
    const ValueId made = to.value(dtypes);
    out_.append(Fold{made, {b}, Emit::each, Order::serial, std::move(steps)});
    for (size_t i = 0; i < n; ++i) {
      out_.append(Store{{true, scan.blocks[i]}, here, part(made, n + i, 2 * n)});
      out_.append(Store{{true, scan.ends[i]}, of_end(), part(made, i, 2 * n)});
    }
  }
  out_.close();
  if (elements_ != kNone) close_column();
  out_.close();
  out_.close();
}

void ScanWriter::write_whole(const ScanPass& pass, const std::string& suffix) {
  find_scans(pass);
  find_elements(pass, is_wide_);
  Builder& to = out_.to();
  const std::vector<AxisId>& rows = pass.group.rows;
  const GridDim items{rows, kScanItem};
  const Size ends = elements_ == kNone ? Size() : size_over({elements_});
  Size blocks = ends;
  for (const AxisId axis : rows)
    blocks.terms.push_back({axis, axis == rows.back() ? kScanBlock : 1});
  for (Scan& scan : scans_)
    for (const FoldState& state : scan.fold->states) {
      scan.blocks.push_back(to.local(state.dtype, blocks, LocalScope::kernel));
      scan.ends.push_back(to.local(state.dtype, ends, LocalScope::kernel));
    }
  make_locals(tile_, {});
  const auto open_item = [&](const char* name) {
    const ExprId index = out_.open_chunk(name + suffix, {items})[0];
    const auto [begin, end] = out_.bounds(index, kScanItem, out_.extent_of(rows));
    const ExprId size = out_.let(to.max(to.sub(end, begin), out_.integer(0)));
    return std::pair(begin, size);
  };

  const auto [from, many] = open_item("totals");
  for_tiles(from, many, kScanTile, [&](const Tile& tile) {
    for_columns(tile, false, [&] {
      tile.chains == 1 ? step_block(pass, tile, Emit::last) : step_tile(pass, tile, Emit::last);
    });
  });
  out_.close();

  write_carries(pass, suffix);

  const auto [begin, length] = open_item("scan");
  const bool at_once =
      elements_ == kNone ? others_lie_along(pass) : lies_in_columns(pass) && others_.empty();
  for_tiles(begin, length, tile_, [&](const Tile& tile) {
    for_columns(tile, true, [&] {
      if (tile.is_whole && at_once) return run_blocks(pass, tile);
      tile.chains == 1 ? step_block(pass, tile, Emit::each) : step_tile(pass, tile, Emit::each);
      finish(pass, tile, Before::made);
    });
  });
  out_.close();
}

void ScanWriter::write_columns(const ScanPass& pass, AxisId lane, ExprId begin, ExprId end) {
  find_scans(pass);
  make_locals(kScanColumns, {kScanColumns, {}});
  Builder& to = out_.to();
  const ExprId back = out_.let(to.sub(out_.integer(0), begin));
  const auto open_lanes = [&] {
    const AxisId variable = out_.open_loop(ForKind::lane, begin, end, "column");
    out_.bind(lane, to.axis_ref(variable));
    return variable;
  };
  const auto place_of = [&](AxisId variable) {
    return Index{{back, kUnit}, {to.axis_ref(variable), kUnit}};
  };
  const auto start = [&](bool carries) {
    const Index place = place_of(open_lanes());
    for (const Scan& scan : scans_)
      store_all(carries ? scan.carry : scan.states, place, inits(*scan.fold));
    out_.close();
  };
  start(true);
  const ExprId total = out_.extent_of(pass.group.rows);
  const AxisId b = out_.open_loop(ForKind::serial, out_.integer(0),
                                  out_.let(out_.ceil_div(total, kScanBlock)), "block");
  const ExprId first = out_.let(to.compare(Code::eq, to.axis_ref(b), out_.integer(0)));
  const auto [low, high] = out_.bounds(to.axis_ref(b), kScanBlock, total);
  start(false);
  const AxisId r = out_.open_loop(ForKind::serial, low, high, "row");
  out_.bind(pass.group.rows, to.axis_ref(r));
  const AxisId variable = open_lanes();
  const Index place = place_of(variable);
  for (const Scan& scan : scans_) {
    const std::vector<ExprId> states = stepped(*scan.fold, load_all(scan.states, place));
    store_all(scan.states, place, states);
    std::vector<ExprId> values = merged(*scan.fold, first, load_all(scan.carry, place), states);
    for (ExprId& value : values) value = out_.let(value);
    define_values(*scan.fold, values);
  }
  tasks_.run(others_, variable);
  out_.close();
  out_.close();
  const Index after = place_of(open_lanes());
  for (const Scan& scan : scans_)
    store_all(scan.carry, after,
              merged(*scan.fold, first, load_all(scan.carry, after), load_all(scan.states, after)));
  out_.close();
  out_.close();
}

// --- Columns of narrow arrays.

Index ScanWriter::of_block(Index place) const {
  if (blocks_at_ != kNone) place.push_back({blocks_at_, kUnit});
  return place;
}

Index ScanWriter::of_end() const { return column_ == kNone ? Index() : Index{{column_, kUnit}}; }

// What lies in rows, or is stored so; all else is reached where it is.
void ScanWriter::find_moved(const ScanPass& pass) {
  const bool is_apart = source_.kernel().axes[elements_].most <= kFewApart;
  const auto is = [&](BufferRef buffer, Access access) {
    return !buffer.local && source_.kernel().params[buffer.id].access == access;
  };
  for (const Task* task : pass.tasks) {
    source_.walk(roots_of(*task), [&](ExprId id) {
      const Expr& e = source_[id];
      if (e.kind == ExprKind::load && !is_apart && is(e.buffer, Access::in)) add_load(id);
      return true;
    });
    const Store* store = std::get_if<Store>(task->line.stmt);
    if (store == nullptr || store->mask != kNone || !is(store->buffer, Access::out)) continue;
    if (const std::optional<Rows> rows = rows_of(store->buffer, store->index))
      moved_.push_back({task, *rows});
  }
  for (Loaded& loaded : loaded_) loaded.rows.local = columns(source_[loaded.load].dtype);
  for (Moved& moved : moved_)
    moved.rows.local = columns(source_.kernel().params[moved.rows.buffer.id].dtype);
}

// blocks: of each column; kNone: none are kept.
void ScanWriter::open_column(ExprId blocks) {
  const std::string name = source_.kernel().axes[elements_].name;
  const AxisId column =
      out_.open_loop(ForKind::serial, out_.integer(0), out_.to().extent(elements_), name);
  column_ = out_.to().axis_ref(column);
  out_.bind(elements_, column_);
  if (blocks != kNone) blocks_at_ = out_.let(out_.to().mul(column_, blocks));
}

void ScanWriter::close_column() {
  column_ = blocks_at_ = tile_at_ = array_at_ = kNone;
  out_.close();
}

void ScanWriter::for_columns(const Tile& tile, bool stores, const ForColumn& f) {
  if (elements_ == kNone) return f();
  Builder& to = out_.to();
  first_ = tile.base;
  count_ = tile.size;
  for (const Loaded& loaded : loaded_) move(loaded.rows, false, to.extent(elements_));
  const bool has_blocks = !scans_[0].blocks.empty();
  open_column(has_blocks ? out_.let(out_.ceil_div(to.extent(rows_), kScanBlock)) : kNone);
  tile_at_ = out_.let(to.mul(column_, out_.integer(pitch_)));
  array_at_ = out_.let(to.sub(tile_at_, tile.base));
  f();
  close_column();
  if (!stores) return;
  for (const Moved& moved : moved_) move(moved.rows, true, to.extent(elements_));
}

void ScanWriter::define_loaded(const Index& place) {
  for (const Loaded& loaded : loaded_)
    out_.define(loaded.load, out_.to().load({true, loaded.rows.local}, place));
}

void ScanWriter::store_moved(const Index& place) {
  for (const Moved& moved : moved_)
    out_.append(Store{
        {true, moved.rows.local}, place, out_.expr(std::get<Store>(*moved.task->line.stmt).value)});
}

// Whether the elements are made of what the columns' Locals hold, and of nothing else along the row axis.
bool ScanWriter::lies_in_columns(const ScanPass& pass) const {
  if (elements_ == kNone) return false;
  const AxisSet row = axis_bit(pass.group.rows[0]);
  std::vector<ExprId> elements;
  for (const Scan& scan : scans_)
    elements.insert(elements.end(), scan.elements.begin(), scan.elements.end());
  bool fits = true;
  source_.walk(elements, [&](ExprId id) {
    if (std::ranges::find(loaded_, id, &Loaded::load) != loaded_.end()) return false;
    const ExprKind kind = source_[id].kind;
    const bool is_leaf = kind == ExprKind::axis || kind == ExprKind::load;
    fits = fits && !(is_leaf && (source_.axes(id) & row) != 0);
    return true;
  });
  return fits;
}

void ScanWriter::write_narrow(const Group& group, const Tasks& tasks, const std::string& suffix) {
  ScanPass pass{.group = group, .tasks = tasks};
  elements_ = group.axes.back();
  rows_ = group.rows[0];
  if (moves_) find_moved(pass);
  std::erase_if(pass.tasks, [&](const Task* task) {
    return std::ranges::find(moved_, task, &Moved::task) != moved_.end();
  });
  pass.at = [&](ExprId at) { define_loaded({{array_at_, kUnit}, {at, kUnit}}); };
  tasks_.begin(group, axis_bit(rows_));
  if (group.axes.size() == 2) {
    write_whole(pass, suffix);
  } else {
    std::vector<GridDim> dims;
    for (size_t i = 0; i + 2 < group.axes.size(); ++i) dims.push_back({{group.axes[i]}, 1});
    const std::vector<ExprId> at = out_.open_chunk("scan" + suffix, dims);
    for (size_t i = 0; i < dims.size(); ++i) out_.bind(dims[i].axes, at[i]);
    write_rows(pass);
    out_.close();
  }
  elements_ = rows_ = kNone;
  loaded_.clear();
  moved_.clear();
}

}  // namespace cermet::ir
