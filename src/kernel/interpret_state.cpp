// SPDX-License-Identifier: MIT
#include "kernel/interpret_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernel/text.h"
#include "kernel/walk.h"

namespace cermet::ir {

void ContractSum::add(Dtype a_dtype, uint64_t a, Dtype b_dtype, uint64_t b) {
  if (!is_floating(acc_)) {
    const uint64_t x = a_dtype == acc_ ? a : apply(Code::cast, acc_, a_dtype, &a);
    const uint64_t y = b_dtype == acc_ ? b : apply(Code::cast, acc_, b_dtype, &b);
    integer_ += x * y;
    return;
  }
  const auto rounded = [&](Dtype dtype, uint64_t bits) -> long double {
    return to_double(acc_, from_double(acc_, to_double(dtype, bits)));
  };
  floating_ += rounded(a_dtype, a) * rounded(b_dtype, b);
}

uint64_t ContractSum::result() const {
  if (is_floating(acc_)) {
    return acc_ == Dtype::float32 ? from_double(acc_, static_cast<float>(floating_))
                                  : from_double(acc_, static_cast<double>(floating_));
  }
  const uint64_t wide = integer_;
  return apply(Code::cast, acc_, Dtype::uint64, &wide);
}

Evaluator::Evaluator(const Kernel& kernel, std::span<const Argument> arguments,
                     std::span<const int64_t> extents, std::span<const int64_t> strides,
                     Arithmetic arithmetic)
    : kernel_(kernel),
      extents_(kernel.axes.size()),
      point_(kernel.axes.size()),
      cells_(kernel.exprs.size()),
      arguments_(arguments),
      strides_(strides),
      wide_(arithmetic == Arithmetic::wide),
      values_(kernel.values.size()),
      locals_(kernel.locals.size()),
      stored_(kernel.locals.size()),
      second_(kernel.exprs.size()),
      seen_(kernel.exprs.size()) {
  CERMET_INTERNAL_CHECK(arguments.size() == kernel.params.size(), "{} arguments for {} parameters",
                        arguments.size(), kernel.params.size());
  CERMET_INTERNAL_CHECK(static_cast<int32_t>(strides.size()) == kernel.stride_count,
                        "{} strides for {}", strides.size(), kernel.stride_count);
  size_t next = 0;
  for (size_t a = 0; a < kernel.axes.size(); ++a) {
    if (!kernel.axes[a].has_extent) continue;
    CERMET_INTERNAL_CHECK(next < extents.size(), "{} extents for more axes", extents.size());
    extents_[a] = extents[next++];
  }
  CERMET_INTERNAL_CHECK(next == extents.size(), "{} extents for {} axes", extents.size(), next);
  for (size_t v = 0; v < values_.size(); ++v) {
    values_[v].states = kernel.values[v].dtypes.size();
    values_[v].cells.resize(values_[v].states);
  }
  constants();
}

// Expressions that are the same at every point.
void Evaluator::constants() {
  for (size_t id = 0; id < cells_.size(); ++id) {
    const Expr& e = kernel_.exprs[id];
    const uint64_t bits = e.kind == ExprKind::constant ? e.bits
                          : e.kind == ExprKind::scalar ? arguments_[e.id].bits
                          : e.kind == ExprKind::extent ? static_cast<uint64_t>(extents_[e.id])
                          : e.kind == ExprKind::stride ? static_cast<uint64_t>(strides_[e.id])
                                                       : 0;
    cells_[id] = wide_ && is_floating(e.dtype)
                     ? from_double(Dtype::float64, to_double(e.dtype, bits))
                     : bits;
  }
}

Dtype Evaluator::wide(Dtype dtype) const {
  return wide_ && is_floating(dtype) ? Dtype::float64 : dtype;
}

int64_t Evaluator::size_of(const Size& size) const {
  int64_t total = size.constant;
  for (const SizeTerm& term : size.terms)
    total *= (extents_[term.axis] + term.tile - 1) / term.tile;
  return total;
}

const Tape& Evaluator::tape_of(const Stmt& stmt, Part part) {
  auto& [made, tape] = tapes_[&stmt][static_cast<size_t>(part)];
  if (made) return tape;
  made = true;
  const auto states = [&](const std::vector<FoldState>& list) {
    for (const FoldState& s : list)
      push_tape(part == Part::init ? s.init : part == Part::step ? s.step : s.merge, tape);
  };
  if (const Fold* fold = std::get_if<Fold>(&stmt)) {
    states(fold->states);
  } else if (const Merge* merge = std::get_if<Merge>(&stmt)) {
    if (part != Part::all) states(merge->states);
    else
      for (ExprId id : {merge->at, merge->count, merge->stride}) push_tape(id, tape);
  } else {
    for_each_expr(stmt, [&](ExprId id) { push_tape(id, tape); });
  }
  std::ranges::sort(tape);
  for (ExprId id : tape) seen_[id] = false;
  std::erase_if(tape, [&](ExprId id) {
    const ExprKind kind = kernel_[id].kind;
    return kind == ExprKind::constant || kind == ExprKind::scalar || kind == ExprKind::extent ||
           kind == ExprKind::stride;
  });
  return tape;
}

void Evaluator::push_tape(ExprId root, Tape& tape) {
  std::vector<ExprId> stack = {root};
  while (!stack.empty()) {
    const ExprId id = stack.back();
    stack.pop_back();
    if (seen_[id]) continue;
    seen_[id] = true;
    tape.push_back(id);
    for_each_operand(kernel_[id], [&](ExprId operand) { stack.push_back(operand); });
  }
}

void Evaluator::evaluate(const Tape& tape) {
  for (ExprId id : tape) cells_[id] = evaluate(id, kernel_.exprs[id]);
}

uint64_t Evaluator::evaluate(ExprId id, const Expr& e) {
  switch (e.kind) {
    case ExprKind::constant:
    case ExprKind::scalar:
    case ExprKind::extent:
    case ExprKind::stride: return cells_[id];
    case ExprKind::axis: return static_cast<uint64_t>(point_[e.id]);
    case ExprKind::ref: return *cell_of(e.id);
    case ExprKind::state: return states_[e.id];
    case ExprKind::other: return others_[e.id];
    case ExprKind::get: return get(e);
    case ExprKind::rare: return cells_[e.operands[cells_[e.operands[0]] != 0 ? 2 : 1]];
    case ExprKind::load:
      if (e.operands[0] == kNone || cells_[e.operands[0]] != 0)
        return read(e.buffer, offset(e.index));
      return e.operands[1] == kNone ? 0 : cells_[e.operands[1]];
    case ExprKind::op: break;
  }
  if (e.code != Code::threefry) return operate(e);
  const auto word = [&](int i) { return static_cast<uint32_t>(cells_[e.operands[i]]); };
  const auto [x0, x1] = threefry2x32(word(0), word(1), word(2), word(3));
  second_[id] = x1;
  return x0;
}

uint64_t Evaluator::operate(const Expr& e) {
  uint64_t bits[3] = {};
  for (size_t i = 0; i < e.operands.size(); ++i) bits[i] = cells_[e.operands[i]];
  const Dtype from = kernel_[e.operands[0]].dtype;
  if (e.code == Code::bitcast && wide_) {
    const uint64_t plain =
        is_floating(from) ? from_double(from, to_double(Dtype::float64, bits[0])) : bits[0];
    return is_floating(e.dtype) ? from_double(Dtype::float64, to_double(e.dtype, plain)) : plain;
  }
  return apply(e.code, wide(e.dtype), wide(from), bits);
}

uint64_t Evaluator::get(const Expr& e) {
  const Expr& tuple = kernel_[e.operands[0]];
  if (tuple.kind == ExprKind::ref) return cell_of(tuple.id)[e.id];
  return e.id == 0 ? cells_[e.operands[0]] : second_[e.operands[0]];
}

std::vector<AxisId> Evaluator::used_axes(const Tape& tape) const {
  std::vector<bool> used(point_.size());
  for (ExprId id : tape) {
    const Expr& e = kernel_[id];
    if (e.kind == ExprKind::axis) used[e.id] = true;
    if (e.kind == ExprKind::ref)
      for (AxisId a : values_[e.id].axes) used[a] = true;
  }
  std::vector<AxisId> axes;
  for (size_t a = 0; a < used.size(); ++a)
    if (used[a]) axes.push_back(static_cast<AxisId>(a));
  return axes;
}

uint64_t* Evaluator::allocate(ValueId value, std::vector<AxisId> axes) {
  ValueCells& v = values_[value];
  size_t count = v.states;
  for (AxisId a : axes) count *= static_cast<size_t>(std::max<int64_t>(extents_[a], 0));
  v.axes = std::move(axes);
  v.cells.assign(count, 0);
  return v.cells.data();
}

size_t Evaluator::value_offset(const ValueCells& v) const {
  size_t at = 0;
  for (AxisId a : v.axes)
    at = at * static_cast<size_t>(extents_[a]) + static_cast<size_t>(point_[a]);
  return at * v.states;
}

uint64_t* Evaluator::cell_of(ValueId value) {
  ValueCells& v = values_[value];
  return &v.cells[value_offset(v)];
}

uint64_t* Evaluator::single(ValueId value) { return values_[value].cells.data(); }

std::vector<std::vector<uint64_t>> Evaluator::values_of_all() const {
  std::vector<std::vector<uint64_t>> all;
  all.reserve(values_.size());
  for (const ValueCells& v : values_) all.push_back(v.cells);
  return all;
}

void Evaluator::swap_values(std::vector<std::vector<uint64_t>>& cells) {
  for (size_t v = 0; v < values_.size(); ++v) values_[v].cells.swap(cells[v]);
}

int64_t Evaluator::offset(const Index& index) const {
  uint64_t at = 0;
  for (const IndexTerm& term : index)
    at += cells_[term.expr] *
          (term.stride == kUnit ? 1 : static_cast<uint64_t>(strides_[term.stride]));
  return static_cast<int64_t>(at);
}

char* Evaluator::element(BufferRef buffer, int64_t at) const {
  const Argument& argument = arguments_[buffer.id];
  CERMET_INTERNAL_CHECK(at >= -argument.before && at < argument.elements,
                        "element {} of p{}, which allows {} .. {}", at, buffer.id, -argument.before,
                        argument.elements);
  const auto size = static_cast<int64_t>(cermet::size_of(kernel_.params[buffer.id].dtype));
  return static_cast<char*>(argument.data) + at * size;
}

uint64_t Evaluator::read(BufferRef buffer, int64_t at) const {
  if (buffer.local) {
    const std::vector<uint64_t>& cells = locals_[buffer.id];
    CERMET_INTERNAL_CHECK(at >= 0 && at < static_cast<int64_t>(cells.size()),
                          "element {} of l{}[{}]", at, buffer.id, cells.size());
    return cells[at];
  }
  const Dtype dtype = kernel_.params[buffer.id].dtype;
  uint64_t bits = 0;
  std::memcpy(&bits, element(buffer, at), cermet::size_of(dtype));
  if (dtype == Dtype::boolean) return bits != 0;
  return wide_ && is_floating(dtype) ? from_double(Dtype::float64, to_double(dtype, bits)) : bits;
}

void Evaluator::write(BufferRef buffer, int64_t at, uint64_t cell) {
  if (buffer.local) {
    std::vector<uint64_t>& cells = locals_[buffer.id];
    CERMET_INTERNAL_CHECK(at >= 0 && at < static_cast<int64_t>(cells.size()),
                          "element {} of l{}[{}]", at, buffer.id, cells.size());
    cells[at] = cell;
    stored_[buffer.id] = true;
    return;
  }
  const Dtype dtype = kernel_.params[buffer.id].dtype;
  const uint64_t bits =
      wide_ && is_floating(dtype) ? from_double(dtype, to_double(Dtype::float64, cell)) : cell;
  std::memcpy(element(buffer, at), &bits, cermet::size_of(dtype));
}

// All bits set: NaN in floating dtypes, -1 in indices, so a read of what was never stored shows.
uint64_t Evaluator::undefined(BufferRef local) const {
  const Dtype dtype = kernel_.locals[local.id].dtype;
  const size_t bytes = wide_ && is_floating(dtype) ? 8 : cermet::size_of(dtype);
  return dtype == Dtype::boolean ? 1 : ~uint64_t{0} >> (64 - 8 * bytes);
}

void Evaluator::poison(const Local& local) {
  locals_[local.local].assign(static_cast<size_t>(size_of(local.size)),
                              undefined({.local = true, .id = local.local}));
  stored_[local.local] = false;
}

void Evaluator::poison_thread_locals() {
  for (const Local& l : kernel_.locals)
    if (l.scope == LocalScope::thread && stored_[l.local]) poison(l);
}

void Evaluator::micro(const Micro& s) {
  switch (s.kind) {
    case MicroKind::gemm: return gemm(GemmMicro::of(s));
    case MicroKind::transpose: return transpose(TransposeMicro::of(s));
    case MicroKind::turn: return turn(TurnMicro::of(s));
    case MicroKind::rows: return rows(RowsMicro::of(s));
    case MicroKind::pack: return pack(PackMicro::of(s));
    case MicroKind::panel_n:
    case MicroKind::panel_k:
    case MicroKind::panel_strips: return panel(PanelMicro::of(s));
    case MicroKind::tile_gemm: return tile_gemm(TileGemmMicro::of(s));
  }
}

namespace {

int64_t round_up(int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; }

}  // namespace

void Evaluator::gemm(const GemmMicro& m) {
  const auto number = [&](ExprId id) { return static_cast<int64_t>(cells_[id]); };
  const Dtype acc = wide(kernel_.locals[m.c.id].dtype);
  const int64_t rows = number(m.rows), columns = number(m.columns), depth = number(m.depth);
  const auto dtype_of = [&](BufferRef b) {
    return b.local ? kernel_.locals[b.id].dtype : kernel_.params[b.id].dtype;
  };
  const int64_t g = group_of(dtype_of(m.b));
  const Dtype of_a = wide(dtype_of(m.a)), of_b = wide(dtype_of(m.b));
  for (int64_t i = 0; i < round_up(rows, m.tile_rows); ++i)
    for (int64_t j = 0; j < round_up(columns, m.tile_columns); ++j) {
      ContractSum sum(acc);
      const int64_t row = m.a.local ? i : std::min(i, rows - 1);
      const bool is_there = m.b.local || j < columns;
      for (int64_t k = 0; k < (is_there ? depth : 0); ++k) {
        const uint64_t b = read(m.b, number(m.b_at) + j / m.tile_columns * m.b_panel +
                                         k / g * number(m.b_row) + j % m.tile_columns * g + k % g);
        sum.add(of_a,
                read(m.a, number(m.a_at) + row * number(m.a_row) + k / g * m.a_column + k % g),
                of_b, b);
        if (m.a_zero != 0) sum.add(Dtype::int64, static_cast<uint64_t>(-m.a_zero), of_b, b);
      }
      const int64_t at = number(m.c_at) + i * m.c_row + j;
      const uint64_t terms[2] = {read(m.c, at), sum.result()};
      uint64_t cell = number(m.add) != 0 ? apply(Code::add, acc, acc, terms) : terms[1];
      if (i >= rows || j >= columns) cell = undefined(m.c);
      write(m.c, at, cell);
    }
}

namespace {

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

float from_bfloat16(uint64_t bits) {
  return flushed(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

// `sum` and the products of a tile's depth: x(k), y(k) are bfloat16.
template <typename X, typename Y>
float tile_step(float sum, X&& x, Y&& y) {
  float chains[2] = {0, 0};
  for (int64_t k = 0; k < tile_depth_of(Dtype::bfloat16); ++k) {
    float& chain = chains[k % 2];
    chain = flushed(std::fma(from_bfloat16(x(k)), from_bfloat16(y(k)), chain));
  }
  return flushed(flushed(sum) + flushed(chains[0] + chains[1]));
}

}  // namespace

// The products over the depth, added to `start`; a and b are the places of the first ones.
uint64_t Evaluator::tile_sum(const TileGemmMicro& m, int64_t a, int64_t b, uint64_t start) const {
  const Dtype stored = m.a.local ? kernel_.locals[m.a.id].dtype : kernel_.params[m.a.id].dtype;
  const Dtype of_a = m.parts == 1 ? stored : Dtype::bfloat16;
  const Dtype of_b = m.parts == 1 ? kernel_.locals[m.b.id].dtype : Dtype::bfloat16;
  const int64_t d = tile_depth_of(of_a), g = group_of(of_a);
  // The element at `at`, counted from `from` on: its cell.
  const auto element = [&](BufferRef buffer, int64_t from, int64_t at) {
    if (m.parts == 1) return read(buffer, from + at);
    const uint64_t bits = read(buffer, from + at / 2) >> (16 * (at % 2)) & 0xffff;
    return wide_ ? from_double(Dtype::float64, to_double(Dtype::bfloat16, bits)) : bits;
  };
  const int64_t step = m.parts == 1 ? m.a_step : 2 * m.a_step;
  const auto x = [&](PartPair pair, int64_t k) {
    return element(m.a, a + pair.a * m.a_part, k / d * step + k % d);
  };
  const auto y = [&](PartPair pair, int64_t k) {
    return element(m.b, b + pair.b * m.b_part, k / g * g * kTileBlock + k % g);
  };
  const auto depth = static_cast<int64_t>(cells_[m.depth]);
  const std::span<const PartPair> products = products_of(m.parts);
  if (wide_ || is_integer(of_a)) {
    const Dtype acc = wide(kernel_.locals[m.c.id].dtype);
    ContractSum sum(acc);
    for (int64_t k = 0; k < depth; ++k)
      for (PartPair p : products) sum.add(wide(of_a), x(p, k), wide(of_b), y(p, k));
    const uint64_t terms[2] = {start, sum.result()};
    return apply(Code::add, acc, acc, terms);
  }
  const auto before = std::bit_cast<float>(static_cast<uint32_t>(start));
  float sum = m.parts == 1 ? before : 0;
  for (int64_t first = 0; first < depth; first += d)
    for (PartPair p : products)
      sum = tile_step(
          sum, [&](int64_t k) { return x(p, first + k); },
          [&](int64_t k) { return y(p, first + k); });
  if (m.parts > 1 && static_cast<int64_t>(cells_[m.add]) != 0)
    sum = flushed(flushed(before) + flushed(sum));
  return std::bit_cast<uint32_t>(sum);
}

void Evaluator::tile_gemm(const TileGemmMicro& m) {
  const auto number = [&](ExprId id) { return static_cast<int64_t>(cells_[id]); };
  const int64_t rows = number(m.rows), columns = number(m.columns);
  const int64_t side = m.parts > 1 ? kTileBlock : kTileSide;
  const int64_t g = group_of(kernel_.locals[m.b.id].dtype);
  for (int64_t i = 0; i < round_up(rows, side); ++i)
    for (int64_t j = 0; j < round_up(columns, side); ++j) {
      const int64_t at = number(m.c_at) + i * m.c_row + j;
      const int64_t a = number(m.a_at) + i * number(m.a_row);
      const int64_t b = number(m.b_at) + j / kTileBlock * m.b_panel + j % kTileBlock * g;
      const uint64_t sum = tile_sum(m, a, b, number(m.add) != 0 ? read(m.c, at) : 0);
      write(m.c, at, i < rows && j < columns ? sum : undefined(m.c));
    }
}

void Evaluator::transpose(const TransposeMicro& m) {
  const auto number = [&](ExprId id) { return static_cast<int64_t>(cells_[id]); };
  const int64_t rows = number(m.rows), columns = number(m.columns);
  const int64_t g = m.group;
  for (int64_t i = 0; i < round_up(rows, m.tile); ++i)
    for (int64_t j = 0; j < round_up(columns, m.tile); ++j) {
      const uint64_t cell = read(m.from, number(m.from_at) + i * m.from_row + j);
      write(m.to, number(m.to_at) + j / g * m.to_row + i * g + j % g,
            i < rows && j < round_up(columns, g) ? cell : undefined(m.to));
    }
}

void Evaluator::turn(const TurnMicro& m) {
  const auto number = [&](ExprId id) { return static_cast<int64_t>(cells_[id]); };
  const int64_t rows = number(m.rows), columns = number(m.columns);
  const auto size = static_cast<int64_t>(cermet::size_of(kernel_.params[m.from.id].dtype));
  CERMET_INTERNAL_CHECK(rows * size >= kTurnedRows && columns * size >= kTurnedColumns,
                        "kernel '{}' turns {} x {} elements", kernel_.name, rows, columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      write(m.to, number(m.to_at) + j * number(m.to_row) + i,
            read(m.from, number(m.from_at) + i * number(m.from_row) + j));
}

void Evaluator::rows(const RowsMicro& m) {
  const auto number = [&](ExprId id) { return static_cast<int64_t>(cells_[id]); };
  const int64_t rows = number(m.rows), columns = number(m.columns), at = number(m.at);
  const int64_t piece = piece_of(kernel_.locals[m.local.id].dtype);
  CERMET_INTERNAL_CHECK(rows >= 1 && rows <= m.pitch, "kernel '{}' moves {} rows of {}",
                        kernel_.name, rows, m.pitch);
  for (int64_t j = 0; j < round_up(columns, piece); ++j)
    for (int64_t i = 0; i < (m.out ? rows : round_up(rows, kShortRows)); ++i) {
      const int64_t inside = j * m.pitch + i,
                    outside = at + std::min(i, rows - 1) * number(m.row) + j;
      if (m.out) {
        const uint64_t cell = read(m.local, inside);
        if (j < columns) write(m.array, outside, cell);
      } else {
        write(m.local, inside, j < columns ? read(m.array, outside) : undefined(m.local));
      }
    }
}

void Evaluator::pack(const PackMicro& m) {
  const auto number = [&](ExprId id) { return static_cast<int64_t>(cells_[id]); };
  const int64_t g = group_of(kernel_.locals[m.to.id].dtype), rows = number(m.rows);
  for (int64_t k = 0; k < round_up(rows, g); ++k)
    for (int64_t j = 0; j < number(m.columns); ++j)
      write(m.to,
            number(m.to_at) + j / m.tile_columns * m.to_panel + k / g * g * m.tile_columns +
                j % m.tile_columns * g + k % g,
            k < rows ? read(m.from, number(m.from_at) + k * number(m.from_row) + j) : 0);
}

void Evaluator::panel(const PanelMicro& m) {
  const auto number = [&](ExprId id) { return static_cast<int64_t>(cells_[id]); };
  const Dtype acc = wide(kernel_.locals[m.c.id].dtype);
  const Dtype of_a = wide(kernel_.locals[m.a.id].dtype);
  const Dtype given = wide(m.b.local ? kernel_.locals[m.b.id].dtype : kernel_.params[m.b.id].dtype);
  const int64_t columns = number(m.columns), depth = number(m.depth);
  const int64_t d = panel_depth_of(kernel_.locals[m.a.id].dtype);
  const auto in_b = [&](int64_t k, int64_t j) {
    switch (m.b_lies) {
      case PanelMicro::Lies::along_n: return k * number(m.b_stride) + j;
      case PanelMicro::Lies::along_k: return k + j * number(m.b_stride);
      case PanelMicro::Lies::in_strips: break;
    }
    return j / m.strip * number(m.b_stride) + k * m.strip + j % m.strip;
  };
  const int64_t steps = m.b_lies == PanelMicro::Lies::along_k ? round_up(depth, d) : depth;
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < round_up(columns, kPanelColumns); ++j) {
      const int64_t at = number(m.c_at) + j / kPanelColumns * m.rows * kPanelColumns +
                         i * kPanelColumns + j % kPanelColumns;
      if (j >= columns) {
        write(m.c, at, undefined(m.c));
        continue;
      }
      ContractSum sum(acc);
      for (int64_t k = 0; k < steps; ++k) {
        const uint64_t a = read(m.a, number(m.a_at) + k / d * m.rows * d + i * d + k % d);
        sum.add(of_a, a, given, k < depth ? read(m.b, number(m.b_at) + in_b(k, j)) : 0);
      }
      const uint64_t terms[2] = {number(m.add) != 0 ? read(m.c, at) : 0, sum.result()};
      write(m.c, at, number(m.add) != 0 ? apply(Code::add, acc, acc, terms) : terms[1]);
    }
}

}  // namespace cermet::ir
