// SPDX-License-Identifier: MIT
#include "codegen/work_estimate.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "codegen/lane_analysis.h"
#include "kernel/micro.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

// Of a processor of 2020 or later with the data in its caches.
constexpr double kVectorOpNs = 0.2;
constexpr double kScalarOpNs = 0.5;
constexpr double kTileShare = 1.0 / 24;  // of that, by tile instructions, of a byte
constexpr int64_t kUnknownTrips = 64;

class Estimator {
 public:
  Estimator(const Kernel& kernel, const For& chunk, int vector_bytes)
      : kernel_(kernel),
        vector_bytes_(vector_bytes),
        past_(chunk.turn == 0 ? kNone : chunk.axes[1]) {
    for_each_stmt(kernel.body, [&](const Stmt& stmt) {
      if (const Let* let = std::get_if<Let>(&stmt)) lets_[let->value] = let->expr;
    });
  }

  std::vector<Work> run(const For& chunk) {
    body(chunk.body, 1.0, {});
    return std::move(work_);
  }

 private:
  void body(const std::vector<Stmt>& stmts, double factor, const std::vector<WorkTrip>& trips) {
    int ops = 0;
    for (const Stmt& stmt : stmts) {
      if (const For* loop = std::get_if<For>(&stmt)) {
        inner(*loop, factor, trips);
      } else {
        if (const Micro* micro = std::get_if<Micro>(&stmt)) product(*micro, factor, trips);
        for_each_expr(stmt, [&](ExprId id) { ops += ops_in(id); });
        ++ops;
      }
    }
    if (ops > 0) work_.push_back({factor * ops * kScalarOpNs, trips});
  }

  // A template's vector operations: one for each row and point of its counts.
  void product(const Micro& micro, double factor, std::vector<WorkTrip> trips) {
    const auto [rows, counts] = counts_of(micro);
    const BufferRef made = micro.buffers[0];
    const size_t size =
        size_of(made.local ? kernel_.locals[made.id].dtype : kernel_.params[made.id].dtype);
    factor *= kVectorOpNs * static_cast<double>(rows) * static_cast<double>(size) / vector_bytes_;
    if (micro.kind == MicroKind::tile_gemm) {
      const TileGemmMicro m = TileGemmMicro::of(micro);
      const auto bytes = static_cast<double>(size_of(kernel_.locals[m.b.id].dtype));
      factor *= kTileShare * bytes * static_cast<double>(products_of(m.parts).size());
    }
    // A parameter is multiplied as it lies, without groups.
    if (const BufferRef b = micro.buffers.back(); micro.kind == MicroKind::gemm && b.local)
      factor /= static_cast<double>(group_of(kernel_.locals[b.id].dtype));
    for (ExprId count : counts) add(trip_of(count), factor, trips);
    work_.push_back({factor, trips});
  }

  static std::pair<int64_t, std::vector<ExprId>> counts_of(const Micro& micro) {
    if (micro.kind == MicroKind::gemm) {
      const GemmMicro m = GemmMicro::of(micro);
      return {1, {m.rows, m.columns, m.depth}};
    }
    if (micro.kind == MicroKind::tile_gemm) {
      const TileGemmMicro m = TileGemmMicro::of(micro);
      return {1, {m.rows, m.columns, m.depth}};
    }
    if (micro.kind == MicroKind::transpose) {
      const TransposeMicro m = TransposeMicro::of(micro);
      return {1, {m.rows, m.columns}};
    }
    if (micro.kind == MicroKind::turn) {
      const TurnMicro m = TurnMicro::of(micro);
      return {1, {m.rows, m.columns}};
    }
    if (micro.kind == MicroKind::rows) {
      const RowsMicro m = RowsMicro::of(micro);
      return {1, {m.rows, m.columns}};
    }
    if (micro.kind == MicroKind::pack) {
      const PackMicro m = PackMicro::of(micro);
      return {1, {m.rows, m.columns}};
    }
    const PanelMicro m = PanelMicro::of(micro);
    return {m.rows, {m.columns, m.depth}};
  }

  static void add(const WorkTrip& trip, double& factor, std::vector<WorkTrip>& trips) {
    if (trip.axis == kNone) factor *= trip.times(trip.most);
    else trips.push_back(trip);
  }

  void inner(const For& loop, double factor, std::vector<WorkTrip> trips) {
    const ExprId end = end_of_all(loop.end);
    WorkTrip trip = trip_of(end);
    divide(end, trip);
    add(trip, factor, trips);
    if (loop.kind != ForKind::lane) return body(loop.body, factor, trips);
    const LaneAnalysis analysis(kernel_, loop);
    const auto is_loop = [](const Stmt& stmt) { return std::holds_alternative<For>(stmt); };
    if (std::ranges::any_of(loop.body, is_loop))
      return body(loop.body, factor * kVectorOpNs / kScalarOpNs / analysis.width(vector_bytes_),
                  trips);
    work_.push_back(
        {factor * analysis.cost() * kVectorOpNs / analysis.width(vector_bytes_), trips});
  }

  int ops_in(ExprId id) {
    if (!seen_.insert(id).second) return 0;
    const Expr& e = kernel_[id];
    int ops = e.kind == ExprKind::op || e.kind == ExprKind::load ? 1 : 0;
    for_each_operand(e, [&](ExprId operand) { ops += ops_in(operand); });
    return ops;
  }

  bool is_of_turns(ExprId id) {
    const Expr& e = kernel_[id];
    if (past_ == kNone || e.kind == ExprKind::constant) return false;
    if (const auto known = of_turns_.find(id); known != of_turns_.end()) return known->second;
    bool is = e.kind == ExprKind::axis && e.id == past_;
    if (e.kind == ExprKind::ref && lets_.contains(e.id)) is = is_of_turns(lets_.at(e.id));
    for_each_operand(e, [&](ExprId operand) { is = is || is_of_turns(operand); });
    return of_turns_[id] = is;
  }

  // The end without what turns bound it by: min(that, all).
  ExprId end_of_all(ExprId end) {
    const Expr* e = &kernel_[end];
    if (e->kind == ExprKind::ref && lets_.contains(e->id)) e = &kernel_[lets_.at(e->id)];
    if (e->kind != ExprKind::op || e->code != Code::min) return end;
    for (int k = 0; k < 2; ++k)
      if (is_of_turns(e->operands[k]) && !is_of_turns(e->operands[1 - k]))
        return e->operands[1 - k];
    return end;
  }

  // A constant by which what the end is made of is divided, as a number of blocks is.
  std::optional<int64_t> divisor_of(const Expr& e) const {
    if (e.kind != ExprKind::op || e.code != Code::div) return std::nullopt;
    const Expr& by = kernel_[e.operands[1]];
    const auto divisor = static_cast<int64_t>(by.bits);
    if (by.kind != ExprKind::constant || divisor < 2) return std::nullopt;
    return divisor;
  }

  // f(operand) for each that an end is made of: of a select the choices.
  template <typename F>
  static void for_each_part(const Expr& e, F&& f) {
    if (e.kind != ExprKind::op) return;
    for (size_t i = e.code == Code::select ? 1 : 0; i < e.operands.size(); ++i) f(e.operands[i]);
  }

  // What is added to others, if less than that.
  int64_t added_below(ExprId id, int64_t most) const {
    const Expr& e = kernel_[id];
    if (e.kind == ExprKind::ref && lets_.contains(e.id)) return added_below(lets_.at(e.id), most);
    if (e.kind == ExprKind::constant && static_cast<int64_t>(e.bits) < most)
      return static_cast<int64_t>(e.bits);
    if (e.kind != ExprKind::op || e.code != Code::add) return 0;
    return std::max(added_below(e.operands[0], most), added_below(e.operands[1], most));
  }

  // Where a number of blocks is what is counted, and not what a block's number is made of.
  void divide(ExprId end, WorkTrip& trip) const {
    std::set<ExprId> seen;
    const std::function<void(ExprId)> look = [&](ExprId id) {
      if (!seen.insert(id).second) return;
      const Expr& e = kernel_[id];
      if (e.kind == ExprKind::ref && lets_.contains(e.id)) look(lets_.at(e.id));
      if (const auto by = divisor_of(e)) {
        trip.tile = std::min(trip.tile, INT64_MAX / *by) * *by;
        trip.first = std::max(trip.first, *by - added_below(e.operands[0], *by));
      } else if (e.code != Code::rem && e.code != Code::mul) {
        for_each_part(e, look);
      }
    };
    look(end);
    if (trip.axis == kNone) trip.first = INT64_MAX;  // of an unknown number
  }

  // A loop that runs once or not at all.
  bool is_flag(ExprId end) const {
    const Expr* e = &kernel_[end];
    while (e->kind == ExprKind::ref && lets_.contains(e->id)) e = &kernel_[lets_.at(e->id)];
    return e->kind == ExprKind::op && e->code == Code::cast &&
           kernel_[e->operands[0]].dtype == Dtype::boolean;
  }

  // min(extent, largest constant) of what the end is made of, which covers `extent`,
  // `min(begin + tile, extent)` and their like; of what is divided, constants below the divisor round up.
  WorkTrip trip_of(ExprId end) const {
    if (is_flag(end)) return {kNone, 1};
    WorkTrip trip;
    AxisId of_place = kNone;  // of where the loop begins, which is a block's number times its size
    int64_t constant = 0;
    std::set<std::pair<ExprId, bool>> seen;
    const std::function<void(ExprId, int64_t, bool)> look = [&](ExprId id, int64_t least,
                                                                bool in_place) {
      const Expr& e = kernel_[id];
      if (e.kind != ExprKind::constant && !seen.insert({id, in_place}).second) return;
      if (e.kind == ExprKind::ref && lets_.contains(e.id)) look(lets_.at(e.id), least, in_place);
      AxisId& axis = in_place ? of_place : trip.axis;
      if (e.kind == ExprKind::extent && axis == kNone) axis = e.id;
      if (const auto bits = static_cast<int64_t>(e.bits);
          e.kind == ExprKind::constant && bits >= least)
        constant = std::max(constant, bits);
      if (const auto by = divisor_of(e)) return look(e.operands[0], *by, in_place);
      const bool is_number = e.code == Code::mul || e.code == Code::rem || e.code == Code::div;
      for_each_part(e, [&](ExprId part) { look(part, least, in_place || is_number); });
    };
    look(end, 2, false);
    if (trip.axis == kNone) trip.axis = of_place;
    if (constant > 1) trip.most = constant;
    else if (trip.axis == kNone) trip.most = kUnknownTrips;
    return trip;
  }

  const Kernel& kernel_;
  const int vector_bytes_;
  const AxisId past_;  // where turns end: of all of them is counted
  std::map<ExprId, bool> of_turns_;
  std::map<ValueId, ExprId> lets_;
  std::set<ExprId> seen_;
  std::vector<Work> work_;
};

}  // namespace

std::vector<Work> estimate_work(const Kernel& kernel, const For& chunk, int vector_bytes) {
  return Estimator(kernel, chunk, vector_bytes).run(chunk);
}

}  // namespace cermet::codegen
