// SPDX-License-Identifier: MIT
// Rotary position embedding (Su et al., "RoFormer", 2021) as a graph of plain rows: pairs of
// features turn by position * scale / frequency. Positions are integers of 64 bits, frequencies are
// computed in float64 and angles in float32, for float64 arrays in float64.
#include <cmath>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

Dtype angle_dtype(Dtype dtype) { return dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32; }

// 1 / frequency of each pair, in the dtype of angles.
array inverse_frequencies(const OpCall& c) {
  const RopeParams& p = c.get<RopeParams>();
  const Dtype dtype = angle_dtype(c.inputs[0].dtype());
  if (p.has_freqs) return reciprocal(astype(c.inputs.back(), dtype));
  const array pair =
      arange(number(int64_t{0}), number(int64_t{p.dims / 2}), number(int64_t{1}), Dtype::float64);
  return astype(exp2(pair * (-2 * std::log2(p.base) / p.dims)), dtype);
}

// [..., positions, pairs], with one leading axis for per-batch offsets.
array angles(const OpCall& c) {
  const RopeParams& p = c.get<RopeParams>();
  const array& x = c.inputs[0];
  const array& offset = c.inputs[1];
  const Dim& length = x.shape().dim(x.ndim() - 2);
  array position = reshape(
      arange(number(int64_t{0}), number(length), number(int64_t{1}), offset.dtype()), {length, 1});
  ShapeList offset_shape(offset.ndim() == 0 ? 2 : x.ndim(), 1);
  if (offset.ndim() > 0) offset_shape[0] = offset.shape().dim(0);
  position = position + reshape(offset, offset_shape);
  const array real = astype(position, angle_dtype(x.dtype()));
  // Reshaped, it is not built anew: its value may be given at each run.
  const array scaled = p.has_scale ? real * reshape(c.inputs[2], {1, 1}) : real * p.scale;
  return scaled * inverse_frequencies(c);
}

array last_axis_part(const array& a, int64_t first, const Dim& size) {
  PerAxis start = origin_of(a);
  Shape shape = a.shape();
  start.dim(a.ndim() - 1) = first;
  shape.dim(a.ndim() - 1) = size;
  return sized_slice(a, std::move(start), SliceSteps(a.ndim(), 1), std::move(shape));
}

array rope_graph(const OpCall& c) {
  const RopeParams& p = c.get<RopeParams>();
  const Dtype dtype = c.inputs[0].dtype();
  const array x = widened(c.inputs[0]);
  const int64_t pairs = p.dims / 2;
  const Dim& width = x.shape().dim(x.ndim() - 1);
  const array angle = angles(c);
  const array cosine = cos(angle), sine = sin(angle);

  Arrays parts;
  if (p.traditional) {
    const array turned = unflatten(last_axis_part(x, 0, p.dims), -1, {pairs, 2});
    const array first = squeeze(last_axis_part(turned, 0, 1), AxisList{-1});
    const array second = squeeze(last_axis_part(turned, 1, 1), AxisList{-1});
    parts = {flatten(stack({first * cosine - second * sine, first * sine + second * cosine}, -1),
                     -2, -1)};
  } else {
    const array first = last_axis_part(x, 0, pairs), second = last_axis_part(x, pairs, pairs);
    parts = {first * cosine - second * sine, first * sine + second * cosine};
  }
  if (is_less(p.dims, width)) parts.push_back(last_axis_part(x, p.dims, minus(width, p.dims)));
  return as_result(concatenate(parts, -1), dtype);
}

void check_rope(const array& x, int dims, const std::optional<double>& base, const array& offset,
                const std::optional<array>& freqs) {
  const char* op = "rope";
  CERMET_CHECK(x.ndim() >= 3, value, op, "the array has shape {}; it takes at least 3 axes",
               x.shape());
  CERMET_CHECK(is_floating(x.dtype()), dtype, op,
               "the array has dtype {}; it takes floating dtypes", x.dtype());
  CERMET_CHECK(dims > 0 && dims % 2 == 0 && !is_less(x.shape().dim(x.ndim() - 1), dims), value, op,
               "dims is {}; it must be even, > 0 and at most {}, the size of the last axis", dims,
               x.shape().dim(x.ndim() - 1).value);
  CERMET_CHECK(base.has_value() != freqs.has_value(), value, op,
               "{} of base and freqs are given; give one of them", base ? "both" : "none");
  CERMET_CHECK(!base || *base > 0, value, op, "base is {}; it must be > 0", *base);
  CERMET_CHECK(is_integer(offset.dtype()), dtype, op, "the offset has dtype {}; it must be integer",
               offset.dtype());
  const bool is_scalar = offset.ndim() == 0;
  CERMET_CHECK(
      is_scalar || (offset.ndim() == 1 && (same_size(offset.shape().dim(0), x.shape().dim(0)) ||
                                           same_size(offset.shape().dim(0), 1))),
      value, op, "the offset has shape {}; it must be one number, or one for each of {}",
      offset.shape(), x.shape().dim(0).value);
  CERMET_CHECK(!freqs || (freqs->ndim() == 1 && same_size(freqs->shape().dim(0), dims / 2)), value,
               op, "freqs has shape {}; it must be ({},), half of dims", freqs->shape(), dims / 2);
}

}  // namespace

constinit const OpRow rows::rope = {
    .id = OpId::Rope,
    .name = "rope",
    .accepts = kFloats | kIntegers,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Derived{},
    .vmap = DerivedVmap{},
    .lowering = CompositeLowering{rope_graph},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 8,
    .doc =
        "Rotary position embedding of the first dims features; positions run along the last axis "
        "but one, from the offset on.",
};

array fast::rope(const array& x, int dims, bool traditional, std::optional<double> base,
                 const Number& scale, const array& offset, const std::optional<array>& freqs,
                 const S& s) {
  check_rope(x, dims, base, offset, freqs);
  constexpr double kUnused = 1;
  RopeParams p{.dims = dims, .traditional = traditional, .base = base.value_or(kUnused)};
  const Dtype angle = angle_dtype(x.dtype());
  const Dtype position = offset.dtype() == Dtype::uint64 ? Dtype::uint64 : Dtype::int64;
  Arrays inputs{x, astype(offset, position, s)};
  p.has_scale = scale.expr != 0;
  if (p.has_scale) inputs.push_back(full({}, scale, angle, s));
  else p.scale = convert_number(scale, Dtype::float64).real_imag.real();
  p.has_freqs = freqs.has_value();
  if (freqs) inputs.push_back(astype(*freqs, angle, s));
  return make_node(rows::rope, std::move(inputs), p, s);
}

array fast::rope(const array& x, int dims, bool traditional, std::optional<double> base,
                 double scale, const array& offset, const std::optional<array>& freqs, const S& s) {
  return rope(x, dims, traditional, base, number(scale), offset, freqs, s);
}

}  // namespace cermet
