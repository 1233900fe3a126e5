// SPDX-License-Identifier: MIT
#include "schedule/kernel_axes.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/format.h"
#include "kernel/micro.h"
#include "kernel/passes.h"
#include "kernel/walk.h"

namespace cermet::schedule {

namespace {

// Of rows for which vectors of rows may be better; which are, `tile` knows. Of 8 bytes there are half as many
// lanes of a fold.
constexpr int64_t kFewWide = 32;
constexpr int64_t kLongColumn = 1024;     // rows
constexpr int64_t kPastCaches = 1 << 20;  // elements
constexpr int64_t kFewInRows = 256;   // of a block of rows, which takes less time than to begin it
constexpr int64_t kRowsOfBlock = 16;  // as many as an item takes
constexpr int64_t kInL1 = 8192;       // elements that stay there until all of them are written
constexpr int64_t kFewMoved = 32;     // elements that are moved together, not by vectors
constexpr int64_t kFarRow = 32;       // elements from row to row, which no two vectors hold
// Stacked rows, the more the longer, by so much for each: else the choice of a row takes little beside it.
constexpr int64_t kMostStacked = 8, kLongStacked = 64, kStackedByRow = 12;
// Columns of so few elements are folded at once, longer ones where so few lie beside each other. A lane's steps wait for
// each other, those of several states the longer; from memory, rows come faster one after the other.
struct ShortColumns {
  int64_t elements, narrow;
};
constexpr ShortColumns kOfNumbers{16, 128}, kFromMemory{4, 32}, kOfTuples{4, 16};
constexpr int64_t kFewInCache = 1 << 22;  // elements
constexpr int64_t kShortElements[] = {ir::kFewElements, ir::kShortColumns};

constexpr int64_t kShortSides[] = {kShort, 2 * kShort, 4 * kShort};  // of small products

// The first one that the size does not exceed, or 0.
int64_t least_bound(std::span<const int64_t> bounds, const Dim& size) {
  for (const int64_t bound : bounds)
    if (size <= bound) return bound;
  return 0;
}

bool has(const std::vector<AxisId>& set, AxisId axis) {
  return std::ranges::find(set, axis) != set.end();
}

bool has_tuples(const ir::Kernel& kernel) {
  bool found = false;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& stmt) {
    const ir::Fold* fold = std::get_if<ir::Fold>(&stmt);
    found = found || (fold != nullptr && fold->states.size() > 1);
  });
  return found;
}

// Whether places along the outer axis do no more, outside of indices, than to bound what is loaded, at few places,
// and those along the inner one nothing: a loop over both is divided there (kernel/unswitch.cpp).
bool only_bounds_loads(const ir::Kernel& kernel, ir::AxisId outer, ir::AxisId inner) {
  std::set<ir::ExprId> masks;
  const auto add_conjuncts = [&](auto& self, ir::ExprId id) -> void {
    masks.insert(id);
    const ir::Expr& e = kernel[id];
    if (e.kind == ir::ExprKind::op && e.code == ir::Code::bit_and)
      for (const ir::ExprId operand : e.operands) self(self, operand);
  };
  for (const ir::Expr& e : kernel.exprs)
    if (e.kind == ir::ExprKind::load && e.operands[0] != ir::kNone)
      add_conjuncts(add_conjuncts, e.operands[0]);
  const auto is_order = [](ir::Code code) { return code == ir::Code::lt || code == ir::Code::le; };
  const auto is_known = [&](ir::ExprId id) {
    return kernel[id].kind == ir::ExprKind::scalar || kernel[id].kind == ir::ExprKind::constant;
  };
  const auto count = static_cast<ir::ExprId>(kernel.exprs.size());
  std::vector<bool> is_place(kernel.exprs.size());
  int bounds = 0;
  for (ir::ExprId id = 0; id < count; ++id) {
    const ir::Expr& e = kernel[id];
    if (e.kind == ir::ExprKind::axis) is_place[id] = e.id == outer || e.id == inner;
    if (e.kind != ir::ExprKind::op) continue;
    const auto moves = [&](ir::ExprId operand) { return operand >= 0 && is_place[operand]; };
    if (std::ranges::none_of(e.operands, moves)) continue;
    const auto is_along_inner = [&](ir::ExprId operand) {
      return kernel[operand].kind == ir::ExprKind::axis && kernel[operand].id == inner;
    };
    if (std::ranges::any_of(e.operands, is_along_inner)) return false;
    if (std::ranges::none_of(e.operands, is_known)) return false;
    if (e.code == ir::Code::add) is_place[id] = true;
    else if (!is_order(e.code) || !masks.contains(id)) return false;
    else ++bounds;
  }
  return bounds > 0 && bounds <= ir::kMostTurnEdges;
}

}  // namespace

KernelAxes::KernelAxes(const AxisTable& table, const Region& region, bool has_wide,
                       Collapse collapse, ir::Builder& builder, std::vector<Dim>& extents)
    : table_(table),
      region_(region),
      into_(std::move(collapse.into)),
      flat_(std::move(collapse.flat)),
      across_(std::move(collapse.across)),
      few_(std::move(collapse.few)),
      is_along_(collapse.is_along),
      has_wide_(has_wide),
      builder_(builder),
      extents_(extents),
      axes_(table.normalize(region.axes)),
      row_(table.normalize(region.row_axes)),
      column_(table.normalize(region.column_axes)) {
  for (AxisId axis : axes_)
    if (!into_.contains(axis)) walked_.push_back(axis);
  if (!collapse.order.empty()) walked_ = std::move(collapse.order);
  for (AxisId axis : walked_) {
    in_kernel_.push_back(
        builder_.axis(fmt::format("i{}", in_kernel_.size()), true, most_elements(axis)));
    extents_.push_back(size(axis));
  }
}

// Of many, which are not joined into one: the templates of a product may then be narrower.
bool KernelAxes::is_side_of_small_product(AxisId axis) const {
  constexpr int64_t kManyProducts = 16;
  if (region_.contract < 0 || region_.kernel >= 0 || walked_.size() < 4) return false;
  Dim products = 1;
  for (size_t i = 0; i + 3 < walked_.size(); i++) products *= size(walked_[i]);
  const auto side = walked_.end() - 3;
  return (axis == side[0] || axis == side[1]) && products >= kManyProducts;
}

// Long, beside an innermost axis of few elements, which is none of the same kind.
bool KernelAxes::is_beside_few(AxisId axis, const std::vector<AxisId>& kind) const {
  if (region_.kernel >= 0 || region_.contract >= 0 || region_.update >= 0) return false;
  if (walked_.size() < 2 || axis != walked_[walked_.size() - 2]) return false;
  const AxisId inner = walked_.back();
  return has(kind, axis) && !has(kind, inner) && size(inner) <= ir::kNarrowColumns &&
         size(axis) >= kLongColumn && is_many();
}

bool KernelAxes::is_narrow_column(AxisId axis) const {
  if (!region_.scan_axes.empty() || !is_beside_few(axis, column_)) return false;
  return row_.empty() || row_ == std::vector{walked_.back()};
}

bool KernelAxes::is_narrow_scan(AxisId axis) const {
  if (walked_.size() < 2) return false;
  return row_.empty() && column_.empty() && size(walked_.back()) < kShort &&
         is_beside_few(axis, table_.normalize(region_.scan_axes));
}

// Of many short rows, also those that updates reach or that vectors run along, of narrow columns, and of an axis that
// vectors run across; 0: of others.
int64_t KernelAxes::most_elements(AxisId axis) const {
  if (has(across_, axis)) return size(axis) < kShort ? kShort - 1 : kMostColumns;
  if (is_side_of_small_product(axis)) {
    return least_bound(kShortSides, size(axis));
  }
  if (has(few_, axis)) return least_bound(kShortElements, size(axis));
  if (walked_.size() < 2 || axis != walked_.back()) return 0;
  if (is_along_) return least_bound(ir::kFewAlong, size(axis));
  const AxisId beside = walked_[walked_.size() - 2];
  if (is_narrow_column(beside) || is_narrow_scan(beside))
    return size(axis) <= ir::kFewApart ? ir::kFewApart : ir::kNarrowColumns;
  const bool is_updated = region_.update >= 0 && !is_slice_;
  if (!is_updated && !is_row(axis) && !has(table_.normalize(region_.scan_axes), axis)) return 0;
  const Dim elements = size(axis), rows = size(beside);
  if (rows < kManyRows || !is_many()) return 0;
  if (is_updated) return least_bound(ir::kFewAlong, elements);
  if (has_wide_ && elements <= kFewWide) return kFewWide;
  return least_bound(kShortElements, elements);
}

bool KernelAxes::is_many() const {
  Dim points = 1;
  for (AxisId axis : axes_) points *= table_.size(axis);
  return points >= kManyPoints;
}

std::vector<AxisId> KernelAxes::walked(const std::vector<AxisId>& axes) const {
  std::vector<AxisId> found;
  for (AxisId axis : walked_)
    if (has(axes, axis)) found.push_back(axis);
  return found;
}

ir::AxisId KernelAxes::in_kernel(AxisId axis) const {
  const auto place = static_cast<size_t>(std::ranges::find(walked_, axis) - walked_.begin());
  return in_kernel_.at(place);
}

Dim KernelAxes::size(AxisId axis) const { return size_with(into_, axis); }

bool KernelAxes::is_row(AxisId axis) const { return has(row_, axis); }

// Sizes of the outer axes that end in this one, multiplied in.
Dim KernelAxes::size_with(const Into& into, AxisId axis) const {
  Dim size = table_.size(axis);
  for (size_t i = axes_.size(); i-- > 0;) {
    auto it = into.find(axes_[i]);
    if (it != into.end() && it->second == axis) {
      size *= table_.size(axes_[i]);
      axis = axes_[i];
    }
  }
  return size;
}

std::vector<std::pair<ir::ExprId, Dim>> KernelAxes::terms(const Walk& walk) {
  std::vector<std::pair<ir::ExprId, Dim>> terms;
  for (size_t i = 0; i < walked_.size(); ++i) {
    const AxisId axis = walked_[i];
    if (!walk.has(axis) || (!flat_.empty() && flat_.back().axis == axis)) continue;
    const Dim step = walk.step(axis);
    // Operands of a composite's products keep their axes where they are broadcast.
    if (step != 0 || region_.kernel >= 0)
      terms.emplace_back(builder_.axis_ref(in_kernel_[i]), step);
  }
  for (const FlatRun& run : runs_of(walk, flat_))
    terms.emplace_back(place_in_flat(run.first, run.last), run.step);
  walks_.push_back(walk);
  return terms;
}

// The place in the axes flat_[first .. last], row-major, out of the place in all of them.
ir::ExprId KernelAxes::place_in_flat(size_t first, size_t last) {
  const auto size_of = [&](size_t from, size_t to) {
    const auto [it, fresh] = flat_sizes_.try_emplace({from, to}, -1);
    if (fresh) {
      it->second = builder_.axis("n");
      extents_.push_back(size_of_run(flat_, from, to));
    }
    return builder_.extent(it->second);
  };
  const size_t end = flat_.size() - 1;
  ir::ExprId place = builder_.axis_ref(flat());
  if (last < end) place = builder_.div(place, size_of(last + 1, end));
  return first > 0 ? builder_.rem(place, size_of(first, last)) : place;
}

std::vector<ir::AxisId> KernelAxes::stage(const Coords& coords) {
  stages_.push_back(axes_of(coords));
  std::vector<ir::AxisId> axes;
  for (AxisId axis : walked(stages_.back())) axes.push_back(in_kernel(axis));
  return axes;
}

bool KernelAxes::continues(AxisId outer, AxisId inner) const {
  if (has(row_, outer) != has(row_, inner) || has(column_, outer) != has(column_, inner) ||
      has(scanned_, outer) != has(scanned_, inner))
    return false;
  const Dim& size = table_.size(inner);
  return std::ranges::all_of(
             walks_, [&](const Walk& w) { return w.step(outer) == w.step(inner) * size; }) &&
         std::ranges::all_of(stages_, [&](const std::vector<AxisId>& stage) {
           return has(stage, outer) == has(stage, inner);
         });
}

KernelAxes::Into KernelAxes::find_into() const {
  // In a composite that is one kernel, axes play several parts. Of a product, m, n and k keep their own
  // axes; those of the batch may be walked as one.
  const size_t own = region_.contract >= 0 ? 3 : 0;
  Into into;
  if (region_.kernel >= 0 || axes_.size() < own) return into;
  for (size_t i = 0; i + 1 < axes_.size() - own; i++)
    if (continues(axes_[i], axes_[i + 1])) into[axes_[i]] = axes_[i + 1];
  return into;
}

bool KernelAxes::is_map() const {
  return region_.kernel < 0 && region_.contract < 0 && (region_.update < 0 || is_slice_) &&
         row_.empty() && column_.empty() && scanned_.empty();
}

// No vectors run along so few places, nor along the few of each of several inputs.
bool KernelAxes::is_short(const Dim& size) const {
  const auto choices = static_cast<int64_t>(choices_);
  return size < std::max(kShort, std::min(kMostColumns + 1, kNarrow * choices));
}

// Short axes, outer to inner, along which elements are chosen among arrays, or that are neighbours of each other
// where those of the axis beside lie in order: within short rows, or parts of rows, or one of short columns.
void KernelAxes::find_across(Collapse& found, Vectors vectors) const {
  const Into& into = found.into;
  std::vector<AxisId> left;
  for (AxisId axis : axes_)
    if (!into.contains(axis)) left.push_back(axis);
  if (!is_map() || stores_.empty() || left.size() < 2) return;
  const AxisId inner = left.back(), beside = left[left.size() - 2];
  const auto goes_on = [&](AxisId axis) {
    return std::ranges::any_of(walks_, [&](const Walk& walk) {
      return walk.has(inner) && walk.step(inner) != 0 && walk.step(axis) == 1;
    });
  };
  // Which elements that are read lie beside each other along, where those along the innermost one lie apart.
  const auto crossed = std::find_if(left.rbegin() + 1, left.rend(), goes_on);
  const bool crosses =
      crossed != left.rend() && (*crossed == beside || size_with(into, *crossed) < kShort);
  // Out of longer rows: no vector runs on from one to the next.
  const bool is_cut = std::ranges::any_of(walks_, [&](const Walk& walk) {
    return walk.step(inner) == 1 && walk.step(beside) != 0 &&
           walk.step(beside) != size_with(into, inner);
  });
  if (!crosses && choices_ == 0 && !is_cut) return;
  const auto is_in_order = [&](const Walk& walk) { return walk.step(inner) == 1; };
  const bool is_written_out = choices_ > kMostChoices;
  const Dim most = choices_ > 0 ? kMostColumns : kMostPlaces;
  std::vector<AxisId> across;
  Dim places = 1;
  const Dim few = vectors == Vectors::copied && !has_wide_ ? kFewMoved : 0;
  const auto fits_in = [&](const Dim& size) {
    return (is_short(size) || size < few) && places * size <= most;
  };
  for (; left.size() > 1 && fits_in(size_with(into, left.back())); left.pop_back()) {
    across.insert(across.begin(), left.back());
    places *= size_with(into, left.back());
  }
  if (across.empty() && crosses && size_with(into, *crossed) < kShort) {
    across = {*crossed};
    left = {inner};
  }
  const bool has_rows =
      size_with(into, left.back()) >= kFewRows || is_written_out || vectors == Vectors::copied;
  const bool fits = !across.empty() && has_rows && is_many() &&
                    (choices_ > 0 || is_cut || goes_on(left.back()) || left[0] == inner);
  if (!fits || !std::ranges::all_of(stores_, is_in_order)) return;
  found.across = std::move(across);
  found.is_shared = crosses || choices_ > 0;
}

std::optional<AxisId> KernelAxes::find_stacked(const Collapse& found) const {
  if (!is_map() || stacked_.size() != 1 || !found.flat.empty() || !found.across.empty()) return {};
  const AxisId axis = stacked_[0], inner = axes_.back();
  const Dim rows = size(axis), elements = size_with(found.into, inner);
  const bool is_short =
      rows <= kMostStacked && elements <= kLongStacked && elements <= (rows + 1) * kStackedByRow;
  return is_short && axis != inner && is_many() ? std::optional(axis) : std::nullopt;
}

bool KernelAxes::are_far_rows(int64_t least) const {
  const Into into = find_into();
  std::vector<AxisId> left;
  for (AxisId axis : axes_)
    if (!into.contains(axis)) left.push_back(axis);
  if (!is_map() || choices_ > 0 || stores_.empty() || left.size() < 2 || !is_many()) return false;
  const AxisId inner = left.back(), beside = left[left.size() - 2];
  const Dim size = size_with(into, inner);
  if (size < least || size >= kShort) return false;
  const auto is_row = [&](const Walk& walk) {
    return walk.step(inner) == 1 || (walk.step(inner) == 0 && walk.step(beside) == 0);
  };
  const auto is_moved = [&](const Walk& load) {
    const Dim apart = load.step(beside);
    return (apart >= kFarRow || apart <= -kFarRow) &&
           std::any_of(left.begin(), left.end() - 2,
                       [&](AxisId axis) { return load.step(axis) == size; });
  };
  return std::ranges::all_of(walks_, is_row) && std::ranges::any_of(loads_, is_moved);
}

bool KernelAxes::are_short_rows(int64_t least) const {
  return is_map() && choices_ == 0 && walked_.size() > 1 && is_many() &&
         size(walked_.back()) >= least && least_bound(ir::kFewAlong, size(walked_.back())) > 0;
}

// Rows that the walk goes on from, before it goes on from the first of them, if a kernel goes over the axes in
// this order; the innermost one is along rows.
Dim KernelAxes::rows_between(const Walk& walk, const std::vector<AxisId>& order,
                             const Into& into) const {
  const auto next = std::min_element(order.begin(), order.end() - 1, [&](AxisId a, AxisId b) {
    return walk.step(a) < walk.step(b);
  });
  Dim rows = 1;
  for (auto axis = next + 1; axis < order.end() - 1; ++axis) rows *= size_with(into, *axis);
  return rows;
}

// Of an element-wise kernel that moves rows: what is read in the order of memory arrives before it is wanted, and what
// is written needs not, unless it goes to many places in turn. In a cache it is an order for blocks of rows.
std::vector<AxisId> KernelAxes::order_of_loads(const Collapse& found) const {
  const Into& into = found.into;
  std::vector<AxisId> axes;
  Dim points = 1;
  for (AxisId axis : axes_)
    if (!into.contains(axis)) axes.push_back(axis), points *= size_with(into, axis);
  if (!is_map() || axes.size() < 3 || points < kManyPoints) return {};
  const AxisId inner = axes.back();
  const auto rows_of_block = [&](const std::vector<AxisId>& order) {
    return size_with(into, order[order.size() - 2]);
  };
  const bool are_rows = found.is_along || size_with(into, inner) >= kShort;
  const bool is_large = points >= kPastCaches && size_with(into, inner) >= kShort;
  if (!are_rows || (!is_large && rows_of_block(axes) >= kRowsOfBlock)) return {};
  const auto is_row = [&](const Walk& walk) { return walk.step(inner) == 1; };
  if (!std::ranges::all_of(stores_, is_row)) return {};
  std::vector<AxisId> order;
  Dim rows_read = 0;
  for (const Walk& load : loads_) {
    const auto moves = [&](AxisId axis) { return load.step(axis) > 0; };
    if (!std::ranges::all_of(axes, moves) || !is_row(load)) continue;
    std::vector<AxisId> own = axes;
    std::stable_sort(own.begin(), own.end() - 1,
                     [&](AxisId a, AxisId b) { return load.step(a) > load.step(b); });
    if (!order.empty() && own != order) return {};
    order = std::move(own);
    rows_read = rows_between(load, axes, into);
  }
  if (order.empty() || order == axes) return {};
  if (rows_of_block(order) * size_with(into, inner) < kFewInRows) return {};
  if (!is_large && rows_of_block(order) < kRowsOfBlock) return {};
  const bool are_few = std::ranges::all_of(stores_, [&](const Walk& store) {
    const Dim rows = rows_between(store, order, into);
    return rows < rows_read || rows * rows_of_block(axes) * size_with(into, inner) < kInL1;
  });
  return are_few ? order : std::vector<AxisId>();
}

// The axes of a kernel that folds many points along one of at least three; else none.
std::vector<AxisId> KernelAxes::order_to_fold(const Into& into) const {
  std::vector<AxisId> order;
  const bool is_plain = region_.kernel < 0 && region_.contract < 0 && region_.update < 0;
  if (!is_plain || !scanned_.empty() || !is_many()) return order;
  for (AxisId axis : axes_)
    if (!into.contains(axis)) order.push_back(axis);
  const auto folded =
      std::ranges::count_if(order, [&](AxisId axis) { return is_row(axis) || has(column_, axis); });
  return order.size() >= 3 && folded == 1 ? order : std::vector<AxisId>();
}

// Of short rows, where few lie beside each other and many further out: vectors run across the many.
void KernelAxes::put_rows_beside_elements(Collapse& found) const {
  std::vector<AxisId> order = order_to_fold(found.into);
  if (order.empty() || !is_row(order.back()) || size_with(found.into, order.back()) > kShort)
    return;
  const auto last = order.end() - 1;
  const auto are_many = [&](AxisId axis) { return size_with(found.into, axis) >= kManyRows; };
  const auto many = std::find_if(std::reverse_iterator(last), order.rend(), are_many);
  if (many == order.rend() || many.base() == last) return;
  found.few = {many.base(), last};
  std::rotate(many.base() - 1, many.base(), last);
  found.order = std::move(order);
}

// Of short columns, in an array or in many narrow ones: each is folded at once, by a lane of its own.
void KernelAxes::put_columns_last(Collapse& found, const ir::Kernel& trial) const {
  std::vector<AxisId> order = order_to_fold(found.into);
  if (order.empty()) return;
  const AxisId column = order[order.size() - 2], inner = order.back();
  const auto size = [&](AxisId axis) { return size_with(found.into, axis); };
  Dim arrays = 1;
  for (size_t i = 0; i + 2 < order.size(); ++i) arrays *= size(order[i]);
  const bool is_cached = arrays * size(column) * size(inner) <= kFewInCache;
  const ShortColumns& most = has_tuples(trial) ? kOfTuples : is_cached ? kOfNumbers : kFromMemory;
  const bool are_narrow =
      size(column) <= ir::kShortColumns && size(inner) <= most.narrow && arrays >= kManyRows;
  if (!has(column_, column) || !(are_narrow || size(column) <= most.elements)) return;
  found.few = {column};
  std::swap(order[order.size() - 2], order.back());
  found.order = std::move(order);
}

std::vector<FlatAxis> KernelAxes::flat_axes(const Into& into, const ir::Kernel& trial) const {
  std::vector<FlatAxis> all;
  for (AxisId axis : axes_)
    if (!into.contains(axis)) all.push_back({axis, size_with(into, axis)});
  if (!is_map()) return {};
  if (std::vector<FlatAxis> flat = find_flat(all, stores_); !flat.empty()) return flat;
  std::vector<Walk> walks = stores_;
  walks.insert(walks.end(), loads_.begin(), loads_.end());
  std::vector<FlatAxis> rows = find_rows(all, walks);
  const bool bounds_loads =
      !rows.empty() && only_bounds_loads(trial, in_kernel(rows[0].axis), in_kernel(rows[1].axis));
  return bounds_loads ? rows : std::vector<FlatAxis>();
}

Collapse KernelAxes::find_collapse(Vectors vectors, const ir::Kernel& trial) const {
  Collapse found{find_into()};
  found.is_along = vectors == Vectors::along;
  if (vectors == Vectors::any || vectors == Vectors::copied) find_across(found, vectors);
  if (vectors != Vectors::along && found.across.empty()) found.flat = flat_axes(found.into, trial);
  // The next axis may itself be walked as part of the one after it.
  const auto is_outer = [&](AxisId axis) {
    return std::ranges::find(found.flat, axis, &FlatAxis::axis) != found.flat.end() &&
           found.flat.back().axis != axis;
  };
  for (size_t i = 0; i + 1 < axes_.size(); i++)
    if (is_outer(axes_[i])) found.into[axes_[i]] = axes_[i + 1];
  if (found.across.empty() && found.flat.empty()) found.order = order_of_loads(found);
  if (vectors != Vectors::along) {
    put_rows_beside_elements(found);
    put_columns_last(found, trial);
  }
  return found;
}

}  // namespace cermet::schedule
