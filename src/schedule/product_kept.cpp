// SPDX-License-Identifier: MIT
// The table of operands that serve again, as the one of schemes (product_table.cpp). Beside a row stands what the
// packed operand gains over the scheme before it, packing apart.
#include "kernel/micro.h"
#include "schedule/product_table.h"

namespace cermet::schedule {

namespace {

using ir::Scheme;
using Kind = ProductRow::Kind;
using Form = ProductRow::Form;
using Lies = ProductRow::Lies;

constexpr ProductRow kKept[] = {
    // 4096 x 4096: 2 to 16 rows 1.9 times, 64 rows 1.8, 128 rows 1.5, 256 rows 1.7 times.
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .m = {2, ir::kTiledRows},
     .k = {20},
     .batch = {0, 1},
     .larger = {1 << 19},
     .scheme = Scheme::fma},
    // 4096 x 4096: 4 and 16 rows 2.2 times, 64 rows 1.8, 128 rows 1.6 times.
    {.kind = Kind::bytes,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .m = {2, ir::kTiledRows},
     .batch = {0, 1},
     .larger = {1 << 19},
     .scheme = Scheme::fma},
    // Read at the rate of memory: 1.1 to 1.4 times, where it is in a cache 1.1 to 1.8 times (Zen 5).
    {.kind = Kind::full,
     .few = {2, 4},
     .batch = {0, 1},
     .larger = {1 << 20},
     .scheme = Scheme::panel_four_packed},
    {.kind = Kind::full,
     .few = {5, 8},
     .batch = {0, 1},
     .larger = {1 << 20},
     .scheme = Scheme::panel_packed},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::across_k,
     .few = {1, 1},
     .batch = {0, 1},
     .larger = {1 << 20},
     .scheme = Scheme::panel_packed},
    {.kind = Kind::bfloat16_dot,
     .few = {2, 4},
     .batch = {0, 1},
     .larger = {1 << 20},
     .scheme = Scheme::panel_four_packed},
    {.kind = Kind::bfloat16_dot,
     .few = {5, 8},
     .batch = {0, 1},
     .larger = {1 << 20},
     .scheme = Scheme::panel_packed},
};

}  // namespace

std::span<const ProductRow> kept_table() { return kKept; }

}  // namespace cermet::schedule
