// SPDX-License-Identifier: MIT
// Further forms of the calls of ops.h, those of MLX's C++ API: axes as int or vector<int>, sizes as Shape,
// arguments in the middle left out before a stream or a flag. Each is one line on top of ops.h, which is
// all that the library itself uses.
#pragma once

#include <concepts>
#include <tuple>

#include "ops/operators.h"
#include "ops/ops.h"

namespace cermet {

// Templates on these take arguments of the type itself, never braces, so that braces mean one thing.
template <typename T>
concept StreamLike =
    std::same_as<T, StreamOrDevice> || std::same_as<T, Stream> ||
    std::same_as<T, ThreadLocalStream> || std::same_as<T, Device> || std::same_as<T, DeviceType>;
template <typename T>
concept Flag = std::same_as<T, bool>;
template <typename T>
concept Axis = std::integral<T> && !std::same_as<T, bool>;
template <typename T>
concept IntVector = std::same_as<T, std::vector<int>>;
template <typename T>
concept ShapeLike = std::same_as<T, Shape>;

inline AxisList axis_list(const std::vector<int>& axes) { return {axes.begin(), axes.end()}; }
inline ShapeList shape_list(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

// --- reductions: (a, keepdims, s), (a, s) ---
#define CERMET_FORMS_unary(name)
#define CERMET_FORMS_binary(name)
#define CERMET_FORMS_node(name)
#define CERMET_FORMS_reduce(name)                             \
  template <Flag F>                                           \
  auto name(const array& a, F keepdims, const S& s = {}) {    \
    return name(a, OptionalAxes(), keepdims, s);              \
  }                                                           \
  template <StreamLike T>                                     \
  auto name(const array& a, const T& s) {                     \
    return name(a, OptionalAxes(), false, s);                 \
  }
#define X(id, name, family) CERMET_FORMS_##family(name)
CERMET_OPS(X)
#undef X
CERMET_FORMS_reduce(mean) CERMET_FORMS_reduce(count_nonzero)
    CERMET_FORMS_reduce(softmax)  // its flag: precise
#undef CERMET_FORMS_unary
#undef CERMET_FORMS_binary
#undef CERMET_FORMS_node
#undef CERMET_FORMS_reduce

    template <Flag F>
    std::tuple<array, array> minmax(const array& a, F keepdims, const S& s = {}) {
  return minmax(a, OptionalAxes(), keepdims, s);
}
template <StreamLike T>
std::tuple<array, array> minmax(const array& a, const T& s) {
  return minmax(a, OptionalAxes(), false, s);
}
template <Flag F>
array var(const array& a, F keepdims, int ddof = 0, const S& s = {}) {
  return var(a, OptionalAxes(), keepdims, ddof, s);
}
template <StreamLike T>
array var(const array& a, const T& s) {
  return var(a, OptionalAxes(), false, 0, s);
}
inline array std(const array& a, const OptionalAxes& axes = {}, bool keepdims = false, int ddof = 0,
                 const S& s = {}) {
  return std_dev(a, axes, keepdims, ddof, s);
}
template <Flag F>
array std(const array& a, F keepdims, int ddof = 0, const S& s = {}) {
  return std_dev(a, OptionalAxes(), keepdims, ddof, s);
}
template <StreamLike T>
array std(const array& a, const T& s) {
  return std_dev(a, OptionalAxes(), false, 0, s);
}

// --- one axis or none: arg-reductions and scans ---
#define CERMET_FORMS_ARG(name)                                      \
  template <Flag F>                                                 \
  array name(const array& a, F keepdims, const S& s = {}) {         \
    return name(a, std::optional<int64_t>(), keepdims, s);          \
  }                                                                 \
  template <StreamLike T>                                           \
  array name(const array& a, const T& s) {                          \
    return name(a, std::optional<int64_t>(), false, s);             \
  }
CERMET_FORMS_ARG(argmin)
CERMET_FORMS_ARG(argmax)
#undef CERMET_FORMS_ARG

#define CERMET_FORMS_SCAN(name)                                                         \
  template <Flag F>                                                                     \
  array name(const array& a, F reverse, bool inclusive = true, const S& s = {}) {       \
    return name(a, std::optional<int64_t>(), reverse, inclusive, s);                    \
  }
CERMET_FORMS_SCAN(cummax)
CERMET_FORMS_SCAN(cummin)
CERMET_FORMS_SCAN(logcumsumexp)
#undef CERMET_FORMS_SCAN

#define CERMET_FORMS_SUM(name)                                                          \
  template <Flag F>                                                                     \
  array name(const array& a, F reverse, bool inclusive = true,                          \
             std::optional<Dtype> dtype = {}, const S& s = {}) {                        \
    return name(a, std::optional<int64_t>(), reverse, inclusive, dtype, s);             \
  }                                                                                     \
  template <Flag F, StreamLike T>                                                       \
  array name(const array& a, F reverse, bool inclusive, const T& s) {                   \
    return name(a, std::optional<int64_t>(), reverse, inclusive, std::optional<Dtype>(), s); \
  }                                                                                     \
  template <Axis I, StreamLike T>                                                       \
  array name(const array& a, I axis, bool reverse, bool inclusive, const T& s) {        \
    return name(a, std::optional<int64_t>(axis), reverse, inclusive, std::optional<Dtype>(), s); \
  }
CERMET_FORMS_SUM(cumsum)
CERMET_FORMS_SUM(cumprod)
#undef CERMET_FORMS_SUM

// --- elementwise ---
inline array operator&&(const array& a, const array& b) { return logical_and(a, b); }
inline array operator||(const array& a, const array& b) { return logical_or(a, b); }
inline array positive(const array& a, const S& = {}) { return a; }
inline array copy(const array& a, const S& = {}) { return a; }  // elements never change
template <StreamLike T>
array round(const array& a, const T& s) {
  return round(a, 0, s);
}
template <StreamLike T>
array array_equal(const array& a, const array& b, const T& s) {
  return array_equal(a, b, false, s);
}

// --- movement ---
template <ShapeLike V>
array reshape(const array& a, const V& shape, const S& s = {}) {
  return reshape(a, shape_list(shape), s);
}
template <ShapeLike V>
array unflatten(const array& a, int64_t axis, const V& shape, const S& s = {}) {
  return unflatten(a, axis, shape_list(shape), s);
}
template <StreamLike T>
array flatten(const array& a, const T& s) {
  return flatten(a, 0, -1, s);
}
#define CERMET_FORMS_STREAM(name)          \
  template <StreamLike T>                  \
  array name(const array& a, const T& s) { \
    return name(a, OptionalAxes(), s);     \
  }
CERMET_FORMS_STREAM(squeeze)
CERMET_FORMS_STREAM(flip)
CERMET_FORMS_STREAM(transpose)
#undef CERMET_FORMS_STREAM
template <Axis I>
array expand_dims(const array& a, I axis, const S& s = {}) {
  return expand_dims(a, AxisList{static_cast<int64_t>(axis)}, s);
}
template <IntVector V>
array expand_dims(const array& a, const V& axes, const S& s = {}) {
  return expand_dims(a, axis_list(axes), s);
}
inline array matrix_transpose(const array& a, const S& s = {}) { return swapaxes(a, -1, -2, s); }

// Elements start, start + stride, ... before stop, for each axis; negative ones count from the end, and
// what reaches outside is cut, as in Python.
array slice(const array& a, const Shape& start, const Shape& stop, const Shape& strides,
            const S& s = {});
array slice_update(const array& a, const array& update, const Shape& start, const Shape& stop,
                   const Shape& strides, const S& s = {});
array slice(const array& a, const Shape& start, const Shape& stop, const S& s = {});
array slice_update(const array& a, const array& update, const Shape& start, const Shape& stop,
                   const S& s = {});
#define CERMET_FORMS_UPDATE(name)                                                               \
  array name(const array& a, const array& update, const Shape& start, const Shape& stop,        \
             const Shape& strides, const S& s = {});                                            \
  array name(const array& a, const array& update, const Shape& start, const Shape& stop,        \
             const S& s = {});
CERMET_FORMS_UPDATE(slice_update_add)
CERMET_FORMS_UPDATE(slice_update_prod)
CERMET_FORMS_UPDATE(slice_update_max)
CERMET_FORMS_UPDATE(slice_update_min)
#undef CERMET_FORMS_UPDATE
template <std::same_as<array> A>
array slice(const array& a, const A& start, const std::vector<int>& axes, const Shape& slice_size,
            const S& s = {}) {
  return dynamic_slice(a, start, axis_list(axes), slice_size, s);
}
template <std::same_as<array> A>
array slice_update(const array& a, const array& update, const A& start,
                   const std::vector<int>& axes, const S& s = {}) {
  return dynamic_slice_update(a, update, start, axis_list(axes), s);
}

template <StreamLike T>
Arrays split(const array& a, int64_t sections, const T& s) {
  return split(a, sections, 0, s);
}
template <ShapeLike V>
Arrays split(const array& a, const V& indices, int64_t axis = 0, const S& s = {}) {
  return split(a, ShapeList(indices.begin(), indices.end()), axis, s);
}
template <ShapeLike V, StreamLike T>
Arrays split(const array& a, const V& indices, const T& s) {
  return split(a, ShapeList(indices.begin(), indices.end()), 0, s);
}
template <StreamLike T>
Arrays unstack(const array& a, const T& s) {
  return unstack(a, 0, s);
}
template <StreamLike T>
array concatenate(const Arrays& arrays, const T& s) {
  return concatenate(arrays, std::optional<int64_t>(0), s);
}
template <StreamLike T>
array stack(const Arrays& arrays, const T& s) {
  return stack(arrays, 0, s);
}
template <StreamLike T>
array repeat(const array& a, int64_t repeats, const T& s) {
  return repeat(a, repeats, std::optional<int64_t>(), s);
}
template <IntVector V>
array tile(const array& a, const V& repetitions, const S& s = {}) {
  return tile(a, ShapeList(repetitions.begin(), repetitions.end()), s);
}
array pad(const array& a, const std::vector<int>& axes, const Shape& low, const Shape& high,
          const array& value = array(0), const std::string& mode = "constant", const S& s = {});
template <std::same_as<std::vector<std::pair<int, int>>> V>
array pad(const array& a, const V& width, const array& value = array(0),
          const std::string& mode = "constant", const S& s = {}) {
  return pad(a, PadWidths(width.begin(), width.end()), value, mode, s);
}
array pad(const array& a, const std::pair<int, int>& width, const array& value = array(0),
          const std::string& mode = "constant", const S& s = {});
array pad(const array& a, int width, const array& value = array(0),
          const std::string& mode = "constant", const S& s = {});
array contiguous(const array& a, bool allow_col_major, const S& s = {});
array roll(const array& a, int shift, const S& s = {});
array roll(const array& a, int shift, int axis, const S& s = {});
array roll(const array& a, int shift, const std::vector<int>& axes, const S& s = {});
template <ShapeLike V>
array roll(const array& a, const V& shift, const OptionalAxes& axes = {}, const S& s = {}) {
  return roll(a, ShapeList(shift.begin(), shift.end()), axes, s);
}
template <ShapeLike V, StreamLike T>
array roll(const array& a, const V& shift, const T& s) {
  return roll(a, ShapeList(shift.begin(), shift.end()), OptionalAxes(), s);
}
Arrays atleast_1d(const Arrays& arrays, const S& s = {});
Arrays atleast_2d(const Arrays& arrays, const S& s = {});
Arrays atleast_3d(const Arrays& arrays, const S& s = {});
template <StreamLike T>
array trace(const array& a, int64_t offset, int64_t axis1, int64_t axis2, const T& s) {
  return trace(a, offset, axis1, axis2, std::optional<Dtype>(), s);
}
template <StreamLike T>
array trace(const array& a, const T& s) {
  return trace(a, 0, 0, 1, std::optional<Dtype>(), s);
}
// The product of the sizes of the axes, or its inverse.
array number_of_elements(const array& a, const std::vector<int>& axes, bool inverted,
                         Dtype dtype = Dtype::int32, const S& s = {});
template <IntVector V>
array tensordot(const array& a, const array& b, const V& axes_a, const V& axes_b, const S& s = {}) {
  return tensordot(a, b, axis_list(axes_a), axis_list(axes_b), s);
}

}  // namespace cermet
