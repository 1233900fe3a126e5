// SPDX-License-Identifier: MIT
// Movement: values by pulling coordinates, and the same values through the layouts that views give.
#include "ops/testing.h"

namespace cermet {
namespace {

using namespace test;

TEST(Reshape, KeepsTheOrder) {
  const array x = counting({2, 3, 4});
  for (const ShapeList& shape :
       {ShapeList{24}, {6, 4}, {4, 6}, {3, 2, 4}, {2, 12}, {1, 8, 3, 1}, {2, 3, 2, 2}, {8, 1, 3}})
    expect_near(values(reshape(transpose(x), shape)), values(transpose(x)));
  EXPECT_EQ(reshape(x, {-1, 4}).shape(), (Shape{6, 4}));
  EXPECT_EQ(reshape(grid({}, {0, 3}), {-1}).shape(), (Shape{0}));
  EXPECT_EQ(reshape(x, {2, 3, 4}).node(), x.node());
  EXPECT_EQ(
      message_of([&] { reshape(x, {5, 5}); }),
      "[reshape] shape (2, 3, 4) has 24 elements, (5, 5) has 25; give a shape of 24 elements");
  EXPECT_NE(message_of([&] { reshape(x, {-1, -1}); }).find("more than once"), std::string::npos);
  EXPECT_NE(message_of([&] { reshape(x, {-1, 5}); }).find("does not divide"), std::string::npos);
  EXPECT_NE(message_of([&] { reshape(x, {-2, -12}); }).find("negative"), std::string::npos);
}

TEST(Transpose, MovesAxes) {
  const array x = counting({2, 3});
  expect_near(values(transpose(x)), {0, 3, 1, 4, 2, 5});
  EXPECT_EQ(transpose(counting({2, 3, 4}), AxisList{-1, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(swapaxes(counting({2, 3, 4}), 0, -1).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(moveaxis(counting({2, 3, 4}), 0, -1).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(moveaxis(counting({2, 3, 4}), 2, 0).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(transpose(x, AxisList{0, 1}).node(), x.node());
  EXPECT_NE(message_of([&] { transpose(x, AxisList{0}); }).find("give each of its 2 axes once"),
            std::string::npos);
  EXPECT_NE(message_of([&] { transpose(x, AxisList{1, 1}); }).find("twice"), std::string::npos);
}

TEST(BroadcastTo, RepeatsAxesOfSizeOne) {
  expect_near(values(broadcast_to(grid({1, 2}, {2, 1}), {2, 2, 2})), {1, 1, 2, 2, 1, 1, 2, 2});
  EXPECT_EQ(message_of([] { broadcast_to(counting({2, 3}), {3}); }),
            "[broadcast_to] shape (2, 3) cannot become (3,); counted from the last axis, its sizes "
            "must be equal or 1");
  EXPECT_NE(message_of([] { broadcast_to(counting({2}), {-1}); }).find("negative"),
            std::string::npos);
}

TEST(Slice, StartsAndSteps) {
  const array x = counting({3, 4});
  expect_near(values(sized_slice(x, {2, 3}, {-2, -1}, {2, 3})), {11, 10, 9, 3, 2, 1});
  expect_near(values(sized_slice(x, {0, 1}, {1, 2}, {3, 2})), {1, 3, 5, 7, 9, 11});
  EXPECT_EQ(sized_slice(x, {0, 0}, {1, 1}, {3, 4}).node(), x.node());
  EXPECT_EQ(sized_slice(x, {9, 0}, {1, 1}, {0, 4}).shape(), (Shape{0, 4}));
  EXPECT_NE(message_of([&] { sized_slice(x, {1, 0}, {1, 1}, {3, 4}); }).find("leave axis 0"),
            std::string::npos);
}

TEST(Flip, Reverses) {
  expect_near(values(flip(counting({2, 2}))), {3, 2, 1, 0});
  expect_near(values(flip(counting({2, 2}), AxisList{-1})), {1, 0, 3, 2});
}

TEST(Views, AgreeWithPulledCoordinates) {
  const array x = counting({2, 3, 4});
  const array moved[] = {transpose(x, AxisList{2, 0, 1}), flip(x, AxisList{0, 2}),
                         sized_slice(x, {1, 2, 3}, {-1, -1, -2}, {2, 3, 2}), reshape(x, {6, 4}),
                         broadcast_to(reshape(x, {2, 3, 4, 1}), {2, 3, 4, 2})};
  for (const array& a : moved) {
    const Node& node = *a.node();
    const Node& input = *node.inputs[0];
    const Shape* in_shape = &input.shape;
    const NodeView view{*node.row,  node.params,     node.dtype,
                        node.shape, {*node.row, {}}, {*node.row, {&in_shape, 1}}};
    const auto& lowering = std::get<MoveLowering>(node.row->lowering.value);
    const std::optional<Layout> layout =
        lowering.view(view, input.shape, Layout::contiguous(input.shape));
    ASSERT_TRUE(layout) << node.row->name.value;
    const array seen = array::from_buffer(x.node()->buffer, node.shape, *layout, Dtype::float32);
    expect_near(values(seen), values(a), 0);
  }
}

TEST(Pad, ConstantAndMirrored) {
  const array value = full({}, number(9.0), Dtype::float32);
  expect_near(values(pad(counting({2, 2}), {{1, 0}, {0, 1}}, value)), {9, 9, 9, 0, 1, 9, 2, 3, 9});
  const array x = vec({1, 2, 3});
  expect_near(values(pad(x, {{2, 2}}, value, "edge")), {1, 1, 1, 2, 3, 3, 3});
  expect_near(values(pad(x, {{2, 2}}, value, "reflect")), {3, 2, 1, 2, 3, 2, 1});
  expect_near(values(pad(x, {{2, 2}}, value, "symmetric")), {2, 1, 1, 2, 3, 3, 2});
  expect_near(values(pad(x, {{3, 3}}, value, "reflect")), {2, 3, 2, 1, 2, 3, 2, 1, 2});
  expect_near(values(pad(x, {{4, 4}}, value, "symmetric")), {3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1});
  EXPECT_NE(message_of([&] { pad(x, {{-1, 0}}, value); }).find("widths must be >= 0"),
            std::string::npos);
  EXPECT_NE(message_of([&] { pad(x, {{1, 0}}, value, "foo"); }).find("'foo'"), std::string::npos);
  EXPECT_EQ(pad(x, {{0, 0}}, value).node(), x.node());
}

TEST(Concatenate, JoinsAndPromotes) {
  const array a = counting({2, 1}), b = counting({2, 3}, Dtype::int32);
  const array c = concatenate({a, b, a}, 1);
  EXPECT_EQ(c.dtype(), Dtype::float32);
  expect_near(values(c), {0, 0, 1, 2, 0, 1, 3, 4, 5, 1});
  expect_near(values(concatenate({a, grid({}, {0, 1}), a})), {0, 1, 0, 1});
  expect_near(values(concatenate({a, b}, {})), {0, 1, 0, 1, 2, 3, 4, 5});
  expect_near(values(stack({vec({1, 2}), vec({3, 4})}, -1)), {1, 3, 2, 4});
  EXPECT_NE(message_of([&] { concatenate({a, b}, 0); }).find("differ along axis 1"),
            std::string::npos);
  EXPECT_NE(message_of([] { concatenate({}); }).find("no arrays"), std::string::npos);
  EXPECT_NE(message_of([&] { stack({a, b}); }).find("[stack]"), std::string::npos);
}

TEST(Split, EvenlyAndAtIndices) {
  const array x = counting({6});
  EXPECT_EQ(split(x, 3).size(), 3u);
  expect_near(values(split(x, 3)[1]), {2, 3});
  const std::vector<array> parts = split(x, ShapeList{4, 2, 10, -1});
  const Doubles sizes = {4, 0, 4, 0, 1};
  ASSERT_EQ(parts.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(parts[i].size(), sizes[i]);
  expect_near(values(parts[2]), {2, 3, 4, 5});
  EXPECT_NE(message_of([&] { split(x, 4); }).find("cannot be cut into 4 equal parts"),
            std::string::npos);
}

TEST(Repeat, AndTile) {
  expect_near(values(tile(vec({1, 2}), {2, 2})), {1, 2, 1, 2, 1, 2, 1, 2});
  expect_near(values(tile(counting({1, 2}), {2})), {0, 1, 0, 1});
  expect_near(values(repeat(counting({2, 2}), 2)), {0, 0, 1, 1, 2, 2, 3, 3});
  expect_near(values(repeat(counting({2, 2}), 2, 0)), {0, 1, 0, 1, 2, 3, 2, 3});
  EXPECT_EQ(repeat(counting({2}), 0).shape(), (Shape{0}));
}

TEST(Shapes, NamedReshapes) {
  const array x = counting({2, 3, 4});
  EXPECT_EQ(flatten(x, 0, 1).shape(), (Shape{6, 4}));
  EXPECT_EQ(flatten(array(1.0)).shape(), (Shape{1}));
  EXPECT_EQ(unflatten(x, -1, {2, -1}).shape(), (Shape{2, 3, 2, 2}));
  EXPECT_EQ(squeeze(counting({1, 2, 1})).shape(), (Shape{2}));
  EXPECT_EQ(squeeze(counting({1, 2, 1}), AxisList{0}).shape(), (Shape{2, 1}));
  EXPECT_EQ(expand_dims(counting({2}), {0, -1}).shape(), (Shape{1, 2, 1}));
  EXPECT_NE(message_of([&] { squeeze(x, AxisList{1}); }).find("has size 3"), std::string::npos);
  EXPECT_NE(message_of([&] { unflatten(x, 0, {3, -1}); }).find("[unflatten]"), std::string::npos);
  EXPECT_NE(message_of([&] { flatten(x, 2, 1); }).find("comes after"), std::string::npos);
  EXPECT_NE(message_of([&] { expand_dims(x, {7}); }).find("[expand_dims] axis 7"),
            std::string::npos);
}

}  // namespace
}  // namespace cermet
