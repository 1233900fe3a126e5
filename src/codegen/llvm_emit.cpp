// SPDX-License-Identifier: MIT
// Scopes, expressions and the statements that are no loops.
#include "codegen/llvm_emit.h"

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>

#include "base/error.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

Emitter::Emitter(llvm::Module& module, const Kernel& kernel, CpuFeatures features, bool polls)
    : module_(module), kernel_(kernel), b_(module.getContext()), ops_(b_, features), polls_(polls) {
  const std::set<int> written = written_buffers(kernel, kernel.body);
  lets_.assign(kernel.values.size(), kNone);
  for_each_stmt(kernel.body, [&](const Stmt& stmt) {
    if (const Let* let = std::get_if<Let>(&stmt)) lets_[let->value] = let->expr;
  });
  reads_.resize(kernel.exprs.size());
  for (size_t id = 0; id < kernel.exprs.size(); ++id) {
    std::vector<int>& reads = reads_[id];
    const Expr& e = kernel.exprs[id];
    for_each_operand(e, [&](ExprId operand) {
      reads.insert(reads.end(), reads_[operand].begin(), reads_[operand].end());
    });
    if (e.kind == ExprKind::load && written.contains(buffer_number(kernel, e.buffer)))
      reads.push_back(buffer_number(kernel, e.buffer));
    std::ranges::sort(reads);
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  }
}

void Emitter::entry(const For& chunk, const std::string& symbol) {
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Type* word = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(word, {pointer, word, word, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  const std::string bits = std::to_string(8 * ops_.features().vector_bytes);
  function_->addFnAttr("min-legal-vector-width", bits);
  function_->addFnAttr("prefer-vector-width", bits);
  chunk_ = &chunk;
  ahead_ = fetched_ahead(kernel_, chunk, ops_.features().vector_bytes);
  entry_block_ = block("entry");
  llvm::BasicBlock* start = block("start");
  b_.SetInsertPoint(start);
  words_.clear();
  local_offsets_.clear();
  folds_.clear();
  stores_past_ = false;
  until_poll_ = nullptr;
  axes_.assign(kernel_.axes.size(), {});
  values_.assign(kernel_.values.size(), {});
  Scope root{.kind = ScopeKind::function};
  root_ = current_ = &root;
  // A span is one iteration.
  const bool spans = chunk.axes.size() == 2;
  const int64_t step = spans ? int64_t{1} << 62 : 1;
  loop(function_->getArg(1), function_->getArg(2), step, written_buffers(kernel_, chunk.body), {},
       [&](Value* item, const Values&) -> Values {
         bind_axis(chunk.axes[0], item);
         if (spans) bind_axis(chunk.axes[1], function_->getArg(2));
         statements(chunk.body);
         return {};
       });
  if (stores_past_)  // other threads see what follows in order again
    b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
  b_.CreateRet(b_.getInt64(0));
  b_.SetInsertPoint(entry_block_);
  b_.CreateBr(start);
  root_ = current_ = nullptr;
}

llvm::BasicBlock* Emitter::block(const char* name) {
  return llvm::BasicBlock::Create(module_.getContext(), name, function_);
}

// --- Scopes.

int Emitter::depth(const Scope* scope) const {
  int depth = 0;
  for (; scope != nullptr; scope = scope->parent) ++depth;
  return depth;
}

Scope* Emitter::deeper(Scope* a, Scope* b) const { return depth(a) < depth(b) ? b : a; }

Scope* Emitter::home_of(ExprId id) {
  if (const auto it = current_->home.find(id); it != current_->home.end()) return it->second;
  Scope* home = find_home(id);
  current_->home[id] = home;
  return home;
}

Scope* Emitter::find_home(ExprId id) {
  const Expr& e = kernel_[id];
  switch (e.kind) {
    case ExprKind::constant:
    case ExprKind::scalar:
    case ExprKind::extent:
    case ExprKind::stride: return root_;
    case ExprKind::axis: return axes_[e.id].scope;
    case ExprKind::ref: return values_[e.id].scope;
    case ExprKind::state:
    case ExprKind::other: {
      Scope* scope = current_;
      while (scope->state == nullptr) scope = scope->parent;
      return scope;
    }
    default: break;
  }
  Scope* home = root_;
  for_each_operand(e, [&](ExprId operand) { home = deeper(home, home_of(operand)); });
  if (e.kind != ExprKind::load) return home;
  const int buffer = buffer_number(kernel_, e.buffer);
  for (Scope* scope = current_; scope != nullptr; scope = scope->parent)
    if (scope->kind == ScopeKind::loop && scope->writes->contains(buffer))
      return deeper(home, scope);
  return home;
}

bool Emitter::reads_any(ExprId id, const std::set<int>& written) const {
  return std::ranges::any_of(reads_[id], [&](int buffer) { return written.contains(buffer); });
}

void Emitter::forget_in(Scope& scope, const std::set<int>& written) {
  const auto by_id = [&](const auto& entry) { return reads_any(entry.first, written); };
  std::erase_if(scope.natural, by_id);
  std::erase_if(scope.base, by_id);
  std::erase_if(scope.divisors,
                [&](const auto& entry) { return reads_any(entry.first.first, written); });
  std::erase_if(scope.splat,
                [&](const auto& entry) { return reads_any(entry.first.first, written); });
  std::erase_if(scope.addresses,
                [&](const auto& entry) { return reads_any(std::get<1>(entry.first), written); });
}

void Emitter::forget(const std::set<int>& written) {
  if (written.empty()) return;
  for (Scope* scope = current_; scope != nullptr; scope = scope->parent) forget_in(*scope, written);
}

void Emitter::bind_axis(AxisId axis, Value* value) { axes_[axis] = {current_, {value}}; }
void Emitter::define(ValueId value, Values values) {
  values_[value] = {current_, std::move(values)};
}

Values Emitter::loop(Value* begin, Value* end, int64_t step, const std::set<int>& writes,
                     const Values& carried, const LoopBody& body, int64_t work) {
  if (!polls_) work = 0;
  forget(writes);
  llvm::BasicBlock* head = block("loop");
  llvm::BasicBlock* exit = block("after");
  llvm::BasicBlock* before = nullptr;
  llvm::BasicBlock* latch = nullptr;
  Scope scope{.kind = ScopeKind::loop, .preheader = b_.GetInsertBlock(), .writes = &writes};
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(begin->getType(), 2);
  Values in, next;
  for (Value* value : carried) in.push_back(b_.CreatePHI(value->getType(), 2));
  in_scope(scope, [&](Scope& inner) {
    next = body(i, in);
    Value* following = b_.CreateAdd(i, b_.getInt64(static_cast<uint64_t>(step)));
    llvm::BasicBlock* again = work == 0 ? head : block("again");
    b_.CreateCondBr(b_.CreateICmpSLT(following, end), again, exit);
    latch = b_.GetInsertBlock();
    if (work != 0) {
      b_.SetInsertPoint(again);
      poll(work);
      b_.CreateBr(head);
    }
    llvm::BasicBlock* back = b_.GetInsertBlock();
    before = inner.preheader;
    i->addIncoming(begin, before);
    i->addIncoming(following, back);
    for (size_t k = 0; k < in.size(); ++k) {
      llvm::cast<llvm::PHINode>(in[k])->addIncoming(carried[k], before);
      llvm::cast<llvm::PHINode>(in[k])->addIncoming(next[k], back);
    }
  });
  b_.SetInsertPoint(before);
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, exit);
  exit->moveAfter(latch);
  b_.SetInsertPoint(exit);
  Values out;
  for (size_t k = 0; k < carried.size(); ++k) {
    llvm::PHINode* phi = b_.CreatePHI(carried[k]->getType(), 2);
    phi->addIncoming(carried[k], before);
    phi->addIncoming(next[k], latch);
    out.push_back(phi);
  }
  forget(writes);
  return out;
}

// --- The record. Its words are read in the entry block, before any branch.

llvm::Value* Emitter::word(int number, llvm::Type* type) {
  Value*& known = words_[{number, type}];
  if (known == nullptr) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_block_);
    known =
        b_.CreateLoad(type, b_.CreateConstGEP1_64(b_.getInt64Ty(), function_->getArg(0), number));
  }
  return known;
}

llvm::Value* Emitter::extent(AxisId axis) {
  int number = static_cast<int>(kernel_.params.size());
  for (AxisId a = 0; a < axis; ++a) number += kernel_.axes[a].has_extent ? 1 : 0;
  return word(number, b_.getInt64Ty());
}

llvm::Value* Emitter::elements_of(const For& loop) {
  std::set<AxisId> axes;
  for (const SizeTerm& term : chunk_->grid.terms) axes.insert(term.axis);
  std::vector<ExprId> ends;  // of the loop and those around it
  const std::function<bool(const For&)> find = [&](const For& around) {
    const bool here = &around == &loop || std::ranges::any_of(around.body, [&](const Stmt& stmt) {
      const For* inner = std::get_if<For>(&stmt);
      return inner != nullptr && find(*inner);
    });
    if (here && &around != chunk_) ends.push_back(around.end);
    return here;
  };
  find(*chunk_);
  std::set<ExprId> seen;
  const std::function<void(ExprId)> look = [&](ExprId id) {
    if (!seen.insert(id).second) return;
    const Expr& e = kernel_[id];
    if (e.kind == ExprKind::extent) axes.insert(e.id);
    if (e.kind == ExprKind::ref && lets_[e.id] != kNone) look(lets_[e.id]);
    for_each_operand(e, look);
  };
  std::ranges::for_each(ends, look);
  const auto product = [&] {
    Value* elements = b_.getInt64(1);
    for (AxisId axis : axes) elements = b_.CreateMul(elements, extent(axis));
    return elements;
  };
  return at(root_, product).second;
}

llvm::Value* Emitter::rows_end(const For& loop) {
  if (loop.kind == ForKind::chunk) return function_->getArg(2);
  const Expr& end = kernel_[behind(loop.end)];
  if (end.kind == ExprKind::op && end.code == Code::min)
    for (ExprId most : end.operands)
      if (kernel_[most].kind == ExprKind::extent) return natural(most);
  return natural(loop.end);
}

bool Emitter::is_made(ExprId id) const {
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::ref && values_[e.id].scope == nullptr) return false;
  bool made = true;
  for_each_operand(e, [&](ExprId operand) { made = made && is_made(operand); });
  return made;
}

bool Emitter::is_read(BufferRef buffer) const {
  return std::ranges::any_of(
      kernel_.exprs, [&](const Expr& e) { return e.kind == ExprKind::load && e.buffer == buffer; });
}

llvm::Value* Emitter::stride(int32_t number) {
  int first = static_cast<int>(kernel_.params.size());
  for (const Axis& axis : kernel_.axes) first += axis.has_extent ? 1 : 0;
  return word(first + number, b_.getInt64Ty());
}

llvm::Value* Emitter::size(const Size& size) {
  Value* total = b_.getInt64(static_cast<uint64_t>(size.constant));
  for (const SizeTerm& term : size.terms) {
    Value* tiles = extent(term.axis);
    if (term.tile != 1) {
      tiles = b_.CreateAdd(tiles, b_.getInt64(static_cast<uint64_t>(term.tile - 1)));
      tiles = b_.CreateUDiv(tiles, b_.getInt64(static_cast<uint64_t>(term.tile)));
    }
    total = b_.CreateMul(total, tiles);
  }
  return total;
}

// Thread locals lie one after another, each on a multiple of 64 bytes (see target.h).
llvm::Value* Emitter::thread_local_at(LocalId id) {
  if (local_offsets_.empty()) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_block_);
    Value* offset = b_.getInt64(0);
    for (const Local& local : kernel_.locals) {
      local_offsets_.push_back(b_.CreateGEP(b_.getInt8Ty(), function_->getArg(3), offset));
      if (local.scope != LocalScope::thread) continue;
      Value* bytes = b_.CreateMul(size(local.size), b_.getInt64(size_of(local.dtype)));
      bytes = b_.CreateAnd(b_.CreateAdd(bytes, b_.getInt64(63)), b_.getInt64(~uint64_t{63}));
      offset = b_.CreateAdd(offset, bytes);
    }
  }
  return local_offsets_[id];
}

llvm::Value* Emitter::element_zero(BufferRef buffer) {
  if (!buffer.local) return word(buffer.id, b_.getPtrTy());
  if (kernel_.locals[buffer.id].scope == LocalScope::thread) return thread_local_at(buffer.id);
  int number = static_cast<int>(kernel_.params.size()) + kernel_.stride_count;
  for (const Axis& axis : kernel_.axes) number += axis.has_extent ? 1 : 0;
  for (LocalId id = 0; id < buffer.id; ++id)
    number += kernel_.locals[id].scope == LocalScope::kernel ? 1 : 0;
  return word(number, b_.getPtrTy());
}

Dtype Emitter::dtype_of(BufferRef buffer) const {
  return buffer.local ? kernel_.locals[buffer.id].dtype : kernel_.params[buffer.id].dtype;
}

llvm::Type* Emitter::memory_type(BufferRef buffer) const {
  return ops_.memory_type(dtype_of(buffer));
}

// Summed from the outermost term in, so that a loop adds only what changes in it.
llvm::Value* Emitter::address(BufferRef buffer, const Index& index) {
  std::vector<std::pair<int, IndexTerm>> terms;
  for (const IndexTerm& term : index) terms.emplace_back(depth(home_of(term.expr)), term);
  std::ranges::stable_sort(terms, {}, &std::pair<int, IndexTerm>::first);
  Value* pointer = element_zero(buffer);
  for (const auto& entry : terms) {
    const IndexTerm& term = entry.second;
    const Scope::AddressKey key{pointer, term.expr, term.stride};
    if (const auto* known = find_in(current_, &Scope::addresses, key)) {
      pointer = *known;
    } else {
      const auto [scope, value] = at(home_of(term.expr), [&]() -> Value* {
        Value* offset = base(term.expr);
        if (const auto* c = llvm::dyn_cast<llvm::ConstantInt>(offset); c != nullptr && c->isZero())
          return pointer;
        if (term.stride != kUnit) offset = b_.CreateMul(offset, stride(term.stride));
        return b_.CreateGEP(memory_type(buffer), pointer, offset);
      });
      scope->addresses[key] = value;
      pointer = value;
    }
  }
  return pointer;
}

// Where the axis is a term of its own, this is made further out than where it is a part of one.
llvm::Value* Emitter::address_at(AxisId axis, ExprId begin, BufferRef buffer, Index index) {
  const std::function<bool(ExprId)> depends = [&](ExprId id) {
    const Expr& e = kernel_[id];
    bool found = e.kind == ExprKind::axis && e.id == axis;
    for_each_operand(e, [&](ExprId operand) { found = found || depends(operand); });
    return found;
  };
  bool alone = true;
  Index at_begin = index;
  for (IndexTerm& term : at_begin) {
    const Expr& e = kernel_[term.expr];
    if (e.kind == ExprKind::axis && e.id == axis) term.expr = begin;
    else alone = alone && !depends(term.expr);
  }
  if (alone) return address(buffer, at_begin);
  Value* made = nullptr;
  Value* first = natural(begin);
  in_scope({}, [&](Scope&) {
    bind_axis(axis, first);
    made = address(buffer, index);
  });
  return made;
}

// --- Expressions.

llvm::Value* Emitter::known(ExprId id) const {
  const auto* known = find_in(current_, &Scope::natural, id);
  return known == nullptr ? nullptr : *known;
}

llvm::Value* Emitter::natural(ExprId id) {
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::constant) return ops_.constant(e.dtype, e.bits);
  if (Value* value = known(id); value != nullptr) return value;
  const auto [scope, value] = at(home_of(id), [&] { return compute(id); });
  scope->natural[id] = value;
  return value;
}

llvm::Value* Emitter::vector(ExprId id) {
  Value* value = natural(id);
  const int width = lanes()->width;
  if (width_of(value) == width) return value;
  if (llvm::isa<llvm::Constant>(value)) return ops_.splat(value, width);
  if (const auto* known = find_in(current_, &Scope::splat, {id, width})) return *known;
  const auto [scope, splat] =
      at(deeper(home_of(id), outside_lanes()), [&] { return ops_.splat(value, width); });
  scope->splat[{id, width}] = splat;
  return splat;
}

Scope* Emitter::outside_lanes() const {
  Scope* outside = current_;
  while (outside->parent != nullptr && outside->lanes != nullptr &&
         outside->lanes->analysis == lanes()->analysis)
    outside = outside->parent;
  return outside;
}

llvm::Value* Emitter::base(ExprId id) {
  if (lanes() == nullptr || lanes()->width == 1 || lanes()->analysis->spread(id) != Spread::varying)
    return natural(id);
  if (const auto* known = find_in(current_, &Scope::base, id)) return *known;
  const auto [scope, value] = at(home_of(id), [&] { return compute_base(id); });
  scope->base[id] = value;
  return value;
}

llvm::Value* Emitter::compute_base(ExprId id) {
  const Expr& e = kernel_[id];
  if (e.kind == ExprKind::axis) return axes_[e.id].values[0];
  if (e.kind == ExprKind::op && e.dtype == Dtype::int64 &&
      (e.code == Code::add || e.code == Code::sub || e.code == Code::mul)) {
    Value* operands[2] = {base(e.operands[0]), base(e.operands[1])};
    return ops_.op(e.code, e.dtype, e.dtype, operands);
  }
  if (divides_short(id)) return short_first(id);
  Value* value = natural(id);
  return width_of(value) == 1 ? value : b_.CreateExtractElement(value, uint64_t{0});
}

llvm::Value* Emitter::compute(ExprId id) {
  const Expr& e = kernel_[id];
  switch (e.kind) {
    case ExprKind::constant: break;
    case ExprKind::scalar: return ops_.from_memory(e.dtype, word(e.id, ops_.memory_type(e.dtype)));
    case ExprKind::extent: return extent(e.id);
    case ExprKind::stride: return stride(e.id);
    case ExprKind::axis: {
      Value* value = axes_[e.id].values[0];
      if (lanes() == nullptr || lanes()->analysis->loop().axes[0] != e.id) return value;
      const int width = lanes()->width;
      if (width == 1) return value;
      std::vector<uint64_t> numbers(static_cast<size_t>(width));
      for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = k;
      return b_.CreateAdd(ops_.splat(value, width),
                          llvm::ConstantDataVector::get(b_.getContext(), numbers));
    }
    case ExprKind::ref: return values_[e.id].values[0];
    case ExprKind::state:
    case ExprKind::other: {
      const Scope* scope = home_of(id);
      return e.kind == ExprKind::state ? (*scope->state)[e.id] : (*scope->other)[e.id];
    }
    case ExprKind::get: {
      const Expr& tuple = kernel_[e.operands[0]];
      CERMET_INTERNAL_CHECK(tuple.kind == ExprKind::ref, "get of {} in codegen",
                            name_of(tuple.code));
      return values_[tuple.id].values[e.id];
    }
    case ExprKind::op:
      if (Value* place = narrow_place(e); place != nullptr) return place;
      return divides_short(id) ? short_result(id) : operation(e);
    case ExprKind::rare: return rare(e);
    case ExprKind::load: return load(e);
  }
  throw_internal(__FILE__, __LINE__, "an unknown expression");
}

// The low bits of places in a lane loop are those of the first one and the lanes' numbers.
llvm::Value* Emitter::narrow_place(const Expr& e) {
  if (e.code != Code::cast || e.dtype == Dtype::boolean || is_floating(e.dtype)) return nullptr;
  if (lanes() == nullptr || lanes()->width == 1) return nullptr;
  const ExprId from = e.operands[0];
  const std::optional<int64_t> step = lanes()->analysis->coefficient(from);
  if (!step || *step == 0 || kernel_[from].dtype != Dtype::int64) return nullptr;
  llvm::Type* type = ops_.register_type(e.dtype);
  llvm::SmallVector<llvm::Constant*, 64> steps;
  for (int k = 0; k < lanes()->width; ++k)
    steps.push_back(llvm::ConstantInt::get(type, static_cast<uint64_t>(k * *step)));
  Value* first = ops_.splat(b_.CreateTrunc(base(from), type), lanes()->width);
  return b_.CreateAdd(first, llvm::ConstantVector::get(steps));
}

namespace {

// What has a memory operand and no better form for some number.
bool takes_loaded(const Expr& e) {
  return is_floating(e.dtype) && size_of(e.dtype) >= 4 &&
         (e.code == Code::add || e.code == Code::sub || e.code == Code::mul || e.code == Code::fma);
}

}  // namespace

// A constant vector read from memory: LLVM looks at each lane of one that it knows in every pass, which
// takes several times as long as the op. A loop keeps in registers what fits: instructions that each read
// one from memory wait for the loads. Of several registers one is kept, where there are few.
llvm::Value* Emitter::loaded(ExprId id, llvm::Constant* vector) {
  const int whole = width_of(vector), bits = 8 * ops_.features().vector_bytes;
  const int parts = static_cast<int>(vector->getType()->getPrimitiveSizeInBits()) / bits;
  const bool stays = lanes() != nullptr && lanes()->width == whole;
  if (parts > 1 && !ops_.features().avx512) {
    llvm::Constant* part = llvm::ConstantVector::getSplat(
        llvm::ElementCount::getFixed(static_cast<unsigned>(whole / parts)),
        vector->getSplatValue());
    llvm::SmallVector<int, 32> numbers;
    for (int k = 0; k < whole; ++k) numbers.push_back(k % (whole / parts));
    return b_.CreateShuffleVector(loaded_part(id, part, stays), numbers);
  }
  return loaded_part(id, vector, stays);
}

llvm::Value* Emitter::loaded_part(ExprId id, llvm::Constant* vector, bool stays) {
  const auto load = [&]() -> Value* {
    const auto* number = llvm::cast<llvm::ConstantFP>(vector->getSplatValue());
    const std::string name =
        fmt::format("c{}x{}", number->getValueAPF().bitcastToAPInt().getZExtValue(),
                    vector->getType()->getPrimitiveSizeInBits().getFixedValue());
    llvm::GlobalVariable* global = module_.getNamedGlobal(name);
    if (global == nullptr) {
      global = new llvm::GlobalVariable(module_, vector->getType(), true,
                                        llvm::GlobalValue::PrivateLinkage, vector, name);
      global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
      global->setAlignment(llvm::Align(64));
    }
    llvm::LoadInst* made = b_.CreateAlignedLoad(vector->getType(), global, llvm::Align(64));
    made->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
    return made;
  };
  const int width = width_of(vector);
  if (!stays) return load();
  if (const auto* known = find_in(current_, &Scope::splat, {id, width})) return *known;
  const auto [scope, value] = at(outside_lanes(), load);
  scope->splat[{id, width}] = value;
  return value;
}

llvm::Value* Emitter::operation(const Expr& e) {
  CERMET_INTERNAL_CHECK(!is_math(e.code), "math code {} reached codegen", name_of(e.code));
  Values v;
  int width = 1;
  for (ExprId operand : e.operands) {
    v.push_back(natural(operand));
    width = std::max(width, width_of(v.back()));
  }
  // Splats are made where they stay for the whole loop.
  if (width > 1 && lanes() != nullptr && lanes()->width == width)
    for (size_t i = 0; i < v.size(); ++i)
      if (width_of(v[i]) == 1) v[i] = vector(e.operands[i]);
  if (width > 1 && ops_.features().x86 && takes_loaded(e))
    for (size_t i = 0; i < v.size(); ++i)
      if (kernel_[e.operands[i]].kind == ExprKind::constant && width_of(v[i]) == width)
        if (auto* c = llvm::cast<llvm::Constant>(v[i]); !c->isZeroValue())
          v[i] = loaded(e.operands[i], c);
  const Dtype from = kernel_[e.operands[e.code == Code::select ? 1 : 0]].dtype;
  if (divides_by_one(e, width)) return quotient(e, v[0], divisor(e.operands[1]));
  return ops_.op(e.code, e.dtype, from, v);
}

// --- Statements.

void Emitter::statements(std::span<const Stmt> stmts) {
  for (size_t i = 0; i < stmts.size(); ++i) {
    if (i + 1 < stmts.size() && store_pair(stmts[i], stmts[i + 1])) ++i;
    else if (const size_t copies = copy_neighbours(stmts.subspan(i)); copies > 0) i += copies - 1;
    else statement(stmts[i]);
  }
}

void Emitter::statement(const Stmt& stmt) {
  if (const Let* s = std::get_if<Let>(&stmt)) {
    define(s->value, {natural(s->expr)});
  } else if (const Fold* s = std::get_if<Fold>(&stmt)) {
    fold_step(*s);
  } else if (const Check* s = std::get_if<Check>(&stmt)) {
    check(*s);
  } else if (const Store* s = std::get_if<Store>(&stmt)) {
    store(*s);
    forget({buffer_number(kernel_, s->buffer)});
  } else if (const Update* s = std::get_if<Update>(&stmt)) {
    update(*s);
    forget({buffer_number(kernel_, s->buffer)});
  } else if (const For* s = std::get_if<For>(&stmt)) {
    CERMET_INTERNAL_CHECK(s->kind == ForKind::serial || s->kind == ForKind::lane,
                          "a loop for another target in kernel {}", kernel_.name);
    s->kind == ForKind::serial ? serial_loop(*s) : lane_loop(*s);
  } else if (const Merge* s = std::get_if<Merge>(&stmt)) {
    merge(*s);
  } else if (const Micro* s = std::get_if<Micro>(&stmt)) {
    std::set<int> touched;
    for (BufferRef buffer : s->buffers) touched.insert(buffer_number(kernel_, buffer));
    emit_micro(*this, *s);
    forget(touched);
  } else if (const Fetch* s = std::get_if<Fetch>(&stmt)) {
    fetch(*s);
  } else {
    CERMET_INTERNAL_CHECK(std::holds_alternative<Local>(stmt),
                          "a statement for another target in {}", kernel_.name);
  }
}

// Reports the first lane that fails and leaves the function: nothing after it may run.
void Emitter::check(const Check& s) {
  Value* ok = natural(s.ok);
  Value* bad = b_.CreateNot(ok);
  const int width = width_of(bad);
  if (width > 1 && lanes()->active != nullptr) bad = b_.CreateAnd(bad, lanes()->active);
  llvm::BasicBlock* failed = block("failed");
  llvm::BasicBlock* passed = block("passed");
  llvm::MDNode* weights = llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1 << 20);
  b_.CreateCondBr(ops_.any_lane(bad), failed, passed, weights);
  b_.SetInsertPoint(failed);
  in_scope({.kind = ScopeKind::conditional}, [&](Scope&) {
    Value* index = natural(s.index);
    if (width_of(index) > 1) {
      Value* lane = b_.getInt64(0);
      if (width > 1) {
        Value* mask = b_.CreateBitCast(bad, b_.getIntNTy(static_cast<unsigned>(width)));
        mask = b_.CreateZExtOrTrunc(mask, b_.getInt64Ty());
        lane = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, mask, b_.getFalse());
      }
      index = b_.CreateExtractElement(index, lane);
    }
    const auto status = std::ranges::find(kernel_.params, ParamKind::status, &Param::kind);
    Value* at = word(static_cast<int>(status - kernel_.params.begin()), b_.getPtrTy());
    llvm::Type* wide = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), wide, wide, wide}, false);
    b_.CreateCall(module_.getOrInsertFunction(kCheckSymbol, type),
                  {at, function_->getArg(1), b_.getInt64(static_cast<uint64_t>(s.site)), index});
    b_.CreateRet(b_.getInt64(static_cast<uint64_t>(s.site) + 1));
  });
  b_.SetInsertPoint(passed);
}

}  // namespace cermet::codegen
