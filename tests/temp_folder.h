// SPDX-License-Identifier: MIT
// A folder of a test's own that goes away with it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

namespace cermet {

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> made{0};
    const std::string name =
        "cermet-test-" + std::to_string(getpid()) + "-" + std::to_string(made++);
    path_ = (std::filesystem::temp_directory_path() / name).string();
    std::filesystem::remove_all(path_);  // of an earlier process with this number
    std::filesystem::create_directory(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace cermet
