// What the owner's state is made of: a record for each tenant, namespace, session, ticket and whatever waits,
// and the bounds of how many there may be. Private to node/owner/.
#pragma once

#include <array>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/eviction/policy.h"
#include "node/owner/arena.h"
#include "node/owner/block_name.h"
#include "node/owner/cover.h"
#include "node/owner/event_log.h"
#include "node/owner/homecoming.h"
#include "node/owner/index.h"
#include "node/owner/miss_memory.h"
#include "node/owner/owner.h"
#include "node/owner/place_times.h"
#include "node/owner/removed_lately.h"
#include "node/owner/waits.h"
#include "node/ssd/admission.h"
#include "node/ssd/ssd_tier.h"

namespace larder::node {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr uint32_t kNamespacesPerSessionMax = 256;
inline constexpr uint32_t kPinsPerSessionMax = 4096;
inline constexpr uint32_t kVerifiesMax = 4096;  // pieces being checked for reports, of a node
inline constexpr uint32_t kLooksPerVictim = 64;
inline constexpr uint32_t kVictimRounds = 16;     // pinned entries at the cold end: so many looks in all
inline constexpr uint32_t kSweepPerStep = 512;    // cleared pieces that are freed in one go
inline constexpr uint32_t kTimerStepsMax = 1024;  // of each kind in one OnTimer
inline constexpr uint32_t kEvictionsPerRequestMax = 8192;
inline constexpr uint32_t kSweepsPerRequestMax = 4;
inline constexpr uint32_t kExtentsMax = 65536;  // of one reply
inline constexpr uint64_t kTicketBytesMax = 64
                                            << 20;  // what open tickets keep besides their slots, of a node
// Pieces of crowded keys, and holes between them, that one event looks at: about 10 ms.
inline constexpr uint64_t kWorkPerEvent = 4 << 20;
inline constexpr uint64_t kReplyHeaderSlack = 4096;  // envelope, lengths, counts
// A source of this kind lies on SSD; the other bits are its number there.
inline constexpr uint32_t kSsdBit = 0x80000000u;
inline constexpr std::string_view kForwardsFull =
    "this node leaves, and the nodes that take its blocks do not answer; ask again";
inline constexpr size_t kColdGetsMax = 4096;  // gets that wait for SSD, of a node
// Requests that wait for other nodes' answers: of a node, the keys of all, the bytes of all, the keys of one.
inline constexpr size_t kAsidesMax = 4096;
inline constexpr uint64_t kAsideKeysMax = 65536;
inline constexpr uint64_t kAsideBytesMax = 64 << 20;
inline constexpr size_t kAsideKeysOfOne = 1024;
// The session of what this node puts itself. Others' numbers begin at 1.
inline constexpr SessionId kOwnSession = 0;

struct Tenant {
  std::string name;
  uint32_t number_of_limits = 0;
  TenantLimits limits;
  uint32_t namespaces = 0;
  uint64_t pinned_bytes = 0;
  uint64_t used_bytes = 0;      // slots of its pieces, pinned ones that left included, and of its tickets
  uint64_t spilling_bytes = 0;  // of them, on their way to SSD
  uint64_t leaving_bytes = 0;   // of them, of pieces that left and that work still holds
  uint32_t tickets = 0;
  uint64_t last_slot_bytes = 0;
  uint64_t search_ssd_us = 0;  // none of its records were found; not looked for again before
};

struct NamespaceRecord {
  Namespace name_space;
  std::string identity;
  Digest salt_digest{};  // for the nodes that blocks are handed to
  uint32_t tenant = 0;
  uint64_t ttl_ms = 0;    // of its tenant; 0: none
  uint32_t replicas = 1;  // of its tenant
  Grid grid;
  uint32_t clear_epoch = 0;
  uint32_t generation =
      1;  // never used twice with this number, unlike the epoch, which is the namespace's own
  uint32_t swept_from = 0;  // the last generation that a clear hid
  uint64_t fingerprint_seed = 0;
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  uint32_t sessions = 0;  // that have it open
  uint32_t ssd_space = 0;
  uint32_t cleared_s = 0;  // Unix; what left before went with the clear at the latest
};

struct SoftPin {
  SessionId session = 0;
  uint64_t end_us = 0;
  uint32_t tenant = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> entries;
};

struct Sending {
  uint64_t begun_us = 0;
  std::vector<uint32_t> entries;  // one hard pin each
};

struct Session {
  Digest writer{};
  std::string tenant;                 // empty: any
  bool restores = false;              // a node that restores copies
  bool parts = false;                 // takes a get's answer in several replies
  bool hands_over = false;            // a node that leaves
  std::vector<uint32_t> name_spaces;  // number on this connection - 1 -> node-wide number
  std::set<uint64_t> tickets;
  std::map<uint64_t, SoftPin> pins;
  std::unordered_map<uint64_t, Sending> sendings;
  std::set<uint64_t> waits;
  std::set<uint64_t> reports;
  std::set<uint64_t> cold_gets;
  std::set<uint64_t> asides;
};

struct Ticket {
  SessionId session = 0;
  BlockName name;
  Rectangle rectangle;
  SlotPlace place;
  uint64_t payload_bytes = 0;
  uint16_t codec = 0;
  std::vector<PartRun> parts;
  Bytes codec_data;
  std::vector<ChainHash> constituents;
  uint32_t depth = 0;
  uint64_t kept_bytes = 0;  // of parts, codec data and constituents
  bool revoked = false;
  uint64_t lease_end_us = 0;  // by lease_clock_us; 0: none
  uint64_t progress_us = 0;
  std::list<uint64_t>::iterator stall_position;  // valid unless revoked
};

// A piece on its way from SSD into a slot.
struct ColdRead {
  BlockName name;
  Rectangle piece;
  Rectangle read;  // what of it
  bool promote = false;
  bool begun = false;  // it has its slot, and the disk its job
  ssd::Lane lane = ssd::Lane::kInteractive;
  uint64_t bytes = 0;  // of its slot
  SlotPlace place;
  std::vector<uint64_t> gets;  // that wait for it; some may have given up
};

// A get (or prefetch) with pieces that come from SSD: its reply, or the last of its replies, waits for them.
struct ColdGet {
  struct Source {
    Patch patch;         // entry: in memory, hard-pinned; kNone: not yet there
    Rectangle piece;     // on SSD
    uint64_t read = 0;   // 0: it was in memory
    uint64_t bytes = 0;  // of the slot that it will need
  };
  struct Block {
    BlockRef ref;
    Presence presence = Presence::kSsd;
    bool answered = false;    // and its sources are the reply's
    uint32_t left = 0;        // sources that SSD owes
    uint64_t cold_bytes = 0;  // slots of what comes from SSD
    std::vector<Source> sources;
  };
  SessionId session = 0;
  Envelope envelope;
  uint64_t expire_us = 0;
  uint64_t give_up_us = UINT64_MAX;
  uint32_t number = 0;
  Space space;
  bool prefetch = false;
  bool begun = false;
  bool too_late = false;     // a block was given up, so that those behind it are of no use
  bool parts = false;        // it may be answered in several replies
  uint32_t replies = 0;      // so far
  uint64_t ready_bytes = 0;  // cold_bytes of blocks that came since the last of them
  ssd::Lane lane = ssd::Lane::kInteractive;
  uint64_t slot_bytes = 0;  // of what is to be read
  uint64_t move_bytes = 0;  // as of its asker
  uint32_t reads_left = 0;
  std::vector<Block> blocks;
};

// A reply that waits until SSD has forgotten what it says is gone.
struct DurableReply {
  SessionId session = 0;
  uint64_t expire_us = 0;
  Bytes header;
  uint64_t token = 0;  // of what was undurable when it was asked for, the last; 0: nothing was
};

// Another node's block: a hot one, or one that this host reads.
struct Leased {
  uint64_t end_us = 0;   // by lease_clock_us
  uint64_t used_us = 0;  // read last, or put
  uint32_t reads = 0;    // since its home asked last
};

// Copies that have to go, and who waits for it. In holders[i].end_us at the latest it has heard.
struct OpenRevoke {
  HotRevoke told;
  uint64_t since = 0;  // its own token, or the first of those that it took over
  std::vector<DurableReply> replies;
};

struct PendingReport {
  SessionId session = 0;
  Envelope envelope;
  uint64_t expire_us = 0;
  std::vector<uint8_t> dropped;
  uint32_t checks_left = 0;
};
struct Check {
  uint64_t report = 0;  // 0: the scrubber's
  uint32_t block = 0;
  uint32_t entry = 0;
};

// Who asks, for the length of one event.
struct Asker {
  SessionId id = 0;
  Session* session = nullptr;
  Envelope envelope;
  uint64_t expire_us = 0;
  uint64_t move_bytes = 0;  // of a Move: the most that it takes; 0: an ordinary get
  bool asked = false;       // other nodes have been asked; now it is answered with what is here
};

// A match or get that waits for what other nodes have.
struct Aside {
  SessionId session = 0;
  Request request;
  uint64_t give_up_us = 0;
  uint64_t bytes = 0;  // that it keeps
  uint32_t keys = 0;
  uint32_t open = 0;  // of them, not answered
};

// A piece on its way from another node into a slot; by ticket.
struct Coming {
  uint64_t question = 0;
  Digest writer{};
  std::vector<uint32_t> crc32c;
};

// What a chain asks of each disk before the block at hand.
using DiskBytes = std::array<uint64_t, ssd::SsdTier::kDisksMax>;

}  // namespace larder::node
