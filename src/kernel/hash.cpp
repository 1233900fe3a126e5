// SPDX-License-Identifier: MIT
// A kernel's identity: 128 bits over all of it but the names, so kernels hash alike when they print alike.
// An expression counts as what it is made of, whatever its number. Of a loop alone so does all that it names.
// Not cryptographic.
#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernel/passes.h"

namespace cermet::ir {

namespace {

// The two halves of a 64 x 64 bit product, folded.
uint64_t fold_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Odd constants with balanced bits (digits of pi).
constexpr uint64_t kSecret[4] = {0x243f6a8885a308d3u, 0x13198a2e03707345u, 0xa4093822299f31d1u,
                                 0x082efa98ec4e6c89u};

class Mixer {
 public:
  explicit Mixer(uint64_t size) : lo_(kSecret[0] ^ size), hi_(kSecret[1] + size) {}
  void add(uint64_t a, uint64_t b) {
    const uint64_t before = lo_;
    lo_ = fold_product(lo_ ^ a, kSecret[2] ^ b) + hi_;
    hi_ = fold_product(hi_ ^ b, kSecret[3] ^ a) ^ (before << 32 | before >> 32);
  }
  void add(const Hash& hash) { add(hash.lo, hash.hi); }
  Hash result() const {
    return {fold_product(lo_ ^ kSecret[1], hi_ ^ kSecret[2]),
            fold_product(hi_ ^ kSecret[3], lo_ ^ kSecret[0])};
  }

 private:
  uint64_t lo_, hi_;
};

// Takes each struct apart by its fields, so that a new one is not forgotten.
class KernelHasher {
 public:
  explicit KernelHasher(const Kernel& kernel)
      : kernel_(kernel), exprs_(kernel.exprs.size()), is_hashed_(kernel.exprs.size()) {}

  Hash hash() {
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) find_expr(static_cast<ExprId>(id));
    const auto& [name, params, axes, stride_count, values, exprs, locals, body] = kernel_;
    add(params);
    add(axes);
    add(stride_count);
    add(values);
    add(locals);
    add(body);
    return mixer_.result();
  }

  LoopIdentity identity_of(const For& loop) {
    used_.emplace();
    add(loop);
    used_->hash = mixer_.result();
    return *std::move(used_);
  }

 private:
  Hash hash_of_expr(const Expr& expr) {
    const Mixer outer = std::exchange(mixer_, Mixer(1));
    const auto& [kind, dtype, code, id, bits, operands, buffer, index] = expr;
    mixer_.add(static_cast<uint64_t>(kind) << 48 | static_cast<uint64_t>(dtype) << 40 |
                   static_cast<uint64_t>(code) << 32 | static_cast<uint32_t>(number_in(expr)),
               bits);
    add_exprs(operands);
    if (kind == ExprKind::load) {
      add(buffer);
      add(index);
    }
    return std::exchange(mixer_, outer).result();
  }
  const Hash& find_expr(ExprId id) {
    if (!is_hashed_[id]) {
      exprs_[id] = hash_of_expr(kernel_[id]);
      is_hashed_[id] = true;
    }
    return exprs_[id];
  }

  // The number itself; in a loop's identity, how many others were used before it, and what it is where it comes first.
  template <typename F>
  int32_t number(int32_t id, std::vector<int32_t> LoopIdentity::* uses, F&& describe) {
    if (!used_ || id < 0) return id;
    std::vector<int32_t>& used = *used_.*uses;
    const auto at = std::ranges::find(used, id) - used.begin();
    if (static_cast<size_t>(at) == used.size()) {
      used.push_back(id);
      describe();
    }
    return static_cast<int32_t>(at);
  }
  int32_t param(ParamId id) {
    return number(id, &LoopIdentity::params, [&] { add(kernel_.params[id].dtype); });
  }
  int32_t axis(AxisId id) {
    return number(id, &LoopIdentity::axes, [&] { add(kernel_.axes[id].has_extent); });
  }
  int32_t stride(int32_t id) {
    return number(id, &LoopIdentity::strides, [] {});
  }
  int32_t value(ValueId id) {
    return number(id, &LoopIdentity::values, [&] { add(kernel_.values[id].dtypes); });
  }
  int32_t local(LocalId id) {
    return number(id, &LoopIdentity::locals, [&] {
      const auto& [number, dtype, size, scope] = kernel_.locals[id];
      add(dtype), add(size), add(scope);
    });
  }
  int32_t number_in(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::scalar: return param(expr.id);
      case ExprKind::axis:
      case ExprKind::extent: return axis(expr.id);
      case ExprKind::stride: return stride(expr.id);
      case ExprKind::ref: return value(expr.id);
      default: return expr.id;
    }
  }

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void add(T number) {
    mixer_.add(static_cast<uint64_t>(number), 0);
  }
  void add(const std::string& text) { mixer_.add(hash_bytes(text)); }
  template <typename T>
  void add(const std::vector<T>& list) {
    add(list.size());
    for (const T& item : list) add(item);
  }
  void add(const Index& index) {
    add(index.size());
    for (const IndexTerm& term : index) add(term);
  }
  void add_expr(ExprId id) {
    if (id >= 0 && static_cast<size_t>(id) < exprs_.size()) mixer_.add(find_expr(id));
    else add(id);
  }
  void add_exprs(std::span<const ExprId> list) {
    add(list.size());
    for (const ExprId id : list) add_expr(id);
  }

  void add(const Param& param) {
    const auto& [kind, dtype, access, name] = param;
    add(kind), add(dtype), add(access);
  }
  void add(const Axis& axis) {
    const auto& [name, has_extent, most] = axis;
    add(has_extent), add(most);
  }
  void add(const Value& value) {
    const auto& [name, dtypes] = value;
    add(dtypes);
  }
  void add(const BufferRef& buffer) {
    const auto& [is_local, id] = buffer;
    add(is_local), add(is_local ? local(id) : param(id));
  }
  void add(const IndexTerm& term) {
    const auto& [expr, number] = term;
    add_expr(expr), add(stride(number));
  }
  void add(const SizeTerm& term) {
    const auto& [number, tile] = term;
    add(axis(number)), add(tile);
  }
  void add(const Size& size) {
    const auto& [constant, terms] = size;
    add(constant), add(terms);
  }
  void add(const FoldState& state) {
    const auto& [dtype, init, step, merge] = state;
    add(dtype), add_expr(init), add_expr(step), add_expr(merge);
  }

  void add(const Stmt& stmt) {
    add(stmt.index());
    std::visit([&](const auto& s) { add(s); }, stmt);
  }
  void add_axes(std::span<const AxisId> list) {
    add(list.size());
    for (const AxisId id : list) add(axis(id));
  }
  void add(const Let& s) {
    const auto& [id, expr] = s;
    add(value(id)), add_expr(expr);
  }
  void add(const Fold& s) {
    const auto& [id, axes, emit, order, states] = s;
    add(value(id)), add_axes(axes), add(emit), add(order), add(states);
  }
  void add(const Contract& s) {
    const auto& [id, axes, a, b, acc, scheme] = s;
    add(value(id)), add_axes(axes), add_expr(a), add_expr(b), add(acc), add(scheme);
  }
  void add(const Check& s) {
    const auto& [ok, site, index] = s;
    add_expr(ok), add(site), add_expr(index);
  }
  void add(const Store& s) {
    const auto& [buffer, index, stored, mask] = s;
    add(buffer), add(index), add_expr(stored), add_expr(mask);
  }
  void add(const Update& s) {
    const auto& [buffer, index, code, taken, mask, imag, over, elements] = s;
    add(buffer), add(index), add(code), add_expr(taken), add_expr(mask), add_expr(imag);
    add_axes(over), add(axis(elements));
  }
  void add(const Local& s) {
    const auto& [id, dtype, size, scope] = s;
    add(local(id)), add(dtype), add(size), add(scope);
  }
  void add(const Merge& s) {
    const auto& [id, states, from, at, count, step] = s;
    add(value(id)), add(states), add(from.size());
    for (const LocalId state : from) add(local(state));
    add_expr(at), add_expr(count), add_expr(step);
  }
  void add(const Barrier&) {}
  void add(const Micro& s) {
    const auto& [kind, constants, buffers, operands] = s;
    add(kind), add(constants), add(buffers), add_exprs(operands);
  }
  void add(const Fetch& s) {
    const auto& [buffer, index] = s;
    add(buffer), add(index);
  }
  void add(const For& s) {
    const auto& [kind, axes, begin, end, step, grid, turn, least, body, entry] = s;
    add(kind), add_axes(axes), add_expr(begin), add_expr(end), add(step), add(grid), add(turn);
    add(least), add(body), add(entry);
  }

  const Kernel& kernel_;
  std::vector<Hash> exprs_;
  std::vector<bool> is_hashed_;
  std::optional<LoopIdentity> used_;  // of a loop
  Mixer mixer_{0};
};

}  // namespace

std::string Hash::hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

Hash hash_of(const Kernel& kernel) { return KernelHasher(kernel).hash(); }

LoopIdentity identity_of(const Kernel& kernel, const For& loop) {
  return KernelHasher(kernel).identity_of(loop);
}

Hash hash_bytes(std::string_view text) {
  Mixer mixer(text.size());
  for (size_t at = 0; at < text.size(); at += 16) {
    uint64_t word[2] = {};
    std::memcpy(word, text.data() + at, std::min<size_t>(16, text.size() - at));
    mixer.add(word[0], word[1]);
  }
  return mixer.result();
}

}  // namespace cermet::ir
