#include "tests/unit/ssd/tier_rig.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "node/ssd/record.h"
#include "proto/checksum.h"

namespace larder::node::ssd {

ChainHash HashOf(uint64_t key) {
  return {Sha256(AsBytes("block " + std::to_string(key)))};
}
Namespace SpaceName(uint8_t space) {
  return {Sha256(AsBytes("space " + std::to_string(space)))};
}

Bytes PayloadOf(const Block& block) {
  Bytes bytes(uint64_t{block.part_bytes} * block.layers);
  uint64_t state = block.key * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < bytes.size(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    bytes[i] = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

BlockHeader HeaderOf(const Block& block) {
  BlockHeader header;
  header.name_space = SpaceName(block.space);
  header.hash = HashOf(block.key);
  header.rectangle = {0, block.layers, 0, 1};
  header.clear_epoch = block.clear_epoch;
  header.created_ms = 1'699'000'000'000;
  const Bytes payload = PayloadOf(block);
  for (uint16_t layer = 0; layer < block.layers; ++layer) {
    const auto part = ByteView(payload).subspan(uint64_t{layer} * block.part_bytes, block.part_bytes);
    header.parts.push_back({block.part_bytes, Crc32c(0, part)});
  }
  return header;
}

ScratchFolder::ScratchFolder() {
  char name[] = "/tmp/larder-ssd-XXXXXX";
  path = mkdtemp(name);
}
ScratchFolder::~ScratchFolder() {
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

void TierRig::Start(std::vector<std::unique_ptr<Disk>> disks) {
  tier.reset();
  held_.clear();
  tier = std::make_unique<SsdTier>(options, std::move(disks));
}

bool TierRig::Until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (uint64_t step = 0; !done(); ++step) {
    now_us += 100;
    tier->Poll(now_us, unix_ms, this);
    if (real) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (step > 100'000) {
      return false;
    }
  }
  return true;
}

uint32_t TierRig::Space(uint8_t space, uint32_t epoch) {
  return tier->OpenSpace({SpaceName(space), epoch, "tenant", "kind=opaque\n"});
}

bool TierRig::BeginWrite(const Block& block) {
  if (tier->WritableBytes(now_us) == 0) return false;
  const uint64_t token = ++last_token_;
  Held& held = held_[token];
  held.block = block;
  EncodeHeader(HeaderOf(block), &held.header);
  const Bytes payload = PayloadOf(block);
  held.payload = MakePages(payload.size());
  std::memcpy(held.payload.get(), payload.data(), payload.size());
  const TierPiece piece{token, Space(block.space, block.clear_epoch), 0, held.header, held.payload.get()};
  if (tier->Write({&piece, 1}) == 1) return true;
  held_.erase(token);
  return false;
}

bool TierRig::Write(const std::vector<Block>& blocks) {
  const uint64_t first = last_token_ + 1;
  for (const Block& block : blocks) {
    if (!Until([&] { return BeginWrite(block); })) return false;
  }
  return Until([&] {
    for (uint64_t token = first; token <= last_token_; ++token) {
      if (held_.count(token) != 0) return false;
    }
    return true;
  });
}

void TierRig::OnWritten(uint64_t token, bool stored) {
  written[token] = stored;
  const auto found = held_.find(token);
  if (found == held_.end()) return;
  if (stored) acknowledged[found->second.block.key] = found->second.block;
  held_.erase(found);
}

uint32_t TierRig::Find(const Block& block) {
  return tier->First(Space(block.space, block.clear_epoch), HashOf(block.key), 0);
}

TierRig::Outcome TierRig::Read(const Block& block, const Rectangle* part) {
  const uint32_t entry = Find(block);
  if (entry == SsdTier::kNone) return Outcome::kMissing;
  const Bytes expected = PayloadOf(block);
  const Rectangle rectangle = part != nullptr ? *part : tier->entry(entry).rectangle;
  const Pages memory = MakePages(expected.size());
  std::memset(memory.get(), 0, expected.size());
  const uint64_t token = ++last_token_;
  if (!Until([&] {
        return tier->First(Space(block.space, block.clear_epoch), HashOf(block.key), 0) == SsdTier::kNone ||
               tier->Read(token, entry, rectangle, memory.get(), Lane::kInteractive, now_us);
      })) {
    return Outcome::kWrong;
  }
  if (!Until([&] { return reads.count(token) != 0 || Find(block) == SsdTier::kNone; }))
    return Outcome::kWrong;
  Until([&] { return reads.count(token) != 0; });
  if (reads.count(token) == 0 || reads[token].status != ReadStatus::kOk) return Outcome::kMissing;
  if (reads[token].header != HeaderOf(block)) return Outcome::kWrong;
  for (uint16_t layer = rectangle.layer_begin; layer < rectangle.layer_end; ++layer) {
    const size_t at = uint64_t{layer} * block.part_bytes;
    if (std::memcmp(memory.get() + at, expected.data() + at, block.part_bytes) != 0) return Outcome::kWrong;
  }
  return Outcome::kGood;
}

}  // namespace larder::node::ssd
