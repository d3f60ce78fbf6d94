#include "node/cluster/bring_home.h"

#include <algorithm>

#include "node/owner/part_checksums.h"

namespace larder::node {

namespace {

constexpr size_t kQuestionsOfStep = 1024;
constexpr uint64_t kAskUs = 1'000'000;                  // for one answer, and
constexpr uint64_t kSlowestMovePerSecond = 32'000'000;  // what its bytes take at such a pace
constexpr uint64_t kMovedBytesMax = 16 << 20;           // of one answer, or one block
constexpr uint64_t kMovedBlockBytesMax = 64 << 20;      // a larger block stays where it is
constexpr size_t kHomeLinksMax = 64;

static_assert(kQuestionsOfStep <= kBlocksMax);

// The piece's header, when it is one of what was asked for and its payload is as long as it says.
Result<BlockHeader> HeaderOfPiece(const MoveReply::Piece& piece, const Question& question, ByteView payload) {
  Result<BlockHeader> header = DecodeHeader(piece.header);
  if (!header.ok()) return header;
  const bool same = header->name_space == question.name_space && header->hash == question.ref.hash &&
                    header->group == question.ref.group && header->payload_bytes() == payload.size();
  if (!same) return Status(Code::kCorrupt, "a piece of another block");
  return header;
}

// Whether what was copied is what the header says.
bool CopyVerified(const ByteView payload, const BlockHeader& header, std::byte* to) {
  uint64_t at = 0;
  for (const PartRecord& part : header.parts) {
    if (CopyAndCrc32c(0, to + at, payload.subspan(at, part.bytes)) != part.crc32c) return false;
    at += part.bytes;
  }
  return true;
}

}  // namespace

BringHome::BringHome(Node* node, const std::vector<Credential>& credentials)
    : node_(node), credentials_(credentials) {
  transport::TransportOptions tcp;
  tcp.threads = 1;
  tcp.limits.header_bytes_max = kMessageBytesMax;
  transport::Error error;
  transport_ = transport::MakeTransport("tcp", tcp, &error);
  if (transport_ == nullptr) return;  // no thread or descriptor is left: misses stay misses
  thread_ = std::thread([this] { Run(); });
  node_->SetOnQuestions([this] { wait_.Wake(); });
}

BringHome::~BringHome() {
  node_->SetOnQuestions({});
  wait_.Stop();
  if (thread_.joinable()) thread_.join();
}

void BringHome::Run() {
  while (wait_.UntilWoken()) {
    for (auto questions = node_->TakeQuestions(kQuestionsOfStep); !questions.empty();
         questions = node_->TakeQuestions(kQuestionsOfStep)) {
      AskAll(std::move(questions));
    }
  }
  links_.clear();
  transport_.reset();
}

void BringHome::AskAll(std::vector<Question>&& questions) {
  std::map<Addressee, std::vector<Question>> letters;
  for (Question& question : questions) {
    letters[{question.home, question.asker, question.name_space}].push_back(std::move(question));
  }
  silent_.clear();
  for (auto& [addressee, letter] : letters) Ask(addressee, std::move(letter));
}

// Each question is answered once, whatever happens.
void BringHome::Ask(const Addressee& addressee, std::vector<Question> questions) {
  while (!questions.empty()) {
    const auto end_all = [&](Homing how) {
      std::vector<AnsweredQuestion> answers;
      for (const Question& question : questions) answers.push_back({question.token, how});
      node_->AnswerQuestions(answers);
    };
    if (wait_.stopping()) return end_all(Homing::kNotNow);
    if (silent_.count(std::get<0>(addressee)) != 0) return end_all(Homing::kUnreachable);
    const Result<PeerLink::Moved> moved = Fetch(addressee, questions);
    if (!moved.ok()) {
      links_.erase({std::get<0>(addressee), std::get<1>(addressee)});
      silent_.insert(std::get<0>(addressee));
      return end_all(Homing::kUnreachable);
    }
    const std::vector<AnsweredQuestion> answers = Settle(moved.value(), &questions);
    if (answers.empty()) return end_all(Homing::kNotNow);  // it is busy
    node_->AnswerQuestions(answers);
  }
}

Result<PeerLink*> BringHome::LinkTo(const std::string& id, const Digest& asker) {
  const auto known = links_.find({id, asker});
  if (known != links_.end() && !known->second->closed()) return known->second.get();
  links_.erase({id, asker});
  const std::string* token = TokenOf(credentials_, asker);
  if (token == nullptr) return Status(Code::kDenied, "the asker's credential is not among this node's");
  const NodeInfo info = node_->info();
  const auto record = std::find_if(info.table.nodes.begin(), info.table.nodes.end(),
                                   [&](const NodeRecord& node) { return node.id == id; });
  if (record == info.table.nodes.end()) return Status(Code::kUnavailable, id + " is not in the table");
  if (links_.size() >= kHomeLinksMax) links_.clear();
  Result<std::unique_ptr<PeerLink>> link = PeerLink::Connect(
      transport_.get(), *record, *token, "joining: " + info.record.id, transport::NowUs() + kAskUs);
  if (!link.ok()) return link.status();
  return (links_[{id, asker}] = std::move(link).value()).get();
}

Result<PeerLink::Moved> BringHome::Fetch(const Addressee& addressee, const std::vector<Question>& questions) {
  const auto& [id, asker, name_space] = addressee;
  const Result<Open> open = node_->OpeningOf(name_space);
  if (!open.ok()) return open.status();
  const Result<PeerLink*> link = LinkTo(id, asker);
  if (!link.ok()) return link.status();
  const Result<uint32_t> number = link.value()->Open(name_space, open.value(), transport::NowUs() + kAskUs);
  if (!number.ok()) return number.status();
  std::vector<BlockRef> refs;
  for (const Question& question : questions) refs.push_back(question.ref);
  const uint64_t end_us = transport::NowUs() + kAskUs + kMovedBytesMax * 1'000'000 / kSlowestMovePerSecond;
  return link.value()->Move(number.value(), std::move(refs), kMovedBytesMax, kMovedBlockBytesMax, end_us);
}

// Puts what came where it belongs and answers all but what there was no room for in this letter.
std::vector<AnsweredQuestion> BringHome::Settle(const PeerLink::Moved& moved,
                                                std::vector<Question>* questions) {
  std::vector<AnsweredQuestion> answers;
  std::vector<Question> again;
  for (size_t i = 0; i < questions->size(); ++i) {
    const Presence presence = moved.reply.blocks[i].presence;
    if (presence == Presence::kBusy) {
      again.push_back((*questions)[i]);
    } else if (presence == Presence::kWriting || presence == Presence::kTimedOut) {
      answers.push_back({(*questions)[i].token, Homing::kNotNow});
    } else if (!IsHit(presence)) {
      const Homing how = moved.reply.empty ? Homing::kEmptyThere : Homing::kNotThere;
      answers.push_back({(*questions)[i].token, how});
    }
  }
  Land(moved, *questions, &answers);
  *questions = std::move(again);
  return answers;
}

void BringHome::Land(const PeerLink::Moved& moved, const std::vector<Question>& questions,
                     std::vector<AnsweredQuestion>* answers) {
  std::vector<ComingPiece> pieces;
  std::vector<ByteView> payloads;
  size_t segment = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const MoveReply::Block& block = moved.reply.blocks[i];
    if (!IsHit(block.presence)) continue;
    // What it has of the block comes now, or is not to be had.
    Homing how = Homing::kCame;
    for (const MoveReply::Piece& piece : block.pieces) {
      if (moved.segments.empty()) {
        how = Homing::kNotThere;
        break;
      }
      const ByteView payload = moved.segments[segment++];
      Result<BlockHeader> header = HeaderOfPiece(piece, questions[i], payload);
      if (!header.ok() || TokenOf(credentials_, header->writer) == nullptr) {
        how = Homing::kNotThere;
        continue;
      }
      pieces.push_back({questions[i].token, std::move(header).value(), piece.depth});
      payloads.push_back(payload);
    }
    answers->push_back({questions[i].token, how});
  }
  if (pieces.empty()) return;
  const std::vector<ComingSlot> slots = node_->MakeSlots(pieces);
  std::vector<LandedPiece> landed;
  for (size_t i = 0; i < pieces.size(); ++i) {
    bool good = IsThere(slots[i].state);
    if (slots[i].state == PutState::kTicket) {
      good = CopyVerified(payloads[i], pieces[i].header, slots[i].memory.data);
      landed.push_back({slots[i].ticket, good});
    }
    if (good) continue;
    const bool no_room = slots[i].state == PutState::kBusy || slots[i].state == PutState::kFull;
    for (AnsweredQuestion& answer : *answers) {
      if (answer.token == pieces[i].question) answer.how = no_room ? Homing::kNotNow : Homing::kNotThere;
    }
  }
  node_->LandPieces(landed);
}

}  // namespace larder::node
