// Who read whose blocks: a bounded memory of (block, reader) with the block's writer and the first time. Sets
// of four, the oldest of a set gives way; 16 bytes an entry. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "node/owner/key_sets.h"
#include "node/owner/quarantine.h"
#include "proto/block_key.h"

namespace larder::node {

struct ReaderNote {
  uint64_t first_ms = 0;  // whole seconds
  uint64_t blocks = 0;    // that are remembered
};

using Readers = std::map<Digest, ReaderNote>;  // by credential

class ReaderMemory {
 public:
  explicit ReaderMemory(uint32_t entries);  // rounded up to a power of two, and to one set
  void Remember(uint64_t fingerprint, const Digest& writer, const Digest& reader, uint64_t unix_ms);
  // For each rule, who read blocks of its writer at or after its time. Writers are distinct. Looks at every
  // entry, once for all of them.
  std::vector<Readers> ReadersOf(std::span<const QuarantineRule> rules) const;
  // Reads that were forgotten for others, so that a list may be short.
  uint64_t forgotten() const { return forgotten_; }

 private:
  struct Entry {
    uint64_t fingerprint;
    uint32_t first_s;  // Unix; 0: empty
    uint16_t writer;
    uint16_t reader;
  };
  struct HashOfDigest {
    size_t operator()(const Digest& digest) const;
  };
  // 0: there are too many credentials to tell them apart.
  uint16_t NumberOf(const Digest& credential);

  KeySets<Entry> sets_;
  std::vector<Digest> credentials_ = {Digest{}};
  std::unordered_map<Digest, uint16_t, HashOfDigest> numbers_;
  uint64_t forgotten_ = 0;
};

}  // namespace larder::node
