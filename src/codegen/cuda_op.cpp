// SPDX-License-Identifier: MIT
#include "codegen/cuda_op.h"

#include <cmath>

#include "base/error.h"
#include "kernel/scalar_ops.h"

namespace cermet::codegen {

using ir::Code;

namespace {

using Arguments = std::span<const std::string>;

bool is_signed_integer(Dtype d) { return is_integer(d) && is_signed(d); }

// An integer expression of 32 or 64 bits back to its dtype.
std::string wrapped(Dtype dtype, const std::string& text) {
  if (dtype == Dtype::boolean) return fmt::format("(({}) & 1u) != 0u", text);
  if (dtype == Dtype::int16) return fmt::format("narrowed<i16>({})", text);
  return fmt::format("({})({})", cuda_type(dtype), text);
}

std::string joined(const char* function, Arguments v) {
  std::string text = function;
  text += '(';
  for (size_t i = 0; i < v.size(); ++i) text += (i == 0 ? "" : ", ") + v[i];
  return text + ')';
}

const char* compare_symbol(Code code) {
  switch (code) {
    case Code::eq: return "==";
    case Code::ne: return "!=";
    case Code::lt: return "<";
    default: return "<=";
  }
}

const char* binary_symbol(Code code) {
  switch (code) {
    case Code::add: return "+";
    case Code::sub: return "-";
    case Code::mul: return "*";
    case Code::bit_and: return "&";
    case Code::bit_or: return "|";
    case Code::bit_xor: return "^";
    default: return nullptr;
  }
}

// Wrapping arithmetic is unsigned, in 32 bits at least so that no promoted product overflows.
std::string integer(Code code, Dtype dtype, Arguments v) {
  const bool sign = is_signed_integer(dtype);
  const char* wide = size_of(dtype) == 8 ? "u64" : "u32";
  const char* exact = dtype == Dtype::boolean ? "u8" : cuda_type(dtype);
  const auto raw = [&](size_t i) { return fmt::format("({}){}", wide, v[i]); };
  const auto count = [&] { return fmt::format("({} & {}u)", raw(1), 8 * size_of(dtype) - 1); };
  if (const char* symbol = binary_symbol(code))
    return wrapped(dtype, fmt::format("{} {} {}", raw(0), symbol, raw(1)));
  switch (code) {
    case Code::div:
    case Code::rem:
      return wrapped(dtype, joined(fmt::format("{}_of<{}>", name_of(code), exact).c_str(), v));
    case Code::min: return joined("min_of", v);
    case Code::max: return joined("max_of", v);
    case Code::neg: return wrapped(dtype, fmt::format("({})0 - {}", wide, raw(0)));
    case Code::abs: return sign ? joined("abs_of", v) : v[0];
    case Code::bit_not: return wrapped(dtype, fmt::format("~{}", raw(0)));
    case Code::shl: return wrapped(dtype, fmt::format("{} << {}", raw(0), count()));
    case Code::shr: return wrapped(dtype, fmt::format("{} >> {}", sign ? v[0] : raw(0), count()));
    case Code::rotl: return joined(fmt::format("rotl_of<{}>", exact).c_str(), v);
    default: break;
  }
  throw_internal(__FILE__, __LINE__, fmt::format("{} of integers", name_of(code)));
}

std::string floating(Code code, Dtype dtype, Arguments v) {
  const bool single = dtype == Dtype::float32;
  const auto either = [&](const char* f, const char* d) { return joined(single ? f : d, v); };
  switch (code) {
    case Code::add:
    case Code::sub:
    case Code::mul: return fmt::format("{} {} {}", v[0], binary_symbol(code), v[1]);
    case Code::div: return either("__fdiv_rn", "__ddiv_rn");
    case Code::rem: return either("fmodf", "fmod");
    case Code::neg: return fmt::format("-{}", v[0]);
    case Code::abs: return either("fabsf", "fabs");
    case Code::fma: return either("__fmaf_rn", "__fma_rn");
    case Code::min: return joined("min_of", v);
    case Code::max: return joined("max_of", v);
    case Code::sqrt: return either("__fsqrt_rn", "__dsqrt_rn");
    case Code::floor: return either("floorf", "floor");
    case Code::ceil: return either("ceilf", "ceil");
    case Code::trunc: return either("truncf", "trunc");
    case Code::rint: return either("rintf", "rint");
    case Code::fract:
      return fmt::format("{}({}, {}({}))", single ? "__fsub_rn" : "__dsub_rn", v[0],
                         single ? "floorf" : "floor", v[0]);
    case Code::scale2:
      return fmt::format("{}({}, saturated<i32>({}))", single ? "ldexpf" : "ldexp", v[0], v[1]);
    default: break;
  }
  throw_internal(__FILE__, __LINE__, fmt::format("{} of floats", name_of(code)));
}

std::string cast(Dtype to, Dtype from, const std::string& x) {
  if (to == from) return x;
  if (is_half(from) || is_half(to))
    return fmt::format("{}_to_{}({})", is_half(from) ? name_of(from) : "float",
                       is_half(to) ? name_of(to) : "float", x);
  if (to == Dtype::boolean) return fmt::format("{} != {}", x, cuda_constant(from, 0));
  if (is_floating(from) && !is_floating(to))
    return fmt::format("saturated<{}>({})", cuda_type(to), x);
  return fmt::format("({}){}", cuda_type(to), x);
}

}  // namespace

const char* cuda_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::boolean: return "bool";
    case Dtype::uint8: return "u8";
    case Dtype::uint16: return "u16";
    case Dtype::uint32: return "u32";
    case Dtype::uint64: return "u64";
    case Dtype::int8: return "i8";
    case Dtype::int16: return "i16";
    case Dtype::int32: return "i32";
    case Dtype::int64: return "i64";
    case Dtype::float16:
    case Dtype::bfloat16: return "u16";
    case Dtype::float32: return "float";
    case Dtype::float64: return "double";
    default: break;
  }
  throw_internal(__FILE__, __LINE__, fmt::format("dtype {} in a kernel", name_of(dtype)));
}

const char* cuda_memory_type(Dtype dtype) {
  return dtype == Dtype::boolean ? "u8" : cuda_type(dtype);
}

std::string cuda_constant(Dtype dtype, uint64_t bits) {
  if (dtype == Dtype::boolean) return bits != 0 ? "true" : "false";
  if (dtype == Dtype::float32 || dtype == Dtype::float64) {
    const double value = ir::to_double(dtype, bits);
    const bool single = dtype == Dtype::float32;
    if (std::isfinite(value)) return fmt::format("({:a}{})", value, single ? "f" : "");
    return fmt::format("bits_as<{}>(({}){:#x}u)", cuda_type(dtype), single ? "u32" : "u64", bits);
  }
  if (dtype == Dtype::int64 && bits < uint64_t{1} << 63) return fmt::format("{}LL", bits);
  if (dtype == Dtype::int32 && bits < uint64_t{1} << 31) return fmt::format("{}", bits);
  return fmt::format("(({}){:#x}ULL)", cuda_type(dtype), bits);
}

std::string cuda_op(Code code, Dtype result, Dtype operand, Arguments v) {
  if (code == Code::cast || code == Code::cast_normal) return cast(result, operand, v[0]);
  if (code == Code::select) return fmt::format("{} ? {} : {}", v[0], v[1], v[2]);
  if (code == Code::bitcast) return fmt::format("bits_as<{}>({})", cuda_type(result), v[0]);
  if (code >= Code::eq && code <= Code::le)
    return fmt::format("{} {} {}", v[0], compare_symbol(code), v[1]);
  return is_floating(operand) ? floating(code, operand, v) : integer(code, operand, v);
}

}  // namespace cermet::codegen
