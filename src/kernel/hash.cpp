// SPDX-License-Identifier: MIT
// A kernel's identity: 128 bits over all of it but the names, so kernels hash alike when they print alike.
// An expression counts as what it is made of, whatever its number. Not cryptographic.
#include <cstring>
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
  explicit KernelHasher(const Kernel& kernel) : kernel_(kernel) {
    exprs_.reserve(kernel.exprs.size());
    for (const Expr& expr : kernel.exprs) exprs_.push_back(hash_of_expr(expr));
  }

  Hash hash() {
    const auto& [name, params, axes, stride_count, values, exprs, locals, body] = kernel_;
    add(params);
    add(axes);
    add(stride_count);
    add(values);
    add(locals);
    add(body);
    return mixer_.result();
  }

 private:
  Hash hash_of_expr(const Expr& expr) {
    const Mixer outer = std::exchange(mixer_, Mixer(1));
    const auto& [kind, dtype, code, id, bits, operands, buffer, index] = expr;
    mixer_.add(static_cast<uint64_t>(kind) << 48 | static_cast<uint64_t>(dtype) << 40 |
                   static_cast<uint64_t>(code) << 32 | static_cast<uint32_t>(id),
               bits);
    add_exprs(operands);
    if (kind == ExprKind::load) {
      add(buffer);
      add(index);
    }
    return std::exchange(mixer_, outer).result();
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
    if (id >= 0 && static_cast<size_t>(id) < exprs_.size()) mixer_.add(exprs_[id]);
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
    const auto& [local, id] = buffer;
    add(local), add(id);
  }
  void add(const IndexTerm& term) {
    const auto& [expr, stride] = term;
    add_expr(expr), add(stride);
  }
  void add(const SizeTerm& term) {
    const auto& [axis, tile] = term;
    add(axis), add(tile);
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
  void add(const Let& s) {
    const auto& [value, expr] = s;
    add(value), add_expr(expr);
  }
  void add(const Fold& s) {
    const auto& [value, axes, emit, order, states] = s;
    add(value), add(axes), add(emit), add(order), add(states);
  }
  void add(const Contract& s) {
    const auto& [value, axes, a, b, acc, scheme] = s;
    add(value), add(axes), add_expr(a), add_expr(b), add(acc), add(scheme);
  }
  void add(const Check& s) {
    const auto& [ok, site, index] = s;
    add_expr(ok), add(site), add_expr(index);
  }
  void add(const Store& s) {
    const auto& [buffer, index, value, mask] = s;
    add(buffer), add(index), add_expr(value), add_expr(mask);
  }
  void add(const Update& s) {
    const auto& [buffer, index, code, value, mask, imag, over, elements] = s;
    add(buffer), add(index), add(code), add_expr(value), add_expr(mask), add_expr(imag);
    add(over), add(elements);
  }
  void add(const Local& s) {
    const auto& [local, dtype, size, scope] = s;
    add(local), add(dtype), add(size), add(scope);
  }
  void add(const Merge& s) {
    const auto& [value, states, from, at, count, stride] = s;
    add(value), add(states), add(from), add_expr(at), add_expr(count), add_expr(stride);
  }
  void add(const Barrier&) {}
  void add(const Micro& s) {
    const auto& [kind, constants, buffers, operands] = s;
    add(kind), add(constants), add(buffers), add_exprs(operands);
  }
  void add(const For& s) {
    const auto& [kind, axes, begin, end, step, grid, turn, body, entry] = s;
    add(kind), add(axes), add_expr(begin), add_expr(end), add(step), add(grid), add(turn);
    add(body), add(entry);
  }

  const Kernel& kernel_;
  std::vector<Hash> exprs_;
  Mixer mixer_{0};
};

}  // namespace

std::string Hash::hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

Hash hash_of(const Kernel& kernel) { return KernelHasher(kernel).hash(); }

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
