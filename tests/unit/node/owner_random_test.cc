// Random use against a naive model: no answer that the model can't explain, no wrong byte, invariants after
// each step.
#include <random>

#include "proto/checksum.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

class RandomUse {
 public:
  explicit RandomUse(uint64_t seed) : random_(seed), node_(Options(seed)) {
    for (int i = 0; i < 3; ++i) sessions_.push_back(Join());
  }

  void Step() {
    node_.now_us += Below(3000);
    switch (Below(15)) {
      case 0:
      case 1:
      case 2:
        return ReserveSome();
      case 3:
      case 4:
      case 5:
        return CommitSome();
      case 6:
      case 7:
        return GetSome();
      case 8:
        return MatchSome();
      case 9:
        return EndSomething();
      case 10:
        return WaitSome();
      case 11:
        return RemoveOrTouch();
      case 12:
        return ReportSome();
      case 13:
        return Rare();
      case 14:
        return LendSome();
    }
  }
  void Finish() {
    lent_most_ = 0;
    LendSome();
    for (const User& user : sessions_) node_.Give(user.id, Closed{});
    for (const auto& [session, verify] : node_.outbox.verifies)
      node_.Give(session, Verified{verify.token, true});
    node_.Advance(100'000'000);
    const OwnerStats stats = node_.owner->stats();
    EXPECT_EQ(stats.tickets, 0u);
    EXPECT_EQ(stats.hard_pins, 0u);
    EXPECT_EQ(stats.soft_pins, 0u);
    EXPECT_EQ(stats.soft_pinned_bytes, 0u);
    EXPECT_EQ(stats.waits_open, 0u);
    EXPECT_TRUE(node_.owner->Idle());
    node_.Check();
  }
  TestOwner& node() { return node_; }
  uint64_t hits() const { return hits_; }

 private:
  struct User {
    SessionId id = 0;
    std::vector<uint32_t> numbers;
  };
  struct Open {
    SessionId session;
    uint64_t ticket;
    size_t name_space;
    Spec spec;
  };
  static constexpr uint64_t kKeys = 24;
  static constexpr const char* kTenants[] = {"t", "u"};

  static OwnerOptions Options(uint64_t seed) {
    OwnerOptions options;
    options.memory_bytes = 1 << 20;
    options.slab_bytes_target = 128 << 10;
    options.ticket_stall_us = 150'000;
    options.pin_us_max = 40'000;
    options.tickets_per_session_max = 20;
    options.waits_per_session_max = 10;
    options.seed = seed;
    return options;
  }
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  User Join() {
    User user{node_.Connect(), {}};
    for (const char* tenant : kTenants)
      user.numbers.push_back(node_.OpenIdentity(user.id, KvIdentity(2, 2), tenant));
    return user;
  }
  User& Anyone() { return sessions_[Below(sessions_.size())]; }
  Spec AnySpec() {
    static constexpr Rectangle kRectangles[] = {
        {0, 2, 0, 2}, {0, 1, 0, 2}, {1, 2, 0, 2}, {0, 2, 0, 1}, {0, 2, 1, 2}};
    const uint64_t key = Below(kKeys);
    const auto bytes = static_cast<uint32_t>(4096 * (1 + key % 5));  // a key's size never changes
    return {key, bytes, kRectangles[Below(5)], static_cast<uint32_t>(key % 7),
            static_cast<uint16_t>(key % 2)};
  }

  void ReserveSome() {
    User& user = Anyone();
    const size_t name_space = Below(2);
    const Spec spec = AnySpec();
    const auto reserved = node_.ReserveOne(user.id, user.numbers[name_space], spec);
    if (reserved.state == PutState::kTicket) open_.push_back({user.id, reserved.ticket, name_space, spec});
    if (reserved.state == PutState::kExists) {
      EXPECT_TRUE(Stored(name_space, spec)) << "exists, and nobody stored it";
    }
  }
  void CommitSome() {
    if (open_.empty()) return;
    const size_t i = Below(open_.size());
    const Open open = open_[i];
    open_.erase(open_.begin() + static_cast<long>(i));
    const bool good = Below(8) != 0;
    const bool revoked = node_.outbox.grants.count(open.ticket) == 0;
    const PutState state = node_.CommitOne(open.session, open.ticket, open.spec, good, good);
    if (!good) {
      EXPECT_NE(state, PutState::kStored);
    }
    if (revoked) {
      EXPECT_NE(state, PutState::kStored);
    }
    if (state == PutState::kStored) MarkStored(open.name_space, open.spec);
    EXPECT_NE(state, PutState::kDiffers);
  }
  void GetSome() {
    User& user = Anyone();
    const size_t name_space = Below(2);
    const Spec spec = AnySpec();
    const Pulled pulled = node_.GetOne(user.id, user.numbers[name_space], spec, false);
    const uint64_t token = node_.last_token;
    if (!IsHit(pulled.presence)) return;
    ++hits_;
    ASSERT_TRUE(Stored(name_space, spec)) << "a hit that nobody stored, or that was removed";
    EXPECT_TRUE(pulled.checksums_good);
    size_t at = 0;
    for (const auto& source : pulled.sources) {
      for (uint16_t l = source.rectangle.layer_begin; l < source.rectangle.layer_end; ++l) {
        for (uint16_t h = source.rectangle.head_begin; h < source.rectangle.head_end; ++h) {
          const auto part = PartBytes(spec, l, h);
          ASSERT_TRUE(std::equal(part.begin(), part.end(), pulled.payload.begin() + static_cast<long>(at)));
          at += part.size();
        }
      }
    }
    if (Below(3) == 0) {
      tokens_.emplace_back(user.id, token);
    } else {
      node_.Give(user.id, Sent{token});
    }
  }
  void MatchSome() {
    User& user = Anyone();
    const size_t name_space = Below(2);
    const Spec spec = AnySpec();
    uint64_t handle = 0;
    const auto pin_us = static_cast<uint32_t>(Below(3) == 0 ? 0 : Below(60'000));
    const Presence presence = node_.MatchOne(user.id, user.numbers[name_space], spec, &handle, pin_us);
    if (IsHit(presence)) {
      EXPECT_TRUE(Stored(name_space, spec));
    }
    if (handle != 0) handles_.emplace_back(user.id, handle);
  }
  void EndSomething() {
    if (!tokens_.empty()) {
      node_.Give(tokens_.back().first, Sent{tokens_.back().second});
      tokens_.pop_back();
    }
    if (!handles_.empty() && Below(2) == 0) {
      node_.Release(handles_.back().first, handles_.back().second);
      handles_.pop_back();
    }
    for (const auto& [session, ticket] : node_.outbox.revokes) {
      node_.outbox.grants.erase(ticket);
      node_.Give(session, Stopped{ticket});
    }
    node_.outbox.revokes.clear();
    if (!open_.empty()) node_.Give(open_[0].session, Progress{open_[0].ticket});
  }
  void WaitSome() {
    User& user = Anyone();
    Wait wait;
    wait.number = user.numbers[Below(2)];
    wait.groups = {0};
    wait.rectangle = {0, 1, 0, 1};
    for (uint64_t i = 0; i < 1 + Below(3); ++i) wait.hashes.push_back(HashOf(Below(kKeys)));
    node_.Send(user.id, Verb::kWait, wait, static_cast<uint32_t>(1 + Below(100'000)));
  }
  void RemoveOrTouch() {
    User& user = Anyone();
    const size_t name_space = Below(2);
    const Spec spec = AnySpec();
    if (Below(2) == 0) return node_.TouchOne(user.id, user.numbers[name_space], spec);
    Remove remove{user.numbers[name_space], {spec.group}, {HashOf(spec.key)}};
    ASSERT_TRUE(node_.Ask<RemoveReply>(user.id, Verb::kRemove, remove).ok());
    stored_[name_space].erase(spec.key);
  }
  void ReportSome() {
    User& user = Anyone();
    const Spec spec = AnySpec();
    Report report{user.numbers[Below(2)], {{HashOf(spec.key), spec.group, spec.rectangle}}};
    node_.Send(user.id, Verb::kReport, report);
    if (Below(2) == 0) return;
    auto verifies = std::move(node_.outbox.verifies);
    node_.outbox.verifies.clear();
    for (const auto& [session, verify] : verifies) {
      size_t at = 0;
      bool good = true;
      for (const PartRecord& part : verify.parts) {
        good &= Crc32c(0, {verify.payload.data + at, part.bytes}) == part.crc32c;
        at += part.bytes;
      }
      EXPECT_TRUE(good) << "bytes changed under a hard pin";
      node_.Give(session, Verified{verify.token, good});
    }
  }
  // Pages as a node that leaves takes them out and gives them back.
  void LendSome() {
    while (lent_.size() > lent_most_) {
      const size_t i = Below(lent_.size());
      for (const OutgoingPiece& piece : lent_[i].pieces) {
        size_t at = 0;
        for (const PartRecord& part : piece.header.parts) {
          EXPECT_EQ(Crc32c(0, {piece.payload.data + at, part.bytes}), part.crc32c)
              << "bytes changed while they were out";
          at += part.bytes;
        }
        node_.owner->LetGo({&piece.piece.entry, 1});
      }
      lent_.erase(lent_.begin() + static_cast<long>(i));
    }
    if (lent_most_ == 0) return;
    uint32_t from = 0;
    PageLimits limits;
    limits.pieces = static_cast<uint32_t>(Below(4));
    lent_.push_back(node_.owner->TakeOut(node_.owner->ListWarm(&from), limits));
  }
  void Rare() {
    switch (Below(24)) {
      case 0: {
        const size_t name_space = Below(2);
        User& user = Anyone();
        ASSERT_TRUE(node_.Ask<ClearReply>(user.id, Verb::kClear, Clear{user.numbers[name_space]}).ok());
        stored_[name_space].clear();
        return;
      }
      case 1: {
        User& user = Anyone();
        node_.Give(user.id, Closed{});
        std::erase_if(open_, [&](const Open& open) { return open.session == user.id; });
        std::erase_if(tokens_, [&](const auto& token) { return token.first == user.id; });
        std::erase_if(handles_, [&](const auto& handle) { return handle.first == user.id; });
        user = Join();
        return;
      }
      default:
        return node_.Advance(Below(60'000));
    }
  }
  // Which parts of a key somebody stored since it was last removed or cleared. What the owner has is less.
  bool Stored(size_t name_space, const Spec& spec) {
    const auto found = stored_[name_space].find(spec.key);
    if (found == stored_[name_space].end()) return false;
    for (uint16_t l = spec.rectangle.layer_begin; l < spec.rectangle.layer_end; ++l) {
      for (uint16_t h = spec.rectangle.head_begin; h < spec.rectangle.head_end; ++h) {
        if (found->second.count({l, h}) == 0) return false;
      }
    }
    return true;
  }
  void MarkStored(size_t name_space, const Spec& spec) {
    for (uint16_t l = spec.rectangle.layer_begin; l < spec.rectangle.layer_end; ++l) {
      for (uint16_t h = spec.rectangle.head_begin; h < spec.rectangle.head_end; ++h) {
        stored_[name_space][spec.key].insert({l, h});
      }
    }
  }

  std::mt19937_64 random_;
  TestOwner node_;
  std::vector<User> sessions_;
  std::vector<Open> open_;
  std::vector<std::pair<SessionId, uint64_t>> tokens_, handles_;
  std::vector<OutgoingPage> lent_;
  size_t lent_most_ = 2;
  std::map<uint64_t, std::set<std::pair<uint16_t, uint16_t>>> stored_[2];
  uint64_t hits_ = 0;
};

class OwnerRandom : public ::testing::TestWithParam<uint64_t> {};

TEST_P(OwnerRandom, NeverLiesAndKeepsItsInvariants) {
  RandomUse use(GetParam());
  for (int step = 0; step < 3000 && !::testing::Test::HasFailure(); ++step) {
    use.Step();
    ASSERT_EQ(use.node().owner->CheckInvariants(), "") << "seed " << GetParam() << " step " << step;
  }
  EXPECT_GT(use.hits(), 20u);
  EXPECT_GT(use.node().owner->stats().evicted, 0u);
  use.Finish();
}

INSTANTIATE_TEST_SUITE_P(Seeds, OwnerRandom, ::testing::Range<uint64_t>(1, 21));

}  // namespace
}  // namespace larder::node
