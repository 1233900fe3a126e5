// SPDX-License-Identifier: MIT
#include "runtime/kernel_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/env.h"
#include "base/lazy.h"
#include "runtime/log.h"

namespace cermet {
namespace {

// One store in so many, chosen by its key, looks at what the folder holds: short processes do so, too.
constexpr uint64_t kStoresPerTrim = 256;
// A file's time tells when it was last used, to so many seconds.
constexpr time_t kUseSeconds = 24 * 60 * 60;

constexpr char kMagic[8] = {'c', 'e', 'r', 'm', 'e', 't', 'k', '5'};

// Fields one after another, numbers as 64-bit words, texts and lists with their length before them.
class Writer {
 public:
  void number(uint64_t v) { bytes_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void real(double v) { bytes_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void text(std::string_view v) {
    number(v.size());
    bytes_.append(v);
  }
  void size(const ir::Size& size) {
    number(static_cast<uint64_t>(size.constant));
    number(size.terms.size());
    for (const ir::SizeTerm& term : size.terms) {
      number(static_cast<uint64_t>(term.axis));
      number(static_cast<uint64_t>(term.tile));
    }
  }
  void locals(const std::vector<ir::Local>& locals) {
    number(locals.size());
    for (const ir::Local& local : locals) {
      number(static_cast<uint64_t>(local.local));
      number(static_cast<uint64_t>(local.dtype));
      number(static_cast<uint64_t>(local.scope));
      size(local.size);
    }
  }
  void packings(const std::vector<Packing>& packings) {
    number(packings.size());
    for (const Packing& packing : packings) {
      number(packing.hash.lo), number(packing.hash.hi);
      number(static_cast<uint64_t>(packing.entry));
      for (const auto* numbers : {&packing.sources, &packing.words, &packing.locals}) {
        number(numbers->size());
        for (int32_t n : *numbers) number(static_cast<uint64_t>(n));
      }
    }
  }
  void entry(const EntryPoint& entry) {
    text(entry.symbol);
    size(entry.grid);
    number(entry.work.size());
    for (const Work& work : entry.work) {
      real(work.ns);
      number(work.trips.size());
      for (const WorkTrip& trip : work.trips) {
        number(static_cast<uint64_t>(trip.axis));
        number(static_cast<uint64_t>(trip.most));
        number(static_cast<uint64_t>(trip.tile));
        number(static_cast<uint64_t>(trip.first));
      }
    }
    number(entry.spans ? 1 : 0);
    number(entry.in_order ? 1 : 0);
    number(static_cast<uint64_t>(entry.turn));
    number(static_cast<uint64_t>(entry.least));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first field that does not fit, everything reads as zero or empty and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  uint64_t number() { return word<uint64_t>(); }
  double real() { return word<double>(); }
  template <typename T>
  T as() {
    return static_cast<T>(number());
  }
  std::string text() {
    const uint64_t size = number();
    if (size > rest_.size()) return fail(), std::string();
    std::string v(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return v;
  }
  template <typename T, typename F>
  std::vector<T> list(F&& element) {
    const uint64_t count = number();
    if (count > rest_.size()) return fail(), std::vector<T>();
    std::vector<T> v;
    for (uint64_t i = 0; i < count && ok_; ++i) v.push_back(element());
    return v;
  }
  ir::Size size() {
    ir::Size size{.constant = as<int64_t>(), .terms = {}};
    size.terms = list<ir::SizeTerm>([&] {
      const auto axis = as<ir::AxisId>();
      return ir::SizeTerm{axis, as<int64_t>()};
    });
    return size;
  }
  std::vector<ir::Local> locals() {
    return list<ir::Local>([&] {
      const auto local = as<ir::LocalId>();
      const auto dtype = as<Dtype>();
      const auto scope = as<ir::LocalScope>();
      return ir::Local{local, dtype, size(), scope};
    });
  }
  std::vector<Packing> packings() {
    return list<Packing>([&] {
      const uint64_t lo = number(), hi = number();
      Packing packing{{lo, hi}, as<int32_t>(), {}, {}, {}};
      for (auto* numbers : {&packing.sources, &packing.words, &packing.locals})
        *numbers = list<int32_t>([&] { return as<int32_t>(); });
      return packing;
    });
  }
  EntryPoint entry() {
    EntryPoint entry{.symbol = text(), .grid = size(), .work = {}};
    entry.work = list<Work>([&] {
      Work work{.ns = real(), .trips = {}};
      work.trips = list<WorkTrip>([&] {
        const auto axis = as<ir::AxisId>();
        const auto most = as<int64_t>(), tile = std::max<int64_t>(as<int64_t>(), 1);
        return WorkTrip{.axis = axis, .most = most, .tile = tile, .first = as<int64_t>()};
      });
      return work;
    });
    entry.spans = number() != 0;
    entry.in_order = number() != 0;
    entry.turn = as<int64_t>();
    entry.least = as<int64_t>();
    return entry;
  }
  bool ok() const { return ok_ && rest_.empty(); }

 private:
  template <typename T>
  T word() {
    T v{};
    if (rest_.size() < sizeof v) return fail(), v;
    rest_.copy(reinterpret_cast<char*>(&v), sizeof v);
    rest_.remove_prefix(sizeof v);
    return v;
  }
  void fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
};

std::string default_folder() {
  if (!env::cache_dir().empty()) return env::cache_dir();
  const std::string cache = env::of_system("XDG_CACHE_HOME");
  if (cache.starts_with('/')) return cache + "/cermet";
  const std::string home = env::of_system("HOME");
  return home.starts_with('/') ? home + "/.cache/cermet" : "";
}

// With the folders above it. Empty if it is there in the end and no other user may write to it, which
// would be to run code as this user; else what is wrong.
std::string make_folder(const std::string& folder) {
  for (size_t at = folder.find('/', 1);; at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    const int made = mkdir(part.c_str(), 0700);
    if (at != std::string::npos) continue;
    if (made != 0 && errno != EEXIST) return std::strerror(errno);
    break;
  }
  struct stat info{};
  if (stat(folder.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return "it is no folder";
  if (info.st_uid != geteuid() || (info.st_mode & 022) != 0) return "others may write to it";
  return "";
}

std::optional<std::string> read_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait
  if (file < 0) return std::nullopt;
  struct stat info{};
  std::string bytes;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
    bytes.resize(static_cast<size_t>(info.st_size));
    if (info.st_mtime + kUseSeconds < std::time(nullptr)) futimens(file, nullptr);
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file, bytes.data() + done, bytes.size() - done);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  close(file);
  if (done < bytes.size()) return std::nullopt;
  return bytes;
}

struct FolderFile {
  timespec used;
  int64_t bytes;  // on the disk
  std::string name;
};

std::vector<FolderFile> files_of(const std::string& folder) {
  std::vector<FolderFile> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (!open) return files;
  while (const dirent* entry = readdir(open.get())) {
    struct stat info{};
    if (fstatat(dirfd(open.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode)) files.push_back({info.st_mtim, info.st_blocks * 512, entry->d_name});
  }
  return files;
}

// Where the files take more than `limit` bytes, those unused for longest go until three quarters are
// left. Other processes may be at the same: a file that is gone is as good as removed.
void trim(const std::string& folder, int64_t limit) {
  std::vector<FolderFile> files = files_of(folder);
  int64_t bytes = 0;
  for (const FolderFile& file : files) bytes += file.bytes;
  if (bytes <= limit) return;
  std::ranges::sort(files, {}, [](const FolderFile& file) {
    return std::pair(file.used.tv_sec, file.used.tv_nsec);
  });
  size_t removed = 0;
  for (; bytes > limit / 4 * 3; ++removed) {
    unlink((folder + "/" + files[removed].name).c_str());
    bytes -= files[removed].bytes;
  }
  log_line(LogTopic::kernel, "{} of {} kernels removed from {}", removed, files.size(), folder);
}

bool write_file(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

std::string to_bytes(const StoredKernel& kernel, const ir::Hash& key) {
  Writer body;
  body.number(key.lo);
  body.number(key.hi);
  body.text(kernel.form);
  body.text(kernel.name);
  body.text(kernel.object.blob);
  body.number(kernel.object.entries.size());
  for (const EntryPoint& entry : kernel.object.entries) body.entry(entry);
  body.locals(kernel.object.kernel_locals);
  body.locals(kernel.object.thread_locals);
  body.packings(kernel.object.packings);
  body.number(static_cast<uint64_t>(kernel.object.status_word));
  const std::string content = body.take();
  const ir::Hash hash = ir::hash_bytes(content);
  Writer file;
  file.number(hash.lo);
  file.number(hash.hi);
  return std::string(kMagic, sizeof kMagic) + file.take() + content;
}

std::optional<StoredKernel> from_bytes(std::string_view bytes, const ir::Hash& key) {
  constexpr size_t kHeader = sizeof kMagic + 2 * sizeof(uint64_t);
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return std::nullopt;
  ir::Hash hash;
  std::memcpy(&hash.lo, bytes.data() + sizeof kMagic, sizeof hash.lo);
  std::memcpy(&hash.hi, bytes.data() + sizeof kMagic + sizeof hash.lo, sizeof hash.hi);
  const std::string_view content = bytes.substr(kHeader);
  if (ir::hash_bytes(content) != hash) return std::nullopt;
  Reader reader(content);
  StoredKernel kernel;
  const ir::Hash of{reader.number(), reader.number()};
  if (of != key) return std::nullopt;
  kernel.form = reader.text();
  kernel.name = reader.text();
  kernel.object.blob = reader.text();
  kernel.object.entries = reader.list<EntryPoint>([&] { return reader.entry(); });
  kernel.object.kernel_locals = reader.locals();
  kernel.object.thread_locals = reader.locals();
  kernel.object.packings = reader.packings();
  kernel.object.status_word = reader.as<int32_t>();
  if (!reader.ok()) return std::nullopt;
  return kernel;
}

KernelDisk& KernelDisk::get() {
  // Dumps need every kernel to be made, and with passes left out it is another.
  const bool enabled =
      env::kernel_cache() == "on" && env::dump().empty() && env::skip_pass().empty();
  static constinit Lazy<KernelDisk> disk;
  return disk.get(
      [&] { return KernelDisk(default_folder(), enabled, env::to_int(env::cache_limit())); });
}

KernelDisk::KernelDisk(std::string folder, bool enabled, int64_t limit)
    : folder_(std::move(folder)), limit_(limit) {
  if (!enabled) return;
  std::string wrong = "neither HOME nor CERMET_CACHE_DIR is set";
  if (!folder_.empty()) {
    folder_ += "/kernels";
    wrong = make_folder(folder_);
  }
  readable_ = writable_ = wrong.empty();
  if (!wrong.empty()) log_line(LogTopic::kernel, "no disk cache: {}: {}", folder_, wrong);
}

void KernelDisk::stop_writing(const std::string& why) {
  if (writable_.exchange(false))
    log_line(LogTopic::kernel, "no more kernels are written to {}: {}", folder_, why);
}

std::string KernelDisk::path(const ir::Hash& key) const { return folder_ + "/" + key.hex(); }

std::optional<StoredKernel> KernelDisk::load(const ir::Hash& key) {
  if (!readable_) return std::nullopt;
  const std::optional<std::string> bytes = read_file(path(key));
  if (!bytes) return std::nullopt;
  std::optional<StoredKernel> kernel = from_bytes(*bytes, key);
  if (!kernel) log_line(LogTopic::kernel, "{} is damaged and will be replaced", path(key));
  return kernel;
}

void KernelDisk::store(const ir::Hash& key, const StoredKernel& kernel) {
  if (!writable_) return;
  static constinit std::atomic<uint64_t> number{0};
  const std::string final_name = path(key);
  const std::string temporary = fmt::format("{}.{}.{}", final_name, getpid(), number++);
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return stop_writing(std::strerror(errno));
  const bool written = write_file(file, to_bytes(kernel, key));
  const int error = errno;
  const bool kept =
      (close(file) == 0) && written && rename(temporary.c_str(), final_name.c_str()) == 0;
  if (kept) {
    if (key.lo % kStoresPerTrim == 0) trim(folder_, limit_);
    return;
  }
  unlink(temporary.c_str());
  stop_writing(std::strerror(written ? errno : error));
}

}  // namespace cermet
