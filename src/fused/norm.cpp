// SPDX-License-Identifier: MIT
// Layer norm and RMS norm over the last axis, as graphs of plain rows: the schedule makes one
// kernel of each, so these functions and the same formula spelled out give the same code. Halves
// are normalised in float32 and rounded once, at the end.
#include "ops/rules.h"

namespace cermet {

using namespace rules;

namespace {

constexpr double kOne = 1;

Dtype result_dtype(const OpCall& call) {
  Dtype dtype = call.inputs[0].dtype();
  for (const array& input : std::span<const array>(call.inputs).subspan(1))
    dtype = promote(dtype, input.dtype());
  return dtype;
}

// x / sqrt(mean(x²) + eps)
array over_root_mean_square(const array& x, double eps) {
  return x * rsqrt(mean(square(x), AxisList{-1}, true) + eps);
}

array rms_norm_graph(const OpCall& c) {
  const array x = over_root_mean_square(widened(c.inputs[0]), c.get<NormParams>().eps);
  return as_result(c.inputs.size() > 1 ? x * widened(c.inputs[1]) : x, result_dtype(c));
}

array layer_norm_graph(const OpCall& c) {
  const array x = widened(c.inputs[0]);
  array y = over_root_mean_square(x - mean(x, AxisList{-1}, true), c.get<NormParams>().eps);
  if (c.inputs.size() > 1) y = y * widened(c.inputs[1]);
  if (c.inputs.size() > 2) y = y + widened(c.inputs[2]);
  return as_result(y, result_dtype(c));
}

// With v the centred x, r = 1 / sqrt(mean(v²) + eps) and h the cotangent of v r, that of x is
// r (h - mean(h) - v r² mean(h v)). The graph's own derivative takes the mean from what is r (h - ...) without
// it, which waits for a pass over the row more; here both means come with the variance.
array layer_norm_vjp(const OpCall& c, const array&, int k, const array& g) {
  const array& input = c.inputs[static_cast<size_t>(k)];
  const array cotangent = widened(g);
  if (k == 2) return as_result(sum_to(cotangent, input.shape()), input.dtype());
  const array x = widened(c.inputs[0]);
  const array centred = x - mean(x, AxisList{-1}, true);
  const array scale = rsqrt(mean(square(centred), AxisList{-1}, true) + c.get<NormParams>().eps);
  if (k == 1) return as_result(sum_to(cotangent * (centred * scale), input.shape()), input.dtype());
  const array h = c.inputs.size() > 1 ? cotangent * widened(c.inputs[1]) : cotangent;
  const array along = mean(h * centred, AxisList{-1}, true) * square(scale);
  return as_result((h - mean(h, AxisList{-1}, true) - centred * along) * scale, input.dtype());
}

// Integers take the dtype of the weight or bias.
array checked_input(const char* op, const array& x, const std::optional<array>& weight,
                    const std::optional<array>& bias, double eps, const S& s) {
  CERMET_CHECK(eps >= 0, value, op, "eps is {}; it must be at least 0", eps);
  if (is_floating(x.dtype())) return x;
  Dtype dtype = x.dtype();
  for (const auto* vector : {&weight, &bias})
    if (*vector) dtype = promote(dtype, (*vector)->dtype());
  CERMET_CHECK(is_floating(dtype), dtype, op,
               "dtype {} is given; it takes floating dtypes, and integers with a floating weight",
               x.dtype());
  return astype(x, dtype, s);
}

void check_vector(const char* op, const char* name, const std::optional<array>& vector,
                  const array& x) {
  CERMET_CHECK(x.ndim() > 0, value, op, "the array has no axes; it takes at least 1");
  if (!vector) return;
  const Dim& size = x.shape().dim(x.ndim() - 1);
  CERMET_CHECK(vector->ndim() == 1 && same_size(vector->shape().dim(0), size), value, op,
               "the {} has shape {}; it must be ({},), as long as the last axis of the array", name,
               vector->shape(), size.value);
  CERMET_CHECK(is_floating(vector->dtype()), dtype, op, "the {} has dtype {}; it must be floating",
               name, vector->dtype());
}

}  // namespace

#define CERMET_NORM_ROW(enumerator, row_name, build, vjp, text) \
  constinit const OpRow rows::row_name = {                 \
      .id = OpId::enumerator,                              \
      .name = #row_name,                                   \
      .accepts = kFloats,                                  \
      .dtype = result_dtype,                               \
      .shape = same_shape,                                 \
      .derivative = Derived{vjp},                          \
      .vmap = DerivedVmap{},                               \
      .lowering = CompositeLowering{build},                \
      .effect = Effect::none,                              \
      .domain = Domain{},                                  \
      .max_ulp = 8,                                        \
      .doc = text,                                         \
  };
CERMET_NORM_ROW(LayerNorm, layer_norm, layer_norm_graph, layer_norm_vjp,
                "(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; weight and "
                "bias may be left out.")
CERMET_NORM_ROW(RmsNorm, rms_norm, rms_norm_graph, nullptr,
                "x / sqrt(mean(x²) + eps) * weight over the last axis; weight may be left out.")
#undef CERMET_NORM_ROW

namespace fast {

array rms_norm(const array& x, const std::optional<array>& weight, double eps, const S& s) {
  check_vector("rms_norm", "weight", weight, x);
  Arrays inputs{checked_input("rms_norm", x, weight, {}, eps, s)};
  if (weight) inputs.push_back(*weight);
  return make_node(rows::rms_norm, std::move(inputs), NormParams{eps}, s);
}

array layer_norm(const array& x, const std::optional<array>& weight,
                 const std::optional<array>& bias, double eps, const S& s) {
  check_vector("layer_norm", "weight", weight, x);
  check_vector("layer_norm", "bias", bias, x);
  Arrays inputs{checked_input("layer_norm", x, weight, bias, eps, s)};
  if (weight) inputs.push_back(*weight);
  if (!weight && bias) inputs.push_back(full(bias->shape(), number(kOne), bias->dtype(), s));
  if (bias) inputs.push_back(*bias);
  return make_node(rows::layer_norm, std::move(inputs), NormParams{eps}, s);
}

}  // namespace fast

}  // namespace cermet
