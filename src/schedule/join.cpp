// SPDX-License-Identifier: MIT
#include "schedule/join.h"

#include <algorithm>

#include "kernel/rebuild.h"
#include "kernel/tile_source.h"
#include "kernel/walk.h"
#include "ops/ops.h"

namespace cermet::schedule {

namespace {

Dim space_of(const Regions& regions, const Region& region) {
  Dim size = 1;
  for (AxisId axis : regions.axes.normalize(region.axes)) size *= regions.axes.size(axis);
  return size;
}

bool is_map(const Region& region) {
  return region.contract < 0 && region.update < 0 && region.row_axes.empty() &&
         region.column_axes.empty();
}

// What a kernel holds so far, its tables included.
struct Load {
  int ops = 0, arguments = 0;
};

bool may_open(const Regions& regions, const Region& table, const Region& reader, Load load) {
  const Dim size = space_of(regions, table);
  return is_map(table) && reader.contract < 0 && reader.update < 0 && size <= kMaxTable &&
         2 * size <= space_of(regions, reader) && table.ops + load.ops <= kMaxRegionOps &&
         table.arguments + load.arguments <= kMaxRegionArguments;
}

// Writes the second kernel behind the first, its parameters, axes and values renumbered.
class Joiner {
 public:
  Joiner(const EmittedKernel& first, const EmittedKernel& second)
      : second_(second), out_(first), to_(*first.ir) {}

  std::optional<EmittedKernel> join() {
    if (to_.kernel().axes.size() + second_.ir->axes.size() > ir::kMaxAxes) return std::nullopt;
    strides_ = to_.kernel().stride_count;
    sites_ = static_cast<int>(out_.sites.size());
    for (size_t p = 0; p < second_.ir->params.size(); p++) {
      if (!add_param(p)) return std::nullopt;
    }
    for (const ir::Axis& axis : second_.ir->axes)
      axes_.push_back(to_.axis(axis.name, axis.has_extent, axis.most));
    for (const ir::Value& value : second_.ir->values)
      values_.push_back(to_.value(value.dtypes, value.name));
    to_.kernel().stride_count += second_.ir->stride_count;
    for (const ir::Stmt& stmt : second_.ir->body) {
      ir::Stmt moved = renumber(stmt);
      to_.kernel().body.push_back(std::move(moved));
    }
    append(out_.extents, second_.extents);
    append(out_.strides, second_.strides);
    append(out_.sites, second_.sites);
    out_.flops += second_.flops;
    to_.kernel().name += "_" + second_.ir->name;
    out_.ir = std::make_shared<const ir::Kernel>(to_.take());
    return std::move(out_);
  }

 private:
  template <typename T>
  static void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  bool add_param(size_t p) {
    const ir::Param& param = second_.ir->params[p];
    const Operand& operand = second_.operands[p];
    if (param.kind == ir::ParamKind::buffer) return add_buffer(param, operand);
    const size_t known = to_.kernel().params.size();
    params_.push_back(param.kind == ir::ParamKind::status ? to_.status()
                                                          : to_.scalar(param.dtype, param.name));
    if (to_.kernel().params.size() > known) out_.operands.push_back(operand);
    return true;
  }

  // What the first stores is one buffer for both; where the second starts elsewhere in it, its indices
  // are shifted.
  bool add_buffer(const ir::Param& param, const Operand& operand) {
    for (size_t i = 0; i < out_.operands.size(); i++) {
      const Operand& known = out_.operands[i];
      ir::Param& other = to_.kernel().params[i];
      if (known.kind != Operand::Kind::buffer || known.value != operand.value) continue;
      if (other.access == ir::Access::in && param.access == ir::Access::in) continue;
      if (other.dtype != param.dtype) return false;
      other.access = ir::Access::inout;
      if (known.offset != operand.offset)
        shifts_[static_cast<ir::ParamId>(params_.size())] = shift(
            quotient(operand.offset - known.offset, static_cast<int64_t>(size_of(param.dtype))));
      params_.push_back(static_cast<ir::ParamId>(i));
      return true;
    }
    params_.push_back(to_.buffer(param.dtype, param.access, param.name));
    out_.operands.push_back(operand);
    return true;
  }

  ir::ExprId shift(const Dim& elements) {
    const Number number = cermet::number(elements);
    out_.operands.push_back({Operand::Kind::constant, -1, 0, -1, number, Dtype::int64});
    return to_.scalar_ref(to_.scalar(Dtype::int64));
  }

  ir::ExprId rebuild(ir::ExprId root) {
    if (root == ir::kNone) return root;
    return ir::rebuild_expr(to_, *second_.ir, root, memo_,
                            [this](ir::Builder& to, ir::ExprId, ir::Expr expr) {
                              renumber(expr);
                              return to.intern(std::move(expr));
                            });
  }

  void renumber(ir::Expr& expr) const {
    switch (expr.kind) {
      case ir::ExprKind::scalar: expr.id = params_[expr.id]; break;
      case ir::ExprKind::axis:
      case ir::ExprKind::extent: expr.id = axes_[expr.id]; break;
      case ir::ExprKind::ref: expr.id = values_[expr.id]; break;
      case ir::ExprKind::load: renumber_place(expr); break;
      default: break;
    }
  }

  void renumber(ir::Index& index) const {
    for (ir::IndexTerm& term : index) {
      if (term.stride != ir::kUnit) term.stride += strides_;
    }
  }

  void renumber(std::vector<ir::AxisId>& axes) const {
    for (ir::AxisId& axis : axes) axis = axes_[axis];
  }

  ir::Stmt renumber(const ir::Stmt& stmt) {
    if (const auto* stage = std::get_if<ir::For>(&stmt)) {
      ir::For copy;
      copy.kind = stage->kind;
      copy.axes = stage->axes;
      renumber(copy.axes);
      for (const ir::Stmt& inner : stage->body) copy.body.push_back(renumber(inner));
      return copy;
    }
    ir::Stmt copy = stmt;
    ir::for_each_expr(copy, [&](ir::ExprId& id) { id = rebuild(id); });
    std::visit([&](auto& s) { renumber_fields(s); }, copy);
    return copy;
  }

  void renumber_fields(ir::Let& s) const { s.value = values_[s.value]; }
  void renumber_fields(ir::Check& s) const { s.site += sites_; }
  void renumber_fields(ir::Store& s) const { renumber_place(s); }
  void renumber_fields(ir::Update& s) const {
    renumber_place(s);
    renumber(s.over);
    if (s.elements != ir::kNone) s.elements = axes_[s.elements];
  }
  void renumber_fields(ir::Fold& s) const { renumber_value(s); }
  void renumber_fields(ir::Contract& s) const { renumber_value(s); }
  template <typename S>
  void renumber_fields(S&) const {}  // tiled kernels only

  void renumber_place(auto& s) const {
    renumber(s.index);
    if (auto shift = shifts_.find(s.buffer.id); shift != shifts_.end())
      s.index.push_back({shift->second, ir::kUnit});
    s.buffer.id = params_[s.buffer.id];
  }
  void renumber_value(auto& s) const {
    s.value = values_[s.value];
    renumber(s.axes);
  }

  const EmittedKernel& second_;
  EmittedKernel out_;
  ir::Builder to_;
  std::vector<ir::ParamId> params_;
  std::vector<ir::AxisId> axes_;
  std::vector<ir::ValueId> values_;
  ir::ExprMap shifts_;  // by the second's parameter
  ir::ExprMap memo_;
  int32_t strides_ = 0;
  int sites_ = 0;
};

}  // namespace

std::vector<int> find_tables(const Regions& regions) {
  const size_t n = regions.regions.size();
  std::vector<int> reader(n, -1), readers(n, 0), opens(n);
  std::vector<Load> loads(n);
  for (size_t i = 0; i < n; i++) loads[i] = {regions.regions[i].ops, regions.regions[i].arguments};
  for (int i : regions.order) {
    for (int read : regions.regions[i].reads) {
      reader[read] = i;
      readers[read]++;
    }
  }
  for (size_t i = regions.order.size(); i-- > 0;) {
    const int table = regions.order[i];
    opens[table] = table;
    if (readers[table] != 1) continue;
    const int into = opens[reader[table]];
    if (!may_open(regions, regions.regions[table], regions.regions[into], loads[into])) continue;
    opens[table] = into;
    loads[into].ops += loads[table].ops;
    loads[into].arguments += loads[table].arguments;
  }
  return opens;
}

std::optional<EmittedKernel> join_kernels(const EmittedKernel& first, const EmittedKernel& second) {
  return Joiner(first, second).join();
}

}  // namespace cermet::schedule
