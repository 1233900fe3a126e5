// SPDX-License-Identifier: MIT
// The meaning of ir.h, run as it is written: each statement at each point, values kept as 64-bit
// cells. In wide arithmetic a cell of a floating dtype holds a double.
#include "kernel/interpret.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "kernel/complex_update.h"
#include "kernel/interpret_state.h"
#include "kernel/passes.h"
#include "kernel/scalar_ops.h"
#include "kernel/text.h"

namespace cermet::ir {

namespace {

class Interpreter : private Evaluator {
 public:
  using Evaluator::Evaluator;

  CheckFailure run() {
    for (const Local& l : kernel_.locals) poison(l);
    for (const Stmt& stmt : kernel_.body) {
      if (kernel_.is_tiled()) {
        tiled(stmt);
      } else {
        stage(std::get<For>(stmt));
      }
    }
    return failure_;
  }

 private:
  // --- Before `tile`.

  void stage(const For& loop) {
    axes_ = &loop.axes;
    // A value that does not use an axis is made once for all its points; but never for none.
    empty_ = std::ranges::any_of(loop.axes, [&](AxisId a) { return extents_[a] <= 0; });
    for (const Stmt& stmt : loop.body) std::visit([&](const auto& s) { whole(stmt, s); }, stmt);
    axes_ = nullptr;
  }

  // Calls f at each point of the axes, row-major; once if there are none.
  template <typename F>
  void at_points(const std::vector<AxisId>& axes, F&& f) {
    int64_t count = 1;
    for (AxisId a : axes) count *= extents_[a];
    if (count <= 0) return;
    for (AxisId a : axes) point_[a] = 0;
    for (;;) {
      f();
      size_t i = axes.size();
      while (i > 0 && ++point_[axes[i - 1]] == extents_[axes[i - 1]]) point_[axes[--i]] = 0;
      if (i == 0) return;
    }
  }

  std::vector<AxisId> without(const std::vector<AxisId>& folded) const {
    std::vector<AxisId> rest;
    for (AxisId a : *axes_)
      if (std::find(folded.begin(), folded.end(), a) == folded.end()) rest.push_back(a);
    return rest;
  }

  void whole(const Stmt& stmt, const Let& s) {
    const Tape& tape = tape_of(stmt, Part::all);
    const std::vector<AxisId> axes = used_axes(tape);
    uint64_t* cell = allocate(s.value, axes);
    if (empty_) return;
    at_points(axes, [&] {
      evaluate(tape);
      *cell++ = cells_[s.expr];
    });
  }

  void whole(const Stmt& stmt, const Fold& s) {
    const bool each = s.emit == Emit::each;
    allocate(s.value, each ? *axes_ : without(s.axes));
    at_points(without(s.axes), [&] {
      FoldRun run = begin_fold(stmt, s.states, s.order);
      at_points(s.axes, [&] {
        step(run);
        if (each) std::ranges::copy(so_far(run), cell_of(s.value));
      });
      if (!each) std::ranges::copy(finish(run), cell_of(s.value));
    });
  }

  void whole(const Stmt& stmt, const Contract& s) {
    const Tape& tape = tape_of(stmt, Part::all);
    allocate(s.value, without(s.axes));
    const Dtype a = cell_dtype(s.a), b = cell_dtype(s.b);
    at_points(without(s.axes), [&] {
      ContractSum sum(wide(s.acc));
      at_points(s.axes, [&] {
        evaluate(tape);
        sum.add(a, cells_[s.a], b, cells_[s.b]);
      });
      *cell_of(s.value) = sum.result();
    });
  }

  template <typename S>
  void whole(const Stmt& stmt, const S& s) {
    if constexpr (std::is_same_v<S, Update>)
      if (!s.over.empty()) return in_parts(stmt, s);
    if constexpr (std::is_same_v<S, Check> || std::is_same_v<S, Store> ||
                  std::is_same_v<S, Update>) {
      at_points(*axes_, [&] { once(stmt, s); });
    } else {
      throw_internal(__FILE__, __LINE__, "a tiled statement in a stage: " + print(kernel_, stmt));
    }
  }

  // --- At one point, before and after `tile`.

  void once(const Stmt& stmt, const Check& s) {
    evaluate(tape_of(stmt, Part::all));
    if (cells_[s.ok] == 0 && failure_.site < 0)
      failure_ = {s.site, static_cast<int64_t>(cells_[s.index])};
  }

  void once(const Stmt& stmt, const Store& s) {
    evaluate(tape_of(stmt, Part::all));
    if (s.mask != kNone && cells_[s.mask] == 0) return;
    write(s.buffer, offset(s.index), cells_[s.value]);
  }

  void in_parts(const Stmt& stmt, const Update& s) {
    const Tape& tape = tape_of(stmt, Part::all);
    const Dtype dtype = wide(kernel_[s.value].dtype);
    const int64_t elements = extents_[s.elements];
    int64_t points = 1;
    for (AxisId a : s.over) points *= extents_[a];
    const int64_t each = (points + kUpdateParts - 1) / kUpdateParts;
    std::vector<uint64_t> parts(static_cast<size_t>(kUpdateParts * elements),
                                neutral_of(s.code, dtype));
    const auto combine = [&](uint64_t& to, uint64_t value) {
      const uint64_t operands[2] = {to, value};
      to = apply(s.code, dtype, dtype, operands);
    };
    at_points(s.over, [&] {
      int64_t number = 0;
      for (AxisId a : s.over) number = number * extents_[a] + point_[a];
      uint64_t* const part = parts.data() + number / each * elements;
      at_points(without(s.over), [&] {
        evaluate(tape);
        if (s.mask != kNone && cells_[s.mask] == 0) return;
        const int64_t at = offset(s.index);
        CERMET_INTERNAL_CHECK(at >= 0 && at + (s.imag != kNone ? 1 : 0) < elements,
                              "kernel '{}': an update of element {} of {}", kernel_.name, at,
                              elements);
        combine(part[at], cells_[s.value]);
        if (s.imag != kNone) combine(part[at + 1], cells_[s.imag]);
      });
    });
    for (int64_t count = kUpdateParts; count > 1; count /= 2)
      for (int64_t i = 0; i < count / 2; ++i)
        for (int64_t e = 0; e < elements; ++e) {
          uint64_t left = parts[static_cast<size_t>(2 * i * elements + e)];
          combine(left, parts[static_cast<size_t>((2 * i + 1) * elements + e)]);
          parts[static_cast<size_t>(i * elements + e)] = left;
        }
    for (int64_t e = 0; e < elements; ++e) {
      uint64_t value = read(s.buffer, e);
      combine(value, parts[static_cast<size_t>(e)]);
      write(s.buffer, e, value);
    }
  }

  void once(const Stmt& stmt, const Update& s) {
    evaluate(tape_of(stmt, Part::all));
    if (s.mask != kNone && cells_[s.mask] == 0) return;
    const int64_t at = offset(s.index);
    const Dtype dtype = wide(kernel_[s.value].dtype);
    if (s.imag != kNone) {
      const auto op = [&](Code code, Dtype result, Dtype operand, const auto& operands) {
        return apply(code, result, operand, operands.data());
      };
      const Parts<uint64_t> old{read(s.buffer, at), read(s.buffer, at + 1)};
      const Parts<uint64_t> parts =
          update_complex(s.code, dtype, old, {cells_[s.value], cells_[s.imag]}, op);
      write(s.buffer, at, parts[0]);
      return write(s.buffer, at + 1, parts[1]);
    }
    const uint64_t operands[2] = {read(s.buffer, at), cells_[s.value]};
    write(s.buffer, at, apply(s.code, dtype, dtype, operands));
  }

  // --- After `tile`.

  void tiled(const Stmt& stmt) {
    std::visit([&](const auto& s) { once(stmt, s); }, stmt);
  }

  void once(const Stmt& stmt, const Let& s) {
    evaluate(tape_of(stmt, Part::all));
    *single(s.value) = cells_[s.expr];
  }

  void once(const Stmt& stmt, const Fold& s) {
    FoldRun& run = folds_.at(&stmt);
    step(run);
    if (s.emit == Emit::each) std::ranges::copy(so_far(run), single(s.value));
  }

  void once(const Stmt& stmt, const Contract&) {
    throw_internal(__FILE__, __LINE__, "a contract after `tile`: " + print(kernel_, stmt));
  }

  void once(const Stmt&, const Local& s) { poison(s); }
  void once(const Stmt&, const Barrier&) {}
  void once(const Stmt&, const Fetch&) {}

  void once(const Stmt& stmt, const Merge& s) {
    evaluate(tape_of(stmt, Part::all));
    const int64_t count = static_cast<int64_t>(cells_[s.count]);
    const uint64_t at = cells_[s.at], stride = cells_[s.stride];
    FoldRun run = begin_fold(stmt, s.states, Order::serial);
    for (int64_t i = 0; i < count; ++i)
      for (LocalId local : s.from)
        run.blocks.push_back(read({.local = true, .id = local},
                                  static_cast<int64_t>(at + static_cast<uint64_t>(i) * stride)));
    std::ranges::copy(finish(run), single(s.value));
  }

  void once(const Stmt& stmt, const Micro& s) {
    evaluate(tape_of(stmt, Part::all));
    micro(s);
  }

  // Two spans of unlike length, as two threads may get them, each in two parts if there are turns.
  void spans(const For& s) {
    const int64_t grid = size_of(s.grid), turn = s.turn == 0 ? grid : s.turn;
    if (grid == 0) return;
    const int64_t turns = grid / turn, cut = turn / 4;
    const auto parts = {std::pair(int64_t{0}, (turns + 1) / 3), std::pair((turns + 1) / 3, turns)};
    for (const auto& [first, past] : {std::pair(int64_t{0}, cut), std::pair(cut, turn)}) {
      for (const auto& [from, until] : parts) {
        if (first >= past || from >= until) continue;
        point_[s.axes[0]] = from * turn + first;
        point_[s.axes[1]] = (until - 1) * turn + past;
        poison_thread_locals();
        for (const Stmt& inner : s.body) tiled(inner);
      }
    }
  }

  void once(const Stmt& stmt, const For& s) {
    if (s.axes.size() == 2) return spans(s);
    int64_t begin = 0, end = 0;
    if (s.kind == ForKind::chunk) {
      end = size_of(s.grid);
    } else {
      evaluate(tape_of(stmt, Part::all));
      begin = static_cast<int64_t>(cells_[s.begin]);
      end = static_cast<int64_t>(cells_[s.end]);
    }
    for (const Stmt& inner : s.body)
      if (const Fold* fold = std::get_if<Fold>(&inner))
        folds_.insert_or_assign(&inner, begin_fold(inner, fold->states, fold->order));
    if (s.kind == ForKind::thread) {
      threads(s, begin, end);
    } else {
      for (int64_t i = begin; i < end; i += s.step) {
        point_[s.axes[0]] = i;
        if (s.kind == ForKind::chunk) poison_thread_locals();
        for (const Stmt& inner : s.body) tiled(inner);
      }
    }
    for (const Stmt& inner : s.body)
      if (const Fold* fold = std::get_if<Fold>(&inner); fold != nullptr && fold->emit == Emit::last)
        std::ranges::copy(finish(folds_.at(&inner)), single(fold->value));
  }

  // All threads reach a barrier before any passes it: the statements between barriers run for every
  // thread in turn, each thread keeping its own values.
  void threads(const For& s, int64_t begin, int64_t end) {
    std::vector<std::vector<std::vector<uint64_t>>> own;
    for (auto from = s.body.begin(); from != s.body.end();) {
      const auto barrier = std::find_if(from, s.body.end(), [](const Stmt& stmt) {
        return std::holds_alternative<Barrier>(stmt);
      });
      size_t thread = 0;
      for (int64_t i = begin; i < end; i += s.step, ++thread) {
        point_[s.axes[0]] = i;
        if (own.size() <= thread) own.push_back(values_of_all());
        swap_values(own[thread]);
        for (auto it = from; it != barrier; ++it) tiled(*it);
        swap_values(own[thread]);
      }
      from = barrier == s.body.end() ? barrier : barrier + 1;
    }
  }

  // --- Folds.

  FoldRun begin_fold(const Stmt& stmt, const std::vector<FoldState>& states, Order order) {
    FoldRun run{.stmt = &stmt, .states = &states};
    const bool wide_lanes = std::ranges::any_of(
        states, [](const FoldState& s) { return cermet::size_of(s.dtype) == 8; });
    run.lanes = order == Order::serial ? 1 : wide_lanes ? 32 : 64;
    run.block = order == Order::serial ? 256 : wide_lanes ? 2048 : 4096;
    evaluate(tape_of(stmt, Part::init));
    for (const FoldState& s : states) run.init.push_back(cells_[s.init]);
    refill(run);
    return run;
  }

  static void refill(FoldRun& run) {
    run.lane.clear();
    for (int64_t l = 0; l < run.lanes; ++l)
      run.lane.insert(run.lane.end(), run.init.begin(), run.init.end());
  }

  void step(FoldRun& run) {
    uint64_t* state = &run.lane[(run.element % run.lanes) * run.init.size()];
    states_ = state;
    evaluate(tape_of(*run.stmt, Part::step));
    for (size_t i = 0; i < run.init.size(); ++i) state[i] = cells_[(*run.states)[i].step];
    if (++run.element % run.block == 0) close_block(run);
  }

  // left := merge(left, right)
  void merge(const FoldRun& run, uint64_t* left, const uint64_t* right) {
    states_ = left;
    others_ = right;
    evaluate(tape_of(*run.stmt, Part::merge));
    for (size_t i = 0; i < run.init.size(); ++i) left[i] = cells_[(*run.states)[i].merge];
  }

  void close_block(FoldRun& run) {
    const size_t n = run.init.size();
    for (int64_t half = run.lanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half; ++l) merge(run, &run.lane[l * n], &run.lane[(l + half) * n]);
    const std::vector<uint64_t> state(run.lane.begin(),
                                      run.lane.begin() + static_cast<ptrdiff_t>(n));
    run.blocks.insert(run.blocks.end(), state.begin(), state.end());
    if (run.carry.empty()) {
      run.carry = state;
    } else {
      merge(run, run.carry.data(), state.data());
    }
    refill(run);
  }

  // A scan's value at the element just stepped.
  std::vector<uint64_t> so_far(FoldRun& run) {
    if (run.element % run.block == 0) return run.carry;
    if (run.carry.empty()) return run.lane;
    std::vector<uint64_t> state = run.carry;
    merge(run, state.data(), run.lane.data());
    return state;
  }

  std::vector<uint64_t> finish(FoldRun& run) {
    if (run.element % run.block != 0) close_block(run);
    const size_t n = run.init.size();
    size_t count = run.blocks.size() / n;
    if (count == 0) return run.init;
    for (; count > 1; count = (count + 1) / 2) {
      for (size_t i = 0; i + 1 < count; i += 2) {
        merge(run, &run.blocks[i * n], &run.blocks[(i + 1) * n]);
        std::copy_n(&run.blocks[i * n], n, &run.blocks[i / 2 * n]);
      }
      if (count % 2 != 0) std::copy_n(&run.blocks[(count - 1) * n], n, &run.blocks[count / 2 * n]);
    }
    run.blocks.resize(n);
    return run.blocks;
  }

  const std::vector<AxisId>* axes_ = nullptr;  // of the stage
  bool empty_ = false;                         // the stage has no point
  std::unordered_map<const Stmt*, FoldRun> folds_;
  CheckFailure failure_;
};

}  // namespace

CheckFailure interpret(const Kernel& kernel, std::span<const Argument> arguments,
                       std::span<const int64_t> extents, std::span<const int64_t> strides,
                       Arithmetic arithmetic) {
  const bool math = std::ranges::any_of(
      kernel.exprs, [](const Expr& e) { return e.kind == ExprKind::op && is_math(e.code); });
  if (!math || arithmetic == Arithmetic::wide)
    return Interpreter(kernel, arguments, extents, strides, arithmetic).run();
  // What a target without math of its own computes.
  const Kernel expanded = expand(kernel, TargetFacts{});
  return Interpreter(expanded, arguments, extents, strides, arithmetic).run();
}

}  // namespace cermet::ir
