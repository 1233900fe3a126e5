// SPDX-License-Identifier: MIT
// Elements that lie a distance apart in memory, lane by lane: the parts of complex numbers, and what strides
// say at run time. Whole vectors of them are put together, or taken apart, by scalar accesses to places
// found from one address: gathers and scatters take as long for each element, or longer. At the end of a
// loop they go one by one.
#include <algorithm>
#include <numeric>
#include <ranges>

#include "codegen/llvm_emit.h"
#include "codegen/llvm_row_pointers.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int kMostStraight = 16;  // lanes without a loop: all code is made, and little of it run
constexpr int kMostApart = 4;      // elements of which all that lies between is read or masked

// The number that an index ends with, and how many terms come before.
std::pair<size_t, int64_t> ends_with(const Kernel& kernel, const Index& index) {
  if (index.empty() || index.back().stride != kUnit) return {index.size(), 0};
  const Expr& e = kernel[index.back().expr];
  if (e.kind != ExprKind::constant) return {index.size(), 0};
  return {index.size() - 1, static_cast<int64_t>(e.bits)};
}

// b is so many elements behind a.
bool is_beside(const Kernel& kernel, const Index& a, const Index& b, int64_t elements) {
  const auto [terms, at] = ends_with(kernel, a);
  const auto [other_terms, there] = ends_with(kernel, b);
  return terms == other_terms && there - at == elements &&
         std::equal(a.begin(), a.begin() + static_cast<ptrdiff_t>(terms), b.begin());
}

// body(a pointer to the first of `count` elements, their first lane) for all lanes: once, or in a loop.
template <typename F>
void for_groups(Emitter& e, llvm::Value* first, llvm::Value* bytes, int width, F&& body) {
  llvm::IRBuilder<>& b = e.builder();
  if (width <= kMostStraight) return body(first, b.getInt64(0));
  e.ops().loop(b.getInt64(static_cast<uint64_t>(width / kMostStraight)), [&](llvm::Value* k) {
    llvm::Value* lane = b.CreateMul(k, b.getInt64(kMostStraight));
    body(b.CreateGEP(b.getInt8Ty(), first, b.CreateMul(lane, bytes)), lane);
  });
}

// Of lanes in range, as many as there are.
llvm::Value* load_each(Emitter& e, llvm::Type* type, llvm::Value* first, llvm::Value* bytes) {
  llvm::IRBuilder<>& b = e.builder();
  llvm::Type* element = type->getScalarType();
  llvm::Value* slot = e.ops().slot(type);
  b.CreateAlignedStore(llvm::Constant::getNullValue(type), slot, llvm::Align(64));
  e.ops().loop(e.lanes()->count, [&](llvm::Value* k) {
    llvm::Value* from = b.CreateGEP(b.getInt8Ty(), first, b.CreateMul(k, bytes));
    b.CreateStore(b.CreateLoad(element, from), b.CreateGEP(element, slot, k));
  });
  return b.CreateAlignedLoad(type, slot, llvm::Align(64));
}

// One of `apart` elements; the last vector ends with the last of them.
llvm::Value* load_every(Emitter& e, llvm::Type* type, llvm::Value* first, int apart) {
  llvm::IRBuilder<>& b = e.builder();
  const int width = e.lanes()->width, last = (width - 1) * apart + 1 - width;
  llvm::Value* picked = nullptr;
  for (int part = 0, done = 0; part < apart; ++part) {
    const int start = std::min(part * width, last);
    llvm::Value* pointer =
        b.CreateConstGEP1_64(type->getScalarType(), first, static_cast<uint64_t>(start));
    llvm::Value* vector = b.CreateAlignedLoad(type, pointer, element_align(type));
    llvm::SmallVector<int, 64> order(static_cast<size_t>(width), llvm::PoisonMaskElem);
    for (int k = 0; k < width; ++k) {
      const int within = k * apart - start;
      if (k < done) order[static_cast<size_t>(k)] = k;
      else if (within < width) order[static_cast<size_t>(k)] = width + within;
    }
    done = (start + width - 1) / apart + 1;
    picked = b.CreateShuffleVector(picked == nullptr ? vector : picked, vector, order);
  }
  return picked;
}

void store_near(llvm::IRBuilder<>& b, llvm::Value* pointer, int apart, llvm::Value* value,
                llvm::Value* mask) {
  llvm::Type* element = value->getType()->getScalarType();
  const int width = width_of(value);
  for (int part = 0; part < apart; ++part) {
    llvm::SmallVector<int, 64> order;
    llvm::SmallVector<llvm::Constant*, 64> are_stored;
    for (int k = part * width; k < (part + 1) * width; ++k) {
      order.push_back(k / apart);
      are_stored.push_back(b.getInt1(k % apart == 0));
    }
    llvm::Value* stored = llvm::ConstantVector::get(are_stored);
    if (mask != nullptr) stored = b.CreateAnd(stored, b.CreateShuffleVector(mask, order));
    llvm::Value* to = b.CreateConstGEP1_64(
        element, pointer, static_cast<uint64_t>(part) * static_cast<uint64_t>(width));
    b.CreateMaskedStore(b.CreateShuffleVector(value, order), to, element_align(value->getType()),
                        stored);
  }
}

// Pieces of 16 bytes are put together in registers.
llvm::Value* load_apart(Emitter& e, llvm::Type* type, llvm::Value* first, llvm::Value* bytes) {
  llvm::IRBuilder<>& b = e.builder();
  llvm::Type* element = type->getScalarType();
  const int width = e.lanes()->width, count = std::min(width, kMostStraight);
  const int each = std::min(count, 128 / static_cast<int>(element->getScalarSizeInBits()));
  llvm::Value* slot = width > count ? e.ops().slot(type) : nullptr;
  Values whole;
  for_groups(e, first, bytes, width, [&](llvm::Value* pointer, llvm::Value* lane) {
    RowPointers rows(b, bytes);
    const auto pointers = rows.every(pointer, count);
    Values pieces;
    for (int i = 0; i < count; ++i) {
      if (i % each == 0) pieces.push_back(llvm::PoisonValue::get(with_width(element, each)));
      llvm::Value* loaded = b.CreateLoad(element, rows.at(pointers, i));
      pieces.back() = b.CreateInsertElement(pieces.back(), loaded, static_cast<uint64_t>(i % each));
    }
    while (pieces.size() > 1) {
      Values joined;
      for (size_t i = 0; i < pieces.size(); i += 2) {
        llvm::SmallVector<int, 32> order(static_cast<size_t>(2 * width_of(pieces[i])));
        std::iota(order.begin(), order.end(), 0);
        joined.push_back(b.CreateShuffleVector(pieces[i], pieces[i + 1], order));
      }
      pieces = joined;
    }
    if (slot != nullptr)
      b.CreateAlignedStore(pieces[0], b.CreateGEP(element, slot, lane), element_align(type));
    whole.push_back(pieces[0]);
  });
  return slot == nullptr ? whole[0] : b.CreateAlignedLoad(type, slot, llvm::Align(64));
}

void store_apart(Emitter& e, llvm::Value* value, llvm::Value* first, llvm::Value* bytes) {
  llvm::IRBuilder<>& b = e.builder();
  llvm::Type* type = value->getType();
  const int width = width_of(value), count = std::min(width, kMostStraight);
  llvm::Value* slot = width > count ? e.ops().slot(type) : nullptr;
  if (slot != nullptr) b.CreateAlignedStore(value, slot, llvm::Align(64));
  for_groups(e, first, bytes, width, [&](llvm::Value* pointer, llvm::Value* lane) {
    llvm::Value* group = value;
    if (slot != nullptr) {
      llvm::Type* part = with_width(type->getScalarType(), count);
      llvm::Value* from = b.CreateGEP(type->getScalarType(), slot, lane);
      group = b.CreateAlignedLoad(part, from, element_align(type));
    }
    RowPointers rows(b, bytes);
    const auto pointers = rows.every(pointer, count);
    for (int i = 0; i < count; ++i)
      b.CreateStore(b.CreateExtractElement(group, static_cast<uint64_t>(i)), rows.at(pointers, i));
  });
}

// Elements that turn out to lie two to four apart: out of the vectors from the first one to the last. Others as
// `far` makes them.
llvm::Value* load_near(Emitter& e, llvm::Type* type, llvm::Value* first, llvm::Value* apart,
                       const std::function<llvm::Value*()>& far) {
  llvm::IRBuilder<>& b = e.builder();
  const int bits = static_cast<int>(type->getScalarSizeInBits());
  const int bytes = bits / 8 * e.lanes()->width, most = e.ops().features().vector_bytes;
  const bool are_words = bits >= 32 || e.ops().features().avx512 || bytes <= 16;
  if (most < 32 || bytes > most || !are_words) return far();
  llvm::BasicBlock* other = e.block("far");
  llvm::BasicBlock* join = e.block("join");
  llvm::SwitchInst* cases = b.CreateSwitch(apart, other);
  llvm::SmallVector<std::pair<llvm::Value*, llvm::BasicBlock*>, kMostApart> made;
  // Alone, a vector from the middle of a line for each four elements takes as long as these.
  const bool is_alone = e.lanes()->analysis->strided_loads().size() == 1;
  const int furthest = is_alone && bits >= 32 ? kMostApart - 1 : kMostApart;
  for (int d = 2; d <= furthest; ++d) {
    llvm::BasicBlock* near = e.block("near");
    cases->addCase(b.getInt64(static_cast<uint64_t>(d)), near);
    b.SetInsertPoint(near);
    made.push_back({load_every(e, type, first, d), near});
    b.CreateBr(join);
  }
  b.SetInsertPoint(other);
  e.in_scope({.kind = ScopeKind::conditional}, [&](Scope&) {
    llvm::Value* value = far();
    made.push_back({value, b.GetInsertBlock()});
  });
  b.CreateBr(join);
  b.SetInsertPoint(join);
  llvm::PHINode* phi = b.CreatePHI(type, kMostApart);
  for (const auto& [value, from] : made) phi->addIncoming(value, from);
  return phi;
}

// Whether both vectors are whole lines of a large result; null: never.
llvm::Value* pair_goes_past(Emitter& e, BufferRef buffer, llvm::Value* pointer) {
  llvm::IRBuilder<>& b = e.builder();
  const auto bytes = 2 * static_cast<int64_t>(size_of(e.dtype_of(buffer)));
  const bool can = e.ops().features().x86 && !buffer.local;
  if (!can || e.lanes()->width * bytes % static_cast<int64_t>(kLineBytes) != 0) return nullptr;
  llvm::Value* elements = e.elements_of(e.lanes()->analysis->loop());
  llvm::Value* is_large =
      e.at(e.root(), [&] {
         return b.CreateICmpSGE(elements, b.getInt64(static_cast<uint64_t>(kPastBytes / bytes)));
       }).second;
  llvm::Value* place =
      b.CreateAnd(b.CreatePtrToInt(pointer, b.getInt64Ty()), b.getInt64(kLineBytes - 1));
  return b.CreateAnd(is_large, b.CreateICmpEQ(place, b.getInt64(0)));
}

}  // namespace

// In elements.
llvm::Value* Emitter::distance(const Index& index) {
  Value* apart = b_.getInt64(0);
  for (const IndexTerm& term : index) {
    const auto c = static_cast<uint64_t>(*lanes()->analysis->coefficient(term.expr));
    Value* each = term.stride == kUnit ? b_.getInt64(1) : stride(term.stride);
    apart = b_.CreateAdd(apart, b_.CreateMul(each, b_.getInt64(c)));
  }
  return apart;
}

llvm::Value* Emitter::bytes_apart(const Index& index, llvm::Type* element) {
  return b_.CreateMul(distance(index), b_.getInt64(element->getScalarSizeInBits() / 8));
}

// What `whole` gives where all lanes are in range, which the loop knows as a scalar, and `part` elsewhere.
llvm::Value* Emitter::where_whole(const std::function<Value*()>& whole,
                                  const std::function<Value*()>& part) {
  const Lanes& l = *lanes();
  if (l.active == nullptr) return whole();
  if (l.full == nullptr) return part();
  llvm::BasicBlock* all = block("all");
  llvm::BasicBlock* some = block("some");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(b_.CreateICmpSLT(l.offset, l.full), all, some);
  Values made;
  llvm::SmallVector<llvm::BasicBlock*, 2> ends;
  const auto write = [&](llvm::BasicBlock* start, const std::function<Value*()>& make) {
    b_.SetInsertPoint(start);
    in_scope({.kind = ScopeKind::conditional}, [&](Scope&) { made.push_back(make()); });
    ends.push_back(b_.GetInsertBlock());
    b_.CreateBr(join);
  };
  write(all, whole);
  write(some, part);
  b_.SetInsertPoint(join);
  if (made[0] == nullptr) return nullptr;
  llvm::PHINode* phi = b_.CreatePHI(made[0]->getType(), 2);
  for (size_t i = 0; i < made.size(); ++i) phi->addIncoming(made[i], ends[i]);
  return phi;
}

// --- Loads.

// Every other element: two vectors that reach from the first one to the last.
llvm::Value* Emitter::load_pair(const Expr& e, llvm::Type* type) {
  const int width = lanes()->width;
  Value* first = address(e.buffer, e.index);
  Value* second =
      b_.CreateConstGEP1_64(type->getScalarType(), first, static_cast<uint64_t>(width - 1));
  llvm::SmallVector<int, 32> even;
  for (int k = 0; k < width; ++k) even.push_back(2 * k < width ? 2 * k : 2 * k + 1);
  return b_.CreateShuffleVector(b_.CreateAlignedLoad(type, first, element_align(type)),
                                b_.CreateAlignedLoad(type, second, element_align(type)), even);
}

// By elements, or gathered where the processor is quick at that.
llvm::Value* Emitter::load_far(const Expr& e, llvm::Type* type, Value* mask, Value* otherwise) {
  const bool is_gathered = ops_.features().fast_gathers && type->getScalarSizeInBits() >= 32;
  const auto gathered = [&] {
    return gather(type, element_pointers(e.buffer, e.index), mask, otherwise);
  };
  const AccessKind kind = lanes()->analysis->access(e.index).kind;
  if (kind != AccessKind::strided || e.operands[0] != kNone) return gathered();
  Value* first = address(e.buffer, e.index);
  if (is_gathered)
    return where_whole([&] { return load_near(*this, type, first, distance(e.index), gathered); },
                       gathered);
  Value* bytes = bytes_apart(e.index, type);
  const auto apart = [&] { return load_apart(*this, type, first, bytes); };
  return where_whole([&] { return load_near(*this, type, first, distance(e.index), apart); },
                     [&] { return load_each(*this, type, first, bytes); });
}

// A store to every other element and the next statement, one to those between: whole vectors. Both values
// are made first, so neither may read what the other stores.
bool Emitter::store_pair(const Stmt& a, const Stmt& b) {
  const Lanes* l = lanes();
  const auto* re = std::get_if<Store>(&a);
  const auto* im = std::get_if<Store>(&b);
  if (l == nullptr || l->width == 1 || re == nullptr || im == nullptr || re->buffer != im->buffer ||
      !is_whole(re->mask) || !is_whole(im->mask) ||
      l->analysis->access(re->index).kind != AccessKind::pair ||
      !is_beside(kernel_, re->index, im->index, 1) || is_read(re->buffer))
    return false;
  const Dtype dtype = dtype_of(re->buffer);
  Value* parts[] = {ops_.to_memory(dtype, vector(re->value)),
                    ops_.to_memory(dtype, vector(im->value))};
  Value* pointer = address(re->buffer, re->index);
  Value* halves[2];
  for (int half = 0; half < 2; ++half) {
    llvm::SmallVector<int, 32> order;
    for (int k = 0; k < l->width; ++k)
      order.push_back((half * l->width + k) / 2 + k % 2 * l->width);
    halves[half] = b_.CreateShuffleVector(parts[0], parts[1], order);
  }
  const auto store_halves = [&](auto&& store) {
    for (int half = 0; half < 2; ++half) {
      const uint64_t at = static_cast<uint64_t>(half) * static_cast<uint64_t>(l->width);
      store(halves[half],
            b_.CreateConstGEP1_64(halves[0]->getType()->getScalarType(), pointer, at));
    }
  };
  choose(
      pair_goes_past(*this, re->buffer, pointer),
      [&] { store_halves([&](Value* value, Value* to) { store_past(value, to); }); },
      [&] {
        store_halves([&](Value* value, Value* to) {
          b_.CreateAlignedStore(value, to, element_align(value->getType()));
        });
      });
  forget({buffer_number(kernel_, re->buffer)});
  return true;
}

// Outside of lanes: how many of the first statements copy elements side by side, that is by one move.
size_t Emitter::copy_neighbours(std::span<const Stmt> stmts) {
  constexpr size_t kMost = 16;
  if (lanes() != nullptr) return 0;
  struct Copy {
    const Store* store = nullptr;
    const Expr* load = nullptr;
    bool is_after(const Copy& before, int64_t elements, const Kernel& kernel) const {
      return store->buffer == before.store->buffer && load->buffer == before.load->buffer &&
             is_beside(kernel, before.store->index, store->index, elements) &&
             is_beside(kernel, before.load->index, load->index, elements);
    }
  };
  const auto copy_of = [&](const Stmt& stmt) -> Copy {
    const auto* store = std::get_if<Store>(&stmt);
    if (store == nullptr || store->mask != kNone) return {};
    const Expr& e = kernel_[store->value];
    const bool copies = e.kind == ExprKind::load && e.operands[0] == kNone &&
                        dtype_of(e.buffer) == dtype_of(store->buffer);
    return copies ? Copy{store, &e} : Copy{};
  };
  const Copy first = stmts.empty() ? Copy{} : copy_of(stmts[0]);
  if (first.store == nullptr || first.load->buffer == first.store->buffer) return 0;
  size_t count = 1;
  for (; count < std::min(stmts.size(), kMost); ++count) {
    const Copy next = copy_of(stmts[count]);
    if (next.store == nullptr || !next.is_after(first, static_cast<int64_t>(count), kernel_)) break;
  }
  if (count < 2) return 0;
  llvm::Type* type = with_width(memory_type(first.store->buffer), static_cast<int>(count));
  Value* from = address(first.load->buffer, first.load->index);
  Value* to = address(first.store->buffer, first.store->index);
  b_.CreateAlignedStore(b_.CreateAlignedLoad(type, from, element_align(type)), to,
                        element_align(type));
  forget({buffer_number(kernel_, first.store->buffer)});
  return count;
}

// --- Stores.

// Elements that turn out to lie two to four apart: masked vectors from the first one to the last, as a
// scatter takes an element at a time.
void Emitter::store_strided(const Store& s, Value* value, Value* mask) {
  if (!ops_.features().avx512) return store_far(s, value, mask);
  Value* apart = distance(s.index);
  Value* first = address(s.buffer, s.index);
  llvm::BasicBlock* far = block("far");
  llvm::BasicBlock* join = block("join");
  llvm::SwitchInst* cases = b_.CreateSwitch(apart, far);
  for (int d = 2; d <= kMostApart; ++d) {
    llvm::BasicBlock* near = block("near");
    cases->addCase(b_.getInt64(static_cast<uint64_t>(d)), near);
    b_.SetInsertPoint(near);
    store_near(b_, first, d, value, mask);
    b_.CreateBr(join);
  }
  b_.SetInsertPoint(far);
  in_scope({.kind = ScopeKind::conditional}, [&](Scope&) { store_far(s, value, mask); });
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

void Emitter::store_far(const Store& s, Value* value, Value* mask) {
  llvm::Type* element = value->getType()->getScalarType();
  const bool is_scattered = ops_.features().avx512 && ops_.features().fast_gathers &&
                            element->getScalarSizeInBits() >= 32;
  if (s.mask != kNone || is_scattered) return scatter(s, value, mask);
  Value* first = address(s.buffer, s.index);
  Value* bytes = bytes_apart(s.index, element);
  where_whole(
      [&]() -> Value* {
        store_apart(*this, value, first, bytes);
        return nullptr;
      },
      [&]() -> Value* {
        Value* slot = ops_.slot(value->getType());
        b_.CreateAlignedStore(value, slot, llvm::Align(64));
        ops_.loop(lanes()->count, [&](Value* k) {
          Value* to = b_.CreateGEP(b_.getInt8Ty(), first, b_.CreateMul(k, bytes));
          b_.CreateStore(b_.CreateLoad(element, b_.CreateGEP(element, slot, k)), to);
        });
        return nullptr;
      });
}

}  // namespace cermet::codegen
