// SPDX-License-Identifier: MIT
// A Buffer is one block of memory on a device, counted by BufferRef. It comes from an Allocator, to
// which it returns with its last reference, or it wraps memory that somebody else owns.
// Invariant: while a reference lives, no other buffer shares its bytes (wrapped memory apart).
// Buffer objects are reused but never freed, and versions never repeat: (address, version) names a
// content.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "runtime/device.h"

namespace cermet {

class Allocator;
class BufferRef;

enum class Access : uint8_t { read, write };

class Buffer {
 public:
  using Deleter = std::function<void(void*)>;

  // Memory owned elsewhere; deleter (may be empty) is called with ptr when the last reference goes,
  // on whichever thread that is. Not counted as active memory. Read-only memory is for pinned buffers
  // alone, which nothing here writes; whom it is shown to must not write it either.
  static BufferRef wrap(void* ptr, size_t size, Deleter deleter, Device device = Device::cpu,
                        bool read_only = false);

  // Never null, also for size 0.
  void* data() const { return data_; }
  // data() for work on a device; access write starts a new version. Raises [buffer] device when the
  // bytes lie on another device.
  void* on(Device device, Access access);
  size_t size() const { return size_; }          // bytes asked for
  size_t capacity() const { return capacity_; }  // bytes that may be used, >= size
  Device device() const { return device_; }
  bool foreign() const { return foreign_ != nullptr; }
  bool read_only() const { return read_only_; }

  // A pinned buffer is never donated or moved: its address is known outside (NumPy, DLPack).
  void pin() { pins_.fetch_add(1, std::memory_order_relaxed); }
  // What was outside may have written it.
  void unpin() {
    new_version();
    pins_.fetch_sub(1, std::memory_order_release);
  }
  bool pinned() const { return pins_.load(std::memory_order_acquire) != 0; }

  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  // The one who writes calls it; writers of one buffer are ordered by the caller.
  void new_version() {
    version_.fetch_add(1, std::memory_order_acq_rel);
    if (packed_.load(std::memory_order_acquire)) drop_packed();
  }
  // A packing made from it is kept (packed_cache.h): to be dropped with the version.
  void set_packed() { packed_.store(true, std::memory_order_release); }

  bool unique() const { return references_.load(std::memory_order_acquire) == 1; }

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

 private:
  friend class Allocator;
  friend class BufferRef;
  friend class BlockCache;
  friend struct BufferList;
  Buffer() = default;
  static Buffer* take();     // an unused Buffer object
  static void put(Buffer*);  // gives it back for reuse; it keeps its version
  void start(size_t size);   // a new life: one reference, no pins, a new version
  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release();
  void destroy();  // last reference gone
  void drop_packed();

  std::atomic<uint32_t> references_{0};
  std::atomic<uint32_t> pins_{0};
  void* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  std::atomic<uint64_t> version_{0};
  std::atomic<bool> packed_{false};
  bool evictable_ = false;  // counted as cache
  Allocator* owner_ = nullptr;
  Deleter* foreign_ = nullptr;
  bool read_only_ = false;
  union {
    Buffer* next_ = nullptr;  // while unused or cached
    void* wrapped_;           // while it wraps: what the deleter gets
  };
  Buffer* prev_ = nullptr;
  Device device_;
};

// A counted reference; may be null. Copying and dropping are thread-safe, one object is not.
class BufferRef {
 public:
  BufferRef() = default;
  BufferRef(std::nullptr_t) {}
  BufferRef(const BufferRef& other) : buffer_(other.buffer_) {
    if (buffer_ != nullptr) buffer_->retain();
  }
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() {
    if (buffer_ != nullptr) buffer_->release();
  }

  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }
  bool operator==(const BufferRef&) const = default;
  void reset() { *this = BufferRef(); }

 private:
  friend class Allocator;
  friend class Buffer;
  explicit BufferRef(Buffer* counted) : buffer_(counted) {}  // takes over one reference

  Buffer* buffer_ = nullptr;
};

inline void Buffer::release() {
  // A sole owner needs no atomic subtraction: nobody else can make a reference any more.
  if (references_.load(std::memory_order_acquire) == 1 ||
      references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    destroy();
  }
}

}  // namespace cermet
