// SPDX-License-Identifier: MIT
// Layout movement against brute force: every address of a view is enumerated and compared, and a
// reshape must be refused exactly when no strides give the addresses wanted.
#include "base/shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"
#include "base/format.h"

namespace cermet {
namespace {

// The addresses of a view in row-major order of its indices.
std::vector<int64_t> addresses(const Shape& shape, const Layout& layout) {
  std::vector<int64_t> result = {layout.offset};
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    std::vector<int64_t> next;
    for (int64_t base : result) {
      for (int64_t i = 0; i < shape[axis]; ++i) next.push_back(base + i * layout.strides[axis]);
    }
    result = std::move(next);
  }
  return result;
}

// The layout of shape `to` with those addresses, if there is one: strides are read off the first
// step along each axis, then checked against all addresses.
std::optional<Layout> brute_force(const std::vector<int64_t>& wanted, const Shape& to) {
  Layout layout{Strides(to.ndim(), 0), wanted.empty() ? 0 : wanted[0]};
  int64_t step = 1;
  for (int axis = to.ndim() - 1; axis >= 0; --axis) {
    if (to[axis] > 1) layout.strides[axis] = wanted[step] - wanted[0];
    step *= to[axis];
  }
  if (addresses(to, layout) != wanted) return std::nullopt;
  return layout;
}

std::vector<Shape> shapes_of_size(int64_t size, int max_ndim) {
  std::vector<Shape> result;
  std::function<void(std::vector<int64_t>, int64_t)> extend = [&](std::vector<int64_t> dims,
                                                                  int64_t rest) {
    if (rest == 1) result.emplace_back(std::span<const int64_t>(dims));
    if (static_cast<int>(dims.size()) == max_ndim) return;
    for (int64_t d = 1; d <= rest; ++d) {
      if (rest % d != 0) continue;
      dims.push_back(d);
      extend(dims, rest / d);
      dims.pop_back();
    }
  };
  extend({}, size);
  return result;
}

TEST(Layout, ReshapeIsAViewExactlyWhenStridesExist) {
  std::mt19937 random(3);
  int views = 0;
  int copies = 0;
  for (int64_t size : {1, 4, 6, 8, 12}) {
    const std::vector<Shape> shapes = shapes_of_size(size, 4);
    for (const Shape& from : shapes) {
      for (int trial = 0; trial < 6; ++trial) {
        Layout layout = Layout::contiguous(from);
        layout.offset = static_cast<int64_t>(random() % 50);
        if (trial > 0) {
          // Padded, negative, broadcast and permuted strides.
          for (Dim& stride : layout.strides) {
            const int kind = random() % 6;
            if (kind == 0) stride = 0;
            if (kind == 1) stride = -stride;
            if (kind == 2) stride *= 2;
          }
          if (trial % 2 == 1) std::shuffle(layout.strides.begin(), layout.strides.end(), random);
        }
        const std::vector<int64_t> wanted = addresses(from, layout);
        for (const Shape& to : shapes) {
          const std::optional<Layout> expected = brute_force(wanted, to);
          const std::optional<Layout> got = reshape_layout(from, layout, to);
          ASSERT_EQ(got.has_value(), expected.has_value())
              << from.to_string() << " to " << to.to_string() << " strides "
              << fmt::format("{}", fmt::join(layout.strides, ","));
          if (got) {
            ASSERT_EQ(addresses(to, *got), wanted);
          }
          ++(got ? views : copies);
        }
      }
    }
  }
  EXPECT_GT(views, 1000);
  EXPECT_GT(copies, 1000);
}

TEST(Layout, ReshapeOfNothingIsAView) {
  const Shape from{0, 3};
  const auto layout = reshape_layout(from, Layout::contiguous(from), Shape{2, 0, 5});
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->strides.size(), 3u);
}

TEST(Layout, ContiguousVisitsEachElementInOrder) {
  for (const Shape& shape : shapes_of_size(12, 4)) {
    const std::vector<int64_t> visited = addresses(shape, Layout::contiguous(shape));
    for (size_t i = 0; i < visited.size(); ++i) ASSERT_EQ(visited[i], static_cast<int64_t>(i));
    EXPECT_TRUE(is_contiguous(shape, Layout::contiguous(shape)));
  }
  EXPECT_EQ(Layout::contiguous(Shape{}), Layout{});
}

TEST(Layout, IsContiguousMeansAddressesFollowEachOther) {
  std::mt19937 random(5);
  for (const Shape& shape : shapes_of_size(8, 3)) {
    for (int trial = 0; trial < 20; ++trial) {
      Layout layout = Layout::contiguous(shape);
      layout.offset = 9;
      if (trial > 0) std::shuffle(layout.strides.begin(), layout.strides.end(), random);
      const std::vector<int64_t> visited = addresses(shape, layout);
      bool follows = true;
      for (size_t i = 0; i < visited.size(); ++i) {
        follows &= visited[i] == 9 + static_cast<int64_t>(i);
      }
      EXPECT_EQ(is_contiguous(shape, layout), follows) << shape.to_string();
    }
  }
}

TEST(Layout, ReachIsTheSmallestRangeOfTheAddresses) {
  std::mt19937 random(9);
  for (const Shape& shape : shapes_of_size(12, 3)) {
    Layout layout{{}, 100};
    for (int i = 0; i < shape.ndim(); ++i) {
      layout.strides.push_back(static_cast<int64_t>(random() % 15) - 7);
    }
    const std::vector<int64_t> visited = addresses(shape, layout);
    const auto [low, high] = std::ranges::minmax(visited);
    EXPECT_EQ(reach_of(shape, layout), std::pair(low, high + 1));
  }
  EXPECT_EQ(reach_of(Shape{3, 0}, Layout{{1, 1}, 7}), (std::pair<int64_t, int64_t>(0, 0)));
}

TEST(Layout, TransposePermutesTheIndices) {
  const Shape shape{2, 3, 4};
  const Layout layout{{-40, 7, 2}, 90};
  const int axes[] = {2, 0, 1};
  const Layout moved = transpose_layout(layout, axes);
  const std::vector<int64_t> before = addresses(shape, layout);
  const std::vector<int64_t> after = addresses(Shape{4, 2, 3}, moved);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(after[(k * 2 + i) * 3 + j], before[(i * 3 + j) * 4 + k]);
      }
    }
  }
}

TEST(Layout, BroadcastRepeatsAddresses) {
  const Shape from{3, 1};
  const Shape to{2, 3, 4};
  const Layout layout{{5, 1}, 20};
  const std::vector<int64_t> visited = addresses(to, broadcast_layout(from, layout, to));
  for (int i = 0; i < 24; ++i) EXPECT_EQ(visited[i], 20 + 5 * (i / 4 % 3));
  EXPECT_THROW(broadcast_layout(Shape{3}, Layout::contiguous(Shape{3}), Shape{4}), Error);
}

TEST(Shape, TextIsPythons) {
  EXPECT_EQ(Shape{}.to_string(), "()");
  EXPECT_EQ(Shape{4}.to_string(), "(4,)");
  EXPECT_EQ(fmt::format("{}", Shape({2, 0, 3})), "(2, 0, 3)");
}

TEST(Shape, SizeOfScalarsAndEmpties) {
  EXPECT_EQ(Shape{}.size(), 1);
  EXPECT_EQ((Shape{3, 0, 5}).size(), 0);
  EXPECT_EQ((Shape{int64_t{1} << 32, 4}).size(), int64_t{1} << 34);
}

std::string message_of(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

TEST(Shape, BroadcastFollowsNumpy) {
  EXPECT_EQ(broadcast_shapes("add", Shape{3, 1}, Shape{2, 1, 4}), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes("add", Shape{}, Shape{5}), Shape{5});
  EXPECT_EQ(broadcast_shapes("add", Shape{0}, Shape{1}), Shape{0});
  const auto call = [] { broadcast_shapes("add", Shape{2, 3}, Shape{4}); };
  EXPECT_EQ(message_of(call, ErrorKind::value),
            "[add] shapes (2, 3) and (4,) cannot be broadcast: 3 and 4 differ; counted from the "
            "last axis, sizes must be equal or 1");
  EXPECT_THROW(broadcast_shapes("add", Shape{0}, Shape{2}), Error);
}

TEST(Shape, SizesAreChecked) {
  check_size("zeros", Shape{int64_t{1} << 31, int64_t{1} << 29}, Dtype::float32);
  const auto huge = [] {
    check_size("zeros", Shape{int64_t{1} << 31, int64_t{1} << 30}, Dtype::float32);
  };
  EXPECT_EQ(message_of(huge, ErrorKind::overflow),
            "[zeros] an array of shape (2147483648, 1073741824) and dtype float32 has more than "
            "9223372036854775807 bytes; use smaller sizes");
  const auto negative = [] { check_size("zeros", Shape{2, -1}, Dtype::int8); };
  EXPECT_EQ(message_of(negative, ErrorKind::value),
            "[zeros] shape (2, -1) has a negative size; sizes must be >= 0");
  EXPECT_THROW(check_size("zeros", Shape{0, int64_t{1} << 40, int64_t{1} << 40}, Dtype::int8),
               Error);
}

TEST(Axes, AreNormalisedOrNamed) {
  for (int ndim = 1; ndim < 5; ++ndim) {
    for (int64_t axis = -ndim; axis < ndim; ++axis) {
      EXPECT_EQ(normalize_axis("sum", axis, ndim), (axis + ndim) % ndim);
    }
  }
  EXPECT_EQ(message_of([] { normalize_axis("sum", 2, 2); }, ErrorKind::axis),
            "[sum] axis 2 is out of range for an array with 2 axes; use -2 <= axis < 2");
  EXPECT_EQ(message_of([] { normalize_axis("sum", 0, 0); }, ErrorKind::axis),
            "[sum] axis 0 given, but the array has no axes; leave the axis out");
  EXPECT_THROW(normalize_axis("sum", std::numeric_limits<int64_t>::min(), 3), Error);
  const std::vector<int64_t> axes = {-1, 0};
  EXPECT_EQ(normalize_axes("sum", axes, 3), (Axes{0, 2}));
  const std::vector<int64_t> repeated = {1, -1};
  EXPECT_EQ(message_of([&] { normalize_axes("sum", repeated, 2); }, ErrorKind::value),
            "[sum] axis 1 is given twice in (1, -1) for an array with 2 axes; name each axis once");
}

class CountingTrace final : public SizeTrace {
 public:
  void look(const Dim&) override { ++guards; }
  bool equal(const Dim& a, const Dim& b) override { return ++guards, a.value == b.value; }
  bool less(const Dim& a, const Dim& b) override { return ++guards, a.value < b.value; }
  Dim combine(char op, const Dim& a, const Dim& b) override {
    return {op == '*' ? a.value * b.value : op == '/' ? a.value / b.value : a.value + b.value, 7};
  }
  int64_t decide(std::span<const Dim> by, const Decider& decider) override {
    ++guards;
    std::vector<int64_t> values;
    for (const Dim& dim : by) values.push_back(dim.value);
    return decider(values);
  }
  int guards = 0;
};

// A short list keeps its elements inside, a long one outside; both act as a std::vector does.
TEST(InlineVector, ActsAsAVector) {
  using List = InlineVector<int, 4>;
  const auto equal = [](const List& list, const std::vector<int>& expected) {
    return std::ranges::equal(list, expected);
  };
  for (int count = 0; count < 12; ++count) {
    SCOPED_TRACE(count);
    List list;
    std::vector<int> expected;
    for (int i = 0; i < count; ++i) {
      list.push_back(i);
      expected.push_back(i);
    }
    EXPECT_EQ(list.size(), expected.size());
    EXPECT_EQ(list.empty(), expected.empty());
    for (int at = 0; at <= count; ++at) {
      List longer = list;
      std::vector<int> as_long = expected;
      longer.insert(longer.begin() + at, 77);
      as_long.insert(as_long.begin() + at, 77);
      EXPECT_TRUE(equal(longer, as_long)) << at;
      longer.erase(longer.begin() + at);
      EXPECT_TRUE(equal(longer, expected)) << at;
      list = longer;
    }
    List moved = std::move(list);
    EXPECT_TRUE(equal(moved, expected));
    list = std::move(moved);
    list = *&list;
    EXPECT_TRUE(equal(list, expected));
    EXPECT_TRUE(equal(List(std::span<const int>(expected)), expected));
    list = List();
    EXPECT_TRUE(list.empty());
  }
}

TEST(Dim, OnlyLookingAtASymbolicSizeRecordsAGuard) {
  CountingTrace trace;
  int& guards = trace.guards;
  Dim::trace = &trace;
  Shape a({Dim(4, 1), Dim(3)});
  Shape b({Dim(4, 1), Dim(1)});
  EXPECT_TRUE(a.dim(0).expr == b.dim(0).expr);
  const Shape both = broadcast_shapes("add", a, b);
  EXPECT_EQ(both.dim(0).expr, 1u);
  EXPECT_TRUE(a == both);
  EXPECT_EQ(broadcast_shapes("add", a, Shape{1, 3}).dim(0).expr, 1u);
  EXPECT_EQ(a.to_string(), "(4, 3)");
  check_size("add", a, Dtype::float32);
  EXPECT_EQ(guards, 0);
  EXPECT_EQ(a[0], 4);
  EXPECT_EQ(guards, 1);
  EXPECT_TRUE(a == (Shape{4, 3}));
  EXPECT_EQ(guards, 2);
  EXPECT_EQ(a.count().expr, 7u);
  EXPECT_EQ(quotient(times(a.dim(0), 5), 2).value, 10);
  {
    const UnguardedSizes unguarded;
    EXPECT_EQ(a.size(), 12);
  }
  EXPECT_EQ(guards, 2);
  Dim::trace = nullptr;
}

TEST(Dim, Arithmetic) {
  for (int64_t a = -7; a <= 7; ++a) {
    for (int64_t b = 1; b <= 4; ++b) {
      const auto floor =
          static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
      EXPECT_EQ(quotient(a, b).value, floor) << a << " / " << b;
      EXPECT_EQ(remainder(Dim(a), Dim(b)).value, a - floor * b) << a << " % " << b;
      EXPECT_EQ(smaller(a, b).value, std::min(a, b));
      EXPECT_EQ(clamped(a, -b, b).value, std::clamp(a, -b, b));
      const Dim x = a, y = b;
      EXPECT_EQ((x + y).value, a + b);
      EXPECT_EQ((x - y).value, a - b);
      EXPECT_EQ((x * y).value, a * b);
      EXPECT_EQ((3 * x - b + y * 2 - -x).value, 3 * a - b + b * 2 + a);
      EXPECT_EQ(larger(x, y).value, std::max(a, b));
      EXPECT_EQ(x < y, a < b);
      EXPECT_EQ(x <= b, a <= b);
      EXPECT_EQ(a > y, a > b);
      EXPECT_EQ(x >= y, a >= b);
      EXPECT_EQ(x == b, a == b);
      EXPECT_EQ(a != y, a != b);
    }
  }
}

TEST(Dim, OperatorsKeepSymbolsAndRelationsLeaveGuards) {
  CountingTrace trace;
  Dim::trace = &trace;
  const Dim n(4, 1), three = 3;
  for (const Dim& made : {n + 2, 2 * n, n - three, -n, n * n}) EXPECT_EQ(made.expr, 7u);
  EXPECT_EQ((n * 1).expr, 1u);
  EXPECT_EQ((n + 0).expr, 1u);
  EXPECT_TRUE(n == n && n <= n && !(n < n));
  EXPECT_EQ(trace.guards, 0);
  EXPECT_TRUE(n > three);
  EXPECT_EQ(trace.guards, 1);
  EXPECT_FALSE(n == 5);
  EXPECT_EQ(trace.guards, 2);
  const Dim both[] = {n, three};
  const auto add = [](std::span<const int64_t> of) { return of[0] + of[1]; };
  EXPECT_EQ(decide(both, add), 7);
  EXPECT_EQ(trace.guards, 3);
  EXPECT_EQ(decide({both + 1, 1}, [](std::span<const int64_t> of) { return of[0]; }), 3);
  EXPECT_EQ(trace.guards, 3);
  {  // rules that are not applied again leave guards, whatever they ask for
    trace.applies_rules_again = false;
    const UnguardedSizes unguarded;
    EXPECT_EQ(static_cast<int64_t>(n), 4);
  }
  EXPECT_EQ(trace.guards, 4);
  Dim::trace = nullptr;
}

}  // namespace
}  // namespace cermet
