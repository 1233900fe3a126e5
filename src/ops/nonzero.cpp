// SPDX-License-Identifier: MIT
// In two sweeps over blocks of the mask, on all threads: how many elements of each block hold, which
// gives each block its place in the result, then their numbers.
#include "ops/nonzero.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/thread_pool.h"

namespace cermet {

namespace {

constexpr int64_t kBlock = 4096;  // elements; their numbers stay in L1 until they are copied
constexpr double kElementNs = 0.5;

// f(block, its first element, its end) for all blocks of n elements.
template <typename F>
void for_blocks(int64_t n, F&& f) {
  ThreadPool::get().run((n + kBlock - 1) / kBlock, 1, kElementNs * static_cast<double>(n),
                        [&](int64_t begin, int64_t end, int) {
                          for (int64_t b = begin; b < end; ++b)
                            f(b, b * kBlock, std::min((b + 1) * kBlock, n));
                        });
}

// Without a branch that random masks would mislead: each number is written, and passed if it counts.
template <typename T>
void write_numbers(const bool* flags, int64_t first, int64_t end, T* to) {
  std::array<T, kBlock> numbers;
  size_t count = 0;
  for (int64_t i = first; i < end; ++i) {
    numbers[count] = static_cast<T>(i);
    count += flags[i] ? 1 : 0;
  }
  if (count > 0) std::memcpy(to, numbers.data(), count * sizeof(T));
}

template <typename T>
array numbers_where(const bool* flags, int64_t n, Dtype dtype) {
  std::vector<int64_t> starts(static_cast<size_t>((n + kBlock - 1) / kBlock) + 1, 0);
  for_blocks(n, [&](int64_t block, int64_t first, int64_t end) {
    starts[static_cast<size_t>(block) + 1] = std::count(flags + first, flags + end, true);
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  const auto bytes = static_cast<size_t>(starts.back()) * sizeof(T);
  BufferRef buffer = allocator(default_device()).allocate(bytes, "nonzero");
  T* numbers = static_cast<T*>(buffer->data());
  for_blocks(n, [&](int64_t block, int64_t first, int64_t end) {
    write_numbers(flags, first, end, numbers + starts[static_cast<size_t>(block)]);
  });
  const Shape shape{starts.back()};
  return array::from_buffer(std::move(buffer), shape, Layout::contiguous(shape), dtype);
}

}  // namespace

Arrays nonzero(const array& mask) {
  const array data = contiguous(mask);
  const bool* flags = data.data<bool>();
  const bool narrow = mask.size() <= std::numeric_limits<int32_t>::max();
  const array flat = narrow ? numbers_where<int32_t>(flags, mask.size(), Dtype::int32)
                            : numbers_where<int64_t>(flags, mask.size(), Dtype::int64);
  if (mask.ndim() <= 1) return {flat};
  Arrays result;
  int64_t inner = mask.size();
  for (int axis = 0; axis < mask.ndim(); ++axis) {
    const int64_t extent = mask.shape(axis);
    inner /= std::max<int64_t>(extent, 1);
    const array behind = inner > 1 ? floor_divide(flat, array(inner, flat.dtype())) : flat;
    result.push_back(axis == 0 || extent == 0 ? behind
                                              : remainder(behind, array(extent, flat.dtype())));
  }
  return result;
}

}  // namespace cermet
