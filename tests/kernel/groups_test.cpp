// SPDX-License-Identifier: MIT
// Products by groups, of rows that choose matrices and of parts of the sum, before and after `tile` in
// the interpreter, against sums in double. Small integers, so every order of summation is exact.
#include <gtest/gtest.h>

#include <vector>

#include "kernel/builder.h"
#include "kernel/run.h"
#include "kernel/tile.h"

namespace cermet::ir {
namespace {

const TargetFacts kTargets[] = {
    {.name = "cpu", .vector_bytes = 16},
    {.name = "cpu", .vector_bytes = 64, .fma = true},
    {.name = "cpu", .vector_bytes = 64, .fma = true, .dot_bf16 = true, .amx_bf16 = true},
};

struct Numbers {
  uint64_t state = 1;
  int64_t below(int64_t count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(state >> 33) % count;
  }
  template <typename T>
  std::vector<T> values(int64_t count) {
    std::vector<T> list;
    for (int64_t i = 0; i < count; ++i) list.emplace_back(static_cast<float>(below(7) - 3));
    return list;
  }
};

template <typename T>
float at(const std::vector<T>& list, int64_t i) {
  return static_cast<float>(list[static_cast<size_t>(i)]);
}

// The kernel as it is and as it is tiled gives what is expected; tiled, by blocks.
void check(const Kernel& kernel, std::vector<Argument> arguments, std::vector<float>& c,
           const std::vector<float>& expected, const std::vector<int64_t>& extents,
           const std::vector<int64_t>& strides) {
  verify(kernel);
  arguments.push_back(argument(c));
  interpret(kernel, arguments, extents, strides);
  ASSERT_EQ(c, expected) << print(kernel);
  for (const TargetFacts& target : kTargets) {
    const Kernel tiled = simplify(tile(kernel, target));
    verify(tiled);
    const std::string text = print(tiled);
    EXPECT_NE(text.find("gemm constants"), std::string::npos) << text;
    EXPECT_EQ(print(parse(text)), text);
    c.assign(c.size(), -1000);
    interpret(tiled, arguments, extents, strides);
    ASSERT_EQ(c, expected) << text;
  }
}

template <typename T>
void check_runs(int64_t rows, int64_t matrices, int64_t n, int64_t k, Scheme scheme, bool turned,
                bool in_order) {
  Numbers numbers;
  std::vector<T> a = numbers.values<T>(rows * k), b = numbers.values<T>(matrices * k * n);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < rows; ++i)
    chosen.push_back(
        static_cast<int32_t>(in_order ? i * matrices / rows : numbers.below(matrices)));
  const Dtype dtype = std::is_same_v<T, float> ? Dtype::float32 : Dtype::bfloat16;
  Builder of("runs");
  const ParamId pa = of.buffer(dtype, Access::in), pb = of.buffer(dtype, Access::in),
                pi = of.buffer(Dtype::int32, Access::in),
                pc = of.buffer(Dtype::float32, Access::out);
  const AxisId row = of.axis(), column = of.axis(), sum = of.axis();
  const ExprId r = of.axis_ref(row), j = of.axis_ref(column), l = of.axis_ref(sum);
  const ExprId matrix = of.cast(of.load({false, pi}, {{r, kUnit}}), Dtype::int64);
  std::vector<int64_t> strides = {k, k * n, turned ? k : n, n};
  const int32_t a_row = of.stride(), of_matrix = of.stride(), b_row = of.stride(),
                c_row = of.stride();
  const ExprId x = of.load({false, pa}, {{r, a_row}, {l, kUnit}});
  const ExprId y =
      of.load({false, pb}, {{matrix, of_matrix}, {turned ? j : l, b_row}, {turned ? l : j, kUnit}});
  const ValueId value = of.value({Dtype::float32});
  For products{.kind = ForKind::stage, .axes = {row, column, sum}};
  products.body.push_back(Contract{value,
                                   {sum},
                                   of.cast(x, Dtype::float32),
                                   of.cast(y, Dtype::float32),
                                   Dtype::float32,
                                   scheme});
  of.kernel().body.push_back(products);
  For stores{.kind = ForKind::stage, .axes = {row, column}};
  stores.body.push_back(Store{{false, pc}, {{r, c_row}, {j, kUnit}}, of.ref(value)});
  of.kernel().body.push_back(stores);

  std::vector<float> c(static_cast<size_t>(rows * n)), expected;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t h = 0; h < n; ++h) {
      double total = 0;
      for (int64_t q = 0; q < k; ++q)
        total += at(a, i * k + q) *
                 at(b, chosen[static_cast<size_t>(i)] * k * n + (turned ? h * k + q : q * n + h));
      expected.push_back(static_cast<float>(total));
    }
  check(of.take(), {argument(a), argument(b), argument(chosen)}, c, expected, {rows, n, k},
        strides);
}

TEST(Groups, RunsOfRows) {
  for (const Scheme scheme : {Scheme::fma_local, Scheme::amx_split_local})
    for (const bool turned : {false, true})
      for (const bool in_order : {false, true}) {
        check_runs<float>(37, 3, 21, 70, scheme, turned, in_order);
        check_runs<float>(300, 2, 17, 5, scheme, turned, in_order);
      }
  check_runs<BFloat16>(70, 3, 35, 70, Scheme::fma_local, false, true);
  check_runs<BFloat16>(70, 3, 35, 64, Scheme::fma_local, true, true);
}

template <typename T>
void check_segments(const std::vector<int64_t>& bounds, int64_t m, int64_t n, int64_t k,
                    Scheme scheme) {
  Numbers numbers;
  std::vector<T> a = numbers.values<T>(m * k), b = numbers.values<T>(k * n);
  std::vector<int64_t> given = bounds;
  const int64_t count = static_cast<int64_t>(bounds.size()) / 2;
  const Dtype dtype = std::is_same_v<T, float> ? Dtype::float32 : Dtype::bfloat16;
  Builder of("segments");
  const ParamId pa = of.buffer(dtype, Access::in), pb = of.buffer(dtype, Access::in),
                ps = of.buffer(Dtype::int64, Access::in),
                pc = of.buffer(Dtype::float32, Access::out);
  const AxisId segment = of.axis(), row = of.axis(), column = of.axis(), sum = of.axis();
  const ExprId s = of.axis_ref(segment), i = of.axis_ref(row), j = of.axis_ref(column),
               l = of.axis_ref(sum);
  const int32_t of_pair = of.stride(), a_row = of.stride(), b_row = of.stride(), of_c = of.stride(),
                c_row = of.stride();
  const ExprId first = of.load({false, ps}, {{s, of_pair}});
  const ExprId past = of.load({false, ps}, {{s, of_pair}, {of.integer(Dtype::int64, 1), kUnit}});
  const ExprId inside =
      of.logical_and(of.compare(Code::le, first, l), of.compare(Code::lt, l, past));
  const ExprId zero = of.constant(Dtype::float32, 0);
  const auto within = [&](ParamId param, Index index) {
    const ExprId none = of.constant_bits(dtype, 0);
    const ExprId loaded = of.load({false, param}, std::move(index), inside, none);
    return of.select(inside, of.cast(loaded, Dtype::float32), zero);
  };
  const ValueId value = of.value({Dtype::float32});
  For products{.kind = ForKind::stage, .axes = {segment, row, column, sum}};
  products.body.push_back(Contract{value,
                                   {sum},
                                   within(pa, {{i, a_row}, {l, kUnit}}),
                                   within(pb, {{l, b_row}, {j, kUnit}}),
                                   Dtype::float32,
                                   scheme});
  of.kernel().body.push_back(products);
  For stores{.kind = ForKind::stage, .axes = {segment, row, column}};
  stores.body.push_back(Store{{false, pc}, {{s, of_c}, {i, c_row}, {j, kUnit}}, of.ref(value)});
  of.kernel().body.push_back(stores);

  std::vector<float> c(static_cast<size_t>(count * m * n)), expected;
  for (int64_t p = 0; p < count; ++p)
    for (int64_t h = 0; h < m; ++h)
      for (int64_t q = 0; q < n; ++q) {
        double total = 0;
        for (int64_t t = std::max<int64_t>(bounds[static_cast<size_t>(2 * p)], 0);
             t < std::min(bounds[static_cast<size_t>(2 * p + 1)], k); ++t)
          total += at(a, h * k + t) * at(b, t * n + q);
        expected.push_back(static_cast<float>(total));
      }
  check(of.take(), {argument(a), argument(b), argument(given)}, c, expected, {count, m, n, k},
        {2, k, n, m * n, n});
}

TEST(Groups, SegmentsOfSums) {
  const std::vector<int64_t> bounds = {0, 3, 3, 150, 40, 40, 90, 20, -5, 7, 290, 1000, 0, 300};
  for (const Scheme scheme : {Scheme::fma, Scheme::fma_local, Scheme::fma_split_k,
                              Scheme::amx_split, Scheme::amx_split_k}) {
    check_segments<float>(bounds, 13, 21, 300, scheme);
    check_segments<BFloat16>(bounds, 35, 17, 300, scheme);
  }
}

}  // namespace
}  // namespace cermet::ir
