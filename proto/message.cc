#include "proto/message.h"

#include <algorithm>

#include "proto/message_wire.h"

namespace larder {

std::string_view PresenceName(Presence presence) {
  switch (presence) {
    case Presence::kRam:
      return "ram";
    case Presence::kSsd:
      return "ssd";
    case Presence::kWriting:
      return "writing";
    case Presence::kNeverStored:
      return "never-stored";
    case Presence::kEvicted:
      return "evicted";
    case Presence::kExpired:
      return "expired";
    case Presence::kCleared:
      return "cleared";
    case Presence::kRemoved:
      return "removed";
    case Presence::kNotAdmitted:
      return "not-admitted";
    case Presence::kCorrupt:
      return "corrupt";
    case Presence::kQuarantined:
      return "quarantined";
    case Presence::kUncovered:
      return "uncovered";
    case Presence::kTimedOut:
      return "timed-out";
    case Presence::kUnreachable:
      return "unreachable";
    case Presence::kBusy:
      return "busy";
    case Presence::kRefused:
      return "refused";
    case Presence::kDiskBehind:
      return "disk-behind";
    case Presence::kEvictedSsd:
      return "evicted-ssd";
    case Presence::kDiskLost:
      return "disk-lost";
    case Presence::kBypassed:
      return "bypassed";
    case Presence::kOverQuota:
      return "over-quota";
    case Presence::kLater:
      return "later";
    case Presence::kPlaceLost:
      return "place-lost";
  }
  return "unknown";
}

bool GetReply::owes() const {
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const Block& block) { return block.presence == Presence::kLater; });
}

std::string_view PutStateName(PutState state) {
  switch (state) {
    case PutState::kTicket:
      return "ticket";
    case PutState::kStored:
      return "stored";
    case PutState::kExists:
      return "exists";
    case PutState::kDiffers:
      return "differs";
    case PutState::kFull:
      return "full";
    case PutState::kBusy:
      return "busy";
    case PutState::kExpired:
      return "expired";
    case PutState::kCorrupt:
      return "corrupt";
    case PutState::kCleared:
      return "cleared";
    case PutState::kInvalid:
      return "invalid";
    case PutState::kOverQuota:
      return "over-quota";
  }
  return "unknown";
}

Status DecodeEnvelope(ByteView header, Envelope* envelope, ByteView* record) {
  *envelope = {};
  *record = {};
  if (header.size() > kMessageBytesMax) return Invalid("message: the header passes the limit");
  Reader reader(header);
  const uint8_t verb = reader.U8();
  const uint8_t priority = reader.U8();
  const uint16_t code = reader.U16();
  envelope->deadline_us = reader.U32();
  envelope->request_id = reader.U64();
  const uint32_t version = reader.U32();
  reader.U32();  // reserved
  *record = reader.View(reader.U32());
  // What could be read is filled in even when the message is refused, so that the refusal finds its request.
  envelope->reply = (verb & kReplyBit) != 0;
  envelope->verb = static_cast<Verb>(verb & ~kReplyBit);
  if (!reader.ok()) return Invalid("message: shorter than its envelope and record");
  if (priority > static_cast<uint8_t>(Priority::kBatch)) return Invalid("message: unknown priority");
  envelope->priority = static_cast<Priority>(priority);
  // A newer peer's code is an error all the same.
  envelope->code = code <= static_cast<uint16_t>(Code::kInternal) ? static_cast<Code>(code) : Code::kInternal;
  if (envelope->verb < Verb::kHello || envelope->verb > Verb::kLease) {
    return {Code::kUnsupported, "message: unknown verb " + std::to_string(verb & ~kReplyBit)};
  }
  // A Hello is read whatever its version: it is what settles the version.
  if (envelope->verb != Verb::kHello && (version < kWireVersionMin || version > kWireVersionMax)) {
    return {Code::kUnsupported, "message: unknown wire version " + std::to_string(version)};
  }
  return Status::Ok();
}

Status DecodeHashes(ByteView payload, uint32_t count, std::vector<ChainHash>* out) {
  out->clear();
  if (count > kHashesMax) {
    return Invalid("chain of " + std::to_string(count) + " hashes; the limit is " +
                   std::to_string(kHashesMax));
  }
  if (payload.size() != size_t{count} * sizeof(ChainHash)) {
    return Invalid("payload of " + std::to_string(payload.size()) + " bytes for " + std::to_string(count) +
                   " hashes of 32");
  }
  // A hash is bytes and nothing else, so the payload can be read as hashes; copying it in one go spares the
  // zeros that resize() would write first.
  static_assert(alignof(ChainHash) == 1 && std::is_trivially_copyable_v<ChainHash>);
  const auto* hashes = reinterpret_cast<const ChainHash*>(payload.data());
  out->assign(hashes, hashes + count);
  return Status::Ok();
}

}  // namespace larder
