// SPDX-License-Identifier: MIT
// compile: a function is traced once for each structure of its arguments and captured state, then runs as
// one program for each set of sizes. Arrays among the arguments and in reach of the function are inputs;
// places whose array or number the trace changed are outputs, too. Sizes and numbers are open: a trace
// serves again as long as its guards hold. Inside another trace the function is simply called.
#include "compile.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "capture.h"
#include "compile_key.h"
#include "compile_looked.h"
#include "compile_number.h"
#include "runtime/clock.h"
#include "runtime/counters.h"
#include "runtime/log.h"
#include "trace_lock.h"

namespace cermet::python {

namespace {

bool compile_disabled = false;
thread_local int tracing = 0;

struct TraceScope {
  TraceScope() { tracing++; }
  ~TraceScope() { tracing--; }
};

// Something that a call changes in captured state.
struct Change {
  enum class Kind : uint8_t {
    in_place,   // the array object of a slot is given a new value
    container,  // a place is given a new dict, list or tuple
    fresh,      // a place is given a new array object
    move,       // a place is given the array object of a slot
    number      // an open number is given a new value
  } kind;
  size_t place = 0, slot = 0,
         output = 0;  // number: place among the open numbers, output among the results
};

struct Entry {
  std::unique_ptr<CompiledGraph> graph;
  nb::object result;  // the function's result; its arrays are replaced in order
  std::vector<Change> changes;
  std::vector<nb::object> identified;  // keeps what the key names by address
  LookedValues::List looked;
  uint64_t used = 0;
};

// Points every captured array object at a placeholder, and open numbers at symbols; back at the end.
class Placeholders {
 public:
  // Whether the array is one of the running trace, in the object of a captured one.
  static bool holds(const array& a) {
    return placed != nullptr && a.node()->is_placeholder() &&
           std::ranges::any_of(placed->arrays,
                               [&](const array& p) { return p.node() == a.node(); });
  }

  Placeholders(const Captured& state, const CallInputs& given, const CallKey& key, Symbols& symbols)
      : state_(state), key_(key) {
    for (const array* a : given.arrays) arrays.push_back(open_placeholder(*a, symbols));
    for (size_t i = 0; i < state.holders.size(); i++)
      arrays.push_back(open_placeholder(state.value(i), symbols));
    for (const Number& n : given.numbers) numbers.push_back(symbols.input(n, false));
    for (size_t i : key.open_constants)
      state_numbers.push_back(symbols.input(*open_number(state.constants[i].object), false));
  }
  // traces: numbers of the running trace.
  void place() {
    for (size_t i = 0; i < state_.holders.size(); i++) {
      values.push_back(state_.value(i));
      content_of(state_.holders[i]) = arrays[arrays.size() - state_.holders.size() + i];
    }
    placed = this;
    open_traces = 1;
    for (size_t i = 0; i < key_.open_constants.size(); i++) {
      objects.push_back(traced_number_object(state_numbers[i]));
      constant(i).place.put(objects.back());
    }
  }
  ~Placeholders() { restore(); }
  void restore() {
    for (size_t i = 0; i < values.size(); i++) content_of(state_.holders[i]) = values[i];
    values.clear();
    if (placed != this) return;
    placed = nullptr;
    open_traces = 0;
  }
  const Captured::Constant& constant(size_t open) const {
    return state_.constants[key_.open_constants[open]];
  }

  Arrays arrays;  // of the arguments, then of the slots
  Arrays values;  // of the slots, before
  std::vector<Number> numbers, state_numbers;
  std::vector<nb::object> objects;  // at the places of open numbers

 private:
  static array open_placeholder(const array& a, Symbols& symbols) {
    Shape shape = a.shape();
    for (int axis = 0; axis < shape.ndim(); axis++) {
      Dim& dim = shape.dim(axis);
      if (dim.value > 1) dim.expr = symbols.input(number(dim.value), true).expr;
    }
    return placeholder(shape, a.dtype());
  }

  inline static const Placeholders* placed = nullptr;  // under the GIL

  const Captured& state_;
  const CallKey& key_;
};

// The function called on placeholders, and what it changed.
class Trace {
 public:
  Trace(const Captured& before, const CallInputs& given, const CallKey& key)
      : symbols(std::make_shared<Symbols>()),
        before_(before),
        given_(given.arrays.size()),
        placeholders_(before, given, key, *symbols),
        looked_(placeholders_.arrays, known_values(before, given)) {}

  template <typename F, typename Recapture>
  void run(F&& f, Recapture&& recapture, const Snapshot& snapshot) {
    const TraceScope scope;
    try {
      const TraceNumbers numbers(symbols);
      const KnownValues::Scope known(looked_);
      placeholders_.place();
      result = f(placeholders_);
      find_numbers();
      after = recapture();
    } catch (...) {
      placeholders_.restore();
      snapshot.restore();
      throw;
    }
    outputs = tree_arrays("compile", result);
    repeats = before_.structure == after.structure &&
              before_.places.size() == after.places.size() && after.numbers.empty();
    find_in_place();
    find_containers();
    find_replaced();
    for (const Place& place : after.numbers) place.put(plain_number(traced_number(place.get())));
    inputs = placeholders_.arrays;
    placeholders_.restore();
  }

  std::shared_ptr<Symbols> symbols;
  nb::object result;
  Arrays inputs, outputs;       // outputs: of the result, then of the changes
  std::vector<Number> results;  // numbers in the result, then new values of open numbers
  std::vector<Change> changes;
  Captured after;
  const LookedValues::List& looked() const { return looked_.looked(); }
  bool repeats = false;  // a call of the same structure does the same
  std::vector<std::pair<nb::object, size_t>>
      created;  // array objects new in the state, and their outputs

 private:
  static LookedValues::Values known_values(const Captured& before, const CallInputs& given) {
    LookedValues::Values values;
    for (size_t i = 0; i < given.arrays.size(); i++)
      values.push_back(given.may_look[i] ? given.arrays[i]->node() : NodeRef());
    for (size_t i = 0; i < before.holders.size(); i++) values.push_back(before.value(i).node());
    return values;
  }

  // Open numbers get plain values; those that matter to the trace do so in each call.
  void find_numbers() {
    tree_visit("compile", result, [&](nb::handle leaf) {
      if (is_traced_number(leaf)) results.push_back(traced_number_of(*symbols, leaf));
    });
    struct Stored {
      size_t open;
      Number number;
    };
    std::vector<Stored> stored;
    for (size_t i = 0; i < placeholders_.objects.size(); i++) {
      const Captured::Constant& c = placeholders_.constant(i);
      const nb::object now = c.place.get();
      if (!now.is_valid()) continue;
      if (now.is(placeholders_.objects[i])) {
        c.place.put(c.object);
      } else if (is_traced_number(now)) {
        stored.push_back({i, traced_number_of(*symbols, now)});
        c.place.put(plain_number(stored.back().number));
      } else if (const auto n = open_number(now)) {
        stored.push_back({i, *n});
      }
    }
    // A count of calls that nothing else depends on counts traces; all else is stored in each call.
    for (bool more = true; more;) {
      more = false;
      const std::vector<bool> used = symbols->used_inputs(results);
      for (size_t k = 0; k < stored.size(); k++) {
        if (!used[input_of(stored[k].open)] &&
            counts_alone(stored[k].number, input_of(stored[k].open)))
          continue;
        changes.push_back({Change::Kind::number, stored[k].open, 0, results.size()});
        results.push_back(stored[k].number);
        stored.erase(stored.begin() + static_cast<ptrdiff_t>(k--));
        more = true;
      }
    }
  }

  size_t input_of(size_t open) const {
    return symbols->exprs()[placeholders_.state_numbers[open].expr].a;
  }

  // The number depends on this input of the symbols and on no other.
  bool counts_alone(const Number& n, size_t input) const {
    const std::vector<bool> inputs = symbols->inputs_of({&n, 1});
    return inputs[input] && std::count(inputs.begin(), inputs.end(), true) == 1;
  }

  void find_in_place() {
    for (size_t i = 0; i < before_.holders.size(); i++) {
      const array& now = before_.value(i);
      if (now.node() == placeholders_.arrays[given_ + i].node()) continue;
      changes.push_back({Change::Kind::in_place, 0, i, outputs.size()});
      outputs.push_back(now);
    }
  }

  // Containers that the trace put where others lay: each call makes its own.
  void find_containers() {
    if (before_.containers.size() != after.containers.size()) repeats = false;
    if (!repeats) return;
    std::unordered_set<PyObject*> former;
    for (const Captured::Container& c : before_.containers) former.insert(c.object.ptr());
    for (size_t i = 0; i < after.containers.size(); i++) {
      const Captured::Container &was = before_.containers[i], &is = after.containers[i];
      const bool known_place = is_same(was.place, is.place);
      if (known_place && was.object.is(is.object)) continue;
      repeats &= known_place && !former.contains(is.object.ptr());
      stands_for_[is.object.ptr()] = was.object;
      changes.push_back({Change::Kind::container, i});
    }
  }

  // Containers that the trace made count as those before.
  bool is_same(const Place& before, const Place& after) const {
    const auto former = stands_for_.find(after.container.ptr());
    return before.same_as(
        former == stands_for_.end() ? after : Place{after.kind, former->second, after.key});
  }

  void find_replaced() {
    std::unordered_map<PyObject*, size_t> former;
    for (size_t i = 0; i < before_.holders.size(); i++) former[before_.holders[i].ptr()] = i;
    std::unordered_map<PyObject*, size_t> output_of;
    for (size_t p = 0; p < after.places.size(); p++) {
      const nb::object& holder = after.holders[after.places[p].slot];
      auto slot = former.find(holder.ptr());
      const bool known_place =
          p < before_.places.size() && is_same(before_.places[p].place, after.places[p].place);
      if (known_place && before_.holders[before_.places[p].slot].is(holder)) continue;
      repeats &= known_place;
      if (slot != former.end()) {
        changes.push_back({Change::Kind::move, p, slot->second, 0});
        continue;
      }
      auto [it, fresh] = output_of.try_emplace(holder.ptr(), outputs.size());
      if (fresh) {
        created.emplace_back(holder, outputs.size());
        outputs.push_back(nb::cast<array>(holder));
      }
      changes.push_back({Change::Kind::fresh, p, 0, it->second});
    }
  }

  const Captured& before_;
  size_t given_;
  Placeholders placeholders_;
  LookedValues looked_;
  std::unordered_map<PyObject*, nb::object> stands_for_;  // new container: the one before
};

class Compiled {
 public:
  Compiled(nb::object fun, nb::object inputs, nb::object outputs, vectorcallfunc call = nullptr)
      : call_(call),
        fun_(std::move(fun)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)) {}

  nb::object call(const Arguments& arguments) {
    if (compile_disabled || tracing > 0) return OwnArguments(arguments).call(fun_);
    {
      const CallInputs given(arguments);
      if (auto done = run_unchanged(given)) return std::move(*done);
    }
    return walk(arguments);
  }

  // The call with all state looked at.
  nb::object walk(const Arguments& arguments) {
    CallInputs given(arguments);
    given.keep();
    Captured state = capture_for(given);
    if (any_traced(given, state)) {
      // Another thread's trace, or a transform around this call.
      TraceLock lock;
      if (!lock.acquire()) return OwnArguments(arguments).call(fun_);
      state = capture_for(given);
      if (any_traced(given, state)) return OwnArguments(arguments).call(fun_);
    }
    if (auto done = run_known(given, state)) return *done;
    TraceLock lock;
    if (!lock.acquire()) return OwnArguments(arguments).call(fun_);
    state = capture_for(given);
    if (auto done = run_known(given, state)) return *done;
    return trace(OwnArguments(arguments));
  }

  // The lazy graph of a call; captured state is put back.
  Arrays plan(const OwnArguments& own) {
    TraceLock lock;
    lock.acquire();
    CallInputs given(own.arguments());
    given.keep();
    Snapshot snapshot;
    const Captured state = capture_for(given, true, &snapshot);
    const CallKey key(given, state, open_);
    Trace t(state, given, key);
    call_traced(t, own, given, snapshot);
    snapshot.restore();
    return t.outputs;
  }

  const nb::object& fun() const { return fun_; }
  int traverse(visitproc visit, void* arg) {
    Py_VISIT(fun_.ptr());
    Py_VISIT(inputs_.ptr());
    Py_VISIT(outputs_.ptr());
    int stopped = 0;
    open_.for_each_object([&](const nb::object& object) {
      stopped = stopped != 0 ? stopped : visit(object.ptr(), arg);
    });
    if (stopped != 0) return stopped;
    for (const auto& [key, entries] : entries_) {
      for (const EntryPtr& entry : entries) {
        Py_VISIT(entry->result.ptr());
        for (const nb::object& object : entry->identified) Py_VISIT(object.ptr());
      }
    }
    return 0;
  }
  void clear() {
    fun_.reset();
    inputs_.reset();
    outputs_.reset();
    open_.clear();
    entries_.clear();
  }

 private:
  using EntryPtr = std::shared_ptr<Entry>;

  static nb::handle random_state() {
    static PyObject* state =
        nb::module_::import_("cermet.core").attr("random").attr("state").inc_ref().ptr();
    return state;
  }

  Captured capture_for(const CallInputs& given) const {
    return capture_for(given, makes_containers_, nullptr);
  }
  Captured capture_for(const CallInputs& given, bool containers, Snapshot* snapshot) const {
    Captured state = capture({fun_, inputs_, outputs_, nb::borrow(random_state())}, given.objects,
                             containers, snapshot);
    CERMET_CHECK(!state.refused, value, "compile",
                 "an argument holds a {}, which cannot be hashed; arguments must be trees (dict, "
                 "list, tuple) "
                 "of arrays and hashable constants",
                 nb::type_name(state.refused_type).c_str());
    return state;
  }

  static bool is_traced(const array* a) { return a->node()->is_traced(); }

  static bool any_traced(const CallInputs& given, const Captured& state) {
    if (std::ranges::any_of(given.arrays, is_traced)) return true;
    for (size_t i = 0; i < state.holders.size(); i++)
      if (is_traced(&state.value(i))) return true;
    return false;
  }

  // A trace of this structure whose guards hold. What it changes is one step: where other threads ran
  // since the state was looked at, it is looked at again.
  std::optional<nb::object> run_known(const CallInputs& given, Captured& state) {
    for (;; state = capture_for(given)) {
      if (any_traced(given, state)) return std::nullopt;
      const uint64_t releases = gil_releases;
      const CallKey key(given, state, open_);
      Inputs inputs = given.arrays;
      for (size_t i = 0; i < state.holders.size(); i++) inputs.push_back(&state.value(i));
      Arrays results;
      CompiledGraph::Call call;
      const EntryPtr entry = run(key, inputs, call, results);
      if (!entry) return std::nullopt;
      if (!entry->changes.empty() && gil_releases != releases) continue;
      apply(*entry, results, call.results(), state, key);
      if (entry->changes.empty() && given.objects.empty()) keep_known(state, key);
      return fill(*entry, results, call.results());
    }
  }

  // The same, when nothing but the arguments and the values of captured arrays has changed.
  std::optional<nb::object> run_unchanged(const CallInputs& given) {
    if (!known_.valid || !given.objects.empty()) return std::nullopt;
    if (!known_.checks.hold()) return known_.valid = false, std::nullopt;
    const CallKey key(given, known_);
    Inputs inputs = given.arrays;
    for (PyObject* holder : known_.holders) inputs.push_back(nb::inst_ptr<array>(holder));
    if (std::ranges::any_of(inputs, is_traced)) return std::nullopt;
    Arrays results;
    CompiledGraph::Call call;
    const EntryPtr entry = run(key, inputs, call, results, false);
    if (!entry) return std::nullopt;
    return fill(*entry, results, call.results());
  }

  void keep_known(Captured& state, const CallKey& key) {
    known_.checks = std::move(state.checks);
    known_.valid = known_.checks.complete();
    known_.holders.clear();
    for (const nb::object& holder : state.holders) known_.holders.push_back(holder.ptr());
    known_.structure = state.structure;
    known_.constants = key.constants;
    known_.numbers.assign(key.symbols.end() - static_cast<ptrdiff_t>(key.open_constants.size()),
                          key.symbols.end());
  }

  // The first trace that holds for the call, and its lazy outputs; null, too, if it changes state where that
  // may not be.
  EntryPtr run(const CallKey& key, Inputs& inputs, CompiledGraph::Call& call, Arrays& results,
               bool may_change = true) {
    Arrays kept;
    auto it = entries_.find(key.key);
    if (it == entries_.end()) return nullptr;
    for (size_t i = 0; i < it->second.size(); i++) {
      EntryPtr entry = it->second[i];
      std::optional<bool> holds;
      if (are_evaluated(entry->looked, inputs))
        holds = are_the_same(entry->looked, inputs) ? entry->graph->prepare_known(key.symbols, call)
                                                    : std::optional(false);
      if (!holds) {
        kept.reserve(inputs.size());  // what they are now
        for (size_t k = kept.size(); k < inputs.size(); k++)
          inputs[k] = &kept.emplace_back(*inputs[k]);
        holds = without_gil([&] {
          return are_the_same(entry->looked, inputs) &&
                 entry->graph->prepare(kept, key.symbols, call);
        });
      }
      if (*holds) {
        if (!may_change && !entry->changes.empty()) return nullptr;
        count(Counter::program_hits);
        results = entry->graph->run(call, inputs);
        entry->used = ++calls_;
        return entry;
      }
      it = entries_.find(key.key);  // others may have traced meanwhile
      if (it == entries_.end()) return nullptr;
    }
    return nullptr;
  }

  void call_traced(Trace& t, const OwnArguments& own, const CallInputs& given,
                   const Snapshot& snapshot) {
    auto f = [&](const Placeholders& placeholders) {
      return OwnArguments(own, placeholders.arrays, placeholders.numbers).call(fun_);
    };
    t.run(f, [&] { return capture_for(given, true, nullptr); }, snapshot);
  }

  // Numbers that the code on the way stores are open from now on.
  void open_places(const Captured& state, const Snapshot& snapshot) {
    for (const Captured::Constant& c : state.constants)
      if (snapshot.stored.contains(c.key) && open_number(c.object)) open_.add_number(c);
    for (PyObject* list : snapshot.appended)
      if (PyList_Check(list) && !snapshot.read.contains(list)) open_.add_list(list);
  }

  // Constants of the key are as before; else the next call is another.
  bool same_constants(const CallInputs& given, const CallKey& before, const Captured& after) const {
    const CallKey now(given, after, open_);
    return now.constants == before.constants;
  }

  // In the order of the key's symbols.
  static std::vector<std::string> names_of_symbols(const CallInputs& given, const Captured& state,
                                                   const CallKey& key) {
    std::vector<std::string> names;
    const auto sizes = [&](const char* what, size_t i, const array& a) {
      for (int axis = 0; axis < a.ndim(); axis++)
        if (a.shape()[axis] > 1) names.push_back(fmt::format("{} {}.shape[{}]", what, i, axis));
    };
    for (size_t i = 0; i < given.arrays.size(); i++) sizes("argument array", i, *given.arrays[i]);
    for (size_t i = 0; i < state.holders.size(); i++) sizes("state array", i, state.value(i));
    for (size_t i = 0; i < given.numbers.size(); i++)
      names.push_back(fmt::format("argument number {}", i));
    for (size_t i : key.open_constants) names.push_back(fmt::format("state number {}", i));
    return names;
  }

  // For the log: why no earlier trace serves the call.
  std::string why_traced(const CallInputs& given, const Captured& state, const CallKey& key) const {
    if (entries_.empty()) return calls_ == 0 ? "first call" : "no trace is kept";
    const auto alike = entries_.find(key.key);
    if (alike == entries_.end())
      return "no trace of this structure (dtypes, numbers of axes, sizes of 0 and 1, containers, "
             "constants)";
    Inputs inputs = given.arrays;
    for (size_t i = 0; i < state.holders.size(); i++) inputs.push_back(&state.value(i));
    if (!are_the_same(alike->second[0]->looked, inputs))
      return "the value of an array that the function looks at was another";
    return "broken guard: " +
           alike->second[0]->graph->broken_guard(key.symbols, names_of_symbols(given, state, key));
  }

  void log_trace(const std::string& why, int64_t begin) const {
    nb::object name = nb::getattr(fun_, "__qualname__", nb::none());
    if (name.is_none()) name = nb::str(type_of(fun_).c_str());
    log_line(LogTopic::compile, "{} traced in {:.2f} ms: {}", nb::str(name).c_str(),
             static_cast<double>(now_ns() - begin) / 1e6, why);
  }

  nb::object trace(const OwnArguments& own) {
    count(Counter::traces);
    const int64_t begin = log_enabled(LogTopic::compile) ? now_ns() : 0;
    CallInputs given(own.arguments());
    given.keep();
    Snapshot snapshot;
    const Captured state = capture_for(given, true, &snapshot);
    open_places(state, snapshot);
    const CallKey key(given, state, open_);
    const std::string why = begin != 0 ? why_traced(given, state, key) : "";
    auto entry = std::make_shared<Entry>();
    Arrays inputs, results;
    CompiledGraph::Call call;
    Trace t(state, given, key);
    call_traced(t, own, given, snapshot);
    for (const array* a : given.arrays) inputs.push_back(*a);
    for (size_t i = 0; i < state.holders.size(); i++) inputs.push_back(state.value(i));
    Inputs pointers;
    for (const array& a : inputs) pointers.push_back(&a);
    try {
      const TraceLock::Making making;
      results = without_gil([&] {
        entry->graph = std::make_unique<CompiledGraph>(t.symbols, t.inputs, t.outputs, t.results);
        const bool holds = entry->graph->prepare(inputs, key.symbols, call);
        CERMET_INTERNAL_CHECK(holds, "a trace does not hold for the call that made it");
        return entry->graph->run(call, pointers);
      });
    } catch (...) {
      snapshot.restore();
      throw;
    }
    for (const Change& c : t.changes)
      if (c.kind == Change::Kind::in_place) content_of(state.holders[c.slot]) = results[c.output];
    for (auto& [holder, output] : t.created) content_of(holder) = results[output];
    if (begin != 0) log_trace(why, begin);
    entry->result = t.result;
    const nb::object value = fill(*entry, results, call.results());
    if (t.repeats && same_constants(given, key, t.after)) remember(key.key, entry, t, state);
    return value;
  }

  // The result's structure with this call's arrays.
  static nb::object fill(const Entry& entry, const Arrays& results,
                         const std::vector<Number>& numbers) {
    if (is_array(entry.result)) return nb::cast(results[0]);
    size_t next = 0, next_number = 0;
    return tree_map("compile", entry.result, [&](nb::handle leaf) {
      if (is_traced_number(leaf)) return plain_number(numbers[next_number++]);
      return is_array(leaf) ? nb::cast(results[next++]) : nb::borrow(leaf);
    });
  }

  void remember(const CaptureKey& key, const EntryPtr& entry, const Trace& t,
                const Captured& state) {
    // Traced arrays in the kept result would hold the whole graph.
    entry->result = tree_map("compile", entry->result, [](nb::handle leaf) {
      return is_array(leaf) ? nb::cast(placeholder(Shape{0}, Dtype::boolean)) : nb::borrow(leaf);
    });
    entry->identified = state.identified;
    entry->changes = t.changes;
    entry->looked = t.looked();
    if (!entry->looked.empty()) forget_looked(key);
    makes_containers_ |= std::ranges::any_of(
        t.changes, [](const Change& c) { return c.kind == Change::Kind::container; });
    entry->used = ++calls_;
    forget_some();
    entries_[key].insert(entries_[key].begin(), entry);
    entry_count_++;
  }

  // Of traces that go by values, which may be others in each call, a few are kept.
  void forget_looked(const CaptureKey& key) {
    constexpr size_t kMostLooked = 8;
    const auto group = entries_.find(key);
    if (group == entries_.end()) return;
    std::vector<EntryPtr>& alike = group->second;
    const auto looks = [](const EntryPtr& entry) { return !entry->looked.empty(); };
    if (static_cast<size_t>(std::ranges::count_if(alike, looks)) < kMostLooked) return;
    alike.erase(std::find_if(alike.rbegin(), alike.rend(), looks).base() - 1);
    entry_count_--;
  }

  // Room for one more: the trace used longest ago goes.
  void forget_some() {
    constexpr size_t kMaxEntries = 256;
    if (entry_count_ < kMaxEntries) return;
    const auto oldest = [](const auto& group) { return group.second.back()->used; };
    auto group =
        std::min_element(entries_.begin(), entries_.end(),
                         [&](const auto& a, const auto& b) { return oldest(a) < oldest(b); });
    group->second.pop_back();
    entry_count_--;
    if (group->second.empty()) entries_.erase(group);
  }

  static void apply(const Entry& entry, const Arrays& results, const std::vector<Number>& numbers,
                    const Captured& state, const CallKey& key) {
    std::unordered_map<size_t, nb::object> created;
    std::unordered_map<PyObject*, nb::object> copies;  // of containers
    const auto put = [&](Place place, nb::handle object) {
      const auto copy = copies.find(place.container.ptr());
      if (copy != copies.end()) place.container = copy->second;
      place.put(object);
    };
    for (const Change& c : entry.changes) {
      if (c.kind == Change::Kind::in_place) {
        content_of(state.holders[c.slot]) = results[c.output];
      } else if (c.kind == Change::Kind::number) {
        state.constants[key.open_constants[c.place]].place.put(plain_number(numbers[c.output]));
      } else if (c.kind == Change::Kind::container) {
        const Captured::Container& former = state.containers[c.place];
        nb::object& copy = copies[former.object.ptr()];
        if (!copy.is_valid()) copy = copy_of(former.object);
        put(former.place, copy);
      } else if (c.kind == Change::Kind::move) {
        put(state.places[c.place].place, state.holders[c.slot]);
      } else {
        nb::object& object = created[c.output];
        if (!object.is_valid()) object = nb::cast(results[c.output]);
        put(state.places[c.place].place, object);
      }
    }
  }

  vectorcallfunc call_;  // first: the interpreter looks for it there
  nb::object fun_, inputs_, outputs_;
  OpenPlaces open_;
  KnownState known_;
  std::unordered_map<CaptureKey, std::vector<EntryPtr>, CaptureKeyHash> entries_;  // latest first
  size_t entry_count_ = 0;
  bool makes_containers_ = false;  // some trace does
  uint64_t calls_ = 0;
};

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Compiled>(self)->traverse(visit, arg) : 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  nb::inst_ptr<Compiled>(self)->clear();
  return 0;
}

PyObject* call(PyObject* self, PyObject* const* values, size_t count, PyObject* names) {
  try {
    const Arguments arguments{values, static_cast<size_t>(PyVectorcall_NARGS(count)), names};
    return nb::inst_ptr<Compiled>(self)->call(arguments).release().ptr();
  } catch (...) {
    set_python_error(std::current_exception());
    return nullptr;
  }
}

PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {0, nullptr}};

// State is in containers, or in an object's attributes: not in a constant, nor in code.
void check_state(const char* what, nb::handle state) {
  PyObject* p = state.ptr();
  const bool is_code =
      PyFunction_Check(p) || PyCFunction_Check(p) || PyType_Check(p) || PyModule_Check(p);
  const bool is_constant = is_scalar(state) || PyUnicode_Check(p) || PyBytes_Check(p);
  CERMET_CHECK(!is_code && !is_constant, type, "compile",
               "{} is {}; it must be a list, tuple or dict of the arrays that the function {}",
               what, described(state), *what == 'i' ? "reads" : "changes");
}

nb::object make_compiled(nb::object fun, nb::object inputs, nb::object outputs) {
  CERMET_CHECK(PyCallable_Check(fun.ptr()), type, "compile", "{} was given; it must be callable",
               type_of(fun));
  check_state("inputs", inputs);
  check_state("outputs", outputs);
  const nb::handle type = nb::type<Compiled>();
  nb::object compiled = nb::inst_alloc(type);
  auto* object = new (nb::inst_ptr<void>(compiled)) Compiled(fun, inputs, outputs, call);
  nb::inst_mark_ready(compiled);
  // The interpreter finds it at the same place in every instance.
  auto* python_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  python_type->tp_vectorcall_offset =
      reinterpret_cast<char*>(object) - reinterpret_cast<char*>(compiled.ptr());
  python_type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  for (const char* name : {"__name__", "__qualname__", "__doc__", "__module__"}) {
    if (nb::hasattr(fun, name)) compiled.attr(name) = fun.attr(name);
  }
  return compiled;
}

}  // namespace

Arrays outputs_without_running(nb::object fun, nb::args args, nb::kwargs kwargs) {
  const OwnArguments own(args, kwargs);
  if (nb::isinstance<Compiled>(fun)) return nb::cast<Compiled&>(fun).plan(own);
  return Compiled(fun, nb::none(), nb::none()).plan(own);
}

void await_trace() {
  TraceLock lock;
  if (tracing == 0) lock.acquire();
}

void await_own(const array& a) {
  while (tracing == 0 && Placeholders::holds(a)) {
    TraceLock lock;
    if (!lock.acquire()) return;
  }
}

void init_compile(nb::module_& m) {
  compile_disabled = env::is_set("CERMET_DISABLE_COMPILE");
  nb::class_<Compiled>(m, "_Compiled", nb::type_slots(slots), nb::dynamic_attr())
      .def(
          "__get__",
          [](nb::object self, nb::object instance, nb::handle) {
            if (instance.is_none()) return self;
            return nb::object(nb::module_::import_("types").attr("MethodType")(self, instance));
          },
          nb::arg("instance").none(), nb::arg("owner").none() = nb::none())
      .def_prop_ro("__wrapped__", [](const Compiled& c) { return c.fun(); });
  m.def(
      "compile",
      [](nb::object fun, nb::object inputs, nb::object outputs, bool) {
        return make_compiled(fun, inputs, outputs);
      },
      nb::arg("fun"), nb::arg("inputs") = nb::none(), nb::arg("outputs") = nb::none(),
      nb::arg("shapeless") = false,
      "A function that traces fun once for each structure of arguments and then runs it as one "
      "program.");
  m.def(
      "disable_compile", [] { compile_disabled = true; }, "compile()d functions run as they are.");
  m.def("enable_compile", [] { compile_disabled = false; });
}

}  // namespace cermet::python
