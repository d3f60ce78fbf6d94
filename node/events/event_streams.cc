#include "node/events/event_streams.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "transport/thread.h"

namespace larder::node {
namespace {

namespace api = larder::control::v1;

constexpr size_t kStreamsMax = 8;  // a quarter of the service's threads
constexpr uint64_t kStuckUs = 10'000'000;
constexpr uint64_t kSignOfLifeUs = 1'000'000;
constexpr auto kPause = std::chrono::milliseconds(20);

api::BlockEvent::Kind KindOf(BlockEventKind kind) {
  switch (kind) {
    case BlockEventKind::kStored:
      return api::BlockEvent::KIND_STORED;
    case BlockEventKind::kMoved:
      return api::BlockEvent::KIND_MOVED;
    case BlockEventKind::kRemoved:
      return api::BlockEvent::KIND_REMOVED;
    case BlockEventKind::kCleared:
      return api::BlockEvent::KIND_CLEARED;
  }
  return api::BlockEvent::KIND_UNSPECIFIED;
}

std::string BytesOf(const ChainHash& hash) {
  return {reinterpret_cast<const char*>(hash.bytes.data()), hash.bytes.size()};
}

void Fill(const BlockEvent& event, const std::string& hex, api::BlockEvent* out) {
  const bool stays = event.kind == BlockEventKind::kStored || event.kind == BlockEventKind::kMoved;
  const bool leaves = event.kind == BlockEventKind::kRemoved || event.kind == BlockEventKind::kMoved;
  out->set_sequence(event.sequence);
  out->set_unix_ms(event.unix_ms);
  out->set_kind(KindOf(event.kind));
  out->set_hex(hex);
  if (event.kind == BlockEventKind::kCleared) return out->set_clear_epoch(event.clear_epoch);
  out->set_hash(BytesOf(event.hash));
  out->set_group(event.group);
  out->set_layer_begin(event.rectangle.layer_begin);
  out->set_layer_end(event.rectangle.layer_end);
  out->set_head_begin(event.rectangle.head_begin);
  out->set_head_end(event.rectangle.head_end);
  out->set_whole(event.whole);
  if (stays) out->set_tier(std::string(PresenceName(event.tier)));
  if (leaves) out->set_from(std::string(PresenceName(event.from)));
  if (leaves) out->set_reason(std::string(PresenceName(event.reason)));
  for (const ChainHash& hash : event.constituents) out->add_constituents(BytesOf(hash));
}

void Fill(const EventPage& page, uint64_t incarnation, api::EventsResponse* out) {
  std::vector<std::string> hex;
  for (const EventName& name : page.names) hex.push_back(ToHex(name.name_space.bytes));
  out->set_incarnation(incarnation);
  out->set_reset(page.reset);
  for (const BlockEvent& event : page.events) Fill(event, hex[event.name], out->add_events());
  for (const BlockEvent& event : page.present) Fill(event, hex[event.name], out->add_present());
  out->set_next(page.resumable ? page.next : 0);
  out->set_complete(page.complete);
}

grpc::Status StatusOf(const Status& status) {
  const bool off = status.code() == Code::kUnsupported;
  return {off ? grpc::StatusCode::FAILED_PRECONDITION : grpc::StatusCode::UNAVAILABLE, status.text()};
}

}  // namespace

// A place, if need be that of the reader that has been stuck for longest.
bool EventStreams::Take(grpc::ServerContext* context, Node* node, Place* place) {
  const uint64_t now_us = transport::NowUs();
  const std::lock_guard lock(mutex_);
  if (streams_.size() >= kStreamsMax) {
    const auto age = [&](const Stream& s) {
      return s.writing_since_us == 0 ? 0 : now_us - std::min(now_us, s.writing_since_us);
    };
    const auto stuck = std::max_element(streams_.begin(), streams_.end(),
                                        [&](const Stream& a, const Stream& b) { return age(a) < age(b); });
    // It goes as soon as its thread has noticed; who is told to come again finds the place free.
    if (age(*stuck) >= kStuckUs) stuck->context->TryCancel();
    return false;
  }
  *place = streams_.insert(streams_.end(), {context, 0});
  node->SetEventStreams(static_cast<uint32_t>(streams_.size()));
  return true;
}

void EventStreams::Leave(Place place, Node* node) {
  const std::lock_guard lock(mutex_);
  streams_.erase(place);
  node->SetEventStreams(static_cast<uint32_t>(streams_.size()));
}

void EventStreams::Mark(Place place, uint64_t writing_since_us) {
  const std::lock_guard lock(mutex_);
  place->writing_since_us = writing_since_us;
}

grpc::Status EventStreams::Serve(Node* node, const std::string& tenant, grpc::ServerContext* context,
                                 const api::EventsRequest& request,
                                 grpc::ServerWriter<api::EventsResponse>* writer) {
  Place place;
  if (!Take(context, node, &place)) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "this node serves " + std::to_string(kStreamsMax) +
                                                      " followers of events at most; come again later"};
  }
  const uint64_t incarnation = node->info().record.incarnation;
  EventCursor cursor;
  if (request.incarnation() == incarnation) cursor.next = request.next();
  cursor.followed = cursor.next != 0;
  grpc::Status end(grpc::StatusCode::CANCELLED, "the follower has gone");
  bool was_complete = false;
  uint64_t told_us = 0;
  while (!context->IsCancelled()) {
    const Result<EventPage> page = node->ReadEvents(&cursor, tenant);
    if (!page.ok()) {
      end = StatusOf(page.status());
      break;
    }
    const uint64_t now_us = transport::NowUs();
    const bool news = page->reset || !page->events.empty() || !page->present.empty() ||
                      page->complete != was_complete || now_us - told_us >= kSignOfLifeUs;
    if (news) {
      api::EventsResponse response;
      Fill(page.value(), incarnation, &response);
      Mark(place, now_us);
      const bool taken = writer->Write(response);
      Mark(place, 0);
      if (!taken) break;
      was_complete = page->complete;
      told_us = now_us;
    }
    if (!page->more) std::this_thread::sleep_for(kPause);
  }
  Leave(place, node);
  return end;
}

}  // namespace larder::node
