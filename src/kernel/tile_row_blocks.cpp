// SPDX-License-Identifier: MIT
#include "kernel/tile_row_blocks.h"

#include <algorithm>

#include "kernel/tile_forms.h"

namespace cermet::ir {

std::optional<RowBlocks::Rows> RowBlocks::rows_of(BufferRef buffer, const Index& index) const {
  const std::optional<int32_t> stride = row_stride(source_, index, elements_, rows_);
  if (buffer.local || !stride) return std::nullopt;
  return Rows{buffer, index, *stride};
}

bool RowBlocks::is_along_both(ExprId id) const {
  const AxisSet axes = source_.axes(id);
  return (axes & axis_bit(elements_)) != 0 && (axes & axis_bit(rows_)) != 0;
}

bool RowBlocks::add_load(ExprId id) {
  const Expr& e = source_[id];
  if (!is_along_both(id) || std::ranges::find(loaded_, id, &Loaded::load) != loaded_.end())
    return true;
  const std::optional<Rows> rows = rows_of(e.buffer, e.index);
  if (!rows || e.operands[0] != kNone) return false;
  loaded_.push_back({id, *rows});
  return true;
}

void RowBlocks::begin_block(ExprId index, int64_t size) {
  std::tie(first_, past_) = out_.bounds(index, size, out_.to().extent(rows_));
  count_ = out_.let(out_.to().sub(past_, first_));
}

LocalId RowBlocks::columns(Dtype dtype) const {
  const int64_t piece = piece_of(dtype);
  return out_.to().local(dtype, {pitch_ * piece, {{elements_, piece}}}, LocalScope::thread);
}

void RowBlocks::load_columns(ExprId columns) {
  for (Loaded& loaded : loaded_) {
    loaded.rows.local = this->columns(source_[loaded.load].dtype);
    move(loaded.rows, false, columns);
  }
}

void RowBlocks::move(const Rows& rows, bool out, ExprId columns) const {
  Builder& to = out_.to();
  ExprId at = out_.integer(0);
  const ExprId stride = to.stride_ref(rows.stride);
  for (const IndexTerm& term : rows.index) {
    const AxisSet axes = source_.axes(term.expr);
    if ((axes & axis_bit(elements_)) != 0) continue;
    const ExprId number = (axes & axis_bit(rows_)) != 0 ? first_ : out_.expr(term.expr);
    at = to.add(at, term.stride == kUnit ? number : to.mul(number, to.stride_ref(term.stride)));
  }
  const ExprId others = to.sub(to.sub(to.extent(rows_), first_), out_.integer(1));
  const RowsMicro micro{
      .out = out,
      .pitch = pitch_,
      .local = {true, rows.local},
      .array = rows.buffer,
      .rows = count_,
      .columns = columns,
      .at = out_.let(at),
      .row = stride,
      .left = out ? out_.integer(0) : out_.let(to.add(to.mul(others, stride), columns))};
  out_.append(micro.micro());
}

}  // namespace cermet::ir
