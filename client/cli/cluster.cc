#include "client/cli/cluster.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

namespace larder::cli {
namespace {

constexpr size_t kThreadsMax = 16;
constexpr char kDefaultEndpoint[] = "127.0.0.1:7400";
constexpr char kDefaultControl[] = "127.0.0.1:7401";

// A static list carries data addresses only; the record that knows more is the node's own.
const NodeRecord* OwnRecord(const NodeTable& table, const std::string& asked) {
  const NodeRecord* by_address = nullptr;
  const NodeRecord* known = nullptr;
  size_t known_count = 0;
  for (const NodeRecord& record : table.nodes) {
    if (record.data_address == asked) by_address = &record;
    if (record.incarnation != 0) {
      known = &record;
      known_count++;
    }
  }
  return known_count == 1 ? known : by_address;
}

void AskData(const Globals& globals, NodeView* view) {
  const std::string address = view->record.data_address;
  Result<std::unique_ptr<Client>> client = Connect(globals, address);
  if (!client.ok()) {
    view->data_error = client.status().text();
    return;
  }
  view->table = client.value()->table();
  const NodeRecord* own = OwnRecord(view->table, address);
  if (own == nullptr) {
    view->data_error = "it answers, but its table does not have it";
    return;
  }
  view->record = *own;
  const Result<uint64_t> ping = client.value()->Ping(own->id, {globals.timeout_us});
  if (ping.ok())
    view->ping_us = ping.value();
  else
    view->data_error = "it answers hello, but no ping: " + ping.status().text();
}

void AskControl(const Globals& globals, NodeView* view) {
  const std::string& address = view->record.control_address;
  if (address.empty()) {
    view->control_error = "its control address is not known";
    return;
  }
  Status status = AskInfo(address, globals.timeout_us, &view->info);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  view->info_unix_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  if (status.ok()) status = AskStats(address, globals, &view->stats);
  if (status.ok()) status = AskHealth(address, globals.timeout_us, &view->health);
  if (!status.ok()) view->control_error = status.text();
}

// A node that only gRPC reaches: its own words give the record.
void AddByControl(const Globals& globals, const std::string& address, std::vector<NodeView>* views) {
  control::v1::GetInfoResponse info;
  if (!AskInfo(address, globals.timeout_us, &info).ok()) return;
  const auto& self = info.self();
  auto it = std::find_if(views->begin(), views->end(), [&](const NodeView& view) {
    return view.record.id == self.id() || view.record.data_address == self.data_address();
  });
  if (it == views->end()) {
    views->emplace_back();
    it = views->end() - 1;
    it->data_error = "not asked";
    it->record.data_address = self.data_address();
  }
  it->record.id = self.id();
  it->record.control_address = address;
  it->record.http_address = self.http_address();
  it->record.build = self.build();
}

}  // namespace

void ForEachInParallel(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(count, kThreadsMax); i++) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < count; at = next++) work(at);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

NodeTable TableWithControl(const Globals& globals, const Client& client) {
  NodeTable table = client.table();
  ForEachInParallel(table.nodes.size(), [&](size_t i) {
    NodeRecord& record = table.nodes[i];
    if (!record.control_address.empty()) return;
    NodeView view;
    view.record = record;
    AskData(globals, &view);
    record.control_address = view.record.control_address;
  });
  return table;
}

std::vector<NodeView> LookAtCluster(const Globals& globals) {
  std::vector<NodeView> views;
  std::set<std::string> asked;
  std::vector<NodeView> round;
  const auto enlist = [&](const NodeRecord& record) {
    if (!asked.insert(record.data_address).second) return;
    round.emplace_back().record = record;
  };
  std::vector<std::string> seeds = globals.endpoints;
  if (seeds.empty()) seeds = {kDefaultEndpoint};
  for (const std::string& seed : seeds) {
    NodeRecord record;
    record.id = record.data_address = seed;
    enlist(record);
  }
  while (!round.empty()) {
    std::vector<NodeView> done = std::move(round);
    round.clear();
    ForEachInParallel(done.size(), [&](size_t i) { AskData(globals, &done[i]); });
    for (NodeView& view : done) {
      asked.insert(view.record.data_address);  // a seed may have had another name for it
      const bool again = std::any_of(views.begin(), views.end(), [&](const NodeView& other) {
        return view.data_error.empty() && other.data_error.empty() && other.record.id == view.record.id;
      });
      if (!again) views.push_back(std::move(view));
    }
    for (const NodeView& view : views) {
      for (const NodeRecord& record : view.table.nodes) enlist(record);
    }
  }
  std::vector<std::string> control = globals.control;
  const bool none =
      std::all_of(views.begin(), views.end(), [](const NodeView& view) { return !view.data_error.empty(); });
  if (control.empty() && globals.endpoints.empty() && none) control = {kDefaultControl};
  for (const std::string& address : control) {
    const bool known = std::any_of(views.begin(), views.end(), [&](const NodeView& view) {
      return view.record.control_address == address;
    });
    if (!known) AddByControl(globals, address, &views);
  }
  ForEachInParallel(views.size(), [&](size_t i) { AskControl(globals, &views[i]); });
  std::sort(views.begin(), views.end(),
            [](const NodeView& a, const NodeView& b) { return a.record.id < b.record.id; });
  return views;
}

}  // namespace larder::cli
