// SPDX-License-Identifier: MIT
// Bytes in and out, whatever holds them: files, memory, objects of the language faces.
// A file appears under its name when it is complete, or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cermet::io {

class Writer {
 public:
  virtual ~Writer() = default;
  virtual void write(const void* data, size_t size) = 0;
};

class Reader {
 public:
  virtual ~Reader() = default;
  // Up to `size` bytes from here on, fewer only at the end.
  virtual size_t read_some(void* to, size_t size) = 0;
  // Bytes from here to the end, where known.
  virtual std::optional<uint64_t> remaining() const { return {}; }
  // Exactly `size` bytes; raises [load] value when there are fewer.
  void read(void* to, size_t size);
};

// A reader that can go anywhere.
class SeekableReader : public Reader {
 public:
  virtual void seek(uint64_t position) = 0;
  virtual uint64_t size() const = 0;
};

// Writes beside `path` and renames on commit(); without it, nothing is left. What is no regular file
// (a pipe, a device) is written directly. All raise [save] io.
class FileWriter : public Writer {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter() override;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t size) override;
  void commit();

 private:
  std::string path_;
  std::string temporary_;  // empty: written directly
  int file_ = -1;
};

// Raises [load] io.
class FileReader : public SeekableReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader() override;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  size_t read_some(void* to, size_t size) override;
  std::optional<uint64_t> remaining() const override { return size_ - position_; }
  void seek(uint64_t position) override { position_ = position; }
  uint64_t size() const override { return size_; }

 private:
  std::string path_;
  int file_ = -1;
  uint64_t position_ = 0;
  uint64_t size_ = 0;
};

// Bytes that the caller keeps.
class MemoryReader : public SeekableReader {
 public:
  MemoryReader(const void* data, size_t size)
      : data_(static_cast<const char*>(data)), size_(size) {}
  size_t read_some(void* to, size_t size) override;
  std::optional<uint64_t> remaining() const override { return size_ - position_; }
  void seek(uint64_t position) override { position_ = position; }
  uint64_t size() const override { return size_; }

 private:
  const char* data_;
  uint64_t size_;
  uint64_t position_ = 0;
};

}  // namespace cermet::io
