// SPDX-License-Identifier: MIT
// Math functions, and the ops that they are made of, as CUDA text, on numbers of all sizes: the bits of
// block_eval.h. On a GPU millions of numbers, in turns on this processor some thousands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "codegen/cuda_source.h"
#include "kernel/block_eval.h"
#include "kernel/cuda_run.h"
#include "kernel/math_reference.h"
#include "kernel/run.h"
#include "kernel/walk.h"

namespace cermet {
namespace {

using ir::BlockEval;
using ir::Code;
using ir::Kernel;

constexpr size_t kTogether = 8;  // functions in a kernel
constexpr int64_t kBlocksHere = 8, kBlocksOnDevice = 4096;
constexpr size_t kOperands = 3;

// Of operands $0 .. $2.
std::vector<std::string> functions(Dtype dtype) {
  std::vector<std::string> all;
  for (const char* code : {"sqrt", "floor", "ceil", "trunc", "rint"})
    all.push_back(fmt::format("{}($0)", code));
  for (const char* code : {"add", "sub", "mul", "div", "rem"})
    all.push_back(fmt::format("{}($0, $1)", code));
  all.emplace_back("fma($0, $1, $2)");
  all.emplace_back("fract(abs($0))");
  all.push_back(fmt::format("scale2($0, select(lt(abs($1), {0}({1})), rint($1), {0}(3)))",
                            name_of(dtype), dtype == Dtype::float32 ? 252 : 2044));
  for (int c = static_cast<int>(Code::exp); c < static_cast<int>(Code::threefry); ++c) {
    const auto code = static_cast<Code>(c);
    const bool nonpositive =
        code == Code::exp_nonpositive || code == Code::exp_nonpositive_bfloat16;
    all.push_back(fmt::format("{}({}{})", name_of(code), nonpositive ? "neg(abs($0))" : "$0",
                              ir::arity_of(code) == 2 ? ", $1" : ""));
  }
  return all;
}

// Of arrays, or of one point, whose operands are scalars, before `tile`.
Kernel kernel_of(Dtype dtype, std::span<const std::string> functions, bool arrays) {
  std::string params, stores;
  const std::string_view type = name_of(dtype);
  for (size_t i = 0; i < kOperands; ++i)
    params += fmt::format("  param p{} {} {}\n", i, type, arrays ? "in" : "scalar");
  for (size_t i = 0; i < functions.size(); ++i) {
    std::string text;
    for (const char* c = functions[i].c_str(); *c != 0; ++c)
      if (*c != '$') text += *c;
      else text += fmt::format(fmt::runtime(arrays ? "load(p{}[a0])" : "p{}"), *++c);
    params += fmt::format("  param p{} {} out\n", kOperands + i, type);
    stores += fmt::format("    store p{}[{}] = {}\n", kOperands + i, arrays ? "a0" : "", text);
  }
  return ir::parse(fmt::format("kernel \"math\" {{\n{}{}  for stage ({}) {{\n{}  }}\n}}\n", params,
                               arrays ? "  axis a0\n" : "", arrays ? "a0" : "", stores));
}

template <typename T>
T random_number(uint64_t bits) {
  if constexpr (sizeof(T) == 4) return ir::random_float(bits);
  else return ir::random_double(bits);
}

template <typename T>
KernelInput numbers(size_t outputs, int64_t count) {
  using Limits = std::numeric_limits<T>;
  constexpr T kSpecial[] = {0,
                            1,
                            0.5,
                            2,
                            Limits::denorm_min(),
                            Limits::min(),
                            Limits::max(),
                            Limits::infinity(),
                            Limits::quiet_NaN(),
                            Limits::min() / 3,
                            1 + Limits::epsilon()};
  constexpr auto kSpecials = static_cast<int64_t>(2 * std::size(kSpecial));
  const auto special = [&](int64_t i) {
    return i % 2 == 0 ? kSpecial[i / 2 % (kSpecials / 2)] : -kSpecial[i / 2 % (kSpecials / 2)];
  };
  std::mt19937_64 random(1);
  KernelInput input;
  input.extents = {count};
  for (size_t p = 0; p < kOperands + outputs; ++p) {
    input.bytes.emplace_back(static_cast<size_t>(count) * sizeof(T), '\x7f');
    input.before.push_back(0);
    input.scalars.push_back(0);
  }
  for (int64_t i = 0; i < count; ++i) {
    T x[kOperands];
    for (T& number : x) number = random_number<T>(random());
    if (i < kSpecials * kSpecials) x[0] = special(i % kSpecials), x[1] = special(i / kSpecials);
    for (size_t p = 0; p < kOperands; ++p)
      std::memcpy(&input.bytes[p][static_cast<size_t>(i) * sizeof(T)], &x[p], sizeof(T));
  }
  return input;
}

// What a store of the kernel of scalars stores, at all the numbers of the input.
template <typename T>
std::vector<char> evaluated(const Kernel& kernel, ir::ExprId root, const KernelInput& input) {
  BlockEval eval(kernel, root);
  std::vector<char> result(input.bytes[0].size());
  constexpr size_t kBytes = BlockEval::kBlock * sizeof(T);
  for (size_t at = 0; at < result.size(); at += kBytes) {
    for (size_t p = 0; p < kOperands; ++p)
      std::memcpy(eval.input<T>(static_cast<int>(p)), &input.bytes[p][at], kBytes);
    std::memcpy(&result[at], eval.run<T>(), kBytes);
  }
  return result;
}

template <typename T>
void expect_as_evaluated(const CudaBatch& batch, size_t number, const Kernel& points,
                         std::span<const std::string> names, const CudaLaunch& how) {
  const KernelInput input =
      numbers<T>(names.size(), BlockEval::kBlock * (how.device ? kBlocksOnDevice : kBlocksHere));
  const KernelOutput output = batch.run(number, input, how);
  const Dtype dtype = sizeof(T) == 4 ? Dtype::float32 : Dtype::float64;
  size_t i = 0;
  ir::for_each_stmt(points.body, [&](const ir::Stmt& stmt) {
    const ir::Store* store = std::get_if<ir::Store>(&stmt);
    if (store == nullptr) return;
    SCOPED_TRACE(
        fmt::format("{} of {}{}", names[i], name_of(dtype), how.device ? " on a GPU" : ""));
    EXPECT_EQ(ir::difference(dtype, output.bytes[kOperands + i],
                             evaluated<T>(points, store->value, input)),
              "");
    ++i;
  });
  EXPECT_EQ(i, names.size());
}

template <typename T>
void expect_functions(Dtype dtype) {
  const std::vector<std::string> all = functions(dtype);
  std::vector<std::span<const std::string>> groups;
  for (size_t at = 0; at < all.size(); at += kTogether)
    groups.push_back(std::span(all).subspan(at, std::min(kTogether, all.size() - at)));
  CudaBatch batch;
  for (const auto& group : groups)
    batch.add(ir::lower(kernel_of(dtype, group, true), cuda_facts()));
  ASSERT_TRUE(batch.build());
  for (size_t k = 0; k < groups.size(); ++k) {
    const Kernel points = ir::expand(kernel_of(dtype, groups[k], false), cuda_facts());
    for (const CudaLaunch& how : with_device({{}}))
      expect_as_evaluated<T>(batch, k, points, groups[k], how);
  }
}

TEST(CudaSource, MathOfFloat32) { expect_functions<float>(Dtype::float32); }
TEST(CudaSource, MathOfFloat64) { expect_functions<double>(Dtype::float64); }

// All pairs of the numbers at the ends of their range and around 0.
KernelInput edges(Dtype dtype, size_t outputs) {
  const size_t size = size_of(dtype);
  const uint64_t most = (uint64_t{1} << (8 * size - 1)) - 1;
  std::vector<uint64_t> numbers;
  for (uint64_t i : {0, 1, 2, 3, 5, 7, 15, 16, 33})
    numbers.insert(numbers.end(), {i, 0 - i, most - i, most + 1 + i});
  const size_t count = numbers.size() * numbers.size();
  KernelInput input;
  input.extents = {static_cast<int64_t>(count)};
  input.bytes.assign(2 + outputs, std::vector<char>(count * size, '\x55'));
  input.before.assign(2 + outputs, 0);
  input.scalars.assign(2 + outputs, 0);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&input.bytes[0][i * size], &numbers[i % numbers.size()], size);
    std::memcpy(&input.bytes[1][i * size], &numbers[i / numbers.size()], size);
  }
  return input;
}

// Stores each of the values, which are made of %0 and %1.
Kernel stores_of(const std::string& type, const std::vector<std::string>& values) {
  std::string params, stores;
  for (size_t i = 0; i < values.size(); ++i) {
    params += fmt::format("  param p{} {} out\n", 2 + i, type);
    stores += fmt::format("    store p{}[a0] = {}\n", 2 + i, values[i]);
  }
  return ir::parse(fmt::format(
      "kernel \"wrap\" {{\n  param p0 {0} in\n  param p1 {0} in\n{1}  axis a0\n"
      "  for stage (a0) {{\n    %0 = load(p0[a0])\n    %1 = load(p1[a0])\n{2}  }}\n}}\n",
      type, params, stores));
}

// What an op gives is wrapped before another one takes it.
TEST(CudaSource, IntegersWrapBetweenOps) {
  CudaBatch batch;
  std::vector<std::pair<Dtype, size_t>> kernels;
  for (const Dtype dtype : {Dtype::int8, Dtype::int16, Dtype::int32, Dtype::int64}) {
    const std::string type(name_of(dtype));
    std::vector<std::string> values;
    for (const char* outer : {"div", "rem", "shr", "min", "max"})
      for (const std::string& inner :
           {std::string("neg(%0)"), std::string("abs(%0)"), std::string("sub(%0, %1)"),
            std::string("add(%0, %1)"), std::string("mul(%0, %1)"), "div(%0, " + type + "(-1))"})
        for (const std::string& operands : {inner + ", %1", "%1, " + inner})
          values.push_back(fmt::format("{}({})", outer, operands));
    // Of three numbers, which some GPUs compare in one instruction.
    for (const char* order : {"min", "max"})
      for (const std::string& negated :
           {std::string("neg(%0)"), "sub(" + type + "(0), %0)", "mul(%0, " + type + "(-1))"}) {
        values.push_back(fmt::format("{0}({0}(%1, {1}), {2}(7))", order, negated, type));
        values.push_back(fmt::format("{0}({1}, {0}(%1, bit_xor(%0, %1)))", order, negated));
      }
    // Also where nothing else needs what is between.
    for (const std::vector<std::string>& stored : {values, {"rem(abs(%0), %1)"}}) {
      const size_t number = batch.add(ir::lower(stores_of(type, stored), cuda_facts()));
      kernels.emplace_back(dtype, stored.size());
      if (stored.size() == 1) continue;
      // Without a GPU, the text must at least say so where ptxas would not wrap by itself.
      EXPECT_EQ(batch.object(number).blob.find("= narrowed<i16>(") != std::string::npos,
                dtype == Dtype::int16);
    }
  }
  ASSERT_TRUE(batch.build());
  for (size_t k = 0; k < kernels.size(); ++k)
    batch.expect_as_interpreted(k, {edges(kernels[k].first, kernels[k].second)});
}

}  // namespace
}  // namespace cermet
