// What the jobs among nodes (cluster/) ask of a node: each a call on the owner's thread.
#include <algorithm>
#include <utility>

#include "node/node_impl.h"

namespace larder::node {

void Node::SetOnQuestions(std::function<void()> on_questions) {
  impl_->brings_home = static_cast<bool>(on_questions);
  impl_->owner->SetOnQuestions(std::move(on_questions));
  if (impl_->brings_home) return;
  // Or requests would wait for answers that nobody brings.
  impl_->owner->Call([](Owner& state) { state.SetMoved({}, transport::NowUs()); });
}

std::vector<Question> Node::TakeQuestions(size_t most) {
  std::vector<Question> out;
  impl_->owner->Call([&](Owner& owner) { out = owner.TakeQuestions(most); });
  return out;
}

std::vector<ComingSlot> Node::MakeSlots(std::span<const ComingPiece> pieces) {
  std::vector<ComingSlot> out(pieces.size());
  impl_->owner->Call([&](Owner& owner) { out = owner.MakeSlots(pieces, transport::NowUs(), UnixMs()); });
  return out;
}

void Node::LandPieces(std::span<const LandedPiece> pieces) {
  impl_->owner->Call([&](Owner& owner) { owner.LandPieces(pieces, transport::NowUs(), UnixMs()); });
}

void Node::AnswerQuestions(std::span<const AnsweredQuestion> answers) {
  impl_->owner->Call([&](Owner& owner) { owner.AnswerQuestions(answers, transport::NowUs(), UnixMs()); });
}

void Node::BeginHandOver() {
  impl_->owner->Call([](Owner& owner) { owner.BeginHandOver(); });
}

uint64_t Node::clock_s() const {
  uint64_t out = 0;
  impl_->owner->Call([&](Owner& owner) { out = owner.clock_s(); });
  return out;
}

std::optional<Forward> Node::NextForward() const {
  std::optional<Forward> out;
  impl_->owner->Call([&](Owner& owner) { out = owner.NextForward(); });
  return out;
}

void Node::Forwarded(uint64_t token, bool heard) {
  impl_->owner->Call([=](Owner& owner) { owner.Forwarded(token, heard); });
}

Result<std::vector<WarmPiece>> Node::ListWarm(const SlotSets* only) const {
  std::vector<WarmPiece> list;
  for (uint32_t from = 0; from != UINT32_MAX;) {
    std::vector<WarmPiece> some;
    if (!impl_->owner->Call([&](Owner& owner) { some = owner.ListWarm(&from, only); })) return kStopped;
    list.insert(list.end(), some.begin(), some.end());
  }
  std::sort(list.begin(), list.end(), [](const WarmPiece& a, const WarmPiece& b) { return a.heat > b.heat; });
  return list;
}

Result<OutgoingPage> Node::TakeOut(std::span<const WarmPiece> list, const PageLimits& limits, bool by_lease) {
  OutgoingPage page;
  if (!impl_->owner->Call([&](Owner& owner) { page = owner.TakeOut(list, limits, by_lease); })) {
    return kStopped;
  }
  return page;
}

std::vector<bool> Node::LetGo(std::span<const uint32_t> entries) {
  std::vector<bool> left(entries.size(), true);
  impl_->owner->Call([&](Owner& owner) { left = owner.LetGo(entries); });
  return left;
}

Result<Open> Node::OpeningOf(const Namespace& name_space) const {
  Result<Open> out = kStopped;
  impl_->owner->Call([&](Owner& owner) { out = owner.OpeningOf(name_space); });
  return out;
}

void Node::SetOnRevokes(std::function<void()> on_revokes) {
  impl_->owner->SetOnRevokes(std::move(on_revokes));
}

std::vector<HotBlock> Node::PlanHot() {
  std::vector<HotBlock> out;
  impl_->owner->Call([&](Owner& owner) { out = owner.PlanHot(transport::NowUs()); });
  return out;
}

void Node::DistrustCopies() {
  impl_->owner->Call([](Owner& owner) { owner.DistrustCopies(); });
}

bool Node::BeginCopy(const BlockName& name, const HotHolder& holder) {
  bool begun = false;
  impl_->owner->Call([&](Owner& owner) { begun = owner.BeginCopy(name, holder); });
  return begun;
}

void Node::EndCopy(const BlockName& name, const HotHolder& holder, uint32_t reads, uint64_t put_bytes) {
  impl_->owner->Call([&](Owner& owner) { owner.EndCopy(name, holder, reads, put_bytes); });
}

void Node::DropHot(const BlockName& name) {
  impl_->owner->Call([&](Owner& owner) { owner.DropHot(name); });
}

std::vector<HotRevoke> Node::Revokes() const {
  std::vector<HotRevoke> out;
  impl_->owner->Call([&](Owner& owner) { out = owner.Revokes(); });
  return out;
}

void Node::Revoked(uint64_t token, const std::string& node) {
  impl_->owner->Call([&](Owner& owner) { owner.Revoked(token, node); });
}

std::vector<HotInfo> Node::HotList() const {
  std::vector<HotInfo> out;
  impl_->owner->Call([&](Owner& owner) { out = owner.HotList(transport::NowUs()); });
  return out;
}

void Node::SetHandOver(const HandOverProgress& progress) {
  const std::lock_guard lock(impl_->told_mutex);
  impl_->hand_over = progress;
}

void Node::SetRepair(const RepairProgress& progress) {
  const std::lock_guard lock(impl_->told_mutex);
  impl_->repair = progress;
}

}  // namespace larder::node
