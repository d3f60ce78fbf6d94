// Report: a reader found bytes that don't verify. The node checks its own copy and drops it only if it is
// bad: the damage may have happened on the way, and a hostile report must not drop anything.
#include "node/owner/owner_state.h"

namespace larder::node {

void Owner::State::OnReport(Asker& asker, const Report& body) {
  uint32_t number = 0;
  const NamespaceRecord* record = NamespaceFor(asker, body.number, &number);
  if (record == nullptr) return;
  if (body.blocks.empty() || body.blocks.size() > kBlocksMax) {
    return Refuse(asker, Code::kInvalid, "a report names 1 to " + std::to_string(kBlocksMax) + " blocks");
  }
  for (const BlockRef& ref : body.blocks) {
    if (!CheckRectangle(asker, *record, ref.rectangle)) return;
  }
  if (checks.size() + body.blocks.size() > kVerifiesMax) {
    return Refuse(asker, Code::kBusy, "too many blocks are being checked; report again later");
  }
  ++counts.reports;
  const uint64_t id = ++last_id;
  PendingReport report{asker.id, asker.envelope, asker.expire_us, std::vector<uint8_t>(body.blocks.size(), 0),
                       0};
  std::vector<Patch> sources;
  std::vector<Verify> verifies;
  for (uint32_t i = 0; i < body.blocks.size(); ++i) {
    const BlockRef& ref = body.blocks[i];
    // What lies on SSD is verified whenever it is read, so only memory needs a look.
    if (!CoverOf(index.Find(SpaceOf(number), ref.hash, ref.group), ref.rectangle, &sources)) continue;
    for (const Patch& source : sources) {
      if (index[source.entry].hidden != 0)
        continue;  // two patches of one piece, and it has just been dropped
      Result<BlockHeader> header = HeaderOf(source.entry);
      if (!header.ok()) {
        Leave(source.entry, Presence::kCorrupt);
        ++counts.reports_dropped;
        report.dropped[i] = 1;
        continue;
      }
      if (checks.size() >= kVerifiesMax) break;
      PinHard(source.entry);
      const uint64_t token = ++last_id;
      checks.emplace(token, Check{id, i, source.entry});
      ++report.checks_left;
      verifies.push_back({token,
                          {arena.Payload(PlaceOf(source.entry)), index.place(source.entry).payload_bytes},
                          std::move(header).value().parts});
    }
  }
  const bool done = report.checks_left == 0;
  reports.emplace(id, std::move(report));
  asker.session->reports.insert(id);
  for (Verify& verify : verifies) outbox->Deliver(asker.id, std::move(verify));
  if (done) AnswerReport(id);
}

void Owner::State::OnVerified(uint64_t token, bool good) {
  const auto found = checks.find(token);
  if (found == checks.end()) return;
  const Check check = found->second;
  checks.erase(found);
  const bool left_already = index[check.entry].hidden != 0;
  if (check.report == 0) --scrubs_open;
  if (!good && !left_already) {
    ++(check.report == 0 ? counts.scrub_dropped : counts.reports_dropped);
    Leave(check.entry, Presence::kCorrupt);
  }
  UnpinHard(check.entry);
  const auto report = reports.find(check.report);
  if (report == reports.end()) return;  // whoever asked is gone
  if (!good) report->second.dropped[check.block] = 1;
  if (--report->second.checks_left == 0) AnswerReport(check.report);
}

void Owner::State::AnswerReport(uint64_t id) {
  const auto found = reports.find(id);
  const PendingReport report = std::move(found->second);
  reports.erase(found);
  Session& session = sessions.at(report.session);
  session.reports.erase(id);
  Answer({report.session, &session, report.envelope, report.expire_us}, ReportReply{report.dropped});
}

}  // namespace larder::node
