#include "node/cluster/hear_rules.h"

#include <cstring>

#include "node/membership/control_calls.h"
#include "node/owner_thread.h"

namespace larder::node {

namespace {

namespace api = larder::control::v1;

// Those that answered.
std::vector<api::QuarantineState> AskAll(const std::vector<std::string>& addresses, const std::string& token,
                                         uint64_t timeout_us) {
  CallQueue queue;
  std::vector<std::unique_ptr<ControlCall<api::QuarantineState>>> calls;
  for (const std::string& address : addresses) {
    auto call = std::make_unique<ControlCall<api::QuarantineState>>();
    Prepare(&call->context, token, timeout_us);
    call->stub = api::Control::NewStub(ConnectToNode(address));
    api::GetQuarantineRequest request;
    request.set_with_clears(true);
    call->reader = call->stub->AsyncGetQuarantine(&call->context, request, queue.get());
    call->reader->Finish(&call->response, &call->status, call.get());
    calls.push_back(std::move(call));
  }
  queue.Await();
  std::vector<api::QuarantineState> out;
  for (const auto& call : calls) {
    if (call->status.ok()) out.push_back(std::move(call->response));
  }
  return out;
}

void AddClears(const api::QuarantineState& state, Clears* clears) {
  const uint64_t now_ms = UnixMs();
  for (const api::QuarantineState::Cleared& each : state.cleared()) {
    Namespace name_space;
    if (each.name_space().size() != name_space.bytes.size()) continue;
    std::memcpy(name_space.bytes.data(), each.name_space().data(), name_space.bytes.size());
    (void)clears->Take(name_space, Clears::Bounded(each.stamp_unix_ms(), now_ms));
  }
  clears->Forget(Clears::Bounded(state.clears_forgotten_unix_ms(), now_ms));
}

}  // namespace

HeardRules HearRules(Node* node, const NodeTable& table, const std::string& token, uint64_t timeout_us) {
  HeardRules out;
  const std::string self = node->info().record.id;
  std::vector<std::string> addresses;
  for (const NodeRecord& record : table.nodes) {
    if (record.id == self || record.state == NodeState::kAway) continue;
    if (!record.control_address.empty()) addresses.push_back(record.control_address);
  }
  out.asked = addresses.size();
  const Result<QuarantineView> own = node->ViewQuarantine();
  if (addresses.empty() || !own.ok()) return out;
  Quarantine known;
  for (const QuarantineView::Rule& each : own->rules) (void)known.Add(each.rule);
  const std::vector<api::QuarantineState> answers = AskAll(addresses, token, timeout_us);
  // All at once: late stamps of one would hide that another has forgotten what we never heard.
  Clears clears;
  for (const api::QuarantineState& state : answers) AddClears(state, &clears);
  if (const Result<size_t> cleared = node->HearClears(clears); cleared.ok()) out.cleared = cleared.value();
  for (const api::QuarantineState& state : answers) {
    ++out.answered;
    for (const api::QuarantineState::Rule& rule : state.rules()) {
      QuarantineRule heard;
      if (!FromHex(rule.writer(), &heard.writer).ok()) continue;
      heard.since_ms = rule.since_unix_ms();
      const Result<bool> news = known.Add(heard);
      if (news.ok() && !news.value()) continue;
      const Status added = node->AddQuarantine(heard.writer, heard.since_ms, false);
      if (added.ok()) ++out.taken;
      if (!added.ok()) out.status = added;
    }
    if (state.bypass() && !known.bypass && !own->bypass) {
      known.bypass = true;
      if (const Status set = node->SetBypass(true); !set.ok()) out.status = set;
    }
  }
  return out;
}

}  // namespace larder::node
