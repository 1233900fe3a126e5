// SPDX-License-Identifier: MIT
#include "io/npy.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "ops/ops.h"
#include "runtime/allocator.h"

namespace cermet {

namespace io {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;  // of the data in the file
constexpr size_t kLongestHeader = 1 << 20;

std::string descr_of(Dtype dtype) {
  const char* kind = dtype == Dtype::boolean    ? "|b"
                     : dtype == Dtype::bfloat16 ? "<V"
                     : is_complex(dtype)        ? "<c"
                     : is_floating(dtype)       ? "<f"
                     : is_signed(dtype)         ? "<i"
                                                : "<u";
  const size_t bytes = size_of(dtype);
  return fmt::format("{}{}", bytes == 1 ? "|" + std::string(1, kind[1]) : kind, bytes);
}

struct Header {
  Dtype dtype = Dtype::float32;
  bool swapped = false;  // big-endian
  bool columns = false;  // column-major
  std::vector<int64_t> shape;
};

// '<f4' and the like.
void read_descr(const std::string& descr, Header& header) {
  const bool known_order = !descr.empty() && std::strchr("<>|=", descr[0]) != nullptr;
  const std::string plain = known_order ? descr.substr(1) : descr;
#define X(id, name, type, bytes, category) \
  if (plain == descr_of(Dtype::id).substr(1)) { \
    header.dtype = Dtype::id; \
    header.swapped = descr[0] == '>' && size_of(Dtype::id) > 1; \
    return; \
  }
  CERMET_DTYPES(X)
#undef X
  fail(ErrorKind::value, "load",
       "the file holds elements of type '{}'; booleans, integers, floats, complex "
       "numbers and bfloat16 ('<V2') can be read",
       descr);
}

// The header is a Python dictionary literal of three known keys.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Header parse() {
    Header header;
    int seen = 0;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      seen |= value(key, header);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (seen != 7) broken();
    return header;
  }

 private:
  int value(const std::string& key, Header& header) {
    if (key == "descr") return read_descr(peek() == '[' ? records() : string(), header), 1;
    if (key == "fortran_order") return header.columns = boolean(), 2;
    if (key == "shape") return header.shape = tuple(), 4;
    broken();
  }

  [[noreturn]] void broken() const {
    fail(ErrorKind::value, "load",
         "the header of the .npy data cannot be read: {}; it must be a dict of descr, "
         "fortran_order and shape",
         std::string(text_.substr(0, 100)));
  }

  [[noreturn]] static std::string records() {
    fail(ErrorKind::value, "load",
         "the file holds records of several fields; arrays of numbers can be read");
  }

  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) at_++;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) broken();
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') broken();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) broken();
    std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }

  bool boolean() {
    for (const bool b : {true, false}) {
      const std::string_view word = b ? "True" : "False";
      peek();
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return b;
    }
    broken();
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      sizes.push_back(integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  int64_t integer() {
    peek();
    int64_t n = 0;
    const size_t start = at_;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; at_++)
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, text_[at_] - '0', &n))
        broken();
    if (at_ == start) broken();
    accept('L');  // Python 2
    return n;
  }

  std::string_view text_;
  size_t at_ = 0;
};

Header read_header(Reader& in) {
  unsigned char start[8];
  const size_t got = in.read_some(start, sizeof start);
  CERMET_CHECK(got == sizeof start && std::memcmp(start, kMagic.data(), kMagic.size()) == 0, value,
               "load", "the data does not begin with NumPy's mark; it is no .npy file");
  const int version = start[6];
  CERMET_CHECK(version >= 1 && version <= 3, value, "load",
               ".npy version {}.{} is not known; 1.0, 2.0 and 3.0 are", version, int{start[7]});
  unsigned char length[4] = {};
  in.read(length, version == 1 ? 2 : 4);
  const size_t size = length[0] | length[1] << 8 | length[2] << 16 | size_t{length[3]} << 24;
  CERMET_CHECK(size <= kLongestHeader, value, "load",
               "a .npy header of {} bytes; {} at most are read", size, kLongestHeader);
  std::string text(size, '\0');
  in.read(text.data(), size);
  return HeaderParser(text).parse();
}

std::string header_text(const array& a) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                 descr_of(a.dtype()), a.shape());
  const size_t fixed = kMagic.size() + 4;
  const size_t total = (fixed + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(total - fixed - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

void swap_bytes(char* data, size_t bytes, Dtype dtype) {
  const size_t width = is_complex(dtype) ? size_of(dtype) / 2 : size_of(dtype);
  for (size_t i = 0; i < bytes; i += width) std::reverse(data + i, data + i + width);
}

Layout column_major(const Shape& shape) {
  Layout layout;
  int64_t stride = 1;
  for (int64_t size : shape) {
    layout.strides.push_back(stride);
    stride *= std::max<int64_t>(size, 1);
  }
  return layout;
}

}  // namespace

void write_npy(Writer& out, const array& a) {
  const array data = contiguous(a);
  data.eval();
  const std::string header = header_text(data);
  out.write(header.data(), header.size());
  out.write(data.data(), data.nbytes());
}

array read_npy(Reader& in) {
  const Header header = read_header(in);
  const Shape shape{std::span<const int64_t>(header.shape)};
  check_size("load", shape, header.dtype);
  const size_t bytes = static_cast<size_t>(shape.size()) * size_of(header.dtype);
  const std::optional<uint64_t> left = in.remaining();
  CERMET_CHECK(!left || *left >= bytes, value, "load",
               "the file ends early: shape {} of {} needs {} bytes, {} are there; write or get the "
               "file anew",
               shape, header.dtype, bytes, *left);
  BufferRef buffer = allocator(Device::cpu).allocate(bytes, "load");
  char* data = static_cast<char*>(buffer->data());
  in.read(data, bytes);
  if (header.swapped) swap_bytes(data, bytes, header.dtype);
  Layout layout = header.columns ? column_major(shape) : Layout::contiguous(shape);
  return array::from_buffer(std::move(buffer), shape, std::move(layout), header.dtype);
}

}  // namespace io

namespace {

std::string with_suffix(const std::string& file, std::string_view suffix) {
  return file.ends_with(suffix) ? file : file + std::string(suffix);
}

}  // namespace

void save(const std::string& file, const array& a) {
  a.eval();  // an error in the evaluation touches no file
  io::FileWriter out(with_suffix(file, ".npy"));
  io::write_npy(out, a);
  out.commit();
}

void savez(const std::string& file, const io::NamedArrays& arrays, bool compressed) {
  for (const auto& [name, a] : arrays) a.eval();
  io::FileWriter out(with_suffix(file, ".npz"));
  io::write_npz(out, arrays, compressed);
  out.commit();
}

array load(const std::string& file) {
  io::FileReader in(file);
  return io::read_npy(in);
}

io::NamedArrays load_npz(const std::string& file) {
  io::FileReader in(file);
  return io::read_npz(in);
}

}  // namespace cermet
