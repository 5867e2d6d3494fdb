#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "base/strings.h"

namespace kvbound {
namespace {

namespace fs = std::filesystem;

struct Quota {
  int64_t quota_us = 0;
  int64_t period_us = 0;
  std::string file;

  int64_t cores() const { return quota_us / period_us; }
};

std::optional<int64_t> ReadNumber(const fs::path& path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

std::optional<Quota> Checked(int64_t quota_us, int64_t period_us, const char* file) {
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  return Quota{quota_us, period_us, file};
}

std::optional<Quota> ReadV2(const fs::path& group) {
  std::ifstream in(group / "cpu.max");
  std::string quota;
  int64_t period = 0;
  if (!(in >> quota >> period) || quota == "max") return std::nullopt;
  std::istringstream number(quota);
  int64_t value = 0;
  if (!(number >> value)) return std::nullopt;
  return Checked(value, period, "cpu.max");
}

std::optional<Quota> ReadV1(const fs::path& group) {
  const auto quota = ReadNumber(group / "cpu.cfs_quota_us");
  const auto period = ReadNumber(group / "cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return Checked(*quota, *period, "cpu.cfs_quota_us");
}

void TakeSmaller(const std::optional<Quota>& found, std::optional<Quota>& smallest) {
  if (found && (!smallest || found->cores() < smallest->cores())) smallest = found;
}

// From `mount`/`path` up to `mount`. Inside a container the path may be the host's and lead
// nowhere; the mount itself is then the container's own group.
template <typename Read>
void WalkUp(const fs::path& mount, std::string path, const Read& read,
            std::optional<Quota>& smallest) {
  while (true) {
    const size_t last = path.find_last_not_of('/');
    path.resize(last == std::string::npos ? 0 : last + 1);
    TakeSmaller(read(path.empty() ? mount : mount / path.substr(path.front() == '/')), smallest);
    if (path.empty()) return;
    const size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

bool ListsController(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == wanted) return true;
    controllers = comma == std::string_view::npos ? "" : controllers.substr(comma + 1);
  }
  return false;
}

// The smallest quota over all groups that hold this process.
std::optional<Quota> FindQuota(const fs::path& root) {
  std::optional<Quota> smallest;
  const fs::path base = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"", "unified"}) WalkUp(base / mount, path, ReadV2, smallest);
    } else if (ListsController(controllers, "cpu")) {
      for (const std::string& mount : {std::string("cpu"), controllers}) {
        WalkUp(base / mount, path, ReadV1, smallest);
      }
    }
  }
  return smallest;
}

int CoresInAffinityMask() {
  for (int capacity = CPU_SETSIZE; capacity <= (1 << 20); capacity *= 2) {
    std::vector<cpu_set_t> mask(CPU_ALLOC_SIZE(capacity) / sizeof(cpu_set_t) + 1);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

ThreadLimit LimitThreads(int n_cores, const std::string& root) {
  n_cores = std::max(n_cores, 1);
  const std::optional<Quota> quota = FindQuota(root);
  if (quota && quota->cores() < n_cores) {
    return {static_cast<int>(std::max<int64_t>(quota->cores(), 1)),
            StrCat(quota->file, " ", quota->quota_us, "/", quota->period_us)};
  }
  return {n_cores, StrCat(n_cores, n_cores == 1 ? " core" : " cores", " in the affinity mask")};
}

ThreadLimit DefaultThreads(const std::string& root) {
  return LimitThreads(CoresInAffinityMask(), root);
}

}  // namespace kvbound
