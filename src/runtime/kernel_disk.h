// SPDX-License-Identifier: MIT
// Compiled kernels in a folder of the user's: one file each, named by its key. A file is written whole
// under another name and then renamed, and carries a hash of its content; one that does not match is
// as good as absent. Beyond a limit, files are removed, those unused for longest first. Nothing here
// raises: without a usable folder there is no disk cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "codegen/target.h"

namespace cermet {

struct StoredKernel {
  Object object;
  std::string form;
  std::string name;
};

std::string to_bytes(const StoredKernel& kernel, const ir::Hash& key);
// Nothing if the bytes are damaged, or those of another key's kernel.
std::optional<StoredKernel> from_bytes(std::string_view bytes, const ir::Hash& key);

class KernelDisk {
 public:
  // folder: CERMET_CACHE_DIR, else $XDG_CACHE_HOME/cermet or ~/.cache/cermet; made when it is absent.
  static KernelDisk& get();
  // limit: bytes on the disk, CERMET_CACHE_LIMIT of them for get().
  explicit KernelDisk(std::string folder, bool enabled = true,
                      int64_t limit = std::numeric_limits<int64_t>::max());

  std::optional<StoredKernel> load(const ir::Hash& key);
  void store(const ir::Hash& key, const StoredKernel& kernel);
  const std::string& folder() const { return folder_; }

 private:
  std::string path(const ir::Hash& key) const;
  void stop_writing(const std::string& why);

  std::string folder_;
  int64_t limit_;
  bool readable_ = false;
  std::atomic<bool> writable_ = false;  // until a write fails
};

}  // namespace cermet
