// SPDX-License-Identifier: MIT
#include "codegen/cuda_preamble.h"

namespace cermet::codegen {

// Two literals, as one may be too long for a compiler.
const char* const kCudaPreamble = R"(
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define FN __device__ __forceinline__

extern __shared__ __align__(64) char dynamic_shared[];

// --- Scalars.

template <class To, class From>
FN To bits_as(From from) {
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// (T)x. ptxas 13.0 widens a negated 16-bit number without wrapping it: -(-32768) becomes 32768 for what
// divides or shifts it. So the compiler must not see that 32 bits are about to be 16.
template <class T>
FN T narrowed(u64 x) { return (T)x; }
template <>
FN i16 narrowed<i16>(u64 x) {
  u32 low = (u32)x;
#ifdef __CUDA_ARCH__
  asm("" : "+r"(low));
#endif
  return (i16)low;
}

// The least number is its own. ptxas before 13.4 takes every remainder of one for positive.
template <class T>
FN T abs_of(T x) { return narrowed<T>(x < T(0) ? 0 - (u64)x : (u64)x); }
#if defined(__CUDA_ARCH__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1304
template <>
FN i32 abs_of(i32 x) {
  u32 sign = (u32)(x >> 31);
  asm("" : "+r"(sign));
  return (i32)(((u32)x ^ sign) - sign);
}
#endif

template <class T>
FN T div_of(T x, T y) {
  if (y == T(0)) return T(0);
  if (T(-1) < T(0) && y == T(-1)) return narrowed<T>(0 - (u64)x);
  return (T)(x / y);
}

template <class T>
FN T rem_of(T x, T y) {
  if (y == T(0) || (T(-1) < T(0) && y == T(-1))) return T(0);
  return (T)(x % y);
}

template <class T>
FN T rotl_of(T x, T y) {
  const unsigned width = 8 * sizeof(T), n = (unsigned)y & (width - 1);
  const u64 u = (u64)x & (~(u64)0 >> (64 - width));
  return (T)(u << n | u >> ((width - n) & 63));
}
template <>
FN u32 rotl_of(u32 x, u32 y) { return x << (y & 31) | x >> ((0 - y) & 31); }

// Zeros are equal: their signs are joined.
template <class T>
FN T min_of(T x, T y) { return x < y ? x : y; }
template <>
FN float min_of(float x, float y) {
  if (x == y) return bits_as<float>(bits_as<u32>(x) | bits_as<u32>(y));
  return x != x || x < y ? x : y;
}
template <>
FN double min_of(double x, double y) {
  if (x == y) return bits_as<double>(bits_as<u64>(x) | bits_as<u64>(y));
  return x != x || x < y ? x : y;
}
template <class T>
FN T max_of(T x, T y) { return x < y ? y : x; }

// ptxas before 13.4 makes one instruction of two signed minima or maxima and forgets that an operand was
// negated; of unsigned ones it does not. So the compiler must not see that these are signed.
#if defined(__CUDA_ARCH__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1304
FN u32 ordered_as_unsigned(i32 x) {
  u32 bits = (u32)x ^ 0x80000000u;
  asm("" : "+r"(bits));
  return bits;
}
template <>
FN i32 min_of(i32 x, i32 y) {
  return (i32)(min_of(ordered_as_unsigned(x), ordered_as_unsigned(y)) ^ 0x80000000u);
}
template <>
FN i32 max_of(i32 x, i32 y) {
  return (i32)(max_of(ordered_as_unsigned(x), ordered_as_unsigned(y)) ^ 0x80000000u);
}
template <>
FN i16 min_of(i16 x, i16 y) { return (i16)min_of((i32)x, (i32)y); }
template <>
FN i16 max_of(i16 x, i16 y) { return (i16)max_of((i32)x, (i32)y); }
#endif

template <>
FN float max_of(float x, float y) {
  if (x == y) return bits_as<float>(bits_as<u32>(x) & bits_as<u32>(y));
  return x != x || x > y ? x : y;
}
template <>
FN double max_of(double x, double y) {
  if (x == y) return bits_as<double>(bits_as<u64>(x) & bits_as<u64>(y));
  return x != x || x > y ? x : y;
}

// Truncates; NaN gives 0, out of range the nearest.
template <class T, class F>
FN T saturated(F x) {
  constexpr bool sign = T(-1) < T(0);
  constexpr int digits = 8 * (int)sizeof(T) - (sign ? 1 : 0);
  constexpr T most = (T)(~(u64)0 >> (64 - digits));
  constexpr T least = sign ? (T)(-most - 1) : T(0);
  constexpr F limit = F((u64)1 << (digits - 1)) * F(2);
  if (x != x) return T(0);
  if (x >= limit) return most;
  if (x <= F(least)) return least;
  return (T)x;
}

FN float bfloat16_to_float(u16 x) { return bits_as<float>((u32)x << 16); }
FN u16 float_to_bfloat16(float x) {
  const u32 bits = bits_as<u32>(x);
  if (x != x) return (u16)((bits | 0x400000u) >> 16);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#ifdef __CUDA_ARCH__
FN float float16_to_float(u16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
}
FN u16 float_to_float16(float x) {
  u16 narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
  return narrow;
}
#else
// One exact product rebases the exponent and normalises subnormals.
FN float float16_to_float(u16 x) {
  const u32 magnitude = (u32)(x & 0x7fff) << 13, sign = (u32)(x & 0x8000) << 16;
  const u32 scaled = bits_as<u32>(bits_as<float>(magnitude) * 0x1p112f);
  return bits_as<float>((magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : scaled) | sign);
}
// The adder rounds subnormal results: the sum with 0.5 has their last bit as its own.
FN u16 float_to_float16(float x) {
  const u32 bits = bits_as<u32>(x), magnitude = bits & 0x7fffffffu;
  const u16 sign = (u16)(bits >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return (u16)(sign | 0x7e00);
  if (magnitude >= 143u << 23) return (u16)(sign | 0x7c00);
  if (magnitude < 113u << 23)
    return (u16)(sign | (bits_as<u32>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u));
  return (u16)(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}
#endif

struct Pair {
  u32 x0, x1;
};
FN Pair threefry(u32 k0, u32 k1, u32 c0, u32 c1) {
  const u32 keys[3] = {k0, k1, 0x1BD11BDAu ^ k0 ^ k1};
  const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  u32 x0 = c0 + k0, x1 = c1 + k1;
#pragma unroll
  for (int group = 0; group < 5; ++group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int by = rotations[group % 2][i];
      x0 += x1;
      x1 = (x1 << by | x1 >> (32 - by)) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + (u32)group + 1u;
  }
  return {x0, x1};
}
)"
                                  R"(
// --- Folds and merges. S: the states; merge(left, right) gives S.

enum { kTop = 40 };  // of a tree: its result

// Adds block `number` to a pairwise tree; the last one makes it whole.
template <class S, class M>
FN void tree_push(S* tree, S value, u64 number, bool last, M merge) {
  for (u64 bits = last ? number : number & ~(number + 1); bits != 0; bits &= bits - 1)
    value = merge(tree[__ffsll((i64)bits) - 1], value);
  tree[last ? kTop : __ffsll((i64)~number) - 1] = value;
}

// The states of `count` lanes in shared memory, one after another for each block: merged by halving
// and added to the tree. Elements are counted from the fold's first; `group` is that of states[0].
template <int LANES, int BLOCK, class S, class M>
FN void fold_blocks(S* states, int count, S* tree, i64 group, i64 elements, M merge) {
  __syncthreads();
  for (int half = LANES / 2; half > 0; half /= 2) {
    for (int p = threadIdx.x; p < count; p += blockDim.x)
      if (p % LANES < half) states[p] = merge(states[p], states[p + half]);
    if (half > 16) __syncthreads(); else __syncwarp();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const i64 blocks = (elements + BLOCK - 1) / BLOCK;
    i64 number = group / BLOCK;
    for (int at = 0; at < count && number < blocks; at += LANES, ++number)
      tree_push(tree, states[at], (u64)number, number + 1 == blocks, merge);
  }
  __syncthreads();
}

// Thread 0's value, for all; where every thread is done with `shared`.
template <class S>
FN S of_first(const S& value, S* shared) {
  if (threadIdx.x == 0) shared[0] = value;
  __syncthreads();
  const S result = shared[0];
  __syncthreads();
  return result;
}

// Of the states load(from) .. load(to), at least one.
template <class S, class L, class M>
FN S merge_range(i64 from, i64 to, L load, M merge) {
  S tree[kTop + 1];
  for (i64 i = from; i < to; ++i) tree_push(tree, (S)load(i), (u64)(i - from), i + 1 == to, merge);
  return tree[kTop];
}

// The same by all threads: each takes a subtree of a power of two of states.
template <class S, class L, class M>
FN S merge_by_block(S* shared, const S& init, i64 count, L load, M merge) {
  const int thread = threadIdx.x;
  i64 part = 1;
  while (part * blockDim.x < count) part *= 2;
  const i64 from = part * thread;
  const i64 number = (count + part - 1) / part;
  if (from < count) shared[thread] = merge_range<S>(from, min_of(from + part, count), load, merge);
  for (int step = 1; step < number; step *= 2) {
    __syncthreads();
    if (thread % (2 * step) == 0 && thread + step < number)
      shared[thread] = merge(shared[thread], shared[thread + step]);
  }
  __syncthreads();
  const S result = count > 0 ? shared[0] : init;
  __syncthreads();
  return result;
}

// --- Checks.

struct Status {
  i64 site, index, item;
};

struct Failure {
  i64 at = 0x7fffffffffffffff, site = 0, index = 0;
  FN bool any() const { return at != 0x7fffffffffffffff; }
  FN void note(i64 new_at, i64 new_site, i64 new_index) {
    if (any()) return;
    at = new_at;
    site = new_site;
    index = new_index;
  }
};

// The site serves as the lock of the other two; the lowest item stays.
FN void report(Status* status, i64 item, i64 site, i64 index) {
  const u64 locked = (u64)-2;
  u64* const word = (u64*)&status->site;
  u64 old;
  do {
    old = *(volatile u64*)word;
  } while (old == locked || atomicCAS(word, old, locked) != old);
  __threadfence();
  volatile Status* const kept = status;
  if ((i64)old < 0 || item < kept->item) {
    kept->item = item;
    kept->index = index;
    old = (u64)site;
  }
  __threadfence();
  atomicExch(word, old);
}

// Whether a thread's iterations failed: the first of them is reported.
FN bool stops(const Failure& failure, Status* status, i64 item) {
  static __shared__ i64 first;
  if (!__syncthreads_or(failure.any())) return false;
  if (threadIdx.x == 0) first = 0x7fffffffffffffff;
  __syncthreads();
  if (failure.any()) atomicMin(&first, failure.at);
  __syncthreads();
  if (failure.at == first) report(status, item, failure.site, failure.index);
  return true;
}

// Whether an entry before this one failed; blocks of this one may be failing meanwhile.
FN bool failed_before(const Status* status, i64 entry) {
  bool failed = false;
  if (threadIdx.x == 0) {
    const volatile Status* const seen = status;
    if (seen->site >= 0) {
      __threadfence();
      failed = seen->item >> 48 < entry;
    }
  }
  return __syncthreads_or(failed);
}

// --- Templates, see micro.h. Each thread takes ROWS rows of one column.

FN float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }
FN double fused(double x, double y, double z) { return __fma_rn(x, y, z); }
template <class T>
FN T fused(T x, T y, T z) { return (T)((u64)x * (u64)y + (u64)z); }

template <class T>
FN void gemm(T* c, const T* a, const T* b, i64 rows, i64 columns, i64 depth, i64 tile_columns, i64 a_row,
             i64 b_row, i64 a_column, i64 b_panel, i64 c_row, bool add) {
  constexpr int ROWS = 8;
  const i64 strips = (rows + ROWS - 1) / ROWS;
  for (i64 p = threadIdx.x; p < strips * columns; p += blockDim.x) {
    const i64 j = p % columns, i = p / columns * ROWS;
    const T* from = b + j / tile_columns * b_panel + j % tile_columns;
    i64 row[ROWS];
    T sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      row[r] = min_of(i + r, rows - 1);
      sum[r] = add ? c[row[r] * c_row + j] : T(0);
    }
    for (i64 k = 0; k < depth; ++k) {
      const T y = from[k * b_row];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] = fused(a[row[r] * a_row + k * a_column], y, sum[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (i + r < rows) c[(i + r) * c_row + j] = sum[r];
  }
}

template <class T>
FN void pack(T* to, const T* from, i64 rows, i64 columns, i64 tile_columns, i64 to_panel, i64 from_row) {
  for (i64 p = threadIdx.x; p < rows * columns; p += blockDim.x) {
    const i64 k = p / columns, j = p % columns;
    to[j / tile_columns * to_panel + k * tile_columns + j % tile_columns] = from[k * from_row + j];
  }
}

template <class T>
FN void transpose(T* to, const T* from, i64 rows, i64 columns, i64 to_row, i64 from_row) {
  for (i64 p = threadIdx.x; p < rows * columns; p += blockDim.x) {
    const i64 i = p % rows, j = p / rows;
    to[j * to_row + i] = from[i * from_row + j];
  }
}
)";

}  // namespace cermet::codegen
