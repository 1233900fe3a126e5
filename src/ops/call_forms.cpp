// SPDX-License-Identifier: MIT
#include "ops/call_forms.h"

#include <algorithm>

#include "base/error.h"
#include "base/lazy.h"
#include "ops/index_forms.h"
#include "ops/random_forms.h"
#include "ops/rules.h"
#include "runtime/fork.h"

namespace cermet {

namespace {

// Where a slice of Python's kind starts and how many elements it has.
struct Sizes {
  PerAxis start;
  SliceSteps step;
  Shape size;
};

Sizes python_slice(const char* op, const Shape& shape, const Shape& start, const Shape& stop,
                   const Shape& strides) {
  const int ndim = shape.ndim();
  CERMET_CHECK(
      start.ndim() == ndim && stop.ndim() == ndim && strides.ndim() == ndim, value, op,
      "start {}, stop {} and strides {} do not fit shape {}; each must have a number for each axis",
      start.to_string(), stop.to_string(), strides.to_string(), shape.to_string());
  Sizes sizes;
  for (int axis = 0; axis < ndim; ++axis) {
    const int64_t n = shape[axis], step = strides[axis];
    CERMET_CHECK(step != 0, value, op, "the stride of axis {} is 0; it must not be", axis);
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    const auto bound = [&](int64_t at) { return std::clamp(at < 0 ? at + n : at, low, high); };
    const int64_t from = bound(start[axis]), to = bound(stop[axis]);
    const int64_t count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    sizes.start.push_back(count > 0 ? from : 0);
    sizes.step.push_back(step);
    sizes.size.push_back(std::max<int64_t>(count, 0));
  }
  return sizes;
}

Shape all_ones(int ndim) {
  Shape ones;
  for (int axis = 0; axis < ndim; ++axis) ones.push_back(1);
  return ones;
}

array updated(const char* op, const array& a, const array& update, const Shape& start,
              const Shape& stop, const Shape& strides, ScatterReduce reduce, const S& s) {
  Sizes at = python_slice(op, a.shape(), start, stop, strides);
  return sized_slice_update(a, broadcast_to(astype(update, a.dtype(), s), at.size, s),
                            std::move(at.start), std::move(at.step), reduce, s);
}

Arrays each(const Arrays& arrays, const S& s, array (*f)(const array&, const S&)) {
  Arrays results;
  for (const array& a : arrays) results.push_back(f(a, s));
  return results;
}

}  // namespace

array ArrayIterator::operator*() const {
  return take(of_, array(index_), std::optional<int64_t>(0));
}

array slice(const array& a, const Shape& start, const Shape& stop, const Shape& strides,
            const S& s) {
  Sizes at = python_slice("slice", a.shape(), start, stop, strides);
  return sized_slice(a, std::move(at.start), std::move(at.step), std::move(at.size), s);
}

array slice(const array& a, const Shape& start, const Shape& stop, const S& s) {
  return slice(a, start, stop, all_ones(a.ndim()), s);
}

#define CERMET_DEFINE_UPDATE(name, reduce)                                                     \
  array name(const array& a, const array& update, const Shape& start, const Shape& stop,       \
             const Shape& strides, const S& s) {                                               \
    return updated(#name, a, update, start, stop, strides, ScatterReduce::reduce, s);          \
  }                                                                                            \
  array name(const array& a, const array& update, const Shape& start, const Shape& stop,       \
             const S& s) {                                                                     \
    return updated(#name, a, update, start, stop, all_ones(a.ndim()), ScatterReduce::reduce, s); \
  }
CERMET_DEFINE_UPDATE(slice_update, assign)
CERMET_DEFINE_UPDATE(slice_update_add, add)
CERMET_DEFINE_UPDATE(slice_update_prod, multiply)
CERMET_DEFINE_UPDATE(slice_update_max, maximum)
CERMET_DEFINE_UPDATE(slice_update_min, minimum)
#undef CERMET_DEFINE_UPDATE

array pad(const array& a, const std::vector<int>& axes, const Shape& low, const Shape& high,
          const array& value, const std::string& mode, const S& s) {
  const int n = static_cast<int>(axes.size());
  CERMET_CHECK(low.ndim() == n && high.ndim() == n, value, "pad",
               "{} axes were given with {} low and {} high sizes; they must be as many", n,
               low.ndim(), high.ndim());
  PadWidths width(static_cast<size_t>(a.ndim()), {0, 0});
  for (int i = 0; i < n; ++i)
    width[static_cast<size_t>(normalize_axis("pad", axes[static_cast<size_t>(i)], a.ndim()))] = {
        low.dim(i), high.dim(i)};
  return pad(a, width, value, mode, s);
}

array pad(const array& a, const std::pair<int, int>& width, const array& value,
          const std::string& mode, const S& s) {
  return pad(a, PadWidths(static_cast<size_t>(a.ndim()), width), value, mode, s);
}

array pad(const array& a, int width, const array& value, const std::string& mode, const S& s) {
  return pad(a, std::pair(width, width), value, mode, s);
}

array contiguous(const array& a, bool, const S& s) { return contiguous(a, s); }

array roll(const array& a, int shift, const S& s) {
  return roll(a, ShapeList{shift}, OptionalAxes(), s);
}

array roll(const array& a, int shift, int axis, const S& s) {
  return roll(a, ShapeList{shift}, OptionalAxes(axis), s);
}

array roll(const array& a, int shift, const std::vector<int>& axes, const S& s) {
  return roll(a, ShapeList{shift}, OptionalAxes(axes), s);
}

Arrays atleast_1d(const Arrays& arrays, const S& s) { return each(arrays, s, atleast_1d); }
Arrays atleast_2d(const Arrays& arrays, const S& s) { return each(arrays, s, atleast_2d); }
Arrays atleast_3d(const Arrays& arrays, const S& s) { return each(arrays, s, atleast_3d); }

array number_of_elements(const array& a, const std::vector<int>& axes, bool inverted, Dtype dtype,
                         const S& s) {
  int64_t count = 1;
  for (int axis : axes) count *= a.shape(axis);
  return full(Shape{}, inverted ? number(1.0 / static_cast<double>(count)) : number(count), dtype,
              s);
}

array masked_scatter(const array& a, const array& mask, const array& src, const S& s) {
  constexpr const char* op = "masked_scatter";
  CERMET_CHECK(mask.dtype() == Dtype::boolean, type, op, "the mask has dtype {}; it must be bool",
               name_of(mask.dtype()));
  bool fits = mask.ndim() <= a.ndim();
  for (int axis = 0; fits && axis < mask.ndim(); ++axis)
    fits = same_size(mask.shape().dim(axis), a.shape().dim(axis));
  CERMET_CHECK(fits, value, op,
               "a mask of shape {} does not fit an array of shape {}; its sizes must be those of "
               "the leading axes",
               mask.shape().to_string(), a.shape().to_string());
  ShapeList trailing(a.shape().dims().begin(), a.shape().dims().end());
  for (int axis = 0; axis < mask.ndim(); ++axis)
    trailing[static_cast<size_t>(axis)] = mask.shape().dim(axis);
  for (int axis = mask.ndim(); axis < a.ndim(); ++axis) trailing[static_cast<size_t>(axis)] = 1;
  const array wide = broadcast_to(reshape(mask, trailing, s), a.shape(), s);
  if (rules::is_zero(src.shape().count())) {
    CERMET_CHECK(
        a.size() == 0 || !any(mask).item<bool>(), value, op,
        "the source is empty, and the mask is not; it needs an element for each True of the mask");
    return a;
  }
  const array order = cumsum(reshape(wide, {-1}, s), 0, false, true, Dtype::int64, s);
  const array position = where(reshape(wide, {-1}, s), order - 1, zeros_like(order), s);
  const array taken =
      take(reshape(astype(src, a.dtype(), s), {-1}, s), position, std::optional<int64_t>(0), s);
  return where(wide, reshape(taken, ShapeList(a.shape().dims().begin(), a.shape().dims().end()), s),
               a, s);
}

Dtype result_type(const Arrays& arrays) {
  CERMET_CHECK(!arrays.empty(), value, "result_type", "no arrays; give one at least");
  Dtype dtype = arrays[0].dtype();
  for (const array& a : arrays) dtype = promote(dtype, a.dtype());
  return dtype;
}

namespace random {

namespace {

// A fork waits for draws: in the child no sequence is locked.
ForkGate& drawing() {
  static constinit ForkSafe<ForkGate> gate(ForkLevel::graph);
  return gate.get();
}

}  // namespace

KeySequence::KeySequence(uint64_t seed) : key_(key(seed)) {}

void KeySequence::seed(uint64_t seed) {
  const InForkGate inside(drawing());
  const std::lock_guard guard(lock_);
  key_ = key(seed);
}

array KeySequence::next() {
  const InForkGate inside(drawing());
  const std::lock_guard guard(lock_);
  const Arrays halves = split_pair(key_);
  key_ = halves[0];
  return halves[1];
}

KeySequence& KeySequence::default_() {
  static constinit Lazy<KeySequence> sequence;  // outlives whatever ends with the process
  return sequence.get([] { return KeySequence(0); });
}

void seed(uint64_t seed) { KeySequence::default_().seed(seed); }

array key_or_next(const OptionalKey& key) { return key ? *key : KeySequence::default_().next(); }

}  // namespace random

}  // namespace cermet
