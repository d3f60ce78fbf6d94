#include "node/owner/reader_memory.h"

#include <algorithm>
#include <cstring>

namespace larder::node {

size_t ReaderMemory::HashOfDigest::operator()(const Digest& digest) const {
  size_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof hash);  // a digest is one already
  return hash;
}

ReaderMemory::ReaderMemory(uint32_t entries) : sets_(entries) {}

uint16_t ReaderMemory::NumberOf(const Digest& credential) {
  const auto known = numbers_.find(credential);
  if (known != numbers_.end()) return known->second;
  if (credentials_.size() > UINT16_MAX) return 0;
  credentials_.push_back(credential);
  return numbers_[credential] = static_cast<uint16_t>(credentials_.size() - 1);
}

void ReaderMemory::Remember(uint64_t fingerprint, const Digest& writer, const Digest& reader,
                            uint64_t unix_ms) {
  const Entry fresh{fingerprint, static_cast<uint32_t>(unix_ms / 1000), NumberOf(writer), NumberOf(reader)};
  Entry* set = sets_.SetOf(fingerprint);
  for (size_t i = 0; i < sets_.kWays; ++i) {
    if (set[i].first_s != 0 && set[i].fingerprint == fingerprint && set[i].reader == fresh.reader &&
        set[i].writer == fresh.writer) {
      return;
    }
  }
  forgotten_ += set[sets_.kWays - 1].first_s != 0 ? 1 : 0;
  for (size_t i = sets_.kWays - 1; i > 0; --i) set[i] = set[i - 1];
  set[0] = fresh;
}

std::vector<Readers> ReaderMemory::ReadersOf(std::span<const QuarantineRule> rules) const {
  std::vector<Readers> out(rules.size());
  std::vector<uint16_t> rule_of(credentials_.size());  // by writer's number; 0: none, else one more
  for (size_t i = 0; i < rules.size(); ++i) {
    const auto known = numbers_.find(rules[i].writer);
    if (known != numbers_.end()) rule_of[known->second] = static_cast<uint16_t>(i + 1);
  }
  for (const Entry& entry : sets_.all()) {
    if (entry.first_s == 0 || entry.reader == 0 || rule_of[entry.writer] == 0) continue;
    const size_t at = rule_of[entry.writer] - 1u;
    if (entry.first_s < rules[at].since_ms / 1000) continue;
    ReaderNote& note = out[at][credentials_[entry.reader]];
    const uint64_t first_ms = uint64_t{entry.first_s} * 1000;
    note.first_ms = note.blocks == 0 ? first_ms : std::min(note.first_ms, first_ms);
    ++note.blocks;
  }
  return out;
}

}  // namespace larder::node
