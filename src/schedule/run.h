// SPDX-License-Identifier: MIT
// One run of a program. What cuts it short and is not of its own doing (Ctrl-C, memory that is not to be
// had) costs nothing: a kernel that writes where it reads is run to its end, so the run stands between
// two launches. Until it has lost an input that it was given (overwritten it, or let go of its memory),
// all can be taken back, and nothing has happened. From then on the run itself is to be kept: called
// again, it goes on where it stands. So of a training step there is either nothing or, when it is next
// asked for, the whole.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "runtime/kernel_cache.h"
#include "schedule/program.h"

namespace cermet {

struct ProgramInput {
  BufferRef buffer;
  int64_t offset = 0;    // of its layout, in elements
  bool donated = false;  // nobody else will look at it: its memory may be reused
};

using ProgramInputs = InlineVector<ProgramInput, 4>;

struct ProgramResult {
  BufferRef buffer;
  Layout layout;
};

class ProgramRun {
 public:
  // Inputs match the plan in dtype, shape and strides; the donated ones are given to the run. The program
  // and the scalars must outlive it.
  ProgramRun(const Program& program, ProgramInputs inputs, std::span<const Number> scalars);
  // Lines that errors name, by the positions of members; without them, those of the program.
  void set_origins(std::vector<Origin> origins) { origins_ = std::move(origins); }

  // To the end, on the calling thread and the pool.
  void run();
  // After an error: what is not made of what failed.
  void run_others();
  bool is_made(size_t number) const {
    return memory_[program_->outputs[number].value].buffer != nullptr;
  }
  // The data of an output, afterwards.
  ProgramResult result(size_t number) const;

  bool has_lost_input() const { return lost_; }
  // False: an error left a kernel that writes where it reads halfway.
  bool can_go_on() const { return !broken_; }
  // The memory of each input that was given and is not lost, as it was; null for the others. It ends the run.
  std::vector<BufferRef> take_back();

 private:
  struct Memory {
    BufferRef buffer;
    int64_t offset = 0;  // of its layout, in elements
    bool owned = false;  // made here, or donated: may be overwritten when it dies
    bool given = false;  // donated
    bool spent = false;  // given, and overwritten
  };

  using Step = Steps::Step;

  void leave(std::span<const Step> batch);
  bool has_all(std::span<const Step> batch) const;
  void drop(int value);
  void drop_overwritten(const Step& step);
  void run_batch(std::span<const Step> batch);
  void launch_batch(std::span<const Step> batch, bool& started);
  void add_member(const Step& step);
  void overwrite(int value, int output);
  bool is_better_copied(const Memory& target) const;
  void prepare_output(const Step& step, const Steps::Output& output);
  void copy_target(const Step& step, const Steps::Output& output);
  std::span<const Program::Launch> launches_of(std::span<const Step> batch) const;
  Buffer* lasting(int value) const;
  KernelPtr kept_kernel(const Step& step) const;
  void offer_kept(std::span<const Step> batch, const KernelHandle& kernel);

  const Program* program_;
  ProgramInputs inputs_;  // those that no launch uses keep their memory
  std::span<const Number> scalars_;
  std::vector<Origin> origins_;
  InlineVector<Memory, 6> memory_;  // by value
  Launch call_;                     // of the batch at hand
  size_t next_ = 0;                 // launch
  bool overwrites_ = false;         // the batch at hand writes where it reads ...
  bool must_end_ = false;           // ... what there is no other copy of
  bool lost_ = false, broken_ = false;
};

}  // namespace cermet
