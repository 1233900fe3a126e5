// SPDX-License-Identifier: MIT
// Cuts a graph into regions, from its outputs to its inputs: each value joins a region of its users
// (region_join.cpp), or begins one, or lies in memory (regions.cpp).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "schedule/recompute.h"
#include "schedule/region_spaces.h"
#include "schedule/regions.h"

namespace cermet::schedule {

class RegionCutter {
 public:
  RegionCutter(PlanGraph graph, int max_ops);
  Regions cut();

 private:
  struct Use {
    int region;
    Coords at;
    bool masked = false;   // wanted under a mask, maybe outside the value's shape
    bool operand = false;  // wanted in the packing of a contraction ...
    bool alone = false;    // ... whose operand has no axes but those of this value
  };

  const PlanNode& node(Id id) const { return r_.graph.nodes[id]; }
  const Shape& shape(Id id) const { return node(id).node->shape; }
  Region& region(int i) { return r_.regions[i]; }
  Dim bytes(Id id) const { return bytes_of(r_.graph, id); }

  void find_layouts();
  std::optional<Layout> view_if_possible(Id id);
  void place(Id id);

  // --- movement: pulled by every user; in memory it is a view, or a copy by a region of its own ---
  void place_move(Id id, bool memory);
  void wait_for(Id id, int waiter);
  int64_t places_in(Id id, int reader);
  void read_from_memory(Id id, int reader);
  bool shows_leaf(Id id);
  bool pull(Id id, const Use& use);
  bool may_write_out(const Region& r, const Coords& at) const;

  // --- anchors: nodes that compute ---
  void place_anchor(Id id, bool memory);
  void place_in_kernel(Id id, bool memory);
  bool is_spread(Id id) const;
  void enter_products_from_memory(Id id);
  void add_to_kernel(Id id, const Use& use);
  void replicate(Id id);
  bool is_recomputed(Id id, const std::vector<int>& candidates);
  bool saves_launch(Id id, const std::vector<int>& candidates);
  bool is_repeated(Id id, const std::vector<int>& candidates);
  bool is_picked(Id id, const std::vector<int>& candidates);
  std::vector<Coords> places_of(Id id) const;
  Dim points_of(const Region& r) const;
  bool is_table(Id id, int into);
  bool is_dear_index(Id id, Id update, const InMemory& in_memory);
  bool is_in_memory(Id id, int maker);
  std::vector<int> candidates_of(Id id);
  int start_region(Id id, Border border);
  int add_region(Border border);
  Coords fresh_place(const Shape& space, int own, int reversed = -1);
  void store(Id id, int own, bool users_read);
  void add_read(int reader, int producer, Id id);
  bool readers_outside(Id id, int inside);
  void deepen(int region, int depth);
  bool depends(int a, int b);

  // --- what movement shows regions ---
  Dim step_along(Id id, const Coords& at, AxisId axis) const;
  AxisId lanes_of(const Region& r) const;
  bool is_picked_in_order(Id id);
  bool is_read_apart_again(Id id, const Use& use);
  bool is_read_across(Id id, const Use& use);
  bool goes_across(Id id, const Use& use);
  bool is_read_apart_across(Id id, const Use& use);
  bool turn(Id id, const Use& use);
  static bool folds_or_scans(const Region& r);
  bool is_cut_short(const Region& r) const;
  bool is_copied_at_once(Id id, const Use& use);
  bool stores_folded(const Region& r, const std::vector<AxisId>& folded) const;
  bool is_read_in_order(int reader, Id before);
  void note_order(Id id, const Use& use);

  // --- joining a region ---
  // What joins says why not, if so: the region is then as it was.
  using Refusal = std::optional<Border>;
  Refusal try_join(Id id, int into, bool memory);
  Refusal find_one_use(Id id, int into, bool& stored, const Use*& one);
  Refusal use_refused(Id id, int into, const Use& use, const Coords& at, bool stored);
  bool fits_operand(Id id, int into);
  bool is_wide(const Region& r, const Coords& at) const;
  int large_inputs(const PlanNode& n) const;
  std::optional<std::vector<AxisId>> rows_beside(Id id, int into, const Coords& at);
  bool brings_rows(Id id, const Region& r, const std::vector<AxisId>& rest);
  int written_out(Id id, int into, const Coords& at);
  Refusal add_member(Id id, const Use& use);
  Refusal add_scan(Id id, int into, const Coords& at);
  void add_update(Id id, int own, const Coords& at);
  Refusal add_contract(Id id, int into, const Coords& at);
  void add_product(Id id, int into, const Coords& at);
  Refusal add_fold(Id id, int into, const Coords& at);

  // --- one region out of two ---
  void merge_candidates(Id id, std::vector<int>& candidates);
  const Use* use_in(Id id, int in);
  bool try_merge(Id id, int a, int b);
  bool fold_by_columns(Id id, int full, int rows);
  void merge(int a, int b);

  static constexpr int kMaxOperandOps = 4;  // that a packing repeats

  Regions r_;
  int max_ops_;
  std::vector<std::vector<Use>> uses_;
  std::vector<std::vector<int>> memory_readers_;
  std::vector<int> depths_;  // of regions: more than those of all that read what they store
  std::vector<int> walked_;  // regions: the last walk that came by ...
  int walk_ = 0;             // ... of so many
  std::vector<bool> in_memory_;
  std::vector<Border> kept_for_;           // why it lies there
  std::vector<Layout> layouts_;            // from the start of the memory's own
  std::vector<size_t> alignments_;         // of that start
  std::vector<std::pair<Id, int>> waits_;  // (value, region that runs after it is made)
  std::map<int, int> kernels_;             // of composites: their regions
  std::vector<bool> above_product_;  // nodes of composites' kernels that need one of its products
};

}  // namespace cermet::schedule
