// SPDX-License-Identifier: MIT
// The builder: equal expressions have equal ids, constants are converted as casts are.
#include "kernel/builder.h"

#include <gtest/gtest.h>

#include "kernel/run.h"

namespace cermet::ir {
namespace {

TEST(Builder, EqualExpressionsHaveEqualIds) {
  Builder b("cse");
  const ParamId p = b.buffer(Dtype::float32, Access::in), q = b.buffer(Dtype::float32, Access::in);
  const AxisId a = b.axis();
  const auto make = [&](ParamId buffer, int32_t stride, double k) {
    const ExprId x = b.load({false, buffer}, {{b.axis_ref(a), stride}});
    return b.mul(b.add(x, b.constant(Dtype::float32, k)), x);
  };
  EXPECT_EQ(make(p, kUnit, 1), make(p, kUnit, 1));
  const int32_t s = b.stride();
  const std::vector<ExprId> all = {make(p, kUnit, 1), make(q, kUnit, 1), make(p, s, 1),
                                   make(p, kUnit, 2)};
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]);
  EXPECT_NE(b.constant(Dtype::float32, 0.0), b.constant(Dtype::float32, -0.0));
  EXPECT_NE(b.integer(Dtype::int32, 1), b.integer(Dtype::int64, 1));
}

TEST(Builder, GoesOnFromAKernel) {
  Builder first("k");
  const ExprId one = first.integer(Dtype::int64, 1);
  const ExprId two = first.add(one, one);
  Builder second(first.take());
  EXPECT_EQ(second.integer(Dtype::int64, 1), one);
  EXPECT_EQ(second.add(one, one), two);
}

TEST(Builder, Constants) {
  Builder b("constants");
  const auto bits = [&](Dtype d, double v) { return b[b.constant(d, v)].bits; };
  EXPECT_EQ(bits(Dtype::boolean, 0.5), 1u);
  EXPECT_EQ(bits(Dtype::int8, -1), 0xffu);
  EXPECT_EQ(bits(Dtype::int8, 1000), 127u);
  EXPECT_EQ(bits(Dtype::uint16, -1), 0u);
  EXPECT_EQ(bits(Dtype::uint64, 1e300), ~uint64_t{0});
  EXPECT_EQ(bits(Dtype::float16, 1.5), 0x3e00u);
  EXPECT_EQ(bits(Dtype::bfloat16, 1.5), 0x3fc0u);
  EXPECT_EQ(bits(Dtype::float32, -0.0), 0x80000000u);
  EXPECT_EQ(bits(Dtype::float64, 1), 0x3ff0000000000000u);
  EXPECT_EQ(b[b.integer(Dtype::int16, -2)].bits, 0xfffeu);
  EXPECT_EQ(b[b.integer(Dtype::int64, std::numeric_limits<int64_t>::min())].bits,
            uint64_t{1} << 63);
  EXPECT_THROW(b.constant(Dtype::complex64, 1), Error);
  EXPECT_THROW(b.integer(Dtype::float32, 1), Error);
}

TEST(Builder, Casts) {
  Builder b("casts");
  const ExprId x = b.integer(Dtype::int32, 3);
  EXPECT_EQ(b.cast(x, Dtype::int32), x);
  EXPECT_EQ(b.bitcast(x, Dtype::int32), x);
  EXPECT_EQ(b.cast(x, Dtype::float16), b.cast(b.cast(x, Dtype::float32), Dtype::float16));
  const ExprId h = b.constant(Dtype::bfloat16, 1);
  EXPECT_EQ(b.cast(h, Dtype::float16), b.cast(b.cast(h, Dtype::float32), Dtype::float16));
  EXPECT_THROW(b.bitcast(x, Dtype::int64), Error);
}

TEST(Builder, RefusesWhatIsNoExpression) {
  Builder b("bad");
  const ExprId x = b.integer(Dtype::int64, 1);
  EXPECT_THROW(b.op(Code::add, Dtype::int64, {x}), Error);
  EXPECT_THROW(b.op(Code::add, Dtype::int64, {x, 17}), Error);
  EXPECT_THROW(b.op(Code::add, Dtype::int64, {x, kNone}), Error);
  EXPECT_THROW(b.value({}), Error);
}

TEST(Builder, OneStatusAndTuples) {
  Builder b("status");
  EXPECT_EQ(b.status(), b.status());
  const ValueId one = b.value({Dtype::int8}), two = b.value({Dtype::int8, Dtype::float32});
  EXPECT_EQ(b.get(0, b.ref(one)), b.ref(one));
  EXPECT_EQ(b.dtype(b.get(1, b.ref(two))), Dtype::float32);
}

TEST(Codes, NamesAndArity) {
  EXPECT_EQ(name_of(Code::fma), "fma");
  EXPECT_EQ(arity_of(Code::fma), 3);
  EXPECT_EQ(arity_of(Code::threefry), 4);
  EXPECT_TRUE(is_math(Code::exp) && is_math(Code::threefry));
  EXPECT_FALSE(is_math(Code::scale2) || is_math(Code::add));
}

}  // namespace
}  // namespace cermet::ir
