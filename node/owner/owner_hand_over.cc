// Leaving: which pieces other nodes get, hottest first, and the pins under them while they are sent. Whoever
// sends them (node/cluster/hand_over.h) has a thread of its own and asks for a page at a time.
#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr size_t kForwardsMax = 4096;
constexpr uint64_t kForwardHashesMax = 1 << 20;
constexpr uint32_t kListStep = 16384;  // entries that one call looks at: a few milliseconds
}  // namespace

// Visible, whole, of a namespace that was not cleared since, not on its way to SSD, and this node's own.
bool Owner::State::MayCopy(uint32_t entry) const {
  const Entry& e = index[entry];
  const NamespaceRecord& record = name_spaces[e.space.number];
  return e.hidden == 0 && e.spilling == 0 && e.leased == 0 && e.space.generation == record.generation;
}

// What has a time to live stays: the receiver would date it anew.
bool Owner::State::MayLeave(uint32_t entry) const {
  return MayCopy(entry) && name_spaces[index[entry].space.number].ttl_ms == 0;
}

uint64_t Owner::State::HeatOf(uint32_t entry) const {
  const EvictionPolicy& policy = *policies[arena.slab(index.place(entry).slab).class_number];
  return WarmPiece::HeatOf(policy.LastUs(entry), policy.DepthOf(entry));
}

OutgoingPage Owner::State::TakeOut(std::span<const WarmPiece> list, const PageLimits& limits, bool by_lease) {
  OutgoingPage page;
  uint64_t payload_bytes = 0, header_bytes = 0;
  for (; page.looked < list.size() && page.pieces.size() < limits.pieces; ++page.looked) {
    const uint32_t entry = list[page.looked].entry;
    const bool known = entry < index.entry_bound();
    if (rules.bypass || !known || !(by_lease ? MayCopy(entry) : MayLeave(entry))) {
      ++page.left;
      continue;
    }
    if (outgoing.count(entry) != 0) {
      page.busy.push_back(list[page.looked]);
      continue;
    }
    if (Old(entry)) {
      DropOld(entry);
      ++page.left;
      continue;
    }
    const uint32_t header_size = arena.ShapeOf(PlaceOf(entry)).header_bytes;
    payload_bytes += index.place(entry).payload_bytes;
    header_bytes += header_size;
    const bool full = payload_bytes > limits.payload_bytes || header_bytes > limits.header_bytes;
    if (full && !page.pieces.empty()) break;
    Result<BlockHeader> header = HeaderOf(entry);
    if (!header.ok()) {
      Leave(entry, Presence::kCorrupt);
      ++page.left;
      continue;
    }
    if (DropIfBanned(entry, header.value())) {
      ++page.left;
      continue;
    }
    PinHard(entry);
    outgoing.insert(entry);
    page.pieces.push_back({list[page.looked],
                           name_spaces[index[entry].space.number].replicas,
                           index.place(entry).born_s,
                           std::move(header).value(),
                           {arena.Payload(PlaceOf(entry)), index.place(entry).payload_bytes}});
  }
  return page;
}

bool Owner::State::ForwardsFull() const {
  return forwards.size() >= kForwardsMax || forward_hashes >= kForwardHashesMax;
}

// The answer waits for its token, as it does for what SSD must not bring back.
void Owner::State::AddForward(Forward&& forward) {
  if (!handing_over) return;
  forward.token = ++last_id;
  undurable.insert(forward.token);
  forward_hashes += forward.hashes.size();
  forwards.push_back(std::move(forward));
}

void Owner::BeginHandOver() {
  state_->handing_over = true;
}

uint64_t Owner::clock_s() const {
  return state_->steady_ms() / 1000;
}

std::optional<Forward> Owner::NextForward() const {
  if (state_->forwards.empty()) return std::nullopt;
  return state_->forwards.front();
}

void Owner::Forwarded(uint64_t token, bool heard) {
  std::deque<Forward>& forwards = state_->forwards;
  if (forwards.empty() || forwards.front().token != token) return;
  state_->forward_hashes -= forwards.front().hashes.size();
  forwards.pop_front();
  // Those that wait for this token are of its own request: later ones wait for tokens of their own.
  if (!heard) {
    state_->durable_replies.erase(token);
    for (auto& [number, revoke] : state_->revokes) {
      std::erase_if(revoke.replies, [&](const DurableReply& reply) { return reply.token == token; });
    }
  }
  state_->OnDurable(token);
}

std::vector<WarmPiece> Owner::ListWarm(uint32_t* from, const SlotSets* only) const {
  const State& state = *state_;
  const auto wanted = [&](const Entry& e) {
    if (only == nullptr) return true;
    const std::vector<bool>& slots = (*only)[state.name_spaces[e.space.number].replicas];
    return !slots.empty() && slots[SlotOf(e.hash)];
  };
  std::vector<WarmPiece> list;
  const uint32_t bound = state.rules.bypass ? 0 : state.index.entry_bound();
  const uint32_t end = *from < bound ? std::min(bound - *from, kListStep) + *from : bound;
  for (uint32_t entry = *from; entry < end; ++entry) {
    if (state.MayLeave(entry) && wanted(state.index[entry])) {
      list.push_back({state.HeatOf(entry), entry, state.index.place(entry).payload_bytes});
    }
  }
  *from = end == bound ? UINT32_MAX : end;
  return list;
}

OutgoingPage Owner::TakeOut(std::span<const WarmPiece> list, const PageLimits& limits, bool by_lease) {
  return state_->TakeOut(list, limits, by_lease);
}

std::vector<bool> Owner::LetGo(std::span<const uint32_t> entries) {
  std::vector<bool> left;
  left.reserve(entries.size());
  for (const uint32_t entry : entries) {
    left.push_back(!state_->MayLeave(entry));
    if (state_->outgoing.erase(entry) != 0) state_->UnpinHard(entry);
  }
  return left;
}

Result<Open> Owner::OpeningOf(const Namespace& name_space) const {
  const auto found = state_->number_of.find(name_space);
  if (found == state_->number_of.end()) {
    return Status(Code::kNotFound, "nobody has opened the namespace " + ToHex(name_space.bytes) + " here");
  }
  const NamespaceRecord& record = state_->name_spaces[found->second];
  return Open{record.identity, state_->tenants.at(record.tenant).name, record.salt_digest};
}

}  // namespace larder::node
