// SPDX-License-Identifier: MIT
// Device, Stream and the functions that choose them.
#include "bind.h"
#include "runtime/stream_queue.h"

namespace cermet::python {

namespace {

Device to_device(const std::variant<Device, DeviceType>& given) {
  if (const Device* device = std::get_if<Device>(&given)) return *device;
  return Device(std::get<DeviceType>(given));
}
using DeviceArg = std::variant<Device, DeviceType>;

// `with mx.stream(s):`
struct PyStreamContext {
  StreamOrDevice target;
  std::unique_ptr<StreamContext> active;
};

}  // namespace

StreamOrDevice to_stream_arg(nb::handle object) {
  if (object.is_none()) return std::monostate();
  if (nb::isinstance<Stream>(object)) return nb::cast<Stream>(object);
  if (nb::isinstance<Device>(object)) return nb::cast<Device>(object);
  if (nb::isinstance<ThreadLocalStream>(object)) return nb::cast<ThreadLocalStream>(object);
  if (nb::isinstance<DeviceType>(object)) return nb::cast<DeviceType>(object);
  fail(ErrorKind::type, "stream", "{} was given; it must be a Stream, a Device or None",
       type_of(object));
}

void init_devices(nb::module_& m) {
  nb::enum_<DeviceType>(m, "DeviceType")
      .value("cpu", Device::cpu)
      .value("gpu", Device::gpu)
      .export_values();
  nb::class_<Device>(m, "Device", "A device: its type and its number.")
      .def(
          "__init__",
          [](Device* self, DeviceType type, int index) {
            const Device device(type, index);
            CERMET_CHECK(index >= 0, device, "Device", "the index is {}; it must be at least 0",
                         index);
            if (type == Device::cpu) check_device("Device", device);
            new (self) Device(device);
          },
          nb::arg("type"), nb::arg("index") = 0)
      .def_prop_ro("type", [](const Device& d) { return d.type; })
      .def("__repr__", [](const Device& d) { return to_string(d); })
      .def("__hash__", [](const Device& d) { return static_cast<int>(d.type) * 1024 + d.index; })
      .def("__eq__", [](const Device& d, nb::handle other) {
        if (nb::isinstance<Device>(other)) return nb::cast<Device>(other) == d;
        return nb::isinstance<DeviceType>(other) && nb::cast<DeviceType>(other) == d.type;
      });
  nb::class_<Stream>(m, "Stream", "An ordered line of work on a device.")
      .def_prop_ro("device", [](const Stream& s) { return s.device; })
      .def("__repr__", [](const Stream& s) { return to_string(s); })
      .def("__hash__", [](const Stream& s) { return s.index; })
      .def("__eq__", [](const Stream& s, nb::handle o) {
        return nb::isinstance<Stream>(o) && nb::cast<Stream>(o) == s;
      });
  nb::class_<ThreadLocalStream>(m, "ThreadLocalStream", "A stream of its own in each thread.")
      .def_prop_ro("device", [](const ThreadLocalStream& s) { return s.device; })
      .def("__repr__", [](const ThreadLocalStream& s) { return to_string(s); })
      .def("__eq__", [](const ThreadLocalStream& s, nb::handle o) {
        return nb::isinstance<ThreadLocalStream>(o) && nb::cast<ThreadLocalStream>(o) == s;
      });
  m.def("default_device", &default_device, "The device of new work in this thread.");
  m.def(
      "set_default_device", [](const DeviceArg& d) { set_default_device(to_device(d)); },
      nb::arg("device"), "Sets the default device; ValueError when it is absent.");
  m.def(
      "is_available", [](const DeviceArg& d) { return is_available(to_device(d)); },
      nb::arg("device"));
  m.def("device_count", &device_count, nb::arg("device_type"));
  m.def(
      "default_stream", [](const DeviceArg& d) { return default_stream(to_device(d)); },
      nb::arg("device"), "This thread's default stream on the device.");
  m.def("set_default_stream", [](const Stream& s) { set_default_stream(s); }, nb::arg("stream"));
  m.def(
      "new_stream", [](const DeviceArg& d) { return new_stream(to_device(d)); }, nb::arg("device"));
  m.def(
      "new_thread_unsafe_stream", [](const DeviceArg& d) { return new_stream(to_device(d)); },
      nb::arg("device"), "The same as new_stream: any stream works on any thread.");
  m.def(
      "new_thread_local_stream",
      [](const DeviceArg& d) { return new_thread_local_stream(to_device(d)); }, nb::arg("device"));
  m.def(
      "clear_streams",
      [] {
        without_gil([] {
          clear_streams();
          return 0;
        });
      },
      "Waits for all streams and ends their workers.");
  m.def(
      "synchronize",
      [](nb::handle stream) {
        const StreamOrDevice target = to_stream_arg(stream);
        without_gil([&] {
          synchronize(to_stream(target));
          return 0;
        });
      },
      nb::arg("stream") = nb::none(), "Waits until the work queued on the stream is done.");
  nb::class_<PyStreamContext>(m, "StreamContext",
                              "Makes a stream or device the default for a scope.")
      .def(
          "__init__",
          [](PyStreamContext* self, nb::handle s) {
            const StreamOrDevice target = to_stream_arg(s);
            if (!std::holds_alternative<std::monostate>(target))
              to_stream(target);  // raises if absent
            new (self) PyStreamContext{target, nullptr};
          },
          nb::arg("s"))
      .def("__enter__",
           [](PyStreamContext& c) { c.active = std::make_unique<StreamContext>(c.target); })
      .def("__exit__", [](PyStreamContext& c, nb::args) { c.active.reset(); });
  m.def(
      "stream", [m](nb::handle s) { return m.attr("StreamContext")(s); }, nb::arg("s"),
      "A context manager: `with mx.stream(mx.cpu): ...`.");
}

}  // namespace cermet::python
