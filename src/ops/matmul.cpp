// SPDX-License-Identifier: MIT
// Matrix products. The row sees [..., m, k] x [..., k, n] with equal batch axes; vectors become
// matrices, batch axes are broadcast as views, and a batch against one matrix becomes one product
// of more rows, so that its derivative is one product, too.
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

// Of the products' sums: integers below 32 bits have 32.
Dtype product_dtype(Dtype a, Dtype b) {
  const Dtype dtype = promote(a, b);
  if (dtype == Dtype::boolean) return Dtype::int32;
  if (!is_integer(dtype) || size_of(dtype) >= 4) return dtype;
  return is_signed(dtype) ? Dtype::int32 : Dtype::uint32;
}

Dtype matmul_dtype(const OpCall& call) {
  return product_dtype(call.inputs[0].dtype(), call.inputs[1].dtype());
}

Shape matmul_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  shape.dim(shape.ndim() - 1) = call.inputs[1].shape().dim(shape.ndim() - 1);
  return shape;
}

array adjoint(const array& a) { return swapaxes(conjugate_if_complex(a), -1, -2); }

Shape common_batch(const array& a, const array& b) {
  const Shape x = batch_of(a), y = batch_of(b);
  for (int i = 1; i <= std::min(x.ndim(), y.ndim()); ++i) {
    const Dim &m = x.dim(x.ndim() - i), &n = y.dim(y.ndim() - i);
    CERMET_CHECK(m.value == 1 || n.value == 1 || same_size(m, n), value, "matmul",
                 "shapes {} and {}: the axes before the last two, {} and {}, cannot be broadcast; "
                 "counted from the last, their sizes must be equal or 1",
                 a.shape(), b.shape(), x, y);
  }
  return broadcast_shapes("matmul", x, y);
}

array with_batch(const array& a, const Shape& batch, const S& s) {
  Shape shape = batch;
  shape.push_back(a.shape().dim(a.ndim() - 2));
  shape.push_back(a.shape().dim(a.ndim() - 1));
  return broadcast_to(a, shape, s);
}

// Both have two axes at least.
array multiply_matrices(const array& a, const array& b, const S& s) {
  if (is_zero(b.shape().dim(b.ndim() - 2))) {
    const Shape batch = common_batch(a, b);
    const array column = with_batch(
        zeros({a.shape().dim(a.ndim() - 2), 1}, product_dtype(a.dtype(), b.dtype()), s), batch, s);
    Shape shape = column.shape();
    shape.dim(shape.ndim() - 1) = b.shape().dim(b.ndim() - 1);
    return broadcast_to(column, shape, s);
  }
  if (a.ndim() > 2 && b.ndim() == 2) {
    Shape shape = a.shape();
    shape.dim(a.ndim() - 1) = b.shape().dim(1);
    const array rows_of_a = flatten(a, 0, -2, s);
    const array product = make_node(rows::matmul, pack(rows_of_a, b), NoParams{}, s);
    return make_node(rows::reshape, pack(product), ShapeParams{std::move(shape)}, s);
  }
  if (a.ndim() == 2 && b.ndim() == 2) return make_node(rows::matmul, pack(a, b), NoParams{}, s);
  const Shape batch = common_batch(a, b);
  return make_node(rows::matmul, pack(with_batch(a, batch, s), with_batch(b, batch, s)), NoParams{},
                   s);
}

// Its last axis is a strided one of what lies in memory.
bool is_turned(const Node& node) {
  const int last = node.shape.ndim() - 1;
  if (node.is_ready()) return node.layout.strides[last] != 1;
  if (node.row == &rows::transpose) {
    const Axes& axes = std::get<AxesParams>(node.params).axes;
    return axes[last] != last || is_turned(*node.inputs[0]);
  }
  return node.row == &rows::broadcast_to && node.inputs[0]->shape.ndim() > 0 &&
         is_turned(*node.inputs[0]);
}

// So many terms of elements pay. Rows of up to four results, of those that do not fill a vector, and columns of a
// turned b are gathered, which costs 2 to 4 times what products of more of them do.
int64_t most_terms(const Dim& m, const Dim& n, bool is_batch, bool turned, Dtype dtype) {
  constexpr int64_t kFew = 4, kSome = 8, kWhole = 16;
  constexpr int64_t kGathered = 5, kGatheredHalves = 3, kTurned = 2;
  const bool are_small = is_batch && m <= kSome && n <= kSome, are_few = m <= kFew || n <= kFew;
  if (turned) return n > kSome ? 0 : are_small && are_few ? kFew : kTurned;
  if (are_small) return n <= kFew ? kSome : m <= kFew ? kGathered : kFew;
  if (n <= kFew) return is_half(dtype) ? kGatheredHalves : kGathered;
  if (n < kWhole) return kTurned;
  return m <= kSome ? kSome : kFew;
}

// Matrices of a few terms are bound by what they store. Measured on Zen 4 and 5 beside the panel schemes, which
// read one operand in place: 1 to 15 times as fast, 100 000 x [3, 3] x [3, 3] 35 times.
std::optional<array> sum_of_few_terms(const OpCall& call) {
  constexpr int64_t kSome = 8;
  const array &a = call.inputs[0], &b = call.inputs[1];
  const int rank = a.ndim();
  const Dim &m = a.shape()[rank - 2], &k = a.shape()[rank - 1], &n = b.shape()[rank - 1];
  const bool are_small = rank > 2 && m <= kSome && n <= kSome;
  const Dtype dtype = matmul_dtype(call), wide = wide_dtype(dtype);
  const bool pays = ((m > 1 && n > 1) || are_small) &&
                    k <= most_terms(m, n, rank > 2, is_turned(*b.node()), dtype);
  if (k == 0 || !pays || matmul_shape(call).count() < kLeastResults) return std::nullopt;
  const auto part = [wide](const array& x, int axis, int64_t at) {
    return astype(slice_at(x, axis, at), wide);
  };
  std::optional<array> sum;
  for (int64_t t = 0; t < k; ++t) {
    const array term = multiply(part(a, rank - 1, t), part(b, rank - 2, t));
    sum = sum ? add(*sum, term) : term;
  }
  return as_result(*sum, dtype);
}

}  // namespace

constinit const OpRow rows::matmul = {
    .id = OpId::Matmul,
    .name = "matmul",
    .accepts = kReals | kInexact,
    .dtype = matmul_dtype,
    .shape = matmul_shape,
    .derivative =
        Bilinear{.lhs = [](auto& c, auto& g) { return cermet::matmul(g, adjoint(c.inputs[1])); },
                 .rhs = [](auto& c, auto& g) { return cermet::matmul(adjoint(c.inputs[0]), g); }},
    .vmap = BatchAxesVmap{},
    .lowering = ContractLowering{sum_of_few_terms},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 4,
    .doc =
        "The matrix product over the last two axes; batch axes broadcast. Vectors are rows on the "
        "left, columns on the right. Halves accumulate in float32; integers multiply exactly, "
        "those below 32 bits into 32 bits.",
};

Shape rules::batch_of(const array& a) {
  Shape batch;
  for (int axis = 0; axis + 2 < a.ndim(); ++axis) batch.push_back(a.shape().dim(axis));
  return batch;
}

std::pair<array, array> rules::product_operands(const char* op, const array& a, const array& b,
                                                const S& s) {
  CERMET_CHECK(a.ndim() > 0 && b.ndim() > 0, value, op,
               "shapes {} and {}; each must have at least one axis", a.shape(), b.shape());
  const Dtype dtype = promote(a.dtype(), b.dtype());
  const int rows_axis = b.ndim() == 1 ? 0 : b.ndim() - 2;
  const Dim &inner = a.shape().dim(a.ndim() - 1), &outer = b.shape().dim(rows_axis);
  CERMET_CHECK(
      same_size(inner, outer), value, op,
      "shapes {} and {}: the last axis of the first has size {}, axis {} of the second {}; "
      "they must be equal",
      a.shape(), b.shape(), inner.value, rows_axis, outer.value);
  // Narrow integers enter as they are: the processor may multiply such.
  const bool is_narrow = size_of(product_dtype(a.dtype(), b.dtype())) > size_of(dtype);
  array x = is_narrow ? a : astype(a, dtype, s), y = is_narrow ? b : astype(b, dtype, s);
  if (a.ndim() == 1) x = expand_dims(x, {0}, s);
  if (b.ndim() == 1) y = expand_dims(y, {1}, s);
  return {std::move(x), std::move(y)};
}

array rules::without_vector_axes(const array& a, const array& b, array product, const S& s) {
  if (b.ndim() == 1) product = squeeze(product, AxisList{-1}, s);
  if (a.ndim() == 1) product = squeeze(product, AxisList{b.ndim() == 1 ? -1 : -2}, s);
  return product;
}

array matmul(const array& a, const array& b, const S& s) {
  const auto [x, y] = product_operands("matmul", a, b, s);
  return without_vector_axes(a, b, multiply_matrices(x, y, s), s);
}

array addmm(const array& c, const array& a, const array& b, double alpha, double beta, const S& s) {
  auto scaled = [&s](const array& x, double factor) {
    return factor == 1 ? x : multiply(x, weak_scalar("addmm", number(factor), x.dtype(), s), s);
  };
  const array product = scaled(matmul(a, b, s), alpha);
  const bool fits = broadcast_shapes("addmm", c.shape(), product.shape()) == product.shape();
  CERMET_CHECK(fits, value, "addmm",
               "c of shape {} with a product of shape {}; c must broadcast to it", c.shape(),
               product.shape());
  return astype(add(product, scaled(c, beta), s), promote(c.dtype(), product.dtype()), s);
}

}  // namespace cermet
