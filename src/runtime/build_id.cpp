// SPDX-License-Identifier: MIT
#include "runtime/build_id.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>
#include <string_view>

#include "base/lazy.h"

namespace cermet {
namespace {

// The build id note of the module whose segments hold `address`.
struct Search {
  uintptr_t address;
  std::string found;
};

std::string id_in_notes(const char* at, size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t name = (note.n_namesz + 3u) & ~3u,
                 whole = sizeof note + name + ((note.n_descsz + 3u) & ~3u);
    if (whole > size) break;
    const std::string_view owner(at + sizeof note, note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && owner == std::string_view("GNU\0", 4)) {
      std::string hex;
      for (size_t i = 0; i < note.n_descsz; ++i)
        hex += fmt::format("{:02x}", static_cast<unsigned char>(at[sizeof note + name + i]));
      return hex;
    }
    at += whole;
    size -= whole;
  }
  return "";
}

int visit(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  bool ours = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && search.address >= start && search.address < start + part.p_memsz)
      ours = true;
  }
  if (!ours) return 0;
  for (int i = 0; i < info->dlpi_phnum && search.found.empty(); ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_NOTE)
      search.found =
          id_in_notes(reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr), part.p_memsz);
  }
  return 1;
}

std::string of_file(const void* address) {
  Dl_info info{};
  struct stat file{};
  if (dladdr(address, &info) == 0 || stat(info.dli_fname, &file) != 0) return "unknown";
  return fmt::format("{:x}-{:x}-{:x}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

}  // namespace

const std::string& build_id() {
  static constinit Lazy<std::string> id;
  return id.get([] {
    const void* here = reinterpret_cast<const void*>(&build_id);
    Search search{reinterpret_cast<uintptr_t>(here), ""};
    dl_iterate_phdr(visit, &search);
    return search.found.empty() ? of_file(here) : search.found;
  });
}

}  // namespace cermet
