// SSD -> memory. A get with pieces on SSD waits until they lie in slots, then is answered like any other;
// whoever takes several replies gets at once what is in memory, and the rest as it comes, some of it at a
// time. A piece that was read becomes a hidden entry, which goes when its bytes are sent, or, when it has
// earned it, a visible one (promotion). Gets begin in their order, interactive before batch, as far as their
// slots fit into a quarter of the memory: each has all of its room before it begins, so that none waits for
// another's.
#include <algorithm>
#include <cstring>

#include "node/owner/owner_get_work.h"

namespace larder::node {

namespace {
constexpr uint64_t kMemoryShare = 4;
constexpr uint64_t kGiveUpUs = 500;            // before the deadline, beside what sending takes
constexpr uint64_t kPartBytesMin = 256 << 10;  // from SSD; less is not worth a reply of its own
}  // namespace

void Owner::State::OnColdGet(const Asker& asker, uint32_t number, const std::vector<BlockRef>& refs,
                             bool prefetch) {
  ColdGet get;
  get.session = asker.id;
  get.envelope = asker.envelope;
  get.expire_us = asker.expire_us;
  get.number = number;
  get.space = SpaceOf(number);
  get.prefetch = prefetch;
  get.move_bytes = asker.move_bytes;
  get.parts = asker.session->parts && !prefetch && get.move_bytes == 0;
  get.lane = asker.envelope.priority == Priority::kBatch ? ssd::Lane::kBatch : ssd::Lane::kInteractive;
  if (asker.expire_us != 0) {
    const uint64_t left_us = asker.expire_us - std::min(asker.expire_us, now_us);
    get.give_up_us = asker.expire_us - std::min(left_us / 4, kGiveUpUs + get_us);
  }
  get.blocks.reserve(refs.size());
  DiskBytes before{};
  for (const BlockRef& ref : refs) {
    ColdGet::Block& block = get.blocks.emplace_back();
    block.ref = ref;
    block.presence = PlanBlock(ref, &get, &block, &before);
  }
  const uint64_t id = ++last_id;
  asker.session->cold_gets.insert(id);
  if (get.give_up_us != UINT64_MAX) cold_ends.emplace(get.give_up_us, id);
  const bool reads = get.slot_bytes != 0;
  if (reads) cold_waiting[static_cast<size_t>(get.lane)].push_back(id);
  cold_queued[static_cast<size_t>(get.lane)] += get.slot_bytes;
  ColdGet& kept = cold_gets.emplace(id, std::move(get)).first->second;
  if (!reads) return FinishCold(id);
  const bool here = std::any_of(kept.blocks.begin(), kept.blocks.end(), [](const ColdGet::Block& block) {
    return IsHit(block.presence) && block.left == 0;
  });
  if (kept.parts && here) AnswerCold(&kept, true);
  PumpCold();
}

// kSsd when the block will come, else why not. Pieces in memory are pinned.
Presence Owner::State::PlanBlock(const BlockRef& ref, ColdGet* get, ColdGet::Block* block,
                                 DiskBytes* before) {
  const uint32_t first = Find(get->number, ref.hash, ref.group);
  std::vector<Patch> patches;
  if (!CoverBoth(get->number, ref.hash, ref.group, first, ref.rectangle, &patches)) {
    return WhyMissing(get->number, ref.hash, ref.group, first);
  }
  if (get->move_bytes != 0) WholePieces(&patches);
  uint64_t bytes = 0, took_us = 0;
  for (const Patch& patch : patches) {
    if ((patch.entry & kSsdBit) == 0) continue;
    const uint32_t cold = patch.entry & ~kSsdBit;
    bytes += SlotBytes(ssd->entry(cold).payload_bytes);
    took_us = std::max(took_us, ReadUs(cold, get->lane, before));
  }
  if (bytes != 0) {
    // After one that can't make it, none behind it on SSD would be of use.
    if (get->too_late || (get->give_up_us != UINT64_MAX && now_us + took_us > get->give_up_us)) {
      get->too_late = true;
      ++counts.cold_timed_out;
      return Presence::kTimedOut;
    }
    if (get->slot_bytes + bytes > options.memory_bytes / kMemoryShare || cold_gets.size() >= kColdGetsMax) {
      ++counts.cold_busy;
      return Presence::kBusy;
    }
  }
  get->slot_bytes += bytes;
  block->cold_bytes = bytes;
  for (const Patch& patch : patches) {
    const bool cold = (patch.entry & kSsdBit) != 0;
    if (cold) {
      ++block->left;
    } else {
      PinHard(patch.entry);
    }
    block->sources.push_back({{cold ? kNone : patch.entry, patch.rectangle},
                              cold ? ssd->entry(patch.entry & ~kSsdBit).rectangle : Rectangle{}});
    if (cold) block->sources.back().bytes = SlotBytes(ssd->entry(patch.entry & ~kSsdBit).payload_bytes);
  }
  return Presence::kSsd;
}

// Until the piece would be read, behind what waits here or at its disk and what else of the chain it has; to
// that it is added.
uint64_t Owner::State::ReadUs(uint32_t cold, ssd::Lane lane, DiskBytes* before) {
  uint64_t queued = 0;
  for (size_t i = 0; i <= static_cast<size_t>(lane); ++i) queued += cold_queued[i];
  uint64_t& ahead = (*before)[ssd->disk_of(cold)];
  const uint64_t us = ssd->EstimateUs(cold, lane, ahead + queued / ssd->disks());
  ahead += ssd->entry(cold).payload_bytes;
  return us;
}

void Owner::State::PumpCold() {
  // Reads that fail at once end their gets, which makes room for others.
  do {
    BeginWaiting();
    for (auto& unsubmitted : cold_unsubmitted) {
      while (!unsubmitted.empty()) {
        const ColdRead& read = cold_reads.at(unsubmitted.front());
        const uint64_t bytes = read.bytes;
        const auto lane = static_cast<size_t>(read.lane);
        if (!SubmitRead(unsubmitted.front())) break;
        cold_queued[lane] -= bytes;
        unsubmitted.pop_front();
      }
    }
  } while (cold_bytes == 0 && !(cold_waiting[0].empty() && cold_waiting[1].empty()));
}

void Owner::State::BeginWaiting() {
  for (auto& waiting : cold_waiting) {
    while (!waiting.empty()) {
      const auto found = cold_gets.find(waiting.front());
      if (found != cold_gets.end()) {
        const uint64_t bytes = found->second.slot_bytes;
        // A batch get does not take the room that an interactive one waits for.
        if (cold_bytes != 0 && cold_bytes + bytes > options.memory_bytes / kMemoryShare) break;
        const uint64_t id = waiting.front();
        waiting.pop_front();
        BeginCold(id);
        continue;
      }
      waiting.pop_front();  // it gave up
    }
    if (!waiting.empty()) return;
  }
}

// Finds or makes the reads that the get waits for.
void Owner::State::BeginCold(uint64_t id) {
  ColdGet& get = cold_gets.at(id);
  get.begun = true;
  cold_bytes += get.slot_bytes;
  cold_queued[static_cast<size_t>(get.lane)] -= get.slot_bytes;
  for (ColdGet::Block& block : get.blocks) {
    for (ColdGet::Source& source : block.sources) {
      if (source.patch.entry != kNone) continue;
      const BlockName name{get.space, block.ref.hash, block.ref.group};
      const auto joined = reading.find(name);
      if (joined != reading.end()) {
        ColdRead& read = cold_reads.at(joined->second);
        if (read.piece == source.piece && read.read.Contains(source.patch.rectangle)) {
          source.read = joined->second;
          read.gets.push_back(id);
          ++get.reads_left;
          continue;
        }
      }
      ColdRead read;
      read.name = name;
      read.piece = source.piece;
      read.read = source.patch.rectangle;
      read.promote = get.prefetch;
      read.lane = get.lane;
      read.bytes = source.bytes;
      cold_queued[static_cast<size_t>(get.lane)] += source.bytes;
      read.gets.push_back(id);
      source.read = ++last_id;
      ++get.reads_left;
      if (joined == reading.end()) reading[name] = source.read;
      cold_unsubmitted[static_cast<size_t>(get.lane)].push_back(source.read);
      cold_reads.emplace(source.read, std::move(read));
    }
  }
}

// False: the disk's queue is full, nothing has changed.
bool Owner::State::SubmitRead(uint64_t id) {
  ColdRead& read = cold_reads.at(id);
  const bool wanted = read.promote || std::any_of(read.gets.begin(), read.gets.end(),
                                                  [&](uint64_t get) { return cold_gets.count(get) != 0; });
  if (!wanted) {
    EndRead(id, kNone, Presence::kTimedOut);
    return true;
  }
  const bool current = read.name.space == SpaceOf(read.name.space.number);
  uint32_t cold = kNone;
  if (current) {
    const uint32_t space = name_spaces[read.name.space.number].ssd_space;
    cold = ssd->First(space, read.name.hash, read.name.group);
    while (cold != kNone && ssd->entry(cold).rectangle != read.piece) cold = ssd->Next(cold);
  }
  if (cold == kNone) {
    EndRead(id, kNone,
            current ? WhyMissing(read.name.space.number, read.name.hash, read.name.group, kNone)
                    : Presence::kCleared);
    return true;
  }
  const ssd::SsdEntry& e = ssd->entry(cold);
  const bool earned = options.promote_after != 0 && e.hits + 1u >= options.promote_after;
  if (earned || read.promote) {
    read.promote = true;
    read.read = read.piece;  // never a partly filled block in memory
  }
  const SlotShape shape{name_spaces[read.name.space.number].tenant, e.header_units * ssd::kHeaderUnitBytes,
                        SlotBytes(e.payload_bytes)};
  eviction_budget = kEvictionsPerRequestMax;
  sweep_budget = kSweepsPerRequestMax;
  if (TakeSlot(shape, &read.place) != PutState::kTicket) {
    EndRead(id, kNone, Presence::kBusy);
    return true;
  }
  read.begun = true;
  if (!ssd->Read(id, cold, read.read, arena.Payload(read.place), read.lane, now_us)) {
    read.begun = false;
    arena.Free(read.place);
    return false;
  }
  ssd->Touch(cold, now_us);
  return true;
}

void Owner::State::OnRead(uint64_t token, ssd::ReadOutcome&& outcome) {
  ColdRead& read = cold_reads.at(token);
  const SlotPlace place = read.place;
  const uint32_t number = read.name.space.number;
  const bool current = read.name.space == SpaceOf(number);
  Bytes header;
  if (outcome.status == ssd::ReadStatus::kOk && current) EncodeHeader(outcome.header, &header);
  if (header.empty() || header.size() > arena.ShapeOf(place).header_bytes) {
    arena.Free(place);
    return EndRead(token, kNone, current ? Presence::kCorrupt : Presence::kCleared);
  }
  if (DropIfBanned(read, outcome.header)) {
    arena.Free(place);
    return EndRead(token, kNone, Presence::kQuarantined);
  }
  // The read may have begun before the place was back.
  if (Old(number, read.name.hash, static_cast<uint32_t>(outcome.header.created_ms / 1000))) {
    arena.Free(place);
    return EndRead(token, kNone, Presence::kPlaceLost);
  }
  std::memcpy(arena.Header(place), header.data(), header.size());
  const uint32_t first = index.Find(read.name.space, read.name.hash, read.name.group);
  std::vector<Patch> sources;
  work_left = kWorkPerEvent;
  // What was removed while it was read is for the get that asked before, and for nobody else.
  bool visible =
      read.promote && outcome.there && read.read == read.piece && !CoverOf(first, read.piece, &sources);
  const SlotShape& shape = arena.ShapeOf(place);
  eviction_budget = kEvictionsPerRequestMax;
  sweep_budget = kSweepsPerRequestMax;
  visible = visible && TakeQuota(shape.tenant, shape.slot_bytes) == PutState::kTicket;
  const uint64_t payload_bytes = outcome.header.payload_bytes();
  const uint32_t entry = AddPiece(read.name, read.piece, place, outcome.header, outcome.depth, visible);
  if (visible) {
    ++counts.promoted;
    counts.promoted_bytes += payload_bytes;
  }
  EndRead(token, entry, Presence::kSsd);
  if (!visible) UnpinHard(entry);
}

// Tells the gets that wait. `entry` is kNone when the read failed.
void Owner::State::EndRead(uint64_t id, uint32_t entry, Presence failed) {
  const ColdRead read = std::move(cold_reads.at(id));
  cold_reads.erase(id);
  if (const auto joined = reading.find(read.name); joined != reading.end() && joined->second == id) {
    reading.erase(joined);
  }
  for (const uint64_t get_id : read.gets) {
    const auto found = cold_gets.find(get_id);
    if (found == cold_gets.end()) continue;  // it gave up
    ColdGet& get = found->second;
    for (ColdGet::Block& block : get.blocks) {
      for (ColdGet::Source& source : block.sources) {
        if (source.read != id || source.patch.entry != kNone) continue;
        --get.reads_left;
        if (--block.left == 0) get.ready_bytes += block.cold_bytes;
        if (entry == kNone) {
          if (IsHit(block.presence)) block.presence = failed;
          source.read = 0;
          continue;
        }
        source.patch.entry = entry;
        PinHard(entry);
      }
    }
    if (get.reads_left == 0) {
      FinishCold(get_id);
    } else if (PartIsDue(get)) {
      AnswerCold(&get, true);
    }
  }
}

// So much of it came that the last reply, too, has its share.
bool Owner::State::PartIsDue(const ColdGet& get) const {
  return get.parts && get.replies + 1 < kGetRepliesMax &&
         get.ready_bytes >= std::max(kPartBytesMin, get.slot_bytes / (kGetRepliesMax - 1));
}

// What of the block is there, each pinned once; its presence is final from here on. What is not there came
// too late.
std::vector<Patch> Owner::State::SettleCold(const ColdGet& get, ColdGet::Block* block) {
  std::vector<Patch> patches;
  for (const ColdGet::Source& source : block->sources) {
    if (source.patch.entry != kNone) patches.push_back(source.patch);
  }
  if (IsHit(block->presence) && patches.size() < block->sources.size()) {
    block->presence = Presence::kTimedOut;
    ++counts.cold_timed_out;
  }
  if (IsHit(block->presence) && get.space != SpaceOf(get.number)) block->presence = Presence::kCleared;
  return patches;
}

// Answers what is there of what is still owed. `more`: the rest follows; else it came too late.
void Owner::State::AnswerCold(ColdGet* get, bool more) {
  Session& session = sessions.at(get->session);
  GetWork work;
  work.reader = session.writer;
  work.number = get->number;
  work.move_bytes = get->move_bytes;
  work.header_bytes += get->blocks.size() * 8;
  for (ColdGet::Block& block : get->blocks) {
    if (block.answered) continue;
    GetReply::Block& out = work.reply.blocks.emplace_back();
    if (more && block.left != 0) {
      out.presence = Presence::kLater;
      continue;
    }
    const std::vector<Patch> patches = SettleCold(*get, &block);
    const bool cold = block.cold_bytes != 0;
    out.presence = block.presence;
    if (IsHit(block.presence)) {
      out.presence = AddPatches(patches, &work, &out);
      if (out.presence == Presence::kRam && cold) out.presence = Presence::kSsd;
      if (out.presence == Presence::kUncovered) out.presence = Presence::kCorrupt;
    }
    const bool sends = IsHit(out.presence);
    const bool counted = sends && cold && get->move_bytes == 0;
    if (counted) ++counts.ssd_hits;
    for (const Patch& patch : patches) {
      if (counted) counts.ssd_hit_bytes += index.place(patch.entry).payload_bytes;
      sends ? work.sending.entries.push_back(patch.entry) : UnpinHard(patch.entry);
    }
    block.answered = true;
    block.sources.clear();
  }
  ++get->replies;
  get->ready_bytes = 0;
  SendGet({get->session, &session, get->envelope, get->expire_us}, std::move(work), more);
}

void Owner::State::FinishPrefetch(ColdGet* get) {
  uint32_t usable = 0;
  for (ColdGet::Block& block : get->blocks) {
    const std::vector<Patch> patches = SettleCold(*get, &block);
    usable += IsHit(block.presence) ? 1 : 0;
    for (const Patch& patch : patches) UnpinHard(patch.entry);
  }
  counts.prefetched += usable;
  Answer({get->session, &sessions.at(get->session), get->envelope, get->expire_us}, PrefetchReply{usable});
}

// Answers with what is there; what is not came too late.
void Owner::State::FinishCold(uint64_t id) {
  const auto found = cold_gets.find(id);
  ColdGet get = std::move(found->second);
  cold_gets.erase(found);
  (get.begun ? cold_bytes : cold_queued[static_cast<size_t>(get.lane)]) -= get.slot_bytes;
  cold_ends.erase({get.give_up_us, id});
  sessions.at(get.session).cold_gets.erase(id);
  get.prefetch ? FinishPrefetch(&get) : AnswerCold(&get, false);
}

// Its session is gone.
void Owner::State::DropCold(uint64_t id) {
  const auto found = cold_gets.find(id);
  ColdGet& get = found->second;
  (get.begun ? cold_bytes : cold_queued[static_cast<size_t>(get.lane)]) -= get.slot_bytes;
  cold_ends.erase({get.give_up_us, id});
  for (const ColdGet::Block& block : get.blocks) {
    for (const ColdGet::Source& source : block.sources) {
      if (source.patch.entry != kNone) UnpinHard(source.patch.entry);
    }
  }
  cold_gets.erase(found);
}

// Nobody wants its answer any more; reads that have begun go on.
void Owner::State::CancelCold(Asker& asker, uint64_t id) {
  asker.envelope = cold_gets.at(id).envelope;
  asker.expire_us = cold_gets.at(id).expire_us;
  DropCold(id);
  asker.session->cold_gets.erase(id);
  Refuse(asker, Code::kCancelled, "cancelled");
  PumpCold();
}

void Owner::State::OnPrefetch(Asker& asker, const Prefetch& body) {
  uint32_t number = 0;
  const NamespaceRecord* record = NamespaceFor(asker, body.number, &number);
  if (record == nullptr || !CheckRectangle(asker, *record, body.rectangle)) return;
  if (body.groups.empty() || body.groups.size() > kGroupsMax || body.hashes.empty() ||
      body.hashes.size() * body.groups.size() > kBlocksMax) {
    return Refuse(asker, Code::kInvalid,
                  "a prefetch names 1 to " + std::to_string(kBlocksMax) + " blocks; split the chain");
  }
  std::vector<BlockRef> refs;
  std::vector<Patch> sources;
  uint32_t here = 0;
  for (const ChainHash& hash : body.hashes) {
    for (const uint16_t group : body.groups) {
      const uint32_t first = Find(number, hash, group);
      if (CoverOf(first, body.rectangle, &sources)) {
        ++here;
      } else {
        refs.push_back({hash, group, body.rectangle});
      }
    }
  }
  if (ssd == nullptr || refs.empty() || rules.bypass) return Answer(asker, PrefetchReply{here});
  OnColdGet(asker, number, refs, true);
}

void Owner::State::OnGone(const ssd::SsdEntry& entry, ssd::WhyGone why) {
  const Presence reason = why == ssd::WhyGone::kCorrupt   ? Presence::kCorrupt
                          : why == ssd::WhyGone::kEvicted ? Presence::kEvictedSsd
                                                          : Presence::kDiskLost;
  LogGone(entry, reason);
  const auto number = number_of_space.find(entry.space);
  if (number == number_of_space.end()) return;
  misses.Remember(FingerprintOf(number->second, entry.hash, entry.group), reason, unix_ms);
}

// A reply that waits for this token waits for the earlier ones too.
void Owner::State::OnDurable(uint64_t token) {
  undurable.erase(token);
  if (clears_on_ssd.erase(token) != 0 && clears_on_ssd.empty() && !clear_tokens.empty()) outbox->OnClears();
  const auto replies = durable_replies.find(token);
  if (replies == durable_replies.end()) return;
  if (const auto later = undurable.lower_bound(token); later != undurable.begin()) {
    std::vector<DurableReply> moved = std::move(replies->second);
    durable_replies.erase(replies);
    std::vector<DurableReply>& earlier = durable_replies[*std::prev(later)];
    std::move(moved.begin(), moved.end(), std::back_inserter(earlier));
    return;
  }
  for (DurableReply& reply : replies->second) {
    if (sessions.count(reply.session) == 0) continue;
    outbox->Deliver(reply.session, Reply{std::move(reply.header), {}, 0, reply.expire_us});
  }
  durable_replies.erase(replies);
}

void Owner::State::PollDisks() {
  if (ssd == nullptr) return;
  ssd->Poll(now_us, unix_ms, this);
  SetClockToSsd();
  LogLoading();
  PumpCold();
  SpillCrowded();
  Spill();
}

}  // namespace larder::node
