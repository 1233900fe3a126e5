// SPDX-License-Identifier: MIT
#include "graph/node.h"

#include <algorithm>
#include <memory_resource>
#include <unordered_set>
#include <utility>

#include "runtime/fork.h"

namespace cermet {

namespace {

std::atomic<int64_t> live_nodes{0};

// Nodes whose last reference went while another was being destroyed on this thread: freeing them from
// one loop keeps the stack flat for chains of any length.
struct ReleaseQueue {
  Node* last;  // linked by next_released_
  bool is_active;
};
constinit thread_local ReleaseQueue release_queue{nullptr, false};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostFree = 0;  // a sanitizer follows every node
#else
constexpr int kMostFree = 4096;  // of a training step of a small model
#endif

struct FreeNode {
  FreeNode* next;
};

// Memory of nodes that were freed on this thread. Plain, as access to what has a destructor is slow.
struct FreeNodes {
  FreeNode* first;
  int count;
  bool is_watched;  // freed when the thread ends
};
constinit thread_local FreeNodes free_nodes{nullptr, 0, false};

struct ThreadEnd {
  ~ThreadEnd() {
    while (free_nodes.first != nullptr)
      ::operator delete(std::exchange(free_nodes.first, free_nodes.first->next));
    free_nodes.count = kMostFree;  // what is freed on this thread from now on is not kept
  }
  void watch() {}
};
thread_local ThreadEnd thread_end;

struct Frame {
  const NodeRef* node;
  size_t next_input;
};

// Depth-first post-order without recursion; `enter` says whether to go below a node, `skip` whether to
// leave it out altogether.
template <typename Skip, typename Enter>
std::vector<NodeRef> post_order(std::span<const NodeRef> roots, Skip skip, Enter enter) {
  std::vector<NodeRef> tape;
  std::pmr::monotonic_buffer_resource memory;
  std::pmr::unordered_set<const Node*> seen(&memory);
  std::pmr::unordered_set<const PendingCall*> calls(&memory);
  std::vector<Frame> stack;
  auto visit = [&](const NodeRef& node) {
    if (skip(*node) || !seen.insert(node.get()).second) return;
    // What a call needs is looked at for the first of its outputs.
    const bool below = enter(*node) && (!node->call || calls.insert(node->call.get()).second);
    stack.push_back({&node, below ? 0 : node->edges().size()});
  };
  for (const NodeRef& root : roots) {
    visit(root);
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next_input < (*top.node)->edges().size()) {
        visit((*top.node)->edges()[top.next_input++]);
      } else {
        tape.push_back(*top.node);
        stack.pop_back();
      }
    }
  }
  return tape;
}

}  // namespace

void* Node::operator new(size_t bytes) {
  FreeNodes& nodes = free_nodes;
  if (nodes.first == nullptr) return ::operator new(bytes);
  --nodes.count;
  return std::exchange(nodes.first, nodes.first->next);
}

void Node::operator delete(void* memory) {
  FreeNodes& nodes = free_nodes;
  if (nodes.count >= kMostFree) return ::operator delete(memory);
  if (!std::exchange(nodes.is_watched, true)) thread_end.watch();
  nodes.first = new (memory) FreeNode{nodes.first};
  ++nodes.count;
}

NodeRef::NodeRef(Node* node) : node_(node) {
  if (node_ != nullptr && node_->references_.fetch_add(1, std::memory_order_relaxed) == 0)
    live_nodes.fetch_add(1, std::memory_order_relaxed);
}

void NodeRef::destroy(Node* last) {
  ReleaseQueue& queue = release_queue;
  last->next_released_ = std::exchange(queue.last, last);
  if (std::exchange(queue.is_active, true)) return;
  int64_t count = 0;
  for (; queue.last != nullptr; ++count) {
    Node* node = queue.last;
    queue.last = node->next_released_;
    delete node;
  }
  queue.is_active = false;
  live_nodes.fetch_sub(count, std::memory_order_relaxed);
}

std::mutex& PendingCall::outputs_lock() {
  static constinit ForkSafe<std::mutex> lock(ForkLevel::leaf);
  return lock.get();
}

namespace {
std::mutex& graph_mutex() {
  static constinit ForkSafe<std::mutex> mutex(ForkLevel::nodes);
  return mutex.get();
}
}  // namespace

GraphLock::GraphLock() { graph_mutex().lock(); }
GraphLock::~GraphLock() { graph_mutex().unlock(); }

std::optional<std::vector<NodeRef>> inputs_of(const Node& node) {
  const auto copy = [&] { return std::vector<NodeRef>(node.inputs.begin(), node.inputs.end()); };
  if (node.is_traced_here()) return copy();
  const GraphLock lock;
  if (!node.is_lazy() || node.call) return std::nullopt;
  return copy();
}

void PendingCall::forget(Node* node) {
  std::lock_guard guard(outputs_lock());
  std::replace(outputs_.begin(), outputs_.end(), node, static_cast<Node*>(nullptr));
}

int64_t live_node_count() { return live_nodes.load(std::memory_order_relaxed); }

std::vector<NodeRef> pending_tape(std::span<const NodeRef> roots) {
  return post_order(
      roots, [](const Node& node) { return node.is_ready(); }, [](const Node&) { return true; });
}

bool stands_for_argument(const NodeRef& node) {
  return std::ranges::any_of(pending_tape({&node, 1}),
                             [](const NodeRef& below) { return below->is_placeholder(); });
}

std::vector<NodeRef> tape_to(std::span<const NodeRef> roots, std::span<const NodeRef> stop) {
  std::unordered_set<const Node*> stops;
  for (const NodeRef& node : stop) stops.insert(node.get());
  return post_order(
      roots, [](const Node&) { return false; },
      [&](const Node& node) { return !stops.contains(&node); });
}

}  // namespace cermet
