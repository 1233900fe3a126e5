// SPDX-License-Identifier: MIT
#include "kernel/block_eval.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "base/error.h"

#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CERMET_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CERMET_CLONES
#endif
#define CERMET_INLINE __attribute__((always_inline)) inline

namespace cermet::ir {

namespace {

template <typename T, typename R, typename F>
CERMET_INLINE void loop(void* to, const void* a, const void* b, const void* c, F f) {
  R* __restrict__ r = static_cast<R*>(__builtin_assume_aligned(to, 64));
  const T* __restrict__ x = static_cast<const T*>(__builtin_assume_aligned(a, 64));
  const T* __restrict__ y = static_cast<const T*>(__builtin_assume_aligned(b, 64));
  const T* __restrict__ z = static_cast<const T*>(__builtin_assume_aligned(c, 64));
  for (int i = 0; i < BlockEval::kBlock; ++i) r[i] = f(x[i], y[i], z[i]);
}

template <typename T>
T scale(T x, T n) {
  if (std::isnan(n) || std::isnan(x)) return x + n;
  return std::ldexp(x, static_cast<int>(n));
}

// x · 2^n is exact in double, so the cast rounds once.
CERMET_INLINE float scale(float x, float n) {
  const double safe = n == n ? n : 0;
  const int64_t exponent = static_cast<int64_t>(safe) + 1023;
  double power;
  const int64_t bits = exponent << 52;
  std::memcpy(&power, &bits, sizeof power);
  return n == n ? static_cast<float>(static_cast<double>(x) * power) : n;
}

// The codes that real and integer dtypes share. Gives false for another code.
template <typename T>
CERMET_INLINE bool any_step(Code code, void* to, const void* a, const void* b, const void* c) {
  using U = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                               std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>;
  switch (code) {
    case Code::add: loop<U, U>(to, a, b, c, [](U x, U y, U) -> U { return x + y; }); return true;
    case Code::sub: loop<U, U>(to, a, b, c, [](U x, U y, U) -> U { return x - y; }); return true;
    case Code::mul: loop<U, U>(to, a, b, c, [](U x, U y, U) -> U { return x * y; }); return true;
    case Code::neg: loop<U, U>(to, a, b, c, [](U x, U, U) -> U { return -x; }); return true;
    case Code::eq: loop<T, bool>(to, a, b, c, [](T x, T y, T) { return x == y; }); return true;
    case Code::ne: loop<T, bool>(to, a, b, c, [](T x, T y, T) { return x != y; }); return true;
    case Code::lt: loop<T, bool>(to, a, b, c, [](T x, T y, T) { return x < y; }); return true;
    case Code::le: loop<T, bool>(to, a, b, c, [](T x, T y, T) { return x <= y; }); return true;
    default: return false;
  }
}

template <typename T>
CERMET_INLINE bool real_step(Code code, void* to, const void* a, const void* b, const void* c) {
  switch (code) {
    case Code::div: loop<T, T>(to, a, b, c, [](T x, T y, T) { return x / y; }); return true;
    case Code::rem:
      loop<T, T>(to, a, b, c, [](T x, T y, T) { return std::fmod(x, y); });
      return true;
    case Code::abs: loop<T, T>(to, a, b, c, [](T x, T, T) { return std::fabs(x); }); return true;
    case Code::fma:
      loop<T, T>(to, a, b, c, [](T x, T y, T z) { return std::fma(x, y, z); });
      return true;
    case Code::sqrt: loop<T, T>(to, a, b, c, [](T x, T, T) { return std::sqrt(x); }); return true;
    case Code::floor: loop<T, T>(to, a, b, c, [](T x, T, T) { return std::floor(x); }); return true;
    case Code::ceil: loop<T, T>(to, a, b, c, [](T x, T, T) { return std::ceil(x); }); return true;
    case Code::trunc: loop<T, T>(to, a, b, c, [](T x, T, T) { return std::trunc(x); }); return true;
    case Code::rint:
      loop<T, T>(to, a, b, c, [](T x, T, T) { return std::nearbyint(x); });
      return true;
    case Code::fract:
      loop<T, T>(to, a, b, c, [](T x, T, T) { return x - std::floor(x); });
      return true;
    case Code::scale2:
      loop<T, T>(to, a, b, c, [](T x, T y, T) { return scale(x, y); });
      return true;
    default: return any_step<T>(code, to, a, b, c);
  }
}

template <typename T>
CERMET_INLINE bool integer_step(Code code, void* to, const void* a, const void* b, const void* c) {
  constexpr T kMask = 8 * sizeof(T) - 1;
  switch (code) {
    case Code::bit_and:
      loop<T, T>(to, a, b, c, [](T x, T y, T) -> T { return x & y; });
      return true;
    case Code::bit_or: loop<T, T>(to, a, b, c, [](T x, T y, T) -> T { return x | y; }); return true;
    case Code::bit_xor:
      loop<T, T>(to, a, b, c, [](T x, T y, T) -> T { return x ^ y; });
      return true;
    case Code::bit_not: loop<T, T>(to, a, b, c, [](T x, T, T) -> T { return ~x; }); return true;
    case Code::shl:
      loop<T, T>(to, a, b, c, [](T x, T y, T) -> T { return x << (y & kMask); });
      return true;
    case Code::shr:
      loop<T, T>(to, a, b, c, [](T x, T y, T) -> T { return x >> (y & kMask); });
      return true;
    case Code::rotl:
      loop<T, T>(to, a, b, c, [](T x, T y, T) -> T {
        const uint64_t u = static_cast<std::make_unsigned_t<T>>(x), n = y & kMask;
        return static_cast<T>(u << n | u >> ((kMask + 1 - n) & 63));
      });
      return true;
    default: return any_step<T>(code, to, a, b, c);
  }
}

CERMET_INLINE bool bool_step(Code code, void* to, const void* a, const void* b, const void* c) {
  using B = uint8_t;
  switch (code) {
    case Code::bit_and:
      loop<B, B>(to, a, b, c, [](B x, B y, B) -> B { return x & y; });
      return true;
    case Code::bit_or: loop<B, B>(to, a, b, c, [](B x, B y, B) -> B { return x | y; }); return true;
    case Code::bit_xor:
      loop<B, B>(to, a, b, c, [](B x, B y, B) -> B { return x ^ y; });
      return true;
    case Code::bit_not: loop<B, B>(to, a, b, c, [](B x, B, B) -> B { return x ^ 1; }); return true;
    default: return false;
  }
}

template <typename T>
CERMET_INLINE void choose(void* to, const void* cond, const void* a, const void* b) {
  T* __restrict__ r = static_cast<T*>(to);
  const uint8_t* __restrict__ p = static_cast<const uint8_t*>(cond);
  const T* __restrict__ x = static_cast<const T*>(a);
  const T* __restrict__ y = static_cast<const T*>(b);
  for (int i = 0; i < BlockEval::kBlock; ++i) r[i] = p[i] ? x[i] : y[i];
}

// Casts that expansions use: none can be out of range but through NaN, which is not asked for.
template <typename From, typename To>
CERMET_INLINE void convert(void* to, const void* a) {
  loop<From, To>(to, a, a, a, [](From x, From, From) { return static_cast<To>(x); });
}

template <typename From>
CERMET_INLINE bool cast_step(Dtype dtype, void* to, const void* a) {
  switch (dtype) {
    case Dtype::float32: convert<From, float>(to, a); return true;
    case Dtype::float64: convert<From, double>(to, a); return true;
    case Dtype::int32: convert<From, int32_t>(to, a); return true;
    case Dtype::uint32: convert<From, uint32_t>(to, a); return true;
    case Dtype::int64: convert<From, int64_t>(to, a); return true;
    case Dtype::uint64: convert<From, uint64_t>(to, a); return true;
    default: return false;
  }
}

CERMET_CLONES bool run_cast(Dtype dtype, Dtype from, void* to, const void* a) {
  switch (from) {
    case Dtype::float32: return cast_step<float>(dtype, to, a);
    case Dtype::float64: return cast_step<double>(dtype, to, a);
    case Dtype::int32: return cast_step<int32_t>(dtype, to, a);
    case Dtype::uint32: return cast_step<uint32_t>(dtype, to, a);
    case Dtype::int64: return cast_step<int64_t>(dtype, to, a);
    case Dtype::uint64: return cast_step<uint64_t>(dtype, to, a);
    default: return false;
  }
}

CERMET_CLONES bool run_select(Dtype dtype, void* to, const void* a, const void* b, const void* c) {
  switch (size_of(dtype)) {
    case 1: choose<uint8_t>(to, a, b, c); return true;
    case 4: choose<uint32_t>(to, a, b, c); return true;
    case 8: choose<uint64_t>(to, a, b, c); return true;
    default: return false;
  }
}

CERMET_CLONES bool run_arithmetic(Code code, Dtype operand, void* to, const void* a, const void* b,
                                  const void* c) {
  switch (operand) {
    case Dtype::boolean: return bool_step(code, to, a, b, c);
    case Dtype::float32: return real_step<float>(code, to, a, b, c);
    case Dtype::float64: return real_step<double>(code, to, a, b, c);
    case Dtype::int32: return integer_step<int32_t>(code, to, a, b, c);
    case Dtype::uint32: return integer_step<uint32_t>(code, to, a, b, c);
    case Dtype::int64: return integer_step<int64_t>(code, to, a, b, c);
    case Dtype::uint64: return integer_step<uint64_t>(code, to, a, b, c);
    default: return false;
  }
}

}  // namespace

BlockEval::BlockEval(const Kernel& kernel, ExprId root) {
  std::vector<int> where(kernel.exprs.size(), -1), last(kernel.exprs.size(), -1);
  std::vector<char> needed(kernel.exprs.size(), 0);
  needed[root] = 1;
  for (ExprId id = root; id >= 0; --id)
    if (needed[id])
      for (ExprId operand : kernel[id].operands) {
        needed[operand] = 1;
        if (last[operand] < 0) last[operand] = id;
      }
  std::vector<int> free;
  const auto new_slot = [&] {
    slots_.emplace_back();
    return static_cast<int>(slots_.size()) - 1;
  };
  inputs_.resize(kernel.params.size());
  for (int& input : inputs_) input = new_slot();
  for (ExprId id = 0; id <= root; ++id) {
    if (!needed[id]) continue;
    const Expr& e = kernel[id];
    if (e.kind == ExprKind::scalar) {
      where[id] = inputs_[e.id];
    } else if (e.kind == ExprKind::constant) {
      where[id] = new_slot();
      fill(where[id], e.dtype, e.bits);
    } else {
      if (free.empty()) free.push_back(new_slot());
      where[id] = free.back();
      free.pop_back();
      const bool rare = e.kind == ExprKind::rare;
      const auto operand = [&](size_t i) { return e.operands[std::min(i, e.operands.size() - 1)]; };
      steps_.push_back({rare ? Code::select : e.code, e.dtype, kernel[operand(9)].dtype, where[id],
                        where[operand(0)], where[operand(rare ? 2 : 1)],
                        where[operand(rare ? 1 : 2)]});
      for (size_t i = 0; i < e.operands.size(); ++i) {
        const ExprId o = e.operands[i];
        const bool temporary =
            kernel[o].kind != ExprKind::scalar && kernel[o].kind != ExprKind::constant;
        if (temporary && last[o] == id && where[o] >= 0) {
          free.push_back(where[o]);
          last[o] = -1;
        }
      }
    }
  }
  root_ = where[root];
}

void BlockEval::fill(int slot, Dtype dtype, uint64_t bits) {
  const size_t size = size_of(dtype);
  for (int i = 0; i < kBlock; ++i) std::memcpy(slots_[slot].bytes + i * size, &bits, size);
}

void BlockEval::evaluate() {
  for (const Step& s : steps_)
    step(s.code, s.dtype, s.from, slot(s.to), slot(s.a), slot(s.b), slot(s.c));
}

void BlockEval::step(Code code, Dtype dtype, Dtype from, void* to, const void* a, const void* b,
                     const void* c) {
  bool done = true;
  if (code == Code::bitcast) std::memcpy(to, a, size_of(dtype) * kBlock);
  else if (code == Code::cast) done = run_cast(dtype, from, to, a);
  else if (code == Code::select) done = run_select(dtype, to, a, b, c);
  else done = run_arithmetic(code, from, to, a, b, c);
  CERMET_INTERNAL_CHECK(done, "block_eval cannot run {} of {}", name_of(code), name_of(from));
}

}  // namespace cermet::ir
