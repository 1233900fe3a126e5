// SPDX-License-Identifier: MIT
// Streams: ordered lines of work on a device. A stream is a number; any stream works on any thread.
// Each device has a first stream, the default of every thread that has not set its own. Work queued
// on a CPU stream runs on the stream's worker (stream_queue.h), made at first use.
#pragma once

#include <compare>
#include <iosfwd>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/device.h"

namespace cermet {

struct Stream {
  int index = 0;  // unique over all devices
  Device device;

  constexpr Stream() = default;
  constexpr Stream(int index, Device device) : index(index), device(device) {}
  auto operator<=>(const Stream&) const = default;
};

// Stands for a stream of its own in each thread, made when the thread first uses it.
struct ThreadLocalStream {
  int index = 0;
  Device device;

  auto operator<=>(const ThreadLocalStream&) const = default;
};

// What the `stream` argument of an op may be; monostate: the default stream of the default device.
using StreamOrDevice = std::variant<std::monostate, Stream, ThreadLocalStream, Device, DeviceType>;

// This thread's default stream on the device, else the device's first stream. Raises
// [default_stream] device when the device is absent.
Stream default_stream(Device device);
// nullopt when this thread has not set one.
std::optional<Stream> peek_default_stream(Device device);
// Of this thread, for the stream's device. Raises [set_default_stream] value: no such stream.
void set_default_stream(Stream stream);
void reset_default_stream(Device device);  // this thread uses the device's first stream again
Stream new_stream(Device device);          // raises [new_stream] device
// No stream belongs to a thread here, so this is new_stream.
Stream new_thread_unsafe_stream(Device device);
ThreadLocalStream new_thread_local_stream(Device device);
Stream stream_from_thread_local_stream(ThreadLocalStream stream);
std::vector<Stream> get_streams();

Stream to_stream(StreamOrDevice stream);
Stream to_stream(StreamOrDevice stream, Device fallback);  // fallback: for monostate

// Waits until the work queued so far is done; counts a sync when it has to wait. Raises
// [synchronize] interrupted when the user cancels. Without an argument: the default stream.
void synchronize();
void synchronize(Stream stream);
void synchronize(ThreadLocalStream stream);
// Waits for all streams and ends their workers; streams stay usable.
void clear_streams();

// How a backend waits for one of its streams.
using Synchronizer = void (*)(Stream);
void register_synchronizer(DeviceType type, Synchronizer synchronizer);

// While it lives, the stream and its device are this thread's defaults; given a device, only that.
// Raises [stream] device when it is absent. Scopes of a thread end in reverse order.
class StreamContext {
 public:
  explicit StreamContext(StreamOrDevice stream);
  ~StreamContext();
  StreamContext(const StreamContext&) = delete;
  StreamContext& operator=(const StreamContext&) = delete;

 private:
  std::optional<Device> device_before_;
  std::optional<Stream> stream_before_;
  std::optional<Device> stream_device_;  // whose default stream was changed
};

std::string to_string(Stream stream);             // "Stream(Device(cpu, 0), 1)"
std::string to_string(ThreadLocalStream stream);  // "ThreadLocalStream(Device(cpu, 0), 1)"
std::ostream& operator<<(std::ostream& out, Stream stream);

}  // namespace cermet
