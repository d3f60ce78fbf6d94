// The durable index of one directory, in RocksDB: (segment, page) -> what lies there, and namespaces. Keyed
// by place, so that reclaiming a segment is one range deletion; lookups by name are the memory index's.
//   'b' u32 segment u32 page (big-endian) -> the IndexRecord's other fields, little-endian
//   'n' namespace digest                  -> u32 clear epoch, tenant, identity
// One thread uses it. RocksDB's own log makes a change survive the process; with `sync` also the machine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/ssd/disk.h"

namespace larder::node::ssd {

class IndexStore {
 public:
  // kCorrupt: what is there can't be read. kInternal: the file system says no.
  static Result<std::unique_ptr<IndexStore>> Open(const std::string& directory);
  // Removes whatever is there.
  static Status Destroy(const std::string& directory);
  ~IndexStore();

  Status Apply(const std::vector<const Changes*>& changes, bool sync);
  Result<std::vector<SpaceRecord>> Spaces() const;
  // Every record, in chunks, by place; false from `chunk` ends it early.
  Status Scan(const std::function<bool(std::vector<IndexRecord>&&)>& chunk) const;
  uint64_t written_bytes() const { return written_bytes_; }  // of changes, as logged

 private:
  struct Rocks;
  explicit IndexStore(std::unique_ptr<Rocks> rocks);
  std::unique_ptr<Rocks> rocks_;
  uint64_t written_bytes_ = 0;
};

// The encodings, for the tests and their broken input.
Bytes EncodeRecord(const IndexRecord& record);  // without segment and page
bool DecodeRecord(ByteView bytes, IndexRecord* record);
Bytes EncodeSpace(const SpaceRecord& record);  // without the digest
bool DecodeSpace(ByteView bytes, SpaceRecord* record);

}  // namespace larder::node::ssd
