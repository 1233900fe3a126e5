// SPDX-License-Identifier: MIT
#include "kernel/tile_case.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernel/tile.h"

namespace cermet::ir {
namespace {

class Memory {
 public:
  Memory(const Kernel& kernel, const Case& c, const Numbers& extents) {
    const Numbers elements = c.elements(extents);
    size_t buffer = 0;
    uint64_t state = 12345;
    for (const Param& p : kernel.params) {
      Argument a;
      bytes_.emplace_back();
      if (p.kind == ParamKind::buffer) {
        const int64_t count = elements.at(buffer++);
        const size_t size = size_of(p.dtype);
        bytes_.back().resize(static_cast<size_t>(count) * size);
        for (int64_t i = 0; i < count; ++i) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          const int64_t small = static_cast<int64_t>(state >> 33) % 4001 - 2000;
          const bool index = is_integer(p.dtype) && c.index_range > 0;
          const uint64_t bits =
              index ? static_cast<uint64_t>(static_cast<int64_t>(state >> 33) % c.index_range)
                    : from_double(p.dtype, is_floating(p.dtype) ? small * 0.00137 : small % 100);
          std::memcpy(bytes_.back().data() + static_cast<size_t>(i) * size, &bits, size);
        }
        a.data = bytes_.back().data();
        a.elements = count;
      } else {
        a.bits = from_double(p.dtype, c.scalar);
      }
      arguments_.push_back(a);
    }
  }
  const std::vector<Argument>& arguments() const { return arguments_; }
  std::string difference(const Kernel& kernel, const Memory& other) const {
    for (size_t p = 0; p < bytes_.size(); ++p) {
      const std::string d = ir::difference(kernel.params[p].dtype, bytes_[p], other.bytes_[p]);
      if (!d.empty()) return fmt::format("p{}: {}", p, d);
    }
    return "";
  }

 private:
  std::vector<std::vector<char>> bytes_;
  std::vector<Argument> arguments_;
};

}  // namespace

int64_t product(const Numbers& numbers) {
  int64_t result = 1;
  for (int64_t n : numbers) result *= n;
  return result;
}

void expect_same(const Case& c, const std::string& form, const std::vector<Numbers>& shapes) {
  const Kernel kernel = parse(c.text);
  verify(kernel);
  EXPECT_EQ(form_of(kernel, c.facts), form);
  const Kernel tiled = tile(kernel, c.facts);
  verify(tiled);
  EXPECT_EQ(print(parse(print(tiled))), print(tiled));
  for (const Numbers& extents : shapes) {
    const Numbers strides = c.strides(extents);
    Memory before(kernel, c, extents), after(kernel, c, extents);
    const CheckFailure a = interpret(kernel, before.arguments(), extents, strides);
    const CheckFailure b = interpret(tiled, after.arguments(), extents, strides);
    EXPECT_EQ(a.site, b.site);
    ASSERT_EQ(before.difference(kernel, after), "")
        << "extents " << testing::PrintToString(extents) << "\n"
        << print(tiled);
  }
}

}  // namespace cermet::ir
