// SPDX-License-Identifier: MIT
// Writes the values of a region into a kernel, from what it stores back to what it reads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory_resource>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "kernel/builder.h"
#include "schedule/emit.h"
#include "schedule/kernel_axes.h"
#include "schedule/product_scheme.h"
#include "schedule/regions.h"

namespace cermet::schedule {

class Emitter {
 public:
  Emitter(Regions& regions, int region, Collapse collapse)
      : r_(regions),
        region_(regions.regions[region]),
        number_(region),
        builder_("k"),
        axes_(r_.axes, region_, has_wide(), std::move(collapse), builder_, out_.extents) {
    for (const Member& member : region_.members) by_node_.push_back(&member);
    std::ranges::stable_sort(by_node_, {}, &Member::node);
  }

  EmittedKernel emit();
  // Of an element-wise kernel, one after the other: the stores at all places of axes that stand, outer to
  // inner. nullopt: it would have more expressions than `most`, or too many arguments. Of short axes, sizes become
  // part of the structure.
  std::optional<EmittedKernel> emit_unrolled(const std::vector<AxisId>& axes, bool are_short,
                                             size_t most);
  // After a trial.
  std::optional<AxisId> find_stacked(const Collapse& found) const {
    return axes_.find_stacked(found);
  }
  // `trial`: what emit() made.
  Collapse find_collapse(KernelAxes::Vectors vectors, const ir::Kernel& trial) const {
    return axes_.find_collapse(vectors, trial);
  }
  bool are_far_rows(int64_t least) const { return axes_.are_far_rows(least); }
  bool is_map() const { return axes_.is_map(); }
  bool are_short_rows(int64_t least) const { return axes_.are_short_rows(least); }
  ir::AxisId innermost() const { return axes_.innermost(); }
  // The innermost axis, if few parts are joined along it, and the size of which each is a multiple. After a trial.
  std::optional<std::pair<AxisId, Dim>> even_parts() const;

 private:
  class Context;
  struct Known {
    Coords at;
    ir::ExprId mask;
    Lane lane;
  };

  static constexpr size_t kMostArguments = kMaxRegionArguments;

  const PlanNode& node(Id id) const { return r_.graph.nodes[id]; }
  bool has_wide() const;
  EmittedKernel finish();
  ir::ExprId coordinate(const Coord& c);
  Lane value(Id id, const Coords& at, ir::ExprId mask);
  Lane compute(Id id, const Coords& at, const Member* member, ir::ExprId mask);
  Lane compute_fold(Id id, const Member& member);
  Lane compute_scan(Id id, const Member& member, ir::ExprId mask);
  Lane compute_contract(Id id, const Member& member);
  ProductOperand operand_of(ir::ExprId operand, ir::AxisId k) const;
  bool is_chosen_in_order(Id id) const;
  ir::Order order_of(const std::vector<AxisId>& bound, size_t i) const;
  std::vector<ir::ExprId> fold_over(std::vector<ir::FoldState> states,
                                    const std::vector<AxisId>& bound, std::vector<ir::AxisId> axes);
  ir::ExprId substitute(ir::ExprId expr, const std::vector<std::pair<ir::ExprId, ir::ExprId>>& by);
  std::vector<ir::ExprId> parts_of(ir::ValueId value, size_t count);
  bool is_of_innermost(ir::ExprId id) const;
  void note_part(Id id, const Coords& at);
  bool lies_in_memory(Id id, const Member* member) const;
  Lane load(Id id, const Coords& at, ir::ExprId mask);
  ir::ExprId load_part(ir::ParamId param, ir::Index index, Dtype dtype, ir::ExprId mask);
  ir::Index index_of(Id root, const Coords& at, const Strides& strides, int64_t unit,
                     int64_t apart);
  int32_t stride_of(Id root, ir::ExprId place, const Dim& stride);
  // Of a buffer; `apart`: the number of elements from where the parameter points.
  struct Place {
    ir::ParamId param;
    int64_t apart = 0;
  };
  Place place_of(Id root, const Dim& offset, Dtype dtype, ir::Access access);
  ir::ExprId number(const Number& n, Dtype dtype, int scalar, bool is_fixed = false);
  void store_lane(Id id, const Lane& lane, const Coords& at, const Coords& target,
                  ir::Access access, std::optional<ir::Code> update);
  bool reaches(ir::ExprId id, ir::AxisId axis) const;
  std::vector<ir::AxisId> colliding(const ir::Index& index,
                                    const std::vector<ir::AxisId>& axes) const;
  void divide_update(ir::Update& update, const std::vector<ir::AxisId>& axes, const Dim& elements);
  void emit_update(Id id);
  void emit_stores();
  void emit_results();
  void append(const std::vector<ir::AxisId>& axes, ir::Stmt stmt);

  Regions& r_;
  const Region& region_;
  int number_;
  ir::Builder builder_;
  EmittedKernel out_;
  int products_ = 0;
  KernelAxes axes_;
  std::vector<const Member*> by_node_;
  // Of the tables, which go as a whole.
  std::array<std::byte, 1 << 13> space_;
  std::pmr::monotonic_buffer_resource memory_{space_.data(), space_.size()};
  std::pmr::unordered_map<Id, std::pmr::vector<Known>> known_{&memory_};
  std::pmr::map<std::pair<Id, ir::ExprId>, std::pmr::vector<int32_t>> strides_{&memory_};
  bool has_status_ = false;
  bool knows_steps_ = false;
  struct Part {
    Dim start, size;
  };
  std::vector<Part> parts_;  // chosen along the innermost axis
};

}  // namespace cermet::schedule
