// SPDX-License-Identifier: MIT
// Further forms of calls, as in call_forms.h: gathering and scattering, creation, fast.
#pragma once

#include "ops/call_forms.h"

namespace cermet {

// --- indexing ---
template <std::same_as<array> A>
array gather(const array& a, const A& indices, int axis, const Shape& slice_sizes,
             const S& s = {}) {
  return gather(a, Arrays{indices}, Axes{axis}, slice_sizes, s);
}
template <StreamLike T>
array take(const array& a, const array& indices, const T& s) {
  return take(a, indices, std::optional<int64_t>(), s);
}
template <Axis I>
array take(const array& a, I index, int axis, const S& s = {}) {
  return take(a, array(static_cast<int64_t>(index)), std::optional<int64_t>(axis), s);
}
template <Axis I>
array take(const array& a, I index, const S& s = {}) {
  return take(a, array(static_cast<int64_t>(index)), std::optional<int64_t>(), s);
}
inline array scatter_add_axis(const array& a, const array& indices, const array& values, int axis,
                              const S& s = {}) {
  return scatter_along_axis(a, indices, values, axis, ScatterReduce::add, s);
}

#define CERMET_FORMS_SCATTER(name, reduce)                                                     \
  inline array name(const array& a, const Arrays& indices, const array& updates,               \
                    const std::vector<int>& axes, const S& s = {}) {                           \
    return scatter(a, indices, updates, axes, ScatterReduce::reduce, s);                       \
  }                                                                                            \
  template <std::same_as<array> A>                                                             \
  array name(const array& a, const A& indices, const array& updates, int axis,                 \
             const S& s = {}) {                                                                \
    return scatter(a, Arrays{indices}, updates, Axes{axis}, ScatterReduce::reduce, s);         \
  }
CERMET_FORMS_SCATTER(scatter, assign)
CERMET_FORMS_SCATTER(scatter_add, add)
CERMET_FORMS_SCATTER(scatter_prod, multiply)
CERMET_FORMS_SCATTER(scatter_max, maximum)
CERMET_FORMS_SCATTER(scatter_min, minimum)
#undef CERMET_FORMS_SCATTER

// a with its elements where the mask holds replaced by those of src, in order. The mask covers leading
// axes. Raises [masked_scatter] value; where src has too few elements, index at run time.
array masked_scatter(const array& a, const array& mask, const array& src, const S& s = {});

// --- creation ---
namespace forms {
template <Scalar T>
std::optional<Dtype> dtype_of(T value) {
  return default_dtype(scalar_number(value));
}
template <typename... T>
concept Scalars = (Scalar<T> && ...);
}  // namespace forms

// arange(stop), (start, stop), (start, stop, step), each with a dtype or without: int32 of integers.
template <Scalar A>
array arange(A stop, const S& s = {}) {
  return arange(number(int64_t{0}), scalar_number(stop), number(int64_t{1}), forms::dtype_of(stop),
                s);
}
template <Scalar A>
array arange(A stop, Dtype dtype, const S& s = {}) {
  return arange(number(int64_t{0}), scalar_number(stop), number(int64_t{1}), dtype, s);
}
template <Scalar A, Scalar B>
array arange(A start, B stop, const S& s = {}) {
  return arange(scalar_number(start), scalar_number(stop), number(int64_t{1}),
                forms::dtype_of(start + stop), s);
}
template <Scalar A, Scalar B>
array arange(A start, B stop, Dtype dtype, const S& s = {}) {
  return arange(scalar_number(start), scalar_number(stop), number(int64_t{1}), dtype, s);
}
template <Scalar A, Scalar B, Scalar C>
array arange(A start, B stop, C step, const S& s = {}) {
  return arange(scalar_number(start), scalar_number(stop), scalar_number(step),
                forms::dtype_of(start + stop + step), s);
}
template <Scalar A, Scalar B, Scalar C>
array arange(A start, B stop, C step, Dtype dtype, const S& s = {}) {
  return arange(scalar_number(start), scalar_number(stop), scalar_number(step), dtype, s);
}
inline array linspace(double start, double stop, int num, Dtype dtype, const S& s = {}) {
  return linspace(start, stop, num, true, dtype, s);
}
template <StreamLike T>
array linspace(double start, double stop, int num, const T& s) {
  return linspace(start, stop, num, true, Dtype::float32, s);
}
template <Scalar T>
array full(const Shape& shape, T value, Dtype dtype, const S& s = {}) {
  return full(shape, scalar_number(value), dtype, s);
}
template <Scalar T>
array full(const Shape& shape, T value, const S& s = {}) {
  return full(shape, scalar_number(value), default_dtype(scalar_number(value)), s);
}
template <std::same_as<array> A>
array full(const Shape& shape, const A& values, const S& s = {}) {
  return full(shape, values, std::optional<Dtype>(), s);
}
template <Scalar T>
array full_like(const array& a, T value, Dtype dtype, const S& s = {}) {
  return full(a.shape(), scalar_number(value), dtype, s);
}
template <Scalar T>
array full_like(const array& a, T value, const S& s = {}) {
  return full(a.shape(), scalar_number(value), a.dtype(), s);
}
inline array full_like(const array& a, const array& values, Dtype dtype, const S& s = {}) {
  return full(a.shape(), values, std::optional<Dtype>(dtype), s);
}
inline array full_like(const array& a, const array& values, const S& s = {}) {
  return full(a.shape(), values, std::optional<Dtype>(a.dtype()), s);
}
#define CERMET_FORMS_FILL(name)                                       \
  template <StreamLike T>                                             \
  array name(const Shape& shape, const T& s) {                        \
    return name(shape, Dtype::float32, s);                            \
  }                                                                   \
  inline array name##_like(const array& a, Dtype dtype, const S& s = {}) { \
    return name(a.shape(), dtype, s);                                 \
  }
CERMET_FORMS_FILL(zeros)
CERMET_FORMS_FILL(ones)
#undef CERMET_FORMS_FILL
template <StreamLike T>
array eye(int64_t n, const T& s) {
  return eye(n, std::optional<Dim>(), 0, Dtype::float32, s);
}
template <StreamLike T>
array eye(int64_t n, int64_t m, const T& s) {
  return eye(n, std::optional<Dim>(m), 0, Dtype::float32, s);
}
template <StreamLike T>
array eye(int64_t n, int64_t m, int64_t k, const T& s) {
  return eye(n, std::optional<Dim>(m), k, Dtype::float32, s);
}
inline array eye(int64_t n, Dtype dtype, const S& s = {}) {
  return eye(n, std::optional<Dim>(), 0, dtype, s);
}
inline array identity(int64_t n, Dtype dtype, const S& s = {}) { return eye(n, dtype, s); }
inline array identity(int64_t n, const S& s = {}) { return eye(n, Dtype::float32, s); }
inline array tri(int64_t n, Dtype dtype, const S& s = {}) {
  return tri(n, std::optional<Dim>(), 0, dtype, s);
}
inline array as_strided(const array& a, const Shape& shape, const Strides& strides, size_t offset,
                        const S& s = {}) {
  return as_strided(a, std::optional<Shape>(shape),
                    std::optional<PerAxis>(PerAxis(std::span<const Dim>(strides))),
                    static_cast<int64_t>(offset), s);
}

// The common dtype, as of an op on the arrays; raises [result_type] value without any.
Dtype result_type(const std::vector<array>& arrays);
inline Dtype result_type(const array& a, const array& b) { return promote(a.dtype(), b.dtype()); }
inline Dtype result_type(const array& a, const array& b, const array& c) {
  return result_type(Arrays{a, b, c});
}
inline Dtype promote_types(Dtype a, Dtype b) { return promote(a, b); }
inline Shape broadcast_shapes(const Shape& a, const Shape& b) {
  return broadcast_shapes("broadcast_shapes", a, b);
}

namespace fast {
inline array rope(const array& x, int dims, bool traditional, std::optional<float> base,
                  float scale, int offset, const std::optional<array>& freqs = {},
                  const S& s = {}) {
  return rope(x, dims, traditional, base, scale, array(offset), freqs, s);
}
inline array scaled_dot_product_attention(const array& q, const array& k, const array& v,
                                          double scale, const std::string& mask_mode = "",
                                          const std::optional<array>& mask = {}) {
  return scaled_dot_product_attention(q, k, v, scale, mask_mode, mask, std::nullopt, S{});
}
// force_fused changes nothing: what it asks for is always so.
template <Flag F>
array scaled_dot_product_attention(const array& q, const array& k, const array& v, double scale,
                                   const std::string& mask_mode, const std::optional<array>& mask,
                                   const std::optional<array>& sinks, F, const S& s = {}) {
  return scaled_dot_product_attention(q, k, v, scale, mask_mode, mask, sinks, s);
}
}  // namespace fast

}  // namespace cermet
