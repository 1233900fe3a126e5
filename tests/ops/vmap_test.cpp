// SPDX-License-Identifier: MIT
// The batching rules: applied to batched inputs, each gives what a loop over the items gives.
#include "ops/rules.h"
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

using Fn = std::function<array(const Arrays&)>;

constexpr int64_t kSize = 3;

array item_of(const array& a, int64_t i) {
  Shape shape = a.shape();
  PerAxis start(std::vector<Dim>(a.ndim(), 0));
  start.dim(0) = i;
  shape.dim(0) = 1;
  return squeeze(sized_slice(a, start, SliceSteps(a.ndim(), 1), shape), AxisList{0});
}

// The node's row batched: inputs[k] has a batch axis at 0 where batched[k].
array apply_batched(const Node& node, const Arrays& inputs, const std::vector<uint8_t>& batched) {
  const std::unique_ptr<bool[]> flags(new bool[batched.size()]);
  std::copy(batched.begin(), batched.end(), flags.get());
  const std::span<const bool> which(flags.get(), batched.size());
  const OpCall call{*node.row, node.params, inputs};
  const Vmap& vmap = node.row->vmap.value;
  if (const auto* map = std::get_if<AxisMapVmap>(&vmap)) return map->apply(call, which, kSize);
  if (const auto* custom = std::get_if<CustomVmap>(&vmap)) return custom->apply(call, which, kSize);
  EXPECT_TRUE(std::holds_alternative<AxisShiftVmap>(vmap)) << node.row->name.value;
  return make_node(*node.row, inputs, rules::shift_axes(node.params), {});
}

// f builds one node from its arguments (after preparing some of them); every combination is
// batched.
void check(const char* name, const Fn& f, const std::vector<Shape>& shapes,
           const std::vector<Dtype>& dtypes, double modulus = 0) {
  SCOPED_TRACE(name);
  const int count = static_cast<int>(shapes.size());
  for (int mask = 1; mask < 1 << count; ++mask) {
    Arrays full, first;
    std::vector<uint8_t> batched;
    for (int k = 0; k < count; ++k) {
      batched.push_back(mask >> k & 1);
      Shape shape = shapes[k];
      if (batched.back()) shape.insert(0, kSize);
      Doubles v(shape.size());
      for (size_t i = 0; i < v.size(); ++i)
        v[i] = is_inexact(dtypes[k]) ? std::sin(1.7 * static_cast<double>(i) + k)
                                     : std::fmod(static_cast<double>(i * 7 + 1), modulus);
      full.push_back(from_values(v, shape, dtypes[k]));
      first.push_back(batched.back() ? item_of(full.back(), 0) : full.back());
    }
    const array pattern = f(first);
    const array result = apply_batched(*pattern.node(), full, batched);
    Shape want_shape = pattern.shape();
    want_shape.insert(0, kSize);
    ASSERT_EQ(result.shape(), want_shape) << "batched " << mask;
    Doubles want;
    for (int64_t i = 0; i < kSize; ++i) {
      Arrays items;
      for (int k = 0; k < count; ++k) items.push_back(batched[k] ? item_of(full[k], i) : full[k]);
      const Doubles part = values(f(items));
      want.insert(want.end(), part.begin(), part.end());
    }
    expect_near(values(result), want);
  }
}

constexpr Dtype kFloat = Dtype::float32, kInt = Dtype::int32;

TEST(Vmap, Movement) {
  check("reshape", [](const Arrays& in) { return reshape(in[0], {3, 2}); }, {{2, 3}}, {kFloat});
  check("transpose", [](const Arrays& in) { return transpose(in[0]); }, {{2, 3}}, {kFloat});
  check("broadcast_to", [](const Arrays& in) { return broadcast_to(in[0], {4, 2, 3}); }, {{2, 1}},
        {kFloat});
  check("slice", [](const Arrays& in) { return sized_slice(in[0], {1, 2}, {-1, -2}, {2, 2}); },
        {{2, 3}}, {kFloat});
  check("flip", [](const Arrays& in) { return flip(in[0], AxisList{1}); }, {{2, 3}}, {kFloat});
  check("pad", [](const Arrays& in) { return pad(in[0], {{1, 0}, {0, 2}}, in[1]); }, {{2, 3}, {}},
        {kFloat, kFloat});
  check("concatenate", [](const Arrays& in) { return concatenate({in[0], in[1]}, 1); },
        {{2, 3}, {2, 2}}, {kFloat, kFloat});
}

TEST(Vmap, Reductions) {
  check("sum", [](const Arrays& in) { return sum(in[0], AxisList{0}); }, {{2, 3}}, {kFloat});
  check("max", [](const Arrays& in) { return max(in[0], {}, true); }, {{2, 3}}, {kFloat});
  check("argmax", [](const Arrays& in) { return argmax(in[0], 1); }, {{2, 3}}, {kFloat});
  check("softmax", [](const Arrays& in) { return softmax(in[0], AxisList{0}); }, {{2, 3}},
        {kFloat});
  check("logsumexp", [](const Arrays& in) { return logsumexp(in[0]); }, {{2, 3}}, {kFloat});
}

TEST(Vmap, Indexing) {
  check(
      "gather", [](const Arrays& in) { return gather(in[0], {in[1]}, {1}, {2, 1}); }, {{2, 3}, {4}},
      {kFloat, kInt}, 3);
  check(
      "gather by two",
      [](const Arrays& in) { return gather(in[0], {in[1], in[2]}, {0, 1}, {1, 2, 3}); },
      {{3, 3, 3}, {2}, {2}}, {kFloat, kInt, kInt}, 2);
  check(
      "take_along_axis", [](const Arrays& in) { return take_along_axis(in[0], in[1], 1); },
      {{2, 3}, {2, 4}}, {kFloat, kInt}, 3);
}

TEST(Vmap, Writing) {
  check(
      "scatter",
      [](const Arrays& in) { return scatter(in[0], {in[1]}, in[2], {1}, ScatterReduce::add); },
      {{2, 3}, {4}, {4, 2, 1}}, {kFloat, kInt, kFloat}, 3);
  check(
      "scatter_along_axis",
      [](const Arrays& in) {
        return scatter_along_axis(in[0], in[1], in[2], 0, ScatterReduce::maximum);
      },
      {{3, 2}, {4, 2}, {4, 2}}, {kFloat, kInt, kFloat}, 3);
  check("slice_update",
        [](const Arrays& in) { return sized_slice_update(in[0], in[1], {1, 0}, {1, 2}); },
        {{3, 3}, {2, 2}}, {kFloat, kFloat});
}

TEST(Vmap, RandomBitsTakeAKeyForEachItem) {
  const array keys = random::split(random::key(3), kSize);
  const array one = random::bits({2, 2}, 4, item_of(keys, 0));
  const array all = apply_batched(*one.node(), {keys}, {1});
  ASSERT_EQ(all.shape(), (Shape{kSize, 2, 2}));
  Doubles want;
  for (int64_t i = 0; i < kSize; ++i) {
    const Doubles part = values(random::bits({2, 2}, 4, item_of(keys, i)));
    want.insert(want.end(), part.begin(), part.end());
  }
  expect_near(values(all), want, 0);
}

}  // namespace
}  // namespace cermet
