// SPDX-License-Identifier: MIT
// Ops that read elements by other strides than their axes', or their bytes as another dtype:
// diagonal and its transpose, as_strided, and what view is made of. Diagonals, strided arrays and bits as
// another dtype are views of any buffer; elements of another size are, where the last axis has no gaps.
#include <algorithm>

#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;
using ir::ExprId;

namespace {

std::optional<Layout> no_view(const NodeView&, const Shape&, const Layout&) { return {}; }

// --- diagonal: [..., rows, columns] -> [..., length] ---

Dim diagonal_length(const DiagonalParams& p) {
  const bool is_above = is_less(0, p.offset);
  const Dim rows = is_above ? p.rows : plus(p.rows, p.offset);
  const Dim columns = is_above ? minus(p.columns, p.offset) : p.columns;
  const Dim shorter = smaller(rows, columns);
  return is_less(shorter, 0) ? Dim(0) : shorter;
}

Shape diagonal_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  shape.erase(shape.ndim() - 1);
  shape.dim(shape.ndim() - 1) = diagonal_length(call.get<DiagonalParams>());
  return shape;
}

Lane pull_diagonal(LowerContext& cx, const NodeView& n, const Coords& at) {
  const Dim& offset = n.get<DiagonalParams>().offset;
  Coords from = at;
  from.push_back(at.back());
  from[from.size() - 2].offset += larger(-offset, 0);
  from.back().offset += larger(offset, 0);
  return cx.input(0, from);
}

std::optional<Layout> view_diagonal(const NodeView& n, const Shape&, const Layout& layout) {
  const Dim& offset = n.get<DiagonalParams>().offset;
  Layout view = layout;
  const Dim across = view.strides.back();
  view.strides.pop_back();
  if (!n.shape.is_empty())
    view.offset += larger(-offset, 0) * view.strides.back() + larger(offset, 0) * across;
  view.strides.back() += across;
  return view;
}

// --- diagonal_matrix: [..., length] -> [..., rows, columns], zero beside the diagonal ---

Shape diagonal_matrix_shape(const OpCall& call) {
  const DiagonalParams& p = call.get<DiagonalParams>();
  Shape shape = call.inputs[0].shape();
  shape.dim(shape.ndim() - 1) = p.rows;
  shape.push_back(p.columns);
  return shape;
}

Lane pull_diagonal_matrix(LowerContext& cx, const NodeView& n, const Coords& at) {
  const Dim& offset = n.get<DiagonalParams>().offset;
  ir::Builder& b = cx.builder();
  const size_t row = at.size() - 2;
  Coords from(at.begin(), at.end() - 1);
  from[row].offset -= larger(-offset, 0);
  Coord across = at.back();
  across.offset -= larger(offset, 0);
  // Equal, spelled so that a row is three stretches of columns.
  const ExprId column = cx.expr(across), here = cx.expr(from[row]);
  const ExprId inside =
      b.logical_and(b.compare(Code::le, here, column),
                    b.compare(Code::lt, column, b.add(here, b.integer(Dtype::int64, 1))));
  // Before the diagonal's start both are negative, past its end both are too large.
  const ExprId below = b.compare(Code::le, b.integer(Dtype::int64, 0), cx.expr(from[row]));
  const ExprId length = cx.size(0, static_cast<int>(row));
  const ExprId mask =
      b.logical_and(b.logical_and(inside, below), b.compare(Code::lt, cx.expr(from[row]), length));
  const Lane value = cx.input_where(mask, 0, from);
  const ExprId zero = b.constant(b.dtype(value.re), 0);
  return select_lane(b, mask, value, {zero, value.im == ir::kNone ? ir::kNone : zero});
}

template <const OpRow& row>
array batch_leading(const OpCall& c, std::span<const bool>, const Dim&) {
  return make_node(row, {c.inputs[0]}, c.params, {});
}

// --- as_strided: one axis -> any shape ---

Lane pull_strided(LowerContext& cx, const NodeView& n, const Coords& at) {
  const StridedParams& p = n.get<StridedParams>();
  return cx.input(0, {combine(cx, at, p.strides.dims(), p.offset)});
}

std::optional<Layout> view_strided(const NodeView& n, const Shape&, const Layout& layout) {
  const StridedParams& p = n.get<StridedParams>();
  Layout view{.strides = {}, .offset = layout.offset};
  for (const Dim& stride : p.strides) view.strides.push_back(stride);
  if (!n.shape.is_empty()) view.offset += p.offset * layout.strides[0];
  for (Dim& stride : view.strides) stride *= layout.strides[0];
  return view;
}

// Whether every element is one of the first `size`; numbers past int64 are not.
bool stays_inside(const StridedParams& p, const Dim& size) {
  Dim first = p.offset, last = p.offset;
  for (int axis = 0; axis < p.shape.ndim(); ++axis) {
    const Dim &steps = p.shape.dim(axis), &stride = p.strides.dim(axis);
    Dim& end = is_less(stride, 0) ? first : last;
    int64_t span = 0, sum = 0;
    if (__builtin_mul_overflow(steps.value - 1, stride.value, &span)) return false;
    if (__builtin_add_overflow(end.value, span, &sum)) return false;
    end = plus(end, times(minus(steps, 1), stride));
  }
  return !is_less(first, 0) && is_less(last, size);
}

// The strides of an array of this shape without gaps.
PerAxis row_major(const Shape& shape) {
  PerAxis strides(std::vector<Dim>(shape.ndim(), 1));
  for (int axis = shape.ndim() - 2; axis >= 0; --axis)
    strides.dim(axis) = times(strides.dim(axis + 1), shape.dim(axis + 1));
  return strides;
}

// The position in the input of each element, int64.
array strided_positions(const StridedParams& p) {
  array position = full({}, number(p.offset), Dtype::int64);
  for (int axis = 0; axis < p.shape.ndim(); ++axis) {
    ShapeList line(p.shape.ndim(), 1);
    line[axis] = p.shape.dim(axis);
    const array steps =
        arange(number(int64_t{0}), number(p.shape.dim(axis)), number(int64_t{1}), Dtype::int64);
    const array stride = full({}, number(p.strides.dim(axis)), Dtype::int64);
    position = position + reshape(steps * stride, line);
  }
  return broadcast_to(position, p.shape);
}

array transpose_strided(const OpCall& c, int, const array& g) {
  const StridedParams& p = c.get<StridedParams>();
  array zero = zeros(c.inputs[0].shape(), g.dtype());
  if (is_zero(p.shape.count())) return zero;
  const array updates = reshape(g, {g.shape().count(), 1});
  return scatter(zero, {flatten(strided_positions(p))}, updates, {0}, ScatterReduce::add);
}

array vmap_strided(const OpCall& c, std::span<const bool>, const Dim& size) {
  StridedParams p = c.get<StridedParams>();
  p.shape.insert(0, size);
  p.strides.insert(0, c.inputs[0].shape().dim(1));
  return make_node(rows::as_strided, {flatten(c.inputs[0])}, std::move(p), {});
}

// --- bits ---

// The unsigned integer of a size in bytes.
Dtype bits_dtype(size_t bytes) {
  constexpr Dtype kBits[] = {Dtype::uint8, Dtype::uint16, Dtype::uint32, Dtype::uint64};
  int i = 0;
  while (size_of(kBits[i]) < bytes) ++i;
  return kBits[i];
}

// The bits of a lane as an element of `dtype` has them in memory, and back.
ExprId to_bits(ir::Builder& b, ExprId lane, Dtype dtype) {
  if (dtype == Dtype::boolean) return b.cast(lane, Dtype::uint8);
  return b.bitcast(b.cast(lane, dtype), bits_dtype(size_of(dtype)));
}
ExprId from_bits(ir::Builder& b, ExprId bits, Dtype dtype) {
  if (dtype == Dtype::boolean) return b.cast(bits, dtype);
  return b.cast(b.bitcast(bits, dtype), compute_dtype(dtype));
}

Dtype cast_result(const OpCall& call) { return call.get<CastParams>().dtype; }

Lane pull_bitcast(LowerContext& cx, const NodeView& n, const Coords& at) {
  ir::Builder& b = cx.builder();
  return {from_bits(b, to_bits(b, cx.input(0, at).re, n.input_dtypes[0]), n.dtype)};
}

// Bytes other than 0 and 1 are no bool, so as bools they are written anew.
std::optional<Layout> view_bits(const NodeView& n, const Shape& in, const Layout& layout) {
  const auto from = static_cast<int64_t>(size_of(n.input_dtypes[0]));
  const auto to = static_cast<int64_t>(size_of(n.dtype));
  if (n.dtype == Dtype::boolean) return {};
  if (n.shape.is_empty()) return Layout::contiguous(n.shape);
  if (from == to) return layout;
  const int last = in.ndim() - 1;
  Layout view = layout;
  view.strides[last] = 1;
  if (in[last] != 1 && layout.strides[last] != 1) return {};
  const auto rescale = [&](Dim& elements) {
    const Dim bytes = elements * from;
    elements = quotient(bytes, to);
    return remainder(bytes, to) == 0;
  };
  for (int axis = 0; axis < last; ++axis)
    if (!rescale(view.strides[axis]) && in[axis] != 1) return {};
  return rescale(view.offset) ? std::optional(view) : std::nullopt;
}

Shape view_bytes_shape(const OpCall& call) {
  const auto from = static_cast<int64_t>(size_of(call.inputs[0].dtype()));
  const auto to = static_cast<int64_t>(size_of(cast_result(call)));
  Shape shape = call.inputs[0].shape();
  Dim& last = shape.dim(shape.ndim() - 1);
  last = quotient(times(last, from), to);
  return shape;
}

// Little-endian, as the targets are: the first element of a larger one is its lowest bits.
Lane pull_view_bytes(LowerContext& cx, const NodeView& n, const Coords& at) {
  ir::Builder& b = cx.builder();
  const Dtype from = n.input_dtypes[0];
  const size_t in = size_of(from), out = size_of(n.dtype);
  const Dtype wide = bits_dtype(std::max(in, out));
  const auto integer = [&](size_t v) { return b.integer(Dtype::int64, static_cast<int64_t>(v)); };
  Coords place = at;
  if (in > out) {
    const ExprId i = cx.expr(at.back());
    place.back() = {.terms = {}, .offset = 0, .expr = b.div(i, integer(in / out))};
    const ExprId shift = b.cast(b.mul(b.rem(i, integer(in / out)), integer(8 * out)), wide);
    const ExprId bits = b.op(Code::shr, wide, {to_bits(b, cx.input(0, place).re, from), shift});
    return {from_bits(b, b.cast(bits, bits_dtype(out)), n.dtype)};
  }
  ExprId bits = ir::kNone;
  for (size_t part = 0; part < out / in; ++part) {
    const Dim factor = static_cast<int64_t>(out / in);
    place.back() = combine(cx, {&at.back(), 1}, {&factor, 1}, static_cast<int64_t>(part));
    ExprId piece = b.cast(to_bits(b, cx.input(0, place).re, from), wide);
    if (part > 0)
      piece = b.op(Code::shl, wide, {piece, b.integer(wide, static_cast<int64_t>(8 * in * part))});
    bits = bits == ir::kNone ? piece : b.logical_or(bits, piece);
  }
  return {from_bits(b, bits, n.dtype)};
}

// --- complex numbers and the pairs of real ones that they are ---

Shape view_as_real_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  Dim& last = shape.dim(shape.ndim() - 1);
  last = times(last, 2);
  return shape;
}

Shape view_as_complex_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  Dim& last = shape.dim(shape.ndim() - 1);
  last = quotient(last, 2);
  return shape;
}

Lane pull_view_as_real(LowerContext& cx, const NodeView&, const Coords& at) {
  ir::Builder& b = cx.builder();
  const ExprId i = cx.expr(at.back()), two = b.integer(Dtype::int64, 2);
  Coords place = at;
  place.back() = {.terms = {}, .offset = 0, .expr = b.div(i, two)};
  const Lane z = cx.input(0, place);
  const ExprId is_real = b.compare(Code::eq, b.rem(i, two), b.integer(Dtype::int64, 0));
  return {b.select(is_real, z.re, z.im)};
}

Lane pull_view_as_complex(LowerContext& cx, const NodeView&, const Coords& at) {
  const Dim two = 2;
  Coords re = at, im = at;
  re.back() = combine(cx, {&at.back(), 1}, {&two, 1});
  im.back() = combine(cx, {&at.back(), 1}, {&two, 1}, 1);
  return {cx.input(0, re).re, cx.input(0, im).re};
}

array real_pairs(const array& a, const S& s) {
  return make_node(rows::view_as_real, pack(a), NoParams{}, s);
}
array complex_of_pairs(const array& a, const S& s) {
  return make_node(rows::view_as_complex, pack(a), NoParams{}, s);
}

array view_real(const array& a, Dtype dtype, const S& s) {
  if (a.dtype() == dtype) return a;
  if (size_of(a.dtype()) == size_of(dtype))
    return make_node(rows::bitcast, pack(a), CastParams{.dtype = dtype}, s);
  return make_node(rows::view_bytes, pack(a), CastParams{.dtype = dtype}, s);
}

}  // namespace

constinit const OpRow rows::diagonal = {
    .id = OpId::Diagonal,
    .name = "diagonal",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = diagonal_shape,
    .derivative = Linear{[](auto& c, int, auto& g) {
      return make_node(rows::diagonal_matrix, {g}, c.params, {});
    }},
    .vmap = AxisMapVmap{batch_leading<rows::diagonal>},
    .lowering = MoveLowering{pull_diagonal, view_diagonal},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The diagonal of the last two axes, offset to the right.",
};

constinit const OpRow rows::diagonal_matrix = {
    .id = OpId::DiagonalMatrix,
    .name = "diagonal_matrix",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = diagonal_matrix_shape,
    .derivative =
        Linear{[](auto& c, int, auto& g) { return make_node(rows::diagonal, {g}, c.params, {}); }},
    .vmap = AxisMapVmap{batch_leading<rows::diagonal_matrix>},
    .lowering = MoveLowering{pull_diagonal_matrix, no_view},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "Matrices that are 0 but for the given diagonals.",
};

constinit const OpRow rows::as_strided = {
    .id = OpId::AsStrided,
    .name = "as_strided",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = [](auto& c) { return c.template get<StridedParams>().shape; },
    .derivative = Linear{transpose_strided},
    .vmap = AxisMapVmap{vmap_strided},
    .lowering = MoveLowering{pull_strided, view_strided},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc =
        "Element [i, j, ...] is element offset + i * strides[0] + j * strides[1] + ... of the "
        "array in row-major order.",
};

constinit const OpRow rows::bitcast = {
    .id = OpId::Bitcast,
    .name = "bitcast",
    .accepts = kReals,
    .dtype = cast_result,
    .shape = same_shape,
    .derivative = Zero{},
    .vmap = BroadcastVmap{},
    .lowering = MoveLowering{pull_bitcast, view_bits},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The bits of each element as another dtype of the same size.",
};

constinit const OpRow rows::view_bytes = {
    .id = OpId::ViewBytes,
    .name = "view_bytes",
    .accepts = kReals,
    .dtype = cast_result,
    .shape = view_bytes_shape,
    .derivative = Zero{},
    .vmap = BroadcastVmap{},
    .lowering = MoveLowering{pull_view_bytes, view_bits, false, true},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The bytes along the last axis as elements of another size.",
};

constinit const OpRow rows::view_as_real = {
    .id = OpId::ViewAsReal,
    .name = "view_as_real",
    .accepts = kComplex,
    .dtype = real_dtype,
    .shape = view_as_real_shape,
    .derivative = Linear{[](auto&, int, auto& g) { return complex_of_pairs(g, {}); }},
    .vmap = BroadcastVmap{},
    .lowering = MoveLowering{pull_view_as_real, view_bits, false, true},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The real and imaginary parts in turn along the last axis.",
};

constinit const OpRow rows::view_as_complex = {
    .id = OpId::ViewAsComplex,
    .name = "view_as_complex",
    .accepts = dtype_set(Dtype::float32, Dtype::float64),
    .dtype = complex_dtype,
    .shape = view_as_complex_shape,
    .derivative = Linear{[](auto&, int, auto& g) { return real_pairs(g, {}); }},
    .vmap = BroadcastVmap{},
    .lowering = MoveLowering{pull_view_as_complex, view_bits},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The complex numbers of the pairs of real and imaginary parts along the last axis.",
};

array diagonal(const array& a, int64_t offset, int64_t axis1, int64_t axis2, const S& s) {
  CERMET_CHECK(a.ndim() >= 2, value, "diagonal", "shape {} has {} axes; it takes at least 2",
               a.shape(), a.ndim());
  const int row = normalize_axis("diagonal", axis1, a.ndim());
  const int column = normalize_axis("diagonal", axis2, a.ndim());
  CERMET_CHECK(row != column, value, "diagonal",
               "axis1 and axis2 are both {}; give two different axes", row);
  AxisList order;
  for (int axis = 0; axis < a.ndim(); ++axis)
    if (axis != row && axis != column) order.push_back(axis);
  order.push_back(row);
  order.push_back(column);
  const array last = transpose(a, order, s);
  const Dim &rows = last.shape().dim(a.ndim() - 2), &columns = last.shape().dim(a.ndim() - 1);
  // Past the corners every diagonal is empty.
  const DiagonalParams p{clamped(offset, minus(0, rows), columns), rows, columns};
  return make_node(rows::diagonal, pack(last), p, s);
}

array diag(const array& a, int64_t k, const S& s) {
  CERMET_CHECK(a.ndim() == 1 || a.ndim() == 2, value, "diag",
               "shape {} has {} axes; it takes 1 (a diagonal) or 2 (a matrix)", a.shape(),
               a.ndim());
  if (a.ndim() == 2) return diagonal(a, k, 0, 1, s);
  constexpr int64_t kFar = int64_t{1} << 62;
  CERMET_CHECK(-kFar < k && k < kFar, overflow, "diag",
               "diagonal {} of a matrix has no int64 size; use a smaller k", k);
  const Dim size = plus(a.shape().dim(0), std::abs(k));
  return make_node(rows::diagonal_matrix, pack(a), DiagonalParams{k, size, size}, s);
}

array trace(const array& a, int64_t offset, int64_t axis1, int64_t axis2,
            std::optional<Dtype> dtype, const S& s) {
  CERMET_CHECK(a.ndim() >= 2, value, "trace", "shape {} has {} axes; it takes at least 2",
               a.shape(), a.ndim());
  const array line = diagonal(a, offset, axis1, axis2, s);
  return sum(dtype ? astype(line, *dtype, s) : line, AxisList{-1}, false, s);
}

array as_strided(const array& a, const std::optional<Shape>& shape,
                 const std::optional<PerAxis>& strides, const Dim& offset, const S& s) {
  StridedParams p{shape.value_or(a.shape()), {}, offset};
  p.strides = strides ? *strides : row_major(p.shape);
  CERMET_CHECK(p.strides.ndim() == p.shape.ndim(), value, "as_strided",
               "{} strides for shape {}; give one for each axis", p.strides.ndim(), p.shape);
  check_size("as_strided", p.shape, a.dtype());
  const bool is_empty = is_zero(p.shape.count());
  // No step is taken along an axis of one element, or of nothing.
  for (int axis = 0; axis < p.shape.ndim(); ++axis)
    if (is_empty || same_size(p.shape.dim(axis), 1)) p.strides.dim(axis) = 0;
  if (is_empty) p.offset = 0;
  const Dim elements = a.shape().count();
  CERMET_CHECK(is_empty || stays_inside(p, elements), value, "as_strided",
               "shape {}, strides {} and offset {} reach elements outside of an array of {}; "
               "they must stay inside",
               p.shape, p.strides, p.offset.value, elements.value);
  return make_node(rows::as_strided, {flatten(a, 0, -1, s)}, std::move(p), s);
}

array view(const array& a, Dtype dtype, const S& s) {
  const auto from = static_cast<int64_t>(size_of(a.dtype()));
  const auto to = static_cast<int64_t>(size_of(dtype));
  if (a.dtype() == dtype) return a;
  CERMET_CHECK(
      a.ndim() > 0 || from == to, value, "view",
      "a 0-d array of {} as {}: their sizes are {} and {} bytes; without an axis they must "
      "be equal",
      a.dtype(), dtype, from, to);
  const Dim bytes = a.ndim() == 0 ? Dim(from) : times(a.shape().dim(a.ndim() - 1), from);
  CERMET_CHECK(a.ndim() == 0 || same_size(remainder(bytes, to), 0), value, "view",
               "the last axis of shape {} has {} bytes, which {} of {} bytes does not divide; it "
               "must",
               a.shape(), bytes.value, dtype, to);
  if (a.ndim() == 0 && (is_complex(a.dtype()) || is_complex(dtype)))
    return squeeze(view(reshape(a, {1}, s), dtype, s), AxisList{0}, s);
  array x = is_complex(a.dtype()) ? real_pairs(a, s) : a;
  x = view_real(x, real_of(dtype), s);
  return is_complex(dtype) ? complex_of_pairs(x, s) : x;
}

}  // namespace cermet
