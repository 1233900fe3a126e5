// SPDX-License-Identifier: MIT
// Kernel IR: what one generated kernel computes. It knows nothing of ops, arrays or devices.
//
//   Kernel := Param* Axis(extent)* Stage*        meaning: statements run whole, one after another
//   Param  := Buffer(dtype, in | out | inout) | Scalar(dtype) | Status
//   Stage  := For(stage, axes) { Stmt* }          no axes: runs once
//   Stmt   := Let(value, Expr)
//           | Fold(value, axes, emit last | each, order lanes | serial, (init, step, merge)*)
//           | Contract(value, axes, A Expr, B Expr, acc dtype, scheme)
//           | Check(Expr, site, index) | Store(buffer, Index, Expr, mask?)
//           | Update(buffer, Index, code, Expr, imag?, mask?, (over axes, elements axis)?)
//   Expr   := Const | Scalar | Axis | Extent | Stride | Ref(value) | State(i) | Other(i) | Get(i, Expr)
//           | Op(code, dtype, Expr*) | Rare(pred, fast, slow) | Load(buffer, Index, mask?, else?)
//   Index  := Σ Expr · stride                     element offset; affine when every Expr is an Axis
//   tiled  := Local(kernel)* For(chunk, item | first past turn?, grid) { Stmt* }*  one entry point for each
//   Stmt  |:= For(serial | lane | block | thread, axis, begin, end, step) { Stmt* }
//           | Local(dtype, size, thread) | Merge(value, states, from, at, count, stride)
//           | Barrier | Micro(template, operands) | Fetch(buffer, Index)
//
// Meaning before `tile`. In a stage every statement ranges over the stage's axes; a statement is
// complete at all points before the next begins. A Let lives over the stage's axes. A Fold lives over
// the stage's axes that it does not fold (emit last) or over all of them (emit each: inclusive scan);
// Ref to a value of several states needs Get. Inside `step`, State(i) is the state so far and all else
// is the element; inside `merge`, State(i) is the left state and Other(i) the right. A value lives on
// across stages and is read at the same axes.
// Order of a fold (it is part of the meaning, so results agree bit for bit wherever it runs); elements
// are counted row-major over the folded axes in the order they are listed, none at all give init:
//   lanes   element e of the folded range goes to block e / 4096, lane e % 64 (32 lanes and blocks of
//           2048 if any state has an 8-byte dtype); a lane steps in order from init; lanes merge by
//           halving (lane l with l + n/2, ...; a choice by lt with its sides either way); blocks by the tree.
//   serial  blocks of 256 elements stepped one by one from init; the same tree over blocks.
//   The pairwise tree merges neighbours level by level, an odd last one passing up unchanged. Lanes
//   never stepped take part with init, so init must be neutral for merge (the zero of sum is -0).
//   A scan (emit each) is serial: in the first block the state so far, in later ones merge(c, the
//   block's state so far), c being the last states of the earlier blocks merged from the left.
// Order of Updates: an element takes its values in the row-major order of the stage's points; of Stores
// to one element, of an inout buffer at loaded places, the last in that order holds. An Update over axes
// is in parts, so that any number of threads adds up alike: the points of these axes, row-major as
// listed, fall into kUpdateParts runs of one length (the last may be shorter or empty). A run starts from
// the code's neutral element (of add: -0) and takes its values in order, those of the other axes at each
// point; runs merge by the pairwise tree, and the buffer's element takes what they give. Indices are
// within 0 .. extent(elements); codes are add, mul, min and max, of complex numbers add.
//
// Meaning after `tile`. Loops run as written; a Let is per iteration. A Fold in a lane loop steps at each iteration
// in `lanes` order over the loop's range, in a serial loop in `serial` order or, within a lane loop and of no more
// steps than there are lanes, in `lanes` order; its value exists after the loop, a scan's in it. Merge(value, states,
// from, at, count, stride) is the pairwise tree over the stored states from[at + i · stride], i < count, one Local for
// each state (init if count is 0). Iterations of a chunk loop are independent; `item` runs over the caller's
// [begin, end) within 0 .. grid. One of two variables is no loop: it runs once for each [first, past) that callers divide
// 0 .. grid into; how they do must not matter. With turns of n items they divide 0 .. n, and each share takes
// its part of the turns in order, a few at a time: from `first` in the first of these to `past` in the last.
// What is loaded at one place for all lanes of a loop is loaded before it, even if it runs for none: where
// there may be nothing, it has a mask. A Local is undefined until it is stored, one of scope thread anew in each item of a chunk loop. A Barrier
// stands directly in a thread loop. A Fetch means nothing: it says that the element is updated soon, and its
// index may point anywhere.
//
// Values. Arithmetic never has half or complex dtype: casts from and to float16/bfloat16 stand at loads
// and stores; complex values are pairs of real ones. bool is 0 or 1. Signed overflow wraps. Integer
// division truncates; x / 0 = 0 and x % 0 = 0; INT_MIN / -1 = INT_MIN, remainder 0. Shifts and
// rotl use the count modulo the width; shr of a signed value is arithmetic. Floating ops are IEEE-754, round to nearest
// even, no contraction; min and max give NaN if either is NaN, and -0 < +0. Casts: float to integer truncates, NaN
// gives 0, out of range saturates; to bool is x != 0; integers wrap. Casts of half types go to and from float32 only.
// rem of floats is C's fmod. eq .. le give bool; eq with NaN is false, ne true. Which NaN an operation gives is left
// open. Rare(p, fast, slow) is p ? slow : fast, p being expected false in every lane. A load or store whose mask is false touches
// no memory; the load then gives its else, or 0 without one. A Contract casts A and B to acc; the
// order of its sum, and fma in it, are free.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/inline_vector.h"
#include "kernel/code.h"
#include "kernel/micro_kind.h"
#include "kernel/scheme.h"

namespace cermet::ir {

using ExprId = int32_t;
using ValueId = int32_t;
using AxisId = int32_t;
using ParamId = int32_t;
using LocalId = int32_t;
using Operands = InlineVector<ExprId, 3>;
inline constexpr int32_t kNone = -1;

enum class Access : uint8_t { in, out, inout };
enum class ParamKind : uint8_t { buffer, scalar, status };

struct Param {
  ParamKind kind;
  Dtype dtype;    // status: int64
  Access access;  // buffers only
  std::string name;
};

struct Axis {
  std::string name;
  bool has_extent = true;  // false: a loop variable made by `tile`; it has no word in the record
  int64_t most = 0;        // elements at most; 0: nothing is known
};

// A buffer of a statement or load: a parameter, or a Local of the tiled form.
struct BufferRef {
  bool local = false;
  int32_t id = 0;
  bool operator==(const BufferRef&) const = default;
};

// stride: kUnit, or the number of a stride word in the record.
inline constexpr int32_t kUnit = -1;
struct IndexTerm {
  ExprId expr;  // int64
  int32_t stride;
  bool operator==(const IndexTerm&) const = default;
};
using Index = InlineVector<IndexTerm, 3>;  // empty: element 0. A zero stride is an absent term.

enum class ExprKind : uint8_t {
  constant,
  scalar,
  axis,
  extent,
  stride,
  ref,
  state,
  other,
  get,
  op,
  rare,
  load
};

// operands: op: its arguments; get: {tuple}; rare: {pred, fast, slow}; load: {mask, else}, each kNone
// or an expression. id: scalar: ParamId; axis, extent: AxisId; stride: its number; ref: ValueId; state, other, get: number.
struct Expr {
  ExprKind kind;
  Dtype dtype;
  Code code = Code::add;
  int32_t id = 0;
  uint64_t bits = 0;  // constant: the value's bits, zero-extended
  Operands operands = {};
  BufferRef buffer = {};  // load
  Index index = {};       // load
  bool operator==(const Expr&) const = default;
};

struct Value {
  std::string name;
  std::vector<Dtype> dtypes;  // one for each state of a Fold, else one
};

// A size known when the kernel is launched: constant · Π ceil(extent(axis) / tile).
struct SizeTerm {
  AxisId axis;
  int64_t tile;
  bool operator==(const SizeTerm&) const = default;
};
struct Size {
  int64_t constant = 1;
  std::vector<SizeTerm> terms;
  bool operator==(const Size&) const = default;
};

enum class Order : uint8_t { lanes, serial };
enum class Emit : uint8_t { last, each };
enum class ForKind : uint8_t { stage, chunk, serial, lane, block, thread };
enum class LocalScope : uint8_t { kernel, thread };

struct FoldState {
  Dtype dtype;
  ExprId init, step, merge;
  bool operator==(const FoldState&) const = default;
};

struct Let {
  ValueId value;
  ExprId expr;
};
struct Fold {
  ValueId value;
  std::vector<AxisId> axes;  // after `tile`: the loop's axis
  Emit emit;
  Order order;
  std::vector<FoldState> states;
};
struct Contract {
  ValueId value;
  std::vector<AxisId> axes;  // summed
  ExprId a, b;
  Dtype acc;
  Scheme scheme;
};
struct Check {
  ExprId ok;     // bool
  int32_t site;  // the caller's number for the message
  ExprId index;  // int64, reported with the site
};
struct Store {
  BufferRef buffer;
  Index index;
  ExprId value;
  ExprId mask = kNone;
};
struct Update {
  BufferRef buffer;
  Index index;
  Code code;  // add, mul, min, max, ... : element = code(element, value)
  ExprId value;
  ExprId mask = kNone;
  ExprId imag = kNone;  // set: the element and the next one in memory are a complex number's parts
  std::vector<AxisId> over = {};  // not empty: in parts, before `tile` only
  AxisId elements = kNone;        // of an Update in parts: its extent is the buffer's size
};
inline constexpr int64_t kUpdateParts = 32;
struct Local {
  LocalId local;
  Dtype dtype;
  Size size;  // elements
  LocalScope scope;
};
struct Merge {
  ValueId value;
  std::vector<FoldState> states;
  std::vector<LocalId> from;  // one Local for each state
  ExprId at, count, stride;   // int64
};
struct Barrier {};
struct Micro {
  MicroKind kind;
  std::vector<int64_t> constants;  // meaning fixed by the template, see micro.h
  std::vector<BufferRef> buffers;
  std::vector<ExprId> operands;
};
struct Fetch {
  BufferRef buffer;
  Index index;
};
struct For;
using Stmt = std::variant<Let, Fold, Contract, Check, Store, Update, For, Local, Merge, Barrier,
                          Micro, Fetch>;
inline constexpr char kPackEntry[] = "pack";  // of an entry point that packs operands of a product
struct For {
  ForKind kind;
  // stage: its axes; chunk of spans: first, past; else the one loop variable
  std::vector<AxisId> axes;
  ExprId begin = kNone, end = kNone;  // serial, lane
  int64_t step = 1;
  Size grid = {};     // chunk
  int64_t turn = 0;   // chunk of spans: items of a turn; 0: there are none
  int64_t least = 1;  // chunk of spans: who would make fewer makes one
  std::vector<Stmt> body = {};
  std::string entry = {};  // chunk: name of the entry point's suffix
};

// The record that a launch passes, one 64-bit word each, in this order: every Param (a buffer's pointer
// to its element 0, a scalar's bits zero-extended, the status pointer), the extent of every Axis that
// has one, every stride, every Local of scope kernel (pointers).
struct Kernel {
  std::string name;
  std::vector<Param> params;
  std::vector<Axis> axes;
  int32_t stride_count = 0;
  std::vector<Value> values;
  std::vector<Expr> exprs;    // hash-consed: operands come before their users
  std::vector<Local> locals;  // scope kernel and thread, after `tile`; LocalId indexes it
  std::vector<Stmt> body;

  const Expr& operator[](ExprId id) const { return exprs[id]; }
  bool is_tiled() const;
};

}  // namespace cermet::ir
