// SPDX-License-Identifier: MIT
// Rows for many small products, which come before those of the table of schemes (product_table.cpp).
#include "schedule/product_table.h"

namespace cermet::schedule {

namespace {

using ir::Scheme;
using Kind = ProductRow::Kind;
using Form = ProductRow::Form;
using Lies = ProductRow::Lies;

constexpr ProductRow kBatches[] = {
    // Vectors by matrices: 1.1 to 1.8 times folds, with vectors below 64 bytes up to 4 times.
    {.kind = Kind::real,
     .larger_lies = Lies::across_k,
     .few = {0, 1},
     .many = {24, 128},
     .k = {24, 512},
     .batch = {16},
     .scheme = Scheme::panel_four},
    {.kind = Kind::real,
     .larger_lies = Lies::along_k,
     .few = {0, 1},
     .many = {16, 48},
     .k = {0, 48},
     .batch = {16},
     .scheme = Scheme::panel_four},
    // B is read where it lies: 1.1 to 2.2 times panels, which are faster where B leaves L1.
    {.kind = Kind::full_real,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {2, 7},
     .batch = {16},
     .larger = {0, 1 << 14},
     .loads = true,
     .scheme = Scheme::fma_local},
    {.kind = Kind::full_real,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {8, 8},
     .many = {0, 64},
     .batch = {16},
     .larger = {0, 1 << 13},
     .loads = true,
     .scheme = Scheme::fma_local},
    {.kind = Kind::full_real,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {9, 20},
     .batch = {16},
     .larger = {0, 1 << 15},
     .loads = true,
     .scheme = Scheme::fma_local},
    // Many small products with short sums: what a panel reads one by one is packed, to be read many times. 1.2 to
    // 5 times panels.
    {.kind = Kind::real,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {2, 8},
     .many = {0, 64},
     .k = {0, 8},
     .batch = {16},
     .scheme = Scheme::fma_local},
    {.kind = Kind::real,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {5, 7},
     .many = {13, 64},
     .k = {0, 24},
     .batch = {16},
     .scheme = Scheme::fma_local},
    {.kind = Kind::real,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {5, 8},
     .many = {13, 16},
     .k = {0, 64},
     .batch = {16},
     .scheme = Scheme::fma_local},
    {.kind = Kind::real,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {2, 4},
     .many = {0, 64},
     .k = {0, 32},
     .batch = {16},
     .scheme = Scheme::fma_local},
    {.kind = Kind::real,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {5, 8},
     .many = {0, 64},
     .k = {0, 48},
     .batch = {16},
     .scheme = Scheme::fma_local},
    {.kind = Kind::real,
     .form = Form::tall,
     .few = {2, 4},
     .many = {0, 64},
     .k = {0, 16},
     .batch = {16},
     .scheme = Scheme::fma_local},
    {.kind = Kind::real,
     .form = Form::tall,
     .few = {5, 8},
     .many = {0, 64},
     .k = {0, 32},
     .batch = {16},
     .scheme = Scheme::fma_local},
    // Few rows, with vectors below 64 bytes: 1.3 to 3 times panels.
    {.kind = Kind::narrow,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {5, 7},
     .many = {0, 64},
     .k = {0, 64},
     .batch = {16},
     .scheme = Scheme::fma_local},
};

}  // namespace

std::span<const ProductRow> batch_table() { return kBatches; }

}  // namespace cermet::schedule
