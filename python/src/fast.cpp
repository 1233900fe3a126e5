// SPDX-License-Identifier: MIT
// The submodule fast: other spellings of kernels that plain ops get, too. Signatures are MLX's with
// defaults where MLX has none.
#include <cmath>

#include "bind.h"

namespace cermet::python {

namespace {

using nb::arg;
using nb::handle;
using OptionalArray = std::optional<array>;

OptionalArray optional_array(handle object) {
  return object.is_none() ? OptionalArray() : OptionalArray(to_array(object));
}

array offset_array(handle offset) {
  if (!is_int(offset)) return to_array(offset);
  return full(Shape{}, to_typed_number("rope", offset, Dtype::int32).number, Dtype::int32);
}

array attention(const array& q, const array& k, const array& v, std::optional<Number> scale,
                handle mask, handle sinks, bool, handle stream) {
  constexpr const char* op = "scaled_dot_product_attention";
  CERMET_CHECK(q.ndim() == 4, value, op, "q has shape {}; it must be (batch, heads, length, width)",
               q.shape().to_string());
  const Number factor = scale ? *scale : number(1.0 / std::sqrt(static_cast<double>(q.shape(-1))));
  std::string kind;
  OptionalArray values;
  if (nb::isinstance<nb::str>(mask)) {
    kind = nb::cast<std::string>(mask);
    CERMET_CHECK(kind == "causal", value, op, "mask is '{}'; it must be 'causal', an array or None",
                 kind);
  } else {
    values = optional_array(mask);
  }
  return fast::scaled_dot_product_attention(q, k, v, factor, kind, values, optional_array(sinks),
                                            to_stream_arg(stream));
}

}  // namespace

void init_fast(nb::module_& parent) {
  nb::module_ m = submodule(parent, "fast", "Fused kernels by name; plain ops get the same ones.");
  m.def(
      "rms_norm",
      [](const array& x, handle weight, double eps, handle s) {
        return fast::rms_norm(x, optional_array(weight), eps, to_stream_arg(s));
      },
      arg("x"), arg("weight").none(), arg("eps") = 1e-5, nb::kw_only(), arg("stream") = nb::none(),
      "x / sqrt(mean(x * x) + eps) * weight over the last axis.");
  m.def(
      "layer_norm",
      [](const array& x, handle weight, handle bias, double eps, handle s) {
        return fast::layer_norm(x, optional_array(weight), optional_array(bias), eps,
                                to_stream_arg(s));
      },
      arg("x"), arg("weight").none(), arg("bias").none(), arg("eps") = 1e-5, nb::kw_only(),
      arg("stream") = nb::none(),
      "(x - mean) / sqrt(var + eps) * weight + bias over the last axis.");
  m.def(
      "rope",
      [](const array& a, int dims, bool traditional, std::optional<double> base,
         const Number& scale, handle offset, handle freqs, handle s) {
        return fast::rope(a, dims, traditional, base, scale, offset_array(offset),
                          optional_array(freqs), to_stream_arg(s));
      },
      arg("a"), arg("dims"), nb::kw_only(), arg("traditional") = false,
      arg("base").none() = 10000.0, arg("scale") = 1.0, arg("offset") = 0,
      arg("freqs") = nb::none(), arg("stream") = nb::none(),
      "Rotary positions on the first dims features of the last axis; exactly one of base and "
      "freqs.");
  m.def("scaled_dot_product_attention", &attention, arg("q"), arg("k"), arg("v"), nb::kw_only(),
        arg("scale") = nb::none(), arg("mask") = nb::none(), arg("sinks") = nb::none(),
        arg("force_fused") = false, arg("stream") = nb::none(),
        "softmax(scale * q @ k.T + mask) @ v for (batch, heads, length, width); scale 1 / "
        "sqrt(width) "
        "unless given; mask: 'causal', booleans (true: look) or numbers to add.");
  m.def(
      "cross_entropy",
      [](const array& logits, const array& targets, handle s) {
        return fast::cross_entropy(logits, targets, to_stream_arg(s));
      },
      arg("logits"), arg("targets"), nb::kw_only(), arg("stream") = nb::none(),
      "logsumexp(logits) - logits[target] over the last axis, for class indices of the other axes' "
      "shape; float32 for halves.");
}

}  // namespace cermet::python
