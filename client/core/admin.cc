// Clear on every node, and the round trip to one.
#include "client/core/core.h"

namespace larder::client {

void Core::QueuePlain(Operation* operation, Peer* peer, Verb verb, uint32_t name_space) {
  auto call = std::make_unique<Call>();
  call->operation = operation;
  call->peer = peer;
  call->verb = verb;
  call->name_space = name_space;
  peer->lanes[static_cast<size_t>(operation->priority)].waiting.push_back(std::move(call));
  MarkDirty(peer);
}

void Core::StartClear(ClearOperation* clear) {
  for (Peer* peer : peer_of_node_) {
    if (!Usable(peer)) {
      clear->failed_nodes.push_back(peer->record.id + ": " + peer->last_error);
      continue;
    }
    ++clear->open_items;
    QueuePlain(clear, peer, Verb::kClear, clear->name_space);
  }
}

void Core::OnClearReply(std::unique_ptr<Call> call, Link* link, ByteView record) {
  auto* clear = static_cast<ClearOperation*>(call->operation);
  ClearReply reply;
  const Status decoded = Decode(record, &reply);
  if (decoded.ok()) {
    clear->removed += reply.removed;
  } else {
    clear->failed_nodes.push_back(call->peer->record.id + ": " + decoded.ToString());
    Misbehaved(link, decoded.ToString());
  }
  --clear->open_items;
  MayComplete(clear);
}

void Core::FinishClear(ClearOperation* clear, Completion* completion) {
  completion->count = clear->removed;
  if (clear->failed_nodes.empty()) return;
  std::string text = "not cleared on " + std::to_string(clear->failed_nodes.size()) + " node(s): ";
  for (size_t i = 0; i < clear->failed_nodes.size(); ++i) {
    text += (i == 0 ? "" : "; ") + clear->failed_nodes[i];
  }
  const Code code = clear->status.ok() ? Code::kUnavailable : clear->status.code();
  completion->status = Status(code, text);
}

void Core::StartPing(PingOperation* ping) {
  const auto found = peers_.find(ping->node_id);
  if (found == peers_.end() || found->second->retired) {
    ping->status = Status(Code::kNotFound, "no node " + ping->node_id + " in the table");
    return;
  }
  Peer* peer = found->second.get();
  if (!Usable(peer)) {
    ping->status = Status(Code::kUnavailable, peer->record.id + ": " + peer->last_error);
    return;
  }
  ping->open_items = 1;
  QueuePlain(ping, peer, Verb::kPing, kNoNamespace);
}

}  // namespace larder::client
