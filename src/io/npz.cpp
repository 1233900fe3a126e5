// SPDX-License-Identifier: MIT
// Zip archives as NumPy writes and reads them: stored or deflated members, no encryption, ZIP64 where a
// size or an offset needs it. Members are written from memory, so their sizes and checks precede them.
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/npy.h"
#include "ops/ops.h"
#include "runtime/poll.h"

namespace cermet::io {

namespace {

constexpr uint32_t kLocalMark = 0x04034b50, kCentralMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr uint32_t kEnd64Mark = 0x06064b50, kLocator64Mark = 0x07064b50;
constexpr uint32_t kFull32 = 0xffffffff;
constexpr uint16_t kFull16 = 0xffff, kStored = 0, kDeflated = 8, kUtf8 = 1 << 11, kEncrypted = 1;
constexpr uint16_t kDate = 1 << 5 | 1;  // 1 January 1980: equal arrays make equal files
constexpr uint64_t kMaxTail = 22 + 65535;
constexpr size_t kChunk = size_t{1} << 18;
constexpr size_t kPart = size_t{1} << 24;  // looked through between looks for Ctrl-C
constexpr const char* kSuffix = ".npy";

uint32_t crc_of(uint32_t crc, const void* data, size_t size, const char* op) {
  const auto* from = static_cast<const Bytef*>(data);
  while (size > 0) {
    check_cancelled(op);
    const size_t part = std::min(size, kPart);
    crc = static_cast<uint32_t>(crc32_z(crc, from, part));
    from += part;
    size -= part;
  }
  return crc;
}

// --- writing ---

// Little-endian fields.
class Record {
 public:
  Record& u16(uint64_t v) { return put(v, 2); }
  Record& u32(uint64_t v) { return put(v, 4); }
  Record& u64(uint64_t v) { return put(v, 8); }
  Record& text(std::string_view s) {
    bytes_ += s;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& put(uint64_t v, int n) {
    for (int i = 0; i < n; i++) bytes_ += static_cast<char>(v >> (8 * i) & 0xff);
    return *this;
  }
  std::string bytes_;
};

class MeasuringWriter : public Writer {
 public:
  void write(const void* data, size_t size) override {
    crc = crc_of(crc, data, size, "savez");
    this->size += size;
  }
  uint32_t crc = 0;
  uint64_t size = 0;
};

class DeflatingWriter : public Writer {
 public:
  DeflatingWriter() {
    const int window = -15;  // raw: zip has its own frame
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK)
      fail(ErrorKind::memory, "savez_compressed",
           "no memory for the compressor; mx.savez needs none");
  }
  ~DeflatingWriter() override { deflateEnd(&stream_); }
  DeflatingWriter(const DeflatingWriter&) = delete;
  DeflatingWriter& operator=(const DeflatingWriter&) = delete;

  void write(const void* data, size_t size) override {
    const auto* from = static_cast<const char*>(data);
    while (size > 0) {
      const size_t part = std::min(size, kPart);
      run(from, part, Z_NO_FLUSH);
      from += part;
      size -= part;
    }
  }
  std::string finish() {
    run(nullptr, 0, Z_FINISH);
    return std::move(bytes_);
  }

 private:
  void run(const char* data, size_t size, int flush) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data));
    stream_.avail_in = static_cast<uInt>(size);
    std::string out(kChunk, '\0');
    do {
      check_cancelled("savez_compressed");
      stream_.next_out = reinterpret_cast<Bytef*>(out.data());
      stream_.avail_out = static_cast<uInt>(out.size());
      deflate(&stream_, flush);
      bytes_.append(out, 0, out.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

  z_stream stream_{};
  std::string bytes_;
};

struct Member {
  std::string name;
  uint16_t method = kStored, flags = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, offset = 0;
};

bool is_big(uint64_t v) { return v >= kFull32; }
uint64_t field32(uint64_t v) { return is_big(v) ? kFull32 : v; }

std::string local_header(const Member& m) {
  const bool wide = is_big(m.size) || is_big(m.packed);
  Record r;
  r.u32(kLocalMark).u16(wide ? 45 : 20).u16(kUtf8).u16(m.method).u16(0).u16(kDate).u32(m.crc);
  r.u32(wide ? kFull32 : m.packed)
      .u32(wide ? kFull32 : m.size)
      .u16(m.name.size())
      .u16(wide ? 20 : 0);
  r.text(m.name);
  if (wide) r.u16(1).u16(16).u64(m.size).u64(m.packed);
  return r.bytes();
}

std::string central_header(const Member& m) {
  Record extra;
  for (uint64_t v : {m.size, m.packed, m.offset})
    if (is_big(v)) extra.u64(v);
  const size_t n = extra.bytes().size();
  constexpr uint64_t kUnixRegular = uint64_t{0100644} << 16;
  Record r;
  r.u32(kCentralMark)
      .u16(3 << 8 | 45)
      .u16(n > 0 ? 45 : 20)
      .u16(kUtf8)
      .u16(m.method)
      .u16(0)
      .u16(kDate);
  r.u32(m.crc)
      .u32(field32(m.packed))
      .u32(field32(m.size))
      .u16(m.name.size())
      .u16(n > 0 ? n + 4 : 0);
  r.u16(0).u16(0).u16(0).u32(kUnixRegular).u32(field32(m.offset)).text(m.name);
  if (n > 0) r.u16(1).u16(n).text(extra.bytes());
  return r.bytes();
}

std::string end_records(uint64_t count, uint64_t start, uint64_t size) {
  Record r;
  if (count >= kFull16 || is_big(start) || is_big(size)) {
    r.u32(kEnd64Mark)
        .u64(44)
        .u16(45)
        .u16(45)
        .u32(0)
        .u32(0)
        .u64(count)
        .u64(count)
        .u64(size)
        .u64(start);
    r.u32(kLocator64Mark).u32(0).u64(start + size).u32(1);
  }
  const uint64_t shown = std::min<uint64_t>(count, kFull16);
  r.u32(kEndMark).u16(0).u16(0).u16(shown).u16(shown).u32(field32(size)).u32(field32(start)).u16(0);
  return r.bytes();
}

// Writes the member and returns how many bytes it took.
uint64_t write_member(Writer& out, const array& a, bool compressed, Member& m) {
  MeasuringWriter measure;
  write_npy(measure, a);
  m.crc = measure.crc;
  m.size = m.packed = measure.size;
  std::string deflated;
  if (compressed) {
    DeflatingWriter deflating;
    write_npy(deflating, a);
    deflated = deflating.finish();
    m.method = kDeflated;
    m.packed = deflated.size();
  }
  const std::string header = local_header(m);
  out.write(header.data(), header.size());
  if (compressed) out.write(deflated.data(), deflated.size());
  else write_npy(out, a);
  return header.size() + m.packed;
}

// --- reading ---

[[noreturn]] void broken(const char* why) {
  fail(ErrorKind::value, "load",
       "the data is no .npz archive that can be read: {}; it must be a whole zip archive of .npy "
       "members",
       why);
}

// Little-endian fields of bytes that are there.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}
  uint64_t u16() { return take(2); }
  uint64_t u32() { return take(4); }
  uint64_t u64() { return take(8); }
  std::string_view text(size_t n) {
    if (n > bytes_.size()) broken("a record is cut off");
    const std::string_view s = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return s;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  uint64_t take(size_t n) {
    uint64_t v = 0;
    const std::string_view s = text(n);
    for (size_t i = 0; i < n; i++) v |= uint64_t{static_cast<unsigned char>(s[i])} << (8 * i);
    return v;
  }
  std::string_view bytes_;
};

std::string read_at(SeekableReader& in, uint64_t offset, uint64_t size) {
  if (offset > in.size() || size > in.size() - offset) broken("a record lies outside the file");
  std::string bytes(size, '\0');
  in.seek(offset);
  in.read(bytes.data(), size);
  return bytes;
}

struct Directory {
  uint64_t count = 0, size = 0, start = 0;
};

Directory find_directory(SeekableReader& in) {
  const uint64_t tail_size = std::min(in.size(), kMaxTail);
  const uint64_t tail_start = in.size() - tail_size;
  const std::string tail = read_at(in, tail_start, tail_size);
  const size_t at = tail.rfind("PK\x05\x06");
  if (at == std::string::npos || tail.size() - at < 22) broken("it has no directory");
  Fields f(std::string_view(tail).substr(at + 10));
  Directory d;
  d.count = f.u16();
  d.size = f.u32();
  d.start = f.u32();
  const uint64_t end = tail_start + at;
  if (end < 20) return d;
  const std::string locator = read_at(in, end - 20, 20);
  Fields l(locator);
  if (l.u32() != kLocator64Mark) return d;
  l.u32();
  const std::string end64 = read_at(in, l.u64(), 56);
  Fields e(std::string_view(end64).substr(32));
  d.count = e.u64();
  d.size = e.u64();
  d.start = e.u64();
  return d;
}

void read_wide_fields(std::string_view extra, Member& m) {
  for (Fields f(extra); !f.empty();) {
    const uint64_t id = f.u16();
    Fields body(f.text(f.u16()));
    if (id != 1) continue;
    for (uint64_t* v : {&m.size, &m.packed, &m.offset})
      if (*v == kFull32) *v = body.u64();
  }
}

Member read_central(Fields& f) {
  if (f.u32() != kCentralMark) broken("its directory is damaged");
  Member m;
  f.u16();
  f.u16();
  m.flags = static_cast<uint16_t>(f.u16());
  m.method = static_cast<uint16_t>(f.u16());
  f.u32();
  m.crc = static_cast<uint32_t>(f.u32());
  m.packed = f.u32();
  m.size = f.u32();
  const uint64_t name = f.u16(), extra = f.u16(), comment = f.u16();
  f.u64();
  m.offset = f.u32();
  m.name = f.text(name);
  read_wide_fields(f.text(extra), m);
  f.text(comment);
  return m;
}

// The bytes of a member, checked against its sum at the end.
class MemberReader : public Reader {
 public:
  MemberReader(SeekableReader& in, const Member& m)
      : in_(in), member_(m), packed_left_(m.packed), left_(m.size) {
    const std::string local = read_at(in, m.offset, 30);
    Fields f(local);
    if (f.u32() != kLocalMark) broken("a member is not where the directory says");
    f.text(22);
    const uint64_t name = f.u16(), extra = f.u16();
    const uint64_t data = m.offset + 30 + name + extra;
    if (data > in.size() || m.packed > in.size() - data) broken("a member lies outside the file");
    in.seek(data);
    if (m.method == kDeflated && inflateInit2(&stream_, -15) != Z_OK)
      fail(ErrorKind::memory, "load",
           "no memory for the decompressor; free some, or save by mx.savez");
  }
  ~MemberReader() override {
    if (member_.method == kDeflated) inflateEnd(&stream_);
  }
  MemberReader(const MemberReader&) = delete;
  MemberReader& operator=(const MemberReader&) = delete;

  std::optional<uint64_t> remaining() const override { return left_; }

  size_t read_some(void* to, size_t size) override {
    size = static_cast<size_t>(std::min<uint64_t>(size, left_));
    const size_t got =
        member_.method == kDeflated ? inflate_some(to, size) : in_.read_some(to, size);
    crc_ = crc_of(crc_, to, got, "load");
    left_ -= got;
    return got;
  }

  void check() const {
    CERMET_CHECK(left_ == 0 && crc_ == member_.crc, value, "load",
                 "the member '{}' is damaged: its check sum is wrong; write or get the file anew",
                 member_.name);
  }

 private:
  size_t inflate_some(void* to, size_t size) {
    size_t done = 0;
    while (done < size) {
      check_cancelled("load");
      if (stream_.avail_in == 0) refill();
      const size_t part = std::min(size - done, kPart);
      stream_.next_out = static_cast<Bytef*>(to) + done;
      stream_.avail_out = static_cast<uInt>(part);
      const int state = inflate(&stream_, Z_NO_FLUSH);
      const size_t made = part - stream_.avail_out;
      done += made;
      if (state == Z_STREAM_END || (made == 0 && stream_.avail_in == 0 && packed_left_ == 0)) break;
      if (state != Z_OK && state != Z_BUF_ERROR) broken("a member's compressed data is damaged");
    }
    return done;
  }

  void refill() {
    input_.resize(static_cast<size_t>(std::min<uint64_t>(kChunk, packed_left_)));
    if (!input_.empty()) in_.read(input_.data(), input_.size());
    packed_left_ -= input_.size();
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(input_.size());
  }

  SeekableReader& in_;
  const Member& member_;
  uint64_t packed_left_, left_;
  uint32_t crc_ = 0;
  z_stream stream_{};
  std::string input_;
};

void check_readable(const Member& m) {
  CERMET_CHECK((m.flags & kEncrypted) == 0, value, "load",
               "the member '{}' is encrypted; it must be stored without a password", m.name);
  CERMET_CHECK(
      m.method == kStored || m.method == kDeflated, value, "load",
      "the member '{}' is compressed by method {}; stored and deflated members can be read", m.name,
      m.method);
  CERMET_CHECK(m.method != kStored || m.packed == m.size, value, "load",
               "the member '{}' has two sizes: {} and {}; a stored member must have one", m.name,
               m.packed, m.size);
}

}  // namespace

void write_npz(Writer& out, const NamedArrays& arrays, bool compressed) {
  std::string directory;
  uint64_t position = 0;
  for (const auto& [name, a] : arrays) {
    Member m;
    m.name = name + kSuffix;
    m.offset = position;
    CERMET_CHECK(m.name.size() < kFull16, value, "savez",
                 "a name has {} bytes; at most {} can be stored", name.size(), kFull16 - 5);
    position += write_member(out, contiguous(a), compressed, m);
    directory += central_header(m);
  }
  directory += end_records(arrays.size(), position, directory.size());
  out.write(directory.data(), directory.size());
}

NamedArrays read_npz(SeekableReader& in) {
  const Directory d = find_directory(in);
  const std::string directory = read_at(in, d.start, d.size);
  Fields f(directory);
  NamedArrays arrays;
  for (uint64_t i = 0; i < d.count; i++) {
    Member m = read_central(f);
    if (m.name.ends_with('/')) continue;  // a folder
    check_readable(m);
    MemberReader member(in, m);
    array a = read_npy(member);
    member.check();
    std::string name = m.name.ends_with(kSuffix) ? m.name.substr(0, m.name.size() - 4) : m.name;
    arrays.emplace_back(std::move(name), std::move(a));
  }
  return arrays;
}

}  // namespace cermet::io
