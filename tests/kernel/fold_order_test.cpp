// SPDX-License-Identifier: MIT
// The order of folds, against a reference that lays out blocks and lanes as whole arrays. Sums of
// numbers of mixed magnitude tell almost every other order apart.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "kernel/run.h"

namespace cermet::ir {
namespace {

const std::vector<int64_t> kSizes = {
    0,   1,    2,    3,    63,   64,   65,   255,  256,  257,  511,          512,
    513, 1000, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 9000, 3 * 4096 + 5, 5 * 4096 + 700};

template <typename T>
std::vector<T> numbers(int64_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> x(static_cast<size_t>(n));
  for (T& v : x)
    v = static_cast<T>(std::ldexp(static_cast<double>(random() % 2000001) - 1000000,
                                  static_cast<int>(random() % 24) - 12));
  return x;
}

// Neighbours level by level, an odd last one as it is.
template <typename S>
S tree(std::vector<S> level, const std::function<S(S, S)>& merge) {
  while (level.size() > 1) {
    std::vector<S> next;
    for (size_t i = 0; i < level.size(); i += 2)
      next.push_back(i + 1 < level.size() ? merge(level[i], level[i + 1]) : level[i]);
    level = next;
  }
  return level[0];
}

template <typename S>
S halve(std::vector<S> lanes, const std::function<S(S, S)>& merge) {
  if (lanes.size() == 1) return lanes[0];
  const size_t half = lanes.size() / 2;
  std::vector<S> left;
  for (size_t l = 0; l < half; ++l) left.push_back(merge(lanes[l], lanes[l + half]));
  return halve(left, merge);
}

template <typename T, typename S>
S reference(const std::vector<T>& x, S init, const std::function<S(S, T)>& step,
            const std::function<S(S, S)>& merge, size_t lanes, size_t block) {
  std::vector<S> blocks;
  for (size_t from = 0; from < x.size(); from += block) {
    std::vector<S> lane(lanes, init);
    for (size_t l = 0; l < lanes; ++l)
      for (size_t i = from + l; i < std::min(from + block, x.size()); i += lanes)
        lane[l] = step(lane[l], x[i]);
    blocks.push_back(halve(lane, merge));
  }
  return blocks.empty() ? init : tree(blocks, merge);
}

std::string sum_kernel(const char* dtype, const char* order) {
  return fmt::format(R"(kernel {{
    param p0 {0} in
    param p1 {0} out
    axis a0
    value v0 {0}
    for stage (a0) {{
      fold v0 over (a0) last {1} {{
        {0} init {0}(-0) step add(state(0, {0}), load(p0[a0])) merge add(state(0, {0}), other(0, {0}))
      }}
    }}
    for stage () {{ store p1[] = v0 }} }})",
                     dtype, order);
}

template <typename T>
void check_sums(const char* dtype, const char* order, size_t lanes, size_t block) {
  const std::function<T(T, T)> add = [](T a, T b) { return a + b; };
  const std::string text = sum_kernel(dtype, order);
  for (int64_t n : kSizes) {
    std::vector<T> x = numbers<T>(n, static_cast<unsigned>(n)), y(1);
    run_text(text, {argument(x), argument(y)}, {n});
    const T expected = reference<T, T>(x, T(-0.0), add, add, lanes, block);
    EXPECT_EQ(y[0], expected) << dtype << " " << order << " " << n;
    EXPECT_EQ(std::signbit(y[0]), std::signbit(expected)) << n;
  }
}

TEST(FoldOrder, Lanes) {
  check_sums<float>("float32", "lanes", 64, 4096);
  check_sums<double>("float64", "lanes", 32, 2048);
}

TEST(FoldOrder, Serial) {
  check_sums<float>("float32", "serial", 1, 256);
  check_sums<double>("float64", "serial", 1, 256);
}

TEST(FoldOrder, TheOrderShows) {
  // Otherwise the tests above would accept any order.
  const std::function<float(float, float)> add = [](float a, float b) { return a + b; };
  int different = 0;
  for (int64_t n : kSizes) {
    const std::vector<float> x = numbers<float>(n, static_cast<unsigned>(n));
    const float right = reference<float, float>(x, -0.0f, add, add, 64, 4096);
    different += right != reference<float, float>(x, -0.0f, add, add, 32, 2048);
    different += right != reference<float, float>(x, -0.0f, add, add, 1, 256);
  }
  EXPECT_GT(different, 20);
}

TEST(FoldOrder, StatesStepTogetherAndAnEightByteOneMakes32Lanes) {
  // A running mean: each state's step reads both old states.
  const char* text = R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    value v0 float32, float64
    for stage (a0) {
      %0 = state(0, float32)
      %1 = state(1, float64)
      %2 = other(1, float64)
      fold v0 over (a0) last lanes {
        float32 init float32(0) step add(%0, div(sub(load(p0[a0]), %0), cast.float32(add(%1, float64(1))))) merge select(eq(%2, float64(0)), %0, add(%0, mul(sub(other(0, float32), %0), cast.float32(div(%2, add(%1, %2))))))
        float64 init float64(0) step add(%1, float64(1)) merge add(%1, %2)
      }
    }
    for stage () {
      store p1[0] = v0.0
      store p1[1] = cast.float32(v0.1)
    } })";
  using State = std::pair<float, double>;
  const std::function<State(State, float)> step = [](State s, float x) {
    return State{s.first + (x - s.first) / static_cast<float>(s.second + 1), s.second + 1};
  };
  const std::function<State(State, State)> merge = [](State a, State b) {
    const float mean =
        b.second == 0
            ? a.first
            : a.first + (b.first - a.first) * static_cast<float>(b.second / (a.second + b.second));
    return State{mean, a.second + b.second};
  };
  for (int64_t n : kSizes) {
    std::vector<float> x = numbers<float>(n, 7), y(2);
    run_text(text, {argument(x), argument(y)}, {n});
    const State expected = reference<float, State>(x, {0.0f, 0.0}, step, merge, 32, 2048);
    EXPECT_EQ(y[0], expected.first) << n;
    EXPECT_EQ(y[1], static_cast<float>(n));
  }
}

TEST(FoldOrder, SeveralAxesCountRowMajorInTheirOrder) {
  const auto text = [](const char* axes) {
    return fmt::format(R"(kernel {{
    param p0 float32 in
    param p1 float32 out
    axis a0
    axis a1
    axis a2
    value v0 float32
    for stage (a0, a1, a2) {{
      fold v0 over {} last lanes {{
        float32 init float32(-0) step add(state(0, float32), load(p0[mul(a0, mul(extent(a1), extent(a2))) + mul(a1, extent(a2)) + a2])) merge add(state(0, float32), other(0, float32))
      }}
    }}
    for stage (a1) {{ store p1[a1] = v0 }} }})",
                       axes);
  };
  const int64_t n0 = 37, n1 = 3, n2 = 50;
  std::vector<float> x = numbers<float>(n0 * n1 * n2, 3), y(3), z(3);
  run_text(text("(a0, a2)"), {argument(x), argument(y)}, {n0, n1, n2});
  run_text(text("(a2, a0)"), {argument(x), argument(z)}, {n0, n1, n2});
  const std::function<float(float, float)> add = [](float a, float b) { return a + b; };
  for (int64_t j = 0; j < n1; ++j) {
    std::vector<float> first, second;
    for (int64_t i = 0; i < n0; ++i)
      for (int64_t k = 0; k < n2; ++k)
        first.push_back(x[static_cast<size_t>((i * n1 + j) * n2 + k)]);
    for (int64_t k = 0; k < n2; ++k)
      for (int64_t i = 0; i < n0; ++i)
        second.push_back(x[static_cast<size_t>((i * n1 + j) * n2 + k)]);
    EXPECT_EQ(y[static_cast<size_t>(j)],
              (reference<float, float>(first, -0.0f, add, add, 64, 4096)));
    EXPECT_EQ(z[static_cast<size_t>(j)],
              (reference<float, float>(second, -0.0f, add, add, 64, 4096)));
  }
}

TEST(FoldOrder, Scan) {
  const char* text = R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    value v0 float32
    for stage (a0) {
      fold v0 over (a0) each serial {
        float32 init float32(-0) step add(state(0, float32), load(p0[a0])) merge add(state(0, float32), other(0, float32))
      }
      store p1[a0] = v0
    } })";
  for (int64_t n : {1, 2, 255, 256, 257, 512, 513, 1500}) {
    std::vector<float> x = numbers<float>(n, 11), y(x.size());
    run_text(text, {argument(x), argument(y)}, {n});
    std::vector<float> ends;  // of each earlier block
    float carry = 0, inside = -0.0f;
    for (size_t i = 0; i < x.size(); ++i) {
      if (i % 256 == 0 && i > 0) {
        ends.push_back(inside);
        carry = ends[0];
        for (size_t b = 1; b < ends.size(); ++b) carry = carry + ends[b];
        inside = -0.0f;
      }
      inside = inside + x[i];
      ASSERT_EQ(y[i], ends.empty() ? inside : carry + inside) << n << " " << i;
    }
  }
}

TEST(FoldOrder, TiledLoopsAndMergeKeepIt) {
  // Partial sums of whole blocks in chunks, then Merge; and one lane loop over everything.
  const char* text = R"(kernel {
    param p0 float32 in
    param p1 float32 out
    axis a0
    axis a1 variable
    axis a2 variable
    value v0 float32
    value v1 float32
    value v2 float32
    scratch l0 float32 1*ceil(a0/4096) kernel
    for chunk (a1) grid 1*ceil(a0/4096) entry "part" {
      %0 = mul(a1, 4096)
      for lane (a2) begin %0 end min(extent(a0), add(%0, 4096)) {
        fold v0 over (a2) last lanes {
          float32 init float32(-0) step add(state(0, float32), load(p0[a2])) merge add(state(0, float32), other(0, float32))
        }
      }
      store l0[a1] = v0
    }
    for chunk (a1) grid 1 entry "whole" {
      merge v1 from (l0) at 0 count div(add(extent(a0), 4095), 4096) stride 1 {
        float32 init float32(-0) step none merge add(state(0, float32), other(0, float32))
      }
      store p1[0] = v1
      for lane (a2) begin 0 end extent(a0) {
        fold v2 over (a2) last lanes {
          float32 init float32(-0) step add(state(0, float32), load(p0[a2])) merge add(state(0, float32), other(0, float32))
        }
      }
      store p1[1] = v2
    } })";
  const std::function<float(float, float)> add = [](float a, float b) { return a + b; };
  for (int64_t n : kSizes) {
    std::vector<float> x = numbers<float>(n, static_cast<unsigned>(n) + 1), y(2);
    run_text(text, {argument(x), argument(y)}, {n});
    const float expected = reference<float, float>(x, -0.0f, add, add, 64, 4096);
    EXPECT_EQ(std::bit_cast<uint32_t>(y[0]), std::bit_cast<uint32_t>(expected)) << n;
    EXPECT_EQ(std::bit_cast<uint32_t>(y[1]), std::bit_cast<uint32_t>(expected)) << n;
  }
}

}  // namespace
}  // namespace cermet::ir
