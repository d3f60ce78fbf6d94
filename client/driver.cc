#include "client/driver.h"

#include "client/link_io.h"

namespace larder::client {

Driver::Driver(const CoreOptions& options, World* world) : world_(world), core_(options, this) {}
Driver::~Driver() = default;

uint32_t Driver::AddNamespace(const ClientNamespace& name_space) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return core_.AddNamespace(name_space);
}

Result<OperationId> Driver::Submit(std::unique_ptr<Operation> operation) {
  Result<OperationId> id = Status(Code::kInternal, "");
  Enter([&](Core& core, uint64_t now_us) { id = core.Submit(std::move(operation), now_us); });
  return id;
}

void Driver::Cancel(OperationId id) {
  Enter([&](Core& core, uint64_t now_us) { core.Cancel(id, now_us); });
}

void Driver::CancelWaiting(OperationId id) {
  Enter([&](Core& core, uint64_t now_us) { core.CancelWaiting(id, now_us); });
}

void Driver::Report(uint32_t name_space, const std::vector<BlockRef>& blocks) {
  Enter([&](Core& core, uint64_t now_us) { core.SendReport(name_space, blocks, now_us); });
}

void Driver::Touch(uint32_t name_space, const TouchRequest& request) {
  Enter([&](Core& core, uint64_t now_us) { core.SendTouch(name_space, request, now_us); });
}

void Driver::Release(uint64_t pin) {
  Enter([&](Core& core, uint64_t now_us) { core.Release(pin, now_us); });
}

void Driver::OnTimer() {
  Enter([&](Core& core, uint64_t now_us) {
    armed_us_ = UINT64_MAX;  // whoever waits for it asks again
    core.OnTimer(now_us);
  });
}

void Driver::Shutdown() {
  Enter([](Core& core, uint64_t now_us) { core.Shutdown(now_us); });
}

NodeTable Driver::table() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return core_.routing() == nullptr ? NodeTable{} : core_.routing()->table;
}

std::vector<PeerInfo> Driver::peers() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return core_.Peers(world_->NowUs());
}

ClientStats Driver::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return core_.stats();
}

std::string Driver::CheckInvariants() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return core_.CheckInvariants();
}

void Driver::TakeRest(Rest* rest) {
  std::swap(*rest, rest_);
  const uint64_t next_us = core_.NextTimerUs();
  if (next_us < armed_us_) {
    armed_us_ = next_us;
    rest->timer_us = next_us;
  }
}

void Driver::Finish(Rest&& rest) {
  for (const auto& link : rest.links) link->Flush();
  for (const auto& sink : rest.sinks) sink->Wake();
  if (rest.timer_us != UINT64_MAX) world_->TimerAt(rest.timer_us);
  for (NodeTable& table : rest.tables) {
    auto routing = std::make_shared<const Routing>(std::move(table));
    Enter([&](Core& core, uint64_t now_us) { core.OnRouting(std::move(routing), now_us); });
  }
}

// The link's connection, noted as having something to do; nullptr when it is closed.
LinkIo* Driver::Touched(LinkId link) {
  const auto found = links_.find(link);
  if (found == links_.end()) return nullptr;
  if (rest_.links.empty() || rest_.links.back() != found->second) rest_.links.push_back(found->second);
  return found->second.get();
}

void Driver::Connect(LinkId link, const Endpoint& endpoint, Priority lane, int loop, uint64_t timeout_us) {
  links_.emplace(link, std::make_shared<LinkIo>(this, link));
  LinkIo::Out out;
  out.kind = LinkIo::Out::Kind::kConnect;
  out.endpoint = endpoint;
  out.connect.timeout_us = timeout_us;
  out.connect.batch = lane == Priority::kBatch;
  out.connect.loop = loop;
  Touched(link)->Add(std::move(out));
}

void Driver::Send(LinkId link, transport::OutMessage&& message) {
  LinkIo* io = Touched(link);
  if (io == nullptr) return;
  LinkIo::Out out;
  out.message = std::move(message);
  io->Add(std::move(out));
}

void Driver::SendPut(LinkId link, PutJob&& job) {
  LinkIo* io = Touched(link);
  if (io == nullptr) return;
  LinkIo::Out out;
  out.kind = LinkIo::Out::Kind::kPut;
  out.job = std::make_unique<PutJob>(std::move(job));
  io->Add(std::move(out));
}

void Driver::CancelSend(LinkId link, uint64_t token) {
  LinkIo* io = Touched(link);
  if (io == nullptr) return;
  LinkIo::Out out;
  out.kind = LinkIo::Out::Kind::kCancel;
  out.id = token;
  io->Add(std::move(out));
}

void Driver::Divert(LinkId link, uint64_t landing_id) {
  LinkIo* io = Touched(link);
  if (io == nullptr) return;
  LinkIo::Out out;
  out.kind = LinkIo::Out::Kind::kDivert;
  out.id = landing_id;
  io->Add(std::move(out));
}

void Driver::Close(LinkId link, transport::Failure why) {
  LinkIo* io = Touched(link);
  if (io == nullptr) return;
  LinkIo::Out out;
  out.kind = LinkIo::Out::Kind::kClose;
  out.why = why;
  io->Add(std::move(out));
}

void Driver::BuildRouting(NodeTable&& table) {
  rest_.tables.push_back(std::move(table));
}

void Driver::Complete(std::shared_ptr<CompletionSink> sink, Completion&& completion) {
  if (sink == nullptr) return;
  sink->Push(std::move(completion));
  rest_.sinks.push_back(std::move(sink));
}

}  // namespace larder::client
