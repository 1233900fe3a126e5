// SPDX-License-Identifier: MIT
#include "kernel/tile_scan.h"

#include <algorithm>

namespace cermet::ir {

namespace {

const Fold* scan_of(const Task& task) {
  const Fold* fold = std::get_if<Fold>(task.line.stmt);
  return fold != nullptr && fold->emit == Emit::each && task.kind == TaskKind::fold ? fold
                                                                                    : nullptr;
}

}  // namespace

bool ScanWriter::fits(const Tasks& tasks) const {
  bool any = false;
  for (const Task* task : tasks) {
    const Fold* fold = scan_of(*task);
    if (fold == nullptr && task->kind == TaskKind::fold) return false;
    if (fold == nullptr) continue;
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

// What the steps take that no state is in, and room for a tile of it.
void ScanWriter::find_elements(const ScanPass& pass) {
  const AxisSet rows = set_of(pass.group.rows);
  for (Scan& scan : scans_) {
    std::vector<ExprId> roots;
    for (const FoldState& state : scan.fold->states) roots.push_back(state.step);
    source_.walk(roots, [&](ExprId id) {
      const AxisSet axes = source_.axes(id);
      if ((axes & kStateAxis) != 0) return true;
      if ((axes & rows) != 0) scan.elements.push_back(id);
      return false;
    });
    for (const ExprId id : scan.elements)
      scan.inputs.push_back(
          out_.to().local(source_[id].dtype, {kScanTile, {}}, LocalScope::thread));
  }
}

void ScanWriter::make_locals(int64_t states, int64_t carry) {
  for (Scan& scan : scans_)
    for (const FoldState& state : scan.fold->states) {
      scan.states.push_back(out_.to().local(state.dtype, {states, {}}, LocalScope::thread));
      scan.carry.push_back(out_.to().local(state.dtype, {carry, {}}, LocalScope::thread));
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
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = out_.let(out_.to().select(first, states[i], values[i]));
  return values;
}

void ScanWriter::define_values(const Fold& fold, const std::vector<ExprId>& states) {
  const std::vector<ExprId> parts = tasks_.parts_of(fold.value);
  for (size_t i = 0; i < parts.size(); ++i) out_.define(parts[i], states[i]);
  tasks_.publish(fold.value);
}

// By scan and chain: the folds of `count` blocks of `size` elements from base on, side by side. Of
// scans each state goes to the tile.
std::vector<std::vector<ValueId>> ScanWriter::chains(const ScanPass& pass, ExprId base,
                                                     int64_t count, ExprId size, Emit emit) {
  Builder& to = out_.to();
  const ExprId back = out_.let(to.sub(out_.integer(0), base));
  const ExprId all = out_.let(to.add(base, to.mul(size, out_.integer(count))));
  const AxisId e = out_.open_loop(ForKind::lane, base, all, "element");
  out_.bind(pass.group.rows, to.axis_ref(e));
  pass.at(to.axis_ref(e));
  for (const Scan& scan : scans_)
    for (size_t i = 0; i < scan.elements.size(); ++i)
      out_.append(Store{{true, scan.inputs[i]},
                        {{back, kUnit}, {to.axis_ref(e), kUnit}},
                        out_.expr(scan.elements[i])});
  out_.close();
  const AxisId k = out_.open_loop(ForKind::serial, out_.integer(0), size, "k");
  const ExprId at = to.axis_ref(k);
  std::vector<std::vector<ValueId>> made(scans_.size());
  for (int64_t j = 0; j < count; ++j) {
    const Index place = {{out_.integer(j * kScanBlock), kUnit}, {at, kUnit}};
    out_.bind_again(pass.group.rows, at);
    for (size_t f = 0; f < scans_.size(); ++f) {
      const Scan& scan = scans_[f];
      for (size_t i = 0; i < scan.elements.size(); ++i)
        out_.define(scan.elements[i], to.load({true, scan.inputs[i]}, place));
      std::vector<FoldState> states = out_.fold_states(scan.fold->states, true);
      std::vector<Dtype> dtypes;
      for (const FoldState& state : states) dtypes.push_back(state.dtype);
      const size_t parts = dtypes.size();
      made[f].push_back(to.value(dtypes));
      out_.append(Fold{made[f].back(), {k}, emit, Order::serial, std::move(states)});
      if (emit == Emit::last) continue;
      for (size_t i = 0; i < parts; ++i)
        out_.append(Store{{true, scan.states[i]}, place, part(made[f].back(), i, parts)});
    }
  }
  out_.close();
  return made;
}

void ScanWriter::totals(const ScanPass& pass, ExprId base, ExprId block, int64_t count,
                        ExprId size) {
  const auto made = chains(pass, base, count, size, Emit::last);
  for (int64_t j = 0; j < count; ++j) {
    const Index place = {{offset(block, j), kUnit}};
    for (size_t f = 0; f < scans_.size(); ++f) {
      const std::vector<LocalId>& blocks = scans_[f].blocks;
      for (size_t i = 0; i < blocks.size(); ++i)
        out_.append(Store{{true, blocks[i]}, place, part(made[f][j], i, blocks.size())});
    }
  }
}

// One block of `size` elements, in the tile at `from`: its states become values, and what uses them runs.
void ScanWriter::finish_block(const ScanPass& pass, ExprId base, ExprId from, ExprId size,
                              ExprId block, Before before) {
  Builder& to = out_.to();
  const ExprId first = out_.let(to.compare(Code::eq, block, out_.integer(0)));
  const ExprId begin = out_.let(to.add(base, from));
  const ExprId end = out_.let(to.add(begin, size));
  const ExprId back = out_.let(to.sub(out_.integer(0), base));
  std::vector<std::vector<ExprId>> carried;
  for (const Scan& scan : scans_)
    carried.push_back(before == Before::made ? load_all(scan.blocks, {{block, kUnit}})
                                             : load_all(scan.carry, {}));
  const auto merged_at = [&](size_t f, const Index& place) {
    return merged(*scans_[f].fold, first, carried[f], load_all(scans_[f].states, place));
  };
  const AxisId e = out_.open_loop(ForKind::lane, begin, end, "e");
  const ExprId at = to.axis_ref(e);
  out_.bind_again(pass.group.rows, at);
  pass.at(at);
  for (size_t f = 0; f < scans_.size(); ++f)
    define_values(*scans_[f].fold, merged_at(f, {{back, kUnit}, {at, kUnit}}));
  tasks_.run(others_, e);
  pass.done(at);
  out_.close();
  if (before == Before::made) return;
  const Index last = {{out_.let(to.add(from, to.sub(size, out_.integer(1)))), kUnit}};
  for (size_t f = 0; f < scans_.size(); ++f) store_all(scans_[f].carry, {}, merged_at(f, last));
}

// The tile from `base` on, of `count` blocks of `size` elements.
void ScanWriter::finish(const ScanPass& pass, ExprId base, ExprId block, int64_t count, ExprId size,
                        Before before) {
  Builder& to = out_.to();
  const AxisId j = out_.open_loop(ForKind::serial, out_.integer(0), out_.integer(count), "block");
  finish_block(pass, base, out_.let(to.mul(to.axis_ref(j), out_.integer(kScanBlock))), size,
               out_.let(to.add(block, to.axis_ref(j))), before);
  out_.close();
}

void ScanWriter::for_tiles(ExprId begin, ExprId size,
                           const std::function<void(ExprId, ExprId, int64_t, ExprId)>& f) {
  Builder& to = out_.to();
  const ExprId first = out_.let(to.div(begin, out_.integer(kScanBlock)));
  const ExprId full = out_.let(to.div(size, out_.integer(kScanTile)));
  const AxisId t = out_.open_loop(ForKind::serial, out_.integer(0), full, "tile");
  const auto scaled = [&](ExprId from, AxisId by, int64_t factor) {
    return out_.let(to.add(from, to.mul(to.axis_ref(by), out_.integer(factor))));
  };
  f(scaled(begin, t, kScanTile), scaled(first, t, kScanChains), kScanChains,
    out_.integer(kScanBlock));
  out_.close();
  const ExprId done = out_.let(to.mul(full, out_.integer(kScanChains)));
  const ExprId all = out_.let(out_.ceil_div(size, kScanBlock));
  const AxisId b = out_.open_loop(ForKind::serial, done, all, "rest");
  const ExprId base = scaled(begin, b, kScanBlock);
  const ExprId left = out_.let(to.sub(to.add(begin, size), base));
  f(base, scaled(first, b, 1), 1, out_.let(to.min(left, out_.integer(kScanBlock))));
  out_.close();
}

void ScanWriter::write_rows(const ScanPass& pass) {
  find_scans(pass);
  find_elements(pass);
  make_locals(kScanTile, 1);
  for (const Scan& scan : scans_) store_all(scan.carry, {}, inits(*scan.fold));
  for_tiles(out_.integer(0), out_.extent_of(pass.group.rows),
            [&](ExprId base, ExprId block, int64_t count, ExprId size) {
              chains(pass, base, count, size, Emit::each);
              finish(pass, base, block, count, size, Before::carried);
            });
}

void ScanWriter::write_whole(const ScanPass& pass, const std::string& suffix) {
  find_scans(pass);
  find_elements(pass);
  Builder& to = out_.to();
  const std::vector<AxisId>& rows = pass.group.rows;
  const GridDim items{rows, kScanItem};
  Size blocks;
  for (const AxisId axis : rows)
    blocks.terms.push_back({axis, axis == rows.back() ? kScanBlock : 1});
  for (Scan& scan : scans_)
    for (const FoldState& state : scan.fold->states)
      scan.blocks.push_back(to.local(state.dtype, blocks, LocalScope::kernel));
  make_locals(kScanTile, 1);
  const auto open_item = [&](const char* name) {
    const ExprId index = out_.open_chunk(name + suffix, {items})[0];
    const auto [begin, end] = out_.bounds(index, kScanItem, out_.extent_of(rows));
    const ExprId size = out_.let(to.max(to.sub(end, begin), out_.integer(0)));
    return std::pair(begin, size);
  };

  const auto [from, many] = open_item("totals");
  for_tiles(from, many, [&](ExprId base, ExprId block, int64_t count, ExprId size) {
    totals(pass, base, block, count, size);
  });
  out_.close();

  out_.open_chunk("carries" + suffix, {});
  for (const Scan& scan : scans_) store_all(scan.carry, {}, inits(*scan.fold));
  const ExprId number = out_.let(out_.ceil_div(out_.extent_of(rows), kScanBlock));
  const AxisId b = out_.open_loop(ForKind::serial, out_.integer(0), number, "block");
  const ExprId first = out_.let(to.compare(Code::eq, to.axis_ref(b), out_.integer(0)));
  const Index here = {{to.axis_ref(b), kUnit}};
  for (const Scan& scan : scans_) {
    const std::vector<ExprId> before = load_all(scan.carry, {});
    const std::vector<ExprId> last = load_all(scan.blocks, here);
    store_all(scan.blocks, here, before);
    store_all(scan.carry, {}, merged(*scan.fold, first, before, last));
  }
  out_.close();
  out_.close();

  const auto [begin, length] = open_item("scan");
  for_tiles(begin, length, [&](ExprId base, ExprId block, int64_t count, ExprId size) {
    chains(pass, base, count, size, Emit::each);
    finish(pass, base, block, count, size, Before::made);
  });
  out_.close();
}

void ScanWriter::write_columns(const ScanPass& pass, AxisId lane, ExprId begin, ExprId end) {
  find_scans(pass);
  make_locals(kScanColumns, kScanColumns);
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
    define_values(*scan.fold, merged(*scan.fold, first, load_all(scan.carry, place), states));
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

}  // namespace cermet::ir
