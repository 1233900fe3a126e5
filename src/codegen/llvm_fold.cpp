// SPDX-License-Identifier: MIT
// Folds: the pairwise tree over blocks, serial loops and Merge. (Lane loops: llvm_lane.cpp.)
// The tree is a binary counter: after k blocks, entry l of the stack holds a subtree of 2^l blocks for
// each bit l set in k. Block k merges with the entries of its trailing ones; the last block with those
// of all ones, from the lowest up, which is the tree whose odd last nodes pass up unchanged.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "codegen/llvm_emit.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int64_t kSerialBlock = 256;
constexpr uint64_t kTreeLevels = 44;  // blocks of 256 elements: more than an address space holds

constexpr size_t kRegisterBytes = 16;  // of the narrowest vector register

const std::set<int>& kNothing = *new std::set<int>;

// `count` lanes from `from` on; those past the vector's end are undefined.
llvm::Value* lanes_of(llvm::IRBuilder<>& b, llvm::Value* vector, int from, int count) {
  if (from == 0 && count == width_of(vector)) return vector;
  llvm::SmallVector<int, 32> numbers;
  for (int i = from; i < from + count; ++i) numbers.push_back(i < width_of(vector) ? i : -1);
  return b.CreateShuffleVector(vector, numbers);
}

}  // namespace

ExprId Emitter::behind(ExprId id) const {
  while (kernel_[id].kind == ExprKind::ref && lets_[kernel_[id].id] != kNone)
    id = lets_[kernel_[id].id];
  return id;
}

std::optional<int64_t> Emitter::most_of(ExprId id) const {
  const Expr& e = kernel_[behind(id)];
  if (e.kind == ExprKind::constant) return static_cast<int64_t>(e.bits);
  if (e.kind != ExprKind::op || e.code != Code::min) return std::nullopt;
  const auto a = most_of(e.operands[0]), b = most_of(e.operands[1]);
  return a && b ? std::min(*a, *b) : a ? a : b;
}

bool commutes(const Kernel& kernel, const Fold& fold) {
  const Expr& e = kernel[fold.states[0].merge];
  const auto is_state = [&](ExprId id) {
    return kernel[id].kind == ExprKind::state || kernel[id].kind == ExprKind::other;
  };
  const auto of_both = [&](const Expr& of, size_t first) {
    return is_state(of.operands[first]) && is_state(of.operands[first + 1]) &&
           of.operands[first] != of.operands[first + 1];
  };
  if (fold.emit != Emit::last || fold.states.size() != 1 || e.kind != ExprKind::op) return false;
  if (e.code == Code::select) {
    const Expr& choice = kernel[e.operands[0]];
    return choice.kind == ExprKind::op && choice.code == Code::lt && of_both(choice, 0) &&
           of_both(e, 1);
  }
  constexpr Code kCodes[] = {Code::add, Code::mul, Code::min, Code::max};
  return std::ranges::find(kCodes, e.code) != std::end(kCodes) && of_both(e, 0);
}

Values Emitter::states(const std::vector<FoldState>& list, Part part, const Values* state,
                       const Values* other) {
  Values values;
  const auto evaluate = [&] {
    for (const FoldState& s : list)
      values.push_back(natural(part == Part::init   ? s.init
                               : part == Part::step ? s.step
                                                    : s.merge));
  };
  if (part == Part::init) {
    evaluate();
    return values;
  }
  in_scope({.state = state, .other = other}, [&](Scope&) { evaluate(); });
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = ops_.splat(values[i], width_of((*state)[i]));
  return values;
}

// i1 has no layout of its own in memory that vectors share.
llvm::Type* Emitter::slot_type(llvm::Type* type) {
  if (!type->getScalarType()->isIntegerTy(1)) return type;
  return type->getWithNewType(b_.getInt8Ty());
}

Values Emitter::tree_stack(const Values& like) {
  Values stack;
  for (Value* value : like) stack.push_back(ops_.slot(slot_type(value->getType()), kTreeLevels));
  return stack;
}

namespace {

llvm::Type* element_of(llvm::Value* slot) {
  return llvm::cast<llvm::AllocaInst>(slot)->getAllocatedType()->getArrayElementType();
}

}  // namespace

Values Emitter::get(const Values& slots, Value* number, const Values& like) {
  Values values;
  for (size_t i = 0; i < slots.size(); ++i) {
    llvm::Type* type = element_of(slots[i]);
    Value* stored = b_.CreateLoad(type, b_.CreateGEP(type, slots[i], number));
    values.push_back(b_.CreateTruncOrBitCast(stored, like[i]->getType()));
  }
  return values;
}

void Emitter::put(const Values& slots, Value* number, const Values& values) {
  for (size_t i = 0; i < slots.size(); ++i) {
    llvm::Type* type = element_of(slots[i]);
    b_.CreateStore(b_.CreateZExtOrBitCast(values[i], type), b_.CreateGEP(type, slots[i], number));
  }
}

Values Emitter::tree_push(const std::vector<FoldState>& list, const Values& stack, Values value,
                          Value* number, Value* last) {
  Value* one = b_.getInt64(1);
  Value* trailing = b_.CreateAnd(number, b_.CreateNot(b_.CreateAdd(number, one)));
  Value* wanted = b_.CreateSelect(last, number, trailing);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* head = block("merge");
  llvm::BasicBlock* done = block("merged");
  b_.SetInsertPoint(head);
  llvm::PHINode* bits = b_.CreatePHI(b_.getInt64Ty(), 2);
  Values right, merged;
  for (Value* v : value) right.push_back(b_.CreatePHI(v->getType(), 2));
  llvm::BasicBlock* latch = nullptr;
  in_scope({.kind = ScopeKind::loop, .preheader = before, .writes = &kNothing}, [&](Scope& scope) {
    Value* level = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, bits, b_.getTrue());
    const Values left = get(stack, level, value);
    merged = states(list, Part::merge, &left, &right);
    Value* rest = b_.CreateAnd(bits, b_.CreateSub(bits, one));
    latch = b_.GetInsertBlock();
    b_.CreateCondBr(b_.CreateICmpNE(rest, b_.getInt64(0)), head, done);
    before = scope.preheader;
    bits->addIncoming(wanted, before);
    bits->addIncoming(rest, latch);
  });
  b_.SetInsertPoint(before);
  b_.CreateCondBr(b_.CreateICmpNE(wanted, b_.getInt64(0)), head, done);
  b_.SetInsertPoint(done);
  Values whole;
  for (size_t i = 0; i < value.size(); ++i) {
    llvm::cast<llvm::PHINode>(right[i])->addIncoming(value[i], before);
    llvm::cast<llvm::PHINode>(right[i])->addIncoming(merged[i], latch);
    llvm::PHINode* joined = b_.CreatePHI(value[i]->getType(), 2);
    joined->addIncoming(value[i], before);
    joined->addIncoming(merged[i], latch);
    whole.push_back(joined);
  }
  Value* level =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, b_.CreateNot(number), b_.getTrue());
  put(stack, level, whole);
  return whole;
}

Values Emitter::when(Value* condition, const Values& otherwise, const std::function<Values()>& f) {
  if (condition == nullptr) return f();
  llvm::BasicBlock* then = block("then");
  llvm::BasicBlock* join = block("join");
  b_.CreateCondBr(condition, then, join);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  b_.SetInsertPoint(then);
  Values made;
  in_scope({.kind = ScopeKind::conditional}, [&](Scope&) { made = f(); });
  llvm::BasicBlock* end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  Values joined;
  for (size_t i = 0; i < made.size(); ++i) {
    llvm::PHINode* phi = b_.CreatePHI(made[i]->getType(), 2);
    phi->addIncoming(otherwise[i], before);
    phi->addIncoming(made[i], end);
    joined.push_back(phi);
  }
  return joined;
}

Values Emitter::across_lanes(const std::vector<FoldState>& list, std::vector<Values> vectors) {
  const auto merge = [&](const Values& left, const Values& right) {
    return states(list, Part::merge, &left, &right);
  };
  for (size_t half = vectors.size() / 2; half > 0; half /= 2)
    for (size_t v = 0; v < half; ++v) vectors[v] = merge(vectors[v], vectors[v + half]);
  // Down to a whole register; there the lanes move, as narrower vectors are no instruction's.
  size_t smallest = kRegisterBytes;
  for (const FoldState& s : list) smallest = std::min(smallest, size_of(s.dtype));
  const int least = static_cast<int>(kRegisterBytes / smallest);
  Values value = vectors[0];
  for (int half = width_of(value[0]) / 2; half > 0; half /= 2) {
    Values left, right;
    for (Value* v : value) {
      left.push_back(half < least ? v : lanes_of(b_, v, 0, half));
      right.push_back(half < least ? lanes_of(b_, v, half, width_of(v))
                                   : lanes_of(b_, v, half, half));
    }
    value = merge(left, right);
  }
  for (Value*& v : value) v = width_of(v) > 1 ? b_.CreateExtractElement(v, uint64_t{0}) : v;
  return value;
}

void Emitter::fold_step(const Fold& fold) {
  FoldRun& run = folds_[&fold];
  for (size_t i = 0; i < run.slots.size(); ++i) {
    const Dtype dtype = fold.states[i].dtype;
    llvm::Type* type = with_width(ops_.memory_type(dtype), lanes()->width);
    run.state.resize(run.slots.size());
    run.state[i] = ops_.from_memory(dtype, b_.CreateLoad(type, run.slots[i]));
  }
  Values next = states(fold.states, Part::step, &run.state);
  const Lanes* l = lanes();
  if (l != nullptr && l->active != nullptr && !l->mended &&
      l->analysis->loop().axes[0] == fold.axes[0])
    for (size_t i = 0; i < next.size(); ++i)
      next[i] = b_.CreateSelect(l->active, next[i], run.state[i]);
  run.state = std::move(next);
  for (size_t i = 0; i < run.slots.size(); ++i)
    b_.CreateStore(ops_.to_memory(fold.states[i].dtype, run.state[i]), run.slots[i]);
  if (fold.emit == Emit::last) return;
  if (run.first == nullptr) {
    run.so_far = run.state;
    define(fold.value, run.state);
    return;
  }
  Values merged = states(fold.states, Part::merge, &run.carry, &run.state);
  for (size_t i = 0; i < merged.size(); ++i)
    merged[i] = b_.CreateSelect(run.first, run.state[i], merged[i]);
  run.so_far = merged;
  define(fold.value, std::move(merged));
}

// Blocks of 256 elements in an outer loop. What it carries: for each fold its result so far (of a scan
// the carry); the inner loop carries the states and of a scan the value at the last element.
void Emitter::serial_loop(const For& loop) {
  const std::set<int> writes = written_buffers(kernel_, loop.body);
  std::vector<const Fold*> folds;
  for (const Stmt& stmt : loop.body)
    if (const Fold* fold = std::get_if<Fold>(&stmt)) folds.push_back(fold);
  Value* begin = natural(loop.begin);
  Value* end = natural(loop.end);
  if (folds.empty()) {
    const auto round = [&](Value* i, const Values&) -> Values {
      bind_axis(loop.axes[0], i);
      statements(loop.body);
      return {};
    };
    this->loop(begin, end, loop.step, writes, {}, round, work_between_polls(loop));
    return;
  }
  if (folds[0]->order == Order::lanes) return apart(loop, folds, writes, begin, end);
  std::vector<Values> inits, stacks;
  Values results;
  for (const Fold* fold : folds) {
    CERMET_INTERNAL_CHECK(fold->order == Order::serial, "folds of both orders in a loop of {}",
                          kernel_.name);
    Values init = inits_of(*fold);
    stacks.push_back(fold->emit == Emit::last ? tree_stack(init) : Values());
    results.append(init.begin(), init.end());
    inits.push_back(std::move(init));
  }
  const int64_t stride = kSerialBlock * loop.step;
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  const std::optional<int64_t> most = most_of(loop.end);
  if (first != nullptr && most && *most - first->getSExtValue() <= stride) {
    results = one_block(loop, folds, results, writes, begin, end);
  } else {
    const auto block = [&](Value* i, const Values& carried) {
      return serial_block(loop, folds, inits, stacks, writes, i, begin, end, carried);
    };
    const int64_t work = lanes() != nullptr ? 0 : work_of(loop.body) * kSerialBlock;
    results = this->loop(begin, end, stride, writes, results, block, work);
  }
  size_t at = 0;
  for (const Fold* fold : folds) {
    const size_t n = fold->states.size();
    if (fold->emit == Emit::last) define(fold->value, Values(&results[at], &results[at] + n));
    at += n;
  }
}

// The initial states of a fold in a serial loop.
Values Emitter::inits_of(const Fold& fold) {
  Values init = states(fold.states, Part::init);
  const Lanes* l = lanes();
  const bool varying = l != nullptr && l->analysis->varies(fold.value);
  for (Value*& value : init) value = varying ? ops_.splat(value, l->width) : value;
  return init;
}

// Of no more elements than lanes each is stepped from the initial states; those that there are merge by
// halving, as the others are neutral.
void Emitter::apart(const For& loop, const std::vector<const Fold*>& folds,
                    const std::set<int>& writes, Value* begin, Value* end) {
  std::vector<Values> inits, slots;
  for (const Fold* fold : folds) {
    inits.push_back(inits_of(*fold));
    slots.emplace_back();
    for (Value* init : inits.back()) {
      const auto count = static_cast<uint64_t>(lane_order(fold->states).lanes);
      slots.back().push_back(ops_.slot(slot_type(init->getType()), count));
    }
    put(slots.back(), b_.getInt64(0), inits.back());  // of no elements
  }
  this->loop(begin, end, loop.step, writes, {}, [&](Value* k, const Values&) -> Values {
    for (size_t f = 0; f < folds.size(); ++f) folds_[folds[f]] = {.state = inits[f]};
    bind_axis(loop.axes[0], k);
    statements(loop.body);
    for (size_t f = 0; f < folds.size(); ++f)
      put(slots[f], b_.CreateSub(k, begin), folds_[folds[f]].state);
    return {};
  });
  Value* count = b_.CreateSub(end, begin);
  for (size_t f = 0; f < folds.size(); ++f) {
    merge_apart(*folds[f], slots[f], inits[f], count);
    define(folds[f]->value, get(slots[f], b_.getInt64(0), inits[f]));
  }
}

void Emitter::merge_apart(const Fold& fold, const Values& slots, const Values& like, Value* count) {
  const auto lanes = static_cast<uint64_t>(lane_order(fold.states).lanes);
  const auto levels = static_cast<uint64_t>(std::countr_zero(lanes));
  this->loop(
      b_.getInt64(0), b_.getInt64(levels), 1, kNothing, {}, [&](Value* level, const Values&) {
        Value* half = b_.CreateLShr(b_.getInt64(lanes / 2), level);
        Value* pairs =
            b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(count, half), half);
        this->loop(b_.getInt64(0), pairs, 1, kNothing, {}, [&](Value* l, const Values&) -> Values {
          const Values left = get(slots, l, like), right = get(slots, b_.CreateAdd(l, half), like);
          put(slots, l, states(fold.states, Part::merge, &left, &right));
          return {};
        });
        return Values();
      });
}

// A loop that is known to be one block at most: states are results.
Values Emitter::one_block(const For& loop, const std::vector<const Fold*>& folds,
                          const Values& inits, const std::set<int>& writes, Value* begin,
                          Value* end) {
  return this->loop(begin, end, loop.step, writes, inits, [&](Value* k, const Values& in) {
    size_t at = 0;
    for (const Fold* fold : folds) {
      folds_[fold] = {.state = Values(&in[at], &in[at] + fold->states.size())};
      at += fold->states.size();
    }
    bind_axis(loop.axes[0], k);
    statements(loop.body);
    Values out;
    for (const Fold* fold : folds) out.append(folds_[fold].state.begin(), folds_[fold].state.end());
    return out;
  });
}

Values Emitter::serial_block(const For& loop, const std::vector<const Fold*>& folds,
                             const std::vector<Values>& inits, const std::vector<Values>& stacks,
                             const std::set<int>& writes, Value* i, Value* begin, Value* end,
                             const Values& carried) {
  const int64_t stride = kSerialBlock * loop.step;
  Value* next = b_.CreateAdd(i, b_.getInt64(static_cast<uint64_t>(stride)));
  Value* last = b_.CreateICmpSGE(next, end);
  Value* stop = b_.CreateSelect(last, end, next);
  Value* first = b_.CreateICmpEQ(i, begin);
  Values start;
  for (const Values& init : inits) start.append(init.begin(), init.end());
  const size_t states_count = start.size();
  start.append(carried.begin(), carried.end());  // of scans: replaced at each element
  const Values reached =
      this->loop(i, stop, loop.step, writes, start, [&](Value* k, const Values& in) {
        size_t at = 0;
        for (const Fold* fold : folds) {
          const size_t n = fold->states.size();
          folds_[fold] = {.state = Values(&in[at], &in[at] + n),
                          .carry = Values(&carried[at], &carried[at] + n),
                          .so_far = Values(&in[states_count + at], &in[states_count + at] + n),
                          .first = first};
          at += n;
        }
        bind_axis(loop.axes[0], k);
        statements(loop.body);
        Values out, so_far;
        for (const Fold* fold : folds) {
          out.append(folds_[fold].state.begin(), folds_[fold].state.end());
          so_far.append(folds_[fold].so_far.begin(), folds_[fold].so_far.end());
        }
        out.append(so_far.begin(), so_far.end());
        return out;
      });
  Value* number =
      b_.CreateExactUDiv(b_.CreateSub(i, begin), b_.getInt64(static_cast<uint64_t>(stride)));
  Values results;
  size_t at = 0;
  for (size_t f = 0; f < folds.size(); ++f) {
    const size_t n = folds[f]->states.size();
    Values block(&reached[at], &reached[at] + n);
    if (folds[f]->emit == Emit::last) {
      block = tree_push(folds[f]->states, stacks[f], std::move(block), number, last);
    } else {
      block.assign(&reached[states_count + at], &reached[states_count + at] + n);
    }
    results.append(block.begin(), block.end());
    at += n;
  }
  return results;
}

void Emitter::merge(const Merge& s) {
  Values init = states(s.states, Part::init);
  const Lanes* l = lanes();
  if (l != nullptr && l->width > 1 && l->analysis->varies(s.value))
    for (Value*& value : init) value = ops_.splat(value, l->width);
  const Values stack = tree_stack(init);
  Value* count = natural(s.count);
  const Values result =
      loop(b_.getInt64(0), count, 1, kNothing, init, [&](Value* i, const Values&) {
        Values block;
        for (LocalId local : s.from) block.push_back(merge_source(local, s.at, s.stride, i));
        for (size_t k = 0; k < block.size(); ++k)
          block[k] = ops_.splat(block[k], width_of(init[k]));
        Value* last = b_.CreateICmpEQ(b_.CreateAdd(i, b_.getInt64(1)), count);
        return tree_push(s.states, stack, std::move(block), i, last);
      });
  define(s.value, result);
}

}  // namespace cermet::codegen
