// Quarantine: what is in memory leaves in one step; what lies on SSD leaves when somebody looks for it: by
// the tag of its writer that the index has, or, where it has none, when its record is read. Readers come from
// a bounded memory.
#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

// Everything in memory that a rule names. About 0.2 us a piece, and operators do it seldom.
void Owner::State::DropBanned() {
  for (uint32_t entry = 0; entry < index.entry_bound(); ++entry) {
    const Entry& e = index[entry];
    if (e.hidden != 0) continue;  // free, or found by nobody
    const Result<BlockHeader> header = HeaderOf(entry);
    if (!header.ok() || !rules.Bans(header.value().writer, header.value().created_ms)) continue;
    ++counts.quarantined;
    Leave(entry, Presence::kQuarantined);
  }
}

// True: the piece is ruled out and has left.
bool Owner::State::DropIfBanned(uint32_t entry, const BlockHeader& header) {
  if (rules.rules().empty() || !rules.Bans(header.writer, header.created_ms)) return false;
  if (index[entry].hidden == 0) {
    ++counts.quarantined;
    Leave(entry, Presence::kQuarantined);
  }
  return true;
}

// The same for a record that was read from SSD.
bool Owner::State::DropIfBanned(const ColdRead& read, const BlockHeader& header) {
  if (rules.rules().empty() || !rules.Bans(header.writer, header.created_ms)) return false;
  const uint32_t space = name_spaces[read.name.space.number].ssd_space;
  uint32_t cold = ssd->First(space, read.name.hash, read.name.group);
  while (cold != kNone && ssd->entry(cold).rectangle != read.piece) cold = ssd->Next(cold);
  if (cold != kNone) RemoveCold(cold, Presence::kQuarantined);
  ++counts.quarantined;
  misses.Remember(FingerprintOf(read.name.space.number, read.name.hash, read.name.group),
                  Presence::kQuarantined, unix_ms);
  return true;
}

// By the second in which it was written: of a rule's first second it may rule out too much.
bool Owner::State::BannedCold(uint32_t cold) const {
  const uint32_t tag = ssd->writer_tag(cold);
  const uint64_t created_ms = uint64_t{ssd->times(cold).created_s} * 1000 + 999;
  return std::ranges::any_of(rules.rules(), [&](const QuarantineRule& rule) {
    return ssd::WriterTag(rule.writer) == tag && created_ms >= rule.since_ms;
  });
}

void Owner::State::DropBannedCold(uint32_t number, uint32_t cold) {
  const ssd::SsdEntry& e = ssd->entry(cold);
  ++counts.quarantined;
  misses.Remember(FingerprintOf(number, e.hash, e.group), Presence::kQuarantined, unix_ms);
  RemoveCold(cold, Presence::kQuarantined);
}

void Owner::State::AnswerBypassed(const Asker& asker, size_t keys) {
  constexpr auto kBypassed = static_cast<uint8_t>(Presence::kBypassed);
  MatchReply reply;
  reply.presence.assign(keys, kBypassed);
  AnswerMatch(asker, std::move(reply), {});
}

void Owner::SetQuarantine(Quarantine rules) {
  state_->rules = std::move(rules);
  state_->DropBanned();
}

const Quarantine& Owner::quarantine() const {
  return state_->rules;
}

Result<Quarantine> Owner::WithRule(const QuarantineRule& rule, bool transitive) const {
  Quarantine out = state_->rules;
  Result<bool> added = out.Add(rule);
  if (!added.ok()) return added.status();
  if (!transitive) return out;
  // Who read from the writer wrote, from then on, what may rest on it; and so on. A rule is looked at again
  // when its time moves back, and times only move back: it ends.
  for (bool changed = true; changed;) {
    changed = false;
    const std::vector<QuarantineRule> now = out.rules();
    const std::vector<Readers> readers = state_->readers.ReadersOf(now);
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i].writer != rule.writer && now[i].because != rule.writer) continue;
      for (const auto& [reader, note] : readers[i]) {
        if (reader == now[i].writer) continue;
        added = out.Add({reader, note.first_ms, rule.set_ms, rule.writer});
        if (!added.ok()) return added.status();
        changed = changed || added.value();
      }
    }
  }
  return out;
}

std::vector<Readers> Owner::ReadersOf(std::span<const QuarantineRule> rules) const {
  return state_->readers.ReadersOf(rules);
}

}  // namespace larder::node
