#include "node/ssd/file_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "node/ssd/index_store.h"
#include "node/ssd/io_engine.h"
#include "node/ssd/rebuild.h"

namespace larder::node::ssd {
namespace {

constexpr uint64_t kIndexRoomBytes = 16 << 20;
constexpr uint32_t kSegmentsMin = 4;
constexpr uint32_t kSegmentsMax = 1u << 20;

class FileDisk final : public Disk {
 public:
  FileDisk(const FileDiskOptions& options, Directory&& directory)
      : options_(options), directory_(std::move(directory)), queue_(options.queue_max) {}
  ~FileDisk() override;

  Status Start(std::vector<std::string>* remarks);

  // Disk
  bool Submit(Job&& job) override;
  void Poll(std::vector<Done>* done, std::vector<Loaded>* loaded) override;
  uint32_t segments_max() const override { return segments_max_; }
  uint64_t segment_bytes() const override { return directory_.segment_bytes(); }
  DiskInfo info() const override;

 private:
  struct Commit {
    Job job;
    uint64_t service_us = 0;
    uint64_t bytes = 0;
  };

  Status OpenIndex(std::vector<std::string>* remarks);
  Status PlanCapacity();
  Status MakeIndexRoom(std::vector<std::string>* remarks);
  Status ApplyToIndex(const std::vector<const Changes*>& changes, bool sync);
  void OnMoved(Job&& job, DiskStatus status, const std::string& error, uint64_t service_us);
  void Finish(uint64_t id, DiskStatus status, uint64_t bytes, uint64_t service_us);
  void Fail(const std::string& error);
  void KeepIndex();
  void LoadAll();
  void CommitAll(std::vector<Commit>* commits);
  DiskStatus MakeSegment(uint32_t segment);
  Status SyncSegments(const std::vector<Commit>& commits);
  int OpenSegment(uint32_t segment, bool make);
  void Give(Loaded&& loaded);

  const FileDiskOptions options_;
  Directory directory_;
  uint32_t segments_max_ = 0;
  bool rebuild_ = false;
  std::vector<SpaceRecord> spaces_;
  std::unique_ptr<std::atomic<int>[]> fds_;
  std::unique_ptr<IndexStore> index_;
  LaneQueue queue_;
  std::unique_ptr<IoEngine> engine_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Commit> commits_;
  std::vector<Done> done_;
  std::vector<Loaded> loaded_;
  std::string error_;
  bool direct_ = true;
  bool stopping_ = false;
  std::atomic<uint64_t> written_bytes_{0}, read_bytes_{0}, index_bytes_{0};
  std::thread keeper_;
};

FileDisk::~FileDisk() {
  queue_.Close();
  if (engine_ != nullptr) engine_->Wake();
  engine_.reset();  // what was under way goes to the keeper
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (keeper_.joinable()) keeper_.join();
  for (uint32_t i = 0; fds_ != nullptr && i < segments_max_; ++i) {
    if (fds_[i] >= 0) close(fds_[i]);
  }
}

Status FileDisk::Start(std::vector<std::string>* remarks) {
  LARDER_RETURN_IF_ERROR(PlanCapacity());
  fds_ = std::make_unique<std::atomic<int>[]>(segments_max_);
  for (uint32_t i = 0; i < segments_max_; ++i) fds_[i] = -1;
  LARDER_RETURN_IF_ERROR(OpenIndex(remarks));
  EngineCalls calls{[this](uint32_t segment) { return fds_[segment].load(); },
                    [this](Job&& job, DiskStatus status, const std::string& error, uint64_t service_us) {
                      OnMoved(std::move(job), status, error, service_us);
                    }};
  if (options_.io_uring) engine_ = MakeUringEngine(&queue_, calls, options_.depth);
  if (engine_ == nullptr) engine_ = MakeThreadEngine(&queue_, calls, options_.threads);
  keeper_ = std::thread([this] { KeepIndex(); });
  return Status::Ok();
}

Status FileDisk::PlanCapacity() {
  struct statvfs fs {};
  if (statvfs(directory_.path().c_str(), &fs) != 0) {
    return Invalid("ssd: cannot look at " + directory_.path() + ": " + std::strerror(errno));
  }
  const std::vector<uint32_t> there = directory_.Segments();
  const uint64_t segment_bytes = directory_.segment_bytes();
  uint64_t capacity = options_.capacity_bytes;
  if (capacity == 0) capacity = fs.f_bavail * fs.f_frsize / 10 * 9 + there.size() * segment_bytes;
  const uint64_t segments = std::min<uint64_t>(capacity / segment_bytes, kSegmentsMax);
  if (segments < kSegmentsMin) {
    return Invalid("ssd: " + directory_.path() + " has room for " + std::to_string(segments) +
                   " segments of " + std::to_string(segment_bytes >> 20) + " MiB, the least is " +
                   std::to_string(kSegmentsMin) +
                   "; raise --ssd-bytes, free space, or lower --ssd-segment-bytes");
  }
  segments_max_ = static_cast<uint32_t>(segments);
  // More than before was lowered to: what is beyond is not ours to use any more.
  for (const uint32_t segment : there) {
    if (segment >= segments_max_) unlink(directory_.SegmentPath(segment).c_str());
  }
  return Status::Ok();
}

// RocksDB ends the process when it finds no room for its log. A cache has what can be given up for that.
Status FileDisk::MakeIndexRoom(std::vector<std::string>* remarks) {
  std::vector<uint32_t> there = directory_.Segments();
  uint32_t given = 0;
  for (;;) {
    struct statvfs fs {};
    if (statvfs(directory_.path().c_str(), &fs) != 0) {
      return Invalid("ssd: cannot look at " + directory_.path() + ": " + std::strerror(errno));
    }
    if (fs.f_bavail * fs.f_frsize >= kIndexRoomBytes) break;
    // A file system may show later what it has got back: not everything for nothing.
    if (there.empty() || given * segment_bytes() > 2 * kIndexRoomBytes) {
      return Invalid("ssd: " + directory_.path() + " is full, and its index needs " +
                     std::to_string(kIndexRoomBytes >> 20) +
                     " MiB; free space there, or take it out of --ssd");
    }
    if (unlink(directory_.SegmentPath(there.back()).c_str()) == 0) ++given;
    there.pop_back();
  }
  if (given != 0) {
    remarks->push_back(directory_.path() + " was full: " + std::to_string(given) +
                       " of its segments were given up, so that its index has room");
  }
  return Status::Ok();
}

Status FileDisk::ApplyToIndex(const std::vector<const Changes*>& changes, bool sync) {
  if (index_ == nullptr) return {Code::kInternal, "it could not be made anew"};
  const Status status = index_->Apply(changes, sync);
  index_bytes_ = index_->written_bytes();
  return status;
}

// An index that can't be read is made anew from the segments. Clears come from a file of their own: without
// it nobody could say which blocks a clear had hidden, so then the directory starts empty.
Status FileDisk::OpenIndex(std::vector<std::string>* remarks) {
  Result<std::vector<SpaceRecord>> clears = directory_.LoadClears();
  if (!clears.ok()) {
    remarks->push_back(clears.status().text() + " in " + directory_.path() + ": starts empty there");
    LARDER_RETURN_IF_ERROR(directory_.Empty());
    clears = std::vector<SpaceRecord>();
  }
  LARDER_RETURN_IF_ERROR(MakeIndexRoom(remarks));
  const bool known = std::filesystem::exists(directory_.IndexPath() + "/CURRENT");
  rebuild_ = !known && !directory_.Segments().empty();
  Result<std::unique_ptr<IndexStore>> opened = IndexStore::Open(directory_.IndexPath());
  Status failed = opened.status();
  if (opened.ok()) {
    Result<std::vector<SpaceRecord>> spaces = opened.value()->Spaces();
    failed = spaces.status();
    if (spaces.ok()) spaces_ = std::move(spaces).value();
  }
  if (failed.code() == Code::kCorrupt) {
    remarks->push_back("the index in " + directory_.path() + " can't be read (" + failed.text() +
                       "): it is made anew from the segments");
    rebuild_ = true;
    opened = Status(Code::kInternal, "closed");
    std::error_code error;
    std::filesystem::remove_all(directory_.IndexPath(), error);
    opened = IndexStore::Open(directory_.IndexPath());
    failed = opened.status();
  }
  if (!failed.ok()) return Invalid("ssd: cannot open " + directory_.IndexPath() + ": " + failed.text());
  index_ = std::move(opened).value();
  for (const SpaceRecord& clear : clears.value()) {
    const auto same = [&](const SpaceRecord& space) { return space.name_space == clear.name_space; };
    const auto found = std::find_if(spaces_.begin(), spaces_.end(), same);
    if (found == spaces_.end()) {
      spaces_.push_back(clear);
    } else {
      found->clear_epoch = std::max(found->clear_epoch, clear.clear_epoch);
    }
  }
  Loaded first;
  first.spaces = spaces_;
  loaded_.push_back(std::move(first));
  return Status::Ok();
}

bool FileDisk::Submit(Job&& job) {
  if (job.kind == Job::Kind::kRead || job.kind == Job::Kind::kAppend) {
    if (!queue_.Push(std::move(job))) return false;
    engine_->Wake();
    return true;
  }
  const std::lock_guard lock(mutex_);
  if (stopping_ || commits_.size() >= options_.queue_max) return false;
  commits_.push_back({std::move(job), 0, 0});
  wake_.notify_one();
  return true;
}

void FileDisk::Poll(std::vector<Done>* done, std::vector<Loaded>* loaded) {
  const std::lock_guard lock(mutex_);
  done->insert(done->end(), done_.begin(), done_.end());
  done_.clear();
  for (Loaded& chunk : loaded_) loaded->push_back(std::move(chunk));
  loaded_.clear();
  wake_.notify_one();
}

DiskInfo FileDisk::info() const {
  DiskInfo out;
  out.directory = directory_.path();
  out.engine = engine_->name();
  out.written_bytes = written_bytes_;
  out.read_bytes = read_bytes_;
  out.index_bytes = index_bytes_;
  const std::lock_guard lock(mutex_);
  out.direct = direct_;
  out.error = error_;
  return out;
}

void FileDisk::OnMoved(Job&& job, DiskStatus status, const std::string& error, uint64_t service_us) {
  uint64_t bytes = 0;
  for (const Range& range : job.ranges) bytes += range.bytes;
  if (status != DiskStatus::kOk) Fail(error);
  if (job.kind == Job::Kind::kRead) {
    read_bytes_ += bytes;
    if (status == DiskStatus::kOk && job.check != nullptr && !job.check(job)) status = DiskStatus::kCorrupt;
    const uint64_t id = job.id;
    job = Job();  // what `check` holds goes before the asker hears of it
    return Finish(id, status, bytes, service_us);
  }
  written_bytes_ += bytes;
  if (status != DiskStatus::kOk) return Finish(job.id, status, bytes, service_us);
  const std::lock_guard lock(mutex_);
  commits_.push_back({std::move(job), service_us, bytes});
  wake_.notify_one();
}

void FileDisk::Finish(uint64_t id, DiskStatus status, uint64_t bytes, uint64_t service_us) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back({id, status, bytes, service_us});
  }
  if (options_.notify) options_.notify();
}

void FileDisk::Fail(const std::string& error) {
  const std::lock_guard lock(mutex_);
  error_ = directory_.path() + ": " + error;
}

void FileDisk::KeepIndex() {
  LoadAll();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (commits_.empty()) {
      if (stopping_) return;
      wake_.wait(lock);
      continue;
    }
    std::vector<Commit> commits = std::exchange(commits_, {});
    lock.unlock();
    CommitAll(&commits);
    lock.lock();
  }
}

// One sync and one write of the index for all that have come meanwhile.
void FileDisk::CommitAll(std::vector<Commit>* commits) {
  Status status = options_.sync ? SyncSegments(*commits) : Status::Ok();
  std::vector<const Changes*> changes;
  for (const Commit& commit : *commits) {
    if (!commit.job.changes.empty()) changes.push_back(&commit.job.changes);
    for (const SpaceRecord& space : commit.job.changes.spaces) {
      if (status.ok() && space.clear_epoch != 0) status = directory_.SaveClear(space);
    }
  }
  if (status.ok()) status = ApplyToIndex(changes, options_.sync);
  if (!status.ok()) Fail("index: " + status.text());
  for (Commit& commit : *commits) {
    DiskStatus result = status.ok() ? DiskStatus::kOk : DiskStatus::kFailed;
    if (commit.job.kind == Job::Kind::kMakeSegment) result = MakeSegment(commit.job.segment);
    const uint64_t id = commit.job.id;
    commit.job = Job();
    Finish(id, result, commit.bytes, commit.service_us);
  }
}

Status FileDisk::SyncSegments(const std::vector<Commit>& commits) {
  std::set<uint32_t> segments;
  for (const Commit& commit : commits) {
    if (commit.job.kind == Job::Kind::kAppend) segments.insert(commit.job.segment);
  }
  for (const uint32_t segment : segments) {
    if (fdatasync(fds_[segment]) != 0) return {Code::kInternal, std::string("sync: ") + std::strerror(errno)};
  }
  return Status::Ok();
}

int FileDisk::OpenSegment(uint32_t segment, bool make) {
  const std::string path = directory_.SegmentPath(segment);
  const int flags = O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0);
  int fd = open(path.c_str(), flags | O_DIRECT, 0644);
  if (fd < 0 && errno == EINVAL) {
    fd = open(path.c_str(), flags, 0644);
    const std::lock_guard lock(mutex_);
    direct_ = false;
  }
  return fd;
}

DiskStatus FileDisk::MakeSegment(uint32_t segment) {
  const int fd = OpenSegment(segment, true);
  int failed = fd < 0 ? errno : 0;
  if (fd >= 0 && fallocate(fd, 0, 0, static_cast<off_t>(segment_bytes())) != 0) failed = errno;
  if (failed == 0 && options_.sync && fsync(fd) != 0) failed = errno;
  if (failed == 0) {
    fds_[segment] = fd;
    return DiskStatus::kOk;
  }
  if (fd >= 0) {
    close(fd);
    unlink(directory_.SegmentPath(segment).c_str());
  }
  Fail(std::string("cannot make a segment: ") + std::strerror(failed));
  return failed == ENOSPC || failed == EDQUOT || failed == EFBIG ? DiskStatus::kFull : DiskStatus::kFailed;
}

void FileDisk::Give(Loaded&& loaded) {
  {
    // Loading goes no faster than the owner takes it.
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopping_ || loaded_.size() < 16; });
    loaded_.push_back(std::move(loaded));
  }
  if (options_.notify) options_.notify();
}

void FileDisk::LoadAll() {
  Loaded last;
  last.last = true;
  for (const uint32_t segment : directory_.Segments()) {
    const int fd = OpenSegment(segment, false);
    struct stat info {};
    if (fd < 0) continue;
    // One that was cut, or not yet made whole: the file is whole again, what it lost does not verify.
    if (fstat(fd, &info) != 0 || (info.st_size < static_cast<off_t>(segment_bytes()) &&
                                  fallocate(fd, 0, 0, static_cast<off_t>(segment_bytes())) != 0)) {
      close(fd);
      continue;
    }
    fds_[segment] = fd;
    last.segments.push_back(segment);
  }
  Status status = Status::Ok();
  if (!rebuild_) {
    status = index_->Scan([this](std::vector<IndexRecord>&& records) {
      Loaded chunk;
      chunk.records = std::move(records);
      Give(std::move(chunk));
      const std::lock_guard lock(mutex_);
      return !stopping_;
    });
    if (!status.ok()) {
      Fail("index: " + status.text() + "; it is made anew from the segments");
      index_.reset();
      std::error_code error;
      std::filesystem::remove_all(directory_.IndexPath(), error);
      Result<std::unique_ptr<IndexStore>> opened = IndexStore::Open(directory_.IndexPath());
      if (opened.ok()) index_ = std::move(opened).value();
      Changes changes;
      changes.spaces = spaces_;
      status = ApplyToIndex({&changes}, options_.sync);
    }
  }
  if (rebuild_ || !status.ok()) {
    last.rebuilt = true;
    for (const uint32_t segment : last.segments) {
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
      }
      Loaded chunk;
      chunk.rebuilt = true;
      chunk.records = ReadSegment(fds_[segment], segment, segment_bytes());
      Changes changes;
      changes.puts = chunk.records;
      status = ApplyToIndex({&changes}, false);
      if (!status.ok()) Fail("index: " + status.text());
      Give(std::move(chunk));
    }
  }
  Give(std::move(last));
}

}  // namespace

Result<std::unique_ptr<Disk>> OpenFileDisk(const FileDiskOptions& options,
                                           std::vector<std::string>* remarks) {
  Result<Directory> directory = Directory::Open(options.directory, remarks);
  if (!directory.ok()) return directory.status();
  auto disk = std::make_unique<FileDisk>(options, std::move(directory).value());
  LARDER_RETURN_IF_ERROR(disk->Start(remarks));
  return std::unique_ptr<Disk>(std::move(disk));
}

}  // namespace larder::node::ssd
