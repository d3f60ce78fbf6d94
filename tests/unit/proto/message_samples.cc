#include "tests/unit/proto/samples.h"

namespace larder::testing {
namespace {

Envelope Request(Verb verb) {
  return {verb, false, Priority::kBatch, Code::kOk, 450'000, 0x0102030405060708};
}
Envelope Reply(Verb verb) {
  return ReplyTo(Request(verb));
}

Bytes TableBytes() {
  Bytes bytes;
  EncodeTable(SampleTable(), &bytes);
  return bytes;
}

}  // namespace

// clang-format off
template <> Envelope EnvelopeOf<Hello>() { return Request(Verb::kHello); }
template <> Envelope EnvelopeOf<HelloReply>() { return Reply(Verb::kHello); }
template <> Envelope EnvelopeOf<Open>() { return Request(Verb::kOpen); }
template <> Envelope EnvelopeOf<OpenReply>() { return Reply(Verb::kOpen); }
template <> Envelope EnvelopeOf<TablePush>() { return {Verb::kTable}; }
template <> Envelope EnvelopeOf<Match>() { return Request(Verb::kMatch); }
template <> Envelope EnvelopeOf<MatchReply>() { return Reply(Verb::kMatch); }
template <> Envelope EnvelopeOf<Get>() { return Request(Verb::kGet); }
template <> Envelope EnvelopeOf<GetReply>() { return Reply(Verb::kGet); }
template <> Envelope EnvelopeOf<Move>() { return Request(Verb::kMove); }
template <> Envelope EnvelopeOf<MoveReply>() { return Reply(Verb::kMove); }
template <> Envelope EnvelopeOf<Lease>() { return Request(Verb::kLease); }
template <> Envelope EnvelopeOf<LeaseReply>() { return Reply(Verb::kLease); }
template <> Envelope EnvelopeOf<Reserve>() { return Request(Verb::kReserve); }
template <> Envelope EnvelopeOf<ReserveReply>() { return Reply(Verb::kReserve); }
template <> Envelope EnvelopeOf<Data>() { return Request(Verb::kData); }
template <> Envelope EnvelopeOf<Commit>() { return Request(Verb::kCommit); }
template <> Envelope EnvelopeOf<CommitReply>() { return Reply(Verb::kCommit); }
template <> Envelope EnvelopeOf<Wait>() { return Request(Verb::kWait); }
template <> Envelope EnvelopeOf<WaitReply>() { return Reply(Verb::kWait); }
template <> Envelope EnvelopeOf<Prefetch>() { return Request(Verb::kPrefetch); }
template <> Envelope EnvelopeOf<PrefetchReply>() { return Reply(Verb::kPrefetch); }
template <> Envelope EnvelopeOf<Touch>() { return Request(Verb::kTouch); }
template <> Envelope EnvelopeOf<Report>() { return Request(Verb::kReport); }
template <> Envelope EnvelopeOf<ReportReply>() { return Reply(Verb::kReport); }
template <> Envelope EnvelopeOf<Remove>() { return Request(Verb::kRemove); }
template <> Envelope EnvelopeOf<RemoveReply>() { return Reply(Verb::kRemove); }
template <> Envelope EnvelopeOf<Clear>() { return Request(Verb::kClear); }
template <> Envelope EnvelopeOf<ClearReply>() { return Reply(Verb::kClear); }
template <> Envelope EnvelopeOf<Cancel>() { return Request(Verb::kCancel); }
template <> Envelope EnvelopeOf<ErrorText>() { return ReplyTo(Request(Verb::kGet), Code::kBusy); }

template <> Hello Sample<Hello>() { return {1, 3, 0x8000000000000001, Priority::kBatch, "token", "vllm 0.9"}; }
template <> HelloReply Sample<HelloReply>() { return {1, 5, "larder-0", 77, 256, 1 << 28, TableBytes()}; }
template <> Open Sample<Open>() { return {SampleIdentity().CanonicalText(), "acme", DigestFrom(9)}; }
template <> OpenReply Sample<OpenReply>() { return {4, {DigestFrom(5)}, 6}; }
template <> TablePush Sample<TablePush>() { return {TableBytes()}; }
template <> Match Sample<Match>() {
  return {3, {0, 80, 2, 4}, {0, 7}, 5'000'000, false, 3, {HashFrom(1), HashFrom(2), HashFrom(3)}};
}
template <> MatchReply Sample<MatchReply>() { return {9, 1 << 20, {0, 1, 64, 65, 73, 77}, {{2, 150}, {1, 900}}}; }
template <> Get Sample<Get>() {
  return {3, 9, {{HashFrom(1), 0, {0, 80, 2, 4}}, {HashFrom(2), 7, {3, 4, 0, 1}}}};
}
template <> GetReply Sample<GetReply>() {
  GetReply::Block hit{Presence::kRam, {}};
  hit.sources.push_back({{0, 1, 0, 2}, DigestFrom(8), 1'700'000'000'000, {{4096, 11}, {4096, 12}}});
  hit.sources.push_back({{1, 2, 0, 2}, DigestFrom(9), 1'700'000'000'001, {{4096, 13}, {100, 14}}});
  return {{hit, {Presence::kEvicted, {}}}};
}
template <> Move Sample<Move>() {
  return {3, 16 << 20, {{HashFrom(1), 0, {0, 80, 2, 4}}, {HashFrom(2), 7, {3, 4, 0, 1}}}};
}
template <> MoveReply Sample<MoveReply>() {
  MoveReply::Block hit{Presence::kSsd, {{{std::byte{1}, std::byte{2}, std::byte{3}}, 7}, {{std::byte{4}}, 0}}};
  return {{hit, {Presence::kEvicted, {}}}, true};
}
template <> Lease Sample<Lease>() { return {3, 1'000'000, 60'000'000, {{HashFrom(1), 0, {0, 80, 2, 4}}}}; }
template <> LeaseReply Sample<LeaseReply>() {
  return {77'000'000, {{LeaseState::kRenewed, 12}, {LeaseState::kGone, 0}, {LeaseState::kOwn, 0}}};
}
template <> Reserve Sample<Reserve>() {
  Reserve::Block plain{{HashFrom(1), 0, {0, 2, 0, 3}}, 0, {{6, 4096}}, {}, {}, 5};
  Reserve::Block full{{HashFrom(2), 1, {0, 1, 0, 2}}, 2, {{1, 10}, {1, 20}}, {std::byte{7}}, {HashFrom(3)}, 6};
  return {3, {plain, full}};
}
template <> ReserveReply Sample<ReserveReply>() { return {{{PutState::kTicket, 17}, {PutState::kExists, 0}}}; }
template <> Data Sample<Data>() { return {{17, 0xffffffffffffffff}}; }
template <> Commit Sample<Commit>() { return {{{17, {1, 2, 3, 4, 5, 6}}, {18, {7}}}}; }
template <> CommitReply Sample<CommitReply>() { return {{PutState::kStored, PutState::kDiffers, PutState::kInvalid}}; }
template <> Wait Sample<Wait>() { return {3, {0, 80, 0, 8}, {0}, 1, true, 4096, {}}; }
template <> WaitReply Sample<WaitReply>() { return {4095}; }
template <> Prefetch Sample<Prefetch>() { return {3, {0, 80, 0, 8}, {0, 7}, false, 2, {HashFrom(1), HashFrom(2)}}; }
template <> PrefetchReply Sample<PrefetchReply>() { return {2}; }
template <> Touch Sample<Touch>() { return {3, 9, 0x1234, 40, {0, 7}, {0, 16}, false, 2, {HashFrom(1), HashFrom(2)}}; }
template <> Report Sample<Report>() { return {3, {{HashFrom(1), 0, {0, 80, 0, 8}}}}; }
template <> ReportReply Sample<ReportReply>() { return {{0, 1, 1}}; }
template <> Remove Sample<Remove>() { return {3, {0}, {HashFrom(1), HashFrom(2)}}; }
template <> RemoveReply Sample<RemoveReply>() { return {2}; }
template <> Clear Sample<Clear>() { return {3}; }
template <> ClearReply Sample<ClearReply>() { return {7, 1'000'000}; }
template <> Cancel Sample<Cancel>() { return {0x1112131415161718}; }
template <> ErrorText Sample<ErrorText>() { return {"too many tickets; the limit is 4096"}; }
// clang-format on

}  // namespace larder::testing
