#include "machine_common.h"

#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "ggml-cpu.h"

namespace kvbound::bench {
namespace {

std::string FirstCpuInfo(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// The features that decide which kernels run.
std::string CpuFlags() {
  std::istringstream all(FirstCpuInfo("flags"));
  std::string found;
  for (std::string flag; all >> flag;) {
    for (const char* wanted : {"avx2", "f16c", "fma", "avx_vnni", "avx512f", "avx512_vnni",
                               "avx512_bf16", "avx512_fp16", "amx_tile"}) {
      if (flag == wanted) found += (found.empty() ? "" : " ") + flag;
    }
  }
  return found.empty() ? "none of interest" : found;
}

std::string FirstLineOf(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "unknown";
  char line[256] = "";
  const bool got = std::fgets(line, sizeof(line), pipe) != nullptr;
  const bool ok = pclose(pipe) == 0 && got;
  std::string text = ok ? line : "unknown";
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "unset" : value;
}

uint64_t StatusBytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) == 0) return std::strtoull(line.c_str() + key.size(), nullptr, 10) << 10;
  }
  return 0;
}

}  // namespace

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double MeasureReadBandwidth(int n_threads) {
  constexpr size_t kBytes = size_t{768} << 20;
  constexpr int kPasses = 4;
  std::vector<uint64_t> data(kBytes / sizeof(uint64_t), 1);
  const size_t per_thread = data.size() / n_threads;
  std::atomic<uint64_t> sink = 0;
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = Now();
    std::vector<std::thread> threads;
    for (int t = 0; t < n_threads; ++t) {
      threads.emplace_back([&, t] {
        const uint64_t* begin = data.data() + t * per_thread;
        uint64_t sums[8] = {};
        for (size_t i = 0; i + 8 <= per_thread; i += 8) {
          for (size_t k = 0; k < 8; ++k) sums[k] += begin[i + k];
        }
        for (uint64_t sum : sums) sink += sum;
      });
    }
    for (std::thread& thread : threads) thread.join();
    best = std::max(best, per_thread * sizeof(uint64_t) * n_threads / (Now() - start));
  }
  return best / 1e9;
}

double PrintMachine(int argc, char** argv, int n_threads, bool with_bandwidth) {
  utsname system{};
  uname(&system);
  std::string command;
  for (int i = 0; i < argc; ++i) {
    const std::string argument = argv[i];
    command += i == 0 ? "build/bench/" + std::filesystem::path(argument).filename().string()
                      : " " + argument;
  }
  std::ifstream load_file("/proc/loadavg");
  std::string load;
  load_file >> load;
  const double bandwidth = with_bandwidth ? MeasureReadBandwidth(n_threads) : 0;
  std::printf("machine    %s, %u cores, %s; ggml built with avx512 %d, vnni %d, bf16 %d, amx %d\n",
              FirstCpuInfo("model name").c_str(), std::thread::hardware_concurrency(),
              CpuFlags().c_str(), ggml_cpu_has_avx512(), ggml_cpu_has_avx512_vnni(),
              ggml_cpu_has_avx512_bf16(), ggml_cpu_has_amx_int8());
  std::printf("system     %s %s, load %s before the start\n", system.sysname, system.release,
              load.c_str());
  std::printf(
      "commit     %s\n",
      FirstLineOf("git -C '" KVBOUND_SOURCE_DIR "' describe --always --dirty 2>/dev/null").c_str());
  std::printf("command    %s\n", command.c_str());
  std::printf("threads    %d, GOMP_SPINCOUNT %s, OMP_WAIT_POLICY %s\n", n_threads,
              Environment("GOMP_SPINCOUNT").c_str(), Environment("OMP_WAIT_POLICY").c_str());
  if (with_bandwidth) {
    std::printf("bandwidth  %.1f GB/s read by %d threads\n", bandwidth, n_threads);
  }
  std::printf("\n");
  std::fflush(stdout);
  return bandwidth;
}

Resident MeasureResident(const std::string& mapped_file) {
  Resident out;
  out.peak = StatusBytes("VmHWM:");
  out.now = StatusBytes("VmRSS:");
  std::error_code error;
  const std::string path = std::filesystem::canonical(mapped_file, error).string();
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    // A mapping begins with its address range; its counters follow, one "Name: n kB" a line.
    if (line.find('-') < line.find(' ')) {
      inside = !path.empty() && line.find(path) != std::string::npos;
    } else if (inside && line.rfind("Rss:", 0) == 0) {
      out.of_file += std::strtoull(line.c_str() + 4, nullptr, 10) << 10;
    }
  }
  return out;
}

bool ResetPeak() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  return out.good();
}

}  // namespace kvbound::bench
