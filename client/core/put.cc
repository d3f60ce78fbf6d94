// Puts: Reserve, then bytes and Commit back to back, chunk by chunk, two deep on each link.
#include <algorithm>

#include "client/core/core.h"

namespace larder::client {
namespace {

constexpr uint64_t kDataBytesTarget = 1ull << 20;  // of one Data message: checked while in cache, then sent

// Which outcome of several copies the caller hears.
int Rank(PutState state) {
  switch (state) {
    case PutState::kStored:
      return 3;
    case PutState::kExists:
      return 2;
    case PutState::kDiffers:
      return 1;
    default:
      return 0;
  }
}

std::string_view Why(PutState state) {
  switch (state) {
    case PutState::kExists:
      return "somebody's copy is there already";
    case PutState::kDiffers:
      return "somebody's copy is there already, with other bits";
    case PutState::kFull:
      return "no memory can be freed for it";
    case PutState::kBusy:
      return "a bound was reached: again later";
    case PutState::kExpired:
      return "too slow: the ticket died";
    case PutState::kCorrupt:
      return "what arrived is not what was sent";
    case PutState::kCleared:
      return "the namespace was cleared meanwhile";
    case PutState::kInvalid:
      return "sizes or rectangle make no sense for the namespace";
    case PutState::kOverQuota:
      return "it does not fit into its tenant's quota";
    default:
      return "";
  }
}

Code CodeOf(PutState state) {
  switch (state) {
    case PutState::kFull:
    case PutState::kOverQuota:
      return Code::kFull;
    case PutState::kBusy:
      return Code::kBusy;
    case PutState::kExpired:
      return Code::kTimedOut;
    case PutState::kCorrupt:
      return Code::kCorrupt;
    case PutState::kCleared:
      return Code::kCancelled;
    case PutState::kInvalid:
      return Code::kInvalid;
    default:
      return Code::kOk;
  }
}

}  // namespace

void Core::RouteSources(PutOperation* put) {
  std::vector<std::pair<Peer*, Share>> shares;
  std::vector<std::pair<uint32_t, std::string>> failed;
  const uint64_t most_bytes = ItemBytesMax(put->priority);
  stats_.puts += put->sources.size();
  put->open_items = put->sources.size();
  for (uint32_t item = 0; item < put->sources.size(); ++item) {
    PutSource& source = put->sources[item];
    if (source.bytes > most_bytes) {
      failed.emplace_back(item, "larger than the bound of bytes in flight");
      source.open_copies = 1;
      continue;
    }
    Peer* peer = nullptr;
    for (uint32_t copy = 0; (peer = Candidate(source.ref.hash, copy, true)) != nullptr; ++copy) {
      ++source.open_copies;
      if (!Usable(peer)) {
        failed.emplace_back(item, peer->record.id + ": " + peer->last_error);
        continue;
      }
      auto share =
          std::find_if(shares.begin(), shares.end(), [&](const auto& entry) { return entry.first == peer; });
      if (share == shares.end()) share = shares.insert(shares.end(), {peer, Share{}});
      share->second.items.push_back(item);
      share->second.chunk_bytes += source.bytes;
    }
    if (source.open_copies == 0) {
      source.open_copies = 1;
      failed.emplace_back(item, "no node takes puts");
    }
  }
  for (const auto& [item, why] : failed)
    SettleCopy(put, item, PutState::kBusy, Status(Code::kUnavailable, why));
  for (auto& [peer, share] : shares) QueueShare(put, peer, std::move(share));
}

bool Core::SendPutChunk(Peer* peer, Link* link, Share* share) {
  auto* put = static_cast<PutOperation*>(share->operation);
  auto call = std::make_unique<Call>();
  Reserve message;
  uint64_t bytes = 0;
  uint64_t header_bytes = 0;
  uint32_t parts = 0;
  size_t at = share->next;
  for (; at < share->items.size() && message.blocks.size() < kPutBlocksMax; ++at) {
    const PutSource& source = put->sources[share->items[at]];
    const bool full =
        bytes + source.bytes / 2 > share->chunk_bytes || bytes + source.bytes > link->batch_bytes_max ||
        parts + source.ref.rectangle.parts() > kChunkPartsMax || header_bytes > kMessageBytesMax / 4;
    if (!message.blocks.empty() && full) break;
    if (!MayHold(peer, static_cast<size_t>(link->lane), bytes + source.bytes)) break;
    bytes += source.bytes;
    header_bytes +=
        128 + source.parts.size() * sizeof(PartRun) + source.constituents.size() * sizeof(ChainHash);
    parts += source.ref.rectangle.parts();
    Reserve::Block block;
    block.ref = source.ref;
    block.parts = source.parts;
    block.constituents = source.constituents;
    block.depth = source.depth;
    message.blocks.push_back(std::move(block));
    call->items.push_back(share->items[at]);
  }
  if (message.blocks.empty()) return false;
  share->next = at;
  call->verb = Verb::kReserve;
  call->operation = put;
  call->name_space = put->name_space;
  call->window_bytes = bytes;
  call->held_bytes = bytes;
  Hold(peer, bytes);
  message.number = link->namespaces[put->name_space].number;
  Call* sent = Launch(link, std::move(call));
  Transmit(link, Encode(EnvelopeFor(*sent), message), nullptr);
  return true;
}

// Tickets are here: what got one is sent, its Commit right behind it.
void Core::OnReserveReply(Link* link, Call* call, ByteView record) {
  auto* put = static_cast<PutOperation*>(call->operation);
  ReserveReply reply;
  const Status decoded = Decode(record, &reply);
  if (!decoded.ok() || reply.blocks.size() != call->items.size()) {
    return Misbehaved(link,
                      decoded.ok() ? "a Reserve reply with another number of blocks" : decoded.ToString());
  }
  PutJob job;
  uint64_t ticket_bytes = 0;
  for (size_t i = 0; i < reply.blocks.size(); ++i) {
    const uint32_t item = call->items[i];
    if (reply.blocks[i].state != PutState::kTicket) {
      SettleCopy(put, item, reply.blocks[i].state, Status::Ok());
      continue;
    }
    const PutSource& source = put->sources[item];
    const auto extents = std::span(put->extents).subspan(source.first_extent, source.extent_count);
    job.blocks.push_back({reply.blocks[i].ticket, {extents.begin(), extents.end()}, source.parts});
    call->ticketed.push_back(item);
    ticket_bytes += source.bytes;
  }
  auto entry = link->calls.extract(call->request_id);
  Unhold(call->peer, std::exchange(call->held_bytes, 0));
  if (job.blocks.empty()) {
    link->calls.insert(std::move(entry));
    Take(call);
    return MayComplete(put);
  }
  call->verb = Verb::kCommit;
  call->request_id = ++last_id_;
  entry.key() = call->request_id;
  link->calls.insert(std::move(entry));
  link->window_bytes -= call->window_bytes - ticket_bytes;
  call->window_bytes = ticket_bytes;
  call->stop = std::make_shared<std::atomic<bool>>(false);
  job.stop = call->stop;
  job.commit = EnvelopeFor(*call);
  job.data = job.commit;
  job.data.verb = Verb::kData;
  job.expire_us = put->deadline_us;
  GroupJob(link, call, &job);
  effects_->SendPut(link->id, std::move(job));
}

// Cuts the job into Data messages and takes down who may still read the caller's memory.
void Core::GroupJob(Link* link, Call* call, PutJob* job) {
  auto* put = static_cast<PutOperation*>(call->operation);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < job->blocks.size(); ++i) {
    bytes += put->sources[call->ticketed[i]].bytes;
    if (bytes < kDataBytesTarget && i + 1 < job->blocks.size()) continue;
    const uint64_t token = ++last_id_;
    job->groups.push_back({token, i + 1});
    call->tokens.push_back(token);
    sends_.emplace(token, SendRecord{put->id, link->id, call->peer, bytes, nullptr});
    Hold(call->peer, bytes);
    ++put->sends;
    bytes = 0;
  }
}

void Core::OnCommitReply(std::unique_ptr<Call> call, Link* link, ByteView record) {
  auto* put = static_cast<PutOperation*>(call->operation);
  CommitReply reply;
  const Status decoded = Decode(record, &reply);
  if (!decoded.ok() || reply.states.size() != call->ticketed.size()) {
    const std::string why =
        decoded.ok() ? "a Commit reply with another number of blocks" : decoded.ToString();
    for (const uint32_t item : call->ticketed) {
      SettleCopy(put, item, PutState::kCorrupt, Status(Code::kCorrupt, why));
    }
    return Misbehaved(link, why);
  }
  for (size_t i = 0; i < reply.states.size(); ++i) {
    const PutState state = reply.states[i] == PutState::kTicket ? PutState::kInvalid : reply.states[i];
    SettleCopy(put, call->ticketed[i], state, Status::Ok());
  }
}

// One copy of a block has its outcome; the block has when all have.
void Core::SettleCopy(PutOperation* put, uint32_t item, PutState state, const Status& why) {
  PutSource& source = put->sources[item];
  if (source.open_copies == 0) return;
  PutResult& result = put->results[item];
  const bool first = !source.answered;
  const Status reason = why.ok() ? Status(CodeOf(state), std::string(Why(state))) : why;
  if (Rank(state) != 0) ++result.copies;
  if (first || Rank(state) > Rank(result.state)) {
    result.state = state;
    result.why = state == PutState::kStored ? Status::Ok() : reason;
  }
  source.answered = true;
  if (--source.open_copies != 0) return;
  switch (result.state) {
    case PutState::kStored:
      ++stats_.stored;
      stats_.bytes_put += source.bytes;
      break;
    case PutState::kExists:
      ++stats_.exists;
      break;
    case PutState::kDiffers:
      ++stats_.differs;
      break;
    default:
      ++stats_.not_stored;
  }
  --put->open_items;
  MayComplete(put);
}

}  // namespace larder::client
