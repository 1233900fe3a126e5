// SPDX-License-Identifier: MIT
// The C++ functions of the everyday ops; names, argument order and defaults as in MLX. Each validates,
// promotes and builds nodes; nothing is computed. Errors are raised here wherever shapes and dtypes
// suffice. Binary functions broadcast and promote.
#pragma once

#include <concepts>
#include <optional>
#include <utility>
#include <vector>

#include "graph/custom_call.h"
#include "graph/op.h"

namespace cermet {

using S = StreamOrDevice;
using AxisList = std::vector<int64_t>;
// nullopt: all axes. May be given as one axis, a list in braces, or a vector of any integers.
class OptionalAxes : public std::optional<AxisList> {
 public:
  OptionalAxes() = default;
  OptionalAxes(std::nullopt_t) {}
  OptionalAxes(std::optional<AxisList> axes) : optional(std::move(axes)) {}
  OptionalAxes(AxisList axes) : optional(std::move(axes)) {}
  OptionalAxes(std::initializer_list<int64_t> axes) : optional(AxisList(axes)) {}
  template <std::same_as<std::vector<int>> V>
  OptionalAxes(const V& axes) : optional(AxisList(axes.begin(), axes.end())) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  OptionalAxes(T axis) : optional(AxisList{static_cast<int64_t>(axis)}) {}
};
using ShapeList = std::vector<Dim>;
using PadWidths = std::vector<std::pair<Dim, Dim>>;  // for each axis: in front, behind

#define CERMET_DECLARE_unary(name) array name(const array& a, const S& s = {});
#define CERMET_DECLARE_binary(name) array name(const array& a, const array& b, const S& s = {});
#define CERMET_DECLARE_reduce(name) \
  array name(const array& a, const OptionalAxes& axes = {}, bool keepdims = false, const S& s = {});
#define CERMET_DECLARE_node(name)
#define X(id, name, family) CERMET_DECLARE_##family(name)
CERMET_OPS(X)
#undef X

// elementwise
array select(const array& condition, const array& x, const array& y, const S& s = {});  // one shape
array where(const array& condition, const array& x, const array& y, const S& s = {});
array clip(const array& a, const std::optional<array>& low = {},
           const std::optional<array>& high = {}, const S& s = {});
array round(const array& a, int decimals = 0, const S& s = {});
array astype(const array& a, Dtype dtype, const S& s = {});
array complex_of(const array& re, const array& im,
                 const S& s = {});  // one floating dtype and shape
array nan_to_num(const array& a, double nan = 0, std::optional<double> posinf = {},
                 std::optional<double> neginf = {}, const S& s = {});
array signbit(const array& a, const S& s = {});
array copysign(const array& a, const array& b, const S& s = {});
array nextafter(const array& a, const array& b, const S& s = {});
array hypot(const array& a, const array& b, const S& s = {});
array isin(const array& a, const array& values, bool invert = false, const S& s = {});
array isclose(const array& a, const array& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false, const S& s = {});
array allclose(const array& a, const array& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false, const S& s = {});
array array_equal(const array& a, const array& b, bool equal_nan = false, const S& s = {});
std::vector<array> divmod(const array& a, const array& b, const S& s = {});
// The inputs, computed on from after the dependencies; nothing of that is shared with what is computed
// from the inputs themselves.
Arrays depends(const Arrays& inputs, const Arrays& dependencies);
// A result of a call (graph/custom_call.h), as transforms see it.
array custom_call(const std::shared_ptr<const CustomCall>& call, int output);
// Alike dtype and shape: (broadcast to one shape, promoted to one dtype).
std::pair<array, array> broadcast_promote(const char* op, const array& a, const array& b,
                                          const S& s);
std::vector<array> broadcast_arrays(const Arrays& arrays, const S& s = {});

// reductions
array mean(const array& a, const OptionalAxes& axes = {}, bool keepdims = false, const S& s = {});
array var(const array& a, const OptionalAxes& axes = {}, bool keepdims = false, int ddof = 0,
          const S& s = {});
array std_dev(const array& a, const OptionalAxes& axes = {}, bool keepdims = false, int ddof = 0,
              const S& s = {});  // Python: std
array argmin(const array& a, std::optional<int64_t> axis = {}, bool keepdims = false,
             const S& s = {});
array argmax(const array& a, std::optional<int64_t> axis = {}, bool keepdims = false,
             const S& s = {});
array softmax(const array& a, const OptionalAxes& axes = {}, bool precise = false, const S& s = {});
array count_nonzero(const array& a, const OptionalAxes& axes = {}, bool keepdims = false,
                    const S& s = {});  // int32
std::pair<array, array> minmax(const array& a, const OptionalAxes& axes = {}, bool keepdims = false,
                               const S& s = {});

// scans: the fold of the elements up to each, along an axis (the flattened array without one); reverse:
// from the end; not inclusive: of those before it
array cumsum(const array& a, std::optional<int64_t> axis = {}, bool reverse = false,
             bool inclusive = true, std::optional<Dtype> dtype = {}, const S& s = {});
array cumprod(const array& a, std::optional<int64_t> axis = {}, bool reverse = false,
              bool inclusive = true, std::optional<Dtype> dtype = {}, const S& s = {});
array cummax(const array& a, std::optional<int64_t> axis = {}, bool reverse = false,
             bool inclusive = true, const S& s = {});
array cummin(const array& a, std::optional<int64_t> axis = {}, bool reverse = false,
             bool inclusive = true, const S& s = {});
array logcumsumexp(const array& a, std::optional<int64_t> axis = {}, bool reverse = false,
                   bool inclusive = true, const S& s = {});
// h with h[i] = a[i] * h[i - 1] + b[i] along the axis, 0 before the first; one shape, one inexact dtype.
array linear_scan(const array& a, const array& b, int64_t axis, bool reverse = false,
                  const S& s = {});

// movement
array reshape(const array& a, const ShapeList& shape, const S& s = {});  // one -1 is inferred
array flatten(const array& a, int64_t start_axis = 0, int64_t end_axis = -1, const S& s = {});
array unflatten(const array& a, int64_t axis, const ShapeList& shape, const S& s = {});
array squeeze(const array& a, const OptionalAxes& axes = {}, const S& s = {});
array expand_dims(const array& a, const AxisList& axes, const S& s = {});
array transpose(const array& a, const OptionalAxes& axes = {}, const S& s = {});
array swapaxes(const array& a, int64_t axis1, int64_t axis2, const S& s = {});
array moveaxis(const array& a, int64_t source, int64_t destination, const S& s = {});
array broadcast_to(const array& a, const Shape& shape, const S& s = {});
// Elements start, start + step, ... while before stop (or after, for step < 0); normalised by the caller
// (see python slices): size[i] elements from start[i].
array sized_slice(const array& a, PerAxis start, SliceSteps step, Shape size, const S& s = {});
array sized_slice_update(const array& a, const array& update, PerAxis start, SliceSteps step,
                         ScatterReduce reduce = ScatterReduce::assign, const S& s = {});
array concatenate(const Arrays& arrays, std::optional<int64_t> axis = 0, const S& s = {});
array stack(const Arrays& arrays, int64_t axis = 0, const S& s = {});
std::vector<array> split(const array& a, int64_t sections, int64_t axis = 0, const S& s = {});
std::vector<array> split(const array& a, const ShapeList& indices, int64_t axis = 0,
                         const S& s = {});
array pad(const array& a, const PadWidths& width, const array& value = array(0),
          const std::string& mode = "constant", const S& s = {});
array flip(const array& a, const OptionalAxes& axes = {}, const S& s = {});
array tile(const array& a, const ShapeList& repetitions, const S& s = {});
array repeat(const array& a, const Dim& repeats, std::optional<int64_t> axis = {}, const S& s = {});
array contiguous(const array& a, const S& s = {});
// Elements move towards higher indices, those past the end to the front; without axes, of the
// flattened array. One shift for all axes, or one for each.
array roll(const array& a, const ShapeList& shift, const OptionalAxes& axes = {}, const S& s = {});
std::vector<array> meshgrid(const Arrays& arrays, bool sparse = false,
                            const std::string& indexing = "xy", const S& s = {});
std::vector<array> unstack(const array& a, int64_t axis = 0, const S& s = {});
array atleast_1d(const array& a, const S& s = {});
array atleast_2d(const array& a, const S& s = {});
array atleast_3d(const array& a, const S& s = {});
array diff(const array& a, int64_t n = 1, int64_t axis = -1, const S& s = {});
array diagonal(const array& a, int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1,
               const S& s = {});
array diag(const array& a, int64_t k = 0,
           const S& s = {});  // a matrix of it, or the diagonal of one
array trace(const array& a, int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1,
            std::optional<Dtype> dtype = {}, const S& s = {});
// Strides and offset count elements of the array in row-major order; all reached must be inside it.
array as_strided(const array& a, const std::optional<Shape>& shape = {},
                 const std::optional<PerAxis>& strides = {}, const Dim& offset = 0,
                 const S& s = {});
// The bytes as another dtype; another element size changes the last axis.
array view(const array& a, Dtype dtype, const S& s = {});

// indexing; indices are integers (negative ones count from the end), checked on the CPU at run time
array take(const array& a, const array& indices, std::optional<int64_t> axis = {}, const S& s = {});
array take_along_axis(const array& a, const array& indices, std::optional<int64_t> axis = -1,
                      const S& s = {});
array put_along_axis(const array& a, const array& indices, const array& values,
                     std::optional<int64_t> axis = {}, const S& s = {});
array scatter_along_axis(const array& a, const array& indices, const array& values, int64_t axis,
                         ScatterReduce reduce, const S& s = {});
array gather(const array& a, const Arrays& indices, const Axes& axes, const Shape& slice_sizes,
             const S& s = {});
array scatter(const array& a, const Arrays& indices, const array& updates, const Axes& axes,
              ScatterReduce reduce, const S& s = {});
// A slice of the given size that starts, along the axes, at computed indices and else at 0; and the array
// with such a slice replaced. `start` has one element for each of the axes.
array dynamic_slice(const array& a, const array& start, const AxisList& axes,
                    const Shape& slice_size, const S& s = {});
array dynamic_slice_update(const array& a, const array& update, const array& start,
                           const AxisList& axes, const S& s = {});

// contraction
array matmul(const array& a, const array& b, const S& s = {});
// The product over the last axes of both / the axes paired up / every pair of elements / the last
// axes element by element (conjugated on the left).
array inner(const array& a, const array& b, const S& s = {});
array tensordot(const array& a, const array& b, int64_t axes = 2, const S& s = {});
array tensordot(const array& a, const array& b, const AxisList& axes_a, const AxisList& axes_b,
                const S& s = {});
array outer(const array& a, const array& b, const S& s = {});
array vecdot(const array& a, const array& b, int64_t axis = -1, const S& s = {});
array kron(const array& a, const array& b, const S& s = {});
array einsum(const std::string& subscripts, const Arrays& operands, const S& s = {});
// The order in which einsum contracts: positions in the list of operands, from which each pair goes and
// to whose end its product comes; and a text on what it saves.
std::pair<std::vector<std::vector<int>>, std::string> einsum_path(const std::string& subscripts,
                                                                  const Arrays& operands);
array addmm(const array& c, const array& a, const array& b, double alpha = 1, double beta = 1,
            const S& s = {});

// Products of the matrices of a with those of b that the indices choose, which count the matrices along
// all axes but the last two; without indices, all of them in turn. The result has the
// shape of the indices, broadcast together, before its last two axes.
// sorted_indices: equal ones follow each other. Raises [gather_mm] value, dtype; out of range, index at
// run time.
array gather_mm(const array& a, const array& b, const std::optional<array>& lhs_indices = {},
                const std::optional<array>& rhs_indices = {}, bool sorted_indices = false,
                const S& s = {});
// a[:, i:j] @ b[i:j] for each (i, j) of segments [..., 2]: [..., m, n]. Places outside 0 .. k are none.
array segmented_mm(const array& a, const array& b, const array& segments, const S& s = {});
// a @ b with whole blocks masked: a mask has an element for each block of the last two axes, and
// broadcasts along those before. A bool one keeps or clears, numbers multiply.
array block_masked_mm(const array& a, const array& b, int block_size = 64,
                      const std::optional<array>& mask_out = {},
                      const std::optional<array>& mask_lhs = {},
                      const std::optional<array>& mask_rhs = {}, const S& s = {});

// creation
array full(const Shape& shape, const Number& value, Dtype dtype, const S& s = {});
array full(const Shape& shape, const array& value, std::optional<Dtype> dtype, const S& s = {});
array zeros(const Shape& shape, Dtype dtype = Dtype::float32, const S& s = {});
array ones(const Shape& shape, Dtype dtype = Dtype::float32, const S& s = {});
array zeros_like(const array& a, const S& s = {});
array ones_like(const array& a, const S& s = {});
array arange(const Number& start, const Number& stop, const Number& step,
             std::optional<Dtype> dtype, const S& s = {});
array linspace(double start, double stop, int64_t num = 50, bool endpoint = true,
               Dtype dtype = Dtype::float32, const S& s = {});
array linspace(const Number& start, const Number& stop, const Dim& num, bool endpoint, Dtype dtype,
               const S& s = {});
array eye(const Dim& n, const std::optional<Dim>& m = {}, const Dim& k = 0,
          Dtype dtype = Dtype::float32, const S& s = {});
array tri(const Dim& n, const std::optional<Dim>& m, const Dim& k, Dtype dtype, const S& s = {});
array tril(const array& a, const Dim& k = 0, const S& s = {});
array triu(const array& a, const Dim& k = 0, const S& s = {});
// Windows of m samples, float32: symmetric, 1 in the middle; empty for m < 1, [1] for m = 1.
array bartlett(const Dim& m, const S& s = {});
array hanning(const Dim& m, const S& s = {});
array hamming(const Dim& m, const S& s = {});
array blackman(const Dim& m, const S& s = {});

// Numbers
Number number(bool value);
Number number(int64_t value);
Number number(const Dim& size);  // keeps its symbol
Number number(double value);
Number number(std::complex<double> value);
// The dtype of a Python scalar next to an array of the given dtype (weak promotion); raises [op]
// overflow when an integer does not fit. weak_scalar is a 0-d array holding it.
Dtype weak_dtype(const char* op, const Number& value, Dtype beside);
array weak_scalar(const char* op, const Number& value, Dtype beside, const S& s = {});
Dtype default_dtype(const Number& value);  // bool, int32, float32, complex64

namespace random {
array key(uint64_t seed);
std::vector<array> split_pair(const array& key, const S& s = {});
array split(const array& key, const Dim& num, const S& s = {});  // [num, 2] uint32
array bits(const Shape& shape, int width, const array& key, const S& s = {});
array uniform(const array& low, const array& high, const Shape& shape, Dtype dtype,
              const array& key, const S& s = {});
array normal(const Shape& shape, Dtype dtype, const std::optional<array>& loc,
             const std::optional<array>& scale, const array& key, const S& s = {});
array bernoulli(const array& p, const std::optional<Shape>& shape, const array& key,
                const S& s = {});
array randint(const array& low, const array& high, const Shape& shape, Dtype dtype,
              const array& key, const S& s = {});
array categorical(const array& logits, int64_t axis, const std::optional<Shape>& shape,
                  const std::optional<Dim>& num_samples, const array& key, const S& s = {});
array truncated_normal(const array& lower, const array& upper, const std::optional<Shape>& shape,
                       Dtype dtype, const array& key, const S& s = {});
array gumbel(const Shape& shape, Dtype dtype, const array& key, const S& s = {});
array laplace(const Shape& shape, Dtype dtype, double loc, double scale, const array& key,
              const S& s = {});
}  // namespace random

namespace fast {
array rms_norm(const array& x, const std::optional<array>& weight, double eps = 1e-5,
               const S& s = {});
array layer_norm(const array& x, const std::optional<array>& weight,
                 const std::optional<array>& bias, double eps = 1e-5, const S& s = {});
// A scale that is open in a trace stays so.
array rope(const array& x, int dims, bool traditional, std::optional<double> base, double scale,
           const array& offset, const std::optional<array>& freqs = {}, const S& s = {});
array rope(const array& x, int dims, bool traditional, std::optional<double> base,
           const Number& scale, const array& offset, const std::optional<array>& freqs = {},
           const S& s = {});
// mask: none, causal (mask_kind "causal"), bool or additive array.
array scaled_dot_product_attention(const array& q, const array& k, const array& v, double scale,
                                   const std::string& mask_kind, const std::optional<array>& mask,
                                   const std::optional<array>& sinks, const S& s = {});
array scaled_dot_product_attention(const array& q, const array& k, const array& v,
                                   const Number& scale, const std::string& mask_kind,
                                   const std::optional<array>& mask,
                                   const std::optional<array>& sinks, const S& s = {});
// Targets: the class of each row of the last axis.
array cross_entropy(const array& logits, const array& targets, const S& s = {});
}  // namespace fast

}  // namespace cermet
