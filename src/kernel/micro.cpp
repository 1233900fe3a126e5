// SPDX-License-Identifier: MIT
#include "kernel/micro.h"

#include <algorithm>
#include <span>
#include <tuple>

namespace cermet::ir {

namespace {

struct Counts {
  size_t constants, buffers, operands;
};

Counts counts_of(MicroKind kind) {
  switch (kind) {
    case MicroKind::gemm: return {6, 3, 9};
    case MicroKind::transpose: return {4, 2, 4};
    case MicroKind::turn: return {0, 2, 7};
    case MicroKind::rows:
    case MicroKind::pack: return {2, 2, 5};
    case MicroKind::panel_n:
    case MicroKind::panel_k:
    case MicroKind::panel_strips: return {4, 3, 8};
    case MicroKind::tile_gemm: return {6, 3, 10};
  }
  return {};
}

}  // namespace

Micro GemmMicro::micro() const {
  return {MicroKind::gemm,
          {tile_rows, tile_columns, a_column, b_panel, c_row, a_zero},
          {c, a, b},
          {rows, columns, depth, c_at, a_at, b_at, a_row, b_row, add}};
}

GemmMicro GemmMicro::of(const Micro& m) {
  const auto& [k, b, e] = std::tie(m.constants, m.buffers, m.operands);
  return {k[0], k[1], k[2], k[3], k[4], b[0], b[1], b[2], e[0],
          e[1], e[2], e[3], e[4], e[5], e[6], e[7], e[8], k[5]};
}

Micro TransposeMicro::micro() const {
  return {MicroKind::transpose,
          {tile, to_row, from_row, group},
          {to, from},
          {rows, columns, to_at, from_at}};
}

TransposeMicro TransposeMicro::of(const Micro& m) {
  const auto& [k, b, e] = std::tie(m.constants, m.buffers, m.operands);
  return {k[0], k[1], k[2], k[3], b[0], b[1], e[0], e[1], e[2], e[3]};
}

Micro TurnMicro::micro() const {
  return {
      MicroKind::turn, {}, {to, from}, {rows, columns, to_at, from_at, to_row, from_row, next_at}};
}

TurnMicro TurnMicro::of(const Micro& m) {
  const auto& [b, e] = std::tie(m.buffers, m.operands);
  return {b[0], b[1], e[0], e[1], e[2], e[3], e[4], e[5], e[6]};
}

Micro RowsMicro::micro() const {
  return {MicroKind::rows, {pitch, out ? 1 : 0}, {local, array}, {rows, columns, at, row, left}};
}

RowsMicro RowsMicro::of(const Micro& m) {
  const auto& [k, b, e] = std::tie(m.constants, m.buffers, m.operands);
  return {k[1] != 0, k[0], b[0], b[1], e[0], e[1], e[2], e[3], e[4]};
}

Micro PackMicro::micro() const {
  return {MicroKind::pack,
          {tile_columns, to_panel},
          {to, from},
          {rows, columns, to_at, from_at, from_row}};
}

PackMicro PackMicro::of(const Micro& m) {
  const auto& [k, b, e] = std::tie(m.constants, m.buffers, m.operands);
  return {k[0], k[1], b[0], b[1], e[0], e[1], e[2], e[3], e[4]};
}

Micro PanelMicro::micro() const {
  return {b_lies == Lies::in_strips ? MicroKind::panel_strips
          : b_lies == Lies::along_k ? MicroKind::panel_k
                                    : MicroKind::panel_n,
          {rows, from_memory ? 2 : 1, strip, piece},
          {c, a, b},
          {columns, depth, c_at, a_at, b_at, b_stride, add, before}};
}

PanelMicro PanelMicro::of(const Micro& m) {
  const auto& [k, b, e] = std::tie(m.constants, m.buffers, m.operands);
  return {m.kind == MicroKind::panel_strips ? Lies::in_strips
          : m.kind == MicroKind::panel_k    ? Lies::along_k
                                            : Lies::along_n,
          k[0],
          k[1] > 1,
          k[2],
          k[3],
          b[0],
          b[1],
          b[2],
          e[0],
          e[1],
          e[2],
          e[3],
          e[4],
          e[5],
          e[6],
          e[7]};
}

Micro TileGemmMicro::micro() const {
  return {MicroKind::tile_gemm,
          {parts, a_part, a_step, b_part, b_panel, c_row},
          {c, a, b},
          {rows, columns, depth, c_at, a_at, b_at, b_next, a_row, add, a_next}};
}

TileGemmMicro TileGemmMicro::of(const Micro& micro) {
  const auto& [k, b, e] = std::tie(micro.constants, micro.buffers, micro.operands);
  return {k[0], k[1], k[2], k[3], k[4], k[5], b[0], b[1], b[2], e[0],
          e[1], e[2], e[3], e[4], e[5], e[6], e[7], e[8], e[9]};
}

std::span<const PartPair> products_of(int64_t parts) {
  static constexpr PartPair kOne[] = {{0, 0}};
  static constexpr PartPair kTwo[] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  static constexpr PartPair kThree[] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
  if (parts == 1) return kOne;
  return parts == 2 ? std::span<const PartPair>(kTwo) : kThree;
}

namespace {

// Whether a product of narrow operands is summed in `acc`.
bool takes(Dtype acc, Dtype narrow) {
  return narrow == Dtype::bfloat16 ? acc == Dtype::float32
                                   : acc == Dtype::int32 || acc == Dtype::uint32;
}

// Of what is packed for a product: the groups are whole.
std::string fault_of_groups(const Micro& micro, int64_t group) {
  std::vector<int64_t> distances;
  switch (micro.kind) {
    case MicroKind::gemm: distances = {micro.constants[2], micro.constants[3]}; break;
    case MicroKind::transpose: distances = {micro.constants[1], micro.constants[2]}; break;
    case MicroKind::pack: distances = {micro.constants[1]}; break;
    case MicroKind::tile_gemm: distances = {micro.constants[3], micro.constants[4]}; break;
    case MicroKind::turn:
    case MicroKind::rows:
    case MicroKind::panel_n:
    case MicroKind::panel_k:
    case MicroKind::panel_strips: break;
  }
  const bool whole =
      std::ranges::all_of(distances, [&](int64_t distance) { return distance % group == 0; });
  return whole ? "" : "what is packed lies in whole groups";
}

// Of the last buffer of a panel.
std::string fault_of_panel(const Kernel& kernel, BufferRef b, Dtype dtype) {
  if (!is_floating(dtype)) return "a panel's locals are of a floating dtype";
  if (!b.local && kernel.params[b.id].access != Access::in) return "a panel reads a buffer `in`";
  const Dtype own = b.local ? kernel.locals[b.id].dtype : kernel.params[b.id].dtype;
  if (own != dtype && !(is_half(own) && dtype == Dtype::float32))
    return "a panel's matrix is of its locals' dtype, or of a half dtype beside float32";
  return "";
}

std::string fault_of_turn(const Kernel& kernel, const TurnMicro& m) {
  if (m.from.local || kernel.params[m.from.id].access != Access::in)
    return "what is turned comes from a buffer `in`";
  if (!m.to.local && kernel.params[m.to.id].access != Access::out)
    return "what is turned goes to a local or a buffer `out`";
  const Dtype to = m.to.local ? kernel.locals[m.to.id].dtype : kernel.params[m.to.id].dtype;
  return to != kernel.params[m.from.id].dtype ? "what is turned keeps its dtype" : "";
}

std::string fault_of_rows(const Kernel& kernel, const RowsMicro& m) {
  if (!m.local.local || m.array.local) return "rows go between an array and a local";
  if (m.pitch < 1 || m.pitch % kShortRows != 0) return "columns at a distance of whole vectors";
  const Param& array = kernel.params[m.array.id];
  if (array.access != (m.out ? Access::out : Access::in))
    return "rows come from a buffer `in` and go to one `out`";
  return array.dtype != kernel.locals[m.local.id].dtype ? "rows keep their dtype" : "";
}

}  // namespace

std::string fault_of(const Kernel& kernel, const Micro& micro) {
  const Counts counts = counts_of(micro.kind);
  if (micro.constants.size() != counts.constants || micro.buffers.size() != counts.buffers ||
      micro.operands.size() != counts.operands)
    return "a micro with another number of constants, buffers or operands";
  for (ExprId id : micro.operands)
    if (kernel.exprs[id].dtype != Dtype::int64) return "a micro's operands are int64";
  if (micro.kind == MicroKind::turn) return fault_of_turn(kernel, TurnMicro::of(micro));
  if (micro.kind == MicroKind::rows) return fault_of_rows(kernel, RowsMicro::of(micro));
  const bool gemm = micro.kind == MicroKind::gemm;
  // The zero point of a product stands last.
  if (std::ranges::any_of(std::span(micro.constants).first(counts.constants - (gemm ? 1 : 0)),
                          [](int64_t c) { return c < 1; }))
    return "a micro's constants are sizes and strides, at least 1";
  const bool panel = is_panel(micro.kind);
  const auto dtype_of = [&](BufferRef b) {
    return b.local ? kernel.locals[b.id].dtype : kernel.params[b.id].dtype;
  };
  const Dtype dtype = kernel.locals[micro.buffers[0].id].dtype;
  // Of the operands: the last buffer is one in every template.
  const Dtype own = dtype_of(micro.buffers.back());
  const bool tiles = micro.kind == MicroKind::tile_gemm, product = tiles || gemm;
  const bool narrow = !panel && group_of(own) > 1 && (!product || takes(dtype, own));
  const bool bytes = narrow && product && size_of(own) == 1;
  if (tiles && micro.constants[0] > (bytes ? 1 : kMaxParts))
    return "an operand of more parts than it has";
  const bool pairs = tiles && micro.constants[0] > 1;
  if (tiles && (pairs ? own != Dtype::uint32 || dtype != Dtype::float32
                      : !(narrow && (bytes || own == Dtype::bfloat16))))
    return "tiles multiply bfloat16, or pairs of it in several parts, to float32, bytes to "
           "integers of 4 bytes";
  if (pairs && !micro.buffers[1].local) return "an operand in parts is a local";
  if (gemm) {
    const Dtype of_a = dtype_of(micro.buffers[1]);
    if (bytes && !(micro.buffers[1].local && of_a != own))
      return "a product of bytes is one of a local by one of the other sign";
    if (const int64_t zero = micro.constants.back();
        zero < 0 || zero > (bytes && of_a == Dtype::uint8 ? 255 : 0))
      return "the zero point of uint8 is one of its values, any other is 0";
  }
  for (size_t i = 0; i < micro.buffers.size(); ++i) {
    const BufferRef b = micro.buffers[i];
    if (panel && i == 2) continue;
    if (panel && i == 1 && b.local && dtype_of(b) == Dtype::bfloat16) {
      if (own == Dtype::bfloat16 && dtype == Dtype::float32) continue;
      return "a panel multiplies bfloat16 by bfloat16 to float32";
    }
    const bool reads =
        (i == 1 && micro.kind != MicroKind::transpose && !panel) || (i == 2 && gemm && !narrow);
    if (!b.local && !reads) return "a micro works on locals";
    if (!b.local && kernel.params[b.id].access != Access::in) return "a micro reads a buffer `in`";
    const bool is_packed = (narrow || pairs) && (i > 0 || !product);
    if (dtype_of(b) != (is_packed ? own : dtype) &&
        !(is_packed && bytes && size_of(dtype_of(b)) == 1 && is_integer(dtype_of(b))))
      return "a micro's locals are of one dtype";
  }
  const bool moves = micro.kind == MicroKind::transpose;
  if (size_of(dtype) < 4 && !narrow && !moves)
    return "a micro's locals have elements of 4 or 8 bytes";
  const int64_t group = moves ? micro.constants[3] : narrow ? group_of(own) : 1;
  if (moves && group != 1 && group != group_of(own)) return "a group of so many elements";
  if (const std::string fault = fault_of_groups(micro, group); !fault.empty()) return fault;
  if (tiles && micro.buffers[1].local &&
      TileGemmMicro::of(micro).a_next != TileGemmMicro::of(micro).a_at)
    return "next rows of a parameter alone are fetched";
  if (product && micro.buffers[1].local &&
      kernel.exprs[tiles ? TileGemmMicro::of(micro).a_row : GemmMicro::of(micro).a_row].kind !=
          ExprKind::constant)
    return "the rows of a product's local lie at a constant distance";
  if (gemm && micro.buffers[2].local) {
    const GemmMicro m = GemmMicro::of(micro);
    const Expr& row = kernel.exprs[m.b_row];
    if (row.kind != ExprKind::constant || static_cast<int64_t>(row.bits) != group * m.tile_columns)
      return "the rows of a product's packed operand follow each other";
  }
  return panel ? fault_of_panel(kernel, micro.buffers[2], dtype) : "";
}

}  // namespace cermet::ir
