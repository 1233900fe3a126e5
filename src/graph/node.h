// SPDX-License-Identifier: MIT
// A node is one lazy value: a row applied to inputs. Nodes are immutable but for their state, and but for
// those that a transform's own call has made (schedule/patterns.h); edges, tapes and traces hold nodes;
// only live `array` handles count as held. Views never copy: a ready node is a buffer and a layout.
// Ready nodes drop their inputs unless they were made under a transform that has not ended.
// Releasing a chain of nodes of any length does not recurse.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/shape.h"
#include "graph/node_ref.h"
#include "graph/op_list.h"
#include "graph/params.h"
#include "graph/trace_scope.h"
#include "runtime/buffer.h"
#include "runtime/stream.h"

namespace cermet {

struct OpRow;

// A call whose outputs are made together: one node of the graph with several results. Its output nodes
// own it; it knows those that still live. Outputs are read and changed under one lock for all calls,
// held over forks.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  NodeList inputs;
  // Makes the outputs ready, or failed; the inputs are ready.
  virtual void run() = 0;
  void add_output(Node* node) { outputs_.push_back(node); }
  void forget(Node* node);  // it is being destroyed
  bool is_done() const { return done_.load(std::memory_order_acquire); }

 protected:
  static std::mutex& outputs_lock();
  InlineVector<Node*, 2> outputs_;  // null: gone
  std::atomic<bool> done_{false};
};

// scheduled: taken by an evaluation, which may give its inputs away and drops them.
enum class NodeState : uint8_t { lazy, scheduled, ready, failed };

// Where the user made the node; resolved to file and line only when shown. No part of any hash.
struct Origin {
  const void* code = nullptr;  // kept alive by the language face
  int32_t position = -1;
};

// What the evaluation that reads a tape notes at its nodes and at their inputs, under the GraphLock.
struct TapeMark {
  static constexpr uint32_t kNone = ~uint32_t{0};

  uint64_t tape = 0;  // the reading that it is of: all else is of an earlier one
  int32_t edges = 0;  // from nodes of the tape
  uint32_t position = kNone;
  bool is_met = false, is_wanted = false;
};

// Fields lie in the order of their use: what every node is asked for stands side by side.
class Node {
 public:
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Params params;
  const OpRow*
      row;  // null: data given by the user, an output of a call, or a placeholder of a trace

 private:
  friend class NodeRef;
  std::atomic<int32_t> references_{0};
  Node* next_released_ = nullptr;  // among those that nobody refers to any more

 public:
  std::atomic<int32_t> handles{0};  // live `array` handles
  std::atomic<NodeState> state{NodeState::lazy};
  Dtype dtype;
  uint8_t spread =
      0;  // larger than what it is made of, and so many ops beyond that: not counted there
  // These bound laziness; users of a node read them while another thread may evaluate it.
  std::atomic<int32_t> depth{0};          // 1 + the most of its inputs that were not ready
  std::atomic<int64_t> pending_bytes{0};  // results waiting below, counted along one path at least
  TraceId trace = 0;                      // made under a transform from traced inputs
  BufferRef buffer;                       // ready: the data (where its elements are: layout)
  NodeList inputs;
  TapeMark mark;
  Shape shape;
  // An output of it: from the start, or since an evaluation was cut short, whose rest it is.
  std::shared_ptr<PendingCall> call;
  std::exception_ptr error;  // failed
  Layout layout;             // of a ready one
  Stream stream;
  Origin origin;
  // What the user called, which it is made for (graph/meant_scope.h); null: its own row. Lives on.
  const char* meant = nullptr;
  int64_t scope = 0;  // NodeScope::current() when it was made

  ~Node() {
    if (call) call->forget(this);
  }
  // From a list that each thread keeps: chains come and go by the hundred, and malloc would join and
  // split their memory again every time.
  static void* operator new(size_t bytes);
  static void operator delete(void* memory);
  // What must be ready before it.
  std::span<const NodeRef> edges() const { return call ? call->inputs : inputs; }
  void set_pending(int32_t nodes, int64_t bytes) {
    depth.store(nodes, std::memory_order_relaxed);
    pending_bytes.store(bytes, std::memory_order_relaxed);
  }

  int32_t references() const { return references_.load(std::memory_order_acquire); }
  // Keeps its inputs when ready: a transform may go down to them.
  bool is_traced() const { return trace != 0 && TraceScope::lasts(trace); }
  // The transform is this thread's, so the inputs stay for as long as this thread looks at them. Of others'
  // traces, which may end any time, nothing leads to the arguments of a transform of this thread.
  bool is_traced_here() const {
    return trace == TraceScope::kForever || trace == TraceScope::current();
  }
  bool was_traced() const { return trace != 0; }
  bool is_held() const { return handles.load(std::memory_order_relaxed) > 0; }
  bool is_ready() const { return state.load(std::memory_order_acquire) == NodeState::ready; }
  bool is_placeholder() const { return row == nullptr && !call && is_lazy(); }
  bool is_lazy() const { return state.load(std::memory_order_acquire) == NodeState::lazy; }
};

inline NodeRef::NodeRef(const NodeRef& other) : node_(other.node_) {
  if (node_ != nullptr) node_->references_.fetch_add(1, std::memory_order_relaxed);
}

inline NodeRef::~NodeRef() {
  if (node_ != nullptr && node_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
    destroy(node_);
}

// While one lives, no evaluation takes nodes: what lies below those that are lazy stays as it is, whatever
// other threads evaluate. Short; nothing is evaluated inside.
class GraphLock {
 public:
  GraphLock();
  ~GraphLock();
  GraphLock(const GraphLock&) = delete;
  GraphLock& operator=(const GraphLock&) = delete;
};

// The inputs of a node that any thread may be evaluating; nullopt once that has begun, and for an output
// of a call. Those traced here keep theirs.
std::optional<std::vector<NodeRef>> inputs_of(const Node& node);

// The number of nodes alive, for leak tests.
int64_t live_node_count();

// Nodes reachable from `roots` through inputs of nodes that are not ready, inputs before users, in the
// order of a depth-first walk (deterministic, iterative).
std::vector<NodeRef> pending_tape(std::span<const NodeRef> roots);
// Whether it is made of a placeholder of a trace, so that it cannot be evaluated.
bool stands_for_argument(const NodeRef& node);
// All nodes from `roots` down to (and including) leaves, ready or not; stops at nodes in `stop`.
std::vector<NodeRef> tape_to(std::span<const NodeRef> roots, std::span<const NodeRef> stop);

}  // namespace cermet
