// SPDX-License-Identifier: MIT
#include "schedule/regions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "runtime/poll.h"
#include "schedule/analysis.h"
#include "schedule/recompute.h"
#include "schedule/region_cutter.h"
#include "schedule/region_order.h"
#include "schedule/region_spaces.h"

namespace cermet::schedule {

namespace {

constexpr int64_t kMaxPlaces = 4;
constexpr int kComputedMoveOps = 80;       // random bits: twenty rounds
constexpr int kTableCost = 24;             // instructions of an element: more than one function
constexpr int kIndexCost = 2;              // instructions of an index: more than a cast ...
constexpr int64_t kIndicesCost = 1 << 17;  // ... and of all
constexpr int64_t kFewLanes = 16;
constexpr int64_t kManyIndices = 16;      // for each element of a table
constexpr int64_t kTableSaves = 1 << 20;  // instructions: some times what a stage costs

}  // namespace

RegionCutter::RegionCutter(PlanGraph graph, int max_ops) : max_ops_(max_ops) {
  r_.graph = std::move(graph);
  const size_t n = r_.graph.nodes.size();
  uses_.resize(n);
  memory_readers_.resize(n);
  in_memory_.resize(n, false);
  kept_for_.resize(n, Border::layout);
  layouts_.resize(n);
  alignments_.resize(n, kMostAlignment);
  r_.stored_by.resize(n, -1);
  r_.is_view.resize(n, false);
  above_product_.resize(n, false);
  for (size_t i = 0; i < n; i++) {
    const PlanNode& plan = r_.graph.nodes[i];
    above_product_[i] =
        plan.kernel >= 0 && (plan.lowering<ContractLowering>() != nullptr ||
                             std::ranges::any_of(plan.inputs, [&](Id input) {
                               return above_product_[input] && node(input).kernel == plan.kernel;
                             }));
  }
}

Regions RegionCutter::cut() {
  find_layouts();
  for (Id id = static_cast<Id>(r_.graph.nodes.size()) - 1; id >= 0; id--) place(id);
  std::set<std::pair<Id, int>> loads;
  for (auto [id, reader] : r_.loads) loads.emplace(id, r_.find(reader));
  r_.loads = std::move(loads);
  for (auto [id, waiter] : waits_) region(r_.find(waiter)).after.push_back(id);
  order_regions(r_);
  return std::move(r_);
}

// Layouts in memory, as far as they are known beforehand.
void RegionCutter::find_layouts() {
  for (size_t i = 0; i < layouts_.size(); i++) {
    const Id id = static_cast<Id>(i);
    const PlanNode& n = node(id);
    layouts_[i] = own_layout(n);
    if (n.leaf && n.node->is_ready()) {
      alignments_[i] = alignment_of(*n.node);
    } else if (auto view = view_if_possible(id)) {
      layouts_[i] = *view;
      alignments_[i] = alignments_[n.inputs[0]];
    }
  }
}

std::optional<Layout> RegionCutter::view_if_possible(Id id) {
  const PlanNode& n = node(id);
  if (n.leaf || n.inputs.empty()) return std::nullopt;
  if (widens(*n.node) && alignments_[n.inputs[0]] < size_of(n.node->dtype)) return std::nullopt;
  return view_layout(r_.graph, id, layouts_[n.inputs[0]]);
}

void RegionCutter::place(Id id) {
  check_cancelled("eval");
  PlanNode& n = r_.graph.nodes[id];
  if (n.kernel < 0 && !n.leaf && is_spread(id)) enter_products_from_memory(id);
  const bool memory = n.needed || n.border || in_memory_[id];
  if (!memory && uses_[id].empty()) return;  // a target that is written over
  if (n.kernel >= 0 && !n.inputs.empty() && n.lowering<MoveLowering>() == nullptr) {
    place_in_kernel(id, memory);
  } else if (n.leaf) {
    std::vector<int> readers = candidates_of(id);
    if (shape(id).count() > 1) merge_candidates(id, readers);  // read once for all
    for (int reader : readers) region(reader).arguments++;
    for (const Use& use : uses_[id])
      if (!is_read_across(id, use) || !turn(id, use)) note_order(id, use);
  } else if (n.lowering<MoveLowering>() != nullptr) {
    place_move(id, memory);
  } else {
    place_anchor(id, memory);
  }
  uses_[id].clear();
}

void RegionCutter::place_move(Id id, bool memory) {
  const PlanNode& n = node(id);
  for (Id before : n.after) {
    for (const Use& use : uses_[id]) wait_for(before, use.region);
    for (int reader : std::vector<int>(memory_readers_[id])) wait_for(before, reader);
  }
  bool copied = false;
  if (!n.border) {
    for (const Use& use : uses_[id]) {
      const bool again = is_read_apart_again(id, use) || is_read_apart_across(id, use);
      const bool across = !again && is_read_across(id, use) && !turn(id, use);
      if (!again && !across && pull(id, use)) continue;
      if (across) region(r_.find(use.region)).in_order = shape(id).count();
      copied = copied || again || across;
      memory = true;
      read_from_memory(id, r_.find(use.region));
    }
  }
  if (!memory) return;
  if (!copied && view_if_possible(id) && !is_picked_in_order(id)) {
    const Id input = n.inputs[0];
    r_.is_view[id] = true;
    in_memory_[input] = true;
    kept_for_[input] = n.border ? Border::barrier : n.needed ? Border::output : kept_for_[id];
    auto& readers = memory_readers_[input];
    readers.insert(readers.end(), memory_readers_[id].begin(), memory_readers_[id].end());
    if (n.border) {
      for (const Use& use : uses_[id]) readers.push_back(use.region);
    }
    return;
  }
  const int own = start_region(id, n.border ? Border::barrier : Border::layout);
  store(id, own, n.border);
}

// As if it read the value, so that no region comes both before and after another.
void RegionCutter::wait_for(Id id, int waiter) {
  in_memory_[id] = true;
  kept_for_[id] = Border::barrier;
  memory_readers_[id].push_back(waiter);
  waits_.emplace_back(id, waiter);
}

// Where the region wants the node, each use counted.
int64_t RegionCutter::places_in(Id id, int reader) {
  return std::ranges::count_if(
      uses_[id], [&](const Use& use) { return r_.find(use.region) == r_.find(reader); });
}

void RegionCutter::read_from_memory(Id id, int reader) {
  in_memory_[id] = true;
  memory_readers_[id].push_back(reader);
  r_.loads.emplace(id, reader);
}

// A view of what is there before the program runs. (What it makes itself, and keeps, need be no border.)
bool RegionCutter::shows_leaf(Id id) {
  while (!node(id).leaf) {
    if (!view_if_possible(id)) return false;
    id = node(id).inputs[0];
  }
  return true;
}

// False: the region reads the node from memory. (The axes of a contraction stay whole.)
bool RegionCutter::pull(Id id, const Use& use) {
  const PlanNode& n = node(id);
  Region& r = region(r_.find(use.region));
  // What chooses among inputs, or checks an index, is no part of a composite's kernel; nor is it written
  // again for each of many places, as those of its inputs would be twice as many.
  if (n.inputs.size() > 1 &&
      ((r.kernel >= 0 && n.kernel < 0) || places_in(id, use.region) > kMaxPlaces))
    return false;
  const Coords at = r_.axes.normalize(use.at);
  const bool computes = n.lowering<MoveLowering>()->computes;
  if (is_other_dtype(r_.graph, id) && view_if_possible(id) && (computes || shows_leaf(id)))
    return false;
  if (computes) {
    for (Id input : n.inputs) read_from_memory(input, r_.find(use.region));
    r.ops += kComputedMoveOps;
    return true;
  }
  if (n.lowering<MoveLowering>()->row_major && !use.masked) {
    const auto mark = r_.axes.mark();
    const auto in = reshape_coords(r_.axes, at, shape(id), shape(n.inputs[0]));
    const bool split = r_.axes.mark().changes != mark.changes;
    if (use.operand && (split || !in)) {
      r_.axes.roll_back(mark);
      return false;
    }
    if (in && split && is_cut_short(r)) {
      r_.axes.roll_back(mark);
      return false;
    }
    if (in) {
      uses_[n.inputs[0]].push_back({use.region, *in, use.masked, use.operand, use.alone});
      return true;
    }
  }
  const PlanNodeView view(r_.graph, id);
  std::vector<std::pair<Id, Use>> pulled;
  const auto note = [&](int k, const Coords& in, bool masked) {
    pulled.emplace_back(n.inputs[k], Use{use.region, r_.axes.normalize(in), use.masked || masked,
                                         use.operand, use.alone});
  };
  AnalysisContext context(view, note, &r_.axes);
  n.lowering<MoveLowering>()->pull(context, view, at);
  const auto choices = static_cast<size_t>(
      std::ranges::count_if(pulled, [](const auto& input) { return input.second.masked; }));
  if (choices > kMostChoices && !may_write_out(r, at)) return false;
  r.choices = std::max(r.choices, choices);
  // Coordinates are divided, which takes several times what memory does.
  const bool divides =
      std::ranges::any_of(pulled, [](const auto& input) { return !is_affine(input.second.at); });
  const bool is_view = view_if_possible(id).has_value();
  const bool is_large = is_view && n.kernel < 0 && r.kernel < 0 && bytes(id) >= kLargeBytes;
  if (n.lowering<MoveLowering>()->row_major &&
      ((divides && (is_large || is_copied_at_once(id, use))) || (is_view && shows_leaf(id))))
    return false;
  for (auto& [input, wanted] : pulled) uses_[input].push_back(std::move(wanted));
  r.ops += 1;
  return true;
}

// Among many inputs, which lie side by side along the last axis.
bool RegionCutter::may_write_out(const Region& r, const Coords& at) const {
  const std::vector<AxisId> axes = r_.axes.normalize(r.axes);
  const Coord whole{.terms = {{axes.empty() ? -1 : axes.back(), 1}}};
  if (r.update >= 0) {  // at computed places each choice is made point by point
    const auto* update = node(r.update).lowering<UpdateLowering>();
    if (update->slice == nullptr || !update->slice(PlanNodeView(r_.graph, r.update))) return false;
  }
  return r.kernel < 0 && r.contract < 0 && r.row_axes.empty() && r.column_axes.empty() &&
         r.scan_axes.empty() && equal({at.back()}, {whole}) && points_of(r) >= kManyPoints;
}

void RegionCutter::place_anchor(Id id, bool memory) {
  const PlanNode& n = node(id);
  std::vector<int> candidates = candidates_of(id);
  Border border = n.needed ? Border::output : kept_for_[id];
  if (n.inputs.empty() && !memory && n.lowering<MapLowering>() != nullptr) {
    replicate(id);
    return;
  }
  if (n.border) {
    border = Border::barrier;
  } else if (n.lowering<UpdateLowering>() != nullptr) {
    if (!candidates.empty()) border = Border::layout;
  } else if (!candidates.empty()) {
    merge_candidates(id, candidates);
    const bool picked = !memory && is_picked(id, candidates);
    if (picked) r_.picked.insert(id);
    if (picked || (!memory && (is_recomputed(id, candidates) || is_repeated(id, candidates)))) {
      replicate(id);
      return;
    }
    Refusal refused;
    for (int candidate : candidates) {
      check_cancelled("eval");
      const Refusal why = is_table(id, candidate) ? Refusal(Border::recompute_cost)
                                                  : try_join(id, candidate, memory);
      if (!refused) refused = why;
      if (why) continue;
      const bool others = readers_outside(id, candidate);
      if (memory || others) store(id, candidate, true);
      return;
    }
    if (!memory && saves_launch(id, candidates)) {
      replicate(id);
      return;
    }
    border = *refused;
  }
  const int own = start_region(id, border);
  store(id, own, true);
}

// The region of the composite takes the node, wherever it is wanted in it: places become one.
void RegionCutter::place_in_kernel(Id id, bool memory) {
  const auto [it, fresh] = kernels_.try_emplace(node(id).kernel, -1);
  std::optional<Coords> at;
  for (const Use& use : uses_[id]) {
    if (fresh || r_.find(use.region) != it->second) continue;
    const Coords wanted = r_.axes.normalize(use.at);
    const bool one = !at || unify_coords(r_.axes, *at, wanted);
    CERMET_INTERNAL_CHECK(one, "op {} is wanted at two places of a kernel",
                          node(id).row().name.value);
    at = r_.axes.normalize(wanted);
  }
  if (fresh) it->second = add_region(uses_[id].empty() ? Border::output : Border::opaque_op);
  const int own = it->second;
  region(own).kernel = node(id).kernel;
  const bool inside = at.has_value();
  if (!inside) at = fresh_place(shape(id), own);
  const auto is_any = [&](auto member) {
    return !above_product_[id] && std::ranges::any_of(uses_[id], member);
  };
  add_to_kernel(id, {own, *at, false, is_any(&Use::operand), is_any(&Use::alone)});
  if (memory || !inside || readers_outside(id, own)) store(id, own, true);
}

// A constant, or a broadcast: pulled, it would not have the axes that tell operands apart.
bool RegionCutter::is_spread(Id id) const {
  const auto& inputs = node(id).inputs;
  return inputs.empty() || (node(id).lowering<MoveLowering>() != nullptr &&
                            shape(id).count() > shape(inputs[0]).count());
}

void RegionCutter::enter_products_from_memory(Id id) {
  std::erase_if(uses_[id], [&](const Use& use) {
    const int reader = r_.find(use.region);
    if (region(reader).kernel < 0 || !use.alone) return false;
    read_from_memory(id, reader);
    return true;
  });
}

void RegionCutter::add_to_kernel(Id id, const Use& use) {
  const PlanNode& n = node(id);
  const int own = use.region;
  const Coords& at = use.at;
  Region& r = region(own);
  if (n.lowering<ContractLowering>() != nullptr) return add_product(id, own, at);
  const auto* fold = n.lowering<FoldLowering>();
  if (fold == nullptr) {
    add_member(id, use);
    return;
  }
  const PlanNodeView view(r_.graph, id);
  const Axes folded = fold->axes(view);
  const bool keepdims = view->input_shapes[0]->ndim() == shape(id).ndim();
  Coords in;
  int o = 0;
  for (int d = 0; d < view->input_shapes[0]->ndim(); d++) {
    if (std::ranges::find(folded, d) == folded.end()) {
      in.push_back(at[o++]);
      continue;
    }
    r.row_axes.push_back(r_.axes.add((*view->input_shapes[0])[d]));
    insert_axis(r_.axes, r, r.row_axes.back(), {at.begin() + o, at.end()});
    in.push_back({.terms = {{r.row_axes.back(), 1}}});
    o += keepdims ? 1 : 0;
  }
  r.members.push_back({id, at, {in}});
  uses_[n.inputs[0]].push_back({own, r_.axes.normalize(in)});
}

// Every user has its own: of a constant, or of what is recomputed.
void RegionCutter::replicate(Id id) {
  std::map<int, std::vector<Use>> made;  // by region
  for (Use use : std::vector<Use>(uses_[id])) {
    use.region = r_.find(use.region);
    use.at = r_.axes.normalize(use.at);
    const auto is_same = [&](const Use& other) {
      return other.masked == use.masked && other.operand == use.operand && equal(other.at, use.at);
    };
    std::vector<Use>& there = made[use.region];
    if (std::ranges::any_of(there, is_same)) continue;
    add_member(id, use);
    there.push_back(std::move(use));
  }
  if (made.size() > 1) r_.repeated.insert(id);
}

// A large value that several regions would read, of the kind that is made again from values they have
// anyway: then it needs no memory. The first candidate would store it. A mask that needs few values
// is one at any size: a composite's kernel leaves out what it sees to be masked.
bool RegionCutter::is_recomputed(Id id, const std::vector<int>& candidates) {
  if (max_ops_ == 1 || candidates.size() < 2) return false;
  const auto in_composite = [&](int candidate) { return region(candidate).kernel >= 0; };
  const bool is_mask =
      std::ranges::all_of(candidates, in_composite) && is_from_little(r_.graph, id);
  if (bytes(id) < kLargeBytes && !is_mask) return false;
  if (node(id).lowering<MapLowering>() == nullptr || !memory_readers_[id].empty()) return false;
  for (const Use& use : uses_[id]) {
    if (use.operand || use.masked || !is_affine(r_.axes.normalize(use.at))) return false;
  }
  if (is_mask) return true;
  const auto in_memory = [&](Id source) { return is_in_memory(source, candidates[0]); };
  const std::optional<Recipe> recipe = find_recipe(r_.graph, id, in_memory);
  if (!recipe || recipe->stored > (recipe->ops <= kMaxOperandOps ? bytes(id) : Dim(0)))
    return false;
  Dim more_read = 0;
  for (int candidate : candidates) {
    const Region& r = region(candidate);
    if (r.ops + recipe->ops > max_ops_) return false;
    if (r.arguments + static_cast<int>(recipe->sources.size()) > kMaxRegionArguments) return false;
    for (Id source : recipe->sources) {
      if (candidate != candidates[0] && use_in(source, candidate) == nullptr)
        more_read += bytes(source);
    }
  }
  return more_read <= bytes(id) * candidates.size();
}

// A small value that no region takes: to make it again wherever it is wanted takes less than a launch of its own.
bool RegionCutter::saves_launch(Id id, const std::vector<int>& candidates) {
  constexpr int64_t kLaunchCost = 1 << 20;  // instructions for one element each, by vectors
  // One element is made with what else comes before its readers.
  if (max_ops_ == 1 || shape(id).count() == 1 || node(id).lowering<MapLowering>() == nullptr ||
      !memory_readers_[id].empty())
    return false;
  const auto in_memory = [&](Id source) { return is_in_memory(source, candidates[0]); };
  const std::optional<Recipe> recipe = find_recipe(r_.graph, id, in_memory);
  if (!recipe || recipe->stored > 0 || recipe->ops > kMaxOperandOps) return false;
  Dim cost = 0;
  for (const Use& use : uses_[id]) {
    const Region& r = region(r_.find(use.region));
    const Coords at = r_.axes.normalize(use.at);
    if (use.operand || use.masked || !is_affine(at) || r.kernel >= 0 || r.update >= 0) return false;
    if (r.ops + recipe->ops > max_ops_ ||
        r.arguments + static_cast<int>(recipe->sources.size()) > kMaxRegionArguments)
      return false;
    cost += times_made(r_.axes, r, axes_of(at)) * shape(id).count() * recipe->ops;
  }
  return cost <= kLaunchCost;
}

// An element-wise region would read elements of it from a few places each: to make it there takes less than to
// store it, and to read it again.
bool RegionCutter::is_repeated(Id id, const std::vector<int>& candidates) {
  constexpr int kMostPlaces = 4, kMostRepeatedOps = 48;
  constexpr size_t kMostSources = 3;  // each is read at all places
  if (max_ops_ == 1 || candidates.size() != 1 || node(id).needed || !memory_readers_[id].empty() ||
      node(id).lowering<MapLowering>() == nullptr)
    return false;
  const Region& r = region(candidates[0]);
  if (r.kernel >= 0 || r.contract >= 0 || r.update >= 0 || !r.row_axes.empty() ||
      !r.column_axes.empty() || !r.scan_axes.empty())
    return false;
  const std::vector<Coords> places = places_of(id);
  const auto count = static_cast<int>(places.size());
  if (count < 2 || count > kMostPlaces || !std::ranges::all_of(places, is_affine)) return false;
  // No element is made more than once at a place.
  const auto is_made_again = [&](const Use& use) {
    return use.operand || times_made(r_.axes, r, axes_of(r_.axes.normalize(use.at))) > 1 ||
           (!use.masked && points_of(r) > shape(id).count());
  };
  if (std::ranges::any_of(uses_[id], is_made_again)) return false;
  const auto in_memory = [&](Id source) { return is_in_memory(source, candidates[0]); };
  const std::optional<Recipe> recipe = find_recipe(r_.graph, id, in_memory);
  if (!recipe || recipe->stored > 0 || recipe->ops * (count - 1) > kMostRepeatedOps) return false;
  return recipe->sources.size() <= kMostSources && r.ops + recipe->ops * count <= max_ops_ &&
         r.arguments + static_cast<int>(recipe->sources.size()) <= kMaxRegionArguments;
}

// Where regions want it, each place once.
std::vector<Coords> RegionCutter::places_of(Id id) const {
  std::vector<Coords> places;
  for (const Use& use : uses_[id]) {
    Coords at = r_.axes.normalize(use.at);
    if (std::ranges::none_of(places, [&](const Coords& other) { return equal(other, at); }))
      places.push_back(std::move(at));
  }
  return places;
}

// Elements of it are picked by number, perhaps beside all of them in order: no more are made than it has, and it
// needs no memory.
bool RegionCutter::is_picked(Id id, const std::vector<int>& candidates) {
  constexpr size_t kMostPlaces = 2;
  if (max_ops_ == 1 || candidates.size() != 1 || !memory_readers_[id].empty() ||
      node(id).lowering<MapLowering>() == nullptr)
    return false;
  const Region& r = region(candidates[0]);
  if (r.kernel >= 0 || r.contract >= 0 || r.update >= 0) return false;
  const auto is_other = [](const Use& use) { return use.masked || use.operand; };
  if (std::ranges::any_of(uses_[id], is_other)) return false;
  const std::vector<Coords> places = places_of(id);
  const int ops = static_cast<int>(places.size()) * op_cost(r_.graph, id);
  return !std::ranges::all_of(places, is_affine) && places.size() <= kMostPlaces &&
         points_of(r) <= shape(id).count() && r.ops + ops <= max_ops_;
}

Dim RegionCutter::points_of(const Region& r) const {
  Dim points = 1;
  for (const AxisId axis : r_.axes.normalize(r.axes)) points *= r_.axes.size(axis);
  return points;
}

// Dear to make, and the region would make it anew for each point of axes outside its own: it is made
// once, as a table that opens the region's kernel. Or it would be made a number at a time, for a few lanes
// that go down the columns. Not where it would be rounded between.
bool RegionCutter::is_table(Id id, int into) {
  const Region& r = region(into);
  const Dim size = shape(id).count();
  if (max_ops_ == 1 || r.kernel >= 0 || is_half(node(id).node->dtype) ||
      node(id).lowering<MapLowering>() == nullptr)
    return false;
  const auto in_memory = [&](Id input) { return node(input).needed || in_memory_[input]; };
  if (r.update >= 0) return is_dear_index(id, r.update, in_memory);
  const Use& use = *use_in(id, into);
  if (r.contract >= 0)
    return size <= kMaxTable && use.operand && is_dear_row(r_.graph, id, r.contract, in_memory);
  const std::vector<AxisId> own = axes_of(r_.axes.normalize(use.at));
  const Dim lanes = r.column_axes.empty() ? Dim(1) : lanes_served(r_.axes, r, own);
  const bool goes_down = lanes >= 2 && lanes <= kFewLanes;
  if (!goes_down && size > kMaxTable) return false;
  const Dim made = goes_down ? lanes : times_made(r_.axes, r, own);
  if (made < 2) return false;
  const int64_t cost = cost_of_chain(r_.graph, id, in_memory);
  return cost >= kTableCost && (made - 1) * size * cost >= kTableSaves;
}

// Every thread of an update looks at all indices, one by one.
bool RegionCutter::is_dear_index(Id id, Id update, const InMemory& in_memory) {
  const auto& inputs = node(update).inputs;
  if (std::find(inputs.begin() + 1, inputs.end() - 1, id) == inputs.end() - 1) return false;
  const Dim size = shape(id).count();
  if (shape(inputs.back()).count() >= size * kManyIndices) return false;
  const int cost = cost_of_chain(r_.graph, id, in_memory);
  return cost >= kIndexCost && size * cost >= kIndicesCost;
}

// Whatever becomes of the value that `maker` would store.
bool RegionCutter::is_in_memory(Id id, int maker) {
  const PlanNode& n = node(id);
  return n.leaf || n.needed || n.border || in_memory_[id] || !memory_readers_[id].empty() ||
         std::ranges::any_of(uses_[id],
                             [&](const Use& use) { return r_.find(use.region) != maker; });
}

// The regions that use a node, each once.
std::vector<int> RegionCutter::candidates_of(Id id) {
  std::vector<int> candidates;
  walked_.resize(r_.regions.size(), 0);
  walk_++;
  for (Use& use : uses_[id]) {
    use.region = r_.find(use.region);
    if (std::exchange(walked_[use.region], walk_) != walk_) candidates.push_back(use.region);
  }
  return candidates;
}

// A region whose space is the node's shape, with the node as first member.
int RegionCutter::start_region(Id id, Border border) {
  const int own = add_region(border);
  const bool update = node(id).lowering<UpdateLowering>() != nullptr;
  const Shape& space = update ? shape(node(id).inputs.back()) : shape(id);
  const Coords at = fresh_place(space, own, reversed_axis(node(id)));
  if (update) {
    region(own).update = id;
    add_update(id, own, at);
  } else if (node(id).lowering<MoveLowering>() != nullptr) {
    region(own).members.push_back({id, at, {}});
    pull(id, {own, at});
  } else {
    const Refusal refusal = add_member(id, {own, at});
    CERMET_INTERNAL_CHECK(!refusal, "op {} does not fit a region of its own",
                          node(id).row().name.value);
  }
  return own;
}

int RegionCutter::add_region(Border border) {
  r_.regions.emplace_back();
  r_.regions.back().border = border;
  r_.merged_into.push_back(-1);
  depths_.push_back(0);
  return static_cast<int>(r_.regions.size()) - 1;
}

// An axis of the region for each dim; one may run from its end.
Coords RegionCutter::fresh_place(const Shape& space, int own, int reversed) {
  Coords at;
  for (int d = 0; d < space.ndim(); d++) {
    const AxisId axis = r_.axes.add(space[d]);
    Coord c;
    c.terms.push_back({axis, d == reversed ? -1 : 1});
    if (d == reversed) c.offset = space[d] - 1;
    if (space[d] != 1) region(own).axes.push_back(axis);
    at.push_back(r_.axes.normalize(c));
  }
  return at;
}

// Users elsewhere, and those in the region when `users_read`, read the node from memory.
void RegionCutter::store(Id id, int own, bool users_read) {
  Region& r = region(own);
  if (std::find(r.stored.begin(), r.stored.end(), id) == r.stored.end()) r.stored.push_back(id);
  r_.stored_by[id] = own;
  r.arguments++;
  if (users_read) {
    for (const Use& use : uses_[id]) {
      add_read(r_.find(use.region), own, id);
      note_order(id, use);
    }
  }
  for (int reader : memory_readers_[id]) add_read(r_.find(reader), own, id);
}

void RegionCutter::add_read(int reader, int producer, Id id) {
  if (reader == producer) return;
  Region& r = region(reader);
  r.reads.push_back(producer);
  deepen(producer, depths_[reader] + 1);
  r.arguments++;
  r.large_reads += bytes(id) >= kLargeBytes;
}

bool RegionCutter::readers_outside(Id id, int inside) {
  auto outside = [&](int reader) { return r_.find(reader) != inside; };
  return std::any_of(uses_[id].begin(), uses_[id].end(),
                     [&](const Use& use) { return outside(use.region); }) ||
         std::any_of(memory_readers_[id].begin(), memory_readers_[id].end(), outside);
}

void RegionCutter::deepen(int region, int depth) {
  std::vector<std::pair<int, int>> todo{{region, depth}};
  while (!todo.empty()) {
    const auto [i, least] = todo.back();
    todo.pop_back();
    if (depths_[i] >= least) continue;
    depths_[i] = least;
    for (int read : r_.regions[i].reads) todo.emplace_back(r_.find(read), least + 1);
  }
}

// `a` reads, directly or through others, what `b` stores: what lies between them is less deep than `b`.
bool RegionCutter::depends(int a, int b) {
  if (depths_[a] >= depths_[b]) return false;
  check_cancelled("eval");
  walked_.resize(r_.regions.size(), 0);
  walk_++;
  std::vector<int> queue{a};
  for (size_t k = 0; k < queue.size(); k++) {
    if (depths_[queue[k]] >= depths_[b]) continue;
    for (int read : r_.regions[queue[k]].reads) {
      const int i = r_.find(read);
      if (i == b) return true;
      if (std::exchange(walked_[i], walk_) != walk_) queue.push_back(i);
    }
  }
  return false;
}

int Regions::find(int region) const {
  while (merged_into[region] >= 0) region = merged_into[region];
  return region;
}

Regions cut_regions(PlanGraph graph, int max_ops) {
  return RegionCutter(std::move(graph), max_ops).cut();
}

Layout own_layout(const PlanNode& n) {
  Layout layout = n.leaf && n.node->is_ready() ? n.node->layout : Layout::contiguous(n.node->shape);
  if (!n.strides.empty()) layout.strides = n.strides;
  layout.offset = 0;
  return layout;
}

std::optional<Layout> view_layout(const PlanGraph& graph, Id id, const Layout& input) {
  const auto* move = graph.nodes[id].lowering<MoveLowering>();
  if (move == nullptr || move->view == nullptr || graph.nodes[id].inputs.size() != 1)
    return std::nullopt;
  const PlanNodeView view(graph, id);
  return move->view(view, *view->input_shapes[0], input);
}

}  // namespace cermet::schedule
