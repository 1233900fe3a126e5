// SPDX-License-Identifier: MIT
// A call whose outputs a run of a program makes. Ctrl-C and lack of memory are no errors of the arrays:
// the call keeps a run that must go on (run.h), else its inputs, and is tried again when one of its
// outputs is next asked for, by whatever thread. Other errors are those of all its outputs.
#pragma once

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "graph/node.h"
#include "schedule/run.h"

namespace cermet {

class ProgramCall : public PendingCall {
 public:
  // The rest of a run that has lost inputs, with what it refers to.
  ProgramCall(ProgramRun rest, ProgramPtr program, std::vector<Number> scalars);
  void run() final;

 protected:
  ProgramCall() = default;
  // A run on `inputs`, and what it gives back of them. Not called for a rest.
  virtual ProgramRun start();
  virtual void put_back(std::vector<BufferRef> buffers);

 private:
  void check_not_running();
  void run(ProgramRun& run);
  // `error`: that of outputs which are not made.
  void publish(const ProgramRun& run, const std::exception_ptr& error = nullptr);
  bool publish_others(ProgramRun& run, const std::exception_ptr& error);
  void stop(ProgramRun& run, const std::exception_ptr& error);
  void fail_outputs(const std::exception_ptr& error);

  ProgramPtr rest_program_;
  std::vector<Number> rest_scalars_;
  std::unique_ptr<ProgramRun> rest_;
  // Found set: the handler of a signal asks in the middle, or a fork has left the thread behind.
  std::thread::id runner_;
};

// Not of the arrays but of the moment: who asks again may get them.
bool is_passing(const std::exception_ptr& error);
// What is raised for an array whose inputs are lost by an error of the moment.
std::exception_ptr error_of_loss();

}  // namespace cermet
