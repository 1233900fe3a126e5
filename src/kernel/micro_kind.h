// SPDX-License-Identifier: MIT
// The templates that code generators have for work in registers: micro.h says what each means.
#pragma once

#include <cstdint>

namespace cermet::ir {

enum class MicroKind : uint8_t {
  gemm,
  transpose,
  turn,
  rows,
  pack,
  panel_n,       // a panel's matrix lies along n,
  panel_k,       // along k,
  panel_strips,  // or packed in strips
  tile_gemm,
};

constexpr bool is_panel(MicroKind kind) {
  return MicroKind::panel_n <= kind && kind <= MicroKind::panel_strips;
}

}  // namespace cermet::ir
