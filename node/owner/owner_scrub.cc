// A slow walk over all that is held, memory and SSD: bytes that went bad are found before a reader asks, and
// while other nodes or the engine still have them. Nothing is touched, moved or made warmer by it.
#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint64_t kStepUs = 100'000;  // at least, between two steps
constexpr uint32_t kPiecesMax = 64;    // of a step
constexpr uint32_t kLooksMax = 1024;   // entry numbers of a step, used or not
constexpr uint64_t kSecondUs = 1'000'000;
}  // namespace

void Owner::State::Scrub() {
  if (options.scrub_bytes_per_s == 0 || now_us < scrub_us) return;
  const uint64_t most = std::max<uint64_t>(options.scrub_bytes_per_s * kStepUs / kSecondUs, 1);
  uint64_t bytes = 0;
  // Who is still busy with the last step's gets no more; a node that leaves has other work.
  if (scrubs_open == 0 && !draining) bytes = std::max(ScrubMemory(most), ScrubSsd(most));
  scrub_us = now_us + std::max(kStepUs, bytes * kSecondUs / options.scrub_bytes_per_s);
}

uint64_t Owner::State::ScrubMemory(uint64_t most) {
  uint64_t bytes = 0;
  uint32_t looks = std::min(kLooksMax, index.entry_bound());
  for (uint32_t pieces = 0; looks > 0 && pieces < kPiecesMax && bytes < most; --looks) {
    if (scrub_next >= index.entry_bound()) scrub_next = 0;
    const uint32_t entry = scrub_next++;
    if (index[entry].hidden != 0 || index[entry].spilling != 0) continue;
    ++pieces;
    ++counts.scrubbed;
    bytes += index.place(entry).payload_bytes;
    Result<BlockHeader> header = HeaderOf(entry);
    if (!header.ok()) {
      ++counts.scrub_dropped;
      Leave(entry, Presence::kCorrupt);
      continue;
    }
    PinHard(entry);
    const uint64_t token = ++last_id;
    checks.emplace(token, Check{0, 0, entry});
    ++scrubs_open;
    outbox->Deliver(0, Verify{token,
                              {arena.Payload(PlaceOf(entry)), index.place(entry).payload_bytes},
                              std::move(header).value().parts});
  }
  counts.scrubbed_bytes += bytes;
  return bytes;
}

// What does not verify is dropped by the tier, which says so itself.
uint64_t Owner::State::ScrubSsd(uint64_t most) {
  if (ssd == nullptr) return 0;
  uint64_t bytes = 0;
  uint32_t looks = std::min(kLooksMax, ssd->entry_bound());
  for (uint32_t pieces = 0; looks > 0 && pieces < kPiecesMax && bytes < most; --looks) {
    if (scrub_next_ssd >= ssd->entry_bound()) scrub_next_ssd = 0;
    const std::optional<uint64_t> taken = ssd->Scrub(scrub_next_ssd, now_us);
    if (!taken) break;
    ++scrub_next_ssd;
    if (*taken == 0) continue;
    ++pieces;
    bytes += *taken;
  }
  return bytes;
}

}  // namespace larder::node
