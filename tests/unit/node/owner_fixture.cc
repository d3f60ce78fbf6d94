#include "tests/unit/node/owner_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "proto/checksum.h"

namespace larder::node {

HeapSlabs::~HeapSlabs() {
  for (const auto& [base, raw] : raw_of) std::free(raw);
}

std::byte* HeapSlabs::Make(uint64_t bytes) {
  if (live.size() >= slabs_max) return nullptr;
  void* raw = std::calloc(1, bytes + 4096);  // pages come as they are used
  auto* base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(raw) + 4095) / 4096 * 4096);
  if (touch_pages) std::memset(base, 1, bytes), std::memset(base, 0, bytes);
  live.insert(base);
  raw_of[base] = raw;
  return base;
}

void HeapSlabs::Retire(std::byte* base, uint64_t bytes) {
  if (owner != nullptr) std::memset(base, 0xdd, bytes);  // whoever still reads here gets wrong bytes
  retired.push_back(base);
  if (gone_at_once) LetOneGo();
}

bool HeapSlabs::LetOneGo() {
  if (retired.empty()) return false;
  std::byte* base = retired.front();
  retired.erase(retired.begin());
  live.erase(base);
  if (owner != nullptr) owner->SlabGone(base);
  std::free(raw_of.at(base));
  raw_of.erase(base);
  return true;
}

void Recorder::Deliver(SessionId session, Action&& action) {
  if (auto* reply = std::get_if<Reply>(&action)) {
    Envelope envelope;
    ByteView record;
    ASSERT_TRUE(DecodeEnvelope(reply->header, &envelope, &record).ok());
    ASSERT_TRUE(envelope.reply);
    ASSERT_EQ(reply->token != 0, reply->segments.size() != 0);
    std::vector<Reply>& before = parts[std::pair(session, envelope.request_id)];
    ASSERT_LT(before.size(), kGetRepliesMax);
    if (reply->more) {
      ASSERT_EQ(replies.count(std::pair(session, envelope.request_id)), 0u) << "a part behind the last reply";
      return before.push_back(std::move(*reply));
    }
    const bool first = replies.emplace(std::pair(session, envelope.request_id), std::move(*reply)).second;
    ASSERT_TRUE(first) << "request " << envelope.request_id << " was answered twice";
  } else if (auto* grant = std::get_if<Grant>(&action)) {
    grants[grant->ticket] = std::move(*grant);
  } else if (const auto* revoke = std::get_if<Revoke>(&action)) {
    revokes.emplace_back(session, revoke->ticket);
  } else if (auto* verify = std::get_if<Verify>(&action)) {
    verifies.emplace_back(session, std::move(*verify));
  }
}

ChainHash HashOf(uint64_t number) {
  ChainHash hash;
  hash.bytes = Sha256({reinterpret_cast<const std::byte*>(&number), sizeof number});
  return hash;
}

std::string KvIdentity(uint32_t layers, uint32_t head_groups, const std::string& model) {
  Identity identity;
  EXPECT_TRUE(identity.Set("kind", "kv").ok());
  EXPECT_TRUE(identity.Set("model", model).ok());
  EXPECT_TRUE(identity.Set("layers", std::to_string(layers)).ok());
  EXPECT_TRUE(identity.Set("head_groups", std::to_string(head_groups)).ok());
  return identity.CanonicalText();
}

std::string OpaqueIdentity(const std::string& model) {
  Identity identity;
  EXPECT_TRUE(identity.Set("kind", "opaque").ok());
  EXPECT_TRUE(identity.Set("model", model).ok());
  return identity.CanonicalText();
}

std::vector<std::byte> PartBytes(const Spec& spec, uint16_t layer, uint16_t head) {
  std::vector<std::byte> bytes(spec.part_bytes);
  uint64_t state =
      spec.key * 0x9e3779b97f4a7c15ull + spec.content * 77 + layer * 1000003ull + head * 7919ull + 1;
  for (size_t at = 0; at < bytes.size(); at += sizeof state) {
    state = (state ^ state >> 29) * 0x9e3779b97f4a7c15ull;
    std::memcpy(bytes.data() + at, &state, std::min(sizeof state, bytes.size() - at));
  }
  return bytes;
}

TestOwner::TestOwner(const OwnerOptions& given, std::unique_ptr<ssd::SsdTier> ssd) : options(given) {
  if (options.miss_memory_entries == OwnerOptions{}.miss_memory_entries)
    options.miss_memory_entries = 1 << 12;
  owner = std::make_unique<Owner>(options, &slabs, &outbox, std::move(ssd));
  slabs.owner = owner.get();
}

TestOwner::~TestOwner() {
  slabs.owner = nullptr;
  owner.reset();
  while (slabs.LetOneGo()) {
  }
}

SessionId TestOwner::Connect(const std::string& tenant, bool parts) {
  const SessionId id = ++last_session_;
  Opened opened;
  opened.writer[0] = static_cast<std::byte>(id);
  opened.tenant = tenant;
  opened.parts = parts;
  Give(id, opened);
  return id;
}

uint32_t TestOwner::OpenIdentity(SessionId session, const std::string& identity, const std::string& tenant) {
  const auto reply = Ask<OpenReply>(session, Verb::kOpen, Open{identity, tenant, {}});
  return reply.ok() ? reply.value().number : 0;
}

void TestOwner::Give(SessionId session, Event event) {
  owner->Handle(session, std::move(event), now_us, now_us / 1000 + unix_ahead_ms);
}

uint64_t TestOwner::Send(SessionId session, Verb verb, decltype(Request::body) body, uint32_t deadline_us) {
  Request request;
  request.envelope.verb = verb;
  request.envelope.deadline_us = deadline_us;
  request.envelope.request_id = ++last_request_;
  request.arrived_us = now_us;
  request.body = std::move(body);
  Give(session, std::move(request));
  return last_request_;
}

bool TestOwner::Answered(SessionId session, uint64_t request_id) const {
  return outbox.replies.count({session, request_id}) != 0;
}

Status TestOwner::TakeRecord(SessionId session, uint64_t request_id, Bytes* record) {
  const auto found = outbox.replies.find({session, request_id});
  if (found == outbox.replies.end()) return {Code::kNotFound, "no reply"};
  Envelope envelope;
  ByteView view;
  LARDER_RETURN_IF_ERROR(DecodeEnvelope(found->second.header, &envelope, &view));
  record->assign(view.begin(), view.end());
  outbox.replies.erase(found);
  if (envelope.code == Code::kOk) return Status::Ok();
  ErrorText text;
  LARDER_RETURN_IF_ERROR(Decode(ByteView(*record), &text));
  EXPECT_FALSE(text.text.empty());
  return {envelope.code, text.text};
}

Reserve::Block TestOwner::BlockOf(const Spec& spec) const {
  Reserve::Block block;
  block.ref = {HashOf(spec.key), spec.group, spec.rectangle};
  block.parts = {{spec.rectangle.parts(), spec.part_bytes}};
  block.depth = spec.depth;
  return block;
}

ReserveReply::Block TestOwner::ReserveOne(SessionId session, uint32_t number, const Spec& spec) {
  Reserve reserve;
  reserve.number = number;
  reserve.blocks.push_back(BlockOf(spec));
  const auto reply = Ask<ReserveReply>(session, Verb::kReserve, reserve);
  EXPECT_TRUE(reply.ok()) << reply.status().text();
  return reply.ok() ? reply.value().blocks.at(0) : ReserveReply::Block{};
}

PutState TestOwner::CommitOne(SessionId session, uint64_t ticket, const Spec& spec, bool landed,
                              bool verified) {
  Committed committed;
  committed.envelope.verb = Verb::kCommit;
  committed.envelope.request_id = ++last_request_;
  Committed::Block block{ticket, landed, verified, {}};
  const auto grant = outbox.grants.find(ticket);
  std::byte* at = grant == outbox.grants.end() || !landed ? nullptr : grant->second.slot.data;
  for (uint16_t l = spec.rectangle.layer_begin; landed && l < spec.rectangle.layer_end; ++l) {
    for (uint16_t h = spec.rectangle.head_begin; h < spec.rectangle.head_end; ++h) {
      const auto bytes = PartBytes(spec, l, h);
      if (at != nullptr) std::memcpy(at, bytes.data(), bytes.size());
      if (at != nullptr) at += bytes.size();
      block.crc32c.push_back(Crc32c(0, bytes));
    }
  }
  committed.blocks.push_back(block);
  const uint64_t id = last_request_;
  Give(session, std::move(committed));
  outbox.grants.erase(ticket);
  const auto reply = Take<CommitReply>(session, id);
  EXPECT_TRUE(reply.ok()) << reply.status().text();
  return reply.ok() ? reply.value().states.at(0) : PutState::kInvalid;
}

PutState TestOwner::Put(SessionId session, uint32_t number, const Spec& spec) {
  const ReserveReply::Block reserved = ReserveOne(session, number, spec);
  return reserved.state == PutState::kTicket ? CommitOne(session, reserved.ticket, spec) : reserved.state;
}

void TestOwner::RunDisks(int steps) {
  for (int i = 0; i < steps; ++i) {
    now_us += 20;
    owner->OnDisk(now_us, now_us / 1000 + unix_ahead_ms);
  }
}

Pulled TestOwner::GetOne(SessionId session, uint32_t number, const Spec& spec, bool sent,
                         uint32_t deadline_us) {
  Get get;
  get.number = number;
  get.blocks.push_back({HashOf(spec.key), spec.group, spec.rectangle});
  const uint64_t id = Send(session, Verb::kGet, get, deadline_us);
  for (int i = 0; i < 200 && !Answered(session, id); ++i) RunDisks(1);
  const auto found = outbox.replies.find({session, id});
  EXPECT_NE(found, outbox.replies.end());
  Pulled pulled;
  const auto segments = found->second.segments;
  last_token = found->second.token;
  const auto reply = Take<GetReply>(session, id);
  EXPECT_TRUE(reply.ok()) << reply.status().text();
  if (!reply.ok()) return pulled;
  pulled.presence = reply.value().blocks.at(0).presence;
  pulled.sources = reply.value().blocks.at(0).sources;
  pulled.extents = segments.extents.size();
  for (const auto& extent : segments.extents) {
    pulled.payload.insert(pulled.payload.end(), extent.data, extent.data + extent.bytes);
  }
  size_t at = 0;
  for (const GetReply::Source& source : pulled.sources) {
    for (const PartRecord& part : source.parts) {
      if (at + part.bytes > pulled.payload.size()) {
        pulled.checksums_good = false;
        break;
      }
      pulled.checksums_good &= Crc32c(0, ByteView(pulled.payload).subspan(at, part.bytes)) == part.crc32c;
      at += part.bytes;
    }
  }
  pulled.checksums_good &= at == pulled.payload.size();
  if (sent && last_token != 0) Give(session, Sent{last_token});
  return pulled;
}

Presence TestOwner::MatchOne(SessionId session, uint32_t number, const Spec& spec, uint64_t* handle,
                             uint32_t pin_us) {
  Match match;
  match.number = number;
  match.rectangle = spec.rectangle;
  match.groups = {spec.group};
  match.hashes = {HashOf(spec.key)};
  match.hash_count = 1;
  match.pin_us = pin_us;
  const auto reply = Ask<MatchReply>(session, Verb::kMatch, match);
  EXPECT_TRUE(reply.ok()) << reply.status().text();
  if (!reply.ok()) return Presence::kRefused;
  if (handle != nullptr) *handle = reply.value().pin_handle;
  return static_cast<Presence>(reply.value().presence.at(0));
}

void TestOwner::TouchOne(SessionId session, uint32_t number, const Spec& spec) {
  Touch touch;
  touch.number = number;
  touch.groups = {spec.group};
  touch.depths = {spec.depth};
  touch.hashes = {HashOf(spec.key)};
  touch.hash_count = 1;
  Send(session, Verb::kTouch, touch);
}

void TestOwner::Release(SessionId session, uint64_t handle) {
  Touch touch;
  touch.pin_handle = handle;
  Send(session, Verb::kRelease, touch);
}

void TestOwner::Advance(uint64_t us) {
  now_us += us;
  while (owner->NextTimerUs() <= now_us) owner->OnTimer(now_us);
}

void TestOwner::Check() {
  EXPECT_EQ(owner->CheckInvariants(), "");
}

}  // namespace larder::node
