// SPDX-License-Identifier: MIT
#include "runtime/buffer.h"

#include <memory>
#include <mutex>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/block_cache.h"
#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/packed_cache.h"
#include "runtime/spin.h"

namespace cermet {
namespace {

struct Unused {
  SpinLock mutex;
  BufferList list;
};

Unused& unused() {
  static constinit ForkSafe<Unused> unused(ForkLevel::leaf);
  return unused.get();
}

}  // namespace

Buffer* Buffer::take() {
  {
    std::lock_guard lock(unused().mutex);
    if (!unused().list.empty()) return unused().list.pop();
  }
  return new Buffer;
}

void Buffer::put(Buffer* buffer) {
  std::lock_guard lock(unused().mutex);
  unused().list.push(buffer);
}

void Buffer::start(size_t size) {
  size_ = size;
  read_only_ = evictable_ = false;
  pins_.store(0, std::memory_order_relaxed);
  version_.store(version() + 1, std::memory_order_release);  // nobody else has it yet
  references_.store(1, std::memory_order_relaxed);
}

BufferRef Buffer::wrap(void* ptr, size_t size, Deleter deleter, Device device, bool read_only) {
  CERMET_CHECK(ptr != nullptr || size == 0, value, "buffer",
               "a null pointer to {} bytes; it must point to them", size);
  auto foreign = std::make_unique<Deleter>(std::move(deleter));
  Buffer* buffer = take();
  static constinit char nothing = 0;  // what an empty buffer points to
  buffer->data_ = ptr != nullptr ? ptr : &nothing;
  buffer->capacity_ = size;
  buffer->owner_ = nullptr;
  buffer->device_ = device;
  buffer->wrapped_ = ptr;
  buffer->foreign_ = foreign.release();
  buffer->start(size);
  buffer->read_only_ = read_only;
  return BufferRef(buffer);
}

void* Buffer::on(Device device, Access access) {
  CERMET_CHECK(device == device_, device, "buffer",
               "the bytes lie on {}, the work runs on {}; both must be on one device",
               to_string(device_), to_string(device));
  if (access == Access::write) new_version();
  return data_;
}

void Buffer::drop_packed() {
  packed_.store(false, std::memory_order_release);
  cermet::drop_packed(this);
}

void Buffer::destroy() {
  if (packed_.load(std::memory_order_acquire)) drop_packed();
  if (foreign_ == nullptr) {
    owner_->release(this);
    return;
  }
  std::unique_ptr<Deleter> deleter(std::exchange(foreign_, nullptr));
  void* wrapped = wrapped_;
  put(this);
  try {
    if (*deleter) (*deleter)(wrapped);
  } catch (...) {
    write_warning("the deleter of a wrapped buffer let an exception out");
  }
}

}  // namespace cermet
