// SPDX-License-Identifier: MIT
#include "runtime/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <ostream>

#include "base/error.h"
#include "runtime/fork.h"
#include "runtime/stream_queue.h"

namespace cermet {
namespace {

constexpr Stream kFirstCpuStream(0, Device::cpu);

struct Registry {
  std::mutex mutex;
  std::vector<Stream> streams{kFirstCpuStream};
  std::map<Device, Stream> first{{Device::cpu, streams[0]}};
  std::map<int, StreamQueue*> queues;
  int thread_local_streams = 0;
  std::vector<Stream> idle;  // left by threads that have ended, for other threads' use

  Stream add(Device device) {
    return streams.emplace_back(static_cast<int>(streams.size()), device);
  }
};

Registry& registry() {
  static constinit ForkSafe<Registry> registry(ForkLevel::streams);
  return registry.get();
}

// What a thread has set. The few devices of a thread are found fastest by looking at each.
struct ThreadStreams {
  std::vector<Stream> defaults;  // at most one for a device
  std::map<int, Stream> own;     // by index of the ThreadLocalStream

  ~ThreadStreams() {
    if (own.empty()) return;
    std::lock_guard lock(registry().mutex);
    for (const auto& [index, stream] : own) registry().idle.push_back(stream);
  }
};

thread_local ThreadStreams thread_streams;
constinit thread_local bool has_defaults = false;  // whether to look at thread_streams.defaults
std::atomic<Synchronizer> gpu_synchronizer{nullptr};

void check_stream(const char* op, Stream stream) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const bool known = stream.index >= 0 && stream.index < static_cast<int>(all.streams.size()) &&
                     all.streams[stream.index] == stream;
  CERMET_CHECK(known, value, op, "there is no {}; make streams with new_stream", to_string(stream));
}

}  // namespace

std::optional<Stream> peek_default_stream(Device device) {
  if (!has_defaults) return std::nullopt;
  for (const Stream& stream : thread_streams.defaults) {
    if (stream.device == device) return stream;
  }
  return std::nullopt;
}

Stream default_stream(Device device) {
  const bool is_cpu = device == kFirstCpuStream.device;
  if (is_cpu && !has_defaults) [[likely]]
    return kFirstCpuStream;
  if (auto set = peek_default_stream(device)) return *set;
  if (is_cpu) return kFirstCpuStream;
  check_device("default_stream", device);
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  auto it = all.first.find(device);
  if (it == all.first.end()) it = all.first.emplace(device, all.add(device)).first;
  return it->second;
}

void set_default_stream(Stream stream) {
  check_device("set_default_stream", stream.device);
  check_stream("set_default_stream", stream);
  reset_default_stream(stream.device);
  thread_streams.defaults.push_back(stream);
  has_defaults = true;
}

void reset_default_stream(Device device) {
  std::erase_if(thread_streams.defaults, [&](Stream stream) { return stream.device == device; });
}

Stream new_stream(Device device) {
  check_device("new_stream", device);
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return all.add(device);
}

Stream new_thread_unsafe_stream(Device device) { return new_stream(device); }

ThreadLocalStream new_thread_local_stream(Device device) {
  check_device("new_thread_local_stream", device);
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return {all.thread_local_streams++, device};
}

Stream stream_from_thread_local_stream(ThreadLocalStream stream) {
  auto it = thread_streams.own.find(stream.index);
  if (it != thread_streams.own.end()) return it->second;
  check_device("stream", stream.device);
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  auto unused = std::find_if(all.idle.begin(), all.idle.end(),
                             [&](Stream idle) { return idle.device == stream.device; });
  Stream mine;
  if (unused != all.idle.end()) {
    mine = *unused;
    all.idle.erase(unused);
  } else {
    mine = all.add(stream.device);
  }
  return thread_streams.own.emplace(stream.index, mine).first->second;
}

std::vector<Stream> get_streams() {
  std::lock_guard lock(registry().mutex);
  return registry().streams;
}

Stream to_stream(StreamOrDevice stream) { return to_stream(stream, default_device()); }

Stream to_stream(StreamOrDevice stream, Device fallback) {
  struct Visitor {
    Device fallback;
    Stream operator()(std::monostate) const { return default_stream(fallback); }
    Stream operator()(Stream stream) const { return stream; }
    Stream operator()(ThreadLocalStream stream) const {
      return stream_from_thread_local_stream(stream);
    }
    Stream operator()(Device device) const { return default_stream(device); }
    Stream operator()(DeviceType type) const { return default_stream(type); }
  };
  return std::visit(Visitor{fallback}, stream);
}

StreamQueue& queue_of(Stream stream) {
  check_stream("stream", stream);
  CERMET_INTERNAL_CHECK(stream.device.type == Device::cpu, "queue of {}", to_string(stream));
  Registry& all = registry();
  // Made outside the lock: a fork takes the locks of the queues before this one.
  {
    std::lock_guard lock(all.mutex);
    auto it = all.queues.find(stream.index);
    if (it != all.queues.end()) return *it->second;
  }
  auto queue = std::make_unique<StreamQueue>();
  std::lock_guard lock(all.mutex);
  auto [it, added] = all.queues.emplace(stream.index, queue.get());
  if (added) it->second = queue.release();
  return *it->second;
}

void synchronize() { synchronize(default_stream(default_device())); }

void synchronize(Stream stream) {
  check_device("synchronize", stream.device);
  if (stream.device.type == Device::cpu) {
    queue_of(stream).wait_idle();
  } else if (Synchronizer synchronizer = gpu_synchronizer.load(std::memory_order_acquire)) {
    check_stream("synchronize", stream);
    synchronizer(stream);
  }
}

void synchronize(ThreadLocalStream stream) { synchronize(stream_from_thread_local_stream(stream)); }

void register_synchronizer(DeviceType type, Synchronizer synchronizer) {
  CERMET_INTERNAL_CHECK(type == Device::gpu, "a CPU stream is waited for by its queue");
  gpu_synchronizer.store(synchronizer, std::memory_order_release);
}

void clear_streams() {
  for (Stream stream : get_streams()) synchronize(stream);
  std::vector<StreamQueue*> queues;
  {
    std::lock_guard lock(registry().mutex);
    for (const auto& [index, queue] : registry().queues) queues.push_back(queue);
  }
  for (StreamQueue* queue : queues) queue->stop();
}

StreamContext::StreamContext(StreamOrDevice target) : device_before_(thread_default_device()) {
  if (std::holds_alternative<std::monostate>(target)) return;
  if (auto* type = std::get_if<DeviceType>(&target)) target = Device(*type);
  if (auto* device = std::get_if<Device>(&target)) {
    check_device("stream", *device);
    set_thread_default_device(*device);
    return;
  }
  const Stream stream = to_stream(target);
  stream_before_ = peek_default_stream(stream.device);
  set_default_stream(stream);
  stream_device_ = stream.device;
  set_thread_default_device(stream.device);
}

StreamContext::~StreamContext() {
  set_thread_default_device(device_before_);
  if (!stream_device_) return;
  if (stream_before_) {
    set_default_stream(*stream_before_);
  } else {
    reset_default_stream(*stream_device_);
  }
}

std::string to_string(Stream stream) {
  return fmt::format("Stream({}, {})", to_string(stream.device), stream.index);
}

std::string to_string(ThreadLocalStream stream) {
  return fmt::format("ThreadLocalStream({}, {})", to_string(stream.device), stream.index);
}

std::ostream& operator<<(std::ostream& out, Stream stream) { return out << to_string(stream); }

}  // namespace cermet
