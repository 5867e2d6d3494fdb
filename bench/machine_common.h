#ifndef KVBOUND_BENCH_MACHINE_COMMON_H_
#define KVBOUND_BENCH_MACHINE_COMMON_H_

#include <cstdint>
#include <string>

namespace kvbound::bench {

// Seconds of a steady clock.
double Now();

// GB/s (1e9 bytes) at which `n_threads` threads together read memory that no cache holds. Takes
// about a second and 768 MiB.
double MeasureReadBandwidth(int n_threads);

// Prints what a table needs to be read by others: machine, CPU features, commit, command, threads,
// load of the machine and, if asked, the read bandwidth, which it returns in GB/s.
double PrintMachine(int argc, char** argv, int n_threads, bool with_bandwidth = true);

// Resident memory of this process in bytes.
struct Resident {
  uint64_t peak = 0;     // VmHWM: of all pages, since the start or the last ResetPeak
  uint64_t now = 0;      // of all pages
  uint64_t of_file = 0;  // of the pages that map the file asked about
};
Resident MeasureResident(const std::string& mapped_file);

// Lets the kernel count the peak anew. False where it refuses.
bool ResetPeak();

}  // namespace kvbound::bench

#endif  // KVBOUND_BENCH_MACHINE_COMMON_H_
