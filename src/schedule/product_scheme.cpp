// SPDX-License-Identifier: MIT
// The table, and what its columns mean. Beside a row stands what it gains, measured on two cores of Sapphire
// Rapids (`full`, `narrow` and `bfloat16_dot`: of Zen 4) by bench/gemm_tune.py with fresh operands, which lists
// shapes for which another scheme would have been better; `bfloat16_dot` across k, of 5 to 64, by calls of one
// thread. But for those with `batch` they hold for batches, too. Of large products a row gives way to a scheme
// that costs less, where costs are known (product_costs.h).
#include "schedule/product_scheme.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/env.h"
#include "kernel/micro.h"
#include "kernel/text.h"
#include "kernel/walk.h"
#include "schedule/product_costs.h"

namespace cermet::schedule {

namespace {

using ir::Scheme;

// What is multiplied, and by what the processor has for it.
enum class Kind : uint8_t {
  any,
  complex,
  floating,        // real or complex
  real,            // float32 and float64
  full,            // ..., and float16 without tile instructions, in vectors of 64 bytes
  narrow,          // float32 and float64 in shorter ones
  half,            // float16 and bfloat16, or what is cast from them
  bfloat16,        // values of that dtype, by tile instructions
  bfloat16_whole,  // ..., k in whole tiles
  bfloat16_dot,    // ..., by dot instructions instead
  packed,          // of these and float16 what fma packs whole
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

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which rows are read
struct Row {
  Kind kind;
  Form form = Form::any;
  Lies a = Lies::any, larger_lies = Lies::any;  // A, the larger operand
  Range m = {};
  Range few = {}, many = {};  // of m and n, the lesser and the larger
  Range k = {}, batch = {};
  Range larger = {};  // elements of the larger operand
  Range blocks = {};  // of kTiledRows x kTiledRows
  Sum sum = Sum::any;
  Work work = Work::any;
  Scheme scheme;
  std::optional<Scheme> kept = {};  // of the same bits, by packing weights that serve again
};

// The first row that fits is taken.
constexpr Row kTable[] = {
    // Tile instructions take 32 of k: with 2 of them this is 1.3 times fma, with 9 0.85 times.
    {.kind = Kind::bfloat16, .few = {9}, .k = {0, 6}, .scheme = Scheme::fma_wide},
    {.kind = Kind::bfloat16,
     .few = {2, 8},
     .k = {0, 19},
     .larger = {1024},
     .scheme = Scheme::fma_wide},
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
    // Few rows, read across: items pack what they need, until B has served some times. 4096 x 4096, 2 to 16
    // rows: 1.2 times panel, which is faster beyond 2^25 elements; then 1.9 times that. 64 rows: then 1.35
    // times.
    {.kind = Kind::bfloat16,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .m = {2, 64},
     .k = {20},
     .batch = {0, 1},
     .larger = {1 << 19},
     .scheme = Scheme::fma_local,
     .kept = Scheme::fma},
    // 1.5 to 2.7 times panel, while the larger operand is in L2. The smallest products are panels on every
    // processor: so one kernel of the seed serves all.
    {.kind = Kind::bfloat16,
     .m = {2, 8},
     .k = {20},
     .larger = {1024, 1 << 21},
     .scheme = Scheme::fma_local},
    // Few rows of a long B that lies along k, with short sums: 1.3 to 4 times panels, whose lanes run along k.
    {.kind = Kind::full,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {2, 8},
     .many = {129},
     .k = {0, 27},
     .scheme = Scheme::fma_local},
    {.kind = Kind::full,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {5, 8},
     .many = {129},
     .k = {28, 63},
     .scheme = Scheme::fma_local},
    // The shortest sums, of fewer results than are made element by element: up to 1.8 times panels.
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {5, 8},
     .many = {33},
     .k = {0, 9},
     .scheme = Scheme::fma_local},
    {.kind = Kind::full,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {2, 8},
     .k = {0, 7},
     .scheme = Scheme::fma_local},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {5, 8},
     .many = {17},
     .k = {0, 32},
     .scheme = Scheme::fma},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {2, 4},
     .many = {129},
     .k = {0, 32},
     .scheme = Scheme::fma},
    // Panels of eight or four, or the six rows of fma's tile: whichever makes fewer that are not wanted, and fma packs
    // B. 1.1 to 1.3 times the next best; beside a long A, which fma packs whole, up to 5 times.
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {5, 6},
     .many = {17, 200},
     .scheme = Scheme::fma},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {5, 6},
     .many = {201},
     .k = {0, 48},
     .scheme = Scheme::fma},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {9, 12},
     .many = {17, 32},
     .k = {257},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {13, 16},
     .many = {17, 32},
     .k = {257},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {9, 12},
     .many = {129},
     .k = {128},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {13, 16},
     .many = {129},
     .k = {128},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {17, 20},
     .many = {129},
     .k = {192},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {17, 32},
     .many = {33, 200},
     .k = {257},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {9, 64},
     .many = {201},
     .scheme = Scheme::fma},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {9, 12},
     .many = {17},
     .k = {128},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {9, 16},
     .many = {17},
     .k = {9},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {17, 20},
     .many = {129},
     .k = {129},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {17, 20},
     .many = {257},
     .k = {48},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {17, 24},
     .many = {49},
     .k = {129},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {21, 24},
     .many = {129},
     .k = {48},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {25, 32},
     .many = {97},
     .k = {200},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {33, 40},
     .many = {97},
     .k = {256},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {41, 48},
     .many = {1024},
     .k = {512},
     .scheme = Scheme::panel},
    // 1.1 to 1.8 times the better one of panel and fma.
    {.kind = Kind::narrow,
     .few = {5, 8},
     .many = {33},
     .k = {17, 640},
     .scheme = Scheme::fma_local},
    {.kind = Kind::narrow,
     .larger_lies = Lies::across_k,
     .few = {5, 8},
     .many = {33},
     .k = {641, 1024},
     .scheme = Scheme::fma_local},
    {.kind = Kind::narrow,
     .larger_lies = Lies::along_k,
     .few = {5, 8},
     .k = {641},
     .scheme = Scheme::panel_four},
    // On tile processors: 1.1 to 1.5 times panel, where longer rows are items enough for two threads.
    {.kind = Kind::bfloat16,
     .larger_lies = Lies::across_k,
     .few = {2, 8},
     .many = {512},
     .k = {1024},
     .scheme = Scheme::panel_long},
    // Half the products of panel, which makes eight rows of any number: 1.3 to 2 times.
    {.kind = Kind::floating, .few = {2, 4}, .many = {2}, .scheme = Scheme::panel_four},
    // Twice as many items, where panels of eight are one: 1.4 to 1.9 times panel on two threads, as fast on one.
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {5, 8},
     .many = {17, 256},
     .k = {448},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {5, 8},
     .many = {97, 256},
     .k = {448, 1023},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {5, 8},
     .many = {17, 256},
     .k = {448},
     .scheme = Scheme::panel_four},
    // A tall A that lies across k, by fours as well: 1.2 to 1.35 times panel, 1.05 to 1.1 from 1000 of k on.
    {.kind = Kind::full,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {5, 8},
     .many = {65},
     .k = {200},
     .scheme = Scheme::panel_four},
    // Longer rows are fewer items: 1.1 to 1.5 times panel, where they are enough for two threads.
    {.kind = Kind::floating,
     .larger_lies = Lies::across_k,
     .few = {5, 8},
     .many = {512},
     .k = {1024},
     .scheme = Scheme::panel_long},
    {.kind = Kind::floating, .few = {5, 8}, .many = {2}, .scheme = Scheme::panel},
    // Single rows. Panels take a quarter of the time of a fold or as much, but where rows of B are long streams
    // or few; of bfloat16 in dot instructions 0.4 to 1 times it, but 1.1 to 1.2 where B is in no cache.
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {1, 1},
     .k = {65},
     .larger = {1 << 24},
     .scheme = Scheme::fma},
    {.kind = Kind::half, .few = {1, 1}, .many = {2}, .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {1, 1},
     .many = {2},
     .k = {0, 16},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {1, 1},
     .many = {33},
     .k = {17, 512},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {1, 1},
     .many = {33},
     .k = {3000},
     .larger = {0, 1 << 20},
     .scheme = Scheme::panel},
    {.kind = Kind::narrow,
     .larger_lies = Lies::along_k,
     .few = {1, 1},
     .many = {33},
     .k = {0, 256},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {1, 1},
     .many = {65},
     .k = {40},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {1, 1},
     .many = {3},
     .k = {128},
     .scheme = Scheme::panel},
    {.kind = Kind::floating,
     .larger_lies = Lies::across_k,
     .few = {1, 1},
     .many = {2049},
     .k = {256},
     .scheme = Scheme::panel},
    // A tile of fma has 64 columns, whatever is wanted of them, and packs for a few rows. By fours, where panels
    // of eight would make six rows too many: 1.1 to 1.5 times panel.
    {.kind = Kind::full,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {9, 12},
     .many = {17},
     .k = {65},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {9, 12},
     .many = {9},
     .k = {129},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {9, 12},
     .many = {9},
     .k = {33},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {17, 20},
     .many = {17},
     .k = {65, 200},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {17, 20},
     .many = {17},
     .k = {257},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {9, 12},
     .many = {9},
     .k = {129},
     .scheme = Scheme::panel_four},
    {.kind = Kind::narrow,
     .form = Form::wide,
     .larger_lies = Lies::along_k,
     .few = {9, 20},
     .many = {17},
     .k = {400},
     .scheme = Scheme::panel_four},
    // 1.1 to 5 times fma.
    {.kind = Kind::full,
     .form = Form::tall,
     .larger_lies = Lies::along_k,
     .few = {9, 20},
     .many = {17},
     .k = {65, 128},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {9, 32},
     .many = {9},
     .k = {129},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::along_k,
     .few = {33, 40},
     .many = {17},
     .k = {1536},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {13, 32},
     .many = {9},
     .k = {33},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {13, 16},
     .many = {9},
     .k = {65},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {17, 32},
     .many = {17},
     .k = {129},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .larger_lies = Lies::across_k,
     .few = {33, 64},
     .many = {17},
     .k = {129},
     .batch = {0, 15},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {9, 16},
     .many = {9},
     .k = {257},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {17, 20},
     .many = {17},
     .k = {385},
     .scheme = Scheme::panel_four},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {21, 32},
     .many = {17},
     .k = {641},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .larger_lies = Lies::along_k,
     .few = {33, 64},
     .many = {17, 200},
     .k = {641},
     .scheme = Scheme::panel},
    {.kind = Kind::bfloat16_dot,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {17, 32},
     .many = {97},
     .k = {1024},
     .scheme = Scheme::panel_long},
    // Few of both, or of the rows of an A that fma would pack whole: pieces of the sum are items. 1.2 to 2 times.
    {.kind = Kind::full,
     .a = Lies::along_k,
     .few = {33, 40},
     .many = {0, 160},
     .k = {512},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .form = Form::tall,
     .a = Lies::along_k,
     .few = {41, 64},
     .many = {67, 160},
     .k = {512},
     .scheme = Scheme::fma_local},
    {.kind = Kind::full,
     .a = Lies::along_k,
     .few = {33, 127},
     .many = {0, 160},
     .k = {512},
     .scheme = Scheme::panel},
    {.kind = Kind::full,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {65, 127},
     .k = {2048},
     .scheme = Scheme::panel_long},
    // Columns that would leave much of a tile of 64 empty: 1.3 to 1.9 times up to 76 of them, else 1.05 to 1.5.
    {.kind = Kind::full,
     .form = Form::tall,
     .few = {65, 76},
     .many = {257},
     .k = {256},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .form = Form::tall,
     .larger_lies = Lies::across_k,
     .few = {77, 100},
     .many = {257},
     .k = {256},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .form = Form::tall,
     .few = {77, 92},
     .many = {400},
     .k = {256},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .form = Form::tall,
     .few = {93, 100},
     .many = {400, 1000},
     .k = {256},
     .scheme = Scheme::panel_four},
    {.kind = Kind::full,
     .form = Form::tall,
     .few = {65, 100},
     .many = {200},
     .k = {1024},
     .scheme = Scheme::panel_long},
    {.kind = Kind::full,
     .form = Form::tall,
     .few = {129, 144},
     .many = {200},
     .k = {1024},
     .scheme = Scheme::panel_long},
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
    {.kind = Kind::complex, .scheme = Scheme::fma},
    // One block of fma, which reads A in place, or a few that differ in size: items of fewer rows, 1.2 to 1.8 times.
    {.kind = Kind::real,
     .a = Lies::along_k,
     .m = {67, 256},
     .few = {17, 256},
     .many = {67, 448},
     .k = {64},
     .batch = {0, 1},
     .scheme = Scheme::fma_local},
    {.kind = Kind::bfloat16_dot,
     .a = Lies::along_k,
     .m = {67, 256},
     .few = {17, 256},
     .many = {67, 448},
     .k = {128},
     .batch = {0, 1},
     .scheme = Scheme::fma_local},
    {.kind = Kind::real, .a = Lies::along_k, .m = {67, 512}, .batch = {16}, .scheme = Scheme::fma},
    {.kind = Kind::bfloat16_dot,
     .a = Lies::along_k,
     .m = {67, 512},
     .batch = {16},
     .scheme = Scheme::fma},
    // One block, whose pieces each pack B: 1.9 times fma_split_k.
    {.kind = Kind::narrow,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .few = {9, 32},
     .sum = Sum::is_long,
     .scheme = Scheme::fma},
    {.kind = Kind::any, .sum = Sum::is_long, .scheme = Scheme::fma_split_k},
    // Small products of a batch pack for themselves.
    {.kind = Kind::any, .m = {0, 512}, .batch = {16}, .scheme = Scheme::fma_local},
    // One block high: what is packed is used once. 1.4 to 2 times fma; where sums are short, and rows not
    // few, 0.8 times.
    {.kind = Kind::bfloat16, .m = {0, 64}, .k = {20}, .scheme = Scheme::fma_local},
    {.kind = Kind::bfloat16, .m = {65, ir::kTiledRows}, .k = {128}, .scheme = Scheme::fma_local},
    // 4096 x 4096, once B has served: 4 and 16 rows 2.2 times, 64 rows 1.8, 128 rows 1.6 times.
    {.kind = Kind::bytes,
     .form = Form::wide,
     .larger_lies = Lies::across_k,
     .m = {2, ir::kTiledRows},
     .batch = {0, 1},
     .larger = {1 << 19},
     .scheme = Scheme::fma_local,
     .kept = Scheme::fma},
    {.kind = Kind::bytes, .m = {0, ir::kTiledRows}, .scheme = Scheme::fma_local},
    // Packing whole is a pass of its own: a microsecond or two, of ten. Up to 1.7 times fma.
    {.kind = Kind::packed, .m = {0, 258}, .work = Work::is_small, .scheme = Scheme::fma_local},
    {.kind = Kind::any, .scheme = Scheme::fma},
};

// Sums much longer than the rows and columns, unless their pieces would take more memory than the operands.
bool is_long(const ProductShape& p) {
  constexpr int64_t kLongSum = 2048, kLongestSum = 32768, kPiece = 512;
  return p.k >= kLongSum && p.k <= kLongestSum && p.k >= 4 * std::max(p.m, p.n) &&
         p.m * p.n <= kPiece * (p.m + p.n);
}

bool is_byte(Dtype dtype) { return is_integer(dtype) && size_of(dtype) == 1; }

// float32 or float64, as what is multiplied.
bool is_plain_real(const ProductShape& p) {
  return is_floating(p.dtype) && !is_half(p.dtype) && p.a.dtype == p.dtype && p.b.dtype == p.dtype;
}

bool is_all(const ProductShape& p, Dtype d) { return p.a.dtype == d && p.b.dtype == d; }

bool is_of(Kind kind, const ProductShape& p, const ir::TargetFacts& facts) {
  const bool tiles = facts.amx_bf16, wide = facts.vector_bytes == 64;
  const bool dots = !tiles && facts.dot_bf16 && is_all(p, Dtype::bfloat16);
  const bool is_float16 = !tiles && is_all(p, Dtype::float16);
  switch (kind) {
    case Kind::any: return true;
    case Kind::complex: return is_complex(p.dtype);
    case Kind::floating: return is_floating(real_of(p.dtype));
    case Kind::real: return is_plain_real(p);
    case Kind::full: return wide && (is_plain_real(p) || is_float16);
    case Kind::narrow: return is_of(Kind::real, p, facts) && facts.vector_bytes < 64;
    case Kind::half: return is_half(p.dtype) || is_half(p.a.dtype) || is_half(p.b.dtype);
    case Kind::bfloat16: return tiles && is_all(p, Dtype::bfloat16);
    case Kind::bfloat16_dot: return dots;
    case Kind::packed: return is_float16 ? wide : dots && !p.a.along_k;
    case Kind::bfloat16_whole:
      return is_of(Kind::bfloat16, p, facts) && p.k % ir::tile_depth_of(Dtype::bfloat16) == 0;
    case Kind::parts:
      return tiles && (p.dtype == Dtype::float16 ||
                       (real_of(p.dtype) == Dtype::float32 && env::matmul_f32() == "auto"));
    case Kind::real_parts: return is_of(Kind::parts, p, facts) && !is_complex(p.dtype);
    case Kind::bytes: return facts.amx_int8 && is_byte(p.a.dtype) && is_byte(p.b.dtype);
  }
  return false;
}

bool fits(const Row& row, const ProductShape& p, const ir::TargetFacts& facts) {
  const auto count = [](int64_t size) { return (size + ir::kTiledRows - 1) / ir::kTiledRows; };
  const bool wide = p.m < p.n;
  const auto lies = [](Lies wanted, const ProductOperand& operand) {
    return wanted == Lies::any || operand.along_k == (wanted == Lies::along_k);
  };
  return (row.form == Form::any || wide == (row.form == Form::wide)) && lies(row.a, p.a) &&
         lies(row.larger_lies, wide ? p.b : p.a) && row.m.holds(p.m) &&
         row.few.holds(std::min(p.m, p.n)) && row.many.holds(std::max(p.m, p.n)) &&
         row.k.holds(p.k) && row.batch.holds(p.batch) &&
         row.larger.holds(p.k * std::max(p.m, p.n)) &&
         row.blocks.holds(p.batch * count(p.m) * count(p.n)) &&
         (row.sum == Sum::any || is_long(p)) && (row.work == Work::any || is_small(p)) &&
         is_of(row.kind, p, facts);
}

// The scheme of CERMET_MATMUL_SCHEME can make the product.
bool is_wanted(const Row& row, const ProductShape& p, const ir::TargetFacts& facts) {
  return env::matmul_scheme() == ir::text_of(row.scheme) && is_of(row.kind, p, facts);
}

// That of a product of all the rows, by items that pack what they need; nullopt: each row alone is better.
std::optional<Scheme> scheme_of_runs(const ProductShape& p, const ir::TargetFacts& facts) {
  constexpr int64_t kFewRows = 8;
  ProductShape rows = p;
  std::swap(rows.batch, rows.m);
  rows.in_runs = false;
  const Scheme scheme = scheme_of(rows, facts).scheme;
  if (ir::is_panel(scheme) && rows.m <= kFewRows) return std::nullopt;
  switch (scheme) {
    case Scheme::amx_split:
    case Scheme::amx_split_local:
    case Scheme::amx_split_k: return Scheme::amx_split_local;
    default: return Scheme::fma_local;
  }
}

}  // namespace

ProductScheme scheme_of(const ProductShape& p, const ir::TargetFacts& facts) {
  if (p.batch * p.m * p.n == 0) return {};
  if (p.in_runs && p.m == 1)
    if (const std::optional<Scheme> scheme = scheme_of_runs(p, facts)) return {.scheme = *scheme};
  const Row& row = *std::ranges::find_if(kTable, [&](const Row& r) { return fits(r, p, facts); });
  Scheme scheme = cheapest_of(p, row.scheme, facts);
  std::optional<Scheme> kept = row.kept;
  if (env::matmul_scheme() != "auto") {
    const Row* wanted =
        std::ranges::find_if(kTable, [&](const Row& r) { return is_wanted(r, p, facts); });
    if (wanted != std::end(kTable)) scheme = wanted->scheme, kept = std::nullopt;
  }
  // Panels are few rows beside B, those of tile instructions few columns beside A.
  const bool exchanged =
      (is_panel(scheme) && p.n < p.m) || (scheme == Scheme::amx_panel && p.m < p.n);
  return {scheme, exchanged, kept};
}

ir::Kernel with_scheme(const ir::Kernel& kernel, ir::Scheme scheme) {
  ir::Kernel made = kernel;
  ir::for_each_stmt(made.body, [&](ir::Stmt& stmt) {
    if (auto* product = std::get_if<ir::Contract>(&stmt)) product->scheme = scheme;
  });
  return made;
}

}  // namespace cermet::schedule
