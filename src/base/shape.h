// SPDX-License-Identifier: MIT
// Sizes and layouts. All sizes are 64-bit. A Dim is a value and, while tracing with symbolic sizes,
// the id of the expression it stands for (0: a constant). Strides and offsets count elements.
// Invariant: a Layout never reaches outside the buffer it was made for.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/inline_vector.h"

namespace cermet {

struct Dim;
// What is decided by numbers alone: of the same numbers always the same.
using Decider = std::function<int64_t(std::span<const int64_t>)>;

// What a trace with symbolic sizes is told of their use. One can be active on a thread.
class SizeTrace {
 public:
  bool keeps_guards = true;  // false: values are looked at freely, while expressions go on ...
  bool looked = false;       // ... and one was
  bool applies_rules_again = true;        // at other sizes: what they look at needs no guard
  virtual void look(const Dim& dim) = 0;  // its value decides something: a guard
  virtual bool equal(const Dim& a, const Dim& b) = 0;  // so does a == b
  virtual bool less(const Dim& a, const Dim& b) = 0;
  virtual Dim combine(char op, const Dim& a,
                      const Dim& b) = 0;  // + - *, / (rounded down), % and < (the smaller)
  virtual int64_t decide(std::span<const Dim> by, const Decider& decider) = 0;

 protected:
  ~SizeTrace() = default;
};

struct Dim {
  int64_t value = 0;
  uint32_t expr = 0;

  Dim() = default;
  Dim(int64_t v) : value(v) {}
  Dim(int64_t v, uint32_t e) : value(v), expr(e) {}
  operator int64_t() const {
    if (expr != 0 && trace != nullptr) seen();
    return value;
  }
  static constinit thread_local SizeTrace* trace;  // null: symbols are looked at freely

 private:
  void seen() const;
};

// Relations and arithmetic that keep symbols. A relation leaves a guard, unless it always holds.
bool same_size(const Dim& a, const Dim& b);  // of one expression: without a guard
bool is_less(const Dim& a, const Dim& b);
Dim plus(const Dim& a, const Dim& b);
Dim minus(const Dim& a, const Dim& b);
Dim times(const Dim& a, const Dim& b);
Dim quotient(const Dim& a, const Dim& b);                    // rounded down; b > 0
Dim remainder(const Dim& a, const Dim& b);                   // from 0 to b - 1; b > 0
Dim smaller(const Dim& a, const Dim& b);                     // without a guard
Dim clamped(const Dim& a, const Dim& low, const Dim& high);  // low <= high

// The same as operators, for numbers made of sizes, such as strides and offsets. What symbols are made of
// stays symbolic, a relation leaves a guard; the rest is arithmetic of int64.
inline bool is_plain(const Dim& a, const Dim& b) { return (a.expr | b.expr) == 0; }
inline Dim operator+(const Dim& a, const Dim& b) {
  return is_plain(a, b) ? Dim(a.value + b.value) : plus(a, b);
}
inline Dim operator-(const Dim& a, const Dim& b) {
  return is_plain(a, b) ? Dim(a.value - b.value) : minus(a, b);
}
inline Dim operator*(const Dim& a, const Dim& b) {
  return is_plain(a, b) ? Dim(a.value * b.value) : times(a, b);
}
inline Dim operator-(const Dim& a) { return Dim(0) - a; }
inline bool operator==(const Dim& a, const Dim& b) {
  return is_plain(a, b) ? a.value == b.value : same_size(a, b);
}
inline bool operator<(const Dim& a, const Dim& b) {
  return is_plain(a, b) ? a.value < b.value : is_less(a, b);
}
inline bool operator>(const Dim& a, const Dim& b) { return b < a; }
inline bool operator<=(const Dim& a, const Dim& b) { return !(b < a); }
inline bool operator>=(const Dim& a, const Dim& b) { return !(a < b); }
// Beside plain integers, whose own operators a Dim could become the operand of, too.
template <std::integral T>
Dim operator+(const Dim& a, T b) {
  return a + Dim(b);
}
template <std::integral T>
Dim operator+(T a, const Dim& b) {
  return Dim(a) + b;
}
template <std::integral T>
Dim operator-(const Dim& a, T b) {
  return a - Dim(b);
}
template <std::integral T>
Dim operator-(T a, const Dim& b) {
  return Dim(a) - b;
}
template <std::integral T>
Dim operator*(const Dim& a, T b) {
  return a * Dim(b);
}
template <std::integral T>
Dim operator*(T a, const Dim& b) {
  return Dim(a) * b;
}
template <std::integral T>
bool operator==(const Dim& a, T b) {
  return a == Dim(b);
}
template <std::integral T>
bool operator<(const Dim& a, T b) {
  return a < Dim(b);
}
template <std::integral T>
bool operator<(T a, const Dim& b) {
  return Dim(a) < b;
}
template <std::integral T>
bool operator>(const Dim& a, T b) {
  return Dim(b) < a;
}
template <std::integral T>
bool operator>(T a, const Dim& b) {
  return b < Dim(a);
}
template <std::integral T>
bool operator<=(const Dim& a, T b) {
  return !(Dim(b) < a);
}
template <std::integral T>
bool operator<=(T a, const Dim& b) {
  return !(b < Dim(a));
}
template <std::integral T>
bool operator>=(const Dim& a, T b) {
  return !(a < Dim(b));
}
template <std::integral T>
bool operator>=(T a, const Dim& b) {
  return !(Dim(a) < b);
}
inline Dim& operator+=(Dim& a, const Dim& b) { return a = a + b; }
inline Dim& operator-=(Dim& a, const Dim& b) { return a = a - b; }
inline Dim& operator*=(Dim& a, const Dim& b) { return a = a * b; }
// What is decided by sizes in ways that leave no guards: it is a guard that it is decided so again.
int64_t decide(std::span<const Dim> by, const Decider& decider);
inline Dim larger(const Dim& a, const Dim& b) { return a < b ? b : a; }  // with a guard

// While it lives, symbolic sizes are plain numbers.
class PlainSizes {
 public:
  PlainSizes() : before_(Dim::trace) { Dim::trace = nullptr; }
  ~PlainSizes() { Dim::trace = before_; }
  PlainSizes(const PlainSizes&) = delete;
  PlainSizes& operator=(const PlainSizes&) = delete;

 private:
  SizeTrace* const before_;
};

// While it lives, symbolic sizes are looked at without guards, but what is computed of them stays
// symbolic: for rules, which are applied again at other sizes.
class UnguardedSizes {
 public:
  UnguardedSizes() : trace_(rules_trace()), before_(trace_ != nullptr && trace_->keeps_guards) {
    if (trace_ != nullptr) trace_->keeps_guards = trace_->looked = false;
  }
  ~UnguardedSizes() {
    if (trace_ != nullptr) trace_->keeps_guards = before_;
  }
  UnguardedSizes(const UnguardedSizes&) = delete;
  UnguardedSizes& operator=(const UnguardedSizes&) = delete;

 private:
  static SizeTrace* rules_trace() {
    return Dim::trace != nullptr && Dim::trace->applies_rules_again ? Dim::trace : nullptr;
  }
  SizeTrace* const trace_;
  const bool before_;
};

using Strides = InlineVector<Dim, 4>;
using SliceSteps = InlineVector<int64_t, 4>;
using Axes = std::vector<int>;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_({dims.begin(), dims.size()}) {}
  explicit Shape(std::span<const int64_t> dims) {
    for (int64_t dim : dims) dims_.push_back(dim);
  }
  explicit Shape(std::span<const Dim> dims) : dims_(dims) {}

  int ndim() const { return static_cast<int>(dims_.size()); }
  bool empty() const { return dims_.empty(); }
  const Dim& operator[](int axis) const { return dims_[axis]; }
  Dim& dim(int axis) { return dims_[axis]; }
  const Dim& dim(int axis) const { return dims_[axis]; }
  std::span<const Dim> dims() const { return dims_; }
  std::vector<int64_t> values() const { return {dims_.begin(), dims_.end()}; }
  void push_back(Dim dim) { dims_.push_back(dim); }
  void insert(int axis, Dim dim) { dims_.insert(dims_.begin() + axis, dim); }
  void erase(int axis) { dims_.erase(dims_.begin() + axis); }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  // Number of elements; 1 for 0-d. Shapes are checked for overflow when they are made (check_size).
  int64_t size() const;
  Dim count() const;  // the same, as a symbol where it is one
  bool is_empty() const;
  // Sizes of the same symbolic expression are equal without being looked at.
  bool operator==(const Shape& other) const;
  std::string to_string() const;  // "(2, 3)", "(4,)", "()"

 private:
  InlineVector<Dim, 4> dims_;
};

// Other numbers that sizes are added to: starts, widths, strides. One for each axis, of any sign.
using PerAxis = Shape;

// Raises [op] value when a size is < 0, overflow when the bytes do not fit 63 bits; a size of 0 counts
// as 1 there, so that strides always fit.
void check_size(const char* op, const Shape& shape, Dtype dtype);

// Strides and offset of a view into a buffer, in elements. Strides may be zero or negative.
struct Layout {
  Strides strides;
  Dim offset = 0;

  static Layout contiguous(const Shape& shape);
  bool operator==(const Layout&) const = default;
};

bool is_contiguous(const Shape& shape, const Layout& layout);  // row-major, any offset
// The smallest and one past the largest element reached, relative to the buffer's start; {0, 0} if
// the shape is empty.
std::pair<int64_t, int64_t> reach_of(const Shape& shape, const Layout& layout);

// Movement of layouts; nullopt where only a copy can do it.
std::optional<Layout> reshape_layout(const Shape& from, const Layout& layout, const Shape& to);
Layout transpose_layout(const Layout& layout, std::span<const int> axes);
Layout broadcast_layout(const Shape& from, const Layout& layout, const Shape& to);

// The broadcast of two shapes by NumPy's rules; raises [op] value with both shapes.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

// Maps -ndim <= axis < ndim to 0 <= axis; raises [op] axis.
int normalize_axis(const char* op, int64_t axis, int ndim);
// Normalised, sorted, without repeats (a repeat raises [op] value).
Axes normalize_axes(const char* op, std::span<const int64_t> axes, int ndim);

}  // namespace cermet
