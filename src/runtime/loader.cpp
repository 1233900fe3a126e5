// SPDX-License-Identifier: MIT
// Relocatable ELF objects of x86-64 into executable pages: the sections that occupy memory one after
// another, then a stub (jump and address) for each outside symbol. Every number in the file is checked
// before it is used; unwind tables are left out, as generated code does not throw.
#include "runtime/loader.h"

#include <elf.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/lazy.h"
#include "runtime/code_memory.h"
#include "runtime/fork.h"
#include "runtime/thread_pool.h"

extern "C" void cermet_check_failed(cermet::KernelStatus* status, int64_t item, int64_t site,
                                    int64_t index) {
  static constinit cermet::ForkSafe<std::mutex> mutex(cermet::ForkLevel::leaf);
  std::lock_guard lock(mutex.get());
  if (status->site >= 0 && status->item <= item) return;
  *status = {site, index, item};
}

extern "C" int64_t cermet_must_stop() noexcept { return cermet::ThreadPool::must_stop() ? 1 : 0; }

namespace cermet {
namespace {

// The outside symbols that generated code may need.
struct Symbol {
  std::string_view name;
  void* address;
};

template <typename F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

std::span<const Symbol> outside_symbols() {
  using F = float (*)(float);
  using D = double (*)(double);
  const auto f = [](F function) { return reinterpret_cast<void*>(function); };
  const auto d = [](D function) { return reinterpret_cast<void*>(function); };
  static constinit Lazy<std::vector<Symbol>> symbols;
  return symbols.get([&] {
    return std::vector<Symbol>{
        {"cermet_check_failed", address_of(&cermet_check_failed)},
        {"cermet_must_stop", address_of(&cermet_must_stop)},
        {"memcpy", address_of(&std::memcpy)},
        {"memset", address_of(&std::memset)},
        {"memmove", address_of(&std::memmove)},
        {"fma", address_of(static_cast<double (*)(double, double, double)>(&::fma))},
        {"fmaf", address_of(&::fmaf)},
        {"fmod", address_of(static_cast<double (*)(double, double)>(&::fmod))},
        {"fmodf", address_of(&::fmodf)},
        {"floor", d(&::floor)},
        {"floorf", f(&::floorf)},
        {"ceil", d(&::ceil)},
        {"ceilf", f(&::ceilf)},
        {"trunc", d(&::trunc)},
        {"truncf", f(&::truncf)},
        {"rint", d(&::rint)},
        {"rintf", f(&::rintf)},
    };
  });
}

constexpr size_t kStubBytes = 16;
constexpr size_t kStubAddress = 8;  // of the address in a stub

class ElfObject {
 public:
  explicit ElfObject(std::string_view blob) : blob_(blob) {
    const auto& header = at<Elf64_Ehdr>(0);
    need(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_type == ET_REL &&
         header.e_machine == EM_X86_64 && header.e_ident[EI_CLASS] == ELFCLASS64);
    sections_ = list<Elf64_Shdr>(header.e_shoff, header.e_shnum);
    need(header.e_shstrndx < sections_.size());
    lay_out(sections_[header.e_shstrndx]);
    for (const Elf64_Shdr& section : sections_)
      if (section.sh_type == SHT_SYMTAB) read_symbols(section);
  }

  size_t size() const { return stubs_at_ + outside_.size() * kStubBytes; }

  void write(char* base) const {
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& section = sections_[i];
      if (offsets_[i] == kAbsent || section.sh_type == SHT_NOBITS) continue;
      std::memcpy(base + offsets_[i], bytes(section.sh_offset, section.sh_size), section.sh_size);
    }
    static constexpr unsigned char kJump[] = {0xff, 0x25, 2, 0, 0, 0};  // jmp *2(%rip)
    for (size_t i = 0; i < outside_.size(); ++i) {
      char* stub = base + stubs_at_ + i * kStubBytes;
      std::memcpy(stub, kJump, sizeof kJump);
      const auto address = reinterpret_cast<uintptr_t>(outside_[i]);
      std::memcpy(stub + kStubAddress, &address, sizeof address);
    }
    for (const Elf64_Shdr& section : sections_)
      if (section.sh_type == SHT_RELA) relocate(base, section);
  }

  // Where an entry of this name is.
  size_t entry(const std::string& name) const {
    for (size_t i = 0; i < symbols_.size(); ++i) {
      const Elf64_Sym& symbol = symbols_[i];
      if (symbol.st_shndx != SHN_UNDEF && this->name(symbol) == name) return place(i);
    }
    fail(ErrorKind::runtime, "kernel", "the object has no entry {}; clear the kernel cache", name);
  }

 private:
  static constexpr size_t kAbsent = SIZE_MAX;
  static constexpr size_t kLargestAlign = 4096;

  static void need(bool ok) {
    CERMET_CHECK(ok, runtime, "kernel", "the object is damaged; clear the kernel cache");
  }

  const char* bytes(uint64_t offset, uint64_t size) const {
    need(offset <= blob_.size() && size <= blob_.size() - offset);
    return blob_.data() + offset;
  }
  template <typename T>
  const T& at(uint64_t offset) const {
    need(offset % alignof(T) == 0);
    return *reinterpret_cast<const T*>(bytes(offset, sizeof(T)));
  }
  template <typename T>
  std::span<const T> list(uint64_t offset, uint64_t count) const {
    need(offset % alignof(T) == 0 && count <= blob_.size());
    return {reinterpret_cast<const T*>(bytes(offset, count * sizeof(T))), count};
  }
  std::string_view text(const Elf64_Shdr& table, uint64_t offset) const {
    const std::string_view all(bytes(table.sh_offset, table.sh_size), table.sh_size);
    need(offset < all.size());
    return all.substr(offset, all.find('\0', offset) - offset);
  }
  std::string_view name(const Elf64_Sym& symbol) const { return text(*names_, symbol.st_name); }

  void lay_out(const Elf64_Shdr& section_names) {
    size_t end = 0;
    for (const Elf64_Shdr& section : sections_) {
      const bool wanted = (section.sh_flags & SHF_ALLOC) != 0 && section.sh_size > 0 &&
                          text(section_names, section.sh_name) != ".eh_frame";
      offsets_.push_back(kAbsent);
      if (!wanted) continue;
      const uint64_t align = std::max<uint64_t>(section.sh_addralign, 1);
      need(align <= kLargestAlign && (align & (align - 1)) == 0);
      need(section.sh_size <= (uint64_t{1} << 30) && end <= (uint64_t{1} << 30));
      end = (end + align - 1) & ~(align - 1);
      offsets_.back() = end;
      end += section.sh_size;
    }
    stubs_at_ = (end + kStubBytes - 1) & ~(kStubBytes - 1);
  }

  void read_symbols(const Elf64_Shdr& section) {
    need(symbols_.empty() && section.sh_link < sections_.size());
    symbols_ = list<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
    names_ = &sections_[section.sh_link];
    stubs_.assign(symbols_.size(), kAbsent);
    for (size_t i = 1; i < symbols_.size(); ++i) {
      if (symbols_[i].st_shndx != SHN_UNDEF) continue;
      stubs_[i] = stubs_at_ + outside_.size() * kStubBytes;
      outside_.push_back(outside(name(symbols_[i])));
    }
  }

  static void* outside(std::string_view name) {
    for (const Symbol& symbol : outside_symbols())
      if (symbol.name == name) return symbol.address;
    fail(ErrorKind::runtime, "kernel",
         "the object needs the unknown symbol {}; empty the folder of the kernel cache", name);
  }

  // Where a symbol's bytes are; for one from outside, its stub.
  size_t place(size_t number) const {
    need(number < symbols_.size());
    if (stubs_[number] != kAbsent) return stubs_[number];
    const Elf64_Sym& symbol = symbols_[number];
    need(symbol.st_shndx < offsets_.size() && offsets_[symbol.st_shndx] != kAbsent);
    need(symbol.st_value <= sections_[symbol.st_shndx].sh_size);
    return offsets_[symbol.st_shndx] + symbol.st_value;
  }

  void relocate(char* base, const Elf64_Shdr& section) const {
    need(section.sh_info < sections_.size());
    const size_t target = offsets_[section.sh_info];
    if (target == kAbsent) return;
    const uint64_t limit = sections_[section.sh_info].sh_size;
    for (const Elf64_Rela& r :
         list<Elf64_Rela>(section.sh_offset, section.sh_size / sizeof(Elf64_Rela))) {
      const auto type = ELF64_R_TYPE(r.r_info);
      const uint64_t width = type == R_X86_64_64 ? 8 : 4;
      need(r.r_offset <= limit && width <= limit - r.r_offset);
      char* at = base + target + r.r_offset;
      const char* symbol = base + place(ELF64_R_SYM(r.r_info));
      // A table entry holds the address that a stub jumps to.
      if (type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX ||
          type == R_X86_64_REX_GOTPCRELX) {
        need(stubs_[ELF64_R_SYM(r.r_info)] != kAbsent);
        symbol += kStubAddress;
      } else {
        need(type == R_X86_64_64 || type == R_X86_64_PC32 || type == R_X86_64_PLT32);
      }
      const int64_t value = reinterpret_cast<intptr_t>(symbol) + r.r_addend;
      if (type == R_X86_64_64) {
        std::memcpy(at, &value, sizeof value);
        continue;
      }
      const int64_t distance = value - reinterpret_cast<intptr_t>(at);
      need(distance == static_cast<int32_t>(distance));
      const auto narrow = static_cast<int32_t>(distance);
      std::memcpy(at, &narrow, sizeof narrow);
    }
  }

  const std::string_view blob_;
  std::span<const Elf64_Shdr> sections_;
  std::span<const Elf64_Sym> symbols_;
  const Elf64_Shdr* names_ = nullptr;
  std::vector<size_t> offsets_;  // of sections
  std::vector<size_t> stubs_;    // of symbols
  std::vector<void*> outside_;
  size_t stubs_at_ = 0;
};

class LoadedObject : public LoadedKernel {
 public:
  LoadedObject(const ElfObject& elf, Object from)
      : pages_(elf.size(), [&](char* base) { elf.write(base); }) {
    object = std::move(from);
    for (const EntryPoint& entry : object.entries)
      functions.push_back(
          reinterpret_cast<KernelFunction>(pages_.data() + elf.entry(entry.symbol)));
  }

 private:
  CodePages pages_;
};

}  // namespace

std::shared_ptr<LoadedKernel> load_kernel(Object object) {
  const std::string blob = std::move(object.blob);
  object.blob.clear();
  // The blob is as aligned as any allocation, which the ELF structures ask for.
  const ElfObject elf(blob);
  return std::make_shared<LoadedObject>(elf, std::move(object));
}

LoaderStats loader_stats() { return code_memory_stats(); }

}  // namespace cermet
