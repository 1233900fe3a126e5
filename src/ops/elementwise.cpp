// SPDX-License-Identifier: MIT
// Builders that combine elementwise ops, and the rows that choose, convert or pass on values.
#include <limits>

#include "ops/rules.h"

namespace cermet {

using namespace rules;

constinit const OpRow rows::select = {
    .id = OpId::Select,
    .name = "select",
    .accepts = kAny,
    .dtype = second_dtype,
    .shape = same_shape,
    .derivative = Elementwise{[](auto& c, auto&, int k, auto& g) {
      const array zero = full_like(g, 0);
      return k == 1 ? cermet::select(c.inputs[0], g, zero) : cermet::select(c.inputs[0], zero, g);
    }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{[](auto& cx, auto&, auto a) {
      return select_lane(cx.builder(), truth(cx.builder(), a[0]), a[1], a[2]);
    }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "Elements of x where the condition holds, else of y; three arguments of one shape.",
};

constinit const OpRow rows::cast = {
    .id = OpId::Cast,
    .name = "cast",
    .accepts = kAny,
    .dtype = [](auto& c) { return c.template get<CastParams>().dtype; },
    .shape = same_shape,
    .derivative = Linear{[](auto& c, int, auto& g) {
      const Dtype dtype = c.inputs[0].dtype();
      return c.template get<CastParams>().rounds ? astype(g, dtype) : as_result(g, dtype);
    }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{[](auto& cx, auto& n, auto a) {
      return cast_lane(cx.builder(), a[0], n.input_dtypes[0], n.dtype,
                       n.template get<CastParams>().rounds);
    }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc =
        "The values in another dtype. Floats become integers by truncation, saturating; complex "
        "values lose their imaginary part.",
};

constinit const OpRow rows::stop_gradient = {
    .id = OpId::StopGradient,
    .name = "stop_gradient",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Zero{},
    .vmap = BroadcastVmap{},
    .lowering = CompositeLowering{[](const OpCall& call) { return call.inputs[0]; }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The same values, taken as constants by derivatives.",
};

constinit const OpRow rows::real = {
    .id = OpId::Real,
    .name = "real",
    .accepts = kAny,
    .dtype = real_dtype,
    .shape = same_shape,
    .derivative = Linear{[](auto& c, int, auto& g) { return astype(g, c.inputs[0].dtype()); }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{[](auto&, auto&, auto a) -> Lane { return {a[0].re}; }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The real part.",
};

constinit const OpRow rows::imag = {
    .id = OpId::Imag,
    .name = "imag",
    .accepts = kAny,
    .dtype = real_dtype,
    .shape = same_shape,
    .derivative = Linear{[](auto& c, int, auto& g) {
      const array& x = c.inputs[0];
      if (!is_complex(x.dtype())) return full_like(x, 0);
      const array i = cermet::full(x.shape(), number(std::complex<double>(0, 1)), x.dtype());
      return astype(g, x.dtype()) * i;
    }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{[](auto& cx, auto&, auto a) -> Lane {
      const Dtype dtype = cx.builder().dtype(a[0].re);
      return {a[0].im == ir::kNone ? cx.builder().constant(dtype, 0) : a[0].im};
    }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The imaginary part; 0 for real arrays.",
};

constinit const OpRow rows::conjugate = {
    .id = OpId::Conjugate,
    .name = "conjugate",
    .accepts = kAny,
    .dtype = same_dtype,
    .shape = same_shape,
    .derivative = Linear{[](auto&, int, auto& g) { return conjugate_if_complex(g); }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{[](auto& cx, auto&, auto a) -> Lane {
      if (a[0].im == ir::kNone) return a[0];
      return {a[0].re, cx.builder().unary(ir::Code::neg, a[0].im)};
    }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The complex conjugate; real arrays are unchanged.",
};

constinit const OpRow rows::complex_of = {
    .id = OpId::ComplexOf,
    .name = "complex_of",
    .accepts = dtype_set(Dtype::float32, Dtype::float64),
    .dtype = complex_dtype,
    .shape = same_shape,
    .derivative =
        Linear{[](auto&, int k, auto& g) { return k == 0 ? cermet::real(g) : cermet::imag(g); }},
    .vmap = BroadcastVmap{},
    .lowering = MapLowering{[](auto&, auto&, auto a) -> Lane { return {a[0].re, a[1].re}; }},
    .effect = Effect::none,
    .domain = Domain{},
    .max_ulp = 0,
    .doc = "The complex numbers of the given real and imaginary parts.",
};

array complex_of(const array& re, const array& im, const S& s) {
  return make_node(rows::complex_of, pack(re, im), NoParams{}, s);
}

array real(const array& a, const S& s) { return unary(rows::real, a, s); }
array imag(const array& a, const S& s) { return unary(rows::imag, a, s); }
array conjugate(const array& a, const S& s) { return unary(rows::conjugate, a, s); }
array stop_gradient(const array& a, const S& s) { return unary(rows::stop_gradient, a, s); }

array astype(const array& a, Dtype dtype, const S& s) {
  if (a.dtype() == dtype) return a;
  if (const FullParams* params = full_params(a)) return full(a.shape(), params->value, dtype, s);
  return make_node(rows::cast, pack(a), CastParams{.dtype = dtype}, s);
}

array select(const array& condition, const array& x, const array& y, const S& s) {
  CERMET_CHECK(condition.shape() == x.shape() && x.shape() == y.shape(), value, "select",
               "shapes {}, {} and {} differ; where() broadcasts", condition.shape(), x.shape(),
               y.shape());
  CERMET_CHECK(x.dtype() == y.dtype(), dtype, "select", "dtypes {} and {} differ; where() promotes",
               x.dtype(), y.dtype());
  return make_node(rows::select, pack(astype(condition, Dtype::boolean, s), x, y), NoParams{}, s);
}

array where(const array& condition, const array& x, const array& y, const S& s) {
  const Dtype dtype = promote(x.dtype(), y.dtype());
  Shape shape = x.shape();
  if (!(shape == y.shape())) shape = broadcast_shapes("where", shape, y.shape());
  if (!(shape == condition.shape())) shape = broadcast_shapes("where", shape, condition.shape());
  return make_node(rows::select,
                   pack(fit(condition, shape, Dtype::boolean, s), fit(x, shape, dtype, s),
                        fit(y, shape, dtype, s)),
                   NoParams{}, s);
}

array clip(const array& a, const std::optional<array>& low, const std::optional<array>& high,
           const S& s) {
  CERMET_CHECK(low || high, value, "clip", "neither bound is given; give at least one");
  const array raised = low ? maximum(a, *low, s) : a;
  return high ? minimum(raised, *high, s) : raised;
}

array round(const array& a, int decimals, const S& s) {
  if (decimals == 0) return rint(a, s);
  if (!is_inexact(a.dtype()) && decimals > 0) return a;
  // float64 holds the integers of 32 bits exactly, float32 those of 16.
  const bool is_small = size_of(a.dtype()) <= 2;
  const Dtype dtype = is_inexact(a.dtype()) ? a.dtype()
                      : is_small            ? Dtype::float32
                                            : Dtype::float64;
  const array x = astype(a, dtype, s);
  double factor = 1;
  for (int i = std::abs(decimals); i > 0; --i) factor *= 10;
  const array scale = full(x.shape(), number(factor), dtype, s);
  const array rounded = decimals > 0 ? divide(rint(multiply(x, scale, s), s), scale, s)
                                     : multiply(rint(divide(x, scale, s), s), scale, s);
  return astype(rounded, a.dtype(), s);
}

std::vector<array> divmod(const array& a, const array& b, const S& s) {
  const auto [x, y] = broadcast_promote("divmod", a, b, s);
  return {floor_divide(x, y, s), remainder(x, y, s)};
}

std::pair<array, array> broadcast_promote(const char* op, const array& a, const array& b,
                                          const S& s) {
  const Dtype dtype = promote(a.dtype(), b.dtype());
  const Shape shape =
      a.shape() == b.shape() ? a.shape() : broadcast_shapes(op, a.shape(), b.shape());
  return {fit(a, shape, dtype, s), fit(b, shape, dtype, s)};
}

std::vector<array> broadcast_arrays(const Arrays& arrays, const S& s) {
  if (arrays.empty()) return {};
  Shape shape = arrays[0].shape();
  for (const array& a : arrays) shape = broadcast_shapes("broadcast_arrays", shape, a.shape());
  Arrays result;
  for (const array& a : arrays) result.push_back(broadcast_to(a, shape, s));
  return result;
}

array nan_to_num(const array& a, double nan, std::optional<double> posinf,
                 std::optional<double> neginf, const S& s) {
  if (!is_inexact(a.dtype())) return a;
  if (is_complex(a.dtype()))
    return complex_of(nan_to_num(real(a, s), nan, posinf, neginf, s),
                      nan_to_num(imag(a, s), nan, posinf, neginf, s), s);
  const double most = visit_dtype(a.dtype(), []<typename T>(std::type_identity<T>) -> double {
    if constexpr (std::is_same_v<T, Float16>) return 65504;
    else if constexpr (std::is_same_v<T, BFloat16>) return 0x1.fep127;
    else if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::max();
    else return 0;
  });
  const auto constant = [&](double v) { return full({}, number(v), a.dtype(), s); };
  const array low = where(isneginf(a, s), constant(neginf.value_or(-most)), a, s);
  const array both = where(isposinf(a, s), constant(posinf.value_or(most)), low, s);
  return where(isnan(a, s), constant(nan), both, s);
}

namespace {

Dtype bits_of(const char* op, Dtype dtype) {
  CERMET_CHECK(is_floating(dtype), value, op, "the arguments have dtype {}; it takes real numbers",
               name_of(dtype));
  return size_of(dtype) == 2 ? Dtype::int16 : size_of(dtype) == 4 ? Dtype::int32 : Dtype::int64;
}

// Of the inexact dtype that both promote to.
std::pair<array, array> real_operands(const char* op, const array& a, const array& b, const S& s) {
  const Dtype dtype = to_inexact(promote(a.dtype(), b.dtype()));
  bits_of(op, dtype);
  return broadcast_promote(op, astype(a, dtype, s), astype(b, dtype, s), s);
}

}  // namespace

// The sign of zeros and NaN counts, too.
array signbit(const array& a, const S& s) {
  if (!is_inexact(a.dtype())) return less(a, full({}, number(0.0), a.dtype(), s), s);
  const Dtype bits = bits_of("signbit", a.dtype());
  return less(view(a, bits, s), full({}, number(0.0), bits, s), s);
}

array copysign(const array& a, const array& b, const S& s) {
  const auto [x, y] = real_operands("copysign", a, b, s);
  return where(equal(signbit(x, s), signbit(y, s), s), x, negative(x, s), s);
}

// Neighbours of a float are those of its bits as an integer, but around zero.
array nextafter(const array& a, const array& b, const S& s) {
  const auto [x, y] = real_operands("nextafter", a, b, s);
  const Dtype dtype = x.dtype(), bits = bits_of("nextafter", dtype);
  const auto constant = [&](double v, Dtype of) { return full({}, number(v), of, s); };
  const array zero = constant(0, dtype);
  const array away = equal(greater(y, x, s), greater(x, zero, s), s);
  const array step = where(away, constant(1, bits), constant(-1, bits), s);
  const array moved = view(add(view(x, bits, s), step, s), dtype, s);
  const array least = copysign(view(constant(1, bits), dtype, s), y, s);
  const array next = where(equal(x, zero, s), least, moved, s);
  const array any_nan = logical_or(isnan(x, s), isnan(y, s), s);
  return where(any_nan, add(x, y, s), where(equal(x, y, s), y, next, s), s);
}

array hypot(const array& a, const array& b, const S& s) {
  const auto [x, y] = real_operands("hypot", a, b, s);
  const Dtype dtype = x.dtype(), wide = wide_dtype(dtype);
  return as_result(abs(complex_of(astype(x, wide, s), astype(y, wide, s), s), s), dtype, s);
}

array isin(const array& a, const array& values, bool invert, const S& s) {
  const array found =
      any(equal(expand_dims(a, {-1}, s), flatten(values, 0, -1, s), s), {-1}, false, s);
  return invert ? logical_not(found, s) : found;
}

array isclose(const array& a, const array& b, double rtol, double atol, bool equal_nan,
              const S& s) {
  const Dtype dtype = to_inexact(promote(a.dtype(), b.dtype()));
  const auto [x, y] = broadcast_promote("isclose", astype(a, dtype, s), b, s);
  const auto constant = [&](double v) { return full({}, number(v), real_of(dtype), s); };
  const array allowed = add(constant(atol), multiply(constant(rtol), abs(y, s), s), s);
  const array finite = logical_and(isfinite(x, s), isfinite(y, s), s);
  const array near = less_equal(abs(subtract(x, y, s), s), allowed, s);
  array close = where(finite, near, equal(x, y, s), s);
  if (!equal_nan) return close;
  return logical_or(close, logical_and(isnan(x, s), isnan(y, s), s), s);
}

array allclose(const array& a, const array& b, double rtol, double atol, bool equal_nan,
               const S& s) {
  return all(isclose(a, b, rtol, atol, equal_nan, s), {}, false, s);
}

array array_equal(const array& a, const array& b, bool equal_nan, const S& s) {
  if (!(a.shape() == b.shape())) return full({}, number(false), Dtype::boolean, s);
  array same = equal(a, b, s);
  if (equal_nan) same = logical_or(same, logical_and(isnan(a, s), isnan(b, s), s), s);
  return all(same, {}, false, s);
}

}  // namespace cermet
