// SPDX-License-Identifier: MIT
// The caching allocator, one per device: a fresh big block costs several times its use in page
// faults, so released blocks are kept. Small sizes go by classes, big ones by best fit within 1/8;
// a new block just above a kept one has that eighth of room, as sizes that grow will ask for it
// (while a quarter of the limit is free).
// The cache is bounded by its limit and by the recent peak of use, and drains within seconds when
// no big block is asked for. `active` is exact: the sum of the bytes asked for of live buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/buffer.h"
#include "runtime/device.h"
#include "runtime/memory_source.h"

namespace cermet {

struct BufferList;

struct MemoryStats {
  size_t active = 0;         // bytes asked for, of live buffers
  size_t peak = 0;           // the largest `active` since the start or reset_peak
  size_t cache = 0;          // bytes kept for reuse, evictable buffers among them
  size_t held = 0;           // bytes taken from the source: live blocks and the cache
  uint64_t allocations = 0;  // blocks taken from the source
  uint64_t hits = 0;         // blocks taken from the cache
};

class Allocator {
 public:
  // memory_limit: bytes that may be held; 0: nine tenths of what the machine and the process's
  // control group allow.
  Allocator(Device device, MemorySource& source, size_t memory_limit = 0);
  ~Allocator();  // no buffer may be alive
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Uninitialised memory, aligned to 64 bytes (guarded: see memory_source.h), with one reference.
  // When the limit or the source is exhausted, the cache is dropped and the allocation tried once
  // more; then it raises [op] memory with the size, and everything works on. Thread-safe, as is
  // all below.
  BufferRef allocate(size_t bytes, const char* op = "allocate");

  MemoryStats stats() const;
  void reset_peak();  // peak becomes 0, as in MLX; the next allocation sets it to `active`
  // Both return the limit before. A smaller cache limit takes effect at once.
  size_t set_memory_limit(size_t bytes);
  size_t memory_limit() const;
  size_t set_cache_limit(size_t bytes);
  size_t cache_limit() const;
  void clear_cache();
  // From now on the buffer counts as cache. Its owner lets go of it in drop_all_packed.
  void make_evictable(Buffer& buffer);
  // Gives back what the recent peak no longer justifies, at most each half second of now_ns (the
  // coarse monotonic clock). Called with big allocations and releases and, while the cache is
  // large, by a background thread.
  void decay(int64_t now_ns);

  Device device() const { return device_; }

 private:
  friend class Buffer;
  friend struct AllocatorRegistry;
  struct State;
  void release(Buffer* buffer);
  Buffer* obtain(size_t bytes, const char* op);
  void* obtain_with_room(size_t bytes);
  bool reserve(size_t capacity);
  bool reserve_beside_packed(size_t capacity);
  void give_back(BufferList& list);

  Device device_;
  MemorySource& source_;
  std::unique_ptr<State> state_;
};

// The process's allocator of a device; that of the CPU is made at first use, as CERMET_ALLOCATOR
// says. Raises [allocator] device when the device has none.
Allocator& allocator(Device device = Device::cpu);
// Called by a backend for each of its devices; the allocator must live for ever.
void register_allocator(Allocator& allocator);

// Over all devices.
size_t get_active_memory();
size_t get_peak_memory();
void reset_peak_memory();
size_t get_cache_memory();
void clear_cache();
// Of the default device. The setters return the limit before.
size_t set_memory_limit(size_t bytes);
size_t get_memory_limit();
size_t set_cache_limit(size_t bytes);
// Kept and returned; no device here wires memory.
size_t set_wired_limit(size_t bytes);

}  // namespace cermet
