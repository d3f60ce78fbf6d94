// Wait: prefill is still writing, decode wants to know when N leading blocks are there.
#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

void Owner::State::OnWait(Asker& asker, Wait&& body) {
  uint32_t number = 0;
  const NamespaceRecord* record = NamespaceFor(asker, body.number, &number);
  if (record == nullptr || !CheckRectangle(asker, *record, body.rectangle)) return;
  const uint64_t keys = body.hashes.size();
  if (keys == 0 || keys > kHashesMax || body.groups.empty() || body.groups.size() > kGroupsMax ||
      body.leading > keys) {
    return Refuse(asker, Code::kInvalid,
                  "a wait has 1 to " + std::to_string(kHashesMax) + " hashes, 1 to " +
                      std::to_string(kGroupsMax) +
                      " groups and asks for no more leading blocks than it has hashes");
  }
  if (asker.session->waits.size() >= options.waits_per_session_max ||
      waits.keys() + keys > options.waited_keys_max) {
    return Refuse(asker, Code::kBusy, "too many waits or waited keys; try again later or poll with match");
  }
  ++counts.waits;
  if (rules.bypass) return Answer(asker, WaitReply{0});
  if (MayAsk(asker)) {
    // Nobody is held up by it: what comes wakes the wait.
    std::vector<BlockRef> wanted;
    for (const ChainHash& hash : body.hashes) {
      for (const uint16_t group : body.groups) NoteMissing(number, {hash, group, body.rectangle}, &wanted);
      if (wanted.size() >= kAsideKeysOfOne) break;
    }
    if (AskAll(asker, number, wanted, 0) != 0) outbox->OnQuestions();
  }
  Waits::Wait wait;
  wait.session = asker.id;
  wait.envelope = asker.envelope;
  wait.name_space = number;
  wait.rectangle = body.rectangle;
  wait.groups = std::move(body.groups);
  wait.hashes = std::move(body.hashes);
  wait.target = body.leading == 0 ? static_cast<uint32_t>(keys) : body.leading;
  if (asker.expire_us != 0) wait.deadline_us = asker.expire_us;
  const uint64_t id = waits.Add(std::move(wait));
  asker.session->waits.insert(id);
  if (!AdvanceWait(id)) AnswerWait(id);
}

// Counts on to the first key that is missing and watches that. False: as many as asked for are there.
bool Owner::State::AdvanceWait(uint64_t id) {
  Waits::Wait* wait = waits.Find(id);
  for (; wait->have < wait->target; ++wait->have) {
    const ChainHash& hash = wait->hashes[wait->have];
    for (const uint16_t group : wait->groups) {
      if (Covered(wait->name_space, hash, group, Find(wait->name_space, hash, group), wait->rectangle))
        continue;
      waits.Watch(id, {{wait->name_space, 0}, hash, group});
      return true;
    }
  }
  return false;
}

void Owner::State::AnswerWait(uint64_t id) {
  const Waits::Wait* wait = waits.Find(id);
  Session& session = sessions.at(wait->session);
  // No expiry on the answer: a wait that ran into its deadline still has something to say.
  const Asker asker{wait->session, &session, wait->envelope, 0};
  const WaitReply reply{wait->have};
  session.waits.erase(id);
  waits.Remove(id);
  Answer(asker, reply);
}

void Owner::State::WakeWaits(const BlockName& name) {
  if (waits.size() == 0) return;
  for (const uint64_t id : waits.TakeWatchers({{name.space.number, 0}, name.hash, name.group})) {
    if (!AdvanceWait(id)) AnswerWait(id);
  }
}

// Ends a wait with what it has, and what waits for SSD without anything. Whatever else the id may name is
// answered soon anyway.
void Owner::State::OnCancel(Asker& asker, const Cancel& body) {
  for (const uint64_t id : asker.session->waits) {
    if (waits.Find(id)->envelope.request_id != body.request_id) continue;
    return AnswerWait(id);
  }
  for (const uint64_t id : asker.session->asides) {
    if (asides.at(id).request.envelope.request_id == body.request_id) return EndAside(id);
  }
  for (const uint64_t id : asker.session->cold_gets) {
    if (cold_gets.at(id).envelope.request_id == body.request_id) return CancelCold(asker, id);
  }
}

}  // namespace larder::node
