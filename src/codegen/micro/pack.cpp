// SPDX-License-Identifier: MIT
// Rows of a matrix into panels: each row in pieces of whole tiles, then what is left of it.
#include <fmt/format.h>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

namespace {

class PackCode {
 public:
  PackCode(const MicroTarget& target, const ir::PackMicro& micro, MicroFunction& f)
      : m_(micro), lanes_(target.lanes()), f_(f), b_(f.builder()) {}

  void emit() {
    Value* columns = f_.argument(3);
    Value* tiles = b_.CreateAnd(columns, f_.word(-m_.tile_columns));
    Value* rest = b_.CreateSub(columns, tiles);
    Value* vectors = b_.CreateAnd(rest, f_.word(-lanes_));
    Value* elements = b_.CreateSub(rest, vectors);
    Value *to = f_.argument(0), *from = f_.argument(1);
    f_.loop(f_.argument(2), 1, {to, from}, [&](Value*, const MicroValues& row) -> MicroValues {
      MicroValues at = copy(tiles, m_.tile_columns, row, m_.to_panel);
      at = copy(vectors, lanes_, at, lanes_);
      copy(elements, 1, at, 1);
      return {f_.at(row[0], m_.tile_columns), f_.at(row[1], f_.argument(4))};
    });
  }

 private:
  using Value = llvm::Value;

  // `count` elements, `piece` at a time, that lie `to_piece` apart in the target.
  MicroValues copy(Value* count, int64_t piece, const MicroValues& begin, int64_t to_piece) {
    const int64_t width = std::min(piece, lanes_);
    return f_.loop(count, piece, begin, [&](Value*, const MicroValues& at) -> MicroValues {
      MicroValues values;
      for (int64_t j = 0; j < piece; j += width)
        values.push_back(f_.load(f_.vector(width), f_.at(at[1], j)));
      for (int64_t j = 0; j < piece; j += width)
        f_.store(values[static_cast<size_t>(j / width)], f_.at(at[0], j));
      return {f_.at(at[0], to_piece), f_.at(at[1], piece)};
    });
  }

  const ir::PackMicro& m_;
  const int64_t lanes_;
  MicroFunction& f_;
  llvm::IRBuilder<>& b_;
};

}  // namespace

llvm::Function* pack_function(const MicroTarget& target, const ir::PackMicro& m) {
  const std::string name =
      fmt::format("pack_{}_{}_{}", size_of(target.dtype), m.tile_columns, m.to_panel);
  if (llvm::Function* known = target.module.getFunction(name)) return known;
  MicroFunction f(target, name, 2, 3);
  PackCode(target, m, f).emit();
  return f.finish();
}

}  // namespace cermet::codegen
