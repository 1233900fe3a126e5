// SPDX-License-Identifier: MIT
// Cuts a plan graph into regions: each becomes one kernel. Works from the outputs to the inputs: a node
// joins the region of its consumers when it is wanted there at one place of the iteration space, else it
// is stored in memory by a region of its own. Consumers of one node that have the same space become one
// region. A large value that is cheap to make from what its consumers have anyway is computed by each
// of them instead of being stored. Movement is never a node of a region: consumers pull through it.
//
// A region's space: column axes (folded serially), then kept axes, then row axes (folded by lanes).
// A value folded over column axes is used after the main stage, or where there are no row axes by
// another fold over the columns; one folded over row axes is used anywhere.
// A composite that is one kernel brings a region of its own, with any number of products and folds.
// Depends on the graph, dtypes, sizes and layouts alone.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "schedule/axes.h"
#include "schedule/border.h"
#include "schedule/plan_graph.h"

namespace cermet::schedule {

inline constexpr int kMaxRegionOps = 256;
inline constexpr int kMaxRegionArguments = 96;
// One element-wise kernel over many large values keeps all of them alive: a sum of many is cut.
inline constexpr int kMaxLargeReads = 3;
inline constexpr int64_t kMaxTable = 1 << 18;  // elements: stays in the cache until it is read

struct Member {
  Id node;
  Coords at;
  std::vector<Coords> in;  // folds and contractions: where their inputs are taken
};

struct Region {
  std::vector<AxisId> axes;         // outer to inner
  std::vector<AxisId> row_axes;     // trailing
  std::vector<AxisId> column_axes;  // leading, or after kept outer axes
  std::vector<Member> members;      // users before inputs
  std::vector<Id> stored;
  Id contract = -1;
  Id update = -1;
  int kernel = -1;                // of a composite that is one kernel
  std::vector<AxisId> scan_axes;  // scanned; innermost, unless there are no row and column axes
  int ops = 0;
  int arguments = 0;    // buffers; the numbers are at most a few for each op
  int large_reads = 0;  // large values that it reads of other regions ...
  int large_folds = 0;  // ... and that it folds over its columns
  size_t choices = 0;   // inputs of one op that it chooses among
  int written_out = 0;  // instructions of long ops that are written out for it
  Dim in_order = 0;     // elements of the largest value that it reads in the order of its axes
  bool is_written_out() const { return choices > kMostChoices; }
  std::vector<Id> after;   // values that must be made before it runs
  std::vector<int> reads;  // regions whose values it reads (normalise with Regions::find)
  Border border = Border::output;
};

struct Regions {
  PlanGraph graph;
  AxisTable axes;
  std::vector<Region> regions;
  std::vector<int> merged_into;
  std::vector<int> stored_by;          // node -> region that stores it, -1
  std::vector<bool> is_view;           // node -> a view of its input 0 in memory
  std::set<std::pair<Id, int>> loads;  // movement that a region reads from memory, not through
  std::vector<int> order;              // live regions, each after those it reads
  std::set<Id> picked;                 // maps that are made where elements of them are picked
  std::set<Id> repeated;               // made by each of several regions that want them
  std::set<Id> wide;                   // half-typed nodes that lie as float32: see single_ops.h

  int find(int region) const;
  Dtype stored_dtype(Id id) const {
    return wide.contains(id) ? Dtype::float32 : graph.nodes[id].node->dtype;
  }
};

// max_ops 1: each op alone.
Regions cut_regions(PlanGraph graph, int max_ops = kMaxRegionOps);

// The layout of a node that has memory of its own, counted from where that layout starts.
Layout own_layout(const PlanNode& node);
// That of a view, in elements of its dtype, given its input's; nullopt where that cannot express it.
std::optional<Layout> view_layout(const PlanGraph& graph, Id id, const Layout& input);

}  // namespace cermet::schedule
