#include "node/events/kv_event_view.h"

#include <algorithm>
#include <cstring>

namespace larder::node {
namespace {

size_t TierOf(Presence tier) {
  return tier == Presence::kSsd ? 1 : 0;
}

}  // namespace

// Chain hashes are the engine's SHA-256: any eight bytes of one are random.
size_t KvEventView::Hasher::operator()(const Name& name) const {
  size_t out = 0;
  std::memcpy(&out, name.hash.bytes.data(), sizeof out);
  return out ^ (size_t{name.space} * 0x9e3779b97f4a7c15u + name.group);
}

size_t KvEventView::Hasher::operator()(uint32_t number) const {
  const Block& block = (*blocks)[number];
  return operator()(Name{block.space, block.group, block.hash});
}

bool KvEventView::Same::operator()(const Name& name, uint32_t number) const {
  const Block& block = (*blocks)[number];
  return block.space == name.space && block.group == name.group && block.hash == name.hash;
}

void KvEventView::Know(const Namespace& name_space, Space&& space) {
  spaces_[name_space] = next_space_;
  topics_[space.topic];
  space_of_[next_space_++] = {std::move(space)};
}

void KvEventView::LeaveOut(const Namespace& name_space) {
  spaces_[name_space] = kLeftOut;
}

void KvEventView::ForgetEmptySpaces() {
  if (spaces_.size() < forget_at_) return;
  std::erase_if(spaces_, [&](const auto& each) {
    const auto found = space_of_.find(each.second);
    if (found == space_of_.end()) return true;
    if (found->second.blocks != 0) return false;
    space_of_.erase(found);
    return true;
  });
  std::erase_if(topics_, [](const auto& each) { return each.second == 0; });
  forget_at_ = spaces_.size() + kSpacesMax;
}

uint64_t KvEventView::blocks_of(const std::string& topic) const {
  const auto found = topics_.find(topic);
  return found == topics_.end() ? 0 : found->second;
}

bool KvEventView::Has(const Namespace& name_space, const ChainHash& hash, uint16_t group) const {
  const auto space = spaces_.find(name_space);
  return space != spaces_.end() && find_.find(Name{space->second, group, hash}) != find_.end();
}

void KvEventView::BeginSnapshot() {
  snapshot_ = static_cast<uint8_t>(snapshot_ == UINT8_MAX ? 1 : snapshot_ + 1);
  in_snapshot_ = true;
}

void KvEventView::EndSnapshot() {
  if (!std::exchange(in_snapshot_, false)) return;
  for (uint32_t number = 0; number < bound(); ++number) {
    Block& block = blocks_[number];
    if (block.space == kLeftOut) continue;
    for (uint8_t& told_in : block.whole_in) {
      if (told_in != snapshot_) told_in = 0;
    }
    if (block.parts) std::erase_if(*block.parts, [&](const Piece& p) { return p.told_in != snapshot_; });
    TellChange(&block);
    FreeIfGone(number);
  }
}

void KvEventView::Apply(const Namespace& name_space, const BlockEvent& event) {
  const auto found = spaces_.find(name_space);
  if (found == spaces_.end() || found->second == kLeftOut) return;
  const uint32_t space = found->second;
  if (event.kind == BlockEventKind::kCleared) return Clear(space);
  const bool comes = event.kind != BlockEventKind::kRemoved;
  const Name name{space, event.group, event.hash};
  uint32_t number = 0;
  if (comes) {
    number = NumberOf(name, event);
  } else if (const auto known = find_.find(name); known != find_.end()) {
    number = *known;
  } else {
    return;
  }
  Block& block = blocks_[number];
  if (comes) Add(&block, event, TierOf(event.tier));
  if (event.kind != BlockEventKind::kStored) Remove(&block, event, TierOf(event.from));
  TellChange(&block);
  FreeIfGone(number);
}

uint32_t KvEventView::NumberOf(const Name& name, const BlockEvent& event) {
  if (const auto known = find_.find(name); known != find_.end()) return *known;
  uint32_t number = bound();
  if (free_.empty()) {
    blocks_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  Block& block = blocks_[number];
  block.space = name.space;
  block.group = name.group;
  block.hash = name.hash;
  block.hashes.reserve(event.constituents.size());
  for (const ChainHash& hash : event.constituents) block.hashes.push_back(PublishedHash(hash));
  if (block.hashes.empty()) block.hashes = {PublishedHash(name.hash)};
  find_.insert(number);
  SpaceState& space = space_of_.at(name.space);
  ++space.blocks;
  ++topics_[space.space.topic];
  return number;
}

void KvEventView::Add(Block* block, const BlockEvent& event, size_t tier) {
  if (event.whole) {
    block->whole_in[tier] = snapshot_;
    return;
  }
  if (!block->parts) block->parts = std::make_unique<std::vector<Piece>>();
  for (Piece& piece : *block->parts) {
    if (piece.rectangle != event.rectangle || piece.tier != tier) continue;
    piece.told_in = snapshot_;
    return;
  }
  block->parts->push_back({event.rectangle, static_cast<uint8_t>(tier), snapshot_});
}

void KvEventView::Remove(Block* block, const BlockEvent& event, size_t tier) {
  if (event.whole) block->whole_in[tier] = 0;
  if (event.whole || !block->parts) return;
  std::erase_if(*block->parts,
                [&](const Piece& piece) { return piece.rectangle == event.rectangle && piece.tier == tier; });
}

bool KvEventView::Covers(const Block& block, size_t tier) const {
  if (block.whole_in[tier] != 0) return true;
  if (!block.parts || block.parts->empty()) return false;
  const Grid& grid = space_of_.at(block.space).space.grid;
  std::vector<bool> there(size_t{grid.layers} * grid.head_groups);
  size_t missing = there.size();
  for (const Piece& piece : *block.parts) {
    if (piece.tier != tier || !WholeOf(grid).Contains(piece.rectangle)) continue;
    for (uint16_t layer = piece.rectangle.layer_begin; layer < piece.rectangle.layer_end; ++layer) {
      for (uint16_t head = piece.rectangle.head_begin; head < piece.rectangle.head_end; ++head) {
        std::vector<bool>::reference part = there[size_t{layer} * grid.head_groups + head];
        if (!part) --missing;
        part = true;
      }
    }
  }
  return missing == 0;
}

// First what came: a block that moves is never told to be nowhere.
void KvEventView::TellChange(Block* block) {
  const std::string& topic = space_of_.at(block->space).space.topic;
  for (const bool comes : {true, false}) {
    for (size_t tier = 0; tier < kTiers; ++tier) {
      if (block->told[tier] == comes || Covers(*block, tier) != comes) continue;
      block->told[tier] = comes;
      tell_(topic, EventOf(*block, comes ? KvEvent::Kind::kStored : KvEvent::Kind::kRemoved, tier));
    }
  }
}

void KvEventView::FreeIfGone(uint32_t number) {
  Block& block = blocks_[number];
  const bool whole = block.whole_in[0] != 0 || block.whole_in[1] != 0;
  if (whole || (block.parts && !block.parts->empty())) return;
  find_.erase(number);
  SpaceState& space = space_of_.at(block.space);
  --space.blocks;
  --topics_[space.space.topic];
  block = Block();
  free_.push_back(number);
}

// AllBlocksCleared speaks for the whole topic, so it comes only when nothing else is left there; and after
// the blocks' own removals, since not every router heeds it.
void KvEventView::Clear(uint32_t space) {
  for (uint32_t number = 0; number < bound(); ++number) {
    Block& block = blocks_[number];
    if (block.space != space) continue;
    block.whole_in = {};
    block.parts.reset();
    TellChange(&block);
    FreeIfGone(number);
  }
  const std::string& topic = space_of_.at(space).space.topic;
  if (topics_[topic] == 0) tell_(topic, {KvEvent::Kind::kCleared, Presence::kRam, 0, 0, {}});
}

KvEvent KvEventView::EventOf(const Block& block, KvEvent::Kind kind, size_t tier) const {
  const auto tokens = space_of_.at(block.space).space.block_tokens;
  const uint32_t each =
      kind == KvEvent::Kind::kStored ? tokens / static_cast<uint32_t>(block.hashes.size()) : 0;
  return {kind, tier == 1 ? Presence::kSsd : Presence::kRam, block.group, each, block.hashes};
}

void KvEventView::Describe(const std::string& topic, uint32_t begin, uint32_t end,
                           std::vector<KvEvent>* out) const {
  for (uint32_t number = begin; number < std::min(end, bound()); ++number) {
    const Block& block = blocks_[number];
    if (block.space == kLeftOut || space_of_.at(block.space).space.topic != topic) continue;
    for (size_t tier = 0; tier < kTiers; ++tier) {
      if (block.told[tier]) out->push_back(EventOf(block, KvEvent::Kind::kStored, tier));
    }
  }
}

}  // namespace larder::node
