// SPDX-License-Identifier: MIT
// The composite rows of fast: their graphs against the formulas in double.
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

array scalar_int(int v) { return full({}, number(int64_t{v}), Dtype::int32); }

TEST(Norms, MatchTheFormulas) {
  const array x = scattered({3, 8}), w = scattered({8}, Dtype::float32, 1),
              b = scattered({8}, Dtype::float32, 2);
  const Doubles v = values(x), wv = values(w), bv = values(b);
  Doubles layer, rms;
  for (int i = 0; i < 3; ++i) {
    double mean = 0, square = 0, variance = 0;
    for (int j = 0; j < 8; ++j) mean += v[i * 8 + j] / 8;
    for (int j = 0; j < 8; ++j) square += v[i * 8 + j] * v[i * 8 + j] / 8;
    for (int j = 0; j < 8; ++j) variance += std::pow(v[i * 8 + j] - mean, 2) / 8;
    for (int j = 0; j < 8; ++j) {
      layer.push_back((v[i * 8 + j] - mean) / std::sqrt(variance + 1e-5) * wv[j] + bv[j]);
      rms.push_back(v[i * 8 + j] / std::sqrt(square + 1e-5) * wv[j]);
    }
  }
  expect_near(values(fast::layer_norm(x, w, b)), layer, 2e-6);
  expect_near(values(fast::rms_norm(x, w)), rms, 2e-6);
  expect_near(values(fast::layer_norm(x, {}, b) - fast::layer_norm(x, {}, {})),
              values(broadcast_to(b, {3, 8})), 1e-6);
  EXPECT_EQ(fast::rms_norm(astype(x, Dtype::float16), w).dtype(), Dtype::float32);
  EXPECT_EQ(fast::rms_norm(astype(x, Dtype::bfloat16), {}).dtype(), Dtype::bfloat16);
  EXPECT_EQ(
      message_of([&] { fast::rms_norm(x, counting({7})); }),
      "[rms_norm] the weight has shape (7,); it must be (8,), as long as the last axis of the "
      "array");
  EXPECT_NE(message_of([&] { fast::layer_norm(astype(x, Dtype::int32), {}, {}); }).find("int32"),
            std::string::npos);
}

Doubles rope_reference(const Doubles& x, const Shape& shape, int dims, bool traditional,
                       double base, double scale, const std::vector<int64_t>& offset) {
  Doubles y = x;
  const int64_t width = shape[shape.ndim() - 1], length = shape[shape.ndim() - 2];
  const int64_t rows = shape.size() / (width * length), per_batch = rows / shape[0];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t t = 0; t < length; ++t)
      for (int i = 0; i < dims / 2; ++i) {
        const int64_t at = offset.size() == 1 ? offset[0] : offset[r / per_batch];
        const double angle = (at + t) * scale * std::pow(base, -2.0 * i / dims);
        const int64_t row = (r * length + t) * width;
        const int64_t a = row + (traditional ? 2 * i : i),
                      b = row + (traditional ? 2 * i + 1 : i + dims / 2);
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
      }
  return y;
}

TEST(Rope, TurnsPairs) {
  const Shape shape{2, 3, 4, 8};
  const array x = scattered(shape);
  const Doubles v = values(x);
  for (bool traditional : {false, true})
    for (int dims : {8, 6}) {
      expect_near(values(fast::rope(x, dims, traditional, 10000, 0.5, scalar_int(7))),
                  rope_reference(v, shape, dims, traditional, 10000, 0.5, {7}), 2e-6);
      expect_near(values(fast::rope(x, dims, traditional, 100, 1, vec({3, 50}, Dtype::int32))),
                  rope_reference(v, shape, dims, traditional, 100, 1, {3, 50}), 1e-5);
    }
  const array freqs = vec({1, 10, 100, 1000});
  expect_near(values(fast::rope(x, 8, false, {}, 1, scalar_int(0), freqs)),
              values(fast::rope(x, 8, false, 10000, 1, scalar_int(0))), 1e-6);
  EXPECT_EQ(fast::rope(astype(x, Dtype::float16), 8, true, 10.0, 1, scalar_int(0)).dtype(),
            Dtype::float16);
}

// The sine of an angle of a million differs from that of the angle rounded to float32 by 0.03.
TEST(Rope, OfFloat64HasAnglesOfFloat64) {
  const Shape shape{2, 3, 4, 8};
  const array x = scattered(shape, Dtype::float64), offset = scalar_int(1'000'000);
  const Doubles want = rope_reference(values(x), shape, 8, true, 10000, 0.3, {1'000'000});
  expect_near(values(fast::rope(x, 8, true, 10000, 0.3, offset)), want, 2e-9);
  Doubles freqs;
  for (int i = 0; i < 4; ++i) freqs.push_back(std::pow(10000, 2.0 * i / 8));
  expect_near(values(fast::rope(x, 8, true, {}, 0.3, offset, vec(freqs, Dtype::float64))), want,
              2e-9);
}

// Also where they lie beyond 32 bits, or reach there.
TEST(Rope, PositionsAreExact) {
  const Shape shape{2, 3, 4, 8};
  const array x = scattered(shape, Dtype::float64);
  const auto check = [&](const Doubles& offsets, Dtype dtype) {
    std::vector<int64_t> numbers;
    for (double offset : offsets) numbers.push_back(static_cast<int64_t>(offset));
    const double scale = 0x1p-20;
    expect_near(values(fast::rope(x, 8, false, 10000, scale, vec(offsets, dtype))),
                rope_reference(values(x), shape, 8, false, 10000, scale, numbers), 1e-8);
  };
  check({0x1p40, -0x1p33 - 5}, Dtype::int64);
  check({0x1p32 + 3, 7}, Dtype::int64);
  check({0x1p42, 1}, Dtype::uint64);
  check({0x1p32 - 2, 1}, Dtype::uint32);
  check({0x1p31 - 2, -0x1p31}, Dtype::int32);
  const array narrow = astype(x, Dtype::float32);  // angles are off by 2^7 * 2^-22
  const int64_t last = std::numeric_limits<int32_t>::max();
  const array got =
      fast::rope(narrow, 2, false, 10, 0x1p-22, vec({static_cast<double>(last)}, Dtype::int32));
  expect_near(values(got), rope_reference(values(narrow), shape, 2, false, 10, 0x1p-22, {last}),
              1e-4);
}

TEST(Rope, Messages) {
  const array x = scattered({2, 3, 8});
  auto message = [&](int dims, std::optional<double> base, const array& offset) {
    return message_of([&] { fast::rope(x, dims, false, base, 1, offset); });
  };
  EXPECT_NE(message(7, 10.0, scalar_int(0)).find("must be even"), std::string::npos);
  EXPECT_NE(message(10, 10.0, scalar_int(0)).find("at most 8"), std::string::npos);
  EXPECT_NE(message(8, {}, scalar_int(0)).find("none of base and freqs"), std::string::npos);
  EXPECT_NE(message(8, 10.0, vec({0, 1, 2}, Dtype::int32)).find("one for each of 2"),
            std::string::npos);
  EXPECT_NE(message(8, 10.0, vec({0})).find("must be integer"), std::string::npos);
}

struct AttentionCase {
  int64_t batch = 2, heads = 4, key_heads = 2, queries = 3, keys = 5, width = 8, value_width = 6;
};

// allowed(b, h, i, j) says whether a key is seen; bias is added to its score.
Doubles attention_reference(const AttentionCase& c, const Doubles& q, const Doubles& k,
                            const Doubles& v, double scale,
                            const std::function<double(int64_t, int64_t, int64_t)>& bias,
                            const Doubles& sinks) {
  Doubles out;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.queries; ++i) {
        const int64_t kh = b * c.key_heads + h / (c.heads / c.key_heads);
        Doubles weight(c.keys);
        double total = sinks.empty() ? 0 : std::exp(sinks[h]);
        for (int64_t j = 0; j < c.keys; ++j) {
          double score = 0;
          for (int64_t d = 0; d < c.width; ++d)
            score += q[((b * c.heads + h) * c.queries + i) * c.width + d] *
                     k[(kh * c.keys + j) * c.width + d];
          weight[j] = std::exp(score * scale + bias(h, i, j));
          total += weight[j];
        }
        for (int64_t d = 0; d < c.value_width; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < c.keys; ++j)
            sum += weight[j] * v[(kh * c.keys + j) * c.value_width + d];
          out.push_back(total == 0 ? 0 : sum / total);
        }
      }
  return out;
}

TEST(Attention, MasksSinksAndSharedHeads) {
  const AttentionCase c;
  const array q = scattered({c.batch, c.heads, c.queries, c.width}),
              k = scattered({c.batch, c.key_heads, c.keys, c.width}, Dtype::float32, 1),
              v = scattered({c.batch, c.key_heads, c.keys, c.value_width}, Dtype::float32, 2);
  const array sinks = vec({0.5, -1, 2, 0});
  const array additive = scattered({c.heads, c.queries, c.keys}, Dtype::float32, 3);
  const array bools = grid({1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, {3, 5}, Dtype::boolean);
  const Doubles qv = values(q), kv = values(k), vv = values(v), mv = values(additive),
                bv = values(bools);
  auto reference = [&](const std::function<double(int64_t, int64_t, int64_t)>& bias,
                       const Doubles& s) {
    return attention_reference(c, qv, kv, vv, 0.3, bias, s);
  };
  auto run = [&](const std::string& kind, const std::optional<array>& mask,
                 const std::optional<array>& s) {
    return values(fast::scaled_dot_product_attention(q, k, v, 0.3, kind, mask, s));
  };
  expect_near(run("", {}, {}), reference([](int64_t, int64_t, int64_t) { return 0.0; }, {}), 2e-6);
  expect_near(run("causal", {}, {}),
              reference([&](int64_t, int64_t i,
                            int64_t j) { return j <= i + c.keys - c.queries ? 0.0 : -kInf; },
                        {}),
              2e-6);
  expect_near(run("", additive, {}),
              reference([&](int64_t h, int64_t i,
                            int64_t j) { return mv[(h * c.queries + i) * c.keys + j]; },
                        {}),
              2e-6);
  auto by_bool = [&](int64_t, int64_t i, int64_t j) { return bv[i * c.keys + j] ? 0.0 : -kInf; };
  expect_near(run("", bools, {}), reference(by_bool, {}), 2e-6);
  expect_near(run("", bools, sinks), reference(by_bool, values(sinks)), 2e-6);
}

TEST(Attention, KeepsHalvesAndReportsShapes) {
  const array q = scattered({1, 4, 3, 8}, Dtype::float16),
              k = scattered({1, 2, 5, 8}, Dtype::float16);
  auto run = [&](const array& a, const array& b, const std::optional<array>& mask) {
    return fast::scaled_dot_product_attention(a, b, b, 1, "", mask, {});
  };
  EXPECT_EQ(run(q, k, {}).dtype(), Dtype::float16);
  EXPECT_EQ(values(run(q, k, {})).size(), 96u);
  EXPECT_NE(message_of([&] {
              run(sized_slice(q, {0, 0, 0, 0}, {1, 1, 1, 1}, {1, 3, 3, 8}), k, {});
            }).find("3 query heads for 2 key heads"),
            std::string::npos);
  EXPECT_NE(message_of([&] { run(q, k, zeros({3, 6})); }).find("cannot be broadcast"),
            std::string::npos);
  EXPECT_NE(message_of([&] { run(q, k, zeros({3, 5})); }).find("promote to float16"),
            std::string::npos);
  EXPECT_NE(message_of([&] { run(squeeze(q), k, {}); }).find("(batch, heads, length, features)"),
            std::string::npos);
}

}  // namespace
}  // namespace cermet
