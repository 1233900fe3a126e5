// SPDX-License-Identifier: MIT
#include "kernel/tile_passes.h"

#include <algorithm>
#include <map>

namespace cermet::ir {

namespace {

bool is_sum_or_product(Code code) {
  return code == Code::add || code == Code::sub || code == Code::mul;
}

constexpr int kCheapOps = 2;

class RowKeeper {
 public:
  RowKeeper(Source& source, const Plan& plan, const Group& group, int limit)
      : source_(source), plan_(plan), rows_(set_of(group.rows)), limit_(limit) {}

  std::vector<KeptRow> run(const Group& group) {
    int last = 0;
    for (int number : group.tasks) last = std::max(last, plan_.tasks[number].pass);
    for (int pass = 0; pass <= last; ++pass) {
      std::vector<ExprId> roots;
      for (int number : group.tasks) {
        const Task& task = plan_.tasks[number];
        if (task.pass != pass || (task.range & rows_) == 0) continue;
        for (ExprId root : roots_of(task)) roots.push_back(root);
      }
      source_.walk(roots, [&](ExprId id) { return enter(id, pass); });
    }
    return rows();
  }

  // Sums and products of what is kept anyway and what is loaded cost no more than to store and load them.
  std::vector<KeptRow> run_without_cheap(const Group& group) {
    run(group);
    for (auto it = kept_.begin(); it != kept_.end();) {
      const auto [id, row] = *it;
      const int ops = ops_from_kept(id, row.made_in);
      if (ops > kCheapOps) {
        ++it;
        continue;
      }
      cheap_[id] = ops;
      it = kept_.erase(it);
      needs_operands(id, row.last_use);
    }
    return rows();
  }

 private:
  std::vector<KeptRow> rows() const {
    std::vector<KeptRow> rows;
    for (const auto& [id, row] : kept_) rows.push_back(row);
    return rows;
  }

  // Sums and products that make it from what is kept, up to the pass, and what is loaded; else too many.
  int ops_from_kept(ExprId id, int made_in) const {
    constexpr int kTooMany = kCheapOps + 1;
    const Expr& e = source_[id];
    if (e.kind != ExprKind::op || !is_sum_or_product(e.code)) return kTooMany;
    int ops = 1;
    for (ExprId operand : e.operands) {
      if (const auto cheap = cheap_.find(operand); cheap != cheap_.end()) {
        ops += cheap->second;
      } else if (const auto kept = kept_.find(operand); kept != kept_.end()) {
        if (kept->second.made_in > made_in) return kTooMany;
      } else if (source_.cost(operand, rows_, 2) > 1) {
        return kTooMany;
      }
    }
    return ops;
  }

  void needs_operands(ExprId id, int last_use) {
    for (ExprId operand : source_[id].operands) {
      if (cheap_.contains(operand)) needs_operands(operand, last_use);
      if (const auto kept = kept_.find(operand); kept != kept_.end())
        kept->second.last_use = std::max(kept->second.last_use, last_use);
    }
  }

  // Whether this pass has to make the parts of `id` itself.
  bool enter(ExprId id, int pass) {
    const AxisSet axes = source_.axes(id);
    if ((axes & kStateAxis) != 0) return true;
    if ((axes & rows_) == 0 || source_[id].kind == ExprKind::axis) return false;
    if (source_.behind(id) != id) return true;
    if (const Task* maker = maker_of(id)) {
      // A tuple is kept by its parts, which are seen first.
      if (maker->pass < pass &&
          source_.kernel().values[tuple_of(id)].dtypes.size() == part_count(id))
        keep(id, maker->pass, pass);
      return false;
    }
    const auto [seen, fresh] = first_.emplace(id, pass);
    if (fresh || seen->second == pass) return true;
    if (source_[id].kind == ExprKind::op && source_[id].code == Code::threefry) return true;
    if (!kept_.contains(id) && source_.cost(id, rows_, limit_) <= limit_) return true;
    keep(id, seen->second, pass);
    return false;
  }

  void keep(ExprId id, int made_in, int use) {
    const auto [it, fresh] = kept_.emplace(id, KeptRow{id, made_in, use});
    it->second.last_use = use;
  }

  // The value that a ref, or a get of one, reads; kNone otherwise.
  ValueId tuple_of(ExprId id) const {
    const Expr& e = source_[id];
    if (e.kind == ExprKind::ref) return e.id;
    return e.kind == ExprKind::get ? tuple_of(e.operands[0]) : kNone;
  }
  // Values that the expression stands for: a ref all of them, which fits only single ones.
  size_t part_count(ExprId id) const {
    if (source_[id].kind == ExprKind::ref) return 1;
    return source_.kernel().values[tuple_of(id)].dtypes.size();
  }
  const Task* maker_of(ExprId id) const {
    const ValueId value = tuple_of(id);
    return value == kNone || plan_.maker[value] < 0 ? nullptr : &plan_.tasks[plan_.maker[value]];
  }

  Source& source_;
  const Plan& plan_;
  AxisSet rows_;
  int limit_;
  std::map<ExprId, int> first_;  // the pass that makes it first
  std::map<ExprId, KeptRow> kept_;
  std::map<ExprId, int> cheap_;  // what is not kept after all: its sums and products
};

}  // namespace

std::vector<KeptRow> kept_rows(Source& source, const Plan& plan, const Group& group, int limit) {
  return RowKeeper(source, plan, group, limit).run(group);
}

std::vector<KeptRow> kept_rows_but_cheap(Source& source, const Plan& plan, const Group& group,
                                         int limit) {
  return RowKeeper(source, plan, group, limit).run_without_cheap(group);
}

}  // namespace cermet::ir
