// Data-plane messages: what travels in a transport message's header. Payload bytes never do.
//
// Encoding: Envelope (24 bytes: u8 verb, u8 priority, u16 code, u32 deadline_us, u64 request_id, u32 wire
// version, u32 zero), then a u32-length-prefixed record with the verb's fields in the order of the struct. A
// decoder ignores trailing bytes of a record (newer fields), fails on short ones and on any limit passed.
// Requests and replies share request_id; a reply has the verb of its request with kReplyBit set. A reply with
// code != kOk carries only `ErrorText`. Deadlines are microseconds from arrival (0: none).
//
// Large arrays of hashes travel as the message's only payload segment when `hashes_in_payload`: 32 bytes
// each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/block_header.h"
#include "proto/placement.h"
#include "proto/retention.h"

namespace larder {

inline constexpr uint16_t kWireVersionMin = 1;
inline constexpr uint16_t kWireVersionMax = 1;
inline constexpr uint32_t kHashesMax = 65536;      // a request
inline constexpr uint32_t kHashesInlineMax = 256;  // more travel as payload
inline constexpr uint32_t kGroupsMax = 16;
inline constexpr uint32_t kBlocksMax = 1024;  // of a Get, Reserve, Commit
inline constexpr uint32_t kGetRepliesMax = 4;
inline constexpr uint32_t kMessageBytesMax =
    2 << 20;  // a header: 65,536 hashes x 16 groups is 1 MiB of presence
inline constexpr uint64_t kBatchBytesMax = 1ull << 30;  // payload of one message
inline constexpr uint32_t kTokenBytesMax = 256;
inline constexpr uint32_t kClientNameBytesMax = 128;
inline constexpr uint32_t kErrorTextBytesMax = 1024;  // Encode cuts a longer one
inline constexpr uint32_t kPinUsMax = 600'000'000;
inline constexpr uint32_t kBlockHeaderBytesMax = 256 * 1024;

enum class Verb : uint8_t {
  kHello = 1,
  kOpen = 2,
  kTable = 3,
  kMatch = 4,
  kGet = 5,
  kReserve = 6,
  kData = 7,
  kCommit = 8,
  kWait = 9,
  kTouch = 10,
  kRelease = 11,
  kReport = 12,
  kRemove = 13,
  kClear = 14,
  kCancel = 15,
  kPing = 16,
  kPrefetch = 17,
  kMove = 18,
  kLease = 19,
};
inline constexpr uint8_t kReplyBit = 0x80;

enum class Priority : uint8_t { kInteractive = 0, kBatch = 1 };

struct Envelope {
  Verb verb = Verb::kPing;
  bool reply = false;
  Priority priority = Priority::kInteractive;
  Code code = Code::kOk;     // replies
  uint32_t deadline_us = 0;  // requests
  uint64_t request_id = 0;
};

// One byte a (key, group) in Match and per block in Get: below 64 a hit, else a miss and its reason.
enum class Presence : uint8_t {
  kRam = 0,
  kSsd = 1,
  kWriting = 64,  // reserved by a writer, not whole yet
  kNeverStored = 65,
  kEvicted = 66,  // from memory, and there is no SSD
  kExpired = 67,
  kCleared = 68,
  kRemoved = 69,
  kNotAdmitted = 70,
  kCorrupt = 71,
  kQuarantined = 72,
  kUncovered = 73,  // pieces are here, but they don't cover the rectangle
  kTimedOut = 74,
  kUnreachable = 75,  // the client's own: its home did not answer
  kBusy = 76,         // a bound was reached
  kRefused = 77,
  kDiskBehind =
      78,  // evicted from memory: the SSD could not take it (behind, full, or its hour's bytes used)
  kEvictedSsd = 79,  // went with a reclaimed segment
  kDiskLost = 80,    // its disk failed
  kBypassed = 81,    // an operator has everything answered as a miss
  kOverQuota = 82,   // its tenant's quota had no room for it, or made it leave for others of that tenant
  kPlaceLost = 83,   // the node was not its home for a while, and may not have heard that it was removed
  kLater = 84,       // not an outcome: one of the next replies to this get has the block
};
inline constexpr bool IsHit(Presence presence) {
  return static_cast<uint8_t>(presence) < 64;
}
std::string_view PresenceName(Presence presence);  // "ram", "never-stored", ...

// Of Hello: a node that restores copies. What was removed or cleared lately is not taken from it.
inline constexpr uint64_t kFeatureRestores = 1;
// A node that leaves: it hands its blocks to those who have their places from now on, whether they know it
// yet or not.
inline constexpr uint64_t kFeatureHandsOver = 2;
// Of HelloReply: a node that takes copies by lease (Lease, and Reserve with one). Others would keep them for
// good.
inline constexpr uint64_t kFeatureLeases = 8;
// Of HelloReply: a node that keeps near copies, and gives them: it takes Get with `near`.
inline constexpr uint64_t kFeatureNear = 16;
// Of Hello: a client that takes a get's answer in several replies.
inline constexpr uint64_t kFeatureParts = 4;

struct Hello {
  uint16_t version_min = kWireVersionMin;
  uint16_t version_max = kWireVersionMax;
  uint64_t features = 0;
  Priority lane = Priority::kInteractive;  // what this connection is for
  std::string token;                       // <= 256 bytes; empty: anonymous
  std::string client_name;                 // for people; <= 128 bytes
  bool operator==(const Hello&) const = default;
};
struct HelloReply {
  uint16_t version = kWireVersionMax;  // the highest common one
  uint64_t features = 0;
  std::string node_id;
  uint64_t incarnation = 0;
  uint32_t requests_max = 0;     // unanswered ones a connection may have; more are answered busy
  uint64_t batch_bytes_max = 0;  // payload of one get or put message
  Bytes table;                   // EncodeTable
  bool operator==(const HelloReply&) const = default;
};
struct Open {
  std::string identity;  // canonical text
  std::string tenant;
  Digest salt_digest{};  // SHA-256 of the tenant's salt (used as the salt of NamespaceOf); zeros: none, empty
                         // salt
  bool operator==(const Open&) const = default;
};
struct OpenReply {
  uint32_t number = 0;   // the namespace's number on this connection
  Namespace name_space;  // as the node computed it
  uint32_t clear_epoch = 0;
  bool operator==(const OpenReply&) const = default;
};
// A reply-less message, node -> client (request_id 0)
struct TablePush {
  Bytes table;
  bool operator==(const TablePush&) const = default;
};

struct Match {
  uint32_t number = 0;
  Rectangle rectangle;
  std::vector<uint16_t> groups;  // 1..kGroupsMax
  uint32_t pin_us = 0;           // 0: no pin; else hits are pinned softly for so long at most
  bool hashes_in_payload = false;
  uint32_t hash_count = 0;
  std::vector<ChainHash> hashes;  // when inline
  bool operator==(const Match&) const = default;
};
struct MatchReply {
  uint64_t pin_handle = 0;  // 0: nothing pinned
  uint64_t pinned_bytes = 0;
  std::vector<uint8_t> presence;  // [key][group]
  struct Estimate {
    uint32_t count = 0;
    uint32_t us = 0;
    bool operator==(const Estimate&) const = default;
  };
  std::vector<Estimate> estimates;  // run lengths over keys: microseconds until a get of the block ends
  bool operator==(const MatchReply&) const = default;
};

struct BlockRef {
  ChainHash hash;
  uint16_t group = 0;
  Rectangle rectangle;
  bool operator==(const BlockRef&) const = default;
};
struct Get {
  uint32_t number = 0;
  uint64_t pin_handle = 0;  // informative
  std::vector<BlockRef> blocks;
  // To the node on the client's own host: other nodes' blocks, should it have copies of them. Only what is in
  // memory there is a hit, and a miss says nothing about the block.
  bool asks_near = false;
  std::string near;  // to a home: which node that is; <= kNodeIdBytesMax. Both only sent when set
  bool operator==(const Get&) const = default;
};
// One segment a source piece, in the order of `blocks` and within a block of its sources.
//
// Who said kFeatureParts may be answered in up to kGetRepliesMax replies, in one order on one connection:
// what is in memory does not wait for what is being read. Each has a block for everything that was still
// owed, in the order asked, and leaves at least one less owed: kLater is what still is. The last one owes
// nothing.
struct GetReply {
  struct Source {
    Rectangle rectangle;  // what of the asked rectangle this segment covers, packed
    Digest writer{};
    uint64_t created_ms = 0;
    std::vector<PartRecord> parts;  // of `rectangle`, PartIndex order
    bool operator==(const Source&) const = default;
  };
  struct Block {
    Presence presence = Presence::kNeverStored;
    std::vector<Source> sources;  // empty unless a hit; disjoint, together the asked rectangle
    bool operator==(const Block&) const = default;
  };
  // Of a block that is read much: which nodes of its order have it, bit i the i-th, bit 0 its home.
  struct Places {
    uint32_t block = 0;  // of `blocks`
    uint64_t mask = 0;
    bool operator==(const Places&) const = default;
  };
  std::vector<Block> blocks;
  std::vector<Places> places;  // only sent when there is something to say
  bool owes() const;           // others follow
  bool operator==(const GetReply&) const = default;
};

// Between nodes: blocks of slots that have moved, for the node that is home to them now. Answered with what
// is here and nothing else; the pieces come whole, whatever part of them covers the rectangle.
struct Move {
  uint32_t number = 0;
  uint64_t payload_bytes_max = 0;  // what no longer fits is answered busy; one block always fits
  std::vector<BlockRef> blocks;
  bool operator==(const Move&) const = default;
};
// One segment a piece, in the order of `blocks` and within a block of its pieces.
struct MoveReply {
  struct Piece {
    Bytes header;        // as block_header.h has it
    uint32_t depth = 0;  // of the block in its chain; eviction order
    bool operator==(const Piece&) const = default;
  };
  struct Block {
    Presence presence = Presence::kNeverStored;
    std::vector<Piece> pieces;  // empty unless a hit
    bool operator==(const Block&) const = default;
  };
  std::vector<Block> blocks;
  bool empty = false;  // the node holds nothing of the namespace, whatever block
  bool operator==(const MoveReply&) const = default;
};

// How long a copy may outlive the word of its home.
inline constexpr uint64_t kHotLeaseUs = 60'000'000;

// Between nodes: the home of blocks that were copied to the receiver renews their leases, as Reserve has
// them. Since the receiver's clock comes back to it, a message that was under way for long renews nothing.
// Without blocks it asks for that clock.
struct Lease {
  uint32_t number = 0;
  uint64_t since_us = 0;
  uint64_t lease_us = 0;
  std::vector<BlockRef> blocks;  // rectangles of pieces
  bool operator==(const Lease&) const = default;
};
enum class LeaseState : uint8_t {
  kGone = 0,     // not here
  kRenewed = 1,  // here by lease
  kOwn = 2,      // here, and not by lease
};
struct LeaseReply {
  struct Block {
    LeaseState state = LeaseState::kGone;
    uint32_t reads = 0;  // of the copy, since it was asked last
    bool operator==(const Block&) const = default;
  };
  uint64_t now_us = 0;
  std::vector<Block> blocks;
  bool operator==(const LeaseReply&) const = default;
};

// Run lengths of part sizes, PartIndex order
struct PartRun {
  uint32_t count = 0;
  uint32_t bytes = 0;
  bool operator==(const PartRun&) const = default;
};
struct Reserve {
  struct Block {
    BlockRef ref;
    uint16_t codec = 0;
    std::vector<PartRun> parts;
    Bytes codec_data;
    std::vector<ChainHash> constituents;
    uint32_t depth = 0;  // of the block in its chain; eviction order
    bool operator==(const Block&) const = default;
  };
  uint32_t number = 0;
  std::vector<Block> blocks;
  // Between nodes, only sent with a lease: copies that are kept until `since_us`, of the receiver's own clock
  // as its last LeaseReply told it, and `lease_us` more.
  uint64_t since_us = 0;
  uint64_t lease_us = 0;
  bool operator==(const Reserve&) const = default;
};
enum class PutState : uint8_t {
  kTicket = 0,      // Reserve: go on
  kStored = 1,      // Commit: whole, verified, visible
  kExists = 2,      // somebody's copy is there already
  kDiffers = 3,     // the same, and its bits are others (counted, no error)
  kFull = 4,        // no memory can be freed for it
  kBusy = 5,        // a bound (tickets) was reached: again later
  kExpired = 6,     // the ticket died: too slow
  kCorrupt = 7,     // what arrived is not what the writer says it sent
  kCleared = 8,     // the namespace was cleared meanwhile
  kInvalid = 9,     // sizes or rectangle make no sense for the namespace
  kOverQuota = 10,  // it does not fit into its tenant's quota
};
std::string_view PutStateName(PutState state);
// The node has the block, whoever wrote it.
inline bool IsThere(PutState state) {
  return state == PutState::kStored || state == PutState::kExists || state == PutState::kDiffers;
}
struct ReserveReply {
  struct Block {
    PutState state = PutState::kInvalid;
    uint64_t ticket = 0;
    bool operator==(const Block&) const = default;
  };
  std::vector<Block> blocks;
  bool operator==(const ReserveReply&) const = default;
};
// Payload: one segment a ticket. Not answered; the Commit is.
struct Data {
  std::vector<uint64_t> tickets;
  bool operator==(const Data&) const = default;
};
struct Commit {
  struct Block {
    uint64_t ticket = 0;
    std::vector<uint32_t> crc32c;  // the writer's, PartIndex order
    bool operator==(const Block&) const = default;
  };
  std::vector<Block> blocks;
  bool operator==(const Commit&) const = default;
};
struct CommitReply {
  std::vector<PutState> states;
  bool operator==(const CommitReply&) const = default;
};

struct Wait {
  uint32_t number = 0;
  Rectangle rectangle;
  std::vector<uint16_t> groups;
  uint32_t leading = 0;  // answer when so many leading keys are there (0: all)
  bool hashes_in_payload = false;
  uint32_t hash_count = 0;
  std::vector<ChainHash> hashes;
  bool operator==(const Wait&) const = default;
};
// At the deadline too, with code kOk and the count reached: compare it with what was asked for.
struct WaitReply {
  uint32_t leading = 0;
  bool operator==(const WaitReply&) const = default;
};

// Moves what lies on SSD into memory, for a request that waits its turn. Answered when it is there, or at the
// deadline with what made it; blocks x groups at most kBlocksMax.
struct Prefetch {
  uint32_t number = 0;
  Rectangle rectangle;
  std::vector<uint16_t> groups;
  bool hashes_in_payload = false;
  uint32_t hash_count = 0;
  std::vector<ChainHash> hashes;
  bool operator==(const Prefetch&) const = default;
};
struct PrefetchReply {
  uint32_t blocks = 0;  // in memory now, of those that were asked for
  bool operator==(const PrefetchReply&) const = default;
};

// Stamps blocks (now, -depth): of one chain the deepest is the coldest. Sent once a request.
struct Touch {
  uint32_t number = 0;
  uint64_t pin_handle = 0;     // kRelease: the handle to give back
  uint64_t root = 0;           // first 8 bytes of the chain's first hash
  uint32_t usable_length = 0;  // blocks of the chain that were there when the request came
  std::vector<uint16_t> groups;
  std::vector<uint32_t> depths;  // one a hash; ascending
  bool hashes_in_payload = false;
  uint32_t hash_count = 0;
  std::vector<ChainHash> hashes;  // may be none with kRelease
  uint32_t chain_length = 0;      // blocks of the whole chain, other nodes' included; 0 (unknown) isn't sent
  Retention retention = Retention::kNone;  // sent, with what follows, only when there is something to say
  bool finishes = false;  // the end of a request whose use was told before: no use of its own
  bool operator==(const Touch&) const = default;
};
// A reader found bytes that do not verify: the node checks its own copy and drops it only if it is bad.
struct Report {
  uint32_t number = 0;
  std::vector<BlockRef> blocks;
  bool operator==(const Report&) const = default;
};
struct ReportReply {
  std::vector<uint8_t> dropped;  // 1: the node's copy was bad and is gone
  bool operator==(const ReportReply&) const = default;
};
struct Remove {
  uint32_t number = 0;
  std::vector<uint16_t> groups;
  std::vector<ChainHash> hashes;  // <= kHashesMax / 4 inline
  bool operator==(const Remove&) const = default;
};
struct RemoveReply {
  uint32_t removed = 0;
  bool operator==(const RemoveReply&) const = default;
};
struct Clear {
  uint32_t number = 0;
  // When the client cleared, Unix milliseconds: the same for all nodes that it asks, so that a node that was
  // not reached can tell later that it missed one. 0 (not sent): the node's own clock.
  uint64_t stamp_ms = 0;
  bool operator==(const Clear&) const = default;
};
struct ClearReply {
  uint32_t clear_epoch = 0;
  uint64_t removed = 0;
  bool operator==(const ClearReply&) const = default;
};
struct Cancel {
  uint64_t request_id = 0;
  bool operator==(const Cancel&) const = default;
};
struct ErrorText {
  std::string text;
  bool operator==(const ErrorText&) const = default;
};

// Encode: the header of a transport message. Decode: checks every limit; kInvalid says which.
Bytes Encode(const Envelope& envelope);  // Ping, and replies without a body (Touch)
// clang-format off
#define LARDER_MESSAGES(X)                                                                           \
  X(Hello) X(HelloReply) X(Open) X(OpenReply) X(TablePush) X(Match) X(MatchReply) X(Get) X(GetReply) \
  X(Reserve) X(ReserveReply) X(Data) X(Commit) X(CommitReply) X(Wait) X(WaitReply) X(Prefetch) X(PrefetchReply) X(Touch) \
  X(Move) X(MoveReply) X(Lease) X(LeaseReply) X(Report) X(ReportReply) X(Remove) X(RemoveReply) X(Clear) X(ClearReply) X(Cancel) X(ErrorText)
// clang-format on
#define LARDER_DECLARE(Name)                                \
  Bytes Encode(const Envelope& envelope, const Name& body); \
  Status Decode(ByteView record, Name* body);
LARDER_MESSAGES(LARDER_DECLARE)
#undef LARDER_DECLARE

// Splits a transport header: the envelope, and the record's bytes for Decode.
Status DecodeEnvelope(ByteView header, Envelope* envelope, ByteView* record);
inline Envelope ReplyTo(const Envelope& request, Code code = Code::kOk) {
  return {request.verb, true, request.priority, code, 0, request.request_id};
}

// Payload of hashes (32 bytes each) <-> vector.
Status DecodeHashes(ByteView payload, uint32_t count, std::vector<ChainHash>* out);

}  // namespace larder
