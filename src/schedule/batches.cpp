// SPDX-License-Identifier: MIT
#include "schedule/batches.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "runtime/poll.h"

namespace cermet {

namespace {

constexpr int64_t kSlackBytes = 256 << 10;  // by which batches may raise the peak
constexpr int64_t kTinyBytes = 1 << 10;     // values that do not matter for the peak
constexpr int64_t kSmallBytes = 32 << 10;   // values read anew sooner than a kernel is launched
constexpr int64_t kCacheBytes = 2 << 20;    // traffic after which a value has left the cache
constexpr int64_t kMaxScratch = 1 << 20;    // of a batch
constexpr size_t kMaxOpen = 16;             // batches of one kernel that may still grow
constexpr size_t kMaxMoved = 128;           // members of a batch that moves
constexpr int kMostRefused = 2;  // times that memory does not allow a move, then none is tried

// Bytes alive at each time, and the most of all: sums over ranges, in a tree.
class Profile {
 public:
  explicit Profile(size_t times) {
    while (leaves_ < times) leaves_ *= 2;
    added_.resize(2 * leaves_);
    most_.resize(2 * leaves_);
  }
  void add(int first, int last, int64_t bytes) {
    if (first <= last) add(1, 0, static_cast<int>(leaves_) - 1, first, last, bytes);
  }
  int64_t most() const { return most_[1]; }

 private:
  void add(size_t node, int begin, int end, int first, int last, int64_t bytes) {
    if (last < begin || end < first) return;
    if (first <= begin && end <= last) {
      added_[node] += bytes;
      most_[node] += bytes;
      return;
    }
    const int middle = (begin + end) / 2;
    add(2 * node, begin, middle, first, last, bytes);
    add(2 * node + 1, middle + 1, end, first, last, bytes);
    most_[node] = added_[node] + std::max(most_[2 * node], most_[2 * node + 1]);
  }

  size_t leaves_ = 1;
  std::vector<int64_t> added_, most_;
};

class Batcher {
 public:
  explicit Batcher(Program& program) : program_(program), batch_of_(count(), -1), time_(count()) {
    std::iota(time_.begin(), time_.end(), 0);
    traffic_.push_back(0);
    for (const Program::Launch& launch : program.launches)
      traffic_.push_back(traffic_.back() + launch.bytes_read + launch.bytes_written);
    find_uses();
  }

  void run() {
    for (int i = 0; i < static_cast<int>(count()); i++) {
      if (same_[program_.launches[i].code.get()] > 1) place(i);
    }
    write_order();
  }

 private:
  struct Value {
    int maker = -1;            // launch
    std::vector<int> readers;  // launches, without its maker
    bool kept = false;         // an output of the program
    bool input = false;
    int taken_by = -1;  // launch with an output in its place, if that reads it last
  };
  struct Batch {
    int time;
    std::vector<int> members;
    int64_t scratch;  // of all members
  };
  // Whether the program is given the memory of its inputs.
  enum Given : uint8_t { inputs_kept, inputs_given };

  size_t count() const { return program_.launches.size(); }
  int64_t bytes(int value) const { return static_cast<int64_t>(program_.values[value].bytes); }

  void find_uses() {
    values_.resize(program_.values.size());
    reads_.resize(count());
    for (size_t i = 0; i < count(); i++) {
      const Program::Launch& launch = program_.launches[i];
      same_[launch.code.get()]++;
      for (int output : launch.outputs) values_[output].maker = static_cast<int>(i);
      std::vector<int>& reads = reads_[i];
      reads = values_used(launch);
      std::ranges::sort(reads);
      reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      std::erase_if(reads, [&](int v) { return values_[v].maker == static_cast<int>(i); });
      for (int v : reads) values_[v].readers.push_back(static_cast<int>(i));
    }
    for (const Program::Output& output : program_.outputs) values_[output.value].kept = true;
    int64_t all = 0;
    for (size_t v = 0; v < values_.size(); v++) {
      values_[v].input = program_.values[v].input >= 0;
      if (values_[v].maker >= 0) all += bytes(static_cast<int>(v));
    }
    if (all > kSlackBytes) make_profiles();
  }

  void make_profiles() {
    for (size_t i = 0; i < count(); i++) find_take_overs(static_cast<int>(i));
    profiles_.assign(2, Profile(count()));
    for (int v = 0; v < static_cast<int>(values_.size()); v++) add_to_profiles(v, 1);
    for (const Profile& profile : profiles_) most_.push_back(profile.most() + kSlackBytes);
  }

  // Roughly what `find_lifetimes` will find.
  void find_take_overs(int i) {
    const Program::Launch& launch = program_.launches[i];
    const int target = launch.kernel.update_target;
    if (target < 0 && !only_stores(*launch.kernel.ir)) return;
    for (int output : launch.outputs) {
      const auto taken = std::ranges::find_if(reads_[i], [&](int v) {
        return (target < 0 || v == target) && may_take_over(i, output, v);
      });
      if (taken != reads_[i].end()) values_[*taken].taken_by = i;
    }
  }

  static bool only_stores(const ir::Kernel& kernel) {
    return std::ranges::all_of(kernel.body, [](const ir::Stmt& stage) {
      return std::ranges::all_of(std::get<ir::For>(stage).body, [](const ir::Stmt& stmt) {
        return std::holds_alternative<ir::Store>(stmt);
      });
    });
  }

  bool may_take_over(int launch, int output, int v) const {
    const Program::Value &in = program_.values[v], &out = program_.values[output];
    const Value& value = values_[v];
    return value.readers.back() == launch && !value.kept && value.taken_by < 0 &&
           (value.input || value.maker >= 0) && in.bytes == out.bytes &&
           size_of(in.dtype) == size_of(out.dtype);
  }

  // From when to when the value lies in memory; nowhere: {0, -1}.
  std::pair<int, int> life(int v, Given given) const {
    const Value& value = values_[v];
    if (value.maker < 0 && (given == inputs_kept || !value.input)) return {0, -1};
    const int birth = value.maker < 0 ? 0 : time_[value.maker];
    if (value.kept) return {birth, static_cast<int>(count()) - 1};
    int death = birth, last_readers = 0;
    for (int reader : value.readers) {
      if (time_[reader] > death) last_readers = 0;
      death = std::max(death, time_[reader]);
      last_readers += time_[reader] == death ? 1 : 0;
    }
    const bool taken = value.taken_by >= 0 && time_[value.taken_by] == death && last_readers == 1;
    return {birth, death - (taken ? 1 : 0)};
  }

  void add_to_profiles(int v, int sign) {
    if (profiles_.empty() || bytes(v) < kTinyBytes) return;
    for (const Given given : {inputs_kept, inputs_given}) {
      const auto [birth, death] = life(v, given);
      profiles_[given].add(birth, death, sign * bytes(v));
    }
  }

  // Bytes that a launch takes for itself.
  int64_t scratch_of(int i) const {
    const Program::Launch& launch = program_.launches[i];
    int64_t scratch = 0;
    for (const ir::Local& local : launch.code->code->object.kernel_locals) {
      int64_t elements = local.size.constant;
      for (const ir::SizeTerm& term : local.size.terms) {
        const int64_t extent = launch.kernel.extents[term.axis];
        elements *= (extent + term.tile - 1) / term.tile;
      }
      scratch += elements * static_cast<int64_t>(size_of(local.dtype));
    }
    return scratch;
  }

  // Into the first batch of its kernel that it fits.
  void place(int i) {
    check_cancelled("eval");
    std::vector<int>& open = open_[program_.launches[i].code.get()];
    const int64_t scratch = scratch_of(i);
    refused_ = 0;
    for (int number : open) {
      if (batches_[number].scratch + scratch > kMaxScratch) continue;
      if (join(i, number)) {
        batches_[number].scratch += scratch;
        return;
      }
      if (refused_ >= kMostRefused) break;
    }
    if (open.size() == kMaxOpen) open.erase(open.begin());
    open.push_back(static_cast<int>(batches_.size()));
    batch_of_[i] = open.back();
    batches_.push_back({time_[i], {i}, scratch});
  }

  bool join(int i, int number) {
    Batch& batch = batches_[number];
    for (int v : reads_[i])
      if (values_[v].maker >= 0 && batch_of_[values_[v].maker] == number) return false;
    if (may_run_at(i, batch.time) && move({&i, 1}, batch.time)) {
      batch_of_[i] = number;
      batch.members.push_back(i);
      return true;
    }
    const int time = time_[i];
    if (batch.members.size() > kMaxMoved) return false;
    const auto may_move = [&](int member) { return may_run_at(member, time); };
    if (!std::ranges::all_of(batch.members, may_move) || !move(batch.members, time)) return false;
    batch_of_[i] = number;
    batch.time = time;
    batch.members.push_back(i);
    return true;
  }

  // After those whose values it reads, before those that read its values, and not far from them.
  bool may_run_at(int i, int time) const {
    for (int v : reads_[i]) {
      const int maker = values_[v].maker;
      if (maker < 0) continue;
      if (time_[maker] >= time) return false;
      if (leaves_cache(v, traffic(time_[maker], time_[i]), traffic(time_[maker], time)))
        return false;
    }
    for (int v : program_.launches[i].outputs) {
      for (int reader : values_[v].readers) {
        if (time_[reader] <= time) return false;
        if (leaves_cache(v, traffic(time_[i], time_[reader]), traffic(time, time_[reader])))
          return false;
      }
    }
    return true;
  }

  // A value that was read soon after it was made would be no more.
  bool leaves_cache(int v, int64_t between, int64_t between_then) const {
    return bytes(v) > kSmallBytes && between <= kCacheBytes && between_then > kCacheBytes;
  }
  int64_t traffic(int from, int to) const { return traffic_[to] - traffic_[from + 1]; }

  // False: it would raise the peak.
  bool move(std::span<const int> launches, int time) {
    std::vector<int> values;
    std::vector<int> before;
    for (int i : launches) {
      values.insert(values.end(), reads_[i].begin(), reads_[i].end());
      const std::vector<int>& outputs = program_.launches[i].outputs;
      values.insert(values.end(), outputs.begin(), outputs.end());
      before.push_back(time_[i]);
    }
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const auto set_times = [&](auto time_of) {
      for (int v : values) add_to_profiles(v, -1);
      for (size_t k = 0; k < launches.size(); k++) time_[launches[k]] = time_of(k);
      for (int v : values) add_to_profiles(v, 1);
    };
    set_times([&](size_t) { return time; });
    for (size_t p = 0; p < profiles_.size(); p++) {
      if (profiles_[p].most() <= most_[p]) continue;
      set_times([&](size_t k) { return before[k]; });
      refused_++;
      return false;
    }
    return true;
  }

  void write_order() {
    std::vector<int> order(count());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int i) { return time_[i]; });
    std::vector<Program::Launch> launches;
    launches.reserve(count());
    for (int i : order) {
      Program::Launch& launch = program_.launches[i];
      if (batch_of_[i] >= 0) {
        std::vector<int>& members = batches_[batch_of_[i]].members;
        launch.batch = static_cast<int>(std::exchange(members, {}).size());
      }
      launches.push_back(std::move(launch));
    }
    program_.launches = std::move(launches);
  }

  Program& program_;
  std::vector<Value> values_;
  std::vector<std::vector<int>> reads_;                // by launch: values, but those that it makes
  std::unordered_map<const KernelHandle*, int> same_;  // launches of a kernel
  std::unordered_map<const KernelHandle*, std::vector<int>> open_;  // batches of a kernel
  std::vector<Batch> batches_;
  std::vector<int> batch_of_;      // by launch
  std::vector<int> time_;          // by launch: the place in the given order where it runs
  std::vector<int64_t> traffic_;   // bytes that the launches before a place move
  std::vector<Profile> profiles_;  // by Given; none: memory does not matter
  std::vector<int64_t> most_;      // by Given
  int refused_ = 0;                // moves of the launch that would have raised the peak
};

}  // namespace

void make_batches(Program& program) {
  if (program.launches.size() > 1) Batcher(program).run();
}

}  // namespace cermet
