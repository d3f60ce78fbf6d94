// Events of blocks: noted where pieces become visible and leave, read by followers in bounded steps.
#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr size_t kEventsPerPage = 1024;
constexpr size_t kPresentPerPage = 512;
constexpr size_t kHashesPerPage = 8192;   // constituents: keeps a page's message below a megabyte
constexpr uint32_t kLooksPerPage = 8192;  // entries or events of a page, told or not: less than a millisecond

// Gives the namespaces of a page's events numbers of its own.
class PageNames {
 public:
  explicit PageNames(EventPage* page) : page_(page) {}
  uint32_t NumberOf(const Namespace& name_space, const std::string& tenant) {
    const auto [found, added] = numbers_.try_emplace(name_space, static_cast<uint32_t>(page_->names.size()));
    if (added) page_->names.push_back({name_space, tenant});
    return found->second;
  }

 private:
  EventPage* const page_;
  std::map<Namespace, uint32_t> numbers_;
};

bool MayHear(std::string_view tenant, std::string_view of) {
  return tenant.empty() || tenant == of;
}

}  // namespace

BlockEvent Owner::State::EventOf(uint32_t entry) const {
  const Entry& e = index[entry];
  BlockEvent event;
  event.hash = e.hash;
  event.rectangle = e.rectangle;
  event.unix_ms = unix_ms;
  event.group = e.group;
  event.whole = e.rectangle == WholeOf(name_spaces[e.space.number].grid);
  return event;
}

BlockEvent Owner::State::EventOf(const ssd::SsdEntry& entry) const {
  BlockEvent event;
  event.hash = entry.hash;
  event.rectangle = entry.rectangle;
  event.unix_ms = unix_ms;
  event.group = entry.group;
  event.tier = event.from = Presence::kSsd;
  if (const auto number = number_of_space.find(entry.space); number != number_of_space.end()) {
    event.whole = entry.rectangle == WholeOf(name_spaces[number->second].grid);
    return event;
  }
  // Nobody has opened it since the node started.
  const Result<Identity> identity = Identity::Parse(ssd->space_record(entry.space).identity);
  if (!identity.ok()) return event;
  const Result<Grid> grid = GridOf(identity.value());
  event.whole = grid.ok() && entry.rectangle == WholeOf(grid.value());
  return event;
}

std::vector<ChainHash> Owner::State::ConstituentsOf(uint32_t entry) const {
  const SlotPlace place = PlaceOf(entry);
  Reader reader({arena.Header(place) + 8, 4});
  if (reader.U32() <= HeaderBytes(index[entry].rectangle.parts())) return {};  // as most: nothing but parts
  Result<BlockHeader> header = HeaderOf(entry);
  return header.ok() ? std::move(header->constituents) : std::vector<ChainHash>();
}

void Owner::State::LogMemory(uint32_t entry, BlockEvent&& event) {
  const NamespaceRecord& record = name_spaces[index[entry].space.number];
  events.Add(record.name_space, tenants.at(record.tenant).name, std::move(event));
}

// What a clear hid left with the clear.
bool Owner::State::Logged(uint32_t entry) const {
  const Space& space = index[entry].space;
  return events.on() && space.generation == name_spaces[space.number].generation;
}

void Owner::State::LogStored(uint32_t entry) {
  if (!Logged(entry)) return;
  BlockEvent event = EventOf(entry);
  event.constituents = ConstituentsOf(entry);
  LogMemory(entry, std::move(event));
}

void Owner::State::LogLeft(uint32_t entry, Presence reason) {
  if (!Logged(entry)) return;
  BlockEvent event = EventOf(entry);
  // Only what SSD has just taken leaves as evicted while it is on its way.
  const bool moved = index[entry].spilling != 0 && reason == Presence::kEvicted;
  event.kind = moved ? BlockEventKind::kMoved : BlockEventKind::kRemoved;
  event.tier = moved ? Presence::kSsd : Presence::kRam;
  event.reason = reason;
  LogMemory(entry, std::move(event));
}

// SSD has it. What now leaves memory says so as it leaves.
void Owner::State::LogWritten(uint32_t entry) {
  const Entry& e = index[entry];
  const bool leaves = e.hidden == 0 && e.warm == 0 && e.soft_pins == 0;
  if (!Logged(entry) || leaves) return;
  BlockEvent event = EventOf(entry);
  event.tier = Presence::kSsd;
  LogMemory(entry, std::move(event));
}

void Owner::State::LogGone(const ssd::SsdEntry& gone, Presence reason) {
  if (!events.on()) return;
  // A record of the same piece that is still there (two disks had one) is what followers know.
  for (uint32_t i = ssd->First(gone.space, gone.hash, gone.group); i != kNone; i = ssd->Next(i)) {
    if (ssd->entry(i).rectangle == gone.rectangle) return;
  }
  BlockEvent event = EventOf(gone);
  event.kind = BlockEventKind::kRemoved;
  event.reason = reason;
  const ssd::SpaceRecord& record = ssd->space_record(gone.space);
  events.Add(record.name_space, record.tenant, std::move(event));
}

void Owner::State::RemoveCold(uint32_t cold, Presence reason) {
  const ssd::SsdEntry gone = ssd->entry(cold);
  ssd->Remove(cold);
  LogGone(gone, reason);
}

void Owner::State::LogCleared(const NamespaceRecord& record) {
  if (!events.on()) return;
  BlockEvent event;
  event.kind = BlockEventKind::kCleared;
  event.reason = Presence::kCleared;
  event.unix_ms = unix_ms;
  event.clear_epoch = record.clear_epoch;
  events.Add(record.name_space, tenants.at(record.tenant).name, std::move(event));
}

// What a disk's index brings in is told by no event.
void Owner::State::LogLoading() {
  if (ssd_loaded || ssd == nullptr || !ssd->loaded()) return;
  ssd_loaded = true;
  if (events.on()) events.Break();
}

void Owner::State::ScanMemory(EventCursor* cursor, std::string_view tenant, EventPage* page) {
  PageNames names(page);
  size_t hashes = 0;
  const uint32_t bound = index.entry_bound();
  for (uint32_t looks = 0; looks < kLooksPerPage && cursor->scan_from < bound &&
                           page->present.size() < kPresentPerPage && hashes < kHashesPerPage;
       ++looks) {
    const uint32_t entry = cursor->scan_from++;
    if (index[entry].hidden != 0 || !Logged(entry)) continue;
    const NamespaceRecord& record = name_spaces[index[entry].space.number];
    const std::string& owner = tenants.at(record.tenant).name;
    if (!MayHear(tenant, owner)) continue;
    BlockEvent event = EventOf(entry);
    event.name = names.NumberOf(record.name_space, owner);
    event.constituents = ConstituentsOf(entry);
    hashes += event.constituents.size();
    page->present.push_back(std::move(event));
  }
  if (cursor->scan_from < bound) return;
  cursor->scan = ssd == nullptr ? EventCursor::Scan::kDone : EventCursor::Scan::kSsd;
  cursor->scan_from = 0;
}

// A record that is carried over to another segment keeps its entry, so that none is passed by.
void Owner::State::ScanSsd(EventCursor* cursor, std::string_view tenant, EventPage* page) {
  PageNames names(page);
  const uint32_t bound = ssd->entry_bound();
  for (uint32_t looks = 0;
       looks < kLooksPerPage && cursor->scan_from < bound && page->present.size() < kPresentPerPage;
       ++looks) {
    const uint32_t number = cursor->scan_from++;
    if (!ssd->Listed(number)) continue;
    const ssd::SsdEntry& entry = ssd->entry(number);
    const ssd::SpaceRecord& record = ssd->space_record(entry.space);
    if (!MayHear(tenant, record.tenant)) continue;
    BlockEvent event = EventOf(entry);
    event.name = names.NumberOf(record.name_space, record.tenant);
    page->present.push_back(std::move(event));
  }
  if (cursor->scan_from >= bound) cursor->scan = EventCursor::Scan::kDone;
}

EventPage Owner::State::ReadEvents(EventCursor* cursor, std::string_view tenant) {
  EventPage page;
  if (!events.Has(cursor->next)) {
    page.reset = true;
    if (cursor->followed) ++counts.event_gaps;
    *cursor = {events.next(), EventCursor::Scan::kMemory, 0, true};
  }
  cursor->followed = true;
  PageNames names(&page);
  size_t hashes = 0;
  for (uint32_t looks = 0; looks < kLooksPerPage && cursor->next < events.next() &&
                           page.events.size() < kEventsPerPage && hashes < kHashesPerPage;
       ++looks) {
    const BlockEvent& event = events[cursor->next++];
    const EventName& name = events.name(event.name);
    if (!MayHear(tenant, name.tenant)) continue;
    hashes += event.constituents.size();
    page.events.push_back(event);
    page.events.back().name = names.NumberOf(name.name_space, name.tenant);
  }
  const bool caught_up = cursor->next == events.next();
  if (caught_up) {
    if (cursor->scan == EventCursor::Scan::kMemory) {
      ScanMemory(cursor, tenant, &page);
    } else if (cursor->scan == EventCursor::Scan::kSsd) {
      ScanSsd(cursor, tenant, &page);
    }
  }
  page.next = cursor->next;
  page.resumable = cursor->scan == EventCursor::Scan::kDone;
  page.complete = caught_up && cursor->scan == EventCursor::Scan::kDone;
  page.more = !page.complete;
  return page;
}

std::vector<std::optional<ColdPlace>> Owner::ColdPlaces(const Namespace& name_space,
                                                        std::span<const BlockAsked> blocks) const {
  std::vector<std::optional<ColdPlace>> out(blocks.size());
  if (state_->ssd == nullptr) return out;
  const ssd::SsdTier& ssd = *state_->ssd;
  const uint32_t space = ssd.SpaceNumber(name_space);
  if (space == ssd::SsdTier::kNone) return out;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const uint32_t entry = ssd.First(space, blocks[i].hash, blocks[i].group);
    if (entry != ssd::SsdTier::kNone) out[i] = ColdPlace{ssd.disk_of(entry), ssd.RecordFor(entry)};
  }
  return out;
}

Result<std::string> Owner::IdentityOf(const Namespace& name_space) const {
  const auto open = state_->number_of.find(name_space);
  if (open != state_->number_of.end()) return state_->name_spaces[open->second].identity;
  const ssd::SpaceRecord* cold = state_->ssd == nullptr ? nullptr : state_->ssd->FindSpace(name_space);
  if (cold != nullptr && !cold->identity.empty()) return cold->identity;
  return Status(Code::kNotFound, "no namespace " + ToHex(name_space.bytes) + " on this node");
}

Result<EventPage> Owner::ReadEvents(EventCursor* cursor, std::string_view tenant) {
  if (!state_->events.on()) {
    return Status(Code::kUnsupported, "this node keeps no events; start it with --events-max above 0");
  }
  return state_->ReadEvents(cursor, tenant);
}

}  // namespace larder::node
