// Explain: what the node knows of a block, for people. Looks and touches nothing; what is over goes.
#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint32_t kPiecesShown = 64;  // of a key and tier
}

BlockStory Owner::State::Explain(uint32_t number, const ChainHash& hash, uint16_t group) {
  const NamespaceRecord& record = name_spaces[number];
  work_left = kWorkPerEvent;
  const uint32_t first = Find(number, hash, group);
  BlockStory story;
  for (uint32_t i = first; i != kNone && story.pieces.size() < kPiecesShown; i = index[i].next_piece) {
    PieceStory& piece = story.pieces.emplace_back();
    piece.tier = Presence::kRam;
    piece.rectangle = index[i].rectangle;
    piece.payload_bytes = index.place(i).payload_bytes;
    piece.pinned = index[i].pinned();
    if (const Result<BlockHeader> header = HeaderOf(i); header.ok()) {
      piece.writer = header.value().writer;
      piece.created_ms = header.value().created_ms;
    }
  }
  const size_t in_memory = story.pieces.size();
  for (uint32_t i = ssd == nullptr ? kNone : ssd->First(record.ssd_space, hash, group);
       i != kNone && story.pieces.size() < in_memory + kPiecesShown; i = ssd->Next(i)) {
    PieceStory& piece = story.pieces.emplace_back();
    piece.tier = Presence::kSsd;
    piece.rectangle = ssd->entry(i).rectangle;
    piece.payload_bytes = ssd->entry(i).payload_bytes;
    piece.created_ms = uint64_t{ssd->times(i).created_s} * 1000;
  }
  work_left = kWorkPerEvent;
  const Rectangle whole{0, record.grid.layers, 0, record.grid.head_groups};
  std::vector<Patch> sources;
  if (CoverBoth(number, hash, group, first, whole, &sources)) {
    story.presence = Presence::kRam;
    for (const Patch& source : sources) {
      if ((source.entry & kSsdBit) != 0) story.presence = Presence::kSsd;
    }
    return story;
  }
  story.presence = WhyMissing(number, hash, group, first);
  if (first == kNone && in_memory < story.pieces.size()) story.presence = Presence::kUncovered;
  story.left_s = misses.Recall(FingerprintOf(number, hash, group)).left_s;
  return story;
}

std::vector<uint8_t> Owner::Presences(const Namespace& name_space, std::span<const ChainHash> hashes,
                                      std::span<const uint16_t> groups) {
  State& state = *state_;
  std::vector<uint8_t> presence(hashes.size() * groups.size(), static_cast<uint8_t>(Presence::kNeverStored));
  if (state.rules.bypass) {
    std::fill(presence.begin(), presence.end(), static_cast<uint8_t>(Presence::kBypassed));
    return presence;
  }
  const auto found = state.number_of.find(name_space);
  if (found == state.number_of.end()) return presence;
  const uint32_t number = found->second;
  const Grid& grid = state.name_spaces[number].grid;
  const Rectangle whole{0, grid.layers, 0, grid.head_groups};
  state.work_left = kWorkPerEvent;
  std::vector<Patch> sources;
  size_t at = 0;
  for (const ChainHash& hash : hashes) {
    for (const uint16_t group : groups) {
      const uint32_t first = state.Find(number, hash, group);
      Presence here = Presence::kRam;
      if (!state.CoverBoth(number, hash, group, first, whole, &sources)) {
        here = state.WhyMissing(number, hash, group, first);
      } else if (std::any_of(sources.begin(), sources.end(),
                             [](const Patch& source) { return (source.entry & kSsdBit) != 0; })) {
        here = Presence::kSsd;
      }
      presence[at++] = static_cast<uint8_t>(here);
    }
  }
  return presence;
}

Result<std::vector<BlockStory>> Owner::Explain(const Namespace& name_space,
                                               const std::vector<BlockAsked>& blocks) {
  const auto found = state_->number_of.find(name_space);
  if (found == state_->number_of.end()) {
    return Status(Code::kNotFound, "nobody has opened the namespace " + ToHex(name_space.bytes) +
                                       " on this node since it started");
  }
  std::vector<BlockStory> stories;
  for (const auto& [hash, group] : blocks) stories.push_back(state_->Explain(found->second, hash, group));
  return stories;
}

}  // namespace larder::node
