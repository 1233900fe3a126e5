// SPDX-License-Identifier: MIT
#include "schedule/program_call.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"

namespace cermet {

namespace {

// The node keeps the call: its destructor may be looking at it on another thread.
void finish(Node& node, NodeState state) {
  node.set_pending(0, 0);
  node.state.store(state, std::memory_order_release);
}

class Running {
 public:
  explicit Running(bool& flag) : flag_(flag) { flag_ = true; }
  ~Running() { flag_ = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  bool& flag_;
};

}  // namespace

bool is_passing(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::interrupted || e.kind() == ErrorKind::memory;
  } catch (...) {  // std::bad_alloc, an error of the language face
    return true;
  }
}

std::exception_ptr error_of_loss() {
  try {
    fail(
        ErrorKind::runtime, "eval",
        "what this array is made of was overwritten by a step that was interrupted (memory ran out "
        "inside a kernel that writes its result in place); load or make the arrays of the step "
        "anew");
  } catch (...) {
    return std::current_exception();
  }
}

ProgramCall::ProgramCall(ProgramRun rest, ProgramPtr program, std::vector<Number> scalars)
    : rest_(std::make_unique<ProgramRun>(std::move(rest))),
      program_(std::move(program)),
      scalars_(std::move(scalars)) {}

ProgramRun ProgramCall::start() {
  throw_internal(__FILE__, __LINE__, "the rest of a run is not started");
}

void ProgramCall::put_back(std::vector<BufferRef>) {}

void ProgramCall::run() {
  check_not_forked();
  const Running running(is_running_);
  if (rest_ != nullptr) return run(*rest_);
  std::optional<ProgramRun> fresh;
  try {
    fresh.emplace(start());
  } catch (...) {
    if (!is_passing(std::current_exception())) fail_outputs(std::current_exception());
    throw;
  }
  run(*fresh);
}

void ProgramCall::run(ProgramRun& run) {
  try {
    publish(run.run());
  } catch (...) {
    stop(run, std::current_exception());
    throw;
  }
}

// What the run has left is not to be touched.
void ProgramCall::check_not_forked() {
  if (!is_running_) return;
  const bool given = rest_.release() != nullptr ||
                     std::ranges::any_of(inputs, [](const NodeRef& node) { return !node->buffer; });
  if (!given) return;
  try {
    fail(ErrorKind::runtime, "eval",
         "a fork cut this call short after it had been given its inputs; evaluate before the fork, "
         "or call anew");
  } catch (const Error&) {
    fail_outputs(std::current_exception());
    throw;
  }
}

void ProgramCall::publish(std::vector<ProgramValue> results) {
  {
    std::lock_guard guard(outputs_lock());
    done_ = true;
    for (size_t i = 0; i < results.size(); i++) {
      if (outputs_[i] == nullptr) continue;
      Node& node = *outputs_[i];
      node.buffer = std::move(results[i].buffer);
      node.layout = std::move(results[i].layout);
      finish(node, NodeState::ready);
    }
  }
  rest_.reset();
  inputs.clear();
}

void ProgramCall::stop(ProgramRun& run, const std::exception_ptr& error) {
  const bool passes = is_passing(error);
  if (passes && !run.has_lost_input()) {
    put_back(run.take_back());
  } else if (passes && run.can_go_on()) {
    if (rest_ == nullptr) rest_ = std::make_unique<ProgramRun>(std::move(run));
    inputs.clear();  // the run has what it needs of them
  } else {
    fail_outputs(passes ? error_of_loss() : error);
  }
}

void ProgramCall::fail_outputs(const std::exception_ptr& error) {
  {
    std::lock_guard guard(outputs_lock());
    done_ = true;
    for (Node* node : outputs_) {
      if (node == nullptr) continue;
      node->error = error;
      finish(*node, NodeState::failed);
    }
  }
  rest_.reset();
  inputs.clear();
}

}  // namespace cermet
