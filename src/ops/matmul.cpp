// SPDX-License-Identifier: MIT
// Matrix products. The row sees [..., m, k] x [..., k, n] with equal batch axes; vectors become
// matrices, batch axes are broadcast as views, and a batch against one matrix becomes one product
// of more rows, so that its derivative is one product, too.
#include <cmath>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

Shape matmul_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  shape.dim(shape.ndim() - 1) = call.inputs[1].shape().dim(shape.ndim() - 1);
  return shape;
}

array adjoint(const array& a) { return swapaxes(conjugate_if_complex(a), -1, -2); }

Shape batch_of(const array& a) {
  Shape batch;
  for (int axis = 0; axis + 2 < a.ndim(); ++axis) batch.push_back(a.shape().dim(axis));
  return batch;
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
    const Shape batch = broadcast_shapes("matmul", batch_of(a), batch_of(b));
    const array column =
        with_batch(zeros({a.shape().dim(a.ndim() - 2), 1}, a.dtype(), s), batch, s);
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
  const Shape batch = broadcast_shapes("matmul", batch_of(a), batch_of(b));
  return make_node(rows::matmul, pack(with_batch(a, batch, s), with_batch(b, batch, s)), NoParams{},
                   s);
}

// Integers, exactly: in floating point where every partial sum is an integer that it holds, else as the
// sum of products modulo 2 to the width.
array integer_matmul(const array& a, const array& b, Dtype dtype, const S& s) {
  Dtype result = dtype;
  if (dtype == Dtype::boolean) result = Dtype::int32;
  if (is_integer(dtype) && size_of(dtype) < 4)
    result = is_signed(dtype) ? Dtype::int32 : Dtype::uint32;
  const int width = 8 * static_cast<int>(size_of(dtype));
  const int bits = dtype == Dtype::boolean ? 1 : is_signed(dtype) ? width - 1 : width;
  const double largest = std::ldexp(static_cast<double>(a.shape()[a.ndim() - 1]), 2 * bits);
  if (bits <= 16 && largest <= 0x1p53) {
    const Dtype exact = largest <= 0x1p24 ? Dtype::float32 : Dtype::float64;
    const array product = matmul(astype(a, exact, s), astype(b, exact, s), s);
    return astype(exact == Dtype::float64 ? astype(product, Dtype::int64, s) : product, result, s);
  }
  const bool matrices = a.ndim() > 1 && b.ndim() > 1;
  const array x = matrices ? expand_dims(a, {-2}, s) : a;
  array rows = b.ndim() == 1 ? b : contiguous(swapaxes(b, -1, -2, s), s);
  if (matrices) rows = expand_dims(rows, {-3}, s);
  return sum(multiply(astype(x, result, s), astype(rows, result, s), s), AxisList{-1}, false, s);
}

}  // namespace

constinit const OpRow rows::matmul = {
    .id = OpId::Matmul,
    .name = "matmul",
    .accepts = kInexact,
    .dtype = same_dtype,
    .shape = matmul_shape,
    .derivative =
        Bilinear{.lhs = [](auto& c, auto& g) { return cermet::matmul(g, adjoint(c.inputs[1])); },
                 .rhs = [](auto& c, auto& g) { return cermet::matmul(adjoint(c.inputs[0]), g); }},
    .vmap = BatchAxesVmap{},
    .lowering = ContractLowering{},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 4,
    .doc =
        "The matrix product over the last two axes; batch axes broadcast. Vectors are rows on the "
        "left, columns on the right. Halves accumulate in float32; integers multiply exactly, "
        "those "
        "below 32 bits into 32 bits.",
};

array matmul(const array& a, const array& b, const S& s) {
  CERMET_CHECK(a.ndim() > 0 && b.ndim() > 0, value, "matmul",
               "shapes {} and {}; each must have at least one axis", a.shape(), b.shape());
  const Dtype dtype = promote(a.dtype(), b.dtype());
  const int rows_axis = b.ndim() == 1 ? 0 : b.ndim() - 2;
  const Dim &inner = a.shape().dim(a.ndim() - 1), &outer = b.shape().dim(rows_axis);
  CERMET_CHECK(
      same_size(inner, outer), value, "matmul",
      "shapes {} and {}: the last axis of the first has size {}, axis {} of the second {}; "
      "they must be equal",
      a.shape(), b.shape(), inner.value, rows_axis, outer.value);
  if (!is_inexact(dtype)) return integer_matmul(a, b, dtype, s);
  array x = astype(a, dtype, s), y = astype(b, dtype, s);
  if (a.ndim() == 1) x = expand_dims(x, {0}, s);
  if (b.ndim() == 1) y = expand_dims(y, {1}, s);
  array product = multiply_matrices(x, y, s);
  if (b.ndim() == 1) product = squeeze(product, AxisList{-1}, s);
  if (a.ndim() == 1) product = squeeze(product, AxisList{b.ndim() == 1 ? -1 : -2}, s);
  return product;
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
