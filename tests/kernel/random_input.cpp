// SPDX-License-Identifier: MIT
#include "kernel/random_input.h"

#include <cmath>
#include <cstring>
#include <random>

#include "kernel/scalar_ops.h"

namespace cermet {

std::vector<char> random_bytes(Dtype dtype, int64_t elements, unsigned seed, bool tame) {
  std::mt19937_64 random(seed);
  std::vector<char> bytes(static_cast<size_t>(elements) * size_of(dtype));
  static constexpr double kSpecial[] = {
      0.0,          -0.0,   1.0,     -1.0,   INFINITY, -INFINITY, NAN,          0.5,
      -2.5,         1e-40,  -1e-310, 65504,  65520,    3.4e38,    2147483648.0, -2147483649.0,
      4294967296.0, 9.3e18, -9.3e18, 1.9e19, 127.5,    -128.5,    255.9,        -0.9};
  for (int64_t i = 0; i < elements; ++i) {
    uint64_t bits = random();
    if (is_floating(dtype)) {
      const uint64_t kind = random() % 10;
      if (tame || kind < 5)
        bits = ir::from_double(dtype, std::normal_distribution<double>(0, 4)(random));
      else if (kind < 8) bits = ir::from_double(dtype, kSpecial[random() % std::size(kSpecial)]);
    } else if (random() % 3 == 0) {
      bits = random() % 5 - 2;
    }
    if (dtype == Dtype::boolean) bits &= 1;
    std::memcpy(&bytes[static_cast<size_t>(i) * size_of(dtype)], &bits, size_of(dtype));
  }
  return bytes;
}

KernelInput random_input(const ir::Kernel& kernel, const std::vector<int64_t>& elements,
                         std::vector<int64_t> extents, std::vector<int64_t> strides, unsigned seed,
                         bool tame) {
  KernelInput input;
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const Dtype dtype = kernel.params[i].dtype;
    const bool buffer = kernel.params[i].kind == ir::ParamKind::buffer;
    input.bytes.push_back(
        buffer ? random_bytes(dtype, elements[i], seed + static_cast<unsigned>(i), tame)
               : std::vector<char>());
    uint64_t bits = 0;
    const std::vector<char> scalar =
        random_bytes(dtype, 1, seed + 77 + static_cast<unsigned>(i), true);
    std::memcpy(&bits, scalar.data(), scalar.size());
    input.scalars.push_back(bits);
    input.before.push_back(0);
  }
  input.extents = std::move(extents);
  input.strides = std::move(strides);
  return input;
}

}  // namespace cermet
