// SPDX-License-Identifier: MIT
// Runs generated code on AArch64: compiled by the cross compiler, linked with the kernels' objects and a
// table of them, run by qemu. It reads launches from a file and writes what they leave in memory into
// another. Each buffer ends at an inaccessible page. (Not .cpp: the build's own compiler leaves it out.)
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using Entry = int64_t (*)(const uint64_t* record, int64_t begin, int64_t end, char* local);
extern const Entry* const kernel_entries[];  // one list for each kernel

struct Status {
  int64_t site, index, item;
};

extern "C" void cermet_check_failed(Status* status, int64_t item, int64_t site, int64_t index) {
  const bool earlier = status->site < 0 || item < status->item;
  if (earlier) *status = {site, index, item};
}

extern "C" int64_t cermet_must_stop() { return 0; }

namespace {

int64_t number(FILE* file) {
  int64_t n = 0;
  if (fread(&n, sizeof n, 1, file) != 1) exit(3);
  return n;
}

// Memory that ends at an inaccessible page.
char* guarded(size_t size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t inner = (size + page - 1) / page * page;
  char* map = static_cast<char*>(
      mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (inner > 0) mprotect(map + page, inner, PROT_READ | PROT_WRITE);
  return map + page + inner - size;
}

struct Block {
  char* data;
  size_t size;
};

// A launch: kernel; blocks with their bytes; the record's words, each a number or (block, offset); bytes of
// locals; the block of the status or -1; items of each entry.
void launch(FILE* in, FILE* out) {
  const Entry* entries = kernel_entries[number(in)];
  std::vector<Block> blocks(static_cast<size_t>(number(in)));
  for (Block& b : blocks) {
    b.size = static_cast<size_t>(number(in));
    b.data = guarded(b.size);
    if (b.size > 0 && fread(b.data, b.size, 1, in) != 1) exit(3);
  }
  std::vector<uint64_t> record(static_cast<size_t>(number(in)));
  for (uint64_t& word : record) {
    const int64_t block = number(in), value = number(in);
    word = static_cast<uint64_t>(value);
    if (block >= 0) word += reinterpret_cast<uint64_t>(blocks[static_cast<size_t>(block)].data);
  }
  const size_t local_bytes = static_cast<size_t>(number(in));
  const int64_t status = number(in), count = number(in);
  for (int64_t e = 0; e < count; ++e) {
    const int64_t items = number(in);
    if (status >= 0 &&
        reinterpret_cast<Status*>(blocks[static_cast<size_t>(status)].data)->site >= 0)
      continue;
    char* local = guarded(local_bytes);
    if (local_bytes > 0) memset(local, 0xff, local_bytes);
    entries[e](record.data(), 0, items, local);
  }
  for (const Block& b : blocks)
    if (b.size > 0) fwrite(b.data, b.size, 1, out);
}

}  // namespace

int main(int, char** argv) {
  FILE* in = fopen(argv[1], "rb");
  FILE* out = fopen(argv[2], "wb");
  if (in == nullptr || out == nullptr) return 2;
  const int64_t launches = number(in);
  for (int64_t i = 0; i < launches; ++i) launch(in, out);
  return fclose(out);
}
