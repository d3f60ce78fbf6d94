// A data directory: whose it is, which version, and that nobody else uses it.
//   LARDER    text: "larder-ssd 1", then "node ...", "cluster ...", "segment_bytes ..."
//   lock      held (flock) while a node runs
//   index/    RocksDB
//   clears    clear epochs, so that they outlive a broken index: {digest, u32 epoch, u32 crc32c} each
//   NNNNNN.seg
#pragma once

#include <string>
#include <vector>

#include "node/ssd/disk.h"
#include "proto/status.h"

namespace larder::node::ssd {

struct DirectoryOptions {
  std::string directory;
  std::string node_id;
  std::string cluster;
  uint64_t segment_bytes = 256ull << 20;
  bool start_empty = false;
};

// The node that a directory belongs to; empty: nobody, or it can't be read.
std::string NodeIdOf(const std::string& directory);

std::string SegmentPath(const std::string& directory, uint32_t segment);

class Directory {
 public:
  // One line says what to do when it is somebody else's, newer, in use, or can't be written. `remarks` get
  // what people should know: put aside, emptied.
  static Result<Directory> Open(const DirectoryOptions& options, std::vector<std::string>* remarks);
  Directory(Directory&& other) noexcept;
  Directory& operator=(Directory&&) = delete;
  ~Directory();

  std::string IndexPath() const { return path_ + "/index"; }
  std::string SegmentPath(uint32_t segment) const { return ssd::SegmentPath(path_, segment); }
  std::vector<uint32_t> Segments() const;                    // files that are there
  uint64_t segment_bytes() const { return segment_bytes_; }  // the directory's own, once it has files
  const std::string& path() const { return path_; }

  // Clear epochs that were kept; kCorrupt: they can't be read, so nothing here can be trusted.
  Result<std::vector<SpaceRecord>> LoadClears() const;
  // Durable when it returns.
  Status SaveClear(const SpaceRecord& record);
  // Removes everything but the lock, and writes LARDER anew.
  Status Empty();

 private:
  Directory() = default;
  Status ReadOrMake(const DirectoryOptions& options, std::vector<std::string>* remarks);
  Status PutAside(const std::string& version, std::vector<std::string>* remarks);
  Status WriteMark();

  std::string path_, node_id_, cluster_;
  uint64_t segment_bytes_ = 0;
  int lock_ = -1;
};

}  // namespace larder::node::ssd
