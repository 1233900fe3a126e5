// SPDX-License-Identifier: MIT
// Random numbers: the published Threefry vectors, and values that MLX 0.32 gives for the same keys.
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

array scalar(double v) { return full({}, number(v), Dtype::float32); }

TEST(RandomBits, KnownAnswers) {
  // Salmon et al., Random123 1.x: threefry2x32, 20 rounds, key and counter 0.
  expect_near(values(random::bits({1}, 4, random::key(0))), {0x6b200159}, 0);
}

TEST(RandomBits, SplitsAsMlx) {
  const array key = random::key(0);
  expect_near(values(random::split(key, 2)), {4146024105, 967050713, 2718843009, 1272950319}, 0);
  expect_near(values(random::split(key, 3)),
              {2467461003, 428148500, 3186719485, 3840466878, 2562233961, 1946702221}, 0);
  expect_near(values(random::split_pair(key)[1]), {2718843009, 1272950319}, 0);
  expect_near(values(random::key((uint64_t{1} << 33) + 5)), {2, 5}, 0);
}

TEST(RandomBits, WidthsAreBytesOfTheWords) {
  const array key = random::key(1);
  const Doubles words = values(random::bits({3}, 4, key));
  const Doubles halves = values(random::bits({6}, 2, key));
  const Doubles bytes = values(random::bits({11}, 1, key));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(halves[i], static_cast<uint32_t>(words[i / 2]) >> (16 * (i % 2)) & 0xffff);
  for (int i = 0; i < 11; ++i)
    EXPECT_EQ(bytes[i], static_cast<uint32_t>(words[i / 4]) >> (8 * (i % 4)) & 0xff);
  const Doubles four = values(random::bits({4}, 4, key)), wide = values(random::bits({2}, 8, key));
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(wide[i], static_cast<double>(static_cast<uint64_t>(four[2 * i + 1]) << 32 |
                                           static_cast<uint64_t>(four[2 * i])));
}

TEST(RandomBits, RefusesOtherKeys) {
  EXPECT_EQ(message_of([] { random::bits({2}, 4, vec({1, 2})); }),
            "[bits] the key has dtype float32; it must be uint32, as random.key() gives");
  EXPECT_NE(message_of([] { random::bits({2}, 4, vec({1, 2, 3}, Dtype::uint32)); }).find("(3,)"),
            std::string::npos);
  EXPECT_NE(message_of([] { random::bits({2}, 3, random::key(0)); }).find("1, 2, 4 or 8"),
            std::string::npos);
}

TEST(Distributions, UniformAsMlx) {
  const array key = random::key(0);
  auto uniform = [&](double low, double high, Dtype dtype) {
    return values(random::uniform(scalar(low), scalar(high), {5}, dtype, key));
  };
  expect_near(uniform(0, 1, Dtype::float32),
              {0.574500560760498, 0.09968609362840652, 0.39316028356552124, 0.8941783905029297,
               0.5965665578842163},
              0);
  expect_near(uniform(1, 3, Dtype::float32),
              {2.149001121520996, 1.1993721723556519, 1.7863205671310425, 2.7883567810058594,
               2.1931331157684326},
              0);
  expect_near(uniform(0, 1, Dtype::float16),
              {0.57470703125, 0.09967041015625, 0.39306640625, 0.89404296875, 0.5966796875}, 0);
  expect_near(uniform(0, 1, Dtype::bfloat16),
              {0.57421875, 0.099609375, 0.392578125, 0.89453125, 0.59765625}, 0);
  for (double u : uniform(0, 1, Dtype::float64)) EXPECT_TRUE(0 <= u && u < 1);
  const array odd = random::uniform(scalar(0), scalar(1), {3}, Dtype::float32, random::key(1));
  expect_near(values(odd), {0.568552553653717, 0.2586038112640381, 0.8893296718597412}, 0);
}

TEST(Distributions, NormalAsMlx) {
  const array key = random::key(0);
  auto normal = [&](Dtype dtype) { return random::normal({3}, dtype, {}, {}, key); };
  expect_near(values(normal(Dtype::float32)),
              {1.8160871267318726, -0.48262301087379456, 0.339889258146286}, 4e-7);
  // The wheel's erfinv has single precision in float64, too.
  expect_near(values(normal(Dtype::float64)),
              {1.8160871346723506, -0.48262301438921695, 0.3398892558654964}, 4e-7);
  expect_near(values(normal(Dtype::float16)), {1.8154296875, -0.482666015625, 0.33984375}, 1e-3);
  expect_near(values(random::normal({3}, Dtype::float32, scalar(2), vec({1, 2, 3}), key)),
              {3.816087245941162, 1.0347540378570557, 3.019667625427246}, 4e-7);
  const std::vector<Complex> z = complex_values(normal(Dtype::complex64));
  EXPECT_NEAR(std::abs(z[0] - Complex(0.13282588124275208, -0.9074599146842957)), 0, 1e-6);
  EXPECT_NEAR(std::abs(z[2] - Complex(0.17286640405654907, -0.08304928243160248)), 0, 1e-6);
}

TEST(Distributions, DiscreteAsMlx) {
  const array key = random::key(0);
  expect_near(values(random::bernoulli(scalar(0.3), Shape{8}, key)), {0, 0, 0, 0, 1, 0, 1, 0});
  expect_near(values(random::bernoulli(vec({0, 1}), {}, key)), {0, 1});
  auto randint = [&](double low, double high, Shape shape) {
    return values(random::randint(scalar(low), scalar(high), shape, Dtype::int32, key));
  };
  expect_near(randint(0, 10, {8}), {5, 3, 3, 9, 1, 9, 1, 8}, 0);
  expect_near(randint(5, 0, {3}), {5, 5, 5}, 0);
  expect_near(values(random::randint(scalar(-5), vec({10, 300}), {2}, Dtype::int64, key)),
              {-2, 240}, 0);
  const array logits = zeros({3, 5});
  expect_near(values(random::categorical(logits, -1, {}, {}, key)), {1, 1, 1});
  expect_near(values(random::categorical(logits, 0, {}, {}, key)), {2, 0, 0, 0, 0});
  expect_near(values(random::categorical(logits, -1, {}, 4, key)),
              {4, 1, 2, 0, 0, 2, 4, 4, 2, 3, 4, 2});
  expect_near(values(random::categorical(logits, -1, Shape{2, 3}, {}, key)), {3, 2, 2, 2, 2, 2});
}

TEST(Distributions, OthersAsMlx) {
  const array key = random::key(0);
  expect_near(
      values(random::truncated_normal(scalar(-1), scalar(1), Shape{4}, Dtype::float32, key)),
      {0.9065213799476624, -0.4891465902328491, 0.2296501249074936, -0.35580840706825256}, 4e-7);
  expect_near(values(random::gumbel({4}, Dtype::float32, key)),
              {3.3440396785736084, -0.3994123637676239, 0.7825523614883423, -0.1956544816493988},
              4e-7);
  expect_near(values(random::laplace({4}, Dtype::float32, 1, 2, key)),
              {-4.336977005004883, 2.595602035522461, 0.3813438415527344, 2.0459189414978027},
              4e-7);
}

TEST(Distributions, Messages) {
  const array key = random::key(0);
  EXPECT_NE(message_of([&] {
              random::uniform(scalar(0), scalar(1), {2}, Dtype::int32, key);
            }).find("[uniform] dtype int32"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              random::uniform(vec({1, 2}), scalar(3), {}, Dtype::float32, key);
            }).find("must broadcast to it"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              random::randint(scalar(0), scalar(1), {2}, Dtype::float32, key);
            }).find("integers and bool"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              random::categorical(zeros({3}), -1, Shape{2}, 2, key);
            }).find("one of them"),
            std::string::npos);
  EXPECT_NE(
      message_of([&] { random::bernoulli(vec({1}, Dtype::int32), {}, key); }).find("[bernoulli]"),
      std::string::npos);
}

}  // namespace
}  // namespace cermet
