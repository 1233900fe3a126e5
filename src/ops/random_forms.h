// SPDX-License-Identifier: MIT
// random of the C++ API: keys may be left out, and are then drawn from a sequence; numbers may stand for
// arrays. On top of ops.h, as call_forms.h.
#pragma once

#include <mutex>

#include "ops/operators.h"

namespace cermet::random {

using OptionalKey = std::optional<array>;

// Keys without end from a seed. Any thread may draw.
class KeySequence {
 public:
  explicit KeySequence(uint64_t seed);
  void seed(uint64_t seed);
  array next();
  static KeySequence& default_();  // of draws without a key

 private:
  std::mutex lock_;
  array key_;
};
void seed(uint64_t seed);  // of the default sequence
array key_or_next(const OptionalKey& key);

inline std::pair<array, array> split(const array& key, const S& s = {}) {
  const Arrays halves = split_pair(key, s);
  return {halves[0], halves[1]};
}

inline array bits(const Shape& shape, int width, const OptionalKey& key = {}, const S& s = {}) {
  return bits(shape, width, key_or_next(key), s);
}
inline array bits(const Shape& shape, const OptionalKey& key = {}, const S& s = {}) {
  return bits(shape, 4, key_or_next(key), s);
}

inline array uniform(const array& low, const array& high, const Shape& shape,
                     Dtype dtype = Dtype::float32, const OptionalKey& key = {}, const S& s = {}) {
  return uniform(low, high, shape, dtype, key_or_next(key), s);
}
template <Scalar T, Scalar U>
array uniform(T low, U high, const Shape& shape, Dtype dtype = Dtype::float32,
              const OptionalKey& key = {}, const S& s = {}) {
  return uniform(array(low, dtype), array(high, dtype), shape, dtype, key_or_next(key), s);
}
inline array uniform(const Shape& shape, Dtype dtype, const OptionalKey& key = {},
                     const S& s = {}) {
  return uniform(0, 1, shape, dtype, key, s);
}
inline array uniform(const Shape& shape, const OptionalKey& key = {}, const S& s = {}) {
  return uniform(shape, Dtype::float32, key, s);
}

inline array normal(const Shape& shape, Dtype dtype, const std::optional<array>& loc,
                    const std::optional<array>& scale, const OptionalKey& key, const S& s = {}) {
  return normal(shape, dtype, loc, scale, key_or_next(key), s);
}
template <std::floating_point T>
array normal(const Shape& shape, Dtype dtype, T loc, T scale, const OptionalKey& key = {},
             const S& s = {}) {
  return normal(shape, dtype, std::optional(array(loc, dtype)), std::optional(array(scale, dtype)),
                key_or_next(key), s);
}
template <std::floating_point T>
array normal(const Shape& shape, T loc, T scale, const OptionalKey& key = {}, const S& s = {}) {
  return normal(shape, Dtype::float32, loc, scale, key, s);
}
inline array normal(const Shape& shape, Dtype dtype, const OptionalKey& key = {}, const S& s = {}) {
  return normal(shape, dtype, std::optional<array>(), std::optional<array>(), key_or_next(key), s);
}
inline array normal(const Shape& shape, const OptionalKey& key = {}, const S& s = {}) {
  return normal(shape, Dtype::float32, key, s);
}

inline array randint(const array& low, const array& high, const Shape& shape,
                     Dtype dtype = Dtype::int32, const OptionalKey& key = {}, const S& s = {}) {
  return randint(low, high, shape, dtype, key_or_next(key), s);
}
template <Scalar T, Scalar U>
array randint(T low, U high, const Shape& shape, Dtype dtype = Dtype::int32,
              const OptionalKey& key = {}, const S& s = {}) {
  return randint(array(low, dtype), array(high, dtype), shape, dtype, key_or_next(key), s);
}

inline array bernoulli(const array& p, const Shape& shape, const OptionalKey& key = {},
                       const S& s = {}) {
  return bernoulli(p, std::optional<Shape>(shape), key_or_next(key), s);
}
inline array bernoulli(const array& p, const OptionalKey& key = {}, const S& s = {}) {
  return bernoulli(p, std::optional<Shape>(), key_or_next(key), s);
}
template <Scalar T>
array bernoulli(T p, const OptionalKey& key = {}, const S& s = {}) {
  return bernoulli(array(static_cast<float>(p)), key, s);
}
template <Scalar T>
array bernoulli(T p, const Shape& shape, const OptionalKey& key = {}, const S& s = {}) {
  return bernoulli(array(static_cast<float>(p)), shape, key, s);
}
inline array bernoulli(const OptionalKey& key = {}, const S& s = {}) {
  return bernoulli(0.5f, key, s);
}

inline array truncated_normal(const array& lower, const array& upper, const Shape& shape,
                              Dtype dtype = Dtype::float32, const OptionalKey& key = {},
                              const S& s = {}) {
  return truncated_normal(lower, upper, std::optional<Shape>(shape), dtype, key_or_next(key), s);
}
inline array truncated_normal(const array& lower, const array& upper, Dtype dtype = Dtype::float32,
                              const OptionalKey& key = {}, const S& s = {}) {
  return truncated_normal(lower, upper, std::optional<Shape>(), dtype, key_or_next(key), s);
}

inline array gumbel(const Shape& shape, Dtype dtype = Dtype::float32, const OptionalKey& key = {},
                    const S& s = {}) {
  return gumbel(shape, dtype, key_or_next(key), s);
}

inline array categorical(const array& logits, int axis, const Shape& shape,
                         const OptionalKey& key = {}, const S& s = {}) {
  return categorical(logits, axis, std::optional<Shape>(shape), std::optional<Dim>(),
                     key_or_next(key), s);
}
inline array categorical(const array& logits, int axis, int num_samples,
                         const OptionalKey& key = {}, const S& s = {}) {
  return categorical(logits, axis, std::optional<Shape>(), std::optional<Dim>(num_samples),
                     key_or_next(key), s);
}
inline array categorical(const array& logits, int axis = -1, const OptionalKey& key = {},
                         const S& s = {}) {
  return categorical(logits, axis, std::optional<Shape>(), std::optional<Dim>(), key_or_next(key),
                     s);
}

template <std::floating_point T>
array laplace(const Shape& shape, Dtype dtype, T loc, T scale, const OptionalKey& key = {},
              const S& s = {}) {
  return laplace(shape, dtype, static_cast<double>(loc), static_cast<double>(scale),
                 key_or_next(key), s);
}
template <std::floating_point T>
array laplace(const Shape& shape, T loc, T scale, const OptionalKey& key = {}, const S& s = {}) {
  return laplace(shape, Dtype::float32, loc, scale, key, s);
}
inline array laplace(const Shape& shape, Dtype dtype, const OptionalKey& key = {},
                     const S& s = {}) {
  return laplace(shape, dtype, 0.0, 1.0, key, s);
}
inline array laplace(const Shape& shape, const OptionalKey& key = {}, const S& s = {}) {
  return laplace(shape, Dtype::float32, 0.0, 1.0, key, s);
}

}  // namespace cermet::random
