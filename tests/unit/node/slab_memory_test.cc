#include "node/slab_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>

namespace larder::node {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Remembers regions; lets go of them when the test says so.
class RegionTransport final : public transport::Transport {
 public:
  explicit RegionTransport(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  transport::Error Listen(const std::string&, transport::Acceptor*, std::string*) override { return {}; }
  std::shared_ptr<transport::Connection> Connect(const std::string&, std::shared_ptr<transport::Handler>,
                                                 const transport::ConnectOptions&) override {
    return nullptr;
  }
  transport::Error AddRegion(const transport::Region& region) override {
    const std::lock_guard lock(mutex_);
    regions_.push_back(region);
    changed_.notify_all();
    return {};
  }
  void RemoveRegion(const std::byte*, std::function<void()> released) override {
    const std::lock_guard lock(mutex_);
    removed_.push_back(std::move(released));
    changed_.notify_all();
  }
  transport::TransportStats stats() const override { return {}; }
  void Shutdown() override {}

  transport::Region WaitAdded() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !regions_.empty(); });
    return regions_.back();
  }
  size_t added() {
    const std::lock_guard lock(mutex_);
    return regions_.size();
  }
  std::function<void()> WaitRemoved() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !removed_.empty(); });
    std::function<void()> out = std::move(removed_.back());
    removed_.pop_back();
    return out;
  }

 private:
  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<transport::Region> regions_;
  std::vector<std::function<void()>> removed_;
};

struct Rig {
  explicit Rig(SlabMemoryOptions options = {})
      : memory(options, {&shm, &ucx}, &background, [this](std::byte* base) {
          const std::lock_guard lock(mutex);
          gone.push_back(base);
          changed.notify_all();
        }) {}
  ~Rig() { background.Stop(); }
  void WaitPrefaulted(uint64_t bytes) {
    for (int i = 0; i < 10'000 && memory.prefaulted_bytes() < bytes; ++i) usleep(1000);
    ASSERT_GE(memory.prefaulted_bytes(), bytes);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::byte*> gone;
  RegionTransport shm{"shm"}, ucx{"ucx"};
  Background background;
  SlabMemory memory;
};

TEST(SlabMemory, MakesZeroedAlignedSealedSlabs) {
  Rig rig;
  std::byte* base = rig.memory.Make(4 * kMiB + 4096);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 4096, 0u);
  for (uint64_t at = 0; at < 4 * kMiB + 4096; at += 4096) ASSERT_EQ(base[at], std::byte{0});
  const transport::Region region = rig.shm.WaitAdded();
  EXPECT_EQ(region.base, base);
  EXPECT_GE(region.bytes, 4 * kMiB + 4096);
  const int seals = fcntl(region.fd, F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
  EXPECT_EQ(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, 0), MAP_FAILED);
  void* reader = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, region.fd, 0);
  ASSERT_NE(reader, MAP_FAILED);
  base[5] = std::byte{7};
  EXPECT_EQ(static_cast<const std::byte*>(reader)[5], std::byte{7});
  munmap(reader, kMiB);
}

TEST(SlabMemory, TouchesPagesWithoutChangingThem) {
  Rig rig;
  std::byte* base = rig.memory.Make(32 * kMiB);
  ASSERT_NE(base, nullptr);
  // Written while the background is at it.
  for (uint64_t at = 0; at < 32 * kMiB; at += 1024) base[at] = static_cast<std::byte>(at / 1024 | 1);
  rig.WaitPrefaulted(32 * kMiB);
  for (uint64_t at = 0; at < 32 * kMiB; at += 1024)
    ASSERT_EQ(base[at], static_cast<std::byte>(at / 1024 | 1));
  std::vector<unsigned char> resident(32 * kMiB / 4096);
  ASSERT_EQ(mincore(base, 32 * kMiB, resident.data()), 0);
  for (const unsigned char page : resident) EXPECT_TRUE(page & 1);
  EXPECT_EQ(rig.ucx.WaitAdded().base, base) << "registered after it was touched";
}

TEST(SlabMemory, WithoutPrefaultItIsRegisteredUntouched) {
  Rig rig({.huge_pages = false, .prefault = false});
  std::byte* base = rig.memory.Make(8 * kMiB);
  EXPECT_EQ(rig.ucx.WaitAdded().base, base);
  EXPECT_EQ(rig.memory.prefaulted_bytes(), 0u);
  EXPECT_STREQ(rig.memory.huge_pages(), "none");
}

// Nobody maps it, so that it need not be shared memory, which gets no transparent huge pages on most
// machines.
TEST(SlabMemory, WithoutShmSlabsArePrivateAndBeginAtAHugePage) {
  RegionTransport tcp{"tcp"};
  Background background;
  std::atomic<int> gone{0};
  SlabMemory memory({}, {&tcp}, &background, [&](std::byte*) { ++gone; });
  constexpr uint64_t kBytes = 5 * kMiB + 4096;
  std::byte* base = memory.Make(kBytes);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % (2 * kMiB), 0u);
  for (uint64_t at = 0; at < kBytes; at += 4096) ASSERT_EQ(base[at], std::byte{0});
  base[kBytes - 1] = std::byte{3};
  EXPECT_EQ(tcp.WaitAdded().fd, -1);
  memory.Retire(base, kBytes);
  tcp.WaitRemoved()();
  for (int i = 0; i < 10'000 && gone == 0; ++i) usleep(1000);
  ASSERT_EQ(gone, 1);
  memory.Unmap(base);
}

TEST(SlabMemory, ARetiredSlabLivesUntilEveryTransportLetsGo) {
  Rig rig;
  std::byte* base = rig.memory.Make(8 * kMiB);
  base[77] = std::byte{9};
  rig.WaitPrefaulted(8 * kMiB);
  rig.memory.Retire(base, 8 * kMiB);
  const auto shm_released = rig.shm.WaitRemoved();
  rig.ucx.WaitRemoved()();
  {
    const std::lock_guard lock(rig.mutex);
    EXPECT_TRUE(rig.gone.empty());
  }
  EXPECT_EQ(base[77], std::byte{9});
  shm_released();
  std::unique_lock lock(rig.mutex);
  rig.changed.wait(lock, [&] { return !rig.gone.empty(); });
  EXPECT_EQ(rig.gone, std::vector{base});
  EXPECT_EQ(rig.memory.prefaulted_bytes(), 0u);
  // Until Unmap nobody else gets these addresses.
  for (int i = 0; i < 8; ++i) EXPECT_NE(rig.memory.Make(8 * kMiB), base);
  rig.memory.Unmap(base);
}

TEST(SlabMemory, NoMemoryIsNoSlab) {
  Rig rig;
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(rig.memory.Make(1ull << 62), nullptr);
}

}  // namespace
}  // namespace larder::node
