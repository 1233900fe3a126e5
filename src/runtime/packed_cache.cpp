// SPDX-License-Identifier: MIT
#include "runtime/packed_cache.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <mutex>

#include "base/env.h"
#include "runtime/allocator.h"
#include "runtime/counters.h"
#include "runtime/fork.h"
#include "runtime/spin.h"

namespace cermet {
namespace {

constexpr int kUses = 3;            // of one version, until its packing is kept
constexpr int kMostUses = 1 << 20;  // ..., where it had to give way before
constexpr size_t kMostKeys = 1024;  // that are counted
constexpr size_t kShare = 4;        // of the memory limit, this part at most is kept

struct Packed {
  PackedKey key;
  int uses = 0, wanted_uses = kUses;
  std::vector<Buffer*> sources;
  std::vector<BufferRef> locals;
};

size_t bytes_of(const Packed& packed) {
  size_t bytes = 0;
  for (const BufferRef& local : packed.locals) bytes += local->size();
  return bytes;
}

struct PackedCache {
  using Entries = std::list<Packed>;  // the one used last comes first

  SpinLock mutex;
  Entries all;
  std::map<PackedKey, Entries::iterator> places;
  size_t bytes = 0;

  static PackedCache& get() {
    static constinit ForkSafe<PackedCache> cache(ForkLevel::leaf);
    return cache.get();
  }

  Packed& use(const PackedKey& key) {
    const auto found = places.find(key);
    if (found == places.end()) {
      all.push_front({.key = key, .sources = {}, .locals = {}});
      places.emplace(key, all.begin());
    } else {
      all.splice(all.begin(), all, found->second);
    }
    return all.front();
  }
  // Into `dropped`, which is let go of after the lock.
  void drop(Entries::iterator entry, Entries& dropped) {
    bytes -= bytes_of(*entry);
    places.erase(entry->key);
    dropped.splice(dropped.end(), all, entry);
  }
  template <typename F>
  void drop_if(Entries& dropped, F&& is_wanted) {
    for (auto next = all.begin(); next != all.end();) {
      const auto entry = next++;
      if (is_wanted(*entry)) drop(entry, dropped);
    }
  }
  // Those used longest ago, until so many more bytes fit.
  void make_room(size_t more, size_t most, Entries& dropped) {
    for (auto next = all.end(); next != all.begin() && bytes + more > most;) {
      Packed& packed = *--next;
      if (packed.locals.empty()) continue;
      bytes -= bytes_of(packed);
      dropped.push_back({.key = {}, .sources = {}, .locals = std::move(packed.locals)});
      packed.locals.clear();
      packed.sources.clear();
      give_way(packed);
    }
  }
  // Where more is packed than there is room for, nothing is packed in vain time and again.
  static void give_way(Packed& packed) {
    packed.uses = 0;
    packed.wanted_uses = std::min(4 * packed.wanted_uses, kMostUses);
  }
};

bool is_enabled() { return env::packed_cache() == "on"; }

size_t limit() { return std::min(allocator().memory_limit() / kShare, allocator().cache_limit()); }

}  // namespace

PackedUse find_packed(const PackedKey& key) {
  if (!is_enabled()) return {};
  PackedCache& cache = PackedCache::get();
  PackedCache::Entries dropped;
  std::lock_guard lock(cache.mutex);
  Packed& packed = cache.use(key);
  if (cache.all.size() > kMostKeys) cache.drop(std::prev(cache.all.end()), dropped);
  if (!packed.locals.empty()) count(Counter::packed_hits);
  return {packed.locals, packed.locals.empty() && ++packed.uses >= packed.wanted_uses};
}

void keep_packed(const PackedKey& key, std::span<Buffer* const> sources,
                 std::vector<BufferRef> locals) {
  Packed made{.key = {}, .sources = {sources.begin(), sources.end()}, .locals = std::move(locals)};
  const size_t bytes = bytes_of(made), most = limit();
  if (bytes <= most)
    for (const BufferRef& local : made.locals) allocator().make_evictable(*local);
  PackedCache& cache = PackedCache::get();
  PackedCache::Entries dropped;
  std::lock_guard lock(cache.mutex);
  const auto place = cache.places.find(key);
  if (place == cache.places.end() || !place->second->locals.empty()) return;
  if (bytes > most) return PackedCache::give_way(*place->second);
  cache.make_room(bytes, most, dropped);
  for (Buffer* source : sources) source->set_packed();
  place->second->sources = std::move(made.sources);
  place->second->locals = std::move(made.locals);
  cache.bytes += bytes;
}

void drop_packed(const Buffer* source) {
  PackedCache& cache = PackedCache::get();
  PackedCache::Entries dropped;
  std::lock_guard lock(cache.mutex);
  cache.drop_if(dropped, [&](const Packed& packed) {
    return std::ranges::find(packed.sources, source) != packed.sources.end();
  });
}

void drop_all_packed() {
  PackedCache& cache = PackedCache::get();
  PackedCache::Entries dropped;
  std::lock_guard lock(cache.mutex);
  cache.drop_if(dropped, [](const Packed&) { return true; });
}

size_t packed_bytes() {
  PackedCache& cache = PackedCache::get();
  std::lock_guard lock(cache.mutex);
  return cache.bytes;
}

}  // namespace cermet
