// SPDX-License-Identifier: MIT
// The worker behind a CPU stream: runs tasks in the order in which they were queued, one at a time,
// on one thread made at the first task. A fork waits until fork_deadline() for the running task; in the
// child the tasks not begun stay queued on a new worker, and a task cut short is replaced by its
// `lost`. At exit the running task may end, and the others are dropped. Tasks report failure
// through their results: an exception that leaves one is a bug of ours and printed as a warning.
#pragma once

#include <functional>
#include <memory>

#include "runtime/stream.h"

namespace cermet {

class StreamQueue {
 public:
  using Task = std::function<void()>;

  StreamQueue();
  ~StreamQueue();  // runs what is queued
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  // lost: run on the child's worker in place of a task that a fork cut short; it should fail what
  // the task would have produced. Raises [stream] runtime when there is no thread for the
  // worker, [stream] memory when there is no place for the task.
  void enqueue(Task task, Task lost = nullptr);
  // True when nothing is queued or running: the caller may then run work itself, in order.
  bool idle() const;
  // Waits for the tasks queued before the call. From the worker itself it returns at once. Counts a
  // sync when it has to wait; raises [synchronize] interrupted when the poll hook cancels.
  void wait_idle();
  bool on_worker() const;  // is the caller this queue's worker?
  // Runs what is queued and ends the worker; the next task makes a new one.
  void stop();

 private:
  friend struct QueueControl;
  struct State;
  std::unique_ptr<State> state_;
};

// The queue of a CPU stream; the same object for the life of the process. Raises [stream] value
// when there is no such stream.
StreamQueue& queue_of(Stream stream);

}  // namespace cermet
