// SPDX-License-Identifier: MIT
// Random numbers from Threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011), counters in JAX's original order: word w of n comes from the pair (c, c + h), h = ceil(n /
// 2), c = w mod h, its first result for w < h, else its second; a counter past n is 0. Smaller
// widths are the words' bytes in little-endian order. The same key gives the same numbers
// everywhere.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/rules.h"

namespace cermet {

using namespace rules;
using ir::Code;
using ir::ExprId;

namespace {

Dtype bits_dtype(int width) {
  return width == 1   ? Dtype::uint8
         : width == 2 ? Dtype::uint16
         : width == 4 ? Dtype::uint32
                      : Dtype::uint64;
}

// Leading axes of the key are batch axes: each key gives a stream of its own.
Shape bits_shape(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  shape.erase(shape.ndim() - 1);
  for (const Dim& dim : call.get<RandomParams>().shape) shape.push_back(dim);
  return shape;
}

struct KeyedWords {
  ir::Builder& b;
  ExprId key0, key1, half, count;  // half and count: int64

  ExprId word(ExprId w) const {
    const ExprId is_second = b.compare(Code::le, half, w);
    const ExprId first = b.select(is_second, b.sub(w, half), w);
    const ExprId second = b.add(first, half);
    const ExprId zero = b.integer(Dtype::int64, 0);
    const ExprId counter = b.select(b.compare(Code::lt, second, count), second, zero);
    const ExprId pair =
        b.op(Code::threefry, Dtype::uint32,
             {key0, key1, b.cast(first, Dtype::uint32), b.cast(counter, Dtype::uint32)});
    return b.select(is_second, b.get(1, pair), b.get(0, pair));
  }
};

Lane pull_bits(LowerContext& cx, const NodeView& n, const Coords& at) {
  const RandomParams& p = n.get<RandomParams>();
  ir::Builder& b = cx.builder();
  const size_t batch_ndim = at.size() - p.shape.ndim();
  Coords key_at(at.begin(), at.begin() + batch_ndim);
  auto key_word = [&](int64_t i) {
    Coords place = key_at;
    place.push_back({.terms = {}, .offset = i});
    return cx.input(0, place).re;
  };
  const Dim bytes = p.shape.count() * p.width, count = quotient(bytes + 3, 4);
  const KeyedWords words{b, key_word(0), key_word(1), size_expr(cx, quotient(count + 1, 2)),
                         size_expr(cx, count)};
  const std::span<const Coord> place(at.data() + batch_ndim, p.shape.ndim());
  const Strides strides = Layout::contiguous(p.shape).strides;
  const ExprId i = cx.expr(combine(cx, place, strides));
  const Dtype dtype = n.dtype;
  auto constant = [&](Dtype d, int64_t v) { return b.integer(d, v); };
  if (p.width == 4) return {words.word(i)};
  if (p.width == 8) {
    const ExprId first = b.mul(i, constant(Dtype::int64, 2));
    const ExprId low = b.cast(words.word(first), dtype);
    const ExprId high = b.cast(words.word(b.add(first, constant(Dtype::int64, 1))), dtype);
    return {b.logical_or(low, b.op(Code::shl, dtype, {high, constant(dtype, 32)}))};
  }
  const int64_t per_word = 4 / p.width;
  const ExprId word = words.word(b.div(i, constant(Dtype::int64, per_word)));
  const ExprId part = b.cast(b.rem(i, constant(Dtype::int64, per_word)), Dtype::uint32);
  const ExprId shift = b.mul(part, constant(Dtype::uint32, 8 * p.width));
  return {b.cast(b.op(Code::shr, Dtype::uint32, {word, shift}), dtype)};
}

// --- what the distributions share ---

void check_floating(const char* op, Dtype dtype) {
  CERMET_CHECK(is_floating(dtype), dtype, op, "dtype {} is given; it takes floating dtypes", dtype);
}

void check_covers(const char* op, const Shape& shape, const Shape& arguments) {
  CERMET_CHECK(broadcast_shapes(op, shape, arguments) == shape, value, op,
               "shape {} with arguments of shape {}; the arguments must broadcast to it", shape,
               arguments);
}

// Uniform in [0, 1): 32 random bits rounded to float32 over 2^32 (53 over 2^53 for float64), kept below 1.
array unit_uniform(const Shape& shape, Dtype dtype, const array& key, const S& s) {
  if (dtype == Dtype::float64) {
    const array bits = random::bits(shape, 8, key, s);
    const array top = right_shift(bits, full(shape, number(int64_t{11}), Dtype::uint64, s), s);
    return multiply(astype(top, dtype, s), full(shape, number(0x1p-53), dtype, s), s);
  }
  const array bits = astype(random::bits(shape, 4, key, s), Dtype::float32, s);
  const array scaled = multiply(bits, full(shape, number(0x1p-32), Dtype::float32, s), s);
  const array u = astype(scaled, dtype, s);
  const double below_one = dtype == Dtype::float16    ? 1 - 0x1p-11
                           : dtype == Dtype::bfloat16 ? 1 - 0x1p-8
                                                      : 1 - 0x1p-24;
  return minimum(u, full(shape, number(below_one), dtype, s), s);
}

// The words below it, and no others, are those that is_below compares as below p: as a float32, a word never
// falls where it grows. nullopt: p is no number known now, or all words are alike.
std::optional<int64_t> words_below(const array& p) {
  const FullParams* params = full_params(p);
  if (params == nullptr || params->value.expr != 0) return std::nullopt;
  const double bound = convert_number(params->value, p.dtype()).real_imag.real();
  if (!(bound > 0 && bound <= 1 - 0x1p-24)) return std::nullopt;
  // Of the first word and the last, which becomes 2^32.
  uint32_t below = 0, first = std::numeric_limits<uint32_t>::max();
  while (first - below > 1) {
    const uint32_t middle = below + (first - below) / 2;
    (static_cast<double>(static_cast<float>(middle)) < bound * 0x1p32 ? below : first) = middle;
  }
  return first;
}

// unit_uniform(shape, float32) < p. What keeps it below 1 and scales it by a power of two is done to p instead,
// of which there is mostly one number: all of [0, 1) is below what is above its largest.
array is_below(const Shape& shape, const array& p, const array& key, const S& s) {
  const Dtype dtype = promote(Dtype::float32, p.dtype());
  const array words = random::bits(shape, 4, key, s);
  if (const std::optional<int64_t> first = words_below(p))
    return less(words, full({}, number(*first), Dtype::uint32, s), s);
  const array bits = astype(words, Dtype::float32, s);
  const array bound = astype(p, dtype, s);
  const array scaled = multiply(bound, full({}, number(0x1p32), dtype, s), s);
  const array all = less(full({}, number(1 - 0x1p-24), dtype, s), bound, s);
  const double above = std::numeric_limits<double>::infinity();
  return less(bits, where(all, full({}, number(above), dtype, s), scaled, s), s);
}

bool is_number(const array& a, double value) {
  const FullParams* params = full_params(a);
  if (params == nullptr || params->value.expr != 0 || params->value.kind > Number::Kind::floating)
    return false;
  return convert_number(params->value, Dtype::float64).real_imag.real() == value;
}

// u * (high - low) + low
array between(const array& u, const array& low, const array& high, const S& s) {
  if (is_number(low, 0) && is_number(high, 1)) return u;
  return add(multiply(u, subtract(high, low, s), s), low, s);
}

array constant(double value, Dtype dtype, const S& s) { return full({}, number(value), dtype, s); }

// Uniform in (-1, 1), as float32 (float64 numbers are made from it, too: MLX draws them so).
array symmetric_uniform(const Shape& shape, const array& key, const S& s) {
  const array u = unit_uniform(shape, Dtype::float32, key, s);
  return between(u, constant(-(1 - 0x1p-24), Dtype::float32, s), constant(1, Dtype::float32, s), s);
}

array standard_normal(const Shape& shape, Dtype dtype, const array& key, const S& s) {
  const Dtype wide = dtype == Dtype::float64 ? dtype : Dtype::float32;
  const array x = erfinv(astype(symmetric_uniform(shape, key, s), wide, s), s);
  return astype(multiply(x, constant(std::numbers::sqrt2, wide, s), s), dtype, s);
}

array complex_normal(const Shape& shape, Dtype dtype, const array& key, const S& s) {
  Shape pairs = shape;
  pairs.push_back(2);
  const Dtype part = real_of(dtype);
  const array x =
      multiply(standard_normal(pairs, part, key, s), constant(std::numbers::sqrt2 / 2, part, s), s);
  const std::vector<array> parts = split(x, 2, -1, s);
  const array i = full({}, number(std::complex<double>(0, 1)), dtype, s);
  const array re = squeeze(parts[0], AxisList{-1}, s), im = squeeze(parts[1], AxisList{-1}, s);
  return add(re, multiply(im, i, s), s);
}

// x is drawn before loc and scale broadcast it: equal places of x are the same draw.
array scaled(const array& x, const std::optional<array>& loc, const std::optional<array>& scale,
             const S& s) {
  const array stretched = scale ? multiply(x, astype(*scale, x.dtype(), s), s) : x;
  return loc ? add(stretched, astype(*loc, x.dtype(), s), s) : stretched;
}

}  // namespace

constinit const OpRow rows::random_bits = {
    .id = OpId::RandomBits,
    .name = "random_bits",
    .accepts = dtype_set(Dtype::uint32),
    .dtype = [](auto& c) { return bits_dtype(c.template get<RandomParams>().width); },
    .shape = bits_shape,
    .derivative = Zero{},
    .vmap = CustomVmap{[](auto& c, auto, const Dim&) {
      return make_node(rows::random_bits, {c.inputs[0]}, c.params, {});
    }},
    .lowering =
        MoveLowering{pull_bits, [](auto&, auto&, auto&) -> std::optional<Layout> { return {}; },
                     false, true},
    .effect = Effect::none,
    .domain = Domain{0, 100},
    .max_ulp = 0,
    .doc = "Random integers of 1, 2, 4 or 8 bytes from a key [..., 2].",
};

namespace random {

static void check_key(const char* op, const array& key) {
  CERMET_CHECK(key.dtype() == Dtype::uint32, dtype, op,
               "the key has dtype {}; it must be uint32, as random.key() gives", key.dtype());
  CERMET_CHECK(key.ndim() == 1 && same_size(key.shape().dim(0), 2), value, op,
               "the key has shape {}; it must be (2,), as random.key() gives", key.shape());
}

// Of a draw; bits are drawn by words of four bytes at least.
static void check_draw(const char* op, const Shape& shape, Dtype dtype, const array& key) {
  check_key(op, key);
  check_size(op, shape, size_of(dtype) < 4 ? Dtype::uint32 : dtype);
}

array key(uint64_t seed) {
  const uint32_t halves[] = {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  return array::from_data(halves, {2}, Dtype::uint32);
}

array bits(const Shape& shape, int width, const array& key, const S& s) {
  CERMET_CHECK(width == 1 || width == 2 || width == 4 || width == 8, value, "bits",
               "width is {} bytes; use 1, 2, 4 or 8", width);
  check_key("bits", key);
  check_size("bits", shape, bits_dtype(width));
  return make_node(rows::random_bits, {key}, RandomParams{shape, width}, s);
}

array split(const array& key, const Dim& num, const S& s) {
  check_draw("split", {num, 2}, Dtype::uint32, key);
  return bits({num, 2}, 4, key, s);
}

std::vector<array> split_pair(const array& key, const S& s) {
  const array keys = split(key, 2, s);
  const std::vector<array> parts = cermet::split(keys, 2, 0, s);
  return {squeeze(parts[0], AxisList{0}, s), squeeze(parts[1], AxisList{0}, s)};
}

array uniform(const array& low, const array& high, const Shape& shape, Dtype dtype,
              const array& key, const S& s) {
  check_floating("uniform", dtype);
  check_draw("uniform", shape, dtype, key);
  check_covers("uniform", shape, broadcast_shapes("uniform", low.shape(), high.shape()));
  return between(unit_uniform(shape, dtype, key, s), astype(low, dtype, s), astype(high, dtype, s),
                 s);
}

array normal(const Shape& shape, Dtype dtype, const std::optional<array>& loc,
             const std::optional<array>& scale, const array& key, const S& s) {
  CERMET_CHECK(is_inexact(dtype), dtype, "normal",
               "dtype {} is given; it takes floating and complex dtypes", dtype);
  check_draw("normal", shape, dtype, key);
  const array x = is_complex(dtype) ? complex_normal(shape, dtype, key, s)
                                    : standard_normal(shape, dtype, key, s);
  return scaled(x, loc, scale, s);
}

array bernoulli(const array& p, const std::optional<Shape>& shape, const array& key, const S& s) {
  check_floating("bernoulli", p.dtype());
  const Shape result = shape.value_or(p.shape());
  check_draw("bernoulli", result, Dtype::boolean, key);
  check_covers("bernoulli", result, p.shape());
  return is_below(result, p, key, s);
}

array randint(const array& low, const array& high, const Shape& shape, Dtype dtype,
              const array& key, const S& s) {
  CERMET_CHECK(!is_inexact(dtype), dtype, "randint",
               "dtype {} is given; it takes integers and bool", dtype);
  check_draw("randint", shape, dtype, key);
  check_covers("randint", shape, broadcast_shapes("randint", low.shape(), high.shape()));
  const array from = astype(low, Dtype::float32, s);
  const array to =
      maximum(astype(high, Dtype::float32, s), add(from, constant(1, Dtype::float32, s), s), s);
  const array u = unit_uniform(shape, Dtype::float32, key, s);
  return astype(floor(between(u, from, to, s), s), dtype, s);
}

// Of one distribution: for each uniform number, how many of the cumulative sums are not above it. One
// number is drawn for each sample, where Gumbel noise takes one for each logit.
array by_inversion(const array& logits, const Shape& shape, const array& key, const S& s) {
  const Dtype wide = logits.dtype() == Dtype::float64 ? Dtype::float64 : Dtype::float32;
  const array x = astype(flatten(logits, 0, -1, s), wide, s);
  const array weights = exp(subtract(x, max(x, {}, true, s), s), s);
  const array sums = cumsum(weights, 0, false, true, {}, s);
  const array u = astype(unit_uniform(shape, Dtype::float32, key, s), wide, s);
  const array at = multiply(expand_dims(u, {-1}, s), max(sums, {}, true, s), s);
  const array below = astype(sum(less_equal(sums, at, s), {-1}, false, s), Dtype::uint32, s);
  const Number last = number(minus(x.shape().dim(0), 1));
  return minimum(below, full({}, last, Dtype::uint32, s), s);
}

array categorical(const array& logits, int64_t axis, const std::optional<Shape>& shape,
                  const std::optional<Dim>& num_samples, const array& key, const S& s) {
  CERMET_CHECK(!shape || !num_samples, value, "categorical",
               "both shape and num_samples are given; give one of them");
  check_key("categorical", key);
  const int along = normalize_axis("categorical", axis, logits.ndim());
  CERMET_CHECK(!is_zero(logits.shape().dim(along)), value, "categorical",
               "logits of shape {} have no classes along axis {}; give at least one",
               logits.shape(), along);
  Shape rest = logits.shape();
  rest.erase(along);
  if (shape) check_covers("categorical", *shape, rest);
  Shape result = shape.value_or(rest);
  if (num_samples) result.push_back(*num_samples);
  check_size("categorical", result, Dtype::uint32);
  if (same_size(rest.count(), 1) && result.ndim() > 0 && !is_complex(logits.dtype()))
    return by_inversion(logits, result, key, s);
  Shape noise = logits.shape();
  array x = logits;
  int64_t over = along - logits.ndim();  // from the end: new axes come in front
  if (num_samples) {
    noise.push_back(*num_samples);
    x = expand_dims(logits, {-1}, s);
    over = along;
  } else if (shape) {
    noise = *shape;
    noise.insert(shape->ndim() + 1 + static_cast<int>(over), logits.shape().dim(along));
  }
  return argmax(add(gumbel(noise, Dtype::float32, key, s), x, s), over, false, s);
}

array truncated_normal(const array& lower, const array& upper, const std::optional<Shape>& shape,
                       Dtype dtype, const array& key, const S& s) {
  check_floating("truncated_normal", dtype);
  const Shape arguments = broadcast_shapes("truncated_normal", lower.shape(), upper.shape());
  const Shape result = shape.value_or(arguments);
  check_draw("truncated_normal", result, dtype, key);
  check_covers("truncated_normal", result, arguments);
  const Dtype wide = dtype == Dtype::float64 ? dtype : Dtype::float32;
  const array root = constant(std::numbers::sqrt2, wide, s);
  const array low = astype(lower, wide, s), high = astype(upper, wide, s);
  const array u = astype(unit_uniform(result, Dtype::float32, key, s), wide, s);
  const array probability =
      between(u, erf(divide(low, root, s), s), erf(divide(high, root, s), s), s);
  const array x = multiply(root, erfinv(probability, s), s);
  return astype(clip(x, low, high, s), dtype, s);
}

array gumbel(const Shape& shape, Dtype dtype, const array& key, const S& s) {
  check_floating("gumbel", dtype);
  check_draw("gumbel", shape, dtype, key);
  const Dtype wide = dtype == Dtype::float64 ? dtype : Dtype::float32;
  const array u = unit_uniform(shape, wide, key, s);
  return astype(negative(log(negative(log(u, s), s), s), s), dtype, s);
}

array laplace(const Shape& shape, Dtype dtype, double loc, double scale, const array& key,
              const S& s) {
  check_floating("laplace", dtype);
  check_draw("laplace", shape, dtype, key);
  const Dtype wide = dtype == Dtype::float64 ? dtype : Dtype::float32;
  const array x = astype(symmetric_uniform(shape, key, s), wide, s);
  const array sample = multiply(sign(x, s), log1p(negative(abs(x, s), s), s), s);
  const array stretched = scale == 1 ? sample : multiply(sample, constant(scale, wide, s), s);
  return astype(loc == 0 ? stretched : add(stretched, constant(loc, wide, s), s), dtype, s);
}

}  // namespace random

}  // namespace cermet
