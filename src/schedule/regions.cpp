// SPDX-License-Identifier: MIT
#include "schedule/regions.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/error.h"
#include "runtime/poll.h"
#include "schedule/analysis.h"
#include "schedule/recompute.h"
#include "schedule/region_order.h"
#include "schedule/region_spaces.h"

namespace cermet::schedule {

namespace {

constexpr int64_t kMaxPlaces = 4;

struct Use {
  int region;
  Coords at;
  bool masked = false;   // wanted under a mask, maybe outside the value's shape
  bool operand = false;  // wanted in the packing of a contraction ...
  bool alone = false;    // ... whose operand has no axes but those of this value
};

class Cutter {
 public:
  Cutter(PlanGraph graph, int max_ops) : max_ops_(max_ops) {
    r_.graph = std::move(graph);
    const size_t n = r_.graph.nodes.size();
    uses_.resize(n);
    memory_readers_.resize(n);
    in_memory_.resize(n, false);
    layouts_.resize(n);
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

  Regions cut() {
    find_layouts();
    for (Id id = static_cast<Id>(r_.graph.nodes.size()) - 1; id >= 0; id--) place(id);
    std::set<std::pair<Id, int>> loads;
    for (auto [id, reader] : r_.loads) loads.emplace(id, r_.find(reader));
    r_.loads = std::move(loads);
    for (auto [id, waiter] : waits_) region(r_.find(waiter)).after.push_back(id);
    order_regions(r_);
    return std::move(r_);
  }

 private:
  const PlanNode& node(Id id) const { return r_.graph.nodes[id]; }
  const Shape& shape(Id id) const { return node(id).node->shape; }
  Region& region(int i) { return r_.regions[i]; }

  // Layouts in memory, as far as they are known beforehand.
  void find_layouts() {
    for (size_t i = 0; i < layouts_.size(); i++) {
      const Id id = static_cast<Id>(i);
      const PlanNode& n = node(id);
      if (n.leaf && n.node->is_ready()) {
        layouts_[i] = n.node->layout;
      } else {
        layouts_[i] = Layout::contiguous(n.node->shape);
        if (auto view = view_if_possible(id)) layouts_[i] = *view;
      }
    }
  }

  std::optional<Layout> view_if_possible(Id id) {
    const PlanNode& n = node(id);
    if (n.leaf || n.inputs.empty()) return std::nullopt;
    return view_layout(r_.graph, id, layouts_[n.inputs[0]]);
  }

  void place(Id id) {
    check_cancelled("eval");
    PlanNode& n = r_.graph.nodes[id];
    if (n.kernel < 0 && !n.leaf && is_spread(id)) enter_products_from_memory(id);
    const bool memory = n.needed || n.border || in_memory_[id];
    if (n.kernel >= 0 && !n.inputs.empty() && n.lowering<MoveLowering>() == nullptr) {
      place_in_kernel(id, memory);
    } else if (n.leaf) {
      std::vector<int> readers = candidates_of(id);
      if (shape(id).size() > 1) merge_candidates(id, readers);  // read once for all
      for (int reader : readers) region(reader).arguments++;
    } else if (n.lowering<MoveLowering>() != nullptr) {
      place_move(id, memory);
    } else {
      place_anchor(id, memory);
    }
    uses_[id].clear();
  }

  // --- movement: pulled by every user; in memory it is a view, or a copy by a region of its own ---

  void place_move(Id id, bool memory) {
    const PlanNode& n = node(id);
    for (Id before : n.after) {
      for (const Use& use : uses_[id]) wait_for(before, use.region);
      for (int reader : std::vector<int>(memory_readers_[id])) wait_for(before, reader);
    }
    if (!n.border) {
      for (const Use& use : uses_[id]) {
        if (pull(id, use)) continue;
        memory = true;
        read_from_memory(id, r_.find(use.region));
      }
    }
    if (!memory) return;
    if (view_if_possible(id)) {
      const Id input = n.inputs[0];
      r_.is_view[id] = true;
      in_memory_[input] = true;
      auto& readers = memory_readers_[input];
      readers.insert(readers.end(), memory_readers_[id].begin(), memory_readers_[id].end());
      if (n.border) {
        for (const Use& use : uses_[id]) readers.push_back(use.region);
      }
      return;
    }
    const int own = start_region(id, n.border ? "barrier" : "layout");
    store(id, own, n.border);
  }

  // As if it read the value, so that no region comes both before and after another.
  void wait_for(Id id, int waiter) {
    in_memory_[id] = true;
    memory_readers_[id].push_back(waiter);
    waits_.emplace_back(id, waiter);
  }

  // Where the region wants the node, each use counted.
  int64_t places_in(Id id, int reader) {
    return std::ranges::count_if(
        uses_[id], [&](const Use& use) { return r_.find(use.region) == r_.find(reader); });
  }

  void read_from_memory(Id id, int reader) {
    in_memory_[id] = true;
    memory_readers_[id].push_back(reader);
    r_.loads.emplace(id, reader);
  }

  // False: the region reads the node from memory. (The axes of a contraction stay whole.)
  bool pull(Id id, const Use& use) {
    const PlanNode& n = node(id);
    Region& r = region(r_.find(use.region));
    // What chooses among inputs, or checks an index, is no part of a composite's kernel; nor is it written
    // again for each of many places, as those of its inputs would be twice as many.
    if (n.inputs.size() > 1 &&
        ((r.kernel >= 0 && n.kernel < 0) || places_in(id, use.region) > kMaxPlaces))
      return false;
    if (n.inputs.empty()) r.arguments++;
    const Coords at = r_.axes.normalize(use.at);
    if (n.lowering<MoveLowering>()->computes) {
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
      if (in) {
        uses_[n.inputs[0]].push_back({use.region, *in, use.masked, use.operand, use.alone});
        return true;
      }
    }
    const PlanNodeView view(r_.graph, id);
    AnalysisContext context(view, [&](int k, const Coords& in, bool masked) {
      uses_[n.inputs[k]].push_back(
          {use.region, r_.axes.normalize(in), use.masked || masked, use.operand, use.alone});
    });
    r.ops += 1;
    n.lowering<MoveLowering>()->pull(context, view, at);
    return true;
  }

  // --- anchors: nodes that compute ---

  void place_anchor(Id id, bool memory) {
    const PlanNode& n = node(id);
    std::vector<int> candidates = candidates_of(id);
    const char* border = "output";
    if (n.inputs.empty() && !memory && n.lowering<MapLowering>() != nullptr) {
      replicate(id);
      return;
    }
    if (n.border) {
      border = "barrier";
    } else if (n.lowering<UpdateLowering>() != nullptr) {
      border = "layout";
    } else if (!candidates.empty()) {
      border = "recompute_cost";
      merge_candidates(id, candidates);
      if (!memory && is_recomputed(id, candidates)) {
        replicate(id);
        return;
      }
      for (int candidate : candidates) {
        if (is_table(id, candidate) || !try_join(id, candidate, memory)) continue;
        const bool others = readers_outside(id, candidate);
        if (memory || others) store(id, candidate, true);
        return;
      }
    }
    const int own = start_region(id, border);
    store(id, own, true);
  }

  // The region of the composite takes the node, wherever it is wanted in it: places become one.
  void place_in_kernel(Id id, bool memory) {
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
    if (fresh) it->second = add_region("output");
    const int own = it->second;
    region(own).kernel = node(id).kernel;
    const bool inside = at.has_value();
    if (!inside) at = fresh_place(shape(id), own);
    const bool operand = !above_product_[id] && std::ranges::any_of(uses_[id], &Use::operand);
    add_to_kernel(id, own, *at, operand);
    if (memory || !inside || readers_outside(id, own)) store(id, own, true);
  }

  // A constant, or a broadcast: pulled, it would not have the axes that tell operands apart.
  bool is_spread(Id id) const {
    const auto& inputs = node(id).inputs;
    return inputs.empty() || (node(id).lowering<MoveLowering>() != nullptr &&
                              shape(id).size() > shape(inputs[0]).size());
  }

  void enter_products_from_memory(Id id) {
    std::erase_if(uses_[id], [&](const Use& use) {
      const int reader = r_.find(use.region);
      if (region(reader).kernel < 0 || !use.alone) return false;
      read_from_memory(id, reader);
      return true;
    });
  }

  void add_to_kernel(Id id, int own, const Coords& at, bool operand) {
    const PlanNode& n = node(id);
    Region& r = region(own);
    if (n.lowering<ContractLowering>() != nullptr) return add_product(id, own, at);
    const auto* fold = n.lowering<FoldLowering>();
    if (fold == nullptr) {
      add_member(id, own, at, operand);
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
      r.axes.push_back(r.row_axes.back());
      in.push_back({.terms = {{r.row_axes.back(), 1}}});
      o += keepdims ? 1 : 0;
    }
    r.members.push_back({id, at, {in}});
    uses_[n.inputs[0]].push_back({own, r_.axes.normalize(in)});
  }

  // Every user has its own: of a constant, or of what is recomputed.
  void replicate(Id id) {
    std::map<int, std::vector<Use>> made;  // by region
    for (Use use : std::vector<Use>(uses_[id])) {
      use.region = r_.find(use.region);
      use.at = r_.axes.normalize(use.at);
      const auto is_same = [&](const Use& other) {
        return other.masked == use.masked && other.operand == use.operand &&
               equal(other.at, use.at);
      };
      std::vector<Use>& there = made[use.region];
      if (std::ranges::any_of(there, is_same)) continue;
      if (node(id).inputs.empty()) region(use.region).arguments++;
      add_member(id, use.region, use.at, use.operand, use.masked);
      there.push_back(std::move(use));
    }
  }

  // A large value that several regions would read, of the kind that is made again from values they have
  // anyway: then it needs no memory. The first candidate would store it. A mask that needs few values
  // is one at any size: a composite's kernel leaves out what it sees to be masked.
  bool is_recomputed(Id id, const std::vector<int>& candidates) {
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
    if (!recipe || recipe->stored > (recipe->ops <= kMaxOperandOps ? bytes(id) : 0)) return false;
    int64_t more_read = 0;
    for (int candidate : candidates) {
      const Region& r = region(candidate);
      if (r.ops + recipe->ops > max_ops_) return false;
      if (r.arguments + static_cast<int>(recipe->sources.size()) > kMaxRegionArguments)
        return false;
      for (Id source : recipe->sources) {
        if (candidate != candidates[0] && use_in(source, candidate) == nullptr)
          more_read += bytes(source);
      }
    }
    return more_read <= static_cast<int64_t>(candidates.size()) * bytes(id);
  }

  // Dear to make, and the region would make it anew for each point of axes outside its own: it is made
  // once, as a table that opens the region's kernel. Not where it would be rounded between.
  bool is_table(Id id, int into) {
    const Region& r = region(into);
    const int64_t size = shape(id).size();
    if (max_ops_ == 1 || r.contract >= 0 || r.update >= 0 || r.kernel >= 0 || size > kMaxTable ||
        is_half(node(id).node->dtype) || node(id).lowering<MapLowering>() == nullptr)
      return false;
    const std::vector<AxisId> own = axes_of(r_.axes.normalize(use_in(id, into)->at));
    const int64_t made = times_made(r_.axes, r, own);
    if (made < 2) return false;
    const auto in_memory = [&](Id input) { return node(input).needed || in_memory_[input]; };
    const int64_t cost = cost_of_chain(r_.graph, id, in_memory);
    return cost >= kTableCost && (made - 1) * size * cost >= kTableSaves;
  }

  // Whatever becomes of the value that `maker` would store.
  bool is_in_memory(Id id, int maker) {
    const PlanNode& n = node(id);
    return n.leaf || n.needed || n.border || in_memory_[id] || !memory_readers_[id].empty() ||
           std::ranges::any_of(uses_[id],
                               [&](const Use& use) { return r_.find(use.region) != maker; });
  }

  // The regions that use a node, each once.
  std::vector<int> candidates_of(Id id) {
    std::vector<int> candidates;
    std::unordered_set<int> seen;
    for (Use& use : uses_[id]) {
      use.region = r_.find(use.region);
      if (seen.insert(use.region).second) candidates.push_back(use.region);
    }
    return candidates;
  }

  // A region whose space is the node's shape, with the node as first member.
  int start_region(Id id, const char* border) {
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
      const bool joined = add_member(id, own, at, false);
      CERMET_INTERNAL_CHECK(joined, "op {} does not fit a region of its own",
                            node(id).row().name.value);
    }
    return own;
  }

  int add_region(const char* border) {
    r_.regions.emplace_back();
    r_.regions.back().border = border;
    r_.merged_into.push_back(-1);
    return static_cast<int>(r_.regions.size()) - 1;
  }

  // An axis of the region for each dim; one may run from its end.
  Coords fresh_place(const Shape& space, int own, int reversed = -1) {
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
  void store(Id id, int own, bool users_read) {
    Region& r = region(own);
    if (std::find(r.stored.begin(), r.stored.end(), id) == r.stored.end()) r.stored.push_back(id);
    r_.stored_by[id] = own;
    r.arguments++;
    if (users_read) {
      for (const Use& use : uses_[id]) add_read(r_.find(use.region), own, id);
    }
    for (int reader : memory_readers_[id]) add_read(r_.find(reader), own, id);
  }

  void add_read(int reader, int producer, Id id) {
    if (reader == producer) return;
    Region& r = region(reader);
    r.reads.push_back(producer);
    r.arguments++;
    r.large_reads += bytes(id) >= kLargeBytes;
  }

  int64_t bytes(Id id) const { return bytes_of(r_.graph, id); }

  bool readers_outside(Id id, int inside) {
    auto outside = [&](int reader) { return r_.find(reader) != inside; };
    return std::any_of(uses_[id].begin(), uses_[id].end(),
                       [&](const Use& use) { return outside(use.region); }) ||
           std::any_of(memory_readers_[id].begin(), memory_readers_[id].end(), outside);
  }

  // `a` reads, directly or through others, what `b` stores.
  bool depends(int a, int b) {
    std::vector<int> stack{a};
    std::vector<bool> seen(r_.regions.size(), false);
    while (!stack.empty()) {
      const int i = r_.find(stack.back());
      stack.pop_back();
      if (seen[i]) continue;
      seen[i] = true;
      for (int read : r_.regions[i].reads) {
        if (r_.find(read) == b) return true;
        stack.push_back(read);
      }
    }
    return false;
  }

  // --- joining a region ---

  bool try_join(Id id, int into, bool memory) {
    const PlanNode& n = node(id);
    Region& r = region(into);
    const int cost = op_cost(r_.graph, id);
    if ((cost > 0 && r.ops + cost > max_ops_) || r.arguments > kMaxRegionArguments) return false;
    const Use* first = nullptr;
    bool stored = memory;
    for (const Use& use : uses_[id]) {
      if (r_.find(use.region) != into) {
        stored = true;
        if (depends(into, r_.find(use.region))) return false;
      } else if (first == nullptr) {
        first = &use;
      } else if (!equal(r_.axes.normalize(first->at), r_.axes.normalize(use.at)) ||
                 first->masked != use.masked || first->operand != use.operand) {
        return false;
      }
    }
    for (int reader : memory_readers_[id]) {
      if (r_.find(reader) == into || depends(into, r_.find(reader))) return false;
    }
    const Coords at = r_.axes.normalize(first->at);
    if (!is_affine(at)) return false;
    if (first->operand && (stored || !fits_operand(id, into))) return false;
    const bool map = n.lowering<MapLowering>() != nullptr;
    if (map && is_wide(r) && large_inputs(n) >= 2) return false;
    if (first->masked && (stored || !map)) return false;
    if ((stored || !map) && !covers_once(r_.axes, at, shape(id))) return false;
    if (reversed_axis(node(id)) >= 0) return false;
    if (stored && !store_fits(into, at)) return false;
    if (first->operand && !map) return false;
    const auto mark = r_.axes.mark();
    if (add_member(id, into, at, first->operand, first->masked)) return true;
    r_.axes.roll_back(mark);
    return false;
  }

  // Packing repeats what it computes: it may take little, and of a large value nothing that would be
  // stored for it alone.
  bool fits_operand(Id id, int into) {
    if (op_cost(r_.graph, id) > kMaxOperandOps) return false;
    const auto in_memory = [&](Id input) { return is_in_memory(input, into); };
    return bytes(id) < kLargeBytes || !needs_costly(r_.graph, id, kMaxOperandOps, in_memory);
  }

  static bool is_wide(const Region& r) {
    return r.large_reads >= kMaxLargeReads && r.stored.size() == 1 && r.column_axes.empty() &&
           (r.row_axes.empty() || r.contract >= 0);
  }

  int large_inputs(const PlanNode& n) const {
    return static_cast<int>(std::count_if(n.inputs.begin(), n.inputs.end(), [&](Id input) {
      return !node(input).leaf && bytes(input) >= kLargeBytes;
    }));
  }

  // A store must happen once for each element: over all axes, all but the row axes, or after the columns.
  // An update is all that its kernel stores.
  bool store_fits(int into, const Coords& at) {
    const Region& r = r_.regions[into];
    if (r.update >= 0) return false;
    const std::vector<AxisId> axes = r_.axes.normalize(r.axes), used = axes_of(at);
    const std::vector<AxisId> rest = without(axes, used);
    return rest.empty() || same_set(rest, r_.axes.normalize(r.row_axes)) ||
           same_set(rest, r_.axes.normalize(r.column_axes));
  }

  bool add_member(Id id, int into, const Coords& at, bool operand, bool masked = false) {
    const PlanNode& n = node(id);
    if (n.lowering<ScanLowering>() != nullptr && !add_scan(id, into, at)) return false;
    if (n.lowering<FoldLowering>() != nullptr) return add_fold(id, into, at);
    if (n.lowering<ContractLowering>() != nullptr) return add_contract(id, into, at);
    region(into).members.push_back({id, at, {}});
    region(into).ops += op_cost(r_.graph, id);
    // Beside a value with axes, a constant needs none.
    const auto has_axes = [&](Id input) { return node(input).leaf || !is_spread(input); };
    const bool any = std::ranges::any_of(n.inputs, has_axes);
    for (Id input : n.inputs)
      uses_[input].push_back({into, at, masked, operand, operand && (!any || has_axes(input))});
    return true;
  }

  // A scan runs over its axis from the first element on, in a region that has the axis innermost as its
  // rows or has no folds.
  bool add_scan(Id id, int into, const Coords& at) {
    Region& r = region(into);
    if (r.contract >= 0 || r.update >= 0) return false;
    const std::vector<AxisId> scanned =
        axes_of({at[std::get<AxisParams>(node(id).node->params).axis]});
    if (scanned.empty()) return true;
    const std::vector<AxisId> axes = r_.axes.normalize(r.axes), row = r_.axes.normalize(r.row_axes),
                              before = r_.axes.normalize(r.scan_axes);
    if (!before.empty() && before != scanned) return false;
    if (!r.column_axes.empty() || (!row.empty() && row != scanned)) return false;
    r.scan_axes = scanned;
    return true;
  }

  void add_update(Id id, int own, const Coords& at) {
    const PlanNode& n = node(id);
    region(own).members.push_back({id, at, {}});
    const PlanNodeView view(r_.graph, id);
    AnalysisContext context(view, [&](int k, const Coords& in, bool masked) {
      uses_[n.inputs[k]].push_back({own, r_.axes.normalize(in), masked, false});
    });
    n.lowering<UpdateLowering>()->target(context, view, at);
    uses_[n.inputs.back()].push_back({own, at});
    in_memory_[n.inputs[0]] = true;
    memory_readers_[n.inputs[0]].push_back(own);
  }

  bool add_contract(Id id, int into, const Coords& at) {
    Region& r = region(into);
    const std::vector<AxisId> axes = r_.axes.normalize(r.axes);
    if (r.contract >= 0 || r.update >= 0 || !r.row_axes.empty() || !r.column_axes.empty())
      return false;
    if (axes_of(at) != axes || !covers_once(r_.axes, at, shape(id))) return false;
    add_product(id, into, at);
    r.row_axes = {r.axes.back()};
    return true;
  }

  void add_product(Id id, int into, const Coords& at) {
    Region& r = region(into);
    const PlanNode& n = node(id);
    const int rank = shape(id).ndim();
    r.contract = id;
    const AxisId k = r_.axes.add(shape(n.inputs[0])[rank - 1]);
    const Coord kc = r_.axes.normalize(Coord{.terms = {{k, 1}}});
    Coords a = at, b = at;
    a[rank - 1] = kc;
    b[rank - 2] = kc;
    r.members.push_back({id, at, {a, b}});
    r.axes.push_back(k);
    uses_[n.inputs[0]].push_back({into, a, false, true, true});
    uses_[n.inputs[1]].push_back({into, b, false, true, true});
  }

  bool add_fold(Id id, int into, const Coords& at) {
    Region& r = region(into);
    if (r.contract >= 0 || r.update >= 0) return false;
    const PlanNode& n = node(id);
    const PlanNodeView view(r_.graph, id);
    const Axes folded = n.lowering<FoldLowering>()->axes(view);
    const Shape& in_shape = *view->input_shapes[0];
    const bool keepdims = in_shape.ndim() == shape(id).ndim();
    std::vector<AxisId> axes = r_.axes.normalize(r.axes);
    const std::vector<AxisId> kept = axes_of(at), free = without(axes, kept);
    const std::vector<AxisId> row = r_.axes.normalize(r.row_axes);
    const std::vector<AxisId> column = r_.axes.normalize(r.column_axes);

    std::vector<AxisId> bound;  // the fold's own axes, one for each folded dim
    bool trailing = true;       // no kept dim after a folded one
    int o = 0;
    Coords in;
    std::vector<AxisId> in_order;
    for (int d = 0; d < in_shape.ndim(); d++) {
      Coord c;
      if (std::find(folded.begin(), folded.end(), d) != folded.end()) {
        AxisId axis = -1;
        if (in_shape[d] != 1 && free.size() > bound.size() &&
            r_.axes.size(free[bound.size()]) == in_shape[d])
          axis = free[bound.size()];
        else axis = r_.axes.add(in_shape[d]);
        c.terms.push_back({axis, 1});
        if (in_shape[d] != 1) {
          bound.push_back(axis);
          in_order.push_back(axis);
        }
        if (keepdims) o++;
      } else {
        c = at[o++];
        for (const auto& term : c.terms) in_order.push_back(term.axis);
        if (!c.terms.empty() && !bound.empty()) trailing = false;
      }
      in.push_back(r_.axes.normalize(c));
    }
    const std::vector<AxisId> scanned = r_.axes.normalize(r.scan_axes);
    if (!scanned.empty() && !bound.empty() && (free.empty() || bound != scanned)) return false;
    if (bound.empty()) {
      // Folds over one element: no axis of their own.
    } else if (!free.empty() && free == column && row.empty()) {  // one column fold after another
      if (bound != free) return false;
    } else if (!free.empty()) {  // a row fold over axes that the region has already
      if (bound != free || !ends_with(axes, free) || (!row.empty() && row != free)) return false;
      if (!column.empty() && !same_set(column, kept)) return false;
      r.row_axes = free;
    } else if (!row.empty() && !(row == axes && column.empty())) {
      return false;
    } else if (!column.empty()) {  // rows inside a fold over all of them
      if (!trailing || !same_set(axes, column)) return false;
      r.row_axes = bound;
      r.axes = axes;
      r.axes.insert(r.axes.end(), bound.begin(), bound.end());
    } else if (!row.empty()) {  // the full fold becomes the column fold over rows
      if (!trailing) return false;
      r.column_axes = row;
      r.row_axes = bound;
      r.axes = axes;
      r.axes.insert(r.axes.end(), bound.begin(), bound.end());
    } else if (trailing) {
      r.row_axes = bound;
      r.axes = axes;
      r.axes.insert(r.axes.end(), bound.begin(), bound.end());
    } else {
      r.column_axes = bound;
      r.axes = in_order;
    }
    r.members.push_back({id, at, {in}});
    r.ops += 2;
    uses_[n.inputs[0]].push_back({into, in});
    return true;
  }

  // --- one region out of two ---

  void merge_candidates(Id id, std::vector<int>& candidates) {
    if (max_ops_ == 1) return;
    // The region that others depend on comes first: it may store what they read.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](int a, int b) { return a != b && depends(b, a) && !depends(a, b); });
    for (size_t i = 1; i < candidates.size();) {
      if (try_merge(id, candidates[0], candidates[i])) {
        for (Use& use : uses_[id]) use.region = r_.find(use.region);
        candidates.erase(candidates.begin() + static_cast<ptrdiff_t>(i));
      } else {
        i++;
      }
    }
  }

  const Use* use_in(Id id, int in) {
    for (const Use& use : uses_[id]) {
      if (r_.find(use.region) == in) return &use;
    }
    return nullptr;
  }

  bool try_merge(Id id, int a, int b) {
    const Region& ra = region(a);
    const Region& rb = region(b);
    if (ra.contract >= 0 || rb.contract >= 0 || ra.update >= 0 || rb.update >= 0) return false;
    if (ra.ops + rb.ops > max_ops_ || ra.arguments + rb.arguments > kMaxRegionArguments)
      return false;
    if (depends(a, b) || depends(b, a)) return false;
    const auto mark = r_.axes.mark();
    const Use *ua = use_in(id, a), *ub = use_in(id, b);
    if (!ua->masked && !ub->masked && unify_coords(r_.axes, ua->at, ub->at) &&
        unify_rest(r_.axes, ra, rb)) {
      const Region former_a = ra, former_b = rb;
      if (!fold_by_columns(id, a, b)) fold_by_columns(id, b, a);
      if (spaces_fit(r_.axes, ra, rb)) {
        merge(a, b);
        return true;
      }
      region(a) = former_a;
      region(b) = former_b;
    }
    r_.axes.roll_back(mark);
    return false;
  }

  // The full fold of one region folds what the node gives for each row of the other's space: it becomes
  // the column fold over these rows.
  bool fold_by_columns(Id id, int full, int rows) {
    Region& f = region(full);
    const auto axes = r_.axes.normalize(f.axes), all = r_.axes.normalize(region(rows).axes);
    const auto rest = without(all, axes);
    if (axes.empty() || r_.axes.normalize(f.row_axes) != axes || !f.column_axes.empty())
      return false;
    if (!f.scan_axes.empty() || !region(rows).scan_axes.empty()) return false;
    if (rest.empty() || !without(axes, all).empty() ||
        !folds_over(r_.graph, id, sizes_of(r_.axes, rest), kMaxFoldDistance))
      return false;
    f.axes = all;
    f.column_axes = axes;
    f.row_axes = rest;
    return true;
  }

  void merge(int a, int b) {
    Region &ra = region(a), &rb = region(b);
    const auto axes_a = r_.axes.normalize(ra.axes), axes_b = r_.axes.normalize(rb.axes);
    ra.axes = axes_a.size() >= axes_b.size() ? axes_a : axes_b;
    if (ra.row_axes.empty()) ra.row_axes = rb.row_axes;
    if (ra.column_axes.empty()) ra.column_axes = rb.column_axes;
    if (ra.scan_axes.empty()) ra.scan_axes = rb.scan_axes;
    ra.members.insert(ra.members.end(), rb.members.begin(), rb.members.end());
    ra.stored.insert(ra.stored.end(), rb.stored.begin(), rb.stored.end());
    ra.reads.insert(ra.reads.end(), rb.reads.begin(), rb.reads.end());
    ra.ops += rb.ops;
    ra.arguments += rb.arguments;
    ra.large_reads += rb.large_reads;
    for (Id id : rb.stored) r_.stored_by[id] = a;
    rb = Region();
    r_.merged_into[b] = a;
  }

  static constexpr int kMaxOperandOps = 4;
  static constexpr int kMaxFoldDistance = 4;  // element-wise ops between a fold and where rows meet
  static constexpr int kComputedMoveOps = 80;  // random bits: twenty rounds
  static constexpr int kTableCost = 24;        // instructions of an element: more than one function
  static constexpr int64_t kTableSaves = 1 << 20;  // instructions: some times what a stage costs

  Regions r_;
  int max_ops_;
  std::vector<std::vector<Use>> uses_;
  std::vector<std::vector<int>> memory_readers_;
  std::vector<bool> in_memory_;
  std::vector<Layout> layouts_;
  std::vector<std::pair<Id, int>> waits_;  // (value, region that runs after it is made)
  std::map<int, int> kernels_;             // of composites: their regions
  std::vector<bool> above_product_;  // nodes of composites' kernels that need one of its products
};

}  // namespace

int Regions::find(int region) const {
  while (merged_into[region] >= 0) region = merged_into[region];
  return region;
}

Regions cut_regions(PlanGraph graph, int max_ops) {
  return Cutter(std::move(graph), max_ops).cut();
}

std::optional<Layout> view_layout(const PlanGraph& graph, Id id, const Layout& input) {
  const auto* move = graph.nodes[id].lowering<MoveLowering>();
  if (move == nullptr || move->view == nullptr || graph.nodes[id].inputs.size() != 1)
    return std::nullopt;
  const PlanNodeView view(graph, id);
  return move->view(view, *view->input_shapes[0], input);
}

}  // namespace cermet::schedule
