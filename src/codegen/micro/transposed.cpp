// SPDX-License-Identifier: MIT
#include "codegen/micro/transposed.h"

namespace cermet::codegen {

namespace {

using llvm::Value;

int width_of(const MicroValues& vectors) {
  return static_cast<int>(
      llvm::cast<llvm::FixedVectorType>(vectors[0]->getType())->getNumElements());
}

// In each part, the units of the lower (upper) half of a and b in turn: one unpack instruction.
Value* mixed(llvm::IRBuilder<>& b, Value* first, Value* second, int lanes, int piece, int unit,
             bool upper) {
  llvm::SmallVector<int, 64> order;
  for (int part = 0; part < lanes; part += piece)
    for (int i = 0; i < piece; ++i) {
      // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a piece has 2 elements or more
      const int pair = i / (2 * unit), of_second = i / unit % 2;
      order.push_back(part + (upper ? piece / 2 : 0) + pair * unit + i % unit + of_second * lanes);
    }
  return b.CreateShuffleVector(first, second, order);
}

// Every second part of both, from the first (second) on.
Value* every_second(llvm::IRBuilder<>& b, Value* first, Value* second, int lanes, int piece,
                    bool odd) {
  llvm::SmallVector<int, 64> order;
  for (int part = odd ? piece : 0; part < 2 * lanes; part += 2 * piece)
    for (int i = 0; i < piece; ++i) order.push_back(part + i);
  return b.CreateShuffleVector(first, second, order);
}

}  // namespace

// Each round doubles the rows that lie side by side and halves the columns: first the lower ones of all pairs,
// then the upper ones. So the columns end in the order of their numbers' reversed bits.
MicroValues transposed_parts(llvm::IRBuilder<>& b, MicroValues vectors) {
  const int lanes = width_of(vectors), piece = static_cast<int>(vectors.size());
  for (int unit = 1; unit < piece; unit *= 2) {
    MicroValues halves;
    for (const bool upper : {false, true})
      for (int q = 0; q < piece; q += 2)
        halves.push_back(mixed(b, vectors[q], vectors[q + 1], lanes, piece, unit, upper));
    vectors = halves;
  }
  MicroValues columns(vectors.size());
  for (int q = 0; q < piece; ++q) {
    int column = 0;
    for (int bit = 1; bit < piece; bit *= 2) column = 2 * column + ((q & bit) != 0 ? 1 : 0);
    columns[column] = vectors[q];
  }
  return columns;
}

MicroValues transposed(llvm::IRBuilder<>& b, const MicroValues& rows) {
  const int lanes = width_of(rows);
  const int piece =
      16 * 8 / static_cast<int>(rows[0]->getType()->getScalarType()->getPrimitiveSizeInBits());
  std::vector<MicroValues> groups;  // of rows; in part p of vector q: column p * piece + q
  for (int i = 0; i < lanes; i += piece)
    groups.push_back(transposed_parts(b, {rows.begin() + i, rows.begin() + i + piece}));
  MicroValues columns(rows.size());
  for (int q = 0; q < piece; ++q) {
    MicroValues vectors;
    for (const MicroValues& group : groups) vectors.push_back(group[q]);
    const auto parts = static_cast<int>(vectors.size());
    for (int done = 1; done < parts; done *= 2) {
      MicroValues halves;
      for (const bool odd : {false, true})
        for (int p = 0; p < parts; p += 2)
          halves.push_back(every_second(b, vectors[p], vectors[p + 1], lanes, piece, odd));
      vectors = halves;
    }
    for (int p = 0; p < parts; ++p) columns[p * piece + q] = vectors[p];
  }
  return columns;
}

}  // namespace cermet::codegen
