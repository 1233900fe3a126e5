// SPDX-License-Identifier: MIT
#include "runtime/stream_queue.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/fault.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/poll.h"
#include "runtime/process_end.h"
#include "runtime/thread.h"
#include "runtime/wait.h"

namespace cermet {

struct StreamQueue::State {
  struct Entry {
    Task task;
    Task lost;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> tasks;
  Task lost;  // of the running task
  std::thread worker;
  std::atomic<std::thread::id> worker_id{};
  std::atomic<uint64_t> queued{0};  // tasks ever queued
  std::atomic<uint64_t> done{0};    // tasks ever finished
  bool running = false;
  bool paused = false;    // a fork or the exit of the process begins no more tasks
  bool stopping = false;  // the worker ends when nothing is queued
  bool exiting = false;   // the process ends: what is queued will not run

  bool on_worker() const { return worker_id.load() == std::this_thread::get_id(); }
  void ensure_worker();
  void work();
  void run_next(std::unique_lock<std::mutex>& lock);
  void pause(std::chrono::steady_clock::time_point deadline);
  void resume();
  void resume_in_child();
};

namespace {

constexpr std::chrono::seconds kPause{5};

// All queues, for fork and exit.
struct Queues {
  std::mutex mutex;
  std::vector<StreamQueue*> all;

  Queues();
  ForkHandler over_fork();
};

Queues& queues() {
  static constinit ForkSafe<Queues> queues(ForkLevel::queues);
  return queues.get();
}

}  // namespace

void StreamQueue::State::ensure_worker() {
  if (worker.joinable()) return;
  worker = start_thread("cermet-stream", [this] { work(); });
  CERMET_CHECK(worker.joinable(), runtime, "stream",
               "no thread for the stream's worker; the limit on threads is reached");
  worker_id = worker.get_id();
}

void StreamQueue::State::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return !paused && (stopping || !tasks.empty()); });
    if (tasks.empty()) return;
    run_next(lock);
  }
}

void StreamQueue::State::run_next(std::unique_lock<std::mutex>& lock) {
  Task task = std::move(tasks.front().task);
  lost = std::move(tasks.front().lost);
  tasks.pop_front();
  running = true;
  lock.unlock();
  try {
    task();
  } catch (const std::exception& error) {
    write_warning(fmt::format("a task of a stream let an exception out: {}", error.what()));
  } catch (...) {
    write_warning("a task of a stream let an exception out");
  }
  // What the task held is dropped before it counts as done. A fork that comes in between finds
  // nothing lost: the task has ended.
  task = nullptr;
  lock.lock();
  Task unused = std::exchange(lost, nullptr);
  lock.unlock();
  unused = nullptr;
  lock.lock();
  running = false;
  done.fetch_add(1, std::memory_order_release);
  changed.notify_all();
}

// Leaves the mutex locked, whether or not the running task ended in time.
void StreamQueue::State::pause(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex);
  paused = true;
  if (!on_worker()) changed.wait_until(lock, deadline, [this] { return !running; });
  lock.release();
}

void StreamQueue::State::resume() {
  paused = false;
  mutex.unlock();
  changed.notify_all();
}

void StreamQueue::State::resume_in_child() {
  // No other thread exists, so nobody waits here: the objects are made anew over the old ones.
  new (&changed) std::condition_variable;
  paused = stopping = false;
  if (on_worker()) {
    mutex.unlock();
    return;
  }
  new (&worker) std::thread;
  worker_id = std::thread::id();
  if (running) {
    running = false;
    tasks.push_front({lost ? std::exchange(lost, nullptr) : [] {}, nullptr});
  }
  try {
    if (!tasks.empty()) ensure_worker();
  } catch (const Error& error) {
    write_warning(error.what());
  }
  mutex.unlock();
}

namespace {

template <typename State>
void pause_all(const std::vector<State*>& states, std::chrono::steady_clock::time_point deadline) {
  for (State* state : states) state->pause(deadline);
}

}  // namespace

// Fork and exit see every queue through these.
struct QueueControl {
  static std::vector<StreamQueue::State*> states() {
    std::vector<StreamQueue::State*> states;
    for (StreamQueue* queue : queues().all) states.push_back(queue->state_.get());
    return states;
  }
  static void prepare() {
    queues().mutex.lock();
    pause_all(states(), fork_deadline());
  }
  static void parent() {
    for (auto* state : states()) state->resume();
    queues().mutex.unlock();
  }
  static void child() {
    for (auto* state : states()) state->resume_in_child();
    queues().mutex.unlock();
  }
  // Tasks in flight end before the libraries they use are torn down; those not begun are dropped.
  static void exit() {
    std::lock_guard lock(queues().mutex);
    pause_all(states(), std::chrono::steady_clock::now() + kPause);
    for (auto* state : states()) {
      state->exiting = true;
      state->mutex.unlock();
      state->changed.notify_all();
    }
  }
};

namespace {

Queues::Queues() { at_process_end(EndPhase::queues, QueueControl::exit); }

ForkHandler Queues::over_fork() {
  return {QueueControl::prepare, QueueControl::parent, QueueControl::child};
}

}  // namespace

StreamQueue::StreamQueue() : state_(std::make_unique<State>()) {
  std::lock_guard lock(queues().mutex);
  queues().all.push_back(this);
}

StreamQueue::~StreamQueue() {
  {
    std::lock_guard lock(queues().mutex);
    std::erase(queues().all, this);
  }
  stop();
}

void StreamQueue::stop() {
  std::thread worker;
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->worker.joinable() || state_->on_worker()) return;
    state_->stopping = true;
    worker = std::move(state_->worker);
  }
  state_->changed.notify_all();
  worker.join();
  std::lock_guard lock(state_->mutex);
  state_->stopping = false;
  state_->worker_id = std::thread::id();
  if (!state_->tasks.empty()) state_->ensure_worker();
}

void StreamQueue::enqueue(Task task, Task lost) {
  CERMET_CHECK(
      !allocation_fails(), memory, "stream",
      "out of memory: the place of a task in the queue is made to fail; unset CERMET_FAIL_ALLOC");
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->stopping) state_->ensure_worker();
    state_->tasks.push_back({std::move(task), std::move(lost)});
    state_->queued.fetch_add(1, std::memory_order_relaxed);
  }
  state_->changed.notify_all();
}

bool StreamQueue::idle() const {
  return state_->done.load(std::memory_order_acquire) ==
         state_->queued.load(std::memory_order_relaxed);
}

void StreamQueue::wait_idle() {
  if (idle() || state_->on_worker()) return;
  const CallerWait wait("the tasks of a stream");
  std::unique_lock lock(state_->mutex);
  const uint64_t target = state_->queued;
  while (state_->done < target) {
    state_->changed.wait_for(lock, std::chrono::nanoseconds(kPollPeriodNs));
    if (state_->done >= target || state_->exiting) return;
    lock.unlock();
    check_cancelled("synchronize");
    lock.lock();
  }
}

bool StreamQueue::on_worker() const { return state_->on_worker(); }

}  // namespace cermet
