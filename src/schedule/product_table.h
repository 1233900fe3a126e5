// SPDX-License-Identifier: MIT
// The table of schemes of products: which row fits is asked by product_scheme.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernel/scheme.h"

namespace cermet::schedule {

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which rows are read
struct ProductRow {
  // What is multiplied, and by what the processor has for it.
  enum class Kind : uint8_t {
    any,
    complex,
    floating,        // real or complex
    real,            // float32 and float64
    full,            // ..., and halves that no instruction multiplies, in vectors of 64 bytes
    full_real,       // float32 and float64 alone
    whole,           // whole_real, or bfloat16_dot, where 64 bytes run whole
    whole_half,      // halves that no instruction multiplies, likewise
    whole_real,      // full_real, where 64 bytes run whole
    large_l2_real,   // ..., and L2 has 2 MiB
    large_l2_half,   // whole_half there, without tile instructions
    narrow,          // float32 and float64 in shorter ones
    half,            // float16 and bfloat16, or what is cast from them
    narrow_half,     // ..., in vectors of 32 bytes
    bfloat16,        // values of that dtype, by tile instructions
    bfloat16_whole,  // ..., k in whole tiles
    bfloat16_dot,    // ..., by dot instructions instead
    packed,          // what fma packs whole: of these and other halves, with short vectors of any
    parts,           // float32, float16 and complex64 in bfloat16 parts, by tile instructions
    real_parts,      // ..., but complex64
    bytes,           // integers of 8 bits by tile instructions
  };

  struct Range {
    int64_t least = 0, most = std::numeric_limits<int64_t>::max();
    bool holds(int64_t size) const { return least <= size && size <= most; }
  };

  enum class Sum : uint8_t { any, is_long };
  enum class Work : uint8_t { any, is_small };           // too small for costs to decide
  enum class Form : uint8_t { any, wide, tall };         // m < n; m >= n
  enum class Lies : uint8_t { any, along_k, across_k };  // in memory

  Kind kind;
  Form form = Form::any;
  Lies a = Lies::any, larger_lies = Lies::any;  // A, the larger operand
  Range m = {};
  Range few = {}, many = {};  // of m and n, the lesser and the larger
  Range k = {}, batch = {};
  Range larger = {};   // elements of the larger operand
  Range blocks = {};   // of kTiledRows x kTiledRows
  bool loads = false;  // the larger operand is read as it lies
  Sum sum = Sum::any;
  Work work = Work::any;
  ir::Scheme scheme;
};

// The first row that fits is taken, in this order; the last one fits all.
std::span<const ProductRow> batch_table();
std::span<const ProductRow> tile_table();
std::span<const ProductRow> product_table();
// The scheme of an operand that serves again, which packs it whole, where that gives the same bits: the first row that
// fits, if any (product_kept.cpp).
std::span<const ProductRow> kept_table();

}  // namespace cermet::schedule
