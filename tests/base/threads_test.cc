#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kvbound {
namespace {

namespace fs = std::filesystem;

// A made-up file system root that holds what DefaultThreads reads.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (fs::temp_directory_path() / "kvbound-threads-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~FakeRoot() { fs::remove_all(path_); }

  FakeRoot& Write(const std::string& file, const std::string& text) {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
    return *this;
  }
  std::string str() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(LimitThreads, NoQuotaGivesTheAffinityMask) {
  FakeRoot root;
  EXPECT_EQ(LimitThreads(8, root.str()).n, 8);
  EXPECT_EQ(LimitThreads(8, root.str()).reason, "8 cores in the affinity mask");
  EXPECT_EQ(LimitThreads(1, root.str()).reason, "1 core in the affinity mask");
  EXPECT_EQ(LimitThreads(0, root.str()).n, 1);
}

TEST(LimitThreads, Version2QuotaIsRoundedDownButNeverToZero) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "0::/\n");
  const std::string file = "sys/fs/cgroup/cpu.max";
  root.Write(file, "150000 100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 1);
  EXPECT_EQ(LimitThreads(8, root.str()).reason, "cpu.max 150000/100000");
  root.Write(file, "50000 100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 1);
  root.Write(file, "400000 100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 4);
  EXPECT_EQ(LimitThreads(2, root.str()).n, 2);
  root.Write(file, "max 100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 8);
}

TEST(LimitThreads, TheSmallestQuotaOfTheHierarchyCounts) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "0::/user.slice/session.scope\n");
  root.Write("sys/fs/cgroup/user.slice/session.scope/cpu.max", "600000 100000\n");
  root.Write("sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n");
  root.Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 3);
}

TEST(LimitThreads, Version2UnderAHybridMount) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "1:cpu:/\n0::/a\n");
  root.Write("sys/fs/cgroup/unified/a/cpu.max", "200000 100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 2);
}

TEST(LimitThreads, Version1Quota) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/docker/0123\n");
  root.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  root.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 2) << "the mount is the container's own group";
  EXPECT_EQ(LimitThreads(8, root.str()).reason, "cpu.cfs_quota_us 250000/100000");
  root.Write("sys/fs/cgroup/cpu/docker/0123/cpu.cfs_quota_us", "100000\n");
  root.Write("sys/fs/cgroup/cpu/docker/0123/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 1);
}

TEST(LimitThreads, UnlimitedVersion1AndNonsenseCountAsNoQuota) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "nonsense\n::\n4:cpu:/\n0::/../..\n");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  root.Write("sys/fs/cgroup/cpu.max", "lots of it\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 8);
  root.Write("sys/fs/cgroup/cpu.max", "1000 0\n");
  EXPECT_EQ(LimitThreads(8, root.str()).n, 8);
}

TEST(DefaultThreads, FollowsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  FakeRoot root;
  EXPECT_EQ(DefaultThreads(root.str()).n, CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(DefaultThreads(root.str()).n, 1);
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace
}  // namespace kvbound
