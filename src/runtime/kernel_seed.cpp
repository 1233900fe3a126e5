// SPDX-License-Identifier: MIT
#include "runtime/kernel_seed.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/lazy.h"
#include "runtime/build_id.h"

namespace cermet {
namespace {

constexpr char kMagic[8] = {'c', 'e', 'r', 'm', 'e', 't', 's', '2'};
constexpr int kLevels = static_cast<int>(CpuLevel::amx) + 1;

struct Index {
  uint64_t offset = 0, count = 0;
  ir::Hash hash;  // of the entries
};

struct Header {
  char magic[8] = {};
  char build[64] = {};
  char generator[64] = {};
  Index levels[kLevels];
};

template <typename T>
std::string_view bytes_of(const T* first, size_t count) {
  return {reinterpret_cast<const char*>(first), count * sizeof(T)};
}

void write_id(char (&field)[64], const std::string& id) {
  CERMET_CHECK(id.size() <= sizeof field, runtime, "seed",
               "the id {} is too long; it must have {} bytes at most", id, sizeof field);
  std::memcpy(field, id.data(), id.size());
}

std::string_view id_in(const char (&field)[64]) { return {field, strnlen(field, sizeof field)}; }

bool before(const KernelSeed::Entry& entry, const ir::Hash& hash) {
  return entry.hash.hi != hash.hi ? entry.hash.hi < hash.hi : entry.hash.lo < hash.lo;
}

std::string_view map_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat info{};
  void* data = MAP_FAILED;
  if (fstat(file, &info) == 0 && info.st_size >= static_cast<off_t>(sizeof(Header)))
    data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (data == MAP_FAILED) return {};
  return {static_cast<const char*>(data), static_cast<size_t>(info.st_size)};
}

const Header& header_of(std::string_view file) {
  return *reinterpret_cast<const Header*>(file.data());
}

std::string beside_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&write_seed), &info) == 0 || info.dli_fname == nullptr)
    return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "kernels.seed";
}

// Dumps need every kernel to be made; other passes and levels make other code.
bool is_wanted() {
  return env::kernel_cache() == "on" && env::dump().empty() && env::skip_pass().empty() &&
         env::cpu_features() != "amx_emulated";
}

struct Compiled {
  std::vector<std::vector<std::string>> stored;  // of each kernel, level by level
  std::atomic<size_t> count = 0;                 // of those not found in `earlier`
};

void compile_all(std::span<const ir::Kernel> kernels, const std::string& earlier,
                 const std::string& generator, Compiled& result) {
  result.stored.assign(kLevels, std::vector<std::string>(kernels.size()));
  std::deque<KernelSeed> found;
  for (int level = 0; level < kLevels; ++level)
    found.emplace_back(earlier, static_cast<CpuLevel>(level), generator);
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::atomic<bool> failed = false;
  const auto work = [&] {
    for (size_t i = next++; i < kernels.size() * kLevels && !failed; i = next++) {
      const auto level = static_cast<CpuLevel>(i % kLevels);
      const ir::Kernel& kernel = kernels[i / kLevels];
      try {
        const ir::Hash key = ir::hash_of(kernel);
        std::optional<StoredKernel> stored = found[i % kLevels].load(key);
        if (!stored) {
          const ir::TargetFacts facts = cpu_facts(level);
          stored = {compile_cpu(ir::lower(kernel, facts), level),
                    std::string(ir::form_of(kernel, facts)), kernel.name};
          ++result.count;
        }
        result.stored[i % kLevels][i / kLevels] = to_bytes(*stored, key);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

const KernelSeed& KernelSeed::get() {
  static constinit Lazy<KernelSeed> seed;
  return seed.get([] { return KernelSeed(is_wanted() ? beside_library() : "", cpu_level()); });
}

KernelSeed::KernelSeed(const std::string& path, CpuLevel level) : file_(map_file(path)) {
  if (!file_.empty() && id_in(header_of(file_).build) == build_id()) read_index(level);
}

KernelSeed::KernelSeed(const std::string& path, CpuLevel level, const std::string& generator)
    : file_(generator.empty() ? std::string_view() : map_file(path)) {
  if (!file_.empty() && id_in(header_of(file_).generator) == generator) read_index(level);
}

void KernelSeed::read_index(CpuLevel level) {
  const Header* header = &header_of(file_);
  const Index& index = header->levels[static_cast<size_t>(level)];
  const bool inside = index.offset % alignof(Entry) == 0 && index.offset <= file_.size() &&
                      index.count <= (file_.size() - index.offset) / sizeof(Entry);
  if (std::memcmp(header->magic, kMagic, sizeof kMagic) != 0 || !inside) return;
  const std::span entries(reinterpret_cast<const Entry*>(file_.data() + index.offset), index.count);
  if (ir::hash_bytes(bytes_of(entries.data(), entries.size())) == index.hash) entries_ = entries;
}

KernelSeed::~KernelSeed() {
  if (!file_.empty()) munmap(const_cast<char*>(file_.data()), file_.size());
}

std::optional<StoredKernel> KernelSeed::load(const ir::Hash& hash) const {
  const auto entry = std::lower_bound(entries_.begin(), entries_.end(), hash, before);
  if (entry == entries_.end() || entry->hash != hash) return std::nullopt;
  if (entry->offset > file_.size() || entry->bytes > file_.size() - entry->offset)
    return std::nullopt;
  return from_bytes(file_.substr(entry->offset, entry->bytes), hash);
}

size_t write_seed(const std::string& path, std::span<const ir::Kernel> kernels,
                  const std::string& generator) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  write_id(header.build, build_id());
  write_id(header.generator, generator);
  Compiled compiled;
  compile_all(kernels, path, generator, compiled);
  const uint64_t start = sizeof(Header) + kLevels * kernels.size() * sizeof(KernelSeed::Entry);
  std::string content;
  std::map<std::string_view, uint64_t> places;
  std::string indices;
  for (int level = 0; level < kLevels; ++level) {
    std::vector<KernelSeed::Entry> entries;
    for (size_t i = 0; i < kernels.size(); ++i) {
      const std::string& stored = compiled.stored[static_cast<size_t>(level)][i];
      const auto [place, fresh] = places.emplace(stored, start + content.size());
      if (fresh) content += stored;
      entries.push_back({ir::hash_of(kernels[i]), place->second, stored.size()});
    }
    std::ranges::sort(entries, [](const auto& a, const auto& b) { return before(a, b.hash); });
    const std::string_view index = bytes_of(entries.data(), entries.size());
    header.levels[level] = {sizeof(Header) + indices.size(), entries.size(), ir::hash_bytes(index)};
    indices += index;
  }
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << bytes_of(&header, 1) << indices << content;
  file.close();
  CERMET_CHECK(file.good() && std::rename(temporary.c_str(), path.c_str()) == 0, io, "seed",
               "cannot write {}; its folder must exist and be writable", path);
  return compiled.count;
}

}  // namespace cermet
