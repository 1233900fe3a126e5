// SPDX-License-Identifier: MIT
#include "io/stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "runtime/poll.h"

namespace cermet::io {

namespace {

constexpr size_t kMaxCall = size_t{1} << 24;  // one read or write, between looks for Ctrl-C

std::string system_error() { return std::strerror(errno); }

// The file itself where `path` is a link to it, so that the link stays.
std::string resolved(const std::string& path) {
  char full[PATH_MAX];
  return realpath(path.c_str(), full) != nullptr ? std::string(full) : path;
}

std::string temporary_name(const std::string& path) {
  static constinit std::atomic<int> count{0};
  return fmt::format("{}.{}-{}.tmp", path, getpid(), count.fetch_add(1));
}

}  // namespace

void Reader::read(void* to, size_t size) {
  const size_t got = read_some(to, size);
  CERMET_CHECK(got == size, value, "load",
               "the file ends {} bytes early; it is truncated or no array file", size - got);
}

FileWriter::FileWriter(const std::string& path) : path_(path) {
  struct stat info{};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    if (exists) path_ = resolved(path);
    temporary_ = temporary_name(path_);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (exists && file_ >= 0) (void)!fchmod(file_, info.st_mode & 07777);
  }
  CERMET_CHECK(file_ >= 0, io, "save",
               "cannot write '{}': {}; name a file in a folder that may be written to", path,
               system_error());
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void FileWriter::write(const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    check_cancelled("save");
    const ssize_t written = ::write(file_, from, std::min(size, kMaxCall));
    if (written < 0 && errno == EINTR) continue;
    CERMET_CHECK(written >= 0, io, "save", "cannot write '{}': {}; name a file where there is room",
                 path_, system_error());
    from += written;
    size -= static_cast<size_t>(written);
  }
}

void FileWriter::commit() {
  const int closed = close(std::exchange(file_, -1));
  const bool done =
      closed == 0 && (temporary_.empty() || rename(temporary_.c_str(), path_.c_str()) == 0);
  if (done) return;
  const std::string why = system_error();
  if (!temporary_.empty()) unlink(temporary_.c_str());
  fail(ErrorKind::io, "save", "cannot write '{}': {}; name a file where there is room", path_, why);
}

FileReader::FileReader(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  CERMET_CHECK(file_ >= 0, io, "load",
               "cannot read '{}': {}; name a file that is there and may be read", path,
               system_error());
  struct stat info{};
  const bool regular = fstat(file_, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular) close(std::exchange(file_, -1));
  CERMET_CHECK(
      regular, io, "load",
      "cannot read '{}': it is not a regular file; name one, or pass a file opened in binary mode",
      path);
  size_ = static_cast<uint64_t>(info.st_size);
}

FileReader::~FileReader() {
  if (file_ >= 0) close(file_);
}

size_t FileReader::read_some(void* to, size_t size) {
  size_t got = 0;
  while (got < size) {
    check_cancelled("load");
    const ssize_t n = pread(file_, static_cast<char*>(to) + got, std::min(size - got, kMaxCall),
                            static_cast<off_t>(position_));
    if (n < 0 && errno == EINTR) continue;
    CERMET_CHECK(n >= 0, io, "load", "cannot read '{}': {}; copy it to another disk", path_,
                 system_error());
    if (n == 0) break;
    got += static_cast<size_t>(n);
    position_ += static_cast<uint64_t>(n);
  }
  return got;
}

size_t MemoryReader::read_some(void* to, size_t size) {
  const size_t got =
      position_ >= size_ ? 0 : static_cast<size_t>(std::min<uint64_t>(size, size_ - position_));
  if (got > 0) std::memcpy(to, data_ + position_, got);
  position_ += got;
  return got;
}

}  // namespace cermet::io
