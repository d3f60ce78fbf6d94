// An owner with heap slabs and a recording outbox, and the few things that a session does to it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "node/owner/owner.h"

namespace larder::node {

class HeapSlabs : public SlabSource {
 public:
  ~HeapSlabs() override;
  std::byte* Make(uint64_t bytes) override;
  void Retire(std::byte* base, uint64_t bytes) override;
  // Reports the oldest retired slab as gone; false when there is none.
  bool LetOneGo();

  Owner* owner = nullptr;  // told when slabs are gone; nullptr: nobody
  bool gone_at_once = true;
  bool touch_pages = false;  // as they are made, so that resident memory can be accounted
  uint64_t slabs_max = UINT64_MAX;
  std::set<std::byte*> live;
  std::map<std::byte*, void*> raw_of;
  std::vector<std::byte*> retired;
};

class Recorder : public Outbox {
 public:
  void Deliver(SessionId session, Action&& action) override;

  std::map<std::pair<SessionId, uint64_t>, Reply> replies;             // by session and request id
  std::map<std::pair<SessionId, uint64_t>, std::vector<Reply>> parts;  // those that others follow
  std::map<uint64_t, Grant> grants;                                    // by ticket
  std::vector<std::pair<SessionId, uint64_t>> revokes;
  std::vector<std::pair<SessionId, Verify>> verifies;
};

// A chain hash from a number.
ChainHash HashOf(uint64_t number);
std::string KvIdentity(uint32_t layers, uint32_t head_groups, const std::string& model = "test");
std::string OpaqueIdentity(const std::string& model = "test");

struct Spec {
  uint64_t key = 0;
  uint32_t part_bytes = 4096;
  Rectangle rectangle;
  uint32_t depth = 0;
  uint16_t group = 0;
  uint64_t content = 0;  // other bits of the same block
};

struct Pulled {
  Presence presence = Presence::kNeverStored;
  std::vector<GetReply::Source> sources;
  Bytes payload;  // of all sources in order
  size_t extents = 0;
  bool checksums_good = true;
};

class TestOwner {
 public:
  explicit TestOwner(const OwnerOptions& given = {}, std::unique_ptr<ssd::SsdTier> ssd = nullptr);
  ~TestOwner();

  SessionId Connect(const std::string& tenant = {}, bool parts = false);
  // The namespace's number on this connection; 0: refused.
  uint32_t OpenIdentity(SessionId session, const std::string& identity, const std::string& tenant = {});
  void Give(SessionId session, Event event);
  uint64_t Send(SessionId session, Verb verb, decltype(Request::body) body, uint32_t deadline_us = 0);
  bool Answered(SessionId session, uint64_t request_id) const;

  template <typename ReplyBody>
  Result<ReplyBody> Take(SessionId session, uint64_t request_id) {
    Bytes record;
    LARDER_RETURN_IF_ERROR(TakeRecord(session, request_id, &record));
    ReplyBody body;
    LARDER_RETURN_IF_ERROR(Decode(ByteView(record), &body));
    return body;
  }
  template <typename ReplyBody>
  Result<ReplyBody> Ask(SessionId session, Verb verb, decltype(Request::body) body,
                        uint32_t deadline_us = 0) {
    return Take<ReplyBody>(session, Send(session, verb, std::move(body), deadline_us));
  }

  Reserve::Block BlockOf(const Spec& spec) const;
  ReserveReply::Block ReserveOne(SessionId session, uint32_t number, const Spec& spec);
  // Writes the block's bytes into the slot and commits.
  PutState CommitOne(SessionId session, uint64_t ticket, const Spec& spec, bool landed = true,
                     bool verified = true);
  PutState Put(SessionId session, uint32_t number, const Spec& spec);
  Pulled GetOne(SessionId session, uint32_t number, const Spec& spec, bool sent = true,
                uint32_t deadline_us = 0);
  Presence MatchOne(SessionId session, uint32_t number, const Spec& spec, uint64_t* handle = nullptr,
                    uint32_t pin_us = 0);
  void TouchOne(SessionId session, uint32_t number, const Spec& spec);
  void Release(SessionId session, uint64_t handle);
  // Lets the disks work, a little at a time; simulated ones need no other clock.
  void RunDisks(int steps = 50);
  // Advances the clock and runs the timer until nothing is due.
  void Advance(uint64_t us);
  void Check();

  OwnerOptions options;
  HeapSlabs slabs;
  Recorder outbox;
  std::unique_ptr<Owner> owner;
  uint64_t now_us = 1'000'000;
  uint64_t unix_ahead_ms = 0;  // Unix time, beside now_us
  uint64_t last_token = 0;     // of the last GetOne

 private:
  Status TakeRecord(SessionId session, uint64_t request_id, Bytes* record);
  SessionId last_session_ = 0;
  uint64_t last_request_ = 0;
};

// Bytes of a part of a block, and their checksum.
std::vector<std::byte> PartBytes(const Spec& spec, uint16_t layer, uint16_t head);

}  // namespace larder::node
