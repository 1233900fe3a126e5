// SPDX-License-Identifier: MIT
#include "schedule/program_call.h"

#include <algorithm>
#include <mutex>
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
  explicit Running(std::thread::id& runner) : runner_(runner) {
    runner_ = std::this_thread::get_id();
  }
  ~Running() { runner_ = std::thread::id(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::thread::id& runner_;
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
    : rest_program_(std::move(program)),
      rest_scalars_(std::move(scalars)),
      rest_(std::make_unique<ProgramRun>(std::move(rest))) {}

ProgramRun ProgramCall::start() {
  throw_internal(__FILE__, __LINE__, "the rest of a run is not started");
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): others keep them
void ProgramCall::put_back(std::vector<BufferRef>) {}

void ProgramCall::run() {
  if (runner_ != std::thread::id()) check_not_running();
  const Running running(runner_);
  if (rest_ != nullptr) return run(*rest_);
  ProgramRun fresh = start();
  run(fresh);
}

void ProgramCall::run(ProgramRun& run) {
  try {
    run.run();
    publish(run);
  } catch (...) {
    stop(run, std::current_exception());
    throw;
  }
}

// What the run has left behind in a fork is not to be touched.
void ProgramCall::check_not_running() {
  CERMET_CHECK(
      runner_ != std::this_thread::get_id(), runtime, "eval",
      "an array was asked for by the handler of a signal that came while it is being made; "
      "let the handler raise an exception or note the signal, and ask afterwards");
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

void ProgramCall::publish(const ProgramRun& run, const std::exception_ptr& error) {
  {
    std::lock_guard guard(outputs_lock());
    done_ = true;
    for (size_t i = 0; i < outputs_.size(); i++) {
      if (outputs_[i] == nullptr) continue;
      Node& node = *outputs_[i];
      if (!run.is_made(i)) {
        node.error = error;
        finish(node, NodeState::failed);
        continue;
      }
      ProgramResult result = run.result(i);
      node.buffer = std::move(result.buffer);
      node.layout = std::move(result.layout);
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
  } else if (passes || !publish_others(run, error)) {
    fail_outputs(passes ? error_of_loss() : error);
  }
}

// Those that are not made of what failed: the random key after a call, say, goes on.
bool ProgramCall::publish_others(ProgramRun& run, const std::exception_ptr& error) {
  try {
    run.run_others();
  } catch (...) {  // there is no memory for them, or the user does not wait
    return false;
  }
  publish(run, error);
  return true;
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
