// SPDX-License-Identifier: MIT
#include "graph/node.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "runtime/fork.h"

namespace cermet {

namespace {

std::atomic<int64_t> live_nodes{0};

// Nodes whose last reference went while another was being destroyed on this thread: freeing them from
// one loop keeps the stack flat for chains of any length.
thread_local std::vector<Node*>* release_queue = nullptr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostFree = 0;  // a sanitizer follows every node
#else
constexpr int kMostFree = 1024;
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

void destroy(Node* first) {
  if (release_queue != nullptr) {
    release_queue->push_back(first);
    return;
  }
  std::vector<Node*> queue{first};
  release_queue = &queue;
  while (!queue.empty()) {
    Node* node = queue.back();
    queue.pop_back();
    delete node;
    live_nodes.fetch_sub(1, std::memory_order_relaxed);
  }
  release_queue = nullptr;
}

struct Frame {
  const NodeRef* node;
  size_t next_input;
};

// Depth-first post-order without recursion; `enter` says whether to go below a node, `skip` whether to
// leave it out altogether.
template <typename Skip, typename Enter>
std::vector<NodeRef> post_order(std::span<const NodeRef> roots, Skip skip, Enter enter) {
  std::vector<NodeRef> tape;
  std::unordered_set<const Node*> seen;
  std::unordered_set<const PendingCall*> calls;
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

NodeRef::NodeRef(const NodeRef& other) : node_(other.node_) {
  if (node_ != nullptr) node_->references_.fetch_add(1, std::memory_order_relaxed);
}

NodeRef::~NodeRef() {
  if (node_ != nullptr && node_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
    destroy(node_);
}

std::mutex& PendingCall::outputs_lock() {
  static std::mutex& lock = make_fork_safe<std::mutex>(ForkLevel::leaf);
  return lock;
}

namespace {
std::mutex& graph_mutex() {
  static std::mutex& mutex = make_fork_safe<std::mutex>(ForkLevel::nodes);
  return mutex;
}
}  // namespace

GraphLock::GraphLock() { graph_mutex().lock(); }
GraphLock::~GraphLock() { graph_mutex().unlock(); }

std::optional<std::vector<NodeRef>> inputs_of(const Node& node) {
  if (node.traced) return node.inputs;
  const GraphLock lock;
  if (!node.is_lazy() || node.call) return std::nullopt;
  return node.inputs;
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

std::vector<NodeRef> tape_to(std::span<const NodeRef> roots, std::span<const NodeRef> stop) {
  std::unordered_set<const Node*> stops;
  for (const NodeRef& node : stop) stops.insert(node.get());
  return post_order(
      roots, [](const Node&) { return false; },
      [&](const Node& node) { return !stops.contains(&node); });
}

}  // namespace cermet
