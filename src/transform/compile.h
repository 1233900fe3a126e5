// SPDX-License-Identifier: MIT
// A traced graph made into programs, one for each set of sizes, and run on other data. What a call
// captures and when a trace serves again is the business of the language faces.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/symbols.h"

namespace cermet {

struct Program;

// An array without data that stands for an argument in a trace.
array placeholder(const Shape& shape, Dtype dtype);

class CompiledGraph {
 public:
  // outputs lead back to placeholders; ready arrays on the way are constants of the programs.
  // results: what the caller wants to know of the symbols in each call.
  CompiledGraph(std::shared_ptr<const Symbols> symbols, const Arrays& placeholders,
                const Arrays& outputs, std::vector<Number> results);

  // One call with these values of the symbols (in the order of Symbols::input).
  class Call;
  // False when the trace does not hold for it; else finds or makes the program.
  bool prepare(std::span<const array> inputs, std::span<const Number> symbols, Call& call) const;
  // The same when the program is there; nullopt when it must be made or another thread is at it.
  std::optional<bool> prepare_known(std::span<const Number> symbols, Call& call) const;
  // Why it does not hold, for the log. names: of the symbols.
  std::string broken_guard(std::span<const Number> symbols,
                           std::span<const std::string> names) const;
  // The outputs of a prepared call, lazily: evaluating one runs the program and makes all. Inputs that
  // nobody else can look at by then may be overwritten.
  Arrays run(Call& call, std::span<const array* const> inputs) const;

 private:
  struct Instance;
  class PendingRun;
  using InstancePtr = std::shared_ptr<const Instance>;
  InstancePtr make(std::span<const array> inputs, std::span<const Number> symbols,
                   bool fused = false) const;
  static bool is_outrun(const Instance& instance);
  bool is_for(const Instance& instance, std::span<const Number> symbols) const;
  uint64_t hash_of(std::span<const Number> symbols) const;  // of those that decide the program
  // Under the lock. The one for them, but none that is outrun; null: it must be made.
  InstancePtr known(std::span<const Number> symbols) const;
  InstancePtr find(std::span<const array> inputs, std::span<const Number> symbols) const;
  InstancePtr use(InstancePtr instance) const;
  void drop_oldest() const;  // the one that was not used for longest
  bool finish(const Instance& instance, std::span<const Number> symbols, Call& call) const;

  std::shared_ptr<const Symbols> symbols_;
  std::vector<NodeRef> placeholders_, outputs_;
  std::vector<Number> results_;
  std::vector<size_t> passed_;          // every output is one of the inputs: these; else empty
  std::vector<size_t> structural_;      // inputs of the symbols that decide which program runs
  std::vector<uint32_t> varying_;       // expressions that each call computes
  std::vector<Symbols::Guard> guards_;  // ... and guards that it checks
  mutable std::mutex lock_;
  mutable std::unordered_map<uint64_t, std::vector<InstancePtr>>
      instances_;                                         // by hash of structural values
  mutable size_t instance_count_ = 0, launch_count_ = 0;  // of those
  mutable InstancePtr last_;                              // that was used
  mutable uint64_t uses_ = 0;                             // turns from one to another
};

class CompiledGraph::Call {
 public:
  const std::vector<Number>& results() const { return results_; }

 private:
  friend class CompiledGraph;
  InstancePtr instance_;
  std::vector<Number> scalars_, results_;
};

}  // namespace cermet
