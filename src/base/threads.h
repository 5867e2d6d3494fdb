#ifndef KVBOUND_BASE_THREADS_H_
#define KVBOUND_BASE_THREADS_H_

#include <string>

namespace kvbound {

// How many threads are useful to this process, and what decided it.
struct ThreadLimit {
  int n = 1;
  std::string reason;  // "2 cores in the affinity mask", "cpu.max 150000/100000"
};

// min(cores in the affinity mask, floor(CPU quota of the control groups)), at least 1. Reads
// ROOT/proc/self/cgroup and ROOT/sys/fs/cgroup (version 2 cpu.max, version 1 cpu.cfs_quota_us),
// from the process's own group up to the top. Unreadable files count as no quota.
ThreadLimit DefaultThreads(const std::string& root = "/");

// The same with a given number of cores in the affinity mask.
ThreadLimit LimitThreads(int n_cores, const std::string& root);

}  // namespace kvbound

#endif  // KVBOUND_BASE_THREADS_H_
