// SPDX-License-Identifier: MIT
// Rows for tile instructions, which come before those of the table of schemes (product_table.cpp).
#include "kernel/micro.h"
#include "schedule/product_table.h"

namespace cermet::schedule {

namespace {

using ir::Scheme;
using Kind = ProductRow::Kind;
using Sum = ProductRow::Sum;
using Form = ProductRow::Form;
using Lies = ProductRow::Lies;

constexpr ProductRow kTiles[] = {
    // Much of a tile would be empty. Panels 1.2 to 2 times, fma of 6202 x 120 of 5 1.8 times.
    {.kind = Kind::bfloat16,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {2, 8},
     .many = {200},
     .k = {2, 48},
     .scheme = Scheme::panel_long},
    {.kind = Kind::bfloat16,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {2, 4},
     .many = {200},
     .k = {2, 48},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {2, 8},
     .many = {32},
     .k = {64, 127},
     .scheme = Scheme::fma},
    // Tile instructions take 32 of k: with 2 of them this is 1.3 times fma, with 9 0.85 times.
    {.kind = Kind::bfloat16, .few = {9}, .k = {0, 6}, .scheme = Scheme::fma_wide},
    {.kind = Kind::bfloat16,
     .few = {2, 8},
     .k = {0, 19},
     .larger = {1024},
     .scheme = Scheme::fma_wide},
    // One block or two, for which two threads need pieces of the sum: 1.05 to 2 times.
    {.kind = Kind::bfloat16,
     .few = {2, 128},
     .many = {0, 256},
     .k = {640},
     .scheme = Scheme::fma_split_k},
    {.kind = Kind::bfloat16,
     .few = {2, 128},
     .many = {0, 512},
     .k = {2048},
     .scheme = Scheme::fma_split_k},
    // 930 x 3763 and 3483 x 2196: 1.7 times panel_long and fma.
    {.kind = Kind::bfloat16,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {2, 4},
     .many = {512},
     .k = {1024},
     .scheme = Scheme::panel_four},
    // 57 x 330 of 356: 1.4 times amx_panel.
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {33, 64},
     .many = {128, 511},
     .k = {192},
     .scheme = Scheme::fma_local},
    // Bound by reading the larger operand. 4096 x 4096: 2 to 32 rows take 1.1 to 1.2 times what reading it
    // does, panel 1.9 times and fma_local 2.5 times; 64 rows are 2, 128 rows 1.6 times as fast as with
    // fma_local, 256 rows as fast or faster. At the least sizes here it is as fast.
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {2, 32},
     .many = {32},
     .k = {128},
     .scheme = Scheme::amx_panel},
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {33, 64},
     .many = {128},
     .k = {192},
     .scheme = Scheme::amx_panel},
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {65, 128},
     .many = {192},
     .k = {512},
     .scheme = Scheme::amx_panel},
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {129, 256},
     .many = {512},
     .k = {2048},
     .scheme = Scheme::amx_panel},
    // A is read in place here, too. 1000 x 16 of 1024: 1.6 times amx_panel, 2.7 times fma; rows with an end
    // that is not a tile 0.9 to 1.1 times.
    {.kind = Kind::bfloat16,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {2, 32},
     .many = {512},
     .k = {128, 2047},
     .scheme = Scheme::fma_local},
    {.kind = Kind::bfloat16_whole,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {33, 128},
     .many = {512},
     .k = {128, 2047},
     .scheme = Scheme::fma_local},
    {.kind = Kind::bfloat16,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {2, 32},
     .many = {32},
     .k = {128},
     .scheme = Scheme::amx_panel},
    {.kind = Kind::bfloat16,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {33, 128},
     .many = {192},
     .k = {2048},
     .scheme = Scheme::amx_panel},
    // Few rows, read across: items pack what they need. 4096 x 4096, 2 to 16 rows: 1.2 times panel, which is faster
    // beyond 2^25 elements.
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .m = {2, 64},
     .k = {20},
     .batch = {0, 1},
     .larger = {1 << 19},
     .scheme = Scheme::fma_local},
    // 1.5 to 2.7 times panel, while the larger operand is in L2. The smallest products are panels on every
    // processor: so one kernel of the seed serves all.
    {.kind = Kind::bfloat16,
     .m = {2, 8},
     .k = {20},
     .larger = {1024, 1 << 21},
     .scheme = Scheme::fma_local},
    // 1.4 to 1.7 times fma; below these sizes fma is faster.
    {.kind = Kind::real_parts,
     .few = {128},
     .k = {64},
     .blocks = {0, 3},
     .sum = Sum::is_long,
     .scheme = Scheme::amx_split_k},
    {.kind = Kind::parts,
     .m = {0, ir::kTiledRows},
     .few = {128},
     .k = {64},
     .blocks = {2},
     .scheme = Scheme::amx_split_local},
    {.kind = Kind::parts, .few = {128}, .k = {64}, .blocks = {2}, .scheme = Scheme::amx_split},
};

}  // namespace

std::span<const ProductRow> tile_table() { return kTiles; }

}  // namespace cermet::schedule
