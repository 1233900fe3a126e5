// SPDX-License-Identifier: MIT
// Every built-in op, once. The enum, the C++ functions of the families unary, binary, compare, logical
// and reduce, their Python functions, the printer's names, export keys, the table tests and the doc
// pages come from this list; each op's row stands in its family's file under ops/.
// X(enumerator, name, family)
#pragma once

#include <cstdint>

// unary: f(a). binary: f(a, b) with broadcasting and promotion. reduce: f(a, axes, keepdims).
// node: built by a function of its own in ops/.
// clang-format off
#define CERMET_OPS(X)                                                                              \
  /* elementwise: arithmetic */                                                                    \
  X(Abs, abs, unary) X(Negative, negative, unary) X(Sign, sign, unary) X(Square, square, unary)    \
  X(Sqrt, sqrt, unary) X(Rsqrt, rsqrt, unary) X(Reciprocal, reciprocal, unary)                     \
  X(Floor, floor, unary) X(Ceil, ceil, unary) X(Trunc, trunc, unary) X(Rint, rint, unary)          \
  X(Exp, exp, unary) X(ExpNonpositive, exp_nonpositive, unary)                                     \
  X(ExpNonpositiveBfloat16, exp_nonpositive_bfloat16, unary) X(Exp2, exp2, unary)                  \
  X(Expm1, expm1, unary) X(Log, log, unary) X(Log2, log2, unary) X(Log10, log10, unary)            \
  X(Log1p, log1p, unary) X(Sin, sin, unary) X(Cos, cos, unary) X(Tan, tan, unary)                  \
  X(ArcSin, arcsin, unary) X(ArcCos, arccos, unary)                                                \
  X(ArcTan, arctan, unary) X(Sinh, sinh, unary) X(Cosh, cosh, unary) X(Tanh, tanh, unary)          \
  X(ArcSinh, arcsinh, unary) X(ArcCosh, arccosh, unary) X(ArcTanh, arctanh, unary)                 \
  X(Erf, erf, unary) X(ErfInv, erfinv, unary) X(Sigmoid, sigmoid, unary)                           \
  X(Degrees, degrees, unary) X(Radians, radians, unary)                                            \
  X(LogicalNot, logical_not, unary) X(BitwiseInvert, bitwise_invert, unary)                        \
  X(IsNan, isnan, unary) X(IsInf, isinf, unary) X(IsFinite, isfinite, unary)                       \
  X(IsPosInf, isposinf, unary) X(IsNegInf, isneginf, unary)                                        \
  X(Real, real, unary) X(Imag, imag, unary) X(Conjugate, conjugate, unary)                         \
  X(StopGradient, stop_gradient, unary)                                                            \
  X(Add, add, binary) X(Subtract, subtract, binary) X(Multiply, multiply, binary)                  \
  X(Divide, divide, binary) X(FloorDivide, floor_divide, binary)                                   \
  X(Remainder, remainder, binary) X(Power, power, binary) X(Maximum, maximum, binary)              \
  X(Minimum, minimum, binary) X(LogAddExp, logaddexp, binary) X(ArcTan2, arctan2, binary)          \
  X(ExpBelow, exp_below, binary)                                                                   \
  X(Equal, equal, binary) X(NotEqual, not_equal, binary) X(Less, less, binary)                     \
  X(LessEqual, less_equal, binary) X(Greater, greater, binary)                                     \
  X(GreaterEqual, greater_equal, binary) X(LogicalAnd, logical_and, binary)                        \
  X(LogicalOr, logical_or, binary) X(LogicalXor, logical_xor, binary)                              \
  X(BitwiseAnd, bitwise_and, binary) X(BitwiseOr, bitwise_or, binary)                              \
  X(BitwiseXor, bitwise_xor, binary) X(LeftShift, left_shift, binary)                              \
  X(RightShift, right_shift, binary)                                                               \
  X(Select, select, node) X(Cast, cast, node) X(ComplexOf, complex_of, node)                       \
  X(Depends, depends, node) X(CustomCall, custom_call, node)                                       \
  /* reductions */                                                                                 \
  X(Sum, sum, reduce) X(Prod, prod, reduce) X(Min, min, reduce) X(Max, max, reduce)                \
  X(Any, any, reduce) X(All, all, reduce) X(ArgMin, argmin, node) X(ArgMax, argmax, node)          \
  X(MaxNumber, max_number, node) X(LogSumExp, logsumexp, reduce) X(Softmax, softmax, node)         \
  /* scans */                                                                                      \
  X(CumSum, cumsum, node) X(CumProd, cumprod, node) X(CumMax, cummax, node)                        \
  X(CumMin, cummin, node) X(LogCumSumExp, logcumsumexp, node) X(LinearScan, linear_scan, node)     \
  /* movement */                                                                                   \
  X(Reshape, reshape, node) X(Transpose, transpose, node) X(BroadcastTo, broadcast_to, node)       \
  X(Slice, slice, node) X(SliceUpdate, slice_update, node) X(Pad, pad, node)                       \
  X(Concatenate, concatenate, node) X(Flip, flip, node) X(Contiguous, contiguous, node)            \
  X(Diagonal, diagonal, node) X(DiagonalMatrix, diagonal_matrix, node)                             \
  X(AsStrided, as_strided, node) X(Bitcast, bitcast, node) X(ViewBytes, view_bytes, node)          \
  X(ViewAsReal, view_as_real, node) X(ViewAsComplex, view_as_complex, node)                        \
  /* indexing */                                                                                   \
  X(Gather, gather, node) X(TakeAlongAxis, take_along_axis, node)                                  \
  X(Scatter, scatter, node) X(ScatterAlongAxis, scatter_along_axis, node)                          \
  /* contraction */                                                                                \
  X(Matmul, matmul, node) X(GatherMm, gather_mm, node) X(ScatterMm, scatter_mm, node)              \
  X(Segments, segments, node)                                                                      \
  /* creation */                                                                                   \
  X(Full, full, node) X(Arange, arange, node) X(RandomBits, random_bits, node)                     \
  /* composite rows of fast */                                                                     \
  X(LayerNorm, layer_norm, node) X(RmsNorm, rms_norm, node) X(Rope, rope, node)                    \
  X(Attention, scaled_dot_product_attention, node)                                                 \
  X(AttentionGradient, attention_gradient, node) X(CrossEntropy, cross_entropy, node)
// clang-format on

namespace cermet {

enum class OpId : uint16_t {
#define X(id, name, family) id,
  CERMET_OPS(X)
#undef X
      kCount
};

}  // namespace cermet
