// SPDX-License-Identifier: MIT
// save, savez, savez_compressed and load, to paths and to Python's file objects.
#include <algorithm>

#include "bind.h"
#include "io/npy.h"
#include "runtime/poll.h"

namespace cermet::python {

namespace {

class PyWriter : public io::Writer {
 public:
  explicit PyWriter(nb::handle file) : write_(file.attr("write")) {}

  void write(const void* data, size_t size) override {
    const char* from = static_cast<const char*>(data);
    while (size > 0) {
      check_cancelled("save");
      const size_t part = std::min(size, kPart);
      const nb::object written = give(nb::bytes(from, part));
      // Unbuffered files may take less than all.
      const int64_t taken = PyLong_Check(written.ptr())
                                ? to_int("save", "what write() gives", written)
                                : static_cast<int64_t>(part);
      CERMET_CHECK(taken > 0 && taken <= static_cast<int64_t>(part), io, "save",
                   "the file object took {} of {} bytes; write() must take some, and give how many",
                   taken, part);
      from += taken;
      size -= static_cast<size_t>(taken);
    }
  }

 private:
  nb::object give(const nb::bytes& part) {
    try {
      return write_(part);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      fail(ErrorKind::type, "save", "the file object takes no bytes ({}); open it in binary mode",
           nb::str(error.value()).c_str());
    }
  }

  static constexpr size_t kPart = size_t{1} << 24;
  nb::object write_;
};

class PyReader : public io::Reader {
 public:
  explicit PyReader(nb::handle file) : read_(file.attr("read")) {}

  size_t read_some(void* to, size_t size) override {
    size_t got = std::min(size, begin_.size());
    std::copy_n(begin_.data(), got, static_cast<char*>(to));
    begin_.erase(0, got);
    while (got < size) {
      const std::string part = read(size - got);
      if (part.empty()) break;
      std::copy_n(part.data(), part.size(), static_cast<char*>(to) + got);
      got += part.size();
    }
    return got;
  }

  // The next bytes, which stay to be read.
  const std::string& peek(size_t size) {
    while (begin_.size() < size) {
      const std::string part = read(size - begin_.size());
      if (part.empty()) break;
      begin_ += part;
    }
    return begin_;
  }

  std::string rest() {
    std::string all = std::move(begin_);
    begin_.clear();
    for (std::string part = read(kPart); !part.empty(); part = read(kPart)) all += part;
    return all;
  }

 private:
  std::string read(size_t size) {
    check_cancelled("load");
    const nb::object bytes = read_(std::min(size, kPart));
    CERMET_CHECK(nb::isinstance<nb::bytes>(bytes), type, "load",
                 "the file object gives {}; open it in binary mode", type_of(bytes));
    const nb::bytes b = nb::borrow<nb::bytes>(bytes);
    CERMET_CHECK(
        b.size() <= size, io, "load",
        "the file object gives {} bytes where {} were asked for; read(n) must give n at most",
        b.size(), size);
    return {b.c_str(), b.size()};
  }

  static constexpr size_t kPart = size_t{1} << 24;
  nb::object read_;
  std::string begin_;
};

std::optional<std::string> to_path(const char* op, nb::handle file, const char* method) {
  std::optional<std::string> path;
  if (nb::isinstance<nb::str>(file)) path = nb::cast<std::string>(file);
  else if (nb::hasattr(file, "__fspath__"))
    path = nb::cast<std::string>(nb::str(file.attr("__fspath__")()));
  if (path) {
    CERMET_CHECK(path->find('\0') == std::string::npos, value, op,
                 "the path has a null character; leave it out");
    return path;
  }
  CERMET_CHECK(nb::hasattr(file, method), type, op,
               "{} was given; it must be a path or a file object with {}()", type_of(file), method);
  return std::nullopt;
}

void save_array(nb::handle file, const array& a) {
  const std::optional<std::string> path = to_path("save", file, "write");
  without_gil([&] {
    a.eval();
    return 0;
  });
  if (path) {
    without_gil([&] {
      save(*path, a);
      return 0;
    });
    return;
  }
  PyWriter out(file);
  io::write_npy(out, a);
}

void save_archive(const char* op, nb::handle file, nb::args args, nb::kwargs kwargs,
                  bool compressed) {
  io::NamedArrays arrays;
  for (size_t i = 0; i < args.size(); i++) {
    const std::string name = fmt::format("arr_{}", i);
    CERMET_CHECK(!kwargs.contains(name.c_str()), value, op,
                 "the name '{}' belongs to an argument without a name; choose another", name);
    arrays.emplace_back(name, to_array(args[i]));
  }
  for (auto [name, value] : kwargs)
    arrays.emplace_back(nb::cast<std::string>(name), to_array(value));
  const std::optional<std::string> path = to_path(op, file, "write");
  if (path) {
    without_gil([&] {
      savez(*path, arrays, compressed);
      return 0;
    });
    return;
  }
  PyWriter out(file);
  io::write_npz(out, arrays, compressed);
}

nb::dict to_dict(const io::NamedArrays& arrays) {
  nb::dict dict;
  for (const auto& [name, a] : arrays) {
    const auto size = static_cast<Py_ssize_t>(name.size());
    const nb::object text = nb::steal(PyUnicode_DecodeUTF8(name.data(), size, nullptr));
    if (!text.is_valid()) {
      PyErr_Clear();
      fail(ErrorKind::value, "load", "the name of array {} is not UTF-8; write the file anew",
           nb::len(dict));
    }
    dict[text] = nb::cast(a);
  }
  return dict;
}

[[noreturn]] void unknown_format(const std::string& what) {
  fail(ErrorKind::value, "load", "{}; the formats are npy and npz", what);
}

std::string format_of_path(const std::string& path) {
  const size_t slash = path.rfind('/'), dot = path.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash))
    unknown_format(fmt::format("'{}' has no suffix that names its format", path));
  return path.substr(dot + 1);
}

nb::object load_path(const std::string& path, const std::string& format) {
  if (format == "npy") return nb::cast(without_gil([&] { return load(path); }));
  if (format == "npz") return to_dict(without_gil([&] { return load_npz(path); }));
  unknown_format(fmt::format("the format '{}' of '{}' is not known", format, path));
}

nb::object load_object(nb::handle file, std::string format) {
  PyReader in(file);
  if (format.empty()) format = in.peek(2) == "PK" ? "npz" : "npy";
  if (format == "npy") return nb::cast(io::read_npy(in));
  if (format != "npz") unknown_format(fmt::format("the format '{}' is not known", format));
  const std::string all = in.rest();
  io::MemoryReader memory(all.data(), all.size());
  return to_dict(io::read_npz(memory));
}

nb::object load_any(nb::handle file, const std::optional<std::string>& format, bool return_metadata,
                    nb::handle) {
  const std::optional<std::string> path = to_path("load", file, "read");
  const std::string name = format ? *format : path ? format_of_path(*path) : std::string();
  CERMET_CHECK(!return_metadata, value, "load",
               "{} files hold no metadata; use return_metadata=False",
               name.empty() ? "npy and npz" : name);
  return path ? load_path(*path, name) : load_object(file, name);
}

}  // namespace

void init_io(nb::module_& m) {
  using nb::arg;
  m.def(
      "save", &save_array, arg("file"), arg("arr"),
      "Saves an array as .npy (the suffix is added to a path). The file is complete or as before.");
  m.def(
      "savez",
      [](nb::handle file, nb::args args, nb::kwargs kwargs) {
        save_archive("savez", file, args, kwargs, false);
      },
      arg("file"), arg("args"), arg("kwargs"),
      "Saves several arrays as .npz, by name or as arr_0, arr_1, ...");
  m.def(
      "savez_compressed",
      [](nb::handle file, nb::args args, nb::kwargs kwargs) {
        save_archive("savez_compressed", file, args, kwargs, true);
      },
      arg("file"), arg("args"), arg("kwargs"), "As savez, compressed.");
  m.def("load", &load_any, arg("file"), arg("format") = nb::none(), arg("return_metadata") = false,
        nb::kw_only(), arg("stream") = nb::none(),
        "The array of a .npy file, or a dict of the arrays of a .npz file.");
}

}  // namespace cermet::python
