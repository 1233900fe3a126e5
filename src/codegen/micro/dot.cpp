// SPDX-License-Identifier: MIT
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/micro/micro.h"

namespace cermet::codegen {

using llvm::Value;

Value* Dots::element(llvm::IRBuilder<>& b, Value* x, unsigned bits, unsigned i, bool is_signed) {
  Value* up = b.CreateShl(x, 32 - bits * (i + 1));
  return is_signed ? b.CreateAShr(up, 32 - bits) : b.CreateLShr(up, 32 - bits);
}

Value* Dots::of_bytes(llvm::IRBuilder<>& b, Value* sum, Value* x, Value* y, bool x_signed,
                      bool y_signed) const {
  using namespace llvm::Intrinsic;
  if (x_signed && !y_signed) std::swap(x, y), std::swap(x_signed, y_signed);
  if (features_.vnni && lanes_ >= 8 && !x_signed && y_signed)
    return b.CreateIntrinsic(lanes_ == 16 ? x86_avx512_vpdpbusd_512 : x86_avx512_vpdpbusd_256, {},
                             {sum, x, y});
  for (unsigned i = 0; i < 4; ++i)
    sum =
        b.CreateAdd(sum, b.CreateMul(element(b, x, 8, i, x_signed), element(b, y, 8, i, y_signed)));
  return sum;
}

// The pairs' own sum wraps as the whole one does.
Value* Dots::of_int16(llvm::IRBuilder<>& b, Value* sum, Value* x, Value* y) const {
  using namespace llvm::Intrinsic;
  if (features_.vnni && lanes_ >= 8)
    return b.CreateIntrinsic(lanes_ == 16 ? x86_avx512_vpdpwssd_512 : x86_avx512_vpdpwssd_256, {},
                             {sum, x, y});
  if (features_.x86 && lanes_ >= 4) {
    const auto halves = [&](Value* v) {
      return b.CreateBitCast(v, with_width(b.getInt16Ty(), static_cast<int>(2 * lanes_)));
    };
    const ID id = lanes_ == 16  ? x86_avx512_pmaddw_d_512
                  : lanes_ == 8 ? x86_avx2_pmadd_wd
                                : x86_sse2_pmadd_wd;
    return b.CreateAdd(sum, b.CreateIntrinsic(id, {}, {halves(x), halves(y)}));
  }
  for (unsigned i = 0; i < 2; ++i)
    sum = b.CreateAdd(sum, b.CreateMul(element(b, x, 16, i, true), element(b, y, 16, i, true)));
  return sum;
}

}  // namespace cermet::codegen
