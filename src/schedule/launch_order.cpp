// SPDX-License-Identifier: MIT
#include "schedule/launch_order.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "runtime/poll.h"

namespace cermet {

namespace {

class Order {
 public:
  explicit Order(Program& program) : program_(program), readers_(program.values.size()) {
    const size_t count = program.launches.size();
    reads_.resize(count);
    gains_.resize(count);
    waiting_.resize(count);
    kept_.resize(program.values.size());
    for (const Program::Output& output : program.outputs) kept_[output.value] = true;
    std::vector<int> maker(program.values.size(), -1);
    for (size_t i = 0; i < count; i++) {
      for (int output : program.launches[i].outputs) maker[output] = static_cast<int>(i);
    }
    users_.resize(count);
    for (size_t i = 0; i < count; i++) add_reads(static_cast<int>(i), maker);
  }

  void run() {
    for (size_t i = 0; i < program_.launches.size(); i++) {
      if (waiting_[i] == 0) make_ready(static_cast<int>(i));
    }
    std::vector<Program::Launch> ordered;
    ordered.reserve(program_.launches.size());
    while (!ready_.empty()) {
      check_cancelled("eval");
      const int next = take();
      finish(next);
      ordered.push_back(std::move(program_.launches[next]));
    }
    CERMET_INTERNAL_CHECK(ordered.size() == program_.launches.size(),
                          "launches wait for each other");
    program_.launches = std::move(ordered);
  }

 private:
  // Launches that free at least what they allocate, greatest gain first; then all others in order.
  struct Entry {
    int64_t gain;  // -1: allocates more than it frees
    int launch;
    bool operator<(const Entry& other) const {
      return gain != other.gain ? gain > other.gain : launch < other.launch;
    }
  };

  void add_reads(int i, const std::vector<int>& maker) {
    std::vector<int>& reads = reads_[i];
    reads = values_used(program_.launches[i]);
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    std::erase_if(reads, [&](int v) { return maker[v] < 0 || maker[v] == i; });
    for (int value : reads) {
      users_[maker[static_cast<size_t>(value)]].push_back(i);
      readers_[value].push_back(i);
      waiting_[i]++;
    }
  }

  int64_t bytes(int value) const { return static_cast<int64_t>(program_.values[value].bytes); }

  int64_t gain_of(int i) const {
    int64_t gain = 0;
    for (int output : program_.launches[i].outputs) gain -= bytes(output);
    for (int value : reads_[i]) {
      if (readers_[value].size() == 1 && !kept_[value]) gain += bytes(value);
    }
    return std::max<int64_t>(gain, -1);
  }

  void make_ready(int i) {
    gains_[i] = gain_of(i);
    ready_.insert({gains_[i], i});
  }

  int take() {
    const int next = ready_.begin()->launch;
    ready_.erase(ready_.begin());
    return next;
  }

  // Its users may be ready now; who alone still reads a value frees it.
  void finish(int done) {
    waiting_[done] = -1;
    for (int value : reads_[done]) {
      std::vector<int>& readers = readers_[value];
      std::erase(readers, done);
      if (readers.size() == 1 && waiting_[readers[0]] == 0) {
        ready_.erase({gains_[readers[0]], readers[0]});
        make_ready(readers[0]);
      }
    }
    for (int user : users_[done]) {
      if (--waiting_[user] == 0) make_ready(user);
    }
  }

  Program& program_;
  std::vector<std::vector<int>> reads_;    // by launch: values made by others
  std::vector<std::vector<int>> users_;    // by launch: who waits for it, once for each value
  std::vector<std::vector<int>> readers_;  // by value: launches that have not run
  std::vector<int64_t> gains_;             // by launch, when it became ready
  std::vector<int> waiting_;               // by launch: values not made yet; -1: has run
  std::vector<bool> kept_;                 // by value: an output
  std::set<Entry> ready_;
};

}  // namespace

void order_launches(Program& program) { Order(program).run(); }

}  // namespace cermet
