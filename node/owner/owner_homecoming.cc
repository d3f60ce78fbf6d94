// Joining: a miss of a slot that has moved here asks the node that was home before, and what that has comes
// home. The match or get waits for the answers, as long as its deadline and our patience allow, and is then
// answered like any other with what is here. Whoever asks (node/cluster/bring_home.h) has a thread of its
// own.
#include <algorithm>
#include <cstring>

#include "node/owner/owner_state.h"
#include "node/owner/part_checksums.h"

namespace larder::node {

namespace {
constexpr uint64_t kAnswersPatienceUs = 2'000'000;
}

bool Owner::State::MayAsk(const Asker& asker) const {
  return homecoming.active(now_us) && !asker.asked && asker.move_bytes == 0 && !draining && !rules.bypass;
}

void Owner::State::NoteMissing(uint32_t number, const BlockRef& ref, std::vector<BlockRef>* wanted) {
  const uint32_t first = Find(number, ref.hash, ref.group);
  if (Covered(number, ref.hash, ref.group, first, ref.rectangle)) return;
  NoteWanted(number, ref, WhyMissing(number, ref.hash, ref.group, first), wanted);
}

// A miss that another node may be able to mend.
void Owner::State::NoteWanted(uint32_t number, const BlockRef& ref, Presence why,
                              std::vector<BlockRef>* wanted) {
  if (wanted->size() >= kAsideKeysOfOne) return;
  if (name_spaces[number].ttl_ms != 0) return;  // dated anew here it would outlive its time
  switch (why) {
    case Presence::kWriting:
      // By what is just coming home, or by a client: that is nobody else's.
      if (homecoming.IsOpen({SpaceOf(number), ref.hash, ref.group})) break;
      return;
    case Presence::kRemoved:
    case Presence::kCleared:
    case Presence::kQuarantined:
    case Presence::kExpired:
    case Presence::kOverQuota:
    case Presence::kBusy:
      return;
    default:
      break;
  }
  const uint64_t key = FingerprintOf(number, ref.hash, ref.group);
  if (homecoming.Previous(name_spaces[number].name_space, ref.hash, key, now_us) != nullptr) {
    wanted->push_back(ref);
  }
}

// How many of them are asked.
uint32_t Owner::State::AskAll(const Asker& asker, uint32_t number, std::span<const BlockRef> wanted,
                              uint64_t waiter) {
  const Namespace& name_space = name_spaces[number].name_space;
  const size_t open = homecoming.open();
  uint32_t asked = 0;
  for (const BlockRef& ref : wanted) {
    const uint64_t key = FingerprintOf(number, ref.hash, ref.group);
    const std::string* home = homecoming.Previous(name_space, ref.hash, key, now_us);
    if (home == nullptr) continue;
    Question question{++last_id, *home, name_space, asker.session->writer, ref};
    if (!homecoming.Ask({SpaceOf(number), ref.hash, ref.group}, key, std::move(question), waiter)) break;
    ++asked;
  }
  counts.asked += homecoming.open() - open;
  return asked;
}

// False: nobody is asked, the request is answered with what is here.
bool Owner::State::SetAside(const Asker& asker, uint32_t number, std::span<const BlockRef> wanted,
                            decltype(Request::body)&& body) {
  Aside aside;
  if (const auto* match = std::get_if<Match>(&body)) aside.bytes = match->hashes.size() * sizeof(ChainHash);
  if (const auto* get = std::get_if<Get>(&body)) aside.bytes = get->blocks.size() * sizeof(BlockRef);
  if (asides.size() >= kAsidesMax || aside_bytes + aside.bytes > kAsideBytesMax) return false;
  wanted = wanted.first(std::min<size_t>(wanted.size(), kAsideKeysMax - aside_keys));
  const uint64_t id = ++last_id;
  aside.keys = aside.open = AskAll(asker, number, wanted, id);
  if (aside.open == 0) return false;
  uint64_t wait_us = kAnswersPatienceUs;
  if (asker.expire_us != 0) {
    wait_us = std::min(wait_us, (asker.expire_us - std::min(asker.expire_us, now_us)) / 4 * 3);
  }
  aside.give_up_us = now_us + wait_us;
  aside.session = asker.id;
  aside.request.envelope = asker.envelope;
  aside.request.arrived_us =
      asker.expire_us - std::min<uint64_t>(asker.expire_us, asker.envelope.deadline_us);
  aside.request.body = std::move(body);
  aside_keys += aside.keys;
  aside_bytes += aside.bytes;
  aside_ends.emplace(aside.give_up_us, id);
  asker.session->asides.insert(id);
  asides.emplace(id, std::move(aside));
  outbox->OnQuestions();
  return true;
}

void Owner::State::DropAside(uint64_t id) {
  const auto found = asides.find(id);
  const Aside& aside = found->second;
  aside_keys -= aside.keys;
  aside_bytes -= aside.bytes;
  aside_ends.erase({aside.give_up_us, id});
  sessions.at(aside.session).asides.erase(id);
  asides.erase(found);
}

// Answers it with what is here now.
void Owner::State::EndAside(uint64_t id) {
  const auto found = asides.find(id);
  const SessionId session = found->second.session;
  Request request = std::move(found->second.request);
  DropAside(id);
  Asker asker{session, &sessions.at(session), {}, 0};
  asker.asked = true;
  work_left = kWorkPerEvent;
  OnRequest(asker, std::move(request));
}

// As a put of the block's first writer, by this node itself.
ComingSlot Owner::State::MakeSlot(const ComingPiece& piece) {
  ComingSlot slot;
  const BlockName* name = homecoming.Open(piece.question, now_us);
  if (name == nullptr || name->space != SpaceOf(name->space.number)) return slot;
  if (rules.Bans(piece.header.writer, unix_ms)) return slot;
  Reserve::Block block;
  block.ref = {piece.header.hash, piece.header.group, piece.header.rectangle};
  block.codec = piece.header.codec;
  block.codec_data = piece.header.codec_data;
  block.constituents = piece.header.constituents;
  block.parts = RunsOf(piece.header.parts);
  block.depth = piece.depth;
  Asker self{kOwnSession, &sessions[kOwnSession], {}, 0};
  eviction_budget = kEvictionsPerRequestMax;
  sweep_budget = kSweepsPerRequestMax;
  work_left = kWorkPerEvent;
  slot.state = ReserveBlock(self, name->space.number, std::move(block), 0, &slot.ticket);
  if (slot.state != PutState::kTicket) return slot;
  const Ticket& ticket = tickets.at(slot.ticket);
  slot.memory = {arena.Payload(ticket.place), ticket.payload_bytes};
  Coming& is_coming = pieces_coming[slot.ticket];
  is_coming.question = piece.question;
  is_coming.writer = piece.header.writer;
  for (const PartRecord& part : piece.header.parts) is_coming.crc32c.push_back(part.crc32c);
  return slot;
}

void Owner::State::LandPiece(const LandedPiece& piece) {
  const auto found = pieces_coming.find(piece.ticket);
  if (found == pieces_coming.end()) return;
  const Coming landed = std::move(found->second);
  pieces_coming.erase(found);
  if (!piece.good) ++counts.came_corrupt;
  // Whoever removed it since has been told that it is gone.
  if (!piece.good || homecoming.Open(landed.question, now_us) == nullptr) {
    return DropTicket(piece.ticket, true);
  }
  Session& own = sessions.at(kOwnSession);
  own.writer = landed.writer;
  const uint64_t bytes = tickets.at(piece.ticket).payload_bytes;
  work_left = kWorkPerEvent;
  const Asker self{kOwnSession, &own, {}, 0};
  if (CommitBlock(self, {piece.ticket, true, true, landed.crc32c}) != PutState::kStored) return;
  ++counts.came;
  counts.came_bytes += bytes;
}

void Owner::SetMoved(MovedSlots moved, uint64_t now_us) {
  state_->SetClock(now_us);
  state_->homecoming.SetMoved(std::move(moved), state_->now_us);
}

std::vector<Question> Owner::TakeQuestions(size_t most) {
  return state_->homecoming.Take(most);
}

std::vector<ComingSlot> Owner::MakeSlots(std::span<const ComingPiece> pieces, uint64_t now_us,
                                         uint64_t unix_ms) {
  state_->SetClock(now_us, unix_ms);
  std::vector<ComingSlot> slots;
  slots.reserve(pieces.size());
  for (const ComingPiece& piece : pieces) slots.push_back(state_->MakeSlot(piece));
  state_->Spill();
  return slots;
}

void Owner::LandPieces(std::span<const LandedPiece> pieces, uint64_t now_us, uint64_t unix_ms) {
  state_->SetClock(now_us, unix_ms);
  for (const LandedPiece& piece : pieces) state_->LandPiece(piece);
}

void Owner::AnswerQuestions(std::span<const AnsweredQuestion> answers, uint64_t now_us, uint64_t unix_ms) {
  state_->SetClock(now_us, unix_ms);
  OwnerStats& counts = state_->counts;
  for (const AnsweredQuestion& answer : answers) {
    const bool nothing = answer.how == Homing::kNotThere || answer.how == Homing::kEmptyThere;
    if (nothing) ++counts.asked_not_there;
    if (!nothing && answer.how != Homing::kCame) ++counts.asked_failed;
    for (const uint64_t waiter : state_->homecoming.Answer(answer.token, answer.how, state_->now_us)) {
      const auto aside = state_->asides.find(waiter);
      if (aside != state_->asides.end() && --aside->second.open == 0) state_->EndAside(waiter);
    }
  }
}

std::string Owner::State::CheckAsides() const {
  uint64_t keys = 0, bytes = 0, of_sessions = 0;
  for (const auto& [id, aside] : asides) {
    const auto session = sessions.find(aside.session);
    if (session == sessions.end() || session->second.asides.count(id) == 0) return "an aside has no session";
    if (aside_ends.count({aside.give_up_us, id}) == 0) return "an aside has no end";
    if (aside.open == 0 || aside.open > aside.keys) return "an aside waits for nothing";
    keys += aside.keys;
    bytes += aside.bytes;
  }
  for (const auto& [id, session] : sessions) of_sessions += session.asides.size();
  if (keys != aside_keys || bytes != aside_bytes) return "what asides keep and its count disagree";
  if (aside_ends.size() != asides.size() || of_sessions != asides.size())
    return "asides and their counts disagree";
  for (const auto& [ticket, piece] : pieces_coming) {
    if (tickets.count(ticket) == 0) return "a piece that comes has no ticket";
  }
  return {};
}

}  // namespace larder::node
