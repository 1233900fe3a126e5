// SPDX-License-Identifier: MIT
// Lane loops that hold one serial loop of folds, each lane stepping along a stretch of Locals of its own
// (the blocks of a scan). A few elements of every lane's stretch are loaded at a time and transposed in
// registers, so that a step is a vector's; what is stored goes the same way back.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>

#include "codegen/llvm_emit.h"
#include "kernel/walk.h"

namespace cermet::codegen {

using namespace ir;

namespace {

constexpr int kPartBytes = 16;  // within which shuffles are cheap everywhere
constexpr int kMostSteps = 4;
constexpr int kLineSteps = 16;  // of four bytes are a line
constexpr int kIntoL2 = 2;      // locality of a prefetch
constexpr int64_t kSerialBlock = 256;

class ChainLoop {
 public:
  ChainLoop(Emitter& emitter, const For& loop, const LaneAnalysis& analysis)
      : e_(emitter),
        b_(emitter.builder()),
        ops_(emitter.ops()),
        kernel_(emitter.kernel()),
        loop_(loop),
        analysis_(analysis) {}

  bool fits() {
    const auto is_loop = [](const Stmt& stmt) { return std::holds_alternative<For>(stmt); };
    if (std::ranges::count_if(loop_.body, is_loop) != 1) return false;
    steps_ = &std::get<For>(*std::ranges::find_if(loop_.body, is_loop));
    if (steps_->kind != ForKind::serial || steps_->step != 1) return false;
    for (const Stmt& stmt : steps_->body)
      if (!look_at(stmt)) return false;
    if (folds_.empty()) return false;
    const auto count = constant(loop_.end), first = constant(loop_.begin);
    if (!count || !first) return false;
    width_ = static_cast<int>(std::clamp<int64_t>(*count - *first, 2 * group(), most_lanes()));
    if ((*count - *first) % width_ != 0 || !std::has_single_bit(static_cast<unsigned>(width_)))
      return false;
    const auto begin = constant(steps_->begin), most = e_.most_of(steps_->end);
    const auto last = constant(steps_->end);
    if (last && *last % kLineSteps == 0 && group() * group() == kLineSteps && has_lines())
      groups_ = kLineSteps / group();
    return begin == 0 && most && *most <= kSerialBlock && is_multiple(steps_->end);
  }

  void emit() {
    find_ahead();
    e_.loop(e_.natural(loop_.begin), e_.natural(loop_.end), width(), analysis_.writes(), {},
            [&](Value* lane, const Values&) -> Values {
              Lanes lanes{.analysis = &analysis_, .width = width(), .first = lane};
              e_.current()->lanes = &lanes;
              e_.bind_axis(loop_.axes[0], lane);
              lane_ = lane;
              for (const Stmt& stmt : loop_.body)
                std::holds_alternative<For>(stmt) ? steps() : e_.statements({&stmt, 1});
              return {};
            });
  }

 private:
  using Value = llvm::Value;

  // Elements of a Local, those of a lane `apart` from those of the next.
  struct Stretch {
    BufferRef buffer;
    const Index* index;
    int64_t apart;
    ExprId load = kNone;
  };

  // Steps that are transposed at a time: as many elements of the widest type as are in a part.
  int group() const { return std::min(kMostSteps, kPartBytes / bytes_); }
  int steps_at_a_time() const { return groups_ * group(); }
  // Of two vectors: the steps of one fill what the other's wait for.
  int most_lanes() const { return 2 * ops_.features().vector_bytes / bytes_; }
  // Whether a vector holds a line, so that what is stored goes a line at a time.
  bool has_lines() const {
    return ops_.features().vector_bytes == kLineSteps * bytes_ && width_ == kLineSteps;
  }
  int width() const { return width_; }

  // --- What the loops are.

  std::optional<int64_t> constant(ExprId id) const {
    const Expr& e = kernel_[e_.behind(id)];
    if (e.kind != ExprKind::constant) return std::nullopt;
    return static_cast<int64_t>(e.bits);
  }
  // Of the steps at a time.
  bool is_multiple(ExprId id) const {
    if (const auto c = constant(id)) return *c % group() == 0;
    const Expr& e = kernel_[e_.behind(id)];
    if (e.kind != ExprKind::op || (e.code != Code::mul && e.code != Code::min)) return false;
    const bool a = is_multiple(e.operands[0]), b = is_multiple(e.operands[1]);
    return e.code == Code::mul ? a || b : a && b;
  }
  bool is_made_here(ValueId value) const { return is_made_in(steps_->body, value); }
  static bool is_made_in(const std::vector<Stmt>& body, ValueId value) {
    return std::ranges::any_of(body, [&](const Stmt& stmt) {
      if (const Let* let = std::get_if<Let>(&stmt)) return let->value == value;
      const Fold* fold = std::get_if<Fold>(&stmt);
      return fold != nullptr && fold->value == value;
    });
  }
  // Of the steps' number in an expression that is linear in it.
  std::optional<int64_t> step_factor(ExprId id) const {
    id = e_.behind(id);
    const Expr& e = kernel_[id];
    if (e.kind == ExprKind::axis) return e.id == steps_->axes[0] ? 1 : 0;
    if (e.kind == ExprKind::ref || e.kind == ExprKind::load) {
      // Made in front of the loops, or not known.
      if (e.kind == ExprKind::ref && is_made_here(e.id)) return std::nullopt;
      if (analysis_.spread(id) != Spread::invariant || !stays(e)) return std::nullopt;
      return 0;
    }
    const bool adds = e.kind == ExprKind::op && (e.code == Code::add || e.code == Code::sub);
    int64_t factor = 0;
    bool known = true;
    for (size_t i = 0; i < e.operands.size(); ++i) {
      const auto part = e.operands[i] == kNone ? 0 : step_factor(e.operands[i]);
      known = known && part && (adds || *part == 0);
      if (known) factor += i == 1 && e.code == Code::sub ? -*part : *part;
    }
    if (!known) return std::nullopt;
    return factor;
  }
  // Whether what it is made of is the same at each step.
  bool stays(const Expr& e) const {
    bool same = true;
    for_each_operand(e, [&](ExprId id) { same = same && step_factor(id) == 0; });
    return same;
  }

  std::optional<Stretch> stretch(BufferRef buffer, const Index& index) const {
    int64_t apart = 0, along = 0;
    for (const IndexTerm& term : index) {
      const auto lanes = analysis_.coefficient(term.expr), steps = step_factor(term.expr);
      if (!lanes || !steps) return {};
      if (term.stride != kUnit && (*lanes != 0 || *steps != 0)) return {};
      apart += *lanes;
      along += *steps;
    }
    if (along != 1 || apart == 0) return {};
    return Stretch{buffer, &index, apart};
  }

  bool look_at(const Stmt& stmt) {
    const Store* store = std::get_if<Store>(&stmt);
    bool fits = true;
    std::set<ExprId> seen;
    // Steps and lanes count in the places of stretches only: their numbers are no values here.
    const std::function<void(ExprId)> look = [&](ExprId id) {
      if (!seen.insert(id).second) return;
      const Expr& e = kernel_[id];
      if (e.kind == ExprKind::load) {
        fits = fits && add_load(id);
      } else if (e.kind == ExprKind::axis) {
        fits = fits && e.id != steps_->axes[0] && e.id != loop_.axes[0];
      } else {
        const bool elsewhere = e.kind == ExprKind::ref && !is_made_here(e.id);
        fits = fits && (!elsewhere || is_made_in(loop_.body, e.id) ||
                        analysis_.spread(id) == Spread::invariant);
        for_each_operand(e, look);
      }
    };
    if (store != nullptr) look(store->value);
    else for_each_expr(stmt, look);
    if (const Fold* fold = std::get_if<Fold>(&stmt)) {
      for (const FoldState& state : fold->states) widen(state.dtype);
      folds_.push_back(fold);
      return fits && fold->order == Order::serial;
    }
    if (std::holds_alternative<Let>(stmt)) return fits;
    if (store == nullptr || store->mask != kNone) return false;
    const auto place = stretch(store->buffer, store->index);
    if (!place) return false;
    stores_.push_back(*place);
    widen(e_.dtype_of(store->buffer));
    const auto same = [&](const Stretch& load) { return load.buffer == store->buffer; };
    return fits && std::ranges::none_of(loads_, same);
  }

  bool add_load(ExprId id) {
    const Expr& e = kernel_[id];
    if (analysis_.spread(id) == Spread::invariant) return stays(e);
    const auto known = [&](const Stretch& load) { return load.load == id; };
    if (std::ranges::any_of(loads_, known)) return true;
    auto place = stretch(e.buffer, e.index);
    const auto stored = [&](const Stretch& store) { return store.buffer == e.buffer; };
    if (!place || e.operands[0] != kNone || std::ranges::any_of(stores_, stored)) return false;
    place->load = id;
    loads_.push_back(*place);
    widen(e.dtype);
    return true;
  }

  void widen(Dtype dtype) { bytes_ = std::max(bytes_, static_cast<int>(size_of(dtype))); }

  // --- Code.

  // The tile after this one, for the loop that reads it then.
  void find_ahead() {
    for (const Ahead& ahead : e_.ahead(loop_)) {
      const auto made = [&](const IndexTerm& term) { return e_.is_made(term.expr); };
      if (ahead.loads == nullptr || !std::ranges::all_of(*ahead.index, made)) continue;
      Value* begin = e_.natural(ahead.loads->begin);
      Value* end = e_.natural(ahead.loads->end);
      e_.in_scope({}, [&](Scope&) {
        e_.bind_axis(ahead.variable, begin);
        llvm::Type* type = e_.memory_type(ahead.buffer);
        ahead_.emplace_back(type, b_.CreateGEP(type, e_.address(ahead.buffer, *ahead.index),
                                               b_.CreateSub(end, begin)));
      });
    }
  }

  // Whether all results are large and whole lines, and so go past the cache; null: never.
  Value* goes_past() {
    const auto may = [&](const Stretch& store) {
      return !store.buffer.local && !e_.is_read(store.buffer) &&
             size_of(e_.dtype_of(store.buffer)) * kLineSteps == kLineBytes;
    };
    if (groups_ == 1 || !ops_.features().x86 || stores_.empty() ||
        !std::ranges::all_of(stores_, may))
      return nullptr;
    Value* elements = e_.elements_of(loop_);
    Value* past = nullptr;
    e_.in_scope({}, [&](Scope&) {
      e_.bind_axis(steps_->axes[0], word(0));
      for (const Stretch& store : stores_) {
        const auto bytes = static_cast<int64_t>(size_of(e_.dtype_of(store.buffer)));
        Value* first = b_.CreatePtrToInt(e_.address(store.buffer, *store.index), b_.getInt64Ty());
        Value* fits =
            b_.CreateAnd(b_.CreateICmpSGE(elements, word(kPastBytes / bytes)),
                         b_.CreateICmpEQ(b_.CreateAnd(first, word(kLineBytes - 1)), word(0)));
        past = past == nullptr ? fits : b_.CreateAnd(past, fits);
      }
    });
    return past;
  }

  // From where on each step fetches: in that tile, and where the lanes step when they are a tile further on.
  void find_next() {
    next_.clear();
    Value* before = b_.CreateMul(lane_, e_.natural(steps_->end));
    for (const auto& [type, pointer] : ahead_)
      next_.emplace_back(type, b_.CreateGEP(type, pointer, before));
    const int lanes = static_cast<int>(*constant(loop_.end));
    e_.in_scope({}, [&](Scope&) {
      e_.bind_axis(steps_->axes[0], word(0));
      for (const Stretch& load : loads_)
        if (!load.buffer.local)
          next_.emplace_back(e_.memory_type(load.buffer),
                             row(load, e_.address(load.buffer, *load.index), lanes));
    });
  }

  // As many elements as are stepped over.
  void fetch(Value* k) {
    const int elements = group() * width();
    for (const auto& [type, pointer] : next_) {
      const int line = static_cast<int>(kLineBytes / (type->getScalarSizeInBits() / 8));
      for (int i = 0; i < elements; i += line) {
        Value* at = b_.CreateAdd(b_.CreateMul(k, word(width())), word(i));
        b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                           {b_.CreateGEP(type, pointer, at), b_.getInt32(0), b_.getInt32(kIntoL2),
                            b_.getInt32(1)});
      }
    }
  }

  Value* word(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }

  void steps() {
    Values states;
    for (const Fold* fold : folds_)
      for (Value* init : e_.states(fold->states, Emitter::Part::init))
        states.push_back(ops_.splat(init, width()));
    find_next();
    Value* begin = e_.natural(steps_->begin);
    Value* end = e_.natural(steps_->end);
    const auto run = [&](Value* from, Value* to, bool past) {
      past_ = past;
      states = e_.loop(from, to, steps_at_a_time(), analysis_.writes(), states,
                       [&](Value* k, const Values& in) { return some_steps(k, in); });
    };
    if (Value* past = goes_past()) {
      Value* cut = b_.CreateSelect(past, end, begin);
      run(begin, cut, true);
      begin = cut;
    }
    run(begin, end, false);
    size_t at = 0;
    for (const Fold* fold : folds_) {
      const size_t n = fold->states.size();
      if (fold->emit == Emit::last) e_.define(fold->value, Values(&states[at], &states[at] + n));
      at += n;
    }
  }

  Values some_steps(Value* k, Values states) {
    e_.bind_axis(steps_->axes[0], k);
    std::vector<std::vector<Values>> stored(stores_.size());  // by group: by step
    for (int g = 0; g < groups_; ++g) {
      fetch(b_.CreateAdd(k, word(g * group())));
      std::vector<Values> loaded, made(stores_.size());
      for (const Stretch& load : loads_) loaded.push_back(columns(load, g * group()));
      for (int step = 0; step < group(); ++step)
        e_.in_scope({}, [&](Scope& scope) {
          e_.bind_axis(steps_->axes[0], b_.CreateAdd(k, word(g * group() + step)));
          for (size_t i = 0; i < loads_.size(); ++i)
            scope.natural[loads_[i].load] = loaded[i][step];
          one_step(states, made);
        });
      for (size_t i = 0; i < stores_.size(); ++i)
        stored[i].push_back(transposed(std::move(made[i])));
    }
    for (size_t i = 0; i < stores_.size(); ++i)
      groups_ > 1 ? store_lines(stores_[i], stored[i]) : store_parts(stores_[i], stored[i][0]);
    return states;
  }

  void one_step(Values& states, std::vector<Values>& stored) {
    size_t at = 0, store = 0;
    for (const Stmt& stmt : steps_->body) {
      if (const Store* s = std::get_if<Store>(&stmt)) {
        stored[store++].push_back(ops_.to_memory(e_.dtype_of(s->buffer), e_.vector(s->value)));
        continue;
      }
      const Fold* fold = std::get_if<Fold>(&stmt);
      if (fold == nullptr) {
        e_.statements({&stmt, 1});
        continue;
      }
      const size_t n = fold->states.size();
      Emitter::FoldRun& run = e_.fold_run(*fold);
      run = {.state = Values(&states[at], &states[at] + n)};
      e_.statements({&stmt, 1});
      std::ranges::copy(run.state, &states[at]);
      at += n;
    }
  }

  Value* row(const Stretch& s, Value* first, int lane, int step = 0) {
    return b_.CreateGEP(e_.memory_type(s.buffer), first, word(lane * s.apart + step));
  }
  llvm::Align align(const Stretch& s) const { return llvm::Align(size_of(e_.dtype_of(s.buffer))); }

  // By step, what the lanes load from this one on.
  Values columns(const Stretch& s, int step) {
    const int n = group();
    llvm::Type* part = with_width(e_.memory_type(s.buffer), n);
    Value* first = e_.address(s.buffer, *s.index);
    Values vectors;
    for (int i = 0; i < n; ++i) {
      Values parts;
      for (int lane = i; lane < width(); lane += n)
        parts.push_back(b_.CreateAlignedLoad(part, row(s, first, lane, step), align(s)));
      vectors.push_back(joined(std::move(parts)));
    }
    vectors = transposed(std::move(vectors));
    for (Value*& v : vectors) v = ops_.from_memory(kernel_[s.load].dtype, v);
    return vectors;
  }

  void store_parts(const Stretch& s, const Values& vectors) {
    const int n = group();
    Value* first = e_.address(s.buffer, *s.index);
    for (int i = 0; i < n; ++i)
      for (int lane = i; lane < width(); lane += n) {
        llvm::SmallVector<int, 8> lanes;
        for (int k = 0; k < n; ++k) lanes.push_back(lane - i + k);
        b_.CreateAlignedStore(b_.CreateShuffleVector(vectors[i], lanes), row(s, first, lane),
                              align(s));
      }
  }

  // The same parts of four vectors are one lane's steps: squares of parts, transposed.
  void store_lines(const Stretch& s, const std::vector<Values>& groups) {
    const int n = group();
    Value* first = e_.address(s.buffer, *s.index);
    const auto parts = [&](Value* a, Value* b, std::array<int, 4> from) {  // from: of both
      return shuffled(a, b, [&](int lane) { return from[lane / n] * n + lane % n; });
    };
    for (int i = 0; i < n; ++i)
      for (const int upper : {0, 2}) {
        const std::array<int, 4> half{upper, upper + 1, upper + 4, upper + 5};
        Value* low = parts(groups[0][i], groups[1][i], half);
        Value* high = parts(groups[2][i], groups[3][i], half);
        for (const int p : {0, 1})
          store_line(parts(low, high, {p, p + 2, p + 4, p + 6}), row(s, first, (upper + p) * n + i),
                     align(s));
      }
  }

  void store_line(Value* value, Value* pointer, llvm::Align align) {
    if (past_) e_.store_past(value, pointer);
    else b_.CreateAlignedStore(value, pointer, align);
  }

  // Vectors of one width, one behind the other.
  Value* joined(Values parts) {
    while (parts.size() > 1) {
      Values pairs;
      for (size_t i = 0; i < parts.size(); i += 2) {
        llvm::SmallVector<int, 16> lanes(2 * static_cast<size_t>(width_of(parts[i])));
        std::iota(lanes.begin(), lanes.end(), 0);
        pairs.push_back(b_.CreateShuffleVector(parts[i], parts[i + 1], lanes));
      }
      parts = std::move(pairs);
    }
    return parts[0];
  }

  Value* shuffled(Value* a, Value* b, const std::function<int(int)>& from) {
    llvm::SmallVector<int, 8> lanes;
    for (int lane = 0; lane < width(); ++lane) lanes.push_back(from(lane));
    return b_.CreateShuffleVector(a, b, lanes);
  }

  // The squares that lie in the parts of n vectors. Each round takes, of pairs of vectors, first the lower
  // halves' units in turn and then the upper ones': one unpack instruction. So what was a column ends at its
  // number's reversed bits.
  Values transposed(Values vectors) {
    const int n = group();
    for (int unit = 1; unit < n; unit *= 2) {
      Values rounds;
      for (const int upper : {0, n / 2})
        for (int q = 0; q < n; q += 2)
          rounds.push_back(shuffled(vectors[q], vectors[q + 1], [&](int lane) {
            const int i = lane % n, part = lane - i;
            return part + upper + i / (2 * unit) * unit + i % unit + i / unit % 2 * width();
          }));
      vectors = std::move(rounds);
    }
    if (n == 4) std::swap(vectors[1], vectors[2]);
    return vectors;
  }

  Emitter& e_;
  llvm::IRBuilder<>& b_;
  OpEmitter& ops_;
  const Kernel& kernel_;
  const For& loop_;
  const LaneAnalysis& analysis_;
  const For* steps_ = nullptr;
  std::vector<const Fold*> folds_;
  std::vector<Stretch> loads_, stores_;
  int bytes_ = 4;      // of the widest type
  int width_ = 0;      // lanes at a time
  int groups_ = 1;     // of steps, at a time
  bool past_ = false;  // the results of these steps go past the cache
  Value* lane_ = nullptr;
  std::vector<std::pair<llvm::Type*, Value*>> ahead_, next_;
};

}  // namespace

bool Emitter::chain_loop(const For& loop, const LaneAnalysis& analysis) {
  ChainLoop chains(*this, loop, analysis);
  if (!chains.fits()) return false;
  chains.emit();
  return true;
}

}  // namespace cermet::codegen
