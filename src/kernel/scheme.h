// SPDX-License-Identifier: MIT
// How the products of a Contract are made. The schedule chooses by a table (product_table.cpp); the tiler takes
// bfloat16 and narrow integer operands by the processor's own instructions where it has them (dot_..., amx_bf16,
// amx_int8), and makes the fma of its kind of what a target cannot do.
#pragma once

#include <cstdint>

namespace cermet::ir {

enum class Scheme : uint8_t {
  fma,          // fused multiply-adds; one operand packed whole, once
  fma_local,    // items pack both operands
  fma_split_k,  // the same, for pieces of the sum
  fma_tall,     // large products: higher blocks of fewer columns; A in place or packed whole
  fma_wide,     // fma of operands widened to the accumulators' dtype, in any case
  panel,        // few rows, the other operand read in place
  panel_long,   // ..., which is expected beyond the caches; along k its columns may become lanes
  panel_four,   // panel, of up to four rows
  panel_four_long,  // panel_long, of up to four rows
  panel_packed,     // panel_long, the other operand packed first: for one that serves again
  panel_four_packed,
  dot_bf16,         // pairs of bfloat16 by a dot instruction
  dot_int8,         // fours of int8 by a dot instruction
  dot_int16,        // pairs of int16, and of what it holds, by one
  amx_bf16,         // bfloat16 by tile instructions
  amx_panel,        // ..., few rows, the other operand read in place
  amx_int8,         // int8 and uint8 by tile instructions
  amx_split,        // float32 and float16 in bfloat16 parts by tile instructions, as fma
  amx_split_local,  // ..., as fma_local
  amx_split_k,      // ..., as fma_split_k
};

constexpr bool is_panel(Scheme scheme) {
  return Scheme::panel <= scheme && scheme <= Scheme::panel_four_packed;
}
constexpr bool is_four(Scheme scheme) {
  return scheme == Scheme::panel_four || scheme == Scheme::panel_four_long ||
         scheme == Scheme::panel_four_packed;
}
constexpr bool is_packed(Scheme scheme) {
  return scheme == Scheme::panel_packed || scheme == Scheme::panel_four_packed;
}
constexpr bool is_long(Scheme scheme) {
  return scheme == Scheme::panel_long || scheme == Scheme::panel_four_long || is_packed(scheme);
}
constexpr bool takes_tiles(Scheme scheme) { return scheme >= Scheme::amx_bf16; }

}  // namespace cermet::ir
